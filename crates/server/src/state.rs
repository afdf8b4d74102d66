//! What a server is made of.

use std::sync::Arc;

use aetheris_core::agent::Agent;
use aetheris_core::hash::Hash;
use aetheris_core::id::TenantId;
use aetheris_core::limits;
use aetheris_core::plan::CompiledPlan;
use aetheris_runtime::{OpError, Room, Runtime};
use aetheris_store::repeats::Repeats;
use aetheris_store::{Scope, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::error::Failure;
use crate::host::Hosts;
use crate::outline::Outlines;

/// What this server cannot execute of an agent whose file is otherwise valid.
pub type AgentCheck = Arc<dyn Fn(&Agent) -> Vec<AgentProblem> + Send + Sync>;

/// Something in an agent's file that a server cannot execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProblem {
    /// What is wrong and what to do.
    pub message: String,
    /// Where: JSON pointers into the file, of which the first counts that the file has.
    pub pointers: Vec<String>,
}

impl AgentProblem {
    /// The path and the line in the agent's file.
    #[must_use]
    pub fn place(&self, source: &str) -> (String, u32) {
        let pointers: Vec<&str> = self.pointers.iter().map(String::as_str).collect();
        aetheris_agentfile::locate(source, &pointers)
    }
}

/// One more thing that readiness depends on.
#[derive(Clone)]
pub struct ReadyCheck {
    /// What is looked at, as the answer names it.
    pub name: String,
    /// Looks: what was found, or what is not ready.
    pub look: Arc<dyn Fn() -> Result<String, String> + Send + Sync>,
}

/// What a server works with.
#[derive(Clone)]
pub struct AppState {
    /// What is asked of an agent beside what its file says.
    pub check_agent: AgentCheck,
    /// The process drains: long polls and event streams end, and nothing is begun. [`crate::serve()`] puts its own in
    /// its place.
    pub closing: CancellationToken,
    /// Connections served at once; further ones wait to be accepted. Each is a file descriptor, of which
    /// the store and the tools need some as well.
    pub connections_max: usize,
    /// The names under which it answers.
    pub hosts: Hosts,
    /// What readiness depends on beside the store.
    pub ready: Vec<ReadyCheck>,
    /// The operations.
    pub runtime: Runtime,
}

impl AppState {
    /// A server on a runtime, without further checks.
    #[must_use]
    pub fn new(runtime: Runtime) -> Self {
        let closing = CancellationToken::new();
        let check_agent: AgentCheck = Arc::new(|_| Vec::new());
        let connections_max = limits::CONNECTIONS_MAX;
        Self { check_agent, closing, connections_max, hosts: Hosts::Any, ready: Vec::new(), runtime }
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppState").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

/// What handlers share.
pub(crate) struct App {
    /// Agent files that are being read.
    pub(crate) agent_files: Room,
    /// Bytes of large answers on their way.
    pub(crate) answers: Room,
    /// Answers that wait for that room.
    pub(crate) answers_waiting: Room,
    /// Bytes of large bodies.
    pub(crate) bodies: Room,
    followers: Arc<Semaphore>,
    /// Replays and verifications of large jobs.
    pub(crate) large_replays: Room,
    pub(crate) outlines: Outlines,
    /// Questions that may read much.
    pub(crate) reads: Room,
    /// Bytes of the answers of large replays.
    pub(crate) replay_answers: Room,
    /// Replays and verifications.
    pub(crate) replays: Room,
    /// Pages of step values that are being made.
    pub(crate) step_pages: Room,
    pub(crate) state: AppState,
    /// Memory of values that wait to be written.
    pub(crate) values: Room,
}

/// The handlers' handle on it.
pub(crate) type Shared = Arc<App>;

impl App {
    pub(crate) fn new(state: AppState) -> Shared {
        let followers =
            Arc::new(Semaphore::new((state.connections_max / limits::FOLLOWERS_PART).clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self {
            agent_files: Room::new(limits::AGENT_FILES_AT_ONCE),
            answers: Room::new(limits::ANSWERS_BYTES_MAX),
            answers_waiting: Room::new(limits::ANSWERS_WAITING_MAX),
            bodies: Room::new(limits::BODIES_BYTES_MAX),
            followers,
            large_replays: Room::new(limits::LARGE_REPLAYS_AT_ONCE),
            outlines: Outlines::default(),
            reads: Room::new(limits::READS_AT_ONCE),
            replay_answers: Room::new(limits::REPLAYS_BYTES_MAX),
            replays: Room::new(limits::REPLAYS_AT_ONCE),
            state,
            step_pages: Room::new(limits::STEP_PAGES_AT_ONCE_MAX),
            values: Room::new(limits::VALUES_WRITTEN_BYTES_MAX),
        })
    }

    /// The plan of a job that has one.
    ///
    /// # Errors
    /// The store cannot be asked, or the plan cannot be read.
    pub(crate) async fn plan(&self, hash: Option<Hash>) -> Result<Option<Arc<CompiledPlan>>, OpError> {
        let Some(hash) = hash else { return Ok(None) };
        self.runtime().plans.get(self.store(), hash).await.map(Some)
    }

    /// The plan of a job that has one. Where it cannot be read, what is told without it is told: one of them keeps no
    /// other from being listed, and no job from saying why it stands.
    ///
    /// # Errors
    /// The store cannot be asked.
    pub(crate) async fn plan_if_readable(&self, hash: Option<Hash>) -> Result<Option<Arc<CompiledPlan>>, OpError> {
        static LOGGED: Repeats = Repeats::new();
        match self.plan(hash).await {
            Err(error) if error.is_corrupt() => {
                let plan = hash.unwrap_or(Hash::ZERO);
                if LOGGED.is_new(plan.to_string(), tokio::time::Instant::now().into_std()) {
                    tracing::warn!(%plan, %error, "a plan cannot be read: schemas of its waits and policies of its calls are not told");
                }
                Ok(None)
            }
            plan => plan,
        }
    }

    /// On whose behalf it asks.
    pub(crate) fn scope(&self) -> Scope {
        self.state.runtime.scope.clone()
    }

    /// Whose agents it has.
    pub(crate) fn tenant(&self) -> TenantId {
        self.state.runtime.scope.owner()
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.state.runtime
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.state.runtime.store.as_ref()
    }

    /// A place among the followers, held as long as what is returned.
    pub(crate) fn follower(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.followers).try_acquire_owned().map_err(|_| Failure::overloaded())
    }
}
