//! Why a job is where it is.

use aetheris_api::WhyView;

use super::safe::one_line;
use super::{Now, Style, Tone, clock, wrap};

/// The reasons, each with its times and a command.
#[must_use]
pub fn page(reasons: &[WhyView], program: &str, style: Style, now: Now) -> String {
    reasons.iter().map(|reason| paragraph(reason, program, style, now)).collect::<Vec<_>>().join("\n")
}

fn paragraph(reason: &WhyView, program: &str, style: Style, now: Now) -> String {
    let code = code(reason);
    let detail = wrap(&one_line(&reason.detail), style.columns, code.len() + 2, 2);
    let until = reason.until.map(|at| format!(", until {} ({})", clock(at), now.relative(at))).unwrap_or_default();
    let times = format!("since {} ({}){until}", clock(reason.since), now.relative(reason.since));
    let times = wrap(&times, style.columns, 2, 2);
    // On one line whatever the width: a terminal that breaks it copies it whole.
    let advice = one_line(&reason.advice);
    let advice = advice.strip_prefix("aetheris ").map_or_else(|| advice.clone(), |words| format!("{program} {words}"));
    let kept = super::jobs::kept(&reason.kept, style, now);
    let (code, times) = (style.paint(Tone::Strong, &code), style.paint(Tone::Dim, &times));
    format!("{code}  {detail}\n  {times}\n  {advice}\n{kept}")
}

/// One reason on one line.
#[must_use]
pub fn line(reason: &WhyView, now: Now) -> String {
    let until = reason.until.map(|at| format!(" (until {}, {})", clock(at), now.relative(at))).unwrap_or_default();
    one_line(&format!("{}{until}", reason.detail))
}

/// The stable name of a reason.
fn code(reason: &WhyView) -> String {
    let name = serde_json::to_value(reason.code).ok();
    name.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}
