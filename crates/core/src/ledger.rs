//! The ledger of tool invocations: who may execute, decided by one row per idempotency key.
//!
//! A permission is one guarded change of that row (SPEC §5, commit A). Backends repeat the guard in
//! their statement; the decision itself is here, once.

use serde::{Deserialize, Serialize};

use crate::hash::Hash;
use crate::id::{IdempotencyKey, JobId, PermitId, ToolName};
use crate::lease::Fence;
use crate::path::StepPath;
use crate::plan::EffectClass;
use crate::time::{BootMoment, Reading, Span, Timestamp};

/// What the ledger knows of an invocation's current permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerStatus {
    /// Permitted; the call may have left.
    Started,
    /// Its effect is recorded.
    Committed,
    /// Refused by the other side before it acted; another permit may follow.
    RefusedRetryable,
    /// Refused by the other side for good.
    RefusedPermanent,
    /// Proved not to have left.
    NotSent,
    /// The outcome is unknown.
    InDoubt,
    /// The outcome stayed unknown and the step was given up.
    FailedUnresolved,
}

/// What settles the current permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerTrigger {
    /// The effect is recorded.
    Commit,
    /// The other side refused, and may accept later.
    RefuseRetryable,
    /// The other side refused for good.
    RefusePermanent,
    /// Nothing left.
    NotSent,
    /// The outcome is unknown.
    Doubt,
    /// It is proved that the call has not happened and can no longer arrive.
    Disprove,
    /// Given up.
    GiveUp,
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// The deadline on the boot clock that the permit was given by. None in rows of builds that did not keep it.
    pub boot: Option<BootMoment>,
    /// What repeating the call would do.
    pub class: EffectClass,
    /// After this, by the store's clock, the permit's call can no longer arrive.
    pub deadline: Timestamp,
    /// Whether a doubt about the current permit was answered by "did not happen".
    pub disproved: bool,
    /// The fence the permit was given under.
    pub fence: Fence,
    /// Hash of the canonical arguments: they never change for one key.
    pub input_hash: Hash,
    /// The job.
    pub job: JobId,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// How long the permit's call can arrive. None in rows of builds that did not keep it.
    pub lifetime: Option<Span>,
    /// The step.
    pub node: StepPath,
    /// The number of the current permit: 1, 2, …
    pub permit: u32,
    /// Its author's name for it.
    pub permit_id: PermitId,
    /// When another boot clock first read the permit: from then on it has to run the whole lifetime before it can
    /// say that the call can no longer arrive.
    pub seen: Option<BootMoment>,
    /// What is known.
    pub status: LedgerStatus,
    /// The tool.
    pub tool: ToolName,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A permit as it travels: the number of the store's life, and of the permit within its key. Compared as a pair,
/// so that a permit of before a restore is older than any after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PermitNumber {
    /// The generation that it was given in.
    pub generation: u32,
    /// 1, 2, …
    pub number: u32,
}

impl std::fmt::Display for PermitNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.generation, self.number)
    }
}

/// A request for permission to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitRequest {
    /// What repeating the call would do.
    pub class: EffectClass,
    /// Hash of the canonical arguments.
    pub input_hash: Hash,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// How long after the write the call may still arrive.
    pub lifetime: Span,
    /// The step.
    pub node: StepPath,
    /// The number asked for.
    pub permit: u32,
    /// The author's name for it.
    pub permit_id: PermitId,
    /// The tool.
    pub tool: ToolName,
}

/// A change of the current permit's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settle {
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// The permit it speaks of.
    pub permit_id: PermitId,
    /// What is known now.
    pub trigger: LedgerTrigger,
}

/// Why the ledger refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LedgerRefusal {
    /// There is no row of that key.
    #[error("the ledger has no invocation {0}")]
    Missing(IdempotencyKey),
    /// Another permit is the current one.
    #[error("permit {asked} of invocation {key} is refused: the ledger is at permit {current} ({status:?})")]
    OtherPermit {
        /// The invocation.
        key: IdempotencyKey,
        /// The permit that was asked for or spoken of; 0 where only its id is known.
        asked: u32,
        /// The current one.
        current: u32,
        /// Its status.
        status: LedgerStatus,
    },
    /// A call of the key is known to have succeeded, and not under the current permit.
    #[error("an earlier call of invocation {0} is known to have succeeded; nothing is called again")]
    Succeeded(IdempotencyKey),
    /// The same key came with other arguments.
    #[error("invocation {0} was started with other arguments; the same key never stands for another call")]
    ArgumentsDiffer(IdempotencyKey),
    /// The table has no such change.
    #[error("invocation {key} is {status:?}, which does not allow {trigger:?}")]
    Illegal {
        /// The invocation.
        key: IdempotencyKey,
        /// Its status.
        status: LedgerStatus,
        /// What was asked.
        trigger: LedgerTrigger,
    },
    /// "Did not happen" is accepted only when the call can no longer arrive.
    #[error(
        "the call of invocation {key} can still arrive; that it has not happened is accepted from {accepted_from} on"
    )]
    CanStillArrive {
        /// The invocation.
        key: IdempotencyKey,
        /// From when on it is accepted, by the store's clock.
        accepted_from: Timestamp,
    },
}

impl LedgerStatus {
    /// Every status, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Started,
        Self::Committed,
        Self::RefusedRetryable,
        Self::RefusedPermanent,
        Self::NotSent,
        Self::InDoubt,
        Self::FailedUnresolved,
    ];

    /// Its name in the API and on screens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Committed => "committed",
            Self::RefusedRetryable => "refused_retryable",
            Self::RefusedPermanent => "refused_permanent",
            Self::NotSent => "not_sent",
            Self::InDoubt => "in_doubt",
            Self::FailedUnresolved => "failed_unresolved",
        }
    }

    /// Whether a further permit may be given for the same key (SPEC §5, commit A).
    #[must_use]
    pub const fn allows_next_permit(self, class: EffectClass, disproved: bool) -> bool {
        match (self, class) {
            (Self::RefusedRetryable | Self::NotSent, _) | (Self::Started | Self::InDoubt, EffectClass::Idempotent) => {
                true
            }
            (Self::InDoubt, EffectClass::AtMostOnce) => disproved,
            (Self::Started, EffectClass::AtMostOnce)
            | (Self::Started | Self::InDoubt, EffectClass::Pure)
            | (Self::Committed | Self::RefusedPermanent | Self::FailedUnresolved, _) => false,
        }
    }

    /// The table of settlements. `None` where it has no such change.
    #[must_use]
    pub const fn next(self, trigger: LedgerTrigger) -> Option<Self> {
        use LedgerTrigger as T;
        match (self, trigger) {
            (Self::Started | Self::InDoubt, T::Commit) => Some(Self::Committed),
            (Self::Started, T::RefuseRetryable) => Some(Self::RefusedRetryable),
            (Self::Started, T::RefusePermanent) => Some(Self::RefusedPermanent),
            (Self::Started, T::NotSent) => Some(Self::NotSent),
            (Self::Started, T::Doubt) | (Self::InDoubt, T::Disprove) => Some(Self::InDoubt),
            (Self::InDoubt, T::GiveUp) => Some(Self::FailedUnresolved),
            (Self::Started, T::Disprove | T::GiveUp)
            | (Self::InDoubt, T::RefuseRetryable | T::RefusePermanent | T::NotSent | T::Doubt)
            | (
                Self::Committed
                | Self::RefusedRetryable
                | Self::RefusedPermanent
                | Self::NotSent
                | Self::FailedUnresolved,
                T::Commit | T::RefuseRetryable | T::RefusePermanent | T::NotSent | T::Doubt | T::Disprove | T::GiveUp,
            ) => None,
        }
    }
}

impl LedgerTrigger {
    /// Every trigger, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Commit,
        Self::RefuseRetryable,
        Self::RefusePermanent,
        Self::NotSent,
        Self::Doubt,
        Self::Disprove,
        Self::GiveUp,
    ];
}

/// Decides a permission: the row to write, if it is given.
///
/// # Errors
/// [`LedgerRefusal`]; nothing is to be written then, and nothing may be called.
pub fn grant(
    job: JobId,
    fence: Fence,
    existing: Option<&LedgerRow>,
    request: &PermitRequest,
    now: Reading,
) -> Result<LedgerRow, LedgerRefusal> {
    if let Some(row) = existing {
        let expected = row.permit.checked_add(1) == Some(request.permit);
        if row.input_hash != request.input_hash {
            return Err(LedgerRefusal::ArgumentsDiffer(request.key));
        }
        if !expected || row.job != job || !row.status.allows_next_permit(row.class, row.disproved) {
            return Err(LedgerRefusal::OtherPermit {
                key: request.key,
                asked: request.permit,
                current: row.permit,
                status: row.status,
            });
        }
    } else if request.permit != 1 {
        return Err(LedgerRefusal::Missing(request.key));
    }
    let boot = BootMoment { at: now.boot.at.plus(request.lifetime), ..now.boot };
    Ok(LedgerRow {
        boot: Some(boot),
        class: existing.map_or(request.class, |row| row.class),
        deadline: now.at.after(request.lifetime),
        disproved: false,
        fence,
        input_hash: request.input_hash,
        job,
        key: request.key,
        lifetime: Some(request.lifetime),
        node: request.node.clone(),
        permit: request.permit,
        permit_id: request.permit_id,
        seen: None,
        status: LedgerStatus::Started,
        tool: request.tool.clone(),
        updated_at: now.at,
    })
}

/// Decides a settlement: the row to write, if it is accepted. A success is taken after "did not happen" too, as long
/// as no further permit was given; that answer itself is not a settlement ([`crate::disproof`]).
///
/// # Errors
/// [`LedgerRefusal`]; nothing is to be written then.
pub fn settle(existing: Option<&LedgerRow>, change: &Settle, now: Timestamp) -> Result<LedgerRow, LedgerRefusal> {
    let row = existing.ok_or(LedgerRefusal::Missing(change.key))?;
    if row.permit_id != change.permit_id {
        return Err(LedgerRefusal::OtherPermit { key: change.key, asked: 0, current: row.permit, status: row.status });
    }
    let allowed = match change.trigger {
        LedgerTrigger::Commit => true,
        LedgerTrigger::Disprove => false,
        LedgerTrigger::RefuseRetryable
        | LedgerTrigger::RefusePermanent
        | LedgerTrigger::NotSent
        | LedgerTrigger::Doubt
        | LedgerTrigger::GiveUp => !row.disproved,
    };
    let status = row.status.next(change.trigger).filter(|_| allowed).ok_or(LedgerRefusal::Illegal {
        key: change.key,
        status: row.status,
        trigger: change.trigger,
    })?;
    Ok(LedgerRow { disproved: false, status, updated_at: now, ..row.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disproof::{Disproof, Grounds, disprove};
    use crate::id::BootId;

    fn request(permit: u32, class: EffectClass) -> PermitRequest {
        PermitRequest {
            class,
            input_hash: Hash::of(b"input"),
            key: IdempotencyKey::from_u128(1),
            lifetime: Span::from_micros(100),
            node: StepPath::from("a"),
            permit,
            permit_id: PermitId::from_u128(u128::from(permit)),
            tool: ToolName::from("t"),
        }
    }

    fn granted(class: EffectClass) -> LedgerRow {
        grant(JobId::from_u128(1), Fence::default(), None, &request(1, class), at(0)).unwrap()
    }

    /// Both clocks began together.
    fn at(micros: u32) -> Reading {
        let boot = BootMoment { at: Span::from_micros(micros.into()), of: BootId::from_u128(1) };
        Reading { at: Timestamp::from_micros(micros.into()), boot }
    }

    fn next(row: &LedgerRow) -> Result<LedgerRow, LedgerRefusal> {
        let request = request(row.permit + 1, row.class);
        grant(row.job, Fence::default(), Some(row), &request, at(500))
    }

    fn after(row: &LedgerRow, trigger: LedgerTrigger, now: u32) -> Result<LedgerRow, LedgerRefusal> {
        let (key, permit_id) = (row.key, row.permit_id);
        if trigger == LedgerTrigger::Disprove {
            let (lifetime, settle) = (Span::ZERO, Span::ZERO);
            let disproof = Disproof { asked: None, grounds: Grounds::Clock, key, lifetime, permit_id, settle };
            return disprove(Some(row), &disproof, at(now));
        }
        settle(Some(row), &Settle { key, permit_id, trigger }, at(now).at)
    }

    #[test]
    fn one_permission_per_key_and_the_next_needs_a_reason() {
        let row = granted(EffectClass::AtMostOnce);
        assert!(matches!(next(&row), Err(LedgerRefusal::OtherPermit { .. })));
        for trigger in [LedgerTrigger::RefuseRetryable, LedgerTrigger::NotSent] {
            assert_eq!(next(&after(&row, trigger, 1).unwrap()).unwrap().permit, 2);
        }
        for trigger in [LedgerTrigger::Commit, LedgerTrigger::RefusePermanent, LedgerTrigger::Doubt] {
            assert!(next(&after(&row, trigger, 1).unwrap()).is_err(), "{trigger:?}");
        }
        assert_eq!(next(&granted(EffectClass::Idempotent)).unwrap().permit, 2);
    }

    #[test]
    fn did_not_happen_is_accepted_after_the_deadline_only_and_ends_the_permit() {
        let unchecked = Settle {
            key: IdempotencyKey::from_u128(1),
            permit_id: PermitId::from_u128(1),
            trigger: LedgerTrigger::Disprove,
        };
        let doubt = after(&granted(EffectClass::AtMostOnce), LedgerTrigger::Doubt, 1).unwrap();
        assert!(matches!(after(&doubt, LedgerTrigger::Disprove, 99), Err(LedgerRefusal::CanStillArrive { .. })));
        assert!(matches!(settle(Some(&doubt), &unchecked, at(999).at), Err(LedgerRefusal::Illegal { .. })));
        let disproved = after(&doubt, LedgerTrigger::Disprove, 100).unwrap();
        assert_eq!(next(&disproved).unwrap().permit, 2);
        // The call's own success outweighs what was said of it.
        let late = after(&disproved, LedgerTrigger::Commit, 101).unwrap();
        assert_eq!((late.status, late.disproved), (LedgerStatus::Committed, false));
        assert!(next(&late).is_err());
    }

    #[test]
    fn a_key_never_stands_for_other_arguments_and_an_old_permit_changes_nothing() {
        let row = after(&granted(EffectClass::AtMostOnce), LedgerTrigger::NotSent, 1).unwrap();
        let other = PermitRequest { input_hash: Hash::of(b"other"), ..request(2, EffectClass::AtMostOnce) };
        let refused = grant(row.job, Fence::default(), Some(&row), &other, at(1));
        assert_eq!(refused, Err(LedgerRefusal::ArgumentsDiffer(row.key)));
        let second = next(&row).unwrap();
        let late = Settle { key: row.key, permit_id: row.permit_id, trigger: LedgerTrigger::Commit };
        assert!(matches!(settle(Some(&second), &late, row.deadline), Err(LedgerRefusal::OtherPermit { .. })));
    }

    #[test]
    fn the_whole_grid_of_settlements() {
        use LedgerStatus as S;
        use LedgerTrigger as T;
        let legal = [
            (S::Started, T::Commit, S::Committed),
            (S::Started, T::RefuseRetryable, S::RefusedRetryable),
            (S::Started, T::RefusePermanent, S::RefusedPermanent),
            (S::Started, T::NotSent, S::NotSent),
            (S::Started, T::Doubt, S::InDoubt),
            (S::InDoubt, T::Commit, S::Committed),
            (S::InDoubt, T::Disprove, S::InDoubt),
            (S::InDoubt, T::GiveUp, S::FailedUnresolved),
        ];
        let mut found = Vec::new();
        for from in S::ALL {
            for trigger in T::ALL {
                if let Some(to) = from.next(trigger) {
                    found.push((from, trigger, to));
                }
            }
        }
        assert_eq!(found, legal);
    }

    #[test]
    fn the_whole_grid_of_further_permits() {
        use EffectClass::{AtMostOnce, Idempotent, Pure};
        use LedgerStatus as S;
        let mut allowed = Vec::new();
        for status in S::ALL {
            for class in [Pure, Idempotent, AtMostOnce] {
                for disproved in [false, true] {
                    if status.allows_next_permit(class, disproved) {
                        allowed.push((status, class, disproved));
                    }
                }
            }
        }
        let mut expected = Vec::new();
        for (status, classes) in [
            (S::Started, &[Idempotent] as &[EffectClass]),
            (S::RefusedRetryable, &[Pure, Idempotent, AtMostOnce]),
            (S::NotSent, &[Pure, Idempotent, AtMostOnce]),
            (S::InDoubt, &[Idempotent]),
        ] {
            expected.extend(classes.iter().flat_map(|class| [false, true].map(|d| (status, *class, d))));
        }
        expected.push((S::InDoubt, AtMostOnce, true));
        assert_eq!(allowed, expected);
    }

    #[test]
    fn a_permit_is_the_next_number_of_the_same_job() {
        let (now, fence) = (at(500), Fence { generation: 1, epoch: 2 });
        let row = after(&granted(EffectClass::AtMostOnce), LedgerTrigger::NotSent, 1).unwrap();
        // What another boot clock has read of a permit says nothing of the next, which has a lifetime of its own.
        let row = LedgerRow { lifetime: Some(Span::from_micros(7)), seen: Some(at(9).boot), ..row };
        let ask = |job, permit| grant(job, fence, Some(&row), &request(permit, EffectClass::AtMostOnce), now);
        for (job, permit) in [(row.job, 1), (row.job, 3), (JobId::from_u128(2), 2)] {
            let refused = LedgerRefusal::OtherPermit { key: row.key, asked: permit, current: 1, status: row.status };
            assert_eq!(ask(job, permit), Err(refused));
        }
        let last = LedgerRow { permit: u32::MAX, ..row.clone() };
        let over = grant(row.job, fence, Some(&last), &request(0, EffectClass::AtMostOnce), now);
        assert!(matches!(over, Err(LedgerRefusal::OtherPermit { .. })));
        let first = |permit| grant(row.job, fence, None, &request(permit, EffectClass::AtMostOnce), now);
        assert_eq!(first(2), Err(LedgerRefusal::Missing(row.key)));
        assert_eq!(first(0), Err(LedgerRefusal::Missing(row.key)));
        let expected = LedgerRow {
            boot: Some(at(600).boot),
            deadline: at(600).at,
            fence,
            lifetime: Some(Span::from_micros(100)),
            permit: 2,
            permit_id: PermitId::from_u128(2),
            seen: None,
            status: LedgerStatus::Started,
            updated_at: now.at,
            ..row.clone()
        };
        assert_eq!(ask(row.job, 2), Ok(expected));
    }

    #[test]
    fn a_further_permit_keeps_the_class_and_forgets_the_disproof() {
        let doubt = after(&granted(EffectClass::AtMostOnce), LedgerTrigger::Doubt, 1).unwrap();
        assert!(!doubt.disproved);
        let disproved = after(&doubt, LedgerTrigger::Disprove, 100).unwrap();
        assert!(disproved.disproved);
        let renamed = request(2, EffectClass::Idempotent);
        let next = grant(disproved.job, Fence::default(), Some(&disproved), &renamed, at(500)).unwrap();
        assert_eq!((next.class, next.disproved, next.status), (EffectClass::AtMostOnce, false, LedgerStatus::Started));
    }

    #[test]
    fn a_settlement_names_what_it_changes_and_changes_nothing_else() {
        let row = granted(EffectClass::AtMostOnce);
        let doubt = after(&row, LedgerTrigger::Doubt, 7).unwrap();
        let expected =
            LedgerRow { status: LedgerStatus::InDoubt, updated_at: Timestamp::from_micros(7), ..row.clone() };
        assert_eq!(doubt, expected);
        let change = Settle { key: row.key, permit_id: row.permit_id, trigger: LedgerTrigger::GiveUp };
        assert_eq!(settle(None, &change, row.deadline), Err(LedgerRefusal::Missing(row.key)));
        let illegal =
            LedgerRefusal::Illegal { key: row.key, status: LedgerStatus::Started, trigger: LedgerTrigger::GiveUp };
        assert_eq!(settle(Some(&row), &change, row.deadline), Err(illegal));
        // After a disproof the permit is over; only its own success is still taken.
        let disproved = after(&doubt, LedgerTrigger::Disprove, 100).unwrap();
        for trigger in LedgerTrigger::ALL.into_iter().filter(|trigger| *trigger != LedgerTrigger::Commit) {
            assert!(matches!(after(&disproved, trigger, 200), Err(LedgerRefusal::Illegal { .. })), "{trigger:?}");
        }
    }

    #[test]
    fn permits_are_compared_as_a_pair() {
        let permit = |generation, number| PermitNumber { generation, number };
        assert!(permit(1, 10) < permit(2, 1) && permit(1, 2) < permit(1, 10));
        assert_eq!(permit(1, 2).to_string(), "1.2");
    }

    #[test]
    fn every_status_has_a_name_of_its_own() {
        let names = LedgerStatus::ALL.map(|status| serde_json::to_value(status).unwrap());
        assert_eq!(names, LedgerStatus::ALL.map(|status| serde_json::Value::from(status.as_str())));
    }
}
