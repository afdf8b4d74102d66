//! Plans that are not in an agent's file: made by a model, or chosen by rules.

use aetheris_core::event::{Event, EventKind};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::state::{Ending, JobState};
use aetheris_runtime::error::OpError;
use aetheris_runtime::ops::{SignalAnswer, Submission};
use aetheris_testing::{FakeModels, ModelReply};
use serde_json::{Value, json};

use crate::world::World;

fn planned(keys: &str) -> String {
    format!(
        "agent: a\nmodel: fake/m\nplanner: llm\nretry: {{ max_attempts: 2, backoff: 10ms }}\nplanning: {{ prompt: 'Plan {{{{ message.what }}}}', {keys} }}\n\
         tools:\n  pay: {{ kind: function, function: f, effect: at_most_once, description: Pays. }}\n"
    )
}

/// A plan that pays so much.
fn pays(cents: u32) -> Value {
    json!({ "nodes": [{ "id": "pay", "kind": "tool", "tool": "pay", "input": { "cents": cents } }] })
}

fn unknown_tool() -> Value {
    json!({ "nodes": [{ "id": "pay", "kind": "tool", "tool": "pai" }] })
}

fn says(plan: &Value) -> ModelReply {
    ModelReply::text(plan.to_string()).using(10, 5)
}

async fn begun(keys: &str, models: &FakeModels) -> (World, JobId) {
    let world = World::asking(models);
    world.put(&planned(keys)).await;
    let job = world.submit("a", json!({ "what": "it" })).await;
    (world, job)
}

fn failed(state: &JobState) -> (String, String) {
    match &state.ending {
        Some(Ending::Failed { error, .. }) => (error.code.clone(), error.message.clone()),
        other => panic!("{other:?}"),
    }
}

fn count(events: &[Event], kind: EventKind) -> usize {
    events.iter().filter(|event| event.kind() == kind).count()
}

#[tokio::test(start_paused = true)]
async fn a_model_makes_the_plan_and_then_it_runs() {
    let models = FakeModels::new().always(says(&pays(5)));
    let (world, job) = begun("", &models).await;
    assert_eq!(world.state(job).await.plan, None, "nothing is planned at the send");
    let _process = world.start("w");
    let state = world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "cents": 5 }));
    assert_eq!((state.plan.unwrap().version, state.tokens), (1, 15));
    let events = world.events(job).await;
    let place = |kind| events.iter().position(|event| event.kind() == kind).unwrap();
    let permit = place(EventKind::ToolInvocationStarted);
    assert!(place(EventKind::PlanGenerated) < permit, "no effect before the plan is on record");
    assert!(matches!(&events[place(EventKind::PlanGenerated)], Event::PlanGenerated(plan) if plan.planner == "llm"));
    let asked = models.asked().pop().unwrap();
    assert_eq!(asked.prompt, "Plan it");
    let system = asked.system.unwrap();
    assert!(
        system.contains("\"name\":\"pay\"") && system.contains("$defs") && !system.contains("wait_type"),
        "{system}"
    );
}

/// A plan that cannot be is asked for again, with what is wrong with it; and not more often than the agent says.
#[tokio::test(start_paused = true)]
async fn a_plan_that_cannot_be_is_asked_for_again() {
    let sleeps = json!({ "nodes": [{ "id": "s", "kind": "sleep", "duration": "1s" }] });
    let other = json!({ "nodes": [{ "id": "s", "kind": "llm", "prompt": "p", "model": "dear/one" }] });
    let many = json!({ "nodes": [{ "id": "a", "kind": "transform", "output": 1 }, { "id": "b", "kind": "transform", "output": 1 }] });
    let text = ModelReply::text("I would rather not");
    let replies = [text, says(&unknown_tool()), says(&sleeps), says(&other), says(&many), says(&pays(7))];
    let models = FakeModels::new().in_turn(replies);
    let (world, job) = begun("max_attempts: 6, max_nodes: 1", &models).await;
    let _process = world.start("w");
    world.done(job).await;
    assert_eq!((world.result(job).await, models.count()), (json!({ "cents": 7 }), 6));
    let told = models.asked().pop().unwrap().turns;
    let replies: Vec<String> = told.iter().map(|turn| turn.reply.clone().unwrap()).collect();
    assert_eq!(told[1].text, unknown_tool().to_string());
    for (reply, word) in
        replies.iter().zip(["not", "did you mean `pay`", "`sleep` may not be planned", "`dear/one`", "more than the 1"])
    {
        assert!(reply.contains(word), "{reply}");
    }
    let events = world.events(job).await;
    assert_eq!((count(&events, EventKind::PlanGenerated), count(&events, EventKind::NodeRefining)), (1, 5));
    let never = FakeModels::new().always(says(&unknown_tool()));
    let (world, job) = begun("max_attempts: 2", &never).await;
    let _process = world.start("w");
    let (code, message) = failed(&world.done(job).await);
    assert_eq!((code.as_str(), never.count()), ("rejected", 2));
    assert!(message.starts_with("no plan was accepted in 2 of 2 attempts"), "{message}");
    assert_eq!(count(&world.events(job).await, EventKind::PlanGenerated), 0);
    assert!(world.tools.calls.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_person_is_asked_about_the_plan_before_anything_of_it_runs() {
    let models = FakeModels::new().in_turn([says(&pays(500)), says(&pays(5))]);
    let (world, job) = begun("plan_review: human", &models).await;
    let process = world.start("w");
    let state = world.until(job, &[JobStatus::Parked]).await;
    let blocked = state.blocks.oldest().unwrap();
    let first = format!("plan-{job}-1");
    assert_eq!(blocked.correlation_key.as_ref(), Some(&first));
    assert_eq!(blocked.reason.as_deref(), Some("Approve the plan of 1 node: pay (tool pay)"));
    let misfit = world.signal(job, &first, json!({ "approve": true })).await.unwrap_err();
    assert!(matches!(misfit, OpError::InvalidPayload { .. }), "{misfit}");
    let no = json!({ "approved": false, "note": "too much" });
    assert_eq!(world.signal(job, &first, no).await.unwrap(), SignalAnswer::Delivered);
    drop(process);
    let _another = world.start("v");
    loop {
        let state = world.until(job, &[JobStatus::Parked]).await;
        if state.blocks.oldest().unwrap().correlation_key.as_ref() != Some(&first) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(world.tools.calls.lock().unwrap().is_empty(), "nothing runs unapproved");
    assert_eq!(world.state(job).await.plan, None);
    let told = models.asked().pop().unwrap().turns;
    assert_eq!(told.last().and_then(|turn| turn.reply.clone()).as_deref(), Some("too much"));
    let yes = world.signal(job, &format!("plan-{job}-2"), json!({ "approved": true })).await.unwrap();
    assert_eq!(yes, SignalAnswer::Delivered);
    world.done(job).await;
    assert_eq!((world.result(job).await, models.count()), (json!({ "cents": 5 }), 2));
    let late = world.signal(job, &first, json!({ "approved": true })).await.unwrap();
    assert_eq!(late, SignalAnswer::AlreadyDelivered { payload_matches: false });
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_nobody_approves_of_fails_the_job() {
    let models = FakeModels::new().always(says(&pays(5)));
    let (world, job) = begun("plan_review: human, max_attempts: 1", &models).await;
    let _process = world.start("w");
    world.until(job, &[JobStatus::Parked]).await;
    world.signal(job, &format!("plan-{job}-1"), json!({ "approved": false })).await.unwrap();
    let (code, message) = failed(&world.done(job).await);
    assert_eq!(code, "rejected");
    assert!(message.contains("a person rejected the last one: no reason was given"), "{message}");
}

/// The profile is that of the send: an agent that is changed meanwhile plans the jobs that come after.
#[tokio::test(start_paused = true)]
async fn a_job_is_planned_by_what_its_agent_was_when_it_was_sent() {
    let models = FakeModels::new().always(says(&pays(5)));
    let (world, job) = begun("", &models).await;
    world.put(&planned("").replace("Plan {{ message.what }}", "Forget it").replace("pay:", "give:")).await;
    let _process = world.start("w");
    world.done(job).await;
    assert_eq!(models.asked()[0].prompt, "Plan it");
    assert_eq!(world.result(job).await, json!({ "cents": 5 }));
}

const RULES: &str = "agent: a\nplanner: rules\nrules:\n  \
     - { when: 'message.cents > 100', plan: { nodes: [ { id: n, kind: transform, output: much } ] } }\n  \
     - { when: 'message.cents > 10', plan: { nodes: [ { id: n, kind: transform, output: some }, { id: m, kind: transform, output: '{{ nodes.n.output }}!', needs: [n] } ] } }\n";

fn submission(message: Value) -> Submission {
    Submission { message: Some(aetheris_core::json::Json::new(message)), ..Submission::default() }
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_that_holds_is_the_plan() {
    let world = World::new();
    world.put(RULES).await;
    let _process = world.start("w");
    for (cents, answer) in [(500, "much"), (50, "some!")] {
        let job = world.submit("a", json!({ "cents": cents })).await;
        world.done(job).await;
        assert_eq!(world.result(job).await, answer);
        let kinds = world.kinds(job).await;
        assert_eq!(kinds[..2], ["job_created", "plan_generated"], "rules are asked at the send");
    }
    let agent = "a".into();
    let none = world.rt.submit(&agent, submission(json!({ "cents": 5 }))).await.unwrap_err();
    assert!(matches!(none, OpError::NoRule(_)), "{none}");
    let unclear = world.rt.submit(&agent, submission(json!({ "euros": 5 }))).await.unwrap_err();
    assert!(matches!(unclear, OpError::RuleFailed(_)), "{unclear}");
}

/// What was accepted stays accepted, whatever the rules have become.
#[tokio::test(start_paused = true)]
async fn a_message_that_was_accepted_is_told_the_same_under_other_rules() {
    let world = World::new();
    world.put(RULES).await;
    let keyed = || Submission { client_key: Some("k".to_owned()), ..submission(json!({ "cents": 50 })) };
    let first = world.rt.submit(&"a".into(), keyed()).await.unwrap();
    world.put(&RULES.replace("cents > 10'", "cents > 60'")).await;
    assert_eq!(world.rt.submit(&"a".into(), keyed()).await.unwrap().job, first.job);
}

/// A child of an agent with rules, or with a planner, is planned by its own first run.
#[tokio::test(start_paused = true)]
async fn a_childs_plan_is_made_by_its_own_run() {
    let models = FakeModels::new().always(says(&pays(3)));
    let world = World::asking(&models);
    world.put(RULES).await;
    world.put(&planned("").replace("agent: a", "agent: b")).await;
    let parent = |agent: &str, message: &str| {
        format!("agent: p\nplan:\n  nodes:\n    - {{ id: n, kind: job, agent: {agent}, message: {message} }}\n")
    };
    let _process = world.start("w");
    for (agent, message, ends) in [
        ("a", "{ cents: 500 }", Ok(json!("much"))),
        ("a", "{ cents: 5 }", Err("(no_rule)")),
        ("a", "{ euros: 5 }", Err("(template_error)")),
        ("b", "{ what: it }", Ok(json!({ "cents": 3 }))),
    ] {
        world.put(&parent(agent, message)).await;
        let job = world.submit("p", json!(null)).await;
        let state = world.done(job).await;
        match ends {
            Ok(answer) => assert_eq!(world.result(job).await, answer),
            Err(code) => {
                let (found, message) = failed(&state);
                assert!(found == "child_failed" && message.ends_with(code), "{message}");
            }
        }
    }
}

/// A plan is approved by who can have seen it.
#[tokio::test(start_paused = true)]
async fn a_plan_that_is_not_made_is_not_approved() {
    let models = FakeModels::new().always(says(&pays(5)).after(std::time::Duration::from_secs(5)));
    let (world, job) = begun("plan_review: human", &models).await;
    let yes = json!({ "approved": true });
    let early = world.signal(job, &format!("plan-{job}-1"), yes.clone()).await.unwrap_err();
    assert!(matches!(early, OpError::WrongCorrelationKey { .. }), "{early}");
    let _process = world.start("w");
    world.until(job, &[JobStatus::Running]).await;
    let early = world.signal(job, &format!("plan-{job}-2"), yes.clone()).await.unwrap_err();
    assert!(matches!(early, OpError::WrongCorrelationKey { .. }), "{early}");
    // Any other may be one of the plan's own.
    assert!(matches!(world.signal(job, "own", yes.clone()).await, Ok(SignalAnswer::Kept { .. })));
    world.until(job, &[JobStatus::Parked]).await;
    assert_eq!(world.signal(job, &format!("plan-{job}-1"), yes).await.unwrap(), SignalAnswer::Delivered);
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// A job that is cancelled or paused while its plan is made makes none.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_to_end_is_not_planned() {
    let models = FakeModels::new().always(says(&pays(5)).after(std::time::Duration::from_secs(60)));
    let (world, job) = begun("", &models).await;
    let _process = world.start("w");
    world.until(job, &[JobStatus::Running]).await;
    world.rt.cancel(job).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Cancelled);
    assert_eq!(count(&world.events(job).await, EventKind::PlanGenerated), 0);
}

/// Rules see the job as well as its message, at the send and in a child's own run.
#[tokio::test(start_paused = true)]
async fn rules_see_the_session_of_their_job() {
    let world = World::new();
    let rules = "agent: a\nplanner: rules\nrules:\n  - { when: job.session == 's', plan: { nodes: [ { id: n, kind: transform, output: own } ] } }\n  \
                 - { plan: { nodes: [ { id: n, kind: transform, output: other } ] } }\n";
    world.put(rules).await;
    world.put("agent: p\nplan:\n  nodes:\n    - { id: n, kind: job, agent: a, session: s }\n").await;
    let _process = world.start("w");
    for (agent, session, answer) in [("a", Some("s"), "own"), ("a", None, "other"), ("p", None, "own")] {
        let sent = Submission { session: session.map(Into::into), ..submission(json!(null)) };
        let job = world.rt.submit(&agent.into(), sent).await.unwrap().job;
        world.done(job).await;
        assert_eq!(world.result(job).await, answer, "{agent} {session:?}");
    }
}

/// Who made a job and its plan is on record, whoever sent it and however it came to its plan.
#[tokio::test(start_paused = true)]
async fn a_job_records_the_version_of_the_code_that_accepted_and_planned_it() {
    let mut world = World::asking(&FakeModels::new().always(says(&pays(5))));
    let settings = aetheris_runtime::Settings { execution_version: "build-9".to_owned(), ..Default::default() };
    world.rt.settings = std::sync::Arc::new(settings);
    world.put(&planned("")).await;
    world.put("agent: b\nplan:\n  nodes:\n    - { id: j, kind: job, agent: a, message: { what: it } }\n").await;
    let _process = world.start("w");
    let job = world.rt.submit(&"b".into(), submission(json!({}))).await.unwrap().job;
    world.done(job).await;
    let child = world.rt.store.children(aetheris_store::Scope::System, job, None, 10).await.unwrap().children[0].row.id;
    for job in [job, child] {
        for event in world.events(job).await {
            match event {
                Event::JobCreated(made) => assert_eq!(made.execution_version, "build-9"),
                Event::PlanGenerated(plan) => assert_eq!(plan.planner_version, "build-9"),
                _ => {}
            }
        }
    }
}

/// A plan that is not taken was paid for as well.
#[tokio::test(start_paused = true)]
async fn a_rejected_plan_counts_for_the_tokens_of_its_job() {
    let models = FakeModels::new().in_turn([says(&unknown_tool()), says(&pays(7))]);
    let (world, job) = begun("max_attempts: 2", &models).await;
    let _process = world.start("w");
    let state = world.done(job).await;
    assert_eq!((models.count(), state.tokens), (2, 30));
}
