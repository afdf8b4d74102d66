//! JSON values as they are accepted, kept and hashed.
//!
//! Canonical bytes follow RFC 8785 in ordering, escaping and number form, with one difference that
//! SPEC §3 asks for: integers are exact up to `i64` and `u64`, and what is beyond is refused.
//!
//! A value is kept in the form in which its canonical bytes are read back: a double that they write as an
//! integer is that integer from the start. What a plan computes therefore does not depend on whether a
//! value was stored and loaded in between.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::limits;

mod strict;

/// Why a value is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// A number would change when it is read.
    #[error(
        "the number {0} would be another when it is read: whole numbers are kept from -2^63 to 2^64-1 and written without \
         a point; put others in quotes"
    )]
    Number(String),
    /// An object names a key twice, so that two readers may take it for two different values.
    #[error("the key {0} appears twice in one object")]
    Twice(String),
    /// It is nested too deep.
    #[error("the value is nested deeper than {} levels", limits::JSON_DEPTH_MAX)]
    Depth,
    /// It is too large.
    #[error("the value has {0} bytes in canonical form, more than the {max} that are accepted", max = limits::PAYLOAD_BYTES_MAX)]
    Size(usize),
}

/// A shared, immutable JSON value. Cloning is cheap; serializing it is canonical; reading its canonical
/// bytes gives an equal value.
#[derive(Clone, PartialEq)]
pub struct Json(Arc<Value>);

impl Json {
    /// Reads a field that is there, in which `null` is a value; only an absent one is none.
    ///
    /// # Errors
    /// Those of reading a value.
    pub fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Self::deserialize(deserializer).map(Some)
    }

    /// JSON's `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Arc::new(Value::Null))
    }

    /// A value whose bounds were checked or that this code made itself.
    #[must_use]
    pub fn new(mut value: Value) -> Self {
        normalise(&mut value);
        Self(Arc::new(value))
    }

    /// Reads JSON from outside, within the limits of size (as sent and in canonical form), depth and exact
    /// numbers, and without objects that name a key twice. A byte order mark before it is skipped.
    ///
    /// # Errors
    /// [`JsonError`] says which limit or rule the text breaks.
    pub fn parse(text: &[u8]) -> Result<Self, JsonError> {
        let text = without_mark(text);
        if text.len() > limits::PAYLOAD_BYTES_MAX {
            return Err(JsonError::Size(text.len()));
        }
        let growth = check_numbers_and_depth(text)?;
        let json = Self(Arc::new(strict::parse(text)?));
        // Only exponents are longer in canonical form than as they were sent.
        if text.len().saturating_add(growth) <= limits::PAYLOAD_BYTES_MAX {
            return Ok(json);
        }
        let size = json.canonical().len();
        if size > limits::PAYLOAD_BYTES_MAX { Err(JsonError::Size(size)) } else { Ok(json) }
    }

    /// Checks the limits of size and depth of a value that came in another way than by [`Json::parse`].
    ///
    /// # Errors
    /// [`JsonError`] says which limit it breaks.
    pub fn checked(value: Value) -> Result<Self, JsonError> {
        if deeper_than(&value, limits::JSON_DEPTH_MAX) {
            return Err(JsonError::Depth);
        }
        let json = Self::new(value);
        let size = json.canonical().len();
        if size > limits::PAYLOAD_BYTES_MAX { Err(JsonError::Size(size)) } else { Ok(json) }
    }

    /// The value itself.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Its canonical bytes.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        to_canonical(self)
    }

    /// About how much memory the value takes, in bytes: an estimate that is the same on every machine. Small objects take
    /// up to eighty times their text.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory(&self.0)
    }

    /// The hash of its canonical bytes.
    #[must_use]
    pub fn hash(&self) -> crate::hash::Hash {
        crate::hash::Hash::of(&self.canonical())
    }
}

/// What holds one value, its key in an object, and the smallest object that is not empty: the map keeps eleven places at
/// a time, of which about six are in use.
const VALUE_BYTES: usize = 32;
const ENTRY_BYTES: usize = 112;
const OBJECT_BYTES: usize = 640;

fn memory(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => VALUE_BYTES,
        Value::String(text) => VALUE_BYTES + text.len(),
        // A list that grew has room for up to twice its items.
        Value::Array(items) => items.iter().map(memory).sum::<usize>() + VALUE_BYTES * (1 + items.len()),
        Value::Object(fields) if fields.is_empty() => VALUE_BYTES,
        Value::Object(fields) => {
            let inside: usize = fields.iter().map(|(key, value)| key.len() + memory(value) - VALUE_BYTES).sum();
            VALUE_BYTES + inside + OBJECT_BYTES.max(ENTRY_BYTES * fields.len())
        }
    }
}

impl Deref for Json {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::new(value)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.canonical()))
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Sorted(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

/// A value whose objects are written in the order of RFC 8785: by UTF-16 code units, which differs
/// from the map's own order only where keys leave ASCII.
struct Sorted<'a>(&'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                if object.keys().all(|key| key.is_ascii()) {
                    for (key, value) in object {
                        map.serialize_entry(key, &Sorted(value))?;
                    }
                } else {
                    let mut entries: Vec<_> = object.iter().collect();
                    entries.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
                    for (key, value) in entries {
                        map.serialize_entry(key, &Sorted(value))?;
                    }
                }
                map.end()
            }
            Value::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(&Sorted(item))?;
                }
                seq.end()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => self.0.serialize(serializer),
        }
    }
}

/// Canonical bytes of anything whose structs list their fields in alphabetical order and whose free
/// values are [`Json`]. The events of this crate keep that rule, and a test holds them to it.
///
/// # Panics
/// Never for such types: writing to memory does not fail, and their maps have text keys.
#[must_use]
#[expect(clippy::expect_used, reason = "serialising our own types to memory cannot fail")]
pub fn to_canonical<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Canonical);
    value.serialize(&mut serializer).expect("canonical serialization of an in-memory value");
    out
}

/// The hash of [`to_canonical`], of which no more than a piece is ever in memory.
///
/// # Panics
/// As [`to_canonical`].
#[must_use]
#[expect(clippy::expect_used, reason = "serialising our own types into a digest cannot fail")]
pub fn canonical_hash<T: Serialize>(value: &T) -> crate::hash::Hash {
    let mut hashing = crate::hash::Hashing::default();
    let mut serializer = serde_json::Serializer::with_formatter(&mut hashing, Canonical);
    value.serialize(&mut serializer).expect("canonical serialization into a digest");
    hashing.finish()
}

/// [`to_canonical`] if it has at most `max` bytes: no more than that is ever made of a larger value.
#[must_use]
pub fn to_canonical_within<T: Serialize>(value: &T, max: usize) -> Option<Vec<u8>> {
    let mut out = Bounded { bytes: Vec::with_capacity(128), max };
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Canonical);
    value.serialize(&mut serializer).ok()?;
    Some(out.bytes)
}

/// Memory that takes so many bytes and no more.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.max - self.bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Canonical;

impl serde_json::ser::Formatter for Canonical {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(ecma_number(value).as_bytes())
    }
}

/// A double as ECMAScript writes it, which is RFC 8785's form.
fn ecma_number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{:e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let point = exponent + 1;
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    let body = if count <= point && point <= 21 {
        format!("{digits}{}", zeros(point - count))
    } else if 0 < point && point <= 21 {
        let (whole, rest) = digits.split_at(usize::try_from(point).unwrap_or(0));
        format!("{whole}.{rest}")
    } else if -6 < point && point <= 0 {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        format!("{first}{dot}{rest}e{sign}{}", exponent.abs())
    };
    if value < 0.0 { format!("-{body}") } else { body }
}

/// The text without the mark that some editors and shells put before UTF-8.
#[must_use]
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Puts every number into the form that its canonical text is read as.
fn normalise(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(integer) = written_as_integer(number) {
                *number = integer;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Object(fields) => fields.values_mut().for_each(normalise),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The integer that a double's canonical text is read as, where it is one.
fn written_as_integer(number: &Number) -> Option<Number> {
    /// 2^64, from where on no text is an integer.
    const BEYOND: f64 = 18_446_744_073_709_551_616.0;
    let double = number.as_f64().filter(|double| number.is_f64() && double.fract() == 0.0 && double.abs() < BEYOND)?;
    let text = ecma_number(double);
    text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok()
}

/// Whether lists and objects are nested in a value deeper than so many levels. It looks no deeper itself.
#[must_use]
pub fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|v| deeper_than(v, levels - 1)),
        Value::Object(object) => levels == 0 || object.values().any(|v| deeper_than(v, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// One pass over the raw text: the parser would turn a too large integer silently into a double. Answers
/// by how many bytes the canonical form may be longer.
fn check_numbers_and_depth(text: &[u8]) -> Result<usize, JsonError> {
    let (mut depth, mut at, mut growth) = (0usize, 0usize, 0usize);
    while at < text.len() {
        match text[at] {
            b'"' => at = skip_string(text, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > limits::JSON_DEPTH_MAX {
                    return Err(JsonError::Depth);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let end = text[at..]
                    .iter()
                    .position(|b| !matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'))
                    .map_or(text.len(), |n| at + n);
                check_number(&String::from_utf8_lossy(&text[at..end]))?;
                if text[at..end].iter().any(|byte| matches!(byte, b'e' | b'E')) {
                    growth = growth.saturating_add(NUMBER_BYTES_MAX);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(growth)
}

/// The longest canonical number: a sign, 17 digits, a point and an exponent of three digits.
const NUMBER_BYTES_MAX: usize = 25;

/// The index of the quote that ends the string which begins at `start`, or the last index of the text.
fn skip_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at,
            _ => at += 1,
        }
    }
    text.len()
}

/// Whether a number is read as what its text says, as far as that is promised. Readers of other forms than JSON ask it too.
///
/// # Errors
/// [`JsonError::Number`].
pub fn check_number(literal: &str) -> Result<(), JsonError> {
    let exact = if literal.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        // What is no number is the parser's to refuse.
        literal.parse::<f64>().map_or(true, |double| double.is_finite() && keeps_value(literal, double))
    } else {
        literal.parse::<i64>().is_ok()
            || literal.parse::<u64>().is_ok()
            || !literal.bytes().any(|b| b.is_ascii_digit())
            || is_written_double(literal)
    };
    if exact { Ok(()) } else { Err(JsonError::Number(literal.to_owned())) }
}

/// Whether a literal with a fraction or an exponent says what it is read as, as far as that is promised: an integer within
/// range that is written with a point, or with an exponent of zero, is exact, and only zero is zero. Any other is a decimal,
/// of which the nearest double is kept, as of `0.1`.
fn keeps_value(literal: &str, double: f64) -> bool {
    let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_zero = |digits: &str| digits.bytes().all(|digit| digit == b'0');
    let is_integer = is_zero(fraction) && is_zero(exponent.trim_start_matches(['+', '-']));
    let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
    match whole.parse::<i128>() {
        Ok(integer) if is_integer && range.contains(&integer) => {
            integer == 0 || ecma_number(double) == integer.to_string()
        }
        Ok(_) | Err(_) => double != 0.0 || is_zero(&[whole.trim_start_matches(['+', '-']), fraction].concat()),
    }
}

/// Whether these digits are what the canonical form makes of a double: up to 10^21 it has no exponent, so
/// that `1e20` comes back as an integer of 21 digits. It is as exact as it was.
fn is_written_double(literal: &str) -> bool {
    literal.parse::<f64>().is_ok_and(|double| double.is_finite() && ecma_number(double) == literal)
}

#[cfg(test)]
mod tests;
