//! Whether the tests of large crates notice changes of the code. cargo-mutants finds what can be changed ([`listed`]); instead of
//! building the crate for each change, all are built at once, each behind a switch ([`weave`], [`tree`]), and each is tried with
//! the tests that reach it ([`trial`]), then with the simulation ([`simulation`]).

mod compiler;
mod crates;
mod listed;
mod results;
mod simulation;
// It is added to other crates; here a test compiles it.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the only way into another crate's tests")]
mod switch;
mod tree;
mod trial;
mod weave;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;

use crates::Sampled;
use listed::Mutant;
use results::Kept;
use tree::Tree;
use trial::Tests;
use weave::Id;

/// Mutants of a part, at least, where a crate has as many.
const SAMPLE: usize = 60;
/// Percent that must be noticed where nothing else is asked for.
const NOTICED_MIN: usize = 85;

/// What is asked for.
#[derive(Debug, Parser)]
#[command(about = "Whether tests notice changes of the code: all of a crate's in one build")]
pub struct Arguments {
    /// Which part of each crate.
    #[arg(long, default_value_t = 0)]
    seed: usize,
    /// Every part, in one go.
    #[arg(long)]
    whole: bool,
    /// Only files whose path begins so, from the root, as crates/runtime/src/run/; repeated. All of their mutants are run.
    #[arg(long)]
    file: Vec<String>,
    /// Percent that must be noticed.
    #[arg(long, default_value_t = NOTICED_MIN)]
    min: usize,
    /// cargo-mutants; `cargo xtask mutants sample` says it.
    #[arg(long)]
    tool: PathBuf,
    /// runtime, worker, scheduler, store, store-sqlite, server, adapters, api, cli, agentfile, expr, schema; without one, all.
    crates: Vec<String>,
}

impl Arguments {
    /// Whether a mutant is run, of so many.
    fn chosen(&self, id: Id, mutant: &Mutant, all: usize) -> bool {
        let parts = (all / SAMPLE).max(1);
        if self.file.is_empty() {
            self.whole || id as usize % parts == self.seed % parts
        } else {
            self.file.iter().any(|file| mutant.file.starts_with(file.as_str()))
        }
    }
}

/// Runs what is asked for, from the root of the tree; whether enough was noticed.
///
/// # Errors
/// A tool cannot be run, or what is woven does not compile.
pub fn run(asked: &Arguments) -> anyhow::Result<bool> {
    let root = std::env::current_dir()?;
    let (mut good, mut any) = (true, false);
    for sampled in crates::wanted(&asked.crates)? {
        let of = of_crate(&root, asked, sampled).with_context(|| format!("mutants of {}", sampled.name))?;
        any |= of.is_some();
        good &= of.unwrap_or(true);
    }
    if !any {
        say("there is nothing to change there; a path counts from the root, as crates/runtime/src/run/");
    }
    Ok(good && any)
}

/// One crate; whether enough was noticed. `None` where it has nothing of what is asked for.
fn of_crate(root: &Path, asked: &Arguments, of: Sampled) -> anyhow::Result<Option<bool>> {
    let name = of.name;
    let all = listed::of_package(root, &asked.tool, &format!("aetheris-{name}"))?;
    let numbered = (1..).zip(&all).filter(|(id, mutant)| asked.chosen(*id, mutant, all.len()));
    let mutants: Vec<(Id, &Mutant)> = numbered.collect();
    if mutants.is_empty() {
        return Ok(None);
    }
    say(&format!(
        "{name}: {} of {} mutants; two to five minutes to build, then one to three seconds each, twenty where tests of files reach it",
        mutants.len(),
        all.len()
    ));
    let tree = Tree::copied(root)?;
    let mut kept = Kept::of(&tree, name)?;
    let to_do: Vec<(Id, &Mutant)> = mutants.iter().filter(|(_, mutant)| !kept.has(mutant)).copied().collect();
    if !to_do.is_empty() {
        let taken_out = tree.woven(root, &to_do, of.tests)?;
        let tests = Tests::built(tree, of)?;
        for (id, mutant) in to_do {
            let verdict = match taken_out.get(&id) {
                Some(why) => why.clone(),
                None => tests.verdict(id)?,
            };
            kept.add(mutant, verdict)?;
        }
    }
    Ok(Some(kept.told(name, &mutants, asked.min)))
}

#[expect(clippy::print_stdout, reason = "a command line tool")]
fn say(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is added to each crate compiles, and without a choice nothing is another.
    #[test]
    fn no_mutant_is_chosen_where_nothing_is_said() {
        assert!(!switch::__mutant(1));
    }

    #[test]
    fn a_part_has_sixty_mutants_or_all_there_are() {
        let mutant = listed::tests::mutant(listed::Genre::FnValue, (1, 1), "");
        let of = |asked: &Arguments, all: u32| {
            (1..=all).filter(|id| asked.chosen(*id, &mutant, usize::try_from(all).unwrap_or(0))).count()
        };
        let asked = |more: &[&str]| Arguments::parse_from(["m", "--tool", "t"].iter().chain(more));
        for (all, part) in [(0, 0), (59, 59), (119, 119), (120, 60), (1_000, 62)] {
            assert_eq!(of(&asked(&[]), all), part, "{all}");
        }
        assert_eq!((0..2).map(|seed| of(&asked(&["--seed", &seed.to_string()]), 121)).sum::<usize>(), 121);
        assert_eq!(of(&asked(&["--whole"]), 1_000), 1_000);
        assert_eq!(of(&asked(&["--file", "crates/x/src/a"]), 1_000), 1_000);
        assert_eq!(of(&asked(&["--file", "crates/x/src/b"]), 1_000), 0);
    }
}
