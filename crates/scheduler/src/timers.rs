//! Timers: fired when they are due.

use std::time::Duration;

use aetheris_core::event::TimerId;
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{OpError, Runtime};
use aetheris_store::TimerRow;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::SweepOptions;
use crate::backoff::Backoff;
use crate::writes::Writes;

/// Fires timers when they are due, until told to stop. Its pulse beats with every page and every timer.
pub async fn fire_timers(rt: Runtime, options: SweepOptions, pulse: Pulse, stop: CancellationToken) {
    let mut sweep = Sweep::new(rt, pulse, stop);
    while !sweep.stop.is_cancelled() {
        aetheris_fault::crash_point!("vital.timers");
        let pause = match sweep.pass().await {
            Ok(next) => next.unwrap_or(Duration::MAX).min(options.timers.to_std()),
            Err(error) => {
                tracing::warn!(%error, "timers could not be looked at; trying again");
                options.timers.to_std()
            }
        };
        sweep.rest(pause).await;
    }
    sweep.finish().await;
}

/// Fires what is due, in one pass. How long until the next one is due, if there is one. One read per page, and a
/// read and a commit per timer; the commits share fsyncs.
///
/// # Errors
/// The timers cannot be read. A timer that cannot be fired is left for the next sweep.
pub async fn fire_due(rt: &Runtime) -> Result<Option<Duration>, OpError> {
    let mut sweep = Sweep::new(rt.clone(), Pulse::default(), CancellationToken::new());
    let next = sweep.pass().await?;
    sweep.finish().await;
    let again = sweep.left.is_some().then(|| limits::SWEEP_BACKOFF.to_std());
    Ok(again.into_iter().chain(next).min())
}

/// What is to be tried again soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// A large job, for which there was no room: as soon as another write has ended.
    Crowded,
    /// The store could not be asked, or somebody else was first: after a while.
    Failed,
}

struct Sweep {
    failed: Backoff<(JobId, TimerId)>,
    left: Option<Left>,
    pulse: Pulse,
    rt: Runtime,
    stop: CancellationToken,
    unreachable: usize,
    writes: Writes<(JobId, TimerId), Result<bool, OpError>>,
}

impl Sweep {
    fn new(rt: Runtime, pulse: Pulse, stop: CancellationToken) -> Self {
        let (failed, writes) = (Backoff::default(), Writes::default());
        Self { failed, left: None, pulse, rt, stop, unreachable: 0, writes }
    }

    /// Goes through everything that is due, page by page, unless it is told to stop. It does not wait for those that are
    /// slow: they go on during the rest, and the next pass leaves them alone.
    async fn pass(&mut self) -> Result<Option<Duration>, OpError> {
        if self.unreachable > 1 {
            tracing::warn!(timers = self.unreachable, "timers could not be fired; trying again");
        }
        (self.left, self.unreachable) = (None, 0);
        let mut after = None;
        loop {
            let page = crate::page();
            let due = self.rt.store.due_timers(after, page).await?;
            self.beat();
            if !due.timers.is_empty() {
                aetheris_fault::crash_point!("sweep.timers.listed");
            }
            let last = due.timers.last().cloned().filter(|_| due.timers.len() >= page);
            for timer in due.timers {
                self.begin(timer).await;
            }
            let whole = last.is_none() || aetheris_fault::planted!("sweep-of-one-page");
            if whole || self.stop.is_cancelled() {
                self.failed.forget_absent(self.rt.system.clock.boot());
                return Ok(due.next.map(|next| next.since(due.now).to_std()));
            }
            after = last;
        }
    }

    /// Begins to fire one, unless it is left alone for now, as soon as not too many are under way.
    async fn begin(&mut self, timer: TimerRow) {
        let key = (timer.job, timer.timer.clone());
        if self.writes.has(&key) || !self.failed.may_try(&key, self.rt.system.clock.boot()) {
            return;
        }
        while self.writes.is_full() {
            self.end_one().await;
        }
        let rt = self.rt.clone();
        self.writes.begin(key, async move { rt.fire(&timer).await });
    }

    /// Waits for so long, or until there is something to do, while those under way go on.
    async fn rest(&mut self, pause: Duration) {
        let mut until = Instant::now() + pause;
        let stop = self.stop.clone();
        while !stop.is_cancelled() {
            if self.left.is_some() {
                until = until.min(Instant::now() + limits::SWEEP_BACKOFF.to_std());
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.rt.wakeups.timers_changed() => return,
                Some((key, fired)) = self.writes.next() => {
                    let room_again = self.left == Some(Left::Crowded) && !matches!(fired, Err(OpError::Crowded));
                    self.ended(key, fired);
                    if room_again {
                        return;
                    }
                }
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    /// Waits for all that are under way.
    async fn finish(&mut self) {
        while self.end_one().await {}
    }

    /// Waits for the next that ends; whether there was one.
    async fn end_one(&mut self) -> bool {
        let Some((key, fired)) = self.writes.next().await else { return false };
        self.ended(key, fired);
        true
    }

    fn ended(&mut self, (job, timer): (JobId, TimerId), fired: Result<bool, OpError>) {
        self.beat();
        let left = match fired {
            Ok(fired) => {
                self.failed.worked(&(job, timer.clone()));
                tracing::debug!(%job, %timer, fired, "a timer was due");
                (!fired).then_some(Left::Failed)
            }
            Err(OpError::Crowded) => {
                tracing::debug!(%job, %timer, "a timer waits for room for its large job");
                Some(Left::Crowded)
            }
            Err(error) if error.is_of_this_job() => {
                if self.failed.failed((job, timer.clone()), self.rt.system.clock.boot()) {
                    tracing::error!(%job, %timer, %error, "a timer could not be fired; it is tried again, less and less often");
                }
                Some(Left::Failed)
            }
            Err(error) => {
                self.unreachable += 1;
                if self.unreachable == 1 {
                    tracing::warn!(%job, %timer, %error, "a timer could not be fired; trying again");
                }
                Some(Left::Failed)
            }
        };
        self.left = self.left.into_iter().chain(left).min();
    }

    fn beat(&self) {
        self.pulse.beat(self.rt.system.clock.as_ref());
    }
}
