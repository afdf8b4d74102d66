//! Reading: connections that cannot write.
//!
//! A look at a few rows is done where it is asked for ([`Pool::look`]): it takes microseconds, never waits
//! for the writer, and handing it to another thread and back would cost ten times as much. Pages go to threads
//! of their own ([`Pool::ask`]), and what has no bound, the history of a large job, to others again
//! ([`Pool::ask_long`]): whoever reads one for seconds holds up nobody who asks for a page. Few questions stand with
//! the threads; the others wait where they are asked, in order, and whoever gives up leaves no question behind.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use aetheris_store::clock::StoreClock;
use aetheris_store::vital::{OnDeath, Vital};
use aetheris_store::{ErrorKind, StoreError};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::documents::Documents;
use crate::error::Error;
use crate::open;
use crate::queries::Prepared;
use crate::read::Reads;

/// Questions that stand with each thread: one that it answers, and the next.
const STANDING: usize = 2;

type Question = Box<dyn for<'a, 'c> FnOnce(&'a mut Reads<'c>) + Send>;

/// The readers of a store.
pub(crate) struct Pool {
    clock: Arc<StoreClock>,
    direct: Vec<Mutex<Connection>>,
    pub(crate) documents: Arc<Documents>,
    long: Option<Queue>,
    pages: Option<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// The way to threads that answer the same kind of question.
struct Queue {
    questions: Sender<Question>,
    standing: Arc<Semaphore>,
}

impl Pool {
    /// Opens the connections and starts the threads.
    pub(crate) fn start(
        path: &Path,
        readers: usize,
        clock: &Arc<StoreClock>,
        on_death: &OnDeath,
    ) -> Result<Self, Error> {
        Self::with(&|| open::reader(path), readers, clock, on_death)
    }

    /// The same without making a file.
    pub(crate) fn quiet(
        path: &Path,
        readers: usize,
        clock: &Arc<StoreClock>,
        on_death: &OnDeath,
    ) -> Result<Self, Error> {
        Self::with(&|| open::quiet_reader(path), readers, clock, on_death)
    }

    fn with(
        open: &dyn Fn() -> Result<Connection, Error>,
        readers: usize,
        clock: &Arc<StoreClock>,
        on_death: &OnDeath,
    ) -> Result<Self, Error> {
        let documents = Arc::new(Documents::default());
        let mut threads = Vec::new();
        let mut threads_of = |name: &str| {
            let (questions, queue) = channel();
            let queue = Arc::new(Mutex::new(queue));
            let standing = Arc::new(Semaphore::new(readers.max(1) * STANDING));
            for number in 0..readers.max(1) {
                let conn = open()?;
                let (queue, clock, documents) = (Arc::clone(&queue), Arc::clone(clock), Arc::clone(&documents));
                let name = format!("store-{name}-{number}");
                let (on_death, watched) = (Arc::clone(on_death), name.clone());
                let body = move || {
                    let vital = Vital::new(watched, &on_death);
                    serve(&conn, &queue, clock, documents);
                    vital.release();
                };
                let thread = std::thread::Builder::new().name(name).spawn(body);
                threads.push(thread.map_err(|e| Error::Unavailable(format!("no thread to read: {e}")))?);
            }
            Ok::<_, Error>(Queue { questions, standing })
        };
        let (pages, long) = (threads_of("read")?, threads_of("long")?);
        let direct = (0..readers.max(1)).map(|_| open().map(Mutex::new)).collect::<Result<_, _>>()?;
        let (long, pages) = (Some(long), Some(pages));
        Ok(Self { clock: Arc::clone(clock), direct, documents, long, pages, threads })
    }

    /// Looks at a few rows, on this thread.
    pub(crate) fn look<T>(
        &self,
        op: &'static str,
        question: impl FnOnce(&mut Reads<'_>) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let free = self.direct.iter().find_map(|conn| conn.try_lock().ok());
        let conn = free.or_else(|| Some(self.direct.first()?.lock().unwrap_or_else(PoisonError::into_inner)));
        let conn = conn.ok_or_else(|| StoreError::new(ErrorKind::Unavailable, op, "the store is closing"))?;
        let (clock, documents) = (Arc::clone(&self.clock), Arc::clone(&self.documents));
        let mut reads = Reads { clock, documents, sql: Prepared::new(&conn) };
        question(&mut reads).map_err(|error| error.at(op))
    }

    /// Asks one of the threads that read pages.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        op: &'static str,
        question: impl for<'a, 'c> FnOnce(&'a mut Reads<'c>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        ask(self.pages.as_ref(), op, question).await
    }

    /// Asks one of the threads that read what may be long.
    pub(crate) async fn ask_long<T: Send + 'static>(
        &self,
        op: &'static str,
        question: impl for<'a, 'c> FnOnce(&'a mut Reads<'c>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        ask(self.long.as_ref(), op, question).await
    }
}

async fn ask<T: Send + 'static>(
    queue: Option<&Queue>,
    op: &'static str,
    question: impl for<'a, 'c> FnOnce(&'a mut Reads<'c>) -> Result<T, Error> + Send + 'static,
) -> Result<T, StoreError> {
    let closing = || StoreError::new(ErrorKind::Unavailable, op, "the store is closing");
    let queue = queue.ok_or_else(closing)?;
    let place = Arc::clone(&queue.standing).acquire_owned().await.map_err(|_| closing())?;
    let (reply, answer) = oneshot::channel();
    queue.questions.send(standing(place, reply, question)).map_err(|_| closing())?;
    answer.await.map_err(|_| closing())?.map_err(|error| error.at(op))
}

/// A question that gives its place back before it is answered. One whose asker has left is let go.
fn standing<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    reply: oneshot::Sender<Result<T, Error>>,
    question: impl for<'a, 'c> FnOnce(&'a mut Reads<'c>) -> Result<T, Error> + Send + 'static,
) -> Question {
    Box::new(move |reads| {
        if !reply.is_closed() {
            let answer = question(reads);
            drop(place);
            drop(reply.send(answer));
        }
    })
}

impl Pool {
    /// Ends the threads and closes the connections.
    pub(crate) fn close(&mut self) {
        (self.long, self.pages) = (None, None);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
        self.direct.clear();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

fn serve(conn: &Connection, queue: &Mutex<Receiver<Question>>, clock: Arc<StoreClock>, documents: Arc<Documents>) {
    let mut reads = Reads { clock, documents, sql: Prepared::new(conn) };
    loop {
        // Held while waiting: the others wait for the lock instead, and one of them has it next.
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(question) => {
                aetheris_fault::crash_point!("vital.store-read");
                question(&mut reads);
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn pool() -> Pool {
        let clock = Arc::new(StoreClock::new(Arc::new(aetheris_store::system::SystemClock)));
        let on_death: OnDeath = Arc::new(|_| {});
        Pool::with(&|| Ok(Connection::open_in_memory()?), 1, &clock, &on_death).unwrap()
    }

    /// Keeps the only thread of a kind busy until the sender is dropped.
    fn busy(pool: &Pool) -> (impl Future<Output = Result<(), StoreError>> + '_, Sender<()>) {
        let (release, released) = channel::<()>();
        let asked = pool.ask_long("busy", move |_| {
            assert!(released.recv().is_err());
            Ok(())
        });
        (asked, release)
    }

    fn begin<T>(asked: std::pin::Pin<&mut impl Future<Output = T>>) {
        assert!(matches!(asked.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    }

    /// Neither one that stands with the thread, nor those behind it.
    #[tokio::test]
    async fn whoever_leaves_leaves_no_question_behind() {
        let pool = pool();
        let (asked, release) = busy(&pool);
        let mut asked = pin!(asked);
        begin(asked.as_mut());
        for _ in 0..5 {
            let mut left = Box::pin(pool.ask_long::<()>("left", |_| panic!("nobody asks this any more")));
            begin(left.as_mut());
        }
        drop(release);
        asked.await.unwrap();
        assert_eq!(pool.ask_long("next", |_| Ok(7)).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn few_questions_stand_with_a_thread_and_all_are_answered_in_order() {
        let pool = pool();
        let (asked, release) = busy(&pool);
        let mut asked = pin!(asked);
        begin(asked.as_mut());
        let (order, answered) = channel();
        let mut waiting = Vec::new();
        for number in 0..5 {
            let order = order.clone();
            let mut one = Box::pin(pool.ask_long("one", move |_| {
                order.send(number).unwrap();
                Ok(())
            }));
            begin(one.as_mut());
            waiting.push(one);
        }
        assert_eq!(pool.long.as_ref().unwrap().standing.available_permits(), 0);
        drop(release);
        for one in waiting {
            one.await.unwrap();
        }
        asked.await.unwrap();
        assert_eq!(answered.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(pool.long.as_ref().unwrap().standing.available_permits(), STANDING);
    }
}
