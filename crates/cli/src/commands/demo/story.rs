//! How the story is told: short lines with the time since its beginning.

use aetheris_api::EventView;
use tokio::time::Instant;

use crate::out::Out;
use crate::render::{Style, Tone, cut, events};

/// Columns of the name before a line.
const WHO_COLUMNS: usize = 10;
/// Columns of a line's text, at most.
const TEXT_COLUMNS: usize = 110;

/// The narrator. With `--json`, stdout is for the one value and the story goes to stderr.
pub(super) struct Story {
    began: Instant,
    out: Out,
}

impl Story {
    pub(super) fn begin(out: &Out) -> Self {
        Self { began: Instant::now(), out: out.clone() }
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A line as it is. If nobody reads, the proof goes on: its end says so.
    pub(super) fn line(&self, line: &str) {
        if self.out.json {
            self.out.note(line);
        } else {
            let _unread = self.out.line(line);
        }
    }

    pub(super) fn act(&self, title: &str) {
        self.line("");
        self.line(&self.paint(Tone::Strong, title));
    }

    /// Who does what.
    pub(super) fn tell(&self, who: &str, what: &str) {
        self.timed(who, &cut(what, TEXT_COLUMNS), None);
    }

    /// The same, for the turns of the story.
    pub(super) fn turn(&self, tone: Tone, who: &str, what: &str) {
        self.timed(who, &cut(what, TEXT_COLUMNS), Some(tone));
    }

    fn timed(&self, who: &str, what: &str, tone: Option<Tone>) {
        let seconds = self.began.elapsed().as_secs_f64();
        let time = self.paint(Tone::Dim, &format!("{seconds:6.2}s"));
        let what = tone.map_or_else(|| what.to_owned(), |tone| self.paint(tone, what));
        self.line(&format!("{time}  {who:<WHO_COLUMNS$}  {what}"));
    }

    /// An event of the job, where it moves the story.
    pub(super) fn event(&self, event: &EventView) {
        let tone = match event.kind.as_str() {
            "job_requeued" | "step_in_doubt" => Some(Tone::Attention),
            "in_doubt_resolved" | "job_completed" => Some(Tone::Good),
            "job_waiting" | "wait_completed" | "job_claimed" => None,
            "node_finished" if event.payload.text().contains("query_order") => None,
            "node_finished" if event.payload.text().contains("\"decide\"") => None,
            _ => return,
        };
        let text = format!("#{:<3}{} {}", event.seq, event.kind, events::summary(&event.kind, event.payload.text()));
        self.timed("event", &cut(&text, TEXT_COLUMNS), tone);
    }

    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        self.style().paint(tone, text)
    }

    /// Colour is chosen by stdout, to which nothing of this goes with `--json`.
    pub(super) fn style(&self) -> Style {
        if self.out.json { Style { color: false } } else { self.out.style }
    }
}
