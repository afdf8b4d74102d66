//! A child job: another agent gets a message.

use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{JobNode, OnParentEnd};

use super::Reader;
use crate::error::Code;
use crate::read::{Fields, Item, check_name};

const ON_PARENT_END: [(&str, OnParentEnd); 2] = [("cancel", OnParentEnd::Cancel), ("leave", OnParentEnd::Leave)];

impl<'t> Reader<'_, 't> {
    pub(super) fn job(&mut self, fields: &mut Fields<'t>) -> Option<JobNode> {
        for (key, way_out) in [
            ("retry", "a child is created once: write `retry` in the agent that it is sent to"),
            ("timeout", "write `deadline`, the time that the child as a whole may take"),
        ] {
            if let Some(item) = fields.take(key) {
                item.wrong(self.errors, Code::BadValue, format!("has no effect on a child job: {way_out}"));
            }
        }
        let agent = fields.need("agent", self.errors);
        let agent = agent.and_then(|item| self.agent_of(&item));
        let message = match fields.take("message") {
            Some(item) => self.template(&item),
            None => Some(Json::null()),
        };
        let session = fields.take("session").map(|item| self.session_of(item));
        let deadline = fields.take("deadline");
        let deadline = deadline.and_then(|item| item.span(false, limits::SPAN_MAX, self.errors));
        let wait = fields.take("wait").and_then(|item| item.boolean(self.errors)).unwrap_or(true);
        let on_parent_end = fields.take("on_parent_end");
        let on_parent_end = on_parent_end.and_then(|item| item.choice(&ON_PARENT_END, &[], self.errors));
        let on_parent_end = on_parent_end.unwrap_or(OnParentEnd::default_of(wait));
        // A session that cannot be read is no node without one.
        let session = match session {
            Some(session) => Some(session?),
            None => None,
        };
        Some(JobNode { agent: agent?, deadline, message: message?, on_parent_end, session, wait })
    }

    /// The name of an agent, or a template of one.
    fn agent_of(&mut self, item: &Item<'t>) -> Option<String> {
        let text = item.text(self.errors)?;
        if aetheris_expr::is_literal(text)
            && let Err(message) = check_name(text, "-", false)
        {
            item.wrong(self.errors, Code::BadName, message);
            return None;
        }
        self.text(Some(item.clone()))
    }

    fn session_of(&mut self, item: Item<'t>) -> Option<String> {
        let text = item.text(self.errors)?;
        let literal = aetheris_expr::is_literal(text);
        if literal && (text.is_empty() || limits::is_longer(text, limits::LABEL_CHARS_MAX)) {
            let message = format!("a session has 1 to {} characters", limits::LABEL_CHARS_MAX);
            item.wrong(self.errors, Code::BadValue, message);
            return None;
        }
        self.text(Some(item))
    }
}
