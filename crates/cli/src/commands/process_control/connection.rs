//! Connections that say how they ended: from outside, a caller that has read its answer and a caller that
//! has died both are a connection that is over.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// How a connection ended.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct Ended {
    /// Whether an answer had been handed to the kernel, all of it, before.
    pub(in crate::commands) answered: bool,
    /// Whether the other side ended it.
    pub(in crate::commands) by_client: bool,
    /// Which.
    pub(in crate::commands) connection: u64,
}

type Say = Arc<dyn Fn(Ended) + Send + Sync>;

/// Accepts connections and numbers them.
pub(in crate::commands) struct Watched {
    listener: TcpListener,
    next: AtomicU64,
    say: Say,
}

impl Watched {
    pub(in crate::commands) fn new(listener: TcpListener, say: impl Fn(Ended) + Send + Sync + 'static) -> Self {
        Self { listener, next: AtomicU64::new(1), say: Arc::new(say) }
    }
}

impl Listener for Watched {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let tag = Tag(Arc::new(Facts { watched: AtomicBool::new(false), number }));
        (
            Connection { by_client: false, say: Arc::clone(&self.say), stream, tag, unsent: false, written: false },
            address,
        )
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Listener::local_addr(&self.listener)
    }
}

/// What a handler knows of its connection.
#[derive(Debug, Clone)]
pub(in crate::commands) struct Tag(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    watched: AtomicBool,
    number: u64,
}

impl Tag {
    pub(in crate::commands) fn number(&self) -> u64 {
        self.0.number
    }

    /// Its end is to be told.
    pub(in crate::commands) fn watched(&self) {
        self.0.watched.store(true, Ordering::Release);
    }
}

impl Connected<IncomingStream<'_, Watched>> for Tag {
    fn connect_info(stream: IncomingStream<'_, Watched>) -> Self {
        stream.io().tag.clone()
    }
}

/// A connection that remembers who ended it, and what had been written by then.
pub(in crate::commands) struct Connection {
    by_client: bool,
    say: Say,
    stream: TcpStream,
    tag: Tag,
    /// Something was written, or tried to, since the last flush.
    unsent: bool,
    /// Something was written and flushed.
    written: bool,
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining());
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let ended = match &read {
            Poll::Ready(Ok(())) => room > 0 && buf.filled().len() == before,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        self.by_client |= ended;
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.unsent = true;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) && self.unsent {
            self.unsent = false;
            self.written = true;
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.tag.0.watched.load(Ordering::Acquire) {
            let answered = self.written && !self.unsent;
            (self.say)(Ended { answered, by_client: self.by_client, connection: self.tag.number() });
        }
    }
}
