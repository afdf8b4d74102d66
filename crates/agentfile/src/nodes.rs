//! The nodes of a plan.

mod agent;
mod job;
mod map;
mod refine;

use std::collections::BTreeSet;

use aetheris_core::id::{NodeId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{
    AnswerFormat, Join, LlmNode, Node, NodeKind, OnDeadline, OnFailure, WaitNode, WaitType, Work,
};
use aetheris_core::retry::RetryPolicy;
use aetheris_expr::{Place, Rounds, Standing};
use aetheris_schema::Schema;

use refine::Refining;

use crate::error::{Code, Errors};
use crate::read::{Fields, Item, check_name, shortened};
use crate::settings;
use crate::templates::{Uses, each};
use crate::tree::Data;

const KINDS: [(&str, Kind); 10] = [
    ("tool", Kind::Tool),
    ("llm", Kind::Llm),
    ("wait", Kind::Wait),
    ("sleep", Kind::Sleep),
    ("condition", Kind::Condition),
    ("transform", Kind::Transform),
    ("map", Kind::Map),
    ("job", Kind::Job),
    ("critic", Kind::Critic),
    ("agent", Kind::Agent),
];
/// The names of all kinds.
pub(crate) const KIND_NAMES: [&str; KINDS.len()] = {
    let (mut names, mut at) = ([""; KINDS.len()], 0);
    while at < KINDS.len() {
        names[at] = KINDS[at].0;
        at += 1;
    }
    names
};
const FIELDS_NOT_YET: [&str; 3] = ["blackboard", "overwrite", "compensate"];
const ON_FAILURE: [(&str, OnFailure); 2] = [("fail_fast", OnFailure::FailFast), ("fail_safe", OnFailure::FailSafe)];
const TEMPERATURE_MAX: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Agent,
    Condition,
    Critic,
    Job,
    Llm,
    Map,
    Sleep,
    Tool,
    Transform,
    Wait,
}

/// A node as far as it could be read, with the places that later checks name.
#[derive(Debug)]
pub(crate) struct Draft<'t> {
    /// The critic that it names.
    pub(crate) critic: Option<(NodeId, Item<'t>)>,
    pub(crate) id: Option<(NodeId, Item<'t>)>,
    /// Whether it is a critic itself.
    pub(crate) is_critic: bool,
    pub(crate) item: Item<'t>,
    pub(crate) needs: Vec<(NodeId, Item<'t>)>,
    pub(crate) node: Option<Node>,
    /// The tools that it calls, or may call.
    pub(crate) tools: Vec<(ToolName, Item<'t>)>,
    pub(crate) when: Option<(&'t str, Item<'t>)>,
    /// A wait's key where each round of it would have the same.
    pub(crate) same_key: Option<(&'t str, Item<'t>)>,
    /// A wait's key where it is no template.
    pub(crate) literal_key: Option<(&'t str, Item<'t>)>,
}

/// What nodes inherit.
#[derive(Debug)]
pub(crate) struct Defaults<'d> {
    pub(crate) model: Option<&'d str>,
    pub(crate) retry: &'d RetryPolicy,
}

/// Reads one node.
pub(crate) fn read<'t>(
    index: usize,
    item: Item<'t>,
    defaults: &Defaults<'_>,
    uses: &mut Uses<'t>,
    errors: &mut Errors,
) -> Draft<'t> {
    let mut draft = Draft {
        critic: None,
        id: None,
        is_critic: false,
        item: item.clone(),
        needs: Vec::new(),
        node: None,
        tools: Vec::new(),
        when: None,
        same_key: None,
        literal_key: None,
    };
    let Some(mut fields) = item.fields(errors) else { return draft };
    let id = fields.need("id", errors);
    if let Some(text) = id.as_ref().and_then(|item| item.text(errors)) {
        errors.of = Some(format!("node `{}`", shortened(text)));
        draft.id = id.and_then(|item| {
            if let Err(message) = check_name(text, "-_", true) {
                item.wrong(errors, Code::BadName, message);
            }
            // What is said of its needs names it each time.
            (text.len() <= limits::NAME_BYTES_MAX).then(|| (NodeId::from(text), item))
        });
    }
    let mut reader = Reader { defaults, draft: &mut draft, errors, index, uses };
    reader.node(&mut fields);
    errors.of = None;
    draft
}

struct Reader<'r, 't> {
    defaults: &'r Defaults<'r>,
    draft: &'r mut Draft<'t>,
    errors: &'r mut Errors,
    index: usize,
    uses: &'r mut Uses<'t>,
}

impl<'t> Reader<'_, 't> {
    fn node(&mut self, fields: &mut Fields<'t>) {
        let kind_item = fields.need("kind", self.errors);
        let kind = kind_item.as_ref().and_then(|item| item.choice(&KINDS, &[], self.errors));
        if kind == Some(Kind::Critic) {
            self.draft.is_critic = true;
            self.refuse_of_critic(fields);
        }
        self.needs(fields);
        self.critic_of(fields);
        let join = self.join(fields);
        let on_failure = fields.take("on_failure").and_then(|item| item.choice(&ON_FAILURE, &[], self.errors));
        let when = fields.take("when");
        let text = when.as_ref().and_then(|item| self.condition(item));
        self.draft.when = text.zip(when);
        let has_critic = self.draft.critic.is_some();
        let work = self.work(fields, kind, text, has_critic, &FIELDS_NOT_YET);
        if let (Some(work), Some((id, _))) = (work, &self.draft.id) {
            let needs = self.draft.needs.iter().map(|(need, _)| need.clone()).collect();
            let on_failure = on_failure.unwrap_or_default();
            let critic = self.draft.critic.as_ref().map(|(critic, _)| critic.clone());
            self.draft.node = Some(Node { critic, id: id.clone(), join, needs, on_failure, work });
        }
    }

    /// What is done, by a node or for each item of one: the keys that both have, then those of the kind.
    fn work(
        &mut self,
        fields: &mut Fields<'t>,
        kind: Option<Kind>,
        when: Option<&str>,
        has_critic: bool,
        not_yet: &[&'static str],
    ) -> Option<Work> {
        let timeout = fields.take("timeout").and_then(|item| item.span(false, limits::SPAN_MAX, self.errors));
        let retry = fields.take("retry").map(|item| settings::retry(&item, self.defaults.retry, self.errors));
        let Refining { max_refines, refine_repeats_effect, validate } = self.refining(fields, has_critic);
        fields.refuse(not_yet, self.errors);
        // The keys of an unknown kind are unknown too: its mistake is reported once.
        let kind = kind?;
        let outer = self.uses.rounds;
        self.uses.rounds = match kind {
            Kind::Critic => Rounds::OfCritic,
            _ if has_critic || validate.is_some() => Rounds::Own,
            _ => Rounds::None,
        };
        let kind = self.kind(kind, fields);
        self.uses.rounds = outer;
        fields.finish(self.errors);
        let (kind, when) = (kind?, when.map(str::to_owned));
        Some(Work { kind, max_refines, refine_repeats_effect, retry, timeout, validate, when })
    }

    fn needs(&mut self, fields: &mut Fields<'t>) {
        let Some(item) = fields.take("needs") else { return };
        let mut seen = BTreeSet::new();
        for item in item.list(self.errors).unwrap_or_default() {
            let Some(need) = item.text(self.errors) else { continue };
            if seen.insert(need) {
                self.draft.needs.push((NodeId::from(need), item));
            } else {
                item.wrong(self.errors, Code::BadValue, format!("`{}` is listed twice: remove one", shortened(need)));
            }
        }
    }

    /// How many of its needs it waits for: `all`, `any`, or `{ quorum: N }`.
    fn join(&mut self, fields: &mut Fields<'t>) -> Join {
        let Some(item) = fields.take("join") else { return Join::All };
        let needs = self.draft.needs.len();
        let join = match &item.tree.data {
            Data::Text(word) if word == "all" => Join::All,
            Data::Text(word) if word == "any" => Join::Any,
            Data::Map(_) => item.fields(self.errors).map_or(Join::All, |mut inner| {
                let quorum = inner.need("quorum", self.errors);
                inner.finish(self.errors);
                let least = quorum.as_ref().and_then(|item| item.small(0, u32::MAX, self.errors));
                least.map_or(Join::All, Join::Quorum)
            }),
            Data::Text(_) | Data::List(_) | Data::Empty | Data::Null | Data::Bool(_) | Data::Number(_) => {
                let message =
                    format!("is not valid: write `all`, `any` or `{{ quorum: N }}`, where N is at most {needs}");
                item.wrong(self.errors, Code::BadValue, message);
                Join::All
            }
        };
        let bad = join.least().filter(|least| !(1..=needs).contains(&usize::try_from(*least).unwrap_or(usize::MAX)));
        if let Some(least) = bad {
            let message = match needs {
                0 => "never applies: the node needs none, so there is nothing to wait for; name some in `needs`"
                    .to_owned(),
                _ => format!("waits for {least} of the {needs} nodes in `needs`: write a number from 1 to {needs}"),
            };
            item.wrong(self.errors, Code::BadValue, message);
            return Join::All;
        }
        join
    }

    fn condition(&mut self, item: &Item<'t>) -> Option<&'t str> {
        let text = item.text(self.errors)?;
        self.uses.condition(item, text, self.index, self.errors);
        Some(text)
    }

    fn kind(&mut self, kind: Kind, fields: &mut Fields<'t>) -> Option<NodeKind> {
        match kind {
            Kind::Agent => self.agent(fields).map(NodeKind::Agent),
            Kind::Tool => self.tool(fields),
            Kind::Critic => self.critic(fields).map(NodeKind::Critic),
            Kind::Job => self.job(fields).map(NodeKind::Job),
            Kind::Llm => self.llm(fields).map(NodeKind::Llm),
            Kind::Map => self.map(fields).map(NodeKind::Map),
            Kind::Wait => self.wait(fields).map(NodeKind::Wait),
            Kind::Sleep => {
                let item = fields.need("duration", self.errors)?;
                item.span(false, limits::SPAN_MAX, self.errors).map(NodeKind::Sleep)
            }
            Kind::Condition => {
                if self.draft.when.is_none() {
                    fields.need("when", self.errors)?;
                }
                Some(NodeKind::Condition)
            }
            Kind::Transform => {
                let item = fields.need("output", self.errors)?;
                self.template(&item).map(NodeKind::Transform)
            }
        }
    }

    /// A value whose texts are templates.
    fn template(&mut self, item: &Item<'t>) -> Option<Json> {
        self.uses.drawing(item, Some(self.index), self.errors);
        item.json(self.errors)
    }

    /// A text that is a template.
    fn text(&mut self, item: Option<Item<'t>>) -> Option<String> {
        let item = item?;
        let text = item.text(self.errors)?;
        self.uses.drawing(&item, Some(self.index), self.errors);
        Some(text.to_owned())
    }

    fn tool(&mut self, fields: &mut Fields<'t>) -> Option<NodeKind> {
        let input = match fields.take("input") {
            Some(item) => self.template(&item),
            None => Some(Json::new(serde_json::Value::Object(serde_json::Map::new()))),
        };
        let item = fields.need("tool", self.errors)?;
        let tool = ToolName::from(item.text(self.errors)?);
        self.draft.tools.push((tool.clone(), item));
        Some(NodeKind::Tool { input: input?, tool })
    }

    fn llm(&mut self, fields: &mut Fields<'t>) -> Option<LlmNode> {
        let formats = [("text", AnswerFormat::Text), ("json", AnswerFormat::Json)];
        let format = fields.take("format").and_then(|item| Some((item.choice(&formats, &[], self.errors)?, item)));
        let schema = fields.take("schema").and_then(|item| settings::schema(&item, self.errors));
        if let Some((AnswerFormat::Text, item)) = format.as_ref().filter(|_| schema.is_some()) {
            let message = "never applies: an answer with a `schema` is JSON; remove it";
            item.wrong(self.errors, Code::BadValue, message);
        }
        let format =
            if schema.is_some() { AnswerFormat::Json } else { format.map(|(word, _)| word).unwrap_or_default() };
        Some(LlmNode { schema: schema.map(|(schema, _)| schema), ..self.question(fields, format)? })
    }

    /// What a model is asked, and how.
    fn question(&mut self, fields: &mut Fields<'t>, format: AnswerFormat) -> Option<LlmNode> {
        let prompt = fields.need("prompt", self.errors);
        let prompt = self.text(prompt);
        let system = fields.take("system");
        let system = self.text(system);
        let temperature = fields.take("temperature").and_then(|item| item.decimal(0.0, TEMPERATURE_MAX, self.errors));
        let max_tokens = fields.take("max_tokens").and_then(|item| item.small(1, u32::MAX, self.errors));
        let model = self.model(fields);
        Some(LlmNode { format, max_tokens, model: model?, prompt: prompt?, schema: None, system, temperature })
    }

    /// The model that is asked: its own, or that of the whole agent.
    fn model(&mut self, fields: &mut Fields<'t>) -> Option<String> {
        let model = match fields.take("model") {
            Some(item) => settings::model(&item, self.errors),
            None => self.defaults.model.map(str::to_owned),
        };
        if model.is_none() && !fields.has("model") {
            let message = "`model` is missing: name one here as `provider/model`, or one for the whole agent";
            self.errors.add(fields.path.key("model"), fields.line, Code::MissingKey, message);
        }
        model
    }

    fn wait(&mut self, fields: &mut Fields<'t>) -> Option<WaitNode> {
        let types =
            [WaitType::Signal, WaitType::Human, WaitType::Webhook, WaitType::Timer].map(|wait| (wait.as_str(), wait));
        let type_item = fields.need("wait_type", self.errors);
        let wait_type = type_item.and_then(|item| item.choice(&types, &[], self.errors));
        let park = fields.take("park").and_then(|item| item.boolean(self.errors)).unwrap_or(false);
        let reason = fields.take("reason").and_then(|item| {
            self.uses.value(&item, Some(self.index), self.errors);
            item.text(self.errors).map(str::to_owned)
        });
        let deadline = fields.take("deadline").and_then(|item| item.span(false, limits::SPAN_MAX, self.errors));
        let schema = self.schema(fields, wait_type);
        let correlation_key = self.correlation_key(fields, wait_type);
        let on_deadline = self.on_deadline(fields, wait_type, schema.as_ref().map(|(_, schema)| schema));
        let schema = schema.map(|(json, _)| json);
        if wait_type == Some(WaitType::Timer) && !fields.has("deadline") {
            let message = "`deadline` is missing: only it ends a wait of the type timer";
            self.errors.add(fields.path.key("deadline"), fields.line, Code::MissingKey, message);
        }
        Some(WaitNode {
            correlation_key,
            deadline,
            on_deadline: on_deadline?,
            park,
            reason,
            schema,
            wait_type: wait_type?,
        })
    }

    /// The JSON Schema of the payload.
    fn schema(&mut self, fields: &mut Fields<'t>, wait_type: Option<WaitType>) -> Option<(Json, Schema)> {
        let item = fields.take("schema")?;
        if wait_type == Some(WaitType::Timer) {
            let message = "never applies: only time ends a wait of the type timer; remove it";
            item.wrong(self.errors, Code::BadValue, message);
        }
        settings::schema(&item, self.errors)
    }

    fn correlation_key(&mut self, fields: &mut Fields<'t>, wait_type: Option<WaitType>) -> Option<String> {
        let item = fields.take("correlation_key");
        match (&item, wait_type) {
            (None, Some(WaitType::Human | WaitType::Signal | WaitType::Webhook)) => {
                let message = "`correlation_key` is missing: a signal must name it to end this wait";
                self.errors.add(fields.path.key("correlation_key"), fields.line, Code::MissingKey, message);
            }
            (Some(item), Some(WaitType::Timer)) => {
                item.wrong(
                    self.errors,
                    Code::BadValue,
                    "never applies: only time ends a wait of the type timer; remove it",
                );
            }
            _ => {}
        }
        let item = item?;
        let text = item.text(self.errors)?;
        if aetheris_expr::is_literal(text) {
            if text.is_empty() || limits::is_longer(text, limits::CORRELATION_KEY_CHARS_MAX) {
                let message = format!("must have 1 to {} characters", limits::CORRELATION_KEY_CHARS_MAX);
                item.wrong(self.errors, Code::BadValue, message);
            }
            self.draft.literal_key = Some((text, item.clone()));
        }
        let same = Standing { draws: false, item: None, place: Place::Plan, rounds: Rounds::None };
        if aetheris_expr::check_template(text, same).is_ok() {
            self.draft.same_key = Some((text, item.clone()));
        }
        self.text(Some(item))
    }

    fn on_deadline(
        &mut self,
        fields: &mut Fields<'t>,
        wait_type: Option<WaitType>,
        schema: Option<&Schema>,
    ) -> Option<OnDeadline> {
        let timed = fields.has("deadline");
        let Some(item) = fields.take("on_deadline") else {
            // A timer that has run out is what its node has waited for, not a failure.
            let timer = wait_type == Some(WaitType::Timer);
            return Some(if timer { OnDeadline::ContinueWith(Json::null()) } else { OnDeadline::Fail });
        };
        if !timed && wait_type != Some(WaitType::Timer) {
            item.wrong(self.errors, Code::BadValue, "never applies: this wait has no `deadline`");
        }
        if let Data::Text(text) = &item.tree.data {
            if text == "fail" {
                return Some(OnDeadline::Fail);
            }
            let shown = shortened(text);
            let message = format!("`{shown}` is not valid: write `fail`, or `{{ continue_with: VALUE }}`");
            item.wrong(self.errors, Code::BadValue, message);
            return None;
        }
        let mut inner = item.fields(self.errors)?;
        let value = inner.need("continue_with", self.errors);
        inner.finish(self.errors);
        let value = value?;
        each(value.tree, &value.path, &mut |path, line, text| {
            if !aetheris_expr::is_literal(text) {
                let message = "`continue_with` is a fixed value, in which templates are not rendered";
                self.errors.add(path, line, Code::BadTemplate, message);
            }
        });
        let json = value.json(self.errors)?;
        let judged = schema.map(|schema| schema.violations_within(&json, &mut self.errors.schemas));
        for violation in judged.unwrap_or_default() {
            let message = format!("does not fit the wait's `schema`: {}", violation.message);
            value.at(&violation.path).wrong(self.errors, Code::BadValue, message);
        }
        Some(OnDeadline::ContinueWith(json))
    }
}
