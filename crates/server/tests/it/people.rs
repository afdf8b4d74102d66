//! What waits for someone.

use aetheris_core::time::Span;

use crate::bed::{Bed, moment};

#[tokio::test]
async fn waits_are_listed_with_key_reason_age_and_deadline() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    bed.clock.advance(Span::from_micros(90_500_000));
    let list = bed.get("/api/waits?wait_type=human").await;
    let waits = list.is(200)["waits"].as_array().unwrap();
    assert_eq!(waits.len(), 1);
    let wait = &waits[0];
    assert_eq!((wait["job_id"].as_str(), wait["agent"].as_str()), (Some(job.as_str()), Some("approve")));
    assert_eq!((wait["correlation_key"].as_str(), wait["reason"].as_str()), (Some("ok-7"), Some("Please look")));
    assert_eq!((wait["age"].as_str(), wait["wait_type"].as_str()), (Some("90s"), Some("human")));
    assert_eq!(wait["deadline"].as_str().map(moment), Some(moment("2026-11-22T09:00:00Z")));
    assert_eq!(bed.get("/api/waits").await.is(200)["waits"].as_array().unwrap().len(), 1);
    assert_eq!(bed.get("/api/waits?wait_type=webhook").await.is(200)["waits"].as_array().unwrap().len(), 0);
    bed.get("/api/waits?wait_type=owl").await.problem(400, "invalid_request");
}

#[tokio::test]
async fn waits_come_in_pages() {
    let bed = Bed::with_agents().await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(bed.waiting().await);
    }
    let first = bed.get("/api/waits?limit=2").await;
    let cursor = first.is(200)["next_cursor"].as_str().unwrap();
    let second = bed.get(&format!("/api/waits?limit=2&cursor={cursor}")).await;
    assert!(second.is(200)["next_cursor"].is_null());
    let of = |list: &serde_json::Value| {
        let waits = list["waits"].as_array().unwrap().iter();
        waits.map(|wait| wait["job_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    jobs.reverse();
    assert_eq!([of(&first.body), of(&second.body)].concat(), jobs);
}

#[tokio::test]
async fn calls_in_doubt_are_listed_with_all_that_an_operator_needs() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    let list = bed.get("/api/in-doubt").await;
    let call = &list.is(200)["invocations"][0];
    let text = |name: &str| call[name].as_str().unwrap().to_owned();
    assert_eq!((text("invocation"), text("job_id")), (key, job));
    assert_eq!((text("agent"), text("node_id"), text("tool")), ("pay".into(), "send".into(), "send".into()));
    assert_eq!(
        (text("effect"), text("status"), text("policy")),
        ("at_most_once".into(), "in_doubt".into(), "human".into())
    );
    assert_eq!(text("reason"), "the answer was lost");
    assert_eq!((moment(&text("since")), call["permit"].as_u64()), (moment("2026-11-21T09:00:00Z"), Some(1)));
    assert_eq!(moment(&text("deadline")), moment("2026-11-21T09:01:00Z"));
    assert_eq!((call["waiting"]["doubt"].as_bool(), text("job_status")), (Some(true), "parked".into()));
    let waits = bed.get("/api/waits").await;
    assert_eq!(waits.is(200)["waits"][0]["doubt"], true);
}
