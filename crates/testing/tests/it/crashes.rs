//! Crashes everywhere: agents of every kind that hold, and worlds wired wrongly that do not.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::id::IdempotencyKey;
use aetheris_runtime::{ToolCall, ToolOutcome, Tools};
use aetheris_store::Boxed;
use aetheris_testing::{
    Failed, FakeModels, FakeTools, ModelReply, Reply, Script, crash_everywhere, in_turn, stop_everywhere,
};
use serde_json::json;

fn agent(tools: &str, nodes: &str) -> String {
    format!("agent: a\nplanner: static\nmodel: fake/one\ntools:\n{tools}plan:\n  nodes:\n{nodes}")
}

fn pay(more: &str) -> String {
    agent(
        &format!("  pay: {{ kind: function, function: f, timeout: 10s, {more} }}\n"),
        "    - { id: n, kind: tool, tool: pay }\n",
    )
}

fn paid() -> Script {
    Script::new(|| FakeTools::new().acts("pay", |_| json!("paid")))
}

#[test]
fn without_a_way_to_know_a_call_is_in_doubt_and_never_sent_again() -> Result<(), Failed> {
    for (policy, ends) in [("human", "parked"), ("fail", "failed")] {
        let script = paid().check(move |outcome, tools| {
            let doubtful = outcome.in_doubt && outcome.status.as_str() == ends;
            let told = outcome.result == Some(json!("paid"));
            if tools.acted("pay") <= 1 && (doubtful || told) { Ok(()) } else { Err(format!("it is {outcome}")) }
        });
        let report = crash_everywhere(&pay(&format!("on_in_doubt: {policy}")), json!({}), &script)?;
        let total = report.total();
        assert!(total.in_doubt >= 2 && total.completed > total.in_doubt && total.failed == 0, "{report}");
    }
    Ok(())
}

#[test]
fn an_idempotent_call_always_completes_with_one_key() -> Result<(), Failed> {
    let script = Script::new(|| FakeTools::new().acts_once("pay", |_| json!("paid")));
    for report in [
        crash_everywhere(&pay("effect: idempotent"), json!({}), &script)?,
        stop_everywhere(&pay("effect: idempotent"), json!({}), &script)?,
    ] {
        assert_eq!(report.total().completed, report.total().runs(), "{report}");
    }
    Ok(())
}

/// Every kind of node, every class, a retry, a late answer, a wait that nobody answers and one that is.
fn everything() -> (String, Script) {
    let tools = "  look: { kind: http, effect: pure, method: GET, url: \"http://nowhere.example/\" }\n\
                 \x20 book: { kind: function, function: f, effect: idempotent, timeout: 5s }\n\
                 \x20 pay: { kind: function, function: f, timeout: 10s, on_in_doubt: [{ wait: 30s }, { reconcile: books }, human] }\n\
                 \x20 books: { kind: function, function: f, effect: pure }\n";
    let nodes = "    - { id: a, kind: tool, tool: look, input: { id: \"{{ message.id }}\" } }\n\
                 \x20   - { id: b, kind: llm, prompt: \"is {{ nodes.a.output }} good?\", needs: [a], retry: { max_attempts: 3, backoff: 1s } }\n\
                 \x20   - { id: c, kind: tool, tool: book, needs: [b], retry: { max_attempts: 5, backoff: 2s } }\n\
                 \x20   - { id: d, kind: sleep, duration: 3d, needs: [c] }\n\
                 \x20   - { id: e, kind: wait, wait_type: signal, correlation_key: \"no-{{ job.id }}\", deadline: 1h, on_deadline: { continue_with: 1 }, needs: [d] }\n\
                 \x20   - { id: f, kind: wait, wait_type: human, correlation_key: \"yes-{{ job.id }}\", needs: [e] }\n\
                 \x20   - { id: g, kind: tool, tool: pay, needs: [f], input: { cents: \"{{ nodes.f.output.cents }}\" } }\n\
                 \x20   - { id: h, kind: transform, output: \"{{ nodes.g.output }} {{ nodes.c.output }}\", needs: [g] }\n";
    let script = Script::new(|| {
        let busy = [Reply::refused("busy"), Reply::answer_lost(json!("booked"))];
        FakeTools::new()
            .reads("look", |call| call.input["id"].clone())
            .acts_once("book", in_turn(busy))
            .acts("pay", |call| Reply::done(call.input["cents"].clone()).after(Duration::from_secs(3)))
            .reconciles("books", "pay")
    });
    let script = script
        .models(|| FakeModels::new().in_turn([ModelReply::overloaded("busy")]).always("yes"))
        .when_waiting(|wait| wait.key.starts_with("yes-").then(|| json!({ "cents": 5 })))
        .when_in_doubt(|doubt| doubt.truth())
        .check(|_, tools| match (tools.acted("pay"), tools.acted("book")) {
            (1, 1) => Ok(()),
            (pays, books) => Err(format!("{pays} payments, {books} bookings")),
        });
    (agent(tools, nodes), script)
}

#[test]
fn an_agent_with_everything_holds_wherever_its_process_dies() -> Result<(), Failed> {
    let (agent, script) = everything();
    let report = crash_everywhere(&agent, json!({ "id": 1 }), &script)?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs(), "{report}");
    Ok(())
}

#[test]
fn an_agent_with_everything_holds_wherever_its_process_is_slow() -> Result<(), Failed> {
    let (agent, script) = everything();
    let report = stop_everywhere(&agent, json!({ "id": 1 }), &script)?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs(), "{report}");
    Ok(())
}

/// Calls of every class that are judged by a schema or a critic, and made again; the second answer of each is good.
fn rounds() -> (String, Script) {
    let tools = "  look: { kind: function, function: f, effect: pure }\n\
                 \x20 book: { kind: function, function: f, effect: idempotent, timeout: 5s }\n\
                 \x20 pay: { kind: function, function: f, timeout: 10s, on_in_doubt: [{ reconcile: books }, human] }\n\
                 \x20 books: { kind: function, function: f, effect: pure }\n";
    let node = |id: &str, tool: &str, more: &str| {
        format!(
            "    - {{ id: {id}, kind: tool, tool: {tool}, refine_repeats_effect: true, \
             input: {{ n: \"{{{{ round }}}}\", why: \"{{{{ feedback }}}}\" }}, {more} }}\n"
        )
    };
    let least = "validate: { properties: { n: { minimum: 1 } } }";
    let nodes = [
        node("a", "look", least),
        node("b", "book", &format!("needs: [a], critic: c, {least}")),
        node("p", "pay", "needs: [b], critic: c"),
        "    - { id: c, kind: critic, prompt: \"{{ output.n }}\" }\n".to_owned(),
        "    - { id: d, kind: transform, needs: [p], output: \"{{ [nodes.a.output.n, nodes.b.output.n, nodes.p.output.n] }}\" }\n".to_owned(),
    ];
    let echo = |call: &aetheris_testing::FakeCall| call.input.value().clone();
    let script = Script::new(move || {
        FakeTools::new()
            .reads("look", echo)
            .acts_once("book", echo)
            .acts("pay", move |call| Reply::done(echo(call)).after(Duration::from_secs(3)))
            .reconciles("books", "pay")
    });
    let verdict = |request: &aetheris_runtime::ModelRequest| {
        let good = request.prompt != "0";
        Some(ModelReply::from(json!({ "verdict": if good { "pass" } else { "reject" }, "feedback": "more" })))
    };
    let script = script.models(move || FakeModels::new().rule(verdict)).when_in_doubt(|doubt| doubt.truth());
    let script = script.check(|outcome, tools| {
        let told = outcome.result == Some(json!([1, 1, 1]));
        match (tools.acted("pay"), tools.acted("book"), told) {
            (2, 2, true) => Ok(()),
            (pays, books, _) => Err(format!("{pays} payments, {books} bookings, and {outcome}")),
        }
    });
    (agent(tools, &nodes.concat()), script)
}

#[test]
fn rounds_hold_wherever_their_process_dies() -> Result<(), Failed> {
    let (agent, script) = rounds();
    let report = crash_everywhere(&agent, json!({}), &script)?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs(), "{report}");
    Ok(())
}

#[test]
fn rounds_hold_wherever_their_process_is_slow() -> Result<(), Failed> {
    let (agent, script) = rounds();
    let report = stop_everywhere(&agent, json!({}), &script)?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs(), "{report}");
    Ok(())
}

/// Maps of every class beside each other, one of which collects a failure, and one more over what the first came to.
fn maps() -> (String, Script) {
    let tools = "  look: { kind: function, function: f, effect: pure }\n\
                 \x20 book: { kind: function, function: f, effect: idempotent, timeout: 5s }\n\
                 \x20 pay: { kind: function, function: f, timeout: 10s, on_in_doubt: [{ reconcile: books }, human] }\n\
                 \x20 books: { kind: function, function: f, effect: pure }\n";
    let nodes = "    - { id: a, kind: map, over: \"{{ message.ids }}\", concurrency: 2, do: { kind: tool, tool: look, input: { id: \"{{ item }}\" } } }\n\
                 \x20   - { id: b, kind: map, needs: [a], over: \"{{ nodes.a.output }}\", as: id, concurrency: 3, do: { kind: tool, tool: pay, input: { id: \"{{ id }}\" } } }\n\
                 \x20   - { id: c, kind: map, needs: [a], over: \"{{ nodes.a.output }}\", on_item_failure: collect, do: { kind: tool, tool: book, input: { id: \"{{ item }}\" }, when: item_index > 0, retry: { max_attempts: 5, backoff: 2s } } }\n\
                 \x20   - { id: d, kind: transform, needs: [b, c], output: \"{{ [nodes.b.output, nodes.c.output[1].output, nodes.c.output[2].ok] }}\" }\n";
    let script = Script::new(|| {
        FakeTools::new()
            .reads("look", |call| call.input["id"].clone())
            .acts_once("book", |call| match call.input["id"].as_u64() {
                Some(3) => Reply::refused_for_good("never"),
                _ => Reply::done(call.input["id"].clone()),
            })
            .acts("pay", |call| Reply::done(call.input["id"].clone()).after(Duration::from_secs(3)))
            .reconciles("books", "pay")
    });
    let script = script.when_in_doubt(|doubt| doubt.truth()).check(|outcome, tools| {
        let told = outcome.result == Some(json!([[1, 2, 3], 2, false]));
        match (tools.acted("pay"), told) {
            (3, true) => Ok(()),
            (pays, _) => Err(format!("{pays} payments, and {outcome}")),
        }
    });
    (agent(tools, nodes).replace("planner:", "max_parallel_steps: 4\nplanner:"), script)
}

#[test]
fn maps_hold_wherever_their_process_dies() -> Result<(), Failed> {
    let (agent, script) = maps();
    let report = crash_everywhere(&agent, json!({ "ids": [1, 2, 3] }), &script)?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs(), "{report}");
    Ok(())
}

#[test]
fn maps_hold_wherever_their_process_is_slow() -> Result<(), Failed> {
    let (agent, script) = maps();
    let report = stop_everywhere(&agent, json!({ "ids": [1, 2, 3] }), &script)?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs(), "{report}");
    Ok(())
}

/// A job that asks itself for three more, each of which pays and books; one more is asked for and left alone.
fn children() -> (String, Script) {
    let tools = "  book: { kind: function, function: f, effect: idempotent, timeout: 5s }\n\
                 \x20 pay: { kind: function, function: f, timeout: 10s, on_in_doubt: [{ reconcile: books, settle: 20s }, { wait: 60s }, { reconcile: books, settle: 20s }, fail] }\n\
                 \x20 books: { kind: function, function: f, effect: pure }\n";
    let nodes = "    - { id: pay, kind: tool, tool: pay, when: message.id, input: { id: \"{{ message.id }}\" } }\n\
                 \x20   - { id: book, kind: tool, tool: book, when: message.id, input: { id: \"{{ message.id }}\" } }\n\
                 \x20   - { id: all, kind: map, when: not message.id, over: [1, 2, 3], concurrency: 2, do: { kind: job, agent: a, message: { id: \"{{ item }}\" } } }\n\
                 \x20   - { id: left, kind: job, when: not message.id, agent: a, message: { id: 4 }, wait: false }\n\
                 \x20 answer: \"{{ nodes.all.output or nodes.pay.output + nodes.book.output }}\"\n";
    let id = |call: &aetheris_testing::FakeCall| call.input["id"].clone();
    let script = Script::new(move || {
        FakeTools::new()
            .acts_once("book", id)
            .acts("pay", move |call| Reply::done(id(call)).after(Duration::from_secs(3)))
            .reconciles("books", "pay")
    });
    let script = script.check(|outcome, tools| {
        let told = outcome.result == Some(json!([2, 4, 6]));
        // The one that is left may not have come to its payment.
        match (tools.acted("pay"), tools.acted("book"), told) {
            (3..=4, 3..=4, true) => Ok(()),
            (pays, books, _) => Err(format!("{pays} payments, {books} bookings, and {outcome}")),
        }
    });
    (agent(tools, nodes), script)
}

#[test]
fn children_hold_wherever_their_process_dies() -> Result<(), Failed> {
    let (agent, script) = children();
    let report = crash_everywhere(&agent, json!({ "id": null }), &script)?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs(), "{report}");
    Ok(())
}

#[test]
fn children_hold_wherever_their_process_is_slow() -> Result<(), Failed> {
    let (agent, script) = children();
    let report = stop_everywhere(&agent, json!({ "id": null }), &script)?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs(), "{report}");
    Ok(())
}

#[test]
fn a_tool_that_is_declared_pure_and_acts_is_found() {
    let failed = crash_everywhere(&pay("effect: pure"), json!({}), &paid()).unwrap_err().to_string();
    assert!(failed.starts_with("without any crash"), "{failed}");
    assert!(failed.contains("C2 does not hold: no call without a durable permission before it"), "{failed}");
}

/// An adapter that makes a key of its own for each call.
struct OwnKeys(Arc<dyn Tools>);

impl Tools for OwnKeys {
    fn call(&self, mut call: ToolCall) -> Boxed<'_, ToolOutcome> {
        call.key = IdempotencyKey::from_u128(call.key.as_u128() ^ u128::from(call.fence.epoch));
        self.0.call(call)
    }
}

#[test]
fn an_adapter_that_changes_the_key_is_found() {
    let script = paid().adapter(|fakes| Arc::new(OwnKeys(fakes)));
    let failed = crash_everywhere(&pay("effect: idempotent"), json!({}), &script).unwrap_err().to_string();
    assert!(failed.contains("C4 does not hold: a call comes with the same key each time"), "{failed}");
}

/// An adapter with retries of its own: what no adapter may do to a call of unknown outcome.
struct Retries(Arc<dyn Tools>);

impl Tools for Retries {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        Box::pin(async move {
            match self.0.call(call.clone()).await {
                ToolOutcome::Unknown { .. } => self.0.call(call).await,
                known => known,
            }
        })
    }
}

#[test]
fn an_adapter_that_sends_again_is_found() {
    let lost = || FakeTools::new().acts("pay", in_turn([Reply::answer_lost(json!(1)), Reply::done(json!(1))]));
    let script = Script::new(lost).adapter(|fakes| Arc::new(Retries(fakes)));
    let failed = crash_everywhere(&pay("on_in_doubt: human"), json!({}), &script).unwrap_err().to_string();
    assert!(failed.contains("C1 does not hold: a call comes and a body runs at most once per permission"), "{failed}");
}

#[test]
fn a_service_that_does_not_look_at_keys_pays_twice_and_the_crossing_is_named() {
    let script = paid().check(|_, tools| match tools.acted("pay") {
        1 => Ok(()),
        n => Err(format!("paid {n} times")),
    });
    let failed = crash_everywhere(&pay("effect: idempotent"), json!({}), &script).unwrap_err().to_string();
    println!("{failed}");
    assert!(failed.contains("The first one, where the process dies "), "{failed}");
    assert!(failed.contains("the process dies after the call of `pay` in `n` (crossing "), "{failed}");
    assert!(failed.contains("paid 2 times") && failed.contains("----- the process dies"), "{failed}");
}

#[test]
fn a_pure_tool_that_counts_its_calls_changes_the_answer_and_is_found() {
    let script = Script::new(|| FakeTools::new().reads("pay", |call| json!(call.bodies_of_key)));
    let failed = crash_everywhere(&pay("effect: pure"), json!({}), &script).unwrap_err().to_string();
    assert!(failed.contains("the job is completed with 1; without the crash it is completed with 0"), "{failed}");
    crash_everywhere(&pay("effect: pure"), json!({}), &script.results_may_differ()).unwrap();
}

#[test]
fn a_script_that_leaves_a_job_waiting_for_ever_is_told() {
    let nodes = "    - { id: n, kind: wait, wait_type: human, correlation_key: k }\n";
    let file = format!("agent: a\nplanner: static\nplan:\n  nodes:\n{nodes}");
    let failed = crash_everywhere(&file, json!({}), &Script::new(FakeTools::new)).unwrap_err().to_string();
    assert!(failed.contains("node `n` waits for the signal `k`: nothing that is known can happen"), "{failed}");
}

#[test]
fn fakes_that_are_not_deterministic_are_told() {
    let runs = std::sync::atomic::AtomicU64::new(0);
    let script = Script::new(move || {
        let run = runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        FakeTools::new().acts("pay", move |_| Reply::done(json!(1)).after(Duration::from_millis(1 + run % 2)))
    });
    let failed = crash_everywhere(&pay("on_in_doubt: human"), json!({}), &script).unwrap_err().to_string();
    assert!(failed.contains("must be deterministic"), "{failed}");
}

#[tokio::test]
async fn it_may_be_called_inside_a_runtime() {
    crash_everywhere(&pay("on_in_doubt: human"), json!({}), &paid()).unwrap();
}
