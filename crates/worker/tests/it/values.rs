//! Values that nobody can compute again: `now()`, `random()` and `uuid()` in templates.

use std::collections::BTreeSet;

use aetheris_core::event::{Drawn, Event, Failure};
use aetheris_core::job::JobStatus;
use aetheris_core::path::StepPath;
use aetheris_runtime::ToolOutcome;
use aetheris_runtime::inputs::Inputs;
use aetheris_runtime::load::Loaded;
use aetheris_store::Scope;
use serde_json::{Value, json};

use crate::world::{Act, World, done, hold};

fn agent(nodes: &str) -> String {
    let tool = |name: &str, class: &str| format!("  {name}: {{ kind: function, function: f, effect: {class} }}\n");
    let tools = tool("a", "pure") + &tool("b", "idempotent");
    format!(
        "agent: a\nmodel: fake/one\nretry: {{ max_attempts: 3, backoff: 1ms }}\ntools:\n{tools}plan:\n  nodes:\n{nodes}"
    )
}

fn recorded(events: &[Event]) -> Vec<(String, Vec<Drawn>)> {
    let values = events.iter().filter_map(|event| match event {
        Event::ValueRecorded(e) => Some((e.node.to_string(), e.values.clone())),
        _ => None,
    });
    values.collect()
}

/// Each call has a value of its own, but the moment is one, and is the store's of the event that records it.
#[tokio::test(start_paused = true)]
async fn a_transform_is_given_values_that_are_recorded() {
    let world = World::new();
    let output = "\"{{ [uuid(), uuid(), random(), now(), now()] }}\"";
    world.put(&agent(&format!("    - {{ id: n, kind: transform, output: {output} }}\n"))).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    let result = world.result(job).await;
    let [first, second, number, now, again] = &result.as_array().unwrap()[..] else { panic!("{result}") };
    assert_ne!(first, second);
    assert_eq!(first.as_str().unwrap().len(), 36);
    assert!((0.0..1.0).contains(&number.as_f64().unwrap()));
    assert_eq!(now, again);
    let history = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap();
    let moment = history.events.iter().find(|recorded| match &recorded.event {
        Event::ValueRecorded(e) => e.values == [Drawn::Now],
        _ => false,
    });
    assert_eq!(now, &json!(moment.unwrap().at.to_string()));
    assert_eq!(state.steps[&"n".into()].values.drawn.len(), 3);
    let events = world.events(job).await;
    assert_eq!(recorded(&events).len(), 2, "the moment first, as the store gives it: {events:?}");
}

/// Every try sees the same, and so does who looks at the question later.
#[tokio::test(start_paused = true)]
async fn every_try_of_a_step_has_the_same_values() {
    let world = World::new();
    let busy = || ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    for name in ["a", "b"] {
        world.tools.next(name, [Act::Say(busy()), Act::Say(busy()), Act::Say(done(json!(1)))]);
    }
    let call = |name: &str| {
        format!("    - {{ id: {name}, kind: tool, tool: {name}, input: {{ id: \"{{{{ uuid() }}}}\" }} }}\n")
    };
    let ask = "    - { id: q, kind: llm, system: \"{{ uuid() }}\", prompt: \"{{ uuid() }} {{ random() }}\" }\n";
    world.put(&agent(&(call("a") + &call("b") + ask))).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
    for name in ["a", "b"] {
        let inputs: BTreeSet<String> = world.tools.calls_of(name).iter().map(|call| call.input.to_string()).collect();
        assert_eq!((world.tools.count(name), inputs.len()), (3, 1), "{inputs:?}");
    }
    let told: Vec<String> = recorded(&world.events(job).await).into_iter().map(|(node, _)| node).collect();
    assert_eq!(told, ["a", "b", "q"]);
    // The model echoes its prompt.
    let said = world.result(job).await;
    let loaded = Loaded::read(world.rt.store.as_ref(), &Scope::System, job).await.unwrap();
    let plan = world.rt.plans.get(world.rt.store.as_ref(), loaded.state.plan.unwrap().hash).await.unwrap();
    let shown = Inputs::of_job(&loaded)
        .render(&aetheris_core::schedule::step_at(&loaded.state, &plan, &"q".into()).unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(shown.value()["prompt"], said);
    let Some(Drawn::Uuid(last)) = state.steps[&"q".into()].values.drawn.last() else { panic!("{state:?}") };
    assert_eq!(shown.value()["system"], json!(last));
}

/// What left the process is recorded: whoever takes the job over calls with the same.
#[tokio::test(start_paused = true)]
async fn who_goes_on_with_a_job_has_the_values_of_who_began() {
    let world = World::new();
    let nodes = "    - { id: b, kind: tool, tool: b, input: { id: \"{{ uuid() }}\", at: \"{{ now() }}\" } }\n";
    world.put(&agent(nodes)).await;
    let (held, reached, _never) = hold(done(json!(1)));
    world.tools.next("b", [held]);
    let first = world.start("w1");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    first.kill();
    let _second = world.start("w2");
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{:?}", state.ending);
    let inputs: Vec<Value> = world.tools.calls_of("b").iter().map(|call| call.input.value().clone()).collect();
    assert_eq!(inputs.len(), 2);
    assert_eq!(inputs[0], inputs[1]);
}

/// Items draw for themselves.
#[tokio::test(start_paused = true)]
async fn each_item_of_a_map_has_values_of_its_own() {
    let world = World::new();
    let map = "    - { id: m, kind: map, over: [1, 2, 3], do: { kind: transform, output: \"{{ uuid() }}\" } }\n";
    world.put(&agent(map)).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    let result = world.result(job).await;
    let all: BTreeSet<&str> = result.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(all.len(), 3, "{result}");
    assert_eq!(state.steps[&StepPath::from("m[1]")].values.drawn.len(), 1);
}

/// The key of a wait may be made of chance: it is known once the wait is reached, and stays.
#[tokio::test(start_paused = true)]
async fn a_waits_key_may_be_drawn() {
    let world = World::new();
    let wait = "    - { id: w, kind: wait, wait_type: signal, correlation_key: \"{{ uuid() }}\" }\n";
    world.put(&agent(wait)).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.until(job, &[JobStatus::Waiting]).await;
    let key = state.open_key().unwrap().to_owned();
    world.signal(job, &key, json!(7)).await.unwrap();
    world.done(job).await;
    assert_eq!(world.result(job).await, json!(7));
}

/// A step that asks for more than it may fails, and draws no more.
#[tokio::test(start_paused = true)]
async fn a_step_draws_no_more_than_it_may() {
    let world = World::new();
    let output = "\"{% for i in range(message.n) %}{{ random() }}{% endfor %}\"";
    world.put(&agent(&format!("    - {{ id: n, kind: transform, output: {output} }}\n"))).await;
    let _process = world.start("w");
    for (n, status) in [(1_000, JobStatus::Completed), (1_001, JobStatus::Failed)] {
        let job = world.submit("a", json!({ "n": n })).await;
        let state = world.done(job).await;
        assert_eq!(state.status, status, "{:?}", state.ending);
    }
}
