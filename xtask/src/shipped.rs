//! Which of our crates are in the program that is shipped, and what their sources say.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tidy::rust_files;

/// The names of our crates, without prefix, that the program of `aetheris-cli` is made of, and the features
/// of ours that are active in it as `crate/feature`.
///
/// # Errors
/// What cargo says.
pub(crate) fn crates(root: &Path) -> Result<(Vec<String>, Vec<String>), String> {
    let args = ["tree", "--package", "aetheris-cli", "--locked", "--edges", "normal,features", "--prefix", "none"];
    let output = Command::new("cargo").args(args).current_dir(root).output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let (mut crates, mut features) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some(rest) = line.strip_prefix("aetheris-") else { continue };
        let name = rest.split(' ').next().unwrap_or_default().to_owned();
        match rest.split_once(" feature \"").and_then(|(_, feature)| feature.split_once('"')) {
            Some(("default", _)) => {}
            Some((feature, _)) => features.push(format!("{name}/{feature}")),
            None => crates.push(name),
        }
    }
    crates.sort();
    crates.dedup();
    features.sort();
    features.dedup();
    Ok((crates, features))
}

/// The sources of these crates, with the tests that stand in them and without those beside: path and text.
pub(crate) fn sources(root: &Path, crates: &[String]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for name in crates {
        rust_files(&root.join("crates").join(name).join("src"), &mut files);
    }
    let shown = |file: &Path| file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
    files.iter().map(|file| (shown(file), fs::read_to_string(file).unwrap_or_default())).collect()
}

/// The text literals that stand as first argument of a macro, wherever rustfmt has put them.
pub(crate) fn first_literals(text: &str, call: &str) -> Vec<String> {
    let calls = text.match_indices(call).map(|(at, _)| &text[at + call.len()..]);
    calls
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split_once('"'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_across_lines_and_other_macros_are_not() {
        let text = "a!(\"one\"); b!(\"no\"); x(a!(\n    \"two.{}.x\",\n    y)); macro a!($x) // a!(name)";
        assert_eq!(first_literals(text, "a!("), ["one", "two.{}.x"]);
    }
}
