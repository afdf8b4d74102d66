//! What was found after an act: in the payments service's own log, and in what the store says of the job.

use std::path::Path;

use aetheris_api::{EventPage, EventView, EvidenceView, JobView, TraceView, VerifyView};
use aetheris_core::event::Source;
use aetheris_core::job::JobStatus;
use serde::Serialize;
use serde_json::Value;

use super::acts::Act;
use super::payments::{self, Booking};
use super::refund::{ORDER, Witness, of_refund};
use super::story::Story;
use crate::commands::process_control::{Fault, said};
use crate::render::Tone;

/// How the outcome of the call is found in every act.
const FOUND_BY: &str = "reconcile: happened";

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
    /// Refunds of the order in the payments service's log; nothing where the act broke off.
    pub(super) bookings: Option<usize>,
    /// What `verify` says of the job.
    pub(super) chain_valid: Option<bool>,
    /// What is not as claimed.
    pub(super) differs: Vec<String>,
    /// How the outcome of the call was found.
    pub(super) found_by: String,
    pub(super) interrupted: &'static str,
    pub(super) job_id: String,
    pub(super) job_status: Option<JobStatus>,
    /// Late answers that were kept and changed nothing.
    pub(super) late_evidence: Vec<EvidenceView>,
    pub(super) title: &'static str,
    /// The line of the events that says how the outcome was found.
    pub(super) trace_line: Option<String>,
}

impl Finding {
    /// An act that broke off.
    pub(super) fn broken(act: Act, fault: &Fault) -> Self {
        Self {
            act: act.number(),
            bookings: None,
            chain_valid: None,
            differs: vec![fault.to_string()],
            found_by: dash(),
            interrupted: act.interrupted(),
            job_id: String::new(),
            job_status: None,
            late_evidence: Vec::new(),
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
        let told = Told::by(witness).await?;
        let resolved = told.events.iter().find(|event| of_refund(event, "in_doubt_resolved"));
        let facts = Facts::new(&bookings, &told);
        Ok(Self {
            act: act.number(),
            bookings: Some(bookings.len()),
            chain_valid: Some(told.verify.valid),
            differs: facts.differences(expected),
            found_by: resolved.map_or_else(dash, found_by),
            interrupted: act.interrupted(),
            job_id: witness.job.clone(),
            job_status: Some(told.job.status),
            title: act.title(),
            trace_line: resolved.map(|event| format!("#{} {} {}", event.seq, event.kind, event.payload.text())),
            late_evidence: told.trace.evidence,
        })
    }

    /// Tells the end of the act.
    pub(super) fn tell(&self, act: Act, story: &Story) {
        if let Some(line) = &self.trace_line {
            story.turn(Tone::Good, "found by", line);
        }
        for late in &self.late_evidence {
            let refund = late.outcome.get("result").and_then(|result| result["refund_id"].as_str()).unwrap_or("none");
            let conflict = if late.conflict { "contradicts" } else { "does not contradict" };
            let what = format!("late answer to permission {}: refund {refund}; it {conflict} the history", late.permit);
            story.turn(if late.conflict { Tone::Bad } else { Tone::Good }, "evidence", &what);
        }
        if let Some(bookings) = self.bookings {
            let refunds = if bookings == 1 { "refund" } else { "refunds" };
            let tone = if self.differs.is_empty() { Tone::Good } else { Tone::Bad };
            let count = format!("{bookings} {refunds} of order {ORDER} in the payments service's own log");
            story.turn(tone, "proof", &count);
            story.turn(Tone::Dim, "contrast", act.naive());
        }
        for difference in &self.differs {
            story.line(&story.paint(Tone::Bad, &format!("  not as claimed: {difference}")));
        }
    }
}

/// Stands for what is not known.
pub(super) fn dash() -> String {
    "–".to_owned()
}

/// The refunds of the order in the service's log, read from its file.
///
/// # Errors
/// The log cannot be read.
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
struct Told {
    events: Vec<EventView>,
    job: JobView,
    trace: TraceView,
    verify: VerifyView,
}

impl Told {
    async fn by(witness: &Witness) -> Result<Self, Fault> {
        let (client, job) = (&witness.client, witness.job.as_str());
        let api = |what: &'static str| move |error| Fault::api(what, error);
        let page = client.get::<EventPage>(&["api", "jobs", job, "events"], &[]).await;
        let events = page.map_err(api("the job's events"))?.body.events;
        let view = client.get::<JobView>(&["api", "jobs", job], &[]).await.map_err(api("the job"))?.body;
        let trace = client.get::<TraceView>(&["api", "jobs", job, "trace"], &[]).await.map_err(api("the trace"))?.body;
        let verify = client.get::<VerifyView>(&["api", "jobs", job, "verify"], &[]).await;
        Ok(Self { events, job: view, trace, verify: verify.map_err(api("the verification"))?.body })
    }
}

/// What the claims are about.
#[derive(Debug, Clone)]
struct Facts {
    /// The refunds in the service's log.
    booked: Vec<String>,
    checks: usize,
    checks_failed: Vec<String>,
    /// Whether each late answer contradicts the history.
    conflicts: Vec<bool>,
    found_by: Option<String>,
    permissions: usize,
    /// The refund in the job's result.
    refund: Option<String>,
    requeues: Vec<String>,
    source: Option<Source>,
    status: JobStatus,
    valid: bool,
}

impl Facts {
    fn new(bookings: &[Booking], told: &Told) -> Self {
        let Told { events, job, trace, verify } = told;
        let of_kind = |kind: &'static str| events.iter().filter(move |event| event.kind == kind);
        let reason = |event: &EventView| said(event)["reason"].as_str().unwrap_or("?").to_owned();
        let refund = job.result.as_ref().and_then(|result| result.get("refund_id")).and_then(Value::as_str);
        let failed = verify.checks.iter().filter(|check| !check.ok);
        Self {
            booked: bookings.iter().map(|booking| booking.refund_id.clone()).collect(),
            checks: verify.checks.len(),
            checks_failed: failed.map(|check| format!("{}: {}", check.name, check.detail)).collect(),
            conflicts: trace.evidence.iter().map(|evidence| evidence.conflict).collect(),
            found_by: events.iter().find(|event| of_refund(event, "in_doubt_resolved")).map(found_by),
            permissions: events.iter().filter(|event| of_refund(event, "tool_invocation_started")).count(),
            refund: refund.map(str::to_owned),
            requeues: of_kind("job_requeued").map(reason).collect(),
            source: trace.steps.iter().find(|step| step.node_id.text() == "send_refund").and_then(|step| step.source),
            status: job.status,
            valid: verify.valid,
        }
    }

    /// Every claim that does not hold, in words.
    fn differences(&self, expected: &Expected) -> Vec<String> {
        let claims = [
            (self.booked.len() == 1, format!("{} bookings of order {ORDER} instead of 1", self.booked.len())),
            (self.status == JobStatus::Completed, format!("the job is {}", self.status.as_str())),
            (
                self.refund.is_some() && self.refund.as_ref() == self.booked.first(),
                format!("the job's result has the refund {:?}, the log {:?}", self.refund, self.booked),
            ),
            (self.permissions == 1, format!("{} permissions to call instead of 1", self.permissions)),
            (
                self.requeues == [expected.requeued],
                format!("the job was requeued for {:?} instead of {} once", self.requeues, expected.requeued),
            ),
            (
                self.found_by.as_deref() == Some(FOUND_BY),
                format!("the doubt was answered by {:?} instead of {FOUND_BY}", self.found_by),
            ),
            (self.source == Some(Source::Reconciled), format!("the trace says that the result is {:?}", self.source)),
            (
                self.conflicts.len() == expected.evidence,
                format!("{} late answers are kept instead of {}", self.conflicts.len(), expected.evidence),
            ),
            (!self.conflicts.contains(&true), "a late answer contradicts the job's history".to_owned()),
            (
                self.valid && self.checks > 0 && self.checks_failed.is_empty(),
                format!("verify made {} checks and finds fault with {:?}", self.checks, self.checks_failed),
            ),
        ];
        claims.into_iter().filter(|(holds, _)| !holds).map(|(_, words)| words).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spoil = fn(&mut Facts);

    const EXPECTED: Expected = Expected { evidence: 1, requeued: "lease_expired" };

    fn as_claimed() -> Facts {
        Facts {
            booked: vec!["rf-1".to_owned()],
            checks: 3,
            checks_failed: Vec::new(),
            conflicts: vec![false],
            found_by: Some(FOUND_BY.to_owned()),
            permissions: 1,
            refund: Some("rf-1".to_owned()),
            requeues: vec!["lease_expired".to_owned()],
            source: Some(Source::Reconciled),
            status: JobStatus::Completed,
            valid: true,
        }
    }

    #[test]
    fn every_claim_can_fail() {
        assert_eq!(as_claimed().differences(&EXPECTED), Vec::<String>::new());
        let wrong: [(Spoil, &str); 11] = [
            (|facts| facts.booked.push("rf-2".to_owned()), "2 bookings"),
            (|facts| facts.status = JobStatus::Failed, "the job is failed"),
            (|facts| facts.refund = Some("rf-7".to_owned()), "rf-7"),
            (|facts| facts.refund = None, "None"),
            (|facts| facts.permissions = 2, "2 permissions"),
            (|facts| facts.requeues.clear(), "requeued"),
            (|facts| facts.found_by = Some("operator: happened".to_owned()), "operator"),
            (|facts| facts.source = Some(Source::Executed), "Executed"),
            (|facts| facts.conflicts.clear(), "0 late answers"),
            (|facts| facts.conflicts = vec![true], "contradicts"),
            (|facts| facts.checks = 0, "verify made 0 checks"),
        ];
        for (spoil, words) in wrong {
            let mut facts = as_claimed();
            spoil(&mut facts);
            let differences = facts.differences(&EXPECTED);
            assert!(differences.len() == 1 && differences[0].contains(words), "{words}: {differences:?}");
        }
    }
}
