//! Times: everything in the state that the store's clock decides, and nothing else.

use super::JobState;
use crate::event::{Event, TimerId};
use crate::path::StepPath;
use crate::time::{Span, Timestamp};

impl JobState {
    /// Sets the times that `event` gives, for an event that was applied and written at `at`. Doing it
    /// again changes nothing.
    pub fn stamp(&mut self, event: &Event, at: Timestamp) {
        self.last_at = at;
        match event {
            Event::JobCreated(_) => self.created_at = at,
            Event::JobCompleted(_) | Event::JobFailed(_) | Event::JobCancelled(_) => self.ended_at = Some(at),
            Event::JobRequeued(_) => self.not_before = self.not_before_delay.map(|delay| at.after(delay)),
            Event::JobWaiting(waiting) => self.blocks.stamp(&waiting.node, at),
            Event::JobPaused(_) => {
                if let Some(paused) = &mut self.paused {
                    paused.since = Some(at);
                }
            }
            Event::NodeStarted(started) => {
                if let Some(step) = self.steps.get_mut(&started.node)
                    && started.number == 1
                {
                    step.started_at = Some(at);
                }
            }
            Event::NodeFinished(finished) => {
                let (path, took) = (&finished.node, finished.took_us);
                // What is judged has not ended with its output.
                let judged = finished.verdict.is_some() && !path.is_critic();
                self.stamp_begin(path, at, took);
                let ended = (!judged).then(|| path.clone()).into_iter().chain(Self::ended_with(finished));
                ended.for_each(|path| self.stamp_end(&path, at));
            }
            Event::NodeRefining(refining) if refining.round > 1 => {
                self.stamp_end(&refining.node.in_round(refining.round - 1), at);
            }
            Event::NodeSkipped(skipped) => self.stamp_end(&skipped.node, at),
            Event::NodeRetryScheduled(scheduled) => {
                if let Some(step) = self.steps.get_mut(&scheduled.node) {
                    step.retry_at = step.retry_delay.map(|delay| at.after(delay));
                }
            }
            Event::ToolInvocationStarted(started) => {
                if let Some(invocation) =
                    self.steps.get_mut(&started.node).and_then(|step| step.invocation.as_deref_mut())
                {
                    invocation.deadline = at.after(invocation.lifetime);
                }
            }
            Event::StepInDoubt(doubted) => {
                if let Some(doubt) = self.steps.get_mut(&doubted.node).and_then(|step| step.doubt.as_deref_mut())
                    && doubted.policy == 0
                {
                    doubt.since = at;
                }
            }
            Event::TimerSet(set) => self.stamp_timer(&set.timer, at),
            Event::ValueRecorded(recorded) => self.stamp_values(recorded, at),
            Event::PlanGenerated(_)
            | Event::JobClaimed(_)
            | Event::WaitCompleted(_)
            | Event::SignalRefused(_)
            | Event::JobCancelRequested(_)
            | Event::JobPauseRequested(_)
            | Event::JobResumed(_)
            | Event::ToolInvocationFinished(_)
            | Event::CommandCommitted(_)
            | Event::TimerFired(_)
            | Event::InDoubtResolved(_)
            | Event::NodeRefining(_)
            | Event::ChildStarted(_)
            | Event::ChildEnded(_) => {}
        }
    }

    /// A start that was written with the end, or while the body ran, is dated back by what the body took.
    fn stamp_begin(&mut self, path: &StepPath, at: Timestamp, took_us: Option<u64>) {
        if let Some((step, took)) = self.steps.get_mut(path).zip(took_us) {
            let began = at.before(Span::from_micros(took));
            step.started_at = Some(step.started_at.map_or(began, |started| started.min(began)));
        }
    }

    fn stamp_end(&mut self, path: &StepPath, at: Timestamp) {
        if let Some(step) = self.steps.get_mut(path) {
            step.finished_at = Some(at);
        }
    }

    fn stamp_timer(&mut self, timer: &TimerId, at: Timestamp) {
        if let Some(timer) = self.timers.get_mut(timer) {
            timer.due = at.after(timer.after);
        }
    }
}
