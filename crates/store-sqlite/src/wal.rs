//! The write-ahead log: when it is copied into the file.

use std::time::Duration;

use crate::error::Trouble;
use crate::queries::{Prepared, Query};

/// Pages in the log that are not in the file yet, from which on they are copied. A log that is short
/// enough to be written over soon costs an fsync less work than one that keeps growing.
const CHECKPOINT_PAGES: i64 = 1_000;
/// Pages in the log, copied or not, from which on it is made to begin anew: 64 MiB.
const RESTART_PAGES: i64 = 16_384;
/// How long that waits for other writers and for readers.
const RESTART_PATIENCE: Duration = Duration::from_millis(100);

/// Copies the whole log into the file and empties it, if nobody else has it open.
pub(crate) fn empty(sql: &mut Prepared<'_>) -> Result<(), Trouble> {
    let copied = sql.first(Query::WalTruncate, [], |_| Ok::<_, Trouble>(()));
    match copied {
        Err(trouble) if !trouble.is_busy() => Err(trouble),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Copies the log into the file where it has become long, and makes it begin anew where it is very long.
pub(crate) fn copy(sql: &mut Prepared<'_>) -> Result<(), Trouble> {
    let pages = |row: &rusqlite::Row<'_>| Ok::<(i64, i64), Trouble>((row.get(1)?, row.get(2)?));
    let (log, copied) = sql.first(Query::WalPages, [], pages)?.unwrap_or((0, 0));
    if log - copied < CHECKPOINT_PAGES {
        return Ok(());
    }
    sql.first(Query::WalCheckpoint, [], pages)?;
    if log < RESTART_PAGES {
        return Ok(());
    }
    // Writers that take turns leave no moment at which all of the log is copied, and it would only grow. This
    // waits for one, shortly; who is busy then is asked again at the next time.
    sql.connection().busy_timeout(RESTART_PATIENCE)?;
    let restarted = sql.first(Query::WalRestart, [], pages);
    sql.connection().busy_timeout(Duration::ZERO)?;
    match restarted {
        Err(trouble) if !trouble.is_busy() => Err(trouble),
        Ok(_) | Err(_) => Ok(()),
    }
}
