//! What was proved, as a table and as one JSON value.

use aetheris_core::job::JobStatus;
use serde::Serialize;

use super::finding::{Finding, dash};
use super::story::Story;
use crate::render::{Table, Tone};

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
        let mut table = Table::new(&["ACT", "KILLED OR STOPPED", ">BOOKED", "JOB", "FOUND BY", "LATE ANSWER", "CHAIN"]);
        let good = |holds: bool, text: &str| story.paint(if holds { Tone::Good } else { Tone::Bad }, text);
        let control = &self.control;
        table.row(vec![
            "–".to_owned(),
            "nothing: called by hand".to_owned(),
            good(control.bookings == control.calls, &control.bookings.to_string()),
            "none".to_owned(),
        ]);
        for finding in &self.acts {
            let chain = finding.chain_valid.map_or("–", |valid| if valid { "valid" } else { "not valid" });
            table.row(vec![
                finding.act.to_string(),
                finding.interrupted.to_owned(),
                good(finding.bookings == Some(1), &finding.bookings.map_or_else(dash, |count| count.to_string())),
                good(
                    finding.job_status == Some(JobStatus::Completed),
                    finding.job_status.map_or("–", JobStatus::as_str),
                ),
                finding.found_by.strip_suffix(": happened").unwrap_or(&finding.found_by).to_owned(),
                if finding.late_evidence.is_empty() { "none".to_owned() } else { "kept".to_owned() },
                good(finding.chain_valid == Some(true), chain),
            ]);
        }
        story.line("");
        story.line(
            &story.paint(Tone::Strong, "What was proved. Bookings are counted in the payments service's own log."),
        );
        story.line(table.render(story.style()).trim_end());
    }
}
