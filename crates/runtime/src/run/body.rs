//! Bodies: what a step has done outside of its job. Here is what they need before they begin, their timeouts, what of them
//! may be dropped when the run is interrupted, and their crash points. A body knows nothing of the run's draft.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::id::{AttemptId, JobId};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::schema;
use aetheris_core::time::{Reading, Timestamp};
use aetheris_store::Purpose;
use aetheris_store::bus::Delta;
use tokio_util::sync::CancellationToken;

use super::bodies::Ended;
use super::prepared::{AgentFound, Arrival, Body, ChildWanted, Clocks, Permit, Reached, Role, Said};
use super::{Lease, Stop};
use crate::Runtime;
use crate::error::OpError;
use crate::passing::pass;
use crate::ports::{Heard, MODEL_TIMED_OUT, ModelAnswer, ModelError, ModelRequest, ToolCall, ToolOutcome};

/// What a body needs before it begins.
pub(super) struct Needs {
    pub(super) lease: LeaseNeed,
    pub(super) written: Written,
}

/// When the lease has to be safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseNeed {
    /// Nothing leaves: it need not be.
    Never,
    /// Right before the body.
    Before,
    /// Before its permission is asked for, too: none is asked for that could not be used.
    BeforeAndAfter,
}

/// What of the job has to be written. Of two needs the later one meets both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Nothing.
    Nothing,
    /// All that is drafted is on its way, and written where it has an answer from outside in it.
    Sent,
    /// All results that are drafted. The start of the step itself may wait.
    Results,
    /// All that is drafted.
    All(Purpose),
}

impl Written {
    /// The need that meets both.
    pub(super) fn stricter(self, other: Self) -> Self {
        let rank = |need: Self| match need {
            Self::Nothing => 0,
            Self::Sent => 1,
            Self::Results => 2,
            Self::All(Purpose::Permit) => 4,
            Self::All(_) => 3,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

impl Body {
    pub(super) fn needs(&self) -> Needs {
        let (written, lease) = match self {
            Self::CheckInput(..) | Self::FindAgent(_) | Self::Judge(..) => (Written::Nothing, LeaseNeed::Never),
            Self::Rest(_) => (Written::All(Purpose::Record), LeaseNeed::Never),
            // A model takes seconds: the start is written even where it comes first, so that people see it.
            Self::Ask(..) if aetheris_fault::planted!("question-before-durable") => (Written::Sent, LeaseNeed::Before),
            Self::Ask(..) => (Written::All(Purpose::Record), LeaseNeed::Before),
            Self::Call(call, Role::Pure) if call.tool.kind.leaves_process() => (Written::Results, LeaseNeed::Before),
            Self::Call(_, Role::Pure) => (Written::Sent, LeaseNeed::Before),
            Self::Call(_, Role::Permit(_)) => (Written::All(Purpose::Permit), LeaseNeed::BeforeAndAfter),
            Self::Call(_, Role::Reconcile(_)) => (Written::All(Purpose::Doubt), LeaseNeed::Before),
        };
        Needs { lease, written }
    }

    /// Whether somebody outside the process can observe it.
    pub(super) fn leaves_process(&self) -> bool {
        match self {
            Self::CheckInput(..) | Self::FindAgent(_) | Self::Judge(..) | Self::Rest(_) => false,
            Self::Ask(..) => true,
            Self::Call(call, Role::Pure) => call.tool.kind.leaves_process(),
            Self::Call(_, Role::Permit(_) | Role::Reconcile(_)) => true,
        }
    }
}

/// What is known when a body begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    /// The store's clock at the last event that the run knows.
    pub(super) at: Timestamp,
    /// The claim.
    pub(super) attempt: Option<AttemptId>,
    /// The job.
    pub(super) job: JobId,
    /// The boot clock before what the body needs was written.
    pub(super) sent_at: Duration,
}

/// What ends a body before its time, where it may be dropped.
#[derive(Debug)]
pub(super) struct Interrupts<'r> {
    /// A step beside it has failed, or the job is to stop.
    pub(super) halt: CancellationToken,
    pub(super) lease: &'r Lease,
}

impl Interrupts<'_> {
    async fn any(&self) {
        tokio::select! {
            biased;
            () = self.lease.interrupted() => {}
            () = self.halt.cancelled() => {}
        }
    }

    /// Lets a while pass; whether it has.
    pub(super) async fn rest(&self, span: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.any() => false,
            () = tokio::time::sleep(span) => true,
        }
    }
}

/// Performs a body of a step. What it says is an error where a kept signal or an input cannot be judged, or an agent not
/// looked up.
pub(super) async fn perform(rt: &Runtime, until: Interrupts<'_>, path: StepPath, body: Body, begun: Begun) -> Ended {
    let said = say(rt, &until, &path, body, begun).await;
    Ended { path, said }
}

async fn say(
    rt: &Runtime,
    until: &Interrupts<'_>,
    path: &StepPath,
    body: Body,
    begun: Begun,
) -> Result<Option<Said>, Stop> {
    let clock = rt.system.clock.as_ref();
    let began = clock.boot();
    let took = || u64::try_from(clock.boot().saturating_sub(began).as_micros()).unwrap_or(u64::MAX);
    Ok(match body {
        Body::Call(call, Role::Pure) => call_pure(rt, until, call).await.map(|outcome| Said::Called(outcome, took())),
        Body::Call(call, Role::Permit(permit)) => {
            let outcome = call_permitted(rt, until, call, &permit, begun.sent_at).await;
            outcome.map(|outcome| Said::Permitted(outcome, permit))
        }
        Body::Call(call, Role::Reconcile(question)) => {
            let asked = Reading { at: begun.at, boot: clock.boot_moment() };
            ask_about(rt, until, call).await.map(|outcome| {
                let own = rt.in_flight.has(question.permit_id);
                let flying = own && !aetheris_fault::planted!("own-call-not-asked");
                let clocks = Clocks { answered: clock.boot_moment(), asked, flying };
                Said::Reconciled(outcome, question, clocks)
            })
        }
        Body::Ask(request, asked) => {
            let heard = audience(rt, begun, path.clone());
            let answer = ask(rt, until, request, &heard).await;
            answer.map(|answer| Said::Model(answer, asked, took()))
        }
        Body::Judge(reached, schema) => {
            let arrival = judge(rt, &reached, &schema).await?;
            Some(Said::Judged(reached, arrival))
        }
        Body::CheckInput(given) => {
            let found = rt.plans.violations(&given.schema, &given.input).await?;
            Some(Said::InputChecked(Box::new(given.asked), found))
        }
        Body::FindAgent(wanted) => {
            let found = find_agent(rt, &wanted).await?;
            Some(Said::AgentFound(wanted, found))
        }
        Body::Rest(span) => until.rest(span.to_std()).await.then_some(Said::Rested),
    })
}

async fn call_pure(rt: &Runtime, until: &Interrupts<'_>, call: Box<ToolCall>) -> Option<ToolOutcome> {
    aetheris_fault::crash_point!("run.pure.before_call");
    let limit = awaited(call.timeout);
    let outcome = call_cancellable(rt, until, call, limit).await;
    if outcome.is_some() {
        aetheris_fault::crash_point!("run.pure.after_call");
    }
    outcome
}

/// What may be called again is dropped when the run is interrupted; an `at_most_once` call is awaited to its own timeout,
/// and given up only at a second request to stop.
async fn call_permitted(
    rt: &Runtime,
    until: &Interrupts<'_>,
    call: Box<ToolCall>,
    permit: &Permit,
    sent_at: Duration,
) -> Option<ToolOutcome> {
    aetheris_fault::crash_point!("run.tool.before_call");
    let flight = rt.in_flight.leave(permit.id);
    let spent = rt.system.clock.boot().saturating_sub(sent_at);
    let limit = call.timeout + grace_after(spent);
    let outcome = match permit.class {
        EffectClass::Pure | EffectClass::Idempotent => call_cancellable(rt, until, call, limit).await,
        EffectClass::AtMostOnce => tokio::select! {
            biased;
            outcome = send(rt, call) => Some(outcome),
            () = until.lease.abandon.cancelled() => None,
            () = pass(rt.system.clock.as_ref(), limit) => Some(overdue(limit)),
        },
    };
    drop(flight);
    aetheris_fault::crash_point!("run.tool.after_call");
    outcome
}

/// The one call of a permission: what comes of it, a refusal too, is written before another.
async fn send(rt: &Runtime, call: Box<ToolCall>) -> ToolOutcome {
    let again = aetheris_fault::planted!("resent-after-refusal").then(|| call.clone());
    match (rt.tools.call(*call).await, again) {
        (ToolOutcome::RefusedRetryable { .. }, Some(again)) => rt.tools.call(*again).await,
        (outcome, _) => outcome,
    }
}

async fn ask_about(rt: &Runtime, until: &Interrupts<'_>, call: Box<ToolCall>) -> Option<ToolOutcome> {
    aetheris_fault::crash_point!("run.reconcile.before_call");
    let limit = awaited(call.timeout);
    let outcome = call_cancellable(rt, until, call, limit).await;
    if outcome.is_some() {
        aetheris_fault::crash_point!("run.reconcile.after_call");
    }
    outcome
}

/// Whoever follows the job hears the answer as it comes.
fn audience(rt: &Runtime, begun: Begun, path: StepPath) -> impl Fn(&str) + Send + Sync {
    let said = AtomicU64::new(0);
    move |text| {
        let mut from = said.fetch_add(characters(text), Ordering::Relaxed);
        let Some(attempt) = begun.attempt else { return };
        let delta = |text: &str| {
            let delta = Delta { attempt, from, path: path.clone(), text: text.to_owned() };
            from += characters(text);
            delta
        };
        rt.store.bus().said(begun.job, || pieces(text).map(delta));
    }
}

fn characters(text: &str) -> u64 {
    u64::try_from(text.chars().count()).unwrap_or(u64::MAX)
}

/// A text in pieces as followers hear them.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let piece;
        (piece, rest) = rest.split_at(rest.floor_char_boundary(limits::DELTA_BYTES_MAX));
        (!piece.is_empty()).then_some(piece)
    })
}

async fn ask(
    rt: &Runtime,
    until: &Interrupts<'_>,
    request: Box<ModelRequest>,
    heard: Heard<'_>,
) -> Option<Result<ModelAnswer, ModelError>> {
    aetheris_fault::crash_point!("run.model.before_call");
    let limit = awaited(request.timeout);
    let answer = tokio::select! {
        biased;
        answer = rt.models.complete(*request, heard) => answer,
        () = until.any() => return None,
        () = pass(rt.system.clock.as_ref(), limit) => Err(overdue_answer(limit)),
    };
    aetheris_fault::crash_point!("run.model.after_call");
    Some(answer)
}

/// Looks up the agent of a child job.
async fn find_agent(rt: &Runtime, wanted: &ChildWanted) -> Result<AgentFound, Stop> {
    let name = &wanted.agent;
    let row = rt.store.agent(wanted.tenant.clone(), name.clone()).await.map_err(OpError::from)?;
    let Some(row) = row else {
        let message = format!("there is no agent `{name}` to send the message to");
        return Ok(AgentFound::Refused(Failure::new("agent_not_found", message)));
    };
    if let Some(schema) = &row.agent.message_schema {
        let violations = rt.plans.violations(schema, &wanted.message).await?;
        if !violations.is_empty() {
            let message = format!("agent `{name}` does not take the message: {}", schema::sentence(&violations));
            return Ok(AgentFound::Refused(Failure::new("invalid_payload", message)));
        }
    }
    let (deadline, planner) = (row.agent.deadline, row.agent.planner.as_str().to_owned());
    Ok(AgentFound::Agent { deadline, plan_hash: row.plan_hash, planner, version: row.agent.version.clone() })
}

/// Judges kept signals in their order: the first that fits ends the wait.
async fn judge(rt: &Runtime, reached: &Reached, schema: &aetheris_core::json::Json) -> Result<Arrival, Stop> {
    let mut arrival = Arrival::default();
    for kept in reached.candidates() {
        let violations = rt.plans.violations(schema, &kept.payload).await?;
        if violations.is_empty() || aetheris_fault::planted!("first-kept-fits") {
            arrival.fits = Some(kept.clone());
            break;
        }
        arrival.misfits.push((kept.clone(), violations));
    }
    Ok(arrival)
}

/// Calls a tool whose call may be dropped, and awaits it for at most so long; `None` when the run was interrupted.
async fn call_cancellable(
    rt: &Runtime,
    until: &Interrupts<'_>,
    call: Box<ToolCall>,
    limit: Duration,
) -> Option<ToolOutcome> {
    tokio::select! {
        biased;
        outcome = rt.tools.call(*call) => Some(outcome),
        () = until.any() => None,
        () = pass(rt.system.clock.as_ref(), limit) => Some(overdue(limit)),
    }
}

/// What is known when an adapter has not kept its own timeout.
fn overdue(limit: Duration) -> ToolOutcome {
    ToolOutcome::Unknown { error: overdue_failure("timeout", limit), retry_after: None, timeout: true }
}

fn overdue_answer(limit: Duration) -> ModelError {
    ModelError::new(overdue_failure(MODEL_TIMED_OUT, limit), true)
}

fn overdue_failure(code: &str, limit: Duration) -> Failure {
    Failure::new(code, format!("no answer within {} ms", limit.as_millis()))
}

/// How long a call is awaited that no permission bounds.
fn awaited(timeout: Duration) -> Duration {
    timeout + limits::ADAPTER_GRACE.to_std()
}

/// How much longer than its timeout a call is awaited when so much of its permission's margin is spent: it is over when
/// its permission is.
fn grace_after(spent: Duration) -> Duration {
    limits::PERMIT_MARGIN.to_std().saturating_sub(spent).min(limits::ADAPTER_GRACE.to_std())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever an answer is made of, no piece of it is long.
    #[test]
    fn a_long_text_is_heard_in_pieces() {
        assert_eq!(pieces("").count(), 0);
        for text in ["a".repeat(10_000), "\u{1f642}".repeat(5_000)] {
            let all: Vec<&str> = pieces(&text).collect();
            assert_eq!(all.concat(), text);
            assert!(all.len() > 2 && all.iter().all(|piece| piece.len() <= limits::DELTA_BYTES_MAX));
        }
    }

    /// What leaves the process needs more written than a function, and a permission more than any other fact.
    #[test]
    fn of_two_needs_the_stricter_one_meets_both() {
        let [permit, doubt] = [Purpose::Permit, Purpose::Doubt].map(Written::All);
        let rising = [Written::Nothing, Written::Sent, Written::Results, doubt, permit];
        for (place, need) in rising.into_iter().enumerate() {
            for other in rising.into_iter().take(place + 1) {
                assert_eq!((need.stricter(other), other.stricter(need)), (need, need));
            }
        }
    }

    #[test]
    fn no_call_is_awaited_longer_than_its_permission_lives() {
        let spent = [0, 500, 1_000, 1_400, 1_999, 2_000, 9_000].map(Duration::from_millis);
        let grace = [1_000, 1_000, 1_000, 600, 1, 0, 0].map(Duration::from_millis);
        assert_eq!(spent.map(grace_after), grace);
    }
}
