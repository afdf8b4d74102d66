//! Which tests can notice a mutant, and whether one does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, bail};

use crate::crates::Sampled;
use crate::results::Verdict;
use crate::simulation;
use crate::tree::{CHOSEN, REACHED, Tree};
use crate::weave::Id;

/// Tests that are tried first, where many reach a mutant: the quickest.
const FIRST: usize = 40;
/// Tests of one command line, which takes 128 KiB of names.
const NAMED_MAX: usize = 400;
/// So many failures that do not come again say that the machine is too busy to judge.
const FLAKES_MAX: usize = 10;

/// The built tests of a tree.
pub(crate) struct Tests {
    tree: Tree,
    of: Sampled,
    /// By mutant, the tests that reach it, the quickest first.
    reached: BTreeMap<Id, Vec<Test>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    micros: u64,
    binary: String,
    name: String,
}

impl Tests {
    /// Builds the tests and runs them all once as they are, to learn what each reaches.
    pub(crate) fn built(tree: Tree, of: Sampled) -> anyhow::Result<Tests> {
        let notes = notes(&tree);
        fs::create_dir_all(&notes)?;
        let mut list = tree.cargo();
        list.args(["nextest", "list", "--locked", "--list-type", "binaries-only", "--message-format", "json"]);
        list.args(of.tests.iter().flat_map(|package| ["--package", package]));
        fs::write(notes.join("binaries.json"), done(&mut list).context("build the tests")?.stdout)?;
        let metadata = done(tree.cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
        fs::write(notes.join("metadata.json"), metadata.stdout)?;
        if let Some(store) = of.simulated_on {
            simulation::built(&tree, store)?;
        }
        let reached = reached(&tree)?;
        Ok(Tests { tree, of, reached })
    }

    /// Runs the tests that reach the mutant until one notices it, and where none does the simulation.
    pub(crate) fn verdict(&self, id: Id) -> anyhow::Result<Verdict> {
        let tests = self.reached.get(&id).map_or(&[][..], Vec::as_slice);
        let (first, rest) = tests.split_at(tests.len().min(FIRST));
        for some in [first].into_iter().chain(rest.chunks(NAMED_MAX)) {
            if let Some(verdict) = self.noticed(id, some.to_vec())? {
                return Ok(verdict);
            }
        }
        if let Some(store) = self.of.simulated_on
            && simulation::finds(&self.tree, store, id)?
        {
            return Ok(Verdict::Noticed(simulation::NAME.to_owned()));
        }
        Ok(if tests.is_empty() { Verdict::Unreached } else { Verdict::Missed })
    }

    /// Whether one of the tests fails, and fails again by itself: one that fails now and then has noticed nothing.
    fn noticed(&self, id: Id, mut tests: Vec<Test>) -> anyhow::Result<Option<Verdict>> {
        for _ in 0..FLAKES_MAX {
            if tests.is_empty() {
                return Ok(None);
            }
            let Some(failed) = self.failed(id, &tests, "3")? else { return Ok(None) };
            let alone = Test { micros: 0, binary: failed.binary.clone(), name: failed.name.clone() };
            if self.failed(id, &[alone], "1")?.is_some() {
                return Ok(Some(failed.verdict()));
            }
            crate::say(&format!("{} failed once and not again; it does not count", failed.name));
            tests.retain(|test| test.binary != failed.binary || test.name != failed.name);
        }
        bail!("{FLAKES_MAX} tests failed once and not again")
    }

    /// Runs some tests until one fails.
    fn failed(&self, id: Id, tests: &[Test], threads: &str) -> anyhow::Result<Option<Failed>> {
        let named = tests.iter().map(|test| format!("(binary_id(={}) & test(={}))", test.binary, test.name));
        let mut command = runner(&self.tree);
        command.args(["--test-threads", threads, "-E", &named.collect::<Vec<_>>().join(" | ")]);
        let output = command.env(CHOSEN, id.to_string()).output().context("start cargo-nextest")?;
        let text = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => Ok(None),
            // 100: a test failed. Anything else is no verdict.
            Some(100) => {
                text.lines().find_map(Failed::told).with_context(|| format!("no test is named: {text}")).map(Some)
            }
            _ => bail!("cargo-nextest cannot run: {text}"),
        }
    }
}

fn notes(tree: &Tree) -> PathBuf {
    tree.target.join("notes")
}

/// The runner over what has been built, in the profile `mutants`.
fn runner(tree: &Tree) -> Command {
    let mut command = tree.cargo();
    command.args(["nextest", "run", "--color", "never", "--hide-progress-bar"]);
    command.arg("--binaries-metadata").arg(notes(tree).join("binaries.json"));
    command.arg("--cargo-metadata").arg(notes(tree).join("metadata.json"));
    command.arg("--workspace-remap").arg(&tree.path);
    command
}

/// Runs every test without a mutant. One that does not pass, in the time that it has in a trial, can notice nothing.
fn reached(tree: &Tree) -> anyhow::Result<BTreeMap<Id, Vec<Test>>> {
    let folder = notes(tree).join("reached");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let output = runner(tree).args(["--test-threads", "3", "--no-fail-fast"]).env(REACHED, &folder).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let passed = |line: &&str| line.trim_start().starts_with("PASS ");
    let took: BTreeMap<(String, String), u64> = text.lines().filter(passed).filter_map(timed).collect();
    if took.is_empty() {
        bail!("no test passed: {text}");
    }
    let failed: BTreeSet<String> =
        text.lines().filter_map(Failed::told).map(|test| format!("{} {}", test.binary, test.name)).collect();
    for test in failed {
        crate::say(&format!("does not pass without a mutant and does not count: {test}"));
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
    crate::say(&format!("{} tests passed; {} mutants are reached", took.len(), reached.len()));
    Ok(reached.into_iter().map(|(id, tests)| (id, tests.into_iter().collect())).collect())
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

/// A test that failed.
#[derive(Debug, PartialEq, Eq)]
struct Failed {
    binary: String,
    name: String,
    by_timeout: bool,
}

impl Failed {
    /// Of a line such as `FAIL [   0.012s] (1/9) binary test`.
    fn told(line: &str) -> Option<Failed> {
        let word = line.split_whitespace().next()?;
        let by_timeout = word == "TIMEOUT";
        if !by_timeout && word != "FAIL" && !word.starts_with("SIG") && !word.starts_with("ABORT") {
            return None;
        }
        let ((binary, name), _) = timed(line)?;
        Some(Failed { binary, name, by_timeout })
    }

    fn verdict(self) -> Verdict {
        if self.by_timeout { Verdict::Timeout(self.name) } else { Verdict::Noticed(self.name) }
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
    fn a_test_that_fails_is_named_and_one_that_hangs_too() {
        let failed = |binary: &str, name: &str, by_timeout| {
            Some(Failed { binary: binary.to_owned(), name: name.to_owned(), by_timeout })
        };
        assert_eq!(Failed::told("  FAIL [   0.1s] (3/9) a::it b::c"), failed("a::it", "b::c", false));
        assert_eq!(Failed::told("  SIGABRT [   0.1s] ( 3/9) a b"), failed("a", "b", false));
        assert_eq!(Failed::told(" TIMEOUT [ 15.0s] (4/9) a::it d"), failed("a::it", "d", true));
        assert_eq!(Failed::told("  PASS [   0.1s] (3/9) a::it b::c"), None);
    }
}
