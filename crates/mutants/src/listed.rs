//! What there is to change: cargo-mutants finds it, this reads its list.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// One change of the code.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Mutant {
    /// `FILE:LINE:COLUMN: what is changed in which function`.
    pub(crate) name: String,
    /// From the root of the tree.
    pub(crate) file: String,
    pub(crate) genre: Genre,
    /// What stands in the place of the span; nothing for what is left out.
    pub(crate) replacement: String,
    pub(crate) span: Span,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Place,
}

/// Both from 1; columns are characters.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Everything that cargo-mutants would change in a package, in its order: by file and place.
pub(crate) fn of_package(root: &Path, tool: &Path, package: &str) -> anyhow::Result<Vec<Mutant>> {
    let mut command = Command::new(tool);
    command.args(["mutants", "--list", "--json", "--config", ".cargo/mutants-sample.toml", "--package", package]);
    let output = command.current_dir(root).output().with_context(|| format!("start {}", tool.display()))?;
    if !output.status.success() {
        bail!("cargo-mutants cannot list {package}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("read the list of {package}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn mutant(genre: Genre, (line, column): (usize, usize), replacement: &str) -> Mutant {
        Mutant {
            name: format!("crates/x/src/a.rs:{line}:{column}: {replacement}"),
            file: "crates/x/src/a.rs".to_owned(),
            genre,
            replacement: replacement.to_owned(),
            span: Span { start: Place { line, column } },
        }
    }

    #[test]
    fn a_list_of_the_tool_is_read() {
        let text = r#"[{"diff":"","file":"crates/x/src/a.rs","function":null,"genre":"BinaryOperator","name":"crates/x/src/a.rs:3:9: <",
            "package":"aetheris-x","replacement":"<","span":{"start":{"line":3,"column":9},"end":{"line":3,"column":10}}}]"#;
        let read: Vec<Mutant> = serde_json::from_str(text).unwrap_or_default();
        assert_eq!(read, [mutant(Genre::BinaryOperator, (3, 9), "<")].map(|one| Mutant { name: one.name, ..one }));
    }
}
