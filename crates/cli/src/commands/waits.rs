//! `waits` and `in-doubt`.

use std::collections::BTreeMap;

use aetheris_api::command::{HOW_YOU_KNOW, RESULT};
use aetheris_api::{
    AfterNo, Command, ErrorCode, InDoubtList, InDoubtView, Outcome, Problem, Raw, ResolveAnswer, ResolveRequest,
    TraceDoubt, TraceView, WaitList,
};
use aetheris_core::event::Resolver;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::limits;
use serde_json::{Value, json};

use super::{Context, jobs};
use crate::args::{self, InDoubtAction};
use crate::client::Client;
use crate::error::Error;
use crate::exit::Exit;
use crate::payload;
use crate::render;

pub(super) async fn list(given: &args::Waits, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let filter = given.wait_type.as_deref().map(|wait_type| ("wait_type", wait_type));
    let mut pages = client.pages(&["api", "waits"], filter);
    let (mut waits, mut raw) = (Vec::new(), Vec::new());
    while let Some(page) = pages.next::<WaitList>().await? {
        if context.out.json {
            raw.extend(jobs::items(page.json()?, "waits"));
        }
        waits.extend(page.body.waits);
    }
    if context.out.json {
        context.out.value(&json!({ "waits": raw }))?;
    } else if waits.is_empty() {
        context.out.note("nothing waits for anyone");
    } else {
        let text = render::waits::table(&waits, &context.program(), context.out.style, context.now());
        context.out.text(&text)?;
    }
    Ok(Exit::Done)
}

pub(super) async fn in_doubt(given: args::InDoubt, context: &Context) -> Result<Exit, Error> {
    let args::InDoubt { action, list } = given;
    match action {
        None => list_in_doubt(list, context).await,
        Some(InDoubtAction::List(list)) => list_in_doubt(list, context).await,
        Some(InDoubtAction::Resolve(given)) => resolve(&given, context).await,
    }
}

async fn list_in_doubt(given: args::ListInDoubt, context: &Context) -> Result<Exit, Error> {
    let args::ListInDoubt { unresolved, job, of } = given;
    let (client, job) = (context.client()?, job.or(of));
    let job = job.as_deref();
    if let Some(wrong) = job.and_then(|job| job.parse::<JobId>().err()) {
        // Told as everywhere, and not as a question that the server does not understand.
        return Err(Error::Problem(Box::new(Problem::new(ErrorCode::JobNotFound, wrong.to_string()))));
    }
    let filters = [("job", job), ("unresolved", unresolved.then_some("true"))];
    let filters: Vec<(&str, &str)> = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let Doubts { calls, more, raw } = doubts(&client, &filters, context.out.json).await?;
    let none = if calls.is_empty() { Some(no_doubt(&client, job, unresolved, context).await?) } else { None };
    if context.out.json {
        context.out.value(&json!({ "invocations": raw, "next_cursor": more }))?;
        return Ok(Exit::Done);
    }
    if let Some(none) = none {
        context.out.note(&none);
        return Ok(Exit::Done);
    }
    context.out.text(&render::waits::in_doubt(&calls, &context.program(), context.out.style, context.now()))?;
    if more.is_some() {
        context.out.note(&format!("there are more: these are the oldest {}", calls.len()));
    }
    Ok(Exit::Done)
}

/// That nothing is listed, and where else to look. What is no job is told as everywhere.
async fn no_doubt(client: &Client, job: Option<&str>, unresolved: bool, context: &Context) -> Result<String, Error> {
    let program = context.program();
    let Some(job) = job else {
        return Ok(if unresolved {
            "no call was left unresolved".to_owned()
        } else {
            format!("no call is in doubt. Those that were given up: {program} in-doubt --unresolved")
        });
    };
    let view = jobs::get(client, job).await?.body;
    let job = view.id;
    Ok(match (unresolved, view.status.is_terminal()) {
        (true, true) => format!("no call of {job} was left unresolved"),
        (true, false) => format!("{job} has not ended. Those that are in doubt: {program} in-doubt --job {job}"),
        (false, true) => {
            let left = Command::Unresolved(job).line(&program);
            format!("no call of {job} is in doubt. Those that its end left: {left}")
        }
        (false, false) => format!("no call of {job} is in doubt"),
    })
}

/// Calls in doubt.
#[derive(Default)]
struct Doubts {
    calls: Vec<InDoubtView>,
    /// Where the list goes on, if it is longer than is read.
    more: Option<String>,
    /// The calls as the server wrote them, where they are asked for.
    raw: Vec<Value>,
}

/// The calls in doubt that fit all filters, page by page.
async fn doubts(client: &Client, filters: &[(&str, &str)], raw: bool) -> Result<Doubts, Error> {
    let mut doubts = Doubts::default();
    let mut pages = client.pages(&["api", "in-doubt"], filters.iter().copied().chain([("limit", jobs::PAGE)]));
    // A page ends early where its calls are long: calls are counted, not pages.
    while doubts.calls.len() < limits::DOUBTS_LISTED_MAX
        && let Some(page) = pages.next::<InDoubtList>().await?
    {
        if raw {
            doubts.raw.extend(jobs::items(page.json()?, "invocations"));
        }
        doubts.calls.extend(page.body.invocations);
    }
    doubts.more = pages.cursor().map(str::to_owned);
    Ok(doubts)
}

/// The invocation that is answered, how people call it, and its permit that is in doubt now: an answer that is held up
/// on its way is not to be taken for a later one.
async fn call_in_doubt(given: &args::Resolve, context: &Context) -> Result<(IdempotencyKey, String, u32), Error> {
    if let (Some(invocation), Some(permit)) = (given.invocation, given.permit) {
        return Ok((invocation, format!("the call {invocation}"), permit));
    }
    let client = context.client()?;
    // Whatever form the id was given in; and what is no job is told as everywhere.
    let job = jobs::get(&client, &given.job).await?.body.id;
    let listed = doubts(&client, &[("job", given.job.as_str())], false).await?;
    let open = listed.calls.iter().filter(|call| call.job_id == job);
    let is_meant = |call: &Call| given.invocation.is_none_or(|named| named == call.invocation);
    let mut calls: Vec<Call> = open.map(Call::of).filter(is_meant).collect();
    let past = calls.is_empty();
    if past {
        calls = calls_of_the_past(given, context).await?;
        calls.retain(is_meant);
    }
    match calls.as_slice() {
        [Call { invocation, node, permit }] => {
            Ok((*invocation, format!("the call of `{node}`"), given.permit.unwrap_or(*permit)))
        }
        [] => {
            let call = given.invocation.map_or_else(|| "no call".to_owned(), |call| format!("no call {call}"));
            let all = format!("{} in-doubt", context.program());
            let message = format!(
                "{call} of {} is in doubt: {all} lists those that are, with --unresolved those that a job's end has left",
                given.job
            );
            Err(Error::Other { message, exit: Exit::NotFound })
        }
        several => {
            let names: Vec<String> =
                several.iter().map(|call| format!("  {} {}", call.invocation, call.node)).collect();
            let what = if past { "that were answered or left" } else { "in doubt" };
            Err(Error::Usage(format!("{} has several calls {what}: name one of\n{}", given.job, names.join("\n"))))
        }
    }
}

/// A call that can be answered.
struct Call {
    invocation: IdempotencyKey,
    node: String,
    permit: u32,
}

impl Call {
    fn of(view: &InDoubtView) -> Self {
        Self { invocation: view.invocation, node: view.node_id.to_string(), permit: view.permit }
    }
}

/// The calls that the job's end left unresolved, or whose doubt a person has answered before: the same answer is
/// accepted again.
async fn calls_of_the_past(given: &args::Resolve, context: &Context) -> Result<Vec<Call>, Error> {
    let client = context.client()?;
    let query = [("job", given.job.as_str()), ("unresolved", "true")];
    let left = client.get::<InDoubtList>(&["api", "in-doubt"], &query).await?.body.invocations;
    let trace = client.get::<TraceView>(&["api", "jobs", &given.job, "trace"], &[]).await?.body;
    let answered = trace.steps.iter().filter_map(|step| {
        let invocation = step.tool.as_ref()?.invocation?;
        let by_person = |doubt: &&TraceDoubt| doubt.resolved_by == Some(Resolver::Operator);
        let permit = step.doubts.iter().rev().find(by_person)?.permit;
        Some(Call { invocation, node: step.node_id.to_string(), permit })
    });
    let mut newest: BTreeMap<IdempotencyKey, Call> = BTreeMap::new();
    for call in left.iter().map(Call::of).chain(answered) {
        match newest.get(&call.invocation) {
            Some(known) if known.permit >= call.permit => {}
            Some(_) | None => drop(newest.insert(call.invocation, call)),
        }
    }
    Ok(newest.into_values().collect())
}

/// A result that nobody has given would be `null` for good: an answer is recorded once.
const NO_RESULT: &str = "--happened needs --result: what the call answered, which becomes the step's output for good. Where it \
                         answered nothing, say --result null";

async fn resolve(given: &args::Resolve, context: &Context) -> Result<Exit, Error> {
    let gap =
        |text: &str, place: &str| text.contains(place).then(|| format!("put what you found in the place of {place}"));
    let gaps = [gap(given.result.as_deref().unwrap_or_default(), RESULT), gap(&given.note, HOW_YOU_KNOW)];
    if let Some(gap) = gaps.into_iter().flatten().next() {
        return Err(Error::Usage(gap));
    }
    if given.happened && given.result.is_none() {
        return Err(Error::Usage(NO_RESULT.to_owned()));
    }
    let result = given.result.as_deref().map(|text| payload::read_json(text, std::io::stdin())).transpose()?;
    let (invocation, call, permit) = call_in_doubt(given, context).await?;
    let request = ResolveRequest {
        note: given.note.clone(),
        outcome: if given.happened { Outcome::Happened } else { Outcome::DidNotHappen },
        permit,
        refused: given.refused,
        result: result.as_ref().map(Raw::new),
        then: given.then.map(|then| match then {
            args::Then::Retry => AfterNo::Retry,
            args::Then::Fail => AfterNo::Fail,
        }),
    };
    let invocation = invocation.to_string();
    let path = ["api", "jobs", &given.job, "in-doubt", &invocation];
    let answer = context.client()?.post::<ResolveAnswer>(&path, &request, &[]).await?;
    if context.out.json {
        context.out.value(&answer.json()?)?;
        return Ok(Exit::Done);
    }
    let status = context.out.style.job(answer.body.status);
    let before = answer.is_unchanged();
    let (recorded, note) = if before { ("recorded before", "; its first note stays") } else { ("recorded", "") };
    let what = match answer.body.outcome {
        Outcome::Happened => "happened",
        Outcome::DidNotHappen => "did not happen",
    };
    context.out.line(&format!("{recorded}: {call} {what}{note}. {} is {status}", given.job))?;
    Ok(Exit::Done)
}
