//! The table of the configuration: one row for each key.
//!
//! Flags, their variables and `--help` are made of the rows (`flags`), and the file is read by them
//! (`raw`). Tests compare docs/configuration.md and config.toml.example with them.

use crate::server::{MAX_SKEW, MIN_HEADER_BYTES};

/// The largest limit in bytes that can be set.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// The largest `limits.memory_bytes`: 1 TiB.
const MAX_MEMORY_BYTES: u64 = 1024 * MAX_BYTES;

/// The largest limit in seconds that can be set.
const MAX_SECONDS: u64 = 3_600;

/// The largest connection limit: more than a system's ports and file descriptors.
const MAX_CONNECTIONS: u64 = 1_000_000;

/// The largest `limits.state_reads_per_second`. More would load a server for nothing.
const MAX_STATE_READS_PER_SECOND: u64 = 1_000;

/// The largest request rate that can be set.
const MAX_REQUESTS: u64 = 100_000;

/// The largest step limit that can be set.
const MAX_STEPS: u64 = 1_000_000;

/// The most recordings that may be kept. Larger directories are slow to list.
const MAX_RECORDINGS: u64 = 100_000;

/// The least and the most bytes of recordings: one run, and a large disk.
const MIN_RECORDED: u64 = 1024 * 1024;
const MAX_RECORDED: u64 = 1024 * 1024 * 1024 * 1024;

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// The key with its table. `NAME` stands for a name that the operator chooses. The rows of
    /// `upstream` are also those of `upstreams.NAME`, and the rows of `emit` those of
    /// `agents.NAME.emit`.
    pub name: &'static str,
    /// How its value is written.
    pub kind: ValueKind,
    /// What holds if the key is not given.
    pub absent: DefaultValue,
    /// The flag without its dashes, and the name of its value: `listen ADDR`. A switch has no value,
    /// and `page=true|false` may be given without one.
    pub flag: Option<&'static str>,
    /// When another value is used.
    pub applies: AppliesWhen,
    /// One sentence about the key, which is also the help of its flag.
    doc: &'static str,
    /// The place in the documents that has more.
    pub see: Option<&'static str>,
}

/// How the value of a key is written, and what bounds it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A string.
    Text,
    /// A text that no message repeats.
    Secret,
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// `true` or `false`.
    Switch,
    /// Texts without commas.
    List,
    /// A value in the table `acp`, which serde reads.
    Acp,
}

/// What holds if a key is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// Nothing that one could say of the key alone.
    Unsaid,
    /// This value, as text.
    Value(&'static str),
    /// What this says.
    Words(&'static str),
}

/// When another value of a key is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliesWhen {
    /// After the next reload.
    Reload,
    /// After a restart.
    Restart,
}

/// Declares the rows: the sentence, the name and the kind, and then what is not as usual, in this
/// order.
macro_rules! keys {
    ($(
        $(#[doc = $doc:literal])+
        $name:literal: $kind:expr
        $(, default $default:literal)?
        $(, unless given $words:literal)?
        $(, flag $flag:literal)?
        $(, applies $applies:ident)?
        $(, see $see:literal)?;
    )+) => {
        /// The rows.
        pub const KEYS: &[ConfigKey] = &[$(ConfigKey {
            $(absent: DefaultValue::Value($default),)?
            $(absent: DefaultValue::Words($words),)?
            $(flag: Some($flag),)?
            $(applies: AppliesWhen::$applies,)?
            $(see: Some($see),)?
            ..ConfigKey::new($name, $kind, concat!($($doc),+))
        }),+];
    };
}

keys! {
    /// The URL of the LangGraph server, such as `http://127.0.0.1:2024`.
    "upstream.url": ValueKind::Text, flag "upstream URL";
    /// Up to eight addresses of one deployment, instead of `url`.
    "upstream.urls": ValueKind::List, see "operate.md#several-addresses-of-one-langgraph-deployment";
    /// The LangGraph server's key, sent as `x-api-key`. Prefer the environment variable: other users
    /// can see command lines.
    "upstream.api_key": ValueKind::Secret, flag "upstream-api-key KEY";
    /// Whether the server is sent its callers' credentials.
    "upstream.forward_identity": ValueKind::Switch,
        unless given "true for the first upstream of the file, false for others";
    /// A certificate authority for the server, besides those of the system.
    "upstream.ca_file": ValueKind::Text;
    /// The gateway's client certificate with its key.
    "upstream.client_certificate_file": ValueKind::Text;
    /// The state key that holds the graph's conversation.
    "upstream.messages_key": ValueKind::Text, default "messages";
    /// A header of each request to the server.
    "upstream.headers.NAME": ValueKind::Secret;
    /// The agent that the alias NAME stands for. `agents.NAME = ".."` is short for it.
    "agents.NAME.agent": ValueKind::Text;
    /// The state key that holds the conversation of this agent's graph.
    "agents.NAME.messages_key": ValueKind::Text, unless given "that of its upstream";

    /// The address and port to listen on; a port alone means loopback, port 0 a free port.
    "listen": ValueKind::Text, default "127.0.0.1:8484", flag "listen ADDR", applies Restart;
    /// The address and port on which to serve Prometheus metrics; port 0 picks a free port.
    "admin_listen": ValueKind::Text, unless given "metrics are not served",
        flag "admin-listen ADDR", applies Restart;
    /// Allow a non-loopback admin address, although the admin listener does not authenticate.
    "admin_insecure": ValueKind::Switch, default "false", flag "admin-insecure";
    /// How to authenticate callers: none, bearer, jwt or upstream.
    "auth.mode": ValueKind::Text, default "none", flag "auth-mode MODE", see "front.md";
    /// The keys for mode bearer, as NAME=KEY,NAME=KEY. Prefer the environment variable: other users
    /// can see command lines.
    "auth.keys.NAME": ValueKind::Secret, flag "auth-keys KEYS";
    /// A file with keys for mode bearer, one NAME=KEY per line.
    "auth.keys_file": ValueKind::Text, flag "auth-keys-file FILE";
    /// For mode jwt: a file or URL with the JWKS that verifies tokens.
    "auth.jwks": ValueKind::Text, flag "auth-jwks FILE|URL";
    /// For mode jwt: a certificate authority for the server of that URL.
    "auth.jwks_ca_file": ValueKind::Text;
    /// For mode jwt: the required `iss` value.
    "auth.issuer": ValueKind::Text, flag "auth-issuer ISSUER";
    /// For mode jwt: accepted `aud` values, comma-separated.
    "auth.audience": ValueKind::List, flag "auth-audience AUDIENCE";
    /// For mode jwt: how many seconds the issuer's clock may differ.
    "auth.clock_skew_seconds": ValueKind::Number(0, MAX_SKEW.as_secs()), default "60";
    /// What a thread is that LangGraph does not find: empty or refused.
    "auth.unknown_threads": ValueKind::Text,
        unless given "refused to callers with credentials, empty for others";
    /// For mode upstream: the header by which LangGraph authenticates.
    "auth.credential_header": ValueKind::Text;
    /// Origins whose web pages may call the gateway, comma-separated; `*` for all.
    "cors.origins": ValueKind::List, unless given "none", flag "cors-origins ORIGINS";
    /// Whether pages may send cookies, for a proxy in front of the gateway.
    "cors.credentials": ValueKind::Switch, default "false";
    /// Host names that the gateway accepts without `auth`, comma-separated, besides IP addresses
    /// and local names.
    "hosts": ValueKind::List, flag "hosts NAMES";
    /// Allow a non-loopback address without authentication, or with mode upstream in front of a
    /// LangGraph server that accepts any credentials; and CORS for all origins without
    /// authentication.
    "insecure": ValueKind::Switch, default "false", flag "insecure";
    /// Whether system and developer messages of clients are sent to LangGraph: send or drop.
    "input.system_messages": ValueKind::Text, default "send", flag "system-messages POLICY";
    /// What a page sends whose thread LangGraph has lost: restore (the conversation) or newest (the
    /// person's newest messages).
    "input.lost_thread": ValueKind::Text, unless given "restore without `auth`, newest with it",
        see "mapping.md#a-lost-thread";
    /// How much of an error clients see: full, message, code or none.
    "error_detail": ValueKind::Text, default "message", flag "error-detail DETAIL", see "errors.md";
    /// An OpenTelemetry collector to send traces to, over HTTP.
    "otlp_endpoint": ValueKind::Text, unless given "none", flag "otlp-endpoint URL", applies Restart;
    /// Serve a page at `/` on which people can try the agents.
    "page": ValueKind::Switch, unless given "true on a loopback address without `auth`",
        flag "page=true|false", see "page.md";
    /// Append an audit log to this file: who did what on which thread and whether it was allowed,
    /// as JSON lines; `stderr` for stderr.
    "audit_log": ValueKind::Text, unless given "no audit log",
        flag "audit-log FILE", applies Restart, see "operate.md#audit-log";
    /// Record each run as LangGraph streams it, in files in this directory. The files hold what
    /// users and models write.
    "record.dir": ValueKind::Text, unless given "nothing is recorded",
        flag "record DIR", applies Restart;
    /// The most recordings.
    "record.files": ValueKind::Number(1, MAX_RECORDINGS), default "100", applies Restart;
    /// The most bytes of all recordings.
    "record.bytes": ValueKind::Number(MIN_RECORDED, MAX_RECORDED), default "268435456", applies Restart;
    /// Reload the configuration when its files change, not only on SIGHUP.
    "watch_config": ValueKind::Switch, default "false", flag "watch-config";
    /// What to log to stderr: levels such as `info` or `threadway=debug,warn`, and a format, `text`
    /// or `json`, in one list.
    "log": ValueKind::Text, default "info", flag "log FILTER", applies Restart, see "operate.md#logs";
    /// Request headers that are forwarded to LangGraph, besides those that always are.
    "forward_headers": ValueKind::List;
    /// Members of `forwardedProps.config.configurable` that clients may set.
    "forward_configurable": ValueKind::List;
    /// Values of `forwardedProps.multitaskStrategy` that clients may set.
    "forward_multitask_strategies": ValueKind::List;
    /// What LangGraph does with a message for a busy thread: reject, enqueue, interrupt or rollback.
    "multitask_strategy": ValueKind::Text, unless given "LangGraph's default";
    /// What a message does during an open approval: ask_again, or reject (the call).
    "on_message_while_interrupted": ValueKind::Text, default "ask_again";
    /// What happens to a run whose client disconnects: continue, or cancel after
    /// `limits.owner_grace_seconds`.
    "on_owner_disconnect": ValueKind::Text, default "continue", applies Restart;
    /// Whether streams are compressed for clients that ask for zstd or gzip: on or off.
    "compression": ValueKind::Text, default "off", see "operate.md#compression";
    /// Who may list, change and inspect threads: callers (whose credentials LangGraph checks), all
    /// or off.
    "thread_routes": ValueKind::Text, default "callers", see "copilotkit.md#who-may-list-threads";

    /// When the state is sent: delta, initial, final, all or none.
    "emit.state": ValueKind::Text, default "delta", see "emit.md";
    /// When all messages are sent: when_needed, always or none.
    "emit.messages": ValueKind::Text, default "when_needed", see "emit.md";
    /// Whether the content of tool results is sent.
    "emit.tool_results": ValueKind::Switch, default "true";
    /// The most bytes of a tool result; 0 for no limit.
    "emit.max_tool_result_bytes": ValueKind::Number(0, MAX_BYTES), default "0";
    /// The most bytes of a value in the state and of a custom event; 0 for no limit.
    "emit.max_event_bytes": ValueKind::Number(0, MAX_BYTES), default "0";
    /// Reasoning: show or hide.
    "emit.reasoning": ValueKind::Text, default "show";
    /// Whether the events of steps are sent.
    "emit.steps": ValueKind::Switch, default "true";
    /// Whether activities are sent: the plan, and the status of each tool.
    "emit.activities": ValueKind::Switch, default "true";
    /// How subagents are shown: attributed, inline or hidden.
    "emit.subagents": ValueKind::Text, default "attributed";
    /// Whether events carry the parts of LangGraph's stream that they were made of.
    "emit.raw": ValueKind::Switch, default "false";
    /// What LangChain's harness adds: notice, show or hide.
    "emit.harness": ValueKind::Text, default "notice";

    /// The largest request body, in bytes.
    "limits.body_bytes": ValueKind::Number(1, MAX_BYTES),
        default "10485760", flag "limit-body-bytes N";
    /// The largest request head, in bytes.
    "limits.header_bytes": ValueKind::Number(MIN_HEADER_BYTES as u64, MAX_BYTES),
        default "65536", flag "limit-header-bytes N";
    /// How long a client may take to send a request's head, in seconds.
    "limits.header_timeout_seconds": ValueKind::Number(1, MAX_SECONDS),
        default "10", flag "limit-header-timeout-seconds N";
    /// The most open connections.
    "limits.connections": ValueKind::Number(1, MAX_CONNECTIONS),
        default "10000", flag "limit-connections N";
    /// The most open connections of one address, or of one /64 of IPv6.
    "limits.connections_per_peer": ValueKind::Number(1, MAX_CONNECTIONS), unless given "no limit";
    /// How many bytes of a run's events are kept for slow readers.
    "limits.log_bytes": ValueKind::Number(0, MAX_BYTES),
        default "1048576", flag "limit-log-bytes N", applies Restart;
    /// How many bytes clients may make the gateway hold: bodies, unread answers, followed threads,
    /// ACP sessions.
    "limits.memory_bytes": ValueKind::Number(1, MAX_MEMORY_BYTES),
        default "268435456", flag "limit-memory-bytes N", see "operate.md#memory-for-clients";
    /// The most requests per second from one caller.
    "limits.requests_per_second": ValueKind::Number(1, MAX_REQUESTS),
        unless given "no limit", flag "limit-requests-per-second N";
    /// The most requests of one caller at once, after a pause.
    "limits.request_burst": ValueKind::Number(1, MAX_REQUESTS),
        unless given "`limits.requests_per_second`";
    /// The most open streams of one caller.
    "limits.streams_per_caller": ValueKind::Number(1, MAX_CONNECTIONS),
        unless given "no limit", flag "limit-streams-per-caller N";
    /// How long a run may be without a reader, in seconds, before `on_owner_disconnect` cancels it.
    "limits.owner_grace_seconds": ValueKind::Number(0, MAX_SECONDS), default "30", applies Restart;
    /// How many states of followed threads are read in a second from one upstream.
    "limits.state_reads_per_second": ValueKind::Number(1, MAX_STATE_READS_PER_SECOND),
        default "10", applies Restart, see "operate.md#how-soon-a-follower-sees-a-change";
    /// The largest step limit that a client may ask for.
    "limits.recursion_limit": ValueKind::Number(1, MAX_STEPS), default "1000";

    /// The agent of new sessions.
    "acp.agent": ValueKind::Acp, unless given "the first that the server lists";
    /// What a prompt may hold besides text and links.
    "acp.prompt": ValueKind::Acp,
        unless given "embedded context, and what the graph's model takes", see "editors.md";
    /// What absolute paths in tool arguments refer to: host or virtual.
    "acp.paths": ValueKind::Acp, default "host";
    /// The key under which the graph gets the editor's MCP servers.
    "acp.forward_mcp_servers": ValueKind::Acp, see "editors.md";
    /// Whether the graph gets the secrets of these servers too.
    "acp.forward_mcp_secrets": ValueKind::Acp, default "false";
    /// The key under which the graph reads an editor's system prompt.
    "acp.system_prompt_key": ValueKind::Acp, see "editors.md";
    /// The unstable parts of ACP that are offered to editors: cursors.
    "acp.unstable": ValueKind::Acp, unless given "none", see "editors.md#forks-at-an-earlier-turn";
    /// The tools for which a person may answer "always" whatever the arguments are.
    "acp.always_by_tool": ValueKind::Acp, unless given "each but those that execute or delete";
    /// The context window of a model, in tokens.
    "acp.context_windows.NAME": ValueKind::Acp;
    /// The kind of a tool.
    "acp.tool_kinds.NAME": ValueKind::Acp;
    /// The answer to calls of a tool that the graph asks about: ask, allow or reject.
    "acp.permissions.NAME": ValueKind::Acp;
    /// What a slash command does.
    "acp.commands.NAME.description": ValueKind::Acp;
    /// What a person may type after the command.
    "acp.commands.NAME.hint": ValueKind::Acp;
    /// The prompt that the command sends.
    "acp.commands.NAME.prompt": ValueKind::Acp;
    /// The name of a mode in the editor.
    "acp.modes.NAME.name": ValueKind::Acp;
    /// What the mode does.
    "acp.modes.NAME.description": ValueKind::Acp;
    /// The assistant of the mode.
    "acp.modes.NAME.assistant": ValueKind::Acp;
    /// Members of `config.configurable` that the mode sets.
    "acp.modes.NAME.configurable": ValueKind::Acp;
    /// Answers to calls of tools that come before the general ones.
    "acp.modes.NAME.permissions": ValueKind::Acp;
}

/// The row of a key.
pub(super) fn find(name: &str) -> Option<&'static ConfigKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// The environment variable that stands in for a flag.
pub fn variable(flag: &str) -> String {
    format!("THREADWAY_{}", flag.replace('-', "_").to_uppercase())
}

// === impl ConfigKey ===

impl ConfigKey {
    const fn new(name: &'static str, kind: ValueKind, doc: &'static str) -> Self {
        let (absent, applies) = (DefaultValue::Unsaid, AppliesWhen::Reload);
        Self { name, kind, absent, flag: None, applies, doc, see: None }
    }

    /// The sentence about the key.
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// The name of the flag.
    pub fn flag_name(&self) -> Option<&'static str> {
        self.flag?.split([' ', '=']).next()
    }
}
