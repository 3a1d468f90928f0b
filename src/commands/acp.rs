//! `threadway acp`: serves one editor on stdin and stdout, prints its settings, writes a config file,
//! or stores a key and a server. `login`: what it asks in a terminal.

mod init;
mod login;

use std::env;
use std::fmt;
use std::future::pending;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use threadway::agents::{Agents, Upstream};
use threadway::cli::{self, Editor};
use threadway::config::{Config, ConfigError, FallbackServer};
use threadway::credentials::{self, Credentials, Store};
use threadway::editors;
use threadway::metrics::Metrics;
use threadway::server::Limits;
use threadway::sessions::{
    Authentication, Connection, LineHandler, LoginConnection, LoginOptions, Outbox, Service,
    ServiceOptions, Settings,
};
use threadway::stdio;
use threadway::upstream::{BaseUrl, Caller};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::lines::{complain, explain_editors, use_format_in};
use super::{bridge, failed, misused, runtime, say, signal, start_log};

/// An upstream and what is configured for it.
struct Setup {
    config: Config,
    metrics: Metrics,
    agents: Agents,
    upstream: Upstream,
    /// The agent of new sessions, if one is named.
    agent: Option<String>,
    credentials: Credentials,
}

/// Why an upstream cannot be served.
enum Problem {
    /// The command line or the configuration is wrong.
    Misused(String),
    Failed(String),
}

pub(super) fn run(args: &cli::Acp, log: Option<&str>) -> Result<(), u8> {
    if args.init {
        return init::run(args);
    }
    if let Some(gateway) = bridge::chosen(args)? {
        return bridge::run(args, gateway, log);
    }
    let directory = credentials::directory(|name| env::var_os(name).map(PathBuf::from));
    let store = Store::new(directory.as_deref());
    if let Some(editor) = args.print_config {
        return print_config(args, editor, &store);
    }
    let config = read(args, log, FallbackServer::Allowed)?;
    start_log(config.log.clone());
    if config.upstreams.is_empty() {
        if args.login {
            return login::ask_server(&store, |server| {
                Ok(typed(args, log, &store, server)?.upstream)
            });
        }
        return serve_typed(args, log, store, config.acp.settings);
    }
    let setup = Setup::new(config, args, |server| store.named(server))?;
    if args.login {
        return login::ask_key(&setup.upstream, &setup.credentials);
    }
    let service = Arc::new(setup.service());
    serve(|outbox| Connection::new(service, Authentication::Key, outbox))
}

fn read(
    args: &cli::Acp,
    log: Option<&str>,
    unnamed: FallbackServer<'_>,
) -> Result<Config, Problem> {
    let options = args.options();
    Config::read_or(&options, log, unnamed).map_err(|mistakes| {
        use_format_in(&options, log);
        let lines: Vec<_> = mistakes.iter().map(ConfigError::to_string).collect();
        Problem::Misused(lines.join("\n"))
    })
}

/// The server that a person has typed, with the rest of the configuration.
fn typed(
    args: &cli::Acp,
    log: Option<&str>,
    store: &Store,
    server: &BaseUrl,
) -> Result<Setup, Problem> {
    let config = read(args, log, FallbackServer::Default(server))?;
    Setup::new(config, args, |server| store.typed(server))
}

/// Serves the server that a person has typed, or will type while this process runs.
fn serve_typed(
    args: &cli::Acp,
    log: Option<&str>,
    store: Store,
    settings: Settings,
) -> Result<(), u8> {
    if let Some(server) = store.typed_upstream() {
        let service = Arc::new(typed(args, log, &store, &server)?.service());
        return serve(|outbox| Connection::new(service, Authentication::Key, outbox));
    }
    let program = env::current_exe().map_err(failed)?;
    let login = editors::login_command(&program, args);
    let (args, log) = (args.clone(), log.map(str::to_owned));
    let find = move || {
        let Some(server) = store.typed_upstream() else { return Ok(None) };
        let setup = typed(&args, log.as_deref(), &store, &server);
        setup.map(|setup| Some(Arc::new(setup.service()))).map_err(|problem| problem.to_string())
    };
    let options = LoginOptions { find: Box::new(find), settings, login };
    serve(|outbox| LoginConnection::new(options, outbox))
}

/// Serves until stdin ends or a signal arrives.
fn serve<E>(connect: impl FnOnce(Outbox) -> E) -> Result<(), u8>
where
    E: LineHandler + Send + Sync + 'static,
{
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let outbox = Outbox::new();
        let endpoint = Arc::new(connect(outbox.clone()));
        if let Some(service) = endpoint.service() {
            service.check_agent().await.map_err(misused)?;
        }
        let stop = signal::stop().map_err(failed)?;
        explain_editors();
        let shutdown = CancellationToken::new();
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        // On a worker thread, where runs are read too, so that an update is written without waking
        // this thread.
        let mut serving = JoinSet::new();
        let (served, cancelled) = (Arc::clone(&endpoint), shutdown.clone());
        serving
            .spawn(async move { stdio::serve(&*served, &outbox, stdin, stdout, &cancelled).await });
        let served = tokio::select! {
            Some(served) = serving.join_next() => served.unwrap_or_else(|e| Err(e.into())),
            () = async { signal::cancel_after(stop, &shutdown).await; pending().await } => Ok(()),
        };
        if let Some(service) = endpoint.service() {
            // The editor waits for this process to end, so what takes longer is abandoned.
            let _ = tokio::time::timeout(stdio::END_TIMEOUT, service.close()).await;
        }
        served.map_err(failed)
    });
    // A pending read of stdin may never end.
    runtime.shutdown_background();
    served
}

fn print_config(args: &cli::Acp, editor: Editor, store: &Store) -> Result<(), u8> {
    let program = env::current_exe().map_err(failed)?;
    let is_named = args.upstream.is_some() || args.config.is_some();
    if !is_named && store.typed_upstream().is_none() {
        let login = editors::login_command(&program, args);
        say(format!(
            "the printed settings name no LangGraph server: log in from the editor or with \
             `{login}`, which ask for its URL, or print them again with --upstream \
             http://127.0.0.1:2024 (the server's URL)"
        ));
    }
    let snippet = editors::snippet(editor, &program, args);
    io::stdout().lock().write_all(snippet.as_bytes()).map_err(failed)
}

// === impl Setup ===

impl Setup {
    /// Chooses the upstream whose threads are the editor's sessions.
    fn new(
        config: Config,
        args: &cli::Acp,
        credentials: impl FnOnce(&BaseUrl) -> Credentials,
    ) -> Result<Self, Problem> {
        // These are counted but not served: `acp` has no metrics listener.
        let metrics = Metrics::default();
        let agents = config.agents(&metrics).map_err(|e| Problem::Failed(e.to_string()))?;
        let agents = agents.with_emits(config.emits.for_editors());
        let agent = args.agent.clone().or_else(|| config.acp.agent.clone());
        let upstream = choose_upstream(&agents, agent.as_deref()).map_err(Problem::Misused)?;
        let credentials = credentials(upstream.client.base());
        Ok(Self { config, metrics, agents, upstream, agent, credentials })
    }

    fn service(self) -> Service {
        let Self { config, metrics, agents, upstream, agent, credentials } = self;
        if !upstream.client.has_key() {
            upstream.client.use_key(credentials.key());
        }
        let Config { settings, acp, .. } = config;
        let Limits { owners, log_bytes, state_reads_per_second, .. } = settings.limits;
        Service::new(ServiceOptions {
            agents,
            upstream,
            agent,
            settings: acp.settings,
            credentials,
            owners,
            error_detail: settings.error_detail,
            log_bytes,
            state_reads_per_second,
            metrics,
        })
    }
}

fn choose_upstream(agents: &Agents, agent: Option<&str>) -> Result<Upstream, String> {
    let upstream = match (agents.upstreams(), agent) {
        ([only], _) => Some(only),
        (_, Some(agent)) => {
            let agent = agents.find(agent, &Caller::default()).map_err(|e| e.to_string())?;
            agents.upstream_of(&agent)
        }
        (_, None) => None,
    };
    upstream.cloned().ok_or_else(|| {
        "--agent (THREADWAY_AGENT): with several upstreams, name an agent such as `local:agent`; \
         the sessions of its upstream are served"
            .to_owned()
    })
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misused(text) | Self::Failed(text) => f.write_str(text),
        }
    }
}

/// The exit code, after the text was written to stderr.
impl From<Problem> for u8 {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Misused(text) => {
                // A line for each mistake of the configuration.
                text.lines().for_each(complain);
                super::USAGE
            }
            Problem::Failed(text) => failed(text),
        }
    }
}
