//! Timers: fired exactly once, by whichever process gets there first.

use aetheris_core::event::{
    EndCause, Failure, JobCancelRequested, JobFailed, TimerFired, TimerId, WaitCompleted, WaitEnd,
};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::projection::TimerChange;
use aetheris_core::state::JobState;
use aetheris_store::{Purpose, TimerRow, UnitOfWork};

use super::{Amendment, Decided, Ledger, failed};
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::Fact;
use crate::error::OpError;

impl Runtime {
    /// Fires a timer that the store has listed as due. Whether it did: someone else may have been first, the wait
    /// may have ended, or the store's clock was set back since, and it is due later. One commit.
    ///
    /// # Errors
    /// [`OpError`]: the job cannot be read or written.
    pub async fn fire(&self, due: &TimerRow) -> Result<bool, OpError> {
        self.fire_as(due, Caller::Process).await
    }

    /// The same, where its job is not large, or nobody in this process is to be waited for.
    ///
    /// # Errors
    /// As [`Runtime::fire`]; [`OpError::Crowded`], where it was to be waited for.
    pub async fn fire_if_free(&self, due: &TimerRow) -> Result<bool, OpError> {
        self.fire_as(due, Caller::Sweep).await
    }

    async fn fire_as(&self, due: &TimerRow, caller: Caller) -> Result<bool, OpError> {
        if aetheris_fault::planted!("timer-deleted-first") {
            let mut unit = UnitOfWork::new(self.event_id(), due.job, Purpose::Timer, Guard::Outside);
            unit.timers.push(TimerChange::Cleared(due.timer.clone()));
            drop(self.store.commit(unit).await);
        }
        let early = aetheris_fault::planted!("timer-fires-early");
        let guard = if early { Guard::Outside } else { Guard::Due(due.due) };
        let fired = self.amend((due.job, caller), Purpose::Timer, guard, |loaded, draft| {
            let set = loaded.state.timers.get(&due.timer);
            // It may have been set anew since it was listed: then it is due at another moment.
            if set.is_none_or(|timer| timer.due != due.due && !early) {
                aetheris_fault::sometimes!(TimerLate);
                return Ok(Decided::Answer(false));
            }
            aetheris_fault::sometimes!(TimerFired);
            aetheris_fault::sometimes!(PausedWaitEnded, loaded.state.status == JobStatus::Paused);
            self.decided(draft, (Some(fired(&loaded.state, &loaded.ledger, &due.timer)), true))
        });
        match fired.await {
            Err(OpError::NotDue(_)) => {
                aetheris_fault::sometimes!(TimerNotDue);
                Ok(false)
            }
            fired => fired,
        }
    }
}

/// What a timer that fires adds to its job.
#[must_use]
pub fn fired(state: &JobState, ledger: &Ledger, timer: &TimerId) -> Amendment {
    let fired = Amendment::of([TimerFired { timer: timer.clone() }.into()]);
    match timer {
        TimerId::Wait(node) | TimerId::Doubt(node) => {
            fired.and(Fact::of(WaitCompleted { by: WaitEnd::Time, node: node.clone() }))
        }
        TimerId::Deadline => fired.then(deadline_passed(state, ledger)),
    }
}

fn deadline_passed(state: &JobState, ledger: &Ledger) -> Amendment {
    aetheris_fault::sometimes!(DeadlineHit);
    match state.status {
        JobStatus::Running if state.end_requested.is_some_and(EndCause::ends) => Amendment::default(),
        JobStatus::Running => Amendment::of([JobCancelRequested { cause: EndCause::Deadline }.into()]),
        JobStatus::Waiting | JobStatus::Parked if aetheris_fault::planted!("deadline-ignored-while-blocked") => {
            Amendment::default()
        }
        JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked | JobStatus::Paused => {
            let reason = "the job's deadline passed while the outcome of the call was unknown";
            failed(state, ledger, JobFailed { error: deadline_exceeded(), node: None }, reason)
        }
        JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => Amendment::default(),
    }
}

/// Why a job fails at its deadline.
pub(super) fn deadline_exceeded() -> Failure {
    Failure::new("deadline_exceeded", "the job's deadline passed before it ended")
}
