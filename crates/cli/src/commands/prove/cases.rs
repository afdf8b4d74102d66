//! What an experiment has looked at.

use std::collections::BTreeMap;

use crate::commands::guarantee::Guarantee;

/// Failures of one guarantee that are kept in words.
const TOLD_MAX: usize = 5;

/// Cases of one guarantee.
#[derive(Debug, Clone, Default)]
pub(super) struct Count {
    /// How many were looked at.
    pub(super) examined: u64,
    /// How many do not hold.
    pub(super) failed: u64,
    /// The first of them.
    pub(super) failures: Vec<String>,
}

impl Count {
    fn fail(&mut self, what: String) {
        self.failed += 1;
        if self.failures.len() < TOLD_MAX {
            self.failures.push(what);
        }
    }

    /// Adds what another experiment has found.
    pub(super) fn add(&mut self, other: &Self) {
        self.examined += other.examined;
        self.failed += other.failed;
        let room = TOLD_MAX.saturating_sub(self.failures.len());
        self.failures.extend(other.failures.iter().take(room).cloned());
    }
}

/// Cases by guarantee.
#[derive(Debug, Clone, Default)]
pub(super) struct Cases {
    by: BTreeMap<Guarantee, Count>,
    /// What is worth knowing and proves nothing.
    pub(super) notes: Vec<String>,
}

impl Cases {
    /// Counts a case; `what` says what is wrong where it does not hold.
    pub(super) fn case(&mut self, guarantee: Guarantee, holds: bool, what: impl FnOnce() -> String) {
        let count = self.by.entry(guarantee).or_default();
        count.examined += 1;
        if !holds {
            count.fail(what());
        }
    }

    /// Something contradicts a guarantee that is not a case of this experiment's own.
    pub(super) fn contradicted(&mut self, guarantee: Guarantee, what: String) {
        self.by.entry(guarantee).or_default().fail(what);
    }

    /// What was found about a guarantee.
    pub(super) fn of(&self, guarantee: Guarantee) -> Count {
        self.by.get(&guarantee).cloned().unwrap_or_default()
    }

    /// How many cases were looked at.
    pub(super) fn examined(&self) -> u64 {
        self.by.values().map(|count| count.examined).sum()
    }

    /// How many of them do not hold.
    pub(super) fn failed(&self) -> u64 {
        self.by.values().map(|count| count.failed).sum()
    }
}
