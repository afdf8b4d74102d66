//! What this machine's disk and SQLite can do: a transaction with the rows of a plain step (two inserted,
//! one changed) and nothing of the runtime, with the settings of the store.

use rusqlite::Connection;

use super::world::now;
use super::{Goal, Plan, Rows};
use crate::error::Error;

/// The bytes of each inserted row: an event of a plain step with its header.
const EVENT_BYTES: usize = 130;

/// A bare commit's median, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bare {
    pub(crate) commit_us: f64,
}

/// Measures bare commits.
pub(crate) fn measure(plan: &Plan, rows: &mut Rows) -> Result<Bare, Error> {
    let folder = plan.folder.join("bare");
    std::fs::create_dir_all(&folder).map_err(anyhow::Error::from)?;
    let mut taken = timed(&folder.join("bare.db"), plan.rounds(5_000)).map_err(anyhow::Error::from)?;
    taken.sort_unstable();
    let commit_us = super::table::percentile(&taken, 50);
    let p99 = super::table::percentile(&taken, 99);
    let detail = format!(
        "two rows of {EVENT_BYTES} bytes inserted, one changed: as a plain step; WAL, synchronous=FULL; p50 {commit_us:.0} µs, p99 {p99:.0} µs"
    );
    rows.add("bare SQLite commits, one thread", (1e6 / commit_us, "/s"), Goal::None, detail);
    Ok(Bare { commit_us })
}

fn timed(path: &std::path::Path, rounds: usize) -> Result<Vec<u64>, rusqlite::Error> {
    let conn = Connection::open(path)?;
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE e (id INTEGER PRIMARY KEY, job INTEGER, seq INTEGER, body BLOB);
         CREATE UNIQUE INDEX e_job ON e (job, seq);
         CREATE TABLE j (id INTEGER PRIMARY KEY, seq INTEGER, head BLOB);
         INSERT INTO j VALUES (1, 0, zeroblob(32));",
    )?;
    let body = vec![7u8; EVENT_BYTES];
    let mut insert = conn.prepare("INSERT INTO e (job, seq, body) VALUES (1, ?1, ?2)")?;
    let mut update = conn.prepare("UPDATE j SET seq = ?1 WHERE id = 1")?;
    let (mut begin, mut commit) = (conn.prepare("BEGIN IMMEDIATE")?, conn.prepare("COMMIT")?);
    let mut taken = Vec::with_capacity(rounds);
    for round in 0..rounds + 200 {
        let start = now();
        begin.execute([])?;
        let seq = 2 * i64::try_from(round).unwrap_or(i64::MAX);
        insert.execute(rusqlite::params![seq, body])?;
        insert.execute(rusqlite::params![seq + 1, body])?;
        update.execute([seq + 1])?;
        commit.execute([])?;
        if round >= 200 {
            taken.push(u64::try_from((now() - start).as_micros()).unwrap_or(u64::MAX));
        }
    }
    Ok(taken)
}
