//! The page that a run leaves.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use aetheris_plain::Checked;
use aetheris_plain::turns::Judged;

use super::asked::Cases;
use super::client::Counts;
use super::judge::Jobs;
use super::nemesis::Log;
use super::oracle::Oracle;

/// Everything that a page tells.
pub struct Page<'p> {
    /// The backend's name.
    pub store: &'p str,
    /// The seed.
    pub seed: u64,
    /// How long the faults went on, in seconds.
    pub seconds: f64,
    /// How long everything took to come to rest after the last fault, in seconds.
    pub rest_seconds: f64,
    /// How many workers there were.
    pub workers: usize,
    /// Both checkers.
    pub checked: &'p Checked,
    /// What became of the jobs.
    pub jobs: &'p Jobs,
    /// How often what was asked for was judged.
    pub cases: &'p Cases,
    /// How often it was judged whether a job began in its turn.
    pub turns: &'p Judged,
    /// What was done.
    pub log: &'p Log,
    /// What clients did.
    pub counts: &'p Counts,
    /// Bodies that tools have seen, and how many of these changed the world.
    pub bodies: (usize, usize),
    /// Signals that were answered well.
    pub signals: usize,
    /// From the death of a worker to the next claim of each of its jobs, in microseconds.
    pub recovery: &'p [i64],
    /// What went wrong; empty where nothing did.
    pub problems: &'p [String],
    /// What could not be done here.
    pub missing: &'p [&'static str],
    /// What was asked beside the invariants.
    pub oracles: &'p [Oracle],
}

/// How many percent of a list are below what is returned, in milliseconds.
fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let place = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(place).map_or(0, |micros| micros / 1_000)
}

impl Page<'_> {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.jobs.lost == 0 && self.jobs.duplicated == 0
    }

    /// The page, as Markdown.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a text cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Self { store, seed, seconds, rest_seconds, workers, .. } = self;
        let verdict = if self.is_clean() { "nothing lost, nothing duplicated, both checkers agree" } else { "WRONG" };
        writeln!(out, "# Chaos on {store}, seed {seed}: {verdict}\n")?;
        writeln!(
            out,
            "One API, {workers} workers, one store; {seconds:.0} s of faults, {rest_seconds:.1} s to come to rest.\n"
        )?;
        self.write_counts(out)?;
        self.write_faults(out)?;
        self.write_invariants(out)?;
        self.write_oracles(out)?;
        writeln!(out, "\n## Verdict\n")?;
        writeln!(
            out,
            "lost {}, duplicated {}, problems {}",
            self.jobs.lost,
            self.jobs.duplicated,
            self.problems.len()
        )?;
        for problem in self.problems {
            writeln!(out, "* {problem}")?;
        }
        for what in self.missing {
            writeln!(out, "* not done here: {what}")?;
        }
        Ok(())
    }

    fn write_counts(&self, out: &mut String) -> std::fmt::Result {
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let (checked, counts) = (self.checked, self.counts);
        let jobs = checked.evidence.number("SELECT count(*) FROM jobs").unwrap_or(0);
        let events = checked.evidence.number("SELECT count(*) FROM events").unwrap_or(0);
        let reclaims =
            "SELECT count(*) FROM events WHERE kind = 'job_requeued' AND payload ->> 'reason' = 'lease_expired'";
        let reclaims = checked.evidence.number(reclaims).unwrap_or(0);
        let doubts =
            checked.evidence.number("SELECT count(DISTINCT key) FROM said WHERE kind = 'step_in_doubt'").unwrap_or(0);
        writeln!(out, "| what | count |\n|---|---|")?;
        let ends = self.jobs.ends.iter().map(|(end, count)| format!("{end} {count}")).collect::<Vec<_>>().join(", ");
        writeln!(out, "| jobs | {jobs}: {ends} |")?;
        writeln!(out, "| events | {events} |")?;
        writeln!(out, "| tool bodies | {}, of which {} act |", self.bodies.0, self.bodies.1)?;
        writeln!(out, "| jobs taken back | {reclaims} |")?;
        writeln!(out, "| calls that were in doubt | {doubts}, {} answered by an operator |", of(&counts.resolved))?;
        writeln!(out, "| second bodies after a recorded disproof | {} |", self.jobs.after_disproof)?;
        writeln!(out, "| signals | {}, {} sent again |", self.signals, of(&counts.repeated))?;
        let Cases { budgets, used_up, tokens, deadlines, exceeded, fitting } = self.cases;
        writeln!(out, "| jobs with a budget of calls, of tokens | {budgets}, {tokens}: {used_up} have used it up |")?;
        writeln!(out, "| jobs with a deadline | {deadlines}, {exceeded} ended at it |")?;
        let Judged { conversations, later, .. } = self.turns;
        writeln!(
            out,
            "| claims of jobs for later, of jobs behind others of a conversation | {later}, {conversations} |"
        )?;
        let misfits = of(&counts.misfits);
        writeln!(
            out,
            "| messages and payloads that did not fit | {misfits} refused, {fitting} that fit ended waits |"
        )?;
        writeln!(out, "| jobs held still, and let go on | {} |", of(&counts.held))?;
        writeln!(out, "| messages sent again under their key | {} |", of(&counts.resubmitted))?;
        writeln!(
            out,
            "| requests | {} answered, {} with nothing known of them |",
            of(&counts.answered),
            of(&counts.unknown)
        )?;
        let (p50, p99) = (percentile(self.recovery, 50), percentile(self.recovery, 99));
        let recovered = self.recovery.len();
        writeln!(out, "| from a worker's death to the next claim | {recovered} jobs, p50 {p50} ms, p99 {p99} ms |")
    }

    fn write_faults(&self, out: &mut String) -> std::fmt::Result {
        let counts = self.log.counts();
        let total: u64 = counts.values().sum();
        #[expect(clippy::cast_precision_loss, reason = "a count of faults, for people")]
        let rate = total as f64 * 60.0 / self.seconds.max(1.0);
        writeln!(
            out,
            "\n## Faults: {total} of {} kinds, {rate:.0} a minute\n\n| fault | times |\n|---|---|",
            counts.len()
        )?;
        for (fault, count) in counts {
            writeln!(out, "| {fault} | {count} |")?;
        }
        Ok(())
    }

    fn write_oracles(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## What is told\n\n| | cases | |\n|---|---|---|")?;
        for oracle in self.oracles {
            let verdict = match (oracle.wrong, oracle.cases) {
                (_, 0) => "no case".to_owned(),
                (0, _) => "holds".to_owned(),
                (wrong, _) => format!("WRONG {wrong}"),
            };
            writeln!(out, "| {} | {} | {verdict} |", oracle.what, oracle.cases)?;
        }
        Ok(())
    }

    fn write_invariants(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Invariants\n\n| | holds | cases in Rust | cases in SQL | |\n|---|---|---|---|---|")?;
        for line in &self.checked.rust.lines {
            let sql = self.checked.sql.get(&line.id);
            let cases = sql.map_or_else(|| "needs the fold".to_owned(), |found| found.examined.to_string());
            let wrong = line.violated + sql.map_or(0, |found| found.violated);
            let verdict = match (wrong, line.examined) {
                (0, 0) => "no case".to_owned(),
                (0, _) => "holds".to_owned(),
                (wrong, _) => format!("VIOLATED {wrong}"),
            };
            writeln!(out, "| {} | {} | {} | {cases} | {verdict} |", line.id, line.what, line.examined)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn percentiles_of_short_lists() {
        let list: Vec<i64> = (1..=100).map(|n| n * 1_000).collect();
        assert_eq!(super::percentile(&list, 99), 99);
        assert_eq!(super::percentile(&list, 50), 50);
        assert_eq!(super::percentile(&list[..1], 99), 1);
        assert_eq!(super::percentile(&[], 99), 0);
    }
}
