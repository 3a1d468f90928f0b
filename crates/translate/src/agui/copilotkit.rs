//! The names that CopilotKit uses beside AG-UI's.

use serde_json::value::RawValue;

use crate::json::{self, Json, ObjectWriter};
use crate::langgraph::copilotkit::ACTIONS_KEY;
pub(super) use crate::langgraph::copilotkit::STATE_KEY;

/// The value of [`STATE_KEY`].
pub(super) fn state_value(tools: &Json, context: &Json) -> Json {
    ObjectWriter::new().raw(ACTIONS_KEY, tools.get()).raw("context", context.get()).finish()
}

/// The answer that CopilotKit's older hook sends in `forwardedProps.command.resume`.
pub(super) fn resume(forwarded_props: &RawValue) -> Option<&RawValue> {
    let command = json::members(json::members(forwarded_props)?.get("command")?)?;
    command.get("resume").filter(|resume| resume.get() != "null")
}
