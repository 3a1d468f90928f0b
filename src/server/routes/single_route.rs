//! `POST /agui`: what CopilotKit's client asks where it has a single route.
//!
//! The request has the wanted action in `method` and `params`, and in `body` what the plain route
//! takes. The response is that of the plain route, byte for byte.

use std::borrow::Cow;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::value::RawValue;

use super::accept::EventsRequest;
use super::page::Page;
use super::{connect, info, stop, threads};
use crate::offload::offload;
use crate::server::body::read_json;
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use crate::server::service;
use crate::server::service::run::RunIntent;
use threadway_translate::json::{self, Members};

/// What the body of a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Envelope<'a> {
    Info,
    Run { agent: Cow<'a, str>, input: &'a str },
    Connect { agent: Cow<'a, str>, input: &'a str },
    Stop { agent: Cow<'a, str>, thread: Cow<'a, str>, body: &'a str },
    Resource { method: Cow<'a, str>, path: Cow<'a, str>, body: &'a str },
}

pub(in crate::server) async fn single_route(
    context: RequestContext,
    State(page): State<Page>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let body = read_json(&context, &parts.headers, body, context.gateway.limits.body_bytes).await?;
    let (body, charge) = body.into_parts();
    let envelope = offload(body.len(), || Envelope::parse(&body))?;
    if let Some(agent) = envelope.agent() {
        context.record.note(|facts| facts.agent = Some(agent.to_owned()));
    }
    match envelope {
        Envelope::Info => {
            context.record.note(|facts| facts.action = None);
            info::info(context).await
        }
        Envelope::Run { agent, input } => {
            let body = (input.as_bytes(), charge);
            let events = EventsRequest::of(parts)?;
            let (events, request) =
                events.with_input(&context, &agent, page, body, service::run::action)?;
            let stream = service::run::start(&context, &request, RunIntent::Run).await?;
            Box::pin(events.respond(&context.gateway.observer.metrics, stream)).await
        }
        Envelope::Connect { agent, input } => {
            let body = (input.as_bytes(), charge);
            let events = EventsRequest::of(parts)?;
            let (events, request) =
                events.with_input(&context, &agent, page, body, service::connect::action)?;
            connect::respond(&context, &events, &request).await
        }
        Envelope::Stop { agent, thread, body } => {
            stop::respond(&context, &agent, &thread, body.as_bytes()).await
        }
        Envelope::Resource { method, path, body } => {
            Box::pin(threads::resource(&context, &method, &path, body.as_bytes())).await
        }
    }
}

// === impl Envelope ===

impl<'a> Envelope<'a> {
    /// Reads a request's body. The error texts are those of CopilotKit's runtime.
    fn parse(body: &'a [u8]) -> Result<Self, Reject> {
        let value: &RawValue = serde_json::from_slice(body)
            .map_err(|error| Reject::invalid(format!("Invalid JSON payload: {error}")))?;
        let members = json::members(value).unwrap_or_default();
        let method = members.string("method").unwrap_or_default();
        let agent = || param(&members, "agentId");
        let body = members.get("body").map(RawValue::get);
        match &*method {
            "info" => Ok(Self::Info),
            "agent/run" => Ok(Self::Run { agent: agent()?, input: input(body)? }),
            "agent/connect" => Ok(Self::Connect { agent: agent()?, input: input(body)? }),
            "agent/stop" => {
                let body = body.unwrap_or_default();
                Ok(Self::Stop { agent: agent()?, thread: param(&members, "threadId")?, body })
            }
            "resource/request" => Ok(Self::Resource {
                path: param(&members, "path")?,
                method: param(&members, "httpMethod")?,
                body: body.unwrap_or_default(),
            }),
            "" => Err(Reject::invalid("Missing method field")),
            _ => Err(Reject::invalid(
                "Unsupported method; it is info, agent/run, agent/connect, agent/stop or \
                 resource/request",
            )),
        }
    }

    fn agent(&self) -> Option<&str> {
        match self {
            Self::Run { agent, .. } | Self::Connect { agent, .. } | Self::Stop { agent, .. } => {
                Some(agent)
            }
            Self::Info | Self::Resource { .. } => None,
        }
    }
}

fn param<'a>(envelope: &Members<'a>, name: &str) -> Result<Cow<'a, str>, Reject> {
    let params = envelope.get("params").and_then(json::members).unwrap_or_default();
    let value = params.string(name).filter(|value| !value.trim().is_empty());
    value.ok_or_else(|| Reject::invalid(format!("Missing or invalid parameter '{name}'")))
}

fn input(body: Option<&str>) -> Result<&str, Reject> {
    let body = body.filter(|body| *body != "null");
    body.ok_or_else(|| Reject::invalid("Missing request body for JSON handler"))
}
