//! Conversations of an editor, the gateway and LangGraph's runs, as scripts: one exchange a line,
//! its steps separated by `; `. A line that is indented more deeply than the first one continues the
//! line before it.
//!
//! In the steps below `A` is a session, `r` a run, `q` a request from the agent, `x` a request from
//! the editor, and `h` a held request to LangGraph. `$A`, `$r`, `$q` and `$x` are their ids, and
//! `$prompt` is that of the last prompt. `let $a JSON` names a text. Two lines may come before all
//! other steps. `rows $a $b` is followed by rows of values, and the script is played once for each
//! row. `setup NAME` opens the connection with the settings that [`setup`] has under this name.
//! `when true STEP` and `unless true STEP` play a step in some of the rows.
//!
//! - The editor: `session A`, `prompt A TEXT [r]` (and its run), `cancel A`,
//!   `request x [A] METHOD PARAMS`, `notify METHOD PARAMS`, `refused [A] METHOD PARAMS CODE TEXT`,
//!   `reply q RESULT` (a word is an option), `alive`, `hang_up`, `leave`, `another editor` (a new
//!   process). These read: `response A`, `stop A REASON`, `call [A] METHOD PARAMS`, `hears END` (of
//!   a chunk), `gets KIND` (of an update), `asked q`. `named A` is the session of the last response.
//!   `quickly STEP` fails after a second, `soon STEP` after nine; for them the clock runs ahead. For
//!   others see [`COMPOUND`].
//! - LangGraph: `thread A METADATA [MESSAGES [INTERRUPTS]]`, `live A r` and `pending A r MESSAGES`
//!   (of another process), `run r A` and `joined r` (the next start and join of a run),
//!   `replay FORM` (a recorded run), `hold LINE`, `release LINE`, `held h LINE`,
//!   `answer h STATUS BODY`, `begin h r`, `closed h`, `forget` (the requests so far).
//! - A run: `r says MESSAGE TEXT`, `r calls MESSAGE CALL TOOL ARGS`, `r sends EVENT DATA`,
//!   `r values`, `r replays` (the first event of a join). `r has MESSAGE` and
//!   `r results CALL TEXT [STATUS]` are not streamed. `r recorded STATUS` sets its state. These end
//!   it: `r asks INTERRUPTS`, `r asks_about CALL`, `r completes [MESSAGES]` (the state),
//!   `r ends STATUS [STATE]`, `r cut`, `r closed`.
//! - Checks: `is WHAT VALUE`, `has WHAT PART`, `lacks WHAT PART`, `once WHAT PART`,
//!   `last WHAT VALUE`, see [`Play::look`]; `count LINE NUMBER` of requests whose lines begin so (a
//!   space ends a line); `cancelled r ..` waits for cancels, and at the end these were all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::given::{
    self, LOADED, approval, call, current, decisions, live, options, recorded, selected, setup,
};
use crate::support::clock::{HeldClock, within};
use crate::support::editor::{Editor, Setup, outline, said};
use crate::support::gateway::part;
use crate::support::langgraph::{LangGraph, Run, Thread, state};
use crate::support::upstream::Exchange;

/// Tests, each a script.
macro_rules! scripts {
    ($($(#[$attribute:meta])* async fn $name:ident() = $text:literal;)*) => {
        $($(#[$attribute])* async fn $name() { $crate::script::play($text).await; })*
    };
}
pub(crate) use scripts;

/// Steps that are made of others.
const COMPOUND: [(&str, &str); 8] = [
    ("finish $r $a", "$r ends success; stop $a end_turn"),
    ("turn $a $text", r#"prompt $a "$text" turn; finish turn $a"#),
    ("resumed $r $a $value", r#"run $r $a; is $r/command {"resume": $value}; is $r/input none"#),
    ("withdrawn $q", r#"asked x; is x/method "$/cancel_request"; is x/params {"requestId": $$q}"#),
    ("load $a", r#"call $a session/load {"cwd": "/srv/app", "mcpServers": []}"#),
    ("resume $a", r#"call $a session/resume {"cwd": "/srv/app", "mcpServers": []}"#),
    // A run that asks before it writes.
    (
        "write $a $call $q",
        r#"
        prompt $a "write it" run; run calls m $call write {"path": "/srv/app/a.txt", "text": "a"}
        run asks_about $call; asked $q"#,
    ),
    // The agent asks about the open call before it runs a prompt.
    (
        "reject_first $a $text",
        r#"
        asked first; is first/method session/request_permission; reply first reject
        run run $a; is decisions:run [{"type": "reject"}]; run completes []
        run run $a; is run/input/messages/0/content "$text"; finish run $a"#,
    ),
];

/// How long the response to a cancel may take.
const SECOND: Duration = Duration::from_secs(1);

/// How long it may take until what others do is shown.
pub(crate) const SOON: Duration = Duration::from_secs(9);

type Names<T> = BTreeMap<String, T>;

pub(crate) struct Play {
    pub(crate) server: LangGraph,
    pub(crate) editor: Editor,
    setup: Setup,
    /// The texts behind `$` names.
    texts: Names<String>,
    /// The runs, each with the messages of its thread so far.
    pub(crate) runs: Names<(Run, Vec<Value>)>,
    held: Names<Exchange>,
    /// The bodies of runs, the agent's requests, the ids of the editor's, and the last response.
    values: Names<Value>,
    /// The params of all updates, and how many came before the last wait.
    updates: Vec<Value>,
    waited: usize,
    /// The agent's requests and cancellations since the last wait.
    requests: Vec<Value>,
    cancelled: Vec<String>,
}

/// Names the step at which a script has failed.
struct At<'a>(&'a str);

impl Drop for At<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the script failed at: {}", self.0);
        }
    }
}

/// Plays a script once, or once for each of its rows.
pub(crate) async fn play(script: &str) {
    let exchanges = exchanges(script);
    let rows = exchanges[0].strip_prefix("rows ");
    let exchanges = if rows.is_some() { &exchanges[1..] } else { &exchanges };
    let rows = words(rows.unwrap_or("$once once"));
    let is_name = |word: &&Value| text(word).starts_with('$');
    let (names, rows) = rows.split_at(rows.iter().take_while(is_name).count());
    assert!(!rows.is_empty() && rows.len().is_multiple_of(names.len()), "rows without values");
    for row in rows.chunks(names.len()) {
        let _at = At(&json!(row).to_string());
        let mut play = Play::new(named(names, row), &exchanges[0]).await;
        play.play(exchanges).await;
        play.end().await;
    }
}

/// The exchanges of a script, each with its continuation lines.
fn exchanges(script: &str) -> Vec<String> {
    let is_text = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("# ");
    let (mut exchanges, mut depth): (Vec<String>, _) = (Vec::new(), None);
    for line in script.lines().filter(is_text) {
        let own = line.len() - line.trim_start().len();
        match exchanges.last_mut() {
            Some(before) if own > *depth.get_or_insert(own) => before.extend([" ", line.trim()]),
            _ => exchanges.push(line.trim().to_owned()),
        }
        depth.get_or_insert(own);
    }
    exchanges
}

/// The steps of an exchange: its parts between semicolons that no string has.
fn steps(exchange: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let mut before = ' ';
    let is_end = |c: char| {
        is_quoted ^= c == '"' && before != '\\';
        before = c;
        c == ';' && !is_quoted
    };
    exchange.split(is_end).map(str::trim).collect()
}

/// The words of a step: JSON, and bare words as strings.
fn words(step: &str) -> Vec<Value> {
    let (mut words, mut rest) = (Vec::new(), step.trim());
    while !rest.is_empty() {
        let mut end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if rest.starts_with(['{', '[', '"']) {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter();
            words.push(values.next().unwrap().expect(rest));
            end = values.byte_offset();
        } else {
            words.push(serde_json::from_str(&rest[..end]).unwrap_or_else(|_| json!(rest[..end])));
        }
        rest = rest[end..].trim_start();
    }
    words
}

fn text(word: &Value) -> String {
    word.as_str().map_or_else(|| word.to_string(), str::to_owned)
}

/// The values of `$a $b`.
fn named(names: &[Value], values: &[Value]) -> Names<String> {
    assert_eq!(names.len(), values.len(), "a value for each of {names:?}");
    names.iter().map(|name| text(name)[1..].to_owned()).zip(values.iter().map(text)).collect()
}

/// Replaces each `$name` that is known.
fn filled(step: &str, texts: &Names<String>) -> String {
    let mut parts = step.split('$');
    let mut filled = parts.next().unwrap().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        match texts.get(&part[..end]) {
            Some(value) => filled.extend([value, &part[end..]]),
            None => filled.extend(["$", part]),
        }
    }
    filled
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

fn is_request(frame: &Value) -> bool {
    frame["method"].is_string() && frame["method"] != "session/update"
}

fn has(whole: &Value, part: &str) -> bool {
    let items = whole.as_array().filter(|items| items.iter().all(Value::is_string));
    items.map_or_else(|| text(whole).contains(part), |items| items.contains(&json!(part)))
}

/// A message of the agent by its id, new if there is none.
fn message<'a>(messages: &'a mut Vec<Value>, id: &str) -> &'a mut Value {
    let at = messages.iter().position(|message| message["id"] == id).unwrap_or_else(|| {
        messages.push(json!({"type": "ai", "id": id, "content": "", "tool_calls": []}));
        messages.len() - 1
    });
    &mut messages[at]
}

// === impl Play ===

impl Play {
    /// The beginning of a script, whose first step may be a `setup`.
    async fn new(mut texts: Names<String>, first: &str) -> Self {
        let setup_name = steps(first)[0].strip_prefix("setup ").unwrap_or("default");
        let setup_name = filled(setup_name, &texts);
        texts.extend(given::texts());
        let server = LangGraph::start().await;
        let setup = setup(&setup_name, &server);
        let mut editor = Editor::start(&server.url, &setup);
        let client = json!({"protocolVersion": 1, "clientCapabilities": setup.capabilities});
        let initialized = editor.call("initialize", client).await;
        let (runs, held) = (BTreeMap::new(), BTreeMap::new());
        let values = BTreeMap::from([("initialized".to_owned(), initialized)]);
        let (updates, requests, cancelled) = (Vec::new(), Vec::new(), Vec::new());
        let waited = 0;
        Self {
            server,
            editor,
            setup,
            texts,
            runs,
            held,
            values,
            updates,
            waited,
            requests,
            cancelled,
        }
    }

    pub(crate) async fn start(setup: &str) -> Self {
        Self::new(BTreeMap::new(), &format!("setup {setup}")).await
    }

    /// Changes the thread of a session.
    pub(crate) fn change(&self, session: &str, change: impl FnOnce(&mut Thread)) {
        change(self.server.books().threads.get_mut(&self.texts[session]).unwrap());
    }

    /// Plays a part of a script.
    pub(crate) async fn steps(&mut self, script: &str) {
        self.play(&exchanges(script)).await;
    }

    async fn play(&mut self, exchanges: &[String]) {
        for step in exchanges.iter().flat_map(|exchange| steps(exchange)) {
            let step = filled(step, &self.texts);
            let _at = At(&step);
            Box::pin(self.step(&words(&step))).await;
        }
    }

    /// Ends the connection, which must be alive.
    pub(crate) async fn end(mut self) {
        let _at = At("the end");
        if self.editor.writer.is_some() {
            self.editor.is_alive().await;
            self.editor.ended().await;
        }
        assert_eq!(sorted(self.server.cancelled()), self.cancelled, "the cancelled runs");
    }

    #[expect(clippy::too_many_lines, reason = "a table of steps")]
    async fn step(&mut self, words: &[Value]) {
        let texts: Vec<_> = words.iter().map(text).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let value = words.last().unwrap();
        match &*texts {
            ["setup", _] | [] => {}
            ["session", name] => {
                let id = self.editor.session().await;
                self.name(name, &id);
            }
            ["let", name, text] => self.name(&name[1..], text),
            [word @ ("when" | "unless"), condition, ..] => {
                assert!(["true", "false"].contains(condition), "{condition} is no condition");
                if (*word == "when") == (*condition == "true") {
                    Box::pin(self.step(&words[2..])).await;
                }
            }
            [word @ ("quickly" | "soon"), ..] => {
                let limit = if *word == "soon" { SOON } else { SECOND };
                let clock = HeldClock::pause();
                within(&clock, limit, Box::pin(self.step(&words[1..]))).await;
                drop(clock);
                tokio::time::resume();
            }
            [name, step @ ..] if self.runs.contains_key(*name) => {
                self.run_step(name, step, value).await;
            }

            ["prompt", session, text, run @ ..] => {
                let id = self.editor.prompt(&self.texts[*session], text).await;
                self.name("prompt", &id.to_string());
                self.values.insert((*session).to_owned(), json!(id));
                if let [run] = run {
                    self.starts(run, session).await;
                    assert_eq!(self.values[*run]["input"]["messages"][0]["content"], *text);
                }
            }
            ["request", name, of @ .., method, _] => {
                let params = self.params(of, value);
                let id = self.editor.request(method, params).await;
                self.name(name, &id.to_string());
                self.values.insert((*name).to_owned(), json!(id));
            }
            ["call", of @ .., method, _] => {
                let params = self.params(of, value);
                let id = self.editor.request(method, params).await;
                let response = self.response(&json!(id)).await;
                assert!(response["result"].is_object(), "{response}");
            }
            ["response", name] => drop(self.response(&self.values[*name].clone()).await),
            ["stop", session, reason] => {
                let response = self.response(&self.values[*session].clone()).await;
                assert_eq!(response["result"], json!({"stopReason": reason}), "{response}");
            }
            ["refused", of @ .., method, _, code, why] => {
                let params = self.params(of, &words[words.len() - 3]);
                let (told, message) = self.editor.refused(method, params).await;
                assert_eq!((&*told.to_string(), &*message), (*code, *why));
            }
            ["notify", method, _] => self.editor.notify(method, value.clone()).await,
            ["cancel", session] => self.editor.cancel(&self.texts[*session]).await,
            ["hears", end] => {
                let update = |frame: &Value| frame["params"]["update"]["content"]["text"].clone();
                self.until(|frame| update(frame).as_str().is_some_and(|told| told.ends_with(end)))
                    .await;
                assert_eq!(self.requests, [] as [Value; 0]);
            }
            ["gets", kind] => {
                self.until(|frame| frame["params"]["update"]["sessionUpdate"] == **kind).await;
            }
            ["named", name] => {
                let id = self.look("response/result/sessionId");
                self.name(name, id.as_str().unwrap());
            }
            ["asked", name] => {
                let request = self.until(is_request).await;
                self.name(name, &request["id"].to_string());
                self.values.insert((*name).to_owned(), request);
            }
            ["reply", name, option] => {
                let result = if value.is_string() { selected(option) } else { value.clone() };
                self.editor.reply(&self.values[*name], result).await;
            }
            ["alive"] => self.editor.is_alive().await,
            ["hang_up"] => self.editor.hang_up().await,
            ["leave"] => self.editor.ended().await,
            ["another", "editor"] => {
                self.editor.ended().await;
                self.editor = Editor::initialized(&self.server.url, &self.setup).await;
            }

            ["thread", session, _, ..] => {
                let interrupts = words.get(4).cloned().unwrap_or_else(|| json!([]));
                let state = words.get(3).map(|messages| state("r", messages, &interrupts));
                self.server.thread(LOADED, words[2].clone(), state);
                self.name(session, LOADED);
            }
            ["live", session, id] => {
                live(&self.server, &self.texts[*session], id, "running", &json!([]));
            }
            ["pending", session, id, _] => {
                live(&self.server, &self.texts[*session], id, "pending", value);
            }
            ["forget"] => self.server.books().asked.clear(),
            ["run", name, session] => self.starts(name, session).await,
            ["joined", name] => {
                let run = self.server.joined().await;
                self.plays(name, run);
            }
            ["replay", form] => self.server.replay(&recorded(form)).await,
            ["hold", line] => self.server.hold(line),
            ["release", line] => self.server.let_go_of(line),
            ["held", name, line] => {
                let exchange = self.server.held(line).await;
                let body = serde_json::from_str(&exchange.body).unwrap_or_default();
                self.values.insert((*name).to_owned(), body);
                self.held.insert((*name).to_owned(), exchange);
            }
            ["begin", held, name] => {
                let run = self.server.begin(self.held.remove(*held).unwrap()).await;
                self.plays(name, run);
            }
            ["answer", held, status, body] => {
                let held = self.held.remove(*held).unwrap();
                held.json(status.parse().unwrap(), body).await;
            }
            ["closed", held] => self.held.remove(*held).unwrap().closed().await,

            ["is", what, _] => assert_eq!(self.look(what), *value),
            ["last", what, _] => {
                assert_eq!(self.look(what).as_array().unwrap().last(), Some(value));
            }
            ["has", what, part] => assert!(has(&self.look(what), part), "{}", self.look(what)),
            ["lacks", what, part] => assert!(!has(&self.look(what), part), "{}", self.look(what)),
            ["once", what, part] => {
                assert_eq!(text(&self.look(what)).matches(part).count(), 1, "{}", self.look(what));
            }
            ["count", line, number] => {
                let books = self.server.books();
                let asked = books.asked.iter().map(|(asked, _)| format!("{asked} "));
                assert_eq!(
                    asked.filter(|asked| asked.starts_with(line)).count().to_string(),
                    *number
                );
            }
            ["cancelled", runs @ ..] => {
                self.cancelled = sorted(runs.iter().map(|&run| run.to_owned()).collect());
                let is_so = |server: &LangGraph| sorted(server.cancelled()) == self.cancelled;
                // After the editor has left there is nothing to wait for.
                if self.editor.writer.is_some() {
                    self.server.until("the cancel", is_so).await;
                }
                assert!(is_so(&self.server), "{:?}", self.server.cancelled());
            }
            [verb, values @ ..] => {
                let is_it = |(head, _): &&(&str, &str)| head.split(' ').next() == Some(verb);
                let (head, steps) = COMPOUND.iter().find(is_it).expect("a known step");
                let values: Vec<_> = values.iter().map(|value| json!(value)).collect();
                let steps = filled(steps, &named(&self::words(head)[1..], &values));
                Box::pin(self.steps(&steps)).await;
            }
        }
    }

    async fn run_step(&mut self, name: &str, texts: &[&str], value: &Value) {
        let (mut run, mut messages) = self.runs.remove(name).unwrap();
        let all = json!(messages);
        match texts {
            ["says", id, text] => {
                run.says(id, text).await;
                let message = message(&mut messages, id);
                message["content"] = json!(message["content"].as_str().unwrap().to_owned() + text);
            }
            ["calls", id, call_id, tool, _] => {
                run.calls(id, call_id, tool, value).await;
                let calls = message(&mut messages, id)["tool_calls"].as_array_mut();
                calls.unwrap().push(call(call_id, tool, value));
            }
            ["has", _] => *message(&mut messages, value["id"].as_str().unwrap()) = value.clone(),
            ["results", id, text, status @ ..] => {
                let status = status.first().unwrap_or(&"success");
                messages.push(json!({"type": "tool", "id": format!("t-{id}"), "tool_call_id": id,
                    "content": text, "status": status}));
            }
            ["sends", event, _] => run.sends(event, value).await,
            ["values"] => run.sends("values", &json!({"messages": all})).await,
            ["replays"] => {
                let values = part("values", &json!({"messages": all}));
                run.exchange.send(format!("id: 1-0\r\n{values}")).await;
            }
            ["asks", _] => return run.asks(&all, value).await,
            ["asks_about", id] => {
                let calls = messages.iter().filter_map(|message| message["tool_calls"].as_array());
                let call = calls.flatten().find(|call| call["id"] == **id).expect("a call");
                let asked = (call["name"].as_str().unwrap(), call["args"].clone());
                return run.asks(&all, &json!([approval(&format!("q-{id}"), &[asked])])).await;
            }
            ["recorded", status] => run.record(status, Some(state(&run.id, &all, &json!([])))),
            ["completes", _] => return run.ends_with(value).await,
            ["completes"] => return run.ends_with(&all).await,
            ["ends", status] => return run.ends(status, None).await,
            ["ends", status, _] => return run.ends(status, Some(value.clone())).await,
            ["cut"] => return run.exchange.cut(),
            ["closed"] => return run.exchange.closed().await,
            _ => panic!("a run has no such step"),
        }
        self.runs.insert(name.to_owned(), (run, messages));
    }

    /// What a check looks at, by a JSON pointer into: `r` (a run's body), `q` (a request of the
    /// agent), `h` (the body of a held request), `response` (the last), `initialized`, `threads`
    /// (their ids), `thread:A` (its metadata), `current:OPTION` (its value in the response),
    /// `options:q`, `decisions:r`, `statuses:CALL` (of the whole script), and since the last wait:
    /// `shown:A` (the outline of a session's updates), `updates`, `call:ID` (its members, each as it
    /// was sent last), `said` (the agent's chunks), `requests` (of the agent). What is absent is the
    /// word `none`.
    pub(crate) fn look(&self, what: &str) -> Value {
        let (name, pointer) = what.split_at(what.find('/').unwrap_or(what.len()));
        let since = self.updates[self.waited..].iter();
        let update = |params: &Value| params["update"].clone();
        let root = match name.split_once(':').unwrap_or((name, "")) {
            ("shown", session) => {
                let own = since.filter(|told| told["sessionId"] == self.texts[session]);
                json!(outline(&own.map(update).collect::<Vec<_>>()))
            }
            ("said", _) => {
                let chunks = said(&since.map(update).collect::<Vec<_>>());
                chunks.iter().map(|(id, text)| json!(format!("{id} {text}"))).collect()
            }
            ("text", session) => {
                let all = self.updates.iter();
                let own = all.filter(|told| told["sessionId"] == self.texts[session]).map(update);
                said(&own.collect::<Vec<_>>())
                    .into_iter()
                    .map(|(_, text)| text)
                    .collect::<String>()
                    .into()
            }
            ("statuses", id) => {
                let updates = self.updates.iter().map(|told| &told["update"]);
                let of_call = updates.filter(|update| update["toolCallId"] == id);
                of_call.map(|update| update["status"].clone()).filter(Value::is_string).collect()
            }
            ("updates", _) => since.cloned().collect(),
            ("call", id) => {
                let of_call = since.map(|told| &told["update"]);
                let of_call = of_call.filter(|update| update["toolCallId"] == id);
                let members = of_call.flat_map(|update| update.as_object().unwrap());
                Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect())
            }
            ("threads", _) => self.server.books().threads.keys().map(|id| json!(id)).collect(),
            ("requests", _) => json!(self.requests),
            ("thread", session) => {
                self.server.books().threads[&self.texts[session]].metadata.clone()
            }
            ("always", session) => {
                let metadata = self.server.books().threads[&self.texts[session]].metadata.clone();
                let kept = metadata.as_object().unwrap().iter();
                let kept = kept.filter(|(name, _)| name.starts_with("acp_always/"));
                kept.map(|(_, answer)| answer.clone()).collect()
            }
            ("current", option) => current(&self.values["response"]["result"], option),
            ("options", request) => json!(options(&self.values[request])),
            ("decisions", run) => json!(decisions(&self.values[run])),
            _ => self.values[name].clone(),
        };
        root.pointer(pointer).cloned().unwrap_or_else(|| json!("none"))
    }

    /// Reads up to a frame. Fails if a response comes before.
    async fn until(&mut self, is_last: impl Fn(&Value) -> bool) -> Value {
        self.waited = self.updates.len();
        self.requests.clear();
        loop {
            let frame = self.editor.next().await;
            if frame["method"] == "session/update" {
                self.updates.push(frame["params"].clone());
            }
            if is_last(&frame) {
                return frame;
            }
            assert!(frame["method"].is_string(), "another response came first: {frame}");
            self.requests.extend(Some(frame).filter(is_request));
        }
    }

    async fn response(&mut self, id: &Value) -> Value {
        let response = self.until(|frame| !frame["method"].is_string() && frame["id"] == *id).await;
        self.values.insert("response".to_owned(), response.clone());
        response
    }

    /// The params of a request, with the session if one is named.
    fn params(&self, of: &[&str], params: &Value) -> Value {
        let mut params = params.clone();
        if let [session] = of {
            params["sessionId"] = json!(self.texts[*session]);
        }
        params
    }

    /// Plays the start of a run.
    async fn starts(&mut self, name: &str, session: &str) {
        let run = self.server.run().await;
        assert_eq!(run.thread, self.texts[session], "the thread of the run");
        self.plays(name, run);
    }

    fn plays(&mut self, name: &str, run: Run) {
        let state = self.server.books().threads[&run.thread].state.clone().unwrap_or_default();
        let mut messages = state["values"]["messages"].as_array().cloned().unwrap_or_default();
        let given = run.body["input"]["messages"].as_array();
        messages.extend(given.into_iter().flatten().cloned());
        self.name(name, &run.id);
        self.values.insert(name.to_owned(), run.body.clone());
        self.runs.insert(name.to_owned(), (run, messages));
    }

    fn name(&mut self, name: &str, text: &str) {
        self.texts.insert(name.to_owned(), text.to_owned());
    }
}
