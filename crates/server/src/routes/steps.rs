//! What steps were given and gave, and why a job is where it is.

use aetheris_api::{ErrorCode, StepPage, WhyView};
use aetheris_core::id::NodeId;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_runtime::load::Loaded;
use axum::extract::State;
use axum::http::StatusCode;
use tokio::runtime::Handle;

use super::answers::{Common, NoJob};
use crate::answer::{self, Answer};
use crate::error::Failure;
use crate::params::{JobPath, Params};
use crate::reading::{AnswerSlot, aside};
use crate::state::Shared;
use crate::{outline, steps, why};

/// Values of steps
///
/// What the steps of a job were given and what they gave, in the order of the plan; steps that have not
/// begun are left out. Inputs of plain steps are not recorded: with `render` they are rendered again from
/// recorded values and say so.
#[utoipa::path(get, path = "/api/jobs/{id}/steps", tag = "evidence", operation_id = "list_step_values",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("node" = Option<String>, Query, description = "Of this node only, or of this item of a map: `n`, `n[3]`"),
        ("render" = Option<bool>, Query, description = "Render inputs again that are not recorded"),
        ("bytes" = Option<u64>, Query, minimum = 1, description = "Bytes of one value that are given; 2048 by default, never more than 1 MiB"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most; 100 by default, never more than 200"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before")),
    responses((status = 200, body = StepPage, description = "A page of steps with their values"), Common, NoJob))]
pub(super) async fn list(State(app): State<Shared>, JobPath(job): JobPath, mut params: Params) -> Answer {
    let asked = steps::Asked {
        after: params.one("cursor")?.map(NodeId::new),
        bytes: params.bounded("bytes", limits::VALUE_SHOWN_BYTES, limits::PAYLOAD_BYTES_MAX)?,
        limit: params.limit(100, limits::PAGE_STEPS_MAX)?,
        node: params.one("node")?.map(|node| StepPath::from(node.as_str())),
        render: params.flag("render")?,
    };
    params.finish()?;
    // The rarer place first: whoever waits for it keeps nobody from another answer.
    let place = app.step_pages.take(1, limits::ANSWER_PATIENCE).await.ok_or_else(busy)?;
    let slot = AnswerSlot::begin(&app).await?;
    let (runtime, handle) = (app.runtime().clone(), Handle::current());
    // Read and rendered on a thread of its own: a job as a whole may be many megabytes.
    let bytes = aside(move || {
        let loaded = handle.block_on(Loaded::read(runtime.store.as_ref(), &runtime.scope, job))?;
        let page = match handle.block_on(runtime.plans.of_job(runtime.store.as_ref(), &loaded.state))? {
            Some(plan) => steps::page(&loaded, &plan, &asked),
            None => StepPage { next_cursor: None, steps: Vec::new() },
        };
        drop(place);
        answer::encoded(&page)
    });
    Ok(answer::typed(StatusCode::OK, answer::JSON, slot.hold(bytes.await??).await?))
}

fn busy() -> Failure {
    Failure::new(ErrorCode::Overloaded, "too many pages of steps in progress; try again later")
}

/// Why a job is where it is
///
/// What keeps it from going on, or how it ended: each reason with a stable code, since when, until when,
/// and a command that helps. Never empty.
#[utoipa::path(get, path = "/api/jobs/{id}/why", tag = "jobs", operation_id = "why_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<WhyView>, description = "The reasons"), Common, NoJob))]
pub(super) async fn why(State(app): State<Shared>, JobPath(job): JobPath, params: Params) -> Answer {
    params.finish()?;
    let (outlined, slot) = outline::read(&app, job).await?;
    let around = why::Around::read(app.store(), &outlined.row).await?;
    let plan = app.plan_if_readable(outlined.state().followed_plan()).await?;
    slot.ok(&why::reasons(&outlined, plan.as_deref(), &around)).await
}
