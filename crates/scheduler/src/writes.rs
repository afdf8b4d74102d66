//! The writes that a sweep has begun: it goes on past slow ones.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::CONCURRENT_WRITES;

type Write<K, T> = Pin<Box<dyn Future<Output = (K, T)> + Send>>;

/// Writes under way, at most one for each key.
pub(crate) struct Writes<K, T> {
    begun: BTreeSet<K>,
    under_way: FuturesUnordered<Write<K, T>>,
}

impl<K, T> Default for Writes<K, T> {
    fn default() -> Self {
        Self { begun: BTreeSet::new(), under_way: FuturesUnordered::new() }
    }
}

impl<K: Clone + Ord + Send + 'static, T: Send + 'static> Writes<K, T> {
    /// Begins one, unless that of its key is under way.
    pub(crate) fn begin(&mut self, key: K, write: impl Future<Output = T> + Send + 'static) {
        if self.begun.insert(key.clone()) {
            self.under_way.push(Box::pin(async move { (key, write.await) }));
        }
    }

    /// Whether no more may be begun before one has ended.
    pub(crate) fn is_full(&self) -> bool {
        self.begun.len() >= CONCURRENT_WRITES
    }

    /// Whether the write of a key is under way.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.begun.contains(key)
    }

    /// The next that has ended; nothing where none is under way.
    pub(crate) async fn next(&mut self) -> Option<(K, T)> {
        let (key, ended) = self.under_way.next().await?;
        self.begun.remove(&key);
        Some((key, ended))
    }
}
