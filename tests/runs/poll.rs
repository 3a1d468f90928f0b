//! Following many threads: the requests while they are idle, and while their server is unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{Gateway, Response, counted, values};
use crate::support::upstream::{Exchange, Upstream};
use serde_json::{Value, json};

/// How often threads are polled, or read one by one.
const INTERVAL: Duration = Duration::from_secs(2);

/// After this time all threads that were followed at once have been polled, and read after the
/// poll.
const SETTLED: Duration = Duration::from_secs(10);

/// More than the smallest number of threads that are polled together.
const THREADS: usize = 20;

/// How a server answers a search for threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Search {
    #[default]
    Right,
    /// The server returns all threads, the oldest change first.
    IgnoresIds,
    /// Like aegra, the server rejects `select`, ignores `ids`, and sorts by the time of change.
    Newest,
    NoList,
    Refuses(u16),
}

/// A thread of the server.
#[derive(Clone, Debug)]
struct Thread {
    /// Raised with each change.
    mark: u64,
    /// The runs `R1` to this one have succeeded.
    runs: u64,
    /// Whether the thread exists, and whether a search lists it.
    is_there: bool,
    is_listed: bool,
    /// Whether a run is running or pending.
    is_busy: bool,
    /// How often the state has changed without the API.
    changes: u64,
    /// How large the state is, in bytes.
    size: usize,
}

/// A JavaScript server with threads.
struct Server {
    gateway: Gateway,
    clock: HeldClock,
    threads: BTreeMap<String, Thread>,
    search: Search,
    /// If set, the answer to every request.
    refuses: Option<&'static str>,
    asked: Vec<Asked>,
    /// Open lifecycle streams, which send nothing.
    bells: Vec<Exchange>,
}

/// The requests to the server.
#[derive(Clone, Debug)]
struct Asked {
    line: String,
    key: Option<String>,
    body: String,
}

/// Runs a test that pauses the clock. A runtime can pause it only once, so each test has its own.
fn paused(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

/// The id of this thread.
fn id(number: usize) -> String {
    format!("0f9cfe5e-7d44-4d4f-8aef-{number:012}")
}

// === impl Asked ===

impl Asked {
    fn is_poll(&self) -> bool {
        self.line == "POST /threads/search"
    }

    /// Whether this is the first request of a read of this thread.
    fn is_look_at(&self, number: usize) -> bool {
        self.line.starts_with(&format!("GET /threads/{}/runs?", id(number)))
    }

    /// Whether this is a read of this thread's state.
    fn is_state_of(&self, number: usize) -> bool {
        self.line == format!("GET /threads/{}/state", id(number))
    }

    fn is_state(&self) -> bool {
        self.line.ends_with("/state")
    }

    /// The thread ids of a poll.
    fn ids(&self) -> BTreeSet<String> {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        let ids = body["ids"].as_array().unwrap();
        assert_eq!(body["limit"], ids.len());
        assert_eq!(
            body["select"],
            json!(["thread_id", "status", "updated_at", "state_updated_at"])
        );
        ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    }
}

// === impl Server ===

impl Server {
    async fn start() -> Self {
        Self::of(Gateway::javascript().await, THREADS)
    }

    fn of(gateway: Gateway, count: usize) -> Self {
        let (is_there, is_listed, is_busy) = (true, true, false);
        let thread = Thread { mark: 1, runs: 0, is_there, is_listed, is_busy, changes: 0, size: 0 };
        // The first thread has changed last.
        let marks = (1..).take(count).collect::<Vec<_>>().into_iter().rev();
        let thread = |(number, mark)| (id(number), Thread { mark, ..thread.clone() });
        let threads = marks.enumerate().map(thread).collect();
        let (search, clock) = (Search::default(), HeldClock::pause());
        let (asked, bells) = (Vec::new(), Vec::new());
        Self { gateway, clock, threads, search, refuses: None, asked, bells }
    }

    /// A server whose threads are all followed and have settled.
    async fn followed(search: Search) -> (Self, Vec<Response>) {
        Self::followed_of(search, THREADS).await
    }

    async fn followed_of(search: Search, count: usize) -> (Self, Vec<Response>) {
        let mut server = Self::of(Gateway::javascript().await, count);
        server.search = search;
        let mut responses = Vec::new();
        for number in 0..count {
            responses.push(server.follow(number, "").await);
        }
        server.passes(SETTLED).await;
        server.asked.clear();
        (server, responses)
    }

    fn thread(&mut self, number: usize) -> &mut Thread {
        self.threads.get_mut(&id(number)).unwrap()
    }

    /// Follows a thread with these headers; the follower gets the idle thread.
    async fn follow(&mut self, number: usize, headers: &str) -> Response {
        let mut response = self.attach(number, headers).await;
        let told = response.next(5).await;
        assert_eq!(told[4]["type"], "RUN_FINISHED", "{told:?}");
        response
    }

    async fn attach(&mut self, number: usize, headers: &str) -> Response {
        let request = format!(
            "GET /agui/agent/agent/threads/{}/events?follow=thread HTTP/1.1\r\nhost: h\r\n\
             {headers}\r\n",
            id(number)
        );
        let address = self.gateway.address;
        let attached = Response::to(address, request.as_bytes());
        tokio::pin!(attached);
        loop {
            tokio::select! {
                biased;
                exchange = self.gateway.upstream.next() => self.answer(exchange).await,
                response = &mut attached => return response,
            }
        }
    }

    /// Advances the clock, and answers the requests of that time.
    async fn passes(&mut self, time: Duration) {
        const STEP: Duration = Duration::from_millis(500);
        let over = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < over {
            self.clock.advance(STEP).await;
            self.settles().await;
        }
    }

    /// Answers requests until no more arrive.
    async fn settles(&mut self) {
        loop {
            self.gateway.settled().await;
            let Some(exchange) = self.gateway.upstream.waiting().await else { return };
            self.answer(exchange).await;
            while let Some(exchange) = self.gateway.upstream.waiting().await {
                self.answer(exchange).await;
            }
        }
    }

    async fn answer(&mut self, mut exchange: Exchange) {
        let (line, body) = (exchange.line.clone(), exchange.body.clone());
        let key = exchange.key().map(str::to_owned);
        self.asked.push(Asked { line: line.clone(), key, body });
        if let Some(refusal) = self.refuses {
            exchange.raw(refusal).await;
            return;
        }
        if line == "POST /threads/search" {
            return self.searched(exchange).await;
        }
        let path = line.strip_prefix("GET /threads/").unwrap_or_else(|| panic!("{line}"));
        let (id, path) = path.split_once('/').unwrap();
        let thread = self.threads[id].clone();
        let run = |number: u64| {
            json!({
                "run_id": format!("R{number}"), "status": "success",
                "created_at": format!("2026-11-22T08:00:00Z {number}"),
                "metadata": {"threadway_run_id": format!("r{number}"), "threadway_start": format!("s{number}")}, "kwargs": {},
            })
        };
        let answer = match path {
            path if path.starts_with("stream?") => {
                exchange.begin("").await;
                return self.bells.push(exchange);
            }
            _ if !thread.is_there => return exchange.json(404, r#"{"detail":"no"}"#).await,
            path if path.starts_with("runs?status=") => json!([]),
            path if path.starts_with("runs?") => {
                let mut runs: Vec<_> = (1..=thread.runs).map(run).collect();
                if thread.is_busy {
                    let mut pending = run(thread.runs + 1);
                    pending["status"] = json!("pending");
                    runs.push(pending);
                }
                json!(runs)
            }
            "state" => {
                let mut values = values(&["hi", "you"]);
                values["count"] = json!(thread.runs);
                values["changes"] = json!(thread.changes);
                values["text"] = json!("x".repeat(thread.size));
                let made_by = (thread.runs > 0).then(|| format!("R{}", thread.runs));
                let made_by = made_by.map_or_else(|| json!({}), |run| json!({"run_id": run}));
                json!({
                    "values": values, "next": [], "tasks": [],
                    "metadata": made_by,
                    "checkpoint": {"checkpoint_id": format!("C{}.{}", thread.runs, thread.changes)},
                })
            }
            path => {
                let number = path.strip_prefix("runs/R").unwrap_or_else(|| panic!("{line}"));
                run(number.parse().unwrap())
            }
        };
        exchange.json(200, &answer.to_string()).await;
    }

    async fn searched(&self, exchange: Exchange) {
        let body: Value = serde_json::from_str(&exchange.body).unwrap();
        let told = |(id, thread): (&String, &Thread)| {
            let updated_at = format!("2026-11-22T08:00:00.{:06}Z", thread.mark);
            let status = if thread.is_busy { "busy" } else { "idle" };
            json!({"thread_id": id, "status": status, "updated_at": updated_at})
        };
        let mut listed: Vec<_> =
            self.threads.iter().filter(|(_, thread)| thread.is_listed).collect();
        match self.search {
            Search::Right if body["ids"].is_array() => {
                let asked = body["ids"].as_array().unwrap();
                listed.retain(|(id, _)| asked.iter().any(|asked| asked == *id));
                let list: Value = listed.into_iter().map(told).collect();
                exchange.json(200, &list.to_string()).await;
            }
            Search::Right | Search::IgnoresIds => {
                listed.sort_by_key(|(_, thread)| thread.mark);
                let list: Value = listed.into_iter().map(told).collect();
                exchange.json(200, &list.to_string()).await;
            }
            Search::Newest if !body["select"].is_null() => {
                exchange.json(422, r#"{"detail":"no"}"#).await;
            }
            Search::Newest => {
                assert_eq!(
                    (&body["sort_by"], &body["sort_order"]),
                    (&json!("updated_at"), &json!("desc"))
                );
                listed.sort_by_key(|(id, thread)| (std::cmp::Reverse(thread.mark), *id));
                let number = |name: &str| usize::try_from(body[name].as_u64().unwrap()).unwrap();
                let page = listed.into_iter().skip(number("offset")).take(number("limit"));
                let list: Value = page.map(told).collect();
                exchange.json(200, &list.to_string()).await;
            }
            Search::NoList => exchange.json(200, "{}").await,
            Search::Refuses(status) => exchange.json(status, r#"{"detail":"no"}"#).await,
        }
    }

    /// Adds a run of the thread that has succeeded.
    fn runs(&mut self, number: usize) {
        let newest = self.threads.values().map(|thread| thread.mark).max().unwrap();
        let thread = self.thread(number);
        thread.runs += 1;
        thread.mark = newest + 1;
    }

    fn polls(&self) -> usize {
        self.asked.iter().filter(|asked| asked.is_poll()).count()
    }

    fn states_of(&self, number: usize) -> usize {
        self.asked.iter().filter(|asked| asked.is_state_of(number)).count()
    }

    /// The requests that are neither polls nor reads of states.
    fn others(&self) -> Vec<&Asked> {
        self.asked.iter().filter(|asked| !asked.is_poll() && !asked.is_state()).collect()
    }

    fn looks_at(&self, number: usize) -> usize {
        self.asked.iter().filter(|asked| asked.is_look_at(number)).count()
    }

    /// Whether a follower has received a run of this name by now.
    async fn has_told(&self, response: &mut Response, run: &str) -> bool {
        loop {
            let event = tokio::select! {
                biased;
                mut events = response.next(1) => events.remove(0),
                () = self.gateway.settled() => return false,
            };
            if event["type"] == "RUN_STARTED" && event["runId"] == run {
                return true;
            }
        }
    }

    fn assert_about(count: usize, expected: usize) {
        assert!(count.abs_diff(expected) <= 1, "{count}, not about {expected}");
    }
}

// === the requests for idle threads ===

#[tokio::test]
async fn twenty_threads_at_rest_cost_a_poll_and_their_states_in_turn() {
    let (mut server, _responses) = Server::followed(Search::Right).await;
    server.passes(INTERVAL * 20).await;
    assert!(server.others().is_empty(), "{:?}", server.others());
    Server::assert_about(server.polls(), 20);
    let all: BTreeSet<_> = (0..THREADS).map(id).collect();
    assert!(server.asked.iter().filter(|asked| asked.is_poll()).all(|asked| asked.ids() == all));
    for number in 0..THREADS {
        let states = server.states_of(number);
        assert!((17..=21).contains(&states), "{number}: {states}");
    }
    server.passes(INTERVAL * 20).await;
    assert!(counted(&server.gateway.metrics, r#"looks_total{reason="poll"}"#) > 40.0);
    assert!(counted(&server.gateway.metrics, "poll_lag_seconds_count") > 40.0);
    assert!(counted(&server.gateway.metrics, "looks_waiting").abs() < 0.5);
}

#[tokio::test]
async fn a_few_threads_are_looked_at_one_by_one() {
    let mut server = Server::start().await;
    let mut responses = Vec::new();
    for number in 0..7 {
        responses.push(server.follow(number, "").await);
    }
    server.passes(SETTLED).await;
    assert_eq!(server.polls(), 0);
    responses.push(server.follow(7, "").await);
    server.passes(SETTLED).await;
    assert!(server.polls() > 0);
    // As soon as one follower leaves, the threads are polled again.
    drop(responses.pop());
    server.gateway.watched_by(7).await;
    server.passes(SETTLED).await;
    server.asked.clear();
    server.passes(SETTLED).await;
    assert_eq!(server.polls(), 0);
    Server::assert_about(server.looks_at(0), 5);
}

#[tokio::test]
async fn a_thread_that_moves_is_looked_at_and_its_run_is_shown() {
    let (mut server, mut responses) = Server::followed(Search::Right).await;
    server.runs(3);
    server.passes(INTERVAL * 2).await;
    assert!(server.has_told(&mut responses[3], "r1").await);
    for number in (0..THREADS).filter(|number| *number != 3) {
        assert_eq!(server.looks_at(number), 0, "{number}");
    }
    // A poll may show what no state does.
    server.thread(3).mark += 1;
    server.passes(INTERVAL * 2).await;
    assert!(counted(&server.gateway.metrics, r#"looks_total{reason="moved"}"#) > 0.5);
    // Then the thread is idle again.
    server.passes(INTERVAL * 2).await;
    server.asked.clear();
    server.passes(INTERVAL * 10).await;
    assert_eq!(server.looks_at(3), 0);
}

#[tokio::test]
async fn a_thread_whose_run_waits_is_looked_at_until_it_runs() {
    let (mut server, mut responses) = Server::followed(Search::Right).await;
    server.thread(3).is_busy = true;
    server.passes(INTERVAL * 10).await;
    assert!(server.looks_at(3) >= 8, "{}", server.looks_at(3));
    assert_eq!(server.looks_at(4), 0);
    // No list of threads shows that a pending run has started.
    server.thread(3).runs = 1;
    server.passes(INTERVAL).await;
    assert!(server.has_told(&mut responses[3], "r1").await);
}

#[tokio::test]
async fn what_happens_between_the_first_look_and_the_first_poll_is_shown() {
    let mut server = Server::start().await;
    let mut responses = Vec::new();
    for number in 0..8 {
        responses.push(server.follow(number, "").await);
    }
    server.passes(Duration::from_millis(1500)).await;
    let mut last = server.follow(8, "").await;
    server.runs(8);
    server.passes(INTERVAL + Duration::from_millis(500)).await;
    assert!(server.asked.iter().any(|asked| asked.is_poll() && asked.ids().contains(&id(8))));
    assert!(server.has_told(&mut last, "r1").await);
}

#[test]
fn a_thread_that_is_gone_is_looked_at_once() {
    for search in [Search::Right, Search::Newest] {
        paused(async {
            let (mut server, _responses) = Server::followed(search).await;
            *server.thread(5) =
                Thread { is_there: false, is_listed: false, ..server.thread(5).clone() };
            server.passes(INTERVAL * 10).await;
            assert_eq!(server.looks_at(5), 1);
            assert_eq!(server.looks_at(6), 0);
            // The thread exists now, like a new chat that is followed before its first run.
            *server.thread(5) =
                Thread { is_there: true, is_listed: true, ..server.thread(5).clone() };
            server.asked.clear();
            server.passes(INTERVAL * 2).await;
            assert!(server.looks_at(5) > 0);
        });
    }
}

#[test]
fn a_thread_that_a_list_leaves_out_though_it_is_shown_is_looked_at_by_itself() {
    for search in [Search::Right, Search::Newest] {
        paused(async {
            let (mut server, mut responses) = Server::followed(search).await;
            server.thread(5).is_listed = false;
            server.passes(INTERVAL * 10).await;
            assert!(server.looks_at(5) >= 8, "{}", server.looks_at(5));
            assert_eq!(server.looks_at(6), 0);
            server.runs(5);
            server.passes(INTERVAL * 2).await;
            assert!(server.has_told(&mut responses[5], "r1").await);
        });
    }
}

#[test]
fn a_server_that_cannot_be_polled_is_asked_once_in_each_way_and_each_thread_is_looked_at() {
    let refusals = [400, 401, 403, 404, 405, 422].map(Search::Refuses);
    for search in [Search::IgnoresIds, Search::NoList].into_iter().chain(refusals) {
        paused(async {
            let mut server = Server::start().await;
            server.search = search;
            let mut responses = Vec::new();
            // The server has one more thread than are followed.
            for number in 1..THREADS {
                responses.push(server.follow(number, "").await);
            }
            server.passes(SETTLED * 2).await;
            let polls = match search {
                Search::Refuses(401 | 403) => 1,
                // The server may only have rejected `select`.
                Search::Refuses(400 | 422) => 3,
                Search::Right
                | Search::IgnoresIds
                | Search::Newest
                | Search::NoList
                | Search::Refuses(_) => 2,
            };
            assert_eq!(server.polls(), polls, "{search:?}");
            for number in 1..THREADS {
                assert!(server.looks_at(number) >= 8, "{search:?}: {}", server.looks_at(number));
            }
            server.runs(3);
            server.passes(INTERVAL).await;
            assert!(server.has_told(&mut responses[2], "r1").await, "{search:?}");
        });
    }
}

#[tokio::test]
async fn a_server_whose_search_fails_is_looked_at_thread_by_thread_until_it_works() {
    let (mut server, mut responses) = Server::followed(Search::Refuses(500)).await;
    server.passes(Duration::from_mins(1)).await;
    for number in 0..THREADS {
        assert!(server.looks_at(number) >= 15, "{}", server.looks_at(number));
    }
    assert!(server.polls() <= 8, "{}", server.polls());
    server.search = Search::Right;
    server.passes(Duration::from_secs(30)).await;
    server.asked.clear();
    server.runs(3);
    server.passes(INTERVAL * 5).await;
    Server::assert_about(server.polls(), 5);
    assert!(server.looks_at(3) > 0);
    assert!(server.has_told(&mut responses[3], "r1").await);
}

// === a server that finds no threads by their ids ===

#[tokio::test]
async fn threads_at_rest_that_are_not_found_by_ids_cost_one_request_in_two_seconds_too() {
    let (mut server, _responses) = Server::followed(Search::Newest).await;
    server.passes(INTERVAL * 20).await;
    assert!(server.others().is_empty(), "{:?}", server.others());
    Server::assert_about(server.polls(), 20);
    assert!(server.asked.iter().all(|asked| !asked.body.contains("ids")));
}

#[tokio::test]
async fn a_change_among_the_newest_is_looked_at_and_its_run_is_shown() {
    let (mut server, mut responses) = Server::followed(Search::Newest).await;
    server.runs(3);
    server.passes(INTERVAL * 2).await;
    assert!(server.has_told(&mut responses[3], "r1").await);
    for number in (0..THREADS).filter(|number| *number != 3) {
        assert_eq!(server.looks_at(number), 0, "{number}");
    }
    // So is a change between a poll and the next ones, which fail.
    server.search = Search::Refuses(500);
    server.passes(INTERVAL).await;
    server.runs(4);
    server.passes(INTERVAL).await;
    server.search = Search::Newest;
    server.passes(INTERVAL * 4).await;
    assert!(server.has_told(&mut responses[4], "r1").await);
    // A thread that a list left out may be a new chat that is followed before its first run.
    server.thread(5).is_listed = false;
    server.passes(INTERVAL * 2).await;
    server.thread(5).is_listed = true;
    server.runs(5);
    server.passes(INTERVAL * 2).await;
    assert!(server.has_told(&mut responses[5], "r1").await);
}

#[tokio::test]
async fn threads_that_are_not_among_the_newest_are_seen_when_they_change() {
    const MANY: usize = 150;
    let (mut server, mut responses) = Server::followed_of(Search::Newest, MANY).await;
    // One page has a hundred of them.
    Server::assert_about(server.polls(), 0);
    server.runs(MANY - 1);
    server.passes(INTERVAL * 2).await;
    Server::assert_about(server.polls(), 2);
    assert!(server.has_told(&mut responses[MANY - 1], "r1").await);
    assert_eq!(server.looks_at(MANY - 2), 0);

    // More than a page change at once: the next page is requested too.
    for number in 0..120 {
        server.runs(number);
    }
    server.asked.clear();
    server.passes(INTERVAL * 4).await;
    let seconds = server.asked.iter().filter(|asked| asked.body.contains("\"offset\":100"));
    assert_eq!(seconds.count(), 1);
    for number in [0, 60, 119] {
        assert!(server.has_told(&mut responses[number], "r1").await, "{number}");
    }
    assert_eq!(server.looks_at(130), 0);
}

#[tokio::test]
async fn a_list_ends_where_the_last_one_did_if_all_of_that_has_changed() {
    const MANY: usize = 300;
    let (mut server, mut responses) = Server::followed_of(Search::Newest, MANY).await;
    for number in 0..100 {
        server.runs(number);
    }
    server.passes(INTERVAL * 3).await;
    let pages = |offset: usize| {
        let wanted = format!("\"offset\":{offset}");
        server.asked.iter().filter(|asked| asked.body.contains(&wanted)).count()
    };
    assert_eq!((pages(100), pages(200)), (1, 0));
    assert_eq!(server.looks_at(250), 0);
    assert!(server.has_told(&mut responses[99], "r1").await);
}

#[tokio::test]
async fn a_run_that_waits_in_a_thread_that_is_not_listed_is_seen_when_it_begins() {
    const MANY: usize = 150;
    let mut server = Server::of(Gateway::javascript().await, MANY);
    server.search = Search::Newest;
    let mut responses = Vec::new();
    for number in 0..MANY {
        responses.push(server.follow(number, "").await);
    }
    server.thread(140).is_busy = true;
    server.passes(SETTLED).await;
    server.asked.clear();
    server.passes(INTERVAL * 5).await;
    assert!(server.looks_at(140) >= 3, "{}", server.looks_at(140));
    assert_eq!(server.looks_at(141), 0);
    *server.thread(140) = Thread { is_busy: false, runs: 1, ..server.thread(140).clone() };
    server.passes(INTERVAL * 2).await;
    assert!(server.has_told(&mut responses[140], "r1").await);
}

#[tokio::test]
async fn threads_are_looked_at_one_by_one_while_more_change_than_are_listed() {
    const MANY: usize = 1_130;
    let (mut server, mut responses) = Server::followed_of(Search::Newest, 30).await;
    for number in 30..MANY {
        let thread = Thread { mark: 100, ..server.thread(0).clone() };
        server.threads.insert(id(number), thread);
    }
    server.thread(3).runs = 1;
    server.passes(INTERVAL * 3).await;
    assert!(server.has_told(&mut responses[3], "r1").await);
    server.asked.clear();
    server.passes(INTERVAL * 10).await;
    assert!(server.others().is_empty(), "{:?}", server.others());
}

// === a state that changes without the API ===

/// The name of the idle thread that is shown after so many changes without the API.
fn rested(thread: &Thread) -> String {
    format!("connect-C{}.{}", thread.runs, thread.changes)
}

#[tokio::test]
async fn a_state_that_changes_without_the_api_is_seen_in_three_seconds_with_ten_threads() {
    let (mut server, mut responses) = Server::followed_of(Search::Right, 10).await;
    for round in 1..=3 {
        let number = round * 3;
        server.thread(number).changes += 1;
        let shown = rested(server.thread(number));
        server.passes(Duration::from_secs(3)).await;
        assert!(server.has_told(&mut responses[number], &shown).await, "{round}");
    }
}

#[tokio::test]
async fn with_600_threads_it_is_seen_in_a_minute() {
    const MANY: usize = 600;
    let (mut server, mut responses) = Server::followed_of(Search::Right, MANY).await;
    server.passes(Duration::from_mins(1)).await;
    server.asked.clear();
    for number in [0, 300, 599] {
        server.thread(number).changes += 1;
    }
    server.passes(Duration::from_secs(61)).await;
    let states = server.asked.iter().filter(|asked| asked.is_state()).count();
    assert!((590..=630).contains(&states), "{states}");
    for number in [0, 300, 599] {
        let shown = rested(server.thread(number));
        assert!(server.has_told(&mut responses[number], &shown).await, "{number}");
    }
    let missed = (0..MANY).filter(|number| server.states_of(*number) == 0).count();
    assert_eq!(missed, 0);
}

#[tokio::test]
async fn callers_take_turns_however_many_threads_each_follows() {
    const MANY: usize = 300;
    let mut server = Server::of(Gateway::javascript().await, MANY);
    let mut responses = Vec::new();
    for number in 0..MANY {
        let name = if number < 8 { "alice" } else { "bob" };
        responses.push(server.follow(number, &format!("x-api-key: {name}\r\n")).await);
    }
    server.passes(Duration::from_secs(30)).await;
    server.asked.clear();
    server.passes(INTERVAL * 10).await;
    for number in 0..8 {
        let states = server.states_of(number);
        assert!(states >= 8, "{number}: {states}");
    }
    let states = server.asked.iter().filter(|asked| asked.is_state()).count();
    assert!(states <= 220, "{states}");
}

#[tokio::test]
async fn a_large_state_is_read_seldom_and_delays_no_other() {
    let mut server = Server::of(Gateway::javascript().await, 10);
    server.thread(0).size = 5_000_000;
    let mut responses = Vec::new();
    for number in 0..10 {
        responses.push(server.follow(number, "").await);
    }
    server.passes(SETTLED).await;
    server.asked.clear();
    server.passes(INTERVAL * 20).await;
    assert!((5..=9).contains(&server.states_of(0)), "{}", server.states_of(0));
    for number in 1..10 {
        let states = server.states_of(number);
        assert!((17..=21).contains(&states), "{number}: {states}");
    }
}

// === whose credentials the gateway uses ===

#[tokio::test]
async fn two_callers_are_polled_apart_each_with_its_own_key() {
    let mut server = Server::start().await;
    let key = |name: &str| format!("x-api-key: {name}\r\n");
    let mut responses = Vec::new();
    for number in 0..THREADS {
        let name = if number < 10 { "alice" } else { "bob" };
        responses.push(server.follow(number, &key(name)).await);
    }
    server.passes(SETTLED).await;
    let polled = |server: &Server, name: &str| {
        let by = |asked: &&Asked| asked.is_poll() && asked.key.as_deref() == Some(name);
        server.asked.iter().rfind(by).unwrap().ids()
    };
    assert_eq!(polled(&server, "alice"), (0..10).map(id).collect());
    assert_eq!(polled(&server, "bob"), (10..THREADS).map(id).collect());
    let keys: BTreeSet<_> = server.asked.iter().map(|asked| asked.key.as_deref()).collect();
    assert_eq!(keys, BTreeSet::from([Some("alice"), Some("bob")]));
    // The newest follower's credentials are used.
    responses.push(server.follow(0, &key("bob")).await);
    server.asked.clear();
    server.passes(SETTLED).await;
    assert_eq!(polled(&server, "alice"), (1..10).map(id).collect());
    assert_eq!(polled(&server, "bob"), (10..THREADS).chain([0]).map(id).collect());
}

// === an unreachable server ===

const TOO_MANY: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\ncontent-length: 0\r\n\
                        connection: close\r\n\r\n";

#[test]
fn all_wait_for_as_long_as_the_server_says() {
    for search in [Search::Right, Search::Refuses(404)] {
        paused(async {
            let (mut server, mut responses) = Server::followed(search).await;
            server.refuses = Some(TOO_MANY);
            // Threads that are due at once are read at once.
            while server.asked.is_empty() {
                server.passes(Duration::from_millis(100)).await;
            }
            assert!(server.asked.len() <= THREADS, "{search:?}: {}", server.asked.len());
            server.asked.clear();
            server.passes(Duration::from_secs(29)).await;
            assert_eq!(server.asked.len(), 0, "{search:?}");
            // One request tries again.
            server.passes(Duration::from_secs(30)).await;
            assert_eq!(server.asked.len(), 1, "{search:?}");
            server.refuses = None;
            server.runs(7);
            server.passes(Duration::from_secs(32)).await;
            assert!(server.has_told(&mut responses[7], "r1").await, "{search:?}");
        });
    }
}

#[test]
fn who_has_just_come_is_looked_for_at_once_and_ends_the_wait_of_others() {
    const AWAY: &str = "HTTP/1.1 503 Away\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    for (refusal, ends) in [(TOO_MANY, false), (AWAY, true)] {
        paused(async {
            let (mut server, _responses) = Server::followed(Search::Refuses(404)).await;
            server.refuses = Some(refusal);
            server.passes(Duration::from_mins(5)).await;
            let mut refused = server.attach(0, "").await;
            // The gateway forwards LangGraph's 429 unchanged.
            let is_refused =
                ["HTTP/1.1 5", "HTTP/1.1 429"].iter().any(|s| refused.head.starts_with(s));
            assert!(is_refused, "{}", refused.head);
            refused.body().await;
            // The clock does not advance.
            server.refuses = None;
            server.asked.clear();
            let _newcomer = server.follow(1, "").await;
            server.settles().await;
            let others = (0..THREADS).filter(|number| *number != 1 && server.looks_at(*number) > 0);
            assert_eq!(others.count() > 0, ends, "{refusal}");
        });
    }
}

#[test]
fn a_server_that_is_out_of_reach_is_tried_ever_less_often_and_shows_what_was_missed() {
    for search in [Search::Right, Search::Refuses(404)] {
        paused(async {
            let (mut server, mut responses) = Server::followed(search).await;
            let nobody = Upstream::bind().await;
            let away = std::mem::replace(&mut server.gateway.upstream, nobody).leave().await;
            let failed = |server: &Server| {
                counted(&server.gateway.metrics, r#"upstream_errors_total{kind="unreachable"}"#)
            };
            server.passes(Duration::from_mins(1)).await;
            let first = failed(&server);
            // First those that were due, then retries after 2, 4, 8, 16 and 30 s, or half of that.
            assert!((4.0..=20.0 + 8.0).contains(&first), "{search:?}: {first}");
            server.passes(Duration::from_mins(1)).await;
            let more = failed(&server) - first;
            assert!((2.0..=4.0).contains(&more), "{search:?}: {more}");
            assert_eq!(server.asked.len(), 0);

            server.gateway.upstream = away.returns();
            server.runs(7);
            server.passes(Duration::from_secs(34)).await;
            assert!(server.has_told(&mut responses[7], "r1").await, "{search:?}");
        });
    }
}

// === lifecycle streams ===

#[tokio::test]
async fn no_more_than_128_lifecycle_streams_are_open() {
    const MANY: usize = 132;
    let mut server = Server::of(Gateway::start().await, MANY);
    let mut responses = Vec::new();
    for number in 0..MANY {
        responses.push(server.follow(number, "").await);
    }
    server.passes(SETTLED).await;
    assert_eq!(server.bells.len(), 128);
    // A follower without a lifecycle stream gets its runs too.
    server.runs(131);
    server.passes(INTERVAL * 2).await;
    assert!(server.has_told(&mut responses[131], "r1").await);
}
