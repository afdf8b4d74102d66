//! What a restore holds by the row: jobs that no event can hold, as their histories or rows cannot be read.

use std::collections::BTreeSet;

use aetheris_core::event::{EventKind, PauseReason};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::time::Timestamp;
use aetheris_store::StoreError;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use crate::codes::Code;
use crate::copy::Staged;
use crate::error::Error;
use crate::queries::{Prepared, Query};
use crate::{rows, tx};

/// The jobs that a restore has held by their rows, where their ids can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRest {
    /// The hold has written over what could not be read of their rows. What their histories say of them is for the caller to
    /// look at.
    pub held: Vec<JobId>,
    /// They cannot go on: row or history cannot be read.
    pub unreadable: Vec<JobId>,
}

/// A job that has not ended.
struct Open {
    /// None where it cannot be read.
    id: Option<JobId>,
    num: i64,
    /// Whether its row can be read.
    readable: bool,
}

/// The jobs that have not ended, and are not paused or are. One whose status is none at all has not ended.
fn open_jobs(conn: &Connection, paused: bool) -> Result<Vec<Open>, Error> {
    let mut jobs = conn.prepare(Query::JobsOpen.sql())?;
    let mut row = conn.prepare(Query::JobByNum.sql())?;
    let mut nums = jobs.query([paused])?;
    let mut found = Vec::new();
    while let Some(num) = nums.next()? {
        let num = num.get(0)?;
        let read = |row: &Row<'_>| Ok((rows::id_of_job(row).ok(), rows::job(row).is_ok()));
        let (id, readable) = row.query_row([num], read)?;
        found.push(Open { id, num, readable });
    }
    Ok(found)
}

/// How a job has ended by its events, if it has.
fn ended_by_events(conn: &Connection, num: i64) -> Result<Option<JobStatus>, Error> {
    let ends = [
        (EventKind::JobCompleted, JobStatus::Completed),
        (EventKind::JobFailed, JobStatus::Failed),
        (EventKind::JobCancelled, JobStatus::Cancelled),
    ];
    let [completed, failed, cancelled] = ends.map(|(kind, _)| kind.code());
    let kind = conn
        .query_row(Query::EventOfEnd.sql(), params![num, completed, failed, cancelled], |row| row.get::<_, u8>(0))
        .optional()?;
    Ok(ends.into_iter().find_map(|(end, status)| (kind == Some(end.code())).then_some(status)))
}

impl Staged {
    /// Holds by their rows the jobs that no event could hold: those whose histories cannot be read, as the caller has
    /// found, and those whose rows cannot be. A build that can read them will not go on with them by itself. Paused jobs
    /// whose rows cannot be read stay as they are. Nobody may have the copy open.
    ///
    /// # Errors
    /// The copy cannot be written, or a job is open that the caller should have held.
    pub fn hold_rest(&self, now: Timestamp, unreadable: &[JobId]) -> Result<HeldRest, StoreError> {
        self.held_rest(now, unreadable).map_err(|error| error.at("restore"))
    }

    fn held_rest(&self, now: Timestamp, unreadable: &[JobId]) -> Result<HeldRest, Error> {
        let mut conn = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let tx = conn.transaction()?;
        let rest = open_jobs(&tx, false)?;
        let mut ended = Vec::new();
        // Those that were held before stay as they are, and are named again.
        let before = open_jobs(&tx, true)?.into_iter().filter(|job| !job.readable);
        let mut left: Vec<JobId> = before.filter_map(|job| job.id).collect();
        let unreadable: BTreeSet<&JobId> = unreadable.iter().collect();
        for job in &rest {
            match &job.id {
                Some(id) if job.readable && !unreadable.contains(id) => {
                    return Err(Error::Invalid(format!("{id} can be read and is not held")));
                }
                Some(_) => {}
                None => tracing::warn!(number = job.num, "a job whose id cannot be read is held by its row"),
            }
            let end = if job.readable { None } else { ended_by_events(&tx, job.num)? };
            let (status, reason, since) = match end {
                Some(status) => {
                    ended.push(job.num);
                    (status.code(), None, None)
                }
                None => (JobStatus::Paused.code(), Some(PauseReason::Restored.code()), Some(now.micros())),
            };
            tx.execute(Query::JobHold.sql(), params![job.num, status, reason, since])?;
        }
        // A hold writes what may have been all that was damaged.
        let mut damaged = BTreeSet::new();
        for job in &rest {
            let read = |row: &Row<'_>| Ok(rows::job(row).is_ok());
            if !tx.query_row(Query::JobByNum.sql(), [job.num], read)? {
                damaged.insert(job.num);
            }
        }
        tx::recount(&mut Prepared::new(&tx))?;
        tx.commit()?;
        let mut held = Vec::new();
        for (num, id) in rest.into_iter().filter_map(|job| Some((job.num, job.id?))) {
            match damaged.contains(&num) || unreadable.contains(&id) {
                true => left.push(id),
                false if ended.contains(&num) => tracing::warn!(job = %id, "its row did not say that it has ended"),
                false => held.push(id),
            }
        }
        Ok(HeldRest { held, unreadable: left })
    }
}
