//! Parsed agents, for whoever asks again.

use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::agent::Agent;
use aetheris_core::hash::Hash;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_store::kept::Kept;

use crate::error::Error;
use crate::rows;

/// Agents by hash, under which they never change: those that were asked for last, up to a bound.
#[derive(Debug)]
pub(crate) struct Documents(Mutex<Cache>);

type Cache = Kept<Hash, Arc<Agent>>;

impl Default for Documents {
    fn default() -> Self {
        Self::with_room(limits::AGENTS_KEPT_BYTES_MAX)
    }
}

impl Documents {
    const fn with_room(room: usize) -> Self {
        Self(Mutex::new(Kept::with_room(room)))
    }

    /// The agent of a hash, which is parsed where it is not kept.
    pub(crate) fn agent(&self, hash: Hash, text: &[u8]) -> Result<Arc<Agent>, Error> {
        if let Some(agent) = self.kept().get(&hash) {
            return Ok(agent);
        }
        let agent = Arc::new(rows::json::<Agent>("an agent", text)?);
        // What it takes is what its parts take, however few bytes each has.
        let takes = rows::json::<Json>("an agent", text)?.memory();
        self.kept().keep(hash, Arc::clone(&agent), takes);
        Ok(agent)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let documents = Documents::with_room(4 * takes);
        let first = documents.agent(hash(0), large.as_bytes()).unwrap();
        for n in 1..20 {
            documents.agent(hash(n), large.as_bytes()).unwrap();
            let again = documents.agent(hash(0), b"not asked for").unwrap();
            assert!(Arc::ptr_eq(&first, &again), "it was asked for all the time and is gone after {n} others");
            assert!(documents.kept().taken() <= 4 * takes && documents.kept().iter().len() <= 4);
        }
        assert!(documents.agent(hash(1), b"is gone, so this is read").is_err());
        // What has no room by itself is read each time and takes nobody's.
        let huge = text("huge", 5 * parts);
        documents.agent(hash(99), huge.as_bytes()).unwrap();
        assert_eq!(documents.kept().iter().len(), 4);
    }
}
