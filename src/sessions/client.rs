//! What a client can do, and what it gives the graph.

use threadway_translate::acp::{NoticeForms, PlanForm};
use threadway_translate::json::Json;

/// The abilities of a client that the agent makes use of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientAbilities {
    /// The client can show forms.
    pub(super) has_forms: bool,
    /// The client can show switches.
    pub(super) has_switches: bool,
    /// How the client takes notices.
    pub(super) notice_forms: NoticeForms,
    /// How the client takes plans.
    pub(super) plan_form: PlanForm,
    /// How the client takes subagents.
    pub(super) subagent_form: SubagentForm,
    /// Whether the client takes session cursors.
    pub(super) cursors: CursorForm,
    /// The client can run `threadway acp --login` in a terminal.
    pub(super) has_terminal_login: bool,
}

/// Whether a client takes session cursors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CursorForm {
    /// It does not know them.
    #[default]
    None,
    /// As updates.
    Updates,
}

/// How a client shows the subagents of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SubagentForm {
    /// As the calls that they work for.
    #[default]
    Calls,
    /// As child sessions.
    ChildSessions,
}

/// What a client gives the graph with each opening of a session: MCP servers and a system prompt.
#[derive(Debug, Default)]
pub(super) struct ClientServers {
    /// In the form that the graph gets. `None` if none are forwarded.
    pub(super) forwarded: Option<Json>,
    /// The client's system prompt, in the form that the graph gets.
    pub(super) system_prompt: Option<Json>,
    /// The names of the servers that are not forwarded, by reason.
    pub(super) dropped: Vec<(&'static str, Vec<String>)>,
}

// === impl ClientServers ===

impl ClientServers {
    /// How many bytes are kept.
    pub(super) fn bytes(&self) -> usize {
        let names = self.dropped.iter().flat_map(|(_, names)| names);
        let given = self.forwarded.iter().chain(&self.system_prompt);
        given.map(|given| given.get().len()).sum::<usize>() + names.map(String::len).sum::<usize>()
    }

    /// The same for a client that has opened the session before, and was warned then.
    pub(super) fn without_warnings(self) -> Self {
        Self { dropped: Vec::new(), ..self }
    }

    pub(super) fn leave_out(&mut self, name: &str, why: &'static str) {
        tracing::warn!(why, "an MCP server of the editor is not forwarded to the graph");
        let name = name.to_owned();
        match self.dropped.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => self.dropped.push((why, vec![name])),
        }
    }
}
