//! The crash matrix: one test per write, one for the calls, one for standing still.

use std::sync::Arc;

use aetheris_proof::drive::cells::{self, Cell};
use aetheris_proof::drive::matrix;
use tokio::sync::Semaphore;

/// Cells of one test that run at once: most of their time they wait.
const AT_ONCE: usize = 4;

/// How many cells the matrix has.
const CELLS: usize = 86;

fn green(cells: Vec<Cell>) {
    let failed = crate::block_on(async {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let runs = cells.into_iter().map(|cell| {
            let slots = Arc::clone(&slots);
            tokio::spawn(async move {
                let _slot = slots.acquire().await;
                matrix::run(crate::program(), &cell).await.err().map(|error| format!("{error:#}"))
            })
        });
        let runs: Vec<_> = runs.collect();
        let mut failed = Vec::new();
        for run in runs {
            failed.extend(run.await.unwrap());
        }
        failed
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
    create permit record finish block requeue doubt signal timer cancel reclaim deposit resolve
    claim heartbeat put_agent
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
