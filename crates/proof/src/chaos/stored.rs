//! What is stored of a job, read by plain SQL and put into the form in which it has to be told. Written a second time
//! here, from the documents of the interface: nothing of the program that tells it takes part.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::oracle::Oracle;
use super::poison;

/// A database that is only read.
pub struct Stored(Connection);

/// Kinds of events that end a job.
const ENDS: [&str; 3] = ["job_completed", "job_failed", "job_cancelled"];

/// How far the store's time may be ahead of where the wall clock stood: a step of a minute is believed at once.
const STRAY_US: i64 = 120_000_000;

/// A time as it is told.
macro_rules! time {
    ($column:literal) => {
        concat!(
            "strftime('%Y-%m-%dT%H:%M:%S', ",
            $column,
            " / 1000000, 'unixepoch') || printf('.%06dZ', ",
            $column,
            " % 1000000)"
        )
    };
}

const JOB: &str = concat!(
    "SELECT j.agent, j.agent_version, ",
    time!("j.created_at"),
    ", j.epoch, j.labels, ",
    time!("j.not_before"),
    ", j.priority, j.seq, j.session, s.name, ",
    time!("j.updated_at"),
    " FROM jobs j JOIN job_statuses s ON s.code = j.status WHERE j.id = ?1"
);

const EVENTS: &str = concat!(
    "SELECT ",
    time!("e.at"),
    ", e.epoch, e.generation, e.hash, e.id, e.payload, e.schema_version, e.seq, k.name \
     FROM events e JOIN jobs j ON j.num = e.job JOIN event_kinds k ON k.code = e.kind WHERE j.id = ?1 ORDER BY e.seq"
);

impl Stored {
    /// Opens a database that may be in use.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(database: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(database, flags)?;
        conn.busy_timeout(Duration::from_secs(5))?;
        Ok(Self(conn))
    }

    /// The names of jobs that a query chooses, whose first column is an id.
    ///
    /// # Errors
    /// The query cannot be answered.
    pub fn names(&self, query: &str) -> Result<Vec<String>> {
        let mut statement = self.0.prepare(query)?;
        let rows = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
        rows.map(|id| Ok(name("job", &id?))).collect()
    }

    /// So many ended jobs of each end, the last ones.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn ended(&self, of_each: usize) -> Result<Vec<String>> {
        self.names(&format!(
            "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY status, error ->> 'code', agent LIKE 'chaos-long' \
             ORDER BY num DESC) AS place FROM jobs WHERE status IN (4, 5, 6)) WHERE place <= {of_each}"
        ))
    }

    /// Every job but those that cannot be read, as a list shows it: status, last event, agent.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn list(&self) -> Result<BTreeMap<String, (String, i64, String)>> {
        let agent = poison::AGENT;
        let mut statement = self.0.prepare(&format!(
            "SELECT j.id, s.name, j.seq, j.agent FROM jobs j JOIN job_statuses s ON s.code = j.status WHERE j.agent <> '{agent}'"
        ))?;
        let rows = statement.query_map([], |row| {
            Ok((name("job", &row.get::<_, Vec<u8>>(0)?), (row.get(1)?, row.get(2)?, row.get(3)?)))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether any event is of a time that is still to come, by the wall clock where it was furthest ahead, in
    /// microseconds. A clock that was a day ahead for a moment has not moved the store's.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn times(&self, furthest: i64) -> Result<Oracle> {
        let mut oracle = Oracle::new("no event is of a time to which the wall clock strayed for a moment");
        let query = "SELECT count(*), count(*) FILTER (WHERE at > ?1), max(at) - ?1 FROM events";
        let (all, ahead, by): (i64, i64, Option<i64>) =
            self.0.query_row(query, [furthest + STRAY_US], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        (ahead..all).for_each(|_| oracle.case(true, String::new));
        (0..ahead).for_each(|_| oracle.case(false, || format!("the last one is {by:?} us ahead")));
        Ok(oracle)
    }

    /// The events of a job, as they have to be told.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn events(&self, job: &str) -> Result<Vec<Value>> {
        let mut statement = self.0.prepare_cached(EVENTS)?;
        let rows = statement.query_map([bytes(job)?], event)?;
        rows.map(|event| {
            let (mut event, payload) = event?;
            event["payload"] = serde_json::from_str(&payload).context("a payload")?;
            event["payload_hash"] = json!(hex(&Sha256::digest(payload.as_bytes())));
            Ok(event)
        })
        .collect()
    }

    /// What has to be told of a job: each of these fields, and each of these steps, as they are here.
    ///
    /// # Errors
    /// It cannot be read, or is not there.
    pub fn job(&self, job: &str) -> Result<Value> {
        let mut view = self.0.prepare_cached(JOB)?.query_row([bytes(job)?], row)?;
        view["id"] = json!(job);
        let labels = view["labels"].as_str().map_or(Ok(json!({})), serde_json::from_str)?;
        view["labels"] = labels;
        fold(&mut view, &self.events(job)?);
        Ok(view)
    }
}

fn row(row: &Row<'_>) -> rusqlite::Result<Value> {
    let text = |place: usize| row.get::<_, Option<String>>(place);
    let number = |place: usize| row.get::<_, i64>(place);
    Ok(json!({
        "agent": text(0)?, "agent_version": text(1)?, "created_at": text(2)?, "epoch": number(3)?,
        "labels": text(4)?, "not_before": text(5)?, "priority": number(6)?, "seq": number(7)?,
        "session_id": text(8)?, "status": text(9)?, "updated_at": text(10)?,
    }))
}

fn event(row: &Row<'_>) -> rusqlite::Result<(Value, String)> {
    let event = json!({
        "at": row.get::<_, String>(0)?, "epoch": row.get::<_, u32>(1)?, "generation": row.get::<_, u32>(2)?,
        "hash": hex(&row.get::<_, Vec<u8>>(3)?), "id": name("ev", &row.get::<_, Vec<u8>>(4)?),
        "schema_version": row.get::<_, u16>(6)?, "seq": row.get::<_, i64>(7)?, "type": row.get::<_, String>(8)?,
    });
    Ok((event, row.get(5)?))
}

/// What the events of an ended job say of it.
fn fold(view: &mut Value, events: &[Value]) {
    let mut steps: BTreeMap<String, (u64, &str)> = BTreeMap::new();
    let mut tokens = 0;
    for event in events {
        let (kind, payload) = (event["type"].as_str().unwrap_or_default(), &event["payload"]);
        let mut step = |status: Option<&'static str>| {
            let node = payload["node"].as_str().unwrap_or_default().to_owned();
            let step = steps.entry(node).or_insert((0, "pending"));
            step.0 = step.0.max(payload["try"].as_u64().unwrap_or(0));
            step.1 = status.unwrap_or(step.1);
        };
        match kind {
            "job_created" => view["message"] = payload["message"].clone(),
            "node_started" => step(None),
            "node_skipped" => step(Some("skipped")),
            "node_finished" => step(Some(match payload["result"].as_str() {
                Some("success" | "pure" | "side_effect_committed") => "completed",
                _ => "failed",
            })),
            _ => {}
        }
        let usage = &payload["model"]["usage"];
        let used = |what: &str| usage[what].as_u64().unwrap_or(0);
        tokens += used("prompt_tokens") + used("completion_tokens");
        if ENDS.contains(&kind) {
            view["ended_at"] = event["at"].clone();
        }
    }
    // A step that the job's end met under way has a status of its own, which its events alone do not say.
    let known = steps.into_iter().filter(|(_, (_, status))| *status != "pending");
    view["steps"] = known.map(|(node, (tries, status))| (node, json!({"attempt": tries, "status": status}))).collect();
    // How many calls count follows from the plan as well.
    view["usage"] = json!({ "tokens": tokens });
    for none in ["attempt_id", "lease_until", "waiting", "worker", "paused"] {
        view[none] = Value::Null;
    }
    let last = events.iter().rev().find(|event| is_end(event));
    let Some(payload) = last.map(|event| &event["payload"]) else { return };
    view["error"] = payload.get("error").map_or(
        Value::Null,
        |error| json!({"code": error["code"], "message": error["message"], "node_id": payload["node"]}),
    );
    if let Some(answer) = payload.get("answer").and_then(|answer| answer.get("value")) {
        view["result"] = answer.clone();
    }
}

/// How many events a stream of a job brings: up to the one that ends it, or all where nothing has.
#[must_use]
pub fn streamed(events: &[Value]) -> usize {
    let end = events.iter().position(is_end);
    end.map_or(events.len(), |end| end + 1)
}

/// Whether an event ends its job.
#[must_use]
pub fn is_end(event: &Value) -> bool {
    ENDS.iter().any(|end| event["type"] == *end)
}

/// Where what was told of something is not what it had to be: what is not asked for in `expected` may be as it likes.
#[must_use]
pub fn difference(expected: &Value, told: &Value) -> Option<String> {
    if let (Value::Object(expected), Value::Object(told)) = (expected, told) {
        return expected.iter().find_map(|(name, value)| {
            let found = told.get(name).unwrap_or(&Value::Null);
            difference(value, found).map(|wrong| format!("{name}: {wrong}"))
        });
    }
    (expected != told).then(|| format!("{told} is told, {expected} is stored"))
}

/// Places of a list that are there more than once.
#[must_use]
pub fn repeated(places: &[u64]) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    places.iter().copied().filter(|place| !seen.insert(*place)).collect()
}

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// An id as it is told: what it names, and its 128 bits in base 32.
#[must_use]
pub fn name(what: &str, id: &[u8]) -> String {
    let bits = id.iter().fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    let digit = |place: u32| DIGITS[usize::try_from(bits >> (place * 5) & 31).unwrap_or(0)];
    let digits: String = (0..26).rev().map(|place| char::from(digit(place))).collect();
    format!("{what}_{digits}")
}

/// The bits of such a name.
fn bytes(name: &str) -> Result<Vec<u8>> {
    let (_, digits) = name.split_once('_').context("an id without a prefix")?;
    let bits = digits.bytes().try_fold(0u128, |bits, byte| {
        let digit = DIGITS.iter().position(|digit| *digit == byte).context("an id")?;
        anyhow::Ok(bits << 5 | u128::try_from(digit)?)
    })?;
    Ok(bits.to_be_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_told_as_the_program_tells_it() {
        for bits in [0, 1, 7 << 120, u128::MAX, 0x01_9e_88_00_12_34_56_78_9a_bc_de_f0_11_22_33_44] {
            let told = aetheris_core::id::JobId::from_u128(bits).to_string();
            assert_eq!(name("job", &bits.to_be_bytes()), told);
            assert_eq!(bytes(&told).unwrap(), bits.to_be_bytes());
        }
    }

    #[test]
    fn what_is_told_may_say_more_but_nothing_else() {
        let stored = json!({"a": 1, "steps": {"n0": {"attempt": 2}}});
        let more = json!({"a": 1, "b": 3, "steps": {"n0": {"attempt": 2, "status": "x"}, "n1": {}}});
        assert_eq!(difference(&stored, &more), None);
        let other = json!({"a": 1, "steps": {"n0": {"attempt": 3}}});
        assert_eq!(difference(&stored, &other).unwrap(), "steps: n0: attempt: 3 is told, 2 is stored");
        assert_eq!(difference(&stored, &json!({"steps": {}})).unwrap(), "a: null is told, 1 is stored");
        assert_eq!(repeated(&[1, 2, 3, 2, 2]), BTreeSet::from([2]));
    }
}
