//! Who makes the plans of an agent, and what all of them have: the planner's keys, and the graphs that a file or a model brings.

use std::collections::BTreeMap;
use std::sync::Arc;

use aetheris_core::agent::Planner;
use aetheris_core::id::ToolName;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{
    Budget, Graph, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan, PlanNode, Planning, Rule, Tool, Work,
};
use aetheris_core::retry::RetryPolicy;
use aetheris_expr::{Place, Standing};

use crate::error::{Code, Errors, FileError};
use crate::nodes::{self, Defaults, Draft, KIND_NAMES};
use crate::path::Path;
use crate::read::{Fields, Item, listed};
use crate::templates::{self, Uses};
use crate::tools::Tools;
use crate::{graph, settings, tree};

const PLANNERS: [(&str, Planner); 3] = [("static", Planner::Static), ("llm", Planner::Llm), ("rules", Planner::Rules)];
/// What a planner may use whose file does not say: what reaches nobody but the listed tools and its own models.
pub(crate) const KINDS_DEFAULT: [&str; 7] = ["agent", "condition", "critic", "llm", "map", "tool", "transform"];

/// What all plans of an agent have in common.
struct Frame<'t> {
    model: Option<String>,
    /// A plan without nodes.
    plan: Plan,
    tools: Tools<'t>,
}

/// Reads the planner and its plans: the plan itself, or the planning plan.
pub(crate) fn read<'t>(fields: &mut Fields<'t>, errors: &mut Errors) -> (Planner, Option<Plan>) {
    let planner = fields.take("planner").and_then(|item| item.choice(&PLANNERS, &[], errors));
    let planner = planner.unwrap_or(Planner::Static);
    let frame = frame(fields, errors);
    for (key, of) in [("plan", Planner::Static), ("planning", Planner::Llm), ("rules", Planner::Rules)] {
        if let Some(item) = (of != planner).then(|| fields.take(key)).flatten() {
            let (of, own) = (of.as_str(), planner.as_str());
            let message = format!(
                "needs `planner: {of}`, and this file's planner is `{own}`: write `planner: {of}`, or remove it"
            );
            item.wrong(errors, Code::BadValue, message);
        }
    }
    let plan = match planner {
        Planner::Static => {
            let item = fields.need("plan", errors);
            let graph = item.and_then(|item| read_graph(&item, &frame, None, errors));
            graph.map(|graph| frame.plan.with(graph))
        }
        Planner::Llm => {
            let item = fields.need("planning", errors);
            let planning = item.and_then(|item| planning(&item, frame.model.as_deref(), errors));
            planning.map(|planning| frame.plan.planning(planning))
        }
        Planner::Rules => {
            let item = fields.need("rules", errors);
            let rules = item.and_then(|item| rules(&item, &frame, errors));
            let planning = |rules| Planning { kind: NodeKind::Rules(rules), max_refines: 0, reviewed: false };
            rules.map(|rules| frame.plan.planning(planning(rules)))
        }
    };
    (planner, plan)
}

fn frame<'t>(fields: &mut Fields<'t>, errors: &mut Errors) -> Frame<'t> {
    let parallel = fields.take("max_parallel_steps");
    let max_parallel_steps = parallel.and_then(|item| item.integer(0, limits::PARALLEL_STEPS_MAX as u64, errors));
    let step_timeout = fields.take("step_timeout").and_then(|item| item.span(false, limits::SPAN_MAX, errors));
    let base = RetryPolicy::default();
    let retry = fields.take("retry").map_or_else(|| base.clone(), |item| settings::retry(&item, &base, errors));
    let budget = fields.take("budget").map_or_else(Budget::default, |item| settings::budget(&item, errors));
    let model = fields.take("model").and_then(|item| settings::model(&item, errors));
    let mut tools = fields.take("tools").map(|item| Tools::read(&item, errors)).unwrap_or_default();
    let plan = Plan {
        answer: None,
        budget,
        max_parallel_steps: max_parallel_steps.and_then(|steps| u32::try_from(steps).ok()),
        nodes: Vec::new(),
        retry,
        schema_version: PLAN_SCHEMA_VERSION,
        step_timeout,
        tools: std::mem::take(&mut tools.tools),
    };
    Frame { model, plan, tools }
}

/// Reads a graph, within what a planner may use if one has made it.
fn read_graph<'t>(item: &Item<'t>, frame: &Frame<'_>, within: Option<&PlanNode>, errors: &mut Errors) -> Option<Graph> {
    let mut inner = item.fields(errors)?;
    let mut uses = Uses::default();
    let defaults = Defaults { model: frame.model.as_deref(), retry: &frame.plan.retry };
    let drafts = inner.need("nodes", errors).and_then(|item| drafts(&item, &defaults, &mut uses, errors));
    let answer = answer(&mut inner, &mut uses, errors);
    inner.refuse(&["compensations"], errors);
    inner.finish(errors);
    let drafts = drafts?;
    graph::check(&drafts, (&frame.tools.names, &frame.plan.tools), &uses, errors);
    drafts.iter().for_each(|draft| asks_in_time(draft, &frame.plan.tools, errors));
    if let Some(within) = within {
        drafts.iter().for_each(|draft| keeps_within(draft, within, errors));
        let (count, most) = (drafts.len(), usize::try_from(within.max_nodes).unwrap_or(usize::MAX));
        if count > most {
            item.wrong(
                errors,
                Code::TooLarge,
                format!("the plan has {count} nodes, more than the {most} that it may have"),
            );
        }
    }
    let nodes: Option<Vec<Node>> = drafts.into_iter().map(|draft| draft.node).collect();
    Some(Graph { answer, nodes: nodes? })
}

fn answer<'t>(fields: &mut Fields<'t>, uses: &mut Uses<'t>, errors: &mut Errors) -> Option<Json> {
    let item = fields.take("answer")?;
    uses.value(&item, None, errors);
    item.json(errors)
}

fn drafts<'t>(
    item: &Item<'t>,
    defaults: &Defaults<'_>,
    uses: &mut Uses<'t>,
    errors: &mut Errors,
) -> Option<Vec<Draft<'t>>> {
    let items = item.list(errors)?;
    if items.is_empty() {
        item.wrong(errors, Code::BadValue, "is empty: a plan needs at least one node");
    }
    if items.len() > limits::PLAN_NODES_MAX {
        let message =
            format!("there are {} nodes, more than the {} that a plan may have", items.len(), limits::PLAN_NODES_MAX);
        item.wrong(errors, Code::TooLarge, message);
        return None;
    }
    Some(items.into_iter().enumerate().map(|(index, item)| nodes::read(index, item, defaults, uses, errors)).collect())
}

/// What a node does, and what it does for each item, each with its path within the node.
fn works(node: &Node) -> impl Iterator<Item = (&'static str, &Work)> {
    [("", &node.work)].into_iter().chain(node.work.each().map(|each| ("/do", each)))
}

/// What is said of tries is never said of a question to a person, which is asked once.
fn asks_in_time(draft: &Draft<'_>, tools: &BTreeMap<ToolName, Tool>, errors: &mut Errors) {
    let Some(node) = &draft.node else { return };
    for (at, work) in works(node) {
        let NodeKind::Tool { tool, .. } = &work.kind else { continue };
        if tools.get(tool).is_none_or(|tool| tool.kind.human().is_none()) {
            continue;
        }
        for (key, said) in [("timeout", work.timeout.is_some()), ("retry", work.retry.is_some())] {
            if said {
                let message = format!(
                    "never applies: `{tool}` asks a person, once and for as long as its `deadline` says; remove it"
                );
                draft.item.at(&format!("{at}/{key}")).wrong(errors, Code::BadValue, message);
            }
        }
    }
}

/// A node that a planner has made uses what it may.
fn keeps_within(draft: &Draft<'_>, within: &PlanNode, errors: &mut Errors) {
    let Some(node) = &draft.node else { return };
    for (at, work) in works(node) {
        let kind = work.kind.as_str();
        if !within.kinds.iter().any(|allowed| allowed == kind) {
            let allowed: Vec<&str> = within.kinds.iter().map(String::as_str).collect();
            let message = format!("the kind `{kind}` may not be planned; expected {}", listed(&allowed, "or"));
            draft.item.at(&format!("{at}/kind")).wrong(errors, Code::BadValue, message);
        }
        if work.refine_repeats_effect {
            let message = "may not be planned: only a person allows a call to be made again after a rejection; use `max_refines: 0`";
            draft.item.at(&format!("{at}/refine_repeats_effect")).wrong(errors, Code::BadValue, message);
        }
        if let Some(model) = work.model()
            && ![Some(&within.model), within.nodes_model.as_ref()].contains(&Some(model))
        {
            let message = format!("the model `{model}` may not be planned: leave `model` out");
            draft.item.at(&format!("{at}/model")).wrong(errors, Code::BadValue, message);
        }
    }
}

/// Reads what a model is asked that makes plans.
fn planning(item: &Item<'_>, nodes_model: Option<&str>, errors: &mut Errors) -> Option<Planning> {
    let mut fields = item.fields(errors)?;
    let model = match fields.take("model") {
        Some(item) => settings::model(&item, errors),
        None => nodes_model.map(str::to_owned),
    };
    if model.is_none() && !fields.has("model") {
        let message = "`model` is missing: name one here as `provider/model`, or one for the whole agent";
        errors.add(fields.path.key("model"), fields.line, Code::MissingKey, message);
    }
    let prompt = fields.need("prompt", errors).and_then(|item| {
        let mut uses = Uses::default();
        uses.drawing(&item, None, errors);
        for place in &uses.list {
            errors.add(&place.path, place.line, Code::BadTemplate, "names a node, and nothing has run yet");
        }
        item.text(errors)
    });
    let attempts = fields.take("max_attempts").and_then(|item| item.small(1, limits::PLAN_ATTEMPTS_MAX, errors));
    let nodes_max = u32::try_from(limits::PLAN_NODES_MAX).unwrap_or(u32::MAX);
    let max_nodes = fields.take("max_nodes").and_then(|item| item.small(1, nodes_max, errors));
    let kinds = fields.take("kinds").map(|item| kinds(&item, errors));
    let reviews = [("none", false), ("human", true)];
    let reviewed = fields.take("plan_review").and_then(|item| item.choice(&reviews, &[], errors));
    fields.finish(errors);
    let kind = NodeKind::Plan(PlanNode {
        kinds: kinds.unwrap_or_else(|| KINDS_DEFAULT.map(str::to_owned).to_vec()),
        max_nodes: max_nodes.unwrap_or(limits::PLANNED_NODES_DEFAULT),
        model: model?,
        nodes_model: nodes_model.map(str::to_owned),
        prompt: prompt?.to_owned(),
    });
    let max_refines = attempts.unwrap_or(limits::PLAN_ATTEMPTS_DEFAULT) - 1;
    Some(Planning { kind, max_refines, reviewed: reviewed.unwrap_or(false) })
}

/// The kinds of nodes that a planner may use, in their order.
fn kinds(item: &Item<'_>, errors: &mut Errors) -> Vec<String> {
    let items = item.list(errors).unwrap_or_default();
    if items.is_empty() {
        item.wrong(errors, Code::BadValue, "is empty: a plan needs nodes of some kind");
    }
    let known = KIND_NAMES.map(|name| (name, name));
    let mut kinds: Vec<String> =
        items.iter().filter_map(|item| item.choice(&known, &[], errors)).map(str::to_owned).collect();
    kinds.sort();
    kinds.dedup();
    let for_items = |kind: &String| ["agent", "job", "llm", "tool", "transform"].contains(&kind.as_str());
    if kinds.iter().any(|kind| kind == "map") && !kinds.iter().any(for_items) {
        item.wrong(
            errors,
            Code::BadValue,
            "has `map`, and no kind that a map can do for its items: agent, job, llm, tool or transform",
        );
    }
    kinds
}

/// Reads rules. All but the last have a condition: what comes behind one without is never reached.
fn rules(item: &Item<'_>, frame: &Frame<'_>, errors: &mut Errors) -> Option<Vec<Rule>> {
    let items = item.list(errors)?;
    if items.is_empty() {
        item.wrong(errors, Code::BadValue, "is empty: there is no plan to choose");
    }
    if items.len() > limits::RULES_MAX {
        let message = format!("there are {} rules, more than the {} that are allowed", items.len(), limits::RULES_MAX);
        item.wrong(errors, Code::TooLarge, message);
        return None;
    }
    let last = items.len().saturating_sub(1);
    let read = |(place, item): (usize, Item<'_>)| {
        let mut fields = item.fields(errors)?;
        let when = fields.take("when");
        if when.is_none() && place < last {
            item.wrong(errors, Code::MissingKey, "has no `when`, so that no rule behind it is ever reached");
        }
        let when = when.and_then(|item| condition(&item, errors));
        let plan = fields.need("plan", errors);
        fields.finish(errors);
        let graph = plan.and_then(|plan| read_graph(&plan, frame, None, errors))?;
        Some(Rule { graph, when: when.map(str::to_owned) })
    };
    items.into_iter().enumerate().map(read).collect()
}

/// The condition of a rule, which sees the message and the job.
fn condition<'t>(item: &Item<'t>, errors: &mut Errors) -> Option<&'t str> {
    let text = item.text(errors)?;
    match aetheris_expr::check_condition(text, Standing::from(Place::Plan)) {
        Ok(names) if names.nodes.is_empty() => {}
        Ok(_) => item.wrong(errors, Code::BadTemplate, "names a node, and nothing has run yet"),
        Err(error) => item.wrong(errors, templates::code(&error), error.to_string()),
    }
    Some(text)
}

/// Reads a plan that a model has made, within what the planning plan of its agent allows.
///
/// # Errors
/// All mistakes of the plan; its paths begin at the plan.
pub fn parse_plan(source: &str, planning: &Plan) -> Result<Plan, Vec<FileError>> {
    let mut errors = Errors::default();
    let Some(NodeKind::Plan(within)) = planning.planning_node().map(|node| &node.work.kind) else {
        errors.add("", 1, Code::BadValue, "the agent has no plan made by a model");
        return Err(errors.into_sorted());
    };
    let root = tree::read(source, &mut errors);
    let tools = Tools::of(planning.tools.keys().map(|name| name.as_str()));
    let frame = Frame { model: within.nodes_model.clone(), plan: planning.clone(), tools };
    let frame = Frame { model: frame.model.or_else(|| Some(within.model.clone())), ..frame };
    let item = root.as_ref().map(|tree| Item { path: Path::default(), tree });
    let graph = item.and_then(|item| read_graph(&item, &frame, Some(within), &mut errors));
    let plan = graph.filter(|_| errors.is_empty()).map(|graph| planning.with(graph));
    let Some(plan) = plan else { return Err(errors.into_sorted()) };
    match Arc::new(plan.clone()).compile() {
        Ok(_) => Ok(plan),
        Err(found) => {
            found.iter().for_each(|error| errors.add("nodes", 1, Code::BadValue, error.to_string()));
            Err(errors.into_sorted())
        }
    }
}
