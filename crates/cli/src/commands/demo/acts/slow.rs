//! A worker is stopped for longer than its lease while its call is in flight; another one takes over; then
//! the first one goes on as if nothing had happened, and gets its answer.

use super::super::finding::{Expected, Finding};
use super::super::refund::{Refund, of_refund};
use super::super::stage::Stage;
use super::{Act, PATIENT};
use crate::commands::process_control::Fault;
use crate::commands::process_control::WriteLock;
use crate::render::Tone;

pub(super) async fn play(stage: &Stage<'_>) -> Result<Finding, Fault> {
    let mut payments = stage.payments().await?;
    payments.hold(true).await?;
    let server = stage.serve().await?;
    stage
        .story
        .tell("aetheris", &format!("serve, pid {}: API, timers and sweeps; it runs no steps", server.process.id()));
    stage.put_agent(PATIENT, &payments, &server).await?;
    let mut worker_a = stage.worker("worker-a").await?;
    let mut refund = Refund::send(stage, &server).await?;
    let connection = refund.approve(&mut payments, &worker_a).await?;

    // A process that is stopped while it writes stops everyone who shares its SQLite file, for as long as it
    // is stopped: with the write lock in our hands it is not in the middle of one.
    let lock = WriteLock::take(&stage.database())?;
    worker_a.pause().await?;
    lock.release()?;
    stage.story.turn(Tone::Bad, "SIGSTOP", &format!("worker-a, pid {}: not dead, only slow", worker_a.id()));
    let worker_b = stage.worker("worker-b").await?;
    stage.story.tell("demo", "waits for the lease of worker-a to end");
    refund.until(&worker_b, "the lease of worker-a ends", |event| event.kind == "job_requeued").await?;
    refund.until(&worker_b, "worker-b finds the call in doubt", |event| of_refund(event, "step_in_doubt")).await?;
    refund.until(&worker_b, "the job completes", |event| event.kind == "job_completed").await?;

    stage.story.turn(Tone::Bad, "SIGCONT", "worker-a goes on where it was, and believes that the job is its own");
    worker_a.resume()?;
    payments.hold(false).await?;
    let closed = payments.closed(connection).await.map_err(|fault| fault.beside(&worker_a))?;
    if !(closed.answered && closed.by_client) {
        return Err(worker_a.fault("worker-a reads the answer of its call"));
    }
    stage.story.turn(Tone::Active, "payments", "answers worker-a, at last");
    let what = "worker-a learns that it is too late and deposits its answer as evidence";
    let heard = worker_a.err_line(what, |line| {
        for words in ["the lease could not be renewed", "late outcome"] {
            if let Some(at) = line.find(words) {
                stage
                    .story
                    .tell("worker-a", &format!("logs: {}", line[at..].split(" job=").next().unwrap_or_default()));
            }
        }
        line.contains("late outcome").then_some(())
    });
    heard.await?;
    let expected = Expected { evidence: 1, requeued: "lease_expired" };
    Finding::of(Act::Slow, &refund.witness(&payments), &expected).await
}
