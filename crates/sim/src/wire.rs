//! The way to the store, with the failures of a database over a network: an error before, an error after
//! execution, a commit that lands after its author gave up, a lost reply, no free connection, a
//! connection that breaks in mid-transaction, and every answer late.

use aetheris_core::time::Span;
use aetheris_store::faulty::{Decide, Fault, Op};
use aetheris_testing::random::Random;

use crate::tell;
use crate::trace::Trace;
use crate::weather::Weather;

/// Decides what one process's calls of the store meet.
pub struct Wire {
    random: Random,
    trace: Trace,
    weather: Weather,
    who: String,
}

impl Wire {
    /// The wire of a process.
    #[must_use]
    pub fn new(who: &str, random: Random, weather: Weather, trace: Trace) -> Self {
        Self { random, trace, weather, who: who.to_owned() }
    }

    fn late(&mut self) -> Span {
        Span::from_millis(self.random.between(0, self.weather.store_delay.max(5)))
    }
}

impl Decide for Wire {
    fn decide(&mut self, op: Op) -> Option<Fault> {
        if self.weather.is_bad() && self.random.chance(self.weather.store) {
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
            return Some(fault);
        }
        // A store is never quite instant: whoever else is ready goes first.
        self.random.chance(300).then(|| Fault::Delay(Span::from_millis(self.random.between(1, 4))))
    }
}
