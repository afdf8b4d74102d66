//! What was examined, and what was found.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::invariant::Invariant;

/// How many violations of one invariant are kept in words.
pub const VIOLATIONS_TOLD_MAX: usize = 10;

/// One invariant's part of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The invariant.
    pub id: Invariant,
    /// What holds.
    pub what: &'static str,
    /// How many cases were looked at.
    pub examined: u64,
    /// Whether the caller has said that it does not apply to this run.
    pub excused: bool,
    /// How many cases contradict it.
    pub violated: u64,
    /// The first of them.
    pub violations: Vec<String>,
}

impl Line {
    /// What was found, in words.
    #[must_use]
    pub fn verdict(&self) -> String {
        match (self.violated, self.examined, self.excused) {
            (0, 0, true) => "no cases here".to_owned(),
            (0, 0, false) => "NOT EXAMINED".to_owned(),
            (0, _, _) => "holds".to_owned(),
            (1, _, _) => "VIOLATED once".to_owned(),
            (n, _, _) => format!("VIOLATED {n} times"),
        }
    }

    /// Violations that are counted and not told.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.violated.saturating_sub(u64::try_from(self.violations.len()).unwrap_or(u64::MAX))
    }

    /// Whether this line proves its invariant for the run, or need not.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        self.violated == 0 && (self.examined > 0 || self.excused)
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How many events were looked at.
    pub events: u64,
    /// How many jobs.
    pub jobs: u64,
    /// One line per invariant.
    pub lines: Vec<Line>,
}

impl Report {
    /// Says that some invariants do not apply: they may have no cases.
    #[must_use]
    pub fn excuse(mut self, ids: &[Invariant]) -> Self {
        for line in &mut self.lines {
            line.excused |= ids.contains(&line.id);
        }
        self
    }

    /// Whether nothing contradicts an invariant; some may have had no case.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.lines.iter().all(|line| line.violated == 0)
    }

    /// Whether every invariant held and had cases, or was excused from having some.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        self.lines.iter().all(Line::is_proof)
    }

    /// The line of an invariant.
    #[must_use]
    pub fn line(&self, id: Invariant) -> Option<&Line> {
        self.lines.iter().find(|line| line.id == id)
    }

    /// The invariants that something contradicts.
    #[must_use]
    pub fn violated(&self) -> Vec<Invariant> {
        self.lines.iter().filter(|line| line.violated > 0).map(|line| line.id).collect()
    }

    /// The invariants that had no case and were not excused.
    #[must_use]
    pub fn unexamined(&self) -> Vec<Invariant> {
        self.lines.iter().filter(|line| line.examined == 0 && !line.excused).map(|line| line.id).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.lines.iter().map(|line| line.what.len()).max().unwrap_or(0);
        let digits = self.lines.iter().map(|line| line.examined.to_string().len()).max().unwrap_or(0).max(5);
        writeln!(f, "{:<4}{:<width$}  {:>digits$}  verdict", "", "invariant", "cases")?;
        for line in &self.lines {
            let verdict = line.verdict();
            writeln!(f, "{:<4}{:<width$}  {:>digits$}  {verdict}", line.id.id(), line.what, line.examined)?;
        }
        for line in self.lines.iter().filter(|line| line.violated > 0) {
            writeln!(f)?;
            writeln!(f, "{} {}", line.id, line.what)?;
            for violation in &line.violations {
                writeln!(f, "  - {violation}")?;
            }
            let untold = line.untold();
            if untold > 0 {
                writeln!(f, "  - and {untold} more")?;
            }
        }
        Ok(())
    }
}

/// Cases and violations while they are being counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    found: BTreeMap<Invariant, Found>,
}

#[derive(Debug, Default)]
struct Found {
    examined: u64,
    violated: u64,
    violations: Vec<String>,
}

impl Tally {
    /// Counts one case; `text` says what is wrong where it does not hold.
    pub(crate) fn case(&mut self, id: Invariant, holds: bool, text: impl FnOnce() -> String) {
        let found = self.found.entry(id).or_default();
        found.examined += 1;
        if holds {
            return;
        }
        found.violated += 1;
        if found.violations.len() < VIOLATIONS_TOLD_MAX {
            found.violations.push(text());
        }
    }

    /// Adds what another has counted.
    pub(crate) fn add(&mut self, other: Self) {
        for (id, more) in other.found {
            let found = self.found.entry(id).or_default();
            found.examined += more.examined;
            found.violated += more.violated;
            let room = VIOLATIONS_TOLD_MAX.saturating_sub(found.violations.len());
            found.violations.extend(more.violations.into_iter().take(room));
        }
    }

    pub(crate) fn into_report(mut self, jobs: u64, events: u64) -> Report {
        let line = |id: &Invariant| {
            let found = self.found.remove(id).unwrap_or_default();
            Line {
                id: *id,
                what: id.what(),
                examined: found.examined,
                excused: false,
                violated: found.violated,
                violations: found.violations,
            }
        };
        Report { events, jobs, lines: Invariant::ALL.iter().map(line).collect() }
    }
}
