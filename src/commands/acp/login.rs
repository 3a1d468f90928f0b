//! `threadway acp --login`: asks a person for a LangGraph server and its key, tries them, and stores
//! them.

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Read, Write};

use threadway::agents::Upstream;
use threadway::credentials::{Credentials, NewKey, Store};
use threadway::upstream::{BaseUrl, Client, Error};

use crate::commands::{failed, misused, runtime, say};

/// What a person can do if `--login` cannot ask for the key.
const WITHOUT_TERMINAL: &str = "--login asks for the key in a terminal, and there is none: run it in a terminal, or set \
     THREADWAY_UPSTREAM_API_KEY";

/// What a person can do if `--login` cannot ask for the server.
const NO_SERVER_WITHOUT_TERMINAL: &str = "--login asks for the server's URL and key in a terminal, and there is none: run it in a \
     terminal, or set THREADWAY_UPSTREAM and THREADWAY_UPSTREAM_API_KEY";

/// The longest line that is read as a URL.
const MAX_URL_BYTES: u64 = 4096;

/// How often a person may mistype the URL.
const MAX_ATTEMPTS: usize = 3;

/// Asks a person for the server's key, and stores it if the server accepts it.
pub(super) fn ask_key(upstream: &Upstream, credentials: &Credentials) -> Result<(), u8> {
    expect_terminal(WITHOUT_TERMINAL)?;
    let key = prompt_key(&format!("API key of {}: ", upstream.client.base()))?;
    try_key(&upstream.client, &key)?;
    let file = credentials.store(&key).map_err(not_stored)?;
    say(format!("the key is stored in {}", file.display()));
    Ok(())
}

/// Asks a person for the server and its key, and stores both if the server accepts them.
/// `connect` reads what is configured for a server whose URL is not.
pub(super) fn ask_server(
    store: &Store,
    connect: impl FnOnce(&BaseUrl) -> Result<Upstream, u8>,
) -> Result<(), u8> {
    expect_terminal(NO_SERVER_WITHOUT_TERMINAL)?;
    let server = prompt_url(store.typed_upstream().as_ref())?;
    let client = connect(&server)?.client;
    let listed = runtime()?.block_on(client.assistants(None));
    let key = match listed {
        Ok(_) if client.has_key() => NewKey::Unchanged,
        Ok(_) => {
            let prompt = format!("API key of {server} (it answers without one; Enter for none): ");
            let key = prompt_key(&prompt)?;
            if key.is_empty() { NewKey::None } else { NewKey::Typed(key) }
        }
        Err(error) if error.is_unauthorized() && !client.has_key() => {
            NewKey::Typed(prompt_key(&format!("API key of {server}: "))?)
        }
        Err(error) => return Err(refused(&client, &error)),
    };
    if let NewKey::Typed(key) = &key {
        try_key(&client, key)?;
    }
    let file = store.store_upstream(&server, &key).map_err(not_stored)?;
    let stored = match key {
        NewKey::Typed(_) => format!("{server} and its key are"),
        NewKey::None | NewKey::Unchanged => format!("{server} is"),
    };
    say(format!("{stored} stored in {}", file.display()));
    Ok(())
}

fn expect_terminal(without: &str) -> Result<(), u8> {
    if io::stdin().is_terminal() {
        return Ok(());
    }
    Err(misused(without))
}

/// The URL that a person types. `known` is taken if the line is empty.
fn prompt_url(known: Option<&BaseUrl>) -> Result<BaseUrl, u8> {
    let prompt = match known {
        Some(known) => format!("URL of the LangGraph server (Enter for {known}): "),
        None => "URL of the LangGraph server, such as http://127.0.0.1:2024: ".to_owned(),
    };
    for _ in 0..MAX_ATTEMPTS {
        // The terminal shows stderr, and whoever redirects stdout expects no prompt in it.
        write!(io::stderr(), "{prompt}").map_err(failed)?;
        let mut line = String::new();
        let read = io::stdin().lock().take(MAX_URL_BYTES).read_line(&mut line).map_err(failed)?;
        if read == 0 {
            break;
        }
        match (line.trim(), known) {
            ("", Some(known)) => return Ok(known.clone()),
            (text, _) => match text.parse() {
                Ok(url) => return Ok(url),
                Err(expected) => say(format_args!("this is not {expected}")),
            },
        }
    }
    Err(misused("nothing was stored: no URL of a LangGraph server was typed"))
}

fn prompt_key(prompt: &str) -> Result<String, u8> {
    let key = rpassword::prompt_password(prompt)
        .map_err(|error| misused(format_args!("{WITHOUT_TERMINAL} ({error})")))?;
    Ok(key.trim().to_owned())
}

/// Checks that the server accepts the key.
fn try_key(client: &Client, key: &str) -> Result<(), u8> {
    let key = key.parse().map_err(|expected| misused(format!("this is not {expected}")))?;
    client.use_key(Some(key));
    let listed = runtime()?.block_on(client.assistants(None));
    listed.map(|_| ()).map_err(|error| refused(client, &error))
}

fn refused(client: &Client, error: &Error) -> u8 {
    failed(format!("nothing was stored: {}: {}", client.base(), error.explained()))
}

fn not_stored(error: impl Display) -> u8 {
    failed(format!("nothing was stored: {error}"))
}
