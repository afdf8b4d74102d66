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
    /// The one that does what was promised.
    pub outbox: Pulse,
    /// The one that fires timers.
    pub timers: Pulse,
}

impl Pulses {
    /// What readiness asks: that each loop has run within twice its longest pause and the time that a busy
    /// store may take.
    pub(crate) fn checks(&self, role: Role, pause: Span, clock: &Arc<dyn Clock>) -> Vec<ReadyCheck> {
        let patience = pause.to_std() * 2 + limits::PULSE_GRACE.to_std();
        let mut loops = vec![("timers", &self.timers), ("leases", &self.leases), ("outbox", &self.outbox)];
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

#[cfg(test)]
mod tests {
    use aetheris_store::system::ManualClock;

    use super::*;

    #[test]
    fn a_loop_may_be_silent_for_twice_its_pause_and_a_grace() {
        let manual = ManualClock::default();
        let clock: Arc<dyn Clock> = Arc::new(manual.clone());
        let names = |role| {
            let checks = Pulses::default().checks(role, Span::from_secs(20), &clock);
            checks.into_iter().map(|check| check.name).collect::<Vec<_>>()
        };
        assert_eq!(names(Role::Serve), ["timers", "leases", "outbox"]);
        assert_eq!(names(Role::Worker), ["timers", "leases", "outbox", "lease-keeper"]);
        let pulses = Pulses::default();
        let checks = pulses.checks(Role::Dev, Span::from_secs(20), &clock);
        let looked = || checks.iter().map(|check| (check.look)()).collect::<Vec<_>>();
        let most = Span::from_secs(40).plus(limits::PULSE_GRACE);
        // From the beginning, where it has not run yet.
        manual.advance(most);
        assert!(looked().iter().all(Result::is_ok), "{:?}", looked());
        manual.advance(Span::from_millis(1));
        assert!(looked().iter().all(Result::is_err), "{:?}", looked());
        // Each by its own sign.
        pulses.leases.beat(clock.as_ref());
        manual.advance(Span::from_secs(3));
        let said = looked();
        assert_eq!(said[1], Ok("it last ran 3s ago".to_owned()));
        assert_eq!(said[0], Err(format!("it has not run for {}", Span::from_secs(58))));
        assert!(said[2].is_err());
        manual.advance(most.minus(Span::from_secs(3)));
        assert!(looked()[1].is_ok());
        manual.advance(Span::from_millis(1));
        assert!(looked()[1].is_err());
    }
}
