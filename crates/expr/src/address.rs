//! A tool's address: what its author wrote decides which endpoint is called, and what templates bring
//! stays inside the place that the author gave it.
//!
//! Up to the first `/` behind the host that the author wrote out, values stand as they are, and a file is
//! refused where one of them is neither `env.NAME` nor marked with the filter `raw`. From there on every value
//! is percent-encoded, all but RFC 3986's unreserved characters; `env.NAME`, and a value whose last filter is
//! `raw` or `urlencode`, are not encoded again. No path segment that a template is part of may be empty, `.`
//! or `..`: the other side, or a proxy on the way, would take the address for another one. What is raw may
//! bring segments of its own.

use std::borrow::Cow;

use crate::ast::{Expr, Root, Stmt};
use crate::error::ExprError;
use crate::filters::encoded;

/// How a value gets into an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It was encoded by its author.
    Encoded,
    /// It is encoded here.
    Plain,
    /// It is part of the address as its author or operator wants it.
    Raw,
}

impl Way {
    fn of(expr: &Expr) -> Self {
        match expr {
            Expr::Root(Root::Env(_)) => Self::Raw,
            Expr::Filter { name, .. } if name == "raw" => Self::Raw,
            Expr::Filter { name, .. } if name == "urlencode" => Self::Encoded,
            _ => Self::Plain,
        }
    }
}

/// Where in an address the next character stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Part {
    /// Before the first `/` behind the host; what was written of it.
    Host(String),
    /// In a path segment.
    Segment { templated: bool, text: String },
    /// Behind `?` or `#`.
    #[default]
    Query,
}

/// An address that is being rendered.
#[derive(Debug)]
pub(crate) struct Address {
    part: Part,
}

impl Address {
    pub(crate) fn new() -> Self {
        Self { part: Part::Host(String::new()) }
    }

    /// What an expression brings, as it is to stand in the address.
    pub(crate) fn value<'t>(&mut self, expr: &Expr, text: &'t str) -> Result<Cow<'t, str>, ExprError> {
        match (Way::of(expr), &mut self.part) {
            (_, Part::Host(host)) => {
                host.push_str(text);
                Ok(Cow::Borrowed(text))
            }
            (Way::Raw, _) => {
                self.literal(text)?;
                Ok(Cow::Borrowed(text))
            }
            (way, part) => {
                let text = if way == Way::Plain { Cow::Owned(encoded(text)) } else { Cow::Borrowed(text) };
                if let Part::Segment { templated, text: segment } = part {
                    *templated = true;
                    segment.push_str(&text);
                }
                Ok(text)
            }
        }
    }

    /// What stands in the address as it was written.
    pub(crate) fn literal(&mut self, text: &str) -> Result<(), ExprError> {
        for c in text.chars() {
            self.part = match (std::mem::take(&mut self.part), c) {
                (Part::Host(mut host), c) => {
                    if ends_host(&host, c) {
                        after(c)
                    } else {
                        host.push(c);
                        Part::Host(host)
                    }
                }
                (segment @ Part::Segment { .. }, '/' | '\\' | '?' | '#') => {
                    check(&segment)?;
                    after(c)
                }
                (Part::Segment { templated, mut text }, c) => {
                    text.push(c);
                    Part::Segment { templated, text }
                }
                (Part::Query, _) => Part::Query,
            };
        }
        Ok(())
    }

    pub(crate) fn end(&self) -> Result<(), ExprError> {
        check(&self.part)
    }
}

/// Whether a character that was written behind this ends the host. The two of `://` do not.
fn ends_host(before: &str, c: char) -> bool {
    let of_scheme = !before.contains("://") && (before.ends_with(':') || before.ends_with(":/"));
    matches!(c, '?' | '#') || (matches!(c, '/' | '\\') && !of_scheme)
}

fn after(c: char) -> Part {
    if matches!(c, '/' | '\\') { Part::Segment { templated: false, text: String::new() } } else { Part::Query }
}

/// Readers of URLs drop white space at the ends and line breaks everywhere, and take `%2e` for a dot.
fn check(part: &Part) -> Result<(), ExprError> {
    let Part::Segment { templated: true, text } = part else { return Ok(()) };
    let seen: String = text.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    let seen = seen.to_ascii_lowercase().replace("%2e", ".");
    match seen.as_str() {
        "" => Err(ExprError::Segment { what: "is empty" }),
        "." => Err(ExprError::Segment { what: "is `.`" }),
        ".." => Err(ExprError::Segment { what: "is `..`" }),
        _ => Ok(()),
    }
}

/// Refuses a template that lets a value into the host without saying so.
pub(crate) fn check_host(statements: &[Stmt]) -> Result<(), ExprError> {
    hosts(statements, Some(String::new())).map(|_| ())
}

/// `host` is what is written of the host so far; `None` behind it.
fn hosts(statements: &[Stmt], mut host: Option<String>) -> Result<Option<String>, ExprError> {
    for statement in statements {
        let Some(written) = &mut host else { return Ok(None) };
        match statement {
            Stmt::Text(text) => {
                for c in text.chars() {
                    if ends_host(written, c) {
                        return Ok(None);
                    }
                    written.push(c);
                }
            }
            Stmt::Emit(expr) if Way::of(expr) != Way::Raw => {
                return Err(ExprError::Host { name: expr.describe() });
            }
            Stmt::Emit(_) | Stmt::Set(..) => {}
            Stmt::If { branches, otherwise } => {
                let before = written.clone();
                let mut merged = hosts(otherwise, Some(before.clone()))?;
                for (_, body) in branches {
                    merged = hosts(body, Some(before.clone()))?.or(merged);
                }
                host = merged;
            }
            Stmt::For { body, otherwise, .. } => {
                let before = written.clone();
                // Twice, since what the second round begins with is what the first one has left.
                let once = hosts(body, Some(before.clone()))?;
                if let Some(once) = once.clone() {
                    hosts(body, Some(once))?;
                }
                host = hosts(otherwise, Some(before))?.or(once);
            }
        }
    }
    Ok(host)
}
