//! Holding a job still and letting it go on: at once where nobody holds the job, by request where someone does.

use aetheris_core::event::{EndCause, JobPauseRequested, JobPaused, JobResumed, PauseReason};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_store::Purpose;

use super::Plan;
use crate::Runtime;
use crate::draft::Draft;
use crate::error::OpError;
use crate::load::Loaded;

/// What a pause did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseAnswer {
    /// It was paused before; nothing changed.
    Already,
    /// It is paused.
    Now,
    /// Its holder is asked to let it go.
    Requested,
}

/// What a resume did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeAnswer {
    /// It was not paused; nothing changed.
    Already(JobStatus),
    /// It goes on in this status.
    Now(JobStatus),
}

/// What a restore did with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It had ended, or an operator had paused it before.
    Already,
    /// It is held until an operator resumes it.
    Now,
    /// Its end had been asked for: it has ended now.
    Ended,
}

impl Runtime {
    /// Holds a job of a restored store, which no process works on: what it did since the backup is not known here. One
    /// commit.
    ///
    /// # Errors
    /// [`OpError`]: no such job, or no store.
    pub async fn hold_restored(&self, job: JobId) -> Result<Held, OpError> {
        self.amend(job, Purpose::Pause, Guard::Outside, |loaded, draft| self.held(loaded, draft)).await
    }

    /// The pause of a job that no process works on.
    pub(super) fn held(&self, loaded: &Loaded, mut draft: Draft) -> Result<Plan<Held>, OpError> {
        let ids = self.system.ids.as_ref();
        let held = match (loaded.state.status, loaded.state.end_requested) {
            (JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled | JobStatus::Paused, _) => {
                return Ok(Plan::Answer(Held::Already));
            }
            (JobStatus::Running, Some(EndCause::Cancel)) => {
                self.end_cancelled(&loaded.ledger, &mut draft)?;
                Held::Ended
            }
            (JobStatus::Running, Some(EndCause::Deadline)) => {
                self.end_overdue(&loaded.ledger, &mut draft)?;
                Held::Ended
            }
            (JobStatus::Running, Some(EndCause::Pause) | None)
            | (JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked, _) => {
                draft.push(ids, JobPaused { reason: PauseReason::Restored })?;
                draft.release();
                Held::Now
            }
        };
        Ok(Plan::Write(Box::new(draft), held))
    }

    /// Holds a job still until it is resumed. One commit; where a worker holds the job, the worker writes the pause
    /// when its calls have ended, or whoever reclaims it.
    ///
    /// # Errors
    /// [`OpError`]: no such job, it has ended or is to end, or no store.
    pub async fn pause(&self, job: JobId) -> Result<PauseAnswer, OpError> {
        let ids = self.system.ids.as_ref();
        self.amend(job, Purpose::Pause, Guard::Outside, |loaded, mut draft| {
            let status = loaded.state.status;
            match (status, loaded.state.end_requested) {
                (JobStatus::Paused, _) => Ok(Plan::Answer(PauseAnswer::Already)),
                (JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled, _) => {
                    Err(OpError::JobFinished { job, status })
                }
                (JobStatus::Running, Some(EndCause::Cancel | EndCause::Deadline)) => {
                    Err(OpError::StateConflict(format!("job {job} is already ending and can no longer be paused")))
                }
                (JobStatus::Running, Some(EndCause::Pause)) => Ok(Plan::Answer(PauseAnswer::Requested)),
                (JobStatus::Running | JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked, _)
                    if loaded.state.seq >= limits::JOB_EVENTS_MAX =>
                {
                    let bound = limits::JOB_EVENTS_MAX;
                    Err(OpError::Bound(format!(
                        "job {job} has {bound} events, the most that are kept; it is not paused any more"
                    )))
                }
                (JobStatus::Running, None) => {
                    aetheris_fault::sometimes!(PauseOfHeld);
                    draft.push(ids, JobPauseRequested {})?;
                    Ok(Plan::Write(Box::new(draft), PauseAnswer::Requested))
                }
                (JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked, _) => {
                    aetheris_fault::sometimes!(PauseOfIdle);
                    draft.push(ids, JobPaused { reason: PauseReason::Operator })?;
                    Ok(Plan::Write(Box::new(draft), PauseAnswer::Now))
                }
            }
        })
        .await
    }

    /// Lets a paused job go on: it waits again, or is pending where it did not wait or its wait ended meanwhile. One
    /// commit.
    ///
    /// # Errors
    /// [`OpError`]: no such job, it has ended, its worker has not let it go yet, or no store.
    pub async fn resume(&self, job: JobId) -> Result<ResumeAnswer, OpError> {
        let ids = self.system.ids.as_ref();
        self.amend(job, Purpose::Pause, Guard::Outside, |loaded, mut draft| {
            let status = loaded.state.status;
            match (status, loaded.state.end_requested) {
                (JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled, _) => {
                    Err(OpError::JobFinished { job, status })
                }
                // Its bodies are ending: the run cannot take that back.
                (JobStatus::Running, Some(EndCause::Pause)) => Err(OpError::StateConflict(format!(
                    "job {job} is about to be paused: its worker has not let it go yet; resume it when it is paused"
                ))),
                (JobStatus::Pending | JobStatus::Running | JobStatus::Waiting | JobStatus::Parked, _) => {
                    Ok(Plan::Answer(ResumeAnswer::Already(status)))
                }
                (JobStatus::Paused, _) => {
                    aetheris_fault::sometimes!(Resumed);
                    draft.push(ids, JobResumed {})?;
                    let status = draft.state().status;
                    Ok(Plan::Write(Box::new(draft), ResumeAnswer::Now(status)))
                }
            }
        })
        .await
    }
}
