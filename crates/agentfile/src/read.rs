//! Typed reading of a tree. Every reader adds its mistakes to the list and goes on, so that a file's
//! author sees all of them at once.

use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::time::Span;

use crate::error::{Code, Errors};
use crate::path::Path;
use crate::tree::{Data, Entry, Tree};

/// A value with its place in the file.
#[derive(Debug, Clone)]
pub(crate) struct Item<'t> {
    pub(crate) path: Path<'t>,
    pub(crate) tree: &'t Tree,
}

/// The keys of a mapping, taken one by one.
#[derive(Debug)]
pub(crate) struct Fields<'t> {
    entries: &'t [Entry],
    known: Vec<&'static str>,
    /// Those of the known ones that this build refuses.
    refused: Vec<&'static str>,
    pub(crate) line: u32,
    pub(crate) path: Path<'t>,
}

impl<'t> Item<'t> {
    pub(crate) fn line(&self) -> u32 {
        self.tree.line
    }

    pub(crate) fn wrong(&self, errors: &mut Errors, code: Code, message: impl Into<String>) {
        errors.add(&self.path, self.tree.line, code, message);
    }

    fn wrong_type(&self, errors: &mut Errors, wanted: &str) {
        let message = match &self.tree.data {
            Data::Empty | Data::Null => format!("is empty: give it {wanted}, or remove the key"),
            Data::Number(_) | Data::Bool(_) if wanted.starts_with("a text") => {
                format!("must be {wanted}, not {}: put it in quotes", self.tree.kind())
            }
            _ => format!("must be {wanted}, not {}", self.tree.kind()),
        };
        self.wrong(errors, Code::WrongType, message);
    }

    pub(crate) fn text(&self, errors: &mut Errors) -> Option<&'t str> {
        match &self.tree.data {
            Data::Text(text) => Some(text),
            _ => {
                self.wrong_type(errors, "a text");
                None
            }
        }
    }

    pub(crate) fn boolean(&self, errors: &mut Errors) -> Option<bool> {
        match &self.tree.data {
            Data::Bool(holds) => Some(*holds),
            _ => {
                self.wrong_type(errors, "true or false");
                None
            }
        }
    }

    /// A whole number between two bounds.
    pub(crate) fn integer(&self, least: u64, most: u64, errors: &mut Errors) -> Option<u64> {
        let Data::Number(number) = &self.tree.data else {
            self.wrong_type(errors, "a whole number");
            return None;
        };
        let value = number.as_u64().filter(|value| (least..=most).contains(value));
        if value.is_none() {
            let range = if most >= u64::from(u32::MAX) {
                format!("{least} or more")
            } else {
                format!("between {least} and {most}")
            };
            self.wrong(errors, Code::BadValue, format!("{number} is not valid: expected a whole number, {range}"));
        }
        value
    }

    pub(crate) fn small(&self, least: u32, most: u32, errors: &mut Errors) -> Option<u32> {
        let value = self.integer(u64::from(least), u64::from(most), errors)?;
        u32::try_from(value).ok()
    }

    /// A decimal number between two bounds.
    pub(crate) fn decimal(&self, least: f64, most: f64, errors: &mut Errors) -> Option<f64> {
        let Data::Number(number) = &self.tree.data else {
            self.wrong_type(errors, "a number");
            return None;
        };
        let value = number.as_f64().filter(|value| (least..=most).contains(value));
        if value.is_none() {
            self.wrong(
                errors,
                Code::BadValue,
                format!("{number} is not valid: expected a number between {least} and {most}"),
            );
        }
        value
    }

    /// A length of time up to a bound; zero only where it is allowed.
    pub(crate) fn span(&self, zero: bool, most: Span, errors: &mut Errors) -> Option<Span> {
        let example = "a duration such as 250ms, 30s, 5m, 24h or 7d";
        let text = match &self.tree.data {
            Data::Text(text) => text,
            Data::Number(number) => {
                self.wrong(errors, Code::BadDuration, format!("{number} has no unit: write {example}"));
                return None;
            }
            _ => {
                self.wrong_type(errors, example);
                return None;
            }
        };
        match text.parse::<Span>() {
            Err(message) => self.wrong(errors, Code::BadDuration, message),
            Ok(span) if span > most => self.wrong(
                errors,
                Code::BadDuration,
                format!("{text} is longer than {most}, the longest that is accepted"),
            ),
            Ok(Span::ZERO) if !zero => self.wrong(errors, Code::BadDuration, "must be longer than zero"),
            Ok(span) => return Some(span),
        }
        None
    }

    /// Any value, within the limits of values. Null is written as such, however deep: a key whose value was forgotten is
    /// refused.
    pub(crate) fn json(&self, errors: &mut Errors) -> Option<Json> {
        if self.tree.lacks_a_value() {
            self.refuse_empty(errors);
        }
        Json::checked(self.tree.to_json()).map_err(|error| self.wrong(errors, Code::TooLarge, error.to_string())).ok()
    }

    fn refuse_empty(&self, errors: &mut Errors) {
        match &self.tree.data {
            Data::Empty => self.wrong(errors, Code::BadValue, "is empty: write its value, or `null` if that is meant"),
            Data::List(items) => {
                for (index, tree) in items.iter().enumerate().filter(|(_, tree)| tree.lacks_a_value()) {
                    Item { path: self.path.place(index), tree }.refuse_empty(errors);
                }
            }
            Data::Map(entries) => {
                for entry in entries.iter().filter(|entry| entry.value.lacks_a_value()) {
                    Item { path: self.path.key(&entry.key), tree: &entry.value }.refuse_empty(errors);
                }
            }
            Data::Bool(_) | Data::Null | Data::Number(_) | Data::Text(_) => {}
        }
    }

    /// The value that a JSON pointer leads to inside this one, or the last one on the way to it.
    pub(crate) fn at(&self, pointer: &str) -> Item<'t> {
        let mut item = self.clone();
        for part in pointer.split('/').skip(1) {
            let key = part.replace("~1", "/").replace("~0", "~");
            let next = match &item.tree.data {
                Data::Map(entries) => entries
                    .iter()
                    .find(|entry| entry.key == key)
                    .map(|entry| Item { path: item.path.key(&entry.key), tree: &entry.value }),
                Data::List(items) => key
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| Some((index, items.get(index)?)))
                    .map(|(index, tree)| Item { path: item.path.place(index), tree }),
                Data::Empty | Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => None,
            };
            let Some(next) = next else { break };
            item = next;
        }
        item
    }

    /// One of several words, some of which this build does not execute.
    pub(crate) fn choice<T: Copy>(&self, words: &[(&str, T)], not_yet: &[&str], errors: &mut Errors) -> Option<T> {
        let Data::Text(text) = &self.tree.data else {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong_type(errors, &listed(&all, "or"));
            return None;
        };
        let text = text.as_str();
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        // Nobody would read what was probably meant.
        if errors.is_full() {
            return None;
        }
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        if not_yet.contains(&text) {
            let message = format!("`{text}` is not supported by this version yet: use {}", listed(&all, "or"));
            self.wrong(errors, Code::NotSupportedYet, message);
        } else {
            let hint = suggestion(text, &all).map(|word| format!(", did you mean `{word}`?")).unwrap_or_default();
            let text = shortened(text);
            self.wrong(errors, Code::BadValue, format!("`{text}` is not valid: expected {}{hint}", listed(&all, "or")));
        }
        None
    }

    /// A name of limited length and characters.
    pub(crate) fn name(&self, extra: &str, uppercase: bool, errors: &mut Errors) -> Option<&'t str> {
        let text = self.text(errors)?;
        check_name(text, extra, uppercase).map_err(|message| self.wrong(errors, Code::BadName, message)).ok()?;
        Some(text)
    }

    pub(crate) fn list(&self, errors: &mut Errors) -> Option<Vec<Item<'t>>> {
        let Data::List(items) = &self.tree.data else {
            self.wrong_type(errors, "a list");
            return None;
        };
        let at = |(index, tree)| Item { path: self.path.place(index), tree };
        Some(items.iter().enumerate().map(at).collect())
    }

    /// The entries of a mapping whose keys are the author's own.
    pub(crate) fn entries(&self, errors: &mut Errors) -> Option<Vec<(&'t Entry, Item<'t>)>> {
        let Data::Map(entries) = &self.tree.data else {
            self.wrong_type(errors, "a mapping of names to values");
            return None;
        };
        let at = |entry: &'t Entry| (entry, Item { path: self.path.key(&entry.key), tree: &entry.value });
        Some(entries.iter().map(at).collect())
    }

    /// The keys of a mapping of fixed form.
    pub(crate) fn fields(&self, errors: &mut Errors) -> Option<Fields<'t>> {
        let Data::Map(entries) = &self.tree.data else {
            self.wrong_type(errors, "a mapping");
            return None;
        };
        Some(Fields { entries, known: Vec::new(), refused: Vec::new(), line: self.tree.line, path: self.path.clone() })
    }
}

impl<'t> Fields<'t> {
    /// The value of one key, which is known from now on.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Item<'t>> {
        self.known.push(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Item { path: self.path.key(key), tree: &entry.value })
    }

    /// Whether a key stands here.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// As [`Fields::take`], but its absence is a mistake.
    pub(crate) fn need(&mut self, key: &'static str, errors: &mut Errors) -> Option<Item<'t>> {
        let item = self.take(key);
        if item.is_none() {
            errors.add(self.path.key(key), self.line, Code::MissingKey, format!("`{key}` is missing here"));
        }
        item
    }

    /// Refuses keys of the format that this build does not execute.
    pub(crate) fn refuse(&mut self, keys: &[&'static str], errors: &mut Errors) {
        for key in keys {
            self.known.push(key);
            self.refused.push(key);
            for entry in self.entries.iter().filter(|entry| entry.key == *key) {
                let message = format!("`{key}` is not supported by this version yet: remove it");
                errors.add(self.path.key(key), entry.line, Code::NotSupportedYet, message);
            }
        }
    }

    /// Keys that are known, and are not told to whoever has mistyped another.
    pub(crate) fn hide(&mut self, keys: &[&'static str]) {
        self.refused.extend_from_slice(keys);
    }

    /// Refuses every key that was not asked for.
    pub(crate) fn finish(&self, errors: &mut Errors) {
        let known: Vec<&str> = self.known.iter().copied().filter(|key| !self.refused.contains(key)).collect();
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str())) {
            if errors.is_full() {
                return;
            }
            let message = match suggestion(&entry.key, &known) {
                Some(key) => format!("the key `{}` is not known here; did you mean `{key}`?", shortened(&entry.key)),
                None => {
                    format!(
                        "the key `{}` is not known here; known keys are {}",
                        shortened(&entry.key),
                        listed(&known, "and")
                    )
                }
            };
            errors.add(self.path.key(&entry.key), entry.line, Code::UnknownKey, message);
        }
    }
}

/// Whether a name has only letters, digits and `extra` characters, within its length.
pub(crate) fn check_name(text: &str, extra: &str, uppercase: bool) -> Result<(), String> {
    let allowed = |c: char| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || extra.contains(c) || (uppercase && c.is_ascii_uppercase())
    };
    if !text.is_empty() && text.len() <= limits::NAME_BYTES_MAX && text.chars().all(allowed) {
        return Ok(());
    }
    let letters = if uppercase { "A-Z a-z" } else { "a-z" };
    let extra: Vec<String> = extra.chars().map(String::from).collect();
    Err(format!(
        "`{}` is not a valid name: use 1 to {} characters of {letters} 0-9 {}",
        shortened(text),
        limits::NAME_BYTES_MAX,
        extra.join(" ")
    ))
}

/// Text from the file for a message, cut where it is long.
pub(crate) fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 80;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(crate) fn listed(words: &[&str], last_by: &str) -> String {
    match words {
        [] => String::new(),
        [word] => format!("`{word}`"),
        [head @ .., last] => {
            format!("{} {last_by} `{last}`", head.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Most words among which a suggestion is looked for.
const SUGGESTED_FROM_MAX: usize = 200;

/// The word that was probably meant: at most two changes away, and fewer than half of its letters.
pub(crate) fn suggestion<'w>(text: &str, words: &[&'w str]) -> Option<&'w str> {
    // Comparing long texts, or with very many, would cost more than a hint is worth.
    if text.len() > limits::NAME_BYTES_MAX || words.len() > SUGGESTED_FROM_MAX {
        return None;
    }
    let (changes, best) = words.iter().map(|word| (distance(text, word), *word)).min()?;
    (changes <= 2 && changes * 2 < best.chars().count().max(2)).then_some(best)
}

/// How many insertions, removals, replacements and swaps of neighbours turn one word into the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut best = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last().copied()).unwrap_or(0)
}
