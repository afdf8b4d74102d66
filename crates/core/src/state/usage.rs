//! The tool calls that a job has used up: asked by budgets and told by the API, by one definition.

use super::{JobState, StepState};
use crate::path::StepPath;
use crate::plan::CompiledPlan;
use crate::schedule;

impl JobState {
    /// Tool calls so far: permits of ledger steps under which a call may have left, and tries of pure ones. A step whose
    /// budget is used up ends without beginning a try, so every try counts.
    #[must_use]
    pub fn tool_calls(&self, plan: &CompiledPlan) -> u32 {
        self.steps.keys().map(|path| self.tool_calls_of(path, plan)).fold(0, u32::saturating_add)
    }

    /// Those of one step.
    #[must_use]
    pub fn tool_calls_of(&self, path: &StepPath, plan: &CompiledPlan) -> u32 {
        let calls = |step: &StepState| {
            plan.tool_of(schedule::step_at(self, plan, path)?.work)?;
            Some(step.invocation.as_deref().map_or(step.tries, |call| call.permit.saturating_sub(call.unsent)))
        };
        self.steps.get(path).and_then(calls).unwrap_or(0)
    }
}

pub(super) const fn is_zero(count: &u32) -> bool {
    *count == 0
}

pub(super) const fn is_false(told: &bool) -> bool {
    !*told
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::event::Failure;
    use crate::id::{IdempotencyKey, JobId, PermitId};
    use crate::json::Json;
    use crate::plan::{
        Budget, EffectClass, MapNode, Node, NodeKind, OnItemFailure, PLAN_SCHEMA_VERSION, Plan, Tool, ToolKind,
    };
    use crate::retry::RetryPolicy;
    use crate::state::{Invocation, InvocationPhase, StepState};
    use crate::time::{Span, Timestamp};

    fn node(id: &str, tool: Option<&str>) -> Node {
        let kind = match tool {
            Some(tool) => NodeKind::Tool { input: Json::null(), tool: tool.into() },
            None => NodeKind::Transform(Json::null()),
        };
        Node::new(id, kind)
    }

    fn tool(effect: EffectClass) -> Tool {
        Tool::new(effect, ToolKind::Function("f".to_owned()))
    }

    fn called(permit: u32, unsent: u32) -> Option<Invocation> {
        Some(Invocation {
            answered_late: None,
            class: EffectClass::AtMostOnce,
            deadline: Timestamp::default(),
            input: Json::null(),
            key: IdempotencyKey::from_u128(1),
            lifetime: Span::ZERO,
            permit,
            permit_id: PermitId::from_u128(1),
            phase: InvocationPhase::Started,
            tool: "pay".into(),
            tool_version: None,
            unknown: 0,
            unsent,
        })
    }

    /// A budget counts what may have left: every try of a pure tool, every permit but those under which nothing left.
    #[test]
    fn calls_are_counted_over_all_tries_and_permits_that_may_have_left() {
        let pays = MapNode {
            name: "item".to_owned(),
            concurrency: 1,
            each: Box::new(node("each", Some("pay")).work),
            on_item_failure: OnItemFailure::Stop,
            over: Json::null(),
        };
        let plan = Plan {
            answer: None,
            budget: Budget::default(),
            nodes: vec![
                node("text", None),
                node("look", Some("look")),
                node("pay", Some("pay")),
                Node::new("new", NodeKind::Map(pays)),
            ],
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            max_parallel_steps: None,
            step_timeout: None,
            tools: BTreeMap::from([
                ("look".into(), tool(EffectClass::Pure)),
                ("pay".into(), tool(EffectClass::AtMostOnce)),
            ]),
        };
        let plan = Arc::new(plan).compile().unwrap();
        let mut state = JobState::new(JobId::from_u128(1));
        assert_eq!(state.tool_calls(&plan), 0);
        for (node, tries, invocation) in [("text", 50, None), ("look", 3, None), ("pay", 2, called(7, 2))] {
            state
                .steps
                .insert(node.into(), StepState { invocation: invocation.map(Box::new), tries, ..StepState::default() });
        }
        assert_eq!(state.tool_calls(&plan), 3 + 5);
        // Whatever code the tool gave its failure.
        let error = Some(Box::new(Failure::new("budget_exceeded", "the account has no calls left")));
        state.steps.insert("look".into(), StepState { error, tries: 3, ..StepState::default() });
        assert_eq!(state.tool_calls(&plan), 3 + 5);
        // Items of a map count as well; what is of no node does not, nor of one that is no map.
        let beside = [("gone", called(9, 0)), ("pay[0]", called(9, 0)), ("new", None)];
        for (path, invocation) in [("new[0]", called(1, 0)), ("new[1]", called(2, 0))].into_iter().chain(beside) {
            state.steps.insert(path.into(), StepState { invocation: invocation.map(Box::new), ..StepState::default() });
        }
        assert_eq!(state.tool_calls(&plan), 3 + 5 + 3);
    }
}
