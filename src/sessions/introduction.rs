//! What a client is sent after the response that opens a session: the commands, and which of its
//! MCP servers the graph does not get.

use std::sync::Arc;

use agent_client_protocol_schema::v1::SystemPrompt;
use futures_util::FutureExt;

use super::client::ClientServers;
use super::link::{ClientLink, Work};
use super::session::{Session, Sessions};
use threadway_translate::acp::Update;
use threadway_translate::acp::mcp::{self, NamedServers, ServerForGraph};
use threadway_translate::acp::notice::Notice;
use threadway_translate::acp::prompt::SlashCommand;
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::acp::system_prompt;

/// Why a server is left out that cannot be read.
const MALFORMED: &str = "it is not in the form of ACP, in which `env` and `headers` are lists of \
                         objects with `name` and `value`";

impl ClientLink {
    /// Decides which of the client's MCP servers the graph gets, and reads the system prompt for it.
    pub(super) fn servers(
        &self,
        named: &NamedServers,
        system_prompt: Option<&SystemPrompt>,
    ) -> Result<ClientServers, Error> {
        let NamedServers { servers, malformed } = named;
        let settings = &self.service().settings;
        if system_prompt.is_some() && settings.system_prompt_key.is_none() {
            let message = "this agent takes no `systemPrompt`; leave it out, or set \
                           `acp.system_prompt_key` in the config file of threadway";
            return Err(Error::new(Code::InvalidParams, message));
        }
        let system_prompt = system_prompt.map(system_prompt::for_graph).transpose()?;
        let mut for_graph = ClientServers { system_prompt, ..ClientServers::default() };
        for name in malformed {
            for_graph.leave_out(name, MALFORMED);
        }
        if settings.mcp_key.is_none() {
            let why = "`acp.forward_mcp_servers` is not set in the config file of threadway";
            for server in servers {
                for_graph.leave_out(mcp::name(server), why);
            }
            return Ok(for_graph);
        }
        let mut forwarded = Vec::new();
        for server in servers {
            match ServerForGraph::of(server, settings.mcp_secrets)? {
                ServerForGraph::Whole(server) => forwarded.push(server),
                ServerForGraph::Without(server, left_out) => {
                    let left_out = left_out.join(", ");
                    tracing::warn!(
                        left_out,
                        "an MCP server is forwarded without the parts that may hold a secret; \
                         `acp.forward_mcp_secrets` forwards them, and LangGraph then stores them"
                    );
                    forwarded.push(server);
                }
                ServerForGraph::Nothing(why) => for_graph.leave_out(mcp::name(server), why),
            }
        }
        for_graph.forwarded = (!servers.is_empty()).then(|| mcp::list(&forwarded));
        Ok(for_graph)
    }

    /// Updates to send after the response. Clients do not know the session before it.
    pub(super) fn introduce(&self, sessions: &Sessions, session: &Arc<Session>) -> Work {
        let (this, sessions, session) = (self.clone(), sessions.clone(), Arc::clone(session));
        let introduce = async move {
            let commands = &this.service().settings.commands;
            if !commands.is_empty() {
                let available_commands: Vec<_> =
                    commands.iter().map(SlashCommand::offered).collect();
                let update =
                    Update::AvailableCommandsUpdate { available_commands: &available_commands };
                this.update(&session.id, &update);
            }
            for (why, names) in &session.servers.dropped {
                let news = sessions.unreported_servers(names);
                if !news.is_empty() {
                    let names = news.iter().map(|name| name.as_str());
                    this.notice(&session, &Notice::servers_dropped(names, why));
                }
            }
        };
        introduce.boxed()
    }
}
