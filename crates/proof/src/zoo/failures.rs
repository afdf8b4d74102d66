//! Scenarios in which something does not answer, does not answer well, or comes too late.

use aetheris_runtime::run::{self, RunEnd};
use aetheris_store::Purpose;
use aetheris_store::Scope;
use aetheris_store::faulty::{Fault, FaultPlan, Op};
use anyhow::Result;

use super::runs::{WAIT, once, one_call};
use super::world::World;

/// What the life of a job with one call and one wait writes.
const WRITES: [Purpose; 7] = [
    Purpose::Create,
    Purpose::Permit,
    Purpose::Record,
    Purpose::Block,
    Purpose::Signal,
    Purpose::Timer,
    Purpose::Finish,
];

/// A call, a wait, another call.
const LIFE: &str = "agent: zoo\ntools:\n  t: { kind: function, function: act, effect: at_most_once }\n\
                    plan:\n  nodes:\n    - { id: one, kind: tool, tool: t, input: {} }\n    \
                    - { id: ask, kind: wait, wait_type: signal, correlation_key: \"k\", needs: [one] }\n    \
                    - { id: nap, kind: sleep, duration: 2s, needs: [ask] }\n    \
                    - { id: two, kind: tool, tool: t, input: {}, needs: [nap] }\n";

/// Lives a life in which the next of these writes meet a fault, once each.
async fn live(world: &World, writes: &[Purpose], fault: Fault) -> Result<()> {
    world.fail_next(writes, fault);
    let job = world.send(LIFE).await?;
    world.settle().await?;
    world.signal(job, "k").await;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// Every kind of write of a life is made once with its answer lost.
pub(super) async fn lost_replies(world: &World) -> Result<()> {
    live(world, &WRITES, Fault::After).await
}

/// Every kind of write of a life is lost once with its answer.
pub(super) async fn lost_writes(world: &World) -> Result<()> {
    live(world, &WRITES, Fault::Lost).await
}

/// Permissions, results and waits fail once, and say so.
pub(super) async fn failed_writes(world: &World) -> Result<()> {
    live(world, &[Purpose::Permit, Purpose::Record, Purpose::Block], Fault::Before).await
}

/// The agent is replaced while a job of its first version waits to run.
pub(super) async fn changed_agent(world: &World) -> Result<()> {
    let job = world.send("agent: zoo\nplan:\n  nodes:\n    - { id: one, kind: transform, output: 1 }\n").await?;
    world.put(&once("act")).await?;
    world.settle().await?;
    world.expect(world.tools.lines().is_empty(), "D8 a step ran that is not in the job's plan");
    world.expect_end(job, "completed", "").await
}

/// The other side refuses every try; between two of them the job is given back.
pub(super) async fn always_busy(world: &World) -> Result<()> {
    let file = "agent: zoo\nretry: { max_attempts: 3, backoff: 600ms, factor: 1, jitter: none }\ntools:\n  \
                t: { kind: function, function: busy, effect: at_most_once }\nplan:\n  nodes:\n    \
                - { id: call, kind: tool, tool: t, input: {} }\n";
    let job = world.send(file).await?;
    world.settle().await?;
    world.expect(world.tools.lines().len() == 3, "H3 not exactly the tries that the policy allows");
    world.expect_end(job, "failed", "busy").await
}

/// The answer is lost, and whoever is asked about it cannot say.
pub(super) async fn reconcile_fails(world: &World) -> Result<()> {
    let file = one_call("lost", "at_most_once", ", on_in_doubt: [{ reconcile: look, settle: 1ms }, fail]");
    let job = world.send(&file.replace("function: look", "function: broken")).await?;
    world.settle().await?;
    world.expect_end(job, "failed", "in_doubt_unresolved").await
}

/// Two waits, and the signal of the second comes first.
pub(super) async fn crossed_signals(world: &World) -> Result<()> {
    let file = "agent: zoo\nplan:\n  nodes:\n    \
                - { id: one, kind: wait, wait_type: signal, correlation_key: \"a\" }\n    \
                - { id: two, kind: wait, wait_type: signal, correlation_key: \"b\", needs: [one] }\n";
    let job = world.send(file).await?;
    world.signal(job, "b").await;
    world.settle().await?;
    let waits_on = world.row(job).await?.waiting.map(|waiting| waiting.node.to_string());
    world.expect(waits_on.as_deref() == Some("one"), "E5 a signal ended a wait that it does not name");
    world.signal(job, "a").await;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// A job waits, and is then told what it waits for.
pub(super) async fn plain_wait(world: &World) -> Result<()> {
    let job = world.send(WAIT).await?;
    world.settle().await?;
    world.expect(world.row(job).await?.holder.is_none(), "E7 a job that waits is held");
    world.signal(job, "k").await;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// The second write of a firing fails, where there is one.
pub(super) async fn failed_firing(world: &World) -> Result<()> {
    let job = world.send("agent: zoo\nplan:\n  nodes:\n    - { id: nap, kind: sleep, duration: 2s }\n").await?;
    world.faults.replan(FaultPlan::none().script(Op::Commit(Purpose::Timer), [None, Some(Fault::Before)]));
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// The job's deadline passes while it waits.
pub(super) async fn deadline(world: &World) -> Result<()> {
    let job = world.send(&WAIT.replace("plan:", "deadline: 3s\nplan:")).await?;
    world.settle().await?;
    world.expect_end(job, "failed", "deadline_exceeded").await
}

/// The wait's own deadline passes.
pub(super) async fn wait_deadline(world: &World) -> Result<()> {
    let file = WAIT.replace("\"k\" }", "\"k\", deadline: 2s, on_deadline: { continue_with: 1 } }");
    let job = world.send(&file).await?;
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// The job kills every worker that takes it.
pub(super) async fn poison(world: &World) -> Result<()> {
    let job = world.send(&one_call("held", "idempotent", "")).await?;
    for _ in 0..4 {
        if world.row(job).await?.status.is_terminal() {
            break;
        }
        let fence = world.crash_in_body().await?;
        world.expire(job, fence).await?;
    }
    world.expect_end(job, "failed", "attempts_exhausted").await
}

/// The call of the first permission answers after a second one was given, and while its call is under way.
pub(super) async fn older_answer(world: &World) -> Result<()> {
    // The first call is still in flight in this process: only a tool that refuses it from now on is believed.
    let file = one_call("stale", "at_most_once", ", on_in_doubt: [{ reconcile: look }, fail]");
    let job = world.send(&file.replace("effect: pure", "effect: pure, refuses: true")).await?;
    let claimed = world.must_claim().await?;
    let (fence, lease) = (claimed.fence, World::lease(&claimed));
    let slow = async {
        let end = Box::pin(run::run_job(&world.rt, claimed, &lease)).await;
        // The second call goes on when the first one's answer has found its place.
        world.tools.gate.add_permits(1);
        end
    };
    let others = async {
        world.tools.begun.acquire().await?.forget();
        world.expire(job, fence).await?;
        lease.lost.cancel();
        // The first permission can no longer arrive: the tool that is asked says so, and a second one is given.
        let second = world.must_claim().await?;
        let release = async {
            world.tools.begun.acquire().await?.forget();
            world.tools.gate.add_permits(1);
            anyhow::Ok(())
        };
        let (_, released) = tokio::join!(world.run(second), release);
        released
    };
    if let Some((_, other)) = world.within(Box::pin(async { tokio::join!(slow, others) })).await {
        other?;
    }
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// The worker is told to stop before the job has begun.
pub(super) async fn drained(world: &World) -> Result<()> {
    let job = world.send(&once("act")).await?;
    let claimed = world.must_claim().await?;
    let lease = World::lease(&claimed);
    lease.drain.cancel();
    let end = world.within(Box::pin(run::run_job(&world.rt, claimed, &lease))).await;
    world.expect(matches!(end, Some(Ok(RunEnd::Requeued))), "D7 a job was not given back by a worker that stops");
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}

/// The tool acts, its answer is lost, and the policy allows one try.
pub(super) async fn lost_only_answer(world: &World) -> Result<()> {
    let job = world.send(&once("lost").replace("max_attempts: 3, backoff: 1ms", "max_attempts: 1")).await?;
    world.settle().await?;
    let doubts = world.rt.store.events(Scope::System, job, 0, 1_000).await?;
    let told = doubts.iter().any(|event| event.kind == aetheris_core::event::EventKind::StepInDoubt.code());
    world.expect(told, "C5 the outcome of a call is unknown, and nothing says so");
    world.expect_end(job, "failed", "in_doubt_unresolved").await
}
