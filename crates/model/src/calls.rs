//! A call in the world: it leaves, it arrives, it comes back.

use aetheris_core::ledger::LedgerStatus;

use crate::act::Acted;
use crate::bugs::Mutation;
use crate::fact::{Known, Outcome, Permit};
use crate::laws::{Law, Sight, judge};
use crate::state::{Phase, Run};
use crate::system::{Search, System};

impl Search {
    pub(crate) fn leave(&self, system: &mut System, number: u8, permit: Permit) {
        let job = &system.jobs[usize::from(number)];
        let at = usize::from(permit.node);
        let held = job.held && job.live && job.view.fold.epoch() == permit.by;
        let permitted = job.view.ledger[at].is_some_and(|r| r.permit == permit && r.status == LedgerStatus::Started);
        let open = job.view.effects[at] == 0;
        let first = job.left[at] & permit.bit() == 0;
        judge(self, system, Law::CallOncePerPermit, first);
        judge(self, system, Law::CallsOnlySafe, held);
        judge(self, system, Law::PermitBeforeCall, permitted);
        judge(self, system, Law::NoCallAfterOutcome, open);
        let job = system.job(number);
        job.air[at] |= permit.bit();
        job.left[at] |= permit.bit();
        let left: u32 = job.left.iter().map(|permits| permits.count_ones()).sum();
        if let Some(most) = self.config.budget {
            judge(self, system, Law::BudgetHolds, left <= most);
        }
    }

    pub(crate) fn arrive(&self, system: &mut System, permit: Permit, number: u8) -> Acted {
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

    pub(crate) fn returned(&self, system: &mut System, worker: usize, outcome: Outcome) -> Acted {
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
            if self.config.has(Mutation::ResentAfterRefusal) {
                self.leave(system, number, permit);
                return self.set(system, worker, Phase::Calling(permit));
            }
        }
        Some(())
    }
}
