//! The trace of a job: its runs, then its steps in the order of the plan with everything that happened
//! to each.

use aetheris_api::{JobErrorView, TraceAttempt, TraceDoubt, TraceStep, TraceView};
use aetheris_core::event::{Judge, Resolver, Source};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;

use super::safe::one_line;
use super::standing::{Standing, standing, took};
use super::{Now, Style, Table, Tone, Values, clock, elapsed, flow, width, wrap};

/// The whole trace.
#[must_use]
pub fn page(trace: &TraceView, values: &Values, style: Style, now: Now) -> String {
    let head = style.paint(Tone::Strong, &trace.job_id.to_string());
    let mut text = format!("{head}  {} version {}  {}\n", trace.agent, trace.agent_version, style.job(trace.status));
    if !trace.runs.is_empty() {
        text.push_str(&format!("\n{}", runs(trace, style, now)));
    }
    text.push('\n');
    let names = trace.steps.iter().map(|step| width(&step.node_id.text())).max().unwrap_or(0);
    let mut before: Option<&TraceStep> = None;
    for step in &trace.steps {
        text.push_str(&format!("{}\n", headline(trace, step, before, names, style, now)));
        for (line, tone) in details(trace, step, now) {
            let line = wrap(&one_line(&line), style.columns, 4, 6);
            text.push_str(&format!("    {}\n", tone.map_or_else(|| line.clone(), |tone| style.paint(tone, &line))));
        }
        text.push_str(&values.below_first(&step.node_id, style));
        text.push_str(&values.said(&step.doubts, style));
        text.push_str(&items(trace, step, style, now));
        text.push_str(&parts(trace, step, values, style, now));
        before = Some(step);
    }
    for evidence in &trace.evidence {
        let conflict = if evidence.conflict { ", which contradicts what the job went on with" } else { "" };
        let line = format!(
            "late answer to permit {} of {} at {}{conflict}",
            evidence.permit,
            evidence.node_id,
            clock(evidence.at)
        );
        text.push_str(&format!("{}\n", style.paint(Tone::Attention, &line)));
    }
    text.push_str(&super::jobs::kept(&trace.kept, style, now));
    if trace.usage.tokens > 0 || trace.usage.tool_calls > 0 {
        text.push_str(&format!("\nused {}\n", super::jobs::used(&trace.usage)));
    }
    text
}

/// Most items of one map that are told one by one.
const ITEMS_SHOWN: usize = 20;
/// How far items stand behind their map.
const ITEMS_INDENT: usize = 4;

/// The items of a map: those of which there is more to say than that they have completed or were skipped, and how many others
/// there are.
fn items(trace: &TraceView, map: &TraceStep, style: Style, now: Now) -> String {
    let smooth = |item: &TraceStep| {
        item.attempts.len() <= 1 && item.doubts.is_empty() && item.parts.is_empty() && item.child.is_none()
    };
    let plain = |item: &TraceStep| match item.status {
        StepStatus::Completed => smooth(item) && item.source == Some(Source::Executed),
        StepStatus::Skipped => true,
        StepStatus::Pending
        | StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt
        | StepStatus::Validating
        | StepStatus::Refining
        | StepStatus::Rejected
        | StepStatus::Failed => false,
    };
    let notable = || map.items.iter().filter(|item| !plain(item));
    let told: Vec<&TraceStep> = notable().take(ITEMS_SHOWN).collect();
    let names = told.iter().map(|item| width(&item.node_id.text())).max().unwrap_or(0);
    let narrower = Style { columns: style.columns.map(|columns| columns.saturating_sub(ITEMS_INDENT)), ..style };
    let mut text = String::new();
    let mut indented = |line: &str, tone: Option<Tone>, indent: usize| {
        let line = tone.map_or_else(|| line.to_owned(), |tone| style.paint(tone, line));
        text.push_str(&format!("{}{line}\n", " ".repeat(indent)));
    };
    for item in &told {
        let head = headline(trace, item, None, names, narrower, now);
        head.lines().for_each(|line| indented(line, None, ITEMS_INDENT));
        for (line, tone) in details(trace, item, now) {
            indented(&wrap(&one_line(&line), style.columns, 8, 10), tone, 2 * ITEMS_INDENT);
        }
        parts(trace, item, &Values::default(), narrower, now)
            .lines()
            .for_each(|line| indented(line, None, ITEMS_INDENT));
    }
    let count = |status| map.items.iter().filter(|item| plain(item) && item.status == status).count();
    let failed = told.iter().filter(|item| item.status == StepStatus::Failed).count();
    let rest = [
        (count(StepStatus::Completed), "completed"),
        (failed, "failed"),
        (count(StepStatus::Skipped), "skipped"),
        (notable().count() - told.len(), "more that failed, wait, were tried again or refined, or have a child job"),
    ];
    let rest: Vec<String> =
        rest.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if !rest.is_empty() {
        indented(&format!("items: {}", rest.join(", ")), Some(Tone::Dim), ITEMS_INDENT);
    }
    text
}

/// What its critic was asked, and its further rounds.
fn parts(trace: &TraceView, step: &TraceStep, values: &Values, style: Style, now: Now) -> String {
    let names = step.parts.iter().map(|part| width(&part.node_id.text())).max().unwrap_or(0);
    let narrower = Style { columns: style.columns.map(|columns| columns.saturating_sub(ITEMS_INDENT)), ..style };
    let mut text = String::new();
    let mut indented = |line: &str, indent: usize| text.push_str(&format!("{}{line}\n", " ".repeat(indent)));
    for part in &step.parts {
        headline(trace, part, None, names, narrower, now).lines().for_each(|line| indented(line, ITEMS_INDENT));
        for (line, tone) in details(trace, part, now) {
            let line = wrap(&one_line(&line), style.columns, 8, 10);
            indented(&tone.map_or_else(|| line.clone(), |tone| style.paint(tone, &line)), 2 * ITEMS_INDENT);
        }
        values.below(&part.node_id, style).lines().for_each(|line| indented(line, ITEMS_INDENT));
    }
    text
}

fn runs(trace: &TraceView, style: Style, now: Now) -> String {
    let mut table = Table::new(&[">CLAIM", "WORKER", "FROM", "TOOK", "~ENDED BY"]);
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

/// A step on one line. What it comes after is said where that is not simply the step before.
fn headline(
    trace: &TraceView,
    step: &TraceStep,
    before: Option<&TraceStep>,
    names: usize,
    style: Style,
    now: Now,
) -> String {
    let standing = stands(trace, step);
    let Standing { sign, ticks, words } = &standing;
    let tone = Style::step(*sign);
    let source = match (&step.ended_by, step.source) {
        // Where the job ended first, what ended the wait is not what ended the step.
        (Some(_), _) if trace.status.is_terminal() && !step.status.is_terminal() => String::new(),
        (Some(by), _) => format!("ended by {by}"),
        (None, Some(Source::Executed)) => Source::Executed.as_str().to_owned(),
        (None, Some(_) | None) => String::new(),
    };
    let said = match (step.verdict, step.rejected_by) {
        (_, Some(by)) if step.node_id.is_base() && step.parts.iter().any(|part| part.node_id.round() > 0) => {
            style.paint(Tone::Dim, &format!("first output rejected by its {}", judge(trace, step, by)))
        }
        (_, Some(by)) => style.paint(Tone::Attention, &format!("output rejected by its {}", judge(trace, step, by))),
        (Some(verdict), None) if step.node_id.is_critic() => {
            style.paint(Tone::Dim, &format!("verdict: {}", verdict.as_str()))
        }
        (Some(_) | None, None) if step.told => style.paint(Tone::Dim, "told to the model"),
        (Some(_) | None, None) => String::new(),
    };
    let in_line = before.map(|before| before.node_id.node()).into_iter().eq(&step.needs);
    let needs: Vec<&str> = step.needs.iter().map(|need| need.as_str()).collect();
    let after = if in_line || needs.is_empty() { String::new() } else { format!("after {}", needs.join(", ")) };
    let child = step.child.as_ref().map(|child| format!("child {}", child.job_id)).unwrap_or_default();
    let parts = [
        style.paint(Tone::Strong, &format!("{:names$}", step.node_id)),
        style.paint(Tone::Dim, &what(step)),
        style.paint(Tone::Dim, &child),
        style.paint(tone, words),
        took(step.started_at, step.finished_at.or(trace.ended_at), *ticks, now),
        style.paint(Tone::Dim, &source),
        said,
        style.paint(Tone::Dim, &after),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let columns = style.columns.map(|columns| columns.saturating_sub(2));
    let parts = flow(&parts, "  ", columns, 4);
    format!("{} {parts}", style.paint(tone, Style::glyph(*sign)))
}

/// Who has rejected an output: what a critic's step is called where a person judges.
fn judge(trace: &TraceView, step: &TraceStep, by: Judge) -> &'static str {
    let base = trace.steps.iter().find(|base| *base.node_id.node() == *step.node_id.node());
    let parts = base.into_iter().flat_map(|base| base.parts.iter());
    let reviews = parts.filter(|part| part.node_id.is_critic()).any(|part| part.kind == "review");
    if reviews && by == Judge::Critic { "review" } else { by.as_str() }
}

fn stands(trace: &TraceView, step: &TraceStep) -> Standing {
    standing(step.status, trace.status, step.left_in_doubt, step.answered.is_some())
}

/// What else is to be said of a step.
fn details(trace: &TraceView, step: &TraceStep, now: Now) -> Vec<(String, Option<Tone>)> {
    let mut lines = Vec::new();
    if let Some(feedback) = &step.feedback {
        lines.push((format!("feedback: {feedback}"), Some(Tone::Dim)));
    }
    if let Some(source) = step.source.filter(|source| *source != Source::Executed) {
        lines.push((format!("result {}", origin(source)), Some(Tone::Attention)));
    }
    if let Some(reason) = &step.skipped {
        let why = match reason.as_str() {
            "condition" => "its condition did not hold",
            "join" => "too few of those that it needs have completed",
            _ => "what it needs was skipped",
        };
        lines.push((format!("not run: {why}"), Some(Tone::Dim)));
    }
    if step.attempts.len() > 1 || step.attempts.iter().any(|attempt| attempt.error.is_some()) {
        let ticks = stands(trace, step).ticks;
        let line = |attempt| (attempt_line(attempt, trace.ended_at, ticks, now), Some(Tone::Dim));
        lines.extend(step.attempts.iter().map(line));
    }
    lines.extend(step.doubts.iter().map(|doubt| (doubt_line(doubt), Some(Tone::Attention))));
    // The try that failed with it has said it, if there was one.
    let of_part = |error: &JobErrorView| step.parts.iter().any(|part| part.error.as_ref() == Some(error));
    let told = |error: &JobErrorView| {
        step.attempts.iter().any(|attempt| attempt.error.as_ref() == Some(error)) || of_part(error)
    };
    if let Some(error) = step.error.as_ref().filter(|error| !told(error)) {
        lines.push((format!("{}: {}", error.code, error.message), Some(Tone::Bad)));
    }
    lines
}

fn what(step: &TraceStep) -> String {
    if let Some(tool) = &step.tool {
        let version = tool.version.as_deref().map(|version| format!(" version {version}")).unwrap_or_default();
        let permits = if tool.permits > 1 { format!(", {} permits", tool.permits) } else { String::new() };
        let does = if tool.asks_person { "asks a person" } else { tool.effect.as_str() };
        return format!("{} {}{version}, {does}{permits}", step.kind, tool.name);
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

fn attempt_line(attempt: &TraceAttempt, over: Option<Timestamp>, ticks: bool, now: Now) -> String {
    let took = took(Some(attempt.started_at), attempt.ended_at.or(over), ticks, now);
    let error = attempt.error.as_ref().map(|error| format!("  {}: {}", error.code, error.message)).unwrap_or_default();
    format!("try {} in claim {}  {took}{error}", attempt.number, attempt.epoch)
}

fn doubt_line(doubt: &TraceDoubt) -> String {
    let mut line = format!("in doubt at {}, permit {}: {}", clock(doubt.at), doubt.permit, doubt.reason);
    if let Some(outcome) = doubt.outcome {
        let by = doubt.resolved_by.map_or("nobody", Resolver::as_str).replace('_', " ");
        line.push_str(&format!(" → {} by {by}", outcome.as_str().replace('_', " ")));
    }
    if let Some(note) = &doubt.note {
        line.push_str(&format!(" ({note})"));
    }
    line
}
