//! What is told of a loop: its turns, its calls, and which failures its model was told of.

use aetheris_core::event::{Failure, NodeFinished, NodeStarted, StepResult, ToolAsked, Turn};
use serde_json::{Value, json};

use crate::bed::{Bed, finished, started};

const AGENT: &str = r#"
agent: desk
model: scripted/echo
tools: { look: { kind: function, function: builtin.echo, effect: pure } }
plan:
  nodes:
    - { id: n, kind: agent, prompt: "{{ message }}", system: be brief, tools: [look], on_failure: fail_safe }
"#;

fn asked(name: &str, arguments: &str) -> ToolAsked {
    let tool = (name == "look").then(|| "look".into());
    ToolAsked { arguments: arguments.to_owned(), id: "c".to_owned(), name: name.to_owned(), provider: None, tool }
}

fn turn(node: &str, calls: Vec<ToolAsked>) -> NodeFinished {
    NodeFinished { turn: Some(Box::new(Turn { calls, reply: None })), ..finished(node, Some(json!("said"))) }
}

fn failed(node: &str, told: bool) -> NodeFinished {
    let error = Some(Failure::new("no", "it does not"));
    let end = NodeFinished::new(node, StepResult::PermanentFailure);
    NodeFinished { absorbed: true, error, told, ..end }
}

#[tokio::test]
async fn turns_and_calls_are_told_below_their_loop() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/desk", AGENT).await.is(201);
    let job = bed.send("desk", r#""find it""#).await;
    let hand = bed.claim().await;
    let calls = vec![asked("look", "{\"q\":1}"), asked("nope", "half {"), asked("look", "{}")];
    hand.push([
        NodeStarted { turns: true, ..started("n") }.into(),
        started("n/0").into(),
        turn("n/0", calls).into(),
        started("n/0.0").into(),
        finished("n/0.0", Some(json!({ "found": 1 }))).into(),
        failed("n/0.1", true).into(),
        started("n/0.2").into(),
        failed("n/0.2", false).into(),
        failed("n", false).into(),
    ])
    .await;
    let view = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    let steps: Vec<&String> = view["steps"].as_object().unwrap().keys().collect();
    assert_eq!(steps, ["n"], "turns and calls are told with their node");
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await.is(200).clone();
    let parts = trace["steps"][0]["parts"].as_array().unwrap();
    let told: Vec<Value> = parts.iter().map(|part| json!([part["node_id"], part["kind"], part["told"]])).collect();
    let expected = [
        json!(["n/0", "agent", null]),
        json!(["n/0.0", "tool", null]),
        json!(["n/0.1", "agent", true]),
        json!(["n/0.2", "tool", null]),
    ];
    assert_eq!(told, expected);
    let page = bed.get(&format!("/api/jobs/{job}/steps?render=true")).await.is(200)["steps"].clone();
    let input = |at: usize| page[at]["input"]["value"].clone();
    assert_eq!(input(0), json!({ "prompt": "find it", "system": "be brief" }));
    // A turn is given the whole conversation, of which each part stands where it belongs.
    assert_eq!((input(1), &page[1]["output"]["value"]), (Value::Null, &json!("said")));
    assert_eq!((input(2), &page[2]["output"]["value"]), (json!({ "q": 1 }), &json!({ "found": 1 })));
    assert_eq!(input(3), "half {", "what is no JSON is shown as it was written");
    let one = bed.get(&format!("/api/jobs/{job}/steps?node=n/0.0&render=true")).await.is(200)["steps"].clone();
    assert_eq!(one[0]["input"]["value"], json!({ "q": 1 }));
}
