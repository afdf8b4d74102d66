//! Everything about jobs, in the order of their arrival: what a check reads.

use aetheris_core::id::SignalId;
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_store::{Dossier, Dossiers, Unreadable};
use rusqlite::params;

use crate::amiss::Found;
use crate::codes::int;
use crate::error::Trouble;
use crate::queries::{Prepared, Query};
use crate::read::Reads;
use crate::rows::{self, RawHistory};

impl Reads<'_> {
    /// The jobs of these numbers, up to the one that reaches the bound of bytes.
    pub(crate) fn dossiers(&mut self, from: u64, to: u64) -> Result<Dossiers, Trouble> {
        self.at_once(|reads| {
            let end = reads.sql.first(Query::JobsEnd, [], |row| rows::number(row, 0))?.unwrap_or(0);
            let (now, _) = reads.now()?;
            let found = reads.sql.all(Query::JobsArrived, params![int(from), int(to)], Found::read)?;
            let mut read = Dossiers { amiss: Vec::new(), end, jobs: Vec::with_capacity(found.len()), next: to };
            let mut left = limits::DOSSIERS_BYTES_MAX;
            for found in found {
                let Ok(job) = found.job else {
                    read.amiss.push(format!("job number {}: its id cannot be read", found.num));
                    continue;
                };
                let mut tell = |what: Option<String>| read.amiss.extend(what.map(|what| format!("{job}: {what}")));
                tell(found.misplaced(now));
                let dossier =
                    if found.listed { dossier(&mut reads.sql, found.num, &mut left) } else { Err(unlisted()) };
                if let Ok(dossier) = &dossier {
                    tell(found.unlike(&dossier.row, &mut reads.sql)?);
                }
                read.jobs.push(dossier.map_err(|trouble| Unreadable { error: trouble.at("check"), job }));
                if left == 0 {
                    read.next = u64::try_from(found.num).unwrap_or(0) + 1;
                    break;
                }
            }
            read.amiss.extend(reads.amiss(from, read.next, end)?);
            Ok(read)
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
    let consumed = sql.all(Query::InboxConsumed, [num], |row| rows::id(row, 0, SignalId::from_slice))?;
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
        consumed,
        effects: history.effects,
        events,
        evidence,
        kept: history.kept,
        ledger: history.ledger,
        row: history.row,
        timers,
    })
}
