//! The trace of a job: its runs, then its steps as a tree with everything that happened to each.

use std::collections::BTreeMap;

use aetheris_api::{TraceAttempt, TraceDoubt, TraceStep, TraceView};
use aetheris_core::event::Source;
use aetheris_core::id::NodeId;

use super::{Now, Style, Table, Tone, clock, cut, elapsed};

/// Widest cell of free text.
const TEXT_COLUMNS: usize = 120;

/// The whole trace.
#[must_use]
pub fn page(trace: &TraceView, style: Style, now: Now) -> String {
    let head = style.paint(Tone::Strong, &trace.job_id.to_string());
    let mut text = format!("{head}  {} version {}  {}\n", trace.agent, trace.agent_version, style.job(trace.status));
    if !trace.runs.is_empty() {
        text.push_str(&format!("\n{}", runs(trace, style, now)));
    }
    text.push('\n');
    let depths = depths(&trace.steps);
    for step in &trace.steps {
        text.push_str(&step_lines(step, depths.get(&step.node_id).copied().unwrap_or(0), style, now));
    }
    for evidence in &trace.evidence {
        let conflict = if evidence.conflict { ", which contradicts what the job went on with" } else { "" };
        let line =
            format!("late answer to permit {} of {} at {}{conflict}", evidence.permit, evidence.node_id, clock(evidence.at));
        text.push_str(&format!("{}\n", style.paint(Tone::Attention, &line)));
    }
    if trace.usage.tokens > 0 || trace.usage.tool_calls > 0 {
        text.push_str(&format!("\nused {} tool calls and {} tokens\n", trace.usage.tool_calls, trace.usage.tokens));
    }
    text
}

fn runs(trace: &TraceView, style: Style, now: Now) -> String {
    let mut table = Table::new(&[">CLAIM", "WORKER", "FROM", "TOOK", "ENDED BY"]);
    for run in &trace.runs {
        table.row(vec![
            run.epoch.to_string(),
            run.worker.to_string(),
            clock(run.claimed_at),
            elapsed(Some(run.claimed_at), run.ended_at, now),
            run.ended_by.clone().unwrap_or_else(|| "still held".to_owned()),
        ]);
    }
    table.render(style)
}

/// How deep each step stands below the plan's first ones.
fn depths(steps: &[TraceStep]) -> BTreeMap<NodeId, usize> {
    let mut depths: BTreeMap<NodeId, usize> = BTreeMap::new();
    // A step stands after what it needs; where a list is in another order, further rounds settle it.
    for _ in 0..steps.len().min(64) {
        let mut changed = false;
        for step in steps {
            let depth = step.needs.iter().filter_map(|need| depths.get(need)).map(|above| above + 1).max().unwrap_or(0);
            changed |= depths.insert(step.node_id.clone(), depth) != Some(depth);
        }
        if !changed {
            break;
        }
    }
    depths
}

fn step_lines(step: &TraceStep, depth: usize, style: Style, now: Now) -> String {
    let indent = "  ".repeat(depth.min(12));
    let tone = Style::step(step.status);
    let mut head = vec![style.paint(Tone::Strong, step.node_id.as_str()), style.paint(Tone::Dim, &what(step))];
    head.push(style.paint(tone, &step.status.as_str().replace('_', " ")));
    head.push(elapsed(step.started_at, step.finished_at, now));
    head.retain(|part| !part.is_empty());
    let mut text = format!("{indent}{} {}\n", style.paint(tone, Style::glyph(step.status)), head.join("  "));
    let mut below = |line: &str, tone: Option<Tone>| {
        let line = cut(line, TEXT_COLUMNS);
        let line = tone.map_or_else(|| line.clone(), |tone| style.paint(tone, &line));
        text.push_str(&format!("{indent}    {line}\n"));
    };
    if let Some(source) = step.source {
        below(&format!("result {}", origin(source)), (source != Source::Executed).then_some(Tone::Attention));
    }
    if let Some(by) = &step.ended_by {
        below(&format!("ended by {by}"), None);
    }
    if let Some(reason) = &step.skipped {
        let why = if reason == "condition" { "its condition did not hold" } else { "what it needs was skipped" };
        below(&format!("not run: {why}"), Some(Tone::Dim));
    }
    if step.attempts.len() > 1 || step.attempts.iter().any(|attempt| attempt.error.is_some()) {
        for attempt in &step.attempts {
            below(&attempt_line(attempt, now), Some(Tone::Dim));
        }
    }
    for doubt in &step.doubts {
        below(&doubt_line(doubt), Some(Tone::Attention));
    }
    if let Some(error) = &step.error {
        below(&format!("{}: {}", error.code, error.message), Some(Tone::Bad));
    }
    text
}

fn what(step: &TraceStep) -> String {
    if let Some(tool) = &step.tool {
        let version = tool.version.as_deref().map(|version| format!(" version {version}")).unwrap_or_default();
        let permits = if tool.permits > 1 { format!(", {} permits", tool.permits) } else { String::new() };
        return format!("{} {}{version}, {}{permits}", step.kind, tool.name, tool.effect.as_str());
    }
    if let Some(model) = &step.model {
        let tokens = model.prompt_tokens.saturating_add(model.completion_tokens);
        return format!("{} {}, {tokens} tokens", step.kind, model.model);
    }
    step.kind.clone()
}

/// Where a result came from, in words.
const fn origin(source: Source) -> &'static str {
    match source {
        Source::Executed => "executed",
        Source::CaughtUp => "caught up from the record, not executed again",
        Source::Reconciled => "reconciled: the other side was asked and knew it",
        Source::Resolved => "resolved by an operator",
    }
}

fn attempt_line(attempt: &TraceAttempt, now: Now) -> String {
    let took = elapsed(Some(attempt.started_at), attempt.ended_at, now);
    let error = attempt.error.as_ref().map(|error| format!("  {}: {}", error.code, error.message)).unwrap_or_default();
    format!("try {} in claim {}  {took}{error}", attempt.number, attempt.epoch)
}

fn doubt_line(doubt: &TraceDoubt) -> String {
    let mut line = format!("in doubt at {}, permit {}: {}", clock(doubt.at), doubt.permit, doubt.reason);
    if let Some(outcome) = &doubt.outcome {
        let by = doubt.resolved_by.as_deref().unwrap_or("nobody").replace('_', " ");
        line.push_str(&format!(" → {} by {by}", outcome.replace('_', " ")));
    }
    if let Some(note) = &doubt.note {
        line.push_str(&format!(" ({note})"));
    }
    line
}
