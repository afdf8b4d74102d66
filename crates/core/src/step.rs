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

    /// The table: what moves a step of this status, and where to.
    const fn moves(self) -> &'static [(StepTrigger, Self)] {
        use StepTrigger as T;
        match self {
            Self::Pending => &[(T::Start, Self::Running), (T::Fail, Self::Failed), (T::Skip, Self::Skipped)],
            Self::Running => &[
                (T::Call, Self::Running),
                (T::Succeed, Self::Completed),
                (T::Fail, Self::Failed),
                (T::ScheduleRetry, Self::Retrying),
                (T::Wait, Self::Waiting),
                (T::Doubt, Self::InDoubt),
                (T::Resolve, Self::Running),
                (T::Judge, Self::Validating),
            ],
            Self::Retrying => &[(T::Start, Self::Running), (T::Fail, Self::Failed), (T::Resolve, Self::Running)],
            Self::Waiting => &[(T::Unblock, Self::Running)],
            Self::InDoubt => &[(T::Fail, Self::Failed), (T::Doubt, Self::InDoubt), (T::Resolve, Self::Running)],
            Self::Validating => &[
                (T::Fail, Self::Failed),
                (T::Approve, Self::Completed),
                (T::Refine, Self::Refining),
                (T::Reject, Self::Rejected),
            ],
            Self::Refining => &[(T::Fail, Self::Failed), (T::Approve, Self::Completed), (T::Refine, Self::Refining)],
            Self::Completed | Self::Failed | Self::Skipped | Self::Rejected => &[],
        }
    }

    /// Where a trigger moves it.
    ///
    /// # Errors
    /// [`IllegalStepMove`] where the table has no such move.
    pub fn next(self, trigger: StepTrigger) -> Result<Self, IllegalStepMove> {
        let found = self.moves().iter().find(|(moved_by, _)| *moved_by == trigger);
        found.map(|(_, to)| *to).ok_or(IllegalStepMove { from: self, trigger })
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
