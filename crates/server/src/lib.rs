//! The HTTP server: requests to operations of the runtime, rows to answers. It decides nothing that the
//! runtime or the core decide.
//!
//! Reading order: [`state`] (what a server is made of), [`serve`] (connections, and what hostile ones
//! may cost; `wire`, `linger`, `host` and `body` are its parts), [`routes`] (every call of the interface, each with its documentation: the OpenAPI document
//! is made of the same list as the router), [`error`] (the one table from errors to codes), [`view`] and
//! [`trace`] (rows to answers), `outline` (jobs without what is large in them), `reading` (how many large
//! answers at once), [`follow`] (long polls and event streams), [`verify`] (whether what is
//! stored of a job adds up).
//!
//! A request that arrived is worked on to its end in a task of its own, whatever becomes of its
//! connection: a write is never dropped half-way.

pub mod error;
pub mod follow;
pub mod routes;
pub mod serve;
pub mod state;
pub mod trace;
pub mod verify;
pub mod view;

mod answer;
mod body;
mod host;
mod large;
mod linger;
mod outline;
mod params;
mod reading;
mod step_answers;
mod steps;
mod why;
mod wire;

pub use host::Hosts;
pub use routes::{openapi, router};
pub use serve::{Ending, serve};
pub use state::{AgentProblem, AppState, ReadyCheck};
