//! The outside world behind the runtime's ports: [`Toolbox`] calls tools, [`ModelBook`] asks models.
//!
//! Every call happens once: no retries, no redirects and no proxies that the runtime does not know of,
//! and one time limit that the adapter keeps. The answer says what is *known*. "Not sent" is proved, by
//! an error of the connection's making, or by a rule of ours; whatever fails after that is
//! [`Unknown`](aetheris_runtime::ports::ToolOutcome::Unknown), of which the runtime makes "retryable" or
//! "in doubt" by the tool's class.
//!
//! What is absent: no clock is read, no environment variable, no configuration file; values that must
//! stay secret are handed in as [`Secret`] and [`EnvSource`].
//!
//! Reading order: [`guard`] (which networks tools may reach), `own` (which addresses they never reach), `http` (the table of INTERFACE, HTTP
//! tools), [`toolbox`] and `builtin` (dispatch and functions), [`model`].

mod builtin;
mod exchange;
pub mod guard;
mod http;
pub mod model;
mod own;
pub mod retry_after;
mod secret;
mod tls;
pub mod toolbox;

pub use ipnet::IpNet;

/// Whose configuration forbids a call that is about to be made.
pub(crate) const OF_WORKER: &str = "the worker's configuration";
/// Whose configuration forbids what an agent that is put would call.
pub(crate) const OF_SERVER: &str = "the server's configuration";

pub use guard::{Guard, Lookup};
pub use model::{Dialect, ModelBook, ModelEndpoint, RateLimits, Script};
pub use own::OwnAddresses;
pub use secret::{EnvSource, Secret};
pub use tls::install_tls;
pub use toolbox::{FunctionCall, Toolbox, Unusable};

/// Why tools or models cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
    /// Two things have one name, or one of them a name that is taken.
    #[error("the name `{0}` is taken")]
    NameTaken(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// A model endpoint's address is not one.
    #[error("the `base_url` of the model provider `{provider}` is not usable: {problem}")]
    BaseUrl {
        /// The provider.
        provider: String,
        /// What is wrong with it.
        problem: String,
    },
}
