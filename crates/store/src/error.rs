//! What can go wrong at a store, and what is known then.

use std::fmt;

use aetheris_core::id::JobId;
use aetheris_core::lease::GuardRefusal;
use aetheris_core::ledger::LedgerRefusal;

/// What kind of trouble it is; retries are decided from this, never from a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The store cannot be reached or is closing; it may be asked again.
    Unavailable,
    /// Its disk or a bound is full.
    Full,
    /// What it holds cannot be read or contradicts itself.
    Corrupt,
    /// The request itself is wrong: a fault of this program.
    Invalid,
}

impl ErrorKind {
    /// Its name in logs and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::Corrupt => "corrupt",
            Self::Invalid => "invalid",
        }
    }

    /// Whether asking again cannot help.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::Corrupt | Self::Invalid => true,
            Self::Full | Self::Unavailable => false,
        }
    }
}

/// An operation of the store failed.
#[derive(Debug)]
pub struct StoreError {
    /// What kind of trouble.
    pub kind: ErrorKind,
    /// The operation.
    pub op: &'static str,
    /// What lies behind it.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl StoreError {
    /// An error of one operation.
    pub fn new(kind: ErrorKind, op: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind, op, source: source.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store is {} ({}): {}", self.kind.as_str(), self.op, self.source)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref())
    }
}

/// Why a unit of work was not written. Certain: nothing of it is there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The writer has not the right.
    #[error(transparent)]
    Guard(#[from] GuardRefusal),
    /// Permissions need an unexpired lease.
    #[error("the lease has expired; no permission is given")]
    LeaseExpired,
    /// Something else was written since the author looked.
    #[error("the author has seen {expected} events, the job has {actual}")]
    Sequence {
        /// What the author has seen.
        expected: u64,
        /// What the job has.
        actual: u64,
    },
    /// The ledger refuses.
    #[error(transparent)]
    Ledger(#[from] LedgerRefusal),
    /// Signals of this key are kept that the unit's author does not know.
    #[error("a signal for `{0}` has been kept meanwhile; it is to be looked at first")]
    SignalKept(String),
    /// The client's key names an earlier job with the same request.
    #[error("the same request made {0} before")]
    Duplicate(JobId),
    /// The client's key names an earlier job with another request.
    #[error("this idempotency key was already used for a different request, {0}")]
    KeyConflict(JobId),
    /// What the unit was to do is done, by somebody else.
    #[error("promise {0} has been kept by somebody else")]
    Delivered(u64),
    /// The child was to end with its parent, and that has ended.
    #[error("the parent {0} has ended, so the child is not created")]
    ParentEnded(JobId),
    /// There is no such job.
    #[error("there is no such job")]
    UnknownJob,
    /// The plan document that the job names is not in the store.
    #[error("the plan document is not in the store")]
    UnknownPlan,
    /// A bound of the store is reached.
    #[error("the bound of {bound} {what} is reached")]
    Bound {
        /// How many.
        bound: u64,
        /// Of what.
        what: &'static str,
    },
}

/// Why a commit did not answer with success.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// It was refused; nothing of it is written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It failed; nothing of it is written.
    #[error(transparent)]
    Failed(StoreError),
    /// It may have been written: [`crate::Store::resolve_unknown`] says.
    #[error("the outcome of a commit is unknown: {0}")]
    Unknown(StoreError),
}
