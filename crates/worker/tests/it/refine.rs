//! Outputs that are judged, by a schema or by a critic, and the rounds that follow.

use std::collections::BTreeSet;
use std::time::Duration;

use aetheris_core::event::{Event, Failure, Judge, Verdict};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::state::{Ending, JobState};
use aetheris_core::step::StepStatus;
use aetheris_runtime::ToolOutcome;
use aetheris_runtime::inputs::Inputs;
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ops::SignalAnswer;
use serde_json::{Value, json};

use crate::world::{Act, World, did_not_happen, done, happened, hold, unknown};

const HEAD: &str = "agent: a\nmodel: fake/m\nretry: { max_attempts: 1 }\ntools:\n  \
                    t: { kind: function, function: f, effect: CLASS }\nplan:\n  nodes:\n";

fn agent(class: &str, nodes: &[&str]) -> String {
    let nodes: String = nodes.iter().map(|node| format!("    - {{ {node} }}\n")).collect();
    format!("{}{nodes}", HEAD.replace("CLASS", class))
}

/// A schema of at least so much.
fn least(least: u32) -> String {
    format!("validate: {{ properties: {{ n: {{ minimum: {least} }} }} }}")
}

/// A critic that says no until the output has so much; models say what they are asked.
fn critic(least: u32) -> String {
    format!(
        "id: c, kind: critic, prompt: '{{\"verdict\": \"{{{{ \"pass\" if output.n >= {least} else \"reject\" }}}}\", \
         \"feedback\": \"round {{{{ round }}}} had {{{{ output.n }}}}\"}}'"
    )
}

const COUNTS: &str = "id: n, kind: transform, output: { n: '{{ round }}', told: '{{ feedback }}' }";
const LAST: &str = "id: last, kind: transform, needs: [n], output: '{{ nodes.n.output }}'";

fn error(state: &JobState) -> (String, String) {
    match &state.ending {
        Some(Ending::Failed { error, .. }) => (error.code.clone(), error.message.clone()),
        other => panic!("{other:?}"),
    }
}

async fn refinings(world: &World, job: aetheris_core::id::JobId) -> Vec<(u32, Judge)> {
    let told = |event: &Event| match event {
        Event::NodeRefining(e) => Some((e.round, e.by)),
        _ => None,
    };
    world.events(job).await.iter().filter_map(told).collect()
}

async fn ended(nodes: &[&str]) -> (World, aetheris_core::id::JobId, JobState) {
    let world = World::new();
    world.put(&agent("pure", nodes)).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    (world, job, state)
}

/// What does not fit is done again and told why; the nodes behind it see the last output and no other.
#[tokio::test(start_paused = true)]
async fn an_output_that_does_not_fit_is_made_again() {
    let (world, job, state) = ended(&[&format!("{COUNTS}, {}", least(2)), LAST]).await;
    assert_eq!(world.result(job).await, json!({ "n": 2, "told": "/n: this value is less than the minimum of 2" }));
    assert_eq!(refinings(&world, job).await, [(1, Judge::Schema), (2, Judge::Schema)]);
    let status = |path: &str| state.step_status(&path.into());
    assert_eq!([status("n"), status("n@2")], [StepStatus::Completed; 2]);
    assert_eq!(status("n@1"), StepStatus::Rejected);
    let (world, job, state) = ended(&[&format!("{COUNTS}, {}", least(0)), LAST]).await;
    assert_eq!(world.result(job).await, json!({ "n": 0, "told": "" }));
    assert_eq!((refinings(&world, job).await, state.steps.len()), (Vec::new(), 2));
}

/// The work is done once and `max_refines` times more.
#[tokio::test(start_paused = true)]
async fn rounds_have_an_end() {
    for (most, said) in [
        (
            "",
            "its output was rejected in each of its 4 rounds (max_refines: 3), the last time by its schema: /n: this value is less than the minimum of 9",
        ),
        (
            "max_refines: 1,",
            "its output was rejected in each of its 2 rounds (max_refines: 1), the last time by its schema: /n: this value is less than the minimum of 9",
        ),
        (
            "max_refines: 0,",
            "its output was rejected by its schema, and is not made again (max_refines: 0): /n: this value is less than the minimum of 9",
        ),
    ] {
        let (_, _, state) = ended(&[&format!("{COUNTS}, {most} {}", least(9)), LAST]).await;
        assert_eq!(error(&state), ("rejected".to_owned(), said.to_owned()));
    }
    let safe = format!("{COUNTS}, on_failure: fail_safe, max_refines: 1, {}", least(9));
    let said = "id: said, kind: transform, needs: [n], output: '{{ nodes.n.error.code }}'";
    let (world, job, state) = ended(&[&safe, said]).await;
    assert_eq!((state.status, world.result(job).await), (JobStatus::Completed, json!("rejected")));
    assert_eq!(state.step_status(&"n@1".into()), StepStatus::Failed);
}

/// Both count against one bound, the schema first; a critic's answer is nobody's output.
#[tokio::test(start_paused = true)]
async fn a_critic_is_asked_about_what_fits() {
    let (world, job, state) = ended(&[&format!("{COUNTS}, critic: c, {}", least(1)), LAST, &critic(3)]).await;
    assert_eq!(world.result(job).await, json!({ "n": 3, "told": "round 2 had 2" }));
    let by = [(1, Judge::Schema), (2, Judge::Critic), (3, Judge::Critic)];
    assert_eq!(refinings(&world, job).await, by);
    let asked: Vec<String> = state.steps.keys().filter(|path| path.is_critic()).map(ToString::to_string).collect();
    assert_eq!(asked, ["n@1/critic", "n@2/critic", "n@3/critic"]);
    assert_eq!(state.tokens, 30, "what critics use counts");
    let took = |event: &Event| match event {
        Event::NodeFinished(e) if e.node.is_critic() => Some(e.took_us.is_some()),
        _ => None,
    };
    assert!(world.events(job).await.iter().filter_map(took).all(|told| told));
    let (_, _, state) = ended(&[&format!("{COUNTS}, critic: c, {}", least(1)), LAST, &critic(4)]).await;
    assert_eq!(
        error(&state).1,
        "its output was rejected in each of its 4 rounds (max_refines: 3), the last time by its critic `c`: round 3 had 3"
    );
    // Without an answer of its own the job has that of its last node, which no critic is.
    let (world, job, _) = ended(&[&format!("{COUNTS}, critic: c"), &critic(1)]).await;
    assert_eq!(world.result(job).await["n"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_cannot_be_read_rejects() {
    let vague = "id: c, kind: critic, prompt: 'well, {{ output.n }}'";
    let (_, _, state) = ended(&[&format!("{COUNTS}, critic: c, max_refines: 1"), vague]).await;
    let (code, message) = error(&state);
    assert_eq!(code, "rejected");
    assert!(message.contains("the last time by its critic `c`: the critic did not answer {"), "{message}");
    assert!(message.ends_with("It said: well, 1"), "{message}");
}

/// One critic may judge several nodes, beside each other, and sees what all of these need.
#[tokio::test(start_paused = true)]
async fn one_critic_judges_several_nodes() {
    let needs =
        |id: &str| format!("id: {id}, kind: transform, needs: [m], critic: c, output: {{ n: '{{{{ round }}}}' }}");
    let critic = "id: c, kind: critic, prompt: '{\"verdict\": \"{{ \"pass\" if output.n >= nodes.m.output else \"reject\" }}\"}'";
    let nodes = [
        "id: m, kind: transform, output: 2",
        &needs("a"),
        &needs("b"),
        critic,
        "id: z, kind: transform, needs: [a, b], output: '{{ [nodes.a.output.n, nodes.b.output.n] }}'",
    ];
    let world = World::new();
    world.put(&agent("pure", &nodes).replace("retry:", "max_parallel_steps: 4\nretry:")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!(world.result(job).await, json!([2, 2]));
    assert_eq!(state.step_status(&"b@2/critic".into()), StepStatus::Completed);
}

/// A critic that fails is no rejection: it uses up no round, and its node fails with it.
#[tokio::test(start_paused = true)]
async fn a_critic_that_fails_fails_its_node() {
    let broken = "id: c, kind: critic, prompt: '{{ output.none }}'";
    for safe in [false, true] {
        let on_failure = if safe { ", on_failure: fail_safe" } else { "" };
        let said = "id: said, kind: transform, needs: [n], output: '{{ nodes.n.error.code }}'";
        let (world, job, state) = ended(&[&format!("{COUNTS}, critic: c{on_failure}"), broken, said]).await;
        assert_eq!(refinings(&world, job).await, []);
        if safe {
            assert_eq!((state.status, world.result(job).await), (JobStatus::Completed, json!("critic_failed")));
        } else {
            let (code, message) = error(&state);
            assert_eq!(code, "critic_failed");
            assert!(message.starts_with("critic `c` failed: its prompt cannot be rendered: "), "{message}");
        }
    }
}

/// A budget that is used up ends the job, whatever its node says of failures.
#[tokio::test(start_paused = true)]
async fn a_budget_ends_the_questions_of_a_critic() {
    let world = World::new();
    let nodes = [&*format!("{COUNTS}, critic: c, on_failure: fail_safe"), LAST, &critic(3)];
    world.put(&agent("pure", &nodes).replace("retry:", "budget: { max_tokens: 20 }\nretry:")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    assert_eq!(error(&world.done(job).await).0, "budget_exceeded");
}

/// Each round of a call is a call of its own, with a key of its own; what was rejected stays recorded.
#[tokio::test(start_paused = true)]
async fn a_refined_call_is_another_call() {
    for class in ["pure", "idempotent", "at_most_once"] {
        let world = World::new();
        let call = format!(
            "id: n, kind: tool, tool: t, refine_repeats_effect: true, input: {{ told: '{{{{ feedback }}}}' }}, {}",
            least(1)
        );
        world.put(&agent(class, &[&call, LAST])).await;
        world.tools.next("t", [0, 1].map(|n| Act::Say(done(json!({ "n": n })))));
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        assert_eq!(world.result(job).await, json!({ "n": 1 }), "{class}");
        let calls = world.tools.calls_of("t");
        let paths: Vec<String> = calls.iter().map(|call| call.node.to_string()).collect();
        assert_eq!(paths, ["n", "n@1"]);
        assert_eq!(calls.iter().map(|call| call.key).collect::<BTreeSet<_>>().len(), 2);
        assert_eq!(calls[1].input.value(), &json!({ "told": "/n: this value is less than the minimum of 1" }));
        assert_eq!(state.step_status(&"n".into()), StepStatus::Completed);
    }
}

/// A call of a further round is in doubt like any other, and is never made again without an answer.
#[tokio::test(start_paused = true)]
async fn a_refined_call_in_doubt_waits_for_a_person() {
    for answer in [true, false] {
        let world = World::new();
        let call = format!("id: n, kind: tool, tool: t, refine_repeats_effect: true, {}", least(1));
        world.put(&agent("at_most_once", &[&call, LAST]).replace("max_attempts: 1", "max_attempts: 2")).await;
        world.tools.next("t", [done(json!({ "n": 0 })), unknown("reset"), done(json!({ "n": 2 }))].map(Act::Say));
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.until(job, &[JobStatus::Parked]).await;
        assert_eq!(state.step_status(&"n".into()), StepStatus::Refining);
        assert_eq!(state.step_status(&"n@1".into()), StepStatus::InDoubt);
        let doubt = world.rt.store.in_doubt(10).await.unwrap().remove(0);
        tokio::time::advance(Duration::from_secs(600)).await;
        let said = if answer { happened(1, Json::new(json!({ "n": 5 }))) } else { did_not_happen(1) };
        world.rt.resolve(job, doubt.key, said).await.unwrap();
        world.done(job).await;
        assert_eq!(world.result(job).await["n"], if answer { 5 } else { 2 });
        assert_eq!(world.tools.count("t"), if answer { 2 } else { 3 });
    }
}

/// A person's answer is judged like any other output.
#[tokio::test(start_paused = true)]
async fn an_effect_that_a_person_tells_is_judged() {
    let world = World::new();
    let call = format!("id: n, kind: tool, tool: t, refine_repeats_effect: true, {}", least(1));
    world.put(&agent("at_most_once", &[&call, LAST])).await;
    world.tools.next("t", [unknown("reset"), done(json!({ "n": 2 }))].map(Act::Say));
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    let doubt = world.rt.store.in_doubt(10).await.unwrap().remove(0);
    world.rt.resolve(job, doubt.key, happened(1, Json::new(json!({ "n": 0 })))).await.unwrap();
    world.done(job).await;
    assert_eq!((world.result(job).await["n"].clone(), world.tools.count("t")), (json!(2), 2));
}

/// What is recorded of rounds is not done again by whoever takes the job over.
#[tokio::test(start_paused = true)]
async fn a_crash_repeats_no_round_that_is_recorded() {
    for class in ["pure", "at_most_once"] {
        let world = World::new();
        let call = "id: n, kind: tool, tool: t, critic: c, refine_repeats_effect: true";
        world.put(&agent(class, &[call, LAST, &critic(1)])).await;
        let (held, reached, _never) = hold(done(json!({ "n": 7 })));
        world.tools.next("t", [Act::Say(done(json!({ "n": 0 }))), held]);
        let first = world.start("w1");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        world.start_shown(job, "n@1").await;
        first.kill();
        world.tools.next("t", [Act::Say(done(json!({ "n": 3 })))]);
        let _second = world.start("w2");
        if class == "at_most_once" {
            world.until(job, &[JobStatus::Parked]).await;
            let doubt = world.rt.store.in_doubt(10).await.unwrap().remove(0);
            world.rt.resolve(job, doubt.key, happened(1, Json::new(json!({ "n": 3 })))).await.unwrap();
        }
        let state = world.done(job).await;
        assert_eq!(world.result(job).await, json!({ "n": 3 }), "{class}");
        let first_round = world.tools.calls_of("t").iter().filter(|call| call.node.text() == "n").count();
        assert_eq!((first_round, state.tokens), (1, 20), "the first round was made and judged once");
    }
}

/// A wait that is judged waits anew, under a key of its round.
#[tokio::test(start_paused = true)]
async fn a_judged_wait_waits_again() {
    let world = World::new();
    let wait = format!("id: n, kind: wait, wait_type: signal, correlation_key: 'k{{{{ round }}}}', {}", least(1));
    world.put(&agent("pure", &[&wait, LAST])).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Waiting]).await;
    // Which keys later rounds have is not known yet, nor is it where nobody has gone on with what was delivered.
    let kept = world.signal(job, "k1", json!({ "n": 4 })).await.unwrap();
    assert!(matches!(kept, SignalAnswer::Kept { .. }), "{kept:?}");
    world.signal(job, "k0", json!({ "n": 0 })).await.unwrap();
    let delivered = world.signal(job, "kx", json!({ "n": 9 })).await.unwrap();
    assert!(matches!(delivered, SignalAnswer::Kept { .. }), "{delivered:?}");
    world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "n": 4 }));
    // In a later round as well; where none can follow, another key is wrong.
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Waiting]).await;
    world.signal(job, "k0", json!({ "n": 0 })).await.unwrap();
    while world.state(job).await.open_key() != Some("k1") {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    let kept = world.signal(job, "k2", json!({ "n": 5 })).await.unwrap();
    assert!(matches!(kept, SignalAnswer::Kept { .. }), "{kept:?}");
    world.signal(job, "k1", json!({ "n": 0 })).await.unwrap();
    world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "n": 5 }));
    world.put(&agent("pure", &[&format!("{wait}, max_refines: 0"), LAST]).replace("agent: a", "agent: b")).await;
    let job = world.submit("b", json!({})).await;
    world.until(job, &[JobStatus::Waiting]).await;
    assert!(world.signal(job, "k1", json!({ "n": 5 })).await.is_err());
}

/// What was open when a node began stays so for its rounds, and for its critic.
#[tokio::test(start_paused = true)]
async fn rounds_and_critics_see_what_was_open_when_their_node_began() {
    let world = World::new();
    let slow = "id: slow, kind: tool, tool: t";
    let quick = "id: quick, kind: transform, output: 1";
    let judged = "id: n, kind: transform, needs: [quick, slow], join: any, critic: c, \
                  output: { n: '{{ round }}', open: '{{ nodes.slow.open }}' }";
    let critic = "id: c, kind: critic, prompt: '{\"verdict\": \"{{ \"pass\" if output.n == 2 else \"reject\" }}\", \
                  \"feedback\": \"{{ nodes.slow.open }}\"}'";
    let last = "id: last, kind: transform, needs: [n, slow], output: '{{ nodes.n.output }}'";
    let file = agent("pure", &[slow, quick, judged, critic, last]).replace("retry:", "max_parallel_steps: 4\nretry:");
    world.put(&file).await;
    world.tools.next("t", [Act::After(Duration::from_micros(1_500), done(json!(1)))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "n": 2, "open": true }));
    assert_eq!(state.steps[&"n@2".into()].feedback.as_deref(), Some("true"));
}

/// An output that is rejected for good is a failure of its own, whatever has become of its map.
#[tokio::test(start_paused = true)]
async fn a_last_rejection_in_a_failed_map_is_a_failure_of_its_own() {
    let world = World::new();
    let map = format!(
        "id: n, kind: map, over: [0, 1], concurrency: 2, on_failure: fail_safe, do: {{ kind: tool, tool: t, max_refines: 0, {} }}",
        least(1)
    );
    let said = "id: said, kind: transform, needs: [n], output: '{{ nodes.n.error.code }}'";
    world.put(&agent("at_most_once", &[&map, said])).await;
    let (held, reached, release) = hold(done(json!({ "n": 0 })));
    world.tools.next("t", [held, Act::Say(ToolOutcome::RefusedPermanent(Failure::new("gone", "never")))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    while world.state(job).await.step_status(&"n[1]".into()) != StepStatus::Failed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!((world.result(job).await, state.steps[&"n[0]".into()].given_up), (json!("rejected"), false));
}

/// An item is refined by itself: it alone is made again, and holds its place.
#[tokio::test(start_paused = true)]
async fn items_of_a_map_are_refined_by_themselves() {
    let world = World::new();
    let map = "id: n, kind: map, over: [0, 1, 2], concurrency: 2, MORE do: { kind: transform, \
               output: { n: '{{ item + round }}', of: '{{ item }}' }, max_refines: 1, VALIDATE }";
    let map = map.replace("VALIDATE", &least(1));
    world.put(&agent("pure", &[&map.replace("MORE", ""), LAST])).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!(world.result(job).await, json!([{ "n": 1, "of": 0 }, { "n": 1, "of": 1 }, { "n": 2, "of": 2 }]));
    assert_eq!(state.steps.len(), 6, "{:?}", state.steps.keys());
    // One that is rejected to the end is told in its place, or ends its map.
    let short = map.replace("minimum: 1", "minimum: 2");
    world
        .put(
            &agent("pure", &[&short.replace("MORE", "on_item_failure: collect,"), LAST])
                .replace("agent: a", "agent: b"),
        )
        .await;
    let job = world.submit("b", json!({})).await;
    world.done(job).await;
    let result = world.result(job).await;
    assert_eq!((&result[0]["error"]["code"], &result[1]["output"]["n"]), (&json!("rejected"), &json!(2)));
    world.put(&agent("pure", &[&short.replace("MORE", ""), LAST]).replace("agent: a", "agent: d")).await;
    let job = world.submit("d", json!({})).await;
    let (code, message) = error(&world.done(job).await);
    assert_eq!(code, "rejected");
    assert!(message.starts_with("item 0: its output was rejected in each of its 2 rounds"), "{message}");
}

/// A round that was to follow when its map had failed with another item does not.
#[tokio::test(start_paused = true)]
async fn a_map_that_has_failed_refines_nothing() {
    let world = World::new();
    let map = format!(
        "id: n, kind: map, over: [0, 1], concurrency: 2, on_failure: fail_safe, \
         do: {{ kind: tool, tool: t, refine_repeats_effect: true, {} }}",
        least(1)
    );
    let said = "id: said, kind: transform, needs: [n], output: '{{ nodes.n.error.code }}'";
    world.put(&agent("at_most_once", &[&map, said])).await;
    let (held, reached, release) = hold(done(json!({ "n": 0 })));
    let gone = ToolOutcome::RefusedPermanent(Failure::new("gone", "never"));
    world.tools.next("t", [held, Act::Say(gone)]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    while world.state(job).await.step_status(&"n[1]".into()) != StepStatus::Failed {
        tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()).await;
    }
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!(world.result(job).await, json!("gone"));
    let item = &state.steps[&"n[0]".into()];
    assert_eq!((item.status, item.given_up, item.round), (StepStatus::Failed, true, 0));
    assert_eq!(world.tools.count("t"), 2);
}

/// The whole list of a map may be judged once.
#[tokio::test(start_paused = true)]
async fn the_list_of_a_map_may_be_judged() {
    let map = "id: n, kind: map, over: [1, 2], max_refines: 0, critic: c, validate: { minItems: MIN }, \
               do: { kind: transform, output: { n: '{{ item }}' } }";
    let critic = "id: c, kind: critic, prompt: '{\"verdict\": \"{{ \"pass\" if output[1].n == 2 else \"reject\" }}\"}'";
    let (world, job, _) = ended(&[&map.replace("MIN", "2"), LAST, critic]).await;
    assert_eq!(world.result(job).await, json!([{ "n": 1 }, { "n": 2 }]));
    let (_, _, state) = ended(&[&map.replace("MIN", "3"), LAST, critic]).await;
    assert_eq!(error(&state).0, "rejected");
}

/// An empty list is judged as a list, whenever its map is decided.
#[tokio::test(start_paused = true)]
async fn an_empty_list_is_judged_as_one() {
    let map = "id: n, kind: map, over: [], max_refines: 0, validate: SCHEMA, do: { kind: transform, output: 1 }";
    let (world, job, _) = ended(&[&map.replace("SCHEMA", "{ type: array }"), LAST]).await;
    assert_eq!(world.result(job).await, json!([]));
    let (_, _, state) = ended(&[&map.replace("SCHEMA", "{ minItems: 1 }"), LAST]).await;
    assert_eq!(error(&state).0, "rejected");
}

/// What a round was given can be shown again: its feedback, and of a critic the output that it was asked about.
#[tokio::test(start_paused = true)]
async fn what_rounds_and_critics_were_given_is_shown_again() {
    let asks =
        "id: n, kind: llm, format: json, critic: c, prompt: '{\"n\": {{ round }}, \"told\": \"{{ feedback }}\"}'";
    let (world, job, state) = ended(&[asks, LAST, &critic(1)]).await;
    let loaded = Loaded::read(world.rt.store.as_ref(), &world.rt.scope, job).await.unwrap();
    let plan = world.rt.plans.get(world.rt.store.as_ref(), state.plan.unwrap().hash).await.unwrap();
    let inputs = Inputs::of_job(&loaded);
    let shown = |path: &str| {
        inputs.render(&aetheris_core::schedule::step_at(&loaded.state, &plan, &path.into()).unwrap()).unwrap().unwrap()
    };
    assert_eq!(shown("n@1").value()["prompt"], "{\"n\": 1, \"told\": \"round 0 had 0\"}");
    let asked = shown("n/critic").value()["prompt"].to_string();
    assert!(asked.contains("reject") && asked.contains("round 0 had 0"), "{asked}");
    let asked = shown("n@1/critic").value()["prompt"].to_string();
    assert!(asked.contains("pass") && asked.contains("round 1 had 1"), "{asked}");
    let system = shown("n/critic").value()["system"].to_string();
    assert!(system.contains("Answer with one JSON object"), "the form of the answer is asked for: {system}");
    assert_eq!(state.steps[&"n/critic".into()].verdict, Some(Verdict::Reject));
    let result: Value = world.result(job).await;
    assert_eq!(result["told"], "round 0 had 0");
}
