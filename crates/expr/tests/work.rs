//! What templates may ask for, whoever wrote them and whoever sends the values: no more work than they are charged for.
#![expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]

use std::time::{Duration, Instant};

use aetheris_core::json::Json;

use aetheris_core::limits;
use aetheris_expr::{Context, ExprError, Place, check_address, check_template, render, render_text};
use serde_json::{Value, json};

fn scope(message: Value) -> Context {
    Context { message: Some(Json::new(message)), ..Context::default() }
}

type Greedy = (&'static str, String, Value);

fn each(n: usize, expr: &str) -> String {
    format!("{{% for x in range({n}) %}}{{% if {expr} %}}1{{% endif %}}{{% endfor %}}")
}

fn out(expr: &str) -> String {
    format!("{{{{ {expr} | length }}}}")
}

fn texts(n: usize, text: &str) -> Value {
    Value::from(vec![text; n])
}

fn objects(n: usize) -> Value {
    (0..n).map(|n| json!({"id": n.to_string(), "v": {"a": [n]}})).collect()
}

/// Templates that ask for as much as they can, each with a message for it: filters and tests.
fn greedy_filters() -> Vec<Greedy> {
    let cjk: String = (0..64u32).filter_map(|i| char::from_u32(0x4e00 + 64 * i + 5)).collect();
    let chars = cjk.repeat(2_000);
    let long = "k".repeat(800_000);
    vec![
        ("trim", out("message.t | trim(message.c)"), json!({"t": "\u{4e05}".repeat(150_000), "c": chars})),
        ("is in", each(4_000, "(x + 5) is in message.l"), json!({"l": vec![1; 300_000]})),
        ("in", each(4_000, "(x + 5) in message.l"), json!({"l": vec![1; 300_000]})),
        ("in a text", each(4_000, "'zz' in message.l"), json!({"l": "z ".repeat(300_000)})),
        ("eq", each(4_000, "message.l is eq message.m"), json!({"l": texts(90_000, ""), "m": texts(90_000, "")})),
        ("==", each(4_000, "message.l == message.m"), json!({"l": texts(90_000, ""), "m": texts(90_000, "")})),
        (
            "selectattr in",
            out("message.o | selectattr('id', 'in', message.l)"),
            json!({"o": objects(20_000), "l": texts(80_000, "bbbb")}),
        ),
        (
            "rejectattr eq",
            out("message.o | rejectattr('v', 'eq', message.l)"),
            json!({"o": objects(20_000), "l": objects(1)[0]["v"]}),
        ),
        (
            "selectattr path",
            out("message.o | selectattr(message.p)"),
            json!({"o": vec![json!({}); 100_000], "p": long}),
        ),
        ("map path", out("message.o | map(attribute=message.p)"), json!({"o": vec![json!({}); 100_000], "p": long})),
        ("replace", out("message.t | replace('a', '')"), json!({"t": "a".repeat(900_000)})),
        ("replace long", out("message.t | replace(message.p, 'x')"), json!({"t": "a".repeat(100), "p": long})),
        ("split", out("message.t | split('a')"), json!({"t": "a".repeat(900_000)})),
        ("lines", out("message.t | lines"), json!({"t": "\n".repeat(450_000)})),
        ("title", out("message.t | title | title | title | title | title"), json!({"t": "a ".repeat(100_000)})),
        ("urlencode", out("message.t | urlencode | urlencode | urlencode"), json!({"t": "\u{e9}".repeat(50_000)})),
        ("upper", out("message.t | upper | lower | upper | lower | upper"), json!({"t": "\u{e9}".repeat(100_000)})),
        ("reverse", out("message.t | reverse | reverse | reverse"), json!({"t": "a".repeat(400_000)})),
        ("list", out("message.t | list"), json!({"t": "a".repeat(900_000)})),
        ("fromjson", out("message.t | fromjson"), json!({"t": format!("[{}0]", "\"\",".repeat(290_000))})),
        ("tojson", out("message.l | tojson"), json!({"l": texts(290_000, "")})),
        (
            "items",
            out("message.l | items"),
            json!({"l": (0..60_000).map(|n| (n.to_string(), json!(""))).collect::<serde_json::Map<_, _>>()}),
        ),
    ]
}

/// Filters of lists that compare.
fn greedy_lists() -> Vec<Greedy> {
    vec![
        (
            "sort",
            out("message.l | sort"),
            json!({"l": (0..120_000).map(|n| (n * 7_919 % 120_000).to_string()).collect::<Vec<_>>()}),
        ),
        (
            "sort same",
            out("message.l | sort"),
            json!({"l": (0..900).map(|n| format!("{}{n}", "a".repeat(990))).collect::<Vec<_>>()}),
        ),
        ("unique", out("message.l | unique"), json!({"l": objects(3_000)})),
        (
            "unique texts",
            out("message.l | unique"),
            json!({"l": (0..900).map(|n| format!("{}{n:04}", "a".repeat(990))).collect::<Vec<_>>()}),
        ),
        ("join", out("message.l | join(message.s)"), json!({"l": texts(100_000, ""), "s": "s".repeat(1_000)})),
    ]
}

/// Everything else.
fn greedy_steps() -> Vec<Greedy> {
    let long = "k".repeat(800_000);
    vec![
        ("slice", each(4_000, "message.l[1:]"), json!({"l": texts(200_000, "")})),
        ("slice text", each(4_000, "message.l[1:2]"), json!({"l": long})),
        ("concat", each(4_000, "message.l ~ message.l"), json!({"l": texts(200_000, "")})),
        ("copy", each(4_000, "[message.l]"), json!({"l": texts(200_000, "")})),
        ("owned", format!("{{% set a = [message.l] %}}{}", each(4_000, "a")), json!({"l": texts(20_000, "")})),
        ("small", format!("{{% set a = [{}] %}}{}", "'a',".repeat(60), each(12_000, "a")), json!(1)),
        ("loop", "{% for x in range(12000) %}{% endfor %}".to_owned(), json!(1)),
        ("loop index", "{% for x in range(8000) %}{% set y = loop %}{% endfor %}".to_owned(), json!(1)),
        ("missing", each(8_000, &format!("message[\"{}\"] is defined", "k".repeat(60_000))), json!({"l": 1})),
        ("locals", format!("{{%set b=1%}}{}{}", "{%set a=1%}".repeat(5_000), each(8_000, "b")), json!(1)),
        (
            "alike keys",
            each(10_000, &format!("message.{}a is defined", "k".repeat(55_000))),
            (0..15).map(|n| (format!("{}{n}", "k".repeat(55_000)), json!(1))).collect::<serde_json::Map<_, _>>().into(),
        ),
        ("parsed", "{{1}}".repeat(13_000), json!(1)),
        ("texts", "{{'a'}}".repeat(9_000), json!(1)),
        ("out", "{{ message }}".to_owned(), texts(250_000, "")),
        ("range", "{{ range(40000) | length }}".to_owned(), json!(1)),
    ]
}

/// Those that end within the bound of work: large ones of their kind, and none of them takes long.
const WITHIN: [&str; 11] = [
    "loop",
    "parsed",
    "range",
    "rejectattr eq",
    "replace long",
    "reverse",
    "sort same",
    "texts",
    "title",
    "upper",
    "urlencode",
];

/// The time is what one of these takes many times over, in a debug build on a busy machine: unmetered, most of them took
/// seconds or minutes in a release build.
#[test]
fn nothing_takes_more_than_it_is_charged() {
    for (name, template, message) in greedy_filters().into_iter().chain(greedy_lists()).chain(greedy_steps()) {
        let scope = scope(message);
        check_template(&template, Place::Plan).expect(name);
        let value = Json::new(json!(vec![template; 4]));
        let began = Instant::now();
        let rendered = render(&value, &scope);
        let took = began.elapsed();
        let over = (!WITHIN.contains(&name)).then_some(ExprError::Budget);
        assert_eq!(rendered.err(), over, "{name}");
        assert!(took < Duration::from_secs(10), "{name}: {took:?}");
    }
}

/// Texts of which reading one might look ahead to the others: what is quadratic takes ten seconds and more here, even in
/// a release build.
#[test]
fn reading_a_template_is_linear() {
    let most = limits::TEMPLATE_BYTES_MAX;
    let filled = |before: &str, piece: &str, after: &str| {
        let template = format!("{before}{}{after}", piece.repeat((most - before.len() - after.len()) / piece.len()));
        let began = Instant::now();
        let _ = check_template(&template, Place::Plan);
        let _ = check_address(&template);
        let _ = render_text(&template, &scope(json!(1)));
        assert!(began.elapsed() < Duration::from_secs(10), "{piece:?}: {:?}", began.elapsed());
    };
    for piece in ["{%", "{% ", "{% endraw", "{% endraw -", "{%- 'a", "{% {", " ", "{", "}"] {
        filled("{% raw %}", piece, "{% endraw %}");
        filled("{% raw -%}", piece, "");
        filled("", piece, "");
        filled("{{ '", piece, "' }}");
    }
    for piece in [
        "{{ a }}",
        "{%set a=1%}",
        "{{-a-}} ",
        "{#",
        "{##}",
        "{%if 1%}{%endif%}",
        "a|",
        "a.",
        "(",
        "'",
        "\"a\"~",
        "-",
        "not ",
    ] {
        filled("{%set a=1%}", piece, "");
        filled("{{ ", piece, " }}");
        filled("http://{% for x in [1] %}", piece, "{% endfor %}");
    }
    let (sets, uses) = ("{%set a=1%}".repeat(2_900), "{{b}}".repeat(6_000));
    filled(&format!("{{%set b=1%}}{sets}"), "{{b}}", &uses);
    let loops = format!("http:{}{}", "{%for x in y%}".repeat(20), "{%endfor%}".repeat(20));
    assert!(check_address(&loops).is_err());
    let loops = format!("{{%set y=[]%}}http:{}{{{{ 1 }}}}{}", "{%for x in y%}/h".repeat(20), "{%endfor%}".repeat(20));
    filled(&loops, "{{ 1 }}", "");
}

/// What everybody writes, with the largest values for which it is fine.
#[test]
fn ordinary_templates_have_room() {
    let items =
        |n: usize| -> Value { (0..n).map(|n| json!({"id": n, "name": format!("item {n}"), "cents": n * 7})).collect() };
    for (template, message) in [
        ("{{ message.l | length }}", json!({"l": vec![0; 400_000]})),
        ("{{ message.t | trim | upper | replace('a', 'b') | length }}", json!({"t": "a b ".repeat(200_000)})),
        ("{{ message.t | split(' ') | length }}", json!({"t": "word ".repeat(100_000)})),
        ("{{ message | tojson }}", items(10_000)),
        ("{{ message | map(attribute='name') | join(', ') }}", items(10_000)),
        ("{{ message | sort(attribute='cents', reverse=true) | first }}", items(5_000)),
        ("{{ message | selectattr('cents', 'gt', 700) | map(attribute='id') | list }}", items(10_000)),
        (
            "{{ message.o | selectattr('id', 'in', message.l) | length }}",
            json!({"o": items(500), "l": (0..500).collect::<Vec<_>>()}),
        ),
        ("{{ message | sum(attribute='cents') }}", items(15_000)),
        ("{% for x in message %}{{ x.name }}: {{ x.cents }}\n{% endfor %}", items(3_000)),
        ("{{ message.l | unique | length }}", json!({"l": (0..700).collect::<Vec<_>>()})),
    ] {
        let rendered = render(&Json::new(json!(template)), &scope(message));
        assert!(rendered.is_ok(), "{template}: {rendered:?}");
    }
}
