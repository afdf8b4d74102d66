//! A step as its plan describes it: where it is, and what is done there.

use super::{CompiledPlan, MapNode, Node, NodeKind, Work};
use crate::id::ToolName;
use crate::path::StepPath;

/// A node, the work for one item of a node, a further round of one of these, what a critic is asked about one, or a turn or a call
/// of a loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<'p> {
    /// The node that it is, or is a part of.
    pub node: &'p Node,
    /// Where it is.
    pub path: StepPath,
    /// What is done.
    pub work: &'p Work,
}

impl<'p> From<&'p Node> for Step<'p> {
    /// The step that is the whole node.
    fn from(node: &'p Node) -> Self {
        Self { node, path: StepPath::from(&node.id), work: &node.work }
    }
}

impl<'p> Step<'p> {
    /// The step of one item of a map.
    #[must_use]
    pub fn of_item(node: &'p Node, map: &'p MapNode, item: u32) -> Self {
        Self { node, path: StepPath::of_item(node.id.clone(), item), work: &map.each }
    }

    /// Whether its output is judged, so that it may be rejected and the work done again.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        let of_node = self.path.item().is_none() && !self.path.is_critic() && self.path.is_outside_loop();
        let by_itself = matches!(self.work.kind, NodeKind::Plan(_));
        self.work.validate.is_some() || (of_node && (self.node.critic.is_some() || by_itself))
    }

    /// Whether the job goes on over a failure of it: its node says so, or collects those of its items.
    #[must_use]
    pub fn absorbs(&self) -> bool {
        let collects = self.node.work.map().is_some_and(|map| !map.on_item_failure.is_stop());
        self.node.on_failure.absorbs() || (collects && self.path.item().is_some())
    }
}

impl CompiledPlan {
    /// The step of one path, if the plan has such a step. `called` is the tool that it calls, if it is a call of a loop; where
    /// that has none of the name that was asked for, the call is the loop's own work.
    #[must_use]
    pub fn step_of(&self, path: &StepPath, called: Option<&ToolName>) -> Option<Step<'_>> {
        let node = self.node(path.node())?;
        let work = match path.item() {
            None => &node.work,
            Some(_) => &*node.work.map()?.each,
        };
        let of_part = match path.judged() {
            Some(judged) => &self.critic_of(node, &judged)?.work,
            None => work,
        };
        let of_part = match called {
            Some(tool) => self.call_of(path.node(), tool)?,
            None => of_part,
        };
        let may_be = path.round() <= work.max_refines() && (path.is_outside_loop() || work.agent().is_some());
        may_be.then(|| Step { node, path: path.clone(), work: of_part })
    }
}
