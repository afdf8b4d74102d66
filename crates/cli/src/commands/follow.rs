//! `watch`, `events`, and the waiting of `send --wait`.

use std::time::Duration;

use aetheris_api::{Command, EventPage, EventView, JobView, TraceStep, WhyCode, WhyView};
use aetheris_core::job::JobStatus;
use aetheris_core::time::Span;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Context, jobs};
use crate::args;
use crate::client::{AWAY_MAX, Answer, Client, Follow, News};
use crate::error::Error;
use crate::exit::Exit;
use crate::render::{self, Now, Style, Tone, Values, steps, width, wrap};

/// How often a live list is drawn again while nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// How long a job may be unclaimed before it is said that no worker works.
const UNCLAIMED_TOLD: Duration = Duration::from_secs(3);
/// Most steps of a live list.
const LIVE_STEPS_MAX: usize = 18;
/// Events asked for at a time.
const PAGE: &str = "1000";
/// How long a server has to say where a job is whose watching has timed out.
const LAST_LOOK_MAX: Duration = Duration::from_secs(5);
/// Longer than anyone watches.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What is shown of a job's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Its steps as they happen, and how it ended.
    Steps,
    /// Its result alone, for whoever reads stdout.
    Result,
}

pub(super) async fn watch(given: &args::Watch, context: &Context) -> Result<Exit, Error> {
    until_end(&context.client()?, &given.job, given.timeout, Show::Steps, context).await
}

/// Follows a job to its end.
pub(super) async fn until_end(
    client: &Client,
    job: &str,
    timeout: Option<Span>,
    show: Show,
    context: &Context,
) -> Result<Exit, Error> {
    let until = Instant::now() + timeout.map_or(FOREVER, Span::to_std);
    // Also who waits for no time at all is told where the job is.
    let first = by(until.max(Instant::now() + LAST_LOOK_MAX), client, jobs::get(client, job)).await?.body;
    let (id, ended_before) = (first.id, first.status.is_terminal());
    // Views of jobs are large.
    let followed = Box::pin(async {
        if context.out.live { live(client, first, context).await } else { plain(client, &first, show, context).await }
    });
    let watch = || Command::Watch(id).line(&context.program());
    let ended = ended_before
        || tokio::select! {
            biased;
            over = timeout_at(until, followed) => over.map_or(Ok(false), |over| over.map(|()| true))?,
            () = interrupted() => {
                context.out.note(&format!("no longer watched; the job goes on. Follow it with: {}", watch()));
                return Ok(Exit::Interrupted);
            }
        };
    let last_look = Instant::now() + LAST_LOOK_MAX;
    let answer = if ended {
        by(until.max(last_look), client, got(client, job)).await?
    } else {
        by(last_look, client, jobs::get(client, job)).await?
    };
    if context.out.json {
        context.out.value(&answer.json()?)?;
    } else if ended {
        let drawn = context.out.live || (ended_before && show == Show::Steps);
        if drawn {
            let plan = timeout_at(until.max(last_look), jobs::plan(client, job)).await.unwrap_or_default();
            // Nothing is drawn over it any more.
            let text = picture(&answer.body, &plan, usize::MAX, context.out.style_now(), context.now(), context);
            context.out.text(&format!("{text}\n"))?;
        }
        print_end(&answer.body, show, context)?;
    }
    if !ended {
        let status = answer.body.status.as_str();
        context.out.note(&format!("timed out; the job is {status}. Follow it with: {}", watch()));
        return Ok(Exit::StillRunning);
    }
    Ok(if answer.body.status == JobStatus::Completed { Exit::Done } else { Exit::Failed })
}

/// Ctrl-C. Whoever presses it stops watching, and not the job.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// An answer that has to come by a moment.
async fn by<T>(until: Instant, client: &Client, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout_at(until, answer).await.unwrap_or_else(|_| {
        let reason = "it has not answered in time".to_owned();
        Err(Error::Unreachable { server: client.server().to_owned(), reason })
    })
}

/// The job, of a server that was there a moment ago and may be about to come back.
async fn got(client: &Client, job: &str) -> Result<Answer<JobView>, Error> {
    let give_up = Instant::now() + AWAY_MAX;
    loop {
        match jobs::get(client, job).await {
            Err(error) if error.may_pass() && Instant::now() < give_up => sleep(TICK).await,
            answer => return answer,
        }
    }
}

fn print_end(job: &JobView, show: Show, context: &Context) -> Result<(), Error> {
    let style = if show == Show::Result { context.out.style_aside } else { context.out.style };
    if show == Show::Result && job.status == JobStatus::Completed {
        let result = job.result.as_ref().map_or(&serde_json::Value::Null, |result| result.value());
        return context.out.line(&render::json_page(result, 0));
    }
    let told = job.error.is_some() || job.status == JobStatus::Completed;
    let head = if told { String::new() } else { format!("{}\n", style.job(job.status)) };
    let end = head + &render::jobs::ending(job, &context.program(), style).unwrap_or_default();
    if show == Show::Result {
        context.out.aside(&end);
        return Ok(());
    }
    context.out.text(&end)
}

/// What a live list shows.
struct Live {
    /// Since when the server does not answer, when it is given up, and what the connection said.
    away: Option<(Now, Instant, String)>,
    job: JobView,
    plan: Vec<TraceStep>,
    /// Whether the job is not as it is shown.
    stale: bool,
    /// Why it is pending, where nothing happens for a while.
    why: Option<WhyView>,
    /// Since when it is seen to be pending.
    pending_since: Instant,
}

/// A list of steps that is drawn again in place until the job has ended.
async fn live(client: &Client, job: JobView, context: &Context) -> Result<(), Error> {
    let id = job.id.to_string();
    let plan = jobs::plan(client, &id).await;
    let mut follow = Follow::start(client, &id, job.seq);
    let mut screen = Screen { context, text: String::new() };
    let why = jobs::held_up(client, &job).await;
    let mut shown = Live { away: None, job, plan, stale: false, why, pending_since: Instant::now() };
    let mut over = false;
    loop {
        screen.draw(&shown.picture(client.server(), context))?;
        if over || shown.job.status.is_terminal() {
            return screen.clear();
        }
        tokio::select! {
            news = follow.news() => {
                over = !shown.take(news?, context);
                while let Some(more) = follow.ready() {
                    shown.take(Some(more?), context);
                }
            }
            () = sleep(TICK) => {}
        }
        if shown.stale
            && shown.away.is_none()
            && let Some(new) = refreshed(client, &id).await?
        {
            if shown.job.seq != new.seq {
                shown.pending_since = Instant::now();
            }
            shown.why = jobs::held_up(client, &new).await;
            (shown.job, shown.stale) = (new, false);
        }
    }
}

impl Live {
    /// Takes news; whether there can be more.
    fn take(&mut self, news: Option<News>, context: &Context) -> bool {
        match news {
            None => {
                self.stale = true;
                return false;
            }
            Some(News::Event(_)) => self.stale = true,
            Some(News::Back) => (self.away, self.stale) = (None, true),
            Some(News::Away { give_up, reason }) => self.away = Some((context.now(), give_up, reason)),
        }
        true
    }

    /// The list, as it was when the server was heard last.
    fn picture(&self, server: &str, context: &Context) -> String {
        let style = context.out.style_now();
        let now = self.away.as_ref().map_or_else(|| context.now(), |(since, _, _)| *since);
        // What is higher than the terminal cannot be drawn over.
        let rows = context.out.rows_now().unwrap_or(usize::MAX);
        let most = rows.saturating_sub(OTHER_LINES).clamp(1, LIVE_STEPS_MAX);
        let mut text = picture(&self.job, &self.plan, most, style, now, context);
        // A worker that is there takes it within a moment.
        let told = |why: &&WhyView| why.code != WhyCode::NoWorker || self.pending_since.elapsed() >= UNCLAIMED_TOLD;
        if let Some(why) = self.why.as_ref().filter(told) {
            let line = format!("pending: {}", render::why::line(why, now));
            text.push_str(&format!("{}\n", style.paint(Tone::Attention, &wrap(&line, style.columns, 0, 2))));
        }
        if let Some((_, give_up, reason)) = &self.away {
            let left = give_up.saturating_duration_since(Instant::now()).as_secs();
            let line = format!("no answer from {server}: {reason}; trying again, for {left}s more");
            text.push_str(&format!("{}\n", style.paint(Tone::Bad, &wrap(&line, style.columns, 0, 2))));
        }
        text
    }
}

/// A job as it is now; nothing while the server is away, as whoever follows the job waits for it.
async fn refreshed(client: &Client, job: &str) -> Result<Option<JobView>, Error> {
    match jobs::get(client, job).await {
        Ok(answer) => Ok(Some(answer.body)),
        Err(error) if error.may_pass() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lines of a live list that are not steps.
const OTHER_LINES: usize = 8;

/// The text of a list of so many steps at most.
fn picture(job: &JobView, plan: &[TraceStep], most: usize, style: Style, now: Now, context: &Context) -> String {
    let mut lines = steps::lines(job, plan);
    let left_out = lines.len().saturating_sub(most);
    if left_out > 0 {
        let active = lines.iter().position(steps::Line::is_open).unwrap_or(lines.len());
        let from = active.saturating_sub(most / 2).min(left_out);
        lines = lines.split_off(from);
        lines.truncate(most);
    }
    let mut text = format!("{}\n", render::jobs::headline(job, style, now));
    text.push_str(&steps::render(&lines, &Values::default(), style, now));
    if left_out > 0 {
        text.push_str(&format!("  … and {left_out} more\n"));
    }
    for waiting in job.open_waits().take(WAITS_DRAWN) {
        text.push_str(&render::jobs::wait(job, waiting, &context.program(), style, now));
    }
    text
}

/// So many waits of a job are drawn below its steps.
const WAITS_DRAWN: usize = 3;

/// The part of a terminal that is drawn again.
struct Screen<'c> {
    context: &'c Context,
    /// What was drawn last.
    text: String,
}

impl Screen<'_> {
    /// Draws over what was drawn before.
    fn draw(&mut self, text: &str) -> Result<(), Error> {
        let back = self.back();
        text.clone_into(&mut self.text);
        self.context.out.text(&format!("{back}{text}"))
    }

    /// Takes away what was drawn.
    fn clear(&mut self) -> Result<(), Error> {
        let back = self.back();
        self.text.clear();
        self.context.out.text(&back)
    }

    fn back(&self) -> String {
        let rows: usize = self.text.lines().map(|line| rows(line, self.context.out.style_now().columns)).sum();
        if rows == 0 { String::new() } else { format!("\u{1b}[{rows}A\r\u{1b}[J") }
    }
}

/// The rows that a line takes on a terminal, which breaks it where it ends.
fn rows(line: &str, columns: Option<usize>) -> usize {
    columns.map_or(1, |columns| width(line).div_ceil(columns.max(1)).max(1))
}

/// What happens, line by line, until the job has ended.
async fn plain(client: &Client, job: &JobView, show: Show, context: &Context) -> Result<(), Error> {
    let id = job.id.to_string();
    let quiet = show == Show::Result || context.out.json;
    for waiting in job.open_waits() {
        say_wait(job, waiting, context);
    }
    if let Some(why) = jobs::held_up(client, job).await.filter(|why| why.code != WhyCode::NoWorker) {
        context.out.note(&format!("pending: {}", render::why::line(&why, context.now())));
    }
    let after = if quiet { job.seq } else { 0 };
    let mut follow = Follow::start(client, &id, after);
    // A worker that is there takes it within a moment: of none people hear only when that has passed.
    let (mut unclaimed, mut claimed) = (std::pin::pin!(sleep(UNCLAIMED_TOLD)), false);
    loop {
        let news = tokio::select! {
            news = follow.news() => news?,
            () = unclaimed.as_mut(), if !claimed => {
                claimed = true;
                tell_unclaimed(client, &id, context).await;
                continue;
            }
        };
        let Some(news) = news else { return Ok(()) };
        let Some(event) = event_or_note(news, client, context) else { continue };
        if event.kind == "job_claimed" {
            claimed = true;
        }
        if !quiet && is_told(&event.kind) {
            context.out.line(&render::events::line(&event, context.out.style))?;
        }
        if event.kind == "job_waiting" && event.seq > job.seq {
            let job = refreshed(client, &id).await?;
            let payload = serde_json::to_value(&event.payload).unwrap_or_default();
            let node = payload.get("node").and_then(serde_json::Value::as_str);
            for job in job.iter() {
                let begun = job.open_waits().filter(|waiting| Some(&*waiting.node_id.text()) == node);
                begun.for_each(|waiting| say_wait(job, waiting, context));
            }
        }
    }
}

/// Says that nobody works, where that is so.
async fn tell_unclaimed(client: &Client, job: &str, context: &Context) {
    let Ok(job) = jobs::get(client, job).await else { return };
    if let Some(why) = jobs::held_up(client, &job.body).await.filter(|why| why.code == WhyCode::NoWorker) {
        context.out.note(&format!("pending: {}", render::why::line(&why, context.now())));
    }
}

/// An event; what else is told of a server that goes and comes is said on stderr.
fn event_or_note(news: News, client: &Client, context: &Context) -> Option<EventView> {
    let server = client.server();
    match news {
        News::Event(event) => return Some(*event),
        News::Back => context.out.note(&format!("{server} answers again")),
        News::Away { give_up, reason } => {
            let left = give_up.saturating_duration_since(Instant::now()).as_secs();
            context.out.note(&format!("no answer from {server}: {reason}; trying again for {left}s"));
        }
    }
    None
}

fn say_wait(job: &JobView, waiting: &aetheris_api::WaitingView, context: &Context) {
    let text = render::jobs::wait(job, waiting, &context.program(), context.out.style_aside, context.now());
    context.out.aside(&text);
}

/// Whether a line-by-line watch tells of events of a kind: what happens to steps, and to the job as a
/// whole.
fn is_told(kind: &str) -> bool {
    !matches!(kind, "job_claimed" | "plan_generated" | "timer_set" | "timer_fired" | "command_committed")
        && !kind.starts_with("tool_invocation_")
}

pub(super) async fn events(given: &args::Events, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let mut shown = Shown { context, at_once: given.follow, count: 0, values: Vec::new() };
    if given.follow {
        // A job that does not exist is said at once, before anything is followed.
        let job = jobs::get(&client, &given.job).await?.body;
        tell_past_the_end(given.after, &job, context);
        let mut follow = Follow::start(&client, &given.job, given.after);
        while let Some(news) = follow.news().await? {
            if let Some(event) = event_or_note(news, &client, context) {
                shown.event(event)?;
            }
        }
        return Ok(Exit::Done);
    }
    let mut after = given.after;
    loop {
        let path = ["api", "jobs", &given.job, "events"];
        let query = [("after", after.to_string()), ("limit", PAGE.to_owned())];
        let query = query.each_ref().map(|(name, value)| (*name, value.as_str()));
        let page = client.get::<EventPage>(&path, &query).await?.body;
        let next = page.next_after.filter(|next| *next > after);
        for event in page.events {
            shown.event(event)?;
        }
        match next {
            Some(next) => after = next,
            None => break,
        }
    }
    if shown.count == 0 {
        tell_past_the_end(given.after, &jobs::get(&client, &given.job).await?.body, context);
    }
    shown.end()
}

/// Says that an event was named behind which there is none.
fn tell_past_the_end(after: u64, job: &JobView, context: &Context) {
    let last = job.seq;
    if after == 0 || after < last {
        return;
    }
    context.out.note(&if job.status.is_terminal() {
        format!("there is no event after {after}: the job has ended, and its last event is {last}")
    } else {
        format!("there is no event after {after} yet: the newest is {last}")
    });
}

/// Events as they are printed: each on a line at once, or all in one value.
struct Shown<'c> {
    context: &'c Context,
    /// Whether nobody knows how many there will be: with `--json` each is a value on a line then.
    at_once: bool,
    count: u64,
    values: Vec<EventView>,
}

impl Shown<'_> {
    fn event(&mut self, event: EventView) -> Result<(), Error> {
        self.count += 1;
        match (self.context.out.json, self.at_once) {
            (true, true) => return self.context.out.json_line(&event),
            (true, false) => {
                self.values.push(event);
                return Ok(());
            }
            (false, _) => {}
        }
        self.context.out.line(&render::events::line(&event, self.context.out.style))
    }

    fn end(self) -> Result<Exit, Error> {
        if self.context.out.json {
            self.context.out.value(&self.values)?;
        }
        Ok(Exit::Done)
    }
}
