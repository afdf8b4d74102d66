//! Reads agent files: YAML or JSON text to a checked [`Agent`], or all mistakes at once, each with its
//! path, line and stable code.
//!
//! Whatever [`parse`] accepts is executed as it is written: keys that do not exist are refused
//! (`unknown_key`), and so are keys of the format that this build does not execute
//! (`not_supported_yet`). Nothing is ignored.
//!
//! Reading order: `tree` (text to values with lines), `read` (values to types), `tools`, `nodes`,
//! `settings`, `templates`, then `graph` (what only the whole file shows), and [`json_schema`].

mod error;
mod graph;
mod nodes;
mod path;
mod read;
mod schema;
mod settings;
mod templates;
mod tools;
mod tree;

use std::sync::Arc;

use aetheris_core::agent::{Agent, Planner};
use aetheris_core::id::AgentName;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{Budget, Node, PLAN_SCHEMA_VERSION, Plan};
use aetheris_core::retry::RetryPolicy;

pub use crate::error::{Code, FileError};
pub use crate::schema::json_schema;

use crate::error::Errors;
use crate::nodes::{Defaults, Draft};
use crate::path::Path;
use crate::read::{Fields, Item};
use crate::templates::Uses;
use crate::tools::Tools;

/// The version of an agent whose file names none.
const VERSION_DEFAULT: &str = "1";

/// Reads and checks an agent file.
///
/// # Errors
/// All mistakes of the file, in the order of their lines.
pub fn parse(source: &str) -> Result<Agent, Vec<FileError>> {
    let mut errors = Errors::default();
    let root = tree::read(source, &mut errors);
    let agent = root.as_ref().and_then(|tree| agent(&Item { path: Path::default(), tree }, &mut errors));
    match agent {
        Some(agent) if errors.is_empty() => Ok(agent),
        _ => Err(errors.into_sorted()),
    }
}

/// The path and the line of what the first of these JSON pointers leads to in a file; where the file has none of them,
/// of the last part on the way of the first.
#[must_use]
pub fn locate(source: &str, pointers: &[&str]) -> (String, u32) {
    let Some(tree) = tree::read(source, &mut Errors::default()) else { return (String::new(), 1) };
    let root = Item { path: Path::default(), tree: &tree };
    let whole = |pointer: &&str| {
        let (above, _) = pointer.rsplit_once('/')?;
        Some(root.at(pointer)).filter(|found| found.path.depth() > root.at(above).path.depth())
    };
    let found = pointers.iter().find_map(whole).unwrap_or_else(|| root.at(pointers.first().unwrap_or(&"")));
    (found.path.to_string(), found.line())
}

fn agent(root: &Item<'_>, errors: &mut Errors) -> Option<Agent> {
    let mut fields = root.fields(errors)?;
    let name = fields.need("agent", errors).and_then(|item| item.name("-", false, errors));
    let version = fields.take("version").and_then(|item| version(&item, errors));
    let description = fields.take("description").and_then(|item| item.text(errors)).unwrap_or_default();
    let message_schema = fields.take("message_schema").and_then(|item| settings::schema(&item, errors));
    not_yet(&mut fields, errors);
    fields.refuse(&KEYS_NOT_YET, errors);
    let deadline = fields.take("deadline").and_then(|item| item.span(false, limits::SPAN_MAX, errors));
    let plan = plan(&mut fields, errors);
    fields.finish(errors);
    Some(Agent {
        agent: AgentName::from(name?),
        deadline,
        description: description.to_owned(),
        message_schema: message_schema.map(|(json, _)| json),
        plan: Arc::new(plan?),
        planner: Planner::Static,
        version: version.unwrap_or_else(|| VERSION_DEFAULT.to_owned()),
    })
}

fn version(item: &Item<'_>, errors: &mut Errors) -> Option<String> {
    let text = item.text(errors)?;
    if text.is_empty() || text.len() > limits::NAME_BYTES_MAX || text.chars().any(char::is_control) {
        item.wrong(
            errors,
            Code::BadValue,
            format!("must have 1 to {} bytes and no control characters", limits::NAME_BYTES_MAX),
        );
    }
    Some(text.to_owned())
}

/// Keys of the format that this build does not execute.
const KEYS_NOT_YET: [&str; 4] = ["double_texting", "planning", "rules", "schedules"];

/// Settings with one value that this build executes.
fn not_yet(fields: &mut Fields<'_>, errors: &mut Errors) {
    if let Some(item) = fields.take("planner") {
        item.choice(&[("static", ())], &["llm", "rules"], errors);
    }
    if let Some(item) = fields.take("ownership") {
        item.choice(&[("job", ())], &["task"], errors);
    }
}

fn plan(fields: &mut Fields<'_>, errors: &mut Errors) -> Option<Plan> {
    let parallel = fields.take("max_parallel_steps");
    let max_parallel_steps = parallel.and_then(|item| item.integer(0, limits::PARALLEL_STEPS_MAX as u64, errors));
    let step_timeout = fields.take("step_timeout").and_then(|item| item.span(false, limits::SPAN_MAX, errors));
    let base = RetryPolicy::default();
    let retry = fields.take("retry").map_or_else(|| base.clone(), |item| settings::retry(&item, &base, errors));
    let budget = fields.take("budget").map_or_else(Budget::default, |item| settings::budget(&item, errors));
    let model = fields.take("model").and_then(|item| settings::model(&item, errors));
    let tools = fields.take("tools").map(|item| Tools::read(&item, errors)).unwrap_or_default();
    let plan = fields.need("plan", errors)?;
    let mut inner = plan.fields(errors)?;
    let mut uses = Uses::default();
    let defaults = Defaults { model: model.as_deref(), retry: &retry };
    let drafts = inner.need("nodes", errors).and_then(|item| drafts(&item, &defaults, &mut uses, errors));
    let answer = answer(&mut inner, &mut uses, errors);
    inner.refuse(&["compensations"], errors);
    inner.finish(errors);
    let drafts = drafts?;
    graph::check(&drafts, &tools, &uses, errors);
    let nodes: Option<Vec<Node>> = drafts.into_iter().map(|draft| draft.node).collect();
    Some(Plan {
        answer,
        budget,
        max_parallel_steps: max_parallel_steps.and_then(|steps| u32::try_from(steps).ok()),
        nodes: nodes?,
        retry,
        schema_version: PLAN_SCHEMA_VERSION,
        step_timeout,
        tools: tools.tools,
    })
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
