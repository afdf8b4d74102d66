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

use crate::bounds::Measured;

/// The share of the most that judging may cost, beyond which it takes long.
const LONG: usize = 100;

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
    measured: Measured,
    validator: Validator,
}

/// What judging a value may cost, at worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Work {
    /// Parts of the value times parts of the schema, and numbers times divisions.
    parts: usize,
    /// Bytes of its texts times bytes of the compiled patterns.
    patterns: usize,
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// What is wrong with it, all that is known.
    pub fn compile(schema: &Json) -> Result<Self, Vec<Problem>> {
        let measured = bounds::check(schema)?;
        match build(schema.value(), limits::SCHEMA_PATTERN_BYTES_MAX) {
            Ok(validator) => Ok(Self { measured, validator }),
            Err(error) => Err(vec![Problem { message: words(&error), path: error.instance_path().to_string() }]),
        }
    }

    /// The most memory that it takes, in bytes; never more than [`limits::SCHEMAS_KEPT_BYTES_MAX`].
    #[must_use]
    pub fn memory(&self) -> usize {
        self.measured.memory
    }

    /// Patterns as they are written: what compiling it costs.
    #[must_use]
    pub fn patterns(&self) -> usize {
        self.measured.patterns
    }

    /// Whether judging a value may take longer than other work of its thread should wait for.
    #[must_use]
    pub fn takes_long(&self, value: &Json) -> bool {
        let work = self.work(value);
        work.parts > limits::SCHEMA_WORK_MAX / LONG || work.patterns > limits::SCHEMA_PATTERN_WORK_MAX / LONG
    }

    fn work(&self, value: &Json) -> Work {
        let mut held = Held::default();
        held.measure(value.value());
        let judge = self.measured.judge;
        let divisions = judge.divisions.saturating_mul(held.numbers);
        Work {
            parts: judge.parts.saturating_mul(held.parts).saturating_add(divisions),
            patterns: judge.patterns.saturating_mul(held.bytes),
        }
    }

    /// In what a value does not fit; nothing where it does. At most a few of its mistakes, and of a large value
    /// only that there is one: finding all would take more memory than the value. A value whose judging could take
    /// more than a moment does not fit.
    #[must_use]
    pub fn violations(&self, value: &Json) -> Vec<Violation> {
        let work = self.work(value);
        if work.parts > limits::SCHEMA_WORK_MAX || work.patterns > limits::SCHEMA_PATTERN_WORK_MAX {
            let what = if work.parts > limits::SCHEMA_WORK_MAX { "parts" } else { "patterns" };
            let message = format!("the value is too large to be judged by the {what} of this schema in bounded time");
            return vec![Violation { message, path: String::new() }];
        }
        if self.validator.is_valid(value.value()) {
            return Vec::new();
        }
        if work.parts > limits::SCHEMA_DETAIL_WORK_MAX {
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

/// What a value holds.
#[derive(Debug, Default)]
struct Held {
    /// Bytes of its texts, names of fields included.
    bytes: usize,
    /// Its numbers, weighed by their digits.
    numbers: usize,
    /// Its parts.
    parts: usize,
}

impl Held {
    fn measure(&mut self, value: &Value) {
        self.parts += 1;
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.measure(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.bytes += name.len();
                    self.measure(field);
                }
            }
            Value::String(text) => self.bytes += text.len(),
            Value::Number(number) => self.numbers += bounds::digits(number),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

fn build(schema: &Value, pattern_bytes: usize) -> Result<Validator, ValidationError<'static>> {
    let patterns = PatternOptions::regex().size_limit(pattern_bytes).dfa_size_limit(bounds::REMEMBERED_BYTES);
    let options = jsonschema::options().with_draft(Draft::Draft202012).offline().with_pattern_options(patterns);
    options.build(schema).map_err(ValidationError::to_owned)
}

/// Whether a pattern takes at most so many bytes when it is compiled.
fn compiles(pattern: &str, bytes: usize) -> bool {
    build(&serde_json::json!({ "pattern": pattern }), bytes).is_ok()
}
