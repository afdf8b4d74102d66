//! Whether a unit was written, found by the names that its author gave. Asked in a write transaction, so
//! that nothing which could still bring the unit is under way.

use aetheris_core::event::EncodedEvent;
use aetheris_core::hash::Hash;
use aetheris_core::id::EventId;
use aetheris_core::time::Timestamp;
use aetheris_store::{Committed, InboxWrite, LedgerWrite, UnitOfWork};
use rusqlite::params;

use crate::codes::{count, int};
use crate::error::Trouble;
use crate::queries::Query;
use crate::rows::{self, HotJob, Text};
use crate::tx::Tx;

/// What the unit has left, if it was written.
pub(crate) fn find(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<Option<Committed>, Trouble> {
    let Some(job) = tx.sql.first(Query::JobHot, [&unit.job.to_bytes()[..]], rows::hot_job)? else {
        return Ok(None);
    };
    match (unit.events.first(), unit.expected_seq) {
        (Some(first), Some(seen)) => by_events(tx, unit, job.num, first, seen),
        (Some(_), None) => Ok(None),
        (None, _) => by_names(tx, unit, &job),
    }
}

fn by_events(
    tx: &mut Tx<'_, '_>,
    unit: &UnitOfWork,
    num: i64,
    first: &EncodedEvent,
    seen: u64,
) -> Result<Option<Committed>, Trouble> {
    if event(tx, num, int(seen) + 1)?.is_none_or(|(id, _, _)| id != first.id) {
        return Ok(None);
    }
    let seq = int(seen) + count(unit.events.len());
    let last = event(tx, num, seq)?;
    let (_, at, head) = last.ok_or_else(|| Trouble::Corrupt("a unit is there without its last event".to_owned()))?;
    Ok(Some(Committed { at, head, seq: u64::try_from(seq).unwrap_or(0) }))
}

fn event(tx: &mut Tx<'_, '_>, num: i64, seq: i64) -> Result<Option<(EventId, Timestamp, Hash)>, Trouble> {
    tx.sql.first(Query::EventAt, params![num, seq], |row| {
        Ok((rows::id(row, 0, EventId::from_slice)?, rows::time(row, 1)?, rows::id(row, 2, Hash::from_slice)?))
    })
}

fn by_names(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, job: &HotJob) -> Result<Option<Committed>, Trouble> {
    let committed = |at: Option<Timestamp>| at.map(|at| Committed { at, head: job.head, seq: job.seq });
    for write in &unit.inbox {
        if let InboxWrite::Receive { signal, .. } = write {
            let names = params![job.num, &signal.to_bytes()[..]];
            let at = tx.sql.first(Query::InboxState, names, |row| rows::time(row, 1))?;
            if at.is_some() {
                return Ok(committed(at));
            }
        }
    }
    if let Some(evidence) = unit.evidence.first() {
        let names = params![&evidence.permit_id.to_bytes()[..], job.num];
        let at = tx.sql.first(Query::EvidenceAt, names, |row| rows::time(row, 0))?;
        if at.is_some() {
            return Ok(committed(at));
        }
    }
    if let Some(effect) = unit.effects.first() {
        // Only its own: another author may have put another result under the same names.
        let result = effect.result.canonical();
        let names = params![job.num, &effect.key.to_bytes()[..], effect.permit, Text(&result)];
        let at = tx.sql.first(Query::EffectKnown, names, |row| rows::time(row, 0))?;
        if at.is_some() {
            return Ok(committed(at));
        }
    }
    for write in &unit.ledger {
        if let LedgerWrite::Permit(asked) = write {
            let row = tx.sql.first(Query::LedgerByKey, [&asked.key.to_bytes()[..]], rows::ledger)?;
            if let Some(row) = row.filter(|row| row.permit_id == asked.permit_id) {
                return Ok(committed(Some(row.updated_at)));
            }
        }
    }
    Ok(None)
}
