//! Modes three and four of the crash matrix: the answer to a write is lost, and the write was made, was not
//! made, or is made later. One cell per purpose of a commit, or the claim, per fault, and per first or second time,
//! on both stores; heartbeats and puts of agents have none. As after a crash, every job must end as if nothing had
//! happened, and every invariant hold.

use std::fmt;
use std::future::Future;

use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::time::Span;
use aetheris_runtime::OpError;
use aetheris_runtime::ops::{Proof, Resolution, Signal, Submission as Message, Then};
use aetheris_store::Purpose;
use aetheris_store::Scope;
use aetheris_store::faulty::{Fault, FaultKind, FaultPlan, Op};
use anyhow::{Result, ensure};

use super::runs::{WAIT, answered_late, one_call};
use super::world::{Backend, TTL, World};

/// How often a client asks again.
const PATIENCE: u32 = 8;
/// How late a late write lands.
const LATE: Span = Span::from_millis(15);

/// What a write meets, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyCell {
    /// Where.
    pub backend: Backend,
    /// What.
    pub fault: Fault,
    /// At which time that it is made.
    pub hit: usize,
    /// Which write.
    pub op: Op,
}

impl fmt::Display for ReplyCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            Op::Commit(purpose) => purpose.as_str(),
            Op::Claim => "claim",
            Op::Agent | Op::Heartbeat | Op::Read | Op::ResolveUnknown => "other",
        };
        write!(f, "{op} {:?} {} {:?}", self.fault.kind(), self.hit, self.backend)
    }
}

/// Every cell.
#[must_use]
pub fn all() -> Vec<ReplyCell> {
    let ops = || Purpose::ALL.into_iter().map(Op::Commit).chain([Op::Claim]);
    let faults = [Fault::After, Fault::Lost, Fault::Late(LATE), Fault::Before];
    let mut cells = Vec::new();
    for backend in [Backend::Memory, Backend::Sqlite] {
        for op in ops() {
            for fault in faults {
                cells.extend([1, 2].map(|hit| ReplyCell { backend, fault, hit, op }));
            }
        }
    }
    cells
}

/// Runs one cell.
///
/// # Errors
/// Something did not end as it had to, an invariant does not hold, or the write was not made often enough to meet the
/// fault.
pub async fn run(cell: ReplyCell) -> Result<()> {
    let world = World::on(cell.backend)?;
    let calm = vec![None; cell.hit - 1];
    world.faults.replan(FaultPlan::none().script(cell.op, calm.into_iter().chain([Some(cell.fault)])));
    story(&world, cell.op).await?;
    let verdict = world.verdict().await?;
    ensure!(verdict.caught_by.is_empty(), "{cell}: {}", verdict.caught_by.join(", "));
    ensure!(world.faults.happened(cell.fault.kind()) > 0, "{cell}: the write was not made so often");
    Ok(())
}

/// The story in which the write is made.
async fn story(world: &World, op: Op) -> Result<()> {
    match op {
        Op::Commit(Purpose::Requeue) => refused_once(world).await,
        Op::Commit(Purpose::Doubt) => asked(world).await,
        Op::Commit(Purpose::Cancel) => cancelled(world).await,
        Op::Commit(Purpose::Pause) => paused(world).await,
        Op::Commit(Purpose::Reclaim) => taken_back(world).await,
        Op::Commit(Purpose::Deposit) => deposited(world).await,
        Op::Commit(Purpose::Resolve) => answered(world).await,
        Op::Commit(Purpose::Deliver) => of_children(world).await,
        Op::Commit(
            Purpose::Create
            | Purpose::Permit
            | Purpose::Record
            | Purpose::Finish
            | Purpose::Block
            | Purpose::Signal
            | Purpose::Timer,
        )
        | Op::Agent
        | Op::Claim
        | Op::Heartbeat
        | Op::Read
        | Op::ResolveUnknown => life(world).await,
    }
}

/// Asks until there is an answer, as a client does.
async fn insist<T, F: Future<Output = Result<T, OpError>>>(mut ask: impl FnMut() -> F) -> Result<T> {
    let mut tries = 0;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if tries >= PATIENCE => return Err(error.into()),
            Err(_) => tries += 1,
        }
    }
}

async fn submit(world: &World, message: Message) -> Result<aetheris_runtime::ops::Submitted, OpError> {
    world.rt.submit(&"zoo".into(), message).await
}

async fn send(world: &World, file: &str, key: &str) -> Result<JobId> {
    world.put(file).await?;
    let message = Message { client_key: Some(key.to_owned()), message: Some(Json::null()), ..Message::default() };
    let job = insist(|| submit(world, message.clone())).await?.job;
    let client_key = message.client_key;
    world.told(|history| history.submissions.push(aetheris_check::Submission { client_key, job }));
    Ok(job)
}

/// Runs what can be run, lets time pass, takes back what is lost.
async fn settle(world: &World) -> Result<()> {
    for _ in 0..14 {
        while let Ok(Some(claimed)) = world.claim().await {
            if world.run(claimed).await.is_none() {
                return Ok(());
            }
        }
        if world.faults.happened(FaultKind::Late) > 0 {
            // A claim that is made late lands before its lease is looked at.
            tokio::time::sleep(LATE.to_std()).await;
        }
        world.clock.advance(Span::from_secs(10));
        aetheris_scheduler::sweep_expired(&world.rt).await?;
        aetheris_scheduler::fire_due(&world.rt).await?;
        aetheris_scheduler::deliver_all(&world.rt).await?;
    }
    world.told(|history| history.quiet = true);
    Ok(())
}

/// Two jobs, so that every kind of write is made twice.
const LIFE: &str = "agent: zoo\ntools:\n  t: { kind: function, function: act, effect: at_most_once }\n  \
                    r: { kind: function, function: look, effect: pure }\n\
                    plan:\n  nodes:\n    - { id: one, kind: tool, tool: t, input: {} }\n    \
                    - { id: read, kind: tool, tool: r, input: {}, needs: [one] }\n    \
                    - { id: ask, kind: wait, wait_type: signal, correlation_key: \"k\", needs: [read] }\n    \
                    - { id: nap, kind: sleep, duration: 2s, needs: [ask] }\n    \
                    - { id: two, kind: tool, tool: t, input: {}, needs: [nap] }\n    \
                    - { id: three, kind: tool, tool: t, input: {}, needs: [two] }\n";

async fn life(world: &World) -> Result<()> {
    let jobs = [send(world, LIFE, "a").await?, send(world, LIFE, "b").await?];
    settle(world).await?;
    for job in jobs {
        let payload = Json::new(serde_json::json!({"yes": true}));
        let signal = Signal { correlation_key: "k".to_owned(), payload, wait_type: None };
        insist(|| world.rt.signal(job, signal.clone())).await?;
    }
    settle(world).await?;
    for job in jobs {
        world.expect_end(job, "completed", "").await?;
    }
    Ok(())
}

/// Each job is told of the end of its child.
async fn of_children(world: &World) -> Result<()> {
    world.put(&one_call("act", "at_most_once", "").replace("agent: zoo", "agent: child")).await?;
    let file = "agent: zoo\nplan:\n  nodes:\n    - { id: one, kind: job, agent: child, message: {} }\n";
    let jobs = [send(world, file, "a").await?, send(world, file, "b").await?];
    settle(world).await?;
    for job in jobs {
        world.expect_end(job, "completed", "").await?;
    }
    Ok(())
}

async fn refused_once(world: &World) -> Result<()> {
    let file = "agent: zoo\nretry: { max_attempts: 3, backoff: 600ms, factor: 1, jitter: none }\ntools:\n  \
                t: { kind: function, function: refuse, effect: at_most_once }\nplan:\n  nodes:\n    \
                - { id: one, kind: tool, tool: t, input: {} }\n    \
                - { id: two, kind: tool, tool: t, input: {}, needs: [one] }\n";
    let job = send(world, file, "a").await?;
    settle(world).await?;
    world.expect_end(job, "completed", "").await
}

async fn asked(world: &World) -> Result<()> {
    let file = one_call("lost", "at_most_once", ", on_in_doubt: [{ reconcile: look, settle: 1ms }, fail]");
    let jobs = [send(world, &file, "a").await?, send(world, &file, "b").await?];
    settle(world).await?;
    for job in jobs {
        world.expect_end(job, "completed", "").await?;
    }
    Ok(())
}

async fn cancelled(world: &World) -> Result<()> {
    let jobs = [send(world, WAIT, "a").await?, send(world, WAIT, "b").await?];
    settle(world).await?;
    for job in jobs {
        insist(|| world.rt.cancel(job)).await?;
        world.told(|history| history.cancels.extend([job]));
    }
    settle(world).await?;
    for job in jobs {
        world.expect_end(job, "cancelled", "").await?;
    }
    Ok(())
}

/// A signal comes while the job is paused: it goes on when it is resumed, and not before.
async fn paused(world: &World) -> Result<()> {
    let jobs = [send(world, WAIT, "a").await?, send(world, WAIT, "b").await?];
    settle(world).await?;
    for job in jobs {
        insist(|| world.rt.pause(job)).await?;
        let signal = Signal { correlation_key: "k".to_owned(), payload: Json::null(), wait_type: None };
        insist(|| world.rt.signal(job, signal.clone())).await?;
    }
    settle(world).await?;
    for job in jobs {
        let row = world.rt.store.job(Scope::System, job).await?;
        ensure!(row.is_some_and(|row| row.status == JobStatus::Paused), "{job} did not stay paused");
        insist(|| world.rt.resume(job)).await?;
    }
    settle(world).await?;
    for job in jobs {
        world.expect_end(job, "completed", "").await?;
    }
    Ok(())
}

async fn taken_back(world: &World) -> Result<()> {
    let job = send(world, &one_call("held", "idempotent", ""), "a").await?;
    for _ in 0..2 {
        let fence = world.crash_in_body().await?;
        world.clock.advance(TTL);
        insist(|| world.rt.reclaim(job, fence, Proof::Expired)).await?;
    }
    world.tools.gate.add_permits(8);
    settle(world).await?;
    world.expect_end(job, "completed", "").await
}

/// The answer comes after the lease was lost.
async fn deposited(world: &World) -> Result<()> {
    let file = one_call("held", "at_most_once", ", on_in_doubt: [{ wait: 500s }, fail]");
    let mut jobs = Vec::new();
    for key in ["a", "b"] {
        let job = send(world, &file, key).await?;
        answered_late(world, job).await?;
        settle(world).await?;
        jobs.push(job);
    }
    for job in jobs {
        world.expect_end(job, "completed", "").await?;
    }
    Ok(())
}

async fn answered(world: &World) -> Result<()> {
    let file = one_call("lost", "at_most_once", ", on_in_doubt: human");
    let jobs = [send(world, &file, "a").await?, send(world, &file, "b").await?];
    settle(world).await?;
    let doubts = world.rt.store.in_doubt(10).await?;
    for row in doubts {
        let happened = Some(Json::new(serde_json::json!({"by": "operator"})));
        let note = "seen".to_owned();
        let answer = Resolution { happened, note, permit: row.permit, refused: false, then: Then::Retry };
        let ask = || async {
            match world.rt.resolve(row.job, row.key, answer.clone()).await {
                // An answer of ours that was lost has settled it.
                Err(OpError::StateConflict(_)) => Ok(()),
                other => other.map(drop),
            }
        };
        insist(ask).await?;
    }
    settle(world).await?;
    for job in jobs {
        world.expect_end(job, "completed", "").await?;
    }
    Ok(())
}
