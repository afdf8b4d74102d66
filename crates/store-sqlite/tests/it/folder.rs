//! A folder per store, gone with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aetheris_store::Boxed;
use aetheris_store::system::Clock;
use aetheris_store_conformance::{Durable, Harness, Opened};
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};

/// A folder of its own.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// One on a file system in memory, where the machine has one: for suites of logic, in which nothing is lost
    /// when a machine stops.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::under(memory) } else { Self::new() }
    }

    fn under(parent: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // A process that was killed has left its folders, and another one may get its number.
        loop {
            let name = format!("aetheris-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = parent.join(name);
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => {
                    made.unwrap();
                    return Self(path);
                }
            }
        }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("aetheris.db")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Stores in fresh folders.
pub(crate) struct Folders;

/// Options for a store in a folder, on a clock.
pub(crate) fn options(folder: &Folder, clock: Arc<dyn Clock>) -> SqliteOptions {
    SqliteOptions { clock, ..SqliteOptions::new(folder.database()) }
}

impl Harness for Folders {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let folder = Folder::new();
        let store = SqliteStore::open(options(&folder, clock)).unwrap();
        Box::pin(std::future::ready(Opened { keep: Box::new(folder), store: Arc::new(store) }))
    }
}

impl Durable for Folders {
    fn reopen(&self, opened: Opened, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let Opened { keep, store } = opened;
        drop(store);
        let folder = keep.downcast::<Folder>().unwrap();
        let store = SqliteStore::open(options(&folder, clock)).unwrap();
        Box::pin(std::future::ready(Opened { keep: folder, store: Arc::new(store) }))
    }
}

/// A store on a folder that is looked at besides.
pub(crate) struct At(pub(crate) Arc<Folder>);

impl Harness for At {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let store = SqliteStore::open(options(&self.0, clock)).unwrap();
        Box::pin(std::future::ready(Opened { keep: Box::new(Arc::clone(&self.0)), store: Arc::new(store) }))
    }
}
