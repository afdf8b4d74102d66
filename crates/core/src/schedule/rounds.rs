//! At which round of its work a node or an item is.

use crate::plan::{CompiledPlan, Step};
use crate::state::{JobState, StepState};

/// The step at which the work of a node or an item is: its newest round, or what its critic is asked about that.
#[must_use]
pub fn at_work<'a>(state: &JobState, plan: &'a CompiledPlan, base: Step<'a>) -> Step<'a> {
    if !base.node.is_judged() {
        return base;
    }
    let path = state.newest_round(&base.path);
    if let Some(critic) = plan.critic_of(base.node, &path)
        && state.steps.get(&path).is_some_and(StepState::waits_for_critic)
        && !state.step_status(&path.critic()).is_terminal()
    {
        return Step { path: path.critic(), work: &critic.work, ..base };
    }
    Step { path, ..base }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::event::Verdict;
    use crate::id::JobId;
    use crate::path::StepPath;
    use crate::plan::{AnswerFormat, Budget, LlmNode, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan};
    use crate::retry::RetryPolicy;
    use crate::schedule::{Cursor, Due, due};
    use crate::step::StepStatus;
    use crate::time::Span;

    /// `a`, which sleeps and is judged by `c`, and `b` beside it, which sleeps.
    fn plan() -> CompiledPlan {
        let asks = LlmNode {
            format: AnswerFormat::Json,
            max_tokens: None,
            model: "s/m".to_owned(),
            prompt: String::new(),
            schema: None,
            system: None,
            temperature: None,
        };
        let sleeps = |id: &str| Node::new(id, NodeKind::Sleep(Span::from_secs(1)));
        let judged = Node { critic: Some("c".into()), ..sleeps("a") };
        let plan = Plan {
            answer: None,
            budget: Budget::default(),
            max_parallel_steps: Some(4),
            nodes: vec![judged, sleeps("b"), Node::new("c", NodeKind::Critic(asks))],
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            step_timeout: None,
            tools: BTreeMap::new(),
        };
        Arc::new(plan).compile().unwrap()
    }

    fn state(steps: &[(&str, StepState)]) -> JobState {
        let mut state = JobState::new(JobId::from_u128(1));
        state.steps.extend(steps.iter().map(|(path, step)| (StepPath::from(*path), step.clone())));
        state
    }

    fn with(status: StepStatus) -> StepState {
        StepState { status, ..StepState::default() }
    }

    fn validating(verdict: Verdict) -> StepState {
        StepState { verdict: Some(verdict), ..with(StepStatus::Validating) }
    }

    #[test]
    fn a_node_is_at_its_newest_round_or_at_what_its_critic_says_of_that() {
        let refining = StepState { round: 2, ..with(StepStatus::Refining) };
        let done = |verdict| StepState { verdict: Some(verdict), ..with(StepStatus::Completed) };
        for (steps, at) in [
            (vec![], "a"),
            (vec![("a", with(StepStatus::Running))], "a"),
            (vec![("a", validating(Verdict::Pending))], "a/critic"),
            (vec![("a", validating(Verdict::Pending)), ("a/critic", with(StepStatus::Retrying))], "a/critic"),
            (vec![("a", validating(Verdict::Pending)), ("a/critic", done(Verdict::Reject))], "a"),
            (vec![("a", validating(Verdict::Reject))], "a"),
            (vec![("a", refining.clone()), ("a@2", with(StepStatus::Pending))], "a@2"),
            (vec![("a", refining), ("a@2", validating(Verdict::Pending))], "a@2/critic"),
        ] {
            let plan = plan();
            let step = at_work(&state(&steps), &plan, Step::from(plan.at(0).unwrap()));
            assert_eq!(step.path.text(), at);
            assert_eq!(step.work.kind.as_str(), if step.path.is_critic() { "critic" } else { "sleep" });
        }
    }

    /// Once a job is blocked on a round that waits, the next node that waits may begin.
    #[test]
    fn a_round_that_waits_holds_no_others_up() {
        let plan = plan();
        let refining = StepState { round: 1, ..with(StepStatus::Refining) };
        let state = state(&[("a", refining), ("a@1", with(StepStatus::Waiting))]);
        let waits = |path: &StepPath| *path == StepPath::from("a@1");
        let found = due(&state, &plan, 1, &mut Cursor::default(), waits);
        assert_eq!(found, Due::Open(Vec::new()), "one at a time it is its turn, and it waits");
        let found = due(&state, &plan, 1, &mut Cursor::default(), |_| false);
        assert!(matches!(found, Due::Open(steps) if steps.len() == 1 && steps[0].path.text() == "a@1"));
    }
}
