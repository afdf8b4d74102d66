//! What a run needs of a store beside the port: where it is, how its room is taken away, and what it holds as
//! plain tables. A further store brings another one of these.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use aetheris_store::Store;
use aetheris_store::system::Clock;
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Result, bail, ensure};
use rusqlite::{Connection, OpenFlags};

use super::clock::{HostClock, StoreClock};

/// A store under chaos.
pub trait Backend: Send + Sync {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;
    /// Its part of the processes' configuration.
    fn config(&self) -> String;
    /// The file that has its rows, for whoever reads and writes them by plain SQL.
    fn database(&self) -> PathBuf;
    /// The store itself, for the checker.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&self) -> Result<Arc<dyn Store>>;
    /// The store's own time, for what is compared with it. The store exists by then.
    ///
    /// # Errors
    /// It cannot be asked.
    fn clock(&self, host: &HostClock) -> Result<Arc<dyn Clock>>;
    /// Whether its room can be taken away here.
    fn can_fill(&self) -> bool;
    /// Leaves no room for another byte.
    ///
    /// # Errors
    /// It cannot be done.
    fn fill(&self) -> Result<()>;
    /// Gives the room back.
    ///
    /// # Errors
    /// It cannot be done.
    fn free(&self) -> Result<()>;
    /// How many events there are: what moves as long as anything does.
    ///
    /// # Errors
    /// It cannot be asked now.
    fn progress(&self) -> Result<u64>;
    /// Its rows as the plain tables of the second checker.
    ///
    /// # Errors
    /// They cannot be read.
    fn copy_tables(&self, into: &Connection) -> Result<()>;
    /// Its rows for people, where a run has failed: a copy below `folder`.
    ///
    /// # Errors
    /// They cannot be copied.
    fn save(&self, folder: &Path) -> Result<()>;
}

/// The room that a database has, where nobody takes it away.
const ROOM: &str = "size=6g";

/// How often it is tried to shrink it to what is in it, each time with a page more.
const FILL_TRIES: u64 = 200;

/// The name of the file system in lists of mounts.
const SOURCE: &str = "aetheris-chaos";

/// `SQLite` in a folder of its own; on a file system of its own where mounting is permitted, so that the disk
/// can be full for it and for nobody else.
#[derive(Debug)]
pub struct Sqlite {
    folder: PathBuf,
    mounted: bool,
}

impl Sqlite {
    /// Prepares the folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn prepare(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let mounted = mount(&["-t", "tmpfs", "-o", ROOM, SOURCE, &folder.display().to_string()]).is_ok();
        Ok(Self { folder, mounted })
    }

    /// The folder as it is, on a disk that is shared and cannot be full.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn without_mount(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, mounted: false })
    }

    fn resize(&self, size: &str) -> Result<()> {
        // With type and source: without them `mount` looks in a table that a namespace does not have.
        mount(&["-t", "tmpfs", "-o", &format!("remount,{size}"), SOURCE, &self.folder.display().to_string()])
    }
}

fn mount(arguments: &[&str]) -> Result<()> {
    let output = Command::new("mount").args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    bail!("mount {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim())
}

impl Backend for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn config(&self) -> String {
        format!("jobstore: {{ type: sqlite, sqlite: {{ path: {} }} }}\n", self.database().display())
    }

    fn database(&self) -> PathBuf {
        self.folder.join("aetheris.db")
    }

    fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(SqliteStore::open(SqliteOptions::new(self.database()))?))
    }

    fn clock(&self, host: &HostClock) -> Result<Arc<dyn Clock>> {
        Ok(Arc::new(StoreClock::open(&self.database(), host.clone())?))
    }

    fn can_fill(&self) -> bool {
        self.mounted
    }

    fn fill(&self) -> Result<()> {
        ensure!(self.mounted, "the folder is not a file system of its own");
        // As large as what is in it: the next new page finds no room. It may grow while it is being shrunk, and
        // faster than it can be shrunk; then some pages are left, which it will use up: each try leaves one more.
        for spare in 0..FILL_TRIES {
            let now = rustix::fs::statvfs(&self.folder)?;
            let used = now.f_blocks.saturating_sub(now.f_bfree).saturating_add(spare).saturating_mul(now.f_frsize);
            if self.resize(&format!("size={used}")).is_ok() {
                return Ok(());
            }
        }
        bail!("the file system cannot be made full")
    }

    fn free(&self) -> Result<()> {
        self.resize(ROOM)
    }

    fn progress(&self) -> Result<u64> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(self.database(), flags)?;
        let count: i64 = conn.query_row("SELECT coalesce(max(num), 0) FROM events", [], |row| row.get(0))?;
        Ok(u64::try_from(count)?)
    }

    fn copy_tables(&self, into: &Connection) -> Result<()> {
        aetheris_plain::copy_sqlite(&self.database(), into)
    }

    fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            // What stands beside the files of the store belongs to processes that have gone.
            if entry.file_type()?.is_file() {
                std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily: a process that is just ending may still hold it.
            let _ = Command::new("umount").arg("-l").arg(&self.folder).output();
        }
    }
}
