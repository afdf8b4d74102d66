//! Values that were drawn for steps: what nobody can compute again.

use serde::{Deserialize, Serialize};

use super::{Illegal, JobState};
use crate::event::{Draw, Drawn, ValueRecorded};
use crate::limits;
use crate::step::StepStatus;
use crate::time::Timestamp;

/// What a step was given that nobody can compute again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Values {
    /// What its templates ask for beside the moment, in their order.
    pub drawn: Vec<Drawn>,
    /// Its moment, by the store's clock.
    pub now: Option<Timestamp>,
}

impl Values {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl JobState {
    pub(super) fn value_recorded(&mut self, e: &ValueRecorded) -> Result<(), Illegal> {
        self.within_run()?;
        let contradicts = |why: &str| Illegal::Contradiction(format!("node `{}`: {why}", e.node));
        let step = self.steps.get_mut(&e.node).filter(|step| step.status == StepStatus::Running);
        let step = step.ok_or_else(|| contradicts("values are drawn for a step that is under way"))?;
        for value in &e.values {
            match value.draw() {
                Draw::Now if step.values.now.is_some() => return Err(contradicts("a step has one moment")),
                Draw::Now => step.values.now = Some(Timestamp::default()),
                Draw::Random | Draw::Uuid => step.values.drawn.push(value.clone()),
            }
        }
        if step.values.drawn.len() > limits::DRAWN_VALUES_MAX {
            return Err(Illegal::Bound { bound: limits::DRAWN_VALUES_MAX as u64, what: "values of one step" });
        }
        Ok(())
    }

    /// The moment of a step is that of the event that records it.
    pub(super) fn stamp_values(&mut self, e: &ValueRecorded, at: Timestamp) {
        if let Some(step) = self.steps.get_mut(&e.node)
            && e.values.contains(&Drawn::Now)
        {
            step.values.now = Some(at);
        }
    }
}
