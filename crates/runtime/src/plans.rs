//! Compiled plans by hash. Plans never change, so a cache needs no care but a bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::hash::Hash;
use aetheris_core::plan::CompiledPlan;
use aetheris_store::Store;

use crate::error::OpError;

const CACHED_PLANS_MAX: usize = 256;

/// The plans of one process.
#[derive(Debug, Clone, Default)]
pub struct Plans {
    cached: Arc<Mutex<BTreeMap<Hash, Arc<CompiledPlan>>>>,
}

impl Plans {
    /// The plan of a hash, from the cache or the store.
    ///
    /// # Errors
    /// The store cannot be asked, or has no such plan or one that this build cannot execute.
    pub async fn get(&self, store: &dyn Store, hash: Hash) -> Result<Arc<CompiledPlan>, OpError> {
        if let Some(plan) = self.lock().get(&hash) {
            return Ok(Arc::clone(plan));
        }
        let document =
            store.plan(hash).await?.ok_or_else(|| OpError::Corrupt(format!("the plan {hash} is not in the store")))?;
        let compiled = document.plan.compile().map_err(|errors| {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            OpError::Corrupt(format!("the plan {hash} cannot be executed: {}", all.join("; ")))
        })?;
        if compiled.hash() != hash {
            return Err(OpError::Corrupt(format!("the plan {hash} has the hash {}", compiled.hash())));
        }
        let compiled = Arc::new(compiled);
        let mut cached = self.lock();
        if cached.len() >= CACHED_PLANS_MAX {
            cached.pop_first();
        }
        cached.insert(hash, Arc::clone(&compiled));
        Ok(compiled)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Hash, Arc<CompiledPlan>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
