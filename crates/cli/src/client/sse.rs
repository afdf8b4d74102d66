//! Server-sent events: bytes in, messages out.

use aetheris_core::limits;

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Message {
    pub(super) data: String,
    /// Its name; empty where it has none.
    pub(super) event: String,
}

/// Puts messages together from pieces that break anywhere.
#[derive(Debug, Default)]
pub(super) struct Parser {
    rest: Vec<u8>,
    message: Message,
    has_data: bool,
}

impl Parser {
    /// Takes a piece, and gives the messages that it completes; `None` for a stream that makes no sense.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Option<Vec<Message>> {
        self.rest.extend_from_slice(piece);
        let mut messages = Vec::new();
        let mut start = 0;
        while let Some(length) = self.rest[start..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.rest[start..start + length]).into_owned();
            messages.extend(self.line(line.trim_end_matches('\r')));
            start += length + 1;
        }
        self.rest.drain(..start);
        let bounded = self.rest.len().max(self.message.data.len()) <= limits::STREAM_LINE_BYTES_MAX;
        bounded.then_some(messages)
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let complete = std::mem::take(&mut self.has_data);
            let message = std::mem::take(&mut self.message);
            return complete.then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field == "data" {
            if self.has_data {
                self.message.data.push('\n');
            }
            self.message.data.push_str(value.strip_prefix(' ').unwrap_or(value));
            self.has_data = true;
        } else if field == "event" {
            value.strip_prefix(' ').unwrap_or(value).clone_into(&mut self.message.event);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_an_end_makes_no_sense() {
        let mut parser = Parser::default();
        let piece = "data: x\n".repeat(1 << 16);
        let fed = (0..limits::STREAM_LINE_BYTES_MAX >> 16).take_while(|_| parser.feed(piece.as_bytes()).is_some());
        assert!(fed.count() < limits::STREAM_LINE_BYTES_MAX >> 16);
    }

    #[test]
    fn messages_survive_any_cut() {
        let stream =
            b": hello\n\nid: 1\nevent: job_created\ndata: {\"a\":\ndata: 1}\n\r\ndata:x\n\nid: 3\n\ndata: unfinished";
        let message = |data: &str, event: &str| Message { data: data.to_owned(), event: event.to_owned() };
        let expected = vec![message("{\"a\":\n1}", "job_created"), message("x", "")];
        for cut in 0..stream.len() {
            let mut parser = Parser::default();
            let mut found = parser.feed(&stream[..cut]).unwrap();
            found.extend(parser.feed(&stream[cut..]).unwrap());
            assert_eq!(found, expected, "{cut}");
        }
    }
}
