//! Commands against a small server: what they ask, what they print, how they end.

use aetheris_harness::Folder;
use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post, put};
use serde_json::{Value, json};

use super::samples::{JOB, KEY, event, hash, job, job_with, problem, sse, step, trace, unresolved, waiting};
use super::server::{run, run_in_colours, run_on, serve};
use crate::exit::Exit;

fn job_route(job: Value) -> Router {
    let trace = trace(vec![step("query_order", "tool", "completed"), step("approval", "wait", "waiting")]);
    Router::new()
        .route("/api/jobs/{id}", get(move || async move { job.to_string() }))
        .route("/api/jobs/{id}/trace", get(move || async move { trace.to_string() }))
}

/// The lines that `in-doubt` prints are to be completed: as they stand they record nothing.
#[tokio::test]
async fn an_answer_that_nobody_has_put_in_is_not_recorded() {
    let url = serve(Router::new()).await;
    for (outcome, rest) in [("--happened", ["--result", "{RESULT}"]), ("--did-not-happen", ["--permit", "1"])] {
        for note in ["{HOW YOU KNOW}", "seen: {HOW YOU KNOW}"] {
            let ran = run(&url, &["in-doubt", "resolve", JOB, KEY, outcome, rest[0], rest[1], "--note", note]).await;
            assert_eq!(ran.exit(), Exit::Usage);
            assert!(ran.error().starts_with("put what you found in the place of {"), "{}", ran.error());
        }
    }
    // In a text it would be a result.
    let words =
        ["in-doubt", "resolve", JOB, KEY, "--permit", "1", "--happened", "--result", "\"{RESULT}\"", "--note", "seen"];
    let ran = run(&url, &words).await;
    assert!(ran.error().starts_with("put what you found in the place of {RESULT}"), "{}", ran.error());
}

fn stream(router: Router, events: &[Value]) -> Router {
    let text: String = events.iter().map(sse).collect();
    let answer = move || async move { ([("content-type", "text/event-stream")], text) };
    router.route("/api/jobs/{id}/events/stream", get(answer))
}

#[tokio::test]
async fn show_names_the_command_that_answers_a_wait() {
    let url = serve(job_route(job_with("parked", json!({ "waiting": waiting() })))).await;
    let ran = run(&url, &["show", JOB]).await;
    assert_eq!(ran.exit(), Exit::Done);
    let answer = format!("  answer with: aetheris signal {JOB} 'approve it' '{{ANSWER}}'\n");
    assert!(ran.stdout.contains(&answer), "{}", ran.stdout);
    assert!(ran.stdout.starts_with(&format!("{JOB}  parked\n")), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n  ✓ query_order  tool  12.5ms\n  · approval     wait  pending\n"), "{}", ran.stdout);
}

#[tokio::test]
async fn show_has_the_values_of_steps_and_says_which_are_rendered() {
    let page = |query: axum::extract::RawQuery| async move {
        let input = match query.0.unwrap().as_str() {
            "bytes=2048&render=false" => Value::Null,
            "bytes=1048576&render=true" => json!({ "bytes": 15, "from": "rendered", "value": { "order": "A-1" } }),
            other => panic!("{other}"),
        };
        let output = json!({ "bytes": 14, "from": "recorded", "value": { "cents": 4990 } });
        let step = json!({ "input": input, "node_id": "query_order", "output": output, "status": "completed" });
        json!({ "steps": [step], "next_cursor": null }).to_string()
    };
    let url = serve(job_route(job("running")).route("/api/jobs/{id}/steps", get(page))).await;
    for command in ["show", "trace"] {
        let ran = run(&url, &[command, JOB]).await;
        assert!(ran.stdout.contains("\n      out  {\"cents\":4990}\n"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("rendered"), "{}", ran.stdout);
        let ran = run(&url, &[command, JOB, "--full"]).await;
        let expected = "      in   (rendered) {\n             \"order\": \"A-1\"\n           }\n";
        assert!(ran.stdout.contains(expected), "{}", ran.stdout);
    }
    let ran = run(&url, &["show", JOB, "--full", "--json"]).await;
    assert_eq!(ran.json()["step_values"][0]["input"]["from"], "rendered");
}

#[tokio::test]
async fn a_pending_job_says_why_wherever_it_is_shown() {
    let why = json!([{
        "code": "session_busy", "detail": "job_1 of the same session is parked and comes first",
        "do": "aetheris why job_1", "since": "2026-11-21T09:30:00Z",
    }]);
    let list = json!({ "jobs": [job("pending")], "next_cursor": null });
    let router = job_route(job("pending"))
        .route("/api/jobs", get(move || async move { list.to_string() }))
        .route("/api/jobs/{id}/why", get(move || async move { why.to_string() }));
    let url = serve(router).await;
    let ran = run(&url, &["why", JOB]).await;
    assert!(
        ran.stdout.starts_with(
            "session_busy  job_1 of the same session is parked and comes first\n  since 2026-11-21 09:30:00Z ("
        ),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.ends_with("\n  aetheris why job_1\n"), "{}", ran.stdout);
    for command in [["jobs", "--all"], ["show", JOB]] {
        let ran = run(&url, &command).await;
        assert!(ran.stdout.contains("job_1 of the same session is parked and comes first"), "{}", ran.stdout);
    }
}

#[tokio::test]
async fn json_is_one_value_with_what_only_the_server_knows() {
    let url = serve(job_route(job("running"))).await;
    let ran = run(&url, &["show", JOB, "--json"]).await;
    assert_eq!(ran.json()["of_a_later_server"], true);
}

#[tokio::test]
async fn send_prints_the_job_and_passes_everything_on() {
    let message = |headers: HeaderMap, body: Bytes| async move {
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(headers["idempotency-key"], "k1");
        let expected = json!({
            "message": { "n": 1 }, "session_id": "s", "labels": { "a": "b" }, "deadline": "72h", "priority": 2, "run_at": "2026-11-21T09:30:00.000000Z",
        });
        assert_eq!(body, expected);
        (StatusCode::ACCEPTED, json!({ "job_id": JOB, "status": "pending" }).to_string())
    };
    let url = serve(Router::new().route("/api/agents/{agent}/message", post(message))).await;
    let options = [
        "--key",
        "k1",
        "--session",
        "s",
        "--label",
        "a=b",
        "--deadline",
        "72h",
        "--priority",
        "2",
        "--run-at",
        "2026-11-21T09:30:00Z",
    ];
    let words: Vec<&str> = ["send", "refund", "{\"n\": 1}"].into_iter().chain(options).collect();
    let ran = run(&url, &words).await;
    assert_eq!(ran.exit(), Exit::Done);
    assert_eq!(ran.stdout, format!("{JOB}\n"));
    assert!(ran.stderr.contains(&format!("aetheris watch {JOB}")), "{}", ran.stderr);
}

/// A key stands for its job: whoever gives it once more is told where that has not done what was asked for.
#[tokio::test]
async fn a_key_of_a_job_that_failed_says_what_another_would_do() {
    let follow = format!("follow it with: aetheris watch {JOB}");
    let again = "Another --key makes a new job, which calls every tool again: look first at what this one has done: aetheris trace";
    let ended = |how: &str| format!("sent before with this key, and its job {how}. {again} {JOB}");
    for (code, status, told) in [
        (202, "pending", follow.clone()),
        (200, "running", format!("sent before with this key; {follow}")),
        (200, "completed", format!("sent before with this key, and its job has completed; {follow}")),
        (200, "failed", ended("has failed")),
        (200, "cancelled", ended("was cancelled")),
    ] {
        let answer = move || async move {
            (StatusCode::from_u16(code).unwrap(), json!({ "job_id": JOB, "status": status }).to_string())
        };
        let url = serve(Router::new().route("/api/agents/{agent}/message", post(answer))).await;
        let ran = run(&url, &["send", "refund", "hi", "--key", "A-1"]).await;
        assert_eq!(ran.stderr, format!("{told}\n"), "{status}");
        assert_eq!((ran.exit(), ran.stdout.as_str()), (Exit::Done, format!("{JOB}\n").as_str()), "{status}");
    }
}

fn sent(router: Router) -> Router {
    let answer = || async { (StatusCode::ACCEPTED, json!({ "job_id": JOB, "status": "pending" }).to_string()) };
    router.route("/api/agents/{agent}/message", post(answer))
}

#[tokio::test]
async fn send_wait_prints_the_result_alone() {
    let done = job_with("completed", json!({ "result": { "refund": "r-1" } }));
    let url = serve(sent(job_route(done))).await;
    let ran = run(&url, &["send", "refund", "hi", "--wait"]).await;
    assert_eq!(ran.exit(), Exit::Done);
    assert_eq!(ran.stdout, "{\n  \"refund\": \"r-1\"\n}\n");
}

#[tokio::test]
async fn send_wait_of_a_failed_job_is_exit_1() {
    let error = json!({ "code": "permanent", "message": "it broke", "node_id": "pay" });
    let url = serve(sent(job_route(job_with("failed", json!({ "error": error }))))).await;
    let ran = run(&url, &["send", "refund", "hi", "--wait"]).await;
    assert_eq!(ran.exit(), Exit::Failed);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("failed at pay: permanent\n  it broke"), "{}", ran.stderr);
    // What is painted stays painted, and what others wrote is clean all the same.
    let painted = run_in_colours(&url, &["send", "refund", "hi", "--wait"], [false, true]).await;
    assert!(painted.stderr.contains("\u{1b}[31mfailed"), "{:?}", painted.stderr);
    let plain = run_in_colours(&url, &["send", "refund", "hi", "--wait"], [true, false]).await;
    assert!(plain.stderr.contains("failed at pay") && !plain.stderr.contains('\u{1b}'), "{:?}", plain.stderr);
    let error = json!({ "code": "permanent", "message": "it \u{1b}[2Jbroke", "node_id": "pay" });
    let url = serve(sent(job_route(job_with("failed", json!({ "error": error }))))).await;
    let painted = run_in_colours(&url, &["send", "refund", "hi", "--wait"], [true, true]).await;
    assert!(!painted.stderr.contains("\u{1b}[2J"), "{:?}", painted.stderr);
}

/// Nobody would look for it otherwise: it is said wherever the end is, also where nothing is known of the plan.
#[tokio::test]
async fn the_end_of_a_job_says_what_it_has_left_in_doubt() {
    let error = json!({ "code": "in_doubt_unresolved", "message": "nobody knows", "node_id": "pay" });
    for (status, left) in [
        ("failed", json!("unresolved")),
        ("failed", json!("happened")),
        ("failed", json!("did_not_happen")),
        ("failed", Value::Null),
        ("cancelled", json!("unresolved")),
        ("cancelled", json!("happened")),
    ] {
        let told = left == "unresolved";
        let known = match left.as_str() {
            Some("happened") => vec!["the call of pay was in doubt at the end; known since: happened"],
            Some("did_not_happen") => vec!["the call of pay was in doubt at the end; known since: did not happen"],
            Some(_) | None => Vec::new(),
        };
        let mut view = job_with(status, json!({ "ended_at": "2026-11-21T09:31:00Z" }));
        view["error"] = if status == "failed" { error.clone() } else { Value::Null };
        view["steps"]["pay"] = json!({
            "status": if status == "failed" { "failed" } else { "in_doubt" }, "attempt": 1, "left_in_doubt": left,
            "started_at": "2026-11-21T09:30:00Z", "finished_at": null,
        });
        let mut pay = step("pay", "tool", "failed");
        pay["left_in_doubt"] = left.clone();
        let trace = trace(vec![pay]).to_string();
        let alone = view.to_string();
        let job = Router::new().route("/api/jobs/{id}", get(move || async move { alone }));
        let traced = job.clone().route("/api/jobs/{id}/trace", get(move || async move { trace }));
        for routes in [job, traced] {
            let url = serve(sent(routes)).await;
            for words in [&["show", JOB][..], &["watch", JOB], &["send", "refund", "hi", "--wait"]] {
                let ran = run(&url, words).await;
                let said = format!("{}{}", ran.stdout, ran.stderr);
                let sentence = format!(
                    "the call of pay is still in doubt: it may have happened\n  see: aetheris in-doubt --unresolved --job {JOB}\n"
                );
                assert_eq!(said.contains(&sentence), told, "{words:?} {status} {left}: {said}");
                assert_eq!(said.contains("still in doubt"), told, "{words:?} {status} {left}: {said}");
                let since: Vec<&str> = said.lines().filter(|line| line.contains("was in doubt at the end")).collect();
                assert_eq!(since, known, "{words:?} {status} {left}: {said}");
            }
        }
    }
}

#[tokio::test]
async fn a_timeout_leaves_the_job_alone_and_is_exit_7() {
    let url = serve(sent(stream(job_route(job("running")), &[]))).await;
    let ran = run(&url, &["send", "refund", "hi", "--wait", "--timeout", "50ms"]).await;
    assert_eq!(ran.exit(), Exit::StillRunning);
    assert!(ran.stderr.contains("timed out; the job is running"), "{}", ran.stderr);
}

/// Whoever waits for no time at all asks where the job is.
#[tokio::test]
async fn a_timeout_of_nothing_says_where_the_job_is() {
    for (status, exit) in [
        ("running", Exit::StillRunning),
        ("parked", Exit::StillRunning),
        ("completed", Exit::Done),
        ("failed", Exit::Failed),
    ] {
        let url = serve(stream(job_route(job(status)), &[])).await;
        let ran = run(&url, &["watch", JOB, "--timeout", "0s"]).await;
        assert_eq!(ran.exit(), exit, "{status}: {}", ran.stderr);
    }
}

/// A server whose job has ended as soon as it is asked for the second time.
fn ending(first: Value, last: Value, events: &[Value]) -> Router {
    let asked = std::sync::atomic::AtomicBool::new(false);
    let asked = std::sync::Arc::new(asked);
    let answer = move || async move {
        if asked.swap(true, std::sync::atomic::Ordering::SeqCst) { last.to_string() } else { first.to_string() }
    };
    stream(Router::new().route("/api/jobs/{id}", get(answer)), events)
}

#[tokio::test]
async fn watch_appends_lines_where_there_is_no_terminal() {
    let events = [
        event(5, "node_started", &json!({ "node": "pay", "try": 1 })),
        event(6, "timer_set", &json!({ "timer": "wait:x", "after_us": 1 })),
        event(7, "job_completed", &json!({ "answer": { "node": "pay" } })),
    ];
    let done = job_with("completed", json!({ "result": "ok", "seq": 7 }));
    let url = serve(ending(job("running"), done, &events)).await;
    let ran = run(&url, &["watch", JOB]).await;
    assert_eq!(ran.exit(), Exit::Done);
    let expected = "    5  09:30:00.500  node_started             pay\n    7  09:30:00.500  job_completed            \
                    the output of pay\nresult\n  ok\n";
    assert_eq!(ran.stdout, expected);
}

#[tokio::test]
async fn watch_draws_over_itself_on_a_terminal() {
    let events = [event(5, "job_failed", &json!({ "error": { "code": "boom", "message": "no" } }))];
    let error = json!({ "code": "boom", "message": "no", "node_id": null });
    let url = serve(ending(job("running"), job_with("failed", json!({ "error": error })), &events)).await;
    let ran = run_on(&url, &["watch", JOB], true).await;
    assert_eq!(ran.exit(), Exit::Failed);
    assert!(ran.stdout.contains("\u{1b}[3A\r\u{1b}[J"), "{:?}", ran.stdout);
    assert!(ran.stdout.ends_with("failed: boom\n  no\n"), "{:?}", ran.stdout);
}

#[tokio::test]
async fn watch_json_is_the_job_at_its_end() {
    let done = job_with("completed", json!({ "result": "ok" }));
    let events = [event(5, "job_completed", &json!({ "answer": { "value": "ok" } }))];
    let url = serve(ending(job("running"), done, &events)).await;
    let ran = run(&url, &["watch", JOB, "--json"]).await;
    assert_eq!(ran.json()["status"], "completed");
}

#[tokio::test]
async fn events_are_read_page_by_page() {
    let page = |query: axum::extract::RawQuery| async move {
        match query.0.unwrap().as_str() {
            "after=0&limit=1000" => json!({ "events": [event(1, "job_created", &json!({}))], "next_after": 1 }),
            "after=1&limit=1000" => json!({ "events": [event(2, "job_cancelled", &json!({}))], "next_after": null }),
            other => panic!("{other}"),
        }
        .to_string()
    };
    let url = serve(Router::new().route("/api/jobs/{id}/events", get(page))).await;
    let ran = run(&url, &["events", JOB]).await;
    assert_eq!(ran.stdout, "    1  09:30:00.500  job_created\n    2  09:30:00.500  job_cancelled\n");
    let ran = run(&url, &["events", JOB, "--json"]).await;
    assert_eq!(ran.json().as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn all_jobs_are_read_page_by_page() {
    let page = |query: axum::extract::RawQuery| async move {
        match query.0.unwrap().as_str() {
            "status=parked&limit=500" => json!({ "jobs": [job("parked")], "next_cursor": "c" }),
            "status=parked&limit=500&cursor=c" => json!({ "jobs": [job("parked")], "next_cursor": null }),
            other => panic!("{other}"),
        }
        .to_string()
    };
    let url = serve(Router::new().route("/api/jobs", get(page))).await;
    let ran = run(&url, &["jobs", "--all", "--status", "parked", "--json"]).await;
    assert_eq!(ran.json()["jobs"].as_array().unwrap().len(), 2);
    let ran = run(&url, &["jobs", "--all", "--status", "parked"]).await;
    assert_eq!(ran.stdout.lines().count(), 3);
}

#[tokio::test]
async fn checks_that_find_something_are_exit_6() {
    let verify = json!({ "valid": false, "checks": [{ "name": "chain", "ok": false, "detail": "broken at 3" }] });
    let replay = json!({
        "events": 4, "state": {}, "state_hash": hash('a'), "live_state_hash": hash('b'), "matches": false,
        "differences": ["status"],
    });
    let router = Router::new()
        .route("/api/jobs/{id}/verify", get(move || async move { verify.to_string() }))
        .route("/api/jobs/{id}/replay", get(move || async move { replay.to_string() }));
    let url = serve(router).await;
    let ran = run(&url, &["verify", JOB]).await;
    assert_eq!(ran.exit(), Exit::CheckFailed);
    assert_eq!(ran.stdout, "✗ chain  broken at 3\nnot valid: 1 of 1 checks failed\n");
    let ran = run(&url, &["replay", JOB]).await;
    assert_eq!(ran.exit(), Exit::CheckFailed);
    assert!(ran.stdout.ends_with("✗ they differ; nothing was changed\n  status\n"), "{}", ran.stdout);
}

#[tokio::test]
async fn a_signal_says_what_became_of_it() {
    let signal = |body: Bytes| async move {
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({ "correlation_key": "k", "payload": { "approved": true }, "wait_type": "human" }));
        json!({ "status": "already_delivered", "payload_matches": false }).to_string()
    };
    let url = serve(Router::new().route("/api/jobs/{id}/signal", post(signal))).await;
    let ran = run(&url, &["signal", JOB, "k", "{\"approved\": true}", "--type", "human"]).await;
    assert_eq!(ran.stdout, "already delivered: nothing changed\n");
    assert_eq!(ran.stderr, "the payload that ended the wait counts, and it differs from this one\n");
    assert_eq!(ran.exit(), Exit::Conflict);
}

#[tokio::test]
async fn a_slip_of_quoting_uses_up_no_approval() {
    let payload = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&payload);
    let signal = move |body: Bytes| async move {
        let body: Value = serde_json::from_slice(&body).unwrap();
        kept.lock().unwrap().push(body["payload"].clone());
        json!({ "status": "delivered", "payload_matches": true }).to_string()
    };
    let url = serve(Router::new().route("/api/jobs/{id}/signal", post(signal))).await;
    let ran = run(&url, &["signal", JOB, "k", "{approved: true}"]).await;
    assert_eq!(ran.exit(), Exit::Usage);
    assert!(ran.error().contains("nothing was sent"), "{}", ran.error());
    let ran = run(&url, &["send", "refund", "[1, 2"]).await;
    assert!(ran.exit() == Exit::Usage && ran.error().starts_with("MESSAGE begins with `[`"), "{}", ran.error());
    let ran = run(&url, &["signal", JOB, "k", "{approved: true}", "--text"]).await;
    assert_eq!(ran.exit(), Exit::Done);
    assert_eq!(*payload.lock().unwrap(), [json!("{approved: true}")]);
}

#[tokio::test]
async fn followed_events_are_a_json_value_each() {
    let events = [event(5, "node_started", &json!({ "node": "pay" })), event(6, "job_completed", &json!({}))];
    let url = serve(stream(job_route(job("running")), &events)).await;
    let ran = run(&url, &["events", JOB, "--follow", "--json"]).await;
    assert_eq!(ran.exit(), Exit::Done);
    let seqs: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].clone()).collect();
    assert_eq!(seqs, [json!(5), json!(6)]);
}

#[tokio::test]
async fn no_error_of_json_says_its_code_twice() {
    let problem = super::samples::problem("job_not_found", 404, "there is no job job_1").to_string();
    let answer = move || std::future::ready((StatusCode::NOT_FOUND, problem.clone()));
    let url = serve(Router::new().route("/api/jobs/{id}", get(answer))).await;
    let error = run(&url, &["show", JOB]).await.ended.unwrap_err();
    assert_eq!((error.code(), error.message().as_str()), ("job_not_found", "there is no job job_1"));
}

#[tokio::test]
async fn what_is_to_be_copied_is_whole_on_a_narrow_terminal() {
    let mut waiting = waiting();
    waiting["reason"] = json!("a refund of 20 EUR for a customer who has written to us three times in a single week");
    let events = [event(5, "job_failed", &json!({ "error": { "code": "boom", "message": "no" } }))];
    let error = json!({ "code": "boom", "message": "no", "node_id": null });
    let first = job_with("parked", json!({ "waiting": waiting }));
    let url = serve(ending(first, job_with("failed", json!({ "error": error })), &events)).await;
    let ran = run_on(&url, &["watch", JOB], true).await;
    let answer = format!("  answer with: aetheris signal {JOB} 'approve it' '{{ANSWER}}'\n");
    assert!(ran.stdout.contains(&answer), "{:?}", ran.stdout);
    assert!(!ran.stdout.contains("\u{1b}[?7l"), "{:?}", ran.stdout);
    // Head, two steps, the wait in two lines, its times, and the command, which the terminal breaks into two.
    assert!(ran.stdout.contains("\u{1b}[8A\r\u{1b}[J"), "{:?}", ran.stdout);
    for line in ran.stdout.lines().filter(|line| !line.contains("answer with")) {
        assert!(crate::render::width(line) <= super::server::COLUMNS, "{line:?}");
    }
}

#[tokio::test]
async fn a_doubt_is_resolved_with_its_result() {
    let resolve = |body: Bytes| async move {
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({ "outcome": "happened", "permit": 2, "result": { "r": 1 }, "note": "seen" }));
        let answer = json!({ "invocation": KEY, "outcome": "happened", "status": "pending" });
        (StatusCode::ACCEPTED, answer.to_string())
    };
    let call = json!({
        "accepted_from": "2026-11-21T09:31:12Z", "agent": "refund", "deadline": "2026-11-21T09:30:12Z",
        "effect": "at_most_once", "evidence": [], "invocation": KEY, "job_id": JOB, "job_status": "parked", "node_id": "pay", "permit": 2, "policy": "human",
        "reason": "timeout", "sent_permit": "1.2", "since": "2026-11-21T09:30:00Z", "status": "in_doubt",
        "tool": "payments.refund", "waiting": null,
    });
    let listed = json!({ "invocations": [call] }).to_string();
    let list = move || std::future::ready((StatusCode::OK, listed.clone()));
    let routes = job_route(job("parked")).route("/api/jobs/{id}/in-doubt/{invocation}", post(resolve));
    let url = serve(routes.route("/api/in-doubt", get(list))).await;
    let words = ["in-doubt", "resolve", JOB, KEY, "--happened", "--result", "{\"r\": 1}", "--note", "seen"];
    // The permit that is in doubt now goes with it.
    let ran = run(&url, &words).await;
    assert_eq!(ran.stdout, format!("recorded: the call of `pay` happened. {JOB} is pending\n"));
    // The only call of a job that is in doubt need not be named.
    let words = ["in-doubt", "resolve", JOB, "--happened", "--result", "{\"r\": 1}", "--note", "seen"];
    let ran = run(&url, &words).await;
    assert_eq!(ran.stdout, format!("recorded: the call of `pay` happened. {JOB} is pending\n"), "{:?}", ran.ended);
    // Nor need its job be named as the server writes it.
    let small = JOB.to_lowercase();
    let words = ["in-doubt", "resolve", small.as_str(), "--happened", "--result", "{\"r\": 1}", "--note", "seen"];
    let ran = run(&url, &words).await;
    assert_eq!(ran.stdout, format!("recorded: the call of `pay` happened. {small} is pending\n"), "{:?}", ran.ended);
}

/// It would be `null` for good, and the steps that follow would see that.
#[tokio::test]
async fn a_call_that_happened_has_a_result_or_is_said_to_have_none() {
    let ran = run("http://127.0.0.1:9", &["in-doubt", "resolve", JOB, KEY, "--happened", "--note", "seen"]).await;
    assert_eq!(ran.exit(), Exit::Usage);
    assert!(ran.error().contains("--result null"), "{}", ran.error());
}

/// Whoever has looked at an earlier permit says nothing of the one that is in doubt now.
#[tokio::test]
async fn an_answer_is_about_the_permit_that_is_named() {
    let mut call = unresolved();
    call["job_status"] = json!("parked");
    call["permit"] = json!(2);
    call["status"] = json!("in_doubt");
    let listed = json!({ "invocations": [call] }).to_string();
    let resolve = |body: Bytes| async move {
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({ "outcome": "happened", "permit": 1, "note": "seen", "result": null }));
        let conflict = super::samples::problem("state_conflict", 409, "in doubt is permit 2 now");
        (StatusCode::CONFLICT, conflict.to_string())
    };
    let routes = job_route(job("parked"))
        .route("/api/in-doubt", get(move || async move { listed }))
        .route("/api/jobs/{id}/in-doubt/{invocation}", post(resolve));
    let url = serve(routes).await;
    for named in [None, Some(KEY)] {
        let words = ["in-doubt", "resolve", JOB].into_iter().chain(named);
        let words =
            words.chain(["--permit", "1", "--happened", "--result", "null", "--note", "seen"]).collect::<Vec<_>>();
        let ran = run(&url, &words).await;
        assert_eq!(ran.exit(), Exit::Conflict, "{named:?}: {:?}", ran.ended);
    }
}

/// An empty name has no address: what stands there is another question, which nobody has asked.
#[tokio::test]
async fn an_id_that_is_empty_or_dots_is_told_as_no_job() {
    let url = serve(Router::new().route("/api/jobs", get(|| async { "{}" }))).await;
    for agent in ["", ".", "..", ".\t.", "ref\tund", "refund\n"] {
        let ran = run(&url, &["send", agent, "hi"]).await;
        assert_eq!(ran.exit(), Exit::NotFound, "{agent}: {}", ran.error());
        assert!(ran.error().starts_with(&format!("there is no agent `{agent}`")), "{}", ran.error());
    }
    for job in ["", ".", "..", "\n", "\r..", &format!("{JOB}\n"), &JOB.replace("01", "0\t1")] {
        for words in [
            vec!["show", job],
            vec!["watch", job],
            vec!["why", job],
            vec!["cancel", job],
            vec!["events", job],
            vec!["signal", job, "k", "{}"],
            vec!["in-doubt", "resolve", job, "--did-not-happen", "--note", "asked the bank"],
        ] {
            let ran = run(&url, &words).await;
            assert_eq!(ran.exit(), Exit::NotFound, "{words:?}: {}", ran.error());
            assert!(ran.error().starts_with(&format!("`{job}` is not a job id")), "{words:?}: {}", ran.error());
        }
    }
}

#[tokio::test]
async fn a_call_of_no_job_is_told_as_no_job() {
    let unknown = super::samples::problem("job_not_found", 404, "there is no job job_1").to_string();
    let answer = move || std::future::ready((StatusCode::NOT_FOUND, unknown.clone()));
    let url = serve(Router::new().route("/api/jobs/{id}", get(answer))).await;
    let ran = run(&url, &["in-doubt", "resolve", JOB, KEY, "--happened", "--result", "null", "--note", "seen"]).await;
    assert_eq!((ran.exit(), ran.error().as_str()), (Exit::NotFound, "there is no job job_1 (job_not_found)"));
}

#[tokio::test]
async fn every_page_of_doubts_is_listed() {
    let page = |query: axum::extract::RawQuery| async move {
        let query = query.0.unwrap_or_default();
        let (node, next) = match query.as_str() {
            "limit=500" => ("first", json!("place-1")),
            "limit=500&cursor=place-1" => ("second", Value::Null),
            other => panic!("{other}"),
        };
        let call = json!({
            "accepted_from": "2026-11-21T09:31:12Z", "agent": "refund", "deadline": "2026-11-21T09:30:12Z",
            "effect": "at_most_once", "invocation": KEY, "job_id": JOB, "job_status": "parked", "node_id": node,
            "permit": 2, "policy": "human", "reason": "timeout", "sent_permit": "1.2", "since": "2026-11-21T09:30:00Z",
            "status": "in_doubt", "tool": "payments.refund", "waiting": null,
        });
        json!({ "invocations": [call], "next_cursor": next }).to_string()
    };
    let url = serve(Router::new().route("/api/in-doubt", get(page))).await;
    let ran = run(&url, &["in-doubt"]).await;
    assert!(ran.stdout.contains("  first  ") && ran.stdout.contains("  second  "), "{}", ran.stdout);
    let nodes = |ran: &super::server::Ran| {
        let calls = ran.json()["invocations"].as_array().cloned().unwrap();
        calls.iter().map(|call| call["node_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let ran = run(&url, &["in-doubt", "--json"]).await;
    assert_eq!(
        (nodes(&ran), &ran.json()["next_cursor"]),
        (vec!["first".to_owned(), "second".to_owned()], &Value::Null)
    );
}

#[tokio::test]
async fn a_list_of_doubts_without_end_is_cut_and_says_so() {
    let pages = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(1));
    let page = move || {
        let call = json!({
            "accepted_from": "2026-11-21T09:31:12Z", "agent": "refund", "deadline": "2026-11-21T09:30:12Z",
            "effect": "at_most_once", "invocation": KEY, "job_id": JOB, "job_status": "parked", "node_id": "pay",
            "permit": 2, "policy": "human", "reason": "timeout", "sent_permit": "1.2", "since": "2026-11-21T09:30:00Z",
            "status": "in_doubt", "tool": "payments.refund", "waiting": null,
        });
        let cursor = format!("page {}", pages.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        async move { json!({ "invocations": vec![call; 500], "next_cursor": cursor }).to_string() }
    };
    let url = serve(Router::new().route("/api/in-doubt", get(page))).await;
    let ran = run(&url, &["in-doubt", "--json"]).await;
    let read = aetheris_core::limits::DOUBTS_LISTED_MAX / 500;
    assert_eq!(ran.json()["next_cursor"], format!("page {read}"));
    let listed = ran.json()["invocations"].as_array().map(Vec::len);
    assert_eq!(listed, Some(aetheris_core::limits::DOUBTS_LISTED_MAX));
    let ran = run(&url, &["in-doubt"]).await;
    assert!(ran.stderr.contains("there are more"), "{}", ran.stderr);
}

#[tokio::test]
async fn no_key_gets_out_of_the_command_that_names_it() {
    let mut wait = waiting();
    wait["correlation_key"] = json!("x; touch PWNED #\u{1b}[2J'");
    let why = json!([{
        "code": "waiting_approval", "detail": "ask waits for aetheris \u{1b}[2J", "since": "2026-11-21T09:30:00Z",
        "do": "aetheris signal job_1 'the aetheris key' '{}'",
    }]);
    let mut listed = wait.clone();
    for (name, value) in [("age", "5s"), ("agent", "refund"), ("job_id", JOB)] {
        listed[name] = json!(value);
    }
    let waits = json!({ "waits": [listed], "next_cursor": null });
    let router = job_route(job_with("parked", json!({ "waiting": wait })))
        .route("/api/waits", get(move || async move { waits.to_string() }))
        .route("/api/jobs/{id}/why", get(move || async move { why.to_string() }));
    let url = serve(router).await;
    let command = format!("aetheris signal {JOB} $'x; touch PWNED #\\u001b[2J\\047' '{{ANSWER}}'\n");
    for words in [vec!["show", JOB], vec!["waits"]] {
        let ran = run(&url, &words).await;
        assert!(ran.stdout.contains(&command), "{words:?}: {}", ran.stdout);
        assert!(!ran.stdout.contains('\u{1b}'), "{:?}", ran.stdout);
    }
    let ran = run(&url, &["why", JOB]).await;
    assert!(ran.stdout.ends_with("\n  aetheris signal job_1 'the aetheris key' '{}'\n"), "{}", ran.stdout);
}

#[tokio::test]
async fn agent_files_are_checked_without_a_server_and_put_under_their_name() {
    let folder = Folder::new("agents");
    let good = folder.join("good.yaml");
    let bad = folder.join("bad.yaml");
    let text = "agent: greeter\nplan:\n  nodes:\n    - { id: hello, kind: transform, output: hi }\n";
    std::fs::write(&good, text).unwrap();
    std::fs::write(&bad, "agent: greeter\nplan:\n  nodes:\n    - { id: hello, kind: dance }\n").unwrap();
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    let nowhere = "http://127.0.0.1:1";

    let ran = run(nowhere, &["agent", "check", bad]).await;
    assert_eq!(ran.exit(), Exit::CheckFailed);
    assert!(ran.stdout.starts_with(&format!("{bad}:4: plan.nodes[0].kind: ")), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("\n1 mistake\n"), "{}", ran.stdout);
    let ran = run(nowhere, &["agent", "check", bad, "--json"]).await;
    assert_eq!((ran.exit(), ran.json()["ok"].clone()), (Exit::CheckFailed, json!(false)));

    let ran = run(nowhere, &["agent", "check", good]).await;
    assert_eq!(ran.exit(), Exit::Done, "{}", ran.stdout);

    let answer = || async {
        let body = json!({ "agent": "greeter", "version": "1", "hash": hash('d') });
        (StatusCode::CREATED, body.to_string())
    };
    let url = serve(Router::new().route("/api/agents/greeter", put(answer))).await;
    let ran = run(&url, &["agent", "put", good]).await;
    assert_eq!(ran.stdout, format!("greeter version 1 created, {}…\n", "d".repeat(12)));
    assert_eq!(run(&url, &["agent", "put", bad]).await.exit(), Exit::CheckFailed);
    for (before, became) in [('d', "unchanged, "), ('e', "replaces version 1 (the same version), eeeeeeeeeeee… by ")]
    {
        let known = json!({ "agent": "greeter", "deadline": null, "description": "", "hash": hash(before), "nodes": 1,
            "plan_hash": hash('f'), "planner": "static", "updated_at": "2026-11-21T09:30:00Z", "version": "1" });
        let list = json!({ "agents": [known] }).to_string();
        let again = || async {
            let body = json!({ "agent": "greeter", "version": "1", "hash": hash('d') });
            (StatusCode::OK, body.to_string())
        };
        let routes = Router::new().route("/api/agents", get(move || async move { list }));
        let url = serve(routes.route("/api/agents/greeter", put(again))).await;
        let ran = run(&url, &["agent", "put", good]).await;
        assert!(ran.stdout.starts_with(&format!("greeter version 1 {became}{}", "d".repeat(12))), "{}", ran.stdout);
        // Of two files of one agent, the second finds what the first has put.
        let twice = run(&url, &["agent", "put", good, good]).await.stdout;
        assert!(twice.lines().nth(1).unwrap().starts_with("greeter version 1 unchanged, "), "{twice}");
        let ran = run(&url, &["--json", "agent", "put", good]).await;
        assert_eq!(ran.json()["became"], became.split([' ', ',']).next().unwrap().replace("replaces", "replaced"));
    }
}

#[tokio::test]
async fn every_page_of_agents_is_listed() {
    let page = |query: axum::extract::RawQuery| async move {
        let (name, next) = match query.0.unwrap_or_default().as_str() {
            "" => ("first", json!("first")),
            "cursor=first" => ("second", Value::Null),
            other => panic!("{other}"),
        };
        let agent = json!({ "agent": name, "deadline": null, "description": "", "hash": hash('d'), "nodes": 1,
            "plan_hash": hash('f'), "planner": "static", "updated_at": "2026-11-21T09:30:00Z", "version": "1" });
        json!({ "agents": [agent], "next_cursor": next }).to_string()
    };
    let url = serve(Router::new().route("/api/agents", get(page))).await;
    let listed = run(&url, &["agent", "list"]).await.stdout;
    assert!(listed.contains("first") && listed.contains("second"), "{listed}");
    let listed = run(&url, &["agent", "list", "--json"]).await.json();
    let names: Vec<&str> =
        listed["agents"].as_array().unwrap().iter().map(|agent| agent["agent"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second"]);
}

#[tokio::test]
async fn agents_are_listed_as_the_server_wrote_them() {
    let agent = json!({ "agent": "greeter", "deadline": null, "description": "", "hash": hash('d'), "nodes": 1,
        "of_a_later_server": true, "plan_hash": hash('f'), "planner": "static", "updated_at": "2026-11-21T09:30:00Z",
        "version": "1" });
    let list = json!({ "agents": [agent], "next_cursor": null }).to_string();
    let url = serve(Router::new().route("/api/agents", get(move || async move { list }))).await;
    assert_eq!(run(&url, &["--json", "agent", "list"]).await.json(), json!({ "agents": [agent] }));
}

/// A server that names the same page again and again, as a proxy with a cache may, fills no memory.
#[tokio::test]
async fn a_list_that_names_the_same_page_again_ends_with_an_error() {
    let page = |name: &'static str| get(move || async move { json!({ name: [], "next_cursor": "again" }).to_string() });
    let routes = Router::new().route("/api/agents", page("agents")).route("/api/waits", page("waits"));
    let url = serve(routes.route("/api/jobs", page("jobs")).route("/api/in-doubt", page("invocations"))).await;
    for words in [vec!["agent", "list"], vec!["waits"], vec!["jobs", "--all"], vec!["in-doubt"]] {
        let ran = run(&url, &words).await;
        assert_eq!(ran.exit(), Exit::Unreachable, "{words:?}");
        assert!(ran.error().contains("`next_cursor`"), "{words:?}: {}", ran.error());
    }
}

/// Some of a job's values, as if they were all of them.
#[tokio::test]
async fn a_list_of_values_that_breaks_off_is_an_error_and_not_a_shorter_list() {
    for again in [true, false] {
        let page = move |query: axum::extract::RawQuery| async move {
            if query.0.unwrap().contains("cursor=") && !again {
                return "no page".to_owned();
            }
            let output = json!({ "bytes": 4, "from": "recorded", "value": "v0" });
            let step = json!({ "input": null, "node_id": "query_order", "output": output, "status": "completed" });
            json!({ "steps": [step], "next_cursor": "again" }).to_string()
        };
        let router = job_route(job("running")).route("/api/jobs/{id}/steps", get(page));
        let ran = run(&serve(router).await, &["show", JOB]).await;
        assert_eq!(ran.exit(), Exit::Unreachable, "{again}: {}", ran.stdout);
        assert_eq!(ran.error().contains("`next_cursor`"), again, "{}", ran.error());
    }
}

/// A disk that is full.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_output_that_cannot_be_written_is_told_on_stderr_in_json_as_well() {
    let stderr = super::server::Kept::default();
    let styles = [crate::render::Style::default(); 2];
    let out = crate::out::Out::to(Box::new(Full), Box::new(stderr.clone()), true, false, styles);
    let error = out.value(&json!({})).unwrap_err();
    assert_eq!(crate::report(&out, &error), Exit::Failed);
    assert!(stderr.text().starts_with("error: the output cannot be written: "), "{}", stderr.text());
}

/// Paused before it was parked for its doubt, its row does not say that it has one.
#[tokio::test]
async fn a_paused_job_says_that_a_call_of_it_is_in_doubt() {
    let why = json!([
        { "code": "paused_by", "detail": "paused by an operator", "do": "aetheris resume", "since": "2026-11-21T09:30:00Z" },
        { "code": "in_doubt", "detail": "pay has made a call whose outcome is unknown", "do": "aetheris in-doubt",
          "since": "2026-11-21T09:30:00Z" },
    ]);
    let paused = json!({ "before_restore": false, "reason": "operator", "since": "2026-11-21T09:30:00Z" });
    let job = job_with("paused", json!({ "paused": paused }));
    let list = json!({ "jobs": [job], "next_cursor": null });
    let router = job_route(job).route("/api/jobs", get(move || async move { list.to_string() }));
    let url = serve(router.route("/api/jobs/{id}/why", get(move || async move { why.to_string() }))).await;
    for words in [vec!["show", JOB], vec!["jobs"]] {
        let ran = run(&url, &words).await;
        assert!(ran.stdout.contains("pay has made a call whose outcome is unknown"), "{}", ran.stdout);
        assert_eq!(ran.stdout.matches("paused by an operator").count(), 1, "{}", ran.stdout);
    }
}

/// Whoever mistyped a key would wait for an answer that never comes.
#[tokio::test]
async fn a_signal_that_is_kept_says_what_the_job_waits_for() {
    let answer = json!({ "payload_matches": true, "status": "kept" }).to_string();
    let router = job_route(job_with("parked", json!({ "waiting": waiting() })))
        .route("/api/jobs/{id}/signal", post(move || async move { (StatusCode::ACCEPTED, answer) }));
    let url = serve(router).await;
    let ran = run(&url, &["signal", JOB, "aprove it", "{}"]).await;
    assert!(ran.stdout.starts_with("kept: no wait with this key has begun"), "{}", ran.stdout);
    assert!(ran.stderr.contains("approval waits for another key, `approve it`. Answer it with: "), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("aetheris show {JOB}")), "{}", ran.stderr);
    let refused = json!({ "payload_matches": false, "status": "kept" }).to_string();
    let router = job_route(job("running"))
        .route("/api/jobs/{id}/signal", post(move || async move { (StatusCode::ACCEPTED, refused) }));
    let ran = run(&serve(router).await, &["signal", JOB, "k", "{}"]).await;
    assert!(ran.stdout.starts_with("not kept: an earlier signal with this key"), "{}", ran.stdout);
    assert_eq!(ran.exit(), Exit::Conflict);
    assert!(ran.stderr.contains(&format!("what is kept is listed by: aetheris show {JOB}")), "{}", ran.stderr);
    let kept = json!([{ "correlation_key": "aprove it", "received_at": "2026-11-21T09:30:00Z", "wait_type": null }]);
    let url = serve(job_route(job_with("parked", json!({ "kept": kept })))).await;
    let shown = run(&url, &["show", JOB]).await.stdout;
    assert!(shown.contains("a signal for `aprove it`; no wait has taken it"), "{shown}");
}

#[tokio::test]
async fn a_file_with_a_mistake_is_told_of_before_anything_is_made() {
    let top = Folder::new("mistake");
    let file = |name: &str| {
        let file = top.join(name);
        std::fs::write(&file, "agent: A\nplan: { nodes: [] }\n").unwrap();
        file.display().to_string()
    };
    let (one, other, data) = (file("one.yaml"), file("other.yaml"), top.join("data").display().to_string());
    let ran = run("http://127.0.0.1:1", &["dev", "--agent", &one, "--agent", &other, "--data", &data]).await;
    assert_eq!(ran.exit(), Exit::CheckFailed, "{:?}", ran.ended);
    for file in [&one, &other] {
        assert!(ran.stderr.contains(&format!("{file}:1: agent: ")), "{}", ran.stderr);
    }
    assert!(!std::path::Path::new(&data).exists());
}

/// Each page is asked for by the cursor of the one before, and by no other.
#[tokio::test]
async fn the_values_of_a_job_are_read_page_by_page_to_the_last() {
    let page = |query: axum::extract::RawQuery| async move {
        let query = query.0.unwrap();
        let cursors: Vec<&str> = query.split('&').filter_map(|part| part.strip_prefix("cursor=")).collect();
        let (number, next) = match cursors[..] {
            [] => (0, json!("one")),
            ["one"] => (1, json!("two")),
            ["two"] => (2, Value::Null),
            _ => return problem("invalid_request", 400, &format!("asked for {query}")).to_string(),
        };
        let output = json!({ "bytes": 4, "from": "recorded", "value": format!("v{number}") });
        let step = json!({ "input": null, "node_id": format!("n{number}"), "output": output, "status": "completed" });
        json!({ "steps": [step], "next_cursor": next }).to_string()
    };
    let trace = trace((0..3).map(|number| step(&format!("n{number}"), "transform", "completed")).collect());
    let mut view = job("running");
    let done = view["steps"]["query_order"].clone();
    view["steps"] = json!({ "n0": done, "n1": done, "n2": done });
    let router = Router::new()
        .route("/api/jobs/{id}", get(move || async move { view.to_string() }))
        .route("/api/jobs/{id}/trace", get(move || async move { trace.to_string() }))
        .route("/api/jobs/{id}/steps", get(page));
    let url = serve(router).await;
    for command in ["show", "trace"] {
        let ran = run(&url, &[command, JOB]).await;
        assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended);
        for value in ["v0", "v1", "v2"] {
            assert!(ran.stdout.contains(value), "{command}: {}", ran.stdout);
        }
    }
}

#[tokio::test]
async fn commands_without_a_server() {
    let nowhere = "http://127.0.0.1:1";
    let ran = run(nowhere, &["fork", JOB]).await;
    assert_eq!((ran.exit(), ran.error().as_str()), (Exit::Usage, "`fork` is not supported yet by this build"));
    let ran = run(nowhere, &["config", "show"]).await;
    assert!(ran.stdout.contains("\nworker.lease_ttl"), "{}", ran.stdout);
    let ran = run(nowhere, &["config", "check", "--config", "/does/not/exist"]).await;
    assert_eq!(ran.exit(), Exit::CheckFailed);
    let folder = Folder::new("config");
    let file = folder.join("config.yaml");
    std::fs::write(&file, "models:\n  local: { base_url: 'http://h/v1', api_key_env: AETHERIS_UNSET_KEY }\n").unwrap();
    let ran = run(nowhere, &["config", "check", "--config", file.to_str().unwrap()]).await;
    assert_eq!(ran.exit(), Exit::CheckFailed);
    assert!(ran.stdout.contains("the environment variable AETHERIS_UNSET_KEY is not set"), "{}", ran.stdout);
    std::fs::write(&file, "log: { format: text }\ntools: { env: [AETHERIS_UNSET_TOKEN] }\n").unwrap();
    let ran = run(nowhere, &["config", "check", "--config", file.to_str().unwrap()]).await;
    assert_eq!(ran.exit(), Exit::CheckFailed);
    let told = ":2: tools.env: the environment variable AETHERIS_UNSET_TOKEN is not set";
    assert!(ran.stdout.contains(told), "{}", ran.stdout);
    let ran = run(nowhere, &["completions", "bash"]).await;
    assert!(ran.stdout.contains("_aetheris"), "{}", ran.stdout);
    let ran = run(nowhere, &["guarantees"]).await;
    assert!(ran.stdout.contains("sent at most once per recorded permission"), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "{}", ran.stdout);
}

/// A server calls no model: only what runs steps reads their keys. That this one gets as far as its address shows it.
#[tokio::test]
async fn a_server_asks_for_no_models_key_and_a_worker_does() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new("keys");
    let config = folder.join("aetheris.yaml");
    let text = format!(
        "jobstore: {{ sqlite: {{ path: {} }} }}\nserver: {{ listen: '{}' }}\n\
         models: {{ openai: {{ base_url: 'http://h/v1', api_key_env: AETHERIS_UNSET_KEY }} }}\n",
        folder.join("aetheris.db").display(),
        taken.local_addr().unwrap()
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let ran = run("http://127.0.0.1:1", &["serve", "--config", config]).await;
    assert_eq!(ran.exit(), Exit::Conflict, "{}", ran.error());
    assert!(ran.error().contains("is in use"), "{}", ran.error());
    assert!(ran.error().contains("`server.listen`") && !ran.error().contains("--listen"), "{}", ran.error());
    assert!(!folder.join("aetheris.db").exists(), "a process that cannot start leaves no database behind");
    let ran = run("http://127.0.0.1:1", &["worker", "--config", config]).await;
    assert_eq!(ran.exit(), Exit::Usage, "{}", ran.error());
    assert!(ran.error().contains("AETHERIS_UNSET_KEY is not set"), "{}", ran.error());
    assert!(!ran.stderr.contains("waiting"), "what is wrong stays wrong: {}", ran.stderr);
}

/// Another key than [`KEY`].
const OTHER: &str = "key_01JD000000000000000000000A";

/// The same answer again is one answer: where only the job is named, where another call of the job is in doubt by now, and
/// where another one was answered as well.
#[tokio::test]
async fn an_answer_that_was_given_before_is_given_again() {
    let mut other = unresolved();
    other["invocation"] = json!(OTHER);
    other["job_status"] = json!("parked");
    other["status"] = json!("in_doubt");
    // Left unresolved under an earlier permit as well: the newest one counts.
    let left = vec![unresolved()];
    let paid = answered_before("pay", KEY);
    // The server writes it in capitals; whoever types it need not.
    let small = KEY.to_lowercase();
    for (open, steps, named) in [
        (Vec::new(), vec![paid.clone()], Vec::new()),
        (Vec::new(), vec![paid.clone()], vec![KEY]),
        (vec![other.clone()], vec![paid.clone()], vec![KEY]),
        (Vec::new(), vec![answered_before("mail", OTHER), paid.clone()], vec![KEY]),
        (vec![other.clone()], vec![paid.clone()], vec![small.as_str()]),
        (vec![other.clone()], vec![paid.clone()], vec![small.as_str(), "--permit", "2"]),
    ] {
        let url = serve(doubted(open, left.clone(), steps)).await;
        let arguments = ["in-doubt", "resolve", JOB].into_iter().chain(named).chain([
            "--happened",
            "--result",
            "null",
            "--note",
            "seen",
        ]);
        let ran = run(&url, &arguments.collect::<Vec<_>>()).await;
        assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
        let said = &ran.stdout;
        assert!(said.starts_with("recorded before: the call "), "{said}");
        assert!(said.contains(" happened; its first note stays. "), "{said}");
    }
    // What is named is meant, and not the only call that could be.
    let third = "key_01JD000000000000000000000B";
    for (open, left, steps) in [
        (Vec::new(), left.clone(), Vec::new()),
        (Vec::new(), Vec::new(), vec![paid.clone()]),
        (Vec::new(), left.clone(), vec![paid.clone()]),
        (vec![other.clone()], Vec::new(), Vec::new()),
        (vec![other.clone()], left.clone(), vec![paid.clone()]),
    ] {
        let url = serve(doubted(open, left, steps)).await;
        let ran =
            run(&url, &["in-doubt", "resolve", JOB, third, "--happened", "--result", "null", "--note", "seen"]).await;
        assert_eq!(ran.exit(), Exit::NotFound, "{:?} {}", ran.ended, ran.stdout);
        assert!(ran.error().starts_with(&format!("no call {third} of {JOB} is in doubt: ")), "{}", ran.error());
    }
}

/// Of several calls the one that is meant is asked for, with the names that there are.
#[tokio::test]
async fn one_of_several_calls_has_to_be_named() {
    let mut other = unresolved();
    other["invocation"] = json!(OTHER);
    other["node_id"] = json!("mail");
    let both = vec![unresolved(), other];
    for (open, left, steps, what) in [
        (both.clone(), Vec::new(), Vec::new(), "in doubt"),
        (Vec::new(), both, Vec::new(), "that were answered or left"),
        (Vec::new(), vec![unresolved()], vec![answered_before("mail", OTHER)], "that were answered or left"),
    ] {
        let url = serve(doubted(open, left, steps)).await;
        let ran = run(&url, &["in-doubt", "resolve", JOB, "--happened", "--result", "null", "--note", "seen"]).await;
        assert_eq!(ran.exit(), Exit::Usage, "{:?} {}", ran.ended, ran.stdout);
        let expected = format!("{JOB} has several calls {what}: name one of\n  {KEY} pay\n  {OTHER} mail");
        assert_eq!(ran.error(), expected);
    }
}

/// A step whose call a person has answered.
fn answered_before(node: &str, invocation: &str) -> Value {
    let mut step = step(node, "tool", "completed");
    step["tool"] = json!({
        "effect": "at_most_once", "invocation": invocation, "name": "payments.refund", "permits": 2, "version": null,
    });
    // Its first call had not happened, as a person said; so it was called again.
    step["doubts"] = json!([
        {
            "at": "2026-11-21T09:28:00Z", "note": null, "outcome": "did_not_happen", "permit": 1, "reason": "timeout",
            "resolved_at": "2026-11-21T09:29:30Z", "resolved_by": "operator",
        },
        {
            "at": "2026-11-21T09:30:00Z", "note": null, "outcome": "happened", "permit": 2, "reason": "timeout",
            "resolved_at": "2026-11-21T09:31:00Z", "resolved_by": "operator",
        },
    ]);
    step
}

/// A job with calls that are in doubt, calls that its end has left, and steps; it takes one answer only, about [`KEY`].
fn doubted(open: Vec<Value>, left: Vec<Value>, steps: Vec<Value>) -> Router {
    let trace = trace(steps).to_string();
    let resolve = |Path((_, invocation)): Path<(String, String)>, body: Bytes| async move {
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (invocation.as_str(), &body),
            (KEY, &json!({ "outcome": "happened", "permit": 2, "note": "seen", "result": null }))
        );
        let answer = json!({ "invocation": KEY, "outcome": "happened", "status": "completed" });
        (StatusCode::OK, answer.to_string())
    };
    let list = move |query: axum::extract::RawQuery| async move {
        let ended = query.0.unwrap_or_default().contains("unresolved=true");
        json!({ "invocations": if ended { left } else { open } }).to_string()
    };
    Router::new()
        .route("/api/in-doubt", get(list))
        .route("/api/jobs/{id}", get(|| async { job("parked").to_string() }))
        .route("/api/jobs/{id}/trace", get(move || async move { trace }))
        .route("/api/jobs/{id}/in-doubt/{invocation}", post(resolve))
}

/// What a job's end left unresolved is in no list of open doubts.
#[tokio::test]
async fn a_call_that_was_left_unresolved_is_found_and_hinted_at() {
    let call = unresolved();
    let list = move |query: axum::extract::RawQuery| async move {
        let left = query.0.unwrap_or_default().contains("unresolved=true");
        json!({ "invocations": if left { vec![call] } else { Vec::new() } }).to_string()
    };
    let resolve = || async {
        let answer = json!({ "invocation": KEY, "outcome": "did_not_happen", "status": "failed" });
        (StatusCode::ACCEPTED, answer.to_string())
    };
    let trace = trace(Vec::new()).to_string();
    let routes = Router::new()
        .route("/api/in-doubt", get(list))
        .route("/api/jobs/{id}", get(|| async { job("failed").to_string() }))
        .route("/api/jobs/{id}/trace", get(move || async move { trace }))
        .route("/api/jobs/{id}/in-doubt/{invocation}", post(resolve));
    let url = serve(routes).await;
    let ran = run(&url, &["in-doubt"]).await;
    assert!(ran.stderr.contains("aetheris in-doubt --unresolved"), "{}", ran.stderr);
    let ran = run(&url, &["in-doubt", "--unresolved"]).await;
    assert!(ran.stdout.contains("nothing is called") && !ran.stdout.contains("called again"), "{}", ran.stdout);
    let ran = run(&url, &["in-doubt", "resolve", JOB, "--did-not-happen", "--note", "asked"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
}

/// Commands are written for the oldest ten only: of one job there are few, whatever else is listed.
#[tokio::test]
async fn the_calls_of_one_job_are_listed() {
    let list = |query: axum::extract::RawQuery| async move {
        let query = query.0.unwrap_or_default();
        let left = query == format!("job={JOB}&unresolved=true&limit=500");
        assert!(left || query == format!("job={JOB}&limit=500"), "{query}");
        json!({ "invocations": if left { vec![unresolved()] } else { Vec::new() } }).to_string()
    };
    let url = serve(job_route(job("failed")).route("/api/in-doubt", get(list))).await;
    let ran = run(&url, &["in-doubt", "--unresolved", "--job", JOB]).await;
    assert!(ran.stdout.contains(&format!("in-doubt resolve {JOB} {KEY} --permit 1\n")), "{}", ran.stdout);
    let ran = run(&url, &["in-doubt", "--job", JOB]).await;
    let expected = format!("Those that its end left: aetheris in-doubt --unresolved --job {JOB}");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
}

/// An empty list says of what it is empty, and where else to look.
#[tokio::test]
async fn a_list_without_a_call_says_what_it_looked_for() {
    let list = || async { json!({ "invocations": [] }).to_string() };
    for (status, words, said) in [
        ("failed", "in-doubt", "no call is in doubt. Those that were given up: aetheris in-doubt --unresolved"),
        ("failed", "in-doubt --unresolved", "no call was left unresolved"),
        ("failed", "in-doubt --unresolved --job JOB", "no call of JOB was left unresolved"),
        (
            "parked",
            "in-doubt --unresolved --job JOB",
            "JOB has not ended. Those that are in doubt: aetheris in-doubt --job JOB",
        ),
        (
            "failed",
            "in-doubt --job JOB",
            "no call of JOB is in doubt. Those that its end left: aetheris in-doubt --unresolved --job JOB",
        ),
        ("parked", "in-doubt --job JOB", "no call of JOB is in doubt"),
    ] {
        let url = serve(job_route(job(status)).route("/api/in-doubt", get(list))).await;
        let line = words.replace("JOB", JOB);
        let ran = run(&url, &line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(ran.exit(), Exit::Done, "{status}, {words}: {:?}", ran.ended.err());
        assert_eq!((ran.stdout.as_str(), ran.stderr.trim_end()), ("", said.replace("JOB", JOB).as_str()), "{status}");
    }
}

/// "No call" of a job that does not exist would be believed.
#[tokio::test]
async fn the_calls_of_no_job_are_told_as_no_job() {
    let unknown = super::samples::problem("job_not_found", 404, "there is no job job_1").to_string();
    let answer = move || std::future::ready((StatusCode::NOT_FOUND, unknown.clone()));
    let list = || async { json!({ "invocations": [] }).to_string() };
    let routes = Router::new().route("/api/jobs/{id}", get(answer)).route("/api/in-doubt", get(list));
    let url = serve(routes).await;
    for words in [&["in-doubt", "--job", JOB][..], &["in-doubt", "--unresolved", "--job", JOB, "--json"]] {
        let ran = run(&url, words).await;
        assert_eq!((ran.exit(), ran.error().as_str()), (Exit::NotFound, "there is no job job_1 (job_not_found)"));
        assert_eq!(ran.stdout, "");
    }
}

/// Whoever cancels a job hears at once what may have happened; where its worker still ends it, nothing is known yet, and
/// what somebody has answered is known.
#[tokio::test]
async fn a_cancel_says_which_calls_are_in_doubt_still() {
    let call = |node: &str, answer: Value| {
        let mut call = unresolved();
        call["node_id"] = json!(node);
        call["answer"] = answer;
        call
    };
    let open = call("pay", Value::Null);
    let answered = vec![call("mail", json!("happened")), call("ship", json!("did_not_happen"))];
    let both: Vec<Value> = answered.iter().cloned().chain([open.clone()]).collect();
    for (status, end_requested, calls, told) in [
        ("cancelled", json!(null), vec![open.clone()], 1),
        ("cancelled", json!(null), both, 1),
        ("cancelled", json!(null), answered, 0),
        ("running", json!("cancel"), vec![open.clone()], 0),
    ] {
        let cancelled = json!({ "end_requested": end_requested, "status": status }).to_string();
        let list = json!({ "invocations": calls }).to_string();
        let routes = Router::new()
            .route("/api/jobs/{id}/cancel", post(move || async move { (StatusCode::ACCEPTED, cancelled) }))
            .route("/api/in-doubt", get(move || async move { list }));
        let ran = run(&serve(routes).await, &["cancel", JOB]).await;
        assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
        assert_eq!(ran.stderr.matches("still in doubt").count(), told, "{status}: {}", ran.stderr);
        assert_eq!(ran.stderr.contains("the call of pay is still in doubt"), told > 0, "{status}: {}", ran.stderr);
        let list = format!("aetheris in-doubt --unresolved --job {JOB} lists it");
        assert_eq!(ran.stderr.contains(&list), told > 0, "{status}: {}", ran.stderr);
    }
}

/// A page of jobs that cannot be read is empty, and those behind it are there.
#[tokio::test]
async fn an_empty_page_that_goes_on_is_not_the_end_of_a_list() {
    let list = |query: axum::extract::RawQuery| async move {
        if query.0.unwrap_or_default().contains("cursor=") {
            json!({ "jobs": [job("pending")], "next_cursor": null }).to_string()
        } else {
            json!({ "jobs": [], "next_cursor": JOB }).to_string()
        }
    };
    let ran = run(&serve(Router::new().route("/api/jobs", get(list))).await, &["jobs"]).await;
    assert!(ran.stdout.contains(JOB), "{} {}", ran.stdout, ran.stderr);
}

/// The name of a file is somebody else's text as well.
#[tokio::test]
async fn a_file_that_cannot_be_read_moves_no_cursor() {
    let url = serve(Router::new()).await;
    for word in ["check", "put"] {
        let ran = run(&url, &["agent", word, "no\u{1b}[2Jsuch.yaml"]).await;
        assert_eq!(ran.exit(), Exit::CheckFailed);
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{:?} {:?}", ran.stdout, ran.stderr);
    }
}

/// A running clock alone does not say that nothing will happen for a while.
#[tokio::test]
async fn watch_says_why_a_job_is_pending() {
    let why = json!([{
        "code": "session_busy", "detail": "its session is busy: job_1 is parked and comes first",
        "do": "aetheris why job_1", "since": "2026-11-21T09:30:00Z",
    }]);
    let events = [event(5, "job_completed", &json!({ "answer": null }))];
    let router = ending(job("pending"), job("completed"), &events);
    let url = serve(router.route("/api/jobs/{id}/why", get(move || async move { why.to_string() }))).await;
    let ran = run_on(&url, &["watch", JOB], true).await;
    assert!(ran.stdout.contains("pending: its session is busy: job_1 is parked"), "{}", ran.stdout);
}

/// A worker that is there takes a job within a moment, also after a wait: only then is it said that there is none.
#[tokio::test]
async fn a_terminal_is_not_alarmed_before_a_worker_has_had_its_moment() {
    let why = json!([{
        "code": "no_worker", "detail": "it is ready and no worker has taken it", "do": "aetheris worker --config FILE",
        "since": "2026-11-21T09:30:00Z",
    }]);
    let events = [event(5, "job_completed", &json!({ "answer": null }))];
    let router = ending(job("pending"), job("completed"), &events);
    let url = serve(router.route("/api/jobs/{id}/why", get(move || async move { why.to_string() }))).await;
    let ran = run_on(&url, &["watch", JOB], true).await;
    assert!(ran.stdout.contains("completed") && !ran.stdout.contains("no worker"), "{}", ran.stdout);
}

#[tokio::test]
async fn watch_without_a_terminal_says_why_a_job_is_pending() {
    let why = json!([{
        "code": "not_before", "detail": "it was sent for later", "do": "aetheris watch job_1",
        "since": "2026-11-21T09:30:00Z", "until": "2126-11-21T09:30:00Z",
    }]);
    let events = [event(5, "job_completed", &json!({ "answer": null }))];
    let router = ending(job("pending"), job("completed"), &events);
    let url = serve(router.route("/api/jobs/{id}/why", get(move || async move { why.to_string() }))).await;
    let ran = run(&url, &["watch", JOB]).await;
    assert!(ran.stderr.contains("pending: it was sent for later (until 2126-11-21 09:30:00Z, in "), "{}", ran.stderr);
}

/// Whoever sends it can still change it: at the deadline nobody looks.
#[tokio::test]
async fn a_message_that_can_only_fail_is_told_when_it_is_sent() {
    for (fails, until) in [
        (true, "2026-11-27T09:30:00Z"),
        // At one moment the deadline comes first.
        (true, "2026-11-28T09:30:00Z"),
        (false, "2026-11-28T09:30:00Z"),
    ] {
        let why = json!([{ "code": "not_before", "detail": "it fails at the deadline", "do": "aetheris cancel J",
            "fails": fails, "since": "2026-11-21T09:30:00Z", "until": until }]);
        let router = sent(Router::new()).route("/api/jobs/{id}/why", get(move || async move { why.to_string() }));
        let url = serve(router).await;
        let ran = run(&url, &["send", "refund", "hi", "--run-at", "2026-11-28T09:30:00Z"]).await;
        assert_eq!((ran.exit(), ran.stdout), (Exit::Done, format!("{JOB}\n")));
        let told = format!(
            "warning: it fails at the deadline\nend it with: aetheris cancel {JOB}\nthen send it again for another time, with another --key if you gave one\n"
        );
        assert_eq!(ran.stderr.starts_with(&told), fails, "{until}: {}", ran.stderr);
        // Whoever reads the answer by a program has a log of what was said beside it.
        let ran = run(&url, &["send", "refund", "hi", "--run-at", "2026-11-28T09:30:00Z", "--json"]).await;
        assert_eq!(ran.stderr == told, fails, "{until}: {}", ran.stderr);
        serde_json::from_str::<serde_json::Value>(&ran.stdout).unwrap();
        // Of one that is not sent for later there is no such reason, and nobody asks.
        assert!(!run(&url, &["send", "refund", "hi"]).await.stderr.contains("deadline"));
    }
}

#[tokio::test]
async fn kept_signals_have_lines_of_their_own_beside_the_reason() {
    let kept = |key: &str| json!({ "correlation_key": key, "received_at": "2026-11-21T09:30:00Z", "wait_type": null });
    let why = json!([{ "code": "waiting_approval", "detail": "ask waits for a person", "do": "aetheris signal J",
        "kept": [kept("k1"), kept("k2"), kept("k1")], "since": "2026-11-21T09:30:00Z" }]);
    let url = serve(Router::new().route("/api/jobs/{id}/why", get(move || async move { why.to_string() }))).await;
    let expected = "waiting_approval  ask waits for a person
  since 2026-11-21 09:30:00Z (3d ago)
  aetheris signal J
2 signals for `k1` are kept, the first 3d ago; no wait has taken them
kept 3d ago: a signal for `k2`; no wait has taken it
";
    assert_eq!(run(&url, &["why", JOB]).await.stdout, expected);
}

#[tokio::test]
async fn an_event_behind_the_last_is_told_as_such() {
    let empty = || async { json!({ "events": [], "next_after": null }).to_string() };
    let router = job_route(job_with("completed", json!({ "seq": 4 }))).route("/api/jobs/{id}/events", get(empty));
    let url = serve(stream(router, &[])).await;
    for follow in [&[][..], &["--follow"]] {
        for (after, told) in [("9999", true), ("4", true), ("3", false), ("0", false)] {
            let words = [&["events", JOB, "--after", after], follow].concat();
            let ran = tokio::select! {
                ran = run(&url, &words) => ran,
                // One that goes on waits for more events.
                () = tokio::time::sleep(std::time::Duration::from_secs(1)), if !told => continue,
            };
            assert_eq!((ran.exit(), ran.stdout.as_str()), (Exit::Done, ""));
            let said = format!("there is no event after {after}: the job has ended, and its last event is 4\n");
            assert_eq!(ran.stderr == said, told, "{words:?}: {}", ran.stderr);
        }
    }
}

/// Every command says of what is no job that it is none.
#[tokio::test]
async fn what_is_no_job_id_is_no_job_for_the_list_of_doubts_either() {
    for id in ["nope", "", " job_01JD0000000000000000000001"] {
        let ran = run("http://127.0.0.1:9", &["in-doubt", "--job", id]).await;
        assert_eq!(ran.exit(), Exit::NotFound);
        assert!(ran.error().starts_with(&format!("`{id}` is not a job id")), "{}", ran.error());
    }
}

#[tokio::test]
async fn mistakes_of_a_configuration_fit_the_terminal() {
    let folder = Folder::new("narrow");
    let file = folder.join("narrow.yaml");
    std::fs::write(&file, "worker: { lease_ttl: 10s, heartbeat: 9s }\ntools: { env: [AETHERIS_UNSET_TOKEN] }\n")
        .unwrap();
    let words = ["config", "check", "--config", file.to_str().unwrap()];
    let ran = super::server::run_at("http://127.0.0.1:9", &words, 60, true).await;
    assert_eq!(ran.exit(), Exit::CheckFailed);
    assert!(ran.stdout.lines().count() > 3, "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|line| crate::render::width(line) <= 60), "{}", ran.stdout);
}

/// The head of a live list is drawn over like the rest: none of its lines is broken by the terminal.
#[tokio::test]
async fn the_head_of_a_live_list_fits_a_narrow_terminal() {
    let paused = json!({ "before_restore": true, "reason": "operator", "since": "2026-11-21T09:30:01Z" });
    for job in [
        job_with("completed", json!({ "agent": "an-agent-with-a-name-that-is-long-enough-for-two", "result": 1 })),
        job_with("cancelled", json!({ "paused": paused })),
    ] {
        let url = serve(job_route(job)).await;
        let ran = super::server::run_at(&url, &["watch", JOB], 60, true).await;
        let head = ran.stdout.split("✓").next().unwrap();
        assert!(head.contains(JOB) && head.lines().count() > 1, "{}", ran.stdout);
        assert!(head.lines().all(|line| crate::render::width(line) <= 60), "{}", ran.stdout);
    }
}

/// Of many steps those around the first that is open, and how many others there are.
#[tokio::test]
async fn a_live_list_of_many_steps_shows_those_that_matter() {
    for (open, first, last) in [(0, 0, 17), (9, 0, 17), (10, 1, 18), (20, 11, 28), (31, 22, 39), (39, 22, 39)] {
        let name = |n: usize| format!("s{n:02}");
        let step = |n: usize| {
            let status = if n < open { "completed" } else { "pending" };
            json!({ "status": status, "attempt": 0, "started_at": null, "finished_at": null })
        };
        let steps: serde_json::Map<String, Value> = (0..40).map(|n| (name(n), step(n))).collect();
        let running = job_with("running", json!({ "steps": steps }));
        let done = job_with("completed", json!({ "steps": steps, "result": 1 }));
        let events = [event(5, "job_completed", &json!({ "answer": { "value": 1 } }))];
        let ran = run_on(&serve(ending(running, done, &events)).await, &["watch", JOB], true).await;
        let drawn = ran.stdout.split("  \u{2026} and 22 more\n").next().unwrap();
        let shown: Vec<usize> = (0..40).filter(|n| drawn.contains(&name(*n))).collect();
        assert_eq!(shown, (first..=last).collect::<Vec<_>>(), "{open}: {drawn}");
        // At the end nothing is left out.
        let end = ran.stdout.rsplit("\u{1b}[J").next().unwrap();
        assert!((0..40).all(|n| end.contains(&name(n))) && !end.contains(" more"), "{end}");
    }
}

/// What else is said beside a list, and what where it is empty.
#[tokio::test]
async fn an_empty_list_says_so_and_a_longer_one_that_it_goes_on() {
    let page = |jobs: Value, next: Value| json!({ "jobs": jobs, "next_cursor": next }).to_string();
    for (jobs, next, said) in [
        (json!([]), Value::Null, "no jobs\n"),
        (json!([job("running")]), Value::Null, ""),
        (json!([job("running")]), json!("c"), "there are more: --limit or --all shows them\n"),
    ] {
        let answer = page(jobs, next);
        let url = serve(Router::new().route("/api/jobs", get(|| async { answer }))).await;
        let ran = run(&url, &["jobs"]).await;
        assert_eq!((ran.exit(), ran.stderr.as_str()), (Exit::Done, said));
    }
    let waits = || async { json!({ "waits": [], "next_cursor": null }).to_string() };
    let ran = run(&serve(Router::new().route("/api/waits", get(waits))).await, &["waits"]).await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "nothing waits for anyone\n"));
}

/// Each is a question of its own: so many are asked, of the first of a list.
#[tokio::test]
async fn reasons_are_asked_for_the_first_of_a_long_list() {
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&asked);
    let id = |n: usize| format!("job_01JD00000000000000000000{n:02}");
    let jobs: Vec<Value> = (10..40).map(|n| job_with("pending", json!({ "id": id(n) }))).collect();
    let page = json!({ "jobs": jobs, "next_cursor": null }).to_string();
    let why = move |Path(job): Path<String>| async move {
        kept.lock().unwrap().push(job);
        json!([]).to_string()
    };
    let router =
        Router::new().route("/api/jobs", get(move || async move { page })).route("/api/jobs/{id}/why", get(why));
    run(&serve(router).await, &["jobs"]).await;
    let mut asked = asked.lock().unwrap().clone();
    asked.sort_unstable();
    assert_eq!(asked, (10..30).map(id).collect::<Vec<_>>());
}
