//! What is done to a unit so that it is not accepted.

use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId, PermitId, SignalId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::ledger::{LedgerRow, LedgerTrigger, PermitRequest, Settle};
use aetheris_core::limits;
use aetheris_core::path::StepPath;

use super::world::{World, instance};
use crate::draft::LIFETIME;
use crate::fencing::evidence;
use aetheris_store::unit::{ExpectedSignals, InboxWrite, LedgerWrite, NewEffect, UnitOfWork};
use aetheris_store::{Evidence, Scope};

/// Changes one thing of a unit, most often to something that is refused: so that it is answered in a given way,
/// where there is one.
pub(super) async fn spoil(world: &mut World<'_>, answer: Option<&'static str>, mut unit: UnitOfWork) -> UnitOfWork {
    let missing = IdempotencyKey::from_u128(404);
    let unknown = PermitId::from_u128(404);
    let history = world.a.history(Scope::System, unit.job, false).await.unwrap();
    let (fence, ledger, kept) =
        history.map(|history| (history.row.fence, history.ledger, history.kept)).unwrap_or_default();
    let way = match answer {
        Some("stale") => 1,
        Some("conflict") => [0, 0, 7][world.random.below(3)],
        Some("not_found") => [4, 5][world.random.below(2)],
        Some("limit") => 10,
        Some("invalid") => 9,
        Some(_) | None => world.random.below(14),
    };
    match way {
        0 => unit.expected_seq = Some(unit.expected_seq.unwrap_or(0) + 1 + world.random.below(2) as u64),
        1 => unit.guard = other_fence(world, unit.guard, fence),
        2 => unit.guard = Guard::Expired(fence),
        3 => unit.guard = Guard::Dead(fence, instance(world.random.below(3))),
        // A message that made this job would make every later one of these a write of someone else's.
        4 if unit.create.is_none() => unit.job = JobId::from_u128(404),
        5 => {
            let settle = Settle { key: missing, permit_id: unknown, trigger: LedgerTrigger::Commit };
            unit.ledger.push(LedgerWrite::Settle(settle));
        }
        6 => unit.ledger.extend(ledger_write(world, &ledger)),
        7 => {
            // Alone, so that nothing before the ledger refuses it.
            unit = UnitOfWork::new(unit.id, unit.job, unit.purpose, Guard::Run(fence));
            unit.ledger.extend(ledger_write(world, &ledger));
        }
        8 => {
            let row = world.random.pick(&ledger);
            let (key, permit) = row.map_or((missing, 1), |row| (row.key, row.permit));
            let permit_id = row.map_or(unknown, |row| row.permit_id);
            let permit = permit + u32::from(world.random.one_in(2));
            unit.effects.push(NewEffect { key, permit, permit_id, result: Json::null() });
        }
        9 => unit.inbox.push(InboxWrite::Consume(SignalId::from_u128(404))),
        10 if !unit.events.is_empty() && unit.create.is_none() => {
            // More events than one unit may have.
            let last = unit.events[unit.events.len() - 1].clone();
            let more = limits::UNIT_EVENTS_MAX + 1 - unit.events.len();
            unit.events.extend(std::iter::repeat_n(last, more));
        }
        10 => {
            let outcome = Json::new(serde_json::json!("x".repeat(limits::PAYLOAD_BYTES_MAX + 8_192)));
            unit.evidence.push(Evidence { outcome, ..evidence(PermitId::from_u128(world.ids.next())) });
        }
        11 => {
            let key = world.random.pick(&kept).map(|kept| kept.key.clone());
            let count = world.random.below(3);
            unit.expected_signals = key.map(|key| ExpectedSignals { count, key }).into_iter().collect();
        }
        12 => unit.guard = Guard::Outside,
        _ => unit.id = world.ids.event(),
    }
    unit
}

fn other_fence(world: &mut World<'_>, guard: Guard, fence: Fence) -> Guard {
    let given = match world.random.below(3) {
        0 => Fence { epoch: fence.epoch + 1, ..fence },
        1 => Fence { epoch: fence.epoch.saturating_sub(1), ..fence },
        _ => Fence { generation: fence.generation + 1, ..fence },
    };
    match guard {
        Guard::Expired(_) => Guard::Expired(given),
        Guard::Dead(_, instance) => Guard::Dead(given, instance),
        Guard::Due(_) | Guard::Outside | Guard::Run(_) => Guard::Run(given),
    }
}

/// Some change of a row that is there, in whatever status it is.
fn ledger_write(world: &mut World<'_>, ledger: &[LedgerRow]) -> Option<LedgerWrite> {
    let row = world.random.pick(ledger)?.clone();
    let permit_id = PermitId::from_u128(world.ids.next());
    let request = PermitRequest {
        class: row.class,
        input_hash: row.input_hash,
        key: row.key,
        lifetime: LIFETIME,
        node: StepPath::from("n0"),
        permit: row.permit + 1,
        permit_id,
        tool: ToolName::from("tool"),
    };
    let trigger = *world.random.pick(&LedgerTrigger::ALL)?;
    Some(match world.random.below(6) {
        0 | 5 => LedgerWrite::Permit(PermitRequest { input_hash: Hash::of(b"other"), ..request }),
        1 => LedgerWrite::Permit(PermitRequest { permit: row.permit, ..request }),
        2 => LedgerWrite::Permit(request),
        3 => LedgerWrite::Settle(Settle { key: row.key, permit_id, trigger }),
        _ => LedgerWrite::Settle(Settle { key: row.key, permit_id: row.permit_id, trigger }),
    })
}
