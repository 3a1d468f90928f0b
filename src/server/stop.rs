//! `POST /agui/agent/{agent}/stop/{thread}`: stops a thread's live run, and nothing else.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde_json::value::RawValue;

use super::Gateway;
use super::deeds::{self, Action};
use super::observe::About;
use super::reject::Reject;
use super::request::{InPath, read_body};
use crate::upstream::Caller;
use threadway_translate::json::{self, ObjectWriter};

/// The largest body that is read: it holds one id.
const MAX_BODY_BYTES: usize = 4 * 1024;

pub(super) async fn stop(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    InPath((name, client_thread)): InPath<(String, String)>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let body = read_body(&parts.headers, body, MAX_BODY_BYTES).await?;
    stop_thread(&gateway, &caller, &name, &client_thread, &body).await
}

/// Stops the live run of a thread that the client calls so.
pub(super) async fn stop_thread(
    gateway: &Gateway,
    caller: &Caller,
    name: &str,
    client_thread: &str,
    body: &[u8],
) -> Result<Response, Reject> {
    deeds::note(|deed| {
        deed.action = Some(Action::Stop);
        deed.thread = Some(client_thread.to_owned());
    });
    let wanted = wanted_run(body)?;
    let agent = gateway.agent(name, caller)?;
    let thread = gateway.thread(agent, client_thread);
    let stopped = thread.stop(wanted.as_deref()).await;
    let mut about = About { thread_id: thread.id().to_owned(), run_id: None };
    let answer =
        if let Some(run_id) = stopped.map_err(|refusal| gateway.refuse(&refusal, &thread))? {
            tracing::info!(
                agent = name,
                thread = thread.purpose().thread.as_deref(),
                thread_id = thread.id(),
                run_id,
                caller = caller.name(),
                "run stopped"
            );
            about.run_id = Some(run_id);
            // What CopilotKit's client shows of it.
            let interrupt = ObjectWriter::new()
                .string("type", "RUN_ERROR")
                .string("message", "Run stopped by user")
                .string("code", "STOPPED");
            ObjectWriter::new().raw("stopped", "true").raw("interrupt", interrupt.finish().get())
        } else {
            let which = wanted.map_or_else(String::new, |run| format!(" {run}"));
            let message = format!("the thread has no live run{which}");
            ObjectWriter::new().raw("stopped", "false").string("message", &message)
        };
    let body = format!("{}\n", answer.finish().get());
    let mut response = ([(CONTENT_TYPE, "application/json")], body).into_response();
    response.extensions_mut().insert(about);
    Ok(response)
}

/// The run that the body names: nothing, `{}` or `{"runId": ".."}`.
fn wanted_run(body: &[u8]) -> Result<Option<String>, Reject> {
    let form = || Reject::invalid("the body of a stop is empty, `{}` or `{\"runId\": \"..\"}`");
    if body.is_empty() {
        return Ok(None);
    }
    let body: &RawValue = serde_json::from_slice(body).map_err(|_| form())?;
    let members = json::members(body).ok_or_else(form)?;
    match members.0.as_slice() {
        [] => Ok(None),
        [(name, value)] if &**name == "runId" => {
            json::string(value).map(|id| Some(id.into_owned())).ok_or_else(form)
        }
        _ => Err(form()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_names_one_run_or_none() {
        for (body, expected) in [
            ("", Some(None)),
            ("{}", Some(None)),
            (r#" {"runId":"r"} "#, Some(Some("r"))),
            (r#"{"runId":1}"#, None),
            (r#"{"runId":"r","x":1}"#, None),
            (r#"{"x":1}"#, None),
            ("[]", None),
            ("{", None),
        ] {
            let wanted = wanted_run(body.as_bytes()).ok();
            assert_eq!(wanted.as_ref().map(|run| run.as_deref()), expected, "{body}");
        }
    }
}
