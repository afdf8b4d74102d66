//! Whether a unit of work is accepted: every check, in the order of the contract, before its first write.

use aetheris_core::event::EventKind;
use aetheris_core::id::{IdempotencyKey, SignalId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::{self, Fence};
use aetheris_core::ledger::LedgerRow;
use aetheris_store::rules::Kept;
use aetheris_store::{CommitError, Committed, InboxWrite, LeaseChange, LedgerWrite, Refusal, UnitOfWork, rules};
use rusqlite::{Row, params};

use crate::codes::int;
use crate::error::{Stop, Trouble};
use crate::queries::Query;
use crate::rows::{self, HotJob};
use crate::tx::Tx;
use crate::write;

/// A change of the ledger that was granted: the row as it was found, and as it is to be.
pub(crate) struct LedgerStep {
    pub(crate) before: Option<LedgerRow>,
    pub(crate) after: LedgerRow,
}

/// What the checks have found: all that the writes need.
pub(crate) struct Decided {
    /// The job as it is; none for a new one.
    pub(crate) before: Option<HotJob>,
    pub(crate) fence: Fence,
    pub(crate) ledger: Vec<LedgerStep>,
}

/// Checks a unit and writes it, or leaves everything as it is.
pub(crate) fn apply(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<Committed, Stop> {
    rules::shape(unit).map_err(|error| Stop::Answer(CommitError::Failed(error)))?;
    let decided = decide(tx, unit)?;
    write::put(tx, unit, &decided).map_err(Stop::Broken)
}

fn decide(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<Decided, Stop> {
    let id = unit.job.to_bytes();
    let before = tx.sql.first(Query::JobHot, [&id[..]], rows::hot_job)?;
    if before.is_none() && unit.create.is_none() {
        return Err(Refusal::UnknownJob.into());
    }
    let fence = before.as_ref().map_or(rules::unclaimed(tx.generation), |job| job.fence);
    let holder = before.as_ref().and_then(|job| job.holder.as_ref());
    let seq = before.as_ref().map_or(0, |job| job.seq);
    if !aetheris_fault::planted!("fence-not-checked") {
        lease::admit(unit.guard, fence, holder, tx.now).map_err(Refusal::Guard)?;
    }
    rules::permission(unit, holder, tx.now)?;
    rules::sequence(unit, seq)?;
    check_place(tx, unit, before.as_ref())?;
    check_plan(tx, unit)?;
    check_client_key(tx, unit)?;
    let num = before.as_ref().map(|job| job.num);
    if let Some(expected) = &unit.expected_signals {
        let kept = |row: &Row<'_>| Ok::<i64, Trouble>(row.get(0)?);
        let kept = tx.sql.first(Query::InboxCountOfKey, params![num, expected.key], kept)?;
        rules::signals(expected, kept.and_then(|kept| usize::try_from(kept).ok()).unwrap_or(0))?;
    }
    let ledger = check_ledger(tx, unit, fence)?;
    for effect in &unit.effects {
        let row = current(tx, &ledger, effect.key)?;
        rules::effect(row.filter(|row| row.job == unit.job).as_ref(), effect)?;
    }
    let kept = check_inbox(tx, unit, num)?;
    rules::bounds(unit, seq, kept)?;
    check_holding(unit, before.as_ref())?;
    Ok(Decided { before, fence, ledger })
}

/// Nothing is appended behind a gap: no event could ever follow.
fn check_place(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, before: Option<&HotJob>) -> Result<(), Stop> {
    let Some(job) = before.filter(|_| !unit.events.is_empty()) else {
        return Ok(());
    };
    if tx.sql.exists(Query::EventAt, params![job.num, int(job.seq)])? {
        return Ok(());
    }
    let ahead = Trouble::Corrupt(format!("the row of {} is ahead of its events", unit.job));
    Err(Stop::Answer(CommitError::Failed(ahead.at("commit"))))
}

fn check_plan(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<(), Stop> {
    if !unit.events.iter().any(|event| event.kind == EventKind::PlanGenerated) {
        return Ok(());
    }
    match unit.row.as_ref().and_then(|row| row.plan_hash) {
        Some(hash) if !tx.sql.exists(Query::PlanKnown, [&hash.as_bytes()[..]])? => Err(Refusal::UnknownPlan.into()),
        Some(_) | None => Ok(()),
    }
}

fn check_client_key(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<(), Stop> {
    let Some((new, client)) = unit.create.as_ref().and_then(|new| Some((new, new.client_key.as_ref()?))) else {
        return Ok(());
    };
    let found = tx.sql.first(
        Query::ClientKey,
        params![new.agent.as_str(), client.key, new.tenant.as_str()],
        rows::client_key,
    )?;
    match found {
        Some((job, hash)) if hash == client.body_hash => Err(Refusal::Duplicate(job).into()),
        Some((job, _)) => Err(Refusal::KeyConflict(job).into()),
        None => Ok(()),
    }
}

/// The ledger's row of a key as the unit's changes so far leave it.
fn current(tx: &mut Tx<'_, '_>, steps: &[LedgerStep], key: IdempotencyKey) -> Result<Option<LedgerRow>, Trouble> {
    match steps.iter().rev().find(|step| step.after.key == key) {
        Some(step) => Ok(Some(step.after.clone())),
        None => tx.sql.first(Query::LedgerByKey, [&key.to_bytes()[..]], rows::ledger),
    }
}

/// Whether a success of the key is kept that the job's history did not go on with.
fn succeeded(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, key: IdempotencyKey) -> Result<bool, Trouble> {
    Ok(tx.sql.exists(Query::EvidenceOfSuccess, params![&unit.job.to_bytes()[..], &key.to_bytes()[..]])?)
}

/// Each change sees those before it in the unit.
fn check_ledger(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, fence: Fence) -> Result<Vec<LedgerStep>, Stop> {
    let mut steps = Vec::with_capacity(unit.ledger.len());
    for write in &unit.ledger {
        let step = match write {
            LedgerWrite::Permit(request) => {
                let before = current(tx, &steps, request.key)?;
                let succeeded = before.is_some() && succeeded(tx, unit, request.key)?;
                let after = rules::grant((unit.job, fence), before.as_ref(), request, succeeded, tx.reading());
                LedgerStep { before, after: after.map_err(Refusal::Ledger)? }
            }
            LedgerWrite::Settle(settle) => {
                let before = current(tx, &steps, settle.key)?.filter(|row| row.job == unit.job);
                let after = rules::settle(unit.job, before.as_ref(), settle, tx.now).map_err(Refusal::Ledger)?;
                LedgerStep { before, after }
            }
            LedgerWrite::Disprove(disproof) => {
                let before = current(tx, &steps, disproof.key)?.filter(|row| row.job == unit.job);
                let after = rules::disprove(unit.job, before.as_ref(), disproof, tx.reading());
                LedgerStep { before, after: after.map_err(Refusal::Ledger)? }
            }
            LedgerWrite::See { key, permit_id } => {
                let before = current(tx, &steps, *key)?.filter(|row| row.job == unit.job);
                let after = rules::see(unit.job, before.as_ref(), (*key, *permit_id), tx.reading());
                LedgerStep { before, after: after.map_err(Refusal::Ledger)? }
            }
        };
        steps.push(step);
    }
    Ok(steps)
}

/// What is kept with a unit that adds to it. Nothing is counted for one that does not.
fn check_inbox(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, num: Option<i64>) -> Result<Kept, Stop> {
    if unit.inbox.is_empty() {
        return Ok(Kept::default());
    }
    let mut kept = Kept::default();
    let mut received: Vec<(SignalId, Kept)> = Vec::new();
    let mut consumed = Vec::new();
    if let Some(num) = num {
        let count = |row: &Row<'_>| {
            let (bytes, count, memory) = (rows::number(row, 1)?, rows::number(row, 0)?, rows::number(row, 2)?);
            Ok::<_, Trouble>(Kept { bytes, count, memory })
        };
        kept = tx.sql.first(Query::InboxCount, [num], count)?.unwrap_or_default();
    }
    for write in &unit.inbox {
        let (InboxWrite::Receive { signal, .. } | InboxWrite::Consume(signal)) = write;
        let state = |row: &Row<'_>| {
            let (bytes, memory) = (rows::number(row, 2)?, rows::number(row, 3)?);
            Ok::<(i64, Kept), Trouble>((row.get(0)?, Kept { bytes, count: 1, memory }))
        };
        let stored = match num {
            Some(num) => tx.sql.first(Query::InboxState, params![num, &signal.to_bytes()[..]], state)?,
            None => None,
        };
        let before = received.iter().find(|(seen, _)| seen == signal).map(|(_, one)| *one);
        match write {
            InboxWrite::Receive { delivered: false, payload, .. } if stored.is_none() && before.is_none() => {
                let one = Kept::of(payload);
                received.push((*signal, one));
                kept = kept.plus(one);
            }
            InboxWrite::Receive { .. } => {}
            InboxWrite::Consume(_) => {
                let there = stored.filter(|(state, _)| *state == 0).map(|(_, one)| one).or(before);
                let Some(one) = there.filter(|_| !consumed.contains(signal)) else {
                    return Err(Stop::Answer(CommitError::Failed(rules::not_kept())));
                };
                consumed.push(*signal);
                kept = kept.less(one);
            }
        }
    }
    Ok(if received.is_empty() { Kept::default() } else { kept })
}

/// A running job has a holder, and nothing else has one: the table says so as well, but there it would
/// end the whole transaction.
fn check_holding(unit: &UnitOfWork, before: Option<&HotJob>) -> Result<(), Stop> {
    let status = unit.row.as_ref().map(|row| row.status).or(before.map(|job| job.status));
    let held = unit.lease == LeaseChange::Keep && before.is_some_and(|job| job.holder.is_some());
    if held == (status == Some(JobStatus::Running)) {
        return Ok(());
    }
    Err(Stop::invalid("a running job has a holder, and nothing else has one"))
}
