//! What a plan can say beside a chain: steps that run at once, maps, loops and child jobs, all of no-op bodies.

use std::fmt::Write as _;
use std::sync::Arc;

use aetheris_core::event::EventKind;
use aetheris_core::id::{AgentName, JobId};
use aetheris_store::Scope;
use tokio::net::TcpListener;

use super::child::{Connection, Dev};
use super::memory::resident_mib;
use super::table::percentile;
use super::world::World;
use super::{Goal, Plan, Rows};
use crate::error::Error;

/// Steps that run at once, and child jobs.
const WIDE: usize = 100;
/// Turns of the loop that is replayed.
const TURNS: usize = 50;
/// Loops that run at once, and their turns before the one that does not end.
const LOOPS: (usize, usize) = (1_000, 19);
/// What each turn of theirs asks with, as JSON, and is given again: 4 KiB in all.
const TURN_BYTES: usize = 2_048;

/// Measures.
pub(crate) async fn measure(plan: &Plan, rows: &mut Rows) -> Result<(), Error> {
    let world = Arc::new(World::start(&plan.place, "plans", 256)?);
    fan_out(plan, &world, rows).await?;
    maps(plan, &world, rows).await?;
    replay(plan, &world, rows).await?;
    children(plan, &world, rows).await?;
    if let Some(world) = Arc::into_inner(world) {
        world.end().await;
    }
    loops_in_memory(plan, rows).await
}

async fn fan_out(plan: &Plan, world: &World, rows: &mut Rows) -> Result<(), Error> {
    let (mut nodes, mut all) = (String::new(), Vec::new());
    for step in 0..WIDE {
        let _ = writeln!(nodes, "    - {{ id: s{step}, kind: tool, tool: noop, input: null }}");
        all.push(format!("s{step}"));
    }
    let agent = world
        .put(&format!(
            "agent: wide\nmax_parallel_steps: {WIDE}\n{NOOP}plan:\n  nodes:\n{nodes}    - {{ id: end, kind: transform, needs: [{}], output: 1 }}\n",
            all.join(", ")
        ))
        .await?;
    let taken = spans(world, &agent, plan.rounds(200)).await?;
    let detail = format!("from the job's creation to its end, by the store's clock; p99 {:.1} ms", millis(&taken, 99));
    rows.add(&format!("{WIDE} steps at once, joined"), (millis(&taken, 50), "ms"), Goal::AtMost(6.0), detail);
    Ok(())
}

async fn maps(plan: &Plan, world: &World, rows: &mut Rows) -> Result<(), Error> {
    let mut rates = Vec::new();
    for (items, rounds) in [(1_000_u32, 50), (10_000, 10)] {
        let agent = world
            .put(&format!(
                "agent: map{items}\n{NOOP}plan:\n  nodes:\n    - {{ id: m, kind: map, over: \"{{{{ range({items}) | list }}}}\", concurrency: 64, do: {{ kind: tool, tool: noop, input: null }} }}\n"
            ))
            .await?;
        let taken = spans(world, &agent, plan.rounds(rounds)).await?;
        rates.push(f64::from(items) / (percentile(&taken, 50) / 1_000_000.0));
    }
    let [small, large] = rates.as_slice() else { return Ok(()) };
    let detail = "64 at a time, from the job's creation to its end";
    rows.add("map of 1,000 items", (*small, "items/s"), Goal::AtLeast(20_000.0), detail);
    let detail = format!("{large:.0} items/s; the rate of 1,000 over that of 10,000");
    rows.add("map of 10,000 items", (small / large, "times"), Goal::AtMost(1.3), detail);
    Ok(())
}

/// A loop is not asked again when its job is taken over: what it takes to read and fold it.
async fn replay(plan: &Plan, world: &World, rows: &mut Rows) -> Result<(), Error> {
    let agent = world.put(&looping("loop", TURNS, "", "")).await?;
    let job = world.submit(&agent).await?;
    completed(world, job).await?;
    let mut taken = Vec::new();
    for _ in 0..plan.rounds(100) {
        let start = world.now();
        let history = world.store().history(Scope::System, job, true).await.map_err(anyhow::Error::from)?;
        let history = history.ok_or_else(|| anyhow::anyhow!("{job} has no history"))?;
        aetheris_runtime::load::Loaded::fold(history).map_err(anyhow::Error::from)?;
        taken.push(u64::try_from((world.now() - start).as_micros()).unwrap_or(u64::MAX));
    }
    taken.sort_unstable();
    let detail = format!("each with a call; nothing is asked or called; p99 {:.1} ms", millis(&taken, 99));
    rows.add(&format!("replay of a loop of {TURNS} turns"), (millis(&taken, 50), "ms"), Goal::AtMost(5.0), detail);
    Ok(())
}

async fn children(plan: &Plan, world: &World, rows: &mut Rows) -> Result<(), Error> {
    world.put("agent: child\nplan:\n  nodes:\n    - { id: n, kind: transform, output: 1 }\n").await?;
    let agent = world
        .put(&format!(
            "agent: parent\nplan:\n  nodes:\n    - {{ id: m, kind: map, over: \"{{{{ range({WIDE}) | list }}}}\", concurrency: {WIDE}, do: {{ kind: job, agent: child, message: {{}} }} }}\n"
        ))
        .await?;
    let taken = spans(world, &agent, plan.rounds(50)).await?;
    let detail = format!("created, run and joined; p99 {:.1} ms", millis(&taken, 99));
    rows.add(&format!("{WIDE} child jobs"), (millis(&taken, 50), "ms"), Goal::AtMost(40.0), detail);
    Ok(())
}

/// Loops in the middle of their last call: all that they have heard is held.
async fn loops_in_memory(plan: &Plan, rows: &mut Rows) -> Result<(), Error> {
    let (loops, turns) = LOOPS;
    let folder = plan.place.folder("loops")?;
    let deaf = TcpListener::bind("127.0.0.1:0").await.map_err(anyhow::Error::from)?;
    let port = deaf.local_addr().map_err(anyhow::Error::from)?.port();
    let never =
        format!("  z: {{ kind: http, effect: pure, method: GET, url: \"http://127.0.0.1:{port}/\", timeout: 5m }}\n");
    let file = folder.join("loops.yaml");
    std::fs::write(&file, looping("loops", turns, &never, ", z")).map_err(anyhow::Error::from)?;
    let dev = Dev::start(&folder, Some(&file), loops).await?;
    let empty = resident_mib(dev.pid())?;
    let mut client = Connection::open(dev.address).await?;
    let text = "x".repeat(TURN_BYTES - serde_json::json!({ "text": "" }).to_string().len());
    let message = serde_json::json!({ "message": { "text": text } }).to_string();
    for _ in 0..loops {
        let (status, _) = client.call("POST", "/api/agents/loops/message", &message).await?;
        if status != 202 {
            return Err(Error::Internal(anyhow::anyhow!("a message was answered with {status}")));
        }
    }
    // Each that comes stays, and none is answered.
    let mut held = Vec::new();
    while held.len() < loops {
        held.push(deaf.accept().await.map_err(anyhow::Error::from)?);
    }
    let used = resident_mib(dev.pid())? - empty;
    let detail = format!("{} turns of 4 KiB each, in the middle of a call; more than the process had empty", turns + 1);
    rows.add("memory of 1,000 running loops", (used, "MiB"), Goal::AtMost(200.0), detail);
    drop(held);
    dev.kill().await
}

const NOOP: &str = "tools:\n  noop: { kind: function, function: builtin.noop, effect: pure }\n";

/// A loop that calls each of so many tools once, with the message as its argument, and then others.
fn looping(name: &str, turns: usize, more_tools: &str, then: &str) -> String {
    let mut tools = String::new();
    for turn in 0..turns {
        let _ = writeln!(tools, "  t{turn}: {{ kind: function, function: builtin.echo, effect: pure }}");
    }
    let names: Vec<String> = (0..turns).map(|turn| format!("t{turn}")).collect();
    format!(
        "agent: {name}\nmodel: scripted/tools\nstep_timeout: 5m\ntools:\n{tools}{more_tools}plan:\n  nodes:\n    - {{ id: n, kind: agent, prompt: \"{{{{ message }}}}\", tools: [{}{then}], max_turns: 100 }}\n",
        names.join(", ")
    )
}

/// So many jobs one after the other, from their creation to their end by the store's clock, in microseconds and sorted.
async fn spans(world: &World, agent: &AgentName, rounds: usize) -> Result<Vec<u64>, Error> {
    let mut taken = Vec::new();
    for _ in 0..rounds {
        let job = world.submit(agent).await?;
        taken.push(completed(world, job).await?);
    }
    taken.sort_unstable();
    Ok(taken)
}

/// Waits for a job's end; how long it took. Nobody follows it: a watcher that wakes at each write would be measured with it.
async fn completed(world: &World, job: JobId) -> Result<u64, Error> {
    loop {
        let row = world.row(job).await?;
        if row.status.is_terminal() {
            if row.status != aetheris_core::job::JobStatus::Completed {
                return Err(Error::Internal(anyhow::anyhow!("{job} is {:?}: {:?}", row.status, row.error)));
            }
            let last = world.store().events(Scope::System, job, row.seq.saturating_sub(1), 1).await;
            let last = last.map_err(anyhow::Error::from)?;
            let ended = last.iter().find(|event| event.kind == EventKind::JobCompleted.code());
            let ended = ended.ok_or_else(|| anyhow::anyhow!("{job} has no end"))?;
            return Ok(ended.at.since(row.created_at).micros());
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

fn millis(sorted: &[u64], percent: usize) -> f64 {
    percentile(sorted, percent) / 1_000.0
}
