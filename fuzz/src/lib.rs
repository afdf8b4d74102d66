//! libFuzzer around the targets of `crates/fuzzing`. `cargo xtask fuzz` builds and runs them.

pub use aetheris_fuzzing::{TARGETS, Target};
pub use libfuzzer_sys;

/// A target by its name.
#[must_use]
pub fn named(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// The whole of a fuzzer's binary.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        use $crate::libfuzzer_sys;
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            static TARGET: std::sync::OnceLock<Option<$crate::Target>> = std::sync::OnceLock::new();
            if let Some(target) = TARGET.get_or_init(|| $crate::named($name)) {
                target(bytes);
            }
        });
    };
}
