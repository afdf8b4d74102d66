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
    assert!(shown.contains(&format!("let the job go on with: aetheris resume {JOB}\n")), "{shown}");
    let url = serve(route(job_with("running", json!({ "end_requested": "pause" })))).await;
    let shown = run(&url, &["show", JOB]).await.stdout;
    assert!(shown.contains("asked to pause"), "{shown}");
}

/// What it was in doubt about does not vanish from the page when the time of the doubt's own policy has passed.
#[tokio::test]
async fn a_paused_job_names_its_doubt_though_it_waits_for_no_answer() {
    let mut job = paused(JOB, "operator");
    job["steps"]["approval"] =
        json!({ "status": "in_doubt", "attempt": 1, "started_at": "2026-11-21T09:30:00Z", "finished_at": null });
    let url = serve(Router::new().route("/api/jobs/{id}", get(move || async move { job.to_string() }))).await;
    let shown = run(&url, &["show", JOB]).await.stdout;
    assert!(shown.contains("approval is in doubt: its call has started"), "{shown}");
    assert!(shown.contains(&format!("see: aetheris in-doubt --job {JOB}\n")), "{shown}");
}

/// The list says it as well as the page: the worker that holds a job was asked for something.
#[tokio::test]
async fn a_list_says_what_a_worker_was_asked_for() {
    let held = json!({ "worker": "w1", "end_requested": "pause" });
    let list = json!({ "jobs": [job_with("running", held)], "next_cursor": null });
    let url = serve(Router::new().route("/api/jobs", get(move || async move { list.to_string() }))).await;
    let listed = run(&url, &["jobs"]).await.stdout;
    assert!(listed.contains("w1; asked to pause"), "{listed}");
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

#[tokio::test]
async fn a_step_of_a_paused_job_says_what_it_was_told() {
    for (by, words) in [("signal", "answered by a signal"), ("happened", "known: happened")] {
        let mut job = paused(JOB, "operator");
        let answered = json!({ "at": "2026-11-21T09:30:02Z", "by": by });
        job["steps"]["approval"] = json!({ "status": "running", "attempt": 1, "started_at": "2026-11-21T09:30:00Z",
            "finished_at": null, "answered": answered });
        let url = serve(Router::new().route("/api/jobs/{id}", get(move || async move { job.to_string() }))).await;
        let shown = run(&url, &["show", JOB]).await.stdout;
        let line = shown.lines().find(|line| line.contains("approval")).unwrap();
        assert!(line.contains(&format!("paused · {words} ")), "{shown}");
    }
}

/// In a job that has ended nothing runs, and what it left in doubt is named.
#[tokio::test]
async fn a_step_of_a_job_that_has_ended_does_not_run_on() {
    let at = |status: &str, finished: Value| {
        let started = "2026-11-21T09:30:00Z";
        json!({ "status": status, "attempt": 1, "started_at": started, "finished_at": finished })
    };
    let mut pay = at("in_doubt", Value::Null);
    pay["left_in_doubt"] = json!("unresolved");
    // Answered while the job was paused, and cancelled then.
    let mut asked = at("running", Value::Null);
    asked["answered"] = json!({ "at": "2026-11-21T09:30:40Z", "by": "signal" });
    let mut cancelled =
        job_with("cancelled", json!({ "ended_at": "2026-11-21T09:31:00Z", "updated_at": "2026-11-22T09:31:00Z" }));
    cancelled["steps"] = json!({
        "broke": at("failed", json!("2026-11-21T09:30:20Z")), "done": at("completed", json!("2026-11-21T09:30:00.0125Z")),
        "nap": at("waiting", Value::Null), "pay": pay, "spin": at("running", Value::Null),
        "again": at("retrying", Value::Null), "asked": asked,
        "last": { "status": "pending", "attempt": 0, "started_at": null, "finished_at": null },
        "left": { "status": "skipped", "attempt": 0, "started_at": null, "finished_at": "2026-11-21T09:30:20Z" },
    });
    let mut traced = step("asked", "wait", "running");
    traced["answered"] = cancelled["steps"]["asked"]["answered"].clone();
    let mut traced = trace(vec![traced]);
    traced["status"] = json!("cancelled");
    let router = Router::new()
        .route("/api/jobs/{id}", get(move || async move { cancelled.to_string() }))
        .route("/api/jobs/{id}/trace", get(move || async move { traced.to_string() }));
    let url = serve(router).await;
    let told = run(&url, &["trace", JOB]).await.stdout;
    assert!(told.contains("\n– asked  wait  the job ended first\n"), "{told}");
    let shown = run(&url, &["show", JOB]).await.stdout;
    assert!(shown.contains("\n  ended       2026-11-21 09:31:00Z ("), "{shown}");
    for line in [
        // Its own time, not its job's.
        "✓ done 12.5ms",
        "✗ broke failed · 20.0s",
        "– left skipped",
        "– last not run",
        // As long as the job took, whatever the clock says now.
        "– nap waiting when the job ended · 1m 00s",
        "– spin running when the job ended · 1m 00s",
        "– again retrying when the job ended · 1m 00s",
        "– asked wait the job ended first · answered by a signal 3d ago · 1m 00s",
        "? pay still in doubt · 1m 00s",
    ] {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.lines().any(|shown| words(shown) == line), "{line}: {shown}");
    }
    assert!(shown.contains("the call of pay is still in doubt: it may have happened"), "{shown}");
    assert!(shown.contains(&format!("aetheris in-doubt --unresolved --job {JOB}\n")), "{shown}");
}

/// A job that has ended with a doubt at its step, and what is known of the call since.
fn ended_with(status: &str, left: &Value, outcome: &str) -> Router {
    let mut ended =
        job_with("cancelled", json!({ "ended_at": "2026-11-21T09:31:00Z", "updated_at": "2026-11-22T09:31:00Z" }));
    ended["steps"] = json!({ "pay": {
        "status": status, "attempt": 2, "left_in_doubt": left, "started_at": "2026-11-21T09:30:00Z", "finished_at": null,
    } });
    if left == outcome && outcome != "unresolved" {
        ended["steps"]["pay"]["answered"] = json!({ "at": "2026-11-22T09:31:00Z", "by": outcome });
    }
    let mut pay = step("pay", "tool", status);
    pay["left_in_doubt"] = left.clone();
    pay["started_at"] = json!("2026-11-21T09:30:00Z");
    pay["attempts"] = json!([{ "ended_at": null, "epoch": 1, "error": null, "number": 1, "started_at": "2026-11-21T09:30:00Z" },
        { "ended_at": null, "epoch": 2, "error": null, "number": 2, "started_at": "2026-11-21T09:30:30Z" }]);
    pay["doubts"] = json!([{ "at": "2026-11-21T09:30:40Z", "note": "found in the log", "outcome": outcome, "permit": 1,
        "reason": "timeout", "resolved_at": "2026-11-22T09:31:00Z",
        "resolved_by": if outcome == "unresolved" { "policy" } else { "operator" } }]);
    if outcome == "happened" {
        pay["doubts"][0]["result"] = json!({ "bytes": 9, "from": "recorded", "value": { "id": 77 } });
    }
    let mut traced = trace(vec![pay]);
    traced["status"] = json!("cancelled");
    traced["ended_at"] = json!("2026-11-21T09:31:00Z");
    Router::new()
        .route("/api/jobs/{id}", get(move || async move { ended.to_string() }))
        .route("/api/jobs/{id}/trace", get(move || async move { traced.to_string() }))
}

/// What is known a day after the end makes nothing longer, and says what became of the call, also where nobody has
/// answered: its own answer can come late. What the doubts tell, and when, decides nothing here: what the end has left in
/// doubt does.
#[tokio::test]
async fn a_doubt_that_is_answered_after_the_jobs_end_is_told_as_answered() {
    for (status, left, outcome, sign, words) in [
        ("in_doubt", json!("happened"), "happened", "✓", "happened, known after the end"),
        ("in_doubt", json!("did_not_happen"), "did_not_happen", "–", "did not happen, known after the end"),
        ("failed", json!("happened"), "happened", "✓", "happened, known after the end"),
        ("failed", json!("happened"), "unresolved", "✓", "happened, known after the end"),
        ("failed", json!("did_not_happen"), "did_not_happen", "–", "did not happen, known after the end"),
        ("failed", json!("unresolved"), "unresolved", "✗", "failed, still in doubt"),
        ("in_doubt", json!("unresolved"), "unresolved", "?", "still in doubt"),
        ("failed", Value::Null, "did_not_happen", "✗", "failed"),
        ("running", Value::Null, "did_not_happen", "–", "running when the job ended"),
    ] {
        let url = serve(ended_with(status, &left, outcome)).await;
        let shown = run(&url, &["show", JOB]).await.stdout;
        assert!(shown.contains(&format!("\n  {sign} pay  tool  {words} · 1m 00s · try 2\n")), "{shown}");
        let watched = run(&url, &["watch", JOB]).await.stdout;
        assert!(watched.starts_with(&format!("{JOB}  refund cancelled  1m 00s\n")), "{watched}");
        let told = run(&url, &["trace", JOB]).await.stdout;
        for line in [
            format!("\n{sign} pay  tool  {words}  1m 00s\n"),
            "try 1 in claim 1  1m 00s".to_owned(),
            "try 2 in claim 2  30.0s".to_owned(),
            format!("→ {} by ", outcome.replace('_', " ")),
            "(found in the log)".to_owned(),
        ] {
            assert!(told.contains(&line), "{line}: {told}");
        }
        assert_eq!(told.contains("\n      out  {\"id\":77}\n"), outcome == "happened", "{told}");
    }
}

/// A page of jobs that operators have paused is not the last.
#[tokio::test]
async fn a_page_without_a_restored_job_is_not_the_end() {
    let ids = [1, 2].map(|number| format!("job_01JD000000000000000000000{number}"));
    let pages = ids.clone();
    let list = move |Query(query): Query<std::collections::BTreeMap<String, String>>| async move {
        let [one, two] = pages;
        match query.get("cursor") {
            None => json!({ "jobs": [paused(&one, "operator")], "next_cursor": one }),
            Some(_) => json!({ "jobs": [paused(&two, "restored")], "next_cursor": null }),
        }
        .to_string()
    };
    let resume = || async { (StatusCode::ACCEPTED, json!({ "status": "pending" }).to_string()) };
    let router = Router::new().route("/api/jobs", get(list)).route("/api/jobs/{id}/resume", post(resume));
    let ran = run(&serve(router).await, &["resume", "--all-restored"]).await;
    assert_eq!((ran.exit(), ran.stdout.as_str()), (Exit::Done, "resumed: 1 restored job\n"));
    let left = "still paused: 1 job that an operator has paused; `aetheris resume JOB` resumes one\n";
    assert!(ran.stderr.ends_with(left), "{}", ran.stderr);
}

/// Whoever mistypes the name would believe that nothing was held.
#[tokio::test]
async fn an_agent_that_does_not_exist_is_told_where_nothing_is_resumed() {
    let empty = || async { json!({ "jobs": [], "next_cursor": null }).to_string() };
    let gone =
        || async { (StatusCode::NOT_FOUND, problem("agent_not_found", 404, "there is no agent `nope`").to_string()) };
    let url = serve(Router::new().route("/api/jobs", get(empty)).route("/api/agents/{agent}", get(gone))).await;
    let ran = run(&url, &["resume", "--all-restored", "--agent", "nope"]).await;
    assert_eq!((ran.exit(), ran.error().as_str()), (Exit::NotFound, "there is no agent `nope` (agent_not_found)"));
    let ran = run(&url, &["resume", "--all-restored"]).await;
    assert_eq!((ran.exit(), ran.stdout.as_str()), (Exit::Done, "resumed: 0 restored jobs\n"));
    // Of one that was removed the jobs go on all the same.
    let list = || async { json!({ "jobs": [paused(JOB, "restored")], "next_cursor": null }).to_string() };
    let resume = || async { (StatusCode::ACCEPTED, json!({ "status": "pending" }).to_string()) };
    let router = Router::new().route("/api/jobs", get(list)).route("/api/jobs/{id}/resume", post(resume));
    let router = router.route("/api/agents/{agent}", get(gone));
    let ran = run(&serve(router).await, &["resume", "--all-restored", "--agent", "nope"]).await;
    assert_eq!((ran.exit(), ran.stdout.as_str()), (Exit::Done, "resumed: 1 restored job\n"));
}
