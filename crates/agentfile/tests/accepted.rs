//! Files that are accepted, and what they mean.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::{BTreeMap, BTreeSet};

use aetheris_agentfile::{json_schema, locate, parse};
use aetheris_core::agent::{Agent, Planner};
use aetheris_core::id::ToolName;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::*;
use aetheris_core::retry::{Jitter, OnTimeout, RetryPolicy};
use aetheris_core::time::Span;
use serde_json::json;

const REFUND: &str = include_str!("fixtures/refund.yaml");

fn accepted(source: &str) -> Agent {
    parse(source).unwrap_or_else(|errors| panic!("{}", errors.iter().map(|e| format!("{e}\n")).collect::<String>()))
}

fn with(mut node: Node, more: impl FnOnce(&mut Work)) -> Node {
    more(&mut node.work);
    node
}

fn node(id: &str, kind: NodeKind, needs: &[&str]) -> Node {
    Node { needs: needs.iter().map(|need| (*need).into()).collect(), ..Node::new(id, kind) }
}

fn http(method: &str, url: &str) -> HttpTool {
    HttpTool {
        body: None,
        headers: BTreeMap::new(),
        method: method.into(),
        refused_statuses: BTreeSet::new(),
        url: url.into(),
    }
}

fn reader(url: &str) -> Tool {
    Tool::new(EffectClass::Pure, ToolKind::Http(http("GET", url)))
}

fn refund_tools() -> BTreeMap<ToolName, Tool> {
    let body = json!({"order": "{{ input.order_id }}", "cents": "{{ input.cents }}"});
    let refund = HttpTool { body: Some(Json::new(body)), ..http("POST", "http://127.0.0.1:9000/refunds") };
    let refund = Tool {
        on_in_doubt: vec![
            DoubtPolicy::Wait(Span::from_secs(5)),
            DoubtPolicy::Reconcile(Reconcile::by("payments.lookup")),
            DoubtPolicy::Human,
        ],
        timeout: Some(Span::from_secs(10)),
        version: Some("2".into()),
        ..Tool::new(EffectClass::AtMostOnce, ToolKind::Http(refund))
    };
    BTreeMap::from([
        ("orders.get".into(), reader("http://127.0.0.1:9000/orders/{{ input.order_id }}")),
        ("payments.refund".into(), refund),
        ("payments.lookup".into(), reader("http://127.0.0.1:9000/refunds/by-key/{{ input.idempotency_key }}")),
    ])
}

fn refund_nodes() -> Vec<Node> {
    let llm = LlmNode {
        format: AnswerFormat::Text,
        max_tokens: None,
        model: "scripted/refund".into(),
        prompt: "Refund {{ nodes.query_order.output.total }}? Answer approve or reject.".into(),
        schema: None,
        system: None,
        temperature: None,
    };
    let wait = WaitNode {
        correlation_key: Some("approve-{{ job.id }}".into()),
        deadline: Some(Span::from_secs(24 * 3600)),
        on_deadline: OnDeadline::Fail,
        park: true,
        reason: None,
        schema: None,
        wait_type: WaitType::Human,
    };
    let call = |tool: &str, input| NodeKind::Tool { input: Json::new(input), tool: tool.into() };
    let refund = json!({"order_id": "{{ message.order_id }}", "cents": "{{ nodes.query_order.output.cents }}"});
    vec![
        node("query_order", call("orders.get", json!({"order_id": "{{ message.order_id }}"})), &[]),
        node("decide", NodeKind::Llm(llm), &["query_order"]),
        node("approval", NodeKind::Wait(wait), &["decide"]),
        with(node("send_refund", call("payments.refund", refund), &["approval"]), |work| {
            work.when = Some("nodes.approval.output.approved == true".into());
        }),
    ]
}

#[test]
fn the_example_of_the_interface_means_what_it_says() {
    let agent = accepted(REFUND);
    assert_eq!((agent.agent.as_str(), agent.version.as_str(), agent.planner), ("refund", "1", Planner::Static));
    assert_eq!(agent.description, "Refunds an order after a human approves");
    assert_eq!(agent.deadline, Some(Span::from_secs(72 * 3600)));
    assert_eq!(agent.plan.nodes, refund_nodes());
    assert_eq!(agent.plan.tools, refund_tools());
    assert_eq!(agent.plan.answer, Some(Json::new(json!("{{ nodes.send_refund.output }}"))));
    assert_eq!(agent.plan.budget, Budget { max_tokens: Some(20_000), max_tool_calls: Some(50) });
    assert_eq!(agent.plan.retry, RetryPolicy::default());
    assert_eq!(agent.plan.step_timeout, Some(Span::from_secs(30)));
    let order: Vec<String> = agent.plan.compile().unwrap().ordered().map(|n| n.id.to_string()).collect();
    assert_eq!(order, ["query_order", "decide", "approval", "send_refund"]);
}

/// The example of the page is one that works.
#[test]
fn the_files_of_the_page_are_accepted() {
    let page = include_str!("../../../docs/agent-file.md");
    let files: Vec<&str> = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let told: Vec<(String, usize, usize)> = files
        .into_iter()
        .map(accepted)
        .map(|agent| (agent.agent.to_string(), agent.nodes(), agent.plan.tools.len()))
        .collect();
    assert_eq!(
        told,
        [
            ("refund".to_owned(), 4, 3),
            ("offer".to_owned(), 4, 3),
            ("quote".to_owned(), 4, 3),
            ("report".to_owned(), 3, 3),
            ("triage".to_owned(), 3, 0),
            ("nightly".to_owned(), 3, 1),
            ("desk".to_owned(), 1, 2),
            ("deploy".to_owned(), 0, 2),
            ("triage-by-size".to_owned(), 1, 0),
            ("discount".to_owned(), 1, 1),
        ]
    );
}

#[test]
fn what_a_node_waits_for_and_what_its_failure_means_are_read() {
    let read = |said: &str| {
        let one = |id: &str| format!("    - {{ id: {id}, kind: sleep, duration: 1s }}\n");
        let last = format!("    - {{ id: n, kind: transform, output: 1, needs: [a, b]{said} }}\n");
        let agent = accepted(&format!("agent: a\nplan:\n  nodes:\n{}{}{last}", one("a"), one("b")));
        (agent.plan.nodes[2].join, agent.plan.nodes[2].on_failure)
    };
    for (said, expected) in [
        ("", (Join::All, OnFailure::FailFast)),
        (", join: all, on_failure: fail_fast", (Join::All, OnFailure::FailFast)),
        (", join: any, on_failure: fail_safe", (Join::Any, OnFailure::FailSafe)),
        (", join: { quorum: 2 }", (Join::Quorum(2), OnFailure::FailFast)),
    ] {
        assert_eq!(read(said), expected, "{said}");
    }
}

#[test]
fn what_judges_an_output_is_read() {
    let file = "agent: a\nmodel: s/m\ntools: { t: { kind: function, function: f } }\nplan:\n  nodes:\n    \
                - { id: one, kind: tool, tool: t, validate: { type: object }, critic: c, max_refines: 2, refine_repeats_effect: true, \
                input: { a: '{{ feedback }}', b: '{{ round }}' } }\n    \
                - { id: c, kind: critic, prompt: '{{ output.x }} {{ round }} {{ message }}', temperature: 0, timeout: 5s }\n    \
                - { id: m, kind: map, needs: [one], over: [1], max_refines: 0, critic: c, \
                do: { kind: transform, output: '{{ round }}{{ item }}', validate: {}, max_refines: 20 } }\n";
    let plan = accepted(file).plan;
    let [n, c, m] = &plan.nodes[..] else { panic!("{:?}", plan.nodes) };
    assert_eq!((n.critic.as_ref().map(|id| id.as_str()), n.work.max_refines()), (Some("c"), 2));
    assert_eq!((n.work.refine_repeats_effect, n.work.validate.is_some()), (true, true));
    assert!(matches!(&c.work.kind, NodeKind::Critic(asks) if asks.format == AnswerFormat::Json && asks.model == "s/m"));
    assert_eq!(m.work.each().map(|each| (each.max_refines(), each.validate.is_some())), Some((20, true)));
    let order: Vec<String> = plan.compile().unwrap().ordered().map(|node| node.id.to_string()).collect();
    assert_eq!(order, ["one", "m"], "a critic has no place");
    let errors: Vec<String> = validator().iter_errors(&as_json(file)).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn a_child_job_is_read() {
    let file = "agent: a\nplan:\n  nodes:\n    \
                - { id: one, kind: job, agent: other, message: { n: '{{ message }}' }, deadline: 5s, session: '{{ job.id }}' }\n    \
                - { id: two, kind: job, agent: '{{ message.to }}', wait: false }\n    \
                - { id: three, kind: job, agent: other, wait: false, on_parent_end: cancel, validate: {}, max_refines: 1 }\n    \
                - { id: m, kind: map, over: [1], do: { kind: job, agent: other, on_parent_end: leave } }\n";
    let plan = accepted(file).plan;
    let [one, two, three, m] = &plan.nodes[..] else { panic!("{:?}", plan.nodes) };
    let child = |agent: &str, message, on_parent_end, wait| JobNode {
        agent: agent.to_owned(),
        deadline: None,
        message: Json::new(message),
        on_parent_end,
        session: None,
        wait,
    };
    let whole = JobNode {
        deadline: Some(Span::from_secs(5)),
        session: Some("{{ job.id }}".to_owned()),
        ..child("other", json!({ "n": "{{ message }}" }), OnParentEnd::Cancel, true)
    };
    assert_eq!(one.work.kind, NodeKind::Job(whole));
    assert_eq!(two.work.kind, NodeKind::Job(child("{{ message.to }}", json!(null), OnParentEnd::Leave, false)));
    assert_eq!(three.work.kind, NodeKind::Job(child("other", json!(null), OnParentEnd::Cancel, false)));
    let item = m.work.each().map(|each| &each.kind);
    assert_eq!(item, Some(&NodeKind::Job(child("other", json!(null), OnParentEnd::Leave, true))));
    let errors: Vec<String> = validator().iter_errors(&as_json(file)).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// Whoever says 0 wants one step at a time, whatever the server says of agents that say nothing.
#[test]
fn how_many_steps_run_at_once_is_said_or_left_to_the_server() {
    let said = |line: &str| {
        let file = format!("agent: a\n{line}plan: {{ nodes: [{{ id: n, kind: transform, output: 1 }}] }}\n");
        accepted(&file).plan.max_parallel_steps
    };
    assert_eq!(
        [said(""), said("max_parallel_steps: 0\n"), said("max_parallel_steps: 256\n")],
        [None, Some(0), Some(256)]
    );
}

#[test]
fn json_and_yaml_of_equal_meaning_are_one_agent() {
    let yaml = accepted(REFUND);
    let json = json!({
        "agent": "tiny", "version": "7", "description": "ünï \u{1f600} / \\ \" \t",
        "plan": { "nodes": [{ "id": "a", "kind": "transform", "output": { "n": u64::MAX, "m": i64::MIN, "f": 1.5, "no": null, "l": [true, "x\ny"] } }] }
    });
    for text in [
        json.to_string(),
        serde_json::to_string_pretty(&json).unwrap(),
        serde_json::to_string_pretty(&json).unwrap().replace("  ", "\t"),
    ] {
        let agent = accepted(&text);
        assert_eq!(agent.description, "ünï \u{1f600} / \\ \" \t", "{text}");
        assert_eq!(
            agent.plan.nodes[0].work.kind,
            NodeKind::Transform(Json::new(json["plan"]["nodes"][0]["output"].clone()))
        );
    }
    let escaped = json.to_string().replace('\u{1f600}', "\\ud83d\\ude00").replace(" / ", " \\/ ");
    assert_eq!(accepted(&escaped), accepted(&json.to_string()));
    assert_ne!(yaml.hash(), accepted(&escaped).hash());
}

#[test]
fn yaml_scalars_follow_the_core_schema_of_1_2() {
    let agent = accepted(
        "agent: a\nplan:\n  nodes:\n    - id: n\n      kind: transform\n      output: { a: no, b: on, c: yes, d: 0o17, e: 0xff, f: 1e3, \
         g: ~, h: '1', i: 12:30, j: -7, k: 18446744073709551615, l: 1_000, m: +5, n: .5, o: \"true\", p: True }\n",
    );
    let expected = json!({"a": "no", "b": "on", "c": "yes", "d": 15, "e": 255, "f": 1000.0, "g": null, "h": "1", "i": "12:30",
        "j": -7, "k": u64::MAX, "l": "1_000", "m": 5, "n": 0.5, "o": "true", "p": true});
    assert_eq!(agent.plan.nodes[0].work.kind, NodeKind::Transform(Json::new(expected)));
}

fn everything_nodes(retry: &RetryPolicy) -> Vec<Node> {
    let think = LlmNode {
        format: AnswerFormat::Json,
        max_tokens: Some(100),
        model: "other/m".into(),
        prompt: "{% for item in nodes.call.output.items %}\n- {{ item.name | upper }}\n{% endfor %}\n".into(),
        schema: None,
        system: Some("Be brief, {{ job.agent }}.".into()),
        temperature: Some(0.5),
    };
    let timer = WaitNode {
        correlation_key: None,
        deadline: Some(Span::from_secs(300)),
        on_deadline: OnDeadline::ContinueWith(Json::null()),
        park: false,
        reason: None,
        schema: None,
        wait_type: WaitType::Timer,
    };
    let hook = WaitNode {
        correlation_key: Some("hook".into()),
        deadline: Some(Span::from_secs(3600)),
        on_deadline: OnDeadline::ContinueWith(Json::new(json!({"late": true}))),
        reason: Some("for {{ nodes.call.output.who }}".into()),
        wait_type: WaitType::Webhook,
        ..timer.clone()
    };
    let last = json!({"went": "{{ nodes.hook.output }}", "twice": ["{{ message.n * 2 }}"]});
    vec![
        with(node("call", NodeKind::Tool { input: Json::new(json!({})), tool: "echo".into() }, &[]), |work| {
            // What a node's policy does not say comes from the agent's.
            work.retry = Some(RetryPolicy { max_attempts: 9, ..retry.clone() });
            work.timeout = Some(Span::from_millis(250));
        }),
        node("think", NodeKind::Llm(think), &["call"]),
        node("pause", NodeKind::Sleep(Span::from_secs(90)), &["think"]),
        with(node("gate", NodeKind::Condition, &["pause"]), |work| {
            work.when = Some("nodes.think.output.go is true".into());
        }),
        node("timer", NodeKind::Wait(timer), &["gate"]),
        node("hook", NodeKind::Wait(hook), &["timer"]),
        node("last-one", NodeKind::Transform(Json::new(last)), &["hook"]),
    ]
}

fn everything_tools() -> BTreeMap<ToolName, Tool> {
    let echo = Tool::new(EffectClass::AtMostOnce, ToolKind::Function("builtin.echo".into()));
    let headers = [("Accept", "application/json"), ("X-Token", "{{ env.TOKEN }}")];
    let things = HttpTool {
        body: Some(Json::new(json!("{{ input }}"))),
        headers: BTreeMap::from(headers.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        refused_statuses: BTreeSet::from([409, 422]),
        ..http("POST", "{{ env.BASE }}/things")
    };
    let post =
        Tool { kind: ToolKind::Http(things), on_in_doubt: vec![DoubtPolicy::Wait(Span::from_secs(1))], ..echo.clone() };
    BTreeMap::from([("echo".into(), echo), ("post".into(), post)])
}

#[test]
fn everything_optional_is_read() {
    let agent = accepted(include_str!("fixtures/everything.yaml"));
    let plan = &agent.plan;
    let expected = RetryPolicy {
        backoff: Span::from_secs(1),
        factor: 1.5,
        jitter: Jitter::None,
        max_attempts: 5,
        max_backoff: Span::from_secs(60),
        on_timeout: OnTimeout::Fail,
    };
    assert_eq!(plan.retry, expected);
    assert_eq!(plan.budget, Budget { max_tokens: Some(0), max_tool_calls: None });
    assert_eq!(plan.answer, Some(Json::new(json!({"result": "{{ nodes[\"last-one\"].output }}"}))));
    assert_eq!(plan.step_timeout, None);
    assert_eq!(plan.nodes, everything_nodes(&expected));
    assert_eq!(plan.tools, everything_tools());
}

/// The provider is what stands before the first slash; a model's name may have more of them.
#[test]
fn a_models_name_may_have_slashes() {
    for model in ["s/m", "openrouter/meta/llama-3", "p/a/b/c"] {
        let agent = parse(&LEAST.replace("model: s/m", &format!("model: {model}")));
        assert!(agent.is_ok(), "{model}: {:?}", agent.err());
    }
}

const LEAST: &str = "agent: a
model: s/m
message_schema: true
budget: { max_tool_calls: 0 }
retry: { max_attempts: 1, backoff: 0s, factor: 1, max_backoff: 0s }
tools:
  t: { kind: http, method: POST, url: 'http://h/', body: null, version: '' }
plan:
  nodes:
    - { id: ask, kind: llm, prompt: '', system: '', temperature: 0, max_tokens: 1 }
    - { id: call, kind: tool, tool: t, input: null }
    - id: w
      kind: wait
      wait_type: signal
      correlation_key: k
      reason: ''
      schema: true
      park: true
      deadline: 1us
      on_deadline: { continue_with: null }
  answer: null
";

/// What is zero or empty is not what is not said.
#[test]
fn the_least_of_what_is_optional_is_read_too() {
    let agent = accepted(LEAST);
    let plan = &agent.plan;
    assert_eq!(agent.message_schema, Some(Json::new(json!(true))));
    assert_eq!(plan.budget, Budget { max_tokens: None, max_tool_calls: Some(0) });
    let retry = &plan.retry;
    assert_eq!((retry.max_attempts, retry.backoff, retry.max_backoff), (1, Span::ZERO, Span::ZERO));
    assert_eq!(plan.answer, Some(Json::null()));
    let tool = &plan.tools["t"];
    let ToolKind::Http(http) = &tool.kind else { panic!() };
    assert_eq!((&http.body, tool.version.as_deref()), (&Some(Json::null()), Some("")));
    let NodeKind::Llm(llm) = &plan.nodes[0].work.kind else { panic!() };
    assert_eq!((llm.temperature, llm.max_tokens), (Some(0.0), Some(1)));
    assert_eq!((llm.model.as_str(), llm.prompt.as_str(), llm.system.as_deref()), ("s/m", "", Some("")));
    assert_eq!(plan.nodes[1].work.kind, NodeKind::Tool { input: Json::null(), tool: "t".into() });
    let NodeKind::Wait(wait) = &plan.nodes[2].work.kind else { panic!() };
    assert_eq!((wait.reason.as_deref(), wait.park, wait.wait_type), (Some(""), true, WaitType::Signal));
    assert_eq!((&wait.schema, wait.deadline), (&Some(Json::new(json!(true))), Some(Span::from_micros(1))));
    assert_eq!(wait.on_deadline, OnDeadline::ContinueWith(Json::null()));
}

#[test]
fn what_is_done_about_a_doubt_ends_in_a_person_unless_the_file_says_fail() {
    let policies = |text: &str| {
        let file = format!(
            "agent: a\ntools:\n  pay: {{ kind: function, function: f{text} }}\n  look: {{ kind: function, function: f, effect: pure, refuses: true }}\nplan:\n  nodes:\n    - {{ id: n, kind: tool, tool: pay }}\n"
        );
        let agent = parse(&file).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
        assert!(agent.plan.tools["look"].refuses && agent.plan.tools["look"].on_in_doubt.is_empty());
        agent.plan.tools["pay"].on_in_doubt.clone()
    };
    let wait = DoubtPolicy::Wait(Span::from_secs(1));
    let asks = |settle| DoubtPolicy::Reconcile(Reconcile { settle, ..Reconcile::by("look") });
    for (text, expected) in [
        ("", vec![DoubtPolicy::Human]),
        (", on_in_doubt: human", vec![DoubtPolicy::Human]),
        (", on_in_doubt: fail", vec![]),
        (", on_in_doubt: [{ wait: 1s }]", vec![wait.clone(), DoubtPolicy::Human]),
        (", on_in_doubt: [{ wait: 1s }, fail]", vec![wait]),
        (
            ", on_in_doubt: [{ reconcile: look, settle: 5s }, human]",
            vec![asks(Some(Span::from_secs(5))), DoubtPolicy::Human],
        ),
        (", on_in_doubt: [{ reconcile: look, settle: 0s }, fail]", vec![asks(Some(Span::ZERO))]),
        (", on_in_doubt: [{ reconcile: look }]", vec![asks(None), DoubtPolicy::Human]),
        (", effect: idempotent", vec![]),
    ] {
        assert_eq!(policies(text), expected, "{text}");
    }
}

fn validator() -> jsonschema::Validator {
    let schema = json_schema();
    assert!(jsonschema::meta::is_valid(&schema));
    jsonschema::validator_for(&schema).unwrap()
}

/// The file as JSON, by a YAML reader that is not ours.
fn as_json(yaml: &str) -> serde_json::Value {
    serde_saphyr::from_str(yaml).unwrap()
}

const PLANNED: &str = "agent: a\nplanner: llm\nmodel: s/m\nplanning:\n  prompt: 'Plan {{ message }} {{ uuid() }}'\n  model: s/planner\n  max_attempts: 5\n  max_nodes: 7\n  kinds: [tool, job, tool]\n  plan_review: human\n\
                       tools:\n  t: { kind: function, function: f }\n";
const RULES: &str = "agent: a\nplanner: rules\nrules:\n  - { when: message.n > 1, plan: { nodes: [ { id: a, kind: transform, output: 1 } ] } }\n  \
                     - plan:\n      answer: '{{ nodes.b.output }}'\n      nodes: [ { id: b, kind: transform, output: 2 } ]\n";

#[test]
fn what_makes_the_plans_of_an_agent_is_read() {
    let agent = accepted(PLANNED);
    let node = agent.plan.planning_node().unwrap();
    let planner = PlanNode {
        kinds: ["job", "tool"].map(str::to_owned).to_vec(),
        max_nodes: 7,
        model: "s/planner".to_owned(),
        nodes_model: Some("s/m".to_owned()),
        prompt: "Plan {{ message }} {{ uuid() }}".to_owned(),
    };
    assert_eq!(node.work.kind, NodeKind::Plan(planner));
    assert_eq!((node.work.max_refines, node.critic.is_some(), agent.planner), (Some(4), true, Planner::Llm));
    let plain = accepted("agent: a\nplanner: llm\nmodel: s/m\nplanning: { prompt: p }\n");
    let node = plain.plan.planning_node().unwrap();
    let NodeKind::Plan(planner) = &node.work.kind else { panic!("{node:?}") };
    let kinds = ["agent", "condition", "critic", "llm", "map", "tool", "transform"];
    assert_eq!(
        (planner.max_nodes, planner.model.as_str(), &planner.kinds[..]),
        (50, "s/m", &kinds.map(str::to_owned)[..])
    );
    assert_eq!((node.work.max_refines, &node.critic), (Some(2), &None));
    let agent = accepted(RULES);
    let whens: Vec<Option<&str>> = agent.plan.rules().iter().map(|rule| rule.when.as_deref()).collect();
    assert_eq!((whens, agent.nodes()), (vec![Some("message.n > 1"), None], 1));
    let plans: Vec<(usize, bool)> = agent.plans().map(|plan| (plan.nodes.len(), plan.answer.is_some())).collect();
    assert_eq!(plans, [(1, false), (1, false), (1, true)]);
}

/// What a model says is read like a file, within what the file allows.
#[test]
fn a_plan_that_a_model_makes_is_read_within_what_its_agent_allows() {
    let planning = accepted(PLANNED).plan;
    let read = |plan: serde_json::Value| match aetheris_agentfile::parse_plan(&plan.to_string(), &planning) {
        Ok(plan) => format!("{} nodes", plan.nodes.len()),
        Err(errors) => errors.iter().map(|error| error.path.clone()).collect::<Vec<_>>().join(" "),
    };
    let call = |id: &str| json!({ "id": id, "kind": "tool", "tool": "t" });
    assert_eq!(read(json!({ "nodes": [call("a"), call("b")], "answer": 1 })), "2 nodes");
    assert_eq!(read(json!({ "nodes": [{ "id": "a", "kind": "job", "agent": "b" }] })), "1 nodes");
    assert_eq!(read(json!({ "nodes": [{ "id": "a", "kind": "transform", "output": 1 }] })), "nodes[0].kind");
    let map = json!({ "id": "a", "kind": "map", "over": [1], "do": { "kind": "llm", "prompt": "p", "model": "x/y" } });
    assert_eq!(read(json!({ "nodes": [map] })), "nodes[0].kind nodes[0].do.kind nodes[0].do.model");
    let many: Vec<_> = (0..8).map(|place| call(&format!("n{place}"))).collect();
    assert_eq!(read(json!({ "nodes": many })), "");
    assert_eq!(read(json!({ "nodes": [call("$plan")] })), "nodes[0].id");
    assert_eq!(read(json!({ "nodes": [call("a")], "tools": {}, "model": "s/m" })), "model tools");
    assert_eq!(read(json!({ "nodes": [] })), "nodes");
    let again = json!({ "id": "a", "kind": "tool", "tool": "t", "validate": {}, "refine_repeats_effect": true });
    assert_eq!(read(json!({ "nodes": [again] })), "nodes[0].refine_repeats_effect");
    let llm = |planning: &Plan| {
        let plan = json!({ "nodes": [{ "id": "a", "kind": "llm", "prompt": "p" }] });
        let plan = aetheris_agentfile::parse_plan(&plan.to_string(), planning).unwrap();
        let NodeKind::Llm(llm) = plan.nodes[0].work.kind.clone() else { panic!("{plan:?}") };
        llm.model
    };
    let two = PLANNED.replace("kinds: [tool, job, tool]", "kinds: [llm]");
    assert_eq!(llm(&accepted(&two).plan), "s/m");
    assert_eq!(llm(&accepted(&two.replace("model: s/m\n", "")).plan), "s/planner");
    let fixed = accepted("agent: a\nplan: { nodes: [ { id: a, kind: transform, output: 1 } ] }\n").plan;
    assert!(aetheris_agentfile::parse_plan("{}", &fixed).is_err());
}

/// A model is told the form of the plans that it may make, and no other.
#[test]
fn the_schema_of_plans_has_the_kinds_that_may_be_planned() {
    let whole = aetheris_agentfile::plan_schema(None);
    let narrow = aetheris_agentfile::plan_schema(Some(&["tool".to_owned(), "map".to_owned()]));
    for schema in [&whole, &narrow] {
        assert!(jsonschema::meta::is_valid(schema));
    }
    let plan = |node: serde_json::Value| json!({ "nodes": [node] });
    let call = json!({ "id": "a", "kind": "tool", "tool": "t" });
    let waits = json!({ "id": "a", "kind": "wait", "wait_type": "human", "correlation_key": "k" });
    let map = |each: serde_json::Value| json!({ "id": "a", "kind": "map", "over": "{{ message }}", "do": each });
    let valid = |schema: &serde_json::Value, node: serde_json::Value| {
        jsonschema::validator_for(schema).unwrap().is_valid(&plan(node))
    };
    assert!(valid(&whole, call.clone()) && valid(&whole, waits.clone()));
    assert!(valid(&narrow, call) && !valid(&narrow, waits));
    let of_item = |kind: &str| json!({ "kind": kind, "tool": "t", "prompt": "p" });
    assert!(valid(&narrow, map(json!({ "kind": "tool", "tool": "t" }))) && !valid(&narrow, map(of_item("llm"))));
}

#[test]
fn the_schema_is_valid_and_accepts_the_examples() {
    let validator = validator();
    for yaml in [REFUND, include_str!("fixtures/everything.yaml"), include_str!("fixtures/models.yaml"), PLANNED, RULES]
    {
        let value = as_json(yaml);
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        assert_eq!(accepted(yaml), accepted(&value.to_string()));
    }
}

#[test]
fn wrong_files_are_refused_by_schema_and_parser() {
    let validator = validator();
    let mut good = as_json(REFUND);
    good["description"] = json!("changed");
    assert!(validator.is_valid(&good));
    let changes: [(&str, serde_json::Value); 14] = [
        ("/agent", json!("Refund")),
        ("/version", json!(1)),
        ("/planner", json!("rules")),
        ("/max_parallel_steps", json!(257)),
        ("/deadline", json!("72 hours")),
        ("/retry/max_attempts", json!(0)),
        ("/budget", json!({"max_money": 3})),
        ("/tools/orders.get/effect", json!("safe")),
        ("/tools/orders.get/url", json!("ftp://x")),
        ("/tools/payments.refund/on_in_doubt", json!([{"ask": "me"}])),
        ("/plan/nodes/0/id", json!("a b")),
        ("/plan/nodes/0/kind", json!("map")),
        ("/plan/nodes/2/wait_type", json!("email")),
        ("/plan/nodes", json!([])),
    ];
    for (pointer, value) in changes {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        assert!(!validator.is_valid(&bad), "the schema accepts {pointer}");
        assert!(parse(&bad.to_string()).is_err(), "the parser accepts {pointer}");
    }
    // Names of headers, in upper and lower case: the parser and the schema know the same ones.
    for (name, allowed) in [
        ("X-Order", true),
        ("aetheris", true),
        ("X-Aetheris-Job", true),
        ("Hosts", true),
        ("Aetheris-Job", false),
        ("aetheris-anything", false),
        ("AETHERIS-", false),
        ("Host", false),
        ("idempotency-KEY", false),
        ("Transfer-Encoding", false),
    ] {
        let file = json!({
            "agent": "a",
            "tools": { "t": { "kind": "http", "method": "POST", "url": "http://h/", "headers": { name: "x" } } },
            "plan": { "nodes": [{ "id": "n", "kind": "transform", "output": 1 }] },
        });
        assert_eq!(validator.is_valid(&file), allowed, "the schema and {name}");
        assert_eq!(parse(&file.to_string()).is_ok(), allowed, "the parser and {name}");
    }
    for key in ["surprise", "plans"] {
        let mut bad = good.clone();
        bad[key] = json!(1);
        assert!(!validator.is_valid(&bad) && parse(&bad.to_string()).is_err());
    }
}

/// `null` is a value: an answer or body of that kind is another than none, and stays so where it is stored.
#[test]
fn what_is_null_is_stored_as_it_is() {
    let plan = "plan: { nodes: [{ id: n, kind: tool, tool: t }], answer: null }";
    let tool = "tools: { t: { kind: http, method: POST, url: 'https://shop.example/', body: null } }";
    let agent = accepted(&format!("agent: a\n{tool}\n{plan}\n"));
    assert_eq!(agent.plan.answer, Some(Json::null()));
    let stored: Agent = serde_json::from_str(&serde_json::to_string(&agent).unwrap()).unwrap();
    assert_eq!((&stored.plan, stored.hash()), (&agent.plan, agent.hash()));
}

/// The words and numbers of YAML's core schema, and what only looks like one of them.
#[test]
fn values_without_quotes_are_what_yaml_says() {
    let words = "[false, False, FALSE, true, True, TRUE, null, Null, NULL, ~, fALSE, tRue, nULL, no, on, 0x1F, 0o17, -7, +7, \
                 1.5, .5, 5., 1e3, -1E-2, 0x, 0o8, 1e, 1_000, .]";
    let agent = accepted(&format!("agent: a\nplan:\n  nodes:\n    - {{ id: n, kind: transform, output: {words} }}\n"));
    let NodeKind::Transform(output) = &agent.plan.nodes[0].work.kind else { panic!("{agent:?}") };
    let expected = json!([
        false, false, false, true, true, true, null, null, null, null, "fALSE", "tRue", "nULL", "no", "on", 31, 15, -7,
        7, 1.5, 0.5, 5, 1000, -0.01, "0x", "0o8", "1e", "1_000", "."
    ]);
    assert_eq!(output.value(), &expected);
}

/// What is not said of a map, and all that can be.
#[test]
fn a_map_is_a_list_and_the_work_for_each_item() {
    let file = |map: &str| {
        format!(
            "agent: a\nretry: {{ max_attempts: 2 }}\ntools: {{ t: {{ kind: function, function: f }} }}\nplan:\n  nodes:\n    \
             - {{ id: n, kind: transform, output: 1 }}\n    - {{ id: m, kind: map, needs: [n], {map} }}\n"
        )
    };
    let of = |map: &str| match accepted(&file(map)).plan.nodes[1].work.kind.clone() {
        NodeKind::Map(map) => map,
        other => panic!("{other:?}"),
    };
    let short = of("over: \"{{ message }}\", do: { kind: transform, output: \"{{ item }}{{ item_index }}\" }");
    let each = Work::new(NodeKind::Transform(Json::new(json!("{{ item }}{{ item_index }}"))));
    let over = Json::new(json!("{{ message }}"));
    let on_item_failure = OnItemFailure::Stop;
    let expected = MapNode { name: "item".into(), concurrency: 1, each: Box::new(each), on_item_failure, over };
    assert_eq!(short, expected);
    let whole = of(
        "over: [1, \"{{ nodes.n.output }}\"], as: row, concurrency: 256, on_item_failure: collect, do: { kind: tool, \
        tool: t, input: \"{{ row }}\", when: row_index > 0, timeout: 1s, retry: { backoff: 1s } }",
    );
    let mut each = Work::new(NodeKind::Tool { input: Json::new(json!("{{ row }}")), tool: "t".into() });
    let retry = RetryPolicy { max_attempts: 2, backoff: Span::from_secs(1), ..RetryPolicy::default() };
    (each.when, each.timeout, each.retry) = (Some("row_index > 0".into()), Some(Span::from_secs(1)), Some(retry));
    let over = Json::new(json!([1, "{{ nodes.n.output }}"]));
    let on_item_failure = OnItemFailure::Collect;
    let expected = MapNode { name: "row".into(), concurrency: 256, each: Box::new(each), on_item_failure, over };
    assert_eq!(whole, expected);
    let llm = accepted(&file("over: [], do: { kind: llm, model: p/m, prompt: x }"));
    let stored: Agent = serde_json::from_str(&serde_json::to_string(&llm).unwrap()).unwrap();
    assert_eq!((stored.plan.nodes[1].work.map().unwrap().each.kind.as_str(), &stored), ("llm", &llm));
}

/// As much as is accepted, to the last.
#[test]
fn what_is_as_large_as_it_may_be_is_accepted() {
    let plan = "plan: { nodes: [{ id: n, kind: transform, output: 1 }] }\n";
    let tools: String =
        (0..limits::AGENT_TOOLS_MAX).map(|n| format!("  t{n}: {{ kind: function, function: f }}\n")).collect();
    assert_eq!(accepted(&format!("agent: a\ntools:\n{tools}{plan}")).plan.tools.len(), limits::AGENT_TOOLS_MAX);
    let file = format!("agent: a\n{plan}# ");
    let file = format!("{file}{}", "x".repeat(limits::AGENT_FILE_BYTES_MAX - file.len()));
    assert_eq!(file.len(), limits::AGENT_FILE_BYTES_MAX);
    accepted(&file);
    // A header may have a tab in it, which is no line's end.
    let header = "tools:\n  t: { kind: http, method: GET, url: 'http://h/', headers: { X: \"a\\tb\" } }\n";
    let agent = accepted(&format!("agent: a\n{header}{plan}"));
    let ToolKind::Http(http) = &agent.plan.tools[&ToolName::from("t")].kind else { panic!("{agent:?}") };
    assert_eq!(http.headers["X"], "a\tb");
}

/// Names of fields may have in them what divides the parts of a pointer.
#[test]
fn a_pointer_leads_to_its_line_whatever_the_names_are() {
    let source = "a/b:\n  c~d: 1\n  c/d:\n    - x\n    - e~1f: 2\n~1: 3\n";
    for (pointer, path, line) in [
        ("/a~1b", "[\"a/b\"]", 2),
        ("/a~1b/c~0d", "[\"a/b\"][\"c~d\"]", 2),
        ("/a~1b/c~1d/1/e~01f", "[\"a/b\"][\"c/d\"][1][\"e~1f\"]", 5),
        ("/~01", "[\"~1\"]", 6),
    ] {
        assert_eq!(locate(source, &["/nothing", pointer]), (path.to_owned(), line), "{pointer}");
    }
}
