//! Maps of programs: how they are drawn, what they must come to, and in which order their items stand in a job's events.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::event::{Event, Recorded};
use aetheris_core::id::JobId;
use aetheris_core::path::StepPath;
use aetheris_testing::random::Random;

use crate::draw::drawn;
use crate::joins::{Course, Stand, is_of_the_job};
use crate::program::{Kind, Program, Step};
use crate::rounds::end_of;
use crate::tally::Tally;

/// That a node does what it does for each item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// Whether failures are told in their places.
    pub collect: bool,
    /// How many items are worked on at once.
    pub concurrency: u64,
    /// How many items there are.
    pub count: u32,
    /// The one whose condition does not hold.
    pub skipped: Option<u32>,
}

/// In some programs nodes do what they do for each item of a list. What is drawn of the others is not touched by it.
pub(crate) fn maps(steps: &[Step], children: &BTreeSet<usize>) -> BTreeMap<usize, Map> {
    let mut random = Random::new(drawn(steps).rotate_left(31));
    // Children of items are cancelled and given up in ways that no others are.
    if !random.chance(if children.is_empty() { 250 } else { 700 }) {
        return BTreeMap::new();
    }
    let mut maps = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        let can = matches!(step.kind, Kind::Tool { .. } | Kind::Model | Kind::Transform);
        if !can || !random.chance(500) {
            continue;
        }
        let count = u32::try_from(random.below(6)).unwrap_or(0);
        let skipped = random.chance(200).then(|| u32::try_from(random.below(6)).unwrap_or(0));
        let (collect, concurrency) = (random.chance(400), random.between(1, 4));
        maps.insert(place, Map { collect, concurrency, count, skipped });
    }
    maps
}

/// The node of a path, and the item.
fn parts(path: &StepPath) -> Option<(usize, Option<u32>)> {
    let place = path.node().as_str().strip_prefix('n')?.parse().ok()?;
    Some((place, path.item()))
}

impl Program {
    /// What is done in the step of a path; nothing in a map's own.
    pub(crate) fn step_at(&self, path: &StepPath) -> Option<(usize, &Step)> {
        let (place, item) = parts(path).filter(|_| !path.is_critic())?;
        let is_item = self.maps.contains_key(&place);
        self.steps.get(place).filter(|_| is_item == item.is_some()).map(|step| (place, step))
    }

    /// The steps in which a node does what it does, with what is behind the input of each: every round that it may have.
    pub(crate) fn paths(&self, place: usize) -> Vec<(StepPath, String)> {
        let rounds = |(base, item): (StepPath, String)| {
            self.rounds(place).map(move |round| (base.in_round(round), item.clone())).collect::<Vec<_>>()
        };
        self.bases(place).into_iter().flat_map(rounds).collect()
    }

    /// The first of these of the node, or of each of its items.
    pub(crate) fn bases(&self, place: usize) -> Vec<(StepPath, String)> {
        let node = format!("n{place}");
        match self.maps.get(&place) {
            None => vec![(node.as_str().into(), String::new())],
            Some(map) => {
                let item = |item| (StepPath::of_item(node.as_str().into(), item), format!("#{item}"));
                (0..map.count).map(item).collect()
            }
        }
    }

    /// What a map yields, as it is written in the inputs behind it.
    pub(crate) fn list(&self, place: usize, map: Map, input: &str, course: &Course) -> String {
        let item = |item: u32| match course.items.get(&(place, item)) {
            _ if map.skipped == Some(item) => "null".to_owned(),
            Some(Stand::Failed(code)) => format!("f{code}"),
            Some(Stand::Open | Stand::Completed | Stand::Skipped) | None => {
                self.given(place, Some(item), &format!("{input}#{item}"), course)
            }
        };
        (0..map.count).map(|place| format!("/{}", item(place))).collect()
    }

    /// Whether a failure under way forbids that a call of a step leaves.
    pub(crate) fn forbids(&self, failed: &StepPath, code: &str, call: &StepPath) -> bool {
        let Some((place, item)) = parts(failed) else { return true };
        if is_of_the_job(code) {
            return true;
        }
        match (item, self.maps.get(&place)) {
            (Some(_), Some(map)) => !map.collect && failed.node() == call.node(),
            _ => !self.rule(place).may_fail,
        }
    }
}

/// The order of a map's items in the events of its job, and what its end says of them.
pub(crate) fn in_order(job: JobId, program: &Program, events: &[Recorded], tally: &mut Tally) {
    for (place, map) in &program.maps {
        let node = StepPath::from(format!("n{place}").as_str());
        let (mut begun, mut ended) = (Vec::new(), BTreeMap::new());
        let mut failed: BTreeMap<u32, String> = BTreeMap::new();
        let mut case = |holds: bool, what: String| tally.case("M1", holds, || format!("{job} {node}: {what}"));
        for recorded in events {
            let item = |path: &StepPath| path.item().filter(|_| path.node() == node.node() && path.is_base());
            match &recorded.event {
                Event::NodeStarted(started) if started.node == node => {
                    let told = started.items.map(|items| (items.collect, items.count));
                    case(told == Some((map.collect, map.count)), format!("it begins with {told:?}"));
                }
                Event::NodeStarted(started) if started.number == 1 => {
                    let Some(item) = item(&started.node) else { continue };
                    case(failed.is_empty(), format!("item {item} begins, and {failed:?} have failed"));
                    begun.push(item);
                }
                Event::NodeSkipped(skipped) => {
                    let Some(item) = item(&skipped.node) else { continue };
                    case(map.skipped == Some(item), format!("item {item} is skipped"));
                    begun.push(item);
                    ended.insert(item, None);
                }
                // With a turn or a call that has failed its loop is to fail, and the map with that.
                Event::NodeFinished(finished) if !finished.node.is_outside_loop() => {
                    let of_map = finished.node.item().filter(|_| finished.node.node() == node.node());
                    let code = finished.error.as_ref().map(|error| error.code.clone());
                    // What is not told to its model of a call that was made may have happened.
                    let unknown = |code: String| match finished.node.call().is_some() && !is_of_the_job(&code) {
                        true => "in_doubt_unresolved".to_owned(),
                        false => code,
                    };
                    let code = code.map(unknown);
                    let lost = code.filter(|code| !map.collect || is_of_the_job(code));
                    if let Some((item, code)) = of_map.zip(lost).filter(|_| !finished.told && !finished.given_up) {
                        failed.entry(item).or_insert(code);
                    }
                }
                Event::NodeFinished(finished) if finished.node != node => {
                    let Some((path, _)) = end_of(finished) else { continue };
                    let Some(item) = item(&path) else { continue };
                    if !begun.contains(&item) {
                        begun.push(item);
                    }
                    let code = finished.error.as_ref().map(|error| error.code.clone());
                    case(!finished.given_up || !failed.is_empty(), format!("item {item} is given up for nothing"));
                    if let Some(code) = code.clone().filter(|_| !finished.given_up) {
                        let ends = !map.collect || is_of_the_job(&code);
                        failed.extend(ends.then_some((item, code)));
                    }
                    ended.insert(item, code);
                }
                Event::NodeFinished(finished) => {
                    let in_order: Vec<u32> = (0..u32::try_from(begun.len()).unwrap_or(u32::MAX)).collect();
                    case(begun == in_order, format!("its items began in the order {begun:?}"));
                    let all: BTreeSet<u32> = ended.keys().copied().collect();
                    case(all == begun.iter().copied().collect(), format!("{begun:?} began, and {all:?} have ended"));
                    let first = failed.values().next();
                    let said = finished.error.as_ref().map(|error| &error.code);
                    let own = begun.is_empty() && map.count > 0;
                    case(said == first || own, format!("it ends with {said:?}, and {failed:?} have failed"));
                    let whole = said.is_some() || all.len() == usize::try_from(map.count).unwrap_or(0);
                    case(whole, format!("it has completed with {all:?} of {}", map.count));
                }
                _ => {}
            }
        }
    }
}
