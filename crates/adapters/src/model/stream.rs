//! An answer as it is streamed: server-sent events, put together by the dialect. Half of one is no answer: what ends without
//! the dialect's last event has failed, whatever has come of it.

use std::time::Duration;

use aetheris_runtime::ports::Heard;
use reqwest::Response;

use super::endpoint::{ANSWER_BYTES_MAX, Parsed};
use super::sse::Events;
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
    let mut response = response;
    let (mut events, mut pieces) = (Events::default(), Pieces::of(dialect));
    loop {
        // Comments come as bytes too: by them a provider says that it is still there.
        let piece = match deadline.at_most(SILENCE_MAX).within(response.chunk()).await {
            Ok(piece) => piece.map_err(|error| Unread::Broken(cause(&error)))?,
            Err(Elapsed) if deadline.is_over() => return Err(Unread::TimedOut),
            Err(Elapsed) => return Err(Unread::Silent),
        };
        let whole = match &piece {
            Some(piece) => events.feed(piece),
            None => events.end(),
        };
        for data in whole.map_err(|error| Unread::Broken(error.to_string()))? {
            match pieces.take(&data, heard).map_err(Unread::Broken)? {
                Step::More => {}
                Step::Last => return Ok(pieces.whole()),
            }
        }
        if events.held().max(pieces.size()) > ANSWER_BYTES_MAX {
            return Err(Unread::TooLarge);
        }
        if piece.is_none() {
            return Err(Unread::Truncated);
        }
    }
}
