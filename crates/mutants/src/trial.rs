//! Which tests can notice a mutant, and whether one does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, bail};

use crate::Sampled;
use crate::tree::Tree;
use crate::weave::Id;

/// Tests that are tried first, where many reach a mutant: the quickest.
const FIRST: usize = 40;
/// The simulation, the seeds that it runs where no test has noticed, and its time.
const SIM: &str = "aetheris-sim";
const SIM_RUN: [&str; 6] = ["run", "--seeds", "2000", "--from", "100001", "--any-marks"];
const SIM_TIME: &str = "120";
/// More tests than this are not named one by one.
const NAMED_MAX: usize = 700;

/// The built tests of a tree.
pub(crate) struct Tests {
    tree: Tree,
    of: Sampled,
    /// What of each mutant is reached by which tests, the quickest first.
    reached: BTreeMap<Id, Vec<Test>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    micros: u64,
    binary: String,
    name: String,
}

/// What came of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Noticed by this test, the first.
    Noticed(String),
    /// Noticed because a test did not end.
    Timeout(String),
    Missed,
    /// No test runs the code.
    Unreached,
}

impl Tests {
    /// Builds the tests and runs them all once as they are, to learn what each reaches.
    pub(crate) fn built(tree: Tree, of: Sampled) -> anyhow::Result<Tests> {
        let mut tests = Tests { tree, of, reached: BTreeMap::new() };
        let notes = tests.notes();
        fs::create_dir_all(&notes)?;
        let mut list = tests.tree.cargo();
        list.args(["nextest", "list", "--locked", "--list-type", "binaries-only", "--message-format", "json"]);
        list.args(tests.of.tests.iter().flat_map(|package| ["--package", package]));
        let listed = done(&mut list).context("build the tests")?;
        fs::write(notes.join("binaries.json"), listed.stdout)?;
        let metadata = done(tests.tree.cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
        fs::write(notes.join("metadata.json"), metadata.stdout)?;
        tests.learn()?;
        if of.simulated {
            done(tests.tree.cargo().args(["build", "--locked", "--package", SIM])).context("build the simulation")?;
            if let Some(found) = tests.simulated(0)? {
                bail!("the simulation fails without a mutant: {found}");
            }
        }
        Ok(tests)
    }

    /// What the simulation finds.
    fn simulated(&self, id: Id) -> anyhow::Result<Option<String>> {
        let mut command = Command::new("timeout");
        command.arg(SIM_TIME).arg(self.tree.target.join("debug").join(SIM)).args(SIM_RUN);
        command.env("MUTANT", id.to_string()).current_dir(&self.tree.path);
        let output = command.output().context("start the simulation")?;
        Ok((!output.status.success())
            .then(|| format!("the simulation: {}", String::from_utf8_lossy(&output.stdout).trim())))
    }

    fn notes(&self) -> PathBuf {
        self.tree.target.join("notes")
    }

    fn run(&self) -> Command {
        let mut command = self.tree.cargo();
        command.args(["nextest", "run", "--test-threads", "3", "--color", "never", "--hide-progress-bar"]);
        command.arg("--binaries-metadata").arg(self.notes().join("binaries.json"));
        command.arg("--cargo-metadata").arg(self.notes().join("metadata.json"));
        command.arg("--workspace-remap").arg(&self.tree.path);
        command
    }

    fn learn(&mut self) -> anyhow::Result<()> {
        let folder = self.notes().join("reached");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let output =
            self.run().args(["--no-fail-fast", "--profile", "default"]).env("MUTANTS_REACHED", &folder).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let took: BTreeMap<(String, String), u64> = text.lines().filter_map(timed).collect();
        if took.is_empty() {
            bail!("no test ran: {text}");
        }
        for line in text.lines().filter(|line| line.trim_start().starts_with("FAIL")) {
            crate::say(&format!("fails without a mutant, where it tells what it reaches: {}", line.trim()));
        }
        let mut reached: BTreeMap<Id, BTreeSet<Test>> = BTreeMap::new();
        for entry in fs::read_dir(&folder)? {
            for line in fs::read_to_string(entry?.path())?.lines() {
                let mut parts = line.splitn(3, '\t');
                let (Some(id), Some(binary), Some(name)) = (parts.next(), parts.next(), parts.next()) else { continue };
                let Ok(id) = id.parse() else { continue };
                let key = (binary.to_owned(), name.to_owned());
                // What lists the tests reaches code too.
                let Some(&micros) = took.get(&key) else { continue };
                reached.entry(id).or_default().insert(Test { micros, binary: key.0, name: key.1 });
            }
        }
        crate::say(&format!("{} tests ran; {} mutants are reached", took.len(), reached.len()));
        self.reached = reached.into_iter().map(|(id, tests)| (id, tests.into_iter().collect())).collect();
        Ok(())
    }

    /// Runs the tests that reach the mutant until one notices it.
    pub(crate) fn verdict(&self, id: Id) -> anyhow::Result<Verdict> {
        let tests = self.reached.get(&id).map_or(&[][..], Vec::as_slice);
        let (first, rest) = tests.split_at(tests.len().min(FIRST));
        for some in [first, rest].into_iter().filter(|some| !some.is_empty()) {
            let mut command = self.run();
            if some.len() <= NAMED_MAX {
                let named = some.iter().map(|test| format!("(binary_id(={}) & test(={}))", test.binary, test.name));
                command.args(["-E", &named.collect::<Vec<_>>().join(" | ")]);
            }
            let output = command.env("MUTANT", id.to_string()).output().context("start cargo-nextest")?;
            let text = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => {}
                // 100: a test failed. Anything else is no verdict.
                Some(100) => return Ok(noticed(&text)),
                _ => bail!("cargo-nextest cannot run: {text}"),
            }
        }
        if self.of.simulated && self.simulated(id)?.is_some() {
            return Ok(Verdict::Noticed("the simulation".to_owned()));
        }
        Ok(if tests.is_empty() { Verdict::Unreached } else { Verdict::Missed })
    }
}

fn done(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output)
}

/// Of a line such as `PASS [   0.012s] (1/9) binary test`, the test and its time.
fn timed(line: &str) -> Option<((String, String), u64)> {
    let (_, behind) = line.split_once('[')?;
    let (time, behind) = behind.split_once("s]")?;
    let seconds: f64 = time.trim().trim_start_matches('>').parse().ok()?;
    let words: Vec<&str> =
        behind.split_whitespace().filter(|word| !word.starts_with('(') && !word.ends_with(')')).collect();
    let [binary, name] = words.as_slice() else { return None };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of minutes at most")]
    let micros = (seconds * 1e6) as u64;
    Some((((*binary).to_owned(), (*name).to_owned()), micros))
}

fn noticed(text: &str) -> Verdict {
    let of = |word: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(word))?;
        line.split_whitespace().last().map(str::to_owned)
    };
    match of("FAIL").or_else(|| of("SIG")).or_else(|| of("ABORT")) {
        Some(test) => Verdict::Noticed(test),
        None => Verdict::Timeout(of("TIMEOUT").unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_runner_has_a_test_and_its_time() {
        let line = "        PASS [   0.012s] (  1/917) aetheris-store-sqlite::it power::a_cut";
        let test = ("aetheris-store-sqlite::it".to_owned(), "power::a_cut".to_owned());
        assert_eq!(timed(line), Some((test, 12_000)));
        assert_eq!(timed("    Starting 917 tests across 2 binaries"), None);
    }

    #[test]
    fn a_test_that_fails_has_noticed_and_one_that_hangs_too() {
        let text = "  FAIL [   0.1s] (3/9) a::it b::c\n  TIMEOUT [ 15.0s] (4/9) a::it d";
        assert_eq!(noticed(text), Verdict::Noticed("b::c".to_owned()));
        assert_eq!(noticed("  TIMEOUT [ 15.0s] (4/9) a::it d"), Verdict::Timeout("d".to_owned()));
    }
}
