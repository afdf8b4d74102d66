//! Jobs that steps of other jobs ask for.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::{Event, Failure};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::limits;
use aetheris_core::projection::Promise;
use aetheris_core::state::{Ending, JobState};
use aetheris_core::step::StepStatus;
use aetheris_runtime::ops::Delivery;
use aetheris_runtime::{Settings, ToolOutcome};
use aetheris_scheduler::deliver_all;
use aetheris_store::{ChildRow, PromiseRow, Scope, every_job};
use serde_json::{Value, json};

use crate::world::{Act, World, done, hold};

/// An agent of these nodes, with a function `f` that says what it is given.
fn agent(name: &str, top: &str, nodes: &[&str]) -> String {
    let nodes: String = nodes.iter().map(|node| format!("    - {{ {node} }}\n")).collect();
    format!(
        "agent: {name}\n{top}retry: {{ max_attempts: 1 }}\ntools:\n  t: {{ kind: function, function: f, effect: pure }}\n\
         plan:\n  nodes:\n{nodes}"
    )
}

/// A child that doubles what it is sent, by a tool.
const CHILD: &str = "id: x, kind: tool, tool: t, input: { n: '{{ message.n * 2 }}' }";

async fn world(nodes: &[&str]) -> World {
    world_of("", nodes).await
}

async fn world_of(top: &str, nodes: &[&str]) -> World {
    let world = World::new();
    world.put(&agent("child", "", &[CHILD])).await;
    world.put(&agent("a", top, nodes)).await;
    world
}

async fn children(world: &World, job: JobId) -> Vec<ChildRow> {
    world.rt.store.children(Scope::System, job, None, 100).await.unwrap().children
}

async fn child(world: &World, job: JobId) -> JobId {
    children(world, job).await[0].row.id
}

/// How a job failed.
fn error(state: &JobState) -> (String, String) {
    match &state.ending {
        Some(Ending::Failed { error, .. }) => (error.code.clone(), error.message.clone()),
        other => panic!("{other:?}"),
    }
}

fn fails(code: &str) -> ToolOutcome {
    ToolOutcome::RefusedPermanent(Failure::new(code, "no"))
}

#[tokio::test(start_paused = true)]
async fn what_a_child_answers_is_the_output_of_its_step() {
    let world = world(&[
        "id: j, kind: job, agent: child, message: { n: '{{ message.n }}' }",
        "id: last, kind: transform, needs: [j], output: '{{ nodes.j.output }}'",
    ])
    .await;
    let _process = world.start("w");
    let job = world.submit("a", json!({ "n": 21 })).await;
    let state = world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "n": 42 }));
    let child = child(&world, job).await;
    assert_eq!(state.steps[&"j".into()].child.as_deref().unwrap().id, child, "its id is known before it is there");
    let below = world.done(child).await;
    let parent = below.parent.unwrap();
    assert_eq!((parent.job, parent.depth, parent.node.to_string(), parent.waits), (job, 1, "j".to_owned(), true));
    let kinds = world.kinds(job).await;
    let of_child: Vec<_> = kinds.iter().copied().filter(|kind| kind.starts_with("child")).collect();
    assert_eq!(of_child, ["child_started", "child_ended"]);
    assert_eq!(every_job(world.rt.store.as_ref()).await.unwrap().len(), 2);
    assert_eq!(world.rt.store.outbox(None, 10).await.unwrap(), []);
}

/// The answer is stored once in the parent, whatever its steps do with it.
#[tokio::test(start_paused = true)]
async fn a_childs_answer_moves_to_the_output() {
    let world = world(&["id: j, kind: job, agent: child, message: { n: 1 }"]).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    let step = &state.steps[&"j".into()];
    assert_eq!(step.child.as_deref().and_then(aetheris_core::state::Child::result).unwrap().value(), &Value::Null);
    assert_eq!(world.result(job).await, json!({ "n": 2 }));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_not_waited_for_goes_on_by_itself() {
    let world = world(&["id: j, kind: job, agent: child, message: { n: 1 }, wait: false"]).await;
    let (held, reached, release) = hold(done(json!("late")));
    world.tools.next("t", [held]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.done(job).await;
    reached.notified().await;
    let child = child(&world, job).await;
    assert_eq!(world.result(job).await, json!({ "job_id": child.to_string() }));
    release.notify_one();
    world.done(child).await;
    assert_eq!(world.result(child).await, json!("late"));
    assert_eq!(world.rt.store.outbox(None, 10).await.unwrap(), [], "nobody is told");
}

#[tokio::test(start_paused = true)]
async fn how_a_child_fails_is_told() {
    let world = world(&[
        "id: j, kind: job, agent: child, message: { n: 1 }, on_failure: fail_safe",
        "id: last, kind: transform, needs: [j], output: '{{ nodes.j.error.code }}: {{ nodes.j.error.message }}'",
    ])
    .await;
    let _process = world.start("w");
    world.tools.next("t", [Act::Say(fails("boom"))]);
    let job = world.submit("a", json!({})).await;
    world.done(job).await;
    let failed = child(&world, job).await;
    assert_eq!(world.result(job).await, json!(format!("child_failed: {failed} of agent `child` failed: no (boom)")));
    let (held, reached, _release) = hold(done(json!("never")));
    world.tools.next("t", [held]);
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    let cancelled = child(&world, job).await;
    world.rt.cancel(cancelled).await.unwrap();
    world.done(job).await;
    let said = format!("child_cancelled: {cancelled} of agent `child` was cancelled");
    assert_eq!(world.result(job).await, json!(said));
}

#[tokio::test(start_paused = true)]
async fn what_no_agent_takes_creates_nothing() {
    for (node, code, words) in [
        ("agent: nobody", "agent_not_found", "there is no agent `nobody` to send the message to"),
        ("agent: '{{ message.to }}'", "agent_not_found", "there is no agent `gone`"),
        ("agent: strict, message: { n: one }", "invalid_payload", "agent `strict` does not take the message: /n:"),
        ("agent: child, session: '{{ message.none }}'", "template_error", "its session cannot be rendered"),
        (
            "agent: child, session: '{{ \"\" }}'",
            "bad_session",
            "`session` renders to 0 characters; a session has 1 to 128",
        ),
    ] {
        let world = world(&[&format!("id: j, kind: job, {node}")]).await;
        let strict = "message_schema: { properties: { n: { type: number } } }\n";
        world.put(&agent("strict", strict, &[CHILD])).await;
        let _process = world.start("w");
        let job = world.submit("a", json!({ "to": "gone" })).await;
        let (found, message) = error(&world.done(job).await);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(words), "{message}");
        assert_eq!(every_job(world.rt.store.as_ref()).await.unwrap().len(), 1);
    }
}

/// Jobs of a session run one after the other: a child in that of a job above it would wait for ever.
#[tokio::test(start_paused = true)]
async fn a_child_in_the_session_of_a_job_above_it_is_refused() {
    let world = World::new();
    world.put(&agent("a", "", &["id: j, kind: job, agent: b, session: other"])).await;
    world.put(&agent("b", "", &["id: k, kind: job, agent: a, session: '{{ message or \"s\" }}'"])).await;
    let _process = world.start("w");
    let submission = aetheris_runtime::ops::Submission { session: Some("s".into()), ..Default::default() };
    let job = world.rt.submit(&"a".into(), submission).await.unwrap().job;
    let (code, message) = error(&world.done(job).await);
    assert_eq!(code, "child_failed");
    assert!(message.contains("session_deadlock"), "{message}");
    assert_eq!(every_job(world.rt.store.as_ref()).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn children_of_children_have_an_end() {
    let world = World::new();
    world.put(&agent("a", "", &["id: j, kind: job, agent: a"])).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let (code, _) = error(&world.done(job).await);
    assert_eq!(code, "child_failed");
    let jobs = every_job(world.rt.store.as_ref()).await.unwrap();
    assert_eq!(jobs.len(), 1 + usize::try_from(limits::CHILD_DEPTH_MAX).unwrap());
    let mut deepest = job;
    while let Some(below) = children(&world, deepest).await.first() {
        deepest = below.row.id;
    }
    let state = world.state(deepest).await;
    assert_eq!((error(&state).0.as_str(), state.parent.unwrap().depth), ("child_too_deep", limits::CHILD_DEPTH_MAX));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_ends_its_children_unless_they_are_left() {
    for (node, ends) in [
        ("", JobStatus::Cancelled),
        ("on_parent_end: leave", JobStatus::Completed),
        ("wait: false, on_parent_end: cancel", JobStatus::Cancelled),
        ("wait: false", JobStatus::Completed),
    ] {
        let node = format!("id: j, kind: job, agent: child, message: {{ n: 1 }}, {node}");
        let world = world(&[&node, "id: nap, kind: sleep, needs: [j], duration: 1h"]).await;
        let (held, reached, release) = hold(done(json!(1)));
        world.tools.next("t", [held]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        let child = child(&world, job).await;
        world.until(job, &[JobStatus::Waiting]).await;
        world.rt.cancel(job).await.unwrap();
        if ends == JobStatus::Completed {
            tokio::time::sleep(Duration::from_secs(5)).await;
            release.notify_one();
        }
        assert_eq!(world.done(child).await.status, ends, "{node}");
        assert_eq!(world.done(job).await.status, JobStatus::Cancelled);
        while !world.rt.store.outbox(None, 10).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_children_of_a_cancelled_job_end() {
    let map = "id: m, kind: map, over: [1, 2, 3], concurrency: 3, do: { kind: job, agent: slow }";
    let world = world(&[map]).await;
    world.put(&agent("slow", "", &["id: j, kind: job, agent: slower"])).await;
    world.put(&agent("slower", "", &["id: nap, kind: sleep, duration: 1h"])).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    while every_job(world.rt.store.as_ref()).await.unwrap().len() < 7 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.rt.cancel(job).await.unwrap();
    let open = |row: &aetheris_store::JobRow| !row.status.is_terminal();
    while every_job(world.rt.store.as_ref()).await.unwrap().iter().any(open) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(world.passed() < Duration::from_secs(60), "a child goes on");
    }
    let jobs = every_job(world.rt.store.as_ref()).await.unwrap();
    assert!(jobs.iter().all(|row| row.status == JobStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_childs_time_is_what_is_left_of_its_parents() {
    let world = world_of("deadline: 1m\n", &["id: j, kind: job, agent: slow, deadline: 1h"]).await;
    world.put(&agent("slow", "", &["id: nap, kind: sleep, duration: 1h"])).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!(error(&state).0, "deadline_exceeded");
    let child = child(&world, job).await;
    let set = |event: &Event| match event {
        Event::TimerSet(set) if set.timer == aetheris_core::event::TimerId::Deadline => Some(set.after_us),
        _ => None,
    };
    let after = world.events(child).await.iter().find_map(set).unwrap();
    assert!(after <= 60_000_000 && after > 50_000_000, "{after}");
    let below = world.done(child).await;
    assert!(below.status == JobStatus::Cancelled || error(&below).0 == "deadline_exceeded", "{:?}", below.ending);
    // A child that is left has its own time.
    world
        .put(&agent("a", "deadline: 1m\n", &["id: j, kind: job, agent: slow, deadline: 1h, on_parent_end: leave"]))
        .await;
    let job = world.submit("a", json!({})).await;
    world.done(job).await;
    let child = self::child(&world, job).await;
    assert_eq!(world.events(child).await.iter().find_map(set), Some(3_600_000_000));
}

/// Others work on an item with a child: it keeps its place, unlike one that waits for a person.
#[tokio::test(start_paused = true)]
async fn a_map_has_so_many_children_at_once() {
    let map = "id: m, kind: map, over: '{{ range(7) }}', concurrency: 3, do: { kind: job, agent: child, message: { n: '{{ item }}' } }";
    let world = world(&[map]).await;
    let mut releases = Vec::new();
    for n in 0..7 {
        let (held, reached, release) = hold(done(json!(n)));
        world.tools.next("t", [held]);
        releases.push((reached, release));
    }
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let mut most = 0;
    for (_, release) in &releases {
        loop {
            let open = children(&world, job).await.iter().filter(|child| !child.row.status.is_terminal()).count();
            assert!(open <= 3, "{open} at once");
            most = most.max(open);
            if world.tools.count("t") > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let open = children(&world, job).await.iter().filter(|child| !child.row.status.is_terminal()).count();
        assert!(open <= 3, "{open} at once");
        most = most.max(open);
        release.notify_one();
    }
    world.done(job).await;
    let all: Vec<u64> = world.result(job).await.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert_eq!((all.len(), most), (7, 3));
    assert_eq!(children(&world, job).await.len(), 7);
}

/// The children of the other items are asked to end, and the map ends when they have.
#[tokio::test(start_paused = true)]
async fn a_map_that_fails_ends_its_children() {
    let map = "id: m, kind: map, over: [1, 2, 3], concurrency: 3, do: { kind: job, agent: child, message: { n: '{{ item }}' } }";
    for node in [map.to_owned(), format!("{map}, on_failure: fail_safe")] {
        let world = world(&[&node]).await;
        let (one, reached, release) = hold(fails("boom"));
        let (two, two_reached, _two) = hold(done(json!(2)));
        let (three, three_reached, _three) = hold(done(json!(3)));
        world.tools.next("t", [one, two, three]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        for reached in [reached, two_reached, three_reached] {
            reached.notified().await;
        }
        release.notify_one();
        let state = world.done(job).await;
        let statuses: Vec<JobStatus> = children(&world, job).await.iter().map(|child| child.row.status).collect();
        assert_eq!(statuses.iter().filter(|status| **status == JobStatus::Cancelled).count(), 2, "{statuses:?}");
        assert_eq!(state.step_status(&"m".into()), StepStatus::Failed);
        assert!(state.steps[&"m".into()].error.as_ref().unwrap().message.contains("(boom)"));
    }
}

/// A job that is to fail waits for the children of a map. A call beside them that its run has dropped is in doubt from then on,
/// and not only when the job ends.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_dropped_beside_a_lost_map_is_in_doubt_while_its_job_waits() {
    let world = World::new();
    world.put(&agent("child", "", &[CHILD])).await;
    let map = "id: m, kind: map, over: [1, 2], concurrency: 2, do: { kind: job, agent: child, on_parent_end: leave, message: { n: '{{ item }}' } }";
    let file = agent("a", "max_parallel_steps: 2\n", &[map, "id: c, kind: tool, tool: pay, input: 1"]);
    world
        .put(
            &file.replace(
                "tools:\n",
                "tools:\n  pay: { kind: function, function: g, effect: idempotent, timeout: 60s }\n",
            ),
        )
        .await;
    let (one, reached, release) = hold(fails("boom"));
    let (two, two_reached, two_release) = hold(done(json!(2)));
    world.tools.next("t", [one, two]);
    let (paid, pay_reached, _never) = hold(done(json!("paid")));
    world.tools.next("pay", [paid]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    for reached in [reached, two_reached, pay_reached] {
        reached.notified().await;
    }
    release.notify_one();
    let state = world.until(job, &[JobStatus::Waiting]).await;
    assert_eq!(state.step_status(&"c".into()), StepStatus::InDoubt);
    let ledger = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger;
    assert_eq!(ledger.iter().map(|row| row.status).collect::<Vec<_>>(), [LedgerStatus::InDoubt]);
    two_release.notify_one();
    let state = world.done(job).await;
    assert!(error(&state).1.contains("(boom)"));
    assert_eq!(state.step_status(&"c".into()), StepStatus::InDoubt, "it stays in the list");
}

/// The run before ran steps beside each other and this one does not: what it left is told of all the same.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_left_is_told_of_wherever_it_stands_in_the_plan() {
    let (call, child) = ("kind: tool, tool: pay, input: 1", "kind: job, agent: child");
    let beside = [format!("id: a, {child}"), format!("id: paid, {call}")];
    let in_turn = [
        "id: a, kind: transform, output: 1".to_owned(),
        format!("id: paid, {call}, needs: [a]"),
        format!("id: b, {child}"),
    ];
    for (first, second, nodes) in [(8, 0, &beside[..]), (0, 8, &in_turn[..])] {
        let mut world = World::new();
        world.put(&agent("child", "", &["id: nap, kind: sleep, duration: 10h"])).await;
        let file = agent("a", "", &nodes.iter().map(String::as_str).collect::<Vec<_>>());
        let pay =
            "tools:\n  pay: { kind: function, function: g, effect: at_most_once, timeout: 60s, on_in_doubt: human }\n";
        world.put(&file.replace("tools:\n", pay)).await;
        let (paid, reached, _never) = hold(done(json!("paid")));
        world.tools.next("pay", [paid]);
        let steps = |world: &mut World, max_parallel_steps| {
            world.rt.settings = Arc::new(Settings { max_parallel_steps, ..Settings::clone(&world.rt.settings) });
        };
        steps(&mut world, first);
        let process = world.start("first");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        process.kill();
        steps(&mut world, second);
        let _process = world.start("second");
        let state = world.until(job, &[JobStatus::Waiting, JobStatus::Parked]).await;
        assert_eq!(state.step_status(&"paid".into()), StepStatus::InDoubt, "{first} -> {second}");
    }
}

/// A run that has something else to do hears of a child's end when it comes.
#[tokio::test(start_paused = true)]
async fn a_child_beside_a_long_call_holds_nobody_up() {
    let world = world_of(
        "max_parallel_steps: 4\n",
        &[
            "id: call, kind: tool, tool: t, input: long",
            "id: j, kind: job, agent: quick",
            "id: next, kind: transform, needs: [j], join: any, output: '{{ nodes.j.output }}'",
        ],
    )
    .await;
    world.put(&agent("quick", "", &["id: x, kind: transform, output: quick"])).await;
    let (held, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [held]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    while world.state(job).await.step_status(&"next".into()) != StepStatus::Completed {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(world.passed() < Duration::from_secs(20), "its end was not heard");
    }
    assert_eq!(world.state(job).await.step_status(&"call".into()), StepStatus::Running);
    release.notify_one();
    world.done(job).await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_answer_is_asked_of_another_child() {
    let world = world(&[
        "id: j, kind: job, agent: child, message: { n: '{{ round + 1 }}' }, validate: { properties: { n: { minimum: 4 } } }",
    ])
    .await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "n": 4 }));
    let nodes: Vec<String> = children(&world, job).await.iter().map(|child| child.node.to_string()).collect();
    assert_eq!(nodes, ["j", "j@1"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_is_told_and_stays_paused() {
    let world = world(&["id: j, kind: job, agent: child, message: { n: 1 }"]).await;
    let (held, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [held]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    world.until(job, &[JobStatus::Waiting]).await;
    world.rt.pause(job).await.unwrap();
    release.notify_one();
    world.done(child(&world, job).await).await;
    while world.state(job).await.steps[&"j".into()].awaited_child().is_some() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.state(job).await.status, JobStatus::Paused);
    world.rt.resume(job).await.unwrap();
    world.done(job).await;
    assert_eq!(world.result(job).await, json!(1));
}

/// A child follows the plan that its agent had when it was asked for.
#[tokio::test(start_paused = true)]
async fn a_child_is_of_the_version_that_was_asked_for() {
    let world = world(&["id: j, kind: job, agent: child, message: { n: 1 }"]).await;
    let job = world.submit("a", json!({})).await;
    let process = world.start("w");
    process.sweeps.cancel();
    world.until(job, &[JobStatus::Waiting]).await;
    assert_eq!(children(&world, job).await, [], "nobody creates it");
    world.put(&agent("child", "", &["id: x, kind: transform, output: newer"])).await;
    assert!(world.rt.store.delete_agent(Default::default(), "child".into()).await.unwrap());
    // However often it is done.
    assert!(!deliver_all(&world.rt).await.unwrap());
    assert!(!deliver_all(&world.rt).await.unwrap());
    let _second = world.start("second");
    world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "n": 2 }));
    assert_eq!(children(&world, job).await.len(), 1);
}

/// What was asked for is not created any more once its parent has ended.
#[tokio::test(start_paused = true)]
async fn a_child_of_a_job_that_has_ended_is_not_created() {
    for (on_parent_end, created) in [("cancel", 0), ("leave", 1)] {
        let node = format!("id: j, kind: job, agent: child, message: {{ n: 1 }}, on_parent_end: {on_parent_end}");
        let world = world(&[&node]).await;
        let process = world.start("w");
        process.sweeps.cancel();
        let job = world.submit("a", json!({})).await;
        world.until(job, &[JobStatus::Waiting]).await;
        world.rt.cancel(job).await.unwrap();
        let _second = world.start("second");
        while !world.rt.store.outbox(None, 10).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(children(&world, job).await.len(), created, "{on_parent_end}");
        for child in children(&world, job).await {
            world.done(child.row.id).await;
        }
    }
}

/// Two processes deliver at once: a child is created once and its parent is told once.
#[tokio::test(start_paused = true)]
async fn many_may_deliver_and_everything_is_done_once() {
    let map = "id: m, kind: map, over: '{{ range(40) }}', concurrency: 40, do: { kind: job, agent: child, message: { n: '{{ item }}' } }";
    let world = world(&[map]).await;
    let _processes = ["u", "v", "w"].map(|name| world.start(name));
    let job = world.submit("a", json!({})).await;
    world.done(job).await;
    let doubled: Vec<Value> = (0..40).map(|n| json!({ "n": n * 2 })).collect();
    assert_eq!(world.result(job).await, json!(doubled));
    assert_eq!((children(&world, job).await.len(), world.tools.count("t")), (40, 40));
    let ended = world.kinds(job).await.iter().filter(|kind| **kind == "child_ended").count();
    assert_eq!(ended, 40);
}

/// The promises of a page, but for those that are left out.
async fn deliver_only(world: &World, wanted: impl Fn(&Promise) -> bool) {
    let rows = world.rt.store.outbox(None, 100).await.unwrap();
    for delivery in Delivery::of(rows.into_iter().filter(|row| wanted(&row.promise)).collect()) {
        world.rt.deliver(&delivery).await.unwrap();
    }
}

/// Of two items one has asked for a child, which nobody has created when the other fails: it never is, and its item is told.
#[tokio::test(start_paused = true)]
async fn a_child_that_is_cancelled_before_it_is_there_is_never_created() {
    for cancelled_first in [true, false] {
        let map = "id: m, kind: map, over: [child, quick], concurrency: 2, do: { kind: job, agent: '{{ item }}', message: { n: 1 } }";
        let world = world(&[map]).await;
        world.put(&agent("quick", "", &["id: x, kind: transform, output: '{{ 1 / 0 }}'"])).await;
        let process = world.start("w");
        process.sweeps.cancel();
        let job = world.submit("a", json!({})).await;
        world.until(job, &[JobStatus::Waiting]).await;
        let state = world.state(job).await;
        let id = |item: &str| state.steps[&item.into()].child.as_deref().unwrap().id;
        let (slow, quick) = (id("m[0]"), id("m[1]"));
        deliver_only(&world, |promise| matches!(promise, Promise::CreateChild { child, .. } if *child == quick)).await;
        world.done(quick).await;
        deliver_only(&world, |promise| matches!(promise, Promise::TellParent { .. })).await;
        let stands = |rows: &[PromiseRow]| rows.iter().any(|row| matches!(row.promise, Promise::CancelChild { .. }));
        while !stands(&world.rt.store.outbox(None, 10).await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if cancelled_first {
            deliver_only(&world, |promise| matches!(promise, Promise::CancelChild { .. })).await;
        }
        let _second = world.start("second");
        let done = world.done(job).await;
        assert!(error(&done).1.starts_with("item 1: "), "{:?}", done.ending);
        let made: Vec<(JobId, JobStatus)> =
            children(&world, job).await.iter().map(|child| (child.row.id, child.row.status)).collect();
        let slow = (slow, JobStatus::Cancelled);
        assert!(made == [(quick, JobStatus::Failed)] || !cancelled_first && made.contains(&slow), "{made:?}");
        assert_eq!(world.tools.count("t"), 0);
        assert_eq!(world.rt.store.outbox(None, 10).await.unwrap(), []);
    }
}

/// An item that nobody takes ends its map whatever the others ask for in the same moment.
#[tokio::test(start_paused = true)]
async fn items_that_ask_and_one_that_fails_at_once_leave_no_child_behind() {
    for over in ["[slow, slow, nobody]", "[nobody, slow, slow]", "[slow, nobody, slow]"] {
        let map =
            format!("id: m, kind: map, over: {over}, concurrency: 3, do: {{ kind: job, agent: '{{{{ item }}}}' }}");
        let world = world(&[&map]).await;
        world.put(&agent("slow", "", &["id: nap, kind: sleep, duration: 1h"])).await;
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        assert!(world.passed() < Duration::from_secs(60), "{over}: it waited for a child");
        assert!(error(&state).1.contains("there is no agent `nobody`"), "{over}: {:?}", error(&state));
        let left: Vec<_> =
            children(&world, job).await.into_iter().filter(|child| child.row.status != JobStatus::Cancelled).collect();
        assert_eq!(left, [], "{over}");
    }
}

/// A child that goes on when its parent ends is not cancelled by a map that has failed, and the map waits for it.
#[tokio::test(start_paused = true)]
async fn a_map_that_fails_leaves_children_that_are_to_be_left() {
    let map = "id: m, kind: map, over: [slow, child], concurrency: 2, do: { kind: job, agent: '{{ item }}', message: { n: 1 }, on_parent_end: leave }";
    let world = world(&[map]).await;
    world.put(&agent("slow", "", &["id: nap, kind: sleep, duration: 1h"])).await;
    world.tools.next("t", [Act::Say(fails("boom"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert!(world.passed() >= Duration::from_secs(3_600));
    assert!(error(&state).1.contains("boom"), "{:?}", state.ending);
    let slow = state.steps[&"m[0]".into()].child.as_deref().unwrap().id;
    assert_eq!(world.state(slow).await.status, JobStatus::Completed);
}

/// Who is not waited for may come later in the session of those above it.
#[tokio::test(start_paused = true)]
async fn a_child_that_nobody_waits_for_follows_in_the_same_session() {
    let world = World::new();
    world.put(&agent("b", "", &["id: j, kind: job, agent: a, session: s, message: done"])).await;
    world
        .put(&agent("a", "", &["id: j, kind: job, agent: b, session: t, wait: false, when: \"message != 'done'\""]))
        .await;
    let _process = world.start("w");
    let submission = aetheris_runtime::ops::Submission { session: Some("s".into()), ..Default::default() };
    let job = world.rt.submit(&"a".into(), submission).await.unwrap().job;
    world.done(job).await;
    let between = child(&world, job).await;
    assert_eq!(world.done(between).await.status, JobStatus::Completed);
    assert_eq!(world.done(child(&world, between).await).await.status, JobStatus::Completed);
    assert_eq!(every_job(world.rt.store.as_ref()).await.unwrap().len(), 3);
}

/// More than one page of children.
#[tokio::test(start_paused = true)]
async fn every_child_beyond_one_page_is_cancelled() {
    let many = limits::PAGE_JOBS_MAX + 20;
    let nodes: Vec<String> = (0..3)
        .map(|n| {
            format!(
                "id: m{n}, kind: map, over: '{{{{ range({}) }}}}', concurrency: 256, do: {{ kind: job, agent: slow, wait: false, on_parent_end: cancel }}",
                many / 3 + 1
            )
        })
        .chain(["id: nap, kind: sleep, needs: [m0, m1, m2], duration: 1h".to_owned()])
        .collect();
    let world = world(&nodes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.put(&agent("slow", "", &["id: nap, kind: sleep, duration: 10h"])).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let all = (many / 3 + 1) * 3;
    while every_job(world.rt.store.as_ref()).await.unwrap().len() <= all {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    world.rt.cancel(job).await.unwrap();
    while every_job(world.rt.store.as_ref()).await.unwrap().iter().any(|row| !row.status.is_terminal()) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(world.passed() < Duration::from_secs(600), "a child goes on");
    }
}

/// What cannot be told of one child is told of the others, and of those that end later.
#[tokio::test(start_paused = true)]
async fn one_child_that_cannot_be_read_keeps_nobody_from_being_told() {
    let map = "id: m, kind: map, over: [1, 2, 3], concurrency: 3, do: { kind: job, agent: child, message: { n: '{{ item }}' } }";
    let world = world(&[map]).await;
    let process = world.start("w");
    process.sweeps.cancel();
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Waiting]).await;
    deliver_only(&world, |_| true).await;
    let made = children(&world, job).await;
    for child in &made {
        world.done(child.row.id).await;
    }
    let rows: Vec<PromiseRow> = world.rt.store.outbox(None, 100).await.unwrap();
    assert_eq!(rows.len(), 3);
    // A promise of a job that is not there stands for one that cannot be read.
    let broken = PromiseRow { author: JobId::from_u128(404), ..rows[0].clone() };
    let deliveries = Delivery::of([vec![broken], rows[1..].to_vec()].concat());
    let [delivery] = &deliveries[..] else { panic!("{deliveries:?}") };
    assert!(!world.rt.deliver(delivery).await.unwrap(), "one is left");
    let told = world.kinds(job).await.iter().filter(|kind| **kind == "child_ended").count();
    assert_eq!(told, 2);
    // What is remembered of a failure is not held against what comes later.
    let alone = Delivery::of(vec![PromiseRow { author: JobId::from_u128(404), ..rows[0].clone() }]);
    assert!(world.rt.deliver(&alone[0]).await.is_err());
    assert_eq!(alone[0].key(), delivery.key());
    assert_ne!(alone[0].backoff_key(), delivery.backoff_key());
    let _second = world.start("second");
    world.done(job).await;
}

/// The news of a child makes its parent's run read the job anew, also while an item of a map waits for its next try.
#[tokio::test(start_paused = true)]
async fn an_item_knows_what_it_is_about_after_its_run_has_read_the_job_anew() {
    let world = World::new();
    world.put(&agent("child", "", &["id: x, kind: sleep, duration: 100ms"])).await;
    let retry = "retry: { max_attempts: 2, backoff: 500ms, jitter: none }";
    let map = format!("id: m, kind: map, over: [7], do: {{ kind: tool, tool: t, input: '{{{{ item }}}}', {retry} }}");
    world.put(&agent("a", "max_parallel_steps: 2\n", &["id: j, kind: job, agent: child", &map])).await;
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    world.tools.next("t", [Act::Say(busy)]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
    let kinds = world.kinds(job).await;
    let at = |kind: &str| kinds.iter().position(|other| *other == kind).unwrap();
    assert!(at("node_retry_scheduled") < at("child_ended"), "{kinds:?}");
    assert_eq!(world.tools.calls_of("t").iter().map(|call| call.input.to_string()).collect::<Vec<_>>(), ["7", "7"]);
}

/// A child that is about to be held still is to end with its parent all the same.
#[tokio::test(start_paused = true)]
async fn a_child_that_is_asked_to_pause_ends_with_its_parent() {
    let world = World::new();
    world.put(&agent("child", "", &[CHILD]).replace("effect: pure", "effect: at_most_once")).await;
    world.put(&agent("a", "", &["id: j, kind: job, agent: child, message: { n: 1 }"])).await;
    let (held, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [held]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    world.until(job, &[JobStatus::Waiting]).await;
    let child = child(&world, job).await;
    // Its call must not be dropped: until that has ended it runs, and a pause is asked for.
    world.rt.pause(child).await.unwrap();
    assert_eq!(world.state(child).await.status, JobStatus::Running);
    world.rt.cancel(job).await.unwrap();
    while !world.rt.store.outbox(None, 10).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    release.notify_one();
    let ended = world.until(child, &[JobStatus::Cancelled, JobStatus::Paused]).await;
    assert_eq!(ended.status, JobStatus::Cancelled);
}
