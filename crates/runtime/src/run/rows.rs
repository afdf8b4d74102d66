//! The rows that a run knows beside the state: recorded effects, kept signals, and the ledger. Decisions read them. How a
//! drafted fact changes them is decided here; a run that reads its job again keeps the effects that it has drafted.

use std::collections::BTreeMap;

use aetheris_core::id::IdempotencyKey;
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger, Settle};
use aetheris_core::time::Timestamp;
use aetheris_store::{EffectRow, KeptSignal, LedgerWrite, NewEffect};

use crate::draft::Fact;
use crate::ops::Ledger;

/// What the store had when the job was read, and what has been drafted since.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// Effects that are recorded or drafted, by key.
    pub effects: BTreeMap<IdempotencyKey, EffectRow>,
    /// Signals that are kept for waits, in the order in which they came.
    pub kept: Vec<KeptSignal>,
    /// The ledger's rows as they were read, and which of them have been committed since. A row of a permit that was
    /// given since is not there until the job is read again.
    pub ledger: Ledger,
}

impl Rows {
    /// Takes in what a drafted fact is written with.
    pub fn note(&mut self, fact: &Fact) {
        if let Some(effect) = &fact.effect {
            self.record(effect);
        }
        if let Some(LedgerWrite::Settle(Settle { key, permit_id, trigger: LedgerTrigger::Commit })) =
            fact.ledger.as_deref()
            && let Some(row) = self.ledger.get_mut(key).filter(|row| row.permit_id == *permit_id)
            && !aetheris_fault::planted!("commit-not-noted")
        {
            row.status = LedgerStatus::Committed;
        }
    }

    /// Takes in an effect that is drafted. The store gives it its time.
    pub(super) fn record(&mut self, effect: &NewEffect) {
        let (key, permit, result) = (effect.key, effect.permit, effect.result.clone());
        self.effects.insert(key, EffectRow { at: Timestamp::default(), key, permit, result });
    }
}
