//! The values of steps: what is recorded as it is, and inputs of plain steps rendered again.
//!
//! The input of a plain step is not stored. Its templates name recorded values only, so rendering them
//! again gives what the step was given, within the same bounds.

use aetheris_api::{JobErrorView, RoundValuesView, StepPage, StepValuesView, ValueOrigin, ValueView};
use aetheris_core::event::Failure;
use aetheris_core::id::NodeId;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{CompiledPlan, Node, Step};
use aetheris_core::schedule;
use aetheris_core::state::StepState;
use aetheris_core::step::StepStatus;
use aetheris_runtime::inputs::Inputs;
use aetheris_runtime::load::Loaded;
use aetheris_runtime::names;
use serde_json::Value;

/// What is asked of the values of a job's steps.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Bytes of one value that are shown.
    pub(crate) bytes: usize,
    /// Only steps after this one, in the order of the plan.
    pub(crate) after: Option<NodeId>,
    /// At most so many.
    pub(crate) limit: usize,
    /// Only this one: a node, an item of a map, or a round or a critic's step of one of these.
    pub(crate) node: Option<StepPath>,
    /// Whether inputs that are not recorded are rendered again.
    pub(crate) render: bool,
}

/// A page of steps that have begun. It takes a processor: it belongs on a thread of its own.
pub(crate) fn page(loaded: &Loaded, plan: &CompiledPlan, asked: &Asked) -> StepPage {
    let names = asked.render.then(|| Inputs::of_job(loaded));
    if let Some(item) = asked.node.as_ref().filter(|path| !path.is_whole()) {
        let step =
            schedule::step_at(&loaded.state, plan, item).and_then(|step| Some((step, loaded.state.steps.get(item)?)));
        let values = step.map(|(of_plan, step)| match item.is_base() {
            true => of_base(loaded, plan, &of_plan, step, names.as_ref(), asked.bytes),
            false => step_values(loaded, &of_plan, step, names.as_ref(), asked.bytes),
        });
        return StepPage { next_cursor: None, steps: values.into_iter().collect() };
    }
    let begun = |node: &&Node| {
        loaded.state.step_of(&node.id).is_some_and(|step| step.status != StepStatus::Pending)
            && asked.node.as_ref().is_none_or(|only| *only == StepPath::from(&node.id))
    };
    let mut after = plan.ordered().filter(begun).skip_while(|node| Some(&node.id) != asked.after.as_ref()).skip(1);
    let mut from_start = plan.ordered().filter(begun);
    let nodes: &mut dyn Iterator<Item = &Node> = if asked.after.is_some() { &mut after } else { &mut from_start };
    let (mut steps, mut bytes) = (Vec::new(), 0);
    let mut nodes = nodes.peekable();
    while steps.len() < asked.limit && bytes < limits::PAGE_VALUES_BYTES_MAX {
        let Some(node) = nodes.next() else { break };
        let Some(step) = loaded.state.step_of(&node.id) else { continue };
        let values = of_base(loaded, plan, &Step::from(node), step, names.as_ref(), asked.bytes);
        let first = values.first_round.as_ref().map(|first| [first.input.as_ref(), first.output.as_ref()]);
        bytes += first.into_iter().flatten().map(shown).sum::<usize>();
        bytes += shown(values.input.as_ref()) + shown(values.output.as_ref());
        steps.push(values);
        let whole = StepPath::from(&node.id);
        let parts = loaded.state.parts_of(&whole);
        for part in parts.filter_map(|path| schedule::step_at(&loaded.state, plan, &path)) {
            let Some(told) = loaded.state.steps.get(&part.path) else { continue };
            let values = step_values(loaded, &part, told, names.as_ref(), asked.bytes);
            bytes += shown(values.input.as_ref()) + shown(values.output.as_ref());
            steps.push(values);
        }
    }
    let more = nodes.peek().is_some();
    let next_cursor = steps.last().filter(|_| more).map(|last: &StepValuesView| last.node_id.node().to_string());
    StepPage { next_cursor, steps }
}

/// A node or an item: what its newest round was given and gave, and what its first one was and did.
fn of_base(
    loaded: &Loaded,
    plan: &CompiledPlan,
    of_plan: &Step<'_>,
    step: &StepState,
    names: Option<&Inputs<'_>>,
    most: usize,
) -> StepValuesView {
    let newest = loaded.state.newest_round(&of_plan.path);
    let own = step_values(loaded, of_plan, step, names, most);
    if newest == of_plan.path {
        return own;
    }
    let round = loaded.state.steps.get(&newest).zip(schedule::step_at(&loaded.state, plan, &newest));
    let Some((told, round)) = round else { return own };
    let gave = names::of_round(&loaded.state, &loaded.effects, &of_plan.path);
    let output = gave.map(|output| view(ValueOrigin::Recorded, &output, most));
    let first_round = Some(RoundValuesView { input: own.input, output });
    let values = step_values(loaded, &round, told, names, most);
    StepValuesView { error: own.error, first_round, node_id: own.node_id, status: own.status, ..values }
}

/// Bytes of a value that are in the answer.
fn shown(value: Option<&ValueView>) -> usize {
    value.map_or(0, |value| match &value.text {
        Some(text) => text.len(),
        None => usize::try_from(value.bytes).unwrap_or(usize::MAX),
    })
}

fn step_values(
    loaded: &Loaded,
    of_plan: &Step<'_>,
    step: &StepState,
    names: Option<&Inputs<'_>>,
    most: usize,
) -> StepValuesView {
    let rejected = || step.error.as_ref().is_some_and(|error| error.code == names::REJECTED);
    let output = match step.status {
        StepStatus::Completed => Some(names::output(&loaded.state, &loaded.effects, &of_plan.path)),
        // What is judged, or was rejected.
        StepStatus::Validating | StepStatus::Rejected | StepStatus::Refining => {
            names::of_round(&loaded.state, &loaded.effects, &of_plan.path)
        }
        StepStatus::Failed if rejected() => names::of_round(&loaded.state, &loaded.effects, &of_plan.path),
        StepStatus::Pending
        | StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt
        | StepStatus::Failed
        | StepStatus::Skipped => None,
    };
    let input = match &step.invocation {
        Some(invocation) => Some(view(ValueOrigin::Recorded, &invocation.input, most)),
        None => names.and_then(|names| names.render(of_plan)).map(|input| match input {
            Ok(input) => view(ValueOrigin::Rendered, &input, most),
            Err(error) => {
                ValueView { bytes: 0, error: Some(error), from: ValueOrigin::Rendered, text: None, value: None }
            }
        }),
    };
    StepValuesView {
        error: step.error.as_deref().map(|error| {
            let Failure { code, message } = error.clone();
            JobErrorView { code, message, node_id: None }
        }),
        first_round: None,
        input,
        node_id: of_plan.path.clone(),
        output: output.map(|output| view(ValueOrigin::Recorded, &output, most)),
        status: step.status,
    }
}

/// A value of which at most so many bytes are shown.
pub(crate) fn view(from: ValueOrigin, value: &Json, most: usize) -> ValueView {
    let text = value.value().to_string();
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if text.len() <= most {
        return ValueView { bytes, error: None, from, text: None, value: Some(value.clone()) };
    }
    let beginning = match value.value() {
        Value::String(text) => beginning(text, most),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => beginning(&text, most),
    };
    ValueView { bytes, error: None, from, text: Some(beginning), value: None }
}

/// At most so many bytes, without half a character.
fn beginning(text: &str, most: usize) -> String {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_whole_or_has_a_beginning() {
        let small = view(ValueOrigin::Recorded, &Json::new(serde_json::json!({"a": 1})), 7);
        assert_eq!((small.value.is_some(), small.text, small.bytes), (true, None, 7));
        let large = view(ValueOrigin::Recorded, &Json::new(serde_json::json!({"a": 12})), 7);
        assert_eq!((large.value, large.text.as_deref(), large.bytes), (None, Some("{\"a\":12"), 8));
        let text = view(ValueOrigin::Rendered, &Json::new("äöüäöü".into()), 5);
        assert_eq!(text.text.as_deref(), Some("äö"));
    }
}
