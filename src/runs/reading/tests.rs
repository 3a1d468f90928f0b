//! The state machine alone. A test passes the inputs and the time; there is no socket, no runtime
//! and no clock.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::runs::UPSTREAM_PATIENCE;
use crate::runs::decoder::{BEGINNING, Coverage, StreamSummary};
use threadway_translate::langgraph::StoredDecisions;
use threadway_translate::run::{Outcome, RunEvent, View};
use threadway_translate::sse;

/// The pause before the first attempt to join a stream again.
const NO_PAUSE: Duration = Duration::from_millis(3);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

const MILLISECOND: Duration = Duration::from_millis(1);

/// A time of the server's clock, in milliseconds.
const TIME: u64 = 1_795_305_649_000;

// === what the upstream sends ===

/// A part of a run's stream.
#[derive(Clone, Debug)]
struct Sent {
    id: String,
    text: String,
}

fn sent(id: &str, event: &str, data: &Value) -> Sent {
    Sent { id: id.to_owned(), text: format!("id: {id}\r\nevent: {event}\r\ndata: {data}\r\n\r\n") }
}

fn metadata(id: &str) -> Sent {
    sent(id, "metadata", &json!({"run_id": "R", "attempt": 1}))
}

fn values(texts: &[&str]) -> Value {
    let message = |(at, text): (usize, &&str)| {
        let kind = if at % 2 == 0 { "human" } else { "ai" };
        json!({"id": format!("m{at}"), "type": kind, "content": text})
    };
    json!({"messages": texts.iter().enumerate().map(message).collect::<Vec<_>>()})
}

fn state(id: &str, texts: &[&str]) -> Sent {
    sent(id, "values", &values(texts))
}

/// A token of `m1`.
fn says(id: &str, text: &str) -> Sent {
    sent(id, "messages", &json!([{"type": "AIMessageChunk", "id": "m1", "content": text}, {}]))
}

fn failure(id: &str) -> Sent {
    sent(id, "error", &json!({"error": "ValueError", "message": "boom"}))
}

/// A thread state with these messages.
fn thread_state(texts: &[&str]) -> String {
    json!({
        "values": values(texts), "next": [], "tasks": [],
        "metadata": {"run_id": "R"}, "checkpoint": {"checkpoint_id": "C"},
    })
    .to_string()
}

/// A run with some text. Two of its parts share an id.
fn whole_run() -> Vec<Sent> {
    vec![
        metadata("1000-0"),
        state("1001-0", &["hi"]),
        says("1002-0", "one "),
        says("1003-0", "two "),
        says("1003-0", "three "),
        says("1004-0", "four"),
        state("1005-0", &["hi", "one two three four"]),
    ]
}

fn bytes(parts: &[Sent]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.text.bytes()).collect()
}

/// The record of a run that a gateway started: the server stores its stream, and the stream has
/// the state.
pub(in crate::runs) fn record(status: RunStatus) -> RunRecord {
    RunRecord {
        id: "R".to_owned(),
        status,
        start: None,
        client_id: None,
        created_at: String::new(),
        has_request: true,
        is_resumable: true,
        has_values: Some(true),
        input: None,
        resumes: false,
        answers: Vec::new(),
        update: None,
    }
}

fn success() -> Ending {
    StreamEnd::Succeeded.into()
}

fn cut() -> BodyEnd {
    BodyEnd::Cut("reset".to_owned())
}

// === the harness ===

/// A reading, its current time, and all events that it has made.
#[derive(Debug)]
struct Rig {
    reading: Reading,
    now: Instant,
    events: Vec<RunEvent>,
    /// The request that has no answer yet.
    asked: Option<UpstreamRequest>,
    /// The end that the reading has reached, until its events are made.
    end: Option<ReadingEnd>,
    /// Every change of the phase so far.
    arrows: BTreeSet<(&'static str, &'static str)>,
}

impl Rig {
    fn started() -> Self {
        Self::started_on(Capabilities::PYTHON)
    }

    fn started_on(server: Capabilities) -> Self {
        let (decoder, now) = (RunDecoder::new("T", Some("R"), None), Instant::now());
        Self::new(|decoder| Reading::started(decoder, server, Seed::fixed(), now), decoder, now)
    }

    fn joined(record: RunRecord) -> Self {
        Self::joined_on(Capabilities::PYTHON, record, Source::Stream)
    }

    /// A run of the JavaScript server that does not store its stream.
    fn recorded() -> Self {
        let record = RunRecord { is_resumable: false, ..record(RunStatus::Running) };
        let server = Capabilities::JAVASCRIPT;
        assert_eq!(Source::of(&record, server), Source::Record);
        Self::joined_on(server, record, Source::Record)
    }

    fn joined_on(server: Capabilities, record: RunRecord, source: Source) -> Self {
        let (decoder, now) = (RunDecoder::joined("T", &record), Instant::now());
        Self::new(
            |decoder| Reading::joined(decoder, record, server, source, Seed::fixed(), now),
            decoder,
            now,
        )
    }

    fn new(
        begin: impl FnOnce(RunDecoder) -> Reading,
        mut decoder: RunDecoder,
        now: Instant,
    ) -> Self {
        let mut events = Events::default();
        decoder.start(&mut events);
        let (reading, arrows) = (begin(decoder), BTreeSet::new());
        let mut rig =
            Self { reading, now, events: events.to_vec(), asked: None, end: None, arrows };
        rig.take_action();
        rig
    }

    /// Passes an input to the reading, and takes the next action.
    fn decoder(&mut self, step: impl FnOnce(&mut Reading, Instant, &mut Events)) {
        let before = phase(&self.reading);
        let mut events = Events::default();
        step(&mut self.reading, self.now, &mut events);
        self.events.extend(events.iter().cloned());
        let after = phase(&self.reading);
        if before != after {
            self.arrows.insert((before, after));
        }
        self.take_action();
    }

    /// Takes the next action, and checks that the reading waits for something that will come.
    fn take_action(&mut self) {
        match self.reading.poll_action() {
            Some(DriverAction::Ask(question)) => {
                assert!(self.asked.is_none(), "{question:?} beside {:?}", self.asked);
                self.asked = Some(question);
            }
            Some(DriverAction::End(end)) => self.end = Some(end),
            None => {}
        }
        assert!(self.reading.poll_action().is_none(), "an action is given once");
        let (phase, timeout) = (phase(&self.reading), self.reading.timeout());
        match phase {
            "Over" => assert!(self.asked.is_none() && timeout.is_none()),
            "Streaming" => assert!(self.asked.is_none() && timeout.is_some(), "{self:?}"),
            "Pausing" => assert!(self.asked.is_none() && timeout > Some(self.now), "{self:?}"),
            // It waits for an answer, or until it asks again.
            _ => assert_eq!(self.asked.is_none(), timeout > Some(self.now), "{self:?}"),
        }
        assert_eq!(self.reading.takes_bytes(), phase == "Streaming");
        let has_stream = matches!(phase, "Streaming" | "ReadingState" | "CheckingBeat");
        assert_eq!(self.reading.has_stream(), has_stream);
    }

    // --- inputs ---

    fn sends(&mut self, parts: &[Sent]) {
        self.sends_bytes(&bytes(parts));
    }

    fn sends_bytes(&mut self, bytes: &[u8]) {
        assert!(self.reading.takes_bytes(), "{:?}", self.reading.phase);
        self.decoder(|reading, now, out| reading.on_bytes(bytes, now, out));
    }

    fn closes(&mut self, end: BodyEnd) {
        self.decoder(|reading, now, _| reading.on_closed(end, now));
    }

    fn opens(&mut self) {
        self.opens_at(None);
    }

    fn opens_at(&mut self, date: Option<u64>) {
        let Some(UpstreamRequest::Stream { .. }) = self.asked.take() else { panic!("no join") };
        self.decoder(|reading, now, _| reading.on_open(date, now));
    }

    /// The stream could not be opened.
    fn gives_none(&mut self, end: BodyEnd) {
        let Some(UpstreamRequest::Stream { .. }) = self.asked.take() else { panic!("no join") };
        self.closes(end);
    }

    fn holds(&mut self, state: Option<&str>) {
        let Some(UpstreamRequest::State) = self.asked.take() else {
            panic!("the state is not wanted")
        };
        self.decoder(|reading, now, out| reading.on_state(state, now, out));
    }

    fn records(&mut self, record: Result<RunRecord, BodyEnd>) {
        let Some(UpstreamRequest::Record { .. }) = self.asked.take() else { panic!("no record") };
        self.decoder(|reading, now, _| reading.on_record(record, now));
    }

    fn looks(&mut self, status: EndStatus) {
        let Some(UpstreamRequest::EndStatus { .. }) = self.asked.take() else {
            panic!("no status")
        };
        self.decoder(|reading, now, _| reading.on_end_status(status, now));
    }

    /// The record says that the run goes on, each time that it is read.
    fn goes_on(&mut self) {
        self.looks(EndStatus::Running);
        for pause in [100, 200, 400, 800] {
            assert_eq!(self.pause(), Duration::from_millis(pause));
            assert_eq!(self.next(), "the status: Clean");
            self.looks(EndStatus::Running);
        }
    }

    fn answers(&mut self, answer: UpstreamAnswer, retry_after: Option<Duration>) {
        assert!(self.asked.take().is_some(), "{answer:?} is not wanted");
        self.decoder(|reading, now, out| reading.on_answer(answer, retry_after, now, out));
    }

    /// Lets time pass, until the reading makes a request.
    fn passes(&mut self, time: Duration) {
        let end = self.now + time;
        let mut at_once = 0;
        while self.asked.is_none()
            && let Some(due) = self.reading.timeout().filter(|due| *due <= end)
        {
            // Two things may be due at once.
            at_once = if due == self.now { at_once + 1 } else { 0 };
            assert!(at_once < 3, "it is due for ever: {self:?}");
            self.now = due;
            self.decoder(Reading::on_timeout);
        }
        self.now = end.max(self.now);
    }

    /// Ends the pause before the next attempt. Returns how long it was.
    fn pause(&mut self) -> Duration {
        assert_eq!(self.next(), "a pause");
        let until = self.reading.timeout().unwrap();
        let pause = until - self.now;
        // A millisecond earlier nothing happens.
        self.now = until.checked_sub(MILLISECOND).unwrap();
        self.decoder(Reading::on_timeout);
        assert_eq!(self.next(), "a pause");
        self.now = until;
        self.decoder(Reading::on_timeout);
        pause
    }

    fn ends(&mut self) {
        let end = self.end.take().expect("it is over");
        self.decoder(|reading, _, out| reading.end(end, ErrorDetail::Full, out));
    }

    // --- outputs ---

    /// The input that the reading waits for, as text.
    fn next(&self) -> String {
        match (&self.asked, &self.end) {
            (Some(UpstreamRequest::Stream { run_id, cursor, again }), _) => {
                assert_eq!(run_id, "R");
                again.map_or_else(
                    || format!("the stream after {cursor}"),
                    |why| format!("the stream after {cursor} again: {why:?}"),
                )
            }
            (Some(UpstreamRequest::State), _) => "the state".to_owned(),
            (Some(UpstreamRequest::Record { run_id }), _) => {
                assert_eq!(run_id, "R");
                "the record".to_owned()
            }
            (Some(UpstreamRequest::EndStatus { end, .. }), _) => format!("the status: {end:?}"),
            (None, Some(ReadingEnd::Ended(_))) => "the end".to_owned(),
            (None, Some(ReadingEnd::OutOfReach(why))) => format!("out of reach: {why}"),
            (None, None) => match self.reading.phase {
                Phase::Pausing { .. } => "a pause".to_owned(),
                Phase::Streaming(_) => "bytes".to_owned(),
                Phase::Opening
                | Phase::ReadingState { .. }
                | Phase::CheckingEnd { .. }
                | Phase::CheckingBeat { .. }
                | Phase::Polling
                | Phase::Over => {
                    let waits = self.reading.timeout().is_some();
                    if waits { "a pause" } else { "nothing" }.to_owned()
                }
            },
        }
    }

    fn seen(&self) -> &StreamSummary {
        let Some(UpstreamRequest::EndStatus { seen, .. }) = &self.asked else {
            panic!("no status")
        };
        seen
    }

    fn is_replaying(&self) -> bool {
        self.reading.history() == History::Replaying
    }

    /// All text so far.
    fn said(&self) -> String {
        let delta = |event: &RunEvent| {
            let RunEvent::TextDelta { delta, .. } = event else { return None };
            Some(delta.decode().into_owned())
        };
        self.events.iter().filter_map(delta).collect()
    }

    fn failure(&self) -> (&str, &str) {
        match self.events.last() {
            Some(RunEvent::Ended { outcome: Outcome::Failed(failure), .. }) => {
                (failure.code(), failure.message())
            }
            other => panic!("{other:?}"),
        }
    }

    /// The stream ends cleanly, and the run has succeeded.
    fn succeeds(mut self) -> Vec<RunEvent> {
        self.closes(BodyEnd::Clean);
        assert_eq!(self.next(), "the status: Clean");
        assert_eq!(self.seen().coverage, Coverage::Whole);
        self.looks(EndStatus::Ended(success()));
        self.ends();
        self.events
    }
}

fn phase(reading: &Reading) -> &'static str {
    match reading.phase {
        Phase::Opening => "Opening",
        Phase::Streaming(_) => "Streaming",
        Phase::ReadingState { .. } => "ReadingState",
        Phase::CheckingEnd { .. } => "CheckingEnd",
        Phase::CheckingBeat { .. } => "CheckingBeat",
        Phase::Pausing { .. } => "Pausing",
        Phase::Polling => "Polling",
        Phase::Over => "Over",
    }
}

/// The events of a run whose stream is never cut.
fn uncut(mut rig: Rig, parts: &[Sent]) -> Vec<RunEvent> {
    if rig.asked.is_some() {
        rig.opens();
    }
    rig.sends(parts);
    rig.succeeds()
}

// === the picture ===

#[test]
fn each_arrow_of_the_picture_can_be_followed() {
    let mut arrows = BTreeSet::new();

    // The stream lacks its beginning, is cut and ends; the run goes on and then is over.
    let mut rig = Rig::joined(record(RunStatus::Running));
    rig.opens();
    rig.sends(&[says("1002-0", "two")]);
    rig.holds(Some(&thread_state(&["hi"])));
    rig.closes(cut());
    rig.passes(NO_PAUSE);
    rig.opens();
    rig.closes(BodyEnd::Clean);
    rig.goes_on();
    rig.passes(LONGEST_PAUSE);
    rig.gives_none(cut());
    rig.passes(LONGEST_PAUSE);
    rig.gives_none(BodyEnd::Refused);
    rig.looks(EndStatus::Ended(success()));
    arrows.append(&mut rig.arrows);

    // A run that is not joined.
    let mut rig = Rig::recorded();
    rig.holds(None);
    rig.passes(STATUS_INTERVAL);
    rig.records(Ok(record(RunStatus::Success)));
    arrows.append(&mut rig.arrows);

    // After a failure the stream has no more parts.
    let mut rig = Rig::started();
    rig.sends(&[failure("1")]);
    rig.closes(BodyEnd::Clean);
    rig.looks(EndStatus::Unknown("503".to_owned()));
    rig.passes(LONGEST_PAUSE);
    arrows.append(&mut rig.arrows);

    // A stream brings heartbeats alone. The run goes on, and then is over.
    let mut rig = Rig::started_on(Capabilities::AEGRA);
    for status in [EndStatus::Running, EndStatus::Ended(success())] {
        while rig.asked.is_none() {
            rig.sends_bytes(HEARTBEAT);
            rig.passes(Duration::from_secs(15));
        }
        rig.looks(status);
    }
    arrows.append(&mut rig.arrows);

    assert_eq!(Vec::from_iter(arrows), PICTURE);
}

/// Every change of the phase that one input can make.
const PICTURE: [(&str, &str); 17] = [
    ("CheckingBeat", "Over"),
    ("CheckingBeat", "Streaming"),
    ("CheckingEnd", "Over"),
    ("CheckingEnd", "Pausing"),
    ("Opening", "CheckingEnd"),
    ("Opening", "Pausing"),
    ("Opening", "Streaming"),
    ("Pausing", "CheckingEnd"),
    ("Pausing", "Opening"),
    ("Pausing", "Polling"),
    ("Polling", "CheckingEnd"),
    ("Polling", "Pausing"),
    ("ReadingState", "Streaming"),
    ("Streaming", "CheckingBeat"),
    ("Streaming", "CheckingEnd"),
    ("Streaming", "Pausing"),
    ("Streaming", "ReadingState"),
];

/// Changes in which one input goes through two arrows.
const SHORT_CUTS: [(&str, &str); 7] = [
    // The state is read right after the join.
    ("Opening", "ReadingState"),
    // The bytes after the state cannot be read, or may be a repeat.
    ("ReadingState", "CheckingEnd"),
    ("ReadingState", "Pausing"),
    // The run is out of reach for too long.
    ("Opening", "Over"),
    ("Streaming", "Over"),
    ("Polling", "Over"),
    ("ReadingState", "Over"),
];

// === a stream that is lost ===

#[test]
fn a_cut_stream_is_joined_after_its_last_part_and_nothing_is_repeated() {
    let parts = whole_run();
    let told = uncut(Rig::started(), &parts);
    // The cursor before the last one read, since other parts may share that one.
    let cursors = ["-1", "-1", "1000-0", "1001-0", "1002-0", "1002-0", "1003-0", "1004-0"];
    for (heard, cursor) in cursors.into_iter().enumerate() {
        for half in ["", "id: 9999-0\r\nevent: messages\r\ndata: [{"] {
            let mut rig = Rig::started();
            rig.sends_bytes(&[bytes(&parts[..heard]), half.into()].concat());
            rig.closes(cut());
            assert_eq!(rig.pause(), NO_PAUSE);
            assert_eq!(rig.next(), format!("the stream after {cursor} again: Cut"));
            rig.opens();
            let from = parts.iter().position(|part| is_after(part, cursor)).unwrap();
            rig.sends(&parts[from..]);
            assert_eq!(rig.succeeds(), told, "{heard} {half}");
        }
    }
}

fn is_after(part: &Sent, cursor: &str) -> bool {
    let cursor = cursor.parse::<threadway_translate::langgraph::Cursor>().ok();
    cursor.is_none_or(|cursor| {
        part.id.parse::<threadway_translate::langgraph::Cursor>().unwrap() > cursor
    })
}

#[test]
fn the_pause_before_each_join_is_longer_and_after_five_the_record_is_asked() {
    for brings_repeats in [false, true] {
        let parts = whole_run();
        let mut rig = Rig::started();
        rig.sends(&parts[..3]);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            rig.closes(cut());
            pauses.push(rig.pause().as_millis());
            assert_eq!(rig.next(), "the stream after 1001-0 again: Cut");
            if brings_repeats {
                rig.opens();
                rig.sends(&parts[2..3]);
            } else {
                rig.asked = None;
            }
        }
        let within = |whole: u128, pause: u128| (whole / 2..=whole).contains(&pause);
        assert_eq!(pauses[0], NO_PAUSE.as_millis());
        for (pause, whole) in pauses[1..].iter().zip([200, 400, 800, 1600]) {
            assert!(within(whole, *pause), "{pauses:?}");
        }
        rig.closes(cut());
        assert_eq!(rig.next(), format!("the status: {:?}", cut()));
        // The run goes on. From now on each failure makes the reading ask for the end status.
        rig.looks(EndStatus::Running);
        rig.pause();
        assert_eq!(rig.next(), "the stream after 1001-0 again: Cut");
        rig.gives_none(cut());
        assert_eq!(rig.next(), format!("the status: {:?}", cut()));
        rig.looks(EndStatus::Running);
        rig.pause();
        // A new part resets the count.
        rig.opens();
        rig.sends(&parts[2..4]);
        rig.closes(cut());
        assert_eq!(rig.pause(), NO_PAUSE);
    }
}

#[test]
fn a_body_that_ends_inside_an_event_was_cut() {
    for half in ["event: values", "event: values\r\ndata: {\"messages\":[]}\r\n"] {
        let mut rig = Rig::started();
        rig.sends(&whole_run()[..3]);
        rig.sends_bytes(half.as_bytes());
        rig.closes(BodyEnd::Clean);
        assert_eq!(rig.pause(), NO_PAUSE);
        assert_eq!(rig.next(), "the stream after 1001-0 again: Cut");
    }
}

#[test]
fn an_end_in_order_is_asked_about_and_a_run_that_goes_on_is_joined() {
    let (parts, told) = (whole_run(), uncut(Rig::started(), &whole_run()));
    let answers = [Rig::goes_on, |rig: &mut Rig| rig.looks(EndStatus::Unknown("503".to_owned()))];
    for answer in answers {
        let mut rig = Rig::started();
        rig.sends(&parts[..4]);
        rig.closes(BodyEnd::Clean);
        assert_eq!(rig.next(), "the status: Clean");
        assert_eq!(rig.seen().run_id.as_deref(), Some("R"));
        answer(&mut rig);
        assert_eq!(rig.pause(), NO_PAUSE);
        assert_eq!(rig.next(), "the stream after 1002-0 again: Ended");
        rig.opens();
        rig.sends(&parts[3..]);
        assert_eq!(rig.succeeds(), told);
    }
}

#[test]
fn a_join_that_is_refused_is_asked_about_and_made_again() {
    let mut rig = Rig::joined(record(RunStatus::Running));
    assert_eq!(rig.next(), "the stream after -1");
    rig.gives_none(BodyEnd::Refused);
    assert_eq!(rig.next(), "the status: Refused");
    rig.looks(EndStatus::Running);
    rig.pause();
    assert_eq!(rig.next(), "the stream after -1 again: Cut");
    rig.gives_none(cut());
    rig.pause();
    assert_eq!(rig.next(), "the stream after -1 again: Cut");
    assert!(rig.is_replaying());
}

#[test]
fn a_record_that_lags_behind_the_failure_in_the_stream_is_read_again() {
    let mut rig = Rig::started();
    rig.sends(&[failure("1003-0")]);
    rig.closes(BodyEnd::Clean);
    for pause in [100, 200, 400, 800] {
        rig.looks(EndStatus::Lagging);
        assert_eq!(rig.pause(), Duration::from_millis(pause));
    }
    rig.looks(EndStatus::Lagging);
    assert_eq!(rig.pause(), NO_PAUSE);
    assert_eq!(rig.next(), "the status: Clean");
    // After a cut the record does not lag: it is read at the usual times.
    let mut rig = Rig::started();
    rig.sends(&[failure("1003-0")]);
    rig.closes(cut());
    rig.looks(EndStatus::Lagging);
    assert_eq!(rig.pause(), NO_PAUSE);
}

#[test]
fn an_end_that_is_refused_to_all_is_asked_for_again_and_then_is_as_the_stream_shows() {
    let unconfirmed = || EndStatus::Unconfirmed(StreamEnd::Succeeded);
    for is_confirmed_at_last in [false, true] {
        let mut rig = Rig::started();
        rig.sends(&whole_run());
        rig.closes(BodyEnd::Clean);
        for pause in [100, 200, 400, 800, 1600] {
            rig.looks(unconfirmed());
            assert_eq!(rig.pause(), Duration::from_millis(pause));
            assert_eq!(rig.next(), "the status: Clean");
        }
        let last = EndStatus::Ended(success());
        rig.looks(if is_confirmed_at_last { last } else { unconfirmed() });
        assert_eq!(rig.next(), "the end");
        rig.ends();
        let last = rig.events.last().unwrap();
        assert!(
            matches!(last, RunEvent::Ended { outcome: Outcome::Finished { .. }, .. }),
            "{last:?}"
        );
    }
}

#[test]
fn an_answer_that_asks_for_a_wait_counts_when_the_wait_is_over() {
    let second = Duration::from_secs(1);
    for (asked, obeyed) in [(7 * second, 7 * second), (500 * second, 30 * second)] {
        let mut rig = Rig::joined(record(RunStatus::Running));
        rig.answers(UpstreamAnswer::NoStream(BodyEnd::Refused), Some(asked));
        assert_eq!(rig.pause(), obeyed);
        assert_eq!(rig.next(), "the status: Refused");
        rig.answers(UpstreamAnswer::EndStatus(EndStatus::Unknown("429".to_owned())), Some(asked));
        assert_eq!(rig.pause(), obeyed);
        assert_eq!(rig.pause(), NO_PAUSE);
        assert_eq!(rig.next(), "the stream after -1 again: Cut");
    }
    // The record and the state of a run that is not joined.
    let mut rig = Rig::recorded();
    rig.answers(UpstreamAnswer::NoState("503".to_owned()), Some(second));
    assert_eq!(rig.pause(), second);
    assert_eq!(rig.pause(), STATUS_INTERVAL);
    rig.answers(UpstreamAnswer::Record(Err(cut())), Some(second));
    assert_eq!(rig.pause(), second);
    assert!(rig.pause() >= STATUS_INTERVAL);
}

#[test]
fn a_state_that_cannot_be_read_for_a_moment_is_read_again_for_a_minute() {
    let rig = || {
        let mut rig = Rig::joined(record(RunStatus::Running));
        rig.opens();
        rig.sends(&[says("1002-0", "two")]);
        assert_eq!(rig.next(), "the state");
        rig
    };
    let failed = || UpstreamAnswer::NoState("503".to_owned());
    let (mut away, second) = (rig(), Duration::from_secs(1));
    let began = away.now;
    for whole in [200, 400, 800, 1000, 1000] {
        away.answers(failed(), None);
        let (pause, whole) = (away.pause(), Duration::from_millis(whole));
        assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
        assert_eq!(away.next(), "the state");
    }
    // What the server asks for comes on top.
    away.answers(failed(), Some(7 * second));
    assert!((7 * second..=8 * second).contains(&away.pause()));
    while away.asked.is_some() {
        away.answers(failed(), None);
        if away.reading.takes_bytes() {
            break;
        }
        away.pause();
    }
    assert!((UPSTREAM_PATIENCE..=UPSTREAM_PATIENCE + second).contains(&(away.now - began)));
    // One success is enough.
    let mut back = rig();
    back.answers(failed(), None);
    back.pause();
    back.answers(UpstreamAnswer::State(Some(thread_state(&["hi"]))), None);
    assert_eq!(back.next(), "bytes");
    assert!(back.reading.decoder().knows_conversation());
}

const HEARTBEAT: &[u8] = b": heartbeat\r\n\r\n";

/// The request after a time of heartbeats.
const BEATS: &str = r#"the status: Cut("the stream has heartbeats alone")"#;

#[test]
fn a_stream_that_only_beats_is_asked_about_and_read_on_until_the_run_is_over() {
    let mut rig = Rig::started_on(Capabilities::AEGRA);
    rig.sends(&whole_run()[..3]);
    let beat = |rig: &mut Rig| {
        rig.passes(Duration::from_secs(5));
        if rig.asked.is_none() {
            rig.sends_bytes(HEARTBEAT);
        }
    };
    for status in [EndStatus::Running, EndStatus::Unknown("503".to_owned())] {
        for _ in 0..5 {
            beat(&mut rig);
            assert_eq!(rig.next(), "bytes");
        }
        beat(&mut rig);
        assert_eq!(rig.next(), BEATS);
        rig.looks(status);
        assert_eq!(rig.next(), "bytes", "the stream is still open");
    }
    // A part postpones the next request, and so does one that has begun.
    beat(&mut rig);
    rig.sends(&whole_run()[3..4]);
    rig.passes(Duration::from_secs(19));
    rig.sends_bytes(b"id: 1003-0\r\n");
    rig.passes(Duration::from_secs(19));
    assert_eq!(rig.next(), "bytes");
    rig.sends_bytes(b"\r\n");
    while rig.asked.is_none() {
        beat(&mut rig);
    }
    assert_eq!(rig.next(), BEATS);
    rig.looks(EndStatus::Ended(success()));
    assert_eq!(rig.next(), "the end");
}

#[test]
fn a_join_that_only_beats_is_asked_about_at_once() {
    // aegra's stream of a run that is over and no longer stored.
    let mut rig = Rig::started_on(Capabilities::AEGRA);
    rig.sends(&whole_run()[..3]);
    rig.closes(cut());
    rig.pause();
    rig.opens();
    rig.passes(Duration::from_secs(5));
    assert_eq!(rig.next(), "bytes");
    rig.sends_bytes(HEARTBEAT);
    rig.passes(MILLISECOND);
    assert_eq!(rig.next(), BEATS);
    rig.looks(EndStatus::Ended(success()));
    assert_eq!(rig.next(), "the end");
}

/// aegra takes the time for the id of a part, if Redis is away, and then drops all parts whose
/// count is below it.
#[test]
fn a_run_is_read_by_its_record_after_a_part_that_could_not_be_counted() {
    let id = |number: u64| format!("R_event_{number}");
    let joined = Rig::joined_on(Capabilities::AEGRA, record(RunStatus::Running), Source::Stream);
    for mut rig in [Rig::started_on(Capabilities::AEGRA), joined] {
        if rig.asked.is_some() {
            rig.opens();
        }
        rig.sends(&[metadata(&id(1)), state(&id(2), &["hi"]), says(&id(3), "one ")]);
        let custom = sent(&id(1_798_000_000_000), "custom", &json!({"kind": "kept"}));
        rig.sends(&[custom, says(&id(2), "three ")]);
        assert!(format!("{:?}", rig.events).contains("kept"), "{:?}", rig.events);
        assert_eq!(rig.next(), "the record");
        rig.records(Ok(record(RunStatus::Running)));
        rig.holds(Some(&thread_state(&["hi", "one two three "])));
        let shown = |rig: &Rig| {
            let view = rig.reading.decoder().view().unwrap();
            view.messages()[1].content.text().decode().into_owned()
        };
        assert_eq!(shown(&rig), "one two three ");
        assert!(rig.pause() >= STATUS_INTERVAL);
        assert_eq!(rig.next(), "the record");
        // It cannot be read for a moment.
        rig.records(Err(cut()));
        rig.pause();
        rig.records(Ok(record(RunStatus::Success)));
        assert_eq!(rig.next(), "the status: Clean");
        assert_eq!(rig.seen().coverage, Coverage::Partial);
        let last = thread_state(&["hi", "one two three four"]);
        let state = Some(FinalState::OfRun(last));
        rig.looks(EndStatus::Ended(Ending { state, ..success() }));
        rig.ends();
        assert_eq!(shown(&rig), "one two three four");
    }
}

#[test]
fn a_run_whose_first_part_could_not_be_counted_is_read_by_its_record() {
    let now = Instant::now();
    let start = |decoder| Reading::started(decoder, Capabilities::AEGRA, Seed::fixed(), now);
    let mut rig = Rig::new(start, RunDecoder::new("T", None, None), now);
    rig.sends(&[metadata("R_event_1798000000000")]);
    assert_eq!(rig.next(), "the record");
    rig.records(Ok(record(RunStatus::Running)));
    rig.holds(Some(&thread_state(&["hi"])));
    rig.pause();
    rig.records(Ok(record(RunStatus::Success)));
    assert_eq!(rig.next(), "the status: Clean");
    // So the last state is read, which that one was not.
    assert_eq!(rig.seen().coverage, Coverage::Partial);
}

#[test]
fn a_silent_stream_is_joined_again_and_after_two_that_brought_nothing_asked_about() {
    for (server, seconds) in
        [(Capabilities::PYTHON, 20), (Capabilities::JAVASCRIPT, 30), (Capabilities::default(), 30)]
    {
        let silence = Duration::from_secs(seconds);
        let mut rig = Rig::started_on(server);
        rig.sends(&whole_run()[..3]);
        // A heartbeat is enough.
        rig.passes(silence.saturating_sub(MILLISECOND));
        rig.sends_bytes(HEARTBEAT);
        rig.passes(silence.saturating_sub(MILLISECOND));
        if !server.ends_streams {
            assert_eq!(rig.next(), BEATS, "heartbeats alone do not show that the run goes on");
            rig.looks(EndStatus::Running);
            rig.passes(silence.saturating_sub(MILLISECOND));
        }
        assert_eq!(rig.next(), "bytes");
        rig.passes(MILLISECOND);
        assert_eq!(rig.pause(), NO_PAUSE);
        assert_eq!(rig.next(), "the stream after 1001-0 again: Silent");
        rig.opens();
        rig.passes(silence);
        // This connection has brought nothing.
        rig.pause();
        rig.opens();
        rig.passes(silence);
        let why = BodyEnd::Cut(format!("silent for {seconds} s"));
        assert_eq!(rig.next(), format!("the status: {why:?}"), "{server:?}");
        rig.looks(EndStatus::Running);
        rig.pause();
        assert_eq!(rig.next(), "the stream after 1001-0 again: Silent");
        // A connection that brings a new part counts as good.
        rig.opens();
        rig.sends(&whole_run()[2..4]);
        rig.passes(silence);
        assert_eq!(rig.pause(), NO_PAUSE);
        assert_eq!(rig.next(), "the stream after 1002-0 again: Silent");
    }
}

#[test]
fn a_run_is_given_up_after_a_minute_out_of_sight() {
    let mut rig = Rig::started();
    rig.sends(&whole_run()[..3]);
    rig.closes(cut());
    let away = |rig: &mut Rig| match rig.asked {
        Some(UpstreamRequest::Stream { .. }) => rig.gives_none(cut()),
        Some(UpstreamRequest::EndStatus { .. }) => rig.looks(EndStatus::Unknown("503".to_owned())),
        None => drop(rig.pause()),
        _ => panic!("{}", rig.next()),
    };
    // One answer restarts the minute.
    let mut began = rig.now;
    while rig.now - began < UPSTREAM_PATIENCE.saturating_sub(2 * LONGEST_PAUSE) {
        away(&mut rig);
    }
    while !matches!(rig.asked, Some(UpstreamRequest::EndStatus { .. })) {
        away(&mut rig);
    }
    rig.looks(EndStatus::Running);
    began = rig.now;
    let mut joins = 0;
    while rig.end.is_none() {
        joins += u32::from(matches!(rig.asked, Some(UpstreamRequest::Stream { .. })));
        away(&mut rig);
    }
    let after = rig.now - began;
    assert!((UPSTREAM_PATIENCE..=UPSTREAM_PATIENCE + LONGEST_PAUSE).contains(&after), "{after:?}");
    assert!((12..=24).contains(&joins), "{joins} attempts");
    assert_eq!(rig.next(), "out of reach: 503");
    rig.ends();
    let message = "the run is out of reach: 503; it may go on in LangGraph";
    assert_eq!(rig.failure(), (LossReason::Unavailable.code(), message));
    let closed = &rig.events[rig.events.len() - 2];
    assert!(matches!(closed, RunEvent::TextEnded { .. }), "{closed:?}");
}

#[test]
fn after_a_failure_in_the_stream_there_is_no_more_of_it() {
    for end in [BodyEnd::Clean, cut()] {
        let mut rig = Rig::started();
        rig.sends(&whole_run()[..3]);
        rig.sends(&[failure("1003-0")]);
        assert_eq!(rig.next(), "bytes");
        rig.closes(end.clone());
        assert_eq!(rig.next(), format!("the status: {end:?}"));
        assert_eq!(rig.seen().error.as_ref().unwrap().message, "boom");
        let began = rig.now;
        while rig.end.is_none() {
            assert!(rig.next().starts_with("the status"), "{}", rig.next());
            rig.looks(EndStatus::Unknown("503".to_owned()));
            if rig.end.is_none() {
                rig.pause();
            }
        }
        assert!(rig.now - began >= UPSTREAM_PATIENCE);
        rig.ends();
        let message = "the run failed (ValueError: boom), and has been out of reach since: 503";
        assert_eq!(rig.failure(), (LossReason::Unavailable.code(), message));
    }
}

#[test]
fn a_stream_that_cannot_be_read_is_not_read_again_unless_the_record_wants_it() {
    let mut rig = Rig::started();
    rig.sends(&whole_run()[..3]);
    rig.sends_bytes(b"event: values\r\ndata: ");
    let chunk = vec![b'1'; sse::MAX_EVENT_BYTES / 8];
    for _ in 0..8 {
        rig.sends_bytes(&chunk);
    }
    assert!(rig.next().starts_with("the status: Unreadable(\"an SSE event is longer than"));
    assert!(!rig.reading.has_stream());
    rig.looks(EndStatus::Unknown("503".to_owned()));
    rig.pause();
    assert_eq!(rig.next(), "the stream after 1001-0 again: Unreadable");
}

#[test]
fn a_run_without_a_name_cannot_be_asked_for() {
    let (decoder, now) = (RunDecoder::new("T", None, None), Instant::now());
    let mut rig = Rig::new(
        |decoder| Reading::started(decoder, Capabilities::default(), Seed::fixed(), now),
        decoder,
        now,
    );
    rig.closes(cut());
    assert_eq!(rig.next(), format!("the status: {:?}", cut()));
    assert_eq!(rig.seen().run_id, None);
}

// === the end ===

#[test]
fn the_end_is_sent_with_the_state_that_is_the_runs_or_its_threads() {
    for (state, message) in [
        // The unfinished message is not in the thread.
        (None, "hi"),
        (Some(FinalState::OfRun(thread_state(&["hi", "one two"]))), "one two"),
        (Some(FinalState::OfThread(thread_state(&["hi", "else"]))), "else"),
    ] {
        let mut rig = Rig::started();
        rig.sends(&whole_run()[..3]);
        rig.closes(BodyEnd::Clean);
        rig.looks(EndStatus::Ended(Ending {
            state,
            kept: StoredDecisions::default(),
            end: StreamEnd::Cancelled,
        }));
        assert_eq!(rig.next(), "the end");
        rig.ends();
        let last = rig.events.last().unwrap();
        assert!(matches!(last, RunEvent::Ended { outcome: Outcome::Cancelled, .. }), "{last:?}");
        let mut view = View::default();
        rig.events.iter().for_each(|event| view.apply(event));
        let last = format!("{:?}", view.messages().last());
        assert!(last.contains(&format!("{message:?}")), "{last}");
    }
    let mut rig = Rig::started();
    rig.closes(BodyEnd::Clean);
    rig.looks(EndStatus::Ended(StreamEnd::Gone.into()));
    rig.ends();
    let message = "LangGraph has neither the run nor its thread any more";
    assert_eq!(rig.failure(), (LossReason::Gone.code(), message));
}

// === a run that is joined ===

#[test]
fn a_run_without_its_state_in_its_stream_is_joined_and_then_based_on_the_threads() {
    for is_resumable in [false, true] {
        for state in [Some(thread_state(&["hi"])), None] {
            let known =
                RunRecord { has_values: Some(false), is_resumable, ..record(RunStatus::Running) };
            let mut rig = Rig::joined(known);
            assert_eq!(rig.next(), "the stream after -1");
            rig.opens();
            // The stream is already joined, so nothing is lost between the join and the state.
            assert_eq!((&*rig.next(), rig.reading.has_stream()), ("the state", true));
            let count = rig.events.len();
            rig.holds(state.as_deref());
            assert_eq!(rig.next(), "bytes");
            assert_eq!(rig.events.len() > count, state.is_some(), "{:?}", rig.events);
            // Only a stored stream has a replay.
            assert_eq!(rig.is_replaying(), is_resumable);
            if is_resumable {
                rig.sends(&[metadata("1000-0"), says("1001-0", "one")]);
                rig.passes(QUIET);
                assert!(!rig.is_replaying());
                assert_eq!(rig.next(), "bytes");
            }
        }
    }
    // A stream that is not stored needs the state, even if it has states itself.
    let mut rig = Rig::joined(RunRecord { is_resumable: false, ..record(RunStatus::Running) });
    rig.opens();
    assert_eq!(rig.next(), "the state");
    // The stream of a pending run begins with a state.
    let mut rig = Rig::joined(RunRecord { has_values: Some(false), ..record(RunStatus::Pending) });
    rig.opens();
    assert_eq!(rig.next(), "bytes");
}

#[test]
fn a_run_whose_record_shows_no_modes_is_based_if_it_speaks_before_it_shows_a_state() {
    for status in [RunStatus::Running, RunStatus::Pending] {
        let known = RunRecord { has_values: None, ..record(status) };
        let mut rig = Rig::joined(known.clone());
        rig.opens();
        rig.sends(&[metadata("1000-0")]);
        assert_eq!(rig.next(), "bytes");
        rig.sends(&[says("1002-0", "one "), says("1003-0", "two ")]);
        assert_eq!(rig.next(), "the state");
        rig.holds(Some(&thread_state(&["hi"])));
        assert_eq!((&*rig.said(), &*rig.next()), ("one two ", "bytes"));
        rig.sends(&[says("1004-0", "three")]);
        assert_eq!((&*rig.said(), &*rig.next()), ("one two three", "bytes"));

        let mut rig = Rig::joined(known);
        rig.opens();
        rig.sends(&whole_run()[..4]);
        assert_eq!((&*rig.said(), &*rig.next()), ("one two ", "bytes"));
    }
}

#[test]
fn a_stream_that_begins_in_the_middle_is_read_on_after_the_state() {
    let mut rig = Rig::joined(record(RunStatus::Running));
    rig.opens();
    assert_eq!(rig.next(), "bytes");
    // There are buffered bytes when the state comes.
    rig.sends(&[says("1002-0", "two "), state("1003-0", &["hi", "one two three"])]);
    assert_eq!(rig.next(), "the state");
    assert!(!rig.reading.takes_bytes() && rig.reading.has_stream());
    let count = rig.events.len();
    rig.holds(Some(&thread_state(&["hi"])));
    let (based, behind): (Vec<_>, Vec<_>) =
        rig.events[count..].iter().partition(|event| matches!(event, RunEvent::Messages(_)));
    assert_eq!(based.len(), 1, "{:?}", rig.events);
    assert!(!behind.is_empty());
    assert_eq!(rig.said(), "one two three");
    assert_eq!(rig.next(), "bytes");
    // A stream that begins with the run's beginning needs no state.
    let mut rig = Rig::joined(record(RunStatus::Running));
    rig.opens();
    rig.sends(&whole_run()[..3]);
    assert_eq!(rig.next(), "bytes");
}

#[test]
fn after_a_gap_the_state_is_read() {
    let mut rig = Rig::started();
    rig.sends(&whole_run()[..4]);
    rig.closes(cut());
    rig.pause();
    rig.opens();
    // The last parts are not replayed.
    rig.sends(&[says("3000-0", "five "), says("3001-0", "six")]);
    assert_eq!(rig.next(), "the state");
    let said = rig.said();
    rig.holds(Some(&thread_state(&["hi", "one two three four "])));
    assert_eq!(rig.next(), "bytes");
    let base = rig.events.iter().rposition(|event| matches!(event, RunEvent::Messages(_))).unwrap();
    assert!(base > 0 && rig.said().starts_with(&said));
    rig.sends(&[state("3002-0", &["hi", "one two three four five six"])]);
    rig.closes(BodyEnd::Clean);
    assert_eq!(rig.seen().coverage, Coverage::Partial);
    // A new attempt begins with `metadata`, and there is no gap before it.
    let mut rig = Rig::started();
    rig.sends(&whole_run()[..4]);
    rig.closes(cut());
    rig.pause();
    rig.opens();
    rig.sends(&[metadata("3000-0")]);
    assert_eq!(rig.next(), "bytes");
}

#[test]
fn where_the_last_parts_are_not_replayed_the_end_is_in_doubt() {
    let mut rig = Rig::started();
    rig.sends(&whole_run()[..4]);
    rig.closes(cut());
    rig.pause();
    rig.opens();
    rig.closes(BodyEnd::Clean);
    assert_eq!(rig.seen().coverage, Coverage::EndMissing);
}

#[test]
fn a_part_that_may_be_a_repeat_is_asked_for_again() {
    let told = {
        let mut rig = Rig::joined(record(RunStatus::Running));
        rig.opens();
        rig.sends(&whole_run()[..3]);
        rig.sends(&[says("1003-0", "ha "), says("1003-0", "ha "), whole_run().remove(6)]);
        rig
    };
    // The replay has the same part twice under one id, which may be the block of repeats.
    assert_eq!(told.next(), "a pause");
    let mut rig = told;
    assert_eq!(rig.pause(), NO_PAUSE);
    assert_eq!(rig.next(), "the stream after 1002-0 again: Doubtful");
    rig.opens();
    // The stored stream shows that the part was sent twice.
    rig.sends(&[says("1003-0", "ha "), says("1003-0", "ha "), says("1004-0", "ho")]);
    assert_eq!((&*rig.next(), &*rig.said()), ("bytes", "one ha ha ho"));
}

#[test]
fn ids_that_mean_something_else_now_are_read_from_the_beginning() {
    for again in [says("1003-0", "else"), metadata("7")] {
        let mut rig = Rig::started();
        rig.sends(&whole_run()[..4]);
        rig.closes(cut());
        rig.pause();
        assert_eq!(rig.next(), "the stream after 1002-0 again: Cut");
        rig.opens();
        rig.sends(&[again]);
        rig.pause();
        assert_eq!(rig.next(), "the stream after -1 again: Doubtful");
        rig.opens();
        rig.sends(&[metadata("7"), state("8", &["hi"]), says("9", "once more")]);
        assert_eq!(rig.next(), "bytes");
        assert!(rig.said().ends_with("once more"));
    }
}

#[test]
fn a_replay_is_over_when_it_is_quiet() {
    // Small ids are counts, not times.
    let mut rig = Rig::joined(record(RunStatus::Running));
    rig.opens_at(Some(TIME));
    rig.sends(&whole_run()[..2]);
    rig.passes(QUIET.saturating_sub(MILLISECOND));
    assert!(rig.is_replaying());
    rig.sends(&whole_run()[2..3]);
    rig.passes(QUIET.saturating_sub(MILLISECOND));
    assert!(rig.is_replaying());
    rig.passes(MILLISECOND);
    assert!(!rig.is_replaying());
    assert_eq!(rig.next(), "bytes");
    // Now only the limit of silence is due.
    assert_eq!(rig.reading.timeout(), Some(rig.now + SILENCE.saturating_sub(QUIET)));
}

#[test]
fn a_replay_that_is_never_quiet_is_over_after_two_seconds() {
    let mut rig = Rig::joined(record(RunStatus::Running));
    rig.opens();
    let began = rig.now;
    rig.sends(&whole_run()[..2]);
    for at in 0.. {
        if !rig.is_replaying() {
            break;
        }
        rig.passes(QUIET / 2);
        rig.sends(&[says(&format!("{}-0", 1002 + at), "x")]);
    }
    assert_eq!(rig.now - began, CATCH_UP);
}

#[test]
fn a_replay_of_times_is_over_when_it_comes_to_the_join_or_is_quiet_for_longer() {
    let id = |time: u64| format!("{time}-0");
    let times = || {
        let mut rig = Rig::joined(record(RunStatus::Running));
        rig.opens_at(Some(TIME));
        rig.sends(&[metadata(&id(TIME - 90_000)), state(&id(TIME - 89_000), &["hi"])]);
        rig
    };
    let mut rig = times();
    rig.passes(TIMED_QUIET.saturating_sub(MILLISECOND));
    assert!(rig.is_replaying());
    rig.sends(&[says(&id(TIME - 1), "one ")]);
    assert!(rig.is_replaying());
    rig.sends(&[says(&id(TIME), "two ")]);
    assert!(!rig.is_replaying(), "it came after the join");

    let mut rig = times();
    rig.passes(TIMED_QUIET);
    assert!(!rig.is_replaying());

    let mut rig = times();
    let began = rig.now;
    for at in 0.. {
        if !rig.is_replaying() {
            break;
        }
        rig.passes(TIMED_QUIET / 2);
        rig.sends(&[says(&id(TIME - 80_000 + at), "x")]);
    }
    assert_eq!(rig.now - began, TIMED_CATCH_UP);
}

#[test]
fn a_replay_that_brings_nothing_is_over_after_two_seconds_with_the_state() {
    let mut rig = Rig::joined(record(RunStatus::Running));
    rig.opens();
    rig.passes(CATCH_UP.saturating_sub(MILLISECOND));
    assert_eq!(rig.next(), "bytes");
    rig.passes(MILLISECOND);
    assert_eq!((&*rig.next(), rig.is_replaying()), ("the state", true));
    rig.holds(Some(&thread_state(&["hi"])));
    assert_eq!((&*rig.next(), rig.is_replaying()), ("bytes", false));
    rig.sends(&[says("1002-0", "two")]);
    assert_eq!(rig.next(), "bytes");

    // A heartbeat is no part of a replay.
    let begin = |at| {
        let mut rig = Rig::joined(record(RunStatus::Running));
        rig.opens();
        rig.now += at;
        rig.sends_bytes(b": heartbeat\r\n\r\n");
        rig
    };
    let mut rig = begin(CATCH_UP / 2);
    rig.passes((CATCH_UP / 2).saturating_sub(MILLISECOND));
    assert_eq!((&*rig.next(), rig.is_replaying()), ("bytes", true));
    for mut rig in [rig, begin(CATCH_UP)] {
        rig.passes(MILLISECOND);
        assert_eq!((&*rig.next(), rig.is_replaying()), ("the state", true));
    }
}

#[test]
fn a_stream_that_the_server_ends_is_asked_about_once_in_a_silence_and_once_after_a_stop() {
    let minute = Duration::from_mins(1);
    let mut rig = Rig::started();
    rig.sends(&whole_run()[..3]);
    assert_eq!(rig.next(), "bytes");
    let asked_in = |rig: &mut Rig, time: Duration| {
        let (until, mut asked) = (rig.now + time, 0);
        while rig.now < until {
            rig.passes(Duration::from_secs(5));
            if rig.asked.is_some() {
                assert_eq!(rig.next(), BEATS);
                rig.looks(EndStatus::Running);
                asked += 1;
            }
            rig.sends_bytes(HEARTBEAT);
            assert_eq!(rig.next(), "bytes");
        }
        asked
    };
    assert_eq!(asked_in(&mut rig, Duration::from_secs(55)), 0);
    assert_eq!(asked_in(&mut rig, Duration::from_secs(10)), 1);
    assert_eq!(asked_in(&mut rig, minute * 10), 0, "not again");
    rig.reading.on_stop(rig.now);
    assert_eq!(asked_in(&mut rig, Duration::from_secs(15)), 1, "after a stop");
    assert_eq!(asked_in(&mut rig, minute * 10), 0, "not again");
    // The next part begins another silence.
    rig.sends(&whole_run()[3..4]);
    assert_eq!(rig.next(), "bytes");
    assert_eq!(asked_in(&mut rig, minute * 10), 1);
}

#[test]
fn a_run_that_waits_for_its_turn_is_never_taken_for_caught_up() {
    for (server, often) in [(Capabilities::PYTHON, 1..=1), (Capabilities::AEGRA, 8..=11)] {
        let mut rig = Rig::joined_on(server, record(RunStatus::Pending), Source::Stream);
        rig.opens();
        let mut asked = 0;
        for _ in 0..60 {
            rig.passes(Duration::from_secs(5));
            if rig.asked.is_some() {
                assert_eq!(rig.next(), BEATS);
                rig.looks(EndStatus::Running);
                asked += 1;
            }
            rig.sends_bytes(HEARTBEAT);
            assert_eq!((&*rig.next(), rig.is_replaying()), ("bytes", true));
        }
        assert!(often.contains(&asked), "in five minutes it was asked about {asked} times");
        rig.sends(&whole_run()[..3]);
        rig.passes(QUIET);
        assert_eq!((&*rig.next(), rig.is_replaying()), ("bytes", false));
    }
}

#[test]
fn the_replay_of_a_run_that_is_over_is_over_with_its_end() {
    let mut rig = Rig::joined(record(RunStatus::Success));
    rig.opens();
    rig.passes(CATCH_UP);
    rig.sends(&whole_run()[..3]);
    rig.passes(CATCH_UP);
    assert_eq!((&*rig.next(), rig.is_replaying()), ("bytes", true));
    rig.sends(&whole_run()[3..]);
    let told = rig.succeeds();
    assert_eq!(told, uncut(Rig::joined(record(RunStatus::Success)), &whole_run()));
}

// === a run that is followed by its record ===

#[test]
fn a_run_that_is_not_joined_is_followed_by_its_record_and_its_threads_state() {
    let mut rig = Rig::recorded();
    assert_eq!((&*rig.next(), rig.is_replaying()), ("the state", true));
    // Without the state, readers cannot be shown anything yet.
    rig.holds(None);
    assert_eq!((rig.pause(), rig.is_replaying()), (STATUS_INTERVAL, true));
    assert_eq!(rig.next(), "the record");
    rig.records(Ok(record(RunStatus::Running)));
    assert_eq!(rig.next(), "the state");
    rig.holds(Some(&thread_state(&["hi"])));
    assert_eq!((rig.pause(), rig.is_replaying()), (STATUS_INTERVAL, false));
    let count = rig.events.len();
    // The same state makes no event.
    rig.records(Ok(record(RunStatus::Running)));
    rig.holds(Some(&thread_state(&["hi"])));
    assert_eq!(rig.events.len(), count);
    rig.pause();
    // The run is pending, so the thread's state belongs to another run.
    rig.records(Ok(record(RunStatus::Pending)));
    assert_eq!(rig.pause(), STATUS_INTERVAL);
    rig.records(Ok(record(RunStatus::Success)));
    assert_eq!(rig.next(), "the status: Clean");
    assert_ne!(rig.seen().coverage, Coverage::Whole);
    let state = Some(FinalState::OfRun(thread_state(&["hi", "you"])));
    rig.looks(EndStatus::Ended(Ending {
        state,
        kept: StoredDecisions::default(),
        end: StreamEnd::Succeeded,
    }));
    rig.ends();
    let last = rig.events.last().unwrap();
    assert!(matches!(last, RunEvent::Ended { outcome: Outcome::Finished { .. }, .. }), "{last:?}");
}

#[test]
fn a_record_that_is_out_of_reach_is_asked_for_a_second_later_at_the_earliest() {
    let mut rig = Rig::recorded();
    rig.holds(None);
    let away = |rig: &mut Rig| match rig.asked {
        Some(UpstreamRequest::Record { .. }) => rig.records(Err(cut())),
        Some(UpstreamRequest::EndStatus { .. }) => rig.looks(EndStatus::Unknown("503".to_owned())),
        None => assert!(rig.pause() >= STATUS_INTERVAL),
        _ => panic!("{}", rig.next()),
    };
    // One success restarts the minute.
    let mut began = rig.now;
    while rig.now - began < UPSTREAM_PATIENCE.saturating_sub(2 * LONGEST_PAUSE) {
        away(&mut rig);
    }
    while !matches!(rig.asked, Some(UpstreamRequest::Record { .. })) {
        away(&mut rig);
    }
    rig.records(Ok(record(RunStatus::Running)));
    rig.holds(None);
    assert_eq!(rig.pause(), STATUS_INTERVAL);
    began = rig.now;
    while rig.end.is_none() {
        away(&mut rig);
    }
    let after = rig.now - began;
    assert!((UPSTREAM_PATIENCE..=UPSTREAM_PATIENCE + LONGEST_PAUSE).contains(&after), "{after:?}");
    // A run whose record is refused may be gone.
    let mut rig = Rig::recorded();
    rig.holds(None);
    rig.pause();
    rig.records(Err(BodyEnd::Refused));
    assert_eq!(rig.next(), "the status: Refused");
    rig.looks(EndStatus::Running);
    assert!(rig.pause() >= STATUS_INTERVAL);
    assert_eq!(rig.next(), "the record");
}

// === properties ===

/// How a connection is lost.
#[derive(Clone, Copy, Debug)]
enum Break {
    Cut,
    InsideAnEvent,
    InOrder,
    Silence,
}

/// One connection of the server: the parts that it brings, and how it is lost.
#[derive(Clone, Debug)]
struct Visit {
    /// How many of the remaining parts it brings.
    brings: usize,
    /// How many of the parts before that were said while the server read its store: they come
    /// twice. The last connection repeats them before the end.
    repeats: usize,
    /// How many parts the server had stored when the connection was made.
    stored: usize,
    /// The size of each chunk, in bytes.
    piece: usize,
    /// The delay before each chunk, in milliseconds.
    lag: u64,
    loss: Break,
    /// How many times it is refused first.
    refused: usize,
}

fn visit() -> impl Strategy<Value = Visit> {
    let loss = prop_oneof![
        Just(Break::Cut),
        Just(Break::InsideAnEvent),
        Just(Break::InOrder),
        Just(Break::Silence),
    ];
    let refused = prop_oneof![4 => Just(0), 1 => 1..8_usize];
    (0..6_usize, 0..4_usize, 0..6_usize, 1..600_usize, 0..1500_u64, loss, refused).prop_map(
        |(brings, repeats, stored, piece, lag, loss, refused)| Visit {
            brings,
            repeats,
            stored,
            piece,
            lag,
            loss,
            refused,
        },
    )
}

/// One output of a run, and how many milliseconds after the previous one.
#[derive(Clone, Debug)]
enum Says {
    Token(&'static str),
    /// The text so far, as a state.
    Commit,
}

/// A run of a server whose ids are times, of which several parts may share one, or counts.
fn any_run() -> impl Strategy<Value = Vec<Sent>> {
    let token = prop::sample::select(&["a", "b", "c ", "é", "\\\""][..]).prop_map(Says::Token);
    let say = prop_oneof![5 => token, 1 => Just(Says::Commit)];
    (vec((say, 0..3_u64), 0..24), any::<bool>()).prop_map(|(said, is_counted)| {
        let mut parts = vec![metadata(&id(0, is_counted)), state(&id(1, is_counted), &["hi"])];
        let (mut time, mut text) = (1, String::new());
        for (says_so, later) in said {
            time += if is_counted { 1 } else { later };
            match says_so {
                Says::Token(token) => {
                    text.push_str(token);
                    parts.push(says(&id(time, is_counted), token));
                }
                Says::Commit => parts.push(state(&id(time, is_counted), &["hi", &*text])),
            }
        }
        parts.push(state(&id(time + 1, is_counted), &["hi", &*text]));
        parts
    })
}

fn id(time: u64, is_counted: bool) -> String {
    if is_counted { time.to_string() } else { format!("{}-0", TIME + time) }
}

impl Rig {
    /// A connection brings these parts, with its delays.
    fn is_sent(&mut self, sent: &[Sent], visit: &Visit) {
        for piece in bytes(sent).chunks(visit.piece) {
            if !self.reading.takes_bytes() {
                // A doubtful repeat: the rest is not read.
                return;
            }
            self.sends_bytes(piece);
            // A replay that is silent before its first part counts as empty.
            if self.reading.decoder().count() > 0 {
                self.passes(Duration::from_millis(visit.lag));
            }
        }
    }

    /// The run is read from one connection after another, until all parts have come.
    fn reads(mut self, run: &[Sent], visits: &[Visit]) -> Vec<RunEvent> {
        let last = Visit {
            brings: run.len(),
            repeats: 0,
            stored: 0,
            piece: 1 << 16,
            lag: 0,
            loss: Break::Cut,
            refused: 0,
        };
        let mut visits = visits.iter();
        // How much of the run the server has sent, and where the connection begins.
        let mut said = 0;
        for connection in 0.. {
            assert!(connection < 200, "it is joined for ever: {self:?}");
            let visit = visits.next().unwrap_or(&last);
            for _ in 0..visit.refused {
                self.comes_to_a_join();
                if self.asked.is_some() {
                    self.gives_none(cut());
                }
            }
            let cursor = self.comes_to_a_join();
            let first = run.iter().position(|part| is_after(part, &cursor)).unwrap_or(run.len());
            let is_joined = self.asked.is_some();
            if is_joined {
                self.opens();
            }
            // The stored parts, those of them that are repeated, and the live parts.
            let stored = (said + visit.stored).min(run.len()).max(first);
            // The pause before a join lets the server's clock go on: what is said during the join has
            // another id than what was said before it.
            let before = said.checked_sub(1).map(|last| &*run[last].id);
            let known = said.max(first);
            let is_before = |part: &&Sent| Some(&*part.id) == before;
            let fresh = known + run[known..].iter().take_while(is_before).count();
            let repeated = stored.saturating_sub(visit.repeats).max(fresh).min(stored);
            let block = if is_joined { &run[repeated..stored] } else { &[] };
            said = (stored + visit.brings).min(run.len());
            let sent = [&run[first..stored], block, &run[stored..said]].concat();
            self.is_sent(&sent, visit);
            if !self.reading.takes_bytes() {
                continue;
            }
            if said == run.len() && visits.len() == 0 {
                return self.succeeds();
            }
            match visit.loss {
                Break::Silence if self.reading.decoder().count() > 0 => {
                    self.passes(SILENCE_WITHOUT_HEARTBEATS);
                }
                Break::Cut | Break::Silence => self.closes(cut()),
                Break::InsideAnEvent => {
                    self.sends_bytes(b"id: 9999999999999-0\r\nevent: messages\r\ndata: [{");
                    self.closes(BodyEnd::Clean);
                }
                Break::InOrder => self.closes(BodyEnd::Clean),
            }
        }
        unreachable!()
    }

    /// The cursor of the next request for the stream.
    fn comes_to_a_join(&mut self) -> String {
        loop {
            match &self.asked {
                Some(UpstreamRequest::Stream { cursor, .. }) => return cursor.clone(),
                Some(UpstreamRequest::EndStatus { .. }) => self.looks(EndStatus::Running),
                Some(other) => panic!("{other:?} is asked"),
                None if self.reading.takes_bytes() => return BEGINNING.to_owned(),
                None => drop(self.pause()),
            }
        }
    }
}

/// An input from the upstream, or the time.
#[derive(Clone, Debug)]
enum Comes {
    Parts(Vec<Sent>),
    Closed(BodyEnd),
    UpstreamAnswer { state: bool, record: Result<RunStatus, BodyEnd>, status: u8, opens: bool },
    Time(u64),
}

fn body_end() -> impl Strategy<Value = BodyEnd> {
    prop_oneof![
        3 => Just(BodyEnd::Clean),
        4 => Just(cut()),
        1 => Just(BodyEnd::Refused),
        1 => Just(BodyEnd::Unreadable("why".to_owned())),
    ]
}

fn status() -> impl Strategy<Value = RunStatus> {
    use RunStatus::{Error, Interrupted, Pending, Running, Success, Timeout, Unknown};
    prop::sample::select(vec![
        Running,
        Running,
        Running,
        Pending,
        Success,
        Error,
        Timeout,
        Interrupted,
        Unknown,
    ])
}

fn comes() -> impl Strategy<Value = Comes> {
    let part = (0..4_u8, 0..6_u64, "[ab]").prop_map(|(kind, at, text)| {
        let id = format!("{at}-0");
        match kind {
            0 => metadata(&id),
            1 => state(&id, &["hi", &*text]),
            _ => says(&id, &text),
        }
    });
    let failed = (0..6_u64).prop_map(|at| vec![failure(&format!("{at}-0"))]);
    let record = prop_oneof![3 => status().prop_map(Ok), 1 => body_end().prop_map(Err)];
    let answer = (any::<bool>(), record, 0..8_u8, prop::bool::weighted(0.8));
    prop_oneof![
        6 => vec(part, 0..4).prop_map(Comes::Parts),
        1 => failed.prop_map(Comes::Parts),
        3 => body_end().prop_map(Comes::Closed),
        8 => answer.prop_map(|(state, record, status, opens)| {
            Comes::UpstreamAnswer { state, record, status, opens }
        }),
        4 => prop_oneof![0..50_u64, 0..5_000_u64, 0..90_000_u64].prop_map(Comes::Time),
    ]
}

fn any_rig() -> impl Strategy<Value = (bool, Capabilities, RunRecord)> {
    let server = prop::sample::select(vec![
        Capabilities::PYTHON,
        Capabilities::JAVASCRIPT,
        Capabilities::default(),
    ]);
    (any::<bool>(), server, status(), any::<bool>(), any::<Option<bool>>()).prop_map(
        |(is_started, server, status, is_resumable, has_values)| {
            (is_started, server, RunRecord { is_resumable, has_values, ..record(status) })
        },
    )
}

impl Rig {
    fn takes(&mut self, comes: Comes) {
        match (comes, &self.asked) {
            (Comes::UpstreamAnswer { opens, .. }, Some(UpstreamRequest::Stream { .. })) => {
                if opens {
                    self.opens();
                } else {
                    self.gives_none(cut());
                }
            }
            (Comes::UpstreamAnswer { state, .. }, Some(UpstreamRequest::State)) => {
                self.holds(state.then(|| thread_state(&["hi", "a"])).as_deref());
            }
            (
                Comes::UpstreamAnswer { record: answer, .. },
                Some(UpstreamRequest::Record { .. }),
            ) => {
                self.records(answer.map(record));
            }
            (Comes::UpstreamAnswer { status, .. }, Some(UpstreamRequest::EndStatus { .. })) => {
                self.looks(match status {
                    0 => EndStatus::Ended(success()),
                    1..4 => EndStatus::Unknown("503".to_owned()),
                    4 => EndStatus::Lagging,
                    5 => EndStatus::Unconfirmed(StreamEnd::Succeeded),
                    _ => EndStatus::Running,
                });
            }
            (Comes::Parts(parts), None) if self.reading.takes_bytes() => self.sends(&parts),
            (Comes::Closed(end), None) if self.reading.takes_bytes() => self.closes(end),
            (Comes::Time(time), _) => self.passes(Duration::from_millis(time)),
            (Comes::UpstreamAnswer { .. } | Comes::Parts(_) | Comes::Closed(_), _) => {}
        }
    }
}

/// The number of cases of a property, unless `PROPTEST_CASES` is set.
fn config(runs: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let is_chosen = std::env::var_os("PROPTEST_CASES").is_some();
    let cases = if is_chosen { default.cases } else { runs };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config(1024))]

    /// However a run's connections are lost, its parts are repeated and its bytes are chunked, its
    /// events are those of one whole connection.
    #[test]
    fn however_its_stream_is_cut_a_run_makes_the_same_events(
        run in any_run(),
        visits in vec(visit(), 0..8),
        is_joined in any::<bool>(),
    ) {
        let rig = || if is_joined { Rig::joined(record(RunStatus::Running)) } else { Rig::started() };
        prop_assert_eq!(rig().reads(&run, &visits), uncut(Rig::started(), &run));
    }

    /// For any inputs in any order, the reading moves along the picture and waits for something that
    /// will come (`Rig::take_action`). Its events are sent once, from a start to an end.
    #[test]
    fn whatever_comes_the_reading_moves_along_its_picture(
        (is_started, server, record) in any_rig(),
        coming in vec(comes(), 0..60),
    ) {
        let mut rig = if is_started {
            Rig::started_on(server)
        } else {
            let source = Source::after(&record, server, None);
            Rig::joined_on(server, record, source)
        };
        for comes in coming {
            if rig.end.is_some() {
                break;
            }
            rig.takes(comes);
        }
        // From now on the server is unreachable.
        let began = rig.now;
        while rig.end.is_none() {
            match rig.asked {
                Some(UpstreamRequest::Stream { .. }) => rig.gives_none(cut()),
                Some(UpstreamRequest::State) => rig.holds(None),
                Some(UpstreamRequest::Record { .. }) => rig.records(Err(cut())),
                Some(UpstreamRequest::EndStatus { .. }) => rig.looks(EndStatus::Unknown("503".to_owned())),
                None => rig.passes(Duration::from_secs(1)),
            }
            prop_assert!(rig.now - began < 3 * UPSTREAM_PATIENCE, "{:?}", rig);
        }
        rig.ends();
        prop_assert!(!rig.reading.has_stream() && rig.reading.timeout().is_none());
        let is_end = |event: &RunEvent| matches!(event, RunEvent::Ended { .. });
        let ends = rig.events.iter().filter(|event| is_end(event)).count();
        prop_assert_eq!((ends, rig.events.last().is_some_and(is_end)), (1, true));
        let is_start = |event: &&RunEvent| matches!(event, RunEvent::Started { .. });
        prop_assert_eq!(rig.events.iter().filter(is_start).count(), 1);
        for arrow in &rig.arrows {
            prop_assert!(PICTURE.contains(arrow) || SHORT_CUTS.contains(arrow), "{arrow:?}");
        }
    }
}
