//! A process in a test: a store, a worker with its keeper, the sweeps, tools that do as they are told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aetheris_core::event::{Event, Failure, Usage};
use aetheris_core::id::{InstanceId, JobId, WorkerId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::state::JobState;
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::ops::{Signal, SignalAnswer, Submission};
use aetheris_runtime::{
    ModelAnswer, ModelError, ModelRequest, Models, OpError, Plans, Runtime, Settings, ToolCall, ToolOutcome, Tools,
    Wakeups,
};
use aetheris_scheduler::SweepOptions;
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{Clock, System, SystemIds};
use aetheris_store::{Boxed, NewAgent};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Virtual time: what tokio's paused clock says.
struct Virtual(tokio::time::Instant);

impl Clock for Virtual {
    fn boot(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> Timestamp {
        let micros = i64::try_from(self.0.elapsed().as_micros()).unwrap();
        Timestamp::from_micros(1_700_000_000_000_000 + micros)
    }
}

/// What a tool does when it is called.
pub(crate) enum Act {
    /// Answers this.
    Say(ToolOutcome),
    /// Tells that it was reached, waits to be released, then answers.
    Hold(Arc<Notify>, Arc<Notify>, ToolOutcome),
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
                Some(Act::Hold(reached, release, outcome)) => {
                    reached.notify_one();
                    release.notified().await;
                    outcome
                }
            }
        })
    }
}

#[derive(Default)]
pub(crate) struct Echo;

impl Models for Echo {
    fn complete(&self, request: ModelRequest) -> Boxed<'_, Result<ModelAnswer, ModelError>> {
        let usage = Usage { completion_tokens: 3, prompt_tokens: 7 };
        Box::pin(async move { Ok(ModelAnswer { model: request.model, text: request.prompt, usage }) })
    }

    fn knows(&self, _model: &str) -> Result<(), String> {
        Ok(())
    }
}

pub(crate) struct World {
    pub(crate) rt: Runtime,
    pub(crate) tools: Arc<Script>,
}

pub(crate) struct Process {
    pub(crate) stop: StopSignals,
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
        let clock: Arc<dyn Clock> = Arc::new(Virtual(tokio::time::Instant::now()));
        let tools = Arc::new(Script::default());
        let rt = Runtime {
            models: Arc::new(Echo),
            plans: Plans::default(),
            settings: Arc::new(Settings::default()),
            store: Arc::new(MemoryStore::new(Arc::clone(&clock))),
            system: System { clock, ids: Arc::new(SystemIds) },
            tools: Arc::clone(&tools) as Arc<dyn Tools>,
            wakeups: Wakeups::default(),
        };
        Self { rt, tools }
    }

    pub(crate) async fn put(&self, file: &str) {
        let agent = aetheris_agentfile::parse(file).unwrap_or_else(|errors| panic!("{errors:?}"));
        let new = NewAgent { agent: Arc::new(agent), source: file.to_owned() };
        self.rt.store.put_agent(new).await.unwrap();
    }

    /// Starts worker, keeper and sweeps as one process of its own.
    pub(crate) fn start(&self, name: &str) -> Process {
        let stop = StopSignals::default();
        let options = WorkerOptions {
            heartbeat: Span::from_secs(10),
            id: WorkerId::from(name),
            lease_ttl: TTL,
            poll_interval: Span::from_millis(100),
            slots: 8,
        };
        let instance = InstanceId::from_u128(self.rt.system.ids.secret());
        // Another process: its hints are its own.
        let rt = Runtime { wakeups: Wakeups::default(), ..self.rt.clone() };
        let (worker, keeper) = Worker::new(rt.clone(), instance, options, stop.clone());
        let sweeps = CancellationToken::new();
        tokio::spawn(aetheris_scheduler::fire_timers(rt.clone(), SweepOptions::default(), sweeps.clone()));
        tokio::spawn(aetheris_scheduler::reclaim_expired(rt, SweepOptions::default(), sweeps.clone()));
        Process { stop, sweeps, worker: tokio::spawn(worker.run()), keeper: tokio::spawn(keeper.run()) }
    }

    pub(crate) async fn submit(&self, agent: &str, message: Value) -> JobId {
        let submission = Submission { message: Some(Json::new(message)), ..Submission::default() };
        self.rt.submit(&agent.into(), submission).await.unwrap().job
    }

    pub(crate) async fn signal(&self, job: JobId, key: &str, payload: Value) -> Result<SignalAnswer, OpError> {
        let signal = Signal { correlation_key: key.to_owned(), payload: Json::new(payload), wait_type: None };
        self.rt.signal(job, signal).await
    }

    /// Waits until the job is in one of these states.
    pub(crate) async fn until(&self, job: JobId, statuses: &[JobStatus]) -> JobState {
        let mut follower = self.rt.store.hints().follow(job);
        loop {
            let state = self.state(job).await;
            if statuses.contains(&state.status) {
                return state;
            }
            tokio::select! {
                () = follower.changed() => {}
                () = tokio::time::sleep(Duration::from_secs(100 * 3_600)) => panic!("the job is still {:?}", state.status),
            }
        }
    }

    pub(crate) async fn done(&self, job: JobId) -> JobState {
        let end = self.until(job, &[JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled]).await;
        let replay = self.rt.replay(job).await.unwrap();
        assert_eq!(replay.differences, Vec::<String>::new());
        end
    }

    pub(crate) async fn state(&self, job: JobId) -> JobState {
        aetheris_runtime::load::Loaded::read(self.rt.store.as_ref(), job).await.unwrap().state
    }

    pub(crate) async fn kinds(&self, job: JobId) -> Vec<&'static str> {
        let events = self.rt.store.events(job, 0, 1_000).await.unwrap();
        events.iter().map(|row| row.decode().unwrap().event.kind().as_str()).collect()
    }

    pub(crate) async fn events(&self, job: JobId) -> Vec<Event> {
        let events = self.rt.store.events(job, 0, 1_000).await.unwrap();
        events.iter().map(|row| row.decode().unwrap().event).collect()
    }

    pub(crate) async fn result(&self, job: JobId) -> Value {
        let loaded = aetheris_runtime::load::Loaded::read(self.rt.store.as_ref(), job).await.unwrap();
        match loaded.state.ending.clone().unwrap() {
            aetheris_core::state::Ending::Answered(aetheris_core::event::Answer::Value(value)) => value.value().clone(),
            aetheris_core::state::Ending::Answered(aetheris_core::event::Answer::Node(node)) => {
                aetheris_runtime::scope::output(&loaded.state, &loaded.effects, &node).value().clone()
            }
            other => panic!("no answer: {other:?}"),
        }
    }
}

pub(crate) fn unknown(message: &str) -> ToolOutcome {
    ToolOutcome::Unknown { error: Failure::new("connection_lost", message), retry_after: None, timeout: false }
}

pub(crate) fn done(value: Value) -> ToolOutcome {
    ToolOutcome::Done(Json::new(value))
}

/// A call that is held: reached, and to be released.
pub(crate) fn hold(outcome: ToolOutcome) -> (Act, Arc<Notify>, Arc<Notify>) {
    let (reached, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    (Act::Hold(Arc::clone(&reached), Arc::clone(&release), outcome), reached, release)
}
