//! `agent check`, `agent put`, `agent list`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use aetheris_api::{AgentList, AgentPut, AgentView};
use aetheris_core::agent::{Agent, Planner};
use aetheris_core::hash::Hash;
use aetheris_core::id::AgentName;
use serde_json::{Value, json};

use super::Context;
use super::agent_files::{self, Good, all_good, mistakes, report, shown};
use crate::args;
use crate::client::Client;
use crate::error::{Error, counted};
use crate::exit::Exit;
use crate::render::safe::one_line;
use crate::render::{Table, Tone, cut};

pub(super) async fn run(command: args::Agent, context: &Context) -> Result<Exit, Error> {
    match command {
        args::Agent::Check { files } => check(&files, context),
        args::Agent::Put { files } => put(&files, context).await,
        args::Agent::List => list(context).await,
    }
}

fn check(files: &[PathBuf], context: &Context) -> Result<Exit, Error> {
    let files = agent_files::read(files);
    if context.out.json {
        context.out.value(&report(&files))?;
    } else {
        for (file, read) in files.iter().filter_map(|file| Some((file, file.parsed.as_ref().ok()?))) {
            context.out.line(&good(file.path, &read.agent, context))?;
        }
        for line in mistakes(&files) {
            context.out.line(&line)?;
        }
    }
    Ok(if all_good(&files) { Exit::Done } else { Exit::CheckFailed })
}

fn good(path: &Path, agent: &Agent, context: &Context) -> String {
    let sign = context.out.style.paint(Tone::Good, "✓");
    let nodes = match agent.planner {
        Planner::Static => counted(agent.nodes(), "node"),
        Planner::Rules => counted(agent.plan.rules().len(), "rule"),
        Planner::Llm => "planned by a model".to_owned(),
    };
    format!("{sign} {}: agent {} version {}, {nodes}", shown(path), agent.agent, agent.version)
}

async fn put(files: &[PathBuf], context: &Context) -> Result<Exit, Error> {
    let files = agent_files::read(files);
    if !all_good(&files) {
        if context.out.json {
            context.out.value(&report(&files))?;
        } else {
            mistakes(&files).iter().for_each(|line| context.out.note(line));
        }
        return Ok(Exit::CheckFailed);
    }
    let client = context.client()?;
    // Only for what is said: where the list cannot be read, the answers say enough.
    let known = all(&client, false).await.map(|(agents, _)| agents).unwrap_or_default();
    let known = known.into_iter().map(|agent| (agent.agent, (agent.hash, agent.version)));
    let mut known: BTreeMap<AgentName, (Hash, String)> = known.collect();
    let (mut answers, count) = (Vec::new(), files.len());
    for file in files {
        let Ok(Good { agent, text }) = file.parsed else { continue };
        let sent = client.put_file::<AgentPut>(&["api", "agents", agent.agent.as_str()], text).await;
        if sent.is_err() && count > 1 {
            context.out.note(&format!("{}: not put, and none after it", shown(file.path)));
        }
        let answer = sent?;
        let put = &answer.body;
        // Of two files of one agent, the second finds the first.
        let before = known.insert(put.agent.clone(), (put.hash, put.version.clone()));
        if context.out.json {
            let mut value = answer.json()?;
            value["became"] = became_name(put, answer.status, before.as_ref()).into();
            answers.push(value);
        } else {
            let became = became(put, answer.status, before);
            context.out.line(&format!("{} version {} {became}", put.agent, put.version))?;
        }
    }
    match answers.as_slice() {
        [] => {}
        [one] => context.out.value(one)?,
        several => context.out.value(&several)?,
    }
    Ok(Exit::Done)
}

/// What became of the agent of a file.
fn became(put: &AgentPut, status: u16, before: Option<(Hash, String)>) -> String {
    let now = short(put.hash);
    match before {
        _ if status == 201 => format!("created, {now}"),
        Some((hash, _)) if hash == put.hash => format!("unchanged, {now}"),
        Some((hash, version)) => replaces((hash, &version), (put.hash, &put.version)),
        None => format!("put, {now}"),
    }
}

/// The same in one word; `null` where nobody can say what was there before.
fn became_name(put: &AgentPut, status: u16, before: Option<&(Hash, String)>) -> Option<&'static str> {
    match before {
        _ if status == 201 => Some("created"),
        Some((hash, _)) if *hash == put.hash => Some("unchanged"),
        Some(_) => Some("replaced"),
        None => None,
    }
}

/// What a file does to another one of the same agent.
pub(super) fn replaces((old, version): (Hash, &str), (new, new_version): (Hash, &str)) -> String {
    let same = if version == new_version { " (the same version)" } else { "" };
    let (old, new) = (short(old), short(new));
    format!("replaces version {version}{same}, {old} by {new}: jobs sent before keep the old file")
}

fn short(hash: Hash) -> String {
    cut(&hash.to_string(), 13)
}

/// Every agent of the server, page by page; and as the server wrote them, where that is wanted.
async fn all(client: &Client, raw: bool) -> Result<(Vec<AgentView>, Vec<Value>), Error> {
    let (mut agents, mut written) = (Vec::new(), Vec::new());
    let mut pages = client.pages(&["api", "agents"], []);
    while let Some(page) = pages.next::<AgentList>().await? {
        if raw {
            written.extend(super::jobs::items(page.json()?, "agents"));
        }
        agents.extend(page.body.agents);
    }
    Ok((agents, written))
}

async fn list(context: &Context) -> Result<Exit, Error> {
    let (agents, written) = all(&context.client()?, context.out.json).await?;
    if context.out.json {
        context.out.value(&json!({ "agents": written }))?;
        return Ok(Exit::Done);
    }
    if agents.is_empty() {
        context.out.note(&format!("no agents yet: {} agent put FILE", context.program()));
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["AGENT", "VERSION", ">NODES", "UPDATED", "~DESCRIPTION"]);
    for agent in &agents {
        table.row(vec![
            agent.agent.to_string(),
            agent.version.clone(),
            if agent.planner == Planner::Llm.as_str() { "by model".to_owned() } else { agent.nodes.to_string() },
            context.now().relative(agent.updated_at),
            one_line(&agent.description),
        ]);
    }
    context.out.text(&table.render(context.out.style))?;
    Ok(Exit::Done)
}
