//! Rounds of a step whose output is judged. The first is the step of the node or the item itself; each further one is a
//! step of its own, and so is each question to a critic. A round that passes or fails ends its node or item; a rejected one is
//! followed by another, or fails.

use super::{Illegal, JobState, StepState};
use crate::event::{NodeFinished, NodeRefining, Verdict};
use crate::path::StepPath;
use crate::step::{StepStatus, StepTrigger};

impl JobState {
    /// The newest round of a node or an item.
    #[must_use]
    pub fn newest_round(&self, base: &StepPath) -> StepPath {
        base.in_round(self.steps.get(base).map_or(0, |step| step.round))
    }

    /// What was asked of the critic of a node or an item, its further rounds, and the turns and calls of each that is a loop, in
    /// their order; those of which anything is recorded.
    pub fn parts_of(&self, base: &StepPath) -> impl Iterator<Item = StepPath> {
        let of_round = |round: u32| {
            let path = base.in_round(round);
            let turns = self.parts_of_loop(&path);
            (round > 0).then(|| path.clone()).into_iter().chain(turns).chain([path.critic()])
        };
        (0..=self.newest_round(base).round()).flat_map(of_round).filter(|path| self.steps.contains_key(path))
    }

    /// A round, or the question of a critic, begins and ends only while it is the current one.
    pub(super) fn require_current_part(&self, path: &StepPath) -> Result<(), Illegal> {
        // One that is refined ends with its rounds.
        let of_rounds = self.step_status(path) == StepStatus::Refining;
        let at_it = !of_rounds
            && match path.judged() {
                // Turns and calls ask for their loop (`note_part`).
                _ if !path.is_outside_loop() => true,
                Some(judged) => self.steps.get(&judged).is_some_and(StepState::waits_for_critic),
                None if path.round() > 0 => {
                    let base = self.steps.get(&path.base());
                    base.is_some_and(|base| base.status == StepStatus::Refining && base.round == path.round())
                }
                None => true,
            };
        at_it
            .then_some(())
            .ok_or_else(|| Illegal::Contradiction(format!("`{path}` is not the current round of its node")))
    }

    /// A step has ended well, or its output is to be judged.
    pub(super) fn note_verdict(&mut self, e: &NodeFinished) -> Result<(), Illegal> {
        if !e.node.is_outside_loop() {
            if let Some(turn) = e.turn.as_deref() {
                self.turn_ended(&e.node, turn);
            }
            // What its tool has answered may not fit; nobody else judges it.
            let of_tool = e.verdict == Some(Verdict::Reject) && e.node.call().is_some();
            if e.verdict.is_some() && !of_tool {
                return Err(Illegal::Contradiction(format!("`{}` is a part of a loop, which nobody judges", e.node)));
            }
            if let Some(step) = self.steps.get_mut(&e.node) {
                step.verdict = e.verdict;
            }
            return Ok(());
        }
        let refused = |why: &str| Err(Illegal::Contradiction(format!("node `{}`: {why}", e.node)));
        let step = self.steps.get_mut(&e.node);
        match (e.verdict, e.node.is_critic()) {
            (None, true) => return refused("a critic gives a verdict"),
            (Some(Verdict::Pending), true) | (Some(Verdict::Pass), false) => {
                return refused("it cannot end with this verdict");
            }
            (verdict, _) => {
                if let Some(step) = step {
                    step.verdict = verdict;
                }
            }
        }
        match (e.verdict, e.node.judged()) {
            (Some(Verdict::Pass), Some(judged)) => self.approve(&judged),
            (Some(Verdict::Reject | Verdict::Pending), _) => Ok(()),
            (None | Some(Verdict::Pass), _) => self.round_ended_well(&e.node),
        }
    }

    fn approve(&mut self, path: &StepPath) -> Result<(), Illegal> {
        self.step(path, StepTrigger::Approve)?;
        self.round_ended_well(path)
    }

    fn round_ended_well(&mut self, path: &StepPath) -> Result<(), Illegal> {
        if path.round() == 0 {
            return Ok(());
        }
        let (result, source) = self.steps.get(path).map(|round| (round.result, round.source)).unwrap_or_default();
        let base = self.step(&path.base(), StepTrigger::Approve)?;
        (base.result, base.source, base.error) = (result, source, None);
        Ok(())
    }

    /// A step has failed: so has what it is a round of, or what it was to judge.
    pub(super) fn part_failed(&mut self, e: &NodeFinished) -> Result<(), Illegal> {
        if !e.node.is_outside_loop() {
            self.part_of_loop_failed(e);
            return Ok(());
        }
        if let Some(judged) = e.node.judged() {
            self.fails_with(&judged, e)?;
        }
        if e.node.round() > 0 {
            self.fails_with(&e.node.base(), e)?;
        }
        Ok(())
    }

    fn fails_with(&mut self, path: &StepPath, e: &NodeFinished) -> Result<(), Illegal> {
        let step = self.step(path, StepTrigger::Fail)?;
        (step.absorbed, step.given_up, step.result) = (e.absorbed, e.given_up, Some(e.result));
        step.error = e.error.clone().map(Box::new);
        Ok(())
    }

    pub(super) fn refining(&mut self, e: &NodeRefining) -> Result<(), Illegal> {
        self.within_run()?;
        let round = self.newest_round(&e.node);
        if !e.node.is_base() || e.round != round.round() + 1 {
            let why = format!("round {} of `{}` cannot follow round {}", e.round, e.node, round.round());
            return Err(Illegal::Contradiction(why));
        }
        let said = |path: &StepPath| self.steps.get(path).and_then(|step| step.verdict);
        if ![said(&round), said(&round.critic())].contains(&Some(Verdict::Reject)) {
            return Err(Illegal::Contradiction(format!("nothing has rejected the output of `{round}`")));
        }
        if round.round() > 0 {
            self.step(&round, StepTrigger::Reject)?;
        }
        let base = self.step(&e.node, StepTrigger::Refine)?;
        base.round = e.round;
        let next = StepState { feedback: Some(e.feedback.clone()), ..StepState::default() };
        self.steps.insert(e.node.in_round(e.round), next);
        Ok(())
    }

    /// The steps that an end has ended beside its own.
    pub(super) fn ended_with(e: &NodeFinished) -> impl Iterator<Item = StepPath> {
        let ends = match e.verdict {
            None | Some(Verdict::Pass) => true,
            Some(Verdict::Pending | Verdict::Reject) => false,
        };
        let judged = e.node.judged().filter(|_| ends);
        let of_round = ends && e.node.round() > 0 && e.node.is_outside_loop();
        judged.into_iter().chain(of_round.then(|| e.node.base()))
    }
}

impl StepState {
    /// Whether its output awaits its critic.
    #[must_use]
    pub fn waits_for_critic(&self) -> bool {
        self.status == StepStatus::Validating && self.verdict == Some(Verdict::Pending)
    }
}
