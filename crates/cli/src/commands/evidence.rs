//! `trace`, `replay`, `verify`.

use aetheris_api::{ReplayView, TraceView, VerifyView};
use aetheris_core::limits;

use super::{Context, jobs};
use crate::args;
use crate::error::Error;
use crate::exit::Exit;
use crate::render;

pub(super) async fn trace(given: &args::Told, context: &Context) -> Result<Exit, Error> {
    let (client, job) = (context.client()?, given.job.as_str());
    let bytes = limits::PAYLOAD_BYTES_MAX.to_string();
    let whole = [("bytes", bytes.as_str())];
    let asked: &[(&str, &str)] = if given.full { &whole } else { &[] };
    let answer = client.get::<TraceView>(&["api", "jobs", job, "trace"], asked).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
    } else {
        let values = jobs::values(&client, job, given.full).await?;
        context.out.text(&render::trace::page(&answer.body, &values, context.out.style, context.now()))?;
    }
    Ok(Exit::Done)
}

pub(super) async fn replay(job: &str, context: &Context) -> Result<Exit, Error> {
    let answer = context.client()?.get::<ReplayView>(&["api", "jobs", job, "replay"], &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
    } else {
        context.out.text(&render::evidence::replay(&answer.body, context.out.style))?;
    }
    Ok(if answer.body.matches { Exit::Done } else { Exit::CheckFailed })
}

pub(super) async fn verify(job: &str, context: &Context) -> Result<Exit, Error> {
    let answer = context.client()?.get::<VerifyView>(&["api", "jobs", job, "verify"], &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
    } else {
        context.out.text(&render::evidence::verify(&answer.body, context.out.style))?;
    }
    Ok(if answer.body.valid { Exit::Done } else { Exit::CheckFailed })
}
