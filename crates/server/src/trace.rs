//! What happened in a job, told from its events.

use std::collections::BTreeMap;

use aetheris_api::{
    AnsweredView, TraceAttempt, TraceDoubt, TraceModel, TraceRun, TraceStep, TraceTool, TraceView, ValueOrigin,
};
use aetheris_core::event::{
    DoubtOutcome, Event, InDoubtResolved, InvocationOutcome, JobClaimed, Judge, ModelRecord, NodeFinished, Recorded,
    ToolInvocationFinished, Verdict, WaitEnd,
};
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::path::StepPath;
use aetheris_core::plan::{CompiledPlan, NodeKind, Step, Work};
use aetheris_core::schedule;
use aetheris_core::state::{InvocationPhase, JobState, StepState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::OpError;
use aetheris_store::{EffectRow, EventRow, Evidence, JobRow, KeptHead};

use crate::step_answers::StepAnswers;
use crate::{outline, steps, view};

/// Why a call is in doubt whose events do not say it.
const UNTOLD: &str = "the outcome of the call was not recorded";

/// What the state does not keep of a node.
#[derive(Default)]
struct Told {
    answered: Option<AnsweredView>,
    attempts: Vec<TraceAttempt>,
    doubts: Vec<TraceDoubt>,
    ended_by: Option<&'static str>,
    model: Option<TraceModel>,
    skipped: Option<&'static str>,
    /// It is a call of a loop that has failed, and the model was told.
    told: bool,
    /// The last try of a call that may be repeated whose outcome is unknown: a doubt once somebody answers it.
    unknown: Option<TraceDoubt>,
}

#[derive(Default)]
struct Story {
    /// Bytes of a doubt's result that are shown.
    bytes: usize,
    nodes: BTreeMap<StepPath, Told>,
    runs: Vec<TraceRun>,
}

/// A job's trace, event by event.
pub struct Tracing {
    answers: StepAnswers,
    state: JobState,
    story: Story,
}

impl Tracing {
    /// Before the first event; so many bytes of a doubt's result are shown.
    #[must_use]
    pub fn new(job: JobId, bytes: usize) -> Self {
        Self { answers: StepAnswers::default(), state: JobState::new(job), story: Story { bytes, ..Story::default() } }
    }

    /// The place of the last event that was told.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.state.seq
    }

    /// Takes in the next stored event. What is large in it is forgotten.
    ///
    /// # Errors
    /// It cannot be read or folded.
    pub fn push(&mut self, row: &EventRow) -> Result<(), OpError> {
        let unreadable = |why: String| OpError::Corrupt(format!("event {}: {why}", row.seq));
        let recorded = row.decode().map_err(|error| unreadable(error.to_string()))?;
        self.state.replay(&recorded).map_err(|illegal| unreadable(illegal.to_string()))?;
        self.answers.note(&self.state, &recorded);
        self.story.tell(&recorded);
        outline::forget_values(&mut self.state, &recorded.event, true);
        Ok(())
    }

    /// The calls of an ended job that are known to have happened, and whose steps do not have their results as outputs.
    #[must_use]
    pub fn answered_late(&self) -> Vec<(StepPath, IdempotencyKey)> {
        if !self.state.status.is_terminal() {
            return Vec::new();
        }
        let steps = self.state.steps.iter().filter(|(_, step)| step.status != StepStatus::Completed);
        let happened = InvocationPhase::Resolved(DoubtOutcome::Happened);
        let late = steps.filter_map(|(node, step)| Some((node, step.invocation.as_deref()?)));
        late.filter(|(_, call)| call.phase == happened).map(|(node, call)| (node.clone(), call.key)).collect()
    }

    /// Takes in the effect of such a call.
    pub fn returned(&mut self, node: &StepPath, effect: &EffectRow) {
        let doubts = self.story.nodes.get_mut(node).into_iter().flat_map(|told| &mut told.doubts);
        for doubt in doubts.filter(|doubt| doubt.permit == effect.permit && doubt.result.is_none()) {
            doubt.result = Some(steps::view(ValueOrigin::Recorded, &effect.result, self.story.bytes));
        }
    }

    /// The job as far as it was told.
    pub fn state(&self) -> &JobState {
        &self.state
    }

    /// The trace, of the job's row at the same place.
    #[must_use]
    pub fn view(
        mut self,
        row: &JobRow,
        plan: Option<&CompiledPlan>,
        evidence: &[Evidence],
        kept: &[KeptHead],
    ) -> TraceView {
        let nodes = plan.into_iter().flat_map(CompiledPlan::ordered);
        for (node, answered) in self.answers.open(&self.state) {
            self.story.of(node).answered = Some(answered);
        }
        let mut told = |path: &StepPath| self.story.nodes.remove(path).unwrap_or_default();
        TraceView {
            agent: row.agent.clone(),
            agent_version: row.agent_version.clone(),
            created_at: row.created_at,
            ended_at: self.state.ended_at,
            error: row.error.as_ref().map(|(error, node)| view::reason(error, node.clone())),
            evidence: evidence.iter().map(view::evidence).collect(),
            job_id: row.id,
            kept: kept.iter().map(view::kept).collect(),
            plan_hash: row.plan_hash,
            session_id: row.session.clone(),
            status: row.status,
            steps: nodes.map(|node| step(&Step::from(node), plan, &self.state, &mut told)).collect(),
            runs: self.story.runs,
            updated_at: row.updated_at,
            usage: view::usage(&self.state, plan),
        }
    }
}

impl Story {
    fn of(&mut self, node: &StepPath) -> &mut Told {
        self.nodes.entry(node.clone()).or_default()
    }

    fn tell(&mut self, recorded: &Recorded) {
        let at = recorded.at;
        match &recorded.event {
            Event::JobClaimed(claim) => self.claimed(recorded, claim),
            Event::JobRequeued(e) => self.run_ends(recorded, Some(e.reason.as_str())),
            Event::JobPaused(_) => self.run_ends(recorded, Some("paused")),
            Event::JobWaiting(_) | Event::JobCompleted(_) | Event::JobFailed(_) | Event::JobCancelled(_) => {
                self.run_ends(recorded, None);
            }
            Event::NodeStarted(e) => self.of(&e.node).attempts.push(TraceAttempt {
                ended_at: None,
                epoch: recorded.fence.epoch,
                error: None,
                number: e.number,
                started_at: at,
            }),
            Event::NodeFinished(e) => self.finished(recorded, e),
            Event::NodeRetryScheduled(e) => {
                if let Some(attempt) = self.of(&e.node).attempts.last_mut() {
                    attempt.ended_at = Some(at);
                    attempt.error = Some(view::reason(&e.error, None));
                }
            }
            Event::NodeSkipped(e) => {
                self.of(&e.node).skipped = Some(e.reason.as_str());
            }
            Event::WaitCompleted(e) => {
                self.of(&e.node).ended_by = Some(match e.by {
                    WaitEnd::Signal { .. } => "signal",
                    WaitEnd::Time => "time",
                    WaitEnd::Dropped => "dropped",
                });
            }
            Event::StepInDoubt(e) => self.doubted(recorded, &e.node, e.permit, &e.reason),
            Event::InDoubtResolved(e) => self.resolved(recorded, e),
            Event::ToolInvocationFinished(e) => self.called(recorded, e),
            Event::JobCreated(_)
            | Event::PlanGenerated(_)
            | Event::JobCancelRequested(_)
            | Event::JobPauseRequested(_)
            | Event::JobResumed(_)
            | Event::SignalRefused(_)
            | Event::ToolInvocationStarted(_)
            | Event::CommandCommitted(_)
            | Event::TimerSet(_)
            | Event::TimerFired(_)
            | Event::NodeRefining(_)
            | Event::ChildStarted(_)
            | Event::ChildEnded(_)
            | Event::ValueRecorded(_) => {}
        }
    }

    fn claimed(&mut self, recorded: &Recorded, claim: &JobClaimed) {
        self.runs.push(TraceRun {
            attempt_id: claim.attempt_id,
            claimed_at: recorded.at,
            ended_by: None,
            ended_at: None,
            epoch: recorded.fence.epoch,
            worker: claim.worker.clone(),
        });
    }

    fn run_ends(&mut self, recorded: &Recorded, reason: Option<&str>) {
        if let Some(run) = self.runs.last_mut().filter(|run| run.ended_at.is_none()) {
            let kind = recorded.event.kind().as_str();
            run.ended_at = Some(recorded.at);
            run.ended_by = Some(reason.map_or_else(|| kind.to_owned(), |reason| format!("{kind}: {reason}")));
        }
    }

    fn finished(&mut self, recorded: &Recorded, e: &NodeFinished) {
        let told = self.of(&e.node);
        told.told = e.told;
        // A step that ends in the place of its next try leaves the last one as that has ended.
        if let Some(attempt) = told.attempts.last_mut().filter(|attempt| attempt.ended_at.is_none()) {
            attempt.ended_at = Some(recorded.at);
            if let Some(took) = e.took_us {
                attempt.started_at = attempt.started_at.min(recorded.at.before(Span::from_micros(took)));
            }
            attempt.error = e.error.as_ref().map(|error| view::reason(error, None));
        }
        // An output that is rejected for good has its answer's record with the try that gave it.
        if let Some(record) = &e.model {
            told.model = Some(model(record));
        }
    }

    fn doubted(&mut self, recorded: &Recorded, node: &StepPath, permit: u32, reason: &str) {
        let doubts = &mut self.of(node).doubts;
        // Further policies of one doubt say the same doubt again.
        if doubts.iter().any(|doubt| doubt.permit == permit && doubt.resolved_at.is_none()) {
            return;
        }
        doubts.push(open(recorded.at, permit, reason));
    }

    fn called(&mut self, recorded: &Recorded, e: &ToolInvocationFinished) {
        if e.outcome == InvocationOutcome::InDoubt {
            let reason = e.error.as_ref().map_or(UNTOLD, |error| error.message.as_str());
            self.of(&e.node).unknown = Some(open(recorded.at, e.permit, reason));
        }
    }

    fn resolved(&mut self, recorded: &Recorded, e: &InDoubtResolved) {
        let shown = |result| steps::view(ValueOrigin::Recorded, result, self.bytes);
        let result = e.result.as_ref().map(shown);
        let told = self.of(&e.node);
        if told.doubts.iter().all(|doubt| doubt.permit != e.permit) {
            let unknown = told.unknown.take();
            told.doubts.push(unknown.unwrap_or_else(|| open(recorded.at, e.permit, UNTOLD)));
        }
        if let Some(doubt) = told.doubts.iter_mut().rev().find(|doubt| doubt.permit == e.permit) {
            doubt.note.clone_from(&e.note);
            doubt.outcome = Some(e.outcome);
            doubt.resolved_at = Some(recorded.at);
            doubt.resolved_by = Some(e.by);
            doubt.result = result;
        }
    }
}

/// A doubt that nobody has answered.
fn open(at: Timestamp, permit: u32, reason: &str) -> TraceDoubt {
    let reason = reason.to_owned();
    TraceDoubt { at, note: None, outcome: None, permit, reason, resolved_at: None, resolved_by: None, result: None }
}

fn model(record: &ModelRecord) -> TraceModel {
    TraceModel {
        cached_tokens: record.usage.cached_tokens,
        completion_tokens: record.usage.completion_tokens,
        finish: record.finish.map(|finish| finish.as_str().to_owned()),
        max_tokens: record.parameters.as_ref().and_then(|parameters| parameters.max_tokens),
        model: record.model.clone(),
        prompt_hash: record.prompt_hash,
        prompt_tokens: record.usage.prompt_tokens,
        reasoning_tokens: record.usage.reasoning_tokens,
        temperature: record.parameters.as_ref().and_then(|parameters| parameters.temperature),
    }
}

fn step(
    of_plan: &Step<'_>,
    plan: Option<&CompiledPlan>,
    state: &JobState,
    told_of: &mut impl FnMut(&StepPath) -> Told,
) -> TraceStep {
    let Step { node, path, work } = of_plan;
    let untouched = StepState::default();
    let step = state.steps.get(path).unwrap_or(&untouched);
    let told = told_of(path);
    let items = work.map().zip(step.items.as_deref()).map(|(map, items)| {
        (0..items.begun).map(|item| self::step(&Step::of_item(node, map, item), plan, state, told_of)).collect()
    });
    let parts = parts(of_plan, plan, state, told_of);
    // What its critic has said of it stands with the critic.
    let of_critic = state.steps.get(&path.critic()).and_then(|critic| critic.verdict);
    let verdict = if step.verdict == Some(Verdict::Pending) { of_critic.or(step.verdict) } else { step.verdict };
    let asks = plan.and_then(|plan| plan.tool_of(work)).is_some_and(|(_, tool)| tool.kind.human().is_some());
    let waits = work.kind.waits() || asks;
    let by = if step.verdict == Some(Verdict::Reject) { Judge::Schema } else { Judge::Critic };
    TraceStep {
        answered: told.answered,
        attempts: told.attempts,
        child: step.child.as_deref().map(view::child_of),
        doubts: told.doubts,
        // A step in doubt waits as well, and does not end by it.
        ended_by: told.ended_by.filter(|_| waits).map(str::to_owned),
        error: step.error.as_ref().map(|error| view::reason(error, None)),
        feedback: step.feedback.clone(),
        finished_at: step.finished_at,
        items: items.unwrap_or_default(),
        kind: work.kind.as_str().to_owned(),
        left_in_doubt: step.left_in_doubt(state.status),
        model: told.model,
        needs: if path.is_whole() { node.needs.clone() } else { Vec::new() },
        node_id: path.clone(),
        parts,
        rejected_by: (verdict == Some(Verdict::Reject) && !path.is_critic()).then_some(by),
        result: step.result,
        skipped: told.skipped.map(str::to_owned),
        source: (step.status == StepStatus::Completed).then_some(step.source),
        started_at: step.started_at,
        status: step.status,
        told: told.told,
        tool: tool(work, plan, step),
        verdict,
    }
}

/// What was asked of its critic, further rounds, and the turns and calls of loops, in their order.
fn parts(
    of_plan: &Step<'_>,
    plan: Option<&CompiledPlan>,
    state: &JobState,
    told_of: &mut impl FnMut(&StepPath) -> Told,
) -> Vec<TraceStep> {
    let (Some(plan), true) = (plan, of_plan.path.is_base()) else { return Vec::new() };
    let known = state.parts_of(&of_plan.path).filter_map(|path| schedule::step_at(state, plan, &path));
    known.map(|part| step(&part, Some(plan), state, told_of)).collect()
}

fn tool(work: &Work, plan: Option<&CompiledPlan>, step: &StepState) -> Option<TraceTool> {
    let NodeKind::Tool { tool: name, .. } = &work.kind else {
        return None;
    };
    let tool = plan?.plan().tools.get(name)?;
    let invocation = step.invocation.as_deref();
    Some(TraceTool {
        asks_person: tool.kind.human().is_some(),
        effect: tool.effect,
        invocation: invocation.map(|invocation| invocation.key),
        name: name.clone(),
        permits: invocation.map_or(0, |invocation| invocation.permit),
        version: invocation.map_or_else(|| tool.version.clone(), |invocation| invocation.tool_version.clone()),
    })
}
