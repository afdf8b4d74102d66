//! What all sweeps do: each row is written by itself, past those that fail and those that are slow.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use aetheris_core::limits;
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{OpError, Runtime};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::writes::Writes;

/// How many jobs a sweep writes to at once: they share the store's commits.
pub(crate) const WRITES_AT_ONCE: usize = 64;
/// How many large jobs, beside those, it waits for: others in this process write to them, or to as many as may be read.
const LARGE_AT_ONCE: usize = 16;

/// A row that is due.
pub(crate) trait Due: Clone + Send + Sync + 'static {
    /// What names it.
    type Key: Clone + Ord + Send + 'static;
    /// What became of it.
    type Done: Send + 'static;
    /// Whether more may come under the same name while it is under way, so that it is looked at again as soon as it has ended.
    const COMES_AGAIN: bool = false;

    /// Its name.
    fn key(&self) -> Self::Key;

    /// Does what is due. With `if_free`, [`OpError::Crowded`] where a large job has to be waited for.
    fn write(self, rt: Runtime, if_free: bool) -> impl Future<Output = Result<Self::Done, OpError>> + Send + 'static;

    /// Under which name a failure backs off.
    fn backoff_key(&self) -> Self::Key {
        self.key()
    }

    /// Says what became of it. Whether it is over; if not, it is looked at again soon.
    fn tell(&self, done: &Self::Done) -> bool;

    /// Says that it failed for a reason of its own.
    fn tell_failed(&self, error: &OpError);

    /// Says that it failed for a reason that may be others' too.
    fn tell_unreachable(&self, error: &OpError);
}

/// A row, and what became of it.
type Ended<D> = (D, Result<<D as Due>::Done, OpError>);

/// A sweep's memory between its passes.
pub(crate) struct Sweep<D: Due> {
    /// What was met again has ended: there may be more of it.
    again: bool,
    failed: Backoff<D::Key>,
    /// Large jobs that it waits for.
    large: Writes<D::Key, Ended<D>>,
    left: bool,
    /// What was met again while it was under way.
    met_again: BTreeSet<D::Key>,
    over: usize,
    pulse: Pulse,
    pub(crate) rt: Runtime,
    pub(crate) stop: CancellationToken,
    unreachable: usize,
    writes: Writes<D::Key, Ended<D>>,
}

impl<D: Due> Sweep<D> {
    pub(crate) fn new(rt: Runtime, pulse: Pulse, stop: CancellationToken) -> Self {
        let (large, writes) = (Writes::new(LARGE_AT_ONCE), Writes::new(WRITES_AT_ONCE));
        Self {
            again: false,
            failed: Backoff::default(),
            large,
            left: false,
            met_again: BTreeSet::new(),
            over: 0,
            pulse,
            rt,
            stop,
            unreachable: 0,
            writes,
        }
    }

    /// Before the first page of a pass. How many have failed since the last one for a reason that may be others' too.
    pub(crate) fn begin_pass(&mut self) -> usize {
        self.left = false;
        self.again = false;
        self.met_again.clear();
        std::mem::take(&mut self.unreachable)
    }

    /// Begins with what a page has, but for what is under way or left alone for now. It waits only where too many small
    /// jobs are under way.
    pub(crate) async fn begin_all(&mut self, page: impl IntoIterator<Item = D>) {
        self.beat();
        for due in page {
            let key = due.key();
            let under_way = self.writes.has(&key) || self.large.has(&key);
            if under_way && D::COMES_AGAIN {
                self.met_again.insert(key.clone());
            }
            if under_way || !self.failed.may_try(&due.backoff_key(), self.rt.system.clock.boot()) {
                continue;
            }
            while self.writes.is_full() {
                self.end_one().await;
            }
            let write = due.clone().write(self.rt.clone(), true);
            self.writes.begin(key, async move { (due, write.await) });
        }
    }

    /// Behind the last page of a pass.
    pub(crate) fn end_pass(&mut self) {
        self.failed.forget_absent(self.rt.system.clock.boot());
    }

    /// Waits for so long, or until something has changed, while what is under way goes on. What is left is tried again
    /// sooner.
    pub(crate) async fn rest(&mut self, pause: Duration, changed: impl Future<Output = ()>) {
        let (mut until, stop) = (Instant::now() + pause, self.stop.clone());
        let mut changed = std::pin::pin!(changed);
        while !self.again {
            if self.left {
                until = until.min(Instant::now() + limits::SWEEP_BACKOFF.to_std());
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((key, (due, ended))) = self.writes.next() => self.ended(key, due, ended),
                Some((_, (due, ended))) = self.large.next() => self.ended_large(due, ended),
                () = &mut changed => return,
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    /// Waits for all that is under way. How many were brought to their end by this sweep, and whether some are left.
    pub(crate) async fn finish(&mut self) -> (usize, bool) {
        loop {
            while self.end_one().await {}
            let Some((_, (due, ended))) = self.large.next().await else { return (self.over, self.left) };
            self.ended_large(due, ended);
        }
    }

    /// Waits for the next small one that ends; whether there was one.
    async fn end_one(&mut self) -> bool {
        let Some((key, (due, ended))) = self.writes.next().await else { return false };
        self.ended(key, due, ended);
        true
    }

    fn ended(&mut self, key: D::Key, due: D, ended: Result<D::Done, OpError>) {
        if matches!(ended, Err(OpError::Crowded)) && !self.large.is_full() {
            let write = due.clone().write(self.rt.clone(), false);
            self.large.begin(key, async move { (due, write.await) });
            return;
        }
        self.ended_large(due, ended);
    }

    fn ended_large(&mut self, due: D, ended: Result<D::Done, OpError>) {
        self.beat();
        let met_again = self.met_again.remove(&due.key());
        let key = due.backoff_key();
        let over = match ended {
            Ok(done) => {
                self.failed.worked(&key);
                due.tell(&done)
            }
            Err(OpError::Crowded) => false,
            Err(error) if error.is_of_this_job() => {
                if self.failed.failed(key, self.rt.system.clock.boot()) {
                    due.tell_failed(&error);
                }
                false
            }
            Err(error) => {
                self.unreachable += 1;
                if self.unreachable == 1 {
                    due.tell_unreachable(&error);
                }
                false
            }
        };
        self.again |= over && met_again;
        self.over += usize::from(over);
        self.left |= !over;
    }

    fn beat(&self) {
        self.pulse.beat(self.rt.system.clock.as_ref());
    }
}
