//! The conversation as LangGraph has committed it, and the snapshots that make clients show it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::view::Owned;
use super::{Call, CallForm, Content, Harness, Id, Message, Role, RunEvent, View};
use crate::json::{Json, TextBuf};
use crate::langgraph::{self, MessageType, Written};

/// What LangGraph holds: the messages of the thread's newest state, and while the run waits for an
/// answer those of the tasks that wait, which the thread's own list lacks. Each is converted once.
#[derive(Debug)]
pub(super) struct Conversation {
    thread_id: Id,
    harness: Harness,
    entries: Vec<Entry>,
    /// The tasks that wait. A task comes before those of its subgraph.
    waiting: Vec<Below>,
}

/// The messages of a subgraph, or of an ended task.
#[derive(Debug)]
struct Below {
    /// The subagent that the subgraph is. `None` for the root.
    agent: Option<Id>,
    written: Written,
    raws: Vec<Json>,
    messages: Vec<Arc<Message>>,
}

/// A LangChain message, and the messages made of it.
#[derive(Debug)]
struct Entry {
    raw: Json,
    messages: Vec<Arc<Message>>,
}

/// A committed LangChain message that is new or has changed.
pub(super) struct Committed<'a> {
    /// The message as LangGraph sent it.
    pub(super) source: langgraph::Message<'a>,
    /// The messages made of it: reasoning, the message itself, attachments.
    pub(super) messages: Vec<Arc<Message>>,
}

/// What is known of the messages that a viewer holds before a snapshot.
#[derive(Clone, Copy, Debug)]
pub enum ViewerMessages<'a> {
    /// Exactly these.
    Known(&'a [Arc<Message>]),
    /// Nothing is known.
    Unknown,
    /// The viewer has seen this run before and starts over. It may hold reasoning and attachments
    /// that the run will stream again. The snapshots delete them, except for one empty message of
    /// each kind, which may stay: a snapshot cannot delete the last one.
    Returning,
}

// === impl Committed ===

impl Committed<'_> {
    /// The id of the message itself. `None` for a message that deletes another one, and for one
    /// that viewers do not see.
    pub(super) fn id(&self) -> Option<Id> {
        let own = |message: &Arc<Message>| match message.role {
            Role::Reasoning => None,
            Role::Attachment => message.noticed().map(Id::from),
            Role::User | Role::Assistant | Role::Tool | Role::System | Role::Developer => {
                Some(Arc::clone(&message.id))
            }
        };
        self.messages.iter().find_map(own)
    }
}

// === impl Below ===

impl Below {
    fn convert(&mut self, names: &mut Names, thread_id: &Id, harness: Harness) {
        let raws: Vec<_> = self.raws.iter().map(|raw| &**raw).collect();
        let own = own_messages(&raws, self.written, |id| names.messages.contains(id));
        let converted = own.iter().flat_map(|source| names.convert(source, 0, thread_id, harness));
        let agent = &self.agent;
        let attributed = converted.map(|message| {
            Arc::new(Message { agent: agent.clone(), ..Arc::unwrap_or_clone(message) })
        });
        self.messages = attributed.collect();
    }
}

// === impl Conversation ===

impl Conversation {
    /// An empty conversation, in which messages that nobody typed become what `harness` says.
    pub(super) fn new(thread_id: Id, harness: Harness) -> Self {
        Self { thread_id, harness, entries: Vec::new(), waiting: Vec::new() }
    }

    /// Forgets what the tasks that waited hold.
    pub(super) fn clear_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Adds what a subagent holds that waits, or what a task of the agent has written.
    pub(super) fn add_waiting(
        &mut self,
        agent: Option<Id>,
        written: Written,
        messages: &[&RawValue],
    ) {
        let raws = messages.iter().map(|raw| Json::from(*raw)).collect();
        let mut below = Below { agent, written, raws, messages: Vec::new() };
        let held = self.waiting.iter().flat_map(|below| &below.messages);
        let mut names = Names::of(self.messages().chain(held));
        below.convert(&mut names, &self.thread_id, self.harness);
        self.waiting.push(below);
    }

    /// Converts the messages of the tasks that wait, after those of the thread.
    fn convert_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut names = Names::of(self.entries.iter().flat_map(|entry| &entry.messages));
        for below in &mut self.waiting {
            below.convert(&mut names, &self.thread_id, self.harness);
        }
    }

    /// Takes the messages of the next state. Returns them from the first that differs.
    ///
    /// Each superstep repeats the whole conversation. Messages before the first difference are
    /// compared as bytes and not converted again.
    pub(super) fn update<'a>(&mut self, items: &[&'a RawValue]) -> Vec<Committed<'a>> {
        let same = |(entry, item): &(&Entry, &&RawValue)| entry.raw.get() == item.get();
        let kept = self.entries.iter().zip(items).take_while(same).count();
        self.entries.truncate(kept);
        let mut names = Names::of(self.messages());
        let mut changed = Vec::with_capacity(items.len() - kept);
        for (at, item) in items.iter().enumerate().skip(kept) {
            let source = langgraph::Message::parse(item).unwrap_or_default();
            let messages = names.convert(&source, at, &self.thread_id, self.harness);
            self.entries.push(Entry { raw: Json::from(*item), messages: messages.clone() });
            changed.push(Committed { source, messages });
        }
        self.convert_waiting();
        changed
    }

    fn messages(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> {
        self.entries.iter().flat_map(|entry| &entry.messages)
    }

    /// The calls that wait for a result: the thread's, and those of the tasks that wait.
    pub(super) fn open_calls(&self) -> Vec<Id> {
        let states = self.waiting.iter().filter(|below| below.written == Written::State);
        let below = states.flat_map(|below| open_calls(below.messages.iter()));
        let written = self.waiting.iter().flat_map(|below| &below.messages);
        let answered: HashSet<_> = written.filter_map(|message| message.call_id.as_ref()).collect();
        let calls = open_calls(self.messages()).into_iter().chain(below);
        calls.filter(|call| !answered.contains(call)).collect()
    }

    /// The messages in the order in which clients hold them.
    ///
    /// Attachments of a message follow the results of its calls. A client inserts a result directly
    /// after the message, even if it arrives late.
    pub(super) fn to_vec(&self) -> Vec<Arc<Message>> {
        let mut ordered = Vec::new();
        let mut attachments = Vec::new();
        let waiting = self.waiting.iter().flat_map(|below| &below.messages);
        for message in self.messages().chain(waiting) {
            match message.role {
                Role::Attachment => attachments.push(Arc::clone(message)),
                Role::Tool => ordered.push(Arc::clone(message)),
                Role::User | Role::Assistant | Role::System | Role::Developer | Role::Reasoning => {
                    ordered.append(&mut attachments);
                    ordered.push(Arc::clone(message));
                }
            }
        }
        ordered.append(&mut attachments);
        ordered
    }
}

/// The messages that are a subgraph's own, or a task's.
///
/// A state begins with what the subgraph was given: the messages of its caller, which are held
/// already, or the words that a tool has made up for it, which clients are not shown.
pub(super) fn own_messages<'a>(
    state: &[&'a RawValue],
    written: Written,
    is_held: impl Fn(&str) -> bool,
) -> Vec<langgraph::Message<'a>> {
    let sources = state.iter().filter_map(|raw| langgraph::Message::parse(raw));
    let named: Vec<_> = sources.filter(|source| source.id().is_some()).collect();
    let is_given = |source: &langgraph::Message<'_>| {
        source.is_typed() || matches!(source.kind(), MessageType::System | MessageType::Developer)
    };
    let is_new = |source: &langgraph::Message<'_>| source.id().is_some_and(|id| !is_held(&id));
    let goes_on = named.iter().find(|source| source.is_typed()).is_none_or(|first| !is_new(first));
    let given = match written {
        Written::State if !goes_on => named.iter().take_while(|source| is_given(source)).count(),
        Written::State | Written::Result => 0,
    };
    named.into_iter().skip(given).filter(is_new).collect()
}

/// The id of an empty reasoning message. With it a snapshot deletes all reasoning that it omits.
const EMPTY_THOUGHT: &str = "threadway:resync";

/// The id of an empty attachment. With it a snapshot deletes all attachments that it omits.
const EMPTY_ATTACHMENT: &str = "threadway:resync:attachment";

/// The ids that a conversation has used so far.
#[derive(Default)]
struct Names {
    messages: HashSet<Id>,
    /// By LangGraph's call id: the id that clients know the last such call by.
    calls: HashMap<Id, Id>,
}

impl Names {
    fn of<'a>(messages: impl Iterator<Item = &'a Arc<Message>>) -> Self {
        let mut names = Self::default();
        for message in messages {
            names.messages.insert(Arc::clone(&message.id));
            names.messages.extend(message.noticed().map(Id::from));
            for call in &message.calls {
                let own = call_id_of(&call.id, &message.id);
                names.calls.insert(Id::from(own), Arc::clone(&call.id));
            }
        }
        names
    }

    /// Converts a message. Each message made of it gets an id that no earlier message has.
    fn convert(
        &mut self,
        source: &langgraph::Message<'_>,
        at: usize,
        thread_id: &Id,
        harness: Harness,
    ) -> Vec<Arc<Message>> {
        let id = source.id().map(|id| Id::from(&*id));
        let id = id.filter(|id| !self.messages.contains(id));
        let id = id.unwrap_or_else(|| Id::from(format!("{thread_id}:m{at}")));
        let mut messages = Message::of_langchain(source, &id, harness);
        messages.retain(|message| self.messages.insert(Arc::clone(&message.id)));
        self.messages.extend(messages.iter().filter_map(|m| m.noticed()).map(Id::from));
        for message in &mut messages {
            if let Some(call) = &message.call_id {
                message.call_id = Some(Arc::clone(self.calls.get(call).unwrap_or(call)));
            }
            let owner = Arc::clone(&message.id);
            for call in &mut message.calls {
                let wire = if self.calls.contains_key(&call.id) {
                    qualified_call_id(&call.id, &owner)
                } else {
                    Arc::clone(&call.id)
                };
                self.calls.insert(std::mem::replace(&mut call.id, Arc::clone(&wire)), wire);
            }
        }
        messages.into_iter().map(Arc::new).collect()
    }
}

/// The id that clients get for a call whose own id another message has used: `<id>~<message id>`.
pub(super) fn qualified_call_id(call_id: &str, message_id: &str) -> Id {
    Id::from(format!("{call_id}~{message_id}"))
}

/// LangGraph's id of a call, given the id that clients know it by. `is_message` says whether an id
/// is that of a message.
pub(crate) fn langgraph_call_id(wire: &str, is_message: impl Fn(&str) -> bool) -> &str {
    match wire.split_once('~') {
        Some((id, message)) if is_message(message) => id,
        _ => wire,
    }
}

/// LangGraph's id of a call, given the id that clients know it by and the message that contains it.
pub(super) fn call_id_of<'a>(wire: &'a str, message_id: &str) -> &'a str {
    wire.strip_suffix(message_id).and_then(|id| id.strip_suffix('~')).unwrap_or(wire)
}

/// The calls that wait for a result. Only results may be between a call and its result, so these are
/// calls of the last message that is no result. A call that no tool can run does not wait.
pub(super) fn open_calls<'a>(
    messages: impl DoubleEndedIterator<Item = &'a Arc<Message>>,
) -> Vec<Id> {
    let (calls, answered) = last_calls(messages);
    let waits = |call: &&Call| call.form == CallForm::Valid && !answered.contains(&&call.id);
    calls.iter().filter(waits).map(|call| Arc::clone(&call.id)).collect()
}

/// The calls of the last message that is no result, and the calls that the results after it answer.
pub(super) fn last_calls<'a>(
    messages: impl DoubleEndedIterator<Item = &'a Arc<Message>>,
) -> (&'a [Call], Vec<&'a Id>) {
    let mut answered = Vec::new();
    for message in messages.rev() {
        match message.role {
            Role::Tool => answered.extend(message.call_id.as_ref()),
            Role::Attachment => {}
            Role::User | Role::Assistant | Role::System | Role::Developer | Role::Reasoning => {
                return (&message.calls, answered);
            }
        }
    }
    (&[], answered)
}

/// Whether a client that holds `held` shows the conversation `target`.
///
/// If `target` has no reasoning, a client keeps its own: a snapshot cannot delete it. Attachments
/// without content do not count either.
pub(super) fn shows(held: &[Arc<Message>], target: &[Arc<Message>]) -> bool {
    let owned = Owned::by(target);
    if strays(held, target, owned).any(|stray| !stray.content.is_empty()) {
        return false;
    }
    let mut held = held.iter().filter(|message| owned.has(message.role));
    target.iter().all(|message| held.next().is_some_and(|held| is_same(held, message)))
        && held.next().is_none()
}

/// Whether a client would show the same. Two references to one message are equal without a look at
/// it.
pub(super) fn is_same(held: &Arc<Message>, message: &Arc<Message>) -> bool {
    Arc::ptr_eq(held, message) || held.shows_same(message)
}

/// The messages that a client keeps after a snapshot of `target`, and should not.
///
/// If `target` has no reasoning, these are reasoning messages whose message is missing from
/// `target`. If it has no attachments, these are all attachments: a client never has any of its
/// own.
fn strays<'a>(
    held: &'a [Arc<Message>],
    target: &'a [Arc<Message>],
    owned: Owned,
) -> impl Iterator<Item = &'a Arc<Message>> {
    let is_there = |id: &str| target.iter().any(|message| *message.id == *id);
    let kept = held.iter().filter(move |message| !owned.has(message.role));
    kept.filter(move |kept| !is_there(&kept.id)).filter(move |kept| {
        let thinker = kept.id.rsplit_once(":reasoning:").map(|(thinker, _)| thinker);
        kept.role != Role::Reasoning || thinker.is_some_and(|thinker| !is_there(thinker))
    })
}

/// `target`, and an empty message for each one that the snapshot could not delete.
fn with_strays(held: &[Arc<Message>], target: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut whole = target.to_vec();
    let strays = strays(held, target, Owned::by(target));
    whole.extend(strays.map(|stray| {
        // Clients refuse a message that comes again under another subagent.
        let empty = Arc::unwrap_or_clone(emptied(Arc::clone(&stray.id), stray.role));
        Arc::new(Message { agent: stray.agent.clone(), ..empty })
    }));
    whole
}

/// Whether a conversation begins with the messages that a client has sent along. It may lack what
/// the client has added, but not all messages of the client: such a client may hold another one.
fn is_start(sent: &[Arc<Message>], conversation: &[Arc<Message>]) -> bool {
    let there: HashSet<_> = conversation.iter().map(|message| &message.id).collect();
    let is_of_agent = |role| matches!(role, Role::Assistant | Role::Reasoning);
    let known = sent.iter().filter(|sent| is_of_agent(sent.role) || there.contains(&sent.id));
    let known: Vec<_> = known.map(|sent| &sent.id).collect();
    let is_other = known.is_empty() && !sent.is_empty() && !conversation.is_empty();
    !is_other && conversation.iter().map(|message| &message.id).take(known.len()).eq(known)
}

/// An empty message that replaces one which a snapshot cannot delete.
fn emptied(id: Id, role: Role) -> Arc<Message> {
    let mut emptied = Message::new(id, role);
    if role == Role::Reasoning {
        emptied.content = Content::Text(TextBuf::default());
    }
    emptied.into()
}

/// The `MESSAGES_SNAPSHOT`s that make a client show `target`: none, one or two.
///
/// A client applies a snapshot by the rules of [`View`]: it keeps the order of the messages it
/// already holds, and deletes reasoning and attachments only if the snapshot has some of its own.
/// These two limits are why one snapshot is not always enough:
///
/// - A wrong order takes two snapshots: first the prefix on which both agree, then all messages.
/// - A prefix without reasoning carries an empty reasoning message. The second snapshot deletes it,
///   and with it the client's other reasoning. Attachments are handled in the same way.
/// - Reasoning that no snapshot can delete, of a message that is missing from `target`, is emptied.
///   The run may still stream it from its beginning. Attachments are emptied too.
/// - A client does not send its attachments along. One that holds another conversation than `target`
///   may have some that are gone, so an empty attachment deletes them.
pub fn snapshots(viewer: ViewerMessages<'_>, target: &[Arc<Message>]) -> Vec<Vec<Arc<Message>>> {
    match viewer {
        ViewerMessages::Known(held) => {
            let mut snapshots = snapshots_from(held, target);
            let last = snapshots.last_mut().filter(|_| !is_start(held, target));
            if let Some(last) = last.filter(|last| !Owned::by(last).has(Role::Attachment)) {
                last.push(empty(Role::Attachment, target));
            }
            snapshots
        }
        ViewerMessages::Unknown => through(0, target),
        ViewerMessages::Returning => {
            let first = vec![empty(Role::Reasoning, target), empty(Role::Attachment, target)];
            vec![first, target.to_vec()]
        }
    }
}

fn snapshots_from(held: &[Arc<Message>], target: &[Arc<Message>]) -> Vec<Vec<Arc<Message>>> {
    if shows(held, target) {
        return Vec::new();
    }
    let whole = with_strays(held, target);
    let mut view = View::with(held.to_vec(), None);
    view.apply(&RunEvent::Messages(whole.as_slice().into()));
    if shows(view.messages(), target) {
        return vec![whole];
    }
    let common = held.iter().zip(&whole).take_while(|(a, b)| a.id == b.id).count();
    through(common, &whole)
}

/// The snapshots that make all clients of a view show `target`.
pub(super) fn snapshots_for(view: &View, target: &[Arc<Message>]) -> Vec<Vec<Arc<Message>>> {
    if view.is_scattered() {
        through(0, &with_strays(view.messages(), target))
    } else {
        snapshots_from(view.messages(), target)
    }
}

fn through(common: usize, target: &[Arc<Message>]) -> Vec<Vec<Arc<Message>>> {
    if common == target.len() {
        return vec![target.to_vec()];
    }
    let mut prefix: Vec<_> = target.iter().take(common).cloned().collect();
    let (of_prefix, of_all) = (Owned::by(&prefix), Owned::by(target));
    for role in [Role::Reasoning, Role::Attachment] {
        if of_all.has(role) && !of_prefix.has(role) {
            prefix.push(empty(role, target));
        }
    }
    vec![prefix, target.to_vec()]
}

/// An empty message that deletes a client's messages of this role before `target` is sent. Its id
/// is one that `target` lacks: a client keeps the place of a message that it holds.
fn empty(role: Role, target: &[Arc<Message>]) -> Arc<Message> {
    let id = if role == Role::Reasoning { EMPTY_THOUGHT } else { EMPTY_ATTACHMENT };
    let is_taken = target.iter().any(|message| *message.id == *id);
    let id = if is_taken { Id::from(format!("{id}:2")) } else { Id::from(id) };
    Message::new(id, role).into()
}
