//! Fairness between the processes that share a file. SQLite's write lock has no queue: a busy writer takes
//! it again before a waiting one has looked. So whoever waits shows it by a shared lock on a file beside
//! the database, and a busy writer that finds it shown pauses before its next transaction.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::file::{TURN, beside};
use crate::folder;
use crate::queries::{Prepared, Query};

/// How long a busy writer stands back.
const PAUSE: Duration = Duration::from_millis(2);
/// How often a waiting one looks, a few times within such a pause.
const LOOK: Duration = Duration::from_micros(300);

/// The file of one process.
pub(crate) struct WriterFairness {
    file: File,
}

impl WriterFairness {
    /// Opens the file beside the database.
    pub(crate) fn open(database: &Path) -> Result<Self, Error> {
        let path = beside(database, TURN);
        let file = folder::shared(&path, database)
            .map_err(|e| Error::Unavailable(format!("cannot open {}: {e}", path.display())))?;
        Ok(Self { file })
    }

    /// Waits until no other process has the turn, and has it for itself then; it is given back when this is dropped.
    /// Whether it came to that within the patience.
    pub(crate) fn alone(&self, patience: Duration) -> bool {
        let until = ticks() + patience;
        while self.file.try_lock().is_err() {
            if ticks() >= until {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// Begins a write transaction, waiting for other processes until then.
    pub(crate) fn begin(&self, sql: &mut Prepared<'_>, until: Instant) -> Result<(), Error> {
        match begin(sql) {
            Err(error) if error.is_busy() => {}
            other => return other,
        }
        // Never waited for: another process may hold it for as long as it likes, and without it the waiting
        // is only less fair.
        let mut shown = false;
        let begun = loop {
            shown = shown || self.file.try_lock_shared().is_ok();
            std::thread::sleep(LOOK);
            match begin(sql) {
                Err(error) if error.is_busy() && ticks() < until => {}
                other => break other,
            }
        };
        if shown {
            drop(self.file.unlock());
        }
        begun
    }

    /// Stands back if another process waits. Only for a writer that has its next transaction at hand.
    pub(crate) fn yield_to_others(&self) {
        if aetheris_fault::planted!("never-stands-back") {
            return;
        }
        match self.file.try_lock() {
            Ok(()) => drop(self.file.unlock()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(_)) => {}
        }
    }
}

fn begin(sql: &mut Prepared<'_>) -> Result<(), Error> {
    sql.run(Query::Begin, [])?;
    Ok(())
}

/// The monotonic clock, for how long a thread waits.
#[expect(clippy::disallowed_methods, reason = "how long a thread waits decides nothing that is stored")]
pub(crate) fn ticks() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_process_that_keeps_the_turn_to_itself_costs_others_no_more_than_their_patience() {
        let folder = Folder::new("turn");
        let database = folder.join("aetheris.db");
        let (busy, conn) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
        busy.execute_batch("BEGIN IMMEDIATE").unwrap();
        conn.busy_timeout(Duration::ZERO).unwrap();
        let (kept, turn) = (WriterFairness::open(&database).unwrap(), WriterFairness::open(&database).unwrap());
        kept.file.lock().unwrap();
        let mut sql = Prepared::new(&conn);
        assert!(turn.begin(&mut sql, ticks()).unwrap_err().is_busy());
        assert!(!turn.alone(Duration::ZERO));
        kept.file.unlock().unwrap();
        assert!(turn.begin(&mut sql, ticks()).unwrap_err().is_busy());
        assert!(kept.alone(Duration::ZERO), "whoever has given up does not wait any more");
        busy.execute_batch("ROLLBACK").unwrap();
        turn.begin(&mut sql, ticks()).unwrap();
        kept.file.unlock().unwrap();
        assert!(turn.alone(Duration::ZERO));
    }

    /// Long enough for whoever waits to look, and not at all where nobody does.
    #[test]
    fn a_busy_writer_stands_back_for_whoever_waits() {
        let folder = Folder::new("turn-back");
        let database = folder.join("aetheris.db");
        let (waits, busy) = (WriterFairness::open(&database).unwrap(), WriterFairness::open(&database).unwrap());
        waits.file.lock_shared().unwrap();
        let began = ticks();
        busy.yield_to_others();
        assert!(ticks() - began >= PAUSE);
        waits.file.unlock().unwrap();
        busy.yield_to_others();
        assert!(waits.alone(Duration::ZERO), "who stands back keeps nothing");
    }
}
