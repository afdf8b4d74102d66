//! A world to test an agent in: a store in memory, virtual time, fakes, and processes that can be killed.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_check::{AckedSignal, ClientHistory, Report, SignalAck};
use aetheris_core::event::{Answer, Event};
use aetheris_core::id::{AgentName, JobId, TenantId, WorkerId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::state::{Ending, JobState};
use aetheris_core::time::Span;
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ops::{Cancelled, Resolution, Signal, SignalAnswer, Submission, Then};
use aetheris_runtime::{Models, OpError, Plans, Runtime, Settings, Tools, names};
use aetheris_scheduler::SweepOptions;
use aetheris_store::bus::Follower;
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::System;
use aetheris_store::{JobFilter, NewAgent, Scope, Store};
use aetheris_worker::WorkerOptions;
use serde_json::Value;

use crate::doubts::{Doubt, Verdict};
use crate::failed::Failed;
use crate::gate::{Ambush, Peace};
use crate::models::FakeModels;
use crate::process::{Duties, Process, World};
use crate::random::SeededIds;
use crate::time::VirtualClock;
use crate::tools::FakeTools;

/// How long the lease of a process in a [`TestWorld`] lives without being renewed. A third of the server's
/// default: most of what a crash costs a test is the asking of idle processes until the lease is over.
pub const LEASE: Span = Span::from_secs(10);

/// Runs a test in virtual time: where nothing can happen before a moment, the clock goes there at once.
/// For plain `#[test]` functions; under `#[tokio::test(start_paused = true)]` it is not needed.
#[expect(clippy::expect_used, reason = "a test that gets no runtime cannot go on")]
pub fn run<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime of one thread");
    runtime.block_on(test)
}

/// One store, its clients, its tools and its models. Processes are started in it one by one and die when
/// they are told to, or dropped. To be made inside [`run`] or another runtime of one thread with paused time.
pub struct TestWorld {
    clock: Arc<VirtualClock>,
    history: Mutex<ClientHistory>,
    models: FakeModels,
    /// The way of clients that no process stands in between.
    rt: Runtime,
    tools: FakeTools,
    world: World,
}

impl std::fmt::Debug for TestWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestWorld").field("tools", &self.tools).finish_non_exhaustive()
    }
}

impl TestWorld {
    /// An empty world with these tools and models.
    #[must_use]
    pub fn new(tools: &FakeTools, models: &FakeModels) -> Self {
        Self::with_adapters(tools, models, |fakes| fakes)
    }

    /// The same, with your own adapter between the processes and the fakes.
    #[must_use]
    pub fn with_adapters(
        tools: &FakeTools,
        models: &FakeModels,
        adapter: impl FnOnce(Arc<dyn Tools>) -> Arc<dyn Tools>,
    ) -> Self {
        let clock = VirtualClock::new();
        tools.keep_time(Arc::clone(&clock));
        let world = World {
            clock: Arc::clone(&clock),
            ids: Arc::new(SeededIds::new(0)),
            models: Arc::new(models.clone()) as Arc<dyn Models>,
            store: Arc::new(MemoryStore::new(Arc::clone(&clock) as _)) as Arc<dyn Store>,
            tools: adapter(Arc::new(tools.clone())),
        };
        let rt = Runtime {
            in_flight: aetheris_runtime::InFlight::default(),
            loads: aetheris_runtime::Loads::default(),
            models: Arc::clone(&world.models),
            plans: Plans::default(),
            scope: Scope::System,
            settings: Arc::new(Settings::default()),
            store: Arc::clone(&world.store),
            system: System { clock: Arc::clone(&clock) as _, ids: Arc::clone(&world.ids) },
            tools: Arc::clone(&world.tools),
        };
        let history = Mutex::default();
        Self { clock, history, models: models.clone(), rt, tools: tools.clone(), world }
    }

    /// Puts an agent from the text of its file.
    ///
    /// # Errors
    /// The file's mistakes, or tools of it that there is no fake of.
    pub async fn put(&self, file: &str) -> Result<AgentName, Failed> {
        self.put_agent(read_agent(file)?).await
    }

    pub(crate) async fn put_agent(&self, new: NewAgent) -> Result<AgentName, Failed> {
        let agent = &new.agent;
        let lacking = agent.plan.tools.keys().filter(|tool| !self.tools.has(tool));
        let lacking: Vec<String> = lacking.map(|tool| format!("`{tool}`")).collect();
        if !lacking.is_empty() {
            return Err(Failed::new(format!("the test has no fake of the agent's tools {}", lacking.join(", "))));
        }
        let name = agent.agent.clone();
        self.rt.store.put_agent(new).await?;
        Ok(name)
    }

    /// Puts an agent from its file.
    ///
    /// # Errors
    /// The file cannot be read, and as [`Self::put`].
    pub async fn put_file(&self, path: impl AsRef<Path>) -> Result<AgentName, Failed> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|e| Failed::new(format!("{}: {e}", path.display())))?;
        self.put(&text).await
    }

    /// What a process does here unless it is told otherwise: what `aetheris dev` does, with a lease
    /// of [`LEASE`].
    #[must_use]
    pub fn duties(name: &str) -> Duties {
        let worker = WorkerOptions {
            heartbeat: Span::from_secs(3),
            id: WorkerId::from(name),
            lease_ttl: LEASE,
            poll_interval: Span::from_millis(250),
            slots: 8,
        };
        let sweeps = Some(SweepOptions::default());
        Duties { settings: Settings::default(), shares_hints: true, sweeps, worker: Some(worker) }
    }

    /// Starts a process. It runs until [`Process::kill`], or until it is dropped.
    #[must_use]
    pub fn start(&self, name: &str) -> Process {
        self.start_with(Self::duties(name), Arc::new(Peace))
    }

    /// Starts a process with other duties, or with an ambush that decides at which crossing it dies.
    #[must_use]
    pub fn start_with(&self, duties: Duties, ambush: Arc<dyn Ambush>) -> Process {
        Process::start(&self.world, duties, ambush)
    }

    /// Sends a message to an agent.
    ///
    /// # Errors
    /// As [`Runtime::submit`].
    pub async fn send(&self, agent: &str, message: Value) -> Result<JobId, Failed> {
        let submission = Submission { message: Some(Json::new(message)), ..Submission::default() };
        let job = self.rt.submit(&AgentName::from(agent), submission).await?.job;
        self.note_submission(None, job);
        Ok(job)
    }

    /// Sends a signal to the wait with this correlation key.
    ///
    /// # Errors
    /// As [`Runtime::signal`].
    pub async fn signal(&self, job: JobId, key: &str, payload: Value) -> Result<SignalAnswer, Failed> {
        let payload = Json::new(payload);
        let signal = Signal { correlation_key: key.to_owned(), payload: payload.clone(), wait_type: None };
        let answer = self.rt.signal(job, signal).await?;
        self.note_signal(job, key, &payload, answer);
        Ok(answer)
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// As [`Runtime::cancel`].
    pub async fn cancel(&self, job: JobId) -> Result<Cancelled, Failed> {
        let cancelled = self.rt.cancel(job).await?;
        self.history().cancels.insert(job);
        Ok(cancelled)
    }

    /// The open doubts of a job, oldest first.
    ///
    /// # Errors
    /// The store cannot be asked.
    pub async fn doubts(&self, job: JobId) -> Result<Vec<Doubt>, Failed> {
        let rows = self.rt.store.in_doubt(aetheris_core::limits::SWEEP_ROWS_MAX).await?;
        let own = rows.into_iter().filter(|row| row.job == job);
        Ok(own.map(|row| Doubt::new(&row, &self.tools)).collect())
    }

    /// Answers a doubt as an operator. "Did not happen" is waited with until the call can no longer arrive.
    ///
    /// # Errors
    /// As [`Runtime::resolve`], or the verdict leaves the doubt open.
    pub async fn resolve(&self, doubt: &Doubt, verdict: Verdict) -> Result<(), Failed> {
        let Some(resolution) = verdict.resolution(doubt.permit) else {
            return Err(Failed::new(format!("the doubt about `{}` has no answer yet", doubt.tool)));
        };
        match self.rt.resolve(doubt.job, doubt.key, resolution.clone()).await {
            Err(OpError::CanStillArrive(until)) => {
                let now = self.rt.store.status().await?.now;
                tokio::time::sleep(until.since(now).to_std()).await;
                self.rt.resolve(doubt.job, doubt.key, resolution).await?;
                Ok(())
            }
            answered => Ok(answered.map(drop)?),
        }
    }

    /// Lets so much time pass.
    pub async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    /// How much time has passed since the world began.
    #[must_use]
    pub fn passed(&self) -> Duration {
        self.clock.passed()
    }

    /// Waits until the job is in one of these states.
    ///
    /// # Errors
    /// Nothing can bring it there any more; the text tells the job's story.
    pub async fn until(&self, job: JobId, statuses: &[JobStatus]) -> Result<JobState, Failed> {
        self.watch_in(job, |status| statuses.contains(&status), |state| Some(state.clone())).await
    }

    /// Waits until the job has ended.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn ended(&self, job: JobId) -> Result<JobState, Failed> {
        self.watch_in(job, JobStatus::is_terminal, |state| Some(state.clone())).await
    }

    /// What a job is doing, folded from its events.
    ///
    /// # Errors
    /// There is no such job.
    pub async fn state(&self, job: JobId) -> Result<JobState, Failed> {
        Ok(Loaded::read(self.rt.store.as_ref(), &Scope::System, job).await?.state)
    }

    /// The answer of a job that has completed.
    ///
    /// # Errors
    /// It has not; the text tells its story.
    pub async fn result(&self, job: JobId) -> Result<Value, Failed> {
        let loaded = Loaded::read(self.rt.store.as_ref(), &Scope::System, job).await?;
        match &loaded.state.ending {
            Some(Ending::Answered(Answer::Value(value))) => Ok(value.value().clone()),
            Some(Ending::Answered(Answer::Node(node))) => {
                Ok(names::output(&loaded.state, &loaded.effects, &node.into()).value().clone())
            }
            Some(Ending::Cancelled | Ending::Failed { .. }) | None => {
                let status = loaded.state.status.as_str();
                Err(Failed::new(format!("{job} has no answer, it is {status}\n{}", self.story(job).await)))
            }
        }
    }

    /// The facts of a job, oldest first.
    ///
    /// # Errors
    /// There is no such job, or it cannot be read.
    pub async fn events(&self, job: JobId) -> Result<Vec<Event>, Failed> {
        let history = self.rt.store.history(Scope::System, job, true).await?.ok_or(OpError::JobNotFound(job))?;
        Ok(history.events.into_iter().map(|recorded| recorded.event).collect())
    }

    /// Checks everything that is stored against every invariant, with what the fakes have seen and clients
    /// were told, and folds every job again from its first event.
    ///
    /// # Errors
    /// What does not hold, in the invariants' words.
    pub async fn check(&self) -> Result<Report, Failed> {
        let missing: Vec<String> = self.tools.missing().iter().map(|tool| format!("`{tool}`")).collect();
        if !missing.is_empty() {
            return Err(Failed::new(format!("the test has no fake of the tools {}", missing.join(", "))));
        }
        let quiet = self.pace().await? == Pace::Never;
        let history = ClientHistory { quiet, ..self.history().clone() };
        let report = aetheris_check::check_store(self.rt.store.as_ref(), &self.tools.witness(), &history).await?;
        if !report.is_clean() {
            return Err(Failed::new(violations(&report)));
        }
        for row in aetheris_store::every_job(self.rt.store.as_ref()).await? {
            let replay = self.rt.replay(row.id).await?;
            if !replay.differences.is_empty() {
                return Err(Failed::new(format!("replay of {}: {}", row.id, replay.differences.join("; "))));
            }
        }
        Ok(report)
    }

    /// The operations of a client that no process stands in between, and the store.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.rt
    }

    /// The tools.
    #[must_use]
    pub fn tools(&self) -> &FakeTools {
        &self.tools
    }

    /// The models.
    #[must_use]
    pub fn models(&self) -> &FakeModels {
        &self.models
    }

    pub(crate) fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    pub(crate) fn note_submission(&self, client_key: Option<String>, job: JobId) {
        self.history().submissions.push(aetheris_check::Submission { client_key, job });
    }

    pub(crate) fn note_signal(&self, job: JobId, key: &str, payload: &Json, answer: SignalAnswer) {
        self.history().signals.push(acked(job, key, payload, answer));
    }

    fn history(&self) -> MutexGuard<'_, ClientHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When anything can happen next.
    pub(crate) async fn pace(&self) -> Result<Pace, Failed> {
        let store = &self.rt.store;
        let status = store.status().await?;
        let running = status.jobs.get(&JobStatus::Running).is_some_and(|count| *count > 0);
        let due = store.due_timers(None, 1).await?;
        let promised = !store.outbox(None, 1).await?.is_empty();
        if running || promised || !due.timers.is_empty() || self.tools.in_flight() > 0 || self.models.in_flight() > 0 {
            return Ok(Pace::Busy);
        }
        let limit = aetheris_core::limits::PAGE_JOBS_MAX;
        let filter =
            JobFilter { limit, scope: Scope::System, statuses: vec![JobStatus::Pending], ..JobFilter::default() };
        let pending = store.jobs(filter).await?;
        let delays: Option<Vec<_>> = pending.jobs.iter().map(|row| row.not_before).collect();
        let Some(delays) = delays.filter(|_| pending.next.is_none()) else { return Ok(Pace::Busy) };
        match delays.into_iter().chain(due.next).min() {
            None => Ok(Pace::Never),
            Some(next) if next <= status.now => Ok(Pace::Busy),
            Some(next) => Ok(Pace::After(next.since(status.now).to_std())),
        }
    }

    /// Waits until `see` sees what it looks for in the job. It looks after each of the job's writes.
    ///
    /// # Errors
    /// Nothing can happen any more, or too much time has passed; the text tells the job's story.
    pub async fn watch<T>(&self, job: JobId, see: impl FnMut(&JobState) -> Option<T>) -> Result<T, Failed> {
        self.watch_in(job, |_| true, see).await
    }

    /// The same, looking only while the job has a status that matters: folding a job at each of its writes
    /// costs more than the writes.
    pub(crate) async fn watch_in<T>(
        &self,
        job: JobId,
        matters: impl Fn(JobStatus) -> bool,
        mut see: impl FnMut(&JobState) -> Option<T>,
    ) -> Result<T, Failed> {
        let mut follower = self.rt.store.bus().follow(job);
        loop {
            let row = self.rt.store.job(Scope::System, job).await?.ok_or(OpError::JobNotFound(job))?;
            if matters(row.status)
                && let Some(seen) = see(&self.state(job).await?)
            {
                return Ok(seen);
            }
            self.next_write(job, &mut follower).await?;
        }
    }

    /// Waits until the job is written. While nothing can happen before a moment, the clock is set to that
    /// moment.
    async fn next_write(&self, job: JobId, follower: &mut Follower) -> Result<(), Failed> {
        let (mut busy, mut idle) = (Duration::ZERO, 0);
        loop {
            tokio::select! {
                biased;
                () = follower.changed() => return Ok(()),
                () = tokio::time::sleep(LOOK) => {}
            }
            match self.pace().await? {
                Pace::Busy => busy += LOOK,
                Pace::Never => idle += 1,
                Pace::After(span) => {
                    (busy, idle) = (Duration::ZERO, 0);
                    tokio::time::advance(span).await;
                }
            }
            if idle >= IDLE_LOOKS_MAX || busy >= BUSY_MAX {
                return Err(self.stuck(&self.state(job).await?, busy).await);
            }
        }
    }

    async fn stuck(&self, state: &JobState, busy: Duration) -> Failed {
        let (job, status) = (state.id, state.status.as_str());
        let waits = state.blocks.oldest().map_or_else(String::new, |blocked| {
            let what =
                blocked.correlation_key.as_ref().map_or_else(String::new, |key| format!(" for the signal `{key}`"));
            let doubt = if blocked.doubt { " for the answer to a doubt" } else { "" };
            format!("; node `{}` waits{what}{doubt}", blocked.node)
        });
        let why = match busy {
            Duration::ZERO => "nothing that is known can happen any more".to_owned(),
            _ => format!("nothing has become of it in {} virtual hours (does a process run?)", busy.as_secs() / 3600),
        };
        Failed::new(format!("{job} is {status}{waits}: {why}\n{}", self.story(job).await))
    }
}

/// When anything can happen next without a client or a test doing something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Now.
    Busy,
    /// After so much time.
    After(Duration),
    /// Not at all.
    Never,
}

/// How long a look at a job that does not change is apart from the next.
const LOOK: Duration = Duration::from_secs(1);
/// After so many looks at a world in which nothing can happen, nobody will do anything.
const IDLE_LOOKS_MAX: u32 = 60;
/// How long a job may be busy without a write.
const BUSY_MAX: Duration = Duration::from_secs(3 * 3_600);

/// Reads an agent file.
pub(crate) fn read_agent(file: &str) -> Result<NewAgent, Failed> {
    let agent = aetheris_agentfile::parse(file).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(|error| format!("  {error}")).collect();
        Failed::new(format!("the agent file is not accepted:\n{}", lines.join("\n")))
    })?;
    Ok(NewAgent { agent: Arc::new(agent), source: file.to_owned(), tenant: TenantId::default() })
}

/// The violations of a report, one per line.
pub(crate) fn violations(report: &Report) -> String {
    let broken = report.lines.iter().filter(|line| line.violated > 0);
    let lines = broken.flat_map(|line| {
        let head = format!("{} does not hold: {}", line.id, line.what);
        std::iter::once(head).chain(line.violations.iter().map(|violation| format!("  - {violation}")))
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Verdict {
    pub(crate) fn resolution(&self, permit: u32) -> Option<Resolution> {
        let happened = match self {
            Self::Happened(result) => Some(Json::new(result.clone())),
            Self::DidNotHappen => None,
            Self::NotYet | Self::Leave => return None,
        };
        let note = "answered by the test".to_owned();
        Some(Resolution { happened, note, permit, refused: false, then: Then::Retry })
    }
}

/// What a client was told of a signal, with the payload where it is the one that counts.
#[must_use]
pub fn acked(job: JobId, key: &str, payload: &Json, answer: SignalAnswer) -> AckedSignal {
    let (ack, counts) = match answer {
        SignalAnswer::Delivered => (SignalAck::Delivered, true),
        SignalAnswer::AlreadyDelivered { payload_matches } => (SignalAck::Delivered, payload_matches),
        SignalAnswer::Kept { payload_matches } => (SignalAck::Kept, payload_matches),
    };
    AckedSignal { ack, job, key: key.to_owned(), payload_hash: counts.then(|| payload.hash()) }
}
