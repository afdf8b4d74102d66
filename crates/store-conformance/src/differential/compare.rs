//! Equal answers, equal rows.

use aetheris_core::lease::GuardRefusal;
use aetheris_core::ledger::LedgerRefusal;

use super::actions::Operation;
use super::world::{World, instances};
use crate::snapshot;
use aetheris_store::{CommitError, Committed, Refusal, Renewal, Scope};

/// The name of a way not to be accepted.
pub(super) fn kind(error: &CommitError) -> &'static str {
    let refusal = match error {
        CommitError::Refused(refusal) => refusal,
        CommitError::Failed(error) => return error.kind.as_str(),
        CommitError::Unknown(_) => return "unknown",
    };
    match refusal {
        Refusal::Guard(GuardRefusal::Stale { .. }) => "stale",
        Refusal::Guard(GuardRefusal::StillLive(_)) => "still_live",
        Refusal::Guard(GuardRefusal::OtherInstance(_)) => "other_instance",
        Refusal::Guard(GuardRefusal::NotDue(_)) => "not_due",
        Refusal::LeaseExpired => "lease_expired",
        Refusal::Sequence { .. } => "sequence",
        Refusal::Ledger(LedgerRefusal::Missing(_)) => "missing",
        Refusal::Ledger(LedgerRefusal::OtherPermit { .. }) => "other_permit",
        Refusal::Ledger(LedgerRefusal::ArgumentsDiffer(_)) => "arguments_differ",
        Refusal::Ledger(LedgerRefusal::Succeeded(_)) => "succeeded",
        Refusal::Ledger(LedgerRefusal::Illegal { .. }) => "illegal",
        Refusal::Ledger(LedgerRefusal::CanStillArrive { .. }) => "can_still_arrive",
        Refusal::SignalKept(_) => "signal_kept",
        Refusal::Duplicate(_) => "duplicate",
        Refusal::KeyConflict(_) => "key_conflict",
        Refusal::Delivered(_) => "delivered",
        Refusal::ParentEnded(_) => "parent_ended",
        Refusal::UnknownJob => "unknown_job",
        Refusal::UnknownPlan => "unknown_plan",
        Refusal::Bound { .. } => "bound",
    }
}

/// Which of [`super::ANSWERS`] it is.
pub(super) fn answer_kind(answer: &Result<Committed, CommitError>) -> &'static str {
    match answer.as_ref().map_err(kind) {
        Ok(_) => "ok",
        Err("stale" | "still_live" | "other_instance" | "lease_expired") => "stale",
        Err("unknown_job" | "unknown_plan" | "missing") => "not_found",
        Err("bound") => "limit",
        Err("invalid") => "invalid",
        Err(_) => "conflict",
    }
}

/// An answer to a unit as far as it is to be equal: failures have texts of their own.
pub(super) fn answer(answer: &Result<Committed, CommitError>) -> Result<Committed, String> {
    match answer {
        Ok(committed) => Ok(*committed),
        Err(CommitError::Refused(refusal)) => Err(format!("{refusal:?}")),
        Err(error) => Err(kind(error).to_owned()),
    }
}

/// An answer to a renewal as far as it is to be equal.
pub(super) fn renewal(renewal: &Renewal) -> (aetheris_core::id::JobId, Option<bool>) {
    match renewal {
        Renewal::Renewed { end_requested, job, .. } => (*job, Some(*end_requested)),
        Renewal::Refused(job) => (*job, None),
    }
}

/// Panics where the two differ, with all that is needed to see it again.
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(
    world: &World<'_>,
    operation: &Operation,
    what: &str,
    a: &T,
    b: &T,
) {
    if a == b {
        return;
    }
    let (seed, step) = (world.seed, world.report.steps);
    let mut operation = format!("{operation:#?}");
    if operation.len() > 8_000 {
        operation.truncate(operation.floor_char_boundary(8_000));
    }
    panic!("seed {seed}, operation {step}: {what} differ\n--- {operation}\n--- first: {a:#?}\n--- second: {b:#?}");
}

/// Compares what can be read.
pub(super) async fn rows(world: &World<'_>, operation: &Operation, everything: bool) {
    let first = snapshot::overview(world.a, &instances()).await;
    let second = snapshot::overview(world.b, &instances()).await;
    equal(world, operation, "the lists", &first, &second);
    jobs(world, operation, everything).await;
}

/// Compares the rows and timers of the jobs that an operation names.
pub(super) async fn heads(world: &World<'_>, operation: &Operation) {
    for job in &operation.jobs {
        let (first, second) =
            (world.a.job(Scope::System, *job).await.unwrap(), world.b.job(Scope::System, *job).await.unwrap());
        equal(world, operation, "the row of a job", &first, &second);
        let (first, second) =
            (world.a.timers(Scope::System, *job).await.unwrap(), world.b.timers(Scope::System, *job).await.unwrap());
        equal(world, operation, "the timers of a job", &first, &second);
    }
}

/// Compares the rows of jobs: those that the operation names, or all.
async fn jobs(world: &World<'_>, operation: &Operation, everything: bool) {
    let jobs = if everything { &world.jobs } else { &operation.jobs };
    for job in jobs {
        let first = snapshot::of_job(world.a, *job).await;
        let second = snapshot::of_job(world.b, *job).await;
        equal(world, operation, "the rows of a job", &first, &second);
    }
}
