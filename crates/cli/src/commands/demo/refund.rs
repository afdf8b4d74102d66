//! The refund of an act: sent, approved, in flight, and followed to its end.

use std::path::PathBuf;

use aetheris_api::{EventView, MessageAnswer, MessageRequest, SignalRequest, SignalResult, WaitList};
use aetheris_core::json::Json;
use aetheris_core::plan::WaitType;
use serde_json::json;

use super::payments::Booking;
use super::stage::{Payments, Server, Stage};
use super::story::Story;
use crate::client::{Client, Follow};
use crate::commands::process_control::Fault;
use crate::commands::process_control::{Process, said, within};
use crate::render::Tone;

/// The order that is refunded.
pub(super) const ORDER: &str = "A-1001";

/// A refund's job, followed event by event.
pub(super) struct Refund<'s> {
    client: Client,
    follow: Follow,
    pub(super) job: String,
    seen: u64,
    story: &'s Story,
}

impl<'s> Refund<'s> {
    /// Sends the message.
    ///
    /// # Errors
    /// It is not accepted.
    pub(super) async fn send(stage: &Stage<'s>, server: &Server) -> Result<Self, Fault> {
        let request = MessageRequest::new(&Json::new(json!({ "order_id": ORDER })));
        let path = ["api", "agents", "refund", "message"];
        let key = [("idempotency-key", "the-only-refund-of-this-demonstration")];
        let sent = server.client.post::<MessageAnswer>(&path, &request, &key).await;
        let job = sent.map_err(|error| Fault::api("the message for `refund`", error))?.body.job_id.to_string();
        stage.story.tell("message", &format!("refund order {ORDER} is job {job}"));
        let follow = Follow::start(&server.client, &job, 0);
        Ok(Self { client: server.client.clone(), follow, job, seen: 0, story: stage.story })
    }

    /// Goes on following at a server that was started again.
    pub(super) fn at(&mut self, server: &Server) {
        self.client = server.client.clone();
        self.follow = Follow::start(&server.client, &self.job, self.seen);
    }

    /// Follows to the first event that `is_it` takes.
    ///
    /// # Errors
    /// It does not come; the fault has the last words of `process`.
    pub(super) async fn until(
        &mut self,
        process: &Process,
        what: &str,
        mut is_it: impl FnMut(&EventView) -> bool,
    ) -> Result<EventView, Fault> {
        let found = within(what, async {
            while let Some(event) = self.follow.next().await? {
                self.seen = event.seq;
                self.story.event(&event);
                if is_it(&event) {
                    return Ok(Some(event));
                }
            }
            Ok(None)
        });
        let found = tokio::select! {
            found = found => found,
            () = process.ended() => return Err(process.fault(&format!("{what}; the process has ended"))),
        };
        match found {
            Ok(Ok(Some(event))) => Ok(event),
            Ok(Ok(None)) => Err(process.fault(&format!("{what}; the job's events have ended"))),
            Ok(Err(error)) => Err(Fault::api(what, error)),
            Err(_) => Err(process.fault(what)),
        }
    }

    /// From the message to the call in flight: a person approves, the service books and does not answer. The
    /// connection of the call.
    ///
    /// # Errors
    /// Something of that does not happen.
    pub(super) async fn approve(&mut self, payments: &mut Payments, worker: &Process) -> Result<u64, Fault> {
        self.until(worker, "the job waits for a person", |event| event.kind == "job_waiting").await?;
        let waits = self.client.get::<WaitList>(&["api", "waits"], &[("wait_type", "human")]).await;
        let waits = waits.map_err(|error| Fault::api("the list of open waits", error))?.body.waits;
        let wait = waits.into_iter().find(|wait| wait.job_id.to_string() == self.job);
        let wait = wait.ok_or_else(|| worker.fault("the list of open waits has the approval"))?;
        self.story.turn(Tone::Attention, "approval", &wait.reason.unwrap_or_default());
        let signal = SignalRequest {
            correlation_key: wait.correlation_key,
            payload: Some((&Json::new(json!({ "approved": true }))).into()),
            wait_type: Some(WaitType::Human),
        };
        let delivered = self.client.post::<SignalResult>(&["api", "jobs", &self.job, "signal"], &signal, &[]).await;
        delivered.map_err(|error| Fault::api("the signal that approves", error))?;
        self.story.tell("approval", "a person says yes");
        let called = |event: &EventView| of_refund(event, "tool_invocation_started");
        self.until(worker, "the refund is permitted and called", called).await?;
        let (booking, connection) = payments.booked().await.map_err(|fault| fault.beside(worker))?;
        let Booking { refund_id, cents, fence, .. } = &booking;
        let what = format!("booked {refund_id} ({cents} cents, fence {fence}), on disk; its answer is held back");
        self.story.turn(Tone::Active, "payments", &what);
        Ok(connection)
    }

    /// Where this refund is to be looked at when all is over.
    pub(super) fn witness(&self, payments: &Payments) -> Witness {
        Witness { client: self.client.clone(), job: self.job.clone(), log: payments.log.clone() }
    }
}

/// Who can say what became of a refund: the API, and the payments service's own log.
pub(super) struct Witness {
    pub(super) client: Client,
    pub(super) job: String,
    pub(super) log: PathBuf,
}

/// Whether it is this kind of event of the refund's step.
pub(super) fn of_refund(event: &EventView, kind: &str) -> bool {
    event.kind == kind && said(event)["node"] == "send_refund"
}
