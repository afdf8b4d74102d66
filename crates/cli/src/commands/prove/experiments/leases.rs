//! Holders that are slow, dead, or stopped and go on: a server and workers on one database, and leases.

use std::time::Duration;

use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use serde_json::json;

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Server, Workspace};
use super::doubts::same_key;
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::{Fault, Process, WriteLock, said};

/// How long the end of a lease is waited for.
fn lease_max(workspace: &Workspace<'_>) -> Duration {
    workspace.plan.lease * 2 + PATIENCE
}

/// A call that takes longer than the lease: its holder renews it, and nobody takes the job.
pub(super) async fn slow(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let server = workspace.serve(&[Agent::OnceBody]).await?;
    let (first, second) = (workspace.worker().await?, workspace.worker().await?);
    workspace.tools.hold(true);
    let jobs = workspace.send(&server, Agent::OnceBody, workspace.plan.jobs(3)).await?;
    workspace.tools.until(WitnessKind::BodyStart, &jobs, PATIENCE).await?;
    tokio::time::sleep(workspace.plan.lease + workspace.plan.heartbeat + Duration::from_secs(1)).await;
    workspace.tools.hold(false);
    for view in workspace::ended(&server.client, &jobs, PATIENCE).await? {
        let events = workspace::events(&server.client, view.id).await?;
        let (claims, requeues) = (workspace::count(&events, "job_claimed"), workspace::count(&events, "job_requeued"));
        let good = claims == 1 && requeues == 0 && workspace::answered(&view, &json!("act"));
        workspace.cases.case(Guarantee::Fenced, good, || {
            format!("{}: {claims} claims, taken back {requeues} times from a live holder", workspace::end(&view))
        });
        once(workspace, view.id);
    }
    drop((first, second));
    server.process.stop().await?;
    Ok(())
}

/// A worker is killed in its calls; nothing proves its death, so its leases have to end.
pub(super) async fn dead(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let server = workspace.serve(&[Agent::OnceBody, Agent::AgainHeld]).await?;
    let first = workspace.worker().await?;
    workspace.tools.hold(true);
    let count = workspace.plan.jobs(4) / 2;
    let once_jobs = workspace.send(&server, Agent::OnceBody, count).await?;
    let again = workspace.send(&server, Agent::AgainHeld, count).await?;
    let all: Vec<JobId> = once_jobs.iter().chain(&again).copied().collect();
    workspace.tools.until(WitnessKind::BodyStart, &all, PATIENCE).await?;
    first.kill();
    workspace.tools.hold(false);
    workspace.tools.until(WitnessKind::BodyEnd, &all, PATIENCE).await?;
    let second = workspace.worker().await?;
    let max = lease_max(workspace);
    for view in workspace::ended(&server.client, &once_jobs, max).await? {
        let events = workspace::events(&server.client, view.id).await?;
        let permits = workspace::count(&events, "tool_invocation_started");
        let good = permits == 1 && workspace::answered(&view, &json!("act"));
        workspace
            .cases
            .case(Guarantee::Permitted, good, || format!("{} with {permits} permissions", workspace::end(&view)));
        once(workspace, view.id);
    }
    for view in workspace::ended(&server.client, &again, max).await? {
        same_key(workspace, &view);
    }
    drop(second);
    server.process.stop().await?;
    Ok(())
}

/// A worker is stopped in its calls for longer than its leases; another one takes over; then it goes on.
pub(super) async fn stopped(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let server = workspace.serve(&[Agent::OnceAnswer, Agent::Late]).await?;
    let first = workspace.worker().await?;
    workspace.tools.hold(true);
    let count = workspace.plan.jobs(4) / 2;
    let settled = workspace.send(&server, Agent::OnceAnswer, count).await?;
    let late = workspace.send(&server, Agent::Late, count).await?;
    let all: Vec<JobId> = settled.iter().chain(&late).copied().collect();
    workspace.tools.until(WitnessKind::BodyEnd, &all, PATIENCE).await?;
    pause(workspace, &first).await?;
    let second = workspace.worker().await?;
    let max = lease_max(workspace);
    // The other one asks what became of the call, and waits for the late answer where it is told to.
    let settled_views = workspace::ended(&server.client, &settled, max).await?;
    for job in &late {
        let in_doubt = |view: &aetheris_api::JobView| {
            view.status.is_terminal() || view.waiting.as_ref().is_some_and(|waiting| waiting.doubt)
        };
        workspace::until(&server.client, *job, ("a call of a lost worker is in doubt", max), in_doubt).await?;
        let listed = workspace::doubt(&server.client, *job).await?.is_some();
        workspace
            .cases
            .case(Guarantee::Told, listed, || format!("the call of {job} is not in the list of those in doubt"));
    }
    first.resume()?;
    workspace.tools.hold(false);
    for view in workspace::ended(&server.client, &late, PATIENCE).await? {
        let good = workspace::answered(&view, &json!("act"));
        workspace.cases.case(Guarantee::Told, good, || format!("with a late answer: {}", workspace::end(&view)));
        taken_over(workspace, &server, view.id).await?;
    }
    for before in settled_views {
        let good = workspace::answered(&before, &json!("act"));
        workspace.cases.case(Guarantee::Told, good, || workspace::end(&before));
        taken_over(workspace, &server, before.id).await?;
        unchanged(workspace, &server, &before).await?;
    }
    drop((first, second));
    server.process.stop().await?;
    Ok(())
}

/// A process that is stopped while it writes stops everyone who shares its file: with the write lock in our
/// hands it is not in the middle of one.
async fn pause(workspace: &Workspace<'_>, worker: &Process) -> Result<(), Fault> {
    let lock = WriteLock::take(&workspace.database())?;
    worker.pause().await?;
    lock.release()
}

fn once(workspace: &mut Workspace<'_>, job: JobId) {
    let bodies = workspace.tools.bodies(job);
    workspace.cases.case(Guarantee::BodyOnce, bodies == 1, || format!("job {job}: {bodies} bodies instead of 1"));
}

async fn taken_over(workspace: &mut Workspace<'_>, server: &Server, job: JobId) -> Result<(), Fault> {
    let events = workspace::events(&server.client, job).await?;
    let reasons: Vec<_> =
        events.iter().filter(|event| event.kind == "job_requeued").map(|event| said(event)["reason"].clone()).collect();
    workspace.cases.case(Guarantee::Fenced, reasons == [json!("lease_expired")], || {
        format!("job {job} was taken back for {reasons:?} instead of an expired lease, once")
    });
    once(workspace, job);
    Ok(())
}

/// The late answer is kept as evidence, and the job is as it was.
async fn unchanged(
    workspace: &mut Workspace<'_>,
    server: &Server,
    before: &aetheris_api::JobView,
) -> Result<(), Fault> {
    let kept = super::super::workspace::until_late(&server.client, before.id, PATIENCE).await?;
    workspace.cases.case(Guarantee::Fenced, kept.len() == 1 && !kept[0].conflict, || {
        format!("job {}: {} late answers are kept instead of 1 that agrees", before.id, kept.len())
    });
    let after = workspace::job(&server.client, before.id).await?;
    workspace.cases.case(Guarantee::Fenced, after.seq == before.seq && after.result == before.result, || {
        format!("job {} was changed by a holder that had lost it", before.id)
    });
    Ok(())
}
