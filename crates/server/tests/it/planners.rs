//! What is told of a job whose plan is made, and of questions to people by tools.

use aetheris_core::event::{
    JobWaiting, NodeFinished, NodeStarted, PlanGenerated, StepResult, ToolAsked, Turn, Verdict,
};
use aetheris_core::hash::Hash;
use aetheris_core::plan::WaitType;
use aetheris_runtime::draft::Fact;
use aetheris_store::system::SystemIds;
use aetheris_store::{PlanDocument, Purpose};
use serde_json::{Value, json};

use crate::bed::{Bed, Hand, finished, started};

const PLANNED: &str =
    "agent: planned\nmodel: scripted/echo\nplanner: llm\nplanning: { prompt: '{{ message }}', plan_review: human }\n";
const RULES: &str = "agent: ruled\nplanner: rules\nrules: [ { when: message.n > 1, plan: { nodes: [ { id: a, kind: transform, output: 1 } ] } } ]\n";
const ASKS: &str = r#"
agent: asks
model: scripted/echo
tools:
  ask.one: { kind: human, question: "one?", schema: { type: string } }
  ask.two: { kind: human, question: "two?", schema: { type: integer } }
plan:
  nodes:
    - { id: n, kind: agent, prompt: p, tools: [ask.one, ask.two], parallel_tool_calls: 2 }
    - { id: m, kind: tool, tool: ask.one }
"#;

async fn parks(hand: &Hand, node: &str, key: String, reason: &str) {
    let (node, reason) = (node.into(), Some(reason.to_owned()));
    let waiting =
        JobWaiting { correlation_key: Some(key), doubt: false, node, park: true, reason, wait_type: WaitType::Human };
    hand.write(Purpose::Block, |draft| {
        draft.push(&SystemIds, waiting).unwrap();
        draft.release();
    })
    .await;
}

/// Whoever is to approve of a plan sees it, and what an answer has to be.
#[tokio::test]
async fn a_plan_is_shown_while_it_is_reviewed_and_when_it_is_followed() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/planned", PLANNED).await.is(201);
    let job = bed.send("planned", r#""go""#).await;
    let hand = bed.claim().await;
    let plan = json!({ "nodes": [{ "id": "a", "kind": "transform", "output": 1 }] });
    let made = NodeFinished { verdict: Some(Verdict::Pending), ..finished("$plan", Some(plan.clone())) };
    hand.push([started("$plan").into(), made.into(), started("$plan/critic").into()]).await;
    parks(&hand, "$plan/critic", format!("plan-{job}-1"), "Approve it").await;
    let view = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    assert_eq!(view["waiting"]["schema"]["required"], json!(["approved"]));
    let listed = bed.get("/api/waits").await.is(200)["waits"][0].clone();
    assert_eq!((&listed["node_id"], &listed["schema"]["required"]), (&json!("$plan/critic"), &json!(["approved"])));
    let steps = |page: Value| page["steps"][0]["output"]["value"].clone();
    let of_plan = format!("/api/jobs/{job}/steps?node=%24plan");
    assert_eq!(steps(bed.get(&of_plan).await.is(200).clone()), plan);
    let misfit =
        bed.call("POST", &format!("/api/jobs/{job}/signal"), signal(&format!("plan-{job}-1"), &json!({}))).await;
    misfit.problem(400, "invalid_payload");
    let early = bed
        .call(
            "POST",
            &format!("/api/jobs/{job}/signal"),
            signal(&format!("plan-{job}-2"), &json!({ "approved": true })),
        )
        .await;
    early.problem(400, "wrong_correlation_key");
    let yes = signal(&format!("plan-{job}-1"), &json!({ "approved": true }));
    bed.call("POST", &format!("/api/jobs/{job}/signal"), yes).await.is(200);

    // Its run goes on with what was said, records the plan and follows it.
    let hand = bed.claim().await;
    let passed =
        NodeFinished { verdict: Some(Verdict::Pass), ..NodeFinished::new("$plan/critic", StepResult::Success) };
    hand.push([passed.into()]).await;
    let planning = bed.store.agent(aetheris_core::id::TenantId::default(), "planned".into()).await.unwrap().unwrap();
    let followed = aetheris_agentfile::parse_plan(&plan.to_string(), &planning.agent.plan).unwrap();
    let document = PlanDocument { hash: followed.hash(), plan: std::sync::Arc::new(followed) };
    let recorded = PlanGenerated {
        plan_hash: document.hash,
        plan_version: 1,
        planner: "llm".to_owned(),
        planner_version: "1".to_owned(),
    };
    hand.write(Purpose::Record, |draft| draft.add(&SystemIds, Fact::with_plan(recorded, document)).unwrap()).await;
    hand.push([NodeStarted::new("a", 1).into(), finished("a", Some(json!(1))).into()]).await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await.is(200).clone();
    let told: Vec<&Value> = trace["steps"].as_array().unwrap().iter().map(|step| &step["node_id"]).collect();
    assert_eq!(told, ["$plan", "a"], "what made the plan comes first");
    assert_eq!(
        (&trace["steps"][0]["kind"], &trace["steps"][0]["parts"][0]["ended_by"]),
        (&json!("plan"), &json!("signal"))
    );
    assert_eq!(steps(bed.get(&of_plan).await.is(200).clone()), plan);
    assert_ne!(trace["plan_hash"], json!(Hash::ZERO.to_string()));
}

fn signal(key: &str, payload: &Value) -> String {
    json!({ "correlation_key": key, "payload": payload }).to_string()
}

#[tokio::test]
async fn a_message_for_which_no_rule_holds_makes_no_job() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/ruled", RULES).await.is(201);
    let agent = bed.get("/api/agents/ruled").await.is(200).clone();
    assert_eq!((&agent["planner"], &agent["nodes"]), (&json!("rules"), &json!(1)));
    let send =
        async |n: Value| bed.call("POST", "/api/agents/ruled/message", json!({ "message": n }).to_string()).await;
    send(json!({ "n": 0 })).await.problem(422, "no_rule");
    let unclear = send(json!({})).await;
    assert!(unclear.problem(422, "rule_failed").starts_with("`rules[0].when` cannot be evaluated"));
    assert_eq!(bed.get("/api/jobs").await.is(200)["jobs"], json!([]));
    send(json!({ "n": 2 })).await.is(202);
}

/// What an answer has to be is told where it is certain which tool has asked.
#[tokio::test]
async fn a_question_of_a_tool_is_told_with_what_an_answer_has_to_be() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/asks", ASKS).await.is(201);
    let job = bed.send("asks", "{}").await;
    let hand = bed.claim().await;
    let call = |tool: &str| ToolAsked {
        arguments: "{}".to_owned(),
        id: tool.to_owned(),
        name: tool.replace('.', "_"),
        provider: None,
        tool: Some(tool.into()),
    };
    let turn = Turn { calls: vec![call("ask.one"), call("ask.two")], reply: None };
    hand.push([
        NodeStarted { turns: true, ..started("n") }.into(),
        started("n/0").into(),
        NodeFinished { turn: Some(Box::new(turn)), ..finished("n/0", Some(json!(""))) }.into(),
        started("n/0.1").into(),
    ])
    .await;
    parks(&hand, "n/0.1", format!("{job}/n/0.1"), "two?").await;
    let view = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    assert_eq!(view["waiting"]["schema"], json!({ "type": "integer" }));
    let listed = bed.get("/api/waits").await.is(200)["waits"][0].clone();
    assert_eq!(
        (&listed["reason"], &listed["schema"]),
        (&json!("two?"), &Value::Null),
        "the list cannot know which tool asks"
    );
    let path = format!("/api/jobs/{job}/signal");
    let key = |step: &str| format!("{job}/{step}");
    bed.call("POST", &path, signal(&key("n/0.1"), &json!("text"))).await.problem(400, "invalid_payload");
    bed.call("POST", &path, signal(&key("n/0.7"), &json!(2))).await.problem(400, "wrong_correlation_key");
    // The node behind it asks later: its answer is kept, and judged at once.
    bed.call("POST", &path, signal(&key("m"), &json!(7))).await.problem(400, "invalid_payload");
    bed.call("POST", &path, signal(&key("m"), &json!("yes"))).await.is(202);
    bed.call("POST", &path, signal(&key("n/0.1"), &json!(2))).await.is(200);
    let hand = bed.claim().await;
    hand.push([NodeFinished::new("n/0.1", StepResult::Success).into()]).await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await.is(200).clone();
    let parts = trace["steps"][0]["parts"].as_array().unwrap();
    let told: Vec<Value> = parts.iter().map(|part| json!([part["node_id"], part["ended_by"]])).collect();
    assert_eq!(told, [json!(["n/0", null]), json!(["n/0.1", "signal"])]);
}
