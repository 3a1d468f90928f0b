//! The MCP servers of a client, in the form that a graph gets.
//!
//! LangGraph stores the whole request of a run, and its API shows it. So anything that may hold a
//! secret is sent only if the operator allows it.

use agent_client_protocol_schema::v1::{HttpHeader, McpServer, Meta};
use http::Uri;
use serde_json::value::RawValue;

use super::rpc;
use crate::json::{self, Json, ObjectWriter};

/// The servers that a request names.
#[derive(Debug, Default)]
pub struct NamedServers {
    /// Those in ACP's form.
    pub servers: Vec<McpServer>,
    /// The names of the others. A server without a name is `number 2`, counted from one.
    pub malformed: Vec<String>,
}

/// Whether the secrets of MCP servers are sent to LangGraph, which stores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Secrets {
    /// Only a server's name, kind and address are sent.
    #[default]
    Withheld,
    /// Everything is sent.
    Forwarded,
}

/// What the graph gets of one server.
#[derive(Clone, Debug)]
pub enum ServerForGraph {
    /// All that the client sent.
    Whole(Json),
    /// The server without these parts, which may hold secrets.
    Without(Json, Vec<&'static str>),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

// === impl NamedServers ===

impl NamedServers {
    /// Reads `mcpServers` of a request's params. Returns also the params without the malformed
    /// servers, so that these do not refuse the whole request.
    pub fn read(params: &Json) -> (Self, Json) {
        let mut named = Self::default();
        let members = json::members(params).unwrap_or_default();
        let listed = members.get("mcpServers").map(RawValue::get);
        let listed: Option<Vec<&RawValue>> =
            listed.and_then(|list| serde_json::from_str(list).ok());
        let Some(listed) = listed else { return (named, params.clone()) };
        let mut kept = Vec::new();
        for (at, server) in listed.into_iter().enumerate() {
            if let Ok(read) = serde_json::from_str(server.get()) {
                named.servers.push(read);
                kept.push(Json::from(server));
                continue;
            }
            let name = json::members(server).and_then(|all| Some(all.string("name")?.into_owned()));
            let name = name.filter(|name| !name.is_empty());
            named.malformed.push(name.unwrap_or_else(|| format!("number {}", at + 1)));
        }
        if named.malformed.is_empty() {
            return (named, params.clone());
        }
        (named, json::with_member(params, "mcpServers", &list(&kept)))
    }
}

// === impl ServerForGraph ===

impl ServerForGraph {
    /// Prepares a server for the graph. An error if the server cannot be written.
    pub fn of(server: &McpServer, secrets: Secrets) -> Result<Self, rpc::Error> {
        let (kind, name, url, headers, meta) = match server {
            McpServer::Http(http) => ("http", &http.name, &http.url, &http.headers, &http.meta),
            McpServer::Sse(sse) => ("sse", &sse.name, &sse.url, &sse.headers, &sse.meta),
            McpServer::Stdio(_) | _ => {
                return Ok(Self::Nothing(
                    "the graph cannot start a process on the editor's machine",
                ));
            }
        };
        match secrets {
            Secrets::Forwarded => Ok(Self::Whole(rpc::result(server)?)),
            Secrets::Withheld => Ok(Self::without_secrets(kind, name, url, headers, meta.as_ref())),
        }
    }

    fn without_secrets(
        kind: &str,
        name: &str,
        url: &str,
        headers: &[HttpHeader],
        meta: Option<&Meta>,
    ) -> Self {
        let Some((address, left_out_of_url)) = address(url) else {
            return Self::Nothing("its URL cannot be read, and may hold a secret");
        };
        let others = [("headers", !headers.is_empty()), ("_meta", meta.is_some())];
        let left_out = left_out_of_url.into_iter().chain(others);
        let left_out: Vec<_> =
            left_out.filter_map(|(part, is_there)| is_there.then_some(part)).collect();
        let server = ObjectWriter::new()
            .string("type", kind)
            .string("name", name)
            .string("url", &address)
            .raw("headers", "[]")
            .finish();
        if left_out.is_empty() { Self::Whole(server) } else { Self::Without(server, left_out) }
    }
}

/// The scheme, host, port and path of a URL, and which other parts it has.
fn address(url: &str) -> Option<(String, [(&'static str, bool); 3])> {
    // `Uri` drops the fragment.
    let (whole, fragment) =
        url.split_once('#').map_or((url, None), |(url, rest)| (url, Some(rest)));
    let uri: Uri = whole.parse().ok()?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let authority = uri.authority()?;
    let port = authority.port().map_or_else(String::new, |port| format!(":{port}"));
    let address = format!("{scheme}://{}{port}{}", authority.host(), uri.path());
    let has_user = authority.as_str().contains('@');
    Some((
        address,
        [
            ("the user of its URL", has_user),
            ("the query of its URL", uri.query().is_some()),
            ("the fragment of its URL", fragment.is_some()),
        ],
    ))
}

/// The name that the client gave a server. Empty for a kind of server that is not known.
pub fn name(server: &McpServer) -> &str {
    match server {
        McpServer::Http(server) => &server.name,
        McpServer::Sse(server) => &server.name,
        McpServer::Stdio(server) => &server.name,
        _ => "",
    }
}

/// The servers as one JSON list.
pub fn list(servers: &[Json]) -> Json {
    json::array(servers.iter().map(|server| server.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(server: &str, secrets: Secrets) -> String {
        let server: McpServer = serde_json::from_str(server).unwrap();
        match ServerForGraph::of(&server, secrets).unwrap() {
            ServerForGraph::Whole(server) => server.get().to_owned(),
            ServerForGraph::Without(server, parts) => {
                format!("{} - {}", server.get(), parts.join(", "))
            }
            ServerForGraph::Nothing(why) => why.to_owned(),
        }
    }

    fn http(url: &str, more: &str) -> String {
        format!(r#"{{"type":"http","name":"docs","url":"{url}"{more}}}"#)
    }

    #[test]
    fn parts_that_may_hold_a_secret_are_not_sent() {
        const SECRET: &str = "s3cr3t";
        let header = r#","headers":[{"name":"authorization","value":"Bearer s3cr3t"}]"#;
        let meta = r#","headers":[],"_meta":{"key":"s3cr3t"}"#;
        let plain = r#","headers":[]"#;
        let clean = http("https://h:8/mcp", plain);
        for (url, more, left_out) in [
            ("https://h:8/mcp", plain, ""),
            ("https://h:8/mcp", header, " - headers"),
            ("https://h:8/mcp", meta, " - _meta"),
            ("https://h:8/mcp?key=s3cr3t", plain, " - the query of its URL"),
            ("https://h:8/mcp#s3cr3t", plain, " - the fragment of its URL"),
            ("https://me:s3cr3t@h:8/mcp", plain, " - the user of its URL"),
            (
                "https://s3cr3t@h:8/mcp?s3cr3t",
                header,
                " - the user of its URL, the query of its URL, headers",
            ),
        ] {
            let server = http(url, more);
            assert_eq!(
                forwarded(&server, Secrets::Withheld),
                format!("{clean}{left_out}"),
                "{url}"
            );
            assert_eq!(
                forwarded(&server, Secrets::Forwarded).contains(SECRET),
                server.contains(SECRET)
            );
        }
        for url in
            ["s3cr3t", "ftp://s3cr3t", "https:s3cr3t@h", "https://h\\\\@s3cr3t", "https://", ""]
        {
            let why = forwarded(&http(url, plain), Secrets::Withheld);
            assert!(why.starts_with("its URL cannot be read"), "{url}: {why}");
        }
        let sse = r#"{"type":"sse","name":"docs","url":"http://[::1]:8","headers":[]}"#;
        assert_eq!(
            forwarded(sse, Secrets::Withheld),
            r#"{"type":"sse","name":"docs","url":"http://[::1]:8/","headers":[]}"#
        );
    }

    #[test]
    fn a_malformed_server_is_left_out_alone() {
        let good = http("https://h/mcp", r#","headers":[]"#);
        for (bad, name) in [
            (r#"{"name":"bad","command":"/bin/x","args":[],"env":{"K":"V"}}"#, "bad"),
            (r#"{"type":"http","name":"bad","url":"https://h","headers":{"K":"V"}}"#, "bad"),
            (r#"{"type":"http","name":"bad","url":7,"headers":[]}"#, "bad"),
            (r#"{"name":"","url":"https://h"}"#, "number 2"),
            ("7", "number 2"),
            ("null", "number 2"),
        ] {
            let params = format!(r#"{{"cwd":"/w","mcpServers":[{good},{bad},{good}]}}"#);
            let (named, rest) = NamedServers::read(&json::raw(params));
            assert_eq!((named.servers.len(), &*named.malformed), (2, &[name.to_owned()][..]));
            assert_eq!(rest.get(), format!(r#"{{"cwd":"/w","mcpServers":[{good},{good}]}}"#));
        }
        for whole in [r#"{"cwd":"/w"}"#, r#"{"mcpServers":{"a":1}}"#, r#"{"mcpServers":[]}"#] {
            let (named, rest) = NamedServers::read(&json::raw(whole.to_owned()));
            assert_eq!((named.servers.len(), named.malformed.len(), rest.get()), (0, 0, whole));
        }
    }

    #[test]
    fn a_process_on_the_editors_machine_is_never_sent() {
        let stdio =
            r#"{"name":"x","command":"/bin/x","args":[],"env":[{"name":"K","value":"s3cr3t"}]}"#;
        for secrets in [Secrets::Withheld, Secrets::Forwarded] {
            assert!(forwarded(stdio, secrets).starts_with("the graph cannot start a process"));
        }
    }
}
