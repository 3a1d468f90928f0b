//! `POST /agui/agent/{agent}/run`: a request in, a run started, its stream out.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;

use super::accept::Asked;
use super::auth::Streams;
use super::deeds::{self, Action};
use super::observe::About;
use super::reject::Reject;
use super::request::{InPath, read_json};
use super::wire::Encoder;
use super::{Gateway, attach};
use crate::upstream::Caller;
use threadway_translate::agui::{Asking, Input, Projector};

pub(super) async fn run(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(streams): Extension<Streams>,
    InPath(name): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let asked = Asked::of(&parts)?;
    let body = read_json(&parts.headers, body, gateway.limits.body_bytes).await?;
    start(&gateway, &caller, &streams, &name, &asked, &body).await
}

/// Starts the run that a request asks for. If the client has sent the request before, its run goes
/// on instead.
pub(super) async fn start(
    gateway: &Gateway,
    caller: &Caller,
    streams: &Streams,
    name: &str,
    asked: &Asked<'_>,
    body: &Bytes,
) -> Result<Response, Reject> {
    let input = parse(body)?;
    deeds::note(|deed| {
        let is_answer = input.is_answer();
        deed.action = Some(if is_answer { Action::Resume } else { Action::Run });
        deed.thread = Some(input.thread_id.clone());
    });
    let asked = &asked.of_version(input.version)?;
    let inspects = asked.inspects(gateway.page);
    let agent = gateway.agent_inspected(name, caller, inspects)?;
    let thread = gateway.thread(agent, &input.thread_id);
    let slot = streams.slot()?;
    let again = attach::asked_again(gateway, &thread, &input, asked);
    if let Some((reader, encoder)) = Box::pin(again).await? {
        deeds::note(|deed| deed.action = Some(Action::Connect));
        let about = About { thread_id: thread.id().to_owned(), run_id: None };
        return Ok(Box::pin(asked.answer(gateway, reader, encoder, slot, about)).await);
    }
    if asked.is_replay {
        return Err(Reject::unknown_run());
    }
    let wire = asked.wire();
    let asking = Asking {
        input: &input,
        on_message: gateway.on_message,
        allowance: &gateway.allowance,
        emit: thread.agent().emit,
        messages_key: thread.agent().upstream.messages_key(),
    };
    let begun = Box::pin(thread.ask(&asking)).await;
    let Some(reader) = begun.map_err(|refusal| gateway.refuse(&refusal, &thread))? else {
        return attach::present(gateway, &thread, &input, asked, slot).await;
    };
    warn_of_left_out(gateway, &input);
    let run_id = reader.run_id().as_deref().map(str::to_owned);
    let about = About { thread_id: thread.id().to_owned(), run_id };
    let encoder = Encoder::new(wire, Projector::new(input.client(), input.held()))
        .naming(inspects && thread.agent().emit.raw);
    Ok(Box::pin(asked.answer(gateway, reader, encoder, slot, about)).await)
}

/// Says in the log that a client has set of its run's configuration what it may not set.
fn warn_of_left_out(gateway: &Gateway, input: &Input) {
    let left_out = gateway.allowance.left_out(input);
    if left_out > 0 && gateway.left_out.is_due() {
        // Not their names, which are the client's.
        tracing::warn!(
            left_out,
            "a client set members of `configurable` that it may not set; `forward_configurable` \
             names those that it may"
        );
    }
    if gateway.allowance.leaves_multitask_out(input) && gateway.left_out.is_due() {
        tracing::warn!(
            "a client asked for a `multitaskStrategy` that it may not ask for; \
             `forward_multitask_strategies` lists those that it may"
        );
    }
}

pub(super) fn parse(body: &[u8]) -> Result<Input, Reject> {
    Input::parse(body).map_err(|error| Reject::invalid(error.to_string()))
}
