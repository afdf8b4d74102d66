//! The list: every planted bug and the scenario that shows it.

use super::scenarios::Scenario;

/// A planted bug.
#[derive(Debug, Clone, Copy)]
pub struct Bug {
    /// Its name: `AETHERIS_BUG=name`.
    pub name: &'static str,
    /// What it does, and who has had it.
    pub what: &'static str,
    /// The smallest scenario that shows it.
    pub scenario: Scenario,
}

const fn bug(name: &'static str, what: &'static str, scenario: Scenario) -> Bug {
    Bug { name, what, scenario }
}

/// Every bug of the zoo.
pub const BUGS: &[Bug] = &[
    bug("call-before-permission", "the tool is called before its permission is durable", Scenario::Ledger),
    bug("key-with-attempt", "the idempotency key contains the attempt", Scenario::Ledger),
    bug("lease-not-checked-before-call", "a call leaves though the lease is spent", Scenario::SpentLease),
    bug("timeout-is-a-failure", "a timed-out call counts as failed", Scenario::LostAnswer),
    bug("retry-any-error", "an unknown outcome counts as not sent", Scenario::LostAnswer),
    bug("doubt-forgotten", "after a crash in the call the step runs again", Scenario::CrashInBody),
    bug("open-calls-forgotten", "a job ends over a call whose outcome is unknown", Scenario::CancelAfterCrash),
    bug("deposit-dropped", "an answer that came after the lease was lost is thrown away", Scenario::LateAnswer),
    bug("reclaim-ignores-lease", "a live holder's job is taken back", Scenario::LiveReclaim),
    bug("early-signal-refused", "a signal before its wait is refused", Scenario::EarlySignal),
    bug("write-only-inbox", "kept signals are never read", Scenario::EarlySignal),
    bug("wait-without-looking", "a signal that comes while the job blocks is missed", Scenario::RacedSignal),
    bug("timer-fires-early", "a timer is fired without looking at its time", Scenario::EarlyTimer),
    bug("cancel-lost", "a cancel of a running job is answered and not written", Scenario::Cancel),
    bug("job-without-plan", "a job is made without its plan", Scenario::Ledger),
    bug("client-key-ignored", "the same message makes a second job", Scenario::Resend),
    bug("checkpoint-ahead", "a checkpoint names the wrong place", Scenario::Checkpoint),
    bug("disproof-believed-early", "\"did not happen\" is believed while it still can", Scenario::Reconcile),
    bug("fence-not-checked", "a write with an old fence is accepted", Scenario::StaleWrite),
    bug("sequence-not-checked", "a write that has missed another is accepted", Scenario::TwoSignals),
    bug("ledger-not-arbitrated", "a second permission is given for the same call", Scenario::SecondPermit),
    bug("claim-keeps-epoch", "a claim does not raise the epoch", Scenario::CrashInBody),
    bug("lease-never-expires-check", "an expired lease is renewed", Scenario::ExpiredHeartbeat),
    bug("reply-before-commit", "a message is acknowledged before it is durable", Scenario::Acknowledged),
];
