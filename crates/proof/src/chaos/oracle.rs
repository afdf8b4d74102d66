//! What asks a question of a whole run: how often it was asked, and where the answer was wrong.

/// Wrong answers that are kept in words.
const TOLD_MAX: usize = 10;

/// A question, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oracle {
    /// What has to hold.
    pub what: &'static str,
    /// How often it was looked at.
    pub cases: u64,
    /// How often it did not hold.
    pub wrong: u64,
    told: Vec<String>,
}

impl Oracle {
    /// Not asked yet.
    #[must_use]
    pub const fn new(what: &'static str) -> Self {
        Self { what, cases: 0, wrong: 0, told: Vec::new() }
    }

    /// One case, and what is wrong where it does not hold.
    pub fn case(&mut self, holds: bool, wrong: impl FnOnce() -> String) {
        self.cases += 1;
        if !holds {
            self.wrong += 1;
            if self.told.len() < TOLD_MAX {
                self.told.push(wrong());
            }
        }
    }

    /// One case, with what is wrong about it.
    pub fn found(&mut self, wrong: Option<String>) {
        self.case(wrong.is_none(), || wrong.unwrap_or_default());
    }

    /// What is wrong, in words. That there was no case is wrong as well: nothing was proved.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        if self.cases == 0 {
            return vec![format!("{}: no case was examined", self.what)];
        }
        self.told.iter().map(|told| format!("{} ({}): {told}", self.what, self.wrong)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_was_never_asked_has_proved_nothing() {
        let mut oracle = Oracle::new("all holds");
        assert_eq!(oracle.problems(), ["all holds: no case was examined"]);
        oracle.case(true, String::new);
        assert!(oracle.problems().is_empty());
        (0..20).for_each(|number| oracle.found(Some(number.to_string())));
        assert_eq!((oracle.cases, oracle.wrong, oracle.problems().len()), (21, 20, TOLD_MAX));
        assert_eq!(oracle.problems()[0], "all holds (20): 0");
    }
}
