use std::path::Path;

use crate::markdown::{Block, blocks};
use aetheris_harness::Folder;

use crate::terminal::Desk;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A copy of an example below a folder, with the ports that are free here.
fn copy(example: &str, folder: &Path, desk: &Desk) {
    let to = folder.join("examples").join(example);
    std::fs::create_dir_all(&to).unwrap();
    for file in std::fs::read_dir(Path::new(ROOT).join("examples").join(example)).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let text = desk.local(&std::fs::read_to_string(&path).unwrap());
            std::fs::write(to.join(path.file_name().unwrap()), text).unwrap();
        }
    }
}

/// Types what the page of the examples says of one of them; what was printed by each block of the client.
fn typed(example: &str, folder: &Folder, ports: &[u16]) -> Vec<String> {
    let mut desk = Desk::new(folder, ports);
    copy(example, folder, &desk);
    let page = std::fs::read_to_string(Path::new(ROOT).join("examples/README.md")).unwrap();
    let mut printed = Vec::new();
    for block in blocks(&page, Some(example)) {
        match block.name.as_str() {
            "client" => printed.push(desk.run(&block)),
            _ => desk.start(&block),
        }
    }
    printed
}

#[test]
fn the_refund_example_books_each_refund_once() {
    let folder = Folder::new("refund");
    let printed = typed("refund", &folder, &[8080, 9000]);
    assert!(printed[0].contains("\"refund_id\": \"rf-1\""), "{}", printed[0]);
    assert!(printed[1].contains("\"refund_id\": \"rf-2\""), "{}", printed[1]);
    assert!(printed[1].contains("reconciled: the other side was asked and knew it"), "{}", printed[1]);
    let book = std::fs::read_to_string(folder.join("examples/refund/bookings.jsonl")).unwrap();
    assert_eq!(book.lines().count(), 2, "{book}");
}

#[test]
fn the_triage_example_stores_what_a_person_has_seen() {
    let folder = Folder::new("triage");
    let printed = typed("triage", &folder, &[8080, 9100]);
    assert!(printed[0].contains("\"answered\": \"Ada\""), "{}", printed[0]);
}

/// A refusal stands: a call that comes after "did not happen" is not booked.
#[test]
fn the_payments_service_refuses_what_it_has_denied() {
    let folder = Folder::new("refusal");
    let mut desk = Desk::new(&folder, &[9000]);
    copy("refund", &folder, &desk);
    let block = |name: &str, lines: &[&str]| Block {
        language: "sh".to_owned(),
        name: name.to_owned(),
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
    };
    desk.start(&block("service", &["cd examples/refund", "python3 payments.py --port 9000 --book b.jsonl"]));
    let ask = r#"curl -s -X POST localhost:9000/refunds/outcome -d '{"idempotency_key": "k", "permit": "1.1"}'"#;
    let send = |permit: &str| {
        format!(
            "curl -s -o out -w '%{{http_code}}' -X POST localhost:9000/refunds -H 'Idempotency-Key: k' \
             -H 'Aetheris-Permit: {permit}' -d '{{\"cents\": 1}}'"
        )
    };
    assert!(desk.run(&block("client", &[ask])).contains("did_not_happen"));
    assert!(desk.run(&block("client", &[send("1.1").as_str()])).contains("410"));
    assert!(desk.run(&block("client", &[send("1.2").as_str()])).contains("201"));
    assert!(desk.run(&block("client", &[ask])).contains("\"happened\""));
}

/// A service that forgets says "did not happen" of what it has booked.
#[test]
fn the_payments_service_remembers_what_it_has_booked_and_denied() {
    let folder = Folder::new("remembers");
    let mut desk = Desk::new(&folder, &[9000, 9001]);
    copy("refund", &folder, &desk);
    let block = |name: &str, lines: &[&str]| Block {
        language: "sh".to_owned(),
        name: name.to_owned(),
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
    };
    let ask = |port: u16, key: &str| {
        format!(
            "curl -s -X POST http://127.0.0.1:{port}/refunds/outcome -d '{{\"idempotency_key\": \"{key}\", \"permit\": \"1.1\"}}'"
        )
    };
    let send = |port: u16, key: &str| {
        format!(
            "curl -s -w '%{{http_code}}' -X POST http://127.0.0.1:{port}/refunds -H 'Idempotency-Key: {key}' \
             -H 'Aetheris-Permit: 1.1' -d '{{\"cents\": 1}}'"
        )
    };
    let start = |name: &str, port: u16| {
        let line = format!("python3 payments.py --port {port} --book b.jsonl");
        block(name, &["cd examples/refund", &line])
    };
    desk.start(&start("first", 9000));
    assert!(desk.run(&block("client", &[&send(9000, "booked")])).contains("201"));
    assert!(desk.run(&block("client", &[&ask(9000, "denied")])).contains("did_not_happen"));
    // It dies in the middle of a line.
    let book = folder.join("examples/refund/b.jsonl");
    let mut torn = std::fs::read_to_string(&book).unwrap();
    torn.push_str("{\"key\": \"to");
    std::fs::write(&book, torn).unwrap();
    desk.start(&start("second", 9001));
    let outcome = desk.run(&block("client", &[&ask(9001, "booked")]));
    assert!(outcome.contains("\"happened\"") && outcome.contains("rf-1"), "{outcome}");
    assert!(desk.run(&block("client", &[&send(9001, "denied")])).contains("410"));
    assert!(desk.run(&block("client", &[&send(9001, "booked")])).contains("200"));
    assert!(desk.run(&block("client", &[&send(9001, "third")])).contains("rf-2"));
}

/// An answer that does not fit is refused and uses up nothing, which only a schema can say.
#[test]
fn every_agent_to_copy_says_what_its_messages_and_answers_are() {
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let readme = blocks(&read("README.md"), Some("Your first agent"));
    let first = readme.iter().find(|block| block.language == "yaml").unwrap().lines.join("\n");
    let files = [
        read("examples/refund/refund.yaml"),
        read("examples/triage/triage.yaml"),
        read("crates/cli/init/agent.yaml").replace("NAME", "hello"),
        first,
    ];
    for text in files {
        let agent = aetheris_agentfile::parse(&text).unwrap();
        assert!(agent.message_schema.is_some(), "{text}");
        for node in &agent.plan.nodes {
            if let aetheris_core::plan::NodeKind::Wait(wait) = &node.work.kind {
                assert!(wait.schema.is_some(), "{text}");
            }
        }
    }
}
