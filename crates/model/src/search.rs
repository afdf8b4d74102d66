//! Runs a search and reports it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use aetheris_store::system::{Clock as _, SystemClock};
use stateright::{Checker, HasDiscoveries, Model as _};

use crate::config::Config;
use crate::laws::{Law, Sight, Tally, eventually};
use crate::story;
use crate::system::Search;

/// How long a search may go on.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Whether long paths come first; for searches that are not exhausted.
    pub deep: bool,
    /// Whether it ends with the first breach.
    pub first: bool,
    /// The longest time.
    pub limit: Option<Duration>,
    /// Threads.
    pub threads: usize,
}

/// What a search found.
#[derive(Debug)]
pub struct Report {
    /// The longest path.
    pub depth: usize,
    /// What is wrong: the law, and the story that shows it.
    pub breaches: Vec<Breach>,
    /// Whether every state was visited.
    pub exhausted: bool,
    /// States that were made, those that were known among them.
    pub states: usize,
    /// Time it took.
    pub took: Duration,
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

/// Searches within a bound. Searches that share a tally cover what they cover together.
#[must_use]
pub fn run(config: Config, bound: Bound, tally: &Arc<Tally>) -> Report {
    let search = Search { config, tally: Arc::clone(tally) };
    let began = SystemClock.boot();
    let finish = if bound.first { HasDiscoveries::AnyFailures } else { HasDiscoveries::AllFailures };
    let mut builder = search.checker().threads(bound.threads).finish_when(finish);
    if let Some(limit) = bound.limit {
        builder = builder.timeout(limit);
    }
    if bound.deep {
        let checker = builder.spawn_dfs().join();
        return report(&checker, bound, SystemClock.boot().saturating_sub(began));
    }
    let checker = builder.spawn_bfs().join();
    report(&checker, bound, SystemClock.boot().saturating_sub(began))
}

fn report(checker: &impl Checker<Search>, bound: Bound, took: Duration) -> Report {
    let discoveries = checker.discoveries();
    let mut breaches = Vec::new();
    for property in checker.model().properties() {
        if let Some(path) = discoveries.get(property.name) {
            let (story, steps) = story::tell(checker.model(), path.clone());
            breaches.push(Breach { law: property.name, steps, story });
        }
    }
    let timely = bound.limit.is_none_or(|limit| took < limit);
    Report {
        breaches,
        depth: checker.max_depth(),
        exhausted: timely && !bound.first,
        states: checker.state_count(),
        took,
        unique: checker.unique_state_count(),
    }
}

/// Every property with its verdict over all reports, which share one tally. A law that was judged on nothing
/// counts as a sight that was never seen.
#[must_use]
pub fn verdicts(reports: &[Report], tally: &Tally) -> (String, bool) {
    let mut text = String::new();
    let broken = |name: &str| reports.iter().any(|report| report.breaches.iter().any(|breach| breach.law == name));
    let mut good = reports.iter().all(|report| report.breaches.is_empty());
    let mut line = |kind: &str, verdict: &str, count: Option<u64>, name: &str| {
        good &= count != Some(0);
        let count = count.map_or_else(String::new, |count| count.to_string());
        let _ = writeln!(text, "{kind:<12}{verdict:<8}{count:>12}  {name}");
    };
    for law in Law::ALL {
        let count = tally.examined(*law);
        let verdict = if broken(law.as_str()) { "BROKEN" } else { "holds" };
        line("always", verdict, Some(count).filter(|_| law.is_counted()), law.as_str());
    }
    for sight in Sight::ALL {
        let count = tally.seen(*sight);
        line("sometimes", if count == 0 { "NEVER" } else { "seen" }, Some(count), sight.as_str());
    }
    for property in eventually() {
        let verdict = if broken(property.name) { "BROKEN" } else { "holds" };
        line("eventually", verdict, None, property.name);
    }
    (text, good)
}

impl Report {
    /// Whether every law holds on every state of an exhausted search.
    #[must_use]
    pub fn proves(&self) -> bool {
        self.breaches.is_empty() && self.exhausted
    }

    /// The size of the search, and the stories of what is broken.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for breach in &self.breaches {
            let _ = writeln!(text, "\nBROKEN: {}\n{}", breach.law, breach.story);
        }
        let end = if self.exhausted { "exhausted" } else { "not exhausted" };
        let (unique, states, depth, took) = (self.unique, self.states, self.depth, self.took.as_secs_f64());
        let _ = write!(text, "{unique} unique states of {states} made, depth {depth}, {took:.1} s, {end}");
        text
    }
}
