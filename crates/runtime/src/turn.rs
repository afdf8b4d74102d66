//! One at a time for each job.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::id::JobId;
use aetheris_core::time::Span;
use aetheris_store::Purpose;
use tokio::sync::oneshot;

/// Who writes to a job from outside a run, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// This process, for what it owes: timers, expired leases, late outcomes.
    Process,
    /// Somebody who ends, pauses or decides.
    Operator,
    /// Whoever sends work and signals.
    Client,
}

impl Caller {
    pub(crate) const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Deposit | Purpose::Reclaim | Purpose::Timer => Self::Process,
            Purpose::Cancel | Purpose::Pause | Purpose::Requeue | Purpose::Resolve => Self::Operator,
            Purpose::Block
            | Purpose::Create
            | Purpose::Doubt
            | Purpose::Finish
            | Purpose::Permit
            | Purpose::Record
            | Purpose::Signal => Self::Client,
        }
    }
}

/// Jobs that somebody in this process has the turn of. The next is the most urgent caller, and of those the first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<BTreeMap<JobId, Waiting>>>);

#[derive(Debug, Default)]
struct Waiting {
    arrived: u64,
    queue: BTreeMap<(Caller, u64), oneshot::Sender<Turn>>,
}

/// The turn of a job, which is passed on when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    job: JobId,
    turns: Turns,
}

impl Turns {
    /// The turn of a job, after at most this time. Whoever gives up leaves the queue.
    pub(crate) async fn take(&self, job: JobId, caller: Caller, patience: Span) -> Option<Turn> {
        let passed_on = match self.all().entry(job) {
            Entry::Vacant(free) => {
                free.insert(Waiting::default());
                return Some(Turn { job, turns: self.clone() });
            }
            Entry::Occupied(mut taken) => {
                let waiting = taken.get_mut();
                let (ours, turn) = oneshot::channel();
                waiting.arrived += 1;
                waiting.queue.insert((caller, waiting.arrived), ours);
                turn
            }
        };
        tokio::select! {
            biased;
            turn = passed_on => turn.ok(),
            () = tokio::time::sleep(patience.to_std()) => None,
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<JobId, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next that still waits for a job. Where nobody does, the job is nobody's.
    fn next(&self, job: JobId) -> Option<oneshot::Sender<Turn>> {
        let mut all = self.all();
        let queue = &mut all.get_mut(&job)?.queue;
        while let Some((_, next)) = queue.pop_first() {
            if !next.is_closed() {
                return Some(next);
            }
        }
        all.remove(&job);
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(next) = self.turns.next(self.job) {
            // Where whoever was next has just left, what comes back is dropped, which passes it on.
            drop(next.send(Self { job: self.job, turns: self.turns.clone() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use aetheris_core::limits;

    use super::*;

    const PATIENCE: Span = limits::ANSWER_PATIENCE;

    fn job(number: u128) -> JobId {
        JobId::from_u128(number)
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_urgent_has_the_next_turn_and_of_those_the_first() {
        let (turns, (order, seen)) = (Turns::default(), channel());
        let first = turns.take(job(1), Caller::Client, PATIENCE).await.unwrap();
        let mut waiting = Vec::new();
        for (number, caller) in [Caller::Client, Caller::Operator, Caller::Client, Caller::Process, Caller::Operator]
            .into_iter()
            .enumerate()
        {
            let (turns, order) = (turns.clone(), order.clone());
            waiting.push(tokio::spawn(async move {
                let turn = turns.take(job(1), caller, PATIENCE).await.unwrap();
                order.send(number).unwrap();
                drop(turn);
            }));
            tokio::task::yield_now().await;
        }
        // Another job is nobody's.
        drop(turns.take(job(2), Caller::Client, Span::ZERO).await.unwrap());
        drop(first);
        for one in waiting {
            one.await.unwrap();
        }
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [3, 1, 4, 0, 2]);
        assert!(turns.all().is_empty());
    }

    /// Whether its patience has ended, or it was dropped with the turn on its way to it.
    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_keeps_nobody_from_the_turn() {
        let turns = Turns::default();
        let first = turns.take(job(1), Caller::Client, PATIENCE).await.unwrap();
        assert!(turns.take(job(1), Caller::Process, Span::from_secs(1)).await.is_none());
        let mut dropped = Box::pin(turns.take(job(1), Caller::Operator, PATIENCE));
        let mut last = Box::pin(turns.take(job(1), Caller::Client, PATIENCE));
        for asked in [&mut dropped, &mut last] {
            let asked = asked.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            assert!(asked.is_pending());
        }
        drop(first);
        drop(dropped);
        drop(last.await.unwrap());
        assert!(turns.all().is_empty());
    }
}
