//! Everything at once, killed and stopped at any moment, and started again.

use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_store::system::System;
use serde_json::json;

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::Fault;

/// The longest life of a process here, in milliseconds.
const LIFE_MS: u128 = 700;

pub(super) async fn run(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let mut jobs: Vec<JobId> = Vec::new();
    let kills = workspace.plan.rounds(26, 5);
    for round in 0..kills {
        let server = workspace.dev(&[Agent::Chain]).await?;
        jobs.extend(workspace.send(&server, Agent::Chain, 3).await?);
        // Any moment will do, and a different one each time.
        let life = System::machine().ids.secret() % LIFE_MS;
        tokio::time::sleep(Duration::from_millis(u64::try_from(life).unwrap_or(0))).await;
        if round % 4 == 3 {
            let code = server.process.stop().await?;
            workspace
                .cases
                .case(Guarantee::Kept, code == Some(0), || format!("a process ended by SIGTERM with {code:?}"));
        } else {
            server.process.kill();
        }
    }
    let server = workspace.dev(&[Agent::Chain]).await?;
    let views = workspace::ended(&server.client, &jobs, PATIENCE).await?;
    for view in views {
        workspace.cases.case(Guarantee::Kept, workspace::answered(&view, &json!("2-4")), || workspace::end(&view));
        let events = workspace::events(&server.client, view.id).await?;
        for node in ["second", "fourth"] {
            let of_node = |kind: &str| {
                let named = events.iter().filter(|event| event.kind == kind);
                named.filter(|event| crate::commands::process_control::said(event)["node"] == node).count()
            };
            let lines = workspace.tools.lines();
            let bodies =
                lines.iter().filter(|line| line.job == view.id && line.is_act() && line.node.text() == node).count();
            workspace.cases.case(Guarantee::BodyOnce, bodies == 1, || {
                format!("job {} node `{node}`: {bodies} bodies instead of 1", view.id)
            });
            let permits = of_node("tool_invocation_started");
            workspace.cases.case(Guarantee::Permitted, bodies <= permits, || {
                format!("job {} node `{node}`: {bodies} bodies under {permits} permissions", view.id)
            });
        }
    }
    server.process.stop().await?;
    workspace.cases.notes.push(format!("{kills} ends of a process, {} jobs", jobs.len()));
    Ok(())
}
