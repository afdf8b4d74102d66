//! Cancelling: at once where nobody holds the job, by request where someone does.

use aetheris_core::event::{EndCause, JobCancelRequested, JobCancelled};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_store::Purpose;

use super::Plan;
use crate::Runtime;
use crate::admission::Caller;
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
        let ids = self.system.ids.as_ref();
        self.amend((job, Caller::Operator), Purpose::Cancel, Guard::Outside, |loaded, mut draft| {
            let status = loaded.state.status;
            match status {
                JobStatus::Cancelled => Ok(Plan::Answer(Cancelled::Already)),
                JobStatus::Completed | JobStatus::Failed => Err(OpError::JobFinished { job, status }),
                JobStatus::Running if aetheris_fault::planted!("cancel-lost") => Ok(Plan::Answer(Cancelled::Requested)),
                JobStatus::Running if loaded.state.end_requested.is_some_and(EndCause::ends) => {
                    Ok(Plan::Answer(Cancelled::Requested))
                }
                JobStatus::Running => {
                    aetheris_fault::sometimes!(CancelOfHeld);
                    draft.push(ids, JobCancelRequested { cause: EndCause::Cancel })?;
                    Ok(Plan::Write(Box::new(draft), Cancelled::Requested))
                }
                JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked | JobStatus::Paused => {
                    aetheris_fault::sometimes!(CancelOfIdle);
                    self.doubt_open_calls(
                        &loaded.ledger,
                        &mut draft,
                        "the job was cancelled while the outcome of the call was unknown",
                    )?;
                    draft.push(ids, JobCancelled {})?;
                    Ok(Plan::Write(Box::new(draft), Cancelled::Now))
                }
            }
        })
        .await
    }
}
