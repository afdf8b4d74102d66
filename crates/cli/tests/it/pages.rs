use std::path::Path;

use crate::markdown::{Block, blocks};
use aetheris_harness::Folder;

use crate::terminal::Desk;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap()
}

#[test]
fn every_line_of_the_http_page_answers() {
    let folder = Folder::new("http");
    let mut desk = Desk::new(&folder, &[8080]);
    let mut printed = Vec::new();
    for block in blocks(&page("docs/http-api.md"), None) {
        match block.name.as_str() {
            "client" => printed.push(desk.run(&block)),
            _ => desk.start(&block),
        }
    }
    let all = printed.concat();
    for expected in [
        "\"agent\":\"greeter\"",
        "\"status\":\"pending\"",
        "\"waiting_approval\"",
        "\"status\":\"delivered\"",
        "\"text\":\"Hello Grace, welcome!\"",
        "\"from\":\"rendered\"",
        "\"matches\":true",
        "\"valid\":true",
        "event: job_completed",
        "\"code\":\"job_finished\"",
        "\"invocations\":[]",
        "\"code\":\"job_not_found\"",
    ] {
        assert!(all.contains(expected), "{expected} is not in\n{all}");
    }
    let refused = ["invalid_request", "not_found\"", "method_not_allowed"];
    let unexpected = refused.iter().find(|code| all.contains(&format!("\"code\":\"{code}")));
    assert_eq!(unexpected, None, "{all}");
}

/// The page names every code of the interface, and no other.
#[test]
fn the_http_page_has_every_code() {
    let text = page("docs/http-api.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let mut told: Vec<&str> =
        rows.flat_map(|row| row.split(" | ").next().unwrap().split('`').skip(1).step_by(2)).collect();
    told.sort_unstable();
    let mut known: Vec<&str> = aetheris_api::ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    known.sort_unstable();
    assert_eq!(told, known);
}

#[test]
fn the_first_agent_of_the_readme_runs_as_it_is_written() {
    let folder = Folder::new("first");
    let mut desk = Desk::new(&folder, &[8080, 9000]);
    for block in blocks(&page("README.md"), Some("Your first agent")) {
        first_agent(&mut desk, &folder, &block);
    }
    let book = std::fs::read_to_string(folder.join("first/bookings.jsonl")).unwrap();
    assert_eq!(book.lines().count(), 2, "{book}");
}

fn first_agent(desk: &mut Desk, folder: &Folder, block: &Block) {
    match (block.language.as_str(), block.name.as_str()) {
        ("yaml", file) => {
            let text = desk.local(&format!("{}\n", block.lines.join("\n")));
            std::fs::write(folder.join("first").join(file), text).unwrap();
        }
        ("text", terminal) => block.lines.iter().for_each(|line| desk.line(terminal, line)),
        ("sh", "setup") => {
            // Installing is the page's first line; here the program is in the PATH already.
            let lines = block.lines.iter().filter(|line| !line.starts_with("cargo ")).cloned().collect();
            desk.run(&Block { lines, ..block.clone() });
        }
        ("sh", _) => desk.start(block),
        _ => {
            desk.run(block);
        }
    }
}
