//! A wait for an outside message: the job blocks, holding neither lease nor slot.

use aetheris_core::event::{Failure, JobWaiting, SignalRefused, TimerId, TimerSet, WaitCompleted, WaitEnd};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{OnDeadline, WaitNode, WaitType};
use aetheris_core::time::Span;
use aetheris_store::{ExpectedSignals, InboxWrite, KeptSignal};

use crate::draft::Fact;
use crate::run::facts;
use crate::run::prepared::{Arrival, Body, Next, Prepared, Reached, Release};
use crate::run::view::View;

pub(super) fn prepare(view: &View<'_>, wait: &WaitNode) -> Prepared {
    if let Some(end) = view.step().and_then(|step| step.wait_end.as_deref()) {
        return ended(view, wait, end);
    }
    let key = match wait.correlation_key.as_ref().map(|key| view.text(key)).transpose() {
        Ok(key) => key,
        Err(error) => return facts::fail_template(view, "its correlation key", &error),
    };
    let reason = match wait.reason.as_ref().map(|reason| view.text(reason)).transpose() {
        Ok(reason) => reason.map(|reason| limits::cut(reason, limits::WAIT_REASON_BYTES_MAX)),
        Err(error) => return facts::fail_template(view, "its reason", &error),
    };
    let waiting = JobWaiting {
        correlation_key: key,
        doubt: false,
        node: view.path.clone(),
        park: wait.park,
        reason,
        wait_type: wait.wait_type,
    };
    reach(view, waiting, wait.deadline, wait.schema.as_ref())
}

/// A wait begins, which lasts so long at most and whose payload fits this schema.
pub(super) fn reach(view: &View<'_>, waiting: JobWaiting, lasts: Option<Span>, schema: Option<&Json>) -> Prepared {
    let key = waiting.correlation_key.as_deref();
    if let Some(wrong) = key.and_then(|key| wrong_key(view, key)) {
        return facts::fail(view, wrong);
    }
    let kept = key.map_or_else(Vec::new, |key| kept_for(view, key));
    let reached = Reached { kept, lasts, waiting };
    match schema {
        Some(schema) if reached.candidates().next().is_some() => {
            // What its key was made of is what it sees.
            facts::start(view).perform(Body::Judge(Box::new(reached), schema.clone()))
        }
        Some(_) | None => {
            let fits = reached.candidates().next().cloned();
            block(view, reached, Arrival { fits, misfits: Vec::new() })
        }
    }
}

/// The same of a wait that nothing ends which came before it.
pub(super) fn reach_anew(view: &View<'_>, waiting: JobWaiting) -> Prepared {
    let key = waiting.correlation_key.as_deref();
    if let Some(wrong) = key.and_then(|key| wrong_key(view, key)) {
        return facts::fail(view, wrong);
    }
    let kept = key.map_or_else(Vec::new, |key| kept_for(view, key));
    let early = kept.first().cloned().filter(|_| aetheris_fault::planted!("plan-approved-unseen"));
    block(view, Reached { kept, lasts: None, waiting }, Arrival { fits: early, misfits: Vec::new() })
}

/// The kept signals of a key.
fn kept_for(view: &View<'_>, key: &str) -> Vec<KeptSignal> {
    let any = aetheris_fault::planted!("signal-meets-any-wait");
    let mut kept: Vec<KeptSignal> = view.rows.kept.iter().filter(|kept| kept.key == key || any).cloned().collect();
    if aetheris_fault::planted!("second-signal-wins") {
        kept.reverse();
    }
    kept
}

impl Reached {
    /// The kept signals that may end the wait, in their order. One that claims another type stays unclaimed.
    pub(in crate::run) fn candidates(&self) -> impl Iterator<Item = &KeptSignal> {
        let wait_type = self.waiting.wait_type;
        let unseen = aetheris_fault::planted!("write-only-inbox");
        let claims = move |kept: &&KeptSignal| kept.wait_type.is_none_or(|claimed| claimed == wait_type);
        self.kept.iter().filter(move |kept| !unseen && claims(kept))
    }
}

/// The wait is over.
fn ended(view: &View<'_>, wait: &WaitNode, end: &WaitEnd) -> Prepared {
    match (end, &wait.on_deadline) {
        // The payload is stored in `wait_completed` and not a second time.
        (WaitEnd::Signal { .. }, _) => facts::succeed(view, None),
        (WaitEnd::Time | WaitEnd::Dropped, OnDeadline::ContinueWith(value)) => {
            aetheris_fault::sometimes!(WaitTimedOut, wait.wait_type != WaitType::Timer);
            facts::succeed(view, Some(value.clone()))
        }
        (WaitEnd::Time | WaitEnd::Dropped, OnDeadline::Fail) => {
            let failure = Failure::new("wait_timed_out", "nobody answered before the wait's deadline");
            facts::fail(view, failure)
        }
    }
}

fn wrong_key(view: &View<'_>, key: &str) -> Option<Failure> {
    if key.is_empty() || limits::is_longer(key, limits::CORRELATION_KEY_CHARS_MAX) {
        let message = format!(
            "the correlation key has {} characters; 1 to {} are accepted",
            key.chars().count(),
            limits::CORRELATION_KEY_CHARS_MAX
        );
        return Some(Failure::new("bad_correlation_key", message));
    }
    if view.state.waits.len() >= limits::JOB_WAITS_MAX {
        let message = format!("the job has opened {} waits, the most that one job may have", limits::JOB_WAITS_MAX);
        return Some(Failure::new("too_many_waits", message));
    }
    view.state.waits.contains_key(key).then(|| {
        let message =
            format!("the correlation key `{key}` was used by an earlier wait of this job; a key names one wait");
        Failure::new("correlation_key_used", message)
    })
}

/// Blocks the job and releases it; with a kept signal that fits the wait is over in the same commit.
pub(in crate::run) fn block(view: &View<'_>, reached: Reached, arrival: Arrival) -> Prepared {
    let Reached { kept, lasts, waiting } = reached;
    let node = &view.path;
    // What the run does not know of the store's signals it must not overlook.
    let expected = waiting.correlation_key.clone().map(|key| ExpectedSignals { count: kept.len(), key });
    let mut blocked = vec![Fact::of(waiting)];
    for (kept, violations) in arrival.misfits {
        aetheris_fault::sometimes!(SignalMisfit);
        let event = SignalRefused {
            correlation_key: kept.key,
            node: node.clone(),
            payload_hash: kept.payload.hash(),
            signal: kept.signal,
            violations,
        };
        blocked.push(Fact::with_inbox(event, InboxWrite::Consume(kept.signal)));
    }
    let mut expects = None;
    match arrival.fits {
        Some(kept) => {
            aetheris_fault::sometimes!(SignalConsumed);
            let by = WaitEnd::Signal { payload: kept.payload, signal: kept.signal };
            let event = WaitCompleted { by, node: node.clone() };
            blocked.push(Fact::with_inbox(event, InboxWrite::Consume(kept.signal)));
        }
        None => {
            if let Some(span) = lasts.filter(|_| !aetheris_fault::planted!("wait-deadline-forgotten")) {
                let timer = TimerId::Wait(node.clone());
                blocked.push(Fact::of(TimerSet { after_us: span.micros(), timer }));
            }
            let looks = !aetheris_fault::planted!("wait-without-looking");
            expects = expected.filter(|_| looks);
        }
    }
    aetheris_fault::crash_point!("run.block.drafted");
    // It starts when this is decided, however long others go on beside it.
    facts::start(view).next(Next::Release(Release::Block { facts: blocked, expected: expects }))
}
