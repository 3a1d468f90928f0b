//! Requests of the gateway to the editor: permissions and forms.
//!
//! Each connection numbers its requests anew, so the editor gets numbers of the bridge. A new
//! connection asks an open question again. If it asks exactly the same, the editor is not asked
//! again, and the person's answer goes to the new request.

use indexmap::IndexMap;

use super::message;
use threadway_translate::acp::rpc::{self, Error, Id};
use threadway_translate::json::Json;

/// The most open requests. The editor shows a few.
const MAX_ASKS: usize = 256;

/// The longest answer that is kept for a connection to come, in bytes.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// The open requests, by the id that the editor has.
#[derive(Debug, Default)]
pub(super) struct GatewayRequests {
    last: u64,
    open: IndexMap<Id, GatewayRequest>,
}

#[derive(Debug)]
struct GatewayRequest {
    /// The gateway's id, while it waits for the answer.
    id: Option<Id>,
    method: String,
    /// As the editor has them.
    params: Json,
    /// The editor's id of the session.
    session: Option<String>,
    /// Whether the connection that asked is lost.
    is_lost: bool,
    /// The person's answer.
    answer: Option<Result<Json, Error>>,
}

/// What a request of the gateway leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AskOutcome {
    /// Lines for the editor: the request, and before it the ends of requests that it replaces.
    Editor(Vec<String>),
    /// A line for the gateway: the answer that the person has given already, or a refusal.
    Gateway(String),
}

// === impl GatewayRequests ===

impl GatewayRequests {
    pub(super) fn ask(
        &mut self,
        id: Id,
        method: String,
        params: Json,
        session: Option<String>,
    ) -> AskOutcome {
        let same = |(_, ask): &(&Id, &GatewayRequest)| {
            ask.is_lost && ask.method == method && ask.params == params
        };
        let same = self.open.iter().find(same).map(|(ours, _)| ours.clone());
        if let Some((ours, mut ask)) = same.and_then(|ours| self.open.shift_remove_entry(&ours)) {
            (ask.is_lost, ask.id) = (false, Some(id.clone()));
            let Some(answer) = &ask.answer else {
                self.open.insert(ours, ask);
                return AskOutcome::Editor(Vec::new());
            };
            let line = rpc::response(&id, answer);
            ask.id = None;
            self.open.insert(ours, ask);
            return AskOutcome::Gateway(line);
        }
        if self.open.len() >= MAX_ASKS {
            self.open.retain(|_, ask| ask.answer.is_none());
        }
        if self.open.len() >= MAX_ASKS {
            let message = format!("{MAX_ASKS} requests are open; wait for answers");
            return AskOutcome::Gateway(rpc::response(&id, &Err(Error::invalid(message))));
        }
        // The same call is asked about in another way, so the old question is out of date.
        let call = call(&params);
        let replaced =
            |ask: &GatewayRequest| ask.session == session && self::call(&ask.params) == call;
        let mut lines = self.end_lost(|ask| call.is_some() && replaced(ask));
        self.last += 1;
        let ours = Id::number(self.last);
        lines.push(rpc::request(&ours, &method, &params));
        let ask =
            GatewayRequest { id: Some(id), is_lost: false, method, params, session, answer: None };
        self.open.insert(ours, ask);
        AskOutcome::Editor(lines)
    }

    /// The line for the gateway that answers its request. `None` if it does not wait for it.
    ///
    /// The answer is kept until the turn is over: a connection that is lost may have lost it.
    pub(super) fn answered(&mut self, id: &Id, result: Result<Json, Error>) -> Option<String> {
        let ask = self.open.get_mut(id).filter(|ask| ask.answer.is_none())?;
        let line = ask.id.take().map(|theirs| rpc::response(&theirs, &result));
        let is_short = result.as_ref().is_ok_and(|result| result.get().len() <= MAX_KEPT_BYTES);
        // A form names no call. The same form may come again as another question, which the
        // person has not seen.
        let is_one_question = line.is_none() || call(&ask.params).is_some();
        if is_short && is_one_question {
            ask.answer = Some(result);
        } else {
            self.open.shift_remove(id);
        }
        line
    }

    /// The gateway cancels a request: the line for the editor. A late answer is dropped.
    pub(super) fn cancelled(&mut self, theirs: &Id) -> Option<String> {
        let at = self.open.values().position(|ask| ask.id.as_ref() == Some(theirs))?;
        let (ours, _) = self.open.shift_remove_index(at)?;
        Some(message::cancel_request(&ours))
    }

    /// The connection is lost. Requests of sessions that `is_kept` are kept for the next one;
    /// returns the lines that end the others.
    pub(super) fn lost(&mut self, is_kept: impl Fn(&str) -> bool) -> Vec<String> {
        for ask in self.open.values_mut() {
            (ask.id, ask.is_lost) = (None, true);
        }
        self.end_lost(|ask| !ask.session.as_deref().is_some_and(&is_kept))
    }

    /// A turn of a session is over: ends what was asked on connections that are lost.
    pub(super) fn end(&mut self, session: &str) -> Vec<String> {
        self.end_lost(|ask| ask.session.as_deref() == Some(session))
    }

    /// Ends requests whose connection is lost. Late answers are dropped.
    fn end_lost(&mut self, is_over: impl Fn(&GatewayRequest) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        self.open.retain(|ours, ask| {
            let ends = ask.id.is_none() && is_over(ask);
            if ends && ask.answer.is_none() {
                lines.push(message::cancel_request(ours));
            }
            !ends
        });
        lines
    }
}

/// The call that a request is about.
fn call(params: &Json) -> Option<String> {
    let call = message::nested(params, "toolCall", "toolCallId");
    let call = call.and_then(threadway_translate::json::string);
    call.map(std::borrow::Cow::into_owned).or_else(|| message::text(params, "toolCallId"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadway_translate::json;

    fn asks(asks: &mut GatewayRequests, id: u64, params: &str) -> AskOutcome {
        let params = json::raw(params.to_owned());
        let session = Some("s".to_owned());
        asks.ask(Id::number(id), "session/request_permission".to_owned(), params, session)
    }

    fn answer(asks: &mut GatewayRequests, id: u64) -> Option<String> {
        asks.answered(&Id::number(id), Ok(json::raw("{\"x\":1}".to_owned())))
    }

    const A: &str = r#"{"sessionId":"s","toolCall":{"toolCallId":"a"}}"#;
    const A2: &str = r#"{"sessionId":"s","toolCall":{"toolCallId":"a","title":"t"}}"#;
    const B: &str = r#"{"sessionId":"s","toolCall":{"toolCallId":"b"}}"#;

    fn shown(asked: &AskOutcome) -> usize {
        match asked {
            AskOutcome::Editor(lines) => lines.len(),
            AskOutcome::Gateway(line) => panic!("{line}"),
        }
    }

    #[test]
    fn the_same_question_of_a_new_connection_is_not_asked_again() {
        let mut open = GatewayRequests::default();
        assert_eq!(shown(&asks(&mut open, 1, A)), 1);
        assert_eq!(open.lost(|_| true), [""; 0]);
        assert_eq!(asks(&mut open, 7, A), AskOutcome::Editor(Vec::new()));
        let answered = answer(&mut open, 1).unwrap();
        assert_eq!(answered, "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"x\":1}}\n");
        assert_eq!(answer(&mut open, 1), None);
    }

    #[test]
    fn an_answer_without_a_connection_waits_for_the_question() {
        let mut open = GatewayRequests::default();
        asks(&mut open, 1, A);
        open.lost(|_| true);
        assert_eq!(answer(&mut open, 1), None);
        let answered = asks(&mut open, 3, A);
        let line = "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"x\":1}}\n";
        assert_eq!(answered, AskOutcome::Gateway(line.to_owned()));
        // On one connection it answers one question only.
        assert_eq!(shown(&asks(&mut open, 4, A)), 1);
    }

    #[test]
    fn an_answer_that_a_connection_may_have_lost_is_sent_again() {
        let mut open = GatewayRequests::default();
        asks(&mut open, 1, A);
        assert!(answer(&mut open, 1).is_some());
        assert_eq!(answer(&mut open, 1), None);
        for id in [1, 5] {
            assert_eq!(open.lost(|_| true), [""; 0]);
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"x\":1}}}}\n");
            assert_eq!(asks(&mut open, id, A), AskOutcome::Gateway(line));
        }
        // The turn is over.
        assert_eq!(open.end("s"), [""; 0]);
        assert!(open.open.is_empty());
    }

    #[test]
    fn a_question_that_is_out_of_date_ends() {
        let mut open = GatewayRequests::default();
        asks(&mut open, 1, A);
        asks(&mut open, 2, B);
        open.lost(|_| true);
        let AskOutcome::Editor(lines) = asks(&mut open, 1, A2) else { panic!() };
        assert!(lines[0].contains("$/cancel_request") && lines[0].contains("\"requestId\":1"));
        assert_eq!(lines.len(), 2);
        assert_eq!(open.end("s").len(), 1);
        assert_eq!(answer(&mut open, 2), None);
        assert!(answer(&mut open, 3).is_some());
        asks(&mut open, 5, A);
        assert_eq!(open.lost(|_| false).len(), 1);
        assert!(open.open.is_empty());
    }

    #[test]
    fn the_number_of_questions_is_limited() {
        let mut open = GatewayRequests::default();
        for id in 0..MAX_ASKS {
            let params = format!(r#"{{"toolCall":{{"toolCallId":"{id}"}}}}"#);
            assert_eq!(shown(&asks(&mut open, id as u64, &params)), 1);
        }
        assert!(
            matches!(asks(&mut open, 9999, A), AskOutcome::Gateway(line) if line.contains("-32600"))
        );
    }
}
