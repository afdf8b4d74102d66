//! What a job keeps in the memory of whoever goes on with it.

use aetheris_core::event::{ToolAsked, Turn};
use aetheris_core::json::Json;
use aetheris_core::state::{Child, JobState, Output, StepState};
use aetheris_expr::{Context, Ended};
use aetheris_store::KeptSignal;

use crate::run::rows::Rows;

/// What the values take that a job keeps: what it was given, and its outputs as a run has them.
pub(crate) fn of_run(state: &JobState, rows: &Rows, names: &Context) -> usize {
    let outputs = state.steps.values().filter_map(|step| output(step, rows));
    let maps = state.steps.iter().filter(|(_, step)| step.output == Some(Output::Items));
    let lists = maps.filter_map(|(path, _)| names.nodes.get(path.node()).and_then(Ended::output));
    given(state, &rows.kept) + of(outputs) + of(lists)
}

/// What the values take that a job was given: its message, what its calls were given, what rounds were told, what models have
/// asked for, what children answered, and kept signals.
pub(crate) fn given(state: &JobState, kept: &[KeptSignal]) -> usize {
    let inputs = state.steps.values().filter_map(|step| step.invocation.as_deref()).map(|call| &call.input);
    let kept = kept.iter().map(|signal| &signal.payload);
    let children = state.steps.values().filter_map(|step| step.child.as_deref()).filter_map(Child::result);
    let feedback: usize = state.steps.values().filter_map(|step| step.feedback.as_ref()).map(String::len).sum();
    let turns: usize = state.steps.values().filter_map(StepState::turn).map(of_turn).sum();
    of(std::iter::once(&state.message).chain(inputs).chain(kept).chain(children)) + feedback + turns
}

/// What a turn of a loop takes beside its output.
pub(crate) fn of_turn(turn: &Turn) -> usize {
    let of_call = |call: &ToolAsked| {
        let provider = call.provider.as_ref().map_or(0, Json::memory);
        size_of::<ToolAsked>() + call.arguments.len() + call.id.len() + call.name.len() + provider
    };
    turn.calls.iter().map(of_call).sum::<usize>() + turn.reply.as_ref().map_or(0, String::len)
}

/// The output that a step has of its own.
pub(crate) fn output<'a>(step: &'a StepState, rows: &'a Rows) -> Option<&'a Json> {
    match step.output.as_ref()? {
        Output::Inline(value) => Some(value),
        Output::Effect(key) => rows.effects.get(key).map(|effect| &effect.result),
        Output::Items => None,
    }
}

/// What values take.
pub(crate) fn of<'a>(values: impl Iterator<Item = &'a Json>) -> usize {
    values.map(Json::memory).sum()
}

#[cfg(test)]
mod tests {
    use aetheris_core::id::{IdempotencyKey, JobId, PermitId, SignalId};
    use aetheris_core::plan::EffectClass;
    use aetheris_core::state::{Invocation, InvocationPhase};
    use aetheris_core::time::{Span, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_job_keeps_in_memory_is_all_counted() {
        let mut state = JobState::new(JobId::from_u128(1));
        let large = || Json::new(json!(vec![json!({ "a": 1 }); 1_000]));
        let none = of_run(&state, &Rows::default(), &Context::default());
        state.message = large();
        let message = of_run(&state, &Rows::default(), &Context::default()) - none;
        let signal = KeptSignal {
            key: "k".to_owned(),
            payload: large(),
            received_at: Timestamp::default(),
            signal: SignalId::from_u128(1),
            wait_type: None,
        };
        let kept =
            of_run(&state, &Rows { kept: vec![signal], ..Rows::default() }, &Context::default()) - none - message;
        let step = StepState { output: Some(Output::Inline(large())), ..StepState::default() };
        state.steps.insert("n".into(), step);
        let outputs = of_run(&state, &Rows::default(), &Context::default()) - none - message;
        let round = StepState { output: Some(Output::Inline(large())), ..StepState::default() };
        state.steps.insert("n@1".into(), round);
        let rounds = of_run(&state, &Rows::default(), &Context::default()) - none - message - outputs;
        state.steps.remove(&"n@1".into());
        state.steps.insert("n".into(), StepState { output: Some(Output::Items), ..StepState::default() });
        let mut names = Context::default();
        names.nodes.insert("n".into(), Ended::Completed(large()));
        let list = of_run(&state, &Rows::default(), &names) - none - message;
        let call = Invocation {
            answered_late: None,
            class: EffectClass::AtMostOnce,
            deadline: Timestamp::default(),
            input: large(),
            key: IdempotencyKey::derive(JobId::from_u128(1), &"n".into(), 0),
            lifetime: Span::from_secs(1),
            permit: 1,
            permit_id: PermitId::from_u128(1),
            phase: InvocationPhase::Started,
            tool: "t".into(),
            tool_version: None,
            unknown: 0,
            unsent: 0,
        };
        state.steps.insert("n".into(), StepState { invocation: Some(Box::new(call)), ..StepState::default() });
        let input = of_run(&state, &Rows::default(), &Context::default()) - none - message;
        assert!([message, kept, outputs, rounds, list, input].iter().all(|part| part.abs_diff(large().memory()) < 100));
        assert!(large().memory() > 100_000);
    }
}
