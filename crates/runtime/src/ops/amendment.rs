//! What an operation adds to a job.

use aetheris_core::event::Event;
use aetheris_core::id::IdSource;
use aetheris_core::ledger::Settle;
use aetheris_core::state::Illegal;
use aetheris_store::LedgerWrite;

use crate::draft::{Draft, Fact};

/// Facts, and what is written beside them.
#[derive(Debug, Default)]
pub struct Amendment {
    /// What is to be recorded, in order.
    pub facts: Vec<Fact>,
    /// Permits that no fact speaks of and that are settled with them.
    pub settles: Vec<Settle>,
    /// Whether the job is given away with them.
    pub release: bool,
}

impl Amendment {
    /// Facts that change nothing beside the job's state.
    #[must_use]
    pub fn of(events: impl IntoIterator<Item = Event>) -> Self {
        Self { facts: events.into_iter().map(Fact::of).collect(), ..Self::default() }
    }

    /// The same with a fact more.
    #[must_use]
    pub fn and(mut self, fact: Fact) -> Self {
        self.facts.push(fact);
        self
    }

    /// Its facts and then another's, with all that is written beside both.
    #[must_use]
    pub fn then(mut self, later: Self) -> Self {
        self.facts.extend(later.facts);
        self.settles.extend(later.settles);
        Self { release: self.release || later.release, ..self }
    }

    /// The job is given away with it.
    #[must_use]
    pub fn releasing(self) -> Self {
        Self { release: true, ..self }
    }

    /// Adds it to a draft.
    ///
    /// # Errors
    /// The reducer refuses a fact.
    pub(crate) fn add_to(self, draft: &mut Draft, ids: &dyn IdSource) -> Result<(), Illegal> {
        for fact in self.facts {
            draft.add(ids, fact)?;
        }
        for settle in self.settles {
            draft.also_settle(LedgerWrite::Settle(settle));
        }
        if self.release {
            draft.release();
        }
        Ok(())
    }
}
