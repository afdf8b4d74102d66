//! What each event does to the state, and what the tables refuse.

use super::{Ending, Invocation, ItemsState, JobState, Output, Ownership, PlanRef, StepState, Timer, WaitPhase};
use crate::event::{
    self, Answer, BranchStatus, ChildOutcome, Event, Recorded, RequeueReason, TimerId, Verdict, WaitEnd,
};
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
                self.require_plan(&e.node)?;
                if !e.node.is_base() {
                    return Err(Illegal::Contradiction(format!(
                        "`{}` is a part of a step that is not skipped",
                        e.node
                    )));
                }
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
            Event::ValueRecorded(e) => self.value_recorded(e)?,
            Event::NodeRefining(e) => self.refining(e)?,
            Event::ChildStarted(e) => self.child_started(e)?,
            Event::ChildEnded(e) => self.child_ended(e)?,
        }
        self.seq += 1;
        Ok(())
    }

    pub(super) fn move_job(&mut self, trigger: JobTrigger) -> Result<(), Illegal> {
        self.status = self.status.next(trigger)?;
        Ok(())
    }

    pub(super) fn step(&mut self, node: &StepPath, trigger: StepTrigger) -> Result<&mut StepState, Illegal> {
        if (node.item().is_some() && node.is_base()) || !node.is_outside_loop() {
            let to = self.step_status(node).next(trigger);
            let to = to.map_err(|source| Illegal::Step { node: node.clone(), source })?;
            self.note_item(node, to)?;
            self.note_part(node, to)?;
        }
        let step = self.steps.entry(node.clone()).or_default();
        step.status = step.status.next(trigger).map_err(|source| Illegal::Step { node: node.clone(), source })?;
        Ok(step)
    }

    /// Steps move only while a worker holds the job.
    pub(super) fn within_run(&self) -> Result<(), Illegal> {
        if self.status == JobStatus::Running {
            Ok(())
        } else {
            Err(Illegal::Contradiction(format!("a step cannot move while its job is {}", self.status.as_str())))
        }
    }

    /// A try that "did not happen" has ended is ended in the unit of that answer, which may come from outside
    /// while nobody holds the job.
    pub(super) fn within_run_or_disproof(&self, node: &StepPath) -> Result<(), Illegal> {
        let step = self.steps.get(node);
        let just = step.is_some_and(|step| step.doubt.is_some() && step.is_disproved());
        let idle = matches!(self.status, JobStatus::Pending | JobStatus::Paused);
        if idle && just { Ok(()) } else { self.within_run() }
    }

    fn created(&mut self, e: &event::JobCreated) {
        self.agent = e.agent.clone();
        self.agent_version.clone_from(&e.agent_version);
        self.execution_version.clone_from(&e.execution_version);
        self.labels.clone_from(&e.labels);
        self.message = e.message.clone();
        self.parent.clone_from(&e.parent);
        self.session.clone_from(&e.session);
        self.tenant = e.tenant.clone();
        self.not_before = e.run_at;
        self.planning = e.planning;
        self.priority = e.priority;
    }

    fn planned(&mut self, e: &event::PlanGenerated) -> Result<(), Illegal> {
        let expected = self.plan.map_or(1, |plan| plan.version + 1);
        // A plan that is made is recorded by the run that has made it.
        let made = self.planning.is_some() && self.plan.is_none();
        if made {
            self.refuse_when_ending()?;
        }
        let status = if made { JobStatus::Running } else { JobStatus::Pending };
        let is_made = !made || self.step_status(&StepPath::planning()) == StepStatus::Completed;
        if e.plan_version != expected || self.status != status || !is_made {
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
        if self.status.is_blocked() && !e.reason.waits() {
            return Err(Illegal::Contradiction("a blocked job is held by nobody who could give it back".to_owned()));
        }
        self.move_job(JobTrigger::Requeue)?;
        match e.reason {
            RequeueReason::LeaseExpired | RequeueReason::HolderDied => self.reclaims += 1,
            RequeueReason::Retry | RequeueReason::Draining | RequeueReason::RateLimited => {}
        }
        self.not_before_delay = e.after_us.map(Span::from_micros);
        self.owner = None;
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

    pub(super) fn refuse_when_ending(&self) -> Result<(), Illegal> {
        self.end_requested.map_or(Ok(()), |cause| Err(Illegal::Ending(cause)))
    }

    fn completed(&mut self, answer: &Answer) -> Result<(), Illegal> {
        self.refuse_when_ending()?;
        if self.plan.is_none() {
            return Err(Illegal::Contradiction("the job cannot complete: it has no plan".to_owned()));
        }
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

    /// What makes the plan comes before the plan, and nothing else does.
    fn require_plan(&self, node: &StepPath) -> Result<(), Illegal> {
        match (self.plan.is_some(), node.is_planning()) {
            (true, false) => Ok(()),
            (false, true) if self.planning.is_some() => Ok(()),
            (false, _) => Err(Illegal::NoPlan(node.clone())),
            (true, true) => Err(Illegal::Contradiction(format!("`{node}`: the job has its plan"))),
        }
    }

    fn node_started(&mut self, e: &event::NodeStarted) -> Result<(), Illegal> {
        self.refuse_when_ending()?;
        self.within_run()?;
        self.require_plan(&e.node)?;
        self.require_current_part(&e.node)?;
        let step = self.step(&e.node, StepTrigger::Start)?;
        step.tries += 1;
        if step.tries == 1 {
            let open = e.needs.iter().filter(|(_, need)| **need == BranchStatus::Open);
            step.open = open.map(|(node, _)| node.clone()).collect();
            step.items = e.items.map(|items| Box::new(ItemsState::new(items)));
            step.turns = e.turns.then(Box::default);
        }
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
        self.require_plan(&e.node)?;
        let ends = |items: &ItemsState| {
            let whole = items.stopped_by.is_none() || !success;
            items.is_over() && whole && !(e.absorbed && items.lost_by.is_some())
        };
        self.require_current_part(&e.node)?;
        self.check_loop(e)?;
        let step = self.step(&e.node, ending(e))?;
        if step.items.as_deref().is_some_and(|items| !ends(items)) {
            return Err(Illegal::Contradiction(format!("node `{}` cannot end: its items have not", e.node)));
        }
        if success && step.awaited_child().is_some() {
            return Err(Illegal::Contradiction(format!("node `{}` cannot end: its child job has not", e.node)));
        }
        step.absorbed = e.absorbed;
        step.error = e.error.clone().map(Box::new);
        step.given_up = e.given_up;
        step.result = Some(e.result);
        // It may have ended instead of its next try.
        step.retry_at = None;
        step.retry_delay = None;
        if let Some(output) = &e.output {
            step.output = Some(Output::Inline(output.clone()));
        } else if success && step.output.is_none() {
            step.output = Some(untold_output(step));
        }
        self.count_tokens(&e.node, e.model.as_deref());
        if success || e.absorbed {
            self.reclaims = 0;
        }
        if success {
            return self.note_verdict(e);
        }
        self.part_failed(e)?;
        self.note_item_failed(e);
        Ok(())
    }

    fn retry_scheduled(&mut self, e: &event::NodeRetryScheduled) -> Result<(), Illegal> {
        self.within_run_or_disproof(&e.node)?;
        let step = self.step(&e.node, StepTrigger::ScheduleRetry)?;
        if step.invocation.as_deref().is_some_and(Invocation::is_open) {
            return Err(Illegal::Contradiction(format!(
                "node `{}` cannot be tried again: the outcome of its call is not told",
                e.node
            )));
        }
        step.error = Some(Box::new(e.error.clone()));
        step.retry_delay = Some(Span::from_micros(e.after_us));
        self.count_tokens(&e.node, e.model.as_deref());
        Ok(())
    }

    fn timer_fired(&mut self, timer: &TimerId) -> Result<(), Illegal> {
        self.timers
            .remove(timer)
            .map(drop)
            .ok_or_else(|| Illegal::Contradiction(format!("the timer {timer} is not set")))
    }
}

/// What an end is to its step.
fn ending(e: &event::NodeFinished) -> StepTrigger {
    match (e.result.is_success(), e.verdict) {
        (true, Some(Verdict::Pending | Verdict::Reject)) if !e.node.is_critic() => StepTrigger::Judge,
        (true, _) => StepTrigger::Succeed,
        (false, _) => StepTrigger::Fail,
    }
}

/// The output that an end does not tell: what the items of a map came to, what the signal of a wait brought, what its child
/// answered, or nothing.
fn untold_output(step: &mut StepState) -> Output {
    if step.items.is_some() {
        return Output::Items;
    }
    if let Some(child) = step.child.as_deref_mut().filter(|child| child.waits)
        && let Some(ChildOutcome::Completed { result }) = &mut child.end
    {
        return Output::Inline(std::mem::replace(result, crate::json::Json::null()));
    }
    Output::Inline(match step.wait_end.as_deref() {
        Some(WaitEnd::Signal { payload, .. }) => payload.clone(),
        Some(WaitEnd::Dropped | WaitEnd::Time) | None => crate::json::Json::null(),
    })
}
