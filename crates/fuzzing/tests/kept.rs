//! The kept inputs of every fuzzer: seeds, and whatever once broke something.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::path::{Path, PathBuf};

use aetheris_fuzzing::{TARGETS, Target};

fn inputs(folder: &str, target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(folder).join(target);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    inputs.sort();
    inputs
}

fn replay(folder: &str, target: &str, run: Target) -> usize {
    let inputs = inputs(folder, target);
    for input in &inputs {
        let bytes = std::fs::read(input).unwrap();
        let broken = std::panic::catch_unwind(|| run(&bytes)).is_err();
        assert!(!broken, "{} breaks {target}", input.display());
    }
    inputs.len()
}

#[test]
fn the_corpus_holds_and_no_target_is_without_one() {
    let mut bytes = 0;
    for (target, run) in TARGETS {
        assert!(replay("corpus", target, *run) > 0, "fuzz/corpus/{target} is empty");
        bytes += inputs("corpus", target).iter().map(|path| std::fs::metadata(path).unwrap().len()).sum::<u64>();
    }
    assert!(bytes <= 200 * 1024, "the corpus has {bytes} bytes; keep it small");
}

#[test]
fn what_once_broke_something_does_not_any_more() {
    let count: usize = TARGETS.iter().map(|(target, run)| replay("regressions", target, *run)).sum();
    assert!(count > 0);
}

#[test]
fn every_target_has_its_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for (target, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} has no [[bin]] in fuzz/Cargo.toml");
        let wrapper = std::fs::read_to_string(folder.join(format!("src/{target}.rs"))).unwrap();
        assert!(wrapper.contains(&format!("target!(\"{target}\")")), "{target}");
    }
}
