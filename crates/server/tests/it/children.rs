//! What is told of a job, its parent and its children.

use aetheris_core::event::{ChildStarted, JobWaiting};
use aetheris_core::id::{JobId, TenantId};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{OnParentEnd, WaitType};
use aetheris_runtime::ops::Delivery;
use aetheris_store::Purpose;
use aetheris_store::system::SystemIds;
use serde_json::{Value, json};

use crate::bed::{Bed, Hand, started};

const PARENT: &str = r#"
agent: above
plan:
  nodes:
    - { id: a, kind: job, agent: below }
    - { id: b, kind: job, agent: below, wait: false }
"#;
pub(crate) const CHILD: &str = "agent: below\nplan:\n  nodes:\n    - { id: x, kind: transform, output: 1 }\n";

/// A step asks for a child.
pub(crate) async fn asks(bed: &Bed, hand: &Hand, node: &str, waits: bool) -> JobId {
    let child = JobId::of_child(hand.job, &StepPath::from(node));
    let agent = bed.store.agent(TenantId::default(), "below".into()).await.unwrap().unwrap();
    let child_started = ChildStarted {
        agent: "below".into(),
        agent_version: agent.agent.version.clone(),
        child,
        deadline_us: None,
        depth: 1,
        message: Json::new(json!({ "of": node })),
        node: node.into(),
        on_parent_end: if waits { OnParentEnd::Cancel } else { OnParentEnd::Leave },
        parent_deadline: None,
        plan_hash: agent.plan_hash,
        planner: "static".to_owned(),
        session: None,
        sessions: Vec::new(),
        waits,
    };
    hand.push([started(node).into(), child_started.into()]).await;
    child
}

/// Does what stands in the outbox.
pub(crate) async fn deliver(bed: &Bed) {
    loop {
        let deliveries = Delivery::of(bed.store.outbox(None, limits::SWEEP_ROWS_MAX).await.unwrap());
        if deliveries.is_empty() {
            return;
        }
        for delivery in deliveries {
            assert!(bed.state.runtime.deliver(&delivery).await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_job_names_its_parent_and_its_children() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/below", CHILD).await.is(201);
    bed.call("PUT", "/api/agents/above", PARENT).await.is(201);
    let job = bed.send("above", "{}").await;
    let hand = bed.claim().await;
    let left = asks(&bed, &hand, "b", false).await;
    hand.finish("b", Some(json!({ "job_id": left.to_string() }))).await;
    let awaited = asks(&bed, &hand, "a", true).await;
    let waiting = JobWaiting {
        correlation_key: None,
        doubt: false,
        node: "a".into(),
        park: false,
        reason: Some("it has not ended".to_owned()),
        wait_type: WaitType::Child,
    };
    hand.write(Purpose::Block, |draft| {
        draft.push(&SystemIds, waiting).unwrap();
        draft.release();
    })
    .await;
    let at = |job: &str| format!("/api/jobs/{job}/children");
    assert_eq!(bed.get(&at(&job)).await.is(200)["children"], json!([]), "none is created yet");
    let view = bed.get(&format!("/api/jobs/{job}")).await.is(200).clone();
    assert_eq!(view["steps"]["a"]["child"], json!({ "agent": "below", "job_id": awaited.to_string() }));
    assert_eq!(view["parent"], Value::Null);
    deliver(&bed).await;
    let page = bed.get(&format!("{}?limit=1", at(&job))).await.is(200).clone();
    let cursor = page["next_cursor"].as_str().unwrap().to_owned();
    let first = &page["children"][0];
    assert_eq!((&first["node_id"], &first["on_parent_end"]), (&json!("b"), &json!("leave")));
    assert_eq!(first["id"], json!(left.to_string()));
    let rest = bed.get(&format!("{}?limit=1&cursor={cursor}", at(&job))).await.is(200).clone();
    assert_eq!((&rest["children"][0]["node_id"], &rest["next_cursor"]), (&json!("a"), &Value::Null));
    let view = bed.get(&format!("/api/jobs/{awaited}")).await.is(200).clone();
    let parent = json!({ "job_id": job, "node_id": "a", "on_parent_end": "cancel", "waits": true });
    assert_eq!((&view["parent"], &view["message"]), (&parent, &json!({ "of": "a" })));
    let why = bed.get(&format!("/api/jobs/{job}/why")).await.is(200).clone();
    assert_eq!(why[0]["code"], "waiting_child");
    assert!(why[0].to_string().contains(&awaited.to_string()), "{why}");
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await.is(200).clone();
    assert_eq!(trace["steps"][0]["child"]["job_id"], json!(awaited.to_string()));
    bed.get(&format!("{}?cursor=x", at(&job))).await.problem(400, "invalid_request");
    bed.get(&at(&JobId::from_u128(9).to_string())).await.problem(404, "job_not_found");
}
