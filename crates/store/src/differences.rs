//! Whether a job's row and timers say what its events say.

use std::fmt;

use aetheris_core::projection::{self, Projection};
use aetheris_core::state::JobState;

use crate::query::{JobRow, TimerRow};

/// A part of a row, or the timers, that says otherwise than the events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What the row says.
    stored: String,
    /// What the events say.
    told: String,
    /// The part.
    what: &'static str,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, its events say {}", self.what, self.stored, self.told)
    }
}

/// What a job's row and timers say otherwise than the state that its events fold to. A row that `holds_alone`
/// ([`JobRow::holds_alone`]) says for itself that the job is paused.
#[must_use]
pub fn differences(state: &JobState, row: &JobRow, holds_alone: bool, timers: &[TimerRow]) -> Vec<Difference> {
    // Each column is judged here, or named as one that is judged elsewhere: the chain, and the time of the last write.
    let JobRow {
        agent,
        agent_version,
        created_at,
        end_requested,
        error,
        fence,
        head: _,
        holder,
        id: _,
        labels,
        not_before,
        paused,
        plan_hash,
        priority,
        seq,
        session,
        status,
        tenant,
        updated_at: _,
        waiting,
    } = row;
    let derived = Projection::of(state, false);
    let mut found = Vec::new();
    let mut compare = |what, told: String, stored: String| {
        if told != stored {
            found.push(Difference { stored, told, what });
        }
    };
    if !holds_alone {
        compare("status", derived.status.as_str().to_owned(), status.as_str().to_owned());
        let told = state.paused.map(|paused| (paused.reason, paused.since));
        compare("pause", format!("{told:?}"), format!("{:?}", paused.map(|(reason, since)| (reason, Some(since)))));
        let named = |attempt: Option<String>| attempt.unwrap_or_else(|| "nobody".to_owned());
        let told = state.owner.as_ref().map(|owner| owner.attempt_id.to_string());
        compare("holder", named(told), named(holder.as_ref().map(|holder| holder.attempt_id.to_string())));
    }
    compare("sequence", state.seq.to_string(), seq.to_string());
    compare("fence", state.fence.to_string(), fence.to_string());
    compare("plan", format!("{:?}", derived.plan_hash), format!("{plan_hash:?}"));
    compare("wait", format!("{:?}", derived.waiting), format!("{waiting:?}"));
    compare("requested end", format!("{:?}", derived.end_requested), format!("{end_requested:?}"));
    compare("error", format!("{:?}", derived.error), format!("{error:?}"));
    compare("delay", format!("{:?}", state.not_before), format!("{not_before:?}"));
    compare("agent", state.agent.to_string(), agent.to_string());
    compare("agent version", state.agent_version.to_string(), agent_version.to_string());
    compare("priority", state.priority.to_string(), priority.to_string());
    compare("labels", format!("{:?}", state.labels), format!("{labels:?}"));
    compare("session", format!("{:?}", state.session), format!("{session:?}"));
    compare("tenant", state.tenant.to_string(), tenant.to_string());
    compare("creation", state.created_at.to_string(), created_at.to_string());
    let mut told: Vec<String> =
        projection::timers(state).into_iter().map(|(id, due)| format!("{id} at {due}")).collect();
    let mut stored: Vec<String> = timers.iter().map(|row| format!("{} at {}", row.timer, row.due)).collect();
    told.sort();
    stored.sort();
    compare("timers", told.join(", "), stored.join(", "));
    found
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::{EndCause, Failure, PauseReason, TimerId};
    use aetheris_core::hash::Hash;
    use aetheris_core::id::{AttemptId, InstanceId};
    use aetheris_core::job::JobStatus;
    use aetheris_core::lease::{Fence, Holder};
    use aetheris_core::plan::WaitType;
    use aetheris_core::state::{Blocked, Timer};
    use aetheris_core::time::{Span, Timestamp};

    use super::*;
    use crate::query::tests::restored;

    /// A job that waits, until a timer at the latest.
    fn state() -> JobState {
        let (_, mut state) = restored();
        state.status = JobStatus::Waiting;
        let blocked = Blocked {
            correlation_key: Some("key".to_owned()),
            doubt: false,
            node: "a".into(),
            reason: None,
            seq: 2,
            since: Timestamp::from_micros(3),
            wait_type: WaitType::Human,
        };
        state.blocks = [blocked].into_iter().collect();
        for (timer, due) in [(TimerId::Wait("a".into()), 20), (TimerId::Deadline, 10)] {
            state.timers.insert(timer, Timer { after: Span::ZERO, due: Timestamp::from_micros(due) });
        }
        state
    }

    /// The row that fits it.
    fn row(state: &JobState) -> JobRow {
        let Projection { status, waiting, .. } = Projection::of(state, false);
        let (agent, agent_version) = (state.agent.clone(), state.agent_version.clone());
        JobRow { agent, agent_version, paused: None, status, waiting, ..restored().0 }
    }

    fn timers(state: &JobState) -> Vec<TimerRow> {
        let row = |(timer, due)| TimerRow { due, job: state.id, timer };
        projection::timers(state).into_iter().map(row).collect()
    }

    #[test]
    fn a_row_that_says_otherwise_than_its_events_is_told_in_each_part() {
        let state = state();
        let (row, at) = (row(&state), Timestamp::from_micros(1));
        assert_eq!(differences(&state, &row, false, &timers(&state)), []);
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
            ("agent version", false, JobRow { agent_version: "other".to_owned(), ..row.clone() }),
            ("agent", false, JobRow { agent: "other".into(), ..row.clone() }),
            ("priority", false, JobRow { priority: row.priority + 1, ..row.clone() }),
            ("labels", false, JobRow { labels: [("k".to_owned(), "v".to_owned())].into(), ..row.clone() }),
            ("session", false, JobRow { session: Some("s".into()), ..row.clone() }),
            ("creation", false, JobRow { created_at: row.created_at.after(Span::from_secs(1)), ..row.clone() }),
        ] {
            let found = differences(&state, &other, false, &timers(&state));
            assert_eq!(found.iter().map(|found| found.what).collect::<Vec<_>>(), [part]);
            // What a row says by itself of a job that a restore holds is not compared.
            assert_eq!(differences(&state, &other, true, &timers(&state)).is_empty(), of_life, "{part}");
        }
    }

    #[test]
    fn a_difference_is_told_with_both_sides() {
        let state = state();
        let told = differences(&state, &JobRow { priority: 7, ..row(&state) }, false, &timers(&state));
        assert_eq!(told[0].to_string(), "priority is 7, its events say 0");
    }

    #[test]
    fn timers_that_are_not_those_of_the_events_are_told() {
        let state = state();
        let row = row(&state);
        let mut turned = timers(&state);
        turned.reverse();
        assert!(differences(&state, &row, false, &turned).is_empty(), "their order says nothing");
        let mut later = timers(&state);
        later[0].due = Timestamp::from_micros(11);
        let mut more = timers(&state);
        more.push(TimerRow { due: Timestamp::from_micros(5), job: state.id, timer: TimerId::Doubt("a".into()) });
        for other in [later, more, timers(&state)[1..].to_vec(), Vec::new()] {
            let found = differences(&state, &row, false, &other);
            assert_eq!(found.iter().map(|found| found.what).collect::<Vec<_>>(), ["timers"]);
        }
    }
}
