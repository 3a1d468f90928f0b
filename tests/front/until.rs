//! What stays open across runs ends when its caller is not admitted any more.

use std::time::Duration;

use serde_json::{Value, json};
use threadway::server::{Auth, UpstreamAuth};
use tokio::time::Instant;

use super::acp::{BEARER, Front, LOADED, conversation, saved};
use super::acp_http::Client;
use super::credentials::{KEY, OTHER_KEY, bearer, guarded, key_of, keys, tokens_of};
use crate::support::clock::{HeldClock, within};
use crate::support::gateway::{Response, THREAD, events_request};
use crate::support::issuer::{AUDIENCE, Signer, from_now};
use crate::support::langgraph::{LangGraph, Run};
use crate::support::remote::RemoteEditor;

/// The largest time, by the clock, until a follower is sent a run of others.
const SOON: Duration = Duration::from_secs(9);

fn jwt(signers: &[&Signer], audience: &str) -> Auth {
    tokens_of(signers, &[AUDIENCE, audience])
}

/// A gateway, and a thread that is at rest.
async fn front(auth: Auth) -> Front {
    let front = Front::with(guarded(auth)).await;
    for thread in [THREAD, LOADED] {
        front.server.thread(thread, saved(None), Some(conversation()));
    }
    front
}

/// A follower that has the idle thread.
async fn follower(front: &Front, headers: &str) -> Response {
    let request = events_request(headers, "?follow=thread");
    let mut response = Response::to(front.address, request.as_bytes()).await;
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    while response.next(1).await[0]["type"] != "RUN_FINISHED" {}
    response
}

/// A run that somebody else starts. Waits until the gateway reads it.
async fn run_of_others(server: &mut LangGraph, clock: &HeldClock, thread: &str) -> Run {
    let run = json!({"run_id": "01a200b7-5ee6-7592-b13b-000000000001", "thread_id": thread,
        "status": "running", "created_at": "2026-11-22T11:00:00.000001+00:00", "metadata": {},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]}});
    server.books().threads.get_mut(thread).unwrap().runs.insert(0, run);
    let mut run = within(clock, SOON, server.joined()).await;
    run.sends("metadata", &json!({"run_id": run.id, "attempt": 1})).await;
    let messages = json!([{"type": "human", "id": "h1", "content": "hi"}]);
    run.sends("values", &json!({"messages": messages})).await;
    run
}

/// Reads up to an event with this text.
async fn shown(follower: &mut Response, text: &str) {
    while !follower.next(1).await[0].to_string().contains(text) {}
}

/// Checks that a follower is sent a run of others.
async fn follows_on(front: &mut Front, clock: &HeldClock, follower: &mut Response) {
    let mut run = run_of_others(&mut front.server, clock, THREAD).await;
    run.says("m", "news").await;
    within(clock, SOON, shown(follower, "news")).await;
    run.ends("success", None).await;
}

/// Checks that a stream ends, and that it has no event.
async fn is_over(clock: &HeldClock, follower: &mut Response) {
    let rest = within(clock, Duration::from_secs(1), follower.rest()).await;
    assert_eq!(rest, Vec::<Value>::new());
}

#[tokio::test]
async fn reload_ends_the_followers_whom_it_does_not_admit_and_no_others() {
    let (old, new) = (Signer::ed25519("old"), Signer::ed25519("new"));
    let both = format!("goes={KEY}\nstays={OTHER_KEY}");
    let (key, other) = (bearer(KEY), bearer(OTHER_KEY));
    let (by_old, by_new) = (bearer(&old.token(&[])), bearer(&new.token(&[])));
    let upstream = || Auth::Upstream(UpstreamAuth::default());
    let own = "x-api-key: 1\r\n";
    for (before, after, goes, stays) in [
        (keys(&both), keys(&format!("stays={OTHER_KEY}")), Some(&*key), Some(&*other)),
        // A key that belongs to another caller now.
        (keys(&both), keys(&format!("new={KEY}\nstays={OTHER_KEY}")), Some(&*key), Some(&*other)),
        // The same keys, and one more.
        (keys(&both), keys(&format!("{both}\nmore=0000000000000000")), None, Some(&*other)),
        (jwt(&[&old, &new], "a"), jwt(&[&new], "a"), Some(&*by_old), Some(&*by_new)),
        (jwt(&[&old], "a"), jwt(&[&old, &new], "a"), None, Some(&*by_old)),
        (jwt(&[&old], "a"), jwt(&[&old], "b"), Some(&*by_old), None),
        (keys(&both), jwt(&[&old], "a"), Some(&*key), None),
        (jwt(&[&old], "a"), keys(&both), Some(&*by_old), None),
        (Auth::None, keys(&both), Some(""), None),
        (upstream(), keys(&both), Some(own), None),
        (Auth::None, Auth::None, None, Some("")),
        (upstream(), upstream(), None, Some(own)),
    ] {
        let mut front = front(before).await;
        let mut goes = match goes {
            Some(headers) => Some(follower(&front, headers).await),
            None => None,
        };
        let mut stays = match stays {
            Some(headers) => Some(follower(&front, headers).await),
            None => None,
        };
        let clock = HeldClock::pause();
        front.reload(guarded(after));
        if let Some(goes) = &mut goes {
            is_over(&clock, goes).await;
        }
        if let Some(stays) = &mut stays {
            follows_on(&mut front, &clock, stays).await;
        }
        drop(clock);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn follower_reads_the_run_that_it_has_begun_to_its_end_and_no_later_one() {
    let mut front = front(keys(&format!("goes={KEY}\nstays={OTHER_KEY}"))).await;
    let mut goes = follower(&front, &bearer(KEY)).await;
    let clock = HeldClock::pause();
    let mut run = run_of_others(&mut front.server, &clock, THREAD).await;
    run.says("m", "one").await;
    within(&clock, SOON, shown(&mut goes, "one")).await;
    front.reload(guarded(keys(&format!("stays={OTHER_KEY}"))));
    run.says("m", "two").await;
    run.ends("success", None).await;
    let rest = within(&clock, SOON, goes.rest()).await;
    assert!(rest.iter().any(|event| event["delta"] == "two"), "{rest:?}");
    assert_eq!(rest.last().unwrap()["type"], "RUN_FINISHED");
    assert_eq!(rest.iter().filter(|event| event["type"] == "RUN_FINISHED").count(), 1);
}

#[tokio::test]
async fn token_follows_until_it_expires_and_another_goes_on() {
    for signer in [Signer::ed25519("e"), Signer::p256("p"), Signer::rsa("r")] {
        let mut front = front(jwt(&[&signer], "a")).await;
        let short = bearer(&signer.token(&[("exp", from_now(30))]));
        let long = bearer(&signer.token(&[("exp", from_now(3_000))]));
        let (mut short, mut long) = (follower(&front, &short).await, follower(&front, &long).await);
        let clock = HeldClock::pause();
        let began_at = Instant::now();
        let mut rest = std::pin::pin!(short.rest());
        loop {
            tokio::select! {
                biased;
                rest = &mut rest => break assert_eq!(rest, Vec::<Value>::new()),
                () = clock.advance(Duration::from_secs(1)) => {}
            }
        }
        // The skew is a minute.
        let seconds = began_at.elapsed().as_secs();
        assert!((80..100).contains(&seconds), "{seconds} s");
        follows_on(&mut front, &clock, &mut long).await;
        drop(clock);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn editors_socket_is_closed_once_its_caller_is_not_admitted_any_more() {
    let front = front(key_of("a")).await;
    let mut editor = RemoteEditor::initialized(front.address, &[BEARER]).await;
    editor.load(LOADED).await;
    let clock = HeldClock::pause();
    front.reload(guarded(keys(&format!("b={OTHER_KEY}"))));
    let (code, reason) = within(&clock, SOON, editor.closed()).await;
    assert_eq!(code, 4401);
    assert!(reason.starts_with("invalid_token: "), "{reason}");
}

#[tokio::test]
async fn editor_reads_the_answer_to_its_prompt_to_the_end() {
    let mut front = front(key_of("a")).await;
    let mut editor = RemoteEditor::initialized(front.address, &[BEARER]).await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = front.server.run().await;
    front.reload(guarded(keys(&format!("b={OTHER_KEY}"))));
    run.says("m", "there").await;
    run.ends("success", None).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.said(), [("m".to_owned(), "there".to_owned())]);
    assert_eq!(editor.closed().await.0, 4401);
}

#[tokio::test]
async fn editors_streams_end_once_its_newest_token_has_expired() {
    let signer = Signer::ed25519("a");
    let token = |seconds| format!("Bearer {}", signer.token(&[("exp", from_now(seconds))]));
    for renewed in [false, true] {
        let front = front(jwt(&[&signer], "http")).await;
        let first = token(30);
        let mut client = Client::connect(front.address, &[("authorization", &first)]).await;
        let mut stream = client.stream(None).await;
        if renewed {
            let second = token(3_000);
            client.headers = vec![("authorization".to_owned(), second)];
            client.session(&mut stream).await;
        }
        let clock = HeldClock::pause();
        for _ in 0..95 {
            clock.advance(Duration::from_secs(1)).await;
        }
        if renewed {
            client.session(&mut stream).await;
        } else {
            within(&clock, SOON, async { while stream.chunk().await {} }).await;
        }
        drop(clock);
        tokio::time::resume();
    }
}
