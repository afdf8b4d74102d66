//! SECURITY.md names a test for each threat. A name that no test has is a promise that nobody keeps.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tidy::rust_files;

/// Adds what is wrong with the table to the problems.
pub(crate) fn check(root: &Path, problems: &mut Vec<String>) {
    let text = fs::read_to_string(root.join("SECURITY.md")).unwrap_or_default();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| threat")).collect();
    if rows.is_empty() {
        problems.push("SECURITY.md has no table of threats".to_owned());
    }
    let known = tests(root);
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let named: Vec<&str> = cells.last().map_or_else(Vec::new, |cell| quoted(cell));
        if named.is_empty() {
            problems.push(format!("SECURITY.md: the threat `{}` names no test", cells.first().unwrap_or(&"")));
        }
        for name in named.iter().filter(|name| !known.contains(**name)) {
            problems.push(format!("SECURITY.md: there is no test `{name}`"));
        }
    }
}

/// What stands between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Every test as `crate::name`, and this tool's own checks as `cargo xtask NAME`.
fn tests(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for place in ["crates", "xtask"] {
        let mut files = Vec::new();
        rust_files(&root.join(place), &mut files);
        for file in files {
            let shown = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
            let mut parts = shown.split('/');
            let owner = parts.next().filter(|part| *part != "crates").or_else(|| parts.next()).unwrap_or_default();
            for name in tests_of(&fs::read_to_string(&file).unwrap_or_default()) {
                found.insert(format!("{owner}::{name}"));
            }
        }
    }
    let commands = fs::read_to_string(root.join("xtask/src/main.rs")).unwrap_or_default();
    for line in commands.lines().filter(|line| line.starts_with("cargo xtask ")) {
        found.insert(line.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    }
    found
}

/// The names of the functions under `#[test]` and `#[tokio::test…]`.
fn tests_of(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(rest) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn "))
            && std::mem::take(&mut marked)
        {
            names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_under_a_test_attribute_count() {
        let text = "fn helper() {}\n#[test]\nfn one() {}\n#[tokio::test(start_paused = true)]\n#[expect(x)]\n    async fn two_b() {}\nfn three() {}";
        assert_eq!(tests_of(text), ["one", "two_b"]);
        assert_eq!(quoted("`a::b`, `c`"), ["a::b", "c"]);
    }
}
