//! C: agents and creation.

use std::collections::BTreeMap;

use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, SessionId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::time::Span;

use super::fixture::{agent, invalid, plan};
use super::{Fixture, Message, snapshot};
use aetheris_store::unit::{ClientKey, Purpose};
use aetheris_store::{CommitError, NewAgent, PlanDocument, Refusal, Scope};

fn client_key(key: &str, body: &str) -> Option<ClientKey> {
    Some(ClientKey { body_hash: Hash::of(body.as_bytes()), key: key.to_owned() })
}

pub async fn c1_creation_writes_everything_at_once(f: Fixture) {
    let labels = BTreeMap::from([("team".to_owned(), "red".to_owned()), (String::new(), String::new())]);
    let (run_at, session) = (Some(f.now().await.after(Span::from_secs(9))), Some(SessionId::from("s")));
    let deadline = Some(Span::from_secs(60));
    let message = Message { deadline, labels: labels.clone(), priority: -7, run_at, session, ..f.message() };
    let committed = f.ok(f.creation(&message)).await;
    let row = f.store().job(Scope::System, message.job).await.unwrap().unwrap();
    assert_eq!((row.id, row.agent.as_str(), row.agent_version.as_str()), (message.job, "agent", "1"));
    assert_eq!((row.labels, row.priority, row.session), (labels, -7, message.session));
    assert_eq!((row.status, row.not_before, row.plan_hash), (JobStatus::Pending, run_at, Some(f.plan)));
    assert_eq!((row.created_at, row.updated_at), (committed.at, committed.at));
    assert_eq!((row.seq, row.head, row.holder), (committed.seq, committed.head, None));
    assert_eq!((row.error, row.end_requested, row.waiting), (None, None, None));
    assert_eq!((committed.seq, f.store().timers(Scope::System, message.job).await.unwrap().len()), (3, 1));
}

pub async fn c1_a_job_may_have_no_plan_yet(f: Fixture) {
    let job = f.create(&Message { plan: None, ..f.message() }).await;
    assert_eq!(f.store().job(Scope::System, job).await.unwrap().unwrap().plan_hash, None);
}

pub async fn c2_the_same_request_makes_one_job(f: Fixture) {
    let first = Message { client_key: client_key("k", "body"), ..f.message() };
    f.create(&first).await;
    let again = Message { client_key: client_key("k", "body"), ..f.message() };
    assert_eq!(f.refused(f.creation(&again)).await, Refusal::Duplicate(first.job));
    assert_eq!(f.store().job(Scope::System, again.job).await.unwrap(), None);
    assert_eq!(snapshot::jobs(f.store()).await.len(), 1);
}

pub async fn c2_another_request_under_the_same_key_is_a_conflict(f: Fixture) {
    let first = Message { client_key: client_key("k", "body"), ..f.message() };
    f.create(&first).await;
    let other = Message { client_key: client_key("k", "other"), ..f.message() };
    assert_eq!(f.refused(f.creation(&other)).await, Refusal::KeyConflict(first.job));
    assert_eq!(f.store().job(Scope::System, other.job).await.unwrap(), None);
}

pub async fn c2_keys_are_per_agent_and_exact(f: Fixture) {
    for (agent, key) in [("agent", "k"), ("other", "k"), ("agent", "K"), ("agent", ""), ("agent", "k ")] {
        let client_key = client_key(key, "body");
        f.create(&Message { agent: AgentName::from(agent), client_key, ..f.message() }).await;
    }
    assert_eq!(snapshot::jobs(f.store()).await.len(), 5);
}

pub async fn c2_a_refused_creation_leaves_its_key_free(f: Fixture) {
    let client_key = client_key("k", "body");
    let unknown = Some(Hash::of(b"unknown"));
    let message = Message { client_key: client_key.clone(), plan: unknown, ..f.message() };
    assert_eq!(f.refused(f.creation(&message)).await, Refusal::UnknownPlan);
    f.create(&Message { client_key, ..f.message() }).await;
}

pub async fn c2_of_sixteen_equal_requests_one_makes_the_job(f: Fixture) {
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let message = Message { client_key: client_key("k", "body"), ..f.message() };
        let (unit, store) = (f.creation(&message), f.shared());
        tasks.push((message.job, tokio::spawn(async move { store.commit(unit).await })));
    }
    let (mut made, mut named) = (Vec::new(), Vec::new());
    for (job, task) in tasks {
        match task.await.unwrap() {
            Ok(_) => made.push(job),
            Err(CommitError::Refused(Refusal::Duplicate(first))) => named.push(first),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!((made.len(), named.len()), (1, 15));
    assert!(named.iter().all(|first| *first == made[0]));
}

pub async fn c2_a_key_can_be_asked_for_when_its_agent_is_gone(f: Fixture) {
    let name = AgentName::from("agent");
    let ask = async |agent: &str, key: &str| {
        f.store().client_key(TenantId::default(), AgentName::from(agent), key.to_owned()).await.unwrap()
    };
    assert_eq!(ask("agent", "k").await, None);
    let first = Message { agent: name.clone(), client_key: client_key("k", "body"), ..f.message() };
    f.create(&first).await;
    f.store().delete_agent(TenantId::default(), name).await.unwrap();
    assert_eq!(ask("agent", "k").await, Some((first.job, Hash::of(b"body"))));
    assert_eq!((ask("other", "k").await, ask("agent", "K").await), (None, None));
}

pub async fn c3_a_plan_that_is_not_there_is_refused(f: Fixture) {
    let message = Message { plan: Some(Hash::of(b"unknown")), ..f.message() };
    assert_eq!(f.refused(f.creation(&message)).await, Refusal::UnknownPlan);
    assert_eq!(f.store().job(Scope::System, message.job).await.unwrap(), None);
    assert_eq!(f.claim_ids(1).await, []);
}

pub async fn c3_a_plan_recorded_later_must_be_there_too(f: Fixture) {
    let job = f.create(&Message { plan: None, ..f.message() }).await;
    let planned = |plan_hash| aetheris_core::event::PlanGenerated {
        plan_hash,
        plan_version: 1,
        planner: "static".to_owned(),
        planner_version: "1".to_owned(),
    };
    let guard = aetheris_core::lease::Guard::Outside;
    let unknown = f.draft(job, Purpose::Record, guard).await.event(planned(Hash::of(b"unknown"))).done();
    assert_eq!(f.refused(unknown).await, Refusal::UnknownPlan);
    f.ok(f.draft(job, Purpose::Record, guard).await.event(planned(f.plan)).done()).await;
    assert_eq!(f.store().job(Scope::System, job).await.unwrap().unwrap().plan_hash, Some(f.plan));
}

/// A plan that a job's own run has made comes with the unit that records it.
pub async fn c6_a_plan_document_is_stored_with_the_unit_that_records_it(f: Fixture) {
    let made = plan("made");
    let planned = |plan_hash| aetheris_core::event::PlanGenerated {
        plan_hash,
        plan_version: 1,
        planner: "llm".to_owned(),
        planner_version: "1".to_owned(),
    };
    let guard = aetheris_core::lease::Guard::Outside;
    let document = PlanDocument { hash: made.hash(), plan: made.clone() };
    let job = f.create(&Message { plan: None, ..f.message() }).await;
    let unit = async |hash, document: PlanDocument| {
        let draft = f.draft(job, Purpose::Record, guard).await.event(planned(hash));
        draft.with(|unit| unit.plan = Some(document)).done()
    };
    // Under another name, with another row, without its event: that is no unit.
    let foreign = PlanDocument { hash: f.plan, plan: made.clone() };
    for wrong in [unit(f.plan, foreign).await, unit(f.plan, document.clone()).await] {
        invalid(f.store().commit(wrong).await);
    }
    let mut bare = unit(made.hash(), document.clone()).await;
    bare.events.clear();
    invalid(f.store().commit(bare).await);
    assert_eq!(f.store().plan(made.hash()).await.unwrap(), None, "what is refused leaves nothing");
    f.ok(unit(made.hash(), document.clone()).await).await;
    assert_eq!(f.store().plan(made.hash()).await.unwrap(), Some(document));
    assert_eq!(f.store().job(Scope::System, job).await.unwrap().unwrap().plan_hash, Some(made.hash()));
}

pub async fn c4_a_job_is_not_created_twice(f: Fixture) {
    let message = f.message();
    let unit = f.creation(&message);
    f.ok(unit.clone()).await;
    let before = snapshot::of_job(f.store(), message.job).await;
    assert_eq!(f.refused(unit).await, Refusal::Sequence { expected: 0, actual: 2 });
    assert_eq!(f.refused(f.creation(&message)).await, Refusal::Sequence { expected: 0, actual: 2 });
    assert_eq!(snapshot::of_job(f.store(), message.job).await, before);
}

pub async fn c5_an_agent_is_put_read_and_replaced(f: Fixture) {
    let first = agent("other", "1");
    let put = f.store().put_agent(first.clone()).await.unwrap();
    assert_eq!((put.created, put.hash), (true, first.agent.hash()));
    f.advance(Span::from_secs(1));
    let second = agent("other", "2");
    let put = f.store().put_agent(second.clone()).await.unwrap();
    assert_eq!((put.created, put.hash), (false, second.agent.hash()));
    let row = f.store().agent(TenantId::default(), AgentName::from("other")).await.unwrap().unwrap();
    assert_eq!((row.agent, row.hash, row.source), (second.agent.clone(), second.agent.hash(), second.source));
    assert_eq!(row.updated_at, f.now().await);
    for version in ["1", "2"] {
        let expected = plan(&format!("other {version}"));
        let stored = f.store().plan(expected.hash()).await.unwrap().unwrap();
        assert_eq!((stored.hash, stored.plan), (expected.hash(), expected));
    }
}

pub async fn c5_an_agent_put_again_is_the_same(f: Fixture) {
    let put = f.store().put_agent(agent("agent", "1")).await.unwrap();
    assert!(!put.created);
    assert_eq!(f.store().agents(TenantId::default(), None, 10).await.unwrap().agents.len(), 1);
}

pub async fn c5_a_deleted_agent_leaves_jobs_and_plans(f: Fixture) {
    let job = f.pending().await;
    assert!(f.store().delete_agent(TenantId::default(), AgentName::from("agent")).await.unwrap());
    assert!(!f.store().delete_agent(TenantId::default(), AgentName::from("agent")).await.unwrap());
    assert_eq!(f.store().agent(TenantId::default(), AgentName::from("agent")).await.unwrap(), None);
    assert!(f.store().plan(f.plan).await.unwrap().is_some());
    assert_eq!(f.claim_ids(1).await, [job]);
    assert!(f.store().put_agent(agent("agent", "1")).await.unwrap().created);
}

pub async fn c5_agents_are_listed_by_name(f: Fixture) {
    for name in ["zoo", "b", "a", "B"] {
        f.store().put_agent(agent(name, "1")).await.unwrap();
    }
    for limit in [1, 2, 5, 9] {
        let (mut names, mut after): (Vec<String>, _) = (Vec::new(), None);
        loop {
            let page = f.store().agents(TenantId::default(), after, limit).await.unwrap();
            assert!(page.agents.len() <= limit);
            names.extend(page.agents.iter().map(|row| row.agent.agent.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(names, ["B", "a", "agent", "b", "zoo"], "{limit} at once");
    }
}

pub async fn c5_a_page_of_agents_is_bounded(f: Fixture) {
    for n in 0..limits::PAGE_JOBS_MAX {
        f.store().put_agent(agent(&format!("n{n}"), "1")).await.unwrap();
    }
    let page = f.store().agents(TenantId::default(), None, usize::MAX).await.unwrap();
    assert_eq!(page.agents.len(), limits::PAGE_JOBS_MAX);
    assert_eq!(f.store().agents(TenantId::default(), page.next, usize::MAX).await.unwrap().agents.len(), 1);
    let none = f.store().agents(TenantId::default(), None, 0).await.unwrap();
    assert_eq!(none.agents.len(), 0);
}

pub async fn c5_a_page_of_agents_ends_by_the_bytes_of_their_files(f: Fixture) {
    let most = limits::PAGE_ROWS_BYTES_MAX;
    for (name, bytes) in [("A", most - 1), ("B", 1), ("C", 1)] {
        let NewAgent { agent, .. } = agent(name, "1");
        f.store().put_agent(NewAgent { agent, source: " ".repeat(bytes), tenant: TenantId::default() }).await.unwrap();
    }
    let page = f.store().agents(TenantId::default(), None, 10).await.unwrap();
    assert_eq!(page.agents.len(), 2);
    assert_eq!(page.next, Some(AgentName::from("B")));
    let rest = f.store().agents(TenantId::default(), page.next, 10).await.unwrap();
    assert_eq!(rest.agents.iter().map(|row| row.agent.agent.as_str()).collect::<Vec<_>>(), ["C", "agent"]);
    assert_eq!(rest.next, None);
}
