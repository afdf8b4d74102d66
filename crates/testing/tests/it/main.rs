//! What users of the crate rely on: fakes that count, worlds in virtual time, and crashes everywhere that
//! can fail.

mod crashes;
mod fakes;
mod refund;
mod worlds;
