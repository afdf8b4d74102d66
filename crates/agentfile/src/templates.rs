//! Checks the templates of a file where they stand, and remembers what they refer to.

use aetheris_core::plan::MapNode;
use aetheris_expr::{ExprError, Place, References, Rounds, Standing};

use crate::error::{Code, Errors};
use crate::path::Path;
use crate::read::{Item, suggestion};
use crate::tree::{Data, Tree};

/// A template's references, kept until all nodes are known.
#[derive(Debug)]
pub(crate) struct Use<'t> {
    pub(crate) line: u32,
    /// Its node's position; none for the answer.
    pub(crate) node: Option<usize>,
    pub(crate) path: Path<'t>,
    pub(crate) references: References,
}

/// Collects the references of all templates of the plan.
#[derive(Debug, Default)]
pub(crate) struct Uses<'t> {
    /// What the item is called that templates are about, while those of its work are read.
    pub(crate) item: Option<String>,
    /// Whether those that are read may ask for values that nobody can compute again.
    pub(crate) draws: bool,
    pub(crate) list: Vec<Use<'t>>,
    /// What those that are read may name of rounds.
    pub(crate) rounds: Rounds,
}

impl<'t> Uses<'t> {
    /// The same as [`Uses::value`], where values may be asked for that nobody can compute again.
    pub(crate) fn drawing(&mut self, item: &Item<'t>, node: Option<usize>, errors: &mut Errors) {
        self.draws = true;
        self.value(item, node, errors);
        self.draws = false;
    }

    /// Checks every text inside a value of the plan.
    pub(crate) fn value(&mut self, item: &Item<'t>, node: Option<usize>, errors: &mut Errors) {
        each(item.tree, &item.path, &mut |path, line, text| {
            let checked = aetheris_expr::check_template(text, self.standing(self.rounds));
            self.keep(checked, path, line, node, errors);
        });
    }

    /// Checks a condition.
    pub(crate) fn condition(&mut self, item: &Item<'t>, text: &str, node: usize, errors: &mut Errors) {
        let checked = aetheris_expr::check_condition(text, self.standing(Rounds::None));
        self.keep(checked, &item.path, item.line(), Some(node), errors);
    }

    fn standing(&self, rounds: Rounds) -> Standing<'_> {
        Standing { draws: self.draws, item: self.item.as_deref(), place: Place::Plan, rounds }
    }

    fn keep(
        &mut self,
        checked: Result<References, ExprError>,
        path: &Path<'t>,
        line: u32,
        node: Option<usize>,
        errors: &mut Errors,
    ) {
        match checked {
            Ok(references) if references.nodes.is_empty() => {}
            Ok(references) => self.list.push(Use { line, node, path: path.clone(), references }),
            Err(error) => {
                let index = self.item.as_deref().map(aetheris_expr::index_name);
                let item = self.item.as_deref().into_iter().chain(index.as_deref());
                let names: Vec<&str> = ["message", "nodes", "job"].into_iter().chain(item).collect();
                let message = match (&error, self.item.as_deref()) {
                    (ExprError::Undefined { name }, Some(own)) if is_default_item(name) => {
                        format!("`{name}` is not defined: this map calls its item `{own}`")
                    }
                    (error, _) => told(error, &names),
                };
                errors.add(path, line, code(&error), message);
            }
        }
    }
}

/// Whether a name is that of an item whose map gives it none, or of its place.
fn is_default_item(name: &str) -> bool {
    name == MapNode::NAME || name == aetheris_expr::index_name(MapNode::NAME)
}

/// What is wrong. A name that is almost one of these is taken for a slip: a fallback would hide it.
fn told(error: &ExprError, names: &[&str]) -> String {
    let near = match error {
        ExprError::Undefined { name } => suggestion(name.split(['.', '[']).next().unwrap_or(name), names),
        ExprError::Budget
        | ExprError::Failed { .. }
        | ExprError::Host { .. }
        | ExprError::NoHost
        | ExprError::NotAllowedHere { .. }
        | ExprError::Early { .. }
        | ExprError::NoRounds { .. }
        | ExprError::Segment { .. }
        | ExprError::Syntax { .. }
        | ExprError::TooLarge
        | ExprError::Unrecorded { .. } => None,
    };
    match (error, near) {
        (ExprError::Undefined { name }, Some(near)) => format!("`{name}` is not defined, did you mean `{near}`?"),
        (error, _) => error.to_string(),
    }
}

/// What kind of mistake it is in a file.
pub(crate) fn code(error: &ExprError) -> Code {
    match error {
        ExprError::Budget
        | ExprError::Failed { .. }
        | ExprError::Host { .. }
        | ExprError::NoHost
        | ExprError::NotAllowedHere { .. }
        | ExprError::NoRounds { .. }
        | ExprError::Segment { .. }
        | ExprError::Syntax { .. }
        | ExprError::TooLarge
        | ExprError::Early { .. }
        | ExprError::Undefined { .. }
        | ExprError::Unrecorded { .. } => Code::BadTemplate,
    }
}

/// Checks every text inside a value of a tool.
pub(crate) fn in_tool(item: &Item<'_>, place: Place, errors: &mut Errors) {
    each(item.tree, &item.path, &mut |path, line, text| {
        if let Err(error) = aetheris_expr::check_template(text, place) {
            errors.add(path, line, code(&error), told(&error, &["input", "env", "job"]));
        }
    });
}

/// Calls `visit` with path, line and text of every text inside a value.
pub(crate) fn each<'t>(tree: &'t Tree, path: &Path<'t>, visit: &mut dyn FnMut(&Path<'t>, u32, &str)) {
    match &tree.data {
        Data::Text(text) => visit(path, tree.line, text),
        Data::List(items) => {
            for (index, item) in items.iter().enumerate() {
                each(item, &path.place(index), visit);
            }
        }
        Data::Map(entries) => {
            for entry in entries {
                each(&entry.value, &path.key(&entry.key), visit);
            }
        }
        Data::Empty | Data::Null | Data::Bool(_) | Data::Number(_) => {}
    }
}
