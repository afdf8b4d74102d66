//! What comes next in a loop: a turn, calls of the newest one, or its end.

use crate::path::StepPath;
use crate::plan::{AgentNode, CompiledPlan, OnLimit, Step};
use crate::state::{JobState, TurnsState};
use crate::step::StepStatus;
use crate::{event::ToolAsked, limits};

/// Where a loop stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// This turn asks the model: it is to begin, or is on its way.
    Asks(u32),
    /// Calls of the newest turn have not ended.
    Calls,
    /// It is to end.
    Ends(LoopEnd),
}

/// Why a loop is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopEnd {
    /// A turn or a call has failed in a way that is not told to the model.
    Failed,
    /// It has used up its turns or tokens.
    Limit,
    /// The model has asked for too much that it may not have.
    Mistakes,
    /// The model has had the last word.
    Said,
}

/// Where a loop stands.
#[must_use]
pub fn stage(agent: &AgentNode, turns: &TurnsState) -> Stage {
    if turns.is_asking() {
        return Stage::Asks(turns.ended);
    }
    if turns.is_calling() {
        return Stage::Calls;
    }
    if turns.failed_by.is_some() {
        return Stage::Ends(LoopEnd::Failed);
    }
    if turns.said {
        return Stage::Ends(LoopEnd::Said);
    }
    if turns.mistakes > limits::LOOP_MISTAKES_MAX {
        return Stage::Ends(LoopEnd::Mistakes);
    }
    let asks_again = match agent.on_limit {
        OnLimit::Fail => may_call(agent, turns, turns.ended),
        OnLimit::Answer => turns.ended == 0 || may_call(agent, turns, turns.ended - 1),
    };
    if asks_again { Stage::Asks(turns.ended) } else { Stage::Ends(LoopEnd::Limit) }
}

/// Whether the newest turn, or the one after it, is asked within what the loop may use: the model may call tools in it. One that
/// is asked beyond that is asked for its last word.
#[must_use]
pub fn may_call(agent: &AgentNode, turns: &TurnsState, turn: u32) -> bool {
    let used = if turn < turns.begun { turns.asked_at } else { turns.tokens };
    turn < agent.max_turns && !agent.has_used_up(used)
}

/// The step of one path, if there is such a step. What a call of a loop does is told by what its model has asked for.
#[must_use]
pub fn step_at<'a>(state: &JobState, plan: &'a CompiledPlan, path: &StepPath) -> Option<Step<'a>> {
    let called = state.asked_of(path).and_then(|asked: &ToolAsked| asked.tool.as_ref());
    plan.step_of(path, called)
}

/// A job and its plan.
type Job<'s, 'a> = (&'s JobState, &'a CompiledPlan);

/// Adds the steps of a node or an item that may be worked on, given at which it is: itself, or of a loop that has begun its
/// turn or calls. None where all of them wait; what is to be given up is worked on wherever it waits.
pub(super) fn workable_parts<'a>(
    (state, plan): Job<'_, 'a>,
    whole: Step<'a>,
    waits: &impl Fn(&StepPath) -> bool,
    steps: &mut Vec<Step<'a>>,
) {
    let agent = whole.work.agent().filter(|_| whole.path.is_outside_loop());
    let agent = agent.filter(|_| state.step_status(&whole.path) == StepStatus::Running);
    let Some((agent, turns)) = agent.and_then(|agent| Some((agent, state.turns_of(&whole.path)?))) else {
        return steps.extend(Some(whole).filter(|whole| !waits(&whole.path)));
    };
    let stopped = state.is_stopped(&whole.path) || turns.failed_by.is_some();
    let paths: Vec<StepPath> = match stage(agent, turns) {
        Stage::Asks(turn) if turns.is_asking() || !stopped => vec![whole.path.at_turn(turn)],
        Stage::Calls => {
            let turn = turns.ended.saturating_sub(1);
            let begun = turns.open.iter().copied();
            let room = if stopped { 0 } else { agent.calls_at_once().saturating_sub(turns.open.len()) };
            let next = turns.left.iter().copied().take(room);
            let calls: Vec<StepPath> = begun.chain(next).map(|call| whole.path.at_call(turn, call)).collect();
            if calls.is_empty() { vec![whole.path] } else { calls }
        }
        Stage::Asks(_) | Stage::Ends(_) => vec![whole.path],
    };
    let paths = paths.into_iter().filter(|path| stopped || !waits(path));
    steps.extend(paths.filter_map(|path| step_at(state, plan, &path)));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::id::JobId;
    use crate::plan::{Budget, EffectClass, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan, Tool, ToolKind};
    use crate::retry::RetryPolicy;
    use crate::schedule::{Cursor, Due, due};
    use crate::state::StepState;

    fn agent() -> AgentNode {
        AgentNode { max_turns: 2, parallel_tool_calls: 2, tools: vec!["t".into()], ..AgentNode::new("m/n", "p") }
    }

    fn turns(begun: u32, ended: u32) -> TurnsState {
        TurnsState { begun, ended, ..TurnsState::default() }
    }

    #[test]
    fn a_loop_goes_from_turn_to_turn_to_its_end() {
        use LoopEnd::{Failed, Limit, Mistakes, Said};
        use Stage::{Asks, Calls, Ends};
        let failed = Some("n/0".into());
        for (stands, expected) in [
            (turns(0, 0), Asks(0)),
            (turns(1, 0), Asks(0)),
            (TurnsState { failed_by: failed.clone(), ..turns(1, 0) }, Ends(Failed)),
            (TurnsState { left: [0].into(), ..turns(1, 1) }, Calls),
            (TurnsState { open: [0].into(), ..turns(1, 1) }, Calls),
            (TurnsState { open: [0].into(), failed_by: failed.clone(), ..turns(1, 1) }, Calls),
            (TurnsState { left: [0].into(), failed_by: failed, ..turns(1, 1) }, Ends(Failed)),
            (turns(1, 1), Asks(1)),
            (TurnsState { said: true, ..turns(1, 1) }, Ends(Said)),
            (TurnsState { mistakes: limits::LOOP_MISTAKES_MAX, ..turns(1, 1) }, Asks(1)),
            (TurnsState { mistakes: limits::LOOP_MISTAKES_MAX + 1, ..turns(1, 1) }, Ends(Mistakes)),
            (TurnsState { said: true, mistakes: limits::LOOP_MISTAKES_MAX + 1, ..turns(1, 1) }, Ends(Said)),
            (turns(2, 2), Ends(Limit)),
        ] {
            assert_eq!(stage(&agent(), &stands), expected, "{stands:?}");
        }
    }

    #[test]
    fn a_loop_that_has_used_up_what_it_may_is_asked_once_more() {
        let answers = AgentNode { max_tokens: Some(10), on_limit: OnLimit::Answer, ..agent() };
        let fails = AgentNode { on_limit: OnLimit::Fail, ..answers.clone() };
        let used = |tokens, asked_at, begun, ended| TurnsState { asked_at, tokens, ..turns(begun, ended) };
        for (stands, once_more, may) in [
            (used(9, 0, 1, 1), Stage::Asks(1), true),
            (used(10, 0, 1, 1), Stage::Asks(1), false),
            // Its tries count for the turns behind it: whether it may call was said when it began.
            (used(10, 9, 2, 1), Stage::Asks(1), true),
            (used(12, 10, 2, 1), Stage::Asks(1), false),
            (used(12, 10, 2, 2), Stage::Ends(LoopEnd::Limit), false),
            (used(0, 0, 2, 2), Stage::Asks(2), false),
            (used(0, 0, 3, 3), Stage::Ends(LoopEnd::Limit), false),
        ] {
            assert_eq!(stage(&answers, &stands), once_more, "{stands:?}");
            assert_eq!(may_call(&answers, &stands, stands.ended), may, "{stands:?}");
        }
        assert_eq!(stage(&fails, &used(9, 0, 1, 1)), Stage::Asks(1));
        assert_eq!(stage(&fails, &used(10, 0, 1, 1)), Stage::Ends(LoopEnd::Limit));
    }

    /// What is due of the loop `n`, with these steps waiting.
    fn looks(turns: Option<TurnsState>, asked: usize, waiting: &[&str]) -> String {
        let call = ToolAsked {
            arguments: String::new(),
            id: String::new(),
            name: "t".to_owned(),
            provider: None,
            tool: Some("t".into()),
        };
        let plan = Plan {
            answer: None,
            budget: Budget::default(),
            max_parallel_steps: None,
            nodes: vec![Node::new("n", NodeKind::Agent(agent()))],
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            step_timeout: None,
            tools: BTreeMap::from([("t".into(), Tool::new(EffectClass::Pure, ToolKind::Function("f".to_owned())))]),
        };
        let plan = Arc::new(plan).compile().unwrap();
        let mut state = JobState::new(JobId::from_u128(1));
        let running = StepState { status: StepStatus::Running, ..StepState::default() };
        if turns.is_some() {
            state.steps.insert("n".into(), StepState { turns: turns.map(Box::new), ..running });
        }
        let turn = crate::event::Turn { calls: vec![call; asked], reply: None };
        state.steps.insert("n/0".into(), StepState { turn: Some(Box::new(turn)), ..StepState::default() });
        let waits = |path: &StepPath| waiting.contains(&&*path.text());
        match due(&state, &plan, 1, &mut Cursor::default(), waits) {
            Due::Open(steps) => {
                let told = |step: &Step<'_>| format!("{} {}", step.path, step.work.kind.as_str());
                steps.iter().map(told).collect::<Vec<_>>().join(", ")
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn turns_and_calls_are_worked_on_in_the_place_of_their_loop() {
        let calls = |open: &[u32], left: &[u32]| {
            let (open, left) = (open.iter().copied().collect(), left.iter().copied().collect());
            Some(TurnsState { left, open, ..turns(1, 1) })
        };
        assert_eq!(looks(None, 0, &[]), "n agent");
        assert_eq!(looks(Some(turns(0, 0)), 0, &[]), "n/0 agent");
        assert_eq!(looks(Some(turns(1, 0)), 0, &["n/0"]), "");
        assert_eq!(looks(calls(&[], &[0, 1, 2]), 3, &[]), "n/0.0 tool, n/0.1 tool");
        assert_eq!(looks(calls(&[1], &[0, 2]), 3, &[]), "n/0.1 tool, n/0.0 tool");
        // One that waits keeps its place, so that what is asked for behind it does not overtake it.
        assert_eq!(looks(calls(&[0], &[1, 2]), 3, &["n/0.0"]), "n/0.1 tool");
        assert_eq!(looks(calls(&[0, 1], &[2]), 3, &["n/0.0", "n/0.1"]), "");
        assert_eq!(looks(calls(&[], &[]), 3, &[]), "n/1 agent");
        assert_eq!(looks(Some(TurnsState { said: true, ..turns(1, 1) }), 0, &[]), "n agent");
        // Beside a call that has ended the loop those that are open are given up, wherever they wait, and no other begins.
        let failed = |open: &[u32]| Some(TurnsState { failed_by: Some("n/0.2".into()), ..calls(open, &[1]).unwrap() });
        assert_eq!(looks(failed(&[0]), 3, &["n/0.0"]), "n/0.0 tool");
        assert_eq!(looks(failed(&[]), 3, &[]), "n agent");
        // A call of no tool is the loop's own work.
        assert_eq!(looks(calls(&[], &[3]), 3, &[]), "n/0.3 agent");
    }
}
