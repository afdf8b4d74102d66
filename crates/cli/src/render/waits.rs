//! What waits for someone: open waits, and calls whose outcome is unknown.

use aetheris_api::command::{HOW_YOU_KNOW, RESULT};
use aetheris_api::{Command, InDoubtNext, InDoubtView, Outcome, ValueView, WaitView};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;

use super::safe::one_line;
use super::{Now, Style, Table, Tone, clock_from, coarse, wrap};

/// The list of open waits, and how the first one that can be answered is answered.
#[must_use]
pub fn table(waits: &[WaitView], program: &str, style: Style, now: Now) -> String {
    let mut table = Table::new(&["JOB", "AGENT", "NODE", "TYPE", "KEY", "AGE", "ENDS", "~REASON"]);
    for wait in waits {
        table.row(vec![
            wait.job_id.to_string(),
            wait.agent.to_string(),
            wait.node_id.to_string(),
            if wait.doubt { "in doubt".to_owned() } else { wait.wait_type.as_str().to_owned() },
            wait.correlation_key.as_deref().map(one_line).unwrap_or_default(),
            coarse(wait.age),
            wait.deadline.map(|at| now.relative(at)).unwrap_or_default(),
            one_line(&reason(wait)),
        ]);
    }
    let mut text = table.render(style);
    if let Some(answer) = waits.iter().filter(|wait| !wait.doubt).find_map(WaitView::answer) {
        text.push_str(&format!("\n{} {}\n", style.paint(Tone::Dim, "answer one with:"), answer.line(program)));
    }
    if waits.iter().any(|wait| wait.doubt) {
        let command = Command::InDoubt.line(program);
        text.push_str(&format!("{} {command}\n", style.paint(Tone::Dim, "what is in doubt:")));
    }
    text
}

/// Why it waits, and whether its job is held still meanwhile.
fn reason(wait: &WaitView) -> String {
    let reason = wait.reason.as_deref().unwrap_or_default();
    match wait.paused {
        Some(_) if reason.is_empty() => "(paused)".to_owned(),
        Some(_) => format!("(paused) {reason}"),
        None => reason.to_owned(),
    }
}

/// The list of calls in doubt, and how one is resolved.
#[must_use]
pub fn in_doubt(calls: &[InDoubtView], program: &str, style: Style, now: Now) -> String {
    let mut table = Table::new(&[
        "JOB",
        "JOB STATUS",
        "NODE",
        "TOOL",
        "CLASS",
        "SINCE",
        "CAN ARRIVE UNTIL",
        "POLICY",
        "KEY",
        "~INPUT",
        "~REASON",
    ]);
    for call in calls {
        let over = call.accepted_from <= now.0;
        table.row(vec![
            call.job_id.to_string(),
            style.job(call.job_status),
            call.node_id.to_string(),
            call.tool.to_string(),
            call.effect.as_str().to_owned(),
            now.relative(call.since),
            {
                let until = clock_from(call.accepted_from);
                if over { style.paint(Tone::Dim, &format!("{until} (passed)")) } else { until }
            },
            match call.answer {
                Some(Outcome::Happened) => "answered: happened".to_owned(),
                Some(Outcome::DidNotHappen) => "answered: did not happen".to_owned(),
                None => match tried_again(call) {
                    Some(when) => when.to_owned(),
                    None => call.policy.clone().unwrap_or_default(),
                },
            },
            call.invocation.to_string(),
            one_line(&call.input.as_ref().map(beginning).unwrap_or_default()),
            one_line(call.reason.as_deref().unwrap_or_default()),
        ]);
    }
    let mut text = table.render(style);
    for call in calls.iter().filter(|call| !call.evidence.is_empty()) {
        let conflict = call.evidence.iter().any(|evidence| evidence.conflict);
        let late = if conflict { "a late answer that contradicts the job" } else { "a late answer" };
        let note = format!("{} {}: {late} has arrived; see the trace", call.job_id, call.node_id);
        text.push_str(&format!("{}\n", style.paint(Tone::Attention, &note)));
    }
    let open = calls.iter().filter(|call| call.answer.is_none() && tried_again(call).is_none());
    let (by_itself, open): (Vec<&InDoubtView>, Vec<&InDoubtView>) = open.partition(|call| is_at_work(call));
    for call in by_itself {
        let (job, node, policy) = (call.job_id, &call.node_id, call.policy.as_deref().unwrap_or_default());
        let note =
            format!("{job} {node}: its tool's own policies come first ({policy}); there is nothing for you to do yet");
        text.push_str(&format!("{}\n", style.paint(Tone::Dim, &wrap(&one_line(&note), style.columns, 0, 2))));
    }
    if !open.is_empty() {
        text.push_str(&resolve(&open, program, style));
    }
    text
}

/// A value, or the beginning of one.
fn beginning(value: &ValueView) -> String {
    match (&value.value, &value.text) {
        (Some(value), _) => value.value().to_string(),
        (None, Some(text)) => format!("{text}…"),
        (None, None) => String::new(),
    }
}

/// When a call is made again by itself, with the same key: nobody need find out, and no answer is accepted.
fn tried_again(call: &InDoubtView) -> Option<&'static str> {
    match (call.next?, call.job_status) {
        (InDoubtNext::CalledAgain, JobStatus::Paused) => Some("is tried again once resumed"),
        (InDoubtNext::CalledAgain, _) => Some("is tried again"),
        (InDoubtNext::OwnPolicies | InDoubtNext::AfterResume | InDoubtNext::Person, _) => None,
    }
}

/// Whether the tool's list is not at its end: nobody need find out yet.
fn is_at_work(call: &InDoubtView) -> bool {
    call.next == Some(InDoubtNext::OwnPolicies)
}

/// Whether its job is paused, and its tool is asked about it once that goes on.
fn finds_out(call: &InDoubtView) -> bool {
    call.next == Some(InDoubtNext::AfterResume)
}

/// So many calls have their commands written out.
const SHOWN: usize = 10;

/// How calls are answered. What a person has found out is to be put in: as it stands no line is accepted.
fn resolve(calls: &[&InDoubtView], program: &str, style: Style) -> String {
    let dim = |text: &str| format!("{}\n", style.paint(Tone::Dim, &wrap(text, style.columns, 0, 0)));
    let mut text = format!("\n{}", dim("Find out from the other side what became of a call, then record it:"));
    for call in calls.iter().take(SHOWN) {
        let (invocation, permit) = (call.invocation, call.permit);
        let command = Command::Resolve { invocation, job: call.job_id, permit }.line(program);
        let name = if calls.len() == 1 { String::new() } else { format!("{}: ", call.node_id) };
        text.push_str(&format!("  {name}{command}\n"));
    }
    if calls.len() > SHOWN {
        text.push_str(&dim(
            "The others are named likewise: `--job JOB` has those of one job, `--json` the keys of all.",
        ));
    }
    let ended = calls.iter().filter(|call| call.job_status.is_terminal()).count();
    let is_given_up =
        |call: &InDoubtView| call.status == LedgerStatus::FailedUnresolved && !call.job_status.is_terminal();
    let given_up = calls.iter().filter(|call| is_given_up(call)).count();
    let after = match (ended, calls.len()) {
        (_, all) if given_up > 0 && ended + given_up == all => {
            "What was given up stays so: an answer is kept with its job, and nothing is called."
        }
        (1, 1) => "The job has ended: the answer is kept with it, and nothing is called.",
        (ended, all) if ended == all => "The jobs have ended: answers are kept with them, and nothing is called.",
        _ => "The tool is then called again, unless --then fail or the job has ended.",
    };
    text.push_str(&format!(
        "followed by one of\n  --happened --result '{RESULT}' --note '{HOW_YOU_KNOW}'\n  --did-not-happen --note '{HOW_YOU_KNOW}'\n"
    ));
    text.push_str(&dim(&format!(
        "--did-not-happen means: you looked after CAN ARRIVE UNTIL and it had not happened; with --refused: the other side \
         refuses this call from now on. {after}"
    )));
    for call in calls.iter().take(SHOWN).filter(|call| finds_out(call)) {
        let (node, policy) = (&call.node_id, call.policy.as_deref().unwrap_or_default());
        let resume = Command::Resume(call.job_id).line(program);
        text.push_str(&dim(&format!(
            "Or resume the job, and {} is asked about the call of {}:",
            one_line(policy.trim_start_matches("reconcile: ")),
            node
        )));
        text.push_str(&format!("  {resume}\n"));
    }
    text
}
