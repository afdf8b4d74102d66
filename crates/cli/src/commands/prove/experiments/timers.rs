//! Timers fire once and not early, over a kill -9.

use aetheris_core::time::Span;
use aetheris_store::system::System;
use serde_json::json;

use super::super::agents::Agent;
use super::super::guarantee::Guarantee;
use super::super::site::{self, PATIENCE, Site};
use crate::commands::outside::Fault;

/// The sleep of the agent.
const NAP: Span = Span::from_millis(1_500);

pub(super) async fn run(site: &mut Site<'_>) -> Result<(), Fault> {
    let count = site.plan.rounds(24, 6);
    let server = site.dev(&[Agent::Times]).await?;
    let mut sent = Vec::new();
    for _ in 0..count {
        let at = System::machine().clock.wall();
        let job = site.send(&server, Agent::Times, 1).await?[0];
        sent.push((job, at));
    }
    let jobs: Vec<_> = sent.iter().map(|(job, _)| *job).collect();
    // In the sleeps.
    site::waiting(&server.client, &jobs).await?;
    server.process.kill();
    let server = site.dev(&[Agent::Times]).await?;
    site::ended(&server.client, &jobs, PATIENCE).await?;
    for (job, at) in sent {
        let view = site::job(&server.client, job).await?;
        let events = site::events(&server.client, job).await?;
        let (set, fired) = (site::count(&events, "timer_set"), site::count(&events, "timer_fired"));
        let good = set == 2 && fired == 2 && site::answered(&view, &json!("late"));
        site.cases.case(Guarantee::EndsOnce, good, || {
            format!("{}: {set} timers were set and {fired} fired, instead of 2 and 2", site::end(&view))
        });
        // From outside: the body after the sleep, by the tool's clock.
        let seen = site.tools.lines().iter().find(|line| line.job == job).map(|line| line.at);
        let slept = seen.map(|seen| seen.since(at));
        site.cases.case(Guarantee::EndsOnce, slept.is_some_and(|slept| slept >= NAP), || {
            format!("job {job} went on {slept:?} after it was sent, with a sleep of {NAP} in between")
        });
    }
    server.process.stop().await?;
    Ok(())
}
