//! What was proved: from the payments service's own log, and from what the store says of the job.

use std::path::Path;

use aetheris_api::{EventPage, EventView, JobView, TraceView, VerifyView};
use aetheris_core::event::Source;
use aetheris_core::job::JobStatus;
use serde::Serialize;
use serde_json::Value;

use super::acts::Act;
use super::fault::Fault;
use super::payments::{self, Booking};
use super::refund::{ORDER, Witness, of_refund, said};
use super::story::Story;
use crate::render::{Table, Tone};

/// What an act claims beside what all of them do.
pub(super) struct Expected {
    /// How many late answers are kept as evidence.
    pub(super) evidence: usize,
    /// Why the job was taken from its first holder.
    pub(super) requeued: &'static str,
}

/// What was found after an act.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) act: u8,
    /// Refunds of the order in the payments service's log.
    pub(super) bookings: usize,
    pub(super) chain_valid: bool,
    /// What is not as claimed.
    pub(super) differs: Vec<String>,
    /// How the outcome of the call was found.
    pub(super) found_by: String,
    pub(super) interrupted: &'static str,
    pub(super) job_id: String,
    pub(super) job_status: Option<JobStatus>,
    /// Late answers that were kept and changed nothing.
    pub(super) late_evidence: usize,
    pub(super) title: &'static str,
    /// The line of the events that says how the outcome was found.
    pub(super) trace_line: Option<String>,
}

impl Finding {
    /// An act that broke off.
    pub(super) fn broken(act: Act, fault: &Fault) -> Self {
        Self {
            act: act.number(),
            bookings: 0,
            chain_valid: false,
            differs: vec![fault.to_string()],
            found_by: "–".to_owned(),
            interrupted: act.interrupted(),
            job_id: String::new(),
            job_status: None,
            late_evidence: 0,
            title: act.title(),
            trace_line: None,
        }
    }

    /// Asks everyone who can know.
    ///
    /// # Errors
    /// One of them does not answer.
    pub(super) async fn of(act: Act, witness: &Witness, expected: &Expected) -> Result<Self, Fault> {
        let bookings = bookings(&witness.log)?;
        let facts = Facts::ask(witness).await?;
        let resolved = facts.events.iter().find(|event| of_refund(event, "in_doubt_resolved"));
        let mut differs = facts.differences(&bookings, expected);
        differs.retain(|difference| !difference.is_empty());
        Ok(Self {
            act: act.number(),
            bookings: bookings.len(),
            chain_valid: facts.verify.valid,
            differs,
            found_by: resolved.map_or_else(|| "–".to_owned(), found_by),
            interrupted: act.interrupted(),
            job_id: witness.job.clone(),
            job_status: Some(facts.job.status),
            late_evidence: facts.trace.evidence.len(),
            title: act.title(),
            trace_line: resolved.map(|event| format!("#{} {} {}", event.seq, event.kind, event.payload.text())),
        })
    }

    /// Tells the end of the act.
    pub(super) fn tell(&self, act: Act, story: &Story) {
        if let Some(line) = &self.trace_line {
            story.turn(Tone::Good, "found by", line);
        }
        let refunds = if self.bookings == 1 { "refund" } else { "refunds" };
        let tone = if self.differs.is_empty() { Tone::Good } else { Tone::Bad };
        let count = format!("{} {refunds} of order {ORDER} in the payments service's own log", self.bookings);
        story.turn(tone, "proof", &count);
        story.line(&story.paint(Tone::Dim, &format!("         {}", act.naive())));
        for difference in &self.differs {
            story.line(&story.paint(Tone::Bad, &format!("  not as claimed: {difference}")));
        }
    }
}

/// The refunds of the order in the service's log, read from its file.
pub(super) fn bookings(log: &Path) -> Result<Vec<Booking>, Fault> {
    let read = payments::read_log(log).map_err(|error| Fault::Setup(format!("the payments service's log: {error}")))?;
    Ok(read.into_iter().filter(|booking| booking.order == ORDER).collect())
}

fn found_by(event: &EventView) -> String {
    let said = said(event);
    let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or("?").to_owned();
    format!("{}: {}", text("by"), text("outcome"))
}

/// What the API says of a job that has ended.
struct Facts {
    events: Vec<EventView>,
    job: JobView,
    trace: TraceView,
    verify: VerifyView,
}

impl Facts {
    async fn ask(witness: &Witness) -> Result<Self, Fault> {
        let (client, job) = (&witness.client, witness.job.as_str());
        let api = |what: &'static str| move |error| Fault::api(what, error);
        let page = client.get::<EventPage>(&["api", "jobs", job, "events"], &[]).await;
        let events = page.map_err(api("the job's events"))?.body.events;
        let view = client.get::<JobView>(&["api", "jobs", job], &[]).await.map_err(api("the job"))?.body;
        let trace = client.get::<TraceView>(&["api", "jobs", job, "trace"], &[]).await.map_err(api("the trace"))?.body;
        let verify = client.get::<VerifyView>(&["api", "jobs", job, "verify"], &[]).await;
        Ok(Self { events, job: view, trace, verify: verify.map_err(api("the verification"))?.body })
    }

    /// Every claim that does not hold, in words; empty words for those that do.
    fn differences(&self, bookings: &[Booking], expected: &Expected) -> Vec<String> {
        let count = |kind: &str| self.events.iter().filter(|event| of_refund(event, kind)).count();
        let claim = |holds: bool, words: String| if holds { String::new() } else { words };
        let requeues: Vec<Value> = self
            .events
            .iter()
            .filter(|event| event.kind == "job_requeued")
            .map(|event| said(event)["reason"].clone())
            .collect();
        let resolved = self.events.iter().find(|event| of_refund(event, "in_doubt_resolved")).map(found_by);
        let source =
            self.trace.steps.iter().find(|step| step.node_id.as_str() == "send_refund").and_then(|step| step.source);
        let result = self.job.result.as_ref().map(|result| result.value().clone()).unwrap_or_default();
        let booked = bookings.first().map(|booking| booking.refund_id.as_str());
        let late = &self.trace.evidence;
        let failed = self.verify.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str());
        let failed: Vec<&str> = failed.collect();
        vec![
            claim(bookings.len() == 1, format!("{} bookings of order {ORDER} instead of 1", bookings.len())),
            claim(self.job.status == JobStatus::Completed, format!("the job is {}", self.job.status.as_str())),
            claim(
                booked.is_some() && result["refund_id"].as_str() == booked,
                format!("the job's result {result} is not the booking {booked:?}"),
            ),
            claim(
                count("tool_invocation_started") == 1,
                format!("{} permissions to call instead of 1", count("tool_invocation_started")),
            ),
            claim(requeues == [expected.requeued], format!("requeued for {requeues:?}, not for {}", expected.requeued)),
            claim(
                resolved.as_deref() == Some("reconcile: happened"),
                format!("the doubt was answered by {resolved:?}, not by reconcile"),
            ),
            claim(source == Some(Source::Reconciled), format!("the trace says that the result is {source:?}")),
            claim(
                late.len() == expected.evidence && late.iter().all(|evidence| !evidence.conflict),
                format!("late evidence {late:?} instead of {} without conflict", expected.evidence),
            ),
            claim(self.verify.valid, format!("verify finds fault with {failed:?}")),
        ]
    }
}

/// The proof that the log can count to two: the same call sent twice, without a runtime.
#[derive(Debug, Serialize)]
pub(super) struct Control {
    pub(super) bookings: usize,
    pub(super) calls: usize,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) acts: Vec<Finding>,
    pub(super) as_claimed: bool,
    pub(super) control: Control,
    pub(super) elapsed_ms: u64,
    /// The folder, where it is kept.
    pub(super) folder: Option<String>,
}

impl Report {
    pub(super) fn tell(&self, story: &Story) {
        let mut table =
            Table::new(&["ACT", "KILLED OR STOPPED", ">BOOKINGS", "JOB", "OUTCOME FOUND BY", "LATE ANSWER", "CHAIN"]);
        let good = |holds: bool, text: &str| story.paint(if holds { Tone::Good } else { Tone::Bad }, text);
        let control = &self.control;
        table.row(vec![
            "–".to_owned(),
            "nothing: the same call twice by hand".to_owned(),
            good(control.bookings == control.calls, &control.bookings.to_string()),
            "none".to_owned(),
        ]);
        for finding in &self.acts {
            table.row(vec![
                finding.act.to_string(),
                finding.interrupted.to_owned(),
                good(finding.bookings == 1, &finding.bookings.to_string()),
                good(
                    finding.job_status == Some(JobStatus::Completed),
                    finding.job_status.map_or("–", JobStatus::as_str),
                ),
                finding.found_by.clone(),
                if finding.late_evidence == 0 { "none".to_owned() } else { "kept as evidence".to_owned() },
                good(finding.chain_valid, if finding.chain_valid { "valid" } else { "not valid" }),
            ]);
        }
        story.line("");
        story.line(
            &story.paint(Tone::Strong, "What was proved. Bookings are counted in the payments service's own log."),
        );
        story.line(table.render(story.style()).trim_end());
    }
}
