//! Timers fire once and not early, over a kill -9.

use aetheris_core::time::Span;
use aetheris_store::system::System;
use serde_json::json;

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::Fault;

/// The sleep of the agent.
const NAP: Span = Span::from_millis(1_500);

pub(super) async fn run(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let count = workspace.plan.rounds(24, 6);
    let server = workspace.dev(&[Agent::Times]).await?;
    let mut sent = Vec::new();
    for _ in 0..count {
        let at = System::machine().clock.wall();
        let job = workspace.send(&server, Agent::Times, 1).await?[0];
        sent.push((job, at));
    }
    let jobs: Vec<_> = sent.iter().map(|(job, _)| *job).collect();
    // In the sleeps.
    workspace::waiting(&server.client, &jobs).await?;
    server.process.kill();
    let server = workspace.dev(&[Agent::Times]).await?;
    workspace::ended(&server.client, &jobs, PATIENCE).await?;
    for (job, at) in sent {
        let view = workspace::job(&server.client, job).await?;
        let events = workspace::events(&server.client, job).await?;
        let (set, fired) = (workspace::count(&events, "timer_set"), workspace::count(&events, "timer_fired"));
        let good = set == 2 && fired == 2 && workspace::answered(&view, &json!("late"));
        workspace.cases.case(Guarantee::EndsOnce, good, || {
            format!("{}: {set} timers were set and {fired} fired, instead of 2 and 2", workspace::end(&view))
        });
        // From outside: the body after the sleep, by the tool's clock.
        let seen = workspace.tools.lines().iter().find(|line| line.job == job).map(|line| line.at);
        let slept = seen.map(|seen| seen.since(at));
        workspace.cases.case(Guarantee::EndsOnce, slept.is_some_and(|slept| slept >= NAP), || {
            format!("job {job} went on {slept:?} after it was sent, with a sleep of {NAP} in between")
        });
    }
    server.process.stop().await?;
    Ok(())
}
