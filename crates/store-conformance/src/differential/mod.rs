//! Two stores under the same random operations: equal answers and equal rows after each.
//!
//! One of the two is usually the reference model. Operations are written by the reducer, as a runtime
//! would write them, and some are spoiled afterwards; a run ends only when every kind of operation has
//! been accepted and every kind of refusal has been met. [`actions`] has the operations, [`spoil`] what
//! is done to them, [`steps`] those of a run, [`kinds`] has those of jobs that do more than call and wait, [`world`] what both stores are believed to hold.

mod actions;
mod compare;
mod kinds;
mod spoil;
mod steps;
mod world;

use std::collections::BTreeMap;

use aetheris_store::Store;
use aetheris_store::system::ManualClock;
use world::World;

/// Every kind of operation that a run has to have seen accepted.
pub const OPERATIONS: [&str; 37] = [
    "advance",
    "ask",
    "block",
    "call_of_turn",
    "cancel",
    "checkpoint",
    "child",
    "claim",
    "create",
    "create_child",
    "delete_agent",
    "deposit",
    "doubt",
    "finish",
    "heartbeat",
    "keep",
    "not_done",
    "pause",
    "permit",
    "plan",
    "put_agent",
    "reclaim_dead",
    "reclaim_expired",
    "record",
    "request_end",
    "request_pause",
    "requeue",
    "resolve",
    "resume",
    "round",
    "settle",
    "signal_deliver",
    "signal_keep",
    "timer_fire",
    "timer_set",
    "turn",
    "value",
];

/// Every way in which a run has to have seen a unit not accepted.
pub const REFUSALS: [&str; 20] = [
    "arguments_differ",
    "bound",
    "can_still_arrive",
    "delivered",
    "duplicate",
    "illegal",
    "invalid",
    "key_conflict",
    "lease_expired",
    "missing",
    "not_due",
    "other_instance",
    "other_permit",
    "parent_ended",
    "sequence",
    "signal_kept",
    "stale",
    "still_live",
    "unknown_job",
    "unknown_plan",
];

/// The kinds of answers to a unit: accepted, an old fence or a lease that is over, something that was written
/// in between, something that is not there, a bound, nonsense.
pub const ANSWERS: [&str; 6] = ["ok", "stale", "conflict", "not_found", "limit", "invalid"];

/// What a run has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations accepted, by kind.
    pub operations: BTreeMap<&'static str, u64>,
    /// Answers, by the kind of operation and the kind of answer: see [`ANSWERS`].
    pub answers: BTreeMap<(&'static str, &'static str), u64>,
    /// Units not accepted, by kind.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Operations in all.
    pub steps: usize,
}

impl Report {
    /// Adds what another run has done.
    pub fn add(&mut self, other: &Self) {
        let sum = |into: &mut BTreeMap<&'static str, u64>, from: &BTreeMap<&'static str, u64>| {
            from.iter().for_each(|(kind, count)| *into.entry(kind).or_insert(0) += count);
        };
        sum(&mut self.operations, &other.operations);
        sum(&mut self.refusals, &other.refusals);
        other.answers.iter().for_each(|(kind, count)| *self.answers.entry(*kind).or_insert(0) += count);
        self.steps += other.steps;
    }

    /// How often an operation has had an answer.
    pub(super) fn count(&self, kind: &'static str, answer: &'static str) -> u64 {
        self.answers.get(&(kind, answer)).copied().unwrap_or(0)
    }

    /// What occurred less often than so: operations, refusals, and answers to each kind of unit.
    #[must_use]
    pub fn rarer_than(&self, often: u64) -> Vec<(&'static str, &'static str, u64)> {
        let count = |of: &BTreeMap<&'static str, u64>, kind: &str| of.get(kind).copied().unwrap_or(0);
        let operations = OPERATIONS.iter().map(|kind| (*kind, "", count(&self.operations, kind)));
        let refusals = REFUSALS.iter().map(|kind| (*kind, "", count(&self.refusals, kind)));
        let units = OPERATIONS.iter().filter(|kind| !NO_UNITS.contains(kind));
        let answers = units.flat_map(|kind| ANSWERS.map(|answer| (*kind, answer, self.count(kind, answer))));
        operations.chain(refusals).chain(answers).filter(|(_, _, count)| *count < often).collect()
    }

    /// The kinds that have not occurred.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let operations = OPERATIONS.iter().filter(|kind| !self.operations.contains_key(**kind));
        let refusals = REFUSALS.iter().filter(|kind| !self.refusals.contains_key(**kind));
        operations.chain(refusals).copied().collect()
    }
}

/// Operations that are no units.
pub(super) const NO_UNITS: [&str; 6] = ["advance", "claim", "delete_agent", "heartbeat", "put_agent", "settle"];

/// How many jobs' rows are compared in full: those that an operation names after each, all of them this
/// often. What lists show of all jobs is compared after each.
const FULL_EVERY: usize = 32;

/// Runs at least `steps` random operations on two fresh stores that share a clock, and goes on until
/// everything in [`OPERATIONS`] and [`REFUSALS`] has occurred.
///
/// # Panics
/// At the first difference, with the seed and the operation.
pub async fn run(seed: u64, steps: usize, a: &dyn Store, b: &dyn Store, clock: &ManualClock) -> Report {
    let mut world = World::new(seed, a, b, clock);
    let bound = steps.saturating_mul(8).max(20_000);
    while world.report.steps < steps || !world.report.missing().is_empty() {
        let missing = world.report.missing();
        assert!(world.report.steps < bound, "seed {seed}: after {bound} operations there was no {missing:?}");
        world.report.steps += 1;
        let operation = actions::step(&mut world).await;
        let everything = world.report.steps.is_multiple_of(FULL_EVERY);
        compare::rows(&world, &operation, everything).await;
    }
    compare::rows(&world, &actions::Operation::named("the end"), true).await;
    world.report
}

/// Runs exactly `steps` random operations on two fresh stores that share a clock, and adds what was done to a
/// report over several seeds; what it does depends on the seed alone. Kinds of units and answers that are rare
/// within the seed are sought. After each operation its answers,
/// and the rows and timers of the jobs that it names are compared (a row has the head of the chain over all
/// events); every eighth time everything of these jobs and all lists; every 64th time, and at the end,
/// everything.
///
/// # Panics
/// At the first difference, with the seed and the operation.
pub async fn batch(
    seed: u64,
    steps: usize,
    report: &mut Report,
    (a, b): (&dyn Store, &dyn Store),
    clock: &ManualClock,
) {
    let mut world = World::new(seed, a, b, clock);
    for step in 1..=steps {
        world.report.steps += 1;
        let operation = actions::step(&mut world).await;
        if step.is_multiple_of(LISTS_EVERY) {
            compare::rows(&world, &operation, step.is_multiple_of(2 * FULL_EVERY)).await;
        } else {
            compare::heads(&world, &operation).await;
        }
    }
    compare::rows(&world, &actions::Operation::named("the end"), true).await;
    report.add(&world.report);
}

/// How often [`batch`] compares what lists show.
const LISTS_EVERY: usize = 8;
