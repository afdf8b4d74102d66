//! Q: questions.

use std::collections::BTreeMap;

use aetheris_core::event::{
    Failure, JobCancelled, JobFailed, JobResumed, JobWaiting, NodeSkipped, PauseReason, SkipReason, StepResult,
    TimerId, TimerSet, WaitCompleted, WaitEnd,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, InstanceId, JobId, SessionId, SignalId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::projection::WaitingView;
use aetheris_core::time::Span;

use super::{Fixture, Message, snapshot};
use aetheris_store::unit::Purpose;
use aetheris_store::{BlockedOn, JobFilter, JobRow, Scope::System};

pub(crate) async fn found(f: &Fixture, filter: JobFilter) -> Vec<JobId> {
    let filter = JobFilter { limit: limits::PAGE_JOBS_MAX, ..filter };
    f.store().jobs(filter).await.unwrap().jobs.into_iter().map(|row| row.id).collect()
}

pub async fn q1_pages_are_newest_first_without_gap_or_repetition(f: Fixture) {
    let mut jobs = Vec::new();
    for place in 0..7 {
        jobs.push(f.pending().await);
        // Jobs of one moment keep an order too.
        f.advance(Span::from_micros(place / 3));
    }
    jobs.reverse();
    for limit in 1..9 {
        let (mut read, mut filter) = (Vec::new(), JobFilter { limit, ..JobFilter::default() });
        loop {
            let page = f.store().jobs(filter.clone()).await.unwrap();
            assert!(page.jobs.len() <= limit);
            assert!(page.next.is_none() || page.next == page.jobs.last().map(|row| row.id));
            read.extend(page.jobs.iter().map(|row| row.id));
            let Some(next) = page.next else { break };
            filter.before = Some(next);
        }
        assert_eq!(read, jobs, "pages of {limit}");
    }
}

pub async fn q1_a_page_that_is_the_last_names_no_other(f: Fixture) {
    for _ in 0..4 {
        f.pending().await;
    }
    let page = f.store().jobs(JobFilter { limit: 4, ..JobFilter::default() }).await.unwrap();
    assert_eq!((page.jobs.len(), page.next), (4, None));
}

pub async fn q1_pages_are_stable_while_jobs_arrive(f: Fixture) {
    let old = [f.pending().await, f.pending().await, f.pending().await];
    let page = f.store().jobs(JobFilter { limit: 2, ..JobFilter::default() }).await.unwrap();
    f.pending().await;
    let rest = f.store().jobs(JobFilter { before: page.next, limit: 2, ..JobFilter::default() }).await.unwrap();
    assert_eq!(rest.jobs.into_iter().map(|row| row.id).collect::<Vec<_>>(), [old[0]]);
}

pub async fn q1_a_page_is_bounded(f: Fixture) {
    for _ in 0..=limits::PAGE_JOBS_MAX {
        f.pending().await;
    }
    let page = f.store().jobs(JobFilter { limit: usize::MAX, ..JobFilter::default() }).await.unwrap();
    assert_eq!(page.jobs.len(), limits::PAGE_JOBS_MAX);
    assert!(page.next.is_some());
    let none = f.store().jobs(JobFilter::default()).await.unwrap();
    assert_eq!((none.jobs.len(), none.next), (0, None));
    assert_eq!(snapshot::jobs(f.store()).await.len(), limits::PAGE_JOBS_MAX + 1);
}

pub async fn q2_by_status(f: Fixture) {
    let cancelled = f.pending().await;
    f.ok(f.draft(cancelled, Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done()).await;
    let running = f.running().await.job;
    let pending = f.pending().await;
    let by = |statuses: &[JobStatus]| JobFilter { statuses: statuses.to_vec(), ..JobFilter::default() };
    assert_eq!(found(&f, by(&[JobStatus::Pending])).await, [pending]);
    assert_eq!(found(&f, by(&[JobStatus::Running, JobStatus::Cancelled])).await, [running, cancelled]);
    assert_eq!(found(&f, by(&[JobStatus::Failed])).await, []);
    assert_eq!(found(&f, by(&[])).await, [pending, running, cancelled]);
}

pub async fn q2_by_agent_and_session(f: Fixture) {
    let (agent, session) = (AgentName::from("other"), SessionId::from("s"));
    let plain = f.pending().await;
    let theirs = f.create(&Message { agent: agent.clone(), ..f.message() }).await;
    let both = f.create(&Message { agent: agent.clone(), session: Some(session.clone()), ..f.message() }).await;
    let talk = f.create(&Message { session: Some(session.clone()), ..f.message() }).await;
    let of =
        |agent: Option<AgentName>, session: Option<SessionId>| JobFilter { agent, session, ..JobFilter::default() };
    assert_eq!(found(&f, of(Some(agent.clone()), None)).await, [both, theirs]);
    assert_eq!(found(&f, of(None, Some(session.clone()))).await, [talk, both]);
    assert_eq!(found(&f, of(Some(agent), Some(session))).await, [both]);
    assert_eq!(found(&f, of(Some(AgentName::from("agent")), None)).await, [talk, plain]);
    assert_eq!(found(&f, of(Some(AgentName::from("Agent")), None)).await, []);
}

pub async fn q2_by_label(f: Fixture) {
    let with = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let one = f.create(&Message { labels: with(&[("team", "red"), ("size", "s")]), ..f.message() }).await;
    let two = f.create(&Message { labels: with(&[("team", "blue"), ("color", "red")]), ..f.message() }).await;
    let three = f.create(&Message { labels: with(&[("team", "red")]), ..f.message() }).await;
    let by =
        |key: &str, value: &str| JobFilter { label: Some((key.to_owned(), value.to_owned())), ..JobFilter::default() };
    assert_eq!(found(&f, by("team", "red")).await, [three, one]);
    assert_eq!(found(&f, by("team", "blue")).await, [two]);
    assert_eq!(found(&f, by("red", "team")).await, []);
    assert_eq!(found(&f, by("team", "")).await, []);
}

pub async fn q2_by_what_they_wait_for(f: Fixture) {
    let mut waits = Vec::new();
    for (wait_type, park) in [(WaitType::Human, true), (WaitType::Signal, false), (WaitType::Human, false)] {
        let run = f.running().await;
        f.ok(f.of(run, Purpose::Block).await.wait("w", "key", wait_type, park).done()).await;
        waits.push(run.job);
    }
    f.pending().await;
    let by = |blocked_on| JobFilter { blocked_on: Some(blocked_on), ..JobFilter::default() };
    assert_eq!(found(&f, by(BlockedOn::Type(WaitType::Human))).await, [waits[2], waits[0]]);
    assert_eq!(found(&f, by(BlockedOn::Type(WaitType::Timer))).await, []);
    assert_eq!(found(&f, by(BlockedOn::Anything)).await, [waits[2], waits[1], waits[0]]);
    let filter = JobFilter { statuses: vec![JobStatus::Parked], ..by(BlockedOn::Type(WaitType::Human)) };
    assert_eq!(found(&f, filter).await, [waits[0]]);
}

/// How a job is brought to a state that a filter can ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Blocked(WaitType, bool),
    Cancelled,
    Completed,
    Doubted,
    Failed,
    Paused,
    PausedWait,
    Running,
}

async fn bring(f: &Fixture, message: &Message, kind: Kind) {
    let job = f.create(message).await;
    let run = f.take(job).await;
    if kind == Kind::Doubted {
        f.ok(f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
    }
    let draft = f.of(run, Purpose::Record).await;
    let draft = match kind {
        Kind::Blocked(wait_type, park) => draft.wait("w", "key", wait_type, park),
        Kind::Cancelled => draft.event(JobCancelled {}),
        Kind::Completed => draft.complete(),
        Kind::Doubted => draft.doubt("c").event(JobWaiting {
            correlation_key: None,
            doubt: true,
            node: "c".into(),
            park: false,
            reason: None,
            wait_type: WaitType::Timer,
        }),
        Kind::Failed => draft.event(JobFailed { error: Failure::new("broken", "broken"), node: None }),
        Kind::Paused => draft.pause(),
        Kind::PausedWait => draft.wait("w", "key", WaitType::Human, false),
        Kind::Running => return,
    };
    f.ok(draft.done()).await;
    if kind == Kind::PausedWait {
        f.ok(f.draft(job, Purpose::Pause, Guard::Outside).await.pause().done()).await;
    }
}

/// Whether a job is asked for: each part of the filter by itself.
fn wanted(row: &JobRow, filter: &JobFilter) -> bool {
    let waits = |of: &dyn Fn(&WaitingView) -> bool| row.waiting.as_ref().is_some_and(of);
    let blocked = match filter.blocked_on {
        None => true,
        Some(BlockedOn::Anything) => row.waiting.is_some(),
        Some(BlockedOn::Someone) => waits(&|on| on.doubt || !matches!(on.wait_type, WaitType::Timer | WaitType::Child)),
        Some(BlockedOn::Type(wait_type)) => waits(&|on| on.wait_type == wait_type),
    };
    blocked
        && filter.agent.as_ref().is_none_or(|agent| *agent == row.agent)
        && filter.session.as_ref().is_none_or(|session| row.session.as_ref() == Some(session))
        && filter.label.as_ref().is_none_or(|(key, value)| row.labels.get(key) == Some(value))
        && (filter.statuses.is_empty() || filter.statuses.contains(&row.status))
}

/// Jobs in every state, of two agents, with and without labels and session.
async fn of_every_kind(f: &Fixture) {
    let ended = [Kind::Cancelled, Kind::Completed, Kind::Failed];
    let others = [
        Kind::Blocked(WaitType::Human, false),
        Kind::Blocked(WaitType::Timer, false),
        Kind::Blocked(WaitType::Signal, false),
        Kind::Blocked(WaitType::Webhook, true),
        Kind::Doubted,
        Kind::Paused,
        Kind::PausedWait,
        Kind::Running,
    ];
    let labelled = |place: usize| {
        let value = [None, Some("a"), Some("b")][place % 3];
        value.map(|value| ("team".to_owned(), value.to_owned())).into_iter().collect::<BTreeMap<_, _>>()
    };
    let mut place = 0;
    for agent in ["agent", "other"] {
        let message = || Message { agent: AgentName::from(agent), ..f.message() };
        for kind in ended.into_iter().chain(others) {
            for _ in 0..3 {
                bring(f, &Message { labels: labelled(place), ..message() }, kind).await;
                place += 1;
            }
        }
        // A session goes on only behind what has ended: the last one of each is not.
        for (session, last) in ["s", "t", "u", "v", "w"].into_iter().zip(others) {
            let session = Some(SessionId::from(session));
            for kind in ended.into_iter().chain([last]) {
                bring(f, &Message { labels: labelled(place), session: session.clone(), ..message() }, kind).await;
                place += 1;
            }
        }
    }
    for (place, agent) in ["agent", "other", "agent", "other"].into_iter().enumerate() {
        let session = (place < 2).then(|| SessionId::from("s"));
        let agent = AgentName::from(agent);
        f.create(&Message { agent, labels: labelled(1 + place / 2), session, ..f.message() }).await;
    }
}

/// Whichever of them an index serves, the others are asked too.
pub async fn q2_every_filter_holds_beside_every_other(f: Fixture) {
    of_every_kind(&f).await;
    let all = snapshot::jobs(f.store()).await;
    let blocked = [BlockedOn::Anything, BlockedOn::Someone]
        .into_iter()
        .chain([WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook].map(BlockedOn::Type));
    let blocked: Vec<Option<BlockedOn>> = [None].into_iter().chain(blocked.map(Some)).collect();
    let mut statuses: Vec<Vec<JobStatus>> = JobStatus::ALL.map(|status| vec![status]).to_vec();
    statuses.extend([vec![], vec![JobStatus::Waiting, JobStatus::Paused, JobStatus::Pending]]);
    let label = ("team".to_owned(), "a".to_owned());
    let mut met = 0;
    for agent in [None, Some(AgentName::from("other"))] {
        for session in [None, Some("s"), Some("t"), Some("w")].map(|session| session.map(SessionId::from)) {
            for label in [None, Some(label.clone())] {
                for blocked_on in &blocked {
                    for statuses in &statuses {
                        let (agent, session, label) = (agent.clone(), session.clone(), label.clone());
                        let (blocked_on, statuses) = (*blocked_on, statuses.clone());
                        let filter = JobFilter { agent, blocked_on, label, session, statuses, ..JobFilter::default() };
                        let expected: Vec<JobId> =
                            all.iter().filter(|row| wanted(row, &filter)).map(|row| row.id).collect();
                        met += usize::from(!expected.is_empty());
                        assert_eq!(found(&f, filter.clone()).await, expected, "{filter:?}");
                    }
                }
            }
        }
    }
    assert!(met > 200, "{met} filters found something");
}

pub async fn q2_what_is_paused(f: Fixture) {
    let parked = f.running().await;
    f.ok(f.of(parked, Purpose::Block).await.wait("w", "key", WaitType::Human, true).done()).await;
    let (held, pending) = (f.running().await, f.pending().await);
    f.pending().await;
    for job in [parked.job, pending, held.job] {
        f.advance(Span::from_secs(1));
        let guard = if job == held.job { held.guard() } else { Guard::Outside };
        f.ok(f.draft(job, Purpose::Pause, guard).await.pause().done()).await;
        let row = f.store().job(System, job).await.unwrap().unwrap();
        assert_eq!((row.status, row.holder), (JobStatus::Paused, None));
        assert_eq!(row.paused, Some((PauseReason::Operator, f.now().await)));
    }
    let since = f.now().await;
    f.advance(Span::from_secs(1));
    // What happens to it meanwhile does not move the moment.
    let at = aetheris_core::event::TimerSet { after_us: 1, timer: aetheris_core::event::TimerId::Deadline };
    f.ok(f.draft(held.job, Purpose::Timer, Guard::Outside).await.event(at).done()).await;
    assert_eq!(f.store().job(System, held.job).await.unwrap().unwrap().paused, Some((PauseReason::Operator, since)));
    let by = JobFilter { statuses: vec![JobStatus::Paused], ..JobFilter::default() };
    assert_eq!(found(&f, by).await, [pending, held.job, parked.job]);
    // An open wait can be ended while its job is paused: it stays listed.
    let waits = JobFilter { blocked_on: Some(BlockedOn::Type(WaitType::Human)), ..JobFilter::default() };
    assert_eq!(found(&f, waits).await, [parked.job]);
    f.ok(f.draft(parked.job, Purpose::Pause, Guard::Outside).await.event(JobResumed {}).done()).await;
    let row = f.store().job(System, parked.job).await.unwrap().unwrap();
    assert_eq!((row.status, row.paused, row.waiting.is_some()), (JobStatus::Parked, None, true));
    assert_eq!(f.store().status().await.unwrap().jobs[&JobStatus::Paused], 2);
}

pub async fn q6_waits_have_their_times(f: Fixture) {
    let run = f.running().await;
    let timer = TimerSet { after_us: 60_000_000, timer: TimerId::Wait("w".into()) };
    let bounded = f.of(run, Purpose::Block).await.wait("w", "key", WaitType::Human, true).event(timer).done();
    let first = f.ok(bounded).await.at;
    f.advance(Span::from_secs(5));
    let open = f.running().await;
    let second = f.ok(f.of(open, Purpose::Block).await.wait("w", "other", WaitType::Signal, false).done()).await.at;
    f.pending().await;
    // What is written to a job that waits does not begin its wait anew.
    f.advance(Span::from_secs(5));
    f.ok(aetheris_store::UnitOfWork::new(f.ids.event(), run.job, Purpose::Signal, Guard::Outside)).await;
    let waits = async |filter: JobFilter| {
        let page = f.store().waits(JobFilter { limit: 8, ..filter }).await.unwrap();
        assert_eq!(page.next, None);
        page.waits.into_iter().map(|wait| (wait.row.id, wait.since, wait.deadline)).collect::<Vec<_>>()
    };
    let (bounded, open) = ((run.job, first, Some(first.after(Span::from_secs(60)))), (open.job, second, None));
    assert_eq!(waits(JobFilter::default()).await, [open, bounded]);
    let human = JobFilter { blocked_on: Some(BlockedOn::Type(WaitType::Human)), ..JobFilter::default() };
    assert_eq!(waits(human).await, [bounded]);
    let page = f.store().waits(JobFilter { limit: 1, ..JobFilter::default() }).await.unwrap();
    assert_eq!((page.waits.len(), page.next), (1, Some(open.0)));
    // One that has waited before waits since its last wait began.
    let over = WaitCompleted { by: WaitEnd::Time, node: "w".into() };
    f.ok(f.draft(open.0, Purpose::Timer, Guard::Outside).await.event(over).done()).await;
    let again = f.running_among(open.0).await;
    f.advance(Span::from_secs(5));
    let third = f.ok(f.of(again, Purpose::Block).await.wait("v", "third", WaitType::Signal, false).done()).await.at;
    assert_eq!(waits(JobFilter::default()).await, [(open.0, third, None), bounded]);
}

/// And not those of the first.
pub async fn q6_a_second_wait_has_its_own_times(f: Fixture) {
    let mut run = f.running().await;
    let mut began = Vec::new();
    for node in ["first", "second"] {
        f.advance(Span::from_secs(5));
        let timer = TimerSet { after_us: 60_000_000, timer: TimerId::Wait(node.into()) };
        let draft = f.of(run, Purpose::Block).await.wait(node, node, WaitType::Human, false).event(timer);
        let at = f.ok(draft.done()).await.at;
        let page = f.store().waits(JobFilter { limit: 8, ..JobFilter::default() }).await.unwrap();
        let times: Vec<_> = page.waits.iter().map(|wait| (wait.since, wait.deadline)).collect();
        assert_eq!(times, [(at, Some(at.after(Span::from_secs(60))))], "{node}");
        began.push(at);
        let by = WaitEnd::Signal { payload: Json::null(), signal: SignalId::from_u128(1) };
        let ended = WaitCompleted { by, node: node.into() };
        f.ok(f.draft(run.job, Purpose::Signal, Guard::Outside).await.event(ended).done()).await;
        run = f.take(run.job).await;
        f.ok(f.of(run, Purpose::Record).await.finish(node, Some(Json::null()), StepResult::Success).done()).await;
    }
    assert!(began[0] < began[1]);
}

pub async fn q2_filters_hold_across_pages(f: Fixture) {
    let mut expected = Vec::new();
    for place in 0..9 {
        let priority = place % 3;
        let session = (priority == 1).then(|| SessionId::from("s"));
        let job = f.create(&Message { session: session.clone(), ..f.message() }).await;
        if session.is_some() {
            expected.push(job);
        }
    }
    expected.reverse();
    let filter = JobFilter { limit: 2, session: Some(SessionId::from("s")), ..JobFilter::default() };
    let first = f.store().jobs(filter.clone()).await.unwrap();
    let second = f.store().jobs(JobFilter { before: first.next, ..filter }).await.unwrap();
    let read: Vec<JobId> = first.jobs.iter().chain(&second.jobs).map(|row| row.id).collect();
    assert_eq!((read, second.next), (expected, None));
}

pub async fn q3_events_come_after_a_place(f: Fixture) {
    let job = f.running().await.job;
    let places = |after, limit| {
        let events = f.store().events(System, job, after, limit);
        async move { events.await.unwrap().into_iter().map(|row| row.seq).collect::<Vec<_>>() }
    };
    assert_eq!(places(0, 9).await, [1, 2, 3]);
    assert_eq!(places(1, 9).await, [2, 3]);
    assert_eq!(places(0, 2).await, [1, 2]);
    assert!(places(3, 9).await.is_empty());
    assert!(places(u64::MAX >> 1, 9).await.is_empty());
    assert!(places(0, 0).await.is_empty());
}

pub async fn q3_a_page_of_events_is_bounded(f: Fixture) {
    let run = f.running().await;
    for unit in 0..=limits::PAGE_EVENTS_MAX / limits::UNIT_EVENTS_MAX {
        let mut draft = f.of(run, Purpose::Record).await;
        for n in 0..limits::UNIT_EVENTS_MAX {
            let node = format!("n{unit}.{n}").as_str().into();
            draft = draft.event(NodeSkipped { node, reason: SkipReason::Upstream });
        }
        f.ok(draft.done()).await;
    }
    let page = f.store().events(System, run.job, 0, usize::MAX).await.unwrap();
    assert_eq!(page.len(), limits::PAGE_EVENTS_MAX);
    let all = snapshot::events(f.store(), run.job).await;
    assert_eq!(all.len() as u64, f.state(run.job).await.seq);
}

pub async fn q3_a_page_of_events_is_bounded_in_bytes(f: Fixture) {
    let run = f.running().await;
    let large = Json::new("x".repeat(limits::PAGE_EVENTS_BYTES_MAX / 2).into());
    for n in 0..4 {
        f.ok(f.of(run, Purpose::Record).await.step(&format!("n{n}"), large.clone()).done()).await;
    }
    let page = f.store().events(System, run.job, 0, usize::MAX).await.unwrap();
    let bytes: usize = page.iter().map(|row| row.payload.len()).sum();
    let newest = page.last().map_or(0, |row| row.payload.len());
    assert!(bytes >= limits::PAGE_EVENTS_BYTES_MAX && bytes - newest < limits::PAGE_EVENTS_BYTES_MAX, "{bytes}");
    let all = snapshot::events(f.store(), run.job).await;
    assert_eq!(all.len() as u64, f.state(run.job).await.seq);
    // One event alone is given whatever its size.
    let one = Json::new("x".repeat(limits::PAYLOAD_BYTES_MAX - 256).into());
    f.ok(f.of(run, Purpose::Record).await.step("n9", one).done()).await;
    let last = f.state(run.job).await.seq;
    assert_eq!(f.store().events(System, run.job, last - 1, 9).await.unwrap().len(), 1);
}

/// One that fills it to the last byte ends it; one byte less, and another comes with it.
pub async fn q3_a_page_of_events_ends_with_the_one_that_fills_it(f: Fixture) {
    for (missing, brought) in [(0, 4), (1, 5)] {
        let run = f.running().await;
        let seq = f.store().job(System, run.job).await.unwrap().unwrap().seq;
        let part = limits::PAGE_EVENTS_BYTES_MAX / 4;
        for bytes in [part, part, part, part - missing, part, part] {
            f.fill(run, bytes).await;
        }
        let page = f.store().events(System, run.job, seq, usize::MAX).await.unwrap();
        assert_eq!(page.len(), brought, "{missing} bytes are missing");
        let rest = f.store().events(System, run.job, page[brought - 1].seq, usize::MAX).await.unwrap();
        assert_eq!(rest.len(), 6 - brought);
    }
}

pub async fn q4_what_is_not_there_is_none(f: Fixture) {
    let (store, job) = (f.store(), JobId::from_u128(5));
    assert_eq!(store.job(System, job).await.unwrap(), None);
    assert_eq!(store.history(System, job, true).await.unwrap(), None);
    assert_eq!(store.events(System, job, 0, 9).await.unwrap(), []);
    assert_eq!(store.timers(System, job).await.unwrap(), []);
    assert_eq!(store.evidence(System, job).await.unwrap(), []);
    assert_eq!(store.agent(TenantId::default(), AgentName::from("nobody")).await.unwrap(), None);
    assert!(!store.delete_agent(TenantId::default(), AgentName::from("nobody")).await.unwrap());
    assert_eq!(store.plan(Hash::of(b"nothing")).await.unwrap(), None);
    assert_eq!(store.in_doubt(9).await.unwrap(), []);
    assert_eq!(store.expired(None, 9).await.unwrap(), []);
    assert_eq!(store.held_by(InstanceId::from_u128(5), None, 9).await.unwrap(), []);
    let due = store.due_timers(None, 9).await.unwrap();
    assert_eq!((due.timers, due.next), (Vec::new(), None));
    assert_eq!(f.claim(4).await, []);
}

pub async fn q5_the_status_counts_what_is_there(f: Fixture) {
    let begin = f.now().await;
    assert_eq!(f.store().status().await.unwrap().jobs, BTreeMap::new());
    let run = f.running().await;
    f.pending().await;
    f.pending().await;
    f.advance(Span::from_secs(7));
    let status = f.store().status().await.unwrap();
    assert_eq!(status.jobs, BTreeMap::from([(JobStatus::Pending, 2), (JobStatus::Running, 1)]));
    assert_eq!((status.now.since(begin), status.generation), (Span::from_secs(7), run.fence.generation));
}

pub async fn q5_the_writer_counts_accepted_units(f: Fixture) {
    let before = f.store().status().await.unwrap().writer;
    let job = f.pending().await;
    f.refused(f.creation(&Message { job, ..f.message() })).await;
    let after = f.store().status().await.unwrap().writer;
    assert_eq!(after.units - before.units, 1);
    assert!(after.commits > before.commits && after.rows > before.rows && after.bytes > before.bytes);
}

pub async fn q7_one_effect_is_read_by_its_key(f: Fixture) {
    let run = f.running().await;
    for node in ["a", "b"] {
        f.ok(f.of(run, Purpose::Permit).await.call(node, EffectClass::AtMostOnce).done()).await;
        let result = Json::new(format!("of {node}").into());
        f.ok(f.of(run, Purpose::Record).await.committed(node, result).done()).await;
    }
    let all = f.store().history(System, run.job, true).await.unwrap().unwrap().effects;
    assert_eq!(all.len(), 2);
    for effect in all {
        assert_eq!(f.store().effect(System, run.job, effect.key).await.unwrap(), Some(effect));
    }
    let unknown = IdempotencyKey::from_u128(9);
    assert_eq!(f.store().effect(System, run.job, unknown).await.unwrap(), None);
    assert_eq!(f.store().effect(System, JobId::from_u128(5), unknown).await.unwrap(), None);
}

pub async fn q10_dossiers_have_every_job_once_and_nothing_is_amiss(f: Fixture) {
    let run = f.running().await;
    let timer = TimerSet { after_us: 1_000_000, timer: TimerId::Wait("w".into()) };
    f.ok(f.of(run, Purpose::Block).await.wait("w", "k", WaitType::Human, true).event(timer).done()).await;
    let ended = f.running().await;
    f.ok(f.of(ended, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
    let held = f.running().await;
    let mut all = vec![run.job, ended.job, held.job];
    let delayed = Some(f.now().await.after(Span::from_secs(9)));
    while all.len() <= limits::DOSSIERS_MAX {
        let session = Some(SessionId::from("s")).filter(|_| all.len() % 2 == 0);
        let labels = [("team".to_owned(), "a".to_owned())].into();
        let run_at = delayed.filter(|_| all.len() % 3 == 0);
        all.push(f.create(&Message { labels, run_at, session, ..f.message() }).await);
    }
    let heads = in_places(&f, &all).await;
    assert!(heads > 1, "{heads} jobs can be claimed");
    for step in [1, 7, 64, 1_000, u64::MAX] {
        let (mut from, mut read) = (0u64, Vec::new());
        loop {
            let found = f.store().dossiers(from, from.saturating_add(step)).await.unwrap();
            assert_eq!(found.amiss, [], "{step}");
            read.extend(found.jobs.into_iter().map(|job| job.unwrap().row.id));
            assert!(found.next > from, "{step}: {from} and then {}", found.next);
            from = found.next;
            if from >= found.end {
                break;
            }
        }
        assert_eq!(read, all, "{step}");
    }
    // What is in a place at one time is in it when that has passed.
    f.advance(Span::from_secs(10));
    f.claim(2).await;
    assert_eq!(f.store().dossiers(0, 64).await.unwrap().amiss, []);
    assert!(in_places(&f, &all).await > heads);
}

/// Each job's placing is what its row and its session make of it. How many of them claims find now.
async fn in_places(f: &Fixture, all: &[JobId]) -> usize {
    let (mut from, mut placed, mut found_now) = (0, Vec::new(), 0);
    loop {
        let found = f.store().dossiers(from, u64::MAX).await.unwrap();
        assert_eq!(found.now, f.now().await);
        for dossier in found.jobs.into_iter().map(Result::unwrap) {
            let (placing, row) = (dossier.placing, dossier.row);
            let pending = row.status == JobStatus::Pending;
            let behind = pending && f.store().ahead_in_session(System, row.id).await.unwrap().is_some();
            assert_eq!((placing.pending, placing.behind, placing.not_before), (pending, behind, row.not_before));
            // From now on, or from its time on if that is still to come; one behind another waits for its turn.
            let time = row.not_before.filter(|at| *at > found.now);
            let from = placing.delayed_until.filter(|at| *at > found.now);
            let finds = placing.ready || placing.delayed_until.is_some();
            assert!(!(placing.ready && placing.delayed_until.is_some()), "{placing:?}");
            assert_eq!((finds, from), (pending && (time.is_some() || !behind), time), "{placing:?}");
            found_now += usize::from(placing.ready);
            placed.push(row.id);
        }
        from = found.next;
        if from >= found.end {
            break;
        }
    }
    assert_eq!(placed, all);
    found_now
}
