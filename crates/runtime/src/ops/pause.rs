//! Holding a job still and letting it go on: at once where nobody holds the job, by request where someone does.

use aetheris_core::event::{EndCause, JobPauseRequested, JobPaused, JobResumed, PauseReason};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_store::Purpose;

use super::Plan;
use crate::Runtime;
use crate::admission::Caller;
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
        self.amend((job, Caller::Operator), Purpose::Pause, Guard::Outside, |loaded, draft| self.held(loaded, draft))
            .await
    }

    /// The pause of a job that no process works on.
    pub(super) fn held(&self, loaded: &Loaded, mut draft: Draft) -> Result<Plan<Held>, OpError> {
        match loaded.state.status {
            JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled | JobStatus::Paused => {
                return Ok(Plan::Answer(Held::Already));
            }
            JobStatus::Pending | JobStatus::Running | JobStatus::Waiting | JobStatus::Parked => {}
        }
        if self.end_for(loaded.state.end_requested, &loaded.ledger, &mut draft)? {
            return Ok(Plan::Write(Box::new(draft), Held::Ended));
        }
        draft.push(self.system.ids.as_ref(), JobPaused { reason: PauseReason::Restored })?;
        draft.release();
        Ok(Plan::Write(Box::new(draft), Held::Now))
    }

    /// Holds a job still until it is resumed. One commit; where a worker holds the job, the worker writes the pause
    /// when its calls have ended, or whoever reclaims it. One that a restore holds is the operator's from then on.
    ///
    /// # Errors
    /// [`OpError`]: no such job, it has ended or is to end, or no store.
    pub async fn pause(&self, job: JobId) -> Result<PauseAnswer, OpError> {
        let ids = self.system.ids.as_ref();
        self.amend((job, Caller::Operator), Purpose::Pause, Guard::Outside, |loaded, mut draft| {
            match pausing(&loaded.state)? {
                Pausing::Answer(answer) => Ok(Plan::Answer(answer)),
                Pausing::Ask if aetheris_fault::planted!("pause-lost") => Ok(Plan::Answer(PauseAnswer::Requested)),
                Pausing::Ask => {
                    aetheris_fault::sometimes!(PauseOfHeld);
                    draft.push(ids, JobPauseRequested {})?;
                    Ok(Plan::Write(Box::new(draft), PauseAnswer::Requested))
                }
                Pausing::Hold => {
                    aetheris_fault::sometimes!(PauseOfIdle);
                    draft.push(ids, JobPaused { reason: PauseReason::Operator })?;
                    Ok(Plan::Write(Box::new(draft), PauseAnswer::Now))
                }
                // One unit: nobody finds it on its way.
                Pausing::TakeOver => {
                    draft.push(ids, JobResumed {})?;
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
        self.amend((job, Caller::Operator), Purpose::Pause, Guard::Outside, |loaded, mut draft| {
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

/// What a pause does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pausing {
    /// Nothing is to be done.
    Answer(PauseAnswer),
    /// The job's holder is asked to let it go.
    Ask,
    /// Nobody holds the job: it is paused.
    Hold,
    /// A restore holds it: from now on the operator does, and what resumes restored jobs leaves it alone.
    TakeOver,
}

/// Decides a pause. The reducer does not count pauses and resumes against the bound of events, since a full job must still
/// be freed and ended; so a job that has reached the bound is refused here.
fn pausing(state: &JobState) -> Result<Pausing, OpError> {
    let JobState { id: job, status, .. } = *state;
    let found = match (status, state.end_requested) {
        (JobStatus::Paused, _) => match state.paused.as_ref().map(|paused| paused.reason) {
            Some(PauseReason::Restored) => Pausing::TakeOver,
            Some(PauseReason::Operator) | None => return Ok(Pausing::Answer(PauseAnswer::Already)),
        },
        (JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled, _) => {
            return Err(OpError::JobFinished { job, status });
        }
        (JobStatus::Running, Some(EndCause::Cancel | EndCause::Deadline)) => {
            return Err(OpError::StateConflict(format!("job {job} is already ending and can no longer be paused")));
        }
        (JobStatus::Running, Some(EndCause::Pause)) => return Ok(Pausing::Answer(PauseAnswer::Requested)),
        (JobStatus::Running, None) => Pausing::Ask,
        (JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked, _) => Pausing::Hold,
    };
    if state.seq >= limits::JOB_EVENTS_MAX {
        let bound = limits::JOB_EVENTS_MAX;
        let message = format!("job {job} has {bound} events, the most that are kept; it is not paused any more");
        return Err(OpError::Bound(message));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(status: JobStatus, end_requested: Option<EndCause>, seq: u64) -> JobState {
        JobState { end_requested, seq, status, ..JobState::new(JobId::from_u128(1)) }
    }

    /// A job that is paused and resumed for ever grows to its bound and no further.
    #[test]
    fn a_job_is_paused_up_to_the_bound_of_its_events() {
        let max = limits::JOB_EVENTS_MAX;
        for (status, found) in [
            (JobStatus::Running, Pausing::Ask),
            (JobStatus::Pending, Pausing::Hold),
            (JobStatus::Waiting, Pausing::Hold),
            (JobStatus::Parked, Pausing::Hold),
        ] {
            assert_eq!(pausing(&job(status, None, max - 1)).unwrap(), found);
            for seq in [max, max + 1] {
                let refused = pausing(&job(status, None, seq));
                assert!(matches!(refused, Err(OpError::Bound(_))), "{status:?} at {seq}: {refused:?}");
            }
        }
    }

    #[test]
    fn only_an_operators_pause_is_one_already() {
        let paused = |reason| Some(aetheris_core::state::Paused { parked: false, reason, since: None });
        for (reason, found) in
            [(PauseReason::Operator, Pausing::Answer(PauseAnswer::Already)), (PauseReason::Restored, Pausing::TakeOver)]
        {
            let job = JobState { paused: paused(reason), ..job(JobStatus::Paused, None, 4) };
            assert_eq!(pausing(&job).unwrap(), found);
        }
    }

    /// At the bound as well it is told what the job is doing, where there is nothing to be written.
    #[test]
    fn what_needs_no_event_is_answered_at_any_length() {
        for seq in [1, limits::JOB_EVENTS_MAX] {
            let answer = |status, cause| pausing(&job(status, cause, seq));
            assert_eq!(answer(JobStatus::Paused, None).unwrap(), Pausing::Answer(PauseAnswer::Already));
            let asked = answer(JobStatus::Running, Some(EndCause::Pause)).unwrap();
            assert_eq!(asked, Pausing::Answer(PauseAnswer::Requested));
            for cause in [EndCause::Cancel, EndCause::Deadline] {
                assert!(matches!(answer(JobStatus::Running, Some(cause)), Err(OpError::StateConflict(_))));
            }
            for status in [JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled] {
                assert!(matches!(answer(status, None), Err(OpError::JobFinished { .. })));
            }
        }
    }
}
