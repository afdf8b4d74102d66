//! What a call's outcome decides: whether it is made again, when, and what is told of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aetheris_core::event::{
    Answer, Event, Failure, FinishReason, JobRequeued, ModelParameters, ModelRecord, RequeueReason, SUCCEEDED_BEFORE,
    Source, StepResult, Usage,
};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger};
use aetheris_core::limits;
use aetheris_core::plan::AnswerFormat;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::ops::{Cancelled, Deposit, DepositOutcome, Deposited};
use aetheris_runtime::ports::{MODEL_HELD_BACK, MODEL_TIMED_OUT};
use aetheris_runtime::{Heard, ModelAnswer, ModelError, ModelRequest, Models, Settings, ToolOutcome};
use aetheris_store::faulty::{Fault, FaultPlan, Op};
use aetheris_store::{Boxed, Purpose, Scope};
use serde_json::{Value, json};

use crate::world::{Act, World, done, hold, unknown};

const HEAD: &str = "agent: a\nversion: \"1\"\nplanner: static\nmodel: scripted/echo\n";

/// One step that calls `t`, of this class, with this retry policy.
fn calling(effect: &str, retry: &str) -> String {
    format!(
        "{HEAD}tools:\n  t: {{ kind: function, function: f, timeout: 60s, effect: {effect} }}\nplan:\n  nodes:\n\
         \x20   - {{ id: n, kind: tool, tool: t, retry: {{ {retry} }} }}\n"
    )
}

/// The delays before the further tries of a job's steps, in milliseconds.
async fn delays(world: &World, job: aetheris_core::id::JobId) -> Vec<u64> {
    let delay = |event| match event {
        Event::NodeRetryScheduled(retry) => Some(retry.after_us / 1_000),
        _ => None,
    };
    world.events(job).await.into_iter().filter_map(delay).collect()
}

#[tokio::test(start_paused = true)]
async fn an_outcome_says_whether_a_call_is_made_again_and_when() {
    let error = || Failure::new("code", "message");
    let not_sent = |permanent| ToolOutcome::NotSent { error: error(), permanent };
    let busy =
        |secs: Option<u64>| ToolOutcome::RefusedRetryable { error: error(), retry_after: secs.map(Span::from_secs) };
    let lost = |timeout, secs: Option<u64>| ToolOutcome::Unknown {
        error: error(),
        retry_after: secs.map(Span::from_secs),
        timeout,
    };
    let refused = || ToolOutcome::RefusedPermanent(error());
    for effect in ["pure", "idempotent", "at_most_once"] {
        for (on_timeout, outcome, again) in [
            ("retry", not_sent(false), Some(10_000)),
            ("retry", not_sent(true), None),
            ("retry", busy(None), Some(10_000)),
            ("retry", busy(Some(40)), Some(40_000)),
            ("retry", refused(), None),
            ("retry", lost(false, None), Some(10_000)),
            ("retry", lost(true, Some(40)), Some(40_000)),
            ("fail", lost(true, Some(40)), None),
            ("fail", lost(false, Some(40)), Some(40_000)),
            ("fail", busy(None), Some(10_000)),
        ] {
            // About a call that may not be made again somebody is asked, whatever the policy says.
            let asked = effect == "at_most_once" && matches!(outcome, ToolOutcome::Unknown { .. });
            if asked {
                continue;
            }
            let told = format!("{effect}, on_timeout {on_timeout}: {outcome:?}");
            let world = World::new();
            let retry =
                format!("max_attempts: 2, backoff: 10s, jitter: none, max_backoff: 60s, on_timeout: {on_timeout}");
            world.put(&calling(effect, &retry)).await;
            world.tools.next("t", [Act::Say(outcome)]);
            let _process = world.start("w");
            let job = world.submit("a", json!({})).await;
            let state = world.done(job).await;
            let (calls, status) = if again.is_some() { (2, JobStatus::Completed) } else { (1, JobStatus::Failed) };
            assert_eq!((world.tools.count("t"), state.status), (calls, status), "{told}");
            assert_eq!(delays(&world, job).await, Vec::from_iter(again), "{told}");
            if again.is_none() {
                assert_eq!(state.steps[&"n".into()].result, Some(StepResult::PermanentFailure), "{told}");
            }
        }
    }
}

/// Up to half a second the slot is held; longer, the job is given back. Each further delay is the factor's times the last.
#[tokio::test(start_paused = true)]
async fn a_back_off_of_half_a_second_holds_its_slot_and_a_longer_one_does_not() {
    for (backoff, delay, requeues) in [("500ms", 500, 1), ("501ms", 501, 2), ("249ms", 249, 0)] {
        let world = World::new();
        world.put(&calling("pure", &format!("max_attempts: 3, backoff: {backoff}, factor: 2, jitter: none"))).await;
        let busy = || ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
        world.tools.next("t", [Act::Say(busy()), Act::Say(busy())]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        assert_eq!(world.done(job).await.status, JobStatus::Completed);
        assert_eq!(delays(&world, job).await, [delay, 2 * delay]);
        let given_back = world.kinds(job).await.iter().filter(|kind| **kind == "job_requeued").count();
        assert_eq!(given_back, requeues, "{backoff}");
    }
}

/// A job whose call was answered to a process that could only deposit the answer goes on as if it had recorded it.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_only_the_ledger_knows_is_followed_by_the_retry_policy() {
    for (trigger, calls, code) in [
        (LedgerTrigger::RefusePermanent, 1, Some("refused")),
        (LedgerTrigger::RefuseRetryable, 2, None),
        (LedgerTrigger::NotSent, 2, None),
    ] {
        let world = World::new();
        world.put(&calling("at_most_once", "max_attempts: 2, backoff: 1s")).await;
        let (act, reached, _release) = hold(done(json!(1)));
        world.tools.next("t", [act]);
        let first = world.start("first");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        first.kill();
        let call = world.state(job).await.steps[&"n".into()].invocation.clone().unwrap();
        let deposit = Deposit {
            job,
            key: call.key,
            node: "n".into(),
            outcome: DepositOutcome::Settled(trigger),
            permit: call.permit,
            permit_id: call.permit_id,
        };
        assert_eq!(world.rt.deposit(&deposit).await.unwrap(), Deposited::Taken);
        // A second one brings nothing that is not known.
        assert_eq!(world.rt.deposit(&deposit).await.unwrap(), Deposited::Evidence { conflict: false });
        let _second = world.start("second");
        let state = world.done(job).await;
        let found = match &state.ending {
            Some(Ending::Failed { error, .. }) => Some(error.code.as_str()),
            _ => None,
        };
        assert_eq!((world.tools.count("t"), found), (calls, code), "{trigger:?}");
    }
}

/// A refusal is no answer to a doubt: it would have to prove that nothing happened.
#[tokio::test(start_paused = true)]
async fn a_late_refusal_ends_no_doubt() {
    let (world, _process, job) = crate::doubt::in_doubt("human").await;
    let state = world.until(job, &[JobStatus::Parked]).await;
    let call = state.steps[&"n".into()].invocation.clone().unwrap();
    for trigger in [LedgerTrigger::RefusePermanent, LedgerTrigger::RefuseRetryable, LedgerTrigger::NotSent] {
        let deposit = Deposit {
            job,
            key: call.key,
            node: "n".into(),
            outcome: DepositOutcome::Settled(trigger),
            permit: call.permit,
            permit_id: call.permit_id,
        };
        assert_eq!(world.rt.deposit(&deposit).await.unwrap(), Deposited::Evidence { conflict: false }, "{trigger:?}");
    }
    let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
    assert_eq!((row.status, world.state(job).await.status), (LedgerStatus::InDoubt, JobStatus::Parked));
}

/// What a run knows when its lease is lost, or when it gives up on the store, is deposited: refusals too.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_could_not_be_written_is_deposited() {
    let error = || Failure::new("code", "message");
    for (outcome, status) in [
        (ToolOutcome::RefusedPermanent(error()), LedgerStatus::RefusedPermanent),
        (ToolOutcome::RefusedRetryable { error: error(), retry_after: None }, LedgerStatus::RefusedRetryable),
        (ToolOutcome::NotSent { error: error(), permanent: false }, LedgerStatus::NotSent),
    ] {
        let world = World::new();
        world.put(&calling("at_most_once", "max_attempts: 2, backoff: 1s")).await;
        let (act, reached, release) = hold(outcome);
        world.tools.next("t", [act]);
        let first = world.start("first");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        let never = vec![Some(Fault::Before); 1_000];
        let gone = [Purpose::Record, Purpose::Requeue, Purpose::Finish].into_iter();
        first.store.replan(gone.fold(FaultPlan::none(), |plan, of| plan.script(Op::Commit(of), never.clone())));
        first.stop.drain.cancel();
        release.notify_one();
        first.worker.await.unwrap();
        let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
        assert_eq!(row.status, status);
        assert_eq!(world.state(job).await.status, JobStatus::Running, "its lease is left to expire");
    }
}

/// Somebody has settled the permit otherwise while the tool answered: the run goes on with what the ledger says, and what it
/// was told itself is kept beside it. After a success nothing is called again, whatever the ledger says.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_meets_a_settled_ledger_is_kept() {
    let error = || Failure::new("code", "message");
    let success = || json!({ "outcome": "success", "result": 7 });
    let refusal = || json!({ "outcome": "refuse_permanent" });
    for (outcome, trigger, (calls, code), (kept, conflict)) in [
        (done(json!(7)), LedgerTrigger::RefusePermanent, (1, Some("refused")), (success(), true)),
        (done(json!(7)), LedgerTrigger::NotSent, (1, Some(SUCCEEDED_BEFORE)), (success(), true)),
        (ToolOutcome::RefusedPermanent(error()), LedgerTrigger::NotSent, (2, None), (refusal(), false)),
    ] {
        let told = format!("{trigger:?}, then {outcome:?}");
        let world = World::new();
        world.put(&calling("at_most_once", "max_attempts: 2, backoff: 1s, jitter: none")).await;
        let (act, reached, release) = hold(outcome);
        world.tools.next("t", [act]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        let call = world.state(job).await.steps[&"n".into()].invocation.clone().unwrap();
        let (key, permit, permit_id) = (call.key, call.permit, call.permit_id);
        let outcome = DepositOutcome::Settled(trigger);
        let deposit = Deposit { job, key, node: "n".into(), outcome, permit, permit_id };
        assert_eq!(world.rt.deposit(&deposit).await.unwrap(), Deposited::Taken, "{told}");
        release.notify_one();
        let state = world.done(job).await;
        let found = match &state.ending {
            Some(Ending::Failed { error, .. }) => Some(error.code.as_str()),
            _ => None,
        };
        assert_eq!((world.tools.count("t"), found), (calls, code), "{told}");
        let evidence = world.rt.store.evidence(Scope::System, job).await.unwrap();
        let found: Vec<_> = evidence.iter().map(|e| (e.permit_id, e.outcome.value().clone(), e.conflict)).collect();
        assert_eq!(found, [(permit_id, kept, conflict)], "{told}");
    }
}

/// Nothing was sent under it: who goes on with the job is told so, and has nothing to ask about.
#[tokio::test(start_paused = true)]
async fn a_permission_that_was_not_used_is_deposited_as_such() {
    let world = World::new();
    world.put(&calling("at_most_once", "max_attempts: 2, backoff: 1s")).await;
    let slow = Some(Fault::Slow(limits::PERMIT_MARGIN));
    let first = world.start_behind("first", FaultPlan::none().script(Op::Commit(Purpose::Permit), [slow]));
    let job = world.submit("a", json!({})).await;
    while world.state(job).await.steps.get(&"n".into()).is_none_or(|step| step.invocation.is_none()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Its permission is written and the answer is on its way; meanwhile the job is taken from it.
    first.stop.drain.cancel();
    let (fence, holder) =
        (world.state(job).await.fence, world.rt.store.job(Scope::System, job).await.unwrap().unwrap().holder.unwrap());
    world.rt.reclaim(job, fence, aetheris_runtime::ops::Proof::Dead(holder.instance)).await.unwrap();
    first.worker.await.unwrap();
    let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
    assert_eq!((row.permit, row.status, world.tools.count("t")), (1, LedgerStatus::NotSent, 0));
    let _second = world.start("second");
    assert_eq!((world.done(job).await.status, world.tools.count("t")), (JobStatus::Completed, 1));
    assert!(!world.kinds(job).await.contains(&"step_in_doubt"));
}

/// The end that was asked for is the job's, also where its run finds that it cannot go on; and nobody holds it then.
#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_go_on_ends_its_job_as_it_was_asked() {
    for asked in [true, false] {
        let world = World::new();
        world.put(&calling("at_most_once", "max_attempts: 1")).await;
        let (act, reached, release) = hold(unknown("reset"));
        world.tools.next("t", [act]);
        let process = world.start("w");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        let never = [Purpose::Record, Purpose::Block, Purpose::Doubt].into_iter();
        let never = never.fold(FaultPlan::none(), |plan, of| plan.script(Op::Commit(of), [Some(Fault::Impossible)]));
        process.store.replan(never);
        if asked {
            assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
        }
        release.notify_one();
        let state = world.done(job).await;
        match &state.ending {
            Some(Ending::Cancelled) => assert!(asked),
            Some(Ending::Failed { error, .. }) => assert!(!asked && error.code == "write_impossible", "{error:?}"),
            other => panic!("{other:?}"),
        }
        let row = world.rt.store.job(Scope::System, job).await.unwrap().unwrap();
        assert_eq!(row.holder, None);
        // What became of the call is not known, and that is on record.
        let listed = world.rt.store.unresolved(10).await.unwrap();
        assert_eq!((listed.len(), listed[0].status), (1, LedgerStatus::InDoubt));
    }
}

/// What the tool has answered belongs to the job, also where its run cannot write it.
#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_go_on_deposits_what_it_knows() {
    let world = World::new();
    world.put(&calling("at_most_once", "max_attempts: 1")).await;
    world.tools.next("t", [Act::Say(done(json!(7)))]);
    let never = FaultPlan::none().script(Op::Commit(Purpose::Finish), [Some(Fault::Impossible)]);
    let _process = world.start_behind("w", never);
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
    assert_eq!(error.code, "write_impossible");
    let history = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap();
    assert_eq!((history.effects.len(), history.ledger[0].status), (1, LedgerStatus::Committed));
    assert_eq!(world.rt.store.unresolved(10).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_skipped_node_is_nothing() {
    for answer in ["", "  answer: \"{{ nodes.n.output }}\"\n"] {
        let world = World::new();
        let nodes = "    - { id: m, kind: transform, output: 1 }\n    - { id: n, kind: transform, needs: [m], when: \"message.go\", output: 2 }\n";
        world.put(&format!("{HEAD}plan:\n  nodes:\n{nodes}{answer}")).await;
        let _process = world.start("w");
        let job = world.submit("a", json!({ "go": false })).await;
        let nothing = Answer::Value(aetheris_core::json::Json::null());
        assert_eq!(world.done(job).await.ending, Some(Ending::Answered(nothing)), "{answer}");
        assert_eq!(world.result(job).await, Value::Null, "{answer}");
    }
}

/// Everything that travels with a call.
#[tokio::test(start_paused = true)]
async fn a_call_carries_its_job_its_try_and_its_permit() {
    let world = World::new();
    world.put(&calling("at_most_once", "max_attempts: 3, backoff: 1ms, jitter: none")).await;
    let busy = || ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    world.tools.next("t", [Act::Say(busy()), Act::Say(busy())]);
    let _process = world.start("w");
    let submission = aetheris_runtime::ops::Submission { session: Some("talk".into()), ..Default::default() };
    let job = world.rt.submit(&"a".into(), submission).await.unwrap().job;
    world.done(job).await;
    let calls = world.tools.calls_of("t");
    for (number, call) in (1..).zip(&calls) {
        let permit = call.permit.map(|permit| permit.to_string());
        assert_eq!((call.try_number, permit), (number, Some(format!("1.{number}"))));
        assert_eq!((call.job, call.node.text().as_ref(), call.agent.as_str()), (job, "n", "a"));
        assert_eq!(call.session.as_ref().map(|session| session.as_str()), Some("talk"));
        assert_eq!((call.timeout, call.fence.epoch), (Duration::from_secs(60), 1));
    }
    assert_eq!(calls.len(), 3);
    let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
    assert_eq!(row.lifetime, Some(Span::from_secs(62)), "its timeout, and what it has to leave within");
}

/// Models of which the first question has this end, or none; the others are asked as ever.
struct FirstSays {
    asked: AtomicU32,
    error: Option<ModelError>,
    models: Arc<dyn Models>,
}

fn first_says(world: &World, error: Option<ModelError>) -> Arc<dyn Models> {
    Arc::new(FirstSays { asked: AtomicU32::new(0), error, models: Arc::clone(&world.rt.models) })
}

impl Models for FirstSays {
    fn complete<'a>(&'a self, request: ModelRequest, heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        if self.asked.fetch_add(1, Ordering::SeqCst) > 0 {
            return self.models.complete(request, heard);
        }
        match self.error.clone() {
            Some(error) => Box::pin(std::future::ready(Err(error))),
            None => Box::pin(std::future::pending()),
        }
    }

    fn knows(&self, model: &str) -> Result<(), String> {
        self.models.knows(model)
    }
}

/// Whatever an adapter does, the time of a call is the step's.
#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_by_itself_is_given_up_a_second_after_its_timeout() {
    for effect in ["pure", "idempotent", "at_most_once"] {
        let world = World::new();
        world.put(&calling(effect, "max_attempts: 2, backoff: 10s, jitter: none, max_backoff: 60s")).await;
        let (act, _reached, _release) = hold(done(json!(1)));
        world.tools.next("t", [act]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let again = effect != "at_most_once";
        let state = if again { world.done(job).await } else { world.until(job, &[JobStatus::Parked]).await };
        assert_eq!(
            (world.tools.count("t"), state.steps[&"n".into()].tries),
            (1 + usize::from(again), 1 + u32::from(again))
        );
        let took = state.last_at.since(state.created_at);
        let expected = Span::from_secs(if again { 71 } else { 61 });
        assert!(took >= expected && took.minus(expected) < Span::from_millis(1_500), "{effect}: {took}");
    }
    let mut world = World::new();
    let retry = "{ max_attempts: 2, backoff: 10s, jitter: none, max_backoff: 60s }";
    world
        .put(&format!(
            "{HEAD}plan:\n  nodes:\n    - {{ id: n, kind: llm, prompt: hello, timeout: 60s, retry: {retry} }}\n"
        ))
        .await;
    world.rt.models = first_says(&world, None);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!((state.status, state.steps[&"n".into()].tries), (JobStatus::Completed, 2));
    let took = state.last_at.since(state.created_at);
    assert!(took >= Span::from_secs(71) && took < Span::from_secs(73), "{took}");
}

/// What a model asks for is done: it is asked again when it says, and not where it says never; what it used counts.
#[tokio::test(start_paused = true)]
async fn a_models_error_says_whether_it_is_asked_again_and_what_it_used() {
    for (retryable, retry_after, again) in
        [(true, None, Some(10_000)), (true, Some(40), Some(40_000)), (false, None, None)]
    {
        let mut world = World::new();
        let retry = "{ max_attempts: 2, backoff: 10s, jitter: none, max_backoff: 60s }";
        world
            .put(&format!("{HEAD}plan:\n  nodes:\n    - {{ id: n, kind: llm, prompt: hello, retry: {retry} }}\n"))
            .await;
        let error = ModelError {
            error: Failure::new("busy", "later"),
            finish: None,
            retry_after: retry_after.map(Span::from_secs),
            retryable,
            usage: Some(Usage { completion_tokens: 20, prompt_tokens: 400, ..Usage::default() }),
        };
        world.rt.models = first_says(&world, Some(error));
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        // An answer takes ten.
        let (status, tokens) = if again.is_some() { (JobStatus::Completed, 430) } else { (JobStatus::Failed, 420) };
        assert_eq!((state.status, state.tokens), (status, tokens));
        assert_eq!(delays(&world, job).await, Vec::from_iter(again));
    }
}

/// A question that may not leave for its provider's rate is nobody's try: the job gives its slot away for as long, says why, and
/// asks then. What is said is heard meanwhile by whoever follows.
#[tokio::test(start_paused = true)]
async fn a_question_that_is_held_back_holds_no_slot_and_counts_no_try() {
    let held = |seconds: u64| ModelError {
        retry_after: Some(Span::from_secs(seconds)),
        ..ModelError::new(Failure::new(MODEL_HELD_BACK, "the rate is used up"), true)
    };
    for (seconds, requeued) in [(40, true), (900, true), (0, false)] {
        let mut world = World::new();
        world
            .put(&format!(
                "{HEAD}plan:\n  nodes:\n    - {{ id: n, kind: llm, prompt: hello, retry: {{ max_attempts: 1 }} }}\n"
            ))
            .await;
        world.rt.models = first_says(&world, Some(held(seconds)));
        let began = tokio::time::Instant::now();
        let process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let mut follower = process.rt.store.bus().listen(job);
        let state = world.done(job).await;
        assert_eq!((state.status, state.steps[&"n".into()].tries), (JobStatus::Completed, 1));
        let waited = began.elapsed().as_secs();
        // A provider is not believed for longer than five minutes at once.
        let least = seconds.min(limits::RATE_WAIT_MAX.to_std().as_secs());
        assert!(waited >= least && waited < least + 5, "{waited} of {seconds}");
        let given: Vec<JobRequeued> = world
            .events(job)
            .await
            .into_iter()
            .filter_map(|event| match event {
                Event::JobRequeued(e) => Some(e),
                _ => None,
            })
            .collect();
        let reasons: Vec<RequeueReason> = given.iter().map(|e| e.reason).collect();
        assert_eq!(reasons, Vec::from_iter(requeued.then_some(RequeueReason::RateLimited)));
        assert!(given.iter().all(|e| e.after_us.is_some_and(|after| after.div_ceil(1_000_000) == least)), "{given:?}");
        let said = std::iter::from_fn(|| follower.ready_delta()).collect::<Vec<_>>();
        let output = world.result(job).await;
        let [delta] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!((delta.path.to_string().as_str(), delta.from, Some(delta.text.as_str())), ("n", 0, output.as_str()));
    }
}

/// A model call's record says how it was asked, who answered, and why it stopped.
#[tokio::test(start_paused = true)]
async fn a_model_calls_record_says_how_it_was_asked_and_who_answered() {
    let mut world = World::new();
    let keys = "kind: llm, model: p/asked, prompt: hello, temperature: 0.5, max_tokens: 7, format: json, retry: { max_attempts: 2, backoff: 1ms }";
    world.put(&format!("{HEAD}plan:\n  nodes:\n    - {{ id: n, {keys} }}\n")).await;
    let cut = ModelError {
        finish: Some(FinishReason::Length),
        usage: Some(Usage { completion_tokens: 7, prompt_tokens: 2, ..Usage::default() }),
        ..ModelError::new(Failure::new("cut", "it was cut off"), true)
    };
    world.rt.models = first_says(&world, Some(cut));
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.done(job).await;
    let records: Vec<Box<ModelRecord>> = world
        .events(job)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::NodeFinished(e) => e.model,
            Event::NodeRetryScheduled(e) => e.model,
            _ => None,
        })
        .collect();
    let parameters = ModelParameters {
        format: AnswerFormat::Json,
        max_tokens: Some(7),
        model: "p/asked".to_owned(),
        temperature: Some(0.5),
    };
    let told: Vec<_> =
        records.iter().map(|record| (record.finish, record.parameters.clone(), record.usage.total())).collect();
    assert_eq!(told[0], (Some(FinishReason::Length), Some(parameters.clone()), 9));
    assert_eq!((told[1].0, told[1].1.as_ref()), (Some(FinishReason::End), Some(&parameters)));
    assert_eq!(records[0].prompt_hash, records[1].prompt_hash);
}

/// What a tool has done is done, also where what it says of it cannot be kept: it is called no second time.
#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_recorded_is_no_reason_to_call_again() {
    let deepest = |depth: usize| (0..depth).fold(json!(1), |inside, _| json!([inside]));
    for effect in ["pure", "idempotent", "at_most_once"] {
        for (depth, kept) in [(limits::JSON_DEPTH_MAX, true), (limits::JSON_DEPTH_MAX + 1, false)] {
            let world = World::new();
            world.put(&calling(effect, "max_attempts: 3, backoff: 1ms, jitter: none")).await;
            world.tools.next("t", [Act::Say(done(deepest(depth)))]);
            let _process = world.start("w");
            let job = world.submit("a", json!({})).await;
            let state = world
                .until(job, &[JobStatus::Completed, JobStatus::Failed, JobStatus::Parked, JobStatus::Waiting])
                .await;
            assert_eq!(world.tools.count("t"), 1, "{effect} {depth}");
            let step = &state.steps[&"n".into()];
            if kept {
                assert_eq!(state.status, JobStatus::Completed, "{effect}");
                assert_eq!(world.result(job).await, deepest(depth), "{effect}");
            } else if effect == "at_most_once" {
                // A person is asked, and is told why.
                let reason = step.doubt.as_deref().map(|doubt| doubt.reason.clone()).unwrap_or_default();
                assert!(reason.starts_with("the tool's result cannot be recorded: "), "{reason}");
                assert_eq!(world.rt.store.in_doubt(10).await.unwrap().len(), 1);
            } else {
                let error = step.error.clone().unwrap();
                assert_eq!((error.code.as_str(), step.tries), ("result_refused", 1), "{effect}");
                assert_eq!((state.status, step.result), (JobStatus::Failed, Some(StepResult::PermanentFailure)));
            }
        }
    }
}

/// As for a tool: a question that was ended by its time is put again only where the policy says so.
#[tokio::test(start_paused = true)]
async fn a_model_that_does_not_answer_in_time_is_asked_again_as_the_policy_says() {
    let says = |code: &str| {
        let error = Failure::new(code, "no answer");
        Some(ModelError::new(error, true))
    };
    for (on_timeout, error, tries) in [
        ("retry", None, 2),
        ("retry", says(MODEL_TIMED_OUT), 2),
        ("fail", None, 1),
        ("fail", says(MODEL_TIMED_OUT), 1),
        ("fail", says("model_unreachable"), 2),
    ] {
        let told = format!("on_timeout {on_timeout}: {error:?}");
        let mut world = World::new();
        let retry = format!("{{ max_attempts: 3, backoff: 10s, jitter: none, on_timeout: {on_timeout} }}");
        let node = format!("{{ id: n, kind: llm, prompt: hello, timeout: 60s, retry: {retry} }}");
        world.put(&format!("{HEAD}plan:\n  nodes:\n    - {node}\n")).await;
        world.rt.models = first_says(&world, error);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        let step = &state.steps[&"n".into()];
        let result = if tries > 1 { StepResult::Pure } else { StepResult::PermanentFailure };
        assert_eq!((step.tries, step.result), (tries, Some(result)), "{told}");
    }
}

/// A run whose lease is not safe any more starts nothing, and still records what it knows while nobody has taken its job.
#[tokio::test(start_paused = true)]
async fn what_is_known_under_a_spent_lease_is_recorded_by_its_own_run() {
    let world = World::new();
    world.put(&calling("at_most_once", "max_attempts: 1")).await;
    let (act, reached, release) = hold(done(json!(7)));
    world.tools.next("t", [act]);
    let fails = vec![Some(Fault::Before); 1_000];
    let _first = world.start_behind("first", FaultPlan::none().script(Op::Heartbeat, fails));
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    // Safe for 22.5 s of 30.
    tokio::time::sleep(Duration::from_secs(25)).await;
    release.notify_one();
    while world.state(job).await.step_status(&"n".into()) == StepStatus::Running {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let state = world.state(job).await;
    let step = &state.steps[&"n".into()];
    assert_eq!((step.source, step.result), (Source::Executed, Some(StepResult::SideEffectCommitted)));
    assert_eq!((state.fence.epoch, world.tools.count("t")), (1, 1));
    let _second = world.start("second");
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// However a job ends that is taken back: what became of its call is not known, and that is on record.
#[tokio::test(start_paused = true)]
async fn a_job_that_ends_when_it_is_taken_back_leaves_its_open_call_on_record() {
    for (end, code) in
        [("cancel", None), ("deadline", Some("deadline_exceeded")), ("attempts", Some("attempts_exhausted"))]
    {
        let mut world = World::new();
        let deadline = if end == "deadline" { "deadline: 20s\n" } else { "" };
        world.put(&format!("{deadline}{}", calling("at_most_once", "max_attempts: 1"))).await;
        if end == "attempts" {
            world.rt.settings = Arc::new(Settings { max_attempts: 1, ..Settings::clone(&world.rt.settings) });
        }
        let (act, reached, _release) = hold(done(json!(1)));
        world.tools.next("t", [act]);
        let first = world.start("first");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        first.kill();
        if end == "cancel" {
            assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
        }
        let _second = world.start("second");
        let state = world.done(job).await;
        let found = match &state.ending {
            Some(Ending::Failed { error, .. }) => Some(error.code.as_str()),
            _ => None,
        };
        assert_eq!((found, world.tools.count("t")), (code, 1), "{end}");
        let listed = world.rt.store.unresolved(10).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.status).collect::<Vec<_>>(), [LedgerStatus::InDoubt], "{end}");
    }
}

/// Its ledger row says what became of it: the end of the job has nothing to ask.
#[tokio::test(start_paused = true)]
async fn a_call_whose_outcome_was_deposited_is_not_left_in_doubt_by_the_end_of_its_job() {
    for (outcome, status) in [
        (DepositOutcome::Done(aetheris_core::json::Json::new(json!(1))), LedgerStatus::Committed),
        (DepositOutcome::Settled(LedgerTrigger::RefusePermanent), LedgerStatus::RefusedPermanent),
    ] {
        let world = World::new();
        world.put(&calling("at_most_once", "max_attempts: 1")).await;
        let (act, reached, _release) = hold(done(json!(1)));
        world.tools.next("t", [act]);
        let first = world.start("first");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        first.kill();
        let call = world.state(job).await.steps[&"n".into()].invocation.clone().unwrap();
        let (key, node) = (call.key, "n".into());
        let deposit = Deposit { job, key, node, outcome, permit: call.permit, permit_id: call.permit_id };
        assert_eq!(world.rt.deposit(&deposit).await.unwrap(), Deposited::Taken);
        assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
        let _second = world.start("second");
        assert_eq!(world.done(job).await.status, JobStatus::Cancelled);
        let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
        assert_eq!(row.status, status);
        assert_eq!(world.rt.store.unresolved(10).await.unwrap(), []);
    }
}

/// Whoever is asked has its own time, and is told which permit the question is about.
#[tokio::test(start_paused = true)]
async fn a_question_has_the_time_of_the_tool_that_is_asked() {
    let world = World::new();
    let file = crate::doubt::agent("[{ reconcile: look }, human]").replace("effect: pure", "effect: pure, timeout: 7s");
    world.put(&file).await;
    world.tools.next("pay", [Act::Say(unknown("reset"))]);
    world.tools.next("look", [Act::Say(done(json!({ "outcome": "unknown" })))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "n": 1 })).await;
    world.until(job, &[JobStatus::Parked]).await;
    let (call, question) = (&world.tools.calls_of("pay")[0], &world.tools.calls_of("look")[0]);
    assert_eq!((call.timeout, question.timeout), (Duration::from_secs(10), Duration::from_secs(7)));
    assert_eq!((question.permit, question.input["permit"].as_str()), (None, Some("1.1")));
    assert_eq!((question.input["tool"].as_str(), &question.input["input"]), (Some("pay"), call.input.value()));
    assert_eq!(question.input["idempotency_key"], json!(call.key));
}

/// A long answer is heard in pieces, each at its place: places are counted in characters, as its hearers count.
#[tokio::test(start_paused = true)]
async fn the_pieces_of_a_long_answer_follow_each_other() {
    let world = World::new();
    world.put(&format!("{HEAD}plan:\n  nodes:\n    - {{ id: n, kind: llm, prompt: '{{{{ message.say }}}}' }}\n")).await;
    let process = world.start("w");
    let job = world.submit("a", json!({ "say": "\u{fc}".repeat(2 * limits::DELTA_BYTES_MAX) })).await;
    let mut follower = process.rt.store.bus().listen(job);
    world.done(job).await;
    let (mut heard, mut pieces) = (String::new(), 0);
    while let Some(delta) = follower.ready_delta() {
        assert_eq!(delta.from, u64::try_from(heard.chars().count()).unwrap(), "piece {pieces}");
        heard.push_str(&delta.text);
        pieces += 1;
    }
    assert!(pieces > 2);
    assert_eq!(json!(heard), world.result(job).await);
}

/// Models whose rate is used up for long, and who say each time that it is for a second.
struct HeldUntil(tokio::time::Instant, Arc<dyn Models>);

impl Models for HeldUntil {
    fn complete<'a>(&'a self, request: ModelRequest, heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        if tokio::time::Instant::now() >= self.0 {
            return self.1.complete(request, heard);
        }
        let held = ModelError::new(Failure::new(MODEL_HELD_BACK, "the rate is used up"), true);
        Box::pin(std::future::ready(Err(ModelError { retry_after: Some(Span::from_secs(1)), ..held })))
    }

    fn knows(&self, model: &str) -> Result<(), String> {
        self.1.knows(model)
    }
}

/// Each time that its job is given back costs it events: the longer a question has waited, the longer it waits.
#[tokio::test(start_paused = true)]
async fn a_question_that_is_held_back_for_long_asks_less_and_less_often() {
    let mut world = World::new();
    world.put(&format!("{HEAD}plan:\n  nodes:\n    - {{ id: n, kind: llm, prompt: hello }}\n")).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(2 * 3_600);
    world.rt.models = Arc::new(HeldUntil(until, Arc::clone(&world.rt.models)));
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let given = loop {
        let state = world.state(job).await;
        let given = world.kinds(job).await.iter().filter(|kind| **kind == "job_requeued").count();
        assert!(given < 400, "{given} times in {:?}", world.passed());
        if state.status.is_terminal() {
            break given;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    assert!(given > 100, "a minute is the longest pause: {given}");
    assert_eq!(world.state(job).await.status, JobStatus::Completed);
}
