//! Memory and processor time of `dev`: empty, and with many jobs parked.

use std::sync::Arc;
use std::time::Duration;

use super::child::Dev;
use super::signals::park;
use super::world::World;
use super::{Goal, Plan, Rows};
use crate::error::Error;

const PARKED: usize = 10_000;
pub(crate) const WAITING: &str = "agent: waiting\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n    - { id: w, kind: wait, wait_type: human, correlation_key: go, park: true, deadline: 24h, on_deadline: fail }\n";
/// How long the idle process is watched.
const WATCHED: Duration = Duration::from_secs(5);

/// Measures.
pub(crate) async fn measure(plan: &Plan, rows: &mut Rows) -> Result<(), Error> {
    let folder = plan.place.folder("memory")?;
    let dev = Dev::start(&folder, None, 16).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    rows.add(
        "resident memory, empty",
        (resident_mib(dev.pid())?, "MiB"),
        Goal::AtMost(25.0),
        "`aetheris dev`, one second after its start",
    );
    dev.kill().await?;
    let world = Arc::new(World::start(&plan.place, "memory", 256)?);
    let agent = world.put(WAITING).await?;
    park(&world, &agent, PARKED).await?;
    if let Some(world) = Arc::into_inner(world) {
        world.end().await;
    }
    let dev = Dev::start(&folder, None, 16).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = processor_seconds(dev.pid())?;
    tokio::time::sleep(WATCHED).await;
    let used = processor_seconds(dev.pid())? - before;
    rows.add(
        "resident memory, 10,000 parked jobs",
        (resident_mib(dev.pid())?, "MiB"),
        Goal::AtMost(60.0),
        "each with a deadline",
    );
    let share = used / WATCHED.as_secs_f64() * 100.0;
    rows.add(
        "idle processor time, 10,000 parked jobs",
        (share, "%"),
        Goal::AtMost(1.0),
        "of one processor, over five seconds",
    );
    dev.kill().await
}

/// The memory that a process has now.
pub(crate) fn resident_mib(pid: u32) -> Result<f64, Error> {
    status_mib(pid, "VmRSS:")
}

/// A figure of memory of a process, by its name in `/proc`.
pub(crate) fn status_mib(pid: u32, name: &str) -> Result<f64, Error> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(anyhow::Error::from)?;
    let kib: Option<f64> = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse().ok());
    Ok(kib.ok_or_else(|| anyhow::anyhow!("process {pid} tells no {name}"))? / 1_024.0)
}

/// User and system time of a process, in seconds.
fn processor_seconds(pid: u32) -> Result<f64, Error> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(anyhow::Error::from)?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = [11, 12].iter().filter_map(|place| fields.get(*place)?.parse::<f64>().ok()).sum();
    // The kernel tells these in hundredths of a second, whatever its own tick is.
    Ok(ticks / 100.0)
}
