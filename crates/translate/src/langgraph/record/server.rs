//! The kind and version of a server, as `GET /info` returns it.

use std::fmt;

use crate::json;

/// The answer of `GET /info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Python or JavaScript.
    pub kind: ServerKind,
    /// The version of its API.
    pub version: String,
}

/// The kind of a LangGraph server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// `langgraph-api` for Python.
    Python,
    /// `@langchain/langgraph-api` for JavaScript.
    JavaScript,
}

// === impl ServerInfo ===

impl ServerInfo {
    /// Reads the answer of `GET /info`. `None` if the server is not LangGraph's.
    pub fn parse(body: &str) -> Option<Self> {
        let members: json::Members<'_> = serde_json::from_str(body).ok()?;
        let kind = if members.string("langgraph_py_version").is_some() {
            ServerKind::Python
        } else {
            members.string("langgraph_js_version").map(|_| ServerKind::JavaScript)?
        };
        Some(Self { kind, version: members.string("version")?.into_owned() })
    }
}

impl fmt::Display for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, version } = self;
        let kind = match kind {
            ServerKind::Python => "Python",
            ServerKind::JavaScript => "JavaScript",
        };
        write!(f, "a LangGraph server for {kind}, version {version}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_version_member() {
        let described = |body| ServerInfo::parse(body).map(|info| info.to_string());
        assert_eq!(
            described(r#"{"version":"0.16.7","langgraph_py_version":"1.2.22","flags":{}}"#)
                .as_deref(),
            Some("a LangGraph server for Python, version 0.16.7")
        );
        assert_eq!(
            described(r#"{"version":"2.0.0","langgraph_js_version":"1.7.3","context":"js"}"#)
                .as_deref(),
            Some("a LangGraph server for JavaScript, version 2.0.0")
        );
        for other in [r#"{"version":"1"}"#, r#"{"langgraph_js_version":"1"}"#, "<html>", "[]"] {
            assert_eq!(described(other), None, "{other}");
        }
    }
}
