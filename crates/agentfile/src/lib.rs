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
mod planner;
mod read;
mod schema;
mod settings;
mod templates;
mod tools;
mod tree;

use std::sync::Arc;

use aetheris_core::agent::Agent;
use aetheris_core::id::AgentName;
use aetheris_core::limits;

pub use crate::error::{Code, FileError};
pub use crate::planner::parse_plan;
pub use crate::schema::{json_schema, plan_schema};

use crate::error::Errors;
use crate::path::Path;
use crate::read::Item;

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
    if let Some(item) = fields.take("ownership") {
        item.choice(&[("job", ())], &["task"], errors);
    }
    fields.refuse(&KEYS_NOT_YET, errors);
    let deadline = fields.take("deadline").and_then(|item| item.span(false, limits::SPAN_MAX, errors));
    let (planner, plan) = planner::read(&mut fields, errors);
    fields.finish(errors);
    Some(Agent {
        agent: AgentName::from(name?),
        deadline,
        description: description.to_owned(),
        message_schema: message_schema.map(|(json, _)| json),
        plan: Arc::new(plan?),
        planner,
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
const KEYS_NOT_YET: [&str; 2] = ["double_texting", "schedules"];
