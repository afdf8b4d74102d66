//! The rows of the guarantee table, the only list of them: `guarantees` prints it, `docs/guarantees.md` repeats it, `prove`
//! judges by it. And which of them an invariant speaks for.

use aetheris_check::Invariant;
use serde::{Serialize, Serializer};

macro_rules! guarantees {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $what:literal;)*) => {
        /// A row of the guarantee table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Guarantee {
            $($(#[$doc])* $name,)*
        }

        impl Guarantee {
            /// Every row, in the order of the table; the last one is a condition.
            pub(super) const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in reports.
            pub(super) const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// What is promised, in the words of the table.
            pub(super) const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }
        }
    };
}

guarantees! {
    /// Cases are calls.
    Permitted = "permitted-once", "A call of an `at_most_once` tool is sent at most once per recorded permission.";
    /// Cases are calls whose outcome was unknown, and attempts to answer for them.
    Reasoned = "second-permission", "A second permission needs proof or a person.";
    /// Cases are calls whose outcome was unknown.
    Told = "in-doubt", "Where the outside outcome cannot be known, the job says so.";
    /// Cases are acknowledged messages, signals and cancels.
    Kept = "nothing-lost", "An acknowledged job or signal is not lost while the store keeps what it acknowledged.";
    /// Cases are jobs that had two holders, or one that was slow.
    Fenced = "newest-fence", "No writer without the newest fence changes a job.";
    /// Cases are keys of never-retry tools.
    BodyOnce = "body-once", "A never-retry tool's body starts at most once per key.";
    /// Cases are keys of idempotent tools.
    SameKey = "same-key", "An idempotent tool may be called again with the same key.";
    /// Cases are replays.
    Silent = "silent-replay", "Replay calls nothing.";
    /// Cases are jobs and damaged bytes.
    Audited = "audit", "Every decision can be replayed and audited.";
    /// Cases are waits, sleeps and cancels.
    EndsOnce = "ends-once", "A wait ends exactly once, whatever is repeated or raced.";
    /// Cases are processes that want a folder, and writes while someone else holds the lock.
    Conditions = "conditions", "One process holds a data folder; a process that waits for the database's lock loses nothing.";
}

impl Guarantee {
    /// What is promised: every row but the condition.
    pub(super) fn promises() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().filter(|row| **row != Self::Conditions).map(|row| row.what())
    }

    /// The row that an invariant's violation contradicts.
    pub(super) const fn of(invariant: Invariant) -> Self {
        match invariant {
            Invariant::A2 | Invariant::A3 | Invariant::A9 | Invariant::E7 => Self::Fenced,
            Invariant::B1
            | Invariant::B2
            | Invariant::B4
            | Invariant::B5
            | Invariant::B7
            | Invariant::C7
            | Invariant::C8
            | Invariant::D1
            | Invariant::D8
            | Invariant::F5 => Self::Audited,
            Invariant::B3 | Invariant::D5 | Invariant::E1 => Self::Kept,
            Invariant::C1 | Invariant::C2 => Self::Permitted,
            Invariant::C4 => Self::SameKey,
            Invariant::C5 => Self::Told,
            Invariant::C6 => Self::BodyOnce,
            Invariant::D7 | Invariant::E2 | Invariant::E6 => Self::EndsOnce,
        }
    }
}

impl Serialize for Guarantee {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_promises_what_the_commands_do() {
        let page = include_str!("../../../../docs/guarantees.md");
        let table = page.split("\n## ").find(|part| part.starts_with("What is guaranteed")).unwrap();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        assert_eq!(rows.skip(1).collect::<Vec<_>>(), Guarantee::promises().collect::<Vec<_>>());
    }
}
