//! `signal`.

use aetheris_api::{JobView, Raw, SignalRequest, SignalResult, SignalStatus};
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
    // Whoever comes second with another payload has decided nothing.
    let exit = if answer.body.payload_matches { Exit::Done } else { Exit::Conflict };
    if context.out.json {
        context.out.value(&answer.json()?)?;
        return Ok(exit);
    }
    // A job that cannot be asked about goes on as most do.
    let job = jobs::get(&client, &given.job).await.ok().map(|job| job.body);
    let paused = job.as_ref().is_some_and(|job| job.status == JobStatus::Paused);
    let SignalResult { payload_matches, status } = answer.body;
    context.out.line(match (status, paused) {
        (SignalStatus::Delivered, false) => "delivered: the job goes on",
        (SignalStatus::Delivered, true) => "delivered: the job is paused and goes on when it is resumed",
        (SignalStatus::AlreadyDelivered, _) => "already delivered: nothing changed",
        // What is kept counts: this one would never be looked at.
        (SignalStatus::Kept, _) if !payload_matches => {
            "not kept: an earlier signal with this key, and another payload, is kept and counts"
        }
        (SignalStatus::Kept, false) => "kept: no wait with this key has begun; one that begins later takes the signal",
        (SignalStatus::Kept, true) => {
            "kept: the job is paused; a wait with this key that begins after it is resumed takes the signal"
        }
    })?;
    if status == SignalStatus::Kept {
        tell_kept(given, job.as_ref(), context);
    }
    if paused {
        context.out.note(&format!("let the job go on with: {} resume {}", context.program(), given.job));
    }
    match (payload_matches, status) {
        (true, SignalStatus::Kept) => {
            context.out.note("if several signals are kept under this key, the first one that fits the wait ends it");
        }
        (false, SignalStatus::Kept) | (true, SignalStatus::Delivered | SignalStatus::AlreadyDelivered) => {}
        (false, SignalStatus::Delivered | SignalStatus::AlreadyDelivered) => {
            context.out.warn("the payload that ended the wait counts, and it differs from this one");
        }
    }
    Ok(exit)
}

/// Whoever mistyped a key is told what the job waits for, and everybody where the signal is seen again.
fn tell_kept(given: &args::Signal, job: Option<&JobView>, context: &Context) {
    let open = job.and_then(|job| Some((job.id, job.waiting.as_ref()?)));
    if let Some((id, waiting)) = open
        && let Some(key) = waiting.correlation_key.as_deref().filter(|key| *key != given.key)
    {
        let (node, answer) = (&waiting.node_id, waiting.answer(id));
        let answer = answer.map(|answer| format!(". Answer it with: {}", answer.line(&context.program())));
        context.out.warn(&format!("{node} waits for another key, `{key}`{}", answer.unwrap_or_default()));
    }
    context.out.note(&format!("what is kept is listed by: {} show {}", context.program(), given.job));
}
