//! What units have promised beside their jobs: done as soon as it stands.

use aetheris_core::id::JobId;
use aetheris_runtime::ops::Delivery;
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{OpError, Runtime};
use tokio_util::sync::CancellationToken;

use crate::SweepOptions;
use crate::sweep::{Due, Sweep};

/// Does what was promised, until told to stop. Its pulse beats with every page and every delivery.
pub async fn deliver_outbox(rt: Runtime, options: SweepOptions, pulse: Pulse, stop: CancellationToken) {
    let bus = rt.store.bus().clone();
    let mut sweep = Sweep::new(rt, pulse, stop);
    while !sweep.stop.is_cancelled() {
        aetheris_fault::crash_point!("vital.outbox");
        if let Err(error) = pass(&mut sweep).await {
            tracing::warn!(%error, "the outbox could not be looked at; trying again");
        }
        sweep.rest(options.outbox.to_std(), bus.outbox_changed()).await;
    }
    sweep.finish().await;
}

/// Does what stands, in one pass. Whether some of it is left. One read per page, and for each delivery what
/// [`Runtime::deliver`] says.
///
/// # Errors
/// The outbox cannot be read. What cannot be done is left for the next sweep.
pub async fn deliver_all(rt: &Runtime) -> Result<bool, OpError> {
    let mut sweep = Sweep::new(rt.clone(), Pulse::default(), CancellationToken::new());
    let read = pass(&mut sweep).await;
    let (_, left) = sweep.finish().await;
    read.map(|()| left)
}

/// Goes through everything that stands, page by page, unless it is told to stop.
async fn pass(sweep: &mut Sweep<Delivery>) -> Result<(), OpError> {
    let unreachable = sweep.begin_pass();
    if unreachable > 1 {
        tracing::warn!(promises = unreachable, "promises could not be kept; trying again");
    }
    let mut after = None;
    loop {
        let page = crate::page();
        let rows = sweep.rt.store.outbox(after, page).await?;
        if !rows.is_empty() {
            aetheris_fault::crash_point!("sweep.outbox.listed");
        }
        after = rows.last().map(|row| row.num).filter(|_| rows.len() >= page);
        sweep.begin_all(Delivery::of(rows)).await;
        if after.is_none() || sweep.stop.is_cancelled() {
            sweep.end_pass();
            return Ok(());
        }
    }
}

impl Due for Delivery {
    type Key = (JobId, u64);
    type Done = bool;
    const COMES_AGAIN: bool = true;

    fn key(&self) -> Self::Key {
        Self::key(self)
    }

    fn backoff_key(&self) -> Self::Key {
        Self::backoff_key(self)
    }

    async fn write(self, rt: Runtime, if_free: bool) -> Result<bool, OpError> {
        if if_free { rt.deliver_if_free(&self).await } else { rt.deliver(&self).await }
    }

    /// What somebody else has done is over; what is left of it is listed again.
    fn tell(&self, done: &bool) -> bool {
        let (job, num) = Self::key(self);
        tracing::debug!(%job, num, what = self.what(), done, "a promise was kept");
        *done
    }

    fn tell_failed(&self, error: &OpError) {
        let (job, _) = Self::key(self);
        tracing::error!(%job, what = self.what(), %error, "a promise cannot be kept; it is tried again, less and less often");
    }

    fn tell_unreachable(&self, error: &OpError) {
        let (job, _) = Self::key(self);
        tracing::warn!(%job, what = self.what(), %error, "a promise could not be kept; trying again");
    }
}
