//! Compiled plans by hash, and compiled schemas. Neither ever changes, so a cache needs no care but a bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::hash::Hash;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::CompiledPlan;
use aetheris_core::schema::Violation;
use aetheris_schema::Schema;
use aetheris_store::Store;
use tokio::sync::Semaphore;

use crate::error::OpError;

const CACHED_PLANS_MAX: usize = 256;
const CACHED_SCHEMAS_MAX: usize = 64;

/// The plans of one process.
#[derive(Debug, Clone)]
pub struct Plans {
    cached: Arc<Mutex<BTreeMap<Hash, Arc<CompiledPlan>>>>,
    judging: Arc<Semaphore>,
    schemas: Arc<Mutex<BTreeMap<Hash, Arc<Schema>>>>,
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            cached: Arc::default(),
            judging: Arc::new(Semaphore::new(limits::JUDGED_AT_ONCE)),
            schemas: Arc::default(),
        }
    }
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

    /// In what a value does not fit a schema; nothing where it does. Work that takes long is done beside the
    /// tasks of this thread, one value after the other, so that those who only send values leave a processor to
    /// everybody else.
    ///
    /// # Errors
    /// The schema was accepted by another build and this one cannot read it.
    pub async fn violations(&self, schema: &Json, value: &Json) -> Result<Vec<Violation>, OpError> {
        let schema = aside(|| self.schema(schema))?;
        if !schema.takes_long(value) {
            return Ok(schema.violations(value));
        }
        // Nobody closes it.
        let _turn = self.judging.acquire().await;
        Ok(aside(|| schema.violations(value)))
    }

    fn schema(&self, json: &Json) -> Result<Arc<Schema>, OpError> {
        let hash = json.hash();
        let known = self.schemas.lock().unwrap_or_else(PoisonError::into_inner).get(&hash).map(Arc::clone);
        if let Some(schema) = known {
            return Ok(schema);
        }
        let compiled = Schema::compile(json).map_err(|problems| {
            let all: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
            OpError::Corrupt(format!("a schema cannot be read by this build: {}", all.join("; ")))
        })?;
        let compiled = Arc::new(compiled);
        let mut cached = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= CACHED_SCHEMAS_MAX {
            cached.pop_first();
        }
        cached.insert(hash, Arc::clone(&compiled));
        Ok(compiled)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Hash, Arc<CompiledPlan>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the other tasks of this thread go on elsewhere meanwhile, where there are other threads.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if matches!(flavor, Ok(tokio::runtime::RuntimeFlavor::MultiThread)) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
