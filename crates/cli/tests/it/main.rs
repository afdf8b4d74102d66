//! What the documents tell people to type, typed: each terminal of a page is a shell of its own, and the
//! program is the real one.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends")]

mod concepts;
mod examples;
mod init;
mod markdown;
mod pages;
mod stopping;
mod terminal;
