//! Words of a command that people paste into a shell. What a word is made of may have come from anybody, so whatever
//! it is, a shell takes it for one word and a screen shows it on its line.

use std::fmt::Write as _;

/// Whether a character controls how others are shown and is not seen itself: the category `Cf` of Unicode
/// (writing direction, joiners, invisible operators, tags), and the separators of lines and paragraphs.
#[must_use]
pub fn is_format(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}' | '\u{180e}' | '\u{feff}' | '\u{110bd}' | '\u{110cd}'
        | '\u{600}'..='\u{605}' | '\u{890}'..='\u{891}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text as one word of a shell: as it is where nothing in it means anything to one, else quoted.
#[must_use]
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    // Some shells read a backslash even between single quotes.
    if text.chars().any(|c| c == '\\' || c.is_control() || is_format(c)) {
        return escaped(text);
    }
    // A word that begins with `=` names a program to some.
    let bare = !text.is_empty() && !text.starts_with('=') && text.chars().all(plain);
    if bare { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// A word in `$'…'`. Shells that do not know this form find no quote inside by which the word could end early: it is
/// another word to them then, and still one.
fn escaped(text: &str) -> String {
    let mut word = String::from("$'");
    for c in text.chars() {
        match c {
            '\\' => word.push_str("\\\\"),
            '\'' => word.push_str("\\047"),
            c if !c.is_control() && !is_format(c) => word.push(c),
            c if u32::from(c) <= 0xffff => drop(write!(word, "\\u{:04x}", u32::from(c))),
            c => drop(write!(word, "\\U{:08x}", u32::from(c))),
        }
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn words_for_a_shell() {
        assert_eq!(word("approve-job_01"), "approve-job_01");
        assert_eq!(word("a b"), "'a b'");
        assert_eq!(word("it's"), "'it'\\''s'");
        assert_eq!(word(""), "''");
        assert_eq!(word("=ls"), "'=ls'");
        // At its beginning it makes a comment of all that follows.
        assert_eq!(word("#42"), "'#42'");
        assert_eq!(word("a\u{1b}[2J'b"), "$'a\\u001b[2J\\047b'");
        assert_eq!(word("a\u{202e}b\u{e0041}"), "$'a\\u202eb\\U000e0041'");
        assert_eq!(word("a\\'; id #"), "$'a\\\\\\047; id #'");
    }

    #[test]
    fn no_text_is_more_than_one_word() {
        let hostile = [
            "x; exit 3 #",
            "$(exit 3)",
            "`exit 3`",
            "'; exit 3 #",
            "a\u{1b}'; exit 3 #",
            "a\\'; exit 3 #",
            "two\nexit 3",
            "a && exit 3",
            "~ * ? [a] {b,c} !! > /nowhere/at/all",
            "\u{9b}\u{202e}'\"",
        ];
        for text in hostile {
            let line = format!("set -- {}; exit $(($# - 1))", word(text));
            let status = Command::new("sh").arg("-c").arg(&line).status().unwrap();
            assert!(status.success(), "{text:?}: {line}: {status}");
        }
    }
}
