//! What surrounds an agent while it is crashed: its tools and models, and the people who answer it.

use std::fmt;
use std::sync::Arc;

use aetheris_core::event::Failure;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::path::StepPath;
use aetheris_runtime::Tools;
use serde_json::Value;

use crate::doubts::{Doubt, Verdict};
use crate::models::FakeModels;
use crate::tools::FakeTools;

/// A wait that a job has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The job.
    pub job: JobId,
    /// Its correlation key, as rendered.
    pub key: String,
    /// The node.
    pub node: StepPath,
    /// Why, for the people who are asked.
    pub reason: Option<String>,
}

/// How a job of a run came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Why it failed.
    pub error: Option<Failure>,
    /// Whether the outcome of a call stayed unknown: the job is parked for a human, or its policies gave up.
    pub in_doubt: bool,
    /// Its answer.
    pub result: Option<Value>,
    /// What it is.
    pub status: JobStatus,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.status.as_str())?;
        if self.in_doubt {
            f.write_str(", in doubt")?;
        }
        if let Some(result) = &self.result {
            write!(f, " with {result}")?;
        }
        if let Some(error) = &self.error {
            write!(f, " with {}: {}", error.code, error.message)?;
        }
        Ok(())
    }
}

type Adapting = dyn Fn(Arc<dyn Tools>) -> Arc<dyn Tools> + Send + Sync;
type Checking = dyn Fn(&Outcome, &FakeTools) -> Result<(), String> + Send + Sync;
type Deciding = dyn Fn(&Doubt) -> Verdict + Send + Sync;
type Answering = dyn Fn(&Waiting) -> Option<Value> + Send + Sync;

/// Makes the surroundings of each run anew. What it makes must be deterministic: a run is repeated up to
/// the crossing at which it is to crash.
#[derive(Clone)]
pub struct Script {
    pub(crate) adapter: Arc<Adapting>,
    pub(crate) check: Arc<Checking>,
    pub(crate) doubts: Arc<Deciding>,
    pub(crate) models: Arc<dyn Fn() -> FakeModels + Send + Sync>,
    pub(crate) results_differ: bool,
    pub(crate) tools: Arc<dyn Fn() -> FakeTools + Send + Sync>,
    pub(crate) waits: Arc<Answering>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl Script {
    /// A script with these tools, no models, nobody who answers waits, and operators who leave doubts open.
    #[must_use]
    pub fn new(tools: impl Fn() -> FakeTools + Send + Sync + 'static) -> Self {
        Self {
            adapter: Arc::new(|tools| tools),
            check: Arc::new(|_, _| Ok(())),
            doubts: Arc::new(|_| Verdict::Leave),
            models: Arc::new(FakeModels::new),
            results_differ: false,
            tools: Arc::new(tools),
            waits: Arc::new(|_| None),
        }
    }

    /// The models.
    #[must_use]
    pub fn models(self, models: impl Fn() -> FakeModels + Send + Sync + 'static) -> Self {
        Self { models: Arc::new(models), ..self }
    }

    /// What is sent to a wait with a correlation key; `None` leaves it to its deadline.
    #[must_use]
    pub fn when_waiting(self, answer: impl Fn(&Waiting) -> Option<Value> + Send + Sync + 'static) -> Self {
        Self { waits: Arc::new(answer), ..self }
    }

    /// What an operator says of a call of unknown outcome that is parked for a human. `Doubt::truth` is the
    /// honest one, who looks into the books of the fake tool.
    #[must_use]
    pub fn when_in_doubt(self, decide: impl Fn(&Doubt) -> Verdict + Send + Sync + 'static) -> Self {
        Self { doubts: Arc::new(decide), ..self }
    }

    /// What must hold after each run, beside the invariants: an `Err` fails it with these words.
    #[must_use]
    pub fn check(self, check: impl Fn(&Outcome, &FakeTools) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { check: Arc::new(check), ..self }
    }

    /// Your own adapter between the processes and the fakes.
    #[must_use]
    pub fn adapter(self, wrap: impl Fn(Arc<dyn Tools>) -> Arc<dyn Tools> + Send + Sync + 'static) -> Self {
        Self { adapter: Arc::new(wrap), ..self }
    }

    /// The answer of a run with a crash may differ from the one without: the agent's answer depends on the
    /// time, or on how often a pure tool was asked.
    #[must_use]
    pub fn results_may_differ(self) -> Self {
        Self { results_differ: true, ..self }
    }
}
