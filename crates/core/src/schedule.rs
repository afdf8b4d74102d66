//! What comes next in a job: a pure function of its plan and its steps.

use crate::event::SkipReason;
use crate::id::NodeId;
use crate::plan::{CompiledPlan, Node};
use crate::state::JobState;
use crate::step::StepStatus;

/// The next piece of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next<'a> {
    /// This node: to be started, or somewhere on its way.
    Node(&'a Node),
    /// This node is not to be run, since all it needs were skipped.
    Skip(&'a Node, SkipReason),
    /// This node has failed, and the job with it.
    Failed(&'a NodeId),
    /// Every node has ended well.
    Done,
}

/// Finds the next piece of work, looking from one place of the execution order on, and moves that
/// place over what has ended. Nodes run one at a time in topological order.
#[must_use]
pub fn next<'a>(state: &JobState, plan: &'a CompiledPlan, place: &mut usize) -> Next<'a> {
    while let Some(node) = plan.at(*place) {
        match state.node_status(&node.id) {
            StepStatus::Completed | StepStatus::Skipped => *place += 1,
            StepStatus::Failed => return Next::Failed(&node.id),
            StepStatus::Running | StepStatus::Retrying | StepStatus::Waiting | StepStatus::InDoubt => {
                return Next::Node(node);
            }
            StepStatus::Pending => {
                let skipped = |need: &NodeId| state.node_status(need) == StepStatus::Skipped;
                let orphaned = !node.needs.is_empty() && node.needs.iter().all(skipped);
                return if orphaned { Next::Skip(node, SkipReason::Upstream) } else { Next::Node(node) };
            }
        }
    }
    Next::Done
}

#[cfg(test)]
mod tests {

    use std::sync::Arc;

    use super::*;
    use crate::id::JobId;
    use crate::json::Json;
    use crate::path::StepPath;
    use crate::plan::{Budget, NodeKind, PLAN_SCHEMA_VERSION, Plan};
    use crate::retry::RetryPolicy;
    use crate::state::StepState;

    /// `a` and `b` from nothing, `c` from both.
    fn plan() -> CompiledPlan {
        let node = |id: &str, needs: &[&str]| Node {
            id: id.into(),
            kind: NodeKind::Transform(Json::null()),
            needs: needs.iter().map(|need| NodeId::from(*need)).collect(),
            retry: None,
            timeout: None,
            when: None,
        };
        let plan = Plan {
            answer: None,
            budget: Budget::default(),
            nodes: vec![node("a", &[]), node("b", &[]), node("c", &["a", "b"])],
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            step_timeout: None,
            tools: std::collections::BTreeMap::new(),
        };
        Arc::new(plan).compile().unwrap()
    }

    /// What comes next after these steps, in words, and the place it leaves.
    fn after(steps: &[(&str, StepStatus)]) -> (String, usize) {
        let mut state = JobState::new(JobId::from_u128(1));
        for (node, status) in steps {
            state.steps.insert(StepPath::from(*node), StepState { status: *status, ..StepState::default() });
        }
        let (plan, mut place) = (plan(), 0);
        let next = match next(&state, &plan, &mut place) {
            Next::Node(node) => format!("node {}", node.id),
            Next::Skip(node, reason) => format!("skip {} {reason:?}", node.id),
            Next::Failed(node) => format!("failed {node}"),
            Next::Done => "done".to_owned(),
        };
        (next, place)
    }

    #[test]
    fn nodes_come_one_at_a_time_in_their_order() {
        use StepStatus::{Completed, Failed, InDoubt, Pending, Retrying, Running, Skipped, Waiting};
        assert_eq!(after(&[]), ("node a".to_owned(), 0));
        for open in [Pending, Running, Retrying, Waiting, InDoubt] {
            assert_eq!(after(&[("a", open)]), ("node a".to_owned(), 0), "{open:?}");
            assert_eq!(after(&[("a", Completed), ("b", open)]), ("node b".to_owned(), 1), "{open:?}");
        }
        assert_eq!(after(&[("a", Completed), ("b", Failed)]), ("failed b".to_owned(), 1));
        assert_eq!(after(&[("a", Completed), ("b", Skipped)]), ("node c".to_owned(), 2));
        assert_eq!(after(&[("a", Completed), ("b", Skipped), ("c", Completed)]), ("done".to_owned(), 3));
    }

    #[test]
    fn a_node_is_skipped_only_if_all_that_it_needs_was() {
        use StepStatus::{Completed, Skipped};
        assert_eq!(after(&[("a", Skipped)]).0, "node b");
        assert_eq!(after(&[("a", Skipped), ("b", Skipped)]), ("skip c Upstream".to_owned(), 2));
        assert_eq!(after(&[("a", Skipped), ("b", Completed)]).0, "node c");
    }
}
