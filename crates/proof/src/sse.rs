//! Event streams as a client reads them, and what they tell beside what is stored.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Server-sent events, put together from pieces that break anywhere.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    rest: Vec<u8>,
    data: String,
    event: String,
    id: String,
}

impl SseParser {
    /// Takes a piece, and gives the events that it completes.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        self.rest.extend_from_slice(piece);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = std::str::from_utf8(&line)?.trim_end_matches(['\n', '\r']);
            let (field, value) = line.split_once(": ").unwrap_or((line, ""));
            match field {
                "id" => value.clone_into(&mut self.id),
                "event" => value.clone_into(&mut self.event),
                "data" => self.data.push_str(value),
                "" if line.is_empty() => events.extend(self.complete()?),
                _ => {}
            }
        }
        Ok(events)
    }

    fn complete(&mut self) -> Result<Option<Value>> {
        let (data, event, id) =
            (std::mem::take(&mut self.data), std::mem::take(&mut self.event), std::mem::take(&mut self.id));
        // Pieces of models' answers are no facts.
        if data.is_empty() || event == "delta" {
            return Ok(None);
        }
        let value: Value = serde_json::from_str(&data).with_context(|| format!("the data of event {id}"))?;
        if value["seq"].as_u64() != id.parse().ok() || value["type"] != event.as_str() {
            bail!("a message is `{event}` with the id {id}, and its data {data}");
        }
        Ok(Some(value))
    }
}

/// The first place at which two lists of events differ.
pub(crate) fn differing(stored: &[Value], told: &[Value]) -> Option<String> {
    if stored.len() != told.len() {
        return Some(format!("{} events are told, {} are stored", told.len(), stored.len()));
    }
    let place = stored.iter().zip(told).position(|(stored, told)| stored != told)?;
    Some(format!("{} is told, {} is stored", told[place], stored[place]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_whole_or_it_is_none_and_agrees_with_its_data() {
        let text = ": here\n\nid: 1\nevent: a\ndata: {\"seq\":1,\"type\":\"a\"}\n\nid: 2\nevent: b\ndata: {\"seq\":2,\"type\":\"b\"}\n\nid: 3\nevent: c\ndata: {";
        for cut in 0..text.len() {
            let mut messages = SseParser::default();
            let mut found = messages.feed(&text.as_bytes()[..cut]).unwrap();
            found.extend(messages.feed(&text.as_bytes()[cut..]).unwrap());
            assert_eq!(found, [json!({"seq": 1, "type": "a"}), json!({"seq": 2, "type": "b"})], "{cut}");
        }
        for wrong in ["id: 2\nevent: a\ndata: {\"seq\":1,\"type\":\"a\"}\n\n", "id: 1\nevent: a\ndata: {\n\n"] {
            assert!(SseParser::default().feed(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
