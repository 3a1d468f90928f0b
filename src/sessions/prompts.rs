//! The prompts of a session: one runs, and one may wait for the end of a cancelled one.

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::sync::{Guard, Mutex};

/// The prompts of a session.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    queue: Mutex<Queue>,
    /// Notified when a prompt arrives.
    pub(super) arrived: Notify,
    /// Notified when a prompt has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    running: Option<Entered>,
    /// Only while `running` is a cancelled prompt that has not ended.
    waiting: Option<Entered>,
    /// How many prompts were entered.
    count: u64,
}

/// A prompt that has not ended.
#[derive(Debug)]
struct Entered {
    number: u64,
    stop: CancellationToken,
}

/// Why a prompt cannot be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupied {
    /// A prompt runs that nobody has cancelled.
    Running,
    /// Another prompt waits for the end of the cancelled one.
    Waiting,
}

/// A prompt in the queue, until this is dropped.
#[derive(Debug)]
pub(super) struct PromptGuard<'a> {
    prompts: &'a Prompts,
    number: u64,
}

// === impl Prompts ===

impl Prompts {
    /// Enters a prompt; `stop` stops it. [`PromptGuard::turn`] waits until it may run.
    pub(super) fn enter(&self, stop: &CancellationToken) -> Result<PromptGuard<'_>, Occupied> {
        let number = {
            let mut queue = self.queue();
            let number = queue.count;
            let entered = Entered { number, stop: stop.clone() };
            match &queue.running {
                None => queue.running = Some(entered),
                Some(running) if !running.stop.is_cancelled() => return Err(Occupied::Running),
                Some(_) if queue.waiting.as_ref().is_some_and(Entered::may_run) => {
                    return Err(Occupied::Waiting);
                }
                Some(_) => queue.waiting = Some(entered),
            }
            queue.count += 1;
            number
        };
        self.arrived.notify_waiters();
        Ok(PromptGuard { prompts: self, number })
    }

    /// Whether a prompt is running or waiting to run.
    pub(super) fn any(&self) -> bool {
        self.queue().running.is_some()
    }

    /// Whether one of the prompts was not cancelled.
    pub(super) fn any_to_run(&self) -> bool {
        let queue = self.queue();
        [&queue.running, &queue.waiting].into_iter().flatten().any(Entered::may_run)
    }

    /// Stops all prompts. Returns whether there are any.
    pub(super) fn stop(&self) -> bool {
        let entered: Vec<_> = {
            let queue = self.queue();
            [&queue.running, &queue.waiting]
                .into_iter()
                .flatten()
                .map(|one| one.stop.clone())
                .collect()
        };
        entered.iter().for_each(CancellationToken::cancel);
        !entered.is_empty()
    }

    /// Waits until there is no prompt.
    pub(super) async fn wait_until_none(&self) {
        self.wait_until(|queue| queue.running.is_none()).await;
    }

    async fn wait_until(&self, is_so: impl Fn(&Queue) -> bool) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if is_so(&self.queue()) {
                return;
            }
            ended.await;
        }
    }

    fn queue(&self) -> Guard<'_, Queue> {
        self.queue.lock()
    }
}

// === impl Entered ===

impl Entered {
    fn may_run(&self) -> bool {
        !self.stop.is_cancelled()
    }
}

// === impl PromptGuard ===

impl PromptGuard<'_> {
    /// Waits until the prompt before this one has ended.
    pub(super) async fn turn(&self) {
        let is_first = |queue: &Queue| {
            queue.running.as_ref().is_some_and(|running| running.number == self.number)
        };
        self.prompts.wait_until(is_first).await;
    }
}

impl Drop for PromptGuard<'_> {
    fn drop(&mut self) {
        {
            let mut queue = self.prompts.queue();
            let is_own = |entered: &mut Entered| entered.number == self.number;
            if queue.running.take_if(is_own).is_some() {
                queue.running = queue.waiting.take();
            } else {
                queue.waiting.take_if(is_own);
            }
        }
        self.prompts.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn token() -> CancellationToken {
        CancellationToken::new()
    }

    #[test]
    fn one_prompt_waits_for_a_cancelled_one_and_the_next_is_refused() {
        let (prompts, first, second) = (Prompts::default(), token(), token());
        let running = prompts.enter(&first).unwrap();
        assert_eq!(prompts.enter(&second).err(), Some(Occupied::Running));
        first.cancel();
        let waiting = prompts.enter(&second).unwrap();
        assert_eq!(prompts.enter(&token()).err(), Some(Occupied::Waiting));
        assert!(waiting.turn().now_or_never().is_none());
        drop(running);
        assert!(waiting.turn().now_or_never().is_some());
        assert_eq!(prompts.enter(&token()).err(), Some(Occupied::Running));
        drop(waiting);
        assert!(!prompts.any());
    }

    #[test]
    fn a_stop_reaches_the_prompt_that_waits_and_another_takes_its_place() {
        let (prompts, tokens) = (Prompts::default(), [token(), token(), token()]);
        let running = prompts.enter(&tokens[0]).unwrap();
        tokens[0].cancel();
        let waiting = prompts.enter(&tokens[1]).unwrap();
        assert!(prompts.stop() && tokens[1].is_cancelled() && !prompts.any_to_run());
        let last = prompts.enter(&tokens[2]).unwrap();
        // The end of the one that was replaced changes nothing.
        drop(waiting);
        assert!(prompts.any_to_run());
        drop(running);
        assert!(last.turn().now_or_never().is_some());
    }
}
