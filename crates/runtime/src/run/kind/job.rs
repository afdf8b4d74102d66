//! A child job: another agent gets a message. The step asks for the child with a fact that names it; that it is created follows
//! from the fact ([`Promise`](aetheris_core::projection::Promise)), and how it has ended comes as a fact from outside.

use aetheris_core::event::{ChildOutcome, ChildStarted, Failure, JobWaiting, StepResult, TimerId, conversation};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, JobId, SessionId};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{JobNode, OnParentEnd, WaitType};
use aetheris_core::state::{Child, JobState};
use aetheris_expr::ExprError;
use serde_json::json;

use crate::draft::Fact;
use crate::run::facts;
use crate::run::prepared::{AgentFound, Body, ChildWanted, Next, Prepared, Release, TryFailed};
use crate::run::view::View;

pub(super) fn prepare(view: &View<'_>, job: &JobNode) -> Prepared {
    if let Some(child) = view.step().and_then(|step| step.child.as_deref())
        && !aetheris_fault::planted!("child-asked-for-again")
    {
        return follow(view, child);
    }
    let wanted = match wanted(view, job) {
        Ok(wanted) => wanted,
        Err((what, error)) => return facts::fail_template(view, what, &error),
    };
    match refused(view, &wanted) {
        Some(failure) => facts::fail(view, failure),
        None => facts::start(view).perform(Body::FindAgent(Box::new(wanted))),
    }
}

fn wanted(view: &View<'_>, job: &JobNode) -> Result<ChildWanted, (&'static str, ExprError)> {
    let agent = view.text(&job.agent).map_err(|error| ("its agent", error))?;
    let message = view.value(&job.message).map_err(|error| ("its message", error))?;
    let session = job.session.as_ref().map(|session| view.text(session)).transpose();
    Ok(ChildWanted {
        agent: AgentName::from(agent.as_str()),
        deadline: job.deadline,
        message,
        on_parent_end: job.on_parent_end,
        session: session.map_err(|error| ("its session", error))?.map(|session| SessionId::from(session.as_str())),
        tenant: view.state.tenant.clone(),
        waits: job.wait,
    })
}

/// Why a child cannot be asked for, by what is known of this job alone.
fn refused(view: &View<'_>, wanted: &ChildWanted) -> Option<Failure> {
    let state = view.state;
    if state.child_depth() > limits::CHILD_DEPTH_MAX {
        let message = format!(
            "this job has {} jobs above it, the most there may be: it cannot ask for a child",
            limits::CHILD_DEPTH_MAX
        );
        return Some(Failure::new("child_too_deep", message));
    }
    if let Some(bound) = state.children.bound_reached(&view.path) {
        let of = if view.path.item().is_none() && bound == limits::CHILDREN_OF_NODES_MAX {
            ", items of maps not counted"
        } else {
            ""
        };
        let message = format!("the job has asked for {bound} child jobs{of}, the most that it may");
        return Some(Failure::new("too_many_children", message));
    }
    let session = wanted.session.as_ref()?;
    if session.as_str().is_empty() || limits::is_longer(session.as_str(), limits::LABEL_CHARS_MAX) {
        let (max, count) = (limits::LABEL_CHARS_MAX, session.as_str().chars().count());
        let message = format!("`session` renders to {count} characters; a session has 1 to {max}");
        return Some(Failure::new("bad_session", message));
    }
    let asked = conversation(&wanted.agent, session);
    // Nobody waits for it: those above it end without it.
    let known = wanted.waits && conversations(state).any(|known| known == asked);
    (known && !aetheris_fault::planted!("session-deadlock-unseen")).then(|| {
        let message = format!(
            "a job above the child is in session `{session}` of agent `{}`, so the child would wait for it to end",
            wanted.agent
        );
        Failure::new("session_deadlock", message)
    })
}

/// The conversations that go on when this job ends, and not before: its own, and those of the jobs that wait for it.
fn conversations(state: &JobState) -> impl Iterator<Item = Hash> {
    let own = state.session.as_ref().map(|own| conversation(&state.agent, own));
    let above = state.parent.as_ref().map_or(&[][..], |parent| &parent.sessions);
    above.iter().copied().chain(own)
}

/// The child is asked for, if its agent takes it.
pub(in crate::run) fn conclude(view: &View<'_>, wanted: ChildWanted, found: AgentFound) -> Prepared {
    // Another step may have asked for the last child that the job may have, while the agent was looked for.
    if let Some(failure) = refused(view, &wanted) {
        return facts::fail(view, failure);
    }
    let ChildWanted { agent, deadline, message, on_parent_end, session, waits, tenant: _ } = wanted;
    let (own_deadline, plan_hash, planner, agent_version) = match found {
        AgentFound::Agent { deadline, plan_hash, planner, version } => (deadline, plan_hash, planner, version),
        AgentFound::Refused(failure) => return facts::fail(view, failure),
    };
    let state = view.state;
    let until = state.timers.get(&TimerId::Deadline).map(|timer| timer.due);
    let started = ChildStarted {
        agent,
        agent_version,
        child: JobId::of_child(state.id, &view.path),
        deadline_us: deadline.or(own_deadline).map(|span| span.micros()),
        depth: state.child_depth(),
        message,
        node: view.path.clone(),
        on_parent_end,
        parent_deadline: until.filter(|_| on_parent_end == OnParentEnd::Cancel),
        plan_hash,
        planner,
        session,
        sessions: conversations(state).filter(|_| waits).collect(),
        waits,
    };
    aetheris_fault::crash_point!("run.child.asked");
    Prepared::of([Fact::of(started)]).next(Next::Again)
}

/// Goes on with a step that has asked for its child.
fn follow(view: &View<'_>, child: &Child) -> Prepared {
    let Child { agent, id, .. } = child;
    match &child.end {
        None if child.waits => {
            aetheris_fault::sometimes!(ChildAwaited);
            let waiting = JobWaiting {
                correlation_key: None,
                doubt: false,
                node: view.path.clone(),
                park: false,
                reason: Some(format!("{id} of agent `{agent}` has not ended")),
                wait_type: WaitType::Child,
            };
            let facts = vec![Fact::of(waiting)];
            Prepared::default().next(Next::Release(Release::Block { facts, expected: None }))
        }
        None => facts::succeed(view, Some(Json::new(json!({ "job_id": id.to_string() })))),
        Some(ChildOutcome::Completed { .. }) => facts::succeed(view, None),
        Some(ChildOutcome::Failed { error }) => {
            let message = format!("{id} of agent `{agent}` failed: {} ({})", error.message, error.code);
            failed(view, Failure::new("child_failed", message))
        }
        Some(ChildOutcome::Cancelled) => {
            let message = format!("{id} of agent `{agent}` was cancelled");
            failed(view, Failure::new("child_cancelled", message))
        }
    }
}

/// An item whose map has failed meanwhile is given up with its child.
fn failed(view: &View<'_>, error: Failure) -> Prepared {
    let failed = TryFailed { given_up: view.is_stopped(), ..TryFailed::new(error, None, false) };
    facts::fail_after(view, StepResult::PermanentFailure, failed)
}
