//! Claims and renewals: who has a job, and for how long.

use aetheris_core::job::JobStatus;
use aetheris_core::projection::Projection;
use aetheris_store::rules;

use crate::bugs::Mutation;
use crate::fact::{Fact, MOMENT, NOW};
use crate::laws::{Law, Sight, judge};
use crate::state::{Fold, Job, replay};
use crate::system::{Search, System};

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
