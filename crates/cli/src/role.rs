//! What a process is for, and what follows from it.

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// API and worker, for one machine: its tools may reach loopback.
    Dev,
    /// The API alone. It runs no step, so that it needs no key of a model.
    Serve,
    /// The worker alone.
    Worker,
}

impl Role {
    /// Whether it runs steps: it has a worker.
    #[must_use]
    pub const fn runs_steps(self) -> bool {
        match self {
            Self::Dev | Self::Worker => true,
            Self::Serve => false,
        }
    }

    /// Whether it makes the database that it is to work on. A worker alone would wait in a new one for ever.
    #[must_use]
    pub const fn makes_databases(self) -> bool {
        match self {
            Self::Dev | Self::Serve => true,
            Self::Worker => false,
        }
    }

    /// Whether its tools may reach loopback.
    #[must_use]
    pub const fn allows_loopback(self) -> bool {
        match self {
            Self::Dev => true,
            Self::Serve | Self::Worker => false,
        }
    }
}
