//! Holding a job still and letting it go on: at once where nobody holds the job, by request where someone does.

use aetheris_core::event::{EndCause, JobPauseRequested, JobResumed, PauseReason};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_store::Purpose;

use super::ends::held;
use super::{Amendment, Decided, Ledger, asked_end};
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
    /// An operator had asked for a pause: it is paused, and the operator's.
    AsAsked,
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
        self.amend((job, Caller::Operator), Purpose::Pause, Guard::Outside, |loaded, draft| {
            self.restored(loaded, draft)
        })
        .await
    }

    /// The pause of a job that no process works on.
    pub(super) fn restored(&self, loaded: &Loaded, draft: Draft) -> Result<Decided<Held>, OpError> {
        match loaded.state.status {
            JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled | JobStatus::Paused => {
                return Ok(Decided::Answer(Held::Already));
            }
            JobStatus::Pending | JobStatus::Running | JobStatus::Waiting | JobStatus::Parked => {}
        }
        if let Some(end) = asked_end(loaded.state.end_requested, &loaded.state, &loaded.ledger) {
            return self.decided(draft, (Some(end), Held::Ended));
        }
        let (reason, answer) = match loaded.state.end_requested {
            Some(EndCause::Pause) if !aetheris_fault::planted!("restore-forgets-pause") => {
                (PauseReason::Operator, Held::AsAsked)
            }
            Some(_) | None => (PauseReason::Restored, Held::Now),
        };
        self.decided(draft, (Some(held(&loaded.state, &loaded.ledger, reason)), answer))
    }

    /// Holds a job still until it is resumed. One commit; where a worker holds the job, the worker writes the pause
    /// when its calls have ended, or whoever reclaims it. One that a restore holds is the operator's from then on.
    ///
    /// # Errors
    /// [`OpError`]: no such job, it has ended or is to end, or no store.
    pub async fn pause(&self, job: JobId) -> Result<PauseAnswer, OpError> {
        self.amend((job, Caller::Operator), Purpose::Pause, Guard::Outside, |loaded, draft| {
            self.decided(draft, pausing(&loaded.state, &loaded.ledger)?)
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
            let Some(resumed) = resuming(&loaded.state)? else {
                return Ok(Decided::Answer(ResumeAnswer::Already(loaded.state.status)));
            };
            resumed.add_to(&mut draft, ids)?;
            let status = draft.state().status;
            Ok(Decided::Write(Box::new(draft), ResumeAnswer::Now(status)))
        })
        .await
    }
}

/// What a resume adds to a job, if it is paused.
///
/// # Errors
/// The job has ended, or its worker has not let it go yet.
pub fn resuming(state: &JobState) -> Result<Option<Amendment>, OpError> {
    let JobState { id: job, status, .. } = *state;
    match (status, state.end_requested) {
        (JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled, _) => {
            Err(OpError::JobFinished { job, status })
        }
        // Its bodies are ending: the run cannot take that back.
        (JobStatus::Running, Some(EndCause::Pause)) => Err(OpError::StateConflict(format!(
            "job {job} is about to be paused: its worker has not let it go yet; resume it when it is paused"
        ))),
        (JobStatus::Pending | JobStatus::Running | JobStatus::Waiting | JobStatus::Parked, _) => Ok(None),
        (JobStatus::Paused, _) => {
            aetheris_fault::sometimes!(Resumed);
            Ok(Some(Amendment::of([JobResumed {}.into()])))
        }
    }
}

/// What a pause adds to a job, if anything, and its answer. The reducer does not count pauses and resumes against the bound
/// of events, since a full job must still be freed and ended; so a job that has reached the bound is refused here.
///
/// # Errors
/// The job has ended or is to end, or it has reached the bound.
pub fn pausing(state: &JobState, ledger: &Ledger) -> Result<(Option<Amendment>, PauseAnswer), OpError> {
    let JobState { id: job, status, .. } = *state;
    let held = || held(state, ledger, PauseReason::Operator);
    let (amendment, answer) = match (status, state.end_requested) {
        (JobStatus::Paused, _) => match state.paused.as_ref().map(|paused| paused.reason) {
            // A restore holds it: from now on the operator does, and what resumes restored jobs leaves it alone. One unit:
            // nobody finds it on its way.
            Some(PauseReason::Restored) => (Amendment::of([JobResumed {}.into()]).then(held()), PauseAnswer::Now),
            Some(PauseReason::Operator) | None => return Ok((None, PauseAnswer::Already)),
        },
        (JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled, _) => {
            return Err(OpError::JobFinished { job, status });
        }
        (JobStatus::Running, Some(EndCause::Cancel | EndCause::Deadline)) => {
            return Err(OpError::StateConflict(format!("job {job} is already ending and can no longer be paused")));
        }
        (JobStatus::Running, Some(EndCause::Pause)) => return Ok((None, PauseAnswer::Requested)),
        (JobStatus::Running, None) => (Amendment::of([JobPauseRequested {}.into()]), PauseAnswer::Requested),
        (JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked, _) => (held(), PauseAnswer::Now),
    };
    if state.seq >= limits::JOB_EVENTS_MAX {
        let bound = limits::JOB_EVENTS_MAX;
        let message = format!("job {job} has {bound} events, the most that are kept; it is not paused any more");
        return Err(OpError::Bound(message));
    }
    aetheris_fault::sometimes!(PauseOfHeld, status == JobStatus::Running);
    aetheris_fault::sometimes!(
        PauseOfIdle,
        matches!(status, JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked)
    );
    if status == JobStatus::Running && aetheris_fault::planted!("pause-lost") {
        return Ok((None, answer));
    }
    Ok((Some(amendment), answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(status: JobStatus, end_requested: Option<EndCause>, seq: u64) -> JobState {
        JobState { end_requested, seq, status, ..JobState::new(JobId::from_u128(1)) }
    }

    /// The kinds of the events that a pause adds, and its answer.
    fn found(state: &JobState) -> (Vec<&'static str>, PauseAnswer) {
        let (amendment, answer) = pausing(state, &Ledger::new()).unwrap();
        let facts = amendment.map_or_else(Vec::new, |amendment| amendment.facts);
        (facts.iter().map(|fact| fact.event.kind().as_str()).collect(), answer)
    }

    /// A job that is paused and resumed for ever grows to its bound and no further.
    #[test]
    fn a_job_is_paused_up_to_the_bound_of_its_events() {
        let max = limits::JOB_EVENTS_MAX;
        for (status, kinds, answer) in [
            (JobStatus::Running, ["job_pause_requested"], PauseAnswer::Requested),
            (JobStatus::Pending, ["job_paused"], PauseAnswer::Now),
            (JobStatus::Waiting, ["job_paused"], PauseAnswer::Now),
            (JobStatus::Parked, ["job_paused"], PauseAnswer::Now),
        ] {
            assert_eq!(found(&job(status, None, max - 1)), (kinds.to_vec(), answer));
            for seq in [max, max + 1] {
                let refused = pausing(&job(status, None, seq), &Ledger::new());
                assert!(matches!(refused, Err(OpError::Bound(_))), "{status:?} at {seq}: {refused:?}");
            }
        }
    }

    #[test]
    fn only_an_operators_pause_is_one_already() {
        let paused =
            |reason| Some(aetheris_core::state::Paused { can_go_on: false, parked: false, reason, since: None });
        let taken_over = (vec!["job_resumed", "job_paused"], PauseAnswer::Now);
        for (reason, told) in
            [(PauseReason::Operator, (Vec::new(), PauseAnswer::Already)), (PauseReason::Restored, taken_over)]
        {
            let job = JobState { paused: paused(reason), ..job(JobStatus::Paused, None, 4) };
            assert_eq!(found(&job), told);
        }
    }

    /// At the bound as well it is told what the job is doing, where there is nothing to be written.
    #[test]
    fn what_needs_no_event_is_answered_at_any_length() {
        for seq in [1, limits::JOB_EVENTS_MAX] {
            let answer = |status, cause| pausing(&job(status, cause, seq), &Ledger::new());
            assert_eq!(found(&job(JobStatus::Paused, None, seq)), (Vec::new(), PauseAnswer::Already));
            let asked = job(JobStatus::Running, Some(EndCause::Pause), seq);
            assert_eq!(found(&asked), (Vec::new(), PauseAnswer::Requested));
            for cause in [EndCause::Cancel, EndCause::Deadline] {
                assert!(matches!(answer(JobStatus::Running, Some(cause)), Err(OpError::StateConflict(_))));
            }
            for status in [JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled] {
                assert!(matches!(answer(status, None), Err(OpError::JobFinished { .. })));
            }
        }
    }
}
