//! A process in a test: a store, a worker with its keeper, the sweeps, tools that do as they are told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aetheris_core::event::{Event, Failure};
use aetheris_core::id::{AttemptId, EventId, InstanceId, JobId, TenantId, WorkerId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::ops::{Resolution, Signal, SignalAnswer, Then};
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{InFlight, OpError, Runtime, ToolCall, ToolOutcome, Tools};
use aetheris_scheduler::SweepOptions;
use aetheris_store::faulty::{Decide, FaultPlan, FaultyStore};
use aetheris_store::{Boxed, ClaimIds, ClaimRequest, NewAgent, Store};
use aetheris_testing::{FakeModels, FakeTools, ModelReply, TestWorld};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What a tool does when it is called.
pub(crate) enum Act {
    /// Answers this.
    Say(ToolOutcome),
    /// Tells that it was reached, waits to be released, then answers.
    Hold(Arc<Notify>, Arc<Notify>, ToolOutcome),
    /// Answers after so long.
    After(Duration, ToolOutcome),
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) acts: Mutex<BTreeMap<String, VecDeque<Act>>>,
    pub(crate) calls: Mutex<Vec<ToolCall>>,
}

impl Script {
    /// How often a tool's body ran.
    pub(crate) fn count(&self, tool: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| call.tool_name.as_str() == tool).count()
    }

    pub(crate) fn calls_of(&self, tool: &str) -> Vec<ToolCall> {
        self.calls.lock().unwrap().iter().filter(|call| call.tool_name.as_str() == tool).cloned().collect()
    }

    pub(crate) fn next(&self, tool: &str, acts: impl IntoIterator<Item = Act>) {
        self.acts.lock().unwrap().entry(tool.to_owned()).or_default().extend(acts);
    }
}

impl Tools for Script {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        let act = self.acts.lock().unwrap().get_mut(call.tool_name.as_str()).and_then(VecDeque::pop_front);
        self.calls.lock().unwrap().push(call.clone());
        Box::pin(async move {
            match act {
                None => ToolOutcome::Done(call.input),
                Some(Act::Say(outcome)) => outcome,
                Some(Act::After(time, outcome)) => {
                    tokio::time::sleep(time).await;
                    outcome
                }
                Some(Act::Hold(reached, release, outcome)) => {
                    reached.notify_one();
                    release.notified().await;
                    outcome
                }
            }
        })
    }
}

pub(crate) struct World {
    inner: TestWorld,
    pub(crate) rt: Runtime,
    pub(crate) tools: Arc<Script>,
}

pub(crate) struct Process {
    pub(crate) in_flight: InFlight,
    /// Its operations, on its own way to the store: what its own parts work with, its bus included.
    pub(crate) rt: Runtime,
    pub(crate) stop: StopSignals,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) sweeps: CancellationToken,
    pub(crate) worker: tokio::task::JoinHandle<()>,
    keeper: tokio::task::JoinHandle<()>,
}

impl Process {
    /// Nothing of the process runs any more; what it holds is left as it is.
    pub(crate) fn kill(&self) {
        self.worker.abort();
        self.keeper.abort();
        self.sweeps.cancel();
    }

    /// Its leases are renewed no more, while its runs go on: slow, not dead.
    pub(crate) fn freeze_keeper(&self) {
        self.keeper.abort();
    }
}

pub(crate) const TTL: Span = Span::from_secs(30);

impl World {
    pub(crate) fn new() -> Self {
        Self::asking(&FakeModels::new().rule(|request| Some(ModelReply::text(request.prompt.clone()).using(7, 3))))
    }

    /// A world with these models.
    pub(crate) fn asking(models: &FakeModels) -> Self {
        let tools = Arc::new(Script::default());
        let inner = TestWorld::with_adapters(&FakeTools::new(), models, |_| Arc::clone(&tools) as Arc<dyn Tools>);
        Self { rt: inner.runtime().clone(), inner, tools }
    }

    pub(crate) async fn put(&self, file: &str) {
        let agent = aetheris_agentfile::parse(file).unwrap_or_else(|errors| panic!("{errors:?}"));
        let new = NewAgent { agent: Arc::new(agent), source: file.to_owned(), tenant: TenantId::default() };
        self.rt.store.put_agent(new).await.unwrap();
    }

    /// Starts worker, keeper and sweeps as one process of its own.
    pub(crate) fn start(&self, name: &str) -> Process {
        self.start_behind(name, FaultPlan::none())
    }

    /// As [`World::start`], with a store that fails that process as a plan says.
    pub(crate) fn start_behind(&self, name: &str, faults: impl Decide + 'static) -> Process {
        self.start_looking(name, faults, SweepOptions::default())
    }

    /// As [`World::start_behind`], with sweeps that look so often by themselves.
    pub(crate) fn start_looking(&self, name: &str, faults: impl Decide + 'static, sweep: SweepOptions) -> Process {
        self.start_process(name, Arc::clone(&self.rt.store), Box::new(faults), sweep)
    }

    /// As [`World::start`], over a store that stands between it and that of the world.
    pub(crate) fn start_over(&self, name: &str, store: Arc<dyn Store>) -> Process {
        self.start_process(name, store, Box::new(FaultPlan::none()), SweepOptions::default())
    }

    fn start_process(
        &self,
        name: &str,
        inner: Arc<dyn Store>,
        faults: Box<dyn Decide>,
        sweep: SweepOptions,
    ) -> Process {
        let stop = StopSignals::default();
        let options = WorkerOptions {
            heartbeat: Span::from_secs(10),
            id: WorkerId::from(name),
            lease_ttl: TTL,
            poll_interval: Span::from_millis(100),
            slots: 8,
        };
        let instance = InstanceId::from_u128(self.rt.system.ids.secret());
        // Another process: its bus is its own.
        let store = Arc::new(FaultyStore::decided_by(inner, faults).apart());
        let shared: Arc<dyn Store> = Arc::clone(&store) as _;
        let in_flight = InFlight::default();
        let rt = Runtime { in_flight: in_flight.clone(), store: shared, ..self.rt.clone() };
        let (worker, keeper) = Worker::new(rt.clone(), instance, options, stop.clone());
        let sweeps = CancellationToken::new();
        tokio::spawn(aetheris_scheduler::fire_timers(rt.clone(), sweep, Pulse::default(), sweeps.clone()));
        tokio::spawn(aetheris_scheduler::deliver_outbox(rt.clone(), sweep, Pulse::default(), sweeps.clone()));
        tokio::spawn(aetheris_scheduler::reclaim_expired(rt.clone(), sweep, Pulse::default(), sweeps.clone()));
        let (worker, keeper) = (tokio::spawn(worker.run()), tokio::spawn(keeper.run()));
        Process { in_flight, rt, stop, store, sweeps, worker, keeper }
    }

    /// Claims everything that can be claimed for a process that does nothing with it; its name.
    pub(crate) async fn claim_all(&self) -> InstanceId {
        let instance = InstanceId::from_u128(self.rt.system.ids.secret());
        loop {
            let ids = self.rt.system.ids.as_ref();
            let pair =
                |_| ClaimIds { attempt: AttemptId::from_u128(ids.secret()), event: EventId::from_u128(ids.secret()) };
            let request = ClaimRequest {
                ids: (0..64).map(pair).collect(),
                instance,
                linger: Span::ZERO,
                ttl: TTL,
                worker: WorkerId::from("gone"),
            };
            if self.rt.store.claim(request).await.unwrap().is_empty() {
                return instance;
            }
        }
    }

    pub(crate) async fn submit(&self, agent: &str, message: Value) -> JobId {
        self.inner.send(agent, message).await.unwrap()
    }

    pub(crate) async fn signal(&self, job: JobId, key: &str, payload: Value) -> Result<SignalAnswer, OpError> {
        let signal = Signal { correlation_key: key.to_owned(), payload: Json::new(payload), wait_type: None };
        self.rt.signal(job, signal).await
    }

    /// Waits until the job is in one of these states.
    pub(crate) async fn until(&self, job: JobId, statuses: &[JobStatus]) -> JobState {
        self.inner.until(job, statuses).await.unwrap()
    }

    /// Waits until the job has ended; every invariant holds then, and replay finds no difference.
    pub(crate) async fn done(&self, job: JobId) -> JobState {
        let end = self.inner.ended(job).await.unwrap();
        self.inner.check().await.unwrap();
        end
    }

    /// Waits until the start of a plain step, whose body runs, is written.
    pub(crate) async fn start_shown(&self, job: JobId, node: &str) {
        while self.state(job).await.step_status(&node.into()) != StepStatus::Running {
            tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
        }
    }

    /// How much time has passed since the world began.
    pub(crate) fn passed(&self) -> std::time::Duration {
        self.inner.passed()
    }

    pub(crate) async fn state(&self, job: JobId) -> JobState {
        self.inner.state(job).await.unwrap()
    }

    pub(crate) async fn kinds(&self, job: JobId) -> Vec<&'static str> {
        self.events(job).await.iter().map(|event| event.kind().as_str()).collect()
    }

    pub(crate) async fn events(&self, job: JobId) -> Vec<Event> {
        self.inner.events(job).await.unwrap()
    }

    pub(crate) async fn result(&self, job: JobId) -> Value {
        self.inner.result(job).await.unwrap()
    }
}

pub(crate) fn unknown(message: &str) -> ToolOutcome {
    ToolOutcome::Unknown { error: Failure::new("connection_lost", message), retry_after: None, timeout: false }
}

pub(crate) fn done(value: Value) -> ToolOutcome {
    ToolOutcome::Done(Json::new(value))
}

/// An operator's answer: the call of this permit had its effect.
pub(crate) fn happened(permit: u32, result: Json) -> Resolution {
    Resolution { happened: Some(result), ..did_not_happen(permit) }
}

/// An operator's answer: the call of this permit had no effect, and is tried again.
pub(crate) fn did_not_happen(permit: u32) -> Resolution {
    Resolution { happened: None, note: "looked in the books".to_owned(), permit, refused: false, then: Then::Retry }
}

/// A call that is held: reached, and to be released.
pub(crate) fn hold(outcome: ToolOutcome) -> (Act, Arc<Notify>, Arc<Notify>) {
    let (reached, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    (Act::Hold(Arc::clone(&reached), Arc::clone(&release), outcome), reached, release)
}
