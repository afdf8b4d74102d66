//! Functions of this process.

use aetheris_adapters::{BuildError, FunctionCall, Toolbox};
use aetheris_core::json::Json;
use aetheris_core::plan::{EffectClass, ToolKind};
use aetheris_runtime::ports::{ToolCall, ToolOutcome, Tools};
use serde_json::{Value, json};

use crate::{SHORT, call_of, failure, kind};

fn function_call(name: &str, input: Value) -> ToolCall {
    call_of(EffectClass::AtMostOnce, ToolKind::Function(name.to_owned()), input)
}

#[tokio::test]
async fn a_function_gets_the_whole_call() {
    let tools = Toolbox::builder()
        .function("mine", |call: FunctionCall| async move {
            let output =
                json!([call.input.value(), call.key, call.fence, call.job, call.node, call.tool, call.try_number]);
            ToolOutcome::Done(output.into())
        })
        .build()
        .unwrap();
    assert!(tools.has_function("mine") && tools.has_function("builtin.echo") && !tools.has_function("other"));
    let call = function_call("mine", json!({"a": 1}));
    let expected = json!([{"a": 1}, call.key, call.fence, call.job, "send", "shop.send", 2]);
    assert_eq!(tools.call(call).await, ToolOutcome::Done(expected.into()));
}

#[tokio::test]
async fn a_panic_is_caught_wherever_it_happens() {
    let tools = Toolbox::builder()
        .function("late", |_| async {
            tokio::task::yield_now().await;
            panic!("boom {}", 1)
        })
        .function("early", |call: FunctionCall| {
            assert_eq!(call.try_number, 0, "boom at once");
            async { ToolOutcome::Done(Json::null()) }
        })
        .build()
        .unwrap();
    for (name, words) in [("late", "boom 1"), ("early", "boom at once")] {
        let outcome = tools.call(function_call(name, Value::Null)).await;
        assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("unknown", "function_panicked"));
        assert!(failure(&outcome).message.contains(words), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_that_takes_too_long_is_unknown() {
    let tools = Toolbox::builder().function("slow", |_| std::future::pending()).build().unwrap();
    let mut call = function_call("slow", Value::Null);
    call.timeout = SHORT;
    let outcome = tools.call(call).await;
    assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("unknown, timeout", "timeout"));
}

#[tokio::test]
async fn an_unknown_function_is_never_called() {
    let tools = Toolbox::builder().build().unwrap();
    let outcome = tools.call(function_call("nobody", Value::Null)).await;
    assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("not sent, permanent", "unknown_function"));
    for name in ["builtin.echo", "twice"] {
        let done = |_: FunctionCall| async { ToolOutcome::Done(Json::null()) };
        let built = Toolbox::builder().function("twice", done).function(name, done).build();
        assert_eq!(built.unwrap_err(), BuildError::NameTaken(name.to_owned()));
    }
}

#[tokio::test]
async fn the_built_in_functions_do_what_they_say() {
    let tools = Toolbox::builder().build().unwrap();
    let input = json!({ "b": 1, "a": "ä" });
    let done = |value: Value| ToolOutcome::Done(value.into());
    assert_eq!(tools.call(function_call("builtin.noop", input.clone())).await, done(Value::Null));
    assert_eq!(tools.call(function_call("builtin.echo", input.clone())).await, done(input.clone()));
    let hash = Json::new(input.clone()).hash().to_string();
    assert_eq!(tools.call(function_call("builtin.hash", input)).await, done(json!({ "sha256": hash })));
    let cases = [
        (json!({ "code": "no_stock", "message": "none left" }), "refused", "no_stock", "none left"),
        (json!({ "code": "busy", "message": "later", "retryable": true }), "refused for now", "busy", "later"),
        (json!(null), "refused", "failed", "builtin.fail was asked to fail"),
    ];
    for (input, expected, code, message) in cases {
        let outcome = tools.call(function_call("builtin.fail", input)).await;
        let error = failure(&outcome);
        assert_eq!((kind(&outcome), error.code.as_str(), error.message.as_str()), (expected, code, message));
    }
}
