//! Compiled plans by hash, and compiled schemas. Neither ever changes, so a cache needs no care but a bound.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::hash::Hash;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{CompiledPlan, Plan};
use aetheris_core::schema::Violation;
use aetheris_core::state::JobState;
use aetheris_schema::{Effort, Problem, Schema};
use aetheris_store::Store;
use aetheris_store::kept::Kept;
use tokio::sync::Semaphore;

use crate::aside::aside;
use crate::error::OpError;

/// The plans of one process.
#[derive(Debug, Clone)]
pub struct Plans {
    compiling: Arc<Semaphore>,
    judging: Arc<Semaphore>,
    plans: Arc<Mutex<Cache<CompiledPlan>>>,
    schemas: Arc<Mutex<Cache<Schema>>>,
}

type Cache<T> = Kept<Hash, Arc<T>>;

impl Default for Plans {
    fn default() -> Self {
        Self {
            compiling: Arc::new(Semaphore::new(limits::COMPILED_AT_ONCE)),
            judging: Arc::new(Semaphore::new(limits::JUDGED_AT_ONCE)),
            plans: Arc::new(Mutex::new(Kept::with_room(limits::PLANS_KEPT_BYTES_MAX))),
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
        let takes = compiled.memory();
        lock(&self.plans).keep(hash, Arc::clone(&compiled), takes);
        Ok(compiled)
    }

    /// The plan of a job as people are shown it: where the job had it made, with the steps of that before its own.
    ///
    /// # Errors
    /// As [`Plans::get`].
    pub async fn of_job(&self, store: &dyn Store, state: &JobState) -> Result<Option<Arc<CompiledPlan>>, OpError> {
        let Some(hash) = state.followed_plan() else { return Ok(None) };
        let plan = self.get(store, hash).await?;
        let Some(planning) = state.planning.filter(|planning| *planning != hash) else { return Ok(Some(plan)) };
        let planning = self.get(store, planning).await?;
        let nodes = planning.plan().nodes.iter().chain(&plan.plan().nodes).cloned().collect();
        let both = Arc::new(Plan { nodes, ..plan.plan().clone() });
        let unreadable = |_| OpError::Corrupt(format!("the plan {hash} cannot stand behind its planning"));
        both.compile().map(|both| Some(Arc::new(both))).map_err(unreadable)
    }

    /// In what a value does not fit a schema; nothing where it does. Work that takes long is done beside the
    /// tasks of this thread, one value after the other, so that those who only send values leave a processor to
    /// everybody else.
    ///
    /// # Errors
    /// The schema was accepted by another build and this one cannot read it.
    pub async fn violations(&self, schema: &Json, value: &Json) -> Result<Vec<Violation>, OpError> {
        let kept = self.schema(schema).await?;
        match kept.effort(value) {
            Effort::Moment => Ok(kept.violations(value)),
            Effort::Long => {
                // Nobody closes it.
                let _turn = self.judging.acquire().await;
                Ok(aside(|| kept.violations(value)))
            }
            Effort::Large => {
                let _turn = self.judging.acquire().await;
                // What this value would leave behind in the matchers goes with them.
                let compiling = self.compiling.acquire().await;
                let own = aside(|| by_itself(|| kept.anew(schema))).map_err(unreadable)?;
                drop(compiling);
                Ok(aside(|| by_itself(|| own.violations(value))))
            }
        }
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
        let compiled = Arc::new(aside(|| Schema::compile(json)).map_err(unreadable)?);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        lock(&self.schemas).keep(hash, Arc::clone(&compiled), takes(&compiled, processors));
        Ok(compiled)
    }
}

/// What a kept schema takes on so many processors, in bytes.
fn takes(schema: &Schema, processors: usize) -> usize {
    schema.memory().saturating_mul(processors.div_ceil(aetheris_schema::MATCHERS))
}

fn unreadable(problems: Vec<Problem>) -> OpError {
    let all: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
    OpError::Corrupt(format!("a schema cannot be read by this build: {}", all.join("; ")))
}

fn lock<T>(kept: &Mutex<Cache<T>>) -> MutexGuard<'_, Cache<T>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
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
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use serde_json::json;

    use super::*;

    /// What a value does not fit, where nothing has to be waited for.
    fn at_once(plans: &Plans, schema: &Json, value: &Json) -> Option<usize> {
        let judged = pin!(plans.violations(schema, value));
        match judged.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => Some(found.unwrap().len()),
            Poll::Pending => None,
        }
    }

    /// A value that takes long has its turn, and one that would leave much behind in the kept matchers is judged by
    /// matchers of its own, which are compiled in the turn of those that are.
    #[test]
    fn what_takes_much_waits_for_its_turn_and_is_judged_by_a_schema_of_its_own() {
        let patterns: Vec<_> = (0..20).map(|n| json!({ "pattern": format!("^[ab]*a[ab]{{300}}c{n}$") })).collect();
        let large = Json::new(json!({ "items": { "type": "string", "anyOf": patterns } }));
        let long = Json::new(json!({ "items": { "enum": (0..2_000).collect::<Vec<_>>() } }));
        let fits = format!("a{}c3", "b".repeat(300));
        let (of_large, of_long) = (Json::new(json!([fits, "b"])), Json::new(json!(vec![0; 100])));
        let (short_of_large, short_of_long) = (Json::new(json!(["b"])), Json::new(json!([-1])));
        let effort = |schema: &Json, value: &Json| Schema::compile(schema).unwrap().effort(value);
        assert_eq!(effort(&large, &of_large), Effort::Large);
        assert_eq!(effort(&long, &of_long), Effort::Long);
        assert_eq!([effort(&large, &short_of_large), effort(&long, &short_of_long)], [Effort::Moment; 2]);
        let plans = Plans::default();
        let all = [(&large, &of_large), (&large, &short_of_large), (&long, &of_long), (&long, &short_of_long)];
        let judged = || all.map(|(schema, value)| at_once(&plans, schema, value));
        assert_eq!(judged(), [Some(1), Some(1), Some(0), Some(1)]);
        let turn = plans.judging.try_acquire().unwrap();
        assert_eq!(judged(), [None, Some(1), None, Some(1)]);
        drop(turn);
        let turn = plans.compiling.try_acquire().unwrap();
        assert_eq!(judged(), [None, Some(1), Some(0), Some(1)]);
        drop(turn);
        assert_eq!(judged(), [Some(1), Some(1), Some(0), Some(1)]);
    }

    #[test]
    fn what_is_done_by_itself_is_done_in_a_thread_of_its_own() {
        let name = || std::thread::current().name().map(str::to_owned);
        assert_eq!(by_itself(name).as_deref(), Some("judge"));
        assert_ne!(name().as_deref(), Some("judge"));
        let panics = std::panic::catch_unwind(|| by_itself(|| -> () { std::panic::panic_any(7_u8) }));
        assert_eq!(panics.unwrap_err().downcast_ref::<u8>(), Some(&7));
    }

    /// Each matcher of a schema is there once for so many processors.
    #[test]
    fn a_kept_schema_takes_more_on_more_processors() {
        let schema = Schema::compile(&Json::new(json!({ "pattern": "a+b" }))).unwrap();
        let times = |processors| takes(&schema, processors) / schema.memory();
        let matchers = aetheris_schema::MATCHERS;
        assert_eq!([1, 2, matchers, matchers + 1, 2 * matchers, 2 * matchers + 1].map(times), [1, 1, 1, 2, 2, 3]);
        assert!(takes(&schema, matchers) > 0);
    }

    #[test]
    fn kept_schemas_have_room_for_small_ones_and_never_take_more_than_their_bound() {
        let schema = |parts: usize| {
            let all: Vec<_> = (0..parts / 2).map(|n| serde_json::json!({ "minimum": n })).collect();
            Arc::new(Schema::compile(&Json::new(serde_json::json!({ "allOf": all }))).unwrap())
        };
        let room = || Cache::<Schema>::with_room(limits::SCHEMAS_KEPT_BYTES_MAX);
        let (small, large) = (schema(20), schema(4_000));
        assert!(
            large.memory() < limits::SCHEMAS_KEPT_BYTES_MAX && 40 * large.memory() > limits::SCHEMAS_KEPT_BYTES_MAX
        );
        for kinds in [[&small, &small], [&large, &large], [&small, &large]] {
            let mut kept = room();
            for n in 0..6_000_u32 {
                let kind = kinds[usize::from(n % 7 == 0)];
                kept.keep(Hash::of(&n.to_be_bytes()), Arc::clone(kind), kind.memory());
                let bytes: usize = kept.iter().map(|(_, schema)| schema.memory()).sum();
                assert!(bytes == kept.taken() && bytes <= limits::SCHEMAS_KEPT_BYTES_MAX);
            }
            let (least, most) = (kinds[1].memory(), kinds[0].memory());
            let room = |each: usize| limits::SCHEMAS_KEPT_BYTES_MAX / each;
            assert!((room(least)..=room(most)).contains(&kept.iter().len()), "{}", kept.iter().len());
        }
    }
}
