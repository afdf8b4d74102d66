//! The write-ahead log: when it is copied into the file, and what is done with the one that a process has left.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::error::Error;
use crate::fairness::WriterFairness;
use crate::file;
use crate::queries::{Prepared, Query};
use crate::rewrite::Rewriting;

/// Pages in the log that are not in the file yet, from which on they are copied. A log that is short
/// enough to be written over soon costs an fsync less work than one that keeps growing.
const CHECKPOINT_PAGES: i64 = 1_000;
/// Pages in the log, copied or not, from which on it is made to begin anew: 64 MiB.
const RESTART_PAGES: i64 = 16_384;
/// How long that waits for other writers and for readers.
const RESTART_PATIENCE: Duration = Duration::from_millis(100);
/// The rest after the first time that someone was in its way; it doubles with each further one.
const REST_MIN: Duration = Duration::from_secs(1);
/// The longest rest: one hundredth of the time is waited at most.
const REST_MAX: Duration = Duration::from_secs(10);

/// Closing this connection copies no log into the database, as SQLite does where it is the last one: the log that it has found
/// may not be on the disk. Until [`make_durable`].
pub(crate) fn keep_log_on_close(conn: &Connection) -> Result<(), Error> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !aetheris_fault::planted!("log-copied-at-a-look"))?;
    Ok(())
}

/// Writes a log that is there again as it is and syncs it, before this process writes or answers anything. After a sync that
/// failed, the system may hold for written what never reached the disk: it is read here like the rest, and what is synced
/// behind it would be lost with it when the power fails; a database that it was half copied into would be damaged. From here on
/// closing the connection copies the log.
///
/// Costs one pass over the log and one fsync at every opening that finds a log, also beside processes that go on: those are
/// kept from writing for a piece at a time.
pub(crate) fn make_durable(conn: &Connection, database: &Path) -> Result<(), Error> {
    let log = file::beside(&file::resolved(database)?, file::WAL);
    let again = Rewriting::begin(&log)?.filter(|_| !aetheris_fault::planted!("log-taken-as-synced"));
    if let Some(mut again) = again {
        let fairness = WriterFairness::open(database)?;
        loop {
            conn.execute_batch(Query::Begin.sql())?;
            let more = again.piece();
            conn.execute_batch(Query::Rollback.sql())?;
            if !more? {
                break;
            }
            fairness.yield_to_others();
        }
        again.sync()?;
    }
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

/// Copies the whole log into the file and empties it, if nobody else has it open.
pub(crate) fn empty(sql: &mut Prepared<'_>) -> Result<(), Error> {
    let copied = sql.first(Query::WalTruncate, [], |_| Ok::<_, Error>(()));
    match copied {
        Err(error) if !error.is_busy() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Copies what a new database's log has into its file, before anything is acknowledged. Where others have the file open
/// already, as much as they leave.
pub(crate) fn begin(conn: &Connection) -> Result<(), Error> {
    match Prepared::new(conn).first(Query::WalCheckpoint, [], |_| Ok::<_, Error>(())) {
        Err(error) if !error.is_busy() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What became of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Became {
    /// It begins anew.
    Anew,
    /// Copied, as far as nobody reads what stood there before.
    Copied,
    /// Someone was in the way of its beginning anew.
    HeldUp,
    /// It was left alone: too short, or held up a moment ago.
    Left,
}

/// When a log that is held up is tried again. Each try waits under the write lock, for this process and all others, and
/// is in vain for as long as a backup reads one state of the database.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    pause: Duration,
    until: Option<Instant>,
}

impl Pace {
    fn rests(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn rest(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(REST_MIN, REST_MAX);
        self.until = now.checked_add(self.pause);
    }
}

/// Copies the log into the file where it has become long, and makes it begin anew where it is very long.
pub(crate) fn copy(sql: &mut Prepared<'_>, pace: &mut Pace, now: Instant) -> Result<Became, Error> {
    if pace.rests(now) {
        return Ok(Became::Left);
    }
    let pages = |row: &rusqlite::Row<'_>| Ok::<(i64, i64), Error>((row.get(1)?, row.get(2)?));
    let (log, copied) = sql.first(Query::WalPages, [], pages)?.unwrap_or((0, 0));
    if log - copied < CHECKPOINT_PAGES {
        return Ok(Became::Left);
    }
    sql.first(Query::WalCheckpoint, [], pages)?;
    if log < RESTART_PAGES {
        return Ok(Became::Copied);
    }
    // Writers that take turns leave no moment at which all of the log is copied, and it would only grow. This
    // waits for one, shortly; who is busy then is asked again after a rest.
    sql.connection().busy_timeout(RESTART_PATIENCE)?;
    let restarted = sql.first(Query::WalRestart, [], |row| Ok::<bool, Error>(row.get::<_, i64>(0)? == 0));
    sql.connection().busy_timeout(Duration::ZERO)?;
    match restarted {
        Ok(Some(true)) => {
            *pace = Pace::default();
            Ok(Became::Anew)
        }
        Err(error) if !error.is_busy() => Err(error),
        Ok(Some(false) | None) | Err(_) => {
            pace.rest(now);
            Ok(Became::HeldUp)
        }
    }
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    #[test]
    fn a_long_log_is_copied_into_the_file_and_a_short_one_is_left() {
        let folder = Folder::new("wal-copied");
        let conn = Connection::open(folder.join("aetheris.db")).unwrap();
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a)").unwrap();
        let write = |pages: i64| conn.execute("INSERT INTO t VALUES (zeroblob(?1))", [pages * 4_096]).unwrap();
        let (mut sql, mut pace) = (Prepared::new(&conn), Pace::default());
        let mut now = || {
            let became = copy(&mut sql, &mut pace, crate::fairness::ticks()).unwrap();
            let log = |row: &rusqlite::Row<'_>| Ok::<(i64, i64), Error>((row.get(1)?, row.get(2)?));
            let (log, copied) = sql.first(Query::WalPages, [], log).unwrap().unwrap();
            (became, log == copied)
        };
        write(CHECKPOINT_PAGES - 100);
        assert_eq!(now(), (Became::Left, false));
        write(200);
        assert_eq!(now(), (Became::Copied, true));
        write(10);
        assert_eq!(now(), (Became::Left, false));
    }

    /// Whoever may write could change the log meanwhile, or take it away.
    #[test]
    fn a_log_that_was_left_is_written_again_by_who_may_write_alone() {
        let folder = Folder::new("wal-again");
        let path = folder.join("aetheris.db");
        let open = || Connection::open(&path).unwrap();
        let (writer, again) = (open(), open());
        writer.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        writer.execute_batch("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a)").unwrap();
        let log = file::beside(&path, file::WAL);
        let before = std::fs::read(&log).unwrap();
        again.busy_timeout(Duration::ZERO).unwrap();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(make_durable(&again, &path).unwrap_err().is_busy());
        writer.execute_batch("ROLLBACK").unwrap();
        make_durable(&again, &path).unwrap();
        assert!(!before.is_empty() && std::fs::read(&log).unwrap() == before);
        // It holds nobody up any more.
        writer.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
        drop((writer, again));
    }

    /// A backup to a slow disk reads one state for as long as it takes: nobody waits for it again and again.
    #[test]
    fn a_log_that_is_held_up_is_tried_ever_more_rarely() {
        let folder = Folder::new("wal");
        let (conn, reader) = {
            let open = || Connection::open(folder.join("aetheris.db")).unwrap();
            (open(), open())
        };
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a)").unwrap();
        reader.execute_batch("BEGIN").unwrap();
        reader.query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
        let bytes = (RESTART_PAGES + 1_000) * 4_096;
        conn.execute("INSERT INTO t VALUES (zeroblob(?1))", [bytes]).unwrap();
        let (mut sql, mut pace, begun) = (Prepared::new(&conn), Pace::default(), crate::fairness::ticks());
        let mut at = |millis| copy(&mut sql, &mut pace, begun + Duration::from_millis(millis)).unwrap();
        // What ran every time, before: a thousand transactions within a minute.
        let tries: Vec<u64> = (0..60_000).step_by(60).filter(|millis| at(*millis) == Became::HeldUp).collect();
        assert_eq!(tries.len(), 9, "{tries:?}");
        // Whoever writes next waits for nobody here: that is the turn's business.
        assert_eq!(conn.query_row("PRAGMA busy_timeout", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!([at(60_000), at(80_000), at(80_010)], [Became::Left, Became::Anew, Became::Left]);
        drop(sql);
    }
}
