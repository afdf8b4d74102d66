//! What the fuzzers do with their bytes. Each target takes any bytes, drives the code that reads hostile
//! input, and panics where a property does not hold. `fuzz/` wraps them for libFuzzer; the tests of this
//! crate run them over the kept corpus and over every input that once broke something.
//!
//! Reading order: [`texts`] (readers of one text), [`reducer`] (sequences of events), [`router`] (sequences
//! of requests to a server on a store in memory, with its jobs run by the production code), [`world`] (what
//! that server is made of).
#![expect(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a broken property ends the run")]

pub mod reducer;
pub mod router;
pub mod texts;
pub mod world;

/// A target: any bytes; a panic is a finding.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also that of its folders under `fuzz/corpus` and `fuzz/regressions`.
pub const TARGETS: &[(&str, Target)] = &[
    ("address", texts::address),
    ("agent_file", texts::agent_file),
    ("event_decode", texts::event_decode),
    ("http_body", router::http_body),
    ("json", texts::json),
    ("reducer", reducer::reducer),
    ("retry_after", texts::retry_after),
    ("router", router::router),
    ("signal", texts::signal),
    ("template", texts::template),
    ("witness", texts::witness),
];
