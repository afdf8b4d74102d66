//! Signals: what ends a wait, in the order of checks of SPEC §7.

use std::sync::Arc;

use aetheris_core::event::{WaitCompleted, WaitEnd};
use aetheris_core::id::{JobId, SignalId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{CompiledPlan, WaitType};
use aetheris_core::signal::{self, Incoming, Route};
use aetheris_core::state::JobState;
use aetheris_store::{ExpectedSignals, InboxWrite, KeptSignal, Purpose, Refusal, UnitOfWork};

use super::Rounds;
use super::ahead::{Ahead, Takes, upcoming};
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::{Draft, Fact};
use crate::error::{Awaited, OpError};
use crate::load::Loaded;
use crate::run::review;

/// An outside message.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    /// The wait it names.
    pub correlation_key: String,
    /// What it brings.
    pub payload: Json,
    /// What it claims to be.
    pub wait_type: Option<WaitType>,
}

impl Signal {
    /// Whether this one is kept.
    fn is(&self, kept: &KeptSignal) -> bool {
        kept.key == self.correlation_key && kept.payload == self.payload && kept.wait_type == self.wait_type
    }
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAnswer {
    /// It ended the wait.
    Delivered,
    /// One with the same key had ended the wait before.
    AlreadyDelivered {
        /// Whether its payload was the same.
        payload_matches: bool,
    },
    /// It is kept until the job reaches its wait, or another one is that counts before it.
    Kept {
        /// Whether this payload is kept: the first that fits ends the wait.
        payload_matches: bool,
    },
}

impl Runtime {
    /// Takes a signal. One durable commit, in which the inbox row, `wait_completed` and the job's
    /// return to pending stand together; a job that is being claimed in the meantime is looked at again.
    ///
    /// # Errors
    /// [`OpError`] as SPEC §7 orders the checks.
    pub async fn signal(&self, job: JobId, incoming: Signal) -> Result<SignalAnswer, OpError> {
        if limits::is_longer(&incoming.correlation_key, limits::CORRELATION_KEY_CHARS_MAX) {
            let bound = limits::CORRELATION_KEY_CHARS_MAX;
            return Err(OpError::InvalidRequest(format!("correlation_key: at most {bound} characters are accepted")));
        }
        let id = SignalId::from_u128(self.system.ids.ordered());
        let mut rounds = Rounds::of(self, job, Caller::Client);
        loop {
            let loaded = rounds.look().await?;
            let plan = self.plan_of(&loaded).await?;
            // While its plan is made nothing is known of what it will wait for.
            let own = plan.as_deref().filter(|_| loaded.state.plan.is_some());
            let of_review = loaded.state.planning.is_some() && review::is_key(job, &incoming.correlation_key);
            // An answer about a plan counts only while that is asked about.
            let ahead =
                if of_review { Some(Ahead::default()) } else { upcoming(&loaded, own, &incoming.correlation_key) };
            let question = Incoming {
                key: incoming.correlation_key.clone(),
                payload_hash: incoming.payload.hash(),
                wait_type: incoming.wait_type,
            };
            aetheris_fault::crash_point!("ops.signal.looked");
            let met = signal::route(&loaded.state, ahead.as_ref().map(|ahead| ahead.waits.as_slice()), &question);
            // One that is kept already is told so again, whatever has become known of its wait.
            let again = met == Route::Keep && loaded.kept.iter().any(|kept| incoming.is(kept));
            if !again {
                self.refuse_misfit((plan.as_deref(), &loaded.state), ahead.as_ref(), &met, &incoming).await?;
            }
            let (unit, answer) = match met {
                Route::Deliver(node) => {
                    let draft = self.delivering(&loaded, &incoming, id, node)?;
                    (draft.unit(Purpose::Signal, self.event_id()), SignalAnswer::Delivered)
                }
                Route::Keep if aetheris_fault::planted!("early-signal-refused") => {
                    return Err(refusal(&loaded.state, &incoming, &Route::WrongKey));
                }
                Route::Keep => {
                    let anew = aetheris_fault::planted!("second-signal-wins");
                    let of_key = loaded.kept.iter().filter(|kept| !anew && kept.key == incoming.correlation_key);
                    let kept: Vec<&KeptSignal> = of_key.collect();
                    let wait = ahead.as_ref().and_then(|ahead| ahead.named(&incoming.correlation_key));
                    if !self.is_news(&kept, wait, &incoming).await? {
                        return Ok(told_as_kept(&kept, &incoming));
                    }
                    aetheris_fault::sometimes!(SignalKept);
                    aetheris_fault::sometimes!(SignalKeptBeside, !kept.is_empty());
                    let unit = self.keeping(&loaded.state, &incoming, id, kept.len());
                    (unit, SignalAnswer::Kept { payload_matches: true })
                }
                Route::AlreadyDelivered { .. }
                    if loaded.state.status.is_terminal() && aetheris_fault::planted!("duplicate-signal-refused") =>
                {
                    return Err(refusal(&loaded.state, &incoming, &Route::JobFinished));
                }
                Route::AlreadyDelivered { payload_matches } => {
                    aetheris_fault::sometimes!(SignalRepeated);
                    return Ok(SignalAnswer::AlreadyDelivered { payload_matches });
                }
                refused @ (Route::JobFinished | Route::WaitOver | Route::WrongType(_) | Route::WrongKey) => {
                    return kept_or_refused(&loaded, &incoming, &refused);
                }
            };
            let kept_meanwhile = |refusal: &Refusal| matches!(refusal, Refusal::SignalKept(_));
            if rounds.write(loaded, || unit.clone(), kept_meanwhile).await?.is_some() {
                aetheris_fault::crash_point!("ops.signal.written");
                return Ok(answer);
            }
        }
    }

    /// The plan that a job follows now, if it has begun.
    async fn plan_of(&self, loaded: &Loaded) -> Result<Option<Arc<CompiledPlan>>, OpError> {
        match loaded.state.followed_plan() {
            Some(hash) => Ok(Some(self.plans.get(self.store.as_ref(), hash).await?)),
            None => Ok(None),
        }
    }

    /// The wait of a node ends with a signal.
    fn delivering(&self, loaded: &Loaded, incoming: &Signal, id: SignalId, node: StepPath) -> Result<Draft, OpError> {
        let by = WaitEnd::Signal { payload: incoming.payload.clone(), signal: id };
        let mut draft = loaded.draft(Guard::Outside);
        let fact = Fact::with_inbox(WaitCompleted { by, node }, receive(incoming, id, true));
        draft.add(self.system.ids.as_ref(), fact)?;
        Ok(draft)
    }

    /// A wait that a payload ends, or that its key names for certain, says what the payload must be.
    async fn refuse_misfit(
        &self,
        (plan, state): (Option<&CompiledPlan>, &JobState),
        ahead: Option<&Ahead<'_>>,
        met: &Route,
        incoming: &Signal,
    ) -> Result<(), OpError> {
        let takes = match met {
            Route::Deliver(path) => plan.and_then(|plan| Takes::at(plan, Some(state), path)),
            Route::Keep => ahead.and_then(|ahead| ahead.named(&incoming.correlation_key)),
            Route::AlreadyDelivered { .. }
            | Route::JobFinished
            | Route::WaitOver
            | Route::WrongType(_)
            | Route::WrongKey => None,
        };
        let Some(schema) = takes.and_then(|takes| takes.schema) else { return Ok(()) };
        let violations = self.plans.violations(schema, &incoming.payload).await?;
        if violations.is_empty() { Ok(()) } else { Err(OpError::InvalidPayload { violations, what: "the payload" }) }
    }

    /// Whether a signal for a wait ahead has to be kept beside those of its key. The first that fits ends the wait: a
    /// further one can count as long as it is not certain that an earlier one does.
    async fn is_news(&self, kept: &[&KeptSignal], wait: Option<Takes<'_>>, incoming: &Signal) -> Result<bool, OpError> {
        if kept.iter().any(|kept| incoming.is(kept)) {
            return Ok(false);
        }
        for kept in kept {
            if let Some(takes) = wait
                && self.fits(takes, kept).await?
            {
                return Ok(false);
            }
        }
        if kept.len() >= limits::KEPT_SIGNALS_OF_KEY_MAX {
            let (key, kept) = (&incoming.correlation_key, kept.len());
            let message = format!(
                "{kept} different signals for `{key}` are kept already; send it again when the job waits for it"
            );
            return Err(OpError::StateConflict(message));
        }
        Ok(true)
    }

    /// Whether a kept signal ends a wait, once it is reached.
    async fn fits(&self, takes: Takes<'_>, kept: &KeptSignal) -> Result<bool, OpError> {
        if kept.wait_type.is_some_and(|claimed| claimed != takes.wait_type) {
            return Ok(false);
        }
        match takes.schema {
            Some(schema) => Ok(self.plans.violations(schema, &kept.payload).await?.is_empty()),
            None => Ok(true),
        }
    }

    /// A unit without an event: it holds only while the job is as it was seen, so that a wait which
    /// begins in the meantime is not missed.
    fn keeping(&self, state: &JobState, incoming: &Signal, id: SignalId, kept: usize) -> UnitOfWork {
        let mut unit = UnitOfWork::new(self.event_id(), state.id, Purpose::Signal, Guard::Outside);
        unit.expected_seq = Some(state.seq);
        // One that is kept meanwhile has to be looked at.
        let expected = ExpectedSignals { count: kept, key: incoming.correlation_key.clone() };
        if !aetheris_fault::planted!("second-signal-wins") {
            unit.expected_signals.push(expected);
        }
        unit.inbox.push(receive(incoming, id, false));
        unit
    }
}

/// A signal that was accepted before its wait was skipped is kept still, and is told the same for ever.
fn kept_or_refused(loaded: &Loaded, incoming: &Signal, met: &Route) -> Result<SignalAnswer, OpError> {
    let of_key = loaded.kept.iter().filter(|kept| *met == Route::WrongKey && kept.key == incoming.correlation_key);
    let kept: Vec<&KeptSignal> = of_key.collect();
    if kept.is_empty() { Err(refusal(&loaded.state, incoming, met)) } else { Ok(told_as_kept(&kept, incoming)) }
}

/// The answer where nothing more is kept.
fn told_as_kept(kept: &[&KeptSignal], incoming: &Signal) -> SignalAnswer {
    SignalAnswer::Kept { payload_matches: kept.iter().any(|kept| kept.payload == incoming.payload) }
}

fn receive(incoming: &Signal, signal: SignalId, delivered: bool) -> InboxWrite {
    InboxWrite::Receive {
        delivered,
        key: incoming.correlation_key.clone(),
        payload: incoming.payload.clone(),
        signal,
        wait_type: incoming.wait_type,
    }
}

/// The keys that are open. Whoever mistyped one is told the one that was probably meant, never another question's.
fn open_keys(state: &JobState, key: &str) -> Option<Awaited> {
    let all = state.blocks.by_age().into_iter().filter_map(|blocked| blocked.correlation_key.as_deref());
    let open: Vec<&str> = all.collect();
    if let [only] = open.as_slice() {
        return Some(Awaited::Signal((*only).to_owned()));
    }
    let shared = |open: &str| open.bytes().zip(key.bytes()).take_while(|(one, other)| one == other).count();
    let best = open.iter().rev().max_by_key(|open| shared(open))?;
    let is_near = |open: &&&str| open.ends_with(key) || 2 * shared(open) > open.len();
    let nearest = open.iter().find(|open| open.ends_with(key)).or(Some(best)).filter(is_near);
    Some(Awaited::OneOf { open: open.len(), nearest: nearest.map(|key| (*key).to_owned()) })
}

fn refusal(state: &JobState, incoming: &Signal, met: &Route) -> OpError {
    match met {
        Route::WaitOver => OpError::WaitOver(incoming.correlation_key.clone()),
        Route::WrongType(expected) => OpError::WrongWaitType {
            expected: *expected,
            given: incoming.wait_type.unwrap_or(*expected),
            key: incoming.correlation_key.clone(),
        },
        Route::WrongKey => OpError::WrongCorrelationKey {
            job: state.id,
            key: incoming.correlation_key.clone(),
            waiting: match state.blocks.oldest() {
                Some(blocked) if blocked.doubt => Some(Awaited::Doubt(blocked.node.clone())),
                Some(_) | None => open_keys(state, &incoming.correlation_key),
            },
        },
        Route::Deliver(_) | Route::AlreadyDelivered { .. } | Route::Keep | Route::JobFinished => {
            OpError::JobFinished { job: state.id, status: state.status }
        }
    }
}
