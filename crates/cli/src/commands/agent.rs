//! `agent check`, `agent put`, `agent list`.

use std::path::{Path, PathBuf};

use aetheris_agentfile::FileError;
use aetheris_api::{AgentList, AgentPut};
use aetheris_core::agent::Agent;
use serde_json::{Value, json};

use super::Context;
use crate::args;
use crate::error::{Error, counted};
use crate::exit::Exit;
use crate::payload;
use crate::render::{Table, Tone, cut};

/// Widest description in the list.
const DESCRIPTION_COLUMNS: usize = 60;

pub(super) async fn run(command: args::Agent, context: &Context) -> Result<Exit, Error> {
    match command {
        args::Agent::Check { files } => check(&files, context),
        args::Agent::Put { files } => put(&files, context).await,
        args::Agent::List => list(context).await,
    }
}

/// A file that was read, and what is in it.
struct Checked<'f> {
    path: &'f Path,
    text: String,
    parsed: Result<Agent, Vec<FileError>>,
}

fn read(files: &[PathBuf]) -> Result<Vec<Checked<'_>>, Error> {
    let read = |path: &'_ PathBuf| {
        let text = payload::file(path)?;
        Ok((text.clone(), aetheris_agentfile::parse(&text)))
    };
    files.iter().map(|path| read(path).map(|(text, parsed)| Checked { path, text, parsed })).collect()
}

fn check(files: &[PathBuf], context: &Context) -> Result<Exit, Error> {
    let files = read(files)?;
    if context.out.json {
        context.out.value(&report(&files))?;
    } else {
        for file in files.iter().filter_map(|file| Some((file, file.parsed.as_ref().ok()?))) {
            context.out.line(&good(file.0.path, file.1, context))?;
        }
        for line in mistakes(&files) {
            context.out.line(&line)?;
        }
    }
    Ok(if all_good(&files) { Exit::Done } else { Exit::CheckFailed })
}

fn all_good(files: &[Checked<'_>]) -> bool {
    files.iter().all(|file| file.parsed.is_ok())
}

fn good(path: &Path, agent: &Agent, context: &Context) -> String {
    let sign = context.out.style.paint(Tone::Good, "✓");
    let nodes = counted(agent.plan.nodes.len(), "node");
    format!("{sign} {}: agent {} version {}, {nodes}", path.display(), agent.agent, agent.version)
}

/// Every mistake of every file on a line, and their count at the end.
fn mistakes(files: &[Checked<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for file in files {
        for error in file.parsed.as_ref().err().into_iter().flatten() {
            let path = if error.path.is_empty() { String::new() } else { format!("{}: ", error.path) };
            lines.push(format!("{}:{}: {path}{}", file.path.display(), error.line, error.message));
        }
    }
    if !lines.is_empty() {
        lines.push(counted(lines.len(), "mistake"));
    }
    lines
}

fn report(files: &[Checked<'_>]) -> Value {
    let files: Vec<Value> = files
        .iter()
        .map(|file| match &file.parsed {
            Ok(agent) => json!({
                "file": file.path, "ok": true, "agent": agent.agent, "version": agent.version, "errors": [],
            }),
            Err(errors) => json!({ "file": file.path, "ok": false, "errors": errors }),
        })
        .collect();
    json!({ "ok": files.iter().all(|file| file["ok"] == true), "files": files })
}

async fn put(files: &[PathBuf], context: &Context) -> Result<Exit, Error> {
    let files = read(files)?;
    if !all_good(&files) {
        if context.out.json {
            context.out.value(&report(&files))?;
        } else {
            mistakes(&files).iter().for_each(|line| context.out.note(line));
        }
        return Ok(Exit::CheckFailed);
    }
    let client = context.client()?;
    let mut answers = Vec::new();
    for file in files {
        let Ok(agent) = file.parsed else { continue };
        let answer = client.put_file::<AgentPut>(&["api", "agents", agent.agent.as_str()], file.text).await?;
        if context.out.json {
            answers.push(answer.json()?);
        } else {
            let what = if answer.status == 201 { "created" } else { "put" };
            let put = &answer.body;
            let hash = put.hash.to_string();
            context.out.line(&format!("{} version {} {what}, {}", put.agent, put.version, cut(&hash, 13)))?;
        }
    }
    match answers.as_slice() {
        [] => {}
        [one] => context.out.value(one)?,
        several => context.out.value(&several)?,
    }
    Ok(Exit::Done)
}

async fn list(context: &Context) -> Result<Exit, Error> {
    let answer = context.client()?.get::<AgentList>(&["api", "agents"], &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
        return Ok(Exit::Done);
    }
    if answer.body.agents.is_empty() {
        context.out.note(&format!("no agents yet: {} agent put FILE", context.program()));
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["AGENT", "VERSION", ">NODES", "UPDATED", "DESCRIPTION"]);
    for agent in &answer.body.agents {
        table.row(vec![
            agent.agent.to_string(),
            agent.version.clone(),
            agent.nodes.to_string(),
            context.now().relative(agent.updated_at),
            cut(&agent.description, DESCRIPTION_COLUMNS),
        ]);
    }
    context.out.text(&table.render(context.out.style))?;
    Ok(Exit::Done)
}
