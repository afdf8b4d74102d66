//! Values that nobody can compute again: what is recorded of them is given out in its order, and what is not is drawn.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aetheris_core::event::{Draw, Drawn};
use aetheris_core::limits;
use aetheris_core::state::Values;
use serde_json::Value;

use crate::error::ExprError;
use crate::eval::{Eval, Operand};

/// The values that the templates of one step ask for.
pub struct Draws<'s> {
    /// Where new ones come from; where nothing does, only what is recorded is given out.
    chance: Option<&'s Chance<'s>>,
    /// How many were given out to templates before.
    from: usize,
    given: Mutex<Given>,
    recorded: &'s Values,
}

/// What new values are made of.
type Chance<'s> = dyn Fn() -> u128 + Sync + 's;

/// What was given out.
#[derive(Debug, Default)]
struct Given {
    count: usize,
    /// Those of them that are not recorded.
    fresh: Vec<Drawn>,
}

impl fmt::Debug for Draws<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draws").field("from", &self.from).finish_non_exhaustive()
    }
}

impl<'s> Draws<'s> {
    /// What is recorded of a step, of which its templates before these have been given so many.
    #[must_use]
    pub fn new(recorded: &'s Values, from: usize, chance: Option<&'s Chance<'s>>) -> Self {
        Self { chance, from, given: Mutex::default(), recorded }
    }

    /// A template is rendered from its beginning once more.
    pub(crate) fn rewind(&self) {
        *self.given() = Given::default();
    }

    /// How many were given out, and which of them are not recorded.
    #[must_use]
    pub fn end(self) -> (usize, Vec<Drawn>) {
        let Given { count, fresh } = self.given.into_inner().unwrap_or_else(PoisonError::into_inner);
        (count, fresh)
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next value of a kind.
    pub(crate) fn take(&self, draw: Draw) -> Result<Value, ExprError> {
        let unrecorded = || ExprError::Unrecorded { draw };
        if draw == Draw::Now {
            return self.recorded.now.map(|now| Value::String(now.to_string())).ok_or_else(unrecorded);
        }
        let mut given = self.given();
        let place = self.from + given.count;
        if place >= limits::DRAWN_VALUES_MAX {
            return Err(ExprError::failed(format!(
                "the templates of one step ask for more than {} random values",
                limits::DRAWN_VALUES_MAX
            )));
        }
        let drawn = match self.recorded.drawn.get(place) {
            Some(drawn) if drawn.draw() == draw => drawn.clone(),
            // Its templates ask for other values than they did.
            Some(_) => return Err(unrecorded()),
            None => {
                let chance = self.chance.ok_or_else(unrecorded)?();
                let drawn = if draw == Draw::Random { Drawn::random(chance) } else { Drawn::uuid(chance) };
                given.fresh.push(drawn.clone());
                drawn
            }
        };
        given.count += 1;
        Ok(match drawn {
            Drawn::Random(number) => Value::from(number),
            Drawn::Uuid(text) => Value::String(text),
            Drawn::Now => return Err(unrecorded()),
        })
    }
}

impl<'a> Eval<'a, '_> {
    /// The next value of a kind, for a template.
    pub(crate) fn draw(&mut self, draw: Draw) -> Result<Operand<'a>, ExprError> {
        let draws =
            self.scope.draws.ok_or_else(|| ExprError::NotAllowedHere { name: format!("{}()", draw.function()) })?;
        let value = draws.take(draw)?;
        self.meter.copy(&value)?;
        Ok(Cow::Owned(value))
    }
}
