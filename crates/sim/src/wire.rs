//! The way to the store, with the failures of a database over a network: an error before, an error after
//! execution, a commit that lands after its author gave up, a lost reply, no free connection, a
//! connection that breaks in mid-transaction, every answer late, and what is executed at once and answered late.

use aetheris_core::time::Span;
use aetheris_store::faulty::{Decide, Fault, Op};
use aetheris_testing::random::Random;

use crate::fault_rates::{FaultRates, HARMLESS};
use crate::strikes::{Blow, Site};
use crate::tell;
use crate::trace::Trace;
use crate::troubles::Troubles;

/// Decides what one process's calls of the store meet.
pub struct Wire {
    random: Random,
    trace: Trace,
    troubles: Troubles,
    rates: FaultRates,
    who: String,
}

impl Wire {
    /// The wire of a process.
    #[must_use]
    pub fn new(who: &str, random: Random, rates: FaultRates, trace: Trace, troubles: Troubles) -> Self {
        Self { random, trace, troubles, rates, who: who.to_owned() }
    }

    fn late(&mut self) -> Span {
        Span::from_millis(self.random.between(0, self.rates.store_delay.max(5)))
    }
}

impl Decide for Wire {
    fn decide(&mut self, op: Op) -> Option<Fault> {
        let planned = Site::of_operation(op).and_then(|site| self.rates.strikes.strike(site)).and_then(Blow::fault);
        if let Some(fault) = planned {
            tell!(self.trace, &self.who, "store: {op:?} meets {fault:?}");
            self.troubles.befalls(&self.who);
            return Some(fault);
        }
        if self.rates.is_bad() && self.random.chance(self.rates.store) {
            let fault = match self.random.below(7) {
                0 => Fault::After,
                1 => Fault::Before,
                2 => Fault::Broken(self.late()),
                3 => Fault::Delay(self.late()),
                4 => Fault::Late(self.late()),
                5 => Fault::Lost,
                _ => Fault::PoolTimeout(self.late()),
            };
            tell!(self.trace, &self.who, "store: {op:?} meets {fault:?}");
            self.troubles.befalls(&self.who);
            return Some(fault);
        }
        if self.rates.is_bad() && self.random.chance(self.rates.slow) {
            let late = self.random.between(1, self.rates.slow_longest);
            if late > HARMLESS {
                self.troubles.befalls(&self.who);
            }
            return Some(Fault::Slow(Span::from_millis(late)));
        }
        // A store is never quite instant: whoever else is ready goes first.
        self.random.chance(300).then(|| Fault::Delay(Span::from_millis(self.random.between(1, 4))))
    }
}
