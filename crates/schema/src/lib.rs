//! JSON Schema 2020-12, as agent files may use it: for messages and for what ends a wait.
//!
//! A schema is an author's, what it judges is anybody's. So that judging is bounded, a schema is refused when it
//! is put: where it refers to anything outside of itself or back to itself, where it is too large, and where
//! a keyword is not one of JSON Schema, which the standard would have ignored. Patterns match in linear time.
//! `format` says something to people and is not checked, as the standard has it.
//!
//! Reading order: this file, then `bounds` (what is refused before the library sees it), `cost` and `pattern` (what
//! judging takes, in time and memory).

mod bounds;
mod cost;
mod pattern;
mod spelling;

use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::schema::Violation;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;

pub use crate::cost::MATCHERS;
use crate::cost::Measured;

/// The share of the most that judging by parts may cost, beyond which it takes long.
const LONG_PARTS: usize = 100;
/// The same by patterns.
const LONG_PATTERNS: usize = 400;

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

/// What judging a value takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Its matchers may hold more for this value than [`memory`](Schema::memory) says, for as long as the schema is there;
    /// never more than [`limits::SCHEMA_WALKING_BYTES_MAX`]. It may take long, too.
    Large,
    /// It may take longer than other work of its thread should wait for.
    Long,
    /// No more than that.
    Moment,
}

/// What may still be done for schemas that are read together: their patterns take time to compile, and the values that
/// are written beside them to judge.
#[derive(Debug)]
pub struct Allowance {
    judging: Work,
    left: Option<usize>,
    whole: usize,
}

impl Allowance {
    /// Of so many ordinary patterns, and as much work of judging as one value may take.
    #[must_use]
    pub const fn of(patterns: usize) -> Self {
        Self { judging: Work::MOST, left: Some(patterns), whole: patterns }
    }

    const fn is_spent(&self) -> bool {
        self.left.is_none()
    }

    /// Whether there was so much left. Once there was not, there is nothing.
    fn take(&mut self, weight: usize) -> bool {
        self.left = self.left.and_then(|left| left.checked_sub(weight));
        self.left.is_some()
    }

    /// Whether there was so much left to judge a value; if there was not, nothing is taken.
    fn judge(&mut self, work: Work) -> bool {
        let left = self.judging.minus(work);
        if let Some(left) = left {
            self.judging = left;
        }
        left.is_some()
    }
}

impl Default for Allowance {
    /// Of one schema.
    fn default() -> Self {
        Self::of(limits::SCHEMA_PATTERNS_MAX)
    }
}

/// What judging a value may cost, at worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Work {
    /// Parts of the value times parts of the schema, and numbers times divisions.
    parts: usize,
    /// Bytes of its texts times bytes of the compiled patterns.
    patterns: usize,
}

impl Work {
    /// For one value.
    const MOST: Self = Self { parts: limits::SCHEMA_WORK_MAX, patterns: limits::SCHEMA_PATTERN_WORK_MAX };

    fn minus(self, other: Self) -> Option<Self> {
        let parts = self.parts.checked_sub(other.parts)?;
        Some(Self { parts, patterns: self.patterns.checked_sub(other.patterns)? })
    }
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// What is wrong with it, all that is known.
    pub fn compile(schema: &Json) -> Result<Self, Vec<Problem>> {
        Self::compile_within(schema, &mut Allowance::default())
    }

    /// Reads a schema, one of several. What compiling its patterns takes is taken from the allowance before it is done,
    /// whatever becomes of the schema.
    ///
    /// # Errors
    /// What is wrong with it, all that is known.
    pub fn compile_within(schema: &Json, allowance: &mut Allowance) -> Result<Self, Vec<Problem>> {
        let measured = bounds::check(schema, allowance).map_err(|found| with_the_standards(schema, found))?;
        match build(schema.value()) {
            Ok(validator) => Ok(Self { measured, validator }),
            Err(error) => Err(with_the_standards(schema, vec![problem(&error)])),
        }
    }

    /// The most memory that it takes while it is kept and judges no value of [`Effort::Large`], in bytes; never more than [`limits::SCHEMAS_KEPT_BYTES_MAX`]. On more than
    /// [`MATCHERS`] processors it may take more, in proportion.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.measured.memory
    }

    /// What judging a value takes.
    #[must_use]
    pub fn effort(&self, value: &Json) -> Effort {
        let held = Held::by(value);
        let work = self.work(&held);
        let large = held.longest > pattern::UNTABLED_BYTES && self.measured.has_large_tables();
        if large || work.patterns > limits::SCHEMA_PATTERN_WORK_MAX / LONG_PATTERNS {
            Effort::Large
        } else if work.parts > limits::SCHEMA_WORK_MAX / LONG_PARTS {
            Effort::Long
        } else {
            Effort::Moment
        }
    }

    /// The same schema with matchers of its own: what they hold goes with it. `schema` is what this one was read from.
    ///
    /// # Errors
    /// What is wrong with it; nothing is, where this one could be read.
    pub fn anew(&self, schema: &Json) -> Result<Self, Vec<Problem>> {
        let validator = build(schema.value()).map_err(|error| vec![problem(&error)])?;
        Ok(Self { measured: self.measured, validator })
    }

    fn work(&self, held: &Held) -> Work {
        let judge = self.measured.judge;
        let divisions = judge.divisions.saturating_mul(held.numbers);
        Work {
            parts: judge.parts.saturating_mul(held.parts).saturating_add(divisions),
            patterns: judge.pattern_bytes.saturating_mul(held.bytes),
        }
    }

    /// In what a value does not fit; nothing where it does. At most a few of its mistakes, and of a large value
    /// only that there is one: finding all would take more memory than the value. A value whose judging could take
    /// more than a moment does not fit.
    #[must_use]
    pub fn violations(&self, value: &Json) -> Vec<Violation> {
        let work = self.work(&Held::by(value));
        if Work::MOST.minus(work).is_none() {
            let what = if work.parts > Work::MOST.parts { "parts" } else { "patterns" };
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
        let mut room = limits::SCHEMA_VIOLATIONS_BYTES_MAX;
        errors
            .map(|error| Violation { message: words(&error), path: place(&error) })
            .take_while(|violation| {
                let left = room.checked_sub(violation.message.len() + violation.path.len());
                room = left.unwrap_or(0);
                left.is_some()
            })
            .collect()
    }

    /// The same of a value that is written beside its schema: what judging takes is taken from the allowance before.
    #[must_use]
    pub fn violations_within(&self, value: &Json, allowance: &mut Allowance) -> Vec<Violation> {
        let work = self.work(&Held::by(value));
        if Work::MOST.minus(work).is_some() && !allowance.judge(work) {
            let message = "the values that are judged together take too long for the schemas that they are judged by: \
                           make the values or the schemas smaller";
            return vec![Violation { message: message.to_owned(), path: String::new() }];
        }
        self.violations(value)
    }
}

/// Where in the value: the names of its fields are as long as whoever sends it likes.
fn place(error: &ValidationError<'_>) -> String {
    limits::cut(error.instance_path().to_string(), limits::FILE_PATH_BYTES_MAX)
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
    /// Bytes of its texts, names of fields included, and their ends: a pattern is tried at each place.
    bytes: usize,
    /// Bytes of the longest of them.
    longest: usize,
    /// Its numbers, weighed by their digits.
    numbers: usize,
    /// Its parts.
    parts: usize,
}

impl Held {
    fn by(value: &Json) -> Self {
        let mut held = Self::default();
        held.measure(value.value());
        held
    }

    fn text(&mut self, text: &str) {
        self.bytes += text.len() + 1;
        self.longest = self.longest.max(text.len());
    }

    fn measure(&mut self, value: &Value) {
        self.parts += 1;
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.measure(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.text(name);
                    self.measure(field);
                }
            }
            Value::String(text) => self.text(text),
            Value::Number(number) => self.numbers += cost::digits(number),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

fn build(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    // What is larger is refused before; the library may not measure to the byte as it is done here.
    let patterns = PatternOptions::regex()
        .size_limit(2 * limits::SCHEMA_PATTERN_BYTES_MAX)
        .dfa_size_limit(pattern::REMEMBERED_BYTES);
    let options = jsonschema::options().with_draft(Draft::Draft202012).offline().with_pattern_options(patterns);
    options.build(schema).map_err(ValidationError::to_owned)
}

/// What was found, and what the standard has against the schema elsewhere.
fn with_the_standards(schema: &Json, mut found: Vec<Problem>) -> Vec<Problem> {
    let meta = jsonschema::draft202012::meta::validator();
    for error in meta.iter_errors(schema.value()).take(limits::SCHEMA_VIOLATIONS_MAX) {
        let problem = problem(&error);
        if found.len() < limits::SCHEMA_VIOLATIONS_MAX && found.iter().all(|known| known.path != problem.path) {
            found.push(problem);
        }
    }
    found
}

/// What the library calls no value of any of the standard's own alternatives.
const NO_TYPE: &str =
    "is no type of JSON Schema: array, boolean, integer, null, number, object, string, or a list of these";

fn problem(error: &ValidationError<'_>) -> Problem {
    let (path, words) = (error.instance_path().to_string(), words(error));
    let is_type = path.ends_with("/type") && words.contains("'anyOf'");
    Problem { message: if is_type { NO_TYPE.to_owned() } else { words }, path }
}
