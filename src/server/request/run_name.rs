//! A client's name for a run, which may contain the run's thread.

use std::borrow::Cow;

use super::query::param;
use super::thread_name::expect_id;
use crate::server::reject::Reject;

/// A run and its thread, as one text: `threadId=..&runId=..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct RunName {
    pub(in crate::server) thread_id: String,
    pub(in crate::server) run_id: String,
}

/// The id of a thread or a run in a query. A blank one is refused.
pub(in crate::server) fn id_param(query: &str, name: &str) -> Result<Option<String>, Reject> {
    let id = param(query, name).map(Cow::into_owned);
    id.as_deref().map_or(Ok(()), |id| expect_id(name, id))?;
    Ok(id)
}

// === impl RunName ===

impl RunName {
    /// Reads a name. Returns `None` for the plain name of a run.
    pub(in crate::server) fn parse(text: &str) -> Option<Self> {
        let rest = text.starts_with("threadId=").then_some(text)?;
        let id = |name| id_param(rest, name).ok().flatten();
        Some(Self { thread_id: id("threadId")?, run_id: id("runId")? })
    }

    pub(in crate::server) fn text(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.append_pair("threadId", &self.thread_id).append_pair("runId", &self.run_id);
        text.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_a_run_and_its_thread() {
        for (thread_id, run_id) in [("t", "r"), ("a&runId=b é+", "threadId=x&runId=y")] {
            let name = RunName { thread_id: thread_id.to_owned(), run_id: run_id.to_owned() };
            assert_eq!(RunName::parse(&name.text()), Some(name));
        }
        for other in ["", "r", "run-1-x", "runId=r&threadId=t", "threadId=t", "threadId=&runId="] {
            assert_eq!(RunName::parse(other), None, "{other}");
        }
    }
}
