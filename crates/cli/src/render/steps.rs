//! The list of a job's steps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use aetheris_api::{AnsweredBy, AnsweredView, ItemsView, JobView, StepView, TraceStep};
use aetheris_core::path::StepPath;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;

use super::standing::{Standing, standing, took};
use super::{Now, Style, Tone, Values, cut, width};

/// Fewest columns of a name.
const COLUMN_MIN: usize = 12;

fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A step with what is known of its place in the plan.
#[derive(Debug, Clone)]
pub struct Line {
    node: StepPath,
    /// `tool payments.refund`, `wait`; empty where the plan is not known.
    what: String,
    step: StepView,
    note: String,
    /// How it is, as its job is.
    standing: Standing,
    /// When its job ended, if it has: nothing takes longer than that.
    over: Option<Timestamp>,
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
    // A plan may have ten thousand nodes: each is looked up once.
    let places: BTreeMap<&StepPath, (usize, &TraceStep)> =
        plan.iter().enumerate().map(|(place, planned)| (&planned.node_id, (place, planned))).collect();
    let mut lines: Vec<(Option<usize>, Line)> = steps
        .iter()
        .map(|(node, step)| {
            let (place, planned) = places.get(&StepPath::from(node.node())).copied().unzip();
            let item = node.item().and_then(|item| usize::try_from(item).ok());
            let planned = match item {
                Some(item) => planned.and_then(|map: &TraceStep| map.items.get(item)),
                None => planned,
            };
            // A part of a step is told by what it does itself.
            let part = planned.and_then(|whole| whole.parts.iter().find(|part| part.node_id == *node));
            let planned = part.or(planned);
            let what = planned.map(what).unwrap_or_default();
            let note = planned.map(note).unwrap_or_default();
            let standing = standing(step.status, job.status, step.left_in_doubt, step.answered.is_some());
            (place, Line { node: node.clone(), what, step: step.clone(), note, standing, over: job.ended_at })
        })
        .collect();
    lines.sort_by(|(a_place, a), (b_place, b)| {
        let started = |line: &Line| (line.step.started_at.is_none(), line.step.started_at);
        a_place.cmp(b_place).then_with(|| started(a).cmp(&started(b))).then_with(|| a.node.cmp(&b.node))
    });
    lines.into_iter().map(|(_, line)| line).collect()
}

fn what(step: &TraceStep) -> String {
    let name = step.tool.as_ref().map(|tool| tool.name.as_str());
    let name = name.or_else(|| step.model.as_ref().map(|model| model.model.as_str()));
    name.map_or_else(|| step.kind.clone(), |name| format!("{} {name}", step.kind))
}

/// Why a step has failed, or where its result came from, if it was not simply executed.
fn note(step: &TraceStep) -> String {
    if let Some(error) = step.error.as_ref().filter(|_| step.status == StepStatus::Failed) {
        return error.code.clone();
    }
    match step.source {
        None | Some(aetheris_core::event::Source::Executed) => String::new(),
        Some(source) => source.as_str().replace('_', " "),
    }
}

/// How the items of a map stand: `312 of 1000 items, 2 failed`.
pub(super) fn counted(items: ItemsView) -> String {
    let ItemsView { completed, count, failed, given_up, skipped, open: _ } = items;
    let ended = completed + failed + given_up + skipped;
    let mut text = if ended == count { format!("{count} items") } else { format!("{ended} of {count} items") };
    for (number, word) in [(failed, "failed"), (given_up, "given up"), (skipped, "skipped")] {
        if number > 0 {
            text.push_str(&format!(", {number} {word}"));
        }
    }
    text
}

/// What a step will go on with: whoever lets its job go on wants to know.
fn told(answered: AnsweredView, now: Now) -> String {
    let at = now.relative(answered.at);
    match answered.by {
        AnsweredBy::DidNotHappen => format!("known: did not happen (answered {at})"),
        AnsweredBy::Happened => format!("known: happened (answered {at})"),
        AnsweredBy::Signal => format!("answered by a signal {at}"),
        AnsweredBy::Time => format!("its time was over {at}"),
    }
}

/// The list, one line a step, indented, with its values below it where they are known.
#[must_use]
pub fn render(lines: &[Line], values: &Values, style: Style, now: Now) -> String {
    let column = |cell: fn(&Line) -> Cow<'_, str>| lines.iter().map(|line| width(&cell(line))).max().unwrap_or(0);
    // A third of a narrow terminal for names, a third for what the steps do, the rest for how they are.
    let third = style.columns.map_or(usize::MAX, |columns| (columns / 3).max(COLUMN_MIN));
    let (nodes, whats) = (column(|line| line.node.text()).min(third), column(|line| (&line.what).into()).min(third));
    let mut text = String::new();
    for line in lines {
        let Standing { sign, ticks, words } = &line.standing;
        let tone = Style::step(*sign);
        let status = if line.step.status == StepStatus::Completed { "" } else { words };
        let ended = line.step.finished_at.or(line.over);
        let took = took(line.step.started_at, ended, *ticks, now);
        let tries = if line.step.attempt > 1 { format!("try {}", line.step.attempt) } else { String::new() };
        let node = padded(&cut(&line.node.text(), nodes), nodes);
        let what = padded(&cut(&line.what, whats), whats);
        // What became of a call that its job's end left is said already.
        let answered = line.step.answered.filter(|_| line.step.left_in_doubt.is_none());
        let told = answered.map(|answered| told(answered, now)).unwrap_or_default();
        let items = line.step.items.map(counted).unwrap_or_default();
        let rounds = line.step.round.map(|round| format!("round {round}")).unwrap_or_default();
        let child = line.step.child.as_ref().map(|child| format!("child {}", child.job_id)).unwrap_or_default();
        let rest = [&items, status, &child, &rounds, &told, &took, &tries, &line.note];
        let rest: Vec<&str> = rest.into_iter().filter(|text| !text.is_empty()).collect();
        let row = format!(
            "  {} {}  {}  {}",
            style.paint(tone, Style::glyph(*sign)),
            style.paint(if tone == Tone::Dim { Tone::Dim } else { Tone::Strong }, &node),
            style.paint(Tone::Dim, &what),
            style.fit(&rest.join(" · "), nodes + whats + 8),
        );
        text.push_str(row.trim_end());
        text.push('\n');
        text.push_str(&values.below(&line.node, style));
    }
    text
}
