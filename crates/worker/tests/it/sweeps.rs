//! When sweeps and workers ask the store, to the moment: whatever another look would repair is late.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_runtime::Runtime;
use aetheris_runtime::pulse::Pulse;
use aetheris_scheduler::{SweepOptions, fire_due, fire_timers, reclaim_expired, sweep_expired};
use aetheris_store::faulty::{Decide, Fault, FaultPlan, FaultyStore, Op};
use aetheris_store::{Purpose, Scope};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::world::{TTL, World, done, hold};

const LOOK: &str = "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  look: { kind: function, function: f, effect: pure }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: look }\n";
const SLEEP: &str =
    "agent: s\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n    - { id: n, kind: sleep, duration: 5s }\n";
const SELDOM: SweepOptions =
    SweepOptions { leases: Span::from_secs(3_600), outbox: Span::from_secs(3_600), timers: Span::from_secs(3_600) };

type Asked = Arc<Mutex<Vec<(Duration, Op)>>>;

/// Fails as a plan says, and notes when what was asked.
struct Noted {
    asked: Asked,
    began: Instant,
    plan: FaultPlan,
}

impl Decide for Noted {
    fn decide(&mut self, op: Op) -> Option<Fault> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((self.began.elapsed(), op));
        self.plan.decide(op)
    }
}

/// The sweeps of a process that has nothing else.
pub(crate) struct Sweeping {
    asked: Asked,
    pulse: Pulse,
    rt: Runtime,
    stop: CancellationToken,
}

impl Sweeping {
    pub(crate) fn behind(world: &World, plan: FaultPlan) -> Self {
        let asked = Asked::default();
        let noted = Noted { asked: Arc::clone(&asked), began: Instant::now(), plan };
        let store = FaultyStore::decided_by(Arc::clone(&world.rt.store), Box::new(noted)).apart();
        let rt = Runtime { store: Arc::new(store), ..world.rt.clone() };
        Self { asked, pulse: Pulse::default(), rt, stop: CancellationToken::new() }
    }

    pub(crate) fn timers(&self, options: SweepOptions) -> JoinHandle<()> {
        tokio::spawn(fire_timers(self.rt.clone(), options, self.pulse.clone(), self.stop.clone()))
    }

    pub(crate) fn outbox(&self, options: SweepOptions) -> JoinHandle<()> {
        tokio::spawn(aetheris_scheduler::deliver_outbox(
            self.rt.clone(),
            options,
            self.pulse.clone(),
            self.stop.clone(),
        ))
    }

    pub(crate) fn leases(&self, options: SweepOptions) -> JoinHandle<()> {
        tokio::spawn(reclaim_expired(self.rt.clone(), options, self.pulse.clone(), self.stop.clone()))
    }

    /// When the store was asked for this, in milliseconds since the beginning.
    fn moments(&self, of: Op) -> Vec<u128> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|(_, op)| *op == of).map(|(at, _)| at.as_millis()).collect()
    }
}

/// Jobs that sleep, whose timers are all due: nobody has fired one.
pub(crate) async fn due(world: &World, jobs: usize) -> Vec<JobId> {
    world.put(SLEEP).await;
    let first = world.start("first");
    let mut sleeping = Vec::new();
    for n in 0..jobs {
        sleeping.push(world.submit("s", json!(n)).await);
    }
    for job in &sleeping {
        world.until(*job, &[JobStatus::Waiting]).await;
    }
    first.kill();
    tokio::time::sleep(Duration::from_secs(10)).await;
    sleeping
}

/// Jobs whose leases are all over.
pub(crate) async fn expired(world: &World, jobs: usize) {
    world.put(LOOK).await;
    for n in 0..jobs {
        world.submit("a", json!(n)).await;
    }
    world.claim_all().await;
    tokio::time::sleep(TTL.to_std()).await;
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_rests_ends_at_the_moment_when_it_is_told_to() {
    let world = World::new();
    let sweeping = Sweeping::behind(&world, FaultPlan::none());
    let both = [sweeping.timers(SELDOM), sweeping.leases(SELDOM)];
    tokio::time::sleep(Duration::from_secs(7)).await;
    let told = Instant::now();
    sweeping.stop.cancel();
    for sweep in both {
        sweep.await.unwrap();
    }
    assert_eq!(told.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn each_sweep_looks_as_often_as_it_is_asked_to() {
    let options = SweepOptions { leases: Span::from_secs(7), outbox: Span::from_secs(7), timers: Span::from_secs(3) };
    let world = World::new();
    // Also where nothing that it knows of is due before: another process sets timers of which it hears nothing.
    for (of_timers, every, known) in [(true, 3, false), (false, 7, false), (true, 3, true)] {
        if known {
            world.put(&format!("deadline: 1h\n{LOOK}")).await;
            world.submit("a", json!(1)).await;
        }
        let sweeping = Sweeping::behind(&world, FaultPlan::none());
        let sweep = if of_timers { sweeping.timers(options) } else { sweeping.leases(options) };
        tokio::time::sleep(Duration::from_secs(22)).await;
        let expected: Vec<u128> = (0..=22).filter(|second| second % every == 0).map(|second| second * 1_000).collect();
        let rounded: Vec<u128> = sweeping.moments(Op::Read).into_iter().map(|at| at / 100 * 100).collect();
        assert_eq!(rounded, expected);
        sweep.abort();
    }
}

/// A look that fails is one of them.
#[tokio::test(start_paused = true)]
async fn a_sweep_that_cannot_look_looks_again_when_it_would_have_done() {
    let world = World::new();
    let options = SweepOptions { leases: Span::from_secs(3), outbox: Span::from_secs(3), timers: Span::from_secs(3) };
    for of_timers in [true, false] {
        let fails = [Some(Fault::Before), None, Some(Fault::Before)];
        let sweeping = Sweeping::behind(&world, FaultPlan::none().script(Op::Read, fails));
        let sweep = if of_timers { sweeping.timers(options) } else { sweeping.leases(options) };
        tokio::time::sleep(Duration::from_secs(10)).await;
        let looks: Vec<u128> = sweeping.moments(Op::Read).into_iter().map(|at| at / 100 * 100).collect();
        assert_eq!(looks, [0, 3_000, 6_000, 9_000], "{of_timers}");
        sweep.abort();
    }
}

/// However much has expired, a process that is to stop takes back what it has listed and no more.
#[tokio::test(start_paused = true)]
async fn a_sweep_of_leases_that_is_to_stop_ends_with_its_page() {
    let world = World::new();
    let jobs = 2 * limits::SWEEP_ROWS_MAX + 1;
    expired(&world, jobs).await;
    let slow = vec![Some(Fault::Delay(Span::from_secs(1))); jobs];
    let sweeping = Sweeping::behind(&world, FaultPlan::none().script(Op::Commit(Purpose::Reclaim), slow));
    let sweep = sweeping.leases(SELDOM);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    sweeping.stop.cancel();
    sweep.await.unwrap();
    assert_eq!(sweeping.moments(Op::Commit(Purpose::Reclaim)).len(), limits::SWEEP_ROWS_MAX);
}

/// What somebody else was quicker with is nobody's but his, and may have to be looked at again.
#[tokio::test(start_paused = true)]
async fn what_another_process_has_done_meanwhile_is_not_counted() {
    let slow = || FaultPlan::none().script(Op::Read, [None, Some(Fault::Delay(Span::from_secs(5)))]);
    let world = World::new();
    expired(&world, 1).await;
    let sweeping = Sweeping::behind(&world, slow());
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        sweep_expired(&world.rt).await.unwrap()
    };
    let (late, quick) = tokio::join!(sweep_expired(&sweeping.rt), other);
    assert_eq!((late.unwrap(), quick), (0, 1));
    let world = World::new();
    due(&world, 1).await;
    let sweeping = Sweeping::behind(&world, slow());
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fire_due(&world.rt).await.unwrap()
    };
    let (late, quick) = tokio::join!(fire_due(&sweeping.rt), other);
    assert_eq!((late.unwrap(), quick), (Some(limits::SWEEP_BACKOFF.to_std()), None));
}

/// A worker whose store is asked as a plan says, and its keeper.
fn working(sweeping: &Sweeping) -> (StopSignals, JoinHandle<()>) {
    let stop = StopSignals::default();
    let options = WorkerOptions {
        heartbeat: Span::from_secs(10),
        id: "w".into(),
        lease_ttl: TTL,
        poll_interval: Span::from_millis(100),
        slots: 1,
    };
    let instance = InstanceId::from_u128(1);
    let (worker, keeper) = Worker::new(sweeping.rt.clone(), instance, options, stop.clone());
    tokio::spawn(keeper.run());
    (stop, tokio::spawn(worker.run()))
}

/// Twice as long each time, up to two seconds; and who is to stop waits for none of it.
#[tokio::test(start_paused = true)]
async fn claims_that_fail_are_asked_for_ever_more_rarely() {
    let world = World::new();
    let fails = vec![Some(Fault::Before); 100];
    let sweeping = Sweeping::behind(&world, FaultPlan::none().script(Op::Claim, fails));
    let (stop, worker) = working(&sweeping);
    tokio::time::sleep(Duration::from_secs(8)).await;
    let claims = sweeping.moments(Op::Claim);
    let pauses: Vec<u128> = claims.windows(2).map(|two| (two[1] - two[0]) / 50 * 50).collect();
    assert_eq!(pauses[..7], [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    let told = Instant::now();
    stop.drain.cancel();
    worker.await.unwrap();
    assert_eq!(told.elapsed(), Duration::ZERO);
}

/// Sooner only where a claim was so long on its way that its lease is spent before the next beat.
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_with_each_beat_and_at_once_where_little_is_left_of_it() {
    for (slow, expected) in [(0, [10, 20, 30]), (13, [13, 23, 33])] {
        let world = World::new();
        world.put(LOOK).await;
        let (act, reached, release) = hold(done(json!(1)));
        world.tools.next("look", [act]);
        let job = world.submit("a", json!(1)).await;
        let answer = Some(Fault::Slow(Span::from_secs(slow)));
        let sweeping = Sweeping::behind(&world, FaultPlan::none().script(Op::Claim, [answer]));
        let (_stop, _worker) = working(&sweeping);
        reached.notified().await;
        tokio::time::sleep(Duration::from_secs(if slow > 0 { 24 } else { 35 })).await;
        release.notify_one();
        world.done(job).await;
        let beats: Vec<u128> = sweeping.moments(Op::Heartbeat).into_iter().map(|at| at / 1_000).collect();
        assert_eq!(beats, expected);
    }
}

/// What could not be written now is written a second later, and nothing is asked for more often once it is.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_left_makes_its_sweep_look_sooner_and_only_until_it_is_done() {
    for of_timers in [true, false] {
        let world = World::new();
        let purpose = if of_timers {
            due(&world, 2).await;
            Purpose::Timer
        } else {
            expired(&world, 2).await;
            Purpose::Reclaim
        };
        let plan = FaultPlan::none().script(Op::Commit(purpose), [Some(Fault::Before), None, Some(Fault::Before)]);
        let sweeping = Sweeping::behind(&world, plan);
        let sweep = if of_timers { sweeping.timers(SELDOM) } else { sweeping.leases(SELDOM) };
        tokio::time::sleep(Duration::from_secs(3_000)).await;
        let tries: Vec<u128> = sweeping.moments(Op::Commit(purpose)).into_iter().map(|at| at / 100 * 100).collect();
        assert_eq!(tries, [0, 0, 1_000, 2_000], "{purpose:?}");
        let looks = sweeping.moments(Op::Read);
        assert!(looks.iter().all(|at| *at < 4_000), "{purpose:?}: {looks:?}");
        sweep.abort();
    }
}

/// Left alone for longer with each failure, and as at first when it has worked in between.
#[tokio::test(start_paused = true)]
async fn a_row_that_has_worked_begins_anew_when_it_fails_again() {
    let world = World::new();
    expired(&world, 1).await;
    let bad = Some(Fault::Impossible);
    let plan = FaultPlan::none().script(Op::Commit(Purpose::Reclaim), [bad, bad, bad, None, bad]);
    let sweeping = Sweeping::behind(&world, plan);
    let _sweep = sweeping.leases(SweepOptions::default());
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.claim_all().await;
    tokio::time::sleep(TTL.to_std() + Duration::from_secs(20)).await;
    let tries = sweeping.moments(Op::Commit(Purpose::Reclaim));
    let pauses: Vec<u128> = tries.windows(2).map(|two| (two[1] - two[0] + 100) / 1_000).collect();
    assert_eq!((&pauses[..3], pauses[4], tries.len()), (&[1, 2, 4][..], 1, 6), "{tries:?}");
}

/// A page of the next pass has it again: it is not begun a second time.
#[tokio::test(start_paused = true)]
async fn what_a_sweep_writes_slowly_is_not_begun_again() {
    for of_timers in [true, false] {
        let world = World::new();
        let purpose = if of_timers {
            due(&world, 1).await;
            Purpose::Timer
        } else {
            expired(&world, 1).await;
            Purpose::Reclaim
        };
        let slow = Some(Fault::Delay(Span::from_secs(10)));
        let sweeping = Sweeping::behind(&world, FaultPlan::none().script(Op::Commit(purpose), [slow]));
        let options =
            SweepOptions { leases: Span::from_secs(1), outbox: Span::from_secs(1), timers: Span::from_secs(1) };
        let sweep = if of_timers { sweeping.timers(options) } else { sweeping.leases(options) };
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(sweeping.moments(Op::Commit(purpose)), [0], "{purpose:?}");
        sweep.abort();
    }
}

/// As many as share the store's commits, and the next with each that ends.
#[tokio::test(start_paused = true)]
async fn a_sweep_writes_to_64_jobs_at_once() {
    let world = World::new();
    due(&world, 67).await;
    let slow = Some(Fault::Delay(Span::from_secs(10)));
    let sweeping = Sweeping::behind(&world, FaultPlan::none().script(Op::Commit(Purpose::Timer), vec![slow; 67]));
    let _sweep = sweeping.timers(SELDOM);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let begun = sweeping.moments(Op::Commit(Purpose::Timer));
    let of_first = begun.iter().filter(|at| **at < 10_000).count();
    assert_eq!((of_first, begun.len()), (64, 67));
    assert!(begun.iter().all(|at| *at < 11_000), "{begun:?}");
}

/// Whoever looks at its pulse sees a sweep that is busy for long, and one that stands still.
#[tokio::test(start_paused = true)]
async fn a_sweep_shows_a_sign_of_life_with_every_page_and_every_row() {
    for of_timers in [true, false] {
        let world = World::new();
        let purpose = if of_timers {
            due(&world, 3).await;
            Purpose::Timer
        } else {
            expired(&world, 3).await;
            Purpose::Reclaim
        };
        let slow = [2, 4, 6].map(|secs| Some(Fault::Delay(Span::from_secs(secs))));
        let sweeping = Sweeping::behind(&world, FaultPlan::none().script(Op::Commit(purpose), slow));
        let clock = Arc::clone(&sweeping.rt.system.clock);
        assert_eq!(sweeping.pulse.silent_for(clock.as_ref()), None);
        let sweep = if of_timers { sweeping.timers(SELDOM) } else { sweeping.leases(SELDOM) };
        for second in 0..10_u64 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let silent = sweeping.pulse.silent_for(clock.as_ref()).map(|silent| silent.as_secs());
            // The page at once, then a row every other second; then nothing is left to be done.
            assert_eq!(silent, Some(second.saturating_sub(6).max(if second < 6 { second % 2 } else { 0 })), "{second}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        sweep.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn one_pass_says_when_the_next_timer_is_due_and_how_much_it_took_back() {
    let world = World::new();
    assert_eq!(fire_due(&world.rt).await.unwrap(), None, "no timer is set");
    due(&world, 2).await;
    let process = world.start("w");
    process.sweeps.cancel();
    let job = world.submit("s", json!(1)).await;
    world.until(job, &[JobStatus::Waiting]).await;
    process.kill();
    let fails = vec![Some(Fault::Before); 2];
    let refused = Sweeping::behind(&world, FaultPlan::none().script(Op::Commit(Purpose::Timer), fails));
    let again = fire_due(&refused.rt).await.unwrap();
    assert_eq!(again, Some(limits::SWEEP_BACKOFF.to_std()), "what is left comes before the next");
    let now = world.rt.store.status().await.unwrap().now;
    let left = world.rt.store.timers(Scope::System, job).await.unwrap()[0].due.since(now).to_std();
    let next = fire_due(&world.rt).await.unwrap().unwrap();
    assert!(next <= left && left - next < Duration::from_millis(100), "{next:?} of {left:?}");
    let world = World::new();
    assert_eq!(sweep_expired(&world.rt).await.unwrap(), 0);
    expired(&world, 3).await;
    let refused =
        Sweeping::behind(&world, FaultPlan::none().script(Op::Commit(Purpose::Reclaim), [None, Some(Fault::Before)]));
    assert_eq!(sweep_expired(&refused.rt).await.unwrap(), 2);
    assert_eq!(sweep_expired(&world.rt).await.unwrap(), 1);
    assert_eq!(sweep_expired(&world.rt).await.unwrap(), 0);
}

/// What cannot be told to a parent is tried less and less often: its pause is kept under the name that it is asked by.
#[tokio::test(start_paused = true)]
async fn a_promise_that_cannot_be_kept_is_tried_less_and_less_often() {
    use aetheris_core::id::EventId;
    use aetheris_core::lease::Guard;
    use aetheris_core::projection::Promise;
    use aetheris_store::UnitOfWork;
    let world = World::new();
    world.put(LOOK).await;
    let job = world.submit("a", json!(1)).await;
    // It has no parent, and has not ended.
    let mut unit = UnitOfWork::new(EventId::from_u128(77), job, Purpose::Record, Guard::Outside);
    unit.outbox = vec![Promise::TellParent { node: "n".into(), parent: JobId::from_u128(404) }];
    world.rt.store.commit(unit).await.unwrap();
    let options = SweepOptions { outbox: Span::from_secs(1), ..SELDOM };
    let sweeping = Sweeping::behind(&world, FaultPlan::none());
    let sweep = sweeping.outbox(options);
    tokio::time::sleep(Duration::from_secs(60)).await;
    sweep.abort();
    // A look each second; beside those the reads of a handful of tries, and not of one each second.
    let reads = sweeping.moments(Op::Read).len();
    assert!((60..90).contains(&reads), "{reads} reads");
}
