//! The bounds of one rendering. Whatever copies, makes or looks through data is charged before it does, so that
//! memory is bounded as well as time: counting steps alone would let twenty doublings of a text fill a machine.
//!
//! A unit of work is a step, or some bytes that are looked through; whatever asks for memory costs more than its bytes.
//! Each takes a fraction of a microsecond, whatever the template and the values are.

use aetheris_core::limits;
use serde_json::Value;

use crate::error::ExprError;

/// Bytes that may be copied or looked through for one unit of work.
const BYTES_PER_UNIT: u64 = 256;
/// What a text, list, object or field costs to make and to drop, in such bytes.
const MADE: usize = 64;
/// What a character costs that is handled by itself.
const PER_CHAR: usize = 4;
/// What a byte of a template costs to read.
const PER_BYTE_READ: usize = 16;

/// What one rendering may still do. Work is counted in bytes, so that many small pieces count as much as a large one.
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
        Self::of(limits::TEMPLATE_FUEL, limits::VALUE_FUEL)
    }

    /// No more than a thread that serves others may do between two of them.
    pub(crate) fn moment() -> Self {
        Self::of(limits::MOMENT_FUEL, limits::MOMENT_FUEL)
    }

    fn of(template: u64, value: u64) -> Self {
        Self {
            fuel: template * BYTES_PER_UNIT,
            output: limits::TEMPLATE_OUTPUT_BYTES_MAX,
            reserve: (value - template) * BYTES_PER_UNIT,
        }
    }

    /// Work is bounded for each template, and like output for all templates of a value together. Reading the template
    /// is part of it.
    pub(crate) fn next_template(&mut self, template: &str) -> Result<(), ExprError> {
        let left = self.fuel.saturating_add(self.reserve);
        self.fuel = left.min(limits::TEMPLATE_FUEL * BYTES_PER_UNIT);
        self.reserve = if aetheris_fault::planted!("fuel-for-each-text") { u64::MAX } else { left - self.fuel };
        self.bytes(template.len().saturating_mul(PER_BYTE_READ))
    }

    /// Output is bounded for each text where they are not parts of one value.
    pub(crate) fn next_text(&mut self, template: &str) -> Result<(), ExprError> {
        self.output = limits::TEMPLATE_OUTPUT_BYTES_MAX;
        self.next_template(template)
    }

    /// Whether it has refused something, or would refuse the next step.
    pub(crate) fn is_spent(&self) -> bool {
        self.fuel == 0
    }

    pub(crate) fn steps(&mut self, count: usize) -> Result<(), ExprError> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.spend(count.saturating_mul(BYTES_PER_UNIT))
    }

    /// Charges for bytes that are copied or looked through.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<(), ExprError> {
        self.spend(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Charges for handling the characters of a text one by one.
    pub(crate) fn chars(&mut self, text: &str) -> Result<(), ExprError> {
        self.bytes(text.len().saturating_mul(PER_CHAR))
    }

    /// Charges for texts, lists or objects that are made, without what is in them.
    pub(crate) fn made(&mut self, count: usize) -> Result<(), ExprError> {
        self.bytes(count.saturating_mul(MADE))
    }

    /// Charges for looking through a whole value.
    pub(crate) fn look(&mut self, value: &Value) -> Result<(), ExprError> {
        self.bytes(weight(value))
    }

    /// Charges for copying a whole value, or for writing it as JSON.
    pub(crate) fn copy(&mut self, value: &Value) -> Result<(), ExprError> {
        self.look(value)?;
        self.made(parts(value))
    }

    /// Charges for what becomes part of the result.
    pub(crate) fn output(&mut self, count: usize) -> Result<(), ExprError> {
        self.output = self.output.checked_sub(count).ok_or(ExprError::TooLarge)?;
        Ok(())
    }

    fn spend(&mut self, bytes: u64) -> Result<(), ExprError> {
        match self.fuel.checked_sub(bytes) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => {
                // Another template, which is not part of the same value, may go on: not with what was too little here.
                self.fuel = 0;
                Err(ExprError::Budget)
            }
        }
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

/// How many pieces of memory a copy of it asks for.
fn parts(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Array(items) => 1 + items.iter().map(parts).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(|field| parts(field) + 1).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_once_is_refused_for_all_that_is_left() {
        let mut meter = Meter::new();
        meter.bytes(usize::MAX).unwrap_err();
        assert!(meter.is_spent());
        assert_eq!(meter.bytes(1), Err(ExprError::Budget));
        // Another template has what is left for the value, which is not what was too little for the one before.
        meter.next_template("").unwrap();
        assert!(!meter.is_spent());
        let most = usize::try_from(limits::TEMPLATE_FUEL * BYTES_PER_UNIT).unwrap();
        meter.bytes(most).unwrap();
        assert!(meter.is_spent());
    }

    #[test]
    fn a_value_has_so_many_templates_of_full_work() {
        let mut meter = Meter::new();
        let most = usize::try_from(limits::TEMPLATE_FUEL * BYTES_PER_UNIT).unwrap();
        for _ in 0..limits::VALUE_FUEL / limits::TEMPLATE_FUEL {
            meter.next_template("").unwrap();
            meter.bytes(most).unwrap();
        }
        meter.next_template("").unwrap();
        assert_eq!(meter.bytes(1), Err(ExprError::Budget));
    }

    #[test]
    fn output_is_bounded_for_each_text_and_for_all_templates_of_a_value_together() {
        let most = limits::TEMPLATE_OUTPUT_BYTES_MAX;
        let mut meter = Meter::new();
        meter.output(most).unwrap();
        assert_eq!(meter.output(1), Err(ExprError::TooLarge));
        meter.next_template("").unwrap();
        assert_eq!(meter.output(1), Err(ExprError::TooLarge));
        meter.next_text("").unwrap();
        meter.output(most).unwrap();
    }
}
