//! The items of a map: which have begun, which have not ended, and which failure ends the map.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Illegal, JobState};
use crate::event::{self, NodeFinished};
use crate::path::StepPath;
use crate::step::StepStatus;

/// How the items of a map stand. What each came to is a step of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemsState {
    /// How many have begun: those before this place.
    pub begun: u32,
    /// Whether failures are told in their places, and the others go on.
    pub collect: bool,
    /// How many there are.
    pub count: u32,
    /// The first, by its place, with whose failure the job fails, whatever its map says of its own.
    pub lost_by: Option<u32>,
    /// Those that have begun and have not ended.
    pub open: BTreeSet<u32>,
    /// The first, by its place, whose failure ends the map: no other begins.
    pub stopped_by: Option<u32>,
}

impl ItemsState {
    pub(super) const fn new(items: event::Items) -> Self {
        Self {
            begun: 0,
            collect: items.collect,
            count: items.count,
            lost_by: None,
            open: BTreeSet::new(),
            stopped_by: None,
        }
    }

    /// Whether all have ended, or all that have begun where no other does.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.open.is_empty() && (self.begun == self.count || self.stopped_by.is_some())
    }

    /// An item's step has moved. Items begin in their order.
    fn moved(&mut self, item: u32, to: StepStatus) -> Result<(), &'static str> {
        if item > self.begun || item >= self.count {
            return Err("it is not the next item of its map");
        }
        if item == self.begun {
            if self.stopped_by.is_some() {
                return Err("its map has failed");
            }
            self.begun += 1;
        }
        if to.is_terminal() {
            self.open.remove(&item);
        } else {
            self.open.insert(item);
        }
        Ok(())
    }
}

/// What a step is given up for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoppedBy {
    /// The item with which its map has failed.
    Item(u32),
    /// The turn or call with which its loop has failed.
    Part(StepPath),
}

impl JobState {
    /// How the items of the map stand that a step is, or is an item of.
    #[must_use]
    pub fn items_of(&self, path: &StepPath) -> Option<&ItemsState> {
        self.step_of(path.node()).and_then(|map| map.items.as_deref())
    }

    /// What a step is given up for, that of its map before that of its loop. A loop that a part of its own has ended is not: it
    /// fails as that part has.
    #[must_use]
    pub fn stopped_by(&self, path: &StepPath) -> Option<StoppedBy> {
        let of_map = path.item().and_then(|_| self.items_of(path)?.stopped_by);
        // Asked of every step, and most are neither an item nor a part of a loop.
        if of_map.is_none() && path.is_outside_loop() {
            return None;
        }
        let of_loop = self.turns_of(path).and_then(|turns| turns.failed_by.clone());
        let is_loop = path.is_outside_loop();
        match (of_map, of_loop) {
            (Some(_), Some(_)) if is_loop => None,
            (Some(item), _) => Some(StoppedBy::Item(item)),
            (None, Some(part)) if !is_loop => Some(StoppedBy::Part(part)),
            (None, Some(_) | None) => None,
        }
    }

    /// Whether a step is given up.
    #[must_use]
    pub fn is_stopped(&self, path: &StepPath) -> bool {
        self.stopped_by(path).is_some()
    }

    /// A step that is an item has moved.
    pub(super) fn note_item(&mut self, path: &StepPath, to: StepStatus) -> Result<(), Illegal> {
        let Some(item) = path.item().filter(|_| path.is_base()) else { return Ok(()) };
        let map = self.steps.get_mut(&StepPath::from(path.node()));
        let running = map.filter(|map| map.status == StepStatus::Running).and_then(|map| map.items.as_deref_mut());
        let moved = running.ok_or("its map is not under way").and_then(|items| items.moved(item, to));
        moved.map_err(|why| Illegal::Contradiction(format!("`{path}`: {why}")))
    }

    /// An item has failed, or a part of it with which it is to: the map ends with it, unless that collects failures.
    pub(super) fn note_item_failed(&mut self, e: &NodeFinished) {
        let Some(item) = e.node.item().filter(|_| !e.given_up && !e.told) else { return };
        let map = self.steps.get_mut(&StepPath::from(e.node.node()));
        if let Some(items) = map.and_then(|map| map.items.as_deref_mut()).filter(|items| !(items.collect && e.absorbed))
        {
            let first = |before: Option<u32>| Some(before.map_or(item, |first| first.min(item)));
            items.stopped_by = first(items.stopped_by);
            if !e.absorbed {
                items.lost_by = first(items.lost_by);
            }
        }
    }
}
