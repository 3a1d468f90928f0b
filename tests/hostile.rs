//! A run that reaches its clients whole, whatever becomes of the connections on either side.
//!
//! The server is scripted and hostile (`support/hostile.rs`), the clients are cut and come again,
//! to the same replica or to another, with the last id that they were told. Time is paused. In the
//! end each holds exactly what LangGraph does.
//!
//! `PROPTEST_CASES` sets how many runs there are; a failure prints the smallest that shows it.

#![cfg(test)]

mod support;

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;
use support::capture;
use support::gateway::THREAD;
use support::generate::{self, StreamedText, TextKind};
use support::hostile::{End, Fault, Hostile, How, Kind, Outage, Restart, Script};
use support::judge;
use support::verify::Verifier;
use threadway::agui::Projector;
use threadway::json::Json;
use threadway::langgraph::{RunRequest, ServerKind, Start};
use threadway::run::{Message, Outcome, Role, RunEvent, View};
use threadway::runs::{EventId, OwnerPolicy, RunReader, Runs, ThreadReader};
use threadway::upstream::Client;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Runs unless `PROPTEST_CASES` says otherwise.
const RUNS: u32 = 300;

/// How long a client may take to its end, once the server has settled: the gateway's patience with
/// an upstream that is away, some times over.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long the gateway's tasks may take to end when they are told to.
const SHUTDOWN: Duration = Duration::from_mins(1);

/// The pause of a client that was refused, or whose stream was lost.
const RETRY: Duration = Duration::from_secs(2);

/// How many requests are taken for a loop that never rests.
const MAX_REQUESTS: usize = 3_000;

const NAME: &str = "r1";

/// A run, and who reads it.
#[derive(Clone, Debug)]
struct Case {
    script: Script,
    /// How the client comes: it starts the run, or so many milliseconds after its start.
    joins: Option<u64>,
    cuts: Vec<Cut>,
    log_bytes: usize,
    /// Where it resumes once more when all is over.
    again: Vec<(Index, usize)>,
}

/// The end of a client's connection, and how it comes again.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// After so many events.
    after: usize,
    /// The milliseconds between what it reads.
    nap: u64,
    /// So many milliseconds later.
    away: u64,
    /// To this replica.
    replica: usize,
}

/// What a client holds and knows.
struct Reader<'a> {
    texts: &'a [StreamedText],
    projector: Projector,
    verifier: Verifier,
    view: View,
    /// What it held when its stream began.
    base: View,
    /// All that it was told since then.
    heard: Vec<Heard>,
    /// How much of it stands up to the last id.
    resumable: usize,
}

#[derive(Clone)]
struct Heard {
    event: RunEvent,
    id: Option<EventId>,
}

enum Stream {
    Owner(RunReader),
    Thread(ThreadReader),
}

/// How one response went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// It was cut.
    Cut,
    /// It told that the gateway lost sight.
    Lost,
    Ended,
}

// === what may be ===

fn case() -> impl Strategy<Value = Case> {
    let cut = (0..40_usize, nap(), away(), 0..2_usize)
        .prop_map(|(after, nap, away, replica)| Cut { after, nap, away, replica });
    let log_bytes = prop_oneof![3 => Just(1024 * 1024), 1 => Just(4 * 1024)];
    let joins = prop_oneof![2 => Just(None), 1 => (0..2_000_u64).prop_map(Some)];
    let again = vec((any::<Index>(), 0..2_usize), 0..3);
    (script(), joins, vec(cut, 0..6), log_bytes, again).prop_map(
        |(mut script, joins, cuts, log_bytes, again)| {
            script.name = joins.is_none().then_some(NAME);
            Case { script, joins, cuts, log_bytes, again }
        },
    )
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
    let repeats = vec(prop_oneof![Just(0_usize), 1..3_usize, 0..20_usize], 0..6);
    let lag = prop_oneof![3 => Just(0_u64), 1 => 0..1_500_u64, 1 => 1_500..8_000_u64];
    let faults = vec(option::weighted(0.8, fault()), 0..7);
    let tale = generate::tale(2, end, breaks_off);
    (kind, tale, vec(pace(), 6..12), faults, repeats, vec(outage(), 0..3), restarts, lag).prop_map(
        |(kind, (tale, end), paces, faults, repeats, outages, restarts, lag)| {
            let lag = Duration::from_millis(lag);
            Script { kind, name: None, tale, end, paces, faults, repeats, outages, restarts, lag }
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

/// Shorter and longer than a run that nobody reads is kept.
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
    ];
    (after, how).prop_map(|(after, how)| Fault { after, how })
}

fn outage() -> impl Strategy<Value = Outage> {
    let after = prop_oneof![2 => 0..500_u64, 1 => 0..20_000_u64];
    let millis = prop_oneof![4 => 50..5_000_u64, 2 => 5_000..40_000_u64, 1 => 60_000..200_000_u64];
    (after, millis, any::<bool>(), any::<bool>())
        .prop_map(|(after, millis, answers, cuts)| Outage { after, millis, answers, cuts })
}

fn restart() -> impl Strategy<Value = Restart> {
    let down = prop_oneof![4 => 0..8_000_u64, 1 => 60_000..150_000_u64];
    (option::of(0..6_000_u64), down, 0..3_000_u64).prop_map(|(lingers, down, pending)| Restart {
        lingers,
        down,
        pending,
    })
}

// === what must be ===

proptest! {
    #![proptest_config(generate::config(RUNS))]

    #[test]
    fn a_client_ends_with_what_langgraph_holds(case in case()) {
        // A clock that moves when there is nothing left to do.
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
    let upstream = Client::new(server.url().parse().unwrap(), None).unwrap();
    let stop = CancellationToken::new();
    let replicas = [0, 1].map(|_| Runs::new(case.log_bytes, OwnerPolicy::Continue, stop.clone()));
    let place = |why: String| format!("{why}\nthe server was asked:\n{:#?}", server.requests());
    let mut reader = Reader::new(&case.script.tale.texts);
    let deadline = async {
        server.settled().await;
        sleep(PATIENCE).await;
    };
    tokio::select! {
        read = read(case, &server, &upstream, &replicas, &mut reader) => read.map_err(place)?,
        () = deadline => {
            let heard: Vec<_> = reader.heard.iter().map(|heard| &heard.event).collect();
            return Err(place(format!("it hangs, and was told {heard:#?}")));
        }
    }
    server.settled().await;
    for (at, replica) in &case.again {
        let Some(mut reader) = reader.back_to(*at) else { continue };
        let resumed = resume(case, &server, &upstream, &replicas[*replica], &mut reader);
        let resumed = timeout(PATIENCE, resumed).await;
        let resumed = resumed.map_err(|_| "a resume at the end hangs".to_owned());
        resumed.and_then(|resumed| resumed).map_err(|why| {
            place(format!("resumed at {:?} behind the end: {why}", reader.last_id()))
        })?;
    }
    let complaints = server.complaints();
    if !complaints.is_empty() || server.requests().len() > MAX_REQUESTS {
        return Err(place(format!("{complaints:?}")));
    }
    stop.cancel();
    for runs in &replicas {
        timeout(SHUTDOWN, runs.drained()).await.map_err(|_| "a task does not end".to_owned())?;
    }
    Ok(())
}

/// One client, from its first request to the run's end.
async fn read(
    case: &Case,
    server: &Hostile,
    upstream: &Client,
    replicas: &[Runs; 2],
    reader: &mut Reader<'_>,
) -> Result<(), String> {
    let kind = server_kind(case);
    let mut first = None;
    if let Some(later) = case.joins {
        server.begin();
        sleep(Duration::from_millis(later)).await;
    } else {
        let input = Json::empty_object();
        let request = RunRequest::new("agent", NAME, Start::Input(input)).on(Some(kind));
        if let Ok(stream) = upstream.start_run(THREAD, &request).await {
            let upstream = upstream.clone();
            let started = replicas[0].start(upstream, Some(kind), THREAD, NAME, stream);
            first = Some(Stream::Owner(started));
        }
    }
    let mut cuts = case.cuts.iter();
    let mut replica = 0;
    loop {
        let stream = match first.take() {
            Some(stream) => Some(stream),
            None => connect(upstream, &replicas[replica], kind, reader).await,
        };
        let Some(stream) = stream else {
            sleep(RETRY).await;
            continue;
        };
        let cut = cuts.next();
        match reader.read(stream, cut).await? {
            Went::Ended => break,
            Went::Lost => {
                reader.rewind();
                sleep(RETRY).await;
            }
            Went::Cut => {}
        }
        if let Some(cut) = cut {
            sleep(Duration::from_millis(cut.away)).await;
            replica = cut.replica;
        }
    }
    reader.judge(case, server)
}

/// Resumes where the reader is, and reads to the end.
async fn resume(
    case: &Case,
    server: &Hostile,
    upstream: &Client,
    runs: &Runs,
    reader: &mut Reader<'_>,
) -> Result<(), String> {
    loop {
        if let Some(stream) = connect(upstream, runs, server_kind(case), reader).await {
            match reader.read(stream, None).await? {
                Went::Ended => return reader.judge(case, server),
                Went::Lost => reader.rewind(),
                Went::Cut => unreachable!(),
            }
        }
        sleep(RETRY).await;
    }
}

async fn connect(
    upstream: &Client,
    runs: &Runs,
    kind: ServerKind,
    reader: &Reader<'_>,
) -> Option<Stream> {
    let last = reader.last_id();
    let connected = runs.connect(upstream, Some(kind), THREAD, last.as_ref()).await;
    connected.ok().map(Stream::Thread)
}

fn server_kind(case: &Case) -> ServerKind {
    match case.script.kind {
        Kind::Python => ServerKind::Python,
        Kind::JavaScript => ServerKind::JavaScript,
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn new(texts: &'a [StreamedText]) -> Self {
        Self {
            texts,
            projector: Projector::for_anyone(capture::newcomer()),
            verifier: Verifier::new(),
            view: View::default(),
            base: View::default(),
            heard: Vec::new(),
            resumable: 0,
        }
    }

    /// The id that it would resume behind.
    fn last_id(&self) -> Option<EventId> {
        self.heard[..self.resumable].last().and_then(|heard| heard.id.clone())
    }

    /// Forgets what it was told behind its last id, if it has one.
    fn rewind(&mut self) {
        if self.resumable > 0 {
            *self = self.who_heard(self.resumable);
        }
    }

    /// Who has heard as much of this as lies before some id.
    fn back_to(&self, at: Index) -> Option<Self> {
        let is_terminal = |heard: &Heard| matches!(heard.event, RunEvent::Ended { .. });
        let ids = self.heard.iter().enumerate().filter(|(_, h)| h.id.is_some() && !is_terminal(h));
        let ids: Vec<_> = ids.map(|(at, _)| at).collect();
        (!ids.is_empty()).then(|| self.who_heard(ids[at.index(ids.len())] + 1))
    }

    fn who_heard(&self, count: usize) -> Self {
        let mut reader = Self::new(self.texts);
        reader.view = self.base.clone();
        for Heard { event, id } in &self.heard[..count] {
            // It was legal before.
            let _ = reader.hear(event, id.clone());
        }
        reader
    }

    async fn read(&mut self, mut stream: Stream, cut: Option<&Cut>) -> Result<Went, String> {
        self.projector = Projector::for_anyone(capture::newcomer());
        let resumes = self.last_id().is_some();
        let mut left = cut.map_or(usize::MAX, |cut| cut.after);
        let mut is_first = true;
        loop {
            if left == 0 {
                return Ok(Went::Cut);
            }
            let batch = match &mut stream {
                Stream::Owner(reader) => reader.next().await,
                Stream::Thread(reader) => reader.next().await,
            };
            let Some(batch) = batch else { return Err("a stream without an end".to_owned()) };
            for (at, event) in batch.iter().enumerate() {
                if at < batch.told() {
                    self.projector.project(event, &mut |_| {});
                    continue;
                }
                let starts = matches!(event, RunEvent::Started { .. });
                if is_first && !starts && !resumes {
                    return Err(format!("a stream begins with {event:?}"));
                }
                is_first = false;
                self.hear(event, batch.ids()[at].clone())?;
                if let RunEvent::Ended { outcome, .. } = event {
                    return went(outcome);
                }
                left -= 1;
                if left == 0 {
                    return Ok(Went::Cut);
                }
            }
            if let Some(cut) = cut.filter(|cut| cut.nap > 0) {
                sleep(Duration::from_millis(cut.nap)).await;
            }
        }
    }

    fn hear(&mut self, event: &RunEvent, id: Option<EventId>) -> Result<(), String> {
        if matches!(event, RunEvent::Started { .. }) {
            // The stream before may have broken off anywhere: this is another one.
            self.verifier = Verifier::new();
            self.base = self.view.clone();
            // It takes back all ids before.
            self.resumable = 0;
            self.heard.clear();
        }
        self.heard.push(Heard { event: event.clone(), id: id.clone() });
        if id.is_some() {
            self.resumable = self.heard.len();
        }
        let mut lines: Vec<Value> = Vec::new();
        self.projector.project(event, &mut |event| {
            let mut line = Vec::new();
            event.write(&mut line);
            lines.push(serde_json::from_slice(&line).unwrap());
        });
        let place = |why, heard: &[Heard]| {
            let heard: Vec<_> = heard.iter().map(|heard| format!("{:?}", heard.event)).collect();
            format!("{why}\nbehind {heard:#?}")
        };
        for line in &lines {
            self.verifier
                .check(line)
                .map_err(|why| place(format!("{line}: {why}"), &self.heard))?;
        }
        self.view.apply(event);
        self.check_texts().map_err(|why| place(why, &self.heard))
    }

    /// No text is longer than what was said, nor another one.
    fn check_texts(&self) -> Result<(), String> {
        let whole = |kind, id: &str| {
            let id = id.split(":reasoning").next().unwrap_or(id).to_owned();
            self.texts.iter().filter(move |text| text.kind == kind && text.id == id)
        };
        for message in self.view.messages() {
            let kind = match message.role {
                Role::Assistant => TextKind::Said,
                Role::Reasoning => TextKind::Thought,
                _ => continue,
            };
            let text = message.content.text();
            let text = text.decode();
            if !whole(kind, &message.id).any(|whole| whole.text.starts_with(&*text)) {
                return Err(format!("{kind:?} {}: {text:?}", message.id));
            }
            for call in &message.calls {
                let args = call.args.to_text();
                let args = args.decode();
                let is_so = |whole: &StreamedText| {
                    whole.text.starts_with(&*args) || same_json(&whole.text, &args)
                };
                if !whole(TextKind::Args, &call.id).any(is_so) {
                    return Err(format!("the arguments of {}: {args:?}", call.id));
                }
            }
        }
        Ok(())
    }

    /// What it holds in the end is the truth.
    fn judge(&self, case: &Case, server: &Hostile) -> Result<(), String> {
        let heard: Vec<_> = self.heard.iter().map(|heard| format!("{:?}", heard.event)).collect();
        let place = |why: String| format!("{why}\nbehind {heard:#?}");
        self.verifier.finish().map_err(&place)?;
        self.check_end(case.script.kind, case.script.end).map_err(&place)?;
        let Some(truth) = server.truth() else { return Ok(()) };
        let held: Vec<_> =
            self.view.messages().iter().filter(|m| m.role != Role::Reasoning).collect();
        let said: Vec<_> = truth.messages.iter().map(judge::shown).collect();
        let same = held.len() == said.len() && held.iter().zip(&said).all(|(h, s)| shows(h, s));
        if !same {
            return Err(place(format!("held {held:#?}, but the truth is {said:#?}")));
        }
        let state = self.view.state().map(|state| state.to_json());
        let state: Option<Value> = state.map(|state| serde_json::from_str(state.get()).unwrap());
        if state.as_ref() != Some(&truth.state) {
            return Err(place(format!("held {state:?}, but the truth is {}", truth.state)));
        }
        Ok(())
    }

    /// The run ended as it did. A thread at rest tells what it holds, and no more.
    fn check_end(&self, kind: Kind, end: End) -> Result<(), String> {
        let Some(Heard { event: RunEvent::Ended { outcome, .. }, .. }) = self.heard.last() else {
            return Err("no end".to_owned());
        };
        let is_so = match (outcome, end) {
            (Outcome::AtRest { .. }, _) => true,
            (Outcome::Finished { .. }, End::Succeeded) => true,
            (Outcome::Interrupted(asked), End::Asked) => asked.len() == 1,
            (Outcome::Failed { code, .. }, End::Failed) => code == "ValueError",
            (Outcome::Cancelled, End::Cancelled) => kind == Kind::Python,
            (Outcome::Failed { code, .. }, End::Cancelled) => {
                kind == Kind::JavaScript && code == "Error"
            }
            (Outcome::Cancelled, End::Gone) => true,
            (Outcome::Failed { code, .. }, End::AllGone) => code == "run_gone",
            _ => false,
        };
        if is_so { Ok(()) } else { Err(format!("{end:?} was told as {outcome:?}")) }
    }
}

fn went(outcome: &Outcome) -> Result<Went, String> {
    let Outcome::Failed { code, message } = outcome else { return Ok(Went::Ended) };
    match &**code {
        "upstream_unavailable" | "reader_too_slow" => Ok(Went::Lost),
        "internal_error" | "upstream_lost" | "gateway_shutdown" => {
            Err(format!("ended with {code}: {message}"))
        }
        _ => Ok(Went::Ended),
    }
}

fn shows(held: &Message, said: &judge::Shown) -> bool {
    let role = match held.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => "another",
    };
    let calls_agree = held.calls.len() == said.calls.len()
        && held.calls.iter().zip(&said.calls).all(|(held, (id, name, args))| {
            let held_args: Option<Value> = serde_json::from_str(&held.args.to_text().decode()).ok();
            *held.id == **id && *held.name == **name && held_args.as_ref() == Some(args)
        });
    *held.id == *said.id
        && role == said.role
        && *held.content.text().decode() == *said.text
        && calls_agree
        && held.call_id.as_deref().unwrap_or_default() == said.answers
}

fn same_json(a: &str, b: &str) -> bool {
    let parse = |text| serde_json::from_str::<Value>(text).ok();
    parse(a).is_some_and(|a| Some(a) == parse(b))
}
