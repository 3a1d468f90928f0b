//! The model or tool call that a message comes from, as LangGraph's metadata describe it.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::copilotkit;
use super::message::HARNESS_SOURCE;
use super::suppressed::Suppressed;
use crate::json;

/// The metadata of a model or tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallMetadata {
    /// The node that made the call.
    pub(crate) node: Option<String>,
    /// The task path of the node: `node:task|node:task`, with its own segment last.
    pub(crate) checkpoint_ns: String,
    /// The superstep of the graph that the node belongs to.
    pub(crate) step: Option<u64>,
    /// The provider, as the tracing metadata names it.
    pub(crate) provider: Option<String>,
    /// The model, as the tracing metadata names it.
    pub(crate) model: Option<String>,
    /// The name of the agent that the node belongs to.
    pub(crate) agent: Option<String>,
    /// What viewers must not see of this call while it streams.
    pub(crate) suppressed: Suppressed,
    /// Whether LangChain's harness has called the model for its own work: to summarise, to choose
    /// tools.
    pub(crate) is_harness: bool,
    /// `predict_state`: the tool arguments that predict keys of the state, not parsed.
    pub(crate) predict_state: Option<json::Json>,
}

/// The last origin that was read, and the bytes that it was read from.
///
/// All tokens of a call repeat the same metadata: they are compared, not parsed.
#[derive(Debug, Default)]
pub(super) struct LastMetadata {
    metadata: String,
    tags: String,
    origin: Arc<CallMetadata>,
}

// === impl CallMetadata ===

impl CallMetadata {
    /// Reads the metadata. Anything but an object counts as empty.
    pub(crate) fn parse(metadata: &str) -> Self {
        let read = |metadata: &str| {
            let members: json::Members<'_> = serde_json::from_str(metadata).ok()?;
            Some(Self::from_members(&members, members.get("tags")))
        };
        // A tuple's metadata are not parsed with its message, so they may have a number that JSON
        // does not have.
        let mended = || read(&json::mend_numbers(metadata)?);
        read(metadata).or_else(mended).unwrap_or_default()
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
        let suppressed =
            if nostream { Suppressed::ALL.clone() } else { copilotkit::suppressed(members) };
        Self {
            node: string("langgraph_node"),
            checkpoint_ns: string("langgraph_checkpoint_ns").unwrap_or_default(),
            step: members.number("langgraph_step"),
            provider: string("ls_provider"),
            model: string("ls_model_name"),
            agent: string("lc_agent_name"),
            suppressed,
            is_harness: is_harness(members),
            predict_state: copilotkit::predicted(members).map(json::Json::from),
        }
    }

    /// The task of the call: the last segment of the path.
    pub(crate) fn task(&self) -> Option<&str> {
        self.checkpoint_ns.rsplit('|').next().filter(|segment| !segment.is_empty())
    }
}

/// Whether metadata have one of the marks of LangChain's harness. The second is a token of the
/// server's process, which nobody else can compare.
fn is_harness(members: &json::Members<'_>) -> bool {
    let has_token = || members.get("lc_internal_call").is_some_and(|token| token.get() != "null");
    members.string(HARNESS_SOURCE).is_some() || has_token()
}

// === impl LastMetadata ===

impl LastMetadata {
    /// Reads metadata that contain their tags.
    pub(super) fn read(&mut self, metadata: &str) -> &Arc<CallMetadata> {
        self.read_with(metadata, "", || CallMetadata::parse(metadata))
    }

    /// Reads metadata and tags with `parse`, unless both are the last ones.
    pub(super) fn read_with(
        &mut self,
        metadata: &str,
        tags: &str,
        parse: impl FnOnce() -> CallMetadata,
    ) -> &Arc<CallMetadata> {
        if self.metadata != metadata || self.tags != tags {
            metadata.clone_into(&mut self.metadata);
            tags.clone_into(&mut self.tags);
            self.origin = Arc::new(parse());
        }
        &self.origin
    }
}
