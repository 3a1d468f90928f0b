//! A client's name for a thread, and LangGraph's.

use uuid::Uuid;

use crate::server::reject::Reject;
use threadway_translate::agui::{Client, RunId, Version};

/// The namespace of the thread ids that are derived from clients' names. It must never change:
/// clients would lose their threads.
const THREAD_NAMESPACE: Uuid = Uuid::from_u128(0x5d1c_e0ab_93f2_4c3e_8f0a_2b7d_64e1_97c5);

/// Whose names of threads these are: LangGraph's ids are derived from both.
///
/// LangGraph has one set of ids for all callers. A name that two callers shared would show the second
/// of them that the first has used it, and would be lost to the second for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct ThreadNames(Uuid);

/// The names of a thread.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) struct ThreadName<'a> {
    /// LangGraph's id.
    pub(in crate::server) id: String,
    /// The client's name, unless it is a UUID.
    pub(in crate::server) client_id: Option<&'a str>,
}

/// The longest id of a thread or a run, in bytes. The gateway keeps such ids as long as the thread
/// or the run is read, and sends them with events.
const MAX_ID_BYTES: usize = 1024;

/// Refuses a blank or a too long id of a thread or a run. `member` is the parameter that holds it.
pub(in crate::server) fn expect_id(member: &str, id: &str) -> Result<(), Reject> {
    if id.trim().is_empty() {
        return Err(Reject::invalid(blank(member)));
    }
    expect_short(member, id)
}

/// Refuses a too long id.
pub(in crate::server) fn expect_short(member: &str, id: &str) -> Result<(), Reject> {
    if id.len() > MAX_ID_BYTES {
        return Err(Reject::invalid(format!(
            "`{member}` is longer than {MAX_ID_BYTES} bytes; send a shorter id"
        )));
    }
    Ok(())
}

/// The message to a client whose id of a thread or a run is blank.
pub(in crate::server) fn blank(member: &str) -> String {
    format!("`{member}` is not an id: it is blank; send the id of a thread or a run")
}

/// A client that reads a thread, and has no name of its own for the thread's runs.
pub(in crate::server) fn viewer(client_thread: &str) -> Client {
    Client {
        thread_id: client_thread.to_owned(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    }
}

// === impl ThreadNames ===

impl ThreadNames {
    /// Names that all callers share, because the gateway does not know who they are.
    pub(in crate::server) const SHARED: Self = Self(THREAD_NAMESPACE);

    /// The names of one caller. `identity` must never change for that caller, whatever process
    /// serves it.
    pub(in crate::server) fn of_caller(identity: &[&str]) -> Self {
        // Where one text ends and the next begins matters too.
        let lengths = identity.iter().map(|text| text.len().to_string());
        let texts = identity.iter().map(|text| (*text).to_owned());
        let whole: Vec<_> = lengths.chain(texts).collect();
        Self(Uuid::new_v5(&THREAD_NAMESPACE, whole.join("\n").as_bytes()))
    }

    /// A UUID is LangGraph's id too, in lower case. Any other name maps to a `UUIDv5`. A blank name
    /// is refused: all clients that send one would share a thread.
    pub(in crate::server) fn thread(self, client_id: &str) -> Result<ThreadName<'_>, Reject> {
        expect_id("threadId", client_id)?;
        Ok(match Uuid::try_parse(client_id) {
            Ok(id) if client_id.len() == uuid::fmt::Hyphenated::LENGTH => {
                ThreadName { id: id.to_string(), client_id: None }
            }
            Ok(_) | Err(_) => {
                let id = Uuid::new_v5(&self.0, client_id.as_bytes());
                ThreadName { id: id.to_string(), client_id: Some(client_id) }
            }
        })
    }

    /// Whether this is LangGraph's id of the thread that the caller calls `client_id`.
    pub(in crate::server) fn is_of(self, id: &str, client_id: &str) -> bool {
        self.thread(client_id).is_ok_and(|thread| thread.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_a_thread_of_its_own_and_anything_else_gets_one() {
        for (client_id, id, is_named) in [
            ("01a200b7-5ee5-70e2-95e8-b76fe45c0278", "01a200b7-5ee5-70e2-95e8-b76fe45c0278", false),
            ("01A200B7-5EE5-70E2-95E8-B76FE45C0278", "01a200b7-5ee5-70e2-95e8-b76fe45c0278", false),
            ("01a200b75ee570e295e8b76fe45c0278", "c9910a76-2c3a-5cec-8952-fea3e1ebd5fb", true),
            ("my thread", "e817c419-7e64-5f51-8a5c-c4cf14d1fb2d", true),
        ] {
            let thread = ThreadNames::SHARED.thread(client_id).unwrap();
            assert_eq!(thread.id, id, "{client_id}");
            assert_eq!(thread.client_id.is_some(), is_named, "{client_id}");
        }
    }

    #[test]
    fn a_blank_name_is_no_name() {
        for blank in ["", " ", "\t\u{a0}\n"] {
            assert!(ThreadNames::SHARED.thread(blank).is_err(), "{blank:?}");
            assert!(!ThreadNames::SHARED.is_of("7f5b744d-5886-5daf-b4df-014a8704e229", blank));
        }
    }

    #[test]
    fn a_name_is_its_callers_own_and_a_uuid_is_everybodys() {
        let callers = [
            ThreadNames::SHARED,
            ThreadNames::of_caller(&["key", "ada"]),
            ThreadNames::of_caller(&["key", "bob"]),
            ThreadNames::of_caller(&["issuer", "ab", "c"]),
            ThreadNames::of_caller(&["issuer", "a", "bc"]),
            ThreadNames::of_caller(&["issuer", "a\nb", "c"]),
            ThreadNames::of_caller(&["issuer", "a", "b\nc"]),
        ];
        let ids: Vec<_> = callers.map(|names| names.thread("my thread").unwrap().id).to_vec();
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{:?}", callers[at]);
        }
        // It must never change.
        assert_eq!(ids[1], "a5172a85-ede9-5ca5-a935-38a488211d7c");
        let uuid = "01a200b7-5ee5-70e2-95e8-b76fe45c0278";
        assert!(callers.iter().all(|names| names.is_of(uuid, uuid)));
    }
}
