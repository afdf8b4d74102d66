//! One process holds a data folder; and a process that waits for the database's lock loses nothing.

use std::time::Duration;

use aetheris_core::limits;
use futures_util::future::join_all;
use serde_json::json;

use super::super::agents::Agent;
use super::super::workspace::{self, PATIENCE, Server, Workspace};
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::{Fault, Process, WriteLock};
use crate::exit::Exit;

/// How long the write lock is held.
const HELD: Duration = Duration::from_millis(limits::PERMIT_MARGIN.micros() / 1_000 + 500);

/// A second process is refused while the first one lives, and needs nothing but its death.
pub(super) async fn folder(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let mut server = workspace.dev(&[Agent::Ask]).await?;
    for round in 0..workspace.plan.rounds(4, 2) {
        let job = workspace.send(&server, Agent::Ask, 1).await?[0];
        let second = workspace.start_dev(&[Agent::Ask])?;
        in_use(workspace, second, "a second `dev` on the folder").await?;
        let second = workspace.start_serve()?;
        in_use(workspace, second, "a `serve` on the folder of a `dev`").await?;
        let view = workspace::job(&server.client, job).await;
        workspace
            .cases
            .case(Guarantee::Conditions, view.is_ok(), || format!("the first process is disturbed: {view:?}"));
        if round % 2 == 0 {
            server.process.kill();
        } else {
            server.process.stop().await?;
        }
        server = workspace.dev(&[Agent::Ask]).await?;
        let view = workspace::job(&server.client, job).await;
        workspace.cases.case(Guarantee::Conditions, view.is_ok(), || format!("its successor lacks a job: {view:?}"));
    }
    server.process.stop().await?;
    let server = workspace.serve(&[]).await?;
    let second = workspace.start_dev(&[Agent::Ask])?;
    in_use(workspace, second, "a `dev` on the folder of a `serve`").await?;
    server.process.stop().await?;
    Ok(())
}

/// A process that has to be refused because another one has the folder.
async fn in_use(workspace: &mut Workspace<'_>, mut second: Process, what: &str) -> Result<(), Fault> {
    let code = second.code("because the folder is in use").await?;
    let words = second.last_words();
    let refused = code == Some(i32::from(Exit::Conflict.code())) && words.contains("in use");
    workspace.cases.case(Guarantee::Conditions, refused, || format!("{what} ended with {code:?}: {words}"));
    Ok(())
}

/// Another process holds the write lock for some seconds, while jobs run and messages come.
pub(super) async fn lock(workspace: &mut Workspace<'_>) -> Result<(), Fault> {
    let server = workspace.dev(&[Agent::Chain, Agent::ChainOnce, Agent::Ask]).await?;
    for _ in 0..workspace.plan.rounds(2, 1) {
        let mut running = workspace.send(&server, Agent::Chain, workspace.plan.jobs(4)).await?;
        // What was written too late to be used is no try of the step.
        running.extend(workspace.send(&server, Agent::ChainOnce, workspace.plan.jobs(4)).await?);
        // Held for less than a lease: what is meant is a backup or a shell, not a second death. With leases of ten seconds,
        // for longer than a permission may take to be written, so that nothing is sent under those that wait.
        let held = (workspace.plan.lease / 4).min(HELD);
        let lock = WriteLock::take(&workspace.database())?;
        let sent = (0..6).map(|number| {
            let (client, key) = (server.client.clone(), format!("locked-{}-{number}", running[0]));
            async move { (workspace::send(&client, Agent::Ask, &key).await, key) }
        });
        let sending = join_all(sent);
        let holding = async {
            tokio::time::sleep(held).await;
            let read = workspace::job(&server.client, running[0]).await;
            (lock.release(), read)
        };
        let (sent, (released, read)) = tokio::join!(sending, holding);
        released?;
        workspace
            .cases
            .case(Guarantee::Conditions, read.is_ok(), || format!("reads had to wait for a writer: {read:?}"));
        for (answer, key) in sent {
            locked_out(workspace, &server, answer, &key).await?;
        }
        for view in workspace::ended(&server.client, &running, PATIENCE).await? {
            let good = workspace::answered(&view, &json!("2-4"));
            workspace.cases.case(Guarantee::Conditions, good, || workspace::end(&view));
        }
    }
    server.process.stop().await?;
    Ok(())
}

/// What was acknowledged exists; what was not can be sent again and is made once.
async fn locked_out(
    workspace: &mut Workspace<'_>,
    server: &Server,
    answer: Result<aetheris_core::id::JobId, crate::error::Error>,
    key: &str,
) -> Result<(), Fault> {
    let again =
        workspace::send(&server.client, Agent::Ask, key).await.map_err(|error| Fault::api("a message", error))?;
    workspace.accepted(key, again);
    if let Ok(job) = answer {
        workspace.accepted(key, job);
        workspace.cases.case(Guarantee::Kept, job == again, || format!("the message `{key}` is {job} and {again}"));
    }
    Ok(())
}
