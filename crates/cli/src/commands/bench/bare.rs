//! What this machine's disk and SQLite can do: transactions of the size of a step, with the rows that a
//! step writes and nothing of the runtime, with the settings of the store.

use std::path::PathBuf;

use aetheris_core::hash::Hash;
use rusqlite::{Connection, params};

use super::world::now;
use super::{Goal, Plan, Rows};
use crate::error::Error;

/// The bytes of each inserted event: of a small one, with its header.
const EVENT_BYTES: usize = 130;
/// Transactions that are not counted, first.
const WARM_UP: usize = 200;

/// A bare commit's median, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bare {
    /// Of the size of a plain step: two events and the job's row.
    pub(crate) plain_us: f64,
}

/// Measures bare commits.
pub(crate) fn measure(plan: &Plan, rows: &mut Rows) -> Result<Bare, Error> {
    let mut figures = Vec::new();
    for (name, ledger) in [("plain", false), ("ledger", true)] {
        let mut taken =
            timed(&opened(plan, &format!("{name}.db"))?, plan.rounds(5_000), ledger).map_err(anyhow::Error::from)?;
        taken.sort_unstable();
        let (median, p99) = (super::table::percentile(&taken, 50), super::table::percentile(&taken, 99));
        let written = if ledger { "8 rows inserted or changed in 4 tables" } else { "2 rows inserted, 1 changed" };
        let detail = format!("{written}; WAL, synchronous=FULL; p50 {median:.0} µs, p99 {p99:.0} µs");
        rows.add(&format!("bare commits, the size of a {name} step"), (1e6 / median, "/s"), Goal::None, detail);
        figures.push(median);
    }
    Ok(Bare { plain_us: figures[0] })
}

/// A bare commit's median right now, in microseconds: machines drift within one run.
pub(crate) fn now_us(plan: &Plan, ledger: bool) -> Result<f64, Error> {
    let conn = opened(plan, "again.db")?;
    let mut taken = timed(&conn, plan.rounds(2_000), ledger).map_err(anyhow::Error::from)?;
    taken.sort_unstable();
    let path = conn.path().map(PathBuf::from);
    // Its log goes with the last connection.
    drop(conn);
    path.map_or(Ok(()), std::fs::remove_file).map_err(anyhow::Error::from)?;
    Ok(super::table::percentile(&taken, 50))
}

fn opened(plan: &Plan, name: &str) -> Result<Connection, Error> {
    plan.place.within("bare", |folder| Ok(Connection::open(folder.join(name)).map_err(anyhow::Error::from)?))
}

fn timed(conn: &Connection, rounds: usize, ledger: bool) -> Result<Vec<u64>, rusqlite::Error> {
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE e (id INTEGER PRIMARY KEY, job INTEGER, seq INTEGER, body BLOB);
         CREATE UNIQUE INDEX e_job ON e (job, seq);
         CREATE TABLE j (id INTEGER PRIMARY KEY, seq INTEGER, head BLOB);
         CREATE TABLE l (key BLOB PRIMARY KEY, job INTEGER, status INTEGER, body BLOB) WITHOUT ROWID;
         CREATE INDEX l_job ON l (job);
         CREATE TABLE x (job INTEGER, key BLOB, body BLOB, PRIMARY KEY (job, key)) WITHOUT ROWID;
         INSERT INTO j VALUES (1, 0, zeroblob(32));",
    )?;
    let (event, row, effect) = (vec![7u8; EVENT_BYTES], vec![7u8; 90], vec![7u8; 30]);
    let mut insert = conn.prepare("INSERT INTO e (job, seq, body) VALUES (1, ?1, ?2)")?;
    let mut update = conn.prepare("UPDATE j SET seq = ?1 WHERE id = 1")?;
    let mut grant = conn.prepare("INSERT INTO l VALUES (?1, 1, 0, ?2)")?;
    let mut settle = conn.prepare("UPDATE l SET status = 1 WHERE key = ?1")?;
    let mut put = conn.prepare("INSERT INTO x VALUES (1, ?1, ?2)")?;
    let (mut begin, mut commit) = (conn.prepare("BEGIN IMMEDIATE")?, conn.prepare("COMMIT")?);
    let mut taken = Vec::with_capacity(rounds);
    let events = if ledger { 5 } else { 2 };
    let mut before = key(0);
    for round in 0..rounds + WARM_UP {
        let (seq, next) = (events * i64::try_from(round).unwrap_or(i64::MAX), key(round + 1));
        let start = now();
        begin.execute([])?;
        for number in 0..events {
            insert.execute(params![seq + number, event])?;
        }
        if ledger {
            // As in a chain: the outcome of one step and the permission of the next.
            grant.execute(params![next, row])?;
            settle.execute([&before])?;
            put.execute(params![before, effect])?;
        }
        update.execute([seq])?;
        commit.execute([])?;
        if round >= WARM_UP {
            taken.push(u64::try_from((now() - start).as_micros()).unwrap_or(u64::MAX));
        }
        before = next;
    }
    Ok(taken)
}

/// A key as a ledger has them: anywhere in its order.
fn key(round: usize) -> Vec<u8> {
    Hash::of(&round.to_be_bytes()).as_bytes()[..16].to_vec()
}
