//! What the parser makes of a template.

use std::collections::BTreeSet;

use aetheris_core::event::Draw;
use aetheris_core::id::NodeId;
use serde_json::Value;

use crate::error::shortened;

/// A value that the scope provides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Root {
    Env(String),
    Input,
    JobAgent,
    JobId,
    JobSession,
    Message,
    Node(String, OfNode),
}

/// What is named of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfNode {
    Error,
    Failed,
    Open,
    Output,
    Skipped,
}

impl OfNode {
    pub(crate) const ALL: [Self; 5] = [Self::Output, Self::Failed, Self::Skipped, Self::Open, Self::Error];

    /// The word in templates.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Failed => "failed",
            Self::Open => "open",
            Self::Output => "output",
            Self::Skipped => "skipped",
        }
    }
}

/// An operator between two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    And,
    Concat,
    Div,
    Eq,
    FloorDiv,
    Ge,
    Gt,
    In,
    Le,
    Lt,
    Mul,
    Ne,
    NotIn,
    Or,
    Pow,
    Rem,
    Sub,
}

/// The arguments of a filter or test.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(String, Expr)>,
}

/// An expression. Its depth is bounded by the parser, so walking it may recurse.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Attr(Box<Expr>, String),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Const(Value),
    Draw(Draw),
    Filter { args: Args, input: Box<Expr>, name: String },
    If { no: Option<Box<Expr>>, test: Box<Expr>, yes: Box<Expr> },
    Item(Box<Expr>, Box<Expr>),
    List(Vec<Expr>),
    Local(String),
    Map(Vec<(Expr, Expr)>),
    Neg(Box<Expr>),
    Not(Box<Expr>),
    Range(Vec<Expr>),
    Root(Root),
    Slice { from: Option<Box<Expr>>, of: Box<Expr>, to: Option<Box<Expr>> },
    Test { args: Args, input: Box<Expr>, name: String },
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stmt {
    Emit(Expr),
    For { body: Vec<Stmt>, filter: Option<Expr>, of: Expr, otherwise: Vec<Stmt>, targets: Vec<String> },
    If { branches: Vec<(Expr, Vec<Stmt>)>, otherwise: Vec<Stmt> },
    Set(String, Expr),
    Text(String),
}

impl Expr {
    /// The nodes that have to have failed for it to hold, as far as its form says so.
    pub(crate) fn needs_failures(&self, found: &mut BTreeSet<NodeId>) {
        match self {
            Self::Root(Root::Node(id, OfNode::Failed)) => {
                found.insert(NodeId::from(id.as_str()));
            }
            Self::Binary(Binary::And, left, right) => {
                left.needs_failures(found);
                right.needs_failures(found);
            }
            _ => {}
        }
    }

    /// The expression as its author would name it, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Attr(of, name) => format!("{}.{}", of.describe(), shortened(name)),
            Self::Item(of, key) => match key.as_ref() {
                Self::Const(Value::String(key)) => format!("{}[{:?}]", of.describe(), shortened(key)),
                Self::Const(value) => format!("{}[{value}]", of.describe()),
                _ => format!("{}[…]", of.describe()),
            },
            Self::Local(name) => shortened(name),
            Self::Root(root) => root.describe(),
            _ => "(…)".to_owned(),
        }
    }
}

impl Root {
    /// The name as its author would write it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Env(name) => format!("env.{}", shortened(name)),
            Self::Input => "input".to_owned(),
            Self::JobAgent => "job.agent".to_owned(),
            Self::JobId => "job.id".to_owned(),
            Self::JobSession => "job.session".to_owned(),
            Self::Message => "message".to_owned(),
            Self::Node(id, of) if id.contains('-') => format!("nodes[\"{}\"].{}", shortened(id), of.word()),
            Self::Node(id, of) => format!("nodes.{}.{}", shortened(id), of.word()),
        }
    }
}
