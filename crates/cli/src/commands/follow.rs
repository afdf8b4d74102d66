//! `watch`, `events`, and the waiting of `send --wait`.

use std::time::Duration;

use aetheris_api::{EventPage, EventView, JobView, TraceStep};
use aetheris_core::job::JobStatus;
use aetheris_core::time::Span;
use tokio::time::{Instant, sleep_until};

use super::{Context, jobs};
use crate::args;
use crate::client::{Client, Follow};
use crate::error::Error;
use crate::exit::Exit;
use crate::render::{self, steps};

/// How often a live list is drawn again while nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// Most steps of a live list.
const LIVE_STEPS_MAX: usize = 18;
/// Events asked for at a time.
const PAGE: &str = "1000";
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
    let first = jobs::get(client, job).await?.body;
    let ended_before = first.status.is_terminal();
    let ended = if ended_before {
        true
    } else if context.out.live {
        live(client, first, until, context).await?
    } else {
        plain(client, &first, until, show, context).await?
    };
    let answer = jobs::get(client, job).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
    } else if ended {
        if context.out.live || (ended_before && show == Show::Steps) {
            let plan = jobs::plan(client, job).await;
            context.out.text(&format!("{}\n", picture(&answer.body, &plan, context)))?;
        }
        print_end(&answer.body, show, context)?;
    }
    if !ended {
        let command = format!("{} watch {job}", context.program());
        context.out.note(&format!("the time is over and the job goes on; follow it with: {command}"));
        return Ok(Exit::StillRunning);
    }
    Ok(if answer.body.status == JobStatus::Completed { Exit::Done } else { Exit::Failed })
}

fn print_end(job: &JobView, show: Show, context: &Context) -> Result<(), Error> {
    let style = context.out.style;
    if show == Show::Result && job.status == JobStatus::Completed {
        let result = job.result.as_ref().map_or(&serde_json::Value::Null, |result| result.value());
        return context.out.line(&render::json_page(result, 0));
    }
    let end = render::jobs::ending(job, style).unwrap_or_else(|| format!("{}\n", style.job(job.status)));
    if show == Show::Result {
        context.out.note(end.trim_end());
        return Ok(());
    }
    context.out.text(&end)
}

/// A list of steps that is drawn again in place; whether the job ended.
async fn live(client: &Client, mut job: JobView, until: Instant, context: &Context) -> Result<bool, Error> {
    let id = job.id.to_string();
    let plan = jobs::plan(client, &id).await;
    let mut follow = Follow::start(client, &id, job.seq);
    let mut screen = Screen { context, lines: 0 };
    let (mut over, mut stale) = (false, false);
    loop {
        screen.draw(&picture(&job, &plan, context))?;
        if over || job.status.is_terminal() {
            screen.clear()?;
            return Ok(true);
        }
        let tick = Instant::now() + TICK;
        tokio::select! {
            event = follow.next() => {
                over = event?.is_none();
                while let Some(more) = follow.ready() {
                    more?;
                }
                stale = true;
            }
            () = sleep_until(tick.min(until)) => {
                if Instant::now() >= until {
                    return Ok(false);
                }
            }
        }
        if stale && let Some(new) = refreshed(client, &id).await? {
            (job, stale) = (new, false);
        }
    }
}

/// A job as it is now; nothing while the server is away, as whoever follows the job waits for it.
async fn refreshed(client: &Client, job: &str) -> Result<Option<JobView>, Error> {
    match jobs::get(client, job).await {
        Ok(answer) => Ok(Some(answer.body)),
        Err(Error::Unreachable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of a live list.
fn picture(job: &JobView, plan: &[TraceStep], context: &Context) -> String {
    let (style, now) = (context.out.style, context.now());
    let mut lines = steps::lines(job, plan);
    let left_out = lines.len().saturating_sub(LIVE_STEPS_MAX);
    if left_out > 0 {
        let active = lines.iter().position(steps::Line::is_open).unwrap_or(lines.len());
        let from = active.saturating_sub(LIVE_STEPS_MAX / 2).min(left_out);
        lines = lines.split_off(from);
        lines.truncate(LIVE_STEPS_MAX);
    }
    let mut text = format!("{}\n", render::jobs::headline(job, style, now));
    text.push_str(&steps::render(&lines, style, now));
    if left_out > 0 {
        text.push_str(&format!("  … and {left_out} more\n"));
    }
    if let Some(waiting) = &job.waiting {
        text.push_str(&render::jobs::wait(job, waiting, &context.program(), style, now));
    }
    text
}

/// The part of a terminal that is drawn again.
struct Screen<'c> {
    context: &'c Context,
    lines: usize,
}

impl Screen<'_> {
    /// Draws over what was drawn before. Lines are not wrapped meanwhile, so that their number is known.
    fn draw(&mut self, text: &str) -> Result<(), Error> {
        let back = self.back();
        self.lines = text.matches('\n').count();
        self.context.out.text(&format!("{back}\u{1b}[?7l{text}\u{1b}[?7h"))
    }

    /// Takes away what was drawn.
    fn clear(&mut self) -> Result<(), Error> {
        let back = self.back();
        self.lines = 0;
        self.context.out.text(&back)
    }

    fn back(&self) -> String {
        if self.lines == 0 { String::new() } else { format!("\u{1b}[{}A\r\u{1b}[J", self.lines) }
    }
}

/// What happens, line by line; whether the job ended.
async fn plain(client: &Client, job: &JobView, until: Instant, show: Show, context: &Context) -> Result<bool, Error> {
    let id = job.id.to_string();
    let quiet = show == Show::Result || context.out.json;
    if let Some(waiting) = &job.waiting {
        say_wait(job, waiting, context);
    }
    let after = if quiet { job.seq } else { 0 };
    let mut follow = Follow::start(client, &id, after);
    loop {
        let event = tokio::select! {
            event = follow.next() => event?,
            () = sleep_until(until) => return Ok(false),
        };
        let Some(event) = event else { return Ok(true) };
        if !quiet && is_told(&event.kind) {
            context.out.line(&render::events::line(&event, context.out.style))?;
        }
        if event.kind == "job_waiting" && event.seq > job.seq {
            let job = refreshed(client, &id).await?;
            if let Some((job, waiting)) = job.as_ref().and_then(|job| Some((job, job.waiting.as_ref()?))) {
                say_wait(job, waiting, context);
            }
        }
    }
}

fn say_wait(job: &JobView, waiting: &aetheris_api::WaitingView, context: &Context) {
    let text = render::jobs::wait(job, waiting, &context.program(), context.out.style, context.now());
    context.out.note(text.trim_end());
}

/// Whether a line-by-line watch tells of events of a kind: what happens to steps, and to the job as a
/// whole.
fn is_told(kind: &str) -> bool {
    !matches!(kind, "job_claimed" | "plan_generated" | "timer_set" | "timer_fired" | "command_committed")
        && !kind.starts_with("tool_invocation_")
}

pub(super) async fn events(given: &args::Events, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let mut shown = Shown { context, values: Vec::new() };
    if given.follow {
        // A job that does not exist is said at once, before anything is followed.
        jobs::get(&client, &given.job).await?;
        let mut follow = Follow::start(&client, &given.job, given.after);
        while let Some(event) = follow.next().await? {
            shown.event(event)?;
        }
        return shown.end();
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
            None => return shown.end(),
        }
    }
}

/// Events as they are printed: each at once, or all in one value.
struct Shown<'c> {
    context: &'c Context,
    values: Vec<EventView>,
}

impl Shown<'_> {
    fn event(&mut self, event: EventView) -> Result<(), Error> {
        if self.context.out.json {
            self.values.push(event);
            return Ok(());
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
