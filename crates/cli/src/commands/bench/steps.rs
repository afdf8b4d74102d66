//! Chains of ten no-op steps: ledger ones, each recorded before the next begins, and plain ones, which go on while those
//! before them are being written.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::EventKind;
use aetheris_core::id::AgentName;
use aetheris_core::job::JobStatus;
use aetheris_store::{Scope, WriterStats};
use tokio::sync::Semaphore;

use super::bare;
use super::table::percentile;
use super::world::World;
use super::{Goal, Plan, Rows};
use crate::error::Error;

const STEPS: usize = 10;
#[expect(clippy::cast_precision_loss, reason = "ten")]
const STEPS_F: f64 = STEPS as f64;

/// An agent file with a chain of no-op tool calls.
pub(crate) fn chain(name: &str, effect: &str, steps: usize) -> String {
    let mut file = format!(
        "agent: {name}\nversion: \"1\"\nplanner: static\ntools:\n  noop: {{ kind: function, function: builtin.noop, effect: {effect} }}\nplan:\n  nodes:\n"
    );
    for n in 0..steps {
        let needs = if n == 0 { String::new() } else { format!(", needs: [s{}]", n - 1) };
        file.push_str(&format!("    - {{ id: s{n}, kind: tool, tool: noop, input: null{needs} }}\n"));
    }
    file
}

/// Measures plain and ledger chains, many at once and one at a time.
pub(crate) async fn measure(plan: &Plan, rows: &mut Rows) -> Result<(), Error> {
    for (kind, effect, goal_ratio) in [("plain", "pure", 1.3), ("ledger", "at_most_once", 1.5)] {
        let world = Arc::new(World::start(&plan.place, &format!("steps-{kind}"), 256)?);
        let agent = world.put(&chain("chain", effect, STEPS)).await?;
        throughput(plan, &world, &agent, kind, rows).await?;
        one_at_a_time(plan, &world, &agent, (kind, goal_ratio), rows).await?;
        stored(&world, (kind, effect), rows).await?;
        if let Some(world) = Arc::into_inner(world) {
            world.end().await;
        }
    }
    Ok(())
}

async fn throughput(
    plan: &Plan,
    world: &Arc<World>,
    agent: &AgentName,
    kind: &str,
    rows: &mut Rows,
) -> Result<(), Error> {
    let jobs = plan.rounds(10_000);
    in_flight(world, agent, 256, 1_000).await?;
    let before = stats(world).await?;
    let start = world.now();
    in_flight(world, agent, 256, jobs).await?;
    let seconds = (world.now() - start).as_secs_f64();
    let after = stats(world).await?;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let steps = (jobs * STEPS) as f64;
    let goal = if kind == "plain" { Goal::AtLeast(25_000.0) } else { Goal::None };
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let per_step = |count: fn(&WriterStats) -> u64| (count(&after) - count(&before)) as f64 / steps;
    let durability = world.store().status().await.map_err(anyhow::Error::from)?.durability;
    let detail = format!(
        "{durability}; jobs of {STEPS}; a step, its share of creating, claiming and ending included: {:.3} fsyncs, {:.2} units, {:.2} rows",
        per_step(|s| s.commits),
        per_step(|s| s.units),
        per_step(|s| s.rows)
    );
    rows.add(&format!("{kind} steps, 256 jobs in flight"), (steps / seconds, "steps/s"), goal, detail);
    Ok(())
}

/// What one step adds: a job of ten less a job of one, over nine.
async fn stored(world: &Arc<World>, (kind, effect): (&str, &str), rows: &mut Rows) -> Result<(), Error> {
    let mut figures = Vec::new();
    for steps in [1, STEPS] {
        let agent = world.put(&chain("stored", effect, steps)).await?;
        let before = stats(world).await?;
        in_flight(world, &agent, 1, 10).await?;
        let after = stats(world).await?;
        figures.push((after.bytes - before.bytes, after.rows - before.rows, after.units - before.units));
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let step = |one: u64, ten: u64| (ten - one) as f64 / 10.0 / (STEPS_F - 1.0);
    let bytes = step(figures[0].0, figures[1].0);
    let detail = format!(
        "payloads, headers, ledger and effect rows, without indexes; {:.2} rows written, {:.2} commits",
        step(figures[0].1, figures[1].1),
        step(figures[0].2, figures[1].2)
    );
    rows.add(&format!("{kind} step, stored"), (bytes, "bytes"), Goal::AtMost(1_024.0), detail);
    Ok(())
}

/// Runs jobs with so many in flight.
pub(crate) async fn in_flight(world: &Arc<World>, agent: &AgentName, width: usize, jobs: usize) -> Result<(), Error> {
    let places = Arc::new(Semaphore::new(width));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..jobs {
        let place = Arc::clone(&places).acquire_owned().await.map_err(anyhow::Error::from)?;
        let (world, agent) = (Arc::clone(world), agent.clone());
        tasks.spawn(async move {
            let job = world.submit(&agent).await?;
            let row = world.ended(job).await?;
            drop(place);
            if row.status == JobStatus::Completed {
                Ok(())
            } else {
                Err(Error::Internal(anyhow::anyhow!("{job} is {:?}", row.status)))
            }
        });
        while let Some(ended) = tasks.try_join_next() {
            ended.map_err(anyhow::Error::from)??;
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(anyhow::Error::from)??;
    }
    Ok(())
}

async fn one_at_a_time(
    plan: &Plan,
    world: &Arc<World>,
    agent: &AgentName,
    (kind, ratio): (&str, f64),
    rows: &mut Rows,
) -> Result<(), Error> {
    let mut taken = Vec::new();
    let mut units = 0;
    let before_us = bare::now_us(plan, kind == "ledger")?;
    for _ in 0..plan.rounds(300) {
        let before = stats(world).await?.units;
        let job = world.submit(agent).await?;
        // Nobody follows the job: a watcher that wakes at each step would be measured with it.
        while !world.row(job).await?.status.is_terminal() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        units = stats(world).await?.units - before - 1;
        taken.push(span_of(world, job).await?);
    }
    taken.sort_unstable();
    let per_step = percentile(&taken, 50) / (STEPS_F - 1.0);
    let bare_us = f64::midpoint(before_us, bare::now_us(plan, kind == "ledger")?);
    let detail = format!(
        "median of {:.0} µs from one step's record to the next; p99 {:.0} µs; {units} commits for {STEPS} steps; bare commits of its size right before and after: {bare_us:.0} µs",
        per_step,
        percentile(&taken, 99) / (STEPS_F - 1.0)
    );
    rows.add(
        &format!("{kind} step, one job in flight"),
        (per_step / bare_us, "bare commits"),
        Goal::AtMost(ratio),
        detail,
    );
    Ok(())
}

/// Nine steps: from the record of the first to that of the tenth, by the store's clock.
async fn span_of(world: &World, job: aetheris_core::id::JobId) -> Result<u64, Error> {
    let events = world.store().events(Scope::System, job, 0, 1_000).await.map_err(anyhow::Error::from)?;
    let mut finished = events.iter().filter(|row| row.kind == EventKind::NodeFinished.code()).map(|row| row.at);
    match (finished.next(), finished.next_back()) {
        (Some(first), Some(last)) => Ok(last.since(first).micros()),
        (None | Some(_), _) => Err(Error::Internal(anyhow::anyhow!("{job} has not completed"))),
    }
}

async fn stats(world: &World) -> Result<WriterStats, Error> {
    Ok(world.store().status().await.map_err(anyhow::Error::from)?.writer)
}
