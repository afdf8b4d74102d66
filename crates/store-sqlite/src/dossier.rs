//! Everything about jobs, in the order of their arrival: what a check reads.

use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_store::{Dossier, Dossiers, Unreadable};
use rusqlite::params;

use crate::codes::int;
use crate::error::Trouble;
use crate::queries::{Prepared, Query};
use crate::read::Reads;
use crate::rows::{self, RawHistory};

impl Reads<'_> {
    /// The jobs of these numbers, up to the one that reaches the bound of bytes.
    pub(crate) fn dossiers(&mut self, from: u64, to: u64) -> Result<Dossiers, Trouble> {
        self.at_once(|reads| {
            let sql = &mut reads.sql;
            let end = sql.first(Query::JobsEnd, [], |row| rows::number(row, 0))?.unwrap_or(0);
            let found = sql.all(Query::JobsArrived, params![int(from), int(to)], |row| {
                Ok::<_, Trouble>((row.get::<_, i64>(0)?, rows::id(row, 1, JobId::from_slice)?, row.get::<_, bool>(2)?))
            })?;
            let (mut jobs, mut left) = (Vec::with_capacity(found.len()), limits::DOSSIERS_BYTES_MAX);
            for (num, job, listed) in found {
                let read = if listed { dossier(sql, num, &mut left) } else { Err(unlisted()) };
                jobs.push(read.map_err(|trouble| Unreadable { error: trouble.at("check"), job }));
                if left == 0 {
                    let next = u64::try_from(num).unwrap_or(0) + 1;
                    return Ok(Dossiers { end, jobs, next });
                }
            }
            Ok(Dossiers { end, jobs, next: to })
        })
    }
}

/// What no list shows nobody looks after.
fn unlisted() -> Trouble {
    Trouble::Corrupt("its `listed` column does not match its status: no list shows it".to_owned())
}

fn dossier(sql: &mut Prepared<'_>, num: i64, left: &mut usize) -> Result<Dossier, Trouble> {
    let found = sql.first(Query::JobByNum, [num], rows::job)?;
    let (_, row) = found.ok_or_else(|| Trouble::Corrupt(format!("job number {num} has gone")))?;
    let checkpoint = sql.first(Query::CheckpointRead, params![num, JobState::VERSION], rows::checkpoint)?;
    let events = sql.all(Query::EventsPage, params![num, 0, -1], rows::event)?;
    let effects = sql.all(Query::EffectsByJob, [num], rows::effect)?;
    let kept = sql.all(Query::InboxKept, [num], rows::kept)?;
    let ledger = sql.all(Query::LedgerByJob, [num], rows::ledger)?;
    let evidence = sql.all(Query::EvidenceByJob, [num], rows::evidence)?;
    let timers = sql.all(Query::TimersByJob, [&row.id.to_bytes()[..]], rows::timer)?;
    let bytes = events.iter().map(|event| event.payload.len()).sum::<usize>()
        + effects.iter().map(|effect| effect.result.len()).sum::<usize>()
        + kept.iter().map(rows::RawSignal::bytes).sum::<usize>()
        + checkpoint.as_ref().map_or(0, |newest| newest.state.len());
    *left = left.saturating_sub(bytes);
    // What stands in it is parsed like that of a history; the events stay as they are.
    let raw = RawHistory { checkpoint, effects, events: Vec::new(), kept, ledger, row };
    let history = raw.decode()?;
    Ok(Dossier {
        checkpoint: history.checkpoint,
        effects: history.effects,
        events,
        evidence,
        kept: history.kept,
        ledger: history.ledger,
        row: history.row,
        timers,
    })
}
