//! Jobs that a person holds still and lets go on, in the middle of everything else.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Result, ensure};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::client::{Clients, is_terminal};
use super::dice::Dice;
use super::told;

/// How often a job that is held still is looked at.
const LOOK: Duration = Duration::from_millis(60);
/// The longest that one is held still.
const HOLD_MS: std::ops::Range<u64> = 50..1_500;
/// How long it may take until its holder has let go and until somebody has claimed it again, beside its own steps.
const AROUND_MS: u64 = 1_500;
/// The longest until a job that is told to stand still does.
const TAKES_MAX: Duration = Duration::from_secs(120);
/// At which look of its client a job is held still, at the latest.
const LOOKS: u64 = 8;

/// That a job is to be held still.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    at: u64,
    for_ms: u64,
}

impl Hold {
    /// Draws whether, when and how long.
    #[must_use]
    pub fn draw(dice: &mut Dice) -> Option<Self> {
        dice.chance(12).then(|| Self { at: dice.within(0..LOOKS), for_ms: dice.within(HOLD_MS) })
    }

    /// How long the job stands still because of it, with what comes before and after.
    #[must_use]
    pub fn idle_ms(self) -> u64 {
        self.for_ms + AROUND_MS
    }

    /// Whether it is time.
    #[must_use]
    pub fn is_due(self, looks: u64) -> bool {
        looks >= self.at
    }

    /// Lets a job go on that is paused once more, if its client has held it still: an order that was repeated may be carried
    /// out late.
    ///
    /// # Errors
    /// Nobody has paused it, or the server refuses.
    pub async fn let_go(clients: &Clients, job: JobId, view: &Value, was_held: bool) -> Result<()> {
        if view["status"] == "paused" {
            ensure!(was_held, "{job} is paused, and nobody has held it still: {view}");
            order(clients, job, "resume").await?;
        }
        Ok(())
    }

    /// Holds the job still, sees that it stands still, and lets it go on.
    ///
    /// # Errors
    /// It goes on by itself, or the server refuses one or the other.
    pub async fn perform(self, clients: &Clients, job: JobId) -> Result<()> {
        if !order(clients, job, "pause").await? {
            return Ok(());
        }
        clients.told(|history| {
            history.pauses.insert(job);
        });
        // A holder ends the call that it awaits first; one that has died is waited for, too.
        let mut view = clients.view(job).await?;
        let asked = SystemClock.boot();
        while view["status"] != "paused" && !is_terminal(&view) {
            let waited = SystemClock.boot() - asked;
            ensure!(waited < TAKES_MAX, "{job} was told {waited:?} ago to stand still, and is {}", view["status"]);
            tokio::time::sleep(LOOK).await;
            view = clients.view(job).await?;
        }
        // One that has ended before it stood still was about to: that nothing began behind the order is D1's.
        if is_terminal(&view) {
            ensure!(is_ordered(clients, job).await?, "{job} was told to stand still, and nothing says so");
            return Ok(());
        }
        let began = SystemClock.boot();
        while !is_terminal(&view) && SystemClock.boot() - began < Duration::from_millis(self.for_ms) {
            ensure!(view["status"] == "paused", "{job} was held still, and is {}", view["status"]);
            tokio::time::sleep(LOOK).await;
            view = clients.view(job).await?;
        }
        if order(clients, job, "resume").await? {
            clients.counts.held.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Whether a job's events have an order to stand still.
async fn is_ordered(clients: &Clients, job: JobId) -> Result<bool> {
    let order = |event: &Value| event["type"] == "job_pause_requested" || event["type"] == "job_paused";
    Ok(told::pages(clients, &job.to_string()).await?.iter().any(order))
}

/// Gives an order until it is answered. Whether it holds; it does not where the job has ended, or is about to.
async fn order(clients: &Clients, job: JobId, order: &str) -> Result<bool> {
    let (status, answer): (StatusCode, Value) =
        clients.ask(&Method::POST, &format!("/api/jobs/{job}/{order}"), None, None).await?;
    if status == StatusCode::CONFLICT {
        // Only an end is a reason: it has come, or was asked for.
        let view = clients.view(job).await?;
        let ending = view["end_requested"] == "cancel" || view["end_requested"] == "deadline";
        ensure!(is_terminal(&view) || ending, "{order} of {job}: {status} {answer}, and it is {view}");
        return Ok(false);
    }
    ensure!(status.is_success(), "{order} of {job}: {status} {answer}");
    Ok(true)
}
