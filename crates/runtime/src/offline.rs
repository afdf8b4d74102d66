//! A runtime that calls nobody, for processes that write to a store and run no step: their operators need not have
//! what tools and models ask for.

use std::sync::Arc;

use aetheris_core::event::Failure;
use aetheris_store::system::System;
use aetheris_store::{Boxed, Scope, Store};

use crate::ports::{Heard, ModelAnswer, ModelError, ModelRequest, Models, ToolCall, ToolOutcome, Tools};
use crate::room::Loads;
use crate::{InFlight, Plans, Runtime, Settings};

/// The code of every refusal of [`Offline`].
pub const OFFLINE: &str = "offline";

/// Tools and models of a process that runs no step: every call is refused before it leaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offline;

impl Tools for Offline {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        let error = refused(&format!("the tool `{}` was not called", call.tool_name));
        Box::pin(std::future::ready(ToolOutcome::NotSent { error, permanent: true }))
    }
}

impl Models for Offline {
    fn complete<'a>(&'a self, request: ModelRequest, _: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        let error = refused(&format!("the model `{}` was not asked", request.model));
        Box::pin(std::future::ready(Err(ModelError::new(error, false))))
    }

    fn knows(&self, model: &str) -> Result<(), String> {
        Err(format!("`{model}` cannot be asked: this process runs no steps"))
    }
}

fn refused(what: &str) -> Failure {
    Failure::new(OFFLINE, format!("{what}: this process runs no steps"))
}

impl Runtime {
    /// The operations over a store, without tools and models.
    #[must_use]
    pub fn offline(store: Arc<dyn Store>, system: System) -> Self {
        Self {
            in_flight: InFlight::default(),
            loads: Loads::default(),
            models: Arc::new(Offline),
            plans: Plans::default(),
            scope: Scope::System,
            settings: Arc::new(Settings::default()),
            store,
            system,
            tools: Arc::new(Offline),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aetheris_core::id::{IdempotencyKey, JobId};
    use aetheris_core::json::Json;
    use aetheris_core::lease::Fence;
    use aetheris_core::plan::{EffectClass, Tool, ToolKind};

    use super::*;

    #[tokio::test]
    async fn a_model_that_is_asked_offline_refuses_permanently() {
        let request = ModelRequest::new("openai/small", "hello", Duration::from_secs(1));
        let refused = Offline.complete(request, &|_| {}).await.unwrap_err();
        assert_eq!((refused.error.code.as_str(), refused.retryable), (OFFLINE, false));
        assert!(refused.error.message.contains("openai/small"), "{}", refused.error.message);
        assert!(Offline.knows("openai/small").is_err());
    }

    #[tokio::test]
    async fn a_tool_that_is_called_offline_is_not_sent_for_good() {
        let call = ToolCall {
            agent: "a".into(),
            fence: Fence::default(),
            input: Json::null(),
            job: JobId::from_u128(1),
            key: IdempotencyKey::from_u128(1),
            node: "n".into(),
            permit: None,
            session: None,
            timeout: Duration::from_secs(1),
            tool: Arc::new(Tool::new(EffectClass::Pure, ToolKind::Function("f".to_owned()))),
            tool_name: "pay".into(),
            try_number: 1,
        };
        match Offline.call(call).await {
            ToolOutcome::NotSent { error, permanent } => {
                assert!(permanent && error.code == OFFLINE && error.message.contains("`pay`"), "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}
