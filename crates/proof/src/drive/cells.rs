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
/// Where standing still is worst.
const STOPS: [&str; 10] = [
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

/// The whole matrix.
#[must_use]
pub fn all() -> Vec<Cell> {
    let of_writes = writes().into_iter().flat_map(of_write);
    of_writes.chain(of_calls()).chain(of_stops()).collect()
}
