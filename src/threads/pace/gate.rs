//! The gate: stops looks while a server is unavailable, and lets one look at a time try it.

use std::time::Duration;

use tokio::time::Instant;

use crate::upstream::{Backoff, Error, Seed};

/// The pause after the first failure. Each failed trial doubles it, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause between two trials. When the server is available again, followers notice it at
/// most so much later.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The shortest wait that a server's `Retry-After` can demand.
const SHORTEST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The longest wait that a server's `Retry-After` can demand. Followers see nothing meanwhile, so a
/// longer one is taken for a mistake.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(5);

/// How many looks in a row may fail for a reason that may concern one thread, before the server
/// counts as unavailable.
const MAX_DOUBTFUL: u32 = 3;

/// What an answer says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::threads) enum Health {
    /// The server works.
    Up,
    /// The server has failed, perhaps for this request alone.
    Doubtful,
    /// The server cannot be reached, or demands a pause.
    Unavailable,
}

/// Whether looks may be sent.
#[derive(Debug)]
pub(super) struct Gate {
    /// How often the gate has opened and closed. Results of looks that began before the last time
    /// are outdated.
    generation: u64,
    /// How many looks in a row were doubtful while the gate was open.
    doubtful: u32,
    closed: Option<Closed>,
    /// The pauses between trials.
    pauses: Backoff,
}

#[derive(Debug)]
struct Closed {
    until: Instant,
    /// Whether `until` is the server's `Retry-After`. Then only a trial can open the gate.
    is_demanded: bool,
    /// Whether a trial is in progress.
    is_tried: bool,
}

/// How a look passed the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    generation: u64,
    /// Whether the look tries whether the server is available again.
    pub(super) is_trial: bool,
}

/// Why a look must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// Until this time, or a change of the gate.
    Until(Instant),
    /// Until the trial in progress has ended.
    ByTrial,
}

// === impl Gate ===

impl Gate {
    /// An open gate.
    pub(super) fn new(seed: Seed) -> Self {
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed);
        Self { generation: 0, doubtful: 0, closed: None, pauses }
    }

    /// Lets a look pass. While the gate is closed, that is one trial at a time.
    pub(super) fn pass(&mut self, now: Instant) -> Result<Pass, Blocked> {
        let is_trial = match &mut self.closed {
            None => false,
            Some(closed) if closed.is_tried => return Err(Blocked::ByTrial),
            Some(closed) if closed.until > now => return Err(Blocked::Until(closed.until)),
            Some(closed) => {
                closed.is_tried = true;
                true
            }
        };
        Ok(Pass { generation: self.generation, is_trial })
    }

    /// The pass of a look that does not wait for the gate.
    pub(super) fn current_pass(&self) -> Pass {
        Pass { generation: self.generation, is_trial: false }
    }

    /// Records the result of a look.
    pub(super) fn record(
        &mut self,
        pass: Pass,
        health: Health,
        retry_after: Option<Duration>,
        now: Instant,
    ) {
        let is_current = pass.generation == self.generation;
        let retry_after = retry_after.filter(|_| health != Health::Up);
        match (&mut self.closed, health) {
            (None, Health::Up) if is_current => self.doubtful = 0,
            (None, Health::Doubtful) if is_current => {
                self.doubtful += 1;
                if self.doubtful >= MAX_DOUBTFUL || retry_after.is_some() {
                    self.close(retry_after, now);
                }
            }
            (None, Health::Unavailable) if is_current => self.close(retry_after, now),
            (Some(closed), Health::Up) if is_current && (pass.is_trial || !closed.is_demanded) => {
                self.closed = None;
                self.pauses.reset();
                self.doubtful = 0;
                self.generation += 1;
            }
            (Some(_), Health::Doubtful | Health::Unavailable) if is_current && pass.is_trial => {
                self.close(retry_after, now);
            }
            // Looks that began before the gate closed, and looks that did not wait for it.
            (Some(closed), _) => {
                if let Some(retry_after) = retry_after {
                    closed.until = closed.until.max(now + bounded(retry_after));
                    closed.is_demanded = true;
                }
            }
            (None, _) => {}
        }
    }

    fn close(&mut self, retry_after: Option<Duration>, now: Instant) {
        let pause = self.pauses.next_pause();
        let until = now + retry_after.map_or(pause, bounded);
        let is_demanded = retry_after.is_some();
        self.closed = Some(Closed { until, is_demanded, is_tried: false });
        self.generation += 1;
    }

    /// Notes that a trial was given up.
    pub(super) fn cancel_trial(&mut self, pass: Pass) {
        if let Some(closed) = self.closed.as_mut().filter(|_| pass.generation == self.generation) {
            closed.is_tried = false;
        }
    }
}

fn bounded(retry_after: Duration) -> Duration {
    retry_after.clamp(SHORTEST_RETRY_AFTER, LONGEST_RETRY_AFTER)
}

// === impl Health ===

impl Health {
    pub(in crate::threads) fn of(error: &Error) -> Self {
        match error {
            Error::Unreachable { .. }
            | Error::Unproven
            | Error::Status { code: 429 | 502..=504, .. } => Self::Unavailable,
            Error::Status { code: 500.., .. }
            | Error::Timeout { .. }
            | Error::Interrupted { .. } => Self::Doubtful,
            Error::Status { .. }
            | Error::Crowded
            | Error::NotAnEventStream { .. }
            | Error::NotUnderstood { .. }
            | Error::TooLarge { .. }
            | Error::NoRoom(_) => Self::Up,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn open(gate: &mut Gate, now: Instant) -> Pass {
        let pass = gate.pass(now).unwrap();
        assert!(!pass.is_trial);
        pass
    }

    fn until(gate: &mut Gate, now: Instant) -> Duration {
        match gate.pass(now) {
            Err(Blocked::Until(at)) => at - now,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn trials_come_ever_less_often_and_one_at_a_time() {
        let (mut gate, mut now) = (Gate::new(Seed::fixed()), Instant::now());
        let pass = open(&mut gate, now);
        gate.record(pass, Health::Unavailable, None, now);
        for whole in [2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            let pause = until(&mut gate, now);
            assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
            now += pause;
            let trial = gate.pass(now).unwrap();
            assert!(trial.is_trial);
            assert_eq!(gate.pass(now), Err(Blocked::ByTrial));
            // A trial that was given up is left to the next look.
            gate.cancel_trial(trial);
            let trial = gate.pass(now).unwrap();
            gate.record(trial, Health::Unavailable, None, now);
        }
        now += LONGEST_PAUSE;
        let trial = gate.pass(now).unwrap();
        gate.record(trial, Health::Up, None, now);
        open(&mut gate, now);
    }

    #[test]
    fn a_retry_after_is_obeyed_within_limits_whatever_other_looks_report() {
        let (mut gate, now) = (Gate::new(Seed::fixed()), Instant::now());
        let [first, second, third] = [(); 3].map(|()| open(&mut gate, now));
        gate.record(first, Health::Unavailable, None, now);
        gate.record(second, Health::Unavailable, Some(30 * SECOND), now);
        // This look began before the gate closed.
        gate.record(third, Health::Up, None, now);
        assert_eq!(until(&mut gate, now), 30 * SECOND);
        // A look that did not wait succeeds.
        let client = gate.current_pass();
        gate.record(client, Health::Up, None, now);
        assert_eq!(until(&mut gate, now), 30 * SECOND);
        for (retry_after, obeyed) in
            [(Duration::ZERO, SHORTEST_RETRY_AFTER), (SECOND * 10_000, LONGEST_RETRY_AFTER)]
        {
            let (mut gate, now) = (Gate::new(Seed::fixed()), Instant::now());
            let pass = open(&mut gate, now);
            gate.record(pass, Health::Unavailable, Some(retry_after), now);
            assert_eq!(until(&mut gate, now), obeyed);
        }
    }

    #[test]
    fn an_answer_to_a_client_opens_the_gate_unless_the_server_demands_a_pause() {
        let (mut gate, now) = (Gate::new(Seed::fixed()), Instant::now());
        let pass = open(&mut gate, now);
        gate.record(pass, Health::Unavailable, None, now);
        let pause = until(&mut gate, now);
        let client = gate.current_pass();
        gate.record(client, Health::Unavailable, None, now);
        assert_eq!(until(&mut gate, now), pause, "a client's failure is no trial");
        gate.record(client, Health::Up, None, now);
        open(&mut gate, now);
    }

    #[test]
    fn one_thread_that_always_fails_does_not_close_the_gate() {
        let (mut gate, now) = (Gate::new(Seed::fixed()), Instant::now());
        for _ in 0..10 {
            for health in [Health::Doubtful, Health::Doubtful, Health::Up] {
                let pass = open(&mut gate, now);
                gate.record(pass, health, None, now);
            }
        }
        for _ in 0..MAX_DOUBTFUL {
            let pass = open(&mut gate, now);
            gate.record(pass, Health::Doubtful, None, now);
        }
        assert!(until(&mut gate, now) <= FIRST_PAUSE);
    }

    #[test]
    fn a_refusal_of_one_request_says_nothing_about_the_server() {
        let refused = |code| Error::Status { code, detail: String::new(), retry_after: None };
        for code in [400, 401, 403, 404, 405, 409, 422] {
            assert_eq!(Health::of(&refused(code)), Health::Up, "{code}");
        }
        for code in [429, 502, 503, 504] {
            assert_eq!(Health::of(&refused(code)), Health::Unavailable, "{code}");
        }
        for code in [500, 501, 599] {
            assert_eq!(Health::of(&refused(code)), Health::Doubtful, "{code}");
        }
    }
}
