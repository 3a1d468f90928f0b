//! The binary: reads what is asked, builds it, runs it, and tells how that went.

use std::env;
use std::fmt::Display;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use threadway::acp;
use threadway::agents::{self, Agents, Listed, Listing};
use threadway::agui::{Client, Input, Projector, RunId, Version};
use threadway::check::{self, Finding};
use threadway::cli::{self, Cli, Command, Editor, Target};
use threadway::config::{self, Config};
use threadway::credentials::{self, Credentials};
use threadway::demo::{self, Demo, Pace};
use threadway::editors;
use threadway::manual;
use threadway::metrics::Metrics;
use threadway::reload::{self, Asked};
use threadway::run::RunEvent;
use threadway::runs::{self, Feed};
use threadway::server::isolation::{self, Judgement};
use threadway::server::{
    self, Auth, Encoder, Judged, Limits, Observer, Server, Settings, Trust, Wire,
};
use threadway::sessions::{Connection, Outbox, Service};
use threadway::stdio;
use threadway::telemetry::Traces;
use threadway::terminal;
use threadway::upstream::{self, Caller};
use threadway::watch::{self, Format, Watch};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// It failed while it ran.
const FAILED: u8 = 1;

/// The capture that was to be translated is not whole.
const BROKEN_CAPTURE: u8 = 2;

/// `EX_USAGE` of sysexits.h: the command line or the configuration is wrong.
const USAGE: u8 = 64;

/// The name of a thread that nobody has named.
const UNNAMED_THREAD: &str = "thread";

/// What the demo suggests to ask an agent.
const DEMO_INPUT: &str = r#"{"threadId":"demo-GRAPH","runId":"1","protocolVersion":"1.0","messages":[{"id":"1","role":"user","content":"Where is it warm?"}]}"#;

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(Cli { command, log }) => match command {
            Command::Serve(options) => serve(&options, log.as_deref()),
            Command::Demo(args) => demo(&args, log.as_deref()),
            Command::Acp(args) => acp(&args, log.as_deref()),
            Command::Check(options) => check(&options, log.as_deref()),
            Command::Watch(args) => watch(args, log.as_deref()),
            Command::Translate(args) => translate(&args, log.as_deref()),
            Command::Completions { shell } => print(&manual::completions(shell)),
            Command::Man { command } => man(command.as_deref()),
        },
        Err(error) => Err(told(&error)),
    };
    done.map_or_else(ExitCode::from, |()| ExitCode::SUCCESS)
}

/// What clap has to say: help and version on stdout, which are no failures, the rest on stderr.
fn told(error: &clap::Error) -> u8 {
    let is_failure = error.use_stderr();
    match error.print() {
        Ok(()) if is_failure => USAGE,
        Ok(()) => 0,
        Err(_) => FAILED,
    }
}

fn serve(options: &cli::Options, log: Option<&str>) -> Result<(), u8> {
    let config = read_config(options, log)?;
    let metrics = Metrics::default();
    let agents = config.agents(&metrics).map_err(failed)?;
    config.log.clone().to_stderr();
    let traces = config.otlp_endpoint.as_ref().map(Traces::to_collector);
    let traces = traces.transpose().map_err(failed)?;
    let observer = Observer { metrics, tracer: traces.as_ref().map(Traces::tracer) };
    let served = runtime()?.block_on(async {
        refuse_open_upstreams(&agents, &config.settings).await?;
        let listener = bind("--listen", config.listen).await?;
        let admin = match config.admin_listen {
            Some(listen) => Some(bind("--admin-listen", listen).await?),
            None => None,
        };
        let shutdown = CancellationToken::new();
        let address = listener.local_addr().map_err(failed)?;
        if config.is_open {
            tracing::warn!(%address, "whoever reaches this address may use the agents: --insecure");
        }
        if let Some(address) = config.admin_listen.filter(|address| !address.ip().is_loopback()) {
            tracing::warn!(%address, "whoever reaches this address may read the metrics: --insecure");
        }
        let asked = Asked::new(&config.files).map_err(failed)?;
        let settings = config.settings.clone();
        let auth = settings.auth.clone();
        let server = Server::new(agents.clone(), settings, observer, shutdown.clone());
        let read = || Config::read(options, log);
        let at_rest = CancellationToken::new();
        let (done, (), _) = tokio::join!(
            async {
                let announced = announce(&agents, &auth, address);
                let done = serve_agents(&server, listener, &agents, &shutdown, announced).await;
                at_rest.cancel();
                done
            },
            serve_admin(&server, admin, &at_rest),
            shutdown.run_until_cancelled(reload::on_demand(&server, agents.clone(), config, asked, read))
        );
        done
    });
    if let Some(traces) = traces {
        traces.finish();
    }
    served
}

/// Ends the start where LangGraph would let in whoever reaches the gateway, although nobody has said
/// `--insecure`. An upstream that does not answer yet is probed when the first request comes.
async fn refuse_open_upstreams(agents: &Agents, settings: &Settings) -> Result<(), u8> {
    let Settings { auth, forward, .. } = settings;
    let Auth::Upstream(Judged { trust: Trust::Proven, .. }) = auth else { return Ok(()) };
    for agents::Upstream { name, client } in agents.upstreams() {
        match isolation::judge(client, auth, forward).await {
            None | Some(Ok(Judgement::Refuses)) => {}
            Some(Ok(accepts)) => {
                return Err(failed(format!(
                    "upstream {name}: {accepts}; or listen on a loopback address, choose another \
                     `auth.mode`, or say --insecure"
                )));
            }
            Some(Err(error)) => say(format!(
                "upstream {name}: {error}; nobody is let in before it has refused invented \
                 credentials"
            )),
        }
    }
    Ok(())
}

/// Serves the operator's tools, where they are to be served, until all else has come to rest.
async fn serve_admin(server: &Server, listener: Option<TcpListener>, at_rest: &CancellationToken) {
    let Some(listener) = listener else { return };
    if let Ok(address) = listener.local_addr() {
        say(format!("admin: metrics on http://{address}/metrics"));
    }
    server.serve_admin(listener, at_rest.clone()).await;
}

/// Serves until a signal comes, which `shutdown` tells to what else there is.
async fn serve_agents(
    server: &Server,
    listener: TcpListener,
    agents: &Agents,
    shutdown: &CancellationToken,
    announced: impl Future<Output = ()>,
) -> Result<(), u8> {
    let address = listener.local_addr().map_err(failed)?;
    // Before the address is told: who reads it may stop us at once.
    let signal = stop_signal().map_err(failed)?;
    let bases = agents.upstreams().iter().map(|upstream| upstream.client.base().to_string());
    let bases = bases.collect::<Vec<_>>().join(", ");
    say(format!("listening on http://{address} in front of {bases}"));
    agents.identity_lines().iter().for_each(say);
    tokio::join!(
        server.serve(listener),
        shutdown.run_until_cancelled(announced),
        cancel_after(signal, shutdown)
    );
    Ok(())
}

fn demo(args: &cli::Demo, log: Option<&str>) -> Result<(), u8> {
    let listen = args.listen.as_deref().unwrap_or(config::DEFAULT_LISTEN);
    let address = |flag, value| config::demo_address(flag, value, args.insecure).map_err(misused);
    let listen = address("--listen (THREADWAY_LISTEN)", listen)?;
    let langgraph = args.langgraph_listen.as_deref().unwrap_or("127.0.0.1:0");
    let langgraph = address("--langgraph-listen", langgraph)?;
    config::log(log).map_err(misused)?.to_stderr();
    runtime()?.block_on(async {
        let listener = bind("--listen", listen).await?;
        let scripted = bind("--langgraph-listen", langgraph).await?;
        let url = format!("http://{}", scripted.local_addr().map_err(failed)?);
        let url = url.parse().map_err(failed)?;
        let shutdown = CancellationToken::new();
        let demo = Demo::new(Pace::HUMAN, shutdown.clone());
        let announced = announce_demo(listener.local_addr().map_err(failed)?, &url);
        let observer = Observer::default();
        let client = upstream::Client::new(url, None).map_err(failed)?;
        let client = client.counted_in(&observer.metrics);
        let upstream = agents::Upstream { name: config::DEFAULT_UPSTREAM.to_owned(), client };
        let agents = Agents::new(vec![upstream], Vec::new());
        let (limits, settings) = (Limits::default(), Settings::default());
        let server = Server::new(agents.clone(), settings, observer, shutdown.clone());
        let (done, (), ()) = tokio::join!(
            serve_agents(&server, listener, &agents, &shutdown, announced),
            server::serve(scripted, demo.routes(), &limits, shutdown.clone()),
            demo.run_background()
        );
        demo.drain().await;
        done
    })
}

/// Tells a line for each agent that can be pasted into a shell.
fn announce_demo(
    address: SocketAddr,
    langgraph: &upstream::BaseUrl,
) -> impl Future<Output = ()> + use<> {
    let told = format!(
        "LangGraph's own API is at {langgraph}; a run starts by itself every {} s on its thread {}",
        demo::BACKGROUND_PERIOD.as_secs(),
        demo::WATCHED_THREAD
    );
    let editors = format!("editors: threadway acp --upstream {langgraph}");
    async move {
        for (graph, what) in demo::GRAPHS {
            let input = DEMO_INPUT.replace("GRAPH", graph);
            say(format!("{graph}: {what}"));
            say(format!(
                "  curl -N http://{address}/agui/agent/{graph}/run -H 'content-type: \
                 application/json' -d '{input}'"
            ));
        }
        say(told);
        say(editors);
    }
}

fn acp(args: &cli::Acp, log: Option<&str>) -> Result<(), u8> {
    if let Some(editor) = args.print_config {
        return print_config(args, editor);
    }
    let config = read_config(&args.options(), log)?;
    let agents = config.agents(&Metrics::default()).map_err(failed)?;
    config.log.to_stderr();
    let agent = args.agent.clone().or(config.acp.agent);
    let upstream = match (agents.upstreams(), &agent) {
        ([only], _) => Some(only),
        (_, Some(agent)) => {
            let agent = agents.find(agent, &Caller::default()).map_err(misused)?;
            agents.upstream_of(&agent)
        }
        (_, None) => None,
    };
    let upstream = upstream.cloned().ok_or_else(|| {
        misused(
            "--agent (THREADWAY_AGENT): with several upstreams, name the agent, as `local:agent`; \
             its upstream's sessions are served",
        )
    })?;
    let directory = credentials::directory(|name| env::var_os(name).map(PathBuf::from));
    let credentials = Credentials::new(directory.as_deref(), upstream.client.base());
    if args.login {
        return login(&upstream, &credentials);
    }
    if !upstream.client.has_key() {
        upstream.client.use_key(credentials.key());
    }
    let Limits { owners, log_bytes, .. } = config.settings.limits;
    let settings = config.acp.settings;
    let service = Service::new(agents, upstream, settings, credentials, owners, log_bytes);
    let service = Arc::new(service.with_agent(agent));
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let signal = stop_signal().map_err(failed)?;
        let shutdown = CancellationToken::new();
        let outbox = Outbox::new();
        let connection = Connection::new(Arc::clone(&service), outbox.clone());
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        // On a worker, where a run is read too: what it brings is told without waking this thread.
        let mut serving = JoinSet::new();
        let stop = shutdown.clone();
        serving.spawn(async move {
            stdio::serve(&connection, &outbox, stdin, stdout, &stop).await
        });
        let served = tokio::select! {
            Some(served) = serving.join_next() => served.unwrap_or_else(|e| Err(e.into())),
            () = async { cancel_after(signal, &shutdown).await; std::future::pending().await } => Ok(()),
        };
        // What it could not do by then it will not do: an editor waits for us to be gone.
        let _ = tokio::time::timeout(stdio::END_TIMEOUT, service.close()).await;
        served.map_err(failed)
    });
    // Reading stdin may never end.
    runtime.shutdown_background();
    served
}

fn print_config(args: &cli::Acp, editor: Editor) -> Result<(), u8> {
    let program = env::current_exe().map_err(failed)?;
    let config = args.config.as_ref().map(|file| {
        // An editor starts us elsewhere.
        std::path::absolute(file).unwrap_or_else(|_| file.clone()).display().to_string()
    });
    let options = [("--upstream", &args.upstream), ("--config", &config), ("--agent", &args.agent)];
    let options = options
        .into_iter()
        .filter_map(|(flag, value)| value.as_ref().map(|value| [flag.to_owned(), value.clone()]));
    let args = std::iter::once("acp".to_owned()).chain(options.flatten()).collect();
    let start = editors::Start { program: program.display().to_string(), args };
    io::stdout().lock().write_all(start.snippet(editor).as_bytes()).map_err(failed)
}

/// Asks a person for the server's key, and keeps it if the server takes it.
fn login(upstream: &agents::Upstream, credentials: &Credentials) -> Result<(), u8> {
    let server = upstream.client.base();
    let key = rpassword::prompt_password(format!("API key of {server}: ")).map_err(failed)?;
    let key = key.trim();
    let checked = key.parse().map_err(|expected| misused(format!("this is not {expected}")))?;
    upstream.client.use_key(Some(checked));
    let listed = runtime()?.block_on(upstream.client.assistants(None));
    listed.map_err(|error| failed(format!("the key was not kept: {}", error.explained())))?;
    let file =
        credentials.keep(key).map_err(|error| failed(format!("the key was not kept: {error}")))?;
    say(format!("the key is kept in {}", file.display()));
    Ok(())
}

fn check(options: &cli::Options, log: Option<&str>) -> Result<(), u8> {
    let config = read_config(options, log)?;
    let agents = config.agents(&Metrics::default()).map_err(failed)?;
    config.log.to_stderr();
    let findings = runtime()?.block_on(check::check(&agents, &config.settings));
    let mut stdout = io::stdout().lock();
    for finding in &findings {
        writeln!(stdout, "{}", terminal::harmless_line(&finding.to_string())).map_err(failed)?;
    }
    let idle = check::idle_aliases(&agents, &findings);
    for (alias, own_name) in &idle {
        writeln!(stdout, "alias {alias}: there is no agent `{own_name}`").map_err(failed)?;
    }
    let acp = config.acp;
    let modes = acp.settings.modes.iter().filter_map(|mode| {
        Some((format!("acp.modes.{}.assistant", mode.id), mode.assistant.as_deref()?))
    });
    let named = acp.agent.as_deref().map(|agent| ("acp.agent".to_owned(), agent));
    let unknown = named.into_iter().chain(modes);
    let unknown: Vec<_> = unknown.filter(|(_, name)| !check::may_exist(name, &findings)).collect();
    for (place, name) in &unknown {
        writeln!(stdout, "{place}: there is no agent `{name}`").map_err(failed)?;
    }
    let is_good = idle.is_empty() && unknown.is_empty() && findings.iter().all(Finding::is_good);
    if is_good { Ok(()) } else { Err(FAILED) }
}

fn read_config(options: &cli::Options, log: Option<&str>) -> Result<Config, u8> {
    Config::read(options, log).map_err(|mistakes| {
        mistakes.iter().for_each(say);
        USAGE
    })
}

fn runtime() -> Result<Runtime, u8> {
    Runtime::new().map_err(failed)
}

async fn bind(flag: &str, listen: SocketAddr) -> Result<TcpListener, u8> {
    TcpListener::bind(listen).await.map_err(|error| {
        failed(format!("cannot listen on {listen}: {error}; choose another with {flag}"))
    })
}

/// Tells which agents there are, and how to run them. A server that is not up yet is served as
/// soon as it is.
async fn announce(agents: &Agents, auth: &Auth, address: SocketAddr) {
    for Listing { upstream, agents, .. } in agents.list(&Caller::default()).await {
        match agents {
            Ok(agents) if agents.is_empty() => {
                say(format!("upstream {upstream} has no agents; `threadway check` tells more"));
            }
            Ok(agents) => {
                for Listed { id, .. } in agents {
                    say(format!("agent {id}: POST http://{address}/agui/agent/{id}/run"));
                }
            }
            Err(error) if error.is_unauthorized() && auth.is_for_langgraph() => {
                say(format!(
                    "upstream {upstream}: it asks each caller for credentials; GET \
                     http://{address}/agui/info lists its agents to those who have some"
                ));
            }
            Err(error) => {
                say(format!("upstream {upstream}: {error}; its agents are served once it answers"));
            }
        }
    }
    say(format!("CopilotKit: runtimeUrl http://{address}/agui"));
}

async fn cancel_after(signal: impl Future<Output = ()>, shutdown: &CancellationToken) {
    signal.await;
    shutdown.cancel();
}

/// Waits for SIGTERM or ctrl-c. Both are caught from now on.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Waits for ctrl-c, which is caught from now on.
#[cfg(windows)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        interrupt.recv().await;
    })
}

fn watch(args: cli::Watch, log: Option<&str>) -> Result<(), u8> {
    let cli::Watch { thread_id, gateway, agent, json, no_color } = args;
    let url = gateway.as_deref().unwrap_or(watch::DEFAULT_GATEWAY);
    let gateway = url.parse().map_err(|expected: upstream::BaseUrlError| {
        misused(format!("--gateway (THREADWAY_GATEWAY): `{url}` is not {expected}"))
    })?;
    for (place, name) in [("THREAD", Some(&thread_id)), ("--agent", agent.as_ref())] {
        if name.is_some_and(|name| !watch::is_segment(name)) {
            return Err(misused(format!("{place}: this is not a name")));
        }
    }
    config::log(log).map_err(misused)?.to_stderr();
    let is_plain = no_color.is_some_and(|value| !value.is_empty());
    let has_colours = !is_plain && io::stdout().is_terminal();
    let format = if json { Format::Json } else { Format::Text { has_colours } };
    let watch = Watch { gateway, agent, thread_id, format };
    let runtime = runtime()?;
    let watched = runtime.block_on(async {
        let signal = stop_signal().map_err(failed)?;
        tokio::select! {
            () = signal => Ok(()),
            watched = watch::watch(&watch, tokio::io::stdout(), |line| say(line)) => {
                watched.map_err(failed)
            }
        }
    });
    // A write to who does not read may never end.
    runtime.shutdown_background();
    watched
}

fn translate(args: &cli::Translate, log: Option<&str>) -> Result<(), u8> {
    config::log(log).map_err(misused)?.to_stderr();
    match args.to {
        Target::Agui => translate_to_agui(args),
        Target::Acp => translate_to_acp(args),
    }
}

fn translate_to_agui(args: &cli::Translate) -> Result<(), u8> {
    let input = read_input(args).map_err(misused)?;
    let mut client = input.as_ref().map_or_else(|| client_of(args), Input::client);
    if let Some(run_id) = &args.run_id {
        client.run_id = RunId::Own(run_id.clone());
    }
    let held = input.as_ref().map(Input::held).unwrap_or_default();
    let wire = if args.ndjson { Wire::Ndjson } else { Wire::Sse };
    let thread_id = args.thread_id.as_deref().unwrap_or(&client.thread_id);
    let feed = Feed::new(thread_id, None, args.run_id.as_deref());
    let mut encoder = Encoder::new(wire, Projector::new(client.clone(), held));
    translate_stdin(feed, |events, out| encoder.encode_bare(events, out))
}

/// The recording is the turn of a session: its updates, then the response to its prompt.
fn translate_to_acp(args: &cli::Translate) -> Result<(), u8> {
    /// The id of the prompt that is answered.
    const PROMPT: u64 = 1;
    if args.input.is_some() {
        return Err(misused("--input: ACP has none; expected --to agui with it"));
    }
    let session_id = thread_of(args);
    let cwd = match &args.cwd {
        Some(cwd) => cwd.clone(),
        None => env::current_dir().map_err(failed)?.to_string_lossy().into_owned(),
    };
    let feed = Feed::new(session_id, None, args.run_id.as_deref());
    let mut projector = acp::Projector::new(Arc::default(), &cwd);
    translate_stdin(feed, |events, out| {
        for event in events {
            projector.project(event, &mut |update| acp::notification(session_id, update, out));
            if let RunEvent::Ended { outcome, .. } = event {
                let result = acp::stop_reason(outcome).and_then(acp::result_of);
                let response = acp::rpc::response(&acp::rpc::Id::number(PROMPT), &result);
                out.extend_from_slice(response.as_bytes());
            }
        }
    })
}

/// Translates what stdin holds, as `encode` writes it.
fn translate_stdin(
    feed: Feed,
    mut encode: impl FnMut(&[RunEvent], &mut Vec<u8>),
) -> Result<(), u8> {
    let mut stdout = io::stdout().lock();
    let mut out = Vec::new();
    let translated = runs::translate(&mut io::stdin().lock(), feed, &mut |events| {
        encode(events, &mut out);
        stdout.write_all(&out)?;
        out.clear();
        stdout.flush()
    });
    match translated {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fault)) => {
            say(fault);
            Err(BROKEN_CAPTURE)
        }
        // Who reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// The client that is assumed where none is given.
fn client_of(args: &cli::Translate) -> Client {
    Client {
        thread_id: thread_of(args).to_owned(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    }
}

/// The thread that is assumed where none is given.
fn thread_of(args: &cli::Translate) -> &str {
    args.thread_id.as_deref().or(args.run_id.as_deref()).unwrap_or(UNNAMED_THREAD)
}

fn read_input(args: &cli::Translate) -> Result<Option<Input>, String> {
    let Some(path) = &args.input else { return Ok(None) };
    let wrong = |error: &dyn Display| format!("--input {}: {error}", path.display());
    let body = fs::read(path).map_err(|error| wrong(&error))?;
    Input::parse(&body).map(Some).map_err(|error| wrong(&error))
}

fn man(command: Option<&str>) -> Result<(), u8> {
    let page = manual::page(command).map_err(failed)?;
    let page = page.ok_or_else(|| {
        misused("COMMAND: there is no such command; `threadway --help` lists them")
    })?;
    print(&page)
}

fn print(document: &[u8]) -> Result<(), u8> {
    match io::stdout().lock().write_all(document) {
        // Who reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(failed),
    }
}

fn misused(error: impl Display) -> u8 {
    say(error);
    USAGE
}

fn failed(error: impl Display) -> u8 {
    say(error);
    FAILED
}

/// Tells a person, whatever the log filter is. What a server calls its agents is in some lines.
fn say(line: impl Display) {
    let line = line.to_string();
    // With stderr closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "threadway: {}", terminal::harmless_line(&line));
}
