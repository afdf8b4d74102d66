//! What users of the crate rely on: fakes that count, worlds in virtual time, and crashes everywhere that
//! can fail.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod crashes;
mod fakes;
mod refund;
mod worlds;
