//! What is worked on of one node: the node itself, or the items of a map that has begun.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::{Waits, at_work, turns};
use crate::id::NodeId;
use crate::limits;
use crate::path::StepPath;
use crate::plan::{AgentNode, CompiledPlan, MapNode, Node, Step};
use crate::state::{Child, ItemsState, JobState};
use crate::step::StepStatus;

/// A job and its plan.
type Job<'s, 'a> = (&'s JobState, &'a CompiledPlan);

/// The items of a map that is under way and is not to end yet.
fn under_way<'a, 's>(state: &'s JobState, node: &'a Node) -> Option<(&'a MapNode, &'s ItemsState)> {
    let map = node.work.map()?;
    let step = state.step_of(&node.id).filter(|step| step.status == StepStatus::Running)?;
    let items = step.items.as_deref().filter(|items| !items.is_over())?;
    Some((map, items))
}

/// How many items of a map are worked on at once.
fn items_at_once(map: &MapNode) -> usize {
    usize::try_from(map.concurrency).unwrap_or(usize::MAX).clamp(1, limits::PARALLEL_STEPS_MAX)
}

/// How many bodies of one node may be under way at once: of a map so many items as it says, of a loop so many calls.
#[must_use]
pub fn bodies_at_once(node: &Node) -> usize {
    let items = node.work.map().map_or(1, items_at_once);
    let work = node.work.each().unwrap_or(&node.work);
    items.saturating_mul(work.agent().map_or(1, AgentNode::calls_at_once))
}

/// The steps of a node that may be worked on: of a map those of its items that have begun and do not wait, then the next
/// ones up to its bound. Once an item's failure has ended it, all that have begun and not ended are to be given up. They are
/// added to those of other nodes.
pub(super) fn steps_of<'a>(
    (state, plan): Job<'_, 'a>,
    node: &'a Node,
    waits: &impl Fn(&StepPath) -> Waits,
    steps: &mut Vec<Step<'a>>,
) {
    let Some((map, items)) = under_way(state, node) else {
        let waits = |path: &StepPath| waits(path) != Waits::No;
        return turns::workable_parts((state, plan), at_work(state, plan, Step::from(node)), &waits, steps);
    };
    let room = left((state, plan), node, (map, items), waits, steps);
    if items.stopped_by.is_none() {
        steps.extend((items.begun..items.count).take(room).map(|item| Step::of_item(node, map, item)));
    }
}

/// Adds what can go on of the items that have begun, and says how many more may begin.
fn left<'a>(
    (state, plan): Job<'_, 'a>,
    node: &'a Node,
    (map, items): (&'a MapNode, &ItemsState),
    waits: &impl Fn(&StepPath) -> Waits,
    steps: &mut Vec<Step<'a>>,
) -> usize {
    let stopped = items.stopped_by.is_some();
    let begun = items.open.iter().map(|item| at_work(state, plan, Step::of_item(node, map, *item)));
    let mut busy = 0;
    for step in begun {
        // Others work on it: it keeps its place. Also once its map has failed it goes on when its child has ended.
        let child = state.steps.get(&step.path).and_then(|step| step.child.as_deref());
        let with_child = child.is_some_and(Child::is_awaited);
        let in_place = Cell::new(false);
        let waits = |path: &StepPath| {
            let found = waits(path);
            in_place.set(in_place.get() || found == Waits::InPlace);
            found != Waits::No && (with_child || !stopped)
        };
        let before = steps.len();
        turns::workable_parts((state, plan), step, &waits, steps);
        busy += usize::from(with_child || in_place.get() || steps.len() > before);
    }
    items_at_once(map).saturating_sub(busy)
}

/// What is left of maps and loops with which the job fails: the items and calls that are to be given up, then the maps and loops
/// themselves. Nothing else of the job goes on.
#[must_use]
pub fn ending<'a>(state: &JobState, plan: &'a CompiledPlan, waits: impl Fn(&StepPath) -> bool) -> Vec<Step<'a>> {
    let waits = |path: &StepPath| Waits::from(state.blocks.of(path).is_some() || waits(path));
    let failed = || state.steps.iter().filter(|(_, step)| step.fails_job()).map(|(path, _)| path);
    // A loop ends with its part, before the map that it is an item of.
    let loops: BTreeSet<StepPath> = failed().filter(|path| !path.is_outside_loop()).map(StepPath::of_loop).collect();
    let loops = loops.iter().filter(|path| state.step_status(path) == StepStatus::Running);
    let loops = loops.filter_map(|path| turns::step_at(state, plan, path));
    let at_all = |path: &StepPath| waits(path) != Waits::No;
    let mut left = Vec::new();
    for step in loops {
        turns::workable_parts((state, plan), step, &at_all, &mut left);
    }
    if !left.is_empty() {
        return left;
    }
    let items = failed().filter(|path| path.item().is_some());
    let nodes: BTreeSet<&NodeId> = items.map(StepPath::node).collect();
    let running = nodes.into_iter().filter(|node| state.node_status(node) == StepStatus::Running);
    for node in running.filter_map(|node| plan.node(node)) {
        steps_of((state, plan), node, &waits, &mut left);
    }
    left
}

/// Whether a node waits: all that could go on of it does, and nothing of it may begin.
pub(super) fn all_wait<'a>((state, plan): Job<'_, 'a>, node: &'a Node, waits: &impl Fn(&StepPath) -> Waits) -> bool {
    let mut steps = Vec::new();
    let Some(under_way) = under_way(state, node) else {
        steps_of((state, plan), node, waits, &mut steps);
        return steps.is_empty();
    };
    let (_, items) = under_way;
    let room = left((state, plan), node, under_way, waits, &mut steps);
    let begins = items.stopped_by.is_none() && items.begun < items.count && room > 0;
    !begins && steps.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use crate::json::Json;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use crate::plan::{Budget, NodeKind, OnItemFailure, PLAN_SCHEMA_VERSION, Plan, Work};
    use crate::retry::RetryPolicy;
    use crate::state::StepState;

    fn worked_on<'a>(job: Job<'_, 'a>, node: &'a Node, waits: &impl Fn(&StepPath) -> Waits) -> Vec<Step<'a>> {
        let mut steps = Vec::new();
        steps_of(job, node, waits, &mut steps);
        steps
    }

    fn map(concurrency: u32) -> Node {
        let each = Box::new(Work::new(NodeKind::Transform(Json::null())));
        let over = Json::null();
        let on_item_failure = OnItemFailure::Stop;
        Node::new("m", NodeKind::Map(MapNode { name: "item".to_owned(), concurrency, each, on_item_failure, over }))
    }

    fn compiled(node: &Node) -> CompiledPlan {
        let plan = Plan {
            answer: None,
            budget: Budget::default(),
            max_parallel_steps: None,
            nodes: vec![node.clone()],
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            step_timeout: None,
            tools: BTreeMap::new(),
        };
        Arc::new(plan).compile().unwrap()
    }

    /// What is worked on of a map of five items, and whether nothing of it can be.
    fn steps(node: &Node, begun: u32, open: &[u32], stopped_by: Option<u32>, waiting: &[&str]) -> (String, bool) {
        let open: BTreeSet<u32> = open.iter().copied().collect();
        let items = Some(Box::new(ItemsState { begun, collect: false, count: 5, lost_by: None, open, stopped_by }));
        let mut state = JobState::new(JobId::from_u128(1));
        state.steps.insert("m".into(), StepState { items, status: StepStatus::Running, ..StepState::default() });
        // `!` before a name: it waits in its place.
        let waits = |path: &StepPath| match path.text() {
            text if waiting.contains(&format!("!{text}").as_str()) => Waits::InPlace,
            text => Waits::from(waiting.contains(&&*text)),
        };
        let plan = compiled(node);
        let steps =
            worked_on((&state, &plan), plan.at(0).unwrap(), &waits).into_iter().map(|step| step.path.to_string());
        (steps.collect::<Vec<_>>().join(" "), all_wait((&state, &plan), node, &waits))
    }

    #[test]
    fn the_items_of_a_map_are_worked_on_in_their_order_up_to_its_bound() {
        let said = |steps: (String, bool)| steps.0;
        assert_eq!(said(steps(&map(2), 0, &[], None, &[])), "m[0] m[1]");
        assert_eq!(said(steps(&map(2), 2, &[1], None, &[])), "m[1] m[2]");
        assert_eq!(said(steps(&map(2), 2, &[0, 1], None, &[])), "m[0] m[1]");
        assert_eq!(said(steps(&map(9), 4, &[3], None, &[])), "m[3] m[4]");
        for (concurrency, worked_on) in [(0, "m[0]"), (1, "m[0]"), (u32::MAX, "m[0] m[1] m[2] m[3] m[4]")] {
            assert_eq!(said(steps(&map(concurrency), 0, &[], None, &[])), worked_on);
        }
        assert_eq!(said(steps(&map(2), 5, &[], None, &[])), "m", "it ends when they have");
        let node = map(2);
        let (state, plan) = (JobState::new(JobId::from_u128(1)), compiled(&node));
        let untouched = worked_on((&state, &plan), plan.at(0).unwrap(), &|_| Waits::No);
        assert_eq!(untouched, [Step::from(&node)], "it has not begun");
    }

    #[test]
    fn an_item_that_waits_holds_no_others_up() {
        assert_eq!(steps(&map(2), 3, &[0, 2], None, &["m[0]"]), ("m[2] m[3]".to_owned(), false));
        assert_eq!(steps(&map(2), 5, &[0, 4], None, &["m[0]"]), ("m[4]".to_owned(), false));
        assert_eq!(steps(&map(2), 5, &[0, 4], None, &["m[0]", "m[4]"]), (String::new(), true));
        assert_eq!(steps(&map(2), 4, &[0, 3], None, &["m[0]", "m[3]"]), ("m[4]".to_owned(), false));
    }

    /// What would wait as well does not begin instead; when all places wait so, the map does.
    #[test]
    fn an_item_that_waits_in_its_place_keeps_it() {
        assert_eq!(steps(&map(2), 3, &[0, 2], None, &["!m[0]"]), ("m[2]".to_owned(), false));
        assert_eq!(steps(&map(3), 3, &[0, 2], None, &["!m[0]"]), ("m[2] m[3]".to_owned(), false));
        assert_eq!(steps(&map(2), 3, &[0, 2], None, &["!m[0]", "!m[2]"]), (String::new(), true));
        assert_eq!(steps(&map(2), 3, &[0, 2], None, &["!m[0]", "m[2]"]), ("m[3]".to_owned(), false));
    }

    /// An item that is refined is at a round of it, and waits there.
    #[test]
    fn an_item_is_worked_on_in_its_round() {
        let mut node = map(2);
        if let NodeKind::Map(map) = &mut node.work.kind {
            map.each.validate = Some(Json::new(true.into()));
        }
        let items =
            ItemsState { begun: 5, collect: false, count: 5, lost_by: None, open: [1, 4].into(), stopped_by: None };
        let mut state = JobState::new(JobId::from_u128(1));
        let running = StepState { status: StepStatus::Running, ..StepState::default() };
        state.steps.insert("m".into(), StepState { items: Some(Box::new(items)), ..running.clone() });
        state.steps.insert("m[1]".into(), StepState { round: 3, status: StepStatus::Refining, ..StepState::default() });
        state.steps.insert("m[4]".into(), running);
        let plan = compiled(&node);
        let (job, node) = ((&state, &plan), plan.at(0).unwrap());
        let paths = |waits: &[&str]| {
            let waits = |path: &StepPath| Waits::from(waits.contains(&&*path.text()));
            let steps = worked_on(job, node, &waits).into_iter().map(|step| step.path.to_string());
            (steps.collect::<Vec<_>>().join(" "), all_wait(job, node, &waits))
        };
        assert_eq!(paths(&[]), ("m[1]@3 m[4]".to_owned(), false));
        assert_eq!(paths(&["m[1]@3"]), ("m[4]".to_owned(), false));
        assert_eq!(paths(&["m[1]@3", "m[4]"]), (String::new(), true));
    }

    #[test]
    fn once_a_map_has_failed_no_item_begins_and_those_under_way_end() {
        assert_eq!(steps(&map(4), 3, &[0, 2], Some(1), &["m[0]"]), ("m[0] m[2]".to_owned(), false));
        assert_eq!(steps(&map(4), 3, &[], Some(1), &[]), ("m".to_owned(), false));
    }

    /// Only what fails the job is left to be ended: a map that collects goes on with nothing.
    #[test]
    fn what_is_left_of_a_lost_map_is_its_own() {
        let (lost, collects) = (map(2), Node { id: "a".into(), ..map(2) });
        let nodes = vec![collects, lost];
        let plan = std::sync::Arc::new(crate::plan::Plan {
            answer: None,
            budget: crate::plan::Budget::default(),
            max_parallel_steps: None,
            nodes,
            retry: crate::retry::RetryPolicy::default(),
            schema_version: crate::plan::PLAN_SCHEMA_VERSION,
            step_timeout: None,
            tools: std::collections::BTreeMap::new(),
        });
        let plan = plan.compile().unwrap();
        let mut state = JobState::new(JobId::from_u128(1));
        for (node, stopped_by) in [("a", None), ("m", Some(1))] {
            let items = ItemsState {
                begun: 3,
                collect: stopped_by.is_none(),
                count: 5,
                lost_by: stopped_by,
                open: BTreeSet::from([0, 2]),
                stopped_by,
            };
            let step = StepState { items: Some(Box::new(items)), status: StepStatus::Running, ..StepState::default() };
            state.steps.insert(node.into(), step);
            let failed =
                StepState { absorbed: stopped_by.is_none(), status: StepStatus::Failed, ..StepState::default() };
            state.steps.insert(StepPath::of_item(node.into(), 1), failed);
        }
        let left: Vec<String> = ending(&state, &plan, |_| false).iter().map(|step| step.path.to_string()).collect();
        assert_eq!(left, ["m[0]", "m[2]"]);
    }
}
