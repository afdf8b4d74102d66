//! Waits, signals in every order, deadlines.

use std::time::Duration;

use aetheris_core::event::WaitEnd;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::OpError;
use aetheris_runtime::ops::{Cancelled, Signal, SignalAnswer, Submission};
use aetheris_scheduler::SweepOptions;
use aetheris_store::faulty::{Fault, FaultPlan, Op};
use aetheris_store::{Purpose, Scope, TimerRow};
use serde_json::json;

use crate::world::{World, done, hold};

fn approval(extra: &str) -> String {
    format!(
        "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  t: {{ kind: function, function: f }}\nplan:\n  nodes:\n\
         \x20   - {{ id: first, kind: tool, tool: t }}\n\
         \x20   - {{ id: w, kind: wait, needs: [first], wait_type: human, correlation_key: \"ok-{{{{ job.id }}}}\", park: true{extra} }}\n\
         \x20   - {{ id: last, kind: tool, tool: t, needs: [w], input: \"{{{{ nodes.w.output }}}}\" }}\n"
    )
}

#[tokio::test(start_paused = true)]
async fn a_signal_ends_its_wait_once_and_for_ever() {
    let world = World::new();
    world.put(&approval("")).await;
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let key = format!("ok-{job}");
    let parked = world.until(job, &[JobStatus::Parked]).await;
    assert!(parked.owner.is_none());
    assert!(matches!(world.signal(job, "other", json!(1)).await, Err(OpError::WrongCorrelationKey { .. })));
    assert_eq!(world.signal(job, &key, json!({ "yes": true })).await.unwrap(), SignalAnswer::Delivered);
    world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "yes": true }));
    for (payload, payload_matches) in [(json!({ "yes": true }), true), (json!(2), false)] {
        let again = world.signal(job, &key, payload).await.unwrap();
        assert_eq!(again, SignalAnswer::AlreadyDelivered { payload_matches });
    }
    let completed = world.kinds(job).await.iter().filter(|kind| **kind == "wait_completed").count();
    assert_eq!(completed, 1);
    process.kill();
}

/// Each kind of wait that something outside ends.
#[tokio::test(start_paused = true)]
async fn a_signal_ends_a_wait_of_every_kind() {
    for kind in ["human", "signal", "webhook"] {
        let world = World::new();
        let wait = format!("{{ id: ask, kind: wait, wait_type: {kind}, correlation_key: k }}");
        world.put(&format!("agent: a\nplan:\n  nodes:\n    - {wait}\n")).await;
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        world.until(job, &[JobStatus::Waiting]).await;
        assert_eq!(world.signal(job, "k", json!(kind)).await.unwrap(), SignalAnswer::Delivered);
        assert_eq!(world.done(job).await.status, JobStatus::Completed);
        assert_eq!(world.result(job).await, json!(kind));
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_before_its_wait_is_kept_and_consumed() {
    let world = World::new();
    world.put(&approval("")).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    let key = format!("ok-{job}");
    assert_eq!(world.signal(job, &key, json!("early")).await.unwrap(), SignalAnswer::Kept { payload_matches: true });
    assert_eq!(world.signal(job, &key, json!("later")).await.unwrap(), SignalAnswer::Kept { payload_matches: false });
    release.notify_one();
    world.done(job).await;
    assert_eq!(world.result(job).await, json!("early"));
    assert_eq!(world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().kept, []);
}

/// It is in every list that the job is in, and made of what others have sent.
#[tokio::test(start_paused = true)]
async fn the_reason_of_a_wait_is_cut() {
    let world = World::new();
    let reason = ", reason: \"{{ message }}\"";
    world.put(&approval(reason)).await;
    let process = world.start("w");
    let job = world.submit("a", json!("é".repeat(100_000))).await;
    let parked = world.until(job, &[JobStatus::Parked]).await;
    let kept = parked.blocks.oldest().unwrap().reason.clone().unwrap();
    assert!(
        (limits::WAIT_REASON_BYTES_MAX - 4..=limits::WAIT_REASON_BYTES_MAX).contains(&kept.len()),
        "{}",
        kept.len()
    );
    assert!(kept.ends_with("é…"), "{kept}");
    process.kill();
}

/// What is kept is in the memory of whoever looks at the job, where small objects are many times their text.
#[tokio::test(start_paused = true)]
async fn kept_signals_are_bounded_by_the_memory_that_they_take() {
    let world = World::new();
    world.put(&approval("").replace("ok-{{ job.id }}", "ok-{{ nodes.first.output }}")).await;
    let job = world.submit("a", json!({})).await;
    let objects = vec![json!({ "a": 1 }); 60_000];
    for key in ["a", "b", "c"] {
        world.signal(job, key, json!(objects)).await.unwrap();
    }
    let refused = world.signal(job, "d", json!(objects)).await.unwrap_err();
    assert!(refused.to_string().contains("bytes of memory of kept signals"), "{refused}");
    assert_eq!(world.signal(job, "d", json!("small")).await.unwrap(), SignalAnswer::Kept { payload_matches: true });
}

/// Before the wait's key is known nothing is known of its schema either: the signal is kept. It does not fit when the
/// wait is reached, and ends nothing.
#[tokio::test(start_paused = true)]
async fn a_kept_signal_that_does_not_fit_uses_up_nothing() {
    let world = World::new();
    let schema = ", schema: { type: object, required: [yes] }";
    let file = approval(schema).replace("ok-{{ job.id }}", "ok-{{ nodes.first.output }}");
    assert!(file.contains("nodes.first.output") && file.contains("schema"));
    world.put(&file).await;
    let (act, reached, release) = hold(done(json!("7")));
    world.tools.next("t", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    let kept = world.signal(job, "ok-7", json!("{yes: true}")).await.unwrap();
    assert_eq!(kept, SignalAnswer::Kept { payload_matches: true });
    let sent = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().kept[0].signal;
    release.notify_one();
    world.until(job, &[JobStatus::Parked]).await;
    let kinds = world.kinds(job).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == "signal_refused").count(), 1, "{kinds:?}");
    assert!(!kinds.contains(&"wait_completed"));
    let refused = world.events(job).await.into_iter().find_map(|event| match event {
        aetheris_core::event::Event::SignalRefused(refused) => Some(refused),
        _ => None,
    });
    let refused = refused.unwrap();
    assert_eq!((refused.correlation_key.as_str(), refused.node.text().as_ref(), refused.signal), ("ok-7", "w", sent));
    assert_eq!(refused.payload_hash, Json::new(json!("{yes: true}")).hash());
    assert_eq!(refused.violations.len(), 1);
    assert_eq!(world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().kept, []);
    let refused = world.signal(job, "ok-7", json!("{yes: true}")).await;
    assert!(matches!(refused, Err(OpError::InvalidPayload { .. })), "{refused:?}");
    assert_eq!(world.signal(job, "ok-7", json!({ "yes": 1 })).await.unwrap(), SignalAnswer::Delivered);
    world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "yes": 1 }));
}

/// One that fits is consumed as without a schema, and one whose wait is known is refused at once.
#[tokio::test(start_paused = true)]
async fn a_kept_signal_that_fits_ends_its_wait() {
    let world = World::new();
    world.put(&approval(", schema: { type: object, required: [yes] }")).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    let key = format!("ok-{job}");
    assert!(matches!(world.signal(job, &key, json!(1)).await, Err(OpError::InvalidPayload { .. })));
    let kept = world.signal(job, &key, json!({ "yes": 2 })).await.unwrap();
    assert_eq!(kept, SignalAnswer::Kept { payload_matches: true });
    release.notify_one();
    world.done(job).await;
    assert_eq!(world.result(job).await, json!({ "yes": 2 }));
}

/// As long as the key of a wait cannot be computed nobody knows whether the first signal can end it: one that claims another
/// type, or does not fit, swallows none that comes after it.
#[tokio::test(start_paused = true)]
async fn a_signal_that_cannot_count_swallows_no_other_of_its_key() {
    for (first, claims) in [(json!("{yes: true}"), None), (json!({ "yes": 0 }), Some(WaitType::Webhook))] {
        let world = World::new();
        let file = approval(", schema: { type: object, required: [yes] }");
        // Another wait whose key is not known yet, so that either type may be right.
        let other = "    - { id: hook, kind: wait, needs: [last], wait_type: webhook, correlation_key: \"{{ nodes.first.output }}\", \
                     deadline: 1s, on_deadline: { continue_with: 1 } }\n  answer: \"{{ nodes.last.output }}\"\n";
        world.put(&format!("{}{other}", file.replace("ok-{{ job.id }}", "ok-{{ nodes.first.output }}"))).await;
        let (act, reached, release) = hold(done(json!("7")));
        world.tools.next("t", [act]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        reached.notified().await;
        let signal = async |payload: &serde_json::Value, wait_type| {
            let (correlation_key, payload) = ("ok-7".to_owned(), Json::new(payload.clone()));
            world.rt.signal(job, Signal { correlation_key, payload, wait_type }).await
        };
        let right = json!({ "yes": 1 });
        for (payload, claims) in [(&first, claims), (&right, None), (&right, None), (&first, claims)] {
            let kept = signal(payload, claims).await.unwrap();
            assert_eq!(kept, SignalAnswer::Kept { payload_matches: true }, "{payload}");
        }
        assert_eq!(world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().kept.len(), 2);
        release.notify_one();
        world.done(job).await;
        assert_eq!(world.result(job).await, right, "{first}");
        let again = signal(&right, None).await.unwrap();
        assert_eq!(again, SignalAnswer::AlreadyDelivered { payload_matches: true });
    }
}

/// Each that may count is kept, up to a bound that its sender is told.
#[tokio::test(start_paused = true)]
async fn different_signals_of_one_key_are_bounded() {
    let world = World::new();
    world.put(&approval("").replace("ok-{{ job.id }}", "ok-{{ nodes.first.output }}")).await;
    let (act, reached, _release) = hold(done(json!("7")));
    world.tools.next("t", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    for number in 0..limits::KEPT_SIGNALS_OF_KEY_MAX {
        assert!(world.signal(job, "ok-7", json!(number)).await.is_ok(), "{number}");
    }
    let one_more = world.signal(job, "ok-7", json!("one more")).await;
    assert!(matches!(&one_more, Err(OpError::StateConflict(why)) if why.contains("16 different")), "{one_more:?}");
    assert!(world.signal(job, "ok-7", json!(3)).await.is_ok(), "one that is kept is told so again");
    assert!(world.signal(job, "ok-8", json!(0)).await.is_ok(), "another key has room of its own");
}

/// However much is written with it, the unit in which a wait begins has room for each signal that does not fit.
#[tokio::test(start_paused = true)]
async fn misfits_of_a_wait_behind_many_steps_are_within_one_unit() {
    let world = World::new();
    let schema = ", schema: { type: object, required: [yes] }";
    let key = "ok-{{ nodes.first.output }}";
    for steps in [50, 52, 54, 55, 56, 58, 60, 63] {
        let mut file =
            approval(schema).replace("ok-{{ job.id }}", key).replace("agent: a\n", &format!("agent: a{steps}\n"));
        let mut before = "first".to_owned();
        let mut more = String::new();
        for step in 0..steps {
            more.push_str(&format!("    - {{ id: x{step}, kind: transform, needs: [{before}], output: 1 }}\n"));
            before = format!("x{step}");
        }
        file = file.replace(
            "    - { id: w, kind: wait, needs: [first]",
            &format!("{more}    - {{ id: w, kind: wait, needs: [{before}, first]"),
        );
        world.put(&file).await;
        let (act, reached, release) = hold(done(json!("7")));
        world.tools.next("t", [act]);
        let process = world.start("w");
        let job = world.submit(&format!("a{steps}"), json!({})).await;
        reached.notified().await;
        for number in 0..limits::KEPT_SIGNALS_OF_KEY_MAX {
            assert!(world.signal(job, "ok-7", json!(number)).await.is_ok());
        }
        release.notify_one();
        let state = world.until(job, &[JobStatus::Parked, JobStatus::Failed]).await;
        assert_eq!(state.status, JobStatus::Parked, "{steps}: {:?}", state.ending);
        process.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn signals_raced_at_one_wait_complete_it_once() {
    let world = World::new();
    world.put(&approval("")).await;
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let key = format!("ok-{job}");
    world.until(job, &[JobStatus::Parked]).await;
    // All have looked before the first of them is written.
    let late = vec![Some(Fault::Delay(Span::from_millis(10))); 16];
    let signal = Op::Commit(Purpose::Signal);
    process.store.replan(FaultPlan::none().script(signal, late));
    let rt = process.rt.clone();
    let send = |n: i32| {
        let payload = Json::new(json!(n));
        let signal = Signal { correlation_key: key.clone(), payload, wait_type: None };
        rt.signal(job, signal)
    };
    let answers = futures_util::future::join_all((0..16).map(send)).await;
    let delivered = answers.iter().filter(|a| matches!(a, Ok(SignalAnswer::Delivered))).count();
    assert_eq!((delivered, answers.iter().filter(|a| a.is_ok()).count()), (1, 16));
    world.done(job).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_an_answer_fails_or_goes_on_as_its_plan_says() {
    for (extra, status) in [
        (", deadline: 10m, on_deadline: fail", JobStatus::Failed),
        (", deadline: 10m, on_deadline: { continue_with: { yes: false } }", JobStatus::Completed),
    ] {
        let world = World::new();
        world.put(&approval(extra)).await;
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        assert_eq!(state.status, status);
        assert_eq!(state.steps[&"w".into()].wait_end.as_deref(), Some(&WaitEnd::Time));
        let late = world.signal(job, &format!("ok-{job}"), json!(1)).await;
        assert!(matches!(late, Err(OpError::JobFinished { .. })), "{late:?}");
        if status == JobStatus::Completed {
            assert_eq!(world.result(job).await, json!({ "yes": false }));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timer_ends_as_its_plan_says() {
    for (extra, result) in [("", json!(null)), (", on_deadline: { continue_with: 7 }", json!(7))] {
        let world = World::new();
        let wait = format!("{{ id: w, kind: wait, wait_type: timer, deadline: 1s{extra} }}");
        world
            .put(&format!(
                "agent: a\nversion: \"1\"\nplanner: static\nmodel: scripted/echo\nplan:\n  nodes:\n    - {wait}\n"
            ))
            .await;
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        assert_eq!(world.done(job).await.status, JobStatus::Completed);
        assert_eq!(world.result(job).await, result);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_time_ended_is_over_for_signals() {
    let world = World::new();
    world.put(&approval(", deadline: 1s, on_deadline: { continue_with: 0 }")).await;
    let (hold_act, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [crate::world::Act::Say(done(json!(0))), hold_act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    assert!(matches!(world.signal(job, &format!("ok-{job}"), json!(1)).await, Err(OpError::WaitOver(_))));
    release.notify_one();
    world.done(job).await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_job_ends_it_in_every_state() {
    let file = approval("").replace("planner: static", "planner: static\ndeadline: 10m");
    let world = World::new();
    world.put(&file).await;
    let process = world.start("w");
    let parked = world.submit("a", json!({})).await;
    let state = world.done(parked).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!() };
    assert_eq!(error.code, "deadline_exceeded");
    assert_eq!(state.step_status(&"w".into()), StepStatus::Waiting);
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [act]);
    let running = world.submit("a", json!({})).await;
    reached.notified().await;
    tokio::time::sleep(std::time::Duration::from_secs(299)).await;
    release.notify_one();
    let state = world.until(running, &[JobStatus::Parked, JobStatus::Failed]).await;
    assert_eq!(state.status, JobStatus::Parked);
    world.done(running).await;
    // The others; of one that runs the call that has left is awaited, and nothing more is called.
    let minute = async |run_at| {
        let submission = Submission {
            deadline: Some(Span::from_secs(60)),
            message: Some(Json::null()),
            run_at,
            ..Default::default()
        };
        world.rt.submit(&"a".into(), submission).await.unwrap().job
    };
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [act]);
    let running = minute(None).await;
    reached.notified().await;
    world.put(&file.replace("park: true", "park: false")).await;
    let waiting = minute(None).await;
    world.until(waiting, &[JobStatus::Waiting]).await;
    let paused = minute(None).await;
    world.until(paused, &[JobStatus::Waiting]).await;
    world.rt.pause(paused).await.unwrap();
    let later = world.rt.system.clock.wall().after(Span::from_secs(3_600));
    let pending = minute(Some(later)).await;
    let called = world.tools.count("t");
    let all = [
        (waiting, JobStatus::Waiting),
        (paused, JobStatus::Paused),
        (pending, JobStatus::Pending),
        (running, JobStatus::Running),
    ];
    for (job, status) in all {
        assert_eq!(world.state(job).await.status, status);
    }
    for (job, status) in all {
        if status == JobStatus::Running {
            release.notify_one();
        }
        let Some(Ending::Failed { error, .. }) = world.done(job).await.ending else { panic!("{status:?}") };
        assert_eq!(error.code, "deadline_exceeded", "{status:?}");
    }
    assert_eq!(world.tools.count("t"), called);
    process.kill();
}

#[tokio::test(start_paused = true)]
async fn cancelling_works_in_every_state_and_twice() {
    let world = World::new();
    world.put(&approval("")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Now);
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Already);
    assert_eq!(world.state(job).await.status, JobStatus::Cancelled);
    let late = world.signal(job, &format!("ok-{job}"), json!(1)).await;
    assert!(matches!(late, Err(OpError::JobFinished { .. })));
    let done_job = world.submit("a", json!({})).await;
    world.until(done_job, &[JobStatus::Parked]).await;
    world.signal(done_job, &format!("ok-{done_job}"), json!(1)).await.unwrap();
    world.done(done_job).await;
    assert!(matches!(world.rt.cancel(done_job).await, Err(OpError::JobFinished { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_run_after_a_kept_signal_keeps_its_lease() {
    let world = World::new();
    world.put(&approval("")).await;
    let (first, reached, release) = hold(done(json!(1)));
    let (second, reached_again, release_again) = hold(done(json!(2)));
    world.tools.next("t", [first, second]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    world.signal(job, &format!("ok-{job}"), json!("early")).await.unwrap();
    release.notify_one();
    reached_again.notified().await;
    // Longer than a lease: only its renewal keeps the job here.
    tokio::time::sleep(std::time::Duration::from_secs(100)).await;
    release_again.notify_one();
    let state = world.done(job).await;
    assert_eq!((state.status, state.fence.epoch, state.reclaims), (JobStatus::Completed, 2, 0));
}

/// Found by simulation (seed 21987): the same signal was 202 first and 400 later.
#[tokio::test(start_paused = true)]
async fn a_signal_kept_for_a_wait_that_was_skipped_is_answered_the_same_for_ever() {
    let world = World::new();
    let file = "agent: a\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n\
        \x20   - { id: w, kind: wait, wait_type: signal, correlation_key: first }\n\
        \x20   - { id: s, kind: wait, needs: [w], when: \"message == 'nobody'\", wait_type: signal, correlation_key: second }\n\
        \x20   - { id: z, kind: wait, needs: [w], wait_type: signal, correlation_key: third }\n";
    world.put(file).await;
    let _process = world.start("w");
    let job = world.submit("a", json!("hello")).await;
    world.until(job, &[JobStatus::Waiting]).await;
    let kept = |payload_matches| SignalAnswer::Kept { payload_matches };
    assert_eq!(world.signal(job, "second", json!(1)).await.unwrap(), kept(true));
    world.signal(job, "first", json!(1)).await.unwrap();
    loop {
        let state = world.until(job, &[JobStatus::Waiting]).await;
        if state.step_status(&"s".into()) == StepStatus::Skipped {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(world.signal(job, "second", json!(1)).await.unwrap(), kept(true));
    assert_eq!(world.signal(job, "second", json!(2)).await.unwrap(), kept(false));
}

/// Whoever lists the timers that are due may read a clock that is set back before they write.
#[tokio::test(start_paused = true)]
async fn a_timer_is_fired_at_its_moment_by_the_stores_clock_whatever_was_listed() {
    let world = World::new();
    world.put(&approval(", deadline: 1h, on_deadline: { continue_with: \"late\" }")).await;
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let parked = world.until(job, &[JobStatus::Parked]).await;
    let row = world.rt.store.timers(Scope::System, job).await.unwrap().remove(0);
    let earlier = TimerRow { due: Timestamp::from_micros(row.due.micros() - 3_600_000_000), ..row.clone() };
    for row in [&row, &earlier] {
        assert!(!world.rt.fire(row).await.unwrap(), "{row:?}");
    }
    assert_eq!(world.state(job).await.seq, parked.seq);
    world.done(job).await;
    assert_eq!(world.result(job).await, json!("late"));
    assert!(!world.rt.fire(&row).await.unwrap(), "it was fired");
    process.kill();
}

/// Whoever looks by himself may look seldom: what a process does, its own parts hear at once.
#[tokio::test(start_paused = true)]
async fn what_a_process_writes_is_heard_by_its_own_sweep_and_its_own_runs() {
    let seldom =
        SweepOptions { leases: Span::from_secs(3_600), outbox: Span::from_secs(3_600), timers: Span::from_secs(3_600) };
    let head = "agent: a\nversion: \"1\"\nplanner: static\n";
    let nap = format!("{head}plan:\n  nodes:\n    - {{ id: n, kind: sleep, duration: 5s }}\n");
    let look = format!(
        "deadline: 5s\n{head}tools:\n  look: {{ kind: function, function: f, effect: pure, timeout: 60s }}\n\
         plan:\n  nodes:\n    - {{ id: n, kind: tool, tool: look }}\n"
    );
    let within = |secs| Some(Span::from_secs(secs));
    for (file, deadline, cancels, status, secs) in [
        (nap, None, false, JobStatus::Completed, 5),
        (look.clone(), None, false, JobStatus::Failed, 5),
        // What a message asks for comes before what its agent says.
        (look.clone(), within(2), false, JobStatus::Failed, 2),
        (look.clone(), within(8), false, JobStatus::Failed, 8),
        // Sooner than the next heartbeat.
        (look, None, true, JobStatus::Cancelled, 0),
    ] {
        let world = World::new();
        world.put(&file).await;
        let (act, reached, _release) = hold(done(json!(1)));
        world.tools.next("look", [act]);
        let process = world.start_looking("w", FaultPlan::none(), seldom);
        // Its sweep has looked once, and found nothing.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let submission = aetheris_runtime::ops::Submission { deadline, ..Default::default() };
        let job = process.rt.submit(&"a".into(), submission).await.unwrap().job;
        if cancels {
            reached.notified().await;
            // The run would hear of it with that write too.
            world.start_shown(job, "n").await;
            assert_eq!(process.rt.cancel(job).await.unwrap(), Cancelled::Requested);
        }
        let state = world.done(job).await;
        let took = state.last_at.since(state.created_at);
        assert_eq!(state.status, status);
        assert!(took >= Span::from_secs(secs) && took < Span::from_secs(secs + 1), "{took} and not {secs} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_correlation_key_has_one_to_512_characters_and_names_one_wait() {
    let world = World::new();
    let wait = |node: &str, needs: &str| {
        format!(
            "    - {{ id: {node}, kind: wait, wait_type: human, deadline: 1s, on_deadline: {{ continue_with: 1 }}, correlation_key: \"{{{{ message }}}}\"{needs} }}\n"
        )
    };
    let nodes = wait("v", "") + &wait("w", ", needs: [v]");
    world.put(&format!("agent: a\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n{nodes}")).await;
    let _process = world.start("w");
    let long = limits::CORRELATION_KEY_CHARS_MAX;
    for (key, node, code) in [
        (String::new(), "v", "bad_correlation_key"),
        ("é".repeat(long + 1), "v", "bad_correlation_key"),
        ("é".repeat(long), "w", "correlation_key_used"),
        ("k".to_owned(), "w", "correlation_key_used"),
    ] {
        let job = world.submit("a", json!(key)).await;
        let Some(Ending::Failed { error, node: at }) = world.done(job).await.ending else { panic!("{key}") };
        assert_eq!((error.code.as_str(), at), (code, Some(node.into())), "{key}");
    }
}

/// It may have been meant for another wait, whose key is not known yet: it stays, and holds nothing up.
#[tokio::test(start_paused = true)]
async fn a_kept_signal_of_another_type_lets_its_wait_block_and_stays() {
    let world = World::new();
    let wait = |node: &str, of: &str, key: &str| {
        format!("    - {{ id: {node}, kind: wait, wait_type: {of}, needs: [first], correlation_key: \"{key}\" }}\n")
    };
    let nodes = wait("w", "human", "{{ nodes.first.output }}") + &wait("v", "webhook", "{{ nodes.first.output }}-2");
    world
        .put(&format!("agent: a\nversion: \"1\"\nplanner: static\ntools:\n  t: {{ kind: function, function: f }}\nplan:\n  nodes:\n    - {{ id: first, kind: tool, tool: t }}\n{nodes}"))
        .await;
    let (act, reached, release) = hold(done(json!("k")));
    world.tools.next("t", [act]);
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    let signal = |wait_type| Signal { correlation_key: "k".to_owned(), payload: Json::new(json!("yes")), wait_type };
    let kept = SignalAnswer::Kept { payload_matches: true };
    assert_eq!(world.rt.signal(job, signal(Some(WaitType::Webhook))).await.unwrap(), kept);
    assert_eq!(world.rt.signal(job, signal(Some(WaitType::Webhook))).await.unwrap(), kept);
    assert_eq!(world.rt.store.kept(Scope::System, job).await.unwrap().len(), 1, "it is the same again");
    release.notify_one();
    let state = world.until(job, &[JobStatus::Waiting, JobStatus::Parked]).await;
    assert_eq!(
        (
            state.blocks.oldest().unwrap().node.to_string().as_str(),
            world.rt.store.kept(Scope::System, job).await.unwrap().len()
        ),
        ("w", 1)
    );
    assert_eq!(world.rt.signal(job, signal(Some(WaitType::Human))).await.unwrap(), SignalAnswer::Delivered);
    // Another claim makes it another signal, also where the payload is the same.
    process.kill();
    let (job, other) = (world.submit("a", json!({})).await, signal(None));
    assert_eq!(world.rt.signal(job, signal(Some(WaitType::Webhook))).await.unwrap(), kept);
    assert_eq!(world.rt.signal(job, other.clone()).await.unwrap(), kept);
    let claims: Vec<_> = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().kept;
    assert_eq!(claims.iter().map(|kept| kept.wait_type).collect::<Vec<_>>(), [Some(WaitType::Webhook), None]);
    // The end of the job is the answer to all that comes later, kept before or not.
    world.rt.cancel(job).await.unwrap();
    let late = world.rt.signal(job, other).await;
    assert!(matches!(late, Err(OpError::JobFinished { .. })), "{late:?}");
}

/// However much is due, a process that is to stop fires what it has listed and no more.
#[tokio::test(start_paused = true)]
async fn a_sweep_that_is_to_stop_ends_with_its_page() {
    let world = World::new();
    world.put("agent: s\nversion: \"1\"\nplan:\n  nodes:\n    - { id: n, kind: sleep, duration: 5s }\n").await;
    let first = world.start("first");
    let mut jobs = Vec::new();
    for n in 0..2 * limits::SWEEP_ROWS_MAX + 1 {
        jobs.push(world.submit("s", json!(n)).await);
    }
    for job in &jobs {
        world.until(*job, &[JobStatus::Waiting]).await;
    }
    first.kill();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let slow = std::iter::repeat_n(Some(Fault::Delay(Span::from_secs(1))), jobs.len());
    let second = world.start_behind("second", FaultPlan::none().script(Op::Commit(Purpose::Timer), slow));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    second.sweeps.cancel();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let mut waiting = 0;
    for job in jobs {
        waiting += usize::from(world.state(job).await.status == JobStatus::Waiting);
    }
    assert_eq!(waiting, limits::SWEEP_ROWS_MAX + 1);
}
