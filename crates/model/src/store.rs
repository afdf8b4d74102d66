//! The one door: the checks of a commit in the order of the store's contract (J8), each made by production's
//! own function, then all changes. Beside each stands the law that says what the check is for.

use aetheris_core::disproof::{self, Disproof, Grounds};
use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Guard, Holder, admit};
use aetheris_core::ledger::{self, LedgerRow, LedgerTrigger, PermitRequest, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::projection::Projection;
use aetheris_core::time::Span;
use aetheris_store::{ExpectedSignals, LedgerWrite, NewEffect, Purpose, UnitOfWork, rules};

use crate::bugs::Mutation;
use crate::config::{Program, STEPS_MAX, wait_key};
use crate::fact::{self, Fact, MOMENT, NOW, Outcome, Permit, READING};
use crate::laws::{Law, Sight, judge};
use crate::signal::Signal;
use crate::state::{Change, Entry, Fold, Inbox, Job, Right, Row, Unit, replay};
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
    /// The facts contradict the log: a law is broken.
    Illegal,
}

type Ledger = [Option<Row>; STEPS_MAX];

/// Writes a unit, or nothing of it.
///
/// # Errors
/// The first check that refuses.
pub fn commit(search: &Search, system: &mut System, unit: &Unit) -> Result<(), Refused> {
    let at = usize::from(unit.job);
    let job = system.jobs[at].clone();
    let program = search.program(&job);
    let holder = job.holder();
    let guard = guard(search, unit.right);
    let unfenced = search.config.has(Mutation::FenceNotChecked) && matches!(unit.right, Right::Run(_));
    if !unfenced && admit(guard, job.view.fold.state().fence, holder.as_ref(), NOW).is_err() {
        if matches!(unit.right, Right::Run(_)) {
            search.tally.see(Sight::StaleRefused);
        }
        return Err(Refused::Guard);
    }
    check(search, &job, unit, guard, holder.as_ref())?;
    let ledger = check_ledger(search, program, &job, unit)?;
    judge_write(search, system, &job, unit);
    let Some(fold) = append(&job, program, unit) else {
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
    job.view.ledger = ledger;
    change(search, job, unit, fold);
    Ok(())
}

fn guard(search: &Search, right: Right) -> Guard {
    match right {
        Right::Due => Guard::Due(NOW),
        Right::Run(epoch) => Guard::Run(fact::fence(epoch)),
        Right::Outside => Guard::Outside,
        Right::Expired(_) if search.config.has(Mutation::ReclaimIgnoresLease) => Guard::Outside,
        Right::Expired(epoch) => Guard::Expired(fact::fence(epoch)),
        Right::Dead(epoch) => Guard::Dead(fact::fence(epoch), fact::instance(epoch)),
    }
}

/// Permission, sequence and kept signals.
fn check(search: &Search, job: &Job, unit: &Unit, guard: Guard, holder: Option<&Holder>) -> Result<(), Refused> {
    let mut work = UnitOfWork::new(fact::event_id(), fact::job_id(unit.job), Purpose::Record, guard);
    work.expected_seq = unit.seen.map(|seen| seen.0);
    for entry in &unit.entries {
        if let Some(Change::Ask(permit)) = entry.ledger {
            work.ledger.push(LedgerWrite::Permit(request(search, job, unit.job, permit)));
        }
    }
    if rules::permission(&work, holder, NOW).is_err() && !search.config.has(Mutation::PermissionWithoutLease) {
        search.tally.see(Sight::LeaseRefused);
        return Err(Refused::Lease);
    }
    let careless = search.config.has(Mutation::SequenceNotChecked)
        || (search.config.has(Mutation::TimerWithoutSequence) && fires(unit));
    if !careless && rules::sequence(&work, job.view.fold.seq()).is_err() {
        search.tally.see(Sight::SequenceRefused);
        return Err(Refused::Sequence);
    }
    if let Some((node, count)) = unit.expected_signals
        && !search.config.has(Mutation::WaitWithoutLooking)
    {
        let expected = ExpectedSignals { count: usize::from(count), key: wait_key(node) };
        if rules::signals(&expected, job.view.kept_for(node).count()).is_err() {
            let waits = matches!(unit.right, Right::Run(_));
            search.tally.see(if waits { Sight::WaitRaced } else { Sight::KeepRaced });
            return Err(Refused::Signal);
        }
    }
    Ok(())
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

/// Every change of the ledger, each on those before it, and that effects are of the current permit.
fn check_ledger(search: &Search, program: &Program, job: &Job, unit: &Unit) -> Result<Ledger, Refused> {
    let mut rows = job.view.ledger;
    let id = fact::job_id(unit.job);
    for change in unit.entries.iter().filter_map(|entry| entry.ledger) {
        let permit = match change {
            Change::Ask(permit) | Change::Settle(permit, _) => permit,
        };
        let place = usize::from(permit.node);
        let class = program.steps[place].class().unwrap_or(EffectClass::Pure);
        let existing = rows[place].map(|row| row.full(unit.job, class));
        let row = match change {
            Change::Ask(permit) => ask(search, job, (id, unit), existing.as_ref(), permit)?,
            Change::Settle(permit, LedgerTrigger::Disprove) => disprove(search, unit.job, existing.as_ref(), permit)?,
            Change::Settle(permit, trigger) => settle(search, unit.job, existing.as_ref(), permit, trigger)?,
        };
        let passed = rows[place].is_some_and(|old| old.passed && old.permit == permit);
        rows[place] = Some(Row { disproved: row.disproved, passed, permit, status: row.status });
    }
    for permit in unit.entries.iter().filter_map(|entry| entry.effect) {
        let place = usize::from(permit.node);
        let class = program.steps[place].class().unwrap_or(EffectClass::Pure);
        let row = rows[place].map(|row| row.full(unit.job, class));
        let new = NewEffect {
            key: fact::key_of(unit.job, permit.node),
            permit: u32::from(permit.number),
            permit_id: permit.id(),
            result: Json::null(),
        };
        rules::effect(row.as_ref(), &new).map_err(|_| Refused::Ledger)?;
    }
    Ok(rows)
}

fn ask(
    search: &Search,
    job: &Job,
    (id, unit): (JobId, &Unit),
    existing: Option<&LedgerRow>,
    permit: Permit,
) -> Result<LedgerRow, Refused> {
    let request = request(search, job, unit.job, permit);
    let fence = job.view.fold.state().fence;
    let loose = existing.cloned().filter(|_| search.config.has(Mutation::LedgerNotArbitrated)).map(|row| LedgerRow {
        permit: request.permit.saturating_sub(1),
        status: ledger::LedgerStatus::NotSent,
        ..row
    });
    let existing = loose.as_ref().or(existing);
    let row = ledger::grant(id, fence, existing, &request, READING).map_err(|_| Refused::Ledger)?;
    if permit.number > 1 {
        search.tally.see(Sight::SecondPermit);
    }
    Ok(row)
}

fn settle(
    search: &Search,
    job: u8,
    existing: Option<&LedgerRow>,
    permit: Permit,
    trigger: LedgerTrigger,
) -> Result<LedgerRow, Refused> {
    let change = Settle { key: fact::key_of(job, permit.node), permit_id: permit.id(), trigger };
    let any = existing.cloned().filter(|_| search.config.has(Mutation::DepositOfAnyPermit)).map(|row| LedgerRow {
        permit: u32::from(permit.number),
        permit_id: permit.id(),
        ..row
    });
    ledger::settle(any.as_ref().or(existing), &change, NOW).map_err(|_| Refused::Ledger)
}

fn disprove(search: &Search, job: u8, existing: Option<&LedgerRow>, permit: Permit) -> Result<LedgerRow, Refused> {
    let early = search.config.has(Mutation::DisproofBelievedEarly);
    let disproof = Disproof {
        asked: None,
        grounds: if early { Grounds::Refuses } else { Grounds::Clock },
        key: fact::key_of(job, permit.node),
        lifetime: fact::LIFETIME,
        permit_id: permit.id(),
        settle: Span::ZERO,
    };
    disproof::disprove(existing, &disproof, READING).map_err(|refusal| {
        if matches!(refusal, ledger::LedgerRefusal::CanStillArrive { .. }) {
            search.tally.see(Sight::DisprovedTooEarly);
        }
        Refused::Ledger
    })
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
        if let Some(Change::Ask(_)) = entry.ledger {
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

/// Folds the facts as every later reader will; `None` where the reducer refuses one, or a signal is consumed that is not
/// kept.
fn append(job: &Job, program: &Program, unit: &Unit) -> Option<Fold> {
    let kept = |entry: &Entry| match entry.inbox {
        Some(Inbox::Consume(signal)) => job.view.kept.contains(&signal),
        Some(Inbox::Receive { .. }) | None => true,
    };
    if !unit.entries.iter().all(kept) {
        return None;
    }
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
    if let Some(permit) = unit.evidence {
        job.evidence[usize::from(permit.node)] |= permit.bit();
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

/// Claims a job: the epoch is raised and the event appended in one statement. Its new epoch, if it was claimable.
pub fn claim(search: &Search, system: &mut System, number: u8) -> Option<u8> {
    let at = usize::from(number);
    let job = system.jobs[at].clone();
    let status = job.status();
    if !is_claimable(search, system, number) {
        return None;
    }
    if search.config.session && number > 0 {
        search.tally.see(Sight::SessionGoesOn);
    }
    let program = search.program(&job);
    let before = job.view.fold.epoch();
    let epoch = if search.config.has(Mutation::EpochNotRaised) && before > 0 { before } else { before + 1 };
    judge(search, system, Law::NoClaimAfterEnd, !status.is_terminal());
    judge(search, system, Law::EpochGrows, epoch == before + 1);
    let mut state = job.view.fold.state().clone();
    let event = Fact::Claimed(epoch).event(number, program);
    let folded = replay(&mut state, event, epoch);
    if folded.is_err() {
        judge(search, system, Law::MovesAreLegal, false);
        return None;
    }
    let job = &mut system.jobs[at];
    job.view.fold = Fold::of(state, &program.paths);
    job.held = true;
    job.live = true;
    Some(epoch)
}

/// Whether a claim finds the job.
pub fn is_claimable(search: &Search, system: &System, number: u8) -> bool {
    is_due(search, &system.jobs[usize::from(number)]) && !held_up(search, system, number)
}

/// Whether production's rule lets the job be claimed now, its session aside.
fn is_due(search: &Search, job: &Job) -> bool {
    let now = if job.moment && !search.config.has(Mutation::MomentNotSeen) { MOMENT } else { NOW };
    let row = Projection::of(job.view.fold.state(), false);
    let not_before = row.not_before.map(|due| due.resolve(now)).filter(|_| match search.config.mutation {
        Some(Mutation::DelayIgnored) => false,
        Some(Mutation::PauseForgetsMoment) => job.pauses == 0,
        Some(_) | None => true,
    });
    let claimable = rules::claimable(row.status, not_before, now);
    if !claimable && rules::claimable(row.status, None, now) {
        search.tally.see(Sight::TooEarly);
    }
    claimable
}

/// Whether another job of the session comes first. The stores say it in their queries (L8), here it is said once more:
/// each job is held up by every one that was sent before it and has not ended.
fn held_up(search: &Search, system: &System, number: u8) -> bool {
    let open = |job: &Job| match search.config.mutation {
        Some(Mutation::SessionHeldUpByHeld) => job.held,
        Some(Mutation::SessionPassesPaused) => !job.status().is_terminal() && job.status() != JobStatus::Paused,
        Some(Mutation::SessionNeedsAnswer) => job.status() != JobStatus::Completed,
        Some(_) | None => !job.status().is_terminal(),
    };
    let held_up = search.config.session && system.jobs[..usize::from(number)].iter().any(open);
    if held_up {
        search.tally.see(Sight::HeldUp);
    }
    held_up
}

/// Renews a run's lease, if the store agrees. Whether it did.
pub fn renew(search: &Search, system: &mut System, number: u8, epoch: u8) -> bool {
    let at = usize::from(number);
    let job = &system.jobs[at];
    let live = job.holder().is_some_and(|holder| holder.is_live(NOW));
    let same = job.view.fold.epoch() == epoch && job.held;
    let accepted = match search.config.mutation {
        Some(Mutation::RenewalRevives) => same,
        Some(Mutation::RenewalOfAnyFence) => live,
        Some(_) | None => same && live,
    };
    if accepted {
        search.tally.see(Sight::Renewed);
        judge(search, system, Law::RenewsOnlyLive, same && live);
        system.jobs[at].live = true;
    }
    accepted
}
