//! What a call looks like to the other side, and what it never shows to anyone.

use std::collections::BTreeMap;

use aetheris_adapters::{EnvSource, Toolbox};
use aetheris_core::json::Json;
use aetheris_core::ledger::PermitNumber;
use aetheris_core::plan::{EffectClass, ToolKind};
use aetheris_runtime::ports::{ToolCall, ToolOutcome, Tools};
use serde_json::json;

use crate::peer::{Peer, Reply, answer};
use crate::{CLASSES, ask, call_of, dev, failure, http, http_call, kind};

const SECRET: &str = "s3cr3t/va lue+x";

#[tokio::test]
async fn the_runtime_s_headers_travel_with_every_call() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    for class in CLASSES {
        let mut tool = http("POST", peer.url("/orders/{{ input.id }}?job={{ job.id }}"));
        tool.headers.insert("X-Agent".to_owned(), "{{ job.agent }}/{{ input.cents }}".to_owned());
        tool.headers.insert("idempotency-key".to_owned(), "mine".to_owned());
        let call = http_call(class, tool);
        let (key, job) = (call.key, call.job);
        assert_eq!(kind(&dev().call(call).await), "done");
        let seen = peer.seen().pop().unwrap();
        assert_eq!(seen.line(), format!("POST /orders/o-1?job={job} HTTP/1.1"));
        assert_eq!(seen.header("Idempotency-Key"), Some(key.to_string().as_str()));
        assert_eq!(seen.header("Aetheris-Attempt"), Some("2"));
        assert_eq!(seen.header("Aetheris-Fence"), Some("3.11"));
        assert_eq!(seen.header("Aetheris-Job"), Some(job.to_string().as_str()));
        assert_eq!(seen.header("Aetheris-Permit"), Some("3.2"));
        assert_eq!(seen.header("Aetheris-Node"), Some("send"));
        assert_eq!(seen.header("X-Agent"), Some("refund/1250"));
        assert_eq!(seen.header("Content-Type"), Some("application/json"));
        assert_eq!(seen.header("Accept-Encoding"), None);
    }
}

#[tokio::test]
async fn the_body_is_the_input_or_what_the_tool_says() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    let whole = "{\"cents\":1250,\"id\":\"o-1\"}";
    for (method, expected) in [("GET", ""), ("DELETE", ""), ("POST", whole), ("PUT", whole), ("PATCH", whole)] {
        ask(EffectClass::Idempotent, http(method, peer.url("/"))).await;
        assert_eq!(peer.seen().pop().unwrap().body, expected, "{method}");
    }
    let template = json!({ "order": "{{ input.id }}", "cents": "{{ input.cents }}", "tags": [true, "{{ job.id }}!"] });
    for (method, has_body) in [("GET", false), ("DELETE", true), ("POST", true)] {
        let mut tool = http(method, peer.url("/"));
        tool.body = Some(template.clone().into());
        let call = http_call(EffectClass::AtMostOnce, tool);
        let expected = format!("{{\"cents\":1250,\"order\":\"o-1\",\"tags\":[true,\"{}!\"]}}", call.job);
        dev().call(call).await;
        assert_eq!(peer.seen().pop().unwrap().body, if has_body { expected.as_str() } else { "" }, "{method}");
    }
}

/// Those that HTTP tools may have, however they are written; and what every request says that it takes.
#[tokio::test]
async fn a_method_is_sent_in_capitals() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    for (written, sent) in [("get", "GET"), ("Post", "POST"), ("PUT", "PUT"), ("patch", "PATCH"), ("dElete", "DELETE")]
    {
        assert_eq!(kind(&ask(EffectClass::AtMostOnce, http(written, peer.url("/"))).await), "done", "{written}");
        let seen = peer.seen().pop().unwrap();
        assert_eq!(seen.line(), format!("{sent} / HTTP/1.1"));
        assert_eq!(seen.header("Accept"), Some("application/json"));
        let has_body = !matches!(sent, "GET" | "DELETE");
        assert_eq!(seen.header("Content-Type"), has_body.then_some("application/json"), "{sent}");
    }
}

#[tokio::test]
async fn only_calls_that_may_be_repeated_share_connections() {
    for (class, connections) in CLASSES.into_iter().zip([1, 1, 5]) {
        let peer = Peer::answering("200 OK", "", "{}").await;
        let tools = dev();
        for _ in 0..5 {
            assert_eq!(kind(&tools.call(http_call(class, http("POST", peer.url("/")))).await), "done");
        }
        assert_eq!(peer.connections(), connections, "{class:?}");
        assert_eq!(peer.seen().last().unwrap().connection, connections, "{class:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_rendered_is_never_sent() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    let url = |path: &str| http("POST", peer.url(path));
    let header = |name: &str, value: &str| {
        let mut tool = url("/");
        tool.headers.insert(name.to_owned(), value.to_owned());
        tool
    };
    let mut bad_body = url("/");
    bad_body.body = Some(json!({ "x": "{{ env.KEY }}" }).into());
    let cases = [
        (http("POST", "not a url"), "invalid_url"),
        (http("POST", "{{ input.nothing }}"), "invalid_url"),
        (url("/{{ message }}"), "invalid_url"),
        (http("BREW", peer.url("/")), "invalid_method"),
        (header("x", "{{ input.nothing }}"), "invalid_header"),
        (header("x", "a\r\nx-injected: 1"), "invalid_header"),
        (header("a b", "c"), "invalid_header"),
        (header("Connection", "close"), "invalid_header"),
        (header("content-length", "1"), "invalid_header"),
        (header("Expect", "100-continue"), "invalid_header"),
        (header("Host", "other"), "invalid_header"),
        (header("TE", "trailers"), "invalid_header"),
        (header("Trailer", "x"), "invalid_header"),
        (header("Transfer-Encoding", "chunked"), "invalid_header"),
        (header("Upgrade", "h2c"), "invalid_header"),
        (header("x", "{{ env.KEY }}"), "env_unavailable"),
        (url("/{{ env.KEY }}"), "env_unavailable"),
        (bad_body, "invalid_body"),
    ];
    for (tool, code) in cases {
        for class in CLASSES {
            let outcome = ask(class, tool.clone()).await;
            assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("not sent, permanent", code), "{tool:?}");
        }
    }
    assert_eq!(peer.connections(), 0);
}

fn with_env() -> Toolbox {
    let env = BTreeMap::from([("KEY".to_owned(), SECRET.to_owned()), ("HOSTPART".to_owned(), "v1".to_owned())]);
    Toolbox::builder().allow_loopback().env(EnvSource::fixed(env)).build().unwrap()
}

#[tokio::test]
async fn the_environment_is_sent_and_never_shown() {
    let echo = Peer::new(|seen| {
        let status = if seen.line().contains("/fail") { "400 Bad" } else { "200 OK" };
        let body = json!({ "line": seen.line(), "key": seen.header("x-key") }).to_string();
        Reply::Bytes(answer(status, "", &body))
    })
    .await;
    for path in ["/ok", "/fail"] {
        for class in CLASSES {
            let mut tool = http("POST", echo.url(path));
            tool.url.push_str("?key={{ env.KEY }}");
            tool.headers.insert("x-key".to_owned(), "Bearer {{ env.KEY }}".to_owned());
            let outcome = with_env().call(http_call(class, tool)).await;
            let seen = echo.seen().pop().unwrap();
            assert_eq!(seen.header("x-key"), Some(format!("Bearer {SECRET}").as_str()));
            assert!(seen.line().contains("key=s3cr3t/va%20lue+x"));
            match &outcome {
                ToolOutcome::Done(output) => {
                    assert_eq!(output.get("key").unwrap(), "Bearer [redacted]");
                    assert_eq!(output.get("line").unwrap(), "POST /ok?key=[redacted] HTTP/1.1");
                }
                other => {
                    let message = &failure(other).message;
                    assert!(message.starts_with(&format!("POST {} answered 400", echo.url("/fail"))), "{message}");
                    assert!(message.contains("[redacted]") && !message.contains("va%20lue"), "{message}");
                }
            }
            assert!(!format!("{outcome:?}").contains(SECRET), "{outcome:?}");
        }
    }
}

/// In the address alone too; but a host, or the base of an address, is what others call it by.
#[tokio::test]
async fn a_secret_of_the_address_that_an_answer_repeats_is_not_recorded() {
    let peer = Peer::new(|seen| Reply::Bytes(answer("200 OK", "", &json!({ "self": seen.line() }).to_string()))).await;
    let base = peer.url("/base-path");
    let env = [("KEY", SECRET), ("HOST", "127.0.0.1"), ("BASE", &base)];
    let env = BTreeMap::from(env.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let toolbox = Toolbox::builder().allow_loopback().env(EnvSource::fixed(env)).build().unwrap();
    let by_host = peer.url("/base-path").replacen("127.0.0.1", "{{ env.HOST }}", 1);
    for address in [by_host, "{{ env.BASE }}".to_owned()] {
        let url = format!("{address}/{{{{ env.KEY }}}}?from=127.0.0.1");
        let outcome = toolbox.call(http_call(EffectClass::AtMostOnce, http("POST", url))).await;
        let output = json!({ "self": "POST /base-path/[redacted]?from=127.0.0.1 HTTP/1.1" });
        assert_eq!(outcome, ToolOutcome::Done(Json::new(output)), "{address}");
    }
}

/// What is said of a call has its path as its author wrote it, and not what stood in it.
#[tokio::test]
async fn a_path_with_a_secret_in_it_is_told_as_it_is_written() {
    let peer = Peer::answering("400 Bad", "", "").await;
    let tool = http("POST", peer.url("/bot{{ env.KEY }}/send?v={{ env.HOSTPART }}"));
    let outcome = with_env().call(http_call(EffectClass::AtMostOnce, tool)).await;
    assert_eq!(failure(&outcome).message, format!("POST {} answered 400", peer.url("/bot{{ env.KEY }}/send")));
}

#[tokio::test]
async fn no_half_of_a_secret_is_shown() {
    let head = "HTTP/1.1 400 Bad\r\ncontent-length: 9000\r\n\r\n";
    let half = &SECRET[..SECRET.len() - 2];
    let long = format!("{}bad key: {half}", " ".repeat(900));
    let key = format!("{}{SECRET}", "k".repeat(56));
    let twice = format!("{{\"{key}\": 1, \"{key}\": 2}}");
    type Answer = Box<dyn Fn() -> Reply + Send + Sync>;
    let refusal = format!("{head}bad key: {half}");
    let (stalled, broken) = (refusal.clone().into_bytes(), refusal.into_bytes());
    let chunk = format!("{head}{long}").into_bytes();
    let read = answer("200 OK", "", &twice);
    // A body that only its connection ends.
    let open = format!("HTTP/1.1 400 Bad\r\nconnection: close\r\n\r\nbad key: {half}").into_bytes();
    let answers: [(&str, Answer); 5] = [
        ("bad key: …", Box::new(move || Reply::Last(open.clone()))),
        ("bad key: …", Box::new(move || Reply::Stall(stalled.clone()))),
        ("bad key: …", Box::new(move || Reply::Last(broken.clone()))),
        ("bad key: …", Box::new(move || Reply::Stall(chunk.clone()))),
        ("kkk…\" appears twice", Box::new(move || Reply::Bytes(read.clone()))),
    ];
    for (words, reply) in answers {
        let peer = Peer::new(move |_| reply()).await;
        let mut tool = http("POST", peer.url("/"));
        tool.headers.insert("authorization".to_owned(), "{{ env.KEY }}".to_owned());
        let outcome = with_env().call(http_call(EffectClass::Pure, tool)).await;
        let shown = format!("{outcome:?}");
        assert!(failure(&outcome).message.contains(words), "{shown}");
        assert!(!shown.contains("s3cr3t"), "{shown}");
    }
}

#[tokio::test]
async fn a_redirect_that_quotes_a_header_is_not_shown() {
    let end = Peer::answering("400 Bad", "", "").await;
    let target = end.url(&format!("/login/{}", SECRET.replace(' ', "%20")));
    let first = Peer::answering("307 T", &format!("location: {target}\r\n"), "").await;
    let mut tool = http("GET", first.url("/"));
    tool.headers.insert("authorization".to_owned(), "{{ env.KEY }}".to_owned());
    let outcome = with_env().call(http_call(EffectClass::Pure, tool)).await;
    assert!(failure(&outcome).message.contains("/login/[redacted] answered 400"), "{outcome:?}");
    assert!(!format!("{outcome:?}").contains("s3cr3t"), "{outcome:?}");
}

#[tokio::test]
async fn a_secret_that_spoils_a_request_is_not_shown_either() {
    let urls = [
        "http://{{ env.KEY }}/",
        "http://{{ env.KEY }}.example/",
        "http://10.0.0.1/{{ env.KEY }}",
        "http://127.0.0.1:{{ env.KEY }}/",
        "http://127.0.0.1:1/bot{{ env.KEY }}/send",
        "{{ env.KEY }}",
        "{{ env.KEY | int }}",
        "{{ env.KEY.nothing }}",
    ];
    for url in urls {
        let outcome = with_env().call(http_call(EffectClass::Pure, http("GET", url))).await;
        assert_ne!(kind(&outcome), "done");
        let shown = format!("{outcome:?}");
        assert!(!shown.contains("s3cr3t"), "{url}: {shown}");
    }
}

#[tokio::test]
async fn another_origin_gets_none_of_the_tool_s_headers() {
    let other = Peer::answering("200 OK", "", "2").await;
    let target = other.url("/next");
    let first = Peer::new(move |seen| {
        let location = if seen.line().contains("/same") { "/end".to_owned() } else { target.clone() };
        if seen.line().contains("/end") {
            return Reply::Bytes(answer("200 OK", "", "1"));
        }
        Reply::Bytes(answer("307 T", &format!("location: {location}\r\n"), ""))
    })
    .await;
    for path in ["/same", "/other"] {
        let mut tool = http("GET", first.url(path));
        tool.headers.insert("authorization".to_owned(), "{{ env.KEY }}".to_owned());
        assert_eq!(kind(&with_env().call(http_call(EffectClass::Pure, tool)).await), "done");
    }
    let kept: Vec<bool> = first.seen().iter().map(|seen| seen.header("authorization").is_some()).collect();
    assert_eq!(kept, [true, true, true]);
    let seen = other.seen().pop().unwrap();
    assert_eq!(seen.header("authorization"), None);
    assert!(seen.header("idempotency-key").is_some());
}

/// A call that needs no permission has none to show, and a job without a conversation names none.
#[tokio::test]
async fn what_a_call_does_not_have_is_not_sent() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    for (number, session) in [(7, Some("s1")), (8, None)] {
        let mut tool = http("POST", peer.url("/"));
        tool.headers.insert("X-Session".to_owned(), "<{{ job.session }}>".to_owned());
        let permit = session.map(|_| PermitNumber { generation: 5, number });
        let call = ToolCall { permit, session: session.map(Into::into), ..http_call(EffectClass::Pure, tool) };
        assert_eq!(kind(&dev().call(call).await), "done");
        let seen = peer.seen().pop().unwrap();
        assert_eq!(seen.header("Aetheris-Permit"), session.map(|_| "5.7"));
        assert_eq!(seen.header("X-Session"), Some(session.map_or("<null>", |_| "<s1>")));
    }
}

#[tokio::test]
async fn an_unknown_kind_of_input_is_sent_as_it_is() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    for input in [json!(null), json!("text"), json!([1, 2]), json!(u64::MAX)] {
        let call = call_of(EffectClass::AtMostOnce, ToolKind::Http(http("POST", peer.url("/"))), input.clone());
        assert_eq!(kind(&dev().call(call).await), "done");
        assert_eq!(peer.seen().pop().unwrap().body, input.to_string());
    }
}
