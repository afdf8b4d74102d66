//! Two tenants on one store. Nobody says yet who he is, so that each has a server of its own here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aetheris_core::id::TenantId;
use aetheris_server::AppState;
use serde_json::Value;

use crate::bed::{APPROVE, Bed, PAY, started};
use crate::between::Between;

/// A server for another tenant on the same store.
fn of(bed: &Bed, tenant: &str) -> Bed {
    let runtime = |state: &AppState| state.runtime.of(TenantId::from(tenant));
    Bed::on(bed.clock.clone(), bed.store.clone(), |state| AppState { runtime: runtime(&state), ..state })
}

/// What a route wants, so that it is refused for nothing else.
fn body(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("signal") => r#"{"correlation_key": "ok-7", "payload": true}"#,
        Some("{invocation}") => r#"{"outcome": "happened", "note": "seen", "permit": 1, "result": 1}"#,
        _ => "",
    }
}

/// Every route of the document that names a job, whatever is added to it.
#[tokio::test]
async fn no_route_about_a_job_answers_another_tenant() {
    let bed = Bed::with_agents().await;
    let (one, two) = (of(&bed, "default"), of(&bed, "other"));
    let ((doubted, invocation), waiting) = (one.doubted().await, one.waiting().await);
    let document = one.get("/api/openapi.json").await.is(200).clone();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if !path.starts_with("/api/jobs/{id}") {
            continue;
        }
        for method in methods.as_object().unwrap().keys() {
            let job = if path.contains("{invocation}") { &doubted } else { &waiting };
            let named = path.replace("{id}", job).replace("{invocation}", &invocation).replace("{node}", "ask");
            let seq = one.get(&format!("/api/jobs/{job}")).await.is(200)["seq"].clone();
            let reply = two.call(&method.to_uppercase(), &named, body(path)).await;
            let unsupported = reply.status == 501;
            assert!(unsupported || reply.status == 404, "{method} {path}: {} {}", reply.status, reply.text);
            assert!(unsupported || reply.body["code"] == "job_not_found", "{method} {path}: {}", reply.text);
            assert_eq!(one.get(&format!("/api/jobs/{job}")).await.is(200)["seq"], seq, "{method} {path} has written");
            asked += 1;
        }
    }
    assert!(asked > 12, "{asked}");
}

#[tokio::test]
async fn no_list_and_no_name_of_a_tenant_is_anothers() {
    let bed = Bed::with_agents().await;
    let (one, two) = (of(&bed, "default"), of(&bed, "other"));
    one.doubted().await;
    one.waiting().await;
    let key = [("Idempotency-Key", "k")];
    let send = async |of: &Bed| of.call_with("POST", "/api/agents/pay/message", &key, r#"{"message": 1}"#).await;
    let first = send(&one).await.is(202)["job_id"].clone();
    for list in
        ["/api/jobs", "/api/jobs?agent=pay", "/api/jobs?status=parked", "/api/waits", "/api/in-doubt", "/api/agents"]
    {
        let count =
            |body: &Value| body.as_object().unwrap().values().filter_map(Value::as_array).map(Vec::len).sum::<usize>();
        let ours = one.get(list).await;
        assert!(ours.status == 200 && count(&ours.body) > 0, "{list}: {}", ours.text);
        let theirs = two.get(list).await;
        assert_eq!(theirs.status, 200, "{list}: {}", theirs.text);
        assert_eq!((count(theirs.is(200)), theirs.body["next_cursor"].is_string()), (0, false), "{list}");
    }
    two.get("/api/agents/pay").await.problem(404, "agent_not_found");
    two.call("DELETE", "/api/agents/pay", "").await.problem(404, "agent_not_found");
    send(&two).await.problem(404, "agent_not_found");
    two.call("PUT", "/api/agents/pay", PAY).await.is(201);
    let second = send(&two).await.is(202)["job_id"].clone();
    assert_ne!(first, second);
    assert_eq!(send(&one).await.is(200)["job_id"], first);
    assert_eq!(send(&two).await.is(200)["job_id"], second);
    assert_eq!(two.call("DELETE", "/api/agents/pay", "").await.status, 204);
    one.get("/api/agents/pay").await.is(200);
}

/// The first event says whose a job is, and so does its row: whoever has the events alone believes them.
#[tokio::test]
async fn the_events_of_a_job_are_of_its_tenant() {
    let two = of(&Bed::new(), "other");
    two.call("PUT", "/api/agents/pay", PAY).await.is(201);
    let job = two.send("pay", "5").await;
    let replay = two.get(&format!("/api/jobs/{job}/replay")).await;
    assert_eq!(replay.is(200)["matches"], true, "{}", replay.text);
}

/// Its run writes behind the first reading of it, so that it is read again before it is written to.
#[tokio::test]
async fn a_tenants_job_that_goes_on_is_still_its_own() {
    for act in ["cancel", "pause", "signal"] {
        let bed = of(&Bed::new(), "other");
        bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
        let path = format!("/api/jobs/{}/{act}", bed.send("approve", r#"{"order": 7}"#).await);
        let (hand, reads) = (Arc::new(bed.claim().await), Arc::new(AtomicUsize::new(0)));
        let read = Arc::clone(&reads);
        let store = Between::then(Arc::clone(&bed.store), move |name| {
            let first = name == "glance" && read.fetch_add(1, Ordering::SeqCst) == 0;
            let hand = first.then(|| Arc::clone(&hand))?;
            Some(Box::pin(async move { hand.push([started("ask").into()]).await }))
        });
        let two = of(&Bed::on(bed.clock.clone(), Arc::new(store), |state| state), "other");
        two.call("POST", &path, body(&path)).await.is(202);
        assert_eq!(reads.load(Ordering::SeqCst), 2, "{act}");
    }
}
