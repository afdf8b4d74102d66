//! The same work for each item of a list. The map's own step begins with the list and ends when its items have: each of
//! them is a step of its own, decided like any other.

use aetheris_core::event::{Failure, InvocationOutcome, Items, Source, StepResult};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::MapNode;
use aetheris_core::recovery::Decision;
use aetheris_core::state::ItemsState;
use aetheris_expr::ExprError;
use serde_json::Value;

use crate::run::prepared::{Next, Prepared, TryFailed};
use crate::run::view::View;
use crate::run::{doubt, facts, permit};

/// # Errors
/// The history contradicts itself.
pub(super) fn prepare(view: &View<'_>, map: &MapNode) -> Result<Prepared, Failure> {
    match view.state.items_of(&view.path) {
        None => Ok(begin(view, map)),
        Some(items) if !items.is_over() => Err(view.corrupt("its items have not ended")),
        Some(items) => match items.stopped_by {
            None => Ok(facts::succeed(view, None)),
            Some(item) => fail_with(view, item),
        },
    }
}

fn begin(view: &View<'_>, map: &MapNode) -> Prepared {
    let items = match list(view, map) {
        Ok(items) => items,
        Err(ListError::Template(error)) => return facts::fail_template(view, "its list", &error),
        Err(ListError::Refused(error)) => return facts::fail(view, error),
    };
    let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    let started = facts::start_map(view, Items { collect: !map.on_item_failure.is_stop(), count });
    if count == 0 { started.then(facts::succeed(view, None)) } else { started }
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
    let refused = |message: String| Err(ListError::Refused(Failure::new("bad_list", message)));
    match value.value() {
        Value::Array(items) if items.len() > limits::MAP_ITEMS_MAX => {
            refused(format!("its list has {} items, and at most {} are worked on", items.len(), limits::MAP_ITEMS_MAX))
        }
        Value::Array(items) => Ok(items.iter().cloned().map(Json::new).collect()),
        other => refused(format!("what it is over is no list, but {}", kind_of(other))),
    }
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The map fails as the first of its items, by their places, has.
fn fail_with(view: &View<'_>, item: u32) -> Result<Prepared, Failure> {
    let path = StepPath::of_item(view.node.id.clone(), item);
    let step = view.state.steps.get(&path);
    let error =
        step.and_then(|step| step.error.as_ref()).ok_or_else(|| view.corrupt("its failed item has no error"))?;
    let error = Failure::new(&error.code, format!("item {item}: {}", error.message));
    // What the job as a whole has used up fails it, whatever the node says of its own failures.
    let of_job = step.is_some_and(|step| !step.absorbed) && !aetheris_fault::planted!("lost-map-is-absorbed");
    let failed = TryFailed { of_job, ..TryFailed::new(error, None, false) };
    Ok(facts::fail_after(view, StepResult::PermanentFailure, failed))
}

/// What an item that has begun comes to when its map has failed with another: what is known of a call is recorded, and
/// nothing is called or asked any more.
///
/// # Errors
/// What is stored contradicts itself.
pub(in crate::run) fn give_up(view: &View<'_>, decision: &Decision) -> Result<Prepared, Failure> {
    aetheris_fault::sometimes!(ItemGivenUp);
    match decision {
        Decision::Inject | Decision::Nothing => Ok(Prepared::default()),
        Decision::CatchUp => permit::catch_up(view),
        Decision::CatchUpOutcome(outcome) => permit::catch_up_outcome(view, *outcome),
        Decision::Run | Decision::NextTry | Decision::EndTry => {
            Ok(facts::fail_after(view, StepResult::PermanentFailure, stopped(view)))
        }
        Decision::EnterDoubt if aetheris_fault::planted!("given-up-item-untold") => {
            Ok(facts::fail_after(view, StepResult::PermanentFailure, stopped(view)))
        }
        Decision::EnterDoubt => doubt::enter(view, crate::ops::CRASHED),
        Decision::ResumeDoubt => doubt::abandon(view, stopped(view)),
        Decision::CallAgain => {
            let call = view.called()?;
            let unknown = Failure::new("outcome_unknown", crate::ops::CRASHED);
            let (outcome, source) = (InvocationOutcome::InDoubt, Source::CaughtUp);
            let ended = facts::call_ended(view, call.permit, outcome, source, Some(unknown));
            let told = Prepared::of([facts::unknown(view, call, ended)]);
            Ok(told.next(Next::TryFailed(stopped(view))))
        }
        Decision::Corrupt(why) => Err(view.corrupt(&format!("{why}; nothing was run"))),
    }
}

fn stopped(view: &View<'_>) -> TryFailed {
    let first = view.state.items_of(&view.path).and_then(|items: &ItemsState| items.stopped_by).unwrap_or_default();
    let message = format!("given up: item {first} has failed, and the map with it");
    TryFailed { stopped: true, ..TryFailed::new(Failure::new("map_stopped", message), None, false) }
}
