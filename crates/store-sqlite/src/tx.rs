//! One write transaction: what it has read of the store's own row, and what it changes of it at its end.

use aetheris_core::id::{BootId, JobId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::time::{Reading, Timestamp};
use aetheris_store::ErrorKind;
use aetheris_store::clock::{Look, Mark, StoreClock};
use rusqlite::{Row, params};

use crate::codes::{self, Code, STATUSES};
use crate::error::Error;
use crate::queries::{Prepared, Query};
use crate::rows;

/// The row of `meta`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub(crate) generation: u32,
    pub(crate) mark: Mark,
    /// Transactions that wrote no event.
    writes: i64,
}

impl Meta {
    /// Reads it in the current transaction.
    pub(crate) fn read(sql: &mut Prepared<'_>) -> Result<Self, Error> {
        let found = sql.first(Query::MetaRead, [], |row| {
            let boot_id = rows::maybe(row, 4, |row, i| rows::id(row, i, BootId::from_slice))?;
            let mark = Mark { boot: row.get(3)?, boot_id, clock: row.get(1)?, offset: row.get(2)? };
            Ok::<_, Error>(Self { generation: rows::number(row, 0)?, mark, writes: row.get(5)? })
        })?;
        found.ok_or_else(|| Error::Corrupt("the table `meta` is empty".to_owned()))
    }
}

/// What a transaction has changed, for whoever hears of it after its COMMIT.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Payload and row bytes.
    pub(crate) bytes: u64,
    /// Whether a job became claimable.
    pub(crate) claimable: bool,
    /// Events.
    pub(crate) events: u64,
    /// The number of the last of them.
    pub(crate) last_event: Option<i64>,
    /// Jobs per status, by the status's number.
    pub(crate) counts: [i64; STATUSES],
    /// The first moment from which on a job written here can be claimed.
    pub(crate) next_due: Option<Timestamp>,
    /// Whether something was promised.
    pub(crate) promised: bool,
    /// How far the database has come, where its folder is to know.
    pub(crate) reached: Option<u64>,
    /// Rows.
    pub(crate) rows: u64,
    /// Accepted units.
    pub(crate) units: u64,
    /// Jobs written, with the place of their last event.
    pub(crate) written: Vec<(JobId, u64)>,
}

/// A write transaction after its BEGIN IMMEDIATE.
pub(crate) struct Tx<'t, 'c> {
    pub(crate) changes: Changes,
    pub(crate) generation: u32,
    /// The store's time: one for everything in the transaction.
    pub(crate) now: Timestamp,
    pub(crate) sql: &'t mut Prepared<'c>,
    /// The number of the boot clock that was asked for last.
    boot: Option<(BootId, i64)>,
    /// The number of the tenant that was asked for last.
    tenant: Option<(TenantId, i64)>,
    /// Jobs that this transaction made pending and that nobody has claimed in it.
    unclaimed: Vec<i64>,
    look: Look,
    mark: Mark,
    mark_wanted: bool,
    writes: i64,
}

impl<'t, 'c> Tx<'t, 'c> {
    /// Reads the store's row and its clock.
    pub(crate) fn open(sql: &'t mut Prepared<'c>, clock: &StoreClock) -> Result<Self, Error> {
        let Meta { generation, mark, writes } = Meta::read(sql)?;
        let look = clock.look(Some(mark));
        let changes = Changes::default();
        Ok(Self {
            changes,
            generation,
            now: look.now,
            sql,
            boot: None,
            tenant: None,
            unclaimed: Vec::new(),
            look,
            mark,
            mark_wanted: false,
            writes,
        })
    }

    /// Both clocks: one reading for everything in the transaction.
    pub(crate) fn reading(&self) -> Reading {
        self.look.reading()
    }

    /// What the clock was when the transaction began.
    pub(crate) fn look(&self) -> Look {
        self.look
    }

    /// The mark that the transaction leaves, if it writes.
    pub(crate) fn mark(&self) -> Mark {
        self.look.mark.unwrap_or(self.mark)
    }

    /// Writes the clock's mark with this transaction, whether or not it is due: the smallest write there is.
    pub(crate) fn write_mark(&mut self) {
        self.mark_wanted = true;
    }

    /// Runs a statement that must change exactly one row: the last wall behind the checks.
    pub(crate) fn exactly_one(&mut self, query: Query, params: impl rusqlite::Params) -> Result<(), Error> {
        let changed = self.sql.run(query, params)?;
        self.changes.rows += 1;
        if changed == 1 {
            return Ok(());
        }
        Err(Error::Invalid(format!("{query:?} changed {changed} rows where its checks had found one")))
    }

    /// Runs a statement that may change rows; how many.
    pub(crate) fn run(&mut self, query: Query, params: impl rusqlite::Params) -> Result<usize, Error> {
        let changed = self.sql.run(query, params)?;
        self.changes.rows += u64::try_from(changed).unwrap_or(0);
        Ok(changed)
    }

    /// The number that a boot clock has in this database, given to it when it is first met.
    pub(crate) fn boot_num(&mut self, id: BootId) -> Result<i64, Error> {
        if let Some((_, num)) = self.boot.filter(|(known, _)| *known == id) {
            return Ok(num);
        }
        let bytes = id.to_bytes();
        let num = |row: &rusqlite::Row<'_>| Ok::<i64, Error>(row.get(0)?);
        let num = match self.sql.first(Query::BootNum, [&bytes[..]], num)? {
            Some(num) => num,
            None => {
                self.exactly_one(Query::BootInsert, [&bytes[..]])?;
                self.sql.connection().last_insert_rowid()
            }
        };
        self.boot = Some((id, num));
        Ok(num)
    }

    /// The number that a tenant has in this database, given to it when it is first met.
    pub(crate) fn tenant_num(&mut self, tenant: &TenantId) -> Result<i64, Error> {
        if let Some((_, num)) = self.tenant.as_ref().filter(|(known, _)| known == tenant) {
            return Ok(*num);
        }
        let num = |row: &rusqlite::Row<'_>| Ok::<i64, Error>(row.get(0)?);
        let num = match self.sql.first(Query::TenantNum, [tenant.as_str()], num)? {
            Some(num) => num,
            None => {
                self.exactly_one(Query::TenantInsert, [tenant.as_str()])?;
                self.sql.connection().last_insert_rowid()
            }
        };
        self.tenant = Some((tenant.clone(), num));
        Ok(num)
    }

    /// Counts a job's change of status.
    pub(crate) fn moved(&mut self, from: Option<JobStatus>, to: JobStatus) {
        if from == Some(to) {
            return;
        }
        let mut count = |status: JobStatus, by: i64| {
            if let Some(place) = usize::try_from(status.code()).ok().and_then(|at| self.changes.counts.get_mut(at)) {
                *place += by;
            }
        };
        if let Some(from) = from {
            count(from, -1);
        }
        count(to, 1);
    }

    /// A job became pending: it is listed if it still is at the end.
    pub(crate) fn arrived(&mut self, num: i64) {
        self.unclaimed.push(num);
    }

    /// A job that is claimed here as well stays out of the lists.
    pub(crate) fn claimed(&mut self, num: i64) {
        self.unclaimed.retain(|unclaimed| *unclaimed != num);
    }

    /// Lists the jobs that nobody has claimed and writes what has changed of the store's own row. COMMIT comes next. With
    /// `noted`, it says how far the database has come.
    pub(crate) fn finish(mut self, noted: bool) -> Result<Changes, Error> {
        for num in std::mem::take(&mut self.unclaimed) {
            self.run(Query::JobEnlist, [num])?;
        }
        let counted = self.changes.counts.iter().any(|count| *count != 0);
        // The number of the last event tells of a write that has events; of others this row does.
        let silent = self.changes.events == 0;
        let due = counted || silent || self.look.mark.is_some();
        if self.mark_wanted || (self.changes.rows > 0 && due) {
            self.changes.rows += 1;
            if !self.count(self.changes.counts, silent)? {
                // One job's row was damaged, or the counts were: no statistic refuses what is right by itself.
                tracing::warn!("the numbers of jobs per status did not fit the jobs: they are counted anew");
                recount(self.sql)?;
                if !self.count([0; STATUSES], silent)? {
                    return Err(Error::Corrupt("the table `meta` is empty".to_owned()));
                }
            }
        }
        if noted && self.changes.rows > 0 {
            self.changes.reached = self.reached()?;
        }
        Ok(self.changes)
    }

    /// How far the database has come: the number of its last event, and of transactions that had none.
    fn reached(&mut self) -> Result<Option<u64>, Error> {
        if let Some(num) = self.changes.last_event {
            // One with events leaves the other number as it was.
            return Ok(Some(self.writes.saturating_add(num).unsigned_abs()));
        }
        let reached = |row: &Row<'_>| Ok::<i64, Error>(row.get(0)?);
        Ok(self.sql.first(Query::MetaWrites, [], reached)?.map(i64::unsigned_abs))
    }

    /// Writes the store's own row, unless a count would be none after it: whether it did.
    fn count(&mut self, counts: [i64; STATUSES], silent: bool) -> Result<bool, Error> {
        let mark = self.mark();
        let boot_id = mark.boot_id.map(BootId::to_bytes);
        let [pending, running, waiting, parked, completed, failed, cancelled, paused] = counts;
        let changed = self.sql.run(
            Query::MetaUpdate,
            params![
                mark.clock,
                mark.offset,
                mark.boot,
                pending,
                running,
                waiting,
                parked,
                completed,
                failed,
                cancelled,
                paused,
                silent,
                boot_id.as_ref().map(|bytes| &bytes[..]),
                // Each request makes one job at most.
                codes::count(limits::WRITER_BATCH_MAX),
            ],
        );
        Ok(changed.map_err(own_row)? == 1)
    }
}

/// What keeps the store's own row from being written is damage of the store, and no fault of a request.
fn own_row(error: rusqlite::Error) -> Error {
    match Error::from(error) {
        error if error.kind() == ErrorKind::Invalid => {
            Error::Corrupt(format!("the table `meta` cannot be written: {error}"))
        }
        error => error,
    }
}

/// Jobs per status, by the status's number, as their rows have it. A status that is none has no number here.
pub(crate) fn counted(sql: &mut Prepared<'_>) -> Result<[i64; STATUSES], Error> {
    let mut counts = [0; STATUSES];
    let row = |row: &Row<'_>| Ok::<(i64, i64), Error>((row.get(0)?, row.get(1)?));
    for (status, jobs) in sql.all(Query::JobsCounted, [], row)? {
        if let Some(count) = usize::try_from(status).ok().and_then(|at| counts.get_mut(at)) {
            *count = jobs;
        }
    }
    Ok(counts)
}

/// Counts the jobs anew.
pub(crate) fn recount(sql: &mut Prepared<'_>) -> Result<(), Error> {
    let counts = counted(sql)?;
    sql.run(Query::MetaRecount, counts).map_err(own_row)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aetheris_store::system::ManualClock;
    use rusqlite::{Connection, ffi};

    use super::*;

    /// A transaction on a database of its own.
    fn within(test: impl FnOnce(&mut Tx<'_, '_>)) {
        let conn = Connection::open_in_memory().unwrap();
        let clock = ManualClock::at(Timestamp::from_micros(1_780_000_000_000_000));
        crate::migrate::run(&conn, &clock).unwrap();
        let mut sql = Prepared::new(&conn);
        test(&mut Tx::open(&mut sql, &StoreClock::new(Arc::new(clock))).unwrap());
    }

    /// Jobs of many tenants are made in one transaction.
    #[test]
    fn each_tenant_of_a_transaction_has_its_own_number() {
        within(|tx| {
            let [one, other] = ["one", "other"].map(TenantId::from);
            let numbers = [&one, &other, &other, &one].map(|tenant| tx.tenant_num(tenant).unwrap());
            let [first, second, ..] = numbers;
            assert_ne!(first, second);
            assert_eq!(numbers, [first, second, second, first]);
        });
    }

    #[test]
    fn of_the_jobs_that_came_those_are_listed_that_were_not_claimed() {
        within(|tx| {
            for num in [1, 2, 3] {
                tx.arrived(num);
            }
            tx.claimed(2);
            assert_eq!(tx.unclaimed, [1, 3]);
        });
    }

    #[test]
    fn only_what_no_request_can_mend_is_damage_of_the_stores_own_row() {
        for (code, kind) in [
            (ffi::SQLITE_CONSTRAINT_CHECK, ErrorKind::Corrupt),
            (ffi::SQLITE_FULL, ErrorKind::Full),
            (ffi::SQLITE_BUSY, ErrorKind::Unavailable),
        ] {
            assert_eq!(own_row(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).kind(), kind, "{code}");
        }
    }
}
