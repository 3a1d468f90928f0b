//! Every recorded stream as an ACP session: exact bytes, and judges that know the wire only.
//!
//! `UPDATE_GOLDEN=1 cargo test --test core acp_golden::` stores the projector's output. Read the
//! difference before you commit it.

use crate::support::acp::{self, Session};
use crate::support::acp_schema::Schema;
use crate::support::capture::{self, Capture, Upstream};
use crate::support::judge;
use threadway_translate::acp::{result_of, rpc, stop_reason};
use threadway_translate::run::{Outcome, RunEvent, View};

/// A capture as the turn of a session.
struct Turn {
    session: Session,
    /// The bytes of the whole turn, including the response to the prompt.
    bytes: Vec<u8>,
    outcome: Outcome,
    view: View,
}

fn turn(capture: &Capture) -> Turn {
    let (events, view) = capture::run_events(&capture.bytes);
    let session = acp::project(&mut acp::newcomer(), &events);
    let Some(RunEvent::Ended { outcome, .. }) = events.last() else { panic!("a run ends") };
    let mut bytes = session.bytes.clone();
    let result = stop_reason(outcome).and_then(result_of);
    bytes.extend_from_slice(rpc::response(&rpc::Id::number(1), &result).as_bytes());
    Turn { session, bytes, outcome: outcome.clone(), view }
}

#[test]
fn every_capture_becomes_the_bytes_that_are_kept() {
    capture::check_kept("acp", "jsonl", |capture| turn(capture).bytes);
}

#[test]
fn every_capture_is_legal_and_true() {
    let schema = Schema::load();
    let mut wrong = Vec::new();
    let captures = capture::all();
    for capture in &captures {
        let turn = turn(capture);
        let response = turn.bytes.split(|byte| *byte == b'\n').rev().nth(1).unwrap();
        let response = serde_json::from_slice(response).unwrap();
        let upstream = capture.upstream();
        let verdicts = [
            turn.session.check(),
            schema.check(&turn.session),
            schema.check_response(&response),
            settles_what_is_not_asked(&turn),
            says_every_token_once(&upstream, &turn),
            shows_what_langgraph_holds(&upstream, &turn),
            loads_as_it_was_live(&turn),
        ];
        wrong.extend(verdicts.into_iter().filter_map(Result::err).map(|why| (&capture.name, why)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn settles_what_is_not_asked(turn: &Turn) -> Result<(), String> {
    match turn.outcome {
        Outcome::Interrupted(_) => Ok(()),
        Outcome::Finished { .. }
        | Outcome::Cancelled
        | Outcome::Idle { .. }
        | Outcome::Failed(_) => turn.session.check_settled(),
    }
}

/// A subagent's text may be omitted, but then the whole text is.
fn says_every_token_once(upstream: &[Upstream], turn: &Turn) -> Result<(), String> {
    let told = turn.session.texts();
    for (id, text) in judge::tokens(upstream) {
        if told.get(&id).is_some_and(|told| *told != text) {
            return Err(format!("of {id} came {text:?}, told was {:?}", told.get(&id)));
        }
    }
    Ok(())
}

fn shows_what_langgraph_holds(upstream: &[Upstream], turn: &Turn) -> Result<(), String> {
    let Some((state, messages)) = judge::last_values(upstream) else { return Ok(()) };
    let messages: Vec<_> = messages.iter().map(judge::shown).collect();
    let calls = turn.session.calls();
    for message in &messages {
        if matches!(message.role, "user" | "assistant") && !message.text.is_empty() {
            let told = turn.session.text_of(&message.id);
            if told.as_ref() != Some(&message.text) {
                return Err(format!("{message:?} is sent as {told:?}"));
            }
        }
        for (id, name, args) in &message.calls {
            let Some(call) = calls.get(id) else { return Err(format!("{id} is not sent")) };
            if call.get("name") != name || call.get("rawInput") != args {
                return Err(format!("{name} {args} is sent as {call:?}"));
            }
            let answer = messages.iter().any(|message| message.answers == *id);
            if answer && !call.is_settled() {
                return Err(format!("{id} has an answer, told is {call:?}"));
            }
        }
    }
    let plan = turn.session.updates.iter().rev().find(|u| u["sessionUpdate"] == "plan");
    let todos = state["todos"].as_array().map_or(0, Vec::len);
    let told = plan.and_then(|plan| plan["entries"].as_array()).map_or(0, Vec::len);
    if todos == told { Ok(()) } else { Err(format!("{todos} todos, {told} in the plan")) }
}

/// A client that loads the thread later gets the same ids, texts and calls as one that was
/// connected.
fn loads_as_it_was_live(turn: &Turn) -> Result<(), String> {
    let loaded = acp::load(&turn.view);
    loaded.check()?;
    for (id, text) in loaded.texts() {
        let live = turn.session.text_of(&id);
        if live.as_ref() != Some(&text) {
            return Err(format!("{id} is loaded as {text:?}, was {live:?}"));
        }
    }
    let live = turn.session.calls();
    for (id, call) in loaded.calls() {
        let Some(live) = live.get(&id) else { return Err(format!("{id} was not sent live")) };
        let is_over = call.is_settled();
        for name in ["title", "name", "kind", "locations", "content", "rawOutput", "status"] {
            if is_over && live.get(name) != call.get(name) {
                return Err(format!("{id} is loaded as {call:?}, was {live:?}"));
            }
        }
    }
    Ok(())
}
