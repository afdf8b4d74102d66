//! From the sending of a signal to the resumed run: the job's next claim, after the wait.

use std::sync::Arc;

use aetheris_core::event::EventKind;
use aetheris_core::id::{AgentName, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_runtime::ops::Signal;

use super::bare::Bare;
use super::table::percentile;
use super::world::World;
use super::{Goal, Plan, Rows};
use crate::error::Error;
use aetheris_store::Scope;

const WAITING: &str = "agent: waiting\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n    - { id: w, kind: wait, wait_type: signal, correlation_key: go, park: true }\n    - { id: after, kind: transform, needs: [w], output: 1 }\n";
const PARKED: usize = 10_000;

/// Measures, alone and with many other jobs parked.
pub(crate) async fn measure(plan: &Plan, bare: Bare, rows: &mut Rows) -> Result<(), Error> {
    let world = Arc::new(World::start(&plan.place, "signals", 64)?);
    let agent = world.put(WAITING).await?;
    let alone = resumes(plan, &world, &agent).await?;
    let goal = 2.0 * bare.plain_us + 400.0;
    let detail = format!(
        "goal: 2 bare commits + 0.4 ms; p99 {:.0} µs; until the job is durably held again by a worker",
        percentile(&alone, 99)
    );
    let median = percentile(&alone, 50);
    rows.add("signal to resumed", (median, "µs"), Goal::AtMost(goal), detail);
    park(&world, &agent, PARKED).await?;
    let crowded = resumes(plan, &world, &agent).await?;
    let detail = format!(
        "{PARKED} other jobs parked; the figure over the one without them; p50 {:.0} µs, p99 {:.0} µs",
        percentile(&crowded, 50),
        percentile(&crowded, 99)
    );
    rows.add("signal to resumed, crowded", (percentile(&crowded, 50) / median, "times"), Goal::AtMost(1.5), detail);
    if let Some(world) = Arc::into_inner(world) {
        world.end().await;
    }
    Ok(())
}

/// Parks so many jobs.
pub(crate) async fn park(world: &Arc<World>, agent: &AgentName, jobs: usize) -> Result<(), Error> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..jobs {
        let (world, agent) = (Arc::clone(world), agent.clone());
        tasks.spawn(async move {
            let job = world.submit(&agent).await?;
            world.until(job, |row| row.status == JobStatus::Parked).await.map(drop)
        });
        if tasks.len() >= 256
            && let Some(ended) = tasks.join_next().await
        {
            ended.map_err(anyhow::Error::from)??;
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(anyhow::Error::from)??;
    }
    Ok(())
}

async fn resumes(plan: &Plan, world: &Arc<World>, agent: &AgentName) -> Result<Vec<u64>, Error> {
    let mut taken = Vec::new();
    for _ in 0..plan.rounds(500) {
        let job = world.submit(agent).await?;
        world.until(job, |row| row.status == JobStatus::Parked).await?;
        let signal = Signal { correlation_key: "go".to_owned(), payload: Json::null(), wait_type: None };
        let start = world.now();
        world.wired.rt.signal(job, signal).await.map_err(anyhow::Error::from)?;
        // Resumed: durably held again under its next epoch.
        world.until(job, |row| row.fence.epoch == 2).await?;
        taken.push(u64::try_from((world.now() - start).as_micros()).unwrap_or(u64::MAX));
        world.ended(job).await?;
        resumed(world, job).await?;
    }
    taken.sort_unstable();
    Ok(taken)
}

/// The wait ended once and the job was claimed after it.
async fn resumed(world: &World, job: JobId) -> Result<(), Error> {
    let events = world.store().events(Scope::System, job, 0, 100).await.map_err(anyhow::Error::from)?;
    let count = |kind: EventKind| events.iter().filter(|row| row.kind == kind.code()).count();
    if (count(EventKind::WaitCompleted), count(EventKind::JobClaimed)) == (1, 2) {
        return Ok(());
    }
    Err(Error::Internal(anyhow::anyhow!("{job} was not resumed as it should be")))
}
