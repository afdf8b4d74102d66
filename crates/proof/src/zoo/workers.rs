//! Scenarios of a whole worker on virtual time: its claims, its keeper, its runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::id::{InstanceId, WorkerId};
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::ops::Submission;
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{Plans, Runtime, ToolCall, ToolOutcome, Tools};
use aetheris_scheduler::SweepOptions;
use aetheris_store::Boxed;
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{Clock, System};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};
use anyhow::Result;

use super::world::{TTL, World, parsed};

/// The time that tokio's paused clock says.
struct Virtual(tokio::time::Instant);

impl Clock for Virtual {
    fn boot_id(&self) -> aetheris_core::id::BootId {
        aetheris_core::id::BootId::from_u128(1)
    }

    fn boot(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000).after(Span::from_std(self.0.elapsed()))
    }
}

/// A tool that refuses its first call, and which notes when it was called and under which claim.
struct Refusing {
    began: tokio::time::Instant,
    calls: Mutex<Vec<(u32, Duration)>>,
}

impl Tools for Refusing {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push((call.fence.epoch, self.began.elapsed()));
        Box::pin(std::future::ready(if call.try_number == 1 {
            ToolOutcome::RefusedRetryable { error: Failure::new("busy", "come back"), retry_after: None }
        } else {
            ToolOutcome::Done(call.input)
        }))
    }
}

const AGENT: &str = "agent: shop\nretry: { max_attempts: 3, backoff: 400ms, factor: 1, jitter: none }\n\
                     tools:\n  t: { kind: function, function: t, effect: at_most_once }\nplan:\n  nodes:\n    \
                     - { id: call, kind: tool, tool: t, input: {} }\n";

/// Runs one job with a worker and a sweep for so long; when its tool was called under the first claim.
async fn calls_of_first_claim(world: &World, lasts: Duration) -> Result<Vec<Duration>> {
    let began = tokio::time::Instant::now();
    let clock: Arc<dyn Clock> = Arc::new(Virtual(began));
    let tools = Arc::new(Refusing { began, calls: Mutex::default() });
    let rt = Runtime {
        in_flight: aetheris_runtime::InFlight::default(),
        plans: Plans::default(),
        store: Arc::new(MemoryStore::new(Arc::clone(&clock))),
        system: System { clock, ids: Arc::clone(&world.rt.system.ids) },
        tools: Arc::clone(&tools) as Arc<dyn Tools>,
        ..world.rt.clone()
    };
    rt.store.put_agent(parsed(AGENT)?).await?;
    rt.submit(&"shop".into(), Submission::default()).await?;
    let options = WorkerOptions {
        heartbeat: Span::from_secs(10),
        id: WorkerId::from("w"),
        lease_ttl: TTL,
        poll_interval: Span::from_secs(1),
        slots: 1,
    };
    let (worker, keeper) = Worker::new(rt.clone(), InstanceId::from_u128(1), options, StopSignals::default());
    let stop = tokio_util::sync::CancellationToken::new();
    let sweep = aetheris_scheduler::reclaim_expired(rt, SweepOptions::default(), Pulse::default(), stop);
    tokio::select! {
        () = worker.run() => anyhow::bail!("the worker has ended"),
        () = keeper.run() => anyhow::bail!("the keeper has ended"),
        () = sweep => anyhow::bail!("the sweep has ended"),
        () = tokio::time::sleep(lasts) => {}
    }
    let calls = tools.calls.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(calls.iter().filter(|(epoch, _)| *epoch == 1).map(|(_, at)| *at).collect())
}

/// Runs a story on a thread whose time is virtual.
fn on_virtual_time<T: Send>(story: impl Future<Output = Result<T>> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
            runtime.block_on(story)
        });
        thread.join().map_err(|_| anyhow::anyhow!("the story has panicked"))?
    })
}

/// A refusal and a short back-off, which the slot is held for.
pub(super) async fn held_back(world: &World) -> Result<()> {
    let story = async {
        let calls = calls_of_first_claim(world, Duration::from_secs(10)).await?;
        let apart = calls.get(1).map(|second| *second - calls[0]);
        world.expect(apart.is_some_and(|apart| apart >= Duration::from_millis(400)), "E6 a try came before its time");
        anyhow::Ok(())
    };
    on_virtual_time(story)
}
