use std::sync::Arc;

use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_server::ReadyCheck;
use aetheris_store::faulty::{Fault, FaultKind, FaultPlan, FaultyStore, Op};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::ManualClock;
use aetheris_store::{ErrorKind, FailedWrite, FileHealth, Health, Purpose, Store, WriterHealth};

use crate::bed::{APPROVE, Bed, PAY};

fn faulty(plan: FaultPlan) -> Bed {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    Bed::on(clock, Arc::new(FaultyStore::new(memory, plan)), |state| state)
}

#[tokio::test]
async fn the_process_answers_and_says_what_is_not_ready() {
    let bed = Bed::new();
    assert_eq!(bed.get("/livez").await.is(200)["live"], true);
    let ready = bed.get("/readyz").await;
    assert_eq!(ready.is(200)["ready"], true);
    let named: Vec<_> = ready.body["checks"].as_array().unwrap().iter().map(|check| &check["name"]).collect();
    assert_eq!(named, ["store", "writer", "writes", "claims"]);
    let status = bed.store.status().await.unwrap();
    assert_eq!(ready.body["checks"][0]["detail"], format!("{}: {}", status.backend, status.durability));

    let clock = ManualClock::default();
    let check = |name: &str, found: Result<&'static str, &'static str>| ReadyCheck {
        name: name.to_owned(),
        look: Arc::new(move || found.map(str::to_owned).map_err(str::to_owned)),
    };
    let bed = Bed::on(clock.clone(), Arc::new(MemoryStore::new(Arc::new(clock))), |mut state| {
        state.ready = vec![check("worker", Ok("16 slots")), check("scheduler", Err("it has not swept for 40s"))];
        state
    });
    let ready = bed.get("/readyz").await;
    assert_eq!(ready.is(503)["ready"], false);
    let not: Vec<_> = ready.body["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
    assert_eq!((not.len(), not[0]["name"].as_str()), (1, Some("scheduler")));

    let bed = faulty(FaultPlan::none().script(Op::Read, [Some(Fault::Before)]));
    let ready = bed.get("/readyz").await;
    assert_eq!(ready.is(503)["checks"][0]["ok"], false);
    assert_eq!(bed.get("/readyz").await.is(200)["ready"], true);
    bed.state.closing.cancel();
    assert_eq!(bed.get("/readyz").await.is(503)["ready"], false);
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_is_503_everywhere() {
    let job = "/api/jobs/job_00000000000000000000000000";
    let reads = ["/api/agents", "/api/agents/a", "/api/jobs", job, "/api/waits", "/api/in-doubt"];
    let more = ["/events", "/events/stream", "/replay", "/verify", "/trace"].map(|call| format!("{job}{call}"));
    for path in reads.iter().map(ToString::to_string).chain(more) {
        let bed = faulty(FaultPlan::none().script(Op::Read, [Some(Fault::Before)]));
        let reply = bed.get(&path).await;
        reply.problem(503, "store_unavailable");
        assert_eq!(reply.headers["retry-after"], "1");
    }
    let bed = faulty(FaultPlan::none().script(Op::Agent, [Some(Fault::Before), None, Some(Fault::Before)]));
    bed.call("PUT", "/api/agents/approve", APPROVE).await.problem(503, "store_unavailable");
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    bed.call("DELETE", "/api/agents/approve", "").await.problem(503, "store_unavailable");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_a_write_is_settled_before_anything_is_said() {
    let plan = FaultPlan::none()
        .script(Op::Commit(Purpose::Create), [Some(Fault::After), Some(Fault::Late(Span::from_millis(5)))]);
    let bed = faulty(plan);
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    for _ in 0..2 {
        bed.send("approve", "1").await;
    }
    assert_eq!(bed.get("/api/jobs").await.is(200)["jobs"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_too() {
    let bed = Bed::new();
    for path in ["/nothing", "/api", "/api/jobs/x/y/z", "/api/job"] {
        assert!(bed.get(path).await.problem(404, "not_found").contains(path));
    }
    for (method, path) in [("POST", "/api/jobs"), ("PATCH", "/api/agents/a"), ("GET", "/api/agents/a/message")] {
        let reply = bed.call(method, path, "").await;
        reply.problem(405, "method_not_allowed");
        assert!(!reply.headers["allow"].is_empty());
    }
    let job = "/api/jobs/job_00000000000000000000000000";
    for call in ["retry", "replan", "fork"] {
        let reply = bed.call("POST", &format!("{job}/{call}"), "").await;
        assert!(reply.problem(501, "not_supported_yet").contains(call));
    }
    bed.get("/metrics").await.problem(501, "not_supported_yet");
}

#[tokio::test]
async fn the_front_page_names_the_product() {
    let bed = Bed::new();
    let page = bed.get("/").await;
    assert!(page.text.contains("Aetheris") && page.text.contains(env!("CARGO_PKG_VERSION")));
    assert!(page.text.contains("/api/openapi.json"));
}

#[tokio::test]
async fn each_part_of_the_store_that_does_not_work_is_named() {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let store = Arc::new(FaultyStore::new(memory, FaultPlan::none()));
    let bed = Bed::on(clock, Arc::clone(&store) as Arc<dyn Store>, |state| state);
    let failed = || {
        let error = "the disk is full".to_owned();
        Some(FailedWrite { age: Span::from_secs(7), error, kind: ErrorKind::Full })
    };
    let good = Health::good;
    let ill = [
        ("writer", "no answer within 2s", Health { writer: WriterHealth::Silent(Span::from_secs(2)), ..good() }),
        ("writer", "it has ended", Health { writer: WriterHealth::Gone, ..good() }),
        ("writes", "failed 7s ago: the disk is full", Health { last_write: failed(), ..good() }),
        ("claims", "failed 7s ago: the disk is full", Health { last_claim: failed(), ..good() }),
        ("file", "was removed", Health { file: Some(FileHealth::Gone), ..good() }),
        ("file", "another file", Health { file: Some(FileHealth::Replaced), ..good() }),
        ("file", "no permission", Health { file: Some(FileHealth::Unknown("no permission".to_owned())), ..good() }),
    ];
    for (name, detail, health) in ill {
        store.report(health);
        let ready = bed.get("/readyz").await;
        assert_eq!(ready.is(503)["ready"], false);
        let not: Vec<_> =
            ready.body["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
        assert_eq!((not.len(), not[0]["name"].as_str()), (1, Some(name)), "{}", ready.text);
        assert!(not[0]["detail"].as_str().unwrap().contains(detail), "{}", ready.text);
        // Whether the process lives is another question, and asks no store.
        bed.get("/livez").await.is(200);
    }
    store.report(Health { file: Some(FileHealth::AsOpened), clock_ahead: Span::from_secs(90), ..good() });
    let ready = bed.get("/readyz").await;
    assert_eq!(ready.is(200)["ready"], true);
    assert!(ready.body["degraded"][0].as_str().unwrap().starts_with("clock_ahead: "), "{}", ready.text);
    for ahead in [Span::ZERO, limits::CLOCK_AHEAD_TOLD] {
        store.report(Health { clock_ahead: ahead, ..good() });
        assert_eq!(bed.get("/readyz").await.is(200).get("degraded"), None, "{ahead}");
    }
}

/// The question of this place fails, counted from nothing.
fn nth_fails(nth: usize) -> FaultPlan {
    FaultPlan::none().script(Op::Read, std::iter::repeat_n(None, nth).chain([Some(Fault::Before)]))
}

/// An error that is taken for "there is none" would leave out, or tell otherwise, what the store has.
#[tokio::test]
async fn whichever_question_of_the_store_fails_an_answer_is_whole_or_none() {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = MemoryStore::new(Arc::new(clock.clone()));
    let store = Arc::new(FaultyStore::new(Arc::new(memory), FaultPlan::none()));
    let fresh = || Bed::on(clock.clone(), Arc::clone(&store) as Arc<dyn Store>, |state| state);
    let bed = fresh();
    for (agent, file) in [("approve", APPROVE), ("pay", PAY)] {
        bed.call("PUT", &format!("/api/agents/{agent}"), file).await.is(201);
    }
    let session = r#"{"message": {"order": 7}, "session_id": "s"}"#;
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let sent = bed.call("POST", "/api/agents/approve/message", session).await;
        jobs.push(sent.is(202)["job_id"].as_str().unwrap().to_owned());
    }
    let kept = r#"{"correlation_key": "ok-7", "payload": 1, "wait_type": "human"}"#;
    bed.call("POST", &format!("/api/jobs/{}/signal", jobs[0]), kept).await.is(202);
    bed.call("POST", &format!("/api/jobs/{}/pause", jobs[0]), "").await.is(202);
    jobs.push(bed.waiting().await);
    jobs.push(bed.doubted().await.0);
    let (ended, key) = bed.doubted().await;
    bed.call("POST", &format!("/api/jobs/{ended}/cancel"), "").await.is(202);
    let yes = r#"{"outcome": "happened", "note": "seen", "permit": 1, "result": 7}"#;
    bed.call("POST", &format!("/api/jobs/{ended}/in-doubt/{key}"), yes).await.is(202);
    let called = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    hand.called("send", 8.into()).await;
    hand.complete("send").await;
    jobs.extend([ended, called, bed.send("pay", "6").await]);
    let mut paths: Vec<String> = ["agents", "agents/pay", "jobs", "waits", "in-doubt", "in-doubt?unresolved=true"]
        .map(|list| format!("/api/{list}"))
        .into();
    let of_job = ["", "?wait=1ms", "/why", "/trace", "/steps?render=true", "/events", "/replay", "/verify"];
    paths.extend(jobs.iter().flat_map(|job| of_job.map(|what| format!("/api/jobs/{job}{what}"))));
    for path in paths {
        let bed = fresh();
        // Whether the question of this place was asked at all, and the answer where it failed.
        let told = async |nth: usize| {
            let before = store.happened(FaultKind::Before);
            store.replan(nth_fails(nth));
            let told = bed.get(&path).await;
            store.replan(FaultPlan::none());
            (store.happened(FaultKind::Before) > before, told)
        };
        let mut asked = 0;
        let whole = loop {
            let (failed, reply) = told(asked).await;
            if !failed {
                break reply;
            }
            reply.problem(503, "store_unavailable");
            asked += 1;
        };
        whole.is(200);
        assert!(asked > 0, "{path} asks nothing");
        // What was remembered meanwhile is not asked for again, and what is asked behind it has another place.
        for nth in 0..asked {
            match told(nth).await {
                (true, reply) => drop(reply.problem(503, "store_unavailable")),
                (false, reply) => assert_eq!(reply.text, whole.text, "{path}"),
            }
        }
    }
}

/// Nor is a store that cannot be asked about itself ready.
#[tokio::test]
async fn whichever_question_of_readiness_fails_the_server_is_not_ready() {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = MemoryStore::new(Arc::new(clock.clone()));
    let store = Arc::new(FaultyStore::new(Arc::new(memory), FaultPlan::none()));
    let bed = Bed::on(clock, Arc::clone(&store) as Arc<dyn Store>, |state| state);
    for failed in 0..2 {
        store.replan(nth_fails(failed));
        let ready = bed.get("/readyz").await;
        let not = ready.is(503)["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false).count();
        assert_eq!((&ready.body["ready"], not), (&false.into(), 1), "{}", ready.text);
    }
}
