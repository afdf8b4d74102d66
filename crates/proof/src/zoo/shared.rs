//! Scenarios of what many hands do to one store: leases, fences, turns, clocks.

use aetheris_core::event::{Answer, JobCompleted};
use aetheris_core::id::{EventId, PermitId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::draft::{self, Draft};
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ops::{Signal, SignalAnswer, Submission};
use aetheris_store::{Purpose, Scope};
use anyhow::Result;

use super::outside::{PLAIN, asking, lost, renewal_refused};
use super::runs::{WAIT, once};
use super::world::{TTL, World};

/// A worker whose lease has expired asks for permission.
pub(super) async fn spent_permit(world: &World) -> Result<()> {
    let job = world.send(&once("act")).await?;
    let fence = world.must_claim().await?.fence;
    world.clock.advance(TTL);
    let unit = asking(world, job, fence, "call", PermitId::from_u128(1)).await?;
    let given = world.rt.store.commit(unit).await.is_ok();
    world.expect(!given, "A5 a permission was given under an expired lease");
    Ok(())
}

/// The same worker has lost its job and has it again; it renews the first of its two leases.
pub(super) async fn older_renewal(world: &World) -> Result<()> {
    let (job, first) = lost(world).await?;
    world.expect(renewal_refused(world, job, first).await?, "A5 a lease of an older claim was renewed");
    Ok(())
}

/// An answer was decided on, and the job's end was asked for before it is written.
pub(super) async fn overtaken_answer(world: &World) -> Result<()> {
    let job = world.send(PLAIN).await?;
    let fence = world.must_claim().await?.fence;
    let store = world.rt.store.as_ref();
    let (loaded, ids) = (Loaded::read(store, &Scope::System, job).await?, world.rt.system.ids.as_ref());
    let mut draft = Draft::new(loaded.state, Guard::Run(fence), loaded.checkpoint);
    draft.push(ids, JobCompleted { answer: Answer::Value(Json::null()) })?;
    draft.release();
    world.rt.cancel(job).await?;
    world.told(|history| history.cancels.extend([job]));
    draft.rebase(Loaded::read(store, &Scope::System, job).await?.state);
    if draft.is_empty() {
        world.expire(job, fence).await?;
    } else {
        let id = EventId::from_u128(ids.secret());
        draft::write(store, || draft.unit(Purpose::Finish, id)).await?;
    }
    world.settle().await?;
    world.expect_end(job, "cancelled", "").await
}

/// A message for later.
pub(super) async fn delayed(world: &World) -> Result<()> {
    world.put(PLAIN).await?;
    let run_at = Some(world.now().after(Span::from_secs(60)));
    world.rt.submit(&"zoo".into(), Submission { run_at, ..Submission::default() }).await?;
    world.expect(world.claim().await?.is_none(), "E6 a delayed job was given before its time");
    world.clock.advance(Span::from_secs(61));
    world.expect(world.claim().await?.is_some(), "A8 a job that is due was not given");
    Ok(())
}

/// A job that waits for its time stands before one that can run.
pub(super) async fn behind_delayed(world: &World) -> Result<()> {
    world.put(PLAIN).await?;
    let run_at = Some(world.now().after(Span::from_secs(60)));
    world.rt.submit(&"zoo".into(), Submission { run_at, ..Submission::default() }).await?;
    let ready = world.message(&"zoo".into(), None).await?;
    let claimed = world.claim().await?;
    world.expect(claimed.is_some_and(|claimed| claimed.job == ready), "A8 a job that can run was not given");
    Ok(())
}

/// Two messages of one conversation.
pub(super) async fn conversation(world: &World) -> Result<()> {
    world.put(PLAIN).await?;
    let message = Submission { session: Some("s".into()), ..Submission::default() };
    let first = world.rt.submit(&"zoo".into(), message.clone()).await?.job;
    world.rt.submit(&"zoo".into(), message).await?;
    let claimed = world.must_claim().await?;
    world.expect(claimed.job == first, "D9 the later message of a session came first");
    world.expect(world.claim().await?.is_none(), "D9 two jobs of one session ran at once");
    Ok(())
}

/// The machine's clock is set back by an hour.
pub(super) async fn clock_set_back(world: &World) -> Result<()> {
    let job = world.send(WAIT).await?;
    world.settle().await?;
    let before = world.now();
    world.clock.set_wall(Timestamp::from_micros(before.micros() - 3_600_000_000));
    world.signal(job, "k").await;
    world.settle().await?;
    let events = world.rt.store.events(Scope::System, job, 0, 1_000).await?;
    world.expect(events.is_sorted_by_key(|event| event.at), "A6 the store's clock went back");
    world.expect_end(job, "completed", "").await
}

/// The same signal again, after the job that it was for has ended.
pub(super) async fn late_duplicate(world: &World) -> Result<()> {
    let job = world.send(WAIT).await?;
    world.settle().await?;
    world.signal(job, "k").await;
    world.settle().await?;
    world.expect_end(job, "completed", "").await?;
    world.signal(job, "k").await;
    Ok(())
}

/// Two signals of one wait with different payloads, before the wait is reached: the first one counts.
pub(super) async fn two_payloads(world: &World) -> Result<()> {
    let job = world.send(WAIT).await?;
    world.signal(job, "k").await;
    let payload = Json::new(serde_json::json!({"second": true}));
    let second = Signal { correlation_key: "k".to_owned(), payload, wait_type: None };
    let answer = world.rt.signal(job, second).await?;
    let told = answer == SignalAnswer::Kept { payload_matches: false };
    world.expect(told, "E4 a second payload was accepted beside the first");
    world.settle().await?;
    world.expect_end(job, "completed", "").await
}
