//! Compiled plans by hash, and compiled schemas. Neither ever changes, so a cache needs no care but a bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The plans of one process.
#[derive(Debug, Clone)]
pub struct Plans {
    compiling: Arc<Semaphore>,
    judging: Arc<Semaphore>,
    plans: Arc<Mutex<Kept<CompiledPlan>>>,
    schemas: Arc<Mutex<Kept<Schema>>>,
}

/// What was asked for last, up to a bound.
#[derive(Debug)]
struct Kept<T> {
    asked: u64,
    by_hash: BTreeMap<Hash, One<T>>,
    /// Which was asked for when.
    by_use: BTreeMap<u64, Hash>,
    room: usize,
    taken: usize,
}

#[derive(Debug)]
struct One<T> {
    last_asked: u64,
    takes: usize,
    value: Arc<T>,
}

impl<T> Kept<T> {
    const fn with_room(room: usize) -> Self {
        Self { asked: 0, by_hash: BTreeMap::new(), by_use: BTreeMap::new(), room, taken: 0 }
    }

    fn get(&mut self, hash: &Hash) -> Option<Arc<T>> {
        let kept = self.by_hash.get_mut(hash)?;
        self.asked += 1;
        self.by_use.remove(&std::mem::replace(&mut kept.last_asked, self.asked));
        self.by_use.insert(self.asked, *hash);
        Some(Arc::clone(&kept.value))
    }

    /// Keeps one that is not there, in the place of those that nobody asked for so long where there is no room. One
    /// that has no room by itself takes nobody's.
    fn keep(&mut self, hash: Hash, value: &Arc<T>, takes: usize) {
        if takes > self.room || self.get(&hash).is_some() {
            return;
        }
        while self.taken + takes > self.room {
            let oldest = self.by_use.pop_first().and_then(|(_, hash)| self.by_hash.remove(&hash));
            let Some(gone) = oldest else { return };
            self.taken -= gone.takes;
        }
        self.asked += 1;
        self.by_use.insert(self.asked, hash);
        self.by_hash.insert(hash, One { last_asked: self.asked, takes, value: Arc::clone(value) });
        self.taken += takes;
    }
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            compiling: Arc::new(Semaphore::new(limits::COMPILED_AT_ONCE)),
            judging: Arc::new(Semaphore::new(limits::JUDGED_AT_ONCE)),
            plans: Arc::new(Mutex::new(Kept::with_room(CACHED_PLANS_MAX))),
            schemas: Arc::new(Mutex::new(Kept::with_room(limits::SCHEMAS_KEPT_BYTES_MAX))),
        }
    }
}

impl Plans {
    /// The plan of a hash, from the cache or the store.
    ///
    /// # Errors
    /// The store cannot be asked, or has no such plan or one that this build cannot execute.
    pub async fn get(&self, store: &dyn Store, hash: Hash) -> Result<Arc<CompiledPlan>, OpError> {
        if let Some(plan) = lock(&self.plans).get(&hash) {
            return Ok(plan);
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
        lock(&self.plans).keep(hash, &compiled, 1);
        Ok(compiled)
    }

    /// In what a value does not fit a schema; nothing where it does. Work that takes long is done beside the
    /// tasks of this thread, one value after the other, so that those who only send values leave a processor to
    /// everybody else.
    ///
    /// # Errors
    /// The schema was accepted by another build and this one cannot read it.
    pub async fn violations(&self, schema: &Json, value: &Json) -> Result<Vec<Violation>, OpError> {
        let kept = self.schema(schema).await?;
        if !kept.takes_long(value) {
            return Ok(kept.violations(value));
        }
        // Nobody closes them.
        let _turn = self.judging.acquire().await;
        if !kept.holds_more(value) {
            return Ok(aside(|| kept.violations(value)));
        }
        // What this value would leave behind in the matchers goes with them.
        let compiling = self.compiling.acquire().await;
        let own = aside(|| by_itself(|| compile(schema)))?;
        drop(compiling);
        Ok(aside(|| by_itself(|| own.violations(value))))
    }

    /// The compiled schema. They are compiled one after the other: each may take much memory while it is.
    async fn schema(&self, json: &Json) -> Result<Arc<Schema>, OpError> {
        let hash = json.hash();
        if let Some(schema) = lock(&self.schemas).get(&hash) {
            return Ok(schema);
        }
        // Nobody closes it.
        let _turn = self.compiling.acquire().await;
        if let Some(schema) = lock(&self.schemas).get(&hash) {
            return Ok(schema);
        }
        let compiled = Arc::new(aside(|| compile(json))?);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let takes = compiled.memory().saturating_mul(processors.div_ceil(aetheris_schema::MATCHERS));
        lock(&self.schemas).keep(hash, &compiled, takes);
        Ok(compiled)
    }
}

fn compile(schema: &Json) -> Result<Schema, OpError> {
    Schema::compile(schema).map_err(|problems| {
        let all: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
        OpError::Corrupt(format!("a schema cannot be read by this build: {}", all.join("; ")))
    })
}

fn lock<T>(kept: &Mutex<Kept<T>>) -> MutexGuard<'_, Kept<T>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Does it in a thread of its own. What an allocator keeps of the memory that a thread has given back, the next one takes:
/// done by every thread in its turn, this would be kept for each.
fn by_itself<T: Send>(work: impl Fn() -> T + Sync) -> T {
    let done = std::thread::scope(|threads| {
        let thread = std::thread::Builder::new().name("judge".to_owned()).spawn_scoped(threads, &work);
        thread.map(std::thread::ScopedJoinHandle::join)
    });
    match done {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        // The machine has no thread left.
        Err(_) => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_schemas_have_room_for_small_ones_and_never_take_more_than_their_bound() {
        let schema = |parts: usize| {
            let all: Vec<_> = (0..parts / 2).map(|n| serde_json::json!({ "minimum": n })).collect();
            Arc::new(Schema::compile(&Json::new(serde_json::json!({ "allOf": all }))).unwrap())
        };
        let room = || Kept::<Schema>::with_room(limits::SCHEMAS_KEPT_BYTES_MAX);
        let (small, large) = (schema(20), schema(4_000));
        assert!(
            large.memory() < limits::SCHEMAS_KEPT_BYTES_MAX && 40 * large.memory() > limits::SCHEMAS_KEPT_BYTES_MAX
        );
        for kinds in [[&small, &small], [&large, &large], [&small, &large]] {
            let mut kept = room();
            for n in 0..6_000_u32 {
                let kind = kinds[usize::from(n % 7 == 0)];
                kept.keep(Hash::of(&n.to_be_bytes()), kind, kind.memory());
                kept.keep(Hash::of(&n.to_be_bytes()), kind, kind.memory());
                let bytes: usize = kept.by_hash.values().map(|kept| kept.value.memory()).sum();
                assert!(bytes == kept.taken && bytes <= limits::SCHEMAS_KEPT_BYTES_MAX);
            }
            let (least, most) = (kinds[1].memory(), kinds[0].memory());
            let room = |each: usize| limits::SCHEMAS_KEPT_BYTES_MAX / each;
            assert!((room(least)..=room(most)).contains(&kept.by_hash.len()), "{}", kept.by_hash.len());
        }
        let (mut kept, hash) = (room(), |n: u32| Hash::of(&n.to_be_bytes()));
        for n in 0..100 {
            kept.keep(hash(n), &large, large.memory());
            assert!(kept.get(&hash(0)).is_some(), "it was asked for all the time and is gone after {n} others");
        }
        // Whatever is new counts as asked for: it takes the place of what nobody asks for any more, and not of another
        // new one.
        let mut kept = room();
        for n in 0..100 {
            kept.keep(hash(n), &large, large.memory());
            assert!(kept.get(&hash(n)).is_some());
        }
        kept.keep(hash(100), &large, large.memory());
        kept.keep(hash(101), &large, large.memory());
        assert!(kept.get(&hash(100)).is_some() && kept.get(&hash(101)).is_some());
    }
}
