//! `GET /agui/events`: one stream about many threads, so that a list of threads needs one of the six
//! connections that a browser has for HTTP/1.1.

use axum::body::Body;
use axum::extract::RawQuery;
use axum::response::Response;
use http::HeaderMap;

use super::accept;
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use crate::server::request::query::{param, params};
use crate::server::response::unbuffered;
use crate::server::service::many::{self, AskedMany, Wanted};
use crate::server::service::threads::no_agent;
use crate::server::streams::last_event::LastEvent;

/// How many threads one stream may have the marks of.
const MAX_MARKED: usize = 100;

/// How many threads one stream may have the events of. Each costs what a followed thread costs.
const MAX_FOLLOWED: usize = 20;

pub(super) async fn many(
    context: RequestContext,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let wire = accept::text_stream(&headers)?;
    let query = query.unwrap_or_default();
    let agent = param(&query, "agentId").ok_or_else(no_agent)?.into_owned();
    let (wanted, last) = (wanted(&query)?, LastEvent::of_request(&headers, &query));
    let body = many::many(context, AskedMany { agent, wanted, last, wire }).await?;
    Ok(unbuffered(wire, Body::new(body)))
}

/// The threads that a query asks for.
fn wanted(query: &str) -> Result<Wanted, Reject> {
    let mut threads: Vec<String> = Vec::new();
    for thread in params(query, "thread") {
        if !threads.iter().any(|known| *known == thread) {
            threads.push(thread.into_owned());
        }
    }
    let with_events = match param(query, "events").as_deref() {
        None => false,
        Some("all") => true,
        Some(_) => {
            return Err(Reject::invalid(
                "the only value of `events` is `all`; send `events=all`, or leave `events` out to \
                 read the marks only",
            ));
        }
    };
    let is_mine = match param(query, "threads").as_deref() {
        None => false,
        Some("mine") => true,
        Some(_) => return Err(Reject::invalid("the only value of `threads` is `mine`")),
    };
    match (is_mine, threads.is_empty()) {
        (true, true) if with_events => Err(Reject::invalid(
            "`events=all` needs the names of its threads; send `thread=A&thread=B` in place of \
             `threads=mine`",
        )),
        (true, true) => {
            let with_archived = param(query, "includeArchived").as_deref() == Some("true");
            Ok(Wanted::Mine { with_archived })
        }
        (false, false) => {
            let most = if with_events { MAX_FOLLOWED } else { MAX_MARKED };
            if threads.len() > most {
                let what = if with_events { "`events=all`" } else { "a stream" };
                return Err(Reject::invalid(format!(
                    "{what} takes at most {most} threads, and the request names {}; open another \
                     stream for the others",
                    threads.len()
                )));
            }
            Ok(Wanted::Named { threads, with_events })
        }
        (true, false) | (false, true) => Err(Reject::invalid(
            "name the threads as `thread=A&thread=B`, or send `threads=mine` for those that \
             `GET /agui/threads` lists",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_threads_or_asks_for_the_callers_own() {
        let named = |threads: &[&str], with_events| {
            let threads = threads.iter().map(|&thread| thread.to_owned()).collect();
            Some(Wanted::Named { threads, with_events })
        };
        for (query, expected) in [
            ("", None),
            ("events=all", None),
            ("thread=A&thread=B%20C&thread=A", named(&["A", "B C"], false)),
            ("events=all&thread=A", named(&["A"], true)),
            ("thread=A&events=some", None),
            ("threads=mine", Some(Wanted::Mine { with_archived: false })),
            ("threads=mine&includeArchived=true", Some(Wanted::Mine { with_archived: true })),
            ("threads=mine&thread=A", None),
            ("threads=mine&events=all", None),
            ("threads=all", None),
        ] {
            assert_eq!(wanted(query).ok(), expected, "{query}");
        }
        for (most, events) in [(MAX_MARKED, ""), (MAX_FOLLOWED, "events=all")] {
            let query = |count: usize| {
                (0..count).fold(events.to_owned(), |query, at| format!("{query}&thread={at}"))
            };
            assert!(wanted(&query(most)).is_ok());
            assert!(wanted(&query(most + 1)).is_err(), "{most}");
        }
    }
}
