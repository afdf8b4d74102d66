//! A store with something between its answer to a question and the next one.

use std::sync::Arc;

use aetheris_core::id::{AgentName, JobId, TenantId};
use aetheris_store::{
    Boxed, Bus, ClaimRequest, Claimed, CommitError, Committed, Glance, Health, Heartbeat, History, NewAgent, PutAgent,
    Renewal, Scope, Store, StoreError, UnitOfWork,
};

/// What happens behind the answer to a question of this name.
type Then = Box<dyn Fn(&'static str) -> Option<Boxed<'static, ()>> + Send + Sync>;

/// What becomes of a history.
type Change = Box<dyn Fn(&mut History) + Send + Sync>;

/// The error that stands in place of the answer to a question of this name.
type Fails = Box<dyn Fn(&'static str) -> Option<StoreError> + Send + Sync>;

/// The store.
pub(crate) struct Between {
    pub(crate) change: Change,
    pub(crate) fails: Fails,
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) then: Then,
}

impl Between {
    /// With this behind its answers.
    pub(crate) fn then(
        inner: Arc<dyn Store>,
        then: impl Fn(&'static str) -> Option<Boxed<'static, ()>> + Send + Sync + 'static,
    ) -> Self {
        Self { change: Box::new(|_| ()), fails: Box::new(|_| None), inner, then: Box::new(then) }
    }

    /// With these errors in place of answers.
    pub(crate) fn failing(self, fails: impl Fn(&'static str) -> Option<StoreError> + Send + Sync + 'static) -> Self {
        Self { fails: Box::new(fails), ..self }
    }

    /// With other histories.
    pub(crate) fn changed(inner: Arc<dyn Store>, change: impl Fn(&mut History) + Send + Sync + 'static) -> Self {
        Self { change: Box::new(change), fails: Box::new(|_| None), inner, then: Box::new(|_| None) }
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        ask: impl FnOnce(&'a dyn Store) -> Boxed<'a, Result<T, StoreError>> + Send + 'a,
    ) -> Boxed<'a, Result<T, StoreError>> {
        Box::pin(async move {
            let answer = ask(self.inner.as_ref()).await;
            if let Some(then) = (self.then)(name) {
                then.await;
            }
            (self.fails)(name).map_or(answer, Err)
        })
    }
}

impl Store for Between {
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        self.inner.commit(unit)
    }

    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        self.inner.resolve_unknown(unit)
    }

    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        self.inner.claim(request)
    }

    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        self.inner.heartbeat(request)
    }

    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        self.inner.put_agent(agent)
    }

    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        self.inner.delete_agent(tenant, name)
    }

    aetheris_store::questions_through!(read);

    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>> {
        Box::pin(async move {
            let mut glance = self.read("glance", move |inner| inner.glance(scope, job)).await?;
            if let Some(Glance::Short(history)) = &mut glance {
                (self.change)(history);
            }
            Ok(glance)
        })
    }

    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        Box::pin(async move {
            let mut history = self.read("history", move |inner| inner.history(scope, job, full)).await?;
            history.iter_mut().for_each(&self.change);
            Ok(history)
        })
    }

    fn health(&self) -> Boxed<'_, Result<Health, StoreError>> {
        self.inner.health()
    }

    fn bus(&self) -> &Bus {
        self.inner.bus()
    }
}
