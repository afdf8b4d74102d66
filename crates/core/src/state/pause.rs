//! Holding a job still, and letting it go on.
//!
//! A paused job keeps what it was blocked on and its timers: a signal, a timer or the answer to a doubt is recorded as
//! ever, and the job stays paused. What it goes back to is what it is blocked on when it is resumed.

use super::{Illegal, JobState, Paused};
use crate::event::{self, EndCause, PauseReason};
use crate::job::{JobStatus, JobTrigger};

impl JobState {
    pub(super) fn pause_requested(&mut self) -> Result<(), Illegal> {
        if self.status != JobStatus::Running || self.end_requested.is_some() {
            return Err(Illegal::Contradiction("a pause is asked for once, of a running job".to_owned()));
        }
        self.end_requested = Some(EndCause::Pause);
        Ok(())
    }

    pub(super) fn paused(&mut self, e: &event::JobPaused) -> Result<(), Illegal> {
        let allowed = match (self.status == JobStatus::Running, self.end_requested) {
            // Its holder is told before it lets go; in a restored store no job has one.
            (true, None) => e.reason == PauseReason::Restored,
            (false, None) | (true, Some(EndCause::Pause)) => true,
            // Who wants the job to end is not to be forgotten.
            (_, Some(EndCause::Cancel | EndCause::Deadline)) | (false, Some(EndCause::Pause)) => false,
        };
        if !allowed {
            return Err(Illegal::Contradiction("a job that is held pauses when that was asked for".to_owned()));
        }
        let parked = self.status == JobStatus::Parked;
        // Something of it can go on beside what it is blocked on. A job that is blocked on nothing needs no such word.
        let can_go_on = !self.status.is_blocked() && !self.blocks.is_empty();
        self.move_job(JobTrigger::Pause)?;
        self.owner = None;
        self.end_requested = None;
        self.paused = Some(Paused { can_go_on, parked, reason: e.reason, since: None });
        Ok(())
    }

    /// Of several steps that a paused job is blocked on one can go on.
    pub(super) fn note_can_go_on(&mut self) {
        let others = !self.blocks.is_empty();
        if let Some(paused) = &mut self.paused {
            paused.can_go_on |= others;
        }
    }

    pub(super) fn resumed(&mut self) -> Result<(), Illegal> {
        let (can_go_on, parked) = self.paused.take().map_or((false, false), |paused| (paused.can_go_on, paused.parked));
        self.move_job(match (self.blocks.is_empty() || can_go_on, parked) {
            (true, _) => JobTrigger::Resume,
            (false, false) => JobTrigger::ResumeWaiting,
            (false, true) => JobTrigger::ResumeParked,
        })
    }
}
