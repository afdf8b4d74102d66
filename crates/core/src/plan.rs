//! The plan: everything a job needs to be executed, recorded once and named by its hash.

mod agent;
mod child;
mod doubt;
mod join;
mod levels;
mod map;
mod node;
mod planning;
mod refine;
mod step;
mod tool;

pub use agent::{AgentNode, OnLimit};
pub use child::{JobNode, OnParentEnd};
pub use doubt::{DoubtPolicy, Reconcile};
pub use join::{Join, OnFailure};
pub use map::{MapNode, OnItemFailure};
pub use node::{AnswerFormat, LlmNode, Node, NodeKind, OnDeadline, WaitNode, WaitType, Work};
pub use planning::{Graph, PlanNode, Planning, Rule};
pub use refine::refused_rounds;
pub use step::Step;
pub use tool::{EffectClass, HttpTool, HumanTool, Tool, ToolKind};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent::Calls;
use levels::Levels;
use serde::{Deserialize, Serialize};

use crate::hash::Hash;
use crate::id::{NodeId, ToolName};
use crate::json::Json;
use crate::limits;
use crate::path::PARTS;
use crate::retry::RetryPolicy;
use crate::time::Span;

/// What a job may use up at most. Exceeding it fails the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Budget {
    /// Most tokens of all model calls together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Most permissions for tool calls, further tries included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
}

/// The task graph of a job with everything it refers to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The job's result; a template. Absent: the output of the last node.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::present")]
    pub answer: Option<Json>,
    /// What the job may use up.
    #[serde(default)]
    pub budget: Budget,
    /// How many steps run beside each other; one at a time where it is 0 or 1. Absent: what the server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_steps: Option<u32>,
    /// The vertices, in the order of the file.
    pub nodes: Vec<Node>,
    /// The retry policy of nodes without their own.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// Version of this document's form.
    pub schema_version: u32,
    /// The timeout of nodes and tools without their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_timeout: Option<Span>,
    /// The tools, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<ToolName, Tool>,
}

/// The form of plan documents that this build writes and executes.
pub const PLAN_SCHEMA_VERSION: u32 = 1;

/// Why a graph cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// A node's name would be read as a step path with parts, or is none.
    #[error(
        "the id `{0}` cannot name a node: it is empty, or has one of `[`, `]`, `@` and `/`, which mark parts of a step"
    )]
    BadId(NodeId),
    /// Two nodes have one name.
    #[error("the id `{0}` is used by two nodes")]
    DuplicateId(NodeId),
    /// A need names no node.
    #[error("node `{node}` needs `{need}`, which is not a node of this plan")]
    UnknownNeed {
        /// The node.
        node: NodeId,
        /// What it names.
        need: NodeId,
    },
    /// A node waits for more than it needs, or for nothing.
    #[error("node `{node}` waits for {least} of the {needs} nodes that it needs")]
    BadJoin {
        /// How many it waits for.
        least: u32,
        /// How many it needs.
        needs: usize,
        /// The node.
        node: NodeId,
    },
    /// Nodes need each other in a circle.
    #[error("the nodes {} need each other in a circle", .0.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(" → "))]
    Cycle(Vec<NodeId>),
    /// The work that a map does for its items is of a kind that it cannot be.
    #[error("the `do` of the map `{node}` is a {kind}, which cannot be done for each item")]
    BadItemKind {
        /// What its work is.
        kind: &'static str,
        /// The node.
        node: NodeId,
    },
    /// A critic has what only other nodes have.
    #[error("the critic `{0}` can have no needs, condition, schema or critic of its own")]
    BadCritic(NodeId),
    /// A node needs one that has no output for others.
    #[error("node `{node}` needs `{critic}`, which is a critic and has no output for other nodes")]
    NeedsCritic {
        /// What it names.
        critic: NodeId,
        /// The node.
        node: NodeId,
    },
    /// The critic of a node is none.
    #[error("the critic of node `{node}` is `{critic}`, and this plan has no critic of that name")]
    UnknownCritic {
        /// What it names.
        critic: NodeId,
        /// The node.
        node: NodeId,
    },
    /// A map would be done again as a whole.
    #[error("the map `{0}` cannot be done again as a whole: write `max_refines: 0`, or `validate` inside its `do`")]
    MapRefines(NodeId),
    /// A node would do again what is done at most once.
    #[error(
        "node `{node}` calls `{tool}`, which is at_most_once, and would call it again when {} rejects its output: write \
         `max_refines: 0`, or `refine_repeats_effect: true` if it may be called again after a rejection",
        if *by_critic { "its critic" } else { "`validate`" }
    )]
    RepeatsEffect {
        /// Whether a critic may reject it; else only a schema.
        by_critic: bool,
        /// The node.
        node: NodeId,
        /// The tool.
        tool: ToolName,
    },
    /// Two tools of a loop have one name for its model.
    #[error(
        "node `{node}` may call `{tool}` and `{other}`, which are both `{}` for its model, since `.` is sent as `_`: rename one",
        AgentNode::name_for_model(tool)
    )]
    ToolNamesClash {
        /// The node.
        node: NodeId,
        /// The second tool.
        other: ToolName,
        /// The first tool.
        tool: ToolName,
    },
    /// A node calls a tool that the plan does not have.
    #[error("node `{node}` calls the tool `{tool}`, which is not defined")]
    UnknownTool {
        /// The node.
        node: NodeId,
        /// What it names.
        tool: ToolName,
    },
}

/// A plan whose graph was checked, with its execution order.
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledPlan {
    plan: Arc<Plan>,
    hash: Hash,
    order: Vec<usize>,
    calls: Calls,
    index: BTreeMap<NodeId, usize>,
    levels: Levels,
    /// The plan's tools once more, to be handed to calls.
    tools: BTreeMap<ToolName, Arc<Tool>>,
}

impl Plan {
    /// The hash of its canonical form.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(&crate::json::to_canonical(self))
    }

    /// About how much memory it takes: that of its form as a value, which every part of it has in common.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory_of(self)
    }

    /// Checks the graph and computes the execution order: topological, ties in the order of the file.
    ///
    /// # Errors
    /// All [`GraphError`]s at once.
    pub fn compile(self: &Arc<Self>) -> Result<CompiledPlan, Vec<GraphError>> {
        let mut errors = Vec::new();
        let mut index = BTreeMap::new();
        for (position, node) in self.nodes.iter().enumerate() {
            if node.id.as_str().is_empty() || node.id.as_str().contains(PARTS) {
                errors.push(GraphError::BadId(node.id.clone()));
            }
            if index.insert(node.id.clone(), position).is_some() {
                errors.push(GraphError::DuplicateId(node.id.clone()));
            }
        }
        for node in &self.nodes {
            for need in node.needs.iter().filter(|need| !index.contains_key(*need)) {
                errors.push(GraphError::UnknownNeed { node: node.id.clone(), need: need.clone() });
            }
            if let Some(least) = node.join.least()
                && !(1..=node.needs.len()).contains(&usize::try_from(least).unwrap_or(usize::MAX))
            {
                errors.push(GraphError::BadJoin { least, needs: node.needs.len(), node: node.id.clone() });
            }
            let each = node.work.each();
            if let Some(each) = each.filter(|each| !each.kind.is_for_items()) {
                errors.push(GraphError::BadItemKind { kind: each.kind.as_str(), node: node.id.clone() });
            }
            for work in [&node.work].into_iter().chain(each) {
                for tool in work.tools().filter(|tool| !self.tools.contains_key(*tool)) {
                    errors.push(GraphError::UnknownTool { node: node.id.clone(), tool: tool.clone() });
                }
                errors.extend(agent::clash(node, work));
            }
        }
        self.check_refining(&mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut order = self.topological(&index);
        if order.len() < self.nodes.len() {
            return Err(vec![GraphError::Cycle(self.find_cycle(&index, &order))]);
        }
        // A critic is asked about the outputs of others, and is nobody's next.
        order.retain(|position| !self.nodes[*position].work.kind.judges());
        let levels = Levels::of(self, &index, &order);
        let tools = self.tools.iter().map(|(name, tool)| (name.clone(), Arc::new(tool.clone()))).collect();
        Ok(CompiledPlan { hash: self.hash(), plan: Arc::clone(self), order, calls: self.calls(), index, levels, tools })
    }

    /// Kahn's algorithm; nodes on or behind a circle are left out.
    fn topological(&self, index: &BTreeMap<NodeId, usize>) -> Vec<usize> {
        let mut missing: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut dependants: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (position, node) in self.nodes.iter().enumerate() {
            let needs: BTreeSet<usize> = node.needs.iter().filter_map(|need| index.get(need).copied()).collect();
            for need in &needs {
                dependants[*need].push(position);
            }
            missing.push(needs.len());
        }
        let mut ready: BTreeSet<usize> = (0..self.nodes.len()).filter(|n| missing[*n] == 0).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(position) = ready.pop_first() {
            order.push(position);
            for dependant in &dependants[position] {
                missing[*dependant] -= 1;
                if missing[*dependant] == 0 {
                    ready.insert(*dependant);
                }
            }
        }
        order
    }

    /// Walks needs that have no place in the order until a node comes again.
    fn find_cycle(&self, index: &BTreeMap<NodeId, usize>, order: &[usize]) -> Vec<NodeId> {
        let placed: BTreeSet<usize> = order.iter().copied().collect();
        let mut path: Vec<usize> = Vec::new();
        let mut at = (0..self.nodes.len()).find(|n| !placed.contains(n));
        while let Some(position) = at {
            if let Some(start) = path.iter().position(|p| *p == position) {
                path.drain(..start);
                path.push(position);
                break;
            }
            path.push(position);
            at = self.nodes[position]
                .needs
                .iter()
                .filter_map(|need| index.get(need).copied())
                .find(|n| !placed.contains(n));
        }
        path.reverse();
        path.into_iter().map(|position| self.nodes[position].id.clone()).collect()
    }
}

fn memory_of(part: &impl Serialize) -> usize {
    serde_json::to_value(part).map_or(0, |value| Json::new(value).memory())
}

impl CompiledPlan {
    /// The plan itself.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its hash.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Its nodes in execution order.
    pub fn ordered(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.order.iter().map(|position| &self.plan.nodes[*position])
    }

    /// The node at one place of the execution order.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&Node> {
        self.order.get(place).map(|position| &self.plan.nodes[*position])
    }

    /// How many of its steps run beside each other, where the server allows so many for a plan that does not say: at least
    /// one, and [`limits::PARALLEL_STEPS_MAX`] at most.
    #[must_use]
    pub fn parallel_steps(&self, server: u32) -> usize {
        let steps = self.plan.max_parallel_steps.unwrap_or(server);
        usize::try_from(steps).unwrap_or(usize::MAX).clamp(1, limits::PARALLEL_STEPS_MAX)
    }

    /// The node of one name.
    #[must_use]
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.index.get(id).map(|position| &self.plan.nodes[*position])
    }

    /// About how much memory it takes: that of the plan, and that of its tools once more.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.plan.memory() + memory_of(&self.plan.tools)
    }

    /// The tool of one name.
    #[must_use]
    pub fn tool(&self, name: &ToolName) -> Option<&Arc<Tool>> {
        self.tools.get(name)
    }

    /// The tool that work calls, where it calls one.
    #[must_use]
    pub fn tool_of(&self, work: &Work) -> Option<(&ToolName, &Tool)> {
        match &work.kind {
            NodeKind::Tool { tool, .. } => self.plan.tools.get_key_value(tool),
            NodeKind::Agent(_)
            | NodeKind::Condition
            | NodeKind::Critic(_)
            | NodeKind::Llm(_)
            | NodeKind::Map(_)
            | NodeKind::Plan(_)
            | NodeKind::Review
            | NodeKind::Rules(_)
            | NodeKind::Sleep(_)
            | NodeKind::Transform(_)
            | NodeKind::Job(_)
            | NodeKind::Wait(_) => None,
        }
    }

    /// The retry policy that applies to work: its own, else the agent's.
    #[must_use]
    pub fn retry_of<'a>(&'a self, work: &'a Work) -> &'a RetryPolicy {
        work.retry.as_ref().unwrap_or(&self.plan.retry)
    }

    /// The time one try may take: the narrowest setting wins in the order work, tool, agent, server.
    #[must_use]
    pub fn timeout_of(&self, work: &Work, server: Span) -> Span {
        let tool = self.tool_of(work).and_then(|(_, tool)| tool.timeout);
        work.timeout.or(tool).or(self.plan.step_timeout).unwrap_or(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(edges: &[(&str, &[&str])]) -> Arc<Plan> {
        let nodes = edges
            .iter()
            .map(|(id, needs)| Node {
                needs: needs.iter().map(|n| NodeId::from(*n)).collect(),
                ..Node::new(*id, NodeKind::Transform(Json::null()))
            })
            .collect();
        Arc::new(Plan {
            answer: None,
            budget: Budget::default(),
            nodes,
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            max_parallel_steps: None,
            step_timeout: None,
            tools: BTreeMap::new(),
        })
    }

    #[test]
    fn order_is_topological_and_keeps_the_file_order_between_equals() {
        let compiled = plan(&[("d", &["b", "c"]), ("a", &[]), ("c", &["a"]), ("b", &["a"])]).compile().unwrap();
        let order: Vec<&str> = compiled.ordered().map(|n| n.id.as_str()).collect();
        assert_eq!(order, ["a", "c", "b", "d"]);
    }

    #[test]
    fn circles_unknown_needs_and_duplicates_are_named() {
        let errors = plan(&[("a", &["c"]), ("b", &["a"]), ("c", &["b"]), ("x", &["c"])]).compile().unwrap_err();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].to_string().contains("circle"), "{}", errors[0]);
        let errors = plan(&[("a", &["zz"]), ("a", &["yy"])]).compile().unwrap_err();
        assert_eq!(errors.len(), 3);
    }

    #[test]
    fn a_node_that_needs_itself_is_a_circle() {
        assert!(matches!(plan(&[("a", &["a"])]).compile().unwrap_err()[0], GraphError::Cycle(_)));
    }

    #[test]
    fn a_circle_is_shown_as_it_runs_and_without_what_leads_to_it() {
        let errors = plan(&[("x", &["c"]), ("a", &["c"]), ("b", &["a"]), ("c", &["b", "ok"]), ("ok", &[])]);
        let Err(errors) = errors.compile() else { panic!("no circle found") };
        let GraphError::Cycle(nodes) = &errors[0] else { panic!("{errors:?}") };
        let names: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
        assert_eq!(names, ["c", "a", "b", "c"]);
        assert_eq!(errors[0].to_string(), "the nodes `c` → `a` → `b` → `c` need each other in a circle");
    }

    #[test]
    fn a_need_that_is_named_twice_is_one_need() {
        let compiled = plan(&[("b", &["a", "a"]), ("a", &[])]).compile().unwrap();
        assert_eq!(compiled.ordered().map(|node| node.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(compiled.at(1).map(|node| node.id.as_str()), Some("b"));
        assert_eq!(compiled.at(2), None);
        assert_eq!(compiled.node(&"b".into()).map(|node| node.needs.len()), Some(2));
        assert_eq!(compiled.node(&"z".into()), None);
    }

    fn tool(timeout: Option<Span>) -> Tool {
        Tool { timeout, ..Tool::new(EffectClass::Pure, ToolKind::Function("f".to_owned())) }
    }

    /// Whoever looks in a person's place may have to wait longer than another.
    #[test]
    fn a_persons_word_counts_when_the_longest_of_the_list_is_over() {
        let asks = |secs: Option<u64>| {
            let settle = secs.map(Span::from_secs);
            DoubtPolicy::Reconcile(Reconcile { settle, tool: "look".into() })
        };
        let wait = DoubtPolicy::Wait(Span::from_secs(900));
        for (list, settle) in [
            (vec![], limits::SETTLE_DEFAULT),
            (vec![DoubtPolicy::Human, wait.clone(), DoubtPolicy::Fail], limits::SETTLE_DEFAULT),
            (vec![asks(Some(5))], Span::from_secs(5)),
            (vec![wait, asks(Some(5)), asks(Some(90)), asks(Some(7)), DoubtPolicy::Human], Span::from_secs(90)),
            (vec![asks(Some(5)), asks(None)], limits::SETTLE_DEFAULT),
        ] {
            assert_eq!(Tool { on_in_doubt: list.clone(), ..tool(None) }.settle(), settle, "{list:?}");
        }
    }

    /// Its step would be read as a part of another node's.
    #[test]
    fn a_node_is_not_named_like_a_part_of_a_step() {
        for id in ["", "a[0]", "a]", "a@1", "a/0.0", "/"] {
            let errors = plan(&[(id, &[]), ("b", &[])]).compile().unwrap_err();
            assert_eq!(errors, [GraphError::BadId(id.into())]);
        }
    }

    #[test]
    fn a_tool_that_is_not_defined_is_named() {
        let mut graph = Plan::clone(&plan(&[("a", &[])]));
        graph.nodes[0].work.kind = NodeKind::Tool { input: Json::null(), tool: "t".into() };
        let missing = GraphError::UnknownTool { node: "a".into(), tool: "t".into() };
        assert_eq!(Arc::new(graph.clone()).compile().unwrap_err(), [missing]);
        graph.tools.insert("t".into(), tool(None));
        let compiled = Arc::new(graph.clone()).compile().unwrap();
        let expected = ("t".into(), tool(None));
        assert_eq!(compiled.tool_of(&graph.nodes[0].work), Some((&expected.0, &expected.1)));
        assert_eq!(
            (compiled.tool(&"t".into()).map(Arc::as_ref), compiled.tool(&"u".into())),
            (Some(&expected.1), None)
        );
        let plain = plan(&[("a", &[])]).compile().unwrap();
        assert_eq!(plain.tool_of(&plain.plan().nodes[0].work), None);
    }

    #[test]
    fn the_narrowest_setting_holds() {
        let secs = Span::from_secs;
        let mut graph = Plan::clone(&plan(&[("a", &[])]));
        graph.nodes[0].work.kind = NodeKind::Tool { input: Json::null(), tool: "t".into() };
        graph.tools.insert("t".into(), tool(None));
        let timeout = |graph: &Plan| {
            let compiled = Arc::new(graph.clone()).compile().unwrap();
            compiled.timeout_of(&graph.nodes[0].work, secs(4))
        };
        assert_eq!(timeout(&graph), secs(4));
        graph.step_timeout = Some(secs(3));
        assert_eq!(timeout(&graph), secs(3));
        graph.tools.insert("t".into(), tool(Some(secs(2))));
        assert_eq!(timeout(&graph), secs(2));
        graph.nodes[0].work.timeout = Some(secs(1));
        assert_eq!(timeout(&graph), secs(1));
        let compiled = Arc::new(graph.clone()).compile().unwrap();
        assert_eq!(compiled.retry_of(&graph.nodes[0].work), &graph.retry);
        let own = RetryPolicy { max_attempts: 9, ..RetryPolicy::default() };
        graph.nodes[0].work.retry = Some(own.clone());
        assert_eq!(compiled.retry_of(&graph.nodes[0].work), &own);
    }

    #[test]
    fn a_plan_is_named_by_the_hash_of_its_canonical_form() {
        let (one, other) = (plan(&[("a", &[])]), plan(&[("b", &[])]));
        assert_eq!(one.hash(), Hash::of(&crate::json::to_canonical(&one)));
        assert_ne!(one.hash(), other.hash());
        assert_eq!(one.compile().unwrap().hash(), one.hash());
    }

    #[test]
    fn classes_types_and_kinds_have_their_names() {
        use EffectClass::{AtMostOnce, Idempotent, Pure};
        for class in [Pure, Idempotent, AtMostOnce] {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
            assert_eq!(class.is_ledger(), class != Pure);
        }
        for wait in [WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook] {
            assert_eq!(serde_json::to_value(wait).unwrap(), wait.as_str());
        }
        assert_eq!(NodeKind::Condition.as_str(), "condition");
        assert_eq!(NodeKind::Sleep(Span::ZERO).as_str(), "sleep");
    }
}
