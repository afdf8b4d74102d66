//! The pages of the concepts: their files are written, their commands typed, and what they show is printed.

use std::path::Path;

use aetheris_harness::Folder;

use crate::markdown::blocks;
use crate::terminal::Desk;

const CONCEPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts");

/// A test for each page, and a test that no page lacks one.
macro_rules! pages {
    ($($page:ident)*) => {
        const PAGES: &[&str] = &[$(stringify!($page)),*];
        $(
            #[test]
            fn $page() {
                typed(stringify!($page));
            }
        )*
    };
}

pages! {
    steps_and_effects
    parallel_steps
    map
    child_jobs
    critics
    agent_loop
    people
    planners
    recorded_values
    failures_and_retries
}

fn file_of(page: &str) -> String {
    format!("{}.md", page.replace('_', "-"))
}

fn typed(page: &str) {
    let folder = Folder::new(page);
    let mut desk = Desk::new(&folder, &[8080, 9000]);
    let text = std::fs::read_to_string(Path::new(CONCEPTS).join(file_of(page))).unwrap();
    for block in blocks(&text, None) {
        match (block.language.as_str(), block.name.as_str()) {
            ("yaml", file) => {
                let text = desk.local(&format!("{}\n", block.lines.join("\n")));
                std::fs::write(folder.join(file), text).unwrap();
            }
            ("text", terminal) => block.lines.iter().for_each(|line| desk.line(terminal, line)),
            ("sh", _) => desk.start(&block),
            _ => {
                desk.run(&block);
            }
        }
    }
}

#[test]
fn every_page_of_the_concepts_is_typed_and_listed() {
    let index = std::fs::read_to_string(Path::new(CONCEPTS).join("README.md")).unwrap();
    let listed: Vec<&str> =
        index.lines().filter_map(|line| line.split_once("](")?.1.split_once(')')?.0.strip_suffix(".md")).collect();
    let listed: Vec<&str> = listed.into_iter().filter(|page| !page.contains('/')).collect();
    let known: Vec<String> = PAGES.iter().map(|page| page.replace('_', "-")).collect();
    assert_eq!(listed, known);
    let files = std::fs::read_dir(CONCEPTS).unwrap().count();
    assert_eq!(files, PAGES.len() + 1);
}
