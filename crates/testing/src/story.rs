//! What happened, in the order in which it happened, for people.

use std::time::Duration;

use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use aetheris_core::time::{Span, Timestamp};

use crate::time::BEGINNING;
use crate::world::TestWorld;
use aetheris_store::Scope;

/// The longest that a line says of an event.
const DETAIL_CHARS_MAX: usize = 110;

impl TestWorld {
    /// The job's events and what its tools have seen, by time.
    pub async fn story(&self, job: JobId) -> String {
        self.story_with(job, None).await
    }

    /// The same, with something else that happened.
    pub(crate) async fn story_with(&self, job: JobId, also: Option<(Duration, String)>) -> String {
        let mut lines: Vec<(Timestamp, u8, String)> = Vec::new();
        lines.extend(also.map(|(at, text)| (BEGINNING.after(Span::from_std(at)), 3, text)));
        let mut after = 0;
        while let Ok(page) =
            self.runtime().store.events(Scope::System, job, after, aetheris_core::limits::PAGE_EVENTS_MAX).await
        {
            let Some(last) = page.last() else { break };
            after = last.seq;
            for row in &page {
                let detail = shortened(&String::from_utf8_lossy(&row.payload));
                lines.push((row.at, 1, format!("{:<5} {} {detail}", row.fence, row.kind_name())));
            }
        }
        for line in self.tools().witness().iter().filter(|line| line.job == job) {
            // At one moment: a body ends, its end is recorded, the next one begins.
            let (rank, what) = match line.kind {
                WitnessKind::BodyStart if line.acts => (2, "acts"),
                WitnessKind::BodyStart => (2, "is asked"),
                WitnessKind::BodyEnd => (0, "is done"),
                WitnessKind::Refused => (2, "refuses"),
                WitnessKind::Dropped => (2, "breaks the connection"),
            };
            let text = format!("{:<5}   the tool `{}` {what} in `{}`, {}", line.fence, line.tool, line.node, line.key);
            lines.push((line.at, rank, text));
        }
        lines.sort_by_key(|(at, rank, _)| (*at, *rank));
        let shown = lines.iter().map(|(at, _, text)| format!("  {} {text}", moment(at.since(BEGINNING).to_std())));
        shown.collect::<Vec<_>>().join("\n")
    }
}

/// A moment of virtual time, for people.
pub(crate) fn moment(passed: Duration) -> String {
    format!("{:>5}.{:03} s", passed.as_secs(), passed.subsec_millis())
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= DETAIL_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(DETAIL_CHARS_MAX).chain(std::iter::once('…')).collect()
}
