//! A wait ends once: signals before it, after it, twice, and eight at once.

use aetheris_api::SignalStatus;
use aetheris_check::WitnessKind;
use aetheris_core::id::JobId;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Server, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::{Fault, said};
use crate::error::Error;

/// Signals that race for one wait.
const RACERS: usize = 8;

pub(super) async fn run(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let agents = [Agent::Ask, Agent::Early];
    let count = workspace.plan.rounds(12, 3);
    let server = workspace.dev(&agents).await?;
    // Before the wait: every job is in a body that is held until all have their signals.
    workspace.tools.hold(true);
    let early = workspace.send(&server, Agent::Early, workspace.plan.jobs(count)).await?;
    workspace.tools.until(WitnessKind::BodyStart, &early, PATIENCE).await?;
    for job in &early {
        let answer = deliver(workspace, &server, *job, "first").await?;
        let kept = answer == SignalStatus::Kept;
        workspace.cases.case(Guarantee::Kept, kept, || format!("a signal before the wait of {job} was {answer:?}"));
    }
    workspace.tools.hold(false);
    // After it, and a second time with another payload.
    let late = workspace.send(&server, Agent::Ask, count).await?;
    workspace::waiting(&server.client, &late).await?;
    for job in &late {
        deliver(workspace, &server, *job, "first").await?;
        again(workspace, &server, *job).await?;
    }
    // Many at once.
    let raced = workspace.send(&server, Agent::Ask, count).await?;
    workspace::waiting(&server.client, &raced).await?;
    for job in &raced {
        race(workspace, &server, *job).await?;
    }
    for view in workspace::ended(&server.client, &[early, late].concat(), PATIENCE).await? {
        let events = workspace::events(&server.client, view.id).await?;
        let good = workspace::answered(&view, &json!("first")) && workspace::count(&events, "wait_completed") == 1;
        workspace.cases.case(Guarantee::EndsOnce, good, || workspace::end(&view));
    }
    server.process.stop().await?;
    Ok(())
}

fn payload(n: &str) -> Value {
    json!({ "n": n })
}

async fn deliver(workspace: &mut Workspace<'_>, server: &Server, job: JobId, n: &str) -> Result<SignalStatus, Fault> {
    let key = format!("ask-{job}");
    let answer = workspace::signal(&server.client, job, &key, &payload(n)).await;
    let answer = answer.map_err(|error| Fault::api("a signal", error))?;
    workspace.signalled(job, &key, answer, &payload(n));
    Ok(answer.status)
}

/// The same signal again answers as the first time; another payload changes nothing.
async fn again(workspace: &mut Workspace<'_>, server: &Server, job: JobId) -> Result<(), Fault> {
    let key = format!("ask-{job}");
    for (n, matches) in [("first", true), ("second", false)] {
        let answer = workspace::signal(&server.client, job, &key, &payload(n)).await;
        let good = match &answer {
            Ok(answer) => answer.status == SignalStatus::AlreadyDelivered && answer.payload_matches == matches,
            Err(Error::Problem(problem)) => problem.status == 409 && !matches,
            Err(_) => false,
        };
        workspace
            .cases
            .case(Guarantee::EndsOnce, good, || format!("a repeated signal to {job} (`{n}`) was {answer:?}"));
    }
    Ok(())
}

/// Eight payloads at once: one of them ends the wait, and the job has that one.
async fn race(workspace: &mut Workspace<'_>, server: &Server, job: JobId) -> Result<(), Fault> {
    let key = format!("ask-{job}");
    let sent = (0..RACERS).map(|number| {
        let (client, key) = (server.client.clone(), key.clone());
        async move { workspace::signal(&client, job, &key, &payload(&number.to_string())).await }
    });
    let answers = join_all(sent).await;
    let winners: Vec<usize> = answers
        .iter()
        .enumerate()
        .filter_map(|(number, answer)| match answer {
            Ok(answer) => (answer.status == SignalStatus::Delivered).then_some(number),
            Err(_) => None,
        })
        .collect();
    let view =
        workspace::until(&server.client, job, ("the job ends", PATIENCE), |view| view.status.is_terminal()).await?;
    let events = workspace::events(&server.client, job).await?;
    let ends = events.iter().filter(|event| event.kind == "wait_completed" && said(event)["node"] == "ask").count();
    let won = winners.first().is_some_and(|number| workspace::answered(&view, &json!(number.to_string())));
    workspace.cases.case(Guarantee::EndsOnce, winners.len() == 1 && won && ends == 1, || {
        format!(
            "{RACERS} signals at once: {} delivered, {ends} ends of the wait, {}",
            winners.len(),
            workspace::end(&view)
        )
    });
    if let Some(answer) = winners.first().and_then(|number| answers[*number].as_ref().ok().copied()) {
        workspace.signalled(job, &key, answer, &payload(&winners[0].to_string()));
    }
    Ok(())
}
