//! A call of a ledger step as its events tell it, and the doubt about it.

use serde::{Deserialize, Serialize};

use super::usage;
use crate::event::{DoubtOutcome, InvocationOutcome};
use crate::id::{IdempotencyKey, PermitId, ToolName};
use crate::json::Json;
use crate::ledger::LedgerStatus;
use crate::plan::EffectClass;
use crate::step::StepStatus;
use crate::time::{Span, Timestamp};

/// What is known of an invocation's current permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvocationPhase {
    /// Permitted; nothing else is recorded.
    Started,
    /// Its outcome is recorded.
    Finished(InvocationOutcome),
    /// Its doubt was answered.
    Resolved(DoubtOutcome),
}

/// A ledger step's invocation, as its events tell it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    /// What was said of it after the job's end had left it in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_late: Option<DoubtOutcome>,
    /// What repeating the call would do.
    pub class: EffectClass,
    /// After this the permit's call can no longer arrive.
    pub deadline: Timestamp,
    /// The input, rendered once.
    pub input: Json,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// How long the permit's call can still arrive.
    pub lifetime: Span,
    /// The number of the current permit.
    pub permit: u32,
    /// Its author's name for it.
    pub permit_id: PermitId,
    /// What is known of it.
    pub phase: InvocationPhase,
    /// The tool.
    pub tool: ToolName,
    /// Its version.
    pub tool_version: Option<String>,
    /// How many of its permits before the current one were left without anybody knowing what became of their calls.
    #[serde(default, skip_serializing_if = "usage::is_zero")]
    pub unknown: u32,
    /// How many of its permits ended without a call having left.
    #[serde(default, skip_serializing_if = "usage::is_zero")]
    pub unsent: u32,
}

impl Invocation {
    /// What the ledger has of the current permit once it has all that the events have, and whether a doubt
    /// about it was disproved.
    pub(super) const fn ledger(&self) -> (LedgerStatus, bool) {
        match self.phase {
            InvocationPhase::Started => (LedgerStatus::Started, false),
            InvocationPhase::Finished(InvocationOutcome::Committed)
            | InvocationPhase::Resolved(DoubtOutcome::Happened) => (LedgerStatus::Committed, false),
            InvocationPhase::Finished(InvocationOutcome::RefusedRetryable) => (LedgerStatus::RefusedRetryable, false),
            InvocationPhase::Finished(InvocationOutcome::RefusedPermanent) => (LedgerStatus::RefusedPermanent, false),
            InvocationPhase::Finished(InvocationOutcome::NotSent) => (LedgerStatus::NotSent, false),
            InvocationPhase::Finished(InvocationOutcome::InDoubt) => (LedgerStatus::InDoubt, false),
            InvocationPhase::Resolved(DoubtOutcome::DidNotHappen) => (LedgerStatus::InDoubt, true),
            InvocationPhase::Resolved(DoubtOutcome::Unresolved) => (LedgerStatus::FailedUnresolved, false),
        }
    }

    /// Whether the events may go on with a further permit: the ledger's own rule, so that a history it would
    /// not have allowed is refused without it too.
    #[must_use]
    pub const fn allows_next_permit(&self) -> bool {
        let (status, disproved) = self.ledger();
        status.allows_next_permit(self.class, disproved)
    }

    /// Whether nobody could say what became of the call, and it was given up.
    #[must_use]
    pub const fn is_left_unresolved(&self) -> bool {
        matches!(
            self.phase,
            InvocationPhase::Resolved(DoubtOutcome::Unresolved) | InvocationPhase::Finished(InvocationOutcome::InDoubt)
        )
    }

    /// Whether nobody knows what became of the call of its current permit.
    pub(super) const fn is_unknown(&self) -> bool {
        matches!(
            self.phase,
            InvocationPhase::Started
                | InvocationPhase::Finished(InvocationOutcome::InDoubt)
                | InvocationPhase::Resolved(DoubtOutcome::Unresolved)
        )
    }

    /// Whether one of its calls may have had its effect, for all that is recorded.
    #[must_use]
    pub const fn may_have_happened(&self) -> bool {
        let newest = match self.phase {
            InvocationPhase::Started
            | InvocationPhase::Finished(InvocationOutcome::Committed | InvocationOutcome::InDoubt)
            | InvocationPhase::Resolved(DoubtOutcome::Happened | DoubtOutcome::Unresolved) => true,
            InvocationPhase::Finished(
                InvocationOutcome::RefusedRetryable | InvocationOutcome::RefusedPermanent | InvocationOutcome::NotSent,
            )
            | InvocationPhase::Resolved(DoubtOutcome::DidNotHappen) => false,
        };
        newest || self.unknown > 0
    }

    /// Whether its call is known to have had its effect.
    #[must_use]
    pub const fn has_happened(&self) -> bool {
        matches!(
            self.phase,
            InvocationPhase::Finished(InvocationOutcome::Committed) | InvocationPhase::Resolved(DoubtOutcome::Happened)
        )
    }

    /// Whether its doubt is open, in a step that has this status.
    #[must_use]
    pub const fn is_doubted(&self, step: StepStatus) -> bool {
        matches!((self.phase, step), (InvocationPhase::Started, StepStatus::InDoubt))
    }

    /// Whether the call may have left, must not be repeated, and nothing else is recorded of it: no try may
    /// follow before its outcome or its doubt.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!((self.phase, self.class), (InvocationPhase::Started, EffectClass::AtMostOnce))
    }
}

/// A doubt that is open, or was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The place in the tool's list that is tried.
    pub policy: u32,
    /// Why the outcome is unknown.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Whether a wait of this policy has ended by time.
    pub waited: bool,
}
