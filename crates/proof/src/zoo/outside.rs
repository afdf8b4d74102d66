//! Scenarios beside a run: what a store must refuse, and a process that is killed.

use aetheris_core::event::{EncodedEvent, Event, NodeStarted, ToolInvocationStarted};
use aetheris_core::id::{EventId, IdempotencyKey, JobId, PermitId, WorkerId};
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::ledger::PermitRequest;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::Span;
use aetheris_store::{Heartbeat, LeaseRenewal, LedgerWrite, Purpose, Renewal, Scope, UnitOfWork};
use anyhow::{Context, Result};

use super::world::{TTL, World, parsed};

pub(super) const PLAIN: &str = "agent: zoo\nplan:\n  nodes:\n    - { id: one, kind: transform, output: 1 }\n";

/// A job that a first worker has lost and a second one holds.
pub(super) async fn lost(world: &World) -> Result<(JobId, Fence)> {
    let job = world.send(PLAIN).await?;
    let first = world.must_claim().await?.fence;
    world.expire(job, first).await?;
    world.must_claim().await?;
    Ok((job, first))
}

fn unit(world: &World, job: JobId, guard: Guard, purpose: Purpose) -> UnitOfWork {
    UnitOfWork::new(EventId::from_u128(world.rt.system.ids.secret()), job, purpose, guard)
}

/// A unit that asks for the first permission of a step.
pub(super) async fn asking(world: &World, job: JobId, fence: Fence, node: &str, id: PermitId) -> Result<UnitOfWork> {
    let mut unit = unit(world, job, Guard::Run(fence), Purpose::Permit);
    unit.expected_seq = Some(world.row(job).await?.seq);
    unit.ledger.push(LedgerWrite::Permit(PermitRequest {
        class: EffectClass::AtMostOnce,
        input_hash: Json::null().hash(),
        key: IdempotencyKey::derive(job, &StepPath::from(node), 0),
        lifetime: Span::from_secs(1),
        node: StepPath::from(node),
        permit: 1,
        permit_id: id,
        tool: "t".into(),
    }));
    Ok(unit)
}

/// Whether the store refuses to renew a lease.
pub(super) async fn renewal_refused(world: &World, job: JobId, fence: Fence) -> Result<bool> {
    let leases = vec![LeaseRenewal { fence, job }];
    let renewed = world.rt.store.heartbeat(Heartbeat { leases, ttl: TTL, worker: WorkerId::from("w") }).await?;
    Ok(matches!(renewed.first(), Some(Renewal::Refused(_))))
}

pub(super) async fn stale_write(world: &World) -> Result<()> {
    let (job, fence) = lost(world).await?;
    let row = world.row(job).await?;
    let mut unit = unit(world, job, Guard::Run(fence), Purpose::Record);
    unit.expected_seq = Some(row.seq);
    let started = NodeStarted::new("one", 1);
    unit.events.push(EncodedEvent::new(unit.id, &Event::from(started)));
    let accepted = world.rt.store.commit(unit).await.is_ok();
    world.expect(!accepted, "A4 a stale write was accepted");
    Ok(())
}

pub(super) async fn second_permit(world: &World) -> Result<()> {
    let job = world.send(PLAIN).await?;
    let fence = world.must_claim().await?.fence;
    let mut given = 0;
    for number in 1..=2 {
        let mut unit = asking(world, job, fence, "one", PermitId::from_u128(number)).await?;
        if number == 1 {
            unit.events = permitted(&unit, job);
        }
        given += u32::from(world.rt.store.commit(unit).await.is_ok());
    }
    world.expect(given < 2, "C1 the same permission was given twice");
    Ok(())
}

/// The events of a permission.
fn permitted(unit: &UnitOfWork, job: JobId) -> Vec<EncodedEvent> {
    let node = StepPath::from("one");
    let started = NodeStarted::new(node.clone(), 1);
    let permit = ToolInvocationStarted {
        effect: EffectClass::AtMostOnce,
        input: Some(Json::null()),
        key: IdempotencyKey::derive(job, &node, 0),
        lifetime_us: 1_000_000,
        node,
        permit: 1,
        permit_id: PermitId::from_u128(1),
        tool: "t".into(),
        tool_version: None,
    };
    let second = EventId::from_u128(unit.id.as_u128() ^ 1);
    vec![EncodedEvent::new(unit.id, &started.into()), EncodedEvent::new(second, &permit.into())]
}

pub(super) async fn expired_heartbeat(world: &World) -> Result<()> {
    let job = world.send(PLAIN).await?;
    let fence = world.must_claim().await?.fence;
    world.clock.advance(TTL);
    world.expect(renewal_refused(world, job, fence).await?, "A5 an expired lease was renewed");
    Ok(())
}

/// How many messages the killed process is sent; it dies before the write of the last.
const MESSAGES: u32 = 3;

/// A process accepts messages, prints the job of each as it is acknowledged, and is killed before the last
/// one is durable. What it has printed must be there.
pub(super) async fn acknowledged(world: &World) -> Result<()> {
    let folder = world.scratch.path().join("killed");
    std::fs::create_dir_all(&folder)?;
    let program = std::env::current_exe().context("the program's own path")?;
    let output = tokio::process::Command::new(program)
        .arg("accept")
        .arg(&folder)
        .env("AETHERIS_CRASH", format!("store.create.before_commit@{MESSAGES}@kill"))
        .output()
        .await?;
    if output.status.code().is_some() {
        // It was not killed: what it had been told was there was not, or the write came without its point.
        world.found("B3 an acknowledged write cannot be read");
        return Ok(());
    }
    let store = aetheris_store_sqlite::SqliteStore::open(aetheris_store_sqlite::SqliteOptions::new(folder.join("db")))?;
    let mut acked = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let job: JobId = line.parse().map_err(|e| anyhow::anyhow!("{e}"))?;
        let there = aetheris_store::Store::job(&store, Scope::System, job).await?.is_some();
        world.expect(there, "B3 an acknowledged job is gone");
        acked += 1;
    }
    anyhow::ensure!(acked >= MESSAGES - 1, "only {acked} messages were acknowledged");
    Ok(())
}

/// The process that is killed.
///
/// # Errors
/// It cannot be set up.
pub async fn accept(folder: &std::path::Path) -> Result<()> {
    use std::io::Write as _;
    let world = World::new()?;
    let mut rt = world.rt.clone();
    let options = aetheris_store_sqlite::SqliteOptions::new(folder.join("db"));
    rt.store = std::sync::Arc::new(aetheris_store_sqlite::SqliteStore::open(options)?);
    rt.store.put_agent(parsed(PLAIN)?).await?;
    for _ in 0..MESSAGES {
        let job = rt.submit(&"zoo".into(), aetheris_runtime::ops::Submission::default()).await?.job;
        writeln!(std::io::stdout(), "{job}")?;
        std::io::stdout().flush()?;
    }
    // Whoever was acknowledged too early has been told by now; the kill comes with the write.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    Ok(())
}
