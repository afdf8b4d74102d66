//! The reducer over arbitrary streams: it refuses what the tables do not have and never panics.

use std::collections::BTreeMap;

use aetheris_core::event::{Event, EventKind};
use aetheris_core::id::JobId;
use aetheris_core::state::JobState;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::arbitrary::{fitted, recorded, stream};

/// Folds as much of a stream as is legal, leaving out what is not.
fn fold_legal(events: &[(Event, bool)]) -> (JobState, Vec<Event>) {
    let mut state = JobState::new(JobId::from_u128(1));
    let mut kept = Vec::new();
    for (event, fit) in events {
        let event = if *fit { fitted(event.clone(), &state) } else { event.clone() };
        let claim = matches!(event, Event::JobClaimed(_));
        let epoch = state.fence.epoch + u32::from(claim);
        let mut next = state.clone();
        if next.replay(&recorded(state.seq + 1, epoch, event.clone())).is_ok() {
            state = next;
            kept.push(event);
        }
    }
    (state, kept)
}

/// The laws below say nothing of what was refused: enough must be kept, of every kind.
#[test]
fn streams_have_enough_that_is_legal() {
    let mut runner = TestRunner::deterministic();
    let mut kept = BTreeMap::from_iter(EventKind::ALL.iter().map(|kind| (*kind, 0)));
    for _ in 0..4_000 {
        let events = stream().new_tree(&mut runner).unwrap().current();
        for event in fold_legal(&events).1 {
            *kept.entry(event.kind()).or_insert(0) += 1;
        }
    }
    assert!(kept.values().all(|count| *count >= 5), "{kept:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::CASES / 4))]

    #[test]
    fn arbitrary_streams_are_refused_and_never_panic(events in stream()) {
        let (state, kept) = fold_legal(&events);
        prop_assert_eq!(state.seq, kept.len() as u64);
        // Terminal is terminal: at most one event ends a job, and only answers to doubts may follow.
        let ends = |event: &Event| matches!(event.kind(), EventKind::JobCompleted | EventKind::JobFailed | EventKind::JobCancelled);
        if let Some(end) = kept.iter().position(ends) {
            prop_assert_eq!(kept.iter().filter(|event| ends(event)).count(), 1);
            for event in &kept[end + 1..] {
                let allowed = matches!(
                    event.kind(),
                    EventKind::StepInDoubt | EventKind::InDoubtResolved | EventKind::TimerSet | EventKind::TimerFired | EventKind::CommandCommitted
                );
                prop_assert!(allowed, "{} after the end", event.kind().as_str());
            }
            prop_assert!(state.status.is_terminal());
        }
        prop_assert_eq!(state.owner.is_some(), state.status == aetheris_core::job::JobStatus::Running);
        let paused = state.status == aetheris_core::job::JobStatus::Paused;
        prop_assert_eq!(state.paused.is_some(), paused);
        prop_assert!(!state.blocks.is_empty() || !state.status.is_blocked());
        prop_assert!(state.blocks.is_empty() || !state.status.is_terminal());
    }

    #[test]
    fn folding_is_a_function_of_the_stream_and_survives_a_checkpoint_anywhere(events in stream(), cut in 0usize..60) {
        let (state, kept) = fold_legal(&events);
        let mut resumed = JobState::new(JobId::from_u128(1));
        for (place, event) in kept.iter().enumerate() {
            if place == cut {
                let bytes = aetheris_core::json::to_canonical(&resumed);
                resumed = serde_json::from_slice(&bytes).unwrap();
            }
            let epoch = resumed.fence.epoch + u32::from(matches!(event, Event::JobClaimed(_)));
            resumed.replay(&recorded(resumed.seq + 1, epoch, event.clone())).unwrap();
        }
        prop_assert_eq!(resumed.hash(), state.hash());
    }

    /// A run applies before it knows the time and stamps afterwards; replay knows the time at once.
    #[test]
    fn applying_and_stamping_later_equals_replaying(events in stream()) {
        let (state, kept) = fold_legal(&events);
        let mut drafted = JobState::new(JobId::from_u128(1));
        for event in &kept {
            let epoch = drafted.fence.epoch + u32::from(matches!(event, Event::JobClaimed(_)));
            let at = recorded(drafted.seq + 1, epoch, event.clone()).at;
            drafted.fence = aetheris_core::lease::Fence { generation: 1, epoch };
            drafted.apply(event).unwrap();
            drafted.stamp(event, at);
            drafted.stamp(event, at);
        }
        prop_assert_eq!(drafted.hash(), state.hash());
    }
}
