//! Cancels: acknowledged ones are not lost, end a job once, and no body starts after them.

use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;

use super::super::agents::Agent;
use super::super::guarantee::Guarantee;
use super::super::site::{self, PATIENCE, Site};
use crate::commands::outside::Fault;

const AGENTS: [Agent; 3] = [Agent::Ask, Agent::Nap, Agent::OnceAnswer];

pub(super) async fn run(site: &mut Site<'_>) -> Result<(), Fault> {
    for kill in [false, true] {
        let server = site.dev(&AGENTS).await?;
        let count = site.plan.rounds(6, 2);
        let mut jobs: Vec<JobId> = site.send(&server, Agent::Ask, count).await?;
        jobs.extend(site.send(&server, Agent::Nap, count).await?);
        site::waiting(&server.client, &jobs).await?;
        // Of calls that have left, the answers come after the cancel.
        site.tools.hold(true);
        let called = site.send(&server, Agent::OnceAnswer, site.plan.jobs(count)).await?;
        site.tools.until(WitnessKind::BodyEnd, &called, PATIENCE).await?;
        jobs.extend(&called);
        for job in &jobs {
            site.cancel(&server, *job).await?;
        }
        let server = if kill {
            server.process.kill();
            site.tools.hold(false);
            site.dev(&AGENTS).await?
        } else {
            site.tools.hold(false);
            server
        };
        for view in site::ended(&server.client, &jobs, PATIENCE).await? {
            let cancelled = view.status == JobStatus::Cancelled;
            site.cases
                .case(Guarantee::Kept, cancelled, || format!("after an acknowledged cancel: {}", site::end(&view)));
            let ends = site::count(&site::events(&server.client, view.id).await?, "job_cancelled");
            site.cases.case(Guarantee::EndsOnce, ends == 1, || format!("job {} was cancelled {ends} times", view.id));
        }
        for job in called {
            let bodies = site.tools.bodies(job);
            site.cases.case(Guarantee::BodyOnce, bodies == 1, || format!("job {job}: {bodies} bodies instead of 1"));
        }
        server.process.stop().await?;
    }
    Ok(())
}
