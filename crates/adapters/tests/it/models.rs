//! Models: scripts, and endpoints that answer, refuse, stall and break off.

use aetheris_adapters::{BuildError, Dialect, ModelBook, ModelEndpoint, RateLimits, Script, Secret};
use aetheris_core::event::{FinishReason, ToolAsked, Usage};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::AnswerFormat;
use aetheris_core::time::Span;
use aetheris_runtime::ports::{
    Heard, MODEL_HELD_BACK, ModelAnswer, ModelError, ModelRequest, Models, PastCall, PastTurn, ToolOffer,
};
use serde_json::{Value, json};

use crate::peer::{Nobody, Peer, Reply, answer};
use crate::{PATIENCE, SHORT};

pub(crate) const KEY: &str = "sk-very-secret";
/// Nobody watches.
pub(crate) const QUIET: Heard<'static> = &|_| {};

pub(crate) fn request(model: &str, prompt: &str) -> ModelRequest {
    ModelRequest::new(model, prompt, PATIENCE)
}

pub(crate) fn endpoint(base_url: impl Into<String>) -> ModelEndpoint {
    ModelEndpoint {
        api_key: Some(Secret::new(KEY)),
        api_key_env: Some("SHOP_KEY".to_owned()),
        api_key_file: None,
        base_url: base_url.into(),
        dialect: Dialect::ChatCompletions,
        max_concurrent: None,
        name: "shop".to_owned(),
        rate: RateLimits::default(),
        stream: false,
        timeout: PATIENCE,
    }
}

fn book(peer: &Peer) -> ModelBook {
    ModelBook::builder().endpoint(endpoint(peer.url("/v1/"))).build().unwrap()
}

async fn ask(peer: &Peer) -> Result<ModelAnswer, ModelError> {
    book(peer).complete(request("shop/org/small", "two words"), QUIET).await
}

fn completion(content: &Value, finish: &str) -> String {
    json!({
        "id": "c1", "object": "chat.completion", "model": "org/small-2026",
        "choices": [{ "index": 0, "finish_reason": finish, "message": { "role": "assistant", "content": content } }],
        "usage": { "prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12 },
    })
    .to_string()
}

#[tokio::test]
async fn an_answer_is_its_text_model_and_usage() {
    let peer = Peer::answering("200 OK", "", &completion(&json!("approve\n"), "stop")).await;
    let expected = ModelAnswer {
        calls: Vec::new(),
        finish: FinishReason::End,
        model: "shop/org/small-2026".to_owned(),
        text: "approve\n".to_owned(),
        usage: Usage { completion_tokens: 3, prompt_tokens: 9, ..Usage::default() },
    };
    assert_eq!(ask(&peer).await, Ok(expected));
    let seen = peer.seen().pop().unwrap();
    assert_eq!(seen.line(), "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(
        serde_json::from_str::<Value>(&seen.body).unwrap(),
        json!({ "model": "org/small", "stream": false, "messages": [{ "role": "user", "content": "two words" }] })
    );
}

/// A conversation with two tools: what was said and what came of it goes back as the provider said it.
pub(crate) fn conversation() -> ModelRequest {
    let asked = |id: &str, provider| ToolAsked {
        arguments: "{\"q\": 1}".to_owned(),
        id: id.to_owned(),
        name: "look_up".to_owned(),
        provider,
        tool: Some("look.up".into()),
    };
    let signed = Json::new(json!({ "extra_content": { "google": { "thought_signature": "s" } } }));
    let call = |asked, result: &str, failed| PastCall { asked, failed, result: result.to_owned() };
    let first = PastTurn {
        calls: vec![call(asked("c1", Some(signed)), "found", false), call(asked("c2", None), "error: none", true)],
        reply: None,
        text: String::new(),
    };
    let second = PastTurn { calls: Vec::new(), reply: Some("that does not fit".to_owned()), text: "well".to_owned() };
    let schema = Json::new(json!({ "type": "object" }));
    let offer = |name: &str, description: Option<&str>, input_schema| ToolOffer {
        description: description.map(str::to_owned),
        input_schema,
        name: name.to_owned(),
    };
    ModelRequest {
        may_call: true,
        system: Some("Be brief.".to_owned()),
        tools: vec![offer("look_up", Some("Looks"), Some(schema)), offer("bare", None, None)],
        turns: vec![first, second],
        ..request("shop/m", "find it")
    }
}

#[tokio::test]
async fn a_conversation_is_sent_as_it_went() {
    let peer = Peer::answering("200 OK", "", &completion(&json!("done"), "stop")).await;
    for (may_call, choice) in [(true, "auto"), (false, "none")] {
        book(&peer).complete(ModelRequest { may_call, ..conversation() }, QUIET).await.unwrap();
        let body: Value = serde_json::from_str(&peer.seen().pop().unwrap().body).unwrap();
        let function = json!({ "name": "look_up", "arguments": "{\"q\":1}" });
        let signed = json!({ "google": { "thought_signature": "s" } });
        assert_eq!(
            body,
            json!({
                "model": "m", "stream": false, "tool_choice": choice,
                "messages": [
                    { "role": "system", "content": "Be brief." },
                    { "role": "user", "content": "find it" },
                    { "role": "assistant", "content": null, "tool_calls": [
                        { "id": "c1", "type": "function", "function": function, "extra_content": signed },
                        { "id": "c2", "type": "function", "function": function },
                    ] },
                    { "role": "tool", "tool_call_id": "c1", "content": "found" },
                    { "role": "tool", "tool_call_id": "c2", "content": "error: none" },
                    { "role": "assistant", "content": "well" },
                    { "role": "user", "content": "that does not fit" },
                ],
                "tools": [
                    { "type": "function", "function": { "name": "look_up", "description": "Looks", "parameters": { "type": "object", "properties": {} } } },
                    { "type": "function", "function": { "name": "bare", "parameters": { "type": "object", "properties": {} } } },
                ],
            })
        );
    }
}

/// A book whose provider speaks the dialect of messages.
fn messages(peer: &Peer) -> ModelBook {
    let endpoint = ModelEndpoint { dialect: Dialect::Messages, ..endpoint(peer.url("/v1/")) };
    ModelBook::builder().endpoint(endpoint).build().unwrap()
}

fn message(content: &Value, stopped: Option<&str>) -> String {
    let usage = json!({
        "input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 5
    });
    json!({
        "id": "m1", "type": "message", "role": "assistant", "model": "m-2026", "content": content,
        "stop_reason": stopped, "usage": usage,
    })
    .to_string()
}

#[tokio::test]
async fn a_message_is_its_text_calls_model_and_usage() {
    let content = json!([
        { "type": "thinking", "thinking": "hm", "signature": "x" },
        { "type": "text", "text": "I will " },
        { "type": "text", "text": "look" },
        { "type": "tool_use", "id": "c1", "name": "t", "input": { "q": 1 }, "caller": { "type": "direct" } },
    ]);
    let peer = Peer::answering("200 OK", "", &message(&content, Some("tool_use"))).await;
    let answer = messages(&peer).complete(conversation(), QUIET).await.unwrap();
    let asked = ToolAsked {
        arguments: "{\"q\":1}".to_owned(),
        id: "c1".to_owned(),
        name: "t".to_owned(),
        provider: Some(Json::new(json!({ "caller": { "type": "direct" } }))),
        tool: None,
    };
    let expected = ModelAnswer {
        calls: vec![asked],
        finish: FinishReason::Tool,
        model: "shop/m-2026".to_owned(),
        text: "I will look".to_owned(),
        usage: Usage { cached_tokens: 20, completion_tokens: 3, prompt_tokens: 34, ..Usage::default() },
    };
    assert_eq!(answer, expected);
    let seen = peer.seen().pop().unwrap();
    assert_eq!(seen.line(), "POST /v1/messages HTTP/1.1");
    let headers = ["x-api-key", "anthropic-version", "authorization"].map(|name| seen.header(name).map(str::to_owned));
    assert_eq!(headers, [Some(KEY.to_owned()), Some("2023-06-01".to_owned()), None]);
}

#[tokio::test]
async fn a_conversation_of_messages_is_sent_as_it_went() {
    let done = json!([{ "type": "text", "text": "done" }]);
    let peer = Peer::answering("200 OK", "", &message(&done, Some("end_turn"))).await;
    for (may_call, choice) in [(true, "auto"), (false, "none")] {
        let mut request = ModelRequest { max_tokens: Some(50), may_call, temperature: Some(0.5), ..conversation() };
        request.turns[1].text = " ".to_owned();
        messages(&peer).complete(request, QUIET).await.unwrap();
        let body: Value = serde_json::from_str(&peer.seen().pop().unwrap().body).unwrap();
        let signed = json!({ "google": { "thought_signature": "s" } });
        let input = json!({ "q": 1 });
        assert_eq!(
            body,
            json!({
                "model": "m", "stream": false, "max_tokens": 50, "temperature": 0.5, "system": "Be brief.",
                "tool_choice": { "type": choice },
                "messages": [
                    { "role": "user", "content": "find it" },
                    { "role": "assistant", "content": [
                        { "type": "tool_use", "id": "c1", "name": "look_up", "input": input, "extra_content": signed },
                        { "type": "tool_use", "id": "c2", "name": "look_up", "input": input },
                    ] },
                    { "role": "user", "content": [
                        { "type": "tool_result", "tool_use_id": "c1", "content": "found", "is_error": false },
                        { "type": "tool_result", "tool_use_id": "c2", "content": "error: none", "is_error": true },
                    ] },
                    // Nothing was said there: an empty message is refused.
                    { "role": "user", "content": [{ "type": "text", "text": "that does not fit" }] },
                ],
                "tools": [
                    { "name": "look_up", "description": "Looks", "input_schema": { "type": "object", "properties": {} } },
                    { "name": "bare", "input_schema": { "type": "object", "properties": {} } },
                ],
            })
        );
    }
    // A message alone says how long its answer may be all the same.
    messages(&peer).complete(request("shop/m", "hi"), QUIET).await.unwrap();
    let body: Value = serde_json::from_str(&peer.seen().pop().unwrap().body).unwrap();
    let alone = json!([{ "role": "user", "content": "hi" }]);
    assert_eq!(body, json!({ "model": "m", "stream": false, "max_tokens": 4096, "messages": alone }));
}

/// What another model wrote as arguments need be no object: it is shown as it was.
#[tokio::test]
async fn arguments_that_are_no_object_are_told_as_they_were() {
    let done = json!([{ "type": "text", "text": "done" }]);
    let peer = Peer::answering("200 OK", "", &message(&done, Some("end_turn"))).await;
    let mut request = conversation();
    request.turns[0].calls[0].asked.arguments = "{ not json".to_owned();
    messages(&peer).complete(request, QUIET).await.unwrap();
    let body: Value = serde_json::from_str(&peer.seen().pop().unwrap().body).unwrap();
    assert_eq!(body["messages"][1]["content"][0]["input"], json!({ "arguments": "{ not json" }));
}

#[tokio::test]
async fn only_a_whole_message_is_an_answer() {
    let text = json!([{ "type": "text", "text": "so" }]);
    let call = |call: Value| json!([{ "type": "text", "text": "so" }, call]);
    let half = call(json!({ "type": "tool_use", "id": "c1" }));
    let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "full" } }).to_string();
    for (body, code, again) in [
        (message(&text, Some("max_tokens")), "model_answer_cut", false),
        (message(&text, Some("refusal")), "model_refused", false),
        (message(&text, Some("model_context_window_exceeded")), "model_context_full", false),
        (message(&text, Some("pause_turn")), "model_answer_unreadable", true),
        (message(&text, None), "model_answer_unreadable", true),
        (message(&half, Some("tool_use")), "model_answer_unreadable", true),
        (message(&json!([]), Some("end_turn")), "model_answer_unreadable", true),
        ("{".to_owned(), "model_answer_unreadable", true),
        (error, "model_unavailable", true),
    ] {
        let peer = Peer::answering("200 OK", "", &body).await;
        let failed = messages(&peer).complete(conversation(), QUIET).await.unwrap_err();
        assert_eq!((failed.error.code.as_str(), failed.retryable), (code, again), "{body}");
    }
}

/// What is used up does not come back by waiting; a rate does.
#[tokio::test]
async fn an_exhausted_quota_is_no_rate_limit() {
    let refused = |code: &str| json!({ "error": { "code": code, "message": "no" } }).to_string();
    for (code, expected, retryable) in
        [("insufficient_quota", "quota_exhausted", false), ("rate_limit_exceeded", "model_rate_limited", true)]
    {
        let peer = Peer::answering("429 Too Many Requests", "retry-after: 7\r\n", &refused(code)).await;
        let failed = ask(&peer).await.unwrap_err();
        assert_eq!((failed.error.code.as_str(), failed.retryable), (expected, retryable));
        assert_eq!(failed.retry_after, retryable.then_some(Span::from_secs(7)));
    }
}

/// No more questions are under way than the configuration allows; who waits too long is told why.
#[tokio::test]
async fn questions_wait_for_their_turn() {
    let peer = Peer::answering("200 OK", "", &completion(&json!("yes"), "stop")).await;
    let endpoint = ModelEndpoint { max_concurrent: Some(1), ..endpoint(peer.url("/v1")) };
    let book = ModelBook::builder().endpoint(endpoint).build().unwrap();
    let both = tokio::join!(book.complete(request("shop/m", "a"), QUIET), book.complete(request("shop/m", "b"), QUIET));
    assert!(both.0.is_ok() && both.1.is_ok());
    let stalls = Peer::new(|_| Reply::Stall(Vec::new())).await;
    let endpoint = ModelEndpoint { max_concurrent: Some(1), ..self::endpoint(stalls.url("/v1")) };
    let book = ModelBook::builder().endpoint(endpoint).build().unwrap();
    let short = || ModelRequest { timeout: SHORT, ..request("shop/m", "a") };
    let (first, second) = tokio::join!(book.complete(short(), QUIET), book.complete(short(), QUIET));
    assert_eq!(first.unwrap_err().error.code, "model_timeout");
    let second = second.unwrap_err();
    assert_eq!((second.error.code.as_str(), second.retryable), (MODEL_HELD_BACK, true));
    assert!(
        second.error.message.contains("all 1 requests that `max_concurrent` allows are in use"),
        "{}",
        second.error.message
    );
    assert_eq!(stalls.seen().len(), 1);
}

fn calling(message: &Value, finish: &str) -> String {
    json!({ "choices": [{ "finish_reason": finish, "message": message }] }).to_string()
}

#[tokio::test]
async fn calls_are_read_as_they_are_asked_for() {
    let call = json!({ "id": "c1", "index": 0, "type": "function", "function": { "name": "t", "arguments": "{\"a\": 1" }, "x": [1] });
    let bare = json!({ "function": { "name": "u", "arguments": { "a": 1 } } });
    let none = json!({ "id": null, "function": { "name": "v", "arguments": null } });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call, bare, none] });
    let peer = Peer::answering("200 OK", "", &calling(&message, "tool_calls")).await;
    let answer = book(&peer).complete(conversation(), QUIET).await.unwrap();
    let asked = |arguments: &str, id: &str, name: &str, provider| ToolAsked {
        arguments: arguments.to_owned(),
        id: id.to_owned(),
        name: name.to_owned(),
        provider,
        tool: None,
    };
    let expected = [
        asked("{\"a\": 1", "c1", "t", Some(Json::new(json!({ "x": [1] })))),
        asked("{\"a\":1}", "", "u", None),
        asked("", "", "v", None),
    ];
    assert_eq!((answer.text.as_str(), answer.calls.as_slice()), ("", expected.as_slice()));
    // Nobody counted: what went back and forth is estimated, results with it.
    let mut longer = conversation();
    longer.turns[0].calls[0].result = "x".repeat(4_005);
    let more = book(&peer).complete(longer, QUIET).await.unwrap().usage;
    assert_eq!(more.prompt_tokens, answer.usage.prompt_tokens + 1_000);
    assert!(answer.usage.prompt_tokens > 20 && answer.usage.completion_tokens > 0, "{:?}", answer.usage);
}

/// Names that a model has made up, and arguments that are none, go back in a form that providers take.
#[tokio::test]
async fn what_a_model_made_up_is_sent_so_that_it_is_taken() {
    let peer = Peer::answering("200 OK", "", &completion(&json!("done"), "stop")).await;
    for (name, arguments, sent) in [
        ("functions.look", "{ half", json!({ "name": "functions_look", "arguments": "{\"arguments\":\"{ half\"}" })),
        ("", "", json!({ "name": "unknown", "arguments": "{}" })),
        ("a b\n", "[1]", json!({ "name": "a_b_", "arguments": "{\"arguments\":\"[1]\"}" })),
    ] {
        let mut request = conversation();
        let asked = &mut request.turns[0].calls[1].asked;
        (asked.name, asked.arguments) = (name.to_owned(), arguments.to_owned());
        book(&peer).complete(request, QUIET).await.unwrap();
        let body: Value = serde_json::from_str(&peer.seen().pop().unwrap().body).unwrap();
        assert_eq!(body["messages"][2]["tool_calls"][1]["function"], sent);
    }
}

/// What is read from a cache and what is thought stand inside the counts beside them.
#[tokio::test]
async fn cached_and_reasoning_tokens_are_told() {
    let body = json!({
        "choices": [{ "finish_reason": "stop", "message": { "content": "a" } }],
        "usage": {
            "prompt_tokens": 9, "completion_tokens": 7,
            "prompt_tokens_details": { "cached_tokens": 4 }, "completion_tokens_details": { "reasoning_tokens": 5 },
        },
    });
    let peer = Peer::answering("200 OK", "", &body.to_string()).await;
    let expected = Usage { cached_tokens: 4, completion_tokens: 7, prompt_tokens: 9, reasoning_tokens: 5 };
    assert_eq!(ask(&peer).await.unwrap().usage, expected);
}

/// There is no form of a message that is JSON: it is asked for in words.
#[tokio::test]
async fn json_is_asked_for_in_the_system_text_of_messages() {
    let done = json!([{ "type": "text", "text": "{}" }]);
    let peer = Peer::answering("200 OK", "", &message(&done, Some("end_turn"))).await;
    for (system, sent) in [
        (None, "Answer with one JSON value and nothing else."),
        (Some("Be brief."), "Be brief.\n\nAnswer with one JSON value and nothing else."),
    ] {
        let request =
            ModelRequest { format: AnswerFormat::Json, system: system.map(str::to_owned), ..request("shop/m", "x") };
        messages(&peer).complete(request, QUIET).await.unwrap();
        let body: Value = serde_json::from_str(&peer.seen().pop().unwrap().body).unwrap();
        assert_eq!(body["system"], sent);
    }
    // Thoughts alone are no answer.
    let thoughts = json!([{ "type": "thinking", "thinking": "hm" }]);
    let peer = Peer::answering("200 OK", "", &message(&thoughts, Some("end_turn"))).await;
    let failed = messages(&peer).complete(request("shop/m", "x"), QUIET).await.unwrap_err();
    assert_eq!((failed.error.code.as_str(), failed.retryable), ("model_answer_unreadable", true));
}

/// No call is taken out of an answer that was cut off, or that cannot be read.
#[tokio::test]
async fn no_call_is_taken_from_half_an_answer() {
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "t", "arguments": "{" } });
    for (calls, finish, code, retryable) in [
        (json!([call]), "length", "model_answer_cut", false),
        (json!([{ "id": "c1" }]), "tool_calls", "model_answer_unreadable", true),
        (json!([{ "function": { "arguments": "{}" } }]), "tool_calls", "model_answer_unreadable", true),
        (json!([7]), "tool_calls", "model_answer_unreadable", true),
        (json!([]), "stop", "model_answer_unreadable", true),
    ] {
        let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
        let peer = Peer::answering("200 OK", "", &calling(&message, finish)).await;
        let failed = book(&peer).complete(conversation(), QUIET).await.unwrap_err();
        assert_eq!((failed.error.code.as_str(), failed.retryable), (code, retryable), "{calls}");
    }
}

/// `scripted/tools` needs no network: it calls what it is told of, and answers with what came of it.
#[tokio::test]
async fn a_script_calls_each_tool_in_turn() {
    let book = ModelBook::builder()
        .script(
            "once",
            Script::calling(|request| Ok((String::new(), vec![(request.tools[0].name.clone(), Json::null())]))),
        )
        .build()
        .unwrap();
    let mut request = ModelRequest { turns: Vec::new(), ..conversation() };
    request.model = "scripted/tools".to_owned();
    request.prompt = "{\"q\": 1}".to_owned();
    for name in ["look_up", "bare"] {
        let answer = book.complete(request.clone(), QUIET).await.unwrap();
        assert_eq!(
            (answer.calls.len(), answer.calls[0].name.as_str(), answer.calls[0].arguments.as_str()),
            (1, name, "{\"q\":1}")
        );
        let call = PastCall { asked: answer.calls[0].clone(), failed: false, result: format!("from {name}") };
        request.turns.push(PastTurn { calls: vec![call], reply: None, text: String::new() });
    }
    let last = book.complete(request.clone(), QUIET).await.unwrap();
    assert_eq!((last.text.as_str(), last.calls.len()), ("from bare", 0));
    request.turns.pop();
    let last = book.complete(ModelRequest { may_call: false, ..request.clone() }, QUIET).await.unwrap();
    assert_eq!((last.text.as_str(), last.calls.len()), ("from look_up", 0));
    let once = book.complete(ModelRequest { model: "scripted/once".to_owned(), ..request }, QUIET).await.unwrap();
    assert_eq!(once.calls[0].name, "look_up");
}

#[tokio::test]
async fn everything_that_is_asked_for_is_sent() {
    let peer = Peer::answering("200 OK", "", &completion(&json!("{}"), "stop")).await;
    // Zero is asked for like any other number, and so is a text of nothing.
    for (max_tokens, temperature, system) in [(50, 0.5, "Be brief."), (1, 0.0, ""), (u32::MAX, 2.0, "Be brief.")] {
        let request = ModelRequest {
            format: AnswerFormat::Json,
            max_tokens: Some(max_tokens),
            system: Some(system.to_owned()),
            temperature: Some(temperature),
            ..request("shop/m", "hi")
        };
        assert_eq!(book(&peer).complete(request, QUIET).await.unwrap().text, "{}");
        let expected = json!({
            "model": "m", "stream": false, "max_tokens": max_tokens, "temperature": temperature,
            "response_format": { "type": "json_object" },
            "messages": [{ "role": "system", "content": system }, { "role": "user", "content": "hi" }],
        });
        assert_eq!(serde_json::from_str::<Value>(&peer.seen().pop().unwrap().body).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_refusal_is_retryable_where_asking_again_can_help() {
    let cases = [
        ("301 Moved", "model_request_refused", false),
        ("400 Bad Request", "model_request_refused", false),
        ("401 Unauthorized", "model_unauthorized", false),
        ("402 Payment Required", "quota_exhausted", false),
        ("403 Forbidden", "model_unauthorized", false),
        ("404 Not Found", "model_request_refused", false),
        ("408 Request Timeout", "model_unavailable", true),
        ("409 Conflict", "model_unavailable", true),
        ("422 Unprocessable", "model_request_refused", false),
        ("425 Too Early", "model_unavailable", true),
        ("429 Too Many", "model_rate_limited", true),
        ("500 Oops", "model_unavailable", true),
        ("503 Unavailable", "model_unavailable", true),
        ("529 Overloaded", "model_unavailable", true),
    ];
    for (status, code, retryable) in cases {
        let body = json!({ "error": { "message": format!("no, {KEY} is wrong") } }).to_string();
        let peer = Peer::answering(status, "retry-after: 4\r\nlocation: /x\r\n", &body).await;
        let error = ask(&peer).await.unwrap_err();
        assert_eq!((error.error.code.as_str(), error.retryable), (code, retryable), "{status}");
        assert_eq!(error.retry_after, retryable.then_some(Span::from_secs(4)), "{status}");
        let message = &error.error.message;
        assert!(message.contains("shop/org/small") && message.contains(&status[..3]), "{message}");
        assert!(!message.contains(KEY), "{message}");
        let quoted = code != "model_unauthorized";
        assert_eq!(message.contains("[redacted] is wrong"), quoted, "{message}");
        assert_eq!(message.contains("SHOP_KEY"), !quoted, "{message}");
        assert_eq!(peer.seen().len(), 1, "{status}: no retries and no redirects of our own");
    }
}

/// The advice is about the place that the key was read from.
#[tokio::test]
async fn a_key_that_is_refused_is_looked_for_where_it_was_read() {
    for (env, file, told) in [
        (Some("SHOP_KEY"), None, "check the key in the environment variable `SHOP_KEY`"),
        (None, Some("/run/secrets/shop"), "check the key in the file /run/secrets/shop"),
        (None, None, "`models.shop.api_key_env` or `api_key_file` of the worker's configuration"),
    ] {
        let peer = Peer::answering("401 Unauthorized", "", "{}").await;
        let config = ModelEndpoint {
            api_key_env: env.map(str::to_owned),
            api_key_file: file.map(Into::into),
            ..endpoint(peer.url("/v1/"))
        };
        let book = ModelBook::builder().endpoint(config).build().unwrap();
        let message = book.complete(request("shop/m", "hi"), QUIET).await.unwrap_err().error.message;
        assert!(message.contains(told), "{message}");
    }
}

/// What a worker's configuration lacks is not to be looked for in the server's.
#[tokio::test]
async fn a_model_that_is_missing_is_told_of_whoever_was_asked() {
    let book = ModelBook::builder().build().unwrap();
    let at_run = book.complete(request("shop/m", "hi"), QUIET).await.unwrap_err().error.message;
    assert!(at_run.contains("`models` of the worker's configuration has"), "{at_run}");
    let at_put = book.knows("shop/m").unwrap_err();
    assert!(at_put.contains("`models` of the server's configuration has"), "{at_put}");
}

#[tokio::test]
async fn what_stalls_or_breaks_is_retryable() {
    let truncated = b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{\"choices\":".to_vec();
    let cases: [(Reply, &str); 5] = [
        (Reply::Stall(vec![]), "model_timeout"),
        (Reply::Stall(truncated.clone()), "model_timeout"),
        (Reply::Last(vec![]), "model_unreachable"),
        (Reply::Last(b"HTTP/1.1 20".to_vec()), "model_unreachable"),
        (Reply::Last(truncated), "model_answer_broken"),
    ];
    for (reply, code) in cases {
        let peer = Peer::new(move |_| match &reply {
            Reply::Bytes(bytes) => Reply::Bytes(bytes.clone()),
            Reply::Last(bytes) => Reply::Last(bytes.clone()),
            Reply::Stall(bytes) => Reply::Stall(bytes.clone()),
        })
        .await;
        let mut request = request("shop/m", "hi");
        if code == "model_timeout" {
            request.timeout = SHORT;
        }
        let begun = tokio::time::Instant::now();
        let error = book(&peer).complete(request, QUIET).await.unwrap_err();
        assert_eq!((error.error.code.as_str(), error.retryable), (code, true), "{}", error.error.message);
        assert!(begun.elapsed() < PATIENCE / 2, "{code}: {:?}", begun.elapsed());
    }
    let nobody = Nobody::new();
    let book = ModelBook::builder().endpoint(endpoint(nobody.url())).build().unwrap();
    let error = book.complete(request("shop/m", "hi"), QUIET).await.unwrap_err();
    assert_eq!((error.error.code.as_str(), error.retryable), ("model_unreachable", true));
    assert!(error.error.message.contains("cannot be reached"), "{}", error.error.message);
}

#[tokio::test]
async fn the_endpoint_s_own_timeout_holds_too() {
    let peer = Peer::new(|_| Reply::Stall(vec![])).await;
    let config = ModelEndpoint { timeout: SHORT, ..endpoint(peer.url("")) };
    let book = ModelBook::builder().endpoint(config).build().unwrap();
    let error = book.complete(request("shop/m", "hi"), QUIET).await.unwrap_err();
    assert_eq!(error.error.code, "model_timeout");
}

#[tokio::test]
async fn an_answer_that_is_none_says_why() {
    let choice = |message: Value| json!({ "choices": [{ "message": message }] }).to_string();
    let cases = [
        ("not json".to_owned(), "model_answer_unreadable", true),
        ("[]".to_owned(), "model_answer_unreadable", true),
        ("{}".to_owned(), "model_answer_unreadable", true),
        (json!({ "choices": [] }).to_string(), "model_answer_unreadable", true),
        (json!({ "choices": [{}] }).to_string(), "model_answer_unreadable", true),
        (choice(json!({ "content": null })), "model_answer_unreadable", true),
        (choice(json!({ "content": "" })), "model_answer_unreadable", true),
        (completion(&json!("half an ans"), "insufficient_system_resource"), "model_answer_unreadable", true),
        (choice(json!({ "content": { "a": 1 } })), "model_answer_unreadable", true),
        (choice(json!({ "content": null, "refusal": "I won't" })), "model_refused", false),
        (choice(json!({ "content": "half an ans", "refusal": "I won't" })), "model_refused", false),
        (completion(&json!("half an ans"), "length"), "model_answer_cut", false),
        (completion(&json!(""), "length"), "model_answer_cut", false),
        (completion(&json!(null), "length"), "model_answer_cut", false),
        (completion(&json!("half an ans"), "content_filter"), "model_refused", false),
        (completion(&json!(""), "content_filter"), "model_refused", false),
        (completion(&json!(null), "content_filter"), "model_refused", false),
        ("x".repeat(3 << 20), "model_answer_too_large", false),
    ];
    let empty = json!({ "choices": [{}] }).to_string();
    let odd = choice(json!({ "content": { "a": 1 } }));
    let unread = ["not json".to_owned(), "[]".to_owned(), empty, odd, "x".repeat(3 << 20)];
    for (body, code, retryable) in cases {
        let peer = Peer::answering("200 OK", "", &body).await;
        let error = ask(&peer).await.unwrap_err();
        assert_eq!((error.error.code.as_str(), error.retryable), (code, retryable), "{:.80}", body);
        // An answer that cannot be taken has been paid for like any other; of one that cannot be read nobody knows.
        let used = match (body.contains("total_tokens"), code) {
            (true, _) => Some(Usage { completion_tokens: 3, prompt_tokens: 9, ..Usage::default() }),
            (false, _) if !unread.contains(&body) => {
                Some(Usage { completion_tokens: 0, prompt_tokens: 3, ..Usage::default() })
            }
            (false, _) => None,
        };
        assert_eq!(error.usage, used, "{:.80}", body);
    }
    let uncounted = Peer::answering("200 OK", "", &choice(json!({ "content": "a" }))).await;
    let answer = ask(&uncounted).await.unwrap();
    assert_eq!(answer.usage, Usage { completion_tokens: 1, prompt_tokens: 3, ..Usage::default() });
    assert_eq!((answer.text.as_str(), answer.model.as_str()), ("a", "shop/org/small"));
}

/// Twice the largest value that is kept: to the byte, whether or not its length is announced.
#[tokio::test]
async fn an_answer_is_read_up_to_its_bound() {
    let most = 2 * limits::PAYLOAD_BYTES_MAX;
    for (bytes, code) in [(most, None), (most + 1, Some("model_answer_too_large"))] {
        let padded = |text: String| format!("{text}{}", " ".repeat(bytes - text.len()));
        let body = padded(completion(&json!("yes"), "stop"));
        let open = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}").into_bytes();
        for reply in [answer("200 OK", "", &body), open] {
            let peer = Peer::new(move |_| Reply::Last(reply.clone())).await;
            let error = ask(&peer).await.err().map(|error| error.error.code);
            assert_eq!(error.as_deref(), code, "{bytes}");
        }
    }
}

/// Where an endpoint does not count, all that it was sent and all that it said is estimated: a token of four bytes, begun
/// ones as well.
#[tokio::test]
async fn what_is_not_counted_is_estimated() {
    let choice = |text: &str| json!({ "choices": [{ "message": { "content": text } }] }).to_string();
    for (system, prompt, text, prompt_tokens, completion_tokens) in [
        (None, "", "a", 0, 1),
        (None, "a", "abcd", 1, 1),
        (None, "abcd", "abcde", 1, 2),
        (None, "ééé", "é", 2, 1),
        (Some("abcd"), "abcde", "a", 3, 1),
    ] {
        let peer = Peer::answering("200 OK", "", &choice(text)).await;
        let request = ModelRequest { system: system.map(str::to_owned), ..request("shop/m", prompt) };
        let usage = book(&peer).complete(request, QUIET).await.unwrap().usage;
        assert_eq!(usage, Usage { completion_tokens, prompt_tokens, ..Usage::default() }, "{system:?} {prompt} {text}");
    }
}

/// An answer that was paid for is not asked again for how its tokens are written.
#[tokio::test]
async fn a_count_that_is_written_otherwise_is_read_and_one_that_is_none_estimated() {
    let estimated = Usage { completion_tokens: 1, prompt_tokens: 3, ..Usage::default() };
    let counted = Usage { completion_tokens: 5, prompt_tokens: 9, ..Usage::default() };
    for (usage, expected) in [
        (json!({ "prompt_tokens": 9.0, "completion_tokens": 5e0 }), counted),
        (json!({ "prompt_tokens": 9, "completion_tokens": 5, "details": null }), counted),
        (json!({ "prompt_tokens": 9 }), Usage { completion_tokens: 0, prompt_tokens: 9, ..Usage::default() }),
        (json!({ "prompt_tokens": 9, "completion_tokens": 5.5 }), estimated),
        (json!({ "prompt_tokens": 9, "completion_tokens": null }), estimated),
        (json!({ "prompt_tokens": "9", "completion_tokens": 5 }), estimated),
        (json!({ "prompt_tokens": -9, "completion_tokens": 1e300 }), estimated),
        (json!([9, 5]), estimated),
    ] {
        let body = json!({ "choices": [{ "message": { "content": "yes" } }], "usage": usage }).to_string();
        let answer = ask(&Peer::answering("200 OK", "", &body).await).await.unwrap();
        assert_eq!((answer.text.as_str(), answer.usage), ("yes", expected), "{usage}");
    }
}

#[tokio::test]
async fn no_half_of_a_key_is_shown() {
    let long = "x".repeat(195);
    let refusal = json!({ "choices": [{ "message": { "content": null, "refusal": format!("{long}{KEY}") } }] });
    let refused = Peer::answering("200 OK", "", &refusal.to_string()).await;
    let half = &KEY[..KEY.len() - 3];
    let begun = format!("HTTP/1.1 400 Bad\r\ncontent-length: 9000\r\n\r\nbad key: {half}").into_bytes();
    let stalled = Peer::new(move |_| Reply::Stall(begun.clone())).await;
    for (peer, words) in [(refused, "x[reda…"), (stalled, "bad key: …")] {
        let message = ask(&peer).await.unwrap_err().error.message;
        assert!(message.ends_with(words) && !message.contains("sk-"), "{message}");
    }
}

#[tokio::test]
async fn scripts_answer_by_their_rules() {
    let book = ModelBook::builder()
        .script("turns", Script::replies(["one", "two"]))
        .script("rule", Script::rule(|request| Ok(format!("{} {}", request.prompt, request.prompt))))
        .build()
        .unwrap();
    let cases = [
        ("scripted/echo", "say this", "say this", 2, 2),
        ("scripted/approve", "anything", "approve", 1, 1),
        ("scripted/reject", "anything", "reject", 1, 1),
        ("scripted/refund", "Refund 12? Answer Approve or Reject.", "approve", 6, 1),
        ("scripted/refund", "hello", "hello", 1, 1),
        ("scripted/turns", "", "one", 0, 1),
        ("scripted/turns", "", "two", 0, 1),
        ("scripted/turns", "", "two", 0, 1),
        ("scripted/rule", "x", "x x", 1, 2),
    ];
    for (model, prompt, text, prompt_tokens, completion_tokens) in cases {
        let usage = Usage { completion_tokens, prompt_tokens, ..Usage::default() };
        let expected = ModelAnswer::text(model, text, usage);
        assert_eq!(book.complete(request(model, prompt), QUIET).await, Ok(expected), "{model}");
    }
    for (prompt, text) in [("plain", "\"plain\""), ("{\"a\": 1}", "{\"a\": 1}")] {
        let request = ModelRequest { format: AnswerFormat::Json, ..request("scripted/echo", prompt) };
        assert_eq!(book.complete(request, QUIET).await.unwrap().text, text);
    }
}

#[tokio::test]
async fn an_unknown_model_is_named_with_what_there_is() {
    let book = ModelBook::builder().endpoint(endpoint("http://127.0.0.1:1")).build().unwrap();
    assert_eq!(book.knows("shop/any/model:7b"), Ok(()));
    assert_eq!(book.knows("scripted/echo"), Ok(()));
    for (model, words) in [
        ("gpt", "provider/model"),
        ("/x", "provider/model"),
        ("shop/", "provider/model"),
        ("other/m", "`shop`, `scripted`"),
        ("scripted/nope", "`approve`, `echo`, `refund`, `reject`"),
    ] {
        let problem = book.knows(model).unwrap_err();
        assert!(problem.contains(words), "{problem}");
        let error = book.complete(request(model, ""), QUIET).await.unwrap_err();
        assert_eq!(
            (error.error.code.as_str(), error.retryable, error.error.message),
            ("unknown_model", false, problem.replace("the server's", "the worker's"))
        );
    }
}

/// A key that was read from a file has a line's end, and a name may stand where no key does.
#[tokio::test]
async fn a_key_is_sent_without_what_is_around_it_and_its_absence_is_told() {
    let peer = Peer::answering("401 Unauthorized", "", "").await;
    let key = |api_key: Option<&str>, name: Option<&str>| {
        let api_key = api_key.map(Secret::new);
        ModelEndpoint { api_key, api_key_env: name.map(str::to_owned), ..endpoint(peer.url("")) }
    };
    for (endpoint, sent, advice) in [
        (
            key(Some(" abc\n"), Some("SHOP_KEY")),
            Some("Bearer abc"),
            "check the key in the environment variable `SHOP_KEY`",
        ),
        (key(None, Some("SHOP_KEY")), None, "the environment variable `SHOP_KEY`, which names its key, is not set"),
        (key(None, None), None, "`models.shop.api_key_env` or `api_key_file` of the worker's configuration names one"),
    ] {
        let book = ModelBook::builder().endpoint(endpoint).build().unwrap();
        let error = book.complete(request("shop/m", "hi"), QUIET).await.unwrap_err();
        assert!(error.error.message.ends_with(advice), "{}", error.error.message);
        assert_eq!(peer.seen().pop().unwrap().header("authorization"), sent);
    }
}

#[tokio::test]
async fn a_scripted_model_is_asked_with_its_system_words_too() {
    let book = ModelBook::builder().build().unwrap();
    let asked = ModelRequest { system: Some("Be brief now.".to_owned()), ..request("scripted/echo", "two words") };
    let usage = Usage { completion_tokens: 2, prompt_tokens: 5, ..Usage::default() };
    assert_eq!(book.complete(asked, QUIET).await.unwrap().usage, usage);
}

#[test]
fn a_wrong_endpoint_is_refused_without_its_key() {
    for url in ["", "localhost", "ftp://x/", "http://", "http://user@x/", "http://x/?key=1"] {
        let error = ModelBook::builder().endpoint(endpoint(url)).build().unwrap_err();
        assert!(matches!(error, BuildError::BaseUrl { .. }), "{url}: {error}");
    }
    let twice = ModelBook::builder().endpoint(endpoint("http://x")).endpoint(endpoint("http://y")).build();
    assert_eq!(twice.unwrap_err(), BuildError::NameTaken("shop".to_owned()));
    for name in ["scripted", "a/b"] {
        let named = ModelEndpoint { name: name.to_owned(), ..endpoint("http://x") };
        assert_eq!(ModelBook::builder().endpoint(named).build().unwrap_err(), BuildError::NameTaken(name.to_owned()));
    }
    let book = ModelBook::builder().endpoint(endpoint("http://x")).build().unwrap();
    assert!(!format!("{book:?}").contains(KEY), "{book:?}");
}
