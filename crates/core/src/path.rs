//! Step paths: where in a job a step is.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

/// The characters that mark parts of a step: no node of a plan has one in its name.
pub const PARTS: [char; 4] = ['[', ']', '@', '/'];

/// The address of a step in its job: the node of the plan, then, where the step is a part of what the node does, the item
/// of a map, the round of a refinement, and the turn of a loop or a call of that turn.
///
/// Its text is its form in events, rows, timers and API responses: `n`, `n[3]`, `n@1`, `n/2`, `n/2.0`, `n[3]@1/2.0`. A step that is
/// a whole node has the node's name, as every step had before there were parts. A critic's step is the
/// path that it judges plus `/critic`: `n/critic`, `n@1/critic`. Turns, calls and items count from 0, and round 0 is not written. Paths sort by number: `n[2]` comes before `n[10]`.
///
/// Every text is a path: one that ends in no well-formed part names a node. A plan with a node whose name has a mark of a
/// part does not compile ([`PARTS`]), so that no two steps share a text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepPath {
    node: NodeId,
    item: Option<u32>,
    /// The first round is 0 and not written.
    round: u32,
    /// The turn of a loop, and which of its calls; without one it is the turn's question.
    turn: Option<(u32, Option<u32>)>,
    /// It is the critic's judgement of what stands before it.
    critic: bool,
}

/// How the text of a critic's step ends.
const CRITIC: &str = "/critic";

impl StepPath {
    /// The path of a step that is a whole node.
    #[must_use]
    pub const fn of(node: NodeId) -> Self {
        Self { node, item: None, round: 0, turn: None, critic: false }
    }

    /// The path of one item of a map.
    #[must_use]
    pub const fn of_item(node: NodeId, item: u32) -> Self {
        Self { node, item: Some(item), round: 0, turn: None, critic: false }
    }

    /// The item that the step is, or is a part of.
    #[must_use]
    pub const fn item(&self) -> Option<u32> {
        self.item
    }

    /// The round of a refinement; 0 is the first.
    #[must_use]
    pub const fn round(&self) -> u32 {
        self.round
    }

    /// Whether it is the step of a critic.
    #[must_use]
    pub const fn is_critic(&self) -> bool {
        self.critic
    }

    /// Whether the step is all that is done of a node or an item: no round of it, and no part of one.
    #[must_use]
    pub const fn is_base(&self) -> bool {
        self.round == 0 && self.turn.is_none() && !self.critic
    }

    /// The turn of a loop that the step is, or is a call of.
    #[must_use]
    pub fn turn(&self) -> Option<u32> {
        self.turn.map(|(turn, _)| turn)
    }

    /// Which call of its turn the step is.
    #[must_use]
    pub fn call(&self) -> Option<u32> {
        self.turn.and_then(|(_, call)| call)
    }

    /// Whether it is the question of a turn.
    #[must_use]
    pub const fn is_turn(&self) -> bool {
        matches!(self.turn, Some((_, None)))
    }

    /// Whether it is no turn of a loop, and no call of one.
    #[must_use]
    pub const fn is_outside_loop(&self) -> bool {
        self.turn.is_none()
    }

    /// The step whose turn or call it is; itself where it is neither.
    #[must_use]
    pub fn of_loop(&self) -> Self {
        Self { turn: None, ..self.clone() }
    }

    /// One turn of the loop that it is, or is a part of.
    #[must_use]
    pub fn at_turn(&self, turn: u32) -> Self {
        Self { turn: Some((turn, None)), ..self.clone() }
    }

    /// One call of a turn of the loop that it is, or is a part of.
    #[must_use]
    pub fn at_call(&self, turn: u32, call: u32) -> Self {
        Self { turn: Some((turn, Some(call))), ..self.clone() }
    }

    /// The node or the item that it is, or is a part of.
    #[must_use]
    pub fn base(&self) -> Self {
        self.in_round(0)
    }

    /// One round of the node or the item that it is, or is a part of.
    #[must_use]
    pub fn in_round(&self, round: u32) -> Self {
        Self { node: self.node.clone(), item: self.item, round, turn: None, critic: false }
    }

    /// The step in which it is judged by a critic.
    #[must_use]
    pub fn critic(&self) -> Self {
        Self { critic: true, ..self.clone() }
    }

    /// The step that this critic's step judges.
    #[must_use]
    pub fn judged(&self) -> Option<Self> {
        self.critic.then(|| Self { critic: false, ..self.clone() })
    }

    /// The node that the step is, or is a part of.
    #[must_use]
    pub const fn node(&self) -> &NodeId {
        &self.node
    }

    /// Whether the step is a whole node.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.item.is_none() && self.is_base()
    }

    /// Its text; a whole node's is lent, not copied.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        if self.is_whole() {
            return Cow::Borrowed(self.node.as_str());
        }
        let mut text = self.node.to_string();
        if let Some(item) = self.item {
            text.push_str(&format!("[{item}]"));
        }
        if self.round > 0 {
            text.push_str(&format!("@{}", self.round));
        }
        if let Some((turn, call)) = self.turn {
            text.push_str(&format!("/{turn}"));
            if let Some(call) = call {
                text.push_str(&format!(".{call}"));
            }
        }
        if self.critic {
            text.push_str(CRITIC);
        }
        Cow::Owned(text)
    }

    /// The parts of a text, from its end to its beginning, if it has any.
    fn parse(text: &str) -> Option<Self> {
        let judged = text.strip_suffix(CRITIC);
        let (critic, text) = (judged.is_some(), judged.unwrap_or(text));
        let (rest, turn) = match text.rsplit_once('/') {
            // Nobody judges a part of a loop.
            Some(_) if critic => return None,
            Some((rest, part)) => {
                let (turn, call) = part.split_once('.').map_or((part, None), |(turn, call)| (turn, Some(call)));
                let call = match call {
                    Some(call) => Some(number(call)?),
                    None => None,
                };
                (rest, Some((number(turn)?, call)))
            }
            None => (text, None),
        };
        let (rest, round) = match rest.rsplit_once('@') {
            Some((rest, round)) => (rest, number(round).filter(|round| *round > 0)?),
            None => (rest, 0),
        };
        let (node, item) = match rest.strip_suffix(']') {
            Some(rest) => {
                let (node, item) = rest.rsplit_once('[')?;
                (node, Some(number(item)?))
            }
            None => (rest, None),
        };
        let whole = !node.is_empty() && !node.contains(PARTS);
        whole.then(|| Self { node: NodeId::from(node), item, round, turn, critic })
    }
}

/// A number in the one way that it is written.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = digits && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

impl From<&str> for StepPath {
    fn from(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|| Self::of(NodeId::from(text)))
    }
}

impl From<NodeId> for StepPath {
    fn from(node: NodeId) -> Self {
        Self::of(node)
    }
}

impl From<&NodeId> for StepPath {
    fn from(node: &NodeId) -> Self {
        Self::of(node.clone())
    }
}

impl fmt::Display for StepPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text())
    }
}

impl fmt::Debug for StepPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for StepPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for StepPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = NodeId::deserialize(deserializer)?;
        Ok(Self::parse(text.as_str()).unwrap_or_else(|| Self::of(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Node, item, round, and turn with its call.
    type Parts = (String, Option<u32>, u32, Option<(u32, Option<u32>)>);

    fn parts(text: &str) -> Parts {
        let StepPath { node, item, round, turn, critic: _ } = StepPath::from(text);
        (node.to_string(), item, round, turn)
    }

    #[test]
    fn a_path_is_its_node_and_the_parts_that_its_text_names() {
        let n = || "n".to_owned();
        assert_eq!(parts("n"), (n(), None, 0, None));
        assert_eq!(parts("n[3]"), (n(), Some(3), 0, None));
        assert_eq!(parts("n@1"), (n(), None, 1, None));
        assert_eq!(parts("n/2.0"), (n(), None, 0, Some((2, Some(0)))));
        assert_eq!(parts("n/2"), (n(), None, 0, Some((2, None))));
        assert_eq!(parts("n[3]@1/2.0"), (n(), Some(3), 1, Some((2, Some(0)))));
        assert_eq!(parts("n[0]/0.4294967295"), (n(), Some(0), 0, Some((0, Some(u32::MAX)))));
    }

    #[test]
    fn a_text_without_well_formed_parts_is_a_nodes_name() {
        let odd = [
            "",
            "n[",
            "n]",
            "n[]",
            "n[03]",
            "n[-1]",
            "n[+1]",
            "n[4294967296]",
            "[3]",
            "n@0",
            "n@",
            "n@1@2",
            "n/02",
            "n/2.",
        ];
        let more = [
            "n/.0",
            "n/critics",
            "/critic",
            "n/critic/critic",
            "n/critic@1",
            "n/2.0.1",
            "n/2/1",
            "n/2/critic",
            "n/2.0/critic",
            "n/2.0/1.1",
            "n[1][2]",
            "n@1[2]",
            "n[1]x",
            "a/b",
            "n/2.0@1",
            "@1",
            "/1.1",
            "n[1] ",
        ];
        for text in odd.into_iter().chain(more) {
            assert_eq!(parts(text), (text.to_owned(), None, 0, None));
        }
    }

    #[test]
    fn every_text_comes_back_as_it_was_and_no_two_are_one_path() {
        let texts = [
            "n",
            "n[3]",
            "n@1",
            "n/2",
            "n/2.0",
            "n[3]@1/2.0",
            "n[3]@1/2",
            "n[3]@1",
            "n[3]/2.0",
            "n@1/2.0",
            "n[03]",
            "n@0",
            "",
            "a/b",
            "n/critic",
            "n@1/critic",
        ];
        let paths: std::collections::BTreeSet<StepPath> = texts.iter().map(|text| StepPath::from(*text)).collect();
        assert_eq!(paths.len(), texts.len());
        for text in texts {
            let path = StepPath::from(text);
            assert_eq!((path.to_string(), format!("{path:?}")), (text.to_owned(), text.to_owned()));
            let json = serde_json::to_value(&path).unwrap();
            assert_eq!(json, text);
            assert_eq!(serde_json::from_value::<StepPath>(json).unwrap(), path);
        }
        assert_eq!(format!("{:>4}|{:<6}|", StepPath::from("n"), StepPath::from("n[3]")), "   n|n[3]  |");
    }

    #[test]
    fn paths_stand_in_the_order_of_their_numbers() {
        let sorted = [
            "m",
            "n",
            "n/critic",
            "n/0",
            "n/0.0",
            "n/0.1",
            "n/2.0",
            "n/10",
            "n/10.0",
            "n@1",
            "n@1/critic",
            "n@2/0.0",
            "n[0]",
            "n[2]",
            "n[2]@1",
            "n[10]",
            "o",
        ];
        let mut paths = sorted.map(StepPath::from);
        paths.reverse();
        paths.sort();
        assert_eq!(paths.map(|path| path.to_string()), sorted);
    }

    #[test]
    fn a_round_and_its_critic_are_parts_of_the_whole() {
        for base in ["n", "n[3]"].map(StepPath::from) {
            let round = base.in_round(2);
            assert_eq!((round.to_string(), round.round()), (format!("{base}@2"), 2));
            assert_eq!(round.critic().to_string(), format!("{base}@2/critic"));
            assert_eq!(StepPath::from(&*round.critic().text()), round.critic());
            assert_eq!((round.critic().judged(), round.judged()), (Some(round.clone()), None));
            for part in [&base, &round, &round.critic(), &base.critic()] {
                assert_eq!((part.base(), part.item(), part.is_base()), (base.clone(), base.item(), *part == base));
            }
            assert!(round.critic().is_critic() && !round.is_critic());
        }
    }

    #[test]
    fn turns_and_calls_are_parts_of_their_loop() {
        for base in ["n", "n[3]", "n@1", "n[3]@2"].map(StepPath::from) {
            let (turn, call) = (base.at_turn(7), base.at_call(7, 1));
            assert_eq!((turn.to_string(), call.to_string()), (format!("{base}/7"), format!("{base}/7.1")));
            assert_eq!((turn.turn(), turn.call(), turn.is_turn()), (Some(7), None, true));
            assert_eq!((call.turn(), call.call(), call.is_turn()), (Some(7), Some(1), false));
            assert_eq!((base.turn(), base.call(), base.is_turn()), (None, None, false));
            for part in [&base, &turn, &call] {
                assert_eq!((part.of_loop(), part.base()), (base.clone(), base.in_round(0)));
                assert_eq!((part.is_outside_loop(), part.is_base()), (*part == base, *part == base.in_round(0)));
            }
            assert!(turn < call && base < turn && call < base.at_turn(8));
        }
    }

    #[test]
    fn a_whole_node_is_the_path_of_its_name() {
        let node = NodeId::from("n");
        for path in [StepPath::of(node.clone()), StepPath::from(&node), StepPath::from(node.clone()), "n".into()] {
            assert!(path.is_whole());
            assert_eq!((path.node(), &path), (&node, &StepPath::from("n")));
        }
        assert!(!StepPath::from("n[0]").is_whole());
        assert_eq!(StepPath::from("n[0]").node(), &node);
    }
}
