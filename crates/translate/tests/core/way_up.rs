//! Situations in which a client's copy of a thread differs from it, one row each: what goes up, and
//! what is dropped.

#![expect(clippy::needless_pass_by_value, reason = "a row is made of values")]

use std::slice::from_ref;
use std::sync::Arc;

use serde_json::{Value, json};
use threadway_translate::agui::{Allowance, Input, LostThread, OnMessage, RequestPlanner};
use threadway_translate::json::raw;
use threadway_translate::langgraph::{InputKeys, MessagesKey, ThreadState};
use threadway_translate::run::{
    EmitOptions, LiveRun, MessagePast, MessageSnapshots, SentMessage, Start, StateEvents,
};

use crate::support::plan::{Past, plan_with};

/// A thread, and what a client asks of it.
struct Row {
    situation: &'static str,
    state: Value,
    /// Members of the request beside its ids.
    asks: Value,
    emit: EmitOptions,
    lost: LostThread,
    live: Vec<Value>,
    past: Told,
    /// The input of the run that goes up; null if none does.
    input: Value,
    fork: Option<&'static str>,
    dropped: Vec<&'static str>,
}

/// The forms that messages had before.
#[derive(Clone, Default)]
struct Told {
    sent: Vec<Value>,
    here: Vec<Value>,
    elsewhere: Vec<Value>,
    /// The messages of the last state before the message that is asked for.
    before: Value,
}

impl Past for Told {
    fn sent(&self, ids: &[String], _: &[String]) -> Vec<SentMessage> {
        let wanted = self.sent.iter().filter(|m| ids.iter().any(|id| m["id"] == **id));
        let read = |m: &Value| SentMessage {
            id: m["id"].as_str().unwrap().to_owned(),
            message: raw(m.to_string()),
            is_stored: true,
        };
        wanted.map(read).collect()
    }

    fn past(&self, ids: &[String]) -> Vec<MessagePast> {
        let forms = |all: &[Value], id: &str| {
            all.iter().filter(|m| m["id"] == *id).map(|m| raw(m.to_string())).collect()
        };
        let before: Arc<str> =
            json!({"values": {"messages": self.before}, "checkpoint": {"checkpoint_id": "c"}})
                .to_string()
                .into();
        let read = |id: &String| MessagePast {
            id: id.clone(),
            here: forms(&self.here, id),
            elsewhere: forms(&self.elsewhere, id),
            before: Some(Arc::clone(&before)),
        };
        // The gateway looks for so many messages at once.
        ids.iter().take(32).map(read).collect()
    }
}

impl Row {
    fn new(situation: &'static str, messages: Value, asks: Value) -> Self {
        Self {
            situation,
            state: json!({"values": {"messages": messages}, "next": []}),
            asks,
            emit: EmitOptions::default(),
            lost: LostThread::Restore,
            live: Vec::new(),
            past: Told { before: json!([]), ..Told::default() },
            input: Value::Null,
            fork: None,
            dropped: Vec::new(),
        }
    }

    fn sends(mut self, messages: Value) -> Self {
        self.input = json!({"messages": messages});
        self
    }

    fn drops(mut self, dropped: &[&'static str]) -> Self {
        self.dropped = dropped.to_vec();
        self
    }

    fn forks(mut self, before: &'static str) -> Self {
        self.fork = Some(before);
        self
    }

    fn check(&self) {
        let mut body = json!({"threadId": "t", "runId": "r", "messages": []});
        body.as_object_mut().unwrap().extend(self.asks.as_object().unwrap().clone());
        let input = Input::parse(body.to_string().as_bytes()).unwrap();
        let mut allowance = Allowance::default();
        allowance.when_lost(self.lost);
        let planner = RequestPlanner {
            input: &input,
            on_message: OnMessage::AskAgain,
            allowance: &allowance,
            emit: self.emit,
            messages_key: &MessagesKey::MESSAGES,
        };
        let state = self.state.to_string();
        let state = ThreadState::parse(&state);
        let live: Vec<_> = self.live.iter().map(|m| raw(m.to_string())).collect();
        let live = if live.is_empty() {
            Vec::new()
        } else {
            vec![LiveRun { id: "L".to_owned(), messages: live }]
        };
        let keys = InputKeys::Undescribed;
        let result = plan_with(&planner, state.as_ref(), &keys, &live, &self.past).unwrap();
        let plan = result.unwrap_or_else(|run| panic!("{}: {run} is stopped", self.situation));
        let dropped: Vec<_> = plan.dropped.iter().map(ToString::to_string).collect();
        assert_eq!(dropped, self.dropped, "{}", self.situation);
        let Some(run) = plan.run else {
            assert_eq!(Value::Null, self.input, "{}", self.situation);
            return;
        };
        let Start::Input(input) = run.start else { panic!("{}", self.situation) };
        let input: Value = serde_json::from_str(input.get()).unwrap();
        assert_eq!(input, self.input, "{}", self.situation);
        assert_eq!(run.fork_before.as_deref(), self.fork, "{}", self.situation);
    }
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "content": text})
}

fn human(id: &str, text: &str) -> Value {
    json!({"type": "human", "id": id, "content": text})
}

fn ai(id: &str, text: &str) -> Value {
    json!({"type": "ai", "id": id, "content": text})
}

fn said(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "assistant", "content": text})
}

/// A message that calls a tool, of LangGraph and of a client.
fn call(id: &str, call: &str) -> (Value, Value) {
    let args = json!({"x": 1});
    let function = json!({"name": "confirm", "arguments": "{\"x\":1}"});
    (
        json!({"type": "ai", "id": id, "content": "", "tool_calls":
            [{"id": call, "name": "confirm", "args": args}]}),
        json!({"id": id, "role": "assistant", "content": "", "toolCalls":
            [{"id": call, "type": "function", "function": function}]}),
    )
}

fn tool(id: &str, call: &str, text: &str) -> (Value, Value) {
    (
        json!({"type": "tool", "id": id, "content": text, "tool_call_id": call, "status": "success"}),
        json!({"id": id, "role": "tool", "toolCallId": call, "content": text}),
    )
}

const ANSWERED: &str = "messages[2], a tool's result: its call has a result already";

#[test]
fn results_go_up_only_for_calls_that_wait() {
    let (asks, asked) = call("a", "c");
    let (result, answer) = tool("t", "c", "yes");
    let (_, second) = tool("t2", "c", "no");
    let open = json!([human("u", "confirm"), asks]);
    let done = json!([human("u", "confirm"), asks, result, ai("b", "done")]);
    let held = [user("u", "confirm"), asked.clone()];
    let with = |more: &[Value]| json!({"messages": ([&held[..], more].concat())});
    let unanswered = json!({"type": "tool", "id": "a:c:unanswered",
        "content": "No result: the person went on without it.", "tool_call_id": "c",
        "status": "error"});
    let new = user("v", "more");
    let rows = [
        Row::new("an answer", open.clone(), with(from_ref(&answer))).sends(json!([result])),
        Row::new("two answers at once", open.clone(), with(&[answer.clone(), second.clone()]))
            .sends(json!([result]))
            .drops(&["messages[3], a tool's result: its call has a result already"]),
        Row::new("a second tab answers too", done.clone(), with(from_ref(&second)))
            .drops(&[ANSWERED]),
        Row::new("a second tab answers too, and goes on", done, with(&[second.clone(), new.clone()]))
            .sends(json!([human("v", "more")]))
            .drops(&[ANSWERED]),
        Row::new("the person goes on instead", open.clone(), with(from_ref(&new)))
            .sends(json!([unanswered, human("v", "more")])),
        Row::new("nothing new while a call waits", open.clone(), with(&[])),
        Row::new(
            "an answer after the person went on",
            json!([human("u", "confirm"), asks, unanswered, human("v", "more"), ai("b", "ok")]),
            with(from_ref(&answer)),
        )
        .drops(&[ANSWERED]),
        Row::new(
            "an answer to a call that the thread left open before",
            json!([human("u", "confirm"), asks, human("v", "more"), ai("b", "ok")]),
            with(from_ref(&answer)),
        )
        .drops(&["messages[2], a tool's result: its call no longer waits, because the conversation went on"]),
        Row {
            live: vec![result.clone()],
            ..Row::new("a live run answers the call", open, with(&[second])).drops(&[ANSWERED])
        },
    ];
    for row in rows {
        row.check();
    }
}

#[test]
fn a_lost_thread_is_restored_or_gets_the_newest_turn() {
    let (asks, asked) = call("a", "c");
    let (result, answer) = tool("t", "c", "yes");
    let (_, open) = call("b", "d");
    let asks_for = json!({"messages": [
        said("w", "Welcome!"), user("u", "confirm"), asked, answer, said("e", "done"), open,
        user("v", "more"),
    ]});
    let called = json!([{"type": "tool_call", "id": "c", "name": "confirm", "args": {"x": 1}}]);
    let mut restored = asks;
    restored["tool_calls"] = called;
    let whole =
        json!([human("u", "confirm"), restored, result, ai("e", "done"), human("v", "more")]);
    let nothing = json!({"values": {}, "next": []});
    let row = |situation, lost| Row {
        state: nothing.clone(),
        lost,
        ..Row::new(situation, json!([]), asks_for.clone())
    };
    row("a lost thread", LostThread::Restore).sends(whole).check();
    row("a lost thread, of callers who are not trusted", LostThread::Newest)
        .sends(json!([human("v", "more")]))
        .drops(&["messages[3], a tool's result: the thread does not have its call"])
        .check();
    let greeted = json!({"messages": [said("w", "Welcome!"), user("u", "hi")]});
    let first =
        Row { state: nothing, ..Row::new("a first run with a greeting", json!([]), greeted) };
    first.sends(json!([human("u", "hi")])).check();
}

#[test]
fn a_copy_that_is_old_is_no_edit() {
    let redacted = json!([human("u", "mail [REDACTED]"), ai("a", "ok")]);
    let copy = |more: &[Value]| json!({"messages": ([&[user("u", "mail bob@example.com"), said("a", "ok")], more].concat())});
    let new = [user("v", "more")];
    let arrived = || Told { sent: vec![human("u", "mail bob@example.com")], ..Told::default() };
    let quiet = EmitOptions { messages: MessageSnapshots::None, ..EmitOptions::default() };
    let row =
        |situation| Row { past: arrived(), ..Row::new(situation, redacted.clone(), copy(&new)) };
    row("a redacted message").sends(json!([human("v", "more")])).check();
    Row { emit: quiet, ..row("the same without snapshots") }
        .sends(json!([human("v", "more")]))
        .check();
    let here = Told { here: vec![human("u", "mail bob@example.com")], ..Told::default() };
    Row { past: here, ..row("a form between two rewritings") }
        .sends(json!([human("v", "more")]))
        .check();
    // Another tab has edited the message, and the client shows the branch that was left.
    let edited = json!([human("u", "edited"), ai("b", "yes")]);
    let left = Told {
        sent: vec![human("u", "edited"), human("u", "mail bob@example.com")],
        elsewhere: vec![human("u", "mail bob@example.com")],
        before: json!([]),
        ..Told::default()
    };
    let stale = Row::new("another tab's edit", edited.clone(), copy(&new));
    Row { past: left.clone(), ..stale }.sends(json!([human("v", "more")])).check();
    // The same text without what followed is an edit that is taken back.
    let back = json!({"messages": [user("u", "mail bob@example.com")]});
    let back = Row { past: left, ..Row::new("an edit taken back", edited, back) };
    back.sends(json!([human("u", "mail bob@example.com")])).forks("u").check();
    let again = json!({"messages": [user("u", "mail bob@example.com")]});
    let again =
        Row { past: Told { before: json!([]), ..arrived() }, ..Row::new("again", redacted, again) };
    again.sends(json!([human("u", "mail [REDACTED]")])).forks("u").check();
}

#[test]
fn a_content_in_another_form_is_no_edit() {
    let png = "iVBORw0KGgo=";
    let parts = |part: Value| json!([{"type": "text", "text": "see"}, part]);
    let url = format!("data:image/png;base64,{png}");
    let rows = [
        (
            "a file of an older client",
            parts(json!({"type": "image", "file_id": "file-1", "mime_type": "image/png"})),
            parts(json!({"type": "binary", "mimeType": "image/png", "id": "file-1"})),
        ),
        (
            "an address that holds the bytes",
            parts(json!({"type": "image", "base64": png, "mime_type": "image/png"})),
            parts(json!({"type": "image", "source": {"type": "url", "value": url}})),
        ),
        (
            "the same in OpenAI's form",
            parts(json!({"type": "image_url", "image_url": {"url": url}})),
            parts(
                json!({"type": "image", "source": {"type": "data", "value": png, "mimeType": "image/png"}}),
            ),
        ),
        ("text in a list", json!([{"type": "text", "text": "see"}]), json!("see")),
        ("U+0000", json!("a\u{fffd}b"), json!("a\u{0}b")),
    ];
    for (situation, held, sent) in rows {
        let thread = json!([{"type": "human", "id": "u", "content": held}, ai("a", "ok")]);
        let sent = json!({"id": "u", "role": "user", "content": sent});
        let asks = json!({"messages": [sent, said("a", "ok"), user("v", "more")]});
        Row::new(situation, thread, asks).sends(json!([human("v", "more")])).check();
    }
}

#[test]
fn an_edit_takes_no_result_without_its_call() {
    let (asks, asked) = call("a", "c");
    let (result, answer) = tool("t", "c", "yes");
    let thread = json!([human("u", "use it"), asks, result, ai("b", "done")]);
    let asks = json!({"messages": [
        user("u", "use it again"), asked, answer, said("b", "done"), user("v", "and now?"),
    ]});
    Row::new("an edit of a turn with a tool", thread, asks)
        .sends(json!([human("u", "use it again"), human("v", "and now?")]))
        .forks("u")
        .check();
}

#[test]
fn old_messages_never_go_up_again() {
    let summarised = json!([human("s", "a summary"), ai("c", "three")]);
    let old = [user("u", "one"), said("a", "1"), user("v", "two"), said("b", "2")];
    let with = |more: &[Value]| json!({"messages": ([&old[..], more].concat())});
    let not_shared = |at| match at {
        0 => {
            "messages[0], a user's message: it is older than the client's newest turn, and the thread lacks it"
        }
        _ => {
            "messages[2], a user's message: it is older than the client's newest turn, and the thread lacks it"
        }
    };
    Row::new("a summarised thread", summarised.clone(), with(&[user("w", "more")]))
        .sends(json!([human("w", "more")]))
        .drops(&[not_shared(0), not_shared(2)])
        .check();
    let removed = Told { sent: vec![human("v", "two")], before: json!([]), ..Told::default() };
    let thread = json!([human("u", "one"), ai("a", "1"), ai("x", "forgotten")]);
    let asks = json!({"messages": [user("u", "one"), said("a", "1"), user("v", "two"), user("w", "more")]});
    let row = Row { past: removed, ..Row::new("a removed message", thread, asks) };
    row.sends(json!([human("w", "more")]))
        .drops(&["messages[2], a user's message: the thread had it before, and removed it"])
        .check();
}

#[test]
fn a_state_that_nobody_changed_does_not_go_up() {
    let row = |situation, emit, held: Value, sent: Value, input: Value| {
        let mut row =
            Row::new(situation, json!([]), json!({"messages": [user("u", "go")], "state": sent}));
        row.state["values"] = held;
        row.emit = emit;
        row.input = input;
        row.check();
    };
    let emit = |state| EmitOptions { state, ..EmitOptions::default() };
    let message = human("u", "go");
    let go = json!({"messages": [message]});
    for quiet in [StateEvents::None, StateEvents::Initial] {
        row(
            "a client that gets no state",
            emit(quiet),
            json!({"n": 1, "l": [1]}),
            json!({"n": 0, "l": []}),
            go.clone(),
        );
        row(
            "its first state",
            emit(quiet),
            json!({}),
            json!({"n": 0}),
            json!({"n": 0, "messages": [message]}),
        );
    }
    let marker = json!({"threadway:truncated": {"bytes": 502}});
    let doc =
        |b: u64, deep: u64| json!({"doc": {"a": "long", "b": b, "in": {"c": "long", "d": deep}}});
    let short =
        |b: u64, deep: u64| json!({"doc": {"a": marker, "b": b, "in": {"c": marker, "d": deep}}});
    let up = |mut state: Value| {
        state["messages"] = json!([message]);
        state
    };
    let delta = EmitOptions::default();
    row("a shortened value, unchanged", delta, doc(1, 1), short(1, 1), go.clone());
    row("a change beside it", delta, doc(1, 1), short(2, 1), up(doc(2, 1)));
    row("a change below it", delta, doc(1, 1), short(1, 2), up(doc(1, 2)));
    let mut moved = Row::new(
        "a marker in another place",
        json!([]),
        json!({"messages": [user("u", "go")], "state": {"other": marker}}),
    );
    moved.state["values"] = doc(1, 1);
    moved.input = go;
    moved.drops(&["a value of the state: it holds the marker of a shortened value where the thread has none"]).check();
}

/// The gateway looks for 32 messages at once, and the fork's is among them.
#[test]
fn a_message_is_answered_again_after_any_number_of_rewritten_ones() {
    let ids: Vec<_> = (0..50).map(|at| format!("u{at}")).collect();
    let mut held: Vec<_> = ids.iter().map(|id| human(id, "[REDACTED]")).collect();
    held.push(ai("a", "ok"));
    let copy: Vec<_> = ids.iter().map(|id| user(id, "mine")).collect();
    let here = ids.iter().map(|id| human(id, "mine")).collect();
    let past = Told { here, before: json!([]), ..Told::default() };
    Row { past, ..Row::new("fifty", json!(held), json!({"messages": copy})) }
        .sends(json!([human("u49", "[REDACTED]")]))
        .forks("u49")
        .check();
}

/// A client without snapshots keeps the calls that the graph has removed.
#[test]
fn an_answer_to_a_removed_call_starts_nothing_and_an_old_result_changes_nothing() {
    let (_, asked) = call("a", "c");
    let (result, answer) = tool("t", "c", "yes");
    let thread = json!([human("s", "a summary"), ai("b", "done")]);
    let copy = json!({"messages": [
        user("u", "confirm"), asked, answer, user("s", "a summary"), said("b", "done"),
    ]});
    Row::new("a late answer", thread.clone(), copy.clone())
        .drops(&["messages[2], a tool's result: the thread does not have its call"])
        .check();
    let sent = Told { sent: vec![result], before: json!([]), ..Told::default() };
    Row { past: sent, ..Row::new("an old result", thread, copy) }.sends(json!([])).check();
}

/// A run that summarised the conversation was stopped before its answer. The client shows what was
/// before, with the results of the graph's own tools.
#[test]
fn a_stopped_message_is_answered_again_after_a_summary() {
    let (_, asked) = call("a", "c");
    let (_, answer) = tool("t", "c", "pong");
    let thread = json!([human("s", "a summary"), human("u", "go on")]);
    let again = json!([]);
    let copy = json!({"messages": [user("w", "ping"), asked, answer, said("b", "done"), user("u", "go on")]});
    Row::new("again", thread, copy).sends(again).check();
}
