//! What is told of a node whose output is judged: its rounds, what its critic said, and what each was given and gave.

use aetheris_core::event::{Items, Judge, NodeFinished, NodeRefining, NodeStarted, Verdict};
use serde_json::{Value, json};

use crate::bed::{Bed, finished, started};

const AGENT: &str = r#"
agent: judged
model: scripted/echo
plan:
  nodes:
    - { id: n, kind: llm, prompt: "{{ round }} {{ feedback }}", critic: c }
    - { id: c, kind: critic, prompt: "{{ output }}" }
    - { id: m, kind: map, needs: [n], over: [1], do: { kind: transform, output: 1, validate: {} } }
"#;

fn gave(node: &str, output: Value, verdict: Option<Verdict>) -> NodeFinished {
    NodeFinished { verdict, ..finished(node, Some(output)) }
}

fn refining(node: &str, round: u32, feedback: &str) -> NodeRefining {
    NodeRefining { by: Judge::Critic, feedback: feedback.to_owned(), node: node.into(), round }
}

fn told(step: &Value) -> (String, String, Value) {
    let text = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
    (text("node_id"), text("status"), step["rejected_by"].clone())
}

#[tokio::test]
async fn rounds_and_verdicts_are_told_below_their_node() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/judged", AGENT).await.is(201);
    let job = bed.send("judged", "{}").await;
    let hand = bed.claim().await;
    let large = "x".repeat(4_000);
    hand.push([
        started("n").into(),
        gave("n", json!("first"), Some(Verdict::Pending)).into(),
        started("n/critic").into(),
        gave("n/critic", json!({ "verdict": "reject" }), Some(Verdict::Reject)).into(),
        refining("n", 1, "longer").into(),
        started("n@1").into(),
    ])
    .await;
    let view = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    assert_eq!((&view["steps"]["n"]["status"], &view["steps"]["n"]["round"]), (&json!("refining"), &json!(1)));
    let steps: Vec<&String> = view["steps"].as_object().unwrap().keys().collect();
    assert_eq!(steps, ["m", "n"], "a round is told with its node, and a critic is no step");
    hand.push([
        gave("n@1", json!(large), Some(Verdict::Pending)).into(),
        started("n@1/critic").into(),
        gave("n@1/critic", json!({ "verdict": "pass" }), Some(Verdict::Pass)).into(),
        NodeStarted { items: Some(Items { collect: false, count: 1 }), ..started("m") }.into(),
        started("m[0]").into(),
        gave("m[0]", json!(1), Some(Verdict::Reject)).into(),
        refining("m[0]", 1, "why").into(),
        started("m[0]@1").into(),
        gave("m[0]@1", json!(2), None).into(),
        finished("m", None).into(),
    ])
    .await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await.is(200).clone();
    let (n, m) = (&trace["steps"][0], &trace["steps"][1]);
    assert_eq!((told(n), &n["verdict"]), (("n".to_owned(), "completed".to_owned(), json!("critic")), &json!("reject")));
    let parts: Vec<_> =
        n["parts"].as_array().unwrap().iter().map(|part| (told(part).0, part["verdict"].clone())).collect();
    let expected = [("n/critic", "reject"), ("n@1", "pass"), ("n@1/critic", "pass")];
    assert_eq!(parts, expected.map(|(path, verdict)| (path.to_owned(), json!(verdict))));
    assert_eq!(n["parts"][1]["feedback"], "longer");
    assert_eq!(told(&m["items"][0]["parts"][0]), ("m[0]@1".to_owned(), "completed".to_owned(), Value::Null));
    // What counts stands with the node, and what each round was given and gave below it.
    let page = bed.get(&format!("/api/jobs/{job}/steps?render=true&bytes=100000")).await.is(200)["steps"].clone();
    let values = |at: usize| {
        (page[at]["node_id"].clone(), page[at]["input"]["value"]["prompt"].clone(), page[at]["output"]["value"].clone())
    };
    assert_eq!(values(0), (json!("n"), json!("1 longer"), json!(large)));
    let first = &page[0]["first_round"];
    assert_eq!((&first["input"]["value"]["prompt"], &first["output"]["value"]), (&json!("0 "), &json!("first")));
    assert!(page[2].get("first_round").is_none() && page[4].get("first_round").is_none());
    assert_eq!(values(1), (json!("n/critic"), json!("first"), json!({ "verdict": "reject" })));
    assert_eq!(values(2), (json!("n@1"), json!("1 longer"), json!(large)));
    assert_eq!(page[4]["node_id"], "m");
    let of_round = bed.get(&format!("/api/jobs/{job}/steps?node=m%5B0%5D@1")).await.is(200)["steps"].clone();
    assert_eq!(of_round[0]["output"]["value"], 2);
    let of_item = bed.get(&format!("/api/jobs/{job}/steps?node=m%5B0%5D")).await.is(200)["steps"].clone();
    assert_eq!((&of_item[0]["output"]["value"], &of_item[0]["first_round"]["output"]["value"]), (&json!(2), &json!(1)));
    // A large answer that is a refined node's output is read where its last round stands.
    hand.complete("n").await;
    let done = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!(large)));
}
