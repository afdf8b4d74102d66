//! Operators and the conversions they share. Integers are exact or an error, never rounded.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use aetheris_core::json::Json;
use serde_json::{Map, Number, Value};

use crate::ast::Binary;
use crate::error::ExprError;
use crate::eval::Operand;

#[derive(Debug, Clone, Copy)]
enum Num {
    Float(f64),
    Int(i128),
}

impl Num {
    fn of(value: &Value) -> Option<Self> {
        let number = value.as_number()?;
        let int = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        int.map(Self::Int).or_else(|| number.as_f64().map(Self::Float))
    }

    #[expect(clippy::cast_precision_loss, reason = "arithmetic with decimals is not exact")]
    fn float(self) -> f64 {
        match self {
            Self::Float(float) => float,
            Self::Int(int) => int as f64,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers within the range of i128 are converted")]
    fn compare(self, other: Self) -> Option<Ordering> {
        const WHOLE_MAX: f64 = 1e30;
        let whole = |num| match num {
            Self::Int(int) => Some(int),
            Self::Float(float) => (float.fract() == 0.0 && float.abs() < WHOLE_MAX).then_some(float as i128),
        };
        match (whole(self), whole(other)) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => self.float().partial_cmp(&other.float()),
        }
    }
}

/// What kind of value it is, for messages.
pub(crate) const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Whether it counts as true: everything but null, false, zero and what is empty.
pub(crate) fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(holds) => *holds,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// The value inside a text: a text as it is, everything else as canonical JSON.
pub(crate) fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(Json::new(other.clone()).to_string()),
    }
}

/// The elements of a list, or the keys of an object.
pub(crate) fn elements(list: Operand<'_>) -> Result<Vec<Operand<'_>>, ExprError> {
    match list {
        Cow::Borrowed(Value::Array(items)) => Ok(items.iter().map(Cow::Borrowed).collect()),
        Cow::Owned(Value::Array(items)) => Ok(items.into_iter().map(Cow::Owned).collect()),
        other => match other.as_ref() {
            Value::Object(fields) => Ok(fields.keys().map(|key| Cow::Owned(Value::String(key.clone()))).collect()),
            value => Err(ExprError::failed(format!("{} has no elements: a list is needed", kind(value)))),
        },
    }
}

/// How many [`elements`] makes.
pub(crate) fn count(list: &Value) -> usize {
    match list {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Where a position that may count from the end lies.
pub(crate) fn position(at: i64, length: usize) -> Option<usize> {
    if at >= 0 {
        return usize::try_from(at).ok();
    }
    length.checked_sub(usize::try_from(at.unsigned_abs()).ok()?)
}

fn bounds(length: usize, from: Option<i64>, to: Option<i64>) -> Range<usize> {
    let place = |at: i64| {
        if at >= 0 { usize::try_from(at).unwrap_or(length).min(length) } else { position(at, length).unwrap_or(0) }
    };
    let end = to.map_or(length, place);
    from.map_or(0, place).min(end)..end
}

/// What [`slice`] takes of a list.
pub(crate) fn part(items: &[Value], from: Option<i64>, to: Option<i64>) -> &[Value] {
    &items[bounds(items.len(), from, to)]
}

pub(crate) fn slice(value: &Value, from: Option<i64>, to: Option<i64>) -> Result<Value, ExprError> {
    match value {
        Value::Array(items) => Ok(Value::Array(part(items, from, to).to_vec())),
        Value::String(text) => {
            let range = bounds(text.chars().count(), from, to);
            Ok(Value::String(text.chars().skip(range.start).take(range.len()).collect()))
        }
        other => Err(ExprError::failed(format!("{} cannot be cut: a list or a text can", kind(other)))),
    }
}

pub(crate) fn int(value: i128) -> Result<Value, ExprError> {
    let number = i64::try_from(value).map(Number::from).or_else(|_| u64::try_from(value).map(Number::from));
    number
        .map(Value::Number)
        .map_err(|_| ExprError::failed("the result is outside the range of integers that are kept exactly"))
}

pub(crate) fn float(value: f64) -> Result<Value, ExprError> {
    Number::from_f64(value).map(Value::Number).ok_or_else(|| ExprError::failed("the result is not a finite number"))
}

pub(crate) fn negate(value: &Value) -> Result<Value, ExprError> {
    match Num::of(value) {
        Some(Num::Int(number)) => int(-number),
        Some(Num::Float(number)) => float(-number),
        None => Err(ExprError::failed(format!("{} has no negative: a number does", kind(value)))),
    }
}

/// Equality by value: `1` and `1.0` are equal, inside lists and objects too.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => same_fields(a, b),
        // Comparing no bytes takes some processors longer than comparing a thousand: an empty text lies nowhere.
        (Value::String(a), Value::String(b)) => a.len() == b.len() && (a.is_empty() || a == b),
        _ => match (Num::of(left), Num::of(right)) {
            (Some(a), Some(b)) => a.compare(b) == Some(Ordering::Equal),
            _ => left == right,
        },
    }
}

fn same_fields(left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    left.len() == right.len() && left.iter().all(|(key, a)| right.get(key).is_some_and(|b| equal(a, b)))
}

/// The order of two numbers or two texts; nothing else has one.
pub(crate) fn compare(left: &Value, right: &Value) -> Result<Ordering, ExprError> {
    let order = match (left, right) {
        (Value::String(a), Value::String(b)) if a.is_empty() || b.is_empty() => Some(a.len().cmp(&b.len())),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => Num::of(left).zip(Num::of(right)).and_then(|(a, b)| a.compare(b)),
    };
    order.ok_or_else(|| {
        ExprError::failed(format!("{} and {} have no order: compare numbers or texts", kind(left), kind(right)))
    })
}

pub(crate) fn contains(container: &Value, item: &Value) -> Result<bool, ExprError> {
    match (container, item) {
        (Value::Array(items), _) => Ok(items.iter().any(|element| equal(element, item))),
        (Value::Object(fields), Value::String(key)) => Ok(fields.contains_key(key)),
        (Value::String(text), Value::String(part)) => Ok(text.contains(part.as_str())),
        _ => Err(ExprError::failed(format!("`in` does not work for {} in {}", kind(item), kind(container)))),
    }
}

pub(crate) fn binary(operator: Binary, left: &Value, right: &Value) -> Result<Value, ExprError> {
    let ordered = |wanted: fn(Ordering) -> bool| compare(left, right).map(|order| Value::Bool(wanted(order)));
    match operator {
        Binary::Eq => Ok(Value::Bool(equal(left, right))),
        Binary::Ne => Ok(Value::Bool(!equal(left, right))),
        Binary::Lt => ordered(Ordering::is_lt),
        Binary::Le => ordered(Ordering::is_le),
        Binary::Gt => ordered(Ordering::is_gt),
        Binary::Ge => ordered(Ordering::is_ge),
        Binary::In => contains(right, left).map(Value::Bool),
        Binary::NotIn => contains(right, left).map(|found| Value::Bool(!found)),
        Binary::Concat => Ok(Value::String(format!("{}{}", text(left), text(right)))),
        Binary::And => Ok(Value::Bool(truth(left) && truth(right))),
        Binary::Or => Ok(Value::Bool(truth(left) || truth(right))),
        Binary::Add => add(left, right),
        Binary::Div | Binary::FloorDiv | Binary::Mul | Binary::Pow | Binary::Rem | Binary::Sub => {
            arithmetic(operator, left, right)
        }
    }
}

fn add(left: &Value, right: &Value) -> Result<Value, ExprError> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => Ok(Value::String(format!("{a}{b}"))),
        (Value::Array(a), Value::Array(b)) => Ok(Value::Array(a.iter().chain(b).cloned().collect())),
        _ => arithmetic(Binary::Add, left, right),
    }
}

fn arithmetic(operator: Binary, left: &Value, right: &Value) -> Result<Value, ExprError> {
    let (Some(a), Some(b)) = (Num::of(left), Num::of(right)) else {
        let message = format!(
            "{} and {} cannot be used in arithmetic: convert texts with `| int` or `| float`; join texts with `~`",
            kind(left),
            kind(right)
        );
        return Err(ExprError::failed(message));
    };
    if matches!(operator, Binary::Div | Binary::FloorDiv | Binary::Rem) && b.float() == 0.0 {
        return Err(ExprError::failed("division by zero"));
    }
    if let (Num::Int(a), Num::Int(b)) = (a, b)
        && let Some(result) = whole(operator, a, b)
    {
        return result.map_or_else(|| int(i128::MAX), int);
    }
    let (a, b) = (a.float(), b.float());
    float(match operator {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::FloorDiv => float_floor_div(a, b).0,
        Binary::Rem => float_floor_div(a, b).1,
        Binary::Pow => a.powf(b),
        _ => a / b,
    })
}

/// Division that rounds down, so that the remainder has the sign of the divisor.
fn floor_div(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    let inexact = a.checked_rem(b)? != 0;
    if inexact && (a < 0) != (b < 0) { quotient.checked_sub(1) } else { Some(quotient) }
}

/// The same of doubles, and the remainder. From the exact remainder: `a / b` may have been rounded up to the next whole
/// number, as in `-3 // 7 ** -3`.
fn float_floor_div(a: f64, b: f64) -> (f64, f64) {
    let rem = a % b;
    // Whole, but for rounding.
    let quotient = ((a - rem) / b).round();
    if rem == 0.0 {
        (quotient, 0.0_f64.copysign(b))
    } else if (rem < 0.0) == (b < 0.0) {
        (quotient, rem)
    } else {
        (quotient - 1.0, rem + b)
    }
}

/// The exact result for integers, `None` where the operator leaves them, `Some(None)` on overflow.
fn whole(operator: Binary, a: i128, b: i128) -> Option<Option<i128>> {
    match operator {
        Binary::Add => Some(a.checked_add(b)),
        Binary::Sub => Some(a.checked_sub(b)),
        Binary::Mul => Some(a.checked_mul(b)),
        Binary::FloorDiv => Some(floor_div(a, b)),
        Binary::Rem => Some(floor_div(a, b).and_then(|quotient| a.checked_sub(quotient.checked_mul(b)?))),
        Binary::Pow if b >= 0 => Some(u32::try_from(b).ok().and_then(|b| a.checked_pow(b))),
        _ => None,
    }
}
