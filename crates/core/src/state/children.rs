//! The child jobs of a job: which step has asked for which, and how they have ended.

use serde::{Deserialize, Serialize};

use super::{Illegal, JobState, StepState, WaitPhase, usage};
use crate::event::{self, ChildOutcome};
use crate::id::{AgentName, JobId};
use crate::json::Json;
use crate::limits;
use crate::path::StepPath;
use crate::plan::OnParentEnd;
use crate::step::{StepStatus, StepTrigger};

/// The child job of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Child {
    /// Its agent.
    pub agent: AgentName,
    /// How it ended, where the step has been told. An answer that has become the step's output stands there alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<ChildOutcome>,
    /// The job.
    pub id: JobId,
    /// What becomes of it when this job ends.
    pub on_parent_end: OnParentEnd,
    /// Whether the step waits for its end.
    #[serde(default, skip_serializing_if = "usage::is_false")]
    pub waits: bool,
}

impl Child {
    /// Whether the step waits, and has not been told how the child ended.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.waits && self.end.is_none()
    }

    /// Whether it is to be cancelled where nobody waits for it any more. Of a child that nobody waits for it is not known
    /// whether it has ended.
    #[must_use]
    pub fn may_be_cancelled(&self) -> bool {
        self.on_parent_end == OnParentEnd::Cancel && self.end.is_none()
    }

    /// The answer that it has ended with.
    #[must_use]
    pub const fn result(&self) -> Option<&Json> {
        match &self.end {
            Some(ChildOutcome::Completed { result }) => Some(result),
            Some(ChildOutcome::Failed { .. } | ChildOutcome::Cancelled) | None => None,
        }
    }
}

/// How many child jobs a job has asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCount {
    /// All of them.
    pub all: u32,
    /// Those of nodes, and not of items of maps.
    pub of_nodes: u32,
}

impl ChildCount {
    /// Whether the job has asked for no child at all.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.all == 0
    }

    /// The bound that one more child of a step would exceed.
    #[must_use]
    pub fn bound_reached(self, path: &StepPath) -> Option<u32> {
        let of_node = path.item().is_none() && self.of_nodes >= limits::CHILDREN_OF_NODES_MAX;
        let bound = if of_node { limits::CHILDREN_OF_NODES_MAX } else { limits::CHILDREN_MAX };
        (of_node || self.all >= limits::CHILDREN_MAX).then_some(bound)
    }
}

impl JobState {
    /// How deep a child of this job is.
    #[must_use]
    pub fn child_depth(&self) -> u32 {
        self.parent.as_ref().map_or(0, |parent| parent.depth).saturating_add(1)
    }

    /// Whether a step waits for this child, and its job goes on.
    #[must_use]
    pub fn awaits_child(&self, path: &StepPath, child: JobId) -> bool {
        let step = self.steps.get(path).filter(|step| !step.status.is_terminal());
        !self.status.is_terminal() && step.and_then(StepState::awaited_child) == Some(child)
    }

    pub(super) fn child_started(&mut self, e: &event::ChildStarted) -> Result<(), Illegal> {
        self.refuse_when_ending()?;
        self.within_run()?;
        self.require_current_part(&e.node)?;
        if let Some(bound) = self.children.bound_reached(&e.node) {
            return Err(Illegal::Bound { bound: bound.into(), what: "child jobs" });
        }
        if e.depth != self.child_depth() || e.depth > limits::CHILD_DEPTH_MAX {
            return Err(Illegal::Contradiction(format!("a child of this job cannot be {} jobs deep", e.depth)));
        }
        let step = self.steps.get_mut(&e.node).filter(|step| step.status == StepStatus::Running);
        let Some(step) = step.filter(|step| step.child.is_none() && step.invocation.is_none()) else {
            return Err(Illegal::Contradiction(format!("node `{}` cannot ask for a child job", e.node)));
        };
        step.child = Some(Box::new(Child {
            agent: e.agent.clone(),
            end: None,
            id: e.child,
            on_parent_end: e.on_parent_end,
            waits: e.waits,
        }));
        self.children.all += 1;
        self.children.of_nodes += u32::from(e.node.item().is_none());
        Ok(())
    }

    /// A step is told of its child's end whatever else its job does: it may wait for that, or be about to.
    pub(super) fn child_ended(&mut self, e: &event::ChildEnded) -> Result<(), Illegal> {
        if !self.awaits_child(&e.node, e.child) {
            return Err(Illegal::Contradiction(format!("node `{}` does not wait for {}", e.node, e.child)));
        }
        if self.blocks.of(&e.node).is_some() {
            self.unblock(&e.node, WaitPhase::Over)?;
            self.step(&e.node, StepTrigger::Unblock)?;
        }
        if let Some(child) = self.steps.get_mut(&e.node).and_then(|step| step.child.as_deref_mut()) {
            child.end = Some(e.outcome.clone());
        }
        Ok(())
    }
}

impl StepState {
    /// The child that it waits for, and has not been told the end of.
    #[must_use]
    pub fn awaited_child(&self) -> Option<JobId> {
        self.child.as_deref().filter(|child| child.is_awaited()).map(|child| child.id)
    }
}
