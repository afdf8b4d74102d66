//! The decision about a write, the same for every store.
//!
//! ```text
//! needs(unit)  →  the backend looks that up, in the transaction that writes  →  decide(unit, facts, now)
//!              →  the backend writes what was decided, and nothing else
//! ```
//!
//! The order of the checks is the contract's (CONTRACT.md, J8), and it stands here only, for every store that ships. A store that looks nothing up for
//! a check that an earlier one makes needless is free to do so: what [`Facts`] lack is never asked for by the checks before.
//! Claims ([`claim`]) and the question whether a unit was written ([`traces`]) are decided here as well.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::chain::Header;
use aetheris_core::event::{EncodedEvent, Event, EventKind, JobClaimed, PauseReason};
use aetheris_core::hash::Hash;
use aetheris_core::id::{EventId, IdempotencyKey, JobId, PermitId, SignalId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::{self, Fence, Holder};
use aetheris_core::ledger::{LedgerRow, PermitRequest};
use aetheris_core::plan::OnParentEnd;
use aetheris_core::projection::Projection;
use aetheris_core::time::{Reading, Span, Timestamp};

use crate::claim::{ClaimIds, ClaimRequest};
use crate::error::{CommitError, ErrorKind, Refusal, StoreError};
use crate::rules::{self, Kept};
use crate::unit::{ClientKey, InboxWrite, LeaseChange, LedgerWrite, NewEffect, NewJob, UnitOfWork};

/// What a unit's decision depends on beside its job.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs<'u> {
    /// Which job the client's key of a new one has made before.
    pub client_key: Option<(&'u NewJob, &'u ClientKey)>,
    /// Which of these promises stand.
    pub delivers: &'u [u64],
    /// How many signals of this key are kept.
    pub kept_of: BTreeSet<&'u str>,
    /// Whether the job's last event stands where its row says.
    pub last_event: bool,
    /// The ledger's rows of these invocations.
    pub ledger: BTreeSet<IdempotencyKey>,
    /// What the parent of a new job is doing, where that is to end with it.
    pub parent: Option<JobId>,
    /// Whether this plan is in the store.
    pub plan: Option<Hash>,
    /// What is known of these signals, and with any of them all that is kept.
    pub signals: BTreeSet<SignalId>,
    /// Whether these invocations have evidence of a success that the job's history did not go on with. Where the ledger has
    /// no row of one, there is none.
    pub succeeded: BTreeSet<IdempotencyKey>,
}

/// A job as the store has it.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'f> {
    /// Of its last claim.
    pub fence: Fence,
    /// The hash of its last event.
    pub head: Hash,
    /// Who holds it.
    pub holder: Option<&'f Holder>,
    /// The place of its last event.
    pub seq: u64,
    /// Its status.
    pub status: JobStatus,
}

/// A signal that a store knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownSignal {
    /// Whether no wait has had it.
    pub kept: bool,
    /// What it takes.
    pub size: Kept,
}

/// What a store has found of a unit's [`Needs`], in the transaction that writes.
#[derive(Debug, Default)]
pub struct Facts<'f> {
    /// The job of the client's key, and the hash of the request that made it.
    pub client_key: Option<(JobId, Hash)>,
    /// The store's generation.
    pub generation: u32,
    /// The job; none for one that is not there.
    pub job: Option<JobFacts<'f>>,
    /// All that is kept for the job.
    pub kept: Kept,
    /// How many of each key that was asked about; none of one that is not here.
    pub kept_of: BTreeMap<String, usize>,
    /// Whether its last event stands where its row says.
    pub last_event: bool,
    /// Rows of the ledger, of any job.
    pub ledger: BTreeMap<IdempotencyKey, LedgerRow>,
    /// What the parent of a new job is doing; none for one that is not there.
    pub parent: Option<JobStatus>,
    /// Whether the plan is there.
    pub plan: bool,
    /// The signals that are known.
    pub signals: BTreeMap<SignalId, KnownSignal>,
    /// The promises that stand, of those that the unit is to keep.
    pub standing: BTreeSet<u64>,
    /// Invocations with evidence of a success that contradicts the job's history.
    pub succeeded: BTreeSet<IdempotencyKey>,
}

/// A change of the ledger that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerChange {
    /// The row as it is to be.
    pub after: LedgerRow,
    /// The row as the unit's changes before this one leave it.
    pub before: Option<LedgerRow>,
}

/// The moments of a job's row, counted from *now*, and whether it can be claimed, its session aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moments {
    /// Before this moment a pending job is not claimed; none where that has come.
    pub delayed_until: Option<Timestamp>,
    /// What people and the fold see of it.
    pub not_before: Option<Timestamp>,
    /// Why it is paused, and since when.
    pub paused: Option<(PauseReason, Timestamp)>,
    /// Whether it can be claimed as soon as its session lets it.
    pub ready: bool,
}

/// What an accepted unit writes beside its own contents.
#[derive(Debug, PartialEq, Eq)]
pub struct Writes {
    /// The fence of its events.
    pub fence: Fence,
    /// Of each of its events, in order.
    pub hashes: Vec<Hash>,
    /// The chain's head after it.
    pub head: Hash,
    /// Changes of the ledger, in order.
    pub ledger: Vec<LedgerChange>,
    /// The row's moments, where the unit has a row.
    pub moments: Option<Moments>,
    /// The place of the job's last event after it.
    pub seq: u64,
}

/// What has to be looked up before a unit is decided, if it makes sense at all ([`rules::shape`]): nothing is looked up for
/// one that does not.
///
/// # Errors
/// What is wrong with it.
pub fn needs(unit: &UnitOfWork) -> Result<Needs<'_>, StoreError> {
    rules::shape(unit)?;
    let of_ledger = unit.ledger.iter().map(LedgerWrite::key);
    let signals = unit.inbox.iter().map(|write| match write {
        InboxWrite::Receive { signal, .. } | InboxWrite::Consume(signal) => *signal,
    });
    let permits = unit.ledger.iter().filter_map(|write| match write {
        LedgerWrite::Permit(request) => Some(request.key),
        LedgerWrite::Settle(_) | LedgerWrite::Disprove(_) | LedgerWrite::See { .. } => None,
    });
    Ok(Needs {
        client_key: new_client_key(unit),
        delivers: &unit.delivers,
        kept_of: unit.expected_signals.iter().map(|expected| expected.key.as_str()).collect(),
        last_event: follows(unit),
        ledger: of_ledger.chain(unit.effects.iter().map(|effect| effect.key)).collect(),
        parent: parent_of_new(unit).map(|(parent, _)| parent),
        plan: recorded_plan(unit),
        signals: signals.collect(),
        succeeded: permits.collect(),
    })
}

fn new_client_key(unit: &UnitOfWork) -> Option<(&NewJob, &ClientKey)> {
    unit.create.as_ref().and_then(|new| Some((new, new.client_key.as_ref()?)))
}

/// The parent of a new job, and what becomes of the job when that ends.
fn parent_of_new(unit: &UnitOfWork) -> Option<(JobId, OnParentEnd)> {
    let parent = unit.create.as_ref()?.parent.as_ref()?;
    Some((parent.job, parent.on_parent_end))
}

/// Whether it appends to events that are there.
fn follows(unit: &UnitOfWork) -> bool {
    unit.create.is_none() && !unit.events.is_empty()
}

/// The plan that it records and the store has to have.
fn recorded_plan(unit: &UnitOfWork) -> Option<Hash> {
    // That by which a plan is to be made is named by the job's creation.
    let generated = unit.events.iter().any(|event| event.kind == EventKind::PlanGenerated);
    let recorded = generated || unit.create.is_some();
    // A document that comes with the unit is there with it.
    unit.row.as_ref().and_then(|row| row.plan_hash).filter(|_| recorded && unit.plan.is_none())
}

/// The first checks, which need the job's row and nothing else: whether it is there, guard, lease and sequence. A backend
/// asks them before it looks up the rest, so that damage there is met only by who may write.
///
/// # Errors
/// The first that refuses.
pub fn admit(unit: &UnitOfWork, facts: &Facts<'_>, now: Reading) -> Result<(), Refusal> {
    let job = facts.job.as_ref();
    if job.is_none() && unit.create.is_none() {
        return Err(Refusal::UnknownJob);
    }
    let holder = job.and_then(|job| job.holder);
    if !aetheris_fault::planted!("fence-not-checked") {
        lease::admit(unit.guard, fence_of(facts), holder, now.at).map_err(Refusal::Guard)?;
    }
    rules::permission(unit, holder, now.at)?;
    rules::sequence(unit, job.map_or(0, |job| job.seq))
}

fn fence_of(facts: &Facts<'_>) -> Fence {
    facts.job.as_ref().map_or(rules::unclaimed(facts.generation), |job| job.fence)
}

/// Every check but that of its shape, which is asked for with its [`needs`], in the order of the contract; and what an accepted
/// unit writes.
///
/// # Errors
/// The first that refuses.
pub fn decide(unit: &UnitOfWork, facts: &Facts<'_>, now: Reading) -> Result<Writes, CommitError> {
    admit(unit, facts, now)?;
    promises(unit, facts)?;
    let job = facts.job.as_ref();
    let fence = fence_of(facts);
    let (seq, head) = job.map_or((0, Hash::ZERO), |job| (job.seq, job.head));
    if follows(unit) && !facts.last_event && !aetheris_fault::planted!("appended-behind-a-gap") {
        // Nothing is appended behind a gap: no event could ever follow.
        let ahead = format!("the row of {} is ahead of its events", unit.job);
        return Err(CommitError::Failed(StoreError::new(ErrorKind::Corrupt, "commit", ahead)));
    }
    if recorded_plan(unit).is_some() && !facts.plan {
        return Err(Refusal::UnknownPlan.into());
    }
    client_key(unit, facts)?;
    for expected in &unit.expected_signals {
        rules::signals(expected, facts.kept_of.get(&expected.key).copied().unwrap_or(0))?;
    }
    let ledger = steps(unit, fence, facts, now)?;
    for effect in &unit.effects {
        let row = current(&ledger, facts, effect.key);
        rules::effect(row.filter(|row| row.job == unit.job), effect)?;
    }
    rules::bounds(unit, seq, kept_with(unit, facts)?)?;
    holding(unit, job)?;
    let (hashes, head) = chained(unit, fence, (seq, head), now.at);
    let seq = seq + u64::try_from(hashes.len()).unwrap_or(u64::MAX);
    let moments = unit.row.as_ref().map(|row| moments(row, now.at));
    Ok(Writes { fence, hashes, head, ledger, moments, seq })
}

/// What was promised is done once; and no child is created for a job that would have to cancel it.
fn promises(unit: &UnitOfWork, facts: &Facts<'_>) -> Result<(), Refusal> {
    let gone = unit.delivers.iter().find(|num| !facts.standing.contains(num));
    if let Some(num) = gone.filter(|_| !aetheris_fault::planted!("promise-kept-twice")) {
        return Err(Refusal::Delivered(*num));
    }
    let ended =
        facts.parent.is_none_or(JobStatus::is_terminal) && !aetheris_fault::planted!("child-of-an-ended-parent");
    match parent_of_new(unit) {
        Some((parent, OnParentEnd::Cancel)) if ended => Err(Refusal::ParentEnded(parent)),
        Some((_, OnParentEnd::Leave)) if facts.parent.is_none() => Err(Refusal::UnknownJob),
        Some(_) | None => Ok(()),
    }
}

fn client_key(unit: &UnitOfWork, facts: &Facts<'_>) -> Result<(), Refusal> {
    match (new_client_key(unit), facts.client_key) {
        (Some((_, client)), Some((job, hash))) if hash == client.body_hash => Err(Refusal::Duplicate(job)),
        (Some(_), Some((job, _))) => Err(Refusal::KeyConflict(job)),
        (Some(_), None) | (None, _) => Ok(()),
    }
}

/// The ledger's row of an invocation as the unit's changes so far leave it.
fn current<'f>(steps: &'f [LedgerChange], facts: &'f Facts<'_>, key: IdempotencyKey) -> Option<&'f LedgerRow> {
    let changed = steps.iter().rev().find(|step| step.after.key == key).map(|step| &step.after);
    changed.or_else(|| facts.ledger.get(&key))
}

/// Each change sees those before it in the unit.
fn steps(unit: &UnitOfWork, fence: Fence, facts: &Facts<'_>, now: Reading) -> Result<Vec<LedgerChange>, Refusal> {
    let mut steps = Vec::with_capacity(unit.ledger.len());
    for write in &unit.ledger {
        let found = current(&steps, facts, write.key());
        let own = found.filter(|row| row.job == unit.job);
        let (before, after) = match write {
            LedgerWrite::Permit(request) => {
                let succeeded = facts.succeeded.contains(&request.key);
                (found, rules::grant((unit.job, fence), found, request, succeeded, now)?)
            }
            LedgerWrite::Settle(settle) => (own, rules::settle(unit.job, own, settle, now.at)?),
            LedgerWrite::Disprove(disproof) => (own, rules::disprove(unit.job, own, disproof, now)?),
            LedgerWrite::See { key, permit_id } => (own, rules::see(unit.job, own, (*key, *permit_id), now)?),
        };
        let before = before.cloned();
        steps.push(LedgerChange { after, before });
    }
    Ok(steps)
}

/// All that is kept with a unit that adds to it; nothing is counted for one that does not.
fn kept_with(unit: &UnitOfWork, facts: &Facts<'_>) -> Result<Kept, CommitError> {
    let mut kept = facts.kept;
    let mut received: Vec<(SignalId, Kept)> = Vec::new();
    let mut consumed: Vec<SignalId> = Vec::new();
    let roomless = aetheris_fault::planted!("delivered-needs-room");
    for write in &unit.inbox {
        let (InboxWrite::Receive { signal, .. } | InboxWrite::Consume(signal)) = write;
        let stored = facts.signals.get(signal);
        let before = received.iter().find(|(seen, _)| seen == signal).map(|(_, size)| *size);
        match write {
            InboxWrite::Receive { delivered, payload, .. }
                if stored.is_none() && before.is_none() && (!delivered || roomless) =>
            {
                let size = Kept::of(payload);
                received.push((*signal, size));
                kept = kept.plus(size);
            }
            InboxWrite::Receive { .. } => {}
            InboxWrite::Consume(_) => {
                let there = stored.filter(|known| known.kept).map(|known| known.size).or(before);
                let Some(size) = there.filter(|_| !consumed.contains(signal)) else {
                    return Err(CommitError::Failed(rules::not_kept()));
                };
                consumed.push(*signal);
                kept = kept.less(size);
            }
        }
    }
    Ok(if received.is_empty() { Kept::default() } else { kept })
}

/// A running job has a holder, and nothing else has one.
fn holding(unit: &UnitOfWork, job: Option<&JobFacts<'_>>) -> Result<(), CommitError> {
    let status = unit.row.as_ref().map(|row| row.status).or(job.map(|job| job.status));
    let held = unit.lease == LeaseChange::Keep && job.is_some_and(|job| job.holder.is_some());
    if held == (status == Some(JobStatus::Running)) {
        return Ok(());
    }
    let wrong = "a running job has a holder, and nothing else has one";
    Err(CommitError::Failed(StoreError::new(ErrorKind::Invalid, "commit", wrong)))
}

/// The hash of each of a unit's events, and the head that they leave.
fn chained(unit: &UnitOfWork, fence: Fence, (seq, head): (u64, Hash), now: Timestamp) -> (Vec<Hash>, Hash) {
    let at = now.after(Span::from_micros(u64::from(aetheris_fault::planted!("hash-before-storing"))));
    let mut head = head;
    let places = (1..).map(|place| seq + place);
    let hashes = unit.events.iter().zip(places).map(|(event, seq)| {
        head = Header::of(unit.job, seq, event, fence, at).chain(&head);
        head
    });
    (hashes.collect(), head)
}

fn moments(row: &Projection, now: Timestamp) -> Moments {
    let not_before = row.not_before.map(|due| due.resolve(now));
    let pending = row.status == JobStatus::Pending;
    let delayed = pending && !aetheris_fault::planted!("delay-ignored");
    let delayed_until = not_before.filter(|at| delayed && *at > now);
    let paused = row.paused.map(|(reason, since)| (reason, since.resolve(now)));
    Moments { delayed_until, not_before, paused, ready: pending && delayed_until.is_none() }
}

/// A job that may be claimed, as its row says.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Of its last claim.
    pub fence: Fence,
    /// The hash of its last event.
    pub head: Hash,
    /// The job.
    pub id: JobId,
    /// Whether its last event stands where its row says.
    pub last_event: bool,
    /// Whether its row says why it is paused.
    pub paused: bool,
    /// The place of its last event.
    pub seq: u64,
}

/// What a claim writes.
#[derive(Debug)]
pub struct ClaimWrites {
    /// `job_claimed`.
    pub event: EncodedEvent,
    /// The new fence.
    pub fence: Fence,
    /// The event's hash: the chain's head.
    pub head: Hash,
    /// Who holds it.
    pub holder: Holder,
    /// The event's place.
    pub seq: u64,
}

/// Makes a job its claimer's own.
///
/// # Errors
/// Why its row cannot be claimed, which costs nobody else a claim.
pub fn claim(
    job: &Candidate,
    ids: ClaimIds,
    request: &ClaimRequest,
    generation: u32,
    now: Timestamp,
) -> Result<ClaimWrites, &'static str> {
    if job.paused {
        return Err("it is pending, and its row says why it is paused");
    }
    if !job.last_event {
        return Err("its row is ahead of its events");
    }
    let step = u32::from(!aetheris_fault::planted!("claim-keeps-epoch"));
    let epoch = job.fence.epoch.checked_add(step).ok_or("its epoch can rise no further")?;
    let seq = job.seq.checked_add(1).ok_or("it can have no further event")?;
    let fence = Fence { generation, epoch };
    let worker = request.worker.clone();
    let claimed = JobClaimed { attempt_id: ids.attempt, instance: request.instance, worker: worker.clone() };
    let event = EncodedEvent::new(ids.event, &Event::from(claimed));
    let head = Header::of(job.id, seq, &event, fence, now).chain(&job.head);
    let lease_until = now.after(request.ttl);
    let holder = Holder { attempt_id: ids.attempt, instance: request.instance, lease_until, worker };
    Ok(ClaimWrites { event, fence, head, holder, seq })
}

/// What only this unit can have left, by a name that its author gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trace<'u> {
    /// Its events: the first of them, behind the place that its author had seen, and how many there are.
    Events {
        /// How many.
        count: usize,
        /// The first.
        first: EventId,
        /// The place before it.
        seen: u64,
    },
    /// A signal.
    Signal(SignalId),
    /// Evidence of the permit.
    Evidence(PermitId),
    /// An effect with exactly this result: another author may have put another one under the same names.
    Effect(&'u NewEffect),
    /// A permission of that id.
    Permit(&'u PermitRequest),
    /// None of these promises stands: this unit has kept them, or somebody else.
    Delivered(&'u [u64]),
}

/// By what it is found whether a unit was written, in the order in which a store looks: the first that is there says so.
#[must_use]
pub fn traces(unit: &UnitOfWork) -> Vec<Trace<'_>> {
    if let Some(first) = unit.events.first() {
        let events = |seen| Trace::Events { count: unit.events.len(), first: first.id, seen };
        return unit.expected_seq.map(events).into_iter().collect();
    }
    let signals = unit.inbox.iter().filter_map(|write| match write {
        InboxWrite::Receive { signal, .. } => Some(Trace::Signal(*signal)),
        InboxWrite::Consume(_) => None,
    });
    let evidence = unit.evidence.first().map(|evidence| Trace::Evidence(evidence.permit_id));
    let effect = unit.effects.first().map(Trace::Effect);
    let permits = unit.ledger.iter().filter_map(|write| match write {
        LedgerWrite::Permit(request) => Some(Trace::Permit(request)),
        LedgerWrite::Settle(_) | LedgerWrite::Disprove(_) | LedgerWrite::See { .. } => None,
    });
    let delivered = (!unit.delivers.is_empty()).then_some(Trace::Delivered(&unit.delivers));
    signals.chain(evidence).chain(effect).chain(permits).chain(delivered).collect()
}

#[cfg(test)]
mod tests {
    use aetheris_core::disproof::{Disproof, Grounds};
    use aetheris_core::event::{JobCancelled, NodeStarted, PlanGenerated};
    use aetheris_core::id::{AttemptId, BootId, InstanceId};
    use aetheris_core::json::Json;
    use aetheris_core::lease::Guard;
    use aetheris_core::ledger::{LedgerRefusal, LedgerStatus, LedgerTrigger, Settle};
    use aetheris_core::plan::EffectClass;
    use aetheris_core::state::JobState;
    use aetheris_core::time::BootMoment;

    use super::*;
    use crate::query::Evidence;
    use crate::unit::{ExpectedSignals, Purpose};

    const JOB: JobId = JobId::from_u128(1);
    const FENCE: Fence = Fence { generation: 1, epoch: 2 };

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn reading(micros: i64) -> Reading {
        let boot = BootMoment { at: Span::from_micros(micros.unsigned_abs()), of: BootId::from_u128(1) };
        Reading { at: at(micros), boot }
    }

    fn holder() -> Holder {
        let (attempt_id, instance) = (AttemptId::from_u128(1), InstanceId::from_u128(2));
        Holder { attempt_id, instance, lease_until: at(100), worker: "w".into() }
    }

    fn running(holder: &Holder) -> JobFacts<'_> {
        let head = Hash::of(b"head");
        JobFacts { fence: FENCE, head, holder: Some(holder), seq: 7, status: JobStatus::Running }
    }

    fn event(id: u128, event: impl Into<Event>) -> EncodedEvent {
        EncodedEvent::new(EventId::from_u128(id), &event.into())
    }

    fn request(key: u128, permit: u32) -> PermitRequest {
        PermitRequest {
            class: EffectClass::AtMostOnce,
            input_hash: Hash::ZERO,
            key: IdempotencyKey::from_u128(key),
            lifetime: Span::from_micros(10),
            node: "n".into(),
            permit,
            permit_id: PermitId::from_u128(u128::from(permit)),
            tool: "t".into(),
        }
    }

    fn effect(request: &PermitRequest) -> NewEffect {
        NewEffect { key: request.key, permit: request.permit, permit_id: request.permit_id, result: Json::null() }
    }

    fn delivered(signal: u128) -> InboxWrite {
        let (key, signal) = ("k".to_owned(), SignalId::from_u128(signal));
        InboxWrite::Receive { delivered: true, key, payload: Json::null(), signal, wait_type: None }
    }

    fn receive(signal: u128) -> InboxWrite {
        InboxWrite::Receive {
            delivered: false,
            key: "k".to_owned(),
            payload: Json::null(),
            signal: SignalId::from_u128(signal),
            wait_type: None,
        }
    }

    /// A unit of the run that holds the job.
    fn unit(events: Vec<EncodedEvent>) -> UnitOfWork {
        let mut unit = UnitOfWork::new(EventId::from_u128(1), JOB, Purpose::Record, Guard::Run(FENCE));
        unit.expected_seq = Some(7);
        unit.events = events;
        unit
    }

    fn facts(holder: &Holder) -> Facts<'_> {
        Facts { generation: 1, job: Some(running(holder)), last_event: true, plan: true, ..Facts::default() }
    }

    fn refused(unit: &UnitOfWork, facts: &Facts<'_>) -> String {
        decide(unit, facts, reading(50)).unwrap_err().to_string()
    }

    /// Of a unit with which everything is wrong, one thing after the other is set right.
    #[test]
    fn the_first_check_that_refuses_is_the_answer_and_they_have_the_contracts_order() {
        let late = Holder { lease_until: at(50), ..holder() };
        let alive = holder();
        let planned = PlanGenerated {
            plan_hash: Hash::ZERO,
            plan_version: 1,
            planner: "static".to_owned(),
            planner_version: "0".to_owned(),
        };
        let many = (3..460).map(|id| event(id, JobCancelled {}));
        let mut wrong = unit([event(1, planned), event(2, JobCancelled {})].into_iter().chain(many).collect());
        wrong.row = Some(Projection { plan_hash: Some(Hash::ZERO), ..Projection::of(&JobState::new(JOB), false) });
        wrong.guard = Guard::Run(Fence { generation: 1, epoch: 1 });
        wrong.expected_seq = Some(6);
        wrong.expected_signals = vec![ExpectedSignals { count: 1, key: "k".to_owned() }];
        wrong.ledger = vec![LedgerWrite::Permit(request(5, 2))];
        wrong.effects = vec![effect(&request(5, 9))];
        wrong.inbox = vec![receive(1), InboxWrite::Consume(SignalId::from_u128(9))];
        let mut found = Facts { generation: 1, job: None, last_event: false, ..Facts::default() };
        let mut said = vec![refused(&wrong, &found)];
        found.job = Some(running(&late));
        said.push(refused(&wrong, &found));
        wrong.guard = Guard::Run(FENCE);
        said.push(refused(&wrong, &found));
        found.job = Some(running(&alive));
        said.push(refused(&wrong, &found));
        wrong.expected_seq = Some(7);
        said.push(refused(&wrong, &found));
        found.last_event = true;
        said.push(refused(&wrong, &found));
        found.plan = true;
        said.push(refused(&wrong, &found));
        found.kept_of = [("k".to_owned(), 1)].into();
        said.push(refused(&wrong, &found));
        wrong.ledger = vec![LedgerWrite::Permit(request(5, 1))];
        said.push(refused(&wrong, &found));
        wrong.effects.clear();
        said.push(refused(&wrong, &found));
        wrong.inbox.truncate(1);
        said.push(refused(&wrong, &found));
        wrong.events.truncate(2);
        said.push(refused(&wrong, &found));
        wrong.row = wrong.row.map(|row| Projection { status: JobStatus::Running, ..row });
        let expected = [
            "there is no such job",
            "fence",
            "the lease has expired",
            "the author has seen 6 events, the job has 7",
            "is ahead of its events",
            "the plan document is not in the store",
            "a signal for `k` has been kept meanwhile",
            "the ledger has no invocation",
            "permit",
            "a signal is consumed that is not kept",
            "the bound of 448 events in one unit is reached",
            "a running job has a holder, and nothing else has one",
        ];
        assert_eq!(said.len(), expected.len());
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.contains(expected), "`{said}` does not say `{expected}`");
        }
        assert!(decide(&wrong, &found, reading(50)).is_ok());
    }

    fn creation(key: Option<&str>) -> UnitOfWork {
        let mut unit = unit(vec![event(1, JobCancelled {})]);
        unit.events[0].kind = EventKind::JobCreated;
        unit.guard = Guard::Outside;
        unit.expected_seq = Some(0);
        unit.row = Some(Projection::of(&JobState::new(JOB), false));
        unit.create = Some(NewJob {
            agent: "a".into(),
            agent_version: "1".to_owned(),
            client_key: key.map(|key| ClientKey { body_hash: Hash::of(b"body"), key: key.to_owned() }),
            labels: BTreeMap::new(),
            parent: None,
            priority: 0,
            session: None,
            tenant: aetheris_core::id::TenantId::default(),
        });
        unit
    }

    #[test]
    fn a_clients_key_makes_one_job_and_a_new_job_has_the_stores_generation() {
        let earlier = JobId::from_u128(9);
        let found = |client_key| Facts { client_key, generation: 3, ..Facts::default() };
        let new = creation(Some("k"));
        let same = decide(&new, &found(Some((earlier, Hash::of(b"body")))), reading(50));
        assert!(matches!(same, Err(CommitError::Refused(Refusal::Duplicate(job))) if job == earlier));
        let other = decide(&new, &found(Some((earlier, Hash::of(b"another")))), reading(50));
        assert!(matches!(other, Err(CommitError::Refused(Refusal::KeyConflict(job))) if job == earlier));
        let writes = decide(&new, &found(None), reading(50)).unwrap();
        assert_eq!((writes.fence, writes.seq), (Fence { generation: 3, epoch: 0 }, 1));
        let nobodys = decide(&creation(None), &found(Some((earlier, Hash::ZERO))), reading(50));
        assert!(nobodys.is_ok(), "who gives no key is not asked about one");
    }

    #[test]
    fn a_unit_needs_what_its_decision_depends_on() {
        let new = creation(Some("k"));
        let asked = needs(&new).unwrap();
        assert_eq!(asked.client_key.map(|(_, client)| client.key.as_str()), Some("k"));
        assert!(!asked.last_event, "a new job has no event before it");
        assert_eq!(needs(&unit(vec![])).unwrap(), Needs::default());
        let mut all = unit(vec![event(1, JobCancelled {})]);
        all.expected_signals = vec![ExpectedSignals { count: 0, key: "s".to_owned() }];
        let settle = |key, permit| Settle {
            key: IdempotencyKey::from_u128(key),
            permit_id: PermitId::from_u128(permit),
            trigger: LedgerTrigger::Commit,
        };
        let disproof = Disproof {
            asked: None,
            grounds: Grounds::Refuses,
            key: IdempotencyKey::from_u128(3),
            lifetime: Span::ZERO,
            permit_id: PermitId::from_u128(1),
            settle: Span::ZERO,
        };
        let see = LedgerWrite::See { key: IdempotencyKey::from_u128(4), permit_id: PermitId::from_u128(1) };
        let permit = LedgerWrite::Permit(request(1, 1));
        all.ledger = vec![permit, LedgerWrite::Settle(settle(2, 1)), LedgerWrite::Disprove(disproof), see];
        all.effects = vec![effect(&request(5, 1))];
        all.inbox = vec![receive(6), InboxWrite::Consume(SignalId::from_u128(7))];
        let asked = needs(&all).unwrap();
        assert!(asked.last_event);
        assert_eq!(asked.kept_of, ["s"].into());
        assert_eq!(asked.ledger, (1..=5).map(IdempotencyKey::from_u128).collect());
        assert_eq!(asked.succeeded, [IdempotencyKey::from_u128(1)].into());
        assert_eq!(asked.signals, [6, 7].map(SignalId::from_u128).into());
        // A plan is asked for where it is recorded, and not again with each row that names it.
        let hash = Some(Hash::of(b"plan"));
        let mut names = unit(vec![event(1, JobCancelled {})]);
        names.row = Some(Projection { plan_hash: hash, ..Projection::of(&JobState::new(JOB), false) });
        assert_eq!(needs(&names).unwrap().plan, None);
        names.events[0].kind = EventKind::PlanGenerated;
        assert_eq!(needs(&names).unwrap().plan, hash);
    }

    #[test]
    fn each_change_of_the_ledger_sees_those_before_it() {
        let alive = holder();
        let found = facts(&alive);
        let asked = request(1, 1);
        let settle = Settle { key: asked.key, permit_id: asked.permit_id, trigger: LedgerTrigger::Commit };
        let mut both = unit(vec![]);
        both.ledger = vec![LedgerWrite::Permit(asked.clone()), LedgerWrite::Settle(settle)];
        both.effects = vec![effect(&asked)];
        both.row = None;
        let writes = decide(&both, &found, reading(50)).unwrap();
        let statuses: Vec<_> = writes.ledger.iter().map(|step| step.after.status).collect();
        assert_eq!(statuses, [LedgerStatus::Started, LedgerStatus::Committed]);
        assert_eq!(writes.ledger[0].before, None);
        assert_eq!(writes.ledger[1].before.as_ref(), Some(&writes.ledger[0].after));
        // A row of another job: missing to whoever settles it, in the way of whoever asks for it.
        let row = LedgerRow { job: JobId::from_u128(2), ..writes.ledger[0].after.clone() };
        let theirs = Facts { ledger: [(asked.key, row)].into(), ..facts(&alive) };
        let settles = UnitOfWork { ledger: vec![LedgerWrite::Settle(settle)], effects: vec![], ..both.clone() };
        let missing = CommitError::from(Refusal::Ledger(LedgerRefusal::Missing(asked.key))).to_string();
        assert_eq!(refused(&settles, &theirs), missing);
        let puts = UnitOfWork { ledger: vec![], ..both };
        assert_eq!(refused(&puts, &theirs), missing);
    }

    #[test]
    fn nothing_is_called_again_after_a_success_that_the_history_does_not_know() {
        let alive = holder();
        let first = decide(
            &UnitOfWork { ledger: vec![LedgerWrite::Permit(request(1, 1))], ..unit(vec![]) },
            &facts(&alive),
            reading(50),
        );
        let row = LedgerRow { status: LedgerStatus::NotSent, ..first.unwrap().ledger[0].after.clone() };
        let key = row.key;
        let again = UnitOfWork { ledger: vec![LedgerWrite::Permit(request(1, 2))], ..unit(vec![]) };
        let found = |succeeded| Facts { ledger: [(key, row.clone())].into(), succeeded, ..facts(&alive) };
        assert!(decide(&again, &found(BTreeSet::new()), reading(51)).is_ok());
        let succeeded = decide(&again, &found([key].into()), reading(51));
        assert!(matches!(succeeded, Err(CommitError::Refused(Refusal::Ledger(LedgerRefusal::Succeeded(_))))));
    }

    #[test]
    fn signals_are_counted_with_what_the_unit_adds_and_takes() {
        let alive = holder();
        let size = Kept::of(&Json::null());
        let consume = |signal| InboxWrite::Consume(SignalId::from_u128(signal));
        let known = |kept| KnownSignal { kept, size };
        let signals: BTreeMap<_, _> =
            [(1, true), (2, false)].map(|(id, kept)| (SignalId::from_u128(id), known(kept))).into();
        let full = Kept { bytes: 0, count: aetheris_core::limits::KEPT_SIGNALS_MAX, memory: 0 };
        let found = |kept| Facts { kept, signals: signals.clone(), ..facts(&alive) };
        let with = |inbox| UnitOfWork { inbox, ..unit(vec![]) };
        for (inbox, accepted) in [
            (vec![receive(3)], false),
            (vec![delivered(3)], true),
            (vec![delivered(3), receive(4)], false),
            (vec![receive(1)], true),
            (vec![receive(2)], true),
            (vec![consume(1), receive(3)], true),
            (vec![consume(1), receive(3), receive(3)], true),
            (vec![consume(1), receive(3), receive(4)], false),
            (vec![consume(1)], true),
        ] {
            assert_eq!(decide(&with(inbox.clone()), &found(full), reading(50)).is_ok(), accepted, "{inbox:?}");
        }
        for inbox in [vec![consume(2)], vec![consume(9)], vec![consume(1), consume(1)], vec![consume(3), receive(3)]] {
            assert!(refused(&with(inbox), &found(Kept::default())).contains("that is not kept"));
        }
        assert!(decide(&with(vec![receive(3), consume(3)]), &found(Kept::default()), reading(50)).is_ok());
        let over = Kept { count: full.count + 1, ..full };
        assert!(decide(&with(vec![consume(1)]), &found(over), reading(50)).is_ok(), "it adds nothing");
    }

    #[test]
    fn what_runs_is_held_and_what_is_held_runs() {
        let alive = holder();
        let row = |status| Some(Projection { status, ..Projection::of(&JobState::new(JOB), false) });
        for (held, lease, status, right) in [
            (true, LeaseChange::Keep, None, true),
            (true, LeaseChange::Release, None, false),
            (true, LeaseChange::Keep, Some(JobStatus::Waiting), false),
            (true, LeaseChange::Release, Some(JobStatus::Waiting), true),
            (true, LeaseChange::Keep, Some(JobStatus::Running), true),
            (true, LeaseChange::Release, Some(JobStatus::Running), false),
            (false, LeaseChange::Keep, Some(JobStatus::Running), false),
            (false, LeaseChange::Keep, Some(JobStatus::Pending), true),
        ] {
            let standing = running(&alive);
            let (holder, status_before) =
                if held { (standing.holder, JobStatus::Running) } else { (None, JobStatus::Waiting) };
            let job = Some(JobFacts { holder, status: status_before, ..standing });
            let found = Facts { job, ..facts(&alive) };
            let written = UnitOfWork { guard: Guard::Outside, lease, row: status.and_then(row), ..unit(vec![]) };
            assert_eq!(decide(&written, &found, reading(50)).is_ok(), right, "{held}, {lease:?}, {status:?}");
        }
    }

    #[test]
    fn the_chain_goes_on_from_the_jobs_head_at_the_next_place() {
        let alive = holder();
        let events = vec![event(1, NodeStarted::new("n", 1)), event(2, JobCancelled {})];
        let writes = decide(&unit(events.clone()), &facts(&alive), reading(50)).unwrap();
        let first = Header::of(JOB, 8, &events[0], FENCE, at(50)).chain(&Hash::of(b"head"));
        let second = Header::of(JOB, 9, &events[1], FENCE, at(50)).chain(&first);
        assert_eq!((writes.hashes, writes.head, writes.seq), (vec![first, second], second, 9));
        let nothing = decide(&unit(vec![]), &facts(&alive), reading(50)).unwrap();
        assert_eq!((nothing.hashes, nothing.head, nothing.seq), (vec![], Hash::of(b"head"), 7));
    }

    #[test]
    fn a_pending_job_is_ready_when_its_moment_has_come_and_no_other_job_ever_is() {
        for status in JobStatus::ALL {
            for (due, delayed) in [(None, false), (Some(49), false), (Some(50), false), (Some(51), true)] {
                let not_before = due.map(|due| aetheris_core::time::Due::At(at(due)));
                let row = Projection { not_before, status, ..Projection::of(&JobState::new(JOB), false) };
                let pending = status == JobStatus::Pending;
                let expected = Moments {
                    delayed_until: due.map(at).filter(|_| pending && delayed),
                    not_before: due.map(at),
                    paused: None,
                    ready: pending && !delayed,
                };
                assert_eq!(moments(&row, at(50)), expected, "{status:?} {due:?}");
            }
        }
    }

    fn claims(candidate: &Candidate) -> Result<ClaimWrites, &'static str> {
        let ids = ClaimIds { attempt: AttemptId::from_u128(4), event: EventId::from_u128(5) };
        let request = ClaimRequest {
            ids: vec![ids],
            instance: InstanceId::from_u128(2),
            linger: Span::ZERO,
            ttl: Span::from_micros(30),
            worker: "w".into(),
        };
        claim(candidate, ids, &request, 3, at(50))
    }

    #[test]
    fn a_claim_raises_the_epoch_under_the_stores_generation_and_a_row_that_is_wrong_is_set_aside() {
        let candidate =
            Candidate { fence: FENCE, head: Hash::of(b"head"), id: JOB, last_event: true, paused: false, seq: 7 };
        let written = claims(&candidate).unwrap();
        assert_eq!((written.fence, written.seq), (Fence { generation: 3, epoch: 3 }, 8));
        assert_eq!((written.holder.lease_until, written.event.id), (at(80), EventId::from_u128(5)));
        let head = Header::of(JOB, 8, &written.event, written.fence, at(50)).chain(&candidate.head);
        assert_eq!(written.head, head);
        let last = Fence { epoch: u32::MAX, ..FENCE };
        for (wrong, why) in [
            (Candidate { paused: true, ..candidate }, "why it is paused"),
            (Candidate { last_event: false, ..candidate }, "ahead of its events"),
            (Candidate { fence: last, ..candidate }, "rise no further"),
            (Candidate { seq: u64::MAX, ..candidate }, "no further event"),
        ] {
            assert!(claims(&wrong).unwrap_err().contains(why), "{wrong:?}");
        }
    }

    #[test]
    fn a_unit_is_looked_for_by_its_events_or_else_by_every_name_that_it_gives() {
        let events =
            UnitOfWork { inbox: vec![receive(1)], ..unit(vec![event(1, JobCancelled {}), event(2, JobCancelled {})]) };
        assert_eq!(traces(&events), [Trace::Events { count: 2, first: EventId::from_u128(1), seen: 7 }]);
        assert_eq!(traces(&UnitOfWork { expected_seq: None, ..events }), [], "no store accepts it");
        let asked = request(1, 1);
        let (permit_id, key) = (PermitId::from_u128(8), asked.key);
        let node = asked.node.clone();
        let evidence = Evidence { at: at(0), conflict: false, key, node, outcome: Json::null(), permit: 1, permit_id };
        let mut names = unit(vec![]);
        names.inbox = vec![InboxWrite::Consume(SignalId::from_u128(2)), receive(3), receive(4)];
        names.evidence = vec![evidence];
        names.effects = vec![effect(&asked)];
        names.ledger = vec![LedgerWrite::See { key, permit_id }, LedgerWrite::Permit(asked.clone())];
        let signal = |id| Trace::Signal(SignalId::from_u128(id));
        let (evidence, put) = (Trace::Evidence(permit_id), effect(&asked));
        assert_eq!(traces(&names), [signal(3), signal(4), evidence, Trace::Effect(&put), Trace::Permit(&asked)]);
        assert_eq!(traces(&unit(vec![])), []);
    }
}
