//! One job under one lease, and every write that comes from outside a run. Deterministic, given store,
//! clock, ids and ports.
//!
//! [`run`] is the protocol of a run, top to bottom. [`ops`] are the writes without an epoch: accepting
//! messages, signals, cancels, answers to doubts, timers, taking back leases, late deposits. Both make
//! their facts in a [`draft`], which the one reducer must accept before anything is written. [`ports`]
//! is the outside world. Nothing here spawns a task that outlives its caller, or sees SQL.

mod admission;
pub mod aside;
pub mod draft;
pub mod error;
pub mod in_flight;
pub mod inputs;
pub mod load;
mod memory;
pub mod names;
pub mod offline;
pub mod ops;
mod passing;
pub mod plans;
pub mod ports;
pub mod pulse;
pub mod room;
pub mod run;

use std::sync::Arc;

use aetheris_core::id::TenantId;
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_store::system::System;
use aetheris_store::{Scope, Store};

pub use error::OpError;
pub use in_flight::InFlight;
pub use offline::Offline;
pub use plans::Plans;
pub use ports::{Heard, ModelAnswer, ModelError, ModelRequest, Models, ToolCall, ToolOutcome, Tools};
pub use room::{Loads, Room};

/// What the server's configuration says about runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The version of this code, recorded with each job.
    pub execution_version: String,
    /// Reclaims in a row without a finished node after which a job fails.
    pub max_attempts: u32,
    /// How many steps of a job run at once where its plan does not say: one at a time where it is 0 or 1.
    pub max_parallel_steps: u32,
    /// The time a step may take when neither node, tool nor agent says so.
    pub step_timeout: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            execution_version: env!("CARGO_PKG_VERSION").to_owned(),
            max_attempts: limits::RECLAIMS_WITHOUT_PROGRESS_MAX,
            max_parallel_steps: 0,
            step_timeout: limits::STEP_TIMEOUT_DEFAULT,
        }
    }
}

/// What every operation needs. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// Calls of this process that are awaited.
    pub in_flight: InFlight,
    /// Room for large jobs that are written to from outside a run.
    pub loads: Loads,
    /// Models.
    pub models: Arc<dyn Models>,
    /// Compiled plans.
    pub plans: Plans,
    /// On whose behalf it asks and writes.
    pub scope: Scope,
    /// Settings.
    pub settings: Arc<Settings>,
    /// Where facts live.
    pub store: Arc<dyn Store>,
    /// Clocks and identifiers.
    pub system: System,
    /// Tools.
    pub tools: Arc<dyn Tools>,
}

impl Runtime {
    /// The same on behalf of one tenant: jobs and agents of others are not there.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> Self {
        Self { scope: Scope::Tenant(tenant), ..self.clone() }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("settings", &self.settings).finish_non_exhaustive()
    }
}
