//! JSON values as they are accepted, kept and hashed.
//!
//! Canonical bytes follow RFC 8785 in ordering, escaping and number form, with one difference that
//! SPEC §3 asks for: integers are exact up to `i64` and `u64`, and what is beyond is refused.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits;

/// Why a value is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// A number cannot be kept exactly.
    #[error(
        "the number {0} is outside the range that is kept exactly (integers from -2^63 to 2^64-1, finite decimals)"
    )]
    Number(String),
    /// It is nested too deep.
    #[error("the value is nested deeper than {} levels", limits::JSON_DEPTH_MAX)]
    Depth,
    /// It is too large.
    #[error("the value has {0} bytes, more than the {max} that are accepted", max = limits::PAYLOAD_BYTES_MAX)]
    Size(usize),
}

/// A shared, immutable JSON value. Cloning is cheap; serializing it is canonical.
#[derive(Clone, PartialEq)]
pub struct Json(Arc<Value>);

impl Json {
    /// JSON's `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Arc::new(Value::Null))
    }

    /// A value whose bounds were checked or that this code made itself.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self(Arc::new(value))
    }

    /// Reads JSON from outside, within the limits of size, depth and exact numbers.
    ///
    /// # Errors
    /// [`JsonError`] says which limit or rule the text breaks.
    pub fn parse(text: &[u8]) -> Result<Self, JsonError> {
        if text.len() > limits::PAYLOAD_BYTES_MAX {
            return Err(JsonError::Size(text.len()));
        }
        check_numbers_and_depth(text)?;
        serde_json::from_slice(text).map(Self::new).map_err(|e| JsonError::Syntax(e.to_string()))
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

    /// The hash of its canonical bytes.
    #[must_use]
    pub fn hash(&self) -> crate::hash::Hash {
        crate::hash::Hash::of(&self.canonical())
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

fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|v| deeper_than(v, levels - 1)),
        Value::Object(object) => levels == 0 || object.values().any(|v| deeper_than(v, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// One pass over the raw text: the parser would turn a too large integer silently into a double.
fn check_numbers_and_depth(text: &[u8]) -> Result<(), JsonError> {
    let (mut depth, mut at) = (0usize, 0usize);
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
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

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

fn check_number(literal: &str) -> Result<(), JsonError> {
    let exact = if literal.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        literal.parse::<f64>().map_or(true, f64::is_finite)
    } else {
        literal.parse::<i64>().is_ok()
            || literal.parse::<u64>().is_ok()
            || !literal.bytes().any(|b| b.is_ascii_digit())
            || is_written_double(literal)
    };
    if exact { Ok(()) } else { Err(JsonError::Number(literal.to_owned())) }
}

/// Whether these digits are what the canonical form makes of a double: up to 10^21 it has no exponent, so
/// that `1e20` comes back as an integer of 21 digits. It is as exact as it was.
fn is_written_double(literal: &str) -> bool {
    literal.parse::<f64>().is_ok_and(|double| double.is_finite() && ecma_number(double) == literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Json::parse(text.as_bytes()).unwrap().to_string()
    }

    #[test]
    fn numbers_have_the_form_of_rfc_8785() {
        // From the RFC's appendix B and section 3.2.2.3.
        for (text, form) in [
            ("0.0", "0"),
            ("-0.0", "0"),
            ("1e21", "1e+21"),
            ("333333333.33333329", "333333333.3333333"),
            ("1E30", "1e+30"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
            ("0.000000000000000000000000001", "1e-27"),
            ("9007199254740994.0", "9007199254740994"),
            ("-1.5e-7", "-1.5e-7"),
            ("123456789012345680000.0", "123456789012345680000"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
        ] {
            assert_eq!(canonical(text), form);
        }
    }

    #[test]
    fn keys_are_ordered_by_utf16_units_and_strings_escaped_minimally() {
        let text = r#"{"\u20ac":1,"\r":2,"\ud83d\ude00":3,"1":4,"\ufb33":5,"\u0080":6}"#;
        assert_eq!(canonical(text), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{20ac}\":1,\"\u{1f600}\":3,\"\u{fb33}\":5}");
        assert_eq!(canonical(r#""\u000f\n\u0008\/\u00e9""#), "\"\\u000f\\n\\b/\u{e9}\"");
    }

    #[test]
    fn what_cannot_be_kept_exactly_is_refused() {
        for text in ["18446744073709551616", "[-9223372036854775809]", "{\"a\":1e999}"] {
            assert!(matches!(Json::parse(text.as_bytes()), Err(JsonError::Number(_))), "{text}");
        }
        // A double as the canonical form writes it is a double still.
        for text in ["1e20", "123456789012345680000.0", "-36893488147419103000.0", "18446744073709552000"] {
            assert_eq!(canonical(&canonical(text)), canonical(text));
        }
        assert_eq!(canonical(r#""18446744073709551616""#), r#""18446744073709551616""#);
    }

    #[test]
    fn depth_and_size_are_bounded_on_both_ways_in() {
        let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
        assert_eq!(Json::parse(deep.as_bytes()), Err(JsonError::Depth));
        let fits = format!("{}{}", "[".repeat(64), "]".repeat(64));
        assert!(Json::parse(fits.as_bytes()).is_ok());
        assert!(Json::checked(serde_json::from_str(&fits).unwrap()).is_ok());
        assert_eq!(Json::checked(serde_json::from_str(&deep).unwrap()), Err(JsonError::Depth));
        let large = Value::String("x".repeat(limits::PAYLOAD_BYTES_MAX));
        assert!(matches!(Json::checked(large), Err(JsonError::Size(_))));
    }

    #[test]
    fn every_kind_of_value_is_read_shown_and_written_alike() {
        let text = r#"{"a":[null,true,-1,0.5,"x"],"b":{}}"#;
        let json = Json::parse(text.as_bytes()).unwrap();
        assert_eq!((json.to_string(), json.canonical()), (text.to_owned(), text.as_bytes().to_vec()));
        assert_eq!(json.hash(), crate::hash::Hash::of(text.as_bytes()));
        assert_eq!((json.value(), json["a"][1].as_bool()), (&*json, Some(true)));
        assert_eq!(Json::from(Value::Null), Json::null());
        assert_eq!(Json::null().to_string(), "null");
        assert_eq!(format!("{:?}", Json::null()), "Null");
        assert!(matches!(Json::parse(b"{"), Err(JsonError::Syntax(_))));
    }

    #[test]
    fn doubles_change_form_where_the_rfc_says() {
        for (value, form) in [
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e21, "1.5e+21"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.25e-7, "1.25e-7"),
            (12.5, "12.5"),
            (-0.25, "-0.25"),
            (10.0, "10"),
            (1.0, "1"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            assert_eq!(ecma_number(value), form);
        }
    }

    #[test]
    fn depth_is_counted_over_arrays_and_objects_and_not_in_texts() {
        let mixed = |levels: usize| format!("{}1{}", "{\"a\":[".repeat(levels / 2), "]}".repeat(levels / 2));
        assert!(Json::parse(mixed(64).as_bytes()).is_ok());
        assert_eq!(Json::parse(mixed(66).as_bytes()), Err(JsonError::Depth));
        assert!(Json::checked(serde_json::from_str(&mixed(64)).unwrap()).is_ok());
        assert_eq!(Json::checked(serde_json::from_str(&mixed(66)).unwrap()), Err(JsonError::Depth));
        let objects = format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65));
        assert_eq!(Json::checked(serde_json::from_str(&objects).unwrap()), Err(JsonError::Depth));
        let wide = format!("[{}[]]", "[],".repeat(200));
        assert!(Json::parse(wide.as_bytes()).is_ok());
        let quoted = format!("[\"{}\\\"{}\"]", "[".repeat(70), "[".repeat(70));
        assert!(Json::parse(quoted.as_bytes()).is_ok(), "{quoted}");
    }

    #[test]
    fn size_is_bounded_to_the_byte() {
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let (fits, over) = (text(limits::PAYLOAD_BYTES_MAX), text(limits::PAYLOAD_BYTES_MAX + 1));
        assert!(Json::parse(fits.as_bytes()).is_ok());
        assert_eq!(Json::parse(over.as_bytes()), Err(JsonError::Size(over.len())));
        assert!(Json::checked(serde_json::from_str(&fits).unwrap()).is_ok());
        assert_eq!(Json::checked(serde_json::from_str(&over).unwrap()), Err(JsonError::Size(over.len())));
    }

    #[test]
    fn numbers_are_looked_at_wherever_they_stand() {
        let over = "18446744073709551616";
        for text in [over.to_owned(), format!("[{over}]"), format!("{{\"a\":{over}}}"), format!("[1,\"x\\\\\",{over}]")]
        {
            assert_eq!(Json::parse(text.as_bytes()), Err(JsonError::Number(over.to_owned())), "{text}");
        }
        for text in ["[1e-400]", "[-1E+3]", "[0.1,18446744073709551615]", "[-9223372036854775808]"] {
            assert!(Json::parse(text.as_bytes()).is_ok(), "{text}");
        }
        for text in ["-", "[1-]", "1.2.3", "[\"a", "\"\\"] {
            assert!(matches!(Json::parse(text.as_bytes()), Err(JsonError::Syntax(_) | JsonError::Number(_))), "{text}");
        }
    }
}
