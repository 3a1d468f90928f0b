//! Recorded streams of real servers, and their translation.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use threadway_translate::agui::{Client, Input, Projector, RunId, Version};
use threadway_translate::langgraph::{MessagesKey, StreamForm};
use threadway_translate::run::{LossReason, RunEvent, StreamEnd, Translator, View};
use threadway_translate::sse::{self, Decoder, Ending};

pub(crate) struct Capture {
    /// `<server>/<graph>-<modes>`.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// The body of the recorded request; null if it was not recorded.
    pub(crate) request: Value,
}

/// One event of a capture, read by a parser that shares no code with the gateway.
pub(crate) struct Upstream {
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// The translation of a stream.
pub(crate) struct Translated {
    /// The bytes that a client receives.
    pub(crate) bytes: Vec<u8>,
    /// The events in these bytes.
    pub(crate) events: Vec<Value>,
    pub(crate) view: View,
}

pub(crate) fn root() -> PathBuf {
    // The captures are in the root package's tests. The core's tests read them too.
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = packages.map(|package| package.join("tests"));
    folders.find(|tests| tests.join("captures").is_dir()).unwrap()
}

pub(crate) fn all() -> Vec<Capture> {
    let mut captures = Vec::new();
    for server in fs::read_dir(root().join("captures")).unwrap() {
        for file in fs::read_dir(server.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "sse") {
                captures.push(Capture::read(&path));
            }
        }
    }
    captures.sort_by(|a, b| a.name.cmp(&b.name));
    captures
}

/// Checks that the translation of every capture is the one stored in a folder of `golden`. With
/// `UPDATE_GOLDEN` set in the environment, stores the translation instead.
pub(crate) fn check_kept(folder: &str, extension: &str, translate: impl Fn(&Capture) -> Vec<u8>) {
    let mut wrong = Vec::new();
    for capture in all() {
        let path = root().join("golden").join(folder);
        let path = path.join(format!("{}.{extension}", capture.name));
        let bytes = translate(&capture);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        } else if fs::read(&path).unwrap_or_default() != bytes {
            wrong.push(capture.name);
        }
    }
    assert!(wrong.is_empty(), "these captures translate to other bytes than before: {wrong:#?}");
}

// === impl Capture ===

impl Capture {
    fn read(path: &Path) -> Self {
        let server = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let request = fs::read_to_string(path.with_extension("req")).unwrap_or_default();
        let request = request
            .lines()
            .find_map(|line| line.strip_prefix("# request body: "))
            .map_or(Value::Null, |body| serde_json::from_str(body).unwrap());
        Self { name: format!("{server}/{stem}"), bytes: fs::read(path).unwrap(), request }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::read(&root().join("captures").join(format!("{name}.sse")))
    }

    /// The request of a client that starts this run as `r1`, and holds the messages that it sends.
    pub(crate) fn input(&self) -> Value {
        let messages = self.request.pointer("/input/messages").and_then(Value::as_array);
        let sent = |message: &Value| json!({"id": message["id"], "role": "user", "content": message["content"]});
        json!({
            "threadId": "T",
            "runId": "r1",
            "protocolVersion": "1.0",
            "messages": messages.into_iter().flatten().map(sent).collect::<Vec<_>>(),
        })
    }

    /// The events, parsed without the gateway's decoder.
    pub(crate) fn upstream(&self) -> Vec<Upstream> {
        let text = String::from_utf8(self.bytes.clone()).unwrap().replace("\r\n", "\n");
        let field = |block: &str, name: &str| {
            let lines = block.lines().filter_map(|line| line.strip_prefix(name));
            lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
        };
        text.split("\n\n")
            .filter(|block| block.lines().any(|line| line.starts_with("data:")))
            .map(|block| {
                let data = field(block, "data:");
                let mut event = field(block, "event:");
                let mut data: Value = serde_json::from_str(&data).unwrap();
                if data["type"] == "event" {
                    let namespace = data["params"]["namespace"].as_array().unwrap();
                    let namespace: Vec<_> = namespace.iter().map(|s| s.as_str().unwrap()).collect();
                    if !namespace.is_empty() {
                        event = format!("{event}|{}", namespace.join("|"));
                    }
                    data = data["params"]["data"].take();
                }
                Upstream { event, data }
            })
            .collect()
    }

    pub(crate) fn translate(&self) -> Translated {
        translate(&self.bytes, &self.input())
    }
}

/// Translates bytes for the client that sent the input.
pub(crate) fn translate(bytes: &[u8], input: &Value) -> Translated {
    let input = Input::parse(input.to_string().as_bytes()).unwrap();
    let (events, view) = run_events(bytes);
    let mut translated = project(&events, Projector::new(input.client(), input.held()));
    translated.view = view;
    translated
}

/// The run events of a stream that is known only by these bytes, and the view after them.
pub(crate) fn run_events(bytes: &[u8]) -> (Vec<RunEvent>, View) {
    let mut translator = Translator::new("T", "R");
    let mut out = Vec::new();
    translator.start(&mut out);
    let end = match feed(&mut translator, bytes, &mut out) {
        Ending::Clean => StreamEnd::Complete,
        Ending::Partial { bytes } => StreamEnd::Lost {
            loss: LossReason::Incomplete,
            message: format!("{bytes} bytes of an unfinished event are left"),
        },
    };
    translator.on_end(end, &mut out);
    let view = translator.view().clone();
    (out, view)
}

/// Decodes bytes and passes the parts to the translator.
pub(crate) fn feed(translator: &mut Translator, bytes: &[u8], out: &mut Vec<RunEvent>) -> Ending {
    let mut decoder = Decoder::new();
    let (mut form, key) = (StreamForm::default(), MessagesKey::default());
    let mut scratch = String::new();
    decoder.push(bytes);
    while let Some(frame) = decoder.next_frame().unwrap() {
        translator.on_part(&form.parse(&key, &frame, &mut scratch), out);
    }
    decoder.finish()
}

pub(crate) fn project(run_events: &[RunEvent], mut projector: Projector) -> Translated {
    let (mut bytes, mut lines) = (Vec::new(), Vec::new());
    for event in run_events {
        projector.project(event, &mut |event| {
            let mut line = Vec::new();
            event.write(&mut line);
            sse::encode(&mut bytes, None, &line);
            lines.push(line);
        });
    }
    let events = lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
    Translated { bytes, events, view: View::default() }
}

/// A client of the current AG-UI version that holds nothing.
pub(crate) fn newcomer() -> Client {
    Client {
        thread_id: "T".to_owned(),
        run_id: RunId::Own("r1".to_owned()),
        parent_run_id: None,
        version: Version::V1,
    }
}
