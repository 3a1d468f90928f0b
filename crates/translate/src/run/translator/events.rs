//! The `events` mode: LangChain's event stream, and what CopilotKit's graphs send through it.

use serde_json::value::RawValue;

use super::Translator;
use crate::json::{self, Text};
use crate::langgraph::{GraphLevel, MessageType, ModelEvent, Origin};
use crate::run::speech::Source;
use crate::run::{Id, Role};

impl Translator {
    pub(super) fn on_event(&mut self, namespace: &str, event: &ModelEvent<'_>) {
        let (metadata, tags) = event.origin_bytes();
        let origin = self.origin.read_with(metadata, tags, || event.origin());
        let is_node =
            origin.node.as_deref().is_some_and(|node| event.name.as_deref() == Some(node));
        let place = GraphLevel::of(namespace, &origin.checkpoint_ns);
        match &*event.event {
            "on_chat_model_stream" | "on_llm_stream" => {
                if let Some(chunk) = event.chunk() {
                    self.on_chunk(namespace, &chunk, &origin, Source::Events);
                }
            }
            "on_chat_model_end" => {
                if let Some(message) = event.output() {
                    let agent = self.enter(namespace, &origin);
                    self.on_whole(&message, agent.as_ref(), Some(&origin));
                }
            }
            "on_tool_end" => {
                let output = event.output().filter(|message| message.kind() == MessageType::Tool);
                let written = event.command_messages(&self.messages_key, place);
                for message in output.into_iter().chain(written) {
                    self.on_message(namespace, &message, &origin, Source::Events);
                }
            }
            "on_custom_event" => self.on_custom_event(namespace, event, &origin),
            "on_chain_start" if is_node => self.on_node(&origin, Edge::Start),
            "on_chain_end" if is_node => {
                for message in event.node_messages(&self.messages_key, place) {
                    let agent = self.enter(namespace, &origin);
                    self.on_whole(&message, agent.as_ref(), Some(&origin));
                }
                self.on_node(&origin, Edge::End);
            }
            _ => {}
        }
    }

    fn on_node(&mut self, origin: &Origin, edge: Edge) {
        let (Some(node), Some(task)) = (origin.node.as_deref(), origin.task()) else { return };
        let (namespace, _) = origin.checkpoint_ns.rsplit_once('|').unwrap_or_default();
        match edge {
            _ if node.starts_with("__") => {}
            Edge::Start => {
                let agent = origin.agent.as_deref();
                self.steps.start_task(namespace, task, node, agent, &mut self.out);
            }
            Edge::End => {
                if let Some(step) = self.steps.of_task(namespace, task) {
                    self.finish_step(step);
                }
            }
        }
    }

    /// Events that a node dispatches. Some names are CopilotKit's, and are more than an event.
    pub(super) fn on_custom_event(
        &mut self,
        namespace: &str,
        event: &ModelEvent<'_>,
        origin: &Origin,
    ) {
        let agent = self.enter(namespace, origin);
        let name = event.name.as_deref().unwrap_or("langgraph.custom");
        let payload = event.payload().unwrap_or(RawValue::NULL);
        let members = json::members(payload).unwrap_or_default();
        match name.strip_prefix("copilotkit_").unwrap_or(name) {
            "manually_emit_message" => self.emit_message(&members, agent.as_ref()),
            "manually_emit_tool_call" => self.emit_call(&members, agent.as_ref()),
            "manually_emit_state" | "manually_emit_intermediate_state" => {
                self.out.state(json::Json::from(payload));
            }
            "exit" => self.out.custom("Exit", json::raw("true".to_owned()), agent.as_ref()),
            _ => self.out.custom(name, json::Json::from(payload), agent.as_ref()),
        }
    }

    pub(super) fn emit_message(&mut self, members: &json::Members<'_>, agent: Option<&Id>) {
        let (Some(id), Some(text)) = (members.string("message_id"), members.text("message")) else {
            return;
        };
        let id = self.id(&id);
        if self.view().message(&id).is_none() {
            self.out.open_text(&id, Role::Assistant, None, agent);
            self.out.text(&id, text);
            self.out.close_text(&id);
        }
    }

    pub(super) fn emit_call(&mut self, members: &json::Members<'_>, agent: Option<&Id>) {
        let (Some(id), Some(name)) = (members.string("id"), members.string("name")) else { return };
        let (id, name) = (Id::from(&*id), Id::from(&*name));
        if self.view().call(&id).is_some() {
            return;
        }
        let args = members.get("args");
        let args = args.and_then(Text::from_raw).or_else(|| args.map(|args| Text::new(args.get())));
        let wire = self.announce(&id, &id, &name, agent);
        self.out.call_args(&wire, args.unwrap_or_else(|| Text::new("{}")));
        self.out.close_call(&wire);
    }
}

/// Where in a node's life an event stands.
#[derive(Clone, Copy, Debug)]
enum Edge {
    Start,
    End,
}
