//! What a job waits for: steps that begin to wait, and the ends of their waits.

use super::{Blocked, Illegal, JobState, StepState, WaitPhase, WaitRecord};
use crate::event::{self, TimerId, WaitEnd};
use crate::job::JobTrigger;
use crate::limits;
use crate::path::StepPath;
use crate::plan::WaitType;
use crate::step::{StepStatus, StepTrigger};
use crate::time::Timestamp;

impl JobState {
    pub(super) fn waiting(&mut self, e: &event::JobWaiting) -> Result<(), Illegal> {
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
            let awaited = self.steps.get(&e.node).and_then(StepState::awaited_child);
            if awaited.is_some() != (e.wait_type == WaitType::Child) {
                return Err(Illegal::Contradiction(format!("node `{}` waits for something else", e.node)));
            }
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
            seq: self.seq + 1,
            since: Timestamp::default(),
            wait_type: e.wait_type,
        });
        Ok(())
    }

    /// Takes the block away and closes its key.
    pub(super) fn unblock(&mut self, node: &StepPath, phase: WaitPhase) -> Result<Blocked, Illegal> {
        self.move_job(JobTrigger::Unblock)?;
        let blocked = self
            .blocks
            .take(node)
            .ok_or_else(|| Illegal::Contradiction(format!("the job is not blocked on node `{node}`")))?;
        // The step can go on, whatever another one's next try waits for.
        (self.not_before, self.not_before_delay) = (None, None);
        self.note_can_go_on();
        self.close_key(blocked.correlation_key.as_deref(), phase);
        self.timers.remove(&TimerId::Wait(node.clone()));
        self.timers.remove(&TimerId::Doubt(node.clone()));
        Ok(blocked)
    }

    pub(super) fn close_key(&mut self, key: Option<&str>, phase: WaitPhase) {
        if let Some(record) = key.and_then(|key| self.waits.get_mut(key)) {
            record.phase = phase;
        }
    }

    /// It changes nothing: the wait that it names goes on.
    pub(super) fn signal_refused(&self, e: &event::SignalRefused) -> Result<(), Illegal> {
        let named = self.blocks.of(&e.node).and_then(|blocked| blocked.correlation_key.as_ref());
        if named == Some(&e.correlation_key) {
            return Ok(());
        }
        Err(Illegal::Contradiction(format!("the job does not wait for `{}`", e.correlation_key)))
    }

    pub(super) fn wait_completed(&mut self, e: &event::WaitCompleted) -> Result<(), Illegal> {
        let phase = match &e.by {
            WaitEnd::Signal { payload, signal } => {
                WaitPhase::Delivered { payload_hash: payload.hash(), signal: *signal }
            }
            WaitEnd::Dropped | WaitEnd::Time => WaitPhase::Over,
        };
        let blocked = self.unblock(&e.node, phase)?;
        if blocked.doubt {
            if !matches!(e.by, WaitEnd::Time) {
                return Err(Illegal::Contradiction("a signal never answers a doubt".to_owned()));
            }
            if let Some(doubt) = self.steps.get_mut(&e.node).and_then(|step| step.doubt.as_deref_mut()) {
                doubt.waited = true;
            }
            return Ok(());
        }
        let step = self.step(&e.node, StepTrigger::Unblock)?;
        step.wait_end = Some(Box::new(e.by.clone()));
        Ok(())
    }
}
