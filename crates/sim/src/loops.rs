//! Loops of programs: which nodes are one, what their models say, what they must come to, and what must hold of the questions
//! and calls that they are made of.

use std::collections::BTreeMap;

use aetheris_core::event::{Event, Recorded, ToolAsked};
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::Timestamp;
use aetheris_runtime::ModelRequest;
use aetheris_testing::random::Random;
use serde_json::json;

use crate::draw::drawn;
use crate::joins::Course;
use crate::oracle::Evidence;
use crate::program::{Kind, Program, Step, output_of};
use crate::tally::Tally;

/// That a node has a model call its tool by turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    /// How many calls of a turn run at once.
    pub parallel: u64,
    /// Whether its last word has a schema.
    pub schema: bool,
    /// How many turns it has; in one more the model may call nothing.
    pub turns: usize,
}

/// What the first last word of a loop with a schema is: it fits none.
const NO_WORD: [&str; 2] = ["I would rather not", "7"];
/// Most calls of one turn.
const CALLS_MAX: u32 = 3;
/// Most turns that ask for calls.
const TURNS_MAX: u32 = 3;

/// In some programs nodes that call a tool have a model call it. What is drawn of the others is not touched by it.
pub(crate) fn loops(steps: &[Step]) -> BTreeMap<usize, Loop> {
    let mut random = Random::new(drawn(steps).rotate_left(11));
    let mut loops = BTreeMap::new();
    if !random.chance(250) {
        return loops;
    }
    for (place, step) in steps.iter().enumerate() {
        if !matches!(step.kind, Kind::Tool { .. }) || !random.chance(700) {
            continue;
        }
        let turns = usize::try_from(random.between(1, 3)).unwrap_or(1);
        loops.insert(place, Loop { parallel: random.between(1, 3), schema: random.chance(300), turns });
    }
    loops
}

/// What a model asks for with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// Its tool, with this.
    Call(String),
    /// A tool that there is not.
    Nobody,
    /// Its tool, with arguments that do not fit.
    Misfit,
    /// Its tool, with arguments that are none.
    Nonsense,
}

/// The calls that a model asks for, turn by turn, when it is asked this.
fn script(prompt: &str) -> Vec<Vec<Wanted>> {
    let hash = Hash::of(format!("loop|{prompt}").as_bytes());
    let mut digits = hash.as_bytes().iter().map(|byte| u32::from(*byte));
    let mut next = |most: u32| digits.next().unwrap_or(0) % most;
    let turns = next(TURNS_MAX + 1);
    let call = |turn: u32, call: u32, what: u32| match what {
        0 => Wanted::Nobody,
        1 => Wanted::Nonsense,
        2 => Wanted::Misfit,
        _ => Wanted::Call(format!("{prompt}!{turn}.{call}")),
    };
    let of_turn = |turn: u32| (0..=next(CALLS_MAX)).map(|place| (turn, place)).collect::<Vec<_>>();
    let turns: Vec<Vec<(u32, u32)>> = (0..turns).map(of_turn).collect();
    turns
        .into_iter()
        .map(|calls| calls.into_iter().map(|(turn, place)| call(turn, place, next(12))).collect())
        .collect()
}

/// How a question in a turn is told apart from those of other turns.
pub(crate) fn question(prompt: &str, turn: usize) -> String {
    format!("{prompt}|turn{turn}")
}

/// What the model of a loop says.
pub(crate) fn say(request: &ModelRequest) -> (String, Vec<ToolAsked>) {
    let (turn, script) = (request.turns.len(), script(&request.prompt));
    if let Some(calls) = script.get(turn).filter(|_| request.may_call) {
        let tool = request.tools.first().map_or("", |tool| tool.name.as_str());
        let call = |(place, wanted): (usize, &Wanted)| {
            let (name, arguments) = match wanted {
                Wanted::Call(input) => (tool, json!({ "v": input }).to_string()),
                Wanted::Nobody => ("nobody", "{}".to_owned()),
                Wanted::Misfit => (tool, "{\"v\": 7}".to_owned()),
                Wanted::Nonsense => (tool, "{\"v\": ".to_owned()),
            };
            ToolAsked { arguments, id: format!("{turn}-{place}"), name: name.to_owned(), provider: None, tool: None }
        };
        return (format!("turn {turn}"), calls.iter().enumerate().map(call).collect());
    }
    let calls = request.turns.iter().flat_map(|turn| &turn.calls);
    let told: String = calls.map(|call| told(call.failed.then_some(&call.result), &call.result)).collect();
    let word = word(&request.prompt, &told);
    let refused = request.turns.last().is_some_and(|turn| turn.calls.is_empty());
    // It is told of its schema behind the system text, of which there is none else.
    match request.system.is_some() {
        false => (word, Vec::new()),
        true if request.may_call && !refused => {
            let which = usize::from(word.contains(['0', '1', '2', '3']));
            (NO_WORD[which].to_owned(), Vec::new())
        }
        true => (json!(word).to_string(), Vec::new()),
    }
}

/// What stands for a call in the last word: what it gave, or the code of the error that is told.
fn told(error: Option<&String>, result: &str) -> String {
    match error {
        Some(error) => {
            let code = error.rsplit_once('(').map_or("", |(_, code)| code.trim_end_matches(')'));
            format!("!{code}")
        }
        None => format!("+{result}"),
    }
}

fn word(prompt: &str, told: &str) -> String {
    output_of("loop", &format!("{prompt}{told}"))
}

impl Program {
    /// Whether a step is a loop, or a part of one.
    pub(crate) fn loop_of(&self, path: &StepPath) -> Option<Loop> {
        let place: usize = path.node().as_str().strip_prefix('n')?.parse().ok()?;
        self.loops.get(&place).copied().filter(|_| !path.is_critic())
    }

    /// What a step makes that is asked or called with this, in this round.
    pub(crate) fn makes(
        &self,
        place: usize,
        (item, round): (Option<u32>, u32),
        input: &str,
        course: &Course,
    ) -> String {
        let Some(of_loop) = self.loops.get(&place) else { return self.yields(place, input) };
        let failed = course.told.get(&(place, item, round));
        let mut all = String::new();
        for (turn, calls) in (0..).zip(script(input).iter().take(of_loop.turns)) {
            for (call, wanted) in (0..).zip(calls) {
                let code = failed.and_then(|failed| failed.get(&(turn, call)));
                all.push_str(&match (code, wanted) {
                    (Some(code), _) => format!("!{code}"),
                    (None, Wanted::Call(input)) => format!("+{}", output_of(&format!("t{place}"), input)),
                    (None, Wanted::Nobody | Wanted::Misfit | Wanted::Nonsense) => "!".to_owned(),
                });
            }
        }
        word(input, &all)
    }

    /// The calls that a step may be made of: of a loop each that it may ask for, else itself.
    pub(crate) fn calls_of(&self, place: usize, path: &StepPath) -> Vec<StepPath> {
        if !self.loops.contains_key(&place) {
            return vec![path.clone()];
        }
        (0..TURNS_MAX).flat_map(|turn| (0..=CALLS_MAX).map(move |call| path.at_call(turn, call))).collect()
    }

    /// How many calls of one node may be out at once.
    pub(crate) fn calls_at_once(&self, place: usize) -> u64 {
        let items = self.maps.get(&place).map_or(1, |map| map.concurrency);
        items * self.loops.get(&place).map_or(1, |of_loop| of_loop.parallel)
    }

    /// How often as long a node may take as one try of what it calls.
    pub(crate) fn calls_in_all(&self, place: usize) -> u64 {
        let loops = self.loops.contains_key(&place);
        if loops { u64::from(TURNS_MAX * (CALLS_MAX + 1)) } else { 1 }
    }
}

/// When the ends of steps were stored.
fn ends(events: &[Recorded]) -> BTreeMap<StepPath, Timestamp> {
    let end = |recorded: &Recorded| match &recorded.event {
        Event::NodeFinished(finished) => Some((finished.node.clone(), recorded.at)),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

/// A turn is asked once all before it is stored, and not again once its answer is, by a run that could know it (S6, C6). What a model is
/// told to have failed has not happened, and what it is not told of was no mistake of its own (L1).
pub(crate) fn examine(
    evidence: &Evidence<'_>,
    events: &[Recorded],
    (job, program, prompts): (JobId, &Program, &BTreeMap<StepPath, String>),
    tally: &mut Tally,
) {
    let stale = evidence.rates.stops > 0 || evidence.rates.nemesis > 0;
    let ends = ends(events);
    for (path, prompt) in prompts.iter().filter(|_| !evidence.rates.jumps) {
        for (turn, number) in (0_u32..).zip(0..=usize::try_from(TURNS_MAX).unwrap_or(0) + 1) {
            let before: Vec<Option<Timestamp>> = match turn.checked_sub(1) {
                None => Vec::new(),
                Some(last) => {
                    let calls = script(prompt).get(number - 1).map_or(0, Vec::len);
                    let calls = (0..u32::try_from(calls).unwrap_or(0)).map(|call| path.at_call(last, call));
                    // A turn in which the model could not ask for them has none.
                    let asked = calls.filter(|call| ends.contains_key(call) || !was_last(program, path, last));
                    std::iter::once(path.at_turn(last)).chain(asked).map(|path| ends.get(&path).copied()).collect()
                }
            };
            let answered = ends.get(&path.at_turn(turn)).copied();
            for asked in evidence.services.asked(&question(prompt, number)) {
                tally.case("S6", before.iter().all(|end| end.is_some_and(|end| end <= asked.left)), || {
                    format!(
                        "{job} {path}: turn {turn} was asked at {}, what is before it is stored since {before:?}",
                        asked.left
                    )
                });
                tally.case("C6", stale || answered.is_none_or(|at| asked.answered <= at), || {
                    format!("{job} {path}: turn {turn} was asked at {asked:?}, its answer was recorded at {answered:?}")
                });
            }
        }
    }
    for recorded in events {
        let Event::NodeFinished(finished) = &recorded.event else { continue };
        let Some((_, step)) = program.step_at(&finished.node).filter(|_| finished.node.call().is_some()) else {
            continue;
        };
        let Kind::Tool { class, .. } = step.kind else { continue };
        let code = finished.error.as_ref().map_or("", |error| error.code.as_str());
        let mistake = code == "unknown_tool" || code == "invalid_arguments";
        let acts = evidence.services.known(IdempotencyKey::derive(job, &finished.node, 0)).acts;
        let right = match finished.told {
            true => !finished.result.is_success() && (class == EffectClass::Pure || acts == 0),
            false => !mistake,
        };
        tally.case("L1", right, || {
            format!("{job} {}: told: {}, it ended with `{code}` and acted {acts} times", finished.node, finished.told)
        });
    }
}

/// Whether the model could ask for nothing in a turn.
fn was_last(program: &Program, path: &StepPath, turn: u32) -> bool {
    let turns = program.loop_of(path).map_or(0, |of_loop| of_loop.turns);
    usize::try_from(turn).is_ok_and(|turn| turn >= turns)
}
