//! What a run of crashes has shown.

use std::fmt;

use aetheris_core::job::JobStatus;

use crate::gate::Fate;
use crate::script::Outcome;

/// How the jobs of some runs came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// They completed, with the answer of the run without a crash.
    pub completed: usize,
    /// They ended as the run without a crash did, which was not completed.
    pub failed: usize,
    /// The outcome of a call stayed unknown, and nothing was sent again.
    pub in_doubt: usize,
}

impl Tally {
    /// All of them.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.completed + self.failed + self.in_doubt
    }

    pub(crate) fn of(outcome: &Outcome) -> Self {
        let mut tally = Self::default();
        let count = match outcome.status {
            _ if outcome.in_doubt => &mut tally.in_doubt,
            JobStatus::Completed => &mut tally.completed,
            JobStatus::Failed
            | JobStatus::Cancelled
            | JobStatus::Pending
            | JobStatus::Running
            | JobStatus::Waiting
            | JobStatus::Parked
            | JobStatus::Paused => &mut tally.failed,
        };
        *count += 1;
        tally
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.in_doubt += other.in_doubt;
    }
}

/// What a run of crashes has shown: every promise held in every run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashReport {
    /// How many cases of invariants were examined, over all runs.
    pub cases: u64,
    /// How many crossings the run without a crash had.
    pub crossings: usize,
    /// What became of the process at each crossing.
    pub fate: Fate,
    /// How many crossings were left out because an equal one stands next to them: an idle process that asks
    /// again and again.
    pub left_out: usize,
    /// By the kind of crossing, in the order in which they first came.
    pub rows: Vec<(String, Tally)>,
}

impl CrashReport {
    /// All runs together.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.rows.iter().for_each(|(_, tally)| total.add(*tally));
        total
    }

    pub(crate) fn add(&mut self, what: String, tally: Tally) {
        match self.rows.iter_mut().find(|(name, _)| *name == what) {
            Some((_, row)) => row.add(tally),
            None => self.rows.push((what, tally)),
        }
    }
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = match self.fate {
            Fate::Die | Fate::Pass => "the process dies",
            Fate::Stop => "the process stands still",
        };
        let names = self.rows.iter().map(|(name, _)| name.chars().count());
        let width = names.chain([head.len()]).max().unwrap_or(0);
        let row = |f: &mut fmt::Formatter<'_>, name: &str, tally: &Tally| {
            let Tally { completed, failed, in_doubt } = tally;
            writeln!(f, "{name:<width$}  {:>5}  {completed:>9}  {in_doubt:>8}  {failed:>6}", tally.runs())
        };
        writeln!(f, "{head:<width$}  {:>5}  {:>9}  {:>8}  {:>6}", "runs", "completed", "in doubt", "failed")?;
        for (name, tally) in &self.rows {
            row(f, name, tally)?;
        }
        row(f, "together", &self.total())?;
        write!(f, "{} crossings, {} repeats of an idle process left out; ", self.crossings, self.left_out)?;
        writeln!(f, "{} cases of invariants examined, none violated", self.cases)
    }
}
