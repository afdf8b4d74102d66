//! The one door: all checks, then all changes.

use std::collections::BTreeMap;

use aetheris_core::event::EncodedEvent;
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Fence;
use aetheris_core::projection::{Projection, TimerChange};
use aetheris_core::time::Timestamp;

use super::tables::{InboxRow, Job, Tables};
use crate::clock::Look;
use crate::decide::{self, Facts, JobFacts, KnownSignal, Moments, Needs, Trace, Writes};
use crate::error::CommitError;
use crate::query::{AgentRow, EffectRow, EventRow, Evidence, JobRow, KeptSignal, NewAgent, PlanDocument, PutAgent};
use crate::rules::Kept;
use crate::unit::{Committed, InboxWrite, LeaseChange, NewEffect, NewJob, UnitOfWork};

impl Tables {
    pub(super) fn commit(&mut self, unit: UnitOfWork, look: Look) -> Result<Committed, CommitError> {
        let needs = decide::needs(&unit).map_err(CommitError::Failed)?;
        let writes = decide::decide(&unit, &self.facts(&unit, needs), look.reading())?;
        let now = self.tick(look);
        let steps = writes.ledger.len();
        let rows = 1
            + unit.events.len()
            + unit.effects.len()
            + unit.inbox.len()
            + unit.timers.len()
            + unit.outbox.len()
            + steps;
        let bytes = unit.events.iter().map(|event| event.payload.len()).sum::<usize>()
            + unit.effects.iter().map(|effect| effect.result.canonical().len()).sum::<usize>();
        self.count(1, rows, bytes);
        Ok(self.write(unit, writes, now))
    }

    /// What the decision needs.
    fn facts(&self, unit: &UnitOfWork, needs: Needs<'_>) -> Facts<'_> {
        let job = self.jobs.get(&unit.job);
        let client_key = needs.client_key.and_then(|(new, client)| {
            if aetheris_fault::planted!("client-key-of-any-tenant") {
                let same = |(_, agent, key): &(TenantId, AgentName, String)| *agent == new.agent && *key == client.key;
                return self.client_keys.iter().find(|(name, _)| same(name)).map(|(_, made)| *made);
            }
            self.client_keys.get(&(new.tenant.clone(), new.agent.clone(), client.key.clone())).copied()
        });
        let contradicts = |key: &IdempotencyKey| {
            job.is_some_and(|job| job.evidence.iter().any(|evidence| evidence.key == *key && evidence.conflict))
        };
        let size = |signal: &KeptSignal| Kept::of(&signal.payload);
        let inbox = job.map_or(&[][..], |job| &job.inbox).iter();
        let asked = inbox.clone().filter(|row| needs.signals.contains(&row.signal.signal));
        let known = asked.map(|row| (row.signal.signal, KnownSignal { kept: !row.delivered, size: size(&row.signal) }));
        let kept = inbox.filter(|row| !row.delivered && !needs.signals.is_empty());
        let kept_of = |key: &str| job.map_or(0, |job| job.kept().filter(|kept| kept.key == key).count());
        Facts {
            client_key,
            generation: self.generation(),
            job: job.map(|job| job.facts()),
            kept: kept.fold(Kept::default(), |all, row| all.plus(size(&row.signal))),
            kept_of: needs.kept_of.iter().map(|key| ((*key).to_owned(), kept_of(key))).collect(),
            last_event: true,
            ledger: needs.ledger.iter().filter_map(|key| Some((*key, self.ledger.get(key)?.clone()))).collect(),
            parent: needs.parent.and_then(|parent| self.jobs.get(&parent)).map(|parent| parent.row.status),
            plan: needs.plan.is_some_and(|hash| self.plans.contains_key(&hash)),
            signals: known.collect(),
            standing: needs.delivers.iter().copied().filter(|num| self.outbox.contains_key(num)).collect(),
            succeeded: needs.succeeded.into_iter().filter(contradicts).collect(),
        }
    }

    fn write(&mut self, unit: UnitOfWork, writes: Writes, now: Timestamp) -> Committed {
        let Writes { fence, hashes, head, ledger, moments, seq } = writes;
        self.ledger.extend(ledger.into_iter().map(|step| (step.after.key, step.after)));
        if let Some(new) = &unit.create
            && let Some(client) = &new.client_key
        {
            let name = (new.tenant.clone(), new.agent.clone(), client.key.clone());
            self.client_keys.insert(name, (unit.job, client.body_hash));
        }
        if let Some(parent) = unit.create.as_ref().and_then(|new| new.parent.as_ref()) {
            self.children.entry(parent.job).or_default().push((unit.job, parent.clone()));
        }
        for num in &unit.delivers {
            self.outbox.remove(num);
        }
        for promise in unit.outbox {
            self.promised += 1;
            self.outbox.insert(self.promised, (unit.job, promise));
        }
        if let Some(PlanDocument { hash, plan }) = unit.plan {
            self.plans.entry(hash).or_insert(plan);
        }
        let arrival = self.jobs.len();
        let created = unit.create.as_ref();
        let job = match created {
            Some(new) => self.jobs.entry(unit.job).or_insert_with(|| Job::new(unit.job, new, now, (arrival, fence))),
            // The job was looked up by the checks, under the same lock.
            None => match self.jobs.get_mut(&unit.job) {
                Some(job) => job,
                None => return Committed { at: now, head: Hash::ZERO, seq: 0 },
            },
        };
        for (event, hash) in unit.events.into_iter().zip(hashes) {
            job.append(event, fence, hash, now);
        }
        job.row.updated_at = now;
        if let Some((projection, moments)) = unit.row.zip(moments) {
            job.project(projection, moments);
        }
        if unit.lease == LeaseChange::Release {
            job.row.holder = None;
        }
        for effect in unit.effects {
            job.put_effect(effect, now);
        }
        for write in unit.inbox {
            job.inbox(write, now);
        }
        for evidence in unit.evidence {
            job.put_evidence(evidence, now);
        }
        for change in unit.timers {
            match change {
                TimerChange::Set { due, timer } => drop(job.timers.insert(timer, due.resolve(now))),
                TimerChange::Cleared(timer) => drop(job.timers.remove(&timer)),
            }
        }
        if let Some(checkpoint) = unit.checkpoint
            && job
                .checkpoint
                .as_ref()
                .is_none_or(|newest| newest.seq < checkpoint.seq || newest.version != checkpoint.version)
        {
            job.checkpoint = Some(checkpoint);
        }
        Committed { at: now, head, seq }
    }

    /// Looks for what only this unit can have written, by the names that its author gave.
    pub(super) fn resolve_unknown(&self, unit: &UnitOfWork) -> Option<Committed> {
        let job = self.jobs.get(&unit.job)?;
        let row = &job.row;
        decide::traces(unit).into_iter().find_map(|trace| {
            let at = match trace {
                Trace::Events { count, first, seen } => {
                    let place = usize::try_from(seen).ok()?;
                    let by_place = aetheris_fault::planted!("trace-by-place");
                    job.events.get(place).filter(|row| row.id == first || by_place)?;
                    let last = job.events.get(place + count - 1)?;
                    return Some(Committed { at: last.at, head: last.hash, seq: last.seq });
                }
                Trace::Signal(id) => job.inbox.iter().find(|row| row.signal.signal == id)?.signal.received_at,
                Trace::Evidence(permit_id) => job.evidence.iter().find(|row| row.permit_id == permit_id)?.at,
                Trace::Effect(put) => {
                    let row = job.effects.get(&(put.key, put.permit))?;
                    Some(row.at).filter(|_| row.result.canonical() == put.result.canonical())?
                }
                Trace::Delivered(nums) if nums.iter().any(|num| self.outbox.contains_key(num)) => return None,
                Trace::Delivered(_) => row.updated_at,
                Trace::Permit(asked) => {
                    self.ledger.get(&asked.key).filter(|row| row.permit_id == asked.permit_id)?.updated_at
                }
            };
            Some(Committed { at, head: row.head, seq: row.seq })
        })
    }

    pub(super) fn put_agent(&mut self, new: NewAgent, look: Look) -> PutAgent {
        let now = self.tick(look);
        let hash = new.agent.hash();
        for plan in new.agent.plans() {
            self.plans.entry(plan.hash()).or_insert(plan);
        }
        self.count(0, 2, new.source.len());
        let name = (new.tenant, new.agent.agent.clone());
        let row =
            AgentRow { plan_hash: new.agent.plan.hash(), agent: new.agent, hash, source: new.source, updated_at: now };
        let created = self.agents.insert(name, row).is_none();
        PutAgent { created, hash }
    }

    pub(super) fn delete_agent(&mut self, tenant: TenantId, name: AgentName, look: Look) -> bool {
        self.tick(look);
        self.count(0, 1, 0);
        self.agents.remove(&(tenant, name)).is_some()
    }
}

impl Job {
    fn new(id: aetheris_core::id::JobId, new: &NewJob, now: Timestamp, (arrival, fence): (usize, Fence)) -> Self {
        let row = JobRow {
            agent: new.agent.clone(),
            agent_version: new.agent_version.clone(),
            created_at: now,
            end_requested: None,
            error: None,
            fence,
            head: Hash::ZERO,
            holder: None,
            id,
            labels: new.labels.clone(),
            not_before: None,
            paused: None,
            plan_hash: None,
            priority: new.priority,
            seq: 0,
            session: new.session.clone(),
            status: JobStatus::Pending,
            tenant: new.tenant.clone(),
            updated_at: now,
            waiting: None,
        };
        Self {
            arrival,
            checkpoint: None,
            effects: BTreeMap::new(),
            events: Vec::new(),
            evidence: Vec::new(),
            inbox: Vec::new(),
            row,
            timers: BTreeMap::new(),
        }
    }

    /// As the decision sees it.
    fn facts(&self) -> JobFacts<'_> {
        let row = &self.row;
        JobFacts { fence: row.fence, head: row.head, holder: row.holder.as_ref(), seq: row.seq, status: row.status }
    }

    /// Appends one event, whose hash is the chain's next.
    pub(super) fn append(&mut self, event: EncodedEvent, fence: Fence, hash: Hash, at: Timestamp) {
        let row = &mut self.row;
        row.seq += 1;
        row.head = hash;
        let EncodedEvent { id, kind, payload, payload_hash, schema_version } = event;
        let kind = kind.code();
        self.events.push(EventRow { at, fence, hash, id, kind, payload, payload_hash, schema_version, seq: row.seq });
    }

    fn project(&mut self, projection: Projection, moments: Moments) {
        let row = &mut self.row;
        row.end_requested = projection.end_requested;
        row.error = projection.error;
        row.not_before = moments.not_before;
        row.paused = moments.paused;
        row.plan_hash = projection.plan_hash;
        row.status = projection.status;
        row.waiting = projection.waiting;
    }

    fn put_effect(&mut self, new: NewEffect, at: Timestamp) {
        let NewEffect { key, permit, permit_id: _, result } = new;
        self.effects.entry((key, permit)).or_insert(EffectRow { at, key, permit, result });
    }

    fn put_evidence(&mut self, evidence: Evidence, at: Timestamp) {
        if self.evidence.iter().all(|row| row.permit_id != evidence.permit_id) {
            self.evidence.push(Evidence { at, ..evidence });
        }
    }

    fn inbox(&mut self, write: InboxWrite, received_at: Timestamp) {
        match write {
            InboxWrite::Receive { delivered, key, payload, signal, wait_type } => {
                if self.inbox.iter().all(|row| row.signal.signal != signal) {
                    let signal = KeptSignal { key, payload, received_at, signal, wait_type };
                    self.inbox.push(InboxRow { delivered, signal });
                }
            }
            InboxWrite::Consume(signal) => {
                for row in self.inbox.iter_mut().filter(|row| row.signal.signal == signal) {
                    row.delivered = true;
                }
            }
        }
    }
}
