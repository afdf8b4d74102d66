//! The one step transition table, as a total function.

use serde::{Deserialize, Serialize};

/// What a step (one node being executed in one job) is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Not started.
    Pending,
    /// Started; its body may run.
    Running,
    /// Failed, to be tried again at a recorded moment.
    Retrying,
    /// Blocked on a signal or on time.
    Waiting,
    /// Its call started and the outcome is unknown.
    InDoubt,
    /// It has an output, which is being judged, or was rejected and what follows is not recorded yet.
    Validating,
    /// Its output was rejected, and another round of it is under way or to begin.
    Refining,
    /// Ended with an output.
    Completed,
    /// Ended with an error.
    Failed,
    /// Never run, because its condition did not hold or all it needs were skipped.
    Skipped,
    /// A further round whose output was rejected and that another has followed. The first round is [`Self::Refining`] then, and
    /// the last one [`Self::Failed`].
    Rejected,
}

/// What moves a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepTrigger {
    /// A try begins.
    Start,
    /// A permission to call is taken within the try: its first, or a further one after proof that the
    /// earlier call has not happened, or because the tool is idempotent.
    Call,
    /// It ended with an output.
    Succeed,
    /// It ended with an error: in a try, or instead of one that was not allowed to begin.
    Fail,
    /// It failed and is to be tried again.
    ScheduleRetry,
    /// It blocks.
    Wait,
    /// What it was blocked on is over.
    Unblock,
    /// Its outcome is unknown, or still unknown at the next policy.
    Doubt,
    /// The doubt has an answer; or an answer that ended a try is taken back by the call's own late success.
    Resolve,
    /// It is not run.
    Skip,
    /// It has an output, which is to be judged.
    Judge,
    /// Its output was taken, or that of a round of it.
    Approve,
    /// Its output was rejected, or that of a round of it: another follows.
    Refine,
    /// Its output was rejected, and it is one round of a step.
    Reject,
}

/// A move that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {} step does not allow {trigger:?}", from.as_str())]
pub struct IllegalStepMove {
    /// Where the step was.
    pub from: StepStatus,
    /// What was asked.
    pub trigger: StepTrigger,
}

impl StepStatus {
    /// Every status, in the order of the table.
    pub const ALL: [Self; 11] = [
        Self::Pending,
        Self::Running,
        Self::Retrying,
        Self::Waiting,
        Self::InDoubt,
        Self::Validating,
        Self::Refining,
        Self::Completed,
        Self::Failed,
        Self::Skipped,
        Self::Rejected,
    ];

    /// Its name in the API and on screens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Waiting => "waiting",
            Self::InDoubt => "in_doubt",
            Self::Validating => "validating",
            Self::Refining => "refining",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Rejected => "rejected",
        }
    }

    /// Whether nothing moves it any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending
            | Self::Running
            | Self::Retrying
            | Self::Waiting
            | Self::InDoubt
            | Self::Validating
            | Self::Refining => false,
            Self::Completed | Self::Failed | Self::Skipped | Self::Rejected => true,
        }
    }

    /// The table.
    ///
    /// # Errors
    /// [`IllegalStepMove`] where the table has no such move.
    pub const fn next(self, trigger: StepTrigger) -> Result<Self, IllegalStepMove> {
        use StepTrigger as T;
        match (self, trigger) {
            (Self::Pending | Self::Retrying, T::Start)
            | (Self::Running, T::Call)
            | (Self::Waiting, T::Unblock)
            | (Self::InDoubt | Self::Running | Self::Retrying, T::Resolve) => Ok(Self::Running),
            (Self::Running, T::Succeed) | (Self::Validating | Self::Refining, T::Approve) => Ok(Self::Completed),
            (
                Self::Pending | Self::Running | Self::Retrying | Self::InDoubt | Self::Validating | Self::Refining,
                T::Fail,
            ) => Ok(Self::Failed),
            (Self::Running, T::ScheduleRetry) => Ok(Self::Retrying),
            (Self::Running, T::Wait) => Ok(Self::Waiting),
            (Self::Running, T::Judge) => Ok(Self::Validating),
            (Self::Validating | Self::Refining, T::Refine) => Ok(Self::Refining),
            (Self::Validating, T::Reject) => Ok(Self::Rejected),
            (Self::Running | Self::InDoubt, T::Doubt) => Ok(Self::InDoubt),
            (Self::Pending, T::Skip) => Ok(Self::Skipped),
            (
                Self::Pending,
                T::Call
                | T::Succeed
                | T::ScheduleRetry
                | T::Wait
                | T::Unblock
                | T::Doubt
                | T::Resolve
                | T::Judge
                | T::Approve
                | T::Refine
                | T::Reject,
            )
            | (Self::Running, T::Start | T::Unblock | T::Skip | T::Approve | T::Refine | T::Reject)
            | (
                Self::Retrying,
                T::Call
                | T::Succeed
                | T::ScheduleRetry
                | T::Wait
                | T::Unblock
                | T::Doubt
                | T::Skip
                | T::Judge
                | T::Approve
                | T::Refine
                | T::Reject,
            )
            | (
                Self::Waiting,
                T::Start
                | T::Call
                | T::Succeed
                | T::Fail
                | T::ScheduleRetry
                | T::Wait
                | T::Doubt
                | T::Resolve
                | T::Skip
                | T::Judge
                | T::Approve
                | T::Refine
                | T::Reject,
            )
            | (
                Self::InDoubt,
                T::Start
                | T::Call
                | T::Succeed
                | T::ScheduleRetry
                | T::Wait
                | T::Unblock
                | T::Skip
                | T::Judge
                | T::Approve
                | T::Refine
                | T::Reject,
            )
            | (
                Self::Validating | Self::Refining,
                T::Start
                | T::Call
                | T::Succeed
                | T::ScheduleRetry
                | T::Wait
                | T::Unblock
                | T::Doubt
                | T::Resolve
                | T::Skip
                | T::Judge,
            )
            | (Self::Refining, T::Reject)
            | (
                Self::Completed | Self::Failed | Self::Skipped | Self::Rejected,
                T::Start
                | T::Call
                | T::Succeed
                | T::Fail
                | T::ScheduleRetry
                | T::Wait
                | T::Unblock
                | T::Doubt
                | T::Resolve
                | T::Skip
                | T::Judge
                | T::Approve
                | T::Refine
                | T::Reject,
            ) => Err(IllegalStepMove { from: self, trigger }),
        }
    }
}

impl StepTrigger {
    /// Every trigger, in the order of the table.
    pub const ALL: [Self; 14] = [
        Self::Start,
        Self::Call,
        Self::Succeed,
        Self::Fail,
        Self::ScheduleRetry,
        Self::Wait,
        Self::Unblock,
        Self::Doubt,
        Self::Resolve,
        Self::Skip,
        Self::Judge,
        Self::Approve,
        Self::Refine,
        Self::Reject,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_grid() {
        use StepStatus as S;
        use StepTrigger as T;
        let legal = [
            (S::Pending, T::Start, S::Running),
            (S::Pending, T::Fail, S::Failed),
            (S::Pending, T::Skip, S::Skipped),
            (S::Running, T::Call, S::Running),
            (S::Running, T::Succeed, S::Completed),
            (S::Running, T::Fail, S::Failed),
            (S::Running, T::ScheduleRetry, S::Retrying),
            (S::Running, T::Wait, S::Waiting),
            (S::Running, T::Doubt, S::InDoubt),
            (S::Running, T::Resolve, S::Running),
            (S::Running, T::Judge, S::Validating),
            (S::Retrying, T::Start, S::Running),
            (S::Retrying, T::Fail, S::Failed),
            (S::Retrying, T::Resolve, S::Running),
            (S::Waiting, T::Unblock, S::Running),
            (S::InDoubt, T::Fail, S::Failed),
            (S::InDoubt, T::Doubt, S::InDoubt),
            (S::InDoubt, T::Resolve, S::Running),
            (S::Validating, T::Fail, S::Failed),
            (S::Validating, T::Approve, S::Completed),
            (S::Validating, T::Refine, S::Refining),
            (S::Validating, T::Reject, S::Rejected),
            (S::Refining, T::Fail, S::Failed),
            (S::Refining, T::Approve, S::Completed),
            (S::Refining, T::Refine, S::Refining),
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
    fn every_status_has_a_name_and_four_are_ends() {
        for status in StepStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        let ends: Vec<StepStatus> = StepStatus::ALL.into_iter().filter(|status| status.is_terminal()).collect();
        assert_eq!(ends, [StepStatus::Completed, StepStatus::Failed, StepStatus::Skipped, StepStatus::Rejected]);
    }
}
