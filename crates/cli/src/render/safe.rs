//! What others wrote, made harmless for a screen: nothing of it moves the cursor, changes a colour or
//! shows its letters in another order than they are stored in.

use std::borrow::Cow;

pub use aetheris_api::shell::is_format;

/// The joiners: they decide whether letters of some scripts, or parts of a picture, are drawn together.
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];

/// Each character, and whether it is to be shown as an escape. A joiner is not between two characters that are neither
/// ASCII nor invisible, as Persian and pictures of families have it: it moves nothing there. Elsewhere it would only
/// make texts differ that look the same.
fn judged(text: &str) -> impl Iterator<Item = (char, bool)> {
    let seen = |c: char| !c.is_ascii() && !c.is_control() && !c.is_whitespace() && !is_format(c);
    let mut before = None;
    let mut chars = text.chars().peekable();
    std::iter::from_fn(move || {
        let c = chars.next()?;
        let joins = JOINERS.contains(&c) && before.is_some_and(seen) && chars.peek().copied().is_some_and(seen);
        before = Some(c);
        Some((c, is_format(c) && !joins))
    })
}

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
    for (c, hidden) in judged(text) {
        if hidden || (c.is_control() && c != '\n') { escape(c, &mut shown) } else { shown.push(c) }
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
    for (c, hidden) in judged(text) {
        match control(c) {
            Some(instead) => shown.push_str(instead),
            None if hidden => escape(c, &mut shown),
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
    fn joiners_stand_where_they_join_what_is_seen() {
        let persian = "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}";
        let family = "\u{1f469}\u{200d}\u{1f467}, \u{2764}\u{fe0f}\u{200d}\u{1f525}";
        for text in [persian, family] {
            assert_eq!((one_line(text).as_str(), lines(text).as_str(), json(text).as_str()), (text, text, text));
        }
        for (text, shown) in [
            ("approve\u{200d}-7", "approve\\u200d-7"),
            ("a\u{200c}\u{62e}", "a\\u200c\u{62e}"),
            ("\u{62e}\u{200c}", "\u{62e}\\u200c"),
            ("\u{62e}\u{200c}\u{200c}\u{62e}", "\u{62e}\\u200c\\u200c\u{62e}"),
            ("\u{62e}\u{202e}\u{200d}\u{62e}", "\u{62e}\\u202e\\u200d\u{62e}"),
        ] {
            assert_eq!(one_line(text), shown);
            assert_eq!(json(text), shown);
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "reason": "\u{202e}\u{e0041}\u{7f}\u{9b}x" });
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(text, "{\n  \"reason\": \"\\u202e\\udb40\\udc41\\u007f\\u009bx\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
