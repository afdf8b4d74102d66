//! A tool's address: what its author wrote decides which endpoint is called, and what templates bring
//! stays inside the place that the author gave it.
//!
//! Up to the first `/` behind the host that the author wrote out, values stand as they are, and one of them that is
//! neither `env.NAME` nor marked with the filter `raw` is refused: in a file wherever a way through the template leads
//! to it, and once more when it is rendered. From there on every value
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

/// How far the beginning of an address has come, as readers of URLs see it: they drop line breaks and tabs, and take `\`
/// for `/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// In the scheme, or in an address without one.
    Scheme,
    /// Behind the `:` of the scheme.
    Colon,
    /// Behind one of its two slashes.
    Slash,
    /// Behind `://`, where nothing is written yet.
    Empty,
    /// In the host.
    Some,
    /// Behind it.
    Behind,
}

impl Host {
    const ALL: [Self; 6] = [Self::Scheme, Self::Colon, Self::Slash, Self::Empty, Self::Some, Self::Behind];

    /// Where it is behind one more character.
    fn after(self, c: char) -> Result<Self, ExprError> {
        let slash = matches!(c, '/' | '\\');
        Ok(match (self, c) {
            (_, '\t' | '\n' | '\r') => self,
            (Self::Behind, _) => Self::Behind,
            (Self::Empty, '/' | '\\' | '?' | '#') => return Err(ExprError::NoHost),
            (_, '?' | '#') => Self::Behind,
            (Self::Scheme, ':') => Self::Colon,
            (Self::Scheme, _) => {
                if slash {
                    Self::Behind
                } else {
                    Self::Scheme
                }
            }
            (Self::Colon, _) => {
                if slash {
                    Self::Slash
                } else {
                    Self::Some
                }
            }
            (Self::Slash, _) => {
                if slash {
                    Self::Empty
                } else {
                    Self::Some
                }
            }
            (Self::Empty | Self::Some, _) => {
                if slash {
                    Self::Behind
                } else {
                    Self::Some
                }
            }
        })
    }

    /// Where it is behind a value that is raw. When a file is checked nobody knows what it brings: most likely a whole
    /// beginning, or a host.
    fn after_raw(self) -> Self {
        match self {
            Self::Scheme => Self::Scheme,
            Self::Colon | Self::Slash | Self::Empty | Self::Some => Self::Some,
            Self::Behind => Self::Behind,
        }
    }
}

/// Where in an address the next character stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Part {
    /// Up to the end of the host.
    Host(Host),
    /// In a path segment.
    Segment { templated: bool, text: String },
    /// Behind `?` or `#`.
    #[default]
    Query,
}

/// An address that is being rendered.
#[derive(Debug)]
pub(crate) struct Address {
    origin: String,
    part: Part,
}

impl Address {
    pub(crate) fn new() -> Self {
        Self { origin: String::new(), part: Part::Host(Host::Scheme) }
    }

    /// What an expression brings, as it is to stand in the address.
    pub(crate) fn value<'t>(&mut self, expr: &Expr, text: &'t str) -> Result<Cow<'t, str>, ExprError> {
        match (Way::of(expr), &mut self.part) {
            (Way::Raw, _) => {
                self.literal(text)?;
                Ok(Cow::Borrowed(text))
            }
            (Way::Plain | Way::Encoded, Part::Host(_)) => Err(ExprError::Host { name: expr.describe() }),
            (way @ (Way::Plain | Way::Encoded), part) => {
                if aetheris_fault::planted!("address-not-encoded") {
                    return Ok(Cow::Borrowed(text));
                }
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
                (Part::Host(host), c) => match host.after(c)? {
                    Host::Behind => after(c),
                    host @ (Host::Scheme | Host::Colon | Host::Slash | Host::Empty | Host::Some) => {
                        self.origin.push(c);
                        Part::Host(host)
                    }
                },
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

    /// Answers its beginning, up to the end of the host.
    pub(crate) fn end(self) -> Result<String, ExprError> {
        check(&self.part)?;
        Ok(self.origin)
    }
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

/// Refuses a template in which a way leads to a value that is the host, or part of it, without saying so.
pub(crate) fn check_host(statements: &[Stmt]) -> Result<(), ExprError> {
    let [from_the_start, ..] = Ways::of(statements).0;
    from_the_start.wrong.map_or(Ok(()), Err)
}

/// What becomes of one place of an address on all ways through some statements.
#[derive(Debug, Clone, Default)]
struct Leads {
    /// The places behind them, one bit each.
    to: u8,
    /// What is wrong on one of the ways.
    wrong: Option<ExprError>,
}

impl Leads {
    fn join(&mut self, other: &Self) {
        self.to |= other.to;
        if self.wrong.is_none() {
            self.wrong.clone_from(&other.wrong);
        }
    }
}

/// The same for each place of [`Host::ALL`]. Each statement is looked at once, however deep loops and branches are.
#[derive(Debug)]
struct Ways([Leads; 6]);

fn bit(host: Host) -> u8 {
    1 << (host as u8)
}

impl Ways {
    fn each(mut leads: impl FnMut(Host) -> Leads) -> Self {
        Self(Host::ALL.map(&mut leads))
    }

    fn one(step: impl Fn(Host) -> Result<Host, ExprError>) -> Self {
        Self::each(|host| match step(host) {
            Ok(host) => Leads { to: bit(host), wrong: None },
            Err(error) => Leads { to: 0, wrong: Some(error) },
        })
    }

    fn of(statements: &[Stmt]) -> Self {
        let stay = Self::one(Ok);
        statements.iter().fold(stay, |before, statement| before.then(&Self::statement(statement)))
    }

    fn statement(statement: &Stmt) -> Self {
        match statement {
            Stmt::Text(text) => Self::one(|host| text.chars().try_fold(host, Host::after)),
            Stmt::Set(..) => Self::one(Ok),
            Stmt::Emit(expr) if Way::of(expr) == Way::Raw => Self::one(|host| Ok(host.after_raw())),
            Stmt::Emit(expr) => Self::one(|host| match host {
                Host::Behind => Ok(host),
                Host::Scheme | Host::Colon | Host::Slash | Host::Empty | Host::Some => {
                    Err(ExprError::Host { name: expr.describe() })
                }
            }),
            Stmt::If { branches, otherwise } => {
                branches.iter().fold(Self::of(otherwise), |ways, (_, body)| ways.or(&Self::of(body)))
            }
            Stmt::For { body, otherwise, .. } => Self::of(body).again_and_again().or(&Self::of(otherwise)),
        }
    }

    /// All places that are among some, each with what becomes of it.
    fn through(&self, places: u8) -> Leads {
        let mut leads = Leads::default();
        let among = Host::ALL.into_iter().zip(&self.0).filter(|(host, _)| places & bit(*host) != 0);
        among.for_each(|(_, other)| leads.join(other));
        leads
    }

    fn then(&self, next: &Self) -> Self {
        let mut places = self.0.iter();
        Self::each(|_| {
            let first = places.next().cloned().unwrap_or_default();
            let second = next.through(first.to);
            Leads { to: second.to, wrong: first.wrong.or(second.wrong) }
        })
    }

    fn or(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.join(theirs));
        self
    }

    /// Once or more often.
    fn again_and_again(&self) -> Self {
        let mut places = self.0.iter();
        Self::each(|_| {
            let mut leads = places.next().cloned().unwrap_or_default();
            // Each round brings a place that was not there, or is the last.
            for _ in Host::ALL {
                leads.join(&self.through(leads.to));
            }
            leads
        })
    }
}
