//! Followers of jobs: some read the API's event streams by themselves and come back with the last id that they have,
//! some are the command line with `--follow`. Through all that is done to the API each has to end with exactly the events
//! that are stored.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail};
use reqwest::Client;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::Clients;
use super::commands::Commands;
use super::oracle::Oracle;
use super::stored::{self, Stored};
use crate::sse::{SseParser, differing};

/// One job in so many is followed by a reader of its stream.
const READ: usize = 9;
/// One job in so many is followed by the command line.
const COMMANDED: usize = 14;
/// After so many looks a job is followed that has ended: where its stream breaks, its end is known before its events are.
const LARGE_EVERY: u64 = 10;
/// Such jobs.
const LARGE: &str = "SELECT id FROM jobs WHERE seq > 600 AND status IN (4, 5, 6) ORDER BY num DESC LIMIT 1";
/// How often it is looked for new jobs.
const LOOK: Duration = Duration::from_millis(100);
/// The pause before a follower comes back.
const PAUSE: Duration = Duration::from_millis(100);
/// A stream that says nothing for so long is left, and taken up again.
const SILENCE: Duration = Duration::from_secs(4);
/// How long the last events may take to arrive when everything is at rest: a connection that is half open is given up by
/// the proxy after 20 s.
const LAST: Duration = Duration::from_secs(40);
/// How the command line ends where it has no server.
const EXIT_UNREACHABLE: i32 = 5;
/// How long it has at least waited for a server that was there: a minute, less what its last line took to get here.
const AWAY: Duration = Duration::from_secs(55);

/// One follower.
#[derive(Debug)]
struct Follower {
    job: String,
    /// How often it came back.
    breaks: AtomicU64,
    by_command: bool,
    /// What it was told, in the order in which it came.
    seen: Mutex<Vec<Value>>,
    /// What was wrong with how it was told.
    wrong: Mutex<Option<String>>,
}

impl Follower {
    fn new(job: String, by_command: bool) -> Arc<Self> {
        Arc::new(Self { job, breaks: AtomicU64::new(0), by_command, seen: Mutex::default(), wrong: Mutex::default() })
    }

    fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes an event; whether it is the last one.
    fn take(&self, event: Value) -> bool {
        let end = stored::is_end(&event);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        end
    }

    fn last(&self) -> u64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.last().and_then(|event| event["seq"].as_u64()).unwrap_or(0)
    }

    /// What is wrong with what it was told, beside what is stored.
    fn judged(&self, stored: &[Value]) -> Option<String> {
        let (seen, wrong) = (self.seen(), self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let places: Vec<u64> = seen.iter().filter_map(|event| event["seq"].as_u64()).collect();
        let twice = stored::repeated(&places);
        let twice = (!twice.is_empty()).then(|| format!("{twice:?} came more than once"));
        let found = wrong.or(twice).or_else(|| differing(&stored[..stored::streamed(stored)], &seen))?;
        Some(format!("{}, taken up {} times: {found}", self.job, self.breaks.load(Ordering::Relaxed)))
    }
}

/// The followers of a run.
#[derive(Debug)]
pub struct Followers {
    api: SocketAddr,
    clients: Arc<Clients>,
    commands: Commands,
    database: PathBuf,
    http: Client,
    list: Mutex<Vec<Arc<Follower>>>,
}

impl Followers {
    /// Followers at the server behind `api`, of jobs in that database.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn new(api: SocketAddr, clients: Arc<Clients>, commands: Commands, database: PathBuf) -> Result<Arc<Self>> {
        let http = Client::builder().no_proxy().build()?;
        Ok(Arc::new(Self { api, clients, commands, database, http, list: Mutex::default() }))
    }

    /// A job that has ended and is told in many pieces, where there is one.
    fn large(&self) -> Option<String> {
        Stored::open(&self.database).ok()?.names(LARGE).ok()?.pop()
    }

    /// A new follower of a job.
    fn new_of(&self, job: String, by_command: bool) -> Arc<Follower> {
        let follower = Follower::new(job, by_command);
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&follower));
        follower
    }

    fn list(&self) -> Vec<Arc<Follower>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Follows a sample of whatever is sent, until it is told to stop; then nobody follows any more.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut following, mut known, mut place) = (JoinSet::new(), BTreeSet::new(), 0);
        let mut looks = 0_u64;
        while !stop.is_cancelled() {
            for job in self.clients.submitted_after(place) {
                place += 1;
                if !known.insert(job) {
                    continue;
                }
                for (every, by_command) in [(READ, false), (COMMANDED, true)] {
                    if known.len() % every == 1 {
                        following.spawn(Arc::clone(&self).follow(self.new_of(job.to_string(), by_command)));
                    }
                }
            }
            looks += 1;
            if looks.is_multiple_of(LARGE_EVERY)
                && let Some(job) = self.large()
            {
                let by_command = looks.is_multiple_of(2 * LARGE_EVERY);
                following.spawn(Arc::clone(&self).follow(self.new_of(job, by_command)));
            }
            while following.try_join_next().is_some() {}
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn follow(self: Arc<Self>, follower: Arc<Follower>) {
        loop {
            let ended = if follower.by_command { self.command(&follower).await } else { self.stream(&follower).await };
            match ended {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    *follower.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{error:#}"));
                    return;
                }
            }
            follower.breaks.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads a stream from behind the last event on; whether that was all.
    async fn stream(&self, follower: &Follower) -> Result<bool> {
        let url = format!("http://{}/api/jobs/{}/events/stream", self.api, follower.job);
        let mut request = self.http.get(url);
        let last = follower.last();
        if last > 0 {
            request = request.header("last-event-id", last.to_string());
        }
        let answer = tokio::select! {
            answer = request.send() => answer,
            () = tokio::time::sleep(SILENCE) => return Ok(false),
        };
        let Ok(mut answer) = answer else { return Ok(false) };
        let status = answer.status();
        if status.is_server_error() || status.as_u16() == 429 {
            return Ok(false);
        }
        if !status.is_success() {
            bail!("its stream: {status}");
        }
        let mut messages = SseParser::default();
        loop {
            let piece = tokio::select! {
                piece = answer.chunk() => piece,
                () = tokio::time::sleep(SILENCE) => return Ok(false),
            };
            let Ok(Some(piece)) = piece else { return Ok(false) };
            for event in messages.feed(&piece)? {
                if follower.take(event) {
                    return Ok(true);
                }
            }
        }
    }

    /// Lets the command line follow; whether it came to the end. Where there was no server from the beginning on, or none
    /// for as long as it waits, a person starts it again behind the last event seen.
    async fn command(&self, follower: &Follower) -> Result<bool> {
        let server = format!("http://{}", self.api);
        let after = follower.last().to_string();
        let mut child = self.commands.start(&server, &["events", &follower.job, "--follow", "--after", &after])?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let mut heard = None;
        while let Some(line) = lines.next_line().await? {
            let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
            if event.get("seq").is_some() {
                heard = Some(SystemClock.boot());
                follower.take(event);
            }
        }
        let silent = heard.map(|at| SystemClock.boot() - at);
        match child.wait().await?.code() {
            Some(0) => Ok(true),
            Some(EXIT_UNREACHABLE) if silent.is_none_or(|silent| silent >= AWAY) => Ok(false),
            code => bail!("`events --follow` ended with {code:?}, its last event {silent:?} before"),
        }
    }

    /// Waits for the last events, and compares what everybody was told with what is stored.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn judge(&self, stored: &Stored) -> Result<Vec<Oracle>> {
        let mut streams = Oracle::new("a job's stream brings each event that is stored once and in order");
        let mut commands = Oracle::new("`events --follow` prints each event that is stored once and in order");
        let mut breaks = Oracle::new("streams were taken up again by their last id");
        let began = SystemClock.boot();
        for follower in self.list() {
            let mut wrong = follower.judged(&stored.events(&follower.job)?);
            while wrong.is_some() && SystemClock.boot() - began < LAST {
                tokio::time::sleep(LOOK).await;
                wrong = follower.judged(&stored.events(&follower.job)?);
            }
            let taken_up = follower.breaks.load(Ordering::Relaxed);
            if follower.by_command {
                commands.found(wrong);
            } else {
                (0..taken_up).for_each(|_| breaks.case(true, String::new));
                streams.found(wrong);
            }
        }
        Ok(vec![streams, breaks, commands])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_follower_has_seen_each_event_once_and_in_order() {
        let log: Vec<Value> = ["job_created", "job_claimed", "job_completed", "in_doubt_resolved"]
            .iter()
            .zip(1..)
            .map(|(kind, seq)| json!({"seq": seq, "type": kind}))
            .collect();
        let judged = |order: &[usize]| {
            let follower = Follower::new("job".to_owned(), false);
            for place in order {
                follower.take(log[*place].clone());
            }
            follower.judged(&log)
        };
        assert_eq!(judged(&[0, 1, 2]), None);
        for wrong in [&[0, 1][..], &[0, 2], &[0, 1, 1, 2], &[1, 0, 2], &[0, 1, 2, 3]] {
            assert!(judged(wrong).is_some(), "{wrong:?}");
        }
    }
}
