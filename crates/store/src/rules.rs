//! The rules of a commit that need no table, one by one. Which is asked when is [`crate::decide`]'s; no backend has rules of
//! its own.

use aetheris_core::disproof::{self, Disproof, Grounds};
use aetheris_core::event::EventKind;
use aetheris_core::id::{IdempotencyKey, JobId, PermitId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard, Holder};
use aetheris_core::ledger::{self, LedgerRefusal, LedgerRow, LedgerStatus, PermitRequest, Settle};
use aetheris_core::limits;
use aetheris_core::time::{Reading, Timestamp};

use crate::error::{ErrorKind, Refusal, StoreError};
use crate::query::PlanDocument;
use crate::unit::{ExpectedSignals, InboxWrite, LedgerWrite, NewEffect, UnitOfWork};

/// The envelope that a bounded value may have around it in an event or in evidence, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 4_096;

/// Whether a unit makes sense at all. What does not is a fault of its author and fails as
/// [`ErrorKind::Invalid`]; nothing is looked up for it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn shape(unit: &UnitOfWork) -> Result<(), StoreError> {
    let kinds = || unit.events.iter().map(|event| event.kind);
    let wrong = if unit.events.first().is_some_and(|first| first.id != unit.id) {
        "the unit has not the id of its first event"
    } else if !unit.events.is_empty() && unit.expected_seq.is_none() {
        "events are appended without the sequence that their author has seen"
    } else if kinds().any(|kind| kind == EventKind::JobClaimed) {
        "only a claim appends job_claimed"
    } else if kinds().skip(1).any(|kind| kind == EventKind::JobCreated)
        || unit.create.is_some() != (kinds().next() == Some(EventKind::JobCreated))
    {
        "a new job begins with job_created, and nothing else does"
    } else if unit.create.is_some() && (unit.row.is_none() || unit.expected_seq != Some(0)) {
        "a new job has a row and no events before it"
    } else if kinds().any(|kind| kind == EventKind::PlanGenerated)
        && unit.row.as_ref().is_none_or(|row| row.plan_hash.is_none())
    {
        "a recorded plan is named in the row"
    } else if unit.plan.as_ref().is_some_and(|document| !records(unit, document)) {
        "a plan document comes with the event and the row that name it"
    } else {
        return Ok(());
    };
    Err(StoreError::new(ErrorKind::Invalid, "commit", wrong))
}

/// Whether a unit records the plan of a document.
fn records(unit: &UnitOfWork, document: &PlanDocument) -> bool {
    let named = unit.row.as_ref().and_then(|row| row.plan_hash) == Some(document.hash);
    named
        && document.plan.hash() == document.hash
        && unit.events.iter().any(|event| event.kind == EventKind::PlanGenerated)
}

/// Permissions need the writer's own unexpired lease; every other write needs only its guard.
///
/// # Errors
/// [`Refusal::LeaseExpired`].
pub fn permission(unit: &UnitOfWork, holder: Option<&Holder>, now: Timestamp) -> Result<(), Refusal> {
    let asked = unit.ledger.iter().any(|write| matches!(write, LedgerWrite::Permit(_)));
    let live = matches!(unit.guard, Guard::Run(_)) && holder.is_some_and(|holder| holder.is_live(now));
    if asked && !live && !aetheris_fault::planted!("permit-without-lease") {
        Err(Refusal::LeaseExpired)
    } else {
        Ok(())
    }
}

/// Whether nothing was written since the author looked.
///
/// # Errors
/// [`Refusal::Sequence`].
pub fn sequence(unit: &UnitOfWork, actual: u64) -> Result<(), Refusal> {
    if aetheris_fault::planted!("sequence-not-checked") {
        return Ok(());
    }
    match unit.expected_seq {
        Some(expected) if expected != actual => Err(Refusal::Sequence { expected, actual }),
        Some(_) | None => Ok(()),
    }
}

/// Whether as many signals of the key are kept as the author knows.
///
/// # Errors
/// [`Refusal::SignalKept`].
pub fn signals(expected: &ExpectedSignals, kept: usize) -> Result<(), Refusal> {
    if expected.count == kept { Ok(()) } else { Err(Refusal::SignalKept(expected.key.clone())) }
}

/// Decides a permission against the row of its key, as the unit's changes so far leave it. `succeeded` says that the
/// job has evidence of a success of the key that its history did not go on with: nothing is called again then. It may
/// be looked up for further permits only.
///
/// # Errors
/// [`LedgerRefusal`].
pub fn grant(
    (job, fence): (JobId, Fence),
    existing: Option<&LedgerRow>,
    request: &PermitRequest,
    succeeded: bool,
    now: Reading,
) -> Result<LedgerRow, LedgerRefusal> {
    if aetheris_fault::planted!("ledger-not-arbitrated") {
        return ledger::grant(job, fence, None, &PermitRequest { permit: 1, ..request.clone() }, now);
    }
    if succeeded && !aetheris_fault::planted!("success-forgotten") && existing.is_some_and(|row| row.job == job) {
        return Err(LedgerRefusal::Succeeded(request.key));
    }
    ledger::grant(job, fence, existing, request, now)
}

/// Decides a settlement against the row of its key, as the unit's changes so far leave it. A row of another
/// job counts as missing.
///
/// # Errors
/// [`LedgerRefusal`].
pub fn settle(
    job: JobId,
    existing: Option<&LedgerRow>,
    change: &Settle,
    now: Timestamp,
) -> Result<LedgerRow, LedgerRefusal> {
    let existing = existing.filter(|row| row.job == job);
    let any = existing.filter(|_| aetheris_fault::planted!("older-permit-settles"));
    let permit_id = any.map_or(change.permit_id, |row| row.permit_id);
    ledger::settle(existing, &Settle { permit_id, ..*change }, now)
}

/// Decides a disproof against the row of its key, as the unit's changes so far leave it. A row of another job counts
/// as missing.
///
/// # Errors
/// [`LedgerRefusal`].
pub fn disprove(
    job: JobId,
    existing: Option<&LedgerRow>,
    disproof: &Disproof,
    now: Reading,
) -> Result<LedgerRow, LedgerRefusal> {
    let existing = existing.filter(|row| row.job == job);
    if aetheris_fault::planted!("disproof-believed-early") {
        return disproof::disprove(existing, &Disproof { grounds: Grounds::Refuses, ..*disproof }, now);
    }
    disproof::disprove(existing, disproof, now)
}

/// Notes the first reading of the writing process's boot clock. A row of another job counts as missing.
///
/// # Errors
/// [`LedgerRefusal`].
pub fn see(
    job: JobId,
    existing: Option<&LedgerRow>,
    (key, permit_id): (IdempotencyKey, PermitId),
    now: Reading,
) -> Result<LedgerRow, LedgerRefusal> {
    disproof::see(existing.filter(|row| row.job == job), key, permit_id, now)
}

/// Whether an outcome is of the ledger's current permit. `row` is this job's row of the key, as it is
/// with the unit's own changes of the ledger.
///
/// # Errors
/// [`Refusal::Ledger`].
pub fn effect(row: Option<&LedgerRow>, effect: &NewEffect) -> Result<(), Refusal> {
    let row = row.ok_or(LedgerRefusal::Missing(effect.key))?;
    let any = aetheris_fault::planted!("older-permit-settles");
    if any || (row.permit_id == effect.permit_id && row.permit == effect.permit) {
        return Ok(());
    }
    let (current, status) = (row.permit, row.status);
    Err(LedgerRefusal::OtherPermit { key: effect.key, asked: effect.permit, current, status }.into())
}

/// The inbox has no such kept signal: its author folded a history without it, or consumes it twice.
#[must_use]
pub fn not_kept() -> StoreError {
    StoreError::new(ErrorKind::Invalid, "commit", "a signal is consumed that is not kept")
}

/// What [`Refusal::Bound`] calls the bound of one value in its canonical form.
pub const PAYLOAD_BYTES: &str = "payload bytes";

/// The signals that a unit leaves kept for its job; none where it adds none, since what is there already was
/// within the bounds of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Bytes of their payloads.
    pub bytes: usize,
    /// How many.
    pub count: usize,
    /// What the payloads take in memory, by [`Json::memory`].
    pub memory: usize,
}

impl Kept {
    /// One signal.
    #[must_use]
    pub fn of(payload: &Json) -> Self {
        Self { bytes: payload.canonical().len(), count: 1, memory: payload.memory() }
    }

    /// These and others.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            count: self.count.saturating_add(other.count),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    /// These without others.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            count: self.count.saturating_sub(other.count),
            memory: self.memory.saturating_sub(other.memory),
        }
    }
}

/// The bounds. `seq` is the place of the last event before the unit.
///
/// # Errors
/// [`Refusal::Bound`].
pub fn bounds(unit: &UnitOfWork, seq: u64, kept: Kept) -> Result<(), Refusal> {
    let count = unit.events.len();
    let bound = |bound: usize, what| Err(Refusal::Bound { bound: u64::try_from(bound).unwrap_or(u64::MAX), what });
    if count > limits::UNIT_EVENTS_MAX {
        return bound(limits::UNIT_EVENTS_MAX, "events in one unit");
    }
    // What ends or frees a job is never refused for its length: only what makes it longer is.
    let grows = unit.events.iter().any(|event| event.kind.grows());
    if grows && seq.saturating_add(u64::try_from(count).unwrap_or(u64::MAX)) > limits::JOB_EVENTS_MAX {
        return Err(Refusal::Bound { bound: limits::JOB_EVENTS_MAX, what: "events of one job" });
    }
    let over = |bytes: usize| bytes > limits::PAYLOAD_BYTES_MAX;
    let large = unit.events.iter().any(aetheris_core::event::EncodedEvent::is_too_large)
        || unit.effects.iter().any(|effect| over(effect.result.canonical().len()))
        || unit.evidence.iter().any(|e| over(e.outcome.canonical().len().saturating_sub(ENVELOPE_BYTES_MAX)))
        || unit.inbox.iter().any(|write| match write {
            InboxWrite::Receive { payload, .. } => over(payload.canonical().len()),
            InboxWrite::Consume(_) => false,
        });
    if large {
        return bound(limits::PAYLOAD_BYTES_MAX, PAYLOAD_BYTES);
    }
    if kept.count > limits::KEPT_SIGNALS_MAX {
        return bound(limits::KEPT_SIGNALS_MAX, "kept signals");
    }
    if kept.bytes > limits::KEPT_SIGNAL_BYTES_MAX {
        return bound(limits::KEPT_SIGNAL_BYTES_MAX, "bytes of kept signals");
    }
    if kept.memory > limits::KEPT_SIGNAL_MEMORY_MAX {
        return bound(limits::KEPT_SIGNAL_MEMORY_MAX, "bytes of memory of kept signals");
    }
    Ok(())
}

/// The fence of a job that nobody has claimed yet.
#[must_use]
pub const fn unclaimed(generation: u32) -> Fence {
    Fence { generation, epoch: 0 }
}

/// Whether a job of that status and moment can be claimed, its session aside.
#[must_use]
pub fn claimable(status: JobStatus, not_before: Option<Timestamp>, now: Timestamp) -> bool {
    let due = not_before.is_none_or(|at| at <= now) || aetheris_fault::planted!("delay-ignored");
    status == JobStatus::Pending && due
}

/// Whether a row of the ledger is in the list of doubts: the outcome is unknown and nobody has answered.
#[must_use]
pub fn in_doubt(row: &LedgerRow) -> bool {
    row.status == LedgerStatus::InDoubt && !row.disproved
}

/// Whether a row of the ledger is in the list of calls that were left unresolved: its job has ended, and the call's
/// doubt was open then and is still, or the call was given up, also in a job that goes on over it. A call that was given up stays in
/// the list, with the answer that somebody has given since.
#[must_use]
pub fn unresolved(row: &LedgerRow, job: JobStatus) -> bool {
    row.status == LedgerStatus::FailedUnresolved || (job.is_terminal() && in_doubt(row))
}

#[cfg(test)]
mod tests {

    use aetheris_core::event::{EncodedEvent, Event, JobCancelled, JobClaimed, NodeStarted, PlanGenerated};
    use aetheris_core::hash::Hash;
    use aetheris_core::id::{AttemptId, BootId, EventId, IdempotencyKey, InstanceId, PermitId, SignalId, TenantId};
    use aetheris_core::json::Json;
    use aetheris_core::ledger::LedgerTrigger;
    use aetheris_core::plan::EffectClass;
    use aetheris_core::projection::Projection;
    use aetheris_core::state::JobState;
    use aetheris_core::time::{BootMoment, Span};

    use super::*;
    use crate::query::Evidence;
    use crate::unit::{NewJob, Purpose};

    const JOB: JobId = JobId::from_u128(1);

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn event(id: u128, event: impl Into<Event>) -> EncodedEvent {
        EncodedEvent::new(EventId::from_u128(id), &event.into())
    }

    fn cancelled(id: u128) -> EncodedEvent {
        event(id, JobCancelled {})
    }

    /// Bytes do not matter to the shape: only the kind is looked at.
    fn of_kind(id: u128, kind: EventKind) -> EncodedEvent {
        EncodedEvent { kind, ..cancelled(id) }
    }

    fn planned(id: u128) -> EncodedEvent {
        let plan = PlanGenerated {
            plan_hash: Hash::ZERO,
            plan_version: 1,
            planner: "static".to_owned(),
            planner_version: "0".to_owned(),
        };
        event(id, plan)
    }

    fn unit(events: Vec<EncodedEvent>) -> UnitOfWork {
        let mut unit = UnitOfWork::new(EventId::from_u128(1), JOB, Purpose::Record, Guard::Outside);
        unit.expected_seq = (!events.is_empty()).then_some(0);
        unit.events = events;
        unit
    }

    fn row(plan_hash: Option<Hash>) -> Projection {
        Projection { plan_hash, ..Projection::of(&JobState::new(JOB), false) }
    }

    fn creation() -> UnitOfWork {
        let mut unit = unit(vec![of_kind(1, EventKind::JobCreated)]);
        unit.row = Some(row(None));
        unit.create = Some(NewJob {
            agent: "a".into(),
            agent_version: "1".to_owned(),
            client_key: None,
            labels: std::collections::BTreeMap::new(),
            parent: None,
            priority: 0,
            session: None,
            tenant: TenantId::default(),
        });
        unit
    }

    fn says(unit: &UnitOfWork, words: &str) {
        let error = shape(unit).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.to_string().contains(words), "`{error}` does not say `{words}`");
    }

    #[test]
    fn a_unit_that_makes_sense_has_a_shape() {
        let claimed =
            JobClaimed { attempt_id: AttemptId::from_u128(1), instance: InstanceId::from_u128(1), worker: "w".into() };
        assert!(shape(&unit(vec![])).is_ok());
        assert!(shape(&unit(vec![cancelled(1), cancelled(2)])).is_ok());
        says(&unit(vec![cancelled(2)]), "has not the id");
        says(&UnitOfWork { expected_seq: None, ..unit(vec![cancelled(1)]) }, "without the sequence");
        assert!(shape(&UnitOfWork { expected_seq: Some(3), ..unit(vec![]) }).is_ok());
        says(&unit(vec![cancelled(1), event(2, claimed)]), "only a claim");
    }

    #[test]
    fn a_new_job_begins_with_its_creation_and_nothing_else_does() {
        assert!(shape(&creation()).is_ok());
        let begins = "begins with job_created";
        says(&UnitOfWork { create: None, ..creation() }, begins);
        says(&UnitOfWork { events: vec![cancelled(1)], ..creation() }, begins);
        says(&UnitOfWork { events: vec![], ..creation() }, begins);
        says(&unit(vec![cancelled(1), of_kind(2, EventKind::JobCreated)]), begins);
        let twice = vec![of_kind(1, EventKind::JobCreated), of_kind(2, EventKind::JobCreated)];
        says(&UnitOfWork { events: twice, ..creation() }, begins);
        let has = "has a row and no events before it";
        says(&UnitOfWork { row: None, ..creation() }, has);
        says(&UnitOfWork { expected_seq: Some(1), ..creation() }, has);
        assert!(shape(&UnitOfWork { expected_seq: Some(1), ..unit(vec![cancelled(1)]) }).is_ok());
    }

    #[test]
    fn a_recorded_plan_is_named_in_the_row() {
        let with = |row| UnitOfWork { row, ..unit(vec![planned(1)]) };
        assert!(shape(&with(Some(row(Some(Hash::ZERO))))).is_ok());
        says(&with(Some(row(None))), "named in the row");
        says(&with(None), "named in the row");
        assert!(shape(&UnitOfWork { row: Some(row(None)), ..unit(vec![cancelled(1)]) }).is_ok());
    }

    fn request() -> PermitRequest {
        PermitRequest {
            class: EffectClass::AtMostOnce,
            input_hash: Hash::ZERO,
            key: IdempotencyKey::from_u128(7),
            lifetime: Span::from_micros(10),
            node: "n".into(),
            permit: 1,
            permit_id: PermitId::from_u128(3),
            tool: "t".into(),
        }
    }

    fn granted() -> LedgerRow {
        grant((JOB, Fence::default()), None, &request(), false, reading(5)).unwrap()
    }

    fn reading(micros: i64) -> Reading {
        let boot = BootMoment { at: Span::from_micros(micros.unsigned_abs()), of: BootId::from_u128(1) };
        Reading { at: at(micros), boot }
    }

    #[test]
    fn a_permission_needs_the_writers_own_living_lease() {
        let holder = Holder {
            attempt_id: AttemptId::from_u128(1),
            instance: InstanceId::from_u128(2),
            lease_until: at(100),
            worker: "w".into(),
        };
        let asks = |guard, ledger: Vec<LedgerWrite>| UnitOfWork { guard, ledger, ..unit(vec![]) };
        let run = Guard::Run(Fence::default());
        let permit = || vec![LedgerWrite::Permit(request())];
        assert_eq!(permission(&asks(run, permit()), Some(&holder), at(99)), Ok(()));
        assert_eq!(permission(&asks(run, permit()), Some(&holder), at(100)), Err(Refusal::LeaseExpired));
        assert_eq!(permission(&asks(run, permit()), None, at(99)), Err(Refusal::LeaseExpired));
        for guard in [Guard::Outside, Guard::Expired(Fence::default())] {
            assert_eq!(permission(&asks(guard, permit()), Some(&holder), at(99)), Err(Refusal::LeaseExpired));
        }
        let change = Settle { key: request().key, permit_id: request().permit_id, trigger: LedgerTrigger::Commit };
        assert_eq!(permission(&asks(run, vec![LedgerWrite::Settle(change)]), Some(&holder), at(100)), Ok(()));
        assert_eq!(permission(&asks(Guard::Outside, vec![]), None, at(100)), Ok(()));
        // Wherever it stands among the unit's changes of the ledger.
        let (key, permit_id) = (change.key, change.permit_id);
        let others = [LedgerWrite::Settle(change), LedgerWrite::See { key, permit_id }];
        assert_eq!(permission(&asks(run, others.to_vec()), Some(&holder), at(100)), Ok(()));
        for place in 0..=others.len() {
            let mut writes = others.to_vec();
            writes.insert(place, LedgerWrite::Permit(request()));
            assert_eq!(permission(&asks(run, writes.clone()), Some(&holder), at(99)), Ok(()));
            assert_eq!(permission(&asks(run, writes.clone()), Some(&holder), at(100)), Err(Refusal::LeaseExpired));
            assert_eq!(permission(&asks(Guard::Outside, writes), Some(&holder), at(99)), Err(Refusal::LeaseExpired));
        }
    }

    #[test]
    fn nothing_was_written_since_the_author_looked() {
        let seen = |expected_seq| UnitOfWork { expected_seq, ..unit(vec![]) };
        assert_eq!(sequence(&seen(Some(3)), 3), Ok(()));
        assert_eq!(sequence(&seen(None), 3), Ok(()));
        for actual in [2, 4] {
            assert_eq!(sequence(&seen(Some(3)), actual), Err(Refusal::Sequence { expected: 3, actual }));
        }
    }

    #[test]
    fn a_row_of_another_job_counts_as_missing_and_an_outcome_is_of_the_current_permit() {
        let row = granted();
        assert_eq!(row.permit_id, request().permit_id);
        let again = grant((JOB, Fence::default()), Some(&row), &request(), false, reading(6));
        assert!(matches!(again, Err(LedgerRefusal::OtherPermit { .. })));
        let change = Settle { key: row.key, permit_id: row.permit_id, trigger: LedgerTrigger::Commit };
        assert_eq!(settle(JOB, Some(&row), &change, at(6)).unwrap().status, LedgerStatus::Committed);
        let other = settle(JobId::from_u128(2), Some(&row), &change, at(6));
        assert_eq!(other, Err(LedgerRefusal::Missing(row.key)));
        let (asked, grounds, lifetime, settle_) = (None, disproof::Grounds::Refuses, Span::ZERO, Span::ZERO);
        let (key, permit_id) = (row.key, row.permit_id);
        let disproof = Disproof { asked, grounds, key, lifetime, permit_id, settle: settle_ };
        let doubt = LedgerRow { status: LedgerStatus::InDoubt, ..row.clone() };
        assert!(disprove(JOB, Some(&doubt), &disproof, reading(6)).unwrap().disproved);
        let missing = Err(LedgerRefusal::Missing(key));
        assert_eq!(disprove(JobId::from_u128(2), Some(&doubt), &disproof, reading(6)), missing);
        assert_eq!(see(JobId::from_u128(2), Some(&doubt), (key, permit_id), reading(6)), missing);
        assert_eq!(see(JOB, Some(&doubt), (key, permit_id), reading(6)), Ok(doubt));
        // A known success, whoever has called, ends the key of its job.
        let unsent = LedgerRow { status: LedgerStatus::NotSent, ..row.clone() };
        let second = PermitRequest { permit: 2, ..request() };
        let next = |job, succeeded| grant((job, Fence::default()), Some(&unsent), &second, succeeded, reading(6));
        assert_eq!(next(JOB, true), Err(LedgerRefusal::Succeeded(key)));
        assert!(matches!(next(JobId::from_u128(2), true), Err(LedgerRefusal::OtherPermit { .. })));
        assert_eq!(next(JOB, false).unwrap().permit, 2);
        let old = Settle { permit_id: PermitId::from_u128(9), ..change };
        assert!(matches!(settle(JOB, Some(&row), &old, at(6)), Err(LedgerRefusal::OtherPermit { .. })));
        let outcome =
            |permit, id| NewEffect { key: row.key, permit, permit_id: PermitId::from_u128(id), result: Json::null() };
        assert_eq!(effect(Some(&row), &outcome(1, 3)), Ok(()));
        assert_eq!(effect(None, &outcome(1, 3)), Err(LedgerRefusal::Missing(row.key).into()));
        for (permit, id) in [(1, 4), (2, 3), (2, 4)] {
            let current = LedgerRefusal::OtherPermit { key: row.key, asked: permit, current: 1, status: row.status };
            assert_eq!(effect(Some(&row), &outcome(permit, id)), Err(current.into()));
        }
        assert_eq!(not_kept().kind, ErrorKind::Invalid);
    }

    #[test]
    fn length_is_bounded_per_unit_and_per_job_and_an_end_is_never_refused_for_it() {
        let many = |count: usize| unit((0..count).map(|id| cancelled(u128::try_from(id).unwrap())).collect());
        let of_unit = Refusal::Bound { bound: 448, what: "events in one unit" };
        assert_eq!(bounds(&many(limits::UNIT_EVENTS_MAX), 0, Kept::default()), Ok(()));
        assert_eq!(bounds(&many(limits::UNIT_EVENTS_MAX + 1), 0, Kept::default()), Err(of_unit));
        let grows = || unit(vec![cancelled(1), event(2, NodeStarted::new("n", 1))]);
        let of_job = Refusal::Bound { bound: limits::JOB_EVENTS_MAX, what: "events of one job" };
        assert_eq!(bounds(&grows(), limits::JOB_EVENTS_MAX - 2, Kept::default()), Ok(()));
        for seq in [limits::JOB_EVENTS_MAX - 1, limits::JOB_EVENTS_MAX, u64::MAX] {
            assert_eq!(bounds(&grows(), seq, Kept::default()), Err(of_job.clone()));
            assert_eq!(bounds(&many(1), seq, Kept::default()), Ok(()));
        }
        let kept = |count, bytes| bounds(&unit(vec![]), 0, Kept { bytes, count, memory: 0 });
        let many = Refusal::Bound { bound: 1_000, what: "kept signals" };
        assert_eq!(kept(limits::KEPT_SIGNALS_MAX, 0), Ok(()));
        assert_eq!(kept(limits::KEPT_SIGNALS_MAX + 1, 0), Err(many.clone()));
        assert_eq!(kept(limits::KEPT_SIGNALS_MAX + 2, 0), Err(many));
        let large = Refusal::Bound { bound: 16_777_216, what: "bytes of kept signals" };
        assert_eq!(kept(1, limits::KEPT_SIGNAL_BYTES_MAX), Ok(()));
        assert_eq!(kept(1, limits::KEPT_SIGNAL_BYTES_MAX + 1), Err(large.clone()));
        assert_eq!(kept(1, usize::MAX), Err(large));
        let kept = |memory| bounds(&unit(vec![]), 0, Kept { bytes: 1, count: 1, memory });
        let heavy = Refusal::Bound { bound: 134_217_728, what: "bytes of memory of kept signals" };
        assert_eq!(kept(limits::KEPT_SIGNAL_MEMORY_MAX), Ok(()));
        assert_eq!(kept(limits::KEPT_SIGNAL_MEMORY_MAX + 1), Err(heavy));
    }

    fn evidence(outcome: Json) -> Evidence {
        let key = request().key;
        let permit_id = request().permit_id;
        Evidence { at: at(0), conflict: false, key, node: "n".into(), outcome, permit: 1, permit_id }
    }

    #[test]
    fn payloads_are_bounded_wherever_they_stand() {
        let too_large = Refusal::Bound { bound: 1_048_576, what: "payload bytes" };
        // A text has two quotes around it.
        let text = |bytes: usize| Json::new(serde_json::Value::String("x".repeat(bytes - 2)));
        let max = limits::PAYLOAD_BYTES_MAX;
        for (bytes, answer) in [(max, Ok(())), (max + 1, Err(too_large.clone())), (max + 2, Err(too_large))] {
            let effect =
                NewEffect { key: request().key, permit: 1, permit_id: request().permit_id, result: text(bytes) };
            assert_eq!(bounds(&UnitOfWork { effects: vec![effect], ..unit(vec![]) }, 0, Kept::default()), answer);
            let receive = InboxWrite::Receive {
                delivered: false,
                key: "k".to_owned(),
                payload: text(bytes),
                signal: SignalId::from_u128(1),
                wait_type: None,
            };
            let consume = InboxWrite::Consume(SignalId::from_u128(2));
            assert_eq!(
                bounds(&UnitOfWork { inbox: vec![consume, receive], ..unit(vec![]) }, 0, Kept::default()),
                answer
            );
            let evidence = evidence(text(bytes + ENVELOPE_BYTES_MAX));
            assert_eq!(bounds(&UnitOfWork { evidence: vec![evidence], ..unit(vec![]) }, 0, Kept::default()), answer);
            let payload = vec![0; bytes + ENVELOPE_BYTES_MAX];
            assert_eq!(bounds(&unit(vec![EncodedEvent { payload, ..cancelled(1) }]), 0, Kept::default()), answer);
        }
    }

    #[test]
    fn a_pending_job_is_claimable_when_its_moment_has_come() {
        for status in JobStatus::ALL {
            let pending = status == JobStatus::Pending;
            assert_eq!(claimable(status, None, at(5)), pending);
            assert_eq!(claimable(status, Some(at(5)), at(5)), pending);
            assert_eq!(claimable(status, Some(at(4)), at(5)), pending);
            assert!(!claimable(status, Some(at(6)), at(5)));
        }
        assert_eq!(unclaimed(3), Fence { generation: 3, epoch: 0 });
    }

    #[test]
    fn a_doubt_is_open_until_it_is_answered() {
        for status in LedgerStatus::ALL {
            let open = LedgerRow { status, ..granted() };
            assert_eq!(in_doubt(&open), status == LedgerStatus::InDoubt);
            for job in JobStatus::ALL {
                let left = status == LedgerStatus::InDoubt && job.is_terminal();
                assert_eq!(unresolved(&open, job), left || status == LedgerStatus::FailedUnresolved);
            }
            assert!(!in_doubt(&LedgerRow { disproved: true, ..open }));
        }
    }

    #[test]
    fn every_purpose_has_a_name_of_its_own() {
        let names = Purpose::ALL.map(Purpose::as_str);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase())));
        assert_eq!(Purpose::Permit.as_str(), "permit");
    }
}
