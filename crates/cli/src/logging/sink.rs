//! Where lines of the log go: through a bounded queue to a thread that writes them.
//!
//! Threads that log are those that must not stand still: the store's writer, the keeper of leases, sweeps. So
//! handing over a line never waits and never fails. Where the log cannot be written, because its disk is full or
//! whoever reads the pipe has died or sleeps, lines are dropped and counted, and the count is the next line
//! that can be written.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Thread};
use std::time::Duration;

use aetheris_core::limits;

/// The entrance of the queue. Clones lead to the same log.
#[derive(Clone)]
pub(crate) struct Sink {
    dropped: Arc<AtomicU64>,
    queue: SyncSender<Item>,
    writer: Thread,
}

enum Item {
    Line(Vec<u8>),
    /// Everything before it has been written, or given up.
    Reached(SyncSender<()>),
}

impl Sink {
    /// Starts the thread that writes. `lost` is the line that tells how many were dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        target: impl Write + Send + 'static,
        lost: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, items) = sync_channel(limits::LOG_LINES_WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let body = move || write_all(target, &items, &counted, lost);
        let writer = thread::Builder::new().name("log".to_owned()).spawn(body)?.thread().clone();
        Ok(Self { dropped, queue, writer })
    }

    /// Hands over a line, or drops it.
    pub(crate) fn line(&self, line: &[u8]) {
        let fits = line.len() <= limits::LOG_LINE_BYTES_MAX;
        if !fits || self.queue.try_send(Item::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what was handed over has been written, at most so long.
    pub(crate) fn flush(&self, patience: Duration) {
        let (reached, written) = sync_channel(1);
        if self.queue.try_send(Item::Reached(reached)).is_ok() {
            self.writer.unpark();
            // Who does not hear of it has waited long enough.
            let _heard = written.recv_timeout(patience);
        }
    }
}

/// How long the first line of a batch waits for others, unless somebody flushes: too short for a reader to see, and long
/// enough that a server which works on one job after the other does not wake this thread for each.
const GATHER: Duration = Duration::from_millis(20);

fn write_all(mut target: impl Write, items: &Receiver<Item>, dropped: &AtomicU64, lost: impl Fn(u64) -> String) {
    let mut batch = Batch::default();
    while let Ok(first) = items.recv() {
        if matches!(first, Item::Line(_)) {
            thread::park_timeout(GATHER);
        }
        let mut next = Some(first);
        while let Some(item) = next {
            match item {
                Item::Line(line) => batch.take(&line),
                Item::Reached(reached) => {
                    batch.write(&mut target, dropped, &lost);
                    let _heard = reached.try_send(());
                }
            }
            next = if batch.is_full() { None } else { items.try_recv().ok() };
        }
        batch.write(&mut target, dropped, &lost);
        if dropped.load(Ordering::Relaxed) > 0 && aetheris_fault::planted!("log-ends-with-its-target") {
            return;
        }
    }
}

/// Lines that are written together.
#[derive(Default)]
struct Batch {
    lines: u64,
    text: Vec<u8>,
}

impl Batch {
    fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        self.text.extend_from_slice(line);
    }

    fn is_full(&self) -> bool {
        self.text.len() >= limits::LOG_LINE_BYTES_MAX
    }

    /// Writes them after the count of those that were dropped before. Where that fails, all of them are.
    fn write(&mut self, target: &mut impl Write, dropped: &AtomicU64, lost: impl Fn(u64) -> String) {
        if self.lines == 0 {
            return;
        }
        let before = dropped.swap(0, Ordering::Relaxed);
        let told = before == 0 || target.write_all(lost(before).as_bytes()).is_ok();
        let written = target.write_all(&self.text).and_then(|()| target.flush()).is_ok();
        let untold = if told { 0 } else { before };
        let unwritten = if written { 0 } else { self.lines };
        dropped.fetch_add(untold + unwritten, Ordering::Relaxed);
        self.lines = 0;
        self.text.clear();
    }
}

/// One line being written: what `tracing` asks for.
impl Write for &Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A target that fails, or stands still, until it is told otherwise.
    #[derive(Clone, Default)]
    struct Bad(Arc<(Mutex<State>, Condvar)>);

    #[derive(Default)]
    struct State {
        broken: bool,
        /// So many writes fail from now on.
        fails: u32,
        stuck: bool,
        text: String,
    }

    impl Bad {
        fn set(&self, change: impl FnOnce(&mut State)) {
            change(&mut self.0.0.lock().unwrap());
            self.0.1.notify_all();
        }

        fn text(&self) -> String {
            self.0.0.lock().unwrap().text.clone()
        }
    }

    impl Write for Bad {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let mut state = self.0.1.wait_while(self.0.0.lock().unwrap(), |state| state.stuck).unwrap();
            if state.broken || state.fails > 0 {
                state.fails = state.fails.saturating_sub(1);
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.text.push_str(&String::from_utf8_lossy(line));
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LONG: Duration = Duration::from_secs(30);

    fn sink(target: &Bad) -> Sink {
        Sink::start(target.clone(), |lines| format!("{lines} lost\n")).unwrap()
    }

    #[test]
    fn a_target_that_fails_costs_its_lines_and_nothing_else() {
        let target = Bad::default();
        let sink = sink(&target);
        target.set(|state| state.broken = true);
        for _ in 0..3 {
            sink.line(b"into the void\n");
        }
        sink.flush(LONG);
        target.set(|state| state.broken = false);
        sink.line(b"heard\n");
        sink.flush(LONG);
        assert_eq!(target.text(), "3 lost\nheard\n");
    }

    /// A disk that has room again between the two.
    #[test]
    fn a_count_that_could_not_be_written_is_told_with_the_next_line() {
        let (target, dropped, mut batch) = (Bad::default(), AtomicU64::new(3), Batch::default());
        let mut write = |line: &[u8]| {
            batch.take(line);
            batch.write(&mut target.clone(), &dropped, |lines| format!("{lines} lost\n"));
        };
        target.set(|state| state.fails = 1);
        write(b"one\n");
        assert_eq!((target.text().as_str(), dropped.load(Ordering::Relaxed)), ("one\n", 3));
        write(b"two\n");
        assert_eq!((target.text().as_str(), dropped.load(Ordering::Relaxed)), ("one\n3 lost\ntwo\n", 0));
        dropped.store(1, Ordering::Relaxed);
        target.set(|state| state.fails = 2);
        write(b"three\n");
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    }

    /// Lines are dropped while others are being written: they count with the next.
    #[test]
    fn what_is_dropped_while_a_batch_is_written_is_told_with_the_next() {
        struct Slow<'a>(&'a AtomicU64);
        impl Write for Slow<'_> {
            fn write(&mut self, line: &[u8]) -> io::Result<usize> {
                self.0.fetch_add(1, Ordering::Relaxed);
                Ok(line.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (dropped, mut batch) = (AtomicU64::new(0), Batch::default());
        batch.take(b"a line\n");
        batch.write(&mut Slow(&dropped), &dropped, |lines| format!("{lines} lost\n"));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        // One while the count is written and one while the line is.
        batch.take(b"a line\n");
        batch.write(&mut Slow(&dropped), &dropped, |lines| format!("{lines} lost\n"));
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_target_that_stands_still_holds_nobody_up() {
        let target = Bad::default();
        let sink = sink(&target);
        target.set(|state| state.stuck = true);
        let sent = limits::LOG_LINES_WAITING_MAX + 100;
        for _ in 0..sent {
            sink.line(b"a line\n");
        }
        sink.line(&vec![b'x'; limits::LOG_LINE_BYTES_MAX + 1]);
        target.set(|state| state.stuck = false);
        let mut written = 0;
        while written < limits::LOG_LINES_WAITING_MAX {
            sink.flush(LONG);
            written = target.text().matches("a line\n").count();
        }
        sink.line(b"a line\n");
        sink.flush(LONG);
        let text = target.text();
        let lost: usize = text.lines().filter_map(|line| line.strip_suffix(" lost")?.parse::<usize>().ok()).sum();
        assert_eq!(text.matches("a line\n").count() + lost, sent + 2);
    }
}
