//! The crash matrix: one test per write, one for the calls, one for standing still.

use aetheris_proof::drive::cells::{self, Cell};
use aetheris_proof::drive::matrix;
use aetheris_proof::zoo::replies;
use futures_util::StreamExt;

/// Cells of one test that run at once: most of their time they wait.
const AT_ONCE: usize = 4;

/// How many cells the matrix has.
const CELLS: usize = 167;
/// In so many of the 40 pairs the second point is reached too: a recovery need not come by every one.
const TWICE_MIN: usize = 36;

fn green(cells: Vec<Cell>) {
    let failed = crate::block_on(async {
        let run = |cell: Cell| async move { matrix::run(crate::program(), &cell).await.err() };
        let runs = cells.into_iter().map(|cell| async move { tokio::spawn(run(cell)).await.unwrap() });
        let done = futures_util::stream::iter(runs).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
        done.iter().flatten().map(|error| format!("{error:#}")).collect::<Vec<_>>()
    });
    assert!(failed.is_empty(), "{} cells failed:\n\n{}", failed.len(), failed.join("\n\n"));
}

macro_rules! writes {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            green(cells::of_write(stringify!($name)));
        })*

        /// Every write that a store has is a test here.
        #[test]
        fn every_write_has_its_test() {
            assert_eq!(cells::writes(), [$(stringify!($name)),*]);
        }
    };
}

writes! {
    create permit record finish block requeue doubt signal timer cancel pause reclaim deposit resolve
    deliver claim heartbeat put_agent
}

#[test]
fn between() {
    green(cells::between());
}

#[test]
fn pairs() {
    let pairs = cells::pairs();
    assert!(pairs.len() == 40 && cells::all_pairs().len() >= 1_000);
    let done = crate::block_on(async {
        futures_util::stream::iter(pairs)
            .map(|pair| async move { (matrix::run_pair(crate::program(), &pair).await, pair) })
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<_>>()
            .await
    });
    let failed: Vec<_> = done.iter().filter_map(|(done, _)| done.as_ref().err().map(|e| format!("{e:#}"))).collect();
    assert!(failed.is_empty(), "{} pairs failed:\n\n{}", failed.len(), failed.join("\n\n"));
    let twice = done.iter().filter(|(done, _)| matches!(done, Ok(true))).count();
    println!("crash during recovery: {} pairs, {twice} crashed twice", done.len());
    assert!(twice >= TWICE_MIN, "{twice} of {} pairs have crashed twice", done.len());
}

/// Modes three and four: every kind of commit and the claim with the answer lost, on both stores.
#[test]
fn lost_answers() {
    let cells = replies::all();
    let done = crate::block_on(async {
        let runs = cells.iter().map(|cell| async move { tokio::spawn(replies::run(*cell)).await.unwrap() });
        futures_util::stream::iter(runs).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await
    });
    let failed: Vec<_> = done.iter().filter_map(|done| done.as_ref().err().map(|e| format!("{e:#}"))).collect();
    assert!(failed.is_empty(), "{} cells failed:\n\n{}", failed.len(), failed.join("\n"));
    println!("lost answers: {} cells", done.len());
}

/// Every point that is in the code has a cell, and every cell's point is in the code.
#[test]
fn every_point_has_a_cell() {
    let mut points = Vec::new();
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for krate in std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
        // The macro itself, and what is driven by it.
        if !krate.ends_with("fault") && !krate.ends_with("proof") {
            points_in(&krate.join("src"), &mut points);
        }
    }
    assert!(points.len() >= 45, "{} places", points.len());
    let named: std::collections::BTreeSet<String> = cells::all().into_iter().map(|cell| cell.point).collect();
    assert!(named.len() >= 70, "{} points", named.len());
    let fits = |pattern: &str, point: &str| match pattern.split_once('{') {
        None => pattern == point,
        Some((start, rest)) => point.starts_with(start) && point.ends_with(rest.split_once('}').unwrap().1),
    };
    // A part that ends by itself is no crash of the process: `life` ends each of them.
    for pattern in points.iter().filter(|pattern| !pattern.starts_with("vital.")) {
        assert!(named.iter().any(|point| fits(pattern, point)), "no cell for {pattern}");
    }
    for point in &named {
        assert!(points.iter().any(|pattern| fits(pattern, point)), "no place for {point}");
    }
    println!("crash points: {} places in the code, {} points in cells", points.len(), named.len());
}

fn points_in(folder: &std::path::Path, points: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            points_in(&path, points);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut rest = text.as_str();
            while let Some((_, found)) = rest.split_once("crash_point!(\"") {
                let (point, after) = found.split_once('"').unwrap();
                points.push(point.to_owned());
                rest = after;
            }
        }
    }
}

#[test]
fn calls() {
    green(cells::of_calls());
}

#[test]
fn standing_still() {
    green(cells::of_stops());
}

#[test]
fn a_run_without_a_crash_proves_every_invariant() {
    println!("{}", crate::block_on(matrix::crash_free(crate::program())).unwrap());
}

#[test]
fn the_matrix_is_complete() {
    let mut all = cells::all();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), count), (CELLS, CELLS));
    println!("crash matrix: {count} cells");
}
