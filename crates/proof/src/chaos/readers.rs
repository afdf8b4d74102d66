//! Clients that ask for much and do not take it. By the dozen for a moment, as a fault of the world; and a few that stay,
//! at a server of their own that nobody kills: whoever takes nothing has to be cut off in time, and whoever takes enough
//! gets all that he asked for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::limits;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::oracle::Oracle;
use super::stored::Stored;

/// The buffer of whoever does not read: what is sent waits at the sender.
const SMALL: u32 = 4 * 1024;
/// Answers that a reader asks for at once, on one connection: more than any buffer of the system holds.
const ANSWERS: usize = 80;
/// Events that a job must have for its page to be a large answer.
const LARGE: u64 = 600;
/// Readers of a wave that take nothing, and as many that take enough.
const WAVE: u32 = 6;
/// What those take in a second: what the system has buffered must go within the server's patience as well.
const PACE: usize = 512 * 1024;
/// How long after its patience a server has cut off who takes nothing.
const GRACE: Duration = Duration::from_secs(6);
/// How long a reader that takes all at once may need for it.
const ALL: Duration = Duration::from_secs(20);

/// The requests of a reader: pages of a large job, and the last one closes.
fn requests(job: &str) -> String {
    (1..=ANSWERS)
        .map(|number| {
            let end = if number == ANSWERS { "connection: close\r\n" } else { "" };
            format!("GET /api/jobs/{job}/events?limit=1000 HTTP/1.1\r\nhost: 127.0.0.1\r\n{end}\r\n")
        })
        .collect()
}

async fn connect(server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(SMALL)?;
    socket.connect(server).await
}

/// Readers by the dozen, for a while: of pages, of streams, of lists; some take a byte at times.
pub async fn dawdle(server: SocketAddr, job: &str, time: Duration) {
    let mut all = JoinSet::new();
    for number in 0..6 * WAVE {
        let asked = match number % 3 {
            0 => requests(job),
            1 => format!("GET /api/jobs/{job}/events/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"),
            _ => "GET /api/jobs?limit=500 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".repeat(8),
        };
        all.spawn(async move {
            let mut stream = connect(server).await?;
            stream.write_all(asked.as_bytes()).await?;
            let pause = if number % 2 == 0 { Duration::from_millis(20) } else { time };
            loop {
                tokio::time::sleep(pause).await;
                stream.read_u8().await?;
            }
            #[expect(unreachable_code, reason = "says what it may fail with")]
            std::io::Result::Ok(())
        });
    }
    tokio::time::sleep(time).await;
    all.shutdown().await;
}

/// How a reader fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It has all answers that it asked for.
    All,
    /// The server ended the connection before.
    Cut,
    /// Neither: it has taken what there was, and no more comes.
    Nothing,
    /// There was no server, or it said something else.
    Void,
}

/// Asks for much, takes nothing for a while, or always a little, and then all that is left.
async fn read(server: SocketAddr, job: &str, takes: bool, patience: Duration) -> End {
    let Ok(mut stream) = connect(server).await else { return End::Void };
    if stream.write_all(requests(job).as_bytes()).await.is_err() {
        return End::Void;
    }
    let mut answers = Answers::default();
    let began = SystemClock.boot();
    while SystemClock.boot() - began < patience {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if takes && let Some(end) = answers.take(&mut stream, PACE / 10).await {
            return end;
        }
    }
    let rest = async {
        loop {
            if let Some(end) = answers.take(&mut stream, usize::MAX).await {
                return end;
            }
        }
    };
    tokio::select! {
        end = rest => end,
        () = tokio::time::sleep(ALL) => End::Nothing,
    }
}

/// Answers of one connection, counted by their heads.
#[derive(Debug, Default)]
struct Answers {
    good: usize,
    other: usize,
    tail: Vec<u8>,
}

impl Answers {
    /// Takes up to so many bytes; how it ended, where it did.
    async fn take(&mut self, stream: &mut TcpStream, most: usize) -> Option<End> {
        let (mut piece, mut left) = (vec![0; 16 * 1024], most);
        while left > 0 {
            let wanted = left.min(piece.len());
            match stream.read(&mut piece[..wanted]).await {
                Ok(read) if read > 0 => {
                    self.feed(&piece[..read]);
                    left = left.saturating_sub(read);
                }
                Ok(_) | Err(_) => return Some(self.end()),
            }
        }
        None
    }

    fn feed(&mut self, piece: &[u8]) {
        self.tail.extend_from_slice(piece);
        let (good, any) = (&b"HTTP/1.1 200"[..], &b"HTTP/1.1 "[..]);
        let count = |mark: &[u8], within: &[u8]| within.windows(mark.len()).filter(|window| *window == mark).count();
        // What begins in the last bytes is counted with the next piece.
        let kept = self.tail.len().min(good.len() - 1);
        let (from, whole) = (self.tail.len() - kept, self.tail.as_slice());
        let begins = |mark: &[u8]| count(mark, whole) - count(mark, &whole[from..]);
        let goods = begins(good);
        self.other += begins(any).saturating_sub(goods);
        self.good += goods;
        self.tail.drain(..from);
    }

    fn end(&self) -> End {
        match (self.good, self.other) {
            (_, 1..) | (0, _) => End::Void,
            (ANSWERS.., _) => End::All,
            _ => End::Cut,
        }
    }
}

/// Readers that stay.
#[derive(Debug)]
pub struct Readers {
    cut: Mutex<Oracle>,
    served: Mutex<Oracle>,
}

impl Default for Readers {
    fn default() -> Self {
        let cut = Mutex::new(Oracle::new("who takes nothing of its answers is cut off"));
        let served = Mutex::new(Oracle::new("who takes its answers slowly gets all of them"));
        Self { cut, served }
    }
}

impl Readers {
    /// How long a run must be for a wave.
    #[must_use]
    pub fn wave() -> Duration {
        limits::WRITE_STALL_MAX.to_std() + 2 * GRACE
    }

    /// One wave after the other at `server`, as long as there is the time until then, by the boot clock. One that met
    /// another start of the server says nothing.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn run(
        self: Arc<Self>,
        stored: PathBuf,
        server: watch::Receiver<SocketAddr>,
        until: Duration,
    ) -> Result<()> {
        let query = format!("SELECT id FROM jobs WHERE seq > {LARGE} ORDER BY num DESC LIMIT 1");
        let patience = limits::WRITE_STALL_MAX.to_std() + GRACE;
        while SystemClock.boot() + patience < until {
            let large = Stored::open(&stored)?.names(&query)?.pop();
            let Some(job) = large else {
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            };
            let mut wave = JoinSet::new();
            let address = *server.borrow();
            for number in 0..2 * WAVE {
                let (job, takes) = (job.clone(), number % 2 == 0);
                wave.spawn(async move {
                    // Not all at once: a server answers few large questions at a time, and refuses the others.
                    tokio::time::sleep(Duration::from_millis(60) * number).await;
                    (takes, read(address, &job, takes, patience).await)
                });
            }
            let ends: Vec<(bool, End)> = wave.join_all().await;
            if *server.borrow() == address {
                self.count(&ends);
            }
        }
        Ok(())
    }

    fn count(&self, ends: &[(bool, End)]) {
        for (takes, end) in ends.iter().filter(|(_, end)| *end != End::Void) {
            let (oracle, expected) = if *takes { (&self.served, End::All) } else { (&self.cut, End::Cut) };
            let mut oracle = oracle.lock().unwrap_or_else(PoisonError::into_inner);
            oracle.case(*end == expected, || format!("it ended as {end:?}"));
        }
    }

    /// What came of them.
    #[must_use]
    pub fn oracles(&self) -> Vec<Oracle> {
        [&self.cut, &self.served].map(|oracle| oracle.lock().unwrap_or_else(PoisonError::into_inner).clone()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_wherever_their_pieces_break() {
        let text = b"HTTP/1.1 200 OK\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n{}HTTP/1.1 503 X\r\n\r\n{}      ";
        for size in 1..text.len() {
            let mut answers = Answers::default();
            text.chunks(size).for_each(|piece| answers.feed(piece));
            assert_eq!((answers.good, answers.other), (2, 1), "{size}");
            assert_eq!(answers.end(), End::Void);
        }
        let ended = |good| Answers { good, ..Answers::default() }.end();
        assert_eq!([ended(0), ended(1), ended(ANSWERS)], [End::Void, End::Cut, End::All]);
    }
}
