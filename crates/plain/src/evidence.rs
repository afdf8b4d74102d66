//! The evidence of a run as tables, and what every query finds in them.

use std::collections::BTreeMap;
use std::path::Path;

use aetheris_check::{ClientHistory, Invariant, SignalAck, WitnessKind, WitnessLine};
use aetheris_core::id::IdempotencyKey;
use anyhow::{Context, Result};
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

/// Violations of one invariant that are kept in words.
const TOLD_MAX: i64 = 10;

macro_rules! queries {
    ($($id:ident = $file:literal,)*) => {
        /// The queries, one per invariant. Those that need the fold itself are not among them: B7 (row and
        /// timers equal the fold) and F5 (checkpoint and suffix equal the full fold).
        pub const QUERIES: &[(Invariant, &str)] = &[$((Invariant::$id, include_str!(concat!("../sql/", $file)))),*];
    };
}

queries! {
    A2 = "a2.sql", A3 = "a3.sql", A9 = "a9.sql", B1 = "b1.sql", B2 = "b2.sql", B3 = "b3.sql", B4 = "b4.sql",
    B5 = "b5.sql", C1 = "c1.sql", C2 = "c2.sql", C4 = "c4.sql", C5 = "c5.sql", C6 = "c6.sql", C7 = "c7.sql",
    C8 = "c8.sql", D1 = "d1.sql", D5 = "d5.sql", D7 = "d7.sql", D8 = "d8.sql", E1 = "e1.sql", E2 = "e2.sql",
    E6 = "e6.sql", E7 = "e7.sql",
}

/// What a query found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Cases that it looked at.
    pub examined: u64,
    /// How many contradict the invariant.
    pub violated: u64,
    /// The first of them.
    pub violations: Vec<String>,
}

/// The evidence of a run as tables.
pub struct Evidence(Connection);

impl Evidence {
    /// Empty tables, in memory.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn new() -> Result<Self> {
        let conn = Connection::open_in_memory()?;
        functions(&conn)?;
        conn.execute_batch(include_str!("../sql/tables.sql"))?;
        Ok(Self(conn))
    }

    /// The tables themselves, for a store to fill.
    #[must_use]
    pub fn tables(&self) -> &Connection {
        &self.0
    }

    /// Loads what is not in the store.
    ///
    /// # Errors
    /// The tables cannot be written.
    pub fn load(&self, witness: &[WitnessLine], history: &ClientHistory, listed: &[IdempotencyKey]) -> Result<()> {
        self.0.execute_batch("BEGIN")?;
        load_witness(&self.0, witness)?;
        load_history(&self.0, history)?;
        for key in listed {
            self.0.execute("INSERT INTO listed_doubts VALUES (?1)", [hex(&key.to_bytes())])?;
        }
        self.0.execute_batch("COMMIT")?;
        self.0.execute_batch(include_str!("../sql/derived.sql")).context("derived.sql")
    }

    /// Asks every query.
    ///
    /// # Errors
    /// One cannot be answered.
    pub fn check(&self) -> Result<BTreeMap<Invariant, Found>> {
        QUERIES.iter().map(|(id, query)| Ok((*id, self.ask(query).with_context(|| id.id())?))).collect()
    }

    fn ask(&self, query: &str) -> Result<Found> {
        let count = format!("SELECT count(*), count(violation) FROM (\n{query}\n)");
        let (examined, violated): (i64, i64) = self.0.query_row(&count, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut violations = Vec::new();
        if violated > 0 {
            let list = format!(
                "SELECT place || ': ' || violation FROM (\n{query}\n) WHERE violation IS NOT NULL LIMIT {TOLD_MAX}"
            );
            let mut list = self.0.prepare(&list)?;
            let rows = list.query_map([], |row| row.get::<_, String>(0))?;
            violations = rows.collect::<Result<_, _>>()?;
        }
        Ok(Found { examined: u64::try_from(examined)?, violated: u64::try_from(violated)?, violations })
    }

    /// One number.
    ///
    /// # Errors
    /// The query gives none.
    pub fn number(&self, query: &str) -> Result<u64> {
        let found: i64 = self.0.query_row(query, [], |row| row.get(0))?;
        Ok(u64::try_from(found)?)
    }

    /// A column of numbers.
    ///
    /// # Errors
    /// The query gives none.
    pub fn numbers(&self, query: &str) -> Result<Vec<i64>> {
        let mut statement = self.0.prepare(query)?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Keeps the tables in a file, for people.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, file: &std::path::Path) -> Result<()> {
        self.0.execute("VACUUM INTO ?1", [file.display().to_string()])?;
        Ok(())
    }
}

/// Copies the rows of a `SQLite` store's file, table by table, in SQL.
///
/// # Errors
/// They cannot be read.
pub fn copy_sqlite(database: &Path, into: &Connection) -> Result<()> {
    into.execute("ATTACH ?1 AS store", [database.display().to_string()])?;
    into.execute_batch(include_str!("../sql/from_sqlite.sql")).context("copying the store's tables")?;
    into.execute_batch("DETACH store")?;
    Ok(())
}

fn load_witness(conn: &Connection, witness: &[WitnessLine]) -> Result<()> {
    let mut insert = conn.prepare("INSERT INTO witness VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?;
    for (line, seen) in (1i64..).zip(witness) {
        let kind = match seen.kind {
            WitnessKind::BodyStart => "body_start",
            WitnessKind::BodyEnd => "body_end",
            WitnessKind::Refused => "refused",
            WitnessKind::Dropped => "dropped",
        };
        let fence = i64::from(seen.fence.generation) << 32 | i64::from(seen.fence.epoch);
        let (job, key) = (hex(&seen.job.to_bytes()), hex(&seen.key.to_bytes()));
        let (node, tool) = (seen.node.text(), &seen.tool);
        let permit = seen.permit.map(|permit| i64::from(permit.generation) << 32 | i64::from(permit.number));
        let result = seen.result_hash.map(|hash| hash.to_string());
        insert.execute(params![
            line,
            kind,
            seen.acts,
            seen.at.micros(),
            fence,
            job,
            key,
            node,
            permit,
            result,
            tool
        ])?;
    }
    Ok(())
}

fn load_history(conn: &Connection, history: &ClientHistory) -> Result<()> {
    conn.execute("INSERT INTO run VALUES (?1)", [history.quiet])?;
    for (num, submission) in (1i64..).zip(&history.submissions) {
        let job = hex(&submission.job.to_bytes());
        conn.execute("INSERT INTO submissions VALUES (?1, ?2, ?3)", params![num, submission.client_key, job])?;
    }
    for signal in &history.signals {
        let ack = match signal.ack {
            SignalAck::Delivered => "delivered",
            SignalAck::Kept => "kept",
        };
        let (job, hash) = (hex(&signal.job.to_bytes()), signal.payload_hash.map(|hash| hash.to_string()));
        conn.execute("INSERT INTO signals VALUES (?1, ?2, ?3, ?4)", params![job, signal.key, ack, hash])?;
    }
    for job in &history.cancels {
        conn.execute("INSERT INTO cancels VALUES (?1)", [hex(&job.to_bytes())])?;
    }
    for job in &history.pauses {
        conn.execute("INSERT INTO pauses VALUES (?1)", [hex(&job.to_bytes())])?;
    }
    for write in &history.writes {
        let (job, event) = (hex(&write.job.to_bytes()), hex(&write.event.to_bytes()));
        conn.execute("INSERT INTO writes VALUES (?1, ?2, ?3)", params![job, event, write.unknown])?;
    }
    Ok(())
}

/// Bytes as the tables have them.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}

/// What SQL does not have: a hash, and the bits of an id in its text form.
fn functions(conn: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function("sha256", 1, flags, |context| {
        Ok(match context.get_raw(0) {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(hex(&Sha256::digest(bytes))),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
        })
    })?;
    conn.create_scalar_function("bits", 1, flags, |context| {
        Ok(context.get::<Option<String>>(0)?.and_then(|text| bits(&text)))
    })?;
    Ok(())
}

/// `key_01J…`: 26 digits of base 32 after the prefix.
fn bits(text: &str) -> Option<String> {
    let (_, digits) = text.split_once('_')?;
    let value = digits.bytes().try_fold(0u128, |value, byte| {
        let digit = "0123456789ABCDEFGHJKMNPQRSTVWXYZ".bytes().position(|known| known == byte)?;
        Some(value << 5 | u128::try_from(digit).ok()?)
    })?;
    Some(format!("{value:032x}"))
}
