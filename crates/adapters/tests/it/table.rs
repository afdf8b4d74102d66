//! Every row of INTERFACE's table for HTTP tools, for each class.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aetheris_adapters::{Lookup, Toolbox};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::Span;
use aetheris_runtime::ports::{ToolOutcome, Tools};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::net::TcpListener;

use crate::peer::{Peer, Reply, answer};
use crate::{CLASSES, PATIENCE, SHORT, ask, dev, failure, http, http_call, kind};

/// What a status means for a POST: to pure and idempotent tools, and to those called at most once.
const STATUSES: [(&str, &str, &str); 30] = [
    ("300 Multiple Choices", "refused", "unknown"),
    ("301 Moved Permanently", "refused", "unknown"),
    ("302 Found", "refused", "unknown"),
    ("303 See Other", "refused", "unknown"),
    ("304 Not Modified", "refused", "unknown"),
    ("307 Temporary Redirect", "refused", "unknown"),
    ("308 Permanent Redirect", "refused", "unknown"),
    ("400 Bad Request", "refused", "refused"),
    ("401 Unauthorized", "refused", "refused"),
    ("402 Payment Required", "refused", "refused"),
    ("403 Forbidden", "refused", "refused"),
    ("404 Not Found", "refused", "refused"),
    ("405 Method Not Allowed", "refused", "refused"),
    ("408 Request Timeout", "unknown", "unknown"),
    ("409 Conflict", "refused for now", "unknown"),
    ("410 Gone", "refused", "refused"),
    ("412 Precondition Failed", "refused", "refused"),
    ("413 Content Too Large", "refused", "refused"),
    ("418 I'm a teapot", "refused", "refused"),
    ("422 Unprocessable Content", "refused", "refused"),
    ("425 Too Early", "refused for now", "refused for now"),
    ("429 Too Many Requests", "refused for now", "refused for now"),
    ("499 Whatever", "refused", "refused"),
    ("500 Internal Server Error", "unknown", "unknown"),
    ("501 Not Implemented", "unknown", "unknown"),
    ("502 Bad Gateway", "unknown", "unknown"),
    ("503 Service Unavailable", "unknown", "unknown"),
    ("504 Gateway Timeout", "unknown", "unknown"),
    ("599 Whatever", "unknown", "unknown"),
    ("600 Whatever", "unknown", "unknown"),
];

#[tokio::test]
async fn every_status_means_what_the_table_says() {
    for (status, repeatable, once) in STATUSES {
        let peer = Peer::answering(status, "location: /elsewhere\r\n", "").await;
        for class in CLASSES {
            let outcome = ask(class, http("POST", peer.url("/orders?token=abc"))).await;
            let expected = if class == EffectClass::AtMostOnce { once } else { repeatable };
            assert_eq!(kind(&outcome), expected, "{status}, {class:?}");
            let error = failure(&outcome);
            assert_eq!(error.code, format!("http_{}", &status[..3]));
            // Whoever wrote the tool is told why a redirect ends it; where nothing is known of a call, that is all.
            let followed = status.starts_with('3') && class != EffectClass::AtMostOnce;
            let advice = if followed { " (a redirect is followed for GET, and only with a Location)" } else { "" };
            assert_eq!(error.message, format!("POST {} answered {}{advice}", peer.url("/orders"), &status[..3]));
        }
        assert_eq!(peer.seen().len(), 3, "{status}: no retries and no redirects of our own");
    }
}

/// A list of refusals says nothing of any other status.
#[tokio::test]
async fn only_a_conflict_can_be_listed() {
    for (status, expected) in [("408 Request Timeout", "unknown"), ("503 Unavailable", "unknown"), ("302 F", "unknown")]
    {
        let peer = Peer::answering(status, "", "").await;
        let mut tool = http("POST", peer.url("/"));
        tool.refused_statuses.extend([302, 408, 409, 503]);
        assert_eq!(kind(&ask(EffectClass::AtMostOnce, tool).await), expected, "{status}");
    }
}

#[tokio::test]
async fn a_listed_conflict_is_a_refusal_where_it_would_be_in_doubt() {
    let peer = Peer::answering("409 Conflict", "retry-after: 3\r\n", "{\"why\": \"already\n  refunded\"}").await;
    for (class, expected) in CLASSES.into_iter().zip(["refused for now", "refused for now", "refused"]) {
        let mut tool = http("POST", peer.url("/"));
        tool.refused_statuses.insert(409);
        let outcome = ask(class, tool).await;
        assert_eq!(kind(&outcome), expected, "{class:?}");
        let message = &failure(&outcome).message;
        assert!(message.ends_with("answered 409: {\"why\": \"already refunded\"}"), "{message}");
    }
}

#[tokio::test]
async fn success_is_the_json_of_the_body() {
    let large = format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX - 2));
    let bodies = [
        ("200 OK", "{\"total\": 12.5, \"n\": 18446744073709551615}", json!({"total": 12.5, "n": u64::MAX})),
        ("201 Created", "[1, null]", json!([1, null])),
        ("202 Accepted", "\"queued\"", json!("queued")),
        ("200 OK", "", json!(null)),
        ("200 OK", " \r\n", json!(null)),
        ("204 No Content", "", json!(null)),
        ("299 Whatever", "true", json!(true)),
        ("200 OK", large.as_str(), json!("x".repeat(limits::PAYLOAD_BYTES_MAX - 2))),
    ];
    for (status, body, output) in bodies {
        let peer = Peer::answering(status, "content-type: text/plain\r\n", body).await;
        for class in CLASSES {
            let outcome = ask(class, http("POST", peer.url("/"))).await;
            assert_eq!(outcome, ToolOutcome::Done(Json::new(output.clone())), "{status} {class:?}");
        }
    }
}

#[tokio::test]
async fn a_2xx_that_cannot_be_read_is_unknown() {
    let huge = "x".repeat(limits::PAYLOAD_BYTES_MAX + 1);
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{huge}");
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let answers = [
        answer("200 OK", "content-type: text/plain\r\n", "done"),
        answer("200 OK", "content-type: application/json\r\n", "{\"a\": 1"),
        answer("200 OK", "", "{} {}"),
        answer("200 OK", "", "{\"n\": 18446744073709551616}"),
        answer("200 OK", "", "{\"n\": 1e999}"),
        answer("200 OK", "", "{\"cents\": 10, \"cents\": 1000}"),
        answer("200 OK", "", &format!("[{}1]", "1e20,".repeat(100_000))),
        answer("200 OK", "", &deep),
        answer("200 OK", "", &huge),
        endless.into_bytes(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"half\":".to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"ha\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b".to_vec(),
    ];
    for bytes in answers {
        let words = String::from_utf8_lossy(&bytes[..bytes.len().min(90)]).into_owned();
        let peer = Peer::new(move |_| Reply::Last(bytes.clone())).await;
        for class in CLASSES {
            let outcome = ask(class, http("POST", peer.url("/"))).await;
            assert_eq!(kind(&outcome), "unknown", "{words} {class:?}");
            assert_eq!(failure(&outcome).code, "unreadable_answer", "{words} {class:?}");
        }
    }
}

#[tokio::test]
async fn what_breaks_after_the_connection_is_unknown() {
    let partial: [&[u8]; 4] = [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\ncontent-le", b"nonsense\r\n\r\n"];
    for bytes in partial {
        let peer = Peer::new(move |_| Reply::Last(bytes.to_vec())).await;
        for class in CLASSES {
            let outcome = ask(class, http("POST", peer.url("/"))).await;
            assert_eq!(kind(&outcome), "unknown", "{bytes:?} {class:?}");
            assert_eq!(failure(&outcome).code, "connection_broken");
        }
    }
    let deaf = Peer::deaf().await;
    for class in CLASSES {
        let outcome = ask(class, http("POST", deaf.url("/"))).await;
        assert_eq!(kind(&outcome), "unknown", "closed before the request was read, {class:?}");
    }
}

#[tokio::test]
async fn our_timeout_is_unknown_and_says_so() {
    let stalls: [&[u8]; 3] = [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"half\":",
    ];
    for bytes in stalls {
        let peer = Peer::new(move |_| Reply::Stall(bytes.to_vec())).await;
        for class in CLASSES {
            let mut call = http_call(class, http("POST", peer.url("/")));
            call.timeout = SHORT;
            let outcome = dev().call(call).await;
            assert_eq!(kind(&outcome), "unknown, timeout", "{bytes:?} {class:?}");
            assert_eq!(failure(&outcome).code, "timeout");
        }
    }
}

#[tokio::test]
async fn a_refusal_whose_words_stall_is_still_a_refusal() {
    let stalled = b"HTTP/1.1 422 Unprocessable\r\ncontent-length: 100\r\n\r\nbecause";
    let peer = Peer::new(|_| Reply::Stall(stalled.to_vec())).await;
    let mut call = http_call(EffectClass::AtMostOnce, http("POST", peer.url("/")));
    // The status has to arrive within it on a busy machine; the rest of the words never does, and is not waited for.
    call.timeout = PATIENCE;
    let begun = tokio::time::Instant::now();
    let outcome = dev().call(call).await;
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert_eq!(kind(&outcome), "refused");
    assert!(failure(&outcome).message.ends_with("answered 422: because"));
}

/// However small the pieces are in which they come.
#[tokio::test]
async fn the_words_of_a_refusal_are_read_piece_by_piece() {
    let pieces = b"HTTP/1.1 422 Unprocessable\r\ntransfer-encoding: chunked\r\n\r\n3\r\nbec\r\n5\r\nause \r\n2\r\nof\r\n0\r\n\r\n";
    let peer = Peer::new(|_| Reply::Bytes(pieces.to_vec())).await;
    let outcome = ask(EffectClass::Pure, http("POST", peer.url("/"))).await;
    assert!(failure(&outcome).message.ends_with("answered 422: because of"), "{outcome:?}");
}

/// Knows no name, and asks nobody.
struct NoNames;

impl Lookup for NoNames {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(std::future::ready(Err(io::Error::new(io::ErrorKind::NotFound, name))))
    }
}

#[tokio::test]
async fn what_never_left_is_not_sent() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let deaf = Peer::deaf().await;
    let garbage = Peer::greeting("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let cases = [
        (format!("http://127.0.0.1:{closed}/"), "connection_refused"),
        (garbage.url("/").replace("http:", "https:"), "tls_failed"),
        (deaf.url("/").replace("http:", "https:"), "connect_failed"),
        ("http://name.invalid/".to_owned(), "dns_failed"),
    ];
    let tools = Toolbox::builder().allow_loopback().lookup(Arc::new(NoNames)).build().unwrap();
    for (url, code) in cases {
        for class in CLASSES {
            let outcome = tools.call(http_call(class, http("POST", url.clone()))).await;
            assert_eq!(kind(&outcome), "not sent", "{url} {class:?}: {outcome:?}");
            assert_eq!(failure(&outcome).code, code, "{url} {class:?}: {outcome:?}");
            // Said once, and not again as the system says it.
            let said = failure(&outcome).message.to_lowercase();
            assert!(said.matches("connection").count() <= 1 || code != "connection_refused", "{said}");
        }
    }
}

#[tokio::test]
async fn a_handshake_that_stalls_was_not_sent() {
    let plain = Peer::answering("200 OK", "", "{}").await;
    let mut call = http_call(EffectClass::AtMostOnce, http("POST", plain.url("/").replace("http:", "https:")));
    // The connection has three quarters of it, and its end must come first.
    call.timeout = Duration::from_secs(4);
    let outcome = dev().call(call).await;
    assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("not sent", "connect_timeout"));
    assert_eq!((plain.connections(), plain.seen().len()), (1, 0));
}

#[tokio::test]
async fn an_answer_says_when_to_come_back() {
    let date = "date: Sat, 21 Nov 2026 09:30:00 GMT\r\n";
    let cases = [
        ("429 Too Many Requests", "retry-after: 7\r\n".to_owned(), Some(7)),
        ("425 Too Early", format!("{date}retry-after: Sat, 21 Nov 2026 09:30:42 GMT\r\n"), Some(42)),
        ("503 Service Unavailable", "retry-after: 120\r\n".to_owned(), Some(120)),
        ("408 Request Timeout", "retry-after: soon\r\n".to_owned(), None),
        ("500 Internal Server Error", String::new(), None),
    ];
    for (status, headers, seconds) in cases {
        let peer = Peer::answering(status, &headers, "").await;
        for class in CLASSES {
            match ask(class, http("POST", peer.url("/"))).await {
                ToolOutcome::RefusedRetryable { retry_after, .. } | ToolOutcome::Unknown { retry_after, .. } => {
                    assert_eq!(retry_after, seconds.map(Span::from_secs), "{status}");
                }
                other => panic!("{status}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_get_is_redirected_and_nothing_else_is() {
    for status in ["301 M", "302 F", "303 S", "307 T", "308 P"] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let peer = Peer::new(move |seen| {
                if seen.line().contains("/new") {
                    return Reply::Bytes(answer("200 OK", "", "1"));
                }
                Reply::Bytes(answer(status, "location: new?x=1\r\n", "moved"))
            })
            .await;
            for class in CLASSES {
                let outcome = ask(class, http(method, peer.url("/old/old"))).await;
                let expected = match (class, method) {
                    (EffectClass::AtMostOnce, _) => "unknown",
                    (_, "GET") => "done",
                    _ => "refused",
                };
                assert_eq!(kind(&outcome), expected, "{status} {method} {class:?}");
            }
            assert_eq!(peer.seen().len(), if method == "GET" { 5 } else { 3 });
        }
    }
}

/// All hops of a call share its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_has_no_time_of_its_own() {
    let peer = Peer::new(|_| {
        // The thread that sleeps is not to be the one that keeps the time.
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(150)));
        Reply::Bytes(answer("302 Found", "location: /\r\n", ""))
    })
    .await;
    let mut call = http_call(EffectClass::Pure, http("GET", peer.url("/")));
    call.timeout = Duration::from_millis(400);
    let outcome = Toolbox::builder().allow_loopback().build().unwrap().call(call).await;
    assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("unknown, timeout", "timeout"), "{outcome:?}");
    assert!(peer.seen().len() <= 3, "{}", peer.seen().len());
}

#[tokio::test]
async fn redirects_end() {
    let hops = |most: usize| {
        Peer::new(move |seen| {
            let hop: usize = seen.line().split(['/', ' ']).nth(2).unwrap().parse().unwrap();
            if hop == most {
                return Reply::Bytes(answer("200 OK", "", "1"));
            }
            Reply::Bytes(answer("302 Found", &format!("location: /{}\r\n", hop + 1), ""))
        })
    };
    for (most, expected, asked) in [(5, "done", 6), (6, "refused", 6)] {
        let peer = hops(most).await;
        let outcome = ask(EffectClass::Pure, http("GET", peer.url("/0"))).await;
        assert_eq!(kind(&outcome), expected, "{most}");
        assert_eq!(peer.seen().len(), asked);
    }
    let nowhere = Peer::answering("302 Found", "", "").await;
    assert_eq!(kind(&ask(EffectClass::Pure, http("GET", nowhere.url("/"))).await), "refused");
}
