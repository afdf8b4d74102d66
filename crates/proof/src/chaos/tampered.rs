//! A copy of the database that somebody has changed by hand, and a server on it: `verify` has to say so of each job that
//! was changed, and of no other.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use serde_json::Value;

use super::commands::Commands;
use super::oracle::Oracle;
use super::stored::Stored;
use super::told::EXIT_CHECK_FAILED;
use crate::drive::process::{Launch, Started};

/// Jobs that suffer each change.
const OF_EACH: usize = 3;

/// What somebody does to a job, by its number. Each is to change something.
const CHANGES: [(&str, &str); 11] = [
    (
        "a payload is another",
        "UPDATE events SET payload = json_set(payload, '$.execution_version', 'x') WHERE job = ?1 AND seq = 1",
    ),
    ("a payload is written otherwise", "UPDATE events SET payload = payload || ' ' WHERE job = ?1 AND seq = 2"),
    ("an event has gone", "DELETE FROM events WHERE job = ?1 AND seq = 3"),
    (
        "the last event has gone",
        "DELETE FROM events WHERE job = ?1 AND seq = (SELECT max(seq) FROM events WHERE job = ?1)",
    ),
    ("an event is of another time", "UPDATE events SET at = at + 1 WHERE job = ?1 AND seq = 2"),
    ("an event is of another claim", "UPDATE events SET epoch = epoch + 1 WHERE job = ?1 AND seq = 4"),
    ("the row says another end", "UPDATE jobs SET status = 6, listed = 6 WHERE num = ?1"),
    ("the row has another head", "UPDATE jobs SET head = zeroblob(32) WHERE num = ?1"),
    ("a call has not been sent", "UPDATE ledger SET status = 4 WHERE job = ?1 AND status = 1"),
    ("an effect is another", "UPDATE effects SET result = '{\"input\":{\"n\":-1}}' WHERE job = ?1"),
    ("an effect has gone", "DELETE FROM effects WHERE job = ?1"),
];

/// Completed jobs that have called a tool, the first ones: the last event of all stays, by which a database is known to
/// be older than its folder has seen it.
const JOBS: &str = "SELECT j.id, j.num FROM jobs j WHERE j.status = 4 \
    AND EXISTS (SELECT 1 FROM effects x WHERE x.job = j.num) AND EXISTS (SELECT 1 FROM ledger l WHERE l.job = j.num AND l.status = 1) \
    ORDER BY j.num LIMIT ?1";

/// Copies a database that nobody uses, with what stands beside it, into `folder`; where the copy is.
///
/// # Errors
/// It cannot be copied.
pub fn copy(database: &Path, folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let name = database.file_name().context("a database without a name")?;
    let stem = database.file_stem().and_then(|stem| stem.to_str()).context("a database without a name")?;
    for entry in std::fs::read_dir(database.parent().context("a database without a folder")?)? {
        let entry = entry?;
        let beside = entry.file_name().to_string_lossy().starts_with(&format!("{stem}."));
        if beside && entry.file_type()?.is_file() && !entry.file_name().to_string_lossy().ends_with("-shm") {
            std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
    }
    Ok(folder.join(name))
}

/// Changes jobs of a database that nobody uses: by the name of each, what was done to it; nothing for those that are as
/// they were.
///
/// # Errors
/// It cannot be changed, or has too few jobs.
fn tamper(database: &Path) -> Result<Vec<(String, Option<&'static str>)>> {
    let wanted = CHANGES.len() * OF_EACH + OF_EACH;
    let ids = Stored::open(database)?.names(&JOBS.replace("?1", &wanted.to_string()))?;
    ensure!(ids.len() == wanted, "{} jobs have completed with calls, {wanted} are needed", ids.len());
    let conn = Connection::open(database)?;
    let nums: Vec<i64> = {
        let mut statement = conn.prepare(JOBS)?;
        let rows = statement.query_map([i64::try_from(wanted)?], |row| row.get(1))?;
        rows.collect::<Result<_, _>>()?
    };
    let changes = CHANGES.iter().map(Some).chain([None]).flat_map(|change| [change; OF_EACH]);
    let mut done = Vec::new();
    for ((id, num), change) in ids.into_iter().zip(nums).zip(changes) {
        if let Some((what, sql)) = change {
            ensure!(conn.execute(sql, [num])? > 0, "{what}: it changed nothing of {id}");
        }
        done.push((id, change.map(|(what, _)| *what)));
    }
    Ok(done)
}

/// Tampers with a copy of a database, starts a server on it, and asks `verify` about each job.
///
/// # Errors
/// The copy cannot be made, or no server be started on it. What `verify` says and is wrong is in the oracles.
pub async fn check(database: &Path, folder: &Path, commands: &Commands) -> Result<Vec<Oracle>> {
    let mut found = Oracle::new("`verify` says of a job that was tampered with that it is not valid");
    let mut whole = Oracle::new("`verify` calls the jobs beside those valid");
    let copied = copy(database, folder)?;
    let jobs = tamper(&copied)?;
    let config = folder.join("config.yaml");
    let text = format!(
        "jobstore: {{ type: sqlite, sqlite: {{ path: {} }} }}\nserver: {{ listen: \"127.0.0.1:0\" }}\n",
        copied.display()
    );
    std::fs::write(&config, text)?;
    let args = vec!["serve".to_owned(), "--config".to_owned(), config.display().to_string()];
    let (env, program) = (commands.env.clone(), commands.program.clone());
    let launch = Launch { args, crash: None, env, log: folder.join("serve.log"), program };
    let Started::Ready(mut serving) = launch.start().await? else { bail!("the server on the copy was killed") };
    let server = serving.url()?;
    for (job, change) in jobs {
        let said = commands.run(&server, &["verify", &job]).await?;
        let valid = said.value["valid"] == true;
        match change {
            None => whole.case(valid && said.exit == Some(0), || format!("{job}: {said:?}")),
            Some(what) => {
                let refused = said.exit == Some(EXIT_CHECK_FAILED) && said.value["valid"] == Value::Bool(false);
                found.case(refused, || format!("{job}, {what}: {said:?}"));
            }
        }
    }
    serving.signal(rustix::process::Signal::TERM)?;
    serving.wait().await?;
    Ok(vec![found, whole])
}
