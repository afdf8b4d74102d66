//! A store of two million jobs: how long each list takes over HTTP, and how fast its check for consistency is. Making
//! it takes minutes and gigabytes, so that it is measured only where it is asked for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::id::{AgentName, JobId, SessionId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::time::Span;
use aetheris_runtime::ops::Submission;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::child::{Connection, Dev};
use super::memory::status_mib;
use super::table::percentile;
use super::world::{World, now};
use super::{Goal, Plan, Rows};
use crate::error::Error;

const JOBS: usize = 2_000_000;
/// So many are on their way at once while they are made.
const WIDTH: usize = 512;
const AGENTS: usize = 12;
const DOUBTS: usize = 100;
const ROUNDS: usize = 40;
/// Jobs for later: none is due while it is measured.
const LATER: Span = Span::from_secs(30 * 24 * 3_600);
/// Between two signs of life.
const TELLS: usize = 100_000;
const SETTLED_MAX: Duration = Duration::from_secs(600);

const LISTS: [&str; 15] = [
    "/api/jobs",
    "/api/jobs?status=pending",
    "/api/jobs?status=completed",
    "/api/jobs?status=parked",
    "/api/jobs?status=cancelled",
    "/api/jobs?status=pending,parked,cancelled,completed",
    "/api/jobs?agent=work3",
    "/api/jobs?agent=work3&status=completed",
    "/api/jobs?agent=work3&status=pending",
    "/api/jobs?agent=work3&status=cancelled",
    "/api/jobs?label=team:3",
    "/api/jobs?label=rare:yes",
    "/api/jobs?session_id=s-7",
    "/api/waits",
    "/api/in-doubt",
];

/// Measures.
pub(crate) async fn measure(plan: &Plan, rows: &mut Rows, note: impl Fn(&str)) -> Result<(), Error> {
    let folder = plan.place.folder("large")?;
    let jobs = plan.rounds(JOBS);
    make(plan, jobs, &note).await?;
    let dev = Dev::start(&folder, None, 16).await?;
    for path in LISTS {
        let taken = list(dev.address, path).await?;
        let detail = format!("p99 {:.1} ms; {jobs} jobs in the store", percentile(&taken, 99) / 1_000.0);
        rows.add(&format!("GET {path}"), (percentile(&taken, 50) / 1_000.0, "ms"), Goal::AtMost(20.0), detail);
    }
    dev.kill().await?;
    note("check-consistency");
    checked(&folder, jobs, rows).await
}

/// How long a list takes, in microseconds and in order.
async fn list(address: SocketAddr, path: &str) -> Result<Vec<u64>, Error> {
    let mut connection = Connection::open(address).await?;
    let mut taken = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = now();
        let (status, said) = connection.call("GET", path, "").await?;
        taken.push(u64::try_from((now() - start).as_micros()).unwrap_or(u64::MAX));
        let said = String::from_utf8_lossy(&said);
        if status != 200 || !said.contains("job_") {
            let said: String = said.chars().take(200).collect();
            return Err(Error::Internal(anyhow::anyhow!("GET {path} answered {status} {said}")));
        }
    }
    taken.sort_unstable();
    Ok(taken)
}

/// Runs `check-consistency` on the folder as a process of its own.
async fn checked(folder: &Path, jobs: usize, rows: &mut Rows) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(anyhow::Error::from)?;
    let mut command = tokio::process::Command::new(program);
    command.arg("check-consistency").arg("--data").arg(folder).stdin(Stdio::null()).stdout(Stdio::piped());
    command.kill_on_drop(true);
    let start = now();
    let mut child = command.spawn().map_err(anyhow::Error::from)?;
    let mut said = String::new();
    let mut stdout = child.stdout.take().ok_or_else(|| anyhow::anyhow!("the child has no output"))?;
    let mut peak: f64 = 0.0;
    let reading = stdout.read_to_string(&mut said);
    tokio::pin!(reading);
    loop {
        tokio::select! {
            read = &mut reading => {
                read.map_err(anyhow::Error::from)?;
                break;
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                let high = child.id().and_then(|pid| status_mib(pid, "VmHWM:").ok());
                peak = peak.max(high.unwrap_or(0.0));
            }
        }
    }
    let status = child.wait().await.map_err(anyhow::Error::from)?;
    let seconds = (now() - start).as_secs_f64();
    let last = said.lines().last().unwrap_or_default();
    if !status.success() {
        return Err(Error::Internal(anyhow::anyhow!("`check-consistency` ended with {status}: {last}")));
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = jobs as f64 / seconds;
    rows.add("check-consistency", (rate, "jobs/s"), Goal::AtLeast(10_000.0), format!("{seconds:.0} s"));
    rows.add("check-consistency, resident memory", (peak, "MiB"), Goal::AtMost(200.0), "at most");
    Ok(())
}

/// What a job is made to be.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Cancelled,
    Completed,
    Parked,
    Pending,
}

impl Kind {
    /// Of 40 jobs in a row, 6 are for later, one waits for somebody, one was cancelled.
    const fn of(place: usize) -> Self {
        match place % 40 {
            0..6 => Self::Pending,
            6 => Self::Parked,
            7 => Self::Cancelled,
            8.. => Self::Completed,
        }
    }
}

async fn make(plan: &Plan, jobs: usize, note: &impl Fn(&str)) -> Result<(), Error> {
    let world = Arc::new(World::start(&plan.place, "large", 256)?);
    for place in 0..AGENTS {
        world.put(&super::steps::chain(&format!("work{place}"), "pure", 1)).await?;
    }
    world.put(super::memory::WAITING).await?;
    let mut tasks = JoinSet::new();
    for place in 0..jobs {
        if place > 0 && place.is_multiple_of(TELLS) {
            note(&format!("a store of many jobs: {place} of {jobs} made"));
        }
        let world = Arc::clone(&world);
        tasks.spawn(async move { made(&world, place).await });
        if tasks.len() >= WIDTH
            && let Some(ended) = tasks.join_next().await
        {
            ended.map_err(anyhow::Error::from)??;
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(anyhow::Error::from)??;
    }
    doubts(&world).await?;
    settled(&world).await?;
    if let Some(world) = Arc::into_inner(world) {
        world.end().await;
    }
    Ok(())
}

async fn made(world: &World, place: usize) -> Result<(), Error> {
    let kind = Kind::of(place);
    let agent = match kind {
        Kind::Parked => "waiting".to_owned(),
        Kind::Cancelled | Kind::Completed | Kind::Pending => format!("work{}", place % AGENTS),
    };
    let mut labels = BTreeMap::from([("team".to_owned(), (place % 8).to_string())]);
    if place.is_multiple_of(10_000) {
        labels.insert("rare".to_owned(), "yes".to_owned());
    }
    let clock = &world.wired.rt.system.clock;
    let submission = Submission {
        labels,
        message: Some(Json::null()),
        run_at: matches!(kind, Kind::Pending | Kind::Cancelled).then(|| clock.wall().after(LATER)),
        // Only of jobs that end: those of a conversation follow each other.
        session: (place % 50 == 10).then(|| SessionId::from(format!("s-{}", place / 50 % 1_000).as_str())),
        ..Submission::default()
    };
    let job = world.wired.rt.submit(&AgentName::new(agent), submission).await.map_err(anyhow::Error::from)?.job;
    if matches!(kind, Kind::Cancelled) {
        world.wired.rt.cancel(job).await.map_err(anyhow::Error::from)?;
    }
    Ok(())
}

/// Calls of a tool that takes each request and never answers.
async fn doubts(world: &Arc<World>) -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(anyhow::Error::from)?;
    let address = listener.local_addr().map_err(anyhow::Error::from)?;
    let tool = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The answer is that the connection ends.
            let _taken = stream.read(&mut [0; 4_096]).await;
        }
    });
    let agent = world
        .put(&format!(
            "agent: doubtful\ntools:\n  pay: {{ kind: http, method: POST, url: \"http://{address}/\", effect: at_most_once }}\nplan:\n  nodes:\n    - {{ id: a, kind: tool, tool: pay }}\n"
        ))
        .await?;
    let mut jobs: Vec<JobId> = Vec::with_capacity(DOUBTS);
    for _ in 0..DOUBTS {
        jobs.push(world.submit(&agent).await?);
    }
    for job in jobs {
        world.until(job, |row| row.waiting.is_some()).await?;
    }
    tool.abort();
    Ok(())
}

/// Waits until nothing is left that a worker could do.
async fn settled(world: &World) -> Result<(), Error> {
    let began = now();
    while now() - began < SETTLED_MAX {
        let status = world.store().status().await.map_err(anyhow::Error::from)?;
        let later = world.store().jobs(ready()).await.map_err(anyhow::Error::from)?;
        let running = status.jobs.get(&JobStatus::Running).copied().unwrap_or(0);
        if running == 0 && later.jobs.iter().all(|job| job.not_before.is_some()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(Error::Internal(anyhow::anyhow!("the jobs were not done within {} s", SETTLED_MAX.as_secs())))
}

/// The newest pending jobs.
fn ready() -> aetheris_store::JobFilter {
    aetheris_store::JobFilter { limit: 500, statuses: vec![JobStatus::Pending], ..Default::default() }
}
