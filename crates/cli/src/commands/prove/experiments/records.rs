//! Replay calls nothing; and whatever is changed in the record is named.

use std::path::{Path, PathBuf};

use aetheris_api::{ReplayView, VerifyView};
use aetheris_check::Invariant;
use aetheris_core::id::JobId;
use rusqlite::Connection;

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Server, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::Fault;
use crate::exit::Exit;

const AGENTS: [Agent; 6] =
    [Agent::Long, Agent::Chain, Agent::DoubtAsks, Agent::AgainFailing, Agent::Ask, Agent::DoubtFails];

/// Jobs of every kind, at their ends; those that wait for a person do so.
async fn jobs(workspace: &mut Workspace<'_>, server: &Server) -> Result<Vec<JobId>, Fault> {
    let count = workspace.plan.rounds(2, 1);
    let mut jobs = Vec::new();
    for agent in AGENTS {
        let sent = workspace.send(server, agent, count).await?;
        if agent == Agent::Ask {
            workspace::waiting(&server.client, &sent).await?;
        } else {
            jobs.extend(&sent);
        }
    }
    workspace::ended(&server.client, &jobs, PATIENCE).await?;
    Ok(jobs)
}

pub(super) async fn replay(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let server = workspace.dev(&AGENTS).await?;
    let jobs = jobs(workspace, &server).await?;
    let before = workspace.tools.lines().len();
    for round in 0..workspace.plan.rounds(4, 2) {
        for job in &jobs {
            let id = job.to_string();
            let replayed = server.client.get::<ReplayView>(&["api", "jobs", &id, "replay"], &[]).await;
            let replayed = replayed.map_err(|error| Fault::api("a replay", error))?.body;
            workspace.cases.case(Guarantee::Audited, replayed.matches, || {
                format!("the replay of {job} differs: {}", replayed.differences.join(", "))
            });
            let called = workspace.tools.lines().len() - before;
            workspace.cases.case(Guarantee::Silent, called == 0, || {
                format!("{called} calls of tools came with replay {} of {job}", round + 1)
            });
        }
    }
    server.process.stop().await?;
    Ok(())
}

pub(super) async fn chain(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let server = workspace.dev(&AGENTS).await?;
    let jobs = jobs(workspace, &server).await?;
    for job in &jobs {
        let id = job.to_string();
        let verified = server.client.get::<VerifyView>(&["api", "jobs", &id, "verify"], &[]).await;
        let verified = verified.map_err(|error| Fault::api("a verification", error))?.body;
        let failed = verified.checks.iter().filter(|check| !check.ok).map(|check| check.name.clone());
        let failed: Vec<String> = failed.collect();
        workspace.cases.case(Guarantee::Audited, verified.valid && failed.is_empty(), || {
            format!("{job} does not verify: {}", failed.join(", "))
        });
    }
    server.process.stop().await?;
    consistent(workspace, &workspace.data(), None).await?;
    flip(workspace, &jobs).await
}

/// `check-consistency` finds nothing in a folder, or names a job.
async fn consistent(workspace: &mut Workspace<'_>, data: &Path, damaged: Option<JobId>) -> Result<(), Fault> {
    let args: [PathBuf; 3] = ["check-consistency".into(), "--data".into(), data.to_owned()];
    let mut checking = workspace.start("check-consistency", &args)?;
    let code = checking.code("having checked").await?;
    let wanted = if damaged.is_some() { Exit::CheckFailed } else { Exit::Done };
    let named = damaged.is_none_or(|job| checking.told().contains(&job.to_string()));
    workspace.cases.case(Guarantee::Audited, named && code == Some(i32::from(wanted.code())), || {
        let what = damaged.map_or_else(|| "a whole database".to_owned(), |job| format!("a flipped byte of {job}"));
        format!("check-consistency ended with {code:?} for {what}")
    });
    Ok(())
}

/// How an event is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A letter or digit of the payload, which is still JSON.
    Letter,
    /// The payload's first byte, so that it is JSON no more.
    FirstByte,
    /// The stored hash.
    Hash,
}

/// How many ways there are.
const DAMAGES: usize = 3;

impl Way {
    const fn column(self) -> &'static str {
        match self {
            Self::Letter | Self::FirstByte => "payload",
            Self::Hash => "hash",
        }
    }
}

/// A byte of an event that is to be flipped.
struct Byte {
    event: i64,
    way: Way,
}

/// Flips bytes in a copy of the database, one at a time: the job must be named.
async fn flip(workspace: &mut Workspace<'_>, jobs: &[JobId]) -> Result<(), Fault> {
    let copy = workspace.folder.join("damaged");
    copied(&workspace.data(), &copy)?;
    let database = copy.join("aetheris.db");
    let flips = workspace.plan.rounds(36, 8);
    for number in 0..flips {
        let job = jobs[number % jobs.len()];
        let way = [Way::Letter, Way::FirstByte, Way::Hash][number % DAMAGES];
        let byte = chosen(&database, job, way, number)?;
        let before = damage(&database, &byte)?;
        let report = workspace::check(&database, &workspace.tools, &workspace.history).await?;
        let line = report.line(Invariant::B4);
        let id = job.to_string();
        let named = line.is_some_and(|line| line.violated > 0 && line.violations.iter().any(|text| text.contains(&id)));
        workspace.cases.case(Guarantee::Audited, named, || {
            format!("a flipped byte in `{}` of event row {} of {job} was not found", byte.way.column(), byte.event)
        });
        // People ask with the command; each way of damage once.
        if number + DAMAGES >= flips {
            consistent(workspace, &copy, Some(job)).await?;
        }
        repair(&database, &byte, &before)?;
    }
    Ok(())
}

fn copied(data: &Path, copy: &Path) -> Result<(), Fault> {
    let failed = |error: std::io::Error| Fault::Setup(format!("{} cannot be made: {error}", copy.display()));
    std::fs::create_dir(copy).map_err(failed)?;
    for name in ["aetheris.db", "aetheris.db-wal"] {
        if data.join(name).exists() {
            std::fs::copy(data.join(name), copy.join(name)).map_err(failed)?;
        }
    }
    Ok(())
}

fn chosen(database: &Path, job: JobId, way: Way, number: usize) -> Result<Byte, Fault> {
    let conn = Connection::open(database)?;
    // The view shows names; the table has rows.
    let hex = format!("{:032x}", job.as_u128());
    let mut rows = conn.prepare(
        "SELECT e.num FROM events e JOIN jobs j ON j.num = e.job WHERE lower(hex(j.id)) = ?1 ORDER BY e.seq",
    )?;
    let events: Vec<i64> = rows.query_map([hex], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let place = number.checked_rem(events.len());
    let event = place.and_then(|place| events.get(place).copied());
    event.map(|event| Byte { event, way }).ok_or_else(|| Fault::Setup(format!("the copy has no event of {job}")))
}

/// The column's bytes before one of them is changed.
fn damage(database: &Path, byte: &Byte) -> Result<Vec<u8>, Fault> {
    let conn = Connection::open(database)?;
    let column = byte.way.column();
    let read = format!("SELECT CAST({column} AS BLOB) FROM events WHERE num = ?1");
    let before: Vec<u8> = conn.query_row(&read, [byte.event], |row| row.get(0))?;
    let mut after = before.clone();
    let letter = |place: &usize| after[*place].is_ascii_alphanumeric();
    let place = match byte.way {
        Way::Letter => (0..after.len()).rev().find(letter),
        Way::FirstByte | Way::Hash => (!after.is_empty()).then_some(0),
    };
    if let Some(place) = place {
        after[place] ^= 1;
    }
    write(&conn, byte, &after)?;
    Ok(before)
}

fn repair(database: &Path, byte: &Byte, before: &[u8]) -> Result<(), Fault> {
    write(&Connection::open(database)?, byte, before)
}

fn write(conn: &Connection, byte: &Byte, bytes: &[u8]) -> Result<(), Fault> {
    let kind = if byte.way == Way::Hash { "BLOB" } else { "TEXT" };
    let write = format!("UPDATE events SET {} = CAST(?1 AS {kind}) WHERE num = ?2", byte.way.column());
    conn.execute(&write, rusqlite::params![bytes, byte.event])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::process_control::Folder;

    #[test]
    fn a_job_without_an_event_is_not_passed_over() {
        let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-flip").unwrap();
        let database = folder.path().join("aetheris.db");
        let job = JobId::from_u128(7);
        let conn = Connection::open(&database).unwrap();
        let tables =
            "CREATE TABLE jobs (num INTEGER, id BLOB); CREATE TABLE events (num INTEGER, job INTEGER, seq INTEGER)";
        conn.execute_batch(tables).unwrap();
        conn.execute("INSERT INTO jobs VALUES (1, ?1)", [job.to_bytes()]).unwrap();
        let none = chosen(&database, job, Way::Hash, 3).err().unwrap();
        assert!(none.to_string().contains(&job.to_string()), "{none}");
        conn.execute_batch("INSERT INTO events VALUES (10, 1, 1), (11, 1, 2)").unwrap();
        assert_eq!(chosen(&database, job, Way::Hash, 3).unwrap().event, 11);
    }
}
