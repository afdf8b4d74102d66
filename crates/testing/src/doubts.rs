//! Doubts as an operator meets them: a call of unknown outcome, and what can be said of it.

use aetheris_core::id::{IdempotencyKey, JobId, ToolName};
use aetheris_core::ledger::LedgerRow;
use aetheris_core::path::StepPath;
use serde_json::Value;

use crate::tools::{FakeTools, Happened};

/// A call of unknown outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Doubt {
    /// The job.
    pub job: JobId,
    /// The idempotency key of the call.
    pub key: IdempotencyKey,
    /// The node.
    pub node: StepPath,
    /// The permit of the call.
    pub permit: u32,
    /// The tool.
    pub tool: ToolName,
    truth: Happened,
}

/// What an operator does with a doubt.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The call happened, and this is its result.
    Happened(Value),
    /// The call did not happen.
    DidNotHappen,
    /// Nothing now; the question is asked again later.
    NotYet,
    /// Nothing, for ever: the job stays parked.
    Leave,
}

impl Doubt {
    pub(crate) fn new(row: &LedgerRow, tools: &FakeTools) -> Self {
        let truth = tools.happened(row.tool.as_str(), row.key);
        Self { job: row.job, key: row.key, node: row.node.clone(), permit: row.permit, tool: row.tool.clone(), truth }
    }

    /// What an operator says who looks into the books of the fake tool.
    #[must_use]
    pub fn truth(&self) -> Verdict {
        match &self.truth {
            Happened::Yes(result) => Verdict::Happened(result.value().clone()),
            Happened::No => Verdict::DidNotHappen,
            Happened::Running => Verdict::NotYet,
        }
    }
}
