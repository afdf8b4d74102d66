//! `cargo xtask deny`: what comes from others.
//!
//! cargo-deny is the standard tool and `deny.toml` its configuration. Building it takes longer than all else
//! that a change has to pass, so the rules that need no network are checked here from the same file, and
//! cargo-deny itself runs where it is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{run, say};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Most dependencies that our own manifests name.
const DIRECT_MAX: usize = 40;

/// Whether every rule holds.
pub(crate) fn check(root: &Path) -> bool {
    let rules = Rules::read(&fs::read_to_string(root.join("deny.toml")).unwrap_or_default());
    let mut problems = Vec::new();
    let packages: usize =
        ["Cargo.lock", "fuzz/Cargo.lock"].iter().map(|file| lock(root, file, &rules, &mut problems)).sum();
    licences(root, &rules, &mut problems);
    let direct = direct(root, &mut problems);
    for problem in &problems {
        say(&format!("deny: {problem}"));
    }
    say(&format!("deny: {packages} packages locked, {direct} direct dependencies of at most {DIRECT_MAX}"));
    let installed = Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|out| out.status.success());
    problems.is_empty() && (!installed || run(root, &["deny", "--locked", "check", "bans", "licenses", "sources"]))
}

/// What of `deny.toml` is checked here.
#[derive(Debug, Default)]
struct Rules {
    /// Licences that are accepted.
    allow: BTreeSet<String>,
    /// Crates that are not.
    deny: BTreeSet<String>,
    /// Duplicates that are, as `name@version`.
    skip: BTreeSet<String>,
    /// Where crates are built for.
    targets: BTreeSet<String>,
}

impl Rules {
    /// Reads the lists that stand one entry a line, the way that file is written.
    fn read(text: &str) -> Self {
        let mut rules = Self::default();
        let (mut section, mut list) = (String::new(), None);
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'))
                && list.is_none()
            {
                section = name.to_owned();
            } else if let Some(name) = line.strip_suffix(" = [") {
                list = Some(name.to_owned());
            } else if line == "]" {
                list = None;
            } else if let (Some(list), Some(value)) = (&list, line.split('"').nth(1)) {
                let entries = match (section.as_str(), list.as_str()) {
                    ("licenses", "allow") => &mut rules.allow,
                    ("bans", "deny") => &mut rules.deny,
                    ("bans", "skip") => &mut rules.skip,
                    ("graph", "targets") => &mut rules.targets,
                    _ => continue,
                };
                entries.insert(value.to_owned());
            }
        }
        rules
    }
}

/// Sources, bans and duplicates, from a lock file; how many packages it has.
fn lock(root: &Path, file: &str, rules: &Rules, problems: &mut Vec<String>) -> usize {
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let packages: Vec<&str> = text.split("[[package]]").skip(1).collect();
    for package in &packages {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            line.map(|value| value.trim_end_matches('"').to_owned())
        };
        let name = field("name").unwrap_or_default();
        match field("source") {
            None if name.starts_with("aetheris-") || name == "xtask" => {}
            None => problems.push(format!("{file}: {name} is taken from a folder")),
            Some(source) if source != CRATES_IO => problems.push(format!("{file}: {name} is taken from {source}")),
            Some(_) if field("checksum").is_none() => problems.push(format!("{file}: {name} has no checksum")),
            Some(_) => {}
        }
        if rules.deny.contains(&name) {
            problems.push(format!("{file}: {name} is banned in deny.toml"));
        }
        versions.entry(name).or_default().push(field("version").unwrap_or_default());
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let accepted = |version: &&String| rules.skip.contains(&format!("{name}@{version}"));
        if versions.iter().filter(|version| !accepted(version)).count() > 1 {
            let all = versions.join(", ");
            problems
                .push(format!("{file}: {name} is there in the versions {all}; remove one or explain it in deny.toml"));
        }
    }
    if packages.is_empty() {
        problems.push(format!("{file} has no packages"));
    }
    packages.len()
}

/// Licences of whatever is built, for the targets of `deny.toml`.
fn licences(root: &Path, rules: &Rules, problems: &mut Vec<String>) {
    let mut args =
        vec!["tree", "--workspace", "--locked", "--all-features", "--prefix", "none", "--format", "{p}\t{l}"];
    args.extend(rules.targets.iter().flat_map(|target| ["--target", target.as_str()]));
    let output = Command::new("cargo").args(args).current_dir(root).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        problems.push("cargo tree cannot list the dependencies".to_owned());
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: BTreeSet<(&str, &str)> = text.lines().filter_map(|line| line.split_once('\t')).collect();
    for (package, licence) in lines {
        let licence = licence.trim_end_matches(" (*)");
        if !accepts(licence, &rules.allow) {
            let said = if licence.is_empty() { "none" } else { licence };
            problems.push(format!("the licence of {package} is not accepted in deny.toml: {said}"));
        }
    }
}

/// Whether the accepted licences satisfy an SPDX expression; `/` is the `OR` of older manifests.
fn accepts(expression: &str, allow: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let satisfied = either(&mut words, allow);
    satisfied && words.is_empty()
}

fn either(words: &mut Vec<&str>, allow: &BTreeSet<String>) -> bool {
    let mut satisfied = both(words, allow);
    while words.last() == Some(&"OR") {
        words.pop();
        satisfied |= both(words, allow);
    }
    satisfied
}

fn both(words: &mut Vec<&str>, allow: &BTreeSet<String>) -> bool {
    let mut satisfied = one(words, allow);
    while words.last() == Some(&"AND") {
        words.pop();
        satisfied &= one(words, allow);
    }
    satisfied
}

fn one(words: &mut Vec<&str>, allow: &BTreeSet<String>) -> bool {
    match words.pop() {
        Some("(") => {
            let satisfied = either(words, allow);
            satisfied & (words.pop() == Some(")"))
        }
        Some(licence) if words.last() == Some(&"WITH") => {
            words.pop();
            let exception = words.pop().unwrap_or_default();
            allow.contains(&format!("{licence} WITH {exception}"))
        }
        Some(licence) => allow.contains(licence),
        None => false,
    }
}

/// Every dependency that a manifest of ours names has its reason in docs/dependencies.md, and there are not
/// too many.
fn direct(root: &Path, problems: &mut Vec<String>) -> usize {
    let mut named = BTreeSet::new();
    let mut manifests = vec![root.join("xtask/Cargo.toml"), root.join("fuzz/Cargo.toml")];
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    manifests.extend(crates.map(|entry| entry.path().join("Cargo.toml")));
    for manifest in manifests {
        named.extend(dependencies(&fs::read_to_string(manifest).unwrap_or_default()));
    }
    let reasons = fs::read_to_string(root.join("docs/dependencies.md")).unwrap_or_default();
    let explained: BTreeSet<String> = reasons
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in named.difference(&explained) {
        problems.push(format!("docs/dependencies.md has no reason for {name}"));
    }
    for name in explained.difference(&named) {
        problems.push(format!("docs/dependencies.md gives a reason for {name}, which nothing depends on"));
    }
    if named.len() > DIRECT_MAX {
        problems.push(format!("{} direct dependencies are more than {DIRECT_MAX}", named.len()));
    }
    named.len()
}

/// The names in every kind of `[…dependencies]` of a manifest, our own crates left out.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]");
        } else if inside && let Some(name) = line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty()) {
            names.insert(name.to_owned());
        }
    }
    names.retain(|name| !name.starts_with("aetheris-") && !name.starts_with('#'));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_satisfied_by_what_is_accepted() {
        let allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        for yes in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "MIT AND Apache-2.0",
            "(GPL-3.0 OR MIT) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(accepts(yes, &allow), "{yes}");
        }
        for no in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0", "MIT WITH x", "(MIT", "MIT MIT"]
        {
            assert!(!accepts(no, &allow), "{no}");
        }
    }

    #[test]
    fn the_lists_of_the_configuration_are_read() {
        let text = "[graph]\ntargets = [\n  \"t\",\n]\n[bans]\nskip = [\n  { crate = \"a@1\", reason = \"b\" },\n]\n[licenses]\nallow = [\n  # why\n  \"MIT\",\n]\n";
        let rules = Rules::read(text);
        assert_eq!((rules.skip.len(), rules.allow.len(), rules.targets.len()), (1, 1, 1));
        assert!(rules.skip.contains("a@1") && rules.allow.contains("MIT"));
    }

    #[test]
    fn dependencies_of_every_kind_are_direct() {
        let text = "[dependencies]\naetheris-core.workspace = true\nserde = \"1\"\n\n[dev-dependencies]\nproptest.workspace = true\n[features]\nx = []\n";
        assert_eq!(dependencies(text).into_iter().collect::<Vec<_>>(), ["proptest", "serde"]);
    }
}
