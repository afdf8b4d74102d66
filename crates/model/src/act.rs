//! What comes of a step.

use std::sync::Arc;

use crate::bugs::Mutation;
use crate::claims;
use crate::fact::{Answered, Known, Outcome, Permit};
use crate::laws::{Law, Sight, judge};
use crate::outside::{self, Look, Op};
use crate::run::{Stop, after_asking, failed, next_unit, rebase};
use crate::state::{Entry, Fold, Inbox, Phase, Right, Run, Then, Unit, View};
use crate::store::{self, Refused};
use crate::system::{Action, Fate, Search, System, doomed};

/// `None`: an actor had nothing to do.
pub(crate) type Acted = Option<()>;

impl Search {
    /// Does one step; `None` where it changes nothing.
    pub(crate) fn act(&self, system: &mut System, action: Action) -> Acted {
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
            Action::Moment(job) => {
                self.tally.see(Sight::MomentCame);
                system.job(job).moment = true;
                Some(())
            }
            Action::Outside(job, op) => self.outside(system, job, op),
            Action::Pass { job, node } => Self::pass(system, job, node),
            Action::Pend(job, op) => match outside::look(self, system, job, op) {
                Look::Nothing | Look::Answered => None,
                Look::Write(unit) => {
                    system.pending = Some((op, Arc::new(*unit)));
                    Some(())
                }
            },
            Action::Renew(worker) => self.renew(system, worker),
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

    fn pass(system: &mut System, job: u8, node: u8) -> Acted {
        let job = system.job(job);
        let row = job.view.ledger[usize::from(node)].as_mut()?;
        row.passed = true;
        let flying = job.air[usize::from(node)] != 0;
        job.air[usize::from(node)] = 0;
        system.lost -= u8::from(flying);
        Some(())
    }

    fn renew(&self, system: &mut System, worker: usize) -> Acted {
        let (job, epoch) = system.run(worker).map(|run| (run.job, run.epoch))?;
        if !claims::renew(self, system, job, epoch) {
            return None;
        }
        system.workers[worker].as_mut()?.safe = true;
        Some(())
    }

    pub(crate) fn set(&self, system: &mut System, worker: usize, phase: Phase) -> Acted {
        system.workers.get_mut(worker)?.as_mut()?.phase = phase;
        Some(())
    }

    fn claim(&self, system: &mut System, number: u8) -> Acted {
        let slot = system.workers.iter().position(Option::is_none)?;
        let epoch = claims::claim(self, system, number);
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
        let job = &system.jobs[usize::from(run.job)];
        if self.fenced() && doomed(job, run) {
            // Whatever it is: the store refuses it.
            let mut unit = Unit::new(run.job, Right::Run(run.epoch), None);
            unit.entries.push(Entry::default());
            return Some(Ok(unit));
        }
        Some(next_unit(self, self.program(job), run))
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
        // What it had seen when it drafted the unit.
        let mut seen = None;
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
                Refused::Ledger => {
                    let before = seen.or_else(|| Some(system.run(worker)?.view.clone()))?;
                    return self.drop_draft(system, worker, &before);
                }
                Refused::Succeeded => return self.fail_refused(system, worker),
                Refused::Sequence | Refused::Signal => {
                    seen = seen.or_else(|| Some(system.run(worker)?.view.clone()));
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
    fn drop_draft(&self, system: &mut System, worker: usize, before: &View) -> Acted {
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

    /// Another call of the key has succeeded, and the job did not go on with it: nothing is called again, and the job
    /// fails.
    fn fail_refused(&self, system: &mut System, worker: usize) -> Acted {
        let run = system.workers[worker].as_mut()?;
        let (number, owed) = (run.job, run.known.take());
        if let Some(known) = owed {
            self.deposit_known(system, number, known);
        }
        if !self.reload(system, worker) {
            return self.lose(system, worker);
        }
        self.tally.see(Sight::SuccessBefore);
        let run = system.run(worker)?;
        let program = self.program(&system.jobs[usize::from(number)]);
        let unit = failed(self, program, run).ok()?;
        self.write(system, worker, unit)
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
            // Nothing is asked for a job that is to end.
            Then::Ask(_) if run.view.fold.state().end_requested.is_some() => run.phase = Phase::Ready,
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
        let author =
            system.workers.iter_mut().flatten().find(|run| run.job == unit.job && unit.right == Right::Run(run.epoch));
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

    fn answer(&self, system: &mut System, worker: usize, answer: Answered) -> Acted {
        let run = system.run(worker)?;
        let Phase::Asking(permit) = run.phase else {
            return None;
        };
        if self.fenced() && doomed(&system.jobs[usize::from(run.job)], run) {
            return self.lose(system, worker);
        }
        // A tool that only looks has not found the call: what is stored of it is read again.
        if answer == Answered::DidNotHappen && !self.reload(system, worker) {
            return self.lose(system, worker);
        }
        let run = system.run(worker)?.clone();
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
                system.job(unit.job).acknowledged.push(signal);
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
            Err(_) if matches!(op, Op::Signal { .. }) => {
                system.job(unit.job).sent -= 1;
                self.outside(system, unit.job, op).or(Some(()))
            }
            Err(_) => Some(()),
        }
    }
}
