//! Replay: the fold again from the first event, compared with what is live. Reported, never repaired.

use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_core::projection::{self, Projection};
use aetheris_core::state::JobState;
use aetheris_store::{JobRow, TimerRow};

use crate::Runtime;
use crate::error::OpError;
use crate::load::Loaded;

/// The result of a replay.
#[derive(Debug, Clone)]
pub struct Replay {
    /// What differs, in words; empty where all is equal.
    pub differences: Vec<String>,
    /// How many events were folded.
    pub events: u64,
    /// Hash of the state that the job goes on from: its newest checkpoint and what follows.
    pub live_state_hash: Hash,
    /// The state as folded from the first event.
    pub state: JobState,
    /// Its hash.
    pub state_hash: Hash,
}

impl Runtime {
    /// Folds a job from its first event and compares the result with the live state, the row and the
    /// timers. Two reads, no outside call, no write.
    ///
    /// # Errors
    /// [`OpError`]: no such job, or its history cannot be read or folded.
    pub async fn replay(&self, job: JobId) -> Result<Replay, OpError> {
        let store = self.store.as_ref();
        for _ in 0..aetheris_core::limits::CONFLICT_RETRIES_MAX {
            // One after the other: a job may be large, and is in memory once.
            let live = Loaded::read(store, job).await?;
            let (live_seq, live_state_hash, row) = (live.state.seq, live.state.hash(), live.row.clone());
            drop(live);
            let timers = store.timers(job).await?;
            let full = store.history(job, true).await?.ok_or(OpError::JobNotFound(job))?;
            let full = Loaded::fold(full)?;
            if full.state.seq != live_seq {
                continue;
            }
            let state_hash = full.state.hash();
            let held = self.holds_alone(&row, &full.state).await?;
            let mut differences = differences(&full.state, &row, held, &timers);
            if state_hash != live_state_hash {
                differences.push(
                    "the state from the newest checkpoint differs from the one folded from the first event".to_owned(),
                );
            }
            return Ok(Replay { differences, events: full.state.seq, live_state_hash, state: full.state, state_hash });
        }
        Err(OpError::StateConflict(format!("job {job} keeps changing; try again")))
    }
}

/// What a job's row and timers say otherwise than its events. A row that `holds_alone` says for itself that the job is
/// paused.
fn differences(state: &JobState, row: &JobRow, holds_alone: bool, timers: &[TimerRow]) -> Vec<String> {
    let derived = Projection::of(state, false);
    let mut found = Vec::new();
    let mut compare = |what: &str, derived: String, stored: String| {
        if derived != stored {
            found.push(format!("the row's {what} is {stored}, its events say {derived}"));
        }
    };
    if !holds_alone {
        compare("status", derived.status.as_str().to_owned(), row.status.as_str().to_owned());
        let held = state.paused.map(|paused| (paused.reason, paused.since));
        let stored = row.paused.map(|(reason, since)| (reason, Some(since)));
        compare("pause", format!("{held:?}"), format!("{stored:?}"));
        let holder = |worker: Option<String>| worker.unwrap_or_else(|| "nobody".to_owned());
        let told = state.owner.as_ref().map(|owner| owner.attempt_id.to_string());
        let stored = row.holder.as_ref().map(|row| row.attempt_id.to_string());
        compare("holder", holder(told), holder(stored));
    }
    compare("sequence", state.seq.to_string(), row.seq.to_string());
    compare("fence", state.fence.to_string(), row.fence.to_string());
    compare("plan", format!("{:?}", derived.plan_hash), format!("{:?}", row.plan_hash));
    compare("wait", format!("{:?}", derived.waiting), format!("{:?}", row.waiting));
    compare("requested end", format!("{:?}", derived.end_requested), format!("{:?}", row.end_requested));
    compare("error", format!("{:?}", derived.error), format!("{:?}", row.error));
    compare("delay", format!("{:?}", state.not_before), format!("{:?}", row.not_before));
    compare("agent", state.agent.to_string(), row.agent.to_string());
    compare("priority", state.priority.to_string(), row.priority.to_string());
    compare("labels", format!("{:?}", state.labels), format!("{:?}", row.labels));
    compare("session", format!("{:?}", state.session), format!("{:?}", row.session));
    compare("creation", state.created_at.to_string(), row.created_at.to_string());
    let told: Vec<String> = projection::timers(state).into_iter().map(|(id, due)| format!("{id} at {due}")).collect();
    let mut stored: Vec<(String, String)> =
        timers.iter().map(|row| (row.timer.to_string(), format!("{} at {}", row.timer, row.due))).collect();
    stored.sort();
    let stored: Vec<String> = stored.into_iter().map(|(_, text)| text).collect();
    let mut told_sorted = told;
    told_sorted.sort();
    compare("timers", told_sorted.join(", "), stored.join(", "));
    found
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::{EndCause, Failure, PauseReason, TimerId};
    use aetheris_core::id::{AttemptId, InstanceId};
    use aetheris_core::job::JobStatus;
    use aetheris_core::lease::{Fence, Holder};
    use aetheris_core::plan::WaitType;
    use aetheris_core::state::{Blocked, Timer};
    use aetheris_core::time::{Span, Timestamp};

    use super::*;

    /// A job that waits, until a timer at the latest.
    fn state() -> JobState {
        let mut state = JobState::new(JobId::from_u128(1));
        (state.status, state.seq) = (JobStatus::Waiting, 9);
        state.blocked = Some(Blocked {
            correlation_key: Some("key".to_owned()),
            doubt: false,
            node: "a".into(),
            reason: None,
            since: Timestamp::from_micros(3),
            wait_type: WaitType::Human,
        });
        for (timer, due) in [(TimerId::Wait("a".into()), 20), (TimerId::Deadline, 10)] {
            state.timers.insert(timer, Timer { after: Span::ZERO, due: Timestamp::from_micros(due) });
        }
        state
    }

    fn timers(state: &JobState) -> Vec<TimerRow> {
        let row = |(timer, due)| TimerRow { due, job: state.id, timer };
        projection::timers(state).into_iter().map(row).collect()
    }

    #[test]
    fn a_row_that_says_otherwise_than_its_events_is_told_in_each_part() {
        let state = state();
        let (row, at) = (crate::load::tests::row(&state), Timestamp::from_micros(1));
        assert_eq!(differences(&state, &row, false, &timers(&state)), Vec::<String>::new());
        let holder = Holder {
            attempt_id: AttemptId::from_u128(1),
            instance: InstanceId::from_u128(1),
            lease_until: at,
            worker: "w".into(),
        };
        let error = Some((Failure::new("code", "why"), None));
        for (part, of_life, other) in [
            ("status", true, JobRow { status: JobStatus::Parked, ..row.clone() }),
            ("pause", true, JobRow { paused: Some((PauseReason::Operator, at)), ..row.clone() }),
            ("holder", true, JobRow { holder: Some(holder), ..row.clone() }),
            ("sequence", false, JobRow { seq: 8, ..row.clone() }),
            ("fence", false, JobRow { fence: Fence { generation: 0, epoch: 1 }, ..row.clone() }),
            ("plan", false, JobRow { plan_hash: Some(Hash::ZERO), ..row.clone() }),
            ("wait", false, JobRow { waiting: None, ..row.clone() }),
            ("requested end", false, JobRow { end_requested: Some(EndCause::Cancel), ..row.clone() }),
            ("error", false, JobRow { error, ..row.clone() }),
            ("delay", false, JobRow { not_before: Some(at), ..row.clone() }),
            ("agent", false, JobRow { agent: "other".into(), ..row.clone() }),
            ("priority", false, JobRow { priority: row.priority + 1, ..row.clone() }),
            ("labels", false, JobRow { labels: [("k".to_owned(), "v".to_owned())].into(), ..row.clone() }),
            ("session", false, JobRow { session: Some("s".into()), ..row.clone() }),
            ("creation", false, JobRow { created_at: row.created_at.after(Span::from_secs(1)), ..row.clone() }),
        ] {
            let found = differences(&state, &other, false, &timers(&state));
            assert!(found.len() == 1 && found[0].starts_with(&format!("the row's {part} is ")), "{part}: {found:?}");
            // What a row says by itself of a job that a restore holds is not compared.
            assert_eq!(differences(&state, &other, true, &timers(&state)).is_empty(), of_life, "{part}");
        }
    }

    #[test]
    fn timers_that_are_not_those_of_the_events_are_told() {
        let state = state();
        let row = crate::load::tests::row(&state);
        let mut turned = timers(&state);
        turned.reverse();
        assert!(differences(&state, &row, false, &turned).is_empty(), "their order says nothing");
        let mut later = timers(&state);
        later[0].due = Timestamp::from_micros(11);
        let mut more = timers(&state);
        more.push(TimerRow { due: Timestamp::from_micros(5), job: state.id, timer: TimerId::Doubt("a".into()) });
        for other in [later, more, timers(&state)[1..].to_vec(), Vec::new()] {
            let found = differences(&state, &row, false, &other);
            assert!(found.len() == 1 && found[0].starts_with("the row's timers is "), "{found:?}");
        }
    }
}
