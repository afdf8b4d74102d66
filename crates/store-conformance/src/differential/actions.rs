//! The operations.

use std::collections::BTreeMap;

use aetheris_core::event::{
    DoubtOutcome, EndCause, JobCancelRequested, JobCancelled, JobPauseRequested, JobResumed, RequeueReason, TimerFired,
    TimerId, TimerSet, WaitCompleted, WaitEnd,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, AttemptId, JobId, PermitId, SessionId, SignalId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::path::StepPath;
use aetheris_core::plan::WaitType;
use aetheris_core::state::JobState;
use aetheris_core::step::StepStatus;
use aetheris_core::time::{Span, Timestamp};

use super::compare::{answer, equal, renewal};
use super::kinds;
use super::spoil::spoil;
use super::steps::{finish, nodes, step_of_run};
use super::world::{World, instance, worker};
use crate::draft::LIFETIME;
use crate::fencing::evidence;
use crate::fixture::{Message, TTL, agent, create_unit};
use crate::snapshot::TENANTS;
use aetheris_store::unit::{Checkpoint, ClientKey, InboxWrite, Purpose, UnitOfWork};
use aetheris_store::{ClaimIds, ClaimRequest, Committed, Evidence, Heartbeat, LeaseRenewal, NewAgent, Scope};

/// An operation, for the message of a difference.
#[derive(Debug)]
pub(super) struct Operation {
    /// The jobs that it names.
    pub(super) jobs: Vec<JobId>,
    #[expect(dead_code, reason = "read by Debug, when two stores differ")]
    kind: &'static str,
    #[expect(dead_code, reason = "read by Debug, when two stores differ")]
    sent: Box<dyn std::fmt::Debug + Send + Sync>,
}

impl Operation {
    pub(super) fn named(kind: &'static str) -> Self {
        Self { jobs: Vec::new(), kind, sent: Box::new(()) }
    }

    fn of<T>(kind: &'static str, jobs: Vec<JobId>, sent: &T) -> Self
    where
        T: Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        Self { jobs, kind, sent: Box::new(sent.clone()) }
    }
}

/// Jobs that are kept going at a time: few, so that much happens to each.
pub(super) const LIVE_MAX: usize = 8;

/// Does something at random to both stores.
pub(super) async fn step(world: &mut World<'_>) -> Operation {
    loop {
        let done = match world.random.below(40) {
            0 => Some(put_agent(world).await),
            1 => delete_agent(world).await,
            2..=3 => create(world).await,
            4..=8 => Some(claim(world).await),
            9..=10 => heartbeat(world).await,
            11..=13 => Some(advance(world)),
            14 => settle(world).await,
            15..=20 => promised(world).await,
            _ => write(world).await,
        };
        if let Some(operation) = done {
            return operation;
        }
    }
}

async fn put_agent(world: &mut World<'_>) -> Operation {
    let name = format!("agent {}", world.random.below(3));
    let version = world.random.below(4).to_string();
    let new = NewAgent { tenant: tenant(&mut world.random), ..agent(&name, &version) };
    let operation = Operation::of("put_agent", Vec::new(), &new);
    if !world.plans.contains(&new.agent.plan) {
        world.plans.push(new.agent.plan.clone());
    }
    let (first, second) = (world.a.put_agent(new.clone()).await.unwrap(), world.b.put_agent(new).await.unwrap());
    equal(world, &operation, "the answers", &first, &second);
    world.accepted("put_agent");
    operation
}

async fn delete_agent(world: &mut World<'_>) -> Option<Operation> {
    if !world.random.one_in(3) {
        return None;
    }
    let name = AgentName::new(format!("agent {}", world.random.below(3)));
    let of = tenant(&mut world.random);
    let operation = Operation::of("delete_agent", Vec::new(), &(of.clone(), name.clone()));
    let first = world.a.delete_agent(of.clone(), name.clone()).await.unwrap();
    let second = world.b.delete_agent(of, name).await.unwrap();
    equal(world, &operation, "the answers", &first, &second);
    world.accepted("delete_agent");
    Some(operation)
}

/// Names are drawn for both, so that they meet.
fn tenant(random: &mut aetheris_harness::SplitMix64) -> TenantId {
    TenantId::from(TENANTS[usize::from(random.one_in(3))])
}

fn message(world: &mut World<'_>) -> Message {
    let random = &mut world.random;
    let agent = AgentName::new(format!("agent {}", random.below(3)));
    let plan = random.pick(&world.plans).map(|plan| plan.hash()).filter(|_| !random.one_in(8));
    let plan = if random.one_in(12) { Some(Hash::of(b"unknown")) } else { plan };
    let some = world.plans.first().map(|plan| plan.hash());
    let planning = some.filter(|_| plan.is_none() && random.one_in(2));
    let team = ["red", "blue", ""][random.below(3)].to_owned();
    let key = format!("key {}", world.jobs.len());
    let client_key = random.one_in(2).then_some(ClientKey { body_hash: Hash::of(b"body"), key });
    let late = random.one_in(5);
    let run_at = aetheris_store::system::Clock::wall(world.clock).after(Span::from_secs(5));
    Message {
        agent,
        client_key,
        deadline: random.one_in(3).then_some(Span::from_secs(20)),
        // Ids are made before their jobs are written: some of them come late, behind greater ones.
        job: JobId::from_u128(world.ids.next() ^ if late { 0x0010_0000_u128 << 96 } else { 0 }),
        labels: BTreeMap::from([("team".to_owned(), team)]),
        message: Json::new(serde_json::json!({ "n": random.below(9), "text": "é\u{0}🦀" })),
        plan,
        planning,
        priority: [0, 0, 1, -1][random.below(4)],
        run_at: random.one_in(4).then_some(run_at),
        session: random.one_in(3).then_some(SessionId::new(format!("s{}", random.below(2)))),
        tenant: tenant(random),
    }
}

async fn create(world: &mut World<'_>) -> Option<Operation> {
    if world.live.len() >= LIVE_MAX && !world.random.one_in(6) {
        return None;
    }
    let mut message = message(world);
    if world.random.one_in(3)
        && let Some((agent, key)) = world.random.pick(&world.client_keys).cloned()
    {
        let body_hash = if world.random.one_in(2) { key.body_hash } else { Hash::of(b"another body") };
        (message.agent, message.client_key) = (agent, Some(ClientKey { body_hash, ..key }));
    }
    let mut unit = create_unit(&world.ids, &message);
    if world.random.one_in(4) {
        let rare = world.rare_answer("create");
        unit = spoil(world, rare, unit).await;
    }
    let job = unit.job;
    let (operation, accepted) = send(world, "create", unit).await;
    if accepted && job == message.job {
        world.jobs.push(job);
        world.live.push(job);
        world.client_keys.extend(message.client_key.map(|key| (message.agent, key)));
    }
    Some(operation)
}

async fn claim(world: &mut World<'_>) -> Operation {
    let slots = 1 + world.random.below(3);
    let pair = |_| ClaimIds { attempt: AttemptId::from_u128(world.ids.next()), event: world.ids.event() };
    let ids = (0..slots).map(pair).collect();
    let (who, ttl) = (world.random.below(3), if world.random.one_in(4) { Span::from_secs(5) } else { TTL });
    let request = ClaimRequest { ids, instance: instance(who), linger: Span::ZERO, ttl, worker: worker(who) };
    let first = world.a.claim(request.clone()).await.unwrap();
    let second = world.b.claim(request.clone()).await.unwrap();
    let jobs = first.iter().chain(&second).map(|claimed| claimed.job).collect();
    let operation = Operation::of("claim", jobs, &request);
    let told = |all: &[aetheris_store::Claimed]| -> Vec<_> {
        all.iter().map(|claimed| (claimed.job, claimed.fence, claimed.attempt_id, claimed.lease_until)).collect()
    };
    equal(world, &operation, "the answers", &told(&first), &told(&second));
    for (one, other) in first.iter().zip(&second) {
        if let (Some(one), Some(other)) = (&one.history, &other.history) {
            equal(world, &operation, "the histories", one, other);
        }
    }
    world.runs.extend(first.iter().map(|claimed| (claimed.job, claimed.fence)));
    if !first.is_empty() {
        world.accepted("claim");
    }
    operation
}

async fn heartbeat(world: &mut World<'_>) -> Option<Operation> {
    let who = world.random.below(3);
    let mut leases = Vec::new();
    for _ in 0..=world.random.below(4) {
        let recent = world.runs.len().saturating_sub(8);
        let (job, mut fence) = *world.random.pick(world.runs.get(recent..)?)?;
        if world.random.one_in(10) {
            fence = Fence { generation: fence.generation + 1, ..fence };
        }
        leases.push(LeaseRenewal { fence, job });
    }
    let jobs = leases.iter().map(|lease| lease.job).collect();
    let request = Heartbeat { leases, ttl: TTL, worker: worker(who) };
    let operation = Operation::of("heartbeat", jobs, &request);
    let first: Vec<_> = world.a.heartbeat(request.clone()).await.unwrap().iter().map(renewal).collect();
    let second: Vec<_> = world.b.heartbeat(request).await.unwrap().iter().map(renewal).collect();
    equal(world, &operation, "the answers", &first, &second);
    if first.iter().any(|(_, renewed)| renewed.is_some()) {
        world.accepted("heartbeat");
    }
    Some(operation)
}

fn advance(world: &mut World<'_>) -> Operation {
    let spans = [Span::from_micros(1), Span::from_millis(10), Span::from_secs(1), Span::from_secs(4), LIFETIME, TTL];
    let longest = if world.random.one_in(3) { spans.len() } else { 4 };
    let by = spans[world.random.below(longest)];
    world.clock.advance(by);
    world.accepted("advance");
    Operation::of("advance", Vec::new(), &by)
}

async fn settle(world: &mut World<'_>) -> Option<Operation> {
    let unit = world.random.pick(&world.sent).cloned()?;
    let operation = Operation::of("settle", vec![unit.job], &unit);
    let first = world.a.resolve_unknown(&unit).await.unwrap();
    let second = world.b.resolve_unknown(&unit).await.unwrap();
    // What only keeps promises leaves no moment of its own.
    let told = |found: Option<Committed>| {
        found.map(|found| Committed {
            at: if unit.delivers.is_empty() { found.at } else { Timestamp::default() },
            ..found
        })
    };
    equal(world, &operation, "the answers", &told(first), &told(second));
    if first.is_some() {
        world.accepted("settle");
    }
    Some(operation)
}

/// Sends a unit to both, and says whether it was accepted.
async fn send(world: &mut World<'_>, kind: &'static str, unit: UnitOfWork) -> (Operation, bool) {
    let operation = Operation::of(kind, vec![unit.job], &unit);
    let first = world.a.commit(unit.clone()).await;
    let second = world.b.commit(unit.clone()).await;
    equal(world, &operation, "the answers", &answer(&first), &answer(&second));
    world.sent.push(unit);
    if world.sent.len() > 64 {
        world.sent.remove(0);
    }
    let answered = super::compare::answer_kind(&first);
    *world.report.answers.entry((kind, answered)).or_insert(0) += 1;
    match &first {
        Ok(_) => world.accepted(kind),
        Err(error) => world.not_accepted(error),
    }
    (operation, first.is_ok())
}

/// A unit that keeps a promise.
async fn promised(world: &mut World<'_>) -> Option<Operation> {
    let (kind, mut unit) = kinds::keep(world).await?;
    if world.random.one_in(if kind == "keep" { 2 } else { 4 }) {
        let rare = world.rare_answer(kind);
        unit = spoil(world, rare, unit).await;
    }
    let (job, creates) = (unit.job, unit.create.is_some());
    let (operation, accepted) = send(world, kind, unit).await;
    if accepted && creates {
        world.jobs.push(job);
        world.live.push(job);
    }
    Some(operation)
}

/// One unit of a job that is there.
async fn write(world: &mut World<'_>) -> Option<Operation> {
    let state = world.folded().await?;
    // Of a few that are possible the one that is rarest so far.
    let mut chosen: Option<Written> = None;
    for _ in 0..CANDIDATES {
        let Some(found) = candidate(world, state.clone()).await else { continue };
        let so_far =
            |world: &World<'_>, kind| super::ANSWERS.map(|answer| world.report.count(kind, answer)).iter().sum::<u64>();
        let rarer = chosen.as_ref().is_none_or(|best| so_far(world, found.0) < so_far(world, best.0));
        if rarer {
            chosen = Some(found);
        }
    }
    let (kind, mut unit) = chosen?;
    let rare = world.rare_answer(kind);
    // Of what seldom can follow at all, more is spoiled: each of its answers is to be seen often enough.
    let seldom = matches!(kind, "finish" | "resolve") && world.random.one_in(2);
    if rare.is_some() && (seldom || world.random.one_in(2)) {
        unit = spoil(world, rare, unit).await;
    } else if world.random.one_in(5) {
        unit = spoil(world, None, unit).await;
    }
    Some(send(world, kind, unit).await.0)
}

/// How many units are made for one to be sent.
const CANDIDATES: usize = 3;

/// A unit that could follow.
async fn candidate(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let doubts = state.steps.values().any(|step| step.status == StepStatus::InDoubt);
    if state.status == JobStatus::Pending && kinds::is_unplanned(&state) && world.random.one_in(3) {
        return Some(kinds::made(world, state));
    }
    let mut choice = if doubts && world.random.one_in(2) { 6 } else { world.random.below(21) };
    if state.status == JobStatus::Running && world.random.one_in(2) {
        choice = 13;
    }
    if state.status == JobStatus::Paused && world.random.one_in(3) {
        choice = 19;
    }
    Some(match choice {
        0 => signal_keep(world, state),
        1 => deposit(world, state),
        2 => checkpoint(world, state),
        3 | 20 => timer(world, state)?,
        4 | 14 | 15 => cancel(world, state)?,
        5 => signal_deliver(world, state).await?,
        6 => resolve(world, state)?,
        7 | 16 | 17 => reclaim(world, state)?,
        18 => pause(world, state)?,
        19 => resume(world, state)?,
        _ => step_of_run(world, state)?,
    })
}

pub(super) type Written = (&'static str, UnitOfWork);

fn guard_of(state: &JobState) -> Guard {
    if state.status == JobStatus::Running { Guard::Run(state.fence) } else { Guard::Outside }
}

fn signal_keep(world: &mut World<'_>, state: JobState) -> Written {
    let repeat = world.random.one_in(6).then(|| world.sent.iter().rev().find_map(received)).flatten();
    let signal = repeat.unwrap_or_else(|| SignalId::from_u128(world.ids.next()));
    let mut unit = UnitOfWork::new(world.ids.event(), state.id, Purpose::Signal, Guard::Outside);
    unit.inbox.push(InboxWrite::Receive {
        delivered: false,
        key: format!("k{}", world.random.below(4)),
        payload: Json::new(serde_json::json!({ "n": world.random.below(9) })),
        signal,
        wait_type: [None, Some(WaitType::Human)][world.random.below(2)],
    });
    ("signal_keep", unit)
}

fn received(unit: &UnitOfWork) -> Option<SignalId> {
    unit.inbox.iter().find_map(|write| match write {
        InboxWrite::Receive { signal, .. } => Some(*signal),
        InboxWrite::Consume(_) => None,
    })
}

fn deposit(world: &mut World<'_>, state: JobState) -> Written {
    let mut unit = UnitOfWork::new(world.ids.event(), state.id, Purpose::Deposit, Guard::Outside);
    let permit_id = PermitId::from_u128(u128::try_from(world.random.below(6)).unwrap() ^ state.id.as_u128());
    unit.evidence.push(Evidence { conflict: world.random.one_in(2), ..evidence(permit_id) });
    ("deposit", unit)
}

fn checkpoint(world: &mut World<'_>, state: JobState) -> Written {
    let mut unit = UnitOfWork::new(world.ids.event(), state.id, Purpose::Record, guard_of(&state));
    let bytes = aetheris_core::json::to_canonical(&state);
    unit.checkpoint = Some(Checkpoint::from_bytes(state.seq, bytes));
    ("checkpoint", unit)
}

fn timer(world: &mut World<'_>, state: JobState) -> Option<Written> {
    if state.status.is_terminal() {
        return None;
    }
    if world.random.one_in(2) {
        let set: Vec<(TimerId, Timestamp)> = state.timers.iter().map(|(id, timer)| (id.clone(), timer.due)).collect();
        let (timer, due) = world.random.pick(&set)?.clone();
        let draft = world.draft(state, Purpose::Timer, Guard::Due(due));
        return Some(("timer_fire", draft.event(TimerFired { timer }).done()));
    }
    let draft = world.draft(state, Purpose::Timer, Guard::Outside);
    let timer = [TimerId::Deadline, TimerId::Wait(StepPath::from("n0"))][world.random.below(2)].clone();
    let after_us = 1_000_000 * world.random.below(9) as u64;
    Some(("timer_set", draft.event(TimerSet { after_us, timer }).done()))
}

fn cancel(world: &mut World<'_>, state: JobState) -> Option<Written> {
    if state.status == JobStatus::Running && state.end_requested.is_none() && world.random.one_in(2) {
        let draft = world.draft(state, Purpose::Cancel, Guard::Outside);
        let cause = EndCause::Cancel;
        return Some(("request_end", draft.event(JobCancelRequested { cause }).done()));
    }
    if state.status.is_terminal() || !world.random.one_in(6) {
        return None;
    }
    let guard = guard_of(&state);
    Some(("cancel", world.draft(state, Purpose::Cancel, guard).event(JobCancelled {}).done()))
}

fn pause(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let requested = state.end_requested;
    let free = requested.is_none() || requested == Some(EndCause::Pause);
    if state.status.is_terminal() || state.status == JobStatus::Paused || !free {
        return None;
    }
    if state.status == JobStatus::Running && requested.is_none() && !world.random.one_in(4) {
        let draft = world.draft(state, Purpose::Pause, Guard::Outside);
        return Some(("request_pause", draft.event(JobPauseRequested {}).done()));
    }
    let guard = guard_of(&state);
    Some(("pause", world.draft(state, Purpose::Pause, guard).pause().done()))
}

fn resume(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let paused = state.status == JobStatus::Paused;
    paused.then(|| ("resume", world.draft(state, Purpose::Pause, Guard::Outside).event(JobResumed {}).done()))
}

async fn signal_deliver(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let blocked = state.blocks.oldest().cloned().filter(|blocked| !blocked.doubt)?;
    let key = blocked.correlation_key?;
    let kept = world.a.history(Scope::System, state.id, false).await.unwrap()?.kept;
    let first = kept.into_iter().find(|kept| kept.key == key);
    let signal = first.as_ref().map_or_else(|| SignalId::from_u128(world.ids.next()), |kept| kept.signal);
    let by = WaitEnd::Signal { payload: Json::null(), signal };
    let completed = WaitCompleted { by, node: blocked.node };
    let draft = world.draft(state, Purpose::Signal, Guard::Outside).event(completed);
    let inbox = if first.is_some() {
        InboxWrite::Consume(signal)
    } else {
        InboxWrite::Receive { delivered: true, key, payload: Json::null(), signal, wait_type: None }
    };
    Some(("signal_deliver", draft.with(|unit| unit.inbox.push(inbox)).done()))
}

fn resolve(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let node = nodes(&state, |step, _| step == StepStatus::InDoubt).pop()?;
    let free = state.status == JobStatus::Running || state.blocks.of(&node.as_str().into()).is_some();
    let outcome = [DoubtOutcome::Happened, DoubtOutcome::DidNotHappen, DoubtOutcome::Unresolved][world.random.below(3)];
    let guard = guard_of(&state);
    free.then(|| ("resolve", world.draft(state, Purpose::Resolve, guard).resolve(&node, outcome).done()))
}

fn reclaim(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let owner = state.owner.clone()?;
    let (fence, dead) = (state.fence, world.random.one_in(4));
    let guard = if dead { Guard::Dead(fence, owner.instance) } else { Guard::Expired(fence) };
    let reason = if dead { RequeueReason::HolderDied } else { RequeueReason::LeaseExpired };
    let draft = world.draft(state.clone(), Purpose::Reclaim, guard);
    // A job whose end is asked for is ended by whoever takes it back.
    let unit = if state.end_requested.is_some() { finish(&state, draft) } else { draft.requeue(reason, None) }.done();
    Some((if dead { "reclaim_dead" } else { "reclaim_expired" }, unit))
}
