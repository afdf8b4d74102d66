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
    bed.get("/api/waits?wait_type=").await.problem(400, "invalid_request");
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

#[tokio::test]
async fn calls_in_doubt_come_in_pages() {
    let bed = Bed::with_agents().await;
    // All at one moment: their order is that of their keys.
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.push(bed.doubted().await.1);
    }
    expected.sort_unstable();
    let (mut found, mut query) = (Vec::new(), String::from("limit=2"));
    for left in [3, 1, 0] {
        let page = bed.get(&format!("/api/in-doubt?{query}")).await;
        let calls = page.is(200)["invocations"].as_array().unwrap();
        found.extend(calls.iter().map(|call| call["invocation"].as_str().unwrap().to_owned()));
        assert_eq!(found.len(), 5 - left);
        match page.body["next_cursor"].as_str() {
            Some(cursor) => query = format!("limit=2&cursor={cursor}"),
            None => assert_eq!((left, &page.body["next_cursor"]), (0, &serde_json::Value::Null)),
        }
    }
    assert_eq!(found, expected);
    assert!(bed.get("/api/in-doubt?limit=5").await.is(200)["next_cursor"].is_null());
    let cursor = query.strip_prefix("limit=2&cursor=").unwrap();
    let shorter = &cursor[1..];
    for wrong in ["", "x", "job_01JD0000000000000000000001", shorter, "8000000000000000.key_01JD0000000000000000000009"]
    {
        let refused = bed.get(&format!("/api/in-doubt?cursor={wrong}")).await;
        assert!(refused.problem(400, "invalid_request").contains("`cursor`"), "{}", refused.text);
    }
}
