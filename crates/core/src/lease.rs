//! Ownership: the fence that every write of a run carries, and the one decision who may write.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, InstanceId, WorkerId};
use crate::time::Timestamp;

/// The fencing token of one claim: comparable, and later claims are greater (SPEC §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Fence {
    /// The number of the store's life, raised after a restore.
    pub generation: u32,
    /// The job's claims so far.
    pub epoch: u32,
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.epoch)
    }
}

/// Who owns a job, as its row says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The public name of the epoch.
    pub attempt_id: AttemptId,
    /// The process.
    pub instance: InstanceId,
    /// Until when, by the store's clock; the lease lives while the clock is below it.
    pub lease_until: Timestamp,
    /// The worker.
    pub worker: WorkerId,
}

impl Holder {
    /// Whether the lease lives at a moment of the store's clock.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.lease_until
    }
}

/// In whose right a unit of work is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The run that holds this fence.
    Run(Fence),
    /// The API and deposits: no fence, but the sequence they have seen.
    Outside,
    /// A timer that is due at that moment: no fence, but the sequence that was seen, and the moment has come when it is
    /// written. Whoever found it due may have read a clock that was set back since.
    Due(Timestamp),
    /// Whoever takes back an expired lease.
    Expired(Fence),
    /// Whoever has proof that the holder's process is dead.
    Dead(Fence, InstanceId),
}

/// Why a guard does not admit a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GuardRefusal {
    /// The job is not this run's any more.
    #[error("the attempt is stale: the write carries fence {given}, the job is at {current}{}", if *.held { "" } else { " and held by nobody" })]
    Stale {
        /// What the write carries.
        given: Fence,
        /// What the job's row says.
        current: Fence,
        /// Whether anyone holds the job.
        held: bool,
    },
    /// The moment has not come.
    #[error("the timer is due at {0}, which has not come by the store's clock")]
    NotDue(Timestamp),
    /// The lease has not expired.
    #[error("the lease lives until {0}")]
    StillLive(Timestamp),
    /// The holder is not of the instance that is proved dead.
    #[error("the job is held by {0}, which is not the instance that is proved dead")]
    OtherInstance(InstanceId),
}

/// Whether `guard` admits a write to a job whose row says `current` and `holder` at `now`.
///
/// # Errors
/// The reason why not. A run whose lease has expired, but was not taken back, is still admitted: only
/// new permissions need a live lease.
pub fn admit(guard: Guard, current: Fence, holder: Option<&Holder>, now: Timestamp) -> Result<(), GuardRefusal> {
    let held_by = |given: Fence| match holder {
        Some(holder) if given == current => Ok(holder),
        Some(_) => Err(GuardRefusal::Stale { given, current, held: true }),
        None => Err(GuardRefusal::Stale { given, current, held: false }),
    };
    match guard {
        Guard::Outside => Ok(()),
        Guard::Due(moment) if now < moment => Err(GuardRefusal::NotDue(moment)),
        Guard::Due(_) => Ok(()),
        Guard::Run(given) => held_by(given).map(drop),
        Guard::Expired(given) => {
            let holder = held_by(given)?;
            if holder.is_live(now) { Err(GuardRefusal::StillLive(holder.lease_until)) } else { Ok(()) }
        }
        Guard::Dead(given, instance) => {
            let holder = held_by(given)?;
            if holder.instance == instance { Ok(()) } else { Err(GuardRefusal::OtherInstance(holder.instance)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE: Fence = Fence { generation: 1, epoch: 4 };

    fn holder() -> Holder {
        Holder {
            attempt_id: AttemptId::from_u128(1),
            instance: InstanceId::from_u128(9),
            lease_until: Timestamp::from_micros(100),
            worker: WorkerId::from("w"),
        }
    }

    #[test]
    fn only_the_newest_fence_writes_and_only_while_held() {
        let now = Timestamp::from_micros(500);
        let holder = holder();
        assert_eq!(admit(Guard::Run(FENCE), FENCE, Some(&holder), now), Ok(()));
        for given in [Fence { epoch: 3, ..FENCE }, Fence { epoch: 5, ..FENCE }, Fence { generation: 0, ..FENCE }] {
            assert!(matches!(admit(Guard::Run(given), FENCE, Some(&holder), now), Err(GuardRefusal::Stale { .. })));
        }
        assert!(matches!(admit(Guard::Run(FENCE), FENCE, None, now), Err(GuardRefusal::Stale { held: false, .. })));
    }

    #[test]
    fn a_timer_is_fired_from_its_moment_on_whoever_holds_the_job() {
        let moment = Timestamp::from_micros(100);
        for holder in [None, Some(&holder())] {
            let at = |micros| admit(Guard::Due(moment), FENCE, holder, Timestamp::from_micros(micros));
            assert_eq!((at(99), at(100), at(101)), (Err(GuardRefusal::NotDue(moment)), Ok(()), Ok(())));
        }
    }

    #[test]
    fn an_expired_lease_is_taken_at_its_end_and_not_before() {
        let holder = holder();
        let at = |micros| admit(Guard::Expired(FENCE), FENCE, Some(&holder), Timestamp::from_micros(micros));
        assert_eq!(at(99), Err(GuardRefusal::StillLive(holder.lease_until)));
        assert_eq!(at(100), Ok(()));
    }

    #[test]
    fn proof_of_death_names_one_instance() {
        let now = Timestamp::from_micros(1);
        let dead = |instance| admit(Guard::Dead(FENCE, InstanceId::from_u128(instance)), FENCE, Some(&holder()), now);
        assert_eq!(dead(9), Ok(()));
        assert!(matches!(dead(8), Err(GuardRefusal::OtherInstance(_))));
    }

    #[test]
    fn a_lease_lives_until_its_end_and_not_at_it() {
        let holder = holder();
        assert!(holder.is_live(Timestamp::from_micros(99)));
        assert!(!holder.is_live(Timestamp::from_micros(100)));
        assert!(!holder.is_live(Timestamp::from_micros(101)));
    }

    #[test]
    fn whoever_takes_a_job_back_names_its_fence_and_its_holder() {
        let now = Timestamp::from_micros(500);
        let other = Fence { epoch: 3, ..FENCE };
        let instance = InstanceId::from_u128(9);
        let holder = holder();
        for guard in [Guard::Expired(other), Guard::Dead(other, instance)] {
            let refused = admit(guard, FENCE, Some(&holder), now);
            assert_eq!(refused, Err(GuardRefusal::Stale { given: other, current: FENCE, held: true }));
        }
        for guard in [Guard::Run(FENCE), Guard::Expired(FENCE), Guard::Dead(FENCE, instance)] {
            let refused = admit(guard, FENCE, None, now);
            assert_eq!(refused, Err(GuardRefusal::Stale { given: FENCE, current: FENCE, held: false }));
        }
        assert_eq!(admit(Guard::Outside, FENCE, None, now), Ok(()));
        assert_eq!(admit(Guard::Outside, FENCE, Some(&holder), now), Ok(()));
    }

    #[test]
    fn fences_are_ordered_by_generation_then_epoch_and_shown_so() {
        assert!(Fence { generation: 1, epoch: 9 } < Fence { generation: 2, epoch: 1 });
        assert!(Fence { epoch: 3, ..FENCE } < FENCE);
        assert_eq!(FENCE.to_string(), "1.4");
        let stale = |held| GuardRefusal::Stale { given: FENCE, current: FENCE, held }.to_string();
        assert!(stale(false).ends_with("held by nobody"));
        assert!(stale(true).ends_with("at 1.4"));
    }
}
