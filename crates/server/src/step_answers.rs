//! Answers that a step has and has not acted on yet: to its wait, or to the doubt about its call.

use std::collections::BTreeMap;

use aetheris_api::{AnsweredBy, AnsweredView};
use aetheris_core::event::{DoubtOutcome, Event, Recorded, WaitEnd};
use aetheris_core::path::StepPath;
use aetheris_core::state::JobState;

/// The last answer of each step that has one and has not gone on.
#[derive(Debug, Default)]
pub(crate) struct StepAnswers(BTreeMap<StepPath, AnsweredView>);

impl StepAnswers {
    /// Takes note of what an event tells a step, until the step goes on. `state` has the event in it.
    pub(crate) fn note(&mut self, state: &JobState, recorded: &Recorded) {
        let (node, by) = if let Event::WaitCompleted(e) = &recorded.event {
            // The time of a doubt's policy is no answer.
            let waits = state.steps.get(&e.node).is_some_and(|step| step.wait_end.is_some());
            let by = match &e.by {
                WaitEnd::Signal { .. } => Some(AnsweredBy::Signal),
                WaitEnd::Time => Some(AnsweredBy::Time),
                WaitEnd::Dropped => None,
            };
            (&e.node, by.filter(|_| waits))
        } else if let Event::InDoubtResolved(e) = &recorded.event {
            let by = match e.outcome {
                DoubtOutcome::DidNotHappen => Some(AnsweredBy::DidNotHappen),
                DoubtOutcome::Happened => Some(AnsweredBy::Happened),
                DoubtOutcome::Unresolved => None,
            };
            (&e.node, by)
        } else if let Event::NodeStarted(e) = &recorded.event {
            (&e.node, None)
        } else if let Event::NodeFinished(e) = &recorded.event {
            (&e.node, None)
        } else if let Event::NodeSkipped(e) = &recorded.event {
            (&e.node, None)
        } else {
            return;
        };
        match by {
            Some(by) => drop(self.0.insert(node.clone(), AnsweredView { at: recorded.at, by })),
            None => drop(self.0.remove(node)),
        }
    }

    /// The answers of steps that have not ended.
    pub(crate) fn open<'a>(&'a self, state: &'a JobState) -> impl Iterator<Item = (&'a StepPath, AnsweredView)> {
        let is_open = |node: &StepPath| state.steps.get(node).is_some_and(|step| !step.status.is_terminal());
        self.0.iter().filter(move |(node, _)| is_open(node)).map(|(node, answered)| (node, *answered))
    }
}
