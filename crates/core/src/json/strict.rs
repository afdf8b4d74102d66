//! Reads a value as `serde_json` does, in the form in which it is kept, and refuses a key that an object
//! names twice: of two readers one would take the first value and the other the last.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::{JsonError, written_as_integer};

/// How much of a key a message shows, in characters.
const KEY_SHOWN: usize = 64;

/// The value of a text whose depth was checked before.
pub(super) fn parse(text: &[u8]) -> Result<Value, JsonError> {
    let twice = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = Strict(&twice).deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    read.map_err(|error| match twice.take() {
        Some(key) => JsonError::Twice(key),
        None => JsonError::Syntax(error.to_string()),
    })
}

#[derive(Clone, Copy)]
struct Strict<'r>(&'r RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, holds: bool) -> Result<Value, E> {
        Ok(Value::Bool(holds))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        let number = Number::from_f64(number).ok_or_else(|| E::custom("a number that is not finite"))?;
        Ok(Value::Number(written_as_integer(&number).unwrap_or(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            match map.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(fields.next_value_seed(self)?);
                }
                Entry::Occupied(taken) => {
                    let shown: String = taken.key().chars().take(KEY_SHOWN).collect();
                    self.0.replace(Some(format!("{shown:?}")));
                    return Err(A::Error::custom("a key appears twice"));
                }
            }
        }
        Ok(Value::Object(map))
    }
}
