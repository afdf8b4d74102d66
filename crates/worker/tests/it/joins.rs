//! What nodes wait for, and what a failure means to those behind it.

use std::collections::BTreeMap;
use std::time::Duration;

use aetheris_core::event::{BranchStatus, DoubtOutcome, Event, Failure, SkipReason};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::step::StepStatus;
use aetheris_runtime::ToolOutcome;
use aetheris_runtime::inputs::Inputs;
use aetheris_runtime::load::Loaded;
use aetheris_store::{DoubtFilter, Scope};
use serde_json::{Value, json};

use crate::world::{Act, Process, World, done, happened, hold, unknown};

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

/// A job of these nodes, whose call of `a` loses its answer and is given up.
async fn given_up(world: &World, nodes: &str) -> (Process, JobId) {
    world.put(&agent(1, nodes).replace("effect: pure }", "effect: at_most_once, on_in_doubt: fail }")).await;
    world.tools.next("a", [Act::Say(unknown("reset"))]);
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    (process, job)
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
    let (_process, job) = given_up(&world, &nodes).await;
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
    let events = world.events(job).await;
    let started = events.iter().filter_map(|event| match event {
        Event::NodeStarted(e) if e.node == "first".into() => Some(e.needs.clone()),
        _ => None,
    });
    // Its first try tells it, and no later one.
    let told = [("a".into(), BranchStatus::Open), ("b".into(), BranchStatus::Completed)].into();
    assert_eq!(started.collect::<Vec<_>>(), [told, BTreeMap::new()]);
    // People are shown what it was given.
    let loaded = Loaded::read(world.rt.store.as_ref(), &Scope::System, job).await.unwrap();
    let plan = world.rt.plans.get(world.rt.store.as_ref(), state.plan.unwrap().hash).await.unwrap();
    let shown = Inputs::of_job(&loaded)
        .render(&aetheris_core::schedule::step_at(&loaded.state, &plan, &"first".into()).unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(shown.value(), &seen);
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

/// A function chooses its codes: one of ours is no more than a failure like others.
#[tokio::test(start_paused = true)]
async fn a_failure_with_a_code_of_ours_is_absorbed_like_others() {
    for code in ["budget_exceeded", "job_too_large"] {
        let world = World::new();
        world.put(&agent(1, &(call("a", ", on_failure: fail_safe") + &call("b", "")))).await;
        world.tools.next("a", [Act::Say(no(code))]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        assert_eq!(world.done(job).await.status, JobStatus::Completed);
    }
}

/// Somebody can still say what became of a call that was given up, although its job has long gone on.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_can_be_answered_while_its_job_goes_on() {
    let world = World::new();
    let nodes = call("a", ", on_failure: fail_safe")
        + "    - { id: w, kind: wait, wait_type: human, needs: [a], correlation_key: k }\n";
    let (_process, job) = given_up(&world, &nodes).await;
    let state = world.until(job, &[JobStatus::Waiting]).await;
    let listed = async |unresolved| {
        let filter = DoubtFilter { limit: 9, scope: Scope::System, unresolved, ..DoubtFilter::default() };
        world.rt.store.doubts(filter).await.unwrap().doubts.len()
    };
    assert_eq!((listed(Some(true)).await, listed(None).await), (1, 0));
    assert!(state.steps[&"a".into()].left_in_doubt(state.status).is_some());
    let key = state.steps[&"a".into()].invocation.as_deref().unwrap().key;
    world.rt.resolve(job, key, happened(1, Json::new(json!("found in the books")))).await.unwrap();
    let answered = world.state(job).await;
    assert_eq!(answered.steps[&"a".into()].left_in_doubt(answered.status), Some(DoubtOutcome::Happened));
    assert_eq!((answered.status, answered.node_status(&"a".into())), (JobStatus::Waiting, StepStatus::Failed));
    world.signal(job, "k", json!(1)).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// Two waits that begin in one run are blocked on one by one, so that a signal kept for either is used.
#[tokio::test(start_paused = true)]
async fn a_signal_that_is_kept_for_one_of_two_waits_is_used() {
    for key in ["first", "second"] {
        let world = World::new();
        let wait = |id: &str, key: &str, more: &str| {
            format!("    - {{ id: {id}, kind: wait, wait_type: signal, correlation_key: {key}{more} }}\n")
        };
        let nodes = [
            call("a", ""),
            call("b", ", retry: { max_attempts: 3, backoff: 10s, jitter: none }"),
            wait("w2", "second", ", needs: [a, b], join: any"),
            "    - { id: j, kind: tool, tool: c, needs: [a, b], join: any }\n".to_owned(),
            wait("w1", "first", ", needs: [b]"),
        ]
        .concat();
        world.put(&agent(8, &nodes)).await;
        let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
        world.tools.next("b", [Act::Say(busy)]);
        world.tools.next("c", [Act::After(Duration::from_secs(60), done(json!("slow")))]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.signal(job, key, json!("early")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.signal(job, if key == "first" { "second" } else { "first" }, json!("late")).await.unwrap();
        assert_eq!(world.done(job).await.status, JobStatus::Completed);
    }
}

/// Neither waits for the long back-off beside them: both are blocked on at once.
#[tokio::test(start_paused = true)]
async fn waits_begin_beside_a_long_back_off() {
    let world = World::new();
    let wait = |id: &str| {
        format!(
            "    - {{ id: {id}, kind: wait, wait_type: signal, correlation_key: {id}, needs: [a, b], join: any }}\n"
        )
    };
    let nodes = [
        call("a", ""),
        call("b", ", retry: { max_attempts: 2, backoff: 24h, max_backoff: 24h, jitter: none }"),
        wait("v"),
        wait("w"),
    ];
    world.put(&agent(8, &nodes.concat())).await;
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    world.tools.next("b", [Act::Say(busy)]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let state = world.state(job).await;
    let waits: Vec<String> = state.blocks.iter().map(|blocked| blocked.node.to_string()).collect();
    assert_eq!((waits, state.node_status(&"b".into())), (vec!["v".to_owned(), "w".to_owned()], StepStatus::Retrying));
    for key in ["v", "w"] {
        world.signal(job, key, json!(1)).await.unwrap();
    }
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// The key of a wait is made of what it saw when it started.
#[tokio::test(start_paused = true)]
async fn a_signal_meets_the_key_that_a_wait_started_with() {
    let world = World::new();
    let nodes = call("a", "")
        + &call("b", "")
        + "    - { id: w, kind: wait, wait_type: signal, needs: [a, b], join: any, \
           correlation_key: \"k-{{ nodes.a.output | default('none') }}\" }\n    \
           - { id: j, kind: tool, tool: c, needs: [a] }\n";
    let retry = "a, retry: { max_attempts: 2, backoff: 10s, jitter: none }";
    world.put(&agent(8, &nodes.replacen("tool: a", &format!("tool: {retry}"), 1))).await;
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    world.tools.next("a", [Act::Say(busy), Act::Say(done(json!(7)))]);
    world.tools.next("c", [Act::After(Duration::from_secs(60), done(json!("slow")))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.signal(job, "k-none", json!("right")).await.unwrap();
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed);
    assert!(world.events(job).await.iter().any(|event| matches!(event, Event::WaitCompleted(_))));
}

/// A step that fails and is absorbed is progress like one that completes.
#[tokio::test(start_paused = true)]
async fn an_absorbed_failure_is_progress() {
    let world = World::new();
    let safe = ", on_failure: fail_safe";
    world.put(&agent(1, &[call("a", safe), call("b", safe), call("c", safe)].concat())).await;
    for name in ["a", "b", "c"] {
        let (act, _, _) = hold(no(name));
        world.tools.next(name, [act, Act::Say(no(name))]);
    }
    let job = world.submit("a", json!({})).await;
    for life in 0..3 {
        let process = world.start(&format!("w{life}"));
        tokio::time::sleep(Duration::from_secs(70)).await;
        process.kill();
    }
    let _last = world.start("last");
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
}

/// A node further up than those that it needs is open for it in every try, where its templates name it.
#[tokio::test(start_paused = true)]
async fn a_branch_further_up_stays_open_too() {
    let world = World::new();
    let nodes = call("a", "")
        + &call("b", "")
        + "    - { id: first, kind: transform, needs: [a, b], join: any, output: 1 }\n    \
           - { id: behind, kind: tool, tool: c, needs: [first], input: \"{{ nodes.a.open }}\", \
           retry: { max_attempts: 2, backoff: 100ms } }\n";
    world.put(&agent(8, &nodes)).await;
    let (act, _, release) = hold(done(json!("slow")));
    world.tools.next("a", [act]);
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    let (act, reached, fail) = hold(busy);
    world.tools.next("c", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    release.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    fail.notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    let given: Vec<Value> = world.tools.calls_of("c").iter().map(|call| call.input.value().clone()).collect();
    assert_eq!(given, [json!(true), json!(true)]);
}

/// An answer that names what a failed node has not given is no answer.
#[tokio::test(start_paused = true)]
async fn an_answer_that_names_a_failed_node_fails_the_job() {
    for (answer, status) in [
        ("  answer: \"{{ nodes.a.output }}\"\n", JobStatus::Failed),
        ("  answer: \"{{ nodes.a.output | default('none') }}\"\n", JobStatus::Completed),
        ("", JobStatus::Completed),
    ] {
        let world = World::new();
        world.put(&agent(1, &(call("a", ", on_failure: fail_safe") + answer))).await;
        world.tools.next("a", [Act::Say(no("no"))]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        assert_eq!(world.done(job).await.status, status, "{answer}");
    }
}

/// A wait beside a race: its person is asked as soon as nothing else can go on, and what the race brings goes on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_wait_holds_no_node_of_a_race_up() {
    let world = World::new();
    let nodes = call("a", "")
        + "    - { id: w, kind: wait, wait_type: human, correlation_key: k }\n    \
           - { id: j, kind: tool, tool: c, needs: [a, w], join: any }\n";
    world.put(&agent(8, &nodes)).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.until(job, &[JobStatus::Waiting, JobStatus::Parked]).await;
    assert_eq!(state.node_status(&"j".into()), StepStatus::Completed);
    world.signal(job, "k", json!(1)).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// A signal comes while its run has not looked for it, and a doubt is told with the wait that it is for.
#[tokio::test(start_paused = true)]
async fn a_doubt_beside_a_wait_hides_no_signal() {
    let world = World::new();
    let nodes = "    - { id: z, kind: tool, tool: b }\n    - { id: j, kind: tool, tool: c }\n    \
                 - { id: w, kind: wait, wait_type: signal, correlation_key: k, needs: [j, z], join: any }\n";
    let file =
        agent(8, nodes).replace("b: { kind: function, function: f, effect: pure", "b: { kind: function, function: f");
    world.put(&file).await;
    world.tools.next("b", [Act::Say(unknown("reset"))]);
    world.tools.next("c", [Act::After(Duration::from_secs(20), done(json!("slow")))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.signal(job, "k", json!("early")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let state = world.until(job, &[JobStatus::Parked]).await;
    assert_eq!(state.node_status(&"w".into()), StepStatus::Completed);
    let key = state.steps[&"z".into()].invocation.as_deref().unwrap().key;
    world.rt.resolve(job, key, happened(1, Json::new(json!(1)))).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// What a node without a body makes room for begins at once, whatever body has begun beside that node.
#[tokio::test(start_paused = true)]
async fn a_race_that_is_won_at_once_waits_for_no_body() {
    let world = World::new();
    let nodes = call("a", "")
        + "    - { id: t, kind: transform, output: 1 }\n"
        + "    - { id: r, kind: tool, tool: b, needs: [a, t], join: any }\n";
    world.put(&agent(8, &nodes)).await;
    let (slow, _, release) = hold(done(json!(1)));
    let (next, reached, _) = hold(done(json!(2)));
    world.tools.next("a", [slow]);
    world.tools.next("b", [next]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    assert_eq!(world.state(job).await.node_status(&"a".into()), StepStatus::Running);
    release.notify_one();
}

/// A wait whose key another one has that begins in the same unit is decided on once that one stands.
#[tokio::test(start_paused = true)]
async fn a_key_that_a_question_has_is_used_by_the_wait_beside_it() {
    let world = World::new();
    let nodes = "    - { id: x, kind: transform, output: 1 }\n    - { id: y, kind: transform, output: 2 }\n    \
        - { id: ask, kind: tool, tool: person }\n    \
        - { id: w, kind: wait, needs: [x, y], join: any, on_failure: fail_safe, wait_type: human, correlation_key: \"{{ job.id }}/ask\" }\n";
    let person = "tools:\n  person: { kind: human, question: Well? }\n";
    world.put(&agent(4, nodes).replace("tools:\n", person)).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    loop {
        let state = world.until(job, &[JobStatus::Parked, JobStatus::Failed]).await;
        assert_eq!(state.status, JobStatus::Parked, "{:?}", state.ending);
        if state.node_status(&"w".into()) == StepStatus::Failed {
            assert_eq!(state.steps[&"w".into()].error.as_ref().unwrap().code, "correlation_key_used");
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.signal(job, &format!("{job}/ask"), json!("yes")).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// Who ended first is seen nowhere: outputs stand in the order of the nodes' names, and so does the answer of a job without one.
#[tokio::test(start_paused = true)]
async fn the_answer_does_not_depend_on_which_step_ended_first() {
    let mut answers = Vec::new();
    for order in [["a", "b"], ["b", "a"]] {
        let world = World::new();
        world.put(&agent(2, &(call("b", "") + &call("a", "")))).await;
        let (of_a, a_reached, a_goes) = hold(done(json!("of a")));
        let (of_b, b_reached, b_goes) = hold(done(json!("of b")));
        world.tools.next("a", [of_a]);
        world.tools.next("b", [of_b]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        a_reached.notified().await;
        b_reached.notified().await;
        for name in order {
            if name == "a" {
                a_goes.notify_one()
            } else {
                b_goes.notify_one()
            }
            while world.state(job).await.node_status(&name.into()) != StepStatus::Completed {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let state = world.done(job).await;
        let names: Vec<String> = state.steps.keys().map(ToString::to_string).collect();
        answers.push((world.result(job).await, names));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].1, ["a", "b"]);
}

/// A critic sees what was open when its node began, also where only the critic names it.
#[tokio::test(start_paused = true)]
async fn a_critic_sees_as_open_what_its_node_does_not_name() {
    let world = World::new();
    let nodes = call("a", "")
        + &call("b", "")
        + "    - { id: first, kind: transform, needs: [a, b], join: any, output: 1 }\n    \
           - { id: n, kind: tool, tool: c, needs: [first], critic: k, max_refines: 1 }\n    \
           - { id: k, kind: critic, model: scripted/echo, prompt: '{\"verdict\": \"{{ \"pass\" if round else \"reject\" }}\", \
           \"feedback\": \"{{ nodes.a.open }}\"}' }\n";
    world.put(&agent(8, &nodes)).await;
    let (slow, _, release) = hold(done(json!("slow")));
    world.tools.next("a", [slow]);
    let (held, reached, ends) = hold(done(json!(1)));
    world.tools.next("c", [held]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    // The branch ends while the node is under way, and before its critic is asked.
    release.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    ends.notify_one();
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
    assert_eq!(state.steps[&"n@1".into()].feedback.as_deref(), Some("true"));
}
