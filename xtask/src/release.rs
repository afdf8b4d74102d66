//! `cargo xtask release-check`: what is only for tests is not in the program that is shipped.
//!
//! The names of crash points, planted bugs and their variables are read from the sources, and searched in the program
//! without and in the one with the feature `faults`: a name that is not found in the latter would prove nothing. Names
//! depend on that feature alone, so the gate searches the unoptimised builds, which its other parts need anyway. With
//! `--release` both are built as they are shipped, which takes minutes and shows that optimisation changes nothing; with
//! `--built` the one with faults is that which the build of all tests has left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::{run, say, shipped};

/// Shorter pieces stand in every program by chance.
const PIECE_BYTES_MIN: usize = 7;

/// Sources whose code the program does not reach, with faults or without: there is nothing to find.
const NOT_REACHED: [&str; 1] = ["crates/store/src/faulty"];

/// Whether the release has none of them.
pub(crate) fn check(root: &Path, arguments: &[String]) -> bool {
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    match examine(root, given("--release"), given(crate::BUILT)) {
        Ok(problems) => {
            for problem in &problems {
                say(&format!("release-check: {problem}"));
            }
            problems.is_empty()
        }
        Err(why) => {
            say(&format!("release-check: {why}"));
            false
        }
    }
}

fn examine(root: &Path, release: bool, built: bool) -> Result<Vec<String>, String> {
    let (crates, features) = shipped::crates(root)?;
    let mut problems: Vec<String> =
        features.iter().map(|feature| format!("the feature {feature} is active in the release")).collect();
    let names = names(root, &crates)?;
    let build = |package, program| {
        let mut build = vec!["build", "--locked", "--package", package, "--bin", program];
        build.extend(release.then_some("--release"));
        run(root, &build)
    };
    if !(built && !release || build("aetheris-proof", "aetheris-faulted")) || !build("aetheris-cli", "aetheris") {
        return Err("the programs do not build".to_owned());
    }
    let target = crate::target_dir(root);
    let read = |name: &str| fs::read(target.join(name)).map_err(|e| format!("{name}: {e}"));
    let profile = if release { "release" } else { "debug" };
    let search = |program: &str| read(&format!("{profile}/{program}")).map(|bytes| found(&bytes, &names));
    let (faulted, shipped) = (search("aetheris-faulted")?, search("aetheris")?);
    for (piece, name) in &names {
        if shipped.contains(piece) {
            problems.push(format!("`{piece}` of {name} is in the program that is shipped"));
        }
        if !faulted.contains(piece) && !NOT_REACHED.iter().any(|file| name.contains(file)) {
            problems.push(format!("`{piece}` of {name} is not in the build with faults: its absence proves nothing"));
        }
    }
    say(&format!(
        "release-check: {} names from {} crates; {} found with faults, {} in the program that is shipped",
        names.len(),
        crates.len(),
        faulted.len(),
        shipped.len()
    ));
    Ok(problems)
}

/// What to look for, and which name it is of: of a name with gaps, its longest piece.
fn names(root: &Path, crates: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut names = BTreeMap::new();
    for (file, text) in shipped::sources(root, crates) {
        // The crate that defines the macros has the names of the variables, and examples.
        let found = if file.starts_with("crates/fault/") {
            variables(&text)
        } else {
            let calls = ["crash_point!(", "planted!("];
            calls.iter().flat_map(|call| shipped::first_literals(&text, call)).collect()
        };
        for name in found {
            let piece = longest_piece(&name);
            if piece.len() < PIECE_BYTES_MIN {
                return Err(format!("{file}: `{name}` is too short to be told from chance; give it a longer name"));
            }
            names.insert(piece, format!("`{name}` ({file})"));
        }
    }
    if names.is_empty() { Err("no names were found in the sources".to_owned()) } else { Ok(names) }
}

fn longest_piece(name: &str) -> String {
    name.split(['{', '}']).step_by(2).max_by_key(|piece| piece.len()).unwrap_or_default().to_owned()
}

/// The names of environment variables among the literals of a text.
fn variables(text: &str) -> Vec<String> {
    let literals = text.split('"').filter(|literal| literal.starts_with("AETHERIS_"));
    literals.filter(|name| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')).map(str::to_owned).collect()
}

/// Which of the names stand in these bytes. One pass, whatever their number.
fn found(bytes: &[u8], names: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut by_start: BTreeMap<&[u8], Vec<&str>> = BTreeMap::new();
    let mut starts = vec![false; 1 << 16];
    let place = |pair: &[u8]| usize::from(pair[0]) << 8 | usize::from(pair[1]);
    for name in names.keys() {
        let start = &name.as_bytes()[..2];
        by_start.entry(start).or_default().push(name);
        starts[place(start)] = true;
    }
    let mut found = BTreeSet::new();
    for (at, pair) in bytes.windows(2).enumerate() {
        if starts[place(pair)] {
            let here = by_start.get(pair).into_iter().flatten().filter(|name| bytes[at..].starts_with(name.as_bytes()));
            found.extend(here.map(|name| (*name).to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_gaps_are_known_by_their_longest_piece() {
        assert_eq!(longest_piece("store.{purpose}.before_commit"), ".before_commit");
        assert_eq!(longest_piece("ops.{}.decided"), ".decided");
        assert_eq!(longest_piece("start.locked"), "start.locked");
        assert_eq!(variables("env::var(\"AETHERIS_BUG\") \"AETHERIS_x\" \"BUG\""), ["AETHERIS_BUG"]);
    }

    #[test]
    fn names_are_found_wherever_they_stand() {
        let names = ["first", "middle", "at-end", "absent"].map(|name| (name.to_owned(), String::new())).into();
        let found = found(b"first\x00fimiddle\xff at-en at-end", &names);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["at-end", "first", "middle"]);
    }
}
