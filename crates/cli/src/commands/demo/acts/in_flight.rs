//! The runtime is killed after the service has booked and before it has answered.

use super::super::finding::{Expected, Finding};
use super::super::refund::Refund;
use super::super::stage::Stage;
use super::{Act, REFUND};
use crate::commands::process_control::Fault;
use crate::render::Tone;

pub(super) async fn play(stage: &Stage<'_>) -> Result<Finding, Fault> {
    let mut payments = stage.payments().await?;
    payments.hold(true).await?;
    let agent = stage.agent(REFUND, &payments)?;
    let server = stage.dev("dev 1", &agent).await?;
    stage.story.tell("aetheris", &format!("dev, pid {}, on an empty data folder", server.process.id()));
    let mut refund = Refund::send(stage, &server).await?;
    let connection = refund.approve(&mut payments, &server.process).await?;

    let pid = server.process.id();
    server.process.kill();
    stage.story.turn(Tone::Bad, "kill -9", &format!("{pid}: the money has moved, and nobody at our side knows"));
    let closed = payments.closed(connection).await?;
    if closed.answered {
        return Err(Fault::Setup("the call was answered before the kill".to_owned()));
    }
    payments.hold(false).await?;

    let server = stage.dev("dev 2", &agent).await?;
    stage.story.tell("aetheris", &format!("dev again on the same folder, pid {}", server.process.id()));
    refund.at(&server);
    refund.until(&server.process, "the job completes", |event| event.kind == "job_completed").await?;
    let expected = Expected { evidence: 0, requeued: "holder_died" };
    Finding::of(Act::InFlight, &refund.witness(&payments), &expected).await
}
