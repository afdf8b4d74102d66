//! Who may read a large job in order to write to it: one at a time for each job, and few in all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_core::time::Span;
use tokio::sync::oneshot;

/// Who writes to a job from outside a run, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// A sweep that goes on with other jobs: it takes what is free now.
    Sweep,
    /// This process, for what it owes: timers, expired leases, late outcomes.
    Process,
    /// Somebody who ends, pauses or decides.
    Operator,
    /// Whoever sends signals.
    Client,
}

impl Caller {
    /// How long it waits to be admitted, or for memory.
    pub(crate) const fn patience(self) -> Span {
        match self {
            Self::Sweep => Span::ZERO,
            Self::Process | Self::Operator | Self::Client => limits::ANSWER_PATIENCE,
        }
    }

    /// Whether it has places of the process, which nobody else takes.
    pub(crate) const fn is_process(self) -> bool {
        match self {
            Self::Sweep | Self::Process => true,
            Self::Operator | Self::Client => false,
        }
    }
}

/// Large jobs that are written to, and who waits for one. Whoever comes next is the most urgent whose job is free and for
/// whom there is a place, and of those the first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Admission(Arc<Mutex<Desk>>);

#[derive(Debug, Default)]
struct Desk {
    arrived: u64,
    /// Jobs that somebody writes to.
    busy: BTreeSet<JobId>,
    /// Jobs that are being read: those of the process, and those of others.
    read: [usize; 2],
    waiting: BTreeMap<(Caller, u64), Asked>,
}

#[derive(Debug)]
struct Asked {
    job: JobId,
    tell: oneshot::Sender<Admitted>,
}

/// Leave to read a job and to write to it. Nobody else has it until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Admission,
    caller: Caller,
    is_read: bool,
    job: JobId,
}

/// Takes back what was asked for, if it was not granted.
struct Leaving<'a> {
    admission: &'a Admission,
    key: (Caller, u64),
}

impl Admission {
    /// Leave for a job, after at most the caller's patience.
    pub(crate) async fn ask(&self, job: JobId, caller: Caller) -> Option<Admitted> {
        let (key, granted) = {
            let mut desk = self.desk();
            if desk.takes(job, caller) {
                return Some(self.admitted(job, caller));
            }
            if caller.patience() == Span::ZERO {
                return None;
            }
            let (tell, granted) = oneshot::channel();
            desk.arrived += 1;
            let key = (caller, desk.arrived);
            desk.waiting.insert(key, Asked { job, tell });
            (key, granted)
        };
        let _leaving = Leaving { admission: self, key };
        tokio::select! {
            biased;
            admitted = granted => admitted.ok(),
            () = tokio::time::sleep(caller.patience().to_std()) => None,
        }
    }

    fn admitted(&self, job: JobId, caller: Caller) -> Admitted {
        Admitted { admission: self.clone(), caller, is_read: false, job }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives something back, and tells those who can be admitted now.
    fn after(&self, given_back: impl FnOnce(&mut Desk)) {
        let next = {
            let mut desk = self.desk();
            given_back(&mut desk);
            desk.next()
        };
        for (caller, Asked { job, tell }) in next {
            // Where whoever asked has just left, what comes back is dropped, which gives it to the next.
            drop(tell.send(self.admitted(job, caller)));
        }
    }
}

impl Desk {
    /// Takes a job and a place for it, where both are free.
    fn takes(&mut self, job: JobId, caller: Caller) -> bool {
        let read = &mut self.read[usize::from(caller.is_process())];
        if *read >= limits::LARGE_FOLDS_AT_ONCE || self.busy.contains(&job) {
            return false;
        }
        *read += 1;
        self.busy.insert(job)
    }

    /// Those who can be admitted now.
    fn next(&mut self) -> Vec<(Caller, Asked)> {
        let mut next = Vec::new();
        let order: Vec<((Caller, u64), JobId)> = self.waiting.iter().map(|(key, asked)| (*key, asked.job)).collect();
        for (key, job) in order {
            if self.takes(job, key.0) {
                next.extend(self.waiting.remove(&key).map(|asked| (key.0, asked)));
            }
        }
        next
    }
}

impl Admitted {
    /// The job has been read: the next one may be.
    pub(crate) fn read(&mut self) {
        if !std::mem::replace(&mut self.is_read, true) {
            let kind = usize::from(self.caller.is_process());
            self.admission.after(|desk| desk.read[kind] -= 1);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.read();
        self.admission.after(|desk| {
            desk.busy.remove(&self.job);
        });
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.admission.desk().waiting.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};

    use super::*;

    fn job(number: u128) -> JobId {
        JobId::from_u128(number)
    }

    fn waits(asked: Pin<&mut impl Future<Output = Option<Admitted>>>) -> bool {
        asked.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    impl Admission {
        /// Whether no place for a client is left.
        pub(crate) fn is_full(&self) -> bool {
            self.desk().read[0] >= limits::LARGE_FOLDS_AT_ONCE
        }
    }

    #[track_caller]
    fn is_idle(admission: &Admission) {
        let desk = admission.desk();
        assert!(desk.busy.is_empty() && desk.read == [0, 0] && desk.waiting.is_empty(), "{desk:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_urgent_is_next_and_of_those_the_first() {
        let (admission, (order, seen)) = (Admission::default(), channel());
        let mut first = admission.ask(job(1), Caller::Client).await.unwrap();
        let mut waiting = Vec::new();
        for (number, caller) in [Caller::Client, Caller::Operator, Caller::Client, Caller::Process, Caller::Operator]
            .into_iter()
            .enumerate()
        {
            let (admission, order) = (admission.clone(), order.clone());
            waiting.push(tokio::spawn(async move {
                let admitted = admission.ask(job(1), caller).await.unwrap();
                order.send(number).unwrap();
                drop(admitted);
            }));
            tokio::task::yield_now().await;
        }
        // Another job is free, and a sweep waits for none.
        drop(admission.ask(job(2), Caller::Client).await.unwrap());
        assert!(admission.ask(job(1), Caller::Sweep).await.is_none());
        first.read();
        drop(first);
        for one in waiting {
            one.await.unwrap();
        }
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [3, 1, 4, 0, 2]);
        is_idle(&admission);
    }

    /// Whoever waits for a place has no job that somebody else could read.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_place_keeps_nobody_from_the_job() {
        let admission = Admission::default();
        let most = u128::try_from(limits::LARGE_FOLDS_AT_ONCE).unwrap();
        let mut readers = Vec::new();
        for number in 0..most {
            readers.push(admission.ask(job(number), Caller::Client).await.unwrap());
        }
        let (mut client, mut operator) =
            (pin!(admission.ask(job(most), Caller::Client)), pin!(admission.ask(job(most + 1), Caller::Operator)));
        assert!(waits(client.as_mut()) && waits(operator.as_mut()));
        drop(admission.ask(job(most), Caller::Process).await.unwrap());
        // One has read its job, and writes to it still.
        readers[0].read();
        assert!(waits(client.as_mut()));
        drop(operator.await.unwrap());
        drop(client.await.unwrap());
        assert!(admission.ask(job(0), Caller::Sweep).await.is_none());
        drop(readers);
        is_idle(&admission);
    }

    /// Whether its patience has ended, or it was dropped with its leave on the way to it.
    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_keeps_nobody_waiting() {
        let admission = Admission::default();
        let first = admission.ask(job(1), Caller::Client).await.unwrap();
        assert!(admission.ask(job(1), Caller::Process).await.is_none());
        assert!(admission.desk().waiting.is_empty());
        let mut dropped = Box::pin(admission.ask(job(1), Caller::Operator));
        let mut last = pin!(admission.ask(job(1), Caller::Client));
        assert!(waits(dropped.as_mut()) && waits(last.as_mut()));
        drop(first);
        drop(dropped);
        drop(last.await.unwrap());
        is_idle(&admission);
    }
}
