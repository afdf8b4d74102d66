//! Cases of each invariant, and what contradicts them.

use std::collections::BTreeMap;

use aetheris_check::Report;

/// The invariants that this crate looks at beside those of the checker. A batch in which one of them has no
/// case has not tested it. Its own are: S1, a proof of death takes every job of the dead back; S2, none is taken back for
/// its lease from a process that lived, went on and was answered; S3, a call leaves within the margin of its
/// permit; S4, a doubt whose answer is stored is not open; S5, an answer is kept once; S6, a call or a question that leaves
/// its process does so behind the stored ends of the nodes that its step needs; S7, a call leaves once under a
/// permit, which is stored, whatever the other side said; S8, none leaves once a step of its job has failed; S9, no more of them
/// are out at once than the job's plan allows. D15: a job fails with the first of its failed steps, by name, and with none that may
/// fail. J1: a node begins or is skipped as its join says; J2: what it tells of those before it is so. K1: a child is created once, as the step that asked for it says, and none without one; K2: who waits for one is told once how it has ended;
/// K3: at the end nothing that was promised is left to be done. L1: what a model is told to have failed has not happened. M1: the items of a map
/// begin in their order, none once one has failed that ends it, and it fails with the first that failed. R1: an output is made again as often as it is
/// rejected, and no round follows one that was taken. V1: a value that nobody can
/// compute again is drawn for a step once. T1 to T5 are about what is told: the status
/// of a job whose message is repeated, the refusal of another message under the same name, lists, whether late evidence
/// contradicts the job, that a signal for a wait of the plan is taken, that a message which does not fit makes no job, that no
/// wait ends with what it does not accept, and (T8) that a job is not there for another tenant. ROUND: what the checker asks of the whole store in the middle of the
/// storm.
pub const IDS: [&str; 54] = [
    "A1", "A2", "A4", "A5", "A7", "A9", "ALWAYS", "B1", "B5", "C1", "C2", "C5", "C6", "C7", "C9", "D11", "D12", "D13",
    "D14", "D15", "D7", "E4", "E6", "E7", "F6", "H1", "J1", "J2", "K1", "K2", "K3", "L1", "M1", "P1", "R1", "ROUND",
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "V1",
];

/// What is looked at beside these where the store has a file: whether jobs of a session began in their turn, and others not
/// before their time. Of what the second checker finds each query has to have had cases (`plain`).
pub const IDS_OF_A_FILE: [&str; 2] = ["TURNS", "LATER"];

/// How many violations of one run are told.
const TOLD_MAX: usize = 50;

/// Cases of each invariant, and what contradicts them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many cases were looked at by this crate.
    pub cases: BTreeMap<&'static str, u64>,
    /// How many the checker has looked at: a case of one is none of the other, whatever both are called.
    pub checked: BTreeMap<&'static str, u64>,
    /// How many each query of the second checker has looked at.
    pub plain: BTreeMap<&'static str, u64>,
    /// What is wrong, in words.
    pub violations: Vec<String>,
}

impl Tally {
    /// Counts a case.
    pub fn case(&mut self, id: &'static str, holds: bool, what: impl FnOnce() -> String) {
        self.add(id, 1);
        if !holds && self.violations.len() < TOLD_MAX {
            self.violations.push(format!("{id} {}", what()));
        }
    }

    /// Takes in cases that someone else has counted.
    pub fn add(&mut self, id: &'static str, cases: u64) {
        *self.cases.entry(id).or_default() += cases;
    }

    /// Takes in what someone else has found.
    pub fn merge(&mut self, other: Self) {
        other.cases.into_iter().for_each(|(id, cases)| self.add(id, cases));
        other.plain.into_iter().for_each(|(id, cases)| *self.plain.entry(id).or_default() += cases);
        other.checked.into_iter().for_each(|(id, cases)| *self.checked.entry(id).or_default() += cases);
        self.violations.extend(other.violations);
    }

    pub(crate) fn take_report(&mut self, report: &Report) {
        for line in &report.lines {
            *self.checked.entry(line.id.id()).or_default() += line.examined;
            self.violations.extend(line.violations.iter().map(|violation| format!("{} {violation}", line.id)));
        }
    }
}
