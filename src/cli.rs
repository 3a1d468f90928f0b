//! The command line: commands, flags, and the environment variables that stand in for flags.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use threadway_translate::langgraph::MessagesKey;

const EXIT_CODES: &str = "\
Exit codes:
  0   success
  1   the command failed while it ran
  64  the command line or the configuration is wrong";

const CHECK_EXIT_CODES: &str = "\
Exit codes:
  0   every upstream can be served
  1   an upstream cannot be served, a name has no agent, or a file or an address cannot be used
  64  the command line or the configuration is wrong";

const WATCH_EXIT_CODES: &str = "\
Exit codes:
  0   stopped, or --timeout has passed; with --once: everything was printed
  1   the gateway refused or could not be reached; with --once: the thread is unknown
  3   with --once: --timeout passed before the end
  64  the command line is wrong";

const TRANSLATE_EXIT_CODES: &str = "\
Exit codes:
  0   success
  1   the command failed while it ran
  2   the recording is incomplete
  64  the command line is wrong";

/// Serves a LangGraph server's threads and runs to AG-UI clients, and to editors that speak ACP.
#[derive(Debug, Parser)]
#[command(name = "threadway", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
    /// What to log to stderr: levels such as `info` or `threadway=debug,warn`, and a format, `text`
    /// or `json`, in one list [default: info,text].
    #[arg(
        long,
        global = true,
        env = "THREADWAY_LOG",
        hide_env_values = true,
        value_name = "FILTER"
    )]
    pub log: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the agents of a LangGraph server.
    #[command(after_help = EXIT_CODES)]
    Serve(Options),
    /// Serve the agents of a built-in, scripted LangGraph server. Needs nothing else.
    #[command(after_help = EXIT_CODES)]
    Demo(Demo),
    /// Run as an ACP agent on stdin and stdout. An editor starts this.
    #[command(after_help = EXIT_CODES)]
    Acp(Acp),
    /// Check the configuration, try each upstream, and report problems.
    #[command(after_help = CHECK_EXIT_CODES)]
    Check(Options),
    /// Follow a thread in the terminal through a gateway, until ctrl-c.
    #[command(after_help = WATCH_EXIT_CODES)]
    Watch(Watch),
    /// Translate a recorded LangGraph stream from stdin to stdout.
    #[command(after_help = TRANSLATE_EXIT_CODES)]
    Translate(Translate),
    /// Print a completion script for a shell.
    #[command(after_help = EXIT_CODES)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print a manual page, for `man -l -`.
    #[command(after_help = EXIT_CODES)]
    Man {
        /// The command that the page describes [default: threadway itself].
        command: Option<String>,
    },
}

/// Options of `serve` and `check`. A flag beats the environment, which beats the config file.
#[derive(Args, Clone, Default)]
pub struct Options {
    /// The URL of the LangGraph server, such as `http://127.0.0.1:2024`.
    #[arg(long, env = "THREADWAY_UPSTREAM", hide_env_values = true, value_name = "URL")]
    pub upstream: Option<String>,
    /// The LangGraph server's key, sent as `x-api-key`. Prefer the environment variable: other users
    /// can see command lines.
    #[arg(long, env = "THREADWAY_UPSTREAM_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub upstream_api_key: Option<String>,
    /// The address and port to listen on; a port alone means loopback, port 0 a free port [default:
    /// 127.0.0.1:8484].
    #[arg(long, env = "THREADWAY_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub listen: Option<String>,
    /// A config file; config.toml.example lists its keys.
    #[arg(long, env = "THREADWAY_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Access and operation.
    #[command(flatten)]
    pub front: Front,
    /// Limits on clients.
    #[command(flatten)]
    pub limits: Limits,
}

/// Access and operation.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Operation")]
pub struct Front {
    /// The address and port on which to serve Prometheus metrics; port 0 picks a free port
    /// [default: metrics are not served].
    #[arg(long, env = "THREADWAY_ADMIN_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// Allow a non-loopback admin address, although the admin listener does not authenticate.
    #[arg(long, env = "THREADWAY_ADMIN_INSECURE", hide_env_values = true)]
    pub admin_insecure: bool,
    /// How to authenticate callers: none, bearer, jwt or upstream [default: none].
    #[arg(long, env = "THREADWAY_AUTH_MODE", hide_env_values = true, value_name = "MODE")]
    pub auth_mode: Option<String>,
    /// The keys for mode bearer, as NAME=KEY,NAME=KEY. Prefer the environment variable: other users
    /// can see command lines.
    #[arg(long, env = "THREADWAY_AUTH_KEYS", hide_env_values = true, value_name = "KEYS")]
    pub auth_keys: Option<String>,
    /// A file with keys for mode bearer, one NAME=KEY per line.
    #[arg(long, env = "THREADWAY_AUTH_KEYS_FILE", hide_env_values = true, value_name = "FILE")]
    pub auth_keys_file: Option<String>,
    /// For mode jwt: a file or URL with the JWKS that verifies tokens.
    #[arg(long, env = "THREADWAY_AUTH_JWKS", hide_env_values = true, value_name = "FILE|URL")]
    pub auth_jwks: Option<String>,
    /// For mode jwt: the required `iss` value.
    #[arg(long, env = "THREADWAY_AUTH_ISSUER", hide_env_values = true, value_name = "ISSUER")]
    pub auth_issuer: Option<String>,
    /// For mode jwt: accepted `aud` values, comma-separated.
    #[arg(long, env = "THREADWAY_AUTH_AUDIENCE", hide_env_values = true, value_name = "AUDIENCE")]
    pub auth_audience: Option<String>,
    /// Origins whose web pages may call the gateway, comma-separated; `*` for all [default: none].
    #[arg(long, env = "THREADWAY_CORS_ORIGINS", hide_env_values = true, value_name = "ORIGINS")]
    pub cors_origins: Option<String>,
    /// Host names that the gateway accepts without `auth`, comma-separated, besides IP addresses
    /// and local names.
    #[arg(long, env = "THREADWAY_HOSTS", hide_env_values = true, value_name = "NAMES")]
    pub hosts: Option<String>,
    /// Allow a non-loopback address without authentication, or with mode upstream in front of a
    /// LangGraph server that accepts any credentials; and CORS for all origins without
    /// authentication.
    #[arg(long, env = "THREADWAY_INSECURE", hide_env_values = true)]
    pub insecure: bool,
    /// Whether system and developer messages of clients are sent to LangGraph: send or drop
    /// [default: send].
    #[arg(long, env = "THREADWAY_SYSTEM_MESSAGES", hide_env_values = true, value_name = "POLICY")]
    pub system_messages: Option<String>,
    /// How much of an error clients see: full, message, code or none [default: message].
    #[arg(long, env = "THREADWAY_ERROR_DETAIL", hide_env_values = true, value_name = "DETAIL")]
    pub error_detail: Option<String>,
    /// An OpenTelemetry collector to send traces to, over HTTP [default: none].
    #[arg(long, env = "THREADWAY_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Serve a page at `/` on which people can try the agents [default: true on a loopback address
    /// without `auth`].
    #[arg(
        long,
        env = "THREADWAY_PAGE",
        hide_env_values = true,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub page: Option<String>,
    /// Append an audit log to this file: who did what on which thread and whether it was allowed,
    /// as JSON lines; `stderr` for stderr [default: no audit log].
    #[arg(long, env = "THREADWAY_AUDIT_LOG", hide_env_values = true, value_name = "FILE")]
    pub audit_log: Option<String>,
    /// Record each run as LangGraph streams it, in files in this directory. The files hold what
    /// users and models write [default: nothing is recorded].
    #[arg(long, env = "THREADWAY_RECORD", hide_env_values = true, value_name = "DIR")]
    pub record: Option<String>,
    /// Reload the configuration when its files change, not only on SIGHUP.
    #[arg(long, env = "THREADWAY_WATCH_CONFIG", hide_env_values = true)]
    pub watch_config: bool,
}

/// Limits on clients.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// The largest request body, in bytes [default: 10485760].
    #[arg(long, env = "THREADWAY_LIMIT_BODY_BYTES", hide_env_values = true, value_name = "N")]
    pub limit_body_bytes: Option<String>,
    /// The largest request head, in bytes [default: 65536].
    #[arg(long, env = "THREADWAY_LIMIT_HEADER_BYTES", hide_env_values = true, value_name = "N")]
    pub limit_header_bytes: Option<String>,
    /// How long a client may take to send a request's head, in seconds [default: 10].
    #[arg(
        long,
        env = "THREADWAY_LIMIT_HEADER_TIMEOUT_SECONDS",
        hide_env_values = true,
        value_name = "N"
    )]
    pub limit_header_timeout_seconds: Option<String>,
    /// The most open connections [default: 10000].
    #[arg(long, env = "THREADWAY_LIMIT_CONNECTIONS", hide_env_values = true, value_name = "N")]
    pub limit_connections: Option<String>,
    /// How many bytes of a run's events are kept for slow readers [default: 1048576].
    #[arg(long, env = "THREADWAY_LIMIT_LOG_BYTES", hide_env_values = true, value_name = "N")]
    pub limit_log_bytes: Option<String>,
    /// How many bytes clients may make the gateway hold: bodies, unread answers, followed threads,
    /// ACP sessions [default: 268435456].
    #[arg(long, env = "THREADWAY_LIMIT_MEMORY_BYTES", hide_env_values = true, value_name = "N")]
    pub limit_memory_bytes: Option<String>,
    /// The most requests per second from one caller [default: no limit].
    #[arg(
        long,
        env = "THREADWAY_LIMIT_REQUESTS_PER_SECOND",
        hide_env_values = true,
        value_name = "N"
    )]
    pub limit_requests_per_second: Option<String>,
    /// The most open streams of one caller [default: no limit].
    #[arg(
        long,
        env = "THREADWAY_LIMIT_STREAMS_PER_CALLER",
        hide_env_values = true,
        value_name = "N"
    )]
    pub limit_streams_per_caller: Option<String>,
}

/// Options of `demo`.
#[derive(Args, Clone, Debug)]
pub struct Demo {
    /// The address and port to listen on; a port alone means loopback, port 0 a free port [default:
    /// 127.0.0.1:8484].
    #[arg(long, env = "THREADWAY_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub listen: Option<String>,
    /// The address and port of the scripted LangGraph server [default: 127.0.0.1:0].
    #[arg(long, value_name = "ADDR")]
    pub langgraph_listen: Option<String>,
    /// Origins whose web pages may call the demo, comma-separated; `*` for all [default: none].
    #[arg(long, env = "THREADWAY_CORS_ORIGINS", hide_env_values = true, value_name = "ORIGINS")]
    pub cors_origins: Option<String>,
    /// Allow non-loopback addresses and CORS for all origins, although the demo does not
    /// authenticate callers.
    #[arg(long, env = "THREADWAY_INSECURE", hide_env_values = true)]
    pub insecure: bool,
}

/// Options of `acp`.
#[derive(Args, Clone)]
pub struct Acp {
    /// The URL of the LangGraph server, such as `http://127.0.0.1:2024` [default: the one that
    /// --login has stored].
    #[arg(long, env = "THREADWAY_UPSTREAM", hide_env_values = true, value_name = "URL")]
    pub upstream: Option<String>,
    /// The LangGraph server's key, sent as `x-api-key`. Prefer the environment variable, or
    /// --login.
    #[arg(long, env = "THREADWAY_UPSTREAM_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub upstream_api_key: Option<String>,
    /// A config file; config.toml.example lists its keys.
    #[arg(long, env = "THREADWAY_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The agent of new sessions [default: the first that the server lists].
    #[arg(long, env = "THREADWAY_AGENT", hide_env_values = true, value_name = "NAME")]
    pub agent: Option<String>,
    /// The URL of a gateway elsewhere, such as `https://gateway.example`: its agents are served,
    /// instead of those of a LangGraph server.
    #[arg(long, env = "THREADWAY_GATEWAY", hide_env_values = true, value_name = "URL")]
    pub gateway: Option<String>,
    /// The token for that gateway, sent as `authorization: Bearer TOKEN`. Prefer the environment
    /// variable, or --login.
    #[arg(long, env = "THREADWAY_GATEWAY_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub gateway_token: Option<String>,
    /// Print the settings to paste into an editor, and exit.
    #[arg(long, value_name = "EDITOR", conflicts_with = "login")]
    pub print_config: Option<Editor>,
    /// Ask for the LangGraph server's key, and first for its URL if none is given, or for the
    /// gateway's token; store them for later sessions, and exit.
    #[arg(long)]
    pub login: bool,
    /// Write a config file with four modes (ask, accept edits, plan, bypass permissions) to the
    /// file of --config, or to threadway.toml, and exit. An existing file is not changed.
    #[arg(long, conflicts_with_all = ["print_config", "login"])]
    pub init: bool,
}

/// An ACP client whose settings `--print-config` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Editor {
    /// Zed's settings.json.
    Zed,
    /// The acp.json of `JetBrains` editors.
    #[value(help = "The acp.json of JetBrains editors")]
    Jetbrains,
    /// Neovim with `CodeCompanion`.
    #[value(help = "Neovim with CodeCompanion")]
    Neovim,
    /// The acpx command line.
    Acpx,
}

/// Options of `watch`.
#[derive(Args, Clone)]
pub struct Watch {
    /// The id of the thread.
    #[arg(value_name = "THREAD")]
    pub thread_id: String,
    /// The URL of the gateway [default: `http://127.0.0.1:8484`].
    #[arg(long, env = "THREADWAY_GATEWAY", hide_env_values = true, value_name = "URL")]
    pub gateway: Option<String>,
    /// An agent of the thread's LangGraph server [default: the first that the gateway lists].
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The key or token for the gateway, sent as `authorization: Bearer KEY`. Prefer the
    /// environment variable: other users can see command lines.
    #[arg(long, env = "THREADWAY_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub api_key: Option<String>,
    /// A header to send with each request, such as `x-api-key:KEY`; repeatable. The environment
    /// variable takes one header per line.
    #[arg(
        long,
        env = "THREADWAY_HEADER",
        hide_env_values = true,
        value_name = "NAME:VALUE",
        value_delimiter = '\n'
    )]
    pub header: Vec<String>,
    /// Print what the thread holds, follow its live run to the end, and exit.
    #[arg(long)]
    pub once: bool,
    /// Exit after this time, such as 30s, 5m or 1h [default: never].
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Print events as JSON, one per line, as they arrive.
    #[arg(long)]
    pub json: bool,
    /// Print without colours [default: colours on a terminal].
    #[arg(
        long,
        env = "NO_COLOR",
        hide_env_values = true,
        value_name = "VALUE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1"
    )]
    pub no_color: Option<String>,
}

/// Options of `translate`.
#[derive(Args, Clone, Debug)]
pub struct Translate {
    /// The protocol to translate to.
    #[arg(long)]
    pub to: Target,
    /// Write one JSON document per line instead of SSE. ACP output always has this form.
    #[arg(long)]
    pub ndjson: bool,
    /// LangGraph's id of the thread [default: the run id, or else `thread`].
    #[arg(long, value_name = "ID")]
    pub thread_id: Option<String>,
    /// The run id that the client sees [default: LangGraph's run id].
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// For AG-UI: a file with a `RunAgentInput` as JSON, which gives the ids and the messages that
    /// the client has [default: a 1.0 client without messages].
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// The state key that holds the graph's conversation [default: messages].
    #[arg(long, value_name = "KEY")]
    pub messages_key: Option<MessagesKey>,
    /// For ACP: the session's directory, which relative paths refer to [default: the current one].
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
}

/// A protocol to translate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// AG-UI 1.0.
    Agui,
    /// ACP v1: a session's notifications, then the response to its prompt.
    Acp,
}

// === impl Acp ===

impl Acp {
    /// The gateway options that are among these.
    pub fn options(&self) -> Options {
        Options {
            upstream: self.upstream.clone(),
            upstream_api_key: self.upstream_api_key.clone(),
            config: self.config.clone(),
            ..Options::default()
        }
    }
}

impl fmt::Debug for Acp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            upstream,
            upstream_api_key,
            config,
            agent,
            gateway,
            gateway_token,
            print_config,
            login,
            init,
        } = self;
        f.debug_struct("Acp")
            .field("upstream", upstream)
            .field("upstream_api_key", &upstream_api_key.as_ref().map(|_| "[redacted]"))
            .field("config", config)
            .field("agent", agent)
            .field("gateway", gateway)
            .field("gateway_token", &gateway_token.as_ref().map(|_| "[redacted]"))
            .field("print_config", print_config)
            .field("login", login)
            .field("init", init)
            .finish()
    }
}

// === impl Watch ===

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            thread_id,
            gateway,
            agent,
            api_key: _,
            header: _,
            once,
            timeout,
            json,
            no_color,
        } = self;
        f.debug_struct("Watch")
            .field("thread_id", thread_id)
            .field("gateway", gateway)
            .field("agent", agent)
            .field("once", once)
            .field("timeout", timeout)
            .field("json", json)
            .field("no_color", no_color)
            .finish_non_exhaustive()
    }
}

// === impl Options ===

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { upstream, upstream_api_key, listen, config, front, limits } = self;
        f.debug_struct("Options")
            .field("upstream", upstream)
            .field("upstream_api_key", &upstream_api_key.as_ref().map(|_| "[redacted]"))
            .field("listen", listen)
            .field("config", config)
            .field("front", front)
            .field("limits", limits)
            .finish()
    }
}

// === impl Front ===

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front")
            .field("admin_listen", &self.admin_listen)
            .field("auth_mode", &self.auth_mode)
            .field("auth_keys", &self.auth_keys.as_ref().map(|_| "[redacted]"))
            .finish_non_exhaustive()
    }
}
