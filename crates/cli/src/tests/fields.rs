//! Every page that a command prints of one job through its life, of what a server tells of it
//! (`crates/server/tests/it/fields.json`): a field that is shown in the wrong place, or not at all, changes a line.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use serde_json::Value;

use super::samples::{JOB, KEY, hash, problem};
use super::server::{run, run_at, serve};
use crate::exit::Exit;

const TOLD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/it/fields.json");
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/fields.txt");

const NEXT: &str = "job_01JD0000000000000000000002";

/// What a server tells at each moment, in order: by the address of a call.
fn told() -> Vec<(String, BTreeMap<String, Value>)> {
    let mut text = std::fs::read_to_string(TOLD).unwrap().replace("JOB", JOB).replace("NEXT", NEXT);
    // A minute ago, so that each moment is another one in words as well.
    for (told, near) in
        [("21T09:00", "24T11:59"), ("21T09:01", "24T12:00"), ("21T09:02", "24T12:01"), ("22T09:00", "25T11:59")]
    {
        text = text.replace(&format!("2026-11-{told}"), &format!("2026-11-{near}"));
    }
    let attempts = [4, 5, 6].map(|digit| format!("att_01JD000000000000000000000{digit}"));
    let [first, second, third] = &attempts;
    let [plan, file] = ['c', 'd'].map(hash);
    let names = [
        ("FIRST", first.as_str()),
        ("SECOND", second),
        ("THIRD", third),
        ("KEY", KEY),
        ("PLAN", &plan),
        ("FILE", &file),
    ];
    for (name, id) in names {
        text = text.replace(&format!("\"{name}\""), &format!("\"{id}\""));
    }
    let mut moments: Vec<(String, BTreeMap<String, Value>)> = Vec::new();
    for told in serde_json::from_str::<Vec<Value>>(&text).unwrap() {
        let [when, of] = ["when", "of"].map(|name| told[name].as_str().unwrap().to_owned());
        if moments.last().is_none_or(|(last, _)| *last != when) {
            moments.push((when, BTreeMap::new()));
        }
        let of = of.split('?').next().unwrap_or_default().to_owned();
        moments.last_mut().unwrap().1.insert(of, told["answer"].clone());
    }
    moments
}

async fn server(answers: BTreeMap<String, Value>) -> String {
    let answer = move |request: Request| async move {
        match answers.get(request.uri().path()) {
            Some(answer) => (StatusCode::OK, answer.to_string()),
            None => (StatusCode::NOT_FOUND, problem("not_found", 404, "there is nothing").to_string()),
        }
    };
    serve(Router::new().fallback(answer)).await
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "renewing the file is asked for by hand")]
async fn every_page_says_what_a_server_tells_through_the_whole_life_of_a_job() {
    let job = format!("/api/jobs/{JOB}");
    let [why, trace, next] = [format!("{job}/why"), format!("{job}/trace"), format!("/api/jobs/{NEXT}/why")];
    let commands: [(&[&str], &str); 9] = [
        (&["agent", "list"], "/api/agents"),
        (&["jobs"], "/api/jobs"),
        (&["waits"], "/api/waits"),
        (&["in-doubt"], "/api/in-doubt"),
        (&["show", JOB], &job),
        (&["show", JOB, "--full"], &job),
        (&["why", JOB], &why),
        (&["why", NEXT], &next),
        (&["trace", JOB], &trace),
    ];
    let mut pages = String::new();
    for (when, answers) in told() {
        let url = server(answers.clone()).await;
        for (words, of) in commands {
            let Some(answer) = answers.get(of) else { continue };
            let line = words.join(" ");
            for columns in [200, 60] {
                let ran = run_at(&url, words, columns, false).await;
                assert_eq!(ran.exit(), Exit::Done, "{line} {when}");
                let (stdout, stderr) = (ran.stdout, ran.stderr);
                pages.push_str(&format!("== {line}, {when}, of {columns} columns\n{stdout}-- beside it\n{stderr}\n"));
            }
            let json = run(&url, &[words, &["--json"][..]].concat()).await.json();
            let same = |(name, value): (&String, &Value)| name == "next_cursor" || json[name] == *value;
            let whole = answer.as_object().map_or(json == *answer, |answer| answer.iter().all(same));
            assert!(whole, "{line} --json {when}: {json}");
        }
    }
    if std::env::var("AETHERIS_BLESS").is_ok_and(|yes| yes == "1") {
        std::fs::write(PAGES, &pages).unwrap();
    }
    let kept = std::fs::read_to_string(PAGES).unwrap_or_default();
    let other = pages.lines().zip(kept.lines()).enumerate().find(|(_, (now, kept))| now != kept);
    assert!(
        pages == kept,
        "crates/cli/src/tests/fields.txt differs from what is printed, first {other:?}; read the difference and renew \
         it: AETHERIS_BLESS=1 cargo nextest run -p aetheris-cli every_page_says"
    );
}
