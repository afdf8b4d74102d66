//! `signal`.

use aetheris_api::{Raw, SignalRequest, SignalResult, SignalStatus};
use aetheris_core::job::JobStatus;
use aetheris_core::plan::WaitType;

use super::{Context, jobs};
use crate::args;
use crate::error::Error;
use crate::exit::Exit;
use crate::payload::{self, Form};

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
    // A job that cannot be asked about goes on as most do.
    let paused = jobs::get(&client, &given.job).await.is_ok_and(|job| job.body.status == JobStatus::Paused);
    context.out.line(match (answer.body.status, paused) {
        (SignalStatus::Delivered, false) => "delivered: the job goes on",
        (SignalStatus::Delivered, true) => "delivered: the job is paused and goes on when it is resumed",
        (SignalStatus::AlreadyDelivered, _) => "already delivered: nothing changed",
        (SignalStatus::Kept, false) => "kept: the job has not reached this wait yet, and takes the signal when it does",
        (SignalStatus::Kept, true) => {
            "kept: the job is paused, and takes the signal when it is resumed and reaches this wait"
        }
    })?;
    if paused {
        context.out.note(&format!("let it go on with: {} resume {}", context.program(), given.job));
    }
    if !answer.body.payload_matches {
        context.out.warn("the first payload counts, and it differs from this one");
    }
    Ok(Exit::Done)
}
