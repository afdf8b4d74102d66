//! What happened, line by line, in virtual time. The same seed writes the same bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_testing::time::VirtualClock;

/// The trace of one run. Clones write to the same one.
#[derive(Clone)]
pub struct Trace {
    clock: Arc<VirtualClock>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    jobs: BTreeMap<JobId, usize>,
    text: String,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

impl Trace {
    /// An empty one on the world's clock.
    #[must_use]
    pub fn new(clock: Arc<VirtualClock>) -> Self {
        Self { clock, inner: Arc::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line: who did what.
    pub fn line(&self, who: &str, what: fmt::Arguments<'_>) {
        use fmt::Write as _;
        let at = self.clock.passed();
        let text = &mut self.inner().text;
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{:>5}.{:06}  {who:<9} {what}", at.as_secs(), at.subsec_micros());
    }

    /// A short name for a job: its place among those that were created.
    #[must_use]
    pub fn name(&self, job: JobId) -> String {
        let mut inner = self.inner();
        let next = inner.jobs.len() + 1;
        format!("j{}", inner.jobs.entry(job).or_insert(next))
    }

    /// Everything so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.inner().text.clone()
    }

    /// A hash of everything so far.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(self.inner().text.as_bytes())
    }

    /// How much time has passed.
    #[must_use]
    pub fn passed(&self) -> Duration {
        self.clock.passed()
    }
}

/// Writes a line to a [`Trace`].
#[macro_export]
macro_rules! tell {
    ($trace:expr, $who:expr, $($what:tt)+) => {
        $trace.line($who, format_args!($($what)+))
    };
}
