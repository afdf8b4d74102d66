//! Rows that cannot be read hold up no others, and no transaction is longer for the number of rows that wait for it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use aetheris_check::{ClientHistory, Invariant, check_store};
use aetheris_core::event::{EventKind, JobCancelled, JobWaiting, TimerId, TimerSet};
use aetheris_core::id::{AgentName, JobId, SessionId, SignalId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::time::Span;
use aetheris_store::amiss::{Absent, Leftover};
use aetheris_store::system::SystemClock;
use aetheris_store::{
    Amiss, BlockedOn, DoubtFilter, ErrorKind, Heartbeat, InboxWrite, JobFilter, LeaseRenewal, Purpose, Renewal, Scope,
    UnitOfWork,
};
use aetheris_store_conformance::fixture::{agent, worker};
use aetheris_store_conformance::{Fixture, Message};
use aetheris_store_sqlite::{Custody, Stop, backup, stage};

use crate::folder::{At, Folder};

/// A store, and a hand that writes past it.
async fn opened() -> (Fixture, rusqlite::Connection) {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let hand = rusqlite::Connection::open(folder.database()).unwrap();
    hand.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    (fixture, hand)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_that_cannot_be_read_hold_up_no_other() {
    let (fixture, hand) = opened().await;
    for _ in 0..3 {
        let run = fixture.running().await;
        let timer = TimerSet { after_us: 1_000_000, timer: TimerId::Wait("w".into()) };
        let unit = fixture.of(run, Purpose::Block).await.wait("w", "key", WaitType::Human, true).event(timer).done();
        fixture.ok(unit).await;
    }
    fixture.advance(Span::from_secs(2));
    let first = "UPDATE timers SET timer = 'later:w' WHERE job IN (SELECT job FROM timers ORDER BY due, job LIMIT 2)";
    assert_eq!(hand.execute(first, []).unwrap(), 2);
    for limit in [1, 2, 8] {
        let due = fixture.store().due_timers(None, limit).await.unwrap();
        assert_eq!(due.timers.len(), 1, "{limit}");
        let last = due.timers.last().cloned();
        assert_eq!(fixture.store().due_timers(last, limit).await.unwrap().timers, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_cannot_be_read_costs_nobody_a_claim_or_a_list() {
    let (fixture, hand) = opened().await;
    let broken = fixture.pending().await;
    let other = fixture.pending().await;
    hand.execute("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
    assert_eq!(listed(&fixture, 9).await, [other]);
    assert_eq!(fixture.claim_ids(1).await, []);
    assert_eq!(fixture.claim_ids(1).await, [other]);
    // It is tried again, and found when it can be read.
    hand.execute("UPDATE jobs SET labels = NULL WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
    fixture.advance(limits::SWEEP_BACKOFF_MAX.minus(Span::from_micros(1)));
    assert_eq!(fixture.claim_ids(1).await, []);
    fixture.advance(Span::from_micros(1));
    assert_eq!(fixture.claim_ids(1).await, [broken]);
}

/// Whoever then reads the history is told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_cannot_be_read_keeps_nobody_from_a_claim() {
    for spoil in ["SET id = x'00'", "SET payload = 'nonsense'"] {
        let (fixture, hand) = opened().await;
        let (broken, other) = (fixture.pending().await, fixture.pending().await);
        let first = format!("UPDATE events {spoil} WHERE seq = 1 AND job = (SELECT num FROM jobs WHERE id = ?1)");
        assert_eq!(hand.execute(&first, [&broken.to_bytes()[..]]).unwrap(), 1);
        let claimed = fixture.claim(2).await;
        let whole: Vec<_> = claimed.iter().map(|claimed| (claimed.job, claimed.history.is_some())).collect();
        assert_eq!(whole, [(broken, false), (other, true)], "{spoil}");
        let error = fixture.store().history(Scope::System, broken, false).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_behind_its_events_costs_nobody_a_claim() {
    let (fixture, hand) = opened().await;
    let broken = fixture.pending().await;
    let other = fixture.pending().await;
    hand.execute("UPDATE jobs SET seq = 1 WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
    assert_eq!(fixture.claim_ids(1).await, []);
    // And nobody a second one.
    assert_eq!(fixture.claim_ids(1).await, [other]);
}

/// An event behind a gap would be the last that the job ever gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_ahead_of_its_events_costs_nobody_a_claim() {
    for ahead in [1, 1 << 40, i64::MAX - 3] {
        let (fixture, hand) = opened().await;
        let [broken, other] = [fixture.pending().await, fixture.pending().await];
        let place = "UPDATE jobs SET seq = seq + ?2 WHERE id = ?1";
        assert_eq!(hand.execute(place, (&broken.to_bytes()[..], ahead)).unwrap(), 1);
        assert_eq!(fixture.claim_ids(1).await, [], "{ahead}");
        assert_eq!(fixture.claim_ids(1).await, [other]);
        // What was wrong is mended, and it goes on.
        hand.execute("UPDATE jobs SET seq = seq - ?2 WHERE id = ?1", (&broken.to_bytes()[..], ahead)).unwrap();
        fixture.advance(limits::SWEEP_BACKOFF_MAX);
        assert_eq!(fixture.claim_ids(1).await, [broken]);
    }
}

/// Neither its run nor whoever takes it back writes to it, and others are taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_row_that_is_ahead_of_its_events_costs_no_other_its_commit() {
    let (fixture, hand) = opened().await;
    let [broken, other] = [fixture.running().await, fixture.running().await];
    let unit = fixture.of(broken, Purpose::Cancel).await.event(JobCancelled {}).done();
    hand.execute("UPDATE jobs SET seq = 9223372036854775807 WHERE id = ?1", [&broken.job.to_bytes()[..]]).unwrap();
    let behind = UnitOfWork { expected_seq: Some(9_223_372_036_854_775_807), ..unit.clone() };
    for unit in [unit, behind] {
        fixture.store().commit(unit).await.unwrap_err();
    }
    fixture.ok(fixture.of(other, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
    fixture.advance(Span::from_secs(3_600));
    let expired = fixture.store().expired(None, 9).await.unwrap();
    assert_eq!(expired.into_iter().map(|lease| lease.job).collect::<Vec<_>>(), [broken.job]);
    assert_eq!(fixture.store().health().await.unwrap().last_write, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_row_that_cannot_be_read_keeps_no_other_from_being_taken_back() {
    let (fixture, hand) = opened().await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(fixture.running().await.job);
    }
    jobs.sort();
    let instance = fixture.store().job(Scope::System, jobs[0]).await.unwrap().unwrap().holder.unwrap().instance;
    for broken in &jobs {
        hand.execute("UPDATE jobs SET epoch = 5000000000 WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
        let others: Vec<JobId> = jobs.iter().copied().filter(|job| job != broken).collect();
        let held = fixture.store().held_by(instance, None, 2).await.unwrap();
        assert_eq!(held.into_iter().map(|(job, _)| job).collect::<Vec<_>>(), others);
        hand.execute("UPDATE jobs SET epoch = 1", []).unwrap();
    }
    hand.execute("UPDATE jobs SET epoch = 5000000000 WHERE id = ?1", [&jobs[0].to_bytes()[..]]).unwrap();
    fixture.advance(Span::from_secs(3_600));
    let mut expired: Vec<JobId> =
        fixture.store().expired(None, 2).await.unwrap().into_iter().map(|lease| lease.job).collect();
    expired.sort();
    assert_eq!(expired, jobs[1..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_that_cannot_be_read_keep_no_other_job_from_being_found_by_its_label() {
    let (fixture, hand) = opened().await;
    let labels: BTreeMap<String, String> = [("team".to_owned(), "a".to_owned())].into();
    let [broken, whole] = [(); 2].map(|()| Message { labels: labels.clone(), ..fixture.message() });
    let [broken, whole] = [fixture.create(&broken).await, fixture.create(&whole).await];
    hand.execute("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
    for statuses in [vec![], vec![JobStatus::Pending]] {
        let label = Some(("team".to_owned(), "a".to_owned()));
        let page = fixture.store().jobs(JobFilter { label, limit: 9, statuses, ..JobFilter::default() }).await.unwrap();
        assert_eq!(page.jobs.iter().map(|row| row.id).collect::<Vec<_>>(), [whole]);
    }
}

/// What no list shows is found by whoever checks every row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_lists_do_not_find_is_found_by_the_check() {
    let (fixture, hand) = opened().await;
    let [lost, other] = [fixture.pending().await, fixture.pending().await];
    hand.execute("UPDATE jobs SET listed = NULL WHERE id = ?1", [&lost.to_bytes()[..]]).unwrap();
    let found = fixture.store().dossiers(0, 64).await.unwrap().jobs;
    assert_eq!(found[0].as_ref().unwrap_err().job, lost);
    assert_eq!(found[1].as_ref().unwrap().row.id, other);
}

/// All jobs, newest first, by pages of a size.
async fn listed(fixture: &Fixture, limit: usize) -> Vec<JobId> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = fixture.store().jobs(JobFilter { before, limit, ..JobFilter::default() }).await.unwrap();
        found.extend(page.jobs.iter().map(|row| row.id));
        before = page.next;
        if before.is_none() {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_goes_on_behind_a_job_that_cannot_be_read() {
    let (fixture, hand) = opened().await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(fixture.pending().await);
    }
    jobs.reverse();
    for (place, broken) in jobs.iter().enumerate() {
        hand.execute("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
        let others: Vec<JobId> = jobs.iter().copied().filter(|job| job != broken).collect();
        for limit in 1..=6 {
            assert_eq!(listed(&fixture, limit).await, others, "place {place} in pages of {limit}");
        }
        hand.execute("UPDATE jobs SET labels = NULL", []).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_of_doubts_goes_on_behind_what_cannot_be_read() {
    let (fixture, hand) = opened().await;
    let mut jobs = Vec::new();
    for _ in 0..4 {
        let run = fixture.running().await;
        fixture.ok(fixture.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
        fixture.ok(fixture.of(run, Purpose::Doubt).await.doubt("c").done()).await;
        fixture.advance(Span::from_secs(1));
        jobs.push(run.job);
    }
    let broken = [
        ("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", "UPDATE jobs SET labels = NULL"),
        (
            "UPDATE ledger SET input_hash = x'00' WHERE job = (SELECT num FROM jobs WHERE id = ?1)",
            "UPDATE ledger SET input_hash = zeroblob(32)",
        ),
    ];
    for (breaks, mends) in broken {
        for (place, broken) in jobs.iter().enumerate() {
            assert_eq!(hand.execute(breaks, [&broken.to_bytes()[..]]).unwrap(), 1);
            let others: Vec<JobId> = jobs.iter().copied().filter(|job| job != broken).collect();
            for limit in 1..=4 {
                assert_eq!(doubts(&fixture, limit).await, others, "place {place} in pages of {limit}");
            }
            hand.execute(mends, []).unwrap();
        }
    }
}

/// The outcome of some call that cannot be read hides nothing of a doubt that is older.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubt_is_told_behind_an_outcome_that_cannot_be_read() {
    let (fixture, hand) = opened().await;
    let run = fixture.running().await;
    fixture.ok(fixture.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
    fixture.ok(fixture.of(run, Purpose::Doubt).await.doubt("c").done()).await;
    fixture.ok(fixture.of(run, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
    let told = async || {
        let filter = DoubtFilter { limit: 9, unresolved: Some(true), ..DoubtFilter::default() };
        fixture.store().doubts(filter).await.unwrap().doubts.remove(0).told
    };
    let whole = told().await;
    assert!(whole.asked.is_some());
    let outcome = EventKind::ToolInvocationFinished.code();
    let newest = "UPDATE events SET kind = ?1, payload = 'x' WHERE seq = (SELECT max(seq) FROM events)";
    assert_eq!(hand.execute(newest, [outcome]).unwrap(), 1);
    assert_eq!(told().await, whole);
}

/// The jobs of all calls in doubt, by pages of a size.
async fn doubts(fixture: &Fixture, limit: usize) -> Vec<JobId> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let filter = DoubtFilter { after, limit, ..DoubtFilter::default() };
        let page = fixture.store().doubts(filter).await.unwrap();
        found.extend(page.doubts.iter().map(|doubt| doubt.call.job));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_due_at_one_moment_come_in_bounded_transactions() {
    const JOBS: usize = 1_300;
    let (fixture, _hand) = opened().await;
    let at = fixture.now().await.after(Span::from_secs(10));
    for _ in 0..JOBS {
        fixture.create(&Message { run_at: Some(at), ..fixture.message() }).await;
    }
    fixture.advance(Span::from_secs(20));
    let rows = async || fixture.store().status().await.unwrap().writer.rows;
    let before = rows().await;
    assert_eq!(fixture.claim_ids(1).await.len(), 1);
    let changed = usize::try_from(rows().await - before).unwrap();
    assert!(changed <= limits::WRITER_BATCH_MAX + 8, "{changed} rows in one transaction");
    let mut claimed = 1;
    while claimed < JOBS {
        let found = fixture.claim_ids(100).await.len();
        assert!(found > 0, "{claimed}");
        claimed += found;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_of_doubts_goes_on_behind_several_that_cannot_be_read() {
    let (fixture, hand) = opened().await;
    let mut jobs = Vec::new();
    // More than one page looks through.
    for _ in 0..40 {
        let run = fixture.running().await;
        fixture.ok(fixture.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
        fixture.ok(fixture.of(run, Purpose::Doubt).await.doubt("c").done()).await;
        fixture.advance(Span::from_secs(1));
        jobs.push(run.job);
    }
    for broken in &jobs[1..39] {
        hand.execute("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
    }
    for limit in 1..=4 {
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..jobs.len() {
            let page = fixture.store().doubts(DoubtFilter { after, limit, ..DoubtFilter::default() }).await.unwrap();
            found.extend(page.doubts.iter().map(|doubt| doubt.call.job));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((found, after), (vec![jobs[0], jobs[39]], None), "in pages of {limit}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_ahead_in_a_session_may_be_one_that_cannot_be_read() {
    let (fixture, hand) = opened().await;
    let [first, second] = [(); 2].map(|()| Message { session: Some(SessionId::from("s")), ..fixture.message() });
    let [first, second] = [fixture.create(&first).await, fixture.create(&second).await];
    assert_eq!(fixture.store().ahead_in_session(Scope::System, second).await.unwrap().map(|row| row.id), Some(first));
    hand.execute("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", [&first.to_bytes()[..]]).unwrap();
    assert_eq!(fixture.store().ahead_in_session(Scope::System, second).await.unwrap(), None);
}

/// Each of the statements that find a page looks at the label's value as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_label_is_its_key_and_its_value_whatever_else_is_asked() {
    let (fixture, _hand) = opened().await;
    let labelled = |value: &str| Message {
        labels: [("team".to_owned(), value.to_owned())].into(),
        session: Some(SessionId::from("s")),
        ..fixture.message()
    };
    let [one, other] = [labelled("a"), labelled("b")];
    let [one, other] = [fixture.create(&one).await, fixture.create(&other).await];
    let agent = fixture.message().agent;
    for (value, job) in [("a", one), ("b", other)] {
        for session in [None, Some(SessionId::from("s"))] {
            for agent in [None, Some(agent.clone())] {
                for statuses in [vec![], vec![JobStatus::Pending]] {
                    let label = Some(("team".to_owned(), value.to_owned()));
                    let (agent, session) = (agent.clone(), session.clone());
                    let filter = JobFilter { agent, label, limit: 9, session, statuses, ..JobFilter::default() };
                    let page = fixture.store().jobs(filter.clone()).await.unwrap();
                    assert_eq!(page.jobs.iter().map(|row| row.id).collect::<Vec<_>>(), [job], "{filter:?}");
                }
            }
        }
    }
}

/// Where very many jobs are in the asked states, a label is looked up by itself, and the rest is asked of what it finds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_label_beside_a_state_that_very_many_jobs_are_in_is_that_states() {
    let (fixture, hand) = opened().await;
    let labelled = || Message { labels: [("team".to_owned(), "a".to_owned())].into(), ..fixture.message() };
    let ended = fixture.take(fixture.create(&labelled()).await).await;
    fixture.ok(fixture.of(ended, Purpose::Finish).await.complete().done()).await;
    let waits = fixture.take(fixture.create(&labelled()).await).await;
    fixture.ok(fixture.of(waits, Purpose::Block).await.wait("w", "k", WaitType::Human, false).done()).await;
    let pending = fixture.create(&labelled()).await;
    let theirs = fixture.create(&Message { agent: AgentName::from("other"), ..labelled() }).await;
    hand.execute("UPDATE meta SET pending = 6000, waiting = 6000", []).unwrap();
    let both = [JobStatus::Pending, JobStatus::Waiting];
    let agent = || Some(fixture.message().agent);
    for (agent, statuses, blocked_on, expected) in [
        (None, &both[..1], None, vec![theirs, pending]),
        (agent(), &both[..1], None, vec![pending]),
        (agent(), &both[..], None, vec![pending, waits.job]),
        (None, &both[..], Some(BlockedOn::Anything), vec![waits.job]),
        (None, &both[..], Some(BlockedOn::Type(WaitType::Timer)), vec![]),
    ] {
        let label = Some(("team".to_owned(), "a".to_owned()));
        let statuses = statuses.to_vec();
        let filter = JobFilter { agent, blocked_on, label, limit: 9, statuses, ..JobFilter::default() };
        let page = fixture.store().jobs(filter.clone()).await.unwrap();
        assert_eq!(page.jobs.iter().map(|row| row.id).collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

/// What a job waits for is asked of its text, too: one that is no JSON hides no other wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_cannot_be_read_hides_no_other_from_whoever_is_asked() {
    let (fixture, hand) = opened().await;
    let asked = fixture.running().await;
    fixture.ok(fixture.of(asked, Purpose::Block).await.wait("w", "k", WaitType::Human, true).done()).await;
    let mut doubts = Vec::new();
    for _ in 0..2 {
        let run = fixture.running().await;
        fixture.ok(fixture.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
        let until = JobWaiting {
            correlation_key: None,
            doubt: true,
            node: "c".into(),
            park: false,
            reason: None,
            wait_type: WaitType::Timer,
        };
        fixture.ok(fixture.of(run, Purpose::Doubt).await.doubt("c").event(until).done()).await;
        doubts.push(run.job);
    }
    hand.execute("UPDATE jobs SET waiting = 'nonsense' WHERE id = ?1", [&doubts[0].to_bytes()[..]]).unwrap();
    let agent = fixture.store().job(Scope::System, asked.job).await.unwrap().unwrap().agent;
    for filter in [JobFilter::default(), JobFilter { agent: Some(agent), ..JobFilter::default() }] {
        let filter = JobFilter { blocked_on: Some(BlockedOn::Someone), limit: 9, ..filter };
        let found = fixture.store().waits(filter).await.unwrap();
        assert_eq!(found.waits.iter().map(|wait| wait.row.id).collect::<Vec<_>>(), [doubts[1], asked.job]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_signal_that_cannot_be_read_hides_no_other() {
    let (fixture, hand) = opened().await;
    let job = fixture.pending().await;
    for (signal, key) in [(1, "first"), (2, "second")] {
        let mut unit = UnitOfWork::new(fixture.ids.event(), job, Purpose::Signal, Guard::Outside);
        unit.inbox.push(InboxWrite::Receive {
            delivered: false,
            key: key.to_owned(),
            payload: Json::new(serde_json::json!({})),
            signal: SignalId::from_u128(signal),
            wait_type: Some(WaitType::Webhook),
        });
        fixture.ok(unit).await;
    }
    hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
    assert_eq!(hand.execute("UPDATE inbox SET wait_type = 99 WHERE key = 'first'", []).unwrap(), 1);
    let kept = fixture.store().kept(Scope::System, job).await.unwrap();
    assert_eq!(kept.iter().map(|head| head.key.as_str()).collect::<Vec<_>>(), ["second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_cannot_be_read_hides_no_other() {
    let (fixture, hand) = opened().await;
    for name in ["a", "b", "c"] {
        fixture.store().put_agent(agent(name, "1")).await.unwrap();
    }
    hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
    assert_eq!(hand.execute("UPDATE agents SET plan_hash = x'00' WHERE name = 'b'", []).unwrap(), 1);
    for limit in [1, 2, 9] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = fixture.store().agents(TenantId::default(), after, limit).await.unwrap();
            found.extend(page.agents.iter().map(|row| row.agent.agent.clone()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, ["a", "agent", "c"].map(AgentName::from), "{limit}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_job_with_another_status_costs_nobody_a_claim() {
    let (fixture, hand) = opened().await;
    hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
    let at = fixture.now().await.after(Span::from_secs(1));
    for status in (1..=9).chain([128, -1]) {
        let [broken, due] = [(); 2].map(|()| Message { run_at: Some(at), ..fixture.message() });
        let [broken, due] = [fixture.create(&broken).await, fixture.create(&due).await];
        let changed = hand.execute("UPDATE jobs SET status = ?2 WHERE id = ?1", (&broken.to_bytes()[..], status));
        assert_eq!(changed.unwrap(), 1);
        fixture.advance(Span::from_secs(2));
        assert_eq!(fixture.claim_ids(9).await, [due], "status {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_job_that_says_why_it_is_paused_costs_nobody_a_claim() {
    let (fixture, hand) = opened().await;
    hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
    let [broken, other] = [fixture.pending().await, fixture.pending().await];
    let paused = "UPDATE jobs SET pause_reason = 0, paused_at = 1 WHERE id = ?1";
    assert_eq!(hand.execute(paused, [&broken.to_bytes()[..]]).unwrap(), 1);
    assert_eq!(fixture.claim_ids(1).await, []);
    assert_eq!(fixture.claim_ids(1).await, [other]);
}

/// An epoch that began anew would be below those that others may still hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_epoch_can_rise_no_further_is_not_claimed() {
    let (fixture, hand) = opened().await;
    let [broken, other] = [fixture.pending().await, fixture.pending().await];
    let last = "UPDATE jobs SET epoch = 4294967295 WHERE id = ?1";
    assert_eq!(hand.execute(last, [&broken.to_bytes()[..]]).unwrap(), 1);
    assert_eq!(fixture.claim_ids(1).await, []);
    assert_eq!(fixture.claim_ids(1).await, [other]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_no_row_lets_through_is_told_of_the_store() {
    let (fixture, hand) = opened().await;
    fixture.pending().await;
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON jobs BEGIN SELECT RAISE(ABORT, 'no'); END";
    hand.execute_batch(refuse).unwrap();
    fixture.store().claim(fixture.request(1)).await.unwrap_err();
    let failed = fixture.store().health().await.unwrap().last_claim.unwrap();
    assert!(failed.error.contains("no"), "{failed:?}");
    hand.execute_batch("DROP TRIGGER refuse").unwrap();
    assert_eq!(fixture.claim_ids(1).await.len(), 1);
    assert_eq!(fixture.store().health().await.unwrap().last_claim, None);
}

/// How many jobs there are per status, by the store's own counts and by its rows.
async fn counted(fixture: &Fixture, hand: &rusqlite::Connection) -> [Vec<u64>; 2] {
    let told = fixture.store().status().await.unwrap().jobs;
    let told = JobStatus::ALL.into_iter().map(|status| told.get(&status).copied().unwrap_or(0)).collect();
    let count = "SELECT count(*) FROM jobs JOIN job_statuses AS s ON s.code = status WHERE s.name = ?1";
    let rows = |status: JobStatus| hand.query_row(count, [status.as_str()], |row| row.get::<_, i64>(0)).unwrap();
    [told, JobStatus::ALL.into_iter().map(|status| rows(status).unsigned_abs()).collect()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_count_costs_nobody_a_commit() {
    let (fixture, hand) = opened().await;
    let run = fixture.running().await;
    let other = fixture.pending().await;
    // As it is after a row that was damaged, and mended by hand.
    hand.execute("UPDATE meta SET pending = 0, running = 0, completed = 7", []).unwrap();
    assert_eq!(fixture.claim_ids(1).await, [other]);
    let [told, rows] = counted(&fixture, &hand).await;
    assert_eq!(told, rows);
    fixture.ok(fixture.of(run, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
    let [told, rows] = counted(&fixture, &hand).await;
    assert_eq!(told, rows);
}

/// As damage of a page, or a hand, can leave it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_cannot_be_costs_nobody_a_commit() {
    for wrong in ["9223372036854775807", "9223372036854775806", "-1", "'many'", "1.5", "x'01'"] {
        for count in ["pending", "running", "completed", "paused"] {
            let (fixture, hand) = opened().await;
            let (run, other) = (fixture.running().await, fixture.pending().await);
            hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
            hand.pragma_update(None, "writable_schema", true).unwrap();
            let loose = "UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'meta'";
            assert_eq!(hand.execute(loose, []).unwrap(), 1);
            let loose = rusqlite::Connection::open(hand.path().unwrap()).unwrap();
            loose.pragma_update(None, "ignore_check_constraints", true).unwrap();
            assert_eq!(loose.execute(&format!("UPDATE meta SET {count} = {wrong}"), []).unwrap(), 1);
            assert_eq!(fixture.claim_ids(1).await, [other], "{count} = {wrong}");
            fixture.ok(fixture.of(run, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
            let [told, rows] = counted(&fixture, &hand).await;
            assert_eq!(told, rows, "{count} = {wrong}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_can_be_counted_no_further_are_written() {
    let (fixture, hand) = opened().await;
    let run = fixture.running().await;
    hand.execute("UPDATE meta SET writes = 9223372036854775807", []).unwrap();
    let leases = vec![LeaseRenewal { fence: run.fence, job: run.job }];
    let beat = Heartbeat { leases, ttl: Span::from_secs(30), worker: worker() };
    assert!(matches!(fixture.store().heartbeat(beat).await.unwrap()[..], [Renewal::Renewed { .. }]));
    fixture.ok(fixture.of(run, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
}

/// No request is to blame for it, and readiness says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_the_store_that_cannot_be_written_is_told_of_the_store() {
    let (fixture, hand) = opened().await;
    let run = fixture.running().await;
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON meta BEGIN SELECT RAISE(ABORT, 'no'); END";
    hand.execute_batch(refuse).unwrap();
    let unit = fixture.of(run, Purpose::Cancel).await.event(JobCancelled {}).done();
    fixture.store().commit(unit.clone()).await.unwrap_err();
    let failed = fixture.store().health().await.unwrap().last_write.unwrap();
    assert_eq!(failed.kind, ErrorKind::Corrupt, "{failed:?}");
    hand.execute_batch("DROP TRIGGER refuse").unwrap();
    fixture.ok(unit).await;
    assert_eq!(fixture.store().health().await.unwrap().last_write, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_id_cannot_be_read_hides_no_other() {
    let (fixture, hand) = opened().await;
    hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(fixture.pending().await);
    }
    jobs.reverse();
    for (place, broken) in jobs.iter().enumerate() {
        for spoiled in [&broken.to_bytes()[..15], &[0xff; 17], b""] {
            let rename = "UPDATE jobs SET id = ?1 WHERE id = ?2";
            assert_eq!(hand.execute(rename, [spoiled, &broken.to_bytes()[..]]).unwrap(), 1);
            let others: Vec<JobId> = jobs.iter().copied().filter(|job| job != broken).collect();
            for limit in 1..=6 {
                assert_eq!(listed(&fixture, limit).await, others, "place {place} in pages of {limit}: {spoiled:?}");
            }
            let filter = JobFilter { limit: 9, statuses: vec![JobStatus::Pending], ..JobFilter::default() };
            let found = fixture.store().jobs(filter).await.unwrap();
            assert_eq!(found.jobs.iter().map(|row| row.id).collect::<Vec<_>>(), others);
            assert_eq!(hand.execute(rename, [&broken.to_bytes()[..], spoiled]).unwrap(), 1);
        }
    }
}

/// What a check finds beside the histories of the jobs, by pieces of a size. Between them it asks for the gaps.
async fn amiss(fixture: &Fixture, step: u64) -> Vec<Amiss> {
    let (mut from, mut to, mut amiss) = (0, step, Vec::new());
    loop {
        let found = fixture.store().dossiers(from, to).await.unwrap();
        amiss.extend(found.amiss);
        if found.end <= to && found.next >= found.end {
            return amiss;
        }
        (from, to) = match found.next.cmp(&to) {
            Ordering::Less => (found.next, to),
            Ordering::Equal => (to, to + step),
            Ordering::Greater => (to, found.next),
        };
    }
}

/// Jobs that claims find now, later, behind another of their session and by their labels, and one that waits.
async fn every_kind(fixture: &Fixture) {
    let run = fixture.running().await;
    let timer = TimerSet { after_us: 1_000_000, timer: TimerId::Wait("w".into()) };
    fixture.ok(fixture.of(run, Purpose::Block).await.wait("w", "key", WaitType::Human, true).event(timer).done()).await;
    let run_at = Some(fixture.now().await.after(Span::from_secs(100)));
    for session in [None, Some(SessionId::from("s"))] {
        for run_at in [None, run_at] {
            let labels: BTreeMap<String, String> = [("team".to_owned(), "a".to_owned())].into();
            fixture.create(&Message { labels, run_at, session: session.clone(), ..fixture.message() }).await;
        }
    }
    fixture.create(&Message { session: Some(SessionId::from("s")), ..fixture.message() }).await;
    fixture.store().put_agent(agent("a", "1")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_history_tells_of_is_found_by_the_check() {
    for (spoil, words) in [
        ("UPDATE jobs SET wait_type = 3 WHERE num = 1", "Wait(Some(Human))"),
        ("DELETE FROM job_labels WHERE job = (SELECT id FROM jobs WHERE num = 2)", "Label(\"team\")"),
        ("UPDATE jobs SET id = x'0102' WHERE num = 4", "Id(4)"),
        ("UPDATE events SET job = 77 WHERE job = 2", "count: 2, of: Number(77), what: Events"),
        ("UPDATE events SET job = -77 WHERE job = 2", "count: 2, of: Number(-77), what: Events"),
        ("UPDATE timers SET job = zeroblob(16)", "count: 1, of: Id(Ok(job_00000000000000000000000000)), what: Timers"),
        (
            "UPDATE job_labels SET job = x'01' WHERE job = (SELECT id FROM jobs WHERE num = 2)",
            "count: 1, of: Id(Err([1])), what: Labels",
        ),
        ("UPDATE meta SET completed = 4", "told: Some({"),
        ("UPDATE meta SET completed = -4", "told: None"),
        ("UPDATE agents SET doc = doc || ' ' WHERE name = 'a'", "Document { fault: Hash, kind: Agent, name: \"a\" }"),
        (
            "UPDATE plans SET doc = doc || ' ' WHERE hash = (SELECT plan_hash FROM agents WHERE name = 'a')",
            "fault: Hash, kind: Plan",
        ),
        ("DELETE FROM plans", "Document { fault: Plan, kind: Agent, name: \"a\" }"),
        (
            "INSERT INTO inbox (signal, job, state, received_at, key, payload) VALUES (zeroblob(16), 9, 0, 1, 'k', '1')",
            "count: 1, of: Number(9), what: Signals",
        ),
        ("DELETE FROM jobs WHERE num = 5", "count: 2, of: Number(5), what: Events"),
    ] {
        let (fixture, hand) = opened().await;
        every_kind(&fixture).await;
        for step in [1, 3, 64] {
            assert_eq!(amiss(&fixture, step).await, []);
        }
        hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
        hand.execute_batch(spoil).unwrap();
        for step in [1, 3, 64] {
            let told = amiss(&fixture, step).await;
            assert_eq!(told.iter().filter(|told| format!("{told:?}").contains(words)).count(), 1, "{spoil}: {told:#?}");
        }
    }
}

/// A store answers how claims find each job, and the check judges it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_claims_do_not_find_at_its_time_is_found_by_the_check() {
    for (spoil, words) in [
        ("ready = 0 WHERE num = 2", "it is pending, and no claim finds it"),
        ("ready = 0, labels = 'nonsense' WHERE num = 2", "it is pending, and no claim finds it"),
        ("ready = 1 WHERE num = 6", "it can be claimed, and another job of its session comes first"),
        ("ready = 1 WHERE num = 3", "its row says that it can be claimed, and that it cannot yet"),
        ("delayed_until = delayed_until - 1 WHERE num = 3", "it is claimed from "),
        ("delayed_until = delayed_until * 2 WHERE num = 3", "no claim finds it before "),
        ("ready = 1, delayed_until = NULL WHERE num = 3", "it can be claimed, and its time is "),
        ("ready = 1 WHERE num = 1", "it is not pending, and its row says that it can be claimed"),
    ] {
        let (fixture, hand) = opened().await;
        every_kind(&fixture).await;
        let told = async || {
            let report = check_store(fixture.store(), &[], &ClientHistory::default()).await.unwrap();
            report.line(Invariant::B7).map_or(vec![], |line| line.violations.clone())
        };
        assert_eq!(told().await, Vec::<String>::new());
        hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
        assert_eq!(hand.execute(&format!("UPDATE jobs SET {spoil}"), []).unwrap(), 1);
        let told = told().await;
        assert!(told.len() == 1 && told[0].contains(words), "{spoil}: {told:?}");
    }
}

/// As a copy of another database can leave it, or a hand: there are more numbers between two jobs than anybody counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_check_walks_through_a_gap_between_the_numbers_of_jobs() {
    for far in [1 << 40, i64::MAX - 1, i64::MAX] {
        let (fixture, hand) = opened().await;
        let jobs = [fixture.pending().await, fixture.pending().await, fixture.pending().await];
        for table in ["jobs SET num = ?1 WHERE num = 3", "events SET job = ?1 WHERE job = 3"] {
            assert!(hand.execute(&format!("UPDATE {table}"), [far]).unwrap() > 0);
        }
        for step in [1, 2, 64] {
            let (mut from, mut seen, mut readings) = (0, Vec::new(), 0);
            loop {
                let found = fixture.store().dossiers(from, from + step).await.unwrap();
                assert_eq!(found.amiss, []);
                seen.extend(found.jobs.iter().map(|job| job.as_ref().unwrap().row.id));
                (from, readings) = (found.next, readings + 1);
                if from >= found.end {
                    break;
                }
            }
            assert!(seen == jobs && readings <= 6, "{seen:?} in {readings} readings of {step}");
        }
        // What is left in the gap of a job that has gone is found by whoever asks for the gap.
        hand.execute("UPDATE events SET job = 1000000 WHERE job = 2", []).unwrap();
        let found = fixture.store().dossiers(3, 64).await.unwrap();
        assert_eq!((found.amiss, found.next), (vec![], far.unsigned_abs()));
        let found = fixture.store().dossiers(64, found.next).await.unwrap();
        let stray = Amiss::Stray { count: 2, of: Absent::Number(1_000_000), what: Leftover::Events };
        assert_eq!((found.amiss, found.next), (vec![stray], far.unsigned_abs()));
    }
}

/// No arrival has a number below nought: whoever goes by the numbers would take the jobs for not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_whose_numbers_no_arrival_gives_are_told() {
    let (fixture, hand) = opened().await;
    for _ in 0..3 {
        fixture.pending().await;
    }
    assert_eq!(fixture.store().dossiers(0, 64).await.unwrap().amiss, []);
    for (table, column) in [("jobs", "num"), ("events", "job")] {
        hand.execute(&format!("UPDATE {table} SET {column} = {column} - 2 WHERE {column} < 3"), []).unwrap();
    }
    let found = fixture.store().dossiers(0, 64).await.unwrap();
    assert!(found.amiss.contains(&Amiss::Numbers { count: 1, least: -1 }), "{:?}", found.amiss);
    assert_eq!(found.jobs.len(), 2);
    assert_eq!(fixture.store().dossiers(1, 64).await.unwrap().amiss, []);
}

/// More than one reading takes: none is read twice or left out, whatever is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reading_of_dossiers_takes_no_more_jobs_than_its_bound() {
    let (fixture, _hand) = opened().await;
    for _ in 0..=2 * limits::DOSSIERS_MAX {
        fixture.pending().await;
    }
    let (mut from, mut read) = (0, Vec::new());
    loop {
        let found = fixture.store().dossiers(from, u64::MAX).await.unwrap();
        read.push(found.jobs.len());
        from = found.next;
        if from >= found.end {
            break;
        }
    }
    assert_eq!(read, [limits::DOSSIERS_MAX, limits::DOSSIERS_MAX, 1]);
}

/// What stands in place of a status is no end, and what cannot be named is held all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_holds_jobs_whose_status_or_id_cannot_be_read() {
    let (folder, elsewhere, target) = (Arc::new(Folder::new()), Folder::new(), Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let hand = rusqlite::Connection::open(folder.database()).unwrap();
    let [odd, nameless, whole] = [fixture.pending().await, fixture.pending().await, fixture.pending().await];
    hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
    assert_eq!(hand.execute("UPDATE jobs SET status = 99 WHERE id = ?1", [&odd.to_bytes()[..]]).unwrap(), 1);
    assert_eq!(hand.execute("UPDATE jobs SET id = x'0102' WHERE id = ?1", [&nameless.to_bytes()[..]]).unwrap(), 1);
    // Nor is a copy refused for the counts.
    hand.execute("UPDATE meta SET pending = 9223372036854775807, running = 1", []).unwrap();
    let file = elsewhere.path().join("backup.db");
    let backed = backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    assert_eq!((backed.jobs, backed.unfinished), (3, 3));
    let staged = stage(&file, &target.database(), &SystemClock, &mut |_| {}).unwrap();
    // The hold has written the status that could not be read.
    let rest = staged.hold_rest(fixture.now().await, &[whole]).unwrap();
    assert_eq!((rest.held, rest.unreadable), (vec![odd], vec![whole]));
    let copy = rusqlite::Connection::open(&staged.path).unwrap();
    let held = "SELECT count(*) FROM jobs WHERE status = 7 AND pause_reason IS NOT NULL AND ready = 0";
    assert_eq!(copy.query_row(held, [], |row| row.get::<_, i64>(0)).unwrap(), 3);
    let told = "SELECT pending, paused FROM meta";
    assert_eq!(copy.query_row(told, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap(), (0, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_contradict_themselves_are_backed_up_and_restored_and_other_damage_is_not() {
    let (folder, elsewhere) = (Arc::new(Folder::new()), Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let hand = rusqlite::Connection::open(folder.database()).unwrap();
    let [broken, other] = [fixture.pending().await, fixture.pending().await];
    let run = fixture.take(broken).await;
    hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
    let spoil = "UPDATE jobs SET delayed_until = 5, ready = 1 WHERE id = ?1";
    assert_eq!(hand.execute(spoil, [&run.job.to_bytes()[..]]).unwrap(), 1);
    let copy = |name: &str| {
        let file = elsewhere.path().join(name);
        backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).map(|backed| (backed.jobs, file))
    };
    let (jobs, file) = copy("whole").unwrap();
    assert_eq!(jobs, 2);
    let target = Folder::new();
    let staged = stage(&file, &target.database(), &SystemClock, &mut |_| {}).unwrap();
    let now = fixture.now().await;
    assert_eq!(staged.hold_rest(now, &[broken, other]).unwrap().unreadable, [broken, other]);
    staged.put_in_place(now, Custody { folder: 1, moved: false, opening: 77 }).unwrap();
    let restored = rusqlite::Connection::open(target.database()).unwrap();
    let held = "SELECT count(*) FROM jobs WHERE status = 7 AND ready = 0 AND delayed_until IS NULL";
    assert_eq!(restored.query_row(held, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    assert_eq!(restored.query_row("PRAGMA quick_check", [], |row| row.get::<_, String>(0)).unwrap(), "ok");
    // A text where the schema has a number.
    let schema = "UPDATE sqlite_schema SET sql = replace(sql, 'worker TEXT', 'worker INTEGER') WHERE name = 'jobs'";
    hand.pragma_update(None, "writable_schema", true).unwrap();
    assert_eq!(hand.execute(schema, []).unwrap(), 1);
    let refused = copy("damaged").unwrap_err().to_string();
    assert!(refused.contains("jobs.worker"), "{refused}");
}
