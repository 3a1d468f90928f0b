//! The model or tool call that a message comes from, as LangGraph's metadata describe it.

use serde_json::value::RawValue;

use crate::json;

/// The metadata of a model or tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The node that made the call.
    pub node: Option<String>,
    /// The task path of the node: `node:task|node:task`, with its own segment last.
    pub checkpoint_ns: String,
    /// The superstep of the graph that the node belongs to.
    pub step: Option<u64>,
    /// The provider, as the tracing metadata names it.
    pub provider: Option<String>,
    /// The model, as the tracing metadata names it.
    pub model: Option<String>,
    /// The name of the agent that the node belongs to.
    pub agent: Option<String>,
    /// What viewers must not see of this call while it streams.
    pub mutes: Mutes,
    /// `predict_state`: the tool arguments that predict keys of the state, not parsed.
    pub predict_state: Option<json::Json>,
}

/// What the graph asked not to stream of a model's call. A state that contains the message still
/// shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutes {
    /// Its text and reasoning.
    pub text: bool,
    /// Its tool calls.
    pub calls: bool,
}

// === impl Origin ===

impl Origin {
    /// Reads the metadata. Anything but an object counts as empty.
    pub fn parse(metadata: &str) -> Self {
        let members: json::Members<'_> = serde_json::from_str(metadata).unwrap_or_default();
        Self::from_members(&members, members.get("tags"))
    }

    /// Reads parsed metadata. `tags` are passed separately, because modes put them in different
    /// places.
    pub(crate) fn from_members(members: &json::Members<'_>, tags: Option<&RawValue>) -> Self {
        let string = |name| members.string(name).map(std::borrow::Cow::into_owned);
        // LangChain tags a call with "nostream" if its output is not meant for the user.
        let tags = tags.and_then(json::items).unwrap_or_default();
        let nostream = tags
            .into_iter()
            .any(|tag| matches!(tag.get(), "\"nostream\"" | "\"langsmith:nostream\""));
        let off = |name| members.get(name).is_some_and(|flag| flag.get() == "false");
        Self {
            node: string("langgraph_node"),
            checkpoint_ns: string("langgraph_checkpoint_ns").unwrap_or_default(),
            step: members.number("langgraph_step"),
            provider: string("ls_provider"),
            model: string("ls_model_name"),
            agent: string("lc_agent_name"),
            mutes: Mutes {
                text: nostream || off("emit-messages") || off("copilotkit:emit-messages"),
                calls: nostream || off("emit-tool-calls") || off("copilotkit:emit-tool-calls"),
            },
            predict_state: members.get("predict_state").map(json::Json::from),
        }
    }

    /// The task of the call: the last segment of the path.
    pub fn task(&self) -> Option<&str> {
        self.checkpoint_ns.rsplit('|').next().filter(|segment| !segment.is_empty())
    }
}
