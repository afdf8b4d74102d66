//! Events: the immutable facts of a job's stream.
//!
//! [`payload`] has what each says, [`codec`] how it is kept. A payload's fields stand in alphabetical
//! order, so that writing a struct gives canonical bytes; a test holds every kind to it.

pub mod codec;
pub mod payload;
mod timer_id;

pub use codec::{DecodeError, EncodedEvent};
pub use payload::*;
pub use timer_id::TimerId;

use serde::Serialize;

use crate::hash::Hash;
use crate::id::EventId;
use crate::lease::Fence;
use crate::path::StepPath;
use crate::time::Timestamp;

/// What a kind is kept as: those that are large and rare apart, so that every other takes less room wherever it is moved.
macro_rules! kept {
    (boxed $name:ident) => { Box<payload::$name> };
    ($name:ident) => { payload::$name };
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal, $version:literal $(, $boxed:ident)?;)*) => {
        /// One fact, by kind.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $name(kept!($($boxed)? $name)),)*
        }

        /// The kinds of facts. The code is what stores keep, the name what people see; neither is ever
        /// given to another kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $($(#[$doc])* $name,)*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its number in stores.
            #[must_use]
            pub const fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* }
            }

            /// The version of its payload's schema that this build writes; it reads this one and all before it.
            #[must_use]
            pub const fn schema_version(self) -> u16 {
                match self { $(Self::$name => $version,)* }
            }

            /// Its name in the API and in files.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The kind of a number; `None` for one that this build does not know.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }

        impl Event {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> EventKind {
                match self { $(Self::$name(_) => EventKind::$name,)* }
            }

            /// Its payload in canonical bytes.
            #[must_use]
            pub fn canonical(&self) -> Vec<u8> {
                match self { $(Self::$name(payload) => crate::json::to_canonical(payload),)* }
            }

            pub(crate) fn from_payload(kind: EventKind, payload: &[u8]) -> Result<Self, serde_json::Error> {
                match kind { $(EventKind::$name => serde_json::from_slice(payload).map(Self::$name),)* }
            }
        }

        $(impl From<payload::$name> for Event {
            fn from(payload: payload::$name) -> Self {
                Self::$name(payload.into())
            }
        })*
    };
}

// Number, name, version. A version is raised by one when what is written of the kind changes, so that an older build says
// who wrote it instead of "damaged". A field that is only added is optional: what older builds wrote is read by its default,
// and one that is left out where it has its default raises nothing. Any other change has a step in `codec::UPCASTS`.
events! {
    /// A message was accepted.
    JobCreated = 1, "job_created", 1, boxed;
    /// The plan was recorded; nothing runs before it.
    PlanGenerated = 2, "plan_generated", 1;
    /// A worker took ownership.
    JobClaimed = 3, "job_claimed", 1;
    /// Ownership was given back or taken away.
    JobRequeued = 4, "job_requeued", 2;
    /// The job blocks.
    JobWaiting = 5, "job_waiting", 1;
    /// What it was blocked on is over.
    WaitCompleted = 6, "wait_completed", 2;
    /// Someone asked for the job's end while a worker held it.
    JobCancelRequested = 7, "job_cancel_requested", 1;
    /// The job has its answer.
    JobCompleted = 8, "job_completed", 1;
    /// The job has failed.
    JobFailed = 9, "job_failed", 1;
    /// The job was cancelled.
    JobCancelled = 10, "job_cancelled", 1;
    /// A try of a step began.
    NodeStarted = 11, "node_started", 1;
    /// A step ended.
    NodeFinished = 12, "node_finished", 2;
    /// A step failed and is tried again.
    NodeRetryScheduled = 13, "node_retry_scheduled", 2;
    /// A step is not run.
    NodeSkipped = 14, "node_skipped", 1;
    /// A permission to call a tool was taken.
    ToolInvocationStarted = 15, "tool_invocation_started", 1;
    /// The outcome of that permission is known.
    ToolInvocationFinished = 16, "tool_invocation_finished", 1;
    /// The effect is part of the job's history.
    CommandCommitted = 17, "command_committed", 1;
    /// A durable timer was set.
    TimerSet = 18, "timer_set", 1;
    /// A durable timer fired.
    TimerFired = 19, "timer_fired", 1;
    /// The outcome of a call is unknown.
    StepInDoubt = 20, "step_in_doubt", 1;
    /// The doubt has an answer.
    InDoubtResolved = 21, "in_doubt_resolved", 3;
    /// The job is held still.
    JobPaused = 22, "job_paused", 1;
    /// It goes on where it was.
    JobResumed = 23, "job_resumed", 1;
    /// A kept signal does not fit the schema of its wait; it ends nothing.
    SignalRefused = 24, "signal_refused", 1;
    /// Someone asked to hold the job still while a worker held it.
    JobPauseRequested = 25, "job_pause_requested", 1;
    /// A step was given values that nobody can compute again.
    ValueRecorded = 26, "value_recorded", 1;
    /// The output of a step was rejected: another round follows.
    NodeRefining = 27, "node_refining", 1;
    /// A step asks for a child job, which is created later.
    ChildStarted = 28, "child_started", 1, boxed;
    /// A child job has ended, and the step that waits for it is told.
    ChildEnded = 29, "child_ended", 1;
}

impl EventKind {
    /// Whether it makes a job longer, and is bounded. What ends, frees or tells what has happened is never
    /// refused for a job's length.
    #[must_use]
    pub const fn grows(self) -> bool {
        match self {
            Self::NodeStarted
            | Self::NodeSkipped
            | Self::NodeRetryScheduled
            | Self::ToolInvocationStarted
            | Self::ValueRecorded
            | Self::NodeRefining
            | Self::ChildStarted
            | Self::JobWaiting => true,
            Self::JobCreated
            | Self::PlanGenerated
            | Self::JobClaimed
            | Self::JobRequeued
            | Self::WaitCompleted
            | Self::JobCancelRequested
            | Self::JobCompleted
            | Self::JobFailed
            | Self::JobCancelled
            | Self::NodeFinished
            | Self::ToolInvocationFinished
            | Self::CommandCommitted
            | Self::TimerSet
            | Self::TimerFired
            | Self::StepInDoubt
            | Self::InDoubtResolved
            | Self::JobPaused
            | Self::JobResumed
            | Self::JobPauseRequested
            | Self::ChildEnded
            | Self::SignalRefused => false,
        }
    }

    /// Whether it ends its job.
    #[must_use]
    pub const fn ends_job(self) -> bool {
        match self {
            Self::JobCompleted | Self::JobFailed | Self::JobCancelled => true,
            Self::JobCreated
            | Self::PlanGenerated
            | Self::JobClaimed
            | Self::JobRequeued
            | Self::JobWaiting
            | Self::WaitCompleted
            | Self::JobCancelRequested
            | Self::NodeStarted
            | Self::NodeFinished
            | Self::NodeRetryScheduled
            | Self::NodeSkipped
            | Self::ToolInvocationStarted
            | Self::ToolInvocationFinished
            | Self::CommandCommitted
            | Self::TimerSet
            | Self::TimerFired
            | Self::StepInDoubt
            | Self::InDoubtResolved
            | Self::JobPaused
            | Self::JobResumed
            | Self::SignalRefused
            | Self::ValueRecorded
            | Self::NodeRefining
            | Self::ChildStarted
            | Self::ChildEnded
            | Self::JobPauseRequested => false,
        }
    }
}

impl Serialize for EventKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Event {
    /// The step that it speaks of.
    #[must_use]
    pub const fn step(&self) -> Option<&StepPath> {
        match self {
            Self::NodeStarted(e) => Some(&e.node),
            Self::NodeFinished(e) => Some(&e.node),
            Self::NodeRetryScheduled(e) => Some(&e.node),
            Self::NodeSkipped(e) => Some(&e.node),
            Self::ToolInvocationStarted(e) => Some(&e.node),
            Self::ToolInvocationFinished(e) => Some(&e.node),
            Self::CommandCommitted(e) => Some(&e.node),
            Self::StepInDoubt(e) => Some(&e.node),
            Self::InDoubtResolved(e) => Some(&e.node),
            Self::JobWaiting(e) => Some(&e.node),
            Self::WaitCompleted(e) => Some(&e.node),
            Self::SignalRefused(e) => Some(&e.node),
            Self::ValueRecorded(e) => Some(&e.node),
            Self::NodeRefining(e) => Some(&e.node),
            Self::ChildStarted(e) => Some(&e.node),
            Self::ChildEnded(e) => Some(&e.node),
            Self::JobFailed(e) => e.node.as_ref(),
            Self::JobCreated(_)
            | Self::PlanGenerated(_)
            | Self::JobClaimed(_)
            | Self::JobRequeued(_)
            | Self::JobCancelRequested(_)
            | Self::JobCompleted(_)
            | Self::JobCancelled(_)
            | Self::TimerSet(_)
            | Self::TimerFired(_)
            | Self::JobPaused(_)
            | Self::JobResumed(_)
            | Self::JobPauseRequested(_) => None,
        }
    }
}

/// A fact as it stands in a job's stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its place: 1, 2, … without gaps.
    pub seq: u64,
    /// Its author's name for it.
    pub id: EventId,
    /// The fence of its author; of the last claim, where the author had none.
    pub fence: Fence,
    /// The store's time of the write.
    pub at: Timestamp,
    /// The chain up to and with it.
    pub hash: Hash,
    /// What it says.
    pub event: Event,
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Stores keep the numbers for ever.
    #[test]
    fn kinds_keep_their_numbers_and_names() {
        let codes: Vec<u8> = EventKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes, (1..=29).collect::<Vec<u8>>());
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_code(kind.code()), Some(*kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert_eq!((EventKind::from_code(0), EventKind::from_code(30)), (None, None));
        assert_eq!(EventKind::JobCreated.as_str(), "job_created");
        assert!(EventKind::ALL.iter().all(|kind| kind.schema_version() >= 1));
    }

    #[test]
    fn what_starts_something_makes_a_job_longer_and_nothing_else_does() {
        let growing: Vec<EventKind> = EventKind::ALL.iter().copied().filter(|kind| kind.grows()).collect();
        let expected = [
            EventKind::JobWaiting,
            EventKind::NodeStarted,
            EventKind::NodeRetryScheduled,
            EventKind::NodeSkipped,
            EventKind::ToolInvocationStarted,
            EventKind::ValueRecorded,
            EventKind::NodeRefining,
            EventKind::ChildStarted,
        ];
        assert_eq!(growing, expected);
    }
}
