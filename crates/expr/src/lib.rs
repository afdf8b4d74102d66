//! Templates and conditions of agent files: a pure, total, bounded language.
//!
//! The language is the part of Jinja that plans need: `{{ value }}`, `{% if %}`, `{% for %}`,
//! `{% set %}`, `{% raw %}`, comments, operators, the filters and tests of [`check_template`]'s messages,
//! and `range`. Values are JSON and stay exact; a name that does not exist is an error, not an empty
//! text; values other than texts are written as canonical JSON inside texts.
//!
//! Its parser and evaluator are its own, for reasons that were measured on general template engines:
//! their parsers recurse without a bound over `not not …`, long filter chains and `elif` chains, so that
//! an agent file could overflow the stack of a server; and their fuel counts steps, so that thirty
//! doublings of a text take a gigabyte. Here the depth of trees is bounded when they are made, and every
//! byte that is copied is charged before.
//!
//! Reading order: this file, `ast`, `lex`, `parse` and `statements`, then `eval`, `ops`, `filters`, and
//! `address` for what is different in a tool's url.

mod address;
mod ast;
mod draws;
mod error;
mod eval;
mod filters;
mod lex;
mod meter;
mod ops;
mod parse;
mod predicates;
mod statements;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::event::Failure;
use aetheris_core::id::{AgentName, JobId, NodeId, SessionId};
use aetheris_core::json::{Json, JsonError};
use aetheris_core::limits;
use serde_json::Value;

pub use crate::draws::Draws;
pub use crate::error::ExprError;

use crate::address::Address;
use crate::ast::Stmt;
use crate::eval::Eval;
use crate::meter::{Meter, weight};
use crate::parse::Names;

/// The values that templates may name.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// It is looked at before it counts: what it says of a node that is open may be said otherwise later, and no fallback
    /// stands for that.
    pub early: bool,
    /// `env.NAME`; only for a tool's url and headers.
    pub env: Option<BTreeMap<String, String>>,
    /// `input`; only in tools.
    pub input: Option<Json>,
    /// `job.id`, `job.agent`, `job.session`.
    pub job: Option<JobNames>,
    /// `message`.
    pub message: Option<Json>,
    /// How nodes have ended; those that are not here are open.
    pub nodes: BTreeMap<NodeId, Ended>,
}

/// How a node has ended, as templates see it.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// Well, with this output.
    Completed(Json),
    /// It has failed.
    Failed(Failure),
    /// It was not run; its output is null.
    Skipped,
}

impl Ended {
    /// The output, where it is more than null.
    #[must_use]
    pub const fn output(&self) -> Option<&Json> {
        match self {
            Self::Completed(output) => Some(output),
            Self::Failed(_) | Self::Skipped => None,
        }
    }
}

/// The item of a map whose work a template is a part of.
#[derive(Debug, Clone, Copy)]
pub struct Item<'s> {
    /// Its place in the list.
    pub index: u32,
    /// What it is called; its place is called so with `_index` behind it.
    pub name: &'s str,
    /// The item itself.
    pub value: &'s Json,
}

/// The round of a step whose output is judged, as its own templates see it.
#[derive(Debug, Clone, Copy)]
pub struct Round<'s> {
    /// What was said of the round before; empty in the first.
    pub feedback: &'s str,
    /// 0, 1, …
    pub number: u32,
}

/// An output that a critic is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'s> {
    /// The output.
    pub output: &'s Json,
    /// Its round: 0, 1, …
    pub round: u32,
}

/// What one template sees of the names of its job.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'s> {
    /// The values that nobody can compute again; none where they may not be asked for.
    pub draws: Option<&'s Draws<'s>>,
    /// The item that it is about.
    pub item: Option<Item<'s>>,
    /// The output that it is about, of a critic.
    pub judged: Option<Judged<'s>>,
    /// The names.
    pub names: &'s Context,
    /// Nodes that are open for it, whatever has become of them since.
    pub open: &'s BTreeSet<NodeId>,
    /// The round that it is rendered for, where its node has rounds.
    pub round: Option<Round<'s>>,
}

impl<'s> From<&'s Context> for Scope<'s> {
    /// All of them.
    fn from(names: &'s Context) -> Self {
        static NONE: BTreeSet<NodeId> = BTreeSet::new();
        Self { draws: None, item: None, judged: None, names, open: &NONE, round: None }
    }
}

impl<'s> Scope<'s> {
    /// Its first template begins.
    fn begun(self) -> Self {
        if let Some(draws) = self.draws {
            draws.rewind();
        }
        self
    }

    /// What is known of names before a template is read.
    fn known(self) -> Names {
        let mut known = Names::default();
        known.know_item(self.item.map(|item| item.name));
        known.know_rounds(self.rounds());
        known
    }

    fn rounds(self) -> Rounds {
        match (self.judged, self.round) {
            (Some(_), _) => Rounds::OfCritic,
            (None, Some(_)) => Rounds::Own,
            (None, None) => Rounds::None,
        }
    }

    /// How a node has ended; nothing of one that is open.
    pub(crate) fn ended(self, node: &str) -> Option<&'s Ended> {
        self.names.nodes.get(node).filter(|_| !self.open.contains(node))
    }
}

/// What templates may know about their job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobNames {
    /// The agent.
    pub agent: AgentName,
    /// The job.
    pub id: JobId,
    /// The session, null in templates where there is none.
    pub session: Option<SessionId>,
}

/// Where a template stands, which decides what it may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the plan: `message`, `nodes`, `job`.
    Plan,
    /// In a tool's url: `input`, `job`, `env`, and the filter `raw`.
    ToolAddress,
    /// In a tool's body: `input`, `job`.
    ToolBody,
    /// In a tool's headers: `input`, `job`, `env`.
    ToolHeader,
}

/// What a template may name of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounds {
    /// Nothing: the output of its node is not judged.
    #[default]
    None,
    /// It belongs to a critic: `output` and `round` of what that judges.
    OfCritic,
    /// `feedback` and `round` of its own step.
    Own,
}

/// Where a template stands, and what it may name there beside what it may name everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'p> {
    /// Whether it may ask for values that nobody can compute again.
    pub draws: bool,
    /// What the item is called.
    pub item: Option<&'p str>,
    /// Where it stands.
    pub place: Place,
    /// What it may name of rounds.
    pub rounds: Rounds,
}

impl From<Place> for Standing<'_> {
    /// Where no item is.
    fn from(place: Place) -> Self {
        Self { draws: false, item: None, place, rounds: Rounds::None }
    }
}

impl Standing<'_> {
    fn known(self) -> Names {
        let mut known = Names { draws: self.draws, place: Some(self.place), ..Names::default() };
        known.know_item(self.item);
        known.know_rounds(self.rounds);
        known
    }
}

/// What kind of value it is, in words.
#[must_use]
pub const fn kind(value: &Value) -> &'static str {
    ops::kind(value)
}

/// Whether a name can be that of an item: it has no meaning of its own, and can be written in a template.
#[must_use]
pub fn is_free_name(name: &str) -> bool {
    parse::is_free_name(name)
}

/// What a template refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Environment variables.
    pub env: BTreeSet<String>,
    /// Nodes without whose failure a condition never holds.
    pub failures: BTreeSet<NodeId>,
    /// Nodes.
    pub nodes: BTreeSet<NodeId>,
}

impl References {
    /// Adds what another template refers to.
    pub fn extend(&mut self, other: Self) {
        self.env.extend(other.env);
        self.failures.extend(other.failures);
        self.nodes.extend(other.nodes);
    }
}

/// Renders every text inside a value; keys are taken literally. A text that is nothing but one
/// `{{ … }}` becomes that value with its type.
///
/// # Errors
/// [`ExprError`] of the first template that fails.
pub fn render<'s>(template: &Json, scope: impl Into<Scope<'s>>) -> Result<Json, ExprError> {
    Texts::new(scope).value(template)
}

/// Renders one template to text.
///
/// # Errors
/// [`ExprError`] says what is wrong with it.
pub fn render_text<'s>(template: &str, scope: impl Into<Scope<'s>>) -> Result<String, ExprError> {
    Texts::new(scope).render(template)
}

/// Renders texts one by one within the bound of work of one value: for whoever must look at many of them, or has other
/// work to do.
#[derive(Debug)]
pub struct Texts<'s> {
    meter: Meter,
    scope: Scope<'s>,
}

impl<'s> Texts<'s> {
    /// None rendered yet.
    #[must_use]
    pub fn new(scope: impl Into<Scope<'s>>) -> Self {
        Self { meter: Meter::new(), scope: scope.into().begun() }
    }

    /// The same within [`limits::MOMENT_FUEL`]: what ends with [`ExprError::Budget`] here may be done by [`Texts::new`],
    /// where nobody waits for it.
    #[must_use]
    pub fn for_a_moment(scope: impl Into<Scope<'s>>) -> Self {
        Self { meter: Meter::moment(), scope: scope.into().begun() }
    }

    /// Whether something was too much work.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.meter.is_spent()
    }

    /// Renders the next one as [`render_text`] does.
    ///
    /// # Errors
    /// [`ExprError`] says what is wrong with it; [`ExprError::Budget`] also where those before it have used
    /// up the work.
    pub fn render(&mut self, template: &str) -> Result<String, ExprError> {
        if is_literal(template) {
            return Ok(template.to_owned());
        }
        self.meter.next_text(template)?;
        let statements = parsed(template, &mut self.scope.known())?;
        let mut text = String::new();
        Eval::new(self.scope, &mut self.meter).statements(&statements, &mut text)?;
        Ok(text)
    }

    /// Renders a value as [`render`] does.
    ///
    /// # Errors
    /// As [`Texts::render`].
    pub fn value(&mut self, template: &Json) -> Result<Json, ExprError> {
        if !has_template(template) {
            return Ok(template.clone());
        }
        let value = render_value(template, self.scope, &mut self.meter)?;
        Json::checked(value).map_err(|error| match error {
            JsonError::Depth | JsonError::Size(_) => ExprError::TooLarge,
            JsonError::Number(_) | JsonError::Syntax(_) | JsonError::Twice(_) => ExprError::failed(error.to_string()),
        })
    }

    /// Renders a tool's address. What its author wrote decides which endpoint it is: from the first `/` behind
    /// the host on, values are percent-encoded, but for `env.NAME` and those whose last filter is `raw` or
    /// `urlencode`.
    ///
    /// # Errors
    /// As [`Texts::render`]; [`ExprError::Segment`] where a path segment that a template is part of is empty, `.` or
    /// `..`; [`ExprError::Host`] and [`ExprError::NoHost`] where a value would be its host.
    pub fn address(&mut self, template: &str) -> Result<Rendered, ExprError> {
        if is_literal(template) {
            return Ok(Rendered { origin: None, text: template.to_owned() });
        }
        self.meter.next_text(template)?;
        let statements = parsed(template, &mut self.scope.known())?;
        let mut text = String::new();
        let mut eval = Eval::new(self.scope, &mut self.meter);
        eval.address = Some(Address::new());
        eval.statements(&statements, &mut text)?;
        let origin = eval.address.map(Address::end).transpose()?;
        Ok(Rendered { origin, text })
    }

    /// Whether a condition holds, as [`condition`] says.
    ///
    /// # Errors
    /// As [`Texts::render`].
    pub fn holds(&mut self, expr: &str) -> Result<bool, ExprError> {
        check_length(expr)?;
        self.meter.next_text(expr)?;
        let expr = statements::condition(expr, &mut self.scope.known())?;
        let value = Eval::new(self.scope, &mut self.meter).expr(&expr)?;
        Ok(ops::truth(&value))
    }
}

/// A tool's address after rendering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Its beginning up to the host's end, of what its author wrote or let in by `env.NAME` or `raw`; `None` where no
    /// template is in the address. Whoever reads `text` as a URL must find the same host in it.
    pub origin: Option<String>,
    /// The whole of it.
    pub text: String,
}

/// Whether a condition holds: an expression without braces, false for null, zero and what is empty.
///
/// # Errors
/// [`ExprError`] says what is wrong with it.
pub fn condition<'s>(expr: &str, scope: impl Into<Scope<'s>>) -> Result<bool, ExprError> {
    Texts::new(scope).holds(expr)
}

/// What the place of an item is called.
#[must_use]
pub fn index_name(item: &str) -> String {
    format!("{item}_index")
}

/// Checks one template's syntax, filters, tests and names, and answers what it refers to.
///
/// # Errors
/// [`ExprError`] says what is wrong with it.
pub fn check_template<'p>(text: &str, place: impl Into<Standing<'p>>) -> Result<References, ExprError> {
    if is_literal(text) {
        return Ok(References::default());
    }
    let mut names = place.into().known();
    parsed(text, &mut names)?;
    Ok(names.references)
}

/// Checks a tool's address as [`check_template`] does, and that no value is part of its host which is neither
/// `env.NAME` nor marked with the filter `raw`.
///
/// # Errors
/// [`ExprError`] says what is wrong with it.
pub fn check_address(text: &str) -> Result<References, ExprError> {
    if is_literal(text) {
        return Ok(References::default());
    }
    let mut names = Names { place: Some(Place::ToolAddress), ..Names::default() };
    address::check_host(&parsed(text, &mut names)?)?;
    Ok(names.references)
}

/// Checks one condition as [`check_template`] does templates.
///
/// # Errors
/// [`ExprError`] says what is wrong with it.
pub fn check_condition<'p>(text: &str, place: impl Into<Standing<'p>>) -> Result<References, ExprError> {
    check_length(text)?;
    let mut names = place.into().known();
    let condition = statements::condition(text, &mut names)?;
    condition.needs_failures(&mut names.references.failures);
    Ok(names.references)
}

/// Whether a text is taken as it is.
#[must_use]
pub fn is_literal(text: &str) -> bool {
    !text.as_bytes().windows(2).any(|pair| matches!(pair, b"{{" | b"{%" | b"{#"))
}

fn has_template(value: &Value) -> bool {
    match value {
        Value::String(text) => !is_literal(text),
        Value::Array(items) => items.iter().any(has_template),
        Value::Object(fields) => fields.values().any(has_template),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn check_length(text: &str) -> Result<(), ExprError> {
    if text.len() > limits::TEMPLATE_BYTES_MAX { Err(ExprError::TooLarge) } else { Ok(()) }
}

fn parsed(template: &str, names: &mut Names) -> Result<Vec<Stmt>, ExprError> {
    check_length(template)?;
    statements::template(template, names)
}

fn render_value(template: &Value, scope: Scope<'_>, meter: &mut Meter) -> Result<Value, ExprError> {
    match template {
        Value::String(text) if !is_literal(text) => render_string(text, scope, meter),
        Value::Array(items) => {
            let items = items.iter().map(|item| render_value(item, scope, meter)).collect::<Result<Vec<_>, _>>()?;
            Ok(Value::Array(items))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| Ok((key.clone(), render_value(field, scope, meter)?)));
            Ok(Value::Object(fields.collect::<Result<_, ExprError>>()?))
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Ok(template.clone()),
    }
}

fn render_string(text: &str, scope: Scope<'_>, meter: &mut Meter) -> Result<Value, ExprError> {
    meter.next_template(text)?;
    let statements = parsed(text, &mut scope.known())?;
    if let [Stmt::Emit(expr)] = statements.as_slice() {
        let value = Eval::new(scope, meter).expr(expr)?;
        meter.output(weight(&value))?;
        return match value {
            Cow::Borrowed(value) => {
                meter.copy(value)?;
                Ok(value.clone())
            }
            Cow::Owned(value) => Ok(value),
        };
    }
    let mut out = String::new();
    Eval::new(scope, meter).statements(&statements, &mut out)?;
    Ok(Value::String(out))
}
