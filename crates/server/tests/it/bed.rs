//! A server on a store in memory, and a hand that plays the worker.

use std::sync::Arc;

use aetheris_core::event::{
    Answer, CommandCommitted, Event, Failure, InvocationOutcome, JobCompleted, JobFailed, JobPaused, JobRequeued,
    JobWaiting, NodeFinished, NodeRetryScheduled, NodeStarted, PauseReason, RequeueReason, Source, StepInDoubt,
    StepResult, TimerId, TimerSet, ToolInvocationFinished, ToolInvocationStarted, WaitCompleted, WaitEnd,
};
use aetheris_core::id::{
    AttemptId, EventId, IdSource, IdempotencyKey, InstanceId, JobId, NodeId, PermitId, ToolName, WorkerId,
};
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::ledger::{LedgerTrigger, PermitRequest, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::draft::{self, Draft, Fact};
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ports::{Heard, ModelAnswer, ModelError, ModelRequest, Models, ToolCall, ToolOutcome, Tools};
use aetheris_runtime::{Plans, Runtime, Settings};
use aetheris_server::AppState;
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{ManualClock, System, SystemIds};
use aetheris_store::{Boxed, ClaimIds, ClaimRequest, LedgerWrite, NewEffect, Purpose, Scope, Store};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use serde_json::Value;
use tower::ServiceExt;

/// An agent that waits for a person.
pub(crate) const APPROVE: &str = r#"
agent: approve
version: "3"
description: Asks a person
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: "ok-{{ message.order }}", reason: "Please look", park: true, deadline: 24h }
    - { id: tell, kind: transform, needs: [ask], output: { said: "{{ nodes.ask.output }}" } }
"#;

/// An agent that calls a tool which must not be called twice.
pub(crate) const PAY: &str = r#"
agent: pay
tools:
  send:
    kind: function
    function: builtin.echo
    version: "2"
    on_in_doubt: [human]
plan:
  nodes:
    - { id: send, kind: tool, tool: send, input: { cents: "{{ message }}" } }
"#;

/// Nobody outside is ever asked.
struct Nobody;

impl Tools for Nobody {
    fn call(&self, _call: ToolCall) -> Boxed<'_, ToolOutcome> {
        panic!("no tool is called by the server")
    }
}

impl Models for Nobody {
    fn complete<'a>(&'a self, _request: ModelRequest, _heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        panic!("no model is asked by the server")
    }

    fn knows(&self, _model: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The test bed.
pub(crate) struct Bed {
    pub(crate) clock: ManualClock,
    pub(crate) router: Router,
    pub(crate) state: AppState,
    pub(crate) store: Arc<dyn Store>,
}

/// An answer, read to its end.
pub(crate) struct Reply {
    pub(crate) body: Value,
    pub(crate) headers: HeaderMap,
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Reply {
    /// Holds the answer to be a problem of a code, and gives what it says.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> &str {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["type"], format!("urn:aetheris:problem:{code}"));
        assert!(self.body["title"].is_string());
        self.body["detail"].as_str().unwrap()
    }

    /// Holds the answer to be of a status, and gives its value.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> &Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/json");
        &self.body
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        Self::on(clock, store, |state| state)
    }

    pub(crate) fn on(clock: ManualClock, store: Arc<dyn Store>, change: impl FnOnce(AppState) -> AppState) -> Self {
        let runtime = Runtime {
            in_flight: aetheris_runtime::InFlight::default(),
            loads: aetheris_runtime::Loads::default(),
            models: Arc::new(Nobody),
            plans: Plans::default(),
            scope: Scope::System,
            settings: Arc::new(Settings::default()),
            store: Arc::clone(&store),
            system: System { clock: Arc::new(clock.clone()), ids: Arc::new(SystemIds) },
            tools: Arc::new(Nobody),
        };
        let state = change(AppState::new(runtime));
        Self { clock, router: aetheris_server::router(state.clone()), state, store }
    }

    /// A bed with the agents of the tests.
    pub(crate) async fn with_agents() -> Self {
        let bed = Self::new();
        for (name, file) in [("approve", APPROVE), ("pay", PAY)] {
            bed.call("PUT", &format!("/api/agents/{name}"), file).await.is(201);
        }
        bed
    }

    /// The same for a server of so many connections.
    pub(crate) async fn few_connections(connections_max: usize) -> Self {
        let bed = Self::with_agents().await;
        Self::on(bed.clock, bed.store, |state| AppState { connections_max, ..state })
    }

    pub(crate) async fn raw(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: impl Into<Body>) -> Reply {
        self.call_with(method, path, &[], body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, Body::empty()).await
    }

    pub(crate) async fn call_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.raw(request.body(body.into()).unwrap()).await;
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Reply { body, headers: parts.headers, status: parts.status, text }
    }

    /// Sends a message; the job's id.
    pub(crate) async fn send(&self, agent: &str, message: &str) -> String {
        let body = format!(r#"{{"message": {message}}}"#);
        let reply = self.call("POST", &format!("/api/agents/{agent}/message"), body).await;
        let answer = reply.is(202);
        assert_eq!(answer["status"], "pending");
        answer["job_id"].as_str().unwrap().to_owned()
    }

    /// A job of `approve` that waits for `ok-7`.
    pub(crate) async fn waiting(&self) -> String {
        let job = self.send("approve", r#"{"order": 7}"#).await;
        self.claim().await.wait("ask", "ok-7").await;
        job
    }

    /// A job of `pay` whose call is in doubt and waits for an operator; with its invocation.
    pub(crate) async fn doubted(&self) -> (String, String) {
        let job = self.send("pay", "5").await;
        let key = self.claim().await.doubt("send").await;
        (job, key.to_string())
    }

    /// Plays a worker that takes the next job.
    pub(crate) async fn claim(&self) -> Hand {
        let ids = ClaimIds {
            attempt: AttemptId::from_u128(SystemIds.secret()),
            event: EventId::from_u128(SystemIds.secret()),
        };
        let request = ClaimRequest {
            ids: vec![ids],
            instance: InstanceId::from_u128(1),
            linger: Span::ZERO,
            ttl: Span::from_secs(30),
            worker: WorkerId::from("w1"),
        };
        let claimed = self.store.claim(request).await.unwrap().pop().expect("a claimable job");
        Hand { fence: claimed.fence, job: claimed.job, store: Arc::clone(&self.store) }
    }
}

/// A worker's hand on one job.
pub(crate) struct Hand {
    fence: Fence,
    pub(crate) job: JobId,
    store: Arc<dyn Store>,
}

impl Hand {
    /// Writes what is drafted.
    pub(crate) async fn write(&self, purpose: Purpose, fill: impl FnOnce(&mut Draft)) {
        let loaded = Loaded::read(self.store.as_ref(), &Scope::System, self.job).await.unwrap();
        let mut draft = Draft::new(loaded.state, Guard::Run(self.fence), loaded.checkpoint);
        fill(&mut draft);
        let id = EventId::from_u128(SystemIds.secret());
        draft::write(self.store.as_ref(), || draft.unit(purpose, id)).await.unwrap();
    }

    pub(crate) async fn push(&self, events: impl IntoIterator<Item = Event>) {
        self.write(Purpose::Record, |draft| {
            for event in events {
                draft.push(&SystemIds, event).unwrap();
            }
        })
        .await;
    }

    /// Parks the job for a person, for a day.
    pub(crate) async fn wait(&self, node: &str, key: &str) {
        let node = StepPath::from(node);
        self.write(Purpose::Block, |draft| {
            draft.push(&SystemIds, NodeStarted::new(node.clone(), 1)).unwrap();
            let waiting = JobWaiting {
                correlation_key: Some(key.to_owned()),
                doubt: false,
                node: node.clone(),
                park: true,
                reason: Some("Please look".to_owned()),
                wait_type: WaitType::Human,
            };
            draft.push(&SystemIds, waiting).unwrap();
            let day = Span::from_secs(86_400).micros();
            draft.push(&SystemIds, TimerSet { after_us: day, timer: TimerId::Wait(node) }).unwrap();
            draft.release();
        })
        .await;
    }

    /// Ends a node well; with an output where it is given, else with its signal's payload.
    pub(crate) async fn finish(&self, node: &str, output: Option<Value>) {
        self.push([finished(node, output).into()]).await;
    }

    /// Runs a plain node.
    pub(crate) async fn run(&self, node: &str, output: Value) {
        self.push([started(node).into(), finished(node, Some(output)).into()]).await;
    }

    /// Completes the job with a node's output.
    pub(crate) async fn complete(&self, node: &str) {
        self.write(Purpose::Finish, |draft| {
            draft.push(&SystemIds, JobCompleted { answer: Answer::Node(NodeId::from(node)) }).unwrap();
            draft.release();
        })
        .await;
    }

    /// Takes the permission for a call that must not be repeated.
    pub(crate) async fn permit(&self, node: &str) -> Settle {
        self.permit_of(EffectClass::AtMostOnce, node).await
    }

    async fn permit_of(&self, class: EffectClass, node: &str) -> Settle {
        let input = Json::new(serde_json::json!({ "cents": 5 }));
        let (key, permit_id) =
            (IdempotencyKey::derive(self.job, &StepPath::from(node), 0), PermitId::from_u128(SystemIds.secret()));
        let lifetime = Span::from_secs(60);
        let (node, tool) = (StepPath::from(node), ToolName::from("send"));
        let request = PermitRequest {
            class,
            input_hash: input.hash(),
            key,
            lifetime,
            node: node.clone(),
            permit: 1,
            permit_id,
            tool: tool.clone(),
        };
        let event = ToolInvocationStarted {
            effect: class,
            input: Some(input),
            key,
            lifetime_us: lifetime.micros(),
            node: node.clone(),
            permit: 1,
            permit_id,
            tool,
            tool_version: Some("2".to_owned()),
        };
        self.write(Purpose::Permit, |draft| {
            draft.push(&SystemIds, NodeStarted::new(node, 1)).unwrap();
            draft.add(&SystemIds, Fact::with_ledger(event, LedgerWrite::Permit(request))).unwrap();
        })
        .await;
        Settle { key, permit_id, trigger: LedgerTrigger::Commit }
    }

    /// Calls, with success.
    pub(crate) async fn called(&self, node: &str, result: Value) -> IdempotencyKey {
        let settle = self.permit(node).await;
        let result = Json::new(result);
        let command = CommandCommitted { node: StepPath::from(node), result_hash: result.hash() };
        let effect = NewEffect { key: settle.key, permit: 1, permit_id: settle.permit_id, result };
        let done = ToolInvocationFinished {
            error: None,
            node: StepPath::from(node),
            outcome: InvocationOutcome::Committed,
            permit: 1,
            source: Source::Executed,
        };
        let end = NodeFinished { result: StepResult::SideEffectCommitted, ..finished(node, None) };
        self.write(Purpose::Record, |draft| {
            draft.add(&SystemIds, Fact::with_effect(done, effect, LedgerWrite::Settle(settle))).unwrap();
            draft.push(&SystemIds, command).unwrap();
            draft.push(&SystemIds, end).unwrap();
        })
        .await;
        settle.key
    }

    /// Calls what may be called again, and does not hear what became of it: the next try is far off, or there is none
    /// and the job fails.
    pub(crate) async fn unheard(&self, node: &str, again: bool) -> IdempotencyKey {
        let settle = self.permit_of(EffectClass::Idempotent, node).await;
        let settled = |trigger| LedgerWrite::Settle(Settle { trigger, ..settle });
        let error = Failure::new("timeout", "the answer was lost");
        let done = ToolInvocationFinished {
            error: Some(error.clone()),
            node: StepPath::from(node),
            outcome: InvocationOutcome::InDoubt,
            permit: 1,
            source: Source::Executed,
        };
        let hour = Span::from_secs(3_600).micros();
        let purpose = if again { Purpose::Requeue } else { Purpose::Finish };
        self.write(purpose, |draft| {
            draft.add(&SystemIds, Fact::with_ledger(done, settled(LedgerTrigger::Doubt))).unwrap();
            if again {
                let retry = NodeRetryScheduled { after_us: hour, error, model: None, node: StepPath::from(node) };
                draft.push(&SystemIds, retry).unwrap();
                draft.push(&SystemIds, JobRequeued { after_us: Some(hour), reason: RequeueReason::Retry }).unwrap();
            } else {
                let result = StepResult::RetryableFailure;
                let end = NodeFinished { error: Some(error.clone()), result, ..finished(node, None) };
                draft.add(&SystemIds, Fact::with_ledger(end, settled(LedgerTrigger::GiveUp))).unwrap();
                draft.push(&SystemIds, JobFailed { error, node: Some(StepPath::from(node)) }).unwrap();
            }
            draft.release();
        })
        .await;
        settle.key
    }

    /// Calls, does not hear what became of it, and has waited by the tool's policy.
    pub(crate) async fn doubt_and_wait(&self, node: &str) {
        self.doubt(node).await;
        let done = WaitCompleted { by: WaitEnd::Time, node: StepPath::from(node) };
        let loaded = Loaded::read(self.store.as_ref(), &Scope::System, self.job).await.unwrap();
        let mut draft = Draft::new(loaded.state, Guard::Outside, loaded.checkpoint);
        draft.push(&SystemIds, done).unwrap();
        draft::write(self.store.as_ref(), || draft.unit(Purpose::Timer, EventId::from_u128(SystemIds.ordered())))
            .await
            .unwrap();
    }

    /// Calls, and does not hear what became of it.
    pub(crate) async fn doubt(&self, node: &str) -> IdempotencyKey {
        let settle = self.permit(node).await;
        self.lost(node, settle).await
    }

    /// Does not hear what became of a call, and waits for an operator.
    pub(crate) async fn lost(&self, node: &str, call: Settle) -> IdempotencyKey {
        let waiting = JobWaiting {
            correlation_key: None,
            doubt: true,
            node: StepPath::from(node),
            park: true,
            reason: Some("an operator is to say what became of the call".to_owned()),
            wait_type: WaitType::Human,
        };
        self.lose(call, node, waiting.into()).await
    }

    /// Does not hear what became of a call, and pauses, as somebody has asked meanwhile, before its policies have begun.
    pub(crate) async fn doubt_and_pause(&self, settle: Settle, node: &str) -> IdempotencyKey {
        self.lose(settle, node, JobPaused { reason: PauseReason::Operator }.into()).await
    }

    /// Loses the answer of a call and gives the job back with `then`.
    async fn lose(&self, settle: Settle, node: &str, then: Event) -> IdempotencyKey {
        let settle = Settle { trigger: LedgerTrigger::Doubt, ..settle };
        let reason = "the answer was lost".to_owned();
        let doubt = StepInDoubt { node: StepPath::from(node), permit: 1, policy: 0, reason };
        self.write(Purpose::Doubt, |draft| {
            draft.add(&SystemIds, Fact::with_ledger(doubt, LedgerWrite::Settle(settle))).unwrap();
            draft.push(&SystemIds, then).unwrap();
            draft.release();
        })
        .await;
        settle.key
    }
}

/// A job with so many outputs of 300 KiB.
pub(crate) async fn large_job(bed: &Bed, nodes: usize) -> String {
    let plan: String = (0..nodes).map(|n| format!("    - {{ id: n{n}, kind: transform, output: 1 }}\n")).collect();
    bed.call("PUT", "/api/agents/large", format!("agent: large\nplan:\n  nodes:\n{plan}")).await.is(201);
    let job = bed.send("large", "1").await;
    let hand = bed.claim().await;
    for n in 0..nodes {
        hand.run(&format!("n{n}"), "x".repeat(300 * 1024).into()).await;
    }
    job
}

pub(crate) fn started(node: &str) -> NodeStarted {
    NodeStarted::new(node, 1)
}

pub(crate) fn finished(node: &str, output: Option<Value>) -> NodeFinished {
    let output = output.map(Json::new);
    NodeFinished { output, ..NodeFinished::new(node, StepResult::Success) }
}

/// The moment of the bed's beginning, and later ones.
pub(crate) fn moment(text: &str) -> Timestamp {
    text.parse().unwrap()
}
