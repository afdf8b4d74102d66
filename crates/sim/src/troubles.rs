//! Which processes have had a reason to lose a lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::id::InstanceId;

#[derive(Debug, Default)]
struct Book {
    names: BTreeMap<InstanceId, String>,
    troubled: BTreeSet<String>,
}

/// Who died, stood still, left without waiting for its calls, or was failed by the store. Clones are the same book.
#[derive(Debug, Clone, Default)]
pub struct Troubles(Arc<Mutex<Book>>);

impl Troubles {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process has begun.
    pub fn begins(&self, instance: InstanceId, name: &str) {
        self.book().names.insert(instance, name.to_owned());
    }

    /// Something has befallen it.
    pub fn befalls(&self, name: &str) {
        self.book().troubled.insert(name.to_owned());
    }

    /// The name of a process that nothing has befallen.
    #[must_use]
    pub fn unharmed(&self, instance: InstanceId) -> Option<String> {
        let book = self.book();
        book.names.get(&instance).filter(|name| !book.troubled.contains(*name)).cloned()
    }
}
