//! From tokens to a tree. Recursion and the depth of the tree are bounded here, so that everything
//! behind may recurse over it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::Value;

use crate::ast::{Args, Binary, Expr};
use crate::error::ExprError;
use crate::lex::{Spot, Token};
use crate::{Place, References, filters, predicates};

mod names;

pub(crate) use names::is_free_name;

/// Deepest tree of one template.
pub(crate) const DEPTH_MAX: u32 = 100;
/// Deepest recursion of the parser: one level of an expression passes through ten functions.
const NESTING_MAX: u32 = 40;

/// What is known about names while a template is read.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Whether values may be asked for that nobody can compute again.
    pub(crate) draws: bool,
    pub(crate) locals: Locals,
    /// Where the template stands; anywhere, when it is rendered: then its scope decides.
    pub(crate) place: Option<Place>,
    pub(crate) references: References,
}

/// The names that `set` and `for` have given and that are known where the template is read.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    given: BTreeMap<String, u32>,
    order: Vec<String>,
}

impl Locals {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn push(&mut self, name: String) {
        *self.given.entry(name.clone()).or_default() += 1;
        self.order.push(name);
    }

    /// Forgets the latest ones.
    pub(crate) fn truncate(&mut self, length: usize) {
        for name in self.order.drain(length.min(self.order.len())..) {
            if let Entry::Occupied(mut given) = self.given.entry(name) {
                *given.get_mut() -= 1;
                if *given.get() == 0 {
                    given.remove();
                }
            }
        }
    }
}

/// An expression and the depth of its tree.
#[derive(Debug)]
pub(crate) struct Parsed {
    depth: u32,
    pub(crate) expr: Expr,
}

/// Reads one run of tokens.
#[derive(Debug)]
pub(crate) struct Parser<'t> {
    at: usize,
    line: u32,
    names: &'t mut Names,
    nesting: u32,
    tokens: &'t [Spot],
}

type Result<T = Parsed> = std::result::Result<T, ExprError>;

impl<'t> Parser<'t> {
    pub(crate) fn new(tokens: &'t [Spot], line: u32, names: &'t mut Names) -> Self {
        Self { at: 0, line, names, nesting: 0, tokens }
    }

    /// One expression with nothing behind it.
    pub(crate) fn whole(mut self) -> Result<Expr> {
        let parsed = self.expression()?;
        self.end()?;
        Ok(parsed.expr)
    }

    pub(crate) fn end(&self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(token) => {
                let hint = if shown(token) == "`=`" { ": to compare, write `==`" } else { "" };
                Err(self.wrong(format!("{} is not expected here{hint}", shown(token))))
            }
        }
    }

    pub(crate) fn expression(&mut self) -> Result {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(self.too_deep());
        }
        let value = self.or()?;
        let parsed = if self.skip_name("if") { self.inline_if(value)? } else { value };
        self.nesting -= 1;
        Ok(parsed)
    }

    fn inline_if(&mut self, yes: Parsed) -> Result {
        let test = self.or()?;
        let no = if self.skip_name("else") { Some(self.expression()?) } else { None };
        let depth = yes.depth.max(test.depth).max(no.as_ref().map_or(0, |no| no.depth));
        let no = no.map(|no| Box::new(no.expr));
        self.node(depth, Expr::If { no, test: Box::new(test.expr), yes: Box::new(yes.expr) })
    }

    pub(crate) fn or(&mut self) -> Result {
        let mut left = self.and()?;
        while self.skip_name("or") {
            let right = self.and()?;
            left = self.binary(Binary::Or, left, right)?;
        }
        Ok(left)
    }

    fn and(&mut self) -> Result {
        let mut left = self.not()?;
        while self.skip_name("and") {
            let right = self.not()?;
            left = self.binary(Binary::And, left, right)?;
        }
        Ok(left)
    }

    fn not(&mut self) -> Result {
        let mut count = 0u32;
        while self.skip_name("not") {
            count += 1;
        }
        let mut parsed = self.comparison()?;
        for _ in 0..count {
            parsed = self.node(parsed.depth, Expr::Not(Box::new(parsed.expr)))?;
        }
        Ok(parsed)
    }

    fn comparison(&mut self) -> Result {
        let left = self.sum()?;
        let Some(operator) = self.comparison_operator() else { return Ok(left) };
        let right = self.sum()?;
        if self.comparison_operator().is_some() {
            return Err(self.wrong("comparisons cannot be chained: join two of them with `and`"));
        }
        self.binary(operator, left, right)
    }

    fn comparison_operator(&mut self) -> Option<Binary> {
        let symbols = [
            ("==", Binary::Eq),
            ("!=", Binary::Ne),
            ("<=", Binary::Le),
            (">=", Binary::Ge),
            ("<", Binary::Lt),
            (">", Binary::Gt),
        ];
        if let Some((_, operator)) = symbols.into_iter().find(|(symbol, _)| self.skip(symbol)) {
            return Some(operator);
        }
        if self.skip_name("in") {
            return Some(Binary::In);
        }
        let not_in = matches!(self.peek_at(1), Some(Token::Name(name)) if name == "in");
        if not_in && self.skip_name("not") {
            self.at += 1;
            return Some(Binary::NotIn);
        }
        None
    }

    fn sum(&mut self) -> Result {
        let mut left = self.concat()?;
        while let Some(operator) = self.one_of(&[("+", Binary::Add), ("-", Binary::Sub)]) {
            let right = self.concat()?;
            left = self.binary(operator, left, right)?;
        }
        Ok(left)
    }

    fn concat(&mut self) -> Result {
        let mut left = self.product()?;
        while self.skip("~") {
            let right = self.product()?;
            left = self.binary(Binary::Concat, left, right)?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Result {
        let operators = [("*", Binary::Mul), ("//", Binary::FloorDiv), ("/", Binary::Div), ("%", Binary::Rem)];
        let mut left = self.power()?;
        while let Some(operator) = self.one_of(&operators) {
            let right = self.power()?;
            left = self.binary(operator, left, right)?;
        }
        Ok(left)
    }

    fn power(&mut self) -> Result {
        let mut left = self.unary()?;
        while self.skip("**") {
            let right = self.unary()?;
            left = self.binary(Binary::Pow, left, right)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result {
        let operand = self.operand()?;
        self.filters_and_tests(operand)
    }

    /// A value with its signs and lookups, but without filters: `-a.b|abs` is `(-(a.b))|abs`.
    fn operand(&mut self) -> Result {
        let mut count = 0u32;
        while self.skip("-") {
            count += 1;
        }
        let mut parsed = self.primary()?;
        parsed = self.lookups(parsed)?;
        for _ in 0..count {
            parsed = self.node(parsed.depth, Expr::Neg(Box::new(parsed.expr)))?;
        }
        Ok(parsed)
    }

    fn primary(&mut self) -> Result {
        let Some(token) = self.peek() else { return Err(self.wrong("a value is missing at the end")) };
        let token = token.clone();
        self.at += 1;
        match token {
            Token::Number(number) => self.node(0, Expr::Const(Value::Number(number))),
            Token::Text(text) => self.node(0, Expr::Const(Value::String(text))),
            Token::Name(name) => self.name(&name),
            Token::Symbol("(") => self.group(),
            Token::Symbol("[") => {
                let (depth, items) = self.items("]")?;
                self.node(depth, Expr::List(items))
            }
            Token::Symbol("{") => self.map(),
            Token::Symbol(_) => {
                self.at -= 1;
                Err(self.wrong(format!("{} is not expected here: a value is", shown(&token))))
            }
        }
    }

    fn group(&mut self) -> Result {
        let first = self.expression()?;
        if self.skip(")") {
            return Ok(first);
        }
        self.expect(",")?;
        let (depth, mut items) = self.items(")")?;
        items.insert(0, first.expr);
        self.node(depth.max(first.depth), Expr::List(items))
    }

    fn items(&mut self, end: &str) -> Result<(u32, Vec<Expr>)> {
        let (mut items, mut depth) = (Vec::new(), 0);
        while !self.skip(end) {
            let item = self.expression()?;
            depth = depth.max(item.depth);
            items.push(item.expr);
            if !self.skip(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok((depth, items))
    }

    fn map(&mut self) -> Result {
        let (mut entries, mut depth) = (Vec::new(), 0);
        while !self.skip("}") {
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            depth = depth.max(key.depth).max(value.depth);
            entries.push((key.expr, value.expr));
            if !self.skip(",") {
                self.expect("}")?;
                break;
            }
        }
        self.node(depth, Expr::Map(entries))
    }

    fn lookups(&mut self, mut parsed: Parsed) -> Result {
        loop {
            if self.skip(".") {
                let Some(Token::Name(name)) = self.peek() else {
                    return Err(self.wrong("a field's name must follow `.`; other keys are written in brackets"));
                };
                let name = self.of_error(&parsed.expr, name.clone())?;
                self.at += 1;
                parsed = self.node(parsed.depth, Expr::Attr(Box::new(parsed.expr), name))?;
            } else if self.skip("[") {
                parsed = self.subscript(parsed)?;
            } else if self.peek() == Some(&Token::Symbol("(")) {
                return Err(self.wrong(format!(
                    "`{}` cannot be called: use a filter, as `value | length`",
                    parsed.expr.describe()
                )));
            } else {
                return Ok(parsed);
            }
        }
    }

    fn subscript(&mut self, of: Parsed) -> Result {
        let from = if self.skip(":") { None } else { Some(self.expression()?) };
        if let Some(key) = from {
            if self.skip("]") {
                return self.node(of.depth.max(key.depth), Expr::Item(Box::new(of.expr), Box::new(key.expr)));
            }
            self.expect(":")?;
            return self.slice(of, Some(key));
        }
        self.slice(of, None)
    }

    fn slice(&mut self, of: Parsed, from: Option<Parsed>) -> Result {
        let to = if self.skip("]") {
            None
        } else {
            let to = self.expression()?;
            if self.peek() == Some(&Token::Symbol(":")) {
                return Err(self.wrong("a slice has no step: write `[from:to]`"));
            }
            self.expect("]")?;
            Some(to)
        };
        let depth = [&from, &to].into_iter().flatten().map(|bound| bound.depth).max().unwrap_or(0).max(of.depth);
        let from = from.map(|bound| Box::new(bound.expr));
        let to = to.map(|bound| Box::new(bound.expr));
        self.node(depth, Expr::Slice { from, of: Box::new(of.expr), to })
    }

    fn filters_and_tests(&mut self, mut parsed: Parsed) -> Result {
        loop {
            if self.skip("|") {
                let name = self.known("filter", &filters::names())?;
                if name == "raw" && self.names.place.is_some_and(|place| place != Place::ToolAddress) {
                    return Err(ExprError::NotAllowedHere { name });
                }
                let (depth, args) = if self.skip("(") { self.args()? } else { (0, Args::default()) };
                let depth = depth.max(parsed.depth);
                parsed = self.node(depth, Expr::Filter { args, input: Box::new(parsed.expr), name })?;
            } else if self.skip_name("is") {
                let negated = self.skip_name("not");
                let name = self.known("test", &predicates::names())?;
                let (depth, args) = self.test_args()?;
                let depth = depth.max(parsed.depth);
                parsed = self.node(depth, Expr::Test { args, input: Box::new(parsed.expr), name })?;
                if negated {
                    parsed = self.node(parsed.depth, Expr::Not(Box::new(parsed.expr)))?;
                }
            } else {
                return Ok(parsed);
            }
        }
    }

    fn known(&mut self, kind: &str, names: &[&str]) -> Result<String> {
        match self.peek() {
            Some(Token::Name(name)) if names.contains(&name.as_str()) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            Some(Token::Name(name)) => {
                Err(self.wrong(format!("`{name}` is not a {kind}; known ones are {}", names.join(", "))))
            }
            _ => Err(self.wrong(format!("the name of a {kind} is missing"))),
        }
    }

    fn args(&mut self) -> Result<(u32, Args)> {
        let (mut args, mut depth) = (Args::default(), 0);
        while !self.skip(")") {
            let keyword = match (self.peek(), self.peek_at(1)) {
                (Some(Token::Name(name)), Some(Token::Symbol("="))) => Some(name.clone()),
                _ => None,
            };
            if keyword.is_some() {
                self.at += 2;
            }
            let value = self.expression()?;
            depth = depth.max(value.depth);
            match keyword {
                Some(name) => args.named.push((name, value.expr)),
                None if args.named.is_empty() => args.positional.push(value.expr),
                None => return Err(self.wrong("arguments with a name come last")),
            }
            if !self.skip(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok((depth, args))
    }

    /// A test takes its arguments in parentheses, or one without: `is divisibleby 3`.
    fn test_args(&mut self) -> Result<(u32, Args)> {
        if self.skip("(") {
            return self.args();
        }
        let follows = match self.peek() {
            Some(Token::Name(name)) => !matches!(name.as_str(), "and" | "or" | "else" | "is" | "if" | "not" | "in"),
            Some(Token::Number(_) | Token::Text(_)) => true,
            Some(Token::Symbol(symbol)) => matches!(*symbol, "[" | "{"),
            None => false,
        };
        if !follows {
            return Ok((0, Args::default()));
        }
        let operand = self.operand()?;
        Ok((operand.depth, Args { named: Vec::new(), positional: vec![operand.expr] }))
    }

    fn binary(&self, operator: Binary, left: Parsed, right: Parsed) -> Result {
        let depth = left.depth.max(right.depth);
        self.node(depth, Expr::Binary(operator, Box::new(left.expr), Box::new(right.expr)))
    }

    fn node(&self, depth: u32, expr: Expr) -> Result {
        if depth >= DEPTH_MAX { Err(self.too_deep()) } else { Ok(Parsed { depth: depth + 1, expr }) }
    }

    fn too_deep(&self) -> ExprError {
        self.wrong("the expression is nested too deep: split it with `{% set %}` or over several nodes")
    }

    fn one_of(&mut self, operators: &[(&str, Binary)]) -> Option<Binary> {
        operators.iter().find(|(symbol, _)| self.skip(symbol)).map(|(_, operator)| *operator)
    }

    pub(crate) fn peek(&self) -> Option<&'t Token> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Option<&'t Token> {
        self.tokens.get(self.at + ahead).map(|spot| &spot.token)
    }

    pub(crate) fn skip(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn skip_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(found)) if found == name);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.skip(symbol) {
            return Ok(());
        }
        let found = self.peek().map_or_else(|| "the end".to_owned(), shown);
        Err(self.wrong(format!("`{symbol}` is expected, not {found}")))
    }

    pub(crate) fn wrong(&self, message: impl Into<String>) -> ExprError {
        let line = self.tokens.get(self.at).or(self.tokens.last()).map_or(self.line, |spot| spot.line);
        ExprError::syntax(message, line)
    }
}

fn shown(token: &Token) -> String {
    match token {
        Token::Name(name) => format!("`{name}`"),
        Token::Number(number) => format!("`{number}`"),
        Token::Symbol(symbol) => format!("`{symbol}`"),
        Token::Text(text) => format!("{text:?}"),
    }
}
