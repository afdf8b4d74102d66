//! Replay: reading and folding a job of a thousand steps from its first event.

use std::sync::Arc;

use super::steps::chain;
use super::table::percentile;
use super::world::World;
use super::{Goal, Plan, Rows};
use crate::error::Error;
use aetheris_store::Scope;

const STEPS: usize = 1_000;

/// Measures.
pub(crate) async fn measure(plan: &Plan, rows: &mut Rows) -> Result<(), Error> {
    let world = Arc::new(World::start(&plan.place, "replay", 16)?);
    let agent = world.put(&chain("long", "pure", STEPS)).await?;
    let job = world.submit(&agent).await?;
    world.ended(job).await?;
    let mut taken = Vec::new();
    let mut events = 0;
    for _ in 0..plan.rounds(50) {
        let start = world.now();
        let history = world.store().history(Scope::System, job, true).await.map_err(anyhow::Error::from)?;
        let history = history.ok_or_else(|| anyhow::anyhow!("{job} has no history"))?;
        let loaded = aetheris_runtime::load::Loaded::fold(history).map_err(anyhow::Error::from)?;
        taken.push(u64::try_from((world.now() - start).as_micros()).unwrap_or(u64::MAX));
        events = loaded.state.seq;
    }
    taken.sort_unstable();
    let detail = format!("{events} events read and folded; p99 {:.1} ms", percentile(&taken, 99) / 1_000.0);
    rows.add("replay of 1,000 steps", (percentile(&taken, 50) / 1_000.0, "ms"), Goal::AtMost(10.0), detail);
    if let Some(world) = Arc::into_inner(world) {
        world.end().await;
    }
    Ok(())
}
