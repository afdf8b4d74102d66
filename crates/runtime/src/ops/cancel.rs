//! Cancelling: at once where nobody holds the job, by request where someone does.

use aetheris_core::event::{EndCause, JobCancelRequested, JobCancelled};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::state::JobState;
use aetheris_store::Purpose;

use super::ends::left_open;
use super::{Amendment, Ledger};
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::Fact;
use crate::error::OpError;

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was cancelled before; nothing changed.
    Already,
    /// It is cancelled.
    Now,
    /// Its holder is asked to end it.
    Requested,
}

impl Runtime {
    /// Cancels a job. One commit; where a worker holds the job, the worker writes the end, or whoever
    /// reclaims it.
    ///
    /// # Errors
    /// [`OpError`]: no such job, it has ended otherwise, or no store.
    pub async fn cancel(&self, job: JobId) -> Result<Cancelled, OpError> {
        self.amend((job, Caller::Operator), Purpose::Cancel, Guard::Outside, |loaded, draft| {
            self.decided(draft, cancelling(&loaded.state, &loaded.ledger)?)
        })
        .await
    }
}

/// What a cancel adds to a job, if anything, and its answer.
///
/// # Errors
/// The job has ended otherwise.
pub fn cancelling(state: &JobState, ledger: &Ledger) -> Result<(Option<Amendment>, Cancelled), OpError> {
    let JobState { id: job, status, .. } = *state;
    match status {
        JobStatus::Cancelled => Ok((None, Cancelled::Already)),
        JobStatus::Completed | JobStatus::Failed => Err(OpError::JobFinished { job, status }),
        JobStatus::Running if aetheris_fault::planted!("cancel-lost") => Ok((None, Cancelled::Requested)),
        JobStatus::Running if state.end_requested.is_some_and(EndCause::ends) => Ok((None, Cancelled::Requested)),
        JobStatus::Running => {
            aetheris_fault::sometimes!(CancelOfHeld);
            let asked = JobCancelRequested { cause: EndCause::Cancel };
            Ok((Some(Amendment::of([asked.into()])), Cancelled::Requested))
        }
        JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked | JobStatus::Paused => {
            aetheris_fault::sometimes!(CancelOfIdle);
            let reason = "the job was cancelled while the outcome of the call was unknown";
            let ended = left_open(state, ledger, reason).and(Fact::of(JobCancelled {}));
            Ok((Some(ended), Cancelled::Now))
        }
    }
}
