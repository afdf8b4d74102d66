//! The list of a job's steps.

use aetheris_api::{JobView, StepView, TraceStep};
use aetheris_core::id::NodeId;

use super::{Now, Style, Tone, elapsed, width};

/// A step with what is known of its place in the plan.
#[derive(Debug, Clone)]
pub struct Line {
    node: NodeId,
    /// `tool payments.refund`, `wait`; empty where the plan is not known.
    what: String,
    step: StepView,
    note: String,
}

impl Line {
    /// Whether its step has not ended.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !self.step.status.is_terminal()
    }
}

/// The steps of a job in the order of its plan; without the plan, in the order of their start.
#[must_use]
pub fn lines(job: &JobView, plan: &[TraceStep]) -> Vec<Line> {
    let Some(steps) = &job.steps else { return Vec::new() };
    let place = |node: &NodeId| plan.iter().position(|planned| planned.node_id == *node);
    let mut lines: Vec<Line> = steps
        .iter()
        .map(|(node, step)| {
            let planned = plan.iter().find(|planned| planned.node_id == *node);
            let what = planned.map(what).unwrap_or_default();
            Line { node: node.clone(), what, step: step.clone(), note: planned.map(note).unwrap_or_default() }
        })
        .collect();
    lines.sort_by(|a, b| {
        let key = |line: &Line| (place(&line.node), line.step.started_at.is_none(), line.step.started_at);
        key(a).cmp(&key(b)).then_with(|| a.node.cmp(&b.node))
    });
    lines
}

fn what(step: &TraceStep) -> String {
    let name = step.tool.as_ref().map(|tool| tool.name.as_str());
    let name = name.or_else(|| step.model.as_ref().map(|model| model.model.as_str()));
    name.map_or_else(|| step.kind.clone(), |name| format!("{} {name}", step.kind))
}

/// Where a result came from, if it was not simply executed.
fn note(step: &TraceStep) -> String {
    match step.source {
        None | Some(aetheris_core::event::Source::Executed) => String::new(),
        Some(source) => source.as_str().replace('_', " "),
    }
}

/// The list, one line a step, indented.
#[must_use]
pub fn render(lines: &[Line], style: Style, now: Now) -> String {
    let column = |cell: fn(&Line) -> &str| lines.iter().map(|line| width(cell(line))).max().unwrap_or(0);
    let (nodes, whats) = (column(|line| line.node.as_str()), column(|line| &line.what));
    let mut text = String::new();
    for line in lines {
        let tone = Style::step(line.step.status);
        let status = if line.step.status.as_str() == "completed" { "" } else { line.step.status.as_str() };
        let took = elapsed(line.step.started_at, line.step.finished_at, now);
        let tries = if line.step.attempt > 1 { format!("try {}", line.step.attempt) } else { String::new() };
        let node = format!("{:nodes$}", line.node.as_str());
        let what = format!("{:whats$}", line.what);
        let rest: Vec<&str> =
            [status, took.as_str(), tries.as_str(), line.note.as_str()].into_iter().filter(|t| !t.is_empty()).collect();
        let row = format!(
            "  {} {}  {}  {}",
            style.paint(tone, Style::glyph(line.step.status)),
            style.paint(if tone == Tone::Dim { Tone::Dim } else { Tone::Strong }, &node),
            style.paint(Tone::Dim, &what),
            rest.join(" · "),
        );
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}
