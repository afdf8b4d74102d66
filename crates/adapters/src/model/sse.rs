//! Server-sent events: pieces that break anywhere in, the data of whole events out. Names, places and comments are of no use
//! here, and fields that nobody knows are passed over, as the standard has it.

/// What has come and is not a whole event yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    data: Option<String>,
    line: Vec<u8>,
    /// A line's end came last that another byte may belong to.
    after_return: bool,
}

impl Events {
    /// Takes a piece; the data of the events that it completes.
    ///
    /// # Errors
    /// A line is no text.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Vec<String>, std::str::Utf8Error> {
        let mut whole = Vec::new();
        for byte in piece {
            let ends = match byte {
                b'\n' if std::mem::take(&mut self.after_return) => continue,
                b'\n' => true,
                b'\r' => {
                    self.after_return = true;
                    true
                }
                _ => {
                    self.after_return = false;
                    self.line.push(*byte);
                    false
                }
            };
            if ends {
                let line = std::mem::take(&mut self.line);
                whole.extend(self.take(std::str::from_utf8(&line)?));
            }
        }
        Ok(whole)
    }

    /// The connection has ended in good order: a last event that no empty line ends is one all the same.
    ///
    /// # Errors
    /// As [`Events::feed`].
    pub(super) fn end(&mut self) -> Result<Vec<String>, std::str::Utf8Error> {
        self.after_return = false;
        self.feed(b"\n\n")
    }

    /// How many bytes are kept.
    pub(super) fn held(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, String::len)
    }

    fn take(&mut self, line: &str) -> Option<String> {
        if line.is_empty() {
            return self.data.take();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field.trim_start_matches('\u{feff}') == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_wherever_their_pieces_break() {
        let stream = "\u{feff}data: a\n\n: still here\n\nevent: x\r\nid: 1\r\ndata: {\"é\":\r\ndata:1}\r\n\r\nnonsense\nretry\n\n\
                      data\n\ndata: b\r\rdata:  c\n\ndata: left"
            .as_bytes();
        let expected = ["a", "{\"é\":\n1}", "", "b", " c"];
        for cut in 0..=stream.len() {
            let mut events = Events::default();
            let mut found = events.feed(&stream[..cut]).unwrap();
            found.extend(events.feed(&stream[cut..]).unwrap());
            assert_eq!(found, expected, "{cut}");
            assert_eq!(events.held(), "data: left".len());
            assert_eq!(events.end().unwrap(), ["left"]);
        }
        assert!(Events::default().feed(b"data: \xff\n").is_err());
    }
}
