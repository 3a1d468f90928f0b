//! A soak test. Many clients whose connections break again and again read through two gateways
//! whose connections to the upstream break too. At the end each client must have the whole text,
//! and the gateways must not have grown.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::Response;
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep, timeout};

use crate::client::{self, Fault, Target, Wire};
use crate::endure::Holding;
use crate::held::{Asking, Begun, Held, Reached};
use crate::pipe::Pipe;
use crate::process::Process;
use crate::scenario::micros;
use crate::script::Script;

/// The default duration in minutes.
pub(crate) const MINUTES: u64 = 10;

const CLIENTS: u64 = 500;
/// The time between two tokens of a run: ten a second, a slow model.
const INTERVAL: Duration = Duration::from_millis(100);
/// The range of a run's tokens: about half a minute.
const TOKENS: [u64; 2] = [200, 400];
/// The range of the duration of a client's connection.
const CONNECTED: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(6)];
/// The range of the pause before a reconnect; an `EventSource` waits 3 s.
const AWAY: [Duration; 2] = [Duration::ZERO, Duration::from_secs(3)];
/// One pause in this many is longer, so that the gateway stops reading the run.
const LONG_EVERY: u64 = 8;
const LONG_AWAY: [Duration; 2] = [Duration::from_millis(10_500), Duration::from_secs(15)];
/// The time in which the first runs begin.
const START: Duration = Duration::from_secs(5);
/// How often all connections to the upstream are reset, half a minute after each measurement.
const RESET: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_mins(1);
/// How long a run may take with all its cuts; without them it takes 40 s.
const PATIENCE: Duration = Duration::from_mins(3);
/// How many refusals in a row a client accepts, and its pause after each.
const REFUSALS: u32 = 10;
/// How many of the first refusals are printed.
const REFUSALS_TOLD: u64 = 5;
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// The gateways' memory may grow by one part in this many, from the second measurement on.
const GROWTH: u64 = 4;

/// How many file descriptors a process may have opened for itself.
const DESCRIPTORS_BESIDE: usize = 2;

/// The counters of all clients.
#[derive(Default)]
struct Book {
    threads: AtomicU64,
    runs: AtomicU64,
    tokens: AtomicU64,
    /// How often a client resumed.
    behind: AtomicU64,
    over: AtomicU64,
    /// How often after a long pause.
    long: AtomicU64,
    /// How often a response ended before its run did.
    broken: AtomicU64,
    /// How often a run was not started, and how often a reconnect was refused.
    not_started: AtomicU64,
    refused: AtomicU64,
}

/// Pseudo-random numbers: xorshift64*.
struct Chance(u64);

/// Lets the clients disconnect and reconnect for this many minutes.
pub(crate) async fn run(minutes: u64) -> Result<(), Fault> {
    let upstream = Process::start("upstream", std::env::current_exe()?, &["upstream"])?;
    let pipe = Pipe::to(upstream.address()).await?;
    let url = format!("http://{}", pipe.address());
    let arguments = ["serve", "--upstream", &url, "--listen", "127.0.0.1:0", "--log", "warn"];
    let gateway = || Process::start("threadway", env!("CARGO_BIN_EXE_threadway"), &arguments);
    let gateways = [gateway()?, gateway()?];
    let targets = gateways.each_ref().map(|g| Target { address: g.address(), wire: Wire::Agui });
    let before = Holding::of_all(&gateways)?;
    println!("before: {}", told(&before));

    let book = Arc::new(Book::default());
    let begin = Instant::now();
    let end = begin + Duration::from_secs(60 * minutes);
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let book = Arc::clone(&book);
        clients.spawn(async move { come_and_go(client, targets, end, &book).await });
    }
    let mut resets = interval_at(begin + RESET / 2, RESET);
    let mut looks = interval_at(begin + LOOK, LOOK);
    let mut seen = Vec::new();
    while !clients.is_empty() {
        tokio::select! {
            // An error of one client ends the test.
            Some(client) = clients.join_next() => client??,
            _ = resets.tick() => pipe.reset(),
            _ = looks.tick() => {
                let holding = Holding::of_all(&gateways)?;
                println!("minute {}: {}; {book}", seen.len() + 1, told(&holding));
                seen.push(holding);
            }
        }
    }
    let after = Holding::settled(&gateways).await?;
    println!("after: {}; {book}", told(&after));
    println!(
        "{} runs: each client holds what its run has said.",
        book.runs.load(Ordering::Relaxed)
    );
    for (at, (before, after)) in before.iter().zip(&after).enumerate() {
        if after.descriptors > before.descriptors + DESCRIPTORS_BESIDE {
            return Err("file descriptors were left open".into());
        }
        // The measurements of the time in which all clients were active.
        if let [_, second, .., last] = &*seen
            && let (Some(second), Some(last)) = (second.get(at), last.get(at))
            && last.resident > second.resident + second.resident / GROWTH
        {
            return Err("the memory of a gateway has grown".into());
        }
    }
    Ok(())
}

/// The resources of the gateways in one line.
fn told(holdings: &[Holding]) -> String {
    holdings.iter().map(Holding::to_string).collect::<Vec<_>>().join(" | ")
}

/// One client: starts runs until the time is over, and follows each to its end.
async fn come_and_go(
    client: u64,
    targets: [Target; 2],
    end: Instant,
    book: &Book,
) -> Result<(), Fault> {
    let mut chance = Chance::new(client);
    sleep(START * u32::try_from(client)? / u32::try_from(CLIENTS)?).await;
    let mut refusals = 0;
    while Instant::now() < end {
        let thread = book.threads.fetch_add(1, Ordering::Relaxed) + 1;
        let script = Script {
            tokens: chance.of(TOKENS),
            interval_us: micros(INTERVAL),
            is_kept: true,
            ..Script::SHORT
        };
        let started = client::start(chance.choose(targets), script, thread).await;
        let response = match started {
            Ok(response) => response,
            // The connection to the upstream was reset before the run had begun.
            Err(fault) => {
                book.not_started.fetch_add(1, Ordering::Relaxed);
                refused(&mut refusals, fault).await?;
                continue;
            }
        };
        refusals = 0;
        let run = follow(Held::new(thread), response, targets, &mut chance, book);
        let tokens = timeout(PATIENCE, run).await.unwrap_or_else(|late| Err(late.into()));
        let tokens = tokens.map_err(|fault| format!("thread {thread}: {fault}"))?;
        book.runs.fetch_add(1, Ordering::Relaxed);
        book.tokens.fetch_add(tokens, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads a run to its end with many cuts; returns how many tokens the run has sent.
async fn follow(
    mut held: Held,
    mut response: Response<Incoming>,
    targets: [Target; 2],
    chance: &mut Chance,
    book: &Book,
) -> Result<u64, Fault> {
    let mut is_back = false;
    loop {
        let cut = Instant::now() + chance.time(CONNECTED);
        let reached = held.read(response, cut, Held::is_over).await?;
        match held.begun().filter(|_| is_back) {
            Some(Begun::Behind) => book.behind.fetch_add(1, Ordering::Relaxed),
            Some(Begun::Over) => book.over.fetch_add(1, Ordering::Relaxed),
            None => 0,
        };
        match reached {
            Reached::There => return held.finish(),
            Reached::Cut => {}
            Reached::End => {
                book.broken.fetch_add(1, Ordering::Relaxed);
            }
        }
        is_back = true;
        let mut refusals = 0;
        let is_long = chance.of([0, LONG_EVERY]) == 0;
        book.long.fetch_add(is_long.into(), Ordering::Relaxed);
        sleep(chance.time(if is_long { LONG_AWAY } else { AWAY })).await;
        let asking = chance.choose([Asking::Header, Asking::Query, Asking::Connect]);
        // A `connect` without an id says that the client holds nothing.
        let asking = if held.last_id().is_some() { asking } else { Asking::Header };
        response = loop {
            match held.come_back(chance.choose(targets), asking, held.last_id()).await {
                Ok(response) => break response,
                Err(fault) => {
                    if book.refused.fetch_add(1, Ordering::Relaxed) < REFUSALS_TOLD {
                        eprintln!("a client was refused: {fault}");
                    }
                    refused(&mut refusals, fault).await?;
                }
            }
        };
    }
}

/// A client may be refused while the upstream is unreachable, but not for long.
async fn refused(refusals: &mut u32, fault: Fault) -> Result<(), Fault> {
    *refusals += 1;
    if *refusals == REFUSALS {
        return Err(fault);
    }
    sleep(REFUSED_PAUSE).await;
    Ok(())
}

// === impl Book ===

impl fmt::Display for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads: _, runs, tokens, behind, over, long, broken, not_started, refused } =
            self;
        let [runs, tokens, behind, over, long, broken, not_started, refused] =
            [runs, tokens, behind, over, long, broken, not_started, refused]
                .map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{runs} runs over, {tokens} tokens; came back {behind} times behind what they had, \
             {over} times from the start, {long} times after {}+ s; {broken} responses broke off, \
             {not_started} runs were not started, {refused} returns refused",
            LONG_AWAY[0].as_secs()
        )
    }
}

// === impl Chance ===

impl Chance {
    fn new(seed: u64) -> Self {
        // Neighbouring seeds give distant states, and no state is 0.
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number of the range, whose end is excluded.
    fn of(&mut self, [first, last]: [u64; 2]) -> u64 {
        first + self.next() % (last - first)
    }

    fn time(&mut self, span: [Duration; 2]) -> Duration {
        Duration::from_micros(self.of(span.map(micros)))
    }

    fn choose<T, const N: usize>(&mut self, choices: [T; N]) -> T {
        let at = usize::try_from(self.of([0, N as u64])).unwrap_or(0);
        choices.into_iter().nth(at).expect("an array that is not empty")
    }
}
