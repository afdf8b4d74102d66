//! Tools that ask a person: of a node, of an item of a map, and of the model of a loop.

use std::time::Duration;

use aetheris_core::event::{Event, WaitEnd};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::plan::AnswerFormat;
use aetheris_core::state::{Ending, JobState};
use aetheris_core::step::StepStatus;
use aetheris_runtime::ModelRequest;
use aetheris_runtime::error::OpError;
use aetheris_runtime::ops::{Signal, SignalAnswer};
use aetheris_testing::{FakeModels, ModelReply};
use serde_json::{Value, json};

use crate::world::{World, done, hold};

const HEAD: &str = "agent: a\nmodel: fake/m\nmax_parallel_steps: 4\ntools:\n  \
     ask.human: { kind: human, question: 'May I {{ input.what }}?', deadline: 1h, schema: { type: object, required: [yes] }, \
                  input_schema: { type: object, required: [what] } }\n  \
     look: { kind: function, function: f, effect: pure, output_schema: { type: object, required: [found] } }\n  \
     tell: { kind: function, function: f, effect: idempotent, output_schema: { type: object, required: [told] } }\n  \
     pay: { kind: function, function: f, effect: at_most_once, output_schema: { type: object, required: [paid] } }\nplan:\n  nodes:\n";

async fn begun(world: &World, nodes: &str) -> JobId {
    world
        .put(&format!("{}{nodes}", HEAD.replace("plan:\n", "retry: { max_attempts: 9, backoff: 1ms }\nplan:\n")))
        .await;
    world.submit("a", json!({ "what": "it" })).await
}

fn yes() -> Value {
    json!({ "yes": true })
}

fn failed(state: &JobState) -> (String, String) {
    match &state.ending {
        Some(Ending::Failed { error, .. }) => (error.code.clone(), error.message.clone()),
        other => panic!("{other:?}"),
    }
}

/// What the model was told of its calls, in the last question.
fn told(models: &FakeModels) -> Vec<(String, bool)> {
    let last = models.asked().pop().unwrap();
    last.turns.iter().flat_map(|turn| turn.calls.iter().map(|call| (call.result.clone(), call.failed))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_person_is_asked_and_answers_what_the_tool_gives() {
    let world = World::new();
    let job =
        begun(&world, "    - { id: n, kind: tool, tool: ask.human, input: { what: '{{ message.what }}' } }\n").await;
    let _process = world.start("w");
    let state = world.until(job, &[JobStatus::Parked]).await;
    let blocked = state.blocks.of(&"n".into()).unwrap();
    let key = format!("{job}/n");
    assert_eq!((blocked.correlation_key.as_deref(), blocked.reason.as_deref()), (Some(&*key), Some("May I it?")));
    let misfit = world.signal(job, &key, json!("yes")).await.unwrap_err();
    assert!(matches!(misfit, OpError::InvalidPayload { .. }), "{misfit}");
    assert_eq!(world.signal(job, &key, yes()).await.unwrap(), SignalAnswer::Delivered);
    assert_eq!(world.done(job).await.steps[&"n".into()].tries, 1);
    assert_eq!(world.result(job).await, yes());
    let again = world.signal(job, &key, yes()).await.unwrap();
    assert_eq!(again, SignalAnswer::AlreadyDelivered { payload_matches: true });
}

#[tokio::test(start_paused = true)]
async fn nobody_who_answers_in_time_is_a_failure_for_good() {
    let world = World::new();
    let node = "    - { id: n, kind: tool, tool: ask.human, input: { what: go } }\n";
    let job = begun(&world, node).await;
    let _process = world.start("w");
    world.until(job, &[JobStatus::Parked]).await;
    let state = world.done(job).await;
    assert_eq!(failed(&state), ("deadline".to_owned(), "nobody answered the question within 1h".to_owned()));
    let late = world.signal(job, &format!("{job}/n"), yes()).await.unwrap_err();
    assert!(matches!(late, OpError::JobFinished { .. }), "{late}");
}

/// Before the question is asked its answer is kept where it can still be asked, and refused where it cannot.
#[tokio::test(start_paused = true)]
async fn an_answer_before_its_question_is_kept() {
    let world = World::new();
    let nodes = "    - { id: s, kind: sleep, duration: 1s }\n    - { id: n, kind: tool, tool: ask.human, needs: [s], input: { what: go } }\n    \
                 - { id: m, kind: map, needs: [n], over: [1, 2], do: { kind: tool, tool: ask.human, input: { what: '{{ item }}' } } }\n    \
                 - { id: l, kind: agent, needs: [m], prompt: p, tools: [ask.human], max_turns: 3 }\n    \
                 - { id: o, kind: agent, needs: [l], prompt: p, tools: [look] }\n";
    let job = begun(&world, nodes).await;
    let _process = world.start("w");
    world.until(job, &[JobStatus::Waiting]).await;
    let kept = SignalAnswer::Kept { payload_matches: true };
    for path in ["n", "m[0]", "m[1]", "l/0.0", "l/2.7"] {
        assert_eq!(world.signal(job, &format!("{job}/{path}"), yes()).await.unwrap(), kept, "{path}");
    }
    for path in ["s", "m", "l", "l/0", "l/3.0", "o/0.0", "n[0]", "n/0.0", "n/critic", "n@1", "nobody"] {
        let refused = world.signal(job, &format!("{job}/{path}"), yes()).await.unwrap_err();
        assert!(matches!(refused, OpError::WrongCorrelationKey { .. }), "{path}: {refused}");
    }
    // What is certain is judged at once, and what the model will ask with is not.
    assert!(matches!(world.signal(job, &format!("{job}/m[1]"), json!(1)).await, Err(OpError::InvalidPayload { .. })));
    assert_eq!(world.signal(job, &format!("{job}/l/1.0"), json!(1)).await.unwrap(), kept);
}

#[tokio::test(start_paused = true)]
async fn a_loop_parks_for_a_person_and_its_model_is_told_the_answer() {
    let asks = ModelReply::calls("", [("ask_human", json!({ "what": "pay" })), ("ask_human", json!({ "why": 1 }))]);
    let models = FakeModels::new().in_turn([asks, ModelReply::text("done")]);
    let world = World::asking(&models);
    let node = "    - { id: n, kind: agent, prompt: p, tools: [ask.human], parallel_tool_calls: 2 }\n";
    let job = begun(&world, node).await;
    let process = world.start("w");
    let state = world.until(job, &[JobStatus::Parked]).await;
    assert_eq!(state.blocks.iter().map(|blocked| blocked.node.to_string()).collect::<Vec<_>>(), ["n/0.0"]);
    drop(process);
    let _another = world.start("v");
    assert_eq!(world.signal(job, &format!("{job}/n/0.0"), yes()).await.unwrap(), SignalAnswer::Delivered);
    world.done(job).await;
    assert_eq!(world.result(job).await, "done");
    let told = told(&models);
    assert_eq!(told[0], (yes().to_string(), false));
    assert!(told[1].1 && told[1].0.contains("(invalid_arguments)"), "{told:?}");
    assert_eq!(models.count(), 2, "no recorded question is asked again");
}

#[tokio::test(start_paused = true)]
async fn a_model_is_told_that_nobody_has_answered() {
    let asks = ModelReply::calls("", [("ask_human", json!({ "what": "pay" }))]);
    let models = FakeModels::new().in_turn([asks, ModelReply::text("then not")]);
    let world = World::asking(&models);
    let job = begun(&world, "    - { id: n, kind: agent, prompt: p, tools: [ask.human] }\n").await;
    let _process = world.start("w");
    world.until(job, &[JobStatus::Parked]).await;
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(told(&models), [("error: nobody answered the question within 1h (deadline)".to_owned(), true)]);
}

/// The question of an item whose map has failed is withdrawn: its answer comes to a wait that is over.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_answer_that_is_not_needed_any_more() {
    let models = FakeModels::new().rule(|request: &ModelRequest| match request.turns.len() {
        0 => Some(ModelReply::calls("", [("ask_human", json!({ "what": "go" }))])),
        _ => Some(ModelReply::refused("no")),
    });
    let world = World::asking(&models);
    // Both items have asked when one is answered, and fails.
    let nodes = "    - { id: m, kind: map, on_failure: fail_safe, concurrency: 2, over: [a, b], \
                 do: { kind: agent, prompt: '{{ item }}', tools: [ask.human, look], retry: { max_attempts: 1 } } }\n    \
                 - { id: s, kind: sleep, duration: 1h }\n";
    let job = begun(&world, nodes).await;
    let _process = world.start("w");
    let mut state = world.until(job, &[JobStatus::Waiting, JobStatus::Parked]).await;
    world.signal(job, &format!("{job}/m[1]/0.0"), yes()).await.unwrap();
    while state.step_status(&"m".into()) != StepStatus::Failed {
        tokio::time::sleep(Duration::from_millis(10)).await;
        state = world.state(job).await;
    }
    assert!(state.blocks.of(&"m[0]/0.0".into()).is_none(), "{:?}", state.blocks);
    let events = world.events(job).await;
    let dropped = |event: &Event| matches!(event, Event::WaitCompleted(e) if e.by == WaitEnd::Dropped);
    let asked = |event: &Event| matches!(event, Event::JobWaiting(e) if e.node == "m[0]/0.0".into());
    assert!(events.iter().any(asked) && events.iter().any(dropped), "{events:?}");
    let late = world.signal(job, &format!("{job}/m[0]/0.0"), yes()).await.unwrap_err();
    assert!(matches!(late, OpError::WaitOver(_)), "{late}");
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_answers_fits_its_schema_or_the_step_fails_once() {
    for tool in ["look", "pay", "tell"] {
        let world = World::new();
        let node =
            format!("    - {{ id: n, kind: tool, tool: {tool}, input: {{ x: 1 }}, retry: {{ max_attempts: 5 }} }}\n");
        let job = begun(&world, &node).await;
        let _process = world.start("w");
        let state = world.done(job).await;
        let (found, message) = failed(&state);
        assert_eq!(found, "output_mismatch");
        assert!(message.contains("`output_schema`"), "{message}");
        assert_eq!(world.tools.calls.lock().unwrap().len(), 1, "another call would tell no more");
        let key = state.steps[&"n".into()].invocation.as_deref().map(|call| call.has_happened());
        assert_eq!(key, (tool != "look").then_some(true), "the effect stays");
    }
    let world = World::new();
    let job = begun(&world, "    - { id: n, kind: tool, tool: pay, input: { paid: 1 } }\n").await;
    let _process = world.start("w");
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// A model is told of an answer that does not fit where the call cannot have had an effect; any other ends the loop, under its
/// own name: the effect is known.
#[tokio::test(start_paused = true)]
async fn a_loop_whose_tool_answers_what_it_never_does() {
    for (tool, ends) in [("look", None), ("pay", Some("output_mismatch"))] {
        let calls = ModelReply::calls("", [(tool, json!({ "x": 1 }))]);
        let models = FakeModels::new().in_turn([calls, ModelReply::text("done")]);
        let world = World::asking(&models);
        let job = begun(&world, &format!("    - {{ id: n, kind: agent, prompt: p, tools: [{tool}] }}\n")).await;
        let _process = world.start("w");
        let state = world.done(job).await;
        match ends {
            Some(code) => assert_eq!(failed(&state).0, code),
            None => assert!(told(&models)[0].0.contains("(output_mismatch)"), "{:?}", told(&models)),
        }
    }
}

/// The answer of a model has the form that it was told, or is asked for again.
#[tokio::test(start_paused = true)]
async fn a_model_is_told_the_form_of_its_answer() {
    let node = "    - { id: n, kind: llm, prompt: p, system: s, schema: { type: object, required: [a] }, retry: { max_attempts: 4, backoff: 1ms } }\n";
    let models = FakeModels::new().in_turn(["{}", "no", "{\"a\": 1}"].map(|text| ModelReply::text(text).using(5, 5)));
    let world = World::asking(&models);
    let job = begun(&world, node).await;
    let _process = world.start("w");
    let state = world.done(job).await;
    assert_eq!((world.result(job).await, state.tokens, models.count()), (json!({ "a": 1 }), 30, 3));
    let system = models.asked()[0].system.clone().unwrap();
    assert!(system.starts_with("s\n\n") && system.contains("\"required\":[\"a\"]"), "{system}");
    let never = FakeModels::new().always("{}");
    let world = World::asking(&never);
    let job = begun(&world, node).await;
    let _process = world.start("w");
    let (code, message) = failed(&world.done(job).await);
    assert_eq!((code.as_str(), never.count()), ("model_answer_misfit", 4));
    assert!(message.contains("does not fit its `schema`"), "{message}");
}

/// A schema that is no object is no JSON for providers: the model is told of it, and its answer is read as JSON all the same.
#[tokio::test(start_paused = true)]
async fn an_answer_may_be_any_json_value() {
    let models = FakeModels::new().always("2");
    let world = World::asking(&models);
    let job = begun(&world, "    - { id: n, kind: llm, prompt: p, schema: { enum: [1, 2] } }\n").await;
    let _process = world.start("w");
    world.done(job).await;
    assert_eq!((world.result(job).await, models.count()), (json!(2), 1));
    assert_eq!(models.asked()[0].format, AnswerFormat::Text);
}

/// All that is asked at once is asked in one unit.
#[tokio::test(start_paused = true)]
async fn a_job_is_blocked_on_many_questions_at_once() {
    let world = World::new();
    let node = "    - { id: m, kind: map, concurrency: 20, over: [0,1,2,3,4,5,6,7,8,9,10,11], do: { kind: tool, tool: ask.human, input: { what: '{{ item }}' } } }\n";
    let job = begun(&world, node).await;
    let _process = world.start("w");
    let state = world.until(job, &[JobStatus::Parked]).await;
    assert_eq!((state.blocks.iter().count(), state.fence.epoch), (12, 1), "one claim, and one write");
    for item in 0..12 {
        world.signal(job, &format!("{job}/m[{item}]"), yes()).await.unwrap();
    }
    world.done(job).await;
}

/// A run that has something long to do hears of an answer when it comes.
#[tokio::test(start_paused = true)]
async fn an_answer_beside_a_long_call_holds_nobody_up() {
    let world = World::new();
    world
        .put(&format!(
            "{}    - {{ id: a, kind: tool, tool: ask.human, input: {{ what: a }} }}\n    \
             - {{ id: b, kind: tool, tool: ask.human, input: {{ what: b }} }}\n    \
             - {{ id: call, kind: tool, needs: [a], join: any, tool: tell }}\n    \
             - {{ id: next, kind: transform, needs: [b], join: any, output: 1 }}\n",
            HEAD
        ))
        .await;
    let (held, reached, release) = hold(done(json!({ "told": 1 })));
    world.tools.next("tell", [held]);
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    // Whoever mistypes a key is led to the question that was meant.
    let mistyped = world.signal(job, &format!("{job}/b "), yes()).await.unwrap_err().to_string();
    assert!(mistyped.contains(&format!("it waits for 2 keys, the nearest of which is `{job}/b`")), "{mistyped}");
    world.signal(job, &format!("{job}/a"), yes()).await.unwrap();
    reached.notified().await;
    let asked = world.passed();
    // By the process itself, as whoever runs one binary does.
    let answer = Signal { correlation_key: format!("{job}/b"), payload: Json::new(yes()), wait_type: None };
    process.rt.signal(job, answer).await.unwrap();
    while world.state(job).await.step_status(&"next".into()) != StepStatus::Completed {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(world.passed() < asked + Duration::from_secs(20), "the answer was not heard");
    }
    assert_eq!(world.state(job).await.step_status(&"call".into()), StepStatus::Running);
    release.notify_one();
    world.done(job).await;
}

/// An item that never begins asks nobody: an answer to it is not kept for ever.
#[tokio::test(start_paused = true)]
async fn an_answer_to_an_item_that_never_begins_is_refused() {
    let models = FakeModels::new().rule(|request: &ModelRequest| {
        Some(match &*request.prompt {
            "a" => ModelReply::refused("no").after(Duration::from_millis(100)),
            _ => ModelReply::calls("", [("pay", json!({}))]),
        })
    });
    let world = World::asking(&models);
    let (held, reached, release) = hold(done(json!({ "paid": true })));
    world.tools.next("pay", [held]);
    let nodes = "    - { id: m, kind: map, concurrency: 2, over: [a, b, c], on_failure: fail_safe, \
                 do: { kind: agent, prompt: '{{ item }}', tools: [ask.human, pay], retry: { max_attempts: 1 } } }\n";
    let job = begun(&world, nodes).await;
    let _process = world.start("w");
    reached.notified().await;
    while world.state(job).await.items_of(&"m".into()).is_none_or(|items| items.stopped_by.is_none()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = world.signal(job, &format!("{job}/m[2]/0.0"), yes()).await.unwrap_err();
    assert!(matches!(refused, OpError::WrongCorrelationKey { .. }), "{refused}");
    release.notify_one();
    assert_eq!(world.done(job).await.step_status(&"m".into()), StepStatus::Failed);
}
