//! Timers: fired when they are due.

use std::time::Duration;

use aetheris_core::event::TimerId;
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{OpError, Runtime};
use aetheris_store::TimerRow;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::{CONCURRENT_WRITES, SweepOptions};

/// Fires timers when they are due, until told to stop. Its pulse beats with every page.
pub async fn fire_timers(rt: Runtime, options: SweepOptions, pulse: Pulse, stop: CancellationToken) {
    let mut sweep = Sweep { failed: Backoff::default(), pulse, stop: stop.clone() };
    while !stop.is_cancelled() {
        aetheris_fault::crash_point!("vital.timers");
        let pause = match sweep.pass(&rt).await {
            Ok(next) => next.unwrap_or(Duration::MAX).min(options.timers.to_std()),
            Err(error) => {
                tracing::warn!(%error, "timers could not be looked at; trying again");
                options.timers.to_std()
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = rt.wakeups.timers_changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Fires what is due, in one pass. How long until the next one is due, if there is one. One read per page, and a
/// read and a commit per timer; the commits share fsyncs.
///
/// # Errors
/// The timers cannot be read. A timer that cannot be fired is left for the next sweep.
pub async fn fire_due(rt: &Runtime) -> Result<Option<Duration>, OpError> {
    let (pulse, stop) = (Pulse::default(), CancellationToken::new());
    Sweep { failed: Backoff::default(), pulse, stop }.pass(rt).await
}

struct Sweep {
    failed: Backoff<(JobId, TimerId)>,
    pulse: Pulse,
    stop: CancellationToken,
}

impl Sweep {
    /// Goes through everything that is due, page by page, unless it is told to stop.
    async fn pass(&mut self, rt: &Runtime) -> Result<Option<Duration>, OpError> {
        let (mut after, mut left) = (None, false);
        loop {
            let page = crate::page();
            let due = rt.store.due_timers(after, page).await?;
            self.pulse.beat(rt.system.clock.as_ref());
            if !due.timers.is_empty() {
                aetheris_fault::crash_point!("sweep.timers.listed");
            }
            let last = due.timers.last().cloned().filter(|_| due.timers.len() >= page);
            left |= !self.fire_all(rt, due.timers).await;
            let whole = last.is_none() || aetheris_fault::planted!("sweep-of-one-page");
            if whole || self.stop.is_cancelled() {
                self.failed.forget_absent(rt.system.clock.boot());
                let next = due.next.map(|next| next.since(due.now).to_std());
                let again = left.then(|| limits::SWEEP_BACKOFF.to_std());
                return Ok(again.into_iter().chain(next).min());
            }
            after = last;
        }
    }

    /// Fires those of a page that are not left alone for now. Whether all that were tried have fired.
    async fn fire_all(&mut self, rt: &Runtime, timers: Vec<TimerRow>) -> bool {
        let now = rt.system.clock.boot();
        let ready = timers.into_iter().filter(|timer| self.failed.may_try(&(timer.job, timer.timer.clone()), now));
        let ready: Vec<TimerRow> = ready.collect();
        let fired: Vec<_> = futures_util::stream::iter(ready)
            .map(|timer| async move {
                let fired = rt.fire(&timer).await;
                (timer, fired)
            })
            .buffer_unordered(CONCURRENT_WRITES)
            .collect()
            .await;
        let (mut all, mut unreachable) = (true, 0);
        for (TimerRow { job, timer, .. }, fired) in fired {
            all &= matches!(fired, Ok(true));
            match fired {
                Ok(fired) => {
                    self.failed.worked(&(job, timer.clone()));
                    tracing::debug!(%job, %timer, fired, "a timer was due");
                }
                Err(error) if error.is_of_this_job() => {
                    if self.failed.failed((job, timer.clone()), now) {
                        tracing::error!(%job, %timer, %error, "a timer could not be fired; it is tried again, less and less often");
                    }
                }
                Err(error) => {
                    unreachable += 1;
                    if unreachable == 1 {
                        tracing::warn!(%job, %timer, %error, "a timer could not be fired; trying again");
                    }
                }
            }
        }
        if unreachable > 1 {
            tracing::warn!(timers = unreachable, "timers could not be fired; trying again");
        }
        all
    }
}
