//! What may run beside each other: levels, and eager nodes, which belong to none.

use std::collections::BTreeMap;

use super::{CompiledPlan, Node, Plan};
use crate::id::NodeId;

/// The nodes that are ready together once all before them have ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Level {
    /// In the order of their names.
    nodes: Vec<usize>,
    /// One of them waits for something outside by itself, so that they run one at a time.
    pub(crate) one_at_a_time: bool,
}

/// The levels of a plan.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Levels {
    /// Whether each node, by its position, is eager: it starts as soon as what it needs itself allows, whatever else has
    /// not ended. A node whose join is met by some of its needs is, and so is every node behind one.
    is_eager: Vec<bool>,
    /// The eager ones, in execution order.
    eager: Vec<usize>,
    list: Vec<Level>,
}

impl Levels {
    /// A node is one level behind the last of those that it needs.
    pub(super) fn of(plan: &Plan, index: &BTreeMap<NodeId, usize>, order: &[usize]) -> Self {
        let mut depths = vec![0_usize; plan.nodes.len()];
        let mut is_eager = vec![false; plan.nodes.len()];
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for position in order {
            let node = &plan.nodes[*position];
            let needs = || node.needs.iter().filter_map(|need| index.get(need));
            is_eager[*position] = !node.join.is_all() || needs().any(|need| is_eager[*need]);
            if is_eager[*position] {
                continue;
            }
            let depth = needs().map(|need| depths[*need] + 1).max().unwrap_or(0);
            depths[*position] = depth;
            levels.resize_with(levels.len().max(depth + 1), Vec::new);
            levels[depth].push(*position);
        }
        let level = |mut nodes: Vec<usize>| {
            nodes.sort_by(|a, b| plan.nodes[*a].id.cmp(&plan.nodes[*b].id));
            let one_at_a_time = nodes.iter().any(|position| plan.nodes[*position].work.kind.waits());
            Level { nodes, one_at_a_time }
        };
        let eager = order.iter().copied().filter(|position| is_eager[*position]).collect();
        Self { eager, is_eager, list: levels.into_iter().map(level).collect() }
    }
}

impl CompiledPlan {
    /// One of its levels: first those nodes that need none, then those that need only these, and so on.
    pub(crate) fn level(&self, number: usize) -> Option<&Level> {
        self.levels.list.get(number)
    }

    /// The node at one place of a level.
    pub(crate) fn node_of_level(&self, level: &Level, place: usize) -> Option<&Node> {
        level.nodes.get(place).map(|position| &self.plan.nodes[*position])
    }

    /// The eager nodes, in execution order, from one place on.
    pub(crate) fn eager(&self, from: usize) -> impl Iterator<Item = &Node> {
        self.levels.eager.get(from..).unwrap_or_default().iter().map(|position| &self.plan.nodes[*position])
    }

    /// Whether a node may start while nodes before it are open: its join asks for some of its needs, or that of a node
    /// before it does.
    #[must_use]
    pub fn is_eager(&self, node: &NodeId) -> bool {
        self.index.get(node).is_some_and(|position| self.levels.is_eager[*position])
    }
}
