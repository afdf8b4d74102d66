//! A folder that is watched: what is done to its files goes onto a tape, and what was ordered fails.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_fault::files::{self, Asked, Done, Watcher};

use crate::tape::{Op, Tape};
use crate::vfs;

/// What a file is to SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The database itself.
    Database,
    /// The journal of a database without a log.
    Journal,
    /// The write-ahead log.
    Log,
}

impl Kind {
    /// By the ending that SQLite gives it.
    fn of(name: &str) -> Self {
        if name.ends_with("-wal") {
            Self::Log
        } else if name.ends_with("-journal") {
            Self::Journal
        } else {
            Self::Database
        }
    }
}

/// How something fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A write finds no room.
    Full,
    /// A sync reports an error.
    Sync,
    /// A write reports an error.
    Write,
}

/// What was asked of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Files that were synced.
    pub syncs: usize,
    /// Writes.
    pub writes: usize,
}

/// An order to fail: the calls of this kind of file after so many, so often.
struct Order {
    fault: Fault,
    kind: Kind,
    skip: usize,
    times: usize,
}

struct State {
    counts: Counts,
    orders: Vec<Order>,
    tape: Tape,
}

pub(crate) struct Shared {
    pub(crate) folder: PathBuf,
    state: Mutex<State>,
    /// Whether the real disk is asked to sync.
    syncs: bool,
    /// Whether there is a tape.
    tapes: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts onto the tape what was done.
    fn note(&self, name: &str, op: impl FnOnce(usize) -> Op) {
        if !self.tapes {
            return;
        }
        let mut state = self.state();
        let file = state.tape.number(name);
        state.tape.ops.push(op(file));
    }

    /// The same of what is done to no file, or to two.
    fn note_names(&self, op: impl FnOnce(&mut Tape) -> Op) {
        if self.tapes {
            let mut state = self.state();
            let op = op(&mut state.tape);
            state.tape.ops.push(op);
        }
    }

    /// Whether a call is to fail.
    fn ordered(&self, name: &str, of: &[Fault]) -> Option<Fault> {
        let mut state = self.state();
        if of == [Fault::Sync] {
            state.counts.syncs += 1;
        } else {
            state.counts.writes += 1;
        }
        let kind = Kind::of(name);
        let order =
            state.orders.iter_mut().find(|order| order.kind == kind && of.contains(&order.fault) && order.times > 0)?;
        if order.skip > 0 {
            order.skip -= 1;
            return None;
        }
        order.times -= 1;
        Some(order.fault)
    }

    pub(crate) fn created(&self, name: &str) {
        self.note(name, Op::Create);
    }

    pub(crate) fn deleted(&self, name: &str, synced: bool) {
        self.note(name, |file| Op::Delete { file, synced });
    }

    pub(crate) fn fails_write(&self, name: &str) -> Option<Fault> {
        self.ordered(name, &[Fault::Full, Fault::Write])
    }

    pub(crate) fn fails_sync(&self, name: &str) -> Option<Fault> {
        self.ordered(name, &[Fault::Sync])
    }

    pub(crate) fn truncated(&self, name: &str, length: u64) {
        self.note(name, |file| Op::Truncate { file, length });
    }

    pub(crate) fn wrote(&self, name: &str, at: u64, bytes: &[u8]) {
        self.note(name, |file| Op::Write { file, at, bytes: bytes.to_owned() });
    }

    pub(crate) fn synced(&self, name: &str, folder: bool) {
        self.note(name, |file| Op::Sync { file, folder });
    }

    pub(crate) fn sync_failed(&self, name: &str) {
        self.note(name, Op::SyncFailed);
    }

    pub(crate) fn really_syncs(&self) -> bool {
        self.syncs
    }
}

/// What the store has done without SQLite.
fn told(done: Done<'_>) {
    let (folder, path) = match done {
        Done::SyncedFolder(folder) => (Some(folder), folder),
        Done::Made(path)
        | Done::Removed(path)
        | Done::Renamed { from: path, .. }
        | Done::Resized(path, _)
        | Done::Synced(path)
        | Done::Wrote(path, ..) => (path.parent(), path),
    };
    let Some((shared, name)) = folder.and_then(vfs::watcher_of).zip(name_of(path)) else { return };
    match done {
        Done::Made(_) => shared.created(name),
        Done::Removed(_) => shared.deleted(name, false),
        Done::Renamed { to, .. } => {
            let Some(to) = name_of(to) else { return };
            shared.note_names(|tape| Op::Rename { from: tape.number(name), to: tape.number(to) });
        }
        Done::Resized(_, length) => shared.truncated(name, length),
        Done::Synced(_) => shared.synced(name, false),
        Done::SyncedFolder(_) => shared.note_names(|_| Op::SyncFolder),
        Done::Wrote(_, at, bytes) => shared.wrote(name, at, bytes),
    }
}

/// Whether what the store does without SQLite is to fail.
fn asked(asked: Asked<'_>) -> io::Result<()> {
    let (Asked::Sync(path) | Asked::Write(path)) = asked;
    let Some((shared, name)) = path.parent().and_then(vfs::watcher_of).zip(name_of(path)) else { return Ok(()) };
    let fault = match asked {
        Asked::Sync(_) => shared.fails_sync(name),
        Asked::Write(_) => shared.fails_write(name),
    };
    match fault {
        None => Ok(()),
        Some(Fault::Full) => Err(io::ErrorKind::StorageFull.into()),
        Some(Fault::Write) => Err(io::Error::other("the write failed")),
        Some(Fault::Sync) => {
            shared.sync_failed(name);
            Err(io::Error::other("the sync failed"))
        }
    }
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// A folder whose files are watched for as long as this lives. Files that are open then stay watched.
#[derive(Clone)]
pub struct Watched(Arc<Shared>);

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watched").field(&self.0.folder).finish()
    }
}

impl Watched {
    /// Watches an empty folder. SQLite does not ask the real disk to sync: what counts is on the tape.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn taped(folder: &Path) -> std::io::Result<Self> {
        files::watch(Watcher { asked, told });
        Self::begin(folder, Some(Tape::default()))
    }

    /// Fills an empty folder with what a process that was killed before the operation of that number has left, and goes on with
    /// its tape: what was not on the disk then is not there now.
    ///
    /// # Errors
    /// There is no such folder, or it cannot be written.
    pub fn after_kill(tape: &Tape, before: usize, folder: &Path) -> std::io::Result<Self> {
        tape.kill(before, folder)?;
        let ops = tape.ops().iter().take(before).cloned().collect();
        Self::begin(folder, Some(Tape { names: tape.names.clone(), ops }))
    }

    /// Only counts and fails, and asks the real disk to sync nothing: for tests that open many databases and cut none.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn unsynced(folder: &Path) -> std::io::Result<Self> {
        Self::begin(folder, None)
    }

    fn begin(folder: &Path, tape: Option<Tape>) -> std::io::Result<Self> {
        let folder = folder.canonicalize()?;
        let tapes = tape.is_some();
        let state = State { counts: Counts::default(), orders: Vec::new(), tape: tape.unwrap_or_default() };
        let shared = Arc::new(Shared { folder, state: Mutex::new(state), syncs: false, tapes });
        vfs::watch(&shared);
        Ok(Self(shared))
    }

    /// Lets calls fail: those of this kind of file after the next `skip`, `times` of them.
    pub fn fail(&self, kind: Kind, fault: Fault, skip: usize, times: usize) {
        self.0.state().orders.push(Order { fault, kind, skip, times });
    }

    /// Takes all orders back.
    pub fn heal(&self) {
        self.0.state().orders.clear();
    }

    /// How much was asked of the disk until now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.state().counts
    }

    /// Says on the tape that everything until now has to survive.
    pub fn mark(&self, mark: u64) {
        self.0.state().tape.ops.push(Op::Mark(mark));
    }

    /// What has happened until now.
    #[must_use]
    pub fn tape(&self) -> Tape {
        self.0.state().tape.clone()
    }
}
