//! The part of a job's row that is derived from its events, by the one fold.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::event::{EndCause, Event, Failure, PauseReason, TimerId};
use crate::hash::Hash;
use crate::id::JobId;
use crate::job::JobStatus;
use crate::path::StepPath;
use crate::plan::WaitType;
use crate::state::{Blocked, Child, Ending, JobState};
use crate::time::{Due, Span, Timestamp};

/// What a blocked job waits for, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingView {
    /// What a signal must name.
    pub correlation_key: Option<String>,
    /// Whether it waits for the answer to a doubt.
    pub doubt: bool,
    /// The step.
    pub node: StepPath,
    /// Why, for people.
    pub reason: Option<String>,
    /// What ends it.
    pub wait_type: WaitType,
}

impl From<&Blocked> for WaitingView {
    fn from(blocked: &Blocked) -> Self {
        Self {
            correlation_key: blocked.correlation_key.clone(),
            doubt: blocked.doubt,
            node: blocked.node.clone(),
            reason: blocked.reason.clone(),
            wait_type: blocked.wait_type,
        }
    }
}

impl WaitingView {
    /// The timer that ends the wait, or the doubt's policy, if one is set.
    #[must_use]
    pub fn timer(&self) -> TimerId {
        let node = self.node.clone();
        if self.doubt { TimerId::Doubt(node) } else { TimerId::Wait(node) }
    }
}

/// The derived part of a job's row.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    /// Why its end was asked for.
    pub end_requested: Option<EndCause>,
    /// Why it failed, and at which node.
    pub error: Option<(Failure, Option<StepPath>)>,
    /// From when on it can be claimed.
    pub not_before: Option<Due>,
    /// Why it is held still, and since when.
    pub paused: Option<(PauseReason, Due)>,
    /// Hash of the plan that its steps belong to now ([`JobState::followed_plan`]).
    pub plan_hash: Option<Hash>,
    /// What it is doing.
    pub status: JobStatus,
    /// What it waits for; of several waits the foremost.
    pub waiting: Option<WaitingView>,
}

/// A change of the timers of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimerChange {
    /// It is set.
    Set {
        /// When it is due.
        due: Due,
        /// Which.
        timer: TimerId,
    },
    /// It is gone.
    Cleared(TimerId),
}

impl Projection {
    /// Derives it. `unstamped` says that the last events have no time yet, so that a delay is given as
    /// one and the store makes the moment of it.
    #[must_use]
    pub fn of(state: &JobState, unstamped: bool) -> Self {
        let not_before = match state.not_before_delay {
            Some(delay) if unstamped => Some(Due::After(delay)),
            Some(_) | None => state.not_before.map(Due::At),
        };
        let error = match &state.ending {
            Some(Ending::Failed { error, node }) => Some((error.clone(), node.clone())),
            Some(Ending::Answered(_) | Ending::Cancelled) | None => None,
        };
        let waiting = state.blocks.foremost().map(WaitingView::from);
        Self {
            end_requested: state.end_requested,
            error,
            not_before,
            paused: state.paused.map(|paused| (paused.reason, paused.since.map_or(Due::After(Span::ZERO), Due::At))),
            plan_hash: state.followed_plan(),
            status: state.status,
            waiting,
        }
    }
}

/// The timers that a job has, with their moments; a store's timer rows must equal it.
#[must_use]
pub fn timers(state: &JobState) -> BTreeMap<TimerId, Timestamp> {
    state.timers.iter().map(|(id, timer)| (id.clone(), timer.due)).collect()
}

/// What has to be written so that the timers of `before` become those of `after`, whose last events
/// have no time yet. `set` names the timers that those events set.
#[must_use]
pub fn timer_changes(before: &[TimerId], after: &JobState, set: &[TimerId]) -> Vec<TimerChange> {
    let gone = before.iter().filter(|id| !after.timers.contains_key(*id)).cloned().map(TimerChange::Cleared);
    let new = set.iter().filter_map(|id| {
        after.timers.get(id).map(|timer| TimerChange::Set { due: Due::After(timer.after), timer: id.clone() })
    });
    gone.chain(new).collect()
}

/// What a unit promises beside its job: done later, once, by whoever finds it standing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// The jobs that this one has asked for are cancelled, where they are to end with it.
    CancelChildren,
    /// This child is cancelled: nobody waits for it any more.
    CancelChild {
        /// The child.
        child: JobId,
        /// The step that asked for it.
        node: StepPath,
    },
    /// This child is created, as the event at this place says.
    CreateChild {
        /// The child.
        child: JobId,
        /// The step that asks for it.
        node: StepPath,
        /// The place of `child_started`.
        seq: u64,
    },
    /// The job that waits for this one is told how it has ended.
    TellParent {
        /// The parent.
        parent: JobId,
        /// Its step.
        node: StepPath,
    },
}

impl Promise {
    /// The job that it is about; its author's own, where it is about several.
    #[must_use]
    pub const fn target(&self, author: JobId) -> JobId {
        match self {
            Self::CancelChildren => author,
            Self::CancelChild { child, .. } | Self::CreateChild { child, .. } => *child,
            Self::TellParent { parent, .. } => *parent,
        }
    }
}

/// What events promise that lead to a state, in their order: a child is created before it is cancelled. The first of them stands
/// behind place `seq`. No author of an end has to think of those who wait for it.
#[must_use]
pub fn promises<'e>(seq: u64, events: impl Iterator<Item = &'e Event>, after: &JobState) -> Vec<Promise> {
    let mut promises = Vec::new();
    for (event, seq) in events.zip(seq + 1..) {
        if let Event::ChildStarted(started) = event {
            promises.push(Promise::CreateChild { child: started.child, node: started.node.clone(), seq });
        } else if let Event::NodeFinished(finished) = event
            && let Some(items) = after.items_of(&finished.node)
            && finished.node.item().is_some_and(|item| items.stopped_by == Some(item))
        {
            promises.extend(items.open.iter().filter_map(|item| {
                let node = StepPath::of_item(finished.node.node().clone(), *item);
                // Its newest round is the one that may have a child.
                let node = after.newest_round(&node);
                let child = after.steps.get(&node)?.child.as_deref()?;
                child.may_be_cancelled().then_some(Promise::CancelChild { child: child.id, node })
            }));
        } else if event.kind().ends_job() {
            let children = || after.steps.values().filter_map(|step| step.child.as_deref());
            if !after.children.is_none() && children().any(Child::may_be_cancelled) {
                promises.push(Promise::CancelChildren);
            }
            if let Some(parent) = after.parent.as_ref().filter(|parent| parent.waits) {
                promises.push(Promise::TellParent { parent: parent.job, node: parent.node.clone() });
            }
        }
    }
    let mut met = BTreeSet::new();
    promises.retain(|promise| met.insert(promise.clone()));
    promises
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::id::JobId;
    use crate::state::{Paused, PlanRef, Timer};

    fn state() -> JobState {
        let mut state = JobState::new(JobId::from_u128(1));
        let timer = |after, due| Timer { after: Span::from_micros(after), due: Timestamp::from_micros(due) };
        state.timers.insert(TimerId::Deadline, timer(5, 15));
        state.timers.insert(TimerId::Wait("a".into()), timer(7, 17));
        state
    }

    #[test]
    fn a_row_is_what_its_state_says() {
        let mut state = state();
        let blank = Projection {
            end_requested: None,
            error: None,
            not_before: None,
            paused: None,
            plan_hash: None,
            status: JobStatus::Pending,
            waiting: None,
        };
        assert_eq!(Projection::of(&state, false), blank);
        state.status = JobStatus::Waiting;
        state.end_requested = Some(EndCause::Deadline);
        state.plan = Some(PlanRef { hash: Hash::of(b"plan"), version: 1 });
        let error = Failure::new("code", "message");
        state.ending = Some(Ending::Failed { error: error.clone(), node: Some("a".into()) });
        let blocked = Blocked {
            correlation_key: Some("key".to_owned()),
            doubt: true,
            node: "a".into(),
            reason: Some("why".to_owned()),
            seq: 2,
            since: Timestamp::from_micros(3),
            wait_type: WaitType::Human,
        };
        state.blocks = [blocked].into_iter().collect();
        let waiting = WaitingView {
            correlation_key: Some("key".to_owned()),
            doubt: true,
            node: "a".into(),
            reason: Some("why".to_owned()),
            wait_type: WaitType::Human,
        };
        let full = Projection {
            end_requested: Some(EndCause::Deadline),
            error: Some((error, Some("a".into()))),
            not_before: None,
            paused: None,
            plan_hash: Some(Hash::of(b"plan")),
            status: JobStatus::Waiting,
            waiting: Some(waiting),
        };
        assert_eq!(Projection::of(&state, false), full);
        state.ending = Some(Ending::Cancelled);
        assert_eq!(Projection::of(&state, false).error, None);
    }

    /// A row that is written again while the job is paused keeps the moment.
    #[test]
    fn a_pause_has_its_moment_as_soon_as_the_store_has_given_it() {
        let mut state = state();
        let reason = PauseReason::Operator;
        for (since, due) in
            [(None, Due::After(Span::ZERO)), (Some(Timestamp::from_micros(6)), Due::At(Timestamp::from_micros(6)))]
        {
            state.paused = Some(Paused { can_go_on: false, parked: false, reason, since });
            for unstamped in [false, true] {
                assert_eq!(Projection::of(&state, unstamped).paused, Some((reason, due)));
            }
        }
    }

    #[test]
    fn a_delay_is_a_span_until_the_store_has_made_a_moment_of_it() {
        let mut state = state();
        let (moment, delay) = (Timestamp::from_micros(9), Span::from_micros(4));
        state.not_before = Some(moment);
        assert_eq!(Projection::of(&state, true).not_before, Some(Due::At(moment)));
        state.not_before_delay = Some(delay);
        assert_eq!(Projection::of(&state, true).not_before, Some(Due::After(delay)));
        assert_eq!(Projection::of(&state, false).not_before, Some(Due::At(moment)));
    }

    #[test]
    fn timers_are_written_when_they_are_set_and_cleared_when_they_are_gone() {
        let state = state();
        let wait = TimerId::Wait("a".into());
        let rows = [(TimerId::Deadline, Timestamp::from_micros(15)), (wait.clone(), Timestamp::from_micros(17))];
        assert_eq!(timers(&state), BTreeMap::from(rows));
        let gone = TimerId::Doubt("a".into());
        let changes = timer_changes(&[TimerId::Deadline, gone.clone()], &state, &[wait.clone(), gone.clone()]);
        let set = TimerChange::Set { due: Due::After(Span::from_micros(7)), timer: wait };
        assert_eq!(changes, [TimerChange::Cleared(gone), set]);
    }
}
