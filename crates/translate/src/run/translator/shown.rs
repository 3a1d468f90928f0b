//! A digest of what a viewer holds after a run's end, or of an idle thread.
//!
//! A viewer that returns with the digest is sent nothing, unless it would be shown something else
//! now. So the digest takes in what [`resync`](crate::run::resync) compares, the questions, and why
//! the last run failed. It leaves out what a viewer has been sent while the run went on, and does
//! not get again: steps, usage, the reasoning of a graph that does not store it.

use super::Translator;
use crate::json::digest::Digest;
use crate::langgraph::{Media, MediaSource};
use crate::run::interrupt::{Action, Ask};
use crate::run::{
    Activity, Call, Content, ContentPart, Failure, Filter, HarnessNotice, Interrupt, Message,
    MessageSnapshots, Outcome,
};

/// Counts the forms of the digest. The id of another form costs its client one snapshot.
const FORM: u64 = 1;

impl Translator {
    /// The digest of what viewers hold after this outcome: the same on every replica, and the same
    /// for a run that has just ended and for its idle thread. `filter` limits what viewers are
    /// shown.
    ///
    /// It takes in the thread's id, and the options that decide what is shown.
    pub fn shown(&self, filter: Option<&Filter>, outcome: &Outcome) -> u64 {
        let emit = filter.map(Filter::options).unwrap_or_default();
        let view = filter.map_or_else(|| self.view(), |filter| &**filter.view());
        let digest = Digest::default()
            .number(FORM)
            .text(&self.ids.thread_id)
            .number(emit.seed().into())
            .number(self.messages_key.seed().into());
        let digest = match view.state() {
            Some(state) => digest.number(1).number(state.digest()),
            None => digest.number(0),
        };
        // A view may also have messages of a graph that keeps no conversation.
        let messages = self.conversation().filter(|_| emit.messages != MessageSnapshots::None);
        let digest = match messages {
            Some(messages) => {
                let shown =
                    filter.map_or_else(|| messages.clone(), |filter| filter.shown(&messages));
                let digest = digest.number(1).number(shown.len() as u64);
                shown.iter().fold(digest, |digest, message| of_message(digest, message))
            }
            None => digest.number(0),
        };
        let plans = view.activities().filter_map(|(_, activity)| match activity {
            Activity::Plan { todos } => Some(todos.get()),
            Activity::Tool { .. } => None,
        });
        of_outcome(plans.fold(digest, Digest::json), outcome).finish()
    }
}

/// As [`Message::shows_same`] compares two.
fn of_message(digest: Digest, message: &Message) -> Digest {
    let Message { id, role, name: _, content, calls, call_id, error, sealed, agent: _, between: _ } =
        message;
    let digest = of_content(digest.text(id).number(*role as u64), content);
    let digest = calls.iter().fold(digest.number(calls.len() as u64), of_call);
    digest
        .optional(call_id.as_deref())
        .optional(error.as_ref().map(|error| error.decode()).as_deref())
        .optional(sealed.as_ref().map(|sealed| sealed.decode()).as_deref())
}

fn of_content(digest: Digest, content: &Content) -> Digest {
    match content {
        Content::Absent => digest.number(0).text(""),
        Content::Text(text) => digest.number(0).text(&text.decode()),
        Content::Parts(parts) => parts.iter().fold(digest.number(1 + parts.len() as u64), of_part),
    }
}

fn of_part(digest: Digest, part: &ContentPart) -> Digest {
    match part {
        ContentPart::Text(text) => digest.number(0).text(&text.decode()),
        ContentPart::Media(Media { kind, source, mime_type, filename }) => {
            let form = match source {
                MediaSource::Data(_) => 0,
                MediaSource::Url(_) => 1,
                MediaSource::File(_) => 2,
            };
            let digest = digest.number(1).text(kind.as_str()).number(form);
            [Some(source.text()), mime_type.as_ref(), filename.as_ref()]
                .into_iter()
                .fold(digest, |digest, text| {
                    digest.optional(text.map(|text| text.decode()).as_deref())
                })
        }
        ContentPart::Block(json) => digest.number(2).json(json.get()),
        ContentPart::Annotations(json) => digest.number(3).json(json.get()),
        ContentPart::Notice(HarnessNotice { source, text }) => {
            digest.number(4).text(&source.decode()).text(&text.decode())
        }
    }
}

fn of_call(digest: Digest, call: &Call) -> Digest {
    let args = call.args.decode();
    let args = if args.is_empty() { "{}" } else { &*args };
    digest.text(&call.id).text(&call.name).json(args)
}

fn of_outcome(digest: Digest, outcome: &Outcome) -> Digest {
    match outcome {
        Outcome::Interrupted(questions) => {
            // Tasks that run at once ask in any order, and the state has the order of the tasks.
            let mut questions: Vec<_> = questions.iter().collect();
            questions.sort_by_key(|question| &question.id);
            questions.into_iter().fold(digest.number(1), of_question)
        }
        Outcome::Failed(Failure::Graph(error)) | Outcome::Idle { error: Some(error), .. } => {
            // A run's stream and its thread give different reports of one failure.
            let has_reports = !error.reports.is_empty();
            digest.number(2).text(&error.code).text(&error.message).number(has_reports.into())
        }
        Outcome::Failed(Failure::Gateway { loss, .. }) => digest.number(3).text(loss.code()),
        // A thread shows no difference between them but the calls that wait.
        Outcome::Finished { pending_calls, .. } | Outcome::Idle { pending_calls, error: None } => {
            pending_calls.iter().fold(digest.number(0), |digest, call_id| digest.text(call_id))
        }
        Outcome::Cancelled => digest.number(0),
    }
}

fn of_question(digest: Digest, question: &Interrupt) -> Digest {
    let digest = digest.text(&question.id);
    match &question.ask {
        Ask::Breakpoint => digest.number(0),
        Ask::Answer { value, schema } => {
            let digest = digest.number(1).json(value.get());
            digest.json(schema.as_ref().map_or("null", |schema| schema.get()))
        }
        Ask::Approval { actions, form } => {
            let digest = digest.number(2).number(*form as u64).number(actions.len() as u64);
            actions.iter().fold(digest, of_action)
        }
    }
}

fn of_action(digest: Digest, action: &Action) -> Digest {
    let Action { name, args, description, decisions, call_id, schema, details, kept } = action;
    let digest = digest.text(&name.decode()).json(args.get());
    let digest = digest.optional(description.as_ref().map(|text| text.decode()).as_deref());
    let digest = digest.number(decisions.len() as u64);
    let digest = decisions.iter().fold(digest, |digest, decision| digest.text(decision));
    let digest = digest.optional(call_id.as_deref());
    let kept = kept.as_ref().map(|kept| &kept.decision);
    [schema.as_ref(), details.as_ref(), kept]
        .into_iter()
        .fold(digest, |digest, json| digest.json(json.map_or("", |json| json.get())))
}
