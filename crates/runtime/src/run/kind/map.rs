//! The same work for each item of a list. The map's own step begins with the list and ends when its items have: each of
//! them is a step of its own, decided like any other.

use aetheris_core::event::{Failure, Items, StepResult};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::MapNode;
use aetheris_expr::ExprError;
use serde_json::Value;

use crate::run::budget::over_memory;
use crate::run::facts;
use crate::run::prepared::{Next, Prepared, TryFailed};
use crate::run::view::View;

/// # Errors
/// The history contradicts itself.
pub(super) fn prepare(view: &View<'_>, map: &MapNode) -> Result<Prepared, Failure> {
    match view.state.items_of(&view.path) {
        None => Ok(begin(view, map)),
        Some(items) if !items.is_over() => Err(view.corrupt("its items have not ended")),
        Some(items) => match (items.lost_by, items.stopped_by) {
            (Some(item), _) => fail_with(view, item, true),
            (None, Some(item)) => fail_with(view, item, false),
            (None, None) => match over_memory(view.memory) {
                Some(exceeded) => Ok(facts::fail_job(view, exceeded)),
                None => Ok(facts::succeed(view, None)),
            },
        },
    }
}

fn begin(view: &View<'_>, map: &MapNode) -> Prepared {
    let items = match list(view, map) {
        Ok(items) => items,
        Err(ListError::Template(error)) => return facts::fail_template(view, "`over`", &error),
        Err(ListError::Refused(error)) => return facts::fail(view, error),
    };
    let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    let started = facts::start_map(view, Items { collect: !map.on_item_failure.is_stop(), count });
    // An empty one ends as any other does, on the state in which it has begun.
    if count == 0 { started.next(Next::Again) } else { started }
}

/// Why a map has no list.
#[derive(Debug)]
pub(in crate::run) enum ListError {
    /// It is none, or too long.
    Refused(Failure),
    /// It cannot be rendered.
    Template(ExprError),
}

/// The list of a map.
///
/// # Errors
/// It cannot be rendered, is none or too long.
pub(in crate::run) fn list(view: &View<'_>, map: &MapNode) -> Result<Vec<Json>, ListError> {
    let value = view.list(&map.over).map_err(ListError::Template)?;
    items(&value).map_err(ListError::Refused)
}

/// The items of what a map's `over` gives.
///
/// # Errors
/// It is no list, or too long.
pub(crate) fn items(value: &Json) -> Result<Vec<Json>, Failure> {
    let refused = |message: String| Err(Failure::new("bad_list", message));
    match value.value() {
        Value::Array(items) if items.len() > limits::MAP_ITEMS_MAX => {
            refused(format!("`over` gives {} items; a map takes at most {}", items.len(), limits::MAP_ITEMS_MAX))
        }
        Value::Array(items) => Ok(items.iter().cloned().map(Json::new).collect()),
        other => refused(format!("`over` gives {}, not a list", aetheris_expr::kind(other))),
    }
}

/// The map fails as one of its items has, and `of_job` the job with it.
fn fail_with(view: &View<'_>, item: u32, of_job: bool) -> Result<Prepared, Failure> {
    let path = StepPath::of_item(view.node.id.clone(), item);
    let step = view.state.steps.get(&path);
    let error =
        step.and_then(|step| step.error.as_ref()).ok_or_else(|| view.corrupt("its failed item has no error"))?;
    let error = Failure::new(&error.code, format!("item {item}: {}", error.message));
    let of_job = of_job && !aetheris_fault::planted!("lost-map-is-absorbed");
    let failed = TryFailed { of_job, ..TryFailed::new(error, None, false) };
    Ok(facts::fail_after(view, StepResult::PermanentFailure, failed))
}
