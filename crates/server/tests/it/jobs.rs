use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_store::Store;
use aetheris_store::faulty::{Fault, FaultPlan, FaultyStore, Op};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::ManualClock;
use tokio::sync::watch;

use crate::bed::{APPROVE, Bed, moment};
use crate::between::Between;

#[tokio::test]
async fn a_job_is_shown_through_its_life() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", r#"{"order": 7}"#).await;
    let path = format!("/api/jobs/{job}");
    let pending = bed.get(&path).await;
    let view = pending.is(200);
    for absent in ["worker", "attempt_id", "lease_until", "error", "waiting", "result", "session_id", "not_before"] {
        assert!(view.as_object().unwrap().get(absent).is_some_and(serde_json::Value::is_null), "{absent}");
    }
    assert_eq!((view["id"].as_str(), view["epoch"].as_u64()), (Some(job.as_str()), Some(0)));
    assert_eq!(
        view["steps"]["ask"],
        serde_json::json!({"attempt": 0, "finished_at": null, "started_at": null, "status": "pending"})
    );

    let hand = bed.claim().await;
    let running = bed.get(&path).await;
    assert_eq!((running.is(200)["status"].as_str(), running.body["worker"].as_str()), (Some("running"), Some("w1")));
    assert!(running.body["attempt_id"].as_str().unwrap().starts_with("att_"));
    assert_eq!(running.body["lease_until"].as_str().map(moment), Some(moment("2026-11-21T09:00:30Z")));

    hand.wait("ask", "ok-7").await;
    let parked = bed.get(&path).await;
    assert_eq!(parked.is(200)["status"], "parked");
    let waiting = &parked.body["waiting"];
    assert_eq!((waiting["wait_type"].as_str(), waiting["correlation_key"].as_str()), (Some("human"), Some("ok-7")));
    assert_eq!((waiting["node_id"].as_str(), waiting["reason"].as_str()), (Some("ask"), Some("Please look")));
    assert_eq!(waiting["deadline"].as_str().map(moment), Some(moment("2026-11-22T09:00:00Z")));
    assert!(parked.body["worker"].is_null());

    let signal = r#"{"correlation_key": "ok-7", "payload": {"yes": true}}"#;
    bed.call("POST", &format!("{path}/signal"), signal).await.is(200);
    let hand = bed.claim().await;
    hand.finish("ask", None).await;
    hand.run("tell", serde_json::json!({"said": {"yes": true}})).await;
    hand.complete("tell").await;
    let done = bed.get(&path).await;
    assert_eq!(done.is(200)["status"], "completed");
    assert_eq!(done.body["result"], serde_json::json!({"said": {"yes": true}}));
    assert_eq!(done.body["steps"]["ask"]["attempt"], 1);
    assert_eq!(done.body["steps"]["tell"]["status"], "completed");
    assert_eq!(done.body["epoch"], 2);
    assert_eq!(done.body["usage"], serde_json::json!({"tokens": 0, "tool_calls": 0}));
}

#[tokio::test]
async fn the_answer_of_a_called_tool_is_the_result() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    hand.called("send", serde_json::json!({"receipt": 9})).await;
    hand.complete("send").await;
    let reply = bed.get(&format!("/api/jobs/{job}")).await;
    assert_eq!(reply.is(200)["result"], serde_json::json!({"receipt": 9}));
    assert_eq!(reply.body["usage"]["tool_calls"], 1);
}

#[tokio::test]
async fn what_is_no_job_is_not_found() {
    let bed = Bed::with_agents().await;
    for job in ["job_00000000000000000000000000", "nonsense", "job_x", "%20"] {
        for call in ["", "/events", "/events/stream", "/replay", "/verify", "/trace", "/steps", "/why"] {
            bed.get(&format!("/api/jobs/{job}{call}")).await.problem(404, "job_not_found");
        }
        bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.problem(404, "job_not_found");
    }
    bed.get("/api/jobs/job_00000000000000000000000000?wait=1s").await.problem(404, "job_not_found");
    bed.get("/api/jobs/%ff").await.problem(400, "invalid_request");
}

#[tokio::test]
async fn jobs_are_listed_newest_first_page_by_page() {
    let bed = Bed::with_agents().await;
    let mut sent = Vec::new();
    for n in 0..5 {
        sent.push(bed.send("approve", &n.to_string()).await);
    }
    sent.reverse();
    // Read as absent, the empty cursor of a careless client would begin the list again for ever.
    bed.get("/api/jobs?cursor=").await.problem(400, "invalid_request");
    let (mut place, mut found) = (String::new(), Vec::new());
    loop {
        let page = bed.get(&format!("/api/jobs?limit=2{place}")).await;
        let jobs = page.is(200)["jobs"].as_array().unwrap();
        assert!(jobs.len() <= 2);
        found.extend(jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        assert!(jobs.iter().all(|job| job.get("steps").is_none() && job.get("message").is_none()));
        match page.body["next_cursor"].as_str() {
            Some(next) => place = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, sent);
}

#[tokio::test]
async fn jobs_are_found_by_what_they_are() {
    let bed = Bed::with_agents().await;
    let body = r#"{"message": 1, "session_id": "s 1", "labels": {"team": "a:b", "n": "2"}}"#;
    bed.call("POST", "/api/agents/approve/message", body).await.is(202);
    let parked = bed.send("approve", r#"{"order": 7}"#).await;
    bed.call("POST", &format!("/api/jobs/{parked}/cancel"), "").await.is(202);
    bed.send("pay", "1").await;
    let count =
        async |query: &str| bed.get(&format!("/api/jobs?{query}")).await.is(200)["jobs"].as_array().unwrap().len();
    assert_eq!(count("").await, 3);
    assert_eq!(count("agent=pay").await, 1);
    assert_eq!(count("status=pending").await, 2);
    assert_eq!(count("status=pending,cancelled").await, 3);
    // Each that is named counts, in whatever order and however they are named.
    for (query, jobs) in [
        ("status=completed&status=cancelled", 1),
        ("status=cancelled&status=completed", 1),
        ("status=pending&status=cancelled", 3),
        ("status=cancelled&status=pending", 3),
        ("status=cancelled&agent=approve&status=pending", 2),
        ("status=cancelled,completed&status=failed,running&status=paused", 1),
        ("status=cancelled&status=", 1),
        ("status=&status=cancelled", 1),
    ] {
        assert_eq!(count(query).await, jobs, "{query}");
    }
    assert_eq!(count("session_id=s%201").await, 1);
    // A variable that is not set would list everything.
    for query in ["session_id=", "agent="] {
        bed.get(&format!("/api/jobs?{query}")).await.problem(400, "invalid_request");
    }
    let limit = bed.get("/api/jobs?limit=0").await;
    assert!(limit.problem(400, "invalid_request").ends_with("expected a whole number of at least 1"), "{}", limit.text);
    assert_eq!(count("label=team:a:b").await, 1);
    assert_eq!(count("label=team%3Da:b").await, 1);
    assert_eq!(count("label=n=2&status=pending&agent=approve").await, 1);
    assert_eq!(count("label=n:3").await, 0);
    let wrong = bed.get("/api/jobs?status=asleep").await;
    assert!(wrong.problem(400, "invalid_request").contains("pending, running"));
    for query in
        ["label=team", "label=:x", "state=pending", "status=asleep&status=pending", "status=pending&status=asleep"]
    {
        bed.get(&format!("/api/jobs?{query}")).await.problem(400, "invalid_request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_answers_at_the_end_or_when_the_time_is_over() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let path = format!("/api/jobs/{job}?wait=20s");
    let began = tokio::time::Instant::now();
    assert_eq!(bed.get(&path).await.is(200)["status"], "pending");
    assert_eq!(began.elapsed().as_secs(), 20);

    let cancel = format!("/api/jobs/{job}/cancel");
    let began = tokio::time::Instant::now();
    let (reply, _) = tokio::join!(bed.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        bed.call("POST", &cancel, "").await.is(202);
    });
    assert_eq!(reply.is(200)["status"], "cancelled");
    assert!(began.elapsed().as_millis() < 30, "a hint wakes it");
    let ended = bed.get(&path).await;
    assert_eq!(ended.is(200)["status"], "cancelled");
}

/// One that found the server draining asks it again at once when it is answered, so its answer is not at once.
#[tokio::test(start_paused = true)]
async fn a_poll_of_a_server_that_drains_is_answered_soon_and_not_at_once() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    bed.state.closing.cancel();
    for (wait, answered) in [("60s", limits::DRAIN_POLL_MAX), ("100ms", Span::from_millis(100))] {
        let began = tokio::time::Instant::now();
        assert_eq!(bed.get(&format!("/api/jobs/{job}?wait={wait}")).await.is(200)["status"], "pending");
        assert_eq!(Span::from_std(began.elapsed()).rounded(), answered, "{wait}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_longer_than_its_bound() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let began = tokio::time::Instant::now();
    bed.get(&format!("/api/jobs/{job}?wait=24h")).await.is(200);
    assert_eq!(began.elapsed().as_secs(), 60);
}

/// What is large is left out of what is kept of a job, and is in the answer all the same.
#[tokio::test]
async fn large_values_are_shown_whole() {
    let large = |letter: &str| serde_json::Value::from(letter.repeat(100_000));
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", &format!(r#"{{"order": 7, "text": {}}}"#, large("m"))).await;
    let hand = bed.claim().await;
    hand.wait("ask", "ok-7").await;
    let path = format!("/api/jobs/{job}");
    assert_eq!(bed.get(&path).await.is(200)["message"]["text"], large("m"));
    let signal = format!(r#"{{"correlation_key": "ok-7", "payload": {}}}"#, large("p"));
    bed.call("POST", &format!("{path}/signal"), signal).await.is(200);
    bed.get(&path).await.is(200);
    let hand = bed.claim().await;
    hand.finish("ask", None).await;
    hand.run("tell", large("t")).await;
    let running = bed.get(&path).await;
    assert_eq!(
        (running.is(200)["status"].as_str(), &running.body["result"]),
        (Some("running"), &serde_json::Value::Null)
    );
    // The answer of a wait is its signal's payload.
    hand.complete("ask").await;
    for _ in 0..2 {
        let done = bed.get(&path).await;
        assert_eq!(done.is(200)["result"], large("p"));
        assert_eq!(done.body["message"]["text"], large("m"));
    }

    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    hand.called("send", large("e")).await;
    hand.complete("send").await;
    assert_eq!(bed.get(&format!("/api/jobs/{job}")).await.is(200)["result"], large("e"));
}

#[tokio::test]
async fn all_that_a_job_waits_for_is_listed() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let waiting = bed.get(&format!("/api/jobs/{job}")).await;
    assert_eq!(waiting.is(200)["waits"], serde_json::json!([waiting.body["waiting"]]));
    let none = bed.send("pay", "1").await;
    assert_eq!(bed.get(&format!("/api/jobs/{none}")).await.is(200)["waits"], serde_json::json!([]));
    assert!(bed.get("/api/jobs").await.is(200)["jobs"][0].get("waits").is_none());
}

/// Two pages of steps are made at once; those that wait for one of them hold no place that others need.
#[tokio::test]
async fn pages_of_steps_that_wait_for_each_other_keep_nobody_from_a_list() {
    let bed = Bed::with_agents().await;
    let path = format!("/api/jobs/{}/steps", bed.send("approve", "1").await);
    // The pages that are made stand still until this test has seen what it is about.
    let (go_on, held) = watch::channel(());
    let making = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&making);
    let store = Between::then(Arc::clone(&bed.store), move |name| {
        let (mut held, made) = ((name == "glance").then(|| held.clone())?, Arc::clone(&made));
        Some(Box::pin(async move {
            made.fetch_add(1, Ordering::SeqCst);
            // Its other end is gone.
            held.changed().await.unwrap_err();
        }))
    });
    let bed = Bed::on(bed.clock.clone(), Arc::new(store), |state| state);
    let pages = (0..limits::READS_AT_ONCE).map(|_| Box::pin(bed.get(&path)));
    let first_page = futures_util::future::select_all(pages);
    let list = async {
        while making.load(Ordering::SeqCst) < limits::STEP_PAGES_AT_ONCE_MAX {
            tokio::task::yield_now().await;
        }
        bed.get("/api/jobs").await.is(200);
    };
    tokio::select! {
        _ = first_page => panic!("the list waited for a page of steps"),
        () = list => {}
    }
    drop(go_on);
}

#[tokio::test(start_paused = true)]
async fn however_many_ask_for_one_job_each_waits_for_a_place_once() {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = MemoryStore::new(Arc::new(clock.clone()));
    let store = Arc::new(FaultyStore::new(Arc::new(memory), FaultPlan::none()));
    let bed = Bed::on(clock, Arc::clone(&store) as Arc<dyn Store>, |state| state);
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    let mut paths = Vec::new();
    for n in 0..=limits::READS_AT_ONCE {
        paths.push(format!("/api/jobs/{}", bed.send("approve", &n.to_string()).await));
    }
    let one = paths.pop().unwrap();
    let slow = std::iter::repeat_n(Some(Fault::Slow(Span::from_secs(30))), 100);
    store.replan(FaultPlan::none().script(Op::Read, slow));
    let others = futures_util::future::join_all(paths.iter().map(|path| bed.get(path)));
    let asked = async {
        // The others have their places and read.
        tokio::time::sleep(Duration::from_secs(31)).await;
        store.replan(FaultPlan::none());
        let began = tokio::time::Instant::now();
        for reply in futures_util::future::join_all((0..5).map(|_| bed.get(&one))).await {
            reply.problem(503, "overloaded");
        }
        assert_eq!(began.elapsed().as_secs(), 10);
    };
    let (others, ()) = tokio::join!(others, asked);
    for reply in others {
        reply.is(200);
    }
    bed.get(&one).await.is(200);
}
