//! What is amiss in rows that no history tells of: how a job is found, counts, documents, and rows of jobs that are not
//! there. Only a check asks.

use std::collections::BTreeMap;

use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_store::amiss::{Absent, Amiss, DocumentFault, DocumentKind, JobFault, Leftover};
use aetheris_store::{ErrorKind, JobRow, Placing};
use rusqlite::{Row, params};

use crate::codes::{Code, STATUSES, int};
use crate::error::Error;
use crate::queries::{Prepared, Query};
use crate::read::Reads;
use crate::{rows, tx};

/// How lists and claims find a job: a row of `jobs_arrived.sql`.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) num: i64,
    /// Its id, or what stands there.
    pub(crate) job: Result<JobId, Vec<u8>>,
    pub(crate) listed: bool,
    pub(crate) placing: Placing,
    wait_type: Option<i64>,
}

impl Arrived {
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, Error> {
        Ok(Self {
            num: row.get(0)?,
            job: job_id(row, 1),
            listed: row.get(2)?,
            placing: Placing {
                behind: row.get(8)?,
                delayed_until: rows::maybe(row, 5, rows::time)?,
                not_before: rows::maybe(row, 6, rows::time)?,
                pending: row.get(3)?,
                ready: row.get(4)?,
            },
            wait_type: row.get(7)?,
        })
    }

    /// What lists find it by that is not what its row says.
    pub(crate) fn unlike(&self, row: &JobRow, sql: &mut Prepared<'_>) -> Result<Option<JobFault>, Error> {
        let waits = row.waiting.as_ref().map(|waiting| waiting.wait_type);
        if waits.map(Code::code) != self.wait_type {
            return Ok(Some(JobFault::Wait(waits)));
        }
        for (key, value) in &row.labels {
            if !sql.exists(Query::LabelKnown, params![key, value, &row.id.to_bytes()[..], row.tenant.as_str()])? {
                return Ok(Some(JobFault::Label(key.clone())));
            }
        }
        Ok(None)
    }
}

impl Reads<'_> {
    /// What is amiss beside the jobs of these numbers; with the first of them, in the whole store.
    pub(crate) fn amiss(&mut self, from: u64, to: u64, end: u64) -> Result<Vec<Amiss>, Error> {
        // Numbers that no job can have are looked at with the first and the last that one has.
        let (first, last) = (from == 0, from < end.max(1) && to >= end);
        let (from, to) = (if first { i64::MIN } else { int(from) }, if last { i64::MAX } else { int(to) });
        let mut amiss = self.sql.all(Query::Strays, [from, to], |row| stray(row, Absent::Number(row.get(1)?)))?;
        if first {
            amiss.extend(self.sql.all(Query::StraysById, [], |row| stray(row, Absent::Id(job_id(row, 1))))?);
            amiss.extend(self.sql.first(Query::JobsMisnumbered, [], misnumbered)?.flatten());
            amiss.extend(self.miscounted()?);
            amiss.extend(self.sql.all(Query::Documents, [], document)?.into_iter().flatten());
        }
        Ok(amiss)
    }

    /// Jobs per status, by the row that keeps their numbers and by their own.
    fn miscounted(&mut self) -> Result<Option<Amiss>, Error> {
        let told = match self.counts() {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            told => Some(told?),
        };
        let counted = by_status(tx::counted(&mut self.sql)?);
        Ok((told.as_ref() != Some(&counted)).then_some(Amiss::Counts { counted, told }))
    }
}

/// No arrival has a number below nought.
fn misnumbered(row: &Row<'_>) -> Result<Option<Amiss>, Error> {
    let (count, least) = (rows::number(row, 0)?, row.get::<_, Option<i64>>(1)?);
    Ok(least.map(|least| Amiss::Numbers { count, least }))
}

fn by_status(counts: [i64; STATUSES]) -> BTreeMap<JobStatus, u64> {
    JobStatus::ALL.into_iter().zip(counts).map(|(status, jobs)| (status, jobs.unsigned_abs())).collect()
}

fn job_id(row: &Row<'_>, index: usize) -> Result<JobId, Vec<u8>> {
    let id = rows::bytes(row, index).unwrap_or_default();
    JobId::from_slice(id).ok_or_else(|| id.to_vec())
}

/// Rows of a job that is not there.
fn stray(row: &Row<'_>, of: Absent) -> Result<Amiss, Error> {
    let table = rows::text(row, 0)?;
    let what = leftover(table).ok_or_else(|| Error::Corrupt(format!("no job has rows in `{table}`")))?;
    Ok(Amiss::Stray { count: rows::number(row, 2)?, of, what })
}

/// What jobs have in a table.
pub(crate) fn leftover(table: &str) -> Option<Leftover> {
    Some(match table {
        "checkpoints" => Leftover::Checkpoints,
        "effects" => Leftover::Effects,
        "events" => Leftover::Events,
        "evidence" => Leftover::Evidence,
        "inbox" => Leftover::Signals,
        "job_labels" => Leftover::Labels,
        "ledger" => Leftover::Ledger,
        "timers" => Leftover::Timers,
        _ => return None,
    })
}

/// What is wrong with a document, if anything is.
fn document(row: &Row<'_>) -> Result<Option<Amiss>, Error> {
    let hashed =
        rows::bytes(row, 3).is_ok_and(|doc| rows::bytes(row, 2).is_ok_and(|hash| Hash::of(doc).as_bytes() == hash));
    let fault = match (hashed, row.get(4)?) {
        (false, _) => DocumentFault::Hash,
        (true, false) => DocumentFault::Plan,
        (true, true) => return Ok(None),
    };
    let kind = match rows::text(row, 0)? {
        "agent" => DocumentKind::Agent,
        "plan" => DocumentKind::Plan,
        other => return Err(Error::Corrupt(format!("a document is no `{other}`"))),
    };
    Ok(Some(Amiss::Document { fault, kind, name: row.get(1)? }))
}
