//! Outputs of programs that are judged: how that is drawn, what the rounds must come to, and what the events of a job may say
//! of them.

use std::collections::BTreeMap;

use aetheris_core::event::{Event, NodeFinished, Recorded, Verdict};
use aetheris_core::id::JobId;
use aetheris_core::path::StepPath;
use aetheris_testing::random::Random;

use crate::draw::drawn;
use crate::joins::{Course, Stand};
use crate::maps::Map;
use crate::oracle::Evidence;
use crate::program::{Kind, Program, Step, output_of};
use crate::tally::Tally;

/// By what the output of a node is judged, and how often its work is done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judging {
    /// A critic is asked.
    pub critic: bool,
    /// How often it is done again at most.
    pub most: u32,
    /// A schema is asked.
    pub schema: bool,
}

/// What the rounds of nodes and items yield, up to the first that is accepted, and whether that is.
pub(crate) type Tried = BTreeMap<StepPath, (Vec<String>, bool)>;

/// What a schema accepts: how the text ends.
pub(crate) const PATTERN: &str = "[2-9a-d]$";

/// In some programs outputs are judged, those of items by a schema alone. What is drawn of the others is not touched by it.
pub(crate) fn judged(steps: &[Step], maps: &BTreeMap<usize, Map>) -> BTreeMap<usize, Judging> {
    let mut random = Random::new(drawn(steps).rotate_left(53));
    let mut judged = BTreeMap::new();
    if !random.chance(250) {
        return judged;
    }
    for (place, step) in steps.iter().enumerate() {
        let can = matches!(step.kind, Kind::Tool { .. } | Kind::Model | Kind::Transform);
        if !can || !random.chance(600) {
            continue;
        }
        let (critic, schema) = (random.chance(600) && !maps.contains_key(&place), random.chance(600));
        let most = u32::try_from(random.between(0, 3)).unwrap_or(0);
        judged.insert(place, Judging { critic, most, schema: schema || !critic });
    }
    judged
}

/// Whether a schema accepts an output, found without one.
fn fits(output: &str) -> bool {
    output.chars().next_back().is_some_and(|last| ('2'..='9').contains(&last) || ('a'..='d').contains(&last))
}

/// What the critic says of an output. Some of its answers are no verdicts.
pub(crate) fn verdict_of(output: &str) -> String {
    let feedback = output_of("critic", output);
    match feedback.chars().next() {
        Some('0'..='3') => format!("{{\"verdict\":\"reject\",\"feedback\":\"{feedback}\"}}"),
        Some('4') => format!("I would not say so of {output}"),
        Some('5') => format!("{{\"verdict\":\"passed\",\"feedback\":\"{feedback}\"}}"),
        _ => "{\"verdict\":\"pass\"}".to_owned(),
    }
}

fn passes(output: &str) -> bool {
    verdict_of(output).contains("\"verdict\":\"pass\"")
}

/// The question to the critic.
pub(crate) fn question(output: &str) -> String {
    format!("judge {output}")
}

/// The output that a question is about.
pub(crate) fn asked_about(prompt: &str) -> Option<&str> {
    prompt.strip_prefix("judge ")
}

impl Program {
    /// What stands behind the input of a round.
    pub(crate) fn of_round(&self, place: usize, round: u32) -> String {
        match (self.judged.get(&place), round) {
            (None, _) => String::new(),
            (Some(_), 0) => "^0".to_owned(),
            (Some(_), round) => format!("^t{round}"),
        }
    }

    /// The rounds that a node or an item may have.
    pub(crate) fn rounds(&self, place: usize) -> std::ops::RangeInclusive<u32> {
        0..=self.judged.get(&place).map_or(0, |judging| judging.most)
    }

    /// What the rounds of a node or an item yield, up to the first that is accepted, and whether that is.
    pub(crate) fn tried(&self, place: usize, yields: impl Fn(u32) -> String) -> (Vec<String>, bool) {
        let Some(judging) = self.judged.get(&place) else { return (vec![yields(0)], true) };
        let mut outputs = Vec::new();
        for round in self.rounds(place) {
            let output = yields(round);
            let accepted = (!judging.schema || fits(&output)) && (!judging.critic || passes(&output));
            outputs.push(output);
            if accepted {
                return (outputs, true);
            }
        }
        (outputs, false)
    }
}

/// The node or the item that has ended, and how; nothing where its output is judged still, or was rejected.
pub(crate) fn end_of(finished: &NodeFinished) -> Option<(StepPath, Stand)> {
    if !finished.node.is_outside_loop() {
        return None;
    }
    match finished.verdict {
        Some(Verdict::Pending | Verdict::Reject) => return None,
        Some(Verdict::Pass) | None => {}
    }
    let failed = finished.error.as_ref().filter(|_| !finished.result.is_success());
    let stand = failed.map_or(Stand::Completed, |error| Stand::Failed(error.code.clone()));
    Some((finished.node.base(), stand))
}

/// What the events say of rounds: as many as the program makes, and none after an output that was taken.
pub(crate) fn in_order(job: JobId, program: &Program, events: &[Recorded], tried: &Tried, tally: &mut Tally) {
    let mut rounds: BTreeMap<StepPath, u32> = BTreeMap::new();
    let mut ends: BTreeMap<StepPath, Stand> = BTreeMap::new();
    for recorded in events {
        match &recorded.event {
            Event::NodeRefining(e) => {
                let before = rounds.insert(e.node.clone(), e.round).unwrap_or(0);
                let open = !ends.contains_key(&e.node);
                tally.case("R1", e.round == before + 1 && open, || {
                    format!("{job} {}: round {} follows round {before}, open: {open}", e.node, e.round)
                });
            }
            Event::NodeFinished(finished) => {
                let Some((path, mut stand)) = end_of(finished) else { continue };
                if finished.given_up {
                    stand = Stand::Failed("given up".to_owned());
                }
                ends.insert(path, stand);
            }
            _ => {}
        }
    }
    for (path, (outputs, accepted)) in tried {
        let refined = rounds.get(path).copied().unwrap_or(0);
        let made = u32::try_from(outputs.len()).unwrap_or(u32::MAX).saturating_sub(1);
        let right = match ends.get(path) {
            Some(Stand::Completed) => *accepted && refined == made,
            Some(Stand::Failed(code)) if code == "rejected" => !accepted && refined == made,
            Some(Stand::Failed(_) | Stand::Skipped | Stand::Open) | None => refined <= made,
        };
        tally.case("R1", right, || {
            let end = ends.get(path);
            format!("{job} {path}: {refined} rounds and {end:?}; its program makes {outputs:?}, accepted: {accepted}")
        });
    }
    let judged = |path: &&StepPath| !path.is_planning() || !program.planner.is_model();
    let unjudged = rounds.keys().filter(judged).find(|path| !tried.contains_key(*path) || program.judged.is_empty());
    tally.case("R1", unjudged.is_none(), || format!("{job}: {unjudged:?} is refined, and nothing judges it"));
}

/// What each node and item whose output is judged must come to.
pub(crate) fn expected(program: &Program, message: &str, outputs: &[Option<String>], course: &Course) -> Tried {
    let mut expected = Tried::new();
    for place in program.judged.keys().copied() {
        let input = program.input(place, message, outputs, course);
        for (path, item) in program.bases(place) {
            let yields = |round| {
                let drawn = course.drawn(place, path.item(), round);
                let prompt = format!("{input}{item}{drawn}{}", program.of_round(place, round));
                program.makes(place, (path.item(), round), &prompt, course)
            };
            expected.insert(path.clone(), program.tried(place, yields));
        }
    }
    expected
}

/// No question about an output leaves before that is stored, and none is put again once the critic's answer is, by a run that
/// could know it.
pub(crate) fn critics_asked_once(
    evidence: &Evidence<'_>,
    events: &[Recorded],
    (job, tried): (JobId, &Tried),
    tally: &mut Tally,
) {
    let stale = evidence.rates.stops > 0 || evidence.rates.nemesis > 0;
    if evidence.rates.jumps {
        return;
    }
    let stored = |path: &StepPath| {
        events.iter().find_map(|recorded| match &recorded.event {
            Event::NodeFinished(finished) if finished.node == *path => Some(recorded.at),
            _ => None,
        })
    };
    for (base, (outputs, _)) in tried {
        for (round, output) in (0..).zip(outputs) {
            let path = base.in_round(round);
            let (given, answered) = (stored(&path), stored(&path.critic()));
            for asked in evidence.services.asked(&question(output)) {
                tally.case("S6", given.is_some_and(|given| given <= asked.left), || {
                    format!(
                        "{job} {path}: its critic was asked at {}, its output is stored since {given:?}",
                        asked.left
                    )
                });
                tally.case("C6", stale || answered.is_none_or(|at| asked.answered <= at), || {
                    format!("{job} {path}: its critic was asked at {asked:?}, its answer was recorded at {answered:?}")
                });
            }
        }
    }
}
