//! What every proof needs once: folders that go with their owner, and numbers that follow from a seed. It knows nothing of the
//! program that it helps to test.

mod folder;
mod random;

pub use folder::Folder;
pub use random::SplitMix64;
