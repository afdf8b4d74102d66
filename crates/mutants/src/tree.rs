//! A copy of the tree that holds all mutants of some packages at once, and the build of its tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::listed::Mutant;
use crate::weave::{Id, Region, weave};

/// Rounds of compiling and taking out what does not compile. A round shows the errors of one stage of the compiler.
const ROUNDS_MAX: usize = 40;

/// How code asks whether it is to be another. Beside it, a test that is to tell what it reaches leaves a line in a folder
/// for each mutant that it could notice.
const SWITCH: &str = r#"
#[doc(hidden)]
pub(crate) fn __mutant(id: u32) -> bool {
    use ::std::sync::atomic::{AtomicBool, Ordering};
    use ::std::sync::LazyLock;
    static CHOSEN: LazyLock<u32> =
        LazyLock::new(|| ::std::env::var("MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(0));
    static REACHED: LazyLock<Option<::std::path::PathBuf>> = LazyLock::new(|| {
        let folder = ::std::env::var_os("MUTANTS_REACHED")?;
        Some(::std::path::Path::new(&folder).join(::std::process::id().to_string()))
    });
    static SEEN: [AtomicBool; 16_384] = [const { AtomicBool::new(false) }; 16_384];
    if let Some(path) = &*REACHED
        && SEEN.get(id as usize).is_some_and(|seen| !seen.swap(true, Ordering::Relaxed))
    {
        let line = ::std::format!(
            "{id}\t{}\t{}\n",
            ::std::env::var("NEXTEST_BINARY_ID").unwrap_or_default(),
            ::std::env::var("NEXTEST_TEST_NAME").unwrap_or_default()
        );
        let file = ::std::fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| ::std::io::Write::write_all(&mut file, line.as_bytes()));
    }
    *CHOSEN == id
}
"#;

/// The copy.
pub(crate) struct Tree {
    pub(crate) path: PathBuf,
    pub(crate) target: PathBuf,
}

/// Mutants that are not in the woven tree.
pub(crate) struct Left {
    /// They do not compile, or cannot be switched.
    pub(crate) broken: BTreeSet<Id>,
    /// They are in planted bugs.
    pub(crate) planted: BTreeSet<Id>,
}

/// What the compiler says of a place.
#[derive(Deserialize)]
struct Message {
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
    spans: Vec<Stretch>,
    #[serde(default)]
    children: Vec<Diagnostic>,
}

#[derive(Clone, Deserialize)]
struct Stretch {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

impl Tree {
    /// Copies what git knows of below `root`, and leaves alone what is as it was.
    pub(crate) fn copied(root: &Path) -> anyhow::Result<Tree> {
        let (path, target) = (root.join("target/mutants/tree"), root.join("target/mutants/build"));
        let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context("start git")?;
        let mut known = BTreeSet::new();
        for name in String::from_utf8_lossy(&output.stdout).split('\0').filter(|name| !name.is_empty()) {
            let Ok(bytes) = fs::read(root.join(name)) else { continue };
            renew(&path.join(name), &bytes)?;
            known.insert(path.join(name));
        }
        remove_others(&path.join("crates"), &known)?;
        Ok(Tree { path, target })
    }

    /// Weaves the mutants into the copy until it compiles.
    pub(crate) fn woven(&self, root: &Path, mutants: &[(Id, &Mutant)], tests: &[&str]) -> anyhow::Result<Left> {
        let files: BTreeSet<&str> = mutants.iter().map(|(_, mutant)| mutant.file.as_str()).collect();
        let (mut out, mut planted) = (BTreeSet::new(), BTreeSet::new());
        for round in 1..=ROUNDS_MAX {
            let mut regions: Vec<(&str, Vec<Region>)> = Vec::new();
            for file in &files {
                let source = fs::read_to_string(root.join(file)).with_context(|| format!("read {file}"))?;
                let here: Vec<_> =
                    mutants.iter().filter(|(id, one)| one.file == **file && !out.contains(id)).copied().collect();
                let woven = weave(&source, &here).with_context(|| format!("parse {file}"))?;
                out.extend(woven.without_place);
                planted.extend(woven.planted);
                let text = if is_root(file) { woven.text + SWITCH } else { woven.text };
                renew(&self.path.join(file), text.as_bytes())?;
                regions.push((file, woven.regions));
            }
            self.switch_in_other_roots(root, &files)?;
            let (wrong, unexplained) = self.compiled(tests, &regions)?;
            crate::say(&format!("round {round}: {} of {} mutants left", mutants.len() - out.len(), mutants.len()));
            if wrong.is_empty() {
                if let Some(error) = unexplained {
                    bail!("what is woven does not compile, and no mutant is known to be why:\n{error}");
                }
                return Ok(Left { broken: out, planted });
            }
            out.extend(wrong);
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

    /// Compiles; the mutants that errors are about, and an error that is about none.
    fn compiled(
        &self,
        tests: &[&str],
        regions: &[(&str, Vec<Region>)],
    ) -> anyhow::Result<(BTreeSet<Id>, Option<String>)> {
        let mut command = self.cargo();
        command.args(["check", "--tests", "--bins", "--keep-going", "--locked", "--message-format", "json"]);
        command.args(tests.iter().flat_map(|package| ["--package", package]));
        let output = command.stderr(Stdio::null()).output().context("start cargo")?;
        let (mut wrong, mut unexplained) = (BTreeSet::new(), None);
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(Message { message: Some(error) }) = serde_json::from_str(line) else { continue };
            if error.level != "error" {
                continue;
            }
            let found = blamed(&error, regions);
            if found.is_empty() && !error.spans.is_empty() {
                unexplained = error.rendered.clone().or(unexplained);
            }
            wrong.extend(found);
        }
        Ok((wrong, unexplained))
    }

    /// cargo in the copy, as every run of it is called.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&self.path).env("CARGO_TARGET_DIR", &self.target).env("RUSTFLAGS", "--cap-lints allow");
        command.env("CARGO_PROFILE_DEV_DEBUG", "none").env("CARGO_PROFILE_TEST_DEBUG", "none");
        command.env("NEXTEST_PROFILE", "mutants").env_remove("MUTANT").env_remove("MUTANTS_REACHED");
        command
    }
}

/// The mutants that an error is about: those that it points into; else all of the innermost place around it.
fn blamed(error: &Diagnostic, regions: &[(&str, Vec<Region>)]) -> BTreeSet<Id> {
    let mut stretches: Vec<&Stretch> = error.spans.iter().collect();
    stretches.extend(error.children.iter().flat_map(|child| &child.spans));
    stretches.sort_by_key(|stretch| !stretch.is_primary);
    let of = |stretch: &Stretch| -> Vec<&Region> {
        regions.iter().filter(|(file, _)| stretch.file_name.ends_with(file)).flat_map(|(_, regions)| regions).collect()
    };
    for stretch in &stretches {
        let within = of(stretch)
            .into_iter()
            .flat_map(|region| &region.mutants)
            .filter(|(_, range)| range.start <= stretch.byte_start && stretch.byte_end <= range.end);
        let within: BTreeSet<Id> = within.map(|(id, _)| *id).collect();
        if !within.is_empty() {
            return within;
        }
    }
    for stretch in &stretches {
        let around = of(stretch)
            .into_iter()
            .filter(|region| region.whole.start <= stretch.byte_start && stretch.byte_end <= region.whole.end)
            .min_by_key(|region| region.whole.len());
        if let Some(region) = around {
            return region.mutants.iter().map(|(id, _)| *id).collect();
        }
    }
    BTreeSet::new()
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
