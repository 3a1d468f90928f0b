//! The agents of an upstream, as clients see them in a list.

use std::time::Duration;

use super::Upstream;
use crate::upstream::{Caller, Error};
use threadway_translate::langgraph::Assistant;

/// How long an upstream may take to list its agents for a page. CopilotKit's client gives up after
/// 5 s, and one upstream that is late must not hide the agents of the others.
const LIST_TIMEOUT: Duration = Duration::from_secs(4);

/// An agent in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAgent {
    /// The name by which clients run the agent.
    pub id: String,
    /// The name to show to people.
    pub name: String,
    /// What the agent is for.
    pub description: Option<String>,
    /// The graph that the agent runs.
    pub graph_id: String,
    /// The assistant's id. Clients may run the agent by it too.
    pub assistant_id: String,
    /// Whether the server made the assistant for the graph.
    pub is_of_graph: bool,
}

/// One upstream's answer to a request for its agents.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The upstream's name in the configuration.
    pub(crate) upstream: String,
    /// The caller, without the headers that the upstream does not get.
    pub(crate) caller: Caller,
    /// The agents, or why they could not be listed.
    pub(crate) agents: Result<Vec<ListedAgent>, Error>,
}

// === impl Listing ===

impl Listing {
    /// Renames the agents to `upstream:name`, if there are several upstreams, and adds a copy for
    /// each alias. An alias hides an agent of the same name.
    pub(super) fn with_client_names(
        mut self,
        has_several: bool,
        aliases: &[(String, String)],
    ) -> Self {
        let Self { upstream, agents: Ok(agents), .. } = &mut self else { return self };
        if has_several {
            for agent in &mut *agents {
                agent.id = format!("{upstream}:{}", agent.id);
            }
        }
        let renamed = aliases.iter().filter_map(|(alias, own_name)| {
            let agent = agents.iter().find(|agent| agent.id == *own_name)?;
            Some(ListedAgent { id: alias.clone(), ..agent.clone() })
        });
        let renamed: Vec<_> = renamed.collect();
        agents.retain(|agent| aliases.iter().all(|(alias, _)| *alias != agent.id));
        agents.splice(0..0, renamed);
        self
    }
}

// === impl Upstream ===

impl Upstream {
    /// Lists the agents under the names that the server itself uses. Waits as long as for any other
    /// answer: an editor opens no session without the list.
    pub(super) async fn list(self) -> Listing {
        let assistants = self.client.assistants(None).await;
        self.listing(assistants)
    }

    /// The same for a page. Fails after [`LIST_TIMEOUT`].
    pub(super) async fn list_in_time(self) -> Listing {
        let assistants = tokio::time::timeout(LIST_TIMEOUT, self.client.assistants(None)).await;
        self.listing(assistants.unwrap_or(Err(Error::Timeout { waited: LIST_TIMEOUT })))
    }

    fn listing(self, assistants: Result<Vec<Assistant>, Error>) -> Listing {
        let Self { name, client } = self;
        let caller = client.caller().clone();
        Listing { upstream: name, caller, agents: assistants.map(listed) }
    }
}

fn listed(assistants: Vec<Assistant>) -> Vec<ListedAgent> {
    let mut listed: Vec<_> = assistants
        .into_iter()
        .map(|assistant| {
            let Assistant { id, graph_id, name, description, is_of_graph } = assistant;
            let assistant_id = id.clone();
            let id = if is_of_graph { graph_id.clone() } else { id };
            ListedAgent { id, name, description, graph_id, assistant_id, is_of_graph }
        })
        .collect();
    // The servers list assistants by age. The graphs' own are all made at the start, in any order.
    // They come before those that people make, whatever these are called: the first of all is the
    // default agent of editors.
    let key = |agent: &ListedAgent| {
        let ListedAgent { id, name, graph_id, is_of_graph, .. } = agent.clone();
        (graph_id, !is_of_graph, name, id)
    };
    listed.sort_by_cached_key(key);
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(upstream: &str, ids: &[&str]) -> Listing {
        let listed = |id: &&str| ListedAgent {
            id: (*id).to_owned(),
            name: format!("{id}'s name"),
            description: None,
            graph_id: (*id).to_owned(),
            assistant_id: format!("id-of-{id}"),
            is_of_graph: true,
        };
        let agents = Ok(ids.iter().map(listed).collect());
        Listing { upstream: upstream.to_owned(), caller: Caller::default(), agents }
    }

    #[test]
    fn an_alias_hides_the_agent_whose_name_it_takes() {
        let pair = |id: &str, name: &str| (id.to_owned(), name.to_owned());
        let aliases = [pair("a", "b"), pair("c", "nobody")];
        let listing = listing("only", &["a", "b"]).with_client_names(false, &aliases);
        let names = listing.agents.unwrap().into_iter().map(|agent| (agent.id, agent.name));
        assert_eq!(names.collect::<Vec<_>>(), [pair("a", "b's name"), pair("b", "b's name")]);
    }
}
