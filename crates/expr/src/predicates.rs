//! Tests, as in `value is number`.

use serde_json::Value;

use crate::error::ExprError;
use crate::ops;

const WITHOUT: [&str; 16] = [
    "defined",
    "undefined",
    "none",
    "boolean",
    "true",
    "false",
    "number",
    "integer",
    "float",
    "string",
    "sequence",
    "mapping",
    "iterable",
    "odd",
    "even",
    "empty",
];
const WITH: [&str; 11] =
    ["eq", "equalto", "ne", "lt", "le", "gt", "ge", "in", "divisibleby", "startingwith", "endingwith"];

/// All names, in the order in which messages list them.
pub(crate) fn names() -> Vec<&'static str> {
    WITHOUT.into_iter().chain(WITH).collect()
}

/// Whether a value passes a test.
pub(crate) fn holds(name: &str, value: &Value, with: &[&Value]) -> Result<bool, ExprError> {
    if WITH.contains(&name) {
        return match with {
            [other] => compared(name, value, other),
            _ => Err(ExprError::failed(format!("the test `{name}` takes exactly one value"))),
        };
    }
    if !with.is_empty() {
        return Err(ExprError::failed(format!("the test `{name}` takes no value")));
    }
    let integer = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    Ok(match name {
        "none" => value.is_null(),
        "boolean" => value.is_boolean(),
        "true" => *value == Value::Bool(true),
        "false" => *value == Value::Bool(false),
        "number" => value.is_number(),
        "integer" => integer.is_some(),
        "float" => value.is_f64(),
        "string" => value.is_string(),
        "sequence" => value.is_array(),
        "mapping" => value.is_object(),
        "iterable" => value.is_array() || value.is_object(),
        "odd" => integer.is_some_and(|number| number % 2 != 0),
        "even" => integer.is_some_and(|number| number % 2 == 0),
        "empty" => !ops::truth(value) && !value.is_number() && !value.is_boolean(),
        // `defined` and `undefined` are answered before there is a value.
        _ => name == "defined",
    })
}

fn compared(name: &str, value: &Value, other: &Value) -> Result<bool, ExprError> {
    let texts = |check: fn(&str, &str) -> bool| match (value.as_str(), other.as_str()) {
        (Some(text), Some(part)) => Ok(check(text, part)),
        _ => Err(ExprError::failed(format!(
            "the test `{name}` compares texts, not {} and {}",
            ops::kind(value),
            ops::kind(other)
        ))),
    };
    match name {
        "ne" => Ok(!ops::equal(value, other)),
        "lt" => ops::compare(value, other).map(std::cmp::Ordering::is_lt),
        "le" => ops::compare(value, other).map(std::cmp::Ordering::is_le),
        "gt" => ops::compare(value, other).map(std::cmp::Ordering::is_gt),
        "ge" => ops::compare(value, other).map(std::cmp::Ordering::is_ge),
        "in" => ops::contains(other, value),
        "startingwith" => texts(|text, part| text.starts_with(part)),
        "endingwith" => texts(|text, part| text.ends_with(part)),
        "divisibleby" => {
            let rest = ops::binary(crate::ast::Binary::Rem, value, other)?;
            Ok(!ops::truth(&rest))
        }
        _ => Ok(ops::equal(value, other)),
    }
}
