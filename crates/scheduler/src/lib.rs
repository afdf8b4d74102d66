//! Many jobs: timers that are due and leases that have expired. Never runs a step.
//!
//! Any number of processes may sweep the same store: each firing and each reclaim is one guarded
//! commit, and whoever comes second finds nothing to do.

use std::time::Duration;

use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::lease::Fence;
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_runtime::ops::{Proof, Reclaimed};
use aetheris_runtime::{OpError, Runtime};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

/// How many jobs a sweep writes at once: they share the store's commits.
const CONCURRENT_WRITES: usize = 64;

/// How often a process looks for what others may have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOptions {
    /// The longest pause between two looks at expired leases.
    pub leases: Span,
    /// The longest pause between two looks at timers; those that this process sets are known sooner.
    pub timers: Span,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { leases: Span::from_secs(1), timers: Span::from_secs(1) }
    }
}

/// Fires timers when they are due, until told to stop.
pub async fn fire_timers(rt: Runtime, options: SweepOptions, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let pause = match fire_due(&rt).await {
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

/// Fires what is due. How long until the next one is, if there is one. One read, and a read and a
/// commit per timer; the commits share fsyncs.
///
/// # Errors
/// The timers cannot be read. A timer that cannot be fired is left for the next sweep.
pub async fn fire_due(rt: &Runtime) -> Result<Option<Duration>, OpError> {
    loop {
        let due = rt.store.due_timers(limits::SWEEP_ROWS_MAX).await?;
        let (now, count) = (due.now, due.timers.len());
        if count > 0 {
            aetheris_fault::crash_point!("sweep.timers.listed");
        }
        let fired = futures_util::stream::iter(due.timers)
            .map(|timer| async move {
                match rt.fire(&timer).await {
                    Ok(fired) => fired,
                    Err(error) => {
                        tracing::warn!(job = %timer.job, timer = %timer.timer, %error, "a timer could not be fired");
                        false
                    }
                }
            })
            .buffer_unordered(CONCURRENT_WRITES)
            .filter(|fired| std::future::ready(*fired))
            .count()
            .await;
        if count < limits::SWEEP_ROWS_MAX || fired == 0 {
            let retry = (fired < count).then_some(Duration::from_secs(1));
            let next = due.next.map(|next| next.since(now).to_std());
            return Ok(retry.into_iter().chain(next).min());
        }
    }
}

/// Takes back expired leases, until told to stop.
pub async fn reclaim_expired(rt: Runtime, options: SweepOptions, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(error) = sweep_expired(&rt).await {
            tracing::warn!(%error, "expired leases could not be looked at; trying again");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(options.leases.to_std()) => {}
        }
    }
}

/// Takes back what has expired; how many jobs were taken.
///
/// # Errors
/// The leases cannot be read.
pub async fn sweep_expired(rt: &Runtime) -> Result<usize, OpError> {
    let expired = rt.store.expired(limits::SWEEP_ROWS_MAX).await?;
    if !expired.is_empty() {
        aetheris_fault::crash_point!("sweep.leases.listed");
    }
    Ok(reclaim_all(rt, expired, Proof::Expired).await)
}

/// Takes back at once every job of an instance that is proved dead; how many there were.
///
/// # Errors
/// The store cannot be asked, or some jobs cannot be taken: they are left to expire.
pub async fn reclaim_instance(rt: &Runtime, dead: InstanceId) -> Result<usize, OpError> {
    let mut taken = 0;
    loop {
        let held = rt.store.held_by(dead, limits::SWEEP_ROWS_MAX).await?;
        if held.is_empty() {
            return Ok(taken);
        }
        aetheris_fault::crash_point!("sweep.instance.listed");
        let found = held.len();
        let now = reclaim_all(rt, held, Proof::Dead(dead)).await;
        taken += now;
        if now == 0 {
            return Err(OpError::StateConflict(format!(
                "{found} jobs of the dead instance {dead} could not be taken back"
            )));
        }
    }
}

async fn reclaim_all(rt: &Runtime, jobs: Vec<(JobId, Fence)>, proof: Proof) -> usize {
    futures_util::stream::iter(jobs)
        .map(|(job, fence)| async move {
            match rt.reclaim(job, fence, proof).await {
                Ok(Reclaimed::Taken) => {
                    tracing::info!(%job, %fence, ?proof, "taken back");
                    true
                }
                Ok(Reclaimed::NotHeld) => false,
                Err(error) => {
                    tracing::warn!(%job, %fence, %error, "could not be taken back");
                    false
                }
            }
        })
        .buffer_unordered(CONCURRENT_WRITES)
        .filter(|taken| std::future::ready(*taken))
        .count()
        .await
}
