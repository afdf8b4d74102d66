//! An answer as it is streamed: server-sent events, put together by the dialect. Half of one is no answer: what ends without
//! the dialect's last event has failed, whatever has come of it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aetheris_runtime::ports::Heard;
use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::Response;
use sse_stream::SseStream;

use super::endpoint::{ANSWER_BYTES_MAX, Parsed};
use super::{Dialect, chat, messages};
use crate::exchange::{Deadline, Elapsed, cause};

/// Longest silence within a stream. Comments are no silence: by them a provider says that it is still there.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Why a streamed answer cannot be read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    /// The connection broke, or the stream makes no sense.
    Broken(String),
    /// It ended without its last event.
    Truncated,
    /// Nothing came for [`SILENCE_MAX`].
    Silent,
    /// The time of the call is over.
    TimedOut,
    /// It is larger than an answer may be.
    TooLarge,
}

/// What an event means for the answer that is put together.
pub(super) enum Step {
    /// There is more to come.
    More,
    /// That was the last one.
    Last,
}

/// An answer that is put together from events.
pub(super) enum Pieces {
    Chat(chat::Pieces),
    Messages(messages::Pieces),
}

impl Pieces {
    fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::ChatCompletions => Self::Chat(chat::Pieces::default()),
            Dialect::Messages => Self::Messages(messages::Pieces::default()),
        }
    }

    fn take(&mut self, data: &str, heard: Heard<'_>) -> Result<Step, String> {
        match self {
            Self::Chat(pieces) => pieces.take(data, heard),
            Self::Messages(pieces) => pieces.take(data, heard),
        }
    }

    /// About how many bytes the answer has so far.
    fn size(&self) -> usize {
        match self {
            Self::Chat(pieces) => pieces.size,
            Self::Messages(pieces) => pieces.size,
        }
    }

    fn whole(self) -> Parsed {
        match self {
            Self::Chat(pieces) => pieces.whole(),
            Self::Messages(pieces) => pieces.whole(),
        }
    }
}

/// Whether an answer is streamed. Some servers answer whole, whatever they are asked for.
pub(super) fn is_streamed(response: &Response) -> bool {
    let kind = response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

/// Reads an answer to its last event, and says each piece of its text as it comes.
pub(super) async fn read(
    response: Response,
    dialect: Dialect,
    deadline: Deadline,
    heard: Heard<'_>,
) -> Result<Parsed, Unread> {
    let wire = Arc::new(Wire { pieces: AtomicUsize::new(0), unmade: AtomicUsize::new(0) });
    let below = Arc::clone(&wire);
    let bytes = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(|error| Broken::Connection(cause(&error)))?;
        below.pieces.fetch_add(1, Ordering::Relaxed);
        let waiting = below.unmade.fetch_add(piece.len(), Ordering::Relaxed).saturating_add(piece.len());
        if waiting > ANSWER_BYTES_MAX { Err(Broken::TooLarge) } else { Ok(piece) }
    });
    // A last event that no empty line ends is one all the same, where the connection has ended in good order.
    let end = futures_util::stream::once(std::future::ready(Ok(Bytes::from_static(b"\n\n"))));
    let mut events = std::pin::pin!(SseStream::from_bytes_stream(bytes.chain(end)));
    let mut pieces = Pieces::of(dialect);
    loop {
        let before = wire.pieces.load(Ordering::Relaxed);
        let event = match deadline.at_most(SILENCE_MAX).within(events.next()).await {
            Ok(event) => event,
            Err(Elapsed) if deadline.is_over() => return Err(Unread::TimedOut),
            // It has said that it is still there.
            Err(Elapsed) if wire.pieces.load(Ordering::Relaxed) != before => continue,
            Err(Elapsed) => return Err(Unread::Silent),
        };
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(sse_stream::Error::Body(error))) => return Err(broken(error.as_ref())),
            Some(Err(error)) => return Err(Unread::Broken(error.to_string())),
            None => return Err(Unread::Truncated),
        };
        wire.unmade.store(0, Ordering::Relaxed);
        let Some(data) = event.data else { continue };
        let step = pieces.take(&data, heard).map_err(Unread::Broken)?;
        if pieces.size() > ANSWER_BYTES_MAX {
            return Err(Unread::TooLarge);
        }
        match step {
            Step::More => {}
            Step::Last => return Ok(pieces.whole()),
        }
    }
}

/// What has come below the events.
struct Wire {
    /// How many pieces.
    pieces: AtomicUsize,
    /// Bytes of which no event has been made yet: a line without an end would be kept whole.
    unmade: AtomicUsize,
}

/// What the bytes below the events fail with.
#[derive(Debug)]
enum Broken {
    Connection(String),
    TooLarge,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(cause) => f.write_str(cause),
            Self::TooLarge => f.write_str("an event is too large"),
        }
    }
}

impl Error for Broken {}

fn broken(error: &(dyn Error + 'static)) -> Unread {
    match crate::exchange::find::<Broken>(error) {
        Some(Broken::TooLarge) => Unread::TooLarge,
        Some(Broken::Connection(cause)) => Unread::Broken(cause.clone()),
        None => Unread::Broken(cause(error)),
    }
}
