//! The port over the writer and the readers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, InstanceId, JobId, TenantId};
use aetheris_core::lease::Fence;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::time::Timestamp;
use aetheris_store::clock::StoreClock;
use aetheris_store::system::Clock;
use aetheris_store::vital::{self, OnDeath, Vital};
use aetheris_store::{
    AgentPage, AgentRow, Boxed, Bus, ChildPage, ClaimRequest, Claimed, CommitError, Committed, Dossiers, DoubtFilter,
    DoubtPage, DueTimers, EffectRow, ErrorKind, EventRow, Evidence, ExpiredLease, FailedWrite, Glance, Health,
    Heartbeat, History, JobFilter, JobPage, JobRow, KeptHead, NewAgent, PlanDocument, PromiseRow, PutAgent, Renewal,
    Scope, Store, StoreError, StoreStatus, TimerRow, UnitOfWork, WaitPage, WriterHealth,
};
use tokio::sync::{Semaphore, oneshot};

use crate::claim::{PendingClaim, RawClaim};
use crate::clock_guard::ClockGuard;
use crate::error::Error;
use crate::fairness::WriterFairness;
use crate::file::{self, Identity, Still, Whose};
use crate::folder;
use crate::history::{Bound, Looked, Start};
use crate::migrate;
use crate::open::{self, SqliteOptions};
use crate::pool::Pool;
use crate::read::Reads;
use crate::request::Request;
use crate::seen::{self, Seen};
use crate::stats::Stats;
use crate::vitals::{Part, Room, Vitals};
use crate::wait::Waiting;
use crate::wal;
use crate::writer::{self, Parts};

/// The embedded store: one file, one writing thread per process, readers beside it.
pub struct SqliteStore {
    clock: Arc<dyn Clock>,
    file: Identity,
    folder: PathBuf,
    bus: Bus,
    pool: Pool,
    _clock_guard: Option<ClockGuard>,
    requests: Option<Sender<Request>>,
    slots: Arc<Semaphore>,
    stats: Arc<Stats>,
    still: Option<Still>,
    vitals: Arc<Vitals>,
    waiting: Waiting,
    writer: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the file, brings its schema up to date and starts the threads.
    ///
    /// # Errors
    /// The file cannot be opened, is of a newer build, or stands on a network file system.
    pub fn open(options: SqliteOptions) -> Result<Self, StoreError> {
        Self::start(options).map_err(|error| error.at("open"))
    }

    fn start(options: SqliteOptions) -> Result<Self, Error> {
        let clock = Arc::new(StoreClock::new(Arc::clone(&options.clock)));
        let whose = open::admit(&options.path, options.make)?;
        let entered = options.custody.map(|custody| seen::enter(&options.path, custody)).transpose()?;
        let clock_guard = ClockGuard::take(&options.path, options.clock.boot_id())?;
        let conn = open::writer(&options, whose, entered.as_ref())?;
        let seen = entered.map(|entered| Seen::take(&conn, entered)).transpose()?;
        if whose == Whose::Nobody {
            // Whoever takes the file without its log is to find whose it is.
            wal::begin(&conn)?;
        }
        let fairness = WriterFairness::open(&options.path)?;
        let pool = Pool::start(&options.path, options.readers, &clock, &options.on_death)?;
        let (requests, queue) = channel();
        let slots = Arc::new(Semaphore::new(limits::WRITER_QUEUE_MAX));
        let (stats, bus, vitals) = (Arc::<Stats>::default(), Bus::default(), Arc::<Vitals>::default());
        let file = Identity::of(&options.path)?;
        let parts = Parts {
            clock,
            fatal: options.on_fatal,
            file: file.clone(),
            bus: bus.clone(),
            requests: queue,
            seen,
            slots: Arc::clone(&slots),
            stats: Arc::clone(&stats),
            fairness,
            vitals: Arc::clone(&vitals),
        };
        let thread = std::thread::Builder::new().name("store-write".to_owned());
        let on_death = options.on_death;
        let body = move || {
            let vital = Vital::new("store-write", &on_death);
            writer::run(&conn, parts);
            vital.release();
        };
        let thread = thread.spawn(body);
        let writer = thread.map_err(|e| Error::Unavailable(format!("no thread to write: {e}")))?;
        Ok(Self {
            clock: options.clock,
            file,
            folder: folder::of(&options.path).to_owned(),
            bus,
            pool,
            _clock_guard: Some(clock_guard),
            requests: Some(requests),
            slots,
            stats,
            still: None,
            vitals,
            waiting: Waiting::default(),
            writer: Some(writer),
        })
    }

    /// Opens a database for reading: makes and changes nothing, so that it may stand in a folder that cannot be
    /// written, and may be in use. Every write fails.
    ///
    /// # Errors
    /// There is no database of this program, or of an older or newer build, or it cannot be read.
    pub fn open_read_only(path: &Path, clock: &Arc<dyn Clock>, readers: usize) -> Result<Self, StoreError> {
        let pool = || {
            let whose = file::whose(path)?;
            if whose == Whose::Nobody {
                return Err(Error::Refused("it is empty: there is no database in it".to_owned()));
            }
            let unlogged = !file::beside(path, file::WAL).exists();
            migrate::is_newest(&open::quiet_reader(path)?)?;
            let store_clock = Arc::new(StoreClock::new(Arc::clone(clock)));
            let on_death: OnDeath = Arc::new(vital::die);
            let pool = Pool::quiet(path, readers, &store_clock, &on_death)?;
            Ok((Identity::alone(path)?, pool, unlogged))
        };
        let (file, pool, unlogged) = pool().map_err(|error| error.at("open"))?;
        let still = unlogged.then(|| file::Still::of(path));
        Ok(Self {
            clock: Arc::clone(clock),
            file,
            folder: folder::of(path).to_owned(),
            bus: Bus::default(),
            pool,
            _clock_guard: None,
            requests: None,
            slots: Arc::new(Semaphore::new(limits::WRITER_QUEUE_MAX)),
            stats: Arc::default(),
            still,
            vitals: Arc::default(),
            waiting: Waiting::default(),
            writer: None,
        })
    }

    /// Whether what a store that was opened for reading has read was of one piece: where no log stood beside the file,
    /// it was read without locks, and nobody may have opened it meanwhile.
    ///
    /// # Errors
    /// The file was written meanwhile: what was read says nothing.
    pub fn was_left_alone(&self) -> Result<(), StoreError> {
        self.still.as_ref().map_or(Ok(()), |still| still.check().map_err(|error| error.at("read")))
    }

    /// Hands a request to the writer, waiting for room in its queue.
    async fn send(&self, op: &'static str, request: Request) -> Result<(), StoreError> {
        let slot = self.slots.acquire().await.map_err(|_| closing(op))?;
        // The writer gives it back when it takes the request.
        slot.forget();
        self.requests.as_ref().ok_or_else(|| closing(op))?.send(request).map_err(|_| closing(op))
    }

    async fn ask<T>(
        &self,
        op: &'static str,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(op, request(reply)).await?;
        answer.await.map_err(|_| closing(op))?
    }

    async fn commit_unit(&self, unit: UnitOfWork) -> Result<Committed, CommitError> {
        let (reply, answer) = oneshot::channel();
        let waiting = (!unit.overlaps).then(|| self.waiting.begin());
        self.send("commit", Request::Commit(Box::new(unit), reply)).await.map_err(CommitError::Failed)?;
        let answered = match waiting {
            Some(waiting) => waiting.answer(answer).await,
            None => answer.await.ok(),
        };
        // A reply that is dropped without an answer: the writer has gone while it had the unit.
        answered.ok_or_else(|| CommitError::Unknown(closing("commit")))?
    }

    async fn claim_jobs(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        if request.ids.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = writer::deadline(request.linger);
        let claimed: Vec<RawClaim> =
            self.ask("claim", |reply| Request::Claim(PendingClaim { deadline, reply, request })).await?;
        Ok(claimed.into_iter().map(RawClaim::decode).collect())
    }

    async fn status_now(&self) -> Result<StoreStatus, StoreError> {
        let (now, generation, jobs) = self.pool.ask("status", |reads| reads.status()).await?;
        Ok(StoreStatus {
            backend: "sqlite",
            durability: "WAL, synchronous=FULL: an fsync before every answer".to_owned(),
            generation,
            jobs,
            now,
            writer: self.stats.read(),
        })
    }

    /// Read and parsed on the thread that asks, which may be one that serves everybody.
    fn glance_now(&self, scope: &Scope, job: JobId) -> Result<Option<Glance>, StoreError> {
        let here = aetheris_fault::planted!("large-history-on-the-spot");
        let bound = if here { Bound::NONE } else { Bound::LOOK };
        self.pool.look("glance", |reads| match reads.history(scope, job, Start::Checkpoint, bound)? {
            Looked::Absent => Ok(None),
            Looked::Found(raw) => raw.decode().map(|history| Some(Glance::Short(Box::new(history)))),
            Looked::Much => Ok(Some(Glance::Long)),
        })
    }

    async fn history_of(&self, scope: Scope, job: JobId, from: Start) -> Result<Option<History>, StoreError> {
        let read = move |reads: &mut Reads<'_>| match reads.history(&scope, job, from, Bound::NONE)? {
            Looked::Absent | Looked::Much => Ok(None),
            Looked::Found(raw) => raw.decode().map(Some),
        };
        self.pool.ask_long("history", read).await
    }

    /// Asks the writer for nothing, and for one small write where the last one failed for a reason that may be
    /// over.
    #[expect(clippy::disallowed_methods, reason = "bounds the wait for an answer, which may come unheard")]
    async fn health_now(&self) -> Result<Health, StoreError> {
        let write = self.vitals.may_be_over(|| Room::of(&self.folder).is_there());
        let asked = self.ask("health", |reply| Request::Probe(write, reply));
        let answer = tokio::time::timeout(limits::HEALTH_PATIENCE.to_std(), asked).await;
        let writer = match &answer {
            Err(_) => WriterHealth::Silent(limits::HEALTH_PATIENCE),
            // A transaction that failed was tried, and is among the last failures.
            Ok(_) if self.writer.as_ref().is_some_and(|writer| !writer.is_finished()) => WriterHealth::Answers,
            Ok(_) => WriterHealth::Gone,
        };
        let now = self.clock.boot();
        Ok(Health {
            clock_ahead: answer.ok().and_then(Result::ok).unwrap_or_default(),
            file: Some(self.file.look()),
            last_claim: self.vitals.last(Part::Claim, now),
            last_write: self.vitals.last(Part::Write, now).map(|failed| self.explained(failed)),
            writer,
        })
    }

    /// A failed write with what a full disk lacks.
    fn explained(&self, failed: FailedWrite) -> FailedWrite {
        let lacking = (failed.kind == ErrorKind::Full).then(|| Room::of(&self.folder).lacking()).flatten();
        match lacking {
            Some(lacking) => FailedWrite { error: format!("{}; {lacking}", failed.error), ..failed },
            None => failed,
        }
    }

    async fn plan_document(&self, hash: Hash) -> Result<Option<PlanDocument>, StoreError> {
        self.pool.look("plan", |reads| reads.plan(hash))
    }
}

fn closing(op: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, op, "the store is closing")
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.slots.close();
        // The writer is the last to close the file: only then the log is copied into it and taken away.
        self.pool.close();
        self.requests = None;
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SqliteStore")
    }
}

impl Store for SqliteStore {
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        Box::pin(self.commit_unit(unit))
    }

    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        let unit = Box::new(unit.clone());
        Box::pin(self.ask("resolve_unknown", |reply| Request::ResolveUnknown(unit, reply)))
    }

    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(self.claim_jobs(request))
    }

    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        let sent_at: Duration = self.clock.boot();
        Box::pin(self.ask("heartbeat", move |reply| Request::Heartbeat(request, sent_at, reply)))
    }

    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        Box::pin(self.ask("put_agent", |reply| Request::PutAgent(agent, reply)))
    }

    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        Box::pin(self.ask("delete_agent", |reply| Request::DeleteAgent(tenant, name, reply)))
    }

    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>> {
        Box::pin(async move { self.glance_now(&scope, job) })
    }

    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        Box::pin(self.history_of(scope, job, if full { Start::First } else { Start::Checkpoint }))
    }

    fn history_behind(
        &self,
        scope: Scope,
        job: JobId,
        seq: u64,
        since: Timestamp,
    ) -> Boxed<'_, Result<Option<History>, StoreError>> {
        Box::pin(self.history_of(scope, job, Start::Behind(seq, since)))
    }

    fn dossiers(&self, from: u64, to: u64) -> Boxed<'_, Result<Dossiers, StoreError>> {
        Box::pin(self.pool.ask_long("check", move |reads| reads.dossiers(from, to)))
    }

    fn job(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<JobRow>, StoreError>> {
        Box::pin(async move { self.pool.look("job", |reads| reads.job(&scope, job)) })
    }

    fn ahead_in_session(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<JobRow>, StoreError>> {
        Box::pin(async move { self.pool.look("ahead_in_session", |reads| reads.ahead_in_session(&scope, job)) })
    }

    fn jobs(&self, filter: JobFilter) -> Boxed<'_, Result<JobPage, StoreError>> {
        Box::pin(self.pool.ask("jobs", move |reads| reads.jobs(&filter)))
    }

    fn client_key(
        &self,
        tenant: TenantId,
        agent: AgentName,
        key: String,
    ) -> Boxed<'_, Result<Option<(JobId, Hash)>, StoreError>> {
        Box::pin(async move { self.pool.look("client_key", |reads| reads.client_key(&tenant, &agent, &key)) })
    }

    fn waits(&self, filter: JobFilter) -> Boxed<'_, Result<WaitPage, StoreError>> {
        Box::pin(self.pool.ask("waits", move |reads| reads.waits(&filter)))
    }

    fn effect(
        &self,
        scope: Scope,
        job: JobId,
        key: IdempotencyKey,
    ) -> Boxed<'_, Result<Option<EffectRow>, StoreError>> {
        Box::pin(self.pool.ask("effect", move |reads| reads.effect(&scope, job, key)))
    }

    fn events(
        &self,
        scope: Scope,
        job: JobId,
        after: u64,
        limit: usize,
    ) -> Boxed<'_, Result<Vec<EventRow>, StoreError>> {
        Box::pin(self.pool.ask("events", move |reads| reads.events(&scope, job, after, limit)))
    }

    fn agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<Option<AgentRow>, StoreError>> {
        Box::pin(async move { self.pool.look("agent", |reads| reads.agent(&tenant, &name)) })
    }

    fn agents(
        &self,
        tenant: TenantId,
        after: Option<AgentName>,
        limit: usize,
    ) -> Boxed<'_, Result<AgentPage, StoreError>> {
        Box::pin(self.pool.ask("agents", move |reads| reads.agents(&tenant, after.as_ref(), limit)))
    }

    fn plan(&self, hash: Hash) -> Boxed<'_, Result<Option<PlanDocument>, StoreError>> {
        Box::pin(self.plan_document(hash))
    }

    fn doubts(&self, filter: DoubtFilter) -> Boxed<'_, Result<DoubtPage, StoreError>> {
        Box::pin(self.pool.ask("doubts", move |reads| reads.doubts(&filter)))
    }

    fn in_doubt(&self, limit: usize) -> Boxed<'_, Result<Vec<LedgerRow>, StoreError>> {
        Box::pin(self.pool.ask("in_doubt", move |reads| reads.in_doubt(limit)))
    }

    fn unresolved(&self, limit: usize) -> Boxed<'_, Result<Vec<LedgerRow>, StoreError>> {
        Box::pin(self.pool.ask("unresolved", move |reads| reads.unresolved(limit)))
    }

    fn kept(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<KeptHead>, StoreError>> {
        Box::pin(std::future::ready(self.pool.look("kept", move |reads| reads.kept(&scope, job))))
    }

    fn evidence(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<Evidence>, StoreError>> {
        Box::pin(self.pool.ask("evidence", move |reads| reads.evidence(&scope, job)))
    }

    fn children(
        &self,
        scope: Scope,
        job: JobId,
        after: Option<JobId>,
        limit: usize,
    ) -> Boxed<'_, Result<ChildPage, StoreError>> {
        Box::pin(self.pool.ask("children", move |reads| reads.children(&scope, job, after, limit)))
    }

    fn outbox(&self, after: Option<u64>, limit: usize) -> Boxed<'_, Result<Vec<PromiseRow>, StoreError>> {
        Box::pin(async move { self.pool.look("outbox", |reads| reads.outbox(after, limit)) })
    }

    fn promised(&self, author: JobId, target: JobId) -> Boxed<'_, Result<Vec<PromiseRow>, StoreError>> {
        Box::pin(async move { self.pool.look("promised", |reads| reads.promised(author, target)) })
    }

    fn due_timers(&self, after: Option<TimerRow>, limit: usize) -> Boxed<'_, Result<DueTimers, StoreError>> {
        Box::pin(async move { self.pool.look("due_timers", |reads| reads.due_timers(after.as_ref(), limit)) })
    }

    fn timers(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<TimerRow>, StoreError>> {
        Box::pin(async move { self.pool.look("timers", |reads| reads.timers(&scope, job)) })
    }

    fn expired(&self, after: Option<ExpiredLease>, limit: usize) -> Boxed<'_, Result<Vec<ExpiredLease>, StoreError>> {
        Box::pin(async move { self.pool.look("expired", |reads| reads.expired(after, limit)) })
    }

    fn held_by(
        &self,
        instance: InstanceId,
        after: Option<JobId>,
        limit: usize,
    ) -> Boxed<'_, Result<Vec<(JobId, Fence)>, StoreError>> {
        Box::pin(async move { self.pool.look("held_by", |reads| reads.held_by(instance, after, limit)) })
    }

    fn status(&self) -> Boxed<'_, Result<StoreStatus, StoreError>> {
        Box::pin(self.status_now())
    }

    fn health(&self) -> Boxed<'_, Result<Health, StoreError>> {
        Box::pin(self.health_now())
    }

    fn bus(&self) -> &Bus {
        &self.bus
    }
}
