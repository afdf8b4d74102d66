//! What is read of one job.

pub use aetheris_store::Dossier;
