//! The answers to the questions of a run, collected for one request to LangGraph.

use crate::sessions::session::OpenQuestion;
use threadway_translate::acp::permission::{self, answer_of_prompt};
use threadway_translate::acp::rpc::Error;
use threadway_translate::json::{Json, ObjectWriter};
use threadway_translate::run::{Ask, Start};

/// What a prompt answers.
pub(in crate::sessions) struct PromptAnswer {
    /// What the run resumes with, if no more answers are needed.
    pub(in crate::sessions) start: Option<Start>,
    /// The answered questions.
    pub(in crate::sessions) answered: Vec<OpenQuestion>,
    /// The questions that the prompt does not answer.
    pub(in crate::sessions) left: Vec<OpenQuestion>,
    /// Whether the prompt was taken as an answer.
    pub(in crate::sessions) is_used: bool,
}

/// The answers to the questions of a run, and the questions that are still open.
#[derive(Default)]
pub(in crate::sessions) struct QuestionAnswers {
    object: ObjectWriter,
    /// The answer to a question without an id in LangGraph. Such a question is the only one.
    bare: Option<Json>,
    pub(super) answered: Vec<OpenQuestion>,
    pub(super) waiting: Vec<OpenQuestion>,
}

impl QuestionAnswers {
    /// Adds a question with its answer. Without an answer the question stays open.
    pub(super) fn add(&mut self, waiting: OpenQuestion, answer: Option<Json>) {
        let OpenQuestion { question, decided, is_asked_in_text: _ } = &waiting;
        let answer = answer.or_else(|| match &question.ask {
            Ask::Approval { actions, form } => {
                let decided: Option<Vec<_>> = decided.iter().map(Option::as_ref).collect();
                let decisions = decided?.into_iter().zip(actions);
                let decisions = decisions.map(|(decision, action)| match &action.kept {
                    // The saved decision may hold more than ours.
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

    /// Takes a prompt as the answer to the first question that only a prompt can answer.
    pub(in crate::sessions) fn of_prompt(
        questions: Vec<OpenQuestion>,
        prompt: &str,
        has_forms: bool,
    ) -> PromptAnswer {
        let mut answers = Self::default();
        let mut is_used = false;
        for mut waiting in questions {
            let mut answer = None;
            match &waiting.question.ask {
                Ask::Answer { schema, .. }
                    if !is_used && (waiting.is_asked_in_text || !has_forms) =>
                {
                    is_used = true;
                    answer = Some(answer_of_prompt(prompt, schema.as_deref()));
                }
                Ask::Approval { actions, .. } => {
                    for (action, decided) in actions.iter().zip(&mut waiting.decided) {
                        let is_open =
                            decided.is_none() && !permission::has_offers(action, has_forms);
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

    pub(super) fn start(&mut self) -> Option<Start> {
        let answers = std::mem::take(&mut self.object);
        let by_id = || (!answers.is_empty()).then(|| answers.finish());
        self.bare.take().or_else(by_id).map(Start::Resume)
    }
}

/// Fails if LangGraph could not tell the answers to these questions apart.
pub(in crate::sessions) fn expect_answerable(questions: &[OpenQuestion]) -> Result<(), Error> {
    if questions.len() > 1 && questions.iter().any(|waiting| waiting.question.is_unnamed()) {
        return Err(Error::internal(
            "the thread asks several questions and one has no id, so LangGraph cannot tell which \
             one an answer is for",
        ));
    }
    Ok(())
}
