//! The one list of cases.

/// Makes a named test of every case, for the harness that the expression gives.
///
/// ```ignore
/// mod conformance {
///     aetheris_store::conformance_suite!(crate::SqliteHarness);
/// }
/// ```
#[macro_export]
macro_rules! conformance_suite {
    ($harness:expr) => {
        $crate::conformance_list! { {suite $harness} }
    };
}

/// Makes a named test of every case for stores that outlive their process.
#[macro_export]
macro_rules! durable_suite {
    ($harness:expr) => {
        $crate::durable_list! { {durable $harness} }
    };
}

/// What becomes of a list.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_expand {
    ({suite $harness:expr} $($family:ident { $($case:ident,)* })*) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let fixture = $crate::conformance::Fixture::open(&$harness).await;
            $crate::conformance::$family::$case(fixture).await;
        }
    )*)*};
    ({durable $harness:expr} $($family:ident { $($case:ident,)* })*) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let harness = $harness;
            let fixture = $crate::conformance::Fixture::open(&harness).await;
            $crate::conformance::$family::$case(fixture, &harness).await;
        }
    )*)*};
    ({names $($more:tt)*} $($family:ident { $($case:ident,)* })*) => {
        $crate::durable_list! { {all $($(stringify!($case),)*)*} }
    };
    ({all $($before:tt)*} $($family:ident { $($case:ident,)* })*) => {
        &[$($before)* $($(stringify!($case),)*)*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! durable_list {
    ($mode:tt) => {
        $crate::conformance_expand! { $mode
            durable {
                j13_what_was_answered_reads_the_same_after_opening_again,
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    ($mode:tt) => {
        $crate::conformance_expand! { $mode
            journal {
                j1_places_are_dense_over_units_and_claims,
                j1_one_of_sixteen_units_with_one_expectation_is_accepted,
                j3_the_chain_verifies_from_stored_bytes,
            }
        }
    };
}

/// The names of all cases.
pub const CASES: &[&str] = conformance_list! { {names} };
