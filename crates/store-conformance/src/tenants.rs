//! T: what belongs to a tenant is not there for another.

use std::collections::BTreeMap;

use aetheris_core::event::RequeueReason;
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, JobId, PermitId, SessionId, SignalId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::time::{Span, Timestamp};
use aetheris_store::unit::{ClientKey, InboxWrite, Purpose};
use aetheris_store::{AgentRow, BlockedOn, DoubtFilter, Evidence, JobFilter, Refusal, Scope, Store};

use super::fencing::evidence;
use super::fixture::agent;
use super::{Fixture, Message};

fn tenants() -> [TenantId; 2] {
    [TenantId::default(), TenantId::from("other")]
}

fn key(body: &str) -> Option<ClientKey> {
    Some(ClientKey { body_hash: Hash::of(body.as_bytes()), key: "k".to_owned() })
}

/// A message with every name that a client can give.
fn named(f: &Fixture, tenant: &TenantId) -> Message {
    Message {
        client_key: key("body"),
        deadline: Some(Span::from_secs(600)),
        labels: BTreeMap::from([("team".to_owned(), "red".to_owned())]),
        session: Some(SessionId::from("s")),
        tenant: tenant.clone(),
        ..f.message()
    }
}

pub async fn t1_an_agent_of_a_tenant_is_its_own(f: Fixture) {
    let [one, two] = tenants();
    let read = async |tenant: &TenantId| f.store().agent(tenant.clone(), AgentName::from("agent")).await.unwrap();
    let version = |row: Option<AgentRow>| row.map(|row| row.agent.version.clone());
    assert_eq!((version(read(&one).await).as_deref(), read(&two).await), (Some("1"), None));
    let put =
        f.store().put_agent(aetheris_store::NewAgent { tenant: two.clone(), ..agent("agent", "2") }).await.unwrap();
    assert!(put.created);
    let mut theirs = aetheris_store::NewAgent { tenant: two.clone(), ..agent("zoo", "1") };
    assert!(f.store().put_agent(theirs.clone()).await.unwrap().created);
    theirs.source = "again".to_owned();
    assert!(!f.store().put_agent(theirs).await.unwrap().created);
    assert_eq!(version(read(&one).await).as_deref(), Some("1"));
    assert_eq!(version(read(&two).await).as_deref(), Some("2"));
    let names = async |tenant: &TenantId, after: Option<AgentName>| {
        let page = f.store().agents(tenant.clone(), after, 1).await.unwrap();
        (page.agents.iter().map(|row| row.agent.agent.to_string()).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(names(&one, None).await, (vec!["agent".to_owned()], None));
    assert_eq!(names(&two, None).await, (vec!["agent".to_owned()], Some(AgentName::from("agent"))));
    assert_eq!(names(&two, Some(AgentName::from("agent"))).await, (vec!["zoo".to_owned()], None));
    assert!(!f.store().delete_agent(one.clone(), AgentName::from("zoo")).await.unwrap());
    assert!(f.store().delete_agent(one.clone(), AgentName::from("agent")).await.unwrap());
    assert_eq!((read(&one).await, version(read(&two).await).as_deref()), (None, Some("2")));
}

pub async fn t1_a_clients_key_of_a_tenant_is_its_own(f: Fixture) {
    let mut jobs = Vec::new();
    for tenant in &tenants() {
        let message = named(&f, tenant);
        f.create(&message).await;
        jobs.push(message.job);
        // The same key again is the same tenant's job.
        assert_eq!(f.refused(f.creation(&named(&f, tenant))).await, Refusal::Duplicate(message.job));
        let other = Message { client_key: key("other"), ..named(&f, tenant) };
        assert_eq!(f.refused(f.creation(&other)).await, Refusal::KeyConflict(message.job));
    }
    for (tenant, job) in tenants().into_iter().zip(jobs) {
        let known = f.store().client_key(tenant, AgentName::from("agent"), "k".to_owned()).await.unwrap();
        assert_eq!(known.map(|(job, _)| job), Some(job));
    }
    let nobody = f.store().client_key(TenantId::from("third"), AgentName::from("agent"), "k".to_owned()).await.unwrap();
    assert_eq!(nobody, None);
}

pub async fn t1_a_session_of_a_tenant_is_its_own(f: Fixture) {
    let [one, two] = tenants();
    let mut of = Vec::new();
    for tenant in [&one, &two, &one, &two] {
        of.push(f.create(&Message { client_key: None, ..named(&f, tenant) }).await);
    }
    let [first, theirs, second, their_second] = of[..] else { unreachable!() };
    let ahead =
        async |scope: &Scope, job| f.store().ahead_in_session(scope.clone(), job).await.unwrap().map(|row| row.id);
    let (mine, other) = (Scope::Tenant(one.clone()), Scope::Tenant(two.clone()));
    assert_eq!((ahead(&mine, second).await, ahead(&Scope::System, second).await), (Some(first), Some(first)));
    assert_eq!((ahead(&other, their_second).await, ahead(&other, theirs).await), (Some(theirs), None));
    assert_eq!((ahead(&other, second).await, ahead(&mine, their_second).await), (None, None));
    // Each has its turn, whatever the other's does.
    let mut claimed = f.claim_ids(8).await;
    claimed.sort_unstable();
    assert_eq!(claimed, [first, theirs]);
    let run = super::Run { fence: f.state(theirs).await.fence, job: theirs };
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    assert_eq!(f.claim_ids(8).await, [their_second]);
    // One that is delayed waits for its own, too.
    let at = Some(f.now().await.after(Span::from_secs(1)));
    let third = f.create(&Message { client_key: None, run_at: at, ..named(&f, &two) }).await;
    f.advance(Span::from_secs(2));
    assert_eq!(f.claim_ids(8).await, []);
    let run = super::Run { fence: f.state(their_second).await.fence, job: their_second };
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    assert_eq!(f.claim_ids(8).await, [third]);
}

pub async fn t3_a_row_and_its_state_say_whose_it_is(f: Fixture) {
    for tenant in tenants() {
        let job = f.create(&named(&f, &tenant)).await;
        let row = f.store().job(Scope::System, job).await.unwrap().unwrap();
        assert_eq!((&row.tenant, f.state(job).await.tenant), (&tenant, tenant.clone()));
    }
}

/// A job that has one of everything: an effect, late evidence, a kept signal, timers, an open wait and a doubt.
async fn full(f: &Fixture, tenant: &TenantId) -> (JobId, IdempotencyKey) {
    let job = f.create(&named(f, tenant)).await;
    let run = f.take(job).await;
    let draft = f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce);
    let done = draft.invocation("c").key;
    f.ok(draft.done()).await;
    f.ok(f.of(run, Purpose::Record).await.committed("c", Json::new(7.into())).done()).await;
    f.ok(f.of(run, Purpose::Permit).await.call("d", EffectClass::AtMostOnce).done()).await;
    f.ok(f.of(run, Purpose::Doubt).await.doubt("d").done()).await;
    let mut late = f.draft(job, Purpose::Deposit, Guard::Outside).await.done();
    late.evidence.push(Evidence { key: done, ..evidence(PermitId::from_u128(f.ids.next())) });
    f.ok(late).await;
    let mut signal = f.draft(job, Purpose::Signal, Guard::Outside).await.done();
    signal.inbox.push(InboxWrite::Receive {
        delivered: false,
        key: "later".to_owned(),
        payload: Json::new(1.into()),
        signal: SignalId::from_u128(f.ids.next()),
        wait_type: Some(WaitType::Human),
    });
    f.ok(signal).await;
    f.ok(f.of(run, Purpose::Block).await.wait("w", "key", WaitType::Human, false).done()).await;
    (job, done)
}

/// How many rows each question about a job is answered with.
async fn about(store: &dyn Store, scope: &Scope, (job, key): (JobId, IdempotencyKey)) -> Vec<(&'static str, usize)> {
    let of = || scope.clone();
    let one = |found: bool| usize::from(found);
    let began = Timestamp::default();
    vec![
        ("job", one(store.job(of(), job).await.unwrap().is_some())),
        ("glance", one(store.glance(of(), job).await.unwrap().is_some())),
        ("history", one(store.history(of(), job, false).await.unwrap().is_some())),
        ("all of it", one(store.history(of(), job, true).await.unwrap().is_some())),
        ("behind", one(store.history_behind(of(), job, 1, began).await.unwrap().is_some())),
        ("events", store.events(of(), job, 0, 99).await.unwrap().len().min(1)),
        ("effect", one(store.effect(of(), job, key).await.unwrap().is_some())),
        ("evidence", store.evidence(of(), job).await.unwrap().len()),
        ("kept", store.kept(of(), job).await.unwrap().len()),
        ("timers", store.timers(of(), job).await.unwrap().len()),
        (
            "doubts",
            store
                .doubts(DoubtFilter { job: Some(job), limit: 9, scope: of(), ..DoubtFilter::default() })
                .await
                .unwrap()
                .doubts
                .len(),
        ),
    ]
}

pub async fn t2_no_question_about_a_job_is_answered_for_another_tenant(f: Fixture) {
    let [one, two] = tenants();
    let (mine, theirs) = (full(&f, &one).await, full(&f, &two).await);
    for (scope, there) in [
        (Scope::Tenant(one), [true, false]),
        (Scope::Tenant(two), [false, true]),
        (Scope::Tenant(TenantId::from("third")), [false, false]),
        (Scope::System, [true, true]),
    ] {
        for (job, there) in [mine, theirs].into_iter().zip(there) {
            for (question, found) in about(f.store(), &scope, job).await {
                assert_eq!(found, usize::from(there), "{question}, {scope:?}");
            }
        }
    }
}

/// Every list that a filter can ask for.
fn lists() -> Vec<JobFilter> {
    let any = || JobFilter { limit: 1, ..JobFilter::default() };
    let (agent, label) = (Some(AgentName::from("agent")), Some(("team".to_owned(), "red".to_owned())));
    let waiting = vec![JobStatus::Waiting];
    vec![
        any(),
        JobFilter { agent: agent.clone(), ..any() },
        JobFilter { agent, statuses: waiting.clone(), ..any() },
        JobFilter { label: label.clone(), ..any() },
        JobFilter { label, statuses: waiting.clone(), ..any() },
        JobFilter { session: Some(SessionId::from("s")), ..any() },
        JobFilter { statuses: waiting, ..any() },
        JobFilter { statuses: JobStatus::ALL.to_vec(), ..any() },
        JobFilter { blocked_on: Some(BlockedOn::Anything), ..any() },
        JobFilter { blocked_on: Some(BlockedOn::Someone), ..any() },
        JobFilter { blocked_on: Some(BlockedOn::Type(WaitType::Human)), ..any() },
    ]
}

/// The jobs of a list, page by page.
async fn listed(store: &dyn Store, scope: &Scope, mut filter: JobFilter) -> Vec<JobId> {
    filter.scope = scope.clone();
    let mut found = Vec::new();
    loop {
        let page = store.jobs(filter.clone()).await.unwrap();
        if filter.blocked_on.is_some() {
            let waits = store.waits(filter.clone()).await.unwrap();
            let of = |waits: &[aetheris_store::WaitRow]| waits.iter().map(|wait| wait.row.id).collect::<Vec<_>>();
            assert_eq!(of(&waits.waits), page.jobs.iter().map(|row| row.id).collect::<Vec<_>>());
        }
        found.extend(page.jobs.iter().map(|row| row.id));
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return found,
        }
    }
}

pub async fn t2_no_list_of_a_tenant_has_jobs_of_another(f: Fixture) {
    let [one, two] = tenants();
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    // In turns, so that each page of the one would have rows of the other.
    for _ in 0..3 {
        for (tenant, jobs) in [(&one, &mut mine), (&two, &mut theirs)] {
            let client_key = None;
            let (job, _) = {
                let message = Message { client_key, session: None, ..named(&f, tenant) };
                let job = f.create(&message).await;
                let run = f.take(job).await;
                f.ok(f.of(run, Purpose::Permit).await.call("d", EffectClass::AtMostOnce).done()).await;
                f.ok(f.of(run, Purpose::Doubt).await.doubt("d").done()).await;
                f.ok(f.of(run, Purpose::Block).await.wait("w", "key", WaitType::Human, false).done()).await;
                (job, run)
            };
            jobs.push(job);
        }
    }
    mine.reverse();
    theirs.reverse();
    let mut everybody: Vec<JobId> = mine.iter().chain(&theirs).copied().collect();
    everybody.sort_unstable_by_key(|job| std::cmp::Reverse(*job));
    for filter in lists().into_iter().filter(|filter| filter.session.is_none()) {
        for (scope, expected) in [
            (Scope::Tenant(one.clone()), &mine),
            (Scope::Tenant(two.clone()), &theirs),
            (Scope::Tenant(TenantId::from("third")), &Vec::new()),
            (Scope::System, &everybody),
        ] {
            assert_eq!(listed(f.store(), &scope, filter.clone()).await, *expected, "{scope:?} {filter:?}");
        }
    }
    for (scope, expected) in [(Scope::Tenant(one), &mine), (Scope::Tenant(two), &theirs), (Scope::System, &everybody)] {
        let mut filter = DoubtFilter { limit: 1, scope: scope.clone(), ..DoubtFilter::default() };
        for unresolved in [None, Some(false)] {
            let mut found = Vec::new();
            (filter.after, filter.unresolved) = (None, unresolved);
            loop {
                let page = f.store().doubts(filter.clone()).await.unwrap();
                found.extend(page.doubts.iter().map(|doubt| doubt.call.job));
                filter.after = page.next;
                if filter.after.is_none() {
                    break;
                }
            }
            found.sort_unstable_by_key(|job| std::cmp::Reverse(*job));
            assert_eq!(&found, expected, "{scope:?}");
        }
    }
}

pub async fn t2_a_page_of_a_session_has_only_its_own_tenants_jobs(f: Fixture) {
    let [one, two] = tenants();
    let mut of = Vec::new();
    for tenant in [&one, &two, &one] {
        of.push(f.create(&Message { client_key: None, ..named(&f, tenant) }).await);
    }
    let by = |session: &str| JobFilter { limit: 1, session: Some(SessionId::from(session)), ..JobFilter::default() };
    assert_eq!(listed(f.store(), &Scope::Tenant(one), by("s")).await, [of[2], of[0]]);
    assert_eq!(listed(f.store(), &Scope::Tenant(two.clone()), by("s")).await, [of[1]]);
    assert_eq!(listed(f.store(), &Scope::System, by("s")).await, [of[2], of[1], of[0]]);
    assert!(listed(f.store(), &Scope::Tenant(two), by("t")).await.is_empty());
}

pub async fn t3_what_the_process_does_is_for_everybody(f: Fixture) {
    let mut jobs = Vec::new();
    for tenant in &tenants() {
        jobs.push(f.create(&Message { deadline: Some(Span::from_secs(5)), session: None, ..named(&f, tenant) }).await);
    }
    let mut claimed = f.claim_ids(8).await;
    claimed.sort_unstable();
    assert_eq!(claimed, jobs);
    f.advance(Span::from_secs(3_600));
    let mut due: Vec<JobId> = f.store().due_timers(None, 9).await.unwrap().timers.iter().map(|row| row.job).collect();
    let mut expired: Vec<JobId> = f.store().expired(None, 9).await.unwrap().iter().map(|lease| lease.job).collect();
    due.sort_unstable();
    expired.sort_unstable();
    assert_eq!((&due, &expired), (&jobs, &jobs));
    let told = f.store().dossiers(0, 9).await.unwrap();
    let whose: Vec<_> = told.jobs.into_iter().map(|dossier| dossier.unwrap().row.tenant).collect();
    assert_eq!((whose, told.amiss.len()), (tenants().to_vec(), 0));
    for job in jobs {
        let run = super::Run { fence: f.state(job).await.fence, job };
        f.ok(f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    }
}
