//! L8 and Q9: the jobs of a session run one after the other, and each can say which one holds it up.

use aetheris_core::event::{JobCancelled, JobResumed, RequeueReason};
use aetheris_core::id::{AgentName, JobId, SessionId};
use aetheris_core::lease::Guard;
use aetheris_core::plan::WaitType;
use aetheris_core::time::Span;

use super::{Fixture, Message};
use aetheris_store::{Scope, unit::Purpose};

async fn in_session(f: &Fixture, session: &str) -> JobId {
    f.create(&Message { session: Some(SessionId::from(session)), ..f.message() }).await
}

pub async fn l8_the_second_waits_for_the_first_to_end(f: Fixture) {
    let (first, second) = (in_session(&f, "s").await, in_session(&f, "s").await);
    assert_eq!(f.claim_ids(8).await, [first]);
    assert_eq!(f.claim_ids(8).await, []);
    let state = f.state(first).await;
    let run = super::Run { fence: state.fence, job: first };
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    assert_eq!(f.claim_ids(8).await, [second]);
}

pub async fn l8_earlier_is_what_was_written_earlier(f: Fixture) {
    let session = Some(SessionId::from("s"));
    let small = Message { session: session.clone(), ..f.message() };
    let great = Message { session, ..f.message() };
    assert!(small.job < great.job);
    assert_eq!(f.create(&great).await, great.job);
    let run = f.take(great.job).await;
    // Its id was made first, and it comes second.
    assert_eq!(f.create(&small).await, small.job);
    assert_eq!(f.claim_ids(8).await, []);
    f.ok(f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    let run = f.take(great.job).await;
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    assert_eq!(f.claim_ids(8).await, [small.job]);
}

pub async fn l8_a_delayed_job_waits_for_its_turn_when_its_moment_comes(f: Fixture) {
    let first = in_session(&f, "s").await;
    let run = f.take(first).await;
    let at = f.now().await.after(Span::from_secs(10));
    let session = Some(SessionId::from("s"));
    let second = f.create(&Message { run_at: Some(at), session, ..f.message() }).await;
    f.advance(Span::from_secs(20));
    assert_eq!(f.claim_ids(8).await, []);
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    assert_eq!(f.claim_ids(8).await, [second]);
}

pub async fn l8_a_blocked_job_holds_its_session(f: Fixture) {
    let (first, second) = (in_session(&f, "s").await, in_session(&f, "s").await);
    let run = f.take(first).await;
    f.ok(f.of(run, Purpose::Block).await.wait("w", "key", WaitType::Signal, true).done()).await;
    assert_eq!(f.claim_ids(8).await, []);
    f.ok(f.draft(first, Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done()).await;
    assert_eq!(f.claim_ids(8).await, [second]);
}

pub async fn l8_a_paused_job_holds_its_session(f: Fixture) {
    let (first, second) = (in_session(&f, "s").await, in_session(&f, "s").await);
    f.ok(f.draft(first, Purpose::Pause, Guard::Outside).await.pause().done()).await;
    assert_eq!(f.claim_ids(8).await, []);
    let third = in_session(&f, "s").await;
    assert_eq!(f.claim_ids(8).await, []);
    f.ok(f.draft(first, Purpose::Pause, Guard::Outside).await.event(JobResumed {}).done()).await;
    assert_eq!(f.claim_ids(8).await, [first]);
    let run = super::Run { fence: f.state(first).await.fence, job: first };
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    // One that was next in turn when it was paused holds up those behind it, and only those.
    f.ok(f.draft(second, Purpose::Pause, Guard::Outside).await.pause().done()).await;
    assert_eq!(f.claim_ids(8).await, []);
    f.ok(f.draft(second, Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done()).await;
    assert_eq!(f.claim_ids(8).await, [third]);
}

pub async fn l8_a_delayed_job_holds_its_session(f: Fixture) {
    let at = f.now().await.after(Span::from_secs(60));
    let session = Some(SessionId::from("s"));
    let first = f.create(&Message { run_at: Some(at), session, ..f.message() }).await;
    let second = in_session(&f, "s").await;
    assert_eq!(f.claim_ids(8).await, []);
    f.advance(Span::from_secs(60));
    assert_eq!(f.claim_ids(8).await, [first]);
    let run = super::Run { fence: f.state(first).await.fence, job: first };
    f.ok(f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    assert_eq!(f.claim_ids(8).await, [first], "the same job again, not {second}");
}

pub async fn l8_priority_does_not_overtake_within_a_session(f: Fixture) {
    let session = Some(SessionId::from("s"));
    let first = f.create(&Message { priority: -1, session: session.clone(), ..f.message() }).await;
    f.create(&Message { priority: 9, session, ..f.message() }).await;
    assert_eq!(f.claim_ids(8).await, [first]);
}

pub async fn l8_other_sessions_and_jobs_without_one_go_on(f: Fixture) {
    let first = in_session(&f, "s").await;
    in_session(&f, "s").await;
    let (other, none) = (in_session(&f, "t").await, f.pending().await);
    assert_eq!(f.claim_ids(8).await, [first, other, none]);
}

pub async fn l8_a_session_belongs_to_its_agent(f: Fixture) {
    let first = in_session(&f, "s").await;
    let agent = AgentName::from("other");
    let second = f.create(&Message { agent, session: Some(SessionId::from("s")), ..f.message() }).await;
    assert_eq!(f.claim_ids(8).await, [first, second]);
}

pub async fn l8_one_claim_takes_one_job_of_a_session(f: Fixture) {
    let mut firsts = Vec::new();
    for session in ["a", "b", "c"] {
        firsts.push(in_session(&f, session).await);
        in_session(&f, session).await;
    }
    assert_eq!(f.claim_ids(8).await, firsts);
}

async fn ahead(f: &Fixture, job: JobId) -> Option<JobId> {
    f.store().ahead_in_session(Scope::System, job).await.unwrap().map(|row| row.id)
}

pub async fn q9_the_job_ahead_is_the_first_unfinished_that_came_before(f: Fixture) {
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(in_session(&f, "s").await);
    }
    let all = || async { [ahead(&f, jobs[0]).await, ahead(&f, jobs[1]).await, ahead(&f, jobs[2]).await] };
    assert_eq!(all().await, [None, Some(jobs[0]), Some(jobs[0])]);
    // What the one in between does changes nothing.
    f.ok(f.draft(jobs[1], Purpose::Pause, Guard::Outside).await.pause().done()).await;
    assert_eq!(all().await, [None, Some(jobs[0]), Some(jobs[0])]);
    let run = f.take(jobs[0]).await;
    assert_eq!(all().await, [None, Some(jobs[0]), Some(jobs[0])]);
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    assert_eq!(all().await, [None, None, Some(jobs[1])]);
    let row = f.store().ahead_in_session(Scope::System, jobs[2]).await.unwrap();
    assert_eq!(row, f.store().job(Scope::System, jobs[1]).await.unwrap());
    f.ok(f.draft(jobs[1], Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done()).await;
    assert_eq!(all().await, [None, None, None]);
}

pub async fn q9_what_came_later_or_belongs_elsewhere_is_not_ahead(f: Fixture) {
    let session = Some(SessionId::from("s"));
    let small = Message { session: session.clone(), ..f.message() };
    let great = Message { session: session.clone(), ..f.message() };
    f.create(&great).await;
    // Its id is the smaller one, and it came later.
    f.create(&small).await;
    assert_eq!((ahead(&f, great.job).await, ahead(&f, small.job).await), (None, Some(great.job)));
    let other = f.create(&Message { agent: AgentName::from("other"), session, ..f.message() }).await;
    for job in [other, in_session(&f, "t").await, f.pending().await, JobId::from_u128(5)] {
        assert_eq!(ahead(&f, job).await, None);
    }
}
