//! At most once: kill -9 in the body of a call, before its answer is recorded, and after.

use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use serde_json::json;

use super::super::agents::Agent;
use super::super::guarantee::Guarantee;
use super::super::site::{self, PATIENCE, Server, Site};
use crate::commands::outside::{Fault, WriteLock};

const AGENTS: [Agent; 2] = [Agent::OnceBody, Agent::OnceAnswer];

pub(super) async fn run(site: &mut Site<'_>) -> Result<(), Fault> {
    let jobs = site.plan.jobs(4);
    let mut server = site.dev(&AGENTS).await?;
    for _ in 0..site.plan.rounds(8, 1) {
        server = in_the_body(site, server, jobs).await?;
        server = before_the_record(site, server, jobs).await?;
        server = after_the_record(site, server, jobs).await?;
    }
    server.process.stop().await?;
    Ok(())
}

async fn in_the_body(site: &mut Site<'_>, server: Server, count: usize) -> Result<Server, Fault> {
    site.tools.hold(true);
    let jobs = site.send(&server, Agent::OnceBody, count).await?;
    site.tools.until(WitnessKind::BodyStart, &jobs, PATIENCE).await?;
    server.process.kill();
    site.tools.hold(false);
    site.tools.until(WitnessKind::BodyEnd, &jobs, PATIENCE).await?;
    judge(site, &jobs, "killed in the body").await
}

/// With the database's write lock in our hands, the runtime reads the answer and cannot record it.
async fn before_the_record(site: &mut Site<'_>, server: Server, count: usize) -> Result<Server, Fault> {
    site.tools.hold(true);
    let jobs = site.send(&server, Agent::OnceAnswer, count).await?;
    site.tools.until(WitnessKind::BodyEnd, &jobs, PATIENCE).await?;
    let lock = WriteLock::take(&site.database())?;
    site.tools.hold(false);
    if !site.tools.answers_read(&jobs, PATIENCE).await? {
        return Err(server.process.fault("the runtime reads the answers of its calls"));
    }
    server.process.kill();
    lock.release()?;
    judge(site, &jobs, "killed before the answer was recorded").await
}

async fn after_the_record(site: &mut Site<'_>, server: Server, count: usize) -> Result<Server, Fault> {
    let jobs = site.send(&server, Agent::OnceAnswer, count).await?;
    site::ended(&server.client, &jobs, PATIENCE).await?;
    server.process.kill();
    judge(site, &jobs, "killed after the end").await
}

/// Starts again and looks at every job: completed with the tool's answer, by one body under one permission.
async fn judge(site: &mut Site<'_>, jobs: &[JobId], how: &str) -> Result<Server, Fault> {
    let server = site.dev(&AGENTS).await?;
    for view in site::ended(&server.client, jobs, PATIENCE).await? {
        let bodies = site.tools.bodies(view.id);
        let good = site::answered(&view, &json!("act")) && bodies == 1;
        site.cases.case(Guarantee::BodyOnce, good, || {
            format!("{how}: {} after {bodies} bodies instead of 1", site::end(&view))
        });
        let permits = site::count(&site::events(&server.client, view.id).await?, "tool_invocation_started");
        site.cases.case(Guarantee::Permitted, permits == 1 && bodies <= permits, || {
            format!("{how}: job {} had {bodies} bodies under {permits} permissions", view.id)
        });
    }
    Ok(server)
}
