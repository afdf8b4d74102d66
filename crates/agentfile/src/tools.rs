//! The `tools` of a file.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::id::ToolName;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{DoubtPolicy, EffectClass, HttpTool, HumanTool, Reconcile, Tool, ToolKind};
use aetheris_expr::Place;

use crate::error::{Code, Errors};
use crate::read::{Fields, Item, check_name, shortened, suggestion};
use crate::tree::Data;
use crate::{settings, templates};

const METHODS: [(&str, &str); 5] =
    [("GET", "GET"), ("POST", "POST"), ("PUT", "PUT"), ("PATCH", "PATCH"), ("DELETE", "DELETE")];
const KINDS_NOT_YET: [&str; 6] = ["mcp", "process", "openapi", "grpc", "wasm", "agent"];
/// What is said of calls, and never of a question to a person.
const OF_CALLS: [&str; 5] = ["effect", "timeout", "on_in_doubt", "refuses", "output_schema"];
/// Headers that the runtime or its HTTP client sets.
pub(crate) const RESERVED: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// How the names of all headers begin that tell the tool of the call.
pub(crate) const RESERVED_BEGINNING: &str = "aetheris-";
/// Other client errors mean a refusal without being listed; these mean something else (INTERFACE).
const NOT_REFUSALS: [u64; 3] = [408, 425, 429];

/// What the file says about tools.
#[derive(Debug, Default)]
pub(crate) struct Tools<'t> {
    /// Every name, even of tools that have mistakes.
    pub(crate) names: BTreeSet<&'t str>,
    pub(crate) tools: BTreeMap<ToolName, Tool>,
    effects: BTreeMap<&'t str, EffectClass>,
    /// The names of those that ask a person.
    people: BTreeSet<&'t str>,
    reconcilers: Vec<(Item<'t>, &'t str)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Function,
    Http,
    Human,
}

impl<'t> Tools<'t> {
    /// Tools that were read before, of which the names are left.
    pub(crate) fn of(names: impl Iterator<Item = &'t str>) -> Self {
        Self { names: names.collect(), ..Self::default() }
    }

    /// Reads the mapping of tools.
    pub(crate) fn read(item: &Item<'t>, errors: &mut Errors) -> Self {
        let mut tools = Self::default();
        let Some(entries) = item.entries(errors) else { return tools };
        if entries.len() > limits::AGENT_TOOLS_MAX {
            let message = format!(
                "there are {} tools, more than the {} that an agent may have",
                entries.len(),
                limits::AGENT_TOOLS_MAX
            );
            item.wrong(errors, Code::TooLarge, message);
            return tools;
        }
        for (entry, item) in entries {
            if let Err(message) = check_name(&entry.key, "-_.", true) {
                errors.add(&item.path, entry.line, Code::BadName, message);
            }
            tools.names.insert(&entry.key);
            errors.of = Some(format!("tool `{}`", shortened(&entry.key)));
            if let Some(tool) = tools.tool(&entry.key, &item, errors) {
                tools.tools.insert(ToolName::from(entry.key.as_str()), tool);
            }
            errors.of = None;
        }
        tools.check_reconcilers(errors);
        tools
    }

    fn tool(&mut self, name: &'t str, item: &Item<'t>, errors: &mut Errors) -> Option<Tool> {
        let mut fields = item.fields(errors)?;
        let kind_item = fields.need("kind", errors)?;
        let kinds = [("http", Kind::Http), ("function", Kind::Function), ("human", Kind::Human)];
        let kind = match kind_item.choice(&kinds, &KINDS_NOT_YET, errors)? {
            Kind::Human => return self.human(name, fields, errors),
            other => other,
        };
        let effect = self.effect(name, &mut fields, errors);
        let timeout = fields.take("timeout").and_then(|item| item.span(false, limits::SPAN_MAX, errors));
        let version = fields.take("version").and_then(|item| item.text(errors)).map(str::to_owned);
        let on_in_doubt = match fields.take("on_in_doubt") {
            Some(item) => self.doubt(&item, effect, errors),
            None if effect == Some(EffectClass::AtMostOnce) => vec![DoubtPolicy::Human],
            None => Vec::new(),
        };
        let refuses = fields.take("refuses");
        let description = fields.take("description").and_then(|item| description(&item, errors));
        let input_schema = fields.take("input_schema").and_then(|item| input_schema(&item, errors));
        let output_schema = fields.take("output_schema").and_then(|item| settings::schema(&item, errors));
        let kind = match kind {
            Kind::Http => http(&mut fields, effect, errors).map(ToolKind::Http),
            Kind::Function | Kind::Human => {
                let function = fields.need("function", errors).and_then(|item| item.name("-_.", true, errors));
                function.map(|name| ToolKind::Function(name.to_owned()))
            }
        };
        let refuses = refuses.is_some_and(|item| refuses_permits(&item, effect, kind.as_ref(), errors));
        fields.finish(errors);
        let effect = effect?;
        let output_schema = output_schema.map(|(schema, _)| schema);
        let plain = Tool::new(effect, kind?);
        Some(Tool { description, input_schema, on_in_doubt, output_schema, refuses, timeout, version, ..plain })
    }

    /// A tool that asks a person. Nothing is called, and what is said of calls is refused.
    fn human(&mut self, name: &'t str, mut fields: Fields<'t>, errors: &mut Errors) -> Option<Tool> {
        self.people.insert(name);
        fields.hide(&OF_CALLS);
        for key in OF_CALLS {
            let Some(item) = fields.take(key) else { continue };
            let instead = match key {
                "timeout" => "write `deadline`",
                "output_schema" => "write `schema`",
                _ => "remove it",
            };
            let message = format!("never applies: a tool of the kind human asks a person and calls nothing; {instead}");
            item.wrong(errors, Code::BadValue, message);
        }
        let description = fields.take("description").and_then(|item| description(&item, errors));
        let input_schema = fields.take("input_schema").and_then(|item| input_schema(&item, errors));
        let version = fields.take("version").and_then(|item| item.text(errors)).map(str::to_owned);
        let deadline = fields.take("deadline").and_then(|item| item.span(false, limits::SPAN_MAX, errors));
        let schema = fields.take("schema").and_then(|item| settings::schema(&item, errors));
        let question = fields.need("question", errors).and_then(|item| {
            templates::in_tool(&item, Place::ToolBody, errors);
            item.text(errors)
        });
        fields.finish(errors);
        let human = HumanTool { deadline, question: question?.to_owned(), schema: schema.map(|(schema, _)| schema) };
        // What is asked of a person is asked once, and changes nothing outside.
        let plain = Tool::new(EffectClass::Pure, ToolKind::Human(human));
        Some(Tool { description, input_schema, version, ..plain })
    }

    fn effect(&mut self, name: &'t str, fields: &mut Fields<'t>, errors: &mut Errors) -> Option<EffectClass> {
        let classes =
            [EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce].map(|class| (class.as_str(), class));
        let effect = match fields.take("effect") {
            Some(item) => item.choice(&classes, &[], errors)?,
            None => EffectClass::default(),
        };
        self.effects.insert(name, effect);
        Some(effect)
    }

    fn doubt(&mut self, item: &Item<'t>, effect: Option<EffectClass>, errors: &mut Errors) -> Vec<DoubtPolicy> {
        if let Some(class @ (EffectClass::Pure | EffectClass::Idempotent)) = effect {
            let message =
                format!("never applies: a tool of the class `{}` is simply called again; remove it", class.as_str());
            item.wrong(errors, Code::BadValue, message);
        }
        let words = [("fail", DoubtWord::Fail), ("human", DoubtWord::Human)];
        let mut policies = match &item.tree.data {
            Data::List(_) => self.doubt_list(item, &words, errors),
            Data::Map(_) => {
                item.wrong(errors, Code::WrongType, "must be a word or a list: put `[` and `]` around it");
                Vec::new()
            }
            _ => item.choice(&words, &[], errors).map(DoubtWord::policy).into_iter().collect(),
        };
        // A list that does not say `fail` ends in `human`, written or not, and an end without it is `fail`: two files of
        // equal meaning are equal.
        match policies.last() {
            Some(DoubtPolicy::Fail) => drop(policies.pop()),
            Some(DoubtPolicy::Reconcile(_) | DoubtPolicy::Wait(_)) => policies.push(DoubtPolicy::Human),
            Some(DoubtPolicy::Human) | None => {}
        }
        policies
    }

    fn doubt_list(&mut self, item: &Item<'t>, words: &[(&str, DoubtWord)], errors: &mut Errors) -> Vec<DoubtPolicy> {
        let items = item.list(errors).unwrap_or_default();
        if items.is_empty() {
            item.wrong(errors, Code::BadValue, "is empty: write `fail`, or what is to be tried");
        }
        let mut policies = Vec::new();
        for item in items {
            if matches!(policies.last(), Some(DoubtPolicy::Fail | DoubtPolicy::Human)) {
                item.wrong(errors, Code::BadValue, "is never reached: `fail` and `human` end the list");
            }
            let policy = match &item.tree.data {
                Data::Text(_) => item.choice(words, &[], errors).map(DoubtWord::policy),
                _ => self.doubt_step(&item, errors),
            };
            policies.extend(policy);
        }
        policies
    }

    /// `{ wait: 5s }` or `{ reconcile: tool, settle: 60s }`.
    fn doubt_step(&mut self, item: &Item<'t>, errors: &mut Errors) -> Option<DoubtPolicy> {
        let mut fields = item.fields(errors)?;
        let (wait, reconcile) = (fields.take("wait"), fields.take("reconcile"));
        let settle = match fields.take("settle") {
            Some(item) if reconcile.is_none() => {
                item.wrong(
                    errors,
                    Code::BadValue,
                    "belongs to `reconcile`: it says from when on that tool's answer counts",
                );
                None
            }
            Some(item) => item.span(true, limits::SPAN_MAX, errors),
            None => None,
        };
        fields.finish(errors);
        match (wait, reconcile) {
            (Some(item), None) => item.span(false, limits::SPAN_MAX, errors).map(DoubtPolicy::Wait),
            (None, Some(item)) => {
                let name = item.text(errors)?;
                self.reconcilers.push((item, name));
                Some(DoubtPolicy::Reconcile(Reconcile { settle, tool: ToolName::from(name) }))
            }
            _ => {
                item.wrong(errors, Code::BadValue, "must have exactly one of `wait` and `reconcile`");
                None
            }
        }
    }

    fn check_reconcilers(&self, errors: &mut Errors) {
        for (item, name) in &self.reconcilers {
            if errors.is_full() {
                return;
            }
            if !self.names.contains(name) {
                let names: Vec<&str> = self.names.iter().copied().collect();
                let hint = suggestion(name, &names).map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
                item.wrong(errors, Code::UnknownTool, format!("the tool `{name}` is not defined{hint}"));
            } else if self.people.contains(name) {
                let message = format!("the tool `{name}` asks a person: write `human` in its place");
                item.wrong(errors, Code::BadValue, message);
            } else if let Some(class @ (EffectClass::Idempotent | EffectClass::AtMostOnce)) = self.effects.get(name) {
                let message =
                    format!("the tool `{name}` is {}: only a pure tool can be asked what happened", class.as_str());
                item.wrong(errors, Code::BadValue, message);
            }
        }
    }
}

/// The schema of what a model gives to a tool, which is an object.
fn input_schema(item: &Item<'_>, errors: &mut Errors) -> Option<Json> {
    let (schema, _) = settings::schema(item, errors)?;
    let of_objects = schema.as_object().is_some_and(|schema| schema.get("type").is_none_or(|kind| kind == "object"));
    if !of_objects {
        item.wrong(
            errors,
            Code::BadValue,
            "must describe an object, which is what models give to tools: write `type: object`",
        );
    }
    Some(schema)
}

/// What models are told of a tool.
fn description(item: &Item<'_>, errors: &mut Errors) -> Option<String> {
    let text = item.text(errors)?;
    if text.len() > limits::TOOL_DESCRIPTION_BYTES_MAX {
        let message =
            format!("is {} bytes long; at most {} are allowed", text.len(), limits::TOOL_DESCRIPTION_BYTES_MAX);
        item.wrong(errors, Code::TooLarge, message);
    }
    Some(text.to_owned())
}

#[derive(Clone, Copy)]
enum DoubtWord {
    Fail,
    Human,
}

impl DoubtWord {
    fn policy(self) -> DoubtPolicy {
        match self {
            Self::Fail => DoubtPolicy::Fail,
            Self::Human => DoubtPolicy::Human,
        }
    }
}

/// `refuses: true` is a promise of a tool that is asked about calls: such a question changes what the other side does
/// later, so it is no GET; repeating it changes nothing more, so it is pure.
fn refuses_permits(item: &Item<'_>, effect: Option<EffectClass>, kind: Option<&ToolKind>, errors: &mut Errors) -> bool {
    let refuses = item.boolean(errors).unwrap_or(false);
    if !refuses {
        return false;
    }
    if let Some(class @ (EffectClass::Idempotent | EffectClass::AtMostOnce)) = effect {
        let message = format!("is for a pure tool that `reconcile` asks, and this one is {}", class.as_str());
        item.wrong(errors, Code::BadValue, message);
    }
    if let Some(ToolKind::Http(http)) = kind
        && http.method == "GET"
    {
        item.wrong(errors, Code::BadValue, "is not for a GET: the question makes the other side refuse later calls");
    }
    true
}

fn http(fields: &mut Fields<'_>, effect: Option<EffectClass>, errors: &mut Errors) -> Option<HttpTool> {
    let method = fields.need("method", errors).and_then(|item| item.choice(&METHODS, &[], errors));
    let url = fields.need("url", errors).and_then(|item| url(&item, errors));
    let headers = fields.take("headers").map(|item| headers(&item, errors)).unwrap_or_default();
    let body = fields.take("body").and_then(|item| {
        if method == Some("GET") {
            let message = "never applies: a GET sends no body; put what it needs into `url`, or use another method";
            item.wrong(errors, Code::BadValue, message);
        }
        templates::in_tool(&item, Place::ToolBody, errors);
        item.json(errors)
    });
    let refused_statuses = fields.take("refused_statuses").map(|item| {
        if let Some(class @ (EffectClass::Pure | EffectClass::Idempotent)) = effect {
            let message =
                format!("never applies: no answer puts a tool of the class `{}` in doubt; remove it", class.as_str());
            item.wrong(errors, Code::BadValue, message);
        }
        statuses(&item, errors)
    });
    let refused_statuses = refused_statuses.unwrap_or_default();
    Some(HttpTool { body, headers, method: method?.to_owned(), refused_statuses, url: url? })
}

fn url(item: &Item<'_>, errors: &mut Errors) -> Option<String> {
    let url = item.text(errors)?;
    if let Err(error) = aetheris_expr::check_address(url) {
        item.wrong(errors, templates::code(&error), error.to_string());
    }
    // Only what stands before the first template is known here.
    let literal = ["{{", "{%", "{#"].iter().filter_map(|opening| url.find(opening)).min();
    let known = &url[..literal.unwrap_or(url.len())];
    let lower = known.to_ascii_lowercase();
    let possible = ["http://", "https://"].iter().any(|scheme| match lower.strip_prefix(scheme) {
        Some(host) => literal.is_some() || !host.is_empty(),
        None => literal.is_some() && scheme.starts_with(&lower),
    });
    if !possible {
        item.wrong(errors, Code::BadValue, "must be an address that begins with http:// or https:// and a host");
    } else if known.contains(|c: char| c.is_whitespace() || c.is_control()) {
        item.wrong(errors, Code::BadValue, "must not contain white space: write %20");
    }
    Some(url.to_owned())
}

fn headers(item: &Item<'_>, errors: &mut Errors) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (entry, item) in item.entries(errors).unwrap_or_default() {
        let name = entry.key.to_ascii_lowercase();
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            errors.add(
                &item.path,
                entry.line,
                Code::BadName,
                format!("{:?} is not a possible name of a header", shortened(&entry.key)),
            );
        } else if RESERVED.contains(&name.as_str()) || name.starts_with(RESERVED_BEGINNING) {
            let message = format!("the header `{}` is set by the runtime: remove it", shortened(&entry.key));
            errors.add(&item.path, entry.line, Code::BadValue, message);
        } else if !seen.insert(name) {
            let message =
                format!("the header `{}` is given twice; upper and lower case do not matter", shortened(&entry.key));
            errors.add(&item.path, entry.line, Code::DuplicateKey, message);
        }
        let Some(value) = item.text(errors) else { continue };
        templates::in_tool(&item, Place::ToolHeader, errors);
        if value.chars().any(|c| c.is_control() && c != '\t') {
            item.wrong(errors, Code::BadValue, "must not contain line breaks or control characters");
        }
        headers.insert(entry.key.clone(), value.to_owned());
    }
    headers
}

fn statuses(item: &Item<'_>, errors: &mut Errors) -> BTreeSet<u16> {
    let mut statuses = BTreeSet::new();
    for item in item.list(errors).unwrap_or_default() {
        let Some(status) = item.integer(400, 499, errors) else { continue };
        if NOT_REFUSALS.contains(&status) {
            item.wrong(errors, Code::BadValue, format!("{status} has a meaning of its own and cannot be a refusal"));
        }
        statuses.extend(u16::try_from(status));
    }
    statuses
}
