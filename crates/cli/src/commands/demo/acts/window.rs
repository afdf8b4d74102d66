//! The runtime is killed when it has the service's answer and before that is committed.
//!
//! The window is held open from outside: as the service has booked, the demonstration takes the write lock
//! of the runtime's database. The service answers; the runtime reads the answer and closes its connection,
//! which the service sees; its commit has to wait for the lock. The kill comes then. Nothing in the
//! runtime knows of this.

use aetheris_api::EventPage;

use super::super::finding::{Expected, Finding};
use super::super::refund::{Refund, of_refund};
use super::super::stage::Stage;
use super::{Act, REFUND};
use crate::commands::process_control::Fault;
use crate::commands::process_control::WriteLock;
use crate::render::Tone;

pub(super) async fn play(stage: &Stage<'_>) -> Result<Finding, Fault> {
    let mut payments = stage.payments().await?;
    payments.hold(true).await?;
    let agent = stage.agent(REFUND, &payments)?;
    let server = stage.dev("dev 1", &agent).await?;
    stage.story.tell("aetheris", &format!("dev, pid {}, on an empty data folder", server.process.id()));
    let mut refund = Refund::send(stage, &server).await?;
    let connection = refund.approve(&mut payments, &server.process).await?;

    let lock = WriteLock::take(&stage.database())?;
    stage.story.tell("demo", "takes the database's write lock: from here on nothing can be committed");
    payments.hold(false).await?;
    let closed = payments.closed(connection).await.map_err(|fault| fault.beside(&server.process))?;
    if !(closed.answered && closed.by_client) {
        return Err(server.process.fault("the runtime reads the answer and closes its connection"));
    }
    stage.story.turn(Tone::Active, "payments", "answers; the runtime has read it and closed the connection");
    let last = last_event(&refund, &server.client).await?;
    stage.story.tell("store", &format!("its last word on the job is still `{last}`: the answer is in memory only"));

    let pid = server.process.id();
    server.process.kill();
    stage.story.turn(Tone::Bad, "kill -9", &format!("{pid}: the answer dies with the process"));
    lock.release()?;
    stage.story.tell("demo", "gives the lock back");

    let server = stage.dev("dev 2", &agent).await?;
    stage.story.tell("aetheris", &format!("dev again on the same folder, pid {}", server.process.id()));
    refund.at(&server);
    refund.until(&server.process, "the job completes", |event| event.kind == "job_completed").await?;
    let expected = Expected { evidence: 0, requeued: "holder_died" };
    Finding::of(Act::Window, &refund.witness(&payments), &expected).await
}

/// What the store says last, which must be that the call was permitted.
async fn last_event(refund: &Refund<'_>, client: &crate::client::Client) -> Result<String, Fault> {
    let page = client.get::<EventPage>(&["api", "jobs", &refund.job, "events"], &[]).await;
    let events = page.map_err(|error| Fault::api("the job's events", error))?.body.events;
    match events.last() {
        Some(event) if of_refund(event, "tool_invocation_started") => Ok(event.kind.clone()),
        Some(event) => Err(Fault::Setup(format!("`{}` was committed in spite of the lock", event.kind))),
        None => Err(Fault::Setup("the job has no events".to_owned())),
    }
}
