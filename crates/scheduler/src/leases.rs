//! Jobs whose holder is gone: taken back when their lease is over, or at once by proof of its death.

use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::lease::Fence;
use aetheris_runtime::ops::{Proof, Reclaimed};
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{OpError, Runtime};
use aetheris_store::ExpiredLease;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::SweepOptions;
use crate::sweep::{Due, Sweep, WRITES_AT_ONCE};

/// Takes back expired leases, until told to stop. Its pulse beats with every page and every job.
pub async fn reclaim_expired(rt: Runtime, options: SweepOptions, pulse: Pulse, stop: CancellationToken) {
    let mut sweep = Sweep::new(rt, pulse, stop);
    while !sweep.stop.is_cancelled() {
        aetheris_fault::crash_point!("vital.leases");
        if let Err(error) = pass(&mut sweep).await {
            tracing::warn!(%error, "expired leases could not be looked at; trying again");
        }
        sweep.rest(options.leases.to_std(), std::future::pending()).await;
    }
    sweep.finish().await;
}

/// Takes back what has expired, in one pass; how many jobs were taken.
///
/// # Errors
/// The leases cannot be read.
pub async fn sweep_expired(rt: &Runtime) -> Result<usize, OpError> {
    let mut sweep = Sweep::new(rt.clone(), Pulse::default(), CancellationToken::new());
    let read = pass(&mut sweep).await;
    let (taken, _) = sweep.finish().await;
    read.map(|()| taken)
}

/// Goes through everything that has expired, page by page, unless it is told to stop.
async fn pass(sweep: &mut Sweep<ExpiredLease>) -> Result<(), OpError> {
    let unreachable = sweep.begin_pass();
    if unreachable > 1 {
        tracing::warn!(jobs = unreachable, "jobs could not be taken back from their holders; trying again");
    }
    let mut after = None;
    loop {
        let page = crate::page();
        let expired = sweep.rt.store.expired(after, page).await?;
        if !expired.is_empty() {
            aetheris_fault::crash_point!("sweep.leases.listed");
        }
        after = expired.last().copied().filter(|_| expired.len() >= page);
        sweep.begin_all(expired).await;
        if after.is_none() || sweep.stop.is_cancelled() {
            sweep.end_pass();
            return Ok(());
        }
    }
}

/// Takes back at once every job of an instance that is proved dead; how many there were. What fails is passed
/// over and tried again for as long as others can be taken.
///
/// # Errors
/// The store cannot be asked, or some jobs cannot be taken: they are left to expire.
pub async fn reclaim_instance(rt: &Runtime, dead: InstanceId) -> Result<usize, OpError> {
    let mut taken = 0;
    loop {
        let (now, left) = take_all_of(rt, dead).await?;
        taken += now;
        if left == 0 || aetheris_fault::planted!("dead-only-first-page") {
            return Ok(taken);
        }
        if now == 0 {
            return Err(OpError::StateConflict(format!(
                "{left} jobs of the dead instance {dead} could not be taken back, {taken} were"
            )));
        }
    }
}

/// One pass over an instance's jobs: how many were taken, and how many failed.
async fn take_all_of(rt: &Runtime, dead: InstanceId) -> Result<(usize, usize), OpError> {
    let (mut after, mut taken, mut left) = (None, 0, 0);
    loop {
        let held = rt.store.held_by(dead, after, crate::page()).await?;
        let Some((last, _)) = held.last() else {
            return Ok((taken, left));
        };
        if after.is_some() && aetheris_fault::planted!("dead-only-first-page") {
            return Ok((taken, left));
        }
        after = Some(*last);
        aetheris_fault::crash_point!("sweep.instance.listed");
        for outcome in reclaim_all(rt, held, Proof::Dead(dead)).await {
            match outcome {
                Ok(Reclaimed::Taken) => taken += 1,
                Ok(Reclaimed::NotHeld) => {}
                Err(_) => left += 1,
            }
        }
    }
}

async fn reclaim_all(rt: &Runtime, jobs: Vec<(JobId, Fence)>, proof: Proof) -> Vec<Result<Reclaimed, OpError>> {
    let reclaim = async |(job, fence)| {
        let outcome = rt.reclaim(job, fence, proof).await;
        match &outcome {
            Ok(reclaimed) => told(job, fence, proof, *reclaimed),
            Err(error) => tracing::warn!(%job, %fence, %error, "a job could not be taken back from its holder"),
        }
        outcome
    };
    futures_util::stream::iter(jobs).map(reclaim).buffer_unordered(WRITES_AT_ONCE).collect().await
}

fn told(job: JobId, fence: Fence, proof: Proof, reclaimed: Reclaimed) {
    if reclaimed == Reclaimed::Taken {
        tracing::info!(%job, %fence, reason = proof.as_str(), "a job was taken back from its holder");
    }
}

impl Due for ExpiredLease {
    type Key = JobId;
    type Done = Reclaimed;

    fn key(&self) -> JobId {
        self.job
    }

    async fn write(self, rt: Runtime, if_free: bool) -> Result<Reclaimed, OpError> {
        let Self { fence, job, .. } = self;
        if if_free {
            rt.reclaim_if_free(job, fence, Proof::Expired).await
        } else {
            rt.reclaim(job, fence, Proof::Expired).await
        }
    }

    /// One that nobody has to take back any more is looked at with the next pass at the latest.
    fn tell(&self, reclaimed: &Reclaimed) -> bool {
        told(self.job, self.fence, Proof::Expired, *reclaimed);
        *reclaimed == Reclaimed::Taken
    }

    fn tell_failed(&self, error: &OpError) {
        let Self { fence, job, .. } = self;
        tracing::warn!(%job, %fence, %error, "a job could not be taken back from its holder; it is tried again, less and less often");
    }

    fn tell_unreachable(&self, error: &OpError) {
        let Self { fence, job, .. } = self;
        tracing::warn!(%job, %fence, %error, "a job could not be taken back from its holder; trying again");
    }
}
