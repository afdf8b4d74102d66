//! The exhaustive search over what production runs: of each kind of work the smallest programs, and in each of them every blow
//! at every place at which a run and the world meet, one at a time or by twos.
//!
//! Seeds draw what goes wrong, so that a rare place is struck rarely; here nothing is drawn. What is judged, and by whom, is
//! the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use aetheris_core::plan::EffectClass;
use aetheris_testing::random::Random;

use crate::planners::Planner;
use crate::program::{Kind, Policy, Program};
use crate::seed::{self, Backend, Outcome};
use crate::strikes::{Blow, Plan, Site, Strikes};

/// A kind of work that a search has worlds of.
struct Wanted {
    name: &'static str,
    is: fn(&Program) -> bool,
}

/// Most nodes of a program that is searched.
const NODES_MAX: usize = 4;
/// Most seeds that are looked at for a kind.
const SEEDS_MAX: u64 = 100_000;
/// Programs of each kind that are searched: those with the fewest places to strike, of so many.
const EACH: usize = 2;
const DRAWN: usize = 12;
/// A program with fewer places does too little.
const SITES_MIN: usize = 15;

const WANTED: [Wanted; 16] = [
    Wanted { name: "calls", is: |p| has_tool(p, EffectClass::AtMostOnce) && is_plain(p) && p.steps.len() > 1 },
    Wanted { name: "idempotent calls", is: |p| has_tool(p, EffectClass::Idempotent) && is_plain(p) },
    Wanted { name: "doubts", is: |p| is_plain(p) && p.steps.iter().any(|step| policies(&step.kind) > 1) },
    Wanted { name: "waits", is: |p| is_plain(p) && p.steps.iter().any(|s| matches!(s.kind, Kind::Wait { .. })) },
    Wanted { name: "steps at once", is: |p| p.parallel > 1 && has_tool(p, EffectClass::AtMostOnce) },
    Wanted { name: "joins", is: |p| !p.rules.is_empty() && p.steps.len() > 2 && p.rules.iter().any(|r| r.may_fail) },
    Wanted { name: "map", is: |p| p.maps.iter().any(|(place, map)| map.count > 1 && is_tool(p, *place)) },
    Wanted { name: "child", is: |p| !p.children.is_empty() && p.maps.is_empty() },
    Wanted {
        name: "children of a map",
        is: |p| p.maps.iter().any(|(at, map)| map.count > 1 && p.children.contains(at)),
    },
    Wanted { name: "rounds", is: |p| p.judged.iter().any(|(at, judging)| judging.most > 1 && is_tool(p, *at)) },
    Wanted { name: "critic", is: |p| p.judged.values().any(|judging| judging.critic && judging.most > 0) },
    Wanted { name: "loop", is: |p| p.loops.keys().any(|at| is_tool(p, *at)) && p.maps.is_empty() },
    Wanted { name: "loops of a map", is: |p| p.loops.keys().any(|at| p.maps.get(at).is_some_and(|map| map.count > 1)) },
    Wanted { name: "question", is: |p| !p.people.is_empty() },
    Wanted { name: "plan", is: |p| matches!(p.planner, Planner::Model { review: false, wrong: 1.. }) },
    Wanted { name: "reviewed plan", is: |p| matches!(p.planner, Planner::Model { review: true, .. }) },
];

fn policies(kind: &Kind) -> usize {
    match kind {
        Kind::Tool { policies, .. } if policies.contains(&Policy::Human) => policies.len(),
        Kind::Tool { .. }
        | Kind::Model
        | Kind::Wait { .. }
        | Kind::Timer(_)
        | Kind::Sleep(_)
        | Kind::Transform
        | Kind::Condition => 0,
    }
}

fn is_tool(program: &Program, place: usize) -> bool {
    matches!(program.steps.get(place).map(|step| &step.kind), Some(Kind::Tool { class: EffectClass::AtMostOnce, .. }))
}

fn has_tool(program: &Program, wanted: EffectClass) -> bool {
    program.steps.iter().any(|step| matches!(step.kind, Kind::Tool { class, .. } if class == wanted))
}

/// Whether it is a chain of steps, and nothing more.
fn is_plain(program: &Program) -> bool {
    let Program { children, loops, maps, judged, people, rules, planner, .. } = program;
    let beside = loops.is_empty() && maps.is_empty() && judged.is_empty() && people.is_empty() && rules.is_empty();
    beside && children.is_empty() && program.parallel == 0 && *planner == Planner::Static
}

/// A program that is searched.
#[derive(Debug, Clone)]
pub struct World {
    /// What it is a program of.
    pub kind: &'static str,
    /// The seed that draws it, and decides all in it but what strikes.
    pub seed: u64,
    program: Arc<Program>,
}

/// Small programs of each kind, of the first that seeds draw. None is searched twice.
///
/// # Errors
/// A runtime cannot be made.
pub fn worlds() -> std::io::Result<Vec<World>> {
    let mut found: Vec<World> = Vec::new();
    for Wanted { name, is } in &WANTED {
        let drawn = (1..=SEEDS_MAX).map(|seed| (seed, Program::draw(&mut Random::new(seed), "agent-0", 1)));
        let fits = |program: &Program| program.steps.len() <= NODES_MAX && program.deadline.is_none() && is(program);
        let is_new = |seed: u64| found.iter().all(|world| world.seed != seed);
        let fitting = drawn.filter(|(seed, program)| is_new(*seed) && fits(program)).take(DRAWN);
        let mut sized: Vec<(usize, World)> = Vec::new();
        for (seed, program) in fitting {
            let world = World { kind: name, seed, program: Arc::new(program) };
            let strikes = Strikes::planned(Plan::new());
            seed::run_planned((seed, &world.program), &strikes, Backend::Memory)?;
            sized.push((strikes.met().len(), world));
        }
        sized.retain(|(sites, _)| *sites >= SITES_MIN);
        sized.sort_by_key(|(sites, world)| (*sites, world.seed));
        found.extend(sized.into_iter().take(EACH).map(|(_, world)| world));
    }
    Ok(found)
}

/// The kinds that a search has worlds of.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    WANTED.iter().map(|wanted| wanted.name)
}

/// What is searched, and how.
#[derive(Debug, Clone)]
pub struct Search {
    /// What keeps the facts.
    pub backend: Backend,
    /// How many blows strike one run.
    pub blows: usize,
    /// Whether the first failure ends the search.
    pub stop_at_failure: bool,
    /// On how many threads.
    pub threads: usize,
    /// The programs.
    pub worlds: Vec<World>,
}

/// A run that failed.
#[derive(Debug, Clone)]
pub struct Failed {
    /// What was struck, and by what.
    pub plan: Plan,
    /// What it showed.
    pub outcome: Outcome,
    /// The program.
    pub world: World,
}

/// What a search has shown.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Runs that failed, the first few.
    pub failures: Vec<Failed>,
    /// How many failed.
    pub failed: u64,
    /// Runs by kind.
    pub runs: BTreeMap<&'static str, u64>,
    /// Every blow that has struck, and where.
    pub struck: BTreeSet<(Site, Blow)>,
}

impl Found {
    /// How many runs there were.
    #[must_use]
    pub fn in_all(&self) -> u64 {
        self.runs.values().sum()
    }

    /// Blows that have struck nowhere, though so many at once could.
    #[must_use]
    pub fn unstruck(&self, blows: usize) -> Vec<(Site, Blow)> {
        let reached = Site::ALL.into_iter().filter(|site| blows > 1 || !site.follows_another());
        let all = reached.flat_map(|site| site.blows().iter().map(move |blow| (site, *blow)));
        all.filter(|of| !self.struck.contains(of)).collect()
    }
}

/// How many failures are kept with their stories.
const FAILURES_KEPT_MAX: usize = 10;

/// What is still to be run. Runs add to it what they have met.
struct Queue {
    found: Found,
    /// Runs that may still add to it.
    open: usize,
    left: VecDeque<(usize, Plan)>,
}

struct Shared<'s> {
    search: &'s Search,
    added: Condvar,
    queue: Mutex<Queue>,
    stopped: AtomicBool,
    done: AtomicU64,
}

impl Shared<'_> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be run next; waits for it as long as there may be something.
    fn next(&self) -> Option<(usize, Plan)> {
        let mut queue = self.queue();
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(next) = queue.left.pop_front() {
                queue.open += 1;
                return Some(next);
            }
            if queue.open == 0 {
                return None;
            }
            queue = self.added.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs one plan, and adds those with one blow more behind its last.
    fn run(&self, world: usize, plan: Plan) -> std::io::Result<()> {
        let Some(of) = self.search.worlds.get(world) else { return Ok(()) };
        let strikes = Strikes::planned(plan.clone());
        let mut outcome = seed::run_planned((of.seed, &of.program), &strikes, self.search.backend)?;
        let (met, dealt) = (strikes.met(), strikes.dealt());
        let all = dealt.len() == plan.len();
        outcome.tally.case("DEALT", all, || format!("of the blows {plan:?} only {dealt:?} were dealt"));
        let mut queue = self.queue();
        let Queue { found, left, .. } = &mut *queue;
        *found.runs.entry(of.kind).or_default() += 1;
        found.struck.extend(dealt);
        let from = plan.last_key_value().map_or(0, |(place, _)| place + 1);
        if plan.len() < self.search.blows {
            for (place, site) in met.iter().enumerate().skip(from) {
                let further = site.blows().iter().map(|blow| {
                    let mut plan = plan.clone();
                    plan.insert(place, *blow);
                    (world, plan)
                });
                left.extend(further);
            }
        }
        if !outcome.tally.violations.is_empty() {
            found.failed += 1;
            if found.failures.len() < FAILURES_KEPT_MAX {
                found.failures.push(Failed { plan, outcome, world: of.clone() });
            }
            self.stopped.fetch_or(self.search.stop_at_failure, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Searches. `progress` is told how many runs are done, of how many that are known of.
///
/// # Errors
/// A runtime cannot be made.
pub fn run(search: &Search, progress: impl Fn(u64, usize) + Sync) -> std::io::Result<Found> {
    seed::watch_panics();
    let left = (0..search.worlds.len()).map(|world| (world, Plan::new())).collect();
    let queue = Mutex::new(Queue { found: Found::default(), open: 0, left });
    let (stopped, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let shared = Shared { search, added: Condvar::new(), queue, stopped, done };
    let work = || -> std::io::Result<()> {
        while let Some((world, plan)) = shared.next() {
            let ran = catch_unwind(AssertUnwindSafe(|| shared.run(world, plan)));
            let ran = ran.unwrap_or_else(|_| Err(std::io::Error::other("a run of the search panicked")));
            // Nobody waits for what a thread that gives up would have added.
            shared.stopped.fetch_or(ran.is_err(), Ordering::Relaxed);
            let mut queue = shared.queue();
            queue.open -= 1;
            let left = queue.left.len();
            drop(queue);
            shared.added.notify_all();
            ran?;
            progress(shared.done.fetch_add(1, Ordering::Relaxed) + 1, left);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..search.threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread of the search panicked")))
        })
    })?;
    Ok(shared.queue.into_inner().unwrap_or_else(PoisonError::into_inner).found)
}
