//! Events, one line each.

use aetheris_api::EventView;
use aetheris_core::time::{Span, Timestamp};
use serde_json::Value;

use super::safe::one_line;
use super::{Style, Tone, cut, json_line, span};

/// Columns before what an event says.
const BEFORE: usize = 46;
/// Columns before it where it has a line of its own.
const INDENT: usize = 7;
/// Fewest columns for it on the line of its event.
const SUMMARY_MIN: usize = 30;

/// One event: its place, its time, its kind, and what it says in short, which has a line of its own where
/// the terminal is narrow.
#[must_use]
pub fn line(event: &EventView, style: Style) -> String {
    let kind = format!("{:<24}", one_line(&event.kind));
    let summary = summary(&event.kind, event.payload.text());
    let summary = match style.columns {
        None => format!(" {summary}"),
        Some(columns) if columns >= BEFORE + SUMMARY_MIN => format!(" {}", cut(&summary, columns - BEFORE)),
        Some(_) if summary.is_empty() => String::new(),
        Some(_) => format!("\n{}{}", " ".repeat(INDENT), style.fit(&summary, INDENT)),
    };
    let text = format!(
        "{:>5}  {}  {}",
        event.seq,
        style.paint(Tone::Dim, &time(event.at)),
        tone(&event.kind).map_or_else(|| kind.clone(), |tone| style.paint(tone, &kind)),
    );
    format!("{text}{summary}").trim_end().to_owned()
}

/// The time of day to the millisecond, in UTC.
fn time(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(11..23).map_or(text.clone(), str::to_owned)
}

fn tone(kind: &str) -> Option<Tone> {
    match kind {
        "job_completed" => Some(Tone::Good),
        "job_failed" => Some(Tone::Bad),
        "signal_refused"
        | "step_in_doubt"
        | "job_waiting"
        | "job_cancel_requested"
        | "job_pause_requested"
        | "job_paused"
        | "node_retry_scheduled" => Some(Tone::Attention),
        "job_cancelled" => Some(Tone::Dim),
        _ => None,
    }
}

/// What an event says in short; for kinds that this program does not know, its payload.
#[must_use]
pub fn summary(kind: &str, payload: &str) -> String {
    let Ok(payload) = serde_json::from_str::<Value>(payload) else { return one_line(payload) };
    let words = Words(&payload);
    let text = match kind {
        "job_created" => words.join(&["agent", "agent_version", "message"]),
        "plan_generated" => format!("version {} by {}", words.get("plan_version"), words.get("planner")),
        "job_claimed" => format!("by {}", words.get("worker")),
        "job_requeued" => format!("{}{}", words.get("reason"), words.after(", not before ")),
        "job_waiting" if payload.get("doubt").is_some() => format!("{} is in doubt", words.get("node")),
        "job_waiting" => words.join(&["node", "wait_type", "correlation_key", "reason"]),
        "wait_completed" => wait_completed(&payload, &words),
        "signal_refused" => format!("{} {}", words.join(&["node", "correlation_key"]), violations(&payload)),
        "job_cancel_requested" => words.get("cause"),
        "job_completed" => answer(&payload),
        "job_failed" => words.join(&["node", "error"]),
        "job_cancelled" | "job_pause_requested" | "job_resumed" => String::new(),
        "job_paused" => words.get("reason"),
        "node_started" if payload["try"] == 1 => words.get("node"),
        "node_started" => format!("{} try {}", words.get("node"), words.get("try")),
        "node_finished" => words.join(&["node", "result", "verdict", "output", "error"]),
        "node_retry_scheduled" => format!("{}{}", words.join(&["node", "error"]), words.after(" · again after ")),
        "node_skipped" => words.join(&["node", "reason"]),
        "node_refining" => {
            format!("{} round {}: {}", words.get("node"), words.get("round"), words.join(&["by", "feedback"]))
        }
        "child_started" => words.join(&["node", "agent", "child", "message"]),
        "child_ended" => child_ended(&payload, &words),
        "value_recorded" => format!("{} {}", words.get("node"), payload["values"]),
        "tool_invocation_started" => format!("{} permit {}", words.join(&["node", "tool"]), words.get("permit")),
        "tool_invocation_finished" => words.join(&["node", "outcome", "source", "error"]),
        "command_committed" => words.get("node"),
        "timer_set" => format!("{}{}", words.get("timer"), words.after(" due after ")),
        "timer_fired" => words.get("timer"),
        "step_in_doubt" => words.join(&["node", "reason"]),
        "in_doubt_resolved" => format!("{} by {}", words.join(&["node", "outcome", "note"]), words.get("by")),
        _ => payload.to_string(),
    };
    one_line(&text)
}

/// The first thing by which a payload does not fit, and how many more there are.
fn violations(payload: &Value) -> String {
    let all = payload["violations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let said = |violation: &Value| {
        let text = |key: &str| violation[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("path"), text("message")).trim_start().to_owned()
    };
    match all {
        [] => "does not fit the schema".to_owned(),
        [one] => said(one),
        [first, more @ ..] => format!("{} (and {} more)", said(first), more.len()),
    }
}

fn wait_completed(payload: &Value, words: &Words<'_>) -> String {
    match payload["by"].get("signal") {
        Some(signal) => format!("{} by a signal: {}", words.get("node"), json_line(&signal["payload"])),
        None if payload["by"] == "dropped" => {
            format!("{} withdrawn: nobody needs the answer any more", words.get("node"))
        }
        None => format!("{} by time", words.get("node")),
    }
}

fn child_ended(payload: &Value, words: &Words<'_>) -> String {
    let outcome = &payload["outcome"];
    let said = match (outcome.get("completed"), outcome.get("failed")) {
        (Some(completed), _) => format!("completed: {}", json_line(&completed["result"])),
        (None, Some(failed)) => format!("failed: {}", Words(failed).get("error")),
        (None, None) => "was cancelled".to_owned(),
    };
    format!("{} {said}", words.join(&["node", "child"]))
}

fn answer(payload: &Value) -> String {
    let answer = &payload["answer"];
    match answer.get("node") {
        Some(node) => format!("the output of {}", json_line(node)),
        None => json_line(answer.get("value").unwrap_or(&Value::Null)),
    }
}

struct Words<'p>(&'p Value);

impl Words<'_> {
    fn get(&self, key: &str) -> String {
        match self.0.get(key) {
            None => String::new(),
            Some(Value::Object(error)) if error.contains_key("code") => {
                let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
                format!("{}: {}", text("code"), text("message"))
            }
            Some(value) => json_line(value),
        }
    }

    fn join(&self, keys: &[&str]) -> String {
        keys.iter().map(|key| self.get(key)).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn after(&self, before: &str) -> String {
        let after = self.0.get("after_us").and_then(Value::as_u64);
        after.map(|us| format!("{before}{}", span(Span::from_micros(us)))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::EventKind;

    use super::*;

    #[test]
    fn the_glossary_names_every_event() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/glossary.md");
        let page = std::fs::read_to_string(page).unwrap();
        let events = page.split_once("## Events").unwrap().1;
        let kinds: Vec<EventKind> = (1..).map_while(EventKind::from_code).collect();
        assert!(kinds.len() >= 25, "{kinds:?}");
        for kind in kinds {
            assert!(
                events.contains(&format!("`{}`", kind.as_str())),
                "docs/glossary.md does not name {}",
                kind.as_str()
            );
        }
    }

    #[test]
    fn what_events_say_in_short() {
        let expected = [
            (
                "job_created",
                r#"{"agent":"refund","agent_version":"1","message":{"order_id":"A-1"}}"#,
                r#"refund 1 {"order_id":"A-1"}"#,
            ),
            ("job_requeued", r#"{"reason":"retry","after_us":1500000}"#, "retry, not before 1.50s"),
            (
                "job_waiting",
                r#"{"node":"approval","wait_type":"human","correlation_key":"k-1","park":true}"#,
                "approval human k-1",
            ),
            ("job_waiting", r#"{"node":"pay","wait_type":"signal","doubt":true}"#, "pay is in doubt"),
            (
                "wait_completed",
                r#"{"node":"approval","by":{"signal":{"payload":{"approved":true},"signal":"sig_1"}}}"#,
                r#"approval by a signal: {"approved":true}"#,
            ),
            ("wait_completed", r#"{"node":"nap","by":"time"}"#, "nap by time"),
            (
                "signal_refused",
                r#"{"node":"approval","correlation_key":"k-1","violations":[{"path":"/approved","message":"is no boolean"},{"path":"","message":"x"}]}"#,
                "approval k-1 /approved is no boolean (and 1 more)",
            ),
            (
                "child_started",
                r#"{"node":"ask","agent":"refund","child":"job_1","message":{"n":1}}"#,
                r#"ask refund job_1 {"n":1}"#,
            ),
            (
                "child_ended",
                r#"{"node":"ask","child":"job_1","outcome":{"completed":{"result":"done"}}}"#,
                "ask job_1 completed: done",
            ),
            (
                "child_ended",
                r#"{"node":"ask","child":"job_1","outcome":{"failed":{"error":{"code":"boom","message":"no"}}}}"#,
                "ask job_1 failed: boom: no",
            ),
            ("child_ended", r#"{"node":"ask","child":"job_1","outcome":"cancelled"}"#, "ask job_1 was cancelled"),
            ("job_completed", r#"{"answer":{"node":"pay"}}"#, "the output of pay"),
            ("job_completed", r#"{"answer":{"value":"done"}}"#, "done"),
            ("job_failed", r#"{"node":"pay","error":{"code":"boom","message":"it broke"}}"#, "pay boom: it broke"),
            ("node_started", r#"{"node":"pay","try":1}"#, "pay"),
            ("node_started", r#"{"node":"pay","try":2}"#, "pay try 2"),
            ("timer_set", r#"{"timer":"wait:nap","after_us":60000000}"#, "wait:nap due after 1m 00s"),
            ("of_a_later_build", r#"{"a":1}"#, r#"{"a":1}"#),
        ];
        for (kind, payload, text) in expected {
            assert_eq!(summary(kind, payload), text);
        }
    }
}
