//! What a person wants, by the messages that the client sends.
//!
//! A client sends its whole copy of the conversation. Most differences from the thread are no wish of
//! the person: the graph has rewritten or removed a message, or the client has missed something. Only
//! four things are wishes: a changed message, an answer that is to be given again, new messages, and
//! the results of the client's tools.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::RequestPlanner;
use super::form::{differs, is_form_of};
use crate::agui::allowance::LostThread;
use crate::json::Json;
use crate::langgraph::{self, MessageType};
use crate::run::plan::{Conversation, Held, id_of};
use crate::run::{
    Dropped, Evidence, Harness, LiveRun, Message, MessagePast, MessageSnapshots, Need, Role,
    SentMessage, WhyDropped,
};

/// What a person wants.
pub(super) enum Intent<'a> {
    /// The conversation goes on after its newest message.
    Continue(Vec<(usize, &'a Message)>),
    /// The conversation goes on before a message.
    Fork(Fork<'a>),
    /// LangGraph has lost the conversation that the client shows.
    Restore,
}

/// Where the conversation forks, and what follows there.
pub(super) struct Fork<'a> {
    /// The id of the message that was changed, or is to be answered again.
    pub(super) before: &'a str,
    /// What follows, with its places in the request.
    pub(super) messages: Vec<(usize, Forked<'a>)>,
}

/// A message that follows a fork.
pub(super) enum Forked<'a> {
    /// As the client sends it.
    Sent(&'a Message),
    /// As the thread has it: the person has not changed it, the graph has.
    Held(&'a Message, &'a RawValue),
}

/// A request's messages beside those of its thread.
pub(super) struct Comparison<'a> {
    pub(super) planner: &'a RequestPlanner<'a>,
    pub(super) conversation: &'a Conversation<'a>,
    pub(super) evidence: &'a Evidence<'a>,
}

// === impl Comparison ===

impl<'a> Comparison<'a> {
    fn sent(&self) -> &'a [Arc<Message>] {
        &self.planner.input.messages
    }

    /// What the person wants. Parts of the request that are old are added to `dropped`.
    pub(super) fn intent(&self, dropped: &mut Vec<Dropped>) -> Result<Intent<'a>, Need> {
        let differing = self.differing();
        let candidates = self.candidates();
        self.look_up_sent(&differing, &candidates)?;
        let edited = self.edited(&differing)?;
        let new = self.without_old(candidates, dropped);
        let fork_at = |at| Ok(Intent::Fork(self.fork_at(at, &differing, &edited, &new)));
        if let Some(at) = edited.first() {
            return fork_at(*at);
        }
        if self.is_lost() {
            return Ok(Intent::Restore);
        }
        if new.is_empty()
            && let Some(last) = self.sent().last().filter(|last| last.role == Role::User)
            && let Some(held) = self.conversation.get(&last.id)
            && self.conversation.goes_on_after(held)
        {
            return fork_at(self.sent().len() - 1);
        }
        Ok(Intent::Continue(new))
    }

    /// The new messages beside an answer to a question. A change of an old message is no wish there:
    /// the question would be gone.
    pub(super) fn beside_answer(
        &self,
        dropped: &mut Vec<Dropped>,
    ) -> Result<Vec<(usize, &'a Message)>, Need> {
        let candidates = self.candidates();
        self.look_up_sent(&[], &candidates)?;
        Ok(self.without_old(candidates, dropped))
    }

    /// The person's message that the request wants answered, whether or not it was answered before.
    /// A live run that answers it too is to be stopped first.
    pub(super) fn answered_by(&self, intent: &Intent<'_>) -> Option<&'a LiveRun> {
        let wanted = match intent {
            Intent::Fork(fork) => fork.before,
            Intent::Continue(new) if new.is_empty() => {
                &*self.sent().last().filter(|last| last.role == Role::User)?.id
            }
            Intent::Continue(_) | Intent::Restore => return None,
        };
        self.live().iter().find(|run| self.answers(run, wanted))
    }

    /// Whether a run answers this message: its input has it, or the run continues the conversation
    /// that ends with it.
    fn answers(&self, run: &LiveRun, message_id: &str) -> bool {
        let mut people = run.messages.iter().filter(|message| !is_result(message)).peekable();
        if people.peek().is_none() {
            let held = self.conversation.get(message_id);
            return held.is_some_and(|held| self.conversation.is_last_of_person(held));
        }
        people.any(|message| id_of(message).is_some_and(|id| *id == *message_id))
    }

    /// Whether a live run has this message in its input.
    fn is_live(&self, id: &str) -> bool {
        let mut messages = self.live().iter().flat_map(|run| &run.messages);
        messages.any(|message| id_of(message).is_some_and(|other| *other == *id))
    }

    /// The indices of the person's messages whose content differs from the thread's.
    fn differing(&self) -> Vec<usize> {
        let differs = |sent: &Message| {
            let held = self.conversation.get(&sent.id).filter(|_| sent.role == Role::User);
            held.is_some_and(|held| differs(held, sent, self.planner.input.version))
        };
        let sent = self.sent().iter().enumerate();
        sent.filter(|(_, sent)| differs(sent)).map(|(at, _)| at).collect()
    }

    /// The messages that may be new: those after the last one that the thread has. If it has none of
    /// them, the client's newest turn, or all messages of a new thread.
    fn candidates(&self) -> Vec<(usize, &'a Message)> {
        let sent = self.sent();
        let is_known = |sent: &Arc<Message>| self.conversation.knows(&sent.id);
        let from = match sent.iter().rposition(is_known) {
            Some(last) => last + 1,
            None => self.last_answer().map_or(0, |last| last + 1),
        };
        let rest = sent.iter().enumerate().skip(from).map(|(at, message)| (at, &**message));
        rest.filter(|(_, message)| self.is_allowed(message)).collect()
    }

    /// The index of the last message of an agent. What comes before all words of the person is an
    /// application's greeting, and does not count.
    fn last_answer(&self) -> Option<usize> {
        let sent = self.sent();
        let first = sent.iter().position(|sent| sent.role == Role::User)?;
        let is_agents = |sent: &Arc<Message>| matches!(sent.role, Role::Assistant | Role::Tool);
        sent.iter().rposition(is_agents).filter(|last| *last > first)
    }

    fn is_allowed(&self, message: &Message) -> bool {
        message.role != Role::Tool && self.planner.allowance.takes(message.role)
    }

    /// Asks for the inputs of the newest runs, if they decide what is new or changed.
    fn look_up_sent(
        &self,
        differing: &[usize],
        candidates: &[(usize, &'a Message)],
    ) -> Result<(), Need> {
        if self.evidence.sent.is_some() {
            return Ok(());
        }
        let mut ids: Vec<_> =
            differing.iter().filter_map(|at| Some(self.sent().get(*at)?.id.to_string())).collect();
        let is_plain = self.is_plain(candidates) && differing.is_empty();
        let mut made = Vec::new();
        if !is_plain && !self.conversation.is_new() {
            ids.extend(candidates.iter().map(|(_, message)| message.id.to_string()));
            // A message that is alone is nearly always what the person has just said, unless the client
            // was also sent what nobody typed.
            let last = self.sent().len().saturating_sub(1);
            let is_any = candidates.len() > 1 || self.planner.emit.harness == Harness::Show;
            let unclear = candidates.iter().filter(|(at, _)| *at < last || is_any);
            made.extend(unclear.map(|(_, message)| message.id.to_string()));
        }
        if (!ids.is_empty() || candidates.is_empty()) && !self.conversation.is_new() {
            let results: Vec<_> =
                self.unknown_results().map(|result| result.id.to_string()).collect();
            made.extend(results.iter().cloned());
            ids.extend(results);
        }
        if ids.is_empty() { Ok(()) } else { Err(Need::Sent { ids, made }) }
    }

    /// Whether the request ends with a person's message that the thread has: that message is to be
    /// answered, whatever else is old.
    pub(super) fn is_asking(&self) -> bool {
        let last = self.sent().last().filter(|last| last.role == Role::User);
        last.is_some_and(|last| self.conversation.has(&last.id))
    }

    /// The results that the client may have just made: it holds them, and the thread lacks them. While
    /// a question is open, no result goes up.
    fn unknown_results(&self) -> impl Iterator<Item = &'a Message> {
        let is_asked = self.evidence.state.is_some_and(|state| !state.interrupts.is_empty());
        let is_old = is_asked || self.is_asking();
        let results = self.sent().iter().filter(move |sent| sent.role == Role::Tool && !is_old);
        results.map(|result| &**result).filter(|result| !self.conversation.knows(&result.id))
    }

    /// Whether a result is an answer that the client has just made: no run was sent it, and no state
    /// had it. False if that was not looked up: something else in the request is new then.
    pub(super) fn is_fresh(&self, result: &Message) -> bool {
        let Some(sent) = self.evidence.sent else { return false };
        self.unknown_results().any(|unknown| unknown.id == result.id)
            && !sent.iter().any(|sent| sent.id == *result.id)
    }

    /// Whether the client has all messages of the thread.
    fn has_all(&self) -> bool {
        self.conversation.is_all_in(self.sent().iter().map(|sent| &*sent.id))
    }

    /// Whether the client has the newest message, and sends at most one more, which it has just made.
    fn is_plain(&self, candidates: &[(usize, &Message)]) -> bool {
        let last = self.sent().len().saturating_sub(1);
        let is_next = |(at, _): &(usize, &Message)| *at == self.begins_anew_at() && *at == last;
        candidates.len() <= 1 && candidates.first().is_none_or(is_next) && !self.is_behind()
    }

    /// Whether live runs decide what the request means. They do not if a client that has the newest
    /// message of an idle thread sends one more.
    pub(super) fn needs_runs(&self) -> bool {
        let Some(state) = self.evidence.state else { return false };
        let candidates = self.candidates();
        self.conversation.is_new()
            || !state.next.is_empty()
            || candidates.is_empty()
            || !self.is_plain(&candidates)
            || !self.conversation.open_calls().is_empty()
            || !self.differing().is_empty()
    }

    fn live(&self) -> &'a [LiveRun] {
        self.evidence.live.unwrap_or_default()
    }

    /// Whether the client lacks the thread's newest message.
    pub(super) fn is_behind(&self) -> bool {
        !self.conversation.ends_with(self.sent().iter().map(|sent| &*sent.id))
    }

    /// The id of the newest message that the client has from an agent, and that the thread still has.
    pub(super) fn last_learnt(&self) -> Option<&'a str> {
        let is_agents = |sent: &&Arc<Message>| matches!(sent.role, Role::Assistant | Role::Tool);
        let mut sent = self.sent().iter().rev().filter(is_agents);
        sent.find(|sent| self.conversation.has(&sent.id)).map(|sent| &*sent.id)
    }

    /// The candidates after the last one that the thread has had, or that a live run will add.
    fn without_old(
        &self,
        mut candidates: Vec<(usize, &'a Message)>,
        dropped: &mut Vec<Dropped>,
    ) -> Vec<(usize, &'a Message)> {
        let was_stored = |id: &str| {
            let sent = self.evidence.sent.unwrap_or_default();
            sent.iter().any(|sent| sent.id == *id && sent.is_stored)
        };
        let is_old =
            |(_, message): &(usize, &Message)| was_stored(&message.id) || self.is_live(&message.id);
        let new = candidates.iter().rposition(is_old).map_or(0, |last| last + 1);
        let old = candidates.drain(..new);
        let is_gone = old.filter(|(_, message)| !self.is_live(&message.id));
        let gone = is_gone.map(|(at, message)| (at, message.role, WhyDropped::Removed));
        dropped.extend(gone.map(|(at, role, why)| Dropped::Message { at, role, why }));
        self.note_unshared(dropped);
        candidates
    }

    /// Notes the person's older messages, if the client and the thread share none.
    fn note_unshared(&self, dropped: &mut Vec<Dropped>) {
        let is_shared = |sent: &Arc<Message>| self.conversation.knows(&sent.id);
        if self.conversation.is_empty() || self.sent().iter().any(is_shared) {
            return;
        }
        let newest = self.candidates().first().map_or_else(|| self.sent().len(), |(at, _)| *at);
        for (at, message) in self.sent().iter().enumerate().take(newest) {
            if self.is_allowed(message) {
                let (role, why) = (message.role, WhyDropped::NotShared);
                dropped.push(Dropped::Message { at, role, why });
            }
        }
    }

    /// The indices of the messages that the person has changed.
    fn edited(&self, differing: &[usize]) -> Result<Vec<usize>, Need> {
        let version = self.planner.input.version;
        let sent = |at: &usize| self.sent().get(*at).map(|sent| &**sent);
        let inputs = |message: &'a Message| {
            let sent = self.evidence.sent.unwrap_or_default().iter();
            sent.filter(|sent| sent.id == *message.id && sent.is_stored)
        };
        let is_input =
            |message: &'a Message, sent: &SentMessage| is_form_of(&sent.message, message, version);
        // A fork sends its message again. So the newest input has the form of this branch.
        let arrived_so = |message: &'a Message| {
            inputs(message).next().is_some_and(|sent| is_input(message, sent))
        };
        let unexplained: Vec<_> =
            differing.iter().filter(|at| sent(at).is_some_and(|sent| !arrived_so(sent))).collect();
        if unexplained.is_empty() {
            return Ok(Vec::new());
        }
        let Some(past) = self.evidence.past else {
            // The newest first: the gateway looks for a limited number.
            let ids = unexplained.iter().rev().filter_map(|at| Some(sent(at)?.id.to_string()));
            return Err(Need::Past(ids.collect()));
        };
        let is_edited = |at: &&&usize| {
            let Some(message) = sent(at) else { return false };
            let forms = past.iter().find(|past| past.id == *message.id);
            // What was not looked for is no wish: a fork would delete all that follows it.
            let Some(MessagePast { here, elsewhere, .. }) = forms else { return false };
            let is_one_of =
                |forms: &[Json]| forms.iter().any(|form| is_form_of(form, message, version));
            // Of a branch that was left, a person may take back what they said, but not what the
            // graph made of it.
            let is_takable = || inputs(message).any(|sent| is_input(message, sent));
            let is_old = || {
                if is_takable() { self.is_of_old_branch(***at) } else { is_one_of(elsewhere) }
            };
            !is_one_of(here) && !is_old()
        };
        Ok(unexplained.iter().filter(is_edited).map(|at| **at).collect())
    }

    /// Whether the client shows a branch that a fork has left: what it holds after a message is not
    /// in the thread. A client that takes an edit back has cut off what followed, or has all that the
    /// thread has.
    ///
    /// A client that gets no snapshots never learns of others' edits.
    fn is_of_old_branch(&self, at: usize) -> bool {
        if self.planner.emit.messages == MessageSnapshots::None {
            return true;
        }
        let is_said =
            |sent: &&Arc<Message>| matches!(sent.role, Role::User | Role::Assistant | Role::Tool);
        let next = self.sent().iter().skip(at + 1).find(is_said);
        next.is_some_and(|next| !self.conversation.knows(&next.id) || !self.has_all())
    }

    /// The fork before a message. It is sent that message, and the person's messages after it.
    fn fork_at(
        &self,
        at: usize,
        differing: &[usize],
        edited: &[usize],
        new: &[(usize, &Message)],
    ) -> Fork<'a> {
        let sent = self.sent();
        let follows = |(index, message): &(usize, &Arc<Message>)| {
            let is_new = || new.iter().any(|(new, _)| new == index);
            self.is_allowed(message) && (self.conversation.has(&message.id) || is_new())
        };
        // A client has no place for the mark of a notice.
        let is_held = |at: usize, held: &Held<'_>| {
            (differing.contains(&at) || held.is_notice) && !edited.contains(&at)
        };
        let forked = |(at, message): (usize, &'a Arc<Message>)| {
            let held = self.conversation.get(&message.id).filter(|held| is_held(at, held));
            (at, held.map_or(Forked::Sent(message), |held| Forked::Held(message, held.raw)))
        };
        let messages = sent.iter().enumerate().skip(at).filter(follows);
        let before = sent.get(at).map(|message| &*message.id).unwrap_or_default();
        Fork { before, messages: messages.map(forked).collect() }
    }

    /// Whether the client shows an agent's answers, and LangGraph has nothing of the thread.
    fn is_lost(&self) -> bool {
        self.planner.allowance.lost_thread() == LostThread::Restore
            && self.conversation.is_new()
            && self.live().is_empty()
            && self.last_answer().is_some()
    }

    /// Where the messages begin that the client may have made after its newest shared one.
    pub(super) fn begins_anew_at(&self) -> usize {
        let sent = self.sent();
        let last = sent.iter().rposition(|sent| self.conversation.knows(&sent.id));
        last.map_or(0, |last| last + 1)
    }
}

// === impl Forked ===

impl Forked<'_> {
    pub(super) fn id(&self) -> &str {
        let (Self::Sent(message) | Self::Held(message, _)) = self;
        &message.id
    }

    pub(super) fn role(&self) -> Role {
        let (Self::Sent(message) | Self::Held(message, _)) = self;
        message.role
    }
}

/// Whether a message of an input is a tool's result.
fn is_result(message: &RawValue) -> bool {
    langgraph::Message::parse(message).is_some_and(|m| m.kind() == MessageType::Tool)
}
