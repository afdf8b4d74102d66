//! What the decisions about a step read: what is recorded of its job, and nothing that changes while they are made.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::id::{IdSource, IdempotencyKey, PermitId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{CompiledPlan, Node, Step, Work};
use aetheris_core::retry::RetryPolicy;
use aetheris_core::state::{Invocation, JobState, StepState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::{Span, Timestamp};
use aetheris_expr::{ExprError, Scope, Texts};

use super::rows::Rows;
use super::values::Drawing;
use crate::aside::rendered;
use crate::ports::ToolCall;

/// One step of a job, with all that is drafted of it.
pub struct View<'a> {
    /// From when on the store accepts that the call in doubt has not happened, where it has refused to before.
    pub accepted_from: Option<Timestamp>,
    /// What is drawn of chance while the decision is made.
    pub drawing: Drawing,
    /// The tool calls that the job has used up, where its budget bounds them.
    pub calls: u32,
    /// The run's fence.
    pub fence: Fence,
    /// Random values: names of permits, and the jitter of back-offs.
    pub ids: &'a dyn IdSource,
    /// What is known beside the state.
    pub rows: &'a Rows,
    /// What the values that the job keeps take.
    pub memory: usize,
    /// What templates may name.
    pub names: Scope<'a>,
    /// The node that the step is, or is a part of.
    pub node: &'a Node,
    /// The step: the node, or a part of what it does.
    pub path: StepPath,
    /// The plan that the job follows.
    pub plan: &'a CompiledPlan,
    /// Questions of this run to reconcile tools.
    pub questions: u32,
    /// The delay before the step's next try has passed in this process, which has counted it from its event.
    pub rested: bool,
    /// The job, with all that is drafted.
    pub state: &'a JobState,
    /// What a critic's step is asked about.
    pub judged: Option<Json>,
    /// The time a step may take where neither node, tool nor agent says so.
    pub step_timeout: Span,
    /// What the step does.
    pub work: &'a Work,
}

impl View<'_> {
    /// The step, if anything has happened to it.
    pub(super) fn step(&self) -> Option<&StepState> {
        self.state.steps.get(&self.path)
    }

    /// Whether a try of it has begun and goes on.
    pub(super) fn is_under_way(&self) -> bool {
        self.status() == StepStatus::Running
    }

    pub(super) fn status(&self) -> StepStatus {
        self.step().map_or(StepStatus::Pending, |step| step.status)
    }

    /// Tries that have begun.
    pub(super) fn tries(&self) -> u32 {
        self.step().map_or(0, |step| step.tries)
    }

    /// The step as its plan describes it.
    pub(super) fn as_step(&self) -> Step<'_> {
        Step { node: self.node, path: self.path.clone(), work: self.work }
    }

    /// Whether its job goes on over a failure of it: its node says so, or collects those of its items.
    pub(super) fn absorbs(&self) -> bool {
        self.as_step().absorbs()
    }

    /// Whether it is an item whose map has failed: it is given up.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.is_stopped(&self.path)
    }

    /// The call of its newest permit.
    pub(super) fn invocation(&self) -> Option<&Invocation> {
        self.step().and_then(|step| step.invocation.as_deref())
    }

    /// The same of a step that was called, if its history is whole.
    pub(super) fn called(&self) -> Result<&Invocation, Failure> {
        self.invocation().ok_or_else(|| self.corrupt("it was never called"))
    }

    /// The history contradicts itself: the job fails and nothing is run.
    pub(super) fn corrupt(&self, what: &str) -> Failure {
        Failure::new("corrupt_history", format!("node `{}`: {what}", self.path))
    }

    pub(super) fn key(&self) -> IdempotencyKey {
        if aetheris_fault::planted!("key-without-node") {
            return IdempotencyKey::derive(self.state.id, &"node".into(), 0);
        }
        if aetheris_fault::planted!("key-of-the-first-round") {
            return IdempotencyKey::derive(self.state.id, &self.path.base(), 0);
        }
        if aetheris_fault::planted!("key-of-the-whole-map") {
            return IdempotencyKey::derive(self.state.id, &(&self.node.id).into(), 0);
        }
        if aetheris_fault::planted!("key-of-the-turn") && self.path.call().is_some() {
            return IdempotencyKey::derive(self.state.id, &self.path.at_turn(self.path.turn().unwrap_or(0)), 0);
        }
        IdempotencyKey::derive(self.state.id, &self.path, 0)
    }

    pub(super) fn permit_id(&self) -> PermitId {
        PermitId::from_u128(self.ids.secret())
    }

    pub(super) fn timeout(&self) -> Duration {
        self.plan.timeout_of(self.work, self.step_timeout).to_std()
    }

    /// The time a permit lives: its call's timeout and the margin in which the call must leave.
    pub(super) fn permit_lifetime(&self) -> Span {
        Span::from_std(self.timeout()).plus(limits::PERMIT_MARGIN)
    }

    pub(super) fn retry(&self) -> &RetryPolicy {
        self.plan.retry_of(self.work)
    }

    /// Renders a value whose texts are templates.
    pub(super) fn value(&self, template: &Json) -> Result<Json, ExprError> {
        self.drawing(|texts| texts.value(template))
    }

    /// Renders a list, which is rendered again in each run: nothing is drawn for it.
    pub(super) fn list(&self, template: &Json) -> Result<Json, ExprError> {
        rendered(self.names, |texts: &mut Texts<'_>| texts.value(template))
    }

    /// Renders a text.
    pub(super) fn text(&self, template: &str) -> Result<String, ExprError> {
        self.drawing(|texts| texts.render(template))
    }

    /// Whether a condition holds.
    pub(super) fn holds(&self, condition: &str) -> Result<bool, ExprError> {
        rendered(self.names, |texts: &mut Texts<'_>| texts.holds(condition))
    }

    /// The try that is next, or that is on its way.
    pub(super) fn try_number(&self) -> u32 {
        match self.status() {
            StepStatus::Pending | StepStatus::Retrying => self.tries() + 1,
            StepStatus::Running | StepStatus::Waiting | StepStatus::InDoubt => self.tries(),
            StepStatus::Validating
            | StepStatus::Refining
            | StepStatus::Completed
            | StepStatus::Failed
            | StepStatus::Skipped
            | StepStatus::Rejected => {
                aetheris_fault::unreachable!("node `{}` has ended and is started", self.path)
            }
        }
    }

    /// A call with everything that travels with it, in the step's next try or in the one on its way.
    ///
    /// # Errors
    /// The plan has no such tool.
    pub(super) fn tool_call(&self, name: &ToolName, input: Json) -> Result<ToolCall, Failure> {
        let Some(tool) = self.plan.tool(name) else {
            return Err(Failure::new("unknown_tool", format!("the plan has no tool `{name}`")));
        };
        let try_number = self.try_number();
        let mut key = self.key();
        if aetheris_fault::planted!("recall-with-new-key") {
            key = IdempotencyKey::derive(self.state.id, &self.path, try_number.saturating_sub(1));
        }
        Ok(ToolCall {
            agent: self.state.agent.clone(),
            fence: self.fence,
            input,
            job: self.state.id,
            key,
            node: self.path.clone(),
            permit: None,
            session: self.state.session.clone(),
            timeout: self.timeout(),
            tool: Arc::clone(tool),
            tool_name: name.clone(),
            try_number,
        })
    }
}
