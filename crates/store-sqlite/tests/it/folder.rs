//! A folder per store, gone with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aetheris_store::Boxed;
use aetheris_store::system::Clock;
use aetheris_store_conformance::{Durable, Harness, Opened};
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};

/// A folder of its own.
pub(crate) struct Folder(aetheris_harness::Folder);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(aetheris_harness::Folder::new("store"))
    }

    /// One in memory, where the machine has such a place.
    pub(crate) fn in_memory() -> Self {
        Self(aetheris_harness::Folder::in_memory("store"))
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("aetheris.db")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
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
