//! Answers as a server gives them.

use serde_json::{Value, json};

pub(super) const JOB: &str = "job_01JD0000000000000000000001";

pub(super) const KEY: &str = "key_01JD0000000000000000000009";

pub(super) fn hash(digit: char) -> String {
    digit.to_string().repeat(64)
}

pub(super) fn job(status: &str) -> Value {
    json!({
        "id": JOB, "agent": "refund", "agent_version": "1", "session_id": null, "status": status, "epoch": 2,
        "attempt_id": null, "worker": null, "lease_until": null, "message": { "order_id": "A-1" }, "result": null,
        "error": null, "waiting": null, "seq": 4, "of_a_later_server": true,
        "steps": {
            "approval": { "status": "pending", "attempt": 0, "started_at": null, "finished_at": null },
            "query_order": {
                "status": "completed", "attempt": 1,
                "started_at": "2026-11-21T09:30:00Z", "finished_at": "2026-11-21T09:30:00.0125Z",
            },
        },
        "usage": { "tokens": 0, "tool_calls": 1 },
        "created_at": "2026-11-21T09:30:00Z", "updated_at": "2026-11-21T09:30:01Z",
    })
}

/// A job with fields changed.
pub(super) fn job_with(status: &str, fields: Value) -> Value {
    let mut job = job(status);
    for (name, value) in fields.as_object().unwrap() {
        job[name] = value.clone();
    }
    job
}

pub(super) fn waiting() -> Value {
    json!({
        "correlation_key": "approve it", "deadline": "2026-11-22T09:30:00Z", "doubt": false, "node_id": "approval",
        "reason": "a refund of 20 EUR", "since": "2026-11-21T09:30:01Z", "wait_type": "human",
    })
}

pub(super) fn event(seq: u64, kind: &str, payload: &Value) -> Value {
    json!({
        "seq": seq, "type": kind, "epoch": 1, "generation": 1, "at": "2026-11-21T09:30:00.5Z", "payload": payload,
        "hash": hash('a'), "payload_hash": hash('b'), "schema_version": 1, "id": "ev_01JD0000000000000000000002",
    })
}

pub(super) fn sse(event: &Value) -> String {
    format!("id: {}\nevent: {}\ndata: {event}\n\n", event["seq"], event["type"].as_str().unwrap())
}

pub(super) fn step(node: &str, kind: &str, status: &str) -> Value {
    json!({
        "attempts": [], "doubts": [], "ended_by": null, "error": null, "finished_at": null, "kind": kind, "model": null,
        "needs": [], "node_id": node, "result": null, "skipped": null, "source": null, "started_at": null,
        "status": status, "tool": null,
    })
}

pub(super) fn trace(steps: Vec<Value>) -> Value {
    json!({
        "agent": "refund", "agent_version": "1", "created_at": "2026-11-21T09:30:00Z", "error": null, "evidence": [],
        "job_id": JOB, "plan_hash": hash('c'), "session_id": null, "status": "completed", "steps": steps,
        "updated_at": "2026-11-21T09:30:09Z", "usage": { "tokens": 0, "tool_calls": 1 },
        "runs": [{
            "attempt_id": "att_01JD0000000000000000000003", "claimed_at": "2026-11-21T09:30:00Z", "epoch": 1,
            "ended_at": "2026-11-21T09:30:04Z", "ended_by": "job_requeued: holder_died", "worker": "w-1",
        }],
    })
}

pub(super) fn problem(code: &str, status: u16, detail: &str) -> Value {
    json!({ "type": format!("urn:aetheris:problem:{code}"), "title": "No", "status": status, "detail": detail, "code": code })
}

/// A call that the end of its job left unresolved.
pub(super) fn unresolved() -> Value {
    json!({
        "accepted_from": "2026-11-21T09:31:12Z", "agent": "refund", "deadline": "2026-11-21T09:30:12Z",
        "effect": "at_most_once", "evidence": [], "invocation": KEY, "job_id": JOB, "job_status": "failed",
        "node_id": "pay", "permit": 1, "policy": "fail", "reason": "timeout", "sent_permit": "1.1",
        "since": "2026-11-21T09:30:00Z", "status": "failed_unresolved", "tool": "payments.refund", "waiting": null,
    })
}
