//! One fact, with all that is written because of it.

use aetheris_core::event::Event;
use aetheris_store::{InboxWrite, LedgerWrite, NewEffect, PlanDocument};

/// One fact with everything that is written because of it. Most have nothing beside them, and facts are moved about: what
/// few have is boxed.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// The effect that it records.
    pub effect: Option<Box<NewEffect>>,
    /// The fact itself.
    pub event: Event,
    /// Its change of the inbox.
    pub inbox: Option<Box<InboxWrite>>,
    /// Its change of the ledger.
    pub ledger: Option<Box<LedgerWrite>>,
    /// The plan that it records.
    pub plan: Option<Box<PlanDocument>>,
}

impl Fact {
    /// A fact that changes nothing beside the job's state.
    #[must_use]
    pub fn of(event: impl Into<Event>) -> Self {
        Self { effect: None, event: event.into(), inbox: None, ledger: None, plan: None }
    }

    /// The fact with its change of the ledger.
    #[must_use]
    pub fn with_ledger(event: impl Into<Event>, ledger: LedgerWrite) -> Self {
        Self { ledger: Some(Box::new(ledger)), ..Self::of(event) }
    }

    /// The fact with its effect and its change of the ledger.
    #[must_use]
    pub fn with_effect(event: impl Into<Event>, effect: NewEffect, ledger: LedgerWrite) -> Self {
        Self { effect: Some(Box::new(effect)), ..Self::with_ledger(event, ledger) }
    }

    /// The fact with the plan that it records.
    #[must_use]
    pub fn with_plan(event: impl Into<Event>, plan: PlanDocument) -> Self {
        Self { plan: Some(Box::new(plan)), ..Self::of(event) }
    }

    /// The fact with its change of the inbox.
    #[must_use]
    pub fn with_inbox(event: impl Into<Event>, inbox: InboxWrite) -> Self {
        Self { inbox: Some(Box::new(inbox)), ..Self::of(event) }
    }
}
