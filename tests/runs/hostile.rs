//! A run reaches its clients whole, whatever happens to the connections on either side.
//!
//! The scripted server (`support/hostile.rs`) fails in every known way. The clients are cut and
//! reconnect with their last id, to the same replica or to another. The clock is paused. At the end
//! each client holds exactly what LangGraph holds.
//!
//! `PROPTEST_CASES` sets the number of runs. A failure prints the smallest case that shows it.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::capture;
use crate::support::gateway::THREAD;
use crate::support::generate::{self, StreamedText, TextKind};
use crate::support::hostile::{End, Fault, Hostile, How, Kind, Out, Outage, Restart, Script};
use crate::support::judge;
use crate::support::reduce::{Held, framed};
use crate::support::verify::Verifier;
use futures_util::future::try_join_all;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;
use threadway::metrics::Metrics;
use threadway::runs::{EventId, OwnerPolicy, RunReader, Runs};
use threadway::server::{Encoder, Outgoing, Wire};
use threadway::threads::{DEFAULT_STATE_READS_PER_SECOND, ThreadReader, Threads};
use threadway::upstream;
use threadway_translate::agui::{self, ClientMessages, Projector, RunId};
use threadway_translate::json::Json;
use threadway_translate::langgraph::{Capabilities, RunRequest, Start};
use threadway_translate::run::EmitOptions;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The number of runs, unless `PROPTEST_CASES` overrides it.
const RUNS: u32 = 300;

/// How long a client may take to its end once the server has settled: several times the gateway's
/// patience with an unreachable upstream.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long the gateway's tasks may take to end after the stop.
const SHUTDOWN: Duration = Duration::from_mins(1);

/// The pause of a client that was refused, or whose stream was lost.
const RETRY: Duration = Duration::from_secs(2);

/// How many requests and streams count as an endless loop.
const MAX_DIARY: usize = 3_000;

const NAME: &str = "r1";

/// A run and its readers.
#[derive(Clone, Debug)]
struct Case {
    script: Script,
    clients: Vec<Client>,
    log_bytes: usize,
    /// Where the reader resumes again after the end: after which event, at which replica, and
    /// whether by repeating its request for the run.
    again: Vec<(Index, usize, bool)>,
}

#[derive(Clone, Debug)]
struct Client {
    /// The milliseconds between the start of the run and this client's connect. `None`: this client
    /// starts the run.
    joins: Option<u64>,
    cuts: Vec<Cut>,
}

/// The end of a client's connection, and its reconnect.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// After how many events.
    after: usize,
    /// The milliseconds between two reads.
    nap: u64,
    /// The milliseconds until the client reconnects.
    away: u64,
    /// The replica that the client reconnects to.
    replica: usize,
    /// Whether the client repeats its request for the run, instead of connecting to the thread.
    repeats: bool,
}

/// The content and the knowledge of a client.
struct Reader<'a> {
    texts: &'a [StreamedText],
    verifier: Verifier,
    held: Held,
    /// All events that the client received, with their ids.
    heard: Vec<(Value, Option<String>)>,
    last_id: Option<String>,
    /// The ids of this stream, and of those that it continues.
    ids: HashSet<String>,
    /// The ids of events that cannot be resumed.
    used: HashSet<String>,
}

enum Stream {
    Owner(RunReader),
    Thread(ThreadReader),
}

/// How one response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// The connection was cut.
    Cut,
    /// The response ended with the error that the gateway lost the upstream.
    Lost,
    Ended,
}

// === generated cases ===

fn case() -> impl Strategy<Value = Case> {
    let log_bytes = select(&[1024 * 1024, 1024 * 1024, 1024 * 1024, 4096, 256][..]);
    let cuts = || vec(cut(), 0..6);
    let joins = prop_oneof![2 => Just(None), 1 => (0..2_000_u64).prop_map(Some)];
    let first = (joins, cuts()).prop_map(|(joins, cuts)| Client { joins, cuts });
    let other = (0..2_000_u64, cuts());
    let other = other.prop_map(|(joins, cuts)| Client { joins: Some(joins), cuts });
    let again = vec((any::<Index>(), 0..2_usize, any::<bool>()), 0..3);
    (script(), first, option::weighted(0.2, other), log_bytes, again).prop_map(
        |(mut script, first, other, log_bytes, again)| {
            script.name = first.joins.is_none().then_some(NAME);
            let clients = [first].into_iter().chain(other).collect();
            Case { script, clients, log_bytes, again }
        },
    )
}

fn cut() -> impl Strategy<Value = Cut> {
    let cut = (0..40_usize, nap(), away(), 0..2_usize, any::<bool>());
    cut.prop_map(|(after, nap, away, replica, repeats)| Cut { after, nap, away, replica, repeats })
}

fn script() -> impl Strategy<Value = Script> {
    let kind = select(&[Kind::Python, Kind::Python, Kind::JavaScript][..]);
    let end = prop_oneof![
        8 => Just(End::Succeeded),
        1 => Just(End::Asked),
        2 => Just(End::Failed),
        2 => Just(End::Cancelled),
        1 => Just(End::Gone),
        1 => Just(End::AllGone),
    ];
    let breaks_off = |end: &End| !matches!(end, End::Succeeded | End::Asked);
    let restarts = vec(restart(), 2);
    let overlaps = vec(prop_oneof![Just(0_u64), 1..3_u64, 0..600_u64], 0..6);
    let lag = prop_oneof![3 => Just(0_u64), 1 => 0..1_500_u64, 1 => 1_500..8_000_u64];
    let faults = vec(option::weighted(0.8, fault()), 0..7);
    let tale = generate::tale(2, end, breaks_off);
    let joins = (overlaps, any::<bool>());
    let waits = prop_oneof![6 => Just(0_u64), 1 => 0..3_000_u64, 1 => 3_000..30_000_u64];
    let forgets = option::weighted(0.2, prop_oneof![Just(0_u64), 0..30_000_u64]);
    let times = (waits, forgets, lag);
    (kind, tale, vec(pace(), 6..12), faults, joins, vec(outage(), 0..3), restarts, times).prop_map(
        |(kind, (tale, end), paces, faults, joins, outages, restarts, (waits, forgets, lag))| {
            let (overlaps, has_dates) = joins;
            let lag = Duration::from_millis(lag);
            Script {
                kind,
                name: None,
                tale,
                end,
                paces,
                faults,
                overlaps,
                has_dates,
                outages,
                restarts,
                waits,
                forgets,
                lag,
            }
        },
    )
}

fn pace() -> impl Strategy<Value = u64> {
    prop_oneof![
        60 => Just(0_u64),
        12 => Just(1),
        12 => 2..40_u64,
        4 => 100..900_u64,
        1 => 6_000..45_000_u64,
    ]
}

fn nap() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0_u64), 1 => 1..50_u64, 1 => 500..3_000_u64]
}

/// Both shorter and longer than the time for which a run without viewers is kept.
fn away() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0_u64), 2 => 1..2_000_u64, 1 => 9_000..40_000_u64]
}

fn fault() -> impl Strategy<Value = Fault> {
    let after = prop_oneof![1 => 0..200_usize, 3 => 0..4_000_usize, 2 => 0..20_000_usize];
    let how = prop_oneof![
        3 => Just(How::Reset),
        3 => Just(How::Cut),
        2 => Just(How::Orderly),
        2 => Just(How::Silent),
        1 => select(&[500, 502, 503][..]).prop_map(How::Refused),
        1 => Just(How::Unanswered),
    ];
    (after, how).prop_map(|(after, how)| Fault { after, how })
}

fn outage() -> impl Strategy<Value = Outage> {
    let after = prop_oneof![2 => 0..500_u64, 1 => 0..20_000_u64];
    let millis = prop_oneof![4 => 50..5_000_u64, 2 => 5_000..40_000_u64, 1 => 60_000..200_000_u64];
    let how = select(&[Out::Refused, Out::Refused, Out::Unavailable, Out::Unanswered][..]);
    (after, millis, how, any::<bool>()).prop_map(|(after, millis, how, cuts)| Outage {
        after,
        millis,
        how,
        cuts,
    })
}

fn restart() -> impl Strategy<Value = Restart> {
    let down = prop_oneof![4 => 300..8_000_u64, 1 => 60_000..150_000_u64];
    (option::of(0..6_000_u64), down, 0..3_000_u64).prop_map(|(lingers, down, pending)| Restart {
        lingers,
        down,
        pending,
    })
}

// === the property ===

proptest! {
    #![proptest_config(generate::config(RUNS))]

    #[test]
    fn a_client_ends_with_what_langgraph_holds(case in case()) {
        // This runtime advances the clock when all tasks wait.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        if let Err(why) = runtime.block_on(play(&case)) {
            return Err(TestCaseError::fail(why));
        }
    }
}

async fn play(case: &Case) -> Result<(), String> {
    let server = Hostile::start(case.script.clone());
    let upstream = upstream::Client::new(server.url().parse().unwrap(), None).unwrap();
    let stop = CancellationToken::new();
    let replicas = [0, 1].map(|_| {
        let runs =
            Runs::new(case.log_bytes, OwnerPolicy::Continue, Metrics::default(), stop.clone());
        Threads::new(runs, DEFAULT_STATE_READS_PER_SECOND)
    });
    let place = |why: String| format!("{why}\nthe server was asked:\n{:#?}", server.diary());
    let mut readers: Vec<_> =
        case.clients.iter().map(|_| Reader::new(&case.script.tale.texts)).collect();
    let deadline = async {
        server.settled().await;
        sleep(PATIENCE).await;
    };
    let reading = case
        .clients
        .iter()
        .zip(&mut readers)
        .map(|(client, reader)| read(case, client, &server, &upstream, &replicas, reader));
    let outcome = tokio::select! {
        read = try_join_all(reading) => Some(read),
        () = deadline => None,
    };
    let Some(read) = outcome else {
        let heard: Vec<_> = readers.iter().map(|reader| reader.place("it hangs")).collect();
        return Err(place(heard.join("\n")));
    };
    read.map_err(place)?;
    server.settled().await;
    for (at, replica, repeats) in &case.again {
        let Some(mut reader) = readers[0].back_to(*at) else { continue };
        let behind = reader.last_id.clone();
        let resumed = resume(case, &server, &upstream, &replicas[*replica], *repeats, &mut reader);
        let resumed = timeout(PATIENCE, resumed).await;
        let resumed = resumed.map_err(|_| "a resume at the end hangs".to_owned());
        resumed
            .and_then(|resumed| resumed)
            .map_err(|why| place(format!("resumed behind {behind:?} when all was over: {why}")))?;
    }
    let complaints = server.complaints();
    if !complaints.is_empty() || server.diary().len() > MAX_DIARY {
        return Err(place(format!("{complaints:?}")));
    }
    stop.cancel();
    for replica in &replicas {
        timeout(SHUTDOWN, replica.runs().drained())
            .await
            .map_err(|_| "a task does not end".to_owned())?;
    }
    Ok(())
}

/// Runs one client, from its first request to the run's end.
async fn read(
    case: &Case,
    client: &Client,
    server: &Hostile,
    upstream: &upstream::Client,
    replicas: &[Threads; 2],
    reader: &mut Reader<'_>,
) -> Result<(), String> {
    let abilities = capabilities(case);
    let mut first = None;
    if let Some(later) = client.joins {
        server.begin();
        sleep(Duration::from_millis(later)).await;
    } else {
        let input = Json::empty_object();
        let request = RunRequest::new("agent", NAME, Start::Input(input));
        if let Ok(stream) = upstream.start_run(THREAD, &request).await {
            let upstream = upstream.clone();
            let started = replicas[0].runs().started(upstream, abilities, THREAD, NAME, stream);
            first = Some(Stream::Owner(started));
        }
        // The run begins even if the client did not get the response.
        server.begin();
    }
    let mut cuts = client.cuts.iter();
    let (mut replica, mut repeats) = (0, false);
    loop {
        let stream = match first.take() {
            Some(stream) => Some(stream),
            None => connect(case, upstream, &replicas[replica], repeats, reader).await?,
        };
        let Some(stream) = stream else {
            sleep(RETRY).await;
            continue;
        };
        let cut = cuts.next();
        match reader.read(stream, cut).await? {
            Went::Ended => break,
            Went::Lost => sleep(RETRY).await,
            Went::Cut => {}
        }
        if let Some(cut) = cut {
            sleep(Duration::from_millis(cut.away)).await;
            (replica, repeats) = (cut.replica, cut.repeats);
        }
    }
    reader.judge(case, server)
}

/// Resumes at the reader's last event, and reads to the end.
async fn resume(
    case: &Case,
    server: &Hostile,
    upstream: &upstream::Client,
    threads: &Threads,
    repeats: bool,
    reader: &mut Reader<'_>,
) -> Result<(), String> {
    loop {
        if let Some(stream) = connect(case, upstream, threads, repeats, reader).await? {
            match reader.read(stream, None).await? {
                Went::Ended => return reader.judge(case, server),
                Went::Lost => {}
                Went::Cut => unreachable!("the response was not cut"),
            }
        }
        sleep(RETRY).await;
    }
}

/// Connects to the thread; with `repeats`, to the run from which the client has an event. `None`
/// while the server is unreachable.
async fn connect(
    case: &Case,
    upstream: &upstream::Client,
    threads: &Threads,
    repeats: bool,
    reader: &Reader<'_>,
) -> Result<Option<Stream>, String> {
    let abilities = capabilities(case);
    let last: Option<EventId> = reader.last_id.as_ref().and_then(|id| id.parse().ok());
    if repeats && reader.last_id.is_some() {
        match threads.read_again(upstream, abilities, THREAD, last.as_ref(), NAME).await {
            Ok(Some(again)) => return Ok(Some(Stream::Thread(again))),
            Ok(None) => {
                let is_there = !matches!(case.script.end, End::Gone | End::AllGone);
                if is_there && (last.is_some() || case.script.name.is_some()) {
                    return Err(reader.place("a second run would be started"));
                }
            }
            Err(_) => return Ok(None),
        }
    }
    let connected =
        threads.connect(upstream, std::future::ready(abilities), THREAD, last.as_ref()).await;
    Ok(connected.ok().map(Stream::Thread))
}

fn capabilities(case: &Case) -> Capabilities {
    match case.script.kind {
        Kind::Python => Capabilities::PYTHON,
        Kind::JavaScript => Capabilities::JAVASCRIPT,
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn new(texts: &'a [StreamedText]) -> Self {
        Self {
            texts,
            verifier: Verifier::new(),
            held: Held::default(),
            heard: Vec::new(),
            last_id: None,
            ids: HashSet::new(),
            used: HashSet::new(),
        }
    }

    /// A reader that has the events up to some id, other than the end's.
    fn back_to(&self, at: Index) -> Option<Self> {
        let is_terminal = |id: &str| id.parse().is_ok_and(|id: EventId| id.is_terminal());
        let has_id =
            |heard: &(Value, Option<String>)| heard.1.as_deref().is_some_and(|id| !is_terminal(id));
        let ids = self.heard.iter().enumerate().filter(|(_, heard)| has_id(heard));
        let ids: Vec<_> = ids.map(|(at, _)| at).collect();
        if ids.is_empty() {
            return None;
        }
        let mut reader = Self::new(self.texts);
        for (event, id) in &self.heard[..=ids[at.index(ids.len())]] {
            // The event was legal before.
            let _ = reader.hear(event.clone(), id.clone());
        }
        Some(reader)
    }

    /// Reads a response as an `EventSource` does.
    async fn read(&mut self, mut stream: Stream, cut: Option<&Cut>) -> Result<Went, String> {
        let client = match &stream {
            Stream::Owner(_) => capture::newcomer(),
            Stream::Thread(_) => agui::Client { run_id: RunId::Unnamed, ..capture::newcomer() },
        };
        let resumes = self.last_id.is_some();
        let mut encoder = if resumes {
            Encoder::resuming(Wire::Sse, client, EmitOptions::default())
        } else {
            Encoder::new(Wire::Sse, Projector::new(client, ClientMessages::Unknown))
        };
        let mut left = cut.map_or(usize::MAX, |cut| cut.after);
        let mut is_first = true;
        while left > 0 {
            let batch = match &mut stream {
                Stream::Owner(reader) => reader.next().await,
                Stream::Thread(reader) => reader.next().await,
            };
            let Some(batch) = batch else { return Err("a stream without an end".to_owned()) };
            let mut out = Outgoing::default();
            encoder.encode(&batch, &mut out);
            let bytes: Vec<_> = out.flatten().collect();
            for (event, id) in framed(&String::from_utf8(bytes).unwrap()) {
                if is_first && !resumes && event["type"] != "RUN_STARTED" {
                    return Err(format!("a stream begins with {event}"));
                }
                is_first = false;
                let went = went(&event);
                self.hear(event, id)?;
                if let Some(went) = went? {
                    return Ok(went);
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            if let Some(cut) = cut.filter(|cut| cut.nap > 0) {
                sleep(Duration::from_millis(cut.nap)).await;
            }
        }
        Ok(Went::Cut)
    }

    fn hear(&mut self, event: Value, id: Option<String>) -> Result<(), String> {
        if event["type"] == "RUN_STARTED" {
            // The previous stream may have broken off anywhere, so a new verifier begins.
            self.verifier = Verifier::new();
            self.ids.clear();
        }
        if let Some(id) = &id {
            // An id that is not an event's is given only once, even in a repeated stream.
            let ids = if id.parse::<EventId>().is_ok() { &mut self.ids } else { &mut self.used };
            if !ids.insert(id.clone()) {
                return Err(self.place(&format!("{id} comes again with {event}")));
            }
            self.last_id = Some(id.clone()).filter(|id| !id.is_empty());
        }
        let checked = self.verifier.check(&event).and_then(|()| self.held.apply(&event));
        self.heard.push((event, id));
        checked.and_then(|()| self.check_texts()).map_err(|why| self.place(&why))
    }

    fn place(&self, why: &str) -> String {
        let heard = |(event, id): &(Value, Option<String>)| {
            format!("{event} {}", id.as_deref().unwrap_or_default())
        };
        let heard: Vec<_> = self.heard.iter().map(heard).collect();
        format!("{why}\nbehind {heard:#?}")
    }

    /// Checks that each text is a prefix of the text that the server sent.
    fn check_texts(&self) -> Result<(), String> {
        let whole = |kind, id: &Value| {
            let id = id.as_str().unwrap();
            let id = id.split(":reasoning").next().unwrap_or(id).to_owned();
            self.texts.iter().filter(move |text| text.kind == kind && text.id == id)
        };
        for message in &self.held.messages {
            let kind = match message["role"].as_str() {
                Some("assistant") => TextKind::Said,
                Some("reasoning") => TextKind::Thought,
                _ => continue,
            };
            let text = judge::text_of(&message["content"]);
            // A reasoning message with an empty text deletes the reasoning that the client holds.
            if !text.is_empty()
                && !whole(kind, &message["id"]).any(|whole| whole.text.starts_with(&text))
            {
                return Err(format!("{kind:?} {}: {text:?}", message["id"]));
            }
            for call in message["toolCalls"].as_array().into_iter().flatten() {
                let args = call["function"]["arguments"].as_str().unwrap();
                let is_so = |whole: &StreamedText| {
                    whole.text.starts_with(args) || same_json(&whole.text, args)
                };
                if !whole(TextKind::Args, &call["id"]).any(is_so) {
                    return Err(format!("the arguments of {}: {args:?}", call["id"]));
                }
            }
        }
        Ok(())
    }

    /// Checks that the client's final content equals the server's.
    fn judge(&self, case: &Case, server: &Hostile) -> Result<(), String> {
        self.is_right(case, server).map_err(|why| self.place(&why))
    }

    fn is_right(&self, case: &Case, server: &Hostile) -> Result<(), String> {
        self.verifier.finish()?;
        self.check_end(case.script.end)?;
        let Some(truth) = server.truth() else { return Ok(()) };
        let held = self.held.messages.iter().filter(|message| message["role"] != "reasoning");
        let held: Vec<_> =
            held.filter(|message| message["role"] != "activity").map(shown).collect();
        let said: Vec<_> = truth.messages.iter().map(judge::shown).collect();
        if held != said {
            return Err(format!("held {held:#?}, but the truth is {said:#?}"));
        }
        if self.held.state != truth.state {
            return Err(format!("held {}, but the truth is {}", self.held.state, truth.state));
        }
        Ok(())
    }

    /// Checks that the client got the run's outcome. An idle thread shows its content only.
    fn check_end(&self, end: End) -> Result<(), String> {
        let starts = self.heard.iter().rfind(|(event, _)| event["type"] == "RUN_STARTED");
        if starts.is_some_and(|(event, _)| event["runId"].as_str().unwrap().starts_with("connect-"))
        {
            return Ok(());
        }
        let (last, _) = self.heard.last().ok_or("no event was sent")?;
        let outcome = last["outcome"]["type"].as_str().unwrap_or_default();
        let code = last["code"].as_str().unwrap_or_default();
        let expected = match end {
            End::Succeeded => ("success", ""),
            End::Asked => ("interrupt", ""),
            End::Failed => ("", "ValueError"),
            End::Cancelled | End::Gone => ("cancelled", ""),
            End::AllGone => ("", "run_gone"),
        };
        // If the task's error is the only source, the class of the error is unknown.
        let is_untold = end == End::Failed && code == "Error";
        if is_untold || (outcome, code) == expected {
            Ok(())
        } else {
            Err(format!("{end:?} was sent as {last}"))
        }
    }
}

/// How the response ended, if this is its last event.
fn went(event: &Value) -> Result<Option<Went>, String> {
    match event["type"].as_str().unwrap() {
        "RUN_FINISHED" => Ok(Some(Went::Ended)),
        "RUN_ERROR" => match event["code"].as_str().unwrap_or_default() {
            "upstream_unavailable" | "reader_too_slow" => Ok(Some(Went::Lost)),
            "internal_error" | "upstream_lost" | "gateway_shutdown" => {
                Err(format!("ended with {event}"))
            }
            _ => Ok(Some(Went::Ended)),
        },
        _ => Ok(None),
    }
}

/// The visible content of a client's message.
fn shown(message: &Value) -> judge::Shown {
    let role = match message["role"].as_str().unwrap() {
        "user" => "user",
        "assistant" => "assistant",
        "tool" => "tool",
        _ => "another",
    };
    let calls = message["toolCalls"].as_array().into_iter().flatten().map(|call| {
        let function = &call["function"];
        let args = function["arguments"].as_str().unwrap();
        let args = serde_json::from_str(args).unwrap_or_else(|_| Value::from(args));
        (judge::string(&call["id"]), judge::string(&function["name"]), args)
    });
    judge::Shown {
        id: judge::string(&message["id"]),
        role,
        text: judge::text_of(&message["content"]),
        calls: calls.collect(),
        answers: judge::string(&message["toolCallId"]),
    }
}

fn same_json(a: &str, b: &str) -> bool {
    let parse = |text| serde_json::from_str::<Value>(text).ok();
    parse(a).is_some_and(|a| Some(a) == parse(b))
}
