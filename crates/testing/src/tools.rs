//! Fake tools: they answer as they are told, keep books, and outlive the process that calls them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_check::{WitnessKind, WitnessLine};
use aetheris_core::event::Failure;
use aetheris_core::id::{IdempotencyKey, JobId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::ledger::PermitNumber;
use aetheris_core::path::StepPath;
use aetheris_core::time::Timestamp;
use aetheris_runtime::{ToolCall, ToolOutcome, Tools};
use aetheris_store::Boxed;
use aetheris_store::system::Clock;
use serde_json::json;

use crate::reply::{FakeCall, Reply, What};
use crate::time::{BEGINNING, VirtualClock};

type Answering = dyn Fn(&FakeCall) -> Reply + Send + Sync;

/// What a fake does to its world when it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Nothing.
    Reads,
    /// Something, each time.
    Acts,
    /// Something at the first call with a key; later ones get the first one's answer.
    ActsOnce,
}

#[derive(Clone)]
struct Fake {
    answer: Arc<Answering>,
    manner: Manner,
}

/// A call as a fake tool has seen it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Whether it changed the fake's world.
    pub acted: bool,
    /// When it came.
    pub at: Timestamp,
    /// The fencing token.
    pub fence: Fence,
    /// The input.
    pub input: Json,
    /// The job.
    pub job: JobId,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// The node.
    pub node: StepPath,
    /// Whether its body is over.
    pub over: bool,
    /// The permit that the caller named.
    pub permit: Option<PermitNumber>,
    /// What its body answers, whether or not that arrives; `None` where it was refused and no body ran.
    pub promised: Option<Json>,
    /// The tool.
    pub tool: ToolName,
    /// The try that the caller named.
    pub try_number: u32,
}

/// What the books of a fake tool say of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// No body with that key has begun.
    No,
    /// One has begun and is not over.
    Running,
    /// One is over; this is its answer.
    Yes(Json),
}

#[derive(Default)]
struct Books {
    clock: Option<Arc<VirtualClock>>,
    fakes: BTreeMap<ToolName, Fake>,
    missing: BTreeSet<ToolName>,
    seen: Vec<Seen>,
    witness: Vec<WitnessLine>,
}

/// Tools by name that answer without a network, whatever kind the agent file says they are. Clones share
/// their books. A body that has begun goes on when the process that called it dies.
#[derive(Clone, Default)]
pub struct FakeTools(Arc<Mutex<Books>>);

impl fmt::Debug for FakeTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<ToolName> = self.books().fakes.keys().cloned().collect();
        f.debug_tuple("FakeTools").field(&names).finish()
    }
}

impl FakeTools {
    /// No tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A tool that changes nothing: its calls count, and prove nothing about effects.
    #[must_use]
    pub fn reads<R: Into<Reply>>(self, tool: &str, answer: impl Fn(&FakeCall) -> R + Send + Sync + 'static) -> Self {
        self.with(tool, Manner::Reads, answer)
    }

    /// A tool that changes the world at each call, as a service does that does not look at keys.
    #[must_use]
    pub fn acts<R: Into<Reply>>(self, tool: &str, answer: impl Fn(&FakeCall) -> R + Send + Sync + 'static) -> Self {
        self.with(tool, Manner::Acts, answer)
    }

    /// A tool that changes the world once per idempotency key: a further call with a key acts no more and
    /// gets the first one's answer. This is what the class `idempotent` asks of a service.
    #[must_use]
    pub fn acts_once<R: Into<Reply>>(
        self,
        tool: &str,
        answer: impl Fn(&FakeCall) -> R + Send + Sync + 'static,
    ) -> Self {
        self.with(tool, Manner::ActsOnce, answer)
    }

    /// A tool for `on_in_doubt: [{ reconcile: TOOL }]` that looks into the books of the fake tool `of` and
    /// says what is true.
    #[must_use]
    pub fn reconciles(self, tool: &str, of: &str) -> Self {
        // Weak: the books own this closure.
        let (books, of) = (Arc::downgrade(&self.0), ToolName::from(of));
        self.with(tool, Manner::Reads, move |call| {
            let key = call.input.get("idempotency_key").and_then(|key| key.as_str()).and_then(|key| key.parse().ok());
            let happened = match (books.upgrade(), key) {
                (Some(books), Some(key)) => Self(books).happened(of.as_str(), key),
                (None, _) | (_, None) => Happened::Running,
            };
            match happened {
                Happened::No => json!({ "outcome": "did_not_happen" }),
                Happened::Running => json!({ "outcome": "unknown" }),
                Happened::Yes(result) => json!({ "outcome": "happened", "result": result.value() }),
            }
        })
    }

    fn with<R: Into<Reply>>(
        self,
        tool: &str,
        manner: Manner,
        answer: impl Fn(&FakeCall) -> R + Send + Sync + 'static,
    ) -> Self {
        let answer: Arc<Answering> = Arc::new(move |call| answer(call).into());
        self.books().fakes.insert(ToolName::from(tool), Fake { answer, manner });
        self
    }

    /// Every call that reached a tool, oldest first, the refused ones included.
    #[must_use]
    pub fn seen(&self, tool: &str) -> Vec<Seen> {
        self.books().seen.iter().filter(|seen| seen.tool.as_str() == tool).cloned().collect()
    }

    /// How many bodies of a tool have begun.
    #[must_use]
    pub fn count(&self, tool: &str) -> usize {
        self.books().seen.iter().filter(|seen| seen.tool.as_str() == tool && seen.promised.is_some()).count()
    }

    /// How often a tool has changed the world.
    #[must_use]
    pub fn acted(&self, tool: &str) -> usize {
        self.books().seen.iter().filter(|seen| seen.tool.as_str() == tool && seen.acted).count()
    }

    /// How many bodies have begun, by tool and idempotency key.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(ToolName, IdempotencyKey), usize> {
        let mut counts = BTreeMap::new();
        for seen in self.books().seen.iter().filter(|seen| seen.promised.is_some()) {
            *counts.entry((seen.tool.clone(), seen.key)).or_default() += 1;
        }
        counts
    }

    /// Whether a body of that tool with that key has run.
    #[must_use]
    pub fn happened(&self, tool: &str, key: IdempotencyKey) -> Happened {
        let books = self.books();
        let mut bodies = books.seen.iter().filter(|seen| seen.tool.as_str() == tool && seen.key == key);
        match bodies.find_map(|seen| seen.promised.as_ref().map(|promised| (seen.over, promised))) {
            None => Happened::No,
            Some((false, _)) => Happened::Running,
            Some((true, answer)) => Happened::Yes(answer.clone()),
        }
    }

    /// What these tools have seen, in the form that the checker reads.
    #[must_use]
    pub fn witness(&self) -> Vec<WitnessLine> {
        self.books().witness.clone()
    }

    /// How many bodies have begun and are not over.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.books().seen.iter().filter(|seen| seen.promised.is_some() && !seen.over).count()
    }

    /// Tools that were called and that there is no fake of.
    #[must_use]
    pub fn missing(&self) -> Vec<ToolName> {
        self.books().missing.iter().cloned().collect()
    }

    /// Whether there is a fake of that name.
    #[must_use]
    pub fn has(&self, tool: &ToolName) -> bool {
        self.books().fakes.contains_key(tool)
    }

    /// The times in the books are this clock's from now on.
    pub(crate) fn keep_time(&self, clock: Arc<VirtualClock>) {
        self.books().clock = Some(clock);
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is done with a call, and whether that changes the world. No lock is held while the fake decides.
    fn decide(&self, call: &ToolCall) -> Option<(Reply, bool)> {
        let (fake, bodies_of_key, first) = {
            let books = self.books();
            let fake = books.fakes.get(&call.tool_name).cloned()?;
            let mut bodies = books
                .seen
                .iter()
                .filter(|seen| seen.tool == call.tool_name && seen.key == call.key && seen.promised.is_some());
            let first = bodies.next().and_then(|seen| seen.promised.clone());
            let count = bodies.count() + usize::from(first.is_some());
            (fake, count, first)
        };
        if let (Manner::ActsOnce, Some(first)) = (fake.manner, first) {
            return Some((Reply::done(first.value().clone()), false));
        }
        let reply = (fake.answer)(&FakeCall {
            bodies_of_key,
            fence: call.fence,
            input: call.input.clone(),
            job: call.job,
            key: call.key,
            node: call.node.clone(),
            tool: call.tool_name.clone(),
            try_number: call.try_number,
        });
        let acts = fake.manner != Manner::Reads && reply.promised().is_some();
        Some((reply, acts))
    }

    /// Writes a call into the books; its place in them.
    fn note(&self, call: &ToolCall, reply: &Reply, acts: bool) -> usize {
        let mut books = self.books();
        let at = books.now();
        let promised = reply.promised().cloned();
        let kind = if promised.is_some() { WitnessKind::BodyStart } else { WitnessKind::Refused };
        books.witness.push(WitnessLine {
            kind,
            acts,
            at,
            attempt: call.try_number,
            fence: call.fence,
            input_hash: call.input.hash(),
            job: call.job,
            key: call.key,
            node: call.node.clone(),
            permit: call.permit,
            result_hash: None,
            tool: call.tool_name.to_string(),
        });
        books.seen.push(Seen {
            acted: acts,
            at,
            fence: call.fence,
            input: call.input.clone(),
            job: call.job,
            key: call.key,
            node: call.node.clone(),
            over: false,
            permit: call.permit,
            promised,
            tool: call.tool_name.clone(),
            try_number: call.try_number,
        });
        books.seen.len() - 1
    }

    fn end(&self, place: usize) {
        let mut books = self.books();
        let at = books.now();
        let Some(seen) = books.seen.get_mut(place) else { return };
        seen.over = true;
        let line = WitnessLine {
            kind: WitnessKind::BodyEnd,
            acts: seen.acted,
            at,
            attempt: seen.try_number,
            fence: seen.fence,
            input_hash: seen.input.hash(),
            job: seen.job,
            key: seen.key,
            node: seen.node.clone(),
            permit: seen.permit,
            result_hash: seen.promised.as_ref().map(Json::hash),
            tool: seen.tool.to_string(),
        };
        books.witness.push(line);
    }
}

impl Books {
    fn now(&self) -> Timestamp {
        self.clock.as_ref().map_or(BEGINNING, |clock| clock.wall())
    }
}

impl Tools for FakeTools {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        Box::pin(async move {
            let Some((reply, acts)) = self.decide(&call) else {
                self.books().missing.insert(call.tool_name.clone());
                let why = format!("the test has no fake of the tool `{}`", call.tool_name);
                return ToolOutcome::RefusedPermanent(Failure::new("no_fake", why));
            };
            if let Some(outcome) = reply.turned_away() {
                if !matches!(reply.what, What::NotSent(_)) {
                    self.note(&call, &reply, false);
                }
                tokio::time::sleep(reply.after.min(call.timeout)).await;
                return outcome;
            }
            let (place, books) = (self.note(&call, &reply, acts), self.clone());
            // A service does not notice that its caller is gone.
            let body = tokio::spawn(async move {
                tokio::time::sleep(reply.after).await;
                books.end(place);
            });
            tokio::select! {
                biased;
                _ = body => match reply.what {
                    What::Done(answer) => ToolOutcome::Done(answer),
                    What::Never(_) => {
                        tokio::time::sleep(call.timeout.saturating_sub(reply.after)).await;
                        overdue(&call)
                    }
                    What::Lost(_) | What::NotSent(_) | What::Refused(_) | What::RefusedForGood(_) => {
                        let error = Failure::new("connection_lost", "the answer was lost on the way");
                        ToolOutcome::Unknown { error, retry_after: None, timeout: false }
                    }
                },
                () = tokio::time::sleep(call.timeout) => overdue(&call),
            }
        })
    }
}

fn overdue(call: &ToolCall) -> ToolOutcome {
    let message = format!("no answer within {} ms", call.timeout.as_millis());
    ToolOutcome::Unknown { error: Failure::new("timeout", message), retry_after: None, timeout: true }
}
