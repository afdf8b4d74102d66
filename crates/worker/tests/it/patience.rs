//! How long a run waits: no longer than it has to, and for nothing once it is asked to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aetheris_core::event::{Event, Failure, Usage};
use aetheris_core::id::{BootId, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::limits;
use aetheris_core::state::{Ending, JobState};
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ops::{Resolved, Submission};
use aetheris_runtime::ports::OUT_OF_FILES;
use aetheris_runtime::{Heard, ModelAnswer, ModelError, ModelRequest, Models, OpError, ToolOutcome};
use aetheris_store::faulty::{Fault, FaultPlan, Op};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::Clock;
use aetheris_store::{Boxed, Purpose, Scope};
use aetheris_testing::time::VirtualClock;
use serde_json::json;
use tokio::time::Instant;

use crate::doubt::agent;
use crate::world::{Act, Process, World, did_not_happen, done, hold, unknown};

const HEAD: &str = "agent: a\nversion: \"1\"\nplanner: static\nmodel: scripted/echo\n";

/// One step that calls `t`, of this class, with this retry policy.
fn calling(effect: &str, retry: &str) -> String {
    format!(
        "{HEAD}tools:\n  t: {{ kind: function, function: f, timeout: 60s, effect: {effect} }}\nplan:\n  nodes:\n\
         \x20   - {{ id: n, kind: tool, tool: t, retry: {{ {retry} }} }}\n"
    )
}

fn no_file() -> ToolOutcome {
    ToolOutcome::NotSent { error: Failure::new(OUT_OF_FILES, "no file"), permanent: false }
}

fn busy() -> ToolOutcome {
    ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None }
}

/// The pause before a try that is held, and the one before a call that found no file.
#[tokio::test(start_paused = true)]
async fn whoever_ends_or_holds_a_job_waits_for_no_pause_between_its_calls() {
    for outcome in [busy, no_file] {
        for asked in ["cancel", "pause", "drain"] {
            let world = World::new();
            world.put(&calling("pure", "max_attempts: 9, backoff: 500ms, factor: 1, jitter: none")).await;
            world.tools.next("t", (0..9).map(|_| Act::Say(outcome())));
            let process = world.start("w");
            let job = world.submit("a", json!({})).await;
            while world.tools.count("t") == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            let began = Instant::now();
            let (status, most) = match asked {
                "cancel" => {
                    process.rt.cancel(job).await.unwrap();
                    (JobStatus::Cancelled, 50)
                }
                "pause" => {
                    process.rt.pause(job).await.unwrap();
                    (JobStatus::Paused, 50)
                }
                // A claim that is under way is waited for.
                _ => {
                    process.stop.drain.cancel();
                    (JobStatus::Pending, 300)
                }
            };
            world.until(job, &[status]).await;
            let took = began.elapsed();
            assert!(took < Duration::from_millis(most), "{asked}, {:?}: {took:?}", outcome());
            assert_eq!(world.tools.count("t"), 1, "{asked}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_found_no_file_leaves_again_after_pauses_that_grow() {
    for effect in ["pure", "idempotent", "at_most_once"] {
        let world = World::new();
        world.put(&calling(effect, "max_attempts: 1")).await;
        world.tools.next("t", (0..3).map(|_| Act::Say(no_file())));
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        let took = state.last_at.since(state.created_at);
        let pauses = Span::from_micros(7 * limits::OWN_WANT_PAUSE.micros());
        assert_eq!((state.status, world.tools.count("t")), (JobStatus::Completed, 4));
        assert!(took >= pauses && took.minus(pauses) < Span::from_millis(100), "{effect}: {took}");
    }
}

/// A process that dies while it waits, as it is out of files, leaves no call behind that might have happened.
#[tokio::test(start_paused = true)]
async fn a_call_that_did_not_leave_is_known_as_such_before_it_is_waited_for() {
    for effect in ["idempotent", "at_most_once"] {
        let world = World::new();
        world.put(&calling(effect, "max_attempts: 1")).await;
        world.tools.next("t", (0..40).map(|_| Act::Say(no_file())));
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let mut looks = 0;
        while world.tools.count("t") < 9 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let history = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap();
            for row in history.ledger {
                assert_eq!(row.status, LedgerStatus::NotSent, "{effect}, after {looks} looks");
                looks += 1;
            }
        }
        // 1, 2, 4, 8, 16, 32, 32 and 32 seconds.
        assert!((400..450).contains(&looks), "{effect}: {looks} looks");
    }
}

/// A store that was away for a moment is noticed at once when it is back.
#[tokio::test(start_paused = true)]
async fn a_write_and_a_deposit_that_failed_are_sent_again_a_tenth_of_a_second_later() {
    let fails = |times: usize| vec![Some(Fault::Before); times];
    let world = World::new();
    world.put(&calling("at_most_once", "max_attempts: 1")).await;
    let _process = world.start_behind("w", FaultPlan::none().script(Op::Commit(Purpose::Finish), fails(20)));
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    let took = state.last_at.since(state.created_at);
    assert!(took >= Span::from_secs(2) && took < Span::from_millis(2_100), "{took}");
}

/// A process that is to stop, has the answer of its call and can only deposit it, which fails like this.
async fn owing(deposits: Vec<Option<Fault>>) -> (World, Process, JobId) {
    let world = World::new();
    world.put(&calling("at_most_once", "max_attempts: 1")).await;
    let (act, reached, release) = hold(done(json!(7)));
    world.tools.next("t", [act]);
    let process = world.start("w");
    let job = world.submit("a", json!(1)).await;
    reached.notified().await;
    let gone = [Purpose::Record, Purpose::Requeue, Purpose::Finish].into_iter();
    let never = vec![Some(Fault::Before); 1_000];
    let plan = gone.fold(FaultPlan::none(), |plan, purpose| plan.script(Op::Commit(purpose), never.clone()));
    process.store.replan(plan.script(Op::Commit(Purpose::Deposit), deposits));
    process.stop.drain.cancel();
    release.notify_one();
    (world, process, job)
}

/// Ten minutes are enough for a store that comes back, and a process has to be able to end.
#[tokio::test(start_paused = true)]
async fn a_deposit_is_given_up_after_as_many_tries_as_are_allowed() {
    for (failing, known) in [(limits::DEPOSIT_TRIES_MAX - 1, 1), (limits::DEPOSIT_TRIES_MAX, 0)] {
        let (world, process, job) = owing(vec![Some(Fault::Before); usize::try_from(failing).unwrap()]).await;
        process.worker.await.unwrap();
        let effects = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().effects;
        assert_eq!(effects.len(), known, "{failing}");
    }
}

/// What a tool has answered is known to nobody else: its deposit is tried for as long as nobody insists.
#[tokio::test(start_paused = true)]
async fn a_deposit_is_tried_again_until_it_is_taken_or_somebody_insists() {
    for insists in [false, true] {
        let (world, process, job) = owing(vec![Some(Fault::Before); if insists { 10_000 } else { 300 }]).await;
        if insists {
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(!process.worker.is_finished(), "it deposits still");
            process.stop.abandon.cancel();
        }
        let began = Instant::now();
        process.worker.await.unwrap();
        let effects = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().effects.len();
        assert_eq!(effects, usize::from(!insists));
        // Five seconds for the writes, and three hundred tenths for the deposits.
        let most = Duration::from_secs(if insists { 1 } else { 40 });
        assert!(began.elapsed() < most, "{:?}", began.elapsed());
    }
}

/// One that no store can take is not sent again.
#[tokio::test(start_paused = true)]
async fn a_deposit_that_can_never_be_written_is_tried_once() {
    // A second one would be taken.
    let (world, process, job) = owing(vec![Some(Fault::Impossible)]).await;
    process.worker.await.unwrap();
    let effects = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().effects;
    assert!(effects.is_empty(), "{effects:?}");
}

/// Models that take their time for one answer.
struct Slow(Duration, Result<ModelAnswer, ModelError>);

impl Models for Slow {
    fn complete<'a>(&'a self, _: ModelRequest, _: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        Box::pin(async move {
            tokio::time::sleep(self.0).await;
            self.1.clone()
        })
    }

    fn knows(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// How long the bodies of a job's steps took, as its events tell.
async fn told(world: &World, job: JobId) -> Vec<u64> {
    let took = |event: Event| match event {
        Event::NodeFinished(e) => e.took_us,
        _ => None,
    };
    world.events(job).await.into_iter().filter_map(took).collect()
}

/// However it ends.
#[tokio::test(start_paused = true)]
async fn a_plain_step_that_fails_says_how_long_it_took() {
    let long = Duration::from_secs(7);
    let usage = Usage { completion_tokens: 1, prompt_tokens: 1, ..Usage::default() };
    let said = |text: &str| Ok(ModelAnswer::text("m", text, usage));
    let refused = || {
        let error = Failure::new("no", "never");
        Err(ModelError::new(error, false))
    };
    for (answer, code) in [
        (None, "refused"),
        (Some(refused()), "no"),
        (Some(said("no json")), "model_answer_not_json"),
        (Some(said("1")), ""),
    ] {
        let mut world = World::new();
        if let Some(answer) = &answer {
            let node = "{ id: n, kind: llm, format: json, prompt: hello, retry: { max_attempts: 1 } }";
            world.put(&format!("{HEAD}plan:\n  nodes:\n    - {node}\n")).await;
            world.rt.models = Arc::new(Slow(long, answer.clone()));
        } else {
            world.put(&calling("pure", "max_attempts: 1")).await;
        }
        let refused = ToolOutcome::RefusedPermanent(Failure::new("refused", "never"));
        let (act, reached, release) = hold(refused);
        world.tools.next("t", [act]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        if answer.is_none() {
            reached.notified().await;
            tokio::time::sleep(long).await;
            release.notify_one();
        }
        let state = world.done(job).await;
        let found = state.steps[&"n".into()].error.as_ref().map_or("", |error| error.code.as_str());
        assert_eq!((found, told(&world, job).await), (code, vec![7_000_000]));
    }
}

/// "Did not happen" is of the moment of the question, however long the answer takes.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_from_its_question() {
    for held in [0, 5, 16, 30] {
        let world = World::new();
        let asks = agent("[{ reconcile: look, settle: 5s }, human]");
        world.put(&asks.replace("effect: pure }", "effect: pure, timeout: 60s }")).await;
        world.tools.next("pay", [Act::Say(unknown("reset"))]);
        let (no, asked, answer) = hold(done(json!({ "outcome": "did_not_happen" })));
        let yes = Act::Say(done(json!({ "outcome": "happened", "result": 7 })));
        world.tools.next("look", [no, yes]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        asked.notified().await;
        tokio::time::sleep(Duration::from_secs(held)).await;
        answer.notify_one();
        let state = world.done(job).await;
        assert_eq!((state.status, world.tools.count("pay"), world.tools.count("look")), (JobStatus::Completed, 1, 2));
        // The permit lives for twelve seconds, and what settles after it takes five.
        let (took, life) = (state.last_at.since(state.created_at), Span::from_secs(17));
        assert!(took >= life && took.minus(life) < Span::from_secs(held + 1), "{held}: {took}");
    }
}

/// A machine that can be started again: its boot clock is then another one.
struct Machine {
    again: AtomicBool,
    clock: Arc<VirtualClock>,
}

impl Clock for Machine {
    fn boot(&self) -> Duration {
        self.clock.boot()
    }

    fn boot_id(&self) -> BootId {
        BootId::from_u128(if self.again.load(Ordering::SeqCst) { 2 } else { 1 })
    }

    fn wall(&self) -> Timestamp {
        self.clock.wall()
    }
}

async fn state(world: &World, job: JobId) -> JobState {
    Loaded::read(world.rt.store.as_ref(), &Scope::System, job).await.unwrap().state
}

/// After the machine has been started again its clock has to run the permit's whole life, and what settles, from when it
/// has first read the permit. That moment is kept: else no answer would ever count.
#[tokio::test(start_paused = true)]
async fn after_another_start_of_the_machine_an_answer_counts_from_its_first_reading_on() {
    for asks in ["tool", "person"] {
        let mut world = World::new();
        let machine = Arc::new(Machine { again: AtomicBool::new(false), clock: VirtualClock::new() });
        world.rt.system.clock = Arc::clone(&machine) as _;
        world.rt.store = Arc::new(MemoryStore::new(Arc::clone(&machine) as _));
        world.put(&agent(if asks == "tool" { "[{ reconcile: look, settle: 5s }, human]" } else { "human" })).await;
        let (act, reached, _release) = hold(done(json!(1)));
        world.tools.next("pay", [act]);
        world.tools.next("look", (0..9).map(|_| Act::Say(done(json!({ "outcome": "did_not_happen" })))));
        let first = world.start("first");
        let job = world.rt.submit(&"a".into(), Submission::default()).await.unwrap().job;
        reached.notified().await;
        first.kill();
        // The permit is long over by the store's clock.
        tokio::time::sleep(Duration::from_secs(600)).await;
        machine.again.store(true, Ordering::SeqCst);
        let _second = world.start("second");
        let began = Instant::now();
        if asks == "person" {
            while state(&world, job).await.status != JobStatus::Parked {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let key = world.tools.calls_of("pay")[0].key;
            let early = world.rt.resolve(job, key, did_not_happen(1)).await;
            let Err(OpError::CanStillArrive(from)) = early else { panic!("{early:?}") };
            // Twelve seconds, and the minute of a tool that says nothing else.
            let left = from.since(machine.wall());
            assert_eq!(left, Span::from_secs(72));
            tokio::time::sleep(left.to_std()).await;
            assert_eq!(world.rt.resolve(job, key, did_not_happen(1)).await.unwrap(), Resolved::Recorded);
        }
        while !state(&world, job).await.status.is_terminal() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(began.elapsed() < Duration::from_secs(200), "{asks}: it is never believed");
        }
        let state = state(&world, job).await;
        assert_eq!((state.status, world.tools.count("pay")), (JobStatus::Completed, 2), "{asks}");
        let took = began.elapsed().as_secs();
        let expected = if asks == "tool" { 17 } else { 72 };
        assert!((expected..expected + 3).contains(&took), "{asks}: {took}");
    }
}

/// No question is put, and no call made, once as much is used as is allowed.
#[tokio::test(start_paused = true)]
async fn tokens_are_used_up_to_the_budget_and_no_further() {
    for (most, used, tries) in [(19, 20, 2), (20, 20, 2), (21, 30, 3)] {
        let world = World::new();
        // Each answer is its prompt, for ten tokens.
        let node = "{ id: n, kind: llm, format: json, prompt: sorry, retry: { max_attempts: 50, backoff: 1ms } }";
        world.put(&format!("{HEAD}budget: {{ max_tokens: {most} }}\nplan:\n  nodes:\n    - {node}\n")).await;
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
        assert_eq!(
            (error.code.as_str(), state.tokens, state.steps[&"n".into()].tries),
            ("budget_exceeded", used, tries)
        );
        let last = format!("the job has used {used} of {most} tokens; the last try: ");
        assert!(error.message.starts_with(&last), "{}", error.message);
    }
}

/// The time of a permission runs from before it was written: what its commit took of the margin is not awaited again.
#[tokio::test(start_paused = true)]
async fn a_call_is_awaited_until_its_permission_is_over() {
    for (commit, awaited) in [(0, 61_000), (1_000, 61_000), (1_500, 60_500)] {
        let world = World::new();
        world.put(&calling("at_most_once", "max_attempts: 1")).await;
        let (act, reached, _never) = hold(done(json!(1)));
        world.tools.next("t", [act]);
        let slow =
            FaultPlan::none().script(Op::Commit(Purpose::Permit), [Some(Fault::Slow(Span::from_millis(commit)))]);
        let _process = world.start_behind("w", slow);
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        let began = Instant::now();
        world.until(job, &[JobStatus::Waiting, JobStatus::Parked]).await;
        let took = began.elapsed().as_millis();
        assert!((awaited..awaited + 200).contains(&took), "{commit}: {took}");
    }
}
