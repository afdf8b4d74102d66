//! Short texts: widths, cuts, JSON on one line.

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::safe;

/// The columns a text takes on a terminal; colours take none.
#[must_use]
pub fn width(text: &str) -> usize {
    if !text.contains('\u{1b}') {
        return text.width();
    }
    let mut columns = 0;
    let mut in_escape = false;
    for c in text.chars() {
        match (in_escape, c) {
            (false, '\u{1b}') => in_escape = true,
            (false, _) => columns += c.width().unwrap_or(0),
            (true, 'm') => in_escape = false,
            (true, _) => {}
        }
    }
    columns
}

/// A text on one line, cut to so many columns, and harmless for the screen.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    let plain = safe::one_line(text);
    if plain.width() <= columns {
        return plain;
    }
    let mut kept = String::new();
    let mut used = 1;
    for c in plain.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept
}

/// A value on one line; text stands without quotes.
#[must_use]
pub fn json_line(value: &Value) -> String {
    match value {
        Value::String(text) => safe::one_line(text),
        other => safe::json(&other.to_string()),
    }
}

/// A value over several lines, each after the first with this indent; text stands without quotes.
#[must_use]
pub fn json_page(value: &Value, indent: usize) -> String {
    let text = match value {
        Value::String(text) => safe::lines(text),
        other => safe::json(&serde_json::to_string_pretty(other).unwrap_or_default()),
    };
    text.replace('\n', &format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_columns() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("日本"), 4);
        assert_eq!(width("\u{1b}[31mred\u{1b}[0m"), 3);
    }

    #[test]
    fn cuts_end_in_a_mark_and_fit() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("日本", 4), "日本");
        assert_eq!(cut("a\nb\u{1b}[2J", 20), "a b [2J");
        assert_eq!(cut("ab", 0), "…");
    }
}
