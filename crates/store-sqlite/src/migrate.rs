//! The schema's history: numbered files, applied forwards only, by whoever opens the file first.

use aetheris_core::event::EventKind;
use aetheris_store::system::Clock;
use rusqlite::{Connection, params};

use crate::error::Error;

/// The steps: the file of version n stands at n - 1.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_init.sql"),
    include_str!("../migrations/0002_repairs.sql"),
    include_str!("../migrations/0003_tenants.sql"),
    include_str!("../migrations/0004_lists.sql"),
    include_str!("../migrations/0005_open.sql"),
    include_str!("../migrations/0006_children.sql"),
];
/// Marks the file as one of ours: "aeth".
pub(crate) const APPLICATION: i64 = 0x6165_7468;

/// The version that this build writes and reads.
pub(crate) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Whether the schema is of an earlier build.
pub(crate) fn is_due(conn: &Connection) -> Result<bool, Error> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok((1..newest()).contains(&version))
}

/// Has the file itself say whose it is, if there is nothing in it yet.
pub(crate) fn mark(conn: &Connection) -> Result<(), Error> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let marked = tables(conn).and_then(|tables| match tables {
        0 => Ok(conn.pragma_update(None, "application_id", APPLICATION)?),
        _ => Ok(()),
    });
    finished(conn, marked)
}

fn tables(conn: &Connection) -> Result<i64, Error> {
    Ok(conn.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?)
}

/// Makes the schema of a new file. Two processes may do it at once: the second finds it done.
pub(crate) fn run(conn: &Connection, clock: &dyn Clock) -> Result<(), Error> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    finished(conn, apply(conn, clock))
}

/// Brings the schema up to date without a write-ahead log, so that nobody else reads or writes meanwhile. Whether it was
/// done: it is not where another process has taken up the log before.
pub(crate) fn run_alone(conn: &Connection, clock: &dyn Clock) -> Result<bool, Error> {
    conn.execute_batch("PRAGMA synchronous = FULL; BEGIN EXCLUSIVE")?;
    let mode: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != "delete" {
        conn.execute_batch("ROLLBACK")?;
        return Ok(false);
    }
    finished(conn, apply(conn, clock)).map(|()| true)
}

fn finished(conn: &Connection, applied: Result<(), Error>) -> Result<(), Error> {
    match applied {
        Ok(()) => {
            aetheris_fault::crash_point!("store.migrate.before_commit");
            conn.execute_batch("COMMIT")?;
            aetheris_fault::crash_point!("store.migrate.after_commit");
            Ok(())
        }
        Err(error) => {
            // The first error is the one to report.
            drop(conn.execute_batch("ROLLBACK"));
            Err(error)
        }
    }
}

/// Refuses a schema of another version than this build's: nothing is brought up to date where nothing is written.
pub(crate) fn is_newest(conn: &Connection) -> Result<(), Error> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == newest() {
        return Ok(());
    }
    let advice = if version > newest() {
        "a newer aetheris has to read it"
    } else if crate::seen::known(conn).is_ok_and(|known| known.copied) {
        "it is a backup, which `aetheris restore FILE --data DIR` brings up to date"
    } else {
        "open it once with this aetheris"
    };
    Err(Error::Refused(format!(
        "the database has schema version {version}, and this build reads version {}: {advice}",
        newest()
    )))
}

/// The schema's version, if this build knows it.
pub(crate) fn not_newer(conn: &Connection) -> Result<i64, Error> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version <= newest() {
        return Ok(version);
    }
    Err(Error::Refused(format!(
        "the database has schema version {version}; this build knows versions up to {}: it was written by a newer \
         aetheris, which has to open it",
        newest()
    )))
}

fn apply(conn: &Connection, clock: &dyn Clock) -> Result<(), Error> {
    let pragma = |name: &str| conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let (version, application) = (not_newer(conn)?, pragma("application_id")?);
    if application != APPLICATION && tables(conn)? > 0 {
        return Err(Error::Refused("the file is a database of another program".to_owned()));
    }
    let done = usize::try_from(version).unwrap_or(0);
    for (migration, number) in MIGRATIONS.iter().zip(1i64..).skip(done) {
        conn.execute_batch(migration)?;
        conn.pragma_update(None, "user_version", number)?;
    }
    if done == 0 {
        // The first mark is as true as all that follow: what passes is counted from its boot clock on.
        let (now, moment) = (clock.wall().micros(), clock.boot_moment());
        let boot = moment.at.micros_i64();
        conn.execute(
            "INSERT INTO meta (id, generation, clock, clock_offset, clock_boot, clock_boot_id)
             VALUES (1, 1, ?1, ?2, ?3, ?4)",
            params![now, now.saturating_sub(boot), boot, &moment.of.to_bytes()[..]],
        )?;
    }
    name_kinds(conn)
}

/// The names of this build's kinds, for people who look into the file.
fn name_kinds(conn: &Connection) -> Result<(), Error> {
    let known = conn.query_row("SELECT count(*) FROM event_kinds", [], |row| row.get::<_, i64>(0))?;
    if usize::try_from(known).is_ok_and(|known| known >= EventKind::ALL.len()) {
        return Ok(());
    }
    for kind in EventKind::ALL {
        let named = params![kind.code(), kind.as_str()];
        conn.execute("INSERT INTO event_kinds (code, name) VALUES (?1, ?2) ON CONFLICT (code) DO NOTHING", named)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;
    use aetheris_store::system::SystemClock;

    use super::*;

    /// Another process may have taken up the log between the change of the journal and the transaction.
    #[test]
    fn nothing_is_brought_up_to_date_beside_a_log() {
        let folder = Folder::new("migrate");
        let conn = Connection::open(folder.join("aetheris.db")).unwrap();
        let first = MIGRATIONS.first().unwrap();
        conn.execute_batch(&format!(
            "{first} PRAGMA journal_mode = WAL; PRAGMA user_version = 1; PRAGMA application_id = {APPLICATION};"
        ))
        .unwrap();
        assert!(!run_alone(&conn, &SystemClock).unwrap());
        assert!(is_due(&conn).unwrap() && conn.is_autocommit());
        conn.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
        assert!(run_alone(&conn, &SystemClock).unwrap());
        assert!(!is_due(&conn).unwrap());
    }
}
