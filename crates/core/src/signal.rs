//! Where an outside message goes in a job: SPEC §7's order of checks as one pure function.

use crate::hash::Hash;
use crate::path::StepPath;
use crate::plan::WaitType;
use crate::state::{JobState, WaitPhase};

/// A wait that the job has not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upcoming {
    /// Its rendered key; `None` where it cannot be computed yet.
    pub key: Option<String>,
    /// What ends it.
    pub wait_type: WaitType,
}

/// A signal as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The wait it names.
    pub key: String,
    /// Hash of its payload.
    pub payload_hash: Hash,
    /// What it claims to be.
    pub wait_type: Option<WaitType>,
}

/// What is to be done with a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// It ends the current wait of this node.
    Deliver(StepPath),
    /// A signal with this key was delivered before; nothing changes.
    AlreadyDelivered {
        /// Whether its payload was the same.
        payload_matches: bool,
    },
    /// It is kept for a wait that the job has not reached.
    Keep,
    /// The job has ended.
    JobFinished,
    /// The wait ended without a signal.
    WaitOver,
    /// It claims another type than the wait has.
    WrongType(WaitType),
    /// No wait of this job has that key.
    WrongKey,
}

/// Decides. `upcoming` are the waits that the job has not reached; `None` where it has no plan yet.
#[must_use]
pub fn route(state: &JobState, upcoming: Option<&[Upcoming]>, signal: &Incoming) -> Route {
    let mismatch = |wait_type: WaitType| signal.wait_type.is_some_and(|claimed| claimed != wait_type);
    let known = state.waits.get(&signal.key);
    if let Some(record) = known
        && mismatch(record.wait_type)
    {
        return Route::WrongType(record.wait_type);
    }
    match known.map(|record| &record.phase) {
        Some(WaitPhase::Delivered { payload_hash, .. }) => {
            return Route::AlreadyDelivered { payload_matches: *payload_hash == signal.payload_hash };
        }
        Some(WaitPhase::Open | WaitPhase::Over) | None => {}
    }
    if state.status.is_terminal() {
        return Route::JobFinished;
    }
    match known {
        Some(record) if record.phase == WaitPhase::Open => return Route::Deliver(record.node.clone()),
        Some(_) => return Route::WaitOver,
        None => {}
    }
    let Some(upcoming) = upcoming else {
        return Route::Keep;
    };
    if let Some(wait) = upcoming.iter().find(|wait| wait.key.as_deref() == Some(signal.key.as_str())) {
        return if mismatch(wait.wait_type) { Route::WrongType(wait.wait_type) } else { Route::Keep };
    }
    if upcoming.iter().any(|wait| wait.key.is_none() && !mismatch(wait.wait_type)) {
        Route::Keep
    } else {
        Route::WrongKey
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::id::{JobId, SignalId};
    use crate::job::JobStatus;
    use crate::state::WaitRecord;

    fn signal(key: &str, wait_type: Option<WaitType>) -> Incoming {
        Incoming { key: key.to_owned(), payload_hash: Hash::of(b"payload"), wait_type }
    }

    fn upcoming(key: Option<&str>, wait_type: WaitType) -> Upcoming {
        Upcoming { key: key.map(str::to_owned), wait_type }
    }

    /// A job with one wait, `k`, for a person.
    fn job(status: JobStatus, phase: WaitPhase) -> JobState {
        let mut state = JobState::new(JobId::from_u128(1));
        state.status = status;
        let record = WaitRecord { node: "a".into(), phase, wait_type: WaitType::Human };
        state.waits.insert("k".to_owned(), record);
        state
    }

    fn delivered(payload: &[u8]) -> WaitPhase {
        WaitPhase::Delivered { payload_hash: Hash::of(payload), signal: SignalId::from_u128(1) }
    }

    #[test]
    fn an_open_wait_gets_the_signal_that_names_it() {
        let state = job(JobStatus::Waiting, WaitPhase::Open);
        for claimed in [None, Some(WaitType::Human)] {
            assert_eq!(route(&state, Some(&[]), &signal("k", claimed)), Route::Deliver("a".into()));
        }
        let wrong = signal("k", Some(WaitType::Webhook));
        assert_eq!(route(&state, Some(&[]), &wrong), Route::WrongType(WaitType::Human));
        assert_eq!(route(&state, Some(&[]), &signal("other", None)), Route::WrongKey);
    }

    #[test]
    fn a_delivered_signal_is_remembered_for_ever() {
        for status in [JobStatus::Running, JobStatus::Completed, JobStatus::Cancelled] {
            let same = job(status, delivered(b"payload"));
            let again = route(&same, Some(&[]), &signal("k", None));
            assert_eq!(again, Route::AlreadyDelivered { payload_matches: true });
            let other = route(&job(status, delivered(b"else")), None, &signal("k", None));
            assert_eq!(other, Route::AlreadyDelivered { payload_matches: false });
            let wrong = route(&same, Some(&[]), &signal("k", Some(WaitType::Signal)));
            assert_eq!(wrong, Route::WrongType(WaitType::Human));
        }
    }

    #[test]
    fn a_wait_that_ended_otherwise_is_over_and_an_ended_job_is_finished() {
        let over = |status| route(&job(status, WaitPhase::Over), Some(&[]), &signal("k", None));
        assert_eq!(over(JobStatus::Running), Route::WaitOver);
        assert_eq!(over(JobStatus::Failed), Route::JobFinished);
        let ended = job(JobStatus::Completed, WaitPhase::Over);
        let ahead = [upcoming(Some("later"), WaitType::Human)];
        assert_eq!(route(&ended, Some(&ahead), &signal("later", None)), Route::JobFinished);
        assert_eq!(route(&ended, None, &signal("later", None)), Route::JobFinished);
    }

    #[test]
    fn a_signal_for_a_wait_ahead_is_kept() {
        let state = job(JobStatus::Running, WaitPhase::Over);
        assert_eq!(route(&state, None, &signal("later", None)), Route::Keep);
        let ahead = [upcoming(Some("x"), WaitType::Signal), upcoming(Some("later"), WaitType::Human)];
        for claimed in [None, Some(WaitType::Human)] {
            assert_eq!(route(&state, Some(&ahead), &signal("later", claimed)), Route::Keep);
        }
        let wrong = signal("later", Some(WaitType::Signal));
        assert_eq!(route(&state, Some(&ahead), &wrong), Route::WrongType(WaitType::Human));
        assert_eq!(route(&state, Some(&ahead), &signal("never", None)), Route::WrongKey);
    }

    #[test]
    fn a_wait_whose_key_is_not_known_yet_may_be_the_one() {
        let state = job(JobStatus::Running, WaitPhase::Over);
        let ahead = [upcoming(Some("x"), WaitType::Signal), upcoming(None, WaitType::Human)];
        for claimed in [None, Some(WaitType::Human)] {
            assert_eq!(route(&state, Some(&ahead), &signal("any", claimed)), Route::Keep);
        }
        assert_eq!(route(&state, Some(&ahead), &signal("any", Some(WaitType::Signal))), Route::WrongKey);
    }
}
