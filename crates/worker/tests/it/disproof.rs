//! "Did not happen": when it is believed, what it ends, and what is kept after the job's end.

use aetheris_core::disproof::{Disproof, Grounds};
use aetheris_core::event::{DoubtOutcome, Event, InDoubtResolved, Resolver, StepResult};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::limits;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::OpError;
use aetheris_runtime::draft::{Draft, Fact};
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ops::{Resolution, Resolved, Then};
use aetheris_store::{DoubtFilter, LedgerWrite, Purpose, Scope};
use aetheris_testing::time::VirtualClock;
use serde_json::json;

use crate::doubt::{agent, in_doubt};
use crate::world::{Act, World, did_not_happen, done, happened, hold, unknown};

fn with_retry(policies: &str, attempts: u32) -> String {
    format!("retry: {{ max_attempts: {attempts}, backoff: 2s, jitter: none }}\n{}", agent(policies))
}

/// FINDINGS A4: permit after permit was given within one try, without an end and without a pause.
#[tokio::test(start_paused = true)]
async fn did_not_happen_ends_the_try_and_the_retry_policy_decides() {
    for (attempts, calls) in [(1, 1), (2, 2)] {
        let world = World::new();
        world.put(&with_retry("[{ reconcile: look }, human]", attempts)).await;
        world.tools.next("pay", (0..5).map(|_| Act::Say(unknown("503"))));
        world.tools.next("look", (0..20).map(|_| Act::Say(done(json!({ "outcome": "did_not_happen" })))));
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
        assert_eq!(
            (error.code.as_str(), world.tools.count("pay"), state.steps[&"n".into()].tries),
            ("did_not_happen", calls, attempts)
        );
        let kinds = world.kinds(job).await;
        let answered = kinds.iter().position(|kind| *kind == "in_doubt_resolved").unwrap();
        assert_eq!(kinds[answered + 1], if attempts == 1 { "node_finished" } else { "node_retry_scheduled" });
        let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
        assert!(row.disproved && row.status == LedgerStatus::InDoubt);
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_asked_before_the_call_that_follows_a_disproof() {
    let world = World::new();
    let budget = "budget: { max_tool_calls: 1 }\n";
    world.put(&format!("{budget}{}", with_retry("human", 9))).await;
    world.tools.next("pay", [Act::Say(unknown("503"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    tokio::time::sleep(std::time::Duration::from_secs(80)).await;
    let key = world.tools.calls_of("pay")[0].key;
    world.rt.resolve(job, key, did_not_happen(1)).await.unwrap();
    let state = world.done(job).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
    assert_eq!((error.code.as_str(), world.tools.count("pay")), ("budget_exceeded", 1));
}

/// A crash repeats an idempotent call, and its budget holds for the repetition too.
#[tokio::test(start_paused = true)]
async fn the_budget_is_asked_before_an_idempotent_call_is_made_again() {
    let world = World::new();
    let agent = agent("human").replace("on_in_doubt: human", "effect: idempotent");
    world.put(&format!("budget: {{ max_tool_calls: 1 }}\n{agent}")).await;
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("pay", [act]);
    let first = world.start("first");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    first.kill();
    let _second = world.start("second");
    let state = world.done(job).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
    assert_eq!((error.code.as_str(), world.tools.count("pay")), ("budget_exceeded", 1));
    let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
    assert_eq!((row.permit, row.status), (1, LedgerStatus::FailedUnresolved));
}

/// So it does where the call's outcome is unknown and its next try was due: nobody is asked about it.
#[tokio::test(start_paused = true)]
async fn an_unknown_call_is_given_up_where_the_budget_has_no_next_try() {
    let world = World::new();
    let agent = agent("human").replace("on_in_doubt: human", "effect: idempotent");
    world.put(&format!("budget: {{ max_tool_calls: 1 }}\n{agent}")).await;
    world.tools.next("pay", [Act::Say(unknown("503"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
    assert_eq!((error.code.as_str(), world.tools.count("pay")), ("budget_exceeded", 1));
    let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
    assert_eq!((row.permit, row.status), (1, LedgerStatus::FailedUnresolved));
    assert!(world.rt.store.in_doubt(10).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_person_gives_one_more_try_or_ends_the_step() {
    for (then, calls, status) in [(Then::Retry, 2, JobStatus::Completed), (Then::Fail, 1, JobStatus::Failed)] {
        let world = World::new();
        world.put(&with_retry("human", 1)).await;
        world.tools.next("pay", [Act::Say(unknown("503")), Act::Say(done(json!(1)))]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        world.until(job, &[JobStatus::Parked]).await;
        tokio::time::sleep(std::time::Duration::from_secs(80)).await;
        let key = world.tools.calls_of("pay")[0].key;
        world.rt.resolve(job, key, Resolution { then, ..did_not_happen(1) }).await.unwrap();
        let state = world.done(job).await;
        assert_eq!((state.status, world.tools.count("pay")), (status, calls), "{then:?}");
        let result = match then {
            Then::Retry => StepResult::SideEffectCommitted,
            Then::Fail => StepResult::PermanentFailure,
        };
        assert_eq!(state.steps[&"n".into()].result, Some(result));
        let said = world.events(job).await.into_iter().find_map(|event| match event {
            Event::InDoubtResolved(said) => said.then,
            _ => None,
        });
        assert_eq!(said, Some(then), "what is to follow is kept with the answer");
        // Whoever waited for a person waits for no back-off.
        let again = world.events(job).await.into_iter().find_map(|event| match event {
            Event::NodeRetryScheduled(again) => Some((again.after_us, again.error.code)),
            _ => None,
        });
        assert_eq!(again, (then == Then::Retry).then(|| (0, "did_not_happen".to_owned())));
    }
}

/// The default of a tool that says nothing is a person, and what its job's end leaves open can still be answered.
#[tokio::test(start_paused = true)]
async fn an_unresolved_call_stays_listed_and_is_answered_after_the_end() {
    let (world, _process, job) = in_doubt("fail").await;
    world.done(job).await;
    let listed = world.rt.store.unresolved(10).await.unwrap();
    assert_eq!((listed.len(), listed[0].job, listed[0].status), (1, job, LedgerStatus::FailedUnresolved));
    let key = listed[0].key;
    let early = world.rt.resolve(job, key, did_not_happen(1)).await;
    assert!(matches!(early, Err(OpError::CanStillArrive(_))), "{early:?}");
    let yes = happened(1, Json::new(json!({ "id": 9 })));
    assert_eq!(world.rt.resolve(job, key, yes.clone()).await.unwrap(), Resolved::Recorded);
    assert_eq!(world.rt.resolve(job, key, yes).await.unwrap(), Resolved::Already);
    let no = Resolution { refused: true, ..did_not_happen(1) };
    assert!(matches!(world.rt.resolve(job, key, no).await, Err(OpError::StateConflict(_))));
    let state = world.done(job).await;
    assert_eq!((state.status, state.step_status(&"n".into())), (JobStatus::Failed, StepStatus::Failed));
    let Some(Event::InDoubtResolved(answer)) = world.events(job).await.pop() else { panic!() };
    assert_eq!(answer.result, Some(Json::new(json!({ "id": 9 }))));
    // The list says what was said last, and not that the policy had given it up.
    let left = DoubtFilter { limit: 10, unresolved: Some(true), ..DoubtFilter::default() };
    let listed = world.rt.store.doubts(left).await.unwrap().doubts;
    assert_eq!((listed.len(), listed[0].call.key, listed[0].told.answer), (1, key, Some(DoubtOutcome::Happened)));
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_policy_asks_a_person() {
    let world = World::new();
    world.put(&agent("human").replace(", on_in_doubt: human", "")).await;
    world.tools.next("pay", [Act::Say(unknown("connection reset"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.until(job, &[JobStatus::Parked]).await;
    assert_eq!(state.step_status(&"n".into()), StepStatus::InDoubt);
}

/// FINDINGS A6: a call stands in the receiver's queue after its caller has given it up.
#[tokio::test(start_paused = true)]
async fn a_tool_that_only_looks_is_asked_again_when_the_call_has_settled() {
    let world = World::new();
    world.put(&agent("[{ reconcile: look, settle: 60s }]")).await;
    world.tools.next("pay", [Act::Say(unknown("reset"))]);
    let no = || Act::Say(done(json!({ "outcome": "did_not_happen" })));
    // It is booked between the deadline and what settles after it.
    let yes = Act::Say(done(json!({ "outcome": "happened", "result": 7 })));
    world.tools.next("look", [no(), yes]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!((world.tools.count("pay"), world.tools.count("look")), (1, 2));
    assert_eq!(world.result(job).await, json!(7));
    assert!(state.last_at.since(state.created_at) >= aetheris_core::time::Span::from_secs(72));
    let asked = &world.tools.calls_of("look")[0];
    assert_eq!(asked.input.get("permit"), Some(&json!("1.1")));
    assert_eq!(world.tools.calls_of("pay")[0].permit.map(|permit| permit.to_string()), Some("1.1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_refuses_is_believed_at_once() {
    let world = World::new();
    let file = agent("[{ reconcile: look }]").replace("effect: pure }", "effect: pure, refuses: true }");
    world.put(&file).await;
    world.tools.next("pay", [Act::Say(unknown("reset"))]);
    world.tools.next("look", [Act::Say(done(json!({ "outcome": "did_not_happen" })))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!((state.status, world.tools.count("pay"), world.tools.count("look")), (JobStatus::Completed, 2, 1));
    assert!(state.last_at.since(state.created_at) < aetheris_core::time::Span::from_secs(5));
    let answer = world.events(job).await.into_iter().find_map(|event| match event {
        Event::InDoubtResolved(answer) => Some(answer),
        _ => None,
    });
    assert_eq!(answer.unwrap().grounds, Some(Grounds::Refuses));
}

#[tokio::test(start_paused = true)]
async fn that_the_other_side_refuses_the_call_needs_no_time() {
    let (world, _process, job) = in_doubt("human").await;
    world.until(job, &[JobStatus::Parked]).await;
    let key = world.tools.calls_of("pay")[0].key;
    let refused = Resolution { refused: true, ..did_not_happen(1) };
    world.rt.resolve(job, key, refused).await.unwrap();
    assert_eq!((world.done(job).await.status, world.tools.count("pay")), (JobStatus::Completed, 2));
}

/// A success after "did not happen": it becomes the effect, and the next try is cancelled.
#[tokio::test(start_paused = true)]
async fn a_late_success_is_taken_after_a_disproof_and_the_next_try_is_cancelled() {
    let world = World::new();
    world.put(&with_retry("human", 3).replace("backoff: 2s", "backoff: 1h, max_backoff: 1h")).await;
    world.tools.next("pay", [Act::Say(unknown("503"))]);
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    let row = world.rt.store.in_doubt(10).await.unwrap().remove(0);
    // Nobody is there to begin the next try.
    process.kill();
    let refused = Resolution { refused: true, ..did_not_happen(1) };
    world.rt.resolve(job, row.key, refused).await.unwrap();
    let deposit = aetheris_runtime::ops::Deposit {
        job,
        key: row.key,
        node: "n".into(),
        outcome: aetheris_runtime::ops::DepositOutcome::Done(Json::new(json!("late"))),
        permit: row.permit,
        permit_id: row.permit_id,
    };
    assert_eq!(world.rt.deposit(&deposit).await.unwrap(), aetheris_runtime::ops::Deposited::TakenBack);
    let _second = world.start("second");
    let state = world.done(job).await;
    assert_eq!((state.status, world.tools.count("pay")), (JobStatus::Completed, 1));
    assert_eq!(world.result(job).await, json!("late"));
    let evidence = world.rt.store.evidence(Scope::System, job).await.unwrap();
    assert_eq!((evidence.len(), evidence[0].conflict), (1, true));
}

/// FINDINGS A3: the process that awaits the call knows better than any clock.
#[tokio::test(start_paused = true)]
async fn a_call_that_this_process_awaits_is_not_disproved() {
    let world = World::new();
    world.put(&agent("human")).await;
    world.tools.next("pay", [Act::Say(unknown("reset"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    let row = world.rt.store.in_doubt(10).await.unwrap().remove(0);
    tokio::time::sleep(std::time::Duration::from_secs(80)).await;
    let flight = world.rt.in_flight.leave(row.permit_id);
    let early = world.rt.resolve(job, row.key, did_not_happen(1)).await;
    assert!(matches!(early, Err(OpError::CanStillArrive(_))), "{early:?}");
    drop(flight);
    world.rt.resolve(job, row.key, did_not_happen(1)).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// A tool that looks is not believed either while the call is awaited, however long ago its permit has run out.
#[tokio::test(start_paused = true)]
async fn a_call_that_this_process_awaits_is_not_disproved_by_a_tool() {
    let world = World::new();
    world.put(&agent("[{ reconcile: look }]")).await;
    world.tools.next("pay", [Act::Say(unknown("reset"))]);
    let no = || done(json!({ "outcome": "did_not_happen" }));
    let (first, asked, answer) = hold(no());
    world.tools.next("look", [first]);
    world.tools.next("look", (0..1_000).map(|_| Act::Say(no())));
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    asked.notified().await;
    let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
    let flight = process.in_flight.leave(row.permit_id);
    answer.notify_one();
    tokio::time::sleep(std::time::Duration::from_secs(300)).await;
    assert_eq!(world.tools.count("pay"), 1);
    assert!(world.tools.count("look") > 1);
    drop(flight);
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(world.tools.count("pay"), 2);
}

/// A boot clock that is behind the store's may pass the permit's end while a question is held: the run asks again with
/// nothing written between, and whoever keeps answers by key must not answer with the one that it gave before.
#[tokio::test(start_paused = true)]
async fn a_question_that_is_put_again_at_once_has_a_key_of_its_own() {
    let mut world = World::new();
    world.rt.system.clock = VirtualClock::new().skewed(-100_000, 0);
    world.put(&agent("[{ reconcile: look, settle: 5s }, human]")).await;
    world.tools.next("pay", [Act::Say(unknown("reset"))]);
    let no = || done(json!({ "outcome": "did_not_happen" }));
    let (held, asked, answer) = hold(no());
    let yes = Act::Say(done(json!({ "outcome": "happened", "result": 7 })));
    world.tools.next("look", [Act::Say(no()), held, yes]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    // The store's clock has run the permit's 17 seconds, this one a tenth less.
    asked.notified().await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    answer.notify_one();
    let state = world.done(job).await;
    assert_eq!((state.status, world.tools.count("pay"), state.fence.epoch), (JobStatus::Completed, 1, 2));
    let waits = world.kinds(job).await.iter().filter(|kind| **kind == "job_waiting").count();
    assert_eq!(waits, 1, "the last two questions are of one run");
    let questions = world.tools.calls_of("look");
    let keys: std::collections::BTreeSet<_> = questions.iter().map(|question| question.key).collect();
    assert_eq!((questions.len(), keys.len()), (3, 3));
}

/// The same of a call that the job's end has left unresolved.
#[tokio::test(start_paused = true)]
async fn a_call_that_this_process_awaits_is_not_disproved_after_the_jobs_end() {
    let (world, _process, job) = in_doubt("fail").await;
    world.done(job).await;
    let row = world.rt.store.unresolved(10).await.unwrap().remove(0);
    tokio::time::sleep(std::time::Duration::from_secs(80)).await;
    let flight = world.rt.in_flight.leave(row.permit_id);
    let early = world.rt.resolve(job, row.key, did_not_happen(1)).await;
    assert!(matches!(early, Err(OpError::CanStillArrive(_))), "{early:?}");
    drop(flight);
    assert_eq!(world.rt.resolve(job, row.key, did_not_happen(1)).await.unwrap(), Resolved::Recorded);
}

/// A build that gave the next permit within the same try has left such histories.
#[tokio::test(start_paused = true)]
async fn a_history_in_which_a_disproof_did_not_end_the_try_goes_through_policy_and_budget() {
    let world = World::new();
    world.put(&with_retry("human", 1)).await;
    world.tools.next("pay", [Act::Say(unknown("503"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let loaded = Loaded::read(world.rt.store.as_ref(), &Scope::System, job).await.unwrap();
    let invocation = loaded.state.steps[&"n".into()].invocation.clone().unwrap();
    let mut draft = Draft::new(loaded.state, Guard::Outside, loaded.checkpoint);
    let answer = InDoubtResolved {
        by: Resolver::Operator,
        grounds: None,
        node: "n".into(),
        note: None,
        outcome: DoubtOutcome::DidNotHappen,
        permit: 1,
        result: None,
        settle_us: None,
        then: None,
    };
    let (key, lifetime, permit_id) = (invocation.key, invocation.lifetime, invocation.permit_id);
    let (asked, grounds, settle) = (None, Grounds::OperatorRefused, Span::ZERO);
    let disproof = Disproof { asked, grounds, key, lifetime, permit_id, settle };
    let ids = world.rt.system.ids.as_ref();
    draft.add(ids, Fact::with_ledger(answer, LedgerWrite::Disprove(disproof))).unwrap();
    let id = aetheris_core::id::EventId::from_u128(ids.secret());
    world.rt.store.commit(draft.unit(Purpose::Resolve, id)).await.unwrap();
    let state = world.done(job).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
    assert_eq!((error.code.as_str(), world.tools.count("pay")), ("did_not_happen", 1));
}

/// How it is known is kept with the answer, and what was said before is told from what is said otherwise.
#[tokio::test(start_paused = true)]
async fn an_answer_says_how_it_is_known_and_is_the_same_only_in_every_part() {
    let (world, _process, job) = in_doubt("human").await;
    world.until(job, &[JobStatus::Parked]).await;
    let key = world.tools.calls_of("pay")[0].key;
    let noted = |note: String| Resolution { note, refused: true, ..did_not_happen(1) };
    for note in [String::new(), "é".repeat(limits::NOTE_CHARS_MAX + 1)] {
        let refused = world.rt.resolve(job, key, noted(note)).await;
        assert!(matches!(&refused, Err(OpError::InvalidRequest(why)) if why.starts_with("note: ")), "{refused:?}");
    }
    let longest = noted("é".repeat(limits::NOTE_CHARS_MAX));
    assert_eq!(world.rt.resolve(job, key, longest).await.unwrap(), Resolved::Recorded);
    world.done(job).await;
    let again = |refused, then| Resolution { refused, then, ..did_not_happen(1) };
    assert_eq!(world.rt.resolve(job, key, again(true, Then::Retry)).await.unwrap(), Resolved::Already);
    for other in [again(false, Then::Retry), again(true, Then::Fail), happened(1, Json::null())] {
        let refused = world.rt.resolve(job, key, other).await;
        assert!(matches!(&refused, Err(OpError::StateConflict(_))), "{refused:?}");
    }
}

/// Also about a call that its job's end has left: on which grounds it counted is kept.
#[tokio::test(start_paused = true)]
async fn an_answer_after_the_end_says_on_which_grounds_it_counts() {
    for (refused, grounds, settle_us) in
        [(false, Grounds::Clock, Some(60_000_000)), (true, Grounds::OperatorRefused, None)]
    {
        let (world, _process, job) = in_doubt("fail").await;
        world.done(job).await;
        tokio::time::sleep(std::time::Duration::from_secs(80)).await;
        let key = world.tools.calls_of("pay")[0].key;
        let answer = Resolution { refused, ..did_not_happen(1) };
        assert_eq!(world.rt.resolve(job, key, answer).await.unwrap(), Resolved::Recorded);
        let Some(Event::InDoubtResolved(said)) = world.events(job).await.pop() else { panic!() };
        assert_eq!((said.grounds, said.settle_us, said.then), (Some(grounds), settle_us, Some(Then::Retry)));
        assert_eq!((said.outcome, said.note.as_deref()), (DoubtOutcome::DidNotHappen, Some("looked in the books")));
    }
}
