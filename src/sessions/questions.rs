//! The questions of an interrupted run. A rule, a remembered answer, a person or the next prompt
//! answers them.

mod answers;

use std::sync::Arc;

use futures_util::future::try_join_all;
use serde::Serialize;

pub(super) use answers::{QuestionAnswers, expect_answerable};

use super::link::ClientLink;
use super::session::{ClientView, OpenQuestion, Session};
use threadway_translate::acp::permission::{self, Form, Offer, PermissionOption, RememberedAnswer};
use threadway_translate::acp::rpc::Error;
use threadway_translate::acp::{CallDecision, ContentBlock, ToolCall, Update, question};
use threadway_translate::json::{self, Json, Text};
use threadway_translate::run::{Action, Ask, Decision, Interrupt, Start};

/// What follows after the questions were put.
#[derive(Debug)]
pub(super) enum AfterQuestions {
    /// The run resumes with this.
    Resume(Start),
    /// The run waits for the next prompt.
    ByPrompt,
    /// The run stays interrupted: the person stopped the turn, or refused to continue.
    Stopped,
}

/// How one question, or one call of an approval, is answered.
enum Slot {
    Decided(Decision),
    /// A person chooses an option.
    Permission {
        /// The child session that has the call.
        child: Option<String>,
        call: Box<ToolCall<'static>>,
        offers: Vec<Offer>,
        action: Action,
    },
    /// A person fills in a form.
    Form(Form),
    /// The next prompt answers.
    Prompt,
}

/// The answer to one question, or to one call of an approval.
enum Reply {
    Decision(Decision),
    /// A person's decision about a call that the client shows.
    CallDecision {
        decision: Decision,
        always: Option<RememberedAnswer>,
    },
    Answer(Json),
    /// The next prompt answers.
    Later,
}

/// Why there is no answer.
#[derive(Debug)]
enum NoReply {
    /// The client cancelled the turn. ACP requires it to answer open permission requests with
    /// `cancelled` then.
    Cancelled,
    Failed(Error),
}

/// The params of `session/request_permission`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PermissionRequest<'a> {
    session_id: &'a str,
    tool_call: &'a ToolCall<'static>,
    options: Vec<PermissionOption>,
}

/// The params of `elicitation/create`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FormRequest<'a> {
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    mode: &'a str,
    message: &'a str,
    requested_schema: &'a Json,
}

impl ClientLink {
    /// Puts all questions of a run at once, and returns what follows.
    pub(super) async fn settle(
        &self,
        session: &Session,
        view: &mut ClientView,
        questions: Vec<OpenQuestion>,
    ) -> Result<AfterQuestions, Error> {
        expect_answerable(&questions)?;
        let mut slots = Vec::new();
        for waiting in &questions {
            slots.push(self.slots(session, view, waiting).await);
        }
        let asked = questions.iter().zip(slots).map(|(waiting, slots)| {
            try_join_all(
                slots.into_iter().map(|slot| self.ask_person(session, &waiting.question, slot)),
            )
        });
        let replies = match try_join_all(asked).await {
            Ok(replies) => replies,
            Err(NoReply::Cancelled) => return Ok(AfterQuestions::Stopped),
            Err(NoReply::Failed(error)) => return Err(error),
        };
        self.conclude(session, view, questions, replies).await
    }

    /// How each part of a question is answered. Announces the calls that a person is asked about.
    async fn slots(
        &self,
        session: &Session,
        view: &mut ClientView,
        waiting: &OpenQuestion,
    ) -> Vec<Slot> {
        let OpenQuestion { question, decided, is_asked_in_text: _ } = waiting;
        let has_forms = self.client().has_forms;
        match &question.ask {
            Ask::Approval { actions, .. } => {
                let config = session.config.lock().await;
                let mode = config.menu.mode(&config.kept.choices).map(|mode| &mode.permissions);
                let profile = &*self.service().settings.profile;
                let rules: Vec<_> =
                    mode.into_iter().chain([&self.service().settings.permissions]).collect();
                let mut slots = Vec::with_capacity(actions.len());
                for (at, (action, decided)) in actions.iter().zip(decided).enumerate() {
                    let known = config.kept.always.all();
                    let decided = decided
                        .clone()
                        .or_else(|| permission::decided(action, profile, known, &rules));
                    let offers = permission::offers(action, profile, has_forms);
                    slots.push(match decided {
                        Some(decision) => Slot::Decided(decision),
                        None if offers.is_empty() => Slot::Prompt,
                        None => {
                            let call = self.emit(session, |emit| {
                                view.projector.ask(&question.id, at, action, emit)
                            });
                            let child = view.projector.session_of(&question.id, at, action);
                            Slot::Permission {
                                child: child.map(str::to_owned),
                                call: Box::new(call),
                                offers,
                                action: action.clone(),
                            }
                        }
                    });
                }
                slots
            }
            Ask::Answer { value, schema } if has_forms => {
                vec![Slot::Form(Form::of_question(value, schema.as_deref()))]
            }
            Ask::Answer { .. } => vec![Slot::Prompt],
            Ask::Breakpoint => {
                let action = breakpoint();
                let call =
                    self.emit(session, |emit| view.projector.ask(&question.id, 0, &action, emit));
                let offers = vec![Offer::Allow, Offer::Reject];
                vec![Slot::Permission { child: None, call: Box::new(call), offers, action }]
            }
        }
    }

    async fn ask_person(
        &self,
        session: &Session,
        question: &Interrupt,
        slot: Slot,
    ) -> Result<Reply, NoReply> {
        match slot {
            Slot::Decided(decision) => Ok(Reply::Decision(decision)),
            Slot::Prompt => Ok(Reply::Later),
            Slot::Form(form) => {
                let call_id = None;
                let answer = self.fill_in(&session.id, session, call_id, &form).await?;
                Ok(answer.map_or(Reply::Later, Reply::Answer))
            }
            Slot::Permission { child, call, offers, action } => {
                let shown_in = child.as_deref().unwrap_or(&session.id);
                let chosen = self.choose(shown_in, session, &call, &action, &offers).await?;
                tracing::debug!(
                    session_id = session.id,
                    question = &*question.id,
                    ?chosen,
                    "answered"
                );
                let decision = self.understand(shown_in, session, &call, &action, chosen).await?;
                Ok(Reply::CallDecision { decision, always: chosen.remembers(&action) })
            }
        }
    }

    /// Turns a chosen option into a decision. Shows a form if the option needs one.
    async fn understand(
        &self,
        shown_in: &str,
        session: &Session,
        call: &ToolCall<'static>,
        action: &Action,
        chosen: Offer,
    ) -> Result<Decision, NoReply> {
        let form = match chosen {
            Offer::Allow | Offer::AllowAlways | Offer::AllowTool => return Ok(Decision::Approve),
            Offer::Reject | Offer::RejectAlways | Offer::RejectTool => {
                return Ok(Decision::Reject { message: None });
            }
            Offer::Edit => Form::of_edit(action),
            Offer::Respond => Form::of_response(action),
        };
        let call_id = Some(&*call.tool_call_id);
        let answer = self.fill_in(shown_in, session, call_id, &form).await?;
        Ok(match answer {
            Some(args) if chosen == Offer::Edit && json::members(&args).is_some() => {
                Decision::Edit { args }
            }
            Some(answer) if chosen == Offer::Respond => {
                let message = Text::from_raw(&answer);
                Decision::Respond { message: message.unwrap_or_else(|| Text::new(answer.get())) }
            }
            // Closing the form is not an approval.
            Some(_) | None => permission::rejected(action).ok_or(NoReply::Cancelled)?,
        })
    }

    /// Asks a person to choose one of the options. `shown_in` is the session that shows the call: a
    /// child of `session`, or itself.
    async fn choose(
        &self,
        shown_in: &str,
        session: &Session,
        call: &ToolCall<'static>,
        action: &Action,
        offers: &[Offer],
    ) -> Result<Offer, NoReply> {
        let params = PermissionRequest {
            session_id: shown_in,
            tool_call: call,
            options: offers.iter().map(|offer| offer.option(action)).collect(),
        };
        let answer = self
            .ask(session, "session/request_permission", &params)
            .await
            .map_err(NoReply::Failed)?;
        let outcome = json::members(&answer).and_then(|members| members.get("outcome"));
        let outcome = outcome.and_then(json::members).unwrap_or_default();
        match outcome.string("outcome").as_deref() {
            Some("cancelled") => Err(NoReply::Cancelled),
            Some("selected") => {
                let id = outcome.string("optionId").unwrap_or_default();
                Offer::chosen(offers, &id).ok_or_else(|| {
                    let message = format!(
                        "session/request_permission was answered with `{id}`, which was not offered"
                    );
                    NoReply::Failed(Error::internal(message))
                })
            }
            _ => {
                let message = "session/request_permission was answered without an outcome";
                Err(NoReply::Failed(Error::internal(message)))
            }
        }
    }

    /// The content that a person enters into a form; `None` if the person declines.
    async fn fill_in(
        &self,
        shown_in: &str,
        session: &Session,
        call_id: Option<&str>,
        form: &Form,
    ) -> Result<Option<Json>, NoReply> {
        let params = FormRequest {
            session_id: shown_in,
            tool_call_id: call_id,
            mode: "form",
            message: &form.message,
            requested_schema: &form.schema,
        };
        let answer =
            self.ask(session, "elicitation/create", &params).await.map_err(NoReply::Failed)?;
        let members = json::members(&answer).unwrap_or_default();
        match members.string("action").as_deref() {
            Some("accept") => Ok(members.get("content").and_then(|content| form.read(content))),
            Some("cancel") => Err(NoReply::Cancelled),
            _ => Ok(None),
        }
    }

    /// Resumes the run with the answers. Without an answer the questions wait for the next prompt.
    async fn conclude(
        &self,
        session: &Session,
        view: &mut ClientView,
        questions: Vec<OpenQuestion>,
        replies: Vec<Vec<Reply>>,
    ) -> Result<AfterQuestions, Error> {
        let mut answers = QuestionAnswers::default();
        let mut always = Vec::new();
        for (mut waiting, replies) in questions.into_iter().zip(replies) {
            let mut answer = None;
            for (at, reply) in replies.into_iter().enumerate() {
                let decision = match reply {
                    Reply::Later => continue,
                    Reply::Answer(value) => {
                        answer = Some(value);
                        continue;
                    }
                    Reply::Decision(decision) => decision,
                    Reply::CallDecision { decision, always: remembered } => {
                        always.extend(remembered);
                        decision
                    }
                };
                if let Some(decided) = waiting.decided.get_mut(at) {
                    *decided = Some(decision);
                    continue;
                }
                // At a breakpoint the choice is to continue or to stop.
                let (id, action) = (&waiting.question.id, breakpoint());
                let verdict = verdict(&decision);
                self.emit(session, |emit| {
                    view.projector.decide(id, at, &action, verdict, emit);
                });
                return Ok(match verdict {
                    CallDecision::Allowed => AfterQuestions::Resume(Start::Continue),
                    CallDecision::Rejected => AfterQuestions::Stopped,
                });
            }
            answers.add(waiting, answer);
        }
        if !always.is_empty() {
            self.remember(session, always).await;
        }
        if let Some(start) = answers.start() {
            self.show_decisions(session, view, &answers.answered);
            return Ok(AfterQuestions::Resume(start));
        }
        self.ask_in_text(session, view, &answers.waiting);
        view.questions = answers.waiting;
        view.questions.iter_mut().for_each(|waiting| waiting.is_asked_in_text = true);
        Ok(AfterQuestions::ByPrompt)
    }

    /// Shows the decisions about the calls of answered questions.
    pub(super) fn show_decisions(
        &self,
        session: &Session,
        view: &mut ClientView,
        answered: &[OpenQuestion],
    ) {
        for OpenQuestion { question, decided, is_asked_in_text: _ } in answered {
            view.decision_keys.extend(question.kept_keys());
            let Ask::Approval { actions, .. } = &question.ask else { continue };
            self.emit(session, |emit| {
                for (at, (action, decided)) in actions.iter().zip(decided).enumerate() {
                    if let Some(decision) = decided {
                        let (id, verdict) = (&question.id, verdict(decision));
                        if let Decision::Edit { args } = decision {
                            view.projector.change(id, at, action, args, emit);
                        }
                        view.projector.decide(id, at, action, verdict, emit);
                    }
                }
            });
        }
    }

    /// Saves "always" answers with the thread, so that they hold in any process.
    async fn remember(&self, session: &Session, always: Vec<RememberedAnswer>) {
        let mut config = session.config.lock().await;
        let mut kept = config.kept.clone();
        for answer in always {
            kept.always.add(answer);
        }
        // If the thread was deleted, the start of the run says so.
        let _ = self.change(session, &mut config, kept).await;
    }

    /// Writes questions without a form into the conversation. A repeated question is a message of
    /// its own: under the id of the first one, clients would append it to that message.
    fn ask_in_text(&self, session: &Session, view: &mut ClientView, waiting: &[OpenQuestion]) {
        for OpenQuestion { question, decided, is_asked_in_text: _ } in waiting {
            let words = match &question.ask {
                Ask::Answer { value, .. } => question::of_value(value),
                Ask::Approval { actions, .. } => {
                    let open = actions.iter().zip(decided).filter(|(_, decided)| decided.is_none());
                    let words = open.map(|(action, _)| question::of_action(action));
                    words.collect::<Vec<_>>().join("\n\n")
                }
                Ask::Breakpoint => continue,
            };
            let content = ContentBlock::text(&words);
            let times = view.asked.entry(Arc::clone(&question.id)).or_default();
            *times += 1;
            let id = match *times {
                1 => question.id.to_string(),
                times => format!("{}:{times}", question.id),
            };
            let update = Update::AgentMessageChunk { content, message_id: Some(&id) };
            self.update(&session.id, &update);
        }
    }
}

/// Whether a decision lets the call run.
fn verdict(decision: &Decision) -> CallDecision {
    match decision {
        // Whether a decision of the graph's own lets the call run shows when the run goes on.
        Decision::Approve | Decision::Edit { .. } | Decision::Other { .. } => CallDecision::Allowed,
        Decision::Reject { .. } | Decision::Respond { .. } => CallDecision::Rejected,
    }
}

/// A static breakpoint as an action to approve.
fn breakpoint() -> Action {
    Action {
        name: Text::new("Go on from the breakpoint"),
        args: Json::empty_object(),
        description: None,
        decisions: Vec::new(),
        call_id: None,
        schema: None,
        details: None,
        kept: None,
    }
}
