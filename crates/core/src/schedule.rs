//! What comes next in a job: a pure function of its plan and its steps.

use crate::event::SkipReason;
use crate::id::NodeId;
use crate::path::StepPath;
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
        match next_of(state, node) {
            Some(next) => return next,
            None => *place += 1,
        }
    }
    Next::Done
}

/// What is next of one node; none where it has ended well.
fn next_of<'a>(state: &JobState, node: &'a Node) -> Option<Next<'a>> {
    match state.node_status(&node.id) {
        StepStatus::Completed | StepStatus::Skipped => None,
        StepStatus::Failed => Some(Next::Failed(&node.id)),
        StepStatus::Running | StepStatus::Retrying | StepStatus::Waiting | StepStatus::InDoubt => {
            Some(Next::Node(node))
        }
        StepStatus::Pending => {
            let skipped = |need: &NodeId| state.node_status(need) == StepStatus::Skipped;
            let orphaned = !node.needs.is_empty() && node.needs.iter().all(skipped);
            Some(if orphaned { Next::Skip(node, SkipReason::Upstream) } else { Next::Node(node) })
        }
    }
}

/// The first node that has failed, in the order of their names, if one has.
#[must_use]
pub fn failed<'a>(state: &JobState, plan: &'a CompiledPlan) -> Option<&'a NodeId> {
    let failed = state.steps.iter().filter(|(path, step)| path.is_whole() && step.status == StepStatus::Failed);
    failed.filter_map(|(path, _)| plan.node(path.node())).map(|node| &node.id).next()
}

/// Work that may go on beside each other.
#[derive(Debug, Clone, PartialEq)]
pub enum Due<'a> {
    /// These nodes: each to be started, or somewhere on its way. Where there is none, all that is left waits.
    Open(Vec<&'a Node>),
    /// As [`Next::Skip`].
    Skip(&'a Node, SkipReason),
    /// As [`Next::Failed`]: the first of the set that has, in the order of their names.
    Failed(&'a NodeId),
    /// As [`Next::Done`].
    Done,
}

/// From where on [`due`] looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The level, where steps run beside each other.
    level: usize,
    /// The place in the level; else in the execution order.
    place: usize,
}

/// Finds what may be worked on, at most so many nodes at once, and moves the cursor over what has ended. A set is a level of
/// the plan: none of the next level starts before all of this one have ended. It runs in the order of the nodes' names; one
/// with a wait or a sleep in it runs one node at a time. `waits` says which steps wait beside those that the job is blocked
/// on; neither count.
#[must_use]
pub fn due<'a>(
    state: &JobState,
    plan: &'a CompiledPlan,
    bound: usize,
    cursor: &mut Cursor,
    waits: impl Fn(&StepPath) -> bool,
) -> Due<'a> {
    let waits = |node: &Node| {
        let path = StepPath::from(&node.id);
        state.blocks.of(&path).is_some() || waits(&path)
    };
    if bound <= 1 {
        return match next(state, plan, &mut cursor.place) {
            Next::Node(node) if waits(node) => Due::Open(Vec::new()),
            Next::Node(node) => Due::Open(vec![node]),
            Next::Skip(node, reason) => Due::Skip(node, reason),
            Next::Failed(node) => Due::Failed(node),
            Next::Done => Due::Done,
        };
    }
    while let Some(level) = plan.level(cursor.level) {
        let bound = if level.one_at_a_time { 1 } else { bound };
        let (mut open, mut place, mut ended) = (Vec::new(), cursor.place, true);
        while let Some(node) = plan.node_of_level(level, place) {
            // What has begun is looked at all the same: it may have failed.
            if open.len() >= bound && state.node_status(&node.id) == StepStatus::Pending {
                break;
            }
            match next_of(state, node) {
                None => {}
                Some(Next::Skip(node, reason)) => {
                    if ended {
                        cursor.place = place;
                    }
                    return Due::Skip(node, reason);
                }
                Some(Next::Failed(node)) => return Due::Failed(node),
                Some(Next::Done) => {}
                Some(Next::Node(node)) => {
                    if ended {
                        (cursor.place, ended) = (place, false);
                    }
                    let waits = waits(node);
                    if !waits {
                        open.push(node);
                    }
                    if waits && level.one_at_a_time {
                        break;
                    }
                }
            }
            place += 1;
        }
        if !ended {
            return Due::Open(open);
        }
        *cursor = Cursor { level: cursor.level + 1, place: 0 };
    }
    Due::Done
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
            max_parallel_steps: None,
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

    fn of(nodes: &[(&str, &[&str], bool)]) -> CompiledPlan {
        let nodes = nodes.iter().map(|(id, needs, waits)| Node {
            id: (*id).into(),
            kind: if *waits { NodeKind::Sleep(crate::time::Span::ZERO) } else { NodeKind::Transform(Json::null()) },
            needs: needs.iter().map(|need| NodeId::from(*need)).collect(),
            retry: None,
            timeout: None,
            when: None,
        });
        Arc::new(Plan { nodes: nodes.collect(), ..plan().plan().clone() }).compile().unwrap()
    }

    /// What is due beside each other, in words, from one look to the next.
    fn looks(plan: &CompiledPlan, bound: usize, held: &[&str], steps: &[&[(&str, StepStatus)]]) -> Vec<String> {
        let (mut state, mut cursor) = (JobState::new(JobId::from_u128(1)), Cursor::default());
        let mut told = Vec::new();
        for changed in steps {
            for (node, status) in *changed {
                state.steps.insert(StepPath::from(*node), StepState { status: *status, ..StepState::default() });
            }
            let waits = |path: &StepPath| held.contains(&&*path.text());
            told.push(match due(&state, plan, bound, &mut cursor, waits) {
                Due::Open(nodes) => nodes.iter().map(|node| node.id.to_string()).collect::<Vec<_>>().join(" "),
                Due::Skip(node, _) => format!("skip {}", node.id),
                Due::Failed(node) => format!("failed {node}"),
                Due::Done => "done".to_owned(),
            });
        }
        told
    }

    #[test]
    fn a_set_runs_in_the_order_of_its_names_and_the_next_one_behind_all_of_it() {
        use StepStatus::{Completed, Failed, Retrying, Running, Skipped};
        // `c` is behind `b` alone, and waits for the whole set of `b` all the same.
        let plan = of(&[("b", &[], false), ("a", &[], false), ("d", &["a", "b"], false), ("c", &["b"], false)]);
        let steps: &[&[_]] =
            &[&[], &[("a", Running)], &[("b", Completed)], &[("a", Completed)], &[("c", Skipped), ("d", Completed)]];
        assert_eq!(looks(&plan, 8, &[], steps), ["a b", "a b", "a", "c d", "done"]);
        assert_eq!(looks(&plan, 2, &[], &[&[("a", Retrying), ("b", Running)]]), ["a b"]);
        // One at a time is the plan's own order.
        for bound in [0, 1] {
            assert_eq!(looks(&plan, bound, &[], steps), ["b", "b", "a", "d", "done"]);
        }
        assert_eq!(looks(&plan, 8, &[], &[&[("b", Failed)], &[("a", Failed)]]), ["failed b", "failed a"]);
        let orphan = of(&[("a", &[], false), ("b", &[], false), ("c", &["a"], false)]);
        assert_eq!(looks(&orphan, 8, &[], &[&[("a", Skipped), ("b", Completed)]]), ["skip c"]);
    }

    #[test]
    fn no_more_are_due_than_may_run_and_what_waits_does_not_count() {
        use StepStatus::{Failed, InDoubt, Retrying, Running};
        let wide = of(&[("a", &[], false), ("b", &[], false), ("c", &[], false), ("d", &[], false)]);
        assert_eq!(looks(&wide, 2, &[], &[&[]]), ["a b"]);
        assert_eq!(looks(&wide, 2, &["a"], &[&[("a", Retrying)]]), ["b c"]);
        assert_eq!(looks(&wide, 2, &["a", "b", "c", "d"], &[&[("a", InDoubt), ("b", Retrying)]]), [""]);
        // What has begun is seen beyond the bound, so that its failure is.
        assert_eq!(looks(&wide, 2, &[], &[&[("a", Running), ("b", Running), ("c", Running)]]), ["a b c"]);
        assert_eq!(looks(&wide, 2, &[], &[&[("a", Running), ("b", Running), ("c", Failed)]]), ["failed c"]);
    }

    #[test]
    fn a_set_with_a_wait_in_it_runs_one_at_a_time() {
        use StepStatus::{Completed, Waiting};
        let plan = of(&[("a", &[], false), ("b", &[], true), ("c", &[], false)]);
        let steps: &[&[_]] = &[&[], &[("a", Completed)], &[("b", Waiting)], &[("b", Completed)]];
        assert_eq!(looks(&plan, 8, &[], steps), ["a", "b", "b", "c"]);
        assert_eq!(looks(&plan, 8, &["b"], &[&[("a", Completed), ("b", Waiting)]]), [""]);
    }

    #[test]
    fn a_failure_is_due_before_anything_else() {
        let wide = of(&[("a", &[], false), ("b", &[], false), ("c", &[], false), ("d", &["c"], false)]);
        let mut state = JobState::new(JobId::from_u128(1));
        assert_eq!(failed(&state, &wide), None);
        for node in ["d", "c"] {
            let step = StepState { status: StepStatus::Failed, ..StepState::default() };
            state.steps.insert(StepPath::from(node), step);
            assert_eq!(failed(&state, &wide).map(NodeId::as_str), Some(node));
        }
        // Parts of what a node does have failures of their own.
        let mut part = JobState::new(JobId::from_u128(1));
        part.steps.insert(StepPath::from("a[0]"), state.steps[&"c".into()].clone());
        assert_eq!(failed(&part, &wide), None);
    }

    /// A node is behind the deepest of what it needs, in whatever order that is named.
    #[test]
    fn a_set_stands_behind_all_that_its_nodes_need() {
        use StepStatus::Completed;
        for needs in [&["a", "b"], &["b", "a"]] {
            let plan = of(&[("c", needs, false), ("b", &["a"], false), ("a", &[], false)]);
            let steps: &[&[_]] = &[&[], &[("a", Completed)], &[("b", Completed)], &[("c", Completed)]];
            assert_eq!(looks(&plan, 8, &[], steps), ["a", "b", "c", "done"]);
        }
    }
}
