//! Jobs of one step over HTTP, submitted and finished, against the program in a process of its own. The
//! client of this benchmark shares the two processors with it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bare::Bare;
use super::child::{Connection, Dev};
use super::steps::chain;
use super::table::percentile;
use super::world::now;
use super::{Goal, Plan, Rows};
use crate::error::Error;

/// Measures.
pub(crate) async fn measure(plan: &Plan, bare: Bare, rows: &mut Rows) -> Result<(), Error> {
    let folder = plan.place.folder("http")?;
    let file = folder.join("single.yaml");
    std::fs::write(&file, chain("single", "pure", 1)).map_err(anyhow::Error::from)?;
    let dev = Dev::start(&folder, Some(&file), 256).await?;
    load(dev.address, 256, 2_000).await?;
    let jobs = plan.rounds(40_000);
    let start = now();
    load(dev.address, 256, jobs).await?;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = jobs as f64 / (now() - start).as_secs_f64();
    rows.add(
        "jobs over HTTP, 256 in flight",
        (rate, "jobs/s"),
        Goal::AtLeast(7_500.0),
        "one step each, submitted and finished: POST …/message?wait=10s",
    );
    let mut connection = Connection::open(dev.address).await?;
    let mut taken = Vec::new();
    for _ in 0..plan.rounds(1_000) {
        let start = now();
        finish_one(&mut connection).await?;
        taken.push(u64::try_from((now() - start).as_micros()).unwrap_or(u64::MAX));
    }
    taken.sort_unstable();
    let median = percentile(&taken, 50);
    let goal = 2.0 * bare.plain_us + 400.0;
    let detail = format!("goal: 2 bare commits + 0.4 ms; p99 {:.0} µs", percentile(&taken, 99));
    rows.add("job over HTTP when idle, submit to finished", (median, "µs"), Goal::AtMost(goal), detail);
    dev.kill().await
}

pub(crate) async fn finish_one(connection: &mut Connection) -> Result<(), Error> {
    let (status, body) = connection.call("POST", "/api/agents/single/message?wait=10s", "{\"message\":null}").await?;
    if status == 200 && body.windows(9).any(|w| w == b"completed") {
        return Ok(());
    }
    Err(Error::Internal(anyhow::anyhow!("a job did not finish: {status} {}", String::from_utf8_lossy(&body))))
}

async fn load(address: SocketAddr, width: usize, jobs: usize) -> Result<(), Error> {
    let left = Arc::new(AtomicUsize::new(jobs));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..width {
        let left = Arc::clone(&left);
        clients.spawn(async move {
            let mut connection = Connection::open(address).await?;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                finish_one(&mut connection).await?;
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.map_err(anyhow::Error::from)??;
    }
    Ok(())
}
