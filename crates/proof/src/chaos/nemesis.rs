//! The log of what was done to a run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::time::Timestamp;
use aetheris_store::system::{Clock, SystemClock};
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
    /// When it began, since boot, in milliseconds: for times that must not jump.
    pub boot_ms: u64,
}

/// Faults in the order of their begin. Clones are the same log.
#[derive(Debug, Clone, Default)]
pub struct Log {
    lines: Arc<Mutex<Vec<Fault>>>,
    clock: Arc<Mutex<Option<DynClock>>>,
}

#[derive(Clone)]
struct DynClock(Arc<dyn Clock>);

impl std::fmt::Debug for DynClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl Log {
    /// From now on its times are of this clock.
    pub fn tell_time_by(&self, clock: Arc<dyn Clock>) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some(DynClock(clock));
    }

    fn now(&self) -> Timestamp {
        let clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner).clone();
        clock.map_or_else(|| SystemClock.wall(), |clock| clock.0.wall())
    }

    /// A fault begins; what is returned names it.
    #[must_use]
    pub fn begin(&self, fault: &str, target: &str) -> usize {
        let begin = self.now();
        let boot_ms = u64::try_from(SystemClock.boot().as_millis()).unwrap_or(u64::MAX);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(Fault { fault: fault.to_owned(), target: target.to_owned(), begin, end: None, boot_ms });
        lines.len() - 1
    }

    /// It is over.
    pub fn end(&self, fault: usize) {
        let end = self.now();
        if let Some(line) = self.lines.lock().unwrap_or_else(PoisonError::into_inner).get_mut(fault) {
            line.end = Some(end);
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
        let now = self.now();
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let reach = i64::try_from(within.as_micros()).unwrap_or(i64::MAX);
        let mut same = lines.iter().rev().filter(|line| line.fault == fault);
        same.any(|line| line.end.is_none_or(|end| now.micros().saturating_sub(end.micros()) < reach))
    }
}
