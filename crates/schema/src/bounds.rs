//! What a schema may be, beyond what the standard says: known keywords only, references only into itself and
//! never in a circle, and bounded however its references multiply.

use std::collections::BTreeMap;

use aetheris_core::json::Json;
use aetheris_core::limits;
use serde_json::{Map, Value};

use crate::cost::{Cost, Measured, Size};
use crate::pattern::{self, Refused, Taken};
use crate::spelling;
use crate::{Allowance, Problem};

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
pub(crate) const IN_PLACE: [&str; 9] =
    ["$ref", "allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then"];
/// Keywords that first ask what other keywords have evaluated.
pub(crate) const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];
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

/// Bytes of text that count as much as a part.
const TEXT_OF_A_PART: usize = 64;

/// Refuses what could not be bounded, and measures the rest.
pub(crate) fn check(schema: &Json, allowance: &mut Allowance) -> Result<Measured, Vec<Problem>> {
    let size = schema.canonical().len();
    if size > limits::SCHEMA_BYTES_MAX {
        let message = format!("the schema has {size} bytes, more than the {} accepted", limits::SCHEMA_BYTES_MAX);
        return Err(vec![Problem { message, path: String::new() }]);
    }
    let mut walk = Walk {
        allowance,
        compiled: BTreeMap::new(),
        deep: 0,
        heaviest: None,
        known: BTreeMap::new(),
        patterns: 0,
        places: 0,
        problems: Vec::new(),
        root: schema.value(),
        tables: 0,
    };
    let judge = walk.schema(schema.value(), "").judge;
    let measured = walk.measured(judge);
    let spent = walk.allowance.is_spent().then_some(walk.allowance.whole);
    let bounds = [
        (judge.parts.max(judge.copies) > limits::SCHEMA_PARTS_MAX).then(|| {
            format!(
                "with its references followed, the schema has {} parts, more than the {} accepted: long names, \
                 descriptions and values count by their size",
                judge.parts.max(judge.copies),
                limits::SCHEMA_PARTS_MAX
            )
        }),
        spent.filter(|_| walk.places > 0).map(|most| {
            format!("the schemas that are read together have more than the {most} patterns accepted; {WEIGH}")
        }),
        (measured.walking > limits::SCHEMA_WALKING_BYTES_MAX || measured.memory > limits::SCHEMAS_KEPT_BYTES_MAX).then(|| {
            "the patterns of the schema take too much memory: make them smaller, and write groups of which nothing is \
             taken out as `(?:…)`"
                .to_owned()
        }),
    ];
    for message in bounds.into_iter().flatten() {
        walk.wrong("", message);
    }
    walk.refuse_many_patterns();
    if walk.problems.is_empty() { Ok(measured) } else { Err(walk.problems) }
}

/// What patterns count as.
const WEIGH: &str = "one that is long, has dozens of classes such as `\\p{L}`, `\\d` or `\\s` (`\\d{4}` is one), or a large \
                     class where case is ignored counts as several";

/// What a pattern is matched with: a text, or the names of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum As {
    Keyword,
    Name,
}

struct Walk<'a, 's> {
    allowance: &'a mut Allowance,
    /// What each pattern takes, as a keyword or as a name.
    compiled: BTreeMap<(&'s str, As), Taken>,
    /// References that are being followed.
    deep: usize,
    /// The pattern that weighs most, and where it is written first.
    heaviest: Option<(usize, String)>,
    /// The parts behind a reference; `None` while they are counted.
    known: BTreeMap<&'s str, Option<Cost>>,
    /// What its patterns weigh.
    patterns: usize,
    /// Where patterns are written.
    places: usize,
    problems: Vec<Problem>,
    root: &'s Value,
    /// The tables of states of its patterns, wherever they are written.
    tables: usize,
}

impl<'s> Walk<'_, 's> {
    fn measured(&self, judge: Size) -> Measured {
        // The library compiles a pattern once, and has matchers of its own wherever it is written.
        let compiled = self.compiled.values().map(|taken| taken.compiled).sum();
        Measured::new(judge, compiled, self.places, self.tables)
    }

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
            "multipleOf" => Cost::division(value.as_f64()),
            "pattern" => {
                let pattern = value.as_str().unwrap_or_default();
                let judge =
                    Size { pattern_bytes: self.pattern((pattern, As::Keyword), path), ..Size::of(1 + weight(pattern)) };
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
                let all_known = ONE.into_iter().chain(LISTS).chain(MAPS).chain(PLAIN).chain(COUNTED);
                let near = spelling::nearest(all_known, keyword).filter(|near| !all.contains_key(*near));
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
                matched = matched.plus(Size { pattern_bytes: self.pattern((name, As::Name), &path), ..Size::NONE });
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

    /// What is walked of a pattern for each byte of a text. More than may be there are not even read.
    fn pattern(&mut self, pattern: (&'s str, As), path: &str) -> usize {
        self.places += 1;
        let before = self.patterns;
        let taken = match self.compiled.get(&pattern).copied() {
            Some(taken) if self.counts(1) => taken,
            Some(_) => Taken::default(),
            None => {
                let taken = self.taken(pattern).unwrap_or_else(|refused| {
                    self.wrong(path, words(&refused));
                    Taken::default()
                });
                self.compiled.insert(pattern, taken);
                taken
            }
        };
        let weight = self.patterns - before;
        if self.heaviest.as_ref().is_none_or(|(heaviest, _)| *heaviest < weight) {
            self.heaviest = Some((weight, path.to_owned()));
        }
        self.tables = self.tables.saturating_add(taken.tables);
        taken.walked
    }

    /// More patterns than a schema may have: said where one counts as several, for its author thinks that it is one.
    fn refuse_many_patterns(&mut self) {
        let most = limits::SCHEMA_PATTERNS_MAX;
        if self.patterns <= most {
            return;
        }
        match self.heaviest.take() {
            Some((weight @ 2.., path)) => self.wrong(
                &path,
                format!("the schema has more than the {most} patterns accepted; this one counts as {weight}; {WEIGH}"),
            ),
            Some(_) | None => self.wrong("", format!("the schema has more than the {most} patterns accepted")),
        }
    }

    /// What a pattern takes; nothing where it is one too many.
    fn taken(&mut self, (pattern, is): (&str, As)) -> Result<Taken, Refused> {
        if let (As::Keyword, Some(taken)) = (is, pattern::literal(pattern)) {
            return Ok(if self.counts(1) { taken } else { Taken::default() });
        }
        if !self.counts(pattern::weight(pattern)) {
            return Ok(Taken::default());
        }
        let read = pattern::read(pattern)?;
        if self.counts(read.weight()) { read.measure() } else { Ok(Taken::default()) }
    }

    /// Counts what a pattern weighs. Whether there is room for it: what a schema has not, is not taken from others.
    fn counts(&mut self, weight: usize) -> bool {
        self.patterns = self.patterns.saturating_add(weight);
        self.patterns <= limits::SCHEMA_PATTERNS_MAX && self.allowance.take(weight)
    }

    /// What a pointer into this schema leads to. Characters that a URL would encode are not decoded: such a
    /// reference leads nowhere.
    fn target(&self, to: &str) -> Option<&'s Value> {
        let pointer = to.strip_prefix('#').filter(|pointer| !pointer.contains('%'))?;
        // The whole schema would contain itself.
        if pointer.is_empty() { None } else { self.root.pointer(pointer) }
    }
}

fn words(refused: &Refused) -> String {
    match refused {
        Refused::TooLarge => format!(
            "the pattern takes more than the {} bytes accepted when it is compiled: repetitions and classes such as \
             `\\p{{L}}` multiply; bound the length with `maxLength`",
            limits::SCHEMA_PATTERN_BYTES_MAX
        ),
        Refused::Wrong(why) => format!("the pattern is not a regular expression: {why}"),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn size(schema: Value) -> Size {
        check(&Json::new(schema), &mut Allowance::default()).unwrap().judge
    }

    /// Patterns cost as often as they are matched.
    #[test]
    fn patterns_are_counted_as_often_as_they_are_asked() {
        let one = size(json!({ "pattern": "a" })).pattern_bytes;
        assert!(one > 0);
        let asked = size(json!({ "allOf": [{ "pattern": "a" }], "unevaluatedProperties": false })).pattern_bytes;
        assert_eq!(asked, 2 * one);
        let names = size(json!({ "patternProperties": { "a": true } })).pattern_bytes;
        let marked = size(json!({ "patternProperties": { "a": true }, "unevaluatedProperties": false })).pattern_bytes;
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
