//! What a template names of the step that it is about: the item of a map, its round, or the output that a critic judges.

use std::borrow::Cow;

use serde_json::Value;

use super::{Eval, Operand};
use crate::error::{ExprError, shortened};

impl<'a> Eval<'a, '_> {
    /// What a name that no statement has given says of the step that the template is about.
    pub(super) fn of_step(&mut self, name: &str) -> Result<Operand<'a>, ExprError> {
        let round = match (self.scope.judged, self.scope.round, name) {
            (Some(judged), _, "output") => Some(Cow::Borrowed(judged.output.value())),
            (Some(judged), _, "round") => Some(Cow::Owned(Value::from(judged.round))),
            (None, Some(round), "round") => Some(Cow::Owned(Value::from(round.number))),
            (None, Some(round), "feedback") => {
                self.meter.bytes(round.feedback.len())?;
                Some(Cow::Owned(Value::from(round.feedback)))
            }
            _ => None,
        };
        let found = round.or_else(|| self.of_item(name));
        found.ok_or_else(|| ExprError::Undefined { name: shortened(name) })
    }

    /// What it says of the item of a map.
    fn of_item(&self, name: &str) -> Option<Operand<'a>> {
        let item = self.scope.item?;
        if name == item.name {
            return Some(Cow::Borrowed(item.value.value()));
        }
        (name == crate::index_name(item.name)).then(|| Cow::Owned(Value::from(item.index)))
    }
}
