//! `jobs`, `show`, `cancel`.

use aetheris_api::{CancelAnswer, JobList, JobView, TraceStep, TraceView};
use serde_json::{Value, json};

use super::Context;
use crate::args;
use crate::client::{Answer, Client};
use crate::error::Error;
use crate::exit::Exit;
use crate::render;

/// Jobs asked for at a time where all are wanted.
const PAGE: &str = "500";

pub(super) async fn list(given: &args::Jobs, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let label = given.label.as_ref().map(|(key, value)| format!("{key}={value}"));
    let limit = if given.all { PAGE.to_owned() } else { given.limit.to_string() };
    let filters = [
        ("status", given.status.as_deref()),
        ("agent", given.agent.as_deref()),
        ("session_id", given.session.as_deref()),
        ("label", label.as_deref()),
        ("limit", Some(limit.as_str())),
    ];
    let filters: Vec<(&str, &str)> = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let mut cursor: Option<String> = None;
    let (mut jobs, mut raw) = (Vec::new(), Vec::new());
    loop {
        let mut query = filters.clone();
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = client.get::<JobList>(&["api", "jobs"], &query).await?;
        if context.out.json {
            raw.extend(items(page.json()?, "jobs"));
        }
        jobs.extend(page.body.jobs);
        cursor = page.body.next_cursor;
        if !given.all || cursor.is_none() {
            break;
        }
    }
    if context.out.json {
        context.out.value(&json!({ "jobs": raw, "next_cursor": cursor }))?;
        return Ok(Exit::Done);
    }
    if jobs.is_empty() {
        context.out.note("no jobs");
        return Ok(Exit::Done);
    }
    context.out.text(&render::jobs::table(&jobs, context.out.style, context.now()))?;
    if cursor.is_some() {
        context.out.note("there are more: --limit or --all shows them");
    }
    Ok(Exit::Done)
}

/// The items of a page as the server wrote them.
pub(super) fn items(mut page: Value, name: &str) -> Vec<Value> {
    match page.get_mut(name).map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(_) | None => Vec::new(),
    }
}

/// A job as it is now.
pub(super) async fn get(client: &Client, job: &str) -> Result<Answer<JobView>, Error> {
    client.get::<JobView>(&["api", "jobs", job], &[]).await
}

/// The steps of a job's plan in its order; nothing where the server cannot say.
pub(super) async fn plan(client: &Client, job: &str) -> Vec<TraceStep> {
    match client.get::<TraceView>(&["api", "jobs", job, "trace"], &[]).await {
        Ok(trace) => trace.body.steps,
        Err(error) => {
            tracing::debug!(%error, "no trace: steps are shown in the order of their start");
            Vec::new()
        }
    }
}

pub(super) async fn show(job: &str, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let answer = get(&client, job).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
        return Ok(Exit::Done);
    }
    let plan = plan(&client, job).await;
    let page = render::jobs::page(&answer.body, &plan, &context.program(), context.out.style, context.now());
    context.out.text(&page)?;
    Ok(Exit::Done)
}

pub(super) async fn cancel(job: &str, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let answer = client.post::<CancelAnswer>(&["api", "jobs", job, "cancel"], &json!({}), &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
        return Ok(Exit::Done);
    }
    let line = match answer.body.end_requested {
        Some(_) if !answer.body.status.is_terminal() => {
            "asked to cancel: no step starts any more, and the worker that holds it ends it".to_owned()
        }
        Some(_) | None => format!("{job} is {}", context.out.style.job(answer.body.status)),
    };
    context.out.line(&line)?;
    Ok(Exit::Done)
}
