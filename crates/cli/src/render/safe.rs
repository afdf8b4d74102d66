//! What others wrote, made harmless for a screen: nothing of it moves the cursor, changes a colour or
//! shows its letters in another order than they are stored in.

use std::borrow::Cow;

pub use aetheris_api::shell::is_format;

/// A text on one line: control characters are spaces, format characters are written as `\u202e`.
#[must_use]
pub fn one_line(text: &str) -> String {
    shown(text, |c| c.is_control().then_some(" "))
}

/// A text that keeps its lines. Control characters are spaces; what a JSON text escapes stays JSON.
#[must_use]
pub fn lines(text: &str) -> String {
    shown(text, |c| (c.is_control() && c != '\n').then_some(" "))
}

/// JSON that means the same and that a screen shows as it is stored: nothing but its own line ends
/// controls anything.
#[must_use]
pub fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_format(c) || (c.is_control() && c != '\n') { escape(c, &mut shown) } else { shown.push(c) }
    }
    shown
}

/// A text on one line in which every character that controls something is written as `\u001b`.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    // Nearly every line of a log, of which a busy server writes thousands in a second.
    if text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_format(c) { escape(c, &mut shown) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

fn shown(text: &str, control: impl Fn(char) -> Option<&'static str>) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match control(c) {
            Some(instead) => shown.push_str(instead),
            None if is_format(c) => escape(c, &mut shown),
            None => shown.push(c),
        }
    }
    shown
}

/// The form that JSON reads.
fn escape(c: char, into: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        into.push_str(&format!("\\u{unit:04x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_cannot_be_shown_backwards() {
        assert_eq!(one_line("pay \u{202e}0001\u{202c} cents"), "pay \\u202e0001\\u202c cents");
        assert_eq!(one_line("a\u{200b}b\u{2066}c\u{feff}"), "a\\u200bb\\u2066c\\ufeff");
        assert_eq!(one_line("two\nlines\u{1b}[2J\u{9b}31m"), "two lines [2J 31m");
        assert_eq!(lines("two\nlines\u{2028}"), "two\nlines\\u2028");
        assert_eq!(one_line("héllo 日本 ✓"), "héllo 日本 ✓");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "reason": "\u{202e}\u{e0041}\u{7f}\u{9b}x" });
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(text, "{\n  \"reason\": \"\\u202e\\udb40\\udc41\\u007f\\u009bx\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
