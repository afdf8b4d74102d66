//! How many bodies may be under way beside each other: so many nodes as the plan says, of a map so many items as that says, of a
//! loop so many calls, and not more of all together than a unit has room to tell of.

use std::collections::BTreeMap;

use aetheris_core::id::NodeId;
use aetheris_core::limits;
use aetheris_core::plan::Step;
use aetheris_core::schedule;

/// The places that are taken, by node.
pub(super) struct Places {
    nodes: usize,
    taken: BTreeMap<NodeId, usize>,
    total: usize,
}

impl Places {
    pub(super) fn new(nodes: usize, taken: &BTreeMap<NodeId, usize>) -> Self {
        Self { nodes, taken: taken.clone(), total: taken.values().sum() }
    }

    pub(super) fn has_one_for(&self, step: &Step<'_>) -> bool {
        let of_node = self.taken.get(&step.node.id).copied().unwrap_or(0);
        let begun = of_node > 0 || self.taken.len() < self.nodes;
        begun && of_node < schedule::bodies_at_once(step.node) && self.total < limits::PARALLEL_STEPS_MAX
    }

    pub(super) fn take(&mut self, step: &Step<'_>) {
        *self.taken.entry(step.node.id.clone()).or_default() += 1;
        self.total += 1;
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::json::Json;
    use aetheris_core::plan::{MapNode, Node, NodeKind, OnItemFailure, Work};

    use super::*;

    fn map(id: &str, concurrency: u32) -> Node {
        let each = Box::new(Work::new(NodeKind::Transform(Json::null())));
        let on_item_failure = OnItemFailure::Stop;
        let map = MapNode { name: "item".to_owned(), concurrency, each, on_item_failure, over: Json::null() };
        Node::new(id, NodeKind::Map(map))
    }

    /// How many items of it begin where so many nodes may, beside what is under way.
    fn begin(node: &Node, nodes: usize, taken: &[(&str, usize)]) -> usize {
        let taken = taken.iter().map(|(id, count)| ((*id).into(), *count)).collect();
        let mut places = Places::new(nodes, &taken);
        let items = (0..1_000).map(|item| Step::of_item(node, node.work.map().unwrap(), item));
        items.filter(|step| places.has_one_for(step).then(|| places.take(step)).is_some()).count()
    }

    #[test]
    fn the_items_of_a_map_count_as_one_node_and_have_a_bound_of_their_own() {
        assert_eq!(begin(&map("m", 5), 1, &[]), 5);
        assert_eq!(begin(&map("m", 5), 1, &[("m", 2)]), 3);
        assert_eq!(begin(&map("m", 5), 1, &[("a", 1)]), 0);
        assert_eq!(begin(&map("m", 5), 2, &[("a", 1)]), 5);
        assert_eq!(begin(&map("m", 0), 1, &[]), 1);
    }

    #[test]
    fn no_more_are_under_way_than_a_unit_can_tell_of() {
        assert_eq!(begin(&map("m", 1_000), 8, &[]), limits::PARALLEL_STEPS_MAX);
        assert_eq!(begin(&map("m", 200), 8, &[("other", 200)]), limits::PARALLEL_STEPS_MAX - 200);
    }

    #[test]
    fn a_node_has_one_place() {
        let node = Node::new("n", NodeKind::Transform(Json::null()));
        let mut places = Places::new(2, &BTreeMap::from([("a".into(), 3)]));
        assert!(places.has_one_for(&Step::from(&node)));
        places.take(&Step::from(&node));
        assert!(!places.has_one_for(&Step::from(&node)));
        assert!(!places.has_one_for(&Step::from(&Node::new("b", NodeKind::Transform(Json::null())))));
    }
}
