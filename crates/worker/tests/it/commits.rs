//! How many durable commits a chain costs.

use aetheris_core::job::JobStatus;
use serde_json::json;

use crate::world::World;

fn chain(effect: &str, nodes: usize) -> String {
    let mut file = format!(
        "agent: chain\nversion: \"1\"\nplanner: static\ntools:\n  t: {{ kind: function, function: builtin.noop, effect: {effect} }}\nplan:\n  nodes:\n"
    );
    for n in 0..nodes {
        let needs = if n == 0 { String::new() } else { format!(", needs: [n{}]", n - 1) };
        file.push_str(&format!("    - {{ id: n{n}, kind: tool, tool: t{needs} }}\n"));
    }
    file
}

/// Units of the job's run: all, less the one that creates it.
async fn commits_of(effect: &str, nodes: usize) -> u64 {
    let world = World::new();
    world.put(&chain(effect, nodes)).await;
    let _process = world.start("w");
    let before = world.rt.store.status().await.unwrap().writer.units;
    let job = world.submit("chain", json!({})).await;
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(world.tools.count("t"), nodes);
    world.rt.store.status().await.unwrap().writer.units - before - 1
}

/// Where each is written at once. What goes on while a unit is written shares the next (`overlap.rs`).
#[tokio::test(start_paused = true)]
async fn a_chain_of_n_plain_steps_costs_n_commits() {
    assert_eq!(commits_of("pure", 10).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_n_ledger_steps_costs_n_plus_one() {
    assert_eq!(commits_of("at_most_once", 10).await, 11);
    assert_eq!(commits_of("idempotent", 10).await, 11);
}
