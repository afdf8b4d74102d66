//! Everything about jobs, in the order of their arrival: what a check reads.

use aetheris_core::id::SignalId;
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_store::amiss::Amiss;
use aetheris_store::{Dossier, Dossiers, Placing, Unreadable};
use rusqlite::{Row, params};

use crate::amiss::Arrived;
use crate::codes::{count, int};
use crate::error::Error;
use crate::queries::{Prepared, Query};
use crate::read::Reads;
use crate::rows::{self, RawHistory};

impl Reads<'_> {
    /// The jobs of these numbers, up to the one that reaches the bound of bytes, and no more than are read at once.
    pub(crate) fn dossiers(&mut self, from: u64, to: u64) -> Result<Dossiers, Error> {
        self.at_once(|reads| {
            let number = |row: &Row<'_>| {
                Ok::<_, Error>(row.get::<_, Option<i64>>(0)?.map(|num| u64::try_from(num).unwrap_or(0)))
            };
            let end = reads.sql.first(Query::JobsEnd, [], number)?.flatten().unwrap_or(0) + 1;
            let (now, _) = reads.now()?;
            let mut read = Dossiers { amiss: Vec::new(), end, jobs: Vec::new(), next: to.max(from), now };
            if from >= to {
                return Ok(read);
            }
            let most = limits::DOSSIERS_MAX;
            let found =
                reads.sql.all(Query::JobsArrived, params![int(from), int(to - 1), count(most)], Arrived::read)?;
            let (whole, mut left) = (found.len() < most, limits::DOSSIERS_BYTES_MAX);
            let mut behind = None;
            for found in found {
                behind = Some(u64::try_from(found.num).unwrap_or(0) + 1);
                reads.dossier(&found, &mut left, &mut read)?;
                if left == 0 {
                    break;
                }
            }
            read.next = match behind {
                Some(behind) if left == 0 || !whole => behind,
                // No gap is walked, however large.
                _ => reads.sql.first(Query::JobsNext, [int(to)], number)?.flatten().map_or(to, |next| next.max(to)),
            };
            read.amiss.extend(reads.amiss(from, read.next.min(to), end)?);
            Ok(read)
        })
    }

    /// One of them, and what is amiss with how lists find it.
    fn dossier(&mut self, found: &Arrived, left: &mut usize, read: &mut Dossiers) -> Result<(), Error> {
        let Ok(job) = found.job else {
            read.amiss.push(Amiss::Id(found.num));
            return Ok(());
        };
        let placing = found.placing;
        let dossier = if found.listed { dossier(&mut self.sql, found.num, placing, left) } else { Err(unlisted()) };
        if let Ok(dossier) = &dossier {
            let fault = found.unlike(&dossier.row, &mut self.sql)?;
            read.amiss.extend(fault.map(|fault| Amiss::Job { fault, job }));
        }
        read.jobs.push(dossier.map_err(|error| Unreadable { error: error.at("check"), job, placing }));
        Ok(())
    }
}

/// What no list shows nobody looks after.
fn unlisted() -> Error {
    Error::Corrupt("its `listed` column does not match its status: no list shows it".to_owned())
}

fn dossier(sql: &mut Prepared<'_>, num: i64, placing: Placing, left: &mut usize) -> Result<Dossier, Error> {
    let found = sql.first(Query::JobByNum, [num], rows::job)?;
    let (_, row) = found.ok_or_else(|| Error::Corrupt(format!("job number {num} has gone")))?;
    let checkpoint = sql.first(Query::CheckpointRead, params![num, JobState::VERSION], rows::checkpoint)?;
    let events = sql.all(Query::EventsPage, params![num, 0, -1], rows::event)?;
    let effects = sql.all(Query::EffectsByJob, [num, i64::MIN], rows::effect)?;
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
        placing,
        row: history.row,
        timers,
    })
}
