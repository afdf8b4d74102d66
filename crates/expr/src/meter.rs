//! The bounds of one rendering. Whatever copies or makes data is charged before it does, so that memory
//! is bounded as well as time: counting steps alone would let twenty doublings of a text fill a machine.

use aetheris_core::limits;
use serde_json::Value;

use crate::error::ExprError;

/// Bytes that may be copied or looked through for one unit of work.
const BYTES_PER_UNIT: usize = 256;

/// What one rendering may still do.
#[derive(Debug)]
pub(crate) struct Meter {
    /// For the template that is rendered now.
    fuel: u64,
    output: usize,
    /// For the templates of the same value that come after it.
    reserve: u64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            fuel: limits::TEMPLATE_FUEL,
            output: limits::TEMPLATE_OUTPUT_BYTES_MAX,
            reserve: limits::VALUE_FUEL - limits::TEMPLATE_FUEL,
        }
    }

    /// Work is bounded for each template, and like output for all templates of a value together.
    pub(crate) fn next_template(&mut self) {
        let left = self.fuel.saturating_add(self.reserve);
        self.fuel = left.min(limits::TEMPLATE_FUEL);
        self.reserve = left - self.fuel;
    }

    /// Output is bounded for each text where they are not parts of one value.
    pub(crate) fn next_text(&mut self) {
        self.next_template();
        self.output = limits::TEMPLATE_OUTPUT_BYTES_MAX;
    }

    pub(crate) fn steps(&mut self, count: usize) -> Result<(), ExprError> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.fuel = self.fuel.checked_sub(count).ok_or(ExprError::Budget)?;
        Ok(())
    }

    /// Charges for bytes that are copied or looked through.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<(), ExprError> {
        self.steps(count / BYTES_PER_UNIT)
    }

    /// Charges for copying or looking through a whole value.
    pub(crate) fn value(&mut self, value: &Value) -> Result<(), ExprError> {
        self.bytes(weight(value))
    }

    /// Charges for what becomes part of the result.
    pub(crate) fn output(&mut self, count: usize) -> Result<(), ExprError> {
        self.output = self.output.checked_sub(count).ok_or(ExprError::TooLarge)?;
        Ok(())
    }
}

/// About the bytes a value takes as JSON.
pub(crate) fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| weight(item) + 1).sum::<usize>(),
        Value::Object(fields) => 2 + fields.iter().map(|(key, field)| key.len() + 4 + weight(field)).sum::<usize>(),
    }
}
