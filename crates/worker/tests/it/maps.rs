//! The same work for each item of a list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::{DoubtOutcome, Failure, Then};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::state::{Ending, JobState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::ops::Resolution;
use aetheris_runtime::ports::MODEL_HELD_BACK;
use aetheris_runtime::{Heard, ModelAnswer, ModelError, ModelRequest, Models, ToolOutcome};
use serde_json::{Value, json};

use crate::world::{Act, World, did_not_happen, done, happened, hold, unknown};

/// A plan with a map `m` over the message's list and what else it says of that, and more nodes.
fn agent(class: &str, map: &str, more: &str) -> String {
    let tool = |name: &str| format!("  {name}: {{ kind: function, function: f, effect: {class} }}\n");
    format!(
        "agent: a\nretry: {{ max_attempts: 1 }}\ntools:\n{}{}plan:\n  nodes:\n    \
         - {{ id: m, kind: map, over: \"{{{{ message.list }}}}\", {map} }}\n{more}",
        tool("a"),
        tool("b")
    )
}

const CALL: &str = "do: { kind: tool, tool: a, input: { of: \"{{ item }}\", at: \"{{ item_index }}\" } }";

fn no(code: &str) -> ToolOutcome {
    ToolOutcome::RefusedPermanent(Failure::new(code, "never"))
}

fn list(count: usize) -> Value {
    json!({ "list": (0..count).collect::<Vec<_>>() })
}

fn error(state: &JobState) -> (String, Option<String>) {
    match &state.ending {
        Some(Ending::Failed { error, node }) => {
            (format!("{}: {}", error.code, error.message), node.as_ref().map(ToString::to_string))
        }
        other => panic!("{other:?}"),
    }
}

/// Results stand in the order of the list, whatever order they come in; each call has a key and a path of its own.
#[tokio::test(start_paused = true)]
async fn items_come_out_in_their_order_whichever_ended_first() {
    for class in ["pure", "idempotent", "at_most_once"] {
        let world = World::new();
        world.put(&agent(class, &format!("concurrency: 2, {CALL}"), "")).await;
        let later = |millis, value: Value| Act::After(Duration::from_millis(millis), done(value));
        let (held, reached, release) = hold(done(json!("first")));
        let rest = ["b", "c", "d", "e"].map(|value| later(10, json!(value)));
        world.tools.next("a", [held].into_iter().chain(rest));
        let _process = world.start("w");
        let job = world.submit("a", list(5)).await;
        reached.notified().await;
        let last = StepPath::from("m[4]");
        while world.state(job).await.step_status(&last) != StepStatus::Completed {
            tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
        }
        release.notify_one();
        world.done(job).await;
        assert_eq!(world.result(job).await, json!(["first", "b", "c", "d", "e"]), "{class}");
        let calls = world.tools.calls_of("a");
        let paths: Vec<String> = calls.iter().map(|call| call.node.to_string()).collect();
        assert_eq!(paths, ["m[0]", "m[1]", "m[2]", "m[3]", "m[4]"]);
        let keys: BTreeSet<_> = calls.iter().map(|call| call.key).collect();
        assert_eq!(keys.len(), 5);
        let inputs: Vec<&Value> = calls.iter().map(|call| call.input.value()).collect();
        assert_eq!(inputs[3], &json!({ "of": 3, "at": 3 }));
    }
}

/// Never more than the bound are under way, and as many as it wherever there are so many.
#[tokio::test(start_paused = true)]
async fn as_many_items_as_the_map_says_are_under_way() {
    let world = World::new();
    world.put(&agent("pure", &format!("concurrency: 3, {CALL}"), "")).await;
    world.tools.next("a", (0..10).map(|_| Act::After(Duration::from_secs(1), done(json!(1)))));
    let _process = world.start("w");
    let job = world.submit("a", list(10)).await;
    world.done(job).await;
    assert_eq!(world.passed().as_secs(), 4, "ten items three at a time are four rounds");
}

/// What an item sees: itself, its place, and what its map sees.
#[tokio::test(start_paused = true)]
async fn an_item_sees_itself_and_what_its_map_sees() {
    let world = World::new();
    let map = "as: row, needs: [n], when: message.on, do: { kind: transform, when: row.keep, \
               output: \"{{ [row.id, row_index, nodes.n.output] }}\" }";
    let more = "    - { id: n, kind: transform, output: 7 }\n    \
                - { id: sum, kind: transform, needs: [m], output: \"{{ nodes.m.output }}\" }\n";
    world.put(&agent("pure", map, more)).await;
    let _process = world.start("w");
    let rows = json!([{ "id": "x", "keep": true }, { "id": "y", "keep": false }, { "id": "z", "keep": true }]);
    let job = world.submit("a", json!({ "list": rows, "on": true })).await;
    world.done(job).await;
    assert_eq!(world.result(job).await, json!([["x", 0, 7], null, ["z", 2, 7]]));
    let off = world.submit("a", json!({ "list": rows, "on": false })).await;
    assert_eq!(world.done(off).await.node_status(&"m".into()), StepStatus::Skipped);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_list_or_too_long_fails_and_an_empty_one_completes() {
    let world = World::new();
    world.put(&agent("pure", "do: { kind: transform, output: 1 }", "")).await;
    let _process = world.start("w");
    let empty = world.submit("a", list(0)).await;
    world.done(empty).await;
    assert_eq!(world.result(empty).await, json!([]));
    let most = world.submit("a", list(limits::MAP_ITEMS_MAX)).await;
    world.done(most).await;
    assert_eq!(world.result(most).await.as_array().unwrap().len(), limits::MAP_ITEMS_MAX);
    for (message, said) in [
        (list(limits::MAP_ITEMS_MAX + 1), "bad_list: `over` gives 10001 items; a map takes at most 10000"),
        (json!({ "list": "x" }), "bad_list: `over` gives a text, not a list"),
        (json!({ "list": null }), "bad_list: `over` gives null, not a list"),
        (
            json!({}),
            "template_error: `over` cannot be rendered: `message.list` is not defined: correct the \
             name, or give a fallback with `| default(...)`",
        ),
    ] {
        let job = world.submit("a", message).await;
        let state = world.done(job).await;
        assert_eq!(error(&state), (said.to_owned(), Some("m".to_owned())));
    }
}

/// Failures are told in their places, and the others go on.
#[tokio::test(start_paused = true)]
async fn a_map_may_collect_the_failures_of_its_items() {
    for class in ["pure", "at_most_once"] {
        let world = World::new();
        world.put(&agent(class, &format!("concurrency: 2, on_item_failure: collect, {CALL}"), "")).await;
        world.tools.next("a", [done(json!(1)), no("gone"), done(json!(3))].map(Act::Say));
        let _process = world.start("w");
        let job = world.submit("a", list(3)).await;
        world.done(job).await;
        let failed = json!({ "ok": false, "error": { "code": "gone", "message": "never" } });
        let ok = |output: i32| json!({ "ok": true, "output": output });
        assert_eq!(world.result(job).await, json!([ok(1), failed, ok(3)]), "{class}");
    }
}

/// The first failure by its place is the map's, no other item begins, and what is under way comes to its end.
#[tokio::test(start_paused = true)]
async fn a_map_fails_with_the_first_item_that_has() {
    let world = World::new();
    world.put(&agent("at_most_once", &format!("concurrency: 3, {CALL}"), "")).await;
    let (held, reached, release) = hold(no("first"));
    let (sure, _, acted) = hold(done(json!("acted")));
    world.tools.next("a", [held, Act::Say(no("second")), sure]);
    let _process = world.start("w");
    let job = world.submit("a", list(9)).await;
    reached.notified().await;
    let second = StepPath::from("m[1]");
    while world.state(job).await.step_status(&second) != StepStatus::Failed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    release.notify_one();
    acted.notify_one();
    let state = world.done(job).await;
    assert_eq!(error(&state), ("first: item 0: never".to_owned(), Some("m".to_owned())));
    assert_eq!(world.tools.count("a"), 3);
    assert_eq!(state.step_status(&"m[2]".into()), StepStatus::Completed, "what acted is recorded");
}

/// A map that may fail does, and the nodes behind it see that: what was under way is given up, and nothing of it goes on.
#[tokio::test(start_paused = true)]
async fn items_under_way_are_given_up_when_their_map_has_failed() {
    for class in ["pure", "idempotent"] {
        let world = World::new();
        let more = "    - { id: said, kind: transform, needs: [m], output: \"{{ nodes.m.error.code }}\" }\n";
        world.put(&agent(class, &format!("on_failure: fail_safe, concurrency: 2, {CALL}"), more)).await;
        let (held, reached, _never) = hold(done(json!(1)));
        let (failing, _, fail) = hold(no("gone"));
        world.tools.next("a", [held, failing]);
        let _process = world.start("w");
        let job = world.submit("a", list(4)).await;
        reached.notified().await;
        fail.notify_one();
        let state = world.done(job).await;
        assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
        assert_eq!(world.result(job).await, json!("gone"));
        let given_up = &state.steps[&"m[0]".into()];
        assert_eq!(given_up.error.as_ref().unwrap().code, "map_stopped", "{class}");
        assert_eq!(world.tools.count("a"), 2);
    }
}

/// An item whose call is in doubt waits for a person and holds no others up.
#[tokio::test(start_paused = true)]
async fn an_item_in_doubt_holds_no_others_up() {
    for answer in [true, false] {
        let world = World::new();
        world.put(&agent("at_most_once", CALL, "").replace("max_attempts: 1", "max_attempts: 2")).await;
        world.tools.next("a", [Act::Say(unknown("reset"))]);
        world.tools.next("a", [1, 2, 3].map(|value| Act::Say(done(json!(value)))));
        let _process = world.start("w");
        let job = world.submit("a", list(3)).await;
        let state = world.until(job, &[JobStatus::Parked]).await;
        let ended = |item: &str| state.step_status(&item.into()) == StepStatus::Completed;
        assert!(ended("m[1]") && ended("m[2]"), "{:?}", state.steps);
        let doubt = world.rt.store.in_doubt(10).await.unwrap().remove(0);
        tokio::time::advance(Duration::from_secs(600)).await;
        let said = if answer { happened(1, Json::new(json!("sure"))) } else { did_not_happen(1) };
        world.rt.resolve(job, doubt.key, said).await.unwrap();
        world.done(job).await;
        assert_eq!(world.result(job).await, if answer { json!(["sure", 1, 2]) } else { json!([3, 1, 2]) });
        let calls = world.tools.calls_of("a");
        assert_eq!(calls.iter().filter(|call| call.node.text() == "m[0]").count(), if answer { 1 } else { 2 });
    }
}

/// What was recorded is not done again, and what was begun goes on, under whoever takes the job over.
#[tokio::test(start_paused = true)]
async fn a_crash_repeats_no_item_that_is_recorded() {
    for class in ["pure", "at_most_once"] {
        let world = World::new();
        world.put(&agent(class, &format!("concurrency: 2, {CALL}"), "")).await;
        let (held, reached, _never) = hold(done(json!("late")));
        world.tools.next("a", [0, 1, 2].map(|value| Act::Say(done(json!(value)))));
        world.tools.next("a", [held]);
        let first = world.start("w1");
        let job = world.submit("a", list(6)).await;
        reached.notified().await;
        world.start_shown(job, "m[3]").await;
        let recorded = world.state(job).await;
        first.kill();
        let _second = world.start("w2");
        if class == "at_most_once" {
            world.until(job, &[JobStatus::Parked]).await;
            let doubt = world.rt.store.in_doubt(10).await.unwrap().remove(0);
            assert_eq!(doubt.node.text(), "m[3]");
            world.rt.resolve(job, doubt.key, happened(1, Json::new(json!(3)))).await.unwrap();
        }
        let state = world.done(job).await;
        assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
        let calls = world.tools.calls_of("a");
        for (path, step) in recorded.steps.iter().filter(|(path, _)| path.item().is_some()) {
            let times = calls.iter().filter(|call| call.node == *path).count();
            let again = step.status == StepStatus::Running && class == "pure";
            assert_eq!(times, if again { 2 } else { 1 }, "{class} {path} {:?}", step.status);
        }
        assert_eq!(world.result(job).await.as_array().unwrap()[..3], [json!(0), json!(1), json!(2)]);
    }
}

/// Whoever goes on with a map has all its values in memory, before its list is put together as well.
#[tokio::test(start_paused = true)]
async fn items_count_for_what_a_job_may_keep() {
    let world = World::new();
    world.put(&agent("pure", "do: { kind: transform, output: \"{{ message.large }}\" }", "")).await;
    let _process = world.start("w");
    let large = vec![json!({ "a": 1 }); 60_000];
    let job = world.submit("a", json!({ "list": vec![0; 50], "large": large })).await;
    let state = world.done(job).await;
    let (why, node) = error(&state);
    assert!(why.starts_with("job_too_large: item "), "{why}");
    assert_eq!(node.as_deref(), Some("m"));
    let kept = state.steps.values().filter(|step| step.status == StepStatus::Completed).count();
    assert!((5..20).contains(&kept), "{kept}");
    // Where the last item is one too many, the list is not put together.
    let job = world.submit("a", json!({ "list": vec![0; kept], "large": large })).await;
    let state = world.done(job).await;
    let (why, node) = error(&state);
    assert!(why.starts_with("job_too_large: the job's message"), "{why}");
    assert_eq!(node.as_deref(), Some("m"));
}

/// What the job as a whole has used up fails it, although its map collects failures and may fail.
#[tokio::test(start_paused = true)]
async fn a_job_that_has_used_up_its_budget_fails_whatever_its_map_says() {
    for more in ["on_item_failure: collect", "on_failure: fail_safe", "on_failure: fail_safe, on_item_failure: collect"]
    {
        let world = World::new();
        let file = agent("pure", &format!("{more}, concurrency: 2, {CALL}"), "");
        world.put(&file.replace("tools:\n", "budget: { max_tool_calls: 3 }\ntools:\n")).await;
        let _process = world.start("w");
        let job = world.submit("a", list(9)).await;
        let state = world.done(job).await;
        let (why, node) = error(&state);
        assert_eq!(why, "budget_exceeded: item 3: the job has made 3 of 3 tool calls", "{more}");
        assert_eq!(node.as_deref(), Some("m"));
        // The third has begun with the one that may not, and nothing is called any more.
        assert_eq!(world.tools.count("a"), 2);
    }
}

/// A call of unknown outcome of a map that has failed stays in the list of doubts, and nobody is asked before the job goes on.
#[tokio::test(start_paused = true)]
async fn a_call_in_doubt_is_given_up_with_its_map() {
    let world = World::new();
    let more = "    - { id: said, kind: transform, needs: [m], output: \"{{ nodes.m.error.code }}\" }\n";
    world.put(&agent("at_most_once", &format!("on_failure: fail_safe, concurrency: 2, {CALL}"), more)).await;
    let (failing, _, fail) = hold(no("gone"));
    world.tools.next("a", [Act::Say(unknown("reset")), failing]);
    let _process = world.start("w");
    let job = world.submit("a", list(2)).await;
    let doubted = StepPath::from("m[0]");
    while world.state(job).await.step_status(&doubted) != StepStatus::InDoubt {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    fail.notify_one();
    let state = world.done(job).await;
    assert_eq!((state.status, world.result(job).await), (JobStatus::Completed, json!("gone")), "{:?}", state.ending);
    assert_eq!(state.steps[&doubted].error.as_ref().unwrap().code, "map_stopped");
    assert_eq!(state.steps[&doubted].left_in_doubt(state.status).map(DoubtOutcome::as_str), Some("unresolved"));
    assert_eq!(world.tools.count("a"), 2);
}

/// An item in a long back-off holds no others up, and its job is given back once only that is left.
#[tokio::test(start_paused = true)]
async fn an_item_in_a_long_back_off_holds_no_others_up() {
    let world = World::new();
    let retry = "retry: { max_attempts: 2, backoff: 60s, max_backoff: 60s, jitter: none } }";
    let call = CALL.replace(" } }", &format!(" }}, {retry}"));
    world.put(&agent("idempotent", &call, "")).await;
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    world.tools.next("a", [Act::Say(busy)]);
    let _process = world.start("w");
    let job = world.submit("a", list(3)).await;
    while world.state(job).await.step_status(&"m[2]".into()) != StepStatus::Completed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    world.until(job, &[JobStatus::Pending]).await;
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
    assert!(world.passed() >= Duration::from_secs(60));
    let calls = world.tools.calls_of("a");
    let order: Vec<String> = calls.iter().map(|call| call.node.to_string()).collect();
    assert_eq!(order, ["m[0]", "m[1]", "m[2]", "m[0]"]);
    assert_eq!(calls[0].key, calls[3].key);
}

/// A map runs its items beside each other in a set that has a wait in it, and in a job of one step at a time.
#[tokio::test(start_paused = true)]
async fn the_bound_of_a_map_is_its_own() {
    for (bound, more) in [(0, ""), (8, "    - { id: p, kind: sleep, duration: 1s }\n")] {
        let world = World::new();
        let file = agent("pure", &format!("concurrency: 8, {CALL}"), more);
        world.put(&file.replace("retry:", &format!("max_parallel_steps: {bound}\nretry:"))).await;
        world.tools.next("a", (0..8).map(|_| Act::After(Duration::from_secs(10), done(json!(1)))));
        let _process = world.start("w");
        let job = world.submit("a", list(8)).await;
        world.done(job).await;
        assert!(world.passed() < Duration::from_secs(20), "{:?}", world.passed());
    }
}

/// Two maps of a set count as two nodes, and have their own bounds.
#[tokio::test(start_paused = true)]
async fn maps_beside_each_other_have_their_own_bounds() {
    let world = World::new();
    let other =
        "    - { id: o, kind: map, over: \"{{ message.list }}\", concurrency: 4, do: { kind: tool, tool: b } }\n";
    let file = agent("pure", &format!("concurrency: 2, {CALL}"), other);
    world.put(&file.replace("retry:", "max_parallel_steps: 2\nretry:")).await;
    for tool in ["a", "b"] {
        world.tools.next(tool, (0..8).map(|_| Act::After(Duration::from_secs(10), done(json!(1)))));
    }
    let _process = world.start("w");
    let job = world.submit("a", list(8)).await;
    world.done(job).await;
    let state = world.state(job).await;
    let took = |node: &str| {
        let step = &state.steps[&node.into()];
        step.finished_at.unwrap().since(step.started_at.unwrap())
    };
    // A start is seen a tenth of a second late.
    let rounds = |node: &str| (took(node).to_std().as_secs() + 1) / 10;
    assert_eq!((rounds("m"), rounds("o")), (4, 2));
}

/// A map that collects goes on with nothing once the job fails with another.
#[tokio::test(start_paused = true)]
async fn a_collected_failure_is_no_part_of_what_is_left_of_a_lost_map() {
    let world = World::new();
    let first = "    - { id: c, kind: map, over: \"{{ message.list }}\", on_item_failure: collect, do: { kind: tool, tool: b } }\n";
    let file = agent("pure", CALL, first);
    world.put(&file.replace("retry:", "max_parallel_steps: 2\nretry:")).await;
    let (held, reached, fail) = hold(no("gone"));
    world.tools.next("a", [held]);
    let (busy, _, _never) = hold(done(json!(1)));
    world.tools.next("b", [Act::Say(no("collected")), busy]);
    let _process = world.start("w");
    let job = world.submit("a", list(5)).await;
    reached.notified().await;
    while world.state(job).await.step_status(&"c[0]".into()) != StepStatus::Failed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    fail.notify_one();
    let state = world.done(job).await;
    assert_eq!(error(&state), ("gone: item 0: never".to_owned(), Some("m".to_owned())));
    assert_eq!(world.tools.count("b"), 2);
}

/// A person says that an item's call did not happen, and that it is to fail: the map collects that like any other failure.
#[tokio::test(start_paused = true)]
async fn a_person_may_fail_one_item_of_a_map() {
    for (more, completes) in [("on_item_failure: collect, ", true), ("", false)] {
        let world = World::new();
        world.put(&agent("at_most_once", &format!("{more}{CALL}"), "")).await;
        world.tools.next("a", [Act::Say(unknown("reset"))]);
        let _process = world.start("w");
        let job = world.submit("a", list(2)).await;
        world.until(job, &[JobStatus::Parked]).await;
        let doubt = world.rt.store.in_doubt(10).await.unwrap().remove(0);
        tokio::time::advance(Duration::from_secs(600)).await;
        let said = Resolution { then: Then::Fail, ..did_not_happen(1) };
        world.rt.resolve(job, doubt.key, said).await.unwrap();
        let state = world.done(job).await;
        assert_eq!(state.status == JobStatus::Completed, completes, "{:?}", state.ending);
        if completes {
            assert_eq!(world.result(job).await[0]["error"]["code"], "did_not_happen");
        }
    }
}

/// A map that ends drops what is under way of itself, and of nothing else.
#[tokio::test(start_paused = true)]
async fn a_map_that_fails_ends_no_step_beside_it() {
    let world = World::new();
    let other = "    - { id: o, kind: tool, tool: b }\n";
    let file = agent("pure", &format!("on_failure: fail_safe, concurrency: 2, {CALL}"), other);
    world.put(&file.replace("retry:", "max_parallel_steps: 2\nretry:")).await;
    let (beside, under_way, release) = hold(done(json!("whole")));
    let (dropped, _, _never) = hold(done(json!(1)));
    let (failing, _, fail) = hold(no("gone"));
    world.tools.next("b", [beside]);
    world.tools.next("a", [dropped, failing]);
    let _process = world.start("w");
    let job = world.submit("a", list(4)).await;
    under_way.notified().await;
    fail.notify_one();
    while world.state(job).await.node_status(&"m".into()) != StepStatus::Failed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    release.notify_one();
    world.done(job).await;
    assert_eq!((world.result(job).await, world.tools.count("b")), (json!("whole"), 1));
}

/// The items of a map behind a race see what it saw when it began, whatever has ended since.
#[tokio::test(start_paused = true)]
async fn items_of_a_map_behind_a_race_see_what_it_saw() {
    let world = World::new();
    let nodes = "    - { id: x, kind: transform, output: 1 }\n    - { id: y, kind: tool, tool: b }\n    \
        - { id: r, kind: map, needs: [x, y], join: any, over: [1, 2], do: { kind: tool, tool: a, input: \"{{ nodes.y.open }}\" } }\n    \
        - { id: z, kind: transform, needs: [r], output: \"{{ nodes.r.output }}\" }\n";
    let file = format!(
        "agent: a\nmax_parallel_steps: 4\ntools:\n  a: {{ kind: function, function: f, effect: pure }}\n  \
         b: {{ kind: function, function: f, effect: pure }}\nplan:\n  nodes:\n{nodes}"
    );
    world.put(&file).await;
    let (slow, _, ends) = hold(done(json!(1)));
    let (first, reached, release) = hold(done(json!("first")));
    world.tools.next("b", [slow]);
    world.tools.next("a", [first]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    ends.notify_one();
    while world.state(job).await.node_status(&"y".into()) != StepStatus::Completed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    release.notify_one();
    world.done(job).await;
    assert_eq!(world.result(job).await, json!(["first", true]), "the second sees the same");
}

/// A job that waits after a map has failed is blocked on its wait alone: what was given up is held no more.
#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_held_no_more() {
    let world = World::new();
    let wait = "    - { id: w, kind: wait, needs: [m], wait_type: human, correlation_key: k }\n";
    let call = CALL.replace(" } }", " }, retry: { max_attempts: 2, backoff: 60s, max_backoff: 60s, jitter: none } }");
    world.put(&agent("idempotent", &format!("on_failure: fail_safe, concurrency: 2, {call}"), wait)).await;
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    let (failing, _, fail) = hold(no("gone"));
    world.tools.next("a", [Act::Say(busy), failing]);
    let _process = world.start("w");
    let job = world.submit("a", list(2)).await;
    while world.state(job).await.step_status(&"m[0]".into()) != StepStatus::Retrying {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    fail.notify_one();
    let state = world.until(job, &[JobStatus::Waiting]).await;
    assert_eq!(state.blocks.iter().map(|blocked| blocked.node.to_string()).collect::<Vec<_>>(), ["w"]);
    assert!(world.passed() < Duration::from_secs(50), "no back-off is waited for: {:?}", world.passed());
    world.signal(job, "k", json!(7)).await.unwrap();
    world.done(job).await;
    assert_eq!(world.result(job).await, json!(7));
}

/// What a run before has left open comes first, whatever else has become due: not more calls of a job are open than may be.
#[tokio::test(start_paused = true)]
async fn calls_that_a_run_has_left_take_their_places_first() {
    let world = World::new();
    let call = CALL.replace(" } }", " }, retry: { max_attempts: 2, backoff: 20s, jitter: none } }");
    world.put(&agent("idempotent", &format!("concurrency: 2, {call}"), "")).await;
    let busy = || ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    let (third, _, _never) = hold(done(json!(2)));
    let (fourth, reached, _nor) = hold(done(json!(3)));
    world.tools.next("a", [Act::Say(busy()), Act::Say(busy()), third, fourth]);
    let first = world.start("w1");
    let job = world.submit("a", list(4)).await;
    reached.notified().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.kill();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let _second = world.start("w2");
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
    let calls: Vec<String> = world.tools.calls_of("a").iter().map(|call| call.node.to_string()).collect();
    assert_eq!(calls, ["m[0]", "m[1]", "m[2]", "m[3]", "m[2]", "m[3]", "m[0]", "m[1]"]);
}

/// A failure of an item that would have been tried again is not the map's.
#[tokio::test(start_paused = true)]
async fn an_item_with_tries_left_is_given_up_and_not_the_one_that_failed() {
    let world = World::new();
    let file = agent("at_most_once", &format!("concurrency: 2, {CALL}"), "");
    world.put(&file.replace("max_attempts: 1", "max_attempts: 5")).await;
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    let (held, reached, release) = hold(busy);
    world.tools.next("a", [held, Act::Say(no("gone"))]);
    let _process = world.start("w");
    let job = world.submit("a", list(2)).await;
    reached.notified().await;
    while world.state(job).await.step_status(&"m[1]".into()) != StepStatus::Failed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!(error(&state), ("gone: item 1: never".to_owned(), Some("m".to_owned())));
    assert!(state.steps[&"m[0]".into()].given_up);
}

/// A call that was about to leave does not, once an item decided after it has ended the map.
#[tokio::test(start_paused = true)]
async fn no_call_leaves_for_a_map_that_has_failed_before_it_began() {
    let world = World::new();
    let more = "    - { id: said, kind: transform, needs: [m], output: \"{{ nodes.m.error.code }}\" }\n";
    let call = "do: { kind: tool, tool: a, input: \"{{ item.x }}\" }";
    world.put(&agent("at_most_once", &format!("on_failure: fail_safe, concurrency: 2, {call}"), more)).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({ "list": [{ "x": 1 }, {}] })).await;
    let state = world.done(job).await;
    assert_eq!((world.result(job).await, world.tools.count("a")), (json!("template_error"), 0), "{:?}", state.ending);
}

/// A budget that is used up fails the job, although a smaller item fails of itself before its map has ended.
#[tokio::test(start_paused = true)]
async fn a_lost_job_is_not_saved_by_a_failure_that_may_be() {
    let world = World::new();
    let file = agent("at_most_once", &format!("on_failure: fail_safe, concurrency: 2, {CALL}"), "");
    world.put(&file.replace("tools:\n", "budget: { max_tool_calls: 2 }\ntools:\n")).await;
    let (held, reached, release) = hold(no("later"));
    world.tools.next("a", [held]);
    let _process = world.start("w");
    let job = world.submit("a", list(3)).await;
    reached.notified().await;
    while world.state(job).await.step_status(&"m[2]".into()) != StepStatus::Failed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    release.notify_one();
    let state = world.done(job).await;
    let expected = "budget_exceeded: item 2: the job has made 2 of 2 tool calls";
    assert_eq!(error(&state), (expected.to_owned(), Some("m".to_owned())));
}

/// Of a lost map and a node that fails while that ends, the smaller name is the job's.
#[tokio::test(start_paused = true)]
async fn a_lost_map_ends_before_its_job() {
    let world = World::new();
    let other = "    - { id: z, kind: tool, tool: b }\n";
    let file = agent("at_most_once", &format!("concurrency: 2, {CALL}"), other);
    world.put(&file.replace("retry:", "max_parallel_steps: 2\nretry:")).await;
    let (held, reached, release) = hold(done(json!(1)));
    let (beside, under_way, fail) = hold(no("beside"));
    world.tools.next("a", [held, Act::Say(no("gone"))]);
    world.tools.next("b", [beside]);
    let _process = world.start("w");
    let job = world.submit("a", list(2)).await;
    reached.notified().await;
    under_way.notified().await;
    fail.notify_one();
    while world.state(job).await.node_status(&"z".into()) != StepStatus::Failed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!(error(&state), ("gone: item 1: never".to_owned(), Some("m".to_owned())));
}

/// While an item waits for its model's provider no other one begins: a long list does not become as many open questions.
#[tokio::test(start_paused = true)]
async fn a_map_whose_items_are_held_back_begins_no_others() {
    struct Limited(std::sync::Mutex<Vec<tokio::time::Instant>>);
    impl Models for Limited {
        fn complete<'a>(
            &'a self,
            request: ModelRequest,
            _: Heard<'a>,
        ) -> aetheris_store::Boxed<'a, Result<ModelAnswer, ModelError>> {
            // One each ten seconds, as a bucket of one has it.
            let mut left = self.0.lock().unwrap();
            let now = tokio::time::Instant::now();
            let next = left.last().map_or(now, |last| *last + Duration::from_secs(10));
            let answer = if next <= now {
                left.push(now);
                Ok(ModelAnswer::text("m", request.prompt, aetheris_core::event::Usage::default()))
            } else {
                let held = ModelError::new(Failure::new(MODEL_HELD_BACK, "later"), true);
                Err(ModelError { retry_after: Some(Span::from_std(next - now)), ..held })
            };
            Box::pin(std::future::ready(answer))
        }

        fn knows(&self, _: &str) -> Result<(), String> {
            Ok(())
        }
    }
    let mut world = World::new();
    let map = "{ id: m, kind: map, over: \"{{ message.list }}\", concurrency: 3, do: { kind: llm, model: p/m, prompt: \"{{ item }}\" } }";
    world.put(&format!("agent: a\nretry: {{ max_attempts: 1 }}\nplan:\n  nodes:\n    - {map}\n")).await;
    world.rt.models = Arc::new(Limited(std::sync::Mutex::default()));
    let _process = world.start("w");
    let began = tokio::time::Instant::now();
    let job = world.submit("a", list(20)).await;
    let state = loop {
        let state = world.state(job).await;
        let open =
            state.steps.iter().filter(|(path, step)| path.item().is_some() && step.status == StepStatus::Running);
        assert!(open.count() <= 3);
        if state.status.is_terminal() {
            break state;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
    let took = began.elapsed().as_secs();
    assert!((190..230).contains(&took), "each leaves as soon as it may: {took} s");
    let claims = world.kinds(job).await.iter().filter(|kind| **kind == "job_claimed").count();
    assert!(claims <= 45, "{claims} claims of 20 questions");
}
