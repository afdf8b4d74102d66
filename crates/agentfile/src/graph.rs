//! What can only be checked when all nodes are known: the graph, references, reachability.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aetheris_core::id::{NodeId, ToolName};
use aetheris_core::plan::{
    AgentNode, Budget, EffectClass, GraphError, Join, Node, NodeKind, OnFailure, PLAN_SCHEMA_VERSION, Plan, Tool,
    ToolKind, refused_rounds,
};
use aetheris_core::retry::RetryPolicy;
use aetheris_expr::{Context, Texts};

use crate::error::{Code, Errors};
use crate::nodes::Draft;
use crate::read::{shortened, suggestion};
use crate::templates::{Use, Uses};

/// Most circles that are reported of one file.
const CIRCLES_MAX: usize = 20;

/// Checks everything between nodes.
pub(crate) fn check(
    drafts: &[Draft<'_>],
    (names, tools): (&BTreeSet<&str>, &BTreeMap<ToolName, Tool>),
    uses: &Uses<'_>,
    errors: &mut Errors,
) {
    let mut graph = Graph::new(drafts);
    graph.names(drafts, names, errors);
    graph.critics(drafts, errors);
    rounds(drafts, tools, errors);
    let order = graph.circles(drafts, errors);
    graph.references(drafts, uses, order.as_deref(), errors);
    if let Some(order) = order {
        graph.unreachable(drafts, &order, errors);
    }
    literal_keys(drafts, errors);
}

struct Graph {
    /// For each draft the positions of its needs, unknown ones left out.
    edges: Vec<Vec<usize>>,
    index: BTreeMap<NodeId, usize>,
}

impl Graph {
    fn new(drafts: &[Draft<'_>]) -> Self {
        let mut index = BTreeMap::new();
        for (position, draft) in drafts.iter().enumerate() {
            if let Some((id, _)) = &draft.id {
                index.entry(id.clone()).or_insert(position);
            }
        }
        let edges = drafts
            .iter()
            .map(|draft| draft.needs.iter().filter_map(|(need, _)| index.get(need).copied()).collect())
            .collect();
        Self { edges, index }
    }

    /// The rules of the plan's own graph check, at the places of the file.
    fn names(&self, drafts: &[Draft<'_>], tools: &BTreeSet<&str>, errors: &mut Errors) {
        let nodes = drafts.iter().filter_map(|draft| {
            let (id, _) = draft.id.as_ref()?;
            Some(bare(
                id,
                draft.needs.iter().map(|(need, _)| need.clone()).collect(),
                draft.tools.iter().map(|(tool, _)| tool.clone()).collect(),
            ))
        });
        let mut found = plan(nodes.collect(), tools).compile().err().unwrap_or_default();
        let mut done = BTreeSet::new();
        found.retain(|error| done.insert(error.to_string()));
        for error in &found {
            // Looking for the places of mistakes that are not reported would only take time.
            if errors.is_full() {
                return;
            }
            match error {
                GraphError::DuplicateId(id) => {
                    let same = drafts.iter().filter_map(|draft| draft.id.as_ref()).filter(|(other, _)| other == id);
                    let first = same.clone().next().map_or(0, |(_, item)| item.line());
                    for (_, item) in same.skip(1) {
                        item.wrong(
                            errors,
                            Code::DuplicateId,
                            format!("{error}, first on line {first}: ids are unique in a plan"),
                        );
                    }
                }
                GraphError::UnknownNeed { node, need } => {
                    let names: Vec<&str> = self.index.keys().map(NodeId::as_str).collect();
                    let hint = hint(need.as_str(), &names);
                    for item in places(drafts, node).flat_map(|draft| &draft.needs).filter(|(id, _)| id == need) {
                        item.1.wrong(errors, Code::UnknownNeed, format!("{error}{hint}"));
                    }
                }
                GraphError::UnknownTool { node, tool } => {
                    let names: Vec<&str> = tools.iter().copied().collect();
                    let hint = hint(tool.as_str(), &names);
                    for item in places(drafts, node).flat_map(|draft| &draft.tools).filter(|(name, _)| name == tool) {
                        item.1.wrong(errors, Code::UnknownTool, format!("{error}{hint}"));
                    }
                }
                // Names, joins, the work for items and the tools of loops were checked before, at their places.
                GraphError::BadId(_)
                | GraphError::BadItemKind { .. }
                | GraphError::BadJoin { .. }
                | GraphError::ToolNamesClash { .. } => {}
                // Circles are looked for once more, when nothing else hides them.
                GraphError::Cycle(_) => {}
                // Critics and rounds are checked by themselves.
                GraphError::BadCritic(_)
                | GraphError::NeedsCritic { .. }
                | GraphError::UnknownCritic { .. }
                | GraphError::MapRefines(_)
                | GraphError::RepeatsEffect { .. } => {}
            }
        }
    }

    /// Reports circles one by one, opening each at one edge, until there are none. Answers the order of
    /// the nodes, unless there was a circle.
    fn circles(&mut self, drafts: &[Draft<'_>], errors: &mut Errors) -> Option<Vec<usize>> {
        let ids: Vec<NodeId> = (0..drafts.len()).map(|position| NodeId::from(position.to_string().as_str())).collect();
        for round in 0..CIRCLES_MAX {
            let nodes = self
                .edges
                .iter()
                .zip(&ids)
                .map(|(edges, id)| bare(id, edges.iter().map(|to| ids[*to].clone()).collect(), Vec::new()));
            let found = match plan(nodes.collect(), &BTreeSet::new()).compile() {
                Ok(compiled) => {
                    let order = compiled.ordered().filter_map(|node| node.id.as_str().parse().ok()).collect();
                    return (round == 0).then_some(order);
                }
                Err(found) => found,
            };
            let circle: Vec<usize> = found
                .iter()
                .find_map(|error| match error {
                    GraphError::Cycle(circle) => {
                        Some(circle.iter().filter_map(|id| id.as_str().parse().ok()).collect())
                    }
                    _ => None,
                })
                .unwrap_or_default();
            let members: BTreeSet<usize> = circle.iter().copied().collect();
            let first = *members.first()?;
            let names = circle.iter().filter_map(|at| drafts[*at].id.as_ref()).map(|(id, _)| id.clone()).collect();
            let item = drafts[first]
                .needs
                .iter()
                .find(|(need, _)| self.index.get(need).is_some_and(|at| members.contains(at)));
            let message = format!("{}: remove one of the needs", GraphError::Cycle(names));
            item.map_or(&drafts[first].item, |(_, item)| item).wrong(errors, Code::Cycle, message);
            self.edges[first].retain(|to| !members.contains(to));
        }
        None
    }

    /// Every node that a template names must exist, and be needed by the template's node, directly or
    /// through others; else what it says would depend on which came first. After a circle nobody's needs are known.
    fn references(&self, drafts: &[Draft<'_>], uses: &Uses<'_>, order: Option<&[usize]>, errors: &mut Errors) {
        let upstream = order.map(|order| self.seen(drafts, self.upstream(order)));
        let names: Vec<&str> = self.index.keys().map(NodeId::as_str).collect();
        for place in &uses.list {
            if errors.is_full() {
                return;
            }
            let mut reported = false;
            for id in &place.references.nodes {
                let message = match (self.index.get(id), place.node, &upstream) {
                    (None, _, _) => {
                        format!("refers to the node `{id}`, which is not in this plan{}", hint(id.as_str(), &names))
                    }
                    (Some(target), _, _) if drafts[*target].is_critic => {
                        format!("refers to `{id}`, which is a critic: it has no output in templates")
                    }
                    (Some(target), Some(node), _) if *target == node => "refers to its own node".to_owned(),
                    (Some(target), Some(node), Some(upstream))
                        if drafts[node].is_critic && !upstream[node].has(*target) =>
                    {
                        format!(
                            "refers to the node `{id}`, and a node that this critic judges does not need that: add `{id}` to the `needs` of each"
                        )
                    }
                    (Some(target), Some(node), Some(upstream)) if !upstream[node].has(*target) => {
                        format!(
                            "refers to the node `{id}`, which it does not need, directly or through others: add `{id}` to its `needs`"
                        )
                    }
                    _ => continue,
                };
                report(place, drafts, message, errors);
                reported = true;
            }
            if !reported {
                self.dead(place, drafts, errors);
            }
        }
    }

    /// A node whose failure fails the job is never seen to have failed: what waits for that never runs.
    fn dead(&self, place: &Use<'_>, drafts: &[Draft<'_>], errors: &mut Errors) {
        for id in &place.references.failures {
            let node = self.index.get(id).and_then(|target| drafts[*target].node.as_ref());
            if node.is_some_and(|node| node.on_failure == OnFailure::FailFast) {
                let message = format!(
                    "never holds: if `{id}` fails, the job fails with it; add `on_failure: fail_safe` to `{id}`, and its failure is seen here"
                );
                report(place, drafts, message, errors);
            }
        }
    }

    /// What each node sees: what it needs; a critic what all those see that it judges.
    fn seen(&self, drafts: &[Draft<'_>], upstream: Vec<Bits>) -> Vec<Bits> {
        let mut seen = upstream;
        for critic in (0..drafts.len()).filter(|draft| drafts[*draft].is_critic) {
            let judged = (0..drafts.len()).filter(|judged| self.critic_of(&drafts[*judged]) == Some(critic));
            let all = judged.map(|judged| seen[judged].clone()).reduce(|mut all, other| {
                all.meet(&other);
                all
            });
            seen[critic] = all.unwrap_or_else(|| seen[critic].clone());
        }
        seen
    }

    /// The position of the critic that a node names.
    fn critic_of(&self, draft: &Draft<'_>) -> Option<usize> {
        draft.critic.as_ref().and_then(|(critic, _)| self.index.get(critic)).copied()
    }

    /// A critic is named by a node, and by nobody's needs.
    fn critics(&self, drafts: &[Draft<'_>], errors: &mut Errors) {
        let is_critic = |id: &NodeId| self.index.get(id).is_some_and(|at| drafts[*at].is_critic);
        let critics = || self.index.iter().filter(|(_, at)| drafts[**at].is_critic).map(|(id, _)| id.as_str());
        for draft in drafts {
            let Some((id, _)) = &draft.id else { continue };
            if let Some((critic, item)) = draft.critic.as_ref().filter(|(critic, _)| !is_critic(critic)) {
                let error = GraphError::UnknownCritic { critic: critic.clone(), node: id.clone() };
                let other = if self.index.contains_key(critic) {
                    format!("; `{critic}` is a node of another kind")
                } else {
                    hint(critic.as_str(), &critics().collect::<Vec<_>>())
                };
                item.wrong(errors, Code::UnknownNeed, format!("{error}{other}"));
            }
            for (need, item) in draft.needs.iter().filter(|(need, _)| is_critic(need)) {
                let error = GraphError::NeedsCritic { critic: need.clone(), node: id.clone() };
                item.wrong(errors, Code::BadValue, format!("{error}: remove it"));
            }
        }
        let named: BTreeSet<usize> = drafts.iter().filter_map(|draft| self.critic_of(draft)).collect();
        for (at, draft) in drafts.iter().enumerate().filter(|(at, draft)| draft.is_critic && !named.contains(at)) {
            let id = draft.id.as_ref().map_or("", |(id, _)| id.as_str());
            // A name that is used twice was reported.
            if self.index.get(id) == Some(&at) {
                let message = format!(
                    "no node has `critic: {id}`, so it is never asked: add that to the node it should judge, or remove it"
                );
                draft.item.wrong(errors, Code::UnreachableNode, message);
            }
        }
    }

    /// For each node, all nodes that it needs, directly or through others.
    fn upstream(&self, order: &[usize]) -> Vec<Bits> {
        let mut sets = vec![Bits::new(self.edges.len()); self.edges.len()];
        for node in order {
            let mut set = std::mem::take(&mut sets[*node]);
            for need in &self.edges[*node] {
                set.add(*need);
                set.join(&sets[*need]);
            }
            sets[*node] = set;
        }
        sets
    }

    /// A node can never run when its `when` is false whatever happens, or when it has needs and none of
    /// them can ever run, or too few for its join (a node whose needs were all skipped is skipped). A `when` counts as false
    /// whatever happens if it names no node and is false without any value at hand: names other than
    /// nodes are then errors, so that the answer cannot depend on them. Nodes on a circle, or behind
    /// one, are not listed again: the circle was reported.
    ///
    /// All conditions of a file share the work of one value, so that no file holds up those behind it. Where that is
    /// used up, a node counts as one that may run: it is then skipped by every job, which is what its author wrote.
    fn unreachable(&self, drafts: &[Draft<'_>], order: &[usize], errors: &mut Errors) {
        let mut dead = vec![false; drafts.len()];
        let nothing = Context::default();
        let mut conditions = Texts::new(&nothing);
        for node in order {
            let draft = &drafts[*node];
            let never = draft.when.as_ref().filter(|(text, _)| never_holds(text, &mut conditions));
            let known = !draft.needs.is_empty() && self.edges[*node].len() == draft.needs.len();
            let alive = self.edges[*node].iter().filter(|need| !dead[**need]).count();
            let least = match draft.node.as_ref().map(|node| node.join) {
                Some(Join::Quorum(least)) => usize::try_from(least).unwrap_or(usize::MAX),
                Some(Join::All | Join::Any) | None => 1,
            };
            let behind = known && alive < least;
            dead[*node] = never.is_some() || behind;
            let (item, why) = match (never, behind) {
                (Some((_, item)), _) => (item, "its `when` is always false"),
                (None, true) if alive == 0 => (&draft.item, "none of the nodes it needs can run"),
                (None, true) => (&draft.item, "fewer of the nodes it needs can run than its `join` asks for"),
                (None, false) => continue,
            };
            let id = draft.id.as_ref().map_or("", |(id, _)| id.as_str());
            item.wrong(errors, Code::UnreachableNode, format!("node `{id}` can never run: {why}; remove it"));
        }
    }
}

/// What may not be done again is refused where it would be.
fn rounds(drafts: &[Draft<'_>], tools: &BTreeMap<ToolName, Tool>, errors: &mut Errors) {
    for (draft, node) in drafts.iter().filter_map(|draft| Some((draft, draft.node.as_ref()?))) {
        for error in refused_rounds(node, tools) {
            draft.item.wrong(errors, Code::BadValue, error.to_string());
        }
        if let Some((key, item)) = draft.same_key.as_ref().filter(|_| node.is_judged() && node.work.max_refines() > 0) {
            let message = format!(
                "each round of this wait would have the key `{}`, and a key names one wait: add `{{{{ round }}}}` to it, or write \
                 `max_refines: 0`",
                shortened(key)
            );
            item.wrong(errors, Code::DuplicateCorrelationKey, message);
        }
    }
}

fn never_holds(when: &str, conditions: &mut Texts<'_>) -> bool {
    let names_none =
        aetheris_expr::check_condition(when, aetheris_expr::Place::Plan).is_ok_and(|found| found.nodes.is_empty());
    names_none && conditions.holds(when) == Ok(false)
}

fn report(place: &Use<'_>, drafts: &[Draft<'_>], message: String, errors: &mut Errors) {
    let id = place.node.and_then(|node| drafts[node].id.as_ref());
    errors.of = id.map(|(id, _)| format!("node `{id}`"));
    errors.add(&place.path, place.line, Code::BadTemplate, message);
    errors.of = None;
}

/// Waits of one job need different keys: a signal could not tell them apart.
fn literal_keys(drafts: &[Draft<'_>], errors: &mut Errors) {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for (key, item) in drafts.iter().filter_map(|draft| draft.literal_key.as_ref()) {
        if let Some(first) = seen.get(key) {
            let message = format!("the wait on line {first} has the same key: each wait of a job needs its own");
            item.wrong(errors, Code::DuplicateCorrelationKey, message);
        } else {
            seen.insert(key, item.line());
        }
    }
}

fn places<'d, 't>(drafts: &'d [Draft<'t>], node: &'d NodeId) -> impl Iterator<Item = &'d Draft<'t>> {
    drafts.iter().filter(move |draft| draft.id.as_ref().is_some_and(|(id, _)| id == node))
}

fn hint(name: &str, names: &[&str]) -> String {
    suggestion(name, names).map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}

/// A node with nothing but what the graph check looks at.
fn bare(id: &NodeId, needs: Vec<NodeId>, tools: Vec<ToolName>) -> Node {
    let kind = NodeKind::Agent(AgentNode { tools, ..AgentNode::new("", "") });
    Node { needs, ..Node::new(id.clone(), kind) }
}

fn plan(nodes: Vec<Node>, tools: &BTreeSet<&str>) -> Arc<Plan> {
    let tool = Tool::new(EffectClass::Pure, ToolKind::Function(String::new()));
    Arc::new(Plan {
        answer: None,
        budget: Budget::default(),
        nodes,
        retry: RetryPolicy::default(),
        schema_version: PLAN_SCHEMA_VERSION,
        max_parallel_steps: None,
        step_timeout: None,
        tools: tools.iter().map(|name| (ToolName::from(*name), tool.clone())).collect(),
    })
}

/// A set of positions.
#[derive(Debug, Clone, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    fn add(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] & (1 << (at % 64)) != 0
    }

    fn meet(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine &= theirs);
    }

    fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}
