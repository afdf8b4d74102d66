//! Calls whose outcome is unknown are told, not guessed; and idempotent calls that may be repeated.

use aetheris_api::{Outcome, ResolveAnswer, ResolveRequest};
use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use serde_json::json;

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Server, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::Fault;
use crate::error::Error;

const AGENTS: [Agent; 5] =
    [Agent::DoubtAsks, Agent::DoubtFails, Agent::DoubtPerson, Agent::DoubtProof, Agent::DoubtWaits];

/// What a person says.
const SEEN: &str = "seen in the tool's own log";

pub(super) async fn run(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let server = workspace.dev(&AGENTS).await?;
    let count = 2;
    let failing = workspace.send(&server, Agent::DoubtFails, count).await?;
    let asking = workspace.send(&server, Agent::DoubtAsks, count).await?;
    let waiting = workspace.send(&server, Agent::DoubtWaits, count).await?;
    let proof = workspace.send(&server, Agent::DoubtProof, count).await?;
    let happened = workspace.send(&server, Agent::DoubtPerson, count).await?;
    let not_happened = workspace.send(&server, Agent::DoubtPerson, count).await?;
    let people: Vec<JobId> = happened.iter().chain(&not_happened).copied().collect();
    workspace::waiting(&server.client, &people).await?;
    listed(workspace, &server, &people, "before").await?;
    too_early(workspace, &server, &not_happened).await?;
    server.process.kill();

    let server = workspace.dev(&AGENTS).await?;
    listed(workspace, &server, &people, "after").await?;
    person_says(workspace, &server, &happened, Outcome::Happened).await?;
    person_says(workspace, &server, &not_happened, Outcome::DidNotHappen).await?;
    for view in workspace::ended(&server.client, &failing, PATIENCE).await? {
        let code = view.error.as_ref().map(|error| error.code.as_str());
        let told = view.status == JobStatus::Failed && code == Some("in_doubt_unresolved");
        workspace.cases.case(Guarantee::Told, told, || format!("with `fail`: {}", workspace::end(&view)));
        bodies(workspace, view.id, 1);
    }
    for (jobs, policy) in [(&asking, "reconcile"), (&waiting, "wait")] {
        for view in workspace::ended(&server.client, jobs, PATIENCE).await? {
            let told = workspace::answered(&view, &json!("act"));
            workspace.cases.case(Guarantee::Told, told, || format!("with `{policy}`: {}", workspace::end(&view)));
            bodies(workspace, view.id, 1);
        }
    }
    for job in proof {
        proved(workspace, &server, job).await?;
    }
    for (jobs, said, count) in [(&happened, SEEN, 1), (&not_happened, "act", 2)] {
        for view in workspace::ended(&server.client, jobs, PATIENCE).await? {
            let told = workspace::answered(&view, &json!(said));
            workspace.cases.case(Guarantee::Reasoned, told, || format!("with `human`: {}", workspace::end(&view)));
            bodies(workspace, view.id, count);
        }
    }
    server.process.stop().await?;
    Ok(())
}

fn bodies(workspace: &mut Workspace<'_>, job: JobId, expected: usize) {
    let bodies = workspace.tools.bodies(job);
    let what = || format!("job {job}: {bodies} bodies instead of {expected}");
    // Where a person has said that the first one did not happen, the tool is called a second time.
    let guarantee = if expected == 1 { Guarantee::BodyOnce } else { Guarantee::Reasoned };
    workspace.cases.case(guarantee, bodies == expected, what);
}

/// The call is in the list of those in doubt.
async fn listed(workspace: &mut Workspace<'_>, server: &Server, jobs: &[JobId], when: &str) -> Result<(), Fault> {
    for job in jobs {
        let listed = workspace::doubt(&server.client, *job).await?.is_some();
        workspace
            .cases
            .case(Guarantee::Told, listed, || format!("the call of {job} is not in the list {when} the kill"));
    }
    Ok(())
}

async fn resolve(server: &Server, job: JobId, outcome: Outcome, refused: bool) -> Result<(), Error> {
    let call = workspace::doubt(&server.client, job).await.ok().flatten();
    let call = call.ok_or_else(|| anyhow::anyhow!("the call of {job} is not in the list of those in doubt"))?;
    let happened = outcome == Outcome::Happened;
    let result = happened.then(|| (&aetheris_core::json::Json::new(json!({ "done": SEEN }))).into());
    let request = ResolveRequest {
        note: "a person of the experiment".to_owned(),
        outcome,
        permit: call.permit,
        refused,
        result,
        then: None,
    };
    let (job, call) = (job.to_string(), call.invocation.to_string());
    server.client.post::<ResolveAnswer>(&["api", "jobs", &job, "in-doubt", &call], &request, &[]).await?;
    Ok(())
}

/// "Did not happen" is refused while the call can still arrive.
async fn too_early(workspace: &mut Workspace<'_>, server: &Server, jobs: &[JobId]) -> Result<(), Fault> {
    for job in jobs {
        let Some(call) = workspace::doubt(&server.client, *job).await? else { continue };
        let said = resolve(server, *job, Outcome::DidNotHappen, false).await;
        let over = aetheris_store::system::System::machine().clock.wall() >= call.accepted_from;
        let refused = matches!(&said, Err(Error::Problem(problem)) if problem.status == 409);
        if !over {
            workspace.cases.case(Guarantee::Reasoned, refused, || {
                format!("\"did not happen\" was taken for {job} before {}: {said:?}", call.accepted_from)
            });
        }
    }
    Ok(())
}

async fn person_says(
    workspace: &mut Workspace<'_>,
    server: &Server,
    jobs: &[JobId],
    outcome: Outcome,
) -> Result<(), Fault> {
    for job in jobs {
        // That the other side refuses the call needs no waiting.
        let said = resolve(server, *job, outcome, outcome == Outcome::DidNotHappen).await;
        workspace
            .cases
            .case(Guarantee::Reasoned, said.is_ok(), || format!("what a person said of {job} was refused: {said:?}"));
    }
    Ok(())
}

/// The tool says that the call did not arrive: a second permission, not before the first one's deadline.
async fn proved(workspace: &mut Workspace<'_>, server: &Server, job: JobId) -> Result<(), Fault> {
    let view =
        workspace::until(&server.client, job, ("the job ends", PATIENCE), |view| view.status.is_terminal()).await?;
    let events = workspace::events(&server.client, job).await?;
    let permits: Vec<_> = events.iter().filter(|event| event.kind == "tool_invocation_started").collect();
    let lifetime =
        permits.first().and_then(|event| crate::commands::process_control::said(event)["lifetime_us"].as_u64());
    let in_order = match (&permits[..], lifetime) {
        ([first, second], Some(lifetime)) => second.at.since(first.at).micros() >= lifetime,
        _ => false,
    };
    let good = in_order && workspace::answered(&view, &json!("act"));
    workspace.cases.case(Guarantee::Reasoned, good, || {
        format!(
            "{} with {} permissions, the second one not before its time: {in_order}",
            workspace::end(&view),
            permits.len()
        )
    });
    bodies(workspace, job, 1);
    Ok(())
}

/// Idempotent calls are repeated, always with the same key.
pub(super) async fn idempotent(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let agents = [Agent::AgainFailing, Agent::AgainHeld];
    let count = workspace.plan.jobs(workspace.plan.rounds(4, 2));
    let server = workspace.dev(&agents).await?;
    let mut jobs = workspace.send(&server, Agent::AgainFailing, count).await?;
    workspace::ended(&server.client, &jobs, PATIENCE).await?;
    workspace.tools.hold(true);
    let held = workspace.send(&server, Agent::AgainHeld, count).await?;
    workspace.tools.until(WitnessKind::BodyStart, &held, PATIENCE).await?;
    server.process.kill();
    workspace.tools.hold(false);
    let server = workspace.dev(&agents).await?;
    jobs.extend(held);
    for view in workspace::ended(&server.client, &jobs, PATIENCE).await? {
        same_key(workspace, &view);
    }
    server.process.stop().await?;
    Ok(())
}

/// More than one body, all under one key.
pub(super) fn same_key(workspace: &mut Workspace<'_>, view: &aetheris_api::JobView) {
    let lines = workspace.tools.lines();
    let keys: std::collections::BTreeSet<_> =
        lines.iter().filter(|line| line.job == view.id && line.is_act()).map(|line| line.key).collect();
    let bodies = workspace.tools.bodies(view.id);
    let good = workspace::answered(view, &json!("act")) && bodies > 1 && keys.len() == 1;
    workspace.cases.case(Guarantee::SameKey, good, || {
        format!(
            "{} after {bodies} bodies under {} keys; more than 1 under 1 were expected",
            workspace::end(view),
            keys.len()
        )
    });
}
