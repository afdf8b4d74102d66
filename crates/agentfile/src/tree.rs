//! The file as a tree of values that know their lines.
//!
//! YAML 1.2 with its core schema: `no` and `on` are texts, integers are exact or refused. Anchors,
//! aliases, tags and several documents are refused: no agent file needs them, and without them a file
//! cannot grow when it is read.

use std::collections::BTreeMap;

use aetheris_core::{json, limits};
use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

use crate::error::{Code, Errors};
use crate::path::Path;
use crate::read::shortened;

/// A value and its line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tree {
    pub(crate) data: Data,
    pub(crate) line: u32,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Bool(bool),
    /// Nothing is written there: null to YAML, and hardly ever what its author means.
    Empty,
    List(Vec<Tree>),
    Map(Vec<Entry>),
    Null,
    Number(Number),
    Text(String),
}

/// A key, its line, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: u32,
    pub(crate) value: Tree,
}

impl Tree {
    /// Whether a value is not written somewhere in it.
    pub(crate) fn lacks_a_value(&self) -> bool {
        match &self.data {
            Data::Empty => true,
            Data::List(items) => items.iter().any(Self::lacks_a_value),
            Data::Map(entries) => entries.iter().any(|entry| entry.value.lacks_a_value()),
            Data::Bool(_) | Data::Null | Data::Number(_) | Data::Text(_) => false,
        }
    }

    /// The value without its lines.
    pub(crate) fn to_json(&self) -> Value {
        match &self.data {
            Data::Empty | Data::Null => Value::Null,
            Data::Bool(holds) => Value::Bool(*holds),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Data::Map(entries) => {
                let fields: Map<String, Value> =
                    entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect();
                Value::Object(fields)
            }
        }
    }

    /// What kind of value it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.data {
            Data::Empty | Data::Null => "empty",
            Data::Bool(_) => "a boolean",
            Data::Number(_) => "a number",
            Data::Text(_) => "a text",
            Data::List(_) => "a list",
            Data::Map(_) => "a mapping",
        }
    }
}

/// A collection that is being read.
enum Open {
    List { items: Vec<Tree>, line: u32 },
    Map { entries: Vec<Entry>, key: Option<(String, u32)>, line: u32, seen: BTreeMap<String, u32> },
}

struct Builder<'e> {
    documents: u32,
    errors: &'e mut Errors,
    open: Vec<Open>,
    root: Option<Tree>,
}

/// Reads a file; `None` where no tree could be made at all.
pub(crate) fn read(source: &str, errors: &mut Errors) -> Option<Tree> {
    if source.len() > limits::AGENT_FILE_BYTES_MAX {
        let message = format!(
            "the file has {} bytes, more than the {} that are accepted",
            source.len(),
            limits::AGENT_FILE_BYTES_MAX
        );
        errors.add("", 1, Code::TooLarge, message);
        return None;
    }
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    options.disallow_directives = true;
    let mut builder = Builder { documents: 0, errors, open: Vec::new(), root: None };
    for event in Parser::new_from_str_with_options(source, options) {
        match event {
            Ok((event, span)) => {
                // What is behind the last mistake that is told would only take time.
                if builder.event(event, &span).is_err() || builder.errors.is_full() {
                    return None;
                }
            }
            Err(error) => {
                let words = error.info();
                // The two slips that end here say nothing of themselves.
                let hint = if words.starts_with("mapping values are not allowed") {
                    "; a text with `: ` in it needs quotes, or the line is indented too far"
                } else {
                    ""
                };
                let message = format!("not valid YAML or JSON: {words}{hint}");
                let at = tabbed(source, &message, error.marker().line()).unwrap_or(error.marker().line());
                builder.errors.add("", line(at), Code::Syntax, message);
                return None;
            }
        }
    }
    if builder.root.is_none() {
        builder.errors.add("", 1, Code::Syntax, "the file is empty: it must have at least `agent` and a plan");
    }
    builder.root
}

/// The line of a tab before what a line says. The parser names the line of the value before it.
fn tabbed(source: &str, message: &str, known: usize) -> Option<usize> {
    let indented = |line: &str| line[..line.len() - line.trim_start().len()].contains('\t');
    let mut lines = (1..).zip(source.split_inclusive('\n')).skip(known.saturating_sub(1));
    lines.find(|(_, line)| indented(line)).map(|(at, _)| at).filter(|_| message.contains("tab"))
}

fn line(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX).max(1)
}

/// Reading cannot go on; the reason is among the errors.
struct Stop;

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), Stop> {
        let at = line(span.start.line());
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return self.stop(at, Code::Syntax, "a file holds one agent: remove what follows `---`");
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.plainly(at, anchor, tag.is_some());
                // What is not there is given as `~`.
                let written = span.start.index() < span.end.index();
                self.scalar(&text, style, written, at);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.plainly(at, anchor, tag.is_some());
                self.start(Open::List { items: Vec::new(), line: at }, at)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.plainly(at, anchor, tag.is_some());
                self.start(Open::Map { entries: Vec::new(), key: None, line: at, seen: BTreeMap::new() }, at)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.wrong(at, Code::Syntax, "aliases (`*name`) are not accepted: write the value out");
                self.value(Tree { data: Data::Null, line: at });
            }
            _ => {}
        }
        Ok(())
    }

    /// A mistake in the value that comes next.
    fn wrong(&mut self, at: u32, code: Code, message: impl Into<String>) {
        let mut path = Path::default();
        for open in &self.open {
            match open {
                Open::List { items, .. } => path = path.place(items.len()),
                Open::Map { key: Some((key, _)), .. } => path = path.key(key),
                Open::Map { key: None, .. } => {}
            }
        }
        self.errors.add(path, at, code, message);
    }

    fn stop(&mut self, at: u32, code: Code, message: &str) -> Result<(), Stop> {
        self.wrong(at, code, message);
        Err(Stop)
    }

    fn plainly(&mut self, at: u32, anchor: usize, tagged: bool) {
        if anchor != 0 {
            self.wrong(at, Code::Syntax, "anchors (`&name`) are not accepted: write the value out where it is used");
        }
        if tagged {
            self.wrong(at, Code::Syntax, "tags (`!name`) are not accepted: put texts in quotes instead");
        }
    }

    fn start(&mut self, open: Open, at: u32) -> Result<(), Stop> {
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            return self.stop(
                at,
                Code::Syntax,
                "a key must be a string; if this is a template, put it in quotes: \"{{ … }}\"",
            );
        }
        if self.open.len() >= limits::JSON_DEPTH_MAX {
            let message = format!("the file is nested deeper than {} levels", limits::JSON_DEPTH_MAX);
            return self.stop(at, Code::TooLarge, &message);
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) {
        let tree = match self.open.pop() {
            Some(Open::List { items, line }) => Tree { data: Data::List(items), line },
            Some(Open::Map { entries, line, .. }) => Tree { data: Data::Map(entries), line },
            None => return,
        };
        self.value(tree);
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, written: bool, at: u32) {
        if style == ScalarStyle::Plain && !written && matches!(self.open.last(), Some(Open::Map { key: None, .. })) {
            self.wrong(at, Code::Syntax, "a key is missing before the `:`".to_owned());
        }
        if let Some(Open::Map { key: key @ None, seen, .. }) = self.open.last_mut() {
            *key = Some((text.to_owned(), at));
            if let Some(first) = seen.insert(text.to_owned(), at) {
                let message =
                    format!("the key `{}` appears twice, first on line {first}: remove one of them", shortened(text));
                self.wrong(at, Code::DuplicateKey, message);
            }
            return;
        }
        let data = match style {
            ScalarStyle::Plain if !written => Data::Empty,
            ScalarStyle::Plain => self.plain(text, at),
            _ => Data::Text(text.to_owned()),
        };
        self.value(Tree { data, line: at });
    }

    fn value(&mut self, tree: Tree) {
        match self.open.last_mut() {
            None => self.root = Some(tree),
            Some(Open::List { items, .. }) => items.push(tree),
            Some(Open::Map { entries, key, .. }) => {
                if let Some((key, line)) = key.take() {
                    entries.push(Entry { key, line, value: tree });
                }
            }
        }
    }

    /// What a text without quotes is, by the core schema of YAML 1.2.
    fn plain(&mut self, text: &str, at: u32) -> Data {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Data::Null,
            "true" | "True" | "TRUE" => return Data::Bool(true),
            "false" | "False" | "FALSE" => return Data::Bool(false),
            _ => {}
        }
        let number = match numeric(text) {
            Numeric::Not => return Data::Text(text.to_owned()),
            Numeric::Int(digits, radix) => integer(text.starts_with('-'), digits, radix),
            Numeric::Float if json::check_number(text).is_err() => None,
            Numeric::Float => text.parse().ok().and_then(Number::from_f64),
            Numeric::NotFinite => None,
        };
        number.map_or_else(
            || {
                let message = format!(
                    "the number {text} cannot be kept exactly: put it in quotes, or choose one between -2^63 and 2^64-1"
                );
                self.wrong(at, Code::BadValue, message);
                Data::Number(Number::from(0))
            },
            Data::Number,
        )
    }
}

enum Numeric<'t> {
    Float,
    Int(&'t str, u32),
    Not,
    NotFinite,
}

fn numeric(text: &str) -> Numeric<'_> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all = |digits: &str, radix| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Numeric::NotFinite;
    }
    if all(unsigned, 10) {
        return Numeric::Int(unsigned, 10);
    }
    match (text.strip_prefix("0o"), text.strip_prefix("0x")) {
        (Some(digits), _) if all(digits, 8) => return Numeric::Int(digits, 8),
        (_, Some(digits)) if all(digits, 16) => return Numeric::Int(digits, 16),
        _ => {}
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.is_empty() || all(part, 10);
    let mantissa = digits(before) && digits(behind) && !(before.is_empty() && behind.is_empty());
    if mantissa && exponent.is_none_or(|exponent| all(exponent, 10)) { Numeric::Float } else { Numeric::Not }
}

fn integer(negative: bool, digits: &str, radix: u32) -> Option<Number> {
    let size = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        let value = i64::try_from(-i128::from(size)).ok()?;
        return Some(Number::from(value));
    }
    Some(Number::from(size))
}
