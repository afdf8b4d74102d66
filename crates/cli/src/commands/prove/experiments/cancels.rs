//! Cancels: acknowledged ones are not lost, end a job once, and no body starts after them.

use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::Fault;

const AGENTS: [Agent; 3] = [Agent::Ask, Agent::Nap, Agent::OnceAnswer];

pub(super) async fn run(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    for kill in [false, true] {
        let server = workspace.dev(&AGENTS).await?;
        let count = workspace.plan.rounds(6, 2);
        let mut jobs: Vec<JobId> = workspace.send(&server, Agent::Ask, count).await?;
        jobs.extend(workspace.send(&server, Agent::Nap, count).await?);
        workspace::waiting(&server.client, &jobs).await?;
        // Of calls that have left, the answers come after the cancel.
        workspace.tools.hold(true);
        let called = workspace.send(&server, Agent::OnceAnswer, workspace.plan.jobs(count)).await?;
        workspace.tools.until(WitnessKind::BodyEnd, &called, PATIENCE).await?;
        jobs.extend(&called);
        for job in &jobs {
            workspace.cancel(&server, *job).await?;
        }
        let server = if kill {
            server.process.kill();
            workspace.tools.hold(false);
            workspace.dev(&AGENTS).await?
        } else {
            workspace.tools.hold(false);
            server
        };
        for view in workspace::ended(&server.client, &jobs, PATIENCE).await? {
            let cancelled = view.status == JobStatus::Cancelled;
            workspace.cases.case(Guarantee::Kept, cancelled, || {
                format!("after an acknowledged cancel: {}", workspace::end(&view))
            });
            let ends = workspace::count(&workspace::events(&server.client, view.id).await?, "job_cancelled");
            workspace
                .cases
                .case(Guarantee::EndsOnce, ends == 1, || format!("job {} was cancelled {ends} times", view.id));
        }
        for job in called {
            let bodies = workspace.tools.bodies(job);
            workspace
                .cases
                .case(Guarantee::BodyOnce, bodies == 1, || format!("job {job}: {bodies} bodies instead of 1"));
        }
        server.process.stop().await?;
    }
    Ok(())
}
