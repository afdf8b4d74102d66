//! A copy of the tree that holds all mutants of some packages at once, and the build of its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::compiler::{self, Regions, Wrong};
use crate::listed::Mutant;
use crate::results::Verdict;
use crate::weave::{Id, Region, weave};

/// Rounds of compiling and taking out what does not compile. A round shows the errors of one stage of the compiler.
const ROUNDS_MAX: usize = 40;

/// The variable that has the chosen mutant's number, and the one that has the folder for what tests reach.
pub(crate) const CHOSEN: &str = "MUTANT";
pub(crate) const REACHED: &str = "MUTANTS_REACHED";
/// How code asks whether it is to be another.
const SWITCH: &str = include_str!("switch.rs");

/// The copy.
pub(crate) struct Tree {
    pub(crate) path: PathBuf,
    pub(crate) target: PathBuf,
    /// Of what a result depends on.
    hash: u64,
}

impl Tree {
    /// Copies what is not ignored below `root`, and leaves alone what is as it was.
    pub(crate) fn copied(root: &Path) -> anyhow::Result<Tree> {
        let (path, target) = (root.join("target/mutants/tree"), root.join("target/mutants/build"));
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("start git")?;
        if !output.status.success() {
            bail!("git cannot list the files: {}", String::from_utf8_lossy(&output.stderr));
        }
        let (mut known, mut hasher) = (BTreeSet::new(), DefaultHasher::new());
        for name in String::from_utf8_lossy(&output.stdout).split('\0').filter(|name| !name.is_empty()) {
            let Ok(bytes) = fs::read(root.join(name)) else { continue };
            if name.starts_with("crates/") || name.starts_with("Cargo.") {
                (name, &bytes).hash(&mut hasher);
            }
            renew(&path.join(name), &bytes)?;
            known.insert(path.join(name));
        }
        remove_others(&path.join("crates"), &known)?;
        Ok(Tree { path, target, hash: hasher.finish() })
    }

    /// Where what came of its mutants is kept.
    pub(crate) fn results(&self) -> PathBuf {
        self.target.with_file_name("results").join(format!("{:016x}", self.hash))
    }

    /// Weaves the mutants into the copy until it compiles; those that are not in it, and why.
    pub(crate) fn woven(
        &self,
        root: &Path,
        mutants: &[(Id, &Mutant)],
        tests: &[&str],
    ) -> anyhow::Result<BTreeMap<Id, Verdict>> {
        let files: BTreeSet<&str> = mutants.iter().map(|(_, mutant)| mutant.file.as_str()).collect();
        let mut out: BTreeMap<Id, Verdict> = BTreeMap::new();
        for round in 1..=ROUNDS_MAX {
            let mut regions: Vec<(&str, Vec<Region>)> = Vec::new();
            for file in &files {
                let source = fs::read_to_string(root.join(file)).with_context(|| format!("read {file}"))?;
                let here: Vec<_> =
                    mutants.iter().filter(|(id, one)| one.file == **file && !out.contains_key(id)).copied().collect();
                let woven = weave(&source, &here).with_context(|| format!("parse {file}"))?;
                out.extend(woven.without_place.into_iter().map(|id| (id, Verdict::NotSwitched)));
                out.extend(woven.planted.into_iter().map(|id| (id, Verdict::Planted)));
                let text = if is_root(file) { woven.text + SWITCH } else { woven.text };
                renew(&self.path.join(file), text.as_bytes())?;
                regions.push((file, woven.regions));
            }
            self.switch_in_other_roots(root, &files)?;
            let (compiles, wrong) = self.compiled(tests, &regions)?;
            crate::say(&format!(
                "round {round}: {} of {} mutants are woven in",
                mutants.len() - out.len(),
                mutants.len()
            ));
            if compiles {
                return Ok(out);
            }
            if wrong.mutants.is_empty() {
                let why = wrong.unexplained.unwrap_or_else(|| "cargo says no more".to_owned());
                bail!("what is woven does not compile, and no mutant is known to be why:\n{why}");
            }
            out.extend(wrong.mutants.into_iter().map(|id| (id, Verdict::Unviable)));
        }
        bail!("what is woven does not compile after {ROUNDS_MAX} rounds")
    }

    /// A package may have several roots, and all of its files ask in the root of theirs.
    fn switch_in_other_roots(&self, root: &Path, files: &BTreeSet<&str>) -> anyhow::Result<()> {
        let folders: BTreeSet<&str> =
            files.iter().filter_map(|file| file.split_once("/src/").map(|(at, _)| at)).collect();
        for name in folders.iter().flat_map(|at| ["lib.rs", "main.rs"].map(|name| format!("{at}/src/{name}"))) {
            if !files.contains(name.as_str())
                && let Ok(text) = fs::read_to_string(root.join(&name))
            {
                renew(&self.path.join(&name), (text + SWITCH).as_bytes())?;
            }
        }
        Ok(())
    }

    /// Whether it compiles, and what is wrong where not.
    fn compiled(&self, tests: &[&str], regions: &Regions<'_>) -> anyhow::Result<(bool, Wrong)> {
        let mut command = self.cargo();
        command.args(["check", "--tests", "--bins", "--keep-going", "--locked", "--message-format", "json"]);
        command.args(tests.iter().flat_map(|package| ["--package", package]));
        let output = command.stderr(Stdio::null()).output().context("start cargo")?;
        Ok((output.status.success(), compiler::wrong(&String::from_utf8_lossy(&output.stdout), regions)))
    }

    /// cargo in the copy, as every run of it is called.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&self.path).env("CARGO_TARGET_DIR", &self.target).env("RUSTFLAGS", "--cap-lints allow");
        command.env("CARGO_PROFILE_DEV_DEBUG", "none").env("CARGO_PROFILE_TEST_DEBUG", "none");
        command.env("NEXTEST_PROFILE", "mutants").env_remove(CHOSEN).env_remove(REACHED);
        command
    }
}

fn is_root(file: &str) -> bool {
    file.ends_with("/src/lib.rs") || file.ends_with("/src/main.rs")
}

fn renew(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// Takes away what an earlier tree had and this one has not.
fn remove_others(folder: &Path, known: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, known)?;
        } else if !known.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}
