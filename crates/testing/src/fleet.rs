//! The processes of one run: the first one meets its fate at one crossing, a fresh one takes over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_runtime::{OpError, Runtime};
use aetheris_store::Boxed;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::gate::{Ambush, Crossing, Fate, Gate};
use crate::process::Process;
use crate::time::VirtualClock;
use crate::world::{LEASE, TestWorld};

/// Records the crossings of a process, and meets it at one of them.
pub(crate) struct Trap {
    at: Option<usize>,
    clock: Arc<VirtualClock>,
    fate: Fate,
    seen: Mutex<Vec<(Duration, Crossing)>>,
    struck: watch::Sender<bool>,
}

impl Trap {
    pub(crate) fn new(clock: Arc<VirtualClock>, fate: Fate, at: Option<usize>) -> Arc<Self> {
        Arc::new(Self { at, clock, fate, seen: Mutex::default(), struck: watch::Sender::new(false) })
    }

    /// The crossings so far, with their times.
    pub(crate) fn seen(&self) -> Vec<(Duration, Crossing)> {
        self.book().clone()
    }

    /// What it struck at, if it did.
    pub(crate) fn struck_at(&self) -> Option<(Duration, Crossing)> {
        self.at.and_then(|at| self.book().get(at).cloned())
    }

    fn book(&self) -> MutexGuard<'_, Vec<(Duration, Crossing)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ambush for Trap {
    fn at(&self, crossing: &Crossing) -> Fate {
        let mut seen = self.book();
        seen.push((self.clock.passed(), crossing.clone()));
        if self.at == Some(seen.len() - 1) {
            self.struck.send_replace(true);
            return self.fate;
        }
        Fate::Pass
    }
}

/// The processes of a run.
pub(crate) struct Fleet {
    processes: Arc<Mutex<Vec<Process>>>,
    /// Whether the second one is there.
    succeeded: watch::Receiver<bool>,
    supervisor: JoinHandle<()>,
    trapped: bool,
}

/// How long a stopped process stands still: until its lease is over and another one has taken its jobs.
const STOPPED: Duration = LEASE.to_std().saturating_add(Duration::from_secs(15));
/// How long it is watched afterwards.
const WATCHED: Duration = Duration::from_secs(5);

impl Fleet {
    pub(crate) fn start(world: &Arc<TestWorld>, trap: &Arc<Trap>) -> Self {
        let first = world.start_with(TestWorld::duties("first"), Arc::clone(trap) as _);
        let gate = first.gate().clone();
        let processes = Arc::new(Mutex::new(vec![first]));
        let (tell, succeeded) = watch::channel(false);
        let follow = supervise(Arc::clone(world), Arc::clone(trap), gate, Arc::clone(&processes), tell);
        Self { processes, succeeded, supervisor: tokio::spawn(follow), trapped: trap.at.is_some() }
    }

    /// Asks a process as a client does: where it has met its fate, the client asks the next one. What was
    /// asked of a process that only stands still goes on with it.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        act: impl Fn(Runtime) -> Boxed<'static, Result<T, OpError>>,
    ) -> Result<T, OpError> {
        let mut succeeded = self.succeeded.clone();
        loop {
            let (rt, is_first) = {
                let processes = lock(&self.processes);
                let Some(last) = processes.last() else {
                    return Err(OpError::StateConflict("no process runs".to_owned()));
                };
                (last.runtime().clone(), processes.len() == 1)
            };
            let asked = tokio::spawn(act(rt));
            tokio::select! {
                biased;
                answer = asked => match answer {
                    Ok(answer) => return answer,
                    Err(error) => return Err(OpError::StateConflict(format!("the client broke off: {error}"))),
                },
                Ok(_) = succeeded.wait_for(|there| *there), if is_first && self.trapped => {}
            }
        }
    }

    /// Waits until a process that stood still has gone on and has done what it still does.
    pub(crate) async fn settle(self, trap: &Trap) {
        if trap.struck_at().is_some() {
            // It ends with the process's fate.
            let _ = self.supervisor.await;
        }
    }
}

fn lock(processes: &Mutex<Vec<Process>>) -> MutexGuard<'_, Vec<Process>> {
    processes.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn supervise(
    world: Arc<TestWorld>,
    trap: Arc<Trap>,
    gate: Gate,
    processes: Arc<Mutex<Vec<Process>>>,
    tell: watch::Sender<bool>,
) {
    let mut struck = trap.struck.subscribe();
    // The trap lives as long as this.
    let _ = struck.wait_for(|struck| *struck).await;
    let dead = trap.fate == Fate::Die;
    if dead {
        // Its tasks go with it, as those of a killed process do.
        lock(&processes).iter().for_each(Process::kill);
    }
    let second = world.start("second");
    lock(&processes).push(second);
    tell.send_replace(true);
    if !dead {
        tokio::time::sleep(STOPPED).await;
        gate.set_stopped(false);
        tokio::time::sleep(WATCHED).await;
    }
}
