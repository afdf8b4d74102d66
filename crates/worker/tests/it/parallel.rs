//! Steps of one job that run beside each other.

use aetheris_core::event::{Event, Failure};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::ToolOutcome;
use aetheris_runtime::ops::Cancelled;
use aetheris_store::Scope;
use serde_json::json;

use crate::world::{Act, Process, World, did_not_happen, done, happened, hold, unknown};

/// So many nodes of one set, `a`, `b`, …, each with a tool of its own name, and `last` behind them.
pub(crate) fn agent(bound: usize, nodes: usize, effect: &str) -> String {
    let names = names(nodes);
    let tool = |name: &String| format!("  {name}: {{ kind: function, function: f, effect: {effect}, timeout: 60s }}\n");
    let tools: String = names.iter().map(tool).collect();
    let node = |name: &String| format!("    - {{ id: {name}, kind: tool, tool: {name}, input: {{ of: {name} }} }}\n");
    // Not in the order of their names.
    let list: String = names.iter().rev().map(node).collect();
    format!(
        "agent: a\nmax_parallel_steps: {bound}\nretry: {{ max_attempts: 3, backoff: 1h, jitter: none, max_backoff: 1h }}\n\
         tools:\n{tools}  end: {{ kind: function, function: f, effect: pure }}\nplan:\n  nodes:\n{list}    \
         - {{ id: last, kind: tool, tool: end, needs: [{}] }}\n",
        names.join(", ")
    )
}

/// `a` to `z`, and then `za`, `zb`, …
fn names(nodes: usize) -> Vec<String> {
    let letter = |place: usize| char::from(b'a' + u8::try_from(place % 26).unwrap());
    (0..nodes).map(|place| format!("{}{}", "z".repeat(place / 26), letter(place))).collect()
}

/// A job whose first calls are held; what releases each.
pub(crate) async fn held(
    world: &World,
    names: &[&str],
    outcome: impl Fn(&str) -> ToolOutcome,
) -> (Process, JobId, Vec<std::sync::Arc<tokio::sync::Notify>>) {
    let mut reached = Vec::new();
    let mut releases = Vec::new();
    for name in names {
        let (act, arrived, release) = hold(outcome(name));
        world.tools.next(name, [act]);
        reached.push(arrived);
        releases.push(release);
    }
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    for arrived in reached {
        arrived.notified().await;
    }
    (process, job, releases)
}

pub(crate) async fn settle() {
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
}

#[tokio::test(start_paused = true)]
async fn as_many_steps_run_at_once_as_are_allowed_and_the_next_set_sees_all_of_them() {
    for effect in ["pure", "at_most_once", "idempotent"] {
        let world = World::new();
        world.put(&agent(2, 3, effect)).await;
        let (_process, job, releases) = held(&world, &["a", "b"], |name| done(json!(name))).await;
        settle().await;
        assert_eq!((world.tools.count("c"), world.tools.count("end")), (0, 0), "{effect}");
        let (act, reached, release) = hold(done(json!("c")));
        world.tools.next("c", [act]);
        releases[1].notify_one();
        reached.notified().await;
        settle().await;
        // What is known is written, whatever the others are doing.
        let state = world.state(job).await;
        assert_eq!(state.node_status(&"b".into()), StepStatus::Completed, "{effect}");
        release.notify_one();
        settle().await;
        assert_eq!(world.tools.count("end"), 0, "{effect}");
        releases[0].notify_one();
        assert_eq!(world.done(job).await.status, JobStatus::Completed, "{effect}");
        assert_eq!(world.tools.calls.lock().unwrap().len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn the_permissions_of_a_set_are_one_write() {
    let world = World::new();
    world.put(&agent(8, 8, "at_most_once")).await;
    let _process = world.start("w");
    let before = world.rt.store.status().await.unwrap().writer.units;
    let job = world.submit("a", json!({})).await;
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    // The creation, the permissions, the outcomes with the start of the last step, and its end with the job's.
    assert_eq!(world.rt.store.status().await.unwrap().writer.units - before, 4);
    // All eight, and no other before the last step.
    let events = world.events(job).await;
    let first = events.iter().position(|event| matches!(event, Event::ToolInvocationFinished(_))).unwrap();
    let permits = events[..first].iter().filter(|event| matches!(event, Event::ToolInvocationStarted(_))).count();
    assert_eq!(permits, 8);
}

/// A unit has room for the permissions of some of them only: the others follow at once, and wait for nobody's end.
#[tokio::test(start_paused = true)]
async fn a_wide_set_is_under_way_at_once() {
    for effect in ["pure", "at_most_once"] {
        let world = World::new();
        world.put(&agent(200, 240, effect)).await;
        let all = names(240);
        let mut first: Vec<&str> = all.iter().map(String::as_str).collect();
        first.sort_unstable();
        first.truncate(200);
        let (_process, job, releases) = held(&world, &first, |name| done(json!(name))).await;
        settle().await;
        assert_eq!(world.tools.calls.lock().unwrap().len(), 200, "{effect}");
        for release in releases {
            release.notify_one();
        }
        assert_eq!(world.done(job).await.status, JobStatus::Completed, "{effect}");
        assert_eq!(world.tools.calls.lock().unwrap().len(), 241, "{effect}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_what_may_be_dropped_awaits_the_rest_and_is_that_of_the_first_name() {
    let world = World::new();
    let file = agent(4, 4, "pure")
        .replace("b: { kind: function, function: f, effect: pure", "b: { kind: function, function: f");
    world.put(&file).await;
    let no = |code: &str| ToolOutcome::RefusedPermanent(Failure::new(code, "no"));
    let (_process, job, releases) = held(&world, &["a", "b", "c", "d"], |name| match name {
        "c" | "a" => no(name),
        _ => done(json!(name)),
    })
    .await;
    releases[2].notify_one();
    settle().await;
    // The call that must not be repeated is awaited; the others are dropped.
    assert_eq!(world.state(job).await.status, JobStatus::Running);
    releases[1].notify_one();
    let state = world.done(job).await;
    let Some(Ending::Failed { error, node }) = state.ending.clone() else { panic!("{:?}", state.ending) };
    assert_eq!((error.code.as_str(), node), ("c", Some("c".into())));
    assert_eq!(state.node_status(&"b".into()), StepStatus::Completed);
    assert_eq!(
        (state.node_status(&"a".into()), state.node_status(&"d".into())),
        (StepStatus::Running, StepStatus::Running)
    );
    assert_eq!(world.tools.count("end"), 0);
    // Two that fail together: the first of the names.
    let world = World::new();
    world.put(&agent(4, 4, "pure")).await;
    for name in ["a", "c", "d"] {
        world.tools.next(name, [Act::Say(no(name))]);
    }
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let Some(Ending::Failed { error, .. }) = world.done(job).await.ending else { panic!() };
    assert_eq!(error.code, "a");
}

/// Nothing leaves any more once a step beside it has failed, although the permission may be written.
#[tokio::test(start_paused = true)]
async fn no_call_leaves_beside_a_step_that_fails_before_it_begins() {
    let world = World::new();
    let file = agent(4, 2, "at_most_once")
        .replace("tool: b, input: { of: b }", "tool: b, input: { of: \"{{ message.none.such }}\" }");
    world.put(&file).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let Some(Ending::Failed { error, .. }) = world.done(job).await.ending else { panic!() };
    assert_eq!((error.code.as_str(), world.tools.count("a")), ("template_error", 0));
}

/// A call of unknown outcome beside a failure stays in the list of doubts.
#[tokio::test(start_paused = true)]
async fn a_doubt_beside_a_failure_can_still_be_answered() {
    let world = World::new();
    world.put(&agent(2, 2, "at_most_once")).await;
    let (_process, job, releases) = held(&world, &["a", "b"], |name| match name {
        "a" => unknown("reset"),
        _ => ToolOutcome::RefusedPermanent(Failure::new("no", "no")),
    })
    .await;
    releases[1].notify_one();
    settle().await;
    releases[0].notify_one();
    let state = world.done(job).await;
    assert_eq!((state.status, state.node_status(&"a".into())), (JobStatus::Failed, StepStatus::InDoubt));
    let key = state.steps[&"a".into()].invocation.as_deref().unwrap().key;
    world.rt.resolve(job, key, happened(1, Json::new(json!(4)))).await.unwrap();
    assert_eq!(world.tools.count("a"), 1);
}

/// Others go on; the job waits when nothing else can, and goes on with each answer.
#[tokio::test(start_paused = true)]
async fn two_calls_of_one_job_in_doubt_are_answered_one_by_one() {
    let world = World::new();
    world.put(&agent(3, 3, "at_most_once")).await;
    let (_process, job, releases) = held(&world, &["a", "b", "c"], |name| match name {
        "c" => done(json!("c")),
        _ => unknown("reset"),
    })
    .await;
    releases[0].notify_one();
    releases[1].notify_one();
    settle().await;
    let state = world.state(job).await;
    assert_eq!((state.status, state.blocks.is_empty()), (JobStatus::Running, true));
    releases[2].notify_one();
    let state = world.until(job, &[JobStatus::Parked]).await;
    let waits: Vec<String> = state.blocks.iter().map(|blocked| blocked.node.to_string()).collect();
    assert_eq!(waits, ["a", "b"]);
    let key = |node: &str| state.steps[&node.into()].invocation.as_deref().unwrap().key;
    world.rt.resolve(job, key("b"), happened(1, Json::new(json!(4)))).await.unwrap();
    let one = loop {
        let state = world.until(job, &[JobStatus::Parked]).await;
        if state.node_status(&"b".into()) == StepStatus::Completed {
            break state;
        }
    };
    assert_eq!(one.blocks.iter().map(|blocked| blocked.node.to_string()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(one.blocks.oldest().unwrap().since, state.blocks.of(&"a".into()).unwrap().since);
    assert_eq!(world.tools.count("end"), 0);
    tokio::time::sleep(std::time::Duration::from_secs(180)).await;
    let again = aetheris_runtime::ops::Resolution { then: aetheris_runtime::ops::Then::Retry, ..did_not_happen(1) };
    world.rt.resolve(job, key("a"), again).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!((world.tools.count("a"), world.tools.count("b"), world.tools.count("c")), (2, 1, 1));
}

/// A paused job goes on where it was, or with what has ended meanwhile.
#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_two_answers_is_paused_and_goes_on() {
    for answered in [false, true] {
        let world = World::new();
        world.put(&agent(2, 2, "at_most_once")).await;
        for name in ["a", "b"] {
            world.tools.next(name, [Act::Say(unknown("reset"))]);
        }
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.until(job, &[JobStatus::Parked]).await;
        world.rt.pause(job).await.unwrap();
        let key = |node: &str| state.steps[&node.into()].invocation.as_deref().unwrap().key;
        if answered {
            world.rt.resolve(job, key("b"), happened(1, Json::new(json!(4)))).await.unwrap();
            assert_eq!(world.state(job).await.status, JobStatus::Paused);
        }
        world.rt.resume(job).await.unwrap();
        settle().await;
        let state = world.until(job, &[JobStatus::Parked]).await;
        let b = if answered { StepStatus::Completed } else { StepStatus::InDoubt };
        assert_eq!(state.node_status(&"b".into()), b);
        for node in if answered { &["a"][..] } else { &["a", "b"] } {
            world.rt.resolve(job, key(node), happened(1, Json::new(json!(4)))).await.unwrap();
        }
        assert_eq!(world.done(job).await.status, JobStatus::Completed);
    }
}

/// The job is given back for the shortest delay, and waits for the answer meanwhile.
#[tokio::test(start_paused = true)]
async fn a_long_back_off_and_a_doubt_hold_nothing_up() {
    let world = World::new();
    world.put(&agent(3, 3, "at_most_once")).await;
    let busy = || ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    world.tools.next("a", [Act::Say(busy())]);
    world.tools.next("b", [Act::Say(unknown("reset"))]);
    let (process, job, releases) = held(&world, &["c"], |_| done(json!("c"))).await;
    settle().await;
    let state = world.state(job).await;
    assert_eq!((state.status, state.node_status(&"a".into())), (JobStatus::Running, StepStatus::Retrying));
    releases[0].notify_one();
    let state = loop {
        let state = world.until(job, &[JobStatus::Pending]).await;
        if state.not_before.is_some() {
            break state;
        }
        settle().await;
    };
    assert_eq!(state.blocks.iter().map(|blocked| blocked.node.to_string()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(world.tools.count("a"), 1);
    let row = process.rt.store.job(Scope::System, job).await.unwrap().unwrap();
    assert!(row.holder.is_none());
    // The answer sets the job going, and the delay goes on.
    let key = state.steps[&"b".into()].invocation.as_deref().unwrap().key;
    world.rt.resolve(job, key, happened(1, Json::new(json!(4)))).await.unwrap();
    while world.state(job).await.node_status(&"b".into()) != StepStatus::Completed {
        settle().await;
    }
    assert_eq!(world.tools.count("a"), 1);
    let state = world.done(job).await;
    assert_eq!((state.status, world.tools.count("a")), (JobStatus::Completed, 2));
    assert!(state.last_at.since(state.created_at) >= Span::from_secs(1_800));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_eight_run_records_every_outcome() {
    let world = World::new();
    world.put(&agent(8, 8, "at_most_once")).await;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let (_process, job, releases) = held(&world, &names, |name| done(json!(name))).await;
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
    settle().await;
    for release in releases {
        assert_eq!(world.state(job).await.status, JobStatus::Running);
        release.notify_one();
        settle().await;
    }
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Cancelled);
    assert!(names.iter().all(|name| state.node_status(&(*name).into()) == StepStatus::Completed));
}

/// The run has lost its job, and its calls answer: each outcome is deposited, and no call is made again.
#[tokio::test(start_paused = true)]
async fn a_lease_lost_while_eight_run_loses_no_outcome() {
    let world = World::new();
    world.put(&agent(8, 8, "at_most_once")).await;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let (process, job, releases) = held(&world, &names, |name| done(json!(name))).await;
    process.freeze_keeper();
    let _second = world.start("second");
    let state = world.until(job, &[JobStatus::Parked]).await;
    assert_eq!(state.blocks.iter().count(), 8);
    for release in releases {
        release.notify_one();
    }
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert!(names.iter().all(|name| world.tools.count(name) == 1));
}

/// What a killed process had called is in doubt; what it had not is called.
#[tokio::test(start_paused = true)]
async fn a_kill_while_several_run_repeats_no_call() {
    let world = World::new();
    world.put(&agent(2, 4, "at_most_once")).await;
    let (process, job, _releases) = held(&world, &["a", "b"], |name| done(json!(name))).await;
    process.kill();
    let _second = world.start("second");
    let state = world.until(job, &[JobStatus::Parked]).await;
    let count = |name| world.tools.count(name);
    assert_eq!((count("a"), count("b"), count("c"), count("d")), (1, 1, 1, 1));
    for node in ["a", "b"] {
        let key = state.steps[&node.into()].invocation.as_deref().unwrap().key;
        world.rt.resolve(job, key, happened(1, Json::new(json!(4)))).await.unwrap();
    }
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_set_with_a_wait_runs_one_step_at_a_time() {
    let world = World::new();
    let file = agent(4, 2, "pure").replace(
        "    - { id: last",
        "    - { id: aa, kind: wait, wait_type: signal, correlation_key: k }\n    - { id: last",
    );
    world.put(&file).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Waiting, JobStatus::Parked]).await;
    assert_eq!((world.tools.count("a"), world.tools.count("b")), (1, 0));
    world.signal(job, "k", json!(1)).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// A slow body shows that it runs, whatever else does.
#[tokio::test(start_paused = true)]
async fn slow_bodies_are_seen_beside_each_other() {
    let world = World::new();
    world.put(&agent(2, 2, "pure")).await;
    let (_process, job, releases) = held(&world, &["a", "b"], |name| done(json!(name))).await;
    world.start_shown(job, "a").await;
    world.start_shown(job, "b").await;
    for release in releases {
        release.notify_one();
    }
    world.done(job).await;
    let starts = world.events(job).await.iter().filter(|event| matches!(event, Event::NodeStarted(_))).count();
    assert_eq!(starts, 3);
}

/// A tool that only looks answers too early about both: each is asked again when its answer can count, and not before.
#[tokio::test(start_paused = true)]
async fn two_early_answers_about_doubts_are_waited_out_together() {
    let world = World::new();
    let ask = "a: { kind: function, function: f, on_in_doubt: [{ reconcile: look }, fail]";
    let file = agent(2, 2, "at_most_once").replace("a: { kind: function, function: f", ask);
    let file = file.replace("b: { kind: function, function: f", &ask.replace("a: {", "b: {"));
    world.put(&file.replace("  end:", "  look: { kind: function, function: f, effect: pure }\n  end:")).await;
    for name in ["a", "b"] {
        world.tools.next(name, [Act::Say(unknown("reset"))]);
    }
    let no = || Act::Say(done(json!({ "outcome": "did_not_happen" })));
    world.tools.next("look", std::iter::repeat_with(no).take(1_000));
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    let asked = world.tools.count("look");
    assert!((4..=8).contains(&asked), "{asked} questions");
    assert_eq!((world.tools.count("a"), world.tools.count("b")), (2, 2));
}

/// A delay passes while a step beside it does nothing that is written, and what is left of it is all that the job is given
/// back for.
#[tokio::test(start_paused = true)]
async fn a_delay_runs_down_beside_a_quiet_step() {
    for (held_for, retried) in [(7_200, true), (1_800, false)] {
        let world = World::new();
        world.put(&agent(2, 2, "pure").replace("timeout: 60s", "timeout: 4h")).await;
        let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
        world.tools.next("a", [Act::Say(busy)]);
        let (_process, job, releases) = held(&world, &["b"], |_| done(json!("b"))).await;
        tokio::time::sleep(std::time::Duration::from_secs(held_for)).await;
        assert_eq!(world.tools.count("a"), if retried { 2 } else { 1 });
        releases[0].notify_one();
        let state = world.done(job).await;
        let took = state.last_at.since(state.created_at);
        assert!(took < Span::from_secs(held_for.max(3_600) + 10), "{took}");
        assert_eq!(state.status, JobStatus::Completed);
    }
}

/// A job ends whatever the number of its calls whose outcome is unknown.
#[tokio::test(start_paused = true)]
async fn a_job_with_many_open_calls_ends() {
    for cancels in [false, true] {
        let world = World::new();
        world.put(&agent(250, 250, "idempotent")).await;
        let all = names(250);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let no = || ToolOutcome::RefusedPermanent(Failure::new("no", "no"));
        let (process, job, releases) = held(&world, &all, |_| no()).await;
        let status = if cancels {
            process.rt.cancel(job).await.unwrap();
            JobStatus::Cancelled
        } else {
            releases[7].notify_one();
            JobStatus::Failed
        };
        let state = world.done(job).await;
        assert_eq!(state.status, status);
        let doubts = state.steps.values().filter(|step| step.status == StepStatus::InDoubt).count();
        assert!(doubts >= 249, "{doubts}");
        if let Some(Ending::Failed { error, .. }) = state.ending {
            assert_eq!(error.code, "no");
        }
    }
}

/// A run that has lost its job tells what a call came to at once, however long others still take.
#[tokio::test(start_paused = true)]
async fn an_outcome_of_a_lost_run_does_not_wait_for_its_siblings() {
    let world = World::new();
    world.put(&agent(2, 2, "at_most_once").replace("timeout: 60s", "timeout: 2h")).await;
    let (process, job, releases) = held(&world, &["a", "b"], |name| done(json!(name))).await;
    process.freeze_keeper();
    let _second = world.start("second");
    world.until(job, &[JobStatus::Parked]).await;
    releases[0].notify_one();
    while world.state(job).await.node_status(&"a".into()) != StepStatus::Completed {
        settle().await;
    }
    assert_eq!(world.state(job).await.node_status(&"b".into()), StepStatus::InDoubt);
    releases[1].notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// A worker that stops beside a failure lets its job fail: the next one may run another number of steps at once.
#[tokio::test(start_paused = true)]
async fn a_job_that_has_failed_is_not_given_back_to_begin_others() {
    let world = World::new();
    world.put(&agent(2, 3, "at_most_once")).await;
    let (process, job, releases) = held(&world, &["a", "b"], |name| match name {
        "b" => ToolOutcome::RefusedPermanent(Failure::new("no", "no")),
        _ => done(json!(name)),
    })
    .await;
    releases[1].notify_one();
    settle().await;
    process.stop.drain.cancel();
    let _second = world.start("second");
    settle().await;
    releases[0].notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Failed);
    assert_eq!((world.tools.count("c"), world.tools.count("end")), (0, 0));
}

/// The job is given back until the first of its next tries.
#[tokio::test(start_paused = true)]
async fn of_two_delays_the_shorter_one_counts() {
    let world = World::new();
    let file = agent(2, 2, "pure").replace("tool: b, input", "tool: b, retry: { backoff: 10m }, input");
    world.put(&file).await;
    let busy = || ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    for name in ["a", "b"] {
        world.tools.next(name, [Act::Say(busy())]);
    }
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    while world.tools.count("b") < 2 {
        settle().await;
    }
    let state = world.state(job).await;
    assert_eq!((world.tools.count("a"), state.last_at.since(state.created_at) < Span::from_secs(700)), (1, true));
    let state = world.done(job).await;
    assert!(state.last_at.since(state.created_at) < Span::from_secs(3_700));
}

/// A worker that stops gives a job back whose next try is about to be due.
#[tokio::test(start_paused = true)]
async fn a_stop_in_the_last_moments_of_a_delay_gives_the_job_back() {
    let world = World::new();
    world.put(&agent(2, 2, "pure").replace("backoff: 1h", "backoff: 1s")).await;
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    world.tools.next("a", [Act::Say(busy)]);
    let (process, job, releases) = held(&world, &["b"], |_| done(json!("b"))).await;
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    process.stop.drain.cancel();
    releases[0].notify_one();
    let state = world.until(job, &[JobStatus::Pending]).await;
    assert_eq!((state.node_status(&"a".into()), world.tools.count("a")), (StepStatus::Retrying, 1));
    let _second = world.start("second");
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}
