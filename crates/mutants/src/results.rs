//! What came of each mutant: kept, counted and told.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use crate::listed::Mutant;
use crate::say;
use crate::tree::Tree;
use crate::weave::Id;

/// What came of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Noticed by this test, the first, or by the simulation.
    Noticed(String),
    /// Noticed because this test does not end.
    Timeout(String),
    /// Tests run the code, and none notices.
    Missed,
    /// No test runs the code.
    Unreached,
    /// It does not compile.
    Unviable,
    /// It cannot be switched: what is computed at compile time, a condition that binds a name.
    NotSwitched,
    /// In a planted bug, or what guards one: constant false in the program. The zoo runs it.
    Planted,
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Noticed(_) => "noticed",
            Self::Timeout(_) => "timeout",
            Self::Missed => "missed",
            Self::Unreached => "unreached",
            Self::Unviable => "unviable",
            Self::NotSwitched => "not switched",
            Self::Planted => "planted",
        }
    }

    fn by(&self) -> &str {
        match self {
            Self::Noticed(by) | Self::Timeout(by) => by,
            Self::Missed | Self::Unreached | Self::Unviable | Self::NotSwitched | Self::Planted => "",
        }
    }

    fn read(word: &str, by: &str) -> Option<Verdict> {
        let by = by.to_owned();
        let all = [
            Self::Noticed(by.clone()),
            Self::Timeout(by),
            Self::Missed,
            Self::Unreached,
            Self::Unviable,
            Self::NotSwitched,
            Self::Planted,
        ];
        all.into_iter().find(|verdict| verdict.word() == word)
    }

    fn is_noticed(&self) -> bool {
        matches!(self, Self::Noticed(_) | Self::Timeout(_))
    }

    fn is_missed(&self) -> bool {
        matches!(self, Self::Missed | Self::Unreached)
    }
}

/// The results of a crate in a tree as it is, so that what was cut off goes on.
pub(crate) struct Kept {
    path: PathBuf,
    results: BTreeMap<String, Verdict>,
}

impl Kept {
    pub(crate) fn of(tree: &Tree, name: &str) -> anyhow::Result<Kept> {
        let folder = tree.results();
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}.tsv"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let results = text.lines().filter_map(|line| {
            let mut parts = line.split('\t');
            let (name, word, by) = (parts.next()?, parts.next()?, parts.next()?);
            Some((name.to_owned(), Verdict::read(word, by)?))
        });
        Ok(Kept { results: results.collect(), path })
    }

    pub(crate) fn has(&self, mutant: &Mutant) -> bool {
        self.results.contains_key(&key(mutant))
    }

    pub(crate) fn add(&mut self, mutant: &Mutant, verdict: Verdict) -> anyhow::Result<()> {
        if verdict.is_missed() {
            say(&format!("{}: {}", verdict.word(), mutant.name));
        }
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
        writeln!(file, "{}\t{}\t{}", key(mutant), verdict.word(), verdict.by())?;
        self.results.insert(key(mutant), verdict);
        Ok(())
    }

    /// Prints what came of these mutants; whether enough was noticed.
    pub(crate) fn told(&self, name: &str, mutants: &[(Id, &Mutant)], min: usize) -> bool {
        let verdicts: Vec<(&Mutant, &Verdict)> = mutants
            .iter()
            .filter_map(|(_, mutant)| self.results.get(&key(mutant)).map(|verdict| (*mutant, verdict)))
            .collect();
        for (mutant, verdict) in verdicts.iter().filter(|(_, verdict)| verdict.is_missed()) {
            say(&format!("  {} {}", verdict.word(), mutant.name));
        }
        let count = |wanted: &dyn Fn(&Verdict) -> bool| verdicts.iter().filter(|(_, verdict)| wanted(verdict)).count();
        let noticed = count(&Verdict::is_noticed);
        let all = noticed + count(&Verdict::is_missed);
        let of = |word: &str| count(&|verdict| verdict.word() == word);
        let (low, high) = interval(noticed, all);
        say(&format!(
            "{name}: {noticed} noticed of {all}: {:.1} %, 95 % interval {low:.1} to {high:.1} % ({} by a timeout, {} by the simulation; \
             of the others no test runs {}). Not counted: {} do not compile, {} cannot be switched, {} are in planted bugs",
            percent(noticed, all),
            of("timeout"),
            count(&|verdict| verdict.by() == crate::simulation::NAME),
            of("unreached"),
            of("unviable"),
            of("not switched"),
            of("planted"),
        ));
        all > 0 && noticed * 100 >= all * min
    }
}

/// The mutant's name as it stands in a column.
fn key(mutant: &Mutant) -> String {
    mutant.name.replace(['\t', '\n'], " ")
}

#[expect(clippy::cast_precision_loss, reason = "some thousand mutants at most")]
fn percent(part: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

/// Wilson's score interval, 95 %, in percent: it stays within 0 and 100 and holds for small samples near either end.
#[expect(clippy::cast_precision_loss, reason = "some thousand mutants at most")]
fn interval(caught: usize, all: usize) -> (f64, f64) {
    if all == 0 {
        return (0.0, 100.0);
    }
    let (z, n) = (1.96_f64, all as f64);
    let share = caught as f64 / n;
    let middle = share + z * z / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 100.0 / (1.0 + z * z / n);
    ((middle - half).max(0.0) * scale, ((middle + half) * scale).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        // From the table of Newcombe (1998) for the score method: 81 of 263, 15 of 148, 0 of 20.
        for ((caught, all), (low, high)) in
            [((81, 263), (25.53, 36.62)), ((15, 148), (6.24, 16.05)), ((0, 20), (0.0, 16.11))]
        {
            let (found_low, found_high) = interval(caught, all);
            assert!((found_low - low).abs() < 0.02, "{caught}/{all}: {found_low}");
            assert!((found_high - high).abs() < 0.02, "{caught}/{all}: {found_high}");
        }
    }

    #[test]
    fn a_word_that_was_kept_is_read_as_what_it_was() {
        for verdict in [
            Verdict::Noticed("a::b".to_owned()),
            Verdict::Timeout("c".to_owned()),
            Verdict::Missed,
            Verdict::Unreached,
            Verdict::Unviable,
            Verdict::NotSwitched,
            Verdict::Planted,
        ] {
            assert_eq!(Verdict::read(verdict.word(), verdict.by()), Some(verdict));
        }
        assert_eq!(Verdict::read("caught", ""), None);
    }

    #[test]
    fn enough_is_a_share_of_those_that_could_be_noticed_and_never_of_none() {
        let mutants: Vec<Mutant> =
            (1..=20).map(|line| crate::listed::tests::mutant(crate::listed::Genre::FnValue, (line, 1), "")).collect();
        let numbered: Vec<(Id, &Mutant)> = (1..).zip(&mutants).collect();
        let of = |noticed: usize, missed: usize| {
            let verdicts = std::iter::repeat_n(Verdict::Noticed(String::new()), noticed)
                .chain(std::iter::repeat_n(Verdict::Missed, missed))
                .chain(std::iter::repeat(Verdict::Planted));
            let results = mutants.iter().map(key).zip(verdicts).collect();
            Kept { path: PathBuf::new(), results }.told("x", &numbered, 85)
        };
        assert!(of(17, 3));
        assert!(!of(16, 4));
        assert!(of(6, 1));
        assert!(!of(0, 0));
    }
}
