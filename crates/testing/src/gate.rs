//! Where a simulated process meets the world. A process that is dead or stopped passes no gate: to
//! everything outside it is as if the machine had taken it away between two instructions.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::id::ToolName;
use aetheris_core::path::StepPath;
use aetheris_store::Purpose;
use tokio::sync::Notify;

/// An operation of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Putting or taking away an agent.
    Agent,
    /// A claim.
    Claim,
    /// A unit of that purpose.
    Commit(Purpose),
    /// A renewal.
    Heartbeat,
    /// Any question, by name.
    Read(&'static str),
    /// Asking what became of a unit.
    ResolveUnknown,
}

/// A place at which a process and the world meet. Between two of them nothing outside can change, so a
/// crash at each of them is a crash at every instruction that matters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crossing {
    /// A request to the store is about to leave.
    ToStore(Call),
    /// The store's answer is about to be seen.
    FromStore(Call),
    /// A call of a tool is about to leave.
    ToTool(StepPath, ToolName),
    /// A tool's answer is about to be seen.
    FromTool(StepPath, ToolName),
    /// A question to a model is about to leave.
    ToModel,
    /// A model's answer is about to be seen.
    FromModel,
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = |f: &mut fmt::Formatter<'_>, call: &Call| match call {
            Call::Agent => f.write_str("an agent"),
            Call::Claim => f.write_str("a claim"),
            Call::Commit(purpose) => write!(f, "the write `{}`", purpose.as_str()),
            Call::Heartbeat => f.write_str("a heartbeat"),
            Call::Read(what) => write!(f, "the read `{what}`"),
            Call::ResolveUnknown => f.write_str("asking about a write"),
        };
        match self {
            Self::ToStore(what) => {
                f.write_str("before ")?;
                call(f, what)
            }
            Self::FromStore(what) => {
                f.write_str("after ")?;
                call(f, what)
            }
            Self::ToTool(node, tool) => write!(f, "before the call of `{tool}` in `{node}`"),
            Self::FromTool(node, tool) => write!(f, "after the call of `{tool}` in `{node}`"),
            Self::ToModel => f.write_str("before a question to a model"),
            Self::FromModel => f.write_str("after a model's answer"),
        }
    }
}

/// What becomes of a process at a crossing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Pass,
    /// It dies: nothing of it happens any more.
    Die,
    /// It stands still until it is told to go on.
    Stop,
}

/// Whoever decides the fate of a process. Asked at every crossing of a living one.
pub trait Ambush: Send + Sync {
    /// The fate at a crossing.
    fn at(&self, crossing: &Crossing) -> Fate;
}

/// Nothing ever happens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peace;

impl Ambush for Peace {
    fn at(&self, _crossing: &Crossing) -> Fate {
        Fate::Pass
    }
}

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It stands still.
    Stopped,
    /// It is no more.
    Dead,
}

/// The gate of one process.
#[derive(Clone)]
pub struct Gate {
    ambush: Arc<dyn Ambush>,
    state: Arc<State>,
}

/// Whoever waits is woken in the order in which it came: a channel that wakes in a random order would make
/// two runs of one seed differ.
struct State {
    changed: Notify,
    life: Mutex<Life>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("life", &self.life()).finish_non_exhaustive()
    }
}

impl Gate {
    /// The gate of a process that runs.
    #[must_use]
    pub fn new(ambush: Arc<dyn Ambush>) -> Self {
        Self { ambush, state: Arc::new(State { changed: Notify::new(), life: Mutex::new(Life::Running) }) }
    }

    /// Whether the process runs.
    #[must_use]
    pub fn life(&self) -> Life {
        *self.state.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, life: Life) {
        let mut now = self.state.life.lock().unwrap_or_else(PoisonError::into_inner);
        // It stays dead.
        if *now != Life::Dead && *now != life {
            *now = life;
            drop(now);
            self.state.changed.notify_waiters();
        }
    }

    /// Kills the process. It stays dead.
    pub fn kill(&self) {
        self.set(Life::Dead);
    }

    /// Lets the process stand still, or go on. Nothing happens to a dead one.
    pub fn set_stopped(&self, stopped: bool) {
        self.set(if stopped { Life::Stopped } else { Life::Running });
    }

    /// What befalls the process at a crossing.
    fn meet(&self, crossing: &Crossing) {
        match self.ambush.at(crossing) {
            Fate::Pass => {}
            Fate::Die => self.kill(),
            Fate::Stop => self.set_stopped(true),
        }
    }

    /// Passes at once, later, or never.
    pub async fn cross(&self, crossing: Crossing) {
        self.while_running().await;
        self.meet(&crossing);
        self.while_running().await;
    }

    /// An answer comes home. A process that stands still has it before it when it goes on, before any timer
    /// of its own: so it is given at once, and the next thing that the process sends waits instead. A dead
    /// one never has it.
    pub async fn come_home(&self, crossing: Crossing) {
        if self.life() == Life::Running {
            self.meet(&crossing);
        }
        if self.life() == Life::Dead {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the process runs.
    async fn while_running(&self) {
        loop {
            let changed = self.state.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.life() == Life::Running {
                return;
            }
            changed.await;
        }
    }
}
