//! Pages as people read them.

use std::collections::BTreeMap;

use aetheris_api::{InDoubtView, JobView, TraceView, WaitView};
use aetheris_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::samples::{JOB, KEY, job, job_with, step, trace, unresolved, waiting};
use crate::render::jobs::Beside;
use crate::render::{self, Now, Style, Values};

fn typed<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn now() -> Now {
    Now("2026-11-21T09:31:00Z".parse::<Timestamp>().unwrap())
}

#[test]
fn the_page_of_a_job_that_waits() {
    let mut view = job_with("parked", json!({ "waiting": waiting(), "labels": { "team": "billing" } }));
    view["steps"]["approval"]["status"] = json!("waiting");
    view["steps"]["approval"]["started_at"] = json!("2026-11-21T09:30:01Z");
    let page = render::jobs::page(&typed::<JobView>(&view), &Beside::default(), "aetheris", Style::default(), now());
    let expected = format!(
        "{JOB}  parked
  agent       refund version 1
  labels      team=billing
  created     2026-11-21 09:30:00Z (1m ago)
  updated     2026-11-21 09:30:01Z (59s ago)
  usage       1 tool call, 0 tokens
  message     {{
                \"order_id\": \"A-1\"
              }}

Steps
  ✓ query_order    12.5ms
  ◦ approval       waiting · 59.0s

approval waits for a person: a refund of 20 EUR
  waiting for 59s, until 2026-11-22 09:30:00Z
  answer with: aetheris signal {JOB} 'approve it' '{{ANSWER}}'
"
    );
    assert_eq!(page, expected);
}

#[test]
fn the_page_of_a_job_that_failed() {
    let error = json!({ "code": "in_doubt_unresolved", "message": "nobody knows", "node_id": "pay" });
    let pay = json!({
        "status": "failed", "attempt": 1, "left_in_doubt": "unresolved", "started_at": "2026-11-21T09:30:00Z",
        "finished_at": "2026-11-21T09:30:40Z",
    });
    let ended = json!({ "ended_at": "2026-11-21T09:30:50Z", "error": error, "steps": { "pay": pay } });
    let view = typed::<JobView>(&job_with("failed", ended));
    let page = render::jobs::page(&view, &Beside::default(), "aetheris", Style::default(), now());
    let expected = format!(
        "{JOB}  failed
  agent       refund version 1
  created     2026-11-21 09:30:00Z (1m ago)
  ended       2026-11-21 09:30:50Z (10s ago)
  updated     2026-11-21 09:30:01Z (59s ago)
  usage       1 tool call, 0 tokens
  message     {{
                \"order_id\": \"A-1\"
              }}

Steps
  ✗ pay    failed, still in doubt · 40.0s

failed at pay: in_doubt_unresolved
  nobody knows
the call of pay is still in doubt: it may have happened
  see: aetheris in-doubt --unresolved --job {JOB}
"
    );
    assert_eq!(page, expected);
}

#[test]
fn a_doubt_points_to_the_list() {
    let mut doubt = waiting();
    doubt["doubt"] = json!(true);
    let view = typed::<JobView>(&job_with("parked", json!({ "waiting": doubt.clone() })));
    let page = render::jobs::page(&view, &Beside::default(), "aetheris --server http://h:1", Style::default(), now());
    let said = "approval is in doubt: its call has started and its outcome is unknown\n  a refund of 20 EUR\n";
    assert!(page.contains(said), "{page}");
    let command = format!("aetheris --server http://h:1 in-doubt --job {JOB}\n");
    assert!(page.contains(&format!("\n  see: {command}")), "{page}");
    // Nobody is asked where the server says that its own policies come first, and only there.
    doubt["wait_type"] = json!("timer");
    for (next, by_itself) in [(json!("own_policies"), true), (json!("person"), false), (json!(null), false)] {
        doubt["next"] = next.clone();
        let view = typed::<JobView>(&job_with("waiting", json!({ "waiting": doubt.clone() })));
        let program = "aetheris --server http://h:1";
        let page = render::jobs::page(&view, &Beside::default(), program, Style::default(), now());
        assert_eq!(page.contains("there is nothing for you to do yet"), by_itself, "{next}: {page}");
        assert_eq!(page.contains(said), !by_itself, "{next}: {page}");
        assert!(page.contains("a refund of 20 EUR") && page.contains(&format!("  see: {command}")), "{next}: {page}");
    }
}

#[test]
fn the_list_of_jobs() {
    let error = json!({ "code": "boom", "message": "it broke", "node_id": "pay" });
    let jobs: Vec<JobView> = vec![
        typed(&job_with("failed", json!({ "error": error }))),
        typed(&job_with("parked", json!({ "waiting": waiting() }))),
    ];
    let expected = format!(
        "JOB                             AGENT   STATUS  CREATED  UPDATED  ABOUT
{JOB}  refund  failed  1m ago   59s ago  pay: it broke
{JOB}  refund  parked  1m ago   59s ago  human approve it
"
    );
    assert_eq!(render::jobs::table(&jobs, &BTreeMap::new(), Style::default(), now()), expected);
}

#[test]
fn the_trace_says_where_results_came_from() {
    let mut pay = step("pay", "tool", "completed");
    pay["needs"] = json!(["query"]);
    pay["source"] = json!("reconciled");
    pay["started_at"] = json!("2026-11-21T09:30:00Z");
    pay["finished_at"] = json!("2026-11-21T09:30:08Z");
    pay["tool"] =
        json!({ "effect": "at_most_once", "invocation": KEY, "name": "payments.refund", "permits": 1, "version": "2" });
    pay["doubts"] = json!([{
        "at": "2026-11-21T09:30:05Z", "note": null, "outcome": "happened", "permit": 1, "reason": "the holder died",
        "resolved_at": "2026-11-21T09:30:08Z", "resolved_by": "reconcile",
    }]);
    pay["attempts"] = json!([{
        "ended_at": null, "epoch": 1, "error": null, "number": 1, "started_at": "2026-11-21T09:30:00Z",
    }]);
    let mut tell = step("tell", "transform", "completed");
    tell["needs"] = json!(["query"]);
    tell["source"] = json!("executed");
    let view: TraceView = typed(&trace(vec![step("query", "transform", "completed"), pay, tell]));
    let expected = format!(
        "{JOB}  refund version 1  completed

CLAIM  WORKER  FROM                  TOOK   ENDED BY
    1  w-1     2026-11-21 09:30:00Z  4.00s  job_requeued: holder_died

✓ query  transform  completed
✓ pay    tool payments.refund version 2, at_most_once  completed  8.00s
    result reconciled: the other side was asked and knew it
    in doubt at 2026-11-21 09:30:05Z, permit 1: the holder died → happened by reconcile
✓ tell   transform  completed  executed  after query

used 1 tool call, 0 tokens
"
    );
    assert_eq!(render::trace::page(&view, &Values::default(), Style::default(), now()), expected);
}

/// Of a map's items those are told of which there is more to say, failures before all else, and the others counted.
#[test]
fn the_items_of_a_map_in_a_trace() {
    let item = |index: usize, status: &str| {
        let mut item = step(&format!("m[{index}]"), "tool", status);
        item["source"] = if status == "completed" { json!("executed") } else { Value::Null };
        item
    };
    let mut failed = item(40, "failed");
    failed["error"] = json!({ "code": "gone", "message": "never", "node_id": null });
    let mut items: Vec<Value> = (0..30).map(|index| item(index, "skipped")).collect();
    items.extend((30..40).map(|index| item(index, "completed")));
    items.push(failed);
    items.extend((41..66).map(|index| item(index, "running")));
    let child = json!({ "agent": "other", "job_id": "job_01JD0000000000000000000009" });
    items[30]["child"] = child;
    let mut map = step("m", "map", "running");
    map["items"] = json!(items);
    let view: TraceView = typed(&trace(vec![map]));
    let page = render::trace::page(&view, &Values::default(), Style::default(), now());
    assert!(page.contains("m[30]  tool  child job_01JD0000000000000000000009  completed"), "{page}");
    assert!(page.contains("    ✗ m[40]  tool  failed\n        gone: never\n"), "{page}");
    assert!(page.ends_with("    items: 9 completed, 1 failed, 30 skipped, 7 more that failed, wait, were tried again or refined, or have a child job\n\nused 1 tool call, 0 tokens\n"), "{page}");
    assert_eq!(page.matches("m[").count(), 20, "{page}");
}

#[test]
fn a_map_in_the_list_of_steps() {
    let items = json!({ "completed": 3, "count": 9, "failed": 1, "given_up": 2, "open": 1, "skipped": 1 });
    let at = |status: &str| json!({ "attempt": 1, "finished_at": null, "started_at": null, "status": status });
    let mut map = at("running");
    map["items"] = items;
    let steps = json!({ "m": map, "m[4]": at("in_doubt") });
    let job: aetheris_api::JobView = typed(&job_with("running", json!({ "steps": steps })));
    let mut of_item = step("m[0]", "tool", "completed");
    of_item["tool"] =
        json!({ "effect": "at_most_once", "invocation": null, "name": "mail", "permits": 0, "version": null });
    let mut map = step("m", "map", "running");
    map["items"] = json!(vec![of_item; 5]);
    let plan: TraceView = typed(&trace(vec![map]));
    let lines = render::steps::lines(&job, &plan.steps);
    let text = render::steps::render(&lines, &Values::default(), Style::default(), now());
    let expected =
        "  ▸ m     map        7 of 9 items, 1 failed, 2 given up, 1 skipped · running\n  ? m[4]  tool mail  in doubt\n";
    assert_eq!(text, expected);
}

#[test]
fn the_list_of_waits() {
    let wait = json!({
        "age": "59s", "agent": "refund", "correlation_key": "k-1", "deadline": null, "doubt": false, "job_id": JOB,
        "node_id": "approval", "reason": "look\nhere", "session_id": null, "since": "2026-11-21T09:30:01Z",
        "wait_type": "human",
    });
    let waits: Vec<WaitView> = vec![typed(&wait)];
    let expected = format!(
        "JOB                             AGENT   NODE      TYPE   KEY  AGE  ENDS  REASON
{JOB}  refund  approval  human  k-1  59s        look here

answer one with: aetheris signal {JOB} k-1 '{{ANSWER}}'
"
    );
    assert_eq!(render::waits::table(&waits, "aetheris", Style::default(), now()), expected);
}

#[test]
fn the_list_of_doubts_says_how_to_resolve_one() {
    let call = json!({
        "accepted_from": "2026-11-21T09:30:12Z", "agent": "refund", "deadline": "2026-11-21T09:30:12Z", "effect": "at_most_once", "evidence": [],
        "invocation": KEY, "job_id": JOB, "job_status": "parked", "node_id": "pay", "permit": 1, "policy": "human",
        "reason": "timeout", "sent_permit": "1.1", "since": "2026-11-21T09:30:00Z", "status": "in_doubt", "tool": "payments.refund",
        "waiting": null, "input": { "bytes": 15, "from": "recorded", "value": { "order": "A-1" } },
    });
    let calls: Vec<InDoubtView> = vec![typed(&call)];
    let text = render::waits::in_doubt(&calls, "aetheris", Style::default(), now());
    let row = format!(
        "payments.refund  at_most_once  1m ago  2026-11-21 09:30:12Z (passed)  human   {KEY}  {{\"order\":\"A-1\"}}  timeout\n"
    );
    assert!(text.contains(&row) && text.contains("  parked      pay "), "{text}");
    assert!(text.contains(&format!("\n  aetheris in-doubt resolve {JOB} {KEY} --permit 1\n")), "{text}");
    assert!(text.contains("\n  --did-not-happen --note '{HOW YOU KNOW}'\n"), "{text}");
    // Of several each is named.
    let other = json!({ "invocation": "key_2YJZ7X4W1V8S5R2P9N6M3K0HFC", "node_id": "mail" });
    let mut both = call.clone();
    both.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    let calls: Vec<InDoubtView> = vec![typed(&call), typed(&both)];
    let text = render::waits::in_doubt(&calls, "aetheris", Style::default(), now());
    for line in [format!("pay: aetheris in-doubt resolve {JOB} {KEY} "), "mail: aetheris in-doubt resolve".to_owned()] {
        assert!(text.contains(&format!("\n  {line}")), "{text}");
    }
}

/// What follows an answer is said of all calls that are open: nothing is called where every job has ended.
#[test]
fn the_list_of_doubts_says_what_follows_an_answer() {
    let ended = "The job has ended: the answer is kept with it, and nothing is called.";
    let all_ended = "The jobs have ended: answers are kept with them, and nothing is called.";
    let called = "The tool is then called again, unless --then fail or the job has ended.";
    let given_up = "What was given up stays so: an answer is kept with its job, and nothing is called.";
    for (statuses, words) in [
        (vec!["failed"], ended),
        (vec!["parked"], called),
        (vec!["failed", "cancelled"], all_ended),
        (vec!["failed", "parked"], called),
        (vec!["parked", "failed"], called),
        (vec!["parked", "parked"], called),
        (vec!["parked, given up"], given_up),
        (vec!["failed", "parked, given up"], given_up),
        (vec!["parked", "parked, given up"], called),
    ] {
        let call = |status: &&str| {
            let mut call = unresolved();
            let job = status.trim_end_matches(", given up");
            call["job_status"] = json!(job);
            if *status == "parked" {
                call["status"] = json!("in_doubt");
            }
            typed::<InDoubtView>(&call)
        };
        let calls: Vec<InDoubtView> = statuses.iter().map(call).collect();
        let text = render::waits::in_doubt(&calls, "aetheris", Style::default(), now());
        assert!(text.ends_with(&format!(" {words}\n")), "{statuses:?}: {text}");
    }
}

/// An answer about a call that is made again by itself is always refused: nobody is asked for one.
#[test]
fn a_call_that_is_tried_again_is_listed_without_a_command() {
    let list = |calls: &[(&str, &str)]| {
        let call = |(next, job_status): &(&str, &str)| {
            let mut call = unresolved();
            call["next"] = json!(next);
            call["job_status"] = json!(job_status);
            call["policy"] = Value::Null;
            typed::<InDoubtView>(&call)
        };
        let calls: Vec<InDoubtView> = calls.iter().map(call).collect();
        render::waits::in_doubt(&calls, "aetheris", Style::default(), now())
    };
    let (again, open) = (("called_again", "pending"), ("person", "parked"));
    let paused = ("called_again", "paused");
    for (calls, tried_again, once_resumed, commands) in [
        (vec![again], 1, 0, 0),
        (vec![("called_again", "running")], 1, 0, 0),
        // While it is held nothing is.
        (vec![paused], 1, 1, 0),
        (vec![again, paused], 2, 1, 0),
        (vec![open], 0, 0, 1),
        // Nothing of an ended job is tried again.
        (vec![("person", "cancelled")], 0, 0, 1),
        (vec![("person", "paused")], 0, 0, 1),
        (vec![again, open], 1, 0, 1),
    ] {
        let text = list(&calls);
        assert_eq!(text.matches("is tried again").count(), tried_again, "{text}");
        assert_eq!(text.matches("is tried again once resumed").count(), once_resumed, "{text}");
        assert_eq!(text.matches("in-doubt resolve").count(), commands, "{text}");
        assert_eq!(text.contains("Find out"), commands > 0, "{text}");
    }
}

/// However many are listed before it: only what is open is to be answered.
#[test]
fn only_open_calls_have_their_commands_written() {
    let call = |number: u32, answer: Option<&str>| {
        let mut call = unresolved();
        call["invocation"] = json!(format!("key_01JD{number:022}"));
        call["answer"] = json!(answer);
        typed::<InDoubtView>(&call)
    };
    let list = |calls: &[InDoubtView]| render::waits::in_doubt(calls, "aetheris", Style::default(), now());
    let commands = |text: &str| text.lines().filter(|line| line.contains("in-doubt resolve")).count();
    let answers = ["happened", "did_not_happen"].into_iter().cycle();
    let mut calls: Vec<InDoubtView> =
        (10..21).zip(answers).map(|(number, answer)| call(number, Some(answer))).collect();
    let text = list(&calls);
    assert_eq!((text.matches("answered: happened").count(), text.matches("answered: did not happen").count()), (6, 5));
    assert!(commands(&text) == 0 && !text.contains("Find out") && !text.contains("followed by"), "{text}");
    calls.push(call(9, None));
    let text = list(&calls);
    assert!(text.contains(&format!("\n  aetheris in-doubt resolve {JOB} {KEY} --permit 1\n")), "{text}");
    assert!(commands(&text) == 1 && !text.contains("The others"), "{text}");
    // Of very many open ones not each is written out, and that is said.
    let open: Vec<InDoubtView> = (10..21).map(|number| call(number, None)).collect();
    let others = "\nThe others are named likewise: `--job JOB` has those of one job, `--json` the keys of all.\n";
    assert!(commands(&list(&open)) == 10 && list(&open).contains(others), "{}", list(&open));
    assert!(commands(&list(&open[1..])) == 10 && !list(&open[1..]).contains("The others"), "{}", list(&open[1..]));
}

/// Nobody is sent to find out what the tool's own policies are about to.
#[test]
fn a_doubt_whose_policies_are_at_work_asks_for_nothing() {
    let of = |next: &str, policy: &str| {
        let mut call = unresolved();
        (call["job_status"], call["next"], call["policy"]) = (json!("waiting"), json!(next), json!(policy));
        typed::<InDoubtView>(&call)
    };
    for policy in ["wait: 5s", "reconcile: payments.lookup"] {
        let text = render::waits::in_doubt(&[of("own_policies", policy)], "aetheris", Style::default(), now());
        assert!(text.contains(&format!("its tool's own policies come first ({policy})")), "{text}");
        assert!(!text.contains("Find out") && !text.contains("resolve"), "{text}");
    }
    // What the server says counts, and not the words of a policy.
    let text = render::waits::in_doubt(&[of("person", "wait: 5s")], "aetheris", Style::default(), now());
    assert!(text.contains("Find out") && text.contains("in-doubt resolve"), "{text}");
}

/// A person answers by hand only what nobody else would find out: the tool of a paused job does once that is resumed.
#[test]
fn a_doubt_of_a_paused_job_names_what_its_tool_would_find_out() {
    // What the server says counts, and not the words of a policy.
    for (policy, next, resumes) in
        [("reconcile: look", "after_resume", true), ("wait: 2s", "person", false), ("human", "person", false)]
    {
        let mut call = unresolved();
        (call["job_status"], call["next"], call["policy"]) = (json!("paused"), json!(next), json!(policy));
        let calls = [typed::<InDoubtView>(&call)];
        let text = render::waits::in_doubt(&calls, "aetheris", Style::default(), now());
        assert_eq!(text.contains(&format!("aetheris resume {JOB}\n")), resumes, "{policy}: {text}");
        assert!(text.contains("in-doubt resolve"), "{text}");
        // After the flags, which belong to the command before.
        let told = |what: &str| text.find(what);
        assert!(!resumes || told("aetheris resume") > told("--did-not-happen means"), "{text}");
    }
}

#[test]
fn nothing_is_coloured_unless_it_is_wanted() {
    let view: JobView = typed(&job("running"));
    let plain = render::jobs::page(&view, &Beside::default(), "aetheris", Style::default(), now());
    let coloured =
        render::jobs::page(&view, &Beside::default(), "aetheris", Style { color: true, columns: None }, now());
    assert!(!plain.contains('\u{1b}') && coloured.contains('\u{1b}'));
}

/// A text that fits into no line.
const LONG: &str = "a reason that is long, of somebody who wrote it without knowing how wide anybody's terminal is";

/// Every page that has long texts in it, at one width.
fn pages(columns: Option<usize>) -> Vec<String> {
    let style = Style { color: false, columns };
    let long = LONG;
    let mut wait = waiting();
    wait["reason"] = json!(long);
    let error = json!({ "code": "boom", "message": long, "node_id": "pay" });
    let jobs: Vec<JobView> = vec![
        typed(&job_with("failed", json!({ "error": error }))),
        typed(&job_with("parked", json!({ "waiting": wait }))),
    ];
    let waits: Vec<WaitView> = vec![typed(&json!({
        "age": "59s", "agent": "refund", "correlation_key": "k-1", "deadline": null, "doubt": false, "job_id": JOB,
        "node_id": "approval", "reason": long, "session_id": null, "since": "2026-11-21T09:30:01Z",
        "wait_type": "human",
    }))];
    let doubts: Vec<InDoubtView> = vec![typed(&json!({
        "accepted_from": "2026-11-21T09:32:12Z", "agent": "refund", "deadline": "2026-11-21T09:31:12Z", "effect": "at_most_once", "evidence": [],
        "invocation": KEY, "job_id": JOB, "job_status": "parked", "node_id": "pay", "permit": 1, "policy": "human",
        "reason": long, "sent_permit": "1.1", "since": "2026-11-21T09:30:00Z", "status": "in_doubt", "tool": "payments.refund",
        "waiting": null,
    }))];
    let mut pay = step("pay", "tool", "failed");
    pay["error"] = json!({ "code": "boom", "message": long, "node_id": null });
    pay["tool"] =
        json!({ "effect": "at_most_once", "invocation": KEY, "name": "payments.refund", "permits": 1, "version": "2" });
    let trace: TraceView = typed(&trace(vec![step("query", "transform", "completed"), pay]));
    vec![
        render::jobs::table(&jobs, &BTreeMap::new(), style, now()),
        render::jobs::page(&jobs[1], &Beside::default(), "aetheris", style, now()),
        render::waits::table(&waits, "aetheris", style, now()),
        render::waits::in_doubt(&doubts, "aetheris", style, now()),
        render::trace::page(&trace, &Values::default(), style, now()),
    ]
}

#[test]
fn no_page_is_wider_than_the_terminal_and_nothing_to_copy_is_cut() {
    for columns in [60, 80, 120, 200] {
        for page in pages(Some(columns)) {
            for line in page.lines() {
                let command = line.contains("aetheris ");
                assert!(command || render::width(line) <= columns, "{columns}: {line:?}\n{page}");
                assert!(!command || !line.contains('…'), "{columns}: {line:?}");
            }
            assert!(page.contains(JOB), "{page}");
        }
    }
}

#[test]
fn a_pipe_gets_every_page_whole() {
    for page in pages(None) {
        assert!(page.contains(LONG) && !page.contains('…'), "{page}");
    }
}
