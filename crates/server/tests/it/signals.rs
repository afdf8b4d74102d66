//! SPEC §7: the order of a signal's checks.

use crate::bed::{Bed, started};

async fn signal(bed: &Bed, job: &str, body: &str) -> crate::bed::Reply {
    bed.call("POST", &format!("/api/jobs/{job}/signal"), body.to_owned()).await
}

#[tokio::test]
async fn malformed_then_missing_then_wrong() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let table = [
        (r#"{"#, "invalid_request"),
        (r#"{"payload": 1, "colour": 2}"#, "invalid_request"),
        (r#"{"correlation_key": 7}"#, "invalid_request"),
        (r#"{"correlation_key": "ok-7", "wait_type": "owl"}"#, "invalid_request"),
        (r#"{"payload": 18446744073709551616}"#, "invalid_request"),
        (r"{}", "missing_correlation_key"),
        (r#"{"correlation_key": null}"#, "missing_correlation_key"),
        (r#"{"correlation_key": "", "payload": 1}"#, "missing_correlation_key"),
        (r#"{"correlation_key": "ok-7", "payload": null, "wait_type": "webhook"}"#, "invalid_request"),
        (r#"{"correlation_key": "ok-8", "payload": null}"#, "wrong_correlation_key"),
    ];
    for (body, code) in table {
        let reply = signal(&bed, &job, body).await;
        reply.problem(400, code);
    }
    let long = format!(r#"{{"correlation_key": "{}", "payload": 1}}"#, "k".repeat(513));
    signal(&bed, &job, &long).await.problem(400, "invalid_request");
    let longest = format!(r#"{{"correlation_key": "{}", "payload": 1}}"#, "é".repeat(512));
    signal(&bed, &job, &longest).await.problem(400, "wrong_correlation_key");
    let reply = signal(&bed, &job, r#"{"correlation_key": "ok-8", "payload": null}"#).await;
    assert!(reply.problem(400, "wrong_correlation_key").contains("it waits for `ok-7`"));
    signal(&bed, "job_00000000000000000000000000", r#"{"correlation_key": "x", "payload": null}"#)
        .await
        .problem(404, "job_not_found");
}

/// A client that forgets it would use up an approval.
#[tokio::test]
async fn a_signal_without_a_payload_is_refused_and_the_wait_goes_on() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let refused = signal(&bed, &job, r#"{"correlation_key": "ok-7"}"#).await;
    assert!(refused.problem(400, "invalid_request").contains("payload"));
    let null = signal(&bed, &job, r#"{"correlation_key": "ok-7", "payload": null}"#).await;
    assert_eq!(null.is(200)["status"], "delivered");
}

#[tokio::test]
async fn delivered_once_and_remembered_for_ever() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let yes = r#"{"correlation_key": "ok-7", "payload": {"a": 1, "b": 2}, "wait_type": "human"}"#;
    let same = r#"{"correlation_key": "ok-7", "payload": {"b": 2, "a": 1}}"#;
    let other = r#"{"correlation_key": "ok-7", "payload": null}"#;
    let delivered = serde_json::json!({"payload_matches": true, "status": "delivered"});
    assert_eq!(signal(&bed, &job, yes).await.is(200), &delivered);
    let hand = bed.claim().await;
    hand.finish("ask", None).await;
    hand.run("tell", 1.into()).await;
    for ended in [false, true] {
        if ended {
            hand.complete("tell").await;
        }
        let again = signal(&bed, &job, same).await;
        assert_eq!(again.is(200), &serde_json::json!({"payload_matches": true, "status": "already_delivered"}));
        let differs = signal(&bed, &job, other).await;
        assert_eq!(differs.is(200), &serde_json::json!({"payload_matches": false, "status": "already_delivered"}));
    }
    signal(&bed, &job, r#"{"correlation_key": "ok-8", "payload": null}"#).await.problem(409, "job_finished");
    let output = bed.get(&format!("/api/jobs/{job}/replay")).await;
    assert_eq!(output.is(200)["state"]["steps"]["ask"]["output"]["inline"], serde_json::json!({"a": 1, "b": 2}));
}

#[tokio::test]
async fn early_signals_are_kept_and_the_first_payload_counts() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", r#"{"order": 7}"#).await;
    let kept = signal(&bed, &job, r#"{"correlation_key": "ok-7", "payload": 1}"#).await;
    assert_eq!(kept.is(202), &serde_json::json!({"payload_matches": true, "status": "kept"}));
    let again = signal(&bed, &job, r#"{"correlation_key": "ok-7", "payload": 2}"#).await;
    assert_eq!(again.is(202), &serde_json::json!({"payload_matches": false, "status": "kept"}));
    signal(&bed, &job, r#"{"correlation_key": "ok-9", "payload": null}"#).await.problem(400, "wrong_correlation_key");
    let mismatch = r#"{"correlation_key": "ok-7", "payload": 1, "wait_type": "webhook"}"#;
    signal(&bed, &job, mismatch).await.problem(400, "invalid_request");
}

/// An agent with a schema for its messages and one for the payload of its wait.
const STRICT: &str = r#"
agent: strict
message_schema: { type: object, required: [order], properties: { order: { type: integer } } }
plan:
  nodes:
    - id: ask
      kind: wait
      wait_type: human
      correlation_key: "ok-{{ message.order }}"
      schema: { type: object, required: [approved], properties: { approved: { type: boolean } } }
"#;

#[tokio::test]
async fn a_payload_that_does_not_fit_uses_up_nothing() {
    let bed = Bed::with_agents().await;
    bed.call("PUT", "/api/agents/strict", STRICT).await.is(201);
    let job = bed.send("strict", r#"{"order": 7}"#).await;
    let misfits = [r#""{approved: true}""#, r#"{"approved": "yes"}"#, "{}"];
    // Before the wait is reached, by its key alone.
    for payload in misfits {
        let body = format!(r#"{{"correlation_key": "ok-7", "payload": {payload}}}"#);
        let reply = signal(&bed, &job, &body).await;
        assert!(reply.problem(400, "invalid_payload").contains("the payload does not fit the schema"));
        let errors = reply.body["errors"].as_array().unwrap();
        assert!(!errors.is_empty() && errors.iter().all(|error| error["code"] == "does_not_fit"), "{errors:?}");
    }
    let hand = bed.claim().await;
    hand.wait("ask", "ok-7").await;
    let waits = bed.get("/api/waits").await;
    assert_eq!(waits.is(200)["waits"][0]["schema"]["required"], serde_json::json!(["approved"]));
    for payload in misfits {
        let body = format!(r#"{{"correlation_key": "ok-7", "payload": {payload}}}"#);
        signal(&bed, &job, &body).await.problem(400, "invalid_payload");
    }
    let path = signal(&bed, &job, r#"{"correlation_key": "ok-7", "payload": {"approved": 1}}"#).await;
    let error = &path.body["errors"][0];
    assert_eq!((&error["path"], &error["line"]), (&"/approved".into(), &0.into()));
    let yes = r#"{"correlation_key": "ok-7", "payload": {"approved": true}}"#;
    assert_eq!(signal(&bed, &job, yes).await.is(200)["status"], "delivered");
    // What was delivered is remembered, whatever comes again.
    let again = signal(&bed, &job, r#"{"correlation_key": "ok-7", "payload": 1}"#).await;
    assert_eq!(again.is(200)["status"], "already_delivered");
}

#[tokio::test]
async fn a_message_that_does_not_fit_makes_no_job() {
    let bed = Bed::with_agents().await;
    bed.call("PUT", "/api/agents/strict", STRICT).await.is(201);
    let path = "/api/agents/strict/message";
    let send =
        async |key: &str, body: &'static str| bed.call_with("POST", path, &[("Idempotency-Key", key)], body).await;
    for body in [r#"{"message": {}}"#, r#"{"message": {"order": "7"}}"#, r#"{"message": null}"#] {
        for reply in [send("k", body).await, bed.call("POST", path, body).await] {
            assert!(reply.problem(400, "invalid_payload").contains("the message does not fit the schema"));
            let errors = reply.body["errors"].as_array().unwrap();
            assert!(!errors.is_empty() && errors.iter().all(|error| error["code"] == "does_not_fit"), "{errors:?}");
        }
    }
    assert_eq!(bed.get("/api/jobs").await.body["jobs"].as_array().unwrap().len(), 0);
    // Refused, a key is not used up; accepted, it is asked before the schema.
    let first = send("k", r#"{"message": {"order": 7}}"#).await.is(202).clone();
    let stricter = STRICT.replace("order: { type: integer }", "order: { const: 8 }");
    bed.call("PUT", "/api/agents/strict", stricter).await.is(200);
    assert_eq!(send("k", r#"{"message": {"order": 7}}"#).await.is(200)["job_id"], first["job_id"]);
    send("k", r#"{"message": {"order": "9"}}"#).await.problem(409, "idempotency_conflict");
    send("l", r#"{"message": {"order": 7}}"#).await.problem(400, "invalid_payload");
    bed.call("POST", path, r#"{"message": {"order": 7}}"#).await.problem(400, "invalid_payload");
    assert_eq!(bed.get("/api/jobs").await.body["jobs"].as_array().unwrap().len(), 1);
    bed.call("POST", path, r#"{"message": {"order": 8}}"#).await.is(202);
}

#[tokio::test]
async fn a_wait_that_ended_otherwise_is_over() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    bed.clock.advance(aetheris_core::time::Span::from_secs(86_401));
    let due = bed.store.due_timers(None, 10).await.unwrap();
    assert!(bed.state.runtime.fire(&due.timers[0]).await.unwrap());
    signal(&bed, &job, r#"{"correlation_key": "ok-7", "payload": null}"#).await.problem(409, "wait_over");
    signal(&bed, &job, r#"{"correlation_key": "ok-8", "payload": null}"#).await.problem(400, "wrong_correlation_key");
    let hand = bed.claim().await;
    let cancelled = format!("/api/jobs/{}/cancel", hand.job);
    bed.call("POST", &cancelled, "").await.is(202);
}

#[tokio::test]
async fn a_signal_to_a_cancelled_job_comes_too_late() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
    signal(&bed, &job, r#"{"correlation_key": "ok-7", "payload": null}"#).await.problem(409, "job_finished");
}

/// A run that ends between the start of a wait and the moment at which it blocks, as a drain ends it, leaves a wait that
/// nobody has reached.
#[tokio::test]
async fn a_signal_for_a_wait_that_has_begun_and_not_blocked_is_kept() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", r#"{"order": 7}"#).await;
    bed.claim().await.push([started("ask").into()]).await;
    let reply = signal(&bed, &job, r#"{"correlation_key": "ok-7", "payload": {"approved": true}}"#).await;
    assert_eq!(reply.is(202)["status"], "kept", "{}", reply.text);
}
