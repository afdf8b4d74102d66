//! The same work for each item of a list.

use serde::{Deserialize, Serialize};

use super::Work;
use crate::json::Json;

/// What follows when the work for an item fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnItemFailure {
    /// It is told in the item's place, and the others go on.
    Collect,
    /// No other item begins, those under way end, and the node fails.
    #[default]
    Stop,
}

/// Work for each item of a list. Its output is the list of what the items came to, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MapNode {
    /// What templates of the work call the item; with `_index` behind it, its place.
    #[serde(rename = "as")]
    pub name: String,
    /// How many items are worked on at once, at least one. Those that wait for somebody do not count.
    pub concurrency: u32,
    /// What is done for each item.
    #[serde(rename = "do")]
    pub each: Box<Work>,
    /// What follows when that fails.
    #[serde(default, skip_serializing_if = "OnItemFailure::is_stop")]
    pub on_item_failure: OnItemFailure,
    /// The list; a value whose texts are templates.
    pub over: Json,
}

impl OnItemFailure {
    /// Whether it is the default.
    #[must_use]
    pub const fn is_stop(&self) -> bool {
        matches!(self, Self::Stop)
    }
}

impl MapNode {
    /// The name that its items have where it says none.
    pub const NAME: &str = "item";
}
