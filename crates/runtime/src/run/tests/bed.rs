//! A job of one step, asked for its decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aetheris_core::event::{Event, Failure};
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdSource, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::ledger::{LedgerRow, LedgerStatus};
use aetheris_core::plan::{
    Budget, CompiledPlan, DoubtPolicy, EffectClass, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan, Tool, ToolKind,
};
use aetheris_core::retry::{Jitter, RetryPolicy};
use aetheris_core::state::{JobState, PlanRef};
use aetheris_core::time::{Span, Timestamp};
use serde_json::json;

use crate::names;
use crate::ops::Ledger;
use crate::run::prepared::{Body, Next, Prepared, Said};
use crate::run::rows::Rows;
use crate::run::step;
use crate::run::view::View;

/// Random values: 1, 2, …
#[derive(Debug, Default)]
pub(super) struct Counted(AtomicU64);

impl IdSource for Counted {
    fn ordered(&self) -> u128 {
        self.secret()
    }

    fn secret(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::Relaxed)) + 1
    }
}

/// A job of one node `n` in a run, with what the store would know.
pub(super) struct Bed {
    pub(super) accepted_from: Option<Timestamp>,
    pub(super) budget: Budget,
    /// The rows of permits that this run was given; a run has them once it has read its job again.
    given: Ledger,
    ids: Counted,
    pub(super) rows: Rows,
    pub(super) memory: usize,
    pub(super) node: Node,
    pub(super) retry: RetryPolicy,
    pub(super) state: JobState,
    pub(super) tools: Vec<(&'static str, Tool)>,
}

pub(super) fn tool(effect: EffectClass, on_in_doubt: Vec<DoubtPolicy>) -> Tool {
    let kind = ToolKind::Function("f".to_owned());
    Tool { on_in_doubt, version: Some("2".to_owned()), ..Tool::new(effect, kind) }
}

pub(super) fn calls_tool() -> NodeKind {
    NodeKind::Tool { input: Json::new(json!({ "to": "{{ message.to }}" })), tool: "t".into() }
}

impl Bed {
    /// A job whose node is of a kind, and its tool `t` of a class.
    pub(super) fn of(kind: NodeKind, class: EffectClass) -> Self {
        let mut state = JobState::new(JobId::from_u128(7));
        state.status = JobStatus::Running;
        state.seq = 3;
        state.fence = Fence { epoch: 3, ..Fence::default() };
        state.message = Json::new(json!({ "to": "ann" }));
        state.plan = Some(PlanRef { hash: Hash::ZERO, version: 1 });
        Self {
            accepted_from: None,
            budget: Budget::default(),
            given: Ledger::new(),
            ids: Counted::default(),
            rows: Rows::default(),
            memory: 0,
            node: Node::new("n", kind),
            retry: RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() },
            state,
            tools: vec![("t", tool(class, Vec::new()))],
        }
    }

    fn plan(&self) -> CompiledPlan {
        let plan = Plan {
            answer: None,
            budget: self.budget,
            nodes: vec![self.node.clone()],
            retry: self.retry.clone(),
            schema_version: PLAN_SCHEMA_VERSION,
            max_parallel_steps: None,
            step_timeout: None,
            tools: self.tools.iter().map(|(name, tool)| ((*name).into(), tool.clone())).collect(),
        };
        Arc::new(plan).compile().unwrap()
    }

    pub(super) fn ask<T>(&self, decide: impl FnOnce(&View<'_>) -> T) -> T {
        let (plan, names) = (self.plan(), names::of(&self.state, &self.rows.effects));
        decide(&View {
            accepted_from: self.accepted_from,
            calls: self.state.tool_calls(&plan),
            drawing: Default::default(),
            fence: self.state.fence,
            ids: &self.ids,
            rows: &self.rows,
            memory: self.memory,
            judged: None,
            names: names::seen_by(&names, self.state.step_of(&self.node.id).map(|step| &step.open), None),
            node: &self.node,
            path: (&self.node.id).into(),
            plan: &plan,
            questions: 0,
            rested: false,
            state: &self.state,
            step_timeout: Span::from_secs(30),
            work: &self.node.work,
        })
    }

    /// The job is read again, as a run does that takes it over: it has the rows of all permits.
    pub(super) fn reload(&mut self) {
        self.rows.ledger.extend(std::mem::take(&mut self.given));
    }

    /// The facts of a decision become the state's. Their names, and what is next.
    pub(super) fn take(&mut self, prepared: Prepared) -> (Vec<&'static str>, Next) {
        let Prepared { facts, next, .. } = prepared;
        let mut names = Vec::new();
        let given_away = if let Next::Release(release) = &next { release.facts() } else { Vec::new() };
        for fact in facts.into_iter().chain(given_away) {
            names.push(fact.event.kind().as_str());
            self.rows.note(&fact);
            self.state.apply(&fact.event).unwrap();
            if let Event::ToolInvocationStarted(called) = &fact.event {
                let row = LedgerRow {
                    boot: None,
                    class: called.effect,
                    deadline: Timestamp::from_micros(1_000_000),
                    disproved: false,
                    fence: self.state.fence,
                    input_hash: Hash::ZERO,
                    job: self.state.id,
                    key: called.key,
                    lifetime: Some(Span::from_micros(called.lifetime_us)),
                    node: called.node.clone(),
                    permit: called.permit,
                    permit_id: called.permit_id,
                    seen: None,
                    status: LedgerStatus::Started,
                    tool: called.tool.clone(),
                    updated_at: Timestamp::default(),
                };
                self.given.insert(called.key, row);
            }
        }
        (names, next)
    }

    /// What is next of the step, drafted.
    pub(super) fn prepare(&mut self) -> (Vec<&'static str>, Next) {
        let prepared = self.ask(step::prepare).unwrap();
        self.take(prepared)
    }

    /// What a body's end means, drafted; where the try has failed, with what its retry policy says.
    pub(super) fn conclude(&mut self, said: Said) -> (Vec<&'static str>, Next) {
        let prepared = self.ask(|view| step::conclude(view, said)).unwrap();
        let (mut names, mut next) = self.take(prepared);
        while let Next::TryFailed(failed) = next {
            let more = self.ask(|view| step::after_failure(view, failed));
            let (later, then) = self.take(more);
            names.extend(later);
            next = then;
        }
        (names, next)
    }

    /// The back-off of the step is over.
    pub(super) fn rested(&mut self) {
        let now = self.state.last_at;
        if let Some(step) = self.state.steps.get_mut(&"n".into()) {
            step.retry_at = Some(now);
        }
    }

    /// What is next of a step whose block is over: the job runs again.
    pub(super) fn prepare_running(&mut self) -> (Vec<&'static str>, Next) {
        self.state.status = JobStatus::Running;
        self.prepare()
    }

    /// The body that is next.
    pub(super) fn begin(&mut self) -> Body {
        match self.prepare().1 {
            Next::Perform(body) => body,
            other => panic!("no body is next, but {other:?}"),
        }
    }

    pub(super) fn error(&self) -> Option<Failure> {
        self.state.steps.get(&"n".into()).and_then(|step| step.error.as_deref().cloned())
    }
}
