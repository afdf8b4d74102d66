//! Following a job: its events in order, each once, over broken connections and restarted servers.
//!
//! A stream is taken up again after the last event seen. Where a server does not stream, it is asked
//! again and again instead.

use std::time::Duration;

use aetheris_api::{EventPage, EventView, JobView};
use aetheris_core::event::EventKind;
use futures_util::StreamExt;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Client, sse};
use crate::error::Error;

/// Between two questions to a server that does not stream.
const POLL: Duration = Duration::from_millis(500);
/// Between two tries to connect, at most.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a server that was there may be away before it is given up.
pub(crate) const AWAY_MAX: Duration = Duration::from_secs(60);
/// Silence after which a connection is taken for dead and made anew.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// How long a server that takes the connection may take to begin its answer.
const HEAD_MAX: Duration = Duration::from_secs(20);
/// The name of messages that are no facts: pieces of models' answers as they come.
const DELTA: &str = "delta";
/// Events that wait for whoever follows.
const QUEUE: usize = 256;

/// Whether an event of this kind is a job's last.
#[must_use]
pub fn is_last(kind: &str) -> bool {
    [EventKind::JobCompleted, EventKind::JobFailed, EventKind::JobCancelled].iter().any(|last| last.as_str() == kind)
}

/// What whoever follows a job is told.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// The server does not answer; it is asked again and again.
    Away {
        /// When it is given up.
        give_up: Instant,
        /// What the connection said.
        reason: String,
    },
    /// It answers again.
    Back,
    /// An event of the job.
    Event(Box<EventView>),
}

/// The events of a job as they happen.
#[derive(Debug)]
pub struct Follow {
    news: Receiver<Result<News, Error>>,
}

impl Follow {
    /// Follows a job from the event after `after`, until its last event or until this is dropped.
    #[must_use]
    pub fn start(client: &Client, job: &str, after: u64) -> Self {
        let (to, news) = channel(QUEUE);
        let job = job.to_owned();
        let follower =
            Follower { client: client.clone(), job, after, away: false, there_since: None, to, was_there: false };
        tokio::spawn(follower.run());
        Self { news }
    }

    /// The next event; `None` after the last one.
    ///
    /// # Errors
    /// What the server or the connection says, where it is no use to go on.
    pub async fn next(&mut self) -> Result<Option<EventView>, Error> {
        loop {
            match self.news().await? {
                Some(News::Event(event)) => return Ok(Some(*event)),
                Some(News::Away { .. } | News::Back) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next event, or that the server has gone or is back; `None` after the last event.
    ///
    /// # Errors
    /// What the server or the connection says, where it is no use to go on.
    pub async fn news(&mut self) -> Result<Option<News>, Error> {
        self.news.recv().await.transpose()
    }

    /// News that are already here.
    pub fn ready(&mut self) -> Option<Result<News, Error>> {
        self.news.try_recv().ok()
    }
}

struct Follower {
    client: Client,
    job: String,
    after: u64,
    /// Whether it was told that the server does not answer.
    away: bool,
    /// When it answered on the connection that stands now.
    there_since: Option<Instant>,
    to: Sender<Result<News, Error>>,
    /// Whether the server has answered before.
    was_there: bool,
}

/// How a connection ended.
enum End {
    /// The last event was seen, or nobody follows any more.
    Over,
    /// It broke; it is made anew.
    Broken(Error),
    /// It ended while the job goes on, and the server is there; it is made anew.
    Cut(Error),
    /// It ended before the last event of a job that has ended; it is made anew, for as long as a server may be away.
    Short(Error),
    /// The server does not stream.
    NoStream,
}

impl Follower {
    async fn run(mut self) {
        let mut away_since: Option<Instant> = None;
        let mut pause = Duration::from_millis(100);
        let mut polls = false;
        loop {
            let before = self.after;
            let end = if polls { self.poll().await } else { self.stream().await };
            let (answered, quiet) = (self.there_since.take(), matches!(end, Ok(End::Cut(_) | End::Short(_))));
            // A connection that stood for a while says as much as an event: the server was there until now.
            let stood = answered.is_some_and(|since| since.elapsed() > PAUSE_MAX);
            let went_on = self.after > before || stood;
            if went_on {
                pause = Duration::from_millis(100);
            }
            let counts = went_on && !aetheris_fault::planted!("progress-counts-as-away");
            if counts || matches!(end, Ok(End::Cut(_))) {
                away_since = None;
            }
            match end {
                Ok(End::Over) => return,
                Ok(End::NoStream) => polls = true,
                Ok(End::Broken(error) | End::Cut(error) | End::Short(error)) => {
                    // A stream that breaks as soon as it begins is asked for in pages. What comes back may stream again.
                    polls = !polls && answered.is_some() && !went_on;
                    let since = *away_since.get_or_insert_with(Instant::now);
                    if !self.was_there || since.elapsed() > AWAY_MAX {
                        return self.fail(error).await;
                    }
                    if !quiet {
                        self.gone(&error, since + AWAY_MAX).await;
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(error) => return self.fail(error).await,
            }
        }
    }

    /// Says once that the server does not answer.
    async fn gone(&mut self, error: &Error, give_up: Instant) {
        if !std::mem::replace(&mut self.away, true) {
            let reason = match error {
                Error::Unreachable { reason, .. } => reason.clone(),
                other => other.to_string(),
            };
            let _unheard = self.to.send(Ok(News::Away { give_up, reason })).await;
        }
    }

    /// The server has answered.
    async fn there(&mut self) {
        self.was_there = true;
        self.there_since.get_or_insert_with(Instant::now);
        if std::mem::take(&mut self.away) {
            let _unheard = self.to.send(Ok(News::Back)).await;
        }
    }

    async fn fail(&self, error: Error) {
        // Whoever followed may have gone; then nobody wants to know.
        let _unheard = self.to.send(Err(error)).await;
    }

    async fn stream(&mut self) -> Result<End, Error> {
        let url = self.client.url(&["api", "jobs", &self.job, "events", "stream"], &[])?;
        let request = self.client.http.get(url).header("accept", "text/event-stream");
        let request = request.header("last-event-id", self.after.to_string());
        let answered = async {
            let response = request.send().await?;
            if response.status().is_success() {
                return Ok(Ok(response));
            }
            let status = response.status().as_u16();
            Ok(Err((status, response.bytes().await.unwrap_or_default())))
        };
        let answered = tokio::select! {
            answered = timeout_at(Instant::now() + HEAD_MAX, answered) => answered,
            () = self.to.closed() => return Ok(End::Over),
        };
        let response = match answered {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err((status, bytes)))) => return self.refused(status, &bytes),
            Ok(Err(error)) => return Ok(End::Broken(self.client.unreachable(&error))),
            Err(_) => {
                // Something takes the connection: a server that is stopped or stuck may go on.
                self.was_there = true;
                let reason = format!("it has not answered within {}s", HEAD_MAX.as_secs());
                return Ok(End::Broken(Error::Unreachable { server: self.client.server().to_owned(), reason }));
            }
        };
        self.there().await;
        let mut pieces = response.bytes_stream();
        let mut parser = sse::Parser::default();
        loop {
            let piece = tokio::select! {
                piece = pieces.next() => piece,
                () = sleep(SILENCE_MAX) => None,
                () = self.to.closed() => return Ok(End::Over),
            };
            let piece = match piece {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Ok(End::Broken(self.client.unreachable(&error))),
                None => return self.ended().await,
            };
            let Some(messages) = parser.feed(&piece) else { return Ok(End::NoStream) };
            for message in messages.into_iter().filter(|message| message.event != DELTA) {
                let Ok(event) = serde_json::from_str::<EventView>(&message.data) else { return Ok(End::NoStream) };
                if self.pass_on(event).await {
                    return Ok(End::Over);
                }
            }
        }
    }

    fn refused(&self, status: u16, bytes: &[u8]) -> Result<End, Error> {
        let error = self.client.problem("GET events/stream", status, bytes);
        let code = if let Error::Problem(problem) = &error { problem.code.as_str() } else { "" };
        match (code, status) {
            ("job_not_found" | "unauthorized" | "forbidden" | "invalid_request", _) => Err(error),
            ("overloaded", _) | (_, 404 | 405 | 406 | 501) => Ok(End::NoStream),
            _ if error.may_pass() => Ok(End::Broken(error)),
            _ => Err(error),
        }
    }

    /// The stream ended without a last event: it was seen before, or the server went away.
    async fn ended(&self) -> Result<End, Error> {
        match self.client.get::<JobView>(&["api", "jobs", &self.job], &[]).await {
            Ok(job)
                if job.body.status.is_terminal()
                    && (job.body.seq <= self.after || aetheris_fault::planted!("broken-stream-is-the-end")) =>
            {
                Ok(End::Over)
            }
            Ok(job) => {
                let server = self.client.server().to_owned();
                if job.body.status.is_terminal() {
                    let reason = format!("it has {} events of the job and brings {}", job.body.seq, self.after);
                    return Ok(End::Short(Error::Unreachable { server, reason }));
                }
                Ok(End::Cut(Error::Unreachable { server, reason: "the stream ended early".to_owned() }))
            }
            // What a restart behind a proxy is met with first.
            Err(error) if error.may_pass() => Ok(End::Broken(error)),
            Err(error) => Err(error),
        }
    }

    async fn poll(&mut self) -> Result<End, Error> {
        loop {
            let after = self.after.to_string();
            let path = ["api", "jobs", &self.job, "events"];
            let page = match self.client.get::<EventPage>(&path, &[("after", &after)]).await {
                Ok(page) => page.body,
                Err(error) if error.may_pass() => return Ok(End::Broken(error)),
                Err(error) => return Err(error),
            };
            self.there().await;
            let more = page.next_after.is_some() && !page.events.is_empty();
            let before = self.after;
            for event in page.events {
                if self.pass_on(event).await {
                    return Ok(End::Over);
                }
            }
            if more && self.after == before {
                let server = self.client.server().to_owned();
                let reason = format!("its page of events behind {before} brings none behind it");
                return Ok(End::Short(Error::Unreachable { server, reason }));
            }
            if !more {
                match self.ended().await? {
                    // Without a stream, one that is cut is a job that goes on.
                    End::Cut(_) => {}
                    end @ (End::Over | End::Broken(_) | End::NoStream | End::Short(_)) => return Ok(end),
                }
                tokio::select! {
                    () = sleep(POLL) => {}
                    () = self.to.closed() => return Ok(End::Over),
                }
            }
        }
    }

    /// Hands an event on, each once; whether that was all.
    async fn pass_on(&mut self, event: EventView) -> bool {
        if event.seq <= self.after {
            return false;
        }
        self.after = event.seq;
        let last = is_last(&event.kind);
        self.to.send(Ok(News::Event(Box::new(event)))).await.is_err() || last
    }
}
