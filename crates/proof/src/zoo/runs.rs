//! Scenarios that a runtime runs.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::ops::{Proof, Reclaimed};
use aetheris_runtime::run;
use aetheris_store::Purpose;
use aetheris_store::Scope;
use aetheris_store::faulty::Fault;
use aetheris_store::system::{Clock, ManualClock, System};
use anyhow::Result;

use super::world::World;

/// One call of one function in one class.
pub(super) fn one_call(function: &str, effect: &str, doubt: &str) -> String {
    format!(
        "agent: zoo\nretry: {{ max_attempts: 3, backoff: 1ms }}\nstep_timeout: 2s\ntools:\n  t: {{ kind: function, \
         function: {function}, effect: {effect}{doubt} }}\n  look: {{ kind: function, function: look, effect: pure }}\n\
         plan:\n  nodes:\n    - {{ id: call, kind: tool, tool: t, input: {{ n: 1 }} }}\n"
    )
}

pub(super) fn once(function: &str) -> String {
    one_call(function, "at_most_once", ", on_in_doubt: fail")
}

pub(super) const WAIT: &str = "agent: zoo\nplan:\n  nodes:\n    - { id: ask, kind: wait, wait_type: signal, \
                    correlation_key: \"k\" }\n";

/// A held call, then a wait.
const CALL_THEN_WAIT: &str = "agent: zoo\ntools:\n  t: { kind: function, function: held, effect: at_most_once }\n\
                              plan:\n  nodes:\n    - { id: call, kind: tool, tool: t, input: {} }\n    \
                              - { id: ask, kind: wait, wait_type: signal, correlation_key: \"k\", needs: [call] }\n";

pub(super) async fn ledger(world: &World) -> Result<()> {
    let file = "agent: zoo\ntools:\n  t: { kind: function, function: act, effect: at_most_once }\n  \
                u: { kind: function, function: refuse, effect: idempotent }\nplan:\n  nodes:\n    \
                - { id: one, kind: tool, tool: t, input: {} }\n    \
                - { id: two, kind: tool, tool: u, input: {}, needs: [one] }\n";
    let job = world.send(file).await?;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

pub(super) async fn lost_answer(world: &World) -> Result<()> {
    let job = world.send(&once("lost")).await?;
    world.settle().await?;
    world.expect_end(job, "failed", "in_doubt_unresolved").await
}

pub(super) async fn crash_in_body(world: &World) -> Result<()> {
    let job = world.send(&once("held")).await?;
    let fence = world.crash_in_body().await?;
    world.expire(job, fence).await?;
    world.tools.gate.add_permits(8);
    world.settle().await?;
    world.expect_end(job, "failed", "in_doubt_unresolved").await
}

pub(super) async fn cancel_after_crash(world: &World) -> Result<()> {
    let job = world.send(&once("held")).await?;
    let fence = world.crash_in_body().await?;
    world.expire(job, fence).await?;
    world.rt.cancel(job).await?;
    world.told(|history| history.cancels.extend([job]));
    world.settle().await?;
    world.expect_end(job, "cancelled", "").await
}

/// A run that holds a body, and the same job in other hands before the body answers.
pub(super) async fn late_answer(world: &World) -> Result<()> {
    let job = world.send(&one_call("held", "at_most_once", ", on_in_doubt: [{ wait: 5s }, fail]")).await?;
    answered_late(world, job).await?;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// Runs the job that is claimed next, whose body is held and answers when the lease is over and another worker has
/// had the job.
pub(super) async fn answered_late(world: &World, job: JobId) -> Result<()> {
    let claimed = world.must_claim().await?;
    let (fence, lease) = (claimed.fence, World::lease(&claimed));
    let slow = Box::pin(run::run_job(&world.rt, claimed, &lease));
    let meanwhile = async {
        world.tools.begun.acquire().await?.forget();
        world.expire(job, fence).await?;
        lease.lost.cancel();
        if let Some(claimed) = world.claim().await? {
            world.run(claimed).await;
        }
        world.tools.gate.add_permits(1);
        anyhow::Ok(())
    };
    if let Some((_, other)) = world.within(Box::pin(async { tokio::join!(slow, meanwhile) })).await {
        other?;
    }
    Ok(())
}

/// The lease was renewed after the sweep had listed it.
pub(super) async fn live_reclaim(world: &World) -> Result<()> {
    let job = world.send(&once("held")).await?;
    let claimed = world.must_claim().await?;
    let (fence, lease) = (claimed.fence, World::lease(&claimed));
    let held = Box::pin(run::run_job(&world.rt, claimed, &lease));
    let sweep = async {
        world.tools.begun.acquire().await?.forget();
        let taken = world.rt.reclaim(job, fence, Proof::Expired).await?;
        world.expect(taken == Reclaimed::NotHeld, "A9 a live lease was taken");
        if let Some(claimed) = world.claim().await? {
            world.run(claimed).await;
        }
        world.tools.gate.add_permits(8);
        anyhow::Ok(())
    };
    if let Some((_, swept)) = world.within(Box::pin(async { tokio::join!(held, sweep) })).await {
        swept?;
    }
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

pub(super) async fn early_signal(world: &World) -> Result<()> {
    let job = world.send(WAIT).await?;
    world.signal(job, "k").await;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// The run has read its inbox; the signal comes then; the wait comes last.
pub(super) async fn raced_signal(world: &World) -> Result<()> {
    let job = world.send(CALL_THEN_WAIT).await?;
    let claimed = world.must_claim().await?;
    let run = world.run(claimed);
    let signal = async {
        world.tools.begun.acquire().await?.forget();
        world.signal(job, "k").await;
        world.tools.gate.add_permits(1);
        anyhow::Ok(())
    };
    let (_, signalled) = tokio::join!(run, signal);
    signalled?;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

pub(super) async fn two_signals(world: &World) -> Result<()> {
    for _ in 0..3 {
        let job = world.send(WAIT).await?;
        // What the round before has left pending, and then this one.
        while let Some(claimed) = world.claim().await? {
            world.run(claimed).await;
        }
        three_at_once(world, job).await;
    }
    world.settle().await
}

/// None of them has reached the job's wait yet: the first is kept, the others change nothing.
pub(super) async fn two_early_signals(world: &World) -> Result<()> {
    for _ in 0..3 {
        let job = world.send(WAIT).await?;
        three_at_once(world, job).await;
    }
    world.settle().await
}

/// Signals that have all looked at the job before the first of them is written: each write is on its way for so long.
async fn three_at_once(world: &World, job: JobId) {
    world.fail_next(&[Purpose::Signal; 3], Fault::Delay(Span::from_millis(100)));
    tokio::join!(world.signal(job, "k"), world.signal(job, "k"), world.signal(job, "k"));
}

pub(super) async fn early_timer(world: &World) -> Result<()> {
    let job = world.send("agent: zoo\nplan:\n  nodes:\n    - { id: nap, kind: sleep, duration: 5s }\n").await?;
    let claimed = world.must_claim().await?;
    world.run(claimed).await;
    for timer in world.rt.store.timers(Scope::System, job).await? {
        world.rt.fire(&timer).await?;
    }
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// Does something to a job while its tool is called, and lets the call end.
async fn while_called(world: &World, act: impl AsyncFnOnce(JobId) -> Result<()>) -> Result<JobId> {
    let job = world.send(&once("held")).await?;
    let claimed = world.must_claim().await?;
    let run = world.run(claimed);
    let act = async {
        world.tools.begun.acquire().await?.forget();
        act(job).await?;
        world.tools.gate.add_permits(1);
        anyhow::Ok(())
    };
    let (_, acted) = tokio::join!(run, act);
    acted?;
    world.settle().await?;
    Ok(job)
}

pub(super) async fn cancel(world: &World) -> Result<()> {
    let cancel = async |job| {
        world.rt.cancel(job).await?;
        world.told(|history| history.cancels.extend([job]));
        Ok(())
    };
    let job = while_called(world, cancel).await?;
    world.expect_end(job, "cancelled", "").await
}

pub(super) async fn pause(world: &World) -> Result<()> {
    let pause = async |job| {
        world.rt.pause(job).await?;
        world.told(|history| history.pauses.extend([job]));
        Ok(())
    };
    let job = while_called(world, pause).await?;
    let row = world.rt.store.job(Scope::System, job).await?;
    if row.is_some_and(|row| row.status == JobStatus::Paused) {
        world.rt.resume(job).await?;
        world.settle().await?;
    }
    world.expect_end(job, "completed", "").await
}

pub(super) async fn resend(world: &World) -> Result<()> {
    world.put(&once("act")).await?;
    for _ in 0..2 {
        world.message(&"zoo".into(), Some("same".to_owned())).await?;
    }
    world.settle().await
}

pub(super) async fn checkpoint(world: &World) -> Result<()> {
    let mut file = String::from("agent: zoo\nplan:\n  nodes:\n");
    for node in 0..300 {
        writeln!(file, "    - {{ id: n{node}, kind: transform, output: {node} }}")?;
    }
    let job = world.send(&file).await?;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// The answer is lost before anything left: the reconcile tool says so, and is believed only when the
/// permit's call can no longer arrive.
pub(super) async fn reconcile(world: &World) -> Result<()> {
    let doubt = ", on_in_doubt: [{ reconcile: look, settle: 1ms }, fail]";
    let job = world.send(&one_call("unsent", "at_most_once", doubt)).await?;
    let fence = world.crash_in_body().await?;
    world.rt.reclaim(job, fence, Proof::Dead(aetheris_core::id::InstanceId::from_u128(1))).await?;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// The boot clock leaps between the permission and the call.
struct Leaping {
    calls: AtomicU32,
    inner: ManualClock,
}

impl Clock for Leaping {
    fn boot_id(&self) -> aetheris_core::id::BootId {
        self.inner.boot_id()
    }

    fn boot(&self) -> Duration {
        let late = self.calls.fetch_add(1, Ordering::SeqCst) > 0;
        self.inner.boot() + if late { Duration::from_millis(1_900) } else { Duration::ZERO }
    }

    fn wall(&self) -> Timestamp {
        self.inner.wall()
    }
}

pub(super) async fn spent_lease(world: &World) -> Result<()> {
    world.send(&once("act")).await?;
    let claimed = world.must_claim().await?;
    let mut rt = world.rt.clone();
    let leaping = Leaping { calls: AtomicU32::new(0), inner: world.clock.clone() };
    rt.system = System { clock: Arc::new(leaping), ids: Arc::clone(&rt.system.ids) };
    // A lease that is safe for another second, and a clock that goes on by almost two.
    let (drain, abandon) = Default::default();
    let lease = run::Lease::new(claimed.fence, world.clock.boot() + Duration::from_secs(1), drain, abandon);
    world.within(Box::pin(run::run_job(&rt, claimed, &lease))).await;
    world.expect(world.tools.lines().is_empty(), "A7 a body began under a spent lease");
    Ok(())
}
