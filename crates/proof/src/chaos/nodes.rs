//! The processes of a run: started, killed, stopped, and kept alive.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tokio::sync::{Mutex, watch};

use super::nemesis::Log;
use super::starts::Hardship;
use crate::drive::process::{Launch, Running, Started, was_killed};

/// The exit status of a process whose disk failed.
const EXIT_IO: i32 = 74;
/// How often the keeper looks at the processes.
const WATCH: Duration = Duration::from_millis(100);
/// How long after a full disk a process may still end for it.
pub(super) const FULL_DISK_REACH: Duration = Duration::from_secs(10);
/// How often a node is asked for before it counts as one that cannot be had, and the pause between.
const HOLDS: u32 = 100;
const HOLD_PAUSE: Duration = Duration::from_millis(50);
/// How often a process is looked at until it stands still, and the pause between: it may be in a write of its disk.
const STOP_LOOKS: u32 = 1_000;
const STOP_LOOK: Duration = Duration::from_millis(2);

/// What a process is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The API, timers and sweeps.
    Api,
    /// Claims and runs.
    Worker,
}

/// A process's place: it is filled again when the process dies.
#[derive(Debug)]
pub struct Node {
    /// Its name in logs.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// The worker's own name, while it runs; the nemesis log names it.
    pub worker: StdMutex<String>,
    armed: AtomicBool,
    /// Where it says what it does.
    pub log: PathBuf,
    /// Whether its process runs under circumstances that are to be healed.
    hard: AtomicBool,
    launch: Launch,
    running: Mutex<Option<Running>>,
    url: Option<watch::Sender<std::net::SocketAddr>>,
}

/// What is wanted of a new process.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// The crash point at which it dies.
    pub crash: Option<String>,
    /// What it is started in.
    pub hardship: Hardship,
    /// Killed so long after its start, ready or not.
    pub killed_after: Option<Duration>,
}

impl Node {
    /// A place that is empty. An API tells `url` where it is.
    #[must_use]
    pub fn new(
        name: String,
        role: Role,
        launch: Launch,
        url: Option<watch::Sender<std::net::SocketAddr>>,
    ) -> Arc<Self> {
        let (armed, hard, log) = (AtomicBool::new(false), AtomicBool::new(false), launch.log.clone());
        let (running, worker) = (Mutex::new(None), StdMutex::default());
        Arc::new(Self { name, role, worker, armed, log, hard, launch, running, url })
    }

    /// Whom the nemesis log names: the worker as claims name it.
    #[must_use]
    pub fn target(&self) -> String {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if worker.is_empty() { self.name.clone() } else { worker }
    }

    /// Fills the place.
    ///
    /// # Errors
    /// The process does not get ready.
    pub async fn start(&self, order: &Order) -> Result<()> {
        let mut place = self.running.lock().await;
        self.fill(&mut place, order).await
    }

    async fn fill(&self, place: &mut Option<Running>, order: &Order) -> Result<()> {
        let launch = Launch { crash: order.crash.clone(), ..self.launch.clone() };
        let launch = order.hardship.around(launch);
        let started = match order.killed_after {
            // Dropping the start kills the process where it is.
            Some(time) => tokio::select! {
                started = launch.start() => started?,
                () = tokio::time::sleep(time) => return Ok(()),
            },
            None => launch.start().await?,
        };
        self.armed.store(order.crash.is_some(), Ordering::SeqCst);
        self.hard.store(order.hardship.is_to_be_healed(), Ordering::SeqCst);
        let Started::Ready(running) = started else { return Ok(()) };
        if let Some(url) = &self.url {
            let address = running.url()?;
            url.send_replace(address.trim_start_matches("http://").parse().context("the address of the API")?);
        }
        if self.role == Role::Worker {
            let name = running.ready.rsplit(' ').next().unwrap_or_default().trim().to_owned();
            *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = name;
        }
        *place = Some(*running);
        Ok(())
    }

    /// Takes the place for as long as something is done to its process; nothing where somebody else has it.
    pub async fn hold(&self) -> Option<Held<'_>> {
        let place = self.running.try_lock().ok()?;
        place.is_some().then_some(Held { node: self, place })
    }

    /// The same as soon as it can be had; nothing where that takes too long.
    pub async fn hold_soon(&self) -> Option<Held<'_>> {
        for _ in 0..HOLDS {
            if let Some(held) = self.hold().await {
                return Some(held);
            }
            tokio::time::sleep(HOLD_PAUSE).await;
        }
        None
    }

    /// Whether its process is still to die at a crash point, or to have it hard.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) || self.hard.load(Ordering::SeqCst)
    }

    /// Whether a crash point or a full disk explains how its process ended; it is then written down.
    fn is_explained(&self, ended: ExitStatus, log: &Log) -> bool {
        if self.armed.swap(false, Ordering::SeqCst) && was_killed(ended) {
            log.once("crash_point", &self.target());
            return true;
        }
        let by_disk = ended.code() == Some(EXIT_IO) && log.was_on("disk_full", FULL_DISK_REACH);
        if by_disk {
            log.once("ended_by_full_disk", &self.target());
        }
        by_disk
    }
}

/// A node whose process nobody else touches.
pub struct Held<'n> {
    node: &'n Node,
    place: tokio::sync::MutexGuard<'n, Option<Running>>,
}

impl Held<'_> {
    /// Sends a signal; a process that has just died is left to the keeper.
    pub fn signal(&self, signal: Signal) {
        if let Some(running) = self.place.as_ref() {
            let _ = running.signal(signal);
        }
    }

    /// Whether it holds the lock under which the store is written.
    #[must_use]
    pub fn holds_write_lock(&self) -> bool {
        self.place.as_ref().is_some_and(|running| running.holds_write_lock().unwrap_or(false))
    }

    /// Lets it open `spare` more files than it has open, until `over` has passed.
    pub async fn few_files(&self, spare: u64, over: Duration) {
        let Some(pid) = self.place.as_ref().and_then(|running| running.id().ok()) else { return };
        let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        let few = u64::try_from(open).unwrap_or(0) + spare;
        let Ok(before) = prlimit(Some(process), Resource::Nofile, keeping_maximum(process, few)) else { return };
        tokio::time::sleep(over).await;
        // One that has died meanwhile has nothing to be given back.
        let _ = prlimit(Some(process), Resource::Nofile, before);
    }

    /// Kills it and waits for its end.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut running) = self.place.take() {
            let _ = running.wait().await;
        }
    }

    /// Stops it, and waits until it stands still or has died.
    pub async fn stop(&mut self) {
        self.signal(Signal::STOP);
        for _ in 0..STOP_LOOKS {
            let Some(running) = self.place.as_mut() else { return };
            if running.is_stopped() || !matches!(running.ended(), Ok(None)) {
                return;
            }
            tokio::time::sleep(STOP_LOOK).await;
        }
    }

    /// Asks it to stop; where it has not after `patience`, it is killed.
    ///
    /// # Errors
    /// It did not end in time, or did not end well, and nothing that was done to it explains that.
    pub async fn drain(&mut self, patience: Duration, log: &Log) -> Result<()> {
        self.signal(Signal::TERM);
        let Some(mut running) = self.place.take() else { return Ok(()) };
        let ended = tokio::select! {
            ended = running.wait() => Some(ended?),
            () = tokio::time::sleep(patience) => None,
        };
        let Some(ended) = ended else {
            let _ = running.signal(Signal::KILL);
            let _ = running.wait().await;
            if log.was_on("disk_full", FULL_DISK_REACH) {
                return Ok(());
            }
            bail!("asked to stop, it did not end within {patience:?}");
        };
        let explained =
            ended.success() || self.node.is_explained(ended, log) || log.was_on("disk_full", FULL_DISK_REACH);
        ensure!(explained, "asked to stop, it ended with {ended}");
        Ok(())
    }

    /// Fills the place again.
    ///
    /// # Errors
    /// The process does not get ready.
    pub async fn start(&mut self, order: &Order) -> Result<()> {
        self.node.fill(&mut self.place, order).await
    }
}

/// A limit of a process's open files below the one that only its owner could raise again.
fn keeping_maximum(process: Pid, few: u64) -> Rlimit {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.as_raw_nonzero())).unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let maximum = line.and_then(|line| line.split_whitespace().nth(4)?.parse().ok());
    Rlimit { current: Some(few), maximum }
}

/// Starts again what died; a death that nothing explains is a problem.
pub async fn keep(nodes: Vec<Arc<Node>>, log: Log, stop: tokio_util::sync::CancellationToken, problems: Problems) {
    while !stop.is_cancelled() {
        for node in &nodes {
            let Ok(mut place) = node.running.try_lock() else { continue };
            let ended = match place.as_mut().map(Running::ended) {
                None => None,
                Some(Ok(None)) => continue,
                Some(Ok(Some(status))) => Some(status),
                Some(Err(error)) => {
                    problems.add(format!("{}: {error}", node.name));
                    None
                }
            };
            let full = || log.was_on("disk_full", FULL_DISK_REACH);
            let was_full = full();
            if let Some(status) = ended
                && !node.is_explained(status, &log)
            {
                problems.add(format!("{} ended by itself: {status}", node.name));
            }
            *place = None;
            if let Err(error) = node.fill(&mut place, &Order::default()).await
                // It may have become full while the process started.
                && !(was_full || full())
            {
                problems.add(format!("{} did not start: {error:#}", node.name));
            }
        }
        tokio::time::sleep(WATCH).await;
    }
}

/// What went wrong outside the invariants. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Problems(Arc<StdMutex<Vec<String>>>);

impl Problems {
    /// One more.
    pub fn add(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The configuration that all processes read.
#[must_use]
pub fn configuration(jobstore: &str, tools: std::net::SocketAddr) -> String {
    format!(
        "{jobstore}\
         server: {{ listen: \"127.0.0.1:0\" }}\n\
         worker: {{ lease_ttl: 2s, heartbeat: 400ms, poll_interval: 200ms, slots: 16, drain_timeout: 1s, max_attempts: 100 }}\n\
         tools: {{ http: {{ allow: [\"127.0.0.0/8\"] }} }}\n\
         models: {{ fake: {{ base_url: \"http://{tools}/v1\", timeout: 1500ms }} }}\n"
    )
}

/// How a part is started.
#[must_use]
pub fn launch(program: PathBuf, part: &str, config: &str, env: Vec<(String, String)>, log: PathBuf) -> Launch {
    Launch { args: vec![part.to_owned(), "--config".to_owned(), config.to_owned()], crash: None, env, log, program }
}

#[cfg(test)]
mod tests {
    use aetheris_core::time::Timestamp;
    use aetheris_store::system::ManualClock;

    use super::*;
    use aetheris_harness::Folder;

    /// A process that does this when it is told to stop, drained while the disk is full or not, and armed or not.
    async fn drained(on_term: &str, full: bool, armed: bool) -> (Result<()>, Log) {
        let scratch = Folder::new("drained");
        let log = Log::new(Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000))));
        let script = format!("trap '{on_term}' TERM; echo ready; while :; do sleep 0.01; done");
        let (args, env) = (vec!["-c".to_owned(), script], Vec::new());
        let launch = Launch { args, crash: None, env, log: scratch.path().join("log"), program: "sh".into() };
        let node = Node::new("node".to_owned(), Role::Api, launch, None);
        node.start(&Order { crash: armed.then(|| "point@1@kill".to_owned()), ..Order::default() }).await.unwrap();
        let _full = full.then(|| log.begin("disk_full", "world"));
        let mut held = node.hold().await.unwrap();
        (held.drain(Duration::from_secs(1), &log).await, log)
    }

    #[tokio::test]
    async fn a_drain_that_does_not_end_well_is_told_where_nothing_explains_it() {
        for (on_term, good) in
            [("exit 0", true), ("exit 3", false), ("exit 74", false), (":", false), ("kill -9 $$", false)]
        {
            assert_eq!(drained(on_term, false, false).await.0.is_ok(), good, "{on_term}");
            assert!(drained(on_term, true, false).await.0.is_ok(), "{on_term} on a full disk");
        }
        let (done, log) = drained("kill -9 $$", false, true).await;
        assert!(done.is_ok() && log.counts()["crash_point"] == 1, "{done:?}");
        assert!(drained("exit 3", false, true).await.0.is_err(), "a crash point kills");
    }

    #[tokio::test]
    async fn a_process_stands_still_when_it_was_stopped() {
        let scratch = Folder::new("stopped");
        let args = vec!["-c".to_owned(), "echo ready; while :; do :; done".to_owned()];
        let launch =
            Launch { args, crash: None, env: Vec::new(), log: scratch.path().join("log"), program: "sh".into() };
        let node = Node::new("node".to_owned(), Role::Api, launch, None);
        node.start(&Order::default()).await.unwrap();
        let mut held = node.hold().await.unwrap();
        held.stop().await;
        assert!(held.place.as_ref().unwrap().is_stopped());
        assert!(node.hold().await.is_none(), "it is held");
        held.kill().await;
    }
}
