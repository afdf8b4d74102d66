//! One `dev` for a long time: nothing of it may grow with the jobs that have ended, but for its file, and that evenly.
//!
//! Customers send messages and wait for the answers, some by signals and some of jobs that call tools; readers list, show,
//! verify and follow, and each of their answers is judged. Nothing is sent again: what is not answered well the first time fails
//! the run. After each tenth of it what the process holds is asked of the system, and nobody else: memory, descriptors,
//! threads, the bytes of its files. The first three tenths warm up; of the others the last ones must not be worse than the
//! first.

mod customers;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail, ensure};
use reqwest::Method;

use self::customers::{Beside, Customers, PATIENCE, Until};
use crate::drive::process::{Launch, Running, Started, tail};
use crate::witness::Witness;
use aetheris_harness::Folder;

/// Parts of a run.
const PARTS: usize = 10;
/// Parts that are not judged: caches fill, threads begin.
const WARM: usize = 3;

/// The agents: one that computes, one that waits for a person, one that calls. `URL` stands for the witness.
const AGENTS: [(&str, &str); 3] = [
    (
        "counts",
        "agent: counts\nplan:\n  nodes:\n    - { id: one, kind: transform, output: \"{{ message.n }}\" }\n    - { id: nap, kind: sleep, duration: 5ms }\n    - { id: two, kind: transform, needs: [one, nap], output: \"{{ nodes.one.output }}\" }\n",
    ),
    (
        "asks",
        "agent: asks\nplan:\n  nodes:\n    - { id: ask, kind: wait, wait_type: human, correlation_key: \"k-{{ message.n }}\" }\n",
    ),
    (
        "calls",
        "agent: calls\ntools:\n  again: { kind: http, effect: idempotent, method: POST, url: URL/idempotent }\n  once: { kind: http, effect: at_most_once, method: POST, url: URL/once }\nplan:\n  nodes:\n    - { id: one, kind: tool, tool: again, input: { n: \"{{ message.n }}\" } }\n    - { id: two, kind: tool, tool: once, input: { n: \"{{ nodes.one.output.input.n }}\" }, needs: [one] }\n  answer: \"{{ nodes.two.output.input.n }}\"\n",
    ),
];
/// The tools that each job of the agent that calls has called, as the witness names them.
const TOOLS: [&str; 2] = ["idempotent", "once"];

/// Lets the tools be on this machine.
const CONFIG: &str = "tools: { http: { allow: [\"127.0.0.0/8\"] } }\n";

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
    beside: Beside,
    /// What grows and must not.
    pub drifts: Vec<String>,
    samples: Vec<Sample>,
    took: Duration,
}

/// Runs one.
///
/// # Errors
/// The program does not start, a job is forgotten, an answer is wrong, a tool was not called as often as it had to be, or
/// the program does not end well.
pub async fn run(options: &Options, mut told: impl FnMut(&str)) -> Result<Soaked> {
    let scratch = Folder::new("soak");
    let (data, log) = (scratch.path().join("data"), scratch.path().join("dev.log"));
    let witness = Witness::start(&scratch.path().join("witness.log"))?;
    let mut running = start(options, scratch.path(), &data, &log).await?;
    let customers = Arc::new(Customers::new(running.url()?)?);
    for (agent, file) in AGENTS {
        let file = file.replace("URL", &format!("http://{}", witness.addr));
        customers.good(&Method::PUT, &format!("/api/agents/{agent}"), Some(&file)).await?;
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
            bail!("the process has ended: {status}\n{}", tail(&log));
        }
        let jobs = customers.next.load(Ordering::Relaxed);
        let sample = Sample { jobs, latency, ..held(running.id()?, &data)? };
        told(&line(&sample));
        samples.push(sample);
    }
    let took = SystemClock.boot() - began;
    stop(&mut running, &log).await?;
    let beside = customers.beside();
    ensure!(beside.followed > 0 && beside.looked_at > 0, "nobody followed, or looked at anything: {beside:?}");
    let lines = witness.lines()?;
    let acts = lines.iter().filter(|line| line.is_act()).map(|line| (line.tool.as_str(), line.key));
    if let Some(wrong) = miscalled(acts, beside.called) {
        bail!(wrong);
    }
    Ok(Soaked { beside, drifts: drifts(&samples), samples, took })
}

async fn start(options: &Options, folder: &Path, data: &Path, log: &Path) -> Result<Box<Running>> {
    let config = folder.join("dev.yaml");
    std::fs::write(&config, CONFIG)?;
    let (config, data) = (config.display().to_string(), data.display().to_string());
    let args = ["dev", "--config", &config, "--data", &data, "--listen", "127.0.0.1:0"].map(str::to_owned).to_vec();
    let env = options.bug.iter().map(|bug| ("AETHERIS_BUG".to_owned(), bug.clone())).collect();
    let launch = Launch { args, crash: None, env, log: log.to_owned(), program: options.program.clone() };
    match launch.start().await? {
        Started::Ready(running) => Ok(running),
        Started::Killed => bail!("it was killed before it was ready"),
    }
}

/// Asks it to end: it has nothing left to do, and says by its status that all is well.
async fn stop(running: &mut Running, log: &Path) -> Result<()> {
    running.signal(rustix::process::Signal::TERM)?;
    let status = tokio::select! {
        status = running.wait() => status?,
        () = tokio::time::sleep(PATIENCE) => bail!("it still runs {PATIENCE:?} after SIGTERM\n{}", tail(log)),
    };
    ensure!(status.code() == Some(0), "after SIGTERM it ended with {status}\n{}", tail(log));
    Ok(())
}

/// What is wrong with the calls by which tools have acted, each a tool and a key, where so many jobs have called both.
fn miscalled<'a, K: Copy + fmt::Display + Ord>(acts: impl Iterator<Item = (&'a str, K)>, jobs: u64) -> Option<String> {
    let mut times: BTreeMap<(&str, K), u64> = BTreeMap::new();
    for act in acts {
        *times.entry(act).or_default() += 1;
    }
    if let Some(((_, key), times)) = times.iter().find(|((tool, _), times)| *tool == "once" && **times > 1) {
        return Some(format!("{key} has acted {times} times, and may once"));
    }
    TOOLS.iter().find_map(|tool| {
        let calls = times.keys().filter(|(of, _)| of == tool).count();
        (calls as u64 != jobs).then(|| format!("{tool}: {calls} calls of {jobs} jobs"))
    })
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
    // Connections are kept, its own to the tools among them: as many as were ever needed at once.
    judge("descriptors", |sample| sample.descriptors, |before| before + 16);
    judge("threads", |sample| sample.threads, |before| before + 4);
    // Caches and the allocator's own store are still filling in a short run.
    judge("resident bytes", |sample| sample.memory, |before| before + before / 4 + 16 * MIB);
    judge("bytes of the log", |sample| sample.log, |before| before.max(64 * MIB) + 16 * MIB);
    judge("median of a job, µs", |sample| sample.latency.0, |before| before * 2 + 5_000);
    // What else the machine does is in it: beside builds, on two cores, it has gone from 0.1 s to 0.6 s. Still seen is a job
    // of which nobody is told, so that it waits for the poll: 2 s.
    judge("99th percentile of a job, µs", |sample| sample.latency.1, |before| before * 4 + SECOND);
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
/// In microseconds.
const SECOND: u64 = 1_000_000;

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
        let Beside { called, followed, looked_at } = self.beside;
        writeln!(
            f,
            "{jobs} jobs in {:.1} s: {called} called tools; {followed} were followed, {looked_at} looked at",
            self.took.as_secs_f64()
        )?;
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
        let grows: [(&str, Grow); 7] = [
            ("descriptors", |sample, part| sample.descriptors += 5 * part),
            ("threads", |sample, part| sample.threads += 2 * part),
            ("resident bytes", |sample, part| sample.memory += 20 * MIB * part),
            ("bytes of the log", |sample, part| sample.log += 10 * MIB * part),
            ("median of a job", |sample, part| sample.latency.0 += 1_000 * part * part),
            ("99th percentile", |sample, part| sample.latency.1 += 400 * part.pow(4)),
            ("bytes of the file", |sample, part| sample.file += part * part * part * MIB),
        ];
        for (what, grow) in grows {
            let mut samples = even();
            samples.iter_mut().zip(1..).for_each(|(sample, part)| grow(sample, part));
            let found = drifts(&samples);
            assert!(found.len() == 1 && found[0].starts_with(what), "{what}: {found:?}");
        }
    }

    /// What still fills while the run warms up is not what the end is compared with.
    #[test]
    fn the_end_is_compared_with_the_first_parts_after_the_warming_up() {
        let with = |memory: [u64; PARTS]| {
            let mut samples = even();
            samples.iter_mut().zip(memory).for_each(|(sample, mib)| sample.memory = mib * MIB);
            drifts(&samples)
        };
        // 125 % of the middle of the fourth to sixth part, and 16 MiB: 141 MiB.
        assert_eq!(with([10, 10, 10, 60, 100, 900, 0, 141, 141, 141]), Vec::<String>::new());
        let found = with([900, 900, 900, 60, 100, 900, 900, 142, 142, 142]);
        assert!(found.len() == 1 && found[0].starts_with("resident bytes"), "{found:?}");
    }

    #[test]
    fn a_machine_that_is_busy_for_a_while_is_no_drift() {
        let with = |late: [u64; 3]| {
            let mut samples = even();
            samples[PARTS - 3..].iter_mut().zip(late).for_each(|(sample, late)| sample.latency.1 = late);
            drifts(&samples)
        };
        // Four times 9 ms, and a second.
        assert_eq!(with([1_036_000; 3]), Vec::<String>::new());
        assert_eq!(with([9_000, 20_000_000, 9_000]), Vec::<String>::new(), "one part of three");
        let found = with([1_036_001, 9_000, 1_036_001]);
        assert!(found.len() == 1 && found[0].starts_with("99th percentile"), "{found:?}");
    }

    #[test]
    fn calls_are_counted_by_key_and_one_that_may_act_once_acts_once() {
        let judged = |acts: &[(&'static str, u32)], jobs| miscalled(acts.iter().copied(), jobs);
        assert_eq!(judged(&[], 0), None);
        let two = [("idempotent", 1), ("once", 2), ("idempotent", 3), ("once", 4)];
        assert_eq!(judged(&two, 2), None);
        assert_eq!(judged(&[&two[..], &[("idempotent", 3)]].concat(), 2), None, "it may act again");
        assert!(judged(&[&two[..], &[("once", 4)]].concat(), 2).is_some(), "it may not");
        assert!(judged(&two, 1).is_some() && judged(&two, 3).is_some() && judged(&two[..3], 2).is_some());
    }
}
