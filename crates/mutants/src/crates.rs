//! The crates that are sampled, and who has to notice.

use anyhow::Context as _;

/// A crate that is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    pub(crate) name: &'static str,
    /// Packages whose tests have to notice.
    pub(crate) tests: &'static [&'static str],
    /// The store of the simulation that is asked where no test has noticed.
    pub(crate) simulated_on: Option<&'static str>,
}

const fn sampled(name: &'static str, tests: &'static [&'static str], simulated_on: Option<&'static str>) -> Sampled {
    Sampled { name, tests, simulated_on }
}

/// `core` is mutated whole, by cargo-mutants itself.
const CRATES: [Sampled; 12] = [
    // The worker's tests drive every step of the runtime and every sweep of the scheduler in virtual time.
    sampled("runtime", &["aetheris-runtime", "aetheris-worker"], Some("memory")),
    sampled("worker", &["aetheris-worker"], Some("memory")),
    sampled("scheduler", &["aetheris-scheduler", "aetheris-worker"], Some("memory")),
    sampled("store", &["aetheris-store", "aetheris-store-sqlite"], Some("memory")),
    sampled("store-sqlite", &["aetheris-store-sqlite"], Some("sqlite")),
    sampled("server", &["aetheris-server"], None),
    sampled("adapters", &["aetheris-adapters"], None),
    sampled("api", &["aetheris-api", "aetheris-server"], None),
    sampled("cli", &["aetheris-cli"], None),
    sampled("agentfile", &["aetheris-agentfile"], None),
    sampled("expr", &["aetheris-expr"], None),
    sampled("schema", &["aetheris-schema", "aetheris-agentfile"], None),
];

/// Those of these names; without one, all.
pub(crate) fn wanted(names: &[String]) -> anyhow::Result<Vec<Sampled>> {
    let known = || CRATES.map(|sampled| sampled.name).join(", ");
    let find = |name: &String| {
        let found = CRATES.into_iter().find(|sampled| sampled.name == name);
        found.with_context(|| format!("{name} is not sampled; there are {}", known()))
    };
    if names.is_empty() { Ok(CRATES.to_vec()) } else { names.iter().map(find).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_sampled_is_refused() {
        let names = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let asked = wanted(&names("runtime server")).unwrap_or_default();
        assert_eq!(asked.iter().map(|sampled| sampled.name).collect::<Vec<_>>(), ["runtime", "server"]);
        assert_eq!(wanted(&[]).unwrap_or_default().len(), CRATES.len());
        assert!(wanted(&names("core")).is_err());
    }
}
