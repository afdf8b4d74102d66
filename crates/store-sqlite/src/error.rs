//! What goes wrong below the port, and which of the port's kinds it is.

use aetheris_store::{CommitError, ErrorKind, StoreError};
use rusqlite::ErrorCode;

/// What one operation failed with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// SQLite says so.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// A row cannot be read, or contradicts another.
    #[error("{0}")]
    Corrupt(String),
    /// The request, or this program, is wrong.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be done now.
    #[error("{0}")]
    Unavailable(String),
    /// The file is not the one that was opened any more.
    #[error("{0}")]
    Moved(String),
    /// The file is not one that this build may open.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// Its kind at the port.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Sql(error) => sql_kind(error),
            Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::Invalid(_) | Self::Refused(_) => ErrorKind::Invalid,
            Self::Moved(_) | Self::Unavailable(_) => ErrorKind::Unavailable,
        }
    }

    /// As the port's error of an operation.
    pub(crate) fn at(self, op: &'static str) -> StoreError {
        StoreError::new(self.kind(), op, self)
    }

    /// Whether SQLite reports that the disk did not do what it was told. After a failed fsync nobody
    /// knows what is on it, and asking again may lie. The same where it was told to another file.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            Self::Sql(error) => error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure),
            Self::Moved(_) => true,
            Self::Corrupt(_) | Self::Invalid(_) | Self::Unavailable(_) | Self::Refused(_) => false,
        }
    }

    /// Whether SQLite answers a COMMIT so only when nothing of it was written.
    pub(crate) fn is_before_commit(&self) -> bool {
        let code = match self {
            Self::Sql(error) => error.sqlite_error_code(),
            Self::Corrupt(_) | Self::Invalid(_) | Self::Moved(_) | Self::Unavailable(_) | Self::Refused(_) => None,
        };
        matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull))
    }

    /// Another connection is in the way, as [`is_busy`](Self::is_busy) has it.
    pub(crate) fn busy() -> Self {
        Self::Sql(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None))
    }

    /// Whether another connection holds the write lock.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
    }
}

fn sql_kind(error: &rusqlite::Error) -> ErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => ErrorKind::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => ErrorKind::Corrupt,
        // A value that is too big is so at every try.
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::ApiMisuse | ErrorCode::TooBig) => {
            ErrorKind::Invalid
        }
        Some(_) => ErrorKind::Unavailable,
        // Not from SQLite: a column of another type than the schema gives it.
        None => ErrorKind::Corrupt,
    }
}

/// The same error for another request of the same transaction.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Shared {
    kind: ErrorKind,
    op: &'static str,
    text: String,
}

impl Shared {
    pub(crate) fn new(error: &Error, op: &'static str) -> Self {
        Self { kind: error.kind(), op, text: error.to_string() }
    }

    pub(crate) fn error(&self) -> StoreError {
        StoreError::new(self.kind, self.op, self.clone())
    }
}

/// Why a unit of work is not applied.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The answer is certain and nothing of the unit was written: the transaction goes on.
    Answer(CommitError),
    /// Something of it may be written: the transaction has to be rolled back.
    Broken(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn sqlite(code: i32) -> Error {
        Error::Sql(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    #[test]
    fn what_sqlite_says_has_the_kind_that_a_caller_acts_on() {
        for (code, kind) in [
            (ffi::SQLITE_BUSY, ErrorKind::Unavailable),
            (ffi::SQLITE_BUSY_SNAPSHOT, ErrorKind::Unavailable),
            (ffi::SQLITE_FULL, ErrorKind::Full),
            (ffi::SQLITE_CORRUPT, ErrorKind::Corrupt),
            (ffi::SQLITE_NOTADB, ErrorKind::Corrupt),
            (ffi::SQLITE_CONSTRAINT_CHECK, ErrorKind::Invalid),
            (ffi::SQLITE_TOOBIG, ErrorKind::Invalid),
            (ffi::SQLITE_IOERR_READ, ErrorKind::Unavailable),
        ] {
            assert_eq!(sqlite(code).kind(), kind, "{code}");
        }
        let text = String::new;
        for (error, kind) in [
            // Not from SQLite: what stands there is not what the schema says.
            (Error::Sql(rusqlite::Error::QueryReturnedNoRows), ErrorKind::Corrupt),
            (Error::Corrupt(text()), ErrorKind::Corrupt),
            (Error::Invalid(text()), ErrorKind::Invalid),
            (Error::Refused(text()), ErrorKind::Invalid),
            (Error::Unavailable(text()), ErrorKind::Unavailable),
            (Error::Moved(text()), ErrorKind::Unavailable),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }

    #[test]
    fn a_disk_that_did_not_do_it_ends_the_process_and_a_full_or_busy_one_does_not() {
        // Whatever failed, a read, a truncate or a close as well: what comes next goes by what may not be on the disk.
        for kind in 0..=0xff {
            let code = ffi::SQLITE_IOERR | (kind << 8);
            assert!(sqlite(code).is_fatal() && !sqlite(code).is_before_commit(), "{code}");
        }
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_RECOVERY, ffi::SQLITE_BUSY_SNAPSHOT] {
            assert!(!sqlite(code).is_fatal() && sqlite(code).is_before_commit(), "{code}");
        }
    }
}
