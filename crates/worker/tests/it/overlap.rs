//! What goes on while a unit of the job is being written, and what waits.

use std::time::Duration;

use aetheris_core::event::Event;
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_store::Purpose;
use aetheris_store::faulty::{Fault, FaultKind, FaultPlan, Op};
use serde_json::json;

use crate::world::{Act, Process, World, done, hold, unknown};

/// `n` and `m` in this process, and `o`, by HTTP where it `leaves`; each after the one before.
fn agent(leaves: bool) -> String {
    let outside =
        if leaves { "kind: http, method: GET, url: \"http://look.test/\"" } else { "kind: function, function: f" };
    format!(
        "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  look: {{ kind: function, function: f, effect: pure }}\n  \
         ask: {{ {outside}, effect: pure }}\nplan:\n  nodes:\n    - {{ id: n, kind: tool, tool: look }}\n    \
         - {{ id: m, kind: tool, tool: look, needs: [n] }}\n    - {{ id: o, kind: tool, tool: ask, needs: [m] }}\n"
    )
}

/// The first write of results meets this.
fn first(world: &World, fault: Fault) -> Process {
    world.start_behind("w", FaultPlan::none().script(Op::Commit(Purpose::Record), [Some(fault)]))
}

/// The nodes whose ends are written.
async fn written(world: &World, job: aetheris_core::id::JobId) -> Vec<String> {
    let ended = |event| match event {
        Event::NodeFinished(finished) => Some(finished.node.to_string()),
        _ => None,
    };
    world.events(job).await.into_iter().filter_map(ended).collect()
}

#[tokio::test(start_paused = true)]
async fn functions_go_on_while_a_unit_is_written_and_what_they_gave_is_the_next() {
    let world = World::new();
    world.put(&agent(false)).await;
    let _process = first(&world, Fault::Delay(Span::from_secs(5)));
    let before = world.rt.store.status().await.unwrap().writer.units;
    let job = world.submit("a", json!(null)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((world.tools.count("look"), world.tools.count("ask")), (2, 1));
    assert_eq!(written(&world, job).await, Vec::<String>::new());
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(written(&world, job).await, ["n", "m", "o"]);
    assert_eq!((world.tools.count("look"), world.tools.count("ask")), (2, 1));
    // Its creation, the first result, and all the others with its end.
    assert_eq!(world.rt.store.status().await.unwrap().writer.units - before, 3);
}

#[tokio::test(start_paused = true)]
async fn what_leaves_the_process_waits_for_all_that_is_before_it() {
    let world = World::new();
    world.put(&agent(true)).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("ask", [act]);
    let _process = first(&world, Fault::Delay(Span::from_secs(5)));
    let job = world.submit("a", json!(null)).await;
    reached.notified().await;
    assert_eq!(written(&world, job).await, ["n", "m"]);
    release.notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// Something else was written meanwhile that the unit does not fit: neither it nor what ran ahead of it is written.
#[tokio::test(start_paused = true)]
async fn what_ran_ahead_of_a_refused_unit_is_dropped() {
    let world = World::new();
    world.put(&agent(false)).await;
    let _process = first(&world, Fault::Delay(Span::from_secs(5)));
    let job = world.submit("a", json!(null)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.tools.count("ask"), 1);
    world.rt.pause(job).await.unwrap();
    world.until(job, &[JobStatus::Paused]).await;
    // Nothing starts once a pause is asked for, and the start of `n` was not written yet.
    assert_eq!(written(&world, job).await, Vec::<String>::new());
    world.rt.resume(job).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(written(&world, job).await, ["n", "m", "o"]);
    let nodes: Vec<_> = world.tools.calls_of("look").iter().map(|call| call.node.to_string()).collect();
    assert_eq!((nodes, world.tools.count("ask")), (["n", "m", "n", "m"].map(str::to_owned).to_vec(), 2));
}

/// The job does not wait either: the block goes with what it stood on.
#[tokio::test(start_paused = true)]
async fn a_block_that_was_drafted_behind_a_refused_unit_is_dropped() {
    let world = World::new();
    world
        .put(
            "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  look: { kind: function, function: f, effect: pure }\n\
             plan:\n  nodes:\n    - { id: n, kind: tool, tool: look }\n    \
             - { id: m, kind: tool, tool: look, needs: [n] }\n    \
             - { id: w, kind: wait, needs: [m], wait_type: signal, correlation_key: k }\n    \
             - { id: o, kind: tool, tool: look, needs: [w] }\n",
        )
        .await;
    let _process = first(&world, Fault::Delay(Span::from_secs(5)));
    let job = world.submit("a", json!(null)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The block is drafted behind the result of `m`, and that of `n` is on its way.
    assert_eq!((world.tools.count("look"), written(&world, job).await.len()), (2, 0));
    world.rt.pause(job).await.unwrap();
    let paused = world.until(job, &[JobStatus::Paused]).await;
    assert_eq!((paused.fence.epoch, written(&world, job).await.len()), (1, 0));
    world.rt.resume(job).await.unwrap();
    world.until(job, &[JobStatus::Waiting]).await;
    world.signal(job, "k", json!("yes")).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(written(&world, job).await, ["n", "m", "w", "o"]);
    assert_eq!(world.tools.count("look"), 5, "what had run ahead ran again");
}

/// Whatever becomes of the unit or its answer: each end is written once.
#[tokio::test(start_paused = true)]
async fn a_unit_whose_writing_fails_is_written_once_and_before_what_ran_ahead() {
    let soon = Span::from_secs(2);
    for (fault, kind) in [
        (Fault::Before, FaultKind::Before),
        (Fault::After, FaultKind::After),
        (Fault::Lost, FaultKind::Lost),
        (Fault::Broken(soon), FaultKind::Broken),
        (Fault::Slow(soon), FaultKind::Slow),
        (Fault::Late(Span::from_micros(1)), FaultKind::Late),
        (Fault::PoolTimeout(soon), FaultKind::PoolTimeout),
    ] {
        let world = World::new();
        world.put(&agent(false)).await;
        let process = first(&world, fault);
        let job = world.submit("a", json!(null)).await;
        assert_eq!(world.done(job).await.status, JobStatus::Completed, "{fault:?}");
        assert_eq!(process.store.happened(kind), 1, "{fault:?}");
        assert_eq!(written(&world, job).await, ["n", "m", "o"], "{fault:?}");
        assert_eq!((world.tools.count("look"), world.tools.count("ask")), (2, 1), "{fault:?}");
    }
}

/// Its holder has lost it: nothing that ran ahead is written under a lease that another has.
#[tokio::test(start_paused = true)]
async fn what_ran_ahead_under_a_lost_lease_is_run_by_the_next() {
    let world = World::new();
    world.put(&agent(false)).await;
    let process = first(&world, Fault::Delay(Span::from_secs(100)));
    process.freeze_keeper();
    let job = world.submit("a", json!(null)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _second = world.start("second");
    let state = world.done(job).await;
    assert_eq!((state.status, state.fence.epoch), (JobStatus::Completed, 2));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(written(&world, job).await, ["n", "m", "o"]);
    assert_eq!((world.tools.count("look"), world.tools.count("ask")), (4, 2));
}

/// A function may take the process down: what came from outside is durable by then.
#[tokio::test(start_paused = true)]
async fn no_function_runs_while_an_answer_from_outside_is_unwritten() {
    for node in [
        "kind: tool, tool: pay",
        "kind: tool, tool: doubtful",
        "kind: llm, model: fake/m, prompt: p",
        "kind: tool, tool: page",
    ] {
        let world = World::new();
        world
            .put(&format!(
                "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  pay: {{ kind: function, function: f }}\n  \
                 doubtful: {{ kind: function, function: f, on_in_doubt: [{{ reconcile: ask }}, human] }}\n  \
                 ask: {{ kind: function, function: f, effect: pure }}\n  \
                 page: {{ kind: http, method: GET, url: \"http://look.test/\", effect: pure }}\n  \
                 look: {{ kind: function, function: f, effect: pure }}\nplan:\n  nodes:\n    - {{ id: p, {node} }}\n    \
                 - {{ id: n, kind: tool, tool: look, needs: [p] }}\n"
            ))
            .await;
        let (act, reached, release) = hold(done(json!(1)));
        world.tools.next("look", [act]);
        world.tools.next("doubtful", [Act::Say(unknown("cut off"))]);
        world.tools.next("ask", [Act::Say(done(json!({ "outcome": "happened", "result": 1 })))]);
        // Each write of results comes late, whichever has the answer.
        let late = vec![Some(Fault::Delay(Span::from_secs(5))); 3];
        let _process = world.start_behind("w", FaultPlan::none().script(Op::Commit(Purpose::Record), late));
        let job = world.submit("a", json!(null)).await;
        reached.notified().await;
        assert_eq!(written(&world, job).await, ["p"], "{node}");
        release.notify_one();
        assert_eq!(world.done(job).await.status, JobStatus::Completed, "{node}");
    }
}

/// What is not written is bounded: with so much of it the run waits for the unit on its way.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_far_ahead_waits() {
    // Behind the first, which is on its way, the second and third together are too much.
    for (bytes, ahead) in [(limits::UNWRITTEN_BYTES_MAX / 4, 4), (limits::UNWRITTEN_BYTES_MAX * 3 / 4, 3)] {
        let world = World::new();
        let node = |n: usize| format!("    - {{ id: n{n}, kind: tool, tool: look, needs: [n{}] }}\n", n - 1);
        let file = agent(false).split_once("    - {").unwrap().0.to_owned();
        let nodes: String = (1..4).map(node).collect();
        world.put(&format!("{file}    - {{ id: n0, kind: tool, tool: look }}\n{nodes}")).await;
        world.tools.next("look", (0..4).map(|_| Act::Say(done(json!("x".repeat(bytes))))));
        let _process = first(&world, Fault::Delay(Span::from_secs(5)));
        let job = world.submit("a", json!(null)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.tools.count("look"), ahead, "{bytes}");
        assert_eq!(world.done(job).await.status, JobStatus::Completed);
    }
}
