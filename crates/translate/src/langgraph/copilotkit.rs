//! Names that CopilotKit's SDK gives things in a LangGraph stream and state.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::suppressed::{Suppressed, SuppressedCalls};
use crate::json::{self, Json, Members, Text};

/// The key of the state under which CopilotKit's clients put their tools.
pub(crate) const STATE_KEY: &str = "copilotkit";

/// The key of the tools, under [`STATE_KEY`].
pub(crate) const ACTIONS_KEY: &str = "actions";

/// The keys of a call's metadata that list which tool arguments predict which keys of the state:
/// AG-UI's, and the one that CopilotKit's SDK writes.
const PREDICT_STATE_KEYS: [&str; 2] = ["predict_state", "copilotkit:emit-intermediate-state"];

/// The member of an interrupt's value that has what the graph asks.
pub(crate) const INTERRUPT_KEY: &str = "__copilotkit_interrupt_value__";

/// The name of the custom event that carries this list.
pub(crate) const PREDICT_STATE_EVENT: &str = "PredictState";

/// The name of the custom event that says that the agent hands over to the application.
const EXIT_EVENT: &str = "Exit";

/// The prefix of the names of CopilotKit's own events. Its older packages leave it out.
const EVENT_PREFIX: &str = "copilotkit_";

/// A message, call, state or event that a graph sends outside of a model's call.
pub(crate) enum Emitted<'u> {
    /// A message of the assistant.
    Message {
        /// Its id.
        id: Cow<'u, str>,
        /// Its text.
        text: Text,
    },
    /// A tool call, which is also a message of its own.
    Call {
        /// The id of both.
        id: Cow<'u, str>,
        /// The tool.
        name: Cow<'u, str>,
        /// The arguments, as JSON.
        args: Text,
    },
    /// The state.
    State(Json),
    /// Anything else, under its name.
    Custom(&'u str, Json),
    /// An event without the members that its name promises. Its producer has begun all the same.
    Malformed,
}

/// Reads which pieces of a call its metadata ask not to show.
///
/// CopilotKit's packages write the flags with and without a prefix. The SDK's type of a flag is a
/// boolean, the name of a tool, or a list of names. Only the tools that are named are shown.
pub(super) fn suppressed(metadata: &Members<'_>) -> Suppressed {
    let flags = |names: [&str; 2]| names.map(|name| metadata.get(name)).into_iter().flatten();
    let of_messages = flags(["emit-messages", "copilotkit:emit-messages"]);
    let of_calls = flags(["emit-tool-calls", "copilotkit:emit-tool-calls"]);
    Suppressed {
        text: of_messages.map(suppressed_calls).any(|calls| match calls {
            SuppressedCalls::All => true,
            // A message has no name that a list could have.
            SuppressedCalls::AllBut(shown) => shown.is_empty(),
            SuppressedCalls::None => false,
        }),
        calls: of_calls
            .map(suppressed_calls)
            .find(|calls| *calls != SuppressedCalls::None)
            .unwrap_or_default(),
    }
}

fn suppressed_calls(flag: &RawValue) -> SuppressedCalls {
    let own = |name: Cow<'_, str>| name.into_owned();
    let names: Option<Vec<String>> = json::string(flag).map(|name| vec![own(name)]).or_else(|| {
        Some(json::items(flag)?.into_iter().filter_map(json::string).map(own).collect())
    });
    match names {
        Some(names) => {
            SuppressedCalls::AllBut(names.into_iter().filter(|name| !name.is_empty()).collect())
        }
        None if flag.get() == "false" => SuppressedCalls::All,
        None => SuppressedCalls::None,
    }
}

/// The list of a call's metadata that names the tool arguments which predict the state.
pub(super) fn predicted<'a>(metadata: &Members<'a>) -> Option<&'a RawValue> {
    let mut lists = PREDICT_STATE_KEYS.into_iter().filter_map(|key| metadata.get(key));
    lists.find(|list| !matches!(list.get(), "null" | "[]"))
}

/// Reads an event that a node dispatches. Some names are CopilotKit's, and are more than an event.
pub(super) fn emitted<'a>(name: &'a str, payload: &'a RawValue) -> Emitted<'a> {
    let members = json::members(payload).unwrap_or_default();
    match name.strip_prefix(EVENT_PREFIX).unwrap_or(name) {
        "manually_emit_message" => message(&members).unwrap_or(Emitted::Malformed),
        "manually_emit_tool_call" => call(&members).unwrap_or(Emitted::Malformed),
        "manually_emit_state" | "manually_emit_intermediate_state" => {
            Emitted::State(Json::from(payload))
        }
        "exit" => Emitted::Custom(EXIT_EVENT, json::raw("true".to_owned())),
        _ => Emitted::Custom(name, Json::from(payload)),
    }
}

fn message<'a>(members: &Members<'a>) -> Option<Emitted<'a>> {
    Some(Emitted::Message { id: members.string("message_id")?, text: members.text("message")? })
}

fn call<'a>(members: &Members<'a>) -> Option<Emitted<'a>> {
    let (id, name): (Cow<'a, str>, Cow<'a, str>) = (members.string("id")?, members.string("name")?);
    let args = members.get("args");
    let args = args.and_then(Text::from_raw).or_else(|| args.map(|args| Text::new(args.get())));
    Some(Emitted::Call { id, name, args: args.unwrap_or_else(|| Text::new("{}")) })
}
