//! Any store, with the failures that naive code does not survive.
//!
//! A store that answers is easy. This one also loses answers: of writes that happened, of writes that
//! did not, and of writes that happen later. Which call meets which [`Fault`] is decided by a
//! [`FaultPlan`], a script per operation, or by whoever else can [`Decide`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::id::{AgentName, JobId, TenantId};
use aetheris_core::time::Span;
use tokio::sync::Notify;

use crate::claim::{ClaimRequest, Claimed, Heartbeat, Renewal};
use crate::error::{CommitError, ErrorKind, StoreError};
use crate::query::{Glance, History, NewAgent, PutAgent};
use crate::unit::{Committed, Purpose, UnitOfWork};
use crate::{Boxed, Bus, Health, Scope, Store};

/// An operation that can meet a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Putting or taking away an agent.
    Agent,
    /// A claim.
    Claim,
    /// A unit of that purpose.
    Commit(Purpose),
    /// A renewal.
    Heartbeat,
    /// Any question.
    Read,
    /// Asking what became of a unit.
    ResolveUnknown,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is executed, but its answer is lost: a commit is [`CommitError::Unknown`], a claim an error
    /// although jobs are claimed.
    After,
    /// It fails, is known to have failed, and is not executed.
    Before,
    /// The connection breaks in mid-transaction, so much later: never executed, and of a commit nothing is
    /// known.
    Broken(Span),
    /// It is executed, and the answer is that the store is damaged ([`ErrorKind::Corrupt`]): of a commit nothing is known.
    Damaged,
    /// It is executed so much later, and answered then.
    Delay(Span),
    /// It can never be done: [`ErrorKind::Invalid`], and not executed.
    Impossible,
    /// Its answer is lost at once, and it is executed so much later. Questions fail only.
    Late(Span),
    /// Its answer is lost, and it is never executed.
    Lost,
    /// No connection is free for so long: it fails and is not executed.
    PoolTimeout(Span),
    /// It is executed at once, and answered so much later.
    Slow(Span),
}

/// Which fault, without its length: what is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// [`Fault::After`].
    After,
    /// [`Fault::Before`].
    Before,
    /// [`Fault::Broken`].
    Broken,
    /// [`Fault::Damaged`].
    Damaged,
    /// [`Fault::Delay`].
    Delay,
    /// [`Fault::Impossible`].
    Impossible,
    /// [`Fault::Late`].
    Late,
    /// [`Fault::Lost`].
    Lost,
    /// [`Fault::PoolTimeout`].
    PoolTimeout,
    /// [`Fault::Slow`].
    Slow,
}

impl Fault {
    /// Which it is.
    #[must_use]
    pub const fn kind(self) -> FaultKind {
        match self {
            Self::After => FaultKind::After,
            Self::Before => FaultKind::Before,
            Self::Broken(_) => FaultKind::Broken,
            Self::Damaged => FaultKind::Damaged,
            Self::Delay(_) => FaultKind::Delay,
            Self::Impossible => FaultKind::Impossible,
            Self::Late(_) => FaultKind::Late,
            Self::Lost => FaultKind::Lost,
            Self::PoolTimeout(_) => FaultKind::PoolTimeout,
            Self::Slow(_) => FaultKind::Slow,
        }
    }
}

/// Which calls meet which faults: a script per operation.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    scripts: BTreeMap<Op, VecDeque<Option<Fault>>>,
}

impl FaultPlan {
    /// No faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// What the next calls of one operation meet, in order.
    #[must_use]
    pub fn script(mut self, op: Op, faults: impl IntoIterator<Item = Option<Fault>>) -> Self {
        self.scripts.entry(op).or_default().extend(faults);
        self
    }
}

/// Whoever decides which call meets which fault; a [`FaultPlan`] is one.
pub trait Decide: Send {
    /// The fault of the next call of an operation.
    fn decide(&mut self, op: Op) -> Option<Fault>;
}

impl Decide for FaultPlan {
    fn decide(&mut self, op: Op) -> Option<Fault> {
        self.scripts.get_mut(&op).and_then(VecDeque::pop_front).flatten()
    }
}

struct Decisions {
    counts: BTreeMap<(Op, FaultKind), u64>,
    plan: Box<dyn Decide>,
}

/// Writes that were answered and have not happened yet, by job.
#[derive(Debug, Default)]
struct InFlight {
    jobs: Mutex<BTreeMap<JobId, usize>>,
    landed: Notify,
}

impl InFlight {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, usize>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, job: JobId) {
        *self.jobs().entry(job).or_insert(0) += 1;
    }

    fn land(&self, job: JobId) {
        let mut jobs = self.jobs();
        if let Some(count) = jobs.get_mut(&job) {
            *count -= 1;
            if *count == 0 {
                jobs.remove(&job);
            }
        }
        drop(jobs);
        self.landed.notify_waiters();
    }

    async fn wait_for(&self, job: JobId) {
        loop {
            let landed = self.landed.notified();
            tokio::pin!(landed);
            landed.as_mut().enable();
            if !self.jobs().contains_key(&job) {
                return;
            }
            landed.await;
        }
    }
}

/// A store that fails as its plan says.
pub struct FaultyStore {
    decisions: Mutex<Decisions>,
    health: Mutex<Option<Health>>,
    /// In place of the wrapped store's.
    bus: Option<Bus>,
    in_flight: Arc<InFlight>,
    inner: Arc<dyn Store>,
    unreadable: Mutex<BTreeSet<JobId>>,
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyStore").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl FaultyStore {
    /// Wraps a store.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> Self {
        Self::decided_by(inner, Box::new(plan))
    }

    /// Wraps a store whose faults someone else decides.
    #[must_use]
    pub fn decided_by(inner: Arc<dyn Store>, plan: Box<dyn Decide>) -> Self {
        let decisions = Mutex::new(Decisions { counts: BTreeMap::new(), plan });
        let (health, unreadable) = (Mutex::default(), Mutex::default());
        Self { decisions, health, bus: None, in_flight: Arc::default(), inner, unreadable }
    }

    /// The same with a bus of its own, as another process has: it hears nothing of what others write.
    #[must_use]
    pub fn apart(self) -> Self {
        Self { bus: Some(Bus::default()), ..self }
    }

    /// Replaces the plan: what a test calls when the trouble is to end, or to begin.
    pub fn replan(&self, plan: FaultPlan) {
        self.decisions().plan = Box::new(plan);
    }

    /// What it says of its health from now on, whatever the store inside says.
    pub fn report(&self, health: Health) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
    }

    /// Makes these jobs unreadable, as damage does, or an older build that meets events it does not know.
    pub fn damage(&self, jobs: impl IntoIterator<Item = JobId>) {
        self.unreadable().extend(jobs);
    }

    /// How often each fault has happened to each operation.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(Op, FaultKind), u64> {
        self.decisions().counts.clone()
    }

    /// How often one fault has happened, to whatever operation.
    #[must_use]
    pub fn happened(&self, kind: FaultKind) -> u64 {
        self.decisions().counts.iter().filter(|((_, counted), _)| *counted == kind).map(|(_, count)| count).sum()
    }

    fn unreadable(&self) -> MutexGuard<'_, BTreeSet<JobId>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable_now(&self, job: JobId, question: &'static str) -> Option<StoreError> {
        let made = self.unreadable().contains(&job);
        made.then(|| StoreError::new(ErrorKind::Corrupt, question, "the job was made unreadable"))
    }

    fn decisions(&self) -> MutexGuard<'_, Decisions> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, op: Op) -> Option<Fault> {
        let mut decisions = self.decisions();
        let fault = decisions.plan.decide(op);
        if let Some(fault) = fault {
            *decisions.counts.entry((op, fault.kind())).or_insert(0) += 1;
        }
        fault
    }

    async fn commit_faultily(&self, unit: UnitOfWork) -> Result<Committed, CommitError> {
        let unknown = || Err(CommitError::Unknown(injected("commit")));
        match self.decide(Op::Commit(unit.purpose)) {
            None => self.inner.commit(unit).await,
            Some(Fault::Before) => Err(CommitError::Failed(injected("commit"))),
            Some(Fault::Impossible) => Err(CommitError::Failed(impossible("commit"))),
            Some(Fault::PoolTimeout(by)) => {
                tokio::time::sleep(by.to_std()).await;
                Err(CommitError::Failed(injected("commit")))
            }
            Some(Fault::Lost) => unknown(),
            Some(Fault::Broken(by)) => {
                tokio::time::sleep(by.to_std()).await;
                unknown()
            }
            Some(Fault::After) => {
                // A refusal is lost like every other answer.
                drop(self.inner.commit(unit).await);
                unknown()
            }
            Some(Fault::Damaged) => {
                drop(self.inner.commit(unit).await);
                Err(CommitError::Unknown(damaged("commit")))
            }
            Some(Fault::Delay(by)) => {
                tokio::time::sleep(by.to_std()).await;
                self.inner.commit(unit).await
            }
            Some(Fault::Slow(by)) => {
                let answer = self.inner.commit(unit).await;
                tokio::time::sleep(by.to_std()).await;
                answer
            }
            Some(Fault::Late(by)) => {
                let (inner, in_flight, job) = (Arc::clone(&self.inner), Arc::clone(&self.in_flight), unit.job);
                in_flight.leave(job);
                later(by, async move {
                    drop(inner.commit(unit).await);
                    in_flight.land(job);
                });
                unknown()
            }
        }
    }

    /// Any other call. `late` is what is executed when its answer is lost already.
    async fn call<'a, T>(
        &'a self,
        (op, name): (Op, &'static str),
        call: impl FnOnce(&'a dyn Store) -> Boxed<'a, Result<T, StoreError>> + Send,
        late: impl FnOnce(Arc<dyn Store>) -> Option<Boxed<'static, ()>> + Send,
    ) -> Result<T, StoreError> {
        match self.decide(op) {
            None => call(self.inner.as_ref()).await,
            Some(Fault::Before | Fault::Lost) => Err(injected(name)),
            Some(Fault::Impossible) => Err(impossible(name)),
            Some(Fault::Broken(by) | Fault::PoolTimeout(by)) => {
                tokio::time::sleep(by.to_std()).await;
                Err(injected(name))
            }
            Some(Fault::After) => {
                drop(call(self.inner.as_ref()).await?);
                Err(injected(name))
            }
            Some(Fault::Damaged) => {
                drop(call(self.inner.as_ref()).await?);
                Err(damaged(name))
            }
            Some(Fault::Delay(by)) => {
                tokio::time::sleep(by.to_std()).await;
                call(self.inner.as_ref()).await
            }
            Some(Fault::Slow(by)) => {
                let answer = call(self.inner.as_ref()).await;
                tokio::time::sleep(by.to_std()).await;
                answer
            }
            Some(Fault::Late(by)) => {
                if let Some(call) = late(Arc::clone(&self.inner)) {
                    later(by, call);
                }
                Err(injected(name))
            }
        }
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        call: impl FnOnce(&'a dyn Store) -> Boxed<'a, Result<T, StoreError>> + Send + 'a,
    ) -> Boxed<'a, Result<T, StoreError>> {
        Box::pin(self.call((Op::Read, name), call, |_| None))
    }
}

fn later(by: Span, call: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        tokio::time::sleep(by.to_std()).await;
        call.await;
    });
}

fn injected(op: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, op, "a fault was injected")
}

fn damaged(op: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, op, "damage was injected")
}

fn impossible(op: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Invalid, op, "a fault was injected that stays")
}

impl Store for FaultyStore {
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        Box::pin(async move {
            let promises = !unit.outbox.is_empty();
            let answer = self.commit_faultily(unit).await;
            // A process hears what it has promised itself.
            if let (true, Ok(_), Some(bus)) = (promises, &answer, &self.bus) {
                bus.promised();
            }
            answer
        })
    }

    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        let unit = unit.clone();
        Box::pin(async move {
            self.call((Op::ResolveUnknown, "resolve_unknown"), |_| Box::pin(std::future::ready(Ok(()))), |_| None)
                .await?;
            self.in_flight.wait_for(unit.job).await;
            self.inner.resolve_unknown(&unit).await
        })
    }

    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        let again = ClaimRequest { linger: Span::ZERO, ..request.clone() };
        let late = |inner: Arc<dyn Store>| -> Option<Boxed<'static, ()>> {
            Some(Box::pin(async move { drop(inner.claim(again).await) }))
        };
        Box::pin(self.call((Op::Claim, "claim"), |inner| inner.claim(request), late))
    }

    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        let again = request.clone();
        let late = |inner: Arc<dyn Store>| -> Option<Boxed<'static, ()>> {
            Some(Box::pin(async move { drop(inner.heartbeat(again).await) }))
        };
        Box::pin(self.call((Op::Heartbeat, "heartbeat"), |inner| inner.heartbeat(request), late))
    }

    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        let again = agent.clone();
        let late = |inner: Arc<dyn Store>| -> Option<Boxed<'static, ()>> {
            Some(Box::pin(async move { drop(inner.put_agent(again).await) }))
        };
        Box::pin(self.call((Op::Agent, "put_agent"), |inner| inner.put_agent(agent), late))
    }

    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        let again = (tenant.clone(), name.clone());
        let late = |inner: Arc<dyn Store>| -> Option<Boxed<'static, ()>> {
            Some(Box::pin(async move { drop(inner.delete_agent(again.0, again.1).await) }))
        };
        Box::pin(self.call((Op::Agent, "delete_agent"), |inner| inner.delete_agent(tenant, name), late))
    }

    crate::questions_through!(read);

    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>> {
        match self.unreadable_now(job, "glance") {
            Some(error) => Box::pin(std::future::ready(Err(error))),
            None => self.read("glance", move |inner| inner.glance(scope, job)),
        }
    }

    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        if let Some(error) = self.unreadable_now(job, "history") {
            return Box::pin(std::future::ready(Err(error)));
        }
        self.read("history", move |inner| inner.history(scope, job, full))
    }

    fn health(&self) -> Boxed<'_, Result<Health, StoreError>> {
        match self.health.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(health) => Box::pin(std::future::ready(Ok(health))),
            None => self.read("health", |inner| inner.health()),
        }
    }

    fn bus(&self) -> &Bus {
        self.bus.as_ref().unwrap_or_else(|| self.inner.bus())
    }
}
