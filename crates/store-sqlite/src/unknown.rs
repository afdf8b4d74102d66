//! Whether a unit was written, found by the names that its author gave. Asked in a write transaction, so
//! that nothing which could still bring the unit is under way.

use aetheris_core::hash::Hash;
use aetheris_core::id::EventId;
use aetheris_core::time::Timestamp;
use aetheris_store::decide::{self, Trace};
use aetheris_store::{Committed, UnitOfWork};
use rusqlite::params;

use crate::codes::{count, int};
use crate::error::Error;
use crate::queries::Query;
use crate::rows::{self, HotJob, Text};
use crate::tx::Tx;

/// What the unit has left, if it was written.
pub(crate) fn find(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<Option<Committed>, Error> {
    let Some(job) = tx.sql.first(Query::JobHot, [&unit.job.to_bytes()[..]], rows::hot_job)? else {
        return Ok(None);
    };
    for trace in decide::traces(unit) {
        let found = look_for(tx, &job, trace)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn look_for(tx: &mut Tx<'_, '_>, job: &HotJob, trace: Trace<'_>) -> Result<Option<Committed>, Error> {
    let num = job.num;
    let at = match trace {
        Trace::Events { count, first, seen } => return events(tx, num, (first, seen), count),
        Trace::Signal(signal) => {
            tx.sql.first(Query::InboxState, params![num, &signal.to_bytes()[..]], |row| rows::time(row, 1))?
        }
        Trace::Evidence(permit) => {
            tx.sql.first(Query::EvidenceAt, params![&permit.to_bytes()[..], num], |row| rows::time(row, 0))?
        }
        Trace::Effect(effect) => {
            let result = effect.result.canonical();
            let names = params![num, &effect.key.to_bytes()[..], effect.permit, Text(&result)];
            tx.sql.first(Query::EffectKnown, names, |row| rows::time(row, 0))?
        }
        Trace::Delivered(nums) => {
            for num in nums {
                if tx.sql.exists(Query::OutboxKnown, [int(*num)])? {
                    return Ok(None);
                }
            }
            Some(tx.now)
        }
        Trace::Permit(asked) => {
            let row = tx.sql.first(Query::LedgerByKey, [&asked.key.to_bytes()[..]], rows::ledger)?;
            row.filter(|row| row.permit_id == asked.permit_id).map(|row| row.updated_at)
        }
    };
    Ok(at.map(|at| Committed { at, head: job.head, seq: job.seq }))
}

fn events(
    tx: &mut Tx<'_, '_>,
    num: i64,
    (first, seen): (EventId, u64),
    events: usize,
) -> Result<Option<Committed>, Error> {
    let by_place = aetheris_fault::planted!("trace-by-place");
    if event(tx, num, int(seen) + 1)?.is_none_or(|(id, _, _)| id != first && !by_place) {
        return Ok(None);
    }
    let seq = int(seen) + count(events);
    let last = event(tx, num, seq)?;
    let (_, at, head) = last.ok_or_else(|| Error::Corrupt("a unit is there without its last event".to_owned()))?;
    Ok(Some(Committed { at, head, seq: u64::try_from(seq).unwrap_or(0) }))
}

fn event(tx: &mut Tx<'_, '_>, num: i64, seq: i64) -> Result<Option<(EventId, Timestamp, Hash)>, Error> {
    tx.sql.first(Query::EventAt, params![num, seq], |row| {
        Ok((rows::id(row, 0, EventId::from_slice)?, rows::time(row, 1)?, rows::id(row, 2, Hash::from_slice)?))
    })
}
