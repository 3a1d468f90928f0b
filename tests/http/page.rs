//! The demo page: its path, its headers, and the events that its inspector gets.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use threadway::agents::Emits;
use threadway::server::{Auth, Page, Settings};
use threadway_translate::run::EmitOptions;

use crate::support::gateway::{Gateway, RUN, Response, agents, input, part, refusal, refused};

const FILES: [(&str, &str); 5] = [
    ("/", "text/html; charset=utf-8"),
    ("/page/page.js", "text/javascript; charset=utf-8"),
    ("/page/page.css", "text/css; charset=utf-8"),
    ("/page/icon.svg", "image/svg+xml"),
    ("/page/licences.txt", "text/plain; charset=utf-8"),
];

fn on() -> Settings {
    Settings { page: Page::On, ..Settings::default() }
}

/// A gateway with these settings, whose agents have this `[emit]`.
async fn gateway(settings: Settings, emit: EmitOptions) -> Gateway {
    let gateway = Gateway::start().await;
    let emits = Emits { default: emit, ..Emits::default() };
    let agents = agents(&[("default", &gateway.upstream.url())], &[]);
    gateway.server.reload(agents.with_emits(emits), settings);
    gateway
}

async fn ask(gateway: &Gateway, method: &str, path: &str, headers: &str) -> Response {
    let request = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n");
    Response::to(gateway.address, request.as_bytes()).await
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The bytes of a body with a `Content-Length`.
async fn bytes(response: &mut Response) -> Vec<u8> {
    let length: usize = header(response, "content-length").unwrap().parse().unwrap();
    while response.raw.len() < length {
        response.read().await;
    }
    std::mem::take(&mut response.raw)
}

#[tokio::test]
async fn page_files_are_served_compressed_plain_and_once() {
    let gateway = gateway(on(), EmitOptions::default()).await;
    for (path, media) in FILES {
        let mut plain = ask(&gateway, "GET", path, "").await;
        assert!(plain.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", plain.head);
        assert_eq!(header(&plain, "content-type"), Some(media));
        assert_eq!(header(&plain, "content-encoding"), None);
        assert_eq!(header(&plain, "cache-control"), Some("no-cache"));
        assert_eq!(header(&plain, "vary"), Some("accept-encoding"));
        assert_eq!(header(&plain, "x-content-type-options"), Some("nosniff"));
        let tag = header(&plain, "etag").unwrap().to_owned();
        let length = header(&plain, "content-length").unwrap().to_owned();
        let body = bytes(&mut plain).await;

        for accepted in ["gzip", "br, GZIP;q=0.1", "*"] {
            let accept = format!("accept-encoding: {accepted}\r\n");
            let mut packed = ask(&gateway, "GET", path, &accept).await;
            assert_eq!(header(&packed, "content-encoding"), Some("gzip"), "{accepted}");
            assert_eq!(header(&packed, "etag"), Some(&*tag));
            let mut unpacked = Vec::new();
            GzDecoder::new(&*bytes(&mut packed).await).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, body);
        }
        for refused in ["br", "gzip;q=0", "*;q=0", "gzip;q=0, *"] {
            let accept = format!("accept-encoding: {refused}\r\n");
            let response = ask(&gateway, "GET", path, &accept).await;
            assert_eq!(header(&response, "content-encoding"), None, "{refused}");
        }

        for held in [&*tag, &*format!("\"x\", {tag}"), tag.strip_prefix("W/").unwrap(), "*"] {
            let held = format!("if-none-match: {held}\r\n");
            let unchanged = ask(&gateway, "GET", path, &held).await;
            assert!(unchanged.head.starts_with("HTTP/1.1 304 "), "{held}: {}", unchanged.head);
            assert_eq!(header(&unchanged, "etag"), Some(&*tag));
            assert_eq!(header(&unchanged, "content-type"), None);
        }
        let other = ask(&gateway, "GET", path, "if-none-match: W/\"0-1\"\r\n").await;
        assert!(other.head.starts_with("HTTP/1.1 200 "), "{}", other.head);

        let head = ask(&gateway, "HEAD", path, "connection: close\r\n").await;
        assert!(head.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", head.head);
        assert_eq!(header(&head, "content-length"), Some(&*length));
        head.closed().await;
    }
}

#[tokio::test]
async fn page_may_run_and_ask_nothing_but_what_the_gateway_serves() {
    let gateway = gateway(on(), EmitOptions::default()).await;
    for (path, _) in FILES {
        let response = ask(&gateway, "GET", path, "").await;
        let policy = header(&response, "content-security-policy").unwrap().to_owned();
        let directives: Vec<_> = policy.split("; ").collect();
        for directive in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ] {
            assert!(directives.contains(&directive), "{directive} in {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(header(&response, "x-frame-options"), Some("DENY"));
        assert_eq!(header(&response, "referrer-policy"), Some("no-referrer"));
    }
    let document = ask(&gateway, "GET", "/", "").await.body().await;
    for inline in ["<style", " style=", "javascript:", " onclick=", " onload=", "http:", "https:"] {
        assert!(!document.contains(inline), "{inline} in {document}");
    }
    for script in document.split("<script").skip(1) {
        assert!(script.starts_with(" type=\"module\" src=\"page/page.js\"></script>"), "{script}");
    }
}

#[tokio::test]
async fn path_that_is_no_file_of_the_page_is_refused() {
    let gateway = gateway(on(), EmitOptions::default()).await;
    for path in ["/page/nothing.js", "/page/", "/page/..", "/index.html", "/favicon.ico"] {
        let what = format!(
            "there is no route {path}; runs are started with POST /agui/agent/{{agent}}/run, and \
             GET /agui/info names the agents"
        );
        let mut response = ask(&gateway, "GET", path, "").await;
        let expected = refusal("404 Not Found", "unknown_route", &what);
        assert_eq!(refused(&mut response).await, expected, "{path}");
    }
    let mut post = ask(&gateway, "POST", "/", "content-length: 0\r\n").await;
    let what = "/ does not allow POST; use a method that the `allow` header names";
    assert_eq!(refused(&mut post).await, refusal("405 Method Not Allowed", "wrong_method", what));
}

#[tokio::test]
async fn page_address_is_empty_without_the_page() {
    let gateway = Gateway::start().await;
    for (path, _) in FILES {
        let response = ask(&gateway, "GET", path, "").await;
        assert!(response.head.starts_with("HTTP/1.1 404 "), "{path}: {}", response.head);
        assert_eq!(header(&response, "content-type"), Some("application/json"));
        assert_eq!(header(&response, "content-security-policy"), None);
    }
}

#[tokio::test]
async fn page_itself_needs_no_key_and_what_it_asks_does() {
    let keys = "ada=0123456789abcdef".parse().unwrap();
    let settings = Settings { auth: Auth::Bearer(keys), ..on() };
    let gateway = gateway(settings, EmitOptions::default()).await;
    let page = ask(&gateway, "GET", "/", "").await;
    assert!(page.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", page.head);
    let info = ask(&gateway, "GET", "/agui/info", "").await;
    assert!(info.head.starts_with("HTTP/1.1 401 "), "{}", info.head);
}

/// The whole stream of a run, for a client with this query.
async fn stream(gateway: &Gateway, query: &str) -> String {
    let body = input(&["hi"]).to_string();
    let request = format!(
        "POST /agui/agent/agent/run{query} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (mut response, run) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), async {
            gateway.state(None).await;
            let mut run = gateway.stream().await;
            run.send(part("metadata", &json!({"run_id": RUN, "attempt": 1}))).await;
            let usage = json!({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3});
            let chunk = json!({
                "type": "AIMessageChunk", "id": "a", "content": "yes", "usage_metadata": usage,
            });
            run.send(part("messages", &json!([chunk, {"langgraph_node": "n"}]))).await;
            run
        });
    let mut told = String::new();
    while !told.contains("TEXT_MESSAGE_CONTENT") {
        told += &response.frame().await;
    }
    run.end().await;
    gateway.status("success").await;
    gateway.state(None).await;
    told += &response.body().await;
    told
}

#[tokio::test]
async fn inspector_is_shown_parts_and_run_events_where_nothing_is_hidden() {
    let quiet = EmitOptions { reasoning: false, ..EmitOptions::default() };
    for (query, page, emit, is_shown) in [
        ("?raw=true", Page::On, EmitOptions::default(), true),
        ("", Page::On, EmitOptions::default(), false),
        ("?raw=false", Page::On, EmitOptions::default(), false),
        ("?raw=true", Page::Off, EmitOptions::default(), false),
        ("?raw=true", Page::On, quiet, false),
    ] {
        let gateway = gateway(Settings { page, ..Settings::default() }, emit).await;
        let told = stream(&gateway, query).await;
        let case = format!("{query} {page:?}: {told}");
        assert_eq!(told.contains("\"rawEvent\":{\"event\":\"messages\""), is_shown, "{case}");
        let comments = told.lines().filter_map(|line| line.strip_prefix(": run "));
        let names: Vec<_> = comments.map(|told| told.split_once(' ').unwrap().1).collect();
        // Parts without an event of their own, such as a call's usage, are named too.
        for name in ["started", "text started", "text", "spent", "ended"] {
            assert_eq!(names.contains(&name), is_shown, "{name}: {case}");
        }
        let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
        let told: Vec<Value> = data.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(told.last().unwrap()["type"], "RUN_FINISHED");
    }
}
