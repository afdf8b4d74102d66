//! What a file may ask of whoever reads it: no more work than its bytes are worth.
#![expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]

use std::time::{Duration, Instant};

use aetheris_agentfile::{FileError, parse};
use aetheris_core::limits;

/// A file whose nodes run only if these hold.
fn conditions(whens: impl Iterator<Item = String>) -> String {
    let nodes = whens.enumerate().map(|(n, when)| format!("    - {{ id: n{n}, kind: condition, when: '{when}' }}\n"));
    format!("agent: a\nplan:\n  nodes:\n{}", nodes.collect::<String>())
}

/// What a file is refused for, and how long that takes.
fn timed(source: &str) -> (Vec<FileError>, Duration) {
    let began = Instant::now();
    let errors = parse(source).err().unwrap_or_default();
    (errors, began.elapsed())
}

/// A condition without a node in it is evaluated when the file is read. All of them have the work of one value, and where
/// it is used up a node counts as one that may run.
#[test]
fn the_conditions_of_a_file_share_one_allowance_of_work() {
    let greedy = format!("range({}) | length > 1", limits::TEMPLATE_FUEL - 5_000);
    let each = usize::try_from(limits::VALUE_FUEL / limits::TEMPLATE_FUEL).unwrap_or(0);
    let never = |greedy_ones: usize| {
        let whens = std::iter::repeat_n(greedy.clone(), greedy_ones).chain(["false".to_owned()]);
        timed(&conditions(whens)).0.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(never(each - 1), [format!("plan.nodes[{}].when", each - 1)]);
    assert_eq!(never(2 * each), Vec::<String>::new());
    // Those of an ordinary file are all evaluated, however many.
    let (errors, _) = timed(&conditions(std::iter::repeat_n("1 > 2".to_owned(), 150)));
    assert_eq!(errors.len(), 150);
}

/// Two hundred mistakes are told of a file: looking for more of them, and for what was meant, would only take time.
#[test]
fn a_file_of_mistakes_takes_no_longer_than_one_without() {
    let half = limits::AGENT_FILE_BYTES_MAX / 2;
    let (_, sound) = timed(&format!("[{}]", "1,".repeat(half - 10)));
    for wrong in ["a: 1\n".repeat(half / 3), format!("{{{}}}", "?,".repeat(half - 10)), "&a ".repeat(half / 2)] {
        let (errors, took) = timed(&wrong);
        assert!(errors.len() <= 200 && took < sound / 2, "{} mistakes in {took:?}, none in {sound:?}", errors.len());
    }
    // As many keys that are near known ones as there may be.
    let kinds = "    - { id: n, kind: transfrom, output: 1 }\n".repeat(limits::PLAN_NODES_MAX);
    let (errors, took) = timed(&format!("agent: a\nplan:\n  nodes:\n{kinds}"));
    assert!(errors.len() == 200 && took < 10 * sound, "{took:?}, {sound:?}");
}
