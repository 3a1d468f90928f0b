//! The questions of a run that waits: decided by a rule, by what was answered for good, by a
//! person, or by the next prompt.

use futures_util::future::try_join_all;
use serde::Serialize;

use super::link::Link;
use super::session::{Session, Voice, Waiting};
use threadway_translate::acp::permission::{
    self, Always, Form, Offer, PermissionOption, Remembered, answer_of_prompt,
};
use threadway_translate::acp::rpc::Error;
use threadway_translate::acp::{ContentBlock, ToolCall, Update, Verdict, question};
use threadway_translate::json::{self, Json, ObjectWriter, Text};
use threadway_translate::run::{Action, Ask, Decision, Interrupt, Start};

/// What becomes of a run that waits.
#[derive(Debug)]
pub(super) enum Settled {
    /// It goes on with this.
    Resume(Start),
    /// It waits for the next prompt.
    ByPrompt,
    /// It waits: the person has stopped the turn, or refused to go on.
    Stopped,
}

/// How one thing is to be settled.
enum Slot {
    Decided(Decision),
    /// A person chooses.
    Permission {
        call: Box<ToolCall<'static>>,
        offers: Vec<Offer>,
        action: Action,
    },
    /// A person fills in a form.
    Form(Form),
    /// A person writes the next prompt.
    Prompt,
}

/// What a person has said to it.
enum Reply {
    Decision(Decision),
    /// A person's, about a call that was announced.
    Verdict {
        decision: Decision,
        always: Option<Remembered>,
    },
    Answer(Json),
    /// The next prompt will tell.
    Later,
}

/// Why nothing was said.
#[derive(Debug)]
enum Unasked {
    /// The client has cancelled the turn. ACP has it answer its open permissions with `cancelled`
    /// then.
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

impl Link {
    /// Settles the questions of a run, all at once.
    pub(super) async fn settle(
        &self,
        session: &Session,
        voice: &mut Voice,
        questions: Vec<Waiting>,
    ) -> Result<Settled, Error> {
        expect_answerable(&questions)?;
        let mut slots = Vec::new();
        for waiting in &questions {
            slots.push(self.slots(session, voice, waiting).await);
        }
        let asked = questions.iter().zip(slots).map(|(waiting, slots)| {
            try_join_all(
                slots.into_iter().map(|slot| self.ask_person(session, &waiting.question, slot)),
            )
        });
        let replies = match try_join_all(asked).await {
            Ok(replies) => replies,
            Err(Unasked::Cancelled) => return Ok(Settled::Stopped),
            Err(Unasked::Failed(error)) => return Err(error),
        };
        self.conclude(session, voice, questions, replies).await
    }

    /// How each part of a question is to be settled; announces the calls that are asked about.
    async fn slots(&self, session: &Session, voice: &mut Voice, waiting: &Waiting) -> Vec<Slot> {
        let Waiting { question, decided, is_in_words: _ } = waiting;
        let has_forms = self.client().has_forms;
        match &question.ask {
            Ask::Approval { actions, .. } => {
                let desk = session.desk.lock().await;
                let mode = desk.menu.mode(&desk.kept.choices).map(|mode| &mode.permissions);
                let rules: Vec<_> =
                    mode.into_iter().chain([&self.service().settings.permissions]).collect();
                let mut slots = Vec::with_capacity(actions.len());
                for (at, (action, decided)) in actions.iter().zip(decided).enumerate() {
                    let decided = decided
                        .clone()
                        .or_else(|| permission::decided(action, &desk.kept.always, &rules));
                    let offers = permission::offers(action, has_forms);
                    slots.push(match decided {
                        Some(decision) => Slot::Decided(decision),
                        None if offers.is_empty() => Slot::Prompt,
                        None => {
                            let call = self.emit(session, |emit| {
                                voice.projector.ask(&question.id, at, action, emit)
                            });
                            Slot::Permission {
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
                    self.emit(session, |emit| voice.projector.ask(&question.id, 0, &action, emit));
                let offers = vec![Offer::Allow, Offer::Reject];
                vec![Slot::Permission { call: Box::new(call), offers, action }]
            }
        }
    }

    async fn ask_person(
        &self,
        session: &Session,
        question: &Interrupt,
        slot: Slot,
    ) -> Result<Reply, Unasked> {
        match slot {
            Slot::Decided(decision) => Ok(Reply::Decision(decision)),
            Slot::Prompt => Ok(Reply::Later),
            Slot::Form(form) => {
                let call_id = None;
                Ok(self.fill_in(session, call_id, &form).await?.map_or(Reply::Later, Reply::Answer))
            }
            Slot::Permission { call, offers, action } => {
                let chosen = self.choose(session, &call, &offers).await?;
                tracing::debug!(
                    session_id = session.id,
                    question = &*question.id,
                    ?chosen,
                    "answered"
                );
                let (decision, always) = self.understand(session, &call, &action, chosen).await?;
                let always = always.map(|always| Remembered::new(&action, always));
                Ok(Reply::Verdict { decision, always })
            }
        }
    }

    /// What a person means who has chosen so; asks what the choice leaves open.
    async fn understand(
        &self,
        session: &Session,
        call: &ToolCall<'static>,
        action: &Action,
        chosen: Offer,
    ) -> Result<(Decision, Option<Always>), Unasked> {
        let reject = Decision::Reject { message: None };
        let form = match chosen {
            Offer::Allow => return Ok((Decision::Approve, None)),
            Offer::AllowAlways => return Ok((Decision::Approve, Some(Always::Allow))),
            Offer::Reject => return Ok((reject, None)),
            Offer::RejectAlways => return Ok((reject, Some(Always::Reject))),
            Offer::Edit => Form::of_edit(action),
            Offer::Respond => Form::of_response(action),
        };
        let answer = self.fill_in(session, Some(&*call.tool_call_id), &form).await?;
        let decision = match answer {
            Some(args) if chosen == Offer::Edit && json::members(&args).is_some() => {
                Decision::Edit { args }
            }
            Some(answer) if chosen == Offer::Respond => {
                let message = Text::from_raw(&answer);
                Decision::Respond { message: message.unwrap_or_else(|| Text::new(answer.get())) }
            }
            // Who closes the form has not said yes.
            Some(_) | None => permission::rejected(action).ok_or(Unasked::Cancelled)?,
        };
        Ok((decision, None))
    }

    /// Which of these a person chooses.
    async fn choose(
        &self,
        session: &Session,
        call: &ToolCall<'static>,
        offers: &[Offer],
    ) -> Result<Offer, Unasked> {
        let params = PermissionRequest {
            session_id: &session.id,
            tool_call: call,
            options: offers.iter().map(|offer| offer.option()).collect(),
        };
        let answer =
            self.ask("session/request_permission", &params).await.map_err(Unasked::Failed)?;
        let outcome = json::members(&answer).and_then(|members| members.get("outcome"));
        let outcome = outcome.and_then(json::members).unwrap_or_default();
        match outcome.string("outcome").as_deref() {
            Some("cancelled") => Err(Unasked::Cancelled),
            Some("selected") => {
                let id = outcome.string("optionId").unwrap_or_default();
                Offer::chosen(offers, &id).ok_or_else(|| {
                    let message = format!(
                        "session/request_permission was answered with `{id}`, which was not offered"
                    );
                    Unasked::Failed(Error::internal(message))
                })
            }
            _ => {
                let message = "session/request_permission was answered without an outcome";
                Err(Unasked::Failed(Error::internal(message)))
            }
        }
    }

    /// What a person writes into a form; `None` if nothing.
    async fn fill_in(
        &self,
        session: &Session,
        call_id: Option<&str>,
        form: &Form,
    ) -> Result<Option<Json>, Unasked> {
        let params = FormRequest {
            session_id: &session.id,
            tool_call_id: call_id,
            mode: "form",
            message: &form.message,
            requested_schema: &form.schema,
        };
        let answer = self.ask("elicitation/create", &params).await.map_err(Unasked::Failed)?;
        let members = json::members(&answer).unwrap_or_default();
        match members.string("action").as_deref() {
            Some("accept") => Ok(members.get("content").and_then(|content| form.read(content))),
            Some("cancel") => Err(Unasked::Cancelled),
            _ => Ok(None),
        }
    }

    /// What the replies come to: the run goes on with what is answered, and what is not waits.
    async fn conclude(
        &self,
        session: &Session,
        voice: &mut Voice,
        questions: Vec<Waiting>,
        replies: Vec<Vec<Reply>>,
    ) -> Result<Settled, Error> {
        let mut answers = Answers::default();
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
                    Reply::Verdict { decision, always: remembered } => {
                        always.extend(remembered);
                        decision
                    }
                };
                if let Some(decided) = waiting.decided.get_mut(at) {
                    *decided = Some(decision);
                    continue;
                }
                // A breakpoint: whoever does not go on has stopped it.
                let (id, action) = (&waiting.question.id, breakpoint());
                let verdict = verdict(&decision);
                self.emit(session, |emit| {
                    voice.projector.decide(id, at, &action, verdict, emit);
                });
                return Ok(match verdict {
                    Verdict::Allowed => Settled::Resume(Start::Continue),
                    Verdict::Rejected => Settled::Stopped,
                });
            }
            answers.add(waiting, answer);
        }
        if !always.is_empty() {
            self.remember(session, always).await;
        }
        if let Some(start) = answers.start() {
            self.decided(session, voice, &answers.answered);
            return Ok(Settled::Resume(start));
        }
        self.put_in_words(session, &answers.waiting);
        voice.waiting = answers.waiting;
        voice.waiting.iter_mut().for_each(|waiting| waiting.is_in_words = true);
        Ok(Settled::ByPrompt)
    }

    /// Shows what is decided about the calls of these questions, whose answers go up.
    pub(super) fn decided(&self, session: &Session, voice: &mut Voice, answered: &[Waiting]) {
        for Waiting { question, decided, is_in_words: _ } in answered {
            voice.kept.extend(question.kept_keys());
            let Ask::Approval { actions, .. } = &question.ask else { continue };
            self.emit(session, |emit| {
                for (at, (action, decided)) in actions.iter().zip(decided).enumerate() {
                    if let Some(decision) = decided {
                        let verdict = verdict(decision);
                        voice.projector.decide(&question.id, at, action, verdict, emit);
                    }
                }
            });
        }
    }

    /// Keeps answers that hold for good with the thread, for any process.
    async fn remember(&self, session: &Session, always: Vec<Remembered>) {
        let mut desk = session.desk.lock().await;
        for answer in always {
            answer.add_to(&mut desk.kept.always);
        }
        self.keep(session, &mut desk).await;
    }

    /// Asks in the conversation what no form asks.
    fn put_in_words(&self, session: &Session, waiting: &[Waiting]) {
        for Waiting { question, decided, is_in_words: _ } in waiting {
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
            let update = Update::AgentMessageChunk { content, message_id: Some(&question.id) };
            self.update(&session.id, &update);
        }
    }
}

/// What a prompt has answered.
pub(super) struct PromptAnswer {
    /// What the run goes on with, if that is all it needs.
    pub(super) start: Option<Start>,
    /// The questions that it goes on with an answer to.
    pub(super) answered: Vec<Waiting>,
    /// What the prompt says nothing about.
    pub(super) left: Vec<Waiting>,
    /// Whether it was an answer.
    pub(super) is_used: bool,
}

/// The answers to the questions of a run, and those that are still open.
#[derive(Default)]
pub(super) struct Answers {
    object: ObjectWriter,
    /// The answer to a question that has no id in LangGraph: the only one.
    bare: Option<Json>,
    answered: Vec<Waiting>,
    waiting: Vec<Waiting>,
}

impl Answers {
    /// Adds a question that a person has answered, or not.
    fn add(&mut self, waiting: Waiting, answer: Option<Json>) {
        let Waiting { question, decided, is_in_words: _ } = &waiting;
        let answer = answer.or_else(|| match &question.ask {
            Ask::Approval { actions, form } => {
                let decided: Option<Vec<_>> = decided.iter().map(Option::as_ref).collect();
                let decisions = decided?.into_iter().zip(actions);
                let decisions = decisions.map(|(decision, action)| match &action.kept {
                    // It may say more than a decision of ours.
                    Some(kept) if action.kept_decision(*form).as_ref() == Some(decision) => {
                        kept.decision.clone()
                    }
                    Some(_) | None => form.decision(&action.name, decision),
                });
                Some(form.answer(&decisions.collect::<Vec<_>>()))
            }
            Ask::Answer { .. } | Ask::Breakpoint => None,
        });
        match answer {
            Some(answer) => {
                if question.is_unnamed() {
                    self.bare = Some(answer);
                } else {
                    let object = std::mem::take(&mut self.object);
                    self.object = object.raw(&question.id, answer.get());
                }
                self.answered.push(waiting);
            }
            None => self.waiting.push(waiting),
        }
    }

    /// Takes a prompt for the answer to the first question that nothing but a prompt answers.
    pub(super) fn of_prompt(
        questions: Vec<Waiting>,
        prompt: &str,
        has_forms: bool,
    ) -> PromptAnswer {
        let mut answers = Self::default();
        let mut is_used = false;
        for mut waiting in questions {
            let mut answer = None;
            match &waiting.question.ask {
                Ask::Answer { schema, .. } if !is_used && (waiting.is_in_words || !has_forms) => {
                    is_used = true;
                    answer = Some(answer_of_prompt(prompt, schema.as_deref()));
                }
                Ask::Approval { actions, .. } => {
                    for (action, decided) in actions.iter().zip(&mut waiting.decided) {
                        let is_open =
                            decided.is_none() && permission::offers(action, has_forms).is_empty();
                        if is_open && !is_used {
                            is_used = true;
                            *decided = permission::answered_by_prompt(action, prompt);
                        }
                    }
                }
                Ask::Answer { .. } | Ask::Breakpoint => {}
            }
            answers.add(waiting, answer);
        }
        let start = answers.start().filter(|_| is_used);
        PromptAnswer { start, answered: answers.answered, left: answers.waiting, is_used }
    }

    fn start(&mut self) -> Option<Start> {
        let answers = std::mem::take(&mut self.object);
        let by_id = || (!answers.is_empty()).then(|| answers.finish());
        self.bare.take().or_else(by_id).map(Start::Resume)
    }
}

/// Whether LangGraph can tell the answers to these questions apart.
pub(super) fn expect_answerable(questions: &[Waiting]) -> Result<(), Error> {
    if questions.len() > 1 && questions.iter().any(|waiting| waiting.question.is_unnamed()) {
        return Err(Error::internal(
            "the thread asks several questions, and one of them has no id in LangGraph, which \
             cannot tell then which one is answered",
        ));
    }
    Ok(())
}

/// What a decision means for the call.
fn verdict(decision: &Decision) -> Verdict {
    match decision {
        Decision::Approve | Decision::Edit { .. } => Verdict::Allowed,
        Decision::Reject { .. } | Decision::Respond { .. } => Verdict::Rejected,
    }
}

/// A static breakpoint as something that may be allowed.
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
