//! Compressed streams on real sockets: no event is held back, and the decoded stream equals the
//! uncompressed one.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use threadway::server::{Compression, Settings};
use tokio::time::timeout;

use crate::support::frames;
use crate::support::gateway::{
    Gateway, RUN, Response, agents, events_request, finished, input, part, post, token, values,
};

/// An event that has not arrived after this time is held back.
const HELD_BACK: Duration = Duration::from_mins(1);

/// Reads and decodes the stream of one viewer.
struct Viewer {
    name: &'static str,
    response: Response,
    decoder: Decoder,
}

enum Decoder {
    None(Vec<u8>),
    /// The decoder, and all bytes that it was given.
    Zstd(zstd::stream::write::Decoder<'static, Vec<u8>>, Vec<u8>),
    Gzip(flate2::write::GzDecoder<Vec<u8>>),
}

// === impl Decoder ===

impl Decoder {
    fn of(coding: Option<&str>) -> Self {
        match coding {
            None => Self::None(Vec::new()),
            Some("zstd") => {
                Self::Zstd(zstd::stream::write::Decoder::new(Vec::new()).unwrap(), Vec::new())
            }
            Some("gzip") => Self::Gzip(flate2::write::GzDecoder::new(Vec::new())),
            Some(other) => panic!("{other} was not requested"),
        }
    }

    /// Decodes more bytes; returns all that can be read so far.
    fn decode(&mut self, bytes: &[u8]) -> &[u8] {
        match self {
            Self::None(out) => {
                out.extend_from_slice(bytes);
                out
            }
            Self::Zstd(decoder, all) => {
                all.extend_from_slice(bytes);
                decoder.write_all(bytes).unwrap();
                decoder.flush().unwrap();
                decoder.get_ref()
            }
            Self::Gzip(decoder) => {
                decoder.write_all(bytes).unwrap();
                decoder.flush().unwrap();
                decoder.get_ref()
            }
        }
    }

    /// Whether the stream is complete, if the coding can tell.
    fn is_over(&mut self) -> bool {
        match self {
            Self::None(_) => true,
            Self::Zstd(_, all) => zstd::stream::decode_all(&**all).is_ok(),
            Self::Gzip(decoder) => decoder.try_finish().is_ok(),
        }
    }
}

// === impl Viewer ===

impl Viewer {
    /// A viewer that resumes a live run after an event. All ids of its stream are shared with other
    /// viewers.
    async fn behind(gateway: &Gateway, id: &str, accepted: &'static str) -> Self {
        let header = match accepted {
            "" => format!("last-event-id: {id}\r\n"),
            _ => format!("last-event-id: {id}\r\naccept-encoding: {accepted}\r\n"),
        };
        let request = events_request(&header, "");
        let response = Response::to(gateway.address, request.as_bytes()).await;
        let head = |name: &str| {
            response.head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
        };
        assert_eq!(head("vary: ").as_deref(), Some("accept-encoding"), "{}", response.head);
        assert_eq!(head("content-length: "), None);
        let decoder = Decoder::of(head("content-encoding: ").as_deref());
        Self { name: accepted, response, decoder }
    }

    /// Reads until this text has arrived.
    async fn until(&mut self, text: &str) {
        let Self { name, response, decoder } = self;
        let read = async {
            let mut bytes = std::mem::take(&mut response.decoded);
            while !String::from_utf8_lossy(decoder.decode(&bytes)).contains(text) {
                assert!(response.chunk().await, "{name}: the stream ended before {text:?}");
                bytes = std::mem::take(&mut response.decoded);
            }
        };
        let is_read = timeout(HELD_BACK, read).await;
        assert!(is_read.is_ok(), "{name}: {text:?} is held back");
    }

    /// Reads to the end; returns the whole decoded stream.
    async fn rest(mut self) -> Vec<u8> {
        let rest = self.response.bytes().await;
        let all = self.decoder.decode(&rest).to_vec();
        assert!(self.decoder.is_over(), "{}: the coding has no end", self.name);
        all
    }
}

async fn compressing() -> Gateway {
    let gateway = Gateway::start().await;
    let settings = Settings { compression: Compression::On, ..Settings::default() };
    gateway.server.reload(agents(&[("default", &gateway.upstream.url())], &[]), settings);
    gateway
}

fn kept(id: &str, part: &str) -> String {
    format!("id: {id}\r\n{part}")
}

/// A state that is larger than one block of compression and compresses badly. Its bytes are shared
/// by the streams that send it.
fn large(messages: &[&str]) -> Value {
    let mut seed = 7_u64;
    let noise = (0..40_000).map(|_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{:04x}", seed >> 48)
    });
    let mut state = values(messages);
    state["noise"] = json!(noise.collect::<String>());
    state
}

#[tokio::test]
async fn compressed_events_come_one_by_one_and_are_as_without_compression() {
    let gateway = compressing().await;
    let input = input(&["hi"]);
    let (mut response, mut run) = tokio::join!(gateway.post(&input), async {
        gateway.state(None).await;
        gateway.stream().await
    });
    let started = response.frames(1).await.remove(0);
    let id = frames::id(&started).unwrap();
    let mut viewers = Vec::new();
    for accepted in ["", "zstd", "gzip", "br", "gzip;q=0, zstd;q=0"] {
        viewers.push(Viewer::behind(&gateway, id, accepted).await);
    }
    for viewer in &mut viewers {
        viewer.until("retry: 3000\n\n").await;
    }
    let metadata = part("metadata", &json!({"run_id": RUN, "attempt": 1}));
    let state = part("values", &large(&["hi"]));
    run.send(kept("1000-0", &metadata) + &kept("1001-0", &state)).await;
    for viewer in &mut viewers {
        viewer.until("\"noise\"").await;
    }
    for at in 0..10 {
        let text = format!("token {at} ");
        run.send(kept(&format!("{}-0", 1002 + at), &token("a", &text))).await;
        for viewer in &mut viewers {
            viewer.until(&text).await;
        }
    }
    run.end().await;
    gateway.record("interrupted").await;
    let mut bodies = Vec::new();
    for viewer in viewers {
        bodies.push((viewer.name, viewer.rest().await));
    }
    let (_, plain) = bodies.remove(0);
    let text = String::from_utf8(plain.clone()).unwrap();
    assert!(text.ends_with(&finished("cancelled")), "{text}");
    assert!(plain.len() > 160_000);
    for (name, body) in bodies {
        // Of the ids, only those that are used once differ.
        let comparable = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            text.split_inclusive('\n')
                .filter(|line| !line.starts_with("id: 0."))
                .collect::<String>()
        };
        assert!(comparable(&body) == comparable(&plain), "{name}");
    }
}

#[tokio::test]
async fn stream_is_compressed_for_those_who_ask_where_the_operator_wants_it() {
    for (is_on, header, coding) in [
        (false, "accept-encoding: gzip, br, zstd\r\n", None),
        (true, "", None),
        (true, "accept-encoding: *\r\n", None),
        (true, "accept-encoding: gzip\r\n", Some("gzip")),
        (true, "accept-encoding: gzip, deflate, br\r\n", Some("gzip")),
        (true, "accept-encoding: br\r\n", None),
        (true, "accept-encoding: gzip;q=0.5, br\r\n", Some("gzip")),
        (true, "accept-encoding: gzip, deflate, br, zstd\r\n", Some("zstd")),
        (true, "accept-encoding: zstd;q=0.1, gzip;q=0.2\r\n", Some("gzip")),
    ] {
        let gateway = if is_on { compressing().await } else { Gateway::start().await };
        for framing in ["", "accept: application/x-ndjson\r\n"] {
            let script = async {
                gateway.state(None).await;
                let run = gateway.stream().await;
                run.end().await;
                gateway.record("interrupted").await;
            };
            let headers = format!("{header}{framing}");
            let body = input(&["hi"]).to_string();
            let (mut response, ()) = tokio::join!(post(gateway.address, &headers, &body), script);
            let head = &response.head;
            let encoded = coding.map(|coding| format!("content-encoding: {coding}\r\n"));
            match encoded {
                Some(encoded) => assert!(head.contains(&encoded), "{headers}{head}"),
                None => assert!(!head.contains("content-encoding"), "{headers}{head}"),
            }
            assert_eq!(head.contains("vary: accept-encoding\r\n"), is_on, "{headers}{head}");
            let bytes = response.bytes().await;
            let mut decoder = Decoder::of(coding);
            let text = String::from_utf8(decoder.decode(&bytes).to_vec()).unwrap();
            assert!(decoder.is_over(), "{headers}");
            assert!(text.contains("\"RUN_FINISHED\""), "{headers}{text}");
        }
        // A response that is no stream is sent uncompressed.
        let request = format!("GET /healthz HTTP/1.1\r\nhost: h\r\n{header}\r\n");
        let mut response = Response::to(gateway.address, request.as_bytes()).await;
        assert_eq!(response.body().await, "ok\n");
        let wrong = post(gateway.address, header, "{").await;
        assert!(!wrong.head.contains("content-encoding"), "{}", wrong.head);
    }
}
