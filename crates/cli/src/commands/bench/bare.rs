//! What this machine's disk and SQLite can do: one row a transaction, with the settings of the store.

use rusqlite::Connection;

use super::world::now;
use super::{Goal, Plan, Rows};
use crate::error::Error;

/// The bytes of a row in a transaction of a plain step: two events with their headers, and what changes
/// of the job's row.
const STEP_BYTES: usize = 512;

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
        "one row of {STEP_BYTES} bytes a transaction, WAL, synchronous=FULL; p50 {commit_us:.0} µs, p99 {p99:.0} µs"
    );
    rows.add("bare SQLite commits, one thread", (1e6 / commit_us, "/s"), Goal::None, detail);
    Ok(Bare { commit_us })
}

fn timed(path: &std::path::Path, rounds: usize) -> Result<Vec<u64>, rusqlite::Error> {
    let conn = Connection::open(path)?;
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB);",
    )?;
    let body = vec![7u8; STEP_BYTES];
    let mut insert = conn.prepare("INSERT INTO t (body) VALUES (?1)")?;
    let (mut begin, mut commit) = (conn.prepare("BEGIN IMMEDIATE")?, conn.prepare("COMMIT")?);
    let mut taken = Vec::with_capacity(rounds);
    for round in 0..rounds + 200 {
        let start = now();
        begin.execute([])?;
        insert.execute([&body])?;
        commit.execute([])?;
        if round >= 200 {
            taken.push(u64::try_from((now() - start).as_micros()).unwrap_or(u64::MAX));
        }
    }
    Ok(taken)
}
