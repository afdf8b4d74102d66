//! SPEC §7: the order of a signal's checks.

use crate::bed::Bed;

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
        (r#"{"correlation_key": "ok-7", "wait_type": "webhook"}"#, "invalid_request"),
        (r#"{"correlation_key": "ok-8"}"#, "wrong_correlation_key"),
    ];
    for (body, code) in table {
        let reply = signal(&bed, &job, body).await;
        reply.problem(400, code);
    }
    let long = format!(r#"{{"correlation_key": "{}"}}"#, "k".repeat(513));
    signal(&bed, &job, &long).await.problem(400, "invalid_request");
    let longest = format!(r#"{{"correlation_key": "{}"}}"#, "é".repeat(512));
    signal(&bed, &job, &longest).await.problem(400, "wrong_correlation_key");
    let reply = signal(&bed, &job, r#"{"correlation_key": "ok-8"}"#).await;
    assert!(reply.problem(400, "wrong_correlation_key").contains("it waits for `ok-7`"));
    signal(&bed, "job_00000000000000000000000000", r#"{"correlation_key": "x"}"#).await.problem(404, "job_not_found");
}

#[tokio::test]
async fn delivered_once_and_remembered_for_ever() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let yes = r#"{"correlation_key": "ok-7", "payload": {"a": 1, "b": 2}, "wait_type": "human"}"#;
    let same = r#"{"correlation_key": "ok-7", "payload": {"b": 2, "a": 1}}"#;
    let other = r#"{"correlation_key": "ok-7"}"#;
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
    signal(&bed, &job, r#"{"correlation_key": "ok-8"}"#).await.problem(409, "job_finished");
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
    signal(&bed, &job, r#"{"correlation_key": "ok-9"}"#).await.problem(400, "wrong_correlation_key");
    let mismatch = r#"{"correlation_key": "ok-7", "wait_type": "webhook"}"#;
    signal(&bed, &job, mismatch).await.problem(400, "invalid_request");
}

#[tokio::test]
async fn a_wait_that_ended_otherwise_is_over() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    bed.clock.advance(aetheris_core::time::Span::from_secs(86_401));
    let due = bed.store.due_timers(None, 10).await.unwrap();
    assert!(bed.state.runtime.fire(&due.timers[0]).await.unwrap());
    signal(&bed, &job, r#"{"correlation_key": "ok-7"}"#).await.problem(409, "wait_over");
    signal(&bed, &job, r#"{"correlation_key": "ok-8"}"#).await.problem(400, "wrong_correlation_key");
    let hand = bed.claim().await;
    let cancelled = format!("/api/jobs/{}/cancel", hand.job);
    bed.call("POST", &cancelled, "").await.is(202);
}

#[tokio::test]
async fn a_signal_to_a_cancelled_job_comes_too_late() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
    signal(&bed, &job, r#"{"correlation_key": "ok-7"}"#).await.problem(409, "job_finished");
}
