use std::sync::Arc;

use aetheris_store::faulty::{Fault, FaultPlan, FaultyStore, Op};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::ManualClock;
use aetheris_store::{ErrorKind, Store, StoreError};

use crate::bed::{APPROVE, Bed, moment};
use crate::between::Between;

const PATH: &str = "/api/agents/approve/message";

#[tokio::test]
async fn a_message_makes_a_job_with_all_that_it_says() {
    let bed = Bed::with_agents().await;
    let body = r#"{"message": {"order": 7}, "session_id": "s", "priority": -3, "deadline": "1h",
        "run_at": "2026-11-21T10:00:00+01:00", "labels": {"team": "a"}}"#;
    let reply = bed.call("POST", PATH, body).await;
    let answer = reply.is(202);
    assert_eq!(answer.as_object().unwrap().len(), 2);
    let job = bed.get(&format!("/api/jobs/{}", answer["job_id"].as_str().unwrap())).await;
    let view = job.is(200);
    assert_eq!((view["agent"].as_str(), view["agent_version"].as_str()), (Some("approve"), Some("3")));
    assert_eq!((view["session_id"].as_str(), view["priority"].as_i64()), (Some("s"), Some(-3)));
    assert_eq!(view["labels"]["team"], "a");
    assert_eq!(view["not_before"].as_str().map(moment), Some(moment("2026-11-21T09:00:00Z")));
    assert_eq!(view["message"]["order"], 7);
}

/// Some shells put a byte order mark before what they send.
#[tokio::test]
async fn a_byte_order_mark_is_no_part_of_a_request() {
    let bed = Bed::with_agents().await;
    bed.call("POST", PATH, "\u{feff}{\"message\": {\"order\": 7}}").await.is(202);
    bed.call("POST", PATH, "\u{feff}[1]").await.problem(400, "invalid_request");
    bed.call("POST", PATH, "\u{feff}").await.problem(400, "invalid_request");
}

#[tokio::test]
async fn wrong_messages_are_refused_with_the_reason() {
    let bed = Bed::with_agents().await;
    let cases = [
        (r#"{"message": 1, "colour": 2}"#, "unknown field `colour`"),
        ("{}", "missing field `message`"),
        ("", "not valid JSON"),
        (r#"{"message": [1, 2"#, "not valid JSON"),
        (r#"["5m", {}, 1, 0, null, null]"#, "a request is a JSON object"),
        (r#"{"message": 1} x"#, "not valid JSON"),
        ("7", "a request is a JSON object"),
        (r#"{"message": 1, "message": 2}"#, "duplicate field `message`"),
        (r#"{"message": 1, "deadline": 5}"#, "invalid type"),
        (r#"{"message": 1, "deadline": "5 parsecs"}"#, "is not a duration"),
        (r#"{"message": 1, "deadline": "0s"}"#, "deadline"),
        (r#"{"message": 1, "run_at": "tomorrow"}"#, "is not a time"),
        (r#"{"message": 1, "priority": 99999999999}"#, "expected a whole number"),
        (r#"{"message": 1, "labels": {"": "x"}}"#, "labels"),
        (r#"{"message": 1, "session_id": ""}"#, "session_id"),
        (r#"{"message": 18446744073709551616}"#, "message: the number 18446744073709551616 would be another"),
        (r#"{"message": {"a": [-9223372036854775809]}}"#, "-9223372036854775809"),
        (r#"{"message": 1e999}"#, "1e999"),
        (r#"{"message": [{"a": 1, "a": 2}]}"#, "message: the key \"a\" appears twice"),
    ];
    for (body, says) in cases {
        let reply = bed.call("POST", PATH, body).await;
        let detail = reply.problem(400, "invalid_request");
        assert!(detail.contains(says), "{body}: {detail}");
    }
    let deep = format!(r#"{{"message": {}{}}}"#, "[".repeat(65), "]".repeat(65));
    assert!(bed.call("POST", PATH, deep).await.problem(400, "invalid_request").contains("nested deeper"));
    let absurd = format!(r#"{{"message": {}"#, "[".repeat(200_000));
    bed.call("POST", PATH, absurd).await.problem(400, "invalid_request");
    bed.call("POST", "/api/agents/nobody/message", r#"{"message": 1}"#).await.problem(404, "agent_not_found");
    bed.call("POST", &format!("{PATH}?wait=soon"), r#"{"message": 1}"#).await.problem(400, "invalid_request");
    let said = bed.call("POST", &format!("{PATH}?colour=1"), r#"{"message": 1}"#).await;
    assert!(said.problem(400, "invalid_request").contains("unknown parameter `colour`"));
    assert_eq!(bed.get("/api/jobs").await.body["jobs"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn integers_arrive_exactly() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "[18446744073709551615, -9223372036854775808, 0.1]").await;
    let reply = bed.get(&format!("/api/jobs/{job}")).await;
    assert!(reply.text.contains("[18446744073709551615,-9223372036854775808,0.1]"), "{}", reply.text);
}

#[tokio::test]
async fn the_same_key_makes_one_job() {
    let bed = Bed::with_agents().await;
    let send = async |agent: &str, key: &str, body: &'static str| {
        bed.call_with("POST", &format!("/api/agents/{agent}/message"), &[("Idempotency-Key", key)], body).await
    };
    let first = send("approve", "k", r#"{"message": {"order": 1, "b": 2}}"#).await;
    let again = send("approve", "k", r#"{ "message": {"b":2, "order":1} }"#).await;
    assert_eq!(again.is(200), first.is(202));
    let other = send("approve", "k", r#"{"message": {"order": 2}}"#).await;
    assert!(other.problem(409, "idempotency_conflict").contains(first.body["job_id"].as_str().unwrap()));
    let elsewhere = send("pay", "k", r#"{"message": {"order": 2}}"#).await;
    assert_ne!(elsewhere.is(202)["job_id"], first.body["job_id"]);
    send("approve", "", r#"{"message": 1}"#).await.problem(400, "invalid_request");
    send("approve", &"k".repeat(257), r#"{"message": 1}"#).await.problem(400, "invalid_request");
    send("approve", "ключ", r#"{"message": 1}"#).await.problem(400, "invalid_request");
    let twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    bed.call_with("POST", PATH, &twice, r#"{"message": 1}"#).await.problem(400, "invalid_request");
}

/// A client that sends again what was accepted is told so, whatever became of the agent since.
#[tokio::test]
async fn a_key_is_known_when_its_agent_is_gone() {
    let bed = Bed::with_agents().await;
    let send =
        async |key: &str, body: &'static str| bed.call_with("POST", PATH, &[("Idempotency-Key", key)], body).await;
    let first = send("k", r#"{"message": {"order": 1}}"#).await;
    bed.call("DELETE", "/api/agents/approve", "").await;
    assert_eq!(send("k", r#"{"message": {"order": 1}}"#).await.is(200), first.is(202));
    let other = send("k", r#"{"message": {"order": 2}}"#).await;
    assert!(other.problem(409, "idempotency_conflict").contains(first.body["job_id"].as_str().unwrap()));
    send("new", r#"{"message": {"order": 1}}"#).await.problem(404, "agent_not_found");
}

/// Whoever is told that there is no such agent gives up a message that is accepted; one told to come again is told of its
/// job.
#[tokio::test]
async fn a_key_that_cannot_be_looked_up_is_not_unknown() {
    let bed = Bed::with_agents().await;
    let send = async |bed: &Bed| {
        bed.call_with("POST", PATH, &[("Idempotency-Key", "k")], r#"{"message": {"order": 1}}"#).await
    };
    let first = send(&bed).await;
    bed.call("DELETE", "/api/agents/approve", "").await;
    let store = Between::then(Arc::clone(&bed.store), |_| None)
        .failing(|name| (name == "client_key").then(|| StoreError::new(ErrorKind::Unavailable, "client_key", "busy")));
    send(&Bed::on(bed.clock.clone(), Arc::new(store), |state| state)).await.problem(503, "store_unavailable");
    assert_eq!(send(&bed).await.is(200), first.is(202));
}

/// What a document calls a length is in characters, whatever their bytes.
#[tokio::test]
async fn texts_are_as_long_as_the_document_says() {
    let bed = Bed::with_agents().await;
    let served = bed.get("/api/openapi.json").await;
    let schemas = &served.is(200)["components"]["schemas"];
    let longest = |schema: &serde_json::Value| usize::try_from(schema["maxLength"].as_u64().unwrap()).unwrap();
    let session = longest(&schemas["SessionId"]);
    let key = longest(&schemas["Labels"]["propertyNames"]);
    let value = longest(&schemas["Labels"]["additionalProperties"]);
    assert_eq!((session, key, value), (128, 128, 128));
    assert_eq!((longest(&schemas["Note"]), longest(&schemas["CorrelationKey"])), (4_096, 512));
    let send = async |session: usize, key: usize, value: usize, character: &str| {
        let labels = serde_json::json!({ character.repeat(key): character.repeat(value) });
        let body = serde_json::json!({ "message": 1, "session_id": character.repeat(session), "labels": labels });
        bed.call("POST", PATH, body.to_string()).await
    };
    for character in ["s", "é", "\u{1f980}"] {
        send(session, key, value, character).await.is(202);
        send(session + 1, key, value, character).await.problem(400, "invalid_request");
        send(session, key + 1, value, character).await.problem(400, "invalid_request");
        send(session, key, value + 1, character).await.problem(400, "invalid_request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sender_may_wait_for_the_end() {
    let bed = Bed::with_agents().await;
    let path = format!("{PATH}?wait=10s");
    let early = bed.call("POST", &path, r#"{"message": {"order": 1}}"#).await;
    assert_eq!(early.is(202)["status"], "pending");
    let first = bed.claim().await;
    first.wait("ask", "ok-1").await;

    let (answer, ()) = tokio::join!(bed.call("POST", &path, r#"{"message": {"order": 2}}"#), async {
        tokio::task::yield_now().await;
        let hand = bed.claim().await;
        let path = format!("/api/jobs/{}/cancel", hand.job);
        bed.call("POST", &path, "").await.is(202);
        hand.write(aetheris_store::Purpose::Finish, |draft| {
            draft.push(&aetheris_store::system::SystemIds, aetheris_core::event::JobCancelled {}).unwrap();
            draft.release();
        })
        .await;
    });
    assert_eq!(answer.is(200)["status"], "cancelled");
}

/// Whoever sends it again because no answer came waits for the same end.
#[tokio::test(start_paused = true)]
async fn whoever_sends_again_waits_as_well() {
    let bed = Bed::with_agents().await;
    let path = format!("{PATH}?wait=10s");
    let send = async || bed.call_with("POST", &path, &[("Idempotency-Key", "k")], r#"{"message": 1}"#).await;
    send().await.is(202);
    let began = tokio::time::Instant::now();
    assert_eq!(send().await.is(200)["status"], "pending");
    assert_eq!(began.elapsed().as_secs(), 10);
    let (again, ()) = tokio::join!(send(), async {
        tokio::task::yield_now().await;
        let job = bed.get("/api/jobs").await.is(200)["jobs"][0]["id"].as_str().unwrap().to_owned();
        bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
    });
    assert_eq!(again.is(200)["status"], "cancelled");
}

#[tokio::test]
async fn a_page_of_another_site_may_not_ask_for_anything() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let signal = format!("/api/jobs/{job}/signal");
    let cancel = format!("/api/jobs/{job}/cancel");
    let calls =
        [(PATH, r#"{"message": 1}"#), (signal.as_str(), r#"{"correlation_key": "ok-7", "payload": 1}"#), (&cancel, "")];
    for (path, body) in calls {
        for origin in ["https://evil.example", "http://127.0.0.1:8081", "http://localhost:8080", "null", "8080"] {
            // What a browser sends without asking first.
            let headers = [("host", "127.0.0.1:8080"), ("origin", origin), ("content-type", "text/plain")];
            let reply = bed.call_with("POST", path, &headers, body).await;
            assert!(reply.problem(400, "invalid_request").contains("another site"), "{path} {origin}");
        }
        let reply = bed.call_with("POST", path, &[("origin", "http://evil.example")], body).await;
        reply.problem(400, "invalid_request");
    }
    // A name that only begins like the server's own is another's.
    for (host, origin) in [
        ("localhost", "http://localhost.evil.example"),
        ("localhost", "http://localhost:8081"),
        ("127.0.0.1:80", "http://127.0.0.1:8080"),
        ("localhost:8080", "http://localhost"),
    ] {
        let reply = bed.call_with("POST", PATH, &[("host", host), ("origin", origin)], r#"{"message": 1}"#).await;
        assert!(reply.problem(400, "invalid_request").contains("another site"), "{host} {origin}");
    }
    assert_eq!(bed.get(&format!("/api/jobs/{job}")).await.is(200)["status"], "parked");
    let own = [("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")];
    bed.call_with("POST", PATH, &own, r#"{"message": {"order": 9}}"#).await.is(202);
    // Names of hosts are the same in whatever case.
    let own = [("host", "Box.Example:8080"), ("origin", "http://box.example:8080")];
    bed.call_with("POST", PATH, &own, r#"{"message": {"order": 9}}"#).await.is(202);
    let read = bed.call_with("GET", &format!("/api/jobs/{job}"), &[("origin", "https://evil.example")], "").await;
    read.is(200);
    assert!(read.headers.keys().all(|name| !name.as_str().starts_with("access-control-")), "{:?}", read.headers);
}

/// Whichever question of the store fails: what was refused was not done, and what was done is not refused.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_refused_has_made_no_job() {
    let mut accepted = 0;
    for reads in 0..12 {
        let clock = ManualClock::at(moment("2026-11-21T09:00:00Z"));
        let memory = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        let store = Arc::new(FaultyStore::new(memory, FaultPlan::none()));
        let bed = Bed::on(clock, Arc::clone(&store) as Arc<dyn Store>, |state| state);
        bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
        let faults = std::iter::repeat_n(None, reads).chain([Some(Fault::Before)]);
        store.replan(FaultPlan::none().script(Op::Read, faults));
        let sent = bed.call("POST", &format!("{PATH}?wait=1s"), r#"{"message": {"order": 1}}"#).await;
        store.replan(FaultPlan::none());
        let made = bed.get("/api/jobs").await.is(200)["jobs"].as_array().unwrap().len();
        match sent.status.as_u16() {
            202 => accepted += 1,
            _ => drop(sent.problem(503, "store_unavailable")),
        }
        assert_eq!(made, usize::from(sent.status == 202), "{reads}: {}", sent.text);
    }
    assert!((1..12).contains(&accepted), "{accepted}");
}
