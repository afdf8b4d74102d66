//! What waits for someone.

use std::fmt;
use std::str::FromStr;

use aetheris_api::{InDoubtList, InDoubtView, Outcome, ValueOrigin, WaitList, WaitView};
use aetheris_core::disproof;
use aetheris_core::event::{DoubtOutcome, PauseReason};
use aetheris_core::id::{JobId, ParseIdError};
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerRow, LedgerStatus, PermitNumber};
use aetheris_core::limits;
use aetheris_core::plan::{DoubtPolicy, WaitType};
use aetheris_core::recovery::{DoubtNext, DoubtStands, doubt_next};
use aetheris_core::time::{Reading, Span, Timestamp};
use aetheris_store::{BlockedOn, DoubtCursor, DoubtFilter, DoubtRow, JobFilter, JobRow, StoreStatus, WaitRow};
use axum::extract::State;

use super::answers::Common;
use super::jobs::cursor;
use crate::answer::{self, Answer};
use crate::error::Failure;
use crate::params::Params;
use crate::reading::AnswerSlot;
use crate::state::{App, Shared};
use crate::{steps, view};

const PAGE_DEFAULT: usize = 50;

/// What waits for someone
///
/// Newest job first. Without `wait_type`, everything but what only time ends.
#[utoipa::path(get, path = "/api/waits", tag = "people", operation_id = "list_waits",
    params(
        ("wait_type" = Option<String>, Query, pattern = "^(human|signal|webhook|timer)$", description = "human, signal, webhook or timer"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most; 50 by default, never more than 500"),
        ("cursor" = Option<String>, Query, pattern = "^job_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$", description = "`next_cursor` of the page before")),
    responses((status = 200, body = WaitList, description = "A page of what waits"), Common))]
pub(super) async fn list(State(app): State<Shared>, mut params: Params) -> Answer {
    let wait_type = params.single("wait_type")?.map(|name| wait_type(&name)).transpose()?;
    let limit = params.limit(PAGE_DEFAULT, limits::PAGE_JOBS_MAX)?;
    let before = cursor(&mut params)?;
    params.finish()?;
    let on = wait_type.map_or(BlockedOn::Someone, BlockedOn::Type);
    let slot = AnswerSlot::begin(&app).await?;
    let page = app
        .store()
        .waits(JobFilter { before, blocked_on: Some(on), limit, scope: app.scope(), ..JobFilter::default() })
        .await?;
    let status = app.store().status().await?;
    let mut list = WaitList { next_cursor: page.next.map(|job| job.to_string()), waits: Vec::new() };
    let mut rows = page.waits.into_iter().peekable();
    let mut bytes = 0;
    while let Some(row) = rows.next() {
        let job = row.row.id;
        if let Some(wait) = wait(&app, row, &status).await? {
            // Of many jobs of one plan each has the same schema in it.
            bytes += wait.schema.as_ref().map_or(0, Json::memory);
            list.waits.push(wait);
        }
        if bytes >= limits::PAGE_ROWS_BYTES_MAX && rows.peek().is_some() {
            list.next_cursor = Some(job.to_string());
            break;
        }
    }
    slot.made(limits::PAGE_ROWS_BYTES_MAX, move || answer::encoded(&list)).await
}

fn wait_type(name: &str) -> Result<WaitType, Failure> {
    let all = [WaitType::Human, WaitType::Signal, WaitType::Webhook, WaitType::Timer, WaitType::Child];
    all.into_iter().find(|known| known.as_str() == name).ok_or_else(|| {
        let known = all.map(WaitType::as_str).join(", ");
        Failure::invalid(format!("query: `wait_type` is `{name}`; expected one of {known}"))
    })
}

/// One wait, with its times and what its payload must fit.
async fn wait(app: &App, wait: WaitRow, status: &StoreStatus) -> Result<Option<WaitView>, Failure> {
    let WaitRow { deadline, row, since } = wait;
    let paused = view::paused(&row, status.generation);
    let Some(waiting) = row.waiting else { return Ok(None) };
    let plan = app.plan_if_readable(row.plan_hash).await?;
    let schema = plan.as_deref().and_then(|plan| view::schema_of_wait(plan, None, &waiting));
    let seconds = status.now.since(since).micros() / 1_000_000;
    Ok(Some(WaitView {
        age: Span::from_secs(seconds),
        agent: row.agent,
        correlation_key: waiting.correlation_key,
        deadline,
        doubt: waiting.doubt,
        job_id: row.id,
        node_id: waiting.node,
        paused,
        reason: waiting.reason,
        schema,
        session_id: row.session,
        since,
        wait_type: waiting.wait_type,
    }))
}

/// Calls in doubt
///
/// Calls that durably started and whose outcome is unknown, oldest first. A call that was given up, or that its job's
/// end left unresolved, stays listed with `unresolved=true`, and can be answered; the answer is kept with the job.
#[utoipa::path(get, path = "/api/in-doubt", tag = "people", operation_id = "list_in_doubt",
    params(
        ("job" = Option<String>, Query, pattern = "^job_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$", description = "Of this job only"),
        ("unresolved" = Option<bool>, Query, description = "Only calls that were given up, and those of jobs that have ended which nobody has answered; or only calls whose job goes on"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most; 100 by default, never more than 500"),
        ("cursor" = Option<String>, Query, pattern = "^[0-7][0-9a-f]{15}[.]key_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$", description = "`next_cursor` of the page before")),
    responses((status = 200, body = InDoubtList, description = "A page of the calls in doubt"), Common))]
pub(super) async fn in_doubt(State(app): State<Shared>, mut params: Params) -> Answer {
    let limit = params.limit(2 * PAGE_DEFAULT, limits::PAGE_JOBS_MAX)?;
    let job: Option<JobId> = params.read("job", "the id of a job")?;
    let unresolved: Option<bool> = params.read("unresolved", "true or false")?;
    let after: Option<Place> = params.read("cursor", "the `next_cursor` of an earlier page")?;
    params.finish()?;
    let filter = DoubtFilter { after: after.map(|Place(cursor)| cursor), job, limit, scope: app.scope(), unresolved };
    let slot = AnswerSlot::begin(&app).await?;
    let page = app.store().doubts(filter).await?;
    let now = Reading { at: app.store().status().await?.now, boot: app.runtime().system.clock.boot_moment() };
    let mut invocations = Vec::with_capacity(page.doubts.len());
    for doubt in page.doubts {
        invocations.push(invocation(&app, doubt, now).await?);
    }
    let next_cursor = page.next.map(|cursor| Place(cursor).to_string());
    slot.made(limits::PAGE_ROWS_BYTES_MAX, move || answer::encoded(&InDoubtList { invocations, next_cursor })).await
}

/// A place in the list of calls in doubt, as clients keep it: when the call was last changed, in microseconds and as
/// sixteen hexadecimal digits, and its key.
struct Place(DoubtCursor);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.0.updated_at.micros(), self.0.key)
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, key) = text.split_once('.').ok_or(())?;
        let digits = at.len() == 16 && at.bytes().all(|byte| byte.is_ascii_hexdigit());
        // A moment is never negative.
        let at = i64::from_str_radix(at, 16).ok().filter(|_| digits).ok_or(())?;
        let key = key.parse().map_err(|_: ParseIdError| ())?;
        Ok(Self(DoubtCursor { updated_at: Timestamp::from_micros(at), key }))
    }
}

async fn invocation(app: &App, doubt: DoubtRow, now: Reading) -> Result<InDoubtView, Failure> {
    let DoubtRow { call, evidence, told, wait } = doubt;
    let plan = app.plan_if_readable(wait.row.plan_hash).await?;
    let tool = plan.as_deref().and_then(|plan| plan.tool(&call.tool));
    let asked = plan.as_deref().zip(told.asked.as_ref());
    let asked = asked.map(|(_, asked)| tool.and_then(|tool| tool.policy_at(asked.policy)));
    let blocked = wait.row.waiting.as_ref().filter(|waiting| waiting.doubt && waiting.node == call.node);
    let stands = blocked.map_or(DoubtStands::At(asked.flatten()), |waiting| DoubtStands::Blocked(waiting.wait_type));
    let settle = tool.map_or(limits::SETTLE_DEFAULT, |tool| tool.settle());
    let answer = match told.answer {
        Some(DoubtOutcome::Happened) => Some(Outcome::Happened),
        Some(DoubtOutcome::DidNotHappen) => Some(Outcome::DidNotHappen),
        Some(DoubtOutcome::Unresolved) | None => None,
    };
    Ok(InDoubtView {
        accepted_from: disproof::open_until(&call, settle, now),
        agent: wait.row.agent.clone(),
        answer,
        deadline: call.deadline,
        effect: call.class,
        evidence: evidence.iter().map(view::evidence).collect(),
        input: told.input.as_ref().map(|input| steps::view(ValueOrigin::Recorded, input, limits::VALUE_SHOWN_BYTES)),
        invocation: call.key,
        job_id: call.job,
        job_status: wait.row.status,
        next: answer.is_none().then(|| next_of(&wait.row, &call, stands).into()),
        node_id: call.node,
        permit: call.permit,
        policy: asked.map(words),
        sent_permit: PermitNumber { generation: call.fence.generation, number: call.permit }.to_string(),
        since: told.asked.as_ref().map_or(call.updated_at, |asked| asked.since),
        reason: told.asked.map(|asked| asked.reason).or(told.unknown),
        status: call.status,
        tool: call.tool,
        waiting: view::waiting_since(&wait),
    })
}

/// What comes next of a doubt. Of a job that a restore holds a person looks first.
fn next_of(row: &JobRow, call: &LedgerRow, stands: DoubtStands<'_>) -> DoubtNext {
    // It was given up, and its job goes on or has ended.
    if call.status == LedgerStatus::FailedUnresolved {
        return DoubtNext::Person;
    }
    let restored = row.paused.is_some_and(|(reason, _)| reason == PauseReason::Restored);
    match doubt_next(row.status, call.class, stands) {
        DoubtNext::AfterResume if restored => DoubtNext::Person,
        next @ (DoubtNext::AfterResume | DoubtNext::CalledAgain | DoubtNext::OwnPolicies | DoubtNext::Person) => next,
    }
}

/// What is being done about a doubt, in the words of the agent's file.
fn words(policy: Option<&DoubtPolicy>) -> String {
    match policy {
        Some(DoubtPolicy::Human) => "human".to_owned(),
        Some(DoubtPolicy::Reconcile(whom)) => format!("reconcile: {}", whom.tool),
        Some(DoubtPolicy::Wait(span)) => format!("wait: {span}"),
        Some(DoubtPolicy::Fail) | None => "fail".to_owned(),
    }
}
