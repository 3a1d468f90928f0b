//! The document of `/openapi.json` against the router, and against its own examples.
//!
//! Every server test also checks its responses against the document, in `Response::to`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::gateway::{Gateway, Response, agents};
use crate::support::openapi::{DOCUMENT, TEXT, complaint, operation, paths};
use serde_json::{Value, json};
use threadway::server::{Page, Settings};

/// The members of a path item that are no methods.
const NO_METHODS: [&str; 2] = ["parameters", "servers"];

/// The paths in `.route("..")` of a text.
fn routes(text: &str) -> BTreeSet<String> {
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(");
    let paths = text.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
    paths.map(str::to_owned).collect()
}

/// The routes of clients: those of all files of the server, without the admin listener's.
fn routes_of_source() -> BTreeSet<String> {
    fn read(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, found);
            } else if path.extension().is_some_and(|is| is == "rs") && !path.ends_with("admin.rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.extend(routes(text.split("#[cfg(test)]").next().unwrap()));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = routes(&fs::read_to_string(root.join("server.rs")).unwrap());
    read(&root.join("server"), &mut found);
    found
}

fn methods(item: &Value) -> BTreeSet<String> {
    let members = item.as_object().unwrap().keys();
    let methods = members.filter(|name| !NO_METHODS.contains(&name.as_str()));
    methods.map(|method| method.to_ascii_uppercase()).collect()
}

#[tokio::test]
async fn document_has_every_route_of_the_router_and_no_other() {
    let routes = routes_of_source();
    assert!(routes.len() >= 12, "{routes:?}");
    let documented: BTreeSet<_> = paths().into_keys().map(str::to_owned).collect();
    let missing: Vec<_> = routes.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&routes).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "src/server/openapi.json lacks {missing:?}, and the router lacks {unknown:?}"
    );

    let gateway = Gateway::start().await;
    let settings = Settings { page: Page::On, ..Settings::default() };
    let agents = agents(&[("default", &gateway.upstream.url())], &[]);
    gateway.server.reload(agents, settings);
    for (path, item) in paths() {
        // The router's 405 lists the methods that the route supports.
        let request = format!("BREW {} HTTP/1.1\r\nhost: h\r\n\r\n", path.replace(['{', '}'], ""));
        let response = Response::to(gateway.address, request.as_bytes()).await;
        assert!(response.head.starts_with("HTTP/1.1 405 "), "{path}: {}", response.head);
        let allow = response.head.lines().find_map(|line| line.strip_prefix("allow: "));
        let taken = allow.unwrap().split(',').map(|method| method.trim().to_owned());
        // Each GET supports HEAD too.
        let taken: BTreeSet<_> = taken.filter(|method| method != "HEAD").collect();
        assert_eq!(taken, methods(item), "{path}: the router's, and those of openapi.json");
    }
}

#[tokio::test]
async fn document_is_served_to_everybody() {
    let gateway = Gateway::start().await;
    let request = b"GET /openapi.json HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut response = Response::to(gateway.address, request).await;
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    assert_eq!(response.body().await, TEXT);
    assert_eq!(DOCUMENT["openapi"], "3.1.0");
    assert_eq!(DOCUMENT["info"]["version"], env!("CARGO_PKG_VERSION"));
}

/// Collects each schema that has an example, with its place in the document.
fn with_examples(value: &Value, place: &str, found: &mut Vec<(String, Value, Value)>) {
    match value {
        Value::Object(members) => {
            if let (Some(schema), Some(example)) = (members.get("schema"), members.get("example")) {
                found.push((place.to_owned(), schema.clone(), example.clone()));
                return;
            }
            for (name, member) in members {
                with_examples(member, &format!("{place}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                with_examples(item, &format!("{place}/{at}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// How a value violates a schema of the document.
fn wrong(schema: &Value, value: &Value) -> Vec<String> {
    let schema = json!({"allOf": [schema], "components": DOCUMENT["components"]});
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    validator.iter_errors(value).map(|error| error.to_string()).collect()
}

#[test]
fn examples_have_the_forms_that_the_document_gives() {
    let mut found = Vec::new();
    with_examples(&DOCUMENT, "", &mut found);
    assert!(found.len() > 25, "{}", found.len());
    for (place, schema, example) in found {
        assert_eq!(wrong(&schema, &example), Vec::<String>::new(), "{place}");
    }
    let refusal = json!({"$ref": "#/components/schemas/Refusal"});
    assert!(!wrong(&refusal, &json!({"error": "no_such_code", "message": ""})).is_empty());
}

#[tokio::test]
async fn responses_of_routes_have_the_form_that_the_document_gives() {
    let gateway = Gateway::start().await;
    let assistant = json!([{
        "assistant_id": "a", "graph_id": "agent", "name": "agent",
        "metadata": {"created_by": "system"},
    }]);
    for (line, body, asked, status) in [
        (
            "GET /agui/info",
            "",
            Some(("POST /assistants/search", 200, assistant.to_string())),
            "200",
        ),
        ("GET /agui/info", "", Some(("POST /assistants/search", 500, "{}".to_owned())), "502"),
        ("GET /readyz", "", Some(("GET /ok", 200, "{}".to_owned())), "200"),
        ("POST /agui/agent/agent/run", "{}", None, "400"),
        ("POST /agui", r#"{"method":"x"}"#, None, "400"),
        ("GET /agui/agent/agent/run/ws", "", None, "426"),
    ] {
        let request = format!(
            "{line} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: \
             {}\r\n\r\n{body}",
            body.len()
        );
        let script = async {
            if let Some((expected, status, answer)) = asked {
                gateway.upstream.expect(expected).await.json(status, &answer).await;
            }
        };
        let (mut response, ()) =
            tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
        assert_eq!(response.head.split(' ').nth(1), Some(status), "{line}");
        let answer: Value = serde_json::from_str(&response.body().await).unwrap();
        let documented = operation(&request).unwrap()["responses"].get(status).unwrap();
        let documented = crate::support::openapi::resolved(documented);
        let schema = &documented["content"]["application/json"]["schema"];
        assert_eq!(wrong(schema, &answer), Vec::<String>::new(), "{line}: {answer}");
    }
}

#[test]
fn answer_that_the_document_lacks_is_seen() {
    let run = b"POST /agui/agent/a/run HTTP/1.1\r\n\r\n";
    let head = |status, media| format!("HTTP/1.1 {status} X\r\ncontent-type: {media}\r\n\r\n");
    let complaint = |status, media| complaint(run, &head(status, media));
    assert_eq!(complaint("200", "text/event-stream"), None);
    assert_eq!(complaint("404", "application/json"), None);
    let lacks = complaint("418", "application/json").unwrap();
    assert!(lacks.contains("has no 418"), "{lacks}");
    let lacks = complaint("404", "text/html").unwrap();
    assert!(lacks.contains("has no text/html"), "{lacks}");
    assert_eq!(routes("a.route(\n    \"/x/{y}\", get(f)).route(\"/z\", p)").len(), 2);
}
