//! The one job transition table (SPEC §3), as a total function.

use serde::{Deserialize, Serialize};

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// Can be claimed, now or from a moment on.
    Pending,
    /// Owned by a worker under a lease.
    Running,
    /// Blocked for a short while; no lease, no slot.
    Waiting,
    /// Blocked for long; no lease, no slot.
    Parked,
    /// Ended with an answer.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended because someone asked for it.
    Cancelled,
    /// Held still until someone resumes it; no lease, no slot. A wait or timer of it goes on.
    Paused,
}

/// What moves a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobTrigger {
    /// A worker takes ownership.
    Claim,
    /// The holder, or whoever reclaims, gives it back.
    Requeue,
    /// It blocks for a short while.
    Wait,
    /// It blocks for long.
    Park,
    /// What it was blocked on is over.
    Unblock,
    /// It has its answer.
    Complete,
    /// It has failed.
    Fail,
    /// It is cancelled.
    Cancel,
    /// It is held still.
    Pause,
    /// It goes on, and can be claimed.
    Resume,
    /// It goes on waiting for a short while.
    ResumeWaiting,
    /// It goes on waiting for long.
    ResumeParked,
}

/// A move that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {} job does not allow {trigger:?}", from.as_str())]
pub struct IllegalJobMove {
    /// Where the job was.
    pub from: JobStatus,
    /// What was asked.
    pub trigger: JobTrigger,
}

impl JobStatus {
    /// Every status, in the order of their numbers in stores.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Waiting,
        Self::Parked,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Paused,
    ];

    /// Every status of a job that has not ended.
    pub const OPEN: [Self; 5] = [Self::Pending, Self::Running, Self::Waiting, Self::Parked, Self::Paused];

    /// Its name in the API, in files and on screens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Parked => "parked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Paused => "paused",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether nothing moves it any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Waiting | Self::Parked | Self::Paused => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }

    /// Whether it waits for something outside and holds neither lease nor slot. A paused job may have an open wait
    /// too, but the end of it does not set the job going.
    #[must_use]
    pub const fn is_blocked(self) -> bool {
        match self {
            Self::Waiting | Self::Parked => true,
            Self::Pending | Self::Running | Self::Completed | Self::Failed | Self::Cancelled | Self::Paused => false,
        }
    }

    /// The table.
    ///
    /// # Errors
    /// [`IllegalJobMove`] where the table has no such move.
    pub const fn next(self, trigger: JobTrigger) -> Result<Self, IllegalJobMove> {
        use JobTrigger as T;
        match (self, trigger) {
            (Self::Pending, T::Claim) => Ok(Self::Running),
            // Of several steps one waits for its next try, or one of several waits is over.
            (Self::Running | Self::Waiting | Self::Parked, T::Requeue)
            | (Self::Pending | Self::Waiting | Self::Parked, T::Unblock)
            | (Self::Paused, T::Resume) => Ok(Self::Pending),
            // A job that blocks on several steps parks only if it would for each of them.
            (Self::Running | Self::Waiting | Self::Parked, T::Wait)
            | (Self::Waiting, T::Park)
            | (Self::Paused, T::ResumeWaiting) => Ok(Self::Waiting),
            (Self::Running | Self::Parked, T::Park) | (Self::Paused, T::ResumeParked) => Ok(Self::Parked),
            (Self::Running, T::Unblock) => Ok(Self::Running),
            (Self::Running, T::Complete) => Ok(Self::Completed),
            // The end of a wait is recorded; the job stays where it is.
            (Self::Paused, T::Unblock) | (Self::Pending | Self::Running | Self::Waiting | Self::Parked, T::Pause) => {
                Ok(Self::Paused)
            }
            (Self::Pending | Self::Running | Self::Waiting | Self::Parked | Self::Paused, T::Fail) => Ok(Self::Failed),
            (Self::Pending | Self::Running | Self::Waiting | Self::Parked | Self::Paused, T::Cancel) => {
                Ok(Self::Cancelled)
            }
            (Self::Pending, T::Requeue | T::Wait | T::Park | T::Complete)
            | (Self::Running, T::Claim)
            | (Self::Waiting | Self::Parked, T::Claim | T::Complete)
            | (Self::Paused, T::Claim | T::Requeue | T::Wait | T::Park | T::Complete | T::Pause)
            | (
                Self::Pending | Self::Running | Self::Waiting | Self::Parked,
                T::Resume | T::ResumeWaiting | T::ResumeParked,
            )
            | (
                Self::Completed | Self::Failed | Self::Cancelled,
                T::Claim
                | T::Requeue
                | T::Wait
                | T::Park
                | T::Unblock
                | T::Complete
                | T::Fail
                | T::Cancel
                | T::Pause
                | T::Resume
                | T::ResumeWaiting
                | T::ResumeParked,
            ) => Err(IllegalJobMove { from: self, trigger }),
        }
    }
}

impl JobTrigger {
    /// Every trigger, in the order of the table.
    pub const ALL: [Self; 12] = [
        Self::Claim,
        Self::Requeue,
        Self::Wait,
        Self::Park,
        Self::Unblock,
        Self::Complete,
        Self::Fail,
        Self::Cancel,
        Self::Pause,
        Self::Resume,
        Self::ResumeWaiting,
        Self::ResumeParked,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_grid_is_as_the_specification_lists_it() {
        use JobStatus as S;
        use JobTrigger as T;
        let legal = [
            (S::Pending, T::Claim, S::Running),
            (S::Pending, T::Unblock, S::Pending),
            (S::Pending, T::Fail, S::Failed),
            (S::Pending, T::Cancel, S::Cancelled),
            (S::Pending, T::Pause, S::Paused),
            (S::Running, T::Requeue, S::Pending),
            (S::Running, T::Wait, S::Waiting),
            (S::Running, T::Park, S::Parked),
            (S::Running, T::Unblock, S::Running),
            (S::Running, T::Complete, S::Completed),
            (S::Running, T::Fail, S::Failed),
            (S::Running, T::Cancel, S::Cancelled),
            (S::Running, T::Pause, S::Paused),
            (S::Waiting, T::Requeue, S::Pending),
            (S::Waiting, T::Wait, S::Waiting),
            (S::Waiting, T::Park, S::Waiting),
            (S::Waiting, T::Unblock, S::Pending),
            (S::Waiting, T::Fail, S::Failed),
            (S::Waiting, T::Cancel, S::Cancelled),
            (S::Waiting, T::Pause, S::Paused),
            (S::Parked, T::Requeue, S::Pending),
            (S::Parked, T::Wait, S::Waiting),
            (S::Parked, T::Park, S::Parked),
            (S::Parked, T::Unblock, S::Pending),
            (S::Parked, T::Fail, S::Failed),
            (S::Parked, T::Cancel, S::Cancelled),
            (S::Parked, T::Pause, S::Paused),
            (S::Paused, T::Unblock, S::Paused),
            (S::Paused, T::Fail, S::Failed),
            (S::Paused, T::Cancel, S::Cancelled),
            (S::Paused, T::Resume, S::Pending),
            (S::Paused, T::ResumeWaiting, S::Waiting),
            (S::Paused, T::ResumeParked, S::Parked),
        ];
        let mut found = Vec::new();
        for from in S::ALL {
            for trigger in T::ALL {
                if let Ok(to) = from.next(trigger) {
                    found.push((from, trigger, to));
                }
            }
        }
        assert_eq!(found, legal);
    }

    #[test]
    fn every_status_has_a_name_and_is_open_blocked_or_terminal() {
        for status in JobStatus::ALL {
            assert_eq!(JobStatus::parse(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert_eq!(JobStatus::parse("Running"), None);
        let of = |is: fn(JobStatus) -> bool| JobStatus::ALL.into_iter().filter(|s| is(*s)).collect::<Vec<_>>();
        assert_eq!(of(JobStatus::is_terminal), [JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled]);
        assert_eq!(of(|status| !status.is_terminal()), JobStatus::OPEN);
        assert_eq!(of(JobStatus::is_blocked), [JobStatus::Waiting, JobStatus::Parked]);
    }
}
