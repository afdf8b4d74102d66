//! Every crash point with what is done there: the enumeration that the matrix has to cover.

use std::fmt;

use aetheris_store::Purpose;

/// What happens at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// SIGKILL; the next process takes over.
    Kill,
    /// SIGSTOP until a second worker has had the job, then SIGCONT.
    Stop,
}

/// What has to happen for the point to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// One `dev`, armed from its start.
    Dev,
    /// A `dev` that is killed in the middle, and an armed one after it.
    Successor,
    /// A server, an armed worker, and a second worker that comes while the first stands still.
    TwoWorkers,
    /// An armed server, and a worker that is killed in the middle: the server takes back what it has left.
    Orphans,
    /// One armed `dev` that is told to stop in the middle.
    Drain,
}

/// One cell of the matrix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The point's name.
    pub point: String,
    /// At which time that it is reached.
    pub hit: u32,
    /// What happens there.
    pub mode: Mode,
    /// How it is reached.
    pub setting: Setting,
}

/// The parts of a run outside the store that have a point before and after.
const CALLS: [&str; 3] = ["run.tool", "run.pure", "run.model"];
/// Points between writes and calls: where something is read, decided, answered or half done.
const BETWEEN: [(&str, Setting); 67] = [
    ("run.claimed", Setting::Dev),
    ("run.loaded", Setting::Dev),
    ("run.tool.permitted", Setting::Dev),
    ("run.tool.owed", Setting::Dev),
    ("run.tool.refused", Setting::Dev),
    ("run.child.asked", Setting::Dev),
    ("run.plan.made", Setting::Dev),
    ("run.retry.scheduled", Setting::Dev),
    ("run.retry.due", Setting::Dev),
    ("run.block.drafted", Setting::Dev),
    ("run.doubt.entered", Setting::Dev),
    ("run.reconcile.before_call", Setting::Dev),
    ("run.reconcile.after_call", Setting::Dev),
    ("run.end.drafted", Setting::Dev),
    ("run.end.asked", Setting::Dev),
    ("run.end.giving_back", Setting::Drain),
    ("run.deposit.owed", Setting::TwoWorkers),
    ("ops.create.decided", Setting::Dev),
    ("ops.create.written", Setting::Dev),
    ("ops.signal.looked", Setting::Dev),
    ("ops.signal.written", Setting::Dev),
    ("ops.deliver.child_decided", Setting::Dev),
    ("ops.deliver.child_written", Setting::Dev),
    ("ops.deliver.decided", Setting::Dev),
    ("ops.deliver.written", Setting::Dev),
    ("ops.deliver.cancelling", Setting::Dev),
    ("ops.timer.decided", Setting::Dev),
    ("ops.timer.written", Setting::Dev),
    ("ops.cancel.decided", Setting::Dev),
    ("ops.cancel.written", Setting::Dev),
    ("ops.pause.decided", Setting::Dev),
    ("ops.pause.written", Setting::Dev),
    ("ops.resolve.decided", Setting::Dev),
    ("ops.resolve.written", Setting::Dev),
    ("ops.reclaim.decided", Setting::Successor),
    ("ops.reclaim.written", Setting::Successor),
    ("ops.deposit.decided", Setting::TwoWorkers),
    ("ops.deposit.written", Setting::TwoWorkers),
    ("sweep.timers.listed", Setting::Dev),
    ("sweep.outbox.listed", Setting::Dev),
    ("sweep.leases.listed", Setting::Orphans),
    ("sweep.instance.listed", Setting::Successor),
    ("worker.claimed", Setting::Dev),
    ("worker.run_ended", Setting::Dev),
    ("worker.drained", Setting::Drain),
    ("keeper.answered", Setting::Dev),
    ("store.open.before_migrate", Setting::Dev),
    ("store.migrate.before_commit", Setting::Dev),
    ("store.migrate.after_commit", Setting::Dev),
    ("store.seen.announced", Setting::Dev),
    ("store.create.answered", Setting::Dev),
    ("store.claim.answered", Setting::Dev),
    ("store.permit.answered", Setting::Dev),
    ("store.record.answered", Setting::Dev),
    ("store.block.answered", Setting::Dev),
    ("store.signal.answered", Setting::Dev),
    ("store.finish.answered", Setting::Dev),
    ("start.locked", Setting::Dev),
    ("start.lock.emptied", Setting::Successor),
    ("start.lock.written", Setting::Successor),
    ("start.opened", Setting::Dev),
    ("start.agents_put", Setting::Dev),
    ("start.taken_back", Setting::Successor),
    ("start.forgetting", Setting::Successor),
    ("start.listening", Setting::Dev),
    ("stop.asked", Setting::Drain),
    ("store.requeue.after_commit", Setting::Drain),
];
/// Where standing still is worst.
const STOPS: [&str; 16] = [
    "store.permit.after_commit",
    "run.tool.before_call",
    "run.tool.after_call",
    "store.record.before_commit",
    "store.record.after_commit",
    "store.finish.before_commit",
    "store.finish.after_commit",
    "store.block.after_commit",
    "store.heartbeat.before_commit",
    "store.heartbeat.after_commit",
    "worker.claimed",
    "run.tool.permitted",
    "run.tool.owed",
    "run.block.drafted",
    "run.end.drafted",
    "keeper.answered",
];
/// The first crashes of the gate's pairs: a permission, an answer, a result and a wait that are on their way.
const FIRST: [&str; 4] =
    ["store.permit.after_commit", "run.tool.after_call", "run.tool.owed", "store.block.before_commit"];
/// The second ones: in what the next process does about the first.
const SECOND: [&str; 10] = [
    "start.lock.emptied",
    "sweep.instance.listed",
    "ops.reclaim.decided",
    "store.reclaim.after_commit",
    "start.forgetting",
    "start.lock.written",
    "store.claim.after_commit",
    "run.loaded",
    "run.doubt.entered",
    "run.reconcile.after_call",
];

impl Cell {
    fn kill(point: String, hit: u32, setting: Setting) -> Self {
        Self { point, hit, mode: Mode::Kill, setting }
    }

    /// As `AETHERIS_CRASH` takes it.
    #[must_use]
    pub fn order(&self) -> String {
        let mode = match self.mode {
            Mode::Kill => "kill",
            Mode::Stop => "stop",
        };
        format!("{}@{}@{mode}", self.point, self.hit)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.order())
    }
}

/// The names of what a store writes.
#[must_use]
pub fn writes() -> Vec<&'static str> {
    Purpose::ALL.iter().map(|purpose| purpose.as_str()).chain(["claim", "heartbeat", "put_agent"]).collect()
}

/// The cells of one write.
#[must_use]
pub fn of_write(write: &str) -> Vec<Cell> {
    let setting = match write {
        "reclaim" => Setting::Successor,
        "deposit" => Setting::TwoWorkers,
        _ => Setting::Dev,
    };
    let sides = ["before_commit", "after_commit"];
    sides.iter().flat_map(|side| [1, 2].map(|hit| Cell::kill(format!("store.{write}.{side}"), hit, setting))).collect()
}

/// The cells around outside calls.
#[must_use]
pub fn of_calls() -> Vec<Cell> {
    let points = CALLS.iter().flat_map(|call| ["before_call", "after_call"].map(|side| format!("{call}.{side}")));
    points.flat_map(|point| [1, 2].map(|hit| Cell::kill(point.clone(), hit, Setting::Dev))).collect()
}

/// The cells in which a process stands still past its lease.
#[must_use]
pub fn of_stops() -> Vec<Cell> {
    let stop =
        |point: &&str| Cell { point: (*point).to_owned(), hit: 1, mode: Mode::Stop, setting: Setting::TwoWorkers };
    STOPS.iter().map(stop).collect()
}

/// The cells between writes and calls.
#[must_use]
pub fn between() -> Vec<Cell> {
    BETWEEN.iter().map(|(point, setting)| Cell::kill((*point).to_owned(), 1, *setting)).collect()
}

/// A crash, and one in the process that comes after it.
pub type Pair = (Cell, Cell);

/// The pairs of the gate.
#[must_use]
pub fn pairs() -> Vec<Pair> {
    let kill = |point: &&str| Cell::kill((*point).to_owned(), 1, Setting::Dev);
    FIRST.iter().flat_map(|first| SECOND.iter().map(move |second| (kill(first), kill(second)))).collect()
}

/// Every pair of points that a `dev` passes on its own, the second also among those that only a successor does.
#[must_use]
pub fn all_pairs() -> Vec<Pair> {
    let mut cells: Vec<Cell> = all().into_iter().filter(|cell| cell.mode == Mode::Kill && cell.hit == 1).collect();
    cells.retain(|cell| matches!(cell.setting, Setting::Dev | Setting::Successor));
    let first = cells.iter().filter(|cell| cell.setting == Setting::Dev);
    first.flat_map(|first| cells.iter().map(move |second| (first.clone(), second.clone()))).collect()
}

/// The whole matrix.
#[must_use]
pub fn all() -> Vec<Cell> {
    let of_writes = writes().into_iter().flat_map(of_write);
    of_writes.chain(of_calls()).chain(between()).chain(of_stops()).collect()
}
