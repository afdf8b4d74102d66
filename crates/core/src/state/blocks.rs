//! What a job is blocked on: those of its steps that wait for something outside, by path.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::path::StepPath;
use crate::plan::WaitType;
use crate::time::Timestamp;

/// One step that waits for something outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// What a signal must name.
    pub correlation_key: Option<String>,
    /// Whether it waits for the answer to a doubt.
    pub doubt: bool,
    /// The step.
    pub node: StepPath,
    /// Why, for people.
    pub reason: Option<String>,
    /// The place of the event that it began with: unlike `since` it is known before the commit, and no two have the same.
    pub seq: u64,
    /// Since when. The default while the store has not given the time.
    pub since: Timestamp,
    /// What ends it.
    pub wait_type: WaitType,
}

/// The blocks of a job, at most one of each step.
///
/// Stored as `null` if there is none, as the block itself if there is one, as jobs had it before steps could block beside
/// each other, and else as a list in the order of the paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocks(BTreeMap<StepPath, Blocked>);

impl Blocks {
    /// Whether the job is blocked on nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The block of a step.
    #[must_use]
    pub fn of(&self, path: &StepPath) -> Option<&Blocked> {
        self.0.get(path)
    }

    /// All of them, in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = &Blocked> {
        self.0.values()
    }

    /// All of them, the oldest first.
    #[must_use]
    pub fn by_age(&self) -> Vec<&Blocked> {
        let mut all: Vec<&Blocked> = self.iter().collect();
        all.sort_by_key(|blocked| blocked.seq);
        all
    }

    /// The first of [`Blocks::by_age`].
    #[must_use]
    pub fn oldest(&self) -> Option<&Blocked> {
        self.iter().min_by_key(|blocked| blocked.seq)
    }

    /// The one that stands for all of them where there is room for one: one that a person ends before one that a program
    /// ends, these before children, and those before what only time ends; of the same kind the oldest.
    #[must_use]
    pub fn foremost(&self) -> Option<&Blocked> {
        let rank = |blocked: &Blocked| match blocked.wait_type {
            WaitType::Human => 0,
            WaitType::Signal | WaitType::Webhook => 1,
            WaitType::Child => 2,
            WaitType::Timer => 3,
        };
        self.iter().min_by_key(|blocked| (rank(blocked), blocked.seq))
    }

    pub(super) fn insert(&mut self, blocked: Blocked) {
        self.0.insert(blocked.node.clone(), blocked);
    }

    pub(super) fn take(&mut self, path: &StepPath) -> Option<Blocked> {
        self.0.remove(path)
    }

    pub(super) fn stamp(&mut self, path: &StepPath, at: Timestamp) {
        // A block that is named again goes on.
        if let Some(blocked) = self.0.get_mut(path).filter(|blocked| blocked.since == Timestamp::default()) {
            blocked.since = at;
        }
    }
}

impl FromIterator<Blocked> for Blocks {
    fn from_iter<I: IntoIterator<Item = Blocked>>(blocks: I) -> Self {
        Self(blocks.into_iter().map(|blocked| (blocked.node.clone(), blocked)).collect())
    }
}

impl Serialize for Blocks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.len() {
            0 | 1 => self.iter().next().serialize(serializer),
            _ => serializer.collect_seq(self.iter()),
        }
    }
}

/// The three forms of [`Blocks`].
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    One(Blocked),
    Several(Vec<Blocked>),
}

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = match Option::<Stored>::deserialize(deserializer)? {
            None => Vec::new(),
            Some(Stored::One(blocked)) => vec![blocked],
            Some(Stored::Several(several)) => several,
        };
        let count = stored.len();
        let blocks: Self = stored.into_iter().collect();
        if blocks.0.len() == count { Ok(blocks) } else { Err(D::Error::custom("a step is blocked twice")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::to_canonical;

    fn blocked(node: &str, seq: u64) -> Blocked {
        Blocked {
            correlation_key: Some(format!("key of {node}")),
            doubt: false,
            node: node.into(),
            reason: None,
            seq,
            since: Timestamp::from_micros(7),
            wait_type: WaitType::Human,
        }
    }

    /// A state has the bytes that it had when a job could be blocked on one step only.
    #[test]
    fn blocks_are_stored_as_before_and_several_as_a_list() {
        let of = |all: &[&Blocked]| -> Blocks { all.iter().copied().cloned().collect() };
        let (a, b) = (blocked("a", 5), blocked("b", 3));
        for (blocks, form) in [
            (of(&[]), to_canonical(&None::<Blocked>)),
            (of(&[&a]), to_canonical(&Some(&a))),
            (of(&[&b, &a]), to_canonical(&[&a, &b])),
        ] {
            assert_eq!(to_canonical(&blocks), form);
            assert_eq!(serde_json::from_slice::<Blocks>(&form).unwrap(), blocks);
        }
        let twice = to_canonical(&[&a, &a]);
        assert!(serde_json::from_slice::<Blocks>(&twice).unwrap_err().to_string().contains("blocked twice"));
    }

    #[test]
    fn the_oldest_block_is_the_first_that_began() {
        let oldest = |all: &[(&str, u64)]| {
            let blocks: Blocks = all.iter().map(|(node, seq)| blocked(node, *seq)).collect();
            let first = blocks.by_age().first().copied().cloned();
            assert_eq!(blocks.oldest(), first.as_ref());
            first.map(|blocked| blocked.node.to_string())
        };
        assert_eq!(oldest(&[]), None);
        assert_eq!(oldest(&[("a", 5), ("b", 3), ("c", 4)]).as_deref(), Some("b"));
    }

    #[test]
    fn a_person_is_asked_before_anything_ends_by_itself() {
        let of = |node: &str, seq, wait_type| Blocked { wait_type, ..blocked(node, seq) };
        let foremost = |all: &[Blocked]| {
            let blocks: Blocks = all.iter().cloned().collect();
            blocks.foremost().map(|blocked| blocked.node.to_string())
        };
        let [timer, signal] = [of("a", 1, WaitType::Timer), of("b", 2, WaitType::Signal)];
        let [late, early] = [of("c", 4, WaitType::Human), of("d", 3, WaitType::Human)];
        assert_eq!(foremost(&[]), None);
        assert_eq!(foremost(std::slice::from_ref(&timer)).as_deref(), Some("a"));
        assert_eq!(foremost(&[timer.clone(), signal.clone()]).as_deref(), Some("b"));
        assert_eq!(foremost(&[timer, signal, late, early]).as_deref(), Some("d"));
    }

    #[test]
    fn a_block_is_found_by_its_step() {
        let blocks: Blocks = [blocked("a", 5), blocked("n[2]", 3)].into_iter().collect();
        assert_eq!(blocks.of(&"n[2]".into()).unwrap().seq, 3);
        assert!(blocks.of(&"n".into()).is_none());
    }
}
