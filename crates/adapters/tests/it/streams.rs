//! Answers as providers give them, recorded in `fixtures`: whole and streamed, cut at every event, and what limits do to
//! questions. Beside each answer lies how the provider's own client reads it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use aetheris_adapters::{Dialect, ModelBook, ModelEndpoint, RateLimits};
use aetheris_core::event::FinishReason;
use aetheris_core::time::Span;
use aetheris_runtime::ports::{MODEL_HELD_BACK, ModelAnswer, ModelError, ModelRequest, Models};
use serde_json::{Value, json};

use crate::models::{KEY, QUIET, conversation, endpoint, request};
use crate::peer::{Peer, Reply, answer};
use crate::{PATIENCE, SHORT};

/// An answer that was recorded.
struct Recorded {
    body: String,
    dialect: Dialect,
    head: String,
    name: String,
    /// As the provider's own client reads it.
    read: Value,
}

fn folder(dialect: Dialect) -> PathBuf {
    let name = match dialect {
        Dialect::ChatCompletions => "chat",
        Dialect::Messages => "messages",
    };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn recorded() -> Vec<Recorded> {
    let mut all = Vec::new();
    for dialect in [Dialect::ChatCompletions, Dialect::Messages] {
        let files = std::fs::read_dir(folder(dialect)).unwrap().map(|file| file.unwrap().path());
        for path in files.filter(|path| path.extension().is_some_and(|kind| kind == "http")) {
            let text = std::fs::read_to_string(&path).unwrap();
            let (head, body) = text.split_once("\n\n").unwrap();
            let read = std::fs::read_to_string(path.with_extension("json")).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let (head, body) = (head.replace('\n', "\r\n"), body.to_owned());
            all.push(Recorded { body, dialect, head, name, read: serde_json::from_str(&read).unwrap() });
        }
    }
    assert_eq!(all.len(), 28);
    all
}

impl Recorded {
    fn is_streamed(&self) -> bool {
        self.head.contains("text/event-stream")
    }

    /// The answer with this body, as it comes over the wire.
    fn with(&self, body: &str) -> Vec<u8> {
        let (head, length) = (&self.head, body.len());
        format!("{head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").into_bytes()
    }

    /// What we make of these bytes, and what is heard meanwhile.
    async fn asked(&self, reply: Reply) -> (Result<ModelAnswer, ModelError>, Vec<String>) {
        let reply = Mutex::new(Some(reply));
        let peer = Peer::new(move |_| reply.lock().unwrap().take().unwrap()).await;
        let endpoint = ModelEndpoint { dialect: self.dialect, stream: self.is_streamed(), ..endpoint(peer.url("/v1")) };
        let book = ModelBook::builder().endpoint(endpoint).build().unwrap();
        let heard = Mutex::new(Vec::new());
        let listen = |text: &str| heard.lock().unwrap().push(text.to_owned());
        let answer = book.complete(ModelRequest { timeout: SHORT * 8, ..conversation() }, &listen).await;
        let sent: Value = serde_json::from_str(&peer.seen()[0].body).unwrap();
        assert_eq!(sent["stream"], self.is_streamed());
        let counts = self.is_streamed() && self.dialect == Dialect::ChatCompletions;
        assert_eq!(sent.get("stream_options"), counts.then(|| json!({ "include_usage": true })).as_ref());
        drop(book);
        (answer, heard.into_inner().unwrap())
    }
}

/// The code of what is no answer; none for one that is.
fn code_of(recorded: &Recorded) -> Option<&'static str> {
    let read = &recorded.read;
    match (recorded.name.as_str(), read["finish"].as_str()) {
        ("quota" | "credit", _) => Some("quota_exhausted"),
        ("rate-limited", _) => Some("model_rate_limited"),
        ("bad-key", _) => Some("model_unauthorized"),
        ("error-in-stream" | "overloaded" | "overloaded-in-stream", _) => Some("model_unavailable"),
        (_, Some("length" | "max_tokens")) => Some("model_answer_cut"),
        (_, Some("content_filter" | "refusal")) => Some("model_refused"),
        (_, Some("pause_turn")) => Some("model_answer_unreadable"),
        ("refusal", _) => Some("model_refused"),
        _ => None,
    }
}

/// The provider's own client, which shares nothing with ours, reads every answer the same.
#[tokio::test]
async fn recorded_answers_are_read_as_the_providers_clients_read_them() {
    let mut streamed = 0;
    for recorded in recorded() {
        let Recorded { name, read, .. } = &recorded;
        let (answer, heard) = recorded.asked(Reply::Last(recorded.with(&recorded.body))).await;
        if let Some(code) = code_of(&recorded) {
            let failed = answer.unwrap_err();
            assert_eq!(failed.error.code, code, "{name}: {}", failed.error.message);
            assert!(!failed.error.message.contains(KEY), "{}", failed.error.message);
            let again = ["model_answer_unreadable", "model_rate_limited", "model_unavailable"].contains(&code);
            assert_eq!(failed.retryable, again, "{name}");
            // What is cut off or declined was paid for.
            let paid = read.get("usage").map(|usage| usage["completion_tokens"].as_u64().unwrap());
            assert_eq!(failed.usage.map(|usage| usage.completion_tokens), paid, "{name}");
            let finish = match read["finish"].as_str() {
                Some("length" | "max_tokens") => Some(FinishReason::Length),
                Some("content_filter") => Some(FinishReason::Filtered),
                Some("pause_turn") => Some(FinishReason::Pause),
                Some(_) => Some(FinishReason::Refusal),
                None => None,
            };
            assert_eq!(failed.finish, finish, "{name}");
            continue;
        }
        streamed += usize::from(recorded.is_streamed());
        let answer = answer.unwrap_or_else(|failed| panic!("{name}: {}", failed.error.message));
        let calls: Vec<Value> = answer
            .calls
            .iter()
            .map(|call| {
                let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
                json!([call.id, call.name, arguments])
            })
            .collect();
        let expected: Vec<Value> = read["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| {
                let arguments: Value = serde_json::from_str(call[2].as_str().unwrap()).unwrap();
                json!([call[0], call[1], arguments])
            })
            .collect();
        assert_eq!(calls, expected, "{name}");
        assert_eq!(answer.text, read["text"].as_str().unwrap(), "{name}");
        // That client keeps what the first chunk says, which here is nothing.
        let model =
            Some(read["model"].as_str().unwrap()).filter(|model| !model.is_empty()).unwrap_or("gpt-4o-2024-11-20");
        assert_eq!(answer.model, format!("shop/{model}"), "{name}");
        let usage = answer.usage;
        let counted = json!({
            "cached_tokens": usage.cached_tokens, "completion_tokens": usage.completion_tokens,
            "prompt_tokens": usage.prompt_tokens, "reasoning_tokens": usage.reasoning_tokens,
        });
        assert_eq!(counted, read["usage"], "{name}");
        let finish = if calls.is_empty() { FinishReason::End } else { FinishReason::Tool };
        assert_eq!(answer.finish, finish, "{name}");
        if recorded.is_streamed() {
            assert_eq!(heard.concat(), answer.text, "{name}");
            let pieces = name != "text" || heard.len() > 2;
            assert!(pieces, "{name}: it is heard as it comes: {heard:?}");
        }
    }
    assert_eq!(streamed, 11);
}

/// However much of it came: without its last event it is a failure, and no call is taken from it.
#[tokio::test]
async fn a_stream_without_its_end_is_no_answer() {
    let mut cuts = 0;
    for recorded in recorded().iter().filter(|recorded| recorded.is_streamed() && code_of(recorded).is_none()) {
        let ends: Vec<usize> = recorded.body.match_indices("\n\n").map(|(at, _)| at + 2).collect();
        let (_, before_last) = ends.split_last().unwrap();
        for end in [0].iter().chain(before_last) {
            // At the end of an event, and within the next one.
            for cut in [*end, end + 9] {
                let body = recorded.body.get(..cut).unwrap_or(&recorded.body[..*end]);
                let (answer, _) = recorded.asked(Reply::Last(recorded.with(body))).await;
                let failed = answer.unwrap_err();
                let told = (failed.error.code.as_str(), failed.retryable);
                assert_eq!(told, ("model_answer_broken", true), "{} at {cut}", recorded.name);
                cuts += 1;
            }
        }
    }
    assert!(cuts > 100, "{cuts}");
}

/// What tells of no reason to stop, or of two streams in one, is no answer either.
#[tokio::test]
async fn a_stream_that_makes_no_sense_is_no_answer() {
    let chunk = |choice: Value| format!("data: {}\n\n", json!({ "choices": [choice] }));
    let whole = chunk(json!({ "index": 0, "delta": { "content": "a" }, "finish_reason": "stop" }));
    let chat = |body: String| (Dialect::ChatCompletions, body);
    let messages = |events: &[Value]| {
        let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        (Dialect::Messages, events.iter().map(event).collect::<String>())
    };
    let piece = json!({ "type": "content_block_delta", "index": 7, "delta": { "type": "text_delta", "text": "a" } });
    let stop = json!({ "type": "message_stop" });
    for ((dialect, body), code) in [
        (chat(format!("{whole}data: [DONE]\n\n")), None),
        (
            chat(chunk(json!({ "index": 0, "delta": { "content": "a" } })) + "data: [DONE]\n\n"),
            Some("model_answer_broken"),
        ),
        // Nothing said, and half of it under a reason that nobody knows.
        (
            chat(
                chunk(json!({ "index": 0, "delta": { "content": "" }, "finish_reason": "stop" })) + "data: [DONE]\n\n",
            ),
            Some("model_answer_unreadable"),
        ),
        (
            chat(
                chunk(json!({ "index": 0, "delta": { "content": "a" }, "finish_reason": "abort" }))
                    + "data: [DONE]\n\n",
            ),
            Some("model_answer_unreadable"),
        ),
        (
            chat(chunk(json!({ "index": 0, "delta": { "content": "a" }, "finish_reason": "" })) + "data: [DONE]\n\n"),
            Some("model_answer_broken"),
        ),
        // An event that the connection's end ends.
        (chat(format!("{whole}data: [DONE]")), None),
        (chat("data: {\n\n".to_owned()), Some("model_answer_broken")),
        (chat("data: [DONE]\n\n".to_owned()), Some("model_answer_broken")),
        (chat("nonsense\n\n".to_owned()), Some("model_answer_broken")),
        (
            chat(format!("data: {}\n\n", json!({ "error": { "code": 402, "message": "no credit" } }))),
            Some("quota_exhausted"),
        ),
        (
            chat(format!("data: {}\n\n", json!({ "error": { "code": 429, "message": "slow down" } }))),
            Some("model_rate_limited"),
        ),
        (chat(format!("data: {}\n\n", json!({ "error": "out of memory" }))), Some("model_unavailable")),
        (messages(&[piece, stop.clone()]), Some("model_answer_broken")),
        (messages(&[stop]), Some("model_answer_unreadable")),
    ] {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream".to_owned();
        let recorded = Recorded { body: body.clone(), dialect, head, name: String::new(), read: Value::Null };
        let (answer, _) = recorded.asked(Reply::Last(recorded.with(&body))).await;
        assert_eq!(answer.err().map(|failed| failed.error.code), code.map(str::to_owned), "{body}");
    }
}

/// Calls are told apart by their names, whatever index servers give them, and what is said once is not unsaid.
#[tokio::test]
async fn calls_of_a_stream_are_told_apart_by_their_names() {
    let piece = |call: Value| {
        let choice = json!({ "index": 0, "delta": { "tool_calls": [call] } });
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let ended = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] });
    let body = [
        piece(
            json!({ "index": 0, "id": "a", "type": "function", "function": { "name": "t", "arguments": "{\"x\":" } }),
        ),
        piece(json!({ "index": 0, "id": "fresh", "type": "", "function": { "name": "", "arguments": "1}" } })),
        piece(json!({ "index": 0, "id": "b", "type": "function", "function": { "name": "u", "arguments": "" } })),
        piece(json!({ "index": 0, "id": "c", "function": { "name": "v", "arguments": "{}" } })),
        piece(json!({ "index": 5, "id": "d", "function": { "name": "w" } })),
        piece(json!({ "index": 5, "function": { "arguments": "{\"y\":2}" } })),
        format!("data: {ended}\n\ndata: [DONE]\n\n"),
    ]
    .concat();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream".to_owned();
    let dialect = Dialect::ChatCompletions;
    let recorded = Recorded { body: String::new(), dialect, head, name: String::new(), read: Value::Null };
    let (answer, _) = recorded.asked(Reply::Last(recorded.with(&body))).await;
    let calls = answer.unwrap().calls;
    let told: Vec<_> =
        calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(told, [("a", "t", "{\"x\":1}"), ("b", "u", ""), ("c", "v", "{}"), ("d", "w", "{\"y\":2}")]);
}

/// A stream of nothing but one line, and one of a text without an end.
#[tokio::test]
async fn a_stream_is_read_up_to_a_bound() {
    let text = json!({ "choices": [{ "delta": { "content": "x".repeat(1 << 20) } }] });
    for body in [format!("data: {}", "x".repeat(3 << 20)), format!("data: {text}\n\n").repeat(3)] {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream".to_owned();
        let dialect = Dialect::ChatCompletions;
        let recorded = Recorded { body: String::new(), dialect, head, name: String::new(), read: Value::Null };
        let (answer, _) = recorded.asked(Reply::Last(recorded.with(&body))).await;
        assert_eq!(answer.unwrap_err().error.code, "model_answer_too_large");
    }
}

/// What was heard is no answer, and the time of the call holds for all of it.
#[tokio::test]
async fn a_stream_that_stalls_ends_with_the_time_of_the_call() {
    let recorded = recorded().into_iter().find(|recorded| recorded.name == "text").unwrap();
    let half = recorded.with(&recorded.body)[..recorded.head.len() + 900].to_vec();
    let (answer, heard) = recorded.asked(Reply::Stall(half)).await;
    let failed = answer.unwrap_err();
    assert_eq!((failed.error.code.as_str(), failed.retryable), ("model_timeout", true));
    assert!(!heard.is_empty());
}

/// What the configuration allows for a minute is not exceeded. A short wait is sat out; a longer one is told, and nothing leaves.
#[tokio::test]
async fn questions_keep_to_the_rate() {
    let said = json!({ "choices": [{ "finish_reason": "stop", "message": { "content": "yes" } }] }).to_string();
    let peer = Peer::answering("200 OK", "", &said).await;
    let limited = |requests, tokens| {
        let rate = RateLimits { requests_per_minute: requests, tokens_per_minute: tokens };
        ModelBook::builder().endpoint(ModelEndpoint { rate, ..endpoint(peer.url("/v1")) }).build().unwrap()
    };
    let book = limited(Some(6), None);
    assert!(book.complete(request("shop/m", "a"), QUIET).await.is_ok());
    let held = book.complete(request("shop/m", "a"), QUIET).await.unwrap_err();
    assert_eq!((held.error.code.as_str(), held.retryable, held.usage), (MODEL_HELD_BACK, true, None));
    let wait = held.retry_after.unwrap();
    assert!(wait > Span::from_secs(10) && wait <= Span::from_secs(12), "{wait:?}");
    assert!(held.error.message.contains("was not asked: its rate is used up for"), "{}", held.error.message);
    assert!(book.complete(request("shop/other", "a"), QUIET).await.is_ok());
    assert_eq!(peer.seen().len(), 2);
    // A wait of a tenth of a second is no reason to give a place away.
    let book = limited(Some(700), None);
    let all = (0..101).map(|_| book.complete(request("shop/m", "a"), QUIET));
    assert!(futures_util::future::join_all(all).await.iter().all(Result::is_ok));
    // Tokens of the answer are reckoned with before they are used.
    let book = limited(None, Some(700));
    let long = || ModelRequest { max_tokens: Some(100), ..request("shop/m", "a") };
    assert!(book.complete(long(), QUIET).await.is_ok());
    assert!(book.complete(long(), QUIET).await.is_ok(), "the first one has used one token of a hundred");
}

/// A provider that has said to wait is asked by nobody meanwhile, in whichever way it has said so.
#[tokio::test]
async fn a_provider_that_says_to_wait_is_left_alone() {
    let refused = |headers: &str| answer("429 Too Many Requests", headers, "{}");
    let empty =
        "x-ratelimit-limit-requests: 1\r\nx-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 40s\r\n";
    let dated = "date: Fri, 28 Nov 2025 18:00:00 GMT\r\nanthropic-ratelimit-requests-limit: 1\r\n\
                 anthropic-ratelimit-requests-remaining: 0\r\nanthropic-ratelimit-requests-reset: 2025-11-28T18:00:40Z\r\n";
    for (headers, asked) in [
        ("retry-after: 40\r\n", Some(Span::from_secs(40))),
        ("retry-after-ms: 40000\r\n", Some(Span::from_secs(40))),
        // The counts hold others back; whoever was refused does as its policy says.
        (empty, None),
        (dated, None),
    ] {
        let peer = Peer::answering("429 Too Many Requests", headers, "{}").await;
        let book = ModelBook::builder().endpoint(endpoint(peer.url("/v1"))).build().unwrap();
        let first = book.complete(request("shop/m", "a"), QUIET).await.unwrap_err();
        assert_eq!((first.error.code.as_str(), first.retry_after), ("model_rate_limited", asked));
        let second = book.complete(request("shop/m", "a"), QUIET).await.unwrap_err();
        assert_eq!(second.error.code, MODEL_HELD_BACK, "{headers}");
        assert!(second.retry_after.unwrap() > Span::from_secs(35), "{headers}: {:?}", second.retry_after);
        assert_eq!(peer.seen().len(), 1, "{headers}");
    }
    // An answer that says that it was the last for a while is believed as well.
    let said = json!({ "choices": [{ "finish_reason": "stop", "message": { "content": "yes" } }] }).to_string();
    let peer = Peer::answering("200 OK", empty, &said).await;
    let book = ModelBook::builder().endpoint(endpoint(peer.url("/v1"))).build().unwrap();
    assert!(book.complete(request("shop/m", "a"), QUIET).await.is_ok());
    assert_eq!(book.complete(request("shop/m", "a"), QUIET).await.unwrap_err().error.code, MODEL_HELD_BACK);
    // One that only refuses is asked again when its step is tried again.
    let peer = Peer::new(move |_| Reply::Bytes(refused(""))).await;
    let book = ModelBook::builder().endpoint(endpoint(peer.url("/v1"))).build().unwrap();
    for _ in 0..2 {
        let failed =
            book.complete(ModelRequest { timeout: PATIENCE, ..request("shop/m", "a") }, QUIET).await.unwrap_err();
        assert_eq!(failed.error.code, "model_rate_limited");
    }
}

/// What a refusal says of the provider's limits holds beyond the moment at which one may be asked again.
#[tokio::test]
async fn the_counts_of_a_refusal_hold_those_behind_it_back() {
    let counts =
        "x-ratelimit-limit-requests: 10\r\nx-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 20s\r\n";
    let refused = answer("429 Too Many Requests", counts, "{}");
    let said = json!({ "choices": [{ "finish_reason": "stop", "message": { "content": "yes" } }] }).to_string();
    let said = answer("200 OK", "", &said);
    let first = std::sync::atomic::AtomicBool::new(true);
    let peer = Peer::new(move |_| {
        let is_first = first.swap(false, std::sync::atomic::Ordering::Relaxed);
        Reply::Bytes(if is_first { refused.clone() } else { said.clone() })
    })
    .await;
    let book = ModelBook::builder().endpoint(endpoint(peer.url("/v1"))).build().unwrap();
    let failed = book.complete(request("shop/m", "a"), QUIET).await.unwrap_err();
    assert_eq!(failed.error.code, "model_rate_limited");
    // One of ten is there after two seconds, and the next two seconds later.
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    assert!(book.complete(request("shop/m", "a"), QUIET).await.is_ok());
    assert_eq!(book.complete(request("shop/m", "a"), QUIET).await.unwrap_err().error.code, MODEL_HELD_BACK);
}
