//! How a caller waits for its commit.
//!
//! Waking a thread that sleeps costs as much as the work of a transaction. A caller that is the only one
//! waiting therefore looks for its answer for a little while before it sleeps: no longer than commits
//! usually take here, and not at all where they take long or others wait as well. Under load nobody spins.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::fairness::ticks;

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
        if let Some(look) = looks_for(self.alone, usual) {
            let until = self.began + look;
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
            let usual = self.shared.usual_us.load(Ordering::Relaxed);
            self.shared.usual_us.store(usual_after(usual, self.began.elapsed()), Ordering::Relaxed);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long after its request a caller looks for its answer; none where it sleeps at once.
fn looks_for(alone: bool, usual: Duration) -> Option<Duration> {
    (alone && usual < SPIN_MAX).then(|| SPIN_MAX.min(usual * 2 + Duration::from_micros(50)))
}

/// What is usual, in microseconds, after an answer that took so long. One that hung counts for a tenth of a second.
fn usual_after(usual_us: u64, took: Duration) -> u64 {
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    (usual_us * 3 + took_us.min(100_000)) / 4
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

    /// Whoever looked where commits take long, or where others wait as well, would take a core from those that work.
    #[test]
    fn only_who_waits_alone_for_what_usually_comes_soon_looks_for_it() {
        let micros = Duration::from_micros;
        for (usual, look) in
            [(0, Some(50)), (60, Some(170)), (100, Some(250)), (249, Some(250)), (250, None), (100_000, None)]
        {
            assert_eq!(looks_for(true, micros(usual)), look.map(micros), "{usual}");
            assert_eq!(looks_for(false, micros(usual)), None, "{usual}");
        }
    }

    /// One slow commit ends the looking for a while, and not for ever: short answers bring it back.
    #[test]
    fn what_is_usual_follows_what_answers_take() {
        assert_eq!(usual_after(0, Duration::from_micros(400)), 100);
        assert_eq!(usual_after(100, Duration::from_micros(400)), 175);
        assert_eq!(usual_after(1_000, Duration::from_micros(200)), 800);
        assert_eq!(usual_after(0, Duration::MAX), 25_000);
        let short = |usual: &u64| Some(usual_after(*usual, Duration::from_micros(40)));
        let slept = std::iter::successors(Some(25_000), short)
            .take_while(|usual| looks_for(true, Duration::from_micros(*usual)).is_none());
        assert_eq!(slept.count(), 17);
    }

    /// What a caller took that waited behind others says nothing about how long a commit takes.
    #[tokio::test]
    async fn an_answer_counts_where_its_caller_waited_alone() {
        let waiting = Waiting::default();
        let (long_ago, not_yet) =
            (ticks().checked_sub(Duration::from_secs(1)).unwrap(), ticks() + Duration::from_secs(60));
        for (alone, began, before, after) in [
            (true, long_ago, 0, 25_000),
            (true, not_yet, 100, 75),
            (true, not_yet, 25_000, 18_750),
            (false, long_ago, 0, 0),
            (false, not_yet, 100, 100),
        ] {
            waiting.usual_us.store(before, Ordering::Relaxed);
            let mut wait = waiting.begin();
            (wait.alone, wait.began) = (alone, began);
            let (reply, answer) = oneshot::channel();
            reply.send(7).unwrap();
            assert_eq!(wait.answer(answer).await, Some(7));
            assert_eq!(waiting.usual_us.load(Ordering::Relaxed), after, "{alone} {before}");
        }
    }
}
