//! The names that CopilotKit uses beside AG-UI's.

use serde_json::value::RawValue;

use crate::json::{self, Json, ObjectWriter};

/// The key of a graph's state that holds CopilotKit's tools and context.
pub(super) const STATE_KEY: &str = "copilotkit";

/// The value of [`STATE_KEY`].
pub(super) fn state_value(tools: &Json, context: &Json) -> Json {
    ObjectWriter::new().raw("actions", tools.get()).raw("context", context.get()).finish()
}

/// The answer that CopilotKit's older hook sends in `forwardedProps.command.resume`.
pub(super) fn resume(forwarded_props: &RawValue) -> Option<&RawValue> {
    let command = json::members(json::members(forwarded_props)?.get("command")?)?;
    command.get("resume").filter(|resume| resume.get() != "null")
}
