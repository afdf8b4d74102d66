//! A loop: a model and tools by turns.

use aetheris_core::id::ToolName;
use aetheris_core::limits;
use aetheris_core::plan::{AgentNode, OnLimit};

use super::Reader;
use crate::error::Code;
use crate::read::{Fields, shortened};
use crate::settings;

const ON_LIMIT: [(&str, OnLimit); 2] = [("fail", OnLimit::Fail), ("answer", OnLimit::Answer)];
/// Most calls of one turn that run beside each other.
#[expect(clippy::cast_possible_truncation, reason = "a few")]
const CALLS_MAX: u32 = limits::TURN_CALLS_MAX as u32;

impl<'t> Reader<'_, 't> {
    pub(super) fn agent(&mut self, fields: &mut Fields<'t>) -> Option<AgentNode> {
        let prompt = fields.need("prompt", self.errors);
        let prompt = self.text(prompt);
        let system = fields.take("system");
        let system = self.text(system);
        let model = self.model(fields);
        let tools = self.tools_of_loop(fields);
        let max_turns = fields.take("max_turns").and_then(|item| item.small(1, limits::LOOP_TURNS_MAX, self.errors));
        let parallel = fields.take("parallel_tool_calls");
        let parallel = parallel.and_then(|item| item.small(1, CALLS_MAX, self.errors));
        let max_tokens = fields.take("max_tokens").and_then(|item| item.integer(1, u64::MAX, self.errors));
        let most = fields.take("max_answer_tokens");
        let max_answer_tokens = most.and_then(|item| item.small(1, u32::MAX, self.errors));
        let schema = fields.take("schema").and_then(|item| settings::schema(&item, self.errors));
        let on_limit = fields.take("on_limit").and_then(|item| item.choice(&ON_LIMIT, &[], self.errors));
        let plain = AgentNode::new(model?, prompt?);
        Some(AgentNode {
            max_answer_tokens,
            max_tokens,
            max_turns: max_turns.unwrap_or(plain.max_turns),
            on_limit: on_limit.unwrap_or(plain.on_limit),
            parallel_tool_calls: parallel.unwrap_or(plain.parallel_tool_calls),
            schema: schema.map(|(json, _)| json),
            system,
            tools,
            ..plain
        })
    }

    /// The tools that the model may call.
    fn tools_of_loop(&mut self, fields: &mut Fields<'t>) -> Vec<ToolName> {
        let Some(item) = fields.take("tools") else { return Vec::new() };
        let mut tools: Vec<ToolName> = Vec::new();
        for item in item.list(self.errors).unwrap_or_default() {
            let Some(name) = item.text(self.errors) else { continue };
            let tool = ToolName::from(name);
            if tools.contains(&tool) {
                let message = format!("`{}` is listed twice: remove one", shortened(name));
                item.wrong(self.errors, Code::BadValue, message);
                continue;
            }
            let told = AgentNode::name_for_model(&tool);
            if let Some(other) = tools.iter().find(|other| AgentNode::name_for_model(other) == told) {
                let message = format!(
                    "`{}` and `{other}` are both called `{}` for the model, since `.` is sent as `_`: rename one of them",
                    shortened(name),
                    shortened(&told)
                );
                item.wrong(self.errors, Code::BadName, message);
                continue;
            }
            self.draft.tools.push((tool.clone(), item));
            tools.push(tool);
        }
        tools
    }
}
