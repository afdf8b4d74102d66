//! What judges an output: the schema and the critic of a node, and how often it is refined.

use aetheris_core::id::NodeId;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{AnswerFormat, LlmNode};

use super::Reader;
use crate::error::Code;
use crate::read::Fields;
use crate::settings;

/// Keys that a critic never has: it is asked whenever a node that names it has an output.
const NOT_OF_CRITICS: [&str; 8] =
    ["needs", "when", "join", "on_failure", "validate", "critic", "max_refines", "refine_repeats_effect"];

/// What work says of its refining.
pub(super) struct Refining {
    pub(super) max_refines: Option<u32>,
    pub(super) refine_repeats_effect: bool,
    pub(super) validate: Option<Json>,
}

impl<'t> Reader<'_, 't> {
    pub(super) fn critic(&mut self, fields: &mut Fields<'t>) -> Option<LlmNode> {
        self.question(fields, AnswerFormat::Json)
    }

    pub(super) fn refuse_of_critic(&mut self, fields: &mut Fields<'t>) {
        for key in NOT_OF_CRITICS {
            if let Some(item) = fields.take(key) {
                let message = format!(
                    "`{key}` cannot be used on a critic, which is asked whenever a node that names it has an output: remove it; its \
                     templates see what the nodes need that it judges"
                );
                item.wrong(self.errors, Code::BadValue, message);
            }
        }
    }

    /// The critic that a node names.
    pub(super) fn critic_of(&mut self, fields: &mut Fields<'t>) {
        if let Some(item) = fields.take("critic")
            && let Some(name) = item.text(self.errors)
        {
            self.draft.critic = Some((NodeId::from(name), item));
        }
    }

    pub(super) fn refining(&mut self, fields: &mut Fields<'t>, has_critic: bool) -> Refining {
        let is_judged = has_critic || fields.has("validate");
        let validate = fields.take("validate").and_then(|item| settings::schema(&item, self.errors));
        for key in ["max_refines", "refine_repeats_effect"] {
            if !is_judged && fields.has(key) {
                let more = if self.uses.item.is_some() { "`validate`" } else { "`validate` or `critic`" };
                let message = format!("`{key}` never applies: nothing rejects the output; add {more}");
                self.errors.add(fields.path.key(key), fields.line, Code::BadValue, message);
            }
        }
        let most = fields.take("max_refines");
        let max_refines = most.and_then(|item| item.small(0, limits::REFINES_MAX, self.errors));
        let repeats = fields.take("refine_repeats_effect").and_then(|item| item.boolean(self.errors));
        let (refine_repeats_effect, validate) = (repeats.unwrap_or(false), validate.map(|(json, _)| json));
        Refining { max_refines, refine_repeats_effect, validate }
    }
}
