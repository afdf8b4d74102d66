//! `signal`.

use aetheris_api::{Raw, SignalRequest, SignalResult, SignalStatus};
use aetheris_core::plan::WaitType;

use super::Context;
use crate::args;
use crate::error::Error;
use crate::exit::Exit;
use crate::payload::{self, Form};
use crate::render::Tone;

pub(super) async fn run(given: &args::Signal, context: &Context) -> Result<Exit, Error> {
    let payload = payload::read("PAYLOAD", &given.payload, Form::of_flag(given.text), std::io::stdin())?;
    let types = [WaitType::Human, WaitType::Signal, WaitType::Webhook];
    let request = SignalRequest {
        correlation_key: Some(given.key.clone()),
        payload: Some(Raw::new(&payload)),
        wait_type: types.into_iter().find(|known| Some(known.as_str()) == given.wait_type.as_deref()),
    };
    let client = context.client()?;
    let answer = client.post::<SignalResult>(&["api", "jobs", &given.job, "signal"], &request, &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
        return Ok(Exit::Done);
    }
    context.out.line(match answer.body.status {
        SignalStatus::Delivered => "delivered: the job goes on",
        SignalStatus::AlreadyDelivered => "already delivered: nothing changed",
        SignalStatus::Kept => "kept: the job has not reached this wait yet and takes it then",
    })?;
    if !answer.body.payload_matches {
        let note = "the first payload counts, and it was another one";
        context.out.note(&context.out.style.paint(Tone::Attention, note));
    }
    Ok(Exit::Done)
}
