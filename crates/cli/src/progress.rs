//! A sign of life on a terminal for what takes more than two seconds.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::out::Out;

/// How long nothing is said.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Between two signs.
const TICK: Duration = Duration::from_secs(1);

/// Says what is being done and for how long, on stderr where somebody sees it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Dropped to end the thread.
    going_on: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins.
    pub(crate) fn of(out: &Out, what: impl Into<String>) -> Self {
        if !out.watched {
            return Self { going_on: None, thread: None };
        }
        let (going_on, ended) = channel::<()>();
        let (out, what) = (out.clone(), what.into());
        let say = move || {
            let mut waited = SILENCE_MAX;
            let mut pause = SILENCE_MAX;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                out.progress(&format!("{what}, {}s", waited.as_secs()));
                (waited, pause) = (waited + TICK, TICK);
            }
            if waited > SILENCE_MAX {
                out.progress("");
            }
        };
        // Without a thread it is silent, which harms nobody.
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(say).ok();
        Self { going_on: Some(going_on), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.going_on.take());
        if let Some(thread) = self.thread.take() {
            // What it said is not worth a second panic.
            let _ended = thread.join();
        }
    }
}
