//! The log of what was done to a run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::time::Timestamp;
use aetheris_store::system::Clock;
use anyhow::Result;
use rusqlite::{Connection, params};
use serde::Serialize;

/// One fault.
#[derive(Debug, Clone, Serialize)]
pub struct Fault {
    /// What was done.
    pub fault: String,
    /// To whom.
    pub target: String,
    /// When it began, by the store's clock.
    pub begin: Timestamp,
    /// When it was over; none where the run ended first.
    pub end: Option<Timestamp>,
    /// When it was over, since boot: the other clock is made to jump.
    #[serde(skip)]
    pub over: Option<Duration>,
}

/// Puts faults beside the rows of the run that bore them.
///
/// # Errors
/// They cannot be written.
pub fn load(faults: &[Fault], tables: &Connection) -> Result<()> {
    tables.execute_batch("CREATE TABLE nemesis (fault TEXT, target TEXT, began INTEGER, ended INTEGER)")?;
    let mut insert = tables.prepare("INSERT INTO nemesis VALUES (?1, ?2, ?3, ?4)")?;
    for fault in faults {
        let ended = fault.end.map(|end| end.micros());
        insert.execute(params![fault.fault, fault.target, fault.begin.micros(), ended])?;
    }
    Ok(())
}

/// Faults in the order of their begin. Clones are the same log.
#[derive(Clone)]
pub struct Log {
    clock: Arc<dyn Clock>,
    lines: Arc<Mutex<Vec<Fault>>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

impl Log {
    /// An empty log that tells time by this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, lines: Arc::default() }
    }

    /// A fault begins; what is returned names it.
    #[must_use]
    pub fn begin(&self, fault: &str, target: &str) -> usize {
        let begin = self.clock.wall();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(Fault { fault: fault.to_owned(), target: target.to_owned(), begin, end: None, over: None });
        lines.len() - 1
    }

    /// It is over.
    pub fn end(&self, fault: usize) {
        let (end, over) = (self.clock.wall(), self.clock.boot());
        if let Some(line) = self.lines.lock().unwrap_or_else(PoisonError::into_inner).get_mut(fault) {
            (line.end, line.over) = (Some(end), Some(over));
        }
    }

    /// A fault without a length.
    pub fn once(&self, fault: &str, target: &str) {
        let fault = self.begin(fault, target);
        self.end(fault);
    }

    /// Every fault so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Fault> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often each kind hit.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for line in self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            *counts.entry(line.fault.clone()).or_default() += 1;
        }
        counts
    }

    /// Whether a kind of fault was on within the last while, or is.
    #[must_use]
    pub fn was_on(&self, fault: &str, within: Duration) -> bool {
        let now = self.clock.boot();
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut same = lines.iter().filter(|line| line.fault == fault);
        same.any(|line| line.over.is_none_or(|over| now.saturating_sub(over) < within))
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::time::Span;
    use aetheris_store::system::ManualClock;

    use super::*;

    #[test]
    fn a_clock_that_jumps_neither_shortens_nor_lengthens_how_long_a_fault_reaches() {
        let clock = ManualClock::at(Timestamp::from_micros(1_000_000_000));
        let log = Log::new(Arc::new(clock.clone()));
        let reach = Duration::from_secs(10);
        assert!(!log.was_on("disk_full", reach));
        let fault = log.begin("disk_full", "world");
        clock.advance(Span::from_secs(60));
        assert!(log.was_on("disk_full", reach) && !log.was_on("clock_back", reach));
        log.end(fault);
        clock.set_wall(Timestamp::from_micros(5_000_000_000));
        assert!(log.was_on("disk_full", reach));
        clock.set_wall(Timestamp::from_micros(0));
        clock.advance(Span::from_secs(11));
        assert!(!log.was_on("disk_full", reach));
    }
}
