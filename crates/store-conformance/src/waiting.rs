//! Q: what waits for someone.

use aetheris_core::event::{ChildStarted, JobWaiting};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::plan::{EffectClass, OnParentEnd, WaitType};
use aetheris_store::Scope::System;
use aetheris_store::unit::Purpose;
use aetheris_store::{BlockedOn, JobFilter};

use super::Fixture;
use super::queries::found;

/// What only time ends asks nobody, unless it is a doubt, about which somebody may know more.
pub async fn q2_what_waits_for_someone(f: Fixture) {
    let mut waits = Vec::new();
    for wait_type in [WaitType::Human, WaitType::Timer, WaitType::Webhook, WaitType::Signal, WaitType::Timer] {
        let run = f.running().await;
        f.ok(f.of(run, Purpose::Block).await.wait("w", "key", wait_type, false).done()).await;
        waits.push(run.job);
    }
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
    let until = JobWaiting {
        correlation_key: None,
        doubt: true,
        node: "c".into(),
        park: false,
        reason: None,
        wait_type: WaitType::Timer,
    };
    f.ok(f.of(run, Purpose::Doubt).await.doubt("c").event(until).done()).await;
    let expected = [run.job, waits[3], waits[2], waits[0]];
    let someone = JobFilter { blocked_on: Some(BlockedOn::Someone), ..JobFilter::default() };
    assert_eq!(found(&f, someone.clone()).await, expected);
    let agent = f.store().job(System, run.job).await.unwrap().unwrap().agent;
    for filter in [
        JobFilter { agent: Some(agent), ..someone.clone() },
        JobFilter { statuses: vec![JobStatus::Waiting, JobStatus::Parked, JobStatus::Running], ..someone.clone() },
    ] {
        assert_eq!(found(&f, filter.clone()).await, expected, "{filter:?}");
    }
    let (mut read, mut page) = (Vec::new(), JobFilter { limit: 1, ..someone });
    loop {
        let found = f.store().waits(page.clone()).await.unwrap();
        read.extend(found.waits.iter().map(|wait| wait.row.id));
        page.before = found.next;
        if found.next.is_none() {
            break;
        }
    }
    assert_eq!(read, expected);
}

/// A job that waits for its child asks nobody either.
pub async fn q2_who_waits_for_a_child_waits_for_nobody(f: Fixture) {
    let asks = f.running().await;
    f.ok(f.of(asks, Purpose::Block).await.wait("w", "key", WaitType::Human, false).done()).await;
    let run = f.running().await;
    let started = ChildStarted {
        agent: AgentName::from("other"),
        agent_version: "1".to_owned(),
        child: JobId::from_u128(9),
        deadline_us: None,
        depth: 1,
        message: Json::null(),
        node: "c".into(),
        on_parent_end: OnParentEnd::Leave,
        parent_deadline: None,
        plan_hash: Hash::of(b"its plan"),
        planner: "static".to_owned(),
        session: None,
        sessions: Vec::new(),
        waits: true,
    };
    let waiting = JobWaiting {
        correlation_key: None,
        doubt: false,
        node: "c".into(),
        park: false,
        reason: None,
        wait_type: WaitType::Child,
    };
    f.ok(f.of(run, Purpose::Block).await.start("c").event(started).event(waiting).done()).await;
    let by = |blocked_on| JobFilter { blocked_on: Some(blocked_on), ..JobFilter::default() };
    assert_eq!(found(&f, by(BlockedOn::Anything)).await, [run.job, asks.job]);
    assert_eq!(found(&f, by(BlockedOn::Type(WaitType::Child))).await, [run.job]);
    assert_eq!(found(&f, by(BlockedOn::Someone)).await, [asks.job]);
    // Found by its state, in which there are few, as well.
    let few = JobFilter { statuses: vec![JobStatus::Waiting], ..by(BlockedOn::Someone) };
    assert_eq!(found(&f, few).await, [asks.job]);
}
