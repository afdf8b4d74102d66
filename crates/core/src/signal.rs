//! What an outside message meets in a job: SPEC §7's order of checks as one pure function.

use crate::hash::Hash;
use crate::id::NodeId;
use crate::plan::WaitType;
use crate::state::{JobState, WaitPhase};

/// A wait that the job has not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upcoming {
    /// Its rendered key; `None` where it cannot be computed yet.
    pub key: Option<String>,
    /// What ends it.
    pub wait_type: WaitType,
}

/// A signal as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The wait it names.
    pub key: String,
    /// Hash of its payload.
    pub payload_hash: Hash,
    /// What it claims to be.
    pub wait_type: Option<WaitType>,
}

/// What is to be done with a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meets {
    /// It ends the current wait of this node.
    Deliver(NodeId),
    /// A signal with this key was delivered before; nothing changes.
    AlreadyDelivered {
        /// Whether its payload was the same.
        payload_matches: bool,
    },
    /// It is kept for a wait that the job has not reached.
    Keep,
    /// The job has ended.
    JobFinished,
    /// The wait ended without a signal.
    WaitOver,
    /// It claims another type than the wait has.
    WrongType(WaitType),
    /// No wait of this job has that key.
    WrongKey,
}

/// Decides. `upcoming` are the waits that the job has not reached; `None` where it has no plan yet.
#[must_use]
pub fn meets(state: &JobState, upcoming: Option<&[Upcoming]>, signal: &Incoming) -> Meets {
    let mismatch = |wait_type: WaitType| signal.wait_type.is_some_and(|claimed| claimed != wait_type);
    let known = state.waits.get(&signal.key);
    if let Some(record) = known
        && mismatch(record.wait_type)
    {
        return Meets::WrongType(record.wait_type);
    }
    match known.map(|record| &record.phase) {
        Some(WaitPhase::Delivered { payload_hash, .. }) => {
            return Meets::AlreadyDelivered { payload_matches: *payload_hash == signal.payload_hash };
        }
        Some(WaitPhase::Open | WaitPhase::Over) | None => {}
    }
    if state.status.is_terminal() {
        return Meets::JobFinished;
    }
    match known {
        Some(record) if record.phase == WaitPhase::Open => return Meets::Deliver(record.node.clone()),
        Some(_) => return Meets::WaitOver,
        None => {}
    }
    let Some(upcoming) = upcoming else {
        return Meets::Keep;
    };
    if let Some(wait) = upcoming.iter().find(|wait| wait.key.as_deref() == Some(signal.key.as_str())) {
        return if mismatch(wait.wait_type) { Meets::WrongType(wait.wait_type) } else { Meets::Keep };
    }
    if upcoming.iter().any(|wait| wait.key.is_none() && !mismatch(wait.wait_type)) {
        Meets::Keep
    } else {
        Meets::WrongKey
    }
}
