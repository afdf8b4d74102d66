//! A job's history, within a bound where whoever asks for it must not be held up.

use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_core::time::Timestamp;
use aetheris_store::JobRow;
use rusqlite::params;

use crate::codes::int;
use crate::error::Error;
use crate::queries::{Prepared, Query};
use crate::rows::{self, RawHistory};

/// How much may be read: where there is more, nothing is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    bytes: usize,
    events: u64,
}

impl Bound {
    /// Of what comes with a claim: it is read inside the transaction that writes.
    pub(crate) const CLAIM: Self = Self { bytes: limits::LOOK_BYTES_MAX, events: limits::CLAIM_EVENTS_MAX };
    /// Of what is read and parsed on the thread that asks.
    pub(crate) const LOOK: Self = Self { bytes: limits::LOOK_BYTES_MAX, events: limits::LOOK_EVENTS_MAX };
    /// Of what a thread of its own reads.
    pub(crate) const NONE: Self = Self { bytes: usize::MAX, events: u64::MAX };
}

/// Where a history begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    /// With the first event.
    First,
    /// With the newest checkpoint.
    Checkpoint,
    /// Behind this event, and of effects with those that were recorded at this time or later.
    Behind(u64, Timestamp),
}

/// Which part of a history is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) from: Start,
    /// Whether a run may have asked for permission: before the first claim none has.
    pub(crate) ledger: bool,
}

/// Reads it in the current transaction; nothing where it is more than the bound.
pub(crate) fn read(
    sql: &mut Prepared<'_>,
    num: i64,
    row: JobRow,
    wanted: Wanted,
    bound: Bound,
) -> Result<Option<RawHistory>, Error> {
    let mut left = bound.bytes;
    let size = |row: &rusqlite::Row<'_>| Ok::<(u64, usize), Error>((rows::number(row, 0)?, rows::number(row, 1)?));
    let (newest, behind, since) = match wanted.from {
        Start::First => (None, 0, Timestamp::from_micros(i64::MIN)),
        Start::Checkpoint => {
            let newest = sql.first(Query::CheckpointSize, params![num, JobState::VERSION], size)?;
            (newest, 0, Timestamp::from_micros(i64::MIN))
        }
        Start::Behind(seq, since) => (None, seq, since),
    };
    let (after, bytes) = newest.unwrap_or((behind, 0));
    let short = aetheris_fault::planted!("claim-history-one-short") && bound.events == limits::CLAIM_EVENTS_MAX;
    if row.seq.saturating_sub(after) > bound.events + u64::from(short) || bytes > left {
        return Ok(None);
    }
    left -= bytes;
    let checkpoint = match newest {
        Some(_) => sql.first(Query::CheckpointRead, params![num, JobState::VERSION], rows::checkpoint)?,
        None => None,
    };
    let Some(mut events) = within(sql, Query::EventsPage, params![num, int(after), -1], &mut left, |row| {
        rows::event(row).map(|event| (event.payload.len(), event))
    })?
    else {
        return Ok(None);
    };
    if short {
        events.truncate(usize::try_from(bound.events).unwrap_or(usize::MAX));
    }
    let Some(kept) =
        within(sql, Query::InboxKept, [num], &mut left, |row| rows::kept(row).map(|signal| (signal.bytes(), signal)))?
    else {
        return Ok(None);
    };
    let mut history = RawHistory { checkpoint, effects: Vec::new(), events, kept, ledger: Vec::new(), row };
    if wanted.ledger {
        let Some(effects) = within(sql, Query::EffectsByJob, [num, since.micros()], &mut left, |row| {
            rows::effect(row).map(|effect| (effect.result.len(), effect))
        })?
        else {
            return Ok(None);
        };
        history.effects = effects;
        history.ledger = sql.all(Query::LedgerByJob, [num], rows::ledger)?;
    }
    Ok(Some(history))
}

/// All rows, as long as their bytes are left.
fn within<T>(
    sql: &mut Prepared<'_>,
    query: Query,
    params: impl rusqlite::Params,
    left: &mut usize,
    mut map: impl FnMut(&rusqlite::Row<'_>) -> Result<(usize, T), Error>,
) -> Result<Option<Vec<T>>, Error> {
    let mut rows = sql.get(query)?.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (bytes, row) = map(row)?;
        let Some(rest) = left.checked_sub(bytes) else {
            return Ok(None);
        };
        *left = rest;
        found.push(row);
    }
    Ok(Some(found))
}

/// A job's history as one look has found it.
pub(crate) enum Looked {
    /// There is no such job.
    Absent,
    /// It is within the bound.
    Found(Box<RawHistory>),
    /// There is more than may be read here.
    Much,
}

/// Reads the history of a job that was just found: its number and its row.
pub(crate) fn look(
    sql: &mut Prepared<'_>,
    (num, row): (i64, JobRow),
    from: Start,
    bound: Bound,
) -> Result<Looked, Error> {
    let wanted = Wanted { from, ledger: true };
    Ok(read(sql, num, row, wanted, bound)?.map_or(Looked::Much, |history| Looked::Found(Box::new(history))))
}
