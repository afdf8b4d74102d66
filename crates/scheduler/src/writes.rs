//! The writes that a sweep has begun: it goes on past slow ones.

use std::collections::BTreeSet;
use std::future::Future;

use tokio::task::JoinSet;

/// Writes under way, at most one for each key and so many in all. They go on whoever looks, and end with this.
pub(crate) struct Writes<K, T> {
    begun: BTreeSet<K>,
    most: usize,
    tasks: JoinSet<(K, T)>,
}

impl<K: Clone + Ord + Send + 'static, T: Send + 'static> Writes<K, T> {
    /// None yet, and so many at most.
    pub(crate) fn new(most: usize) -> Self {
        Self { begun: BTreeSet::new(), most, tasks: JoinSet::new() }
    }

    /// Begins one.
    pub(crate) fn begin(&mut self, key: K, write: impl Future<Output = T> + Send + 'static) {
        if self.begun.insert(key.clone()) {
            self.tasks.spawn(async move { (key, write.await) });
        }
    }

    /// Whether the write of a key is under way.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.begun.contains(key)
    }

    /// Whether no more may be begun before one has ended.
    pub(crate) fn is_full(&self) -> bool {
        self.begun.len() >= self.most
    }

    /// The next that has ended; nothing where none is under way. What it panics with is this one's panic.
    pub(crate) async fn next(&mut self) -> Option<(K, T)> {
        match self.tasks.join_next().await? {
            Ok((key, ended)) => {
                self.begun.remove(&key);
                Some((key, ended))
            }
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Only at the end of the process is a task cancelled.
                Err(_) => None,
            },
        }
    }
}
