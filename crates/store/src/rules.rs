//! The rules of a commit that need no table: every backend asks these, so that none has its own.
//!
//! The order in which a commit is checked is part of the contract (CONTRACT.md, J8): [`shape`], the job,
//! [`aetheris_core::lease::admit`], [`permission`], [`sequence`], the plan and the client's key, kept
//! signals, the ledger, effects, the inbox, [`bounds`]. The first that refuses is the answer.

use aetheris_core::event::EventKind;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::{Fence, Guard, Holder};
use aetheris_core::ledger::{self, LedgerRefusal, LedgerRow, LedgerStatus, PermitRequest, Settle};
use aetheris_core::limits;
use aetheris_core::time::Timestamp;

use crate::error::{ErrorKind, Refusal, StoreError};
use crate::unit::{InboxWrite, LedgerWrite, NewEffect, UnitOfWork};

/// The envelope that a bounded value may have around it in an event or in evidence, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 4_096;

/// Whether a unit makes sense at all. What does not is a fault of its author and fails as
/// [`ErrorKind::Invalid`]; nothing is looked up for it.
///
/// # Errors
/// What is wrong with it.
pub fn shape(unit: &UnitOfWork) -> Result<(), StoreError> {
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
    } else {
        return Ok(());
    };
    Err(StoreError::new(ErrorKind::Invalid, "commit", wrong))
}

/// Permissions need the writer's own unexpired lease; every other write needs only its guard.
///
/// # Errors
/// [`Refusal::LeaseExpired`].
pub fn permission(unit: &UnitOfWork, holder: Option<&Holder>, now: Timestamp) -> Result<(), Refusal> {
    let asked = unit.ledger.iter().any(|write| matches!(write, LedgerWrite::Permit(_)));
    let live = matches!(unit.guard, Guard::Run(_)) && holder.is_some_and(|holder| holder.is_live(now));
    if asked && !live && !aetheris_fault::planted!("permit-without-lease") { Err(Refusal::LeaseExpired) } else { Ok(()) }
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

/// Decides a permission against the row of its key, as the unit's changes so far leave it.
///
/// # Errors
/// [`LedgerRefusal`].
pub fn grant(
    (job, fence): (JobId, Fence),
    existing: Option<&LedgerRow>,
    request: &PermitRequest,
    now: Timestamp,
) -> Result<LedgerRow, LedgerRefusal> {
    if aetheris_fault::planted!("ledger-not-arbitrated") {
        return ledger::grant(job, fence, None, &PermitRequest { permit: 1, ..request.clone() }, now);
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

/// The bounds. `seq` is the place of the last event before the unit; `kept` the number of kept signals
/// with it.
///
/// # Errors
/// [`Refusal::Bound`].
pub fn bounds(unit: &UnitOfWork, seq: u64, kept: usize) -> Result<(), Refusal> {
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
        return bound(limits::PAYLOAD_BYTES_MAX, "payload bytes");
    }
    if kept > limits::KEPT_SIGNALS_MAX {
        return bound(limits::KEPT_SIGNALS_MAX, "kept signals");
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
