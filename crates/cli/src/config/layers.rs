//! Defaults, file, environment and flags, laid over each other key by key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use super::env::Environment;
use super::file::{self, Node};
use super::keys::{self, Key, Place};
use super::{Mistake, suggest, value};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
    },
    /// A variable of the environment.
    Env(String),
    /// An argument of the command line.
    Flag(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The value of one key that holds, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// The key, as `worker.lease_ttl`.
    pub key: String,
    /// Its value in normal form.
    pub value: Value,
    /// Where it comes from.
    pub origin: Origin,
}

/// A value that an argument of the command line gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
    /// The argument, as `--listen`.
    pub flag: &'static str,
}

/// The layers while they are laid.
#[derive(Debug, Default)]
pub(super) struct Layers {
    settings: BTreeMap<String, Setting>,
    pub(super) mistakes: Vec<Mistake>,
}

impl Layers {
    /// The lowest layer.
    pub(super) fn defaults() -> Self {
        let mut layers = Self::default();
        for key in keys::KEYS {
            if let Some(default) = key.default {
                layers.set(key.path.to_owned(), key, &Value::from(default), Origin::Default);
            }
        }
        layers
    }

    /// Lays a file's text.
    pub(super) fn file(&mut self, path: &Path, text: &str) {
        match file::parse(text) {
            Ok(Node::Section(entries)) => {
                let has = |key: &str| entries.iter().any(|entry| entry.key == key);
                if has("agent") && has("plan") {
                    let message =
                        "this is an agent file, not a configuration: start it with `aetheris dev --agent FILE`";
                    return self.wrong(&at(path, 1), "", message);
                }
                for entry in entries {
                    self.entry(path, &[], &entry);
                }
            }
            Ok(Node::Value(_)) => self.wrong(&at(path, 1), "", "expected keys and values, as `worker: { slots: 4 }`"),
            Err(malformed) => self.wrong(&at(path, malformed.line), "", malformed.message),
        }
    }

    fn entry(&mut self, path: &Path, section: &[String], entry: &file::Entry) {
        let mut place = section.to_vec();
        let chosen = keys::names_below(section).is_empty();
        place.push(if chosen { entry.key.clone() } else { entry.key.replace('-', "_") });
        let dotted = place.join(".");
        let origin = at(path, entry.line);
        if entry.key.contains('.') {
            let message = format!("`{}` has a dot: write sections below each other", entry.key);
            return self.wrong(&origin, &section.join("."), message);
        }
        if chosen && matches!(&entry.node, Node::Section(entries) if entries.is_empty()) {
            return self.wrong(&origin, &dotted, "has nothing in it: write its keys, or remove it");
        }
        match (keys::place(&place), &entry.node) {
            (Place::Leaf(_), Node::Value(Value::Null)) | (Place::Section, Node::Value(Value::Null)) => {
                self.wrong(&origin, &dotted, "has no value: write one, or remove the key");
            }
            (Place::Leaf(key), Node::Value(value)) => self.set(dotted, key, value, origin),
            (Place::Leaf(_), Node::Section(_)) => self.wrong(&origin, &dotted, "expected a value, found a section"),
            (Place::Section, Node::Section(entries)) => {
                for below in entries {
                    self.entry(path, &place, below);
                }
            }
            (Place::Section, Node::Value(value)) => {
                let message = format!("expected a section with keys, found {}", value::name(value));
                self.wrong(&origin, &dotted, message);
            }
            (Place::Unknown, Node::Section(_) | Node::Value(_)) => self.unknown(&origin, section, &place),
        }
    }

    /// Lays the variables `AETHERIS__…`.
    pub(super) fn env(&mut self, env: &Environment) {
        for (name, path, text) in env.settings() {
            let origin = Origin::Env(name.to_owned());
            match keys::place(&path) {
                Place::Leaf(key) => self.set(path.join("."), key, &Value::from(text), origin),
                Place::Section => self.wrong(&origin, &path.join("."), "is a section: name one of its keys"),
                Place::Unknown => {
                    let known = (0..path.len()).rev().find(|end| matches!(keys::place(&path[..*end]), Place::Section));
                    let end = known.unwrap_or(0);
                    self.unknown(&origin, &path[..end], &path[..=end]);
                }
            }
        }
    }

    /// Lays the arguments of the command line.
    pub(super) fn flags(&mut self, overrides: &[Override]) {
        for given in overrides {
            let path: Vec<String> = given.key.split('.').map(str::to_owned).collect();
            if let Place::Leaf(key) = keys::place(&path) {
                self.set(given.key.to_owned(), key, &given.value, Origin::Flag(given.flag));
            }
        }
    }

    fn set(&mut self, dotted: String, key: &Key, given: &Value, origin: Origin) {
        let before = self.settings.get(&dotted).map(|setting| &setting.origin);
        if let (Some(Origin::File { line, .. }), Origin::File { .. }) = (before, &origin) {
            let message = format!("is set twice: also in line {line}");
            return self.wrong(&origin, &dotted, message);
        }
        match value::read(key.kind, given) {
            Ok(value) => {
                self.settings.insert(dotted.clone(), Setting { key: dotted, value, origin });
            }
            Err(refusal) => self.wrong(&origin, &dotted, refusal),
        }
    }

    fn unknown(&mut self, origin: &Origin, section: &[String], place: &[String]) {
        let names = keys::names_below(section);
        let given = place.last().map(String::as_str).unwrap_or_default();
        let message = match suggest::nearest(given, names.iter().copied()) {
            Some(near) => format!("unknown key; did you mean `{near}`?"),
            None if names.is_empty() => "unknown key".to_owned(),
            None => format!("unknown key; known here: {}", names.join(", ")),
        };
        self.wrong(origin, &place.join("."), message);
    }

    /// Sets what holds for a chosen name, where nobody has set it.
    pub(super) fn fill(&mut self, key: &str, value: &str) {
        let setting = Setting { key: key.to_owned(), value: Value::from(value), origin: Origin::Default };
        self.settings.entry(key.to_owned()).or_insert(setting);
    }

    /// Notes a mistake.
    pub(super) fn wrong(&mut self, origin: &Origin, key: &str, message: impl Into<String>) {
        self.mistakes.push(Mistake { origin: origin.clone(), key: key.to_owned(), message: message.into() });
    }

    /// The value of a key, and where it comes from.
    pub(super) fn get(&self, key: &str) -> Option<&Setting> {
        self.settings.get(key)
    }

    /// The names that the user chose below a section, as `models.`.
    pub(super) fn names_below(&self, prefix: &str) -> Vec<String> {
        let set = self.settings.keys().map(String::as_str);
        let wrong = self.mistakes.iter().map(|mistake| mistake.key.as_str());
        set.chain(wrong).filter_map(|key| Some(key.strip_prefix(prefix)?.split_once('.')?.0.to_owned())).collect()
    }

    /// The values that hold, in the order of the table; chosen names in their own order.
    pub(super) fn into_settings(mut self) -> Vec<Setting> {
        let mut ordered = Vec::new();
        for key in keys::KEYS {
            if let Some(setting) = self.settings.remove(key.path) {
                ordered.push(setting);
            } else if let Some((prefix, _)) = key.path.split_once('*') {
                let below = |name: &String| name.starts_with(prefix);
                let names: Vec<String> = self.settings.keys().filter(|name| below(name)).cloned().collect();
                ordered.extend(names.iter().filter_map(|name| self.settings.remove(name)));
            }
        }
        ordered
    }
}

fn at(path: &Path, line: u64) -> Origin {
    Origin::File { path: path.to_owned(), line }
}

/// The settings as one nested value.
pub(super) fn nested(settings: &[Setting]) -> Value {
    let mut root = Map::new();
    for setting in settings {
        let mut parts: Vec<&str> = setting.key.split('.').collect();
        let leaf = parts.pop().unwrap_or_default();
        let mut section = &mut root;
        for part in parts {
            let below = section.entry(part).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(map) = below else { unreachable!("a section is never a leaf of the table") };
            section = map;
        }
        section.insert(leaf.to_owned(), setting.value.clone());
    }
    Value::Object(root)
}
