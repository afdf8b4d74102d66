//! What an operation from outside a run can answer beside success.

use aetheris_core::event::DecodeError;
use aetheris_core::id::{AgentName, IdempotencyKey, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::GuardRefusal;
use aetheris_core::path::StepPath;
use aetheris_core::plan::WaitType;
use aetheris_core::schema::{self, Violation};
use aetheris_core::state::Illegal;
use aetheris_core::time::Timestamp;
use aetheris_store::{ErrorKind, Refusal, StoreError, rules};

use crate::draft::WriteError;

/// Why an operation was not done. Each variant has one stable code in the API.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// There is no such agent.
    #[error("there is no agent `{0}`; put its file first (aetheris agent put FILE)")]
    AgentNotFound(AgentName),
    /// There is no such job.
    #[error("there is no job {0}")]
    JobNotFound(JobId),
    /// The job has no such invocation.
    #[error("job {job} has no invocation {key}")]
    InvocationNotFound {
        /// The job.
        job: JobId,
        /// What was named.
        key: IdempotencyKey,
    },
    /// The request is wrong.
    #[error("{0}")]
    InvalidRequest(String),
    /// A message or payload does not fit its schema.
    #[error("{what} does not fit the schema: {}", schema::sentence(.violations))]
    InvalidPayload {
        /// In what.
        violations: Vec<Violation>,
        /// What was judged.
        what: &'static str,
    },
    /// No rule of the agent holds for the message.
    #[error("{0}")]
    NoRule(String),
    /// The condition of a rule neither holds for the message nor does not.
    #[error("{0}")]
    RuleFailed(String),
    /// No wait of the job has that key.
    #[error("job {job} has no wait with the correlation key `{key}`{}", waiting_for(.waiting))]
    WrongCorrelationKey {
        /// The job.
        job: JobId,
        /// What was named.
        key: String,
        /// What it waits for, if anything.
        waiting: Option<Awaited>,
    },
    /// The wait is of another type.
    #[error("the wait `{key}` is of type {}, not {}", .expected.as_str(), .given.as_str())]
    WrongWaitType {
        /// The wait's type.
        expected: WaitType,
        /// What was claimed.
        given: WaitType,
        /// The wait.
        key: String,
    },
    /// The job has ended.
    #[error("job {job} has ended ({})", .status.as_str())]
    JobFinished {
        /// The job.
        job: JobId,
        /// How.
        status: JobStatus,
    },
    /// The wait ended in another way.
    #[error("the wait `{0}` is over: it ended without a signal")]
    WaitOver(String),
    /// What was promised under this number is done.
    #[error("what was promised under number {0} has been done by another process")]
    Delivered(u64),
    /// It was written to again and again while it was read.
    #[error("job {0} keeps changing; try again")]
    KeepsChanging(JobId),
    /// The state does not allow it.
    #[error("{0}")]
    StateConflict(String),
    /// "Did not happen" came too early; it is accepted from this moment on.
    #[error(
        "the call can still arrive: that it has not happened is accepted from {0} on, or at once where the other side refuses the call"
    )]
    CanStillArrive(Timestamp),
    /// A timer was to be fired before its moment: the store's clock was set back since it was listed.
    #[error("the timer is due at {0}, which has not come by the store's clock")]
    NotDue(Timestamp),
    /// The client's key was used for a different request.
    #[error("this idempotency key was already used for a different request, {0}")]
    IdempotencyConflict(JobId),
    /// Something is too large.
    #[error("{0}")]
    PayloadTooLarge(String),
    /// A bound of the job is reached.
    #[error("{0}")]
    Bound(String),
    /// Too much is held in memory for writes that the store has not answered yet.
    #[error("too many writes to large jobs wait for the store; nothing was done, try again later")]
    Crowded,
    /// The store cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The job's history cannot be folded.
    #[error("the history of the job cannot be folded: {0}")]
    Corrupt(String),
}

/// What a job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Awaited {
    /// An answer about the call of this node, which no signal gives.
    Doubt(StepPath),
    /// Signals of several keys, and the one that was probably meant.
    OneOf {
        /// How many keys are open.
        open: usize,
        /// The key that looks like the one that came.
        nearest: Option<String>,
    },
    /// The signal of this key.
    Signal(String),
}

fn waiting_for(waiting: &Option<Awaited>) -> String {
    match waiting {
        Some(Awaited::Doubt(node)) => {
            format!("; its call of `{node}` is in doubt, which no signal answers (`aetheris in-doubt` shows how to)")
        }
        Some(Awaited::Signal(key)) => format!("; it waits for `{key}`"),
        Some(Awaited::OneOf { open, nearest }) => {
            let nearest = nearest.as_ref().map(|key| format!(", the nearest of which is `{key}`")).unwrap_or_default();
            format!("; it waits for {open} keys{nearest} (`aetheris waits` lists them)")
        }
        None => String::new(),
    }
}

impl OpError {
    /// Whether what is stored cannot be read or contradicts itself.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt(_)) || matches!(self, Self::Store(error) if error.kind == ErrorKind::Corrupt)
    }

    /// Whether the error is this job's own: the store answers others, and trying again soon would not help.
    #[must_use]
    pub const fn is_of_this_job(&self) -> bool {
        match self {
            Self::Store(error) => error.kind.is_permanent(),
            Self::Crowded | Self::Delivered(_) | Self::KeepsChanging(_) => false,
            Self::AgentNotFound(_)
            | Self::JobNotFound(_)
            | Self::InvocationNotFound { .. }
            | Self::InvalidPayload { .. }
            | Self::InvalidRequest(_)
            | Self::NoRule(_)
            | Self::RuleFailed(_)
            | Self::WrongCorrelationKey { .. }
            | Self::WrongWaitType { .. }
            | Self::JobFinished { .. }
            | Self::WaitOver(_)
            | Self::StateConflict(_)
            | Self::CanStillArrive(_)
            | Self::NotDue(_)
            | Self::IdempotencyConflict(_)
            | Self::PayloadTooLarge(_)
            | Self::Bound(_)
            | Self::Corrupt(_) => true,
        }
    }
}

impl From<Illegal> for OpError {
    fn from(illegal: Illegal) -> Self {
        Self::StateConflict(illegal.to_string())
    }
}

impl From<WriteError> for OpError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Refused(refusal) => refusal.into(),
            WriteError::Failed(error) | WriteError::Unknown(error) => error.into(),
        }
    }
}

impl From<DecodeError> for OpError {
    fn from(error: DecodeError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl From<Refusal> for OpError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Guard(GuardRefusal::NotDue(moment)) => Self::NotDue(moment),
            Refusal::Delivered(promise) => Self::Delivered(promise),
            Refusal::KeyConflict(job) => Self::IdempotencyConflict(job),
            Refusal::Bound { bound, what: rules::PAYLOAD_BYTES } => Self::PayloadTooLarge(format!(
                "in canonical form, with every number written out, the value is larger than the {bound} bytes that are accepted"
            )),
            Refusal::Bound { .. } => Self::Bound(refusal.to_string()),
            Refusal::Ledger(aetheris_core::ledger::LedgerRefusal::CanStillArrive { accepted_from, .. }) => {
                Self::CanStillArrive(accepted_from)
            }
            Refusal::Guard(_)
            | Refusal::LeaseExpired
            | Refusal::Sequence { .. }
            | Refusal::Ledger(_)
            | Refusal::SignalKept(_)
            | Refusal::ParentEnded(_)
            | Refusal::Duplicate(_)
            | Refusal::UnknownJob
            | Refusal::UnknownPlan => Self::StateConflict(refusal.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::lease::Fence;
    use aetheris_core::ledger::LedgerRefusal;

    use super::*;

    fn of_store(kind: ErrorKind) -> OpError {
        StoreError::new(kind, "history", "why").into()
    }

    /// A sweep leaves a job alone whose own error it is, longer each time; a store that is away says nothing of a job.
    #[test]
    fn an_error_of_the_store_is_no_jobs_own_unless_its_rows_are_meant() {
        for (error, own, corrupt) in [
            (of_store(ErrorKind::Unavailable), false, false),
            (of_store(ErrorKind::Full), false, false),
            (of_store(ErrorKind::Invalid), true, false),
            (of_store(ErrorKind::Corrupt), true, true),
            (OpError::Corrupt("why".to_owned()), true, true),
            (OpError::StateConflict("why".to_owned()), true, false),
            (OpError::JobNotFound(JobId::from_u128(1)), true, false),
        ] {
            assert_eq!((error.is_of_this_job(), error.is_corrupt()), (own, corrupt), "{error:?}");
        }
    }

    /// Each of them has a code and a status of its own in the API.
    #[test]
    fn what_the_store_refuses_is_told_as_what_it_is() {
        let (job, at) = (JobId::from_u128(1), Timestamp::from_micros(5));
        let key = IdempotencyKey::from_u128(2);
        let told = |refusal: Refusal| OpError::from(refusal);
        assert!(matches!(told(GuardRefusal::NotDue(at).into()), OpError::NotDue(moment) if moment == at));
        assert!(matches!(told(Refusal::KeyConflict(job)), OpError::IdempotencyConflict(of) if of == job));
        let large = Refusal::Bound { bound: 7, what: rules::PAYLOAD_BYTES };
        assert!(matches!(told(large), OpError::PayloadTooLarge(why) if why.contains("7 bytes")));
        let many = Refusal::Bound { bound: 7, what: "kept signals" };
        assert!(matches!(told(many), OpError::Bound(why) if why.contains("7 kept signals")));
        let early = LedgerRefusal::CanStillArrive { key, accepted_from: at };
        assert!(matches!(told(early.into()), OpError::CanStillArrive(from) if from == at));
        let fence = Fence::default();
        for conflict in [
            GuardRefusal::StillLive(at).into(),
            GuardRefusal::Stale { given: fence, current: fence, held: true }.into(),
            Refusal::LeaseExpired,
            Refusal::Sequence { expected: 1, actual: 2 },
            LedgerRefusal::Missing(key).into(),
            Refusal::SignalKept("k".to_owned()),
            Refusal::Duplicate(job),
            Refusal::UnknownJob,
            Refusal::UnknownPlan,
        ] {
            let why = conflict.to_string();
            assert!(matches!(told(conflict), OpError::StateConflict(told) if told == why), "{why}");
        }
    }
}
