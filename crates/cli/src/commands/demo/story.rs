//! How the story is told: short lines with the time since its beginning.

use aetheris_api::EventView;
use serde_json::Value;
use tokio::time::Instant;

use crate::out::Out;
use crate::render::{Style, Tone, cut, json_line, one_line, wrap};

/// Columns of the name before a line.
const WHO_COLUMNS: usize = 10;
/// Columns of what stands before a line's text: its time, and who did it.
const BEFORE_COLUMNS: usize = 7 + 2 + WHO_COLUMNS + 2;
/// Columns of a line's text, at most.
const TEXT_COLUMNS: usize = 100;
/// Columns of one value in it, at most.
const VALUE_COLUMNS: usize = 80;

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
        self.timed(who, &self.fit(what), None);
    }

    /// The same, for the turns of the story.
    pub(super) fn turn(&self, tone: Tone, who: &str, what: &str) {
        self.timed(who, &self.fit(what), Some(tone));
    }

    /// A line's text, in as many lines of the terminal as it takes behind its time and who did it.
    fn fit(&self, text: &str) -> String {
        wrap(&cut(&one_line(text), TEXT_COLUMNS), self.style().columns, BEFORE_COLUMNS, BEFORE_COLUMNS)
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
            _ => None,
        };
        if let Some(words) = words(event) {
            let text = self.fit(&format!("#{:<3}{} {words}", event.seq, event.kind));
            self.timed("event", text.trim_end(), tone);
        }
    }

    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        self.style().paint(tone, text)
    }

    /// Colour is chosen by stdout, to which nothing of this goes with `--json`.
    pub(super) fn style(&self) -> Style {
        if self.out.json { Style::default() } else { self.out.style }
    }
}

/// What an event says; nothing for those that are not told.
fn words(event: &EventView) -> Option<String> {
    let said: Value = serde_json::from_str(event.payload.text()).unwrap_or_default();
    let text = |key: &str| said.get(key).map(|value| cut(&json_line(value), VALUE_COLUMNS)).unwrap_or_default();
    let node = text("node");
    match event.kind.as_str() {
        "job_claimed" => Some(format!("epoch {} for {}", event.epoch, text("worker"))),
        "job_requeued" => Some(text("reason")),
        "job_waiting" if text("doubt") == "true" => Some(format!("{node}: {}", text("reason"))),
        "job_waiting" => Some(format!("{node}: for a person; no worker holds the job meanwhile")),
        "node_finished" if node == "decide" => Some(format!("{node}: the model says {}", text("output"))),
        "node_finished" if node == "query_order" => Some(node),
        "tool_invocation_started" => Some(format!("{node}: permission {}, on disk before the call", text("permit"))),
        "tool_invocation_finished" => Some(format!("{node}: {}, {}", text("outcome"), text("source"))),
        "step_in_doubt" if text("policy") == "0" => Some(format!("{node}: {}", text("reason"))),
        "step_in_doubt" => Some(format!("{node}: still; the next of its policies is tried")),
        "in_doubt_resolved" => Some(format!("{node}: {}, says {}", text("outcome"), text("by"))),
        "wait_completed" => Some(node),
        "job_completed" => Some(String::new()),
        _ => None,
    }
}
