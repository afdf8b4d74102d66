//! What schemas are accepted, and what they say.
#![expect(clippy::panic, clippy::expect_used, reason = "a test fails by it")]

use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_schema::{Allowance, Effort, Problem, Schema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn compiled(schema: Value) -> Schema {
    Schema::compile(&Json::new(schema.clone())).unwrap_or_else(|problems| panic!("{schema}: {problems:?}"))
}

/// The paths of a schema's problems, and their words.
fn refused(schema: Value) -> (Vec<String>, String) {
    let problems = Schema::compile(&Json::new(schema.clone())).expect_err(&schema.to_string());
    let words = problems.iter().map(|problem| problem.message.clone()).collect::<Vec<_>>().join("; ");
    (problems.into_iter().map(|problem| problem.path).collect(), words)
}

fn paths(schema: &Schema, value: Value) -> Vec<String> {
    schema.violations(&Json::new(value)).into_iter().map(|violation| violation.path).collect()
}

#[test]
fn values_fit_or_it_is_said_where_they_do_not() {
    let schema = compiled(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["approved"],
        "additionalProperties": false,
        "properties": {
            "approved": { "type": "boolean" },
            "note": { "$ref": "#/$defs/text" },
            "lines": { "type": "array", "items": { "$ref": "#/$defs/text" }, "maxItems": 3 }
        },
        "$defs": { "text": { "type": "string", "pattern": "^[a-z ]*$", "maxLength": 10 } }
    }));
    assert_eq!(paths(&schema, json!({ "approved": true, "note": "fine", "lines": ["a", "b"] })), Vec::<String>::new());
    assert_eq!(paths(&schema, json!("{approved: true}")), [""]);
    assert_eq!(paths(&schema, json!({ "note": "x" })), [""]);
    let mut wrong = paths(&schema, json!({ "approved": 1, "note": "NO", "lines": ["a", 7] }));
    wrong.sort();
    assert_eq!(wrong, ["/approved", "/lines/1", "/note"]);
    // Whole doubles are integers, as everywhere.
    assert_eq!(paths(&compiled(json!({ "type": "integer" })), json!(3.0)), Vec::<String>::new());
    assert_eq!(paths(&compiled(json!(true)), json!(null)), Vec::<String>::new());
    assert_eq!(paths(&compiled(json!(false)), json!(null)), [""]);
}

/// Of whoever mistypes a type no one wants to look up the standard's own schema.
#[test]
fn a_type_that_does_not_exist_is_told_with_those_that_do() {
    for wrong in [json!("booleen"), json!(["strin", "null"]), json!(7)] {
        let (paths, words) = refused(json!({ "properties": { "a": { "type": wrong } } }));
        assert_eq!(paths, ["/properties/a/type"]);
        assert!(words.contains("array, boolean, integer, null, number, object, string"), "{words}");
    }
    // A field may have the name.
    let (_, words) = refused(json!({ "properties": { "type": "string" } }));
    assert!(!words.contains("no type of JSON Schema"), "{words}");
}

#[test]
fn what_is_said_does_not_repeat_the_value() {
    let schema = compiled(json!({ "properties": { "key": { "type": "integer" }, "all": { "const": "x" } } }));
    let said = schema.violations(&Json::new(json!({ "key": "s3cr3t", "all": "y".repeat(100_000) })));
    assert_eq!(said.len(), 2);
    assert!(said.iter().all(|violation| !violation.message.contains("s3cr3t") && violation.message.len() < 1_000));
}

#[test]
fn mistakes_are_bounded_in_number_and_in_work() {
    let schema = compiled(json!({ "items": { "type": "integer", "minimum": 3 } }));
    assert_eq!(paths(&schema, json!(vec!["x"; 1_000])).len(), limits::SCHEMA_VIOLATIONS_MAX);
    assert_eq!(paths(&schema, json!(vec!["x"; 200_000])), [""]);
    assert_eq!(paths(&schema, json!(vec![3; 200_000])), Vec::<String>::new());
}

#[test]
fn what_reaches_beyond_the_schema_is_refused() {
    for (schema, path) in [
        (json!({ "$ref": "http://127.0.0.1:1/schema.json" }), "/$ref"),
        (json!({ "$ref": "file:///etc/passwd" }), "/$ref"),
        (json!({ "items": { "$ref": "other.json#/x" } }), "/items/$ref"),
        (json!({ "$ref": "#/$defs/none" }), "/$ref"),
        (json!({ "$ref": "#named" }), "/$ref"),
        // Measured would be one of the two, and followed the other.
        (json!({ "$ref": "#/$defs/a%20b", "$defs": { "a%20b": true, "a b": true } }), "/$ref"),
        (json!({ "$ref": "#" }), "/$ref"),
        (json!({ "$id": "http://example.com/", "type": "object" }), "/$id"),
        (json!({ "$dynamicRef": "#x" }), "/$dynamicRef"),
        (json!({ "properties": { "a": { "$anchor": "x" } } }), "/properties/a/$anchor"),
        (json!({ "$schema": "http://json-schema.org/draft-07/schema#" }), "/$schema"),
    ] {
        assert_eq!(refused(schema.clone()).0, [path], "{schema}");
    }
}

#[test]
fn keywords_that_the_standard_would_ignore_are_refused() {
    let (paths, words) =
        refused(json!({ "type": "object", "requred": ["a"], "properties": { "a": { "Type": "string" } } }));
    assert_eq!(paths, ["/properties/a/Type", "/requred"]);
    assert!(words.contains("did you mean `required`?"), "{words}");
    assert!(!words.contains("did you mean `type`? "), "{words}");
    // Names and values of the author's own are no keywords.
    let own = json!({
        "properties": { "requred": true, "$ref": true, "$id": { "const": { "$ref": "http://x" } } },
        "enum": [{ "$id": 1 }], "default": { "nope": 1 }, "examples": [{ "$ref": "x" }]
    });
    compiled(own);
}

#[test]
fn schemas_that_are_wrong_are_refused_where_they_are_wrong() {
    assert_eq!(refused(json!({ "properties": { "a": { "type": "strin" } } })).0, ["/properties/a/type"]);
    assert_eq!(refused(json!({ "minLength": -1 })).0, ["/minLength"]);
    assert_eq!(refused(json!({ "required": "a" })).0, ["/required"]);
    assert_eq!(refused(json!({ "items": 7 })).0, ["/items"]);
    assert_eq!(refused(json!("text")).0, [""]);
    assert!(!refused(json!({ "pattern": "(" })).0.is_empty());
    // Only what matches in linear time.
    assert!(!refused(json!({ "pattern": "(a)\\1" })).0.is_empty());
    assert!(!refused(json!({ "pattern": "(?=a)" })).0.is_empty());
}

#[test]
fn every_bomb_is_refused_when_it_is_put() {
    let doubling = |refer: fn(usize) -> Value| {
        let mut definitions: serde_json::Map<String, Value> =
            (0..30).map(|level| (format!("d{level}"), refer(level + 1))).collect();
        definitions.insert("d30".to_owned(), json!({ "type": "string" }));
        json!({ "$ref": "#/$defs/d0", "$defs": definitions })
    };
    for bomb in [
        doubling(|level| json!({ "allOf": vec![json!({ "$ref": format!("#/$defs/d{level}") }); 2] })),
        doubling(|level| json!({ "anyOf": vec![json!({ "$ref": format!("#/$defs/d{level}") }); 2] })),
        doubling(|level| {
            let to = json!({ "$ref": format!("#/$defs/d{level}") });
            json!({ "properties": { "a": to, "b": to } })
        }),
    ] {
        assert!(refused(bomb).1.contains("parts"));
    }
    let recursive =
        json!({ "$ref": "#/$defs/t", "$defs": { "t": { "properties": { "l": { "$ref": "#/$defs/t" } } } } });
    assert!(refused(recursive).1.contains("itself"));
    let chain: serde_json::Map<String, Value> =
        (0..1_000).map(|n| (format!("d{n}"), json!({ "$ref": format!("#/$defs/d{}", n + 1) }))).collect();
    assert!(refused(json!({ "$ref": "#/$defs/d0", "$defs": chain })).1.contains("deep"));
    assert!(refused(json!({ "description": "x".repeat(limits::SCHEMA_BYTES_MAX) })).1.contains("bytes"));
    let patterns: Vec<Value> =
        (0..=limits::SCHEMA_PATTERNS_MAX).map(|n| json!({ "pattern": format!("a{n}") })).collect();
    assert!(refused(json!({ "allOf": patterns })).1.contains("patterns"));
    assert!(!refused(json!({ "pattern": "((a{100}){100}){100}" })).0.is_empty());
    let values: Vec<Value> = (0..limits::SCHEMA_PARTS_MAX).map(|n| json!(n)).collect();
    assert!(refused(json!({ "enum": values })).1.contains("parts"));
    let names: Vec<String> = (0..limits::SCHEMA_PARTS_MAX / 2).map(|n| format!("{n}")).collect();
    for demands in [json!({ "required": names }), json!({ "dependentRequired": { "a": names } })] {
        let twice = vec![json!({ "$ref": "#/$defs/d" }); 2];
        assert!(refused(json!({ "allOf": twice, "$defs": { "d": demands } })).1.contains("parts"));
    }
}

/// What is unevaluated is only known when everything in place was asked again, at each level below.
#[test]
fn keywords_that_ask_again_multiply() {
    for kind in ["allOf", "anyOf", "oneOf"] {
        let nested = |depth: usize| {
            (0..depth).fold(
                json!({ "properties": { "a": true } }),
                |inner, _| json!({ kind: [inner], "unevaluatedProperties": false, "unevaluatedItems": false }),
            )
        };
        assert!(refused(nested(14)).1.contains("parts"), "{kind}");
        assert_eq!(paths(&compiled(nested(4)), json!({ "a": 1 })), Vec::<String>::new());
        assert_ne!(paths(&compiled(nested(4)), json!({ "b": 1 })), Vec::<String>::new());
    }
    // One above a chain asks each link again for each link above it.
    let chain = |links: usize| (0..links).fold(json!({ "minProperties": 1 }), |inner, _| json!({ "allOf": [inner] }));
    let chains = |many: usize| json!({ "allOf": vec![chain(27); many], "unevaluatedProperties": false });
    assert!(refused(chains(30)).1.contains("parts"));
    compiled(chains(5));
    // Below each other in the value they do not.
    let tree = (0..20).fold(
        json!({ "type": "integer" }),
        |inner, _| json!({ "properties": { "a": inner }, "unevaluatedProperties": false }),
    );
    compiled(tree);
}

/// Every keyword that holds a schema, alone and beside each that asks again, forty deep: what doubles from level to
/// level is refused when it is put, and the rest is judged. What the library does more often than we count never ends
/// here.
#[test]
fn no_nest_of_keywords_takes_exponential_time() {
    const HOLDERS: [&str; 18] = [
        "additionalProperties",
        "allOf",
        "anyOf",
        "contains",
        "dependentSchemas",
        "else",
        "if",
        "items",
        "not",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$ref",
    ];
    const DEPTH: usize = 40;
    let held = |holder: &str, inner: Value| match holder {
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => json!([inner]),
        "dependentSchemas" | "patternProperties" | "properties" => json!({ "a": inner }),
        _ => inner,
    };
    let beside = [
        json!({}),
        json!({ "unevaluatedItems": false }),
        json!({ "unevaluatedProperties": false }),
        json!({ "unevaluatedItems": { "type": "string" }, "unevaluatedProperties": { "type": "string" } }),
        json!({ "anyOf": [{}] }),
        json!({ "if": {} }),
    ];
    let nested =
        |shape: &dyn Fn(Value) -> Value| (0..DEPTH).fold(json!({ "type": "integer" }), |inner, _| shape(inner));
    let mut values = Vec::new();
    for leaf in [json!(1), json!("x")] {
        values.push(nested_value(DEPTH, &leaf, |inner| json!([inner])));
        values.push(nested_value(DEPTH, &leaf, |inner| json!({ "a": inner })));
    }
    let mut judged = 0;
    for holder in HOLDERS {
        for beside in &beside {
            let schema = if holder == "$ref" {
                references(DEPTH.min(30), beside)
            } else {
                nested(&|inner| {
                    let mut all = beside.clone();
                    all[holder] = held(holder, inner);
                    all
                })
            };
            let Ok(schema) = Schema::compile(&Json::new(schema)) else { continue };
            judged += 1;
            for value in &values {
                let _ = schema.violations(&Json::new(value.clone()));
            }
        }
    }
    assert!(judged > 60, "{judged} of {} were judged", HOLDERS.len() * beside.len());
}

/// The most that this process may take while it compiles a schema, in kibibytes.
const MEMORY_KIB_MAX: usize = 64 * 1024;

/// The largest accepted schema of many forms, each with something large that references multiply: what the library
/// copies wherever it compiles it again must have been counted as often. The kernel counts, not we.
#[cfg(target_os = "linux")]
#[test]
fn the_memory_of_every_accepted_schema_is_bounded() {
    let long = "x".repeat(58_000);
    let names: Vec<String> = (0..7_000).map(|n| format!("n{n}")).collect();
    let large = [
        json!({ "const": vec![json!({ "": 0 }); 6_000] }),
        json!({ "const": long }),
        json!({ "enum": vec![json!([[0]]); 5_000] }),
        json!({ "enum": [long] }),
        json!({ "required": names[..6_000] }),
        json!({ "required": [long] }),
        json!({ "dependentRequired": { "a": names[..6_000] } }),
        json!({ "properties": { long.clone(): true } }),
        json!({ "properties": { "x".repeat(40_000): { "allOf": vec![json!({ "minLength": 1 }); 400] } } }),
        json!({ "patternProperties": { "[ab]*a[ab]{400}c": { "const": long } } }),
        json!({ "pattern": "[ab]*a[ab]{1500}c" }),
        json!({ "pattern": "x".repeat(2_000) }),
        json!({ "multipleOf": 0.01 }),
        json!({ "type": vec!["string"; 1] }),
        json!({ "$comment": long, "title": "x" }),
        json!({ "description": long }),
        json!({ "examples": vec![json!({ "": 0 }); 6_000] }),
        json!({ "$defs": { long.clone(): { "allOf": vec![json!(true); 20] } } }),
    ];
    let mut compiled = 0;
    for large in &large {
        for inner in ["", "additionalProperties", "patternProperties", "contains", "items", "unevaluatedProperties"] {
            let target = match inner {
                "" => large.clone(),
                "patternProperties" => json!({ inner: { "a": large } }),
                _ => json!({ inner: large }),
            };
            // To find out how large a pattern is takes long.
            if large.get("pattern").is_some() && !["", "additionalProperties"].contains(&inner) {
                continue;
            }
            for holder in ["allOf", "prefixItems", "doubling"] {
                let shape = |many: usize| {
                    let mut schema = match holder {
                        "doubling" => doubled(many.ilog2(), &target),
                        _ => json!({ "$defs": { "d": target }, holder: vec![json!({ "$ref": "#/$defs/d" }); many] }),
                    };
                    schema["unevaluatedProperties"] = json!(false);
                    schema
                };
                let largest = (0..6).rev().map(|power| 1 << (2 * power)).find_map(|many: usize| {
                    let schema = Json::new(shape(many));
                    Schema::compile(&schema).ok().map(|schema| (many, schema, peak_kib()))
                });
                let Some((many, _schema, kib)) = largest else { continue };
                compiled += 1;
                let what: String = large.to_string().chars().take(60).collect();
                assert!(kib < MEMORY_KIB_MAX, "{many} of {what} in {inner} by {holder}: {kib} KiB");
            }
        }
    }
    assert!(compiled > 90, "{compiled}");
}

/// The library compiles a pattern once, wherever references lead to it.
#[test]
fn a_pattern_takes_memory_once() {
    let memory = |references: usize| {
        compiled(json!({
            "$defs": { "d": { "pattern": "[ab]*a[ab]{1500}c" } },
            "allOf": vec![json!({ "$ref": "#/$defs/d" }); references],
        }))
        .memory()
    };
    let (one, thousand) = (memory(1), memory(1_000));
    assert!(thousand < limits::SCHEMAS_KEPT_BYTES_MAX / 8, "{one} {thousand}");
}

/// Schemas of one kind: as many patterns as may be, each by itself or at many places, with groups, or of many words.
fn of_patterns(kind: &str, of: usize) -> Value {
    // Without a word in them that a text would first be searched for.
    let each = |n: usize| match kind {
        "by itself" => json!({ "pattern": format!("[ab]*a[ab]{{{}}}[c-y]{{{}}}[!-~]{{{n}}}", 16 + n % 8, 1 + of) }),
        "at many places" => json!({
            "patternProperties": { format!("[ab]*a[ab]{{300}}[c-y]{{{}}}", 1 + of): true },
            "additionalProperties": { "type": "string", "minLength": n }
        }),
        "large" => json!({ "pattern": format!("(?:[a-c]{{2000}}|[c-y])[!-~]{{{}}}[c-y]{{{}}}", 9 + n, 1 + of) }),
        "with groups" => {
            json!({ "pattern": format!("{}([a-c]{{{}}}|[c-y])[!-~]{{9}}[c-y]{{{}}}", "()".repeat(20), 900 + n, 1 + of) })
        }
        "few, with groups" => {
            json!({ "pattern": format!("{}[ab]*a[ab]{{{}}}[!-~]{{9}}[c-y]{{{}}}", "()".repeat(400), 5 + n, 1 + of) })
        }
        "once, with groups" => json!({ "pattern": format!("^([a-c]+)-([d-f]+)-([0-9]{{{}}})z{of}$", 1 + n) }),
        _ => json!({ "pattern": (0..99).map(|word| format!("{of}w{word}x{n}")).collect::<Vec<_>>().join("|") }),
    };
    // One that fits ends an `anyOf`, and one that does not an `allOf`.
    let all = if kind == "at many places" { "allOf" } else { "anyOf" };
    let patterns = match kind {
        "few, with groups" => 2,
        "of words" | "with groups" => 30,
        _ => 90,
    };
    json!({ all: (0..patterns).map(each).collect::<Vec<Value>>() })
}

const KINDS: [&str; 7] =
    ["by itself", "at many places", "large", "with groups", "few, with groups", "once, with groups", "of words"];

/// A text, or a field's name, that leads such patterns as far as may be, and fits none.
fn a_and_b(kind: &str, length: u64) -> Json {
    let text: String = (0..length).map(|n| if (n * n / 7) % 3 == 0 { 'a' } else { 'b' }).collect();
    Json::new(if kind == "at many places" { json!({ text: "" }) } else { json!(text) })
}

/// What matchers remember of the values that they have judged stays with them, for each thread that has judged by it:
/// the kernel counts what schemas take after that.
#[cfg(target_os = "linux")]
#[test]
fn the_memory_of_schemas_that_have_judged_is_what_they_say() {
    let mut all = Vec::new();
    for kind in KINDS {
        let before = now_kib();
        let kept: Vec<Schema> = (0..2).map(|of| compiled(of_patterns(kind, of))).collect();
        for schema in &kept {
            // The longest that is no long text.
            let most =
                (1..).find(|length| schema.effort(&a_and_b(kind, length * 8)) == Effort::Large).expect("there is one");
            let value = a_and_b(kind, (most - 1) * 8);
            assert_ne!(schema.effort(&value), Effort::Large);
            for _ in 0..10 {
                let judge = || schema.violations(&value);
                std::thread::scope(|threads| threads.spawn(judge).join().expect("it has judged"));
            }
        }
        let (taken, said) = (peak_kib().saturating_sub(before), kept.iter().map(Schema::memory).sum::<usize>() / 1_024);
        assert!(taken < said, "{kind}: {taken} KiB, and they say {said}");
        assert!(said < 100 * taken, "{kind}: {taken} KiB, and they say {said}");
        all.push(kept);
    }
}

/// So does what a long text makes them hold while it is judged. A process that has freed memory takes it again unseen: each
/// kind is judged by a new one, which is this test once more.
#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::disallowed_methods, reason = "a child is told by its environment what to do")]
fn what_a_long_text_takes_has_a_bound() {
    const KIND: &str = "AETHERIS_TEST_KIND";
    if let Ok(kind) = std::env::var(KIND) {
        let schema = compiled(of_patterns(&kind, 0));
        let before = now_kib();
        // In one of more than 128 bytes every place is looked for at once.
        let said = schema.violations(&a_and_b(&kind, 150));
        let judged = said.iter().all(|said| !said.message.contains("too large to be judged"));
        println!("{judged} {}", peak_kib() - before);
        return;
    }
    let most = limits::SCHEMA_WALKING_BYTES_MAX / 1_024;
    let (mut taken_by_all, myself) = (0, std::env::current_exe().expect("it runs"));
    for kind in KINDS {
        let mut again = std::process::Command::new(&myself);
        again.args(["--exact", "what_a_long_text_takes_has_a_bound", "--nocapture"]).env(KIND, kind);
        let said = String::from_utf8(again.output().expect("it runs").stdout).expect("text");
        let taken =
            said.lines().find_map(|line| line.strip_prefix("true ")).unwrap_or_else(|| panic!("{kind}: {said}"));
        let taken: usize = taken.parse().expect("a number");
        assert!(taken < most, "{kind}: {taken} KiB");
        taken_by_all += taken;
    }
    assert!(taken_by_all > most / 8, "{taken_by_all} KiB are nothing");
}

/// A matcher that walks a text state by state has a place for each group in each state.
#[test]
fn groups_count_where_a_text_is_walked() {
    let many = |groups: usize, patterns: usize| {
        let each = |n: usize| json!({ "pattern": format!("{}([a-z]{{3000}}|[c-y])[!-~]{{{n}}}", "()".repeat(groups)) });
        json!({ "anyOf": (0..patterns).map(each).collect::<Vec<Value>>() })
    };
    let one = format!("{}([a-z]{{900}}|[c-y])[!-~]{{9}}", "()".repeat(60));
    let at_many_places = json!({ "anyOf": vec![json!({ "pattern": one }); 90] });
    for refused_too in [many(400, 26), many(60, 90), at_many_places] {
        let (path, message) = refused(refused_too);
        assert!(path == [""] && message.contains("write groups"), "{path:?}: {message}");
    }
    compiled(many(0, 90));
    compiled(many(400, 1));
    let address =
        "^(([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(([0-9a-f]{1,4}:){1,6}|:)((:[0-9a-f]{1,4}){1,6}|:))(/[0-9]{1,3})?$";
    let fields: Map<String, Value> = (0..60).map(|n| (format!("to_{n}"), json!({ "pattern": address }))).collect();
    compiled(json!({ "properties": fields }));
}

/// A pattern counts by the time that it takes to compile, before it is compiled.
#[test]
fn a_pattern_that_takes_long_to_compile_counts_as_several() {
    let most = limits::SCHEMA_PATTERNS_MAX;
    let spent = |pattern: String| {
        let mut allowance = Allowance::of(usize::MAX);
        let refused = Schema::compile_within(&Json::new(json!({ "pattern": pattern })), &mut allowance).err();
        refused.is_some_and(|problems| problems[0].message.contains("patterns accepted"))
    };
    for (part, few, many) in [
        ("\\p{L}", 16, 16 * most),
        ("[\\p{L}x]", 16, 16 * most),
        ("(?i)\\p{L}", 9, most / 10),
        ("(?i)[\\p{L}]", 9, most / 10),
        ("(?i)[^a\u{3000}-\u{ffff}]", 9, most / 10),
        ("(?i:\\p{L})", 9, most / 10),
        ("(?i)[\\W]", 9, most / 10),
        ("\\cA", 570, 710),
        ("\\d", 360, 450),
        ("\\D", 360, 450),
        ("\\s", 90, 112),
        ("\\S", 90, 112),
        ("\\w", 270, 340),
        ("\\W", 270, 340),
    ] {
        let repeated = |times: usize| format!("(?:{}){{0}}", part.repeat(times));
        assert!(!spent(repeated(few)), "{few} of {part}");
        assert!(spent(repeated(many)), "{many} of {part}");
    }
    let words = r"(?i)^[\w.]+ [\w.]+ [\w.]+ [\w.]+ [\w.]+ [\w.]+ [\w.]+ [\w.]+ [\w.]+ [\w.]+$";
    for usual in ["(?i)^[a-z ]{1,20}$", words, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"] {
        assert!(!spent(usual.to_owned()), "{usual}");
        let fields: Map<String, Value> = (0..9).map(|n| (format!("f{n}"), json!({ "pattern": usual }))).collect();
        compiled(json!({ "properties": fields }));
    }
    let dates =
        (0..60).map(|n| json!({ "pattern": format!("^{}T{}Z{n}$", r"\d\d\d\d-\d\d-\d\d", r"\d\d:\d\d:\d\d\.\d\d\d") }));
    compiled(json!({ "anyOf": dates.collect::<Vec<Value>>() }));
    // What is compared with texts as it stands is not compiled, and each of a list takes its time.
    let known = (0..2_000).map(|n| format!("sku-{n:05}")).collect::<Vec<_>>().join("|");
    let listed = compiled(json!({ "pattern": format!("^({known})$") }));
    assert_eq!(paths(&listed, json!("sku-01999")), Vec::<String>::new());
    assert_eq!(paths(&listed, json!("sku-02000")), [""]);
    let short = compiled(json!({ "items": { "not": { "pattern": format!("^({}b)$", "|".repeat(60_000)) } } }));
    let said = short.violations(&Json::new(json!(vec!["a"; 9_000])));
    assert!(said[0].message.contains("too large to be judged"), "{said:?}");
}

/// Its author has to know which pattern it is, and that it alone is too much.
#[test]
fn a_pattern_that_counts_as_several_is_named() {
    let heavy = format!("(?:{}){{0}}", r"\d".repeat(2_500));
    let (paths, words) = refused(json!({ "properties": { "a": { "pattern": "^a$" }, "b": { "pattern": heavy } } }));
    assert_eq!(paths, ["/properties/b/pattern"]);
    assert!(words.contains("this one counts as ") && !words.contains("as 0") && !words.contains("as 1;"), "{words}");
    let (paths, words) = refused(json!({ "patternProperties": { heavy.as_str(): true } }));
    assert_eq!(paths.len(), 1);
    assert!(paths[0].starts_with("/patternProperties/(?:") && words.contains("this one counts as "), "{words}");
    let many: Vec<Value> = (0..=limits::SCHEMA_PATTERNS_MAX).map(|n| json!({ "pattern": format!("a{n}") })).collect();
    assert_eq!(refused(json!({ "anyOf": many })).0, [""]);
}

/// What is spent is spent, whatever became of the schema; one without patterns needs nothing.
#[test]
fn schemas_that_are_read_together_share_what_they_may_compile() {
    let of = |patterns: usize, wrong: bool| {
        let each = |n: usize| json!({ "pattern": format!("a{n}") });
        let mut schema = json!({ "anyOf": (0..patterns).map(each).collect::<Vec<Value>>() });
        if wrong {
            schema["tpye"] = json!("string");
        }
        Json::new(schema)
    };
    for wrong in [false, true] {
        let mut allowance = Allowance::of(100);
        let mut read = |patterns, wrong| Schema::compile_within(&of(patterns, wrong), &mut allowance).err();
        let together = |found: Option<Vec<Problem>>| {
            found.is_some_and(|found| found.iter().any(|problem| problem.message.contains("read together")))
        };
        assert!(!together(read(60, wrong)));
        assert!(!together(read(40, wrong)));
        assert!(together(read(1, wrong)));
        assert_eq!(Schema::compile_within(&Json::new(json!({ "type": "object" })), &mut allowance).err(), None);
    }
}

/// One value may take so much, and several that are judged together no more.
#[test]
fn values_that_are_judged_together_share_what_that_may_take() {
    let listed = limits::SCHEMA_PARTS_MAX / 2;
    let schema = compiled(json!({ "items": { "enum": (0..listed).collect::<Vec<usize>>() } }));
    let of = |share: usize| Json::new(json!(vec![0; limits::SCHEMA_WORK_MAX / listed / share]));
    let mut allowance = Allowance::default();
    let mut said = |value: &Json| {
        let found = schema.violations_within(value, &mut allowance);
        found.into_iter().map(|violation| violation.message).collect::<String>()
    };
    assert_eq!([said(&of(4)), said(&of(4)), said(&of(4))], ["", "", ""]);
    assert!(said(&of(3)).contains("judged together take too long"));
    // What is small has room still, and what is too large for any schema is called that.
    assert_eq!(said(&of(8)), "");
    assert!(said(&of(1)).contains("too large to be judged by the parts"));
    assert_eq!(schema.violations(&of(3)), []);
}

/// Words for people take no time when a value is judged, and are copied wherever references lead to them.
#[test]
fn long_words_take_memory_as_often_as_they_are_copied() {
    for word in ["$comment", "default", "description", "examples", "title"] {
        let long = if word == "examples" { json!(["x".repeat(50_000)]) } else { json!("x".repeat(50_000)) };
        let schema = compiled(json!({
            "$defs": { "d": { word: long } },
            "allOf": vec![json!({ "$ref": "#/$defs/d" }); 8],
        }));
        assert!(schema.memory() > 8 * 50_000, "{word}: {}", schema.memory());
    }
}

#[test]
fn a_pattern_that_is_too_large_is_not_called_wrong() {
    for (pattern, why) in [
        ("^[\\p{L} .'-]{0,10}$", "takes more than the 262144 bytes accepted when it is compiled"),
        ("^\\p{L}{1,100}$", "bound the length with `maxLength`"),
        ("(a{100}){100}{100}", "takes more than the 262144 bytes"),
        ("\\cJ\\p{L}{1,100}", "takes more than the 262144 bytes"),
        ("[[]\\p{L}{1,100}", "takes more than the 262144 bytes"),
        ("[", "is not a regular expression: unclosed character class"),
        ("\\a", "is not a regular expression: it has an escape"),
        ("a(?=b)", "is not a regular expression: look-around"),
        ("(a)\\1", "is not a regular expression: backreferences"),
    ] {
        for schema in [json!({ "pattern": pattern }), json!({ "patternProperties": { pattern: true } })] {
            let problems = Schema::compile(&Json::new(schema)).expect_err(pattern);
            assert!(problems[0].message.contains(why), "{problems:?}");
        }
    }
}

/// What is refused here, and what the standard says itself: each place once.
#[test]
fn every_mistake_of_a_schema_is_said_at_once() {
    let (mut paths, words) = refused(json!({
        "minimum": "one",
        "properties": { "a": { "pattern": "[" }, "b": { "pattern": "(" }, "c": { "tpye": 1 }, "d": { "type": "strin" } },
        "patternProperties": { "*": true },
    }));
    paths.sort();
    let all = ["/minimum", "/patternProperties/*", "/properties/a/pattern", "/properties/b/pattern"];
    assert_eq!(paths, [&all[..], &["/properties/c/tpye", "/properties/d/type"]].concat(), "{words}");
    for why in ["unclosed character class", "unclosed group", "repetition operator missing expression"] {
        assert!(words.contains(why), "{words}");
    }
}

/// A schema behind references, each level of which refers twice to the next.
fn doubled(levels: u32, target: &Value) -> Value {
    let mut defs = json!({ "d0": target });
    for level in 0..levels {
        let below = json!({ "$ref": format!("#/$defs/d{level}") });
        defs[format!("d{}", level + 1)] = json!({ "allOf": [below, below] });
    }
    json!({ "$ref": format!("#/$defs/d{levels}"), "$defs": defs })
}

/// The most memory that this process has had since it was last asked, in kibibytes.
#[cfg(target_os = "linux")]
fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel counts");
    std::fs::write("/proc/self/clear_refs", "5").expect("it counts anew");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has a peak");
    line.trim().trim_end_matches(" kB").parse().expect("in kibibytes")
}

/// The memory that this process has, in kibibytes.
#[cfg(target_os = "linux")]
fn now_kib() -> usize {
    peak_kib();
    peak_kib()
}

/// Dividing exactly takes long: as long as it does for prices, and much longer for what nobody means.
#[test]
fn a_multiple_counts_what_it_takes() {
    let fields = |factor: f64, count: usize| {
        compiled(json!({ "items": { "allOf": vec![json!({ "multipleOf": factor }); count] } }))
    };
    for (factor, value) in
        [(5e-324, 1.7e308), (5e-324, 1.0), (0.01, 1.7e308), (0.01, -1.7e308), (0.01, -1.1e18), (1e300, 1.7e308)]
    {
        let said = fields(factor, 150).violations(&Json::new(json!(vec![value; 1_500])));
        assert!(said[0].message.contains("too large to be judged by the parts"), "{factor} {value}: {said:?}");
    }
    let price = json!({ "minimum": 0, "multipleOf": 0.01, "type": "number" });
    let form: Map<String, Value> = (0..160).map(|n| (format!("price_{n}"), price.clone())).collect();
    compiled(json!({ "properties": form }));
    let line: Map<String, Value> = (0..12).map(|n| (format!("price_{n}"), price.clone())).collect();
    let order = compiled(json!({ "items": { "properties": line } }));
    let line: Map<String, Value> = (0..12).map(|n| (format!("price_{n}"), json!(12.25))).collect();
    assert!(order.violations(&Json::new(json!(vec![line; 1_000]))).is_empty());
}

/// A number counts by its digits only where it is divided.
#[test]
fn large_numbers_cost_nothing_where_nobody_divides_them() {
    let row = json!({ "properties": { "at_ns": { "type": "integer" }, "id": { "minimum": 0 } }, "required": ["id"] });
    let rows = compiled(json!({ "items": row }));
    let value = Json::new(json!(vec![json!({ "at_ns": 1_760_000_000_000_000_000_u64, "id": 1e19 }); 12_000]));
    assert_eq!(rows.violations(&value), []);
}

fn nested_value(depth: usize, leaf: &Value, around: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(leaf.clone(), |inner, _| around(inner))
}

fn references(depth: usize, beside: &Value) -> Value {
    let mut defs = json!({ "d0": { "type": "integer" } });
    for level in 0..depth {
        let mut all = beside.clone();
        all["$ref"] = json!(format!("#/$defs/d{level}"));
        defs[format!("d{}", level + 1)] = all;
    }
    json!({ "$ref": format!("#/$defs/d{depth}"), "$defs": defs })
}

/// Of many missing names the library makes a mistake each before the first is heard of.
#[test]
fn the_mistakes_of_many_names_are_not_listed() {
    let names: Vec<String> = (0..3_000).map(|n| format!("f{n}")).collect();
    let schema = compiled(json!({ "items": { "required": names } }));
    let said = schema.violations(&Json::new(json!(vec![json!({}); 100])));
    assert!(said.len() == 1 && said[0].message.contains("too large for its mistakes"), "{said:?}");
}

#[test]
fn a_pattern_takes_linear_time() {
    let schema = compiled(json!({ "type": "string", "pattern": "^(a+)+$" }));
    assert_eq!(paths(&schema, json!("a".repeat(500_000) + "!")), [""]);
}

/// Patterns are walked in the text's length times their own size, which an author chooses, and a sender the text.
#[test]
fn what_patterns_and_parts_cost_is_bounded() {
    let heavy: Vec<Value> = (0..100).map(|n| json!({ "pattern": format!("[ab]*a[ab]{{400}}c{n}") })).collect();
    let schema = compiled(json!({ "anyOf": heavy }));
    let said = schema.violations(&Json::new(json!("ab".repeat(30_000))));
    assert!(said[0].message.contains("too large to be judged by the patterns"), "{said:?}");
    // A field's name is matched as well.
    let names = compiled(json!({ "patternProperties": { "[ab]*a[ab]{1000}c": true } }));
    assert!(!names.violations(&Json::new(json!({ "ab".repeat(200_000): 1 }))).is_empty());
    assert_eq!(names.violations(&Json::new(json!({ "ab".repeat(1_000): 1 }))), []);
    let schema = compiled(json!({ "allOf": vec![json!({ "uniqueItems": true }); 2_000] }));
    let said = schema.violations(&Json::new(json!((0..100_000).collect::<Vec<_>>())));
    assert!(said[0].message.contains("too large to be judged by the parts"), "{said:?}");
    // Every text has an end at which a pattern is tried, the empty one too.
    let optional = compiled(json!({ "items": { "not": { "pattern": "(?:[!-~]?){1800}\\b" } } }));
    let said = optional.violations(&Json::new(json!(vec![""; 300_000])));
    assert!(said[0].message.contains("too large to be judged by the patterns"), "{said:?}");
    // What people write is far below it.
    let usual = compiled(json!({ "items": { "properties": {
        "mail": { "pattern": "^[\\w.+-]+@[\\w-]+\\.[\\w.]+$" }, "sku": { "pattern": "^[A-Z]{3}-\\d{4,8}$" },
    } } }));
    let orders = vec![json!({ "mail": "ada.lovelace@example.com", "sku": "ABC-12345" }); 10_000];
    assert_eq!(usual.violations(&Json::new(json!(orders))), []);
}

proptest! {
    /// Whatever the schema says, judging ends, and what is valid has no violation.
    #[test]
    fn judging_never_panics(schema in any_schema(), value in any_value()) {
        if let Ok(schema) = Schema::compile(&Json::new(schema)) {
            let violations = schema.violations(&Json::new(value));
            prop_assert!(violations.len() <= limits::SCHEMA_VIOLATIONS_MAX);
        }
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        Just(json!({ "type": "string" })),
        Just(json!({ "$ref": "#/$defs/a" })),
        Just(json!({ "pattern": "^[ab]*$" })),
        Just(json!({ "enum": [1, "a", null] })),
        any_value(),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({ "allOf": all })),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|any| json!({ "anyOf": any })),
            inner.clone().prop_map(|not| json!({ "not": not })),
            inner.clone().prop_map(|items| json!({ "items": items, "uniqueItems": true })),
            prop::collection::btree_map("[a-c]", inner.clone(), 0..3)
                .prop_map(|map| json!({ "properties": map, "unevaluatedProperties": false })),
            prop::collection::btree_map("[a-c]", inner, 0..3)
                .prop_map(|map| json!({ "$defs": map, "$ref": "#/$defs/a" })),
        ]
    })
}

/// Each of the two by itself, and each keyword whose schemas judge the same value.
#[test]
fn every_schema_in_place_is_asked_again_by_either_keyword() {
    for again in ["unevaluatedItems", "unevaluatedProperties"] {
        for kind in ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"] {
            let nested = |depth: usize| {
                (0..depth).fold(json!({ "type": "object" }), |inner, _| {
                    let value = match kind {
                        "allOf" | "anyOf" | "oneOf" => json!([inner]),
                        "dependentSchemas" => json!({ "a": inner }),
                        _ => inner,
                    };
                    let mut schema = json!({ again: false });
                    if matches!(kind, "then" | "else") {
                        schema["if"] = json!(true);
                    }
                    schema[kind] = value;
                    schema
                })
            };
            assert!(refused(nested(14)).1.contains("parts"), "{kind} below {again}");
            compiled(nested(3));
        }
        let chain: serde_json::Map<String, Value> = (0..14)
            .map(|n| (format!("d{n}"), json!({ "$ref": format!("#/$defs/d{}", n + 1), again: false })))
            .chain([("d14".to_owned(), json!({ "type": "object" }))])
            .collect();
        assert!(refused(json!({ "$ref": "#/$defs/d0", "$defs": chain })).1.contains("parts"), "{again}");
    }
}

#[test]
fn a_place_is_a_pointer_whatever_its_names_hold() {
    let (paths, _) = refused(json!({ "properties": { "a/b~c": { "typo": 1 } } }));
    assert_eq!(paths, ["/properties/a~1b~0c/typo"]);
}

/// A value's refusal is recorded and answered: what is said of it does not grow with the names of its fields.
#[test]
fn what_is_said_of_a_value_is_bounded() {
    let schema = compiled(json!({"additionalProperties": {"items": {"type": "string"}}}));
    for length in [1, 500, 53_000] {
        let value = Json::new(json!({ "K".repeat(length): (0..20).collect::<Vec<_>>() }));
        let violations = schema.violations(&value);
        let bytes: usize = violations.iter().map(|found| found.path.len() + found.message.len()).sum();
        assert!(bytes <= limits::SCHEMA_VIOLATIONS_BYTES_MAX && violations.len() >= 10, "{bytes}");
        assert!(violations.iter().all(|found| found.path.len() <= limits::FILE_PATH_BYTES_MAX));
    }
}
