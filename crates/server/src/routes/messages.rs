//! Messages.

use aetheris_api::{MessageAnswer, MessageRequest};
use aetheris_runtime::ops::Submission;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use super::answers::{Common, Conflict, NoAgent, TooLarge};
use crate::answer::{self, Answer};
use crate::body::{self, Whole};
use crate::error::Failure;
use crate::follow;
use crate::params::{AgentPath, Begins, Gone, Params};
use crate::state::Shared;

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Send a message to an agent
///
/// Makes a job. When this answers the job is durable. With an `Idempotency-Key` the same request may
/// be sent again: it answers with the job that the first one made.
#[utoipa::path(post, path = "/api/agents/{agent}/message", tag = "jobs", operation_id = "send_message",
    params(
        ("agent" = String, Path, description = "The agent's name"),
        ("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 256,
            description = "The client's name for the message, unique per agent"),
        ("wait" = Option<String>, Query, pattern = "^[0-9]{1,9}(us|ms|s|m|h|d)$",
            description = "Wait for the job's end, at most so long and at most 60s: 200 with its status \
                           when it has ended, 202 when the time is over")),
    request_body = MessageRequest,
    responses(
        (status = 200, body = MessageAnswer,
            description = "The same key came before: its job. With `wait`: the job has ended"),
        (status = 202, body = MessageAnswer, description = "Accepted"),
        Common, NoAgent, Conflict, TooLarge))]
pub(super) async fn send(
    State(app): State<Shared>,
    _begins: Begins,
    AgentPath(agent): AgentPath,
    mut params: Params,
    headers: HeaderMap,
    gone: Gone,
    body: Whole,
) -> Answer {
    let wait = params.wait()?;
    params.finish()?;
    let (request, room) = body.taken::<MessageRequest>()?;
    let (message, held) = body::value(&app, "message", &request.message).await?;
    let submission = Submission {
        client_key: client_key(&headers)?,
        deadline: request.deadline,
        labels: request.labels,
        message: Some(message),
        priority: request.priority,
        run_at: request.run_at,
        session: request.session_id,
    };
    // Before the job is made: a refusal says that nothing was done.
    let place = wait.map(|wait| Ok::<_, Failure>((wait, app.follower()?))).transpose()?;
    let submitted = app.runtime().submit(&agent, submission).await?;
    // It is written: whoever waits for the job's end holds nothing that another message needs.
    drop((room, held));
    let mut status = submitted.status;
    if let Some((wait, place)) = place
        && !status.is_terminal()
        // A store that cannot be asked takes nothing back: the job is made, and its status not known any better.
        && let Ok(Some(row)) = follow::until_ended(&app, place, submitted.job, wait, &gone).await
    {
        status = row.status;
    }
    let ended = wait.is_some() && status.is_terminal();
    let code = if submitted.created && !ended { StatusCode::ACCEPTED } else { StatusCode::OK };
    answer::json(code, &MessageAnswer { job_id: submitted.job, status })
}

fn client_key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text =
        value.to_str().map_err(|_| Failure::invalid("Idempotency-Key: visible ASCII characters are accepted"))?;
    if values.next().is_some() {
        return Err(Failure::invalid("Idempotency-Key: it is given more than once"));
    }
    Ok(Some(text.to_owned()))
}
