//! One run: load with faults, then rest, then judgement.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_plain::{Checked, turns};
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, ensure};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::asked;
use super::backend::{Backend, Sqlite};
use super::beside::Beside;
use super::client::{Clients, Errand, Outcome, drive};
use super::clock::HostClock;
use super::commands::Commands;
use super::dice::Dice;
use super::faults::{self, LEASE, World};
use super::judge;
use super::nemesis::{self, Log};
use super::nodes::{self, Node, Order, Problems, Role};
use super::oracle::Oracle;
use super::programs::{self, Program};
use super::proxy::Proxy;
use super::report::Page;
use crate::drive::process::{Launch, tail};
use crate::witness::Witness;
use aetheris_harness::Folder;

/// Worker processes.
const WORKERS: usize = 3;
/// Programs of a run.
const PROGRAMS: usize = 48;
/// Jobs that are under way at once.
const AT_ONCE: usize = 28;
/// Without a new event for so long, the run is stuck.
const STUCK: Duration = Duration::from_secs(60);
/// Within this after the last fault, and the time that its own steps sleep, every job has ended or waits for a
/// human: two leases, two polls, and five seconds.
const REST: Duration = Duration::from_millis(2 * 2_000 + 2 * 200 + 5_000);

/// How long the last faults may take to end: a request is given up after a minute, a start after half of one.
const HANDS: Duration = Duration::from_secs(150);

/// What is asked of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// A bug of the zoo that the processes are to have. The verdict does not know of it: a run that is clean has
    /// missed it.
    pub bug: Option<String>,
    /// How long faults go on.
    pub load: Duration,
    /// What everything is drawn from.
    pub seed: u64,
    /// The store.
    pub store: String,
    /// Where pages and what is left of failed runs go.
    pub out: PathBuf,
    /// The program under test.
    pub program: PathBuf,
}

/// What a run came to.
#[derive(Debug)]
pub struct Verdict {
    /// The page.
    pub page: String,
    /// Whether nothing is wrong.
    pub clean: bool,
}

/// Jobs under way, with the time that their steps may sleep.
type UnderWay = Arc<Mutex<BTreeMap<String, (String, u64)>>>;

/// The parts of a run. The store's folder goes before the scratch folder that it is in.
struct Run {
    background: CancellationToken,
    beside: Beside,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    under_way: UnderWay,
    witness: Witness,
    world: Arc<World>,
    scratch: Folder,
}

/// Runs.
///
/// # Errors
/// It cannot be set up, or its evidence not be read. What is wrong with the program is in the verdict.
pub async fn run(options: &Options) -> Result<Verdict> {
    ensure!(options.store == "sqlite", "there is no store `{}` yet: sqlite", options.store);
    let mut run = Run::prepare(options).await?;
    let began = SystemClock.boot();
    let nemesis = CancellationToken::new();
    let mut hands = JoinSet::new();
    hands.spawn(faults::hurt(Arc::clone(&run.world), options.seed, nemesis.clone()));
    let watcher = tokio::spawn(stuck(Arc::clone(&run.world), run.background.clone()));
    let jobs = run.load(options).await;
    nemesis.cancel();
    put_down(hands, &run.world.problems).await?;
    let seconds = (SystemClock.boot() - began).as_secs_f64();
    let rest_seconds = run.rest(jobs).await?;
    run.tail_ok().await;
    run.beside.ask(&run.world).await?;
    run.background.cancel();
    watcher.await?;
    run.stop().await;
    run.judge(options, seconds, rest_seconds).await
}

/// Waits until the hands of the nemesis have ended what they began. Where they do not, the run has failed: they are
/// taken away, and it goes on to its judgement.
async fn put_down(mut hands: JoinSet<()>, problems: &Problems) -> Result<()> {
    tokio::select! {
        ended = hands.join_next() => ended.transpose()?.unwrap_or_default(),
        () = tokio::time::sleep(HANDS) => problems.add(format!("the nemesis has not ended within {HANDS:?}")),
    }
    Ok(())
}

/// Nothing moves for a minute: the run has failed.
async fn stuck(world: Arc<World>, stop: CancellationToken) {
    let (mut last, mut since) = (0, SystemClock.boot());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        let now = world.backend.progress().unwrap_or(last);
        if now != last {
            (last, since) = (now, SystemClock.boot());
        } else if SystemClock.boot() - since > STUCK {
            world.problems.add(format!("nothing has moved for {STUCK:?} at event {now}"));
            since = SystemClock.boot();
        }
    }
}

/// What is added to the environment of every process.
fn environment(options: &Options, host: &HostClock) -> Vec<(String, String)> {
    let clock = ("AETHERIS_CLOCK_OFFSET".to_owned(), host.file().display().to_string());
    let bug = options.bug.iter().map(|bug| ("AETHERIS_BUG".to_owned(), bug.clone()));
    std::iter::once(clock).chain(bug).collect()
}

/// How a node is started.
fn launch(options: &Options, scratch: &Folder, host: &HostClock, part: &str, name: &str) -> Launch {
    let config = scratch.path().join("config.yaml").display().to_string();
    // All but two say what they do on the store's disk, which will be full.
    let aside = matches!(name, "worker-3" | "calm");
    let place = if aside { scratch.path().to_owned() } else { scratch.path().join("data") };
    nodes::launch(options.program.clone(), part, &config, environment(options, host), place.join(format!("{name}.log")))
}

impl Run {
    async fn prepare(options: &Options) -> Result<Self> {
        let scratch = Folder::new("chaos");
        let path = |name: &str| scratch.path().join(name);
        let backend: Arc<dyn Backend> = Arc::new(Sqlite::prepare(path("data"))?);
        // Made before the processes: the witness and the nemesis tell time by it.
        drop(backend.open()?);
        let host = HostClock::new(path("clock"))?;
        let clock = backend.clock(&host)?;
        let log = Log::new(Arc::clone(&clock));
        let witness = Witness::start_on(&path("witness.log"), clock)?;
        let (_, tools) = watch::channel(witness.addr);
        let tools = Proxy::start("tools", tools, log.clone()).await?;
        let (url, api) = watch::channel(SocketAddr::from(([127, 0, 0, 1], 9)));
        let api = Proxy::start("api", api, log.clone()).await?;
        std::fs::write(path("config.yaml"), nodes::configuration(&backend.config(), tools.addr))?;
        let nodes = Self::nodes(options, &scratch, &host, url).await?;
        let clients = Clients::new(api.addr, backend.clock(&host)?, format!("http://{}", witness.addr))?;
        let mut programs = programs::draw_all(&mut Dice::new(options.seed, 1), PROGRAMS);
        for program in [Program::long(), Program::slow()] {
            programs.insert(program.agent.clone(), program);
        }
        for program in programs.values() {
            clients.put(program, &format!("http://{}", tools.addr), 1).await?;
        }
        let (problems, versions) = (Problems::default(), Mutex::default());
        let world = World { api, backend, clients, host, log, nodes, problems, programs, tools, versions };
        let (world, background) = (Arc::new(world), CancellationToken::new());
        let kept = (world.nodes.clone(), world.log.clone(), background.clone(), world.problems.clone());
        tokio::spawn(nodes::keep(kept.0, kept.1, kept.2, kept.3));
        let commands = Commands { env: environment(options, &world.host), program: options.program.clone() };
        let calm = launch(options, &scratch, &world.host, "serve", "calm");
        let beside =
            Beside::start(&world, calm, (commands, scratch.path()), (options.load, Dice::new(options.seed, 4))).await?;
        Ok(Self { background, beside, outcomes: Arc::default(), under_way: Arc::default(), witness, world, scratch })
    }

    async fn nodes(
        options: &Options,
        scratch: &Folder,
        host: &HostClock,
        url: watch::Sender<SocketAddr>,
    ) -> Result<Vec<Arc<Node>>> {
        let launch = |part: &str, name: &str| launch(options, scratch, host, part, name);
        let mut nodes = vec![Node::new("api".into(), Role::Api, launch("serve", "api"), Some(url))];
        for number in 1..=WORKERS {
            let name = format!("worker-{number}");
            nodes.push(Node::new(name.clone(), Role::Worker, launch("worker", &name), None));
        }
        for node in &nodes {
            node.start(&Order::default()).await?;
        }
        Ok(nodes)
    }

    /// Sends jobs until the time is over. What is under way goes on.
    async fn load(&self, options: &Options) -> JoinSet<()> {
        let mut jobs = JoinSet::new();
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut dice = Dice::new(options.seed, 2);
        let names: Vec<String> = self.world.programs.keys().cloned().collect();
        let over = tokio::time::sleep(options.load);
        tokio::pin!(over);
        for number in 0u64.. {
            let place = tokio::select! {
                () = &mut over => break,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let program = if number % 24 == 5 { "chaos-long".to_owned() } else { dice.pick(&names).clone() };
            self.spawn(
                &mut jobs,
                &program,
                Dice::new(dice.roll(), 3),
                format!("{}-{number}", options.seed),
                place.ok(),
            );
        }
        jobs
    }

    fn spawn<T: Send + 'static>(&self, jobs: &mut JoinSet<()>, agent: &str, dice: Dice, key: String, place: T) {
        let (world, outcomes, under_way) =
            (Arc::clone(&self.world), Arc::clone(&self.outcomes), Arc::clone(&self.under_way));
        let agent = agent.to_owned();
        jobs.spawn(async move {
            let program = &world.programs[&agent];
            let errands = Errand::draw(program, &world.clients, dice, &key);
            let mine = (agent.clone(), Errand::idle_ms(&errands, program));
            under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), mine);
            match drive(&world.clients, program, errands).await {
                Ok(ended) => outcomes.lock().unwrap_or_else(PoisonError::into_inner).extend(ended),
                Err(error) => world.problems.add(format!("{agent} {key}: {error:#}")),
            }
            under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            drop(place);
        });
        while jobs.try_join_next().is_some() {}
    }

    /// Ends every fault and waits until everything has ended, each job within its bound. In seconds.
    async fn rest(&self, mut jobs: JoinSet<()>) -> Result<f64> {
        faults::heal(&self.world).await?;
        let began = SystemClock.boot();
        loop {
            tokio::select! {
                ended = jobs.join_next() => if ended.is_none() { break },
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
            let rested = SystemClock.boot() - began;
            let late: Vec<String> = {
                let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
                let late = under_way.iter().filter(|(_, (_, idle))| rested > REST + Duration::from_millis(*idle));
                late.map(|(key, (agent, _))| format!("{agent} {key}")).collect()
            };
            if !late.is_empty() {
                self.world.problems.add(format!("not at rest after {rested:?}: {}", late.join(", ")));
                jobs.abort_all();
                break;
            }
        }
        Ok((SystemClock.boot() - began).as_secs_f64())
    }

    /// The last requests: the API is ready, and every worker claims again.
    async fn tail_ok(&self) {
        let began = SystemClock.boot();
        while !self.world.clients.is_ready().await {
            if SystemClock.boot() - began > REST {
                self.world.problems.add("the API is not ready after the last fault".to_owned());
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut last = JoinSet::new();
        // More at once than two workers can hold.
        for number in 0..WORKERS * 16 {
            self.spawn(&mut last, "chaos-slow", Dice::new(1, number as u64), format!("last-{number}"), ());
        }
        let patience = tokio::time::sleep(REST + Duration::from_secs(20));
        tokio::select! {
            () = async { while last.join_next().await.is_some() {} } => {}
            () = patience => self.world.problems.add("the last jobs have not ended".to_owned()),
        }
    }

    async fn stop(&self) {
        for node in &self.world.nodes {
            // The keeper has ended; whoever holds the place is about to leave it.
            let Some(mut held) = node.hold_soon().await else {
                self.world.problems.add(format!("{} was not there to be stopped", node.name));
                continue;
            };
            if let Err(error) = held.drain(LEASE * 10, &self.world.log).await {
                self.world.problems.add(format!("{}: {error:#}", node.name));
            }
        }
    }

    async fn judge(&mut self, options: &Options, seconds: f64, rest_seconds: f64) -> Result<Verdict> {
        let world = &self.world;
        let (history, witness, faults) = (world.clients.history(), self.witness.lines()?, world.log.lines());
        let store = world.backend.open()?;
        let mut missing: Vec<&str> = self.beside.missing().into_iter().collect();
        missing.extend((!world.backend.can_fill()).then_some("disk_full: mounting is not permitted"));
        let oracles = self.beside.conclude(world, self.scratch.path()).await?;
        let backend = world.backend.as_ref();
        let copy = |tables: &_| backend.copy_tables(tables).and_then(|()| nemesis::load(&faults, tables));
        let checked = Checked::new(copy, store.as_ref(), &witness, &history).await?;
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let jobs = judge::jobs(&outcomes, &world.programs, &witness, &history, &checked);
        let mut recovery = checked.evidence.numbers(include_str!("../../sql/recovery.sql"))?;
        recovery.sort_unstable();
        let mut problems = world.problems.all();
        problems.extend(jobs.problems.iter().cloned());
        let (cases, wrong) = asked::judge(&outcomes, &world.programs, &asked::stored(&checked.evidence)?);
        problems.extend(wrong);
        let turns = turns::judge(checked.evidence.tables())?;
        let untried = turns.later == 0 || turns.conversations == 0;
        problems.extend(untried.then(|| format!("turns: not all have a case: {turns:?}")));
        let held = world.clients.counts.held.load(Ordering::Relaxed);
        problems.extend((held == 0).then(|| "no job was held still and let go on".to_owned()));
        problems.extend(turns.violations.iter().map(|violation| format!("turns: {violation}")));
        problems.extend(checked.violations());
        problems.extend(checked.differences().into_iter().map(|text| format!("the checkers differ: {text}")));
        problems.extend(checked.rust.unexamined().iter().map(|id| format!("{id}: no case was examined")));
        problems.extend(self.idle_workers(&checked)?);
        problems.extend(oracles.iter().flat_map(Oracle::problems));
        let acts = witness.iter().filter(|line| line.is_act()).count();
        let page = Page {
            store: world.backend.name(),
            seed: options.seed,
            seconds,
            rest_seconds,
            workers: WORKERS,
            checked: &checked,
            jobs: &jobs,
            cases: &cases,
            turns: &turns,
            log: &world.log,
            counts: &world.clients.counts,
            bodies: (witness.len(), acts),
            signals: history.signals.len(),
            recovery: &recovery,
            problems: &problems,
            missing: &missing,
            oracles: &oracles,
        };
        let verdict = Verdict { page: page.text(), clean: page.is_clean() };
        self.keep(options, &verdict, &checked)?;
        Ok(verdict)
    }

    /// Every worker has claimed one of the last jobs.
    fn idle_workers(&self, checked: &Checked) -> Result<Vec<String>> {
        let mut idle = Vec::new();
        for node in self.world.nodes.iter().filter(|node| node.role == Role::Worker) {
            let name = node.target().replace('\'', "");
            let query = format!(
                "SELECT count(*) FROM events e JOIN submissions s ON s.job = e.job WHERE s.client_key LIKE 'last-%' \
                 AND e.kind = 'job_claimed' AND e.payload ->> 'worker' = '{name}'"
            );
            if checked.evidence.number(&query)? == 0 {
                idle.push(format!("{} ({name}) claimed nothing after the last fault", node.name));
            }
        }
        Ok(idle)
    }

    /// The page, and of a failed run everything that explains it.
    fn keep(&self, options: &Options, verdict: &Verdict, checked: &Checked) -> Result<()> {
        std::fs::create_dir_all(&options.out)?;
        let name = format!("{}-{}", options.store, options.seed);
        std::fs::write(options.out.join(format!("{name}.md")), &verdict.page)?;
        if verdict.clean {
            return Ok(());
        }
        let folder = options.out.join(format!("{name}-failed"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        self.world.backend.save(&folder.join("data")).context("saving the store")?;
        checked.evidence.save(&folder.join("evidence.db"))?;
        for entry in std::fs::read_dir(self.scratch.path())? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
            }
        }
        dump_faults(&self.world.log, &folder.join("nemesis.jsonl"))?;
        let logs = self.world.nodes.iter().map(|node| tail(&node.log));
        std::fs::write(folder.join("tails.txt"), logs.collect::<Vec<_>>().join("\n\n"))?;
        Ok(())
    }
}

fn dump_faults(log: &Log, file: &Path) -> Result<()> {
    let lines: Result<Vec<String>, _> = log.lines().iter().map(serde_json::to_string).collect();
    std::fs::write(file, lines?.join("\n"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_nemesis_that_does_not_end_is_a_problem_of_the_run() {
        for (hand, expected) in [(Duration::from_secs(20), 0), (Duration::MAX, 1)] {
            let (mut hands, problems) = (JoinSet::new(), Problems::default());
            hands.spawn(tokio::time::sleep(hand));
            put_down(hands, &problems).await.unwrap();
            assert_eq!(problems.all().len(), expected, "{hand:?}");
        }
    }
}
