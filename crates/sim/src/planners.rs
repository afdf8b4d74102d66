//! Programs whose plan does not stand in their agent's file: what the planner says, and what must hold of it.

use std::collections::BTreeMap;

use aetheris_core::event::{Event, Recorded, WaitEnd};
use aetheris_core::id::JobId;
use aetheris_core::path::StepPath;
use aetheris_core::time::Timestamp;
use aetheris_runtime::ModelRequest;
use aetheris_testing::random::Random;
use serde_json::Value;

use crate::draw::drawn;
use crate::oracle::Evidence;
use crate::program::{Program, Step};
use crate::tally::Tally;

/// Who makes the plans of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planner {
    /// Its file has the plan.
    #[default]
    Static,
    /// Its file has rules, the last of which has the plan.
    Rules,
    /// A model.
    Model {
        /// Whether a person is asked about the plan.
        review: bool,
        /// How many plans it makes that cannot be, before it makes the one that is meant.
        wrong: usize,
    },
}

/// Plans that are asked for at most.
const ATTEMPTS: u64 = 8;
/// What the question of a planner begins with.
const QUESTION: &str = "plan|";

/// In some programs a model makes the plan, or rules choose it. What is drawn of the others is not touched by it.
pub(crate) fn planner(steps: &[Step]) -> Planner {
    let mut random = Random::new(drawn(steps).rotate_left(37));
    if !random.chance(150) {
        return Planner::Static;
    }
    if random.chance(300) {
        return Planner::Rules;
    }
    let wrong = usize::try_from(random.below(6).saturating_sub(2)).unwrap_or(0);
    Planner::Model { review: random.chance(400), wrong }
}

impl Planner {
    pub(crate) fn is_model(self) -> bool {
        matches!(self, Self::Model { .. })
    }

    /// How long planning may take where nothing fails, in milliseconds.
    pub(crate) fn longest(self) -> u64 {
        match self {
            Self::Static | Self::Rules => 0,
            Self::Model { review, .. } => ATTEMPTS * (60_000 + if review { crate::people::ANSWER_MAX } else { 0 }),
        }
    }

    /// The part of an agent file that has the plan, or what makes it.
    pub(crate) fn write(self, program: &Program, plan: &str) -> String {
        let indented = |by: &str| plan.lines().map(|line| format!("{by}{line}\n")).collect::<String>();
        match self {
            Self::Static => format!("plan:\n{}", indented("  ")),
            Self::Rules => format!(
                "rules:\n  - when: \"message == 'nobody'\"\n    plan: {{ nodes: [ {{ id: none, kind: transform, output: x }} ] }}\n  - plan:\n{}",
                indented("      ")
            ),
            Self::Model { review, .. } => format!(
                "planning:\n  prompt: \"{QUESTION}{}|{}|{{{{ job.id }}}}\"\n  max_attempts: {ATTEMPTS}\n  plan_review: {}\n  kinds: [agent, condition, \
                 critic, job, llm, map, sleep, tool, transform, wait]\n",
                program.name,
                program.version,
                if review { "human" } else { "none" }
            ),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Rules => "rules",
            Self::Model { .. } => "llm",
        }
    }
}

/// The program that a planner is asked about: its name and version.
pub(crate) fn asked_about(prompt: &str) -> Option<(String, String)> {
    let mut parts = prompt.strip_prefix(QUESTION)?.split('|');
    Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
}

/// How a question to a planner is told apart from those before it.
pub(crate) fn question(prompt: &str, round: usize) -> String {
    format!("{prompt}|round{round}")
}

/// What the planner of a program says.
pub(crate) fn say(program: &Program, request: &ModelRequest) -> String {
    let round = request.turns.len();
    let Planner::Model { wrong, .. } = program.planner else { return String::new() };
    let plan = program.plan_text();
    if round >= wrong {
        let plan: Value = serde_saphyr::from_str(&plan).unwrap_or_default();
        return plan.to_string();
    }
    match round % 3 {
        0 => "I would rather not".to_owned(),
        1 => r#"{"nodes": [{"id": "n0", "kind": "transform", "output": 1, "needs": ["nobody"]}]}"#.to_owned(),
        _ => r#"{"nodes": [{"id": "n0", "kind": "tool", "tool": "nobody"}]}"#.to_owned(),
    }
}

/// A planner is asked once all before it is stored, and not again once its answer is (S6, C6); and what is reviewed is
/// recorded as the plan only behind an approval (P1).
pub(crate) fn examine(
    evidence: &Evidence<'_>,
    events: &[Recorded],
    (job, program): (JobId, &Program),
    tally: &mut Tally,
) {
    let Planner::Model { review, .. } = program.planner else { return };
    let stale = evidence.rates.stops > 0 || evidence.rates.nemesis > 0;
    let mut ends: BTreeMap<StepPath, Timestamp> = BTreeMap::new();
    let (mut approved, mut recorded_unapproved) = (false, false);
    let mut asked_at = None;
    for recorded in events {
        match &recorded.event {
            Event::NodeFinished(finished) if finished.result.is_success() => {
                ends.entry(finished.node.clone()).or_insert(recorded.at);
            }
            Event::JobWaiting(waiting) if waiting.node.is_planning() => asked_at = Some(recorded.at),
            Event::WaitCompleted(ended) if ended.node.is_planning() => {
                let WaitEnd::Signal { payload, .. } = &ended.by else { continue };
                approved = payload.get("approved").and_then(Value::as_bool) == Some(true);
                // What ends it in the unit in which it begins was said before there was a plan.
                let seen = evidence.rates.jumps || asked_at.is_some_and(|at| at < recorded.at);
                tally.case("P1", seen, || format!("{job}: its plan was approved before it was made"));
            }
            Event::PlanGenerated(_) => recorded_unapproved |= !approved,
            _ => {}
        }
    }
    tally.case("P1", !review || !recorded_unapproved, || {
        format!("{job}: its plan was recorded, and nobody had approved of it")
    });
    let prompt = format!("{QUESTION}{}|{}|{job}", program.name, program.version);
    let base = StepPath::planning();
    for round in (0_u32..).take(usize::try_from(ATTEMPTS).unwrap_or(1)).filter(|_| !evidence.rates.jumps) {
        let number = usize::try_from(round).unwrap_or(0);
        let before = round.checked_sub(1).map(|last| ends.get(&base.in_round(last)).copied());
        let answered = ends.get(&base.in_round(round)).copied();
        for asked in evidence.services.asked(&question(&prompt, number)) {
            let in_order = before.is_none_or(|end| end.is_some_and(|end| end <= asked.left));
            tally.case("S6", in_order, || {
                format!(
                    "{job}: plan {round} was asked for at {}, the one before is stored since {before:?}",
                    asked.left
                )
            });
            tally.case("C6", stale || answered.is_none_or(|at| asked.answered <= at), || {
                format!("{job}: plan {round} was asked for at {asked:?}, it was recorded at {answered:?}")
            });
        }
    }
}
