//! What people read: tables, pages, lines. Nothing here talks to a server or reads a clock.

pub mod check;
pub mod events;
pub mod evidence;
pub mod jobs;
pub mod safe;
mod standing;
pub mod steps;
mod style;
mod table;
mod text;
mod times;
pub mod trace;
mod values;
pub mod waits;
pub mod why;
mod wrap;

pub use self::safe::one_line;
pub use self::style::{Style, Tone};
pub use self::table::Table;
pub use self::text::{cut, json_line, json_page, width};
pub use self::times::{Now, clock, clock_from, coarse, elapsed, span};
pub use self::values::Values;
pub use self::wrap::{flow, wrap};
