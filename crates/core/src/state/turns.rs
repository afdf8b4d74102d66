//! The turns of a loop and the calls of each: which have begun, which are open, and what ends the loop. Each is a step of
//! its own; here is what the loop knows of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Illegal, Invocation, JobState, StepState};
use crate::event::{ModelRecord, NodeFinished, ToolAsked, Turn};
use crate::path::StepPath;
use crate::step::StepStatus;

/// How the turns of a loop stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnsState {
    /// The tokens that the loop had used when its newest turn began.
    pub asked_at: u64,
    /// How many turns have begun.
    pub begun: u32,
    /// How many turns have ended well.
    pub ended: u32,
    /// The first turn or call whose failure ends the loop.
    pub failed_by: Option<StepPath>,
    /// The calls of the newest turn that has ended which have not begun.
    pub left: BTreeSet<u32>,
    /// How many calls were refused because the model made a mistake.
    pub mistakes: u32,
    /// The calls that have begun and have not ended.
    pub open: BTreeSet<u32>,
    /// Whether the newest turn had the last word.
    pub said: bool,
    /// The tokens that the loop has used.
    pub tokens: u64,
}

impl TurnsState {
    /// Whether the question of a turn is open.
    #[must_use]
    pub const fn is_asking(&self) -> bool {
        self.begun > self.ended && self.failed_by.is_none()
    }

    /// Whether calls of the newest turn have not ended, or, as long as nothing has ended the loop, not begun.
    #[must_use]
    pub fn is_calling(&self) -> bool {
        !self.open.is_empty() || (!self.left.is_empty() && self.failed_by.is_none())
    }

    /// Whether the loop may end so.
    fn may_end(&self, well: bool) -> bool {
        self.open.is_empty() && !self.is_asking() && (!well || (self.said && self.failed_by.is_none()))
    }

    /// A turn, or a call of one, has moved. A turn begins when the calls of the one before have ended.
    fn moved(&mut self, path: &StepPath, to: StepStatus) -> Result<(), &'static str> {
        let turn = path.turn().unwrap_or_default();
        match path.call() {
            None if turn == self.begun => {
                if self.begun > self.ended || self.is_calling() || self.said || self.failed_by.is_some() {
                    return Err("the turn before it has not ended, or its loop has");
                }
                self.begun += 1;
                self.asked_at = self.tokens;
            }
            None if turn + 1 == self.begun && self.ended == turn => {}
            None => return Err("it is not the turn that is under way"),
            Some(call) => self.call_moved(turn, call, to)?,
        }
        Ok(())
    }

    fn call_moved(&mut self, turn: u32, call: u32, to: StepStatus) -> Result<(), &'static str> {
        let is_new = self.left.contains(&call);
        if self.begun != self.ended || turn + 1 != self.ended || !(is_new || self.open.contains(&call)) {
            return Err("it is no open call of the newest turn");
        }
        if is_new && self.failed_by.is_some() {
            return Err("its loop has failed");
        }
        self.left.remove(&call);
        if to.is_terminal() {
            self.open.remove(&call);
        } else {
            self.open.insert(call);
        }
        Ok(())
    }
}

impl JobState {
    /// How the turns of the loop stand that a step is, or is a part of.
    #[must_use]
    pub fn turns_of(&self, path: &StepPath) -> Option<&TurnsState> {
        self.steps.get(&path.of_loop()).and_then(|step| step.turns.as_deref())
    }

    /// What a model has asked for with a call of a loop.
    #[must_use]
    pub fn asked_of(&self, path: &StepPath) -> Option<&ToolAsked> {
        let turn = self.steps.get(&path.at_turn(path.turn()?))?.turn.as_deref()?;
        turn.calls.get(usize::try_from(path.call()?).ok()?)
    }

    /// Whether the model of a loop may be told that this call of it has failed: for all that is recorded, the call has not had
    /// its effect.
    #[must_use]
    pub fn may_be_told(&self, path: &StepPath) -> bool {
        let call = self.steps.get(path).and_then(|step| step.invocation.as_deref());
        path.call().is_some() && !call.is_some_and(Invocation::may_have_happened)
    }

    /// The turns of a loop and their calls, in their order; those of which anything is recorded.
    pub(super) fn parts_of_loop(&self, path: &StepPath) -> Vec<StepPath> {
        let begun = self.turns_of(path).map_or(0, |turns| turns.begun);
        let of_turn = |turn: u32| {
            let path = path.at_turn(turn);
            let asked = self.steps.get(&path).and_then(|step| step.turn.as_ref()).map_or(0, |turn| turn.calls.len());
            let calls = (0..u32::try_from(asked).unwrap_or(u32::MAX)).map(move |call| (turn, call));
            let calls: Vec<StepPath> = calls.map(|(turn, call)| path.at_call(turn, call)).collect();
            std::iter::once(path).chain(calls)
        };
        (0..begun).flat_map(of_turn).filter(|path| self.steps.contains_key(path)).collect()
    }

    /// A part of a loop has moved.
    pub(super) fn note_part(&mut self, path: &StepPath, to: StepStatus) -> Result<(), Illegal> {
        if path.is_outside_loop() {
            return Ok(());
        }
        let of_loop = self.steps.get_mut(&path.of_loop()).filter(|step| step.status == StepStatus::Running);
        let turns = of_loop.and_then(|step| step.turns.as_deref_mut()).ok_or("its loop is not under way");
        let moved = turns.and_then(|turns| turns.moved(path, to));
        moved.map_err(|why| Illegal::Contradiction(format!("`{path}`: {why}")))
    }

    /// A loop, or a part of one, has ended.
    pub(super) fn check_loop(&self, e: &NodeFinished) -> Result<(), Illegal> {
        let refused = |why: &str| Err(Illegal::Contradiction(format!("node `{}`: {why}", e.node)));
        let well = e.result.is_success();
        let step = self.steps.get(&e.node);
        if step.and_then(|step| step.turns.as_ref()).is_some_and(|turns| !turns.may_end(well)) {
            return refused("it cannot end: its turns have not");
        }
        if e.turn.is_some() != (e.node.is_turn() && well) {
            return refused("a turn of a loop ends with what it came to, and nothing else does");
        }
        if e.told && (well || e.given_up || !e.absorbed || e.node.call().is_none()) {
            return refused("a model is told of calls that have failed");
        }
        if e.told && !self.may_be_told(&e.node) {
            return refused("a model is never told of a call that may have happened");
        }
        Ok(())
    }

    /// A question of a loop has used tokens.
    pub(super) fn count_tokens(&mut self, path: &StepPath, model: Option<&ModelRecord>) {
        let Some(used) = model.map(|model| model.usage.total()) else { return };
        self.tokens = self.tokens.saturating_add(used);
        if let Some(turns) = self.turns_mut(path) {
            turns.tokens = turns.tokens.saturating_add(used);
        }
    }

    fn turns_mut(&mut self, path: &StepPath) -> Option<&mut TurnsState> {
        if path.is_outside_loop() {
            return None;
        }
        self.steps.get_mut(&path.of_loop()).and_then(|step| step.turns.as_deref_mut())
    }

    /// A turn has ended well.
    pub(super) fn turn_ended(&mut self, path: &StepPath, turn: &Turn) {
        if let Some(step) = self.steps.get_mut(path) {
            step.turn = Some(Box::new(turn.clone()));
        }
        if let Some(turns) = self.turns_mut(path) {
            turns.ended += 1;
            turns.left = (0..u32::try_from(turn.calls.len()).unwrap_or(u32::MAX)).collect();
            turns.said = turn.is_last_word();
        }
    }

    /// A part of a loop has failed: so is the loop to, unless the model is told.
    pub(super) fn part_of_loop_failed(&mut self, e: &NodeFinished) {
        let refused = self.steps.get(&e.node).is_some_and(|step| step.tries == 0);
        if let Some(turns) = self.turns_mut(&e.node) {
            if e.told {
                turns.mistakes += u32::from(refused);
            } else if turns.failed_by.is_none() {
                turns.failed_by = Some(e.node.clone());
            }
        }
    }
}

impl StepState {
    /// What the turn asked for and what is told to its model, if it is one that has ended well.
    #[must_use]
    pub fn turn(&self) -> Option<&Turn> {
        self.turn.as_deref()
    }
}
