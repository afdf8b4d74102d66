//! What steps were given and gave: a line each, or whole.

use std::collections::BTreeMap;

use aetheris_api::{StepValuesView, TraceDoubt, ValueOrigin, ValueView};
use aetheris_core::path::StepPath;

use super::{Style, Tone, json_line, json_page, safe};

/// Columns before a value.
const INDENT: usize = 11;

/// Values by step, and how much of them is shown.
#[derive(Debug, Clone, Default)]
pub struct Values {
    /// Whether they are shown whole, over several lines.
    pub full: bool,
    /// The values.
    pub steps: BTreeMap<StepPath, StepValuesView>,
}

impl Values {
    /// The lines below a step; empty where nothing is known of it.
    #[must_use]
    pub fn below(&self, node: &StepPath, style: Style) -> String {
        let Some(step) = self.steps.get(node) else { return String::new() };
        let input = step.input.as_ref().map(|value| self.line("in", value, style));
        let output = step.output.as_ref().map(|value| self.line("out", value, style));
        [input, output].into_iter().flatten().collect()
    }

    /// The lines below the first round of a step: those of the step where no other round has followed.
    #[must_use]
    pub fn below_first(&self, node: &StepPath, style: Style) -> String {
        let Some(first) = self.steps.get(node).and_then(|step| step.first_round.as_ref()) else {
            return self.below(node, style);
        };
        let input = first.input.as_ref().map(|value| self.line("in", value, style));
        let output = first.output.as_ref().map(|value| self.line("out", value, style));
        [input, output].into_iter().flatten().collect()
    }

    /// What calls returned, as their doubts tell: no step has it as its output.
    #[must_use]
    pub fn said(&self, doubts: &[TraceDoubt], style: Style) -> String {
        doubts.iter().filter_map(|doubt| Some(self.line("out", doubt.result.as_ref()?, style))).collect()
    }

    fn line(&self, name: &str, value: &ValueView, style: Style) -> String {
        let rendered = self.full && value.from == ValueOrigin::Rendered;
        let note = if rendered { "(rendered) " } else { "" };
        let name = format!("      {name:<INDENT$}", INDENT = INDENT - 6);
        let shown = match (self.full, &value.value) {
            (true, Some(value)) => json_page(value.value(), INDENT),
            (false, Some(whole)) => style.fit(&json_line(whole.value()), INDENT),
            (_, None) => style.fit(&unfinished(value, style), INDENT),
        };
        format!("{}{note}{shown}\n", style.paint(Tone::Dim, &name))
    }
}

/// The beginning of a value that is larger than was asked for, or why there is none.
fn unfinished(value: &ValueView, style: Style) -> String {
    if let Some(error) = &value.error {
        return format!("cannot be rendered: {}", safe::one_line(error));
    }
    let text = safe::one_line(value.text.as_deref().unwrap_or_default());
    let size = format!("… ({} bytes)", value.bytes);
    match style.columns {
        Some(columns) => format!("{}{size}", super::cut(&text, columns.saturating_sub(INDENT + size.len()).max(8))),
        None => format!("{text}{size}"),
    }
}
