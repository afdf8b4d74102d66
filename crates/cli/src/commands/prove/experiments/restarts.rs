//! Everything at once, killed and stopped at any moment, and started again.

use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_store::system::System;
use serde_json::json;

use super::super::agents::Agent;
use super::super::guarantee::Guarantee;
use super::super::site::{self, PATIENCE, Site};
use crate::commands::outside::Fault;

/// The longest life of a process here, in milliseconds.
const LIFE_MS: u128 = 700;

pub(super) async fn run(site: &mut Site<'_>) -> Result<(), Fault> {
    let mut jobs: Vec<JobId> = Vec::new();
    let kills = site.plan.rounds(26, 5);
    for round in 0..kills {
        let server = site.dev(&[Agent::Chain]).await?;
        jobs.extend(site.send(&server, Agent::Chain, 3).await?);
        // Any moment will do, and a different one each time.
        let life = System::machine().ids.secret() % LIFE_MS;
        tokio::time::sleep(Duration::from_millis(u64::try_from(life).unwrap_or(0))).await;
        if round % 4 == 3 {
            let code = server.process.stop().await?;
            site.cases.case(Guarantee::Kept, code == Some(0), || format!("a process ended by SIGTERM with {code:?}"));
        } else {
            server.process.kill();
        }
    }
    let server = site.dev(&[Agent::Chain]).await?;
    let views = site::ended(&server.client, &jobs, PATIENCE).await?;
    for view in views {
        site.cases.case(Guarantee::Kept, site::answered(&view, &json!("2-4")), || site::end(&view));
        let events = site::events(&server.client, view.id).await?;
        for node in ["second", "fourth"] {
            let of_node = |kind: &str| {
                let named = events.iter().filter(|event| event.kind == kind);
                named.filter(|event| crate::commands::outside::said(event)["node"] == node).count()
            };
            let lines = site.tools.lines();
            let bodies =
                lines.iter().filter(|line| line.job == view.id && line.is_act() && line.node.as_str() == node).count();
            site.cases.case(Guarantee::BodyOnce, bodies == 1, || {
                format!("job {} node `{node}`: {bodies} bodies instead of 1", view.id)
            });
            let permits = of_node("tool_invocation_started");
            site.cases.case(Guarantee::Permitted, bodies <= permits, || {
                format!("job {} node `{node}`: {bodies} bodies under {permits} permissions", view.id)
            });
        }
    }
    server.process.stop().await?;
    site.cases.notes.push(format!("{kills} ends of a process, {} jobs", jobs.len()));
    Ok(())
}
