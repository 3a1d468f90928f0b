//! Mutations that keep the form of an input: the events of a stream, the JSON of a document. All
//! other mutations are libFuzzer's, which know no form.

use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Map, Value, json};
use threadway_translate::sse::Decoder;

/// Words of streams. libFuzzer's mutations use the same dictionaries.
const STREAM_WORDS: &str = include_str!("../dict/stream.dict");

/// Words of requests.
const INPUT_WORDS: &str = include_str!("../dict/input.dict");

/// Words of an editor's lines.
const RPC_WORDS: &str = include_str!("../dict/rpc.dict");

/// The most mutations at once. More would destroy the input that coverage has chosen.
const MOST_AT_ONCE: usize = 4;

/// Parts that are rarely found by chance.
const PARTS: [(&str, &str); 14] = [
    ("metadata", r#"{"run_id":"R","attempt":1}"#),
    ("metadata", r#"{"run_id":"R","attempt":2}"#),
    (
        "values",
        r#"{"messages":[{"type":"human","id":"m0","content":"a"},{"type":"ai","id":"m1","content":"b"}]}"#,
    ),
    (
        "values",
        r#"{"k":1,"__interrupt__":[{"id":"I","value":{"action_requests":[{"name":"f","args":{}}],"review_configs":[{"action_name":"f","allowed_decisions":["approve"]}]}}]}"#,
    ),
    ("updates", r#"{"model":{"messages":[{"type":"ai","id":"m1","content":"b"}]}}"#),
    (
        "messages",
        r#"[{"type":"AIMessageChunk","id":"m1","content":"b","tool_call_chunks":[{"index":0,"id":"c0","name":"f","args":"{}"}]},{"langgraph_node":"model","langgraph_step":1,"langgraph_checkpoint_ns":"model:t1"}]"#,
    ),
    (
        "messages",
        r#"[{"type":"tool","id":"m2","tool_call_id":"c0","content":"d","status":"error"},{}]"#,
    ),
    (
        "messages/partial",
        r#"[{"type":"ai","id":"m1","content":"bb","tool_calls":[{"id":"c0","name":"f","args":{"x":1}}]}]"#,
    ),
    (
        "events",
        r#"{"event":"on_chat_model_stream","run_id":"e1","data":{"chunk":{"type":"AIMessageChunk","id":"m1","content":"b"}},"metadata":{"langgraph_node":"model"}}"#,
    ),
    (
        "tasks",
        r#"{"id":"t1","name":"model","input":{},"triggers":["x"],"metadata":{"lc_agent_name":"a"}}"#,
    ),
    ("tasks", r#"{"id":"t1","name":"model","error":null,"result":[],"interrupts":[]}"#),
    ("error", r#"{"error":"ValueError","message":"boom"}"#),
    ("@gap", ""),
    ("@state", r#"{"values":{"k":1,"messages":[]},"next":[],"tasks":[]}"#),
];

/// Separates the documents of a request.
const SEPARATOR: &str = "\n---\n";

/// A stream in a form that can be mutated.
struct Stream {
    /// The comment at its start.
    dials: String,
    parts: Vec<Part>,
}

#[derive(Clone)]
struct Part {
    event: String,
    data: String,
    id: Option<String>,
}

/// A pseudo-random generator, the same numbers for the same seed.
struct Dice {
    state: u64,
    words: Vec<&'static str>,
}

/// Mutates an event stream and its events.
pub fn stream(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut dice = Dice::new(seed, STREAM_WORDS);
    if dice.coin() {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut stream = Stream::read(&data[..size]);
    for _ in 0..=dice.below(MOST_AT_ONCE) {
        stream.mutate(&mut dice);
    }
    while stream.write().len() > max_size && !stream.parts.is_empty() {
        stream.parts.remove(dice.below(stream.parts.len()));
    }
    put(data, stream.write().as_bytes(), max_size)
}

/// Mutates the JSON documents of a request.
pub fn documents(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutate_documents(data, size, max_size, Dice::new(seed, INPUT_WORDS))
}

/// Mutates a JSON-RPC message.
pub fn line(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutate_documents(data, size, max_size, Dice::new(seed, RPC_WORDS))
}

fn mutate_documents(data: &mut [u8], size: usize, max_size: usize, mut dice: Dice) -> usize {
    let text = String::from_utf8_lossy(&data[..size]).into_owned();
    let mut documents: Vec<_> = text.splitn(3, SEPARATOR).map(str::to_owned).collect();
    let at = dice.below(documents.len());
    let donor = parse(&documents[dice.below(documents.len())]);
    let Ok(mut document) = serde_json::from_str(&documents[at]) else {
        return fuzzer_mutate(data, size, max_size);
    };
    if dice.coin() {
        return fuzzer_mutate(data, size, max_size);
    }
    for _ in 0..=dice.below(MOST_AT_ONCE) {
        mutate_somewhere(&mut document, &donor, &mut dice);
    }
    documents[at] = document.to_string();
    put(data, documents.join(SEPARATOR).as_bytes(), max_size)
}

fn put(data: &mut [u8], new: &[u8], max_size: usize) -> usize {
    let size = new.len().min(max_size);
    data[..size].copy_from_slice(&new[..size]);
    size
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

// === impl Stream ===

impl Stream {
    fn read(bytes: &[u8]) -> Self {
        let dials = bytes.strip_prefix(b": ").unwrap_or_default();
        let dials = dials.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut parts = Vec::new();
        let mut decoder = Decoder::new();
        decoder.push(bytes);
        // libFuzzer's own mutations handle an incomplete event at the end.
        while let Ok(Some(frame)) = decoder.next_frame() {
            parts.push(Part {
                event: frame.event.as_deref().unwrap_or_default().to_owned(),
                data: frame.data.as_deref().unwrap_or_default().to_owned(),
                id: frame.id.as_deref().map(str::to_owned),
            });
        }
        Self { dials: String::from_utf8_lossy(dials).into_owned(), parts }
    }

    fn write(&self) -> String {
        let mut text = String::new();
        if !self.dials.is_empty() {
            text = format!(": {}\n", self.dials);
        }
        for Part { event, data, id } in &self.parts {
            text += &format!("event: {event}\n");
            for line in data.split('\n') {
                text += &format!("data: {line}\n");
            }
            if let Some(id) = id {
                text += &format!("id: {id}\n");
            }
            text.push('\n');
        }
        text
    }

    fn mutate(&mut self, dice: &mut Dice) {
        let count = self.parts.len();
        let donor = match count {
            0 => Value::Null,
            _ => parse(&self.parts[dice.below(count)].data),
        };
        match dice.below(16) {
            0 => self.turn_a_dial(dice),
            1 | 2 => {
                let (event, data) = PARTS[dice.below(PARTS.len())];
                let id = Some(format!("{}-0", dice.below(20)));
                let part = Part { event: event.to_owned(), data: data.to_owned(), id };
                self.parts.insert(dice.below(count + 1), part);
            }
            _ if count == 0 => {}
            3 => drop(self.parts.remove(dice.below(count))),
            4 => {
                let part = self.parts[dice.below(count)].clone();
                self.parts.insert(dice.below(count + 1), part);
            }
            5 => self.parts.swap(dice.below(count), dice.below(count)),
            6 => self.parts[dice.below(count)].rename(dice),
            7 => {
                let ids = [None, Some(format!("{}-0", dice.below(30))), Some(dice.word())];
                self.parts[dice.below(count)].id = ids[dice.below(3)].clone();
            }
            8 => self.parts.truncate(1 + dice.below(count)),
            _ => {
                let part = &mut self.parts[dice.below(count)];
                let mut data = parse(&part.data);
                mutate_somewhere(&mut data, &donor, dice);
                part.data = data.to_string();
            }
        }
    }

    fn turn_a_dial(&mut self, dice: &mut Dice) {
        let mut dials: Vec<_> = self.dials.chars().collect();
        dials.resize(dials.len().clamp(5, 8), '0');
        let at = dice.below(dials.len());
        dials[at] = char::from(b'0' + dice.below(70) as u8);
        self.dials = dials.into_iter().collect();
    }
}

impl Part {
    fn rename(&mut self, dice: &mut Dice) {
        const NAMESPACES: [&str; 4] = ["", "|child:t9", "|child:t9|tools:t8", "|model:t1"];
        const NAMES: [&str; 16] = [
            "values",
            "updates",
            "messages",
            "messages/partial",
            "messages/complete",
            "messages/metadata",
            "events",
            "custom",
            "tasks",
            "error",
            "lifecycle",
            "@base",
            "@checkpoint",
            "@state",
            "@input",
            "@named",
        ];
        let name = self.event.split('|').next().unwrap_or_default().to_owned();
        let name = if dice.coin() { name.as_str() } else { NAMES[dice.below(NAMES.len())] };
        self.event = format!("{name}{}", NAMESPACES[dice.below(NAMESPACES.len())]);
    }
}

// === JSON ===

/// Mutates one node, chosen with equal probability.
fn mutate_somewhere(value: &mut Value, donor: &Value, dice: &mut Dice) {
    let mut at = dice.below(count(value));
    let donated = node(donor, &mut dice.below(count(donor))).cloned().unwrap_or_default();
    if let Some(node) = node_mut(value, &mut at) {
        mutate_node(node, donated, dice);
    }
}

fn mutate_node(node: &mut Value, donated: Value, dice: &mut Dice) {
    match (dice.below(8), &mut *node) {
        (0, _) => *node = donated,
        (1, _) => *node = dice.scalar(),
        (2, _) if dice.coin() => *node = json!([node.take()]),
        (2, _) => *node = json!({ dice.word(): node.take() }),
        (_, Value::Object(members)) => mutate_members(members, donated, dice),
        (_, Value::Array(items)) => match (dice.below(5), items.len()) {
            (0, _) | (_, 0) => items.push(donated),
            (1, count) => drop(items.remove(dice.below(count))),
            (2, count) => items.swap(dice.below(count), dice.below(count)),
            (3, count) => {
                let item = items[dice.below(count)].clone();
                items.insert(dice.below(count), item);
            }
            (_, count) => items.truncate(dice.below(count)),
        },
        (_, Value::String(text)) => {
            *node = match dice.below(6) {
                0 => Value::from(""),
                1 => Value::from(format!("{text}{text}")),
                2 => Value::from(text.chars().take(text.chars().count() / 2).collect::<String>()),
                3 => Value::from(format!("{text}{}", dice.word())),
                _ => Value::from(dice.word()),
            }
        }
        _ => *node = dice.scalar(),
    }
}

fn mutate_members(members: &mut Map<String, Value>, donated: Value, dice: &mut Dice) {
    let names: Vec<_> = members.keys().cloned().collect();
    match (dice.below(4), names.len()) {
        (0, _) | (_, 0) => drop(members.insert(dice.word(), donated)),
        (1, count) => drop(members.shift_remove(&names[dice.below(count)])),
        (2, count) => {
            let value = members.shift_remove(&names[dice.below(count)]).unwrap_or_default();
            members.insert(dice.word(), value);
        }
        (_, count) => {
            let value = dice.scalar();
            members.insert(names[dice.below(count)].clone(), value);
        }
    }
}

fn count(value: &Value) -> usize {
    1 + children(value).map(count).sum::<usize>()
}

fn node<'a>(value: &'a Value, at: &mut usize) -> Option<&'a Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    children(value).find_map(|child| node(child, at))
}

fn node_mut<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|child| node_mut(child, at)),
        Value::Object(members) => members.values_mut().find_map(|child| node_mut(child, at)),
        _ => None,
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => Box::new(std::iter::empty()),
    }
}

// === impl Dice ===

impl Dice {
    fn new(seed: u32, words: &'static str) -> Self {
        let words = words.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
        Self {
            // Neighbouring seeds must give distant states, and no state may be zero.
            state: (u64::from(seed) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            words: words.filter(|word| !word.contains('\\')).collect(),
        }
    }

    /// xorshift64*
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn word(&mut self) -> String {
        let at = self.below(self.words.len());
        self.words[at].to_owned()
    }

    fn scalar(&mut self) -> Value {
        match self.below(12) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(false),
            3 => json!(0),
            4 => json!(-1),
            5 => json!(u64::MAX),
            6 => json!(1.5),
            7 => json!([]),
            8 => json!({}),
            9 => json!(self.below(5)),
            _ => json!(self.word()),
        }
    }
}
