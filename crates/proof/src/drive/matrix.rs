//! One cell: the process dies or stands still at a point, and everything must end as if it had not.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use aetheris_check::{ClientHistory, Invariant, WitnessKind};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::cells::{Cell, Mode, Pair, Setting};
use super::fleet::{Fleet, ready};
use super::process::{Running, Started, was_killed};
use super::stories::{STORIES, Story};

/// How long a cell may take before it counts as stuck.
const CELL: Duration = Duration::from_secs(60);
/// How long the clients work before the first `dev` of a [`Setting::Successor`] is killed.
const HEAD_START: Duration = Duration::from_millis(500);
/// How long a stopped process stands still: past its lease, within its permits.
const STANDSTILL: Duration = Duration::from_millis(2_200);
/// What needs a crash to have cases, or the one job that is long enough.
const CRASH_FREE: &[Invariant] = &[Invariant::A9];
/// Of two workers, only some stories are played.
const PARTIAL: &[Invariant] = &[Invariant::A9, Invariant::E6, Invariant::F5];

/// Runs one cell.
///
/// # Errors
/// The point was not reached, a job ended otherwise, an invariant does not hold, or nothing moves.
#[expect(
    clippy::disallowed_methods,
    reason = "a cell that never ends has failed, and its processes are killed with it"
)]
pub async fn run(program: PathBuf, cell: &Cell) -> Result<()> {
    let fleet = Fleet::new(program)?;
    let cell_run = async {
        match (cell.setting, cell.mode) {
            (Setting::TwoWorkers, Mode::Stop) => stopped(&fleet, cell).await,
            (Setting::TwoWorkers, Mode::Kill) => deposited(&fleet, cell).await,
            (Setting::Orphans, _) => orphaned(&fleet, cell).await,
            (Setting::Dev | Setting::Successor | Setting::Drain, _) => killed(&fleet, cell).await,
        }
    };
    match tokio::time::timeout(CELL, Box::pin(cell_run)).await {
        Ok(done) => done.with_context(|| format!("cell {cell}\n{}", fleet.tail())),
        Err(_) => bail!("cell {cell}: stuck for {CELL:?}\n{}", fleet.tail()),
    }
}

/// A whole run without a crash: what every cell must equal.
///
/// # Errors
/// As [`run`].
#[expect(clippy::disallowed_methods, reason = "a run that never ends has failed, and its process is killed with it")]
pub async fn crash_free(program: PathBuf) -> Result<String> {
    let fleet = Fleet::new(program)?;
    let run = async {
        let agents = fleet.agents(STORIES)?;
        let running = ready(&fleet.dev(&agents, None)).await?;
        fleet.serve_at(&running)?;
        let history = fleet.play(&fleet.client()?, STORIES).await?;
        drop(running);
        let report = fleet.check(&history, CRASH_FREE).await?;
        anyhow::Ok(report.to_string())
    };
    match tokio::time::timeout(CELL, Box::pin(run)).await {
        Ok(done) => done.with_context(|| fleet.tail()),
        Err(_) => bail!("without a crash: stuck for {CELL:?}\n{}", fleet.tail()),
    }
}

async fn killed(fleet: &Fleet, cell: &Cell) -> Result<()> {
    let agents = fleet.agents(STORIES)?;
    let client = fleet.client()?;
    let guarded = async {
        if cell.setting == Setting::Successor {
            let mut running = ready(&fleet.dev(&agents, None)).await?;
            fleet.serve_at(&running)?;
            tokio::time::sleep(HEAD_START).await;
            in_a_body(fleet).await?;
            running.signal(Signal::KILL)?;
            running.wait().await?;
        }
        if let Started::Ready(mut armed) = fleet.dev(&agents, Some(cell.order())).start().await? {
            fleet.serve_at(&armed)?;
            if cell.setting == Setting::Drain {
                tokio::time::sleep(HEAD_START).await;
                armed.signal(Signal::TERM)?;
            }
            let status = armed.wait().await?;
            ensure!(was_killed(status), "the armed process ended by itself: {status}");
        }
        let running = ready(&fleet.dev(&agents, None)).await?;
        fleet.serve_at(&running)?;
        anyhow::Ok(running)
    };
    let played = fleet.play(&client, STORIES);
    let (running, history) = both(guarded, played).await?;
    drop(running);
    fleet.check(&history, CRASH_FREE).await?;
    Ok(())
}

/// Runs one pair: a crash, and another one in the process that recovers from it. Whether the second point was
/// reached; a recovery that does not come by it is as good.
///
/// # Errors
/// As [`run`].
#[expect(
    clippy::disallowed_methods,
    reason = "a pair that never ends has failed, and its processes are killed with it"
)]
pub async fn run_pair(program: PathBuf, pair: &Pair) -> Result<bool> {
    let fleet = Fleet::new(program)?;
    let (first, second) = pair;
    match tokio::time::timeout(CELL, Box::pin(killed_twice(&fleet, pair))).await {
        Ok(done) => done.with_context(|| format!("pair {first} {second}\n{}", fleet.tail())),
        Err(_) => bail!("pair {first} {second}: stuck for {CELL:?}\n{}", fleet.tail()),
    }
}

async fn killed_twice(fleet: &Fleet, (first, second): &Pair) -> Result<bool> {
    let agents = fleet.agents(STORIES)?;
    let client = fleet.client()?;
    let mut crashes = 0;
    let guarded = async {
        for cell in [first, second] {
            if let Started::Ready(mut armed) = fleet.dev(&agents, Some(cell.order())).start().await? {
                fleet.serve_at(&armed)?;
                let status = armed.wait().await?;
                ensure!(was_killed(status), "the armed process ended by itself: {status}");
            }
            crashes += 1;
        }
        let running = ready(&fleet.dev(&agents, None)).await?;
        fleet.serve_at(&running)?;
        anyhow::Ok(running)
    };
    let played = fleet.play(&client, STORIES);
    let history = {
        tokio::pin!(guarded, played);
        tokio::select! {
            running = &mut guarded => {
                let _running = running?;
                played.await?
            }
            history = &mut played => history?,
        }
    };
    ensure!(crashes > 0, "the workload has ended and the first point was not reached");
    fleet.check(&history, CRASH_FREE).await?;
    Ok(crashes == 2)
}

/// A worker is killed in the middle; the server's sweep finds its leases, and dies over it.
async fn orphaned(fleet: &Fleet, cell: &Cell) -> Result<()> {
    let stories = chosen(&["plain", "ledger", "late"]);
    let mut armed = armed_server(fleet, &stories, Some(cell.order())).await?;
    let client = fleet.client()?;
    let guarded = async {
        let worker = ready(&fleet.part("worker", None)).await?;
        while fleet.witness.lines()?.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        worker.signal(Signal::KILL)?;
        let status = armed.wait().await?;
        ensure!(was_killed(status), "the armed server ended by itself: {status}");
        let server = ready(&fleet.part("serve", None)).await?;
        fleet.serve_at(&server)?;
        let worker = ready(&fleet.part("worker", None)).await?;
        anyhow::Ok((server, worker))
    };
    let (processes, history) = both(guarded, fleet.play(&client, &stories)).await?;
    drop(processes);
    let excused = [PARTIAL, &[Invariant::D7, Invariant::E1, Invariant::E2]].concat();
    fleet.check(&history, &excused).await?;
    Ok(())
}

/// Both, or the first failure. A workload that ends while the armed process still lives has not reached
/// the point.
async fn both<T>(
    guarded: impl Future<Output = Result<T>>,
    played: impl Future<Output = Result<ClientHistory>>,
) -> Result<(T, ClientHistory)> {
    tokio::pin!(guarded, played);
    tokio::select! {
        running = &mut guarded => {
            let running = running?;
            Ok((running, played.await?))
        }
        history = &mut played => {
            let history = history?;
            // The last write may be the one that kills.
            let patience = tokio::time::sleep(Duration::from_secs(1));
            tokio::select! {
                running = &mut guarded => Ok((running?, history)),
                () = patience => bail!("the workload has ended and the point was not reached"),
            }
        }
    }
}

/// Waits until a body has begun and is not over: the process that called it holds its job.
async fn in_a_body(fleet: &Fleet) -> Result<()> {
    loop {
        let lines = fleet.witness.lines()?;
        let slow = |kind| lines.iter().filter(|line| line.tool == "slow" && line.kind == kind).count();
        if slow(WitnessKind::BodyStart) > slow(WitnessKind::BodyEnd) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn chosen(names: &[&str]) -> Vec<Story> {
    STORIES.iter().filter(|story| names.contains(&story.agent)).copied().collect()
}

/// A server on the folder, with the stories' agents put.
async fn server(fleet: &Fleet, stories: &[Story]) -> Result<Running> {
    armed_server(fleet, stories, None).await
}

async fn armed_server(fleet: &Fleet, stories: &[Story], crash: Option<String>) -> Result<Running> {
    let running = ready(&fleet.part("serve", crash)).await?;
    fleet.serve_at(&running)?;
    let client = fleet.client()?;
    for story in stories {
        client.put(story.agent, &story.source(&fleet.witness_url())?).await?;
    }
    Ok(running)
}

/// Waits until the process stands still.
async fn standing(worker: &Running) {
    while !worker.is_stopped() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Stops a process where it holds no write lock, so that others can take its jobs.
async fn stand_between_writes(worker: &Running) -> Result<()> {
    loop {
        worker.signal(Signal::STOP)?;
        standing(worker).await;
        if !worker.holds_write_lock()? {
            return Ok(());
        }
        worker.signal(Signal::CONT)?;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// A second worker that stands still until it is needed: a process that stops may hold the lock that one
/// needs to start.
async fn waiting_worker(fleet: &Fleet) -> Result<Running> {
    let worker = ready(&fleet.part("worker", None)).await?;
    stand_between_writes(&worker).await?;
    Ok(worker)
}

async fn stopped(fleet: &Fleet, cell: &Cell) -> Result<()> {
    let stories = chosen(&["plain", "ledger", "signal", "early", "late", "cancel-running"]);
    let server = server(fleet, &stories).await?;
    let second = waiting_worker(fleet).await?;
    let armed = ready(&fleet.part("worker", Some(cell.order()))).await?;
    let client = fleet.client()?;
    let take_over = async {
        standing(&armed).await;
        second.signal(Signal::CONT)?;
        tokio::time::sleep(STANDSTILL).await;
        armed.signal(Signal::CONT)?;
        anyhow::Ok(second)
    };
    let (second, history) = both(take_over, fleet.play(&client, &stories)).await?;
    drop((server, armed, second));
    fleet.check(&history, PARTIAL).await?;
    Ok(())
}

/// A worker stands still while its call is under way and its job goes to another; when it goes on, it
/// brings the outcome, and dies at that write.
async fn deposited(fleet: &Fleet, cell: &Cell) -> Result<()> {
    let stories = chosen(&["late"]);
    let server = server(fleet, &stories).await?;
    let second = waiting_worker(fleet).await?;
    let mut armed = ready(&fleet.part("worker", Some(cell.order()))).await?;
    let client = fleet.client()?;
    let jobs = usize::try_from(stories.iter().map(|story| story.jobs).sum::<u32>())?;
    let take_over = async {
        while fleet.witness.lines()?.iter().filter(|line| line.is_act()).count() < jobs {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stand_between_writes(&armed).await?;
        second.signal(Signal::CONT)?;
        tokio::time::sleep(STANDSTILL).await;
        armed.signal(Signal::CONT)?;
        let status = armed.wait().await?;
        ensure!(was_killed(status), "the armed worker ended by itself: {status}");
        anyhow::Ok(second)
    };
    let (second, history) = both(take_over, fleet.play(&client, &stories)).await?;
    drop((server, second));
    let excused = [PARTIAL, &[Invariant::D7, Invariant::E1]].concat();
    fleet.check(&history, &excused).await?;
    Ok(())
}
