//! Runs a search and reports it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use aetheris_store::system::{Clock as _, SystemClock};
use stateright::{Checker as _, Expectation, HasDiscoveries, Model as _};

use crate::bugs::Bound;
use crate::config::Config;
use crate::laws::{Law, Sight, Tally};
use crate::story;
use crate::system::Search;

/// What a search found.
#[derive(Debug)]
pub struct Report {
    /// The longest path.
    pub depth: usize,
    /// What is wrong: the law, and the story that shows it.
    pub breaches: Vec<Breach>,
    /// Whether every state was visited.
    pub exhausted: bool,
    /// Sights that were never seen.
    pub missing: Vec<&'static str>,
    /// Properties: always, sometimes, eventually.
    pub properties: [usize; 3],
    /// States that were made, those that were known among them.
    pub states: usize,
    /// Time it took.
    pub took: Duration,
    /// What was examined and seen.
    pub tally: Arc<Tally>,
    /// Different states.
    pub unique: usize,
}

/// A law that does not hold.
#[derive(Debug)]
pub struct Breach {
    /// Which.
    pub law: &'static str,
    /// How many steps its story has.
    pub steps: usize,
    /// How it comes about.
    pub story: String,
}

/// Searches within a bound.
#[must_use]
pub fn run(config: Config, bound: Bound) -> Report {
    let tally = Arc::new(Tally::default());
    let sights = config.mutation.is_none() && !bound.first;
    let search = Search { config, liveness: true, sights, tally: Arc::clone(&tally) };
    let began = SystemClock.boot();
    let finish = if bound.first { HasDiscoveries::AnyFailures } else { HasDiscoveries::AllFailures };
    let mut builder = search.checker().threads(bound.threads).finish_when(finish);
    if let Some(limit) = bound.limit {
        builder = builder.timeout(limit);
    }
    let checker = builder.spawn_bfs().join();
    let took = SystemClock.boot().saturating_sub(began);
    let properties = checker.model().properties();
    let discoveries = checker.discoveries();
    let mut breaches = Vec::new();
    let mut missing = Vec::new();
    let mut counts = [0; 3];
    for property in &properties {
        let found = discoveries.get(property.name);
        match property.expectation {
            Expectation::Always | Expectation::Eventually => {
                counts[if property.expectation == Expectation::Always { 0 } else { 2 }] += 1;
                if let Some(path) = found {
                    let (story, steps) = story::tell(checker.model(), path.clone());
                    breaches.push(Breach { law: property.name, steps, story });
                }
            }
            Expectation::Sometimes => {
                counts[1] += 1;
                if found.is_none() {
                    missing.push(property.name);
                }
            }
        }
    }
    let timely = bound.limit.is_none_or(|limit| took < limit);
    Report {
        breaches,
        depth: checker.max_depth(),
        exhausted: timely && !bound.first,
        missing,
        properties: counts,
        states: checker.state_count(),
        took,
        tally,
        unique: checker.unique_state_count(),
    }
}

impl Report {
    /// Whether every law holds on every state of an exhausted search in which everything was seen.
    #[must_use]
    pub fn proves(&self) -> bool {
        self.breaches.is_empty() && self.missing.is_empty() && self.exhausted
    }

    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let [always, sometimes, eventually] = self.properties;
        for law in Law::ALL {
            let broken = self.breaches.iter().any(|breach| breach.law == law.as_str());
            let verdict = if broken { "BROKEN" } else { "holds" };
            let _ = writeln!(text, "always      {verdict:<7}{:>12}  {}", self.tally.examined(*law), law.as_str());
        }
        for sight in Sight::ALL {
            let count = self.tally.seen(*sight);
            let verdict = if count == 0 { "never" } else { "seen" };
            let _ = writeln!(text, "sometimes   {verdict:<7}{count:>12}  {}", sight.as_str());
        }
        for breach in &self.breaches {
            let _ = writeln!(text, "\nBROKEN: {}\n{}", breach.law, breach.story);
        }
        let end = if self.exhausted { "exhausted" } else { "not exhausted" };
        let _ = writeln!(
            text,
            "{} unique states of {} made, depth {}, {:.1} s, {end}; {always} always, {sometimes} sometimes, {eventually} eventually; {} broken, {} never seen",
            self.unique,
            self.states,
            self.depth,
            self.took.as_secs_f64(),
            self.breaches.len(),
            self.missing.len(),
        );
        text
    }
}
