//! E1 to E5 and E7: permissions and settlements, on the ledger alone.

use aetheris_core::disproof::{Disproof, Grounds};
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, PermitId, ToolName};
use aetheris_core::ledger::{LedgerRefusal, LedgerRow, LedgerStatus, LedgerTrigger, PermitRequest, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::{BootMoment, Reading, Span};

use super::draft::{LIFETIME, settling};
use super::fixture::refusal;
use super::{Fixture, Run, snapshot};
use aetheris_store::system::Clock as _;
use aetheris_store::unit::LedgerWrite;
use aetheris_store::{CommitError, Committed, Refusal, Scope};

const KEY: IdempotencyKey = IdempotencyKey::from_u128(77);

/// A request for a permission of the one key of these cases.
fn request(f: &Fixture, permit: u32, class: EffectClass) -> PermitRequest {
    PermitRequest {
        class,
        input_hash: Hash::of(b"input"),
        key: KEY,
        lifetime: LIFETIME,
        node: StepPath::from("c"),
        permit,
        permit_id: PermitId::from_u128(f.ids.next()),
        tool: ToolName::from("tool"),
    }
}

async fn ask(f: &Fixture, run: Run, request: &PermitRequest) -> Result<Committed, CommitError> {
    f.ledger(run, LedgerWrite::Permit(request.clone())).await
}

async fn settle(f: &Fixture, run: Run, permit_id: PermitId, trigger: LedgerTrigger) -> Result<Committed, CommitError> {
    f.ledger(run, settling(KEY, permit_id, trigger)).await
}

async fn row(f: &Fixture, run: Run) -> Option<LedgerRow> {
    let rows = f.store().history(Scope::System, run.job, false).await.unwrap().unwrap().ledger;
    rows.into_iter().find(|row| row.key == KEY)
}

pub async fn e1_the_first_permission_is_given_and_read_back(f: Fixture) {
    let run = f.running().await;
    f.advance(Span::from_secs(1));
    let asked = request(&f, 1, EffectClass::AtMostOnce);
    let at = ask(&f, run, &asked).await.unwrap().at;
    let boot = f.clock.boot_moment();
    let expected = LedgerRow {
        boot: Some(BootMoment { at: boot.at.plus(LIFETIME), ..boot }),
        class: asked.class,
        deadline: at.after(LIFETIME),
        disproved: false,
        fence: run.fence,
        input_hash: asked.input_hash,
        job: run.job,
        key: KEY,
        lifetime: Some(LIFETIME),
        node: asked.node,
        permit: 1,
        permit_id: asked.permit_id,
        seen: None,
        status: LedgerStatus::Started,
        tool: asked.tool,
        updated_at: at,
    };
    assert_eq!(row(&f, run).await, Some(expected));
}

pub async fn e1_of_sixteen_that_ask_for_a_key_one_gets_it(f: Fixture) {
    let run = f.running().await;
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let asked = request(&f, 1, EffectClass::AtMostOnce);
        let mut unit = f.plain(run, aetheris_store::Purpose::Permit);
        unit.ledger.push(LedgerWrite::Permit(asked.clone()));
        let store = f.shared();
        tasks.push((asked.permit_id, tokio::spawn(async move { store.commit(unit).await })));
    }
    let mut given = Vec::new();
    for (permit_id, task) in tasks {
        match task.await.unwrap() {
            Ok(_) => given.push(permit_id),
            Err(CommitError::Refused(Refusal::Ledger(LedgerRefusal::OtherPermit { .. }))) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(given, [row(&f, run).await.unwrap().permit_id]);
}

pub async fn e1_the_first_permission_has_the_number_one(f: Fixture) {
    let run = f.running().await;
    for permit in [0, 2] {
        let answer = ask(&f, run, &request(&f, permit, EffectClass::Idempotent)).await;
        assert_eq!(refusal(answer), Refusal::Ledger(LedgerRefusal::Missing(KEY)));
    }
    assert_eq!(row(&f, run).await, None);
}

/// Where the current permit of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Status(LedgerStatus),
    Disproved,
}

/// Brings the key to a place of the table, under permit 1.
async fn bring(f: &Fixture, run: Run, class: EffectClass, to: At) -> LedgerRow {
    let asked = request(f, 1, class);
    ask(f, run, &asked).await.unwrap();
    f.advance(LIFETIME);
    for trigger in path(to) {
        settle(f, run, asked.permit_id, *trigger).await.unwrap();
    }
    let row = row(f, run).await.unwrap();
    let status = if let At::Status(status) = to { status } else { LedgerStatus::InDoubt };
    assert_eq!((row.status, row.disproved), (status, to == At::Disproved));
    row
}

async fn next(f: Fixture, class: EffectClass, at: At) {
    let run = f.running().await;
    let before = bring(&f, run, class, at).await;
    for permit in [0, 1, 3] {
        let refused = refusal(ask(&f, run, &request(&f, permit, class)).await);
        assert!(matches!(refused, Refusal::Ledger(LedgerRefusal::OtherPermit { .. })), "permit {permit}: {refused:?}");
    }
    assert_eq!(row(&f, run).await.as_ref(), Some(&before));
    let asked = request(&f, 2, class);
    let answer = ask(&f, run, &asked).await;
    if before.status.allows_next_permit(class, before.disproved) {
        let now = answer.unwrap().at;
        let row = row(&f, run).await.unwrap();
        assert_eq!((row.permit, row.permit_id, row.status), (2, asked.permit_id, LedgerStatus::Started));
        assert_eq!((row.deadline, row.disproved, row.updated_at), (now.after(LIFETIME), false, now));
        return;
    }
    let expected = LedgerRefusal::OtherPermit { key: KEY, asked: 2, current: 1, status: before.status };
    assert_eq!(refusal(answer), Refusal::Ledger(expected));
    assert_eq!(row(&f, run).await, Some(before));
}

macro_rules! next_permit {
    ($($case:ident: $class:ident, $at:expr;)*) => {$(
        pub async fn $case(f: Fixture) {
            next(f, EffectClass::$class, $at).await;
        }
    )*};
}

next_permit! {
    e2_next_permit_of_a_started_at_most_once_call: AtMostOnce, At::Status(LedgerStatus::Started);
    e2_next_permit_of_a_committed_at_most_once_call: AtMostOnce, At::Status(LedgerStatus::Committed);
    e2_next_permit_of_a_retryably_refused_at_most_once_call: AtMostOnce, At::Status(LedgerStatus::RefusedRetryable);
    e2_next_permit_of_a_permanently_refused_at_most_once_call: AtMostOnce, At::Status(LedgerStatus::RefusedPermanent);
    e2_next_permit_of_an_unsent_at_most_once_call: AtMostOnce, At::Status(LedgerStatus::NotSent);
    e2_next_permit_of_an_at_most_once_call_in_doubt: AtMostOnce, At::Status(LedgerStatus::InDoubt);
    e2_next_permit_of_an_unresolved_at_most_once_call: AtMostOnce, At::Status(LedgerStatus::FailedUnresolved);
    e2_next_permit_of_a_disproved_at_most_once_call: AtMostOnce, At::Disproved;
    e2_next_permit_of_a_started_idempotent_call: Idempotent, At::Status(LedgerStatus::Started);
    e2_next_permit_of_a_committed_idempotent_call: Idempotent, At::Status(LedgerStatus::Committed);
    e2_next_permit_of_a_retryably_refused_idempotent_call: Idempotent, At::Status(LedgerStatus::RefusedRetryable);
    e2_next_permit_of_a_permanently_refused_idempotent_call: Idempotent, At::Status(LedgerStatus::RefusedPermanent);
    e2_next_permit_of_an_unsent_idempotent_call: Idempotent, At::Status(LedgerStatus::NotSent);
    e2_next_permit_of_an_idempotent_call_in_doubt: Idempotent, At::Status(LedgerStatus::InDoubt);
    e2_next_permit_of_an_unresolved_idempotent_call: Idempotent, At::Status(LedgerStatus::FailedUnresolved);
    e2_next_permit_of_a_disproved_idempotent_call: Idempotent, At::Disproved;
}

pub async fn e2_of_sixteen_that_ask_for_the_next_permit_one_gets_it(f: Fixture) {
    let run = f.running().await;
    bring(&f, run, EffectClass::AtMostOnce, At::Status(LedgerStatus::NotSent)).await;
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let mut unit = f.plain(run, aetheris_store::Purpose::Permit);
        unit.ledger.push(LedgerWrite::Permit(request(&f, 2, EffectClass::AtMostOnce)));
        let store = f.shared();
        tasks.push(tokio::spawn(async move { store.commit(unit).await.is_ok() }));
    }
    let mut given = 0;
    for task in tasks {
        given += usize::from(task.await.unwrap());
    }
    assert_eq!(given, 1);
}

pub async fn e2_the_class_is_that_of_the_first_permission(f: Fixture) {
    let run = f.running().await;
    bring(&f, run, EffectClass::AtMostOnce, At::Status(LedgerStatus::Started)).await;
    let answer = ask(&f, run, &request(&f, 2, EffectClass::Idempotent)).await;
    assert!(matches!(refusal(answer), Refusal::Ledger(LedgerRefusal::OtherPermit { .. })));
}

pub async fn e3_a_key_never_stands_for_other_arguments(f: Fixture) {
    let run = f.running().await;
    let before = bring(&f, run, EffectClass::Idempotent, At::Status(LedgerStatus::NotSent)).await;
    for permit in [1, 2] {
        let other = PermitRequest { input_hash: Hash::of(b"other"), ..request(&f, permit, EffectClass::Idempotent) };
        assert_eq!(refusal(ask(&f, run, &other).await), Refusal::Ledger(LedgerRefusal::ArgumentsDiffer(KEY)));
    }
    assert_eq!(row(&f, run).await, Some(before));
}

async fn settlements(f: Fixture, at: At) {
    for trigger in LedgerTrigger::ALL {
        // Each trigger meets a key of its own: jobs have nothing to do with each other's rows here.
        let f = &f;
        let run = f.running().await;
        let key = IdempotencyKey::derive(run.job, &StepPath::from("c"), 1);
        let permit_id = PermitId::from_u128(f.ids.next());
        let asked = PermitRequest { key, permit_id, ..request(f, 1, EffectClass::AtMostOnce) };
        f.ledger(run, LedgerWrite::Permit(asked)).await.unwrap();
        f.advance(LIFETIME);
        let settle = |trigger| f.ledger(run, settling(key, permit_id, trigger));
        for step in path(at) {
            settle(*step).await.unwrap();
        }
        let read =
            || async { f.store().history(Scope::System, run.job, true).await.unwrap().unwrap().ledger.pop().unwrap() };
        let before = read().await;
        let answer = settle(trigger).await;
        let after = read().await;
        let late = trigger == LedgerTrigger::Commit;
        match before.status.next(trigger).filter(|_| late || at != At::Disproved) {
            Some(status) => {
                let disproved = trigger == LedgerTrigger::Disprove;
                let expected = LedgerRow { disproved, status, updated_at: answer.unwrap().at, ..before };
                assert_eq!(after, expected, "{trigger:?}");
            }
            None => {
                let expected = LedgerRefusal::Illegal { key, status: before.status, trigger };
                assert_eq!(refusal(answer), Refusal::Ledger(expected));
                assert_eq!(after, before, "{trigger:?}");
            }
        }
        let fail = aetheris_core::event::JobCancelled {};
        f.ok(f.of(run, aetheris_store::Purpose::Cancel).await.event(fail).done()).await;
    }
}

fn path(at: At) -> &'static [LedgerTrigger] {
    match at {
        At::Status(LedgerStatus::Started) => &[],
        At::Status(LedgerStatus::Committed) => &[LedgerTrigger::Commit],
        At::Status(LedgerStatus::RefusedRetryable) => &[LedgerTrigger::RefuseRetryable],
        At::Status(LedgerStatus::RefusedPermanent) => &[LedgerTrigger::RefusePermanent],
        At::Status(LedgerStatus::NotSent) => &[LedgerTrigger::NotSent],
        At::Status(LedgerStatus::InDoubt) => &[LedgerTrigger::Doubt],
        At::Status(LedgerStatus::FailedUnresolved) => &[LedgerTrigger::Doubt, LedgerTrigger::GiveUp],
        At::Disproved => &[LedgerTrigger::Doubt, LedgerTrigger::Disprove],
    }
}

macro_rules! settle_table {
    ($($case:ident: $at:expr;)*) => {$(
        pub async fn $case(f: Fixture) {
            settlements(f, $at).await;
        }
    )*};
}

settle_table! {
    e4_settlements_of_a_started_call: At::Status(LedgerStatus::Started);
    e4_settlements_of_a_committed_call: At::Status(LedgerStatus::Committed);
    e4_settlements_of_a_retryably_refused_call: At::Status(LedgerStatus::RefusedRetryable);
    e4_settlements_of_a_permanently_refused_call: At::Status(LedgerStatus::RefusedPermanent);
    e4_settlements_of_an_unsent_call: At::Status(LedgerStatus::NotSent);
    e4_settlements_of_a_call_in_doubt: At::Status(LedgerStatus::InDoubt);
    e4_settlements_of_an_unresolved_call: At::Status(LedgerStatus::FailedUnresolved);
    e4_settlements_of_a_disproved_call: At::Disproved;
}

pub async fn e4_an_older_permit_settles_nothing(f: Fixture) {
    let run = f.running().await;
    let first = bring(&f, run, EffectClass::Idempotent, At::Status(LedgerStatus::Started)).await;
    ask(&f, run, &request(&f, 2, EffectClass::Idempotent)).await.unwrap();
    let before = row(&f, run).await;
    for trigger in LedgerTrigger::ALL {
        let refused = refusal(settle(&f, run, first.permit_id, trigger).await);
        let expected = LedgerRefusal::OtherPermit { key: KEY, asked: 0, current: 2, status: LedgerStatus::Started };
        assert_eq!(refused, Refusal::Ledger(expected));
    }
    assert_eq!(row(&f, run).await, before);
}

pub async fn e4_a_missing_key_is_not_settled(f: Fixture) {
    let run = f.running().await;
    let refused = refusal(settle(&f, run, PermitId::from_u128(1), LedgerTrigger::Commit).await);
    assert_eq!(refused, Refusal::Ledger(LedgerRefusal::Missing(KEY)));
}

pub async fn e4_changes_of_one_unit_see_each_other(f: Fixture) {
    let run = f.running().await;
    let (first, second) = (request(&f, 1, EffectClass::AtMostOnce), request(&f, 2, EffectClass::AtMostOnce));
    let mut unit = f.plain(run, aetheris_store::Purpose::Permit);
    let not_sent = Settle { key: KEY, permit_id: first.permit_id, trigger: LedgerTrigger::NotSent };
    unit.ledger = vec![
        LedgerWrite::Permit(first.clone()),
        LedgerWrite::Settle(not_sent),
        LedgerWrite::Permit(second.clone()),
        LedgerWrite::Settle(Settle { permit_id: second.permit_id, trigger: LedgerTrigger::Commit, ..not_sent }),
    ];
    f.ok(unit).await;
    let row = row(&f, run).await.unwrap();
    assert_eq!((row.permit, row.permit_id, row.status), (2, second.permit_id, LedgerStatus::Committed));
}

pub async fn e5_did_not_happen_is_accepted_from_the_deadline_on(f: Fixture) {
    let run = f.running().await;
    let asked = request(&f, 1, EffectClass::AtMostOnce);
    let deadline = ask(&f, run, &asked).await.unwrap().at.after(LIFETIME);
    settle(&f, run, asked.permit_id, LedgerTrigger::Doubt).await.unwrap();
    f.advance(LIFETIME.minus(Span::from_micros(1)));
    let refused = refusal(settle(&f, run, asked.permit_id, LedgerTrigger::Disprove).await);
    assert_eq!(refused, Refusal::Ledger(LedgerRefusal::CanStillArrive { key: KEY, accepted_from: deadline }));
    f.advance(Span::from_micros(1));
    settle(&f, run, asked.permit_id, LedgerTrigger::Disprove).await.unwrap();
    assert!(row(&f, run).await.unwrap().disproved);
    ask(&f, run, &request(&f, 2, EffectClass::AtMostOnce)).await.unwrap();
    let refused = refusal(ask(&f, run, &request(&f, 3, EffectClass::AtMostOnce)).await);
    assert!(matches!(refused, Refusal::Ledger(LedgerRefusal::OtherPermit { .. })), "{refused:?}");
}

/// FINDINGS A3: the wall clock was set forward, and a call that was under way counted as one that cannot arrive.
pub async fn e5_a_clock_that_is_set_forward_disproves_nothing(f: Fixture) {
    let (run, asked) = in_doubt(&f).await;
    f.clock.set_wall(f.clock.wall().after(Span::from_secs(3_600)));
    let now = f.now().await;
    let refused = refusal(settle(&f, run, asked.permit_id, LedgerTrigger::Disprove).await);
    let accepted_from = now.after(LIFETIME);
    assert_eq!(refused, Refusal::Ledger(LedgerRefusal::CanStillArrive { key: KEY, accepted_from }));
    f.advance(LIFETIME);
    settle(&f, run, asked.permit_id, LedgerTrigger::Disprove).await.unwrap();
}

/// A boot clock that did not give the permit runs the whole lifetime from its first reading of it.
pub async fn e5_another_boot_runs_the_whole_lifetime_from_its_first_reading(f: Fixture) {
    let (run, asked) = in_doubt(&f).await;
    f.advance(LIFETIME);
    f.clock.reboot();
    let early = |answer| assert!(matches!(refusal(answer), Refusal::Ledger(LedgerRefusal::CanStillArrive { .. })));
    early(settle(&f, run, asked.permit_id, LedgerTrigger::Disprove).await);
    f.advance(LIFETIME);
    early(settle(&f, run, asked.permit_id, LedgerTrigger::Disprove).await);
    let see = || LedgerWrite::See { key: KEY, permit_id: asked.permit_id };
    f.ledger(run, see()).await.unwrap();
    let first = f.clock.boot_moment();
    assert_eq!(row(&f, run).await.unwrap().seen, Some(first));
    f.advance(LIFETIME.minus(Span::from_micros(1)));
    f.ledger(run, see()).await.unwrap();
    assert_eq!(row(&f, run).await.unwrap().seen, Some(first));
    early(settle(&f, run, asked.permit_id, LedgerTrigger::Disprove).await);
    f.advance(Span::from_micros(1));
    settle(&f, run, asked.permit_id, LedgerTrigger::Disprove).await.unwrap();
    assert!(row(&f, run).await.unwrap().disproved);
}

pub async fn e5_only_a_question_that_was_asked_late_enough_disproves(f: Fixture) {
    let (run, asked) = in_doubt(&f).await;
    let settle = Span::from_secs(60);
    let reading = |at, boot| Reading { at, boot };
    let disprove = |grounds, asked_at| {
        let (key, lifetime, permit_id) = (KEY, LIFETIME, asked.permit_id);
        f.ledger(run, LedgerWrite::Disprove(Disproof { asked: asked_at, grounds, key, lifetime, permit_id, settle }))
    };
    f.advance(LIFETIME.plus(settle).minus(Span::from_micros(1)));
    let early = reading(f.now().await, f.clock.boot_moment());
    f.advance(Span::from_micros(1));
    let refused = refusal(disprove(Grounds::Clock, Some(early)).await);
    assert!(matches!(refused, Refusal::Ledger(LedgerRefusal::CanStillArrive { .. })), "{refused:?}");
    let late = reading(f.now().await, f.clock.boot_moment());
    disprove(Grounds::Clock, Some(late)).await.unwrap();
}

pub async fn e5_who_refuses_the_permit_is_believed_at_once(f: Fixture) {
    for grounds in [Grounds::Refuses, Grounds::OperatorRefused] {
        let f = &f;
        let run = f.running().await;
        let key = IdempotencyKey::derive(run.job, &StepPath::from("c"), 1);
        let permit_id = PermitId::from_u128(f.ids.next());
        let asked = PermitRequest { key, permit_id, ..request(f, 1, EffectClass::AtMostOnce) };
        f.ledger(run, LedgerWrite::Permit(asked)).await.unwrap();
        f.ledger(run, settling(key, permit_id, LedgerTrigger::Doubt)).await.unwrap();
        let disproof =
            Disproof { asked: None, grounds, key, lifetime: LIFETIME, permit_id, settle: Span::from_secs(60) };
        f.ledger(run, LedgerWrite::Disprove(disproof)).await.unwrap();
        let rows = f.store().history(Scope::System, run.job, true).await.unwrap().unwrap().ledger;
        assert!(rows[0].disproved);
    }
}

/// A success that came after "did not happen" ends the key, and so does one of an earlier permit.
pub async fn e2_nothing_is_called_again_once_any_call_is_known_to_have_succeeded(f: Fixture) {
    let run = f.running().await;
    let first = bring(&f, run, EffectClass::AtMostOnce, At::Disproved).await;
    ask(&f, run, &request(&f, 2, EffectClass::AtMostOnce)).await.unwrap();
    let second = row(&f, run).await.unwrap();
    settle(&f, run, second.permit_id, LedgerTrigger::NotSent).await.unwrap();
    let evidence = |conflict, permit_id| aetheris_store::Evidence {
        at: f.clock.wall(),
        conflict,
        key: KEY,
        node: StepPath::from("c"),
        outcome: aetheris_core::json::Json::null(),
        permit: 1,
        permit_id,
    };
    let mut refused = f.plain(run, aetheris_store::Purpose::Deposit);
    refused.evidence.push(evidence(false, second.permit_id));
    f.ok(refused).await;
    // What came too late and says nothing of a success holds nothing up.
    ask(&f, run, &request(&f, 3, EffectClass::AtMostOnce)).await.unwrap();
    let third = row(&f, run).await.unwrap();
    settle(&f, run, third.permit_id, LedgerTrigger::NotSent).await.unwrap();
    let mut succeeded = f.plain(run, aetheris_store::Purpose::Deposit);
    succeeded.evidence.push(evidence(true, first.permit_id));
    f.ok(succeeded).await;
    let refused = refusal(ask(&f, run, &request(&f, 4, EffectClass::AtMostOnce)).await);
    assert_eq!(refused, Refusal::Ledger(LedgerRefusal::Succeeded(KEY)));
    assert_eq!(row(&f, run).await.unwrap().permit, 3);
}

/// A call in doubt, under permit 1.
async fn in_doubt(f: &Fixture) -> (Run, PermitRequest) {
    let run = f.running().await;
    let asked = request(f, 1, EffectClass::AtMostOnce);
    ask(f, run, &asked).await.unwrap();
    settle(f, run, asked.permit_id, LedgerTrigger::Doubt).await.unwrap();
    (run, asked)
}

pub async fn e7_another_jobs_unit_does_not_touch_the_row(f: Fixture) {
    let (owner, other) = (f.running().await, f.running().await);
    let before = bring(&f, owner, EffectClass::Idempotent, At::Status(LedgerStatus::Started)).await;
    let snapshot = snapshot::of_job(f.store(), owner.job).await;
    let refused = refusal(settle(&f, other, before.permit_id, LedgerTrigger::Commit).await);
    assert_eq!(refused, Refusal::Ledger(LedgerRefusal::Missing(KEY)));
    let refused = refusal(ask(&f, other, &request(&f, 2, EffectClass::Idempotent)).await);
    assert!(matches!(refused, Refusal::Ledger(LedgerRefusal::OtherPermit { .. })), "{refused:?}");
    let mut unit = f.plain(other, aetheris_store::Purpose::Record);
    unit.effects.push(aetheris_store::NewEffect {
        key: KEY,
        permit: 1,
        permit_id: before.permit_id,
        result: aetheris_core::json::Json::null(),
    });
    assert_eq!(f.refused(unit).await, Refusal::Ledger(LedgerRefusal::Missing(KEY)));
    assert_eq!(snapshot::of_job(f.store(), owner.job).await, snapshot);
}
