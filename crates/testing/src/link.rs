//! What connects one simulated process with the world: every call crosses its gate, going and coming.

use std::sync::Arc;

use aetheris_core::id::{AgentName, JobId, TenantId};
use aetheris_runtime::{Heard, ModelAnswer, ModelError, ModelRequest, Models, ToolCall, ToolOutcome, Tools};
use aetheris_store::{
    Boxed, Bus, ClaimRequest, Claimed, CommitError, Committed, Glance, Health, Heartbeat, History, NewAgent, PutAgent,
    Renewal, Scope, Store, StoreError, UnitOfWork,
};

use crate::gate::{Call, Crossing, Gate};
use crate::time::VirtualClock;

/// A process's way to the store. Times of sending are told by the process's own clock.
pub struct StoreLink {
    bus: Bus,
    clock: Arc<VirtualClock>,
    gate: Gate,
    inner: Arc<dyn Store>,
}

impl StoreLink {
    /// The way of the process behind `gate` to a store.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, gate: Gate, clock: Arc<VirtualClock>) -> Self {
        Self { bus: Bus::default(), clock, gate, inner }
    }

    async fn through<T>(&self, call: Call, answer: Boxed<'_, T>) -> T {
        self.gate.cross(Crossing::ToStore(call)).await;
        let answer = answer.await;
        self.gate.cross(Crossing::FromStore(call)).await;
        answer
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        ask: impl FnOnce(&'a dyn Store) -> Boxed<'a, Result<T, StoreError>> + Send + 'a,
    ) -> Boxed<'a, Result<T, StoreError>> {
        Box::pin(async move {
            self.gate.cross(Crossing::ToStore(Call::Read(name))).await;
            let answer = ask(self.inner.as_ref()).await;
            self.gate.cross(Crossing::FromStore(Call::Read(name))).await;
            answer
        })
    }
}

impl std::fmt::Debug for StoreLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreLink").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Store for StoreLink {
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        let call = Call::Commit(unit.purpose);
        Box::pin(self.through(call, Box::pin(async move { self.inner.commit(unit).await })))
    }

    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        let unit = unit.clone();
        Box::pin(self.through(Call::ResolveUnknown, Box::pin(async move { self.inner.resolve_unknown(&unit).await })))
    }

    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(async move {
            let claim = Box::pin(async move { self.inner.claim(request).await });
            let mut claimed = self.through(Call::Claim, claim).await?;
            for job in &mut claimed {
                job.sent_at = self.clock.boot_at(job.sent_at);
            }
            Ok(claimed)
        })
    }

    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        Box::pin(async move {
            let beat = Box::pin(async move { self.inner.heartbeat(request).await });
            let renewals = self.through(Call::Heartbeat, beat).await?;
            let told = |renewal| match renewal {
                Renewal::Renewed { end_requested, job, sent_at } => {
                    Renewal::Renewed { end_requested, job, sent_at: self.clock.boot_at(sent_at) }
                }
                Renewal::Refused(job) => Renewal::Refused(job),
            };
            Ok(renewals.into_iter().map(told).collect())
        })
    }

    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        Box::pin(self.through(Call::Agent, Box::pin(async move { self.inner.put_agent(agent).await })))
    }

    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        Box::pin(self.through(Call::Agent, Box::pin(async move { self.inner.delete_agent(tenant, name).await })))
    }

    aetheris_store::questions_through!(read);

    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>> {
        self.read("glance", move |inner| inner.glance(scope, job))
    }

    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        self.read("history", move |inner| inner.history(scope, job, full))
    }

    fn health(&self) -> Boxed<'_, Result<Health, StoreError>> {
        self.read("health", |inner| inner.health())
    }

    fn bus(&self) -> &Bus {
        &self.bus
    }
}

/// A process's way to its tools.
pub struct ToolsLink {
    gate: Gate,
    inner: Arc<dyn Tools>,
}

impl ToolsLink {
    /// The way of the process behind `gate` to tools.
    #[must_use]
    pub fn new(inner: Arc<dyn Tools>, gate: Gate) -> Self {
        Self { gate, inner }
    }
}

impl std::fmt::Debug for ToolsLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolsLink").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Tools for ToolsLink {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        Box::pin(async move {
            let (node, tool) = (call.node.clone(), call.tool_name.clone());
            self.gate.cross(Crossing::ToTool(node.clone(), tool.clone())).await;
            let outcome = self.inner.call(call).await;
            self.gate.come_home(Crossing::FromTool(node, tool)).await;
            outcome
        })
    }
}

/// A process's way to its models.
pub struct ModelsLink {
    gate: Gate,
    inner: Arc<dyn Models>,
}

impl ModelsLink {
    /// The way of the process behind `gate` to models.
    #[must_use]
    pub fn new(inner: Arc<dyn Models>, gate: Gate) -> Self {
        Self { gate, inner }
    }
}

impl std::fmt::Debug for ModelsLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelsLink").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Models for ModelsLink {
    fn complete<'a>(&'a self, request: ModelRequest, heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        Box::pin(async move {
            self.gate.cross(Crossing::ToModel).await;
            let answer = self.inner.complete(request, heard).await;
            self.gate.come_home(Crossing::FromModel).await;
            answer
        })
    }

    fn knows(&self, model: &str) -> Result<(), String> {
        self.inner.knows(model)
    }
}
