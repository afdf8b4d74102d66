//! What a schema may be, beyond what the standard says: known keywords only, references only into itself and
//! never in a circle, and bounded however its references multiply.

use std::collections::BTreeMap;

use aetheris_core::json::Json;
use aetheris_core::limits;
use serde_json::{Map, Number, Value};

use crate::Problem;

/// Keywords whose value is a schema.
const ONE: [&str; 11] = [
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value has a schema for each name.
const MAPS: [&str; 4] = ["$defs", "dependentSchemas", "patternProperties", "properties"];
/// Keywords whose schemas judge the same value as the schema that they stand in.
const IN_PLACE: [&str; 9] = ["$ref", "allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then"];
/// Keywords that first ask what other keywords have evaluated.
const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];
/// Keywords whose value is no schema.
const PLAIN: [&str; 26] = [
    "$comment",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "deprecated",
    "description",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "readOnly",
    "title",
    "type",
    "uniqueItems",
    "writeOnly",
];
/// Keywords whose value is no schema, and that count more than one part.
const COUNTED: [&str; 7] = ["$ref", "const", "dependentRequired", "enum", "multipleOf", "pattern", "required"];
/// Keywords of the standard by which a schema reaches beyond what can be bounded when it is put.
const REFUSED: [&str; 7] =
    ["$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$vocabulary"];
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Deepest chain of references, each leading to the next.
const REFERENCES_DEEP_MAX: usize = 32;

/// What a part takes when it is compiled, in bytes.
const COPY_BYTES: usize = 1024;
/// A pattern is compiled forwards and backwards.
const PATTERN_TIMES: usize = 2;
/// States that a matcher remembers of what it has matched, in bytes, for each of its two directions.
pub(crate) const REMEMBERED_BYTES: usize = 16 * 1024;
/// What a matcher takes once it has been used: what it remembers, and the places that it has tried, which take 256 KiB at
/// most.
const MATCHER_BYTES: usize = 2 * REMEMBERED_BYTES + 256 * 1024;
// What is accepted can be kept.
const _: () = assert!(
    limits::SCHEMA_PARTS_MAX * COPY_BYTES
        + limits::SCHEMA_PATTERNS_MAX * (limits::SCHEMA_PATTERN_BYTES_MAX * PATTERN_TIMES + MATCHER_BYTES)
        <= limits::SCHEMAS_KEPT_BYTES_MAX
);
/// Bytes of text that count as much as a part.
const TEXT_OF_A_PART: usize = 64;
/// An exact division takes as long as so many comparisons.
const DIVISION: usize = 16;
/// The same by a factor that is so small or so large that what it divides has thousands of digits.
const EXTREME: usize = 64;
/// A number beyond this has so many digits itself.
const LARGE_NUMBER: f64 = 1e18;

/// As how many numbers one counts where it is divided.
pub(crate) fn digits(number: &Number) -> usize {
    if number.as_f64().is_some_and(|number| number.abs() > LARGE_NUMBER) { EXTREME } else { 1 }
}

/// What a schema costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    /// To judge one part of a value.
    pub(crate) judge: Size,
    /// Patterns as they are written.
    pub(crate) patterns: usize,
    /// The most memory that it takes when it is compiled, in bytes: of what was measured of the largest that are
    /// accepted.
    pub(crate) memory: usize,
}

/// What judging one part of a value may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Subschemas, listed values and texts that are copied wherever a reference leads to them.
    copies: usize,
    /// Exact divisions of a number, weighed by the time that they take.
    pub(crate) divisions: usize,
    /// Subschemas and keywords that it may be asked about.
    pub(crate) parts: usize,
    /// Compiled patterns that it may be matched with, in bytes.
    pub(crate) patterns: usize,
}

/// Refuses what could not be bounded, and measures the rest.
pub(crate) fn check(schema: &Json) -> Result<Measured, Vec<Problem>> {
    let size = schema.canonical().len();
    if size > limits::SCHEMA_BYTES_MAX {
        let message = format!("the schema has {size} bytes, more than the {} accepted", limits::SCHEMA_BYTES_MAX);
        return Err(vec![Problem { message, path: String::new() }]);
    }
    let mut walk = Walk {
        compiled: BTreeMap::new(),
        deep: 0,
        known: BTreeMap::new(),
        patterns: 0,
        problems: Vec::new(),
        root: schema.value(),
    };
    let whole = walk.schema(schema.value(), "").judge;
    let parts = whole.parts.max(whole.copies);
    if parts > limits::SCHEMA_PARTS_MAX {
        let message = format!(
            "with its references followed, the schema has {} parts, more than the {} accepted: long names, \
             descriptions and values count by their size",
            parts,
            limits::SCHEMA_PARTS_MAX
        );
        walk.wrong("", message);
    }
    if walk.patterns > limits::SCHEMA_PATTERNS_MAX {
        let message = format!("the schema has more than the {} patterns accepted", limits::SCHEMA_PATTERNS_MAX);
        walk.wrong("", message);
    }
    // The library compiles a pattern once, and has a matcher of its own wherever it is written.
    let patterns: usize = walk.compiled.values().sum();
    let memory = whole.copies.saturating_mul(COPY_BYTES) + patterns * PATTERN_TIMES + walk.patterns * MATCHER_BYTES;
    let measured = Measured { judge: whole, memory, patterns: walk.patterns };
    if walk.problems.is_empty() { Ok(measured) } else { Err(walk.problems) }
}

/// What a schema costs, in its two uses.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// To say whether a value fits.
    judge: Size,
    /// To say which parts of a value it has evaluated, for an `unevaluated` keyword of a schema that it stands in.
    mark: Size,
}

impl Cost {
    const NONE: Self = Self { judge: Size::NONE, mark: Size::NONE };
    const ONE: Self = Self { judge: Size::ONE, mark: Size::NONE };

    /// Of a keyword without a schema.
    fn of(parts: usize) -> Self {
        Self { judge: Size::of(parts), mark: Size::NONE }
    }

    fn plus(self, other: Self) -> Self {
        Self { judge: self.judge.plus(other.judge), mark: self.mark.plus(other.mark) }
    }

    /// What a keyword of this cost adds to the marking of the schema that it stands in. A schema in place is judged
    /// and marks; of `contains` and of the `unevaluated` keywords themselves, what fits is evaluated; patterns are
    /// matched with names again; of the others the names and places are enough.
    fn marking(self, keyword: &str) -> Size {
        if IN_PLACE.contains(&keyword) {
            self.judge.plus(self.mark)
        } else if keyword == "contains" || UNEVALUATED.contains(&keyword) {
            self.judge
        } else if keyword == "patternProperties" {
            self.mark
        } else {
            Size::NONE
        }
    }
}

impl Size {
    const NONE: Self = Self::of(0);
    const ONE: Self = Self::of(1);

    /// Of parts that are copied and take as long as each other.
    const fn of(parts: usize) -> Self {
        Self { copies: parts, divisions: 0, parts, patterns: 0 }
    }

    fn with(self, other: Self, both: fn(usize, usize) -> usize) -> Self {
        Self {
            copies: both(self.copies, other.copies),
            divisions: both(self.divisions, other.divisions),
            parts: both(self.parts, other.parts),
            patterns: both(self.patterns, other.patterns),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.with(other, usize::saturating_add)
    }

    fn times(self, factor: usize) -> Self {
        self.with(Self { copies: factor, divisions: factor, parts: factor, patterns: factor }, usize::saturating_mul)
    }
}

struct Walk<'s> {
    /// The size of each pattern when it is compiled, rounded up.
    compiled: BTreeMap<&'s str, usize>,
    /// References that are being followed.
    deep: usize,
    /// The parts behind a reference; `None` while they are counted.
    known: BTreeMap<&'s str, Option<Cost>>,
    patterns: usize,
    problems: Vec<Problem>,
    root: &'s Value,
}

impl<'s> Walk<'s> {
    fn wrong(&mut self, path: &str, message: impl Into<String>) {
        let problem = Problem { message: message.into(), path: path.to_owned() };
        if self.problems.len() < limits::SCHEMA_VIOLATIONS_MAX && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Checks one schema and all below it, and counts what it costs.
    fn schema(&mut self, schema: &'s Value, path: &str) -> Cost {
        match schema {
            Value::Bool(_) => Cost::ONE,
            Value::Object(keywords) => {
                let mut cost = Cost::ONE;
                for (keyword, value) in keywords {
                    let path = below(path, keyword);
                    let of = self.keyword(keywords, keyword, value, &path);
                    let mark = of.marking(keyword);
                    // The library keeps the path of each keyword, wherever it compiles it.
                    cost = cost.plus(Cost::of(weight(&path))).plus(Cost { judge: of.judge, mark });
                }
                let unevaluated = UNEVALUATED.iter().filter(|keyword| keywords.contains_key(**keyword)).count();
                Cost { judge: cost.judge.plus(cost.mark.times(unevaluated)), ..cost }
            }
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.wrong(path, "a schema is an object, `true` or `false`");
                Cost::ONE
            }
        }
    }

    fn keyword(&mut self, all: &'s Map<String, Value>, keyword: &str, value: &'s Value, path: &str) -> Cost {
        match keyword {
            "$ref" => self.reference(value, path),
            "$schema" => {
                if value.as_str().map(|text| text.trim_end_matches('#')) != Some(DIALECT) {
                    self.wrong(path, format!("only {DIALECT} is supported"));
                }
                Cost::NONE
            }
            // Each value is compared, each name that is missing is a mistake of its own, and all are copied.
            "const" | "dependentRequired" | "enum" | "required" => Cost::of(values(value)),
            "multipleOf" => {
                let usual = value.as_f64().is_some_and(|factor| (1e-9..=1e15).contains(&factor.abs()));
                let divisions = if usual { DIVISION } else { EXTREME };
                Cost { judge: Size { divisions, ..Size::ONE }, mark: Size::NONE }
            }
            "pattern" => {
                self.patterns += 1;
                let pattern = value.as_str().unwrap_or_default();
                let judge = Size { patterns: self.pattern(pattern, path), ..Size::of(1 + weight(pattern)) };
                Cost { judge, mark: Size::NONE }
            }
            _ if ONE.contains(&keyword) => self.schema(value, path),
            _ if LISTS.contains(&keyword) => match value {
                Value::Array(items) => items.iter().enumerate().fold(Cost::NONE, |cost, (index, item)| {
                    cost.plus(self.schema(item, &below(path, &index.to_string())))
                }),
                // What is not of the right type is the library's to say.
                _ => Cost::NONE,
            },
            _ if MAPS.contains(&keyword) => self.named(keyword, value, path),
            // A word for people takes no time, and is copied with its schema.
            _ if PLAIN.contains(&keyword) => {
                Cost { judge: Size { copies: values(value), ..Size::ONE }, mark: Size::NONE }
            }
            _ if REFUSED.contains(&keyword) => {
                self.wrong(path, format!("`{keyword}` is not supported: refer to `$defs` by `#/$defs/NAME`"));
                Cost::NONE
            }
            _ => {
                let near = nearest(keyword).filter(|near| !all.contains_key(*near));
                let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                let shown: String = keyword.chars().take(64).collect();
                self.wrong(path, format!("`{shown}` is not a keyword of JSON Schema 2020-12{hint}"));
                Cost::NONE
            }
        }
    }

    fn named(&mut self, keyword: &str, value: &'s Value, path: &str) -> Cost {
        let Value::Object(named) = value else { return Cost::NONE };
        let (mut cost, mut matched) = (Cost::NONE, Size::NONE);
        for (name, schema) in named {
            let path = below(path, name);
            let of = self.schema(schema, &path).plus(Cost::of(weight(name)));
            // Definitions count where they are referred to.
            if keyword != "$defs" {
                cost = cost.plus(of);
            }
            if keyword == "patternProperties" {
                self.patterns += 1;
                matched = matched.plus(Size { patterns: self.pattern(name, &path), ..Size::NONE });
            }
        }
        if keyword == "patternProperties" {
            cost = Cost { judge: cost.judge.plus(matched), mark: matched };
        }
        cost
    }

    fn reference(&mut self, value: &'s Value, path: &str) -> Cost {
        // Not a text: the library says so.
        let Value::String(to) = value else { return Cost::NONE };
        match self.known.get(to.as_str()) {
            Some(Some(cost)) => return *cost,
            Some(None) => {
                self.wrong(path, "leads back to itself: schemas that contain themselves are not supported");
                return Cost::NONE;
            }
            None => {}
        }
        let Some(target) = self.target(to) else {
            let shown: String = to.chars().take(128).collect();
            self.wrong(path, format!("`{shown}` leads nowhere: a reference has the form `#/$defs/NAME`"));
            return Cost::NONE;
        };
        if self.deep >= REFERENCES_DEEP_MAX {
            self.wrong(path, format!("references are nested deeper than {REFERENCES_DEEP_MAX} levels"));
            return Cost::NONE;
        }
        self.known.insert(to, None);
        self.deep += 1;
        let cost = self.schema(target, to.trim_start_matches('#'));
        self.deep -= 1;
        self.known.insert(to, Some(cost));
        cost
    }

    /// How large a pattern is when it is compiled, rounded up. One that is wrong is refused when the schema is; more than
    /// may be there are not tried.
    fn pattern(&mut self, pattern: &'s str, path: &str) -> usize {
        const SIZES: [usize; 5] = [1_024, 4 * 1_024, 16 * 1_024, 64 * 1_024, limits::SCHEMA_PATTERN_BYTES_MAX];
        if let Some(size) = self.compiled.get(pattern) {
            return *size;
        }
        if self.patterns > limits::SCHEMA_PATTERNS_MAX {
            return limits::SCHEMA_PATTERN_BYTES_MAX;
        }
        let size = SIZES.into_iter().find(|size| crate::compiles(pattern, *size));
        // What is wrong is the library's to say.
        if size.is_none() && regex_syntax::parse(pattern).is_ok() {
            let message = format!(
                "the pattern takes more than the {} bytes accepted when it is compiled: repetitions and classes such as \
                 `\\p{{L}}` multiply; bound the length with `maxLength`",
                limits::SCHEMA_PATTERN_BYTES_MAX
            );
            self.wrong(path, message);
        }
        let size = size.unwrap_or(limits::SCHEMA_PATTERN_BYTES_MAX);
        self.compiled.insert(pattern, size);
        size
    }

    /// What a pointer into this schema leads to. Characters that a URL would encode are not decoded: such a
    /// reference leads nowhere.
    fn target(&self, to: &str) -> Option<&'s Value> {
        let pointer = to.strip_prefix('#').filter(|pointer| !pointer.contains('%'))?;
        // The whole schema would contain itself.
        if pointer.is_empty() { None } else { self.root.pointer(pointer) }
    }
}

/// What a text counts beside what it is part of: it is copied as often.
fn weight(text: &str) -> usize {
    text.len() / TEXT_OF_A_PART
}

/// How many values there are in one, all that is in it included, with the weight of its texts.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => weight(text),
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.iter().map(|(name, field)| weight(name) + values(field)).sum(),
    }
}

fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The keyword that differs least by its letters, if it is near.
fn nearest(word: &str) -> Option<&'static str> {
    let mut all = ONE.into_iter().chain(LISTS).chain(MAPS).chain(PLAIN).chain(COUNTED);
    all.find(|known| known.eq_ignore_ascii_case(word) || one_change(known, word) || one_change(word, known))
}

/// Whether `long` is `short` with one letter more, or as long with one letter or two neighbours changed.
fn one_change(long: &str, short: &str) -> bool {
    let (long, short): (Vec<char>, Vec<char>) = (long.chars().take(64).collect(), short.chars().take(64).collect());
    let front = long.iter().zip(&short).take_while(|(a, b)| a == b).count();
    let back = |from: usize, to: usize| long[from..].eq(&short[to..]);
    if long.len() == short.len() + 1 {
        return back(front + 1, front);
    }
    if long.len() != short.len() || front == long.len() {
        return false;
    }
    let swapped = front + 1 < long.len() && long[front] == short[front + 1] && long[front + 1] == short[front];
    back(front + 1, front + 1) || (swapped && back(front + 2, front + 2))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn size(schema: Value) -> Size {
        check(&Json::new(schema)).unwrap().judge
    }

    /// Patterns cost as often as they are matched.
    #[test]
    fn patterns_are_counted_as_often_as_they_are_asked() {
        let one = size(json!({ "pattern": "a" })).patterns;
        assert!(one > 0);
        let asked = size(json!({ "allOf": [{ "pattern": "a" }], "unevaluatedProperties": false })).patterns;
        assert_eq!(asked, 2 * one);
        let names = size(json!({ "patternProperties": { "a": true } })).patterns;
        let marked = size(json!({ "patternProperties": { "a": true }, "unevaluatedProperties": false })).patterns;
        assert_eq!((names, marked), (one, 2 * one));
    }

    /// What stands in place is judged, and judged again to mark; what only names a place is not.
    #[test]
    fn parts_are_counted_as_often_as_they_are_asked() {
        let beside = |keyword: &str, value: Value| {
            let mut schema = json!({ keyword: value });
            let alone = size(schema.clone()).parts;
            schema["unevaluatedProperties"] = json!(false);
            size(schema).parts - alone
        };
        // `false` itself is judged, and judged to mark.
        assert_eq!(beside("properties", json!({ "a": true })), 2);
        assert_eq!(beside("items", json!(true)), 2);
        for (keyword, value) in
            [("not", json!(true)), ("if", json!(true)), ("allOf", json!([true])), ("contains", json!(true))]
        {
            assert_eq!(beside(keyword, value), 3, "{keyword}");
        }
    }
}
