//! One `dev` for a long time: nothing of it may grow with the jobs that have ended, but for its file, and that evenly.
//!
//! Customers send messages and wait for the answers, some by signals; readers list, show and follow. After each tenth of the
//! run what the process holds is asked of the system, and nobody else: memory, descriptors, threads, the bytes of its files.
//! The first three tenths warm up; of the others the last ones must not be worse than the first.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail, ensure};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::drive::client::Client;
use crate::drive::process::{Launch, Running, Started};
use crate::scratch::Scratch;

/// Parts of a run.
const PARTS: usize = 10;
/// Parts that are not judged: caches fill, threads begin.
const WARM: usize = 3;
/// Customers at work at once.
const CUSTOMERS: usize = 8;
/// How long any job may take: one that takes longer has been forgotten.
const PATIENCE: Duration = Duration::from_secs(30);
/// One in so many jobs waits for a signal.
const SIGNALLED: u64 = 8;

/// The agents: one that computes, one that waits for a person.
const AGENTS: [(&str, &str); 2] = [
    (
        "counts",
        "agent: counts\nplan:\n  nodes:\n    - { id: one, kind: transform, output: \"{{ message.n }}\" }\n    - { id: nap, kind: sleep, duration: 5ms }\n    - { id: two, kind: transform, needs: [one, nap], output: \"{{ nodes.one.output }}\" }\n",
    ),
    (
        "asks",
        "agent: asks\nplan:\n  nodes:\n    - { id: ask, kind: wait, wait_type: human, correlation_key: \"k-{{ message.n }}\" }\n",
    ),
];

/// How long a soak lasts.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// So many jobs.
    Jobs(u64),
    /// So long.
    Time(Duration),
}

/// What a soak is made with.
#[derive(Debug, Clone)]
pub struct Options {
    /// A bug of the zoo that is planted in the program.
    pub bug: Option<String>,
    /// How long.
    pub length: Length,
    /// The program.
    pub program: PathBuf,
}

/// What the process holds after a part, and how it served.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    descriptors: u64,
    /// Bytes of its files.
    file: u64,
    /// Jobs that have ended, in all.
    jobs: u64,
    /// Median and 99th percentile of one job, from its message to its answer, in microseconds.
    latency: (u64, u64),
    /// Bytes of the write-ahead log.
    log: u64,
    /// Resident bytes.
    memory: u64,
    threads: u64,
}

/// What a soak has shown.
#[derive(Debug)]
pub struct Soaked {
    /// What grows and must not.
    pub drifts: Vec<String>,
    samples: Vec<Sample>,
    took: Duration,
}

/// Runs one.
///
/// # Errors
/// The program does not start, a job is forgotten, or an answer is wrong.
pub async fn run(options: &Options, mut told: impl FnMut(&str)) -> Result<Soaked> {
    let scratch = Scratch::new("soak")?;
    let data = scratch.path().join("data");
    let mut running = start(options, scratch.path(), &data).await?;
    let (_url, url) = watch::channel(running.url()?);
    let customers = Arc::new(Customers { client: Client::new(url)?, next: AtomicU64::new(0) });
    for (agent, file) in AGENTS {
        customers.client.put(agent, file).await?;
    }
    let began = SystemClock.boot();
    let mut samples = Vec::new();
    for part in 0..PARTS {
        let until = match options.length {
            Length::Jobs(jobs) => Until::Number(jobs * (part as u64 + 1) / PARTS as u64),
            Length::Time(time) => Until::Moment(began + time * (u32::try_from(part)? + 1) / u32::try_from(PARTS)?),
        };
        let latency = customers.work(until).await?;
        if let Some(status) = running.ended()? {
            bail!("the process has ended: {status}");
        }
        let jobs = customers.next.load(Ordering::Relaxed);
        let sample = Sample { jobs, latency, ..held(running.id()?, &data)? };
        told(&line(&sample));
        samples.push(sample);
    }
    running.signal(rustix::process::Signal::TERM)?;
    running.wait().await?;
    Ok(Soaked { drifts: drifts(&samples), samples, took: SystemClock.boot() - began })
}

async fn start(options: &Options, folder: &Path, data: &Path) -> Result<Box<Running>> {
    let args = ["dev", "--data", &data.display().to_string(), "--listen", "127.0.0.1:0"].map(str::to_owned).to_vec();
    let env = options.bug.iter().map(|bug| ("AETHERIS_BUG".to_owned(), bug.clone())).collect();
    let log = folder.join("dev.log");
    let launch = Launch { args, crash: None, env, log, program: options.program.clone() };
    match launch.start().await? {
        Started::Ready(running) => Ok(running),
        Started::Killed => bail!("it was killed before it was ready"),
    }
}

/// How far a part goes.
#[derive(Debug, Clone, Copy)]
enum Until {
    Moment(Duration),
    Number(u64),
}

struct Customers {
    client: Client,
    /// How many jobs have been sent.
    next: AtomicU64,
}

impl Customers {
    /// Works through a part, with somebody who looks on. The latencies of its jobs.
    async fn work(self: &Arc<Self>, until: Until) -> Result<(u64, u64)> {
        let work = (0..CUSTOMERS).map(|_| tokio::spawn(Arc::clone(self).one_after_the_other(until)));
        let work: Vec<_> = work.collect();
        self.look_on().await?;
        let mut times = Vec::new();
        for customer in work {
            times.extend(customer.await??);
        }
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        Ok((at(50), at(99)))
    }

    async fn one_after_the_other(self: Arc<Self>, until: Until) -> Result<Vec<u64>> {
        let mut times = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let over = match until {
                Until::Moment(moment) => SystemClock.boot() >= moment,
                Until::Number(last) => number >= last,
            };
            if over {
                // It was not sent.
                self.next.fetch_sub(1, Ordering::Relaxed);
                return Ok(times);
            }
            let began = SystemClock.boot();
            self.job(number).await.with_context(|| format!("job {number}"))?;
            times.push(u64::try_from((SystemClock.boot() - began).as_micros())?);
        }
    }

    /// One job, from its message to its answer.
    async fn job(&self, number: u64) -> Result<()> {
        let asks = number.is_multiple_of(SIGNALLED);
        let agent = if asks { "asks" } else { "counts" };
        let wait = if asks { String::new() } else { format!("?wait={}s", PATIENCE.as_secs()) };
        let body = json!({ "message": { "n": number } }).to_string();
        let (status, answer) =
            self.ask(&Method::POST, &format!("/api/agents/{agent}/message{wait}"), Some(&body)).await?;
        if !asks {
            ensure!(status == StatusCode::OK && answer["status"] == "completed", "not done in {PATIENCE:?}: {answer}");
            return Ok(());
        }
        let job = answer["job_id"].as_str().with_context(|| format!("{status} {answer}"))?.to_owned();
        let signal = json!({ "correlation_key": format!("k-{number}"), "payload": number }).to_string();
        let (status, told) = self.ask(&Method::POST, &format!("/api/jobs/{job}/signal"), Some(&signal)).await?;
        ensure!(status.is_success(), "{status} {told}");
        let path = format!("/api/jobs/{job}?wait={}s", PATIENCE.as_secs());
        let (_, done) = self.ask(&Method::GET, &path, None).await?;
        ensure!(done["status"] == "completed" && done["result"] == number, "not done in {PATIENCE:?}: {done}");
        Ok(())
    }

    /// What people look at meanwhile.
    async fn look_on(&self) -> Result<()> {
        for path in [
            "/api/jobs?limit=50",
            "/api/waits",
            "/api/in-doubt",
            "/readyz",
            "/api/agents",
            "/api/jobs?status=completed&limit=20",
        ] {
            let (status, answer) = self.ask(&Method::GET, path, None).await?;
            ensure!(status.is_success(), "{path}: {status} {answer}");
            for job in answer["jobs"].as_array().into_iter().flatten().take(5) {
                let id = job["id"].as_str().unwrap_or_default();
                for what in ["", "/events", "/trace", "/steps", "/verify"] {
                    self.ask(&Method::GET, &format!("/api/jobs/{id}{what}"), None).await?;
                }
            }
        }
        Ok(())
    }

    async fn ask(&self, method: &Method, path: &str, body: Option<&str>) -> Result<(StatusCode, Value)> {
        let asked = self.client.ask(method, path, body, None);
        tokio::select! {
            answer = asked => answer,
            () = tokio::time::sleep(PATIENCE * 2) => bail!("{method} {path}: no answer in {:?}", PATIENCE * 2),
        }
    }
}

/// What the system says that a process holds.
fn held(pid: u32, data: &Path) -> Result<Sample> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).with_context(|| format!("no {name}"))
    };
    let bytes = |name: &str| std::fs::metadata(data.join(name)).map_or(0, |file| file.len());
    Ok(Sample {
        descriptors: u64::try_from(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())?,
        file: bytes("aetheris.db"),
        log: bytes("aetheris.db-wal"),
        memory: number("VmRSS:")? * 1024,
        threads: number("Threads:")?,
        ..Sample::default()
    })
}

/// The middle of what three parts have.
fn middle(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// What the last parts hold that the first ones after the warming-up did not.
fn drifts(samples: &[Sample]) -> Vec<String> {
    let (Some(first), Some(last)) = (samples.get(WARM..WARM + 3), samples.get(PARTS - 3..)) else {
        return vec!["the run was cut short".to_owned()];
    };
    let mut found = Vec::new();
    let mut judge = |what: &str, of: fn(&Sample) -> u64, most: fn(u64) -> u64| {
        let (before, after) = (middle(first, of), middle(last, of));
        if after > most(before) {
            found.push(format!(
                "{what}: {before} in the first parts, {after} in the last; at most {} are even",
                most(before)
            ));
        }
    };
    judge("descriptors", |sample| sample.descriptors, |before| before + 8);
    judge("threads", |sample| sample.threads, |before| before + 4);
    // Caches and the allocator's own store are still filling in a short run.
    judge("resident bytes", |sample| sample.memory, |before| before + before / 4 + 16 * MIB);
    judge("bytes of the log", |sample| sample.log, |before| before.max(64 * MIB) + 16 * MIB);
    judge("median of a job, µs", |sample| sample.latency.0, |before| before * 2 + 5_000);
    let per_job =
        |from: &Sample, to: &Sample| to.file.saturating_sub(from.file) / to.jobs.saturating_sub(from.jobs).max(1);
    if let ([early, .., between], [.., late]) = (first, last) {
        let (before, after) = (per_job(early, between), per_job(between, late));
        if after > before * 3 / 2 + 2_048 {
            found.push(format!("bytes of the file for each job: {before} in the first parts, {after} in the last"));
        }
    }
    found
}

const MIB: u64 = 1024 * 1024;

fn line(sample: &Sample) -> String {
    let Sample { descriptors, file, jobs, latency: (median, late), log, memory, threads } = *sample;
    let mib = |bytes: u64| format!("{}.{}", bytes / MIB, bytes % MIB * 10 / MIB);
    format!(
        "{jobs:>9} jobs  {:>6} ms  {:>6} ms  {:>7} MiB  {descriptors:>4}  {threads:>4}  {:>8} MiB  {:>6} MiB",
        median / 1_000,
        late / 1_000,
        mib(memory),
        mib(file),
        mib(log)
    )
}

/// The head of the lines that a run tells.
#[must_use]
pub fn head() -> String {
    format!(
        "{:>14}  {:>9}  {:>9}  {:>11}  {:>4}  {:>4}  {:>12}  {:>10}",
        "", "median", "p99", "memory", "fds", "thr", "file", "log"
    )
}

impl fmt::Display for Soaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = self.samples.last().map_or(0, |sample| sample.jobs);
        writeln!(f, "{jobs} jobs in {:.1} s", self.took.as_secs_f64())?;
        for drift in &self.drifts {
            writeln!(f, "DRIFT {drift}")?;
        }
        f.write_str(if self.drifts.is_empty() { "nothing drifts\n" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even() -> Vec<Sample> {
        let sample = |part: u64| Sample {
            descriptors: 30,
            file: part * 4 * MIB,
            jobs: part * 1_000,
            latency: (3_000, 9_000),
            log: 40 * MIB,
            memory: 60 * MIB,
            threads: 12,
        };
        (1..=PARTS as u64).map(sample).collect()
    }

    #[test]
    fn what_grows_is_told_and_what_is_even_is_not() {
        assert_eq!(drifts(&even()), Vec::<String>::new());
        assert_eq!(drifts(&even()[..5]), ["the run was cut short"]);
        type Grow = fn(&mut Sample, u64);
        let grows: [(&str, Grow); 6] = [
            ("descriptors", |sample, part| sample.descriptors += 3 * part),
            ("threads", |sample, part| sample.threads += 2 * part),
            ("resident bytes", |sample, part| sample.memory += 20 * MIB * part),
            ("bytes of the log", |sample, part| sample.log += 10 * MIB * part),
            ("median of a job", |sample, part| sample.latency.0 += 1_000 * part * part),
            ("bytes of the file", |sample, part| sample.file += part * part * part * MIB),
        ];
        for (what, grow) in grows {
            let mut samples = even();
            samples.iter_mut().zip(1..).for_each(|(sample, part)| grow(sample, part));
            let found = drifts(&samples);
            assert!(found.len() == 1 && found[0].starts_with(what), "{what}: {found:?}");
        }
    }
}
