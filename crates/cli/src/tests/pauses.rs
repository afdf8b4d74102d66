//! `pause` and `resume` against a small server, and how a paused job is shown.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::samples::{JOB, job_with, problem, step, trace};
use super::server::{run, serve};
use crate::exit::Exit;

fn paused(id: &str, reason: &str) -> Value {
    job_with("paused", json!({ "id": id, "paused": { "reason": reason, "since": "2026-11-21T09:30:01Z" } }))
}

#[tokio::test]
async fn a_paused_job_says_why_and_how_it_goes_on() {
    let route = |job: Value| Router::new().route("/api/jobs/{id}", get(move || async move { job.to_string() }));
    let url = serve(route(paused(JOB, "restored"))).await;
    let shown = run(&url, &["show", JOB]).await.stdout;
    assert!(shown.contains("held since the restore"), "{shown}");
    assert!(shown.contains(&format!("let it go on with: aetheris resume {JOB}\n")), "{shown}");
    let url = serve(route(job_with("running", json!({ "end_requested": "pause" })))).await;
    let shown = run(&url, &["show", JOB]).await.stdout;
    assert!(shown.contains("asked to pause"), "{shown}");
}

#[tokio::test]
async fn a_held_job_is_asked_and_others_pause_at_once() {
    for (answer, words) in [
        (json!({ "end_requested": "pause", "status": "running" }), "pause requested"),
        (json!({ "end_requested": null, "status": "paused" }), "is paused"),
    ] {
        let route = post(move || async move { (StatusCode::ACCEPTED, answer.to_string()) });
        let url = serve(Router::new().route("/api/jobs/{id}/pause", route)).await;
        let ran = run(&url, &["pause", JOB]).await;
        assert!(ran.exit() == Exit::Done && ran.stdout.contains(words), "{}", ran.stdout);
    }
}

/// Two pages: what an operator has paused stays, what has ended meanwhile is told, and the others go on.
#[tokio::test]
async fn all_that_a_restore_has_held_is_resumed_page_by_page() {
    let ids = [1, 2, 3, 4].map(|number| format!("job_01JD000000000000000000000{number}"));
    let resumed = Arc::new(Mutex::new(Vec::new()));
    let (told, pages) = (Arc::clone(&resumed), ids.clone());
    let list = move |Query(query): Query<std::collections::BTreeMap<String, String>>| async move {
        assert_eq!((query["status"].as_str(), query["agent"].as_str()), ("paused", "refund"));
        let [one, two, three, four] = pages;
        match query.get("cursor") {
            None => json!({ "jobs": [paused(&one, "restored"), paused(&two, "operator")], "next_cursor": two }),
            Some(_) => json!({ "jobs": [paused(&three, "restored"), paused(&four, "restored")], "next_cursor": null }),
        }
        .to_string()
    };
    let ended = ids[2].clone();
    let resume = move |Path(id): Path<String>| async move {
        told.lock().unwrap().push(id.clone());
        if id == ended {
            return (StatusCode::CONFLICT, problem("job_finished", 409, "it has ended").to_string());
        }
        (StatusCode::ACCEPTED, json!({ "status": "pending" }).to_string())
    };
    let router = Router::new().route("/api/jobs", get(list)).route("/api/jobs/{id}/resume", post(resume));
    let url = serve(router).await;
    let ran = run(&url, &["resume", "--all-restored", "--agent", "refund"]).await;
    assert_eq!(*resumed.lock().unwrap(), [ids[0].clone(), ids[2].clone(), ids[3].clone()]);
    assert_eq!((ran.exit(), ran.stdout.as_str()), (Exit::Conflict, "resumed: 2 restored jobs\n"));
    assert!(ran.stderr.contains(&format!("not resumed: {}", ids[2])), "{}", ran.stderr);
}

/// It is held still: what arrives is recorded, and nothing goes on.
#[tokio::test]
async fn a_signal_to_a_paused_job_does_not_say_that_it_goes_on() {
    for (status, code) in [("delivered", StatusCode::OK), ("kept", StatusCode::ACCEPTED)] {
        let answer = json!({ "payload_matches": true, "status": status }).to_string();
        let router = Router::new()
            .route("/api/jobs/{id}", get(|| async { paused(JOB, "operator").to_string() }))
            .route("/api/jobs/{id}/signal", post(move || async move { (code, answer) }));
        let ran = run(&serve(router).await, &["signal", JOB, "k", "{}"]).await;
        assert!(ran.stdout.starts_with(status) && ran.stdout.contains("paused"), "{}", ran.stdout);
        assert!(ran.stderr.contains(&format!("aetheris resume {JOB}")), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn a_step_of_a_paused_job_does_not_run() {
    let mut job = paused(JOB, "operator");
    job["steps"]["approval"] =
        json!({ "status": "running", "attempt": 1, "started_at": "2026-11-21T09:30:00Z", "finished_at": null });
    let url = serve(Router::new().route("/api/jobs/{id}", get(move || async move { job.to_string() }))).await;
    let shown = run(&url, &["show", JOB]).await.stdout;
    let line = shown.lines().find(|line| line.contains("approval")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["·", "approval", "paused"], "{shown}");
}

/// In a job that has ended nothing runs, and what it left in doubt is named.
#[tokio::test]
async fn a_step_of_a_job_that_has_ended_does_not_run_on() {
    let mut cancelled = job_with("cancelled", json!({}));
    let at = |status: &str| json!({ "status": status, "attempt": 1, "started_at": "2026-11-21T09:30:00Z", "finished_at": null });
    cancelled["steps"] = json!({ "nap": at("waiting"), "pay": at("in_doubt"),
        "last": { "status": "pending", "attempt": 0, "started_at": null, "finished_at": null } });
    let url = serve(Router::new().route("/api/jobs/{id}", get(move || async move { cancelled.to_string() }))).await;
    let shown = run(&url, &["show", JOB]).await.stdout;
    let line = |node: &str| shown.lines().find(|line| line.contains(node)).unwrap().to_owned();
    assert!(line("nap").contains("– nap") && line("nap").contains("waiting when the job ended"), "{shown}");
    assert!(line("pay").contains("? pay") && line("pay").contains("still in doubt"), "{shown}");
    assert!(line("last").contains("not run"), "{shown}");
    // As long as the job took, whatever the clock says now.
    let took: std::collections::BTreeSet<_> =
        ["nap", "pay"].iter().filter_map(|n| line(n).split(" · ").nth(1).map(str::to_owned)).collect();
    assert_eq!(took.len(), 1, "{shown}");
    assert!(shown.contains("a call is still in doubt: it may have happened"), "{shown}");
    assert!(shown.contains("aetheris in-doubt --unresolved"), "{shown}");
}

/// An answer that is given a day after the end makes nothing longer, and says what became of the call.
#[tokio::test]
async fn a_doubt_that_is_answered_after_the_jobs_end_is_told_as_answered() {
    let mut ended =
        job_with("cancelled", json!({ "ended_at": "2026-11-21T09:31:00Z", "updated_at": "2026-11-22T09:31:00Z" }));
    ended["steps"] = json!({
        "pay": { "status": "running", "attempt": 2, "started_at": "2026-11-21T09:30:00Z", "finished_at": null } });
    let mut pay = step("pay", "tool", "running");
    pay["started_at"] = json!("2026-11-21T09:30:00Z");
    pay["attempts"] = json!([{ "ended_at": null, "epoch": 1, "error": null, "number": 1, "started_at": "2026-11-21T09:30:00Z" },
        { "ended_at": null, "epoch": 2, "error": null, "number": 2, "started_at": "2026-11-21T09:30:30Z" }]);
    pay["doubts"] = json!([{ "at": "2026-11-21T09:30:40Z", "note": "found in the log", "outcome": "happened", "permit": 1,
        "reason": "timeout", "resolved_at": "2026-11-22T09:31:00Z", "resolved_by": "operator" }]);
    let mut traced = trace(vec![pay]);
    traced["status"] = json!("cancelled");
    traced["ended_at"] = json!("2026-11-21T09:31:00Z");
    let routes = Router::new()
        .route("/api/jobs/{id}", get(move || async move { ended.to_string() }))
        .route("/api/jobs/{id}/trace", get(move || async move { traced.to_string() }));
    let url = serve(routes).await;
    let shown = run(&url, &["show", JOB]).await.stdout;
    let line = shown.lines().find(|line| line.contains("✓ pay")).unwrap_or_default();
    assert!(line.contains("in doubt when the job ended, later answered: happened · 1m 00s"), "{shown}");
    assert!(!shown.contains("still in doubt"), "{shown}");
    let told = run(&url, &["trace", JOB]).await.stdout;
    for line in [
        "later answered: happened  1m 00s",
        "try 1 in claim 1  1m 00s",
        "try 2 in claim 2  30.0s",
        "(found in the log)",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
}
