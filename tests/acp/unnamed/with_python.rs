//! What a person types in a terminal, which `tests/support/terminal.py` makes.

use super::*;

#[tokio::test]
async fn a_running_agent_serves_the_server_that_a_person_types() {
    let home = Home::new("running");
    let server = LangGraph::start().await;
    server.books().key = Some("k3y".to_owned());
    let (mut agent, _) = Agent::initialized(&home, &[], terminal()).await;
    assert_eq!(agent.refused("session/new", new_session()).await.0, -32000);
    let steps = [
        ("URL of the LangGraph server, such as", "127.0.0.1:2024\n"),
        ("this is not an absolute URL", ""),
        ("URL of the LangGraph server, such as", &*format!(" {} \n", server.url)),
        (&*format!("API key of {}: ", url(&server)), "k3y\n"),
    ];
    let (code, shown) = home.logs_in(&steps).await;
    assert_eq!(code, 0, "{shown}");
    let stored = format!("{} and its key are stored in {}", url(&server), home.stored().display());
    assert!(shown.contains(&stored), "{shown}");
    let kept = std::fs::read_to_string(home.stored()).unwrap();
    assert_eq!(kept, format!("\"{0}\" = \"k3y\"\n\"upstream\" = \"{0}\"\n", url(&server)));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(home.stored()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let authenticate = json!({"methodId": "api-key"});
    assert_eq!(agent.call("authenticate", authenticate).await, json!({}));
    let opened = agent.call("session/new", new_session()).await;
    assert!(opened["sessionId"].is_string(), "{opened}");
    // The next process needs no login, and offers it in case the server moves.
    let (mut next, answer) = Agent::initialized(&home, &[], terminal()).await;
    let asked =
        format!("Type the URL of your LangGraph server (now {}), and its key", url(&server));
    assert_eq!(answer["authMethods"][0]["description"], asked);
    let listed = next.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"], json!([]), "no prompt has made the thread");
    // The server stays, and asks for its key again.
    assert_eq!(next.call("logout", json!({})).await, json!({}));
    let kept = std::fs::read_to_string(home.stored()).unwrap();
    assert_eq!(kept, format!("\"upstream\" = \"{}\"\n", url(&server)));
    let (code, message) = next.refused("session/new", new_session()).await;
    assert!(code == -32000 && message.contains("run `threadway acp --login`"), "{message}");
    next.ended().await;
    agent.ended().await;
}

#[tokio::test]
async fn a_client_that_retries_after_the_login_needs_no_authenticate() {
    let home = Home::new("retries");
    let server = LangGraph::start().await;
    let (mut agent, _) = Agent::initialized(&home, &[], terminal()).await;
    assert_eq!(agent.refused("session/new", new_session()).await.0, -32000);
    let steps = [
        ("URL of the LangGraph server", &*format!("{}\n", server.url)),
        ("(it answers without one; Enter for none): ", "\n"),
    ];
    let (code, shown) = home.logs_in(&steps).await;
    assert!(code == 0 && shown.contains(&format!("{} is stored in", url(&server))), "{shown}");
    let kept = std::fs::read_to_string(home.stored()).unwrap();
    assert_eq!(kept, format!("\"upstream\" = \"{}\"\n", url(&server)));
    agent.call("session/new", new_session()).await;
    let (code, message) = agent.refused("authenticate", json!({"methodId": "x"})).await;
    assert_eq!(code, -32602, "{message}");
    agent.call("authenticate", json!({"methodId": "api-key"})).await;
    agent.ended().await;
}

#[tokio::test]
async fn a_login_that_the_server_refuses_stores_nothing() {
    let home = Home::new("refused");
    let server = LangGraph::start().await;
    let of_server = format!("{}\n", server.url);
    server.books().key = Some("k3y".to_owned());
    for (steps, told) in [
        (
            vec![("URL of", &*of_server), ("API key of", "wrong\n")],
            format!("nothing was stored: {}: the LangGraph server answered 40", url(&server)),
        ),
        (
            vec![("URL of", &*of_server), ("API key of", "\n")],
            "this is not a key: visible ASCII characters, at least one".to_owned(),
        ),
        (
            vec![("URL of", "http://127.0.0.1:1\n")],
            "nothing was stored: http://127.0.0.1:1: the LangGraph server cannot be reached"
                .to_owned(),
        ),
        (
            vec![("URL of", "x\n"), ("URL of", "ftp://x\n"), ("URL of", "\n")],
            "nothing was stored: no URL of a LangGraph server was typed".to_owned(),
        ),
        // The end of input.
        (
            vec![("URL of", "\u{4}")],
            "nothing was stored: no URL of a LangGraph server was typed".to_owned(),
        ),
    ] {
        let (code, shown) = home.logs_in(&steps).await;
        assert!(code != 0 && shown.contains(&told), "{code} {shown}");
        assert!(!home.stored().exists(), "{shown}");
    }
}

#[tokio::test]
async fn a_second_login_offers_the_server_of_the_first() {
    let home = Home::new("second");
    let (first, second) = (LangGraph::start().await, LangGraph::start().await);
    let at = |server: &LangGraph| format!("\"upstream\" = \"{}\"\n", url(server));
    let none = ("Enter for none): ", "\n");
    let typed = format!("{}\n", first.url);
    assert_eq!(home.logs_in(&[("URL of", &typed), none]).await.0, 0);
    let offered = format!("URL of the LangGraph server (Enter for {}): ", url(&first));
    assert_eq!(home.logs_in(&[(&offered, "\n"), none]).await.0, 0);
    assert_eq!(std::fs::read_to_string(home.stored()).unwrap(), at(&first));
    let typed = format!("{}\n", second.url);
    assert_eq!(home.logs_in(&[(&offered, &typed), none]).await.0, 0);
    assert_eq!(std::fs::read_to_string(home.stored()).unwrap(), at(&second));
    // A server that is named comes before the typed one, and its login asks for the key alone.
    let named = ["--upstream", &*first.url];
    let (mut agent, answer) = Agent::initialized(&home, &named, terminal()).await;
    assert_eq!(answer["authMethods"], json!([]));
    let before = [&first, &second].map(|server| server.books().asked.len());
    agent.call("session/new", new_session()).await;
    let [asked, unasked] = [&first, &second].map(|server| server.books().asked.len());
    assert!(asked > before[0] && unasked == before[1], "{before:?}, {asked}, {unasked}");
    agent.ended().await;
    first.books().key = Some("k3y".to_owned());
    let steps = [(&*format!("API key of {}: ", url(&first)), "k3y\n")];
    assert_eq!(home.types(&["--login", "--upstream", &first.url], &steps).await.0, 0);
    let kept = std::fs::read_to_string(home.stored()).unwrap();
    assert_eq!(kept, format!("{}\"{}\" = \"k3y\"\n", at(&second), url(&first)));
}

#[tokio::test]
async fn a_typed_server_gets_what_is_configured_beside_it() {
    let home = Home::new("beside");
    let server = LangGraph::start().await;
    server.books().key = Some("k3y".to_owned());
    let config = home.0.join("c.toml");
    std::fs::write(&config, "[upstream]\napi_key = \"k3y\"\n").unwrap();
    let options = ["--config", config.to_str().unwrap()];
    let (mut agent, _) = Agent::initialized(&home, &options, terminal()).await;
    assert_eq!(agent.refused("session/new", new_session()).await.0, -32000);
    let typed = format!("{}\n", server.url);
    let login = [&options[..], &["--login"]].concat();
    let (code, shown) = home.types(&login, &[("URL of", &typed)]).await;
    assert!(code == 0 && !shown.contains("API key"), "{shown}");
    let kept = std::fs::read_to_string(home.stored()).unwrap();
    assert_eq!(kept, format!("\"upstream\" = \"{}\"\n", url(&server)));
    // The agent names a mistake that was made meanwhile. Correcting it needs no restart.
    std::fs::write(&config, "[upstream]\napi_kye = \"k3y\"\n").unwrap();
    let (code, message) = agent.refused("session/new", new_session()).await;
    assert!(code == -32603 && message.contains("api_kye"), "{code} {message}");
    std::fs::write(&config, "[upstream]\napi_key = \"k3y\"\n").unwrap();
    agent.call("session/new", new_session()).await;
    agent.ended().await;
}

#[tokio::test]
async fn a_person_who_types_the_command_reads_what_it_waits_for() {
    let home = Home::new("typed");
    let waits = "waiting for an editor's ACP messages on stdin";
    for options in
        [&[][..], &["--upstream", "http://127.0.0.1:1"], &["--gateway", "http://127.0.0.1:1"]]
    {
        let (code, shown) = home.types(options, &[(waits, CTRL_C)]).await;
        assert!(code == 0 && shown.contains("threadway acp --print-config zed"), "{shown}");
    }
    // An editor's pipe is no terminal.
    let mut command = home.command(PROGRAM);
    command.arg("acp");
    let output = ended(command).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
