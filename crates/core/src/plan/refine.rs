//! What judges the output of a node, and how often its work is done again.

use std::collections::{BTreeMap, BTreeSet};

use super::{CompiledPlan, GraphError, Node, NodeKind, Plan, Tool, Work};
use crate::id::{NodeId, ToolName};
use crate::limits;
use crate::path::StepPath;

impl Work {
    /// How often it is done again after its output was rejected.
    #[must_use]
    pub fn max_refines(&self) -> u32 {
        self.max_refines.unwrap_or(limits::REFINES_DEFAULT)
    }
}

impl Node {
    /// Whether its output, or the outputs of its items, are judged, so that they may be rejected.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        self.critic.is_some()
            || self.work.validate.is_some()
            || matches!(self.work.kind, NodeKind::Plan(_))
            || self.work.each().is_some_and(|each| each.validate.is_some())
    }
}

impl CompiledPlan {
    /// The critic that judges the output of a step: none that of an item, of a critic, or of a part of a loop.
    #[must_use]
    pub fn critic_of(&self, node: &Node, path: &StepPath) -> Option<&Node> {
        let critic =
            node.critic.as_ref().filter(|_| path.item().is_none() && !path.is_critic() && path.is_outside_loop())?;
        self.node(critic)
    }
}

impl Plan {
    /// What contradicts itself about critics and refining.
    pub(super) fn check_refining(&self, errors: &mut Vec<GraphError>) {
        let is_critic = |node: &&Node| node.work.kind.judges();
        let critics: BTreeSet<&NodeId> = self.nodes.iter().filter(is_critic).map(|node| &node.id).collect();
        for node in &self.nodes {
            let of = || node.id.clone();
            if critics.contains(&node.id) {
                let named = node.critic.is_some() || node.work.validate.is_some() || node.work.when.is_some();
                if named || !node.needs.is_empty() {
                    errors.push(GraphError::BadCritic(of()));
                }
                continue;
            }
            for need in node.needs.iter().filter(|need| critics.contains(need)) {
                errors.push(GraphError::NeedsCritic { critic: need.clone(), node: of() });
            }
            if let Some(critic) = node.critic.as_ref().filter(|critic| !critics.contains(critic)) {
                errors.push(GraphError::UnknownCritic { critic: critic.clone(), node: of() });
            }
            errors.extend(refused_rounds(node, &self.tools));
        }
    }
}

/// Why the work of a node may not be done again after its output was rejected.
#[must_use]
pub fn refused_rounds(node: &Node, tools: &BTreeMap<ToolName, Tool>) -> Vec<GraphError> {
    let works = [(&node.work, node.critic.is_some())].into_iter().chain(node.work.each().map(|each| (each, false)));
    let again = works.filter(|(work, by_critic)| (*by_critic || work.validate.is_some()) && work.max_refines() > 0);
    let refused = |(work, by_critic): (&Work, bool)| match &work.kind {
        NodeKind::Map(_) => Some(GraphError::MapRefines(node.id.clone())),
        NodeKind::Agent(_) | NodeKind::Tool { .. } if !work.refine_repeats_effect => {
            let repeats = |tool: &&ToolName| tools.get(*tool).is_some_and(|tool| tool.effect.must_not_repeat());
            let tool = work.tools().find(repeats)?;
            Some(GraphError::RepeatsEffect { by_critic, node: node.id.clone(), tool: tool.clone() })
        }
        NodeKind::Agent(_)
        | NodeKind::Condition
        | NodeKind::Critic(_)
        | NodeKind::Llm(_)
        | NodeKind::Plan(_)
        | NodeKind::Review
        | NodeKind::Rules(_)
        | NodeKind::Sleep(_)
        | NodeKind::Tool { .. }
        | NodeKind::Transform(_)
        | NodeKind::Job(_)
        | NodeKind::Wait(_) => None,
    };
    again.filter_map(refused).collect()
}
