//! Holders that are slow, dead, or stopped and go on: a server and workers on one database, and leases.

use std::time::Duration;

use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use serde_json::json;

use super::super::agents::Agent;
use super::super::guarantee::Guarantee;
use super::super::site::{self, PATIENCE, Server, Site};
use super::doubts::same_key;
use crate::commands::outside::{Fault, Process, WriteLock, said};

/// How long the end of a lease is waited for.
fn lease_max(site: &Site<'_>) -> Duration {
    site.plan.lease * 2 + PATIENCE
}

/// A call that takes longer than the lease: its holder renews it, and nobody takes the job.
pub(super) async fn slow(site: &mut Site<'_>) -> Result<(), Fault> {
    let server = site.serve(&[Agent::OnceBody]).await?;
    let (first, second) = (site.worker().await?, site.worker().await?);
    site.tools.hold(true);
    let jobs = site.send(&server, Agent::OnceBody, site.plan.jobs(3)).await?;
    site.tools.until(WitnessKind::BodyStart, &jobs, PATIENCE).await?;
    tokio::time::sleep(site.plan.lease + site.plan.heartbeat + Duration::from_secs(1)).await;
    site.tools.hold(false);
    for view in site::ended(&server.client, &jobs, PATIENCE).await? {
        let events = site::events(&server.client, view.id).await?;
        let (claims, requeues) = (site::count(&events, "job_claimed"), site::count(&events, "job_requeued"));
        let good = claims == 1 && requeues == 0 && site::answered(&view, &json!("act"));
        site.cases.case(Guarantee::Fenced, good, || {
            format!("{}: {claims} claims, taken back {requeues} times from a live holder", site::end(&view))
        });
        once(site, view.id);
    }
    drop((first, second));
    server.process.stop().await?;
    Ok(())
}

/// A worker is killed in its calls; nothing proves its death, so its leases have to end.
pub(super) async fn dead(site: &mut Site<'_>) -> Result<(), Fault> {
    let server = site.serve(&[Agent::OnceBody, Agent::AgainHeld]).await?;
    let first = site.worker().await?;
    site.tools.hold(true);
    let count = site.plan.jobs(4) / 2;
    let once_jobs = site.send(&server, Agent::OnceBody, count).await?;
    let again = site.send(&server, Agent::AgainHeld, count).await?;
    let all: Vec<JobId> = once_jobs.iter().chain(&again).copied().collect();
    site.tools.until(WitnessKind::BodyStart, &all, PATIENCE).await?;
    first.kill();
    site.tools.hold(false);
    site.tools.until(WitnessKind::BodyEnd, &all, PATIENCE).await?;
    let second = site.worker().await?;
    let max = lease_max(site);
    for view in site::ended(&server.client, &once_jobs, max).await? {
        let events = site::events(&server.client, view.id).await?;
        let permits = site::count(&events, "tool_invocation_started");
        let good = permits == 1 && site::answered(&view, &json!("act"));
        site.cases.case(Guarantee::Permitted, good, || format!("{} with {permits} permissions", site::end(&view)));
        once(site, view.id);
    }
    for view in site::ended(&server.client, &again, max).await? {
        same_key(site, &view);
    }
    drop(second);
    server.process.stop().await?;
    Ok(())
}

/// A worker is stopped in its calls for longer than its leases; another one takes over; then it goes on.
pub(super) async fn stopped(site: &mut Site<'_>) -> Result<(), Fault> {
    let server = site.serve(&[Agent::OnceAnswer, Agent::Late]).await?;
    let first = site.worker().await?;
    site.tools.hold(true);
    let count = site.plan.jobs(4) / 2;
    let settled = site.send(&server, Agent::OnceAnswer, count).await?;
    let late = site.send(&server, Agent::Late, count).await?;
    let all: Vec<JobId> = settled.iter().chain(&late).copied().collect();
    site.tools.until(WitnessKind::BodyEnd, &all, PATIENCE).await?;
    pause(site, &first).await?;
    let second = site.worker().await?;
    let max = lease_max(site);
    // The other one asks what became of the call, and waits for the late answer where it is told to.
    let settled_views = site::ended(&server.client, &settled, max).await?;
    for job in &late {
        let in_doubt = |view: &aetheris_api::JobView| {
            view.status.is_terminal() || view.waiting.as_ref().is_some_and(|waiting| waiting.doubt)
        };
        site::until(&server.client, *job, ("a call of a lost worker is in doubt", max), in_doubt).await?;
        let listed = site::doubt(&server.client, *job).await?.is_some();
        site.cases.case(Guarantee::Told, listed, || format!("the call of {job} is not in the list of those in doubt"));
    }
    first.resume()?;
    site.tools.hold(false);
    for view in site::ended(&server.client, &late, PATIENCE).await? {
        let good = site::answered(&view, &json!("act"));
        site.cases.case(Guarantee::Told, good, || format!("with a late answer: {}", site::end(&view)));
        taken_over(site, &server, view.id).await?;
    }
    for before in settled_views {
        let good = site::answered(&before, &json!("act"));
        site.cases.case(Guarantee::Told, good, || site::end(&before));
        taken_over(site, &server, before.id).await?;
        unchanged(site, &server, &before).await?;
    }
    drop((first, second));
    server.process.stop().await?;
    Ok(())
}

/// A process that is stopped while it writes stops everyone who shares its file: with the write lock in our
/// hands it is not in the middle of one.
async fn pause(site: &Site<'_>, worker: &Process) -> Result<(), Fault> {
    let lock = WriteLock::take(&site.database())?;
    worker.pause().await?;
    lock.release()
}

fn once(site: &mut Site<'_>, job: JobId) {
    let bodies = site.tools.bodies(job);
    site.cases.case(Guarantee::BodyOnce, bodies == 1, || format!("job {job}: {bodies} bodies instead of 1"));
}

async fn taken_over(site: &mut Site<'_>, server: &Server, job: JobId) -> Result<(), Fault> {
    let events = site::events(&server.client, job).await?;
    let reasons: Vec<_> =
        events.iter().filter(|event| event.kind == "job_requeued").map(|event| said(event)["reason"].clone()).collect();
    site.cases.case(Guarantee::Fenced, reasons == [json!("lease_expired")], || {
        format!("job {job} was taken back for {reasons:?} instead of an expired lease, once")
    });
    once(site, job);
    Ok(())
}

/// The late answer is kept as evidence, and the job is as it was.
async fn unchanged(site: &mut Site<'_>, server: &Server, before: &aetheris_api::JobView) -> Result<(), Fault> {
    let kept = super::super::site::until_late(&server.client, before.id, PATIENCE).await?;
    site.cases.case(Guarantee::Fenced, kept.len() == 1 && !kept[0].conflict, || {
        format!("job {}: {} late answers are kept instead of 1 that agrees", before.id, kept.len())
    });
    let after = site::job(&server.client, before.id).await?;
    site.cases.case(Guarantee::Fenced, after.seq == before.seq && after.result == before.result, || {
        format!("job {} was changed by a holder that had lost it", before.id)
    });
    Ok(())
}
