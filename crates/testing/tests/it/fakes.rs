//! Fakes by themselves, in an agent with every class of effect.

use std::time::Duration;

use aetheris_testing::{
    Failed, FakeModels, FakeTools, Happened, JobId, JobStatus, ModelReply, Reply, TestWorld, in_turn, run,
};
use serde_json::{Value, json};

async fn ends(tool: &str, tools: &FakeTools) -> Result<(JobStatus, TestWorld, JobId), Failed> {
    let world = TestWorld::new(tools, &FakeModels::new());
    let retry = "retry: { max_attempts: 4, backoff: 1s }";
    let file = format!(
        "agent: a\nplanner: static\n{retry}\ntools:\n  t: {{ kind: function, function: f, timeout: 10s, {tool} }}\n\
         plan:\n  nodes:\n    - {{ id: n, kind: tool, tool: t, input: {{ x: 1 }} }}\n"
    );
    world.put(&file).await?;
    let _process = world.start("p");
    let job = world.send("a", json!({})).await?;
    let status = world.ended(job).await?.status;
    world.check().await?;
    Ok((status, world, job))
}

#[test]
fn a_refusal_runs_no_body_and_is_tried_again() -> Result<(), Failed> {
    run(async {
        let replies = [Reply::not_sent("no route"), Reply::refused("busy"), Reply::done(json!("paid"))];
        let tools = FakeTools::new().acts("t", in_turn(replies));
        let (status, world, job) = ends("effect: at_most_once", &tools).await?;
        assert_eq!((status, world.result(job).await?), (JobStatus::Completed, json!("paid")));
        let seen = tools.seen("t");
        assert_eq!((seen.len(), tools.count("t"), tools.acted("t")), (2, 1, 1));
        assert_eq!((seen[0].try_number, seen[1].try_number), (2, 3));
        assert_eq!((seen[1].input.value(), seen[1].over), (&json!({ "x": 1 }), true));
        assert_eq!(tools.happened("t", seen[1].key), Happened::Yes(json!("paid").into()));
        Ok(())
    })
}

#[test]
fn refused_for_good_ends_the_job() -> Result<(), Failed> {
    run(async {
        let tools = FakeTools::new().acts("t", |_| Reply::refused_for_good("no such account"));
        let (status, _, _) = ends("effect: at_most_once", &tools).await?;
        assert_eq!((status, tools.count("t")), (JobStatus::Failed, 0));
        Ok(())
    })
}

#[test]
fn a_service_that_looks_at_keys_acts_once_and_says_the_same_again() -> Result<(), Failed> {
    run(async {
        let tools = FakeTools::new().acts_once("t", |call| Reply::never_answers(json!(call.bodies_of_key)));
        let (status, world, job) = ends("effect: idempotent", &tools).await?;
        assert_eq!((status, world.result(job).await?), (JobStatus::Completed, json!(0)));
        assert_eq!((tools.count("t"), tools.acted("t"), tools.counts().len()), (2, 1, 1));
        assert!(world.passed() >= Duration::from_secs(10));
        Ok(())
    })
}

#[test]
fn a_body_that_takes_longer_than_its_call_is_of_unknown_outcome() -> Result<(), Failed> {
    run(async {
        let tools = FakeTools::new().acts("t", |_| Reply::done(json!(1)).after(Duration::from_secs(12)));
        let (status, world, _) = ends("effect: at_most_once, on_in_doubt: fail", &tools).await?;
        assert_eq!((status, tools.in_flight()), (JobStatus::Failed, 1));
        world.advance(Duration::from_secs(3)).await;
        assert_eq!((tools.acted("t"), tools.in_flight()), (1, 0));
        Ok(())
    })
}

async fn asked(models: &FakeModels, prompts: &[(&str, &str)]) -> Result<Vec<Result<Value, String>>, Failed> {
    let world = TestWorld::new(&FakeTools::new(), models);
    let _process = world.start("p");
    let mut answers = Vec::new();
    for (place, (model, prompt)) in prompts.iter().enumerate() {
        let file = format!(
            "agent: a{place}\nplanner: static\nmodel: {model}\nretry: {{ max_attempts: 2, backoff: 1s }}\n\
             plan:\n  nodes:\n    - {{ id: n, kind: llm, prompt: \"{prompt}\", timeout: 5s }}\n"
        );
        world.put(&file).await?;
        let job = world.send(&format!("a{place}"), json!({})).await?;
        let state = world.ended(job).await?;
        answers.push(match state.status {
            JobStatus::Completed => Ok(world.result(job).await?),
            _ => Err(state.steps[&"n".into()].error.clone().map(|error| error.code).unwrap_or_default()),
        });
    }
    world.check().await?;
    Ok(answers)
}

#[test]
fn models_answer_by_prompt_by_model_and_in_turn() -> Result<(), Failed> {
    run(async {
        let models = FakeModels::new()
            .when_asked("weather", "rain")
            .for_model("fake/other", json!({ "n": 3 }))
            .when_asked("silence", ModelReply::never_answers())
            .in_turn([ModelReply::overloaded("busy"), ModelReply::text("after all")]);
        let one = "fake/one";
        let prompts = [(one, "weather?"), ("fake/other", "a number"), (one, "hello"), (one, "silence"), (one, "more")];
        let answers = asked(&models, &prompts).await?;
        let expected = [
            Ok(json!("rain")),
            Ok(json!("{\"n\":3}")),
            Ok(json!("after all")),
            Err("timeout".to_owned()),
            Err("model_refused".to_owned()),
        ];
        assert_eq!(answers, expected);
        assert_eq!((models.count(), models.asked()[0].prompt.as_str(), models.in_flight()), (7, "weather?", 0));
        Ok(())
    })
}
