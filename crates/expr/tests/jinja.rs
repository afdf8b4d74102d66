//! The language is a part of Jinja: on that part it agrees with another implementation.

use std::collections::BTreeMap;

use aetheris_core::json::Json;
use aetheris_expr::{Context, render_text};
use minijinja::{Environment, UndefinedBehavior};
use proptest::prelude::*;
use serde_json::{Value, json};

fn message() -> Value {
    json!({"n": 7, "s": "a b", "l": [3, 1, 2], "o": {"x": "y"}, "t": true, "z": 0, "e": ""})
}

fn theirs(template: &str) -> Option<String> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.render_str(template, minijinja::value::Serde(BTreeMap::from([("message", message())]))).ok()
}

fn ours(template: &str) -> Option<String> {
    render_text(template, &Context { message: Some(Json::new(message())), ..Context::default() }).ok()
}

const OPERANDS: &[&str] = &[
    "message.n",
    "message.z",
    "message.s",
    "message.e",
    "message.o.x",
    "2",
    "-3",
    "1.5",
    "'q'",
    "(1 + 2)",
    "message.l[1]",
    "message.l[-1]",
    "(message.l | length)",
    "(message.s | upper)",
    "(message.l | sum)",
    "(message.l | first)",
    "(message.l | join('/'))",
    "(message.missing | default(4))",
    "message.missing",
];
const OPERATORS: &[&str] = &["+", "-", "*", "/", "//", "%", "**", "~"];
const COMPARISONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];

/// Whether a difference is one that is meant: texts cannot be multiplied, and order needs one kind.
fn meant(ours: Option<&String>, theirs: Option<&String>) -> bool {
    ours.is_none() && theirs.is_some()
}

proptest! {
    #[test]
    fn arithmetic_agrees(a in prop::sample::select(OPERANDS), x in prop::sample::select(OPERATORS), b in prop::sample::select(OPERANDS), y in prop::sample::select(OPERATORS), c in prop::sample::select(OPERANDS)) {
        let template = format!("[{{{{ ({a} {x} {b} {y} {c}) ~ '' }}}}]");
        let (ours, theirs) = (ours(&template), theirs(&template));
        // Texts of whole decimals differ on purpose: 2.0 is written `2`, as canonical JSON does. Joined to another
        // text it is no number any more.
        let (joined, decimal) = ([x, y].contains(&"~"), |text: &String| text.contains(['.', 'e']));
        let same = match (&ours, &theirs) {
            (Some(a), Some(b)) if a == b => true,
            (Some(_), Some(b)) if joined => decimal(b),
            (Some(a), Some(b)) => number(a).zip(number(b)).map_or(decimal(b), |(a, b)| a == b),
            _ => ours == theirs || meant(ours.as_ref(), theirs.as_ref()),
        };
        prop_assert!(same, "{} {:?} {:?}", template, ours, theirs);
    }

    #[test]
    fn logic_agrees(a in prop::sample::select(OPERANDS), x in prop::sample::select(COMPARISONS), b in prop::sample::select(OPERANDS), c in prop::sample::select(OPERANDS), not in any::<bool>(), or in any::<bool>()) {
        let template = format!("{{% if {} {a} {x} {b} {} {c} %}}yes{{% else %}}no{{% endif %}}", if not { "not" } else { "" }, if or { "or" } else { "and" });
        let (ours, theirs) = (ours(&template), theirs(&template));
        prop_assert!(ours == theirs || meant(ours.as_ref(), theirs.as_ref()), "{} {:?} {:?}", template, ours, theirs);
    }
}

/// Refusing everything would agree with anything.
#[test]
fn most_arithmetic_is_worked_out_by_both() {
    let (mut both, mut all) = (0, 0);
    for (a, x) in OPERANDS.iter().flat_map(|a| OPERATORS.iter().map(move |x| (a, x))) {
        for b in OPERANDS {
            let template = format!("{{{{ {a} {x} {b} }}}}");
            all += 1;
            both += u32::from(ours(&template).is_some() && theirs(&template).is_some());
        }
    }
    assert!(both * 10 > all * 4, "{both} of {all}");
}

fn number(text: &str) -> Option<f64> {
    text.trim_matches(['[', ']']).parse().ok()
}

#[test]
fn blocks_agree() {
    for template in [
        "{% for x in message.l %}{{ loop.index }}{{ x }}{% if loop.last %}!{% endif %}{% endfor %}",
        "{% for x in message.l if x > 1 %}{{ loop.index0 }}{{ x }}{% else %}none{% endfor %}",
        "{% for x in [] %}{% else %}none{% endfor %}",
        "a\n{%- if message.t -%}\n b \n{%- endif %}\nc",
        "{% set x = 1 %}{% if true %}{% set y = 2 %}{{ x + y }}{% endif %}",
        "{% raw %}{{ a }}{% endraw %}{# c #}{{ '}}' }}",
        "{{ message.l | sort | join(',') }}{{ message.l | reverse | join }}{{ message.s | title }}{{ 'AbC' | capitalize }}",
        "{{ message.s | replace('a', 'b') }}{{ ' x ' | trim }}{{ 'y' if 7 is odd and 'a' in message.s and 2 in message.l }}",
        "{{ message.l[1:] | join }}{{ message.s[:-1] }}{{ message.s[-1:] }}{{ 'y' if 7 is divisibleby 7 and message.missing is not defined }}",
        "{{ 'x' if message.z else 'y' }}{{ 1 if not message.t else 2 }}{{ -message.n | abs }}{{ 2 + 3 * 4 - 5 // 2 }}{{ 1 ~ 2 + 3 }}",
        "{{ (-3 // 7 ** -3) | int }}{{ (-3 % 0.5) | int }}{{ 7.25 % -2 }}{{ (7.25 // -2) | int }}{{ (5.5 // 2) | int }}",
    ] {
        assert_eq!(ours(template), theirs(template), "{template}");
    }
}
