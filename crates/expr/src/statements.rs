//! From the pieces of a template to its statements: `if`, `for`, `set`.

use std::iter::Peekable;
use std::vec::IntoIter;

use crate::ast::{Expr, Stmt};
use crate::error::ExprError;
use crate::lex::{self, Part, Spot, Token};
use crate::parse::{Names, Parser};

/// Deepest nesting of `if` and `for`.
const BLOCKS_MAX: u32 = 20;

struct Reader<'n> {
    depth: u32,
    names: &'n mut Names,
    parts: Peekable<IntoIter<Part>>,
}

/// The statements of a template.
pub(crate) fn template(source: &str, names: &mut Names) -> Result<Vec<Stmt>, ExprError> {
    let parts = lex::parts(source)?;
    let mut reader = Reader { depth: 0, names, parts: parts.into_iter().peekable() };
    let statements = reader.block()?;
    match reader.parts.next() {
        None => Ok(statements),
        Some(part) => {
            let (word, line) = word(&part);
            Err(ExprError::syntax(format!("`{{% {word} %}}` closes nothing"), line))
        }
    }
}

/// A condition: one expression.
pub(crate) fn condition(source: &str, names: &mut Names) -> Result<Expr, ExprError> {
    if source.trim_start().starts_with("{{") {
        return Err(ExprError::syntax("a condition is written without `{{` and `}}`", 1));
    }
    let tokens = lex::expression(source)?;
    Parser::new(&tokens, 1, names).whole()
}

/// The first word of a tag, and its line.
fn word(part: &Part) -> (&str, u32) {
    match part {
        Part::Tag(tokens, line) => match tokens.first() {
            Some(Spot { token: Token::Name(name), .. }) => (name, *line),
            _ => ("", *line),
        },
        Part::Emit(_, line) => ("", *line),
        Part::Text(_) => ("", 1),
    }
}

impl Reader<'_> {
    /// Statements up to a tag that ends or divides a block.
    fn block(&mut self) -> Result<Vec<Stmt>, ExprError> {
        let locals = self.names.locals.len();
        let mut statements = Vec::new();
        while let Some(part) = self.parts.next_if(|part| !matches!(word(part).0, "elif" | "else" | "endif" | "endfor"))
        {
            statements.push(match part {
                Part::Text(text) => Stmt::Text(text),
                Part::Emit(tokens, line) => Stmt::Emit(Parser::new(&tokens, line, self.names).whole()?),
                Part::Tag(tokens, line) => self.tag(&tokens, line)?,
            });
        }
        self.names.locals.truncate(locals);
        Ok(statements)
    }

    fn tag(&mut self, tokens: &[Spot], line: u32) -> Result<Stmt, ExprError> {
        let Some(Spot { token: Token::Name(name), .. }) = tokens.first() else {
            return Err(ExprError::syntax("`{%` must be followed by `if`, `for`, `set` or `raw`", line));
        };
        self.depth += 1;
        if self.depth > BLOCKS_MAX {
            return Err(ExprError::syntax(format!("blocks are nested deeper than {BLOCKS_MAX} levels"), line));
        }
        let statement = match name.as_str() {
            "if" => self.branches(&tokens[1..], line)?,
            "for" => self.repeat(&tokens[1..], line)?,
            "set" => self.set(&tokens[1..], line)?,
            _ => {
                let message = format!("`{{% {name} %}}` is not supported: there are `if`, `for`, `set` and `raw`");
                return Err(ExprError::syntax(message, line));
            }
        };
        self.depth -= 1;
        Ok(statement)
    }

    fn set(&mut self, tokens: &[Spot], line: u32) -> Result<Stmt, ExprError> {
        let mut parser = Parser::new(tokens, line, self.names);
        let name = parser.new_name()?;
        parser.expect("=")?;
        let value = parser.whole()?;
        self.names.locals.push(name.clone());
        Ok(Stmt::Set(name, value))
    }

    fn branches(&mut self, tokens: &[Spot], line: u32) -> Result<Stmt, ExprError> {
        let mut branches = Vec::new();
        let mut test = Parser::new(tokens, line, self.names).whole()?;
        loop {
            branches.push((test, self.block()?));
            let (word, tokens, at) = self.divider("endif", line)?;
            match word.as_str() {
                "elif" => test = Parser::new(&tokens, at, self.names).whole()?,
                "else" => {
                    let otherwise = self.block()?;
                    self.close("endif", line)?;
                    return Ok(Stmt::If { branches, otherwise });
                }
                "endif" => return Ok(Stmt::If { branches, otherwise: Vec::new() }),
                other => {
                    return Err(ExprError::syntax(
                        format!("`{{% {other} %}}` does not belong inside `{{% if %}}`"),
                        at,
                    ));
                }
            }
        }
    }

    fn repeat(&mut self, tokens: &[Spot], line: u32) -> Result<Stmt, ExprError> {
        let outer = self.names.locals.len();
        let mut parser = Parser::new(tokens, line, self.names);
        let mut targets = vec![parser.new_name()?];
        while parser.skip(",") {
            targets.push(parser.new_name()?);
        }
        if !parser.skip_name("in") {
            return Err(parser.wrong("a loop is written `{% for name in list %}`"));
        }
        let of = parser.or()?.expr;
        targets.iter().for_each(|name| parser.declare(name));
        let filter = if parser.skip_name("if") { Some(parser.expression()?.expr) } else { None };
        parser.end()?;
        self.names.locals.push("loop".to_owned());
        let body = self.block()?;
        self.names.locals.truncate(outer);
        let (word, _, at) = self.divider("endfor", line)?;
        let otherwise = match word.as_str() {
            "endfor" => Vec::new(),
            "else" => {
                let otherwise = self.block()?;
                self.close("endfor", line)?;
                otherwise
            }
            other => {
                return Err(ExprError::syntax(format!("`{{% {other} %}}` does not belong inside `{{% for %}}`"), at));
            }
        };
        Ok(Stmt::For { body, filter, of, otherwise, targets })
    }

    /// The tag that ended a block: its word, what follows it, its line.
    fn divider(&mut self, end: &str, opened: u32) -> Result<(String, Vec<Spot>, u32), ExprError> {
        match self.parts.next() {
            Some(Part::Tag(mut tokens, line)) => {
                let word = match tokens.first() {
                    Some(Spot { token: Token::Name(name), .. }) => name.clone(),
                    _ => String::new(),
                };
                let behind = tokens.split_off(tokens.len().min(1));
                if word != "elif" && !behind.is_empty() {
                    return Err(ExprError::syntax(format!("nothing may follow `{word}`"), line));
                }
                Ok((word, behind, line))
            }
            _ => Err(ExprError::syntax(format!("a block is not closed by `{{% {end} %}}`"), opened)),
        }
    }

    fn close(&mut self, end: &str, opened: u32) -> Result<(), ExprError> {
        let (word, _, line) = self.divider(end, opened)?;
        if word == end {
            Ok(())
        } else {
            Err(ExprError::syntax(format!("expected `{{% {end} %}}`, not `{{% {word} %}}`"), line))
        }
    }
}
