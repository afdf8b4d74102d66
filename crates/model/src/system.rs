//! The whole as a Stateright model: who may act in a state, and what comes of it.

use std::sync::Arc;

use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::plan::EffectClass;
use stateright::{Model, Property};

use crate::bugs::Mutation;
use crate::config::{Config, Program, STEPS_MAX, Step};
use crate::fact::{Answered, Outcome, Permit};
use crate::laws::{self, Law, Sight, Tally, judge, judge_state};
use crate::outside::{self, Look, Op};
use crate::run::{Stop, after_asking, next_unit, rebase};
use crate::state::{Fold, Inbox, Job, Known, Phase, Right, Run, Then, Unit, View};
use crate::store::{self, Refused};

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct System {
    /// Laws that are broken, as bits.
    pub broken: u64,
    /// Crashes that may still strike.
    pub crashes: u8,
    /// Commits whose author may be gone and that may still arrive.
    pub flights: Vec<Arc<Unit>>,
    /// Jobs.
    pub jobs: Vec<Job>,
    /// An operation from outside that has looked and not written.
    pub pending: Option<(Op, Arc<Unit>)>,
    /// Calls or answers that may still be lost.
    pub lost: u8,
    /// Leases that may still run short.
    pub slow: u8,
    /// Commits whose outcome may still be unknown.
    pub unknown: u8,
    /// Workers, sorted: they differ by what they hold only.
    pub workers: Vec<Option<Run>>,
}

/// What becomes of a commit whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was executed, and the reply is lost.
    Executed,
    /// It was not executed.
    Lost,
    /// It is still on its way, when its author may have given up.
    Late,
}

/// One step of one actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A body begins: the call has arrived.
    Arrive {
        /// The job.
        job: u8,
        /// The step.
        node: u8,
        /// The permit's number.
        number: u8,
    },
    /// The tool that was asked about a call answers; nothing known is [`Answered::Unresolved`].
    Answer(usize, Answered),
    /// A run calls, or gives its permission back.
    Call(usize),
    /// A worker that is idle claims the job.
    Claim(u8),
    /// A worker's process dies.
    Crash(usize),
    /// A run that has lost its lease deposits what it knows.
    Deposit(usize),
    /// A run is told to stop, and drops a call that may be made again.
    Drop(usize),
    /// A timer is due.
    Due {
        /// Whether it belongs to a doubt.
        doubt: bool,
        /// The job.
        job: u8,
        /// The step.
        node: u8,
    },
    /// A lease ends.
    Expire(u8),
    /// A late commit arrives.
    Land(usize),
    /// The operation that has looked writes.
    LandPending,
    /// A late commit never arrives.
    Lose(usize),
    /// Someone outside looks and writes at once.
    Outside(u8, Op),
    /// A permit's deadline passes: its call can no longer arrive.
    Pass {
        /// The job.
        job: u8,
        /// The step.
        node: u8,
    },
    /// Someone outside looks, and writes later.
    Pend(u8, Op),
    /// A run renews its lease.
    Renew(usize),
    /// A run learns the outcome of its call.
    Return(usize, Outcome),
    /// A run asks what became of its unknown commit, behind all that could still bring it.
    Settle(usize),
    /// A run's lease runs short by its own clock.
    Short(usize),
    /// A run writes what comes next.
    Write(usize),
    /// A run writes what comes next, and does not learn whether it was written.
    WriteUnknown(usize, Fate),
}

/// A search: its bounds and its tally.
#[derive(Debug)]
pub struct Search {
    /// The bounds.
    pub config: Config,
    /// Whether the search judges what comes about in the end.
    pub liveness: bool,
    /// Whether every sight has to be seen.
    pub sights: bool,
    /// What was examined and seen.
    pub tally: Arc<Tally>,
}

impl Search {
    /// A job's program.
    #[must_use]
    pub fn program(&self, job: &Job) -> &Program {
        &self.config.programs[usize::from(job.program)]
    }
}

impl System {
    /// The runs in progress.
    pub fn runs(&self) -> impl Iterator<Item = &Run> + Clone {
        self.workers.iter().flatten()
    }

    /// Whether nothing is on its way and nothing is to be done.
    #[must_use]
    pub fn rests(&self) -> bool {
        let still = |job: &Job| job.air.iter().all(|air| *air == 0);
        self.runs().next().is_none()
            && self.flights.is_empty()
            && self.pending.is_none()
            && self.jobs.iter().all(still)
    }

    /// Whether everything is at rest with every job as it should be. A path that a broken law cuts short is not
    /// judged by what would have come about.
    #[must_use]
    pub fn ends_with(&self, good: impl Fn(&Job) -> bool) -> bool {
        self.broken != 0 || (self.rests() && self.jobs.iter().all(good))
    }

    fn job(&mut self, job: u8) -> &mut Job {
        &mut self.jobs[usize::from(job)]
    }

    fn run(&self, worker: usize) -> Option<&Run> {
        self.workers.get(worker).and_then(Option::as_ref)
    }

    /// Brings states that differ only in what no longer matters to one form.
    fn normalise(&mut self) {
        let jobs = &self.jobs;
        for run in self.workers.iter_mut().flatten() {
            let view = &jobs[usize::from(run.job)].view;
            if run.phase == Phase::Depositing {
                run.view = view.clone();
            }
            run.fresh = run.view.fold.seq() == view.fold.seq();
        }
        let fresh = |unit: &Unit| {
            unit.seen.is_none_or(|seen| seen.0 == jobs[usize::from(unit.job)].view.fold.seq())
        };
        let units = self.flights.iter_mut().chain(self.pending.as_mut().map(|(_, unit)| unit));
        for unit in units {
            let now = fresh(unit);
            if unit.fresh != now {
                Arc::make_mut(unit).fresh = now;
            }
        }
        self.workers.sort_by_key(|worker| worker.as_ref().map_or((1, 0, 0), |run| (0, run.job, run.epoch)));
    }
}

impl Model for Search {
    type Action = Action;
    type State = System;

    fn init_states(&self) -> Vec<System> {
        let programs = self.config.programs.len();
        let mut combinations: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..self.config.jobs {
            let longer = |list: &Vec<usize>| {
                let from = list.last().copied().unwrap_or(0);
                (from..programs).map(|next| list.iter().copied().chain([next]).collect()).collect::<Vec<_>>()
            };
            combinations = combinations.iter().flat_map(longer).collect();
        }
        combinations.iter().filter_map(|list| self.begin(list)).collect()
    }

    fn actions(&self, system: &System, actions: &mut Vec<Action>) {
        if system.broken != 0 {
            return;
        }
        for worker in 0..system.workers.len() {
            if let Some(run) = system.run(worker) {
                self.run_actions(system, worker, run, actions);
            }
        }
        for (number, job) in (0u8..).zip(&system.jobs) {
            self.job_actions(system, number, job, actions);
        }
        for flight in 0..system.flights.len() {
            actions.extend([Action::Land(flight), Action::Lose(flight)]);
        }
        if system.pending.is_some() {
            actions.push(Action::LandPending);
        }
    }

    fn next_state(&self, before: &System, action: Action) -> Option<System> {
        let mut system = before.clone();
        self.act(&mut system, action)?;
        system.normalise();
        judge_state(self, &mut system);
        Some(system)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        laws::properties(self.liveness, self.sights)
    }
}

/// An actor had nothing to do.
type Acted = Option<()>;

impl Search {
    fn begin(&self, programs: &[usize]) -> Option<System> {
        let begun = |(number, program): (u8, &usize)| {
            let fold = Fold::begin(number, self.config.programs.get(*program)?).ok()?;
            Some(Job {
                acknowledged: 0,
                air: [0; STEPS_MAX],
                bodies: [0; STEPS_MAX],
                cancelled: false,
                delivered: 0,
                due: [0; STEPS_MAX],
                evidence: [0; STEPS_MAX],
                left: [0; STEPS_MAX],
                live: false,
                held: false,
                program: u8::try_from(*program).ok()?,
                sent: 0,
                view: View { effects: [0; STEPS_MAX], fold, kept: None, ledger: [None; STEPS_MAX] },
            })
        };
        Some(System {
            broken: 0,
            crashes: self.config.crashes,
            flights: Vec::new(),
            jobs: (0u8..).zip(programs).map(begun).collect::<Option<_>>()?,
            pending: None,
            lost: self.config.lost,
            slow: self.config.slow,
            unknown: self.config.unknown,
            workers: vec![None; usize::from(self.config.workers)],
        })
    }

    fn run_actions(&self, system: &System, worker: usize, run: &Run, actions: &mut Vec<Action>) {
        let job = &system.jobs[usize::from(run.job)];
        match &run.phase {
            Phase::Ready => {
                actions.push(Action::Write(worker));
                if system.unknown > 0 {
                    actions.extend([Fate::Executed, Fate::Lost, Fate::Late].map(|f| Action::WriteUnknown(worker, f)));
                }
            }
            Phase::Permitted(_) => actions.push(Action::Call(worker)),
            Phase::Calling(permit) => {
                let at = usize::from(permit.node);
                let class = self.program(job).steps[at].class();
                // A call that did not arrive within its deadline is lost for sure; any other loss is rare.
                let gone = (job.air[at] | job.bodies[at]) & permit.bit() == 0;
                if gone || system.lost > 0 {
                    actions.push(Action::Return(worker, Outcome::Unknown));
                }
                if job.bodies[at] & permit.bit() != 0 {
                    actions.push(Action::Return(worker, Outcome::Done));
                }
                if job.air[at] & permit.bit() != 0 {
                    actions.push(Action::Return(worker, Outcome::Refused));
                }
                let told = !run.safe || job.view.fold.state().end_requested.is_some();
                if class == Some(EffectClass::Idempotent) && told {
                    actions.push(Action::Drop(worker));
                }
            }
            Phase::Asking(permit) => {
                let began = job.bodies[usize::from(permit.node)] & permit.bit() != 0;
                let truth = if began { Answered::Happened } else { Answered::DidNotHappen };
                actions.extend([Action::Answer(worker, truth), Action::Answer(worker, Answered::Unresolved)]);
            }
            Phase::Settling { .. } => {
                let own = |unit: &Arc<Unit>| unit.job == run.job && unit.right == Right::Run(run.epoch);
                if !system.flights.iter().any(own) {
                    actions.push(Action::Settle(worker));
                }
            }
            Phase::Depositing => actions.push(Action::Deposit(worker)),
        }
        let renews = run.phase != Phase::Depositing;
        if run.safe && system.slow > 0 && renews {
            actions.push(Action::Short(worker));
        }
        if !run.safe && renews {
            actions.push(Action::Renew(worker));
        }
        if system.crashes > 0 {
            actions.push(Action::Crash(worker));
        }
    }

    fn job_actions(&self, system: &System, number: u8, job: &Job, actions: &mut Vec<Action>) {
        let status = job.status();
        if status == JobStatus::Pending && system.workers.iter().any(Option::is_none) {
            actions.push(Action::Claim(number));
        }
        let epoch = job.view.fold.epoch();
        let holder = system.runs().find(|run| run.job == number && run.epoch == epoch);
        if job.held && job.live && holder.is_none_or(|run| !run.safe) {
            actions.push(Action::Expire(number));
        }
        let mut operations = Vec::new();
        if job.held && (!job.live || self.config.has(Mutation::ReclaimIgnoresLease)) {
            operations.push(Op::Reclaim);
        }
        if job.held && holder.is_none() && self.config.proof {
            operations.push(Op::ReclaimDead);
        }
        if job.sent < self.config.signals && outside::signalled(self.program(job)).is_some() {
            operations.push(Op::Signal);
        }
        if self.config.cancels && !job.cancelled && !status.is_terminal() {
            operations.push(Op::Cancel);
        }
        for (node, step) in (0u8..).zip(&self.program(job).steps) {
            self.step_actions(system.lost > 0, job, (number, node), *step, (actions, &mut operations));
        }
        for op in operations {
            actions.push(Action::Outside(number, op));
            if self.config.slow_outside && system.pending.is_none() {
                actions.push(Action::Pend(number, op));
            }
        }
    }

    fn step_actions(
        &self,
        lossy: bool,
        job: &Job,
        (number, node): (u8, u8),
        step: Step,
        (actions, operations): (&mut Vec<Action>, &mut Vec<Op>),
    ) {
        let at = usize::from(node);
        let program = self.program(job);
        for doubt in [false, true] {
            let timer = crate::fact::timer(doubt, program.nodes[at].clone());
            if job.view.fold.state().timers.contains_key(&timer) {
                let due = job.due[at] & (1 << u8::from(doubt)) != 0;
                if !due {
                    actions.push(Action::Due { doubt, job: number, node });
                }
                if due || self.config.has(Mutation::TimerFiresEarly) {
                    operations.push(Op::Fire { doubt, node });
                }
            }
        }
        if step.class().is_none() {
            return;
        }
        for permit in 1..8u8 {
            if job.air[at] & (1 << permit) != 0 {
                actions.push(Action::Arrive { job: number, node, number: permit });
            }
        }
        if let Some(row) = job.view.ledger[at] {
            let open = matches!(row.status, LedgerStatus::Started | LedgerStatus::InDoubt) && !row.disproved;
            if !row.passed && if job.air[at] == 0 { open } else { lossy } {
                actions.push(Action::Pass { job: number, node });
            }
        }
        if let Some(permit) = job.open_doubt(program, node) {
            let happened = job.bodies[at] & permit.bit() != 0;
            operations.push(Op::Resolve { happened, node });
        }
    }

    fn act(&self, system: &mut System, action: Action) -> Acted {
        match action {
            Action::Arrive { job, node, number } => self.arrive(system, Permit { by: 0, node, number }, job),
            Action::Answer(worker, answer) => self.answer(system, worker, answer),
            Action::Call(worker) => self.call(system, worker),
            Action::Claim(job) => self.claim(system, job),
            Action::Crash(worker) => {
                system.workers.get_mut(worker)?.take()?;
                system.crashes -= 1;
                Some(())
            }
            Action::Deposit(worker) => self.deposit(system, worker),
            Action::Drop(worker) => {
                if self.reload(system, worker) {
                    self.set(system, worker, Phase::Ready)
                } else {
                    self.lose(system, worker)
                }
            }
            Action::Due { doubt, job, node } => {
                system.job(job).due[usize::from(node)] |= 1 << u8::from(doubt);
                Some(())
            }
            Action::Expire(job) => {
                system.job(job).live = false;
                Some(())
            }
            Action::Land(flight) => self.land(system, flight),
            Action::LandPending => self.land_pending(system),
            Action::Lose(flight) => {
                system.flights.remove(flight);
                Some(())
            }
            Action::Outside(job, op) => self.outside(system, job, op),
            Action::Pass { job, node } => {
                let job = system.job(job);
                let row = job.view.ledger[usize::from(node)].as_mut()?;
                row.passed = true;
                let flying = job.air[usize::from(node)] != 0;
                job.air[usize::from(node)] = 0;
                system.lost -= u8::from(flying);
                Some(())
            }
            Action::Pend(job, op) => match outside::look(self, system, job, op) {
                Look::Nothing | Look::Answered => None,
                Look::Write(unit) => {
                    system.pending = Some((op, Arc::new(*unit)));
                    Some(())
                }
            },
            Action::Renew(worker) => {
                let (job, epoch) = system.run(worker).map(|run| (run.job, run.epoch))?;
                if !store::renew(self, system, job, epoch) {
                    return None;
                }
                system.workers[worker].as_mut()?.safe = true;
                Some(())
            }
            Action::Return(worker, outcome) => self.returned(system, worker, outcome),
            Action::Settle(worker) => self.settle(system, worker),
            Action::Short(worker) => {
                system.workers[worker].as_mut()?.safe = false;
                system.slow -= 1;
                Some(())
            }
            Action::Write(worker) => {
                let unit = self.draft(system, worker)?;
                match unit {
                    Ok(unit) => self.write(system, worker, unit),
                    Err(stop) => self.stop(system, worker, stop),
                }
            }
            Action::WriteUnknown(worker, fate) => self.write_unknown(system, worker, fate),
        }
    }

    fn set(&self, system: &mut System, worker: usize, phase: Phase) -> Acted {
        system.workers.get_mut(worker)?.as_mut()?.phase = phase;
        Some(())
    }

    fn claim(&self, system: &mut System, number: u8) -> Acted {
        let slot = system.workers.iter().position(Option::is_none)?;
        let epoch = store::claim(self, system, number);
        let view = system.jobs[usize::from(number)].view.clone();
        let Some(epoch) = epoch else {
            return (system.broken != 0).then_some(());
        };
        let phase = Phase::Ready;
        system.workers[slot] = Some(Run { epoch, fresh: true, job: number, known: None, phase, safe: true, view });
        Some(())
    }

    fn draft(&self, system: &System, worker: usize) -> Option<Result<Unit, Stop>> {
        let run = system.run(worker)?;
        let program = self.program(&system.jobs[usize::from(run.job)]);
        Some(next_unit(self, program, run))
    }

    fn stop(&self, system: &mut System, worker: usize, stop: Stop) -> Acted {
        match stop {
            Stop::Unsafe => {}
            Stop::Corrupt => judge(self, system, Law::NeverCorrupt, false),
            Stop::Illegal => judge(self, system, Law::MovesAreLegal, false),
        }
        self.lose(system, worker)
    }

    /// The run ends as one that has lost its lease; what it knows is to be deposited.
    fn lose(&self, system: &mut System, worker: usize) -> Acted {
        let run = system.workers.get_mut(worker)?.as_mut()?;
        let owed = run.known.filter(|known| known.outcome != Outcome::Unknown);
        match owed {
            Some(known) if !self.config.has(Mutation::OutcomeDropped) => {
                run.phase = Phase::Depositing;
                run.known = Some(known);
                run.safe = false;
            }
            Some(known) => {
                let job = run.job;
                system.workers[worker] = None;
                self.judge_owed(system, job, known);
            }
            None => system.workers[worker] = None,
        }
        Some(())
    }

    fn judge_owed(&self, system: &mut System, job: u8, known: Known) {
        if known.outcome == Outcome::Done {
            let at = usize::from(known.permit.node);
            let job = &system.jobs[usize::from(job)];
            let kept = (job.view.effects[at] | job.evidence[at]) & known.permit.bit() != 0;
            judge(self, system, Law::OutcomeNotDropped, kept);
        }
    }

    fn reload(&self, system: &mut System, worker: usize) -> bool {
        let Some(run) = system.workers.get_mut(worker).and_then(Option::as_mut) else {
            return false;
        };
        let job = &system.jobs[usize::from(run.job)];
        let mine = (job.held && job.view.fold.epoch() == run.epoch) || self.config.has(Mutation::FenceNotChecked);
        if mine {
            run.view = job.view.clone();
        }
        mine
    }

    /// Sends a unit until it is written or given up: a moved log is folded and the facts laid onto it.
    fn write(&self, system: &mut System, worker: usize, mut unit: Unit) -> Acted {
        if self.config.has(Mutation::CallBeforePermission)
            && let Then::Call(permit) = unit.then
        {
            self.leave(system, unit.job, permit);
        }
        for _ in 0..8 {
            if unit.is_empty() {
                return self.written(system, worker, unit.then, None);
            }
            let refused = match store::commit(self, system, &unit) {
                Ok(()) => {
                    let fold = system.jobs[usize::from(unit.job)].view.fold.clone();
                    return self.written(system, worker, unit.then, Some(fold));
                }
                Err(refused) => refused,
            };
            match refused {
                Refused::Guard | Refused::Lease => return self.lose(system, worker),
                Refused::Illegal => return Some(()),
                Refused::Ledger => return self.drop_draft(system, worker),
                Refused::Sequence | Refused::Signal => {
                    if !self.reload(system, worker) {
                        return self.lose(system, worker);
                    }
                    let run = system.run(worker)?;
                    let program = self.program(&system.jobs[usize::from(run.job)]);
                    let (newer, whole) = rebase(self, program, run, &unit, refused == Refused::Signal);
                    if whole {
                        self.tally.see(Sight::Rebased);
                    }
                    unit = newer;
                }
            }
        }
        self.set(system, worker, Phase::Ready)
    }

    /// Someone has settled the call in the meantime: the draft is dropped, what is known is deposited, and the
    /// run looks again.
    fn drop_draft(&self, system: &mut System, worker: usize) -> Acted {
        let before = system.run(worker)?.view.clone();
        if !self.reload(system, worker) {
            return self.lose(system, worker);
        }
        let after = &system.run(worker)?.view;
        let moved = before.ledger != after.ledger || before.effects != after.effects;
        judge(self, system, Law::RefusalIsRace, moved);
        let run = system.workers[worker].as_mut()?;
        let (job, owed) = (run.job, run.known.take());
        run.phase = Phase::Ready;
        if let Some(known) = owed {
            self.deposit_known(system, job, known);
        }
        Some(())
    }

    fn written(&self, system: &mut System, worker: usize, then: Then, fold: Option<Fold>) -> Acted {
        let slot = system.workers.get_mut(worker)?;
        let run = slot.as_mut()?;
        if let Some(fold) = fold {
            run.view.fold = fold;
        }
        run.known = None;
        match then {
            Then::Go => run.phase = Phase::Ready,
            Then::Call(permit) => run.phase = Phase::Permitted(permit),
            Then::Ask(permit) => run.phase = Phase::Asking(permit),
            Then::End => *slot = None,
        }
        Some(())
    }

    fn write_unknown(&self, system: &mut System, worker: usize, fate: Fate) -> Acted {
        let unit = self.draft(system, worker)?.ok().filter(|unit| !unit.is_empty())?;
        system.unknown -= 1;
        let unit = Arc::new(unit);
        let landed = match fate {
            Fate::Executed => {
                store::commit(self, system, &unit).ok()?;
                Some(system.jobs[usize::from(unit.job)].view.fold.clone())
            }
            Fate::Lost => None,
            Fate::Late => {
                system.flights.push(Arc::clone(&unit));
                None
            }
        };
        self.set(system, worker, Phase::Settling { landed, unit })
    }

    fn settle(&self, system: &mut System, worker: usize) -> Acted {
        let run = system.run(worker)?.clone();
        let Phase::Settling { landed, unit } = run.phase.clone() else {
            return None;
        };
        self.tally.see(if landed.is_some() { Sight::UnknownWritten } else { Sight::UnknownAbsent });
        let believed = match self.config.mutation {
            Some(Mutation::UnknownIsWritten) => true,
            Some(Mutation::UnknownIsAbsent) => false,
            Some(_) | None => landed.is_some(),
        };
        judge(self, system, Law::UnknownIsSettled, believed == landed.is_some());
        match (believed, landed) {
            (true, landed) => self.written(system, worker, unit.then, landed),
            (false, _) => self.write(system, worker, Unit::clone(&unit)),
        }
    }

    fn land(&self, system: &mut System, flight: usize) -> Acted {
        let unit = system.flights.remove(flight);
        if store::commit(self, system, &unit).is_err() {
            return Some(());
        }
        let fold = system.jobs[usize::from(unit.job)].view.fold.clone();
        let author = system.workers.iter_mut().flatten().find(|run| {
            run.job == unit.job && unit.right == Right::Run(run.epoch)
        });
        match author.map(|run| &mut run.phase) {
            Some(Phase::Settling { landed, .. }) => *landed = Some(fold),
            Some(_) | None => self.tally.see(Sight::LateCommit),
        }
        Some(())
    }

    fn call(&self, system: &mut System, worker: usize) -> Acted {
        let run = system.run(worker)?;
        let Phase::Permitted(permit) = run.phase else {
            return None;
        };
        let (number, safe) = (run.job, run.safe || self.config.has(Mutation::LeaseNotChecked));
        let row = system.jobs[usize::from(number)].view.ledger[usize::from(permit.node)];
        let passed = row.is_some_and(|row| row.permit == permit && row.passed);
        let unused = if !safe {
            Outcome::Unused
        } else if passed {
            Outcome::NotSent
        } else {
            self.leave(system, number, permit);
            return self.set(system, worker, Phase::Calling(permit));
        };
        let run = system.workers[worker].as_mut()?;
        run.known = Some(Known { outcome: unused, permit });
        run.phase = Phase::Ready;
        Some(())
    }

    fn leave(&self, system: &mut System, number: u8, permit: Permit) {
        let job = &system.jobs[usize::from(number)];
        let at = usize::from(permit.node);
        let held = job.held && job.live && job.view.fold.epoch() == permit.by;
        let permitted = job.view.ledger[at].is_some_and(|r| r.permit == permit && r.status == LedgerStatus::Started);
        let open = job.view.effects[at] == 0;
        judge(self, system, Law::CallsOnlySafe, held);
        judge(self, system, Law::PermitBeforeCall, permitted);
        judge(self, system, Law::NoCallAfterOutcome, open);
        let job = system.job(number);
        job.air[at] |= permit.bit();
        job.left[at] |= permit.bit();
    }

    fn arrive(&self, system: &mut System, permit: Permit, number: u8) -> Acted {
        let at = usize::from(permit.node);
        let awaited = |run: &Run| match run.phase {
            Phase::Calling(called) => run.job == number && called.node == permit.node && called.number == permit.number,
            Phase::Ready | Phase::Permitted(_) | Phase::Asking(_) | Phase::Settling { .. } | Phase::Depositing => false,
        };
        if !system.runs().any(awaited) {
            self.tally.see(Sight::LateBody);
        }
        let first = system.jobs[usize::from(number)].bodies[at] & permit.bit() == 0;
        judge(self, system, Law::BodyOncePerPermit, first);
        let job = system.job(number);
        job.air[at] &= !permit.bit();
        job.bodies[at] |= permit.bit();
        Some(())
    }

    fn returned(&self, system: &mut System, worker: usize, outcome: Outcome) -> Acted {
        let run = system.workers.get_mut(worker)?.as_mut()?;
        let Phase::Calling(permit) = run.phase else {
            return None;
        };
        run.known = Some(Known { outcome, permit });
        run.phase = Phase::Ready;
        let number = run.job;
        let job = &system.jobs[usize::from(number)];
        let at = usize::from(permit.node);
        if outcome == Outcome::Unknown && (job.air[at] | job.bodies[at]) & permit.bit() != 0 {
            system.lost -= 1;
        }
        if outcome == Outcome::Refused {
            system.job(number).air[usize::from(permit.node)] &= !permit.bit();
        }
        Some(())
    }

    fn answer(&self, system: &mut System, worker: usize, answer: Answered) -> Acted {
        let run = system.run(worker)?.clone();
        let Phase::Asking(permit) = run.phase else {
            return None;
        };
        let job = &system.jobs[usize::from(run.job)];
        let row = job.view.ledger[usize::from(permit.node)];
        let arrivable = row.is_some_and(|row| row.permit == permit && !row.passed);
        match after_asking(self, self.program(job), &run, permit, answer, arrivable) {
            Ok(unit) => {
                let sight = match answer {
                    Answered::Happened => Some(Sight::DoubtHappened),
                    Answered::DidNotHappen if !arrivable => Some(Sight::DoubtDisproved),
                    Answered::DidNotHappen | Answered::Unresolved => None,
                };
                if let Some(sight) = sight {
                    self.tally.see(sight);
                }
                self.write(system, worker, unit)
            }
            Err(stop) => self.stop(system, worker, stop),
        }
    }

    fn deposit(&self, system: &mut System, worker: usize) -> Acted {
        let run = system.workers.get_mut(worker)?.take()?;
        if let Some(known) = run.known {
            self.deposit_known(system, run.job, known);
        }
        Some(())
    }

    fn deposit_known(&self, system: &mut System, number: u8, known: Known) {
        if let Some(unit) = outside::deposit(self, &system.jobs[usize::from(number)], number, known)
            && store::commit(self, system, &unit).is_ok()
        {
            self.judge_owed(system, number, known);
        }
    }

    fn outside(&self, system: &mut System, number: u8, op: Op) -> Acted {
        match outside::look(self, system, number, op) {
            Look::Nothing => None,
            Look::Answered => Some(()),
            Look::Write(unit) => {
                let idle = !system.jobs[usize::from(number)].held;
                match store::commit(self, system, &unit) {
                    Ok(()) => self.operated(system, op, &unit, idle),
                    Err(_) => (system.broken != 0).then_some(()),
                }
            }
        }
    }

    fn operated(&self, system: &mut System, op: Op, unit: &Unit, idle: bool) -> Acted {
        for entry in &unit.entries {
            if let Some(Inbox::Receive { signal, .. }) = entry.inbox {
                system.job(unit.job).acknowledged |= 1 << signal;
            }
        }
        outside::wrote(self, system, unit.job, op, idle);
        Some(())
    }

    /// What has looked writes. If the job has moved on, a client's request looks again; anyone else comes back.
    fn land_pending(&self, system: &mut System) -> Acted {
        let (op, unit) = system.pending.take()?;
        let idle = !system.jobs[usize::from(unit.job)].held;
        match store::commit(self, system, &unit) {
            Ok(()) => self.operated(system, op, &unit, idle),
            Err(_) if op == Op::Signal => {
                system.job(unit.job).sent -= 1;
                self.outside(system, unit.job, op).or(Some(()))
            }
            Err(_) => Some(()),
        }
    }
}
