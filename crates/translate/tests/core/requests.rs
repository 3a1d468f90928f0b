//! Properties of the way up: whatever a thread and its clients have gone through, a request changes
//! only what its person meant to change.
//!
//! A failure prints the smallest session that shows it.

use crate::support::evolving::{TURNS, Thread, Turn, is_of_harness};
use crate::support::generate;
use crate::support::plan::plan_with;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use threadway_translate::agui::{Allowance, Input, LostThread, OnMessage, RequestPlanner};
use threadway_translate::json::raw;
use threadway_translate::langgraph::{InputKeys, MessagesKey, ThreadState};
use threadway_translate::run::{
    EmitOptions, Harness, LiveRun, MessageSnapshots, NewRun, Start, StateEvents,
};

/// The number of sessions, unless `PROPTEST_CASES` overrides it.
const SESSIONS: u32 = 4_000;

/// What a client has learnt since its last look.
#[derive(Clone, Copy, Debug)]
enum Learns {
    Nothing,
    /// New messages up to one of them, without the state.
    Part(usize),
    All,
}

/// What a person does.
#[derive(Clone, Debug)]
enum Act {
    /// The client runs the agent with nothing new.
    Nothing,
    Says,
    /// The person says something, and a client's tool answers late, in one request.
    SaysAndAnswers,
    Edits {
        which: Index,
        keeps_rest: bool,
        is_undo: bool,
    },
    Again,
    Answers {
        which: Index,
        fails: bool,
    },
    AnswersAll,
    ChangesState(Index),
    /// LangGraph loses the thread, and the person goes on.
    GoesOnAfterLoss,
    /// Somebody else runs the graph.
    Other,
    /// The person asks again while the run that answers is live.
    AgainWhileLive,
}

#[derive(Clone, Debug)]
struct Step {
    client: Index,
    learns: Learns,
    act: Act,
    turn: Turn,
}

/// A client's copy of the thread.
#[derive(Clone, Debug, Default)]
struct Client {
    emit: EmitOptions,
    is_legacy: bool,
    messages: Vec<Value>,
    state: Map<String, Value>,
    /// What the person has changed. A change of what the graph has removed has no effect until the
    /// message is back.
    edited: Vec<String>,
}

fn learns() -> impl Strategy<Value = Learns> {
    prop_oneof![
        2 => Just(Learns::Nothing),
        1 => (0..4_usize).prop_map(Learns::Part),
        5 => Just(Learns::All),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let index = any::<Index>;
    prop_oneof![
        2 => Just(Act::Nothing),
        6 => Just(Act::Says),
        1 => Just(Act::SaysAndAnswers),
        3 => (index(), any::<bool>(), any::<bool>())
            .prop_map(|(which, keeps_rest, is_undo)| Act::Edits { which, keeps_rest, is_undo }),
        2 => Just(Act::Again),
        2 => (index(), any::<bool>()).prop_map(|(which, fails)| Act::Answers { which, fails }),
        2 => Just(Act::AnswersAll),
        2 => index().prop_map(Act::ChangesState),
        1 => Just(Act::GoesOnAfterLoss),
        2 => Just(Act::Other),
        1 => Just(Act::AgainWhileLive),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let turn = prop_oneof![3 => Just(Turn::Answers), 5 => prop::sample::select(&TURNS[..])];
    let step = |(client, learns, act, turn)| Step { client, learns, act, turn };
    (any::<Index>(), learns(), act(), turn).prop_map(step)
}

fn client() -> impl Strategy<Value = Client> {
    let messages = prop_oneof![
        3 => Just(MessageSnapshots::WhenNeeded),
        1 => Just(MessageSnapshots::None),
    ];
    let state = prop_oneof![
        4 => Just(StateEvents::Delta),
        1 => Just(StateEvents::None),
        1 => Just(StateEvents::Initial),
    ];
    let harness = prop_oneof![
        3 => Just(Harness::Notice),
        1 => Just(Harness::Show),
        1 => Just(Harness::Hide),
    ];
    (messages, state, harness, any::<bool>()).prop_map(|(messages, state, harness, is_legacy)| {
        let emit = EmitOptions { messages, state, harness, ..EmitOptions::default() };
        Client { emit, is_legacy, ..Client::default() }
    })
}

/// A message of the thread in AG-UI's form.
fn shown(message: &Value) -> Value {
    let (id, content) = (&message["id"], &message["content"]);
    match message["type"].as_str().unwrap() {
        "human" => json!({"id": id, "role": "user", "content": content}),
        "tool" => {
            let call = &message["tool_call_id"];
            json!({"id": id, "role": "tool", "toolCallId": call, "content": content})
        }
        "system" => json!({"id": id, "role": "system", "content": content}),
        _ => {
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            let calls: Vec<_> = calls
                .map(|call| {
                    let function =
                        json!({"name": call["name"], "arguments": call["args"].to_string()});
                    json!({"id": call["id"], "type": "function", "function": function})
                })
                .collect();
            json!({"id": id, "role": "assistant", "content": content, "toolCalls": calls})
        }
    }
}

// === impl Client ===

impl Client {
    fn learn(&mut self, thread: &Thread, learns: Learns) {
        // A client sends no notice back, and may never have got one.
        let is_held =
            |message: &&Value| self.emit.harness == Harness::Show || !is_of_harness(message);
        let mut all: Vec<_> = thread.messages().iter().filter(is_held).map(shown).collect();
        if self.emit.messages == MessageSnapshots::None {
            // No event but a snapshot shows a message of a person.
            all.retain(|message| message["role"] != "user");
        }
        let is_known =
            |held: &[Value], message: &Value| held.iter().any(|known| known["id"] == message["id"]);
        match learns {
            Learns::Nothing => {}
            Learns::Part(count) => {
                let held = self.messages.clone();
                let mut new =
                    all.into_iter().filter(|message| !is_known(&held, message)).collect::<Vec<_>>();
                // A client that has them all has the state too.
                new.truncate(count.min(new.len().saturating_sub(1)));
                // Its state is that with which the run of the last message began.
                let last = new.iter().rfind(|message| message["role"] != "user");
                if let Some(last) = last.filter(|_| self.emit.state == StateEvents::Delta) {
                    let id = last["id"].as_str().unwrap();
                    let mut states = thread.checkpoints.iter().rev();
                    let before = states.find(|state| !has(&state.messages, id));
                    self.state = before.map(|before| before.state.clone()).unwrap_or_default();
                }
                let places = thread.messages().iter().map(|message| message["id"].clone());
                let places: Vec<_> = places.collect();
                self.messages.extend(new);
                if self.emit.messages != MessageSnapshots::None {
                    // What the thread lacks stays after the message that it followed.
                    let mut place = None;
                    let moved = self.messages.drain(..).map(|held| {
                        place = places.iter().position(|id| *id == held["id"]).or(place);
                        (place, held)
                    });
                    let mut moved: Vec<_> = moved.collect();
                    moved.sort_by_key(|(place, _)| *place);
                    self.messages = moved.into_iter().map(|(_, held)| held).collect();
                }
            }
            Learns::All => {
                if self.emit.messages == MessageSnapshots::None {
                    let held = self.messages.clone();
                    self.messages
                        .extend(all.into_iter().filter(|message| !is_known(&held, message)));
                } else {
                    self.messages = all;
                }
                if self.emit.state == StateEvents::Delta {
                    self.state =
                        thread.newest().map(|newest| newest.state.clone()).unwrap_or_default();
                }
            }
        }
    }

    fn has_all(&self, thread: &Thread) -> bool {
        thread.shown().all(|message| has(&self.messages, message["id"].as_str().unwrap()))
    }

    fn form_of(&self, id: &str) -> &Value {
        let held = self.messages.iter().find(|message| message["id"] == id);
        held.map_or(&Value::Null, |held| &held["content"])
    }

    /// Whether the client has the newest message, and the newest of an agent, but an old state.
    fn has_only_old_state(&self, thread: &Thread) -> bool {
        let newest = thread.shown().next_back();
        let agents = thread.messages().iter().rfind(|message| message["type"] != "human");
        let mut wanted = [newest, agents].into_iter().flatten();
        let is_held = |message: &Value| has(&self.messages, message["id"].as_str().unwrap());
        let state = thread.newest().map(|newest| &newest.state);
        wanted.all(is_held) && state.is_some_and(|state| *state != self.state)
    }

    fn input(&self) -> Value {
        let mut input = json!({"threadId": "t", "runId": "r", "messages": self.messages,
            "state": self.state});
        if !self.is_legacy {
            input["protocolVersion"] = "1.0".into();
        }
        input
    }

    /// The ids of the person's messages, oldest first.
    fn said(&self) -> Vec<usize> {
        let is_said = |at: &usize| self.messages[*at]["role"] == "user";
        (0..self.messages.len()).filter(is_said).collect()
    }

    fn calls(&self) -> Vec<String> {
        let calls = self.messages.iter().filter_map(|message| message["toolCalls"].as_array());
        let ids = calls.flatten().map(|call| call["id"].as_str().unwrap().to_owned());
        ids.collect()
    }
}

/// What the person wants to change.
#[derive(Clone, Debug, Default)]
struct Wish {
    /// New messages of the person.
    says: Vec<String>,
    /// The message that is changed, with its new content.
    edits: Option<(String, String)>,
    again: Option<String>,
    /// Calls that get a result.
    answers: Vec<String>,
    /// A key of the state and its value.
    changes: Option<(String, Value)>,
    /// Whether the client's state is old, and its messages are not. Nothing shows that then.
    has_old_state: bool,
}

fn parsed(run: &NewRun) -> Value {
    let Start::Input(input) = &run.start else { panic!("not an input: {run:?}") };
    serde_json::from_str(input.get()).unwrap()
}

fn ids_of(messages: &[Value], kind: &str) -> Vec<String> {
    let of_kind = messages.iter().filter(|message| message["type"] == kind);
    of_kind.map(|message| message["id"].as_str().unwrap_or_default().to_owned()).collect()
}

fn has(messages: &[Value], id: &str) -> bool {
    messages.iter().any(|message| message["id"] == id)
}

/// The id of the newest message that is no notice.
fn last_shown(messages: &[Value]) -> Option<&Value> {
    messages.iter().rfind(|message| !is_of_harness(message)).map(|message| &message["id"])
}

/// One request, planned and run, and judged. Whether a run was started.
#[expect(clippy::too_many_lines, reason = "one property after the other")]
fn request(
    thread: &mut Thread,
    client: &Client,
    wish: &Wish,
    turn: Turn,
    live: &[LiveRun],
) -> Result<bool, TestCaseError> {
    let body = client.input().to_string();
    let input = Input::parse(body.as_bytes()).unwrap();
    let mut allowance = Allowance::default();
    allowance.when_lost(LostThread::Restore);
    let planner = RequestPlanner {
        input: &input,
        on_message: OnMessage::AskAgain,
        allowance: &allowance,
        emit: client.emit,
        messages_key: &MessagesKey::MESSAGES,
    };
    let is_new = thread.head.is_none();
    let state = thread.state_json(thread.head).to_string();
    let state = ThreadState::parse(&state).filter(|_| !is_new);
    let result = plan_with(&planner, state.as_ref(), &InputKeys::Undescribed, live, thread);
    let plan = match result.unwrap() {
        Ok(plan) => plan,
        Err(stopped) => {
            prop_assert!(wish.again.is_some() || wish.edits.is_some(), "{stopped} is stopped");
            prop_assert_eq!(&*stopped, &*live[0].id);
            // The run is over, and has stored its input.
            return request(thread, client, wish, turn, &[]);
        }
    };
    let is_first = client.edited.is_empty() && !thread.was_lost;
    if wish.again.is_some() && !live.is_empty() && is_first {
        prop_assert!(false, "a live run that answers the same message goes on");
    }
    let before = thread.messages().to_vec();
    let Some(run) = plan.run else {
        // Nothing is started only if something was old, and nothing else is left.
        let waits = !Thread::open_calls(&before).is_empty();
        prop_assert!(waits || !plan.dropped.is_empty(), "nothing runs, and nothing says why");
        prop_assert!(wish.says.is_empty(), "the person's words are lost");
        let is_unanswered = |id: &String| last_shown(&before).is_some_and(|last| *last == **id);
        let is_owed = wish.again.as_ref().is_some_and(is_unanswered);
        prop_assert!(!is_owed, "the person's message gets no answer");
        return Ok(false);
    };
    let sent = parsed(&run);
    let new = sent["messages"].as_array().unwrap().clone();
    let from = match &run.fork_before {
        None => thread.head,
        Some(id) => {
            // A client with all messages of the thread and an older form of one looks like a client
            // whose person takes an edit back.
            let is_taken_back = client.has_all(thread) && thread.was_sent(client.form_of(id));
            let is_wished = wish.again.as_ref() == Some(id)
                || is_taken_back
                || client.edited.contains(id)
                || wish
                    .edits
                    .as_ref()
                    .is_some_and(|(edited, _)| edited == id || !has(&before, edited));
            // After a loss, nothing shows that the graph had rewritten the client's copy.
            let is_known = !thread.was_lost;
            prop_assert!(is_wished || !is_known, "a fork before {} that nobody wants", id);
            let mut at = thread.head;
            while let Some(here) = at.filter(|at| has(&thread.checkpoints[*at].messages, id)) {
                at = thread.checkpoints[here].parent;
            }
            at
        }
    };
    let base = from.map(|at| thread.checkpoints[at].messages.clone()).unwrap_or_default();
    // (b) What the thread has had is added only by a fork that has removed it.
    for message in &new {
        let id = message["id"].as_str().unwrap_or_default();
        let was_removed = run.fork_before.is_some() && has(&before, id) && !has(&base, id);
        // The person has changed, or asks again, what the graph has removed.
        let is_meant = wish.again.as_deref() == Some(id) && !has(&before, id);
        // The calls that are open at the checkpoint of a fork need the results that they had.
        let is_result = message["type"] == "tool" && run.fork_before.is_some();
        let is_meant = is_meant || is_result || id.ends_with(":unanswered");
        prop_assert!(was_removed || is_meant || !thread.ever_had(id), "{} goes up again", id);
    }
    // (c), (d) The state: exactly what the person has changed.
    let state: Map<_, _> = sent
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| *key != "messages")
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let takes_state = client.emit.state == StateEvents::Delta;
    // The first state of a thread is the client's.
    let is_new_state = thread.newest().is_none_or(|newest| newest.state.is_empty());
    let is_certain = takes_state || !is_new_state;
    if run.fork_before.is_none() && is_certain && !is_new && !thread.was_lost && !wish.has_old_state
    {
        let expected: Map<_, _> = wish.changes.iter().filter(|_| takes_state).cloned().collect();
        prop_assert_eq!(&state, &expected, "the state that goes up");
    }
    // (d) The person's words, once each, in their order.
    let humans = ids_of(&new, "human");
    // What the person said before a loss is new to the thread.
    if run.fork_before.is_none() && !thread.was_lost {
        let is_meant = |id: &&String| wish.again.as_ref() != Some(*id);
        let others: Vec<_> = humans.iter().filter(is_meant).cloned().collect();
        prop_assert_eq!(&others, &wish.says, "the messages that go up");
    }
    for said in &wish.says {
        prop_assert_eq!(humans.iter().filter(|id| *id == said).count(), 1, "{}", said);
    }
    if let Some((id, text)) = &wish.edits {
        let is_there = |message: &&Value| message["id"] == **id && message["content"] == **text;
        // What the graph has rewritten since it arrived so is no edit.
        let is_known =
            before.iter().any(|message| is_there(&message)) || thread.arrived_as(id, text);
        if has(&before, id) && !is_known {
            // An edit from before, of an older message, comes first. So does an older form that looks
            // like an edit that is taken back.
            let fork = run.fork_before.as_ref();
            let is_back =
                |fork: &str| client.has_all(thread) && thread.was_sent(client.form_of(fork));
            let is_pending = fork.is_some_and(|fork| client.edited.contains(fork) || is_back(fork));
            prop_assert!(is_pending || thread.was_lost, "the edit of {} is ignored", id);
            if let Some(edited) = new.iter().find(|message| message["id"] == **id) {
                prop_assert_eq!(edited["content"].as_str(), Some(&**text));
            }
        }
    }
    if let Some(id) = &wish.again
        && has(&before, id)
        && last_shown(&before).is_some_and(|last| *last != **id)
        && before.last().is_some_and(|last| last["id"] != **id)
    {
        let fork = run.fork_before.as_ref();
        let is_back = |fork: &str| client.has_all(thread) && thread.was_sent(client.form_of(fork));
        let is_pending = fork.is_some_and(|fork| client.edited.contains(fork) || is_back(fork));
        prop_assert!(
            fork == Some(id) || is_pending || thread.was_lost,
            "no second answer to {}",
            id
        );
    }
    // An answer to an open call arrives.
    let open = Thread::open_calls(&before);
    let results: Vec<_> = new.iter().filter(|message| message["type"] == "tool").collect();
    if run.fork_before.is_none() && !is_new {
        for call in wish.answers.iter().filter(|call| open.contains(call)) {
            let is_sent = results.iter().any(|r| {
                r["tool_call_id"] == **call && !r["id"].as_str().unwrap().ends_with(":unanswered")
            });
            prop_assert!(is_sent, "the answer to {} is lost", call);
        }
    }
    // (a), (e) The conversation stays legal. Before, a person may have left a call open.
    let mut after = base.clone();
    after.extend(new.iter().cloned());
    if Thread::refused(&base).is_none() {
        prop_assert_eq!(Thread::refused(&after), None, "{:?} after {:?}", new, base);
    }
    thread.run(from, &sent, turn);
    Ok(true)
}

#[expect(clippy::too_many_lines, reason = "one act after the other")]
fn play(clients: &mut [Client], steps: &[Step]) -> Result<(), TestCaseError> {
    let mut thread = Thread::default();
    for Step { client, learns, act, turn } in steps {
        let at = client.index(clients.len());
        let client = &mut clients[at];
        // A graph must not change its thread while a call waits.
        let turn =
            if Thread::open_calls(thread.messages()).is_empty() { *turn } else { Turn::Answers };
        client.learn(&thread, *learns);
        let mut wish =
            Wish { has_old_state: client.has_only_old_state(&thread), ..Wish::default() };
        let mut live = Vec::new();
        match act {
            Act::Nothing => {
                // A client that ends with what a person said asks for an answer.
                let last = client.messages.last().filter(|last| last["role"] == "user");
                wish.again = last.map(|last| last["id"].as_str().unwrap().to_owned());
                if client.messages.is_empty() {
                    continue;
                }
            }
            Act::Says | Act::GoesOnAfterLoss | Act::SaysAndAnswers => {
                if matches!(act, Act::GoesOnAfterLoss) {
                    thread.lose();
                }
                if let (Act::SaysAndAnswers, Some(call)) = (act, client.calls().pop()) {
                    let id = thread.fresh("r");
                    client.messages.push(
                        json!({"id": id, "role": "tool", "toolCallId": call, "content": "late"}),
                    );
                    wish.answers.push(call);
                }
                let (id, text) = (thread.fresh("u"), thread.fresh("words "));
                client.messages.push(json!({"id": id, "role": "user", "content": text}));
                wish.says.push(id);
            }
            Act::Edits { which, keeps_rest, is_undo } => {
                let said = client.said();
                if said.is_empty() {
                    continue;
                }
                let index = *which.get(&said);
                let id = client.messages[index]["id"].as_str().unwrap().to_owned();
                let mut text = thread.fresh("edited ");
                // Back to a form from before an edit.
                let is_current = has(thread.messages(), &id)
                    && client.messages[index + 1..]
                        .iter()
                        .all(|m| has(thread.messages(), m["id"].as_str().unwrap()));
                if *is_undo
                    && is_current
                    && (!keeps_rest || client.has_all(&thread))
                    && client.emit.messages != MessageSnapshots::None
                    && client.messages[index]["content"].as_str().unwrap().starts_with("edited ")
                {
                    let all = thread.checkpoints.iter().flat_map(|c| &c.messages);
                    let first = all
                        .filter(|m| m["id"] == *id)
                        .find(|m| m["content"].as_str().unwrap().starts_with("words "));
                    if let Some(first) = first {
                        text = first["content"].as_str().unwrap().to_owned();
                    }
                }
                // A form that this branch had is the graph's rewriting, not an edit.
                client.messages[index]["content"] = text.clone().into();
                if !keeps_rest {
                    client.messages.truncate(index + 1);
                }
                client.edited.push(id.clone());
                wish.edits = Some((id.clone(), text));
                wish.again = Some(id);
            }
            Act::Again => {
                let Some(last) = client.said().pop() else { continue };
                client.messages.truncate(last + 1);
                wish.again = Some(client.messages[last]["id"].as_str().unwrap().to_owned());
            }
            Act::Answers { .. } | Act::AnswersAll => {
                let calls = client.calls();
                if calls.is_empty() {
                    continue;
                }
                let calls = match act {
                    Act::Answers { which, .. } => vec![which.get(&calls).clone()],
                    Act::Nothing
                    | Act::Says
                    | Act::SaysAndAnswers
                    | Act::Edits { .. }
                    | Act::Again
                    | Act::AnswersAll
                    | Act::ChangesState(_)
                    | Act::GoesOnAfterLoss
                    | Act::Other
                    | Act::AgainWhileLive => calls.into_iter().rev().take(2).collect(),
                };
                for call in calls {
                    let id = thread.fresh("r");
                    let mut result =
                        json!({"id": id, "role": "tool", "toolCallId": call, "content": "yes"});
                    if matches!(act, Act::Answers { fails: true, .. }) {
                        result["error"] = "no camera".into();
                    }
                    client.messages.push(result);
                    wish.answers.push(call);
                }
            }
            Act::ChangesState(which) => {
                if client.messages.is_empty() {
                    continue;
                }
                let key = (*which.get(&["count", "theme"])).to_owned();
                let value: Value = thread.fresh("value ").into();
                client.state.insert(key.clone(), value.clone());
                wish.changes = Some((key, value));
                let last = client.messages.last().filter(|last| last["role"] == "user");
                wish.again = last.map(|last| last["id"].as_str().unwrap().to_owned());
            }
            Act::Other => {
                let id = thread.fresh("o");
                let mut messages: Vec<_> = Thread::open_calls(thread.messages())
                    .into_iter()
                    .map(|call| json!({"type": "tool", "id": format!("x{call}"), "tool_call_id": call, "content": "other"}))
                    .collect();
                messages.push(json!({"type": "human", "id": id, "content": "from elsewhere"}));
                thread.run(thread.head, &json!({"messages": messages}), turn);
                continue;
            }
            Act::AgainWhileLive => {
                client.learn(&thread, Learns::All);
                if !Thread::open_calls(thread.messages()).is_empty() {
                    continue;
                }
                let (id, text) = (thread.fresh("u"), thread.fresh("words "));
                client.messages.push(json!({"id": id, "role": "user", "content": text}));
                let sent = json!({"type": "human", "id": id, "content": text});
                // The run has stored its input, and has not answered yet.
                let is_summarised = turn == Turn::Summarises;
                let so_far = if is_summarised { Turn::SummarisesAndFails } else { Turn::Fails };
                thread.run(thread.head, &json!({"messages": [sent]}), so_far);
                live.push(LiveRun { id: "L".to_owned(), messages: vec![raw(sent.to_string())] });
                wish.again = Some(id);
            }
        }
        if !request(&mut thread, client, &wish, turn, &live)? {
            // The client is sent the thread as it is.
            client.learn(&thread, Learns::All);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(generate::config(SESSIONS))]

    #[test]
    fn a_request_changes_only_what_its_person_means(
        clients in prop::collection::vec(client(), 1..=3),
        steps in prop::collection::vec(step(), 1..14),
    ) {
        play(&mut clients.clone(), &steps)?;
    }
}
