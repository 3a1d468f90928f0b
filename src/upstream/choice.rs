//! Which address of an upstream a request is sent to, as a state machine. There is no IO here and
//! no clock: the caller passes the time.
//!
//! ```text
//!            it fails                    the pause is over
//!   working ----------> away, pausing --------------------> away, on trial
//!      ^                   ^                                  |         |
//!      |                   +----------------------------------+         |
//!      |                       it fails: the next pause is longer       |
//!      +----------------------------------------------------------------+
//!                               it answers
//! ```

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::{Backoff, Seed};

/// The pause before an address that has failed is tried again. It doubles up to
/// [`LONGEST_ADDRESS_PAUSE`]. Jitter shortens it by up to half.
pub const ADDRESS_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause before an address that has failed is tried again. An address that works for as
/// long begins with the shortest pause when it fails again.
pub const LONGEST_ADDRESS_PAUSE: Duration = Duration::from_mins(1);

/// How long the trial of an address may take.
pub const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of each address of an upstream, by its index in the configuration.
#[derive(Debug)]
pub(super) struct Choice {
    standings: Vec<Standing>,
    /// The first address that works, or the last that did.
    current: usize,
}

/// Requests are sent to another address from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressSwitch {
    pub(super) from: usize,
    pub(super) to: usize,
}

#[derive(Debug)]
struct Standing {
    /// `None` while the address works.
    away: Option<Away>,
    pauses: Backoff,
    /// When the address returned. `None` if it has never been away.
    answers_since: Option<Instant>,
}

/// When an address that failed is tried again.
#[derive(Clone, Copy, Debug)]
enum Away {
    Pausing { until: Instant },
    OnTrial { until: Instant },
}

// === impl Choice ===

impl Choice {
    /// All addresses are taken to work.
    pub(super) fn new(addresses: usize, mut seed: Seed) -> Self {
        let standings = (0..addresses).map(|_| {
            let pauses = Backoff::new(ADDRESS_PAUSE, LONGEST_ADDRESS_PAUSE, seed.split());
            Standing { away: None, pauses, answers_since: None }
        });
        Self { standings: standings.collect(), current: 0 }
    }

    /// The order in which a request tries the addresses, each once. `home` is the address of a live
    /// run that the request concerns; it comes first while it works.
    ///
    /// Addresses that are away come last. They are tried because one of them may be back already.
    pub(super) fn order(&self, home: Option<usize>) -> Vec<usize> {
        let home = home.filter(|home| self.works(*home));
        let all = 0..self.standings.len();
        let others = |works: bool| {
            let all = all.clone().filter(move |index| self.works(*index) == works);
            all.filter(move |index| Some(*index) != home)
        };
        home.into_iter().chain(others(true)).chain(others(false)).collect()
    }

    /// The address has answered a request.
    pub(super) fn on_answer(&mut self, index: usize, now: Instant) -> Option<AddressSwitch> {
        let standing = self.standings.get_mut(index)?;
        standing.away.take()?;
        standing.answers_since = Some(now);
        self.choose()
    }

    /// The address is away. Failures of requests other than the trial do not lengthen its pause.
    pub(super) fn on_failure(&mut self, index: usize, now: Instant) -> Option<AddressSwitch> {
        let standing = self.standings.get_mut(index)?;
        match standing.away {
            Some(Away::Pausing { .. }) => return None,
            Some(Away::OnTrial { .. }) => {}
            None => {
                let since = standing.answers_since.take();
                let is_flapping = since.is_some_and(|at| now - at < LONGEST_ADDRESS_PAUSE);
                if !is_flapping {
                    standing.pauses.reset();
                }
            }
        }
        standing.away = Some(Away::Pausing { until: now + standing.pauses.next_pause() });
        self.choose()
    }

    /// An address that is to be tried now. Returned once: the next trial follows a failure.
    pub(super) fn take_trial(&mut self, now: Instant) -> Option<usize> {
        let is_due = |standing: &Standing| match standing.away {
            Some(Away::Pausing { until } | Away::OnTrial { until }) => now >= until,
            None => false,
        };
        let index = self.standings.iter().position(is_due)?;
        // A trial whose result is lost is repeated.
        let until = now + TRIAL_TIMEOUT * 2;
        self.standings.get_mut(index)?.away = Some(Away::OnTrial { until });
        Some(index)
    }

    fn works(&self, index: usize) -> bool {
        self.standings.get(index).is_some_and(|standing| standing.away.is_none())
    }

    /// Requests go to the first address that works. While none does, nothing changes.
    fn choose(&mut self) -> Option<AddressSwitch> {
        let first = (0..self.standings.len()).find(|index| self.works(*index))?;
        let from = std::mem::replace(&mut self.current, first);
        (from != first).then_some(AddressSwitch { from, to: first })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn a_request_is_sent_to_the_first_address_that_works_and_then_to_the_others() {
        let (mut choice, now) = (Choice::new(3, Seed::fixed()), Instant::now());
        assert_eq!(choice.order(None), [0, 1, 2]);
        assert_eq!(choice.on_failure(0, now), Some(AddressSwitch { from: 0, to: 1 }));
        assert_eq!(choice.order(None), [1, 2, 0]);
        assert_eq!(choice.on_failure(2, now), None);
        assert_eq!(choice.order(None), [1, 0, 2]);
        assert_eq!(choice.on_answer(0, now), Some(AddressSwitch { from: 1, to: 0 }));
        assert_eq!(choice.order(None), [0, 1, 2]);
    }

    #[test]
    fn nothing_changes_while_no_address_works() {
        let (mut choice, now) = (Choice::new(2, Seed::fixed()), Instant::now());
        assert_eq!(choice.on_failure(0, now), Some(AddressSwitch { from: 0, to: 1 }));
        assert_eq!(choice.on_failure(1, now), None);
        assert_eq!(choice.order(None), [0, 1]);
        // The one that was used last is back, so there is nothing to report.
        assert_eq!(choice.on_answer(1, now), None);
        assert_eq!(choice.order(None), [1, 0]);
    }

    #[test]
    fn a_live_run_stays_at_its_address_while_that_works() {
        let (mut choice, now) = (Choice::new(3, Seed::fixed()), Instant::now());
        assert_eq!(choice.order(Some(2)), [2, 0, 1]);
        choice.on_failure(2, now);
        assert_eq!(choice.order(Some(2)), [0, 1, 2]);
    }

    #[test]
    fn an_address_that_failed_is_tried_after_pauses_that_double_up_to_a_limit() {
        let (mut choice, mut now) = (Choice::new(2, Seed::fixed()), Instant::now());
        choice.on_failure(0, now);
        for whole in [5, 10, 20, 40, 60, 60].map(Duration::from_secs) {
            assert_eq!(choice.take_trial(now + whole / 2 - MOMENT), None);
            now += whole;
            assert_eq!(choice.take_trial(now), Some(0), "{whole:?}");
            assert_eq!(choice.take_trial(now), None, "one trial at a time");
            assert_eq!(choice.on_failure(0, now), None);
            // A request that no other address answered changes nothing.
            assert_eq!(choice.on_failure(0, now), None);
        }
    }

    #[test]
    fn an_address_that_comes_and_goes_is_tried_less_often_until_it_stays() {
        let (mut choice, mut now) = (Choice::new(2, Seed::fixed()), Instant::now());
        let mut fails_again = |after: Duration, whole: Duration| {
            choice.on_answer(0, now);
            now += after;
            choice.on_failure(0, now);
            assert_eq!(choice.take_trial(now + whole / 2 - MOMENT), None, "{whole:?}");
            now += whole;
            assert_eq!(choice.take_trial(now), Some(0), "{whole:?}");
        };
        fails_again(MOMENT, ADDRESS_PAUSE);
        fails_again(LONGEST_ADDRESS_PAUSE.saturating_sub(MOMENT), ADDRESS_PAUSE * 2);
        fails_again(MOMENT, ADDRESS_PAUSE * 4);
        fails_again(LONGEST_ADDRESS_PAUSE, ADDRESS_PAUSE);
    }

    #[test]
    fn a_trial_whose_result_is_lost_is_repeated() {
        let (mut choice, now) = (Choice::new(2, Seed::fixed()), Instant::now());
        choice.on_failure(0, now);
        let now = now + ADDRESS_PAUSE;
        assert_eq!(choice.take_trial(now), Some(0));
        assert_eq!(choice.take_trial(now + TRIAL_TIMEOUT * 2 - MOMENT), None);
        assert_eq!(choice.take_trial(now + TRIAL_TIMEOUT * 2), Some(0));
    }

    /// What happens to an address.
    #[derive(Clone, Copy, Debug)]
    enum AddressEvent {
        Answers(usize),
        Fails(usize),
        TimePasses(u64),
        IsTried,
    }

    fn any_event(addresses: usize) -> impl Strategy<Value = AddressEvent> {
        prop_oneof![
            (0..addresses).prop_map(AddressEvent::Answers),
            (0..addresses).prop_map(AddressEvent::Fails),
            (0..90_u64).prop_map(AddressEvent::TimePasses),
            Just(AddressEvent::IsTried),
        ]
    }

    fn any_events() -> impl Strategy<Value = (usize, Vec<AddressEvent>)> {
        (1..9_usize).prop_flat_map(|addresses| {
            let events = proptest::collection::vec(any_event(addresses), 0..60);
            (Just(addresses), events)
        })
    }

    proptest! {
        /// A model that knows only which addresses are away.
        #[test]
        fn a_request_tries_each_address_once_and_those_that_are_away_last(
            (addresses, events) in any_events(),
            home in proptest::option::of(0..9_usize),
        ) {
            let (mut choice, mut now) = (Choice::new(addresses, Seed::fixed()), Instant::now());
            let (mut away, mut current) = (BTreeSet::new(), 0);
            for event in events {
                let change = match event {
                    AddressEvent::Answers(index) => {
                        away.remove(&index);
                        choice.on_answer(index, now)
                    }
                    AddressEvent::Fails(index) => {
                        away.insert(index);
                        choice.on_failure(index, now)
                    }
                    AddressEvent::TimePasses(seconds) => {
                        now += Duration::from_secs(seconds);
                        None
                    }
                    AddressEvent::IsTried => {
                        let tried = choice.take_trial(now);
                        prop_assert!(tried.is_none_or(|index| away.contains(&index)));
                        None
                    }
                };
                let first = (0..addresses).find(|index| !away.contains(index));
                let expected = first.filter(|first| *first != current);
                prop_assert_eq!(change, expected.map(|to| AddressSwitch { from: current, to }));
                current = first.unwrap_or(current);
                let order = choice.order(home);
                let each: BTreeSet<_> = order.iter().copied().collect();
                prop_assert_eq!(&each, &(0..addresses).collect());
                prop_assert_eq!(order.len(), addresses);
                let worked = order.iter().take_while(|index| !away.contains(index)).count();
                prop_assert_eq!(worked, addresses - away.len());
                let home = home.filter(|home| *home < addresses && !away.contains(home));
                prop_assert!(home.is_none_or(|home| order[0] == home));
            }
            // However long addresses were away, each is tried within the longest pause.
            now += LONGEST_ADDRESS_PAUSE;
            let tried: BTreeSet<_> = std::iter::from_fn(|| choice.take_trial(now)).collect();
            prop_assert_eq!(tried, away);
        }
    }
}
