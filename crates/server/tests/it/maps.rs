//! What is told of a map: how its items stand, what each was given and came to, and those about which somebody is asked.

use aetheris_core::event::{
    DoubtOutcome, Failure, InDoubtResolved, Items, NodeFinished, NodeSkipped, NodeStarted, Resolver, SkipReason,
    StepInDoubt, StepResult,
};
use serde_json::{Value, json};

use crate::bed::{Bed, finished, started};

const SALES: &str = r#"
agent: sales
tools:
  look: { kind: function, function: builtin.echo, effect: pure }
  send: { kind: function, function: builtin.echo }
plan:
  nodes:
    - { id: m, kind: map, over: "{{ message }}", as: shop, concurrency: 4, on_item_failure: collect,
        do: { kind: tool, tool: look, input: { id: "{{ shop }}", at: "{{ shop_index }}" }, when: shop } }
    - { id: n, kind: map, needs: [m], over: [1, 2], do: { kind: tool, tool: send, input: "{{ item }}" } }
"#;

fn items(step: &Value) -> &Value {
    &step["items"]
}

#[tokio::test]
async fn the_items_of_a_map_are_counted_and_told_one_by_one() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/sales", SALES).await.is(201);
    let job = bed.send("sales", r#"["a", "b", "", "d", "e"]"#).await;
    let hand = bed.claim().await;
    let collect = Items { collect: true, count: 5 };
    let failed = |node: &str| NodeFinished {
        absorbed: true,
        error: Some(Failure::new("gone", "never")),
        ..NodeFinished::new(node, StepResult::PermanentFailure)
    };
    hand.push([
        NodeStarted { items: Some(collect), ..started("m") }.into(),
        started("m[0]").into(),
        started("m[1]").into(),
        finished("m[1]", Some(json!({ "id": "b" }))).into(),
        failed("m[0]").into(),
        NodeSkipped { node: "m[2]".into(), reason: SkipReason::Condition }.into(),
        started("m[3]").into(),
    ])
    .await;
    let told = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    let counted = json!({ "completed": 1, "count": 5, "failed": 1, "given_up": 0, "open": 1, "skipped": 1 });
    assert_eq!(items(&told["steps"]["m"]), &counted);
    let steps: Vec<&String> = told["steps"].as_object().unwrap().keys().collect();
    assert_eq!(steps, ["m", "n"], "an item is told with its map");
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await.is(200).clone();
    let of_map: Vec<(&str, &str)> = trace["steps"][0]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["node_id"].as_str().unwrap(), item["status"].as_str().unwrap()))
        .collect();
    assert_eq!(of_map, [("m[0]", "failed"), ("m[1]", "completed"), ("m[2]", "skipped"), ("m[3]", "running")]);
    assert_eq!(trace["steps"][0]["items"][0]["error"]["code"], "gone");
    assert_eq!(trace["steps"][0]["items"][1]["tool"]["name"], "look");
    let asked = |node: &str| format!("/api/jobs/{job}/steps?render=true&node={node}");
    let of_item = bed.get(&asked("m%5B1%5D")).await.is(200)["steps"].clone();
    assert_eq!(of_item[0]["input"]["value"], json!({ "id": "b", "at": 1 }), "{of_item}");
    assert_eq!(of_item[0]["output"]["value"], json!({ "id": "b" }));
    assert_eq!(bed.get(&asked("m%5B9%5D")).await.is(200)["steps"], json!([]));
    assert_eq!(bed.get(&asked("n%5B0%5D")).await.is(200)["steps"], json!([]));
    // The map ends, and its output is what its items came to.
    hand.push([
        finished("m[3]", Some(json!(4))).into(),
        started("m[4]").into(),
        finished("m[4]", Some(json!(5))).into(),
        finished("m", None).into(),
    ])
    .await;
    let of_map = bed.get(&asked("m")).await.is(200)["steps"][0]["output"]["value"].clone();
    let ok = |output: Value| json!({ "ok": true, "output": output });
    let gone = json!({ "ok": false, "error": { "code": "gone", "message": "never" } });
    assert_eq!(of_map, json!([gone, ok(json!({ "id": "b" })), ok(Value::Null), ok(json!(4)), ok(json!(5))]));
}

/// An item whose call is in doubt is listed beside its map; one that was given up is counted as that.
#[tokio::test]
async fn an_item_about_which_somebody_is_asked_is_listed() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/sales", SALES).await.is(201);
    let job = bed.send("sales", "[]").await;
    let hand = bed.claim().await;
    let two = Items { collect: false, count: 2 };
    hand.push([
        NodeStarted { items: Some(Items { collect: true, count: 0 }), ..started("m") }.into(),
        finished("m", None).into(),
        NodeStarted { items: Some(two), ..started("n") }.into(),
    ])
    .await;
    hand.doubt("n[0]").await;
    let told = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    assert_eq!(told["steps"]["n[0]"]["status"], "in_doubt");
    assert_eq!(items(&told["steps"]["n"])["open"], 1);
    assert_eq!(told["waiting"]["node_id"], "n[0]");
}

/// An item that was given up over its call is listed as long as nobody has said what became of that.
#[tokio::test]
async fn an_item_whose_call_was_given_up_is_listed() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/sales", SALES).await.is(201);
    let job = bed.send("sales", "[]").await;
    let hand = bed.claim().await;
    let two = Items { collect: true, count: 2 };
    hand.push([
        NodeStarted { items: Some(Items { collect: true, count: 0 }), ..started("m") }.into(),
        finished("m", None).into(),
        NodeStarted { items: Some(two), ..started("n") }.into(),
    ])
    .await;
    hand.permit("n[0]").await;
    let given_up = InDoubtResolved {
        by: Resolver::Policy,
        grounds: None,
        node: "n[0]".into(),
        note: None,
        outcome: DoubtOutcome::Unresolved,
        permit: 1,
        result: None,
        settle_us: None,
        then: None,
    };
    let end = NodeFinished {
        absorbed: true,
        error: Some(Failure::new("in_doubt_unresolved", "nobody knows")),
        ..NodeFinished::new("n[0]", StepResult::PermanentFailure)
    };
    let doubt = StepInDoubt { node: "n[0]".into(), permit: 1, policy: 0, reason: "reset".to_owned() };
    hand.push([doubt.into(), given_up.into(), end.into()]).await;
    let told = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    assert_eq!(told["steps"]["n[0]"]["left_in_doubt"], "unresolved", "{}", told["steps"]);
}
