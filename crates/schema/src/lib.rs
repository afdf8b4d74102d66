//! JSON Schema 2020-12, as agent files may use it: for messages and for what ends a wait.
//!
//! A schema is an author's, what it judges is anybody's. So that judging is bounded, a schema is refused when it
//! is put: where it refers to anything outside of itself or back to itself, where it is too large, and where
//! a keyword is not one of JSON Schema, which the standard would have ignored. Patterns match in linear time.
//! `format` says something to people and is not checked, as the standard has it.
//!
//! Reading order: this file, then `bounds` (what is refused before the library sees it).

mod bounds;

use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::schema::Violation;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong and what to do.
    pub message: String,
    /// Where in the schema, as a JSON pointer; empty for the whole.
    pub path: String,
}

/// A schema that can be asked.
#[derive(Debug)]
pub struct Schema {
    /// Subschemas that one part of a value may be asked about.
    parts: usize,
    validator: Validator,
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// What is wrong with it, all that is known.
    pub fn compile(schema: &Json) -> Result<Self, Vec<Problem>> {
        let parts = bounds::check(schema)?;
        let patterns = PatternOptions::regex()
            .size_limit(limits::SCHEMA_PATTERN_BYTES_MAX)
            .dfa_size_limit(limits::SCHEMA_PATTERN_BYTES_MAX);
        let options = jsonschema::options().with_draft(Draft::Draft202012).offline().with_pattern_options(patterns);
        match options.build(schema.value()) {
            Ok(validator) => Ok(Self { parts, validator }),
            Err(error) => Err(vec![Problem { message: words(&error), path: error.instance_path().to_string() }]),
        }
    }

    /// In what a value does not fit; nothing where it does. At most a few of its mistakes, and of a large value
    /// only that there is one: finding all would take more memory than the value.
    #[must_use]
    pub fn violations(&self, value: &Json) -> Vec<Violation> {
        if self.validator.is_valid(value.value()) {
            return Vec::new();
        }
        if nodes(value.value()).saturating_mul(self.parts) > limits::SCHEMA_DETAIL_WORK_MAX {
            let message = "does not fit the schema; the value is too large for its mistakes to be listed".to_owned();
            return vec![Violation { message, path: String::new() }];
        }
        let errors = self.validator.iter_errors(value.value()).take(limits::SCHEMA_VIOLATIONS_MAX);
        errors.map(|error| Violation { message: words(&error), path: error.instance_path().to_string() }).collect()
    }
}

/// Without the value itself, which may be long and may be secret.
fn words(error: &ValidationError<'_>) -> String {
    const SHOWN_MAX: usize = 300;
    let words = error.masked_with("this value").to_string();
    match words.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(nodes).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}
