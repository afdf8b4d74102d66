//! One process of the program under test.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long a process may take to say that it is ready.
const START: Duration = Duration::from_secs(30);
/// The signal that crash points send.
const KILL: i32 = 9;

/// How the program is started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Its arguments.
    pub args: Vec<String>,
    /// `point@hit@mode`, where it is to die or stop.
    pub crash: Option<String>,
    /// What is added to its environment.
    pub env: Vec<(String, String)>,
    /// Where its log goes.
    pub log: PathBuf,
    /// The program.
    pub program: PathBuf,
}

/// A process that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The first line that it printed.
    pub ready: String,
}

/// What starting came to.
#[derive(Debug)]
pub enum Started {
    /// It is ready.
    Ready(Box<Running>),
    /// It was killed by the crash point before that.
    Killed,
}

impl Launch {
    /// Starts the program and waits for its first line.
    ///
    /// # Errors
    /// It ended in another way than by a crash point, or says nothing.
    pub async fn start(&self) -> Result<Started> {
        let log = std::fs::File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        // A bug that is planted in whoever drives is planted in what it drives.
        command.env_remove("AETHERIS_CRASH");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(crash) = &self.crash {
            command.env("AETHERIS_CRASH", crash);
        }
        let mut child = command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        let stdout = child.stdout.take().context("no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::select! {
            line = lines.next_line() => line?,
            () = tokio::time::sleep(START) => bail!("{:?} said nothing within {START:?}", self.args),
        };
        let Some(ready) = first else {
            let status = child.wait().await?;
            if self.crash.is_some() && status.signal() == Some(KILL) {
                return Ok(Started::Killed);
            }
            bail!("{:?} ended before it was ready: {status}\n{}", self.args, tail(&self.log));
        };
        // Whoever prints must not be stopped by a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Started::Ready(Box::new(Running { child, ready })))
    }
}

impl Running {
    /// Where it listens, as its first line says.
    ///
    /// # Errors
    /// The line does not say.
    pub fn url(&self) -> Result<String> {
        let at = self.ready.find("http://").with_context(|| format!("no address in `{}`", self.ready))?;
        Ok(self.ready[at..].trim().to_owned())
    }

    /// Its number.
    ///
    /// # Errors
    /// It has ended.
    pub fn id(&self) -> Result<u32> {
        self.child.id().context("the process has ended")
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The system does not say.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        rustix::process::kill_process(pid.context("the process has ended")?, signal)?;
        Ok(())
    }

    /// Whether it stands still, as `/proc` says.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let Some(id) = self.child.id() else { return false };
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }
}

impl Running {
    /// Whether it holds the lock under which SQLite writes its log.
    ///
    /// # Errors
    /// The system does not say.
    pub fn holds_write_lock(&self) -> Result<bool> {
        Ok(!write_locks(self.child.id().context("the process has ended")?)?.is_empty())
    }
}

/// The files, as device and inode, of which a process holds the lock under which SQLite writes: byte 120 of the shared
/// memory. What is asked is the process's own files: the list of every lock of the system comes in pieces, and one that
/// is let go between two pieces hides another.
fn write_locks(pid: u32) -> Result<Vec<String>> {
    let file_of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it =
            fields.first() == Some(&"lock:") && fields.get(4) == Some(&"WRITE") && fields.get(7) == Some(&"120");
        fields.get(6).filter(|_| is_it).map(|file| (*file).to_owned())
    };
    let mut found = Vec::new();
    for file in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        match std::fs::read_to_string(file?.path()) {
            Ok(text) => found.extend(text.lines().filter_map(file_of)),
            // Closed since it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Whether a process was killed as crash points kill.
#[must_use]
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(KILL)
}

/// The end of a log, for people.
#[must_use]
pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use rusqlite::Connection;

    use super::*;
    use aetheris_harness::Folder;

    #[test]
    fn the_write_lock_is_seen_while_it_is_held_and_no_longer() {
        let scratch = Folder::new("locks");
        let open = || {
            let opened = Connection::open(scratch.path().join("store.db")).unwrap();
            opened.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t (a)").unwrap();
            opened
        };
        let (writer, reader) = (open(), open());
        // Other tests of this process have locks of their own.
        let inode = format!(":{}", std::fs::metadata(scratch.path().join("store.db-shm")).unwrap().ino());
        let held = || write_locks(std::process::id()).unwrap().iter().any(|file| file.ends_with(&inode));
        reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        assert!(!held(), "a reader does not hold it");
        writer.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
        assert!(held());
        writer.execute_batch("COMMIT").unwrap();
        assert!(!held());
        assert!(write_locks(u32::MAX).is_err(), "there is no such process");
    }
}
