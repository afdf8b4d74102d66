use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aetheris_core::event::{Event, EventKind, Failure, NodeRetryScheduled, NodeStarted};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::time::Span;
use serde_json::{Value, json};

use crate::bed::{Bed, Hand, PAY, moment, started};
use crate::between::Between;
use aetheris_store::Scope;

#[tokio::test]
async fn a_job_is_cancelled_at_once_on_request_and_once() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let path = format!("/api/jobs/{job}/cancel");
    assert_eq!(bed.call("POST", &path, "").await.is(202)["status"], "cancelled");
    assert_eq!(bed.call("POST", &path, "{}").await.is(200)["status"], "cancelled");

    let held = bed.send("pay", "1").await;
    let hand = bed.claim().await;
    let path = format!("/api/jobs/{held}/cancel");
    for _ in 0..2 {
        let reply = bed.call("POST", &path, "").await;
        assert_eq!(reply.is(202), &serde_json::json!({"end_requested": "cancel", "status": "running"}));
    }
    assert_eq!(bed.get(&format!("/api/jobs/{held}")).await.is(200)["end_requested"], "cancel");
    drop(hand);

    let done = bed.send("pay", "1").await;
    let hand = bed.claim().await;
    hand.called("send", 1.into()).await;
    hand.complete("send").await;
    let path = format!("/api/jobs/{done}/cancel");
    assert!(bed.call("POST", &path, "").await.problem(409, "job_finished").contains("completed"));
    bed.call("POST", &path, r#"{"force": true}"#).await.problem(400, "invalid_request");
}

#[tokio::test]
async fn a_job_is_paused_and_resumed_once_and_says_why_and_since_when() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let act = |act: &str| format!("/api/jobs/{job}/{act}");
    assert_eq!(bed.call("POST", &act("resume"), "").await.is(200)["status"], "pending");
    assert_eq!(bed.call("POST", &act("pause"), "").await.is(202)["status"], "paused");
    bed.clock.advance(Span::from_secs(61));
    assert_eq!(bed.call("POST", &act("pause"), "{}").await.is(200)["status"], "paused");
    let listed = bed.get("/api/jobs?status=paused").await;
    let paused = &listed.is(200)["jobs"][0]["paused"];
    assert_eq!(paused["reason"], "operator");
    assert_eq!(paused, &bed.get(&format!("/api/jobs/{job}")).await.is(200)["paused"]);
    let since = paused["since"].as_str().unwrap().to_owned();
    assert!(since.starts_with("2026-11-21T09:"), "{since}");
    assert_eq!(bed.call("POST", &act("resume"), "").await.is(202)["status"], "pending");
    assert_eq!(bed.get(&format!("/api/jobs/{job}")).await.is(200)["paused"], serde_json::Value::Null);
    bed.call("POST", &act("pause"), r#"{"force": true}"#).await.problem(400, "invalid_request");
    bed.call("POST", &act("cancel"), "").await.is(202);
    for act in [act("pause"), act("resume")] {
        assert!(bed.call("POST", &act, "").await.problem(409, "job_finished").contains("cancelled"));
    }
    bed.call("POST", "/api/jobs/job_00000000000000000000000000/pause", "").await.problem(404, "job_not_found");
}

/// Whoever lets it go on wants to know with what.
#[tokio::test]
async fn a_paused_job_shows_what_it_has_been_told_meanwhile() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let path = format!("/api/jobs/{job}");
    let step = async || bed.get(&path).await.is(200)["steps"]["ask"].clone();
    let why = async || bed.get(&format!("{path}/why")).await.is(200)[0]["detail"].as_str().unwrap().to_owned();
    bed.call("POST", &format!("{path}/pause"), "").await.is(202);
    assert_eq!(step().await["answered"], serde_json::Value::Null);
    assert!(!why().await.contains("ended"));
    bed.clock.advance(Span::from_secs(61));
    let signal = r#"{"correlation_key": "ok-7", "payload": true}"#;
    bed.call("POST", &format!("{path}/signal"), signal).await.is(200);
    let told = step().await;
    assert_eq!((told["status"].as_str(), told["answered"]["by"].as_str()), (Some("running"), Some("signal")));
    let at = told["answered"]["at"].as_str().unwrap();
    assert!(moment(at) >= moment("2026-11-21T09:01:01Z"), "{at}");
    let second = format!("{}Z", at[..19].replace('T', " "));
    assert!(
        why().await.ends_with(&format!("; the wait of ask has ended with a signal at {second}")),
        "{}",
        why().await
    );
    bed.call("POST", &format!("{path}/resume"), "").await.is(202);
    assert_eq!(step().await["answered"]["by"], "signal");
    let hand = bed.claim().await;
    hand.finish("ask", None).await;
    assert!(step().await.get("answered").is_none());
}

#[tokio::test]
async fn a_paused_job_shows_what_became_of_its_doubt() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    let path = format!("/api/jobs/{job}");
    bed.call("POST", &format!("{path}/pause"), "").await.is(202);
    let answer = r#"{"outcome": "happened", "result": 1, "note": "seen", "permit": 1}"#;
    bed.call("POST", &format!("{path}/in-doubt/{key}"), answer).await.is(202);
    let view = bed.get(&path).await;
    assert_eq!(view.is(200)["steps"]["send"]["answered"]["by"], "happened", "{}", view.text);
    // The trace agrees, also where the job ends before it goes on.
    for cancelled in [false, true] {
        if cancelled {
            bed.call("POST", &format!("{path}/cancel"), "").await.is(202);
        }
        let (view, trace) = (bed.get(&path).await, bed.get(&format!("{path}/trace")).await);
        let (shown, traced) = (&view.is(200)["steps"]["send"]["answered"], &trace.is(200)["steps"][0]["answered"]);
        assert!(shown["by"] == "happened" && shown == traced, "{} {}", view.text, trace.text);
    }
}

#[tokio::test]
async fn a_held_job_is_asked_to_pause_and_cannot_be_resumed_before_it_has() {
    let bed = Bed::with_agents().await;
    let held = bed.send("pay", "1").await;
    let hand = bed.claim().await;
    for _ in 0..2 {
        let reply = bed.call("POST", &format!("/api/jobs/{held}/pause"), "").await;
        assert_eq!(reply.is(202), &serde_json::json!({"end_requested": "pause", "status": "running"}));
    }
    assert_eq!(bed.get(&format!("/api/jobs/{held}")).await.is(200)["end_requested"], "pause");
    bed.call("POST", &format!("/api/jobs/{held}/resume"), "").await.problem(409, "state_conflict");
    drop(hand);
}

/// Found by chaos: with more calls in doubt than one list has, the newest could not be seen.
#[tokio::test]
async fn the_doubts_of_one_job_can_be_asked_for_and_an_answer_names_its_permit() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    let listed = bed.get(&format!("/api/in-doubt?job={job}")).await;
    assert_eq!(listed.is(200)["invocations"][0]["invocation"], serde_json::json!(key));
    let permit = listed.is(200)["invocations"][0]["permit"].clone();
    let nobody = bed.get("/api/in-doubt?job=job_00000000000000000000000000").await;
    assert_eq!(nobody.is(200)["invocations"], serde_json::json!([]));
    bed.get("/api/in-doubt?job=x").await.problem(400, "invalid_request");
    let path = format!("/api/jobs/{job}/in-doubt/{key}");
    let other = r#"{"outcome": "happened", "note": "seen", "permit": 7}"#;
    assert!(bed.call("POST", &path, other).await.problem(409, "state_conflict").contains("permit 7"));
    let yes = format!(r#"{{"outcome": "happened", "note": "seen", "permit": {permit}}}"#);
    bed.call("POST", &path, yes).await.is(202);
}

#[tokio::test]
async fn did_not_happen_is_accepted_after_the_deadline_only() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    let path = format!("/api/jobs/{job}/in-doubt/{key}");
    let no = r#"{"outcome": "did_not_happen", "note": "looked", "permit": 1}"#;
    let early = bed.call("POST", &path, no).await;
    // The deadline, and what settles after it.
    assert!(early.problem(409, "too_early").contains("2026-11-21T09:02:00"), "{}", early.text);
    assert!(early.body["accepted_from"].as_str().unwrap().starts_with("2026-11-21T09:02:00"), "{}", early.text);
    bed.clock.advance(Span::from_secs(61));
    bed.call("POST", &path, no).await.problem(409, "too_early");
    bed.clock.advance(Span::from_secs(60));
    let reply = bed.call("POST", &path, no).await;
    assert_eq!(
        reply.is(202),
        &serde_json::json!({"invocation": key, "outcome": "did_not_happen", "status": "pending"})
    );
    // The same answer again changes nothing; another one contradicts it, also where only what follows is another.
    assert_eq!(bed.call("POST", &path, no).await.is(200)["outcome"], "did_not_happen");
    let retry = r#"{"outcome": "did_not_happen", "note": "again", "permit": 1, "then": "retry"}"#;
    bed.call("POST", &path, retry).await.is(200);
    let fail = r#"{"outcome": "did_not_happen", "note": "looked", "permit": 1, "then": "fail"}"#;
    let conflict = bed.call("POST", &path, fail).await;
    let said = conflict.problem(409, "state_conflict");
    assert!(said.ends_with("; recorded of permit 1: it did not happen; then retry"), "{said}");
    let refused = r#"{"outcome": "did_not_happen", "note": "looked", "permit": 1, "refused": true}"#;
    bed.call("POST", &path, refused).await.problem(409, "state_conflict");
    let yes = r#"{"outcome": "happened", "note": "seen", "permit": 1}"#;
    bed.call("POST", &path, yes).await.problem(409, "state_conflict");
}

/// Call, answer and the newest checkpoint are pages apart.
#[tokio::test]
async fn an_answer_is_known_however_many_events_are_before_and_behind_it() {
    let page = u32::try_from(limits::PAGE_EVENTS_MAX).unwrap();
    let answered = Denied::after(page).await;
    let Denied { bed, job, seq, .. } = &answered;
    bed.call("POST", &format!("/api/jobs/{job}/resume"), "").await.is(202);
    let hand = bed.claim().await;
    tried_often(&hand, page / 2 + 1, page).await;
    let checkpoint = bed.store.history(Scope::System, hand.job, false).await.unwrap().unwrap().checkpoint.unwrap();
    assert!(u64::from(page) < *seq && *seq < checkpoint.seq, "{seq} {}", checkpoint.seq);
    answered.is_known().await;

    // The first event of a page, and the last one of the page before.
    let before = u32::try_from(Denied::after(0).await.seq).unwrap();
    for place in [page, page + 1] {
        let answered = Denied::after(place - before).await;
        assert_eq!(answered.seq, u64::from(place));
        answered.is_known().await;
    }
}

/// A job whose call an operator has said not to have happened.
struct Denied {
    bed: Bed,
    job: String,
    path: String,
    /// The place of the answer.
    seq: u64,
}

impl Denied {
    const RETRY: &str =
        r#"{"outcome": "did_not_happen", "note": "seen", "permit": 1, "refused": true, "then": "retry"}"#;

    /// So many events of another step lie between the call and the answer.
    async fn after(events: u32) -> Self {
        let bed = Bed::new();
        let agent = format!("{PAY}    - {{ id: busy, kind: transform, output: 1 }}\n");
        bed.call("PUT", "/api/agents/pay", agent).await.is(201);
        let job = bed.send("pay", "5").await;
        let hand = bed.claim().await;
        let call = hand.permit("send").await;
        tried_often(&hand, 1, events).await;
        bed.call("POST", &format!("/api/jobs/{job}/pause"), "").await.is(202);
        let key = hand.doubt_and_pause(call, "send").await;
        let path = format!("/api/jobs/{job}/in-doubt/{key}");
        bed.call("POST", &path, Self::RETRY).await.is(202);
        let last = bed.store.job(Scope::System, hand.job).await.unwrap().unwrap().seq;
        let written = bed.store.events(Scope::System, hand.job, last - 2, 2).await.unwrap();
        let seq = written.iter().find(|row| row.kind == EventKind::InDoubtResolved.code()).unwrap().seq;
        Self { bed, job, path, seq }
    }

    /// The same again is welcome, and another answer contradicts it.
    async fn is_known(&self) {
        self.bed.call("POST", &self.path, Self::RETRY).await.is(200);
        let conflict = self.bed.call("POST", &self.path, Self::RETRY.replace("\"retry\"", "\"fail\"")).await;
        let said = conflict.problem(409, "state_conflict");
        assert!(said.contains("recorded of permit 1: it did not happen"), "{said}");
    }
}

/// Another step of a job is tried from its nth time on until there are so many more events.
async fn tried_often(hand: &Hand, first: u32, events: u32) {
    let of_a_try = |number| [NodeStarted { number, ..started("busy") }.into(), tried_again("busy")];
    let all: Vec<Event> = (first..).flat_map(of_a_try).take(events as usize).collect();
    for unit in all.chunks(100) {
        hand.push(unit.iter().cloned()).await;
    }
}

/// How long a machine was off, its clock does not know: after each start it runs the whole lifetime from the first time
/// that somebody asks, whoever asks again.
#[tokio::test]
async fn did_not_happen_is_accepted_when_a_new_boot_has_run_the_whole_lifetime() {
    for (ended, status) in [(false, "pending"), (true, "cancelled")] {
        let bed = Bed::with_agents().await;
        let (job, key) = bed.doubted().await;
        if ended {
            bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
        }
        let path = format!("/api/jobs/{job}/in-doubt/{key}");
        let no = r#"{"outcome": "did_not_happen", "note": "looked", "permit": 1}"#;
        for hour in ["2026-11-21T10", "2026-11-21T11"] {
            bed.clock.reboot();
            bed.clock.set_wall(format!("{hour}:00:00Z").parse().unwrap());
            for passes in [0, 60, 59] {
                bed.clock.advance(Span::from_secs(passes));
                let early = bed.call("POST", &path, no).await;
                early.problem(409, "too_early");
                let from = early.body["accepted_from"].as_str().unwrap();
                assert!(from.starts_with(&format!("{hour}:02:00")), "{from}");
            }
        }
        bed.clock.advance(Span::from_secs(1));
        assert_eq!(bed.call("POST", &path, no).await.is(202)["status"], status);
    }
}

#[tokio::test]
async fn that_the_other_side_refuses_the_call_is_accepted_at_once() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    let path = format!("/api/jobs/{job}/in-doubt/{key}");
    for (body, says) in [
        (r#"{"outcome": "happened", "note": "seen", "permit": 1, "refused": true}"#, "refused: belongs to"),
        (r#"{"outcome": "happened", "note": "seen", "permit": 1, "then": "fail"}"#, "then: what happened"),
        (r#"{"outcome": "did_not_happen", "then": "wait"}"#, "unknown variant"),
    ] {
        let reply = bed.call("POST", &path, body).await;
        assert!(reply.problem(400, "invalid_request").contains(says), "{}", reply.text);
    }
    let refused = r#"{"outcome": "did_not_happen", "note": "seen", "permit": 1, "refused": true, "then": "fail"}"#;
    assert_eq!(bed.call("POST", &path, refused).await.is(202)["status"], "pending");
    bed.call("POST", &path, refused).await.is(200);
    let retry = r#"{"outcome": "did_not_happen", "note": "seen", "permit": 1, "refused": true, "then": "retry"}"#;
    bed.call("POST", &path, retry).await.problem(409, "state_conflict");
    let steps = bed.get(&format!("/api/jobs/{job}")).await;
    assert_eq!(steps.is(200)["steps"]["send"]["status"], "failed");
    let verify = bed.get(&format!("/api/jobs/{job}/verify")).await;
    assert_eq!(verify.is(200)["valid"], true, "{}", verify.text);
}

#[tokio::test]
async fn what_a_jobs_end_leaves_unresolved_is_listed_and_answered() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    let listed = async |unresolved: &str| {
        let list = bed.get(&format!("/api/in-doubt?unresolved={unresolved}")).await;
        let of_job = bed.get(&format!("/api/in-doubt?unresolved={unresolved}&job={job}")).await;
        assert_eq!(list.is(200), of_job.is(200));
        list.is(200)["invocations"].as_array().unwrap().len()
    };
    assert_eq!((listed("false").await, listed("true").await), (1, 0));
    bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
    assert_eq!((listed("false").await, listed("true").await), (0, 1));
    let path = format!("/api/jobs/{job}/in-doubt/{key}");
    let no = r#"{"outcome": "did_not_happen", "note": "seen", "permit": 1, "refused": true}"#;
    assert_eq!(bed.call("POST", &path, no).await.is(202)["status"], "cancelled");
    bed.call("POST", &path, no).await.is(200);
    let verify = bed.get(&format!("/api/jobs/{job}/verify")).await;
    assert_eq!(verify.is(200)["valid"], true, "{}", verify.text);
    bed.get("/api/in-doubt?unresolved=x").await.problem(400, "invalid_request");
    bed.get("/api/in-doubt?unresolved=").await.problem(400, "invalid_request");
    bed.get("/api/in-doubt?job=").await.problem(400, "invalid_request");
}

/// Everything that tells of the job says the same: it ended when it ended, what it left in doubt was answered since, and
/// nothing of it runs.
#[tokio::test]
async fn an_answer_of_the_next_day_neither_moves_the_end_nor_starts_anything() {
    let large = "x".repeat(5_000);
    for (answer, outcome) in [
        (json!({"outcome": "happened", "note": "seen", "permit": 1, "result": large}), "happened"),
        (json!({"outcome": "did_not_happen", "note": "seen", "permit": 1}), "did_not_happen"),
    ] {
        let bed = Bed::with_agents().await;
        let (job, key) = bed.doubted().await;
        let [view, trace, why] = ["", "/trace", "/why"].map(|what| format!("/api/jobs/{job}{what}"));
        let open = bed.get(&view).await;
        assert_eq!(
            (&open.is(200)["ended_at"], &open.body["steps"]["send"]["left_in_doubt"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(bed.get(&trace).await.is(200)["ended_at"], Value::Null);
        bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
        let told = async || {
            let (view, trace, why) = (bed.get(&view).await, bed.get(&trace).await, bed.get(&why).await);
            let step = view.is(200)["steps"]["send"].clone();
            assert_eq!(trace.is(200)["ended_at"], view.body["ended_at"]);
            assert_eq!(why.is(200)[0]["since"], view.body["ended_at"]);
            assert_eq!(trace.body["steps"][0]["left_in_doubt"], step["left_in_doubt"]);
            assert_eq!((&step["status"], &trace.body["steps"][0]["status"]), (&"in_doubt".into(), &"in_doubt".into()));
            (view.body["ended_at"].clone(), step["left_in_doubt"].clone())
        };
        let (ended, left) = told().await;
        assert!(ended.is_string() && left == "unresolved", "{ended} {left}");
        let reason = bed.get(&why).await.is(200)[0].clone();
        assert_eq!(reason["detail"], "cancelled; the call of send is still in doubt");
        assert_eq!(reason["do"], format!("aetheris in-doubt --unresolved --job {job}"));
        // Lists do not know when a job ended, and say nothing.
        let list = bed.get("/api/jobs").await;
        assert_eq!(list.is(200)["jobs"][0].get("ended_at"), None);
        bed.clock.advance(Span::from_secs(24 * 3_600));
        bed.call("POST", &format!("/api/jobs/{job}/in-doubt/{key}"), answer.to_string()).await.is(202);
        assert_eq!(told().await, (ended, outcome.into()));
        // What it returned is in no step's output: the doubt has it.
        let doubt = bed.get(&trace).await.is(200)["steps"][0]["doubts"][0].clone();
        let said = json!({"bytes": 5002, "from": "recorded", "text": "x".repeat(2048)});
        let said = Some(said).filter(|_| outcome == "happened");
        assert_eq!((&doubt["note"], doubt.get("result")), (&"seen".into(), said.as_ref()));
        let whole = bed.get(&format!("{trace}?bytes=1048576")).await.is(200)["steps"][0]["doubts"][0]["result"].clone();
        assert_eq!(whole["value"].as_str().map(str::len), Some(5_000).filter(|_| outcome == "happened"));
        // Nothing of it is open any more: nobody is sent to look for it.
        let reason = bed.get(&why).await.is(200)[0].clone();
        let became = if outcome == "happened" { "happened" } else { "did not happen" };
        assert_eq!(reason["detail"], format!("cancelled; the call of send {became}"));
        assert_eq!(reason["do"], format!("aetheris trace {job}"));
        let verify = bed.get(&format!("/api/jobs/{job}/verify")).await;
        assert_eq!(verify.is(200)["valid"], true, "{}", verify.text);
    }
}

#[tokio::test]
async fn happened_is_accepted_at_once_with_its_result() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    let path = format!("/api/jobs/{job}/in-doubt/{key}");
    let wrong = [
        (r"{}", "missing field `note`"),
        (r#"{"note": "seen", "permit": 1}"#, "missing field `outcome`"),
        (r#"{"outcome": "happened", "note": "seen"}"#, "missing field `permit`"),
        (r#"{"outcome": "happened", "permit": 1}"#, "missing field `note`"),
        (r#"{"outcome": "perhaps"}"#, "unknown variant"),
        (r#"{"outcome": "did_not_happen", "note": "seen", "permit": 1, "result": 1}"#, "has no result"),
        (r#"{"outcome": "happened", "note": "", "permit": 1}"#, "note: say how it is known"),
        (r#"{"outcome": "happened", "note": " \n ", "permit": 1}"#, "note: say how it is known"),
        (r#"{"outcome": "happened", "who": "me"}"#, "unknown field `who`"),
    ];
    for (body, says) in wrong {
        let reply = bed.call("POST", &path, body).await;
        assert!(reply.problem(400, "invalid_request").contains(says), "{}", reply.text);
    }
    let long = format!(r#"{{"outcome": "happened", "note": "{}", "permit": 1}}"#, "n".repeat(4_097));
    bed.call("POST", &path, long).await.problem(400, "invalid_request");
    // Long enough in bytes to be refused if they were counted; it is refused for another reason.
    let allowed = format!(r#"{{"outcome": "happened", "note": "{}", "permit": 9}}"#, "é".repeat(4_096));
    bed.call("POST", &path, allowed).await.problem(409, "state_conflict");
    let elsewhere = format!("/api/jobs/{job}/in-doubt/key_00000000000000000000000000");
    let yes = r#"{"outcome": "happened", "note": "seen", "permit": 1, "result": {"receipt": 3}}"#;
    bed.call("POST", &elsewhere, yes).await.problem(404, "invocation_not_found");
    bed.call("POST", &format!("/api/jobs/{job}/in-doubt/x"), yes).await.problem(404, "invocation_not_found");
    let nobody = format!("/api/jobs/job_00000000000000000000000000/in-doubt/{key}");
    bed.call("POST", &nobody, yes).await.problem(404, "job_not_found");

    bed.call("POST", &path, yes).await.is(202);
    let verify = bed.get(&format!("/api/jobs/{job}/verify")).await;
    assert_eq!(verify.is(200)["valid"], true, "{}", verify.text);
    assert_eq!(bed.get("/api/in-doubt").await.is(200)["invocations"].as_array().unwrap().len(), 0);
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let doubt = &trace.is(200)["steps"][0]["doubts"][0];
    assert_eq!((doubt["outcome"].as_str(), doubt["resolved_by"].as_str()), (Some("happened"), Some("operator")));
}

/// Its run writes behind every reading of it, so that whoever began again from nothing would come too late for ever.
#[tokio::test]
async fn a_large_job_whose_run_writes_faster_than_it_is_read_is_cancelled_and_paused() {
    for act in ["cancel", "pause"] {
        let bed = Bed::with_agents().await;
        let job = bed.send("pay", &format!("{:?}", "x".repeat(limits::LOOK_BYTES_MAX))).await;
        let (hand, reads) = (Arc::new(bed.claim().await), Arc::new(AtomicUsize::new(0)));
        let read = Arc::clone(&reads);
        let store = Between::then(Arc::clone(&bed.store), move |name| {
            let place = (name == "history").then(|| read.fetch_add(1, Ordering::SeqCst))?;
            let hand = Arc::clone(&hand);
            Some(Box::pin(async move {
                let event = if place % 2 == 0 { started("send").into() } else { tried_again("send") };
                hand.push([event]).await;
            }))
        });
        let bed = Bed::on(bed.clock.clone(), Arc::new(store), |state| state);
        let reply = bed.call("POST", &format!("/api/jobs/{job}/{act}"), "").await;
        assert_eq!(reply.is(202)["end_requested"], act);
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        assert_eq!(bed.get(&format!("/api/jobs/{job}/verify")).await.is(200)["valid"], true);
    }
}

fn tried_again(node: &str) -> Event {
    let error = Failure::new("busy", "come again");
    NodeRetryScheduled { after_us: 1, error, model: None, node: StepPath::from(node) }.into()
}

/// It is told as what it is, at once, and not as one that keeps changing.
#[tokio::test]
async fn a_job_whose_row_ends_elsewhere_than_its_events_is_told_as_damaged() {
    for wrong in [-1, 1] {
        let bed = Bed::with_agents().await;
        let job = bed.waiting().await;
        let store = Between::changed(Arc::clone(&bed.store), move |history| {
            history.row.seq = history.row.seq.checked_add_signed(wrong).unwrap();
        });
        let bed = Bed::on(bed.clock.clone(), Arc::new(store), |state| state);
        for act in ["cancel", "pause", "resume"] {
            let reply = bed.call("POST", &format!("/api/jobs/{job}/{act}"), "").await;
            let told = reply.problem(500, "internal");
            assert!(told.contains("its events end at"), "{told}");
        }
    }
}
