//! What a run came to: both checkers, whether they agree, and what clients and tools say of every job.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_check::{ClientHistory, Invariant, WitnessLine};
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::path::StepPath;
use aetheris_plain::Checked;

use super::client::Outcome;
use super::programs::Program;

/// How many of a kind of problem are told.
const TOLD_MAX: usize = 20;

/// What the jobs came to, by clients and tools.
#[derive(Debug, Default)]
pub struct Jobs {
    /// Effects that a completed job must have had and no tool has seen, and jobs that are nowhere.
    pub lost: u64,
    /// Keys on which an `at_most_once` tool acted more often than it was permitted to, and second jobs.
    pub duplicated: u64,
    /// Further bodies after a recorded proof that the first had not happened.
    pub after_disproof: u64,
    /// What is wrong, in words.
    pub problems: Vec<String>,
    /// How the jobs ended.
    pub ends: BTreeMap<String, u64>,
}

impl Jobs {
    fn problem(&mut self, text: String) {
        if self.problems.len() < TOLD_MAX {
            self.problems.push(text);
        }
    }
}

/// Compares what became of every job with what its program may come to, and its ledger steps with what the
/// tools saw.
#[must_use]
pub fn jobs(
    outcomes: &[Outcome],
    programs: &BTreeMap<String, Program>,
    witness: &[WitnessLine],
    history: &ClientHistory,
    checked: &Checked,
) -> Jobs {
    let mut bodies: BTreeMap<IdempotencyKey, u64> = BTreeMap::new();
    for line in witness.iter().filter(|line| line.is_act()) {
        *bodies.entry(line.key).or_default() += 1;
    }
    let mut found = Jobs::default();
    let driven: BTreeSet<JobId> = outcomes.iter().map(|outcome| outcome.job).collect();
    let accepted: BTreeSet<JobId> = history.submissions.iter().map(|submission| submission.job).collect();
    for job in accepted.difference(&driven) {
        found.lost += 1;
        found.problem(format!("{job} was accepted and came to no end"));
    }
    for outcome in outcomes {
        let status = if outcome.left { "left" } else { outcome.view["status"].as_str().unwrap_or("?") };
        let code = outcome.view["error"]["code"].as_str().unwrap_or_default();
        *found.ends.entry(format!("{status} {code}").trim().to_owned()).or_default() += 1;
        let Some(program) = programs.get(&outcome.agent) else { continue };
        if let Some(problem) = outcome.problem(program) {
            found.problem(problem);
        }
        effects(outcome, program, &bodies, &mut found);
    }
    let twice = checked.violated(Invariant::C1) + checked.violated(Invariant::D5);
    found.duplicated += twice;
    found.lost += checked.violated(Invariant::B3) + checked.violated(Invariant::E1);
    found.after_disproof = checked.evidence.number(SECOND_BODIES).unwrap_or(0);
    found
}

const SECOND_BODIES: &str = "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM acts a WHERE EXISTS (SELECT 1 \
    FROM permits p WHERE p.job = a.job AND p.key = a.key AND p.effect = 'at_most_once') GROUP BY job, key)";

fn effects(outcome: &Outcome, program: &Program, bodies: &BTreeMap<IdempotencyKey, u64>, found: &mut Jobs) {
    let completed = outcome.view["status"] == "completed";
    for call in &program.calls {
        let key = IdempotencyKey::derive(outcome.job, &StepPath::from(call.node.as_str()), 0);
        let seen = bodies.get(&key).copied().unwrap_or(0);
        if call.skipped && seen > 0 {
            found.duplicated += 1;
            found.problem(format!("{} node {}: it was skipped, and {seen} bodies ran", outcome.job, call.node));
        }
        if completed && !call.skipped && seen == 0 {
            found.lost += 1;
            found.problem(format!("{} node {}: the job has completed and no body ran", outcome.job, call.node));
        }
    }
}
