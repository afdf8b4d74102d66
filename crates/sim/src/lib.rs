//! The deterministic simulation: the production worker, runs, sweeps and reducer on one thread, in
//! virtual time, over a store that fails as databases fail: the one in memory, or SQLite's own. A seed decides everything, and the same seed
//! does the same for ever.
//!
//! Reading order: [`program`] (what is run, and what must come out), [`fault_rates`] (how much goes wrong),
//! [`wire`] and [`services`] (the store's and the tools' side of it), [`recorder`] (what is checked at
//! every write), [`processes`] (the processes), [`clients`] (who sends and answers), [`oracle`] (what is checked
//! at the end), [`tally`] (how often), [`in_place`] (SQLite's store in virtual time), [`seed`] (one run), [`batch`] (many),
//! [`strikes`] and [`search`] (every blow at every place of small worlds, where seeds draw them).

pub mod batch;
mod children;
pub mod clients;
mod draw;
mod failures;
pub mod fault_rates;
mod file;
pub mod in_place;
mod job_rules;
mod joins;
mod loops;
mod maps;
mod operator;
pub mod oracle;
pub mod people;
mod planners;
mod processes;
pub mod program;
pub mod recorder;
mod rounds;
pub mod search;
pub mod seed;
pub mod services;
pub mod strikes;
pub mod tally;
pub mod trace;
pub mod troubles;
pub mod wire;
