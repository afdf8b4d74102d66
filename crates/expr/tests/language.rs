//! What templates and conditions mean, and where they end.
#![expect(clippy::panic, clippy::expect_used, reason = "a test fails by it")]

use std::collections::BTreeMap;

use aetheris_core::event::Failure;
use aetheris_core::id::JobId;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_expr::{
    Context, Ended, ExprError, JobNames, Place, Texts, check_address, check_condition, check_template, condition,
    render, render_text,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn scope() -> Context {
    Context {
        early: false,
        env: None,
        input: None,
        job: Some(JobNames { agent: "refund".into(), id: JobId::from_u128(7), session: None }),
        message: Some(Json::new(json!({
            "name": "Ada", "n": 7, "big": u64::MAX, "small": i64::MIN, "f": 2.5, "whole": 2.0, "yes": true, "none": null,
            "list": [3, 1, 2], "items": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "c"}], "o": {"b": 1, "a": [1, {"c": null}]},
        }))),
        nodes: BTreeMap::from([
            ("a".into(), Ended::Completed(Json::new(json!({"approved": true, "cents": 1999})))),
            ("a-b".into(), Ended::Completed(Json::new(json!("dash")))),
            ("failed".into(), Ended::Failed(Failure::new("busy", "come later"))),
            ("skipped".into(), Ended::Skipped),
        ]),
    }
}

fn value(template: &str) -> Value {
    render(&Json::new(json!(template)), &scope()).unwrap_or_else(|e| panic!("{template}: {e}")).value().clone()
}

fn text(template: &str) -> String {
    render_text(template, &scope()).unwrap_or_else(|e| panic!("{template}: {e}"))
}

fn fails(template: &str) -> ExprError {
    render_text(template, &scope()).expect_err(template)
}

/// What has equals keeps its order, what counts from the end ends there, and each kind of value is told from its neighbour.
#[test]
fn filters_and_tests_keep_to_their_edges() {
    for (template, expected) in [
        ("{{ \"it's o'clock-now 2nd\" | title }}", json!("It's O'clock-Now 2nd")),
        ("{{ message.list | sort(reverse=true) }}", json!([3, 2, 1])),
        ("{{ message.list | sort(reverse=false) }}", json!([1, 2, 3])),
        // The first of equals; where the order is turned round they keep theirs.
        (
            "{{ [{'k': 1, 'n': 'a'}, {'k': 1, 'n': 'b'}, {'k': 2, 'n': 'c'}] | sort(attribute='k', reverse=true) | map(attribute='n') | join }}",
            json!("cab"),
        ),
        ("{{ [{'k': 1, 'n': 'a'}, {'k': 1, 'n': 'b'}] | min(attribute='k') }}", json!({"k": 1, "n": "a"})),
        ("{{ [{'k': 1, 'n': 'a'}, {'k': 1, 'n': 'b'}] | max(attribute='k') }}", json!({"k": 1, "n": "a"})),
        (
            "{{ [{'k': 1, 'n': 'a'}, {'k': 1, 'n': 'b'}] | sort(attribute='k') | map(attribute='n') | join }}",
            json!("ab"),
        ),
        ("{{ [{'k': 1, 'n': 'a'}, {'k': 1, 'n': 'b'}] | unique(attribute='k') | map(attribute='n') }}", json!(["a"])),
        (
            "{{ [0 is empty, '' is empty, [] is empty, {} is empty, none is empty, false is empty] }}",
            json!([false, true, true, true, true, false]),
        ),
        ("{{ [message.o is iterable, message.list is iterable, 'x' is iterable] }}", json!([true, true, false])),
        ("{{ [-3 is odd, -2 is odd, 3 is odd, 0 is odd, 1.0 is odd] }}", json!([true, false, true, false, false])),
        ("{{ [-2 is even, -3 is even, 0 is even] }}", json!([true, false, true])),
        ("{{ [message.list[-1], message.list[-3], 'abc'[-2:], 'abc'[2:1], [1, 2][5:]] }}", json!([2, 3, "bc", "", []])),
        (
            "{{ ['Grüße'[-2:], 'Grüße'[:-1], 'Grüße'[-3:-1], 'Grüße'[:3], 'Grüße'[3:]] }}",
            json!(["ße", "Grüß", "üß", "Grü", "ße"]),
        ),
        (
            "{{ [1 == 1.0, 1000000 == 1e6, [1] == [1.0], 9007199254740993 == 9007199254740992.0] }}",
            json!([true, true, true, false]),
        ),
    ] {
        assert_eq!(value(template), expected, "{template}");
    }
    fails("{{ message.list[-4] }}");
}

/// What each filter makes of what is at its edge: nothing, one, a sign, a space, an end that counts from behind.
#[test]
fn filters_do_what_they_say_at_their_edges() {
    for (template, expected) in [
        (
            "{{ [2.5 | round, -2.5 | round, 0.5 | round, 2.449 | round(1), 1250.0 | round(-2), 125 | round(-2)] }}",
            json!([3, -3, 1, 2.4, 1300, 125]),
        ),
        (
            "{{ [2.9 | int, -2.9 | int, ' 7 ' | int, '-7' | int, true | int, false | int] }}",
            json!([2, -2, 7, -7, 1, 0]),
        ),
        ("{{ [1 | float, ' 1.5 ' | float, '-2' | float] }}", json!([1, 1.5, -2])),
        ("{{ [0 | abs, -1.5 | abs, 1 | abs] }}", json!([0, 1.5, 1])),
        (
            "{{ [0 | bool, '' | bool, 'false' | bool, [] | bool, [0] | bool, none | bool] }}",
            json!([false, false, true, false, true, false]),
        ),
        ("{{ ['' | length, 'é' | length, [] | count, {'a': 1, 'b': 2} | count] }}", json!([0, 1, 0, 2])),
        ("{{ ['' | capitalize, 'éA' | capitalize, '' | title, 'a1b c_d' | title] }}", json!(["", "Éa", "", "A1b C_D"])),
        (
            "{{ [' a ' | trim, 'xaxbx' | trim('x'), 'xyaxy' | trim('yx'), 'xx' | trim('x')] }}",
            json!(["a", "axb", "a", ""]),
        ),
        (
            "{{ ['aaa' | replace('a', 'b'), 'abc' | replace('b', ''), 'abc' | replace('x', 'y')] }}",
            json!(["bbb", "ac", "abc"]),
        ),
        (
            "{{ [' a  b ' | split, 'a,,b,' | split(','), '' | split, '' | split(',')] }}",
            json!([["a", "b"], ["a", "", "b", ""], [], [""]]),
        ),
        ("{{ ['a\nb' | lines, 'a\r\nb\n' | lines, '' | lines] }}", json!([["a", "b"], ["a", "b"], []])),
        ("{{ ['a b/é~' | urlencode, 'AZaz09-._~' | urlencode] }}", json!(["a%20b%2F%C3%A9~", "AZaz09-._~"])),
        (
            "{{ ['ab' | reverse, 'ab' | list, [1, 2] | reverse, [] | reverse, {'b': 1, 'a': 2} | list] }}",
            json!(["ba", ["a", "b"], [2, 1], [], ["a", "b"]]),
        ),
        (
            "{{ [[1] | join('-'), [1, 2] | join('-'), [1, 2] | join, [] | join('-'), [{'k': 1}, {'k': 2}] | join('+', attribute='k')] }}",
            json!(["1", "1-2", "12", "", "1+2"]),
        ),
        (
            "{{ [[] | sum, [1, 2.5] | sum, [{'k': {'n': 1}}, {'k': {'n': 2}}] | sum(attribute='k.n')] }}",
            json!([0, 3.5, 3]),
        ),
    ] {
        assert_eq!(value(template), expected, "{template}");
    }
}

#[test]
fn filters_of_lists_do_what_they_say_at_their_edges() {
    for (template, expected) in [
        ("{{ [[3, 1, 2] | min, [3, 1, 2] | max, ['b', 'a'] | min, [2, 2.0] | max] }}", json!([1, 3, "a", 2])),
        ("{{ {'b': 1, 'a': [2]} | items }}", json!([["a", [2]], ["b", 1]])),
        ("{{ [{'k': 0}, {'k': 1}, {'n': 1}] | selectattr('k') }}", json!([{"k": 1}])),
        ("{{ [{'k': 0}, {'k': 1}, {'n': 1}] | rejectattr('k') }}", json!([{"k": 0}, {"n": 1}])),
        ("{{ [{'k': 0}, {'n': 1}] | selectattr('k', 'undefined') }}", json!([{"n": 1}])),
        ("{{ [{'k': 0}, {'n': 1}] | selectattr('k', 'defined') }}", json!([{"k": 0}])),
        (
            "{{ [{'k': 1}, {'k': 2}, {'k': 3}] | selectattr('k', 'ge', 2) | rejectattr('k', 'gt', 2) | map(attribute='k') }}",
            json!([2]),
        ),
        ("{{ [none | default(1), message.missing | default(1), '' | default(1), 0 | d(2)] }}", json!([1, 1, "", 0])),
        (
            "{{ ['[1, {\"a\": null}]' | fromjson, [1, {'a': none}] | tojson, 1.0 | tojson, 'a' | tojson] }}",
            json!([[1, {"a": null}], "[1,{\"a\":null}]", "1", "\"a\""]),
        ),
        (
            "{{ [[1, 2, 3][:-1], [1, 2, 3][-5:2], [1, 2, 3][1:2], [1, 2, 3][-1:], 'abc'[:-4], 'abc'[:9]] }}",
            json!([[1, 2], [1, 2], [2], [3], "", "abc"]),
        ),
    ] {
        assert_eq!(value(template), expected, "{template}");
    }
}

/// Of a node that has ended, and of one that has not, it is always known how it stands.
#[test]
fn how_a_node_has_ended_is_named() {
    for (template, expected) in [
        ("{{ [nodes.a.failed, nodes.a.skipped, nodes.a.open] }}", json!([false, false, false])),
        ("{{ [nodes.failed.failed, nodes.failed.skipped, nodes.failed.open] }}", json!([true, false, false])),
        ("{{ [nodes.skipped.failed, nodes.skipped.skipped, nodes.skipped.open] }}", json!([false, true, false])),
        ("{{ [nodes.late.failed, nodes.late.skipped, nodes.late.open] }}", json!([false, false, true])),
        ("{{ nodes.failed.error }}", json!({ "code": "busy", "message": "come later" })),
        ("{{ nodes.failed.error.code == 'busy' }}", json!(true)),
        ("{{ nodes.skipped.output }}", json!(null)),
        ("{{ nodes.failed.output | default(3) }}", json!(3)),
        ("{{ nodes.late.output is defined }}", json!(false)),
        ("{{ nodes['a-b'].error is defined or nodes['late'].error is defined }}", json!(false)),
    ] {
        assert_eq!(value(template), expected, "{template}");
    }
    let undefined = render_text("{{ nodes.a.error }}", &scope()).unwrap_err();
    assert_eq!(undefined, ExprError::Undefined { name: "nodes.a.error".to_owned() });
}

/// Before what names it has started, nothing counts of a node that is open, and no fallback stands for it.
#[test]
fn what_is_not_known_yet_has_no_fallback() {
    let early = Context { early: true, ..scope() };
    for template in [
        "{{ nodes.late.failed }}",
        "{{ nodes.late.open }}",
        "{{ nodes.late.output | default('x') }}",
        "{{ nodes.late.error is defined }}",
    ] {
        let error = render_text(template, &early).unwrap_err();
        assert!(matches!(error, ExprError::Early { .. }), "{template}: {error}");
    }
    assert_eq!(render_text("{{ nodes.a.failed }}{{ message.z | default('x') }}", &early).unwrap(), "falsex");
}

/// What is absent has a fallback; what has failed, or is refused, has none.
#[test]
fn filters_refuse_what_they_cannot_do() {
    for template in [
        "{{ [] | first }}",
        "{{ [] | last }}",
        "{{ [] | min }}",
        "{{ [] | max }}",
        "{{ 'x' | split('') }}",
        "{{ (message.n // 0) | default(1) }}",
        "{{ ('x' | fromjson) | default(1) }}",
    ] {
        fails(template);
    }
}

/// A list is as deep as any other value that is kept, and not deeper.
#[test]
fn what_a_template_makes_is_as_deep_as_a_value_may_be() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let scope = |levels| Context {
        message: Some(Json::new(serde_json::from_str(&nested(levels)).expect("nested lists"))),
        ..Context::default()
    };
    let render = |levels| render_text("{{ [message] | length }}", &scope(levels));
    assert_eq!(render(limits::JSON_DEPTH_MAX - 1), Ok("1".to_owned()));
    assert_eq!(render(limits::JSON_DEPTH_MAX), Err(ExprError::TooLarge));
}

#[test]
fn every_way_through_an_address_leads_to_a_host() {
    for wrong in [
        // The one way that goes wrong is a branch, and not the rest.
        "{% if input.c %}http:{% else %}http://a{% endif %}/{{ input.h }}",
        "{% if input.c %}http:{% elif input.d %}http://a{% else %}http://b{% endif %}/{{ input.h }}",
        // The loop goes wrong in its third round.
        "http:{% for x in input.l %}/{% endfor %}h/x",
    ] {
        assert!(check_address(wrong).is_err(), "{wrong}");
    }
    for fine in [
        "{% if input.c %}http://a{% else %}http://b/{% endif %}/{{ input.h }}",
        "http://h{% for x in input.l %}/{% endfor %}",
    ] {
        assert!(check_address(fine).is_ok(), "{fine}");
    }
}

#[test]
fn a_whole_template_keeps_its_type() {
    assert_eq!(value("{{ nodes.a.output.cents }}"), json!(1999));
    assert_eq!(value("{{message.big}}"), json!(u64::MAX));
    assert_eq!(value("{{ message.small }}"), json!(i64::MIN));
    assert_eq!(value("{{ message.whole }}").to_string(), "2");
    assert_eq!(value("{{ message.o }}"), json!({"b": 1, "a": [1, {"c": null}]}));
    assert_eq!(value("{{ nodes.skipped.output }}"), Value::Null);
    assert_eq!(value(" {{ message.n }}"), json!(" 7"));
    assert_eq!(value("{{ message.n }}{{ message.n }}"), json!("77"));
    assert_eq!(value("{{ message.n }}\n"), json!("7\n"));
}

/// Messages, answers of tools and words of models are data: braces in them mean nothing.
#[test]
fn what_a_template_brings_is_never_rendered_again() {
    let hostile = "{{ env.SECRET }}{% for i in range(9) %}{{ job.id }}{% endfor %}";
    let mut scope = scope();
    scope.message = Some(Json::new(json!({ "text": hostile, "{{ message.text }}": hostile })));
    scope.nodes.insert("model".into(), Ended::Completed(Json::new(json!({ "tool": hostile }))));
    for (template, expected) in [
        ("{{ message.text }}", json!(hostile)),
        ("said: {{ message.text }}", json!(format!("said: {hostile}"))),
        ("{{ nodes.model.output.tool ~ '' }}", json!(hostile)),
        ("{{ nodes.model.output }}", json!({ "tool": hostile })),
        ("{{ '{{' ~ ' message.text ' ~ '}}' }}", json!("{{ message.text }}")),
    ] {
        assert_eq!(
            render(&Json::new(json!(template)), &scope).map(|json| json.value().clone()),
            Ok(expected),
            "{template}"
        );
    }
}

#[test]
fn values_are_rendered_wherever_they_stand_and_keys_are_literal() {
    let template = Json::new(json!({"{{ x }}": ["{{ message.n }}", {"deep": "n={{ message.n }}"}, 5, null, true]}));
    let expected = json!({"{{ x }}": [7, {"deep": "n=7"}, 5, null, true]});
    assert_eq!(render(&template, &scope()).unwrap().value(), &expected);
}

#[test]
fn text_forms_are_canonical_json() {
    assert_eq!(
        text("{{ message.o }} {{ message.yes }} {{ message.none }} {{ message.whole }} {{ message.list }}"),
        r#"{"a":[1,{"c":null}],"b":1} true null 2 [3,1,2]"#
    );
    assert_eq!(text("{{ job.id }} {{ job.agent }} {{ job.session }}"), "job_00000000000000000000000007 refund null");
    assert_eq!(text(r#"{{ nodes["a-b"].output }}/{{ nodes["a"]["output"]["cents"] }}"#), "dash/1999");
    // Where canonical JSON is written otherwise than JSON is elsewhere: far numbers, and the order of far keys. What a
    // template makes is written as what it is given.
    let far = Json::new(json!({"n": 1e-7, "o": {"\u{e000}": 1, "\u{1f600}": 2}}));
    let far = Context { message: Some(far), ..Context::default() };
    let told = render_text("{{ message.n }} {{ message.o }} {{ [message.n, 4 / 2] }}", &far);
    assert_eq!(told.as_deref(), Ok("1e-7 {\"\u{1f600}\":2,\"\u{e000}\":1} [1e-7,2]"));
}

#[test]
fn conditions_hold_or_do_not() {
    for (expr, holds) in [
        ("nodes.a.output.approved == true", true),
        ("nodes.a.output.cents > 2000 or message.name == 'Ada'", true),
        ("not message.yes", false),
        ("message.n in message.list", false),
        ("'d' in message.name and message.n not in [1, 2]", true),
        ("message.none", false),
        ("message.x is defined", false),
        ("message.x | default(false)", false),
        ("nodes.gone.output is not defined", true),
        ("message.list | length == 3", true),
        ("1 == 1.0 and 2 ** 3 == 8 and 7 // 2 == 3 and -7 % 3 == 2", true),
        ("18446744073709551615 > 18446744073709551614", true),
        ("18446744073709551615 == 18446744073709551616.0", false),
        ("{'a': [1]} == {'a': [1.0]}", true),
    ] {
        assert_eq!(condition(expr, &scope()), Ok(holds), "{expr}");
    }
}

#[test]
fn statements_filters_and_tests_work() {
    for (template, expected) in [
        ("{% if message.n > 5 %}big{% elif message.n %}small{% else %}zero{% endif %}", "big"),
        ("{% for x in message.list %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}", "3,1,2"),
        ("{% for x in message.list if x > 1 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}", "1:3 2:2 "),
        ("{% for x in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for round in [2] %}{% set now = round | round %}{{ now + round }}{% endfor %}", "4"),
        ("{% for k, v in message.o | items %}{{ k }}={{ v }};{% endfor %}", "a=[1,{\"c\":null}];b=1;"),
        ("{% set x = message.n * 2 %}{{ x }}{# note #}", "14"),
        ("a {{- ' b ' -}} c", "a b c"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{% raw -%} {{ x }} {% raw %} {%-\n endraw\t-%} y", "{{ x }} {% raw %}y"),
        ("{% raw %}{% endrawx %}{% end{%+endraw%} y", "{% endrawx %}{% end y"),
        ("{{ message.items | map(attribute='k') | join('-') }}", "a-b-c"),
        ("{{ message.items | selectattr('v', 'gt', 1) | map(attribute='k') | first }}", "b"),
        ("{{ message.items | rejectattr('v') | length }}", "1"),
        ("{{ message.list | sort | reverse | list }}", "[3,2,1]"),
        ("{{ message.list | sum }} {{ message.list | min }} {{ message.list | max }}", "6 1 3"),
        ("{{ [1, 1.0, 'a', 'a'] | unique | tojson }}", "[1,\"a\"]"),
        ("{{ '7' | int + 1 }} {{ 2.567 | round(2) }} {{ -3 | abs }}", "8 2.57 3"),
        ("{{ 'a b/ü' | urlencode }}", "a%20b%2F%C3%BC"),
        ("{{ '{\"a\":[1]}' | fromjson | attrless | default('x') }}", ""),
        ("{{ 'x,y' | split(',') | last }}{{ 'AbC' | lower | upper | capitalize }}", "yAbc"),
        ("{{ message.name[1:] ~ message.list[-1] ~ message.list[:2] }}", "da2[3,1]"),
        ("{{ 'yes' if message.yes else 'no' }}{{ 'x' if false }}", "yes"),
        ("{{ range(3) | join }}{{ range(5, 1, -2) | join }}", "01253"),
        ("{{ {'a': {'b': 1}} }}", "{\"a\":{\"b\":1}}"),
        ("{{ 'tab\\t\\u00e9\\ud83d\\ude00' }}", "tab\té\u{1f600}"),
    ] {
        if template.contains("attrless") {
            assert!(fails(template).to_string().contains("not a filter"));
        } else {
            assert_eq!(text(template), expected, "{template}");
        }
    }
}

#[test]
fn missing_names_are_errors_that_name_them() {
    for (template, name) in [
        ("{{ message.a.b }}", "message.a"),
        ("{{ message.name.first }}", "message.name.first"),
        ("{{ message.list[9] }}", "message.list[9]"),
        ("{{ nodes.gone.output }}", "nodes.gone.output"),
        ("{{ nodes.skipped.output.x == true }}", "nodes.skipped.output.x"),
        ("{{ foo }}", "foo"),
        ("{{ job.nope }}", "job.nope"),
        ("{% for x in message.list %}{{ x.y }}{% endfor %}", "x.y"),
        ("{{ [] | first }}", "first of an empty list"),
    ] {
        assert_eq!(fails(template), ExprError::Undefined { name: name.into() }, "{template}");
    }
    assert_eq!(fails("{{ input }}"), ExprError::NotAllowedHere { name: "input".into() });
    assert_eq!(fails("{{ env.HOME }}"), ExprError::NotAllowedHere { name: "env".into() });
}

#[test]
fn places_decide_about_names() {
    for (template, plan, body, address) in [
        ("{{ message }}", true, false, false),
        ("{{ nodes.a.output }}", true, false, false),
        ("{{ job.id }}", true, true, true),
        ("{{ input.x }}", false, true, true),
        ("{{ env.X }}", false, false, true),
    ] {
        for (place, allowed) in
            [(Place::Plan, plan), (Place::ToolBody, body), (Place::ToolAddress, address), (Place::ToolHeader, address)]
        {
            let checked = check_template(template, place);
            assert_eq!(checked.is_ok(), allowed, "{template} {place:?}");
            assert!(allowed || matches!(checked, Err(ExprError::NotAllowedHere { .. })));
        }
    }
}

fn rendered_address(template: &str, scope: &Context) -> Result<String, ExprError> {
    Texts::new(scope).address(template).map(|rendered| rendered.text)
}

fn address(template: &str, input: Value) -> Result<String, ExprError> {
    let env =
        BTreeMap::from([("BASE".to_owned(), "https://h:8443/v1".to_owned()), ("P".to_owned(), "a/../b".to_owned())]);
    let scope = Context { env: Some(env), input: Some(Json::new(input)), ..scope() };
    rendered_address(template, &scope)
}

#[test]
fn what_templates_bring_stays_in_its_place_of_an_address() {
    for (template, input, expected) in [
        (
            "http://h/orders/{{ input.id }}/note",
            "../admin/users/7/delete?really=yes#",
            "http://h/orders/..%2Fadmin%2Fusers%2F7%2Fdelete%3Freally%3Dyes%23/note",
        ),
        (
            "http://h/orders/{{ input.id }}",
            "7/../../refunds/99/approve#",
            "http://h/orders/7%2F..%2F..%2Frefunds%2F99%2Fapprove%23",
        ),
        ("http://h/orders/{{ input.id }}", "%2e%2e", "http://h/orders/%252e%252e"),
        ("http://h/orders/{{ input.id }}", "a b\n\\é", "http://h/orders/a%20b%0A%5C%C3%A9"),
        ("http://h/orders/{{ input.id }}", "A-z.0_~", "http://h/orders/A-z.0_~"),
        ("http://h/orders/{{ input.id }}", "...", "http://h/orders/..."),
        ("http://h/x?q={{ input.id }}&r=1#{{ input.id }}", "a&b=c", "http://h/x?q=a%26b%3Dc&r=1#a%26b%3Dc"),
        ("http://h?q={{ input.id }}", "..", "http://h?q=.."),
        ("http://h/{{ input.id | urlencode }}", "a/b", "http://h/a%2Fb"),
        ("http://h/{{ input.id | raw }}", "a/../b?c=d", "http://h/a/../b?c=d"),
        ("http://h/{{ input.id | raw | upper }}", "a/b", "http://h/A%2FB"),
        ("{{ input.id | raw }}/{{ input.id }}", "http://h/x", "http://h/x/http%3A%2F%2Fh%2Fx"),
        ("{{ env.BASE }}/orders/{{ input.id }}", "a/b", "https://h:8443/v1/orders/a%2Fb"),
        ("http://h/{{ env.P }}/{{ input.id }}", "a/b", "http://h/a/../b/a%2Fb"),
        ("http://h/{% for x in [1, 'b/c'] %}{{ x }}/{% endfor %}{{ input.id }}", "z", "http://h/1/b%2Fc/z"),
        ("http://h/x{% set y = input.id %}/{{ y }}.json", "a/b", "http://h/x/a%2Fb.json"),
        ("http://h/{{ [input.id] }}", "a", "http://h/%5B%22a%22%5D"),
        ("http://h/{{ input.id }}{{ input.id }}", "x", "http://h/xx"),
    ] {
        assert_eq!(address(template, json!({ "id": input })), Ok(expected.to_owned()), "{template} {input}");
    }
    assert_eq!(rendered_address("http://h/a/../b", &Context::default()), Ok("http://h/a/../b".to_owned()));
}

#[test]
fn no_segment_from_a_template_is_empty_or_dots() {
    for (template, input) in [
        ("http://h/orders/{{ input.id }}/note", ""),
        ("http://h/orders/{{ input.id }}/note", "."),
        ("http://h/orders/{{ input.id }}/note", ".."),
        ("http://h/orders/{{ input.id }}", ".."),
        ("http://h/orders/{{ input.id }}?x", ".."),
        ("http://h/orders/{{ input.id }}#x", ""),
        ("http://h/orders/{{ input.id | urlencode }}/note", ".."),
        ("http://h/orders/.{{ input.id }}/note", "."),
        ("http://h/orders/%2e{{ input.id }}/note", "."),
        ("http://h/orders/{{ input.id }}%2E/note", "."),
        ("http://h/orders/{{ input.id }}{{ input.id }}", "."),
        ("http://h/orders/{{ '.' | raw }}{{ input.id }}", "."),
        ("http://h/orders/{{ input.id }} ", ".."),
        ("http://h/orders/\t{{ input.id }}/x", ".."),
        ("http://h\\{{ input.id }}\\x", ".."),
        ("{{ env.BASE }}/{{ input.id }}/x", ".."),
    ] {
        let refused = address(template, json!({ "id": input }));
        assert!(matches!(refused, Err(ExprError::Segment { .. })), "{template} {input}: {refused:?}");
    }
}

/// Those of a file are refused when it is read; a plan of an older build may still have them.
#[test]
fn no_value_becomes_the_host_when_it_is_rendered() {
    for template in [
        "{{ input.id }}",
        "http://{{ input.id }}/x",
        "http://h{{ input.id }}",
        "http:{{ input.id | urlencode }}",
        "{{ 'http:' | raw }}//{{ input.id }}/x",
        "http:{% if input.x %}//h{% endif %}/{{ input.id }}/x",
    ] {
        let refused = address(template, json!({ "id": "evil.example", "x": false }));
        assert!(matches!(refused, Err(ExprError::Host { .. })), "{template}: {refused:?}");
    }
    for template in [
        "http://{% if input.x %}h{% endif %}/{{ input.id }}/x",
        "http://{% for h in [] %}{{ h | raw }}{% endfor %}/{{ input.id }}/x",
        "http://{{ '' | raw }}/{{ input.id }}",
        "http:\\\\\\{{ input.id }}",
        "http:\n/\n/\t{{ '' | raw }}?{{ input.id }}",
    ] {
        let refused = address(template, json!({ "id": "evil.example", "x": false }));
        assert_eq!(refused, Err(ExprError::NoHost), "{template}");
    }
    let origin = |template: &str| {
        let scope = Context { input: Some(Json::new(json!("x"))), ..scope() };
        Texts::new(&scope).address(template).unwrap().origin
    };
    assert_eq!(origin("http://h:80/{{ input }}").as_deref(), Some("http://h:80"));
    assert_eq!(origin("{{ 'http://h/a?b' | raw }}/{{ input }}").as_deref(), Some("http://h"));
    assert_eq!(origin("http://h/x"), None);
}

#[test]
fn references_are_found_wherever_they_hide() {
    let found = check_template(
        "{% if false %}{{ nodes.a.output }}{% endif %}{{ message.x | default(nodes['b-c'].output) }}{% for x in nodes.d.output if nodes.e.output %}{{ [{'k': nodes.f.output}] }}{% endfor %}",
        Place::Plan,
    )
    .unwrap();
    let ids: Vec<&str> = found.nodes.iter().map(|id| id.as_str()).collect();
    assert_eq!(ids, ["a", "b-c", "d", "e", "f"]);
    assert!(check_template("{{ env.A }}{{ env['B'] }}", Place::ToolAddress).unwrap().env.iter().eq(["A", "B"]));
    for of in ["output.y is defined", "failed", "skipped", "open", "error.code == 'x'"] {
        let named = check_condition(&format!("not nodes.x.{of}"), Place::Plan).unwrap().nodes;
        assert_eq!(named, ["x".into()].into(), "{of}");
    }
}

#[test]
fn mistakes_are_explained() {
    for (template, hint) in [
        ("{{ nodes.a-b-2.output }}", "nodes[\"a-b-2\"].output"),
        ("{{ nodes.a }}", "`.output`"),
        ("{{ nodes }}", "nodes.<id>.output"),
        ("{{ nodes[message.x].output }}", "nodes.<id>.output"),
        ("{{ message.x | uper }}", "not a filter"),
        ("{{ 1 is prime }}", "not a test"),
        ("{{ today() }}", "not a function"),
        ("{{ now() }}", "`now()` cannot be used here: it is recorded once for a step"),
        ("{{ [random(), uuid()] }}", "`random()` cannot be used here"),
        ("{{ uuid(1) }}", "`uuid()` takes nothing"),
        ("{{ feedback }}", "`feedback` cannot be used here: it exists only in a node with `validate` or `critic`"),
        ("{{ round + 1 }}", "`round` cannot be used here"),
        ("{{ nodes.a.result }}", "`.output`, `.failed`, `.skipped`, `.open` or `.error`"),
        ("{{ nodes.a.error.mesage }}", "has `.code` and `.message`, and no `.mesage`"),
        ("{{ message.x() }}", "cannot be called"),
        ("{% include 'x' %}", "not supported"),
        ("{% macro x() %}{% endmacro %}", "not supported"),
        ("{% if true %}", "not closed"),
        ("{% endif %}", "closes nothing"),
        ("{% for x of y %}{% endfor %}", "for name in list"),
        // What a loop names ends with its body, whatever stands around it.
        ("{% for x in [1] %}{% endfor %}{{ x }}", "`x`"),
        ("{% for x in [1] %}{% else %}{{ x }}{% endfor %}", "`x`"),
        ("{% for x in [1] %}{% endfor %}{{ loop.index }}", "`loop`"),
        ("{% for k, v in {} | items %}{% endfor %}{{ v }}", "`v`"),
        ("{% for x in [1] %}{% for y in [1] %}{% endfor %}{{ y }}{% endfor %}", "`y`"),
        ("{% set message = 1 %}", "meaning of its own"),
        ("a\nb {{ 1 +", "line 2"),
        ("{{ 1 < 2 < 3 }}", "chained"),
        ("{{ 'abc }}", "not closed"),
        ("{{ '\\u+041' }}", "four hexadecimal digits"),
        ("{{ '\\ud83d\\u+e00' }}", "four hexadecimal digits"),
        ("{{ '\\u00g1' }}", "four hexadecimal digits"),
        ("{{ '\\u004' }}", "four hexadecimal digits"),
        ("{{ 18446744073709551616 }}", "exactly"),
        ("{{ 9007199254740993.0 }}", "exactly"),
        ("{{ 1e-400 }}", "exactly"),
    ] {
        let error = check_template(template, Place::Plan).expect_err(template).to_string();
        assert!(error.contains(hint), "{template}: {error}");
    }
    assert!(check_condition("{{ message.x }}", Place::Plan).unwrap_err().to_string().contains("without"));
    assert!(check_condition("", Place::Plan).is_err());
}

#[test]
fn operations_that_do_not_fit_fail() {
    for template in [
        "{{ 1 / 0 }}",
        "{{ 18446744073709551615 + 1 }}",
        "{{ 10.0 ** 400 }}",
        "{{ 'a' + 1 }}",
        "{{ 'a' * 3 }}",
        "{{ [1] < [2] }}",
        "{{ message.n | length }}",
        "{{ 'x' | int }}",
        "{{ 'nan' | float }}",
        "{{ 'inf' | float }}",
        "{% for x in 5 %}{% endfor %}",
        "{{ {1: 2} }}",
        "{{ 'a' | replace('a') }}",
        "{{ 'a' | upper(1) }}",
        "{{ '[' | fromjson }}",
        "{{ range(1, 2, 0) }}",
        "{{ [1, 'a'] | sort }}",
        "{{ [none, none] | sort }}",
    ] {
        assert!(matches!(fails(template), ExprError::Failed { .. }), "{template}: {:?}", fails(template));
    }
}

#[test]
fn every_bomb_ends_in_a_named_error() {
    let doubling = format!("{{% set a = 'xxxxxxxxxxxxxxxx' %}}{}{{{{ a }}}}", "{% set a = a ~ a %}".repeat(40));
    let lists = format!("{{% set a = [1] %}}{}{{{{ a }}}}", "{% set a = [a, a] %}".repeat(40));
    for bomb in [
        doubling.as_str(),
        lists.as_str(),
        "{% for a in range(1000) %}{% for b in range(1000) %}x{% endfor %}{% endfor %}",
        "{{ range(1000000000) }}",
        "{{ range(9223372036854775807) | join('x') }}",
        "{% set s = range(20000) | join %}{% for i in range(10000) %}{{ s }}{% endfor %}",
        "{% set s = range(9000) | join %}{{ s | replace('1', s) }}",
        "{% set s = range(9000) | list %}{{ s | unique }}{{ s | unique }}{{ s | unique }}{{ s | unique }}",
    ] {
        assert_eq!(fails(bomb), ExprError::Budget, "{bomb:.60}");
    }
    // The tree of each is shallow: it is the data that grows by some levels with every `set`.
    let sets = |inner: &str| format!("{{%set a=1%}}{}{{{{ a }}}}", format!("{{%set a={inner}%}}").repeat(400));
    for nested in [
        sets(&format!("{}a{}", "[".repeat(37), "]".repeat(37))),
        sets(&format!("{}a{}", "{'k':".repeat(30), "}".repeat(30))),
        sets("[[], [{'k': a}]]"),
        sets("{'k': {'k': a} | items}"),
        sets("[1, [a]] | reverse | list"),
    ] {
        assert_eq!(fails(&nested), ExprError::TooLarge, "{nested:.60}");
        let key = nested.replace("{{ a }}", "key");
        assert_eq!(fails(&key), ExprError::TooLarge, "{key:.60}");
    }
    for deep in [
        "not ".repeat(16_000) + "x",
        "-".repeat(60_000) + "1",
        "(".repeat(60_000),
        "[".repeat(60_000),
        "1".to_owned() + &"|abs".repeat(16_000),
        "1".to_owned() + &"+1".repeat(30_000),
        "message".to_owned() + &".a".repeat(30_000),
        "1 if ".repeat(10_000),
        "{1:".repeat(20_000),
        "1".to_owned() + &" is odd".repeat(9_000),
        "x[".repeat(30_000),
        "range(".repeat(10_000),
        "1|default(".repeat(6_000),
    ] {
        assert!(check_condition(&deep, Place::Plan).is_err());
        assert!(check_template(&format!("{{{{ {deep} }}}}"), Place::Plan).is_err());
    }
    for blocks in [
        "{%if 1%}".repeat(8_000),
        "{%for x in y%}".repeat(4_000),
        "{%raw%}".repeat(9_000),
        "{#".repeat(30_000),
        "{{".repeat(30_000),
    ] {
        assert!(check_template(&blocks, Place::Plan).is_err());
    }
    let elifs = format!("{{%if 0%}}{}{{%endif%}}", "{%elif 0%}".repeat(6_000));
    assert_eq!(render_text(&elifs, &scope()), Ok(String::new()));
    let long = "x{{ 1 }}".repeat(limits::TEMPLATE_BYTES_MAX);
    assert_eq!(check_template(&long, Place::Plan), Err(ExprError::TooLarge));
    assert_eq!(check_condition(&long, Place::Plan), Err(ExprError::TooLarge));
}

#[test]
fn output_is_bounded_over_all_templates_of_a_value() {
    let half = Json::new(json!("x".repeat(limits::TEMPLATE_OUTPUT_BYTES_MAX / 2 - 100)));
    let scope = Context { message: Some(half), ..Context::default() };
    assert!(render(&Json::new(json!("{{ message }}")), &scope).is_ok());
    let three = Json::new(json!(["{{ message }}", "{{ message }}", "{{ message }}"]));
    assert_eq!(render(&three, &scope), Err(ExprError::TooLarge));
    // It ends there, and not when all of it is made: what comes behind is not looked at.
    let wrong = json!(["{{ message }}", "{{ message }}", "{{ message }}", "{{ nodes.none.output }}"]);
    assert_eq!(render(&Json::new(wrong), &scope), Err(ExprError::TooLarge));
    let wrong = json!(["{{ message }}", "{{ nodes.none.output }}", "{{ message }}", "{{ message }}"]);
    assert!(matches!(render(&Json::new(wrong), &scope), Err(ExprError::Undefined { .. })));
    assert_eq!(render_text("{{ message }}{{ message }}{{ message }}", &scope), Err(ExprError::TooLarge));
}

#[test]
fn work_is_bounded_over_all_templates_of_a_value() {
    let busy = "{% for i in range(12000) %}{% endfor %}";
    let render = |texts: usize| render(&Json::new(json!(vec![busy; texts])), &Context::default());
    let most = usize::try_from(limits::VALUE_FUEL / limits::TEMPLATE_FUEL).unwrap();
    assert!(render(most).is_ok());
    for over in [most + 2, 20_000] {
        assert_eq!(render(over), Err(ExprError::Budget));
    }
    // What one template leaves over is the next one's, up to the bound of a template.
    let idle = Json::new(json!(vec!["{{ 1 + 1 }}"; 20_000]));
    assert!(aetheris_expr::render(&idle, &Context::default()).is_ok());
    let scope = Context::default();
    let mut texts = Texts::new(&scope);
    let rendered = (0..20_000).take_while(|_| texts.render(busy).is_ok()).count();
    assert!((most..most + 2).contains(&rendered), "{rendered}");
    assert_eq!(texts.render("plain"), Ok("plain".to_owned()));
    assert_eq!(Texts::new(&scope).render("{{ 1 + 1 }}"), Ok("2".to_owned()));
}

#[test]
fn a_large_message_fits_the_budget() {
    let items: Vec<Value> = (0..5_000).map(|n| json!({"id": n, "name": format!("item {n}")})).collect();
    let scope = Context { message: Some(Json::new(json!({ "items": items }))), ..Context::default() };
    let listed = render_text("{% for item in message.items %}{{ item.name }}\n{% endfor %}", &scope).unwrap();
    assert_eq!(listed.lines().count(), 5_000);
    assert_eq!(render_text("{{ message.items | length }}", &scope).unwrap(), "5000");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |f| serde_json::Number::from_f64(f).map(Value::Number)),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,6}", inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The host that readers of URLs find: they drop line breaks and tabs, and all slashes behind the scheme.
fn host_of(url: &str) -> String {
    let url: String = url.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
    let scheme = url.split_once(':').filter(|(scheme, _)| scheme.chars().all(char::is_alphanumeric));
    let behind = scheme.map_or("", |(_, behind)| behind).trim_start_matches(['/', '\\']);
    behind.split(['/', '\\', '?', '#']).next().unwrap_or("").to_owned()
}

proptest! {
    /// Whatever way a template goes, no value that its author did not let in is part of the host.
    #[test]
    fn a_checked_address_has_its_authors_host(
        template in "(http|s|:|/|//|://|h\\.example|a|\\?|#|\\\\|\t|\n|\\{\\{ input\\.evil \\}\\}|\\{\\{ env\\.BASE \\}\\}|\\{\\{ env\\.NONE \\}\\}|\\{% if input\\.yes %\\}|\\{% if input\\.no %\\}|\\{% else %\\}|\\{% endif %\\}|\\{% for x in input\\.list %\\}|\\{% endfor %\\}){1,12}",
        checked in any::<bool>(),
        times in 0usize..3,
    ) {
        let template = format!("http{template}");
        if !checked || check_address(&template).is_ok() {
            let env = BTreeMap::from([("BASE".to_owned(), "http://base.example/v1".to_owned()), ("NONE".to_owned(), String::new())]);
            let input = json!({"evil": "evil", "yes": true, "no": false, "list": vec![1; times]});
            let scope = Context { env: Some(env), input: Some(Json::new(input)), ..Context::default() };
            if let Ok(rendered) = Texts::new(&scope).address(&template) {
                prop_assert!(!host_of(&rendered.text).contains("evil"), "{template:?} {rendered:?}");
                let origin = rendered.origin.unwrap_or_else(|| rendered.text.clone());
                prop_assert_eq!(host_of(&origin), host_of(&rendered.text), "{:?}", template);
            }
        }
    }

    /// Whatever a value is, the address has the segments that its author wrote.
    #[test]
    fn an_address_keeps_its_segments(text in prop_oneof![any::<String>(), "[./%2eE\\\\?#:@ ]{0,8}"]) {
        let scope = Context { input: Some(Json::new(json!(text))), ..Context::default() };
        if let Ok(rendered) = rendered_address("https://h/a/{{ input }}/b?q={{ input }}", &scope) {
            let (path, query) = rendered.strip_prefix("https://h/").unwrap().split_once('?').unwrap();
            prop_assert_eq!(path.split(['/', '\\']).count(), 3, "{}", rendered);
            prop_assert!(!query["q=".len()..].contains(['&', '#', '=', '?', '/']), "{}", rendered);
            prop_assert!(rendered.bytes().all(|byte| byte.is_ascii_graphic()), "{}", rendered);
            prop_assert!(!matches!(path.split('/').nth(1), Some("" | "." | "..")), "{}", rendered);
        }
    }

    #[test]
    fn a_whole_template_gives_back_any_value_exactly(value in any_json()) {
        let scope = Context { message: Some(Json::new(value.clone())), ..Context::default() };
        let rendered = render(&Json::new(json!("{{ message }}")), &scope).unwrap();
        let kept = Json::new(value);
        prop_assert_eq!(&rendered, &kept);
        let nested = render(&Json::new(json!({"x": ["{{ message }}"]})), &scope).unwrap();
        prop_assert_eq!(nested.value(), &json!({"x": [kept.value()]}));
    }

    #[test]
    fn text_and_back_gives_any_value(value in any_json()) {
        let scope = Context { message: Some(Json::new(value.clone())), ..Context::default() };
        let rendered = render(&Json::new(json!("{{ message | tojson | fromjson == message }}")), &scope).unwrap();
        prop_assert_eq!(rendered.value(), &json!(true));
    }

    #[test]
    fn texts_without_braces_are_unchanged(text in "[^{]*") {
        prop_assert_eq!(render_text(&text, &Context::default()), Ok(text.clone()));
        prop_assert_eq!(check_template(&text, Place::Plan).map(|found| found.nodes.len()), Ok(0));
        let json = Json::new(json!({"k": text}));
        prop_assert_eq!(render(&json, &Context::default()), Ok(json));
    }

    #[test]
    fn sort_answers_or_says_what_has_no_order(
        list in prop::collection::vec(prop_oneof![4 => (0u8..9).prop_map(Value::from), 4 => "[a-c]{0,2}".prop_map(Value::from), 1 => Just(Value::Null)], 0..100),
    ) {
        let ordered = list.len() < 2 || list.iter().all(Value::is_number) || list.iter().all(Value::is_string);
        let scope = Context { message: Some(Json::new(list.into())), ..Context::default() };
        prop_assert_eq!(render_text("{{ message | sort }}", &scope).is_ok(), ordered);
    }

    /// Messages of errors are logged and kept: they say what kind a value is of, not the value.
    #[test]
    fn no_error_quotes_a_value(expr in "(message|message\\.secret|1|\\[message\\])( \\| (int|float|fromjson|sort|sum|abs|round|items|upper|first|replace\\('a'\\)|split\\(1\\)))?( (\\+|~|-|<|in|/) (message|1))?") {
        for secret in ["SECRET", "[SECRET", "{\"SECRET\":1,\"SECRET\":2}", "1SECRET"] {
            let scope = Context { message: Some(Json::new(json!(secret))), ..Context::default() };
            if let Err(error) = render_text(&format!("{{{{ {expr} }}}}"), &scope) {
                prop_assert!(!error.to_string().contains("SECRET"), "{expr}: {error}");
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,100}", tokens in "(\\{\\{|\\}\\}|\\{%|%\\}|\\{#|#\\}|-|if|for|in|set|x|message|nodes|\\.|\\[|\\]|\\(|\\)|'|\"|\\\\|u|[0-9]|e|\\||is|not|default|, |==|\\*\\*|/| |é|raw|endraw|endif|else){0,40}") {
        for text in [&text, &tokens, &format!("{{{{ {tokens} }}}}"), &format!("{{% {tokens} %}}")] {
            let _ = render_text(text, &scope());
            let _ = render(&Json::new(json!(text)), &scope());
            let _ = condition(text, &scope());
        }
    }

    /// Tokens at random hardly ever make a whole branch: some of them are whole.
    #[test]
    fn what_renders_also_passes_the_check(tokens in "(\\{\\{ message\\.n \\}\\}|\\{% if message\\.(yes|none) %\\}|\\{% endif %\\}|\\{% else %\\}|text|\\{\\{ nodes\\.a\\.output \\| tojson \\}\\}|\\{% if message\\.(yes|none) %\\}(text|\\{\\{ message\\.n \\}\\})?(\\{% elif message\\.n %\\}text)?(\\{% else %\\}(text|\\{\\{ job\\.id \\}\\}))?\\{% endif %\\}){0,12}") {
        if render_text(&tokens, &scope()).is_ok() {
            let checked = check_template(&tokens, Place::Plan);
            prop_assert!(checked.is_ok(), "{tokens}: {checked:?}");
        }
    }
}

#[test]
fn objects_are_equal_only_if_neither_has_more() {
    for (text, holds) in [
        ("{'a': 1} == {'a': 1, 'b': 2}", false),
        ("{'a': 1, 'b': 2} == {'a': 1}", false),
        ("{} == {'a': 1}", false),
        ("{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", true),
    ] {
        assert_eq!(condition(text, &scope()), Ok(holds), "{text}");
    }
}

/// What a round and a critic see beside what everybody does, and only they.
#[test]
fn rounds_and_critics_have_names_of_their_own() {
    let (names, output) = (Context::default(), Json::new(json!({ "n": 7 })));
    let all = aetheris_expr::Scope::from(&names);
    let round = aetheris_expr::Round { feedback: "too long", number: 2 };
    let own = aetheris_expr::Scope { round: Some(round), ..all };
    let judged = aetheris_expr::Judged { output: &output, round: 3 };
    let critic = aetheris_expr::Scope { judged: Some(judged), ..all };
    let said = |template: &str, scope| aetheris_expr::render_text(template, scope).map_err(|error| error.to_string());
    assert_eq!(said("{{ round }} {{ feedback }}", own), Ok("2 too long".to_owned()));
    assert_eq!(said("{{ round }} {{ output.n }}", critic), Ok("3 7".to_owned()));
    assert_eq!(said("{% set round = 5 %}{{ round | string }}{{ 2.5 | round }}", own), Ok("53".to_owned()));
    for (template, scope) in [("{{ output }}", own), ("{{ feedback }}", critic), ("{{ round }}", all)] {
        assert!(said(template, scope).is_err_and(|error| error.contains("cannot be used here")), "{template}");
    }
}

/// The item of a map is named like a local, behind those that statements give, and its place beside it.
#[test]
fn an_item_is_named_as_its_map_says() {
    let (names, value) = (Context::default(), Json::new(json!({ "lines": [1, 2], "id": "x" })));
    let item = aetheris_expr::Item { index: 3, name: "row", value: &value };
    let scope = aetheris_expr::Scope { item: Some(item), ..(&names).into() };
    let said = |template: &str| aetheris_expr::render_text(template, scope).unwrap();
    assert_eq!(said("{{ row.id }} {{ row_index }}"), "x 3");
    assert_eq!(said("{% for row in row.lines %}{{ row }},{% endfor %}{{ row.id }}"), "1,2,x");
    assert_eq!(said("{% set row_index = 9 %}{{ row_index }}"), "9");
    assert!(aetheris_expr::render_text("{{ item }}", scope).is_err());
    assert!(aetheris_expr::condition("row_index == 3 and row.id == 'x'", scope).unwrap());
    for (name, free) in [
        ("row", true),
        ("_r2", true),
        ("", false),
        ("2r", false),
        ("a-b", false),
        ("loop", false),
        ("feedback", false),
        ("round", false),
        ("uuid", false),
        ("None", false),
    ] {
        assert_eq!(aetheris_expr::is_free_name(name), free, "{name}");
    }
}
