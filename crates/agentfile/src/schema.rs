//! The published JSON Schema of agent files, for editors and other programs. It says what [`crate::parse`]
//! says about form; what needs the whole file (needs, references, circles) only `parse` can say.

use aetheris_core::limits;
use serde_json::{Map, Value, json};

use crate::nodes::KIND_NAMES;
use crate::planner::KINDS_DEFAULT;
use crate::tools::{RESERVED, RESERVED_BEGINNING};

/// The JSON Schema (draft 2020-12) of agent files, as far as this build executes them.
#[must_use]
pub fn json_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Aetheris agent file",
        "type": "object",
        "additionalProperties": false,
        "required": ["agent"],
        "properties": {
            "agent": { "type": "string", "pattern": "^[a-z0-9-]{1,64}$", "description": "The agent's name." },
            "version": {
                "type": "string", "minLength": 1, "maxLength": limits::NAME_BYTES_MAX, "default": "1",
                "description": "The author's name of this version."
            },
            "description": { "type": "string", "description": "What the agent is for." },
            "message_schema": reference("schema", "The JSON Schema of messages."),
            "planner": { "enum": ["static", "llm", "rules"], "default": "static", "description": "Who makes the plan of a job." },
            "ownership": { "enum": ["job"], "default": "job", "description": "What a worker owns." },
            "model": reference("model", "The model of llm nodes without their own."),
            "max_parallel_steps": {
                "type": "integer", "minimum": 0, "maximum": limits::PARALLEL_STEPS_MAX,
                "description": "How many steps of a job run at once, of those that are ready together; 0 or 1: one at a time. Absent: what the server says."
            },
            "step_timeout": reference("duration", "The time one try of a step may take."),
            "deadline": reference("duration", "The time a whole job may take."),
            "retry": reference("retry", "The retry policy of nodes without their own."),
            "budget": reference("budget", "What one job may use up."),
            "tools": {
                "type": "object",
                "maxProperties": limits::AGENT_TOOLS_MAX,
                "propertyNames": { "pattern": "^[A-Za-z0-9_.-]{1,64}$" },
                "additionalProperties": reference("tool", "A tool by its name.")
            },
            "plan": reference("plan", "The graph of steps, of the static planner."),
            "planning": planning(),
            "rules": {
                "description": "Graphs of steps: the plan is that of the first rule whose condition holds for the message.",
                "type": "array", "minItems": 1, "maxItems": limits::RULES_MAX,
                "items": object(&["plan"], with(&json!({ "when": { "$ref": "#/$defs/condition" } }), &json!({ "plan": { "$ref": "#/$defs/plan" } })))
            }
        },
        "allOf": [planner("llm", "planning"), planner("rules", "rules"), {
            "if": { "not": { "required": ["planner"], "properties": { "planner": { "enum": ["llm", "rules"] } } } },
            "then": { "required": ["plan"] },
            "else": { "properties": { "plan": false } }
        }],
        "$defs": definitions(None)
    })
}

/// The JSON Schema (draft 2020-12) of a plan as it stands in an agent file, with nodes of these kinds only.
#[must_use]
pub fn plan_schema(kinds: Option<&[String]>) -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Aetheris plan",
        "$ref": "#/$defs/plan",
        "$defs": definitions(kinds)
    });
    if kinds.is_some() {
        forget(&mut schema, "refine_repeats_effect");
    }
    if let Some(definitions) = schema["$defs"].as_object_mut() {
        for of_agents in ["tool", "onInDoubt", "budget"] {
            definitions.remove(of_agents);
        }
    }
    schema
}

/// Takes a key out of all objects of a schema.
fn forget(schema: &mut Value, key: &str) {
    match schema {
        Value::Object(entries) => {
            entries.remove(key);
            entries.values_mut().for_each(|value| forget(value, key));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| forget(item, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A planner has its own key, and no other has that.
fn planner(name: &str, key: &str) -> Value {
    json!({
        "if": { "required": ["planner"], "properties": { "planner": { "const": name } } },
        "then": { "required": [key] },
        "else": { "properties": { key: false } }
    })
}

fn planning() -> Value {
    let own = json!({
        "prompt": reference("template", "What is to be planned. It may name `message` and `job`."),
        "model": reference("model", "The model that makes plans; the agent's when absent."),
        "max_attempts": {
            "description": "Plans that are asked for at most.",
            "type": "integer", "minimum": 1, "maximum": limits::PLAN_ATTEMPTS_MAX, "default": limits::PLAN_ATTEMPTS_DEFAULT
        },
        "max_nodes": { "description": "Nodes that a plan may have.", "type": "integer", "minimum": 1, "maximum": limits::PLAN_NODES_MAX, "default": limits::PLANNED_NODES_DEFAULT },
        "kinds": {
            "description": "The kinds of nodes that a plan may have.",
            "type": "array", "minItems": 1, "items": { "enum": KIND_NAMES }, "default": KINDS_DEFAULT
        },
        "plan_review": { "description": "Whether a person approves the plan before anything of it runs.", "enum": ["none", "human"], "default": "none" }
    });
    object(&["prompt"], with(&json!({}), &own))
}

fn reference(name: &str, description: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}"), "description": description })
}

fn definitions(kinds: Option<&[String]>) -> Value {
    let of = |all: Vec<Value>| -> Vec<Value> {
        let may = |node: &Value| {
            kinds.is_none_or(|kinds| kinds.iter().any(|kind| node["properties"]["kind"]["const"] == kind.as_str()))
        };
        all.into_iter().filter(may).collect()
    };
    json!({
        "duration": { "type": "string", "pattern": "^\\s*[0-9]+(us|ms|s|m|h|d)\\s*$", "examples": ["250ms", "30s", "5m", "24h", "7d"] },
        "id": { "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" },
        "toolName": { "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$" },
        "model": { "type": "string", "pattern": "^[^/\\s]+/\\S+$", "description": "provider/model" },
        "template": { "type": "string", "description": "A text in which {{ … }} is replaced." },
        "templates": { "description": "Any value; its texts are templates. A text that is one {{ … }} keeps the value's type." },
        "schema": {
            "type": ["object", "boolean"],
            "description": "A JSON Schema, draft 2020-12, without references to anything outside of it."
        },
        "condition": { "type": "string", "minLength": 1, "description": "An expression, without {{ }}." },
        "retry": retry(),
        "budget": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "max_tokens": { "type": "integer", "minimum": 0 },
                "max_tool_calls": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                "on_exceeded": { "enum": ["fail"], "default": "fail" }
            }
        },
        "tool": { "oneOf": [http_tool(), function_tool(), human_tool()] },
        "onInDoubt": on_in_doubt(),
        "plan": {
            "type": "object",
            "additionalProperties": false,
            "required": ["nodes"],
            "properties": {
                "nodes": { "type": "array", "minItems": 1, "maxItems": limits::PLAN_NODES_MAX, "items": { "$ref": "#/$defs/node" } },
                "answer": reference("templates", "The job's result; the output of the last node when absent.")
            }
        },
        "node": { "oneOf": of(nodes(of(items()))) }
    })
}

fn retry() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "max_attempts": { "type": "integer", "minimum": 1, "maximum": limits::RETRY_ATTEMPTS_MAX, "default": 3 },
            "backoff": { "$ref": "#/$defs/duration", "default": "200ms" },
            "factor": { "type": "number", "minimum": 1, "maximum": 1000, "default": 2 },
            "max_backoff": { "$ref": "#/$defs/duration", "default": "30s" },
            "jitter": { "enum": ["full", "none"], "default": "full" },
            "on_timeout": { "enum": ["retry", "fail"], "default": "retry" }
        }
    })
}

/// A closed object: `required` keys, and the keys it may have.
fn object(required: &[&str], properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
}

fn with(common: &Value, own: &Value) -> Map<String, Value> {
    [common, own]
        .into_iter()
        .filter_map(Value::as_object)
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// What models are told of a tool, and its version.
fn of_every_tool() -> Value {
    json!({
        "description": { "type": "string", "maxLength": limits::TOOL_DESCRIPTION_BYTES_MAX, "description": "What models are told of it." },
        "input_schema": {
            "type": "object", "properties": { "type": { "const": "object" } },
            "description": "The JSON Schema of the input that a model may give it."
        },
        "version": { "type": "string" }
    })
}

fn human_tool() -> Value {
    let own = json!({
        "kind": { "const": "human" },
        "question": reference("template", "What the person is asked. It may name `input` and `job`."),
        "deadline": reference("duration", "How long the question stays open."),
        "schema": reference("schema", "What the answer must be.")
    });
    object(&["kind", "question"], with(&of_every_tool(), &own))
}

fn tool_common() -> Value {
    let own = json!({
        "effect": { "enum": ["pure", "idempotent", "at_most_once"], "default": "at_most_once" },
        "timeout": { "$ref": "#/$defs/duration" },
        "on_in_doubt": { "$ref": "#/$defs/onInDoubt" },
        "output_schema": reference("schema", "What an answer must be: one that does not fit fails the step, and the effect stays."),
        "refuses": { "type": "boolean", "default": false, "description": "Asked about a call, it refuses every later one with that key and that or an earlier permit. For a pure tool that is no GET." }
    });
    Value::Object(with(&of_every_tool(), &own))
}

fn http_tool() -> Value {
    let own = json!({
        "kind": { "const": "http" },
        "method": { "enum": ["GET", "POST", "PUT", "PATCH", "DELETE"] },
        "url": { "type": "string", "pattern": "^([hH][tT][tT][pP][sS]?://.|[hH]?[tT]{0,2}[pP]?[sS]?:?/{0,2}\\{[{%#])" },
        "headers": {
            "type": "object",
            "propertyNames": { "not": { "pattern": reserved_headers() } },
            "additionalProperties": { "$ref": "#/$defs/template" }
        },
        "body": { "$ref": "#/$defs/templates" },
        "refused_statuses": { "type": "array", "items": { "type": "integer", "minimum": 400, "maximum": 499, "not": { "enum": [408, 425, 429] } } }
    });
    let mut tool = object(&["kind", "method", "url"], with(&tool_common(), &own));
    tool["allOf"] = json!([
        { "if": { "properties": { "method": { "const": "GET" } } }, "then": { "properties": { "body": false } } },
        {
            "if": { "required": ["effect"], "properties": { "effect": { "enum": ["pure", "idempotent"] } } },
            "then": { "properties": { "refused_statuses": false } }
        }
    ]);
    tool
}

/// The names of headers that a tool must not set, in upper and lower case: patterns of JSON Schema have no switch for it.
fn reserved_headers() -> String {
    let any_case = |name: &str| -> String {
        let letter = |c: char| {
            if c.is_ascii_lowercase() { format!("[{c}{}]", c.to_ascii_uppercase()) } else { c.to_string() }
        };
        name.chars().map(letter).collect()
    };
    let whole: Vec<String> = RESERVED.into_iter().map(any_case).collect();
    format!("^(({})$|{})", whole.join("|"), any_case(RESERVED_BEGINNING))
}

fn function_tool() -> Value {
    let own = json!({ "kind": { "const": "function" }, "function": { "$ref": "#/$defs/toolName" } });
    object(&["kind", "function"], with(&tool_common(), &own))
}

fn on_in_doubt() -> Value {
    let step = |key: &str, of: &str| {
        json!({
            "type": "object", "additionalProperties": false, "required": [key],
            "properties": { key: { "$ref": format!("#/$defs/{of}") } }
        })
    };
    let reconcile = json!({
        "type": "object", "additionalProperties": false, "required": ["reconcile"],
        "properties": {
            "reconcile": { "$ref": "#/$defs/toolName" },
            "settle": { "$ref": "#/$defs/duration", "default": "60s" }
        }
    });
    json!({
        "description": "What is done when a call's outcome is unknown: fail, human, or a list tried in order.",
        "default": "human",
        "oneOf": [
            { "enum": ["fail", "human"] },
            {
                "type": "array", "minItems": 1,
                "items": { "oneOf": [{ "enum": ["fail", "human"] }, step("wait", "duration"), reconcile] }
            }
        ]
    })
}

fn nodes(items: Vec<Value>) -> Vec<Value> {
    let common = json!({
        "id": { "$ref": "#/$defs/id" },
        "needs": { "type": "array", "uniqueItems": true, "items": { "$ref": "#/$defs/id" } },
        "when": { "$ref": "#/$defs/condition" },
        "join": {
            "description": "How many of `needs` the node waits for: all to end, or one or so many to complete.",
            "default": "all",
            "oneOf": [
                { "enum": ["all", "any"] },
                {
                    "type": "object", "additionalProperties": false, "required": ["quorum"],
                    "properties": { "quorum": { "type": "integer", "minimum": 1, "maximum": u32::MAX } }
                }
            ]
        },
        "on_failure": {
            "description": "What follows when the node fails: the job fails, or the nodes behind it run and see that it has.",
            "enum": ["fail_fast", "fail_safe"], "default": "fail_fast"
        },
        "timeout": { "$ref": "#/$defs/duration" },
        "retry": { "$ref": "#/$defs/retry" },
        "critic": { "$ref": "#/$defs/id" },
        "validate": { "$ref": "#/$defs/schema" },
        "max_refines": max_refines(),
        "refine_repeats_effect": { "type": "boolean", "default": false }
    });
    let node = |kind: &str, required: &[&str], own: Value| {
        let required: Vec<&str> = ["id", "kind"].iter().chain(required).copied().collect();
        let mut properties = with(&common, &own);
        properties.insert("kind".to_owned(), json!({ "const": kind }));
        object(&required, properties)
    };
    vec![
        node(
            "tool",
            &["tool"],
            json!({ "tool": { "$ref": "#/$defs/toolName" }, "input": { "$ref": "#/$defs/templates" } }),
        ),
        node("llm", &["prompt"], llm()),
        node("agent", &["prompt"], agent()),
        job(&common),
        node("wait", &["wait_type"], wait()),
        node("sleep", &["duration"], json!({ "duration": { "$ref": "#/$defs/duration" } })),
        node("condition", &["when"], json!({})),
        node("transform", &["output"], json!({ "output": { "$ref": "#/$defs/templates" } })),
        map(&common, items),
        critic(),
    ]
}

fn max_refines() -> Value {
    json!({
        "description": "How often the work is done again after its output was rejected.",
        "type": "integer", "minimum": 0, "maximum": limits::REFINES_MAX, "default": limits::REFINES_DEFAULT
    })
}

/// A critic is asked about the outputs of others.
fn critic() -> Value {
    let mut own = llm();
    if let Some(own) = own.as_object_mut() {
        own.remove("format");
        own.remove("schema");
    }
    let common = json!({
        "id": { "$ref": "#/$defs/id" },
        "kind": { "const": "critic" },
        "timeout": { "$ref": "#/$defs/duration" },
        "retry": { "$ref": "#/$defs/retry" }
    });
    object(&["id", "kind", "prompt"], with(&common, &own))
}

/// A map has neither tries nor a timeout of its own.
fn map(common: &Value, items: Vec<Value>) -> Value {
    let own = json!({
        "kind": { "const": "map" },
        "over": {
            "description": "The list: a template of one, or a list whose texts are templates.",
            "oneOf": [
                { "type": "string", "pattern": "\\{[{%#]" },
                { "type": "array", "maxItems": limits::MAP_ITEMS_MAX }
            ]
        },
        "as": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": limits::NAME_BYTES_MAX, "default": "item" },
        "concurrency": { "type": "integer", "minimum": 1, "maximum": limits::PARALLEL_STEPS_MAX, "default": 1 },
        "on_item_failure": {
            "description": "What follows when the work for an item fails: the map fails, or its place in the list tells it.",
            "enum": ["stop", "collect"], "default": "stop"
        },
        "do": { "description": "What is done for each item.", "oneOf": items }
    });
    let mut properties = with(common, &own);
    properties.retain(|key, _| key != "retry" && key != "timeout");
    object(&["id", "kind", "over", "do"], properties)
}

fn items() -> Vec<Value> {
    let common = json!({
        "when": { "$ref": "#/$defs/condition" },
        "timeout": { "$ref": "#/$defs/duration" },
        "retry": { "$ref": "#/$defs/retry" },
        "validate": { "$ref": "#/$defs/schema" },
        "max_refines": max_refines(),
        "refine_repeats_effect": { "type": "boolean", "default": false }
    });
    let work = |kind: &str, required: &str, own: Value| {
        let mut properties = with(&common, &own);
        properties.insert("kind".to_owned(), json!({ "const": kind }));
        object(&["kind", required], properties)
    };
    let templates = json!({ "$ref": "#/$defs/templates" });
    vec![
        work("tool", "tool", json!({ "tool": { "$ref": "#/$defs/toolName" }, "input": templates })),
        work("llm", "prompt", llm()),
        work("agent", "prompt", agent()),
        work("transform", "output", json!({ "output": templates })),
        {
            let mut properties = with(&common, &child());
            properties.insert("kind".to_owned(), json!({ "const": "job" }));
            properties.retain(|key, _| key != "retry" && key != "timeout");
            object(&["kind", "agent"], properties)
        },
    ]
}

/// A child is created once: it has neither tries nor a timeout.
fn job(common: &Value) -> Value {
    let mut properties = with(common, &child());
    properties.insert("kind".to_owned(), json!({ "const": "job" }));
    properties.retain(|key, _| key != "retry" && key != "timeout");
    object(&["id", "kind", "agent"], properties)
}

fn child() -> Value {
    json!({
        "agent": {
            "description": "The agent that gets the message: its name, or a template of one.",
            "oneOf": [{ "type": "string", "pattern": "\\{[{%#]" }, { "type": "string", "pattern": "^[a-z0-9-]{1,64}$" }]
        },
        "message": { "$ref": "#/$defs/templates" },
        "session": { "type": "string", "minLength": 1 },
        "wait": { "description": "Whether the node waits for the child's end.", "type": "boolean", "default": true },
        "on_parent_end": {
            "description": "What becomes of the child when this job ends; `cancel` by default if it is waited for, else `leave`.",
            "enum": ["cancel", "leave"]
        },
        "deadline": { "$ref": "#/$defs/duration" }
    })
}

fn llm() -> Value {
    json!({
        "prompt": { "$ref": "#/$defs/template" },
        "system": { "$ref": "#/$defs/template" },
        "model": { "$ref": "#/$defs/model" },
        "temperature": { "type": "number", "minimum": 0, "maximum": 2 },
        "max_tokens": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
        "format": { "enum": ["text", "json"], "default": "text" },
        "schema": reference("schema", "What the answer must be, which is JSON then.")
    })
}

/// A model that asks for tools by turns.
fn agent() -> Value {
    json!({
        "prompt": { "$ref": "#/$defs/template" },
        "system": { "$ref": "#/$defs/template" },
        "model": { "$ref": "#/$defs/model" },
        "tools": { "type": "array", "uniqueItems": true, "items": { "$ref": "#/$defs/toolName" }, "description": "The tools that the model may call." },
        "max_turns": { "type": "integer", "minimum": 1, "maximum": limits::LOOP_TURNS_MAX, "default": limits::LOOP_TURNS_DEFAULT },
        "parallel_tool_calls": {
            "description": "How many calls of one turn run at once.",
            "type": "integer", "minimum": 1, "maximum": limits::TURN_CALLS_MAX, "default": 1
        },
        "max_tokens": { "type": "integer", "minimum": 1, "description": "Once the loop has used so many tokens, no further turn begins." },
        "max_answer_tokens": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
        "schema": reference("schema", "What the final answer must be, which is JSON then."),
        "on_limit": {
            "description": "What follows when turns or tokens are used up: the node fails, or the model is asked for its final answer.",
            "enum": ["fail", "answer"], "default": "fail"
        }
    })
}

fn wait() -> Value {
    json!({
        "wait_type": { "enum": ["signal", "human", "webhook", "timer"] },
        "correlation_key": { "$ref": "#/$defs/template" },
        "park": { "type": "boolean", "default": false },
        "deadline": { "$ref": "#/$defs/duration" },
        "on_deadline": {
            "oneOf": [
                { "const": "fail" },
                { "type": "object", "additionalProperties": false, "required": ["continue_with"], "properties": { "continue_with": true } }
            ]
        },
        "reason": { "$ref": "#/$defs/template" },
        "schema": { "$ref": "#/$defs/schema" }
    })
}
