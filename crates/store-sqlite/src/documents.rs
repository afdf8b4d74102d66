//! Parsed agents, for whoever asks again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::agent::Agent;
use aetheris_core::hash::Hash;
use aetheris_core::json::Json;
use aetheris_core::limits;

use crate::error::Trouble;
use crate::rows;

/// Agents by hash, under which they never change: those that were asked for last, up to a bound.
#[derive(Debug)]
pub(crate) struct Documents(Mutex<Kept>);

impl Default for Documents {
    fn default() -> Self {
        Self(Mutex::new(Kept { room: limits::AGENTS_KEPT_BYTES_MAX, ..Kept::default() }))
    }
}

impl Documents {
    /// The agent of a hash, which is parsed where it is not kept.
    pub(crate) fn agent(&self, hash: Hash, text: &[u8]) -> Result<Arc<Agent>, Trouble> {
        if let Some(agent) = self.kept().get(hash) {
            return Ok(agent);
        }
        let agent = Arc::new(rows::json::<Agent>("an agent", text)?);
        // What it takes is what its parts take, however few bytes each has.
        let takes = rows::json::<Json>("an agent", text)?.memory();
        self.kept().keep(hash, &agent, takes);
        Ok(agent)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Kept {
    asked: u64,
    by_hash: BTreeMap<Hash, One>,
    /// Which was asked for when.
    by_use: BTreeMap<u64, Hash>,
    room: usize,
    taken: usize,
}

#[derive(Debug)]
struct One {
    agent: Arc<Agent>,
    last_asked: u64,
    takes: usize,
}

impl Kept {
    fn get(&mut self, hash: Hash) -> Option<Arc<Agent>> {
        let one = self.by_hash.get_mut(&hash)?;
        self.asked += 1;
        self.by_use.remove(&std::mem::replace(&mut one.last_asked, self.asked));
        self.by_use.insert(self.asked, hash);
        Some(Arc::clone(&one.agent))
    }

    /// Keeps one, in the place of those that nobody has asked for so long. One that has no room by itself takes nobody's.
    fn keep(&mut self, hash: Hash, agent: &Arc<Agent>, takes: usize) {
        if takes > self.room || self.get(hash).is_some() {
            return;
        }
        while self.taken + takes > self.room {
            let Some(oldest) = self.by_use.pop_first().and_then(|(_, hash)| self.by_hash.remove(&hash)) else { return };
            self.taken -= oldest.takes;
        }
        self.asked += 1;
        self.by_use.insert(self.asked, hash);
        self.by_hash.insert(hash, One { agent: Arc::clone(agent), last_asked: self.asked, takes });
        self.taken += takes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, parts: usize) -> String {
        let agent = aetheris_store_conformance::fixture::agent(name, "1").agent;
        let schema = Json::new(serde_json::json!({ "enum": vec![1; parts] }));
        let agent = Agent { message_schema: Some(schema), ..agent.as_ref().clone() };
        String::from_utf8(aetheris_core::json::to_canonical(&agent)).unwrap()
    }

    fn hash(n: usize) -> Hash {
        Hash::of(&n.to_be_bytes())
    }

    #[test]
    fn agents_are_kept_up_to_their_bytes_and_those_asked_for_last() {
        // Two bytes each as a text, and many more as a value.
        let parts = 100_000;
        let large = text("large", parts);
        let takes = rows::json::<Json>("an agent", large.as_bytes()).unwrap().memory();
        assert!(takes > 10 * parts, "{takes}");
        let documents = Documents(Mutex::new(Kept { room: 4 * takes, ..Kept::default() }));
        let first = documents.agent(hash(0), large.as_bytes()).unwrap();
        for n in 1..20 {
            documents.agent(hash(n), large.as_bytes()).unwrap();
            let again = documents.agent(hash(0), b"not asked for").unwrap();
            assert!(Arc::ptr_eq(&first, &again), "it was asked for all the time and is gone after {n} others");
            assert!(documents.kept().taken <= 4 * takes && documents.kept().by_hash.len() <= 4);
        }
        assert!(documents.agent(hash(1), b"is gone, so this is read").is_err());
        // What has no room by itself is read each time and takes nobody's.
        let huge = text("huge", 5 * parts);
        documents.agent(hash(99), huge.as_bytes()).unwrap();
        assert_eq!(documents.kept().by_hash.len(), 4);
    }
}
