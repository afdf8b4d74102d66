//! Calls of ledger steps: their permits, what became of them, and doubts about that.

use super::{Doubt, Illegal, Invocation, InvocationPhase, JobState, Output, WaitPhase};
use crate::event::{self, DoubtOutcome, InvocationOutcome};
use crate::job::{JobStatus, JobTrigger};
use crate::path::StepPath;
use crate::step::{StepStatus, StepTrigger};
use crate::time::{Span, Timestamp};

impl JobState {
    pub(super) fn invocation_of(&mut self, node: &StepPath) -> Result<&mut Invocation, Illegal> {
        self.steps
            .get_mut(node)
            .and_then(|step| step.invocation.as_deref_mut())
            .ok_or_else(|| Illegal::Contradiction(format!("node `{node}` has no invocation")))
    }

    pub(super) fn invocation_started(&mut self, e: &event::ToolInvocationStarted) -> Result<(), Illegal> {
        self.refuse_when_ending()?;
        self.within_run()?;
        let step = self.step(&e.node, StepTrigger::Call)?;
        let previous = step.invocation.take();
        if previous.as_ref().is_some_and(|earlier| !earlier.allows_next_permit()) {
            return Err(Illegal::Contradiction(format!(
                "permit {} of node `{}` cannot follow: the one before it does not allow another",
                e.permit, e.node
            )));
        }
        let input = match (&previous, &e.input) {
            (None, Some(input)) if e.permit == 1 => input.clone(),
            (Some(earlier), None) if earlier.permit + 1 == e.permit && earlier.key == e.key => earlier.input.clone(),
            (None | Some(_), _) => {
                return Err(Illegal::Contradiction(format!(
                    "permit {} of node `{}` is out of order",
                    e.permit, e.node
                )));
            }
        };
        step.doubt = None;
        step.invocation = Some(Box::new(Invocation {
            answered_late: None,
            class: e.effect,
            deadline: Timestamp::default(),
            input,
            key: e.key,
            lifetime: Span::from_micros(e.lifetime_us),
            permit: e.permit,
            permit_id: e.permit_id,
            phase: InvocationPhase::Started,
            tool: e.tool.clone(),
            tool_version: e.tool_version.clone(),
            unknown: previous.as_ref().map_or(0, |earlier| earlier.unknown + u32::from(earlier.is_unknown())),
            unsent: previous.map_or(0, |earlier| earlier.unsent),
        }));
        Ok(())
    }

    pub(super) fn invocation_finished(&mut self, e: &event::ToolInvocationFinished) -> Result<(), Illegal> {
        self.within_run()?;
        let invocation = self.invocation_of(&e.node)?;
        let open = match invocation.phase {
            InvocationPhase::Started => true,
            InvocationPhase::Resolved(DoubtOutcome::Happened) => e.outcome == InvocationOutcome::Committed,
            InvocationPhase::Finished(_) | InvocationPhase::Resolved(_) => false,
        };
        if !open || invocation.permit != e.permit {
            return Err(Illegal::Contradiction(format!(
                "permit {} of node `{}` has an outcome already",
                e.permit, e.node
            )));
        }
        invocation.phase = InvocationPhase::Finished(e.outcome);
        invocation.unsent += u32::from(e.outcome == InvocationOutcome::NotSent);
        if let Some(step) = self.steps.get_mut(&e.node) {
            step.source = e.source;
        }
        Ok(())
    }

    pub(super) fn command_committed(&mut self, e: &event::CommandCommitted) -> Result<(), Illegal> {
        let invocation = self.invocation_of(&e.node)?;
        if invocation.phase != InvocationPhase::Finished(InvocationOutcome::Committed) {
            return Err(Illegal::Contradiction(format!("the command of node `{}` has no effect", e.node)));
        }
        let key = invocation.key;
        if let Some(step) = self.steps.get_mut(&e.node) {
            step.output = Some(Output::Effect(key));
        }
        Ok(())
    }

    pub(super) fn in_doubt(&mut self, e: &event::StepInDoubt) -> Result<(), Illegal> {
        let invocation = self.invocation_of(&e.node)?;
        if invocation.permit != e.permit || invocation.phase != InvocationPhase::Started {
            return Err(Illegal::Contradiction(format!("permit {} of node `{}` is not open", e.permit, e.node)));
        }
        let step = self.step(&e.node, StepTrigger::Doubt)?;
        let since = match &step.doubt {
            Some(doubt) if e.policy == doubt.policy + 1 => doubt.since,
            None if e.policy == 0 => Timestamp::default(),
            None | Some(_) => {
                return Err(Illegal::Contradiction(format!("node `{}` is not at policy {}", e.node, e.policy)));
            }
        };
        step.doubt = Some(Box::new(Doubt { policy: e.policy, reason: e.reason.clone(), since, waited: false }));
        Ok(())
    }

    /// An answer about a call that the end of the job, or of its step, left in doubt is kept with it: the step stays as that end
    /// has left it. The call's own success takes a "did not happen" back.
    pub(super) fn answered_late(&mut self, e: &event::InDoubtResolved) -> Result<(), Illegal> {
        let status = self.step_status(&e.node);
        let invocation = self.invocation_of(&e.node)?;
        let open = match e.by {
            event::Resolver::Operator => invocation.is_doubted(status) || invocation.is_left_unresolved(),
            event::Resolver::LateDeposit => {
                let denied = invocation.phase == InvocationPhase::Resolved(DoubtOutcome::DidNotHappen);
                invocation.is_doubted(status)
                    || (denied && !status.is_terminal() && e.outcome == DoubtOutcome::Happened)
            }
            event::Resolver::Policy | event::Resolver::Reconcile => false,
        };
        if invocation.permit != e.permit || !open || e.outcome == DoubtOutcome::Unresolved {
            return Err(Illegal::Contradiction(format!("permit {} of node `{}` is not in doubt", e.permit, e.node)));
        }
        invocation.phase = InvocationPhase::Resolved(e.outcome);
        invocation.answered_late = Some(e.outcome);
        Ok(())
    }

    pub(super) fn doubt_resolved(&mut self, e: &event::InDoubtResolved) -> Result<(), Illegal> {
        if self.status.is_terminal() || self.steps.get(&e.node).is_some_and(|step| step.absorbed) {
            return self.answered_late(e);
        }
        let status = self.step_status(&e.node);
        let invocation = self.invocation_of(&e.node)?;
        // A success that came after "did not happen" takes that answer back, as long as no further permit was given.
        let late = matches!(status, StepStatus::Running | StepStatus::Retrying)
            && invocation.phase == InvocationPhase::Resolved(DoubtOutcome::DidNotHappen)
            && e.by == event::Resolver::LateDeposit
            && e.outcome == DoubtOutcome::Happened;
        let open = status == StepStatus::InDoubt || late;
        // The step table alone would let "unresolved" follow another answer, or no doubt at all.
        if invocation.permit != e.permit || !open {
            return Err(Illegal::Contradiction(format!("permit {} of node `{}` is not in doubt", e.permit, e.node)));
        }
        invocation.phase = InvocationPhase::Resolved(e.outcome);
        let step = match e.outcome {
            DoubtOutcome::Happened | DoubtOutcome::DidNotHappen => self.step(&e.node, StepTrigger::Resolve)?,
            // The step stays in doubt until its failure is written, in the same commit.
            DoubtOutcome::Unresolved => self.step(&e.node, StepTrigger::Doubt)?,
        };
        step.source = e.by.source();
        if late {
            step.retry_at = None;
            step.retry_delay = None;
        }
        if self.blocks.of(&e.node).is_some() {
            return self.unblock(&e.node, WaitPhase::Over).map(drop);
        }
        // Others may be what the job waits for; this step can go on.
        if self.status.is_blocked() {
            self.move_job(JobTrigger::Unblock)?;
        } else if self.status == JobStatus::Paused {
            self.note_can_go_on();
        }
        Ok(())
    }
}
