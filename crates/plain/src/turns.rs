//! Whether jobs began in their turn: none before its `run_at`, and those of a conversation one after the other. One plain
//! query over the events of a run, which shares no rule with the store that it judges.

use std::path::Path;

use anyhow::{Context, Result};
use rusqlite::Connection;

/// What the query found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judged {
    /// Claims of jobs of a conversation that came after another one of it.
    pub conversations: u64,
    /// Claims of jobs for later.
    pub later: u64,
    /// The first of those that were too early.
    pub violations: Vec<String>,
}

/// How many violations are told.
const TOLD_MAX: usize = 10;

/// Judges a table `events` with at least the columns `job`, `kind`, `at` and `payload`.
///
/// # Errors
/// It cannot be read.
pub fn judge(tables: &Connection) -> Result<Judged> {
    let mut statement = tables.prepare(include_str!("../sql/turns.sql")).context("turns.sql")?;
    let mut turns = Judged::default();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match row.get::<_, String>(1)?.as_str() {
            "later" => turns.later += 1,
            _ => turns.conversations += 1,
        }
        if let Some(violation) = row.get::<_, Option<String>>(2)?.filter(|_| turns.violations.len() < TOLD_MAX) {
            turns.violations.push(format!("{}: {violation}", row.get::<_, String>(0)?));
        }
    }
    Ok(turns)
}

/// The same of a SQLite store's file.
///
/// # Errors
/// It cannot be read.
pub fn of_database(database: &Path) -> Result<Judged> {
    let tables = Connection::open_in_memory()?;
    tables.execute("ATTACH ?1 AS store", [database.display().to_string()])?;
    tables.execute_batch(
        "CREATE TABLE events AS SELECT lower(hex(j.id)) AS job, k.name AS kind, e.at AS at, e.payload AS payload \
         FROM store.events e JOIN store.jobs j ON j.num = e.job JOIN store.event_kinds k ON k.code = e.kind",
    )?;
    judge(&tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as job, kind, time and payload.
    fn judged(events: &[(&str, &str, i64, &str)]) -> Judged {
        let tables = Connection::open_in_memory().unwrap();
        tables.execute_batch("CREATE TABLE events (job TEXT, kind TEXT, at INTEGER, payload TEXT)").unwrap();
        for event in events {
            tables.execute("INSERT INTO events VALUES (?1, ?2, ?3, ?4)", *event).unwrap();
        }
        judge(&tables).unwrap()
    }

    #[test]
    fn a_job_is_claimed_at_its_time_and_not_before() {
        let later = r#"{"agent": "a", "run_at": "1970-01-01T00:00:02.000005Z"}"#;
        for (claimed, wrong) in [(2_000_005, 0), (2_000_004, 1)] {
            let events =
                [("1", "job_created", 5, later), ("1", "job_claimed", claimed, "{}"), ("2", "job_created", 5, later)];
            let turns = judged(&events);
            assert_eq!((turns.later, turns.conversations, turns.violations.len()), (1, 0, wrong), "{claimed}");
        }
    }

    #[test]
    fn jobs_of_a_conversation_run_one_after_the_other() {
        let (ours, others) = (r#"{"agent": "a", "session": "s"}"#, r#"{"agent": "b", "session": "s"}"#);
        let (named, theirs) = [r#""default""#, r#""another""#]
            .map(|tenant| format!(r#"{{"agent": "a", "session": "s", "tenant": {tenant}}}"#))
            .into();
        for (second_made, second, ended, agent, expected) in [
            (6, 9, Some(9), ours, (1, 0)),
            (6, 8, Some(9), ours, (1, 1)),
            (6, 8, None, ours, (1, 1)),
            (6, 8, None, others, (0, 0)),
            (6, 8, None, &named, (1, 1)),
            (6, 8, None, &theirs, (0, 0)),
            // Of two that came at once either may be the first; beside each other they may not run.
            (5, 9, Some(9), ours, (1, 0)),
            (5, 8, Some(9), ours, (1, 1)),
            (5, 8, None, ours, (1, 1)),
        ] {
            let mut events = vec![
                ("1", "job_created", 5, ours),
                ("1", "job_claimed", 7, "{}"),
                ("2", "job_created", second_made, agent),
                ("2", "job_claimed", second, "{}"),
                ("2", "job_completed", 20, "{}"),
            ];
            events.extend(ended.map(|at| ("1", "job_failed", at, "{}")));
            let turns = judged(&events);
            assert_eq!((turns.conversations, u64::try_from(turns.violations.len()).unwrap()), expected, "{events:?}");
        }
    }
}
