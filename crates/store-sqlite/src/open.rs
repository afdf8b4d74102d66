//! Opening: where the file may be, how connections are set up, and the threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aetheris_store::StoreError;
use aetheris_store::system::{Clock, SystemClock};
use aetheris_store::vital::{self, OnDeath};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::Error;
use crate::fairness::{WriterFairness, ticks};
use crate::file::{self, Whose};
use crate::queries::Query;
use crate::seen::{Custody, Entered};
use crate::{migrate, network, seen, wal};

/// Told of an error after which the process must not go on.
pub type Fatal = Arc<dyn Fn(&StoreError) + Send + Sync>;

/// The exit status of a process whose disk failed: `EX_IOERR` of sysexits.
pub const EXIT_IO: i32 = 74;
/// How long opening waits for other processes.
pub(crate) const BUSY: Duration = Duration::from_secs(10);

/// How a store is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// How the file beside the database is kept, which tells an older database from the newest; `None` for whoever
    /// only looks, and for copies.
    pub custody: Option<Custody>,
    /// Whether the database is made if it is not there.
    pub make: bool,
    /// Called when the disk did not do what it was told; not meant to return. The default logs one line and
    /// ends the process.
    pub on_fatal: Fatal,
    /// Called with the name of a store thread that stopped unexpectedly; not meant to return. The default says
    /// so on stderr and ends the process.
    pub on_death: OnDeath,
    /// The file.
    pub path: PathBuf,
    /// Most pages of the file, for tests of a full disk; `None` for SQLite's own bound.
    pub pages_max: Option<u32>,
    /// Threads that read.
    pub readers: usize,
}

impl SqliteOptions {
    /// The machine's clocks, two readers, and an end of the process when the disk fails.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            clock: Arc::new(SystemClock),
            custody: None,
            make: true,
            on_fatal: Arc::new(end_process),
            on_death: Arc::new(vital::die),
            path: path.into(),
            pages_max: None,
            readers: 2,
        }
    }
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("path", &self.path)
            .field("readers", &self.readers)
            .finish_non_exhaustive()
    }
}

/// How long another process may take to bring a database up to date.
const MIGRATION_PATIENCE: Duration = Duration::from_secs(60);
/// How long another process that has a database of an earlier build open may take to close it.
const ALONE_PATIENCE: Duration = Duration::from_secs(2);

fn end_process(error: &StoreError) {
    vital::end_process(EXIT_IO, || {
        tracing::error!(%error, "the disk failed; exiting. The next process writes the log again and syncs it before it goes on");
    })
}

/// Whether the file may be opened, and whose it is. Nothing is changed, so that a database of another program stays
/// as it is.
pub(crate) fn admit(path: &Path, make: bool) -> Result<Whose, Error> {
    network::refuse(path)?;
    let whose = file::whose(path)?;
    if whose == Whose::Nobody && !make {
        return Err(Error::Refused("there is no database, and this process makes none".to_owned()));
    }
    seen::refuse_newer(path)?;
    Ok(whose)
}

/// The connection that writes, on a schema that is up to date.
pub(crate) fn writer(options: &SqliteOptions, whose: Whose, entered: Option<&Entered>) -> Result<Connection, Error> {
    let mut conn = opened(&options.path)?;
    // Before the first change.
    let asked = |conn: &Connection| {
        migrate::not_newer(conn)?;
        entered.map_or(Ok(()), |entered| entered.ask(conn))?;
        migrate::is_due(conn)
    };
    let due = match asked(&conn) {
        // Another process is bringing it up to date.
        Err(error) if error.is_busy() => true,
        due => due?,
    };
    if due {
        // Two new processes would each wait for the other to close the file.
        drop(conn);
        let fairness = WriterFairness::open(&options.path)?;
        if !fairness.alone(MIGRATION_PATIENCE) {
            return Err(Error::Unavailable(
                "another process is bringing the database up to date: start this one again when it is ready".to_owned(),
            ));
        }
        conn = opened(&options.path)?;
        if patiently(BUSY, || asked(&conn))? {
            wal::make_durable(&conn, &options.path)?;
            migrated(&conn, options.clock.as_ref())?;
        }
    }
    wal::make_durable(&conn, &options.path)?;
    if whose == Whose::Nobody {
        // Before there is a log: a log is not read without its index, which a crash can take away.
        patiently(BUSY, || migrate::mark(&conn))?;
    }
    let mode: String = patiently(BUSY, || Ok(conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?))?;
    if mode != "wal" {
        return Err(Error::Refused(format!("the journal cannot be a write-ahead log here, only `{mode}`")));
    }
    // What was answered is on disk: FULL fsyncs the log at every COMMIT. Checkpoints are the writer's own.
    conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864;
         PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY;",
    )?;
    if aetheris_fault::planted!("log-not-synced") {
        conn.execute_batch("PRAGMA synchronous = NORMAL")?;
    }
    if let Some(pages) = options.pages_max {
        conn.pragma_update(None, "max_page_count", pages)?;
    }
    aetheris_fault::crash_point!("store.open.before_migrate");
    migrate::run(&conn, options.clock.as_ref())?;
    // From here on waiting is the turn's business.
    conn.busy_timeout(Duration::ZERO)?;
    Ok(conn)
}

/// What SQLite does not wait for itself though another process is only beginning: it asks nobody to be patient where that
/// could make two wait for each other, as a change of the journal does. Who is still in the way after so long, is.
fn patiently<T>(patience: Duration, ask: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let until = ticks() + patience;
    loop {
        match ask() {
            Err(error) if error.is_busy() && ticks() < until => std::thread::sleep(Duration::from_millis(10)),
            answer => return answer,
        }
    }
}

fn opened(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    wal::keep_log_on_close(&conn)?;
    conn.busy_timeout(BUSY)?;
    stable(&conn)?;
    Ok(conn)
}

/// Plans are made once, whatever is bound: without this SQLite prepares a statement again for other values of a limit or
/// of what is compared with an indexed column, which for us is nearly every read.
pub(crate) fn stable(conn: &Connection) -> Result<(), Error> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// A process of an earlier build does not know what this one writes: nobody may have the database open while its schema
/// is brought up to date. SQLite gives up the write-ahead log only to the last one.
///
/// A process that starts beside this one looks at the file for a moment, and the change of the journal does not wait.
fn migrated(conn: &Connection, clock: &dyn Clock) -> Result<(), Error> {
    let brought = patiently(ALONE_PATIENCE, || {
        let mode: String = conn.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
        if mode == "delete" && migrate::run_alone(conn, clock)? { Ok(()) } else { Err(Error::busy()) }
    });
    match brought {
        Err(error) if error.is_busy() => Err(Error::Refused(
            "the database is of an earlier aetheris, and another process has it open: stop that process first, so that \
             this build can bring the database up to date"
                .to_owned(),
        )),
        brought => brought,
    }
}

/// A connection that cannot write.
pub(crate) fn reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    prepared(Connection::open_with_flags(path, flags)?)
}

/// A connection that cannot write and makes no file.
pub(crate) fn quiet_reader(path: &Path) -> Result<Connection, Error> {
    prepared(file::quiet(path)?)
}

fn prepared(conn: Connection) -> Result<Connection, Error> {
    conn.busy_timeout(BUSY)?;
    stable(&conn)?;
    conn.execute_batch("PRAGMA cache_size = -1024; PRAGMA temp_store = MEMORY;")?;
    conn.set_prepared_statement_cache_capacity(Query::ALL.len());
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;
    use std::cell::Cell;

    use super::*;

    /// A change of the journal fails at once while another connection writes, and goes through when it has.
    #[test]
    fn who_is_in_the_way_for_a_moment_is_waited_for_and_no_longer_than_said() {
        let folder = Folder::new("patience");
        let path = folder.join("aetheris.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE; CREATE TABLE t (a)").unwrap();
        let conn = Connection::open(&path).unwrap();
        let asked = Cell::new(0);
        let change = |conn: &Connection| -> Result<String, Error> {
            asked.set(asked.get() + 1);
            Ok(conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?)
        };
        conn.busy_timeout(Duration::ZERO).unwrap();
        assert!(patiently(Duration::from_millis(25), || change(&conn)).unwrap_err().is_busy());
        assert!(asked.get() >= 2, "asked {} times", asked.get());
        asked.set(0);
        let let_go_at_the_third = || {
            if asked.get() == 2 {
                other.execute_batch("COMMIT").unwrap();
            }
            change(&conn)
        };
        assert_eq!(patiently(BUSY, let_go_at_the_third).unwrap(), "wal");
        assert_eq!(asked.get(), 3);
        // What no patience helps against is said at once.
        asked.set(0);
        let wrong = patiently(BUSY, || {
            asked.set(asked.get() + 1);
            Ok(conn.execute_batch("nonsense")?)
        });
        assert!(!wrong.unwrap_err().is_busy());
        assert_eq!(asked.get(), 1);
        assert!(Error::busy().is_busy());
    }

    /// The tests of plans run on connections of their own; these are the ones that are used.
    #[test]
    fn every_connection_that_is_kept_makes_its_plans_once() {
        let folder = Folder::new("plans");
        let path = folder.join("aetheris.db");
        let conns = [opened(&path).unwrap(), reader(&path).unwrap(), quiet_reader(&path).unwrap()];
        for (place, conn) in conns.iter().enumerate() {
            assert!(conn.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG).unwrap(), "{place}");
        }
    }
}
