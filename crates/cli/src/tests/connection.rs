//! The client: what a server's answers and a connection's failures become.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::{Value, json};

use super::samples::{JOB, event, job, problem, sse};
use super::server::{Kept, run, serve};
use crate::client::{Client, Follow, News};
use crate::error::Error;
use crate::exit::Exit;
use crate::out::Out;
use crate::render::Style;

fn client(url: &str) -> Client {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    Client::new(url).unwrap()
}

#[tokio::test]
async fn a_problem_is_typed_and_its_words_are_shown() {
    let answer = || async {
        let body = problem("job_not_found", 404, "there is no job job_1").to_string();
        (StatusCode::NOT_FOUND, [("content-type", "application/problem+json")], body)
    };
    let url = serve(Router::new().route("/api/jobs/{id}", get(answer))).await;
    let ran = run(&url, &["show", JOB]).await;
    assert_eq!(ran.exit(), Exit::NotFound);
    assert_eq!(ran.error(), "there is no job job_1 (job_not_found)");
}

#[tokio::test]
async fn mistakes_of_an_agent_file_are_all_shown() {
    let mut body = problem("invalid_agent", 422, "the file has mistakes");
    body["errors"] =
        json!([{ "path": "plan.nodes[0].tool", "line": 7, "code": "unknown_tool", "message": "no such tool" }]);
    let answer = || async move { (StatusCode::UNPROCESSABLE_ENTITY, body.to_string()) };
    let url = serve(Router::new().route("/api/agents", get(answer))).await;
    let ran = run(&url, &["agent", "list"]).await;
    assert_eq!(ran.exit(), Exit::CheckFailed);
    assert!(ran.error().ends_with("\n  line 7: plan.nodes[0].tool: no such tool"), "{}", ran.error());
}

#[tokio::test]
async fn nobody_there_is_exit_5_with_what_to_do() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ran = run(&url, &["jobs"]).await;
    assert_eq!(ran.exit(), Exit::Unreachable);
    assert!(ran.error().contains(&format!("is `aetheris dev` running at {url}?")), "{}", ran.error());
}

#[tokio::test]
async fn something_else_than_a_server_of_ours_is_named() {
    let router = Router::new()
        .route("/api/jobs", get(|| async { "<html>" }))
        .route("/api/agents", get(|| async { (StatusCode::BAD_GATEWAY, "<html>") }));
    let url = serve(router).await;
    let ran = run(&url, &["jobs"]).await;
    assert_eq!(ran.exit(), Exit::Unreachable);
    assert!(ran.error().contains("something unexpected to GET /api/jobs"), "{}", ran.error());
    let ran = run(&url, &["agent", "list"]).await;
    assert!(ran.error().contains("status 502"), "{}", ran.error());
}

#[tokio::test]
async fn names_are_escaped_and_a_path_before_the_api_is_kept() {
    let echo = |request: Request| async move {
        let uri = request.uri().to_string();
        (StatusCode::BAD_REQUEST, problem("invalid_request", 400, &uri).to_string())
    };
    let url = serve(Router::new().fallback(echo)).await;
    let ran = run(&format!("{url}/behind/"), &["show", "a/b?c"]).await;
    assert_eq!(ran.error(), "/behind/api/jobs/a%2Fb%3Fc (invalid_request)");
    assert_eq!(ran.exit(), Exit::Usage);
    let ran = run(&url, &["jobs", "--label", "team=a&b"]).await;
    assert_eq!(ran.error(), "/api/jobs?label=team%3Da%26b&limit=20 (invalid_request)");
}

#[tokio::test]
async fn a_password_in_the_servers_url_is_printed_nowhere() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    drop(listener);
    let commands: [&[&str]; 5] = [
        &["jobs"],
        &["send", "refund", "hi", "--wait"],
        &["watch", JOB],
        &["agent", "list", "--json"],
        &["events", JOB, "--follow", "--json"],
    ];
    for words in commands {
        let ran = run(&format!("http://operator:hunter2@{host}/"), words).await;
        let error = ran.ended.unwrap_err();
        let all = [ran.stdout, ran.stderr, error.to_string(), error.message(), format!("{error:?}")].concat();
        assert!(!all.contains("hunter2") && !all.contains("operator"), "{words:?}: {all}");
        assert!(all.contains(&format!("http://{host}")), "{words:?}: {all}");
    }
    for text in ["operator:hunter2@host:8080", "operator:hunter2@", "ftp://operator:hunter2@host", "//a:hunter2@"] {
        let error = Client::new(text).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let client = client("http://operator:hunter2@host");
    assert!(!format!("{client:?}").contains("hunter2"));
}

#[tokio::test]
async fn the_commands_to_copy_have_no_password() {
    let sent = || async { (StatusCode::ACCEPTED, json!({ "job_id": JOB, "status": "pending" }).to_string()) };
    let url = serve(Router::new().route("/api/agents/{agent}/message", axum::routing::post(sent))).await;
    let with_password = url.replace("http://", "http://operator:hunter2@");
    let ran = super::server::run_elsewhere(&with_password, &["send", "refund", "hi"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended);
    assert!(ran.stderr.contains(&format!("aetheris --server {url} watch {JOB}")), "{}", ran.stderr);
    assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
}

/// One life of a server on this address, which streams these events and then nothing: its connections end
/// with its runtime.
async fn life(address: std::net::SocketAddr, events: &[Value]) -> tokio::runtime::Runtime {
    let text: String = events.iter().map(sse).collect();
    let stream = move || {
        let begun = futures_util::stream::once(std::future::ready(Ok::<_, std::io::Error>(text.clone())));
        let open = futures_util::StreamExt::chain(begun, futures_util::stream::pending());
        async move { ([("content-type", "text/event-stream")], Body::from_stream(open)) }
    };
    let router = Router::new().route("/api/jobs/{id}/events/stream", get(stream));
    // The life before may not have closed its socket yet.
    let listener = loop {
        match std::net::TcpListener::bind(address) {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        axum::serve(listener, router).await.unwrap();
    });
    runtime
}

#[tokio::test]
async fn whoever_follows_is_told_at_once_that_the_server_has_gone_and_that_it_is_back() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut first = Some(life(free, &history()[..2]).await);
    let mut follow = Follow::start(&client(&format!("http://{free}")), JOB, 0);
    let mut seen = Vec::new();
    let mut second = None;
    while let Some(news) = follow.news().await.unwrap() {
        seen.push(match news {
            News::Event(event) => event.seq.to_string(),
            News::Away { reason, .. } => {
                assert!(!reason.is_empty());
                second = Some(life(free, &history()[2..]).await);
                "away".to_owned()
            }
            News::Back => "back".to_owned(),
        });
        if seen.len() == 2
            && let Some(first) = first.take()
        {
            first.shutdown_background();
        }
    }
    assert_eq!(seen, ["1", "2", "away", "back", "3", "4"]);
    second.unwrap().shutdown_background();
}

#[test]
fn a_server_that_is_no_url_is_usage() {
    for text in ["localhost:8080", "ftp://host", "nonsense", ""] {
        let error = Client::new(text).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage, "{text}");
    }
}

fn history() -> Vec<Value> {
    vec![
        event(1, "job_created", &json!({ "agent": "refund" })),
        event(2, "plan_generated", &json!({ "plan_version": 1 })),
        event(3, "node_started", &json!({ "node": "a", "try": 1 })),
        event(4, "job_completed", &json!({ "answer": { "node": "a" } })),
    ]
}

async fn followed(url: &str, after: u64) -> Result<Vec<u64>, Error> {
    let mut follow = Follow::start(&client(url), JOB, after);
    let mut seen = Vec::new();
    while let Some(event) = follow.next().await? {
        seen.push(event.seq);
    }
    Ok(seen)
}

/// Breaks the first connection after two events, and repeats one afterwards.
async fn broken_stream(State(calls): State<Arc<AtomicU32>>, headers: HeaderMap) -> impl IntoResponse {
    let history = history();
    let last: usize = headers["last-event-id"].to_str().unwrap().parse().unwrap();
    let events = match calls.fetch_add(1, Ordering::SeqCst) {
        0 => &history[..2],
        _ => &history[last.saturating_sub(1)..],
    };
    (StatusCode::OK, [("content-type", "text/event-stream")], events.iter().map(sse).collect::<String>())
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_where_it_was() {
    let calls = Arc::new(AtomicU32::new(0));
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(broken_stream))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
        .with_state(Arc::clone(&calls));
    let url = serve(router).await;
    assert_eq!(followed(&url, 0).await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// Pieces of models' answers come between the events, and are none: the stream goes on behind them.
#[tokio::test]
async fn what_a_model_says_is_no_event() {
    let heard = "event: delta\ndata: {\"attempt\":\"a\",\"path\":\"n\",\"from\":0,\"text\":\"Hi\"}\n\n";
    let text: String = history().iter().map(|event| format!("{heard}{}", sse(event))).collect();
    let answer = move || async move { ([("content-type", "text/event-stream")], text) };
    let url = serve(Router::new().route("/api/jobs/{id}/events/stream", get(answer))).await;
    assert_eq!(followed(&url, 0).await.unwrap(), [1, 2, 3, 4]);
}

/// The job ends while nobody is connected: its last events come with the next connection.
#[tokio::test]
async fn a_stream_that_broke_before_the_end_is_taken_up_though_the_job_has_ended() {
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(broken_stream))
        .route("/api/jobs/{id}", get(|| async { job("completed").to_string() }))
        .with_state(Arc::default());
    let url = serve(router).await;
    assert_eq!(followed(&url, 0).await.unwrap(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_job_that_has_ended_before_is_not_followed_for_ever() {
    let router = Router::new()
        .route(
            "/api/jobs/{id}/events/stream",
            get(|| async { ([("content-type", "text/event-stream")], Body::empty()) }),
        )
        .route("/api/jobs/{id}", get(|| async { job("completed").to_string() }));
    let url = serve(router).await;
    assert_eq!(followed(&url, 4).await.unwrap(), Vec::<u64>::new());
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_asked_again_and_again() {
    let calls = Arc::new(AtomicU32::new(0));
    let page = |State(calls): State<Arc<AtomicU32>>| async move {
        let (from, to) = if calls.fetch_add(1, Ordering::SeqCst) == 0 { (0, 2) } else { (2, 4) };
        json!({ "events": history()[from..to], "next_after": null }).to_string()
    };
    let router = Router::new()
        .route("/api/jobs/{id}/events", get(page))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
        .with_state(calls);
    let url = serve(router).await;
    assert_eq!(followed(&url, 0).await.unwrap(), [1, 2, 3, 4]);
}

/// A clean restart behind a proxy: the stream ends in good order, and the proxy answers for the server meanwhile. So does
/// a server whose store is away for a moment.
#[tokio::test]
async fn a_server_that_cannot_answer_for_a_moment_is_asked_again() {
    let busy = |code: &str, status: u16| (status, problem(code, status, "not now").to_string());
    for first in [(502, "<html>".to_owned()), busy("store_unavailable", 503), busy("rate_limited", 429)] {
        let looks = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&looks);
        let look = move || async move {
            let (status, body) =
                if seen.fetch_add(1, Ordering::SeqCst) == 0 { first } else { (200, job("running").to_string()) };
            (StatusCode::from_u16(status).unwrap(), body)
        };
        let router = Router::new()
            .route("/api/jobs/{id}/events/stream", get(broken_stream))
            .route("/api/jobs/{id}", get(look))
            .with_state(Arc::default());
        assert_eq!(followed(&serve(router).await, 0).await.unwrap(), [1, 2, 3, 4]);
        assert_eq!(looks.load(Ordering::SeqCst), 1);
    }
}

/// Too many follow already, and then the pages are refused for a moment as well.
#[tokio::test]
async fn a_page_that_is_refused_for_a_moment_is_asked_for_again() {
    let calls = Arc::new(AtomicU32::new(0));
    let crowded = || async { (StatusCode::SERVICE_UNAVAILABLE, problem("overloaded", 503, "too many").to_string()) };
    let page = |State(calls): State<Arc<AtomicU32>>| async move {
        match calls.fetch_add(1, Ordering::SeqCst) {
            0 => (StatusCode::OK, json!({ "events": history()[..2], "next_after": null }).to_string()),
            1 => (StatusCode::SERVICE_UNAVAILABLE, problem("overloaded", 503, "too many").to_string()),
            _ => (StatusCode::OK, json!({ "events": history()[2..], "next_after": null }).to_string()),
        }
    };
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(crowded))
        .route("/api/jobs/{id}/events", get(page))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
        .with_state(Arc::clone(&calls));
    assert_eq!(followed(&serve(router).await, 0).await.unwrap(), [1, 2, 3, 4]);
}

/// Pages come, and whether the job has ended cannot be learned.
#[tokio::test(start_paused = true)]
async fn without_a_stream_a_server_that_cannot_answer_is_told_and_given_up() {
    let none = || async { StatusCode::NOT_FOUND };
    let page = || async { json!({ "events": [], "next_after": null }).to_string() };
    let away = || async { (StatusCode::SERVICE_UNAVAILABLE, problem("store_unavailable", 503, "not now").to_string()) };
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(none))
        .route("/api/jobs/{id}/events", get(page))
        .route("/api/jobs/{id}", get(away));
    let mut follow = Follow::start(&client(&serve(router).await), JOB, 0);
    let news = tokio::select! {
        news = follow.news() => news.unwrap(),
        () = tokio::time::sleep(std::time::Duration::from_secs(60)) => panic!("nothing is said"),
    };
    assert!(matches!(&news, Some(News::Away { reason, .. }) if reason.contains("not now")), "{news:?}");
}

/// A mistake of the server is no absence: the same question would meet it again.
#[tokio::test]
async fn an_internal_error_ends_the_following_at_once() {
    let broken = || async { (StatusCode::INTERNAL_SERVER_ERROR, problem("internal", 500, "a bug").to_string()) };
    let url = serve(Router::new().fallback(broken)).await;
    assert!(followed(&url, 0).await.unwrap_err().to_string().contains("a bug"));
    assert!(run(&url, &["watch", JOB]).await.error().contains("a bug"));
}

/// A stopped process, or a full queue: the kernel takes the connection.
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_the_connection_and_says_nothing_is_told_and_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut follow = Follow::start(&client(&format!("http://{}", listener.local_addr().unwrap())), JOB, 0);
    let began = tokio::time::Instant::now();
    let news = follow.news().await.unwrap();
    assert!(matches!(&news, Some(News::Away { reason, .. }) if reason.contains("has not answered")), "{news:?}");
    assert_eq!(began.elapsed().as_secs(), 20);
    let error = follow.news().await.unwrap_err();
    assert_eq!(error.exit(), Exit::Unreachable);
    assert!((60..90).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

/// It answers once, and never again.
#[tokio::test(start_paused = true)]
async fn a_timeout_is_kept_whatever_the_server_does() {
    for command in [&["watch", JOB, "--timeout", "3s"][..], &["watch", JOB, "--timeout", "3s", "--json"]] {
        let calls = Arc::new(AtomicU32::new(0));
        let look = |State(calls): State<Arc<AtomicU32>>| async move {
            if calls.fetch_add(1, Ordering::SeqCst) > 0 {
                std::future::pending::<()>().await;
            }
            job("running").to_string()
        };
        let router = Router::new().route("/api/jobs/{id}", get(look));
        let router = router.fallback(std::future::pending::<()>).with_state(calls);
        let url = serve(router).await;
        let began = tokio::time::Instant::now();
        let ran = run(&url, command).await;
        assert_eq!(ran.exit(), Exit::Unreachable, "{:?}", ran.ended);
        assert!((3..10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
}

/// Nobody waits for a server that was never there.
#[tokio::test]
async fn a_server_that_was_never_there_is_given_up_at_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut follow = Follow::start(&client(&url), JOB, 0);
    let error = follow.news().await.unwrap_err();
    assert!(error.exit() == Exit::Unreachable && matches!(error, Error::Unreachable { .. }), "{error}");
}

/// A connection that died without a word, as one does behind a router that forgot it.
#[tokio::test(start_paused = true)]
async fn a_stream_that_says_nothing_for_long_is_made_anew() {
    let stream = |State(calls): State<Arc<AtomicU32>>, headers: HeaderMap| async move {
        let last: usize = headers["last-event-id"].to_str().unwrap().parse().unwrap();
        let most = if calls.fetch_add(1, Ordering::SeqCst) == 0 { 2 } else { 4 };
        let text = history().iter().take(most).skip(last).map(sse).collect::<String>();
        let begun = futures_util::stream::once(std::future::ready(Ok::<_, std::io::Error>(text)));
        let open = futures_util::StreamExt::chain(begun, futures_util::stream::pending());
        ([("content-type", "text/event-stream")], Body::from_stream(open))
    };
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(stream))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
        .with_state(Arc::default());
    let url = serve(router).await;
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(600);
    let seen = tokio::time::timeout_at(until, followed(&url, 0)).await;
    assert_eq!(seen.unwrap().unwrap(), [1, 2, 3, 4]);
}

/// What a server refuses for a moment, and what it does not have: each is met in its own way.
#[tokio::test]
async fn what_a_refused_stream_means_is_told_by_its_code_and_status() {
    for (status, code, again) in [
        (429, "rate_limited", true),
        (503, "store_unavailable", true),
        (500, "internal", false),
        (400, "invalid_request", false),
        (401, "unauthorized", false),
        (403, "forbidden", false),
        (409, "state_conflict", false),
    ] {
        let calls = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&calls);
        let stream = move |headers: HeaderMap| async move {
            let last: usize = headers["last-event-id"].to_str().unwrap().parse().unwrap();
            match seen.fetch_add(1, Ordering::SeqCst) {
                // Once there: it is refused only afterwards.
                0 => (StatusCode::OK, history()[..2].iter().map(sse).collect::<String>()),
                1 => (StatusCode::from_u16(status).unwrap(), problem(code, status, "no").to_string()),
                _ => (StatusCode::OK, history()[last..].iter().map(sse).collect::<String>()),
            }
        };
        let router = Router::new()
            .route("/api/jobs/{id}/events/stream", get(stream))
            .route("/api/jobs/{id}", get(|| async { job("running").to_string() }));
        let followed = followed(&serve(router).await, 0).await;
        match again {
            true => assert_eq!(followed.unwrap(), [1, 2, 3, 4], "{code}"),
            false => assert!(matches!(followed.unwrap_err(), Error::Problem(said) if said.code.as_str() == code)),
        }
    }
}

/// A message that never left is one that nobody has accepted.
#[tokio::test]
async fn a_message_that_never_left_was_not_accepted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = run(&url, &["send", "refund", "{}"]).await.error();
    assert!(error.contains("no answer from") && !error.contains("may have been accepted"), "{error}");
}

#[tokio::test]
async fn a_job_that_does_not_exist_is_said_at_once() {
    let answer = || async { (StatusCode::NOT_FOUND, problem("job_not_found", 404, "no").to_string()) };
    let url = serve(Router::new().route("/api/jobs/{id}/events/stream", get(answer))).await;
    assert_eq!(followed(&url, 0).await.unwrap_err().exit(), Exit::NotFound);
}

/// A server that reads a request and closes the connection without a word.
fn silent() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut connection, _)) = listener.accept() {
            let _read = std::io::Read::read(&mut connection, &mut [0; 65_536]);
        }
    });
    url
}

/// Nobody knows whether it was accepted: saying "no answer" alone makes people send a second refund.
#[tokio::test]
async fn what_may_have_been_accepted_is_said_with_how_to_send_it_again() {
    let url = silent();
    let ran = run(&url, &["send", "refund", "{}"]).await;
    assert_eq!(ran.exit(), Exit::Unreachable);
    let error = ran.error();
    assert!(error.contains("may have been accepted"), "{error}");
    let key = error.split("--key ").nth(1).unwrap().split(':').next().unwrap();
    let again = run(&url, &["send", "refund", "{}"]).await.error();
    assert!(key.starts_with("send-") && !again.contains(key), "{error}\n{again}");
    let given = run(&url, &["send", "refund", "{}", "--key", "order A-1"]).await.error();
    assert!(given.contains("--key 'order A-1'"), "{given}");
    for words in [&["signal", JOB, "k", "{}"][..], &["cancel", JOB], &["pause", JOB]] {
        let ran = run(&url, words).await;
        assert_eq!(ran.exit(), Exit::Unreachable);
        assert!(ran.error().contains("may have been accepted"), "{}", ran.error());
        assert!(ran.error().contains("run the same command again"), "{}", ran.error());
    }
    // A question is only asked again.
    let asked = run(&url, &["show", JOB]).await.error();
    assert!(!asked.contains("accepted"), "{asked}");
}

#[tokio::test]
async fn every_message_has_a_key_of_its_own() {
    let keys = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&keys);
    let sent = move |headers: HeaderMap| async move {
        kept.lock().unwrap().push(headers["idempotency-key"].to_str().unwrap().to_owned());
        (StatusCode::ACCEPTED, json!({ "job_id": JOB, "status": "pending" }).to_string())
    };
    let url = serve(Router::new().route("/api/agents/{agent}/message", axum::routing::post(sent))).await;
    for _ in 0..2 {
        assert_eq!(run(&url, &["send", "refund", "{}"]).await.exit(), Exit::Done);
    }
    let keys = keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] != keys[1], "{keys:?}");
}

#[tokio::test]
async fn https_to_a_server_without_tls_says_so() {
    let url = serve(Router::new()).await.replace("http://", "https://");
    let ran = run(&url, &["jobs"]).await;
    assert!(ran.error().contains("does not speak TLS"), "{}", ran.error());
}

/// An error that repeats its cause in its own words says it once.
#[test]
fn a_cause_is_said_once() {
    let cause = std::io::Error::other("nodir/b.db-part cannot be made");
    let error = aetheris_store::StoreError::new(aetheris_store::ErrorKind::Unavailable, "backup", cause);
    let said = Error::Internal(error.into()).to_string();
    assert_eq!(said.matches("cannot be made").count(), 1, "{said}");
    let said = Error::Internal(anyhow::anyhow!("inner").context("outer")).to_string();
    assert_eq!(said, "outer: inner");
}

#[tokio::test]
async fn what_the_detail_says_already_is_not_said_again() {
    let mut body = problem("invalid_payload", 400, "the payload does not fit the schema: /a: must be true");
    body["errors"] = json!([{ "path": "/a", "line": 0, "code": "does_not_fit", "message": "must be true" }]);
    let answer = || async move { (StatusCode::BAD_REQUEST, body.to_string()) };
    let url = serve(Router::new().route("/api/jobs/{id}/signal", axum::routing::post(answer))).await;
    let error = run(&url, &["signal", JOB, "k", "{}"]).await.error();
    assert_eq!(error.matches("must be true").count(), 1, "{error}");
}

#[tokio::test]
async fn an_empty_message_or_payload_is_refused_before_it_is_sent() {
    for words in [&["send", "refund", ""][..], &["signal", JOB, "k", ""]] {
        let ran = run("http://127.0.0.1:9", words).await;
        assert_eq!(ran.exit(), Exit::Usage);
        assert!(
            ran.error().contains("is empty: is a variable of the shell not set, or a file empty?"),
            "{}",
            ran.error()
        );
    }
}

/// Follows over streams that end, or break, after a minute in which each brings so many events.
async fn followed_over(cuts: &'static [usize], breaks: bool) -> Result<Vec<u64>, Error> {
    let stream = move |State(calls): State<Arc<AtomicU32>>, headers: HeaderMap| async move {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        let last: usize = headers["last-event-id"].to_str().unwrap().parse().unwrap();
        let events = history().into_iter().skip(last).take(cuts[usize::try_from(call).unwrap()]);
        let text = events.map(|event| sse(&event)).collect::<String>();
        let minute = async move {
            // Until the client has the head of the answer.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            tokio::time::pause();
            tokio::time::advance(std::time::Duration::from_secs(61)).await;
            tokio::time::resume();
            Ok::<_, std::io::Error>(text)
        };
        let end = async move {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            if breaks { Err(std::io::Error::other("cut")) } else { Ok(": over\n\n".to_owned()) }
        };
        let parts = futures_util::StreamExt::chain(futures_util::stream::once(minute), futures_util::stream::once(end));
        ([("content-type", "text/event-stream")], Body::from_stream(parts))
    };
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(stream))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
        .with_state(Arc::new(AtomicU32::new(0)));
    followed(&serve(router).await, 0).await
}

#[tokio::test]
async fn how_long_a_server_was_away_begins_anew_with_each_event() {
    for breaks in [false, true] {
        assert_eq!(followed_over(&[1, 1, 2], breaks).await.unwrap(), [1, 2, 3, 4], "{breaks}");
    }
}

/// A job that waits for a person says nothing for hours, and a proxy or a restart cuts its stream meanwhile.
#[tokio::test]
async fn a_server_that_is_there_is_not_given_up_because_its_job_is_silent() {
    for breaks in [false, true] {
        assert_eq!(followed_over(&[2, 0, 0, 2], breaks).await.unwrap(), [1, 2, 3, 4], "{breaks}");
    }
}

/// Something between them ends each stream as soon as it has begun: the server is there all the same, and has pages.
#[tokio::test(start_paused = true)]
async fn a_server_whose_streams_end_at_once_is_asked_for_pages_and_not_given_up() {
    for breaks in [false, true] {
        let streams = Arc::new(AtomicU32::new(0));
        let stream = move |State(calls): State<Arc<AtomicU32>>| async move {
            calls.fetch_add(1, Ordering::SeqCst);
            let begun = futures_util::stream::once(std::future::ready(Ok(": here\n\n".to_owned())));
            let end = futures_util::stream::once(async move {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                if breaks { Err(std::io::Error::other("cut")) } else { Ok(String::new()) }
            });
            ([("content-type", "text/event-stream")], Body::from_stream(futures_util::StreamExt::chain(begun, end)))
        };
        let began = tokio::time::Instant::now();
        let page = move || async move {
            let events = if began.elapsed().as_secs() < 300 { Vec::new() } else { history() };
            json!({ "events": events, "next_after": null }).to_string()
        };
        let router = Router::new()
            .route("/api/jobs/{id}/events/stream", get(stream))
            .route("/api/jobs/{id}/events", get(page))
            .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
            .with_state(Arc::clone(&streams));
        let url = serve(router).await;
        let seen = tokio::select! {
            seen = followed(&url, 0) => seen.unwrap(),
            () = tokio::time::sleep(std::time::Duration::from_secs(600)) => panic!("it is followed for ever"),
        };
        assert_eq!(seen, [1, 2, 3, 4], "{breaks}");
        assert_eq!(streams.load(Ordering::SeqCst), 1, "{breaks}");
    }
}

/// It says that there is more, and never brings it.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_bring_the_last_events_is_given_up() {
    let page = || async { json!({ "events": [], "next_after": null }).to_string() };
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(|| async { ([("content-type", "text/event-stream")], "") }))
        .route("/api/jobs/{id}/events", get(page))
        .route("/api/jobs/{id}", get(|| async { job("completed").to_string() }));
    let url = serve(router).await;
    let error = tokio::select! {
        ended = followed(&url, 0) => ended.unwrap_err(),
        () = tokio::time::sleep(std::time::Duration::from_secs(600)) => panic!("it is followed for ever"),
    };
    assert_eq!(error.exit(), Exit::Unreachable);
}

/// Something between them answers every page with the first one.
#[tokio::test(start_paused = true)]
async fn a_server_whose_pages_do_not_go_on_is_given_up() {
    let asked = Arc::new(AtomicU32::new(0));
    let page = |State(asked): State<Arc<AtomicU32>>| async move {
        asked.fetch_add(1, Ordering::SeqCst);
        json!({ "events": &history()[..2], "next_after": 2 }).to_string()
    };
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(|| async { StatusCode::NOT_FOUND }))
        .route("/api/jobs/{id}/events", get(page))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
        .with_state(Arc::clone(&asked));
    let url = serve(router).await;
    let error = tokio::select! {
        ended = followed(&url, 0) => ended.unwrap_err(),
        () = tokio::time::sleep(std::time::Duration::from_secs(600)) => panic!("it is followed for ever"),
    };
    assert_eq!(error.exit(), Exit::Unreachable);
    assert!(asked.load(Ordering::SeqCst) < 100, "{asked:?}");
}

/// Nobody knows whether it was accepted where the server itself does not.
#[tokio::test]
async fn a_message_that_a_server_failed_at_is_said_with_its_key() {
    for (status, told) in [(500, true), (501, true), (409, false)] {
        let answer = move || async move {
            let status = StatusCode::from_u16(status).unwrap();
            (status, problem("internal", status.as_u16(), "no").to_string())
        };
        let url = serve(Router::new().route("/api/agents/{agent}/message", axum::routing::post(answer))).await;
        let error = run(&url, &["send", "refund", "{}", "--key", "A-1"]).await.error();
        assert_eq!(error.contains("may have been accepted") && error.contains("--key A-1"), told, "{status}: {error}");
    }
}

/// It has left, and no answer came in its time.
#[tokio::test]
async fn a_message_that_is_not_answered_in_time_is_said_with_its_key() {
    let silence = || async {
        // It has arrived: from here on only time is waited for.
        tokio::time::pause();
        std::future::pending::<StatusCode>().await
    };
    let url = serve(Router::new().route("/api/agents/{agent}/message", axum::routing::post(silence))).await;
    let ran = run(&url, &["send", "refund", "{}", "--key", "A-1"]).await;
    assert_eq!(ran.exit(), Exit::Unreachable);
    let error = ran.error();
    assert!(error.contains("may have been accepted") && error.contains("--key A-1"), "{error}");
}

/// What others wrote moves no cursor on stderr either.
#[test]
fn nothing_that_is_said_controls_the_terminal() {
    let kept = Kept::default();
    let out = Out::to(Box::new(std::io::sink()), Box::new(kept.clone()), false, false, [Style::default(); 2]);
    out.note("a\u{1b}[2Jb\nc");
    out.warn("a\u{1b}[2Jb\nc");
    out.error("a\u{1b}[2Jb\nc");
    assert_eq!(kept.text(), "a [2Jb\nc\na [2Jb\nc\nerror: a [2Jb\nc\n");
}

/// That it once was there for a while says nothing of a server that has gone since: it is given up.
#[tokio::test(start_paused = true)]
async fn a_server_that_stood_for_a_while_and_goes_is_given_up() {
    let stream = |State(calls): State<Arc<AtomicU32>>| async move {
        if calls.fetch_add(1, Ordering::SeqCst) > 0 {
            return (StatusCode::SERVICE_UNAVAILABLE, problem("store_unavailable", 503, "gone").to_string())
                .into_response();
        }
        let stands = async {
            tokio::time::sleep(std::time::Duration::from_secs(30)).await;
            Ok::<_, std::io::Error>(String::new())
        };
        let begun = Body::from_stream(futures_util::stream::once(stands));
        ([("content-type", "text/event-stream")], begun).into_response()
    };
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(stream))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
        .with_state(Arc::default());
    let mut follow = Follow::start(&client(&serve(router).await), JOB, 0);
    let began = tokio::time::Instant::now();
    let until_given_up = async {
        loop {
            match follow.news().await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    };
    let ended = tokio::select! {
        ended = until_given_up => ended,
        () = tokio::time::sleep(std::time::Duration::from_secs(600)) => panic!("it is never given up"),
    };
    assert_eq!(ended.unwrap_err().exit(), Exit::Unreachable);
    assert!((90..130).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

/// A connection on which nothing comes, not even that the server is there, is dead, whatever the kernel says of it.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_silent_for_too_long_is_made_anew() {
    let calls = Arc::new(AtomicU32::new(0));
    let stream = |State(calls): State<Arc<AtomicU32>>, headers: HeaderMap| async move {
        let last: usize = headers["last-event-id"].to_str().unwrap().parse().unwrap();
        let history = history();
        let events = if calls.fetch_add(1, Ordering::SeqCst) == 0 { &history[..2] } else { &history[last..] };
        let text: String = events.iter().map(sse).collect();
        let begun = futures_util::stream::once(std::future::ready(Ok::<_, std::io::Error>(text)));
        let open = futures_util::StreamExt::chain(begun, futures_util::stream::pending());
        ([("content-type", "text/event-stream")], Body::from_stream(open))
    };
    let router = Router::new()
        .route("/api/jobs/{id}/events/stream", get(stream))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }))
        .with_state(Arc::clone(&calls));
    let mut follow = Follow::start(&client(&serve(router).await), JOB, 0);
    let (mut seen, mut at) = (Vec::new(), Vec::new());
    let began = tokio::time::Instant::now();
    while let Some(event) = follow.next().await.unwrap() {
        seen.push(event.seq);
        at.push(began.elapsed().as_secs());
    }
    assert_eq!((seen, calls.load(Ordering::SeqCst)), (vec![1, 2, 3, 4], 2));
    assert_eq!(at, [0, 0, 90, 90]);
}

/// Only what has not been written yet is waited for.
#[tokio::test(start_paused = true)]
async fn pages_that_are_there_are_asked_for_one_after_the_other() {
    let page = |query: axum::extract::RawQuery| async move {
        let after = query.0.unwrap().strip_prefix("after=").unwrap().parse::<usize>().unwrap();
        let next = (after < 3).then_some(after + 1);
        json!({ "events": [history()[after]], "next_after": next }).to_string()
    };
    let router = Router::new()
        .route("/api/jobs/{id}/events", get(page))
        .route("/api/jobs/{id}", get(|| async { job("running").to_string() }));
    let url = serve(router).await;
    let began = tokio::time::Instant::now();
    assert_eq!(followed(&url, 0).await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(began.elapsed().as_millis(), 0);
}
