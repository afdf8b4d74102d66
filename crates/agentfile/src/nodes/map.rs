//! A map: a list, and the work that is done for each of its items.

use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{MapNode, OnItemFailure, Work};

use super::{Kind, Reader};
use crate::error::Code;
use crate::read::{Fields, Item, listed, shortened};
use crate::tree::Data;

const KINDS: [(&str, Kind); 5] = [
    ("tool", Kind::Tool),
    ("llm", Kind::Llm),
    ("transform", Kind::Transform),
    ("job", Kind::Job),
    ("agent", Kind::Agent),
];
const ON_ITEM_FAILURE: [(&str, OnItemFailure); 2] =
    [("stop", OnItemFailure::Stop), ("collect", OnItemFailure::Collect)];
/// Keys that only a whole node has.
const OF_NODES: [&str; 4] = ["id", "needs", "join", "on_failure"];
/// Keys that no `do` ever has.
const NEVER: [&str; 2] = ["critic", "compensate"];

impl<'t> Reader<'_, 't> {
    pub(super) fn map(&mut self, fields: &mut Fields<'t>) -> Option<MapNode> {
        for key in ["retry", "timeout"] {
            if let Some(item) = fields.take(key) {
                let message =
                    format!("has no effect on a map: write `{key}` inside `do`, where it applies to each item");
                item.wrong(self.errors, Code::BadValue, message);
            }
        }
        let over = fields.need("over", self.errors);
        let over = over.and_then(|item| self.list(&item));
        let concurrency = fields.take("concurrency");
        let concurrency = concurrency.and_then(|item| item.small(1, CONCURRENCY_MAX, self.errors)).unwrap_or(1);
        let on_item_failure = fields.take("on_item_failure");
        let on_item_failure = on_item_failure.and_then(|item| item.choice(&ON_ITEM_FAILURE, &[], self.errors));
        let name = fields.take("as").map_or(Some(MapNode::NAME), |item| self.item_name(&item));
        let each = fields.need("do", self.errors)?;
        self.uses.item = name.map(str::to_owned);
        // What its templates call the item is not known where its name is no name: that mistake is reported once.
        let each = name.and_then(|_| self.each(&each));
        self.uses.item = None;
        let (each, on_item_failure) = (Box::new(each?), on_item_failure.unwrap_or_default());
        Some(MapNode { name: name?.to_owned(), concurrency, each, on_item_failure, over: over? })
    }

    /// A template of a list, or a list whose texts are templates.
    fn list(&mut self, item: &Item<'t>) -> Option<Json> {
        let wrong = match &item.tree.data {
            Data::List(items) if items.len() > limits::MAP_ITEMS_MAX => {
                format!("has {} items, and at most {} are worked on", items.len(), limits::MAP_ITEMS_MAX)
            }
            Data::List(_) => return self.over(item),
            Data::Text(text) if !aetheris_expr::is_literal(text) => return self.over(item),
            Data::Text(text) => {
                format!("`{}` is not a list: write a list, or a template that gives one", shortened(text))
            }
            Data::Empty | Data::Null | Data::Bool(_) | Data::Number(_) | Data::Map(_) => {
                "is not a list: write a list, or a template that gives one, as `\"{{ message.items }}\"`".to_owned()
            }
        };
        item.wrong(self.errors, Code::BadValue, wrong);
        None
    }

    fn over(&mut self, item: &Item<'t>) -> Option<Json> {
        self.uses.value(item, Some(self.index), self.errors);
        item.json(self.errors)
    }

    fn item_name(&mut self, item: &Item<'t>) -> Option<&'t str> {
        let name = item.text(self.errors)?;
        if aetheris_expr::is_free_name(name) && name.len() <= limits::NAME_BYTES_MAX {
            return Some(name);
        }
        let message = format!(
            "`{}` cannot name an item: begin with a letter or `_`, then letters, digits and `_`; at most {} characters; not a \
             word of the template language, such as `message` or `loop`",
            shortened(name),
            limits::NAME_BYTES_MAX
        );
        item.wrong(self.errors, Code::BadName, message);
        None
    }

    /// The work for an item.
    fn each(&mut self, item: &Item<'t>) -> Option<Work> {
        let mut fields = item.fields(self.errors)?;
        for key in OF_NODES {
            if let Some(item) = fields.take(key) {
                let message = format!("`{key}` belongs to the map and not to its `do`: remove it here");
                item.wrong(self.errors, Code::UnknownKey, message);
            }
        }
        for key in NEVER {
            if let Some(item) = fields.take(key) {
                let way_out = if key == "critic" {
                    ": write `validate` here, or `critic` with `max_refines: 0` on the map"
                } else {
                    ""
                };
                item.wrong(self.errors, Code::UnknownKey, format!("`{key}` cannot be used inside `do`{way_out}"));
            }
        }
        let kind = fields.need("kind", self.errors);
        let kind = kind.and_then(|item| match &item.tree.data {
            Data::Text(word) if super::KINDS.iter().any(|(kind, _)| kind == word) && !is_for_items(word) => {
                let kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
                let message = format!("`do` cannot be a `{word}`: use {}", listed(&kinds, "or"));
                item.wrong(self.errors, Code::BadValue, message);
                None
            }
            _ => item.choice(&KINDS, &[], self.errors),
        });
        let when = fields.take("when").and_then(|item| self.condition(&item));
        self.work(&mut fields, kind, when, false, &[])
    }
}

fn is_for_items(word: &str) -> bool {
    KINDS.iter().any(|(kind, _)| *kind == word)
}

/// Most items of one map that are worked on at once.
#[expect(clippy::cast_possible_truncation, reason = "a few hundred")]
const CONCURRENCY_MAX: u32 = limits::PARALLEL_STEPS_MAX as u32;
