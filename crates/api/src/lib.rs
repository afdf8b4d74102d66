//! What travels over HTTP: requests, answers, and the stable error codes. No server, no store; the
//! server and every client are written against this crate.
//!
//! Reading order: [`error`] (what goes wrong, and how it is said), [`agents`], [`jobs`] (messages and
//! what became of them), [`acts`] (what is done to a job), [`waits`] (what waits for someone),
//! [`evidence`] (events, replay, verify, trace), [`mod@events`] (what each kind of event says), [`steps`] (what steps were
//! given and gave), [`why`], [`command`] (what people are told to run) on [`shell`], [`system`].
//!
//! Requests refuse unknown fields and name them. Answers may gain fields at any time: clients ignore
//! what they do not know. Times are RFC 3339 in UTC, durations texts like `250ms`, `30s`, `24h`.

pub mod acts;
pub mod agents;
pub mod command;
pub mod error;
pub mod events;
pub mod evidence;
pub mod jobs;
pub mod raw;
pub mod schema;
pub mod shell;
pub mod steps;
pub mod system;
pub mod waits;
pub mod why;

pub use acts::{
    AfterNo, CancelAnswer, Outcome, PauseResult, ResolveAnswer, ResolveRequest, ResumeResult, SignalRequest,
    SignalResult, SignalStatus,
};
pub use agents::{AgentList, AgentPut, AgentView};
pub use command::Command;
pub use error::{ErrorCode, Problem, ProblemError};
pub use evidence::{
    CheckView, DeltaView, EventPage, EventView, EvidenceView, ReplayView, StreamedEvent, TraceAttempt, TraceDoubt,
    TraceModel, TraceRun, TraceStep, TraceTool, TraceView, VerifyView,
};
pub use jobs::{
    AnsweredBy, AnsweredView, ChildList, ChildOfStep, ChildView, ItemsView, JobErrorView, JobList, JobView, KeptView,
    MessageAnswer, MessageRequest, ParentView, PausedView, StepView, UsageView, WaitingView,
};
pub use raw::Raw;
pub use steps::{RoundValuesView, StepPage, StepValuesView, ValueOrigin, ValueView};
pub use system::{LiveView, ReadyView};
pub use waits::{InDoubtList, InDoubtNext, InDoubtView, WaitList, WaitView};
pub use why::{WhyCode, WhyView};

/// The media type of errors.
pub const PROBLEM_JSON: &str = "application/problem+json";
