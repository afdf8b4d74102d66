//! Signs of life of the loops of a process, and how long one may be silent before the process is not ready.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_runtime::pulse::Pulse;
use aetheris_server::ReadyCheck;
use aetheris_store::system::Clock;

use crate::role::Role;

/// Signs of life of the loops of a process.
#[derive(Debug, Clone, Default)]
pub struct Pulses {
    /// The one that renews leases.
    pub keeper: Pulse,
    /// The one that takes back jobs whose lease is over.
    pub leases: Pulse,
    /// The one that fires timers.
    pub timers: Pulse,
}

impl Pulses {
    /// What readiness asks: that each loop has run within twice its longest pause and the time that a busy
    /// store may take.
    pub(crate) fn checks(&self, role: Role, pause: Span, clock: &Arc<dyn Clock>) -> Vec<ReadyCheck> {
        let patience = pause.to_std() * 2 + limits::PULSE_GRACE.to_std();
        let mut loops = vec![("timers", &self.timers), ("leases", &self.leases)];
        if role.runs_steps() {
            loops.push(("lease-keeper", &self.keeper));
        }
        loops.into_iter().map(|(name, pulse)| beating(name, pulse, clock, patience)).collect()
    }
}

/// Whether a loop has come round lately.
fn beating(name: &str, pulse: &Pulse, clock: &Arc<dyn Clock>, patience: Duration) -> ReadyCheck {
    let (pulse, clock) = (pulse.clone(), Arc::clone(clock));
    let began = clock.boot();
    ReadyCheck {
        name: name.to_owned(),
        look: Arc::new(move || {
            let silent = pulse.silent_for(clock.as_ref());
            let since = silent.unwrap_or_else(|| clock.boot().saturating_sub(began));
            let ago = Span::from_std(Duration::from_secs(since.as_secs()));
            if since > patience {
                return Err(format!("it has not run for {ago}"));
            }
            Ok(format!("it last ran {ago} ago"))
        }),
    }
}
