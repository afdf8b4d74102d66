//! What the house demands and no compiler checks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{say, security};

/// Which of our crates each may depend on. ARCHITECTURE.md explains the layers; nothing points back.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("disk", &["fault", "harness"]),
    ("fault", &[]),
    ("harness", &[]),
    ("core", &[]),
    ("expr", &["core", "fault"]),
    ("schema", &["core"]),
    ("agentfile", &["core", "expr", "schema"]),
    ("store", &["core", "fault"]),
    ("api", &["core"]),
    ("store-conformance", &["core", "harness", "store"]),
    ("store-sqlite", &["core", "store", "fault"]),
    ("runtime", &["agentfile", "core", "expr", "schema", "store", "fault"]),
    ("check", &["core", "store"]),
    ("plain", &["check", "core", "store"]),
    ("mutants", &[]),
    ("model", &["core", "expr", "runtime", "store"]),
    ("scheduler", &["core", "store", "runtime", "fault"]),
    ("worker", &["core", "store", "runtime", "fault"]),
    ("adapters", &["core", "expr", "runtime", "fault"]),
    ("server", &["agentfile", "api", "check", "core", "fault", "runtime", "store"]),
    (
        "cli",
        &[
            "adapters",
            "agentfile",
            "api",
            "check",
            "core",
            "expr",
            "fault",
            "runtime",
            "scheduler",
            "server",
            "store",
            "store-sqlite",
            "worker",
        ],
    ),
    ("fuzzing", &["adapters", "agentfile", "api", "check", "core", "expr", "runtime", "server", "store"]),
    (
        "proof",
        &[
            "adapters",
            "agentfile",
            "check",
            "cli",
            "core",
            "fault",
            "harness",
            "plain",
            "runtime",
            "scheduler",
            "store",
            "store-conformance",
            "store-sqlite",
            "worker",
        ],
    ),
    ("testing", &["agentfile", "check", "core", "harness", "runtime", "scheduler", "store", "worker"]),
    (
        "sim",
        &[
            "agentfile",
            "check",
            "core",
            "disk",
            "fault",
            "harness",
            "plain",
            "runtime",
            "scheduler",
            "store",
            "store-sqlite",
            "testing",
            "worker",
        ],
    ),
];

/// What the root may hold: everything else has a better place.
const ROOT: &[&str] = &[
    ".cargo",
    ".ci",
    ".config",
    ".git",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "TESTING.md",
    "clippy.toml",
    "crates",
    "deny.toml",
    "docs",
    "examples",
    "fuzz",
    "rustfmt.toml",
    "target",
    "xtask",
];

const FILE_LINES_MAX: usize = 500;

/// Runs every check; whether all passed.
pub(crate) fn check(root: &Path) -> bool {
    let mut problems = Vec::new();
    root_files(root, &mut problems);
    directions(root, &mut problems);
    unit_tests(root, &mut problems);
    lengths(root, &mut problems);
    security::check(root, &mut problems);
    for problem in &problems {
        say(&format!("tidy: {problem}"));
    }
    problems.is_empty()
}

fn root_files(root: &Path, problems: &mut Vec<String>) {
    for name in names(root) {
        if !ROOT.contains(&name.as_str()) {
            problems.push(format!(
                "`{name}` has no place in the root; move it, or add it to xtask/src/tidy.rs with a reason"
            ));
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn directions(root: &Path, problems: &mut Vec<String>) {
    let allowed: BTreeMap<&str, &[&str]> = MAY_DEPEND_ON.iter().copied().collect();
    for name in names(&root.join("crates")) {
        let Some(may) = allowed.get(name.as_str()) else {
            problems.push(format!("crates/{name} is not in the table of directions (xtask/src/tidy.rs)"));
            continue;
        };
        let manifest = fs::read_to_string(root.join("crates").join(&name).join("Cargo.toml")).unwrap_or_default();
        for dependency in own_dependencies(&manifest) {
            if !may.contains(&dependency.as_str()) {
                problems.push(format!("crates/{name} depends on `{dependency}`, which its layer may not"));
            }
        }
    }
}

/// The project's own crates in `[dependencies]`; tests may use more.
fn own_dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.strip_prefix("aetheris-"))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .map(str::to_owned)
        .collect()
}

/// A target says `test = false` where it has no unit tests, and only there: the build of the tests compiles every
/// other one twice, and what it says of one that has tests would keep them from being run.
fn unit_tests(root: &Path, problems: &mut Vec<String>) {
    for name in names(&root.join("crates")) {
        let folder = root.join("crates").join(&name);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        let mut sources = Vec::new();
        rust_files(&folder.join("src"), &mut sources);
        let programs: Vec<PathBuf> =
            targets(&manifest, "[[bin]]").iter().filter_map(|target| program(&folder, target)).collect();
        let library: Vec<&PathBuf> = sources.iter().filter(|source| !programs.contains(source)).collect();
        if !manifest.lines().any(|line| line == "[lib]") {
            problems.push(format!("crates/{name} has no section `[lib]`, which says whether it has unit tests"));
        }
        for target in targets(&manifest, "[lib]") {
            judge_target(&format!("the library of crates/{name}"), &target, &library, problems);
        }
        for target in targets(&manifest, "[[bin]]") {
            let Some(source) = program(&folder, &target) else {
                problems.push(format!("crates/{name} has a program without a `path`"));
                continue;
            };
            judge_target(&source.to_string_lossy(), &target, &[&source], problems);
        }
    }
}

fn judge_target(what: &str, target: &[&str], sources: &[&PathBuf], problems: &mut Vec<String>) {
    let tested = sources.iter().any(|source| has_tests(&fs::read_to_string(source).unwrap_or_default()));
    match (tested, target.contains(&"test = false")) {
        (true, true) => problems.push(format!("{what} has unit tests and says `test = false`: nobody runs them")),
        (false, false) => problems.push(format!("{what} has no unit tests; say `test = false` in its manifest")),
        (true, false) | (false, true) => {}
    }
}

/// Whether a source has unit tests, by the attribute that keeps them out of what is shipped.
fn has_tests(source: &str) -> bool {
    source
        .lines()
        .any(|line| ["#[cfg(test)]", "#[cfg(all(test,"].iter().any(|head| line.trim_start().starts_with(head)))
}

/// The source of a program.
fn program(folder: &Path, target: &[&str]) -> Option<PathBuf> {
    target.iter().find_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"')).map(|path| folder.join(path))
}

/// The lines of each section with this head.
fn targets<'a>(manifest: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let lines: Vec<&str> = manifest.lines().collect();
    let section = |at: usize| lines[at + 1..].iter().copied().take_while(|line| !line.starts_with('[')).collect();
    (0..lines.len()).filter(|at| lines[*at] == head).map(section).collect()
}

fn lengths(root: &Path, problems: &mut Vec<String>) {
    let ratchet = fs::read_to_string(root.join("xtask/ratchet.txt")).unwrap_or_default();
    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    for line in ratchet.lines().filter(|line| !line.starts_with('#')) {
        if let Some((what, lines)) = line.rsplit_once(' ') {
            allowed.insert(what.to_owned(), lines.parse().unwrap_or(0));
        }
    }
    let mut files = Vec::new();
    rust_files(&root.join("crates"), &mut files);
    rust_files(&root.join("xtask"), &mut files);
    for file in files {
        let shown = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = production(&text).len();
        if lines <= FILE_LINES_MAX || shown.contains("/tests/") {
            continue;
        }
        let entry = allowed.remove(&shown);
        let limit = entry.unwrap_or(FILE_LINES_MAX);
        if lines > limit {
            problems.push(format!("{shown} has {lines} lines, more than {limit}; split it"));
        } else if entry.is_some() && lines < limit {
            problems
                .push(format!("{shown} has {lines} lines: write that into xtask/ratchet.txt, which allows {limit}"));
        }
    }
    for (what, _) in allowed {
        problems.push(format!(
            "xtask/ratchet.txt allows more to {what}, which does not need it or is gone; take the line out"
        ));
    }
}

/// Every Rust file below a folder.
pub(crate) fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            rust_files(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The lines before the unit tests, which stand at the end; the mere name of a module that holds them cuts nothing.
fn production(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{');
    let end = lines.windows(2).position(tests).unwrap_or(lines.len());
    lines[..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_are_found_by_their_attribute() {
        for text in ["#[cfg(test)]\nmod tests;\n", "mod a {\n    #[cfg(all(test, unix))]\n    mod tests {}\n}\n"] {
            assert!(has_tests(text), "{text}");
        }
        assert!(!has_tests("#[cfg(not(test))]\nlet text = \"#[cfg(test)]\";\n#[macro_export]\n#[tokio::test]\n"));
    }

    #[test]
    fn a_manifest_has_as_many_targets_as_it_says() {
        let manifest =
            "[lib]\ntest = false\n\n[[bin]]\npath = \"src/a.rs\"\n[[bin]]\npath = \"src/b.rs\"\ntest = false\n";
        assert_eq!(targets(manifest, "[lib]"), [vec!["test = false", ""]]);
        let programs: Vec<_> =
            targets(manifest, "[[bin]]").iter().map(|target| program(Path::new("x"), target)).collect();
        assert_eq!(programs, [Some(PathBuf::from("x/src/a.rs")), Some(PathBuf::from("x/src/b.rs"))]);
    }

    #[test]
    fn only_tests_that_stand_in_the_file_end_what_is_measured() {
        let text = "mod a;\n#[cfg(test)]\nmod tests;\n\nfn b() {\n}\n#[cfg(test)]\nmod more {\nfn c() {\n}\n}\n";
        assert_eq!(production(text).len(), 6);
        assert_eq!(production("fn b() {\n}\n").len(), 2);
    }
}
