//! Taking back a job whose holder is gone: by the end of its lease, or by proof of its death.

use aetheris_core::event::{Failure, JobFailed, JobRequeued, PauseReason, RequeueReason};
use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::state::JobState;
use aetheris_store::{Purpose, Refusal};

use super::{Amendment, ENDED_OVER_CALL, Ledger, Rounds, asked_end, failed, held};
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::WriteError;
use crate::error::OpError;

/// Why a job may be taken from its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Its lease has expired; the store checks it again.
    Expired,
    /// The holder was of this instance, which is proved dead.
    Dead(InstanceId),
}

impl Proof {
    /// Its name in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "lease_expired",
            Self::Dead(_) => "holder_died",
        }
    }
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaimed {
    /// It can be claimed again, or has ended as it had to.
    Taken,
    /// It was not as the proof says any more.
    NotHeld,
}

impl Runtime {
    /// Takes a job back. One commit, guarded in the store by the fence and the proof.
    ///
    /// # Errors
    /// [`OpError`]: the job cannot be read or written.
    pub async fn reclaim(&self, job: JobId, fence: Fence, proof: Proof) -> Result<Reclaimed, OpError> {
        self.reclaim_as(Caller::Process, job, fence, proof).await
    }

    /// The same, where the job is not large, or nobody in this process is to be waited for.
    ///
    /// # Errors
    /// As [`Runtime::reclaim`]; [`OpError::Crowded`], where it was to be waited for.
    pub async fn reclaim_if_free(&self, job: JobId, fence: Fence, proof: Proof) -> Result<Reclaimed, OpError> {
        self.reclaim_as(Caller::Sweep, job, fence, proof).await
    }

    async fn reclaim_as(&self, caller: Caller, job: JobId, fence: Fence, proof: Proof) -> Result<Reclaimed, OpError> {
        let guard = match proof {
            Proof::Expired if aetheris_fault::planted!("reclaim-ignores-lease") => Guard::Outside,
            Proof::Expired => Guard::Expired(fence),
            Proof::Dead(instance) => Guard::Dead(fence, instance),
        };
        let mut rounds = Rounds::of(self, job, caller);
        loop {
            let loaded = rounds.look().await?;
            if loaded.state.fence != fence || loaded.state.status != JobStatus::Running {
                return Ok(Reclaimed::NotHeld);
            }
            let mut draft = loaded.draft(guard);
            let freed = taken_back(&loaded.state, &loaded.ledger, proof, self.settings.max_attempts);
            freed.add_to(&mut draft, self.system.ids.as_ref())?;
            aetheris_fault::crash_point!("ops.reclaim.decided");
            let fallback = self.event_id();
            match rounds.write(loaded, || draft.unit(Purpose::Reclaim, fallback), |_| false).await {
                Ok(None) => {}
                Ok(Some(_)) => {
                    aetheris_fault::crash_point!("ops.reclaim.written");
                    aetheris_fault::sometimes!(Reclaimed);
                    if draft.state().status.is_terminal() {
                        crate::run::note_end(draft.state());
                    }
                    return Ok(Reclaimed::Taken);
                }
                // Renewed, taken by someone else, or another process's: nothing of ours.
                Err(WriteError::Refused(Refusal::Guard(_))) => {
                    aetheris_fault::sometimes!(ReclaimLate);
                    return Ok(Reclaimed::NotHeld);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What is recorded of a job that is taken back: it ends as was asked for, it fails at the last of so many attempts without
/// progress, it is held as was asked for, or it is pending again.
#[must_use]
pub fn taken_back(state: &JobState, ledger: &Ledger, proof: Proof, max_attempts: u32) -> Amendment {
    let requested = state.end_requested;
    if let Some(end) = asked_end(requested, state, ledger) {
        return end;
    }
    let poison = state.reclaims + 1 >= max_attempts;
    if requested.is_none() && poison && !aetheris_fault::planted!("poison-job-for-ever") {
        aetheris_fault::sometimes!(PoisonJob);
        let message = format!(
            "the job was taken back from a lost worker {max_attempts} times in a row without a node finishing; it is not tried again"
        );
        return failed(
            state,
            ledger,
            JobFailed { error: Failure::new("attempts_exhausted", message), node: None },
            ENDED_OVER_CALL,
        );
    }
    let reason = match proof {
        Proof::Expired => RequeueReason::LeaseExpired,
        Proof::Dead(_) => RequeueReason::HolderDied,
    };
    aetheris_fault::sometimes!(PausedByReclaim, requested.is_some());
    match requested {
        // Held still by whoever finds it: nobody is to go on with it.
        Some(_) => held(state, ledger, PauseReason::Operator),
        None => Amendment::of([JobRequeued { after_us: None, reason }.into()]).releasing(),
    }
}
