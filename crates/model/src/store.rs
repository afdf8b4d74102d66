//! The one door: a unit is put as production's unit of work, decided by the stores' own function
//! ([`decide`](aetheris_store::decide)), and then all of it is changed. Beside it stand the laws that say what its checks
//! are for.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::disproof::{Disproof, Grounds};
use aetheris_core::hash::Hash;
use aetheris_core::json::Json;
use aetheris_core::lease::{Guard, Holder};
use aetheris_core::ledger::{LedgerRefusal, LedgerRow, LedgerStatus, LedgerTrigger, PermitRequest, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::projection::Projection;
use aetheris_core::time::Span;
use aetheris_store::decide::{self, Facts, JobFacts, KnownSignal, LedgerChange};
use aetheris_store::rules::Kept;
use aetheris_store::{
    CommitError, ExpectedSignals, InboxWrite, LeaseChange, LedgerWrite, NewEffect, Purpose, Refusal, UnitOfWork,
};

use crate::bugs::Mutation;
use crate::config::{Program, wait_key};
use crate::fact::{self, Fact, Late, NOW, Outcome, Permit, READING};
use crate::laws::{Law, Sight, judge};
use crate::signal::Signal;
use crate::state::{Change, Fold, Inbox, Job, Right, Row, Unit, replay};
use crate::system::{Search, System};

/// Why a unit was not written. Nothing of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The right is not, or no more, its author's.
    Guard,
    /// The lease has expired.
    Lease,
    /// The log has moved.
    Sequence,
    /// A signal is kept for the wait.
    Signal,
    /// The ledger refuses.
    Ledger,
    /// Another call of the key is known to have succeeded.
    Succeeded,
    /// The facts contradict the log: a law is broken.
    Illegal,
}

/// Writes a unit, or nothing of it.
///
/// # Errors
/// The first check that refuses.
pub fn commit(search: &Search, system: &mut System, unit: &Unit) -> Result<(), Refused> {
    let at = usize::from(unit.job);
    let job = system.jobs[at].clone();
    let program = search.program(&job);
    let holder = holder(search, &job, unit);
    let mut work = work(search, &job, unit);
    let facts = facts(search, &job, unit, holder.as_ref());
    decide::admit(&work, &facts, READING).map_err(|refusal| refused(search, unit, &refusal))?;
    let fold = fold(&job, program, unit);
    work.row = fold.as_ref().map(|fold| Projection::of(fold.state(), false));
    let decided = match decide::decide(&work, &facts, READING) {
        Ok(writes) => Some(writes),
        Err(CommitError::Refused(refusal)) => return Err(refused(search, unit, &refusal)),
        // Its author is wrong: it consumes what is not kept, or gives away what still runs.
        Err(CommitError::Failed(_) | CommitError::Unknown(_)) => None,
    };
    judge_write(search, system, &job, unit);
    let (Some(fold), Some(writes)) = (fold, decided) else {
        judge(search, system, Law::MovesAreLegal, false);
        return Err(Refused::Illegal);
    };
    if fold.seq() > job.view.fold.seq() {
        judge(search, system, Law::MovesAreLegal, true);
        if job.status().is_terminal() {
            judge(search, system, Law::TerminalStays, fold.status() == job.status());
        }
    }
    let job = &mut system.jobs[at];
    change_ledger(search, job, unit, &writes.ledger);
    change(search, job, unit, fold);
    Ok(())
}

/// Why the store has refused.
fn refused(search: &Search, unit: &Unit, refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::Guard(_) => {
            if matches!(unit.right, Right::Run(_)) {
                search.tally.see(Sight::StaleRefused);
            }
            Refused::Guard
        }
        Refusal::LeaseExpired => {
            search.tally.see(Sight::LeaseRefused);
            Refused::Lease
        }
        Refusal::Sequence { .. } => {
            search.tally.see(Sight::SequenceRefused);
            Refused::Sequence
        }
        Refusal::SignalKept(_) => {
            let waits = matches!(unit.right, Right::Run(_));
            search.tally.see(if waits { Sight::WaitRaced } else { Sight::KeepRaced });
            Refused::Signal
        }
        Refusal::Ledger(LedgerRefusal::Succeeded(_)) => Refused::Succeeded,
        Refusal::Ledger(refusal) => {
            if matches!(refusal, LedgerRefusal::CanStillArrive { .. }) {
                search.tally.see(Sight::DisprovedTooEarly);
            }
            Refused::Ledger
        }
        // No unit of the search makes a job, records a plan or comes near a bound.
        Refusal::UnknownJob
        | Refusal::UnknownPlan
        | Refusal::Delivered(_)
        | Refusal::ParentEnded(_)
        | Refusal::Duplicate(_)
        | Refusal::KeyConflict(_)
        | Refusal::Bound { .. } => Refused::Illegal,
    }
}

fn guard(search: &Search, job: &Job, right: Right) -> Guard {
    match right {
        Right::Due => Guard::Due(NOW),
        Right::Run(_) if search.config.has(Mutation::FenceNotChecked) => match job.held {
            true => Guard::Run(job.view.fold.state().fence),
            false => Guard::Outside,
        },
        Right::Run(epoch) => Guard::Run(fact::fence(epoch)),
        Right::Outside => Guard::Outside,
        Right::Expired(_) if search.config.has(Mutation::ReclaimIgnoresLease) => Guard::Outside,
        Right::Expired(epoch) => Guard::Expired(fact::fence(epoch)),
        Right::Dead(epoch) => Guard::Dead(fact::fence(epoch), fact::instance(epoch)),
    }
}

/// Who holds the job, as the check sees it.
fn holder(search: &Search, job: &Job, unit: &Unit) -> Option<Holder> {
    let careless = search.config.has(Mutation::PermissionWithoutLease) && asked(unit).next().is_some();
    let holder = job.holder()?;
    Some(if careless { Holder { lease_until: NOW.after(fact::LIFETIME), ..holder } } else { holder })
}

fn asked(unit: &Unit) -> impl Iterator<Item = Permit> + '_ {
    unit.entries.iter().filter_map(|entry| match entry.ledger {
        Some(Change::Ask(permit)) => Some(permit),
        Some(Change::Settle(..)) | None => None,
    })
}

/// The unit as a store is given it, without its events: what they mean is the fold's.
fn work(search: &Search, job: &Job, unit: &Unit) -> UnitOfWork {
    let guard = guard(search, job, unit.right);
    let mut work = UnitOfWork::new(fact::event_id(), fact::job_id(unit.job), Purpose::Record, guard);
    let careless = search.config.has(Mutation::SequenceNotChecked)
        || (search.config.has(Mutation::TimerWithoutSequence) && fires(unit));
    work.expected_seq = unit.seen.map(|seen| seen.0).filter(|_| !careless);
    let looks = !search.config.has(Mutation::WaitWithoutLooking);
    work.expected_signals = unit
        .expected_signals
        .filter(|_| looks)
        .map(|(node, count)| ExpectedSignals { count: usize::from(count), key: wait_key(node) })
        .into_iter()
        .collect();
    if unit.release {
        work.lease = LeaseChange::Release;
    }
    for entry in &unit.entries {
        work.ledger.extend(entry.ledger.map(|change| ledger_write(search, job, unit.job, change)));
        work.effects.extend(entry.effect.map(|permit| NewEffect {
            key: fact::key_of(unit.job, permit.node),
            permit: u32::from(permit.number),
            permit_id: permit.id(),
            result: Json::null(),
        }));
        work.inbox.extend(entry.inbox.map(|change| match change {
            Inbox::Receive { delivered, signal } => InboxWrite::Receive {
                delivered,
                key: wait_key(signal.node),
                payload: Json::null(),
                signal: signal.name(),
                wait_type: None,
            },
            Inbox::Consume(signal) => InboxWrite::Consume(signal.name()),
        }));
    }
    work
}

fn ledger_write(search: &Search, job: &Job, number: u8, change: Change) -> LedgerWrite {
    match change {
        Change::Ask(permit) => LedgerWrite::Permit(request(search, job, number, permit)),
        Change::Settle(permit, LedgerTrigger::Disprove) => {
            let early = search.config.has(Mutation::DisproofBelievedEarly);
            LedgerWrite::Disprove(Disproof {
                asked: None,
                grounds: if early { Grounds::Refuses } else { Grounds::Clock },
                key: fact::key_of(number, permit.node),
                lifetime: fact::LIFETIME,
                permit_id: permit.id(),
                settle: Span::ZERO,
            })
        }
        Change::Settle(permit, trigger) => {
            LedgerWrite::Settle(Settle { key: fact::key_of(number, permit.node), permit_id: permit.id(), trigger })
        }
    }
}

fn fires(unit: &Unit) -> bool {
    unit.entries.iter().any(|entry| matches!(entry.fact, Some(Fact::TimerFired { .. })))
}

fn request(search: &Search, job: &Job, number: u8, permit: Permit) -> PermitRequest {
    let step = search.program(job).steps[usize::from(permit.node)];
    PermitRequest {
        class: step.class().unwrap_or(EffectClass::Pure),
        input_hash: Hash::ZERO,
        key: fact::key_of(number, permit.node),
        lifetime: fact::LIFETIME,
        node: StepPath::from(""),
        permit: u32::from(permit.number),
        permit_id: permit.id(),
        tool: fact::tool(permit.node),
    }
}

/// What the store looks up for the decision.
fn facts<'f>(search: &Search, job: &Job, unit: &Unit, holder: Option<&'f Holder>) -> Facts<'f> {
    let state = job.view.fold.state();
    let size = Kept::of(&Json::null());
    let changes = unit.entries.iter().filter_map(|entry| entry.ledger);
    let ledger = changes.filter_map(|change| row(search, job, unit.job, change)).collect();
    let kept = job.view.kept.iter().map(|signal| (signal.name(), KnownSignal { kept: true, size }));
    let gone = job.delivered.iter().chain(&job.refused);
    let known = gone.map(|signal| (signal.name(), KnownSignal { kept: false, size })).chain(kept);
    let forgotten = search.config.has(Mutation::SuccessForgotten);
    let contradicted = |permit: &Permit| job.contradicted[usize::from(permit.node)] && !forgotten;
    Facts {
        client_key: None,
        generation: state.fence.generation,
        job: Some(JobFacts { fence: state.fence, head: Hash::ZERO, holder, seq: state.seq, status: state.status }),
        kept: job.view.kept.iter().fold(Kept::default(), |all, _| all.plus(size)),
        kept_of: (unit.expected_signals.iter())
            .map(|(node, _)| (wait_key(*node), job.view.kept_for(*node).count()))
            .collect(),
        last_event: true,
        ledger,
        parent: None,
        plan: true,
        signals: if unit.entries.iter().any(|entry| entry.inbox.is_some()) { known.collect() } else { BTreeMap::new() },
        standing: BTreeSet::new(),
        succeeded: asked(unit)
            .filter(contradicted)
            .map(|permit| fact::key_of(unit.job, permit.node))
            .collect::<BTreeSet<_>>(),
    }
}

/// The row of a change's key.
fn row(
    search: &Search,
    job: &Job,
    number: u8,
    change: Change,
) -> Option<(aetheris_core::id::IdempotencyKey, LedgerRow)> {
    let (Change::Ask(permit) | Change::Settle(permit, _)) = change;
    let place = usize::from(permit.node);
    let class = search.program(job).steps[place].class().unwrap_or(EffectClass::Pure);
    let row = job.view.ledger[place]?.full(number, class);
    let (number, id) = (u32::from(permit.number), permit.id());
    let row = match change {
        Change::Ask(_) if search.config.has(Mutation::LedgerNotArbitrated) => {
            LedgerRow { permit: number.saturating_sub(1), status: LedgerStatus::NotSent, ..row }
        }
        Change::Settle(_, trigger)
            if search.config.has(Mutation::DepositOfAnyPermit) && trigger != LedgerTrigger::Disprove =>
        {
            LedgerRow { permit: number, permit_id: id, ..row }
        }
        Change::Ask(_) | Change::Settle(..) => row,
    };
    Some((row.key, row))
}

/// The rows as they were decided.
fn change_ledger(search: &Search, job: &mut Job, unit: &Unit, decided: &[LedgerChange]) {
    let changes = unit.entries.iter().filter_map(|entry| entry.ledger);
    for (change, LedgerChange { after, .. }) in changes.zip(decided) {
        let permit = match change {
            Change::Ask(permit) => {
                if permit.number > 1 {
                    search.tally.see(Sight::SecondPermit);
                }
                permit
            }
            Change::Settle(permit, _) => permit,
        };
        let row = &mut job.view.ledger[usize::from(permit.node)];
        let passed = row.is_some_and(|old| old.passed && old.permit == permit);
        *row = Some(Row { disproved: after.disproved, passed, permit, status: after.status });
    }
}

/// What the checks are for, judged from the truth.
fn judge_write(search: &Search, system: &mut System, job: &Job, unit: &Unit) {
    let epoch = job.view.fold.epoch();
    let alive = system.runs().any(|run| run.job == unit.job && run.epoch == epoch);
    match unit.right {
        Right::Run(given) => judge(search, system, Law::NoStaleWrite, job.held && given == epoch),
        Right::Outside | Right::Due => {}
        Right::Expired(_) | Right::Dead(_) => {
            let dead = matches!(unit.right, Right::Dead(_));
            search.tally.see(if dead { Sight::ReclaimedDead } else { Sight::Reclaimed });
            judge(search, system, Law::ReclaimsOnlyLost, job.held && (!job.live || !alive));
        }
    }
    let seen = unit.seen.is_none_or(|seen| seen.0 == job.view.fold.seq());
    if unit.entries.iter().any(|entry| entry.fact.is_some()) {
        judge(search, system, Law::LogIsDense, seen);
    }
    for entry in &unit.entries {
        if let Some(Change::Ask(permit)) = entry.ledger {
            let known = job.contradicted[usize::from(permit.node)];
            judge(search, system, Law::NothingAfterSuccess, !known);
            judge(search, system, Law::PermitNeedsLease, job.held && job.live && unit.right == Right::Run(epoch));
        }
        if let Some(fact) = entry.fact {
            judge_fact(search, system, job, unit, fact);
        }
    }
}

fn judge_fact(search: &Search, system: &mut System, job: &Job, unit: &Unit, fact: Fact) {
    match fact {
        Fact::TimerFired { doubt, node } => {
            search.tally.see(Sight::TimerFired);
            let due = job.due[usize::from(node)] & (1 << u8::from(doubt)) != 0;
            judge(search, system, Law::TimerNotEarly, due);
        }
        Fact::Doubt { permit, policy: 0 } => {
            search.tally.see(Sight::DoubtEntered);
            let left = job.left[usize::from(permit.node)] & permit.bit() != 0;
            // An end that others write knows nothing of whether the call has left.
            if unit.right == Right::Run(permit.by) {
                judge(search, system, Law::NoIdleDoubt, left);
            }
        }
        Fact::WaitEnded { node, signal: Some(signal) } => judge_end(search, system, job, node, signal),
        Fact::SignalRefused(signal) => {
            search.tally.see(Sight::MisfitRefused);
            judge(search, system, Law::FitDecides, !signal.word.fits());
        }
        Fact::Completed => search.tally.see(Sight::Completed),
        Fact::InvocationFinished { outcome: Outcome::Unused, .. } => search.tally.see(Sight::PermitUnused),
        Fact::EndRequested => search.tally.see(Sight::CancelOfHeld),
        Fact::DeadlineFired | Fact::DeadlineRequested => {}
        Fact::PauseRequested => search.tally.see(Sight::PauseOfHeld),
        Fact::Paused => search.tally.see(Sight::Paused),
        Fact::Resumed => search.tally.see(Sight::Resumed),
        Fact::Doubt { .. }
        | Fact::Claimed(_)
        | Fact::Requeued { .. }
        | Fact::Waiting { .. }
        | Fact::WaitEnded { signal: None, .. }
        | Fact::Failed
        | Fact::Cancelled
        | Fact::Started { .. }
        | Fact::Finished { .. }
        | Fact::StepFailed(_)
        | Fact::Retry(_)
        | Fact::Called(_)
        | Fact::InvocationFinished { .. }
        | Fact::Command(_)
        | Fact::TimerSet { .. }
        | Fact::Answered { .. } => {}
    }
}

/// A wait ends by a signal.
fn judge_end(search: &Search, system: &mut System, job: &Job, node: u8, signal: Signal) {
    judge(search, system, Law::FitDecides, signal.node == node && signal.word.fits());
    let of_wait = || job.acknowledged.iter().filter(|known| known.node == node);
    let first = of_wait().find(|known| known.word.fits());
    judge(search, system, Law::FirstFitEnds, first.is_none_or(|first| *first == signal));
    if of_wait().any(|known| !known.word.fits()) {
        search.tally.see(Sight::FitAfterMisfit);
    }
}

/// Folds the facts as every later reader will; `None` where the reducer refuses one.
fn fold(job: &Job, program: &Program, unit: &Unit) -> Option<Fold> {
    if unit.entries.iter().all(|entry| entry.fact.is_none()) {
        return Some(job.view.fold.clone());
    }
    let mut state = job.view.fold.state().clone();
    let epoch = job.view.fold.epoch();
    for fact in unit.entries.iter().filter_map(|entry| entry.fact) {
        replay(&mut state, fact.event(unit.job, program), epoch).ok()?;
    }
    Some(Fold::of(state, &program.paths))
}

fn change(search: &Search, job: &mut Job, unit: &Unit, fold: Fold) {
    let program = search.program(job);
    if unit.release {
        job.held = false;
        job.live = false;
    }
    for entry in &unit.entries {
        if let Some(permit) = entry.effect {
            job.view.effects[usize::from(permit.node)] |= permit.bit();
        }
        match entry.inbox {
            Some(Inbox::Receive { delivered: false, signal }) => {
                let replaced = search.config.has(Mutation::KeptReplaced);
                job.view.kept.retain(|kept| !replaced || kept.node != signal.node);
                job.view.kept.push(signal);
            }
            Some(Inbox::Consume(signal)) => job.view.kept.retain(|kept| *kept != signal),
            Some(Inbox::Receive { delivered: true, .. }) | None => {}
        }
        match entry.fact {
            Some(Fact::WaitEnded { signal: Some(signal), .. }) => job.delivered.push(signal),
            Some(Fact::SignalRefused(signal)) => job.refused.push(signal),
            Some(_) | None => {}
        }
    }
    if let Some(Late { contradicts, permit }) = unit.evidence {
        job.evidence[usize::from(permit.node)] |= permit.bit();
        job.contradicted[usize::from(permit.node)] |= contradicts;
    }
    for (place, node) in program.paths.iter().enumerate() {
        for doubt in [false, true] {
            if !fold.state().timers.contains_key(&fact::timer(doubt, node.clone())) {
                job.due[place] &= !(1 << u8::from(doubt));
            }
        }
    }
    job.view.fold = fold;
}
