//! What comes next in a job: a pure function of its plan and its steps.

mod items;
mod rounds;
mod turns;

pub use items::{bodies_at_once, ending};
pub use rounds::at_work;
pub use turns::{LoopEnd, Stage, may_call, stage, step_at};

use crate::event::{BranchStatus, SkipReason};
use crate::id::NodeId;
use crate::path::StepPath;
use crate::plan::{CompiledPlan, Node, Step};
use crate::state::{JobState, StepState};
use crate::step::StepStatus;

/// The next piece of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next<'a> {
    /// This node: to be started, or somewhere on its way.
    Node(&'a Node),
    /// This node is not to be run: its join cannot be met.
    Skip(&'a Node, SkipReason),
    /// This node has failed, and the job with it.
    Failed(&'a NodeId),
    /// Every node has ended, and none has failed its job.
    Done,
}

/// Finds the next piece of work, looking from one place of the execution order on, and moves that
/// place over what has ended. Nodes run one at a time in topological order.
#[must_use]
pub fn next<'a>(state: &JobState, plan: &'a CompiledPlan, place: &mut usize) -> Next<'a> {
    while let Some(node) = plan.at(*place) {
        match stands(state, node) {
            Stands::Ended => *place += 1,
            Stands::Failed => return Next::Failed(&node.id),
            Stands::Never(reason) => return Next::Skip(node, reason),
            // All before it have ended: no join is open.
            Stands::Blocked | Stands::Open => return Next::Node(node),
        }
    }
    Next::Done
}

/// How a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// What it needs does not allow it to start yet.
    Blocked,
    /// It is over, and the job goes on.
    Ended,
    /// It has failed, and the job with it.
    Failed,
    /// It is not to be run.
    Never(SkipReason),
    /// It may start, or has.
    Open,
}

fn stands(state: &JobState, node: &Node) -> Stands {
    let step = state.step_of(&node.id);
    match step.map_or(StepStatus::Pending, |step| step.status) {
        StepStatus::Completed | StepStatus::Skipped => Stands::Ended,
        StepStatus::Failed if step.is_some_and(StepState::fails_job) => Stands::Failed,
        StepStatus::Failed => Stands::Ended,
        StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt
        | StepStatus::Validating
        | StepStatus::Refining
        | StepStatus::Rejected => Stands::Open,
        StepStatus::Pending => joins(state, node),
    }
}

/// How a node stands that has not started: by its join, and by how those that it needs have ended.
fn joins(state: &JobState, node: &Node) -> Stands {
    let (mut completed, mut skipped, mut ended) = (0, 0, 0);
    for need in &node.needs {
        let stands = BranchStatus::of(state.node_status(need));
        completed += usize::from(stands == BranchStatus::Completed);
        skipped += usize::from(stands == BranchStatus::Skipped);
        ended += usize::from(stands != BranchStatus::Open);
    }
    let needs = node.needs.len();
    let Some(least) = node.join.least() else {
        return match ended {
            _ if ended < needs => Stands::Blocked,
            _ if needs > 0 && skipped == needs => Stands::Never(SkipReason::Upstream),
            _ => Stands::Open,
        };
    };
    let least = usize::try_from(least).unwrap_or(usize::MAX);
    if completed >= least {
        return Stands::Open;
    }
    if completed + (needs - ended) < least { Stands::Never(SkipReason::Join) } else { Stands::Blocked }
}

/// Whether a step has failed, and the job with it: where it is an item, its map is to end first.
#[must_use]
pub fn fails(state: &JobState) -> bool {
    state.steps.values().any(StepState::fails_job)
}

/// The first node that has failed, and the job with it, in the order of their names.
#[must_use]
pub fn failed<'a>(state: &JobState, plan: &'a CompiledPlan) -> Option<&'a NodeId> {
    let mut steps = state.steps.iter();
    let (path, _) = steps.find(|(path, step)| path.is_whole() && step.fails_job())?;
    plan.node(path.node()).map(|node| &node.id)
}

/// Work that may go on beside each other.
#[derive(Debug, Clone, PartialEq)]
pub enum Due<'a> {
    /// These steps: each to be started, or somewhere on its way. Where there is none, all that is left waits. Of a map that
    /// has begun they are its items, until it is to end itself.
    Open(Vec<Step<'a>>),
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
    /// How many of the eager nodes, in execution order, have ended.
    eager: usize,
    /// The level, where steps run beside each other.
    level: usize,
    /// The place in the level; else in the execution order.
    place: usize,
}

/// What one look has found so far.
#[derive(Default)]
struct Found<'a> {
    /// What has begun, and may go on.
    begun: Vec<&'a Node>,
    /// A node that only waits has begun to, and its job is not blocked on it yet.
    begins_to_wait: bool,
    /// Eager nodes that may begin.
    eager: Vec<&'a Node>,
    /// Nodes of the set that may begin.
    of_set: Vec<&'a Node>,
    /// Something has not ended.
    unfinished: bool,
    /// The first that may begin and does nothing but wait.
    wait: Option<&'a Node>,
}

impl<'a> Found<'a> {
    /// A node may begin or go on. Whether it begins.
    fn note(&mut self, state: &JobState, node: &'a Node, at: &StepPath, waits: bool) -> bool {
        let begins = !waits && state.node_status(&node.id) == StepStatus::Pending;
        if waits {
            // What its critic is asked is no wait.
            self.begins_to_wait |= node.work.kind.waits() && !at.is_critic() && state.blocks.of(at).is_none();
        } else if !begins {
            self.begun.push(node);
        } else if node.work.kind.waits() {
            self.wait.get_or_insert(node);
        }
        begins && !node.work.kind.waits()
    }

    /// What is to be worked on, at most so many at once: what has begun, then eager nodes, then those of the set. One that
    /// only waits begins when nothing else can, and one by one: the job is blocked on each before the next.
    fn open(self, bound: usize) -> Vec<&'a Node> {
        let mut open = self.begun;
        let room = bound.saturating_sub(open.len());
        open.extend(self.eager.into_iter().chain(self.of_set).take(room));
        if open.is_empty() && !self.begins_to_wait {
            open.extend(self.wait);
        }
        open
    }
}

/// Whether a step waits, and whether others may take its place meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It goes on.
    No,
    /// It waits aside: another item of its map may begin in its place.
    Aside,
    /// It waits in its place: what another item would begin would wait as well.
    InPlace,
}

impl From<bool> for Waits {
    fn from(waits: bool) -> Self {
        if waits { Self::Aside } else { Self::No }
    }
}

/// Finds what may be worked on, at most so many nodes at once, and moves the cursor over what has ended. A set is a level of
/// the plan: none of the next level starts before all of this one have ended. It runs in the order of the nodes' names; one
/// with a wait or a sleep in it runs one node at a time. Eager nodes ([`CompiledPlan::is_eager`]) belong to no set: each
/// starts as soon as what it needs allows, before those of the set that have not begun. Items of a map have a bound of their
/// own, and count as one node. `waits` says which steps wait beside those that the job is blocked on; neither count.
#[must_use]
pub fn due<'a, W: Into<Waits>>(
    state: &JobState,
    plan: &'a CompiledPlan,
    bound: usize,
    cursor: &mut Cursor,
    waits: impl Fn(&StepPath) -> W,
) -> Due<'a> {
    let step_waits = |path: &StepPath| match state.blocks.of(path) {
        Some(_) => Waits::Aside,
        None => waits(path).into(),
    };
    let looked_at = |node: &'a Node| {
        let at = at_work(state, plan, Step::from(node)).path;
        let has_parts = node.work.map().is_some() || node.work.agent().is_some();
        let waits =
            if has_parts { items::all_wait((state, plan), node, &step_waits) } else { step_waits(&at) != Waits::No };
        (at, waits)
    };
    let steps = |nodes: Vec<&'a Node>| {
        let mut steps = Vec::with_capacity(nodes.len());
        for node in nodes {
            items::steps_of((state, plan), node, &step_waits, &mut steps);
        }
        Due::Open(steps)
    };
    if bound <= 1 {
        return match next(state, plan, &mut cursor.place) {
            Next::Node(node) if looked_at(node).1 => Due::Open(Vec::new()),
            Next::Node(node) => steps(vec![node]),
            Next::Skip(node, reason) => Due::Skip(node, reason),
            Next::Failed(node) => Due::Failed(node),
            Next::Done => Due::Done,
        };
    }
    let mut found = Found::default();
    let first = in_levels(state, plan, bound, cursor, &looked_at, &mut found);
    match first.or_else(|| in_no_level(state, plan, bound, cursor, &looked_at, &mut found)) {
        Some(due) => due,
        None if found.unfinished => steps(found.open(bound)),
        None => Due::Done,
    }
}

/// Looks at the first level that has not ended. What is due before anything else is answered.
fn in_levels<'a>(
    state: &JobState,
    plan: &'a CompiledPlan,
    bound: usize,
    cursor: &mut Cursor,
    looked_at: &impl Fn(&'a Node) -> (StepPath, bool),
    found: &mut Found<'a>,
) -> Option<Due<'a>> {
    while let Some(level) = plan.level(cursor.level) {
        let mut place = cursor.place;
        while let Some(node) = plan.node_of_level(level, place) {
            // What has begun is looked at all the same: it may have failed.
            let full = found.begun.len() + found.of_set.len() >= bound;
            if full && state.node_status(&node.id) == StepStatus::Pending {
                break;
            }
            let stands = stands(state, node);
            // Whatever comes before it has ended.
            if !found.unfinished && stands != Stands::Ended {
                cursor.place = place;
            }
            match stands {
                Stands::Ended => {}
                Stands::Never(reason) => return Some(Due::Skip(node, reason)),
                Stands::Failed => return Some(Due::Failed(&node.id)),
                // All levels before this one have ended: no join is open.
                Stands::Blocked | Stands::Open => {
                    found.unfinished = true;
                    let (at, waits) = looked_at(node);
                    if found.note(state, node, &at, waits) {
                        found.of_set.push(node);
                    }
                    if level.one_at_a_time {
                        break;
                    }
                }
            }
            place += 1;
        }
        if found.unfinished {
            return None;
        }
        *cursor = Cursor { level: cursor.level + 1, place: 0, ..*cursor };
    }
    None
}

/// Looks at the nodes that belong to no level.
fn in_no_level<'a>(
    state: &JobState,
    plan: &'a CompiledPlan,
    bound: usize,
    cursor: &mut Cursor,
    looked_at: &impl Fn(&'a Node) -> (StepPath, bool),
    found: &mut Found<'a>,
) -> Option<Due<'a>> {
    let mut over = true;
    for node in plan.eager(cursor.eager) {
        let stands = stands(state, node);
        over &= stands == Stands::Ended;
        cursor.eager += usize::from(over);
        found.unfinished |= stands != Stands::Ended;
        match stands {
            Stands::Ended | Stands::Blocked => {}
            Stands::Never(reason) => return Some(Due::Skip(node, reason)),
            Stands::Failed => return Some(Due::Failed(&node.id)),
            Stands::Open => {
                let (at, waits) = looked_at(node);
                if found.note(state, node, &at, waits) && found.eager.len() < bound {
                    found.eager.push(node);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {

    use std::sync::Arc;

    use super::*;
    use crate::id::JobId;
    use crate::json::Json;
    use crate::path::StepPath;
    use crate::plan::{Budget, Join, NodeKind, PLAN_SCHEMA_VERSION, Plan};
    use crate::retry::RetryPolicy;

    /// `a` and `b` from nothing, `c` from both.
    fn plan() -> CompiledPlan {
        let node = |id: &str, needs: &[&str]| Node {
            needs: needs.iter().map(|need| NodeId::from(*need)).collect(),
            ..Node::new(id, NodeKind::Transform(Json::null()))
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

    fn node(id: &str, needs: &[&str], waits: bool) -> Node {
        let kind = if waits { NodeKind::Sleep(crate::time::Span::ZERO) } else { NodeKind::Transform(Json::null()) };
        Node { needs: needs.iter().map(|need| NodeId::from(*need)).collect(), ..Node::new(id, kind) }
    }

    fn made(nodes: impl Iterator<Item = Node>) -> CompiledPlan {
        Arc::new(Plan { nodes: nodes.collect(), ..plan().plan().clone() }).compile().unwrap()
    }

    fn of(nodes: &[(&str, &[&str], bool)]) -> CompiledPlan {
        made(nodes.iter().map(|(id, needs, waits)| node(id, needs, *waits)))
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
                Due::Open(steps) => steps.iter().map(|step| step.path.to_string()).collect::<Vec<_>>().join(" "),
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

    fn joined(join: Join, needs: &[&str]) -> Node {
        Node { join, ..node("j", needs, false) }
    }

    /// What becomes of a node that has not started, for each way in which those that it needs can stand.
    #[test]
    fn a_join_is_met_by_what_has_completed() {
        use StepStatus::{Completed as C, Failed as F, InDoubt, Pending, Retrying, Running, Skipped as S, Waiting};
        let (any, two) = (Join::Any, Join::Quorum(2));
        let (blocked, open) = (Stands::Blocked, Stands::Open);
        let (never, orphaned) = (Stands::Never(SkipReason::Join), Stands::Never(SkipReason::Upstream));
        for (needs, [of_all, of_any, of_two]) in [
            ([C, C, C], [open, open, open]),
            ([C, C, Running], [blocked, open, open]),
            ([C, Pending, Running], [blocked, open, blocked]),
            ([C, S, Running], [blocked, open, blocked]),
            ([C, S, F], [open, open, never]),
            ([F, F, C], [open, open, never]),
            ([F, F, Waiting], [blocked, blocked, never]),
            ([F, InDoubt, Retrying], [blocked, blocked, blocked]),
            ([F, F, S], [open, never, never]),
            ([S, S, S], [orphaned, never, never]),
        ] {
            let mut state = JobState::new(JobId::from_u128(1));
            for (name, status) in ["a", "b", "c"].into_iter().zip(needs) {
                state.steps.insert(StepPath::from(name), StepState { status, ..StepState::default() });
            }
            for (join, expected) in [(Join::All, of_all), (any, of_any), (two, of_two)] {
                assert_eq!(joins(&state, &joined(join, &["a", "b", "c"])), expected, "{join:?} of {needs:?}");
            }
        }
        let nothing = JobState::new(JobId::from_u128(1));
        assert_eq!(joins(&nothing, &node("a", &[], false)), Stands::Open);
    }

    /// An absorbed failure is an end like any other.
    #[test]
    fn an_absorbed_failure_is_an_end() {
        let plan = of(&[("a", &[], false), ("b", &[], false), ("c", &["a", "b"], false)]);
        let with = |absorbed: bool| {
            let mut state = JobState::new(JobId::from_u128(1));
            let step = StepState { absorbed, status: StepStatus::Failed, ..StepState::default() };
            state.steps.insert(StepPath::from("a"), step);
            state
        };
        let at = |state: &JobState, bound| match due(state, &plan, bound, &mut Cursor::default(), |_| false) {
            Due::Open(steps) => steps.iter().map(|step| step.path.to_string()).collect::<Vec<_>>().join(" "),
            other => format!("{other:?}"),
        };
        for bound in [1, 8] {
            assert_eq!(at(&with(true), bound), "b");
            assert_eq!(at(&with(false), bound), "Failed(a)");
        }
        assert_eq!(failed(&with(true), &plan), None);
        assert_eq!(failed(&with(false), &plan).map(NodeId::as_str), Some("a"));
    }

    /// `j` needs one of `a` and `b`, `k` stands behind it; `c` and `d` are sets of their own.
    #[test]
    fn eager_nodes_belong_to_no_set() {
        use StepStatus::{Completed, Running};
        let nodes = || {
            [
                node("a", &[], false),
                node("b", &[], false),
                joined(Join::Any, &["a", "b"]),
                node("c", &["b"], false),
                node("k", &["j"], false),
                node("d", &["c"], false),
            ]
        };
        let plan = made(nodes().into_iter());
        let steps: &[&[_]] = &[
            &[],
            &[("a", Completed), ("b", Running)],
            &[("j", Completed)],
            &[("k", Completed)],
            &[("b", Completed)],
            &[("c", Completed), ("d", Completed)],
        ];
        assert_eq!(looks(&plan, 8, &[], steps), ["a b", "b j", "b k", "b", "c", "done"]);
        // The bound is one for all of them.
        assert_eq!(looks(&plan, 2, &[], steps)[1], "b j");
        let busy: &[&[_]] = &[&[("a", Completed), ("b", Running), ("x", Running)]];
        let wide = made(nodes().into_iter().chain([node("x", &[], false)]));
        assert_eq!(looks(&wide, 2, &[], busy), ["b x"]);
        // One at a time is the plan's own order.
        assert_eq!(looks(&plan, 1, &[], &[&[("a", Completed)], &[("b", Completed)]]), ["b", "j"]);
    }

    /// Of two failures the one that is not absorbed counts, whatever their names.
    #[test]
    fn an_absorbed_failure_hides_no_other() {
        let wide = of(&[("a", &[], false), ("b", &[], false), ("c", &[], false)]);
        let mut state = JobState::new(JobId::from_u128(1));
        for (id, absorbed) in [("a", true), ("b", false), ("c", false)] {
            let step = StepState { absorbed, status: StepStatus::Failed, ..StepState::default() };
            state.steps.insert(StepPath::from(id), step);
        }
        assert_eq!(failed(&state, &wide).map(NodeId::as_str), Some("b"));
        assert_eq!(due(&state, &wide, 8, &mut Cursor::default(), |_| false), Due::Failed(&"b".into()));
    }

    /// What is behind a race by any of its needs is eager, and one that ends before an older one hides it from no look.
    #[test]
    fn every_eager_node_is_looked_at_until_it_has_ended() {
        use StepStatus::{Completed, Running};
        let nodes = [
            node("a", &[], false),
            node("b", &[], false),
            joined(Join::Any, &["a", "b"]),
            Node { join: Join::Any, ..node("i", &["a", "b"], false) },
            node("k", &["a", "j"], false),
        ];
        let plan = made(nodes.into_iter());
        let eager: Vec<&str> =
            ["a", "b", "i", "j", "k"].into_iter().filter(|id| plan.is_eager(&(*id).into())).collect();
        assert_eq!(eager, ["i", "j", "k"]);
        let steps: &[&[_]] = &[
            &[("a", Completed), ("b", Completed)],
            &[("j", Running), ("i", Completed)],
            &[],
            &[("j", Completed)],
            &[("k", Completed)],
        ];
        assert_eq!(looks(&plan, 8, &[], steps), ["j i", "j", "j", "k", "done"]);
    }

    /// What may begin early does, although its set has more to begin.
    #[test]
    fn eager_nodes_begin_before_those_of_the_set() {
        use StepStatus::{Completed, Running};
        let plan =
            made(["a", "b", "c", "d"].map(|id| node(id, &[], false)).into_iter().chain([joined(Join::Any, &["a"])]));
        assert_eq!(looks(&plan, 2, &[], &[&[("a", Completed)]]), ["j b"]);
        assert_eq!(looks(&plan, 2, &[], &[&[("a", Completed), ("b", Running)]]), ["b j"]);
        // A set that waits holds no eager node up.
        let plan = made([node("a", &[], false), node("b", &[], true), joined(Join::Any, &["a"])].into_iter());
        assert_eq!(looks(&plan, 8, &["b"], &[&[("a", Completed), ("b", StepStatus::Waiting)]]), ["j"]);
        assert_eq!(looks(&plan, 8, &[], &[&[("a", Completed)]]), ["j"], "who waits begins last");
        assert_eq!(looks(&plan, 8, &[], &[&[("a", Completed), ("j", Completed)]]), ["b"]);
    }

    /// A node that only waits begins when nothing else can, and one by one: the job is blocked on each before the next.
    #[test]
    fn waits_begin_last_and_one_by_one() {
        use StepStatus::{Completed, Running, Waiting};
        let wait = |id: &str, join, needs: &[&str]| Node { join, ..node(id, needs, true) };
        let nodes = [
            node("a", &[], false),
            node("b", &[], false),
            wait("w", Join::Any, &["a", "b"]),
            joined(Join::Any, &["a"]),
            wait("v", Join::Any, &["a"]),
        ];
        let plan = made(nodes.into_iter());
        let (a, j) = (("a", Completed), ("j", Completed));
        assert_eq!(looks(&plan, 8, &[], &[&[a, ("b", Running)]]), ["b j"]);
        assert_eq!(looks(&plan, 8, &[], &[&[a, ("b", Completed)]]), ["j"]);
        assert_eq!(looks(&plan, 8, &[], &[&[a, ("b", Completed), j]]), ["w"]);
        assert_eq!(looks(&plan, 8, &["b"], &[&[a, ("b", Running), j]]), ["w"]);
        assert_eq!(
            looks(&plan, 8, &["w"], &[&[a, ("b", Completed), j, ("w", Running)]]),
            [""],
            "not blocked on it yet"
        );
        let mut state = JobState::new(JobId::from_u128(1));
        for (id, status) in [a, ("b", Completed), j, ("w", Waiting)] {
            state.steps.insert(StepPath::from(id), StepState { status, ..StepState::default() });
        }
        state.blocks = [crate::state::Blocked {
            correlation_key: None,
            doubt: false,
            node: "w".into(),
            reason: None,
            seq: 4,
            since: crate::time::Timestamp::default(),
            wait_type: crate::plan::WaitType::Timer,
        }]
        .into_iter()
        .collect();
        let due = due(&state, &plan, 8, &mut Cursor::default(), |_| false);
        assert!(matches!(&due, Due::Open(nodes) if nodes.len() == 1 && nodes[0].path == "v".into()), "{due:?}");
        // A set's own wait does not begin beside one that is not in it.
        let nodes = [node("a", &[], false), wait("w", Join::Any, &["a"]), node("x", &[], true)];
        let plan = made(nodes.into_iter());
        assert_eq!(looks(&plan, 8, &["w"], &[&[a, ("w", Running)]]), [""]);
    }
}
