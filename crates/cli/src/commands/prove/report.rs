//! What was proved: as a page for people, as markdown, and as one JSON value.

use std::collections::BTreeMap;

use aetheris_check::{Invariant, Line};
use serde::Serialize;

use super::cases::{Cases, Count};
use super::experiments::Experiment;
use super::machine::Machine;
use crate::commands::guarantee::Guarantee;
use crate::error::counted;
use crate::render::{Style, Table, Tone};

/// How a report begins.
pub(super) const TITLE: &str = "# aetheris prove";

/// What came of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Every case holds, and there were some.
    Holds,
    /// Something contradicts it.
    DoesNotHold,
    /// There were no cases, though there should have been.
    NotExamined,
    /// It was not asked for.
    NotAsked,
}

impl Verdict {
    /// Of a count, where cases were expected or not.
    pub(super) const fn of(examined: u64, failed: u64, asked: bool) -> Self {
        match (examined, failed, asked) {
            (0, 0, false) => Self::NotAsked,
            (0, 0, true) => Self::NotExamined,
            (_, 0, _) => Self::Holds,
            _ => Self::DoesNotHold,
        }
    }

    /// In words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "DOES NOT HOLD",
            Self::NotExamined => "NOT EXAMINED",
            Self::NotAsked => "not asked",
        }
    }

    pub(super) const fn tone(self) -> Tone {
        match self {
            Self::Holds => Tone::Good,
            Self::DoesNotHold | Self::NotExamined => Tone::Bad,
            Self::NotAsked => Tone::Dim,
        }
    }

    /// Whether nothing is proved by it, or something disproved.
    pub(super) const fn is_bad(self) -> bool {
        matches!(self, Self::DoesNotHold | Self::NotExamined)
    }
}

/// An experiment that was run.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    #[serde(skip)]
    pub(super) cases: Cases,
    #[serde(rename = "cases")]
    pub(super) examined: u64,
    /// Its folder below the evidence, with databases, logs and the tools' log.
    pub(super) folder: &'static str,
    #[serde(skip)]
    pub(super) invariants: Vec<Line>,
    pub(super) name: &'static str,
    pub(super) notes: Vec<String>,
    pub(super) seconds: f64,
    pub(super) verdict: Verdict,
    pub(super) what: &'static str,
}

/// A row of the guarantee table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) guarantee: Guarantee,
    pub(super) promise: &'static str,
    pub(super) cases: u64,
    pub(super) verdict: Verdict,
    pub(super) experiments: Vec<&'static str>,
    pub(super) failures: Vec<String>,
}

/// Everything.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) proved: bool,
    pub(super) version: &'static str,
    pub(super) at: String,
    pub(super) seconds: f64,
    /// Where the store is, beside which it was done.
    pub(super) beside: String,
    pub(super) durability: String,
    /// Whether all experiments were asked for.
    pub(super) whole: bool,
    pub(super) settings: Vec<String>,
    pub(super) machine: Machine,
    pub(super) guarantees: Vec<Row>,
    pub(super) experiments: Vec<Done>,
    pub(super) invariants: Vec<Line>,
    pub(super) notes: Vec<String>,
    /// Where databases and logs are, if they are kept.
    pub(super) evidence: Option<String>,
}

/// The rows of the table, from what experiments have found.
pub(super) fn rows(done: &[Done], whole: bool) -> Vec<Row> {
    let row = |guarantee: &Guarantee| {
        let mut count = Count::default();
        let mut experiments = Vec::new();
        for one in done {
            let of_one = one.cases.of(*guarantee);
            if of_one.examined + of_one.failed > 0 {
                experiments.push(one.name);
            }
            count.add(&of_one);
        }
        let proves = |experiment: &&Experiment| experiment.proves().contains(guarantee);
        let asked = Experiment::ALL.iter().filter(proves).any(|one| done.iter().any(|done| done.name == one.id()));
        Row {
            guarantee: *guarantee,
            promise: guarantee.what(),
            cases: count.examined,
            verdict: Verdict::of(count.examined, count.failed, whole || asked),
            experiments,
            failures: count.failures,
        }
    };
    Guarantee::ALL.iter().map(row).collect()
}

/// The invariants of all experiments together.
pub(super) fn invariants(done: &[Done], whole: bool) -> Vec<Line> {
    let mut all: BTreeMap<Invariant, Line> = BTreeMap::new();
    for line in done.iter().flat_map(|one| &one.invariants) {
        let whole = all.entry(line.id).or_insert_with(|| Line {
            examined: 0,
            violated: 0,
            violations: Vec::new(),
            ..line.clone()
        });
        whole.examined += line.examined;
        whole.violated += line.violated;
        whole.violations.extend(line.violations.iter().cloned());
    }
    all.into_values().map(|line| Line { excused: !whole, ..line }).collect()
}

fn of_line(line: &Line) -> Verdict {
    Verdict::of(line.examined, line.violated, !line.excused)
}

impl Report {
    /// Whether nothing contradicts, and nothing that was asked for is without a case.
    pub(super) fn is_proof(guarantees: &[Row], experiments: &[Done], invariants: &[Line]) -> bool {
        let bad = guarantees.iter().any(|row| row.verdict.is_bad())
            || experiments.iter().any(|one| one.verdict.is_bad())
            || invariants.iter().any(|line| of_line(line).is_bad());
        !bad
    }

    /// The first words of everything: whether it is proved, and of how many cases.
    pub(super) fn summary(&self) -> String {
        let cases: u64 = self.experiments.iter().map(|one| one.examined).sum();
        let examined: u64 = self.invariants.iter().map(|line| line.examined).sum();
        let count = counted(self.experiments.len(), "experiment");
        let found = format!("{cases} cases in {count} and {examined} of invariants, in {:.0} s", self.seconds);
        if self.proved {
            let what = if self.whole { "Every guarantee holds" } else { "What was asked for holds" };
            return format!("{what}: {found}.");
        }
        let bad: Vec<&str> =
            self.guarantees.iter().filter(|row| row.verdict.is_bad()).map(|row| row.guarantee.id()).collect();
        format!("NOT PROVED ({}): {found}.", if bad.is_empty() { "see below".to_owned() } else { bad.join(", ") })
    }

    fn header(&self) -> Vec<(&'static str, String)> {
        let machine = &self.machine;
        let disk = format!(
            "{}; fsync p50 {} µs, p99 {} µs; a bare commit p50 {} µs, p99 {} µs ({} of each)",
            machine.file_system,
            machine.fsync_p50_us,
            machine.fsync_p99_us,
            machine.commit_p50_us,
            machine.commit_p99_us,
            machine.rounds
        );
        let evidence = self.evidence.clone().unwrap_or_else(|| "removed; --keep keeps it".to_owned());
        vec![
            ("program", format!("aetheris {}, {}", self.version, self.at)),
            ("store", format!("sqlite, in a folder of its own in {}; {}", self.beside, self.durability)),
            ("disk", disk),
            ("settings", self.settings.join(", ")),
            ("evidence", evidence),
        ]
    }

    fn all_notes(&self) -> Vec<String> {
        let of_experiments =
            self.experiments.iter().flat_map(|one| one.notes.iter().map(move |note| format!("{}: {note}", one.name)));
        self.notes.iter().chain(&self.machine.notes).cloned().chain(of_experiments).collect()
    }

    /// The page for people.
    pub(super) fn page(&self, style: Style) -> String {
        let mut text =
            format!("\n{}\n\n", style.paint(Tone::Strong, "What was proved on this machine, with this configuration"));
        for (name, what) in self.header() {
            text.push_str(&format!("  {:<10}{what}\n", style.paint(Tone::Dim, name) + &" ".repeat(10 - name.len())));
        }
        let mut table = Table::new(&["GUARANTEE", ">CASES", "VERDICT", "PROMISE"]);
        for row in &self.guarantees {
            let verdict = style.paint(row.verdict.tone(), row.verdict.words());
            table.row(vec![row.guarantee.id().to_owned(), row.cases.to_string(), verdict, row.promise.to_owned()]);
        }
        text.push_str(&format!("\n{}", table.render(style)));
        let mut table = Table::new(&["", "INVARIANT", ">CASES", "VERDICT"]);
        for line in &self.invariants {
            let verdict = of_line(line);
            let words = if verdict == Verdict::NotAsked { "no cases" } else { verdict.words() };
            let cells = [line.id.id(), line.what, &line.examined.to_string(), &style.paint(verdict.tone(), words)];
            table.row(cells.map(str::to_owned).to_vec());
        }
        text.push_str(&format!("\n{}", table.render(style)));
        for row in self.guarantees.iter().filter(|row| row.verdict.is_bad()) {
            let head = format!("{}: {}", row.guarantee.id(), row.promise);
            text.push_str(&format!("\n{}\n", style.paint(Tone::Bad, &head)));
            text.extend(row.failures.iter().map(|failure| format!("  - {}\n", failure.replace('\n', "\n    "))));
        }
        let notes = self.all_notes();
        if !notes.is_empty() {
            text.push_str(&format!("\n{}\n", style.paint(Tone::Dim, "Notes")));
            text.extend(notes.iter().map(|note| format!("  {note}\n")));
        }
        let tone = if self.proved { Tone::Good } else { Tone::Bad };
        text.push_str(&format!("\n{}\n", style.paint(tone, &self.summary())));
        text
    }

    /// The same as markdown.
    pub(super) fn markdown(&self) -> String {
        let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let mut text = format!("{TITLE}\n\n**{}**\n\n| | |\n|---|---|\n", self.summary());
        for (name, what) in self.header() {
            text.push_str(&format!("| {name} | {} |\n", cell(&what)));
        }
        text.push_str(
            "\n## Guarantees\n\n| guarantee | promise | cases | verdict | experiments |\n|---|---|---:|---|---|\n",
        );
        for row in &self.guarantees {
            let (id, verdict) = (row.guarantee.id(), row.verdict.words());
            let experiments = row.experiments.join(", ");
            text.push_str(&format!("| {id} | {} | {} | {verdict} | {experiments} |\n", row.promise, row.cases));
        }
        if self.guarantees.iter().any(|row| row.verdict.is_bad()) {
            text.push_str("\n## What does not hold\n\n");
        }
        for row in self.guarantees.iter().filter(|row| row.verdict.is_bad()) {
            let failures = row.failures.iter().map(|what| format!("  * {}\n", what.replace('\n', "\n    ")));
            text.push_str(&format!("* **{}** {}\n{}", row.guarantee.id(), row.promise, failures.collect::<String>()));
        }
        text.push_str("\n## Experiments\n\n| experiment | what is done | cases | seconds | verdict | evidence |\n|---|---|---:|---:|---|---|\n");
        for one in &self.experiments {
            let (name, what, cases, verdict) = (one.name, one.what, one.examined, one.verdict.words());
            text.push_str(&format!(
                "| {name} | {what} | {cases} | {:.1} | {verdict} | {}/ |\n",
                one.seconds, one.folder
            ));
        }
        text.push_str(
            "\n## Invariants\n\nEvaluated over every store, the tools' own logs and what clients were told.\n\n",
        );
        text.push_str("| | invariant | cases | verdict |\n|---|---|---:|---|\n");
        for line in &self.invariants {
            let verdict = of_line(line);
            let words = if verdict == Verdict::NotAsked { "no cases" } else { verdict.words() };
            text.push_str(&format!("| {} | {} | {} | {words} |\n", line.id, line.what, line.examined));
        }
        text.push_str("\n## Notes\n\n");
        text.extend(self.all_notes().iter().map(|note| format!("* {note}\n")));
        text.push_str("* What is not promised: `aetheris guarantees`.\n");
        text
    }
}
