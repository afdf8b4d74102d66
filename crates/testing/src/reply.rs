//! What a fake tool does with a call.

use std::sync::Mutex;
use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::id::{IdempotencyKey, JobId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::path::StepPath;
use aetheris_runtime::ToolOutcome;
use serde_json::Value;

/// How long a fake takes unless it is told otherwise. Not nothing: what comes first and what comes next
/// are to have different times, for the checker and for people.
pub(crate) const LATENCY: Duration = Duration::from_millis(1);

/// A call that has reached a fake tool.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeCall {
    /// How many bodies of this tool with this key came before.
    pub bodies_of_key: usize,
    /// The fencing token.
    pub fence: Fence,
    /// The input, templates rendered.
    pub input: Json,
    /// The job.
    pub job: JobId,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// The node.
    pub node: StepPath,
    /// The tool.
    pub tool: ToolName,
    /// The try that the caller named: 1, 2, …
    pub try_number: u32,
}

/// What a fake tool does with one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub(crate) after: Duration,
    pub(crate) what: What,
}

/// The kinds of replies.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    Done(Json),
    Lost(Json),
    Never(Json),
    NotSent(String),
    Refused(String),
    RefusedForGood(String),
}

impl Reply {
    fn of(what: What) -> Self {
        Self { after: LATENCY, what }
    }

    /// The body runs and answers this. A [`Value`] is one of these by itself.
    #[must_use]
    pub fn done(answer: Value) -> Self {
        Self::of(What::Done(Json::new(answer)))
    }

    /// The body runs to its end, and its answer is lost on the way. It would have been this.
    #[must_use]
    pub fn answer_lost(answer: Value) -> Self {
        Self::of(What::Lost(Json::new(answer)))
    }

    /// The body runs to its end, and no answer leaves: the caller waits until its own timeout ends the call.
    #[must_use]
    pub fn never_answers(answer: Value) -> Self {
        Self::of(What::Never(Json::new(answer)))
    }

    /// No body runs: refused before it acted, and may be accepted later.
    #[must_use]
    pub fn refused(why: &str) -> Self {
        Self::of(What::Refused(why.to_owned()))
    }

    /// No body runs: refused for good.
    #[must_use]
    pub fn refused_for_good(why: &str) -> Self {
        Self::of(What::RefusedForGood(why.to_owned()))
    }

    /// No body runs: it is certain that not a byte left the caller.
    #[must_use]
    pub fn not_sent(why: &str) -> Self {
        Self::of(What::NotSent(why.to_owned()))
    }

    /// Takes so long (a millisecond otherwise). Longer than the call's timeout: the body goes on to its end
    /// and the caller is told that nothing is known.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self { after: duration, ..self }
    }

    /// What a body that runs would answer; `None` where none runs.
    pub(crate) fn promised(&self) -> Option<&Json> {
        match &self.what {
            What::Done(answer) | What::Lost(answer) | What::Never(answer) => Some(answer),
            What::NotSent(_) | What::Refused(_) | What::RefusedForGood(_) => None,
        }
    }

    /// What the caller learns where no body runs.
    pub(crate) fn turned_away(&self) -> Option<ToolOutcome> {
        let refusal = |why: &String| Failure::new("refused", why.clone());
        match &self.what {
            What::Done(_) | What::Lost(_) | What::Never(_) => None,
            What::NotSent(why) => {
                Some(ToolOutcome::NotSent { error: Failure::new("not_sent", why.clone()), permanent: false })
            }
            What::Refused(why) => Some(ToolOutcome::RefusedRetryable { error: refusal(why), retry_after: None }),
            What::RefusedForGood(why) => Some(ToolOutcome::RefusedPermanent(refusal(why))),
        }
    }
}

impl From<Value> for Reply {
    fn from(answer: Value) -> Self {
        Self::done(answer)
    }
}

/// These replies in turn, over all calls together, and the last of them for ever.
pub fn in_turn<R: Into<Reply>>(
    replies: impl IntoIterator<Item = R>,
) -> impl Fn(&FakeCall) -> Reply + Send + Sync + 'static {
    let replies: Vec<Reply> = replies.into_iter().map(Into::into).collect();
    let next = Mutex::new(0usize);
    move |_| {
        let mut next = next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let turn = (*next).min(replies.len().saturating_sub(1));
        *next += 1;
        replies.get(turn).cloned().unwrap_or_else(|| Reply::done(Value::Null))
    }
}
