//! What names mean, and which are allowed where.

use aetheris_core::event::Draw;
use aetheris_core::id::NodeId;
use serde_json::Value;

use super::{Names, Parser, Result};
use crate::ast::{Expr, OfNode, Root};
use crate::error::{ExprError, shortened};
use crate::lex::Token;
use crate::{Place, Rounds};

const RESERVED: [&str; 7] = ["message", "nodes", "job", "input", "env", "loop", "range"];
const KEYWORDS: [&str; 12] =
    ["and", "or", "not", "if", "else", "is", "in", "true", "false", "none", "recursive", "elif"];

/// What a function of this name draws.
fn drawn_by(name: &str) -> Option<Draw> {
    Draw::ALL.into_iter().find(|draw| draw.function() == name)
}

/// Other spellings of constants.
const WORDS: [&str; 4] = ["True", "False", "None", "null"];

/// What templates see of rounds: what was said of the one before, the output that is judged, and the number.
const ROUND_NAMES: [&str; 3] = ["feedback", "output", "round"];

/// Whether a name has no meaning of its own anywhere in a template.
pub(crate) fn is_free_name(name: &str) -> bool {
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|first| first == '_' || first.is_ascii_alphabetic());
    let word = first && letters.all(|letter| letter == '_' || letter.is_ascii_alphanumeric());
    let taken = [&RESERVED[..], &KEYWORDS, &["feedback", "round"], &WORDS].concat();
    word && drawn_by(name).is_none() && !taken.contains(&name)
}

impl Names {
    /// The item that a template is about, and its place, have names like locals.
    pub(crate) fn know_item(&mut self, item: Option<&str>) {
        if let Some(item) = item {
            self.locals.push(item.to_owned());
            self.locals.push(crate::index_name(item));
        }
    }
}

impl Names {
    /// So have what is seen of rounds.
    pub(crate) fn know_rounds(&mut self, rounds: Rounds) {
        let names: &[&str] = match rounds {
            Rounds::None => &[],
            Rounds::OfCritic => &["output", "round"],
            Rounds::Own => &["feedback", "round"],
        };
        names.iter().for_each(|name| self.locals.push((*name).to_owned()));
    }
}

impl Parser<'_> {
    /// What a word means where a value is expected.
    pub(super) fn name(&mut self, name: &str) -> Result {
        let expr = match name {
            "true" | "True" => Expr::Const(Value::Bool(true)),
            "false" | "False" => Expr::Const(Value::Bool(false)),
            "none" | "None" | "null" => Expr::Const(Value::Null),
            "range" => {
                self.expect("(")?;
                let (depth, items) = self.items(")")?;
                if items.is_empty() || items.len() > 3 {
                    return Err(self.wrong("`range` takes one to three numbers: start, end, step"));
                }
                return self.node(depth, Expr::Range(items));
            }
            _ if self.names.locals.has(name) => Expr::Local(name.to_owned()),
            "message" | "nodes" | "job" | "input" | "env" => self.root(name)?,
            _ if let Some(draw) = drawn_by(name).filter(|_| self.peek() == Some(&Token::Symbol("("))) => {
                return self.draw(draw);
            }
            _ if ROUND_NAMES.contains(&name) => return Err(ExprError::NoRounds { name: name.to_owned() }),
            _ if KEYWORDS.contains(&name) => {
                return Err(self.wrong(format!("`{name}` is not expected here: a value is")));
            }
            _ if self.peek() == Some(&Token::Symbol("(")) => {
                return Err(
                    self.wrong(format!("`{name}` is not a function: there are `range`, `now`, `random` and `uuid`"))
                );
            }
            _ => return Err(ExprError::Undefined { name: name.to_owned() }),
        };
        self.node(0, expr)
    }

    /// `now()`, `random()` or `uuid()`.
    fn draw(&mut self, draw: Draw) -> Result {
        self.expect("(")?;
        if !self.skip(")") {
            return Err(self.wrong(format!("`{}()` takes nothing", draw.function())));
        }
        if self.names.place.is_some() && !self.names.draws {
            return Err(ExprError::NotAllowedHere { name: format!("{}()", draw.function()) });
        }
        self.node(0, Expr::Draw(draw))
    }

    fn root(&mut self, name: &str) -> Result<Expr> {
        let allowed = self.names.place.is_none_or(|place| match name {
            "message" | "nodes" => place == Place::Plan,
            "input" => place != Place::Plan,
            "env" => matches!(place, Place::ToolAddress | Place::ToolHeader),
            _ => true,
        });
        if !allowed {
            return Err(ExprError::NotAllowedHere { name: name.to_owned() });
        }
        let root = match name {
            "message" => Root::Message,
            "input" => Root::Input,
            "nodes" => self.of_node()?,
            "env" => {
                let variable = self.member("`env` must be followed by the name of a variable: `env.NAME`")?;
                self.names.references.env.insert(variable.clone());
                Root::Env(variable)
            }
            _ => match self.member("`job` must be followed by `.id`, `.agent` or `.session`")?.as_str() {
                "id" => Root::JobId,
                "agent" => Root::JobAgent,
                "session" => Root::JobSession,
                other => return Err(ExprError::Undefined { name: format!("job.{other}") }),
            },
        };
        Ok(Expr::Root(root))
    }

    fn of_node(&mut self) -> Result<Root> {
        let id = self.member("`nodes` must be followed by an id and `.output`: `nodes.<id>.output`")?;
        if self.peek() == Some(&Token::Symbol("-")) {
            let dashed = self.dashed(&id);
            return Err(self.wrong(format!("an id with `-` is written in brackets: `nodes[\"{dashed}\"].output`")));
        }
        let words = "`.output`, `.failed`, `.skipped`, `.open` or `.error`";
        let hint = format!("`nodes.{}` must be followed by {words}", shortened(&id));
        let member = self.member(&hint)?;
        let Some(of) = OfNode::ALL.into_iter().find(|of| of.word() == member) else {
            return Err(self.wrong(hint));
        };
        self.names.references.nodes.insert(NodeId::from(id.as_str()));
        Ok(Root::Node(id, of))
    }

    /// Checks a field. The error of a node has two; a mistyped one would otherwise fail only once the node does.
    pub(super) fn of_error(&self, of: &Expr, field: String) -> std::result::Result<String, ExprError> {
        if matches!(of, Expr::Root(Root::Node(_, OfNode::Error))) && !["code", "message"].contains(&field.as_str()) {
            let (of, field) = (of.describe(), shortened(&field));
            return Err(self.wrong(format!("`{of}` has `.code` and `.message`, and no `.{field}`")));
        }
        Ok(field)
    }

    /// The id that the author of `nodes.a-b.output` has meant.
    fn dashed(&self, first: &str) -> String {
        let mut id = first.to_owned();
        for spot in &self.tokens[self.at..] {
            match &spot.token {
                Token::Symbol("-") => id.push('-'),
                Token::Name(part) if id.ends_with('-') => id.push_str(part),
                Token::Number(part) if id.ends_with('-') => id.push_str(&part.to_string()),
                Token::Name(_) | Token::Number(_) | Token::Symbol(_) | Token::Text(_) => break,
            }
        }
        id
    }

    /// `.name` or `["name"]`, which must be there.
    fn member(&mut self, hint: &str) -> Result<String> {
        if self.skip(".") {
            if let Some(Token::Name(name)) = self.peek() {
                let name = name.clone();
                self.at += 1;
                return Ok(name);
            }
        } else if self.skip("[")
            && let Some(Token::Text(name)) = self.peek()
        {
            let name = name.clone();
            self.at += 1;
            self.expect("]")?;
            return Ok(name);
        }
        Err(self.wrong(hint))
    }

    /// The name a `for` or `set` gives.
    pub(crate) fn new_name(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Name(name)) if RESERVED.contains(&name.as_str()) || KEYWORDS.contains(&name.as_str()) => {
                Err(self.wrong(format!("`{name}` has a meaning of its own: choose another name")))
            }
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.wrong("a name is missing")),
        }
    }

    pub(crate) fn declare(&mut self, name: &str) {
        self.names.locals.push(name.to_owned());
    }
}
