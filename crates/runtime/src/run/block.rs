//! Waits and sleeps: the job blocks, holding neither lease nor slot.

use aetheris_core::event::{Failure, JobWaiting, SignalRefused, StepResult, TimerId, TimerSet, WaitCompleted, WaitEnd};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{Node, OnDeadline, WaitNode, WaitType};
use aetheris_core::schema::Violation;
use aetheris_core::time::Span;
use aetheris_store::{ExpectedSignals, InboxWrite, KeptSignal, Purpose};

use super::{Run, RunEnd, Stop, Turn};
use crate::aside::rendered;
use crate::draft::Rebased;

impl Run<'_> {
    pub(super) async fn sleep(&mut self, node: &Node, duration: Span) -> Result<Turn, Stop> {
        if self.wait_end(node).is_some() {
            return self.succeed(node, StepResult::Success, Json::null(), None);
        }
        let waiting = JobWaiting {
            correlation_key: None,
            doubt: false,
            node: node.id.clone(),
            park: false,
            reason: Some(format!("sleeping for {duration}")),
            wait_type: WaitType::Timer,
        };
        self.block(node, waiting, Some(duration), Arrival::default()).await
    }

    pub(super) async fn wait(&mut self, node: &Node, wait: &WaitNode) -> Result<Turn, Stop> {
        if let Some(end) = self.wait_end(node) {
            return self.after_wait(node, wait, &end);
        }
        let render = |text: &String| rendered(&self.names, |texts| texts.render(text));
        let rendered = wait.correlation_key.as_ref().map(render).transpose();
        let key = match rendered {
            Ok(key) => key,
            Err(error) => return self.fail_template(node, "its correlation key", &error),
        };
        let reason = match wait.reason.as_ref().map(render).transpose() {
            Ok(reason) => reason.map(|reason| limits::cut(reason, limits::WAIT_REASON_BYTES_MAX)),
            Err(error) => return self.fail_template(node, "its reason", &error),
        };
        if let Some(wrong) = key.as_deref().and_then(|key| self.wrong_key(key)) {
            self.fail_step(node, wrong, StepResult::PermanentFailure, None)?;
            return Ok(Turn::Go);
        }
        let arrival = match &key {
            Some(key) => self.arrived(wait, key).await?,
            None => Arrival::default(),
        };
        let waiting = JobWaiting {
            correlation_key: key,
            doubt: false,
            node: node.id.clone(),
            park: wait.park,
            reason,
            wait_type: wait.wait_type,
        };
        self.block(node, waiting, wait.deadline, arrival).await
    }

    /// What is kept for a wait that is reached now. The first signal that fits ends it; one that claims another type
    /// stays unclaimed.
    async fn arrived(&self, wait: &WaitNode, key: &str) -> Result<Arrival, Stop> {
        let any = aetheris_fault::planted!("signal-meets-any-wait");
        let mut kept: Vec<&KeptSignal> = self.kept.iter().filter(|kept| kept.key == key || any).collect();
        if aetheris_fault::planted!("write-only-inbox") {
            return Ok(Arrival::default());
        }
        if aetheris_fault::planted!("second-signal-wins") {
            kept.reverse();
        }
        let expected = ExpectedSignals { count: kept.len(), key: key.to_owned() };
        let mut arrival = Arrival { expected: Some(expected), ..Arrival::default() };
        kept.retain(|kept| kept.wait_type.is_none_or(|claimed| claimed == wait.wait_type));
        for kept in kept {
            let violations = match &wait.schema {
                Some(schema) => self.rt.plans.violations(schema, &kept.payload).await?,
                None => Vec::new(),
            };
            if violations.is_empty() {
                arrival.fits = Some(kept.clone());
                break;
            }
            arrival.misfits.push((kept.clone(), violations));
        }
        Ok(arrival)
    }

    fn wait_end(&self, node: &Node) -> Option<WaitEnd> {
        self.state().steps.get(&node.id).and_then(|step| step.wait_end.clone())
    }

    fn after_wait(&mut self, node: &Node, wait: &WaitNode, end: &WaitEnd) -> Result<Turn, Stop> {
        match (end, &wait.on_deadline) {
            (WaitEnd::Signal { payload, .. }, _) => {
                // The payload is stored in `wait_completed` and not a second time.
                let (error, model, output, result) = (None, None, None, StepResult::Success);
                let finished = aetheris_core::event::NodeFinished {
                    error,
                    model,
                    node: node.id.clone(),
                    output,
                    result,
                    took_us: None,
                };
                self.draft.push(self.ids(), finished)?;
                self.name_output(&node.id, payload.clone());
                Ok(Turn::Go)
            }
            (WaitEnd::Time, OnDeadline::ContinueWith(value)) => {
                aetheris_fault::sometimes!(WaitTimedOut, wait.wait_type != WaitType::Timer);
                self.succeed(node, StepResult::Success, value.clone(), None)
            }
            (WaitEnd::Time, OnDeadline::Fail) => {
                let failure = Failure::new("wait_timed_out", "nobody answered before the wait's deadline");
                self.fail_step(node, failure, StepResult::PermanentFailure, None)?;
                Ok(Turn::Go)
            }
        }
    }

    fn wrong_key(&self, key: &str) -> Option<Failure> {
        if key.is_empty() || limits::is_longer(key, limits::CORRELATION_KEY_CHARS_MAX) {
            let message = format!(
                "the correlation key has {} characters; 1 to {} are accepted",
                key.chars().count(),
                limits::CORRELATION_KEY_CHARS_MAX
            );
            return Some(Failure::new("bad_correlation_key", message));
        }
        let used = self.state().waits.contains_key(key);
        used.then(|| {
            let message =
                format!("the correlation key `{key}` was used by an earlier wait of this job; a key names one wait");
            Failure::new("correlation_key_used", message)
        })
    }

    /// Blocks the job and releases it; with a kept signal the wait is over in the same commit.
    async fn block(
        &mut self,
        node: &Node,
        waiting: JobWaiting,
        span: Option<Span>,
        arrival: Arrival,
    ) -> Result<Turn, Stop> {
        self.start(node)?;
        self.draft.push(self.ids(), waiting)?;
        for (kept, violations) in arrival.misfits {
            aetheris_fault::sometimes!(SignalMisfit);
            let event = SignalRefused {
                correlation_key: kept.key,
                node: node.id.clone(),
                payload_hash: kept.payload.hash(),
                signal: kept.signal,
                violations,
            };
            self.draft.push_with_inbox(self.ids(), event, InboxWrite::Consume(kept.signal))?;
        }
        match arrival.fits {
            Some(kept) => {
                aetheris_fault::sometimes!(SignalConsumed);
                let by = WaitEnd::Signal { payload: kept.payload, signal: kept.signal };
                let event = WaitCompleted { by, node: node.id.clone() };
                self.draft.push_with_inbox(self.ids(), event, InboxWrite::Consume(kept.signal))?;
            }
            None => {
                self.set_timer(node, span)?;
                let looks = !aetheris_fault::planted!("wait-without-looking");
                self.draft.expect_signals(arrival.expected.filter(|_| looks));
            }
        }
        if !aetheris_fault::planted!("lease-kept-while-waiting") {
            self.draft.release();
        }
        aetheris_fault::crash_point!("run.block.drafted");
        match self.flush(Purpose::Block).await? {
            Rebased::Whole => {
                self.note_block();
                Ok(Turn::End(RunEnd::Blocked))
            }
            Rebased::Cut => Ok(Turn::Go),
        }
    }

    /// One line per job that begins to wait: where and for what, without the words of the wait.
    pub(super) fn note_block(&self) {
        let job = self.state().id;
        match &self.state().blocked {
            Some(blocked) => {
                let (node, on) = (&blocked.node, if blocked.doubt { "in_doubt" } else { blocked.wait_type.as_str() });
                tracing::info!(%job, %node, on, status = self.state().status.as_str(), "waiting");
            }
            // A signal that was kept has ended the wait at once.
            None => tracing::info!(%job, "given back: its signal had arrived"),
        }
    }

    fn set_timer(&mut self, node: &Node, span: Option<Span>) -> Result<(), Stop> {
        if let Some(span) = span.filter(|_| !aetheris_fault::planted!("wait-deadline-forgotten")) {
            let timer = TimerId::Wait(node.id.clone());
            self.draft.push(self.ids(), TimerSet { after_us: span.micros(), timer })?;
        }
        Ok(())
    }
}

/// What has come for a wait before it was reached.
#[derive(Default)]
struct Arrival {
    /// The kept signals of its key that the run knows: where none of them ends the wait, the store is to have no other.
    expected: Option<ExpectedSignals>,
    /// The one that ends the wait at once.
    fits: Option<KeptSignal>,
    /// Those before it that do not fit the wait's schema.
    misfits: Vec<(KeptSignal, Vec<Violation>)>,
}
