//! Who may act in a state.

use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::plan::EffectClass;

use crate::bugs::Mutation;
use crate::claims;
use crate::config::{Doubts, Step};
use crate::fact::{Answered, Outcome};
use crate::outside::{self, Op};
use crate::signal;
use crate::state::{Job, Phase, Right, Run, Unit};
use crate::system::{Action, Fate, Search, System, doomed};

impl Search {
    /// What a run may do.
    pub(crate) fn run_actions(&self, system: &System, worker: usize, run: &Run, actions: &mut Vec<Action>) {
        let job = &system.jobs[usize::from(run.job)];
        match &run.phase {
            Phase::Ready => {
                actions.push(Action::Write(worker));
                if system.unknown > 0 && !doomed(job, run) {
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
                let own = |unit: &std::sync::Arc<Unit>| unit.job == run.job && unit.right == Right::Run(run.epoch);
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

    /// What may happen to a job from outside, but for [`Search::ends`].
    pub(crate) fn job_actions(&self, system: &System, number: u8, job: &Job, actions: &mut Vec<Action>) {
        let status = job.status();
        let idle = || system.workers.iter().any(Option::is_none);
        if status == JobStatus::Pending && idle() && claims::is_claimable(self, system, number) {
            actions.push(Action::Claim(number));
        }
        if job.later && !job.moment && !status.is_terminal() {
            actions.push(Action::Moment(number));
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
        if job.sent < self.config.signals {
            let to = |node| self.config.words.iter().map(move |word| Op::Signal { node, word: *word });
            operations.extend(signal::waits(self.program(job)).flat_map(to));
        }
        let free = job.view.fold.state().end_requested.is_none();
        if job.pauses < self.config.pauses && free && !status.is_terminal() && status != JobStatus::Paused {
            operations.push(Op::Pause);
        }
        if status == JobStatus::Paused {
            operations.push(Op::Resume);
        }
        for (node, step) in (0u8..).zip(&self.program(job).steps) {
            self.step_actions(system.lost > 0, job, (number, node), *step, (actions, &mut operations));
        }
        self.operations(system, number, operations, actions);
    }

    /// What ends a job whatever it does. It is no way out for one that is stuck, and is not to hide it: these happen
    /// only where something else can.
    pub(crate) fn ends(&self, system: &System, number: u8, job: &Job, actions: &mut Vec<Action>) {
        let mut operations = Vec::new();
        if self.config.cancels && !job.cancelled && !job.status().is_terminal() {
            operations.push(Op::Cancel);
        }
        if outside::has_deadline(job) {
            operations.push(Op::Deadline);
        }
        self.operations(system, number, operations, actions);
    }

    fn operations(&self, system: &System, number: u8, operations: Vec<Op>, actions: &mut Vec<Action>) {
        let job = &system.jobs[usize::from(number)];
        for op in operations {
            actions.push(Action::Outside(number, op));
            // An operator who says that it did not happen has looked when it could not happen any more.
            let early = match op {
                Op::Resolve { happened: false, node } => {
                    job.view.ledger[usize::from(node)].is_some_and(|row| !row.passed)
                }
                Op::Resolve { .. }
                | Op::Cancel
                | Op::Deadline
                | Op::Fire { .. }
                | Op::Pause
                | Op::Reclaim
                | Op::ReclaimDead
                | Op::Resume
                | Op::Signal { .. } => false,
            };
            if self.config.slow_outside && system.pending.is_none() && !early {
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
            let timer = crate::fact::timer(doubt, program.paths[at].clone());
            if job.view.fold.state().timers.contains_key(&timer) {
                let due = job.due[at] & (1 << u8::from(doubt)) != 0;
                // The timer of a question that came too early is set for the permit's deadline.
                let asked = doubt && self.asks(job, node);
                let passed = job.view.ledger[at].is_some_and(|row| row.passed);
                if !due && (passed || !asked) {
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

    /// Whether the step's doubt stands at a tool that is to be asked.
    fn asks(&self, job: &Job, node: u8) -> bool {
        let program = self.program(job);
        let place = job.view.fold.step(program, node).and_then(|step| step.doubt.as_deref()).map(|doubt| doubt.policy);
        let place = place.and_then(|place| usize::try_from(place).ok());
        match program.steps[usize::from(node)] {
            Step::Once(list) => place.and_then(|place| list.get(place)) == Some(&Doubts::Reconcile),
            Step::Idempotent | Step::Wait { .. } => false,
        }
    }
}
