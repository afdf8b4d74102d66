//! Whether the tests of large crates notice changes of the code. cargo-mutants finds what can be changed; instead of building
//! the crate for each change, all are built at once, each behind a switch, and for each the tests run that reach it.

mod listed;
mod tree;
mod trial;
mod weave;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Parser;

use listed::Mutant;
use tree::{Left, Tree};
use trial::{Tests, Verdict};
use weave::Id;

/// Mutants of a part, at least, where a crate has as many.
const SAMPLE: usize = 60;
/// Percent that must be noticed where nothing else is asked for.
const NOTICED_MIN: usize = 85;

/// A crate that is sampled.
#[derive(Clone, Copy)]
pub(crate) struct Sampled {
    name: &'static str,
    /// Packages whose tests have to notice.
    pub(crate) tests: &'static [&'static str],
    /// What the simulation runs of it is judged by the simulation too, where no test notices.
    pub(crate) simulated: bool,
}

const fn sampled(name: &'static str, tests: &'static [&'static str], simulated: bool) -> Sampled {
    Sampled { name, tests, simulated }
}

/// `core` and the rules of the store are mutated whole, by cargo-mutants itself.
const CRATES: [Sampled; 12] = [
    // The worker's tests drive every step of the runtime and every sweep of the scheduler in virtual time.
    sampled("runtime", &["aetheris-runtime", "aetheris-worker"], true),
    sampled("worker", &["aetheris-worker"], true),
    sampled("scheduler", &["aetheris-scheduler", "aetheris-worker"], true),
    sampled("store", &["aetheris-store", "aetheris-store-sqlite"], true),
    sampled("store-sqlite", &["aetheris-store-sqlite"], true),
    sampled("server", &["aetheris-server"], false),
    sampled("adapters", &["aetheris-adapters"], false),
    sampled("api", &["aetheris-api", "aetheris-server"], false),
    sampled("cli", &["aetheris-cli"], false),
    sampled("agentfile", &["aetheris-agentfile"], false),
    sampled("expr", &["aetheris-expr"], false),
    sampled("schema", &["aetheris-schema", "aetheris-agentfile"], false),
];

#[derive(Parser)]
#[command(about = "Whether tests notice changes of the code: all of a crate's in one build")]
struct Arguments {
    /// Which part of each crate.
    #[arg(long, default_value_t = 0)]
    seed: usize,
    /// Every part, in one go.
    #[arg(long)]
    whole: bool,
    /// Only files whose path begins so; repeated. All of their mutants are run.
    #[arg(long)]
    file: Vec<String>,
    /// Percent that must be noticed.
    #[arg(long, default_value_t = NOTICED_MIN)]
    min: usize,
    /// cargo-mutants.
    #[arg(long)]
    tool: PathBuf,
    /// Without one, those that have to be sampled.
    crates: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let asked = Arguments::parse();
    let root = std::env::current_dir()?;
    let mut good = true;
    for sampled in wanted(&asked.crates)? {
        good &= of_crate(&root, &asked, sampled).with_context(|| format!("mutants of {}", sampled.name))?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(6) })
}

fn wanted(names: &[String]) -> anyhow::Result<Vec<Sampled>> {
    let known = || CRATES.map(|sampled| sampled.name).join(", ");
    let find = |name: &String| {
        let found = CRATES.into_iter().find(|sampled| sampled.name == name);
        found.with_context(|| format!("{name} is not sampled; there are {}", known()))
    };
    if names.is_empty() { Ok(CRATES.to_vec()) } else { names.iter().map(find).collect() }
}

/// One crate; whether enough was noticed.
fn of_crate(root: &Path, asked: &Arguments, of: Sampled) -> anyhow::Result<bool> {
    let name = of.name;
    let all = listed::of_package(root, &asked.tool, &format!("aetheris-{name}"))?;
    let mutants: Vec<(Id, &Mutant)> = (1..).zip(&all).collect();
    let parts = (all.len() / SAMPLE).max(1);
    let part = asked.seed % parts;
    let chosen = |id: Id, mutant: &Mutant| {
        if asked.file.is_empty() {
            asked.whole || id as usize % parts == part
        } else {
            asked.file.iter().any(|file| mutant.file.starts_with(file.as_str()))
        }
    };
    let mutants: Vec<(Id, &Mutant)> = mutants.into_iter().filter(|(id, mutant)| chosen(*id, mutant)).collect();
    say(&format!("{name}: {} of {} mutants", mutants.len(), all.len()));
    let mut kept = Kept::of(root, name)?;
    let left: Vec<(Id, &Mutant)> = mutants.iter().filter(|(_, mutant)| !kept.has(mutant)).copied().collect();
    if !left.is_empty() {
        let tree = Tree::copied(root)?;
        let Left { broken, planted } = tree.woven(root, &left, of.tests)?;
        for (id, mutant) in &left {
            if planted.contains(id) {
                kept.add(mutant, "planted", "")?;
            } else if broken.contains(id) {
                kept.add(mutant, "does not build", "")?;
            }
        }
        let tests = Tests::built(tree, of)?;
        for (id, mutant) in left.iter().filter(|(id, _)| !broken.contains(id) && !planted.contains(id)) {
            let (word, by) = match tests.verdict(*id)? {
                Verdict::Noticed(test) => ("noticed", test),
                Verdict::Timeout(test) => ("timeout", test),
                Verdict::Missed => ("missed", String::new()),
                Verdict::Unreached => ("unreached", String::new()),
            };
            if word == "missed" || word == "unreached" {
                say(&format!("{word}: {}", mutant.name));
            }
            kept.add(mutant, word, &by)?;
        }
    }
    Ok(told(name, &kept, &mutants, asked.min))
}

/// Results of a commit, so that what was cut off goes on.
struct Kept {
    path: PathBuf,
    results: BTreeMap<String, String>,
}

impl Kept {
    fn of(root: &Path, name: &str) -> anyhow::Result<Kept> {
        let head = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(root).output()?;
        let folder = root.join("target/mutants/results").join(String::from_utf8_lossy(&head.stdout).trim());
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}.tsv"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let results = text.lines().filter_map(|line| {
            let mut parts = line.split('\t');
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        });
        Ok(Kept { results: results.collect(), path })
    }

    fn has(&self, mutant: &Mutant) -> bool {
        self.results.contains_key(&mutant.name)
    }

    fn add(&mut self, mutant: &Mutant, word: &str, by: &str) -> anyhow::Result<()> {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
        writeln!(file, "{}\t{word}\t{by}", mutant.name.replace('\t', " "))?;
        self.results.insert(mutant.name.clone(), word.to_owned());
        Ok(())
    }
}

/// Prints what came of a crate; whether enough was noticed.
fn told(name: &str, kept: &Kept, mutants: &[(Id, &Mutant)], min: usize) -> bool {
    let names: BTreeSet<&str> = mutants.iter().map(|(_, mutant)| mutant.name.as_str()).collect();
    let of = |words: &[&str]| {
        kept.results
            .iter()
            .filter(|(name, word)| names.contains(name.as_str()) && words.contains(&word.as_str()))
            .count()
    };
    let (noticed, all) = (of(&["noticed", "timeout"]), of(&["noticed", "timeout", "missed", "unreached"]));
    let (low, high) = interval(noticed, all);
    say(&format!(
        "{name}: {noticed} noticed of {all} that build ({} by a timeout; {} in code that no test runs; {} do not build): {:.1} %, \
         95 % interval {low:.1} to {high:.1} %",
        of(&["timeout"]),
        of(&["unreached"]),
        of(&["does not build"]),
        percent(noticed, all),
    ));
    all > 0 && noticed * 100 >= all * min
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

#[expect(clippy::print_stdout, reason = "a command line tool")]
fn say(text: &str) {
    println!("{text}");
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
    fn what_is_not_sampled_is_refused() {
        let names = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let asked = wanted(&names("runtime server")).unwrap_or_default();
        assert_eq!(asked.iter().map(|sampled| sampled.name).collect::<Vec<_>>(), ["runtime", "server"]);
        assert_eq!(wanted(&[]).unwrap_or_default().len(), CRATES.len());
        assert!(wanted(&names("core")).is_err());
    }
}
