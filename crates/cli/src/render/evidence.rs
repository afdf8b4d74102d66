//! Whether what is stored adds up: replay and verify.

use aetheris_api::{CheckView, ReplayView, VerifyView};

use super::safe::one_line;
use super::{Style, Tone, wrap};

/// The outcome of a replay.
#[must_use]
pub fn replay(replay: &ReplayView, style: Style) -> String {
    let mut text = format!("folded {} events\n", replay.events);
    text.push_str(&format!("  state of the fold  {}\n", replay.state_hash));
    text.push_str(&format!("  live state         {}\n", replay.live_state_hash));
    if replay.matches {
        text.push_str(&format!("{}\n", style.paint(Tone::Good, "✓ they match")));
        return text;
    }
    text.push_str(&format!("{}\n", style.paint(Tone::Bad, "✗ they differ; nothing was changed")));
    for difference in &replay.differences {
        text.push_str(&format!("  {}\n", wrap(&one_line(difference), style.columns, 2, 4)));
    }
    text
}

/// The outcome of a verification.
#[must_use]
pub fn verify(verify: &VerifyView, style: Style) -> String {
    let mut text = checks(&verify.checks, style);
    let failed = verify.checks.iter().filter(|check| !check.ok).count();
    let (tone, end) = match (verify.valid, failed) {
        (true, _) => (Tone::Good, format!("valid: {} checks", verify.checks.len())),
        (false, failed) => (Tone::Bad, format!("not valid: {failed} of {} checks failed", verify.checks.len())),
    };
    text.push_str(&format!("{}\n", style.paint(tone, &end)));
    text
}

/// One line a check.
#[must_use]
pub fn checks(checks: &[CheckView], style: Style) -> String {
    let names = checks.iter().map(|check| super::width(&check.name)).max().unwrap_or(0);
    let line = |check: &CheckView| {
        let sign = if check.ok { style.paint(Tone::Good, "✓") } else { style.paint(Tone::Bad, "✗") };
        let used = names + 4;
        let detail = wrap(&one_line(&check.detail), style.columns, used, used.min(8));
        let line = format!("{sign} {:names$}  {}", check.name, style.paint(Tone::Dim, &detail));
        format!("{}\n", line.trim_end())
    };
    checks.iter().map(line).collect()
}
