//! What is done to a run: three hands that draw from the seed, one for processes, one for wires, one for the
//! world around them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_store::Purpose;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::backend::Backend;
use super::client::Clients;
use super::clock::HostClock;
use super::dice::Dice;
use super::nemesis::Log;
use super::nodes::{FULL_DISK_REACH, Held, Node, Order, Problems, Role};
use super::programs::Program;
use super::proxy::{Proxy, Spoil};
use super::starts::{Hardship, Stderr};
use super::stored::Stored;
use super::{poison, readers};

/// Everything that can be hurt.
pub struct World {
    /// The proxy before the API.
    pub api: Proxy,
    /// The store.
    pub backend: Arc<dyn Backend>,
    /// The clients, who put agents.
    pub clients: Arc<Clients>,
    /// The host's clock.
    pub host: HostClock,
    /// What was done.
    pub log: Log,
    /// The processes.
    pub nodes: Vec<Arc<Node>>,
    /// What went wrong.
    pub problems: Problems,
    /// The programs.
    pub programs: BTreeMap<String, Program>,
    /// The proxy before the tools.
    pub tools: Proxy,
    /// The version of each agent.
    pub versions: Mutex<BTreeMap<String, i64>>,
}

/// How long a lease is: what a long pause exceeds.
pub const LEASE: Duration = Duration::from_secs(2);
/// How long a process may take to stop when it is asked to: its calls are awaited.
const DRAIN: Duration = Duration::from_secs(8);
/// How often a process may be stopped again because it held the store's lock.
const STOP_TRIES: u32 = 40;

/// A fault of a process, and how often it is drawn.
const OF_PROCESSES: [(&str, u64); 21] = [
    ("worker_kill", 30),
    ("worker_kill_starting", 10),
    ("worker_crash_point", 14),
    ("worker_pause_long", 10),
    ("worker_pause_short", 12),
    ("worker_drain", 8),
    ("api_kill", 9),
    ("api_kill_starting", 4),
    ("api_pause", 6),
    ("api_drain", 4),
    ("all_killed", 2),
    ("worker_few_files", 6),
    ("api_few_files", 4),
    ("worker_start_few_files", 3),
    ("api_start_few_files", 2),
    ("worker_stderr_closed", 2),
    ("worker_stderr_broken", 2),
    ("worker_stderr_unread", 3),
    ("api_stderr_closed", 1),
    ("api_stderr_broken", 1),
    ("api_stderr_unread", 2),
];

/// A fault of the world.
const OF_THE_WORLD: [(&str, u64); 14] = [
    ("disk_full", 24),
    ("clock_forward", 14),
    ("clock_far_forward", 6),
    ("clock_back", 12),
    ("clock_day_forward", 2),
    ("clock_minutes_back", 3),
    ("clock_day_back", 2),
    ("clock_day_astray", 6),
    ("tools_down", 14),
    ("tools_slow", 8),
    ("agent_replaced", 20),
    ("api_flood", 10),
    ("poison_rows", 3),
    ("readers_that_do_not_read", 8),
];

/// A day, in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// A job with many events.
const LARGEST: &str = "SELECT id FROM jobs WHERE seq > 600 ORDER BY num DESC LIMIT 1";

fn draw(dice: &mut Dice, table: &[(&'static str, u64)]) -> &'static str {
    let mut place = dice.within(0..table.iter().map(|(_, weight)| weight).sum());
    for (name, weight) in table {
        if place < *weight {
            return name;
        }
        place -= weight;
    }
    table[0].0
}

/// The faults of a table: each once, from a drawn one on, and then as they are drawn.
struct Table {
    first: usize,
    list: &'static [(&'static str, u64)],
    round: usize,
}

impl Table {
    fn new(list: &'static [(&'static str, u64)], dice: &mut Dice) -> Self {
        let first = dice.within(0..u64::try_from(list.len()).unwrap_or(1));
        Self { first: usize::try_from(first).unwrap_or(0), list, round: 0 }
    }

    fn next(&mut self, dice: &mut Dice) -> &'static str {
        self.round += 1;
        if self.round <= self.list.len() {
            return self.list[(self.first + self.round) % self.list.len()].0;
        }
        draw(dice, self.list)
    }
}

/// All three hands, until they are stopped; what they have begun is ended before this returns. Dropped, they are
/// dropped with it.
pub async fn hurt(world: Arc<World>, seed: u64, stop: CancellationToken) {
    let mut hands = JoinSet::new();
    hands.spawn(processes(Arc::clone(&world), Dice::new(seed, 11), stop.clone()));
    hands.spawn(wires(Arc::clone(&world), Dice::new(seed, 12), stop.clone()));
    hands.spawn(surroundings(Arc::clone(&world), Dice::new(seed, 13), stop));
    while let Some(ended) = hands.join_next().await {
        if let Err(error) = ended {
            world.problems.add(format!("a hand of the nemesis: {error}"));
        }
    }
}

/// Sleeps; whether it goes on.
async fn pause(stop: &CancellationToken, time: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}

async fn processes(world: Arc<World>, mut dice: Dice, stop: CancellationToken) {
    let (mut under_way, mut table) = (JoinSet::new(), Table::new(&OF_PROCESSES, &mut dice));
    while pause(&stop, dice.millis(450..1_000)).await {
        let kind = table.next(&mut dice);
        let role = if kind.starts_with("api") { Role::Api } else { Role::Worker };
        let all: Vec<_> = world.nodes.iter().filter(|node| node.role == role).cloned().collect();
        let node = Arc::clone(dice.pick(&all));
        let dice = Dice::new(dice.roll(), 1);
        let world = Arc::clone(&world);
        under_way.spawn(async move { of_process(&world, kind, &node, dice).await });
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

async fn of_process(world: &World, kind: &'static str, node: &Node, mut dice: Dice) {
    if kind == "all_killed" {
        return all_killed(world).await;
    }
    let Some(mut held) = node.hold().await else { return };
    // A crash point counts when it is reached, and the keeper writes it down.
    let fault = (kind != "worker_crash_point").then(|| world.log.begin(kind, &node.target()));
    let done = match kind {
        "worker_pause_long" => {
            stopped(&mut held, LEASE + dice.millis(300..2_000)).await;
            Ok(())
        }
        "worker_pause_short" => {
            stopped(&mut held, dice.millis(30..900)).await;
            Ok(())
        }
        "api_pause" => {
            stopped(&mut held, dice.millis(100..2_500)).await;
            Ok(())
        }
        "worker_few_files" | "api_few_files" => {
            held.few_files(dice.within(0..6), dice.millis(200..2_000)).await;
            Ok(())
        }
        "worker_drain" | "api_drain" => {
            let drained = held.drain(DRAIN, &world.log).await;
            let then = held.start(&Order::default()).await;
            drained.and(then)
        }
        "worker_kill_starting" | "api_kill_starting" => {
            held.kill().await;
            let killed_after = Some(dice.millis(2..180));
            let short = held.start(&Order { killed_after, ..Order::default() }).await;
            let then = held.start(&Order::default()).await;
            short.and(then)
        }
        "worker_crash_point" => {
            held.kill().await;
            world.log.once("worker_kill", &node.target());
            held.start(&Order { crash: Some(crash_point(&mut dice)), ..Order::default() }).await
        }
        _ => {
            held.kill().await;
            held.start(&Order { hardship: hardship(kind, &mut dice), ..Order::default() }).await
        }
    };
    if let Some(fault) = fault {
        world.log.end(fault);
    }
    // A process that cannot start on a full disk is started by the keeper later.
    if let Err(error) = done
        && !world.log.was_on("disk_full", FULL_DISK_REACH)
    {
        world.problems.add(format!("{kind} of {}: {error:#}", node.name));
    }
}

/// What a fault of a start makes hard; nothing where the fault is another one.
fn hardship(kind: &str, dice: &mut Dice) -> Hardship {
    let easy = Hardship::default();
    match kind {
        // What the program needs at rest, and little more.
        "worker_start_few_files" => Hardship { open_files: Some(dice.within(40..72)), ..easy },
        "api_start_few_files" => Hardship { open_files: Some(dice.within(64..200)), ..easy },
        "worker_stderr_closed" | "api_stderr_closed" => Hardship { stderr: Stderr::Closed, ..easy },
        "worker_stderr_broken" | "api_stderr_broken" => Hardship { stderr: Stderr::Broken, ..easy },
        "worker_stderr_unread" | "api_stderr_unread" => Hardship { stderr: Stderr::Unread, ..easy },
        _ => easy,
    }
}

/// Stops a process for a while, where it holds no lock of the store if that can be had: what is stopped with
/// it in hand stops everybody, which is a shorter run and no better one.
async fn stopped(held: &mut Held<'_>, time: Duration) {
    for _ in 0..STOP_TRIES {
        held.stop().await;
        if !held.holds_write_lock() {
            break;
        }
        held.signal(Signal::CONT);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(time).await;
    held.signal(Signal::CONT);
}

async fn all_killed(world: &World) {
    let fault = world.log.begin("all_killed", "all");
    let mut all = Vec::new();
    for node in &world.nodes {
        if let Some(mut held) = node.hold().await {
            world.log.once(if node.role == Role::Worker { "worker_kill" } else { "api_kill" }, &node.target());
            held.kill().await;
            all.push(held);
        }
    }
    for mut held in all {
        if let Err(error) = held.start(&Order::default()).await
            && !world.log.was_on("disk_full", FULL_DISK_REACH)
        {
            world.problems.add(format!("after all were killed: {error:#}"));
        }
    }
    world.log.end(fault);
}

/// A point inside a durable write or around a call, with how often it is passed first.
fn crash_point(dice: &mut Dice) -> String {
    let mut points: Vec<String> = vec!["store.claim".into(), "store.heartbeat".into()];
    let of_workers =
        |purpose: &&Purpose| !matches!(purpose.as_str(), "create" | "signal" | "cancel" | "pause" | "resolve");
    points.extend(Purpose::ALL.iter().filter(of_workers).map(|purpose| format!("store.{}", purpose.as_str())));
    points.extend(["run.tool", "run.pure", "run.model"].map(str::to_owned));
    let point = dice.pick(&points).clone();
    let side = match (point.starts_with("store."), dice.chance(50)) {
        (true, true) => "before_commit",
        (true, false) => "after_commit",
        (false, true) => "before_call",
        (false, false) => "after_call",
    };
    format!("{point}.{side}@{}@kill", dice.within(1..4))
}

async fn wires(world: Arc<World>, mut dice: Dice, stop: CancellationToken) {
    while pause(&stop, dice.millis(120..420)).await {
        let stall = Spoil::Stall(dice.millis(50..1_200));
        let within = Spoil::CutWithin(usize::try_from(dice.within(1..6_000)).unwrap_or(1));
        let all = [
            Spoil::CutBefore,
            Spoil::CutAfter,
            Spoil::CutAfter,
            within,
            Spoil::EndWithin,
            Spoil::HalfOpen,
            Spoil::ResetAfter,
            Spoil::ResetBefore,
            stall,
            Spoil::Slices,
        ];
        let spoil = *dice.pick(&all);
        let proxy = if dice.chance(60) { &world.tools } else { &world.api };
        proxy.order(spoil);
    }
}

async fn surroundings(world: Arc<World>, mut dice: Dice, stop: CancellationToken) {
    let mut table = Table::new(&OF_THE_WORLD, &mut dice);
    while pause(&stop, dice.millis(1_000..2_600)).await {
        let kind = table.next(&mut dice);
        if kind == "disk_full" && !world.backend.can_fill() {
            continue;
        }
        let fault = world.log.begin(kind, "world");
        if let Err(error) = of_the_world(&world, kind, &mut dice).await {
            world.problems.add(format!("{kind}: {error:#}"));
        }
        world.log.end(fault);
    }
}

async fn of_the_world(world: &Arc<World>, kind: &str, dice: &mut Dice) -> anyhow::Result<()> {
    match kind {
        "disk_full" => {
            world.backend.fill()?;
            tokio::time::sleep(dice.millis(200..1_300)).await;
            world.backend.free()?;
        }
        "clock_forward" => world.host.jump(micros(dice.within(300..5_000)))?,
        "clock_far_forward" => world.host.jump(micros(dice.within(60_000..900_000)))?,
        "clock_back" => world.host.jump(-micros(dice.within(200..2_500)))?,
        "clock_day_forward" => world.host.jump(micros(DAY_MS))?,
        "clock_minutes_back" => world.host.jump(-micros(dice.within(60_000..900_000)))?,
        "clock_day_back" => world.host.jump(-micros(DAY_MS))?,
        "clock_day_astray" => {
            let far = if dice.chance(70) { micros(DAY_MS) } else { -micros(DAY_MS) };
            let far = world.host.stray(far)?;
            tokio::time::sleep(dice.millis(200..1_500)).await;
            world.host.take_back(far)?;
        }
        "tools_down" => {
            world.tools.down();
            tokio::time::sleep(dice.millis(100..1_500)).await;
            world.tools.up().await?;
        }
        "tools_slow" => {
            for _ in 0..6 {
                world.tools.order(Spoil::Stall(dice.millis(300..1_400)));
            }
        }
        "api_flood" => flood(world).await,
        "poison_rows" => {
            let database = world.backend.database();
            tokio::task::spawn_blocking(move || poison::plant(&database)).await??;
        }
        "readers_that_do_not_read" => {
            let job = world.clients.submitted_after(0).last().map_or_else(String::new, ToString::to_string);
            let large = Stored::open(&world.backend.database())?.names(LARGEST)?.pop();
            let time = dice.millis(500..2_500);
            readers::dawdle(world.api.upstream(), &large.unwrap_or(job), time).await;
        }
        _ => replaced(world, dice).await?,
    }
    Ok(())
}

fn micros(millis: u64) -> i64 {
    i64::try_from(millis.saturating_mul(1_000)).unwrap_or(0)
}

/// Connections that never say a whole request.
async fn flood(world: &World) {
    let mut open = Vec::new();
    for _ in 0..60 {
        if let Ok(mut stream) = TcpStream::connect(world.api.addr).await {
            let _ = stream.write_all(b"POST /api/agents/chaos-0/message HTTP/1.1\r\nhost: x\r\ncontent-le").await;
            open.push(stream);
        }
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
}

/// A new version of an agent, while jobs of the old one run.
async fn replaced(world: &Arc<World>, dice: &mut Dice) -> anyhow::Result<()> {
    let names: Vec<&String> = world.programs.keys().collect();
    let program = &world.programs[*dice.pick(&names)];
    let version = {
        let mut versions = world.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let version = versions.entry(program.agent.clone()).or_insert(1);
        *version += 1;
        *version
    };
    world.clients.put(program, &format!("http://{}", world.tools.addr), version).await
}

/// Ends every fault: what was ordered is forgotten, the room is given back, the clock stands where it was
/// furthest ahead, and no process is to die at a crash point or has few files any more.
///
/// # Errors
/// One cannot be ended.
pub async fn heal(world: &World) -> anyhow::Result<()> {
    world.tools.calm();
    world.api.calm();
    if world.backend.can_fill() {
        world.backend.free()?;
    }
    world.host.catch_up()?;
    for node in world.nodes.iter().filter(|node| node.is_armed()) {
        disarm(world, node).await;
    }
    Ok(())
}

/// Starts a process again that was to die at a crash point, or may open few files.
async fn disarm(world: &World, node: &Node) {
    let Some(mut held) = node.hold_soon().await else {
        return world.problems.add(format!("{} keeps its crash point or its few files: it cannot be had", node.name));
    };
    // Where it has died of it, the keeper has started it again.
    if !node.is_armed() {
        return;
    }
    world.log.once(if node.role == Role::Worker { "worker_kill" } else { "api_kill" }, &node.target());
    held.kill().await;
    if let Err(error) = held.start(&Order::default()).await {
        world.problems.add(format!("after its crash point or its few files were taken away, {}: {error:#}", node.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_table_is_drawn_about_as_often_as_it_says() {
        let (mut dice, mut seen) = (Dice::new(1, 1), BTreeMap::new());
        for _ in 0..10_000 {
            *seen.entry(draw(&mut dice, &OF_PROCESSES)).or_insert(0u32) += 1;
        }
        assert_eq!(seen.len(), OF_PROCESSES.len());
        assert!(seen["worker_kill"] > seen["all_killed"]);
    }

    #[test]
    fn crash_points_are_of_the_form_that_processes_take() {
        let mut dice = Dice::new(1, 1);
        for _ in 0..100 {
            let order = crash_point(&mut dice);
            assert_eq!(order.split('@').count(), 3, "{order}");
        }
    }
}
