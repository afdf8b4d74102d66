//! The store's write lock, taken from outside: while it is held, no other process can commit.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::Fault;

/// How long a writer is waited for.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// The lock; dropping it gives it back.
pub(in crate::commands) struct WriteLock(Connection);

impl WriteLock {
    /// Begins a write transaction that writes nothing.
    ///
    /// # Errors
    /// The database does not let it.
    pub(in crate::commands) fn take(database: &Path) -> Result<Self, Fault> {
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(BUSY_MAX)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        Ok(Self(connection))
    }

    /// Gives it back.
    ///
    /// # Errors
    /// The database says so.
    pub(in crate::commands) fn release(self) -> Result<(), Fault> {
        Ok(self.0.execute_batch("ROLLBACK")?)
    }
}
