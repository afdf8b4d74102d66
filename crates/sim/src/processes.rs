//! The processes of a run, and what befalls them: they die at any crossing or any moment, stand still and
//! go on, drain, and come back, perhaps with another version.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_core::id::{InstanceId, WorkerId};
use aetheris_core::time::Span;
use aetheris_runtime::{Runtime, Settings};
use aetheris_scheduler::SweepOptions;
use aetheris_store::Store;
use aetheris_store::faulty::FaultyStore;
use aetheris_testing::gate::{Ambush, Crossing, Fate, Gate, Life};
use aetheris_testing::process::{Duties, Process, World};
use aetheris_testing::random::{Random, SeededIds};
use aetheris_testing::time::VirtualClock;
use aetheris_worker::WorkerOptions;
use tokio::sync::{Notify, mpsc};

use crate::fault_rates::{FaultRates, Hints};
use crate::services::{Outside, Services};
use crate::strikes::{Blow, Site};
use crate::tally::Tally;
use crate::tell;
use crate::trace::Trace;
use crate::troubles::Troubles;
use crate::wire::Wire;

/// What becomes of a process that is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fall {
    Death,
    Standstill,
}

/// What befell a process, and whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Befell {
    fall: Fall,
    member: usize,
}

/// The fates of one process, drawn at each crossing.
struct Fates {
    befell: mpsc::UnboundedSender<Befell>,
    member: usize,
    random: Mutex<Random>,
    trace: Trace,
    rates: FaultRates,
    troubles: Troubles,
    who: String,
}

impl Ambush for Fates {
    fn at(&self, crossing: &Crossing) -> Fate {
        match Site::of(crossing).and_then(|site| self.rates.strikes.strike(site)) {
            Some(Blow::Death) => return self.falls(Fall::Death, crossing),
            Some(Blow::Standstill) => return self.falls(Fall::Standstill, crossing),
            _ if !self.rates.is_bad() => return Fate::Pass,
            _ => {}
        }
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let dies = random.chance(self.rates.deaths);
        // Frozen between its last check and its send, for longer than every bound, is what no runtime can
        // promise anything about (guarantees); everywhere else it may stand still.
        let stops = random.chance(self.rates.stops) && !matches!(crossing, Crossing::ToTool(..));
        match (dies, stops) {
            (true, _) => self.falls(Fall::Death, crossing),
            (false, true) => self.falls(Fall::Standstill, crossing),
            (false, false) => Fate::Pass,
        }
    }
}

impl Fates {
    fn falls(&self, fall: Fall, crossing: &Crossing) -> Fate {
        let (fate, told) = match fall {
            Fall::Death => (Fate::Die, "dies"),
            Fall::Standstill => (Fate::Stop, "stands still"),
        };
        tell!(self.trace, &self.who, "{told} {crossing}");
        // It may be a life that ends while the next one has begun.
        self.troubles.befalls(&self.who);
        // The director lives as long as the run.
        let _ = self.befell.send(Befell { fall, member: self.member });
        fate
    }
}

/// One process and what it is started with.
struct Member {
    clock: Arc<VirtualClock>,
    duties: Duties,
    incarnation: u32,
    name: String,
    process: Option<Process>,
    random: Random,
}

impl Member {
    /// Its name in this life.
    fn called(&self) -> String {
        format!("{}.{}", self.name, self.incarnation)
    }
}

/// What has befallen the processes, for the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mishaps {
    /// Processes that died.
    pub deaths: u64,
    /// Processes that were told to drain.
    pub drains: u64,
    /// Clocks that jumped.
    pub jumps: u64,
    /// By how much the store's clock was set back in all: time by which everything may be late.
    pub set_back: Duration,
    /// Processes that stood still.
    pub stops: u64,
}

struct Inner {
    found: Tally,
    members: Vec<Member>,
    mishaps: Mishaps,
}

/// Everything that a process is made from.
#[derive(Clone)]
pub struct Stage {
    /// True time.
    pub clock: Arc<VirtualClock>,
    /// Where identifiers come from.
    pub ids: SeededIds,
    /// Told whenever somebody has been told which timers are due.
    pub listed: Arc<Notify>,
    /// The outside world.
    pub services: Arc<Services>,
    /// The store, watched.
    pub store: Arc<dyn Store>,
    /// The store's own clock.
    pub store_clock: Arc<VirtualClock>,
    /// The trace.
    pub trace: Trace,
    /// What befell whom.
    pub troubles: Troubles,
    /// The fault rates.
    pub rates: FaultRates,
}

/// All processes of a run. Clones are the same processes.
#[derive(Clone)]
pub struct Processes {
    befell: mpsc::UnboundedSender<Befell>,
    inner: Arc<Mutex<Inner>>,
    stage: Stage,
    ttl: Span,
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Processes")
    }
}

impl Processes {
    /// Draws the processes and starts them, with the director that brings them back.
    #[must_use]
    pub fn start(stage: Stage, random: &mut Random) -> Self {
        let (befell, told) = mpsc::unbounded_channel();
        let ttl = Span::from_millis(random.between(1_500, 20_000));
        let drawn = (random.between(1, 4), random.between(1, 2));
        // Where every blow is tried, one who takes over is enough.
        let (workers, others) = if stage.rates.strikes.are_planned() { (2, 1) } else { drawn };
        let members = (0..workers + others).map(|place| draw_member(&stage, random, place, place < workers, ttl));
        let inner = Inner { found: Tally::default(), members: members.collect(), mishaps: Mishaps::default() };
        let processes = Self { befell, inner: Arc::new(Mutex::new(inner)), stage, ttl };
        let count = processes.inner().members.len();
        (0..count).for_each(|member| processes.begin(member));
        tokio::spawn(processes.clone().direct(told, random.fork()));
        processes
    }

    /// How long leases live.
    #[must_use]
    pub fn ttl(&self) -> Span {
        self.ttl
    }

    /// Whether every process runs: none is dead, stands still or drains.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let runs = |member: &Member| member.process.as_ref().is_some_and(|p| p.gate().life() == Life::Running);
        self.inner().members.iter().all(runs)
    }

    /// What has befallen the processes.
    #[must_use]
    pub fn mishaps(&self) -> Mishaps {
        self.inner().mishaps
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process that a client reaches: one that is not known to be dead. It may stand still, or die while
    /// it answers.
    #[must_use]
    pub fn reach(&self, random: &mut Random) -> Option<Runtime> {
        let inner = self.inner();
        let alive = |member: &&Member| member.process.as_ref().is_some_and(|p| p.gate().life() != Life::Dead);
        let alive: Vec<&Member> = inner.members.iter().filter(alive).collect();
        random.pick(&alive).and_then(|member| member.process.as_ref()).map(|process| process.runtime().clone())
    }

    fn begin(&self, place: usize) {
        let mut inner = self.inner();
        let Some(member) = inner.members.get_mut(place) else { return };
        // One that died while it drained is brought back once.
        if member.process.as_ref().is_some_and(|process| process.gate().life() != Life::Dead) {
            return;
        }
        member.incarnation += 1;
        let who = member.called();
        let Stage { trace, troubles, rates, .. } = &self.stage;
        let wire = Wire::new(&who, member.random.fork(), rates.clone(), trace.clone(), troubles.clone());
        let store = FaultyStore::decided_by(Arc::clone(&self.stage.store), Box::new(wire));
        let world = World {
            clock: Arc::clone(&member.clock),
            ids: Arc::new(self.stage.ids.clone()),
            models: Arc::new(Outside(Arc::clone(&self.stage.services))),
            store: Arc::new(store),
            tools: Arc::new(Outside(Arc::clone(&self.stage.services))),
        };
        let fates = Fates {
            befell: self.befell.clone(),
            member: place,
            random: Mutex::new(member.random.fork()),
            trace: self.stage.trace.clone(),
            rates: self.stage.rates.clone(),
            troubles: self.stage.troubles.clone(),
            who: who.clone(),
        };
        let version = if member.random.chance(200) { "2" } else { "1" };
        member.duties.settings.execution_version = version.to_owned();
        let dead = member.process.take().map(|process| process.instance());
        tell!(self.stage.trace, &who, "begins as version {version}");
        let process = Process::start(&world, member.duties.clone(), Arc::new(fates));
        self.stage.troubles.begins(process.instance(), &who);
        if let Some(dead) = dead.filter(|_| member.random.chance(400)) {
            tokio::spawn(self.clone().take_back(process.runtime().clone(), dead));
        }
        if self.stage.rates.hints == Hints::Doubled {
            tokio::spawn(rumour(process.runtime().clone(), process.gate().clone(), member.random.fork()));
        }
        member.process = Some(process);
    }

    /// Brings back what has fallen, and lets what stands still go on.
    async fn direct(self, mut told: mpsc::UnboundedReceiver<Befell>, mut random: Random) {
        while let Some(befell) = told.recv().await {
            let pause = match befell.fall {
                Fall::Death => random.between(0, 6_000),
                Fall::Standstill => self.standstill(&mut random),
            };
            self.fallen(befell);
            let processes = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                processes.recover(befell);
            });
        }
    }

    /// For how long a process stands still: often until just after its lease has ended, when whoever takes
    /// its jobs over is about to do what it was about to do.
    fn standstill(&self, random: &mut Random) -> u64 {
        let ttl = u64::try_from(self.ttl.to_std().as_millis()).unwrap_or(5_000);
        let longer = random.chance(300) || self.stage.rates.strikes.are_planned();
        if longer { ttl + random.below(2_500) } else { random.below(ttl * 2) }
    }

    fn fallen(&self, befell: Befell) {
        let mut inner = self.inner();
        if let Some(member) = inner.members.get(befell.member) {
            self.stage.troubles.befalls(&member.called());
        }
        match befell.fall {
            Fall::Death => inner.mishaps.deaths += 1,
            Fall::Standstill => inner.mishaps.stops += 1,
        }
        let process = inner.members.get(befell.member).and_then(|member| member.process.as_ref());
        match (befell.fall, process) {
            (Fall::Death, Some(process)) => process.kill(),
            (Fall::Standstill, Some(process)) => self.stage.services.process_stops(process.instance()),
            (Fall::Death | Fall::Standstill, None) => {}
        }
    }

    fn recover(&self, befell: Befell) {
        match befell.fall {
            Fall::Death => self.begin(befell.member),
            Fall::Standstill => {
                if let Some(member) = self.inner().members.get(befell.member)
                    && let Some(process) = &member.process
                {
                    tell!(self.stage.trace, &member.called(), "goes on");
                    self.stage.services.process_goes_on(process.instance());
                    process.gate().set_stopped(false);
                }
            }
        }
    }

    /// Takes the jobs of a dead process back, all of them at once; what cannot be taken back now expires.
    async fn take_back(self, rt: Runtime, dead: InstanceId) {
        let taken = aetheris_scheduler::reclaim_instance(&rt, dead).await;
        let left = self.stage.store.held_by(dead, None, 1).await;
        if let (Ok(taken), Ok(left)) = (taken, left) {
            tell!(self.stage.trace, "proof", "{taken} jobs of {dead} are taken back");
            self.inner().found.case("S1", left.is_empty(), || {
                format!("{dead}: {taken} jobs were taken back by the proof of its death, and it still holds {left:?}")
            });
        }
    }

    /// What was found.
    #[must_use]
    pub fn found(&self) -> Tally {
        self.inner().found.clone()
    }

    /// Does something bad to someone now and then, until the faults are over.
    pub async fn plague(self, mut random: Random) {
        let longest = self.stage.rates.nemesis;
        while longest > 0 && self.stage.rates.is_bad() {
            tokio::time::sleep(Duration::from_millis(random.between(1, longest))).await;
            if !self.stage.rates.is_bad() {
                return;
            }
            let count = u64::try_from(self.inner().members.len()).unwrap_or(1);
            let member = usize::try_from(random.below(count)).unwrap_or(0);
            let blow = random.below(10);
            match if self.stage.rates.mild { blow.max(7) } else { blow } {
                0..=3 => self.strike(member, Fall::Death),
                4..=6 => self.strike(member, Fall::Standstill),
                7 => self.drain(member, random.chance(200) && !self.stage.rates.mild),
                8 if self.stage.rates.jumps => {
                    let by = i64::try_from(random.between(1, 600_000_000)).unwrap_or(0);
                    let by = if random.chance(500) { by } else { -by };
                    if by < 0 {
                        // After somebody has listed timers that are due, and before they write.
                        let patience = Duration::from_millis(random.between(1, 5_000));
                        tokio::select! {
                            biased;
                            () = self.stage.listed.notified() => {}
                            () = tokio::time::sleep(patience) => {}
                        }
                        if !self.stage.rates.is_bad() {
                            return;
                        }
                    }
                    tell!(self.stage.trace, "nemesis", "the store's clock jumps by {by} us");
                    let mut inner = self.inner();
                    inner.mishaps.jumps += 1;
                    inner.mishaps.set_back += Duration::from_micros(u64::try_from(-by).unwrap_or(0));
                    drop(inner);
                    self.stage.store_clock.jump(by);
                }
                _ => {
                    let by = i64::try_from(random.below(7_200_000_000)).unwrap_or(0) - 3_600_000_000;
                    let mut inner = self.inner();
                    if let Some(member) = inner.members.get(member) {
                        tell!(self.stage.trace, &member.name, "its wall clock jumps by {by} us");
                        member.clock.jump(by);
                    }
                    inner.mishaps.jumps += 1;
                }
            }
        }
    }

    fn strike(&self, member: usize, fall: Fall) {
        let inner = self.inner();
        let Some(struck) = inner.members.get(member) else { return };
        let Some(process) = struck.process.as_ref().filter(|process| process.gate().life() == Life::Running) else {
            return;
        };
        let who = struck.called();
        self.stage.troubles.befalls(&who);
        let told = match fall {
            Fall::Death => {
                process.gate().kill();
                "is killed"
            }
            Fall::Standstill => {
                process.gate().set_stopped(true);
                "is stopped"
            }
        };
        tell!(self.stage.trace, &who, "{told}");
        let _ = self.befell.send(Befell { fall, member });
    }

    fn drain(&self, place: usize, abandon: bool) {
        let mut inner = self.inner();
        let Some(member) = inner.members.get_mut(place) else { return };
        let running = member.process.as_ref().is_some_and(|process| process.gate().life() == Life::Running);
        let Some(mut process) = member.process.take_if(|_| running) else { return };
        let who = member.called();
        tell!(self.stage.trace, &who, "drains (abandon: {abandon})");
        inner.mishaps.drains += 1;
        if abandon {
            self.stage.troubles.befalls(&who);
        }
        drop(inner);
        process.drain(abandon);
        let processes = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = process.drained() => {}
                () = tokio::time::sleep(Duration::from_secs(20)) => {
                    process.kill();
                    processes.stage.troubles.befalls(&who);
                }
            }
            drop(process);
            processes.begin(place);
        });
    }
}

/// Hints without a cause, and again.
async fn rumour(rt: Runtime, gate: Gate, mut random: Random) {
    while gate.life() != Life::Dead {
        tokio::time::sleep(Duration::from_millis(random.between(1, 4_000))).await;
        rt.store.bus().timer_set();
    }
}

fn draw_member(stage: &Stage, random: &mut Random, place: u64, works: bool, ttl: Span) -> Member {
    let rate = i64::try_from(random.below(400_000)).unwrap_or(0) - 200_000;
    let rate = if stage.rates.drift { rate } else { 0 };
    let offset = i64::try_from(random.below(7_200_000_000)).unwrap_or(0) - 3_600_000_000;
    let name = if works { format!("w{place}") } else { format!("a{place}") };
    let sweeps = SweepOptions { leases: Span::from_secs(1), outbox: Span::from_secs(1), timers: Span::from_secs(1) };
    let worker = works.then(|| WorkerOptions {
        heartbeat: Span::from_micros(ttl.micros() / 3),
        id: WorkerId::from(name.as_str()),
        lease_ttl: ttl,
        poll_interval: Span::from_millis(random.between(20, 2_000)),
        slots: usize::try_from(random.between(1, 4)).unwrap_or(1),
    });
    // Somebody must sweep: those that do not work do.
    let sweeps = (!works || random.chance(400)).then_some(sweeps);
    let settings = Settings { step_timeout: Span::from_secs(5), ..Settings::default() };
    let duties = Duties { settings, sweeps, shares_hints: stage.rates.hints != Hints::Dropped, worker };
    let clock = stage.clock.skewed(rate, offset);
    Member { clock, duties, incarnation: 0, name, process: None, random: random.fork() }
}
