//! Inputs of plain steps, which are not stored: their templates name recorded values only, so rendering
//! them again gives what the step was given, within the same bounds.

use aetheris_core::json::Json;
use aetheris_core::plan::{LlmNode, Node, NodeKind};
use aetheris_expr::{Context, ExprError};
use serde_json::{Map, Value};

use crate::load::Loaded;
use crate::names;

/// The names of a job, from which the inputs of its steps are made.
#[derive(Debug)]
pub struct Inputs(Context);

impl Inputs {
    /// The names of a job as it is recorded.
    #[must_use]
    pub fn of_job(loaded: &Loaded) -> Self {
        Self(names::of(&loaded.state, &loaded.effects))
    }

    /// The input of a step that calls a tool or asks a model; nothing for other kinds.
    ///
    /// # Errors
    /// In words, why it cannot be rendered, which is why the step failed.
    #[must_use]
    pub fn render(&self, node: &Node) -> Option<Result<Json, String>> {
        let input = match &node.kind {
            NodeKind::Tool { input, .. } => aetheris_expr::render(input, &self.0),
            NodeKind::Llm(llm) => self.question(llm),
            NodeKind::Condition | NodeKind::Sleep(_) | NodeKind::Transform(_) | NodeKind::Wait(_) => return None,
        };
        Some(input.map_err(|error| error.to_string()))
    }

    fn question(&self, llm: &LlmNode) -> Result<Json, ExprError> {
        let mut input = Map::new();
        if let Some(system) = &llm.system {
            input.insert("system".to_owned(), Value::from(aetheris_expr::render_text(system, &self.0)?));
        }
        input.insert("prompt".to_owned(), Value::from(aetheris_expr::render_text(&llm.prompt, &self.0)?));
        Ok(Json::new(Value::Object(input)))
    }
}
