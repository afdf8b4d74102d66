//! A folder that is watched: what is done to its files goes onto a tape, and what was ordered fails.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tape::{Op, Tape};
use crate::vfs;

/// The mark of a process that begins to open the folder: it syncs what it writes into the side file.
pub(crate) const OPENING: u64 = u64::MAX - 1;
/// The mark of one that has: what it writes from now on it does not sync.
pub(crate) const OPENED: u64 = u64::MAX;

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
    /// The last of [`Op::Side`].
    side: Vec<u8>,
    tape: Tape,
}

pub(crate) struct Shared {
    pub(crate) folder: PathBuf,
    side: Option<PathBuf>,
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

    /// Puts onto the tape what was done, after what the side file has become.
    fn note(&self, name: &str, op: impl FnOnce(usize) -> Op) {
        if !self.tapes {
            return;
        }
        let mut state = self.state();
        self.look_aside(&mut state);
        let file = state.tape.number(name);
        state.tape.ops.push(op(file));
    }

    fn look_aside(&self, state: &mut State) {
        let Some(bytes) = self.side.as_ref().and_then(|side| std::fs::read(side).ok()) else { return };
        if bytes != state.side {
            state.side.clone_from(&bytes);
            state.tape.ops.push(Op::Side(bytes));
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

    pub(crate) fn really_syncs(&self) -> bool {
        self.syncs
    }
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
    /// Watches an empty folder, and the file of that name in it which SQLite does not know. The real disk is not asked to sync: what
    /// counts is on the tape.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn taped(folder: &Path, side: &str) -> std::io::Result<Self> {
        Self::begin(folder, Some(side), true)
    }

    /// Only counts and fails, and asks the real disk to sync nothing: for tests that open many databases and cut none.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn unsynced(folder: &Path) -> std::io::Result<Self> {
        Self::begin(folder, None, false)
    }

    fn begin(folder: &Path, side: Option<&str>, tapes: bool) -> std::io::Result<Self> {
        let folder = folder.canonicalize()?;
        let state = State { counts: Counts::default(), orders: Vec::new(), side: Vec::new(), tape: Tape::default() };
        let side = side.map(|side| folder.join(side));
        let shared = Arc::new(Shared { folder, side, state: Mutex::new(state), syncs: false, tapes });
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
        let mut state = self.0.state();
        self.0.look_aside(&mut state);
        state.tape.ops.push(Op::Mark(mark));
    }

    /// Opens the folder: what the side file becomes meanwhile is synced.
    pub fn opening<T>(&self, open: impl FnOnce() -> T) -> T {
        self.mark(OPENING);
        let opened = open();
        self.mark(OPENED);
        opened
    }

    /// What has happened until now.
    #[must_use]
    pub fn tape(&self) -> Tape {
        self.0.state().tape.clone()
    }
}
