//! What the command line and the API tell of jobs that have ended, beside what is stored.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use futures_util::{StreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Clients;
use super::commands::Commands;
use super::oracle::Oracle;
use super::stored::{Stored, difference};
use crate::sse::differing;

/// Jobs of each end that are looked at.
const OF_EACH: usize = 6;
/// Commands that run at once.
const AT_ONCE: usize = 4;
/// How often everything about a job is asked again where it moved meanwhile: an answer that came late is written after
/// its job's end.
const TRIES: u32 = 5;
/// Events of one page of the API: a job has several.
const PAGE: usize = 97;
/// The exit of `verify` where something does not add up.
pub(super) const EXIT_CHECK_FAILED: i32 = 6;

/// What was told of one job.
#[derive(Default)]
struct Told {
    /// By `show`, beside the API.
    as_the_api: Option<String>,
    /// By `events`.
    events: Option<String>,
    /// By the API's pages of events.
    pages: Option<String>,
    /// By `show`.
    show: Option<String>,
    /// By `verify`.
    verify: Option<String>,
}

/// Asks about a sample of ended jobs, and for the list of all.
///
/// # Errors
/// A command cannot be run, or the store not be read. What is told and wrong is in the oracles.
pub async fn check(stored: &Stored, clients: &Clients, commands: &Commands, server: &str) -> Result<Vec<Oracle>> {
    let mut show = Oracle::new("`show --json` of an ended job says what is stored");
    let mut as_the_api = Oracle::new("`show --json` of an ended job says what the API says");
    let mut events = Oracle::new("`events --json` of an ended job says what is stored");
    let mut pages = Oracle::new("the API's pages of an ended job's events say what is stored");
    let mut verify = Oracle::new("`verify` calls an ended job valid that is whole");
    let jobs = stored.ended(OF_EACH)?;
    let asked = stream::iter(&jobs).map(|job| one(stored, clients, commands, server, job));
    let all: Vec<Result<Told>> = asked.buffer_unordered(AT_ONCE).collect().await;
    for told in all {
        let told = told?;
        show.found(told.show);
        as_the_api.found(told.as_the_api);
        events.found(told.events);
        pages.found(told.pages);
        verify.found(told.verify);
    }
    Ok(vec![show, as_the_api, events, pages, verify, list(stored, commands, server).await?])
}

async fn one(stored: &Stored, clients: &Clients, commands: &Commands, server: &str, job: &str) -> Result<Told> {
    let mut told = Told::default();
    for _ in 0..TRIES {
        let (row, log) = (stored.job(job)?, stored.events(job)?);
        let show = commands.run(server, &["show", job]).await?;
        let events = commands.run(server, &["events", job]).await?;
        let verify = commands.run(server, &["verify", job]).await?;
        let view = get(clients, &format!("/api/jobs/{job}")).await?;
        let pages = pages(clients, job).await?;
        let of = |wrong: String| format!("{job}: {wrong}");
        told = Told {
            as_the_api: (show.value != view).then(|| of(format!("{} and {view}", show.value))),
            events: differing(&log, events.value.as_array().map_or(&[][..], Vec::as_slice)).map(of),
            pages: differing(&log, &pages).map(of),
            show: difference(&row, &show.value).or((show.exit != Some(0)).then(|| exit(show.exit))).map(of),
            verify: (verify.exit != Some(0) || verify.value["valid"] != true)
                .then(|| of(format!("{}: {}", exit(verify.exit), verify.value))),
        };
        // What moved meanwhile was told of two states.
        if stored.job(job)? == row {
            break;
        }
    }
    Ok(told)
}

fn exit(code: Option<i32>) -> String {
    code.map_or_else(|| "a signal ended it".to_owned(), |code| format!("exit {code}"))
}

async fn get(clients: &Clients, path: &str) -> Result<Value> {
    let (status, value) = clients.ask(&Method::GET, path, None, None).await?;
    Ok(if status.is_success() { value } else { json!({"status": status.as_u16(), "problem": value}) })
}

/// A job's events by the API, page by page.
pub(super) async fn pages(clients: &Clients, job: &str) -> Result<Vec<Value>> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = get(clients, &format!("/api/jobs/{job}/events?after={after}&limit={PAGE}")).await?;
        all.extend(page["events"].as_array().cloned().unwrap_or_default());
        match page["next_after"].as_u64() {
            Some(next) if next > after => after = next,
            _ => return Ok(all),
        }
    }
}

/// The list of all jobs, and that of each status that has one.
async fn list(stored: &Stored, commands: &Commands, server: &str) -> Result<Oracle> {
    let mut oracle = Oracle::new("`jobs --json` lists what is stored");
    let statuses = ["completed", "failed", "cancelled", "waiting", "parked"];
    let filters = std::iter::once(None).chain(statuses.into_iter().map(Some));
    for filter in filters {
        let mut wrong = BTreeMap::new();
        let mut cases = 0;
        for _ in 0..TRIES {
            let before = stored.list()?;
            let mut arguments = vec!["jobs", "--all"];
            arguments.extend(filter.iter().flat_map(|status| ["--status", status]));
            let said = commands.run(server, &arguments).await?;
            let jobs = said.value["jobs"].as_array().with_context(|| format!("{arguments:?}: {said:?}"))?;
            wrong = missing(&before, jobs, filter);
            cases = jobs.len();
            if stored.list()? == before {
                break;
            }
        }
        (wrong.len()..cases).for_each(|_| oracle.case(true, String::new));
        wrong.into_values().for_each(|wrong| oracle.found(Some(format!("{filter:?}: {wrong}"))));
    }
    Ok(oracle)
}

/// What is wrong with a list, by job.
fn missing(
    stored: &BTreeMap<String, (String, i64, String)>,
    told: &[Value],
    filter: Option<&str>,
) -> BTreeMap<String, String> {
    let mut wrong = BTreeMap::new();
    let mut left = stored.clone();
    left.retain(|_, (status, _, _)| filter.is_none_or(|filter| filter == status));
    for job in told {
        let id = job["id"].as_str().unwrap_or_default().to_owned();
        let said = (job["status"].clone(), job["seq"].clone(), job["agent"].clone());
        match left.remove(&id) {
            Some((status, seq, agent)) if said == (json!(status), json!(seq), json!(agent)) => {}
            Some(stored) => drop(wrong.insert(id, format!("{said:?} is told, {stored:?} is stored"))),
            // A row that cannot be read may be told as far as it can.
            None if job["agent"] == super::poison::AGENT => {}
            None => drop(wrong.insert(id.clone(), format!("{id} is told once more than it is stored"))),
        }
    }
    wrong.extend(left.into_keys().map(|id| (id.clone(), format!("{id} is not told"))));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_compared_job_by_job() {
        let row = |status: &str, seq| (status.to_owned(), seq, "a".to_owned());
        let stored = BTreeMap::from([("j1".to_owned(), row("completed", 3)), ("j2".to_owned(), row("failed", 4))]);
        let told = |id: &str, status: &str, seq: u64| json!({"id": id, "status": status, "seq": seq, "agent": "a"});
        let whole = [told("j2", "failed", 4), told("j1", "completed", 3)];
        assert!(missing(&stored, &whole, None).is_empty());
        assert!(missing(&stored, &whole[..1], Some("failed")).is_empty());
        for (told, filter) in [
            (vec![told("j1", "completed", 3)], None),
            (vec![told("j1", "completed", 3), told("j2", "failed", 4), told("j2", "failed", 4)], None),
            (vec![told("j1", "completed", 2), told("j2", "failed", 4)], None),
            (vec![told("j1", "completed", 3), told("j2", "failed", 4)], Some("failed")),
        ] {
            assert_eq!(missing(&stored, &told, filter).len(), 1, "{told:?}");
        }
    }

    #[test]
    fn lists_of_events_differ_by_one_event_or_by_a_field_of_one() {
        let log = [json!({"seq": 1}), json!({"seq": 2})];
        assert_eq!(differing(&log, &log), None);
        assert!(differing(&log, &log[..1]).unwrap().starts_with("1 events are told"));
        let other = [json!({"seq": 1}), json!({"seq": 2, "at": "x"})];
        assert!(differing(&log, &other).unwrap().contains("is told"));
    }
}
