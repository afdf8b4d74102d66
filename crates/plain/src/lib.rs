//! The second checker: every invariant as one plain query over the evidence as tables ([`evidence`]). It shares no
//! rule with the checker that is shipped; only the list of doubts is read by the same function for both. [`Checked`] has
//! both read the same store and the same logs, and they must come to the same result. [`turns`] judges when jobs began.

pub mod evidence;
#[cfg(test)]
mod tests;
pub mod turns;

use std::collections::BTreeMap;

use aetheris_check::{ClientHistory, Invariant, Report, WitnessLine, check_store};
use aetheris_core::id::IdempotencyKey;
use aetheris_store::Store;
use anyhow::Result;
use rusqlite::Connection;

pub use evidence::{Evidence, Found, copy_sqlite, hex};

/// Both checkers over the same evidence.
pub struct Checked {
    /// The Rust checker's report.
    pub rust: Report,
    /// What the queries found.
    pub sql: BTreeMap<Invariant, Found>,
    /// The evidence as tables.
    pub evidence: Evidence,
}

impl Checked {
    /// Runs both checkers; `copy` copies the store's rows into the tables of `sql/tables.sql`.
    ///
    /// # Errors
    /// The evidence cannot be read.
    pub async fn new(
        copy: impl FnOnce(&Connection) -> Result<()>,
        store: &dyn Store,
        witness: &[WitnessLine],
        history: &ClientHistory,
    ) -> Result<Self> {
        let rust = check_store(store, witness, history).await?;
        let listed: Vec<IdempotencyKey> = aetheris_check::survey::listed(store).await?.into_iter().collect();
        let evidence = Evidence::new()?;
        copy(evidence.tables())?;
        evidence.load(witness, history, &listed)?;
        let sql = evidence.check()?;
        Ok(Self { rust, sql, evidence })
    }

    /// Where the two checkers differ: in what they found violated, or, where nothing is, in the cases.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (id, sql) in &self.sql {
            let Some(rust) = self.rust.line(*id) else { continue };
            if (rust.violated > 0) != (sql.violated > 0) {
                found.push(format!("{id}: {} violations in Rust, {} in SQL", rust.violated, sql.violated));
            }
            // A checker that has found something stops at it and looks at fewer cases.
            if rust.violated == 0 && sql.violated == 0 && rust.examined != sql.examined {
                found.push(format!("{id}: {} cases in Rust, {} in SQL", rust.examined, sql.examined));
            }
        }
        found
    }

    /// What either of them found.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let rust = self.rust.lines.iter().filter(|line| line.violated > 0);
        let rust = rust.map(|line| format!("{} (Rust, {}): {}", line.id, line.violated, line.violations.join("; ")));
        let sql = self.sql.iter().filter(|(_, found)| found.violated > 0);
        rust.chain(sql.map(|(id, found)| format!("{id} (SQL, {}): {}", found.violated, found.violations.join("; "))))
            .collect()
    }

    /// How many cases contradict an invariant, by the Rust checker.
    #[must_use]
    pub fn violated(&self, id: Invariant) -> u64 {
        self.rust.line(id).map_or(0, |line| line.violated)
    }
}
