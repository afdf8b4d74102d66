//! Rows that nobody can read, beside the real ones and before them in every order in which a sweep or a claim looks: more
//! than a page of each. They are written by plain SQL into the database that is in use, and taken away when everything
//! has stopped. Until then they must have cost nobody anything, and nobody may have touched them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, TransactionBehavior};

use super::oracle::Oracle;

/// Rows of each kind that come at once: a sweep's page is 256.
const ROWS: u32 = 280;
/// How often they come: more would be no worse, and every sweep tells of each.
const TIMES_MAX: u32 = 2;
/// How long the database's writers are waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The agent that they say they are of.
pub const AGENT: &str = "chaos-poison";

/// A kind of row: who meets it, and how.
struct Kind {
    /// The first byte of its ids behind four zeros, so that they are the first of all.
    byte: u8,
    /// The columns that make it be met, as they are set.
    columns: &'static str,
    values: &'static str,
    /// Where the store counts it.
    counted: &'static str,
    /// Whether it has a timer that is due.
    timer: bool,
}

const KINDS: [Kind; 4] = [
    // Due timers, of rows that cannot be read themselves.
    Kind {
        byte: 1,
        columns: "status, ready, listed, wait_type, waiting",
        values: "2, 0, 2, 1, '{'",
        counted: "waiting",
        timer: true,
    },
    // Due timers, of rows that can, but whose events cannot.
    Kind { byte: 2, columns: "status, ready, listed", values: "2, 0, 2", counted: "waiting", timer: true },
    // Leases that are over, of holders whom nobody knows.
    Kind {
        byte: 3,
        columns: "status, ready, lease_until, attempt, instance, worker",
        values: "1, 0, 1, zeroblob(16), zeroblob(16), 'nobody'",
        counted: "running",
        timer: false,
    },
    // Jobs that wait to be claimed, before all others.
    Kind {
        byte: 4,
        columns: "status, ready, listed, wait_type, waiting",
        values: "0, 1, 0, 1, '{'",
        counted: "pending",
        timer: false,
    },
];

/// A connection that waits for its turn as any program does.
fn connection(database: &Path) -> Result<Connection> {
    let conn = Connection::open(database)?;
    conn.busy_timeout(PATIENCE)?;
    Ok(conn)
}

/// The ids of all such rows.
const MINE: &str = "id BETWEEN x'00000000010000000000000000000000' AND x'0000000004ffffffffffffffffffffff'";

/// Writes more of them, unless there are enough. How many.
///
/// # Errors
/// The database cannot be written.
pub fn plant(database: &Path) -> Result<u32> {
    let mut conn = connection(database)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let there: u32 = tx.query_row(&format!("SELECT count(*) FROM jobs WHERE {MINE}"), [], |row| row.get(0))?;
    let times = there / (ROWS * 4);
    if times >= TIMES_MAX {
        return Ok(0);
    }
    for kind in &KINDS {
        let Kind { byte, columns, values, counted, timer } = kind;
        let numbers = format!("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})");
        let id = format!("unhex(printf('00000000%02x%06x%08x%08x', {byte}, {times}, i, i))");
        tx.execute_batch(&format!(
            "{numbers} INSERT INTO jobs (seq, generation, epoch, head, updated_at, id, agent, agent_version, priority, created_at, {columns}) \
             SELECT 1, (SELECT generation FROM meta), 1, zeroblob(32), 1, {id}, '{AGENT}', '1', 1000000, 1, {values} FROM n;
             {numbers} INSERT INTO events (job, seq, kind, schema_version, generation, epoch, at, id, hash, payload) \
             SELECT (SELECT num FROM jobs WHERE id = {id}), 1, 1, 1, 1, 0, 1, {id}, zeroblob(32), '{{' FROM n;
             UPDATE meta SET {counted} = {counted} + {ROWS};"
        ))?;
        if *timer {
            tx.execute_batch(&format!(
                "{numbers} INSERT INTO timers (job, timer, due) SELECT {id}, 'deadline', 1 FROM n;"
            ))?;
        }
    }
    tx.commit()?;
    Ok(ROWS * 4)
}

/// Takes them away where nobody uses the database any more, and says whether they were as they were left. Which status
/// each has is counted by the store: there must be as many as there were.
///
/// # Errors
/// The database cannot be read or written.
pub fn take_away(database: &Path) -> Result<Oracle> {
    let mut oracle = Oracle::new("rows that cannot be read were left alone");
    let mut conn = connection(database)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    look(&tx, &mut oracle)?;
    for Kind { byte, counted, .. } in &KINDS {
        let those = format!(
            "id BETWEEN x'00000000{byte:02x}0000000000000000000000' AND x'00000000{byte:02x}ffffffffffffffffffffff'"
        );
        tx.execute(&format!("DELETE FROM events WHERE job IN (SELECT num FROM jobs WHERE {those})"), [])?;
        tx.execute(&format!("DELETE FROM timers WHERE {}", those.replace("id BETWEEN", "job BETWEEN")), [])?;
        let there = tx.execute(&format!("DELETE FROM jobs WHERE {those}"), [])?;
        tx.execute(&format!("UPDATE meta SET {counted} = {counted} - ?1"), [i64::try_from(there)?])
            .with_context(|| format!("{counted}: the store counts fewer than there were"))?;
    }
    let left: u32 =
        tx.query_row(&format!("SELECT count(*) FROM jobs WHERE agent = '{AGENT}'"), [], |row| row.get(0))?;
    ensure!(left == 0, "{left} of them have another id");
    tx.commit()?;
    Ok(oracle)
}

fn look(tx: &Connection, oracle: &mut Oracle) -> Result<()> {
    let query = format!(
        "SELECT hex(id), substr(id, 5, 1) = x'03', status, seq, epoch, \
                (SELECT count(*) FROM events e WHERE e.job = j.num), \
                (SELECT payload FROM events e WHERE e.job = j.num AND e.seq = 1), \
                (SELECT count(*) FROM timers t WHERE t.job = j.id AND t.due = 1), \
                CASE hex(substr(id, 5, 1)) WHEN '03' THEN 1 WHEN '04' THEN 0 ELSE 2 END, \
                CASE hex(substr(id, 5, 1)) WHEN '01' THEN 1 WHEN '02' THEN 1 ELSE 0 END \
         FROM jobs j WHERE {MINE}"
    );
    let mut statement = tx.prepare(&query)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        let (status, seq, epoch): (i64, i64, i64) = (row.get(2)?, row.get(3)?, row.get(4)?);
        let (events, payload, timers): (i64, Option<String>, i64) = (row.get(5)?, row.get(6)?, row.get(7)?);
        let (expected_status, expected_timers): (i64, i64) = (row.get(8)?, row.get(9)?);
        let as_it_was = (status, seq, epoch, events, timers) == (expected_status, 1, 1, 1, expected_timers);
        oracle.case(as_it_was && payload.as_deref() == Some("{"), || {
            format!("{id}: status {status}, event {seq}, epoch {epoch}, {events} events from {payload:?} on, {timers} timers")
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use aetheris_store_sqlite::{SqliteOptions, SqliteStore};

    use super::*;
    use aetheris_harness::Folder;

    #[test]
    fn rows_come_twice_at_most_and_go_without_a_trace() {
        let scratch = Folder::new("poison");
        let database = scratch.path().join("store.db");
        drop(SqliteStore::open(SqliteOptions::new(database.clone())).unwrap());
        let all = ROWS * 4;
        assert_eq!([(); 3].map(|()| plant(&database).unwrap()), [all, all, 0]);
        let conn = connection(&database).unwrap();
        let number = |query: &str| conn.query_row(query, [], |row| row.get::<_, u32>(0)).unwrap();
        assert_eq!(number("SELECT pending + running + waiting FROM meta"), 2 * all);
        for spoiled in [
            "UPDATE events SET payload = '{}' WHERE num = 1",
            "UPDATE jobs SET status = 4, listed = 4 WHERE num = 2",
            "DELETE FROM timers WHERE job = (SELECT id FROM jobs WHERE num = 3)",
            "DELETE FROM events WHERE job = 4",
        ] {
            assert_eq!(conn.execute(spoiled, []).unwrap(), 1, "{spoiled}");
        }
        let oracle = take_away(&database).unwrap();
        assert_eq!((oracle.cases, oracle.wrong), (u64::from(2 * all), 4));
        for table in ["jobs", "events", "timers"] {
            assert_eq!(number(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
        }
        assert_eq!(number("SELECT pending + running + waiting FROM meta"), 0);
    }
}
