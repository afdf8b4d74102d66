//! A configuration file as a tree of values that know their lines.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

/// A value of the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// A section, in the order of the file.
    Section(Vec<Entry>),
    /// Anything else.
    Value(Value),
}

/// A key of a section with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: u64,
    pub(super) node: Node,
}

/// What is wrong with the text as such.
pub(super) struct Malformed {
    pub(super) line: u64,
    pub(super) message: String,
}

/// Reads a file's text; an empty one is an empty section.
pub(super) fn parse(text: &str) -> Result<Node, Malformed> {
    let only_comments = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if only_comments {
        return Ok(Node::Section(Vec::new()));
    }
    serde_saphyr::from_str::<Node>(text).map_err(|error| {
        let error = error.without_snippet();
        Malformed { line: error.location().map_or(1, |at| at.line()), message: cleaned(&error.to_string()) }
    })
}

/// The first line of the parser's words, without its own idea of the place.
fn cleaned(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let end = first.rfind(" at line ").unwrap_or(first.len());
    let words = first[..end].trim_start_matches("error: ");
    match words.strip_prefix("duplicate mapping key: ").and_then(|rest| rest.split(',').next()) {
        Some(key) => format!("the key `{key}` appears twice: keep one"),
        None => words.to_owned(),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Value(Value::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Value(Value::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Value(Value::from(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Value(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Value(Value::from(value)))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Value(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Value(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut values = Vec::new();
        while let Some(node) = items.next_element::<Node>()? {
            values.push(node.into_value());
        }
        Ok(Node::Value(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let node = map.next_value::<Node>()?;
            entries.push(Entry { key: key.value, line: key.referenced.line(), node });
        }
        Ok(Node::Section(entries))
    }
}

impl Node {
    fn into_value(self) -> Value {
        match self {
            Self::Value(value) => value,
            Self::Section(entries) => entries.into_iter().map(|entry| (entry.key, entry.node.into_value())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_know_their_lines() {
        let text = "# a comment\nworker:\n  slots: 4\n  lease_ttl: 30s\nserver: { listen: \"127.0.0.1:1\" }\n";
        let Ok(Node::Section(sections)) = parse(text) else { panic!("a section was expected") };
        assert_eq!((sections[0].key.as_str(), sections[0].line), ("worker", 2));
        assert_eq!((sections[1].key.as_str(), sections[1].line), ("server", 5));
        let Node::Section(worker) = &sections[0].node else { panic!("a section was expected") };
        assert_eq!((worker[1].key.as_str(), worker[1].line), ("lease_ttl", 4));
        assert_eq!(worker[0].node, Node::Value(Value::from(4)));
    }

    #[test]
    fn an_empty_file_is_an_empty_section() {
        assert!(matches!(parse("# nothing\n\n"), Ok(Node::Section(entries)) if entries.is_empty()));
    }

    #[test]
    fn a_malformed_file_names_its_line() {
        let Err(malformed) = parse("worker:\n  slots: [1, 2\nserver: x\n") else { panic!("an error was expected") };
        assert!(malformed.line >= 2, "{} {}", malformed.line, malformed.message);
        let Err(twice) = parse("worker:\n  slots: 1\n  slots: 2\n") else { panic!("an error was expected") };
        assert_eq!((twice.line, twice.message.as_str()), (3, "the key `slots` appears twice: keep one"));
    }
}
