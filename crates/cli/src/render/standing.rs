//! How a step is in a job that goes on, stands still or has ended, and how long it took.

use aetheris_core::event::DoubtOutcome;
use aetheris_core::job::JobStatus;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;

use super::{Now, elapsed};

/// How a step is, as its job is.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// The status whose sign it has.
    pub(super) sign: StepStatus,
    /// Whether its time goes on, if it has not ended.
    pub(super) ticks: bool,
    /// In words.
    pub(super) words: String,
}

/// How a step is, in a job that is so: in one that stands still or has ended nothing runs. `left` is what is known of a
/// call that the job's end left in doubt, and `answered` whether its wait or doubt has ended.
pub(super) fn standing(step: StepStatus, job: JobStatus, left: Option<DoubtOutcome>, answered: bool) -> Standing {
    let (sign, words) = match left {
        Some(outcome @ DoubtOutcome::Happened) => (StepStatus::Completed, known_late(outcome)),
        Some(outcome @ DoubtOutcome::DidNotHappen) => (StepStatus::Skipped, known_late(outcome)),
        Some(outcome @ DoubtOutcome::Unresolved) if step == StepStatus::Failed => {
            (step, format!("failed, {}", became(outcome)))
        }
        Some(outcome @ DoubtOutcome::Unresolved) => (StepStatus::InDoubt, became(outcome).to_owned()),
        None => known(step, job, answered),
    };
    let held = job == JobStatus::Paused && sign == StepStatus::Pending;
    Standing { sign, ticks: !held && !job.is_terminal(), words }
}

/// What became of a call that its job's end left in doubt: true whoever said so, a person or the call's own late answer.
pub(super) const fn became(outcome: DoubtOutcome) -> &'static str {
    match outcome {
        DoubtOutcome::Happened => "happened",
        DoubtOutcome::DidNotHappen => "did not happen",
        DoubtOutcome::Unresolved => "still in doubt",
    }
}

fn known_late(outcome: DoubtOutcome) -> String {
    format!("{}, known after the end", became(outcome))
}

fn known(step: StepStatus, job: JobStatus, answered: bool) -> (StepStatus, String) {
    match step {
        StepStatus::Running | StepStatus::Retrying | StepStatus::Validating | StepStatus::Refining
            if job == JobStatus::Paused =>
        {
            (StepStatus::Pending, "paused".to_owned())
        }
        StepStatus::Pending if job.is_terminal() => (StepStatus::Skipped, "not run".to_owned()),
        StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::Validating
        | StepStatus::Refining
            if job.is_terminal() =>
        {
            let words = if answered {
                "the job ended first".to_owned()
            } else {
                format!("{} when the job ended", step.as_str())
            };
            (StepStatus::Skipped, words)
        }
        StepStatus::Pending
        | StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt
        | StepStatus::Validating
        | StepStatus::Refining
        | StepStatus::Completed
        | StepStatus::Failed
        | StepStatus::Skipped
        | StepStatus::Rejected => (step, step.as_str().replace('_', " ")),
    }
}

/// How long something took, or has taken where its time goes on.
pub(super) fn took(began: Option<Timestamp>, ended: Option<Timestamp>, ticks: bool, now: Now) -> String {
    if ticks || ended.is_some() { elapsed(began, ended, now) } else { String::new() }
}
