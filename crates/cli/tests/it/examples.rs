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
    all_in(
        &printed[0],
        &[
            "\"answered\": \"Ada\"",
            "verdict: reject",
            "feedback: Promise no refund. Billing decides that.",
            "Billing checks both charges today",
        ],
    );
    let answer = printed[0].split("\"answered\"").nth(1).unwrap();
    assert!(!answer.lines().take(3).any(|line| line.contains("refunded")), "{answer}");
    assert!(!printed[1].contains("\"answered\""), "{}", printed[1]);
}

/// A killed server repeats no turn and no call, and a person decides where sources differ.
#[test]
fn the_research_example_asks_a_person_and_repeats_nothing() {
    let folder = Folder::new("research");
    let printed = typed("research", &folder, &[8080, 9200]);
    all_in(&printed[0], &["\"answer\": \"2 years\""]);
    all_in(&printed[1], &["/research/2.0", "handbook-2023 says 14 days, policy-2025 says 30 days"]);
    let calls = "{\"notes\": 2, \"reads\": 4, \"searches\": 2, \"turns\": 9}";
    all_in(&printed[2], &["\"answer\": \"30 days\"", "\"policy-2025\"", "tool ask_editor, asks a person", calls]);
}

/// One item fails for good and is named; what is on record is not fetched again after a kill.
#[test]
fn the_nightly_example_reports_each_night_once() {
    let folder = Folder::new("nightly");
    let printed = typed("nightly", &folder, &[8080, 9300]);
    let calls = |reports: u32, [harbour, north, others]: [u32; 3]| {
        format!(
            "{{\"reports\": {reports}, \"sales of airport\": {others}, \"sales of castle\": {others}, \"sales of harbour\": {harbour}, \
             \"sales of market\": {others}, \"sales of north\": {north}, \"sales of station\": {others}, \"summaries\": {reports}}}"
        )
    };
    all_in(
        &printed[0],
        &[
            "was sent before with this key",
            "\"summary\": \"5 shops sold for 11985.45 EUR, airport most of all. No figures from harbour.\"",
            "the till of harbour is switched off",
            &calls(1, [3, 1, 1]),
        ],
    );
    all_in(&printed[1], &["5 of 6 items, 1 failed"]);
    all_in(&printed[2], &["\"day\": \"2026-11-21\"", &calls(2, [6, 3, 2])]);
}

/// Nothing runs before a person has approved the plan; a failed check rolls back.
#[test]
fn the_deployment_example_follows_the_plan_that_a_person_approved() {
    let folder = Folder::new("deployment");
    let printed = typed("deployment", &folder, &[8080, 9400]);
    all_in(
        &printed[0],
        &[
            "Approve the plan of 6 nodes",
            "\"when\": \"nodes.health.failed\"",
            "\"rolled_back\": false",
            "\"running\": \"2.1.0\"",
        ],
    );
    all_in(&printed[1], &["\"rolled_back\": true", "\"running\": \"2.1.0\""]);
    let placed = [("2.1.0", 100), ("2.2.0", 100), ("2.1.0", 100), ("2.3.0", 10), ("2.3.0", 100)];
    let placed = placed.map(|(version, percent)| {
        format!("{{\"service\": \"shop\", \"version\": \"{version}\", \"percent\": {percent}}}")
    });
    let history = format!("[{}]", placed.join(", "));
    all_in(&printed[2], &["Approve the plan of 8 nodes", "\"running\": \"2.3.0\"", &history]);
}

fn all_in(printed: &str, all: &[&str]) {
    for expected in all {
        assert!(printed.contains(expected), "{expected} is not in\n{printed}");
    }
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
        read("examples/research/research.yaml"),
        read("examples/nightly/nightly.yaml"),
        read("examples/deployment/deployment.yaml"),
        read("crates/cli/init/agent.yaml").replace("NAME", "hello"),
        first,
    ];
    for text in files {
        let agent = aetheris_agentfile::parse(&text).unwrap();
        assert!(agent.message_schema.is_some(), "{text}");
        for tool in agent.plan.tools.values() {
            if let aetheris_core::plan::ToolKind::Human(human) = &tool.kind {
                assert!(human.schema.is_some(), "{text}");
            }
        }
        for node in &agent.plan.nodes {
            if let aetheris_core::plan::NodeKind::Wait(wait) = &node.work.kind {
                assert!(wait.schema.is_some(), "{text}");
            }
        }
    }
}
