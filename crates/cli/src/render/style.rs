//! Colour: a few tones with a meaning each.

use aetheris_core::job::JobStatus;
use aetheris_core::step::StepStatus;

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

/// Whether text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Whether it is.
    pub color: bool,
}

impl Style {
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
            StepStatus::Running => Tone::Active,
            StepStatus::Pending | StepStatus::Skipped => Tone::Dim,
        }
    }

    /// The sign of a step's status.
    #[must_use]
    pub const fn glyph(status: StepStatus) -> &'static str {
        match status {
            StepStatus::Pending => "·",
            StepStatus::Running => "▸",
            StepStatus::Retrying => "↻",
            StepStatus::Waiting => "◦",
            StepStatus::InDoubt => "?",
            StepStatus::Completed => "✓",
            StepStatus::Failed => "✗",
            StepStatus::Skipped => "–",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_only_where_it_is_wanted() {
        assert_eq!(Style { color: false }.job(JobStatus::Failed), "failed");
        assert_eq!(Style { color: true }.job(JobStatus::Failed), "\u{1b}[31mfailed\u{1b}[0m");
        assert_eq!(Style { color: true }.paint(Tone::Good, ""), "");
    }
}
