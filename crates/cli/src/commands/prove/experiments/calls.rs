//! At most once: kill -9 in the body of a call, before its answer is recorded, and after.

use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use serde_json::json;

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Server, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::{Fault, WriteLock};

const AGENTS: [Agent; 2] = [Agent::OnceBody, Agent::OnceAnswer];

pub(super) async fn run(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let jobs = workspace.plan.jobs(4);
    let mut server = workspace.dev(&AGENTS).await?;
    for _ in 0..workspace.plan.rounds(8, 1) {
        server = in_the_body(workspace, server, jobs).await?;
        server = before_the_record(workspace, server, jobs).await?;
        server = after_the_record(workspace, server, jobs).await?;
    }
    server.process.stop().await?;
    Ok(())
}

async fn in_the_body(workspace: &mut Workspace<'_>, server: Server, count: usize) -> Result<Server, Fault> {
    workspace.tools.hold(true);
    let jobs = workspace.send(&server, Agent::OnceBody, count).await?;
    workspace.tools.until(WitnessKind::BodyStart, &jobs, PATIENCE).await?;
    server.process.kill();
    workspace.tools.hold(false);
    workspace.tools.until(WitnessKind::BodyEnd, &jobs, PATIENCE).await?;
    judge(workspace, &jobs, "killed in the body").await
}

/// With the database's write lock in our hands, the runtime reads the answer and cannot record it.
async fn before_the_record(workspace: &mut Workspace<'_>, server: Server, count: usize) -> Result<Server, Fault> {
    workspace.tools.hold(true);
    let jobs = workspace.send(&server, Agent::OnceAnswer, count).await?;
    workspace.tools.until(WitnessKind::BodyEnd, &jobs, PATIENCE).await?;
    let lock = WriteLock::take(&workspace.database())?;
    workspace.tools.hold(false);
    if !workspace.tools.answers_read(&jobs, PATIENCE).await? {
        return Err(server.process.fault("the runtime reads the answers of its calls"));
    }
    server.process.kill();
    lock.release()?;
    judge(workspace, &jobs, "killed before the answer was recorded").await
}

async fn after_the_record(workspace: &mut Workspace<'_>, server: Server, count: usize) -> Result<Server, Fault> {
    let jobs = workspace.send(&server, Agent::OnceAnswer, count).await?;
    workspace::ended(&server.client, &jobs, PATIENCE).await?;
    server.process.kill();
    judge(workspace, &jobs, "killed after the end").await
}

/// Starts again and looks at every job: completed with the tool's answer, by one body under one permission.
async fn judge(workspace: &mut Workspace<'_>, jobs: &[JobId], how: &str) -> Result<Server, Fault> {
    let server = workspace.dev(&AGENTS).await?;
    for view in workspace::ended(&server.client, jobs, PATIENCE).await? {
        let bodies = workspace.tools.bodies(view.id);
        let good = workspace::answered(&view, &json!("act")) && bodies == 1;
        workspace.cases.case(Guarantee::BodyOnce, good, || {
            format!("{how}: {} after {bodies} bodies instead of 1", workspace::end(&view))
        });
        let permits = workspace::count(&workspace::events(&server.client, view.id).await?, "tool_invocation_started");
        workspace.cases.case(Guarantee::Permitted, permits == 1 && bodies <= permits, || {
            format!("{how}: job {} had {bodies} bodies under {permits} permissions", view.id)
        });
    }
    Ok(server)
}
