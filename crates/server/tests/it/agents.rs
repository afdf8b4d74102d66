use std::sync::{Arc, mpsc};
use std::time::Duration;

use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_server::AgentProblem;
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::ManualClock;
use axum::body::Body;
use axum::http::Request;
use futures_util::FutureExt;
use serde_json::json;

use crate::bed::{APPROVE, Bed};

#[tokio::test]
async fn an_agent_is_put_read_listed_and_deleted() {
    let bed = Bed::new();
    let first = bed.call("PUT", "/api/agents/approve", APPROVE).await;
    let put = first.is(201);
    assert_eq!((put["agent"].as_str(), put["version"].as_str()), (Some("approve"), Some("3")));
    assert_eq!(put["hash"].as_str().unwrap().len(), 64);
    let again = bed.call("PUT", "/api/agents/approve", APPROVE).await;
    assert_eq!(again.is(200), put);

    let one = bed.get("/api/agents/approve").await;
    let view = one.is(200);
    assert_eq!((view["source"].as_str(), view["nodes"].as_u64()), (Some(APPROVE), Some(2)));
    let list = bed.get("/api/agents").await;
    assert_eq!(list.is(200)["agents"][0]["agent"], "approve");
    assert!(list.body["agents"][0].get("source").is_none());

    let gone = bed.call("DELETE", "/api/agents/approve", "").await;
    assert_eq!((gone.status.as_u16(), gone.text.as_str()), (204, ""));
    bed.call("DELETE", "/api/agents/approve", "").await.problem(404, "agent_not_found");
    let said = bed.get("/api/agents/approve").await;
    assert!(said.problem(404, "agent_not_found").contains("aetheris agent put"));
}

#[tokio::test]
async fn a_file_with_mistakes_is_refused_with_all_of_them() {
    let bed = Bed::new();
    let file = "agent: a\ncolour: red\nplan:\n  nodes:\n    - { id: x, kind: transform, output: 1, needs: [y] }\n";
    let reply = bed.call("PUT", "/api/agents/a", file).await;
    reply.problem(422, "invalid_agent");
    let errors = reply.body["errors"].as_array().unwrap();
    let found: Vec<_> = errors.iter().map(|e| (e["line"].as_u64().unwrap(), e["code"].as_str().unwrap())).collect();
    assert_eq!(found, [(2, "unknown_key"), (5, "unknown_need")]);
    assert_eq!(reply.body["detail"], "the file has 2 mistakes");
    let one = bed.call("PUT", "/api/agents/a", file.replace("colour: red\n", "")).await;
    assert_eq!(one.problem(422, "invalid_agent"), "the file has 1 mistake");

    let reply = bed.call("PUT", "/api/agents/other", APPROVE).await;
    reply.problem(422, "invalid_agent");
    let error = &reply.body["errors"][0];
    assert_eq!((&error["code"], &error["path"], &error["line"]), (&"name_mismatch".into(), &"agent".into(), &2.into()));
    bed.call("PUT", "/api/agents/other", vec![0xff, 0xfe]).await.problem(422, "invalid_agent");
    bed.call("PUT", "/api/agents/other", "").await.problem(422, "invalid_agent");
    bed.get("/api/agents/other").await.problem(404, "agent_not_found");
}

#[tokio::test]
async fn what_this_server_cannot_execute_is_refused() {
    let clock = ManualClock::default();
    let bed = Bed::on(clock.clone(), Arc::new(MemoryStore::new(Arc::new(clock))), |mut state| {
        state.check_agent = Arc::new(|agent| {
            let message = format!("{}: the function `x` is not registered", agent.agent);
            vec![AgentProblem { message, pointers: vec!["/plan/nodes/1/model".to_owned(), "/nothing".to_owned()] }]
        });
        state
    });
    let reply = bed.call("PUT", "/api/agents/approve", APPROVE).await;
    reply.problem(422, "invalid_agent");
    let error = &reply.body["errors"][0];
    assert_eq!(error["message"], "approve: the function `x` is not registered");
    assert_eq!((error["line"].as_u64(), error["path"].as_str()), (Some(8), Some("plan.nodes[1]")));
}

/// To the byte.
#[tokio::test]
async fn a_file_may_be_as_large_as_is_said() {
    let bed = Bed::new();
    let of = |bytes: usize| format!("{APPROVE}# {}", "x".repeat(bytes - APPROVE.len() - 2));
    bed.call("PUT", "/api/agents/approve", of(limits::AGENT_FILE_BYTES_MAX + 1))
        .await
        .problem(413, "payload_too_large");
    bed.call("PUT", "/api/agents/approve", of(limits::AGENT_FILE_BYTES_MAX)).await.is(201);
}

#[tokio::test]
async fn the_form_of_agent_files_is_published() {
    let bed = Bed::new();
    let reply = bed.get("/api/schema/agent").await;
    assert_eq!(reply.is(200)["properties"]["agent"]["type"], "string");
}

/// What a plan may be that a model makes is published as well, and takes the plans that are taken.
#[tokio::test]
async fn the_form_of_plans_is_published() {
    let bed = Bed::new();
    let schema = bed.get("/api/schema/plan").await.is(200).clone();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let plan = json!({ "nodes": [{ "id": "pay", "kind": "tool", "tool": "pay", "input": { "cents": 1 } }] });
    assert!(validator.is_valid(&plan));
    for wrong in [
        json!({}),
        json!({ "nodes": [] , "agent": "a" }),
        json!({ "nodes": [{ "id": "pay", "kind": "tool", "tool": "pay", "unknown": 1 }] }),
        json!({ "nodes": [{ "id": "pay", "kind": "conjure" }] }),
    ] {
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
}

/// Lets so much time pass, and everybody see it.
async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

/// Whoever asks again and again and never waits for the answer would have any number of files read at once.
#[test]
fn a_file_that_is_being_read_keeps_its_place_when_its_client_is_gone() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let bed = Bed::new();
        let put = || bed.call("PUT", "/api/agents/approve", APPROVE);
        let refused = async |file: String, patience: Span| {
            let mut refused = std::pin::pin!(bed.call("PUT", "/api/agents/approve", file));
            let whole = patience.minus(Span::from_millis(1)).to_std();
            tokio::select! {
                biased;
                refused = refused.as_mut() => panic!("before its time: {}", refused.text),
                () = pass(whole) => {}
            }
            tokio::select! {
                biased;
                refused = refused => refused,
                () = pass(Duration::from_secs(1)) => panic!("it was given a place"),
            }
        };
        let large = format!("{APPROVE}# {}", "x".repeat(limits::AGENT_FILE_BYTES_MAX - APPROVE.len() - 2));
        let put_large = || bed.raw(Request::put("/api/agents/approve").body(Body::from(large.clone())).unwrap());
        // The one thread that could read them is busy.
        let (release, released) = mpsc::channel();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        for _ in 0..limits::AGENT_FILES_AT_ONCE {
            assert!(put_large().now_or_never().is_none(), "nothing can be read yet");
        }
        for _ in 0..2 {
            let refused = refused(APPROVE.to_owned(), limits::ANSWER_PATIENCE).await;
            assert!(refused.problem(503, "overloaded").contains("agent files"), "{}", refused.text);
        }
        bed.get("/api/agents").await.is(200);
        // Files that are read for nobody, and those that wait for a place, count like every body that is held.
        let most = limits::BODIES_BYTES_MAX / (large.len() - limits::BODY_BYTES_FREE);
        let mut waiting: Vec<_> = (limits::AGENT_FILES_AT_ONCE..most).map(|_| Box::pin(put_large())).collect();
        assert!(waiting.iter_mut().all(|request| request.now_or_never().is_none()));
        let refused = refused(large.clone(), limits::BODY_ROOM_PATIENCE).await;
        assert!(refused.problem(503, "overloaded").contains("large bodies"), "{}", refused.text);
        drop(waiting);
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        // What was read for nobody was not put, and its places are free again.
        put().await.is(201);
    });
}
