//! Stops a thread's live run, and nothing else.

use serde_json::value::RawValue;

use crate::server::gateway::RequestContext;
use crate::server::observe::RunIds;
use crate::server::observe::request_log::AuditedAction;
use crate::server::reject::Reject;
use crate::server::request::thread_name::expect_id;
use threadway_translate::json::{self, Json, ObjectWriter};

/// Stops the live run of the thread that the client calls `client_thread`.
pub(in crate::server) async fn stop_thread(
    context: &RequestContext,
    name: &str,
    client_thread: &str,
    body: &[u8],
) -> Result<(Json, RunIds), Reject> {
    context.record.note(|facts| {
        facts.action = Some(AuditedAction::Stop);
        facts.thread = Some(client_thread.to_owned());
    });
    let wanted = wanted_run(body)?;
    let agent = context.agent(name)?;
    let thread = context.thread(agent, client_thread)?;
    let stopped = thread.stop(wanted.as_deref()).await;
    let mut ids = RunIds::of(&thread);
    let answer =
        if let Some(run_id) = stopped.map_err(|refusal| context.refuse(&refusal, &thread))? {
            tracing::info!(
                agent = name,
                thread = thread.purpose().thread.as_deref(),
                thread_id = thread.id(),
                run_id,
                caller = context.caller.name(),
                "run stopped"
            );
            ids.run_id = Some(run_id);
            // CopilotKit's client shows this.
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
    Ok((answer.finish(), ids))
}

/// The run that the body names: the body is empty, `{}` or `{"runId": ".."}`.
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
            let id = json::string(value).ok_or_else(form)?;
            expect_id("runId", &id)?;
            Ok(Some(id.into_owned()))
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
            (r#"{"runId":""}"#, None),
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
