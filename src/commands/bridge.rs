//! `threadway acp --gateway URL`: bridges one editor to a gateway elsewhere, prints its settings, or
//! stores the gateway's token.

use std::env;
use std::fmt::Display;
use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use threadway::bridge::{self, GatewayUrl, GatewayUrlError, RemoteGateway, TokenSource};
use threadway::cli::{self, Editor};
use threadway::credentials::{self, Credentials};
use threadway::editors;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::lines::{explain_editors, start_log_of_flag};
use super::{failed, misused, runtime, say, signal};

/// What a person can do if `--login` cannot ask for the token.
const WITHOUT_TERMINAL: &str = "asks for the token in a terminal, and there is none: run it in a \
                                terminal, or set THREADWAY_GATEWAY_TOKEN";

/// The URL of the gateway, if `threadway acp` is to be a bridge. A flag beats the environment.
pub(super) fn chosen(args: &cli::Acp) -> Result<Option<&str>, u8> {
    // clap does not say in its values where they come from.
    let is_flag =
        |variable: &str, value: &str| env::var_os(variable).is_none_or(|given| given != *value);
    let Some(gateway) = args.gateway.as_deref() else {
        let token = args.gateway_token.as_deref();
        if token.is_some_and(|token| is_flag("THREADWAY_GATEWAY_TOKEN", token)) {
            return Err(misused(
                "--gateway-token (THREADWAY_GATEWAY_TOKEN): expected --gateway with it, the URL of \
                 the gateway that gets the token",
            ));
        }
        return Ok(None);
    };
    let config = args.config.as_ref().map(|file| file.display().to_string());
    let others = [
        ("--upstream", "THREADWAY_UPSTREAM", args.upstream.as_deref()),
        ("--config", "THREADWAY_CONFIG", config.as_deref()),
        ("--upstream-api-key", "THREADWAY_UPSTREAM_API_KEY", args.upstream_api_key.as_deref()),
        ("--agent", "THREADWAY_AGENT", args.agent.as_deref()),
    ];
    let gateway_is_flag = is_flag("THREADWAY_GATEWAY", gateway);
    for (flag, variable, value) in others {
        let Some(value) = value else { continue };
        match (gateway_is_flag, is_flag(variable, value)) {
            (true, false) => {}
            // A key or an agent alone chooses neither.
            (false, _) if matches!(flag, "--upstream-api-key" | "--agent") => {}
            (false, true) => return Ok(None),
            (true, true) | (false, false) => {
                return Err(misused(format!(
                    "--gateway (THREADWAY_GATEWAY) and {flag} ({variable}) exclude each other: the \
                     gateway has its own; leave one out"
                )));
            }
        }
    }
    Ok(Some(gateway))
}

pub(super) fn run(args: &cli::Acp, url: &str, log: Option<&str>) -> Result<(), u8> {
    let url: GatewayUrl = url.parse().map_err(|expected: GatewayUrlError| {
        // The text may have a password or a token in it.
        misused(format!("--gateway (THREADWAY_GATEWAY): expected {expected}"))
    })?;
    if let Some(editor) = args.print_config {
        return print_config(args, editor, &url);
    }
    start_log_of_flag(log)?;
    let directory = credentials::directory(|name| env::var_os(name).map(PathBuf::from));
    let credentials = Credentials::of_gateway(directory.as_deref(), url.base());
    if args.login {
        if url.is_clear() {
            say(format_args!("{url} gets the token without encryption; use https://"));
        }
        return login(&url, &credentials);
    }
    let token = match args.gateway_token.as_deref().map(str::trim).filter(|token| !token.is_empty())
    {
        Some(token) => TokenSource::Given(token.parse().map_err(|expected| {
            misused(format!("--gateway-token (THREADWAY_GATEWAY_TOKEN): expected {expected}"))
        })?),
        None => TokenSource::Stored(credentials.clone()),
    };
    let has_token = matches!(token, TokenSource::Given(_)) || credentials.has_key();
    if has_token && url.is_clear() {
        tracing::warn!(gateway = %url, "the token is sent without encryption; use https://");
    }
    serve(RemoteGateway::new(url, token).map_err(failed)?)
}

/// Bridges until stdin ends or a signal arrives.
fn serve(gateway: RemoteGateway) -> Result<(), u8> {
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let stop = signal::stop().map_err(failed)?;
        explain_editors();
        let shutdown = CancellationToken::new();
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        // On a worker thread, which also polls the sockets.
        let mut relaying = JoinSet::new();
        let cancelled = shutdown.clone();
        relaying.spawn(async move { bridge::relay(&gateway, stdin, stdout, &cancelled).await });
        tokio::select! {
            Some(relayed) = relaying.join_next() => {
                relayed.unwrap_or_else(|error| Err(error.into())).map_err(failed)
            }
            () = async { signal::cancel_after(stop, &shutdown).await; pending().await } => Ok(()),
        }
    });
    // A pending read of stdin may never end.
    runtime.shutdown_background();
    served
}

fn print_config(args: &cli::Acp, editor: Editor, url: &GatewayUrl) -> Result<(), u8> {
    let program = env::current_exe().map_err(failed)?;
    let args = cli::Acp {
        gateway: Some(url.to_string()),
        upstream: None,
        config: None,
        agent: None,
        ..args.clone()
    };
    let snippet = editors::snippet(editor, &program, &args);
    io::stdout().lock().write_all(snippet.as_bytes()).map_err(failed)
}

/// Asks a person for the gateway's token, and stores it if the gateway accepts it.
fn login(url: &GatewayUrl, credentials: &Credentials) -> Result<(), u8> {
    if !io::stdin().is_terminal() {
        return Err(misused(format_args!("--login {WITHOUT_TERMINAL}")));
    }
    let token = rpassword::prompt_password(format!("Token of {url}: "))
        .map_err(|error| misused(format_args!("--login {WITHOUT_TERMINAL} ({error})")))?;
    let token = token.trim();
    let checked = token.parse().map_err(|expected| misused(format!("this is not {expected}")))?;
    let not_stored = |why: &dyn Display| failed(format!("the token was not stored: {why}"));
    let gateway = RemoteGateway::new(url.clone(), TokenSource::Given(checked)).map_err(failed)?;
    let tried = runtime()?.block_on(gateway.probe());
    tried.map_err(|error| not_stored(&error.explain(url)))?;
    let file = credentials.store(token).map_err(|error| not_stored(&error))?;
    say(format!("the token is stored in {}", file.display()));
    Ok(())
}
