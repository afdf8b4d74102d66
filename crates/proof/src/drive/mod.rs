//! Real processes, killed and stopped at named points, and driven to the end.
//!
//! [`stories`] is the workload: jobs whose ends are known. [`process`] starts the program, [`client`] asks
//! it until it answers, [`cells`] lists every crash point with what is to be done there, and [`matrix`] runs one
//! cell: the end must be the one of a run without a crash, and every invariant hold.

pub mod cells;
pub mod client;
mod files;
pub mod fleet;
pub mod matrix;
pub mod process;
pub mod stories;
