use crate::bed::{APPROVE, Bed};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn what_is_too_large_is_413_whatever_it_is() {
    let bed = Bed::with_agents().await;
    let message = |bytes: usize| format!(r#"{{"message": "{}"}}"#, "x".repeat(bytes));
    let path = "/api/agents/approve/message";
    bed.call("POST", path, message(MIB - 2)).await.is(202);
    bed.call("POST", path, message(MIB)).await.problem(413, "payload_too_large");
    bed.call("POST", path, message(2 * MIB)).await.problem(413, "payload_too_large");
    let file = format!("{APPROVE}\n# {}", "x".repeat(MIB));
    bed.call("PUT", "/api/agents/approve", file).await.problem(413, "payload_too_large");
    let job = bed.waiting().await;
    let signal = format!(r#"{{"correlation_key": "ok-7", "payload": "{}"}}"#, "x".repeat(MIB));
    bed.call("POST", &format!("/api/jobs/{job}/signal"), signal).await.problem(413, "payload_too_large");
    let (job, key) = bed.doubted().await;
    let answer = format!(r#"{{"outcome": "happened", "result": "{}"}}"#, "x".repeat(MIB));
    bed.call("POST", &format!("/api/jobs/{job}/in-doubt/{key}"), answer).await.problem(413, "payload_too_large");
}

/// `1e20` is four bytes as it is sent and 21 as it is stored.
#[tokio::test]
async fn what_is_too_large_in_canonical_form_is_413_too() {
    let bed = Bed::with_agents().await;
    let numbers = format!("[{}]", vec!["1e20"; 150_000].join(","));
    let message = format!(r#"{{"message": {numbers}}}"#);
    let said = bed.call("POST", "/api/agents/approve/message", message).await;
    assert!(said.problem(413, "payload_too_large").contains("canonical form"));
    let job = bed.waiting().await;
    let signal = format!(r#"{{"correlation_key": "ok-7", "payload": {numbers}}}"#);
    bed.call("POST", &format!("/api/jobs/{job}/signal"), signal).await.problem(413, "payload_too_large");
    let (job, key) = bed.doubted().await;
    let answer = format!(r#"{{"outcome": "happened", "note": "", "permit": 1, "result": {numbers}}}"#);
    bed.call("POST", &format!("/api/jobs/{job}/in-doubt/{key}"), answer).await.problem(413, "payload_too_large");
}

#[tokio::test]
async fn a_body_of_unknown_length_is_bounded_too() {
    let bed = Bed::with_agents().await;
    let chunks = (0..3_000).map(|_| Ok::<_, std::convert::Infallible>(vec![b' '; 1_024]));
    let body = axum::body::Body::from_stream(futures_util::stream::iter(chunks));
    bed.call("POST", "/api/agents/approve/message", body).await.problem(413, "payload_too_large");
}

#[tokio::test]
async fn a_page_of_large_events_is_shorter_and_goes_on() {
    let bed = Bed::new();
    let nodes: String = (0..40).map(|n| format!("    - {{ id: n{n}, kind: transform, output: 1 }}\n")).collect();
    bed.call("PUT", "/api/agents/large", format!("agent: large\nplan:\n  nodes:\n{nodes}")).await.is(201);
    let job = bed.send("large", "1").await;
    let hand = bed.claim().await;
    for n in 0..40 {
        hand.run(&format!("n{n}"), "x".repeat(300 * 1024).into()).await;
    }
    let (mut after, mut seen, mut pages) = (0, Vec::new(), Vec::new());
    loop {
        let page = bed.get(&format!("/api/jobs/{job}/events?after={after}&limit=1000")).await;
        let events = page.is(200)["events"].as_array().unwrap();
        pages.push(events.len());
        seen.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
        let Some(next) = page.body["next_after"].as_u64() else {
            break;
        };
        after = next;
    }
    // Four of 300 KiB are over one MiB.
    assert_eq!(pages[0], 11);
    assert!(pages.iter().all(|events| *events <= 11), "{pages:?}");
    assert_eq!(seen, (1..=83).collect::<Vec<_>>());
}

#[tokio::test]
async fn absurd_pages_and_cursors_are_harmless() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "1").await;
    bed.get("/api/jobs?limit=9223372036854775807").await.is(200);
    bed.get(&format!("/api/jobs/{job}/events?limit=4000000000&after=0")).await.is(200);
    let none = bed.get(&format!("/api/jobs/{job}/events?after=9223372036854775807")).await;
    assert_eq!(none.is(200)["events"].as_array().unwrap().len(), 0);
    for query in [
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=9223372036854775808",
        "limit=99999999999999999999",
        "cursor=abc",
        "limit=1&limit=2",
    ] {
        bed.get(&format!("/api/jobs?{query}")).await.problem(400, "invalid_request");
    }
    for query in ["limit=0", "after=-1", "after=x", "after=9223372036854775808", "before=1"] {
        bed.get(&format!("/api/jobs/{job}/events?{query}")).await.problem(400, "invalid_request");
    }
}
