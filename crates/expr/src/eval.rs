//! Evaluates a tree against a scope. Values of the scope are borrowed, never copied before they are
//! part of something new; what is copied is charged.

mod of_step;

use std::borrow::Cow;

use aetheris_core::json::deeper_than;
use aetheris_core::limits;
use serde_json::{Map, Value, json};

use crate::address::Address;
use crate::ast::{Args, Binary, Expr, OfNode, Root, Stmt};
use crate::error::ExprError;
use crate::meter::Meter;
use crate::{Ended, Scope, filters, ops, predicates};

/// What looking past a local name costs, in bytes.
const PER_LOCAL: usize = 8;

pub(crate) type Operand<'a> = Cow<'a, Value>;

/// One evaluation.
#[derive(Debug)]
pub(crate) struct Eval<'a, 'm> {
    /// Of a tool's address: where it has come to.
    pub(crate) address: Option<Address>,
    locals: Vec<(&'a str, Operand<'a>)>,
    pub(crate) meter: &'m mut Meter,
    pub(crate) scope: Scope<'a>,
}

/// Arguments after evaluation.
#[derive(Debug, Default)]
pub(crate) struct Given<'a> {
    pub(crate) named: Vec<(&'a str, Operand<'a>)>,
    pub(crate) positional: Vec<Operand<'a>>,
}

impl<'a, 'm> Eval<'a, 'm> {
    pub(crate) fn new(scope: Scope<'a>, meter: &'m mut Meter) -> Self {
        Self { address: None, locals: Vec::new(), meter, scope }
    }

    pub(crate) fn expr(&mut self, expr: &'a Expr) -> Result<Operand<'a>, ExprError> {
        self.meter.steps(1)?;
        match expr {
            Expr::Const(value) => Ok(Cow::Borrowed(value)),
            Expr::Draw(draw) => self.draw(*draw),
            Expr::Root(root) => self.root(root),
            Expr::Local(name) => self.local(name),
            Expr::Attr(of, name) => {
                let value = self.expr(of)?;
                self.looked_up(&value, name)?;
                field(value, name).ok_or_else(|| ExprError::Undefined { name: expr.describe() })
            }
            Expr::Item(of, key) => {
                let value = self.expr(of)?;
                let key = self.expr(key)?;
                if let Value::String(name) = key.as_ref() {
                    self.looked_up(&value, name)?;
                }
                item(value, &key).ok_or_else(|| ExprError::Undefined { name: expr.describe() })
            }
            Expr::Slice { from, of, to } => self.slice(of, from.as_deref(), to.as_deref()),
            Expr::Not(of) => {
                let value = self.expr(of)?;
                Ok(Cow::Owned(Value::Bool(!ops::truth(&value))))
            }
            Expr::Neg(of) => {
                let value = self.expr(of)?;
                ops::negate(&value).map(Cow::Owned)
            }
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expr::If { no, test, yes } => {
                let holds = ops::truth(self.expr(test)?.as_ref());
                match (holds, no) {
                    (true, _) => self.expr(yes),
                    (false, Some(no)) => self.expr(no),
                    (false, None) => Ok(Cow::Owned(Value::String(String::new()))),
                }
            }
            Expr::List(items) => {
                let items = items.iter().map(|item| self.element(item)).collect::<Result<Vec<_>, _>>()?;
                Ok(Cow::Owned(Value::Array(items)))
            }
            Expr::Map(entries) => self.map(entries),
            Expr::Range(bounds) => self.range(bounds),
            Expr::Filter { args, input, name } => self.filter(name, input, args),
            Expr::Test { args, input, name } => self.test(name, input, args),
        }
    }

    /// Charges for looking for a field: its name is compared with some others.
    fn looked_up(&mut self, of: &Value, name: &str) -> Result<(), ExprError> {
        let compared = of.as_object().and_then(|fields| fields.len().checked_ilog2()).map_or(1, |rounds| rounds + 1);
        self.meter.bytes(name.len().saturating_mul(usize::try_from(compared).unwrap_or(usize::MAX)))
    }

    /// The value for itself, to be put into a list or an object. The depth of a tree is bounded when it is
    /// parsed; that of data is bounded here, before there is anything deeper that would have to be walked,
    /// copied or dropped.
    fn element(&mut self, expr: &'a Expr) -> Result<Value, ExprError> {
        let value = self.expr(expr)?;
        self.meter.copy(&value)?;
        let deep = deeper_than(&value, limits::JSON_DEPTH_MAX - 1) && !aetheris_fault::planted!("depth-not-charged");
        if deep {
            return Err(ExprError::TooLarge);
        }
        Ok(value.into_owned())
    }

    fn root(&mut self, root: &'a Root) -> Result<Operand<'a>, ExprError> {
        let absent = |name: &str| ExprError::NotAllowedHere { name: name.to_owned() };
        let text = |text: String| Ok(Cow::Owned(Value::String(text)));
        let (seen, scope) = (self.scope, self.scope.names);
        match root {
            Root::Message => {
                scope.message.as_ref().map(|json| Cow::Borrowed(json.value())).ok_or_else(|| absent("message"))
            }
            Root::Input => scope.input.as_ref().map(|json| Cow::Borrowed(json.value())).ok_or_else(|| absent("input")),
            Root::Node(id, of) => {
                let ended = seen.ended(id);
                let is = |holds: bool| Ok(Cow::Owned(Value::Bool(holds)));
                match (of, ended) {
                    (_, None) if scope.early => Err(ExprError::Early { name: root.describe() }),
                    (OfNode::Open, ended) => is(ended.is_none()),
                    (OfNode::Failed, ended) => is(matches!(ended, Some(Ended::Failed(_)))),
                    (OfNode::Skipped, ended) => is(matches!(ended, Some(Ended::Skipped))),
                    (OfNode::Output, Some(Ended::Completed(output))) => Ok(Cow::Borrowed(output.value())),
                    (OfNode::Output, Some(Ended::Skipped)) => Ok(Cow::Owned(Value::Null)),
                    (OfNode::Error, Some(Ended::Failed(error))) => {
                        self.meter.bytes(error.code.len().saturating_add(error.message.len()))?;
                        Ok(Cow::Owned(json!({ "code": error.code, "message": error.message })))
                    }
                    (OfNode::Output, Some(Ended::Failed(_)) | None)
                    | (OfNode::Error, Some(Ended::Completed(_) | Ended::Skipped) | None) => {
                        Err(ExprError::Undefined { name: root.describe() })
                    }
                }
            }
            Root::Env(name) => {
                let env = scope.env.as_ref().ok_or_else(|| absent("env"))?;
                let value = env.get(name).ok_or_else(|| ExprError::Undefined { name: root.describe() })?;
                self.meter.bytes(value.len())?;
                text(value.clone())
            }
            Root::JobId | Root::JobAgent | Root::JobSession => {
                let job = scope.job.as_ref().ok_or_else(|| absent("job"))?;
                match root {
                    Root::JobId => text(job.id.to_string()),
                    Root::JobAgent => text(job.agent.to_string()),
                    _ => {
                        Ok(Cow::Owned(job.session.as_ref().map_or(Value::Null, |name| Value::String(name.to_string()))))
                    }
                }
            }
        }
    }

    fn local(&mut self, name: &str) -> Result<Operand<'a>, ExprError> {
        let found = self.locals.iter().rev().position(|(local, _)| *local == name);
        self.meter.bytes(found.unwrap_or(self.locals.len()).saturating_mul(PER_LOCAL))?;
        let value = found.and_then(|behind| self.locals.iter().rev().nth(behind)).map(|(_, value)| value);
        let value = match value {
            Some(value) => value,
            None => return self.of_step(name),
        };
        if let Cow::Owned(value) = value {
            self.meter.copy(value)?;
        }
        Ok(value.clone())
    }

    fn slice(&mut self, of: &'a Expr, from: Option<&'a Expr>, to: Option<&'a Expr>) -> Result<Operand<'a>, ExprError> {
        let value = self.expr(of)?;
        let from = from.map(|bound| self.integer(bound)).transpose()?;
        let to = to.map(|bound| self.integer(bound)).transpose()?;
        match value.as_ref() {
            Value::Array(items) => ops::part(items, from, to).iter().try_for_each(|item| self.meter.copy(item))?,
            Value::String(text) => self.meter.chars(text)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
        ops::slice(&value, from, to).map(Cow::Owned)
    }

    fn integer(&mut self, expr: &'a Expr) -> Result<i64, ExprError> {
        let value = self.expr(expr)?;
        value.as_i64().ok_or_else(|| {
            ExprError::failed(format!("{} is not a whole number, which is needed here", ops::kind(&value)))
        })
    }

    fn binary(&mut self, operator: Binary, left: &'a Expr, right: &'a Expr) -> Result<Operand<'a>, ExprError> {
        let left = self.expr(left)?;
        match operator {
            Binary::And if !ops::truth(&left) => return Ok(left),
            Binary::Or if ops::truth(&left) => return Ok(left),
            Binary::And | Binary::Or => return self.expr(right),
            _ => {}
        }
        let right = self.expr(right)?;
        self.operands(operator, &left, &right)?;
        ops::binary(operator, &left, &right).map(Cow::Owned)
    }

    /// Whatever the operator, its work is bounded by looking once through both sides, or by copying them.
    fn operands(&mut self, operator: Binary, left: &Value, right: &Value) -> Result<(), ExprError> {
        match operator {
            Binary::Add | Binary::Concat => {
                self.meter.copy(left)?;
                self.meter.copy(right)
            }
            Binary::And
            | Binary::Div
            | Binary::Eq
            | Binary::FloorDiv
            | Binary::Ge
            | Binary::Gt
            | Binary::In
            | Binary::Le
            | Binary::Lt
            | Binary::Mul
            | Binary::Ne
            | Binary::NotIn
            | Binary::Or
            | Binary::Pow
            | Binary::Rem
            | Binary::Sub => {
                self.meter.look(left)?;
                self.meter.look(right)
            }
        }
    }

    fn map(&mut self, entries: &'a [(Expr, Expr)]) -> Result<Operand<'a>, ExprError> {
        let mut map = Map::new();
        for (key, value) in entries {
            let key = match self.element(key)? {
                Value::String(key) => key,
                other => {
                    return Err(ExprError::failed(format!(
                        "the key of an object must be a string, not {}",
                        ops::kind(&other)
                    )));
                }
            };
            map.insert(key, self.element(value)?);
        }
        Ok(Cow::Owned(Value::Object(map)))
    }

    fn range(&mut self, bounds: &'a [Expr]) -> Result<Operand<'a>, ExprError> {
        let bounds = bounds.iter().map(|bound| self.integer(bound)).collect::<Result<Vec<_>, _>>()?;
        let (start, end, step) = match bounds.as_slice() {
            [end] => (0, *end, 1),
            [start, end] => (*start, *end, 1),
            [start, end, step, ..] => (*start, *end, *step),
            [] => (0, 0, 1),
        };
        if step == 0 {
            return Err(ExprError::failed("the step of `range` must not be 0"));
        }
        let mut items = Vec::new();
        let mut next = Some(start);
        while let Some(number) = next.filter(|number| if step > 0 { *number < end } else { *number > end }) {
            self.meter.steps(1)?;
            items.push(Value::from(number));
            next = number.checked_add(step);
        }
        Ok(Cow::Owned(Value::Array(items)))
    }

    pub(crate) fn given(&mut self, args: &'a Args) -> Result<Given<'a>, ExprError> {
        let positional = args.positional.iter().map(|arg| self.expr(arg)).collect::<Result<Vec<_>, _>>()?;
        let named =
            args.named.iter().map(|(name, arg)| Ok((name.as_str(), self.expr(arg)?))).collect::<Result<Vec<_>, _>>()?;
        Ok(Given { named, positional })
    }

    fn filter(&mut self, name: &str, input: &'a Expr, args: &'a Args) -> Result<Operand<'a>, ExprError> {
        if matches!(name, "default" | "d") {
            let value = match self.expr(input) {
                Ok(value) => value,
                Err(ExprError::Undefined { .. }) => return self.fallback(args),
                Err(error) => return Err(error),
            };
            return if value.is_null() { self.fallback(args) } else { Ok(value) };
        }
        let input = self.expr(input)?;
        let given = self.given(args)?;
        if let Some(short) = filters::at_once(name, &input, &given) {
            return short;
        }
        self.meter.look(&input)?;
        self.looked_through(&given)?;
        filters::apply(self.meter, name, input, &given)
    }

    /// What a filter or test is given is looked through as its input is.
    fn looked_through(&mut self, given: &Given<'_>) -> Result<(), ExprError> {
        given
            .positional
            .iter()
            .chain(given.named.iter().map(|(_, value)| value))
            .try_for_each(|arg| self.meter.look(arg))
    }

    fn fallback(&mut self, args: &'a Args) -> Result<Operand<'a>, ExprError> {
        match (args.positional.as_slice(), args.named.is_empty()) {
            ([value], true) => self.expr(value),
            _ => Err(ExprError::failed("`default` takes exactly one value")),
        }
    }

    fn test(&mut self, name: &str, input: &'a Expr, args: &'a Args) -> Result<Operand<'a>, ExprError> {
        let answer = |holds| Ok(Cow::Owned(Value::Bool(holds)));
        if matches!(name, "defined" | "undefined") {
            return match self.expr(input) {
                Ok(_) => answer(name == "defined"),
                Err(ExprError::Undefined { .. }) => answer(name == "undefined"),
                Err(error) => Err(error),
            };
        }
        let input = self.expr(input)?;
        let given = self.given(args)?;
        self.meter.look(&input)?;
        self.looked_through(&given)?;
        let with: Vec<&Value> = given.positional.iter().map(AsRef::as_ref).collect();
        predicates::holds(name, &input, &with).and_then(answer)
    }

    /// Runs statements, appending to `out`.
    pub(crate) fn statements(&mut self, statements: &'a [Stmt], out: &mut String) -> Result<(), ExprError> {
        let outer = self.locals.len();
        for statement in statements {
            self.meter.steps(1)?;
            match statement {
                Stmt::Text(text) => {
                    if let Some(address) = &mut self.address {
                        self.meter.chars(text)?;
                        address.literal(text)?;
                    }
                    self.emit(text, out)?;
                }
                Stmt::Emit(expr) => {
                    let value = self.expr(expr)?;
                    if !value.is_string() {
                        self.meter.copy(&value)?;
                    }
                    self.bring(expr, &ops::text(&value), out)?;
                }
                Stmt::Set(name, expr) => {
                    let value = self.expr(expr)?;
                    self.locals.push((name, value));
                }
                Stmt::If { branches, otherwise } => self.branches(branches, otherwise, out)?,
                Stmt::For { body, filter, of, otherwise, targets } => {
                    let items = self.items(of, filter.as_ref(), targets)?;
                    if items.is_empty() {
                        self.statements(otherwise, out)?;
                    }
                    self.repeat(items, targets, body, out)?;
                }
            }
        }
        self.locals.truncate(outer);
        Ok(())
    }

    fn branches(
        &mut self,
        branches: &'a [(Expr, Vec<Stmt>)],
        otherwise: &'a [Stmt],
        out: &mut String,
    ) -> Result<(), ExprError> {
        for (test, body) in branches {
            if ops::truth(self.expr(test)?.as_ref()) {
                return self.statements(body, out);
            }
        }
        self.statements(otherwise, out)
    }

    fn bring(&mut self, expr: &'a Expr, text: &str, out: &mut String) -> Result<(), ExprError> {
        match &mut self.address {
            Some(address) => {
                self.meter.chars(text)?;
                let text = address.value(expr, text)?;
                self.emit(&text, out)
            }
            None => self.emit(text, out),
        }
    }

    fn emit(&mut self, text: &str, out: &mut String) -> Result<(), ExprError> {
        self.meter.bytes(text.len())?;
        self.meter.output(text.len())?;
        out.push_str(text);
        Ok(())
    }

    fn items(
        &mut self,
        of: &'a Expr,
        filter: Option<&'a Expr>,
        targets: &'a [String],
    ) -> Result<Vec<Operand<'a>>, ExprError> {
        let list = self.expr(of)?;
        self.meter.steps(ops::count(&list))?;
        let all = ops::elements(list)?;
        let Some(filter) = filter else { return Ok(all) };
        let mut kept = Vec::new();
        for item in all {
            let outer = self.locals.len();
            if let Cow::Owned(item) = &item {
                self.meter.copy(item)?;
            }
            self.bind(targets, item.clone())?;
            let holds = ops::truth(self.expr(filter)?.as_ref());
            self.locals.truncate(outer);
            if holds {
                kept.push(item);
            }
        }
        Ok(kept)
    }

    fn repeat(
        &mut self,
        items: Vec<Operand<'a>>,
        targets: &'a [String],
        body: &'a [Stmt],
        out: &mut String,
    ) -> Result<(), ExprError> {
        let length = items.len();
        for (index, item) in items.into_iter().enumerate() {
            self.meter.steps(2)?;
            let outer = self.locals.len();
            self.bind(targets, item)?;
            let position = serde_json::json!({
                "first": index == 0,
                "index": index + 1,
                "index0": index,
                "last": index + 1 == length,
                "length": length,
            });
            self.locals.push(("loop", Cow::Owned(position)));
            self.statements(body, out)?;
            self.locals.truncate(outer);
        }
        Ok(())
    }

    fn bind(&mut self, targets: &'a [String], item: Operand<'a>) -> Result<(), ExprError> {
        self.meter.look(&item)?;
        if let [target] = targets {
            self.locals.push((target, item));
            return Ok(());
        }
        let parts = ops::elements(item)?;
        if parts.len() != targets.len() {
            return Err(ExprError::failed(format!("the loop has {} names for {} values", targets.len(), parts.len())));
        }
        self.locals.extend(targets.iter().map(String::as_str).zip(parts));
        Ok(())
    }
}

/// A field of an object.
pub(crate) fn field<'a>(value: Operand<'a>, name: &str) -> Option<Operand<'a>> {
    match value {
        Cow::Borrowed(Value::Object(fields)) => fields.get(name).map(Cow::Borrowed),
        Cow::Owned(Value::Object(mut fields)) => fields.remove(name).map(Cow::Owned),
        _ => None,
    }
}

/// A field of an object or an element of a list; elements count from the end where negative.
pub(crate) fn item<'a>(value: Operand<'a>, key: &Value) -> Option<Operand<'a>> {
    if let Value::String(name) = key {
        return field(value, name);
    }
    let length = value.as_array()?.len();
    let at = ops::position(key.as_i64()?, length)?;
    match value {
        Cow::Borrowed(Value::Array(items)) => items.get(at).map(Cow::Borrowed),
        Cow::Owned(Value::Array(mut items)) => (at < items.len()).then(|| Cow::Owned(items.swap_remove(at))),
        _ => None,
    }
}
