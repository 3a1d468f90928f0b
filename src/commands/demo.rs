//! `threadway demo`: serves a scripted LangGraph server and a gateway for it.

use std::net::SocketAddr;

use threadway::agents::{Agents, Upstream};
use threadway::cli;
use threadway::config;
use threadway::server::{
    self, Limits, Observer, Page, Server, Settings, ThreadRoutePolicy, Workers,
};
use threadway::upstream::{BaseUrl, Client};
use threadway_demo::{self as demo, Demo, Pace};
use tokio_util::sync::CancellationToken;

use super::lines::start_log_of_flag;
use super::serve::serve_agents;
use super::{bind, failed, misused, say, url_of};

/// The request body of the printed `curl` lines.
const INPUT: &str = r#"{"threadId":"demo-GRAPH","runId":"1","protocolVersion":"1.0","messages":[{"id":"1","role":"user","content":"Where is it warm?"}]}"#;

pub(super) fn run(args: &cli::Demo, log: Option<&str>) -> Result<(), u8> {
    let listen = args.listen.as_deref().unwrap_or(config::DEFAULT_LISTEN);
    let address = |flag, value| config::demo_address(flag, value, args.insecure).map_err(misused);
    let listen = address("--listen (THREADWAY_LISTEN)", listen)?;
    let langgraph = args.langgraph_listen.as_deref().unwrap_or("127.0.0.1:0");
    let langgraph = address("--langgraph-listen", langgraph)?;
    let origins = args.cors_origins.as_deref().unwrap_or_default();
    let cors = "--cors-origins (THREADWAY_CORS_ORIGINS)";
    let cors = config::demo_cors(cors, origins, args.insecure).map_err(misused)?;
    start_log_of_flag(log)?;
    Workers::runtime().map_err(failed)?.block_on(async {
        let workers = Workers::of_all_cores().map_err(failed)?;
        let listener = bind("--listen", listen).await?;
        let scripted = bind("--langgraph-listen", langgraph).await?;
        let url = url_of(scripted.local_addr().map_err(failed)?);
        let url = url.parse().map_err(failed)?;
        let shutdown = CancellationToken::new();
        let demo = Demo::new(Pace::HUMAN, shutdown.clone());
        let announced = announce(listener.local_addr().map_err(failed)?, &url);
        let observer = Observer::default();
        let client = Client::new(url, None).map_err(failed)?;
        let client = client.with_metrics(&observer.metrics);
        let upstream = Upstream { name: config::DEFAULT_UPSTREAM.to_owned(), client };
        let agents = Agents::new(vec![upstream], Vec::new());
        let thread_routes =
            if listen.ip().is_loopback() { ThreadRoutePolicy::All } else { ThreadRoutePolicy::Off };
        let limits = Limits::default();
        let routes = server::under_safe_names(demo.routes(), Vec::new());
        let settings =
            Settings { cors: cors.clone(), page: Page::On, thread_routes, ..Settings::default() };
        let server = Server::new(agents.clone(), settings, observer, shutdown.clone());
        let (done, (), ()) = tokio::join!(
            serve_agents((&server, &workers), listener, &agents, &cors, &shutdown, announced),
            server::serve(scripted, routes, &limits, shutdown.clone()),
            demo.run_background()
        );
        demo.drain().await;
        done
    })
}

/// Prints the page's URL, a `curl` line for each agent, and the URL of LangGraph's own API.
fn announce(address: SocketAddr, langgraph: &BaseUrl) -> impl Future<Output = ()> + use<> {
    let gateway = url_of(address);
    let api = format!(
        "LangGraph's own API is at {langgraph}; a run starts by itself every {} s on its thread {}",
        demo::BACKGROUND_PERIOD.as_secs(),
        demo::WATCHED_THREAD
    );
    let editors = format!("editors: threadway acp --upstream {langgraph}");
    let watched =
        format!("  a thread that others run: {gateway}/#/watched/{}", demo::WATCHED_THREAD);
    async move {
        say(format!("page: {gateway}/"));
        say(watched);
        for (graph, what) in demo::GRAPHS {
            let input = INPUT.replace("GRAPH", graph);
            say(format!("{graph}: {what}"));
            say(format!(
                "  curl -N {gateway}/agui/agent/{graph}/run -H 'content-type: \
                 application/json' -d '{input}'"
            ));
        }
        say(api);
        say(editors);
    }
}
