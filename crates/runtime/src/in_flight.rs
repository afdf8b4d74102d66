//! Calls of this process that have left and have not come back.
//!
//! No clock is needed to know that such a call may still act: as long as it is awaited here, nobody of this process may
//! record that it has not happened, unless the other side refuses it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::id::PermitId;
use aetheris_core::time::Span;

/// When a call that is still awaited is looked at again, once no clock lets it arrive any more.
pub(crate) const IN_FLIGHT_LOOK: Span = Span::from_secs(1);

/// The permits whose calls are awaited. Clones are the same set.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<Mutex<BTreeSet<PermitId>>>);

/// A call that is awaited; it is over when this is dropped.
#[derive(Debug)]
pub struct Flight {
    permit: PermitId,
    set: InFlight,
}

impl InFlight {
    fn set(&self) -> MutexGuard<'_, BTreeSet<PermitId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call leaves. It counts as awaited until what is returned is dropped.
    #[must_use]
    pub fn leave(&self, permit: PermitId) -> Flight {
        self.set().insert(permit);
        Flight { permit, set: self.clone() }
    }

    pub(crate) fn has(&self, permit: PermitId) -> bool {
        self.set().contains(&permit)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.set.set().remove(&self.permit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_in_flight_until_it_is_over() {
        let (calls, first, second) = (InFlight::default(), PermitId::from_u128(1), PermitId::from_u128(2));
        let flight = calls.clone().leave(first);
        assert!(calls.has(first) && !calls.has(second));
        drop(flight);
        assert!(!calls.has(first));
    }
}
