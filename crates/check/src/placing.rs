//! B7, of how claims find a job: at its time, and not before.

use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_core::time::{Span, Timestamp};
use aetheris_store::Placing;

use crate::invariant::Invariant;
use crate::report::Tally;

/// The clock can have been so far ahead of what is kept of it.
const CLOCK_SLACK: Span = Span::from_secs(1);

/// Why a job is not claimed at its time, or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// Claims find it now, and another job of its session comes first.
    Behind,
    /// Claims find it now, and from a moment on.
    Both,
    /// Claims find it before its time: from this moment on, or now.
    Early {
        /// Its time.
        at: Timestamp,
        /// From when on claims find it.
        from: Option<Timestamp>,
    },
    /// No claim finds it before this moment, which is not its time.
    Late(Timestamp),
    /// No claim finds it.
    Never,
    /// Claims find it, and it is not pending.
    NotPending,
}

/// A case only where something is amiss: no history tells of it.
pub(crate) fn check(job: JobId, placing: &Placing, now: Timestamp, tally: &mut Tally) {
    if let Some(misplaced) = misplaced(placing, now) {
        tally.case(Invariant::B7, false, || format!("{job}: {}", words(misplaced)));
    }
}

/// What keeps a job from being claimed at its time and not before, if anything does. The rules that have put the job there
/// (`rules::claimable` of the store) are not asked: a check is to find what is wrong with them too.
fn misplaced(placing: &Placing, now: Timestamp) -> Option<Misplaced> {
    let latest = now.after(CLOCK_SLACK);
    match (placing.pending, placing.ready, placing.delayed_until) {
        (false, false, None) => None,
        (false, ..) => Some(Misplaced::NotPending),
        (true, true, Some(_)) => Some(Misplaced::Both),
        (true, true, None) if placing.behind => Some(Misplaced::Behind),
        (true, true, None) => {
            placing.not_before.filter(|at| *at > latest).map(|at| Misplaced::Early { at, from: None })
        }
        (true, false, None) => (!placing.behind).then_some(Misplaced::Never),
        (true, false, Some(from)) => {
            if let Some(at) = placing.not_before.filter(|at| *at > from) {
                return Some(Misplaced::Early { at, from: Some(from) });
            }
            // One whose row could not be read is looked at again later than its time.
            let last = placing.not_before.unwrap_or(from.min(latest)).max(latest.after(limits::SWEEP_BACKOFF_MAX));
            (from > last).then_some(Misplaced::Late(from))
        }
    }
}

fn words(misplaced: Misplaced) -> String {
    match misplaced {
        Misplaced::Behind => "it can be claimed, and another job of its session comes first".to_owned(),
        Misplaced::Both => "its row says that it can be claimed, and that it cannot yet".to_owned(),
        Misplaced::Early { at, from: None } => format!("it can be claimed, and its time is {at}"),
        Misplaced::Early { at, from: Some(from) } => format!("it is claimed from {from} on, and its time is {at}"),
        Misplaced::Late(until) => format!("no claim finds it before {until}, which is not its time"),
        Misplaced::Never => "it is pending, and no claim finds it".to_owned(),
        Misplaced::NotPending => "it is not pending, and its row says that it can be claimed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn job(pending: bool, ready: bool, delayed_until: Option<Timestamp>) -> Placing {
        Placing { behind: false, delayed_until, not_before: None, pending, ready }
    }

    fn at(seconds: u64) -> Timestamp {
        NOW.after(Span::from_secs(seconds))
    }

    #[test]
    fn a_job_that_claims_find_at_its_time_is_in_its_place() {
        let past = Timestamp::from_micros(5);
        for found in [
            job(false, false, None),
            job(true, true, None),
            Placing { not_before: Some(past), ..job(true, true, None) },
            Placing { behind: true, ..job(true, false, None) },
            Placing { not_before: Some(at(9_000)), ..job(true, false, Some(at(9_000))) },
            Placing { behind: true, not_before: Some(at(9_000)), ..job(true, false, Some(at(9_000))) },
            // Its row could not be read a moment ago.
            Placing { not_before: Some(past), ..job(true, false, Some(at(60))) },
            job(true, false, Some(at(60))),
            // Its time has come, and nobody has asked.
            Placing { not_before: Some(past), ..job(true, false, Some(past)) },
        ] {
            assert_eq!(misplaced(&found, NOW), None, "{found:?}");
        }
    }

    #[test]
    fn a_job_that_claims_miss_or_find_too_early_is_told() {
        for (found, told) in [
            (job(false, true, None), Misplaced::NotPending),
            (job(false, false, Some(at(1))), Misplaced::NotPending),
            (job(true, true, Some(at(1))), Misplaced::Both),
            (job(true, false, None), Misplaced::Never),
            (Placing { behind: true, ..job(true, true, None) }, Misplaced::Behind),
            (Placing { not_before: Some(at(9)), ..job(true, true, None) }, Misplaced::Early { at: at(9), from: None }),
            (
                Placing { not_before: Some(at(9)), ..job(true, false, Some(at(8))) },
                Misplaced::Early { at: at(9), from: Some(at(8)) },
            ),
            (Placing { not_before: Some(at(9)), ..job(true, false, Some(at(9_000))) }, Misplaced::Late(at(9_000))),
            (job(true, false, Some(at(9_000))), Misplaced::Late(at(9_000))),
        ] {
            assert_eq!(misplaced(&found, NOW), Some(told), "{found:?}");
        }
    }

    /// Whoever writes a moment and whoever judges it may look at clocks that are a little apart; and one whose row could
    /// not be read is looked at again within the longest back-off.
    #[test]
    fn a_moment_may_be_as_far_off_as_clocks_and_back_offs_are_and_no_farther() {
        let micro = Span::from_micros(1);
        let slack = NOW.after(CLOCK_SLACK);
        let claimed_from = |at| misplaced(&Placing { not_before: Some(at), ..job(true, true, None) }, NOW);
        assert_eq!(claimed_from(slack), None);
        let beyond = slack.after(micro);
        assert_eq!(claimed_from(beyond), Some(Misplaced::Early { at: beyond, from: None }));
        let last = slack.after(limits::SWEEP_BACKOFF_MAX);
        for not_before in [None, Some(NOW), Some(at(9)), Some(last)] {
            let hidden_until = |at| misplaced(&Placing { not_before, ..job(true, false, Some(at)) }, NOW);
            assert_eq!(hidden_until(last), None, "{not_before:?}");
            let beyond = last.after(micro);
            assert_eq!(hidden_until(beyond), Some(Misplaced::Late(beyond)), "{not_before:?}");
        }
        // A job of a later time is found at that time, neither before nor behind it.
        let at_its_time =
            |from| misplaced(&Placing { not_before: Some(at(9_000)), ..job(true, false, Some(from)) }, NOW);
        assert_eq!(at_its_time(at(9_000)), None);
        assert_eq!(at_its_time(at(9_000).after(micro)), Some(Misplaced::Late(at(9_000).after(micro))));
        assert_eq!(at_its_time(at(8_999)), Some(Misplaced::Early { at: at(9_000), from: Some(at(8_999)) }));
    }

    #[test]
    fn each_misplaced_job_is_told_in_words() {
        let (at, from) = (at(60), at(30));
        for (misplaced, told) in [
            (Misplaced::Behind, "it can be claimed, and another job of its session comes first".to_owned()),
            (Misplaced::Both, "its row says that it can be claimed, and that it cannot yet".to_owned()),
            (Misplaced::Early { at, from: None }, format!("it can be claimed, and its time is {at}")),
            (Misplaced::Early { at, from: Some(from) }, format!("it is claimed from {from} on, and its time is {at}")),
            (Misplaced::Late(at), format!("no claim finds it before {at}, which is not its time")),
            (Misplaced::Never, "it is pending, and no claim finds it".to_owned()),
            (Misplaced::NotPending, "it is not pending, and its row says that it can be claimed".to_owned()),
        ] {
            assert_eq!(words(misplaced), told);
        }
    }
}
