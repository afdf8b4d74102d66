//! The OpenAPI document: checked in, and the same list as the router's.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::bed::Bed;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

#[test]
#[expect(clippy::disallowed_methods, reason = "renewing the file is asked for by hand")]
fn the_checked_in_document_is_the_servers() {
    let now = aetheris_server::openapi();
    if std::env::var("AETHERIS_BLESS").is_ok_and(|yes| yes == "1") {
        std::fs::write(FILE, &now).unwrap();
    }
    let checked_in = std::fs::read_to_string(FILE).unwrap_or_default();
    let line = now.lines().zip(checked_in.lines()).position(|(a, b)| a != b);
    assert!(
        now == checked_in,
        "crates/server/openapi.json differs from the code, first at line {line:?}; read the difference and renew it: \
         AETHERIS_BLESS=1 cargo nextest run -p aetheris-server the_checked_in_document"
    );
}

#[tokio::test]
async fn every_documented_call_exists_and_says_all_that_it_answers() {
    let bed = Bed::with_agents().await;
    let served = bed.get("/api/openapi.json").await;
    let document = served.is(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut calls = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let concrete = path.replace("{agent}", "approve").replace("{id}", "job_x").replace("{invocation}", "key_x");
            let reply = bed.call(&method.to_uppercase(), &concrete, "").await;
            let code = reply.body["code"].as_str().unwrap_or_default();
            assert!(!["not_found", "method_not_allowed"].contains(&code), "{method} {path}: {}", reply.text);
            let answers = operation["responses"].as_object().unwrap();
            assert!(answers.contains_key(reply.status.as_str()), "{method} {path} answers {}", reply.status);
            assert!(operation["operationId"].is_string() && operation["summary"].is_string(), "{method} {path}");
            calls.insert(format!("{method} {path}"));
        }
    }
    let expected = [
        "delete /api/agents/{agent}",
        "get /api/agents",
        "get /api/agents/{agent}",
        "get /api/in-doubt",
        "get /api/jobs",
        "get /api/jobs/{id}",
        "get /api/jobs/{id}/children",
        "get /api/jobs/{id}/events",
        "get /api/jobs/{id}/events/stream",
        "get /api/jobs/{id}/replay",
        "get /api/jobs/{id}/steps",
        "get /api/jobs/{id}/trace",
        "get /api/jobs/{id}/verify",
        "get /api/jobs/{id}/why",
        "get /api/openapi.json",
        "get /api/schema/agent",
        "get /api/schema/plan",
        "get /api/waits",
        "get /livez",
        "get /readyz",
        "post /api/agents/{agent}/message",
        "post /api/jobs/{id}/cancel",
        "post /api/jobs/{id}/in-doubt/{invocation}",
        "post /api/jobs/{id}/pause",
        "post /api/jobs/{id}/resume",
        "post /api/jobs/{id}/signal",
        "put /api/agents/{agent}",
    ];
    assert_eq!(calls, expected.map(str::to_owned).into());
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    let document: Value = serde_json::from_str(&aetheris_server::openapi()).unwrap();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 40);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let codes = document["components"]["schemas"]["ErrorCode"]["oneOf"].as_array();
    let codes = codes.or_else(|| document["components"]["schemas"]["ErrorCode"]["enum"].as_array()).unwrap();
    assert_eq!(codes.len(), aetheris_api::ErrorCode::ALL.len());
    let message = &document["components"]["schemas"]["MessageRequest"];
    assert_eq!(message["additionalProperties"], false);
    assert_eq!(message["required"], serde_json::json!(["message"]));
}

fn collect(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            into.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|value| collect(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
