//! A batch of which some actions are answered now, and the rest later: the stored decisions, how
//! they are merged, and when they expire.

use crate::support::plan::plan;
use serde_json::{Value, json};
use threadway_translate::agui::{Allowance, Input, OnMessage, RequestPlanner, ResumeError};
use threadway_translate::langgraph::{
    BatchDecision, Capabilities, InputKeys, MAX_KEPT_ACTIONS, MAX_KEPT_BYTES, MessagesKey,
    NewestRuns, StoredDecisions, ThreadState,
};
use threadway_translate::run::{self, Plan};

const BATCH: &str = "b";
const OTHER: &str = "c";

fn batch(id: &str, actions: usize) -> Value {
    let requests: Vec<_> =
        (0..actions).map(|at| json!({"name": format!("tool{at}"), "args": {}})).collect();
    let configs: Vec<_> = (0..actions)
        .map(|at| {
            json!({"action_name": format!("tool{at}"),
                "allowed_decisions": ["approve", "edit", "reject"]})
        })
        .collect();
    json!({"id": id, "value": {"action_requests": requests, "review_configs": configs}})
}

fn state(interrupts: &[Value]) -> String {
    json!({"values": {"messages": []}, "next": ["x"], "tasks": [{"interrupts": interrupts}]})
        .to_string()
}

fn kept_on(interrupt: &str, action: usize, after: &str, decision: &Value) -> Value {
    json!({"interrupt": interrupt, "action": action, "after": after, "decision": decision})
}

fn approve() -> Value {
    json!({"type": "approve"})
}

fn reject() -> Value {
    json!({"type": "reject", "message": "no"})
}

/// Runs: the id, the status and the answered interrupts of each.
fn runs(runs: &[(&str, &str, &[&str])]) -> NewestRuns {
    let count = runs.len();
    let record = |(at, (id, status, answers)): (usize, &(&str, &str, &[&str]))| {
        let mut metadata = json!({});
        if !answers.is_empty() {
            metadata["threadway_answers"] = json!(answers);
            metadata["threadway_start"] = json!(id);
        }
        json!({"run_id": id, "status": status, "metadata": metadata,
            "created_at": format!("2026-11-22T10:00:{:02}Z", count - at)})
    };
    let list: Vec<_> = runs.iter().enumerate().map(record).collect();
    NewestRuns::parse(&json!(list).to_string()).unwrap().unwrap()
}

fn sorted(metadata: &Value, state: &ThreadState<'_>, runs: Option<&NewestRuns>) -> StoredDecisions {
    let metadata = serde_json::value::to_raw_value(metadata).unwrap();
    StoredDecisions::sort(StoredDecisions::read(&metadata), state, runs)
}

struct Thread {
    interrupts: Vec<Value>,
    metadata: Value,
    on_message: OnMessage,
    /// The state's values.
    values: Value,
}

impl Thread {
    fn of(interrupts: &[Value], metadata: Value) -> Self {
        let (on_message, values) = (OnMessage::AskAgain, json!({"messages": []}));
        Self { interrupts: interrupts.to_vec(), metadata, on_message, values }
    }

    fn asked(&self, more: &Value) -> Result<Plan, ResumeError> {
        let mut body = json!({"threadId": "t", "runId": "r", "messages": []});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let input = Input::parse(body.to_string().as_bytes()).unwrap();
        let mut text: Value = serde_json::from_str(&state(&self.interrupts)).unwrap();
        text["values"] = self.values.clone();
        let text = text.to_string();
        let mut state = ThreadState::parse(&text).unwrap();
        state.kept = sorted(&self.metadata, &state, Some(&runs(&[("R1", "success", &[])])));
        let allowance = Allowance::default();
        let on_message = self.on_message;
        let asking = RequestPlanner {
            input: &input,
            on_message,
            allowance: &allowance,
            emit: run::EmitOptions::default(),
            messages_key: &MessagesKey::MESSAGES,
        };
        plan(&asking, Some(&state), &InputKeys::Undescribed)
    }

    fn answered(&self, entries: &[(&str, Value)]) -> Result<Plan, ResumeError> {
        let entry = |(id, payload): &(&str, Value)| json!({"interruptId": id, "status": "resolved", "payload": payload});
        self.asked(&json!({"resume": entries.iter().map(entry).collect::<Vec<_>>()}))
    }
}

/// The decisions to store, and the answers to forward.
fn told(plan: Plan) -> (Vec<(usize, Value)>, Value) {
    let value = |text: &str| serde_json::from_str(text).unwrap();
    let keep = plan.keep.iter().map(|given| (given.action, value(given.decision.get()))).collect();
    let body = plan.run.map(|run| {
        serde_json::to_value(run.request("agent", Capabilities::default(), None)).unwrap()
    });
    (keep, body.map_or(Value::Null, |body| body["command"]["resume"].clone()))
}

#[test]
fn answers_are_merged_with_those_that_are_kept() {
    let yes = json!({"approved": true});
    let no = json!({"approved": false, "reason": "no"});
    let one = json!({"threadway_answer:0:1": kept_on(BATCH, 1, "R1", &reject())});
    let two = json!({"threadway_answer:0:1": kept_on(BATCH, 1, "R1", &reject()),
        "threadway_answer:4:0": kept_on(BATCH, 0, "R1", &approve())});
    let whole = |decisions: &[Value]| json!({BATCH: {"decisions": decisions}});
    let (none, unsent) = (Vec::new(), Value::Null);
    for (metadata, entries, keep, sent) in [
        (&json!({}), vec![("b:1", no.clone())], vec![(1, reject())], unsent.clone()),
        (&one, vec![("b:0", yes.clone())], vec![(0, approve())], unsent.clone()),
        // This decision is stored already.
        (&one, vec![("b:1", no.clone())], none.clone(), unsent.clone()),
        // The later decision replaces the earlier one.
        (&one, vec![("b:1", yes.clone())], vec![(1, approve())], unsent.clone()),
        (&two, vec![("b:1", yes.clone())], vec![(1, approve())], unsent),
        // The last decision: all are forwarded, in the order of the actions.
        (&two, vec![("b:2", yes.clone())], none.clone(), whole(&[approve(), reject(), approve()])),
        (
            &two,
            vec![("b:2", no.clone()), ("b:0", no.clone())],
            none.clone(),
            whole(&[reject(), reject(), reject()]),
        ),
        // All decisions at once are forwarded, whatever is stored.
        (
            &two,
            vec![("b:0", json!({"decisions": [approve(), approve(), approve()]}))],
            none.clone(),
            whole(&[approve(), approve(), approve()]),
        ),
        // Another interrupt is answered whole, and this one in part.
        (&one, vec![("p", json!("x")), ("b:2", yes)], vec![(2, approve())], json!({"p": "x"})),
    ] {
        let other = json!({"id": "p", "value": "which one?"});
        let thread = Thread::of(&[other, batch(BATCH, 3)], metadata.clone());
        let plan = thread.answered(&entries).unwrap();
        assert_eq!(told(plan), (keep, sent), "{metadata} {entries:?}");
    }
}

#[test]
fn a_decision_that_cannot_wait_is_refused_and_one_that_is_wrong_too() {
    let yes = json!({"approved": true});
    let long = json!({"approved": true, "editedArgs": {"body": "x".repeat(MAX_KEPT_BYTES)}});
    let thread = Thread::of(&[batch(BATCH, 3)], json!({}));
    let refused = thread.answered(&[("b:1", long.clone())]).unwrap_err();
    assert!(
        matches!(&refused, ResumeError::TooLongToKeep { id, bytes } if id == "b:1" && *bytes > MAX_KEPT_BYTES),
        "{refused}"
    );
    // When all are sent at once, a decision may have any length.
    let all = [("b:0", yes.clone()), ("b:1", long), ("b:2", yes.clone())];
    assert!(thread.answered(&all).unwrap().run.is_some());

    let wrong = thread.answered(&[("b:1", json!({"type": "respond", "message": "x"}))]);
    assert!(matches!(wrong.unwrap_err(), ResumeError::NotAllowed { id, .. } if id == "b:1"));
    let wrong = thread.answered(&[("b:0", yes.clone()), ("b:1", json!("maybe"))]).unwrap_err();
    assert_eq!(wrong, ResumeError::NoDecision { id: "b:1".to_owned() });

    let large = Thread::of(&[batch(BATCH, MAX_KEPT_ACTIONS + 1)], json!({}));
    let refused = large.answered(&[("b:1", yes.clone())]).unwrap_err();
    assert!(matches!(refused, ResumeError::HalfAnswered { answered: 1, .. }), "{refused}");
    let largest = Thread::of(&[batch(BATCH, MAX_KEPT_ACTIONS)], json!({}));
    assert_eq!(largest.answered(&[("b:1", yes.clone())]).unwrap().keep.len(), 1);

    // Older versions of LangGraph give no id, so the next interrupt gets the same generated name.
    let mut unnamed = batch(BATCH, 2);
    unnamed.as_object_mut().unwrap().remove("id");
    let text = state(&[unnamed.clone()]);
    let name = ThreadState::parse(&text).unwrap().interrupts[0].id.to_string();
    let refused = Thread::of(&[unnamed], json!({})).answered(&[(&format!("{name}:1"), yes)]);
    assert!(matches!(refused.unwrap_err(), ResumeError::HalfAnswered { .. }));
}

#[test]
fn what_somebody_else_has_written_is_no_decision() {
    let yes = json!({"approved": true});
    for other in [
        json!(null),
        json!("approve"),
        json!({}),
        kept_on(BATCH, 0, "R1", &json!({"type": "launch"})),
        kept_on(BATCH, 0, "R1", &json!({"type": "edit"})),
        kept_on(BATCH, 0, "R1", &json!(null)),
        kept_on(BATCH, 7, "R1", &approve()),
        kept_on(OTHER, 0, "R1", &approve()),
        json!({"interrupt": BATCH, "action": -1, "after": "R1", "decision": approve()}),
        json!({"interrupt": BATCH, "action": "0", "after": "R1", "decision": approve()}),
        json!({"interrupt": BATCH, "action": 0, "decision": approve()}),
    ] {
        let metadata = json!({"threadway_answer:0:0": other});
        let plan = Thread::of(&[batch(BATCH, 2)], metadata).answered(&[("b:1", yes.clone())]);
        assert_eq!(told(plan.unwrap()), (vec![(1, approve())], Value::Null), "{other}");
    }
    // Nor is a decision valid under another name.
    let metadata = json!({"my_answer:0:0": kept_on(BATCH, 0, "R1", &approve())});
    let plan = Thread::of(&[batch(BATCH, 2)], metadata).answered(&[("b:1", yes)]).unwrap();
    assert_eq!(plan.keep.len(), 1);
}

#[test]
fn a_decision_holds_until_a_run_has_answered_its_interrupt() {
    let text = state(&[batch(BATCH, 2)]);
    let state = ThreadState::parse(&text).unwrap();
    let holds = |after: &str, runs: Option<&NewestRuns>| {
        let metadata = json!({"threadway_answer:0:0": kept_on(BATCH, 0, after, &approve())});
        let sorted = sorted(&metadata, &state, runs);
        assert_eq!(sorted.current.len() + sorted.stale.len(), 1);
        !sorted.current.is_empty()
    };
    let asks: (&str, &str, &[&str]) = ("R1", "success", &[]);
    for (after, listed, expected) in [
        ("R1", vec![asks], true),
        // A run since then has answered another interrupt of the thread.
        ("R1", vec![("R2", "success", &[OTHER][..]), asks], true),
        ("R1", vec![("R2", "success", &[BATCH]), asks], false),
        ("R1", vec![("R2", "running", &[OTHER, BATCH]), asks], false),
        ("R1", vec![("R3", "success", &[OTHER]), ("R2", "error", &[BATCH]), asks], false),
        // The run's starter did not record which interrupts it answers.
        ("R1", vec![("R2", "success", &[]), asks], false),
        // The run has not begun.
        ("R1", vec![("R2", "pending", &[BATCH]), asks], true),
        // The run no longer exists, or never did.
        ("R0", vec![asks], false),
        ("", vec![asks], false),
        ("", vec![], true),
        ("", vec![("R2", "success", &[OTHER])], true),
    ] {
        assert_eq!(holds(after, Some(&runs(&listed))), expected, "{after} {listed:?}");
    }
    assert!(!holds("R1", None));
}

#[test]
fn the_newest_runs_are_known_whatever_the_order_of_the_list() {
    let list = |count: usize, newest_first: bool| {
        let mut list: Vec<_> = (0..count)
            .map(|at| {
                json!({"run_id": format!("R{at}"), "status": "success", "metadata": {},
                "created_at": format!("2026-11-22T10:{:02}:{:02}Z", at / 60, at % 60)})
            })
            .collect();
        if newest_first {
            list.reverse();
        }
        NewestRuns::parse(&json!(list).to_string()).unwrap()
    };
    let newest = |runs: Option<NewestRuns>| runs.map(|runs| runs.newest().unwrap().id.clone());
    for newest_first in [true, false] {
        assert_eq!(newest(list(99, newest_first)).as_deref(), Some("R98"));
    }
    assert_eq!(newest(list(NewestRuns::LIMIT, true)).as_deref(), Some("R99"));
    // There may be newer runs that the list does not have.
    assert_eq!(newest(list(NewestRuns::LIMIT, false)), None);
    assert!(NewestRuns::parse("{}").is_none());
    assert!(list(0, true).unwrap().newest().is_none());
}

#[test]
fn each_decision_has_a_place_of_its_own_and_places_are_used_again() {
    let text = state(&[batch(BATCH, 3), batch(OTHER, 3)]);
    let state = ThreadState::parse(&text).unwrap();
    let newest = runs(&[("R1", "success", &[])]);
    let given = |interrupt: &str, action| BatchDecision {
        interrupt: interrupt.to_owned(),
        action,
        decision: threadway_translate::json::raw(approve().to_string()),
    };
    let names = |metadata: &Value, given: &[BatchDecision]| -> Vec<String> {
        let kept = sorted(metadata, &state, Some(&newest));
        let change = kept.keeping(given, &state, newest.newest());
        let change: Value = serde_json::from_str(change.get()).unwrap();
        change.as_object().unwrap().keys().cloned().collect()
    };
    let one = kept_on(BATCH, 0, "R1", &reject());
    for (metadata, given, expected) in [
        (json!({}), vec![given(BATCH, 0), given(BATCH, 2)], vec!["0:0", "0:2"]),
        // Decisions about two batches at once.
        (json!({}), vec![given(OTHER, 0), given(BATCH, 0)], vec!["0:0", "1:0"]),
        // A changed decision takes the slot of the first.
        (json!({"threadway_answer:7:0": one}), vec![given(BATCH, 0)], vec!["7:0"]),
        // A slot in use is skipped.
        (json!({"threadway_answer:1:0": one}), vec![given(OTHER, 0)], vec!["2:0"]),
        // Decisions that were deleted or have expired leave their slots free.
        (json!({"threadway_answer:0:0": null}), vec![given(BATCH, 0)], vec!["0:0"]),
        (
            json!({"threadway_answer:0:0": kept_on(BATCH, 0, "R0", &reject())}),
            vec![given(BATCH, 0)],
            vec!["0:0"],
        ),
    ] {
        let mut found = names(&metadata, &given);
        found.sort();
        let expected: Vec<_> =
            expected.into_iter().map(|place| format!("threadway_answer:{place}")).collect();
        assert_eq!(found, expected, "{metadata}");
    }
    // Written decisions can be read.
    let kept = StoredDecisions::default();
    let change = kept.keeping(&[given(BATCH, 1)], &state, newest.newest());
    let read = sorted(&serde_json::from_str(change.get()).unwrap(), &state, Some(&newest));
    let [only] = &*read.current else { panic!("{read:?}") };
    assert_eq!((&*only.interrupt, only.action), (BATCH, 1));
    assert_eq!(only.decision.get(), r#"{"type":"approve"}"#);
}

#[test]
fn a_run_takes_no_decision_over_and_forgets_those_that_it_answers() {
    let metadata = json!({
        "threadway_answer:0:0": kept_on(BATCH, 0, "R1", &approve()),
        "threadway_answer:1:0": kept_on(OTHER, 0, "R1", &reject()),
        "threadway_answer:2:0": kept_on("gone", 0, "R1", &reject()),
        "title": "mine",
    });
    let thread = Thread::of(&[batch(BATCH, 2), batch(OTHER, 2)], metadata);
    let run = thread.answered(&[("b:1", json!({"approved": true}))]).unwrap().run.unwrap();
    let mut forgets = run.forgets.clone();
    forgets.sort();
    assert_eq!(forgets, ["threadway_answer:0:0", "threadway_answer:2:0"]);
    let body = serde_json::to_value(run.request("agent", Capabilities::default(), None)).unwrap();
    assert_eq!(
        body["metadata"],
        json!({"threadway_run_id": "r", "threadway_answers": [BATCH], "threadway_answer:0:0": null,
            "threadway_answer:1:0": null, "threadway_answer:2:0": null})
    );
    let forgotten: Value =
        serde_json::from_str(StoredDecisions::forgetting(&forgets).get()).unwrap();
    assert_eq!(forgotten, json!({"threadway_answer:0:0": null, "threadway_answer:2:0": null}));
}

#[test]
fn a_message_that_rejects_leaves_what_is_decided() {
    let metadata = json!({"threadway_answer:0:0": kept_on(BATCH, 0, "R1", &approve())});
    let mut thread = Thread::of(&[batch(BATCH, 2)], metadata);
    thread.on_message = OnMessage::Reject;
    let message = json!({"id": "m9", "role": "user", "content": "no"});
    let plan = thread.asked(&json!({"messages": [message]})).unwrap();
    let sent = json!({BATCH: {"decisions": [approve(), reject()]}});
    assert_eq!(told(plan), (Vec::new(), sent));
    // If the gateway asks again, nothing is sent and nothing deleted.
    thread.on_message = OnMessage::AskAgain;
    let plan = thread.asked(&json!({"messages": [message]})).unwrap();
    assert_eq!(told(plan), (Vec::new(), Value::Null));
}

#[test]
fn messages_beside_a_decision_that_waits_are_refused() {
    let mut thread = Thread::of(&[batch(BATCH, 2)], json!({}));
    let entry = json!({"interruptId": "b:0", "status": "resolved", "payload": {"approved": true}});
    let said = json!({"id": "m9", "role": "user", "content": "and hurry"});
    let refused = thread.asked(&json!({"resume": [entry], "messages": [said]})).unwrap_err();
    assert_eq!(refused, ResumeError::MessagesWithPartialAnswer);
    // A result of the client's own tool, too; its note of its answer is none.
    thread.values = json!({"messages": [
        {"id": "u", "type": "human", "content": "go"},
        {"id": "a", "type": "ai", "content": "", "tool_calls": [
            {"id": "c0", "name": "tool0", "args": {}}, {"id": "cw", "name": "where", "args": {}}]},
    ]});
    let beside = |call: &str| {
        json!({"resume": [entry], "messages": [{"id": "u", "role": "user", "content": "go"},
            {"id": "a", "role": "assistant", "toolCalls": [
                {"id": "c0", "type": "function", "function": {"name": "tool0", "arguments": "{}"}},
                {"id": "cw", "type": "function", "function": {"name": "where", "arguments": "{}"}}]},
            {"id": "t", "role": "tool", "toolCallId": call, "content": "x"}]})
    };
    assert_eq!(thread.asked(&beside("cw")).unwrap_err(), ResumeError::MessagesWithPartialAnswer);
    assert_eq!(thread.asked(&beside("c0")).unwrap().keep.len(), 1);
}
