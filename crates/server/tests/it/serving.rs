//! Real connections.

use std::time::Duration;

use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_server::Ending;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::bed::{Bed, large_job};
use crate::between::Between;

struct Served {
    address: std::net::SocketAddr,
    ended: JoinHandle<std::io::Result<()>>,
    ending: Ending,
}

async fn served(bed: &Bed) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = Ending::default();
    let ended = tokio::spawn(aetheris_server::serve(listener, bed.state.clone(), ending.clone()));
    Served { address, ended, ending }
}

impl Served {
    /// Asks it to end, as a process that has nothing to wait for.
    fn end(&self) {
        self.ending.draining.cancel();
        self.ending.over.cancel();
    }

    async fn connect(&self, send: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(send.as_bytes()).await.unwrap();
        stream
    }
}

/// Reads until the other side closes.
async fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

async fn until(stream: &mut TcpStream, marker: &str) -> String {
    let mut text = String::new();
    while !text.contains(marker) {
        let mut buffer = [0; 4_096];
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "closed after {text}");
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    text
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let bed = Bed::with_agents().await;
    let served = served(&bed).await;
    let mut stream = served.connect("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(until(&mut stream, "\"live\":true").await.starts_with("HTTP/1.1 200 OK"));
    let message = "POST /api/agents/pay/message HTTP/1.1\r\nhost: a\r\ncontent-length: 13\r\n\r\n{\"message\":1}";
    stream.write_all(message.as_bytes()).await.unwrap();
    assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 202"));
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(rest(stream).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_finishes_its_headers_is_cut_off() {
    let bed = Bed::new();
    let served = served(&bed).await;
    let began = tokio::time::Instant::now();
    assert!(!rest(served.connect("GET / HTTP/1.1\r\nhost: ").await).await.contains(" 200 "));
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(rest(served.connect("").await).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_is_refused() {
    let bed = Bed::new();
    let served = served(&bed).await;
    let message = "POST /api/agents/a/message HTTP/1.1\r\nhost: a\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{";
    let began = tokio::time::Instant::now();
    let answer = rest(served.connect(message).await).await;
    assert!(answer.contains("took too long"), "{answer}");
    assert!(began.elapsed() >= limits::BODY_TIME_MAX.to_std(), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn clients_that_drip_do_not_hold_up_the_end() {
    let bed = Bed::new();
    let served = served(&bed).await;
    let post = "POST /api/agents/a/message HTTP/1.1\r\nhost: a\r\ncontent-length: 13\r\n";
    let mut body = served.connect(&format!("{post}expect: 100-continue\r\n\r\n")).await;
    // The server asks for the body: the request is being worked on.
    until(&mut body, "100 Continue").await;
    let headers = served.connect(post).await;
    // Accepted after the two, so they are connections of the server by now.
    until(&mut served.connect("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await, "\"live\":true").await;
    let began = tokio::time::Instant::now();
    served.end();
    let refused = rest(body).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("send it again"), "{refused}");
    served.ended.await.unwrap().unwrap();
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
    drop(headers);
}

#[tokio::test]
async fn at_the_end_polls_are_answered_and_streams_close() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let (asked, mut told) = tokio::sync::mpsc::unbounded_channel();
    let store = Between::then(std::sync::Arc::clone(&bed.store), move |_| {
        let _heard = asked.send(());
        None
    });
    let bed = Bed::on(bed.clock.clone(), std::sync::Arc::new(store), |state| state);
    let served = served(&bed).await;
    let get = |path: String| format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    let poll = served.connect(&get(format!("/api/jobs/{job}?wait=60s"))).await;
    told.recv().await.unwrap();
    let mut stream = served.connect(&get(format!("/api/jobs/{job}/events/stream"))).await;
    until(&mut stream, "event: plan_generated").await;
    let idle = served.connect("").await;
    // The poll has arrived when it follows; a second stream behind it says so.
    until(&mut served.connect(&get(format!("/api/jobs/{job}/events/stream"))).await, "job_created").await;
    served.end();
    assert!(rest(poll).await.contains("\"status\":\"pending\""));
    rest(stream).await;
    assert_eq!(rest(idle).await, "");
    served.ended.await.unwrap().unwrap();
    assert!(TcpStream::connect(served.address).await.is_err());
}

/// A supervisor that finds nobody at `/livez` kills the process, and with it the call that the drain waits for.
#[tokio::test]
async fn a_server_that_drains_is_alive_and_not_ready_and_begins_nothing() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let served = served(&bed).await;
    let ask = async |line: &str, body: &str| {
        let length = body.len();
        let request = format!("{line} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
        rest(served.connect(&request).await).await
    };
    let stream = format!("GET /api/jobs/{job}/events/stream");
    let mut follower = served.connect(&format!("{stream} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    until(&mut follower, "event: job_waiting").await;
    served.ending.draining.cancel();
    rest(follower).await;
    let live = ask("GET /livez", "").await;
    assert!(live.starts_with("HTTP/1.1 200") && live.contains("connection: close"), "{live}");
    let ready = ask("GET /readyz", "").await;
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains("{\"detail\":\"it is shutting down\",\"name\":\"server\"")
    );
    for read in [format!("GET /api/jobs/{job}"), format!("GET /api/jobs/{job}/events"), "GET /api/waits".to_owned()] {
        let answer = ask(&read, "").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("ok-7"), "{read}: {answer}");
    }
    let poll = ask(&format!("GET /api/jobs/{job}?wait=60s"), "").await;
    assert!(poll.contains("\"status\":\"parked\""), "{poll}");
    let signal = format!("POST /api/jobs/{job}/signal");
    let doubt = format!("POST /api/jobs/{job}/in-doubt/inv_00000000000000000000000000000000");
    let resume = format!("POST /api/jobs/{job}/resume");
    let key = r#"{"correlation_key": "ok-7", "payload": 1}"#;
    let begins = [
        ("POST /api/agents/pay/message", r#"{"message": 1}"#),
        (&signal, key),
        (&doubt, "{}"),
        (&resume, ""),
        (&stream, ""),
    ];
    for (line, body) in begins {
        let refused = ask(line, body).await;
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: 1"), "{line}: {refused}");
        assert!(
            refused.contains("\"code\":\"overloaded\"") && refused.contains("the server is shutting down"),
            "{line}: {refused}"
        );
    }
    // What holds still or ends is done.
    assert!(ask(&format!("POST /api/jobs/{job}/cancel"), "").await.starts_with("HTTP/1.1 202"));
    assert!(!served.ended.is_finished());
    let idle = served.connect("").await;
    served.ending.over.cancel();
    assert_eq!(rest(idle).await, "");
    served.ended.await.unwrap().unwrap();
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn clients_that_went_away_do_not_hold_up_the_end() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let served = served(&bed).await;
    let mut stream = served.connect(&format!("GET /api/jobs/{job}/events/stream HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    until(&mut stream, "event: plan_generated").await;
    let poll = served.connect(&format!("GET /api/jobs/{job}?wait=60s HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    // The poll has arrived when it follows; a second stream behind it says so.
    until(
        &mut served.connect(&format!("GET /api/jobs/{job}/events/stream HTTP/1.1\r\nhost: a\r\n\r\n")).await,
        "job_created",
    )
    .await;
    drop((stream, poll));
    let began = tokio::time::Instant::now();
    served.end();
    served.ended.await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded_and_idle_ones_give_way() {
    let mut bed = Bed::new();
    bed.state.connections_max = 2;
    let served = served(&bed).await;
    let _idle = (served.connect("").await, served.connect("").await);
    let began = tokio::time::Instant::now();
    let mut third = served.connect("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
    until(&mut third, "\"live\":true").await;
    assert!(began.elapsed() >= Duration::from_secs(9), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

/// What is answered to a request that is refused, whose client may be cut off when it has heard why.
async fn bare(request: &str, code: &str) -> (String, serde_json::Value) {
    let bed = Bed::with_agents().await;
    let served = served(&bed).await;
    let said = until(&mut served.connect(request).await, &format!("\"code\":\"{code}\"}}")).await;
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.contains("content-type: application/problem+json"), "{said}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{said}");
    (head, serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn what_is_not_http_is_told_so_in_words() {
    let long = "x".repeat(200_000);
    let cases = [
        ("GET / HTTP/1.1\r\nhost: a\r\nno header\r\n\r\n".to_owned(), 400, "invalid_request"),
        ("NONSENSE\r\n\r\n".to_owned(), 400, "invalid_request"),
        (format!("GET / HTTP/1.1\r\nhost: a\r\nlong: {long}\r\n\r\n"), 431, "headers_too_large"),
        (format!("GET /?{} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", &long[..9_000]), 414, "uri_too_long"),
    ];
    for (request, status, code) in cases {
        let (head, problem) = bare(&request, code).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
        assert_eq!((problem["status"].as_u64(), problem["code"].as_str()), (Some(status), Some(code)));
    }
}

#[tokio::test]
async fn a_body_that_is_declared_too_large_is_refused_before_it_comes() {
    let post =
        "POST /api/agents/approve/message HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 9000000\r\n";
    for more in ["\r\n", "expect: 100-continue\r\n\r\n"] {
        let (head, problem) = bare(&format!("{post}{more}"), "payload_too_large").await;
        assert!(head.starts_with("http/1.1 413 "), "{head}");
        assert_eq!(problem["code"], "payload_too_large");
    }
    // Whoever waits to be asked for the body is not asked for one that nobody wants.
    let bed = Bed::new();
    let served = served(&bed).await;
    let said = rest(served.connect(&format!("{post}expect: 100-continue\r\n\r\n")).await).await;
    assert!(said.starts_with("HTTP/1.1 413 ") && !said.contains("100 Continue"), "{said}");
}

/// Whoever sends it all the same is not cut off before the answer is there, whether or not it said how much would come.
#[tokio::test]
async fn a_client_that_sends_what_is_refused_hears_why() {
    let large = "x".repeat(8_000_000);
    let pieces = format!("1000\r\n{}\r\n", "x".repeat(0x1000)).repeat(2_000);
    for body in [
        format!("content-length: {}\r\n\r\n{large}", large.len()),
        format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n", large.len()),
        format!("transfer-encoding: chunked\r\n\r\n{pieces}0\r\n\r\n"),
    ] {
        let bed = Bed::new();
        let served = served(&bed).await;
        let mut stream = served.connect(&format!("POST /api/agents/a/message HTTP/1.1\r\nhost: a\r\n{body}")).await;
        until(&mut stream, "payload_too_large").await;
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        until(&mut stream, "\"live\":true").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_its_answer_is_cut_off() {
    let mut bed = Bed::new();
    bed.state.connections_max = 1;
    let job = large_job(&bed, 40).await;
    let served = served(&bed).await;
    let began = tokio::time::Instant::now();
    let stream = format!("GET /api/jobs/{job}/events/stream HTTP/1.1\r\nhost: a\r\n\r\n");
    let idle = served.connect(&stream).await;
    // There is one place: the next is served when the first is gone.
    let mut next = served.connect("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
    until(&mut next, "\"live\":true").await;
    assert!(began.elapsed() >= Duration::from_secs(30), "{:?}", began.elapsed());
    drop(idle);
}

/// A poll is for its client: when that has gone, the next has its place.
#[tokio::test]
async fn the_place_of_a_poll_whose_client_has_gone_is_free() {
    let mut bed = Bed::with_agents().await;
    // One of two connections may follow.
    bed.state.connections_max = 2;
    let job = bed.send("approve", "1").await;
    let served = served(&bed).await;
    let get = |path: String| format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    let poll = served.connect(&get(format!("/api/jobs/{job}?wait=60s"))).await;
    let follow = get(format!("/api/jobs/{job}/events/stream"));
    loop {
        let refused = until(&mut served.connect(&follow).await, "\n").await;
        if refused.starts_with("HTTP/1.1 503") {
            break;
        }
    }
    drop(poll);
    let began = tokio::time::Instant::now();
    while !until(&mut served.connect(&follow).await, "\n").await.starts_with("HTTP/1.1 200") {
        assert!(began.elapsed() < Duration::from_secs(20), "it is kept for nobody");
    }
}

/// Path and query, to the byte.
#[tokio::test]
async fn a_request_may_be_as_long_as_is_said() {
    let bed = Bed::new();
    let served = served(&bed).await;
    let asked = async |length: usize| {
        let path = format!("/livez?{}", "x".repeat(length - "/livez?".len()));
        rest(served.connect(&format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await).await
    };
    assert!(asked(limits::URI_BYTES_MAX).await.starts_with("HTTP/1.1 200"));
    assert!(asked(limits::URI_BYTES_MAX + 1).await.starts_with("HTTP/1.1 414"));
}

/// A client that dawdles with a body that nobody wants is not listened to for ever, and one that pours is not either.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_refused_body_is_taken_for_so_long_and_so_much() {
    let bed = Bed::new();
    let served = served(&bed).await;
    let head = "POST /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: 900000000\r\n\r\n";
    let mut slow = served.connect(head).await;
    until(&mut slow, "not_found").await;
    let began = tokio::time::Instant::now();
    rest(slow).await;
    assert_eq!(Span::from_std(began.elapsed()).rounded(), limits::BODY_REST_TIME_MAX);
    let mut quick = served.connect(head).await;
    until(&mut quick, "not_found").await;
    let (piece, mut taken) = (vec![b'x'; 1 << 20], 0);
    while quick.write_all(&piece).await.is_ok() {
        taken += piece.len();
        assert!(taken <= 4 * limits::BODY_REST_BYTES_MAX, "{taken}");
    }
    assert!(taken >= limits::BODY_REST_BYTES_MAX, "{taken}");
}

/// Whoever ends it at once, without a drain before, ends what follows and what waits as well.
#[tokio::test]
async fn a_server_that_is_ended_without_a_drain_keeps_nobody_waiting() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let served = served(&bed).await;
    let get = |path: String| format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    let poll = served.connect(&get(format!("/api/jobs/{job}?wait=60s"))).await;
    let mut stream = served.connect(&get(format!("/api/jobs/{job}/events/stream"))).await;
    until(&mut stream, "event: plan_generated").await;
    let began = tokio::time::Instant::now();
    served.ending.over.cancel();
    served.ended.await.unwrap().unwrap();
    assert!(began.elapsed() < limits::SERVER_DRAIN_MAX.to_std(), "{:?}", began.elapsed());
    assert!(rest(poll).await.contains("\"status\":\"pending\""));
    rest(stream).await;
}

/// A request under way is waited for as long as is said, and no longer.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_requests_under_way() {
    let bed = Bed::with_agents().await;
    let (begun, mut told) = tokio::sync::mpsc::unbounded_channel();
    let store = Between::then(std::sync::Arc::clone(&bed.store), move |name| {
        (name == "jobs").then(|| begun.send(()).unwrap())?;
        Some(Box::pin(std::future::pending()))
    });
    let bed = Bed::on(bed.clock.clone(), std::sync::Arc::new(store), |state| state);
    let served = served(&bed).await;
    let _asked = served.connect("GET /api/jobs HTTP/1.1\r\nhost: a\r\n\r\n").await;
    told.recv().await.unwrap();
    let began = tokio::time::Instant::now();
    served.end();
    served.ended.await.unwrap().unwrap();
    let most = limits::SERVER_DRAIN_MAX.plus(limits::SERVER_LAST_WORDS_MAX).plus(limits::SERVER_LAST_WORDS_MAX);
    assert!(began.elapsed() >= limits::SERVER_DRAIN_MAX.to_std(), "{:?}", began.elapsed());
    assert!(Span::from_std(began.elapsed()).rounded() <= most, "{:?}", began.elapsed());
}

/// A body that nobody wants is nothing to wait for.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_no_body_that_was_refused() {
    let bed = Bed::new();
    let served = served(&bed).await;
    let head = "POST /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: 900000000\r\n\r\n";
    let mut slow = served.connect(head).await;
    until(&mut slow, "not_found").await;
    let began = tokio::time::Instant::now();
    served.end();
    served.ended.await.unwrap().unwrap();
    assert!(began.elapsed() < limits::SERVER_LAST_WORDS_MAX.to_std(), "{:?}", began.elapsed());
}

/// First line and headers together, as the refusal says it.
#[tokio::test]
async fn headers_may_be_as_large_as_is_said() {
    let bed = Bed::new();
    let served = served(&bed).await;
    let head = "GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\nlong: ";
    let long = "x".repeat(limits::HEAD_BYTES_MAX - 1 - head.len() - "\r\n\r\n".len());
    let said = rest(served.connect(&format!("{head}{long}\r\n\r\n")).await).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}
