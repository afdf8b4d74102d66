//! Filters, as in `value | upper`. Each is charged for looking once through its input and its arguments before it runs,
//! and here for what it makes or looks through beyond that.

use std::borrow::Cow;
use std::cmp::Ordering;

use aetheris_core::json::{Json, JsonError};
use serde_json::{Map, Value};

use crate::error::{ExprError, shortened};
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

/// What a place in a text or list costs at which something is compared, put or taken, in bytes.
const PER_PLACE: usize = 16;
/// What a character of a path costs for each item: it may be a step of its own.
const PER_CHAR_OF_PATH: usize = 8;

type Outcome<'a> = Result<Operand<'a>, ExprError>;

/// All names, in the order in which messages list them.
pub(crate) fn names() -> Vec<&'static str> {
    OTHERS.into_iter().chain(TEXTS).chain(LISTS).collect()
}

/// The answer of a filter for whose input it does not matter how much is in it; `None` where it does.
pub(crate) fn at_once<'a>(name: &str, input: &Operand<'a>, given: &Given<'a>) -> Option<Outcome<'a>> {
    if !(given.positional.is_empty() && given.named.is_empty()) {
        return None;
    }
    match (name, input) {
        ("length" | "count", _) if !input.is_string() => Some(length(input).map(Cow::Owned)),
        ("first", Cow::Borrowed(Value::Array(items))) => Some(end(name, items.first().map(Cow::Borrowed))),
        ("last", Cow::Borrowed(Value::Array(items))) => Some(end(name, items.last().map(Cow::Borrowed))),
        _ => None,
    }
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
        "items" => {
            meter.copy(&input)?;
            meter.made(ops::count(&input))?;
            pairs(&input).map(Cow::Owned)
        }
        // What it means is decided where the value is written into an address.
        "raw" => Ok(input),
        "tojson" => {
            meter.copy(&input)?;
            Ok(Cow::Owned(Value::String(Json::new(input.into_owned()).to_string())))
        }
        _ => {
            meter.copy(&input)?;
            Ok(Cow::Owned(Value::String(ops::text(&input).into_owned())))
        }
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
        let wrong = || ExprError::failed(format!("the argument `attribute` of `{}` must be a string", self.name));
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
    meter.copy(input)?;
    let text = ops::text(input);
    match call.name {
        "urlencode" => meter.chars(&text)?,
        "upper" | "lower" if text.is_ascii() => {}
        // Each character is looked for in tables.
        "upper" | "lower" | "capitalize" | "title" => {
            meter.chars(&text)?;
            meter.chars(&text)?;
        }
        _ => {}
    }
    let list = |parts: &mut dyn Iterator<Item = &str>| Value::Array(parts.map(Value::from).collect());
    Ok(match call.name {
        "upper" => Value::String(text.to_uppercase()),
        "lower" => Value::String(text.to_lowercase()),
        "capitalize" => Value::String(capitalized(&text)),
        "title" => Value::String(titled(&text)),
        "trim" => match call.text(0)? {
            Some(chars) => trimmed(meter, &text, chars)?,
            None => Value::from(text.trim()),
        },
        "replace" => {
            let (old, new) = (call.needed(0)?, call.needed(1)?);
            let places = text.matches(old).count();
            meter.bytes(places.saturating_mul(new.len().saturating_add(PER_PLACE)))?;
            Value::String(text.replace(old, new))
        }
        "split" => {
            let at = call.text(0)?;
            meter.made(at.map_or_else(|| text.split_whitespace().count(), |at| text.matches(at).count() + 1))?;
            match at {
                Some("") => return Err(ExprError::failed("the filter `split` needs a text that is not empty")),
                Some(at) => list(&mut text.split(at)),
                None => list(&mut text.split_whitespace()),
            }
        }
        "lines" => {
            meter.made(text.lines().count())?;
            list(&mut text.lines())
        }
        "urlencode" => Value::String(encoded(&text)),
        _ => {
            // About as many values as there are commas and brackets, each of which is read and copied.
            let values = text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
            meter.made(values.saturating_mul(2))?;
            let json = Json::parse(text.as_bytes())
                .map_err(|error| ExprError::failed(format!("`fromjson`: {}", told(&error))))?;
            json.value().clone()
        }
    })
}

/// Without the words of the text, which are somebody's data.
fn told(error: &JsonError) -> String {
    match error {
        JsonError::Number(_) => "a number would be another when it is read".to_owned(),
        JsonError::Twice(_) => "a key appears twice in one object".to_owned(),
        JsonError::Depth | JsonError::Size(_) | JsonError::Syntax(_) => error.to_string(),
    }
}

fn trimmed(meter: &mut Meter, text: &str, chars: &str) -> Result<Value, ExprError> {
    let rounds = usize::try_from(chars.len().checked_ilog2().unwrap_or(0)).unwrap_or(0) + 1;
    meter.bytes(chars.len().saturating_mul(PER_PLACE))?;
    meter.bytes(text.len().saturating_mul(rounds))?;
    let mut sought: Vec<char> = chars.chars().collect();
    sought.sort_unstable();
    Ok(Value::from(text.trim_matches(|c| sought.binary_search(&c).is_ok())))
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
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let digit = |of: u8| char::from(DIGITS[usize::from(of & 15)]);
            out.extend(['%', digit(byte >> 4), digit(byte)]);
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
        meter.chars(text)?;
        if call.name == "list" {
            meter.made(text.chars().count())?;
        }
        return Ok(Cow::Owned(match call.name {
            "reverse" => Value::String(text.chars().rev().collect()),
            _ => Value::Array(text.chars().map(|c| Value::String(c.to_string())).collect()),
        }));
    }
    meter.bytes(ops::count(&input).saturating_mul(2 * PER_PLACE))?;
    if copies(call, &input) {
        meter.copy(&input)?;
    }
    let mut items = ops::elements(input)?;
    match call.name {
        "first" => end(call.name, items.drain(..).next()),
        "last" => end(call.name, items.pop()),
        "join" => joined(meter, call, items).map(Cow::Owned),
        "sum" => total(meter, call, items).map(Cow::Owned),
        "min" | "max" => extreme(meter, call, items),
        "reverse" => {
            items.reverse();
            Ok(collected(items))
        }
        "sort" => sorted(meter, call, items),
        "unique" => unique(meter, call, items),
        "map" => mapped(meter, call, items),
        "selectattr" | "rejectattr" => selected(meter, call, items),
        _ => Ok(collected(items)),
    }
}

/// Whether items are copied: those of a value that is not the filter's own become its own, and of one that is, what a
/// path leads to.
fn copies(call: &Call<'_, '_>, input: &Operand<'_>) -> bool {
    let borrowed = matches!(input, Cow::Borrowed(_));
    match call.name {
        "join" => true,
        // Some charge for what they keep.
        "first" | "last" | "map" | "selectattr" | "rejectattr" => false,
        "min" | "max" | "sum" => !borrowed,
        _ => borrowed || call.named("attribute").is_some(),
    }
}

/// Charges for one item that becomes part of a new list.
fn kept(meter: &mut Meter, item: &Operand<'_>) -> Result<(), ExprError> {
    match item {
        Cow::Borrowed(value) => meter.copy(value),
        Cow::Owned(_) => Ok(()),
    }
}

fn end<'a>(name: &str, item: Option<Operand<'a>>) -> Outcome<'a> {
    item.ok_or_else(|| ExprError::Undefined { name: format!("{name} of an empty list") })
}

fn collected<'a>(items: Vec<Operand<'a>>) -> Operand<'a> {
    Cow::Owned(Value::Array(items.into_iter().map(Cow::into_owned).collect()))
}

/// The field at the end of a path, or the item itself without one.
fn at_path<'a>(item: Operand<'a>, path: Option<&str>) -> Outcome<'a> {
    let Some(path) = path else { return Ok(item) };
    path.split('.')
        .try_fold(item, |value, name| field(value, name).ok_or_else(|| ExprError::Undefined { name: shortened(path) }))
}

/// The same without a copy; `None` where the path leads nowhere.
fn found<'v>(item: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(item, |value, name| value.as_object()?.get(name))
}

/// The path of the argument `attribute`, which is gone along for each item.
fn walked<'c>(meter: &mut Meter, call: &'c Call<'_, '_>, items: usize) -> Result<Option<&'c str>, ExprError> {
    let path = call.attribute()?;
    meter.bytes(path.map_or(0, |path| path.len() * PER_CHAR_OF_PATH).saturating_mul(items))?;
    Ok(path)
}

fn joined(meter: &mut Meter, call: &Call<'_, '_>, items: Vec<Operand<'_>>) -> Result<Value, ExprError> {
    let separator = call.text(0)?.unwrap_or_default();
    let path = walked(meter, call, items.len())?;
    let mut out = String::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            meter.bytes(separator.len())?;
            out.push_str(separator);
        }
        out.push_str(&ops::text(at_path(item.clone(), path)?.as_ref()));
    }
    meter.bytes(out.len())?;
    Ok(Value::String(out))
}

fn total(meter: &mut Meter, call: &Call<'_, '_>, items: Vec<Operand<'_>>) -> Result<Value, ExprError> {
    let path = walked(meter, call, items.len())?;
    items.iter().try_fold(Value::from(0), |sum, item| {
        let item = at_path(item.clone(), path)?;
        // Only numbers: adding lists or texts one by one would copy the growing sum each time.
        if item.is_number() {
            ops::binary(crate::ast::Binary::Add, &sum, &item)
        } else {
            Err(ExprError::failed(format!("`sum` adds numbers, not {}", ops::kind(&item))))
        }
    })
}

fn extreme<'a>(meter: &mut Meter, call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = walked(meter, call, items.len())?;
    let wanted = if call.name == "min" { Ordering::Less } else { Ordering::Greater };
    let mut best: Option<(Operand<'a>, Operand<'a>)> = None;
    for item in items {
        let key = at_path(item.clone(), path)?;
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
    let path = walked(meter, call, items.len())?;
    let rounds = usize::try_from(items.len().checked_ilog2().unwrap_or(0)).unwrap_or(0);
    let mut keyed = items
        .into_iter()
        .map(|item| Ok((at_path(item.clone(), path)?, item)))
        .collect::<Result<Vec<_>, ExprError>>()?;
    let compared: usize = keyed.iter().map(|(key, _)| weight(key) + PER_PLACE).sum();
    meter.bytes(compared.saturating_mul(rounds))?;
    // All of them have an order if each has one with the first, as each has then with each; nothing else is sorted.
    if let Some((first, _)) = keyed.first() {
        keyed.iter().skip(1).try_for_each(|(key, _)| ops::compare(first, key).map(|_| ()))?;
    }
    // Equals stay in their order, also where the greatest comes first.
    let order = |a: &Operand<'_>, b: &Operand<'_>| ops::compare(a, b).unwrap_or(Ordering::Equal);
    match call.named("reverse").is_some_and(ops::truth) {
        true => keyed.sort_by(|(a, _), (b, _)| order(b, a)),
        false => keyed.sort_by(|(a, _), (b, _)| order(a, b)),
    }
    Ok(collected(keyed.into_iter().map(|(_, item)| item).collect()))
}

fn unique<'a>(meter: &mut Meter, call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = walked(meter, call, items.len())?;
    let mut kept: Vec<(Operand<'a>, Operand<'a>)> = Vec::new();
    for item in items {
        let key = at_path(item.clone(), path)?;
        meter.bytes(kept.len().saturating_mul(PER_PLACE))?;
        // Texts are compared many bytes at a time, lists and objects part by part.
        let compared = if key.is_string() { weight(&key) / 16 } else { weight(&key) };
        meter.bytes(compared.saturating_mul(kept.len()))?;
        if !kept.iter().any(|(other, _)| ops::equal(other, &key)) {
            kept.push((key, item));
        }
    }
    Ok(collected(kept.into_iter().map(|(_, item)| item).collect()))
}

fn mapped<'a>(meter: &mut Meter, call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = walked(meter, call, items.len())?;
    if path.is_none() {
        return Err(ExprError::failed("the filter `map` is written `map(attribute=\"name\")`"));
    }
    let mut fields = Vec::new();
    for item in items {
        let field = at_path(item, path)?;
        kept(meter, &field)?;
        fields.push(field);
    }
    Ok(collected(fields))
}

fn selected<'a>(meter: &mut Meter, call: &Call<'_, 'a>, items: Vec<Operand<'a>>) -> Outcome<'a> {
    let path = call.needed(0)?;
    let test = call.text(1)?;
    if let Some(name) = test.filter(|name| !predicates::names().contains(name)) {
        return Err(ExprError::failed(format!(
            "`{}` is not a test; known tests are {}",
            shortened(name),
            predicates::names().join(", ")
        )));
    }
    let with: Vec<&Value> = call.at(2).into_iter().collect();
    // Of two values no more is looked at than the smaller one has, but for what one of them is sought in.
    let sought_in = if test == Some("in") { with.iter().map(|with| weight(with)).sum() } else { 0 };
    let each = sought_in.saturating_add(path.len().saturating_mul(PER_CHAR_OF_PATH));
    let wanted = call.name == "selectattr";
    let mut kept = Vec::new();
    for item in items {
        meter.bytes(each)?;
        let found = match (found(&item, path), test) {
            (Some(value), Some(test)) => predicates::holds(test, value, &with)?,
            (Some(value), None) => ops::truth(value),
            (None, test) => test == Some("undefined"),
        };
        if found == wanted {
            self::kept(meter, &item)?;
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
    let wrong = || ExprError::failed(format!("{} is not a number that an integer can be made of", ops::kind(input)));
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
