//! The forms of values, to the byte.

use serde_json::json;

use super::*;

fn canonical(text: &str) -> String {
    Json::parse(text.as_bytes()).unwrap().to_string()
}

#[test]
fn numbers_have_the_form_of_rfc_8785() {
    // From the RFC's appendix B and section 3.2.2.3.
    for (text, form) in [
        ("0.0", "0"),
        ("-0.0", "0"),
        ("1e21", "1e+21"),
        ("333333333.33333329", "333333333.3333333"),
        ("1E30", "1e+30"),
        ("4.50", "4.5"),
        ("2e-3", "0.002"),
        ("0.000000000000000000000000001", "1e-27"),
        ("9007199254740994.0", "9007199254740994"),
        ("-1.5e-7", "-1.5e-7"),
        ("123456789012345680000.0", "123456789012345680000"),
        ("18446744073709551615", "18446744073709551615"),
        ("-9223372036854775808", "-9223372036854775808"),
    ] {
        assert_eq!(canonical(text), form);
    }
}

#[test]
fn keys_are_ordered_by_utf16_units_and_strings_escaped_minimally() {
    let text = r#"{"\u20ac":1,"\r":2,"\ud83d\ude00":3,"1":4,"\ufb33":5,"\u0080":6}"#;
    assert_eq!(canonical(text), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{20ac}\":1,\"\u{1f600}\":3,\"\u{fb33}\":5}");
    assert_eq!(canonical(r#""\u000f\n\u0008\/\u00e9""#), "\"\\u000f\\n\\b/\u{e9}\"");
}

#[test]
fn what_cannot_be_kept_exactly_is_refused() {
    for text in [
        "18446744073709551616",
        "[-9223372036854775809]",
        "{\"a\":1e999}",
        // Integers in another form, which a double would round.
        "9007199254740993.0",
        "-9007199254740993e0",
        "9007199254740993.00E+00",
        "12345678901234567890.0",
        // The shortest digits of 2^63 are another integer's.
        "9223372036854775808.0",
        // Small, and not zero.
        "1E-400",
        "-2e-324",
        "1e-99999999999999999999",
    ] {
        assert!(matches!(Json::parse(text.as_bytes()), Err(JsonError::Number(_))), "{text}");
    }
    // A double as the canonical form writes it is a double still.
    for text in ["1e20", "123456789012345680000.0", "-36893488147419103000.0", "18446744073709552000"] {
        assert_eq!(canonical(&canonical(text)), canonical(text));
    }
    for (text, kept) in [
        ("9007199254740992.0", "9007199254740992"),
        ("9007199254740993.5", "9007199254740994"),
        // As C prints a double with all its digits: the double is the same one.
        ("1.7805312345678899e+18", "1780531234567890000"),
        ("90071992547409.93E2", "9007199254740992"),
        ("12345678901234567000.0", "12345678901234567000"),
        ("1e19", "10000000000000000000"),
        ("150e-2", "1.5"),
        ("0.0e-99999999999999999999", "0"),
        ("-0e5", "0"),
        ("-0.0", "0"),
        ("5e-324", "5e-324"),
    ] {
        assert_eq!(canonical(text), kept);
    }
    assert_eq!(canonical(r#""18446744073709551616""#), r#""18446744073709551616""#);
}

#[test]
fn depth_and_size_are_bounded_on_both_ways_in() {
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    assert_eq!(Json::parse(deep.as_bytes()), Err(JsonError::Depth));
    let fits = format!("{}{}", "[".repeat(64), "]".repeat(64));
    assert!(Json::parse(fits.as_bytes()).is_ok());
    assert!(Json::checked(serde_json::from_str(&fits).unwrap()).is_ok());
    assert_eq!(Json::checked(serde_json::from_str(&deep).unwrap()), Err(JsonError::Depth));
    let large = Value::String("x".repeat(limits::PAYLOAD_BYTES_MAX));
    assert!(matches!(Json::checked(large), Err(JsonError::Size(_))));
}

#[test]
fn every_kind_of_value_is_read_shown_and_written_alike() {
    let text = r#"{"a":[null,true,-1,0.5,"x"],"b":{}}"#;
    let json = Json::parse(text.as_bytes()).unwrap();
    assert_eq!((json.to_string(), json.canonical()), (text.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(json.hash(), crate::hash::Hash::of(text.as_bytes()));
    assert_eq!((json.value(), json["a"][1].as_bool()), (&*json, Some(true)));
    assert_eq!(Json::from(Value::Null), Json::null());
    assert_eq!(Json::null().to_string(), "null");
    assert_eq!(format!("{:?}", Json::null()), "Null");
    assert!(matches!(Json::parse(b"{"), Err(JsonError::Syntax(_))));
}

#[test]
fn doubles_change_form_where_the_rfc_says() {
    for (value, form) in [
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e21, "1.5e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (12.5, "12.5"),
        (-0.25, "-0.25"),
        (10.0, "10"),
        (1.0, "1"),
        (5e-324, "5e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
    ] {
        assert_eq!(ecma_number(value), form);
    }
}

#[test]
fn depth_is_counted_over_arrays_and_objects_and_not_in_texts() {
    let mixed = |levels: usize| format!("{}1{}", "{\"a\":[".repeat(levels / 2), "]}".repeat(levels / 2));
    assert!(Json::parse(mixed(64).as_bytes()).is_ok());
    assert_eq!(Json::parse(mixed(66).as_bytes()), Err(JsonError::Depth));
    assert!(Json::checked(serde_json::from_str(&mixed(64)).unwrap()).is_ok());
    assert_eq!(Json::checked(serde_json::from_str(&mixed(66)).unwrap()), Err(JsonError::Depth));
    let objects = format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65));
    assert_eq!(Json::checked(serde_json::from_str(&objects).unwrap()), Err(JsonError::Depth));
    let wide = format!("[{}[]]", "[],".repeat(200));
    assert!(Json::parse(wide.as_bytes()).is_ok());
    let quoted = format!("[\"{}\\\"{}\"]", "[".repeat(70), "[".repeat(70));
    assert!(Json::parse(quoted.as_bytes()).is_ok(), "{quoted}");
}

#[test]
fn what_grows_beyond_the_bound_in_its_canonical_form_is_refused() {
    let numbers = format!("[{}1e20]", "1e20,".repeat(150_000));
    assert!(numbers.len() < limits::PAYLOAD_BYTES_MAX);
    assert!(matches!(Json::parse(numbers.as_bytes()), Err(JsonError::Size(size)) if size > limits::PAYLOAD_BYTES_MAX));
}

#[test]
fn size_is_bounded_to_the_byte() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let (fits, over) = (text(limits::PAYLOAD_BYTES_MAX), text(limits::PAYLOAD_BYTES_MAX + 1));
    assert!(Json::parse(fits.as_bytes()).is_ok());
    assert_eq!(Json::parse(over.as_bytes()), Err(JsonError::Size(over.len())));
    assert!(Json::checked(serde_json::from_str(&fits).unwrap()).is_ok());
    assert_eq!(Json::checked(serde_json::from_str(&over).unwrap()), Err(JsonError::Size(over.len())));
}

#[test]
fn numbers_are_looked_at_wherever_they_stand() {
    let over = "18446744073709551616";
    for text in [over.to_owned(), format!("[{over}]"), format!("{{\"a\":{over}}}"), format!("[1,\"x\\\\\",{over}]")] {
        assert_eq!(Json::parse(text.as_bytes()), Err(JsonError::Number(over.to_owned())), "{text}");
    }
    for text in ["[1e-300]", "[-1E+3]", "[0.1,18446744073709551615]", "[-9223372036854775808]"] {
        assert!(Json::parse(text.as_bytes()).is_ok(), "{text}");
    }
    for text in ["-", "[1-]", "1.2.3", "[\"a", "\"\\"] {
        assert!(matches!(Json::parse(text.as_bytes()), Err(JsonError::Syntax(_) | JsonError::Number(_))), "{text}");
    }
}

#[test]
fn a_number_has_the_form_that_its_canonical_text_is_read_as() {
    for (text, kept) in [
        ("3.0", json!(3)),
        ("-0.0", json!(0)),
        ("9.0e18", json!(9_000_000_000_000_000_000_i64)),
        ("-9.0e18", json!(-9_000_000_000_000_000_000_i64)),
        ("1e19", json!(10_000_000_000_000_000_000_u64)),
        ("9223372036854776000.0", json!(9_223_372_036_854_776_000_u64)),
        ("18446744073709551616.0", json!(18_446_744_073_709_551_616.0)),
        ("1e20", json!(1e20)),
        ("-1e19", json!(-1e19)),
        ("2.5", json!(2.5)),
        ("[{\"a\": 10.0}]", json!([{ "a": 10 }])),
    ] {
        let json = Json::parse(text.as_bytes()).unwrap();
        assert_eq!(json.value(), &kept, "{text}");
        assert_eq!(Json::parse(&json.canonical()).as_ref(), Ok(&json), "{text}");
        let made = serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(Json::new(made.clone()), json, "{text}");
        assert_eq!(Json::checked(made).as_ref(), Ok(&json), "{text}");
        assert_eq!(serde_json::from_str::<Json>(text).unwrap(), json, "{text}");
    }
}

#[test]
fn a_key_that_is_there_twice_is_refused_by_name() {
    for (text, key) in
        [(r#"{"a":1,"a":2}"#, "\"a\""), (r#"[{"x":{"b":1,"c":2,"b":1}}]"#, "\"b\""), (r#"{"\u0061":1,"a":1}"#, "\"a\"")]
    {
        assert_eq!(Json::parse(text.as_bytes()), Err(JsonError::Twice(key.to_owned())), "{text}");
    }
    assert!(Json::parse(br#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
    let long = format!("{{\"{0}\":1,\"{0}\":2}}", "k".repeat(100_000));
    assert!(matches!(Json::parse(long.as_bytes()), Err(JsonError::Twice(key)) if key.len() < 200));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_value() {
    assert_eq!(Json::parse(b"\xef\xbb\xbf{\"a\":1}"), Json::parse(b"{\"a\":1}"));
    assert!(Json::parse(b"\xef\xbb\xbf\xef\xbb\xbf1").is_err());
}

#[test]
fn the_size_that_counts_is_that_of_the_canonical_form() {
    let numbers = |count: usize| format!("[{}1e20]", "1e20,".repeat(count - 1));
    let size = |count: usize| 2 + count * 22 - 1;
    let most = (limits::PAYLOAD_BYTES_MAX - 1) / 22;
    assert!(Json::parse(numbers(most).as_bytes()).is_ok());
    let over = numbers(most + 1);
    assert!(over.len() < limits::PAYLOAD_BYTES_MAX / 4);
    assert_eq!(Json::parse(over.as_bytes()), Err(JsonError::Size(size(most + 1))));
    // Exponents that are shorter in canonical form take nothing away from what fits.
    let short = format!("[{}1e-30]", "1e-30,".repeat(limits::PAYLOAD_BYTES_MAX / 6 - 1));
    assert!(Json::parse(short.as_bytes()).is_ok());
}

#[test]
fn the_longest_number_is_as_long_as_it_is_said_to_be() {
    let longest = ecma_number(-1.234_567_890_123_456_7e-300);
    assert!(longest.len() <= NUMBER_BYTES_MAX, "{longest}");
    assert!(ecma_number(-0.000_001_234_567_890_123_456_7).len() <= NUMBER_BYTES_MAX);
}

/// The letter of an exponent may be either.
#[test]
fn the_size_counts_however_an_exponent_is_written() {
    let most = (limits::PAYLOAD_BYTES_MAX - 1) / 22;
    let over = format!("[{}1E20]", "1E20,".repeat(most));
    assert!(matches!(Json::parse(over.as_bytes()), Err(JsonError::Size(_))));
}
