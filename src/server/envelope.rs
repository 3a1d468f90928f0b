//! `POST /agui`: what CopilotKit's client asks where it has a single route.
//!
//! The request says what it wants in `method` and `params`, and has in `body` what the plain
//! route takes. It is answered as that route answers, byte for byte.

use std::sync::Arc;

use std::borrow::Cow;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::value::RawValue;

use super::accept::Asked;
use super::auth::Streams;
use super::deeds;
use super::reject::Reject;
use super::request::read_json;
use super::{Gateway, agui, attach, info, stop, threads};
use crate::upstream::Caller;
use threadway_translate::json::{self, Members};

/// What an envelope asks for.
#[derive(Debug, PartialEq, Eq)]
enum Call<'a> {
    Info,
    Run { agent: Cow<'a, str>, input: &'a str },
    Connect { agent: Cow<'a, str>, input: &'a str },
    Stop { agent: Cow<'a, str>, thread: Cow<'a, str>, body: &'a str },
    Resource { method: Cow<'a, str>, path: Cow<'a, str>, body: &'a str },
}

pub(super) async fn envelope(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(streams): Extension<Streams>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let body = read_json(&parts.headers, body, gateway.limits.body_bytes).await?;
    let call = Call::parse(&body)?;
    if let Call::Run { agent, .. } | Call::Connect { agent, .. } | Call::Stop { agent, .. } = &call
    {
        deeds::note(|deed| deed.agent = Some(agent.to_string()));
    }
    match call {
        Call::Info => {
            deeds::note(|deed| deed.action = None);
            info::info(State(gateway), Extension(caller)).await
        }
        Call::Run { agent, input } => {
            let input = body.slice_ref(input.as_bytes());
            let asked = Asked::of(&parts)?;
            agui::start(&gateway, &caller, &streams, &agent, &asked, &input).await
        }
        Call::Connect { agent, input } => {
            let input = body.slice_ref(input.as_bytes());
            let asked = Asked::of(&parts)?;
            attach::connect_to(&gateway, &caller, &streams, &agent, &asked, &input).await
        }
        Call::Stop { agent, thread, body } => {
            stop::stop_thread(&gateway, &caller, &agent, &thread, body.as_bytes()).await
        }
        Call::Resource { method, path, body } => {
            let asked =
                threads::resource(&gateway, &caller, &streams, &method, &path, body.as_bytes());
            Box::pin(asked).await
        }
    }
}

// === impl Call ===

impl<'a> Call<'a> {
    /// Reads an envelope. What is wrong with one is told in the words of CopilotKit's runtime.
    fn parse(envelope: &'a [u8]) -> Result<Self, Reject> {
        let value: &RawValue = serde_json::from_slice(envelope)
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
