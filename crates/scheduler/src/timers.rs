//! Timers: fired when they are due.

use std::time::Duration;

use aetheris_core::event::TimerId;
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{OpError, Runtime};
use aetheris_store::TimerRow;
use tokio_util::sync::CancellationToken;

use crate::SweepOptions;
use crate::sweep::{Due, Sweep};

/// Fires timers when they are due, until told to stop. Its pulse beats with every page and every timer.
pub async fn fire_timers(rt: Runtime, options: SweepOptions, pulse: Pulse, stop: CancellationToken) {
    let bus = rt.store.bus().clone();
    let mut sweep = Sweep::new(rt, pulse, stop);
    while !sweep.stop.is_cancelled() {
        aetheris_fault::crash_point!("vital.timers");
        let pause = match pass(&mut sweep).await {
            Ok(next) => next.unwrap_or(Duration::MAX).min(options.timers.to_std()),
            Err(error) => {
                tracing::warn!(%error, "timers could not be looked at; trying again");
                options.timers.to_std()
            }
        };
        sweep.rest(pause, bus.timers_changed()).await;
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
    let next = pass(&mut sweep).await;
    let (_, left) = sweep.finish().await;
    let again = left.then(|| limits::SWEEP_BACKOFF.to_std());
    Ok(again.into_iter().chain(next?).min())
}

/// Goes through everything that is due, page by page, unless it is told to stop. How long until the next one is due.
async fn pass(sweep: &mut Sweep<TimerRow>) -> Result<Option<Duration>, OpError> {
    let unreachable = sweep.begin_pass();
    if unreachable > 1 {
        tracing::warn!(timers = unreachable, "timers could not be fired; trying again");
    }
    let mut after = None;
    loop {
        let page = crate::page();
        let due = sweep.rt.store.due_timers(after, page).await?;
        if !due.timers.is_empty() {
            aetheris_fault::crash_point!("sweep.timers.listed");
        }
        after = due.timers.last().cloned().filter(|_| due.timers.len() >= page);
        sweep.begin_all(due.timers).await;
        let whole = after.is_none() || aetheris_fault::planted!("sweep-of-one-page");
        if whole || sweep.stop.is_cancelled() {
            sweep.end_pass();
            return Ok(due.next.map(|next| next.since(due.now).to_std()));
        }
    }
}

impl Due for TimerRow {
    type Key = (JobId, TimerId);
    type Done = bool;

    fn key(&self) -> Self::Key {
        (self.job, self.timer.clone())
    }

    async fn write(self, rt: Runtime, if_free: bool) -> Result<bool, OpError> {
        if if_free { rt.fire_if_free(&self).await } else { rt.fire(&self).await }
    }

    /// One that somebody else has fired may be due again.
    fn tell(&self, fired: &bool) -> bool {
        let Self { job, timer, .. } = self;
        tracing::debug!(%job, %timer, fired, "a timer was due");
        *fired
    }

    fn tell_failed(&self, error: &OpError) {
        let Self { job, timer, .. } = self;
        tracing::error!(%job, %timer, %error, "a timer could not be fired; it is tried again, less and less often");
    }

    fn tell_unreachable(&self, error: &OpError) {
        let Self { job, timer, .. } = self;
        tracing::warn!(%job, %timer, %error, "a timer could not be fired; trying again");
    }
}
