//! How a run ends: with an answer, an error, a requested end, or by giving the job back.

use aetheris_core::event::{
    Answer, EndCause, Failure, JobCancelled, JobCompleted, JobFailed, JobRequeued, PauseReason, RequeueReason,
};
use aetheris_core::id::NodeId;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::state::{Ending, JobState};
use aetheris_core::step::StepStatus;
use aetheris_expr::{Ended, ExprError};
use aetheris_store::{Purpose, Scope};

use super::{Run, RunEnd, Stop};
use crate::Runtime;
use crate::aside::rendered;
use crate::draft::{Draft, Rebased, WriteError};
use crate::error::OpError;
use crate::load::Loaded;
use crate::ops::{FAILED_BESIDE_CALL, asked_end, failed, held};

impl Run<'_> {
    /// Every node has ended well: the answer ends the job. `None` when it is to go on after all.
    pub(super) async fn complete(&mut self) -> Result<Option<RunEnd>, Stop> {
        let answer = match self.answer() {
            Ok(answer) => answer,
            Err(error) => {
                let message = format!("the plan's answer cannot be rendered: {error}");
                self.draft
                    .push(self.ids(), JobFailed { error: Failure::new("template_error", message), node: None })?;
                return self.finish().await;
            }
        };
        self.draft.push(self.ids(), JobCompleted { answer })?;
        self.finish().await
    }

    fn answer(&self) -> Result<Answer, ExprError> {
        let completed = |node: &NodeId| self.state().node_status(node) == StepStatus::Completed;
        // What a map came to stands in many places: as an answer it is put together once, within the bound of any value.
        let list = |node: &NodeId| self.plan.node(node).is_some_and(|node| node.work.map().is_some());
        match &self.plan.plan().answer {
            None => match self.plan.ordered().last().map(|node| &node.id).filter(|node| completed(node)) {
                Some(node) if list(node) => self.list_of(node).map(Answer::Value),
                Some(node) => Ok(Answer::Node(node.clone())),
                None => Ok(Answer::Value(Json::null())),
            },
            Some(template) => match template.as_str().and_then(whole_output).filter(completed) {
                Some(node) if list(&node) => self.list_of(&node).map(Answer::Value),
                Some(node) => Ok(Answer::Node(node)),
                None => rendered(&self.names, |texts| texts.value(template)).map(Answer::Value),
            },
        }
    }

    /// The output of a map.
    fn list_of(&self, node: &NodeId) -> Result<Json, ExprError> {
        let output = self.names.nodes.get(node).and_then(Ended::output).map(|output| output.value().clone());
        Json::checked(output.unwrap_or_default()).map_err(|error| {
            let message = format!(
                "what the map `{node}` came to is too large for an answer ({error}); give the plan an `answer`"
            );
            ExprError::Failed { message }
        })
    }

    /// A node has failed, and the job with it. Calls beside it whose outcome is unknown stay in the in-doubt list. `None`
    /// when the job is to go on after all.
    pub(super) async fn fail(&mut self, node: &NodeId) -> Result<Option<RunEnd>, Stop> {
        let told = self.state().step_of(node).and_then(|step| step.error.as_deref().cloned());
        let error = told.unwrap_or_else(|| Failure::new("step_failed", "the step failed"));
        let ids = self.ids();
        let event = JobFailed { error, node: Some(node.into()) };
        failed(self.state(), &self.rows.ledger, event, FAILED_BESIDE_CALL).add_to(&mut self.draft, ids)?;
        self.finish().await
    }

    /// Writes the terminal event and releases the lease with it. `None` when the newer state refused it:
    /// the job's end was asked for in the meantime, or the doubt that was given up has been answered. What
    /// follows is then decided anew.
    async fn finish(&mut self) -> Result<Option<RunEnd>, Stop> {
        self.draft.release();
        aetheris_fault::crash_point!("run.end.drafted");
        match self.flush(Purpose::Finish).await? {
            Rebased::Whole => {
                let JobState { id, status, .. } = self.state();
                aetheris_fault::always!(status.is_terminal(), "job {id}: its run has ended and it is {status:?}");
                note_end(self.state());
                Ok(Some(RunEnd::Finished(*status)))
            }
            Rebased::Cut => {
                aetheris_fault::sometimes!(EndRefused);
                Ok(None)
            }
        }
    }

    /// The end that was asked for: calls whose outcome is unknown stay in the in-doubt list.
    pub(super) async fn end_as_asked(&mut self, cause: EndCause) -> Result<Option<RunEnd>, Stop> {
        aetheris_fault::crash_point!("run.end.asked");
        let Some(end) = asked_end(Some(cause), self.state(), &self.rows.ledger) else {
            return self.hold_still().await;
        };
        let ids = self.ids();
        end.add_to(&mut self.draft, ids)?;
        self.finish().await
    }

    /// The pause that was asked for. Whatever was known is written before it or with it. `None` when the newer state
    /// does not allow it: the job's end was asked for since.
    async fn hold_still(&mut self) -> Result<Option<RunEnd>, Stop> {
        let held = held(self.state(), &self.rows.ledger, PauseReason::Operator);
        let ids = self.ids();
        held.add_to(&mut self.draft, ids)?;
        match self.flush(Purpose::Pause).await? {
            Rebased::Whole => {
                aetheris_fault::sometimes!(PausedByHolder);
                Ok(Some(RunEnd::Paused))
            }
            Rebased::Cut => Ok(None),
        }
    }

    /// The worker shuts down: the job is pending again, never cancelled. `None` when the newer state does
    /// not allow it.
    pub(super) async fn give_back(&mut self) -> Result<Option<RunEnd>, Stop> {
        aetheris_fault::crash_point!("run.end.giving_back");
        if aetheris_fault::planted!("drain-cancels") {
            self.draft.push(self.ids(), JobCancelled {})?;
            return self.finish().await;
        }
        // A unit on its way is not left alone for as long as others need to stop claiming.
        if self.land().await? == Rebased::Cut {
            return Ok(None);
        }
        tokio::select! {
            biased;
            () = self.lease.lost.cancelled() => {}
            () = self.lease.give_back.cancelled() => {}
        }
        self.draft.push(self.ids(), JobRequeued { after_us: None, reason: RequeueReason::Draining })?;
        self.draft.release();
        match self.flush(Purpose::Requeue).await? {
            Rebased::Whole => {
                aetheris_fault::sometimes!(DrainedJob);
                Ok(Some(RunEnd::Requeued))
            }
            Rebased::Cut => Ok(None),
        }
    }

    /// What is stored contradicts itself, or a bound is reached: the job is failed, with nothing of the
    /// draft that led there.
    pub(super) async fn fail_faulty(&mut self, failure: Failure) -> Result<RunEnd, OpError> {
        tracing::error!(job = %self.state().id, code = %failure.code, message = %failure.message, "the job cannot go on");
        let loaded = Loaded::read(self.rt.store.as_ref(), &Scope::System, self.state().id).await?;
        fail_loaded(self.rt, loaded, self.lease.fence, failure).await
    }
}

/// Seed 003 §4: nothing runs without a recorded plan, and this code has no planner to ask.
pub(super) async fn fail_unplanned(rt: &Runtime, loaded: Loaded, fence: Fence) -> Result<RunEnd, OpError> {
    let failure = Failure::new("no_plan", "the job has no recorded plan; nothing runs without one");
    fail_loaded(rt, loaded, fence, failure).await
}

async fn fail_loaded(rt: &Runtime, loaded: Loaded, fence: Fence, failure: Failure) -> Result<RunEnd, OpError> {
    let mut draft = Draft::new(loaded.state, Guard::Run(fence), loaded.checkpoint);
    // A job that cannot go on fails, also where it was to be paused.
    let asked = asked_end(draft.state().end_requested, draft.state(), &loaded.ledger);
    let reason = "the job could not go on while the outcome of the call was unknown";
    let event = JobFailed { error: failure, node: None };
    let end = asked.unwrap_or_else(|| failed(draft.state(), &loaded.ledger, event, reason));
    end.add_to(&mut draft, rt.system.ids.as_ref())?;
    let fallback = rt.event_id();
    match crate::draft::write(rt.store.as_ref(), || draft.unit(Purpose::Finish, fallback)).await {
        Ok(_) => {
            note_end(draft.state());
            Ok(RunEnd::Finished(draft.state().status))
        }
        Err(WriteError::Refused(_)) => Ok(RunEnd::Lost),
        Err(WriteError::Failed(error) | WriteError::Unknown(error)) => Err(error.into()),
    }
}

/// One line per job that has ended, with its reason.
pub(crate) fn note_end(state: &JobState) {
    let (job, agent, status) = (state.id, &state.agent, state.status.as_str());
    match &state.ending {
        Some(Ending::Failed { error, node }) => {
            let node = node.as_ref().map(tracing::field::display);
            tracing::warn!(%job, %agent, status, code = %error.code, node, reason = %error.message, "the job has ended");
        }
        Some(Ending::Answered(_) | Ending::Cancelled) | None => {
            tracing::info!(%job, %agent, status, "the job has ended")
        }
    }
}

/// The node whose whole output a template is, if it is nothing else: its result is then stored once.
fn whole_output(template: &str) -> Option<NodeId> {
    let inner = template.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let node = inner.strip_prefix("nodes.")?.strip_suffix(".output")?;
    let plain = !node.is_empty() && node.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain.then(|| NodeId::from(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of anything else than one node's whole output the value itself is stored.
    #[test]
    fn a_template_that_is_one_nodes_whole_output_is_told_from_any_other() {
        for template in ["{{ nodes.n_1.output }}", "{{nodes.n_1.output}}", " {{ nodes.n_1.output }}\n"] {
            assert_eq!(whole_output(template), Some("n_1".into()), "{template}");
        }
        for template in [
            "nodes.n.output",
            "{{ nodes.n.output }}!",
            "{{ nodes.n.output.id }}",
            "{{ nodes.n.output | upper }}",
            "{{ nodes.a.output + nodes.b.output }}",
            "{{ nodes.a.output }}{{ nodes.b.output }}",
            "{{ nodes.a.output or nodes.b.output }}",
            "{{ nodes..output }}",
            "{{ nodes.n }}",
            "{{ message.output }}",
        ] {
            assert_eq!(whole_output(template), None, "{template}");
        }
    }
}
