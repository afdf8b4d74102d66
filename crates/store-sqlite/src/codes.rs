//! The numbers that stand for enums in rows. None is ever given to another meaning.

use aetheris_core::event::{EndCause, PauseReason};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::plan::{EffectClass, OnParentEnd, WaitType};

/// How many job statuses there are.
pub(crate) const STATUSES: usize = JobStatus::ALL.len();

/// An enum with a number per value.
pub(crate) trait Code: Copy + PartialEq + Sized + 'static {
    /// Every value with its number.
    const TABLE: &'static [(Self, i64)];
    /// What it is, for messages.
    const WHAT: &'static str;

    /// Its number.
    fn code(self) -> i64 {
        Self::TABLE.iter().find(|(value, _)| *value == self).map_or(-1, |(_, code)| *code)
    }

    /// The value of a number.
    fn of(code: i64) -> Option<Self> {
        Self::TABLE.iter().find(|(_, number)| *number == code).map(|(value, _)| *value)
    }
}

impl Code for JobStatus {
    const TABLE: &'static [(Self, i64)] = &[
        (Self::Pending, 0),
        (Self::Running, 1),
        (Self::Waiting, 2),
        (Self::Parked, 3),
        (Self::Completed, 4),
        (Self::Failed, 5),
        (Self::Cancelled, 6),
        (Self::Paused, 7),
    ];
    const WHAT: &'static str = "job status";
}

impl Code for LedgerStatus {
    const TABLE: &'static [(Self, i64)] = &[
        (Self::Started, 0),
        (Self::Committed, 1),
        (Self::RefusedRetryable, 2),
        (Self::RefusedPermanent, 3),
        (Self::NotSent, 4),
        (Self::InDoubt, 5),
        (Self::FailedUnresolved, 6),
    ];
    const WHAT: &'static str = "ledger status";
}

impl Code for EffectClass {
    const TABLE: &'static [(Self, i64)] = &[(Self::Pure, 0), (Self::Idempotent, 1), (Self::AtMostOnce, 2)];
    const WHAT: &'static str = "effect class";
}

impl Code for WaitType {
    const TABLE: &'static [(Self, i64)] =
        &[(Self::Human, 0), (Self::Signal, 1), (Self::Timer, 2), (Self::Webhook, 3), (Self::Child, 4)];
    const WHAT: &'static str = "wait type";
}

impl Code for OnParentEnd {
    const TABLE: &'static [(Self, i64)] = &[(Self::Cancel, 0), (Self::Leave, 1)];
    const WHAT: &'static str = "end with a parent";
}

impl Code for EndCause {
    const TABLE: &'static [(Self, i64)] = &[(Self::Cancel, 1), (Self::Deadline, 2), (Self::Pause, 3)];
    const WHAT: &'static str = "end cause";
}

impl Code for PauseReason {
    const TABLE: &'static [(Self, i64)] = &[(Self::Operator, 0), (Self::Restored, 1)];
    const WHAT: &'static str = "reason of a pause";
}

/// A count or place as SQLite keeps it.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A length as SQLite takes it.
pub(crate) fn count(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete<T: Code + std::fmt::Debug>(all: &[T]) {
        assert_eq!(all.len(), T::TABLE.len());
        for value in all {
            assert_eq!(T::of(value.code()), Some(*value));
        }
    }

    #[test]
    fn every_value_has_its_number_and_every_number_its_value() {
        complete(&JobStatus::ALL);
        complete(&LedgerStatus::ALL);
        complete(&[EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce]);
        complete(&[WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook, WaitType::Child]);
        complete(&[OnParentEnd::Cancel, OnParentEnd::Leave]);
        complete(&[EndCause::Cancel, EndCause::Deadline, EndCause::Pause]);
        complete(&PauseReason::ALL);
        assert_eq!(JobStatus::of(8), None);
    }
}
