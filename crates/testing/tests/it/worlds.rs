//! Worlds: virtual time, clients, processes, and failures that can be read.

use std::time::Duration;

use aetheris_testing::{Failed, FakeModels, FakeTools, JobStatus, Reply, TestWorld, Verdict, in_turn, run};
use serde_json::json;

fn one(tool: &str) -> String {
    format!(
        "agent: a\nplanner: static\nmodel: fake/one\ntools:\n  t: {{ kind: http, method: POST, url: \"http://nowhere.example/\", {tool} }}\n\
         plan:\n  nodes:\n    - {{ id: n, kind: tool, tool: t }}\n"
    )
}

#[tokio::test(start_paused = true)]
async fn weeks_pass_at_once_inside_a_runtime_that_is_there_already() -> Result<(), Failed> {
    let tools = FakeTools::new().acts("t", |_| json!(1));
    let world = TestWorld::new(&tools, &FakeModels::new());
    let file = "agent: a\nplanner: static\ntools:\n  t: { kind: function, function: f }\nplan:\n  nodes:\n    \
                - { id: s, kind: sleep, duration: 60d }\n    - { id: n, kind: tool, tool: t, needs: [s] }\n";
    world.put(file).await?;
    let _process = world.start("p");
    let job = world.send("a", json!({})).await?;
    world.ended(job).await?;
    assert!(world.passed() >= Duration::from_secs(60 * 24 * 3_600));
    assert_eq!(tools.acted("t"), 1);
    world.check().await?;
    Ok(())
}

#[test]
fn an_operator_answers_a_doubt_when_the_call_can_no_longer_arrive() -> Result<(), Failed> {
    run(async {
        let tools = FakeTools::new().acts("t", in_turn([Reply::answer_lost(json!(1)), Reply::done(json!(2))]));
        let world = TestWorld::new(&tools, &FakeModels::new());
        world.put(&one("timeout: 10s, on_in_doubt: human")).await?;
        let _process = world.start("p");
        let job = world.send("a", json!({})).await?;
        world.until(job, &[JobStatus::Parked]).await?;
        let doubts = world.doubts(job).await?;
        assert_eq!(doubts[0].truth(), Verdict::Happened(json!(1)));
        // The operator errs: it did happen. The second call is theirs, and on record.
        world.resolve(&doubts[0], Verdict::DidNotHappen).await?;
        world.ended(job).await?;
        assert_eq!((world.result(job).await?, tools.acted("t")), (json!(2), 2));
        assert!(world.passed() >= Duration::from_secs(12));
        world.check().await?;
        Ok(())
    })
}

#[test]
fn a_job_that_nothing_can_move_is_told_with_its_story() -> Result<(), Failed> {
    run(async {
        let tools = FakeTools::new().acts("t", |_| Reply::answer_lost(json!(1)));
        let world = TestWorld::new(&tools, &FakeModels::new());
        world.put(&one("on_in_doubt: human")).await?;
        let _process = world.start("p");
        let job = world.send("a", json!({})).await?;
        let failed = world.ended(job).await.unwrap_err().to_string();
        assert!(failed.contains("node `n` waits for the answer to a doubt"), "{failed}");
        assert!(failed.contains("step_in_doubt") && failed.contains("the tool `t` acts in `n`"), "{failed}");
        Ok(())
    })
}

#[test]
fn a_job_that_no_process_runs_is_told_too() {
    run(async {
        let world = TestWorld::new(&FakeTools::new().acts("t", |_| json!(1)), &FakeModels::new());
        world.put(&one("effect: pure")).await.unwrap();
        let job = world.send("a", json!({})).await.unwrap();
        let failed = world.ended(job).await.unwrap_err().to_string();
        assert!(failed.contains("is pending") && failed.contains("does a process run?"), "{failed}");
    });
}

#[test]
fn a_tool_without_a_fake_and_a_wrong_file_are_refused_at_once() {
    run(async {
        let world = TestWorld::new(&FakeTools::new(), &FakeModels::new());
        let lacking = world.put(&one("effect: pure")).await.unwrap_err().to_string();
        assert!(lacking.contains("no fake of the agent's tools `t`"), "{lacking}");
        let wrong = world.put("agent: a\nplann: {}\n").await.unwrap_err().to_string();
        assert!(wrong.contains("line 2"), "{wrong}");
        assert!(world.put_file("no/such/file.yaml").await.unwrap_err().to_string().starts_with("no/such/file.yaml"));
    });
}

#[test]
fn cancels_are_checked_like_everything_else() -> Result<(), Failed> {
    run(async {
        let tools = FakeTools::new().acts("t", |_| Reply::done(json!(1)).after(Duration::from_secs(5)));
        let world = TestWorld::new(&tools, &FakeModels::new());
        world.put(&one("timeout: 20s")).await?;
        let _process = world.start("p");
        let job = world.send("a", json!({})).await?;
        world.until(job, &[JobStatus::Running]).await?;
        world.advance(Duration::from_secs(1)).await;
        world.cancel(job).await?;
        assert_eq!(world.ended(job).await?.status, JobStatus::Cancelled);
        assert_eq!((tools.acted("t"), tools.in_flight()), (1, 0));
        world.check().await?;
        Ok(())
    })
}

#[test]
fn a_body_goes_on_when_its_process_dies() -> Result<(), Failed> {
    run(async {
        let tools = FakeTools::new().acts("t", |_| Reply::done(json!("late")).after(Duration::from_secs(5)));
        let world = TestWorld::new(&tools, &FakeModels::new());
        world.put(&one("timeout: 20s, on_in_doubt: human")).await?;
        let first = world.start("first");
        let job = world.send("a", json!({})).await?;
        world.advance(Duration::from_secs(1)).await;
        assert_eq!((tools.count("t"), tools.in_flight()), (1, 1));
        first.kill();
        let _second = world.start("second");
        world.until(job, &[JobStatus::Parked]).await?;
        assert_eq!((tools.count("t"), tools.in_flight()), (1, 0));
        let doubt = world.doubts(job).await?.remove(0);
        world.resolve(&doubt, doubt.truth()).await?;
        world.ended(job).await?;
        assert_eq!(world.result(job).await?, json!("late"));
        world.check().await?;
        Ok(())
    })
}
