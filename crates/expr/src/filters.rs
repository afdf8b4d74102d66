//! Filters, as in `value | upper`. Each is charged for its input before it runs, and here for what it
//! makes beyond that.

use std::borrow::Cow;
use std::cmp::Ordering;

use aetheris_core::json::Json;
use serde_json::{Map, Value};

use crate::error::ExprError;
use crate::eval::{Given, Operand, field};
use crate::meter::{Meter, weight};
use crate::{ops, predicates};

const TEXTS: [&str; 10] =
    ["upper", "lower", "capitalize", "title", "trim", "replace", "split", "lines", "urlencode", "fromjson"];
const LISTS: [&str; 13] = [
    "join",
    "first",
    "last",
    "reverse",
    "sort",
    "unique",
    "min",
    "max",
    "sum",
    "list",
    "map",
    "selectattr",
    "rejectattr",
];
const OTHERS: [&str; 13] =
    ["default", "d", "length", "count", "abs", "round", "int", "float", "string", "bool", "items", "tojson", "raw"];

type Outcome<'a> = Result<Operand<'a>, ExprError>;

/// All names, in the order in which messages list them.
pub(crate) fn names() -> Vec<&'static str> {
    OTHERS.into_iter().chain(TEXTS).chain(LISTS).collect()
}

/// Applies the filter of one name.
pub(crate) fn apply<'a>(meter: &mut Meter, name: &str, input: Operand<'a>, given: &Given<'a>) -> Outcome<'a> {
    let call = Call { given, name };
    if TEXTS.contains(&name) {
        return texts(meter, &call, &input).map(Cow::Owned);
    }
    if LISTS.contains(&name) {
        return lists(meter, &call, input);
    }
    call.takes(usize::from(name == "round"), &[])?;
    match name {
        "length" | "count" => length(&input).map(Cow::Owned),
        "abs" => {
            if ops::compare(&input, &Value::from(0))?.is_lt() {
                ops::negate(&input).map(Cow::Owned)
            } else {
                Ok(input)
            }
        }
        "round" => round(&input, call.integer(0)?.unwrap_or(0)).map(Cow::Owned),
        "int" => whole(&input).map(Cow::Owned),
        "float" => decimal(&input).map(Cow::Owned),
        "bool" => Ok(Cow::Owned(Value::Bool(ops::truth(&input)))),
        "items" => pairs(&input).map(Cow::Owned),
        // What it means is decided where the value is written into an address.
        "raw" => Ok(input),
        "tojson" => Ok(Cow::Owned(Value::String(Json::new(input.into_owned()).to_string()))),
        _ => Ok(Cow::Owned(Value::String(ops::text(&input).into_owned()))),
    }
}

/// A filter's name and arguments.
struct Call<'c, 'a> {
    given: &'c Given<'a>,
    name: &'c str,
}

impl<'a> Call<'_, 'a> {
    fn takes(&self, most: usize, names: &[&str]) -> Result<(), ExprError> {
        if self.given.positional.len() > most {
            return Err(ExprError::failed(format!("the filter `{}` takes at most {most} values", self.name)));
        }
        match self.given.named.iter().find(|(name, _)| !names.contains(name)) {
            Some((name, _)) => Err(ExprError::failed(format!("the filter `{}` has no argument `{name}`", self.name))),
            None => Ok(()),
        }
    }

    fn at(&self, place: usize) -> Option<&Value> {
        self.given.positional.get(place).map(AsRef::as_ref)
    }

    fn text(&self, place: usize) -> Result<Option<&str>, ExprError> {
        match self.at(place) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                Err(ExprError::failed(format!("the filter `{}` takes a text, not {}", self.name, ops::kind(other))))
            }
        }
    }

    fn needed(&self, place: usize) -> Result<&str, ExprError> {
        self.text(place)?.ok_or_else(|| {
            ExprError::failed(format!("the filter `{}` needs a text as argument {}", self.name, place + 1))
        })
    }

    fn integer(&self, place: usize) -> Result<Option<i64>, ExprError> {
        let wrong = || ExprError::failed(format!("the filter `{}` takes a whole number", self.name));
        self.at(place).map(|value| value.as_i64().ok_or_else(wrong)).transpose()
    }

    fn named(&self, wanted: &str) -> Option<&Value> {
        self.given.named.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_ref())
    }

    /// The argument `attribute`, a path of fields divided by dots.
    fn attribute(&self) -> Result<Option<&str>, ExprError> {
        let wrong = || ExprError::failed(format!("the argument `attribute` of `{}` must be a text", self.name));
        self.named("attribute").map(|value| value.as_str().ok_or_else(wrong)).transpose()
    }
}

fn texts(meter: &mut Meter, call: &Call<'_, '_>, input: &Value) -> Result<Value, ExprError> {
    let most = match call.name {
        "replace" => 2,
        "split" | "trim" => 1,
        _ => 0,
    };
    call.takes(most, &[])?;
    let text = ops::text(input);
    let list = |parts: &mut dyn Iterator<Item = &str>| Value::Array(parts.map(Value::from).collect());
    Ok(match call.name {
        "upper" => Value::String(text.to_uppercase()),
        "lower" => Value::String(text.to_lowercase()),
        "capitalize" => Value::String(capitalized(&text)),
        "title" => Value::String(titled(&text)),
        "trim" => match call.text(0)? {
            Some(chars) => Value::from(text.trim_matches(|c| chars.contains(c))),
            None => Value::from(text.trim()),
        },
        "replace" => {
            let (old, new) = (call.needed(0)?, call.needed(1)?);
            meter.bytes(text.matches(old).count().saturating_mul(new.len()))?;
            Value::String(text.replace(old, new))
        }
        "split" => {
            meter.steps(text.len() / 16)?;
            match call.text(0)? {
                Some("") => return Err(ExprError::failed("the filter `split` needs a text that is not empty")),
                Some(at) => list(&mut text.split(at)),
                None => list(&mut text.split_whitespace()),
            }
        }
        "lines" => {
            meter.steps(text.len() / 16)?;
            list(&mut text.lines())
        }
        "urlencode" => Value::String(encoded(&text)),
        _ => {
            let json =
                Json::parse(text.as_bytes()).map_err(|error| ExprError::failed(format!("`fromjson`: {error}")))?;
            json.value().clone()
        }
    })
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    first + &chars.as_str().to_lowercase()
}

fn titled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphanumeric() || c == '\'';
    }
    out
}

/// Percent-encodes all but RFC 3986's unreserved characters, so that a value stays one part of a URL.
pub(crate) fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn lists<'a>(meter: &mut Meter, call: &Call<'_, 'a>, input: Operand<'a>) -> Outcome<'a> {
    let (most, names): (usize, &[&str]) = match call.name {
        "join" => (1, &["attribute"]),
        "map" | "unique" | "min" | "max" | "sum" => (0, &["attribute"]),
        "sort" => (0, &["attribute", "reverse"]),
        "selectattr" | "rejectattr" => (3, &[]),
        _ => (0, &[]),
    };
    call.takes(most, names)?;
    if let (Value::String(text), "reverse" | "list") = (input.as_ref(), call.name) {
        meter.steps(text.len() / 4)?;
        return Ok(Cow::Owned(match call.name {
            "reverse" => Value::String(text.chars().rev().collect()),
            _ => Value::Array(text.chars().map(|c| Value::String(c.to_string())).collect()),
        }));
    }
    let mut items = ops::elements(input)?;
    meter.steps(items.len())?;
    match call.name {
        "first" | "last" => {
            let end = if call.name == "first" { items.drain(..).next() } else { items.pop() };
            end.ok_or_else(|| ExprError::Undefined { name: format!("{} of an empty list", call.name) })
        }
        "join" => joined(meter, call, items).map(Cow::Owned),
        "sum" => total(call, items).map(Cow::Owned),
        "min" | "max" => extreme(call, items),
        "reverse" => {
            items.reverse();
            Ok(collected(items))
        }
        "sort" => sorted(meter, call, items),
        "unique" => unique(meter, call, items),
        "map" => mapped(call, items),
        "selectattr" | "rejectattr" => selected(call, items),
        _ => Ok(collected(items)),
    }
}

fn collected<'a>(items: Vec<Operand<'a>>) -> Operand<'a> {
    Cow::Owned(Value::Array(items.into_iter().map(Cow::into_owned).collect()))
}

/// The field at the end of a path, or the item itself without one.
fn at_path<'a>(item: &Operand<'a>, path: Option<&str>) -> Outcome<'a> {
    let Some(path) = path else { return Ok(item.clone()) };
    path.split('.').try_fold(item.clone(), |value, name| {
        field(value, name).ok_or_else(|| ExprError::Undefined { name: path.to_owned() })
    })
}

fn joined(meter: &mut Meter, call: &Call<'_, '_>, items: Vec<Operand<'_>>) -> Result<Value, ExprError> {
    let separator = call.text(0)?.unwrap_or_default();
    let path = call.attribute()?;
    let mut out = String::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            meter.bytes(separator.len())?;
            out.push_str(separator);
        }
        out.push_str(&ops::text(at_path(item, path)?.as_ref()));
    }
    meter.bytes(out.len())?;
    Ok(Value::String(out))
}

fn total(call: &Call<'_, '_>, items: Vec<Operand<'_>>) -> Result<Value, ExprError> {
    let path = call.attribute()?;
    items.iter().try_fold(Value::from(0), |sum, item| {
        let item = at_path(item, path)?;
        // Only numbers: adding lists or texts one by one would copy the growing sum each time.
        if item.is_number() {
            ops::binary(crate::ast::Binary::Add, &sum, &item)
        } else {
            Err(ExprError::failed(format!("`sum` adds numbers, not {}", ops::kind(&item))))
        }
    })
}

fn extreme<'a>(call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = call.attribute()?;
    let wanted = if call.name == "min" { Ordering::Less } else { Ordering::Greater };
    let mut best: Option<(Operand<'a>, Operand<'a>)> = None;
    for item in items {
        let key = at_path(&item, path)?;
        let better = match &best {
            None => true,
            Some((best, _)) => ops::compare(&key, best)? == wanted,
        };
        if better {
            best = Some((key, item));
        }
    }
    best.map(|(_, item)| item).ok_or_else(|| ExprError::Undefined { name: format!("{} of an empty list", call.name) })
}

fn sorted<'a>(meter: &mut Meter, call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = call.attribute()?;
    let rounds = usize::try_from(items.len().checked_ilog2().unwrap_or(0)).unwrap_or(0);
    meter.bytes(items.iter().map(|item| weight(item)).sum::<usize>().saturating_mul(rounds))?;
    meter.steps(items.len().saturating_mul(rounds) / 16)?;
    let mut keyed =
        items.into_iter().map(|item| Ok((at_path(&item, path)?, item))).collect::<Result<Vec<_>, ExprError>>()?;
    let mut problem = None;
    keyed.sort_by(|(a, _), (b, _)| {
        ops::compare(a, b).unwrap_or_else(|error| {
            problem.get_or_insert(error);
            Ordering::Equal
        })
    });
    if let Some(problem) = problem {
        return Err(problem);
    }
    if call.named("reverse").is_some_and(ops::truth) {
        keyed.reverse();
    }
    Ok(collected(keyed.into_iter().map(|(_, item)| item).collect()))
}

fn unique<'a>(meter: &mut Meter, call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = call.attribute()?;
    let mut kept: Vec<(Operand<'a>, Operand<'a>)> = Vec::new();
    for item in items {
        let key = at_path(&item, path)?;
        meter.steps(kept.len() / 16)?;
        meter.bytes(weight(&key).saturating_mul(kept.len()) / 16)?;
        if !kept.iter().any(|(other, _)| ops::equal(other, &key)) {
            kept.push((key, item));
        }
    }
    Ok(collected(kept.into_iter().map(|(_, item)| item).collect()))
}

fn mapped<'a>(call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = call.attribute()?;
    if path.is_none() {
        return Err(ExprError::failed("the filter `map` is written `map(attribute=\"name\")`"));
    }
    let fields = items.iter().map(|item| at_path(item, path)).collect::<Result<Vec<_>, _>>()?;
    Ok(collected(fields))
}

fn selected<'a>(call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = call.needed(0)?;
    let test = call.text(1)?;
    if let Some(name) = test.filter(|name| !predicates::names().contains(name)) {
        return Err(ExprError::failed(format!(
            "`{name}` is not a test; known tests are {}",
            predicates::names().join(", ")
        )));
    }
    let with: Vec<&Value> = call.at(2).into_iter().collect();
    let wanted = call.name == "selectattr";
    let mut kept = Vec::new();
    for item in items {
        let found = match (at_path(&item, Some(path)), test) {
            (Ok(value), Some(test)) => predicates::holds(test, &value, &with)?,
            (Ok(value), None) => ops::truth(&value),
            (Err(_), test) => test == Some("undefined"),
        };
        if found == wanted {
            kept.push(item);
        }
    }
    Ok(collected(kept))
}

fn length(input: &Value) -> Result<Value, ExprError> {
    match input {
        Value::String(text) => Ok(Value::from(text.chars().count())),
        Value::Array(items) => Ok(Value::from(items.len())),
        Value::Object(fields) => Ok(Value::from(fields.len())),
        other => Err(ExprError::failed(format!("{} has no length", ops::kind(other)))),
    }
}

fn round(input: &Value, digits: i64) -> Result<Value, ExprError> {
    if !input.is_number() {
        return Err(ExprError::failed(format!("{} cannot be rounded", ops::kind(input))));
    }
    if !input.is_f64() {
        return Ok(input.clone());
    }
    let digits = i32::try_from(digits.clamp(-15, 15)).unwrap_or(0);
    let scale = 10f64.powi(digits);
    let number = input.as_f64().unwrap_or_default();
    let scaled = number * scale;
    // So large a number has no digits behind the point that could be rounded.
    ops::float(if scaled.is_finite() { scaled.round() / scale } else { number })
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked before")]
fn whole(input: &Value) -> Result<Value, ExprError> {
    let wrong = || ExprError::failed(format!("{} is not a number that an integer can be made of", ops::text(input)));
    match input {
        Value::Bool(holds) => Ok(Value::from(i64::from(*holds))),
        Value::Number(number) if !number.is_f64() => Ok(input.clone()),
        Value::Number(number) => {
            let float = number.as_f64().map(f64::trunc).filter(|float| float.abs() < 1e30).ok_or_else(wrong)?;
            ops::int(float as i128)
        }
        Value::String(text) => text.trim().parse::<i128>().map_err(|_| wrong()).and_then(ops::int),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(wrong()),
    }
}

fn decimal(input: &Value) -> Result<Value, ExprError> {
    let number = match input {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.map_or_else(|| Err(ExprError::failed(format!("{} is not a number", ops::kind(input)))), ops::float)
}

fn pairs(input: &Value) -> Result<Value, ExprError> {
    let fields: &Map<String, Value> = input
        .as_object()
        .ok_or_else(|| ExprError::failed(format!("{} has no fields: an object does", ops::kind(input))))?;
    Ok(Value::Array(
        fields.iter().map(|(key, value)| Value::Array(vec![Value::from(key.as_str()), value.clone()])).collect(),
    ))
}
