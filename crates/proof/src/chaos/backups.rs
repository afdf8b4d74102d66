//! Backups of the database in use, by the command: each is whole, has every job that was acknowledged before it was begun,
//! and has of every job a beginning of what the database has at the end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_plain::hex;
use anyhow::{Context, Result};
use rusqlite::Connection;
use tokio_util::sync::CancellationToken;

use super::commands::Commands;
use super::faults::World;
use super::oracle::Oracle;
use super::poison;

/// The pause between two.
const PAUSE: Duration = Duration::from_secs(7);
/// How many are kept: of a longer run the last ones.
const KEPT_MAX: usize = 24;
/// How long after the disk was full a backup may still have met it.
const FULL_REACH: Duration = Duration::from_secs(2);

/// The events of a backup that the database does not have, or has otherwise.
const STRANGE: &str = "SELECT count(*) FROM copy.events e JOIN copy.jobs j ON j.num = e.job \
    LEFT JOIN main.jobs mj ON mj.id = j.id LEFT JOIN main.events me ON me.job = mj.num AND me.seq = e.seq \
    WHERE j.agent <> ?1 AND (me.hash IS NULL OR me.hash <> e.hash OR me.payload IS NOT e.payload)";

/// Jobs of a backup whose row is at another event than their events, or whose events are not all there.
const UNEVEN: &str = "SELECT count(*) FROM copy.jobs j WHERE j.agent <> ?1 AND (j.seq, j.seq) <> \
    (SELECT count(*), max(seq) FROM copy.events e WHERE e.job = j.num)";

/// A backup that a command says it has made.
struct Kept {
    file: PathBuf,
    /// How many messages were acknowledged before it was begun.
    acknowledged: usize,
}

/// What makes backups beside a run.
pub struct Backups {
    commands: Commands,
    config: PathBuf,
    folder: PathBuf,
    kept: Mutex<Vec<Kept>>,
}

impl Backups {
    /// Makes them into `folder`, of the database that a configuration names.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(folder: PathBuf, config: PathBuf, commands: Commands) -> Result<Arc<Self>> {
        std::fs::create_dir_all(&folder)?;
        Ok(Arc::new(Self { commands, config, folder, kept: Mutex::default() }))
    }

    /// Makes one after the other until it is stopped. One that is refused while there is room is a problem of the run.
    pub async fn run(self: Arc<Self>, world: Arc<World>, stop: CancellationToken) {
        for number in 0.. {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
            if let Err(error) = self.make(&world, number).await {
                world.problems.add(format!("backup {number}: {error:#}"));
            }
        }
    }

    async fn make(&self, world: &World, number: u64) -> Result<()> {
        let acknowledged = world.clients.history().submissions.len();
        let file = self.folder.join(format!("{number}.db"));
        let (to, config) = (file.display().to_string(), self.config.display().to_string());
        let said = self.commands.beside(&["backup", &to, "--config", &config]).await?;
        if said.exit == Some(0) {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(Kept { file, acknowledged });
            if kept.len() > KEPT_MAX {
                std::fs::remove_file(kept.remove(0).file)?;
            }
        } else if !world.log.was_on("disk_full", FULL_REACH) {
            anyhow::bail!("it ended with {:?} and said {}", said.exit, said.value);
        }
        Ok(())
    }

    /// Compares every one with the database, which nobody uses any more.
    ///
    /// # Errors
    /// One cannot be read.
    pub async fn judge(&self, database: &Path, world: &World) -> Result<Vec<Oracle>> {
        let mut whole = Oracle::new("a backup of the database in use is whole, and a beginning of what came");
        let mut owed = Oracle::new("a backup has what was acknowledged before it was begun");
        let mut sound = Oracle::new("`check-consistency` finds nothing wrong with the last backup");
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let submissions = world.clients.history().submissions;
        for Kept { file, acknowledged } in &kept {
            let conn = Connection::open(database)?;
            conn.execute("ATTACH ?1 AS copy", [file.display().to_string()])?;
            whole.found(unlike(&conn).with_context(|| file.display().to_string())?);
            let mut has = conn.prepare("SELECT EXISTS (SELECT 1 FROM copy.jobs WHERE lower(hex(id)) = ?1)")?;
            for submission in submissions.iter().take(*acknowledged) {
                let there: bool = has.query_row([hex(&submission.job.to_bytes())], |row| row.get(0))?;
                owed.case(there, || format!("{} is not in {}", submission.job, file.display()));
            }
        }
        if let Some(Kept { file, .. }) = kept.last() {
            poison::take_away(file)?;
            let config = self.folder.join("copy.yaml");
            std::fs::write(&config, format!("jobstore: {{ type: sqlite, sqlite: {{ path: {} }} }}\n", file.display()))?;
            let said = self.commands.beside(&["check-consistency", "--config", &config.display().to_string()]).await?;
            sound.case(said.exit == Some(0), || format!("{said:?}"));
        }
        Ok(vec![whole, owed, sound])
    }
}

/// How the database that is attached as `copy` is no beginning of the one that it is attached to, if it is not.
fn unlike(conn: &Connection) -> Result<Option<String>> {
    let check: String = conn.query_row("PRAGMA copy.integrity_check", [], |row| row.get(0))?;
    if check != "ok" {
        return Ok(Some(check));
    }
    let count = |query: &str| conn.query_row(query, [poison::AGENT], |row| row.get::<_, u32>(0));
    let (strange, uneven) = (count(STRANGE)?, count(UNEVEN)?);
    Ok((strange + uneven > 0).then(|| format!("{strange} events are others, {uneven} jobs are not whole")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_is_no_beginning_of_the_database_is_told() {
        let tables = "CREATE TABLE {}.jobs (num INTEGER, id BLOB, agent TEXT, seq INTEGER);
            CREATE TABLE {}.events (job INTEGER, seq INTEGER, hash BLOB, payload TEXT);";
        let rows = "INSERT INTO {}.jobs VALUES (1, x'01', 'a', 2), (2, x'02', 'chaos-poison', 9);
            INSERT INTO {}.events VALUES (1, 1, x'0a', 'one'), (1, 2, x'0b', 'two')";
        let judged = |spoil: &str| {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch("ATTACH ':memory:' AS copy").unwrap();
            for schema in ["main", "copy"] {
                conn.execute_batch(&[tables, rows].map(|sql| sql.replace("{}", schema)).join("")).unwrap();
            }
            conn.execute_batch("INSERT INTO main.events VALUES (1, 3, x'0c', 'three'); UPDATE main.jobs SET seq = 3")
                .unwrap();
            conn.execute_batch(spoil).unwrap();
            unlike(&conn).unwrap()
        };
        assert_eq!(judged(""), None);
        for spoil in [
            "UPDATE copy.events SET payload = 'other' WHERE seq = 2",
            "UPDATE copy.events SET hash = x'ff' WHERE seq = 1",
            "DELETE FROM copy.events WHERE seq = 1",
            "DELETE FROM copy.events WHERE seq = 2",
            "UPDATE copy.jobs SET seq = 3 WHERE num = 1",
            "UPDATE copy.jobs SET id = x'03' WHERE num = 1",
        ] {
            assert!(judged(spoil).is_some(), "{spoil}");
        }
    }
}
