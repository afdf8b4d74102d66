//! What a scenario runs in.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_check::{AckedSignal, ClientHistory, SignalAck, Submission, check_store};
use aetheris_core::id::{AgentName, AttemptId, EventId, InstanceId, JobId, TenantId, WorkerId};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::ops::{Proof, Reclaimed, Signal, SignalAnswer, Submission as Message};
use aetheris_runtime::run::{self, Lease, RunEnd};
use aetheris_runtime::{OpError, Plans, Runtime, Settings};
use aetheris_store::faulty::{Fault, FaultPlan, FaultyStore, Op};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{Clock, ManualClock, System, SystemIds};
use aetheris_store::{ClaimIds, ClaimRequest, Claimed, JobRow, NewAgent, Purpose, Scope, Store};
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;

use super::tools::Workbench;
use aetheris_harness::Folder;

/// How long a lease lives by the world's clock.
pub(super) const TTL: Span = Span::from_secs(30);
/// How long a run may take by the machine's clock before it counts as one that never ends.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often time is let pass for jobs that wait for it.
const ROUNDS: u32 = 12;

/// A store, a runtime, tools, and clocks that move when they are told to.
pub struct World {
    pub(super) clock: ManualClock,
    /// What stands before the store: it fails when a scenario tells it to.
    pub(super) faults: Arc<FaultyStore>,
    found: Mutex<BTreeSet<String>>,
    history: Mutex<ClientHistory>,
    instance: InstanceId,
    pub(super) rt: Runtime,
    pub(super) scratch: Folder,
    pub(super) tools: Arc<Workbench>,
}

/// What a world keeps its jobs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The memory store.
    Memory,
    /// A file.
    Sqlite,
}

/// What a scenario has shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Verdict {
    /// By what it was found: invariants, and ends that are not as they must be. Empty when clean.
    pub caught_by: Vec<String>,
}

impl World {
    /// A fresh one.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn new() -> Result<Self> {
        Self::on(Backend::Sqlite)
    }

    /// A fresh one on a store of that kind.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn on(backend: Backend) -> Result<Self> {
        let scratch = Folder::new("zoo");
        let clock = ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000));
        clock.advance(Span::from_secs(1_000));
        let inner: Arc<dyn Store> = match backend {
            Backend::Memory => Arc::new(MemoryStore::new(Arc::new(clock.clone()))),
            Backend::Sqlite => open(&scratch, &clock)?,
        };
        let faults = Arc::new(FaultyStore::new(inner, FaultPlan::none()));
        let store = Arc::clone(&faults) as Arc<dyn Store>;
        let tools = Workbench::new(clock.clone());
        let rt = Runtime {
            in_flight: aetheris_runtime::InFlight::default(),
            loads: aetheris_runtime::Loads::default(),
            models: Arc::clone(&tools) as Arc<dyn aetheris_runtime::Models>,
            plans: Plans::default(),
            scope: Scope::System,
            settings: Arc::new(Settings::default()),
            store,
            system: System { clock: Arc::new(clock.clone()), ids: Arc::new(SystemIds) },
            tools: Arc::clone(&tools) as Arc<dyn aetheris_runtime::Tools>,
        };
        let (found, history) = (Mutex::default(), Mutex::default());
        Ok(Self { clock, faults, found, history, instance: InstanceId::from_u128(1), rt, scratch, tools })
    }

    /// Something is not as it must be.
    pub(super) fn found(&self, what: &str) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned());
    }

    /// Something must hold.
    pub(super) fn expect(&self, holds: bool, what: &str) {
        if !holds {
            self.found(what);
        }
    }

    pub(super) fn told(&self, tell: impl FnOnce(&mut ClientHistory)) {
        tell(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Puts an agent file and sends it a message.
    pub(super) async fn send(&self, file: &str) -> Result<JobId> {
        let name = self.put(file).await?;
        self.message(&name, None).await
    }

    /// Puts an agent file; the agent's name.
    pub(super) async fn put(&self, file: &str) -> Result<AgentName> {
        let agent = parsed(file)?;
        let name = agent.agent.agent.clone();
        self.rt.store.put_agent(agent).await?;
        Ok(name)
    }

    pub(super) async fn message(&self, agent: &AgentName, client_key: Option<String>) -> Result<JobId> {
        let message = Message { client_key: client_key.clone(), message: Some(Json::null()), ..Message::default() };
        let job = self.rt.submit(agent, message).await?.job;
        self.told(|history| history.submissions.push(Submission { client_key, job }));
        Ok(job)
    }

    /// Sends a signal that must be accepted.
    pub(super) async fn signal(&self, job: JobId, key: &str) {
        let payload = Json::new(serde_json::json!({"key": key}));
        let payload_hash = Some(payload.hash());
        let signal = Signal { correlation_key: key.to_owned(), payload, wait_type: None };
        let ack = match self.rt.signal(job, signal).await {
            Ok(SignalAnswer::Kept { .. }) => SignalAck::Kept,
            Ok(SignalAnswer::Delivered | SignalAnswer::AlreadyDelivered { .. }) => SignalAck::Delivered,
            Err(_) => return self.found("signal refused"),
        };
        let key = key.to_owned();
        self.told(|history| history.signals.push(AckedSignal { ack, job, key, payload_hash }));
    }

    /// The next units of these purposes meet this fault, once each.
    pub(super) fn fail_next(&self, purposes: &[Purpose], fault: Fault) {
        let plan = purposes.iter().fold(FaultPlan::none(), |plan, p| plan.script(Op::Commit(*p), [Some(fault)]));
        self.faults.replan(plan);
    }

    /// Claims one job.
    pub(super) async fn claim(&self) -> Result<Option<Claimed>> {
        let ids = self.rt.system.ids.as_ref();
        let ids = ClaimIds { attempt: AttemptId::from_u128(ids.secret()), event: EventId::from_u128(ids.secret()) };
        let request = ClaimRequest {
            ids: vec![ids],
            instance: self.instance,
            linger: Span::ZERO,
            ttl: TTL,
            worker: WorkerId::from("w"),
        };
        Ok(self.rt.store.claim(request).await?.pop())
    }

    pub(super) async fn must_claim(&self) -> Result<Claimed> {
        self.claim().await?.context("nothing to claim")
    }

    /// The hold that a worker has on a claimed job.
    pub(super) fn lease(claimed: &Claimed) -> Lease {
        let safe = TTL.to_std() - TTL.to_std() / 4;
        Lease::new(claimed.fence, claimed.sent_at + safe, CancellationToken::new(), CancellationToken::new())
    }

    /// Runs a claimed job; one that does not end is found.
    pub(super) async fn run(&self, claimed: Claimed) -> Option<RunEnd> {
        let lease = Self::lease(&claimed);
        let run = Box::pin(run::run_job(&self.rt, claimed, &lease));
        match self.within(run).await? {
            Ok(end) => Some(end),
            Err(_) => {
                self.found("a run stopped");
                None
            }
        }
    }

    /// The outcome, or the finding that there is none.
    #[expect(clippy::disallowed_methods, reason = "a run that never ends is what is looked for; it is then abandoned")]
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(done) => Some(done),
            Err(_) => {
                self.found("never ends");
                None
            }
        }
    }

    /// Starts a run, waits until a held body has begun in it, and takes the job from it: what a kill of its
    /// process leaves behind.
    pub(super) async fn crash_in_body(&self) -> Result<Fence> {
        let claimed = self.must_claim().await?;
        let fence = claimed.fence;
        let lease = Self::lease(&claimed);
        let begun = async {
            if let Ok(begun) = self.tools.begun.acquire().await {
                begun.forget();
            }
        };
        let run = Box::pin(run::run_job(&self.rt, claimed, &lease));
        tokio::select! {
            _ = run => self.found("a run stopped"),
            () = begun => {}
            () = tokio::time::sleep(PATIENCE) => self.found("never ends"),
        }
        Ok(fence)
    }

    /// Lets the lease pass and takes the job back.
    pub(super) async fn expire(&self, job: JobId, fence: Fence) -> Result<Reclaimed, OpError> {
        self.clock.advance(TTL);
        self.rt.reclaim(job, fence, Proof::Expired).await
    }

    pub(super) async fn row(&self, job: JobId) -> Result<JobRow> {
        self.rt.store.job(Scope::System, job).await?.context("the job has gone")
    }

    /// Runs whatever can be run, fires what is due, lets time pass, until nothing moves.
    pub(super) async fn settle(&self) -> Result<()> {
        for _ in 0..ROUNDS {
            while let Some(claimed) = self.claim().await? {
                if self.run(claimed).await.is_none() {
                    return Ok(());
                }
            }
            self.clock.advance(Span::from_secs(1));
            aetheris_scheduler::fire_due(&self.rt).await?;
        }
        self.told(|history| history.quiet = true);
        Ok(())
    }

    /// The job must have ended so.
    pub(super) async fn expect_end(&self, job: JobId, status: &str, code: &str) -> Result<()> {
        let row = self.row(job).await?;
        let found = row.error.as_ref().map_or("", |(failure, _)| failure.code.as_str());
        if found == "ledger_refused" {
            self.found("C1 a permission was asked for that had been given: only the ledger kept the call from it");
        }
        if (row.status.as_str(), found) != (status, code) {
            self.found(&format!("end: {} {found}", row.status.as_str()));
        }
        Ok(())
    }

    /// What was found, the checker's findings among it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn verdict(&self) -> Result<Verdict> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let report = check_store(self.rt.store.as_ref(), &self.tools.lines(), &history).await?;
        let mut caught_by: Vec<String> = report.violated().iter().map(ToString::to_string).collect();
        caught_by.extend(self.found.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        Ok(Verdict { caught_by })
    }

    /// The store's clock, as this world's machine tells it.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.wall()
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

fn open(scratch: &Folder, clock: &ManualClock) -> Result<Arc<dyn Store>> {
    let path = scratch.path().join("aetheris.db");
    let options = SqliteOptions { clock: Arc::new(clock.clone()), ..SqliteOptions::new(path) };
    Ok(Arc::new(SqliteStore::open(options)?))
}

/// An agent file as a store takes it.
pub(super) fn parsed(file: &str) -> Result<NewAgent> {
    let agent = aetheris_agentfile::parse(file).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    Ok(NewAgent { agent: Arc::new(agent), source: file.to_owned(), tenant: TenantId::default() })
}
