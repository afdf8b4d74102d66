//! What each event does to the state, and what the tables refuse.

use super::{
    Blocked, Doubt, Ending, Invocation, InvocationPhase, JobState, Output, Ownership, PlanRef, StepState, Timer,
    WaitPhase, WaitRecord,
};
use crate::event::{self, Answer, DoubtOutcome, Event, InvocationOutcome, Recorded, RequeueReason, TimerId, WaitEnd};
use crate::job::{IllegalJobMove, JobStatus, JobTrigger};
use crate::lease::Fence;
use crate::limits;
use crate::path::StepPath;
use crate::step::{IllegalStepMove, StepStatus, StepTrigger};
use crate::time::{Span, Timestamp};

/// Why an event cannot follow the ones before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// The job table has no such move.
    #[error(transparent)]
    Job(#[from] IllegalJobMove),
    /// The step table has no such move.
    #[error("node `{node}`: {source}")]
    Step {
        /// The node.
        node: StepPath,
        /// What the table says.
        source: IllegalStepMove,
    },
    /// The stream has a gap or a repetition.
    #[error("event {found} follows event {last}: the stream is not dense")]
    Sequence {
        /// The last event folded.
        last: u64,
        /// The one that was given.
        found: u64,
    },
    /// A fence that is not the last claim's.
    #[error("an event with fence {found} cannot follow fence {last}")]
    Fence {
        /// The last claim's.
        last: Fence,
        /// The event's.
        found: Fence,
    },
    /// A step may not start before the plan is recorded.
    #[error("node `{0}` cannot start: no plan is recorded")]
    NoPlan(StepPath),
    /// The same correlation key was used by an earlier wait.
    #[error("the correlation key `{0}` was used by an earlier wait of this job; a key names one wait")]
    KeyUsed(String),
    /// The job is to end or to be held still: nothing new starts and it cannot complete.
    #[error("the job is to stop ({0:?}): nothing new starts and it cannot complete")]
    Ending(event::EndCause),
    /// Anything else that contradicts the state.
    #[error("{0}")]
    Contradiction(String),
    /// A bound is reached.
    #[error("the job has reached the bound of {bound} {what}")]
    Bound {
        /// How many.
        bound: u64,
        /// Of what.
        what: &'static str,
    },
}

impl JobState {
    /// Folds one recorded event.
    ///
    /// # Errors
    /// [`Illegal`]; the state is then not to be used any more.
    pub fn replay(&mut self, recorded: &Recorded) -> Result<(), Illegal> {
        if recorded.seq != self.seq + 1 {
            return Err(Illegal::Sequence { last: self.seq, found: recorded.seq });
        }
        let claims = matches!(recorded.event, Event::JobClaimed(_));
        let expected = if claims { Fence { epoch: self.fence.epoch + 1, ..recorded.fence } } else { self.fence };
        let first = self.seq == 0;
        if (recorded.fence != expected && !first) || recorded.fence.generation < self.fence.generation {
            return Err(Illegal::Fence { last: self.fence, found: recorded.fence });
        }
        self.fence = recorded.fence;
        self.apply(&recorded.event)?;
        self.stamp(&recorded.event, recorded.at);
        Ok(())
    }

    /// Folds one event whose time is not known yet; [`JobState::stamp`] gives it later.
    ///
    /// # Errors
    /// [`Illegal`]; the state is then not to be used any more.
    pub fn apply(&mut self, event: &Event) -> Result<(), Illegal> {
        if (self.seq == 0) != matches!(event, Event::JobCreated(_)) {
            return Err(Illegal::Contradiction(format!("{} at place {}", event.kind().as_str(), self.seq + 1)));
        }
        if event.kind().grows() && self.seq >= limits::JOB_EVENTS_MAX {
            return Err(Illegal::Bound { bound: limits::JOB_EVENTS_MAX, what: "events" });
        }
        match event {
            Event::JobCreated(e) => self.created(e),
            Event::PlanGenerated(e) => self.planned(e)?,
            Event::JobClaimed(e) => self.claimed(e)?,
            Event::JobRequeued(e) => self.requeued(e)?,
            Event::JobWaiting(e) => self.waiting(e)?,
            Event::WaitCompleted(e) => self.wait_completed(e)?,
            Event::SignalRefused(e) => self.signal_refused(e)?,
            Event::JobCancelRequested(e) => self.end_requested(e)?,
            Event::JobCompleted(e) => self.completed(&e.answer)?,
            Event::JobFailed(e) => {
                self.end(JobTrigger::Fail, Ending::Failed { error: e.error.clone(), node: e.node.clone() })?;
            }
            Event::JobCancelled(_) => self.end(JobTrigger::Cancel, Ending::Cancelled)?,
            Event::JobPauseRequested(_) => self.pause_requested()?,
            Event::JobPaused(e) => self.paused(e)?,
            Event::JobResumed(_) => self.resumed()?,
            Event::NodeStarted(e) => self.node_started(e)?,
            Event::NodeFinished(e) => self.node_finished(e)?,
            Event::NodeRetryScheduled(e) => self.retry_scheduled(e)?,
            Event::NodeSkipped(e) => {
                self.within_run()?;
                self.step(&e.node, StepTrigger::Skip)?;
            }
            Event::ToolInvocationStarted(e) => self.invocation_started(e)?,
            Event::ToolInvocationFinished(e) => self.invocation_finished(e)?,
            Event::CommandCommitted(e) => self.command_committed(e)?,
            Event::TimerSet(e) => {
                let after = Span::from_micros(e.after_us);
                self.timers.insert(e.timer.clone(), Timer { after, due: Timestamp::default() });
            }
            Event::TimerFired(e) => self.timer_fired(&e.timer)?,
            Event::StepInDoubt(e) => self.in_doubt(e)?,
            Event::InDoubtResolved(e) => self.doubt_resolved(e)?,
        }
        self.seq += 1;
        Ok(())
    }

    pub(super) fn move_job(&mut self, trigger: JobTrigger) -> Result<(), Illegal> {
        self.status = self.status.next(trigger)?;
        Ok(())
    }

    fn step(&mut self, node: &StepPath, trigger: StepTrigger) -> Result<&mut StepState, Illegal> {
        let step = self.steps.entry(node.clone()).or_default();
        step.status = step.status.next(trigger).map_err(|source| Illegal::Step { node: node.clone(), source })?;
        Ok(step)
    }

    /// Steps move only while a worker holds the job.
    fn within_run(&self) -> Result<(), Illegal> {
        if self.status == JobStatus::Running {
            Ok(())
        } else {
            Err(Illegal::Contradiction(format!("a step cannot move while its job is {}", self.status.as_str())))
        }
    }

    /// A try that "did not happen" has ended is ended in the unit of that answer, which may come from outside
    /// while nobody holds the job.
    fn within_run_or_disproof(&self, node: &StepPath) -> Result<(), Illegal> {
        let step = self.steps.get(node);
        let just = step.is_some_and(|step| step.doubt.is_some() && step.is_disproved());
        let idle = matches!(self.status, JobStatus::Pending | JobStatus::Paused);
        if idle && just { Ok(()) } else { self.within_run() }
    }

    fn invocation_of(&mut self, node: &StepPath) -> Result<&mut Invocation, Illegal> {
        self.steps
            .get_mut(node)
            .and_then(|step| step.invocation.as_mut())
            .ok_or_else(|| Illegal::Contradiction(format!("node `{node}` has no invocation")))
    }

    fn created(&mut self, e: &event::JobCreated) {
        self.agent = e.agent.clone();
        self.agent_version.clone_from(&e.agent_version);
        self.labels.clone_from(&e.labels);
        self.message = e.message.clone();
        self.session.clone_from(&e.session);
        self.tenant = e.tenant.clone();
        self.not_before = e.run_at;
        self.priority = e.priority;
    }

    fn planned(&mut self, e: &event::PlanGenerated) -> Result<(), Illegal> {
        let expected = self.plan.map_or(1, |plan| plan.version + 1);
        if e.plan_version != expected || self.status != JobStatus::Pending {
            return Err(Illegal::Contradiction(format!(
                "plan version {} cannot follow {}",
                e.plan_version,
                expected - 1
            )));
        }
        self.plan = Some(PlanRef { hash: e.plan_hash, version: e.plan_version });
        Ok(())
    }

    fn claimed(&mut self, e: &event::JobClaimed) -> Result<(), Illegal> {
        self.move_job(JobTrigger::Claim)?;
        self.not_before = None;
        self.not_before_delay = None;
        self.owner = Some(Ownership { attempt_id: e.attempt_id, instance: e.instance, worker: e.worker.clone() });
        Ok(())
    }

    fn requeued(&mut self, e: &event::JobRequeued) -> Result<(), Illegal> {
        self.refuse_when_ending()?;
        if self.status.is_blocked() && e.reason != RequeueReason::Retry {
            return Err(Illegal::Contradiction("a blocked job is held by nobody who could give it back".to_owned()));
        }
        self.move_job(JobTrigger::Requeue)?;
        match e.reason {
            RequeueReason::LeaseExpired | RequeueReason::HolderDied => self.reclaims += 1,
            RequeueReason::Retry | RequeueReason::Draining => {}
        }
        self.not_before_delay = e.after_us.map(Span::from_micros);
        self.owner = None;
        Ok(())
    }

    fn waiting(&mut self, e: &event::JobWaiting) -> Result<(), Illegal> {
        self.refuse_when_ending()?;
        self.move_job(if e.park { JobTrigger::Park } else { JobTrigger::Wait })?;
        self.owner = None;
        if let Some(open) = self.blocks.of(&e.node) {
            // It goes on, while its job was at work for others.
            let same =
                (open.doubt, open.wait_type, &open.correlation_key) == (e.doubt, e.wait_type, &e.correlation_key);
            let other = || Illegal::Contradiction(format!("node `{}` waits for something else", e.node));
            return same.then_some(()).ok_or_else(other);
        }
        if e.doubt {
            if self.step_status(&e.node) != StepStatus::InDoubt {
                return Err(Illegal::Contradiction(format!("node `{}` is not in doubt", e.node)));
            }
        } else {
            self.step(&e.node, StepTrigger::Wait)?;
        }
        if let Some(key) = &e.correlation_key {
            if self.waits.len() >= limits::JOB_WAITS_MAX {
                return Err(Illegal::Bound { bound: limits::JOB_WAITS_MAX as u64, what: "waits" });
            }
            let record = WaitRecord { node: e.node.clone(), phase: WaitPhase::Open, wait_type: e.wait_type };
            if self.waits.insert(key.clone(), record).is_some() {
                return Err(Illegal::KeyUsed(key.clone()));
            }
        }
        self.blocks.insert(Blocked {
            correlation_key: e.correlation_key.clone(),
            doubt: e.doubt,
            node: e.node.clone(),
            reason: e.reason.clone(),
            since: Timestamp::default(),
            wait_type: e.wait_type,
        });
        Ok(())
    }

    /// Takes the block away and closes its key.
    fn unblock(&mut self, node: &StepPath, phase: WaitPhase) -> Result<Blocked, Illegal> {
        self.move_job(JobTrigger::Unblock)?;
        let blocked = self
            .blocks
            .take(node)
            .ok_or_else(|| Illegal::Contradiction(format!("the job is not blocked on node `{node}`")))?;
        // The step can go on, whatever another one's next try waits for.
        (self.not_before, self.not_before_delay) = (None, None);
        self.able_when_resumed();
        self.close_key(blocked.correlation_key.as_deref(), phase);
        self.timers.remove(&TimerId::Wait(node.clone()));
        self.timers.remove(&TimerId::Doubt(node.clone()));
        Ok(blocked)
    }

    fn close_key(&mut self, key: Option<&str>, phase: WaitPhase) {
        if let Some(record) = key.and_then(|key| self.waits.get_mut(key)) {
            record.phase = phase;
        }
    }

    /// It changes nothing: the wait that it names goes on.
    fn signal_refused(&self, e: &event::SignalRefused) -> Result<(), Illegal> {
        let named = self.blocks.of(&e.node).and_then(|blocked| blocked.correlation_key.as_ref());
        if named == Some(&e.correlation_key) {
            return Ok(());
        }
        Err(Illegal::Contradiction(format!("the job does not wait for `{}`", e.correlation_key)))
    }

    fn wait_completed(&mut self, e: &event::WaitCompleted) -> Result<(), Illegal> {
        let phase = match &e.by {
            WaitEnd::Signal { payload, signal } => {
                WaitPhase::Delivered { payload_hash: payload.hash(), signal: *signal }
            }
            WaitEnd::Time => WaitPhase::Over,
        };
        let blocked = self.unblock(&e.node, phase)?;
        if blocked.doubt {
            if !matches!(e.by, WaitEnd::Time) {
                return Err(Illegal::Contradiction("a signal never answers a doubt".to_owned()));
            }
            if let Some(doubt) = self.steps.get_mut(&e.node).and_then(|step| step.doubt.as_mut()) {
                doubt.waited = true;
            }
            return Ok(());
        }
        let step = self.step(&e.node, StepTrigger::Unblock)?;
        step.wait_end = Some(e.by.clone());
        Ok(())
    }

    fn end_requested(&mut self, e: &event::JobCancelRequested) -> Result<(), Illegal> {
        let repeated = self.end_requested.is_some_and(event::EndCause::ends);
        if self.status != JobStatus::Running || repeated || !e.cause.ends() {
            return Err(Illegal::Contradiction("an end is asked for once, of a running job".to_owned()));
        }
        self.end_requested = Some(e.cause);
        Ok(())
    }

    fn refuse_when_ending(&self) -> Result<(), Illegal> {
        self.end_requested.map_or(Ok(()), |cause| Err(Illegal::Ending(cause)))
    }

    fn completed(&mut self, answer: &Answer) -> Result<(), Illegal> {
        self.refuse_when_ending()?;
        if let Some((node, _)) = self.steps.iter().find(|(_, step)| !step.status.is_terminal()) {
            return Err(Illegal::Contradiction(format!("the job cannot complete: node `{node}` has not ended")));
        }
        self.end(JobTrigger::Complete, Ending::Answered(answer.clone()))
    }

    fn end(&mut self, trigger: JobTrigger, ending: Ending) -> Result<(), Illegal> {
        self.move_job(trigger)?;
        for blocked in std::mem::take(&mut self.blocks).iter() {
            self.close_key(blocked.correlation_key.as_deref(), WaitPhase::Over);
        }
        self.timers.clear();
        self.owner = None;
        self.not_before = None;
        self.not_before_delay = None;
        self.paused = None;
        self.ending = Some(ending);
        Ok(())
    }

    fn node_started(&mut self, e: &event::NodeStarted) -> Result<(), Illegal> {
        self.refuse_when_ending()?;
        self.within_run()?;
        if self.plan.is_none() {
            return Err(Illegal::NoPlan(e.node.clone()));
        }
        let step = self.step(&e.node, StepTrigger::Start)?;
        step.tries += 1;
        step.retry_at = None;
        step.retry_delay = None;
        step.doubt = None;
        if step.tries != e.number {
            return Err(Illegal::Contradiction(format!(
                "node `{}` starts try {} after {}",
                e.node,
                e.number,
                step.tries - 1
            )));
        }
        Ok(())
    }

    fn node_finished(&mut self, e: &event::NodeFinished) -> Result<(), Illegal> {
        let success = e.result.is_success();
        if success {
            self.within_run()?;
        } else {
            self.within_run_or_disproof(&e.node)?;
        }
        let step = self.step(&e.node, if success { StepTrigger::Succeed } else { StepTrigger::Fail })?;
        step.error.clone_from(&e.error);
        step.result = Some(e.result);
        // It may have ended instead of its next try.
        step.retry_at = None;
        step.retry_delay = None;
        if let Some(output) = &e.output {
            step.output = Some(Output::Inline(output.clone()));
        } else if success && step.output.is_none() {
            step.output = Some(wait_output(step));
        }
        if let Some(model) = &e.model {
            self.tokens = self.tokens.saturating_add(model.usage.total());
        }
        if success {
            self.reclaims = 0;
        }
        Ok(())
    }

    fn retry_scheduled(&mut self, e: &event::NodeRetryScheduled) -> Result<(), Illegal> {
        self.within_run_or_disproof(&e.node)?;
        let step = self.step(&e.node, StepTrigger::ScheduleRetry)?;
        if step.invocation.as_ref().is_some_and(Invocation::is_open) {
            return Err(Illegal::Contradiction(format!(
                "node `{}` cannot be tried again: the outcome of its call is not told",
                e.node
            )));
        }
        step.error = Some(e.error.clone());
        step.retry_delay = Some(Span::from_micros(e.after_us));
        if let Some(model) = &e.model {
            self.tokens = self.tokens.saturating_add(model.usage.total());
        }
        Ok(())
    }

    fn invocation_started(&mut self, e: &event::ToolInvocationStarted) -> Result<(), Illegal> {
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
        step.invocation = Some(Invocation {
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
            unsent: previous.map_or(0, |earlier| earlier.unsent),
        });
        Ok(())
    }

    fn invocation_finished(&mut self, e: &event::ToolInvocationFinished) -> Result<(), Illegal> {
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

    fn command_committed(&mut self, e: &event::CommandCommitted) -> Result<(), Illegal> {
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

    fn timer_fired(&mut self, timer: &TimerId) -> Result<(), Illegal> {
        self.timers
            .remove(timer)
            .map(drop)
            .ok_or_else(|| Illegal::Contradiction(format!("the timer {timer} is not set")))
    }

    fn in_doubt(&mut self, e: &event::StepInDoubt) -> Result<(), Illegal> {
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
        step.doubt = Some(Doubt { policy: e.policy, reason: e.reason.clone(), since, waited: false });
        Ok(())
    }

    /// An answer about a call that the job's end left in doubt is kept with it: the job does nothing more, and its step
    /// stays as the end has left it. The call's own success takes a "did not happen" back.
    fn answered_late(&mut self, e: &event::InDoubtResolved) -> Result<(), Illegal> {
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

    fn doubt_resolved(&mut self, e: &event::InDoubtResolved) -> Result<(), Illegal> {
        if self.status.is_terminal() {
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
            self.able_when_resumed();
        }
        Ok(())
    }
}

/// The output of a wait: what its signal brought, or nothing.
fn wait_output(step: &StepState) -> Output {
    Output::Inline(match &step.wait_end {
        Some(WaitEnd::Signal { payload, .. }) => payload.clone(),
        Some(WaitEnd::Time) | None => crate::json::Json::null(),
    })
}
