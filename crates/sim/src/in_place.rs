//! The production store under the simulated scheduler and clock.
//!
//! SQLite's store answers from threads of its own, which know nothing of virtual time. So whoever asks it stands still
//! until it has answered, on the one thread that everything runs on: no virtual time passes meanwhile, nothing else
//! happens, and the same seed asks it the same in the same order. Its clock shows the moment of the question. What
//! wakes others, hints and claims that linger, is done here. The disk is asked to sync nothing: a simulation dies by its
//! processes, not by its power.

use aetheris_harness::Folder;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use aetheris_core::id::{AgentName, BootId, JobId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::time::{Span, Timestamp};
use aetheris_disk::Watched;
use aetheris_store::system::Clock;
use aetheris_store::{
    Boxed, Bus, ClaimRequest, Claimed, CommitError, Committed, Glance, Health, Heartbeat, History, JobFilter, NewAgent,
    PutAgent, Renewal, Scope, Store, StoreError, UnitOfWork,
};
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::Notify;
use tokio::time::Instant;

/// A clock that stands still between two questions, for threads that virtual time does not reach.
struct Shown {
    boot_id: BootId,
    now: Mutex<(Timestamp, Duration)>,
}

impl Shown {
    fn now(&self) -> (Timestamp, Duration) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for Shown {
    fn boot(&self) -> Duration {
        self.now().1
    }

    fn boot_id(&self) -> BootId {
        self.boot_id
    }

    fn wall(&self) -> Timestamp {
        self.now().0
    }
}

/// Wakes the thread that stands still.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// SQLite's store, which answers at once.
pub struct InPlace {
    /// The clock that the store is to see.
    clock: Arc<dyn Clock>,
    bus: Bus,
    /// Closed before its folder goes.
    inner: SqliteStore,
    /// What ended one of its threads.
    last_words: Arc<Mutex<Vec<String>>>,
    shown: Arc<Shown>,
    written: Notify,
    _watched: Watched,
    folder: Folder,
}

impl InPlace {
    /// An empty database on a clock.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let folder = Folder::in_memory("sim");
        let watched = Watched::unsynced(&folder)?;
        let shown = Arc::new(Shown { boot_id: clock.boot_id(), now: Mutex::new((clock.wall(), clock.boot())) });
        let last_words = Arc::<Mutex<Vec<String>>>::default();
        let (fatal, death) = (Arc::clone(&last_words), Arc::clone(&last_words));
        let say =
            |words: &Mutex<Vec<String>>, word: String| words.lock().unwrap_or_else(PoisonError::into_inner).push(word);
        let options = SqliteOptions {
            clock: Arc::clone(&shown) as Arc<dyn Clock>,
            on_death: Arc::new(move |thread| say(&death, format!("the thread {thread} has ended"))),
            on_fatal: Arc::new(move |error: &StoreError| say(&fatal, format!("the disk failed: {error}"))),
            readers: 1,
            ..SqliteOptions::new(folder.join("aetheris.db"))
        };
        let inner = SqliteStore::open(options).map_err(std::io::Error::other)?;
        Ok(Self {
            clock,
            bus: Bus::default(),
            inner,
            last_words,
            shown,
            written: Notify::new(),
            _watched: watched,
            folder,
        })
    }

    /// Where its rows are.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.folder.join("aetheris.db")
    }

    /// What ended one of the store's threads; nothing in a run that is right.
    #[must_use]
    pub fn last_words(&self) -> Vec<String> {
        self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stands still until the store has answered. It may look at its clock as soon as it is asked.
    fn answer<'a, T, Q: Future<Output = T> + 'a>(&'a self, ask: impl FnOnce(&'a SqliteStore) -> Q) -> T {
        *self.shown.now.lock().unwrap_or_else(PoisonError::into_inner) = (self.clock.wall(), self.clock.boot());
        // Whoever asks may have used up its turn: that is no reason to ask the same again for ever.
        let mut question = pin!(tokio::task::unconstrained(ask(&self.inner)));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match question.as_mut().poll(&mut context) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        _name: &'static str,
        ask: impl FnOnce(&'a dyn Store) -> Boxed<'a, Result<T, StoreError>>,
    ) -> Boxed<'a, Result<T, StoreError>> {
        let answer = self.answer(|inner| ask(inner));
        Box::pin(std::future::ready(answer))
    }

    fn told(&self, job: JobId, seq: u64) {
        self.bus.written(job, seq);
        self.written.notify_waiters();
    }

    /// How long it takes until time alone makes a job claimable.
    fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        let filter = JobFilter {
            limit: limits::PAGE_JOBS_MAX,
            scope: Scope::System,
            statuses: vec![JobStatus::Pending],
            ..JobFilter::default()
        };
        let pending = self.answer(|inner| inner.jobs(filter))?.jobs;
        let mut due = None;
        for row in pending.iter().filter(|row| row.not_before.is_some()) {
            // Behind another one of its session a job waits for that one.
            if row.session.is_none() || self.answer(|inner| inner.ahead_in_session(Scope::System, row.id))?.is_none() {
                due = due.into_iter().chain(row.not_before).min();
            }
        }
        let now = self.answer(|inner| inner.status())?.now;
        Ok(due.map(|due| due.since(now).to_std().max(Duration::from_millis(1))))
    }

    /// Claims, or waits for a write or for time and tries again, as the store in memory does.
    async fn claim_within(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let until = Instant::now() + request.linger.to_std();
        let request = ClaimRequest { linger: Span::ZERO, ..request };
        loop {
            let mut written = pin!(self.written.notified());
            written.as_mut().enable();
            let claimed = self.answer(|inner| inner.claim(request.clone()))?;
            for job in &claimed {
                let row = self.answer(|inner| inner.job(Scope::System, job.job))?;
                self.bus.written(job.job, row.map_or(0, |row| row.seq));
            }
            let left = until.saturating_duration_since(Instant::now());
            if !claimed.is_empty() || left.is_zero() {
                return Ok(claimed);
            }
            let pause = self.next_due()?.map_or(left, |due| due.min(left));
            tokio::select! {
                biased;
                () = written => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

impl Store for InPlace {
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        Box::pin(async move {
            let job = unit.job;
            let committed = self.answer(|inner| inner.commit(unit))?;
            self.told(job, committed.seq);
            Ok(committed)
        })
    }

    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        let answer = self.answer(|inner| inner.resolve_unknown(unit));
        Box::pin(std::future::ready(answer))
    }

    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(self.claim_within(request))
    }

    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        Box::pin(async move { self.answer(|inner| inner.heartbeat(request)) })
    }

    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        Box::pin(async move { self.answer(|inner| inner.put_agent(agent)) })
    }

    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        Box::pin(async move { self.answer(|inner| inner.delete_agent(tenant, name)) })
    }

    aetheris_store::questions_through!(read);

    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>> {
        self.read("glance", move |inner| inner.glance(scope, job))
    }

    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        self.read("history", move |inner| inner.history(scope, job, full))
    }

    fn health(&self) -> Boxed<'_, Result<Health, StoreError>> {
        self.read("health", |inner| inner.health())
    }

    fn bus(&self) -> &Bus {
        &self.bus
    }
}
