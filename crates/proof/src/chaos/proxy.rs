//! A proxy of our own between two parties, that spoils what goes through it on demand.
//!
//! It knows bytes and no protocol. A fault is ordered and hits the next bytes that a caller sends, on whichever
//! connection: so a call is hit in the middle, also on a connection that was used before. Every fault that hit
//! is written to the nemesis log with its begin and end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::nemesis::Log;

/// What one read takes.
const CHUNK: usize = 16 * 1024;
/// How long a half-open connection stays before it is given up: longer than any caller waits.
const HALF_OPEN: Duration = Duration::from_secs(20);

/// What is done to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spoil {
    /// The connection closes before anything was forwarded.
    CutBefore,
    /// The call is forwarded, and the connection closes before its answer.
    CutAfter,
    /// The call is forwarded, and the connection closes after so many bytes of its answer.
    CutWithin(usize),
    /// The call is forwarded, and its answer ends in good order where an event stream has said something.
    EndWithin,
    /// The call is forwarded, and then nothing comes and nothing closes.
    HalfOpen,
    /// The call is forwarded, and the connection is reset.
    ResetAfter,
    /// The connection is reset before anything was forwarded.
    ResetBefore,
    /// The call is held for a while.
    Stall(Duration),
    /// The answer comes byte by byte.
    Slices,
}

impl Spoil {
    /// Its name in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CutBefore => "cut_before",
            Self::CutAfter => "cut_after",
            Self::CutWithin(_) => "cut_within",
            Self::EndWithin => "end_within",
            Self::HalfOpen => "half_open",
            Self::ResetAfter => "reset_after",
            Self::ResetBefore => "reset_before",
            Self::Stall(_) => "stall",
            Self::Slices => "slices",
        }
    }
}

/// A running proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// Where it listens.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Ended when everything is to be cut; a new one follows.
    alive: Mutex<CancellationToken>,
    log: Log,
    name: &'static str,
    orders: Mutex<VecDeque<Spoil>>,
    upstream: watch::Receiver<SocketAddr>,
}

impl Shared {
    fn order(&self) -> Option<Spoil> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn alive(&self) -> CancellationToken {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Proxy {
    /// Listens on a free port and forwards to wherever `upstream` says.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn start(name: &'static str, upstream: watch::Receiver<SocketAddr>, log: Log) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let alive = Mutex::new(CancellationToken::new());
        let shared = Arc::new(Shared { alive, log, name, orders: Mutex::new(VecDeque::new()), upstream });
        let proxy = Self { addr, shared };
        proxy.accept(listener);
        Ok(proxy)
    }

    /// Another one before the same party.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn beside(&self, name: &'static str) -> Result<Self> {
        Self::start(name, self.shared.upstream.clone(), self.shared.log.clone()).await
    }

    /// Where it forwards to now.
    #[must_use]
    pub fn upstream(&self) -> SocketAddr {
        *self.shared.upstream.borrow()
    }

    /// Lets the next call be hit.
    pub fn order(&self, spoil: Spoil) {
        self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner).push_back(spoil);
    }

    /// Takes back what was ordered and has not hit.
    pub fn calm(&self) {
        self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Nobody listens any more, and every connection is reset.
    pub fn down(&self) {
        self.shared.alive().cancel();
    }

    /// Listens again on the same port.
    ///
    /// # Errors
    /// The port is taken.
    pub async fn up(&self) -> Result<()> {
        let mut tries = 0;
        let listener = loop {
            match TcpListener::bind(self.addr).await {
                Ok(listener) => break listener,
                Err(_) if tries < 100 => {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => return Err(error).context("listening again"),
            }
        };
        *self.shared.alive.lock().unwrap_or_else(PoisonError::into_inner) = CancellationToken::new();
        self.accept(listener);
        Ok(())
    }

    fn accept(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        let alive = shared.alive();
        tokio::spawn(async move {
            loop {
                let caller = tokio::select! {
                    () = alive.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((caller, _)) = caller else { continue };
                let (shared, alive) = (Arc::clone(&shared), alive.clone());
                tokio::spawn(async move {
                    let mut link = Link { caller, server: None };
                    let cut = tokio::select! {
                        () = alive.cancelled() => true,
                        carried = link.carry(&shared) => carried.is_err(),
                    };
                    if cut {
                        link.reset();
                    }
                });
            }
        });
    }
}

/// One connection and its other half.
struct Link {
    caller: TcpStream,
    server: Option<TcpStream>,
}

impl Link {
    fn reset(&self) {
        // A socket that is gone already is as good as reset.
        let _ = self.caller.set_zero_linger();
        if let Some(server) = &self.server {
            let _ = server.set_zero_linger();
        }
    }

    /// Carries bytes both ways until one side ends, or an order ends it.
    async fn carry(&mut self, shared: &Shared) -> Result<()> {
        let upstream = *shared.upstream.borrow();
        let server = TcpStream::connect(upstream).await?;
        server.set_nodelay(true)?;
        self.caller.set_nodelay(true)?;
        let server = self.server.insert(server);
        let (mut asked, mut answered) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut slices: Option<Slices> = None;
        loop {
            tokio::select! {
                read = self.caller.read(&mut asked) => {
                    let read = read?;
                    if read == 0 {
                        return Ok(());
                    }
                    if let Some(spoil) = shared.order() {
                        let hit = shared.log.begin(&format!("{}_{}", shared.name, spoil.as_str()), "call");
                        let goes_on = spoiled(spoil, &mut self.caller, server, &asked[..read]).await;
                        if spoil == Spoil::Slices {
                            slices = Some(Slices { left: 200, hit: Some(hit) });
                        } else {
                            shared.log.end(hit);
                        }
                        if !goes_on? {
                            return Ok(());
                        }
                        continue;
                    }
                    server.write_all(&asked[..read]).await?;
                }
                read = server.read(&mut answered) => {
                    let read = read?;
                    if read == 0 {
                        return Ok(());
                    }
                    match &mut slices {
                        Some(slow) => slow.write(&mut self.caller, &answered[..read], &shared.log).await?,
                        None => self.caller.write_all(&answered[..read]).await?,
                    }
                }
            }
        }
    }
}

/// An answer that comes byte by byte, for its first bytes.
struct Slices {
    hit: Option<usize>,
    left: usize,
}

impl Slices {
    async fn write(&mut self, caller: &mut TcpStream, bytes: &[u8], log: &Log) -> Result<()> {
        let slow = self.left.min(bytes.len());
        for byte in &bytes[..slow] {
            caller.write_all(std::slice::from_ref(byte)).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.left -= slow;
        if let Some(hit) = self.hit.take() {
            log.end(hit);
        }
        caller.write_all(&bytes[slow..]).await?;
        Ok(())
    }
}

/// Does it. Whether the connection goes on.
async fn spoiled(spoil: Spoil, caller: &mut TcpStream, server: &mut TcpStream, call: &[u8]) -> Result<bool> {
    match spoil {
        Spoil::CutBefore => Ok(false),
        Spoil::ResetBefore => {
            caller.set_zero_linger()?;
            Ok(false)
        }
        Spoil::CutAfter | Spoil::ResetAfter => {
            server.write_all(call).await?;
            // The answer is on its way when it is lost.
            let mut lost = vec![0; CHUNK];
            let _ = server.read(&mut lost).await?;
            if spoil == Spoil::ResetAfter {
                caller.set_zero_linger()?;
            }
            Ok(false)
        }
        Spoil::CutWithin(bytes) => {
            server.write_all(call).await?;
            within(caller, server, bytes, false).await
        }
        Spoil::EndWithin => {
            server.write_all(call).await?;
            within(caller, server, usize::MAX, true).await
        }
        Spoil::HalfOpen => {
            server.write_all(call).await?;
            let mut lost = vec![0; CHUNK];
            let swallow = async { while server.read(&mut lost).await.is_ok_and(|read| read > 0) {} };
            let mut more = [0; 1];
            // Until the caller gives up, as one with a timeout does.
            let given_up = async { while caller.read(&mut more).await.is_ok_and(|read| read > 0) {} };
            let swallow = async {
                swallow.await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = swallow => {}
                () = given_up => {}
                () = tokio::time::sleep(HALF_OPEN) => {}
            }
            Ok(false)
        }
        Spoil::Stall(time) => {
            tokio::time::sleep(time).await;
            server.write_all(call).await?;
            Ok(true)
        }
        Spoil::Slices => {
            server.write_all(call).await?;
            Ok(true)
        }
    }
}

/// How a piece of an event stream ends that is whole, and how a stream ends in good order, both as HTTP has it. No event
/// has such an end in it.
const WHOLE: &[u8] = b"\n\n\r\n";
const LAST: &[u8] = b"0\r\n\r\n";

/// Passes so many bytes of an answer on, or all up to where a stream has said something. Whether the connection goes on.
async fn within(caller: &mut TcpStream, server: &mut TcpStream, bytes: usize, in_order: bool) -> Result<bool> {
    let (mut some, mut more) = (vec![0; bytes.clamp(1, CHUNK)], [0; 1]);
    let mut left = bytes;
    while left > 0 {
        let wanted = left.min(some.len());
        let read = tokio::select! {
            read = server.read(&mut some[..wanted]) => read?,
            // It had all of a shorter answer.
            _ = caller.read(&mut more) => 0,
            () = tokio::time::sleep(HALF_OPEN) => 0,
        };
        if read == 0 {
            break;
        }
        caller.write_all(&some[..read]).await?;
        if in_order && some[..read].ends_with(WHOLE) {
            caller.write_all(LAST).await?;
            break;
        }
        left -= read;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use aetheris_store::system::SystemClock;

    use super::*;

    /// A server that answers each chunk with `ok` and counts them.
    async fn server() -> (watch::Sender<SocketAddr>, watch::Receiver<SocketAddr>, Arc<std::sync::atomic::AtomicU32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (sender, receiver) = watch::channel(listener.local_addr().unwrap());
        let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let mut bytes = [0; 64];
                    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        if stream.write_all(b"ok").await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        (sender, receiver, count)
    }

    async fn ask(addr: SocketAddr) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(addr).await?;
        stream.write_all(b"hello").await?;
        let mut answer = vec![0; 2];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn each_order_hits_one_call_and_what_was_forwarded_is_as_it_says() {
        let (_keep, upstream, count) = server().await;
        let log = Log::new(Arc::new(SystemClock));
        let proxy = Proxy::start("t", upstream, log.clone()).await.unwrap();
        let mut forwarded = 0;
        for (spoil, arrives, answered) in [
            (Spoil::CutBefore, 0, false),
            (Spoil::ResetBefore, 0, false),
            (Spoil::CutAfter, 1, false),
            (Spoil::CutWithin(1), 1, false),
            (Spoil::ResetAfter, 1, false),
            (Spoil::Stall(Duration::from_millis(5)), 1, true),
            (Spoil::Slices, 1, true),
        ] {
            proxy.order(spoil);
            assert_eq!(ask(proxy.addr).await.is_ok(), answered, "{spoil:?}");
            forwarded += arrives;
            assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), forwarded, "{spoil:?}");
            assert_eq!(ask(proxy.addr).await.unwrap(), b"ok");
            forwarded += 1;
        }
        assert_eq!(log.lines().len(), 7);
    }

    #[tokio::test]
    async fn a_reset_is_told_from_a_close_and_a_port_that_is_down_refuses() {
        let (_keep, upstream, _) = server().await;
        let proxy = Proxy::start("t", upstream, Log::new(Arc::new(SystemClock))).await.unwrap();
        proxy.order(Spoil::ResetAfter);
        assert_eq!(ask(proxy.addr).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        proxy.order(Spoil::CutAfter);
        assert_eq!(ask(proxy.addr).await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        proxy.down();
        while ask(proxy.addr).await.map_err(|e| e.kind()) != Err(std::io::ErrorKind::ConnectionRefused) {
            tokio::task::yield_now().await;
        }
        proxy.up().await.unwrap();
        assert_eq!(ask(proxy.addr).await.unwrap(), b"ok");
    }
}
