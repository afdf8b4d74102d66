//! Scenarios of a whole worker on virtual time: its claims, its keeper, its runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::id::{InstanceId, JobId, WorkerId};
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::ops::{Proof, Submission};
use aetheris_runtime::{Plans, Runtime, ToolCall, ToolOutcome, Tools, Wakeups};
use aetheris_scheduler::SweepOptions;
use aetheris_store::faulty::{Fault, FaultPlan, FaultyStore, Op};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{Clock, System};
use aetheris_store::{Boxed, NewAgent, Store};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};
use anyhow::{Context, Result};

use super::slow::Slow;
use super::world::{TTL, World};

/// The time that tokio's paused clock says.
struct Virtual(tokio::time::Instant);

impl Clock for Virtual {
    fn boot(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000).after(Span::from_std(self.0.elapsed()))
    }
}

/// A tool whose body takes a time, and which notes when it began and when it ended or was dropped.
struct Timed {
    began: tokio::time::Instant,
    bodies: Mutex<Vec<Body>>,
    takes: Duration,
}

/// One body: the claim that called it, and when it began and was last at work.
#[derive(Debug, Clone, Copy)]
struct Body {
    epoch: u32,
    from: Duration,
    until: Duration,
}

impl Timed {
    fn bodies(&self) -> std::sync::MutexGuard<'_, Vec<Body>> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tools for Timed {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        Box::pin(async move {
            let from = self.began.elapsed();
            let place = {
                let mut bodies = self.bodies();
                bodies.push(Body { epoch: call.fence.epoch, from, until: from });
                bodies.len() - 1
            };
            if self.takes.is_zero() && call.try_number == 1 {
                let error = Failure::new("busy", "come back");
                return ToolOutcome::RefusedRetryable { error, retry_after: None };
            }
            // A dropped body stops counting where it is.
            let until = from + self.takes;
            while self.began.elapsed() < until {
                tokio::time::sleep(Duration::from_millis(500)).await;
                if let Some(body) = self.bodies().get_mut(place) {
                    body.until = self.began.elapsed();
                }
            }
            ToolOutcome::Done(call.input)
        })
    }
}

/// A worker, its tools and its store.
struct Shop {
    faults: Arc<FaultyStore>,
    job: JobId,
    rt: Runtime,
    tools: Arc<Timed>,
}

const LONG: &str = "agent: shop\nstep_timeout: 90s\nretry: { max_attempts: 3, backoff: 400ms, factor: 1, jitter: none }\n\
                    tools:\n  t: { kind: function, function: t, effect: EFFECT }\nplan:\n  nodes:\n    \
                    - { id: long, kind: tool, tool: t, input: {} }\n";

async fn open(world: &World, effect: &str, takes: Duration, late_claim: Duration) -> Result<Shop> {
    let began = tokio::time::Instant::now();
    let clock: Arc<dyn Clock> = Arc::new(Virtual(began));
    let tools = Arc::new(Timed { began, bodies: Mutex::default(), takes });
    let inner: Arc<dyn Store> = Arc::new(Slow::new(Arc::new(MemoryStore::new(Arc::clone(&clock))), late_claim));
    let faults = Arc::new(FaultyStore::new(inner, FaultPlan::none()));
    let rt = Runtime {
        plans: Plans::default(),
        store: Arc::clone(&faults) as Arc<dyn Store>,
        system: System { clock, ids: Arc::clone(&world.rt.system.ids) },
        tools: Arc::clone(&tools) as Arc<dyn Tools>,
        wakeups: Wakeups::default(),
        ..world.rt.clone()
    };
    let source = LONG.replace("EFFECT", effect);
    let agent = aetheris_agentfile::parse(&source).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    rt.store.put_agent(NewAgent { agent: Arc::new(agent), source }).await?;
    let job = rt.submit(&"shop".into(), Submission::default()).await?.job;
    Ok(Shop { faults, job, rt, tools })
}

impl Shop {
    /// Runs a worker and a sweep for so long.
    async fn work(&self, lasts: Duration, meanwhile: impl Future<Output = Result<()>>) -> Result<()> {
        let options = WorkerOptions {
            heartbeat: Span::from_secs(10),
            id: WorkerId::from("w"),
            lease_ttl: TTL,
            poll_interval: Span::from_secs(1),
            slots: 1,
        };
        let (worker, keeper) = Worker::new(self.rt.clone(), InstanceId::from_u128(1), options, StopSignals::default());
        let stop = tokio_util::sync::CancellationToken::new();
        let sweep = aetheris_scheduler::reclaim_expired(self.rt.clone(), SweepOptions::default(), stop);
        tokio::select! {
            () = worker.run() => anyhow::bail!("the worker has ended"),
            () = keeper.run() => anyhow::bail!("the keeper has ended"),
            () = sweep => anyhow::bail!("the sweep has ended"),
            done = async { tokio::join!(meanwhile, tokio::time::sleep(lasts)).0 } => done,
        }
    }

    fn bodies_of(&self, epoch: u32) -> Vec<Body> {
        self.tools.bodies().iter().filter(|body| body.epoch == epoch).copied().collect()
    }
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

/// No renewal reaches the store for longer than a lease: the run ends before its lease does.
pub(super) async fn unheard(world: &World) -> Result<()> {
    let story = async {
        let shop = open(world, "pure", Duration::from_secs(60), Duration::ZERO).await?;
        shop.faults.replan(FaultPlan::none().script(Op::Heartbeat, vec![Some(Fault::Before); 600]));
        shop.work(Duration::from_secs(80), async { Ok(()) }).await?;
        let first = *shop.bodies_of(1).first().context("no body began")?;
        world.expect(first.until < TTL.to_std(), "A7 a body went on after its lease had ended");
        anyhow::Ok(())
    };
    on_virtual_time(story)
}

/// The job is taken from its worker: the next renewal says so, and the run ends with it.
pub(super) async fn taken_away(world: &World) -> Result<()> {
    let story = async {
        let shop = open(world, "pure", Duration::from_secs(60), Duration::ZERO).await?;
        let take = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let fence = shop.rt.store.job(shop.job).await?.context("the job has gone")?.fence;
            shop.rt.reclaim(shop.job, fence, Proof::Dead(InstanceId::from_u128(1))).await?;
            anyhow::Ok(())
        };
        shop.work(Duration::from_secs(40), take).await?;
        let first = *shop.bodies_of(1).first().context("no body began")?;
        world.expect(first.until < Duration::from_secs(12), "A7 a body went on after its renewal was refused");
        anyhow::Ok(())
    };
    on_virtual_time(story)
}

/// The answer to a claim comes when three quarters of its lease are over: nothing may begin under it.
pub(super) async fn late_claim(world: &World) -> Result<()> {
    let story = async {
        let shop = open(world, "at_most_once", Duration::from_secs(1), Duration::from_secs(25)).await?;
        shop.work(Duration::from_secs(50), async { Ok(()) }).await?;
        world.expect(shop.bodies_of(1).is_empty(), "A7 a body began under a spent lease");
        anyhow::Ok(())
    };
    on_virtual_time(story)
}

/// A refusal and a short back-off, which the slot is held for.
pub(super) async fn held_back(world: &World) -> Result<()> {
    let story = async {
        let shop = open(world, "at_most_once", Duration::ZERO, Duration::ZERO).await?;
        shop.work(Duration::from_secs(10), async { Ok(()) }).await?;
        let bodies = shop.bodies_of(1);
        let apart = bodies.get(1).map(|second| second.from - bodies[0].from);
        world.expect(apart.is_some_and(|apart| apart >= Duration::from_millis(400)), "E6 a try came before its time");
        anyhow::Ok(())
    };
    on_virtual_time(story)
}
