//! What nodes wait for, and what a failure means to those behind it.

use std::time::Duration;

use aetheris_core::event::{Event, Failure, Need, SkipReason};
use aetheris_core::job::JobStatus;
use aetheris_core::step::StepStatus;
use aetheris_runtime::ToolOutcome;
use serde_json::{Value, json};

use crate::world::{Act, World, done, hold, unknown};

fn agent(bound: usize, nodes: &str) -> String {
    let tool = |name: &str| format!("  {name}: {{ kind: function, function: f, effect: pure }}\n");
    let tools: String = ["a", "b", "c"].iter().map(|name| tool(name)).collect();
    format!(
        "agent: a\nmax_parallel_steps: {bound}\nretry: {{ max_attempts: 1 }}\ntools:\n{tools}plan:\n  nodes:\n{nodes}"
    )
}

fn call(name: &str, more: &str) -> String {
    format!("    - {{ id: {name}, kind: tool, tool: {name}{more} }}\n")
}

fn no(code: &str) -> ToolOutcome {
    ToolOutcome::RefusedPermanent(Failure::new(code, "never"))
}

/// What the nodes behind a failure see of it, in a job that goes on.
#[tokio::test(start_paused = true)]
async fn a_failure_that_may_be_is_seen_by_the_nodes_behind_it() {
    for bound in [1, 8] {
        let world = World::new();
        let roll_back = "    - { id: back, kind: tool, tool: b, needs: [a], when: nodes.a.failed }\n    \
            - { id: on, kind: tool, tool: c, needs: [a], when: not nodes.a.failed }\n    \
            - { id: said, kind: transform, needs: [back, on], output: \"{{ [nodes.a.error.code, nodes.a.skipped, \
            nodes.on.skipped, nodes.a.output | default(0)] }}\" }\n";
        world.put(&agent(bound, &(call("a", ", on_failure: fail_safe") + roll_back))).await;
        world.tools.next("a", [Act::Say(no("unhealthy"))]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
        assert_eq!(state.node_status(&"a".into()), StepStatus::Failed);
        assert_eq!(world.result(job).await, json!(["unhealthy", false, true, 0]));
        assert_eq!((world.tools.count("b"), world.tools.count("c")), (1, 0));
    }
}

/// Whoever does not say so fails the job, and the smallest name of those counts.
#[tokio::test(start_paused = true)]
async fn of_two_failures_the_one_that_may_not_be_fails_the_job() {
    for bound in [1, 8] {
        let world = World::new();
        world.put(&agent(bound, &(call("a", ", on_failure: fail_safe") + &call("b", "")))).await;
        for name in ["a", "b"] {
            world.tools.next(name, [Act::Say(no(name))]);
        }
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        let Some(aetheris_core::state::Ending::Failed { error, node }) = state.ending.clone() else {
            panic!("{state:?}")
        };
        assert_eq!((error.code.as_str(), node), ("b", Some("b".into())));
    }
}

/// A call of unknown outcome that nobody is asked about is a failure like others, and stays in the list of doubts.
#[tokio::test(start_paused = true)]
async fn a_doubt_that_is_given_up_may_be_a_failure_that_may_be() {
    let world = World::new();
    let nodes = call("a", ", on_failure: fail_safe")
        + "    - { id: said, kind: transform, needs: [a], output: \"{{ nodes.a.error.code }}\" }\n";
    let file = agent(1, &nodes).replace("effect: pure }", "effect: at_most_once, on_in_doubt: fail }");
    world.put(&file).await;
    world.tools.next("a", [Act::Say(unknown("reset"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!((state.status, world.result(job).await), (JobStatus::Completed, json!("in_doubt_unresolved")));
    assert!(state.steps[&"a".into()].left_in_doubt(state.status).is_some());
}

/// What the job as a whole has used up fails it, whatever one node says.
#[tokio::test(start_paused = true)]
async fn a_budget_that_is_used_up_fails_the_job_whatever_its_nodes_say() {
    let world = World::new();
    let file = agent(1, &(call("a", "") + &call("b", ", on_failure: fail_safe")));
    world
        .put(
            &file
                .replace("tools:", "budget: { max_tool_calls: 1 }\ntools:")
                .replace("effect: pure", "effect: idempotent"),
        )
        .await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!((state.status, world.tools.count("b")), (JobStatus::Failed, 0));
}

/// The first of two goes on at once, and sees the other as open for ever, in each of its tries.
#[tokio::test(start_paused = true)]
async fn a_race_goes_on_with_the_first_and_sees_the_other_as_open() {
    let world = World::new();
    let nodes = call("a", "")
        + &call("b", "")
        + "    - id: first\n      kind: tool\n      tool: c\n      needs: [a, b]\n      join: any\n      \
           retry: { max_attempts: 2, backoff: 100ms }\n      \
           input: { open: \"{{ nodes.a.open }}\", b: \"{{ nodes.b.output }}\", late: \"{{ nodes.a.output | default('none') }}\" }\n    \
           - { id: behind, kind: transform, needs: [first], output: \"{{ [nodes.a.open, nodes.first.output] }}\" }\n  \
           answer: \"{{ [nodes.behind.output, nodes.a.output] }}\"\n";
    world.put(&agent(8, &nodes)).await;
    let (act, _, release) = hold(done(json!("slow")));
    world.tools.next("a", [act]);
    world.tools.next("b", [Act::Say(done(json!("quick")))]);
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    let (act, reached, fail) = hold(busy);
    world.tools.next("c", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    assert_eq!(world.state(job).await.node_status(&"a".into()), StepStatus::Running);
    // The other ends between two tries.
    release.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    fail.notify_one();
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
    let seen = json!({ "open": true, "b": "quick", "late": "none" });
    for call in world.tools.calls_of("c") {
        assert_eq!(call.input.value(), &seen);
    }
    assert_eq!(world.tools.count("c"), 2);
    // What stands behind it starts after both have ended, and sees them so.
    assert_eq!(world.result(job).await, json!([[false, seen], "slow"]));
    let started = world.events(job).await.into_iter().find_map(|event| match event {
        Event::NodeStarted(e) if e.node == "first".into() => Some(e.needs),
        _ => None,
    });
    assert_eq!(started.unwrap(), [("a".into(), Need::Open), ("b".into(), Need::Completed)].into());
}

/// A killed process has started the node behind a race: whoever takes the job over shows it the same.
#[tokio::test(start_paused = true)]
async fn what_a_node_sees_of_a_race_outlives_its_run() {
    let world = World::new();
    let nodes = call("a", "")
        + &call("b", "")
        + "    - { id: first, kind: tool, tool: c, needs: [a, b], join: any, input: \"{{ nodes.a.open }}\" }\n";
    world.put(&agent(8, &nodes)).await;
    let (act, _, release) = hold(done(json!("slow")));
    let (never, reached, _) = hold(done(json!("never")));
    world.tools.next("a", [act]);
    world.tools.next("c", [never]);
    let first = world.start("first");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    world.start_shown(job, "first").await;
    release.notify_one();
    while world.state(job).await.node_status(&"a".into()) != StepStatus::Completed {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.kill();
    let _second = world.start("second");
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    let given: Vec<Value> = world.tools.calls_of("c").iter().map(|call| call.input.value().clone()).collect();
    assert_eq!(given, [json!(true), json!(true)]);
}

/// Too few have completed, and no more can.
#[tokio::test(start_paused = true)]
async fn a_quorum_that_cannot_be_met_is_skipped() {
    for bound in [1, 8] {
        for (failing, met) in [(&["a"][..], true), (&["a", "b"], false)] {
            let world = World::new();
            let safe = ", on_failure: fail_safe";
            let nodes = [call("a", safe), call("b", safe), call("c", safe)].concat()
                + "    - { id: n, kind: transform, needs: [a, b, c], join: { quorum: 2 }, output: 1 }\n    \
                   - { id: last, kind: transform, needs: [n, c], output: \"{{ nodes.n.skipped }}\" }\n";
            world.put(&agent(bound, &nodes)).await;
            for name in failing {
                world.tools.next(name, [Act::Say(no("no"))]);
            }
            let _process = world.start("w");
            let job = world.submit("a", json!({})).await;
            assert_eq!(world.done(job).await.status, JobStatus::Completed);
            assert_eq!(world.result(job).await, json!(!met));
            let skipped = world.events(job).await.into_iter().find_map(|event| match event {
                Event::NodeSkipped(e) => Some(e.reason),
                _ => None,
            });
            assert_eq!(skipped, (!met).then_some(SkipReason::Join));
        }
    }
}

/// A signal that names what its wait's key will be is kept, although the key would be another one by now.
#[tokio::test(start_paused = true)]
async fn the_key_of_a_wait_is_not_known_before_the_nodes_that_it_names_have_ended() {
    let world = World::new();
    let nodes = call("a", ", on_failure: fail_safe")
        + "    - { id: w, kind: wait, wait_type: signal, needs: [a], \
           correlation_key: \"go-{{ nodes.a.failed }}-{{ nodes.a.output | default('none') }}\" }\n";
    world.put(&agent(1, &nodes)).await;
    let (act, reached, release) = hold(no("no"));
    world.tools.next("a", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    let answer = world.signal(job, "go-true-none", json!({ "by": "a program" })).await;
    assert!(answer.is_ok(), "{answer:?}");
    release.notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(world.result(job).await, json!({ "by": "a program" }));
}
