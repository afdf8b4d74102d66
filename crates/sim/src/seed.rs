//! One run: a seed draws the world, faults rage, then they end and everything must come to
//! its end.

use std::cell::RefCell;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aetheris_check::{ClientHistory, SignalAck};
use aetheris_core::hash::Hash;
use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::json::Json;
use aetheris_fault::marks::{self, Knob};
use aetheris_runtime::OpError;
use aetheris_runtime::ops::{Signal, SignalAnswer};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::Clock;
use aetheris_store::{Scope, Store, every_job};
use aetheris_testing::gate::Peace;
use aetheris_testing::process::{Duties, Process, World};
use aetheris_testing::random::{Random, SeededIds};
use aetheris_testing::time::VirtualClock;
use tokio::sync::Notify;

use crate::clients::{self, Clients};
use crate::fault_rates::FaultRates;
use crate::in_place::InPlace;
use crate::oracle::{self, Evidence};
use crate::processes::{Mishaps, Processes, Stage};
use crate::program::Program;
use crate::recorder::Recorder;
use crate::services::{Outside, Services};
use crate::strikes::Strikes;
use crate::tally::Tally;
use crate::tell;
use crate::trace::Trace;
use crate::troubles::Troubles;

/// What a run has shown.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Bodies that acted.
    pub bodies: u64,
    /// Jobs that were accepted.
    pub jobs: u64,
    /// What befell the processes.
    pub mishaps: Mishaps,
    /// The seed.
    pub seed: u64,
    /// Cases and violations.
    pub tally: Tally,
    /// How much virtual time has passed.
    pub time: Duration,
    /// The story.
    pub trace: String,
    /// Its hash.
    pub trace_hash: Hash,
}

thread_local! {
    /// Panics of this thread's run: a task that panics takes only itself down.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Lets every panic of a run be told as a violation instead of on stderr. Once per process.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|info| {
        PANICS.with(|panics| panics.borrow_mut().push(info.to_string()));
    }));
}

/// What keeps the facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The store in memory, which is the model of the others.
    #[default]
    Memory,
    /// SQLite's: production SQL, its writer and its readers. Each seed is run on the store in memory too, and the two
    /// stories have to be the same, byte for byte.
    Sqlite,
}

/// Runs a seed. Deterministic: nothing but the seed and the code decides anything in it.
///
/// # Errors
/// The async runtime cannot be made.
pub fn run(seed: u64, backend: Backend) -> std::io::Result<Outcome> {
    let mut outcome = run_on(seed, backend)?;
    if backend != Backend::Memory {
        let model = run_on(seed, Backend::Memory)?;
        outcome.tally.case("STORES", outcome.trace == model.trace, || differ(&model.trace, &outcome.trace));
    }
    Ok(outcome)
}

/// Where two stories part.
fn differ(model: &str, other: &str) -> String {
    let mut lines = model.lines().zip(other.lines());
    match lines.find(|(model, other)| model != other) {
        Some((model, other)) => {
            format!("the store in memory goes on with `{}`, this one with `{}`", model.trim(), other.trim())
        }
        None => "the one story is a part of the other".to_owned(),
    }
}

/// Plays a program alone, with blows as planned; the seed decides all else.
///
/// # Errors
/// The async runtime cannot be made.
pub(crate) fn run_planned(
    (seed, program): (u64, &Arc<Program>),
    strikes: &Strikes,
    backend: Backend,
) -> std::io::Result<Outcome> {
    guarded(seed, || play(seed, backend, Some((Arc::clone(program), strikes.clone()))))
}

fn run_on(seed: u64, backend: Backend) -> std::io::Result<Outcome> {
    guarded(seed, || play(seed, backend, None))
}

/// Plays with a runtime of its own. A panic is a violation.
fn guarded<F>(seed: u64, play: impl FnOnce() -> F) -> std::io::Result<Outcome>
where
    F: Future<Output = std::io::Result<Outcome>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    PANICS.with(|panics| panics.borrow_mut().clear());
    let examined = marks::examined();
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(play())));
    drop(runtime);
    marks::tune(Knob::CheckpointEvents, None);
    marks::tune(Knob::SweepRows, None);
    let panics = PANICS.with(|panics| std::mem::take(&mut *panics.borrow_mut()));
    let played = played.map_or(Ok(None), |played| played.map(Some))?;
    let mut outcome = played.unwrap_or_else(|| Outcome {
        bodies: 0,
        jobs: 0,
        mishaps: Mishaps::default(),
        seed,
        tally: Tally::default(),
        time: Duration::ZERO,
        trace: String::new(),
        trace_hash: Hash::ZERO,
    });
    outcome.tally.add("ALWAYS", marks::examined() - examined);
    outcome.tally.case("PANIC", panics.is_empty(), || panics.join("; "));
    Ok(outcome)
}

/// What makes the second stream of a seed another one than the first.
const BESIDE: u64 = 0x5bd1_e995_9e37_79b9;
/// How often at most the store is looked through while faults rage.
const ROUNDS_MAX: u64 = 3;
/// The longest that faults rage, in milliseconds.
const STORM_MAX: u64 = 60_000;

/// Draws how often checkpoints are written and how long the pages of sweeps are.
fn tune(random: &mut Random) {
    marks::tune(Knob::CheckpointEvents, random.chance(500).then(|| random.between(3, 20)));
    marks::tune(Knob::SweepRows, random.chance(500).then(|| random.between(1, 3)));
}

/// A program that is played alone, with blows as planned.
type Planned = (Arc<Program>, Strikes);

async fn play(seed: u64, backend: Backend, planned: Option<Planned>) -> std::io::Result<Outcome> {
    let mut random = Random::new(seed);
    let (alone, strikes) = planned.unzip();
    let rates = strikes.map_or_else(|| FaultRates::draw(&mut random), FaultRates::planned);
    let clock = VirtualClock::new();
    let trace = Trace::new(Arc::clone(&clock));
    tell!(trace, "world", "seed {seed}: {rates:?}");
    tune(&mut random);
    let store_clock = clock.skewed(0, 0);
    let ground = Ground::open(backend, Arc::clone(&store_clock) as _)?;
    let listed = Arc::new(Notify::new());
    let recorder = Arc::new(Recorder::new(ground.store(), Arc::clone(&listed), trace.clone(), rates.clone()));
    let services = Services::new(Arc::clone(&recorder), random.fork(), rates.clone(), trace.clone());
    let stage = Stage {
        clock,
        ids: SeededIds::new(random.next()),
        listed,
        services: Arc::clone(&services),
        store: Arc::clone(&recorder) as Arc<dyn Store>,
        store_clock,
        trace: trace.clone(),
        troubles: Troubles::default(),
        rates: rates.clone(),
    };
    // Of its own stream: what was drawn before these were there is drawn as it was.
    let mut beside = Random::new(seed.rotate_left(32) ^ BESIDE);
    let alone_in = |program| vec![vec![Arc::clone(program)]];
    let programs = alone.as_ref().map_or_else(|| draw_programs(&mut random, &mut beside), alone_in);
    let processes = Processes::start(stage.clone(), &mut random);
    let clients = Clients::new(stage.clone(), processes.clone(), programs.clone());
    programs.iter().flatten().for_each(|program| services.learn(program));
    put_first(&clients, &programs).await;
    let customers = if alone.is_some() { 1 } else { draw_customers(&mut random) };
    let longest: u64 = programs.iter().flatten().map(|program| program.longest()).max().unwrap_or(0);
    let people = people(&clients, &programs, customers, &mut random);
    let people = tokio::spawn(futures_util::future::join_all(people));
    if random.chance(800) || alone.is_some() {
        tokio::spawn(clients.clone().operator(random.fork()));
    }
    // Of its own stream as well.
    tokio::spawn(clients.clone().answer_questions(Random::new(seed.rotate_left(16) ^ BESIDE)));
    tokio::spawn(processes.clone().plague(random.fork()));
    let storm = random.between(5_000, STORM_MAX);
    let rounds = tokio::spawn(make_rounds(ground.store(), trace.clone(), storm, beside));
    rage(&rates, ground.store().as_ref(), storm).await;
    tell!(trace, "world", "faults end");
    let calm = stage.store.status().await.map(|status| status.now).unwrap_or_default();
    let bound =
        Duration::from_millis(bound(longest, customers, processes.ttl().to_std())) + processes.mishaps().set_back;
    let mut tally = rounds.await.unwrap_or_default();
    come_to_rest(&stage, &clients, people, bound, &mut tally).await;
    let (orders, mut history) = (clients.orders(), clients.history());
    history.quiet = true;
    let deaths = processes.mishaps().deaths + processes.mishaps().drains;
    repeat_everything(&stage, &clients, &mut tally).await;
    let (store, services) = (stage.store.as_ref(), services.as_ref());
    let (database, history, orders) = (ground.database(), &history, &orders);
    let evidence = Evidence { calm, database, deaths, history, orders, services, store, rates: &rates };
    oracle::examine(&evidence, &mut tally).await;
    tally.merge(recorder.found());
    tally.merge(processes.found());
    tally.merge(clients.found());
    left_alone(&recorder.reclaims(), &stage.troubles, &rates, &mut tally);
    let last_words = ground.last_words();
    tally.case("PANIC", last_words.is_empty(), || last_words.join("; "));
    let bodies = u64::try_from(services.lines().iter().filter(|line| line.is_act()).count()).unwrap_or(0);
    let jobs = u64::try_from(every_job(stage.store.as_ref()).await.unwrap_or_default().len()).unwrap_or(0);
    let (mishaps, time, trace_hash) = (processes.mishaps(), trace.passed(), trace.hash());
    tell_histories(&trace, store, &tally.violations).await;
    Ok(Outcome { bodies, jobs, mishaps, seed, tally, time, trace: trace.text(), trace_hash })
}

/// Waits until the faults end: when as much time has passed, or all is done that blows are planned for.
async fn rage(rates: &FaultRates, store: &dyn Store, storm: u64) {
    if rates.strikes.are_planned() {
        until_over(store).await;
        rates.strikes.end();
    } else {
        tokio::time::sleep(Duration::from_millis(storm)).await;
    }
    rates.clear_up();
}

/// The longest that planned blows are waited for.
const PLANNED_MAX: Duration = Duration::from_secs(60);

/// Waits until every job has ended, or long enough.
async fn until_over(store: &dyn Store) {
    let waits = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let jobs = every_job(store).await.unwrap_or_default();
            if !jobs.is_empty() && jobs.iter().all(|row| row.status.is_terminal()) {
                return;
            }
        }
    };
    // Whoever is stuck is found by who waits for rest.
    tokio::select! {
        biased;
        () = waits => {}
        () = tokio::time::sleep(PLANNED_MAX) => {}
    }
}

/// Ends the story with the events of the jobs that something is wrong with.
async fn tell_histories(trace: &Trace, store: &dyn Store, violations: &[String]) {
    for row in every_job(store).await.unwrap_or_default() {
        let id = row.id.to_string();
        if !violations.iter().any(|violation| violation.contains(&id)) {
            continue;
        }
        let name = trace.name(row.id);
        let history = store.history(Scope::System, row.id, true).await.ok().flatten();
        for recorded in history.into_iter().flat_map(|history| history.events) {
            tell!(trace, "history", "{name} {} at {}: {:?}", recorded.seq, recorded.at, recorded.event);
        }
    }
}

/// Puts the first version of each program, and the agent of children where some asks for one.
async fn put_first(clients: &Clients, programs: &[Vec<Arc<Program>>]) {
    if programs.iter().flatten().any(|program| !program.children.is_empty()) {
        clients.put_child().await;
    }
    for first in programs.iter().filter_map(|versions| versions.first()) {
        clients.put(first).await;
    }
}

/// No job is taken from a holder that lived, went on and was answered, because its lease had expired.
fn left_alone(reclaims: &[(JobId, InstanceId)], troubles: &Troubles, rates: &FaultRates, tally: &mut Tally) {
    if rates.jumps {
        return;
    }
    for (job, holder) in reclaims {
        let unharmed = troubles.unharmed(*holder);
        tally.case("S2", unharmed.is_none(), || {
            format!("{job} was taken from {unharmed:?}, which nothing had befallen")
        });
    }
}

/// What keeps a run's facts.
enum Ground {
    Memory(Arc<MemoryStore>),
    Sqlite(Arc<InPlace>),
}

impl Ground {
    fn open(backend: Backend, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        Ok(match backend {
            Backend::Memory => Self::Memory(Arc::new(MemoryStore::new(clock))),
            Backend::Sqlite => Self::Sqlite(Arc::new(InPlace::open(clock)?)),
        })
    }

    fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Sqlite(store) => Arc::clone(store) as Arc<dyn Store>,
        }
    }

    /// The file of the store, if it has one.
    fn database(&self) -> Option<PathBuf> {
        match self {
            Self::Memory(_) => None,
            Self::Sqlite(store) => Some(store.database()),
        }
    }

    fn last_words(&self) -> Vec<String> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Sqlite(store) => store.last_words(),
        }
    }
}

/// Everybody who wants something: the customers, and whoever puts later versions of the agents.
fn people(clients: &Clients, programs: &[Vec<Arc<Program>>], customers: u64, random: &mut Random) -> Vec<Errand> {
    let mut people: Vec<Errand> = Vec::new();
    for number in 0..customers {
        people.push(Box::pin(clients.clone().customer(number, random.fork())));
    }
    for versions in programs {
        for later in versions.iter().skip(1) {
            let (clients, later, at) = (clients.clone(), Arc::clone(later), random.between(500, 20_000));
            people.push(Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(at)).await;
                clients.put(&later).await;
            }));
        }
    }
    people
}

/// What somebody does.
type Errand = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whatever was answered once is answered the same for ever: every delivered signal is sent again, when
/// all is over.
async fn repeat_everything(stage: &Stage, clients: &Clients, tally: &mut Tally) {
    let world = World {
        clock: Arc::clone(&stage.clock),
        ids: Arc::new(stage.ids.clone()),
        models: Arc::new(Outside(Arc::clone(&stage.services))),
        store: Arc::clone(&stage.store),
        tools: Arc::new(Outside(Arc::clone(&stage.services))),
    };
    let process = Process::start(&world, Duties::default(), Arc::new(Peace));
    for signal in clients.history().signals {
        let before = stage.store.job(Scope::System, signal.job).await.ok().flatten().map(|row| (row.seq, row.status));
        let again = Signal { correlation_key: signal.key.clone(), payload: Json::null(), wait_type: None };
        let answer = process.runtime().signal(signal.job, again).await;
        let after = stage.store.job(Scope::System, signal.job).await.ok().flatten().map(|row| (row.seq, row.status));
        let ended = before.is_some_and(|(_, status)| status.is_terminal());
        let same = match signal.ack {
            SignalAck::Delivered => matches!(answer, Ok(SignalAnswer::AlreadyDelivered { .. })),
            // Kept, and then consumed, or never, if the job ended before its wait. This payload is none that a schema takes.
            SignalAck::Kept => answer.is_ok() || ended || matches!(answer, Err(OpError::InvalidPayload { .. })),
        };
        tally.case("E4", same && before == after, || {
            format!("{} signal {} again: {answer:?}, {before:?} -> {after:?}", stage.trace.name(signal.job), signal.key)
        });
    }
}

/// Looks through the whole store at moments of the storm: what holds of what is stored holds at every moment, also of states
/// that pass.
async fn make_rounds(store: Arc<dyn Store>, trace: Trace, storm: u64, mut random: Random) -> Tally {
    let mut tally = Tally::default();
    let mut left = storm;
    for _ in 0..random.below(ROUNDS_MAX + 1) {
        let pause = random.below(left.max(1));
        left -= pause;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        // Who comes later knows what was acknowledged; nobody is quiet yet.
        match aetheris_check::check_store(store.as_ref(), &[], &ClientHistory::default()).await {
            Ok(report) => {
                tally.add("ROUND", report.lines.iter().map(|line| line.examined).sum());
                tally.take_report(&report);
            }
            Err(error) => tally.case("ROUND", false, || format!("the store cannot be read: {error}")),
        }
        tell!(trace, "world", "the store was looked through: {} violations", tally.violations.len());
    }
    tally
}

fn draw_programs(random: &mut Random, beside: &mut Random) -> Vec<Vec<Arc<Program>>> {
    let agents = random.between(1, 3);
    let mut draw = |agent: u64| {
        let name = format!("agent-{agent}");
        let versions = if random.chance(250) { 2 } else { 1 };
        let strict = beside.chance(200);
        let drawn = (1..=versions).map(|version| {
            let mut program = Program::draw(random, &name, version);
            program.bound(beside, strict);
            Arc::new(program)
        });
        drawn.collect()
    };
    (0..agents).map(&mut draw).collect()
}

fn draw_customers(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => random.between(10, 40),
        1..=5 => random.between(4, 9),
        _ => random.between(1, 3),
    }
}

/// How long after the last fault everything must be at rest, in milliseconds: the longest program, as
/// often as jobs may stand in line for one slot, the time of two leases and polls, and the longest pause.
fn bound(longest: u64, customers: u64, ttl: Duration) -> u64 {
    let ttl = u64::try_from(ttl.as_millis()).unwrap_or(60_000);
    let in_line = longest.saturating_mul(customers.min(6));
    60_000 + 4 * ttl + in_line + 30_000 + clients::PAUSE_MAX + clients::RUN_AT_MAX + clients::DEADLINE_MAX
}

/// Waits until every process runs again, clients have all their answers, and no job needs anything more; and
/// then a little longer, for what a process that stood still may yet do.
async fn come_to_rest(
    stage: &Stage,
    clients: &Clients,
    people: tokio::task::JoinHandle<Vec<()>>,
    bound: Duration,
    tally: &mut Tally,
) {
    let begun = stage.trace.passed();
    let mut quiet_looks = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let orders = clients.orders();
        let Ok(jobs) = every_job(stage.store.as_ref()).await else { continue };
        let restless = oracle::restless(&jobs, &orders);
        let at_rest = people.is_finished() && clients.processes().is_whole() && restless.is_empty();
        quiet_looks = if at_rest { quiet_looks + 1 } else { 0 };
        if quiet_looks >= QUIET_LOOKS {
            tally.case("H1", true, String::new);
            tell!(stage.trace, "world", "everything is at rest");
            return;
        }
        if stage.trace.passed() > begun + bound {
            let told = |row: &&aetheris_store::JobRow| {
                format!("{} is {} ({:?})", stage.trace.name(row.id), row.status.as_str(), row.waiting)
            };
            let stuck: Vec<String> = restless.iter().map(told).collect();
            let (seconds, clients) = (bound.as_secs(), people.is_finished());
            tally.case("H1", false, || {
                format!("not at rest {seconds} s after the last fault: {}; clients done: {clients}", stuck.join(", "))
            });
            return;
        }
    }
}

/// How often it is looked whether everything is at rest.
const LOOK: Duration = Duration::from_secs(1);
/// How many looks in a row must find nothing to be done.
const QUIET_LOOKS: u32 = 6;
