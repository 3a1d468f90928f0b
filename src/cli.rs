//! The command line: commands, flags, and the environment variables that stand in for flags.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::config::Options;
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
#[derive(Args, Clone, Debug)]
pub struct Acp {
    /// The URL of the LangGraph server, such as `http://127.0.0.1:2024` [default: the one that
    /// --login has stored].
    #[arg(long, env = "THREADWAY_UPSTREAM", hide_env_values = true, value_name = "URL")]
    pub upstream: Option<String>,
    /// The LangGraph server's key, sent as `x-api-key`. Prefer the environment variable, or
    /// --login.
    #[arg(long, env = "THREADWAY_UPSTREAM_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub upstream_api_key: Option<Secret>,
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
    pub gateway_token: Option<Secret>,
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

/// A text that is never printed, such as a key.
#[derive(Clone)]
pub struct Secret(String);

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
#[derive(Args, Clone, Debug)]
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
    pub api_key: Option<Secret>,
    /// A header to send with each request, such as `x-api-key:KEY`; repeatable. The environment
    /// variable takes one header per line.
    #[arg(
        long,
        env = "THREADWAY_HEADER",
        hide_env_values = true,
        value_name = "NAME:VALUE",
        value_delimiter = '\n'
    )]
    pub header: Vec<Secret>,
    /// Print what the thread holds, follow its live run to the end, and exit.
    #[arg(long)]
    pub once: bool,
    /// Exit after this time, such as 30s, 5m or 1h [default: never].
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Print events as JSON, one per line, as they arrive.
    #[arg(long)]
    pub json: bool,
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
        let mut options = Options::new(self.config.clone());
        for (key, value) in [
            ("upstream.url", self.upstream.as_deref()),
            ("upstream.api_key", self.upstream_api_key.as_deref()),
        ] {
            if let Some(value) = value {
                options = options.with(key, value);
            }
        }
        options
    }
}

// === impl Secret ===

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
