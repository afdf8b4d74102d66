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
    turn < agent.max_turns && agent.max_tokens.is_none_or(|max| used < max)
}

/// The step of one path, if there is such a step. What a call of a loop does is told by what its model has asked for.
#[must_use]
pub fn step_at<'a>(state: &JobState, plan: &'a CompiledPlan, path: &StepPath) -> Option<Step<'a>> {
    let called = state.asked_of(path).and_then(|asked: &ToolAsked| asked.tool.as_ref());
    plan.step_of(path, called)
}

/// A job and its plan.
type Job<'s, 'a> = (&'s JobState, &'a CompiledPlan);

/// The steps of a node or an item that may be worked on, given at which it is: itself, or of a loop that has begun its turn or
/// calls. None where all of them wait.
pub(super) fn parts_of<'a>(
    (state, plan): Job<'_, 'a>,
    whole: Step<'a>,
    waits: &impl Fn(&StepPath) -> bool,
) -> Vec<Step<'a>> {
    let under_way = whole.path.is_outside_loop() && state.step_status(&whole.path) == StepStatus::Running;
    let Some((agent, turns)) = whole.work.agent().zip(state.turns_of(&whole.path)).filter(|_| under_way) else {
        return Some(whole).filter(|whole| !waits(&whole.path)).into_iter().collect();
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
    paths.filter_map(|path| step_at(state, plan, &path)).collect()
}
