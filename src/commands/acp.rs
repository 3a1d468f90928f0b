//! `threadway acp`: serves one editor on stdin and stdout, prints its settings, or stores a key.

use std::env;
use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use threadway::agents::{Agents, Upstream};
use threadway::cli::{self, Editor};
use threadway::config::Config;
use threadway::credentials::{self, Credentials};
use threadway::editors;
use threadway::metrics::Metrics;
use threadway::server::Limits;
use threadway::sessions::{Authentication, Connection, Outbox, Service, ServiceOptions};
use threadway::stdio;
use threadway::upstream::Caller;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{failed, misused, read_config, runtime, say, signal};

/// What a person can do if `--login` cannot ask for the key.
const WITHOUT_TERMINAL: &str = "asks for the key in a terminal, and there is none: run it in a \
                                terminal, or set THREADWAY_UPSTREAM_API_KEY";

pub(super) fn run(args: &cli::Acp, log: Option<&str>) -> Result<(), u8> {
    if let Some(editor) = args.print_config {
        return print_config(args, editor);
    }
    let config = read_config(&args.options(), log)?;
    // These are counted but not served: `acp` has no metrics listener.
    let metrics = Metrics::default();
    let agents = config.agents(&metrics).map_err(failed)?;
    let agents = agents.with_emits(config.emits.for_editors());
    config.log.clone().to_stderr();
    let agent = args.agent.clone().or_else(|| config.acp.agent.clone());
    let upstream = choose_upstream(&agents, agent.as_deref())?;
    let directory = credentials::directory(|name| env::var_os(name).map(PathBuf::from));
    let credentials = Credentials::new(directory.as_deref(), upstream.client.base());
    if args.login {
        return login(&upstream, &credentials);
    }
    if !upstream.client.has_key() {
        upstream.client.use_key(credentials.key());
    }
    let Config { settings, acp, .. } = config;
    let Limits { owners, log_bytes, .. } = settings.limits;
    serve(Service::new(ServiceOptions {
        agents,
        upstream,
        agent,
        settings: acp.settings,
        credentials,
        owners,
        error_detail: settings.error_detail,
        log_bytes,
        metrics,
    }))
}

/// The upstream whose threads are the editor's sessions.
fn choose_upstream(agents: &Agents, agent: Option<&str>) -> Result<Upstream, u8> {
    let upstream = match (agents.upstreams(), agent) {
        ([only], _) => Some(only),
        (_, Some(agent)) => {
            let agent = agents.find(agent, &Caller::default()).map_err(misused)?;
            agents.upstream_of(&agent)
        }
        (_, None) => None,
    };
    upstream.cloned().ok_or_else(|| {
        misused(
            "--agent (THREADWAY_AGENT): with several upstreams, name an agent such as \
             `local:agent`; the sessions of its upstream are served",
        )
    })
}

/// Serves until stdin ends or a signal arrives.
fn serve(service: Service) -> Result<(), u8> {
    let service = Arc::new(service);
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        service.check_agent().await.map_err(misused)?;
        let stop = signal::stop().map_err(failed)?;
        let shutdown = CancellationToken::new();
        let outbox = Outbox::new();
        let connection = Connection::new(Arc::clone(&service), Authentication::Key, outbox.clone());
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        // On a worker thread, where runs are read too, so that an update is written without waking
        // this thread.
        let mut serving = JoinSet::new();
        let cancelled = shutdown.clone();
        serving.spawn(async move {
            stdio::serve(&connection, &outbox, stdin, stdout, &cancelled).await
        });
        let served = tokio::select! {
            Some(served) = serving.join_next() => served.unwrap_or_else(|e| Err(e.into())),
            () = async { signal::cancel_after(stop, &shutdown).await; pending().await } => Ok(()),
        };
        // The editor waits for this process to end, so what takes longer is abandoned.
        let _ = tokio::time::timeout(stdio::END_TIMEOUT, service.close()).await;
        served.map_err(failed)
    });
    // A pending read of stdin may never end.
    runtime.shutdown_background();
    served
}

fn print_config(args: &cli::Acp, editor: Editor) -> Result<(), u8> {
    let program = env::current_exe().map_err(failed)?;
    if args.upstream.is_none() && args.config.is_none() {
        say(
            "the printed settings name no LangGraph server, so the agent will not start: print them \
             again with --upstream http://127.0.0.1:2024 (the server's URL) or --config FILE",
        );
    }
    let snippet = editors::snippet(editor, &program, args);
    io::stdout().lock().write_all(snippet.as_bytes()).map_err(failed)
}

/// Asks a person for the server's key, and stores it if the server accepts it.
fn login(upstream: &Upstream, credentials: &Credentials) -> Result<(), u8> {
    let server = upstream.client.base();
    if !io::stdin().is_terminal() {
        return Err(misused(format_args!("--login {WITHOUT_TERMINAL}")));
    }
    let key = rpassword::prompt_password(format!("API key of {server}: "))
        .map_err(|error| misused(format_args!("--login {WITHOUT_TERMINAL} ({error})")))?;
    let key = key.trim();
    let checked = key.parse().map_err(|expected| misused(format!("this is not {expected}")))?;
    upstream.client.use_key(Some(checked));
    let listed = runtime()?.block_on(upstream.client.assistants(None));
    listed.map_err(|error| failed(format!("the key was not stored: {}", error.explained())))?;
    let file = credentials
        .store(key)
        .map_err(|error| failed(format!("the key was not stored: {error}")))?;
    say(format!("the key is stored in {}", file.display()));
    Ok(())
}
