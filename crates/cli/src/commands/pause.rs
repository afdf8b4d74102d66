//! `pause` and `resume`.

use aetheris_api::{AgentView, JobList, JobView, PauseResult, ResumeResult};
use aetheris_core::event::PauseReason;
use aetheris_core::limits;
use serde_json::json;

use super::Context;
use crate::args;
use crate::client::Client;
use crate::error::{Error, counted};
use crate::exit::Exit;

pub(super) async fn pause(job: &str, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let answer = client.post::<PauseResult>(&["api", "jobs", job, "pause"], &json!({}), &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
        return Ok(Exit::Done);
    }
    let line = match answer.body.end_requested {
        Some(_) => {
            "pause requested: no new step starts; an at_most_once call that is under way is waited for".to_owned()
        }
        None if answer.is_unchanged() => format!("{job} was {} before", context.out.style.job(answer.body.status)),
        None => format!("{job} is {}", context.out.style.job(answer.body.status)),
    };
    context.out.line(&line)?;
    Ok(Exit::Done)
}

pub(super) async fn resume(given: &args::Resume, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    match &given.job {
        Some(job) => one(&client, job, context).await,
        None => all_restored(&client, given.agent.as_deref(), context).await,
    }
}

async fn one(client: &Client, job: &str, context: &Context) -> Result<Exit, Error> {
    let answer = client.post::<ResumeResult>(&["api", "jobs", job, "resume"], &json!({}), &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
    } else {
        let was_not = if answer.is_unchanged() { "was not paused: it " } else { "" };
        context.out.line(&format!("{job} {was_not}is {}", context.out.style.job(answer.body.status)))?;
    }
    Ok(Exit::Done)
}

/// Resumes every job that a restore has held, page by page, newest first. It may be stopped and called again: what is
/// resumed is not paused any more.
async fn all_restored(client: &Client, agent: Option<&str>, context: &Context) -> Result<Exit, Error> {
    let (mut resumed, mut by_operators, mut refused) = (0usize, 0usize, Vec::new());
    let limit = limits::PAGE_JOBS_MAX.to_string();
    let filters = [("status", "paused"), ("limit", &limit)].into_iter().chain(agent.map(|agent| ("agent", agent)));
    let mut pages = client.pages(&["api", "jobs"], filters);
    while let Some(page) = pages.next::<JobList>().await? {
        let (restored, others): (Vec<_>, Vec<_>) = page.body.jobs.iter().partition(|job| is_restored(job));
        by_operators += others.len();
        for job in restored {
            let id = job.id.to_string();
            match client.post::<ResumeResult>(&["api", "jobs", &id, "resume"], &json!({}), &[]).await {
                Ok(_) => resumed += 1,
                // Ended or gone meanwhile: the others are to go on.
                Err(error @ Error::Problem(_)) => refused.push(format!("{id}: {error}")),
                Err(error) => return Err(error),
            }
        }
        if pages.cursor().is_some() {
            context.out.note(&format!("{resumed} resumed; going on"));
        }
    }
    if let Some(agent) = agent.filter(|_| resumed + by_operators == 0 && refused.is_empty()) {
        // Nothing is held of one that does not exist, and whoever has mistyped its name waits for nothing. One that was
        // removed is not known either, and its jobs go on.
        client.get::<AgentView>(&["api", "agents", agent], &[]).await?;
    }
    for line in &refused {
        context.out.note(&format!("not resumed: {line}"));
    }
    if by_operators > 0 {
        let left = counted(by_operators, "job");
        context.out.note(&format!(
            "still paused: {left} that an operator has paused; `{} resume JOB` resumes one",
            context.program()
        ));
    }
    if context.out.json {
        context.out.value(&json!({ "left": by_operators, "refused": refused, "resumed": resumed }))?;
    } else {
        context.out.line(&format!("resumed: {}", counted(resumed, "restored job")))?;
    }
    Ok(if refused.is_empty() { Exit::Done } else { Exit::Conflict })
}

fn is_restored(job: &JobView) -> bool {
    job.paused.is_some_and(|paused| match paused.reason {
        PauseReason::Restored => true,
        PauseReason::Operator => false,
    })
}
