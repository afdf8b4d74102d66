//! How text looks: the width it may have, and colour, of which a few tones have a meaning each.

use aetheris_core::job::JobStatus;
use aetheris_core::step::StepStatus;

use super::cut;
use super::safe::one_line;

/// Fewest columns that a text is cut to, however narrow the terminal is.
const FIT_MIN: usize = 12;

/// What a colour says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// It ended well.
    Good,
    /// It failed.
    Bad,
    /// Someone should look.
    Attention,
    /// It is being worked on.
    Active,
    /// Less important.
    Dim,
    /// A heading.
    Strong,
}

/// How text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Whether it is coloured.
    pub color: bool,
    /// The columns of the terminal; nothing where there is none, and then nothing is cut or wrapped.
    pub columns: Option<usize>,
}

impl Style {
    /// What others wrote, on one line and within the terminal, of whose line `used` columns are taken.
    #[must_use]
    pub fn fit(self, text: &str, used: usize) -> String {
        match self.columns {
            Some(columns) => cut(text, columns.saturating_sub(used).max(FIT_MIN)),
            None => one_line(text),
        }
    }

    /// Text in a tone.
    #[must_use]
    pub fn paint(self, tone: Tone, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Attention => "33",
            Tone::Active => "36",
            Tone::Dim => "2",
            Tone::Strong => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A job's status in its tone.
    #[must_use]
    pub fn job(self, status: JobStatus) -> String {
        let tone = match status {
            JobStatus::Completed => Tone::Good,
            JobStatus::Failed => Tone::Bad,
            JobStatus::Waiting | JobStatus::Parked | JobStatus::Paused => Tone::Attention,
            JobStatus::Running => Tone::Active,
            JobStatus::Pending | JobStatus::Cancelled => Tone::Dim,
        };
        self.paint(tone, status.as_str())
    }

    /// The tone of a step's status.
    #[must_use]
    pub const fn step(status: StepStatus) -> Tone {
        match status {
            StepStatus::Completed => Tone::Good,
            StepStatus::Failed => Tone::Bad,
            StepStatus::Waiting | StepStatus::InDoubt | StepStatus::Retrying => Tone::Attention,
            StepStatus::Running | StepStatus::Validating | StepStatus::Refining => Tone::Active,
            StepStatus::Pending | StepStatus::Skipped | StepStatus::Rejected => Tone::Dim,
        }
    }

    /// The sign of a step's status.
    #[must_use]
    pub const fn glyph(status: StepStatus) -> &'static str {
        match status {
            StepStatus::Pending => "·",
            StepStatus::Running | StepStatus::Validating => "▸",
            StepStatus::Retrying | StepStatus::Refining => "↻",
            StepStatus::Waiting => "◦",
            StepStatus::InDoubt => "?",
            StepStatus::Completed => "✓",
            StepStatus::Failed => "✗",
            StepStatus::Skipped | StepStatus::Rejected => "–",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_only_where_it_is_wanted() {
        let of = |color| Style { color, columns: None };
        assert_eq!(of(false).job(JobStatus::Failed), "failed");
        assert_eq!(of(true).job(JobStatus::Failed), "\u{1b}[31mfailed\u{1b}[0m");
        assert_eq!(of(true).paint(Tone::Good, ""), "");
    }
}
