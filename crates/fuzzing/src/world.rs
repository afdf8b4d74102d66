//! A server on a store in memory, whose jobs the production code runs when it is told to. Clock and
//! identifiers are the input's own: the same input does the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aetheris_core::event::{Failure, Usage};
use aetheris_core::id::{AttemptId, EventId, IdSource, InstanceId, WorkerId};
use aetheris_core::time::Span;
use aetheris_runtime::ports::{Heard, ModelAnswer, ModelError, ModelRequest, Models, ToolCall, ToolOutcome, Tools};
use aetheris_runtime::run::{self, Lease};
use aetheris_runtime::{Plans, Runtime, Settings};
use aetheris_server::AppState;
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{ManualClock, System};
use aetheris_store::{Boxed, ClaimIds, ClaimRequest, Scope, Store};
use axum::Router;
use tokio_util::sync::CancellationToken;

/// An agent that waits for a person, then says what came.
const APPROVE: &str = r#"
agent: approve
version: "3"
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: "ok-{{ message.order }}", reason: "Please look", park: true, deadline: 24h }
    - { id: tell, kind: transform, needs: [ask], output: { said: "{{ nodes.ask.output }}" } }
"#;

/// An agent whose one call gets no answer and waits for an operator.
const PAY: &str = r#"
agent: pay
tools:
  lost: { kind: function, function: builtin.echo, on_in_doubt: [human] }
plan:
  nodes:
    - { id: send, kind: tool, tool: lost, input: { cents: "{{ message }}" } }
"#;

/// An agent of every kind of node that ends by itself.
const CHAIN: &str = r#"
agent: chain
model: scripted/m
tools:
  echo: { kind: function, function: builtin.echo }
plan:
  nodes:
    - { id: call, kind: tool, tool: echo, input: { m: "{{ message }}" } }
    - { id: think, kind: llm, needs: [call], prompt: "{{ nodes.call.output }}" }
    - { id: gate, kind: condition, needs: [think], when: "message != 0" }
    - { id: last, kind: transform, needs: [gate], output: ["{{ nodes.think.output }}"] }
"#;

/// The agents that a world begins with.
pub const AGENTS: [(&str, &str); 3] = [("approve", APPROVE), ("pay", PAY), ("chain", CHAIN)];

/// Jobs that one round of work takes at most.
const JOBS_AT_ONCE: usize = 8;
const LEASE: Span = Span::from_secs(30);

/// Identifiers in order.
#[derive(Debug, Default)]
struct Counted(AtomicU64);

impl IdSource for Counted {
    fn ordered(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::SeqCst)) + 1
    }

    fn secret(&self) -> u128 {
        self.ordered() << 32
    }
}

/// Tools named `lost` give no answer, others echo; models say the question again.
struct Outside;

impl Tools for Outside {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        let outcome = if call.tool_name.as_str() == "lost" {
            let error = Failure::new("connection_broken", "no answer came");
            ToolOutcome::Unknown { error, retry_after: None, timeout: false }
        } else {
            ToolOutcome::Done(call.input)
        };
        Box::pin(std::future::ready(outcome))
    }
}

impl Models for Outside {
    fn complete<'a>(&'a self, request: ModelRequest, _heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        let answer = ModelAnswer::text(request.model, request.prompt, Usage::default());
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn knows(&self, _model: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The world of one input.
pub struct World {
    clock: ManualClock,
    /// The server's calls.
    pub router: Router,
    rt: Runtime,
}

impl World {
    /// An empty server.
    #[must_use]
    pub fn new() -> Self {
        let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        let rt = Runtime {
            in_flight: aetheris_runtime::InFlight::default(),
            loads: aetheris_runtime::Loads::default(),
            models: Arc::new(Outside),
            plans: Plans::default(),
            scope: Scope::System,
            settings: Arc::new(Settings::default()),
            store,
            system: System { clock: Arc::new(clock.clone()), ids: Arc::new(Counted::default()) },
            tools: Arc::new(Outside),
        };
        Self { clock, router: aetheris_server::router(AppState::new(rt.clone())), rt }
    }

    /// Runs what can be claimed, each job until it ends or blocks.
    pub async fn work(&self) {
        let ids = self.rt.system.ids.as_ref();
        let pair =
            |_| ClaimIds { attempt: AttemptId::from_u128(ids.secret()), event: EventId::from_u128(ids.secret()) };
        let request = ClaimRequest {
            ids: (0..JOBS_AT_ONCE).map(pair).collect(),
            instance: InstanceId::from_u128(1),
            linger: Span::ZERO,
            ttl: LEASE,
            worker: WorkerId::from("w"),
        };
        for claimed in self.rt.store.claim(request).await.unwrap() {
            let safe_until = claimed.sent_at + Duration::from_secs(20);
            let never = CancellationToken::new();
            let lease = Lease::new(claimed.fence, safe_until, never.clone(), never);
            Box::pin(run::run_job(&self.rt, claimed, &lease)).await.expect("a job of this world can be run");
        }
    }

    /// Lets time pass, and fires what is due.
    pub async fn pass(&self, by: Span) {
        self.clock.advance(by);
        let store = self.rt.store.as_ref();
        let due = store.due_timers(None, 64).await.unwrap();
        for timer in &due.timers {
            self.rt.fire(timer).await.expect("a due timer can be fired");
        }
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}
