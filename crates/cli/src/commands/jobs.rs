//! `jobs`, `show`, `cancel`.

use std::collections::BTreeMap;

use aetheris_api::{
    CancelAnswer, Command, InDoubtList, JobList, JobView, StepPage, StepValuesView, TraceStep, TraceView, WhyCode,
    WhyView,
};
use aetheris_core::event::PauseReason;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::Context;
use crate::args;
use crate::client::{Answer, Client};
use crate::error::Error;
use crate::exit::Exit;
use crate::render::jobs::Beside;
use crate::render::{self, Values};

/// Jobs asked for at a time where all are wanted.
pub(super) const PAGE: &str = "500";

pub(super) async fn list(given: &args::Jobs, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let label = given.label.as_ref().map(|(key, value)| format!("{key}={value}"));
    let limit = if given.all { PAGE.to_owned() } else { given.limit.to_string() };
    let statuses = given.status.join(",");
    let filters = [
        ("status", Some(statuses.as_str()).filter(|statuses| !statuses.is_empty())),
        ("agent", given.agent.as_deref()),
        ("session_id", given.session.as_deref()),
        ("label", label.as_deref()),
        ("limit", Some(limit.as_str())),
    ];
    let filters = filters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let mut pages = client.pages(&["api", "jobs"], filters);
    let (mut jobs, mut raw) = (Vec::new(), Vec::new());
    while let Some(page) = pages.next::<JobList>().await? {
        if context.out.json {
            raw.extend(items(page.json()?, "jobs"));
        }
        jobs.extend(page.body.jobs);
        // A page of jobs that cannot be read is empty, and more may follow.
        if !(given.all || jobs.is_empty()) {
            break;
        }
    }
    let cursor = pages.cursor().map(str::to_owned);
    if context.out.json {
        context.out.value(&json!({ "jobs": raw, "next_cursor": cursor }))?;
        return Ok(Exit::Done);
    }
    if jobs.is_empty() {
        context.out.note("no jobs");
        return Ok(Exit::Done);
    }
    let why = unsaid_reasons(&client, &jobs).await;
    context.out.text(&render::jobs::table(&jobs, &why, context.out.style, context.now()))?;
    if cursor.is_some() {
        context.out.note("there are more: --limit or --all shows them");
    }
    Ok(Exit::Done)
}

/// Jobs of a list whose reasons are asked for: each is a question of its own.
const REASONS_MAX: usize = 20;

/// So many of these questions are asked at once: half of what a server answers of this kind, so that others are served.
const REASONS_AT_ONCE: usize = limits::READS_AT_ONCE / 2;

/// What the rows of the first jobs of a list do not say: why they are pending, and that a paused one has a call in doubt.
async fn unsaid_reasons(client: &Client, jobs: &[JobView]) -> BTreeMap<JobId, WhyView> {
    let unsaid = |job: &&JobView| match job.status {
        JobStatus::Pending => true,
        JobStatus::Paused => job.waiting.is_none(),
        JobStatus::Running
        | JobStatus::Waiting
        | JobStatus::Parked
        | JobStatus::Completed
        | JobStatus::Failed
        | JobStatus::Cancelled => false,
    };
    let asked = stream::iter(jobs.iter().filter(unsaid).take(REASONS_MAX)).map(|job| async move {
        let mut reasons = reasons(client, &job.id.to_string()).await.into_iter();
        let told = if job.status == JobStatus::Paused {
            reasons.find(|reason| reason.code == WhyCode::InDoubt)
        } else {
            // It may have been claimed meanwhile: its row says that it is pending.
            reasons.next().filter(|reason| reason.code != WhyCode::HeldBy)
        };
        Some((job.id, told?))
    });
    asked.buffer_unordered(REASONS_AT_ONCE).filter_map(std::future::ready).collect().await
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

/// What the steps of a job were given and gave, beginnings or whole; nothing where the server cannot say. Some of them are no
/// answer: what fails once the list has begun is an error.
pub(super) async fn values(client: &Client, job: &str, full: bool) -> Result<Values, Error> {
    let bytes = if full { limits::PAYLOAD_BYTES_MAX } else { limits::VALUE_SHOWN_BYTES }.to_string();
    let render = full.to_string();
    let mut pages = client.pages(&["api", "jobs", job, "steps"], [("bytes", bytes.as_str()), ("render", &render)]);
    let mut values = Values { full, ..Values::default() };
    loop {
        let page = match pages.next::<StepPage>().await {
            Ok(Some(page)) => page.body,
            Ok(None) => return Ok(values),
            Err(Error::Problem(problem)) if problem.status != 404 => return Err(Error::Problem(problem)),
            Err(error) if pages.cursor().is_none() => {
                tracing::debug!(%error, "no values of steps");
                return Ok(values);
            }
            Err(error) => return Err(error),
        };
        values.steps.extend(page.steps.into_iter().map(|step| (step.node_id.clone(), step)));
    }
}

/// Why a job is pending that no worker is about to take: it was sent for later, or its session is busy.
pub(super) async fn held_up(client: &Client, job: &JobView) -> Option<WhyView> {
    if job.status != JobStatus::Pending {
        return None;
    }
    let first = reasons(client, &job.id.to_string()).await.into_iter().next()?;
    let told = match first.code {
        WhyCode::NotBefore
        | WhyCode::RateLimited
        | WhyCode::RetryBackoff
        | WhyCode::SessionBusy
        | WhyCode::NoWorker => true,
        WhyCode::Ended
        | WhyCode::HeldBy
        | WhyCode::InDoubt
        | WhyCode::LeaseExpiredUnreclaimed
        | WhyCode::NoSlot
        | WhyCode::PausedBy
        | WhyCode::RestoredHold
        | WhyCode::WaitingApproval
        | WhyCode::WaitingChild
        | WhyCode::WaitingSignal
        | WhyCode::WaitingTime => false,
    };
    told.then_some(first)
}

/// Why a job is where it is; nothing where the server cannot say.
pub(super) async fn reasons(client: &Client, job: &str) -> Vec<WhyView> {
    match client.get::<Vec<WhyView>>(&["api", "jobs", job, "why"], &[]).await {
        Ok(reasons) => reasons.body,
        Err(error) => {
            tracing::debug!(%error, "no reasons");
            Vec::new()
        }
    }
}

pub(super) async fn why(job: &str, context: &Context) -> Result<Exit, Error> {
    let answer = context.client()?.get::<Vec<WhyView>>(&["api", "jobs", job, "why"], &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
    } else {
        let page = render::why::page(&answer.body, &context.program(), context.out.style, context.now());
        context.out.text(&page)?;
    }
    Ok(Exit::Done)
}

pub(super) async fn show(given: &args::Told, context: &Context) -> Result<Exit, Error> {
    let (client, job) = (context.client()?, given.job.as_str());
    let answer = get(&client, job).await?;
    if context.out.json {
        let mut value = answer.json()?;
        if given.full {
            let steps: Vec<StepValuesView> = values(&client, job, true).await?.steps.into_values().collect();
            value["step_values"] = serde_json::to_value(steps).map_err(anyhow::Error::from)?;
        }
        context.out.value(&value)?;
        return Ok(Exit::Done);
    }
    let asked = matches!(answer.body.status, JobStatus::Pending | JobStatus::Paused);
    let mut why = if asked { reasons(&client, job).await } else { Vec::new() };
    // An operator's pause has a line of its own, and so has a wait. A doubt that no wait names has none.
    if answer.body.paused.is_some_and(|paused| paused.reason == PauseReason::Operator) {
        let waits = answer.body.waiting.is_some();
        why.retain(|reason| reason.code == WhyCode::InDoubt && !waits);
    }
    let values = values(&client, job, given.full).await?;
    let beside = Beside { plan: plan(&client, job).await, values, why };
    let page = render::jobs::page(&answer.body, &beside, &context.program(), context.out.style, context.now());
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
            "cancel requested: no new step starts; the worker holding the job will end it".to_owned()
        }
        Some(_) | None if answer.is_unchanged() => {
            format!("{job} was {} before", context.out.style.job(answer.body.status))
        }
        Some(_) | None => format!("{job} is {}", context.out.style.job(answer.body.status)),
    };
    context.out.line(&line)?;
    if answer.body.status.is_terminal() {
        tell_unresolved(&client, job, context).await;
    }
    Ok(Exit::Done)
}

/// Calls of a job that has ended whose outcomes nobody knows: they may have happened.
async fn tell_unresolved(client: &Client, job: &str, context: &Context) {
    let left = client.get::<InDoubtList>(&["api", "in-doubt"], &[("job", job), ("unresolved", "true")]).await;
    let Ok(left) = left else { return };
    for call in left.body.invocations.iter().filter(|call| call.answer.is_none()) {
        let list = Command::Unresolved(call.job_id).line(&context.program());
        context
            .out
            .warn(&format!("the call of {} is still in doubt: it may have happened. {list} lists it", call.node_id));
    }
}
