//! What readers of one large job cost everybody else: forty of them, half asking for the job, half for its events, each
//! as fast as it is answered. Meanwhile the server is asked whether it lives, and jobs of one step are run.

use std::net::SocketAddr;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::child::{Connection, Dev};
use super::memory::resident_mib;
use super::steps::chain;
use super::table::percentile;
use super::world::now;
use super::{Goal, Plan, Rows};
use crate::error::Error;

/// Steps of the large job, and items of the message that each has as its output: about 80 MB. Smaller items would take
/// more memory than one job may keep.
const STEPS: usize = 100;
const ITEMS: usize = 2_400;
const TEXT_BYTES: usize = 310;
const READERS: usize = 40;
/// Between two looks at the server.
const BETWEEN: Duration = Duration::from_millis(20);
/// Longest time for the large job.
const LARGE_TIME_MAX: Duration = Duration::from_secs(300);

/// Measures.
pub(crate) async fn measure(plan: &Plan, rows: &mut Rows) -> Result<(), Error> {
    let folder = plan.place.folder("readers")?;
    let file = folder.join("single.yaml");
    std::fs::write(&file, chain("single", "pure", 1)).map_err(anyhow::Error::from)?;
    let maker = Dev::start(&folder, Some(&file), 16).await?;
    let job = large_job(maker.address).await?;
    // What its making took is not what its readers take.
    maker.kill().await?;
    let dev = Dev::start(&folder, None, 16).await?;
    let stop = CancellationToken::new();
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..READERS {
        readers.spawn(read(dev.address, job.clone(), reader, stop.clone()));
    }
    let (alive, finished) = measured(dev.address, plan).await?;
    let memory = peak_mib(dev.pid())?;
    stop.cancel();
    let mut answers = 0;
    while let Some(ended) = readers.join_next().await {
        answers += ended.map_err(anyhow::Error::from)??;
    }
    let detail = format!("p50 {:.0} µs; {answers} answers meanwhile", percentile(&alive, 50));
    let p99 = percentile(&alive, 99) / 1_000.0;
    rows.add("`/livez` p99, 40 readers of an 80 MB job", (p99, "ms"), Goal::AtMost(50.0), detail);
    let detail = format!("submit to finished; p99 {:.1} ms", percentile(&finished, 99) / 1_000.0);
    let median = percentile(&finished, 50) / 1_000.0;
    rows.add("job of one step, 40 readers", (median, "ms"), Goal::AtMost(20.0), detail);
    let detail = format!("at most; {:.0} MiB at the end", resident_mib(dev.pid())?);
    rows.add("resident memory, 40 readers", (memory, "MiB"), Goal::AtMost(300.0), detail);
    dev.kill().await
}

/// What others see meanwhile, measured on a thread of its own: the readers keep this one busy.
async fn measured(address: SocketAddr, plan: &Plan) -> Result<(Vec<u64>, Vec<u64>), Error> {
    let (looked, run) = (plan.rounds(500), plan.rounds(200));
    let measuring = tokio::task::spawn_blocking(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(anyhow::Error::from)?;
        runtime.block_on(async {
            let (alive, finished) = tokio::join!(looks(address, looked), jobs(address, run));
            Ok((alive?, finished?))
        })
    });
    measuring.await.map_err(anyhow::Error::from)?
}

/// Makes the large job, whose outputs are all its message.
async fn large_job(address: SocketAddr) -> Result<String, Error> {
    let nodes: String =
        (0..STEPS).map(|n| format!("    - {{ id: n{n}, kind: transform, output: \"{{{{ message }}}}\" }}\n")).collect();
    let agent = format!("agent: large\nplan:\n  nodes:\n{nodes}  answer: 1\n");
    let mut connection = Connection::open(address).await?;
    let (status, said) = connection.call("PUT", "/api/agents/large", &agent).await?;
    if status != 201 {
        return Err(unexpected("the agent was not taken", status, &said));
    }
    let text = "x".repeat(TEXT_BYTES);
    let items: Vec<String> = (0..ITEMS).map(|n| format!("{{\"id\":{n},\"text\":\"{text}\"}}")).collect();
    let message = format!("{{\"message\":[{}]}}", items.join(","));
    let (status, said) = connection.call("POST", "/api/agents/large/message", &message).await?;
    let answer: aetheris_api::MessageAnswer =
        serde_json::from_slice(&said).map_err(|_| unexpected("the message was not taken", status, &said))?;
    let job = answer.job_id.to_string();
    let began = now();
    while now() - began < LARGE_TIME_MAX {
        let (status, said) = connection.call("GET", "/api/jobs?status=completed&agent=large&limit=1", "").await?;
        if status == 200 && String::from_utf8_lossy(&said).contains(&job) {
            return Ok(job);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(Error::Internal(anyhow::anyhow!("the large job was not finished within {} s", LARGE_TIME_MAX.as_secs())))
}

/// Where the next page begins, which stands at a page's end; 0 where this was the last. Parsing megabytes would be
/// the reader's work and not the server's.
fn next_after(page: &[u8]) -> u64 {
    let end = String::from_utf8_lossy(&page[page.len().saturating_sub(64)..]).into_owned();
    let number = end.rsplit_once("\"next_after\":").map(|(_, rest)| rest.trim_end_matches('}'));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn unexpected(what: &str, status: u16, said: &[u8]) -> Error {
    let said: String = String::from_utf8_lossy(said).chars().take(200).collect();
    Error::Internal(anyhow::anyhow!("{what}: {status} {said}"))
}

/// Reads until it is told to stop; how many answers it had. A server that says that it is busy is asked again.
async fn read(address: SocketAddr, job: String, reader: usize, stop: CancellationToken) -> Result<usize, Error> {
    let mut connection = Connection::open(address).await?;
    let (mut answers, mut after) = (0, 0_u64);
    while !stop.is_cancelled() {
        let path = if reader.is_multiple_of(2) {
            format!("/api/jobs/{job}")
        } else {
            format!("/api/jobs/{job}/events?after={after}&limit=1000")
        };
        let (status, said) = connection.call("GET", &path, "").await?;
        match status {
            200 if !reader.is_multiple_of(2) => {
                after = next_after(&said);
            }
            200 | 503 => {}
            _ => return Err(unexpected("a reader was refused", status, &said)),
        }
        answers += usize::from(status == 200);
    }
    Ok(answers)
}

/// How long the server takes to say that it lives, in microseconds and in order.
async fn looks(address: SocketAddr, rounds: usize) -> Result<Vec<u64>, Error> {
    let mut connection = Connection::open(address).await?;
    let mut taken = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = now();
        connection.call("GET", "/livez", "").await?;
        taken.push(micros(start));
        tokio::time::sleep(BETWEEN).await;
    }
    taken.sort_unstable();
    Ok(taken)
}

/// How long a job of one step takes, in microseconds and in order.
async fn jobs(address: SocketAddr, rounds: usize) -> Result<Vec<u64>, Error> {
    let mut connection = Connection::open(address).await?;
    let mut taken = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = now();
        super::http::finish_one(&mut connection).await?;
        taken.push(micros(start));
    }
    taken.sort_unstable();
    Ok(taken)
}

fn micros(start: Duration) -> u64 {
    u64::try_from((now() - start).as_micros()).unwrap_or(u64::MAX)
}

/// The most memory that a process has had.
fn peak_mib(pid: u32) -> Result<f64, Error> {
    super::memory::status_mib(pid, "VmHWM:")
}
