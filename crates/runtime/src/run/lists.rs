//! The lists of maps: rendered once in a run, and again in the next. They name recorded values only, so that they come out
//! as they did when the map began.

use aetheris_core::id::NodeId;
use aetheris_core::path::StepPath;
use aetheris_core::plan::Step;
use aetheris_expr::Item;

use super::kind::map;
use super::{Run, Stop};
use crate::memory;

impl Run<'_> {
    /// Has the list that an item is of.
    pub(super) fn know_list(&mut self, step: &Step<'_>) -> Result<(), Stop> {
        let (node, of_map) = (step.node, step.node.work.map());
        let (Some(of_map), Some(_)) = (of_map, step.path.item()) else { return Ok(()) };
        if self.lists.contains_key(&node.id) {
            return Ok(());
        }
        let view = self.view(&Step::from(node));
        let count = view.state.items_of(&view.path).map(|items| items.count);
        let list = map::list(&view, of_map).ok().filter(|list| u32::try_from(list.len()).ok() == count);
        let list = list.ok_or_else(|| Stop::Fault(view.corrupt("its list is not the one that it began with")))?;
        self.memory += memory::of(list.iter());
        self.lists.insert(node.id.clone(), list);
        Ok(())
    }

    /// A map has ended: its list is not needed any more.
    pub(super) fn forget_list(&mut self, node: &NodeId) {
        if let Some(list) = self.lists.remove(node) {
            self.memory = self.memory.saturating_sub(memory::of(list.iter()));
        }
    }

    /// What a step that is an item is about.
    pub(super) fn item<'v>(&'v self, step: &Step<'v>) -> Option<Item<'v>> {
        let (map, index) = (step.node.work.map()?, step.path.item()?);
        let list = self.lists.get(&step.node.id)?;
        let mut place = usize::try_from(index).ok()?;
        if aetheris_fault::planted!("item-of-the-next-place") {
            place = (place + 1) % list.len();
        }
        let value = list.get(place)?;
        Some(Item { index, name: &map.name, value })
    }

    /// Whether a step is given up: its map or its loop has failed with another.
    pub(super) fn is_stopped(&self, path: &StepPath) -> bool {
        self.state().is_stopped(path)
    }
}
