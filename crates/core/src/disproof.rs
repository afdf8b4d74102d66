//! "Did not happen": the only answer after which an `at_most_once` call may be made again, so no clock that can be set
//! decides it alone.
//!
//! A call can no longer arrive when its permit's deadline is past on the store's clock *and* on a boot clock. The boot
//! clock that gave the permit knows its deadline. Another one, after a reboot or in another time namespace, has to have
//! run the permit's whole lifetime since it first read the permit; that reading stands in the ledger's row and serves
//! every process of that boot. Whoever refuses the permit from now on is believed at once.

use serde::{Deserialize, Serialize};

use crate::id::{IdempotencyKey, PermitId};
use crate::ledger::{LedgerRefusal, LedgerRow, LedgerTrigger};
use crate::time::{BootMoment, Reading, Span, Timestamp};

/// Why "did not happen" can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grounds {
    /// The call can no longer arrive, by both clocks.
    Clock,
    /// A person says that the other side refuses the permit from now on.
    OperatorRefused,
    /// The tool that was asked refuses the permit from now on.
    Refuses,
}

impl Grounds {
    /// Its name in events and on screens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::OperatorRefused => "operator_refused",
            Self::Refuses => "refuses",
        }
    }

    /// Whether the call may still be on its way, so that only time tells whether it arrives.
    #[must_use]
    pub const fn needs_time(self) -> bool {
        match self {
            Self::Clock => true,
            Self::OperatorRefused | Self::Refuses => false,
        }
    }
}

/// An answer that the call has not happened, as it is to be checked in the transaction that records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disproof {
    /// What both clocks showed when the question was asked; the transaction's own reading where the answer was given
    /// without one. A later reading than the transaction's counts as the transaction's.
    pub asked: Option<Reading>,
    /// Why it can be believed.
    pub grounds: Grounds,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// How long the permit's call can still arrive, as the events have it. The longer of this and the row's own counts;
    /// builds of before did not store it in the row.
    pub lifetime: Span,
    /// The permit it speaks of.
    pub permit_id: PermitId,
    /// How long after the permit's deadline the question is to be asked: a call may stand in the receiver's queue.
    pub settle: Span,
}

/// How long from a reading on the permit's call, or an answer about it, is still open. Zero where neither clock has to
/// go on.
#[must_use]
pub fn left(row: &LedgerRow, lifetime: Span, settle: Span, reading: Reading) -> Span {
    let by_store = row.deadline.after(settle).since(reading.at);
    // A row that was damaged lets nothing be believed early.
    let whole = row.lifetime.map_or(lifetime, |own| own.max(lifetime)).plus(settle);
    let until = |moment: Span| moment.minus(reading.boot.at);
    let same = |moment: &BootMoment| moment.of == reading.boot.of;
    let by_boot = match (row.boot.filter(same), row.seen.filter(same)) {
        (Some(deadline), _) => until(deadline.at.plus(settle)),
        (None, Some(first)) => until(first.at.plus(whole)),
        (None, None) => whole,
    };
    by_store.max(by_boot)
}

/// Whether this boot clock has yet to be noted in the row before it can say that the permit is over.
#[must_use]
pub fn is_unseen(row: &LedgerRow, boot: BootMoment) -> bool {
    let same = |moment: Option<BootMoment>| moment.is_some_and(|moment| moment.of == boot.of);
    !same(row.boot) && !same(row.seen)
}

/// The row with the first reading of a boot clock that did not give the permit. Nothing changes where it is known.
///
/// # Errors
/// [`LedgerRefusal`]: there is no such row, or another permit is the current one.
pub fn see(
    existing: Option<&LedgerRow>,
    key: IdempotencyKey,
    permit_id: PermitId,
    now: Reading,
) -> Result<LedgerRow, LedgerRefusal> {
    let row = existing.ok_or(LedgerRefusal::Missing(key))?;
    if row.permit_id != permit_id {
        return Err(LedgerRefusal::OtherPermit { key, asked: 0, current: row.permit, status: row.status });
    }
    let seen = if is_unseen(row, now.boot) { Some(now.boot) } else { row.seen };
    Ok(LedgerRow { seen, ..row.clone() })
}

/// Decides a disproof: the row to write, if it is accepted.
///
/// # Errors
/// [`LedgerRefusal`]; nothing is to be written then.
pub fn disprove(existing: Option<&LedgerRow>, disproof: &Disproof, now: Reading) -> Result<LedgerRow, LedgerRefusal> {
    let row = existing.ok_or(LedgerRefusal::Missing(disproof.key))?;
    let (key, trigger) = (disproof.key, LedgerTrigger::Disprove);
    if row.permit_id != disproof.permit_id {
        return Err(LedgerRefusal::OtherPermit { key, asked: 0, current: row.permit, status: row.status });
    }
    let status = row.status.next(trigger).filter(|_| !row.disproved);
    let status = status.ok_or(LedgerRefusal::Illegal { key, status: row.status, trigger })?;
    if disproof.grounds.needs_time() {
        let asked = disproof.asked.map_or(now, |asked| earlier(asked, now));
        let (lifetime, settle) = (disproof.lifetime, disproof.settle);
        if left(row, lifetime, settle, asked) > Span::ZERO {
            let accepted_from = accepted_from(row, lifetime, settle, now);
            return Err(LedgerRefusal::CanStillArrive { key, accepted_from });
        }
    }
    Ok(LedgerRow { disproved: true, status, updated_at: now.at, ..row.clone() })
}

/// From when on, by the store's clock, an answer given then is accepted.
#[must_use]
pub fn accepted_from(row: &LedgerRow, lifetime: Span, settle: Span, now: Reading) -> Timestamp {
    now.at.after(left(row, lifetime, settle, now))
}

/// Until when, by the store's clock, an answer was or is refused: for people, who are shown it before they answer. Where
/// it is over by both clocks, when it was over by the store's.
#[must_use]
pub fn open_until(row: &LedgerRow, settle: Span, now: Reading) -> Timestamp {
    // A row of this build knows its lifetime.
    let left = left(row, Span::ZERO, settle, now);
    if left > Span::ZERO { now.at.after(left) } else { row.deadline.after(settle) }
}

/// The question's reading, at most the transaction's own. Readings of different boot clocks cannot be compared: the
/// transaction's own counts, which lets nothing be believed early.
fn earlier(asked: Reading, now: Reading) -> Reading {
    if asked.boot.of != now.boot.of {
        return Reading { at: asked.at.min(now.at), boot: now.boot };
    }
    Reading { at: asked.at.min(now.at), boot: BootMoment { at: asked.boot.at.min(now.boot.at), ..now.boot } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Hash;
    use crate::id::{BootId, JobId, ToolName};
    use crate::lease::Fence;
    use crate::ledger::{self, LedgerStatus, PermitRequest, Settle};
    use crate::path::StepPath;
    use crate::plan::EffectClass;

    const LIFETIME: Span = Span::from_secs(10);
    const SETTLE: Span = Span::from_secs(60);

    /// What the store's clock and the boot clock number `of` show, in seconds.
    fn reading(store: i64, of: u128, boot: u64) -> Reading {
        let boot = BootMoment { at: Span::from_secs(boot), of: BootId::from_u128(of) };
        Reading { at: Timestamp::from_micros(store * 1_000_000), boot }
    }

    /// A call in doubt whose permit was given at second 100 of the store and second 5 of boot clock 1.
    fn doubt() -> LedgerRow {
        let request = PermitRequest {
            class: EffectClass::AtMostOnce,
            input_hash: Hash::of(b"input"),
            key: IdempotencyKey::from_u128(1),
            lifetime: LIFETIME,
            node: StepPath::from("a"),
            permit: 1,
            permit_id: PermitId::from_u128(1),
            tool: ToolName::from("t"),
        };
        let row = ledger::grant(JobId::from_u128(1), Fence::default(), None, &request, reading(100, 1, 5)).unwrap();
        let change = Settle { key: row.key, permit_id: row.permit_id, trigger: LedgerTrigger::Doubt };
        ledger::settle(Some(&row), &change, row.deadline).unwrap()
    }

    fn disproof(grounds: Grounds) -> Disproof {
        Disproof {
            asked: None,
            grounds,
            key: IdempotencyKey::from_u128(1),
            lifetime: LIFETIME,
            permit_id: PermitId::from_u128(1),
            settle: SETTLE,
        }
    }

    fn says(row: &LedgerRow, now: Reading) -> Result<LedgerRow, LedgerRefusal> {
        disprove(Some(row), &disproof(Grounds::Clock), now)
    }

    fn early(answer: Result<LedgerRow, LedgerRefusal>) -> i64 {
        match answer {
            Err(LedgerRefusal::CanStillArrive { accepted_from, .. }) => accepted_from.micros() / 1_000_000,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_clocks_have_to_be_past_the_deadline_and_what_settles_after_it() {
        let row = doubt();
        assert_eq!(early(says(&row, reading(169, 1, 74))), 170);
        assert_eq!(early(says(&row, reading(169, 1, 1_000))), 170);
        // The wall clock was set forward: the boot clock counts.
        assert_eq!(early(says(&row, reading(5_000, 1, 8))), 5_067);
        let now = reading(170, 1, 75);
        assert_eq!(says(&row, now), Ok(LedgerRow { disproved: true, updated_at: now.at, ..row }));
    }

    #[test]
    fn another_boot_clock_has_to_run_the_whole_lifetime_from_its_first_reading() {
        let row = doubt();
        assert!(is_unseen(&row, reading(0, 2, 0).boot) && !is_unseen(&row, reading(0, 1, 0).boot));
        assert_eq!(early(says(&row, reading(9_000, 2, 900))), 9_070);
        let seen = see(Some(&row), row.key, row.permit_id, reading(9_000, 2, 900)).unwrap();
        assert_eq!(seen, LedgerRow { seen: Some(reading(9_000, 2, 900).boot), ..row.clone() });
        assert!(!is_unseen(&seen, reading(0, 2, 0).boot));
        assert_eq!(see(Some(&seen), row.key, row.permit_id, reading(9_050, 2, 950)).unwrap(), seen);
        assert_eq!(early(says(&seen, reading(9_069, 2, 969))), 9_070);
        assert!(says(&seen, reading(9_070, 2, 970)).unwrap().disproved);
        // A third one begins anew; the first still knows its own deadline.
        assert_eq!(early(says(&seen, reading(9_999, 3, 5_000))), 10_069);
        let third = see(Some(&seen), row.key, row.permit_id, reading(9_999, 3, 5_000)).unwrap();
        assert_eq!(early(says(&third, reading(10_068, 3, 5_069))), 10_069);
        assert!(says(&third, reading(10_069, 3, 5_070)).unwrap().disproved);
        assert!(says(&seen, reading(9_070, 1, 75)).unwrap().disproved);
    }

    #[test]
    fn a_row_of_an_older_build_counts_for_every_boot_clock_from_its_first_reading() {
        let old = LedgerRow { boot: None, lifetime: None, ..doubt() };
        assert_eq!(early(says(&old, reading(9_000, 1, 900))), 9_070);
        let seen = see(Some(&old), old.key, old.permit_id, reading(9_000, 1, 900)).unwrap();
        assert!(says(&seen, reading(9_070, 1, 970)).unwrap().disproved);
    }

    #[test]
    fn a_row_with_too_short_a_lifetime_lets_nothing_be_believed_early() {
        let short = LedgerRow { lifetime: Some(Span::from_secs(1)), ..doubt() };
        assert_eq!(early(says(&short, reading(9_000, 2, 900))), 9_070);
        let seen = see(Some(&short), short.key, short.permit_id, reading(9_000, 2, 900)).unwrap();
        assert_eq!(early(says(&seen, reading(9_069, 2, 969))), 9_070);
        assert!(says(&seen, reading(9_070, 2, 970)).unwrap().disproved);
    }

    #[test]
    fn the_question_counts_and_not_when_its_answer_is_written() {
        let row = doubt();
        let asked = |asked| Disproof { asked: Some(asked), ..disproof(Grounds::Clock) };
        let now = reading(500, 1, 405);
        assert_eq!(early(disprove(Some(&row), &asked(reading(169, 1, 75)), now)), 500);
        assert_eq!(early(disprove(Some(&row), &asked(reading(170, 1, 74)), now)), 500);
        assert!(disprove(Some(&row), &asked(reading(170, 1, 75)), now).is_ok());
        // Readings of two boot clocks cannot be compared: when it was asked is told by the store's.
        assert_eq!(early(disprove(Some(&row), &asked(reading(169, 2, 75)), now)), 500);
        assert!(disprove(Some(&row), &asked(reading(170, 2, 0)), now).is_ok());
        // Nobody has asked later than now, by either clock.
        assert_eq!(early(disprove(Some(&row), &asked(reading(170, 1, 75)), reading(169, 1, 74))), 170);
        assert_eq!(early(disprove(Some(&row), &asked(reading(170, 1, 75)), reading(169, 1, 75))), 170);
        assert_eq!(early(disprove(Some(&row), &asked(reading(170, 1, 75)), reading(170, 1, 74))), 171);
    }

    /// The longer of what the row and the events say, and the events alone for rows that do not have it.
    #[test]
    fn the_longer_lifetime_counts() {
        let row = see(Some(&doubt()), doubt().key, doubt().permit_id, reading(9_000, 2, 900)).unwrap();
        let own = row.lifetime.unwrap();
        for told in [Span::ZERO, own, Span::from_secs(500)] {
            let still = |whole: Span| whole.plus(Span::from_secs(59));
            assert_eq!(left(&row, told, SETTLE, reading(9_001, 2, 901)), still(own.max(told)));
            let old = LedgerRow { lifetime: None, ..row.clone() };
            assert_eq!(left(&old, told, SETTLE, reading(9_001, 2, 901)), still(told));
        }
    }

    #[test]
    fn who_refuses_the_permit_is_believed_at_once() {
        for grounds in [Grounds::Refuses, Grounds::OperatorRefused] {
            let disproved = disprove(Some(&doubt()), &disproof(grounds), reading(101, 2, 0)).unwrap();
            assert!(disproved.disproved && disproved.status == LedgerStatus::InDoubt);
            let again = disprove(Some(&disproved), &disproof(grounds), reading(999, 1, 999));
            assert!(matches!(again, Err(LedgerRefusal::Illegal { .. })));
        }
    }

    #[test]
    fn it_is_said_of_the_current_permit_of_a_call_in_doubt() {
        let row = doubt();
        let other = Disproof { permit_id: PermitId::from_u128(2), ..disproof(Grounds::Refuses) };
        assert!(matches!(disprove(Some(&row), &other, reading(0, 1, 0)), Err(LedgerRefusal::OtherPermit { .. })));
        assert_eq!(disprove(None, &other, reading(0, 1, 0)), Err(LedgerRefusal::Missing(row.key)));
        let started = LedgerRow { status: LedgerStatus::Started, ..row.clone() };
        let early = disprove(Some(&started), &disproof(Grounds::Refuses), reading(0, 1, 0));
        assert!(matches!(early, Err(LedgerRefusal::Illegal { .. })));
        let (key, id, now) = (row.key, PermitId::from_u128(2), reading(0, 2, 0));
        assert!(matches!(see(Some(&row), key, id, now), Err(LedgerRefusal::OtherPermit { .. })));
        assert_eq!(see(None, key, id, now), Err(LedgerRefusal::Missing(key)));
    }

    #[test]
    fn names_are_as_they_are_stored() {
        for grounds in [Grounds::Clock, Grounds::OperatorRefused, Grounds::Refuses] {
            assert_eq!(serde_json::to_value(grounds).unwrap(), grounds.as_str());
            assert_eq!(grounds.needs_time(), grounds == Grounds::Clock);
        }
    }

    #[test]
    fn what_people_are_shown_is_what_is_decided() {
        let row = doubt();
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        // The permit's own boot clock: 100 + 10 + 60 by the store's, whenever it is asked.
        for now in [reading(120, 1, 25), reading(400, 1, 305)] {
            assert_eq!(open_until(&row, SETTLE, now), at(170), "{now:?}");
        }
        // Another one, read for the first time now, has the whole lifetime before it.
        assert_eq!(open_until(&row, SETTLE, reading(400, 2, 3)), at(470));
        let noted = see(Some(&row), row.key, row.permit_id, reading(400, 2, 3)).unwrap();
        assert_eq!(open_until(&noted, SETTLE, reading(430, 2, 33)), at(470));
        assert_eq!(open_until(&noted, SETTLE, reading(480, 2, 83)), at(170));
    }
}
