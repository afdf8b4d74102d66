//! The one door: all checks, then all changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use aetheris_core::chain::Header;
use aetheris_core::event::EncodedEvent;
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::{self, Fence};
use aetheris_core::ledger::LedgerRow;
use aetheris_core::projection::{Projection, TimerChange};
use aetheris_core::time::{Reading, Span, Timestamp};

use super::tables::{InboxRow, Job, Tables};
use crate::clock::Look;
use crate::error::{CommitError, Refusal};
use crate::query::{AgentRow, EffectRow, EventRow, Evidence, JobRow, KeptSignal, NewAgent, PutAgent};
use crate::rules;
use crate::unit::{Committed, InboxWrite, LeaseChange, LedgerWrite, NewEffect, NewJob, UnitOfWork};

/// Rows of the ledger as a unit leaves them.
type Staged = BTreeMap<IdempotencyKey, LedgerRow>;

impl Tables {
    pub(super) fn commit(&mut self, unit: UnitOfWork, look: Look) -> Result<Committed, CommitError> {
        rules::shape(&unit).map_err(CommitError::Failed)?;
        let staged = self.check(&unit, look.reading())?;
        let now = self.tick(look);
        let rows = 1 + unit.events.len() + unit.effects.len() + unit.inbox.len() + unit.timers.len() + staged.len();
        let bytes = unit.events.iter().map(|event| event.payload.len()).sum::<usize>()
            + unit.effects.iter().map(|effect| effect.result.canonical().len()).sum::<usize>();
        self.count(1, rows, bytes);
        self.ledger.extend(staged);
        Ok(self.write(unit, now))
    }

    /// Every check, in the order of the contract. Changes nothing.
    fn check(&self, unit: &UnitOfWork, reading: Reading) -> Result<Staged, CommitError> {
        let now = reading.at;
        let job = self.jobs.get(&unit.job);
        if job.is_none() && unit.create.is_none() {
            return Err(Refusal::UnknownJob.into());
        }
        let fence = job.map_or(rules::unclaimed(self.generation()), |job| job.row.fence);
        let holder = job.and_then(|job| job.row.holder.as_ref());
        let seq = job.map_or(0, |job| job.row.seq);
        if !aetheris_fault::planted!("fence-not-checked") {
            lease::admit(unit.guard, fence, holder, now).map_err(Refusal::Guard)?;
        }
        rules::permission(unit, holder, now)?;
        rules::sequence(unit, seq)?;
        self.check_plan(unit)?;
        self.check_client_key(unit)?;
        if let Some(expected) = &unit.expected_signals {
            let kept = job.map_or(0, |job| job.kept().filter(|kept| kept.key == expected.key).count());
            rules::signals(expected, kept)?;
        }
        let staged = self.check_ledger(unit, fence, reading)?;
        for effect in &unit.effects {
            let row = staged.get(&effect.key).or_else(|| self.ledger.get(&effect.key));
            rules::effect(row.filter(|row| row.job == unit.job), effect)?;
        }
        let kept = check_inbox(unit, job)?;
        rules::bounds(unit, seq, kept)?;
        Ok(staged)
    }

    fn check_plan(&self, unit: &UnitOfWork) -> Result<(), Refusal> {
        let recorded = unit.events.iter().any(|event| event.kind == aetheris_core::event::EventKind::PlanGenerated);
        let hash = unit.row.as_ref().and_then(|row| row.plan_hash).filter(|_| recorded);
        if hash.is_some_and(|hash| !self.plans.contains_key(&hash)) { Err(Refusal::UnknownPlan) } else { Ok(()) }
    }

    fn check_client_key(&self, unit: &UnitOfWork) -> Result<(), Refusal> {
        let Some((new, client)) = unit.create.as_ref().and_then(|new| Some((new, new.client_key.as_ref()?))) else {
            return Ok(());
        };
        match self.client_keys.get(&(new.tenant.clone(), new.agent.clone(), client.key.clone())) {
            Some((job, hash)) if *hash == client.body_hash => Err(Refusal::Duplicate(*job)),
            Some((job, _)) => Err(Refusal::KeyConflict(*job)),
            None => Ok(()),
        }
    }

    /// Each change sees those before it in the unit.
    fn check_ledger(&self, unit: &UnitOfWork, fence: Fence, now: Reading) -> Result<Staged, Refusal> {
        let succeeded = |key| {
            let kept = self.jobs.get(&unit.job).map_or(&[][..], |job| &job.evidence);
            kept.iter().any(|evidence| evidence.key == key && evidence.conflict)
        };
        let mut staged = Staged::new();
        for write in &unit.ledger {
            let row = match write {
                LedgerWrite::Permit(request) => {
                    let existing = staged.get(&request.key).or_else(|| self.ledger.get(&request.key));
                    rules::grant((unit.job, fence), existing, request, succeeded(request.key), now)?
                }
                LedgerWrite::Settle(settle) => {
                    let existing = staged.get(&settle.key).or_else(|| self.ledger.get(&settle.key));
                    rules::settle(unit.job, existing, settle, now.at)?
                }
                LedgerWrite::Disprove(disproof) => {
                    let existing = staged.get(&disproof.key).or_else(|| self.ledger.get(&disproof.key));
                    rules::disprove(unit.job, existing, disproof, now)?
                }
                LedgerWrite::See { key, permit_id } => {
                    let existing = staged.get(key).or_else(|| self.ledger.get(key));
                    rules::see(unit.job, existing, (*key, *permit_id), now)?
                }
            };
            staged.insert(row.key, row);
        }
        Ok(staged)
    }

    fn write(&mut self, unit: UnitOfWork, now: Timestamp) -> Committed {
        if let Some(new) = &unit.create
            && let Some(client) = &new.client_key
        {
            let name = (new.tenant.clone(), new.agent.clone(), client.key.clone());
            self.client_keys.insert(name, (unit.job, client.body_hash));
        }
        let fence = rules::unclaimed(self.generation());
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
        for event in unit.events {
            job.append(event, now);
        }
        job.row.updated_at = now;
        if let Some(projection) = unit.row {
            job.project(projection, now);
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
        Committed { at: now, head: job.row.head, seq: job.row.seq }
    }

    /// Looks for what only this unit can have written, by the names that its author gave.
    pub(super) fn settle(&self, unit: &UnitOfWork) -> Option<Committed> {
        let job = self.jobs.get(&unit.job)?;
        if let Some(first) = unit.events.first() {
            let start = job.events.iter().position(|row| row.id == first.id)?;
            let last = job.events.get(start + unit.events.len() - 1)?;
            return Some(Committed { at: last.at, head: last.hash, seq: last.seq });
        }
        let received = unit.inbox.iter().find_map(|write| match write {
            InboxWrite::Receive { signal, .. } => {
                job.inbox.iter().find(|row| row.signal.signal == *signal).map(|row| row.signal.received_at)
            }
            InboxWrite::Consume(_) => None,
        });
        let deposited = || {
            let put = unit.evidence.first()?;
            job.evidence.iter().find(|row| row.permit_id == put.permit_id).map(|row| row.at)
        };
        let effect = || {
            let put = unit.effects.first()?;
            // Only its own: another author may have put another result under the same names.
            let row = job.effects.get(&(put.key, put.permit))?;
            (row.result.canonical() == put.result.canonical()).then_some(row.at)
        };
        let permitted = || {
            unit.ledger.iter().find_map(|write| match write {
                LedgerWrite::Permit(asked) => {
                    self.ledger.get(&asked.key).filter(|row| row.permit_id == asked.permit_id).map(|row| row.updated_at)
                }
                LedgerWrite::Settle(_) | LedgerWrite::Disprove(_) | LedgerWrite::See { .. } => None,
            })
        };
        let at = received.or_else(deposited).or_else(effect).or_else(permitted)?;
        Some(Committed { at, head: job.row.head, seq: job.row.seq })
    }

    pub(super) fn put_agent(&mut self, new: NewAgent, look: Look) -> PutAgent {
        let now = self.tick(look);
        let hash = new.agent.hash();
        self.plans.entry(new.agent.plan.hash()).or_insert_with(|| Arc::clone(&new.agent.plan));
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

/// What is kept with a unit that adds to it.
fn check_inbox(unit: &UnitOfWork, job: Option<&Job>) -> Result<rules::Kept, CommitError> {
    let known = |signal| job.is_some_and(|job| job.inbox.iter().any(|row| row.signal.signal == signal));
    let size = |kept: &KeptSignal| (kept.signal, rules::Kept::of(&kept.payload));
    let mut kept: Vec<_> = job.map(|job| job.kept().map(size).collect()).unwrap_or_default();
    let mut adds = false;
    for write in &unit.inbox {
        let at = |signal| kept.iter().position(|(kept, _)| *kept == signal);
        match write {
            InboxWrite::Receive { delivered: false, signal, payload, .. }
                if !known(*signal) && at(*signal).is_none() =>
            {
                kept.push((*signal, rules::Kept::of(payload)));
                adds = true;
            }
            InboxWrite::Receive { .. } => {}
            InboxWrite::Consume(signal) => {
                kept.swap_remove(at(*signal).ok_or_else(|| CommitError::Failed(rules::not_kept()))?);
            }
        }
    }
    let none = rules::Kept::default();
    Ok(if adds { kept.into_iter().fold(none, |all, (_, one)| all.plus(one)) } else { none })
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

    /// Appends one event under the fence of the last claim and chains it to the one before.
    pub(super) fn append(&mut self, event: EncodedEvent, at: Timestamp) {
        let row = &mut self.row;
        row.seq += 1;
        let hashed_at = at.after(Span::from_micros(u64::from(aetheris_fault::planted!("hash-before-storing"))));
        let header = Header::of(row.id, row.seq, &event, row.fence, hashed_at);
        row.head = header.chain(&row.head);
        self.events.push(EventRow {
            at,
            fence: header.fence,
            hash: row.head,
            id: header.id,
            kind: header.kind,
            payload: event.payload,
            payload_hash: header.payload_hash,
            schema_version: header.schema_version,
            seq: header.seq,
        });
    }

    fn project(&mut self, projection: Projection, now: Timestamp) {
        let row = &mut self.row;
        row.end_requested = projection.end_requested;
        row.error = projection.error;
        row.not_before = projection.not_before.map(|due| due.resolve(now));
        row.paused = projection.paused.map(|(reason, since)| (reason, since.resolve(now)));
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
