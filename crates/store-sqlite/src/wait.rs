//! How a caller waits for its commit.
//!
//! Waking a thread that sleeps costs as much as the work of a transaction. A caller that is the only one
//! waiting therefore looks for its answer for a little while before it sleeps: no longer than commits
//! usually take here, and not at all where they take long or others wait as well. Under load nobody spins.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::turn::ticks;

/// Commits that usually take longer are slept through.
const SPIN_MAX: Duration = Duration::from_micros(250);

/// Who waits, and how long commits usually take.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    usual_us: AtomicU64,
    waiting: AtomicUsize,
}

/// One caller that waits; dropping it ends that.
pub(crate) struct Wait<'w> {
    alone: bool,
    began: Instant,
    shared: &'w Waiting,
}

impl Waiting {
    /// A caller is about to send its request.
    pub(crate) fn begin(&self) -> Wait<'_> {
        let alone = self.waiting.fetch_add(1, Ordering::AcqRel) == 0;
        Wait { alone, began: ticks(), shared: self }
    }
}

impl Wait<'_> {
    /// The answer; none where whoever was to give it has gone.
    pub(crate) async fn answer<T>(self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        let usual = Duration::from_micros(self.shared.usual_us.load(Ordering::Relaxed));
        if self.alone && usual < SPIN_MAX {
            let until = self.began + SPIN_MAX.min(usual * 2 + Duration::from_micros(50));
            while ticks() < until {
                match answer.try_recv() {
                    Ok(answer) => {
                        self.note();
                        return Some(answer);
                    }
                    Err(TryRecvError::Empty) => std::hint::spin_loop(),
                    Err(TryRecvError::Closed) => return None,
                }
            }
        }
        let answer = answer.await.ok();
        self.note();
        answer
    }

    /// Moves what is usual a quarter of the way to what this one took.
    fn note(&self) {
        if self.alone {
            let took = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let usual = self.shared.usual_us.load(Ordering::Relaxed);
            self.shared.usual_us.store((usual * 3 + took.min(100_000)) / 4, Ordering::Relaxed);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_comes_whether_it_is_looked_for_or_slept_for() {
        let waiting = Waiting::default();
        let (first, second) = (waiting.begin(), waiting.begin());
        assert!(first.alone && !second.alone);
        for wait in [first, second] {
            let (reply, answer) = oneshot::channel();
            let sender = std::thread::spawn(move || reply.send(7));
            assert_eq!(wait.answer(answer).await, Some(7));
            assert_eq!(sender.join().unwrap(), Ok(()));
        }
        let (reply, answer) = oneshot::channel::<u8>();
        drop(reply);
        assert_eq!(waiting.begin().answer(answer).await, None);
        assert_eq!(waiting.waiting.load(Ordering::Relaxed), 0);
    }
}
