//! `threadway serve`: serves the agents of the configured upstreams until a signal arrives.

use std::net::SocketAddr;

use threadway::agents::{Agents, ListedAgent, Upstream};
use threadway::audit::{Audit, AuditDestination};
use threadway::check::{self, RunnableAgents, UpstreamReport};
use threadway::config::{Config, NamedAgent, Options};
use threadway::metrics::Metrics;
use threadway::reload::{self, ReloadSignal};
use threadway::runs::{Recorder, Recording};
use threadway::server::isolation::{self, CredentialCheck};
use threadway::server::{
    Auth, Cors, Observer, Page, Server, Settings, Trust, UpstreamAuth, Workers,
};
use threadway::telemetry::Traces;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::lines::read_config;
use super::open_files;
use super::{bind, failed, others_of, say, signal, start_log, url_of};

pub(super) fn run(options: &Options, log: Option<&str>) -> Result<(), u8> {
    let config = read_config(options, log)?;
    let metrics = Metrics::default();
    let agents = config.agents(&metrics).map_err(failed)?;
    start_log(config.log.clone());
    let open_files = open_files::raise_limit();
    let traces = config.otlp_endpoint.as_ref().map(Traces::to_collector);
    let traces = traces.transpose().map_err(failed)?;
    let recorder = config.record.as_ref().map(record).transpose()?;
    let audit = config.audit_log.as_ref().map(audit).transpose()?;
    let observer = Observer { metrics, tracer: traces.as_ref().map(Traces::tracer) };
    let served = Workers::runtime().map_err(failed)?.block_on(async {
        let workers = Workers::of_all_cores().map_err(failed)?;
        refuse_open_upstreams(&agents, &config.settings).await?;
        let listener = bind("--listen", config.listen).await?;
        let admin = match config.admin_listen {
            Some(listen) => Some(bind("--admin-listen", listen).await?),
            None => None,
        };
        let shutdown = CancellationToken::new();
        let address = listener.local_addr().map_err(failed)?;
        warn_of_open_listeners(&config, address);
        open_files::warn_if_few(open_files, config.settings.limits.connections);
        advise_on_system_messages(&config.settings);
        let signal = ReloadSignal::new(&config.files).map_err(failed)?;
        let settings = config.settings.clone();
        let (auth, cors, page) = (settings.auth.clone(), settings.cors.clone(), settings.page);
        let named = config.named_agents();
        let server = Server::new(agents.clone(), settings, observer, shutdown.clone());
        if let Some(recorder) = recorder.clone() {
            server.record(recorder);
        }
        if let Some(audit) = audit.clone() {
            server.audit(audit);
        }
        let read = || Config::read(options, log);
        let reloading = reload::on_demand(&server, agents.clone(), config, signal, read);
        let at_rest = CancellationToken::new();
        let (done, (), _) = tokio::join!(
            async {
                let announced = announce(&agents, &named, &auth, page, address);
                let done = serve_agents(
                    (&server, &workers),
                    listener,
                    &agents,
                    &cors,
                    &shutdown,
                    announced,
                )
                .await;
                at_rest.cancel();
                done
            },
            serve_admin(&server, admin, &at_rest),
            shutdown.run_until_cancelled(reloading)
        );
        done
    });
    if let Some(recorder) = recorder {
        recorder.finish();
    }
    if let Some(audit) = audit {
        audit.finish();
    }
    if let Some(traces) = traces {
        traces.finish();
    }
    served
}

fn audit(destination: &AuditDestination) -> Result<Audit, u8> {
    Audit::open(destination).map_err(|error| {
        failed(format!("--audit-log {destination}: {error}; name a writable file"))
    })
}

/// Starts recording and warns about it: the files hold what users and models write.
fn record(recording: &Recording) -> Result<Recorder, u8> {
    let Recording { dir, files, bytes } = recording;
    let dir = dir.display();
    let recorder =
        Recorder::open(recording).map_err(|error| failed(format!("--record {dir}: {error}")))?;
    tracing::warn!(
        target: "threadway",
        %dir,
        files,
        bytes,
        "runs are recorded: the files hold what users and models write, but no credentials"
    );
    Ok(recorder)
}

fn warn_of_open_listeners(config: &Config, address: SocketAddr) {
    // Log filters name the binary, not its modules.
    if config.is_open {
        tracing::warn!(
            target: "threadway",
            %address,
            "anyone who can reach this address can use the agents: --insecure"
        );
    }
    if let Some(address) = config.admin_listen.filter(|address| !address.ip().is_loopback()) {
        tracing::warn!(
            target: "threadway",
            %address,
            "anyone who can reach this address can read the metrics: --admin-insecure"
        );
    }
}

/// Many people begin with a web page, and a browser does not explain why its request failed.
fn hint_at_origins(cors: &Cors) {
    if *cors == Cors::Off {
        tracing::info!(
            target: "threadway",
            "web pages of other origins are refused; allow one with --cors-origins \
             http://localhost:3000"
        );
    }
}

/// Pages that anyone can open could instruct the model, so the operator should decide about it.
fn advise_on_system_messages(settings: &Settings) {
    let Settings { auth, cors, allowance, .. } = settings;
    let is_for_pages = matches!(auth, Auth::None) && *cors != Cors::Off;
    if is_for_pages && allowance.system_messages().is_none() {
        tracing::warn!(
            target: "threadway",
            "pages of other origins may call without `auth`, and their system and developer \
             messages reach the model; choose --system-messages drop to leave these messages out, \
             or --system-messages send to allow them (`input.system_messages` in the config file)"
        );
    }
}

/// Refuses to start if an upstream that must check callers accepts any credentials, unless
/// `--insecure` is set. An upstream that does not answer yet is tested at the first request.
async fn refuse_open_upstreams(agents: &Agents, settings: &Settings) -> Result<(), u8> {
    let Settings { auth, forward, .. } = settings;
    let Auth::Upstream(UpstreamAuth { trust: Trust::Proven, .. }) = auth else { return Ok(()) };
    for Upstream { name, client } in agents.upstreams() {
        match isolation::judge(client, auth, forward).await {
            None | Some(Ok(CredentialCheck::Refuses)) => {}
            Some(Ok(accepts)) => {
                return Err(failed(format!(
                    "upstream {name}: {accepts}; or listen on a loopback address, choose another \
                     `auth.mode`, or pass --insecure"
                )));
            }
            Some(Err(error)) => say(format!(
                "upstream {name}: {error}; it gets no requests of callers before it has refused \
                 invented credentials"
            )),
        }
    }
    Ok(())
}

/// Serves the metrics, if there is a listener for them, until `at_rest` is cancelled.
async fn serve_admin(server: &Server, listener: Option<TcpListener>, at_rest: &CancellationToken) {
    let Some(listener) = listener else { return };
    if let Ok(address) = listener.local_addr() {
        say(format!("admin: metrics on {}/metrics{}", url_of(address), others_of(address)));
    }
    server.serve_admin(listener, at_rest.clone()).await;
}

/// Serves until a signal arrives, which cancels `shutdown`. Polls `announced` until then.
pub(super) async fn serve_agents(
    (server, workers): (&Server, &Workers),
    listener: TcpListener,
    agents: &Agents,
    cors: &Cors,
    shutdown: &CancellationToken,
    announced: impl Future<Output = ()>,
) -> Result<(), u8> {
    let address = listener.local_addr().map_err(failed)?;
    // Before the address is printed: a program that reads it may send the signal at once.
    let stop = signal::stop().map_err(failed)?;
    let bases = agents.upstreams().iter().map(|upstream| upstream.client.base().to_string());
    let bases = bases.collect::<Vec<_>>().join(", ");
    say(format!("listening on {}{} in front of {bases}", url_of(address), others_of(address)));
    agents.address_lines().iter().for_each(say);
    agents.identity_lines().iter().for_each(say);
    hint_at_origins(cors);
    tokio::join!(
        server.serve_on(workers, listener),
        shutdown.run_until_cancelled(announced),
        signal::cancel_after(stop, shutdown)
    );
    Ok(())
}

/// Prints the URL of each agent. An upstream that does not answer yet is served as soon as it does.
async fn announce(
    agents_of: &Agents,
    named: &[NamedAgent],
    auth: &Auth,
    page: Page,
    address: SocketAddr,
) {
    let gateway = url_of(address);
    if page == Page::On {
        say(format!("page: {gateway}/"));
    }
    let introduced = check::introduce(agents_of, auth).await;
    let doubts = check::ConfigWarnings::of(agents_of, named, &introduced);
    for UpstreamReport { upstream, server, presence } in introduced {
        if let Some(server) = server {
            say(server);
        }
        match presence {
            RunnableAgents::Agents(agents) => {
                for ListedAgent { id, .. } in agents {
                    say(format!("agent {id}: POST {gateway}/agui/agent/{id}/run"));
                }
            }
            RunnableAgents::NoAgents => {
                say(format!("upstream {upstream} has no agents; `threadway check` shows why"));
            }
            RunnableAgents::Guarded => say(format!(
                "upstream {upstream}: it requires credentials of each caller; GET \
                 {gateway}/agui/info with credentials lists its agents"
            )),
            RunnableAgents::Wrong(advice) => say(format!("upstream {upstream}: {advice}")),
        }
    }
    say(format!("CopilotKit: runtimeUrl {gateway}/agui"));
    doubts.log().await;
}
