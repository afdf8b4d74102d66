//! The wall clock that all processes of a run share, and that jumps.
//!
//! The processes are on one host, so they have one clock: the machine's and an offset in a file, which the
//! feature `faults` lets them add. The store's time is a rule over that clock ([`StoreClock`]); whatever is to
//! be compared with stored times, as the witness's lines, is told by it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::time::Timestamp;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};

/// The host's wall clock of a run.
#[derive(Debug, Clone)]
pub struct HostClock {
    file: PathBuf,
    /// The offset and the highest one that was ever set.
    set: Arc<Mutex<(i64, i64)>>,
}

impl HostClock {
    /// A clock without an offset, kept in `file`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(file: PathBuf) -> Result<Self> {
        let clock = Self { file, set: Arc::new(Mutex::new((0, 0))) };
        clock.write(0)?;
        Ok(clock)
    }

    /// The file that processes are told of.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn write(&self, micros: i64) -> Result<()> {
        let fresh = self.file.with_extension("new");
        std::fs::write(&fresh, micros.to_string())?;
        // In one step: nobody reads half a number.
        std::fs::rename(&fresh, &self.file).context("the clock's offset")
    }

    /// Lets the clock jump, forward or back.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn jump(&self, micros: i64) -> Result<()> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = set.0.saturating_add(micros);
        self.write(offset)?;
        *set = (offset, set.1.max(offset));
        Ok(())
    }

    /// Sets the clock to where it was when it was furthest ahead: behind that the store's time stands still.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn catch_up(&self) -> Result<()> {
        let behind = {
            let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
            set.1.saturating_sub(set.0)
        };
        self.jump(behind)
    }
}

impl Clock for HostClock {
    fn boot(&self) -> Duration {
        SystemClock.boot()
    }

    fn wall(&self) -> Timestamp {
        let offset = self.set.lock().unwrap_or_else(PoisonError::into_inner).0;
        Timestamp::from_micros(SystemClock.wall().micros().saturating_add(offset))
    }
}

/// The time that the `SQLite` store would give to a write now, worked out from what stands in its file: the
/// wall clock, and never less than what the store may have given before (see the store's own account of it).
/// Written a second time here, so that evidence does not rest on the code that it is to judge.
pub struct StoreClock {
    host: HostClock,
    reader: Mutex<Reader>,
}

struct Reader {
    conn: Connection,
    /// The mark and the distance of the clocks as they were read last.
    mark: Option<(i64, i64)>,
}

/// How far the store's clock runs before its mark is written again.
const SLACK_US: i64 = 100_000;

impl StoreClock {
    /// A clock over a database that exists.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(database: &Path, host: HostClock) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(database, flags)?;
        conn.busy_timeout(Duration::from_secs(1))?;
        Ok(Self { host, reader: Mutex::new(Reader { conn, mark: None }) })
    }

    /// What the file says; where nobody can read it now, as while the log is being recovered, nobody writes it
    /// either, and what it said last still holds.
    fn mark(&self) -> Option<(i64, i64)> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mark) = reader.read() {
            reader.mark = Some(mark);
        }
        reader.mark
    }
}

impl Reader {
    fn read(&self) -> Option<(i64, i64)> {
        let mut statement = self.conn.prepare_cached("SELECT clock, clock_offset FROM meta").ok()?;
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).ok()
    }
}

impl Clock for StoreClock {
    fn boot(&self) -> Duration {
        self.host.boot()
    }

    fn wall(&self) -> Timestamp {
        let wall = self.host.wall().micros();
        let Some((clock, offset)) = self.mark() else { return Timestamp::from_micros(wall) };
        let boot = i64::try_from(self.boot().as_micros()).unwrap_or(i64::MAX);
        // Set back since the mark: what was stored after it may be as late as the old distance says.
        let set_back = wall.saturating_sub(boot) < offset;
        let floor = if set_back { boot.saturating_add(offset).min(clock.saturating_add(SLACK_US)) } else { clock };
        Timestamp::from_micros(wall.max(clock).max(floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_store_that_cannot_be_read_for_a_while_does_not_take_its_time_back() {
        let scratch = Scratch::new("mark").unwrap();
        let database = scratch.path().join("store.db");
        let store = Connection::open(&database).unwrap();
        let ahead = SystemClock.wall().micros() + 3_600_000_000;
        store.execute_batch(&format!("CREATE TABLE meta AS SELECT {ahead} AS clock, 0 AS clock_offset")).unwrap();
        let clock = StoreClock::open(&database, HostClock::new(scratch.path().join("offset")).unwrap()).unwrap();
        assert!(clock.wall().micros() >= ahead);
        store.execute_batch("ALTER TABLE meta RENAME TO elsewhere").unwrap();
        assert!(clock.wall().micros() >= ahead);
    }

    #[test]
    fn it_jumps_and_catches_up_with_where_it_was_furthest_ahead() {
        let scratch = Scratch::new("clock").unwrap();
        let clock = HostClock::new(scratch.path().join("offset")).unwrap();
        let text = || std::fs::read_to_string(clock.file()).unwrap();
        clock.jump(5_000_000).unwrap();
        assert_eq!(text(), "5000000");
        assert!(clock.wall().micros() - SystemClock.wall().micros() > 4_000_000);
        clock.jump(-8_000_000).unwrap();
        assert_eq!(text(), "-3000000");
        clock.catch_up().unwrap();
        assert_eq!(text(), "5000000");
    }
}
