//! Accepted is never lost: kill -9 right after messages and signals were acknowledged.

use std::collections::BTreeMap;

use aetheris_core::id::JobId;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Server, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::Fault;

/// Messages that are sent at once.
const AT_ONCE: usize = 8;

/// What was asked in a round, and what came of it.
enum Told {
    Job(String, Option<JobId>),
    Signal(JobId, Option<aetheris_api::SignalResult>),
}

pub(super) async fn run(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    // By key: the job that its first acknowledgement named.
    let mut jobs: BTreeMap<String, JobId> = BTreeMap::new();
    let mut unsignalled: Vec<JobId> = Vec::new();
    for round in 0..workspace.plan.rounds(30, 5) {
        let server = workspace.dev(&[Agent::Ask]).await?;
        let waiting = std::mem::take(&mut unsignalled);
        let asked = ask(&server, round, &waiting);
        let told = until_killed(server, asked, 1 + round % AT_ONCE).await;
        let server = workspace.dev(&[Agent::Ask]).await?;
        for told in told {
            match told {
                Told::Job(key, acknowledged) => {
                    let again = again(workspace, &server, &key, acknowledged).await?;
                    jobs.insert(key, again);
                    unsignalled.push(again);
                }
                Told::Signal(job, Some(answer)) => {
                    workspace.signalled(job, &format!("ask-{job}"), answer, &payload(job));
                    let view = workspace::job(&server.client, job).await?;
                    let delivered = view.status.is_terminal() || view.waiting.is_none();
                    workspace.cases.case(Guarantee::Kept, delivered, || {
                        format!("the signal to {job} was acknowledged before the kill, and the job waits for it after")
                    });
                }
                Told::Signal(job, None) => unsignalled.push(job),
            }
        }
        server.process.kill();
    }
    finish(workspace, &jobs).await
}

fn payload(job: JobId) -> Value {
    json!({ "n": job.to_string() })
}

/// Everything of a round, asked at once.
fn ask(
    server: &Server,
    round: usize,
    waiting: &[JobId],
) -> FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = Told>>>> {
    let asked: FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = Told>>>> = FuturesUnordered::new();
    for number in 0..AT_ONCE {
        let (client, key) = (server.client.clone(), format!("accepted-{round}-{number}"));
        asked.push(Box::pin(async move {
            let job = workspace::send(&client, Agent::Ask, &key).await.ok();
            Told::Job(key, job)
        }));
    }
    for job in waiting.iter().copied() {
        let client = server.client.clone();
        asked.push(Box::pin(async move {
            let answer = workspace::signal(&client, job, &format!("ask-{job}"), &payload(job)).await;
            Told::Signal(job, answer.ok())
        }));
    }
    asked
}

/// Kills the server in the moment in which so many have been answered, and hears the rest.
async fn until_killed(
    server: Server,
    mut asked: FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = Told>>>>,
    answers: usize,
) -> Vec<Told> {
    let mut told = Vec::new();
    let mut server = Some(server);
    while let Some(answer) = asked.next().await {
        told.push(answer);
        let good = told.iter().filter(|told| matches!(told, Told::Job(_, Some(_)) | Told::Signal(_, Some(_)))).count();
        if good >= answers
            && let Some(server) = server.take()
        {
            server.process.kill();
        }
    }
    told
}

/// The same message again, as a client would send it that heard nothing: it must be the job that was
/// acknowledged.
async fn again(
    workspace: &mut Workspace<'_>,
    server: &Server,
    key: &str,
    acknowledged: Option<JobId>,
) -> Result<JobId, Fault> {
    let again =
        workspace::send(&server.client, Agent::Ask, key).await.map_err(|error| Fault::api("a message", error))?;
    workspace.accepted(key, again);
    if let Some(job) = acknowledged {
        workspace.accepted(key, job);
        let view = workspace::job(&server.client, job).await;
        let there = view.is_ok() && again == job;
        workspace.cases.case(Guarantee::Kept, there, || match view {
            Ok(_) => format!("the message `{key}` was acknowledged as {job} before the kill, and is {again} after"),
            Err(error) => format!("{job} was acknowledged before the kill: {error}"),
        });
    }
    Ok(again)
}

/// Every job gets its signal and ends with it.
async fn finish(workspace: &mut Workspace<'_>, jobs: &BTreeMap<String, JobId>) -> Result<(), Fault> {
    let server = workspace.dev(&[Agent::Ask]).await?;
    for job in jobs.values() {
        let key = format!("ask-{job}");
        let sent = workspace::signal(&server.client, *job, &key, &payload(*job)).await;
        match sent {
            Ok(answer) => workspace.signalled(*job, &key, answer, &payload(*job)),
            // It has ended, by the signal that it had before.
            Err(crate::error::Error::Problem(problem)) if problem.status == 409 => {}
            Err(error) => return Err(Fault::api("a signal", error)),
        }
        let view = workspace::until(&server.client, *job, ("the job ends by its signal", PATIENCE), |view| {
            view.status.is_terminal()
        });
        let view = view.await?;
        let expected = json!(job.to_string());
        workspace.cases.case(Guarantee::Kept, workspace::answered(&view, &expected), || workspace::end(&view));
    }
    Ok(())
}
