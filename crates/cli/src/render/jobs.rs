//! Jobs: the list, the page of one, what it waits for, and how it ended.

use std::collections::BTreeMap;

use aetheris_api::{
    Command, InDoubtNext, JobView, KeptView, ParentView, PausedView, TraceStep, UsageView, WaitingView, WhyView,
};
use aetheris_core::event::{DoubtOutcome, EndCause, PauseReason};
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use aetheris_core::step::StepStatus;

use super::safe::one_line;
use super::standing::became;
use super::{Now, Style, Table, Tone, Values, clock, coarse, flow, json_page, steps, wrap};

/// Columns before the value of a field.
const FIELD: usize = 14;

/// The list of jobs, with reasons of those that are pending and with doubts of those that are paused.
#[must_use]
pub fn table(jobs: &[JobView], why: &BTreeMap<JobId, WhyView>, style: Style, now: Now) -> String {
    let mut table = Table::new(&["JOB", "AGENT", "STATUS", "CREATED", "UPDATED", "~ABOUT"]);
    for job in jobs {
        table.row(vec![
            job.id.to_string(),
            job.agent.to_string(),
            style.job(job.status),
            now.relative(job.created_at),
            now.relative(job.updated_at),
            match (why.get(&job.id).map(|reason| super::why::line(reason, now)), &job.paused) {
                (Some(reason), Some(paused)) => one_line(&format!("{}; {reason}", paused_by(paused, now))),
                (Some(reason), None) => reason,
                (None, _) => about(job, now),
            },
        ]);
    }
    table.render(style)
}

/// What the last column says of a job: its error, why it is paused, what it waits for, or who holds it.
fn about(job: &JobView, now: Now) -> String {
    if let Some(error) = &job.error {
        let node = error.node_id.as_ref().map(|node| format!("{node}: ")).unwrap_or_default();
        return one_line(&format!("{node}{}", error.message));
    }
    let wait = job.waiting.as_ref().map(short_wait);
    if let Some(paused) = &job.paused {
        let why = paused_by(paused, now);
        return one_line(&wait.map_or_else(|| why.clone(), |wait| format!("{why}; {wait}")));
    }
    if let Some(wait) = wait {
        return one_line(&wait);
    }
    match &job.worker {
        Some(worker) if !job.status.is_terminal() => {
            let asked = asked(job).map(|asked| format!("; {asked}")).unwrap_or_default();
            one_line(&format!("by {worker}{asked}"))
        }
        Some(_) | None => String::new(),
    }
}

/// What the worker that holds the job was asked for.
fn asked(job: &JobView) -> Option<&'static str> {
    job.end_requested.filter(|_| !job.status.is_terminal()).map(|cause| match cause {
        EndCause::Cancel => "asked to cancel: its worker ends it",
        EndCause::Pause => "asked to pause: its worker lets go of it when its calls in flight have ended",
        EndCause::Deadline => "its deadline has passed",
    })
}

/// Why a job is held still, and since when.
fn paused_by(paused: &PausedView, now: Now) -> String {
    let since = now.relative(paused.since);
    match paused.reason {
        PauseReason::Operator if paused.before_restore => {
            format!(
                "paused by an operator {since}, and not run since a restore: first check what the job did after the backup was taken"
            )
        }
        PauseReason::Operator => format!("paused by an operator {since}"),
        PauseReason::Restored => format!("held since the restore {since}"),
    }
}

fn short_wait(waiting: &WaitingView) -> String {
    match (&waiting.correlation_key, waiting.doubt) {
        (_, true) => format!("{} is in doubt", waiting.node_id),
        (Some(key), false) => format!("{} {key}", waiting.wait_type.as_str()),
        (None, false) => format!("{} at {}", waiting.wait_type.as_str(), waiting.node_id),
    }
}

/// What is known of a job beside its own view.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// Its steps in the order of the plan.
    pub plan: Vec<TraceStep>,
    /// What its steps were given and gave.
    pub values: Values,
    /// Why it is where it is, where its status does not say it.
    pub why: Vec<WhyView>,
}

/// The page of one job. `program` is how this program is called, for the commands that the page names.
#[must_use]
pub fn page(job: &JobView, beside: &Beside, program: &str, style: Style, now: Now) -> String {
    let mut text = format!("{}  {}\n", style.paint(Tone::Strong, &job.id.to_string()), style.job(job.status));
    text.push_str(&fields(job, &beside.why, style, now));
    let lines = steps::lines(job, &beside.plan);
    if !lines.is_empty() {
        text.push_str(&format!("\n{}\n", style.paint(Tone::Dim, "Steps")));
        text.push_str(&steps::render(&lines, &beside.values, style, now));
    }
    if let Some(paused) = &job.paused {
        let why = style.paint(Tone::Attention, &paused_by(paused, now));
        let command = Command::Resume(job.id).line(program);
        text.push_str(&format!("\n{why}\n  let the job go on with: {command}\n"));
    }
    for waiting in job.open_waits() {
        text.push_str(&format!("\n{}", wait(job, waiting, program, style, now)));
    }
    if job.waiting.is_none() && job.paused.is_some() {
        text.push_str(&doubts(job, program, style));
    }
    let kept = kept(job.kept.as_deref().unwrap_or_default(), style, now);
    if !kept.is_empty() {
        text.push_str(&format!("\n{kept}"));
    }
    if let Some(end) = ending(job, program, style) {
        text.push_str(&format!("\n{end}"));
    }
    text
}

/// Signals that are kept, those of one key on a line.
#[must_use]
pub fn kept(signals: &[KeptView], style: Style, now: Now) -> String {
    let mut of_key: Vec<(&KeptView, usize)> = Vec::new();
    for signal in signals {
        let same =
            |first: &KeptView| (&first.correlation_key, first.wait_type) == (&signal.correlation_key, signal.wait_type);
        match of_key.iter_mut().find(|(first, _)| same(first)) {
            Some((_, count)) => *count += 1,
            None => of_key.push((signal, 1)),
        }
    }
    let told = |line: &str| format!("{}\n", style.paint(Tone::Attention, &wrap(line, style.columns, 0, 2)));
    let mut text: String = of_key.iter().map(|(first, count)| told(&kept_of_key(first, *count, now))).collect();
    if signals.len() >= limits::KEPT_SHOWN_MAX {
        text.push_str(&told(&format!("these are the oldest {} kept signals; there may be more", signals.len())));
    }
    text
}

fn kept_of_key(first: &KeptView, count: usize, now: Now) -> String {
    let claims = first.wait_type.map(|claims| format!(" of type {}", claims.as_str())).unwrap_or_default();
    let (key, since) = (one_line(&first.correlation_key), now.relative(first.received_at));
    if count == 1 {
        format!("kept {since}: a signal{claims} for `{key}`; no wait has taken it")
    } else {
        format!("{count} signals{claims} for `{key}` are kept, the first {since}; no wait has taken them")
    }
}

fn fields(job: &JobView, why: &[WhyView], style: Style, now: Now) -> String {
    let at = |time| format!("{} ({})", clock(time), now.relative(time));
    let mut fields = vec![("agent", format!("{} version {}", job.agent, job.agent_version))];
    if let Some(session) = &job.session_id {
        fields.push(("session", one_line(session.as_str())));
    }
    if let Some(ParentView { job_id, node_id, .. }) = &job.parent {
        fields.push(("parent", format!("{job_id}, step {node_id}")));
    }
    if !job.labels.is_empty() {
        let labels: Vec<String> = job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        fields.push(("labels", one_line(&labels.join(" "))));
    }
    fields.push(("created", at(job.created_at)));
    fields.extend(job.ended_at.map(|ended| ("ended", at(ended))));
    fields.push(("updated", at(job.updated_at)));
    if let (Some(worker), Some(until)) = (&job.worker, job.lease_until) {
        let lease = format!("{worker}, lease until {}, claim {}", at(until), job.epoch);
        fields.push(("worker", lease));
    }
    fields.extend(why.iter().map(|reason| ("why", super::why::line(reason, now))));
    if let (Some(not_before), false) = (job.not_before, job.status.is_terminal()) {
        fields.push(("not before", at(not_before)));
    }
    if let Some(asked) = asked(job) {
        let name = if job.end_requested == Some(EndCause::Pause) { "pausing" } else { "ending" };
        fields.push((name, asked.to_owned()));
    }
    if let Some(usage) = &job.usage
        && (usage.tokens > 0 || usage.tool_calls > 0)
    {
        fields.push(("usage", used(usage)));
    }
    if let Some(message) = &job.message {
        fields.push(("message", json_page(message.value(), FIELD)));
    }
    fields
        .iter()
        .map(|(name, value)| {
            let value = if value.contains('\n') { value.clone() } else { wrap(value, style.columns, FIELD, FIELD) };
            format!("  {} {value}\n", style.paint(Tone::Dim, &format!("{name:<11}")))
        })
        .collect()
}

/// What a job has used up.
#[must_use]
pub fn used(usage: &UsageView) -> String {
    let several = |count: u64| if count == 1 { "" } else { "s" };
    let (calls, tokens) = (usage.tool_calls, usage.tokens);
    format!("{calls} tool call{}, {tokens} token{}", several(calls), several(tokens))
}

/// What a job waits for, and the command that answers it.
#[must_use]
pub fn wait(job: &JobView, waiting: &WaitingView, program: &str, style: Style, now: Now) -> String {
    let reason = waiting.reason.as_deref().map(|reason| format!(": {}", one_line(reason))).unwrap_or_default();
    let since = waiting.since.map(|since| format!("waiting for {}", coarse(now.0.since(since))));
    let until = waiting.deadline.flatten().map(|at| format!("until {}", clock(at)));
    let node = &waiting.node_id;
    let what = match (waiting.doubt, waiting.wait_type) {
        (true, _) => {
            let told = waiting.next.and_then(InDoubtNext::nothing_to_do);
            let by_itself = told.map(|told| format!("{reason}; {told}")).unwrap_or_default();
            format!("{node} is in doubt: its call has started and its outcome is unknown{by_itself}")
        }
        (false, WaitType::Human) => format!("{node} waits for a person{reason}"),
        (false, WaitType::Signal) => format!("{node} waits for a signal{reason}"),
        (false, WaitType::Webhook) => format!("{node} waits for a webhook{reason}"),
        (false, WaitType::Child) => format!("{node} waits for a child job{reason}"),
        (false, WaitType::Timer) => format!("{node} waits for time{reason}"),
    };
    let mut text = format!("{}\n", style.paint(Tone::Attention, &wrap(&what, style.columns, 0, 2)));
    let for_a_person = waiting.doubt && waiting.next != Some(InDoubtNext::OwnPolicies);
    if let Some(asks) = waiting.reason.as_deref().filter(|_| for_a_person) {
        // It asks whether the call happened: a question has a line of its own.
        text.push_str(&format!("  {}\n", wrap(&one_line(asks), style.columns, 2, 2)));
    }
    let times: Vec<String> = [since, until].into_iter().flatten().collect();
    if !times.is_empty() {
        text.push_str(&format!("  {}\n", wrap(&times.join(", "), style.columns, 2, 2)));
    }
    if let Some(answer) = waiting.answer(job.id) {
        // On one line whatever the width: a terminal that breaks it copies it whole.
        let what = if waiting.doubt { "see" } else { "answer with" };
        text.push_str(&format!("  {what}: {}\n", answer.line(program)));
    }
    text
}

/// The calls in doubt of a paused job that waits for no answer to one: it goes on with them itself once it is resumed.
fn doubts(job: &JobView, program: &str, style: Style) -> String {
    let steps = job.steps.iter().flatten().filter(|(_, step)| step.status == StepStatus::InDoubt);
    let told = steps.map(|(node, _)| {
        let what = format!("{node} is in doubt: its call has started and its outcome is unknown");
        let command = Command::InDoubtOf(job.id).line(program);
        format!("\n{}\n  see: {command}\n", style.paint(Tone::Attention, &wrap(&what, style.columns, 0, 2)))
    });
    told.collect()
}

/// How a job ended, if it has, and whether it left a call in doubt: nobody would look for it otherwise.
#[must_use]
pub fn ending(job: &JobView, program: &str, style: Style) -> Option<String> {
    let steps = job.steps.iter().flatten();
    let left: Vec<_> = steps.filter_map(|(node, step)| Some((node, step.left_in_doubt?))).collect();
    let mut text = end(job, style).unwrap_or_default();
    for (node, outcome) in left.iter().filter(|(_, outcome)| *outcome != DoubtOutcome::Unresolved) {
        let known = became(*outcome);
        text.push_str(&format!("the call of {node} was in doubt at the end; known since: {known}\n"));
    }
    let unknown = left.iter().filter(|(_, outcome)| *outcome == DoubtOutcome::Unresolved);
    let unknown: Vec<String> = unknown.map(|(node, _)| node.to_string()).collect();
    if !unknown.is_empty() {
        let calls = if unknown.len() == 1 { "call" } else { "calls" };
        let are = if unknown.len() == 1 { "is still in doubt: it" } else { "are still in doubt: they" };
        let what = format!("the {calls} of {} {are} may have happened", unknown.join(", "));
        let what = style.paint(Tone::Attention, &what);
        text.push_str(&format!("{what}\n  see: {}\n", Command::Unresolved(job.id).line(program)));
    }
    (!text.is_empty()).then_some(text)
}

fn end(job: &JobView, style: Style) -> Option<String> {
    if let Some(error) = &job.error {
        let node = error.node_id.as_ref().map(|node| format!(" at {node}")).unwrap_or_default();
        let head = style.paint(Tone::Bad, &format!("failed{node}: {}", error.code));
        return Some(format!("{head}\n  {}\n", json_page(&error.message.as_str().into(), 2)));
    }
    let result = job.result.as_ref().filter(|_| job.status.as_str() == "completed")?;
    Some(format!("{}\n  {}\n", style.paint(Tone::Good, "result"), json_page(result.value(), 2)))
}

/// The line over a live list.
#[must_use]
pub fn headline(job: &JobView, style: Style, now: Now) -> String {
    let took = super::span(job.ended_at.unwrap_or(now.0).since(job.created_at));
    let parts = [job.id.to_string(), format!("{} {}", job.agent, style.job(job.status)), took];
    let head = flow(&parts, "  ", style.columns, 2);
    match &job.paused {
        Some(paused) => format!("{head}\n  {}", wrap(&paused_by(paused, now), style.columns, 2, 2)),
        None => head,
    }
}
