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
/// How long after the end of the workload its last write may still reach the point.
const LAST_WRITE: Duration = Duration::from_secs(1);
/// Calls that are under way when the first `dev` of a [`Setting::Successor`] is killed: a take-over of the second job
/// is a point too.
const UNDER_WAY: usize = 2;
/// How long a stopped process stands still: past its lease, within its permits.
const STANDSTILL: Duration = Duration::from_millis(2_200);
/// What has cases only where a job was taken back, which no crash leads to for certain.
const CRASH_FREE: &[Invariant] = &[Invariant::A9];
/// Of two workers, only some stories are played.
const PARTIAL: &[Invariant] = &[Invariant::E6, Invariant::F5];

/// Runs one cell.
///
/// # Errors
/// The point was not reached, a job ended otherwise, an invariant does not hold, or nothing moves.
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
    bounded(&fleet, &format!("cell {cell}"), cell_run).await
}

/// Runs something within the time of a cell; what fails is told with its name and the end of the log.
#[expect(clippy::disallowed_methods, reason = "what never ends has failed, and its processes are killed with it")]
async fn bounded<T>(fleet: &Fleet, what: &str, run: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(CELL, Box::pin(run)).await {
        Ok(done) => done.with_context(|| format!("{what}\n{}", fleet.tail())),
        Err(_) => bail!("{what}: stuck for {CELL:?}\n{}", fleet.tail()),
    }
}

/// A whole run without a crash: what every cell must equal.
///
/// # Errors
/// As [`run`].
pub async fn crash_free(program: PathBuf) -> Result<String> {
    let fleet = Fleet::new(program)?;
    let run = async {
        let agents = fleet.agents(STORIES)?;
        let running = ready(&fleet.dev(&agents, None)).await?;
        fleet.serve_at(&running)?;
        let history = fleet.play(&fleet.client()?, STORIES).await?;
        drop(running);
        let report = fleet.check(&history, CRASH_FREE).await?;
        let turns = fleet.turns()?;
        ensure!(turns.later > 0 && turns.conversations > 0, "not all have a case: {turns:?}");
        anyhow::Ok(report.to_string())
    };
    bounded(&fleet, "without a crash", run).await
}

async fn killed(fleet: &Fleet, cell: &Cell) -> Result<()> {
    let agents = fleet.agents(STORIES)?;
    let client = fleet.client()?;
    let crash = async {
        if cell.setting == Setting::Successor {
            let mut running = ready(&fleet.dev(&agents, None)).await?;
            fleet.serve_at(&running)?;
            ensure!(in_bodies(fleet, &mut running, UNDER_WAY).await?, "the process before the armed one has ended");
            running.signal(Signal::KILL)?;
            running.wait().await?;
        }
        if let Started::Ready(mut armed) = fleet.dev(&agents, Some(cell.order())).start().await? {
            fleet.serve_at(&armed)?;
            if cell.setting == Setting::Drain && in_bodies(fleet, &mut armed, 1).await? {
                armed.signal(Signal::TERM)?;
            }
            dies(&mut armed).await?;
        }
        Ok(())
    };
    let recovery = async |()| {
        let running = ready(&fleet.dev(&agents, None)).await?;
        fleet.serve_at(&running)?;
        Ok(running)
    };
    let (running, history) = both(crash, recovery, fleet.play(&client, STORIES)).await?;
    drop(running);
    fleet.check(&history, CRASH_FREE).await?;
    Ok(())
}

/// Runs one pair: a crash, and another one in the process that recovers from it. Whether the second point was
/// reached; a recovery that does not come by it is as good.
///
/// # Errors
/// As [`run`].
pub async fn run_pair(program: PathBuf, pair: &Pair) -> Result<bool> {
    let fleet = Fleet::new(program)?;
    let (first, second) = pair;
    bounded(&fleet, &format!("pair {first} {second}"), killed_twice(&fleet, pair)).await
}

async fn killed_twice(fleet: &Fleet, (first, second): &Pair) -> Result<bool> {
    let agents = fleet.agents(STORIES)?;
    let client = fleet.client()?;
    let mut crashes = 0;
    let guarded = async {
        for cell in [first, second] {
            if let Started::Ready(mut armed) = fleet.dev(&agents, Some(cell.order())).start().await? {
                fleet.serve_at(&armed)?;
                dies(&mut armed).await?;
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
    let mut armed = server(fleet, &stories, Some(cell.order())).await?;
    let client = fleet.client()?;
    let crash = async {
        let worker = ready(&fleet.part("worker", None)).await?;
        while fleet.witness.lines()?.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        worker.signal(Signal::KILL)?;
        dies(&mut armed).await
    };
    let recovery = async |()| {
        let server = ready(&fleet.part("serve", None)).await?;
        fleet.serve_at(&server)?;
        let worker = ready(&fleet.part("worker", None)).await?;
        Ok((server, worker))
    };
    let (processes, history) = both(crash, recovery, fleet.play(&client, &stories)).await?;
    drop(processes);
    let excused = [PARTIAL, &[Invariant::D7, Invariant::E1, Invariant::E2]].concat();
    fleet.check(&history, &excused).await?;
    Ok(())
}

/// Waits until an armed process is killed by its crash point.
async fn dies(armed: &mut Running) -> Result<()> {
    let status = armed.wait().await?;
    ensure!(was_killed(status), "the armed process ended by itself: {status}");
    Ok(())
}

/// The workload, and beside it the crash and what follows it; or the first failure. A workload that has ended while the
/// point is not reached will not reach it.
async fn both<C, T>(
    crash: impl Future<Output = Result<C>>,
    recovery: impl AsyncFnOnce(C) -> Result<T>,
    played: impl Future<Output = Result<ClientHistory>>,
) -> Result<(T, ClientHistory)> {
    tokio::pin!(crash, played);
    tokio::select! {
        crash = &mut crash => {
            let crash = crash?;
            tokio::try_join!(recovery(crash), played)
        }
        history = &mut played => {
            let history = history?;
            // The last write may be the one that kills.
            let crash = tokio::select! {
                crash = crash => crash?,
                () = tokio::time::sleep(LAST_WRITE) => bail!("the workload has ended and the point was not reached"),
            };
            Ok((recovery(crash).await?, history))
        }
    }
}

/// Waits until so many bodies have begun and are not over: the process that called them holds their jobs. Not where
/// it has ended.
async fn in_bodies(fleet: &Fleet, running: &mut Running, count: usize) -> Result<bool> {
    loop {
        let lines = fleet.witness.lines()?;
        let slow = |kind| lines.iter().filter(|line| line.tool == "slow" && line.kind == kind).count();
        if slow(WitnessKind::BodyStart) >= slow(WitnessKind::BodyEnd) + count {
            return Ok(true);
        }
        if running.ended()?.is_some() {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn chosen(names: &[&str]) -> Vec<Story> {
    STORIES.iter().filter(|story| names.contains(&story.agent)).copied().collect()
}

/// A server on the folder, with the stories' agents put.
async fn server(fleet: &Fleet, stories: &[Story], crash: Option<String>) -> Result<Running> {
    let running = ready(&fleet.part("serve", crash)).await?;
    fleet.serve_at(&running)?;
    let client = fleet.client()?;
    for story in stories {
        client.put(story.agent, &story.source(&fleet.witness_url())?).await?;
    }
    Ok(running)
}

/// Waits until the process stands still.
async fn standing(worker: &mut Running) -> Result<()> {
    while !worker.is_stopped() {
        if let Some(status) = worker.ended()? {
            bail!("the process that was to stand still has ended: {status}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Stops a process where it holds no write lock, so that others can take its jobs.
async fn stand_between_writes(worker: &mut Running) -> Result<()> {
    loop {
        worker.signal(Signal::STOP)?;
        standing(worker).await?;
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
    let mut worker = ready(&fleet.part("worker", None)).await?;
    stand_between_writes(&mut worker).await?;
    Ok(worker)
}

async fn stopped(fleet: &Fleet, cell: &Cell) -> Result<()> {
    let stories = chosen(&["plain", "ledger", "signal", "early", "late", "cancel-running", "eight", "loop"]);
    let server = server(fleet, &stories, None).await?;
    let second = waiting_worker(fleet).await?;
    let mut armed = ready(&fleet.part("worker", Some(cell.order()))).await?;
    let client = fleet.client()?;
    let stop = async move {
        standing(&mut armed).await?;
        Ok(armed)
    };
    let take_over = async |armed: Running| {
        second.signal(Signal::CONT)?;
        tokio::time::sleep(STANDSTILL).await;
        armed.signal(Signal::CONT)?;
        Ok(armed)
    };
    let (armed, history) = both(stop, take_over, fleet.play(&client, &stories)).await?;
    drop((server, armed, second));
    // With the write lock in its hands nobody can take its jobs; and where it holds one alone whose end is asked for
    // meanwhile, whoever takes that back ends it.
    fleet.check(&history, &[CRASH_FREE, PARTIAL].concat()).await?;
    Ok(())
}

/// A worker stands still while its call is under way and its job goes to another; when it goes on, it
/// brings the outcome, and dies at that write.
async fn deposited(fleet: &Fleet, cell: &Cell) -> Result<()> {
    let stories = chosen(&["late"]);
    let server = server(fleet, &stories, None).await?;
    let second = waiting_worker(fleet).await?;
    let mut armed = ready(&fleet.part("worker", Some(cell.order()))).await?;
    let client = fleet.client()?;
    let jobs = usize::try_from(stories.iter().map(|story| story.jobs).sum::<u32>())?;
    let crash = async {
        while fleet.witness.lines()?.iter().filter(|line| line.is_act()).count() < jobs {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stand_between_writes(&mut armed).await?;
        second.signal(Signal::CONT)?;
        tokio::time::sleep(STANDSTILL).await;
        armed.signal(Signal::CONT)?;
        dies(&mut armed).await
    };
    let ((), history) = both(crash, async |()| Ok(()), fleet.play(&client, &stories)).await?;
    drop((server, second));
    let excused = [PARTIAL, &[Invariant::D7, Invariant::E1]].concat();
    fleet.check(&history, &excused).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_wait_for_the_point_is_bounded() {
        for (until_crash, reached) in [(LAST_WRITE / 2, true), (LAST_WRITE * 2, false)] {
            let crash = async {
                tokio::time::sleep(until_crash).await;
                Ok(())
            };
            let recovery = async |()| {
                tokio::time::sleep(LAST_WRITE * 10).await;
                Ok(())
            };
            let played = async { Ok(ClientHistory::default()) };
            assert_eq!(both(crash, recovery, played).await.is_ok(), reached, "{until_crash:?}");
        }
    }
}
