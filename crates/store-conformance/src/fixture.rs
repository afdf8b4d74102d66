//! A fresh store with an agent in it, and the shortest ways to the states that cases begin in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use aetheris_core::agent::{Agent, Planner};
use aetheris_core::event::{
    EncodedEvent, EndCause, Event, JobCancelRequested, JobCreated, NodeFinished, PlanGenerated, StepResult, TimerId,
    TimerSet,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, AttemptId, EventId, InstanceId, JobId, NodeId, SessionId, TenantId, WorkerId};
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::plan::{Budget, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan};
use aetheris_core::retry::RetryPolicy;
use aetheris_core::state::JobState;
use aetheris_core::time::{Span, Timestamp};

use super::{Draft, Durable, Harness, Opened};
use aetheris_store::system::ManualClock;
use aetheris_store::unit::{ClientKey, Committed, LedgerWrite, NewJob, Purpose, UnitOfWork};
use aetheris_store::{
    Boxed, ClaimIds, ClaimRequest, Claimed, CommitError, ErrorKind, Heartbeat, LeaseRenewal, NewAgent, Refusal,
    Renewal, Scope, Store,
};

/// How long leases live unless a case says otherwise.
pub const TTL: Span = Span::from_secs(30);

/// Names that were not given before. Clones go on where the others are.
#[derive(Debug, Clone, Default)]
pub struct Ids(Arc<AtomicU64>);

impl Ids {
    /// The next one: greater than all before it.
    #[must_use]
    pub fn next(&self) -> u128 {
        (0x0190_0000_u128 << 96) | u128::from(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// The next one as an event's.
    #[must_use]
    pub fn event(&self) -> EventId {
        EventId::from_u128(self.next())
    }
}

/// A job that this case's worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The fence.
    pub fence: Fence,
    /// The job.
    pub job: JobId,
}

impl Run {
    /// The guard of its writes.
    #[must_use]
    pub fn guard(self) -> Guard {
        Guard::Run(self.fence)
    }
}

/// A message to be accepted.
#[derive(Debug, Clone)]
pub struct Message {
    /// The agent.
    pub agent: AgentName,
    /// The client's name for it.
    pub client_key: Option<ClientKey>,
    /// The time the whole job may take.
    pub deadline: Option<Span>,
    /// The job.
    pub job: JobId,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The message itself.
    pub message: Json,
    /// The plan; none leaves the job without.
    pub plan: Option<Hash>,
    /// The planning plan, by which a job without a plan makes its own.
    pub planning: Option<Hash>,
    /// Higher is earlier.
    pub priority: i32,
    /// Not before.
    pub run_at: Option<Timestamp>,
    /// The conversation.
    pub session: Option<SessionId>,
    /// Whose it is.
    pub tenant: TenantId,
}

/// What a case works with.
pub struct Fixture {
    /// The clock of the store.
    pub clock: ManualClock,
    /// Names for everything.
    pub ids: Ids,
    /// The plan of the agent that is there from the beginning.
    pub plan: Hash,
    opened: Opened,
}

/// A plan of two nodes that differs from every other by its name.
#[must_use]
pub fn plan(name: &str) -> Arc<Plan> {
    let kind = || NodeKind::Transform(Json::new(serde_json::json!({ "plan": name })));
    let node = |id: &str, needs: Vec<NodeId>| Node { needs, ..Node::new(id, kind()) };
    Arc::new(Plan {
        answer: None,
        budget: Budget::default(),
        nodes: vec![node("a", Vec::new()), node("b", vec![NodeId::from("a")])],
        retry: RetryPolicy::default(),
        schema_version: PLAN_SCHEMA_VERSION,
        max_parallel_steps: None,
        step_timeout: None,
        tools: BTreeMap::new(),
    })
}

/// An agent of that name and version.
#[must_use]
pub fn agent(name: &str, version: &str) -> NewAgent {
    let agent = Agent {
        agent: AgentName::from(name),
        deadline: None,
        description: String::new(),
        message_schema: None,
        plan: plan(&format!("{name} {version}")),
        planner: Planner::Static,
        version: version.to_owned(),
    };
    NewAgent {
        agent: Arc::new(agent),
        source: format!("agent: {name}\nversion: {version}\n"),
        tenant: TenantId::default(),
    }
}

/// The unit that accepts a message.
#[must_use]
pub fn create_unit(ids: &Ids, message: &Message) -> UnitOfWork {
    let created = JobCreated {
        agent: message.agent.clone(),
        agent_version: "1".to_owned(),
        execution_version: "1".to_owned(),
        labels: message.labels.clone(),
        message: message.message.clone(),
        parent: None,
        planning: message.planning,
        priority: message.priority,
        run_at: message.run_at,
        session: message.session.clone(),
        tenant: message.tenant.clone(),
    };
    let unit = UnitOfWork::new(ids.event(), message.job, Purpose::Create, Guard::Outside);
    let mut draft = Draft::new(unit, JobState::new(message.job), ids.clone()).event(created);
    if let Some(plan_hash) = message.plan {
        draft = draft.event(PlanGenerated {
            plan_hash,
            plan_version: 1,
            planner: "static".to_owned(),
            planner_version: "1".to_owned(),
        });
    }
    if let Some(deadline) = message.deadline {
        draft = draft.event(TimerSet { after_us: deadline.micros(), timer: TimerId::Deadline });
    }
    draft.unit.create = Some(NewJob {
        agent: message.agent.clone(),
        agent_version: "1".to_owned(),
        client_key: message.client_key.clone(),
        labels: message.labels.clone(),
        parent: None,
        priority: message.priority,
        session: message.session.clone(),
        tenant: message.tenant.clone(),
    });
    draft.done()
}

/// The worker of cases that have one.
#[must_use]
pub fn worker() -> WorkerId {
    WorkerId::from("worker")
}

/// Its process.
#[must_use]
pub fn instance() -> InstanceId {
    InstanceId::from_u128(7)
}

impl Fixture {
    /// A fresh store with one agent, at a quiet moment in 2026.
    pub async fn open(harness: &dyn Harness) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_780_000_000_000_000));
        let opened = harness.open(Arc::new(clock.clone())).await;
        let new = agent("agent", "1");
        let plan = new.agent.plan.hash();
        opened.store.put_agent(new).await.unwrap();
        Self { clock, ids: Ids::default(), plan, opened }
    }

    /// The same store after it was closed and opened again.
    pub async fn reopen(self, harness: &dyn Durable) -> Self {
        let opened = harness.reopen(self.opened, Arc::new(self.clock.clone())).await;
        Self { opened, ..self }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.opened.store.as_ref()
    }

    /// The store, for a task.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Store> {
        Arc::clone(&self.opened.store)
    }

    /// Lets time pass.
    pub fn advance(&self, by: Span) {
        self.clock.advance(by);
    }

    /// The clock, as the store reads it.
    pub async fn now(&self) -> Timestamp {
        self.store().status().await.unwrap().now
    }

    /// A plain message for the agent.
    #[must_use]
    pub fn message(&self) -> Message {
        Message {
            agent: AgentName::from("agent"),
            client_key: None,
            deadline: None,
            job: JobId::from_u128(self.ids.next()),
            labels: BTreeMap::new(),
            message: Json::new(serde_json::json!({ "text": "do it" })),
            plan: Some(self.plan),
            planning: None,
            priority: 0,
            run_at: None,
            session: None,
            tenant: TenantId::default(),
        }
    }

    /// The unit that accepts a message.
    #[must_use]
    pub fn creation(&self, message: &Message) -> UnitOfWork {
        create_unit(&self.ids, message)
    }

    /// Accepts a message.
    pub async fn create(&self, message: &Message) -> JobId {
        self.ok(self.creation(message)).await;
        message.job
    }

    /// A pending job.
    pub async fn pending(&self) -> JobId {
        self.create(&self.message()).await
    }

    /// A request for up to `slots` jobs that does not linger.
    #[must_use]
    pub fn request(&self, slots: usize) -> ClaimRequest {
        let pair = || ClaimIds { attempt: AttemptId::from_u128(self.ids.next()), event: self.ids.event() };
        ClaimRequest {
            ids: (0..slots).map(|_| pair()).collect(),
            instance: instance(),
            linger: Span::ZERO,
            ttl: TTL,
            worker: worker(),
        }
    }

    /// Claims up to `slots` jobs.
    pub async fn claim(&self, slots: usize) -> Vec<Claimed> {
        self.store().claim(self.request(slots)).await.unwrap()
    }

    /// Claims up to `slots` jobs and names them in the order they came.
    pub async fn claim_ids(&self, slots: usize) -> Vec<JobId> {
        self.claim(slots).await.into_iter().map(|claimed| claimed.job).collect()
    }

    /// A job that the worker holds. No other job may be claimable.
    pub async fn running(&self) -> Run {
        let job = self.pending().await;
        self.take(job).await
    }

    /// Claims this job, which is the first that can be claimed.
    pub async fn take(&self, job: JobId) -> Run {
        let claimed = self.claim(1).await.pop().expect("the job can be claimed");
        assert_eq!(claimed.job, job, "another job was claimable");
        Run { fence: claimed.fence, job }
    }

    /// Claims this job, which is one of those that can be claimed; the others stay claimed.
    pub async fn running_among(&self, job: JobId) -> Run {
        let claimed = self.claim(64).await.into_iter().find(|claimed| claimed.job == job);
        Run { fence: claimed.expect("the job can be claimed").fence, job }
    }

    /// The job's state, folded from everything that is stored.
    pub async fn state(&self, job: JobId) -> JobState {
        state(self.store(), job).await
    }

    /// A unit to be filled, on top of what is stored.
    pub async fn draft(&self, job: JobId, purpose: Purpose, guard: Guard) -> Draft {
        let unit = UnitOfWork::new(self.ids.event(), job, purpose, guard);
        Draft::new(unit, self.state(job).await, self.ids.clone())
    }

    /// A unit of a run, to be filled.
    pub async fn of(&self, run: Run, purpose: Purpose) -> Draft {
        self.draft(run.job, purpose, run.guard()).await
    }

    /// A unit of a run without events, to be filled by hand.
    #[must_use]
    pub fn plain(&self, run: Run, purpose: Purpose) -> UnitOfWork {
        UnitOfWork::new(self.ids.event(), run.job, purpose, run.guard())
    }

    /// Appends one event of exactly so many bytes. The store does not look into it, and nobody can fold it.
    pub async fn fill(&self, run: Run, bytes: usize) {
        let event = |output: String| {
            let output = Some(Json::new(output.into()));
            Event::from(NodeFinished { output, ..NodeFinished::new("n", StepResult::Pure) })
        };
        let mut unit = self.plain(run, Purpose::Record);
        let empty = EncodedEvent::new(unit.id, &event(String::new())).payload.len();
        unit.events.push(EncodedEvent::new(unit.id, &event("x".repeat(bytes - empty))));
        assert_eq!(unit.events[0].payload.len(), bytes);
        unit.expected_seq = self.store().job(Scope::System, run.job).await.unwrap().map(|row| row.seq);
        self.ok(unit).await;
    }

    /// Writes changes of the ledger alone.
    pub async fn ledger(&self, run: Run, write: LedgerWrite) -> Result<Committed, CommitError> {
        let mut unit = self.plain(run, Purpose::Permit);
        unit.ledger.push(write);
        self.store().commit(unit).await
    }

    /// Writes a unit that must be accepted.
    pub async fn ok(&self, unit: UnitOfWork) -> Committed {
        let purpose = unit.purpose;
        match self.store().commit(unit).await {
            Ok(committed) => committed,
            Err(error) => panic!("the {} unit was not accepted: {error}", purpose.as_str()),
        }
    }

    /// Writes a unit that must be refused.
    pub async fn refused(&self, unit: UnitOfWork) -> Refusal {
        refusal(self.store().commit(unit).await)
    }

    /// Renews one lease: whether it lives on.
    pub async fn renew(&self, run: Run) -> bool {
        let leases = vec![LeaseRenewal { fence: run.fence, job: run.job }];
        let answers = self.store().heartbeat(Heartbeat { leases, ttl: TTL, worker: worker() }).await.unwrap();
        assert_eq!(answers.len(), 1);
        matches!(answers[0], Renewal::Renewed { job, .. } if job == run.job)
    }

    /// Takes an expired lease back.
    pub async fn reclaim(&self, run: Run) {
        let draft = self.draft(run.job, Purpose::Reclaim, Guard::Expired(run.fence)).await;
        self.ok(draft.requeue(aetheris_core::event::RequeueReason::LeaseExpired, None).done()).await;
    }

    /// Asks for the end of a running job.
    pub async fn ask_end(&self, job: JobId) {
        let draft = self.draft(job, Purpose::Cancel, Guard::Outside).await;
        self.ok(draft.event(Event::from(JobCancelRequested { cause: EndCause::Cancel })).done()).await;
    }
}

/// The job's state, folded from everything that is stored.
pub async fn state(store: &dyn Store, job: JobId) -> JobState {
    let history = store.history(Scope::System, job, true).await.unwrap().expect("the job is there");
    JobState::fold(job, &history.events).expect("what is stored can be folded")
}

/// The refusal that a commit must have answered with.
pub fn refusal(answer: Result<Committed, CommitError>) -> Refusal {
    match answer {
        Err(CommitError::Refused(refusal)) => refusal,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

/// Asserts that a commit failed as a fault of its author.
pub fn invalid(answer: Result<Committed, CommitError>) {
    match answer {
        Err(CommitError::Failed(error)) if error.kind == ErrorKind::Invalid => {}
        other => panic!("an invalid unit was expected, not {other:?}"),
    }
}

/// Begins a claim that lingers: when this returns, it is in the store's hands and has got nothing yet.
pub async fn stands<T>(claim: &mut Boxed<'_, T>) {
    let pending = std::future::poll_fn(|cx| Poll::Ready(claim.as_mut().poll(cx).is_pending())).await;
    assert!(pending, "the claim lingers");
}
