//! From text to tokens.

use aetheris_core::json::check_number;
use serde_json::Number;

use crate::error::ExprError;

/// A word of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Number(Number),
    Symbol(&'static str),
    Text(String),
}

/// A token and its line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spot {
    pub(crate) line: u32,
    pub(crate) token: Token,
}

/// A piece of a template: text, `{{ … }}` or `{% … %}`.
#[derive(Debug)]
pub(crate) enum Part {
    Emit(Vec<Spot>, u32),
    Tag(Vec<Spot>, u32),
    Text(String),
}

const SYMBOLS: [&str; 25] = [
    "**", "//", "==", "!=", "<=", ">=", "{", "}", "[", "]", "(", ")", ".", ",", ":", "|", "~", "+", "-", "*", "/", "%",
    "<", ">", "=",
];

struct Cursor<'s> {
    at: usize,
    line: u32,
    source: &'s str,
}

/// The tokens of a condition.
pub(crate) fn expression(source: &str) -> Result<Vec<Spot>, ExprError> {
    let mut cursor = Cursor { at: 0, line: 1, source };
    let (tokens, _) = cursor.tokens(None)?;
    Ok(tokens)
}

/// The pieces of a template, in order.
pub(crate) fn parts(source: &str) -> Result<Vec<Part>, ExprError> {
    let mut cursor = Cursor { at: 0, line: 1, source };
    let mut parts = Vec::new();
    let mut trim = false;
    while !cursor.rest().is_empty() {
        let text = cursor.until_opening();
        let opening = cursor.rest();
        let trims_before = opening.len() > 2 && opening[2..].starts_with('-');
        let mut text = if trim { text.trim_start() } else { text };
        if trims_before {
            text = text.trim_end();
        }
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        if opening.is_empty() {
            break;
        }
        trim = cursor.tag(&mut parts)?;
    }
    Ok(parts)
}

/// The length of `{% endraw %}` at the beginning of a text, and whether it trims what is before and behind it. Nothing is
/// read beyond it: there may be very many beginnings of it in a text.
fn endraw(text: &str) -> Option<(usize, bool, bool)> {
    let inside = text.strip_prefix("{%")?;
    let trims_before = inside.starts_with('-');
    let word = inside.strip_prefix(['-', '+']).unwrap_or(inside);
    // Blanks are passed once and not for each beginning: none stands between blanks.
    let rest = word.trim_start().strip_prefix("endraw")?.trim_start();
    let trims_after = rest.starts_with('-');
    let behind = rest.strip_prefix('-').unwrap_or(rest).strip_prefix("%}")?;
    Some((text.len() - behind.len(), trims_before, trims_after))
}

/// The number of the four hexadecimal digits that a text begins with: of digits alone, and not of a sign.
fn hex(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    digits.chars().all(|c| c.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

impl<'s> Cursor<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn advance(&mut self, bytes: usize) -> &'s str {
        let passed = &self.source[self.at..self.at + bytes];
        let lines = passed.bytes().filter(|byte| *byte == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.at += bytes;
        passed
    }

    fn until_opening(&mut self) -> &'s str {
        let rest = self.rest();
        let end = rest
            .match_indices('{')
            .map(|(at, _)| at)
            .find(|at| matches!(rest.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')))
            .unwrap_or(rest.len());
        self.advance(end)
    }

    /// Reads one `{…}` construct; answers whether it trims the text behind it.
    fn tag(&mut self, parts: &mut Vec<Part>) -> Result<bool, ExprError> {
        let line = self.line;
        let opening = self.advance(2);
        if opening == "{#" {
            let Some(end) = self.rest().find("#}") else {
                return Err(ExprError::syntax("the comment `{#` is not closed by `#}`", line));
            };
            return Ok(self.advance(end + 2).ends_with("-#}"));
        }
        if self.rest().starts_with(['-', '+']) {
            self.advance(1);
        }
        if opening == "{{" {
            let (tokens, trim) = self.tokens(Some("}}"))?;
            parts.push(Part::Emit(tokens, line));
            return Ok(trim);
        }
        let (tokens, trim) = self.tokens(Some("%}"))?;
        if matches!(tokens.as_slice(), [Spot { token: Token::Name(name), .. }] if name == "raw") {
            return self.raw(parts, trim, line);
        }
        parts.push(Part::Tag(tokens, line));
        Ok(trim)
    }

    fn raw(&mut self, parts: &mut Vec<Part>, trim: bool, line: u32) -> Result<bool, ExprError> {
        let start = self.at;
        while let Some(found) = self.rest().find("{%") {
            self.advance(found);
            let end = self.at;
            if let Some((bytes, trims_before, trims_after)) = endraw(self.rest()) {
                self.advance(bytes);
                let text = &self.source[start..end];
                let text = if trim { text.trim_start() } else { text };
                let text = if trims_before { text.trim_end() } else { text };
                parts.push(Part::Text(text.to_owned()));
                return Ok(trims_after);
            }
            self.advance(2);
        }
        Err(ExprError::syntax("`{% raw %}` is not closed by `{% endraw %}`", line))
    }

    /// Reads tokens up to `end`, or to the end of the text where there is none.
    fn tokens(&mut self, end: Option<&str>) -> Result<(Vec<Spot>, bool), ExprError> {
        let start = self.line;
        let mut tokens = Vec::new();
        let mut braces = 0usize;
        loop {
            let space = self.rest().len() - self.rest().trim_start().len();
            self.advance(space);
            let rest = self.rest();
            if let Some(end) = end
                && braces == 0
            {
                if rest.starts_with(end) {
                    self.advance(end.len());
                    return Ok((tokens, false));
                }
                if rest.strip_prefix('-').is_some_and(|behind| behind.starts_with(end)) {
                    self.advance(end.len() + 1);
                    return Ok((tokens, true));
                }
            }
            let Some(first) = rest.chars().next() else {
                return match end {
                    None => Ok((tokens, false)),
                    Some(end) => Err(ExprError::syntax(
                        format!("a `{{{}` is not closed by `{end}`", &end[..1].replace('}', "{")),
                        start,
                    )),
                };
            };
            let line = self.line;
            let token = self.token(first)?;
            match &token {
                Token::Symbol("{") => braces += 1,
                Token::Symbol("}") => braces = braces.saturating_sub(1),
                Token::Name(_) | Token::Number(_) | Token::Symbol(_) | Token::Text(_) => {}
            }
            tokens.push(Spot { line, token });
        }
    }

    fn token(&mut self, first: char) -> Result<Token, ExprError> {
        if first.is_ascii_digit() {
            return self.number();
        }
        if first.is_alphabetic() || first == '_' {
            let rest = self.rest();
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            return Ok(Token::Name(self.advance(end).to_owned()));
        }
        if first == '"' || first == '\'' {
            return self.text(first);
        }
        match SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol)) {
            Some(symbol) => {
                self.advance(symbol.len());
                Ok(Token::Symbol(symbol))
            }
            None => Err(ExprError::syntax(format!("`{first}` has no meaning in an expression"), self.line)),
        }
    }

    fn number(&mut self) -> Result<Token, ExprError> {
        let rest = self.rest().as_bytes();
        let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = digits(0);
        let mut exact = true;
        if rest.get(end) == Some(&b'.') && rest.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end += 1 + digits(end + 1);
            exact = false;
        }
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits((end + 1 + sign).min(rest.len()));
            if exponent > 0 {
                end += 1 + sign + exponent;
                exact = false;
            }
        }
        let line = self.line;
        let literal = self.advance(end);
        let number = if exact {
            literal.parse::<u64>().ok().map(Number::from)
        } else if check_number(literal).is_err() {
            None
        } else {
            literal.parse::<f64>().ok().and_then(Number::from_f64)
        };
        number.map(Token::Number).ok_or_else(|| {
            ExprError::syntax(format!("the number {literal} cannot be kept exactly: write it as a text"), line)
        })
    }

    fn text(&mut self, quote: char) -> Result<Token, ExprError> {
        let start = self.line;
        self.advance(1);
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let end = rest
                .find([quote, '\\'])
                .ok_or_else(|| ExprError::syntax(format!("a text is not closed by {quote}"), start))?;
            text.push_str(self.advance(end));
            if self.advance(1) != "\\" {
                return Ok(Token::Text(text));
            }
            let escaped = self.rest().chars().next().unwrap_or('\0');
            self.advance(if escaped == '\0' { 0 } else { escaped.len_utf8() });
            match escaped {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'b' => text.push('\u{8}'),
                'f' => text.push('\u{c}'),
                '\\' | '\'' | '"' | '/' => text.push(escaped),
                'u' => text.push(self.unicode()?),
                _ => {
                    return Err(ExprError::syntax(
                        format!("`\\{escaped}` is not an escape: write `\\\\` for a backslash"),
                        self.line,
                    ));
                }
            }
        }
    }

    fn unicode(&mut self) -> Result<char, ExprError> {
        let wrong = |line| ExprError::syntax("`\\u` needs four hexadecimal digits that name a character", line);
        let first = hex(self.rest()).ok_or_else(|| wrong(self.line))?;
        self.advance(4);
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first).ok_or_else(|| wrong(self.line));
        }
        if !self.rest().starts_with("\\u") {
            return Err(wrong(self.line));
        }
        self.advance(2);
        let second = hex(self.rest()).filter(|code| (0xDC00..0xE000).contains(code)).ok_or_else(|| wrong(self.line))?;
        self.advance(4);
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)).ok_or_else(|| wrong(self.line))
    }
}
