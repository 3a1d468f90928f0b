//! What may be typed on the command line.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use threadway_translate::langgraph::MessagesKey;

const EXIT_CODES: &str = "\
Exit codes:
  0   everything was done
  1   it failed while it ran
  64  the command line or the configuration is wrong";

const CHECK_EXIT_CODES: &str = "\
Exit codes:
  0   every upstream can be served
  1   something is wrong with an upstream
  64  the command line or the configuration is wrong";

const WATCH_EXIT_CODES: &str = "\
Exit codes:
  0   it was stopped, or the time of --timeout is over; --once: all was shown
  1   the gateway refused or was not there; --once: nothing is known of the thread
  3   --once: the time of --timeout was over before the end
  64  the command line is wrong";

const TRANSLATE_EXIT_CODES: &str = "\
Exit codes:
  0   everything was done
  1   it failed while it ran
  2   the capture is incomplete
  64  the command line is wrong";

/// Serves a LangGraph server's threads and runs to AG-UI clients, and to editors that speak ACP.
#[derive(Debug, Parser)]
#[command(name = "threadway", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
    /// What is logged on stderr, as `info` or `threadway=debug,warn`, and how: `text` or `json`, in
    /// the same list [default: info,text].
    #[arg(
        long,
        global = true,
        env = "THREADWAY_LOG",
        hide_env_values = true,
        value_name = "FILTER"
    )]
    pub log: Option<String>,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the agents of a LangGraph server.
    #[command(after_help = EXIT_CODES)]
    Serve(Options),
    /// Serve the agents of a scripted LangGraph server inside this process: nothing else is needed.
    #[command(after_help = EXIT_CODES)]
    Demo(Demo),
    /// Be an ACP agent on stdin and stdout, for an editor.
    #[command(after_help = EXIT_CODES)]
    Acp(Acp),
    /// Read the configuration, reach each upstream, and say what is wrong.
    #[command(after_help = CHECK_EXIT_CODES)]
    Check(Options),
    /// Follow a thread in the terminal, through a gateway, until ctrl-c.
    #[command(after_help = WATCH_EXIT_CODES)]
    Watch(Watch),
    /// Translate a recorded LangGraph stream from stdin to stdout.
    #[command(after_help = TRANSLATE_EXIT_CODES)]
    Translate(Translate),
    /// Print what a shell completes our command lines from.
    #[command(after_help = EXIT_CODES)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print a page of the manual, as `man -l -` reads it.
    #[command(after_help = EXIT_CODES)]
    Man {
        /// The command that it is about [default: threadway itself].
        command: Option<String>,
    },
}

/// How to serve. A flag beats the environment, which beats the config file.
#[derive(Args, Clone, Default)]
pub struct Options {
    /// The URL of the LangGraph server, as `http://127.0.0.1:2024`.
    #[arg(long, env = "THREADWAY_UPSTREAM", hide_env_values = true, value_name = "URL")]
    pub upstream: Option<String>,
    /// The key that it wants, sent as `x-api-key`. Better by the environment: command lines are
    /// seen by others.
    #[arg(long, env = "THREADWAY_UPSTREAM_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub upstream_api_key: Option<String>,
    /// Where to listen: an address and a port, or a port of this machine; port 0 picks a free one
    /// [default: 127.0.0.1:8484].
    #[arg(long, env = "THREADWAY_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub listen: Option<String>,
    /// A config file; config.toml.example shows all that it may hold.
    #[arg(long, env = "THREADWAY_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Who may call, and how it is operated.
    #[command(flatten)]
    pub front: Front,
    /// What a client may ask at most.
    #[command(flatten)]
    pub limits: Limits,
}

/// Who may call, and how it is operated.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Operation")]
pub struct Front {
    /// Where metrics are told; port 0 picks a free one [default: nowhere].
    #[arg(long, env = "THREADWAY_ADMIN_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// Who may call: none (whoever reaches it), bearer, jwt, upstream [default: none].
    #[arg(long, env = "THREADWAY_AUTH_MODE", hide_env_values = true, value_name = "MODE")]
    pub auth_mode: Option<String>,
    /// The keys of bearer, as NAME=KEY,NAME=KEY. Better by the environment: command lines are seen
    /// by others.
    #[arg(long, env = "THREADWAY_AUTH_KEYS", hide_env_values = true, value_name = "KEYS")]
    pub auth_keys: Option<String>,
    /// A file with such keys, one NAME=KEY a line.
    #[arg(long, env = "THREADWAY_AUTH_KEYS_FILE", hide_env_values = true, value_name = "FILE")]
    pub auth_keys_file: Option<String>,
    /// Where the keys are that sign the tokens of jwt: a file or a URL with a JWKS.
    #[arg(long, env = "THREADWAY_AUTH_JWKS", hide_env_values = true, value_name = "FILE|URL")]
    pub auth_jwks: Option<String>,
    /// Who issues these tokens.
    #[arg(long, env = "THREADWAY_AUTH_ISSUER", hide_env_values = true, value_name = "ISSUER")]
    pub auth_issuer: Option<String>,
    /// Whom they are for; one of several behind commas.
    #[arg(long, env = "THREADWAY_AUTH_AUDIENCE", hide_env_values = true, value_name = "AUDIENCE")]
    pub auth_audience: Option<String>,
    /// The origins whose pages may call, behind commas; `*` for all [default: none].
    #[arg(long, env = "THREADWAY_CORS_ORIGINS", hide_env_values = true, value_name = "ORIGINS")]
    pub cors_origins: Option<String>,
    /// The names by which the gateway may be called without `auth`, comma-separated, beside
    /// addresses and names that nobody on the internet can have.
    #[arg(long, env = "THREADWAY_HOSTS", hide_env_values = true, value_name = "NAMES")]
    pub hosts: Option<String>,
    /// Allow what lets strangers in: a non-loopback address without `auth`, or with mode upstream
    /// before a LangGraph that accepts any credentials; a non-loopback admin address; CORS for all
    /// without `auth`.
    #[arg(long, env = "THREADWAY_INSECURE", hide_env_values = true)]
    pub insecure: bool,
    /// How much clients are told of what failed: full, message, code, none [default: message].
    #[arg(long, env = "THREADWAY_ERROR_DETAIL", hide_env_values = true, value_name = "DETAIL")]
    pub error_detail: Option<String>,
    /// The OpenTelemetry collector that is sent traces over HTTP [default: none].
    #[arg(long, env = "THREADWAY_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Serve a page for people at `/`, with which to try the agents [default: true on a loopback
    /// address without `auth`].
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
    /// Append to this file who did what on which thread, and whether it was allowed, as JSON lines;
    /// `stderr` for stderr [default: nothing is kept].
    #[arg(long, env = "THREADWAY_AUDIT_LOG", hide_env_values = true, value_name = "FILE")]
    pub audit_log: Option<String>,
    /// Keep what LangGraph sends of each run in files in this directory: they hold what users and
    /// models say [default: nothing is kept].
    #[arg(long, env = "THREADWAY_RECORD", hide_env_values = true, value_name = "DIR")]
    pub record: Option<String>,
    /// Read the config file again when it changes, not on SIGHUP alone.
    #[arg(long, env = "THREADWAY_WATCH_CONFIG", hide_env_values = true)]
    pub watch_config: bool,
}

/// What a client may ask at most.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// The largest request body [default: 10485760].
    #[arg(long, env = "THREADWAY_LIMIT_BODY_BYTES", hide_env_values = true, value_name = "N")]
    pub limit_body_bytes: Option<String>,
    /// The largest request head [default: 65536].
    #[arg(long, env = "THREADWAY_LIMIT_HEADER_BYTES", hide_env_values = true, value_name = "N")]
    pub limit_header_bytes: Option<String>,
    /// How long a request's head may take [default: 10].
    #[arg(
        long,
        env = "THREADWAY_LIMIT_HEADER_TIMEOUT_SECONDS",
        hide_env_values = true,
        value_name = "N"
    )]
    pub limit_header_timeout_seconds: Option<String>,
    /// How many connections may be open [default: 10000].
    #[arg(long, env = "THREADWAY_LIMIT_CONNECTIONS", hide_env_values = true, value_name = "N")]
    pub limit_connections: Option<String>,
    /// How much of a run is kept for slow readers [default: 1048576].
    #[arg(long, env = "THREADWAY_LIMIT_LOG_BYTES", hide_env_values = true, value_name = "N")]
    pub limit_log_bytes: Option<String>,
    /// How many requests a second one caller may send [default: any number].
    #[arg(
        long,
        env = "THREADWAY_LIMIT_REQUESTS_PER_SECOND",
        hide_env_values = true,
        value_name = "N"
    )]
    pub limit_requests_per_second: Option<String>,
    /// How many streams one caller may have open [default: any number].
    #[arg(
        long,
        env = "THREADWAY_LIMIT_STREAMS_PER_CALLER",
        hide_env_values = true,
        value_name = "N"
    )]
    pub limit_streams_per_caller: Option<String>,
}

/// How to show what threadway does.
#[derive(Args, Clone, Debug)]
pub struct Demo {
    /// Where to listen: an address and a port, or a port of this machine; port 0 picks a free one
    /// [default: 127.0.0.1:8484].
    #[arg(long, env = "THREADWAY_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where the scripted LangGraph server listens [default: 127.0.0.1:0].
    #[arg(long, value_name = "ADDR")]
    pub langgraph_listen: Option<String>,
    /// The origins whose pages may call, behind commas; `*` for all [default: none].
    #[arg(long, env = "THREADWAY_CORS_ORIGINS", hide_env_values = true, value_name = "ORIGINS")]
    pub cors_origins: Option<String>,
    /// Allow non-loopback addresses, and CORS for all: whoever reaches the demo may use it.
    #[arg(long, env = "THREADWAY_INSECURE", hide_env_values = true)]
    pub insecure: bool,
}

/// How to serve an editor.
#[derive(Args, Clone)]
pub struct Acp {
    /// The URL of the LangGraph server, as `http://127.0.0.1:2024`.
    #[arg(long, env = "THREADWAY_UPSTREAM", hide_env_values = true, value_name = "URL")]
    pub upstream: Option<String>,
    /// The key that it wants, sent as `x-api-key`. Better by the environment, or by --login.
    #[arg(long, env = "THREADWAY_UPSTREAM_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub upstream_api_key: Option<String>,
    /// A config file; config.toml.example shows all that it may hold.
    #[arg(long, env = "THREADWAY_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The agent of a new session [default: the first that the server lists].
    #[arg(long, env = "THREADWAY_AGENT", hide_env_values = true, value_name = "NAME")]
    pub agent: Option<String>,
    /// Print what to paste into an editor's settings, and do nothing else.
    #[arg(long, value_name = "EDITOR", conflicts_with = "login")]
    pub print_config: Option<Editor>,
    /// Ask for the server's key, keep it for the editor, and do nothing else.
    #[arg(long)]
    pub login: bool,
}

/// An editor, or another ACP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Editor {
    /// Zed's settings.json.
    Zed,
    /// The acp.json of `JetBrains`' editors.
    Jetbrains,
    /// Neovim with `CodeCompanion`.
    Neovim,
    /// The acpx command line.
    Acpx,
}

/// What to follow.
#[derive(Args, Clone)]
pub struct Watch {
    /// The thread.
    #[arg(value_name = "THREAD")]
    pub thread_id: String,
    /// The URL of the gateway [default: `http://127.0.0.1:8484`].
    #[arg(long, env = "THREADWAY_GATEWAY", hide_env_values = true, value_name = "URL")]
    pub gateway: Option<String>,
    /// An agent of the thread's LangGraph server [default: the first that the gateway lists].
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The gateway's key or token, sent as `authorization: Bearer KEY`. Better by the environment:
    /// command lines are seen by others.
    #[arg(long, env = "THREADWAY_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub api_key: Option<String>,
    /// A header that each request has, as `x-api-key:KEY`; may be given several times. In the
    /// environment each stands on a line of its own.
    #[arg(
        long,
        env = "THREADWAY_HEADER",
        hide_env_values = true,
        value_name = "NAME:VALUE",
        value_delimiter = '\n'
    )]
    pub header: Vec<String>,
    /// Show what is there, the run that is under way to its end, and exit.
    #[arg(long)]
    pub once: bool,
    /// Exit after this time, as 30s, 5m or 1h [default: never].
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Print the events as they come, one JSON document a line.
    #[arg(long)]
    pub json: bool,
    /// No colours; without it a terminal gets some.
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

/// How to translate.
#[derive(Args, Clone, Debug)]
pub struct Translate {
    /// The protocol to translate to.
    #[arg(long)]
    pub to: Target,
    /// Write one JSON document a line instead of SSE. ACP is never anything else.
    #[arg(long)]
    pub ndjson: bool,
    /// LangGraph's thread [default: the run id, or else `thread`].
    #[arg(long, value_name = "ID")]
    pub thread_id: Option<String>,
    /// The run as the client calls it [default: LangGraph's id].
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// A `RunAgentInput` as JSON, for AG-UI: its ids, and the messages that its client holds
    /// [default: a 1.0 client that holds none].
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// The key under which the graph's state holds the conversation [default: messages].
    #[arg(long, value_name = "KEY")]
    pub messages_key: Option<MessagesKey>,
    /// The directory of the session, for ACP: relative paths are in it [default: the current one].
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
}

/// A protocol to translate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// AG-UI 1.0.
    Agui,
    /// ACP v1: the notifications of a session, and the response to its prompt.
    Acp,
}

// === impl Acp ===

impl Acp {
    /// What it says of the gateway's options.
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
        let Self { upstream, upstream_api_key, config, agent, print_config, login } = self;
        f.debug_struct("Acp")
            .field("upstream", upstream)
            .field("upstream_api_key", &upstream_api_key.as_ref().map(|_| "[redacted]"))
            .field("config", config)
            .field("agent", agent)
            .field("print_config", print_config)
            .field("login", login)
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
