//! Files that are refused: every mistake with its code, path and line, all at once.
#![expect(clippy::expect_used, reason = "a test fails by it")]

use aetheris_agentfile::{FileError, parse};
use aetheris_core::limits;
use proptest::prelude::*;

const REFUND: &str = include_str!("fixtures/refund.yaml");

fn refused(source: &str) -> Vec<FileError> {
    parse(source).expect_err(source)
}

/// Whether a file has exactly these mistakes, given as `code path line`.
fn expect(source: &str, expected: &[&str]) {
    let errors = refused(source);
    let found: Vec<String> = errors.iter().map(|e| format!("{} {} {}", e.code, e.path, e.line)).collect();
    assert_eq!(found, expected, "{source}\n{errors:#?}");
    assert!(errors.iter().all(|e| !e.message.is_empty()));
}

/// A file with these lines, from line 4, as its nodes.
fn nodes(lines: &str) -> String {
    format!("agent: a\nplan:\n  nodes:\n{lines}")
}

/// A file with these lines, from line 3, as its tools.
fn tools(lines: &str) -> String {
    format!("agent: a\ntools:\n{lines}plan: {{ nodes: [{{ id: n, kind: transform, output: 1 }}] }}\n")
}

#[test]
fn keys_that_do_not_exist_are_refused_with_a_suggestion() {
    expect(
        "agent: a\nversoin: '1'\nplan:\n  nodes:\n    - { id: n, kind: transform, outptu: 1, output: 1 }\n  anwser: x\nzzz: 1\n",
        &[
            "unknown_key versoin 2",
            "unknown_key plan.nodes[0].outptu 5",
            "unknown_key plan.anwser 6",
            "unknown_key zzz 7",
        ],
    );
    let errors =
        refused("agent: a\nversoin: '1'\nplan: { nodes: [{ id: n, kind: transform, outptu: 1, output: 1 }] }\n");
    assert!(errors[0].message.contains("did you mean `version`?"), "{}", errors[0]);
    assert!(errors[1].to_string().starts_with("line 3: plan.nodes[0].outptu: node `n`: "), "{}", errors[1]);
}

/// Keys of the format that this build does not execute are no typing mistakes, and no suggestions either.
#[test]
fn what_is_not_in_this_build_says_so() {
    expect(
        &nodes(
            "    - { id: a, kind: llm, model: s/m, prompt: p, schema: {} }\n    - { id: b, kind: transform, blackboard: { key: k }, overwrite: true, output: '{{ now() }}' }\n    - { id: c, kind: transform, needs: [a], when: 'not nodes.a.failed', output: ['{{ feedback }}', '{{ nodes.a.error.code }}'] }\n",
        ),
        &[
            "not_supported_yet plan.nodes[1].blackboard 5",
            "not_supported_yet plan.nodes[1].overwrite 5",
            "bad_template plan.nodes[2].output[0] 6",
        ],
    );
    let unknown = &refused(&nodes("    - { id: a, kind: transform, output: 1, zzzzzz: 1, joim: 1 }\n"));
    assert!(unknown[0].message.contains("`output`"), "{}", unknown[0]);
    for refused in ["compensate", "blackboard"] {
        assert!(unknown.iter().all(|error| !error.message.contains(refused)), "{unknown:?}");
    }
}

/// A path is written out for a mistake, not for each item behind a long key, and what is answered is bounded.
#[test]
fn long_keys_cost_what_they_are_long() {
    // So long a key is one of YAML only where it says so.
    let (id, many) = ("K".repeat(200_000), 60_000);
    let key = format!("? \"{id}\" ");
    let list = |item: &str| vec![item; many].join(",");
    let numbered = |before: &str, behind: &str| -> String {
        (0..many).map(|n| format!("{before}{n}{behind}")).collect::<Vec<_>>().join(",")
    };
    let node = |inner: &str| nodes(&format!("    - {{ id: n, kind: transform, output: 1, {inner} }}\n"));
    let tool = |inner: &str| tools(&format!("  t: {{ kind: http, method: POST, url: 'http://h/', {inner} }}\n"));
    let named = |inner: &str| {
        format!("agent: a\ntools: {{ {key}: {inner} }}\nplan: {{ nodes: [{{ id: n, kind: transform, output: 1 }}] }}\n")
    };
    for (file, code) in [
        (
            named(&format!("{{ kind: http, method: POST, url: 'http://h/', refused_statuses: [{}] }}", list("0"))),
            "bad_value",
        ),
        (named(&format!("{{ {} }}", numbered("a", ": 1"))), "missing_key"),
        (tool(&format!("body: {{ {key}: [{}] }}", list("'{{x}}'"))), "bad_template"),
        (tool(&format!("headers: {{ {key}: [{}] }}", list("*a"))), "syntax"),
        (node(&format!("{key}: [{}]", list("*a"))), "syntax"),
        (node(&format!("{key}: [{}]", list("1e999"))), "bad_value"),
        (node(&format!("input: {{ {key}: {{ {} }} }}", list("a: 1"))), "duplicate_key"),
        (nodes(&format!("    - {{ id: {id}, kind: sleep, duration: 1s, needs: [{}] }}\n", list("a"))), "bad_value"),
        (
            nodes(&format!("    - {{ id: {id}, kind: sleep, duration: 1s, needs: [{}] }}\n", numbered("a", ""))),
            "bad_name",
        ),
        (node(&format!("retry: {{ {key}: 1, {} }}", numbered("a", ": 1"))), "unknown_key"),
    ] {
        let errors = refused(&file);
        assert!(errors.iter().any(|error| error.code.as_str() == code), "{code}: {:.300}", errors[0].to_string());
        let bytes: usize = errors.iter().map(|error| error.path.len() + error.message.len()).sum();
        assert!(bytes <= limits::FILE_ERRORS_BYTES_MAX + 3 * limits::ERROR_MESSAGE_BYTES_MAX, "{bytes} bytes");
        assert!(errors.iter().all(|error| error.path.len() <= limits::FILE_PATH_BYTES_MAX), "{:.200}", errors[0]);
    }
    let texts = vec!["'{{1}}'"; many].join(",");
    let fine = nodes(&format!("    - {{ id: n, kind: transform, output: {{ {key}: [{texts}] }} }}\n"));
    assert!(parse(&fine).is_ok(), "{:.300}", refused(&fine)[0].to_string());
}

#[test]
fn missing_and_mistyped_values_are_named() {
    expect("description: x\n", &["missing_key agent 1", "missing_key plan 1"]);
    expect("agent: 7\nversion: 1\nplan: []\n", &["wrong_type agent 1", "wrong_type version 2", "wrong_type plan 3"]);
    expect("agent: a\nplan:\n  nodes: []\n", &["bad_value plan.nodes 3"]);
    expect("agent: a\nplan:\n", &["wrong_type plan 2"]);
    expect("agent: a\nplan: {}\n", &["missing_key plan.nodes 2"]);
    expect(
        &nodes("    - id: a\n    - kind: sleep\n      duration: 1s\n    - { id: c, kind: sleep }\n    - text\n"),
        &[
            "missing_key plan.nodes[0].kind 4",
            "missing_key plan.nodes[1].id 5",
            "missing_key plan.nodes[2].duration 7",
            "wrong_type plan.nodes[3] 8",
        ],
    );
    expect(
        &nodes(
            "    - { id: a, kind: llm, prompt: p }\n    - { id: b, kind: llm, model: m }\n    - { id: c, kind: condition }\n",
        ),
        &[
            "missing_key plan.nodes[0].model 4",
            "missing_key plan.nodes[1].prompt 5",
            "bad_value plan.nodes[1].model 5",
            "missing_key plan.nodes[2].when 6",
        ],
    );
}

/// YAML reads a key without a value as null: it would be sent, stored and answered as if it had been meant.
#[test]
fn a_value_that_was_forgotten_is_not_null() {
    let tool = "  t:\n    kind: http\n    method: POST\n    url: http://h.example\n    effect: at_most_once\n    body:";
    expect(&tools(&format!("{tool}\n")), &["bad_value tools.t.body 8"]);
    expect(&tools(&format!("{tool}\n      - 1\n      -\n")), &["bad_value tools.t.body[1] 10"]);
    expect(&nodes("    - id: n\n      kind: transform\n      output:\n"), &["bad_value plan.nodes[0].output 6"]);
    expect(
        &format!("{}  answer: {{ said: }}\n", nodes("    - { id: n, kind: transform, output: 1 }\n")),
        &["bad_value plan.answer.said 5"],
    );
    let wait = "    - { id: w, kind: wait, wait_type: human, correlation_key: k, deadline: 1s, on_deadline: { continue_with: } }\n";
    expect(&nodes(wait), &["bad_value plan.nodes[0].on_deadline.continue_with 4"]);
    let schema = "    - { id: w, kind: wait, wait_type: human, correlation_key: k, schema: { const: } }\n";
    expect(&nodes(schema), &["bad_value plan.nodes[0].schema.const 4"]);
    for empty in [" # later", "\r", " {a}", " { a: , b: 1 }", " [[], [{ a: }]]"] {
        assert_eq!(refused(&tools(&format!("{tool}{empty}\n"))).len(), 1, "{empty:?}");
    }
    // Nor is a key that was forgotten the text that the parser puts in its place.
    for keyless in [" {: 1}", "\n      : 1"] {
        let errors = refused(&tools(&format!("{tool}{keyless}\n")));
        assert!(errors[0].message.contains("a key is missing before the `:`"), "{keyless:?}: {errors:?}");
    }
    let errors = refused(&tools(&format!("{tool}\n")));
    assert!(errors[0].message.contains("or `null` if that is meant"), "{}", errors[0]);
    for written in ["null", "~", "{ a: null, b: [~] }", "''"] {
        assert!(aetheris_agentfile::parse(&tools(&format!("{tool} {written}\n"))).is_ok(), "{written}");
    }
}

#[test]
fn names_and_durations_have_their_forms() {
    expect(
        "agent: Refund\nplan: { nodes: [{ id: a b, kind: sleep, duration: 1s }] }\n",
        &["bad_name agent 1", "bad_name plan.nodes[0].id 2"],
    );
    let long = "x".repeat(65);
    expect(
        &format!("agent: {long}\nplan: {{ nodes: [{{ id: n, kind: sleep, duration: 1s }}] }}\n"),
        &["bad_name agent 1"],
    );
    expect(&tools("  a/b: { kind: function, function: f }\n"), &["bad_name tools[\"a/b\"] 3"]);
    expect(
        "agent: a\ndeadline: 72 hours\nstep_timeout: 30\nretry: { backoff: 25h, max_backoff: 1w }\nplan:\n  nodes:\n    - { id: n, kind: sleep, duration: 0s, timeout: 4000d }\n",
        &[
            "bad_duration deadline 2",
            "bad_duration step_timeout 3",
            "bad_duration retry.backoff 4",
            "bad_duration retry.max_backoff 4",
            "bad_duration plan.nodes[0].timeout 7",
            "bad_duration plan.nodes[0].duration 7",
        ],
    );
}

/// A file with this line as its second, and nothing else that matters.
fn with_line(line: &str) -> String {
    let plan = if line.starts_with("plan:") { "" } else { "plan: { nodes: [{ id: n, kind: sleep, duration: 1s }] }\n" };
    format!("agent: a\n{line}\n{plan}")
}

/// The shortest and the longest.
const SPANS: &[&str] = &["1us", "3650d"];
const BEYOND: &[&str] = &["0s", "315360001s"];

/// A line, the mistake that a value in the place of `@` is beyond its bounds, the last values at both ends that fit, and
/// the first that do not.
type Bounded = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const BOUNDED: [Bounded; 19] = [
    ("retry: { max_attempts: @ }", "bad_value retry.max_attempts", &["1", "100"], &["-1", "0", "101"]),
    ("retry: { factor: @ }", "bad_value retry.factor", &["1", "1000"], &["-1", "0.99", "1000.01", "1e300"]),
    ("retry: { backoff: @ }", "bad_duration retry.backoff", &["0s", "24h"], &["86401s"]),
    ("retry: { max_backoff: @ }", "bad_duration retry.max_backoff", &["0s", "24h"], &["86401s"]),
    (
        "budget: { max_tokens: @ }",
        "bad_value budget.max_tokens",
        &["0", "18446744073709551615"],
        &["-1", "18446744073709551616"],
    ),
    ("budget: { max_tool_calls: @ }", "bad_value budget.max_tool_calls", &["0", "4294967295"], &["-1", "4294967296"]),
    ("deadline: @", "bad_duration deadline", SPANS, BEYOND),
    ("step_timeout: @", "bad_duration step_timeout", SPANS, BEYOND),
    ("tools: { t: { kind: function, function: f, timeout: @ } }", "bad_duration tools.t.timeout", SPANS, BEYOND),
    (
        "tools: { t: { kind: function, function: f, on_in_doubt: [{ wait: @ }] } }",
        "bad_duration tools.t.on_in_doubt[0].wait",
        SPANS,
        BEYOND,
    ),
    (
        "tools: { l: { kind: function, function: f, effect: pure }, \
         t: { kind: function, function: f, on_in_doubt: [{ reconcile: l, settle: @ }] } }",
        "bad_duration tools.t.on_in_doubt[0].settle",
        &["0s", "3650d"],
        &["315360001s"],
    ),
    (
        "tools: { t: { kind: http, method: POST, url: 'http://h/', refused_statuses: [@] } }",
        "bad_value tools.t.refused_statuses[0]",
        &["400", "409", "499"],
        &["399", "408", "425", "429", "500"],
    ),
    (
        "plan: { nodes: [{ id: n, kind: llm, model: s/m, prompt: p, temperature: @ }] }",
        "bad_value plan.nodes[0].temperature",
        &["0", "2"],
        &["-0.01", "2.01", "99"],
    ),
    (
        "plan: { nodes: [{ id: n, kind: llm, model: s/m, prompt: p, max_tokens: @ }] }",
        "bad_value plan.nodes[0].max_tokens",
        &["1", "4294967295"],
        &["-1", "0", "4294967296"],
    ),
    ("plan: { nodes: [{ id: n, kind: sleep, duration: @ }] }", "bad_duration plan.nodes[0].duration", SPANS, BEYOND),
    (
        "plan: { nodes: [{ id: n, kind: transform, output: 1, timeout: @ }] }",
        "bad_duration plan.nodes[0].timeout",
        SPANS,
        BEYOND,
    ),
    (
        "plan: { nodes: [{ id: n, kind: transform, output: 1, retry: { factor: @ } }] }",
        "bad_value plan.nodes[0].retry.factor",
        &["1", "1000"],
        &["0.99", "1000.01"],
    ),
    (
        "plan: { nodes: [{ id: n, kind: wait, wait_type: timer, deadline: @ }] }",
        "bad_duration plan.nodes[0].deadline",
        SPANS,
        BEYOND,
    ),
    (
        "plan: { nodes: [{ id: n, kind: transform, output: @ }] }",
        "bad_value plan.nodes[0].output",
        &["-9223372036854775808", "18446744073709551615"],
        &["-9223372036854775809", "18446744073709551616"],
    ),
];

#[test]
fn values_stay_within_their_bounds() {
    expect(
        "agent: a\nretry: { max_attempts: 101, factor: 0.5, jitter: some, on_timeout: 1 }\nbudget: { max_tokens: -1, max_tool_calls: 1.5, on_exceeded: stop }\nplan: { nodes: [{ id: n, kind: sleeep, duration: 1s }] }\n",
        &[
            "bad_value retry.max_attempts 2",
            "bad_value retry.factor 2",
            "bad_value retry.jitter 2",
            "wrong_type retry.on_timeout 2",
            "bad_value budget.max_tokens 3",
            "bad_value budget.max_tool_calls 3",
            "bad_value budget.on_exceeded 3",
            "bad_value plan.nodes[0].kind 4",
        ],
    );
    expect(
        &nodes("    - { id: n, kind: transform, output: 18446744073709551616 }\n"),
        &["bad_value plan.nodes[0].output 4"],
    );
    expect(&nodes("    - { id: n, kind: transform, output: [.nan] }\n"), &["bad_value plan.nodes[0].output[0] 4"]);
    for (line, mistake, fitting, beyond) in BOUNDED {
        for value in fitting {
            let file = with_line(&line.replace('@', value));
            assert!(parse(&file).is_ok(), "{file}: {:?}", parse(&file));
        }
        for value in beyond {
            expect(&with_line(&line.replace('@', value)), &[&format!("{mistake} 2")]);
        }
    }
}

/// By the rule of messages and answers: a file must not say one number and be read as another.
#[test]
fn numbers_that_would_change_are_refused() {
    let output = |number: &str| nodes(&format!("    - {{ id: n, kind: transform, output: [{number}] }}\n"));
    for number in ["9007199254740993.0", "12345678901234567890.0", "1e-400", "1e999"] {
        let errors = refused(&output(number));
        assert_eq!(errors.len(), 1, "{number}");
        assert!(errors[0].message.contains(&format!("the number {number} cannot be kept exactly")), "{}", errors[0]);
    }
    for number in ["9007199254740992.0", "+07.0", "0.1", ".5", "0.0", "-0e3", "1.7805312345678899e+18"] {
        assert!(parse(&output(number)).is_ok(), "{number}: {:?}", parse(&output(number)));
    }
}

#[test]
fn texts_stay_within_their_bounds() {
    let (name, key) = (limits::NAME_BYTES_MAX, limits::CORRELATION_KEY_CHARS_MAX);
    for (line, mistake, letter, most) in [
        ("version: '@'", "bad_value version", "x", name),
        ("version: '@'", "bad_value version", "é", name / 2),
        ("plan: { nodes: [{ id: '@', kind: sleep, duration: 1s }] }", "bad_name plan.nodes[0].id", "x", name),
        (
            "plan: { nodes: [{ id: n, kind: wait, wait_type: human, correlation_key: '@' }] }",
            "bad_value plan.nodes[0].correlation_key",
            "é",
            key,
        ),
    ] {
        for length in [1, most] {
            let file = with_line(&line.replace('@', &letter.repeat(length)));
            assert!(parse(&file).is_ok(), "{file}: {:?}", parse(&file));
        }
        for length in [0, most + 1] {
            expect(&with_line(&line.replace('@', &letter.repeat(length))), &[&format!("{mistake} 2")]);
        }
    }
}

#[test]
fn what_this_build_does_not_execute_is_refused_by_name() {
    expect(
        "agent: a\nplanner: code\nownership: task\nmax_parallel_steps: 257\nbudget:\n  on_exceeded: park\ntools:\n  m: { kind: mcp, server: x }\n  p: { kind: process }\nplan:\n  nodes:\n    - { id: a, kind: agent, tools: [m] }\n    - { id: b, kind: map, over: [], do: { kind: agent } }\n    - { id: c, kind: job }\n    - { id: d, kind: critic }\n    - id: e\n      kind: sleep\n      duration: 1s\n      join: any\n      on_failure: fail_safe\n      validate: {}\n      critic: x\n      max_refines: 2\n      compensate: a\n",
        &[
            "bad_value planner 2",
            "not_supported_yet ownership 3",
            "bad_value max_parallel_steps 4",
            "not_supported_yet budget.on_exceeded 6",
            "not_supported_yet tools.m.kind 8",
            "not_supported_yet tools.p.kind 9",
            "missing_key plan.nodes[0].prompt 12",
            "missing_key plan.nodes[0].model 12",
            "missing_key plan.nodes[1].do.prompt 13",
            "missing_key plan.nodes[1].do.model 13",
            "missing_key plan.nodes[2].agent 14",
            "missing_key plan.nodes[3].prompt 15",
            "missing_key plan.nodes[3].model 15",
            "unreachable_node plan.nodes[3] 15",
            "bad_value plan.nodes[4].join 19",
            "unknown_need plan.nodes[4].critic 22",
            "not_supported_yet plan.nodes[4].compensate 24",
        ],
    );
}

#[test]
fn keys_of_the_format_that_this_build_does_not_execute_are_not_unknown() {
    expect(
        "agent: a\nschedules: [{ id: nightly, cron: '0 3 * * *' }]\ndouble_texting: reject\nplanning: {}\nrules: []\nbudget: { max_cost_usd: 2 }\ntools:\n  t: { kind: http, effect: pure, method: GET, url: 'http://x/', description: d, input_schema: {}, output_schema: {} }\nplan:\n  compensations: []\n  nodes:\n    - { id: n, kind: sleep, duration: 1s, refine_repeats_effect: true }\n",
        &[
            "not_supported_yet schedules 2",
            "not_supported_yet double_texting 3",
            "bad_value planning 4",
            "bad_value rules 5",
            "not_supported_yet budget.max_cost_usd 6",
            "not_supported_yet plan.compensations 10",
            "bad_value plan.nodes[0].refine_repeats_effect 12",
        ],
    );
}

#[test]
fn what_makes_plans_is_checked() {
    expect(
        "agent: a\nplanner: llm\nplan: { nodes: [] }\nplanning:\n  max_attempts: 21\n  max_nodes: 0\n  kinds: [tool, review]\n  plan_review: maybe\n  prompt: '{{ nodes.a.output }}'\n  temperature: 1\n",
        &[
            "bad_value plan 3",
            "missing_key planning.model 5",
            "bad_value planning.max_attempts 5",
            "bad_value planning.max_nodes 6",
            "bad_value planning.kinds[1] 7",
            "bad_value planning.plan_review 8",
            "bad_template planning.prompt 9",
            "unknown_key planning.temperature 10",
        ],
    );
    expect(
        "agent: a\nplanner: rules\nrules:\n  - plan: { nodes: [ { id: a, kind: tool, tool: t } ] }\n  - when: nodes.a.output\n    plan: { nodes: [] }\n  - when: message.\n",
        &[
            "missing_key rules[0] 4",
            "unknown_tool rules[0].plan.nodes[0].tool 4",
            "bad_template rules[1].when 5",
            "bad_value rules[1].plan.nodes 6",
            "bad_template rules[2].when 7",
            "missing_key rules[2].plan 7",
        ],
    );
    expect("agent: a\nplanner: llm\n", &["missing_key planning 1"]);
    expect("agent: a\nplanner: rules\nrules: []\n", &["bad_value rules 3"]);
}

#[test]
fn what_is_said_of_calls_is_refused_of_a_question_to_a_person() {
    expect(
        "agent: a\ntools:\n  t: { kind: human, effect: pure, timeout: 1s, on_in_doubt: fail, refuses: true, output_schema: {}, deadline: 0s, schema: { type: 1 } }\n  \
         u: { kind: human, question: '{{ nodes.a.output }} {{ input.x }}', url: x }\n  \
         v: { kind: function, function: f, on_in_doubt: [{ reconcile: u }] }\n  \
         w: { kind: function, function: f, effect: pure, output_schema: { type: 1 } }\n\
         plan:\n  nodes:\n    - { id: n, kind: llm, model: s/m, prompt: p, format: text, schema: {} }\n",
        &[
            "bad_value tools.t.effect 3",
            "bad_value tools.t.timeout 3",
            "bad_value tools.t.on_in_doubt 3",
            "bad_value tools.t.refuses 3",
            "bad_value tools.t.output_schema 3",
            "bad_duration tools.t.deadline 3",
            "bad_schema tools.t.schema.type 3",
            "missing_key tools.t.question 3",
            "bad_template tools.u.question 4",
            "unknown_key tools.u.url 4",
            "bad_value tools.v.on_in_doubt[0].reconcile 5",
            "bad_schema tools.w.output_schema.type 6",
            "bad_value plan.nodes[0].format 9",
        ],
    );
}

/// A node that asks a person is asked once, for as long as the tool says.
#[test]
fn tries_and_timeouts_of_a_question_to_a_person_are_refused() {
    let do_ = "do: { kind: tool, tool: p, timeout: 1s }";
    expect(
        &format!(
            "agent: a\ntools: {{ p: {{ kind: human, question: q }} }}\nplan:\n  nodes:\n    - {{ id: n, kind: tool, tool: p, timeout: 1s, retry: {{ max_attempts: 2 }} }}\n    - {{ id: m, kind: map, over: [1], {do_} }}\n"
        ),
        &[
            "bad_value plan.nodes[0].timeout 5",
            "bad_value plan.nodes[0].retry 5",
            "bad_value plan.nodes[1].do.timeout 6",
        ],
    );
}

#[test]
fn the_keys_of_a_loop_are_checked() {
    let tools = "  a.b: { kind: function, function: f, description: D, input_schema: { type: strin } }\n  a_b: { kind: function, function: f, input_schema: { type: string } }\n"
        .replace('D', &"x".repeat(5_000));
    let node = "kind: agent, model: m/n, prompt: '{{ nodes.x.output }}', tools: [a.b, a.b, a_b, c], max_turns: 201, parallel_tool_calls: 0, max_tokens: 0, max_answer_tokens: 0, schema: { type: 1 }, on_limit: stop, temperature: 1";
    expect(
        &format!("agent: a\ntools:\n{tools}plan:\n  nodes:\n    - {{ id: n, {node} }}\n"),
        &[
            "too_large tools.a.b.description 3",
            "bad_schema tools.a.b.input_schema.type 3",
            "bad_value tools.a_b.input_schema 4",
            "bad_value plan.nodes[0].tools[1] 7",
            "bad_name plan.nodes[0].tools[2] 7",
            "bad_value plan.nodes[0].max_turns 7",
            "bad_value plan.nodes[0].parallel_tool_calls 7",
            "bad_value plan.nodes[0].max_tokens 7",
            "bad_value plan.nodes[0].max_answer_tokens 7",
            "bad_schema plan.nodes[0].schema.type 7",
            "bad_value plan.nodes[0].on_limit 7",
            "unknown_key plan.nodes[0].temperature 7",
            "unknown_tool plan.nodes[0].tools[3] 7",
            "bad_template plan.nodes[0].prompt 7",
        ],
    );
    // A loop that may do again what is done at most once says so, or is not made again.
    let judged = |more: &str| {
        let node = format!("kind: agent, model: m/n, prompt: p, tools: [t], validate: {{}}{more}");
        format!(
            "agent: a\ntools: {{ t: {{ kind: function, function: f }} }}\nplan:\n  nodes:\n    - {{ id: n, {node} }}\n"
        )
    };
    expect(&judged(""), &["bad_value plan.nodes[0] 5"]);
    for more in [", max_refines: 0", ", refine_repeats_effect: true"] {
        assert!(aetheris_agentfile::parse(&judged(more)).is_ok(), "{more}");
    }
}

#[test]
fn the_graph_is_checked() {
    expect(
        &nodes(
            "    - { id: a, kind: sleep, duration: 1s, needs: [c] }\n    - { id: b, kind: sleep, duration: 1s, needs: [a] }\n    - { id: c, kind: sleep, duration: 1s, needs: [b] }\n    - { id: d, kind: sleep, duration: 1s, needs: [c] }\n    - { id: e, kind: sleep, duration: 1s, needs: [e] }\n",
        ),
        &["cycle plan.nodes[0].needs[0] 4", "cycle plan.nodes[4].needs[0] 8"],
    );
    expect(
        &nodes(
            "    - { id: aa, kind: sleep, duration: 1s }\n    - { id: aa, kind: tool, tool: x }\n    - { id: bb, kind: sleep, duration: 1s, needs: [aa, aaa, aa] }\n    - { id: bb, kind: sleep, duration: 1s, needs: 7 }\n",
        ),
        &[
            "duplicate_id plan.nodes[1].id 5",
            "unknown_tool plan.nodes[1].tool 5",
            "bad_value plan.nodes[2].needs[2] 6",
            "unknown_need plan.nodes[2].needs[1] 6",
            "wrong_type plan.nodes[3].needs 7",
            "duplicate_id plan.nodes[3].id 7",
        ],
    );
    let errors = refused(&nodes(
        "    - { id: order, kind: sleep, duration: 1s }\n    - { id: b, kind: sleep, duration: 1s, needs: [ordre] }\n",
    ));
    assert!(errors[0].message.contains("did you mean `order`?"), "{}", errors[0]);
}

/// A fallback would turn a slip into a silent default.
#[test]
fn a_slip_in_a_template_is_told_from_a_value_that_may_be_missing() {
    for (node, said) in [
        ("output: \"{{ mesage.order }}\"", "`mesage` is not defined, did you mean `message`?"),
        ("output: \"{{ elsewhere.order }}\"", "give a fallback"),
        ("output: 1, when: \"message.ok = true\"", "`=` is not expected here: to compare, write `==`"),
    ] {
        let errors = refused(&nodes(&format!("    - {{ id: a, kind: transform, {node} }}\n")));
        assert!(errors[0].message.contains(said), "{}", errors[0]);
    }
}

#[test]
fn a_join_that_cannot_be_met_is_refused() {
    let node = |join: &str| format!("    - {{ id: n, kind: condition, when: 'true', needs: [a, b], join: {join} }}\n");
    let two = "    - { id: a, kind: sleep, duration: 1s }\n    - { id: b, kind: sleep, duration: 1s }\n";
    for (join, wrong) in [
        ("some", "bad_value plan.nodes[2].join 6"),
        ("{ quorum: 0 }", "bad_value plan.nodes[2].join 6"),
        ("{ quorum: 3 }", "bad_value plan.nodes[2].join 6"),
        ("{ quorum: two }", "wrong_type plan.nodes[2].join.quorum 6"),
        ("{}", "missing_key plan.nodes[2].join.quorum 6"),
        ("{ quorum: 1, of: 2 }", "unknown_key plan.nodes[2].join.of 6"),
        ("3", "bad_value plan.nodes[2].join 6"),
        ("[a]", "bad_value plan.nodes[2].join 6"),
        ("true", "bad_value plan.nodes[2].join 6"),
    ] {
        expect(&nodes(&format!("{two}{}", node(join))), &[wrong]);
    }
    for alone in ["any", "{ quorum: 1 }"] {
        let file = nodes(&format!("    - {{ id: a, kind: sleep, duration: 1s, join: {alone} }}\n"));
        expect(&file, &["bad_value plan.nodes[0].join 4"]);
    }
    expect(
        &nodes("    - { id: a, kind: sleep, duration: 1s, on_failure: never }\n"),
        &["bad_value plan.nodes[0].on_failure 4"],
    );
    // One of its needs never runs, and it waits for both.
    let never = two.replacen("1s }", "1s, when: 'false' }", 1);
    let reached = |join: &str| nodes(&format!("{never}{}", node(join)));
    expect(&reached("{ quorum: 2 }"), &["unreachable_node plan.nodes[0].when 4", "unreachable_node plan.nodes[2] 6"]);
    for join in ["any", "{ quorum: 1 }", "all"] {
        expect(&reached(join), &["unreachable_node plan.nodes[0].when 4"]);
    }
}

#[test]
fn nodes_that_can_never_run_are_refused() {
    expect(
        &nodes(
            "    - { id: a, kind: sleep, duration: 1s, when: 'false' }\n    - { id: b, kind: sleep, duration: 1s, needs: [a] }\n    - { id: c, kind: sleep, duration: 1s, when: '1 > 2 and message.x' }\n    - { id: d, kind: sleep, duration: 1s, needs: [a, ok] }\n    - { id: ok, kind: sleep, duration: 1s, when: 'nodes.p.output.x is defined', needs: [p] }\n    - { id: p, kind: sleep, duration: 1s, when: 'message.go | default(false)' }\n",
        ),
        &[
            "unreachable_node plan.nodes[0].when 4",
            "unreachable_node plan.nodes[1] 5",
            "unreachable_node plan.nodes[2].when 6",
        ],
    );
}

#[test]
fn templates_are_checked_where_they_stand() {
    expect(
        &nodes(
            "    - { id: a, kind: transform, output: { x: [\"{{ message. }}\"], y: \"{{ nodes.b.output }}\" } }\n    - id: b\n      kind: transform\n      when: \"{{ message.x }}\"\n      output: \"{{ nodes.b.output }} {{ nodes.zz.output }}\"\n    - id: c\n      kind: transform\n      output: |\n        {{ input.x }}\n    - { id: d, kind: transform, output: \"{{ env.HOME }}{{ foo }}\" }\n  answer: { x: \"{{ nodes.q.output }}\" }\n",
        ),
        &[
            "bad_template plan.nodes[0].output.x[0] 4",
            "bad_template plan.nodes[0].output.y 4",
            "bad_template plan.nodes[1].when 7",
            "bad_template plan.nodes[1].output 8",
            "bad_template plan.nodes[1].output 8",
            "bad_template plan.nodes[2].output 12",
            "bad_template plan.nodes[3].output 13",
            "bad_template plan.answer.x 14",
        ],
    );
    let errors = refused(&nodes(
        "    - { id: a-b, kind: sleep, duration: 1s }\n    - { id: c, kind: transform, needs: [a-b], output: \"{{ nodes.a-b.output }}\" }\n",
    ));
    assert!(errors[0].message.contains("nodes[\"a-b\"].output"), "{}", errors[0]);
}

#[test]
fn a_promise_to_refuse_is_for_pure_tools_that_are_no_get() {
    expect(
        &tools(
            "  a: { kind: http, effect: pure, refuses: true, method: GET, url: 'http://h/' }\n  b: { kind: http, refuses: true, method: POST, url: 'http://h/' }\n  c: { kind: http, effect: pure, refuses: yes, method: POST, url: 'http://h/' }\n  d:\n    kind: function\n    function: f\n    on_in_doubt: [{ wait: 1s, settle: 1s }, { reconcile: a, settle: never }]\n",
        ),
        &[
            "bad_value tools.a.refuses 3",
            "bad_value tools.b.refuses 4",
            "wrong_type tools.c.refuses 5",
            "bad_value tools.d.on_in_doubt[0].settle 9",
            "bad_duration tools.d.on_in_doubt[1].settle 9",
        ],
    );
}

#[test]
fn references_through_other_nodes_are_upstream() {
    let file = nodes(
        "    - { id: a, kind: transform, output: 1 }\n    - { id: b, kind: transform, output: 1, needs: [a] }\n    - { id: c, kind: transform, output: '{{ nodes.a.output }}', needs: [b] }\n",
    );
    assert!(parse(&file).is_ok());
}

#[test]
fn tools_are_checked() {
    expect(
        &tools(
            "  a: { kind: http, method: get, url: 'ftp://x' }\n  b: { kind: http, method: GET, url: 'http://', headers: { Host: x, Idempotency-Key: k, aetheris-job: j, 'b d': e, X: 1, A: '1', a: '2' } }\n  c: { kind: function, effect: pure, on_in_doubt: human }\n  d:\n    kind: function\n    function: f\n    on_in_doubt: [human, fail, { reconcile: zzz }, { reconcile: d }, { wait: 1 }, {}, ask, { reconcile: g }]\n  e: { kind: http, method: GET, url: 'http://h/{{ message }}', body: '{{ env.X }}', refused_statuses: [200, 429] }\n  f: { kind: http, method: GET, url: '{{ input.url }}', headers: { X: '{{ nodes.n.output }}' } }\n  g: { kind: function, function: f, effect: idempotent }\n",
        ),
        &[
            "bad_value tools.a.method 3",
            "bad_value tools.a.url 3",
            "bad_value tools.b.url 4",
            "bad_value tools.b.headers.Host 4",
            "bad_value tools.b.headers.Idempotency-Key 4",
            "bad_value tools.b.headers.aetheris-job 4",
            "bad_name tools.b.headers[\"b d\"] 4",
            "wrong_type tools.b.headers.X 4",
            "duplicate_key tools.b.headers.a 4",
            "bad_value tools.c.on_in_doubt 5",
            "missing_key tools.c.function 5",
            "bad_value tools.d.on_in_doubt[1] 9",
            "bad_value tools.d.on_in_doubt[2] 9",
            "bad_duration tools.d.on_in_doubt[4].wait 9",
            "bad_value tools.d.on_in_doubt[5] 9",
            "bad_value tools.d.on_in_doubt[6] 9",
            "unknown_tool tools.d.on_in_doubt[2].reconcile 9",
            "bad_value tools.d.on_in_doubt[3].reconcile 9",
            "bad_value tools.d.on_in_doubt[7].reconcile 9",
            "bad_template tools.e.url 10",
            "bad_value tools.e.body 10",
            "bad_template tools.e.body 10",
            "bad_value tools.e.refused_statuses[0] 10",
            "bad_value tools.e.refused_statuses[1] 10",
            "bad_template tools.f.url 11",
            "bad_template tools.f.headers.X 11",
        ],
    );
}

/// What is written and would never be used is refused: nothing in a file is ignored.
#[test]
fn keys_of_tools_that_could_never_apply_are_refused() {
    expect(
        &tools(
            "  a: { kind: http, method: GET, effect: pure, url: 'http://h/', body: 1, refused_statuses: [409] }\n  b: { kind: http, method: POST, effect: idempotent, url: 'http://h/', refused_statuses: [409] }\n  c: { kind: http, method: POST, url: 'http://h/', headers: { Expect: 100-continue, TE: trailers, trailer: X, UPGRADE: h2c } }\n  d: { kind: http, method: GET, url: 'http://h/', refused_statuses: [409] }\n",
        ),
        &[
            "bad_value tools.a.body 3",
            "bad_value tools.a.refused_statuses 3",
            "bad_value tools.b.refused_statuses 4",
            "bad_value tools.c.headers.Expect 5",
            "bad_value tools.c.headers.TE 5",
            "bad_value tools.c.headers.trailer 5",
            "bad_value tools.c.headers.UPGRADE 5",
        ],
    );
}

#[test]
fn a_host_from_a_template_says_so() {
    let url = |url: &str| tools(&format!("  t: {{ kind: http, method: GET, url: \"{url}\" }}\n"));
    for host in [
        "{{ input.url }}",
        "{{ input.scheme }}://h/",
        "http://{{ input.host }}/x",
        "http://h:{{ input.port }}",
        "http://h{{ input.rest }}",
        "http://{% if input.a %}{{ input.a }}{% endif %}/",
        "http://h{% if input.a %}/{% endif %}{{ input.b }}",
        "http://h{% for x in input.l %}{{ x }}/{% endfor %}",
        "{{ env.BASE ~ input.path }}",
        "{{ env.BASE }}{{ input.path }}",
        // One way through is enough.
        "http://{% if input.r == 'eu' %}eu.example{% elif input.r %}us.example{% endif %}/{{ input.h }}/orders",
        "http://{% if input.r %}eu.example/{% else %}{% endif %}{{ input.h }}/orders",
        "http://{% for x in input.l %}h{% endfor %}/{{ input.h }}",
        "{% if input.c %}http://a{% else %}http:{% endif %}/{{ input.h }}",
        "http:/{% for x in input.l %}/{% endfor %}{{ input.h }}",
        "http:///{{ input.h }}",
        "http://h{% for x in input.l %}{% if x %}/{% else %}{% for y in x %}{{ y }}{% endfor %}{% endif %}{% endfor %}",
    ] {
        expect(&url(host), &["bad_template tools.t.url 3"]);
    }
    for fine in [
        "{{ env.BASE }}/orders/{{ input.id }}",
        "http://h/{{ input.a }}?q={{ input.b }}#{{ input.c }}",
        "http://h?q={{ input.a }}",
        "{{ input.callback | raw }}",
        "http://{{ input.host | raw }}/{{ input.id }}",
        "http://h/{% if input.a %}{{ input.a }}{% else %}none{% endif %}",
        "http://h{% if input.a %}/a{% else %}/b{% endif %}/{{ input.a }}",
        "http://h{% for x in input.l %}/{{ x }}{% endfor %}",
        "http://{% if input.r == 'eu' %}eu.example{% else %}us.example{% endif %}/{{ input.h }}/orders",
        "http{% if input.s %}s{% endif %}://h/{{ input.h }}",
        "{{ env.SCHEME }}://h/{{ input.h }}",
        "http://{{ env.HOST }}:8080/{{ input.h }}",
    ] {
        assert!(parse(&url(fine)).is_ok(), "{fine}: {:?}", parse(&url(fine)));
    }
    for elsewhere in ["headers: { X: '{{ input.a | raw }}' }", "method: POST, body: '{{ input.a | raw }}'"] {
        let file = tools(&format!("  t: {{ kind: http, method: GET, url: 'http://h/', {elsewhere} }}\n"));
        assert!(
            refused(&file.replace("method: GET, url: 'http://h/', method: POST", "url: 'http://h/', method: POST"))
                .iter()
                .all(|error| error.code.as_str() == "bad_template" && error.message.contains("`raw`"))
        );
    }
}

/// Each pattern is compiled, which takes time: the schemas of a file have so many together, the wrong ones too.
#[test]
fn the_patterns_of_a_file_are_bounded() {
    let file = |schemas: &[(usize, &str)]| {
        let wait = |(n, (patterns, more)): (usize, &(usize, &str))| {
            let patterns = vec!["{ pattern: 'a' }"; *patterns].join(", ");
            format!(
                "    - {{ id: n{n}, kind: wait, wait_type: human, correlation_key: k{n}, schema: {{ anyOf: [{patterns}]{more} }} }}\n"
            )
        };
        nodes(&schemas.iter().enumerate().map(wait).collect::<String>())
    };
    let each = limits::SCHEMA_PATTERNS_MAX;
    let most = limits::AGENT_PATTERNS_MAX / each;
    let mut schemas = vec![(each, ""); most];
    parse(&file(&schemas)).expect("so many are read");
    schemas.extend([(1, ""), (1, "")]);
    let one_too_many: Vec<String> =
        [most, most + 1].map(|n| format!("bad_schema plan.nodes[{n}].schema {}", n + 4)).into();
    expect(&file(&schemas), &one_too_many.iter().map(String::as_str).collect::<Vec<_>>());
    let found = refused(&file(&schemas));
    assert!(found[0].message.contains("read together") && found[0].message.contains("1000"), "{found:?}");
    // What is wrong has been compiled as well.
    let mut schemas = vec![(each, ", nosuch: 1"); most];
    schemas.push((1, ""));
    let found = refused(&file(&schemas));
    assert!(found.len() == most + 1 && found[most].message.contains("read together"), "{found:?}");
}

/// Each wait may be judged at length, and all waits of a file no longer.
#[test]
fn what_the_values_of_a_file_take_to_judge_is_bounded() {
    let listed: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let schema = format!("{{ items: {{ enum: [{}] }} }}", listed.join(","));
    let value = vec!["0"; limits::SCHEMA_WORK_MAX / listed.len() / 4].join(",");
    let wait = |n: usize| {
        let end = format!("deadline: 1h, on_deadline: {{ continue_with: [{value}] }}");
        format!("    - {{ id: n{n}, kind: wait, wait_type: human, correlation_key: k{n}, schema: {schema}, {end} }}\n")
    };
    let file = |waits: usize| nodes(&(0..waits).map(wait).collect::<String>());
    assert!(parse(&file(3)).is_ok());
    expect(
        &file(5),
        &[3, 4]
            .map(|n| format!("bad_value plan.nodes[{n}].on_deadline.continue_with {}", n + 4))
            .each_ref()
            .map(String::as_str),
    );
    assert!(refused(&file(4))[0].message.contains("judged together"));
}

#[test]
fn schemas_are_checked_where_they_are() {
    expect(
        "agent: a\nmessage_schema:\n  type: object\n  requred: [x]\n  properties:\n    x: { type: strin }\nplan:\n  nodes:\n    - id: n\n      kind: wait\n      wait_type: human\n      correlation_key: k\n      schema: { $ref: 'http://x/y.json' }\n    - id: m\n      kind: wait\n      wait_type: human\n      correlation_key: l\n      schema: { required: [approved], properties: { approved: { type: boolean } } }\n      deadline: 1h\n      on_deadline: { continue_with: { approved: 'no' } }\n    - { id: t, kind: wait, wait_type: timer, deadline: 1s, schema: true }\n",
        &[
            "bad_schema message_schema.requred 4",
            "bad_schema message_schema.properties.x.type 6",
            "bad_schema plan.nodes[0].schema[\"$ref\"] 13",
            "bad_value plan.nodes[1].on_deadline.continue_with.approved 20",
            "bad_value plan.nodes[2].schema 21",
        ],
    );
    let wrong = "agent: a\nmessage_schema: { properties: { x: { type: strin } } }\nplan: { nodes: [{ id: n, kind: transform, output: 1 }] }\n";
    expect(wrong, &["bad_schema message_schema.properties.x.type 2"]);
    // Whoever ends the wait, and what it goes on with where nobody does.
    for wait_type in ["human", "signal", "webhook"] {
        let wait = |approved: &str, value: &str| {
            let schema = format!("{{ required: [approved], properties: {{ approved: {{ type: {approved} }} }} }}");
            let end = format!("schema: {schema}, deadline: 1h, on_deadline: {{ continue_with: {value} }}");
            nodes(&format!("    - {{ id: w, kind: wait, wait_type: {wait_type}, correlation_key: k, {end} }}\n"))
        };
        assert!(parse(&wait("boolean", "{ approved: true }")).is_ok(), "{wait_type}");
        expect(
            &wait("boolean", "{ approved: 'no' }"),
            &["bad_value plan.nodes[0].on_deadline.continue_with.approved 4"],
        );
        expect(&wait("boolean", "{}"), &["bad_value plan.nodes[0].on_deadline.continue_with 4"]);
        expect(&wait("bool", "{ approved: true }"), &["bad_schema plan.nodes[0].schema.properties.approved.type 4"]);
    }
}

#[test]
fn words_that_have_another_form_beside_them_name_it() {
    let wait =
        nodes("    - { id: a, kind: wait, wait_type: signal, correlation_key: k, deadline: 1s, on_deadline: later }\n");
    assert!(refused(&wait)[0].message.contains("continue_with"), "{}", refused(&wait)[0]);
    let doubt = tools("  t: { kind: function, function: f, on_in_doubt: { reconcile: t } }\n");
    assert!(refused(&doubt)[0].message.contains("list"), "{}", refused(&doubt)[0]);
}

#[test]
fn waits_are_checked() {
    expect(
        &nodes(
            "    - { id: a, kind: wait, wait_type: human }\n    - { id: b, kind: wait, wait_type: timer, correlation_key: k }\n    - { id: c, kind: wait, wait_type: signal, correlation_key: same, on_deadline: fail }\n    - { id: d, kind: wait, wait_type: signal, correlation_key: same, park: 1 }\n    - { id: e, kind: wait, wait_type: mail, correlation_key: x, deadline: 1s, on_deadline: { continue_with: '{{ message }}' } }\n",
        ),
        &[
            "missing_key plan.nodes[0].correlation_key 4",
            "bad_value plan.nodes[1].correlation_key 5",
            "missing_key plan.nodes[1].deadline 5",
            "bad_value plan.nodes[2].on_deadline 6",
            "wrong_type plan.nodes[3].park 7",
            "duplicate_correlation_key plan.nodes[3].correlation_key 7",
            "bad_value plan.nodes[4].wait_type 8",
            "bad_template plan.nodes[4].on_deadline.continue_with 8",
        ],
    );
}

#[test]
fn what_is_not_a_plain_document_is_refused() {
    expect("", &["syntax  1"]);
    expect("# nothing\n", &["syntax  1"]);
    expect(
        "agent: a\nagent: b\nplan: { nodes: [{ id: n, kind: transform, output: { x: 1, x: 2 } }] }\n",
        &["duplicate_key agent 2", "duplicate_key plan.nodes[0].output.x 3"],
    );
    expect("agent: [\n", &["syntax  1"]);
    expect("agent: a\n\tplan: x\n", &["syntax  2"]);
    expect(&nodes("    - id: n\n      kind: sleep\n\tduration: 1s\n"), &["syntax  6"]);
    expect(&nodes("    - id: n\n    \tkind: sleep\n"), &["syntax  5"]);
    expect("just text\n", &["wrong_type  1"]);
    assert!(refused("agent: a\n---\nagent: b\n").iter().any(|e| e.code.as_str() == "syntax" && e.line >= 2));
    assert!(refused("%YAML 1.2\n---\nagent: b\n").iter().any(|e| e.code.as_str() == "syntax"));
    assert!(refused("agent: {{ name }}\n").iter().any(|e| e.message.contains("quotes")));
    expect(
        "agent: &x a\nplan: { nodes: [{ id: n, kind: transform, output: *x }] }\n",
        &["syntax agent 1", "syntax plan.nodes[0].output 2"],
    );
    expect("agent: !!str a\nplan: { nodes: [{ id: n, kind: transform, output: 1 }] }\n", &["syntax agent 1"]);
}

#[test]
fn bombs_are_refused_quickly() {
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (from, to) in ('a'..'i').zip('b'..='i') {
        bomb.push_str(&format!(
            "{to}: &{to} [*{from},*{from},*{from},*{from},*{from},*{from},*{from},*{from},*{from}]\n"
        ));
    }
    assert!(refused(&bomb).iter().any(|e| e.code.as_str() == "syntax"));
    expect(&"x".repeat(limits::AGENT_FILE_BYTES_MAX + 1), &["too_large  1"]);
    for deep in ["[".repeat(500_000), "{a: ".repeat(200_000), "- ".repeat(400_000), "? ".repeat(400_000)] {
        assert!(matches!(refused(&deep)[0].code.as_str(), "too_large" | "syntax"));
    }
    let nested = nodes(&format!("    - {{ id: n, kind: transform, output: {}1{} }}\n", "[".repeat(70), "]".repeat(70)));
    assert_eq!(refused(&nested)[0].code.as_str(), "too_large");
    let many: String =
        (0..=limits::PLAN_NODES_MAX).map(|n| format!("    - {{id: n{n}, kind: sleep, duration: 1s}}\n")).collect();
    expect(&nodes(&many), &["too_large plan.nodes 4"]);
    let wrong: String = (0..9_000)
        .map(|n| format!("    - {{id: n{n}, kind: sleep, duration: 1s, needs: [a, b, c, d, e]}}\n"))
        .collect();
    assert!(refused(&nodes(&wrong)).len() <= 200);
    let chain: String = (1..9_000)
        .map(|n| {
            format!("    - {{id: n{n}, kind: transform, output: '{{{{ nodes.n0.output }}}}', needs: [n{}]}}\n", n - 1)
        })
        .collect();
    assert!(parse(&nodes(&format!("    - {{id: n0, kind: sleep, duration: 1s}}\n{chain}"))).is_ok());
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_yaml_like_text_makes_it_panic(text in "(agent|plan|nodes|tools|kind|id|[-:{}\\[\\],&*!|>'\"#% \n\t]|[a-z0-9.]){0,80}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_change_of_the_example_makes_it_panic(at in 0..REFUND.len(), length in 0usize..40, text in "\\PC{0,8}|[ \n:{}\\[\\]\"'&*-]{0,4}") {
        let from = (0..=at).rev().find(|at| REFUND.is_char_boundary(*at)).unwrap_or(0);
        let to = (from + length..=REFUND.len()).find(|at| REFUND.is_char_boundary(*at)).unwrap_or(REFUND.len());
        let _ = parse(&format!("{}{text}{}", &REFUND[..from], &REFUND[to..]));
    }

    #[test]
    fn every_mistake_has_a_line_of_the_file(cut in 0..REFUND.len()) {
        prop_assume!(REFUND.is_char_boundary(cut));
        let source = &REFUND[..cut];
        if let Err(errors) = parse(source) {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(error.line >= 1 && error.line as usize <= source.lines().count().max(1), "{}", error);
            }
        }
    }
}

#[test]
fn what_is_larger_or_deeper_than_is_accepted_is_refused() {
    let many: String =
        (0..=limits::AGENT_TOOLS_MAX).map(|n| format!("  t{n}: {{ kind: function, function: f }}\n")).collect();
    expect(&tools(&many), &["too_large tools 3"]);
    // Levels of the file: its own, and those of what is written in it.
    let nested = |levels: usize| format!("x: {}{}\n", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let deepest = refused(&nested(limits::JSON_DEPTH_MAX));
    assert!(deepest.iter().all(|error| error.code.as_str() != "too_large"), "{deepest:?}");
    let deeper = refused(&nested(limits::JSON_DEPTH_MAX + 1));
    assert!(deeper.iter().any(|error| error.code.as_str() == "too_large"), "{deeper:?}");
}

/// What is said wrong of judging, each at its place.
#[test]
fn mistakes_about_what_judges_an_output_are_named_where_they_are() {
    let critic = "    - { id: c, kind: critic, model: s/m, prompt: '{{ output }}' }\n";
    for (node, more, found) in [
        ("critic: d", critic, &["unknown_need plan.nodes[0].critic 4", "unreachable_node plan.nodes[1] 5"][..]),
        ("critic: b", "    - { id: b, kind: transform, output: 1 }\n", &["unknown_need plan.nodes[0].critic 4"]),
        ("critic: c, needs: [c]", critic, &["bad_value plan.nodes[0].needs[0] 4"]),
        ("when: 'nodes.c.output'", critic, &["bad_template plan.nodes[0].when 4", "unreachable_node plan.nodes[1] 5"]),
        ("max_refines: 2", "", &["bad_value plan.nodes[0].max_refines 4"]),
        ("refine_repeats_effect: true", "", &["bad_value plan.nodes[0].refine_repeats_effect 4"]),
        ("validate: {}, max_refines: 21", "", &["bad_value plan.nodes[0].max_refines 4"]),
        ("validate: { type: what }", "", &["bad_schema plan.nodes[0].validate.type 4"]),
        ("validate: {}, when: 'round == 0'", "", &["bad_template plan.nodes[0].when 4"]),
        (
            "critic: c",
            "    - { id: c, kind: critic, model: s/m, prompt: '{{ feedback }}' }\n",
            &["bad_template plan.nodes[1].prompt 5"],
        ),
        (
            "critic: c",
            "    - { id: c, kind: critic, model: s/m, prompt: '{{ nodes.a.output }}' }\n",
            &["bad_template plan.nodes[1].prompt 5"],
        ),
        (
            "critic: c",
            "    - { id: c, kind: critic, model: s/m, prompt: p, needs: [a], when: message, validate: {}, critic: c, on_failure: fail_safe }\n",
            &[
                "bad_value plan.nodes[1].needs 5",
                "bad_value plan.nodes[1].when 5",
                "bad_value plan.nodes[1].validate 5",
                "bad_value plan.nodes[1].critic 5",
                "bad_value plan.nodes[1].on_failure 5",
            ],
        ),
        ("critic: c", &format!("{critic}  answer: '{{{{ nodes.c.output }}}}'\n"), &["bad_template plan.answer 6"]),
    ] {
        let file = nodes(&format!("    - {{ id: a, kind: transform, output: 1, {node} }}\n{more}"));
        let errors = refused(&file);
        let told: Vec<String> =
            errors.iter().map(|error| format!("{} {} {}", error.code, error.path, error.line)).collect();
        let all = found.iter().all(|one| told.iter().any(|error| error == one));
        assert!(all && (told.len() == found.len()), "{node}: {told:?}");
    }
}

/// A call that must not be repeated is not made anew by a rejection, and neither is a whole map or a wait under one key.
#[test]
fn work_that_cannot_be_done_again_is_refused() {
    let file = |node: &str| {
        format!(
            "agent: a\nmodel: s/m\ntools: {{ t: {{ kind: function, function: f }}, i: {{ kind: function, function: f, effect: idempotent }} }}\n\
             plan:\n  nodes:\n    - {{ id: n, {node} }}\n    - {{ id: c, kind: critic, prompt: p }}\n    \
             - {{ id: z, kind: transform, output: 1, critic: c }}\n"
        )
    };
    for (node, said) in [
        ("kind: tool, tool: t, critic: c", "when its critic rejects its output: write `max_refines: 0`"),
        ("kind: tool, tool: t, validate: {}", "when `validate` rejects its output: write `max_refines: 0`"),
        ("kind: map, over: [], do: { kind: tool, tool: t, validate: {} }", "when `validate` rejects its output"),
        ("kind: map, over: [], validate: {}, do: { kind: transform, output: 1 }", "cannot be done again as a whole"),
        ("kind: wait, wait_type: signal, correlation_key: k, validate: {}", "add `{{ round }}` to it"),
        ("kind: wait, wait_type: signal, correlation_key: k, critic: c", "add `{{ round }}` to it"),
        ("kind: wait, wait_type: signal, correlation_key: 'k-{{ job.id }}', validate: {}", "add `{{ round }}` to it"),
    ] {
        let errors = refused(&file(node));
        assert!(errors.len() == 1 && errors[0].message.contains(said), "{node}: {errors:?}");
        let never = node
            .replace("validate: {}", "validate: {}, max_refines: 0")
            .replace("critic: c", "critic: c, max_refines: 0");
        assert!(aetheris_agentfile::parse(&file(&never)).is_ok(), "{never}");
    }
    for node in [
        "kind: tool, tool: t, critic: c, refine_repeats_effect: true",
        "kind: tool, tool: i, critic: c",
        "kind: wait, wait_type: signal, correlation_key: 'k{{ round }}', validate: {}",
        "kind: wait, wait_type: signal, correlation_key: '{{ uuid() }}', validate: {}",
    ] {
        assert!(aetheris_agentfile::parse(&file(node)).is_ok(), "{node}");
    }
}

/// What a map and its work say wrong, each at its place.
#[test]
fn mistakes_in_a_child_job_are_named_where_they_are() {
    let job = |more: &str| format!("    - {{ id: j, kind: job, {more} }}\n");
    for (more, found) in [
        ("message: 1", &["missing_key plan.nodes[0].agent 4"][..]),
        ("agent: Not a name", &["bad_name plan.nodes[0].agent 4"]),
        ("agent: '{{ nobody }}'", &["bad_template plan.nodes[0].agent 4"]),
        ("agent: b, message: '{{ nodes.x.output }}'", &["bad_template plan.nodes[0].message 4"]),
        ("agent: b, session: ''", &["bad_value plan.nodes[0].session 4"]),
        ("agent: b, deadline: soon", &["bad_duration plan.nodes[0].deadline 4"]),
        ("agent: b, wait: maybe", &["wrong_type plan.nodes[0].wait 4"]),
        ("agent: b, on_parent_end: stay", &["bad_value plan.nodes[0].on_parent_end 4"]),
        ("agent: b, retry: { max_attempts: 2 }", &["bad_value plan.nodes[0].retry 4"]),
        ("agent: b, timeout: 3s", &["bad_value plan.nodes[0].timeout 4"]),
        ("agent: b, tool: t", &["unknown_key plan.nodes[0].tool 4"]),
    ] {
        expect(&nodes(&job(more)), found);
    }
}

#[test]
fn mistakes_in_a_map_are_named_where_they_are() {
    let map = |more: &str| format!("    - {{ id: m, kind: map, {more} }}\n");
    for (more, found) in [
        ("do: { kind: transform, output: 1 }", &["missing_key plan.nodes[0].over 4"][..]),
        ("over: []", &["missing_key plan.nodes[0].do 4"]),
        ("over: x, do: { kind: transform, output: 1 }", &["bad_value plan.nodes[0].over 4"]),
        ("over: 3, do: { kind: transform, output: 1 }", &["bad_value plan.nodes[0].over 4"]),
        ("over: [], do: { kind: wait }", &["bad_value plan.nodes[0].do.kind 4"]),
        ("over: [], do: { kind: map }", &["bad_value plan.nodes[0].do.kind 4"]),
        ("over: [], do: { kind: job }", &["missing_key plan.nodes[0].do.agent 4"]),
        ("over: [], do: { kind: what }", &["bad_value plan.nodes[0].do.kind 4"]),
        ("over: [], do: { kind: tool, tool: none }", &["unknown_tool plan.nodes[0].do.tool 4"]),
        ("over: [], concurrency: 0, do: { kind: transform, output: 1 }", &["bad_value plan.nodes[0].concurrency 4"]),
        ("over: [], concurrency: 257, do: { kind: transform, output: 1 }", &["bad_value plan.nodes[0].concurrency 4"]),
        (
            "over: [], on_item_failure: skip, do: { kind: transform, output: 1 }",
            &["bad_value plan.nodes[0].on_item_failure 4"],
        ),
        ("over: [], retry: {}, do: { kind: transform, output: 1 }", &["bad_value plan.nodes[0].retry 4"]),
        ("over: [], timeout: 1s, do: { kind: transform, output: 1 }", &["bad_value plan.nodes[0].timeout 4"]),
        ("over: [], do: { kind: transform, output: 1, critic: c }", &["unknown_key plan.nodes[0].do.critic 4"]),
        (
            "over: [], do: { id: x, needs: [m], kind: transform, output: 1, join: all, on_failure: fail_safe }",
            &[
                "unknown_key plan.nodes[0].do.id 4",
                "unknown_key plan.nodes[0].do.needs 4",
                "unknown_key plan.nodes[0].do.join 4",
                "unknown_key plan.nodes[0].do.on_failure 4",
            ],
        ),
        ("over: [], as: message, do: { kind: transform, output: 1 }", &["bad_name plan.nodes[0].as 4"]),
        ("over: [], as: a-b, do: { kind: transform, output: 1 }", &["bad_name plan.nodes[0].as 4"]),
        ("over: [], as: \"1\", do: { kind: transform, output: 1 }", &["bad_name plan.nodes[0].as 4"]),
        ("over: [\"{{ item }}\"], do: { kind: transform, output: 1 }", &["bad_template plan.nodes[0].over[0] 4"]),
        ("over: [], when: item, do: { kind: transform, output: 1 }", &["bad_template plan.nodes[0].when 4"]),
        (
            "over: [], as: row, do: { kind: transform, output: \"{{ item }}\" }",
            &["bad_template plan.nodes[0].do.output 4"],
        ),
        (
            "over: [], do: { kind: transform, output: \"{{ nodes.m.output }}\" }",
            &["bad_template plan.nodes[0].do.output 4"],
        ),
        (
            "over: [], do: { kind: transform, output: 1, when: nodes.x.output }",
            &["bad_template plan.nodes[0].do.when 4"],
        ),
    ] {
        expect(&nodes(&map(more)), found);
    }
    // What is behind a map knows no item.
    let behind = map("over: [], do: { kind: transform, output: 1 }")
        + "    - { id: n, kind: transform, output: \"{{ item }}\" }\n";
    expect(&nodes(&behind), &["bad_template plan.nodes[1].output 5"]);
}

/// What is drawn of chance is recorded with a step: it is asked for in what a step does, and nowhere else.
#[test]
fn chance_is_asked_for_in_what_a_step_does() {
    for (node, found) in [
        ("{ id: n, kind: transform, output: 1, when: random() > 0.5 }", "bad_template plan.nodes[0].when 4"),
        (
            "{ id: n, kind: map, over: [\"{{ uuid() }}\"], do: { kind: transform, output: 1 } }",
            "bad_template plan.nodes[0].over[0] 4",
        ),
        (
            "{ id: n, kind: map, over: [], do: { kind: transform, output: 1, when: now() } }",
            "bad_template plan.nodes[0].do.when 4",
        ),
        (
            "{ id: n, kind: wait, wait_type: signal, correlation_key: k, reason: \"{{ now() }}\" }",
            "bad_template plan.nodes[0].reason 4",
        ),
        ("{ id: n, kind: transform, output: \"{{ uuid(1) }}\" }", "bad_template plan.nodes[0].output 4"),
    ] {
        expect(&nodes(&format!("    - {node}\n")), &[found]);
    }
    expect(
        "agent: a\nplan:\n  nodes: [{ id: n, kind: transform, output: 1 }]\n  answer: \"{{ uuid() }}\"\n",
        &["bad_template plan.answer 4"],
    );
    expect(
        "agent: a\ntools:\n  t: { kind: http, method: POST, url: \"http://x/{{ uuid() }}\", headers: { A: \"{{ now() }}\" }, body: \"{{ random() }}\" }\nplan:\n  nodes: [{ id: n, kind: tool, tool: t }]\n",
        &["bad_template tools.t.url 3", "bad_template tools.t.headers.A 3", "bad_template tools.t.body 3"],
    );
}

/// The failure of a node fails its job unless the node says otherwise: what waits for it would never run.
#[test]
fn what_waits_for_a_failure_that_fails_the_job_is_refused() {
    let plan = |rule: &str, when: &str| {
        nodes(&format!(
            "    - {{ id: health, kind: transform, output: 1{rule} }}\n    \
             - {{ id: back, kind: transform, needs: [health], when: '{when}', output: 1 }}\n"
        ))
    };
    for when in ["nodes.health.failed", "nodes[\"health\"].failed and message.sick"] {
        expect(&plan("", when), &["bad_template plan.nodes[1].when 5"]);
        parse(&plan(", on_failure: fail_safe", when)).unwrap();
        let told = refused(&plan("", when))[0].message.clone();
        assert!(told.contains("add `on_failure: fail_safe` to `health`"), "{told}");
    }
    // It may hold, or says nothing of a failure.
    for when in ["nodes.health.failed or message.sick", "not nodes.health.failed", "nodes.health.skipped"] {
        parse(&plan("", when)).unwrap();
    }
}
