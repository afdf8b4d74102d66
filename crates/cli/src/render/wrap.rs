//! Lines of a terminal's width. Where there is no terminal nothing is wrapped, as whoever reads a pipe
//! reads lines.

use unicode_width::UnicodeWidthChar;

use super::width;

/// Fewest columns in which text is broken: a terminal that is narrower wraps by itself.
const COLUMNS_MIN: usize = 16;

/// Words in lines of at most `columns`, further lines behind `indent` spaces; `used` columns of the first
/// line are taken. A word that is longer than a line is broken. Colours are not allowed in `text`.
#[must_use]
pub fn wrap(text: &str, columns: Option<usize>, used: usize, indent: usize) -> String {
    let Some(columns) = columns.filter(|columns| *columns >= indent + COLUMNS_MIN) else { return text.to_owned() };
    let mut lines = Lines { columns, indent, text: String::new(), used };
    for (number, word) in text.split(' ').enumerate() {
        lines.word(word, number > 0);
    }
    lines.text
}

/// Items side by side with a gap between them, in as many lines as they need, each behind `indent`
/// spaces but the first. An item is never broken; one that is wider than a line has a line of its own.
#[must_use]
pub fn flow(items: &[String], gap: &str, columns: Option<usize>, indent: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    for item in items {
        let (first, last) = (item.lines().next().unwrap_or(""), item.lines().last().unwrap_or(""));
        let several = item.contains('\n');
        let too_wide = |columns| used + width(gap) + width(first) > columns || several;
        if used > 0 && columns.is_some_and(too_wide) {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            used = indent;
        } else if used > 0 {
            text.push_str(gap);
            used += width(gap);
        }
        text.push_str(item);
        used = if several { width(last) } else { used + width(item) };
    }
    text
}

struct Lines {
    columns: usize,
    indent: usize,
    text: String,
    used: usize,
}

impl Lines {
    fn word(&mut self, word: &str, after_space: bool) {
        let wide = width(word);
        let space = usize::from(after_space);
        if self.used + space + wide > self.columns && self.used > self.indent {
            self.line();
        } else if after_space {
            self.text.push(' ');
            self.used += 1;
        }
        if self.used + wide <= self.columns {
            self.text.push_str(word);
            self.used += wide;
            return;
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or(0);
            if self.used + wide > self.columns {
                self.line();
            }
            self.text.push(c);
            self.used += wide;
        }
    }

    fn line(&mut self) {
        self.text.push('\n');
        self.text.push_str(&" ".repeat(self.indent));
        self.used = self.indent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_whole_and_long_ones_are_broken() {
        assert_eq!(wrap("one two three four five", Some(18), 0, 2), "one two three four\n  five");
        assert_eq!(wrap("one two three four", Some(18), 8, 2), "one two\n  three four");
        assert_eq!(wrap("abcdefghijklmnopqrstuvwxyz", Some(18), 0, 2), "abcdefghijklmnopqr\n  stuvwxyz");
        assert_eq!(wrap("日本語日本語日本語日本語", Some(18), 0, 0), "日本語日本語日本語\n日本語");
        assert_eq!(wrap("one two three four five", None, 0, 2), "one two three four five");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = "a job with a reason that is long, averyveryverylongwordthatisbroken, and an end";
        for columns in 18..100 {
            for line in wrap(text, Some(columns), 0, 2).lines() {
                assert!(width(line) <= columns, "{columns}: {line:?}");
            }
        }
    }

    #[test]
    fn items_are_never_broken() {
        let items = ["agent refund", "status failed", "created 1m ago"].map(str::to_owned);
        assert_eq!(flow(&items, " · ", Some(28), 2), "agent refund · status failed\n  created 1m ago");
        assert_eq!(flow(&items, " · ", None, 2), "agent refund · status failed · created 1m ago");
        assert_eq!(flow(&items, " · ", Some(5), 2), "agent refund\n  status failed\n  created 1m ago");
    }
}
