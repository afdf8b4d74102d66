//! A connection's bytes on their way out: a client that does not take them is not waited for without end, and
//! what the HTTP layer refuses by itself is said in words.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aetheris_api::{ErrorCode, PROBLEM_JSON, Problem};
use aetheris_core::limits;
use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Longest head of a refusal that the HTTP layer writes by itself.
const BARE_HEAD_MAX: usize = 512;
/// Its mark: it has nothing to say.
const BARE: &str = "content-length: 0\r\n";

/// A stream under the HTTP layer.
pub(crate) struct Wire<S> {
    inner: S,
    /// What is written in place of a refusal without a word.
    own: Bytes,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes taken since it stalled.
    taken: usize,
}

impl<S> Wire<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, own: Bytes::new(), stalled: None, taken: 0 }
    }

    /// Watches a write. Whoever takes too little for too long is gone, whatever the connection says.
    fn watch(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        offered: usize,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(taken)) => {
                self.taken = self.taken.saturating_add(taken);
                let enough = self.taken >= limits::WRITE_STALL_BYTES || aetheris_fault::planted!("a-byte-is-enough");
                if taken == offered || enough {
                    self.stalled = None;
                }
                Poll::Ready(Ok(taken))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if self.stalled.is_none() {
                    self.taken = 0;
                }
                let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(limits::WRITE_STALL_MAX.to_std())));
                timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    fn write_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            let written = Pin::new(&mut self.inner).poll_write(cx, &self.own);
            let taken = ready!(self.watch(cx, written, self.own.len()))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            drop(self.own.split_to(taken));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.write_own(cx))?;
        if let Some(own) = in_words(buf) {
            self.own = own;
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, written, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.write_own(cx))?;
        let offered = bufs.iter().map(|buf| buf.len()).sum();
        let last = bufs.iter().rev().find(|buf| !buf.is_empty());
        if last.is_some_and(|last| in_words(last).is_some()) {
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            self.own = in_words(&all).unwrap_or_else(|| Bytes::from(all));
            return Poll::Ready(Ok(offered));
        }
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watch(cx, written, offered)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_own(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_own(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The same bytes, where they end with a refusal without a body, which only the HTTP layer writes: with one. It is
/// the last that a connection says. A head ends with an empty line, which no body of this server does.
fn in_words(bytes: &[u8]) -> Option<Bytes> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let tail = bytes.len().saturating_sub(BARE_HEAD_MAX);
    let mark = b"HTTP/1.";
    let start = tail + bytes[tail..].windows(mark.len()).rposition(|window| window == mark)?;
    let head = std::str::from_utf8(&bytes[start..]).ok()?;
    let (before, after) = head.split_once(BARE)?;
    let problem = match head.split(' ').nth(1)? {
        "400" => Problem::new(
            ErrorCode::InvalidRequest,
            "this is not a request of HTTP/1.1: its first line, or a header, is malformed",
        ),
        "414" => uri_too_long(),
        "431" => Problem::new(
            ErrorCode::HeadersTooLarge,
            format!(
                "there are too many headers, or first line and headers together exceed {} bytes",
                limits::HEAD_BYTES_MAX
            ),
        ),
        _ => return None,
    };
    let body = serde_json::to_vec(&problem).ok()?;
    let length = format!("content-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\n", body.len());
    let parts = [&bytes[..start], before.as_bytes(), length.as_bytes(), after.as_bytes(), body.as_slice()];
    Some(Bytes::from(parts.concat()))
}

/// What is said of a path that is too long.
pub(crate) fn uri_too_long() -> Problem {
    let bound = limits::URI_BYTES_MAX;
    Problem::new(ErrorCode::UriTooLong, format!("path and query are longer than the {bound} bytes that are accepted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(status: &str) -> String {
        format!("HTTP/1.1 {status}\r\nconnection: close\r\n{BARE}date: Sun, 22 Nov 2026 11:00:00 GMT\r\n\r\n")
    }

    #[test]
    fn a_refusal_without_a_word_gets_one() {
        for (status, code) in [
            ("400 Bad Request", "invalid_request"),
            ("414 URI Too Long", "uri_too_long"),
            ("431 Request Header Fields Too Large", "headers_too_large"),
        ] {
            let earlier = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            for before in ["", earlier] {
                let said = in_words(format!("{before}{}", bare(status)).as_bytes()).unwrap();
                let said = std::str::from_utf8(&said).unwrap();
                let (head, body) = said[before.len()..].split_once("\r\n\r\n").unwrap();
                assert!(said.starts_with(before) && head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{said}");
                assert!(head.contains(&format!("content-length: {}", body.len())) && !head.contains(BARE), "{said}");
                assert!(head.contains("content-type: application/problem+json\r\n") && head.contains("date: "));
                assert_eq!(serde_json::from_str::<Problem>(body).unwrap().code.as_str(), code);
            }
        }
    }

    #[test]
    fn everything_else_is_left_as_it_is() {
        let own = "HTTP/1.1 400 Bad Request\r\ncontent-length: 12\r\n\r\n{\"code\": \"a\"}";
        for text in [own, "", "\r\n\r\n", "{}\r\n\r\n", &bare("200 OK"), &bare("204 No Content")] {
            assert_eq!(in_words(text.as_bytes()), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_took_much_and_then_takes_a_byte_at_a_time_is_gone() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let much = 4 * limits::WRITE_STALL_BYTES;
        let (near, mut far) = tokio::io::duplex(1_024);
        let client = tokio::spawn(async move {
            far.read_exact(&mut vec![0; much]).await.unwrap();
            while far.read_u8().await.is_ok() {
                sleep(limits::WRITE_STALL_MAX.to_std() / 10).await;
            }
        });
        let began = tokio::time::Instant::now();
        let error = Wire::new(near).write_all(&vec![0; 2 * much]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < 2 * limits::WRITE_STALL_MAX.to_std(), "{:?}", began.elapsed());
        client.await.unwrap();
    }

    /// However long it takes in all.
    #[tokio::test(start_paused = true)]
    async fn who_takes_enough_in_time_is_served_to_the_end() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let piece = limits::WRITE_STALL_BYTES;
        let (near, mut far) = tokio::io::duplex(1_024);
        let client = tokio::spawn(async move {
            for _ in 0..8 {
                sleep(limits::WRITE_STALL_MAX.minus(aetheris_core::time::Span::from_millis(1)).to_std()).await;
                far.read_exact(&mut vec![0; piece]).await.unwrap();
            }
        });
        Wire::new(near).write_all(&vec![0; 8 * piece]).await.unwrap();
        client.await.unwrap();
    }
}
