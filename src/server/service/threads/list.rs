//! A page of the threads on which an agent ran last.

use super::permitted;
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use crate::server::request::thread_name::ThreadNames;
use crate::server::service::bool_json;
use crate::threads::{self, ListQuery};
use crate::upstream::ThreadRecord;
use threadway_translate::json::{self, Json, ObjectWriter};

/// A page of the threads of the agent that the client calls `name`.
pub(in crate::server) async fn list(
    context: &RequestContext,
    name: &str,
    query: &ListQuery,
) -> Result<Json, Reject> {
    let agent = permitted(context, name).await?;
    let metadata = threads::metadata_of_runs(&agent.assistant);
    let list = threads::list(&agent.upstream, &metadata, query);
    let (is_absent, page) = tokio::join!(agent.is_absent(), list);
    if is_absent {
        return Err(Reject::unknown_assistant(&agent.assistant, &context.caller));
    }
    let page = page.map_err(|error| context.upstream_failed(&error, agent.upstream.caller()))?;
    let threads: Vec<_> = page
        .threads
        .iter()
        .map(|thread| thread_json(thread, &client_id(thread, context.names), name))
        .collect();
    let answer = ObjectWriter::new()
        .raw("threads", json::array(threads.iter().map(|thread| thread.get())).get());
    let answer = match page.next {
        Some(next) => answer.string("nextCursor", &next.to_string()),
        None => answer.raw("nextCursor", "null"),
    };
    Ok(answer.finish())
}

/// The client's name of a thread.
pub(in crate::server::service) fn client_id(thread: &ThreadRecord, names: ThreadNames) -> String {
    // The metadata could name another thread: whoever may change it writes it.
    let is_its_own = |name: &String| names.is_of(&thread.id, name);
    thread.client_id().filter(is_its_own).unwrap_or_else(|| thread.id.clone())
}

/// A thread as CopilotKit's client reads it. Members for which LangGraph has no value are empty.
pub(in crate::server::service) fn thread_json(
    thread: &ThreadRecord,
    client_id: &str,
    agent: &str,
) -> Json {
    let time = |time: &Option<String>| time.clone().unwrap_or_default();
    let json = ObjectWriter::new()
        .string("id", client_id)
        .string("organizationId", "")
        .string("agentId", agent)
        .string("createdById", "");
    let json = match thread.title() {
        Some(name) => json.string("name", &name),
        None => json.raw("name", "null"),
    };
    let json = json
        .raw("archived", bool_json(thread.is_archived()))
        .string("createdAt", &time(&thread.created_at))
        .string("updatedAt", &time(&thread.updated_at));
    match &thread.state_updated_at {
        Some(time) => json.string("lastRunAt", time),
        None => json,
    }
    .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_clients_name_only_if_its_id_follows_from_it() {
        let listed = |id: &str, client_id: &str| {
            let metadata = ObjectWriter::new().string("threadway_thread_id", client_id).finish();
            let record = format!(r#"{{"thread_id":"{id}","metadata":{}}}"#, metadata.get());
            let record = ThreadRecord::parse(&record).unwrap();
            let json =
                thread_json(&record, &super::client_id(&record, ThreadNames::SHARED), "agent");
            json::members(&json).unwrap().string("id").unwrap().into_owned()
        };
        let (id, other) =
            ("e817c419-7e64-5f51-8a5c-c4cf14d1fb2d", "01a200b7-5ee5-70e2-95e8-b76fe45c0278");
        assert_eq!(listed(id, "my thread"), "my thread");
        assert_eq!(listed(id, "another's"), id);
        assert_eq!(listed(id, other), id);
        assert_eq!(listed(other, "my thread"), other);
    }
}
