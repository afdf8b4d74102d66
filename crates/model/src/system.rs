//! The whole as a Stateright model: who may act in a state, and what comes of it.

use std::sync::Arc;

use stateright::{Model, Property};

use crate::bugs::Mutation;
use crate::config::{Config, Program, STEPS_MAX};
use crate::fact::{Answered, Outcome, Sent};
use crate::laws::{self, Tally, judge_state};
use crate::outside::Op;
use crate::state::{Fold, Job, Phase, Run, Unit, View};

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
    /// The moment comes that a job was sent for.
    Moment(u8),
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
    fn rests(&self) -> bool {
        let still = |job: &Job| job.air.iter().all(|air| *air == 0);
        self.runs().next().is_none() && self.flights.is_empty() && self.pending.is_none() && self.jobs.iter().all(still)
    }

    /// Whether everything is at rest with every job as it should be. A path that a broken law cuts short is not
    /// judged by what would have come about.
    #[must_use]
    pub fn ends_with(&self, good: impl Fn(&Job) -> bool) -> bool {
        self.broken != 0 || (self.rests() && self.jobs.iter().all(good))
    }

    pub(crate) fn job(&mut self, job: u8) -> &mut Job {
        &mut self.jobs[usize::from(job)]
    }

    pub(crate) fn run(&self, worker: usize) -> Option<&Run> {
        self.workers.get(worker).and_then(Option::as_ref)
    }

    /// Brings states that differ only in what no longer matters to one form.
    fn normalise(&mut self, fenced: bool) {
        let jobs = &self.jobs;
        for run in self.workers.iter_mut().flatten() {
            let job = &jobs[usize::from(run.job)];
            let view = &job.view;
            if run.phase == Phase::Depositing || (fenced && doomed(job, run)) {
                run.view = view.clone();
            }
            run.fresh = run.view.fold.seq() == view.fold.seq();
        }
        let fresh = |unit: &Unit| unit.seen.is_none_or(|seen| seen.0 == jobs[usize::from(unit.job)].view.fold.seq());
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
        let moments = if self.config.later { &[false, true][..] } else { &[false] };
        let programs = 0..self.config.programs.len();
        let kinds: Vec<_> = programs.flat_map(|program| moments.iter().map(move |later| (program, *later))).collect();
        let mut combinations: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..self.config.jobs {
            let longer = |list: &Vec<usize>| {
                // Only in a session does it matter which comes first.
                let from = list.last().copied().filter(|_| !self.config.session).unwrap_or(0);
                (from..kinds.len()).map(|next| list.iter().copied().chain([next]).collect()).collect::<Vec<_>>()
            };
            combinations = combinations.iter().flat_map(longer).collect();
        }
        let of_kind = |list: &Vec<usize>| list.iter().map(|kind| kinds[*kind]).collect::<Vec<_>>();
        combinations.iter().filter_map(|list| self.begin(&of_kind(list))).collect()
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
        if !actions.is_empty() {
            for (number, job) in (0u8..).zip(&system.jobs) {
                self.ends(system, number, job, actions);
            }
        }
    }

    fn next_state(&self, before: &System, action: Action) -> Option<System> {
        let mut system = before.clone();
        self.act(&mut system, action)?;
        system.normalise(self.fenced());
        judge_state(self, &mut system);
        Some(system)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        laws::properties()
    }
}

/// Whether the job is not the run's any more: whatever it writes is refused, and what it has seen is of no use.
pub(crate) fn doomed(job: &Job, run: &Run) -> bool {
    !job.held || job.view.fold.epoch() != run.epoch
}

impl Search {
    pub(crate) fn fenced(&self) -> bool {
        !self.config.has(Mutation::FenceNotChecked)
    }

    fn begin(&self, jobs: &[(usize, bool)]) -> Option<System> {
        let begun = |(number, (program, later)): (u8, &(usize, bool))| {
            let sent = Sent { deadline: self.config.deadlines, later: *later, session: self.config.session };
            let fold = Fold::begin(number, self.config.programs.get(*program)?, sent).ok()?;
            Some(Job {
                acknowledged: Vec::new(),
                air: [0; STEPS_MAX],
                bodies: [0; STEPS_MAX],
                cancelled: false,
                pauses: 0,
                delivered: Vec::new(),
                due: [0; STEPS_MAX],
                expired: false,
                contradicted: [false; STEPS_MAX],
                evidence: [0; STEPS_MAX],
                left: [0; STEPS_MAX],
                later: *later,
                live: false,
                moment: false,
                held: false,
                program: u8::try_from(*program).ok()?,
                refused: Vec::new(),
                sent: 0,
                view: View { effects: [0; STEPS_MAX], fold, kept: Vec::new(), ledger: [None; STEPS_MAX] },
            })
        };
        Some(System {
            broken: 0,
            crashes: self.config.crashes,
            flights: Vec::new(),
            jobs: (0u8..).zip(jobs).map(begun).collect::<Option<_>>()?,
            pending: None,
            lost: self.config.lost,
            slow: self.config.slow,
            unknown: self.config.unknown,
            workers: vec![None; usize::from(self.config.workers)],
        })
    }
}
