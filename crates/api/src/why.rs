//! Why a job is where it is.

use aetheris_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::command::Command;
use crate::jobs::KeptView;
use crate::schema;

/// A reason why a job does not go on, or why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyCode {
    /// It has ended.
    Ended,
    /// A worker holds it and its lease is good: it is being worked on.
    HeldBy,
    /// The outcome of a call is unknown.
    InDoubt,
    /// Its holder's lease has ended and it has not been taken back yet.
    LeaseExpiredUnreclaimed,
    /// It can be claimed, and every worker that holds jobs holds others.
    NoSlot,
    /// It can be claimed, and no worker holds any job. Idle workers are not seen: one may be about to claim it.
    NoWorker,
    /// It was sent for later.
    NotBefore,
    /// Someone has paused it.
    PausedBy,
    /// What a model's provider may be asked is used up for now.
    RateLimited,
    /// The store was put back from a backup, and someone is to look at the job first.
    RestoredHold,
    /// A step failed and is tried again later.
    RetryBackoff,
    /// An earlier job of its session has not ended.
    SessionBusy,
    /// A person is to answer.
    WaitingApproval,
    /// A job that it has asked for has not ended.
    WaitingChild,
    /// A signal or a webhook is to come.
    WaitingSignal,
    /// Only time ends its wait.
    WaitingTime,
}

/// One reason, and what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyView {
    /// Stable.
    pub code: WhyCode,
    /// In words.
    pub detail: String,
    /// A command that helps, or shows more.
    #[serde(rename = "do")]
    pub advice: String,
    /// Whether the job fails at `until` without having run, unless something is done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails: bool,
    /// With the first reason: the signals that are kept for the job and that no wait has taken, the first that came first,
    /// at most 100. Whoever sent one may have meant the wait that is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptView>,
    /// Since when.
    #[schema(value_type = schema::Time)]
    pub since: Timestamp,
    /// When it ends by itself, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub until: Option<Timestamp>,
}

impl WhyView {
    /// A reason that no time ends.
    #[must_use]
    pub fn new(code: WhyCode, detail: impl Into<String>, advice: &Command<'_>, since: Timestamp) -> Self {
        Self {
            code,
            detail: detail.into(),
            advice: advice.to_string(),
            fails: false,
            kept: Vec::new(),
            since,
            until: None,
        }
    }
}
