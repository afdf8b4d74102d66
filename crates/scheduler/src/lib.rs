//! Many jobs: timers that are due, leases that have expired, and what was promised in the outbox. Never runs a step.
//!
//! Any number of processes may sweep the same store: each firing, reclaim and promise is one guarded
//! commit, and whoever comes second finds nothing to do.
//!
//! A pass goes through the whole list, page by page, past what fails and past what is slow ([`sweep`]): a job that cannot
//! be read, or is large, holds up nobody else's timer. What has failed is left alone for a while, longer each time
//! ([`backoff`]).

mod backoff;
mod leases;
mod outbox;
mod sweep;
mod timers;
mod writes;

pub use leases::{reclaim_expired, reclaim_instance, sweep_expired};
pub use outbox::{deliver_all, deliver_outbox};
pub use timers::{fire_due, fire_timers};

use aetheris_core::limits;
use aetheris_core::time::Span;

/// How often a process looks for what others may have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOptions {
    /// The longest pause between two looks at expired leases.
    pub leases: Span,
    /// The longest pause between two looks at the outbox; what this process promises is known sooner.
    pub outbox: Span,
    /// The longest pause between two looks at timers; those that this process sets are known sooner.
    pub timers: Span,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { leases: Span::from_secs(1), outbox: Span::from_secs(1), timers: Span::from_secs(1) }
    }
}

/// Rows that a sweep asks for at once.
fn page() -> usize {
    let rows = u64::try_from(limits::SWEEP_ROWS_MAX).unwrap_or(u64::MAX);
    usize::try_from(aetheris_fault::tuned!(SweepRows, rows)).unwrap_or(limits::SWEEP_ROWS_MAX)
}
