//! `send`.

use aetheris_api::{Command, ErrorCode, MessageAnswer, MessageRequest};
use aetheris_core::id::{JobId, SessionId};
use aetheris_core::job::JobStatus;
use aetheris_store::system::System;

use super::{Context, follow, jobs};
use crate::args;
use crate::client::{Answer, Client};
use crate::error::Error;
use crate::exit::Exit;
use crate::payload::{self, Form};

pub(super) async fn run(given: args::Send, context: &Context) -> Result<Exit, Error> {
    let client = context.client()?;
    let message = payload::read("MESSAGE", &given.message, Form::of_flag(given.text), std::io::stdin())?;
    let request = MessageRequest {
        deadline: given.deadline,
        labels: given.labels.into_iter().collect(),
        priority: given.priority.unwrap_or_default(),
        run_at: given.run_at,
        session_id: given.session.map(SessionId::new),
        ..MessageRequest::new(&message)
    };
    let for_later = given.run_at.is_some();
    // Where the answer is lost, nobody knows whether there is a job: only a key makes it safe to send again.
    let key = given.key.unwrap_or_else(own_key);
    let path = ["api", "agents", &given.agent, "message"];
    let answer = client.post::<MessageAnswer>(&path, &request, &[("idempotency-key", &key)]).await;
    let answer = answer.map_err(|error| with_key(error, &key))?;
    let job = answer.body.job_id.to_string();
    if given.wait {
        if answer.is_unchanged() {
            context.out.note(&format!("{job} was sent before with this key"));
        } else {
            context.out.note(&format!("sent as {job}"));
        }
        if for_later {
            tell_too_late(&client, answer.body.job_id, context).await;
        }
        return follow::until_end(&client, &job, given.timeout, follow::Show::Result, context).await;
    }
    if context.out.json {
        context.out.value(&answer.json()?)?;
        if for_later {
            tell_too_late(&client, answer.body.job_id, context).await;
        }
        return Ok(Exit::Done);
    }
    context.out.line(&job)?;
    if for_later {
        tell_too_late(&client, answer.body.job_id, context).await;
    }
    context.out.note(&advice(&answer, &context.program()));
    Ok(Exit::Done)
}

/// What to do next. A key stands for its job: one that failed is not run again, and a new key would repeat its calls.
fn advice(answer: &Answer<MessageAnswer>, program: &str) -> String {
    let job = answer.body.job_id;
    let follow = format!("follow it with: {}", Command::Watch(job).line(program));
    if !answer.is_unchanged() {
        return follow;
    }
    let known = "sent before with this key";
    let ended = |how: &str| {
        let trace = Command::Trace(job).line(program);
        format!(
            "{known}, and its job {how}. Another --key makes a new job, which calls every tool again: \
             look first at what this one has done: {trace}"
        )
    };
    match answer.body.status {
        JobStatus::Failed => ended("has failed"),
        JobStatus::Cancelled => ended("was cancelled"),
        JobStatus::Completed => format!("{known}, and its job has completed; {follow}"),
        JobStatus::Pending | JobStatus::Running | JobStatus::Waiting | JobStatus::Parked | JobStatus::Paused => {
            format!("{known}; {follow}")
        }
    }
}

/// Says of a message for later that its job's deadline comes first: it can only fail.
async fn tell_too_late(client: &Client, job: JobId, context: &Context) {
    let reasons = jobs::reasons(client, &job.to_string()).await;
    if let Some(reason) = reasons.iter().find(|reason| reason.fails) {
        let cancel = Command::Cancel(job).line(&context.program());
        context.out.warn(&format!(
            "warning: {}\nend it with: {cancel}\nthen send it again for another time, with another --key if you gave one",
            reason.detail
        ));
    }
}

/// A key that no other message has.
fn own_key() -> String {
    format!("send-{:032x}", System::machine().ids.secret())
}

/// How a message whose answer is lost is sent again.
fn with_key(error: Error, key: &str) -> Error {
    let key = aetheris_api::shell::word(key);
    let advice =
        format!("run the same command again with --key {key}: a message that was accepted makes no second job");
    match error {
        Error::Unanswered { call, reason, server, .. } => Error::Unanswered { advice, call, reason, server },
        // The server, or what stands before it, does not know what became of it either.
        Error::Problem(mut problem) if problem.status >= 500 && problem.code != ErrorCode::Overloaded => {
            problem.detail = format!("{}\nit may have been accepted all the same. {advice}", problem.detail);
            Error::Problem(problem)
        }
        error => error,
    }
}
