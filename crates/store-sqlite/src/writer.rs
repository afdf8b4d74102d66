//! The one writer of a process: a thread that owns the only connection which writes.
//!
//! Requests that wait when the thread comes round go into one transaction and one fsync. Each is decided
//! on its own; a refused one leaves nothing, and an SQL error in the middle rolls everything back and tries
//! each request in a transaction of its own. Nobody is answered before COMMIT has returned. Claims that
//! found nothing stay here and are served at the end of the transaction that makes jobs claimable.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use aetheris_core::limits;
use aetheris_core::time::Timestamp;
use aetheris_store::clock::{Mark, StoreClock};
use aetheris_store::{Bus, CommitError};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::claim::{self, PendingClaim, Served};
use crate::clock_steps::ClockSteps;
use crate::error::{Error, Shared};
use crate::fairness::{WriterFairness, ticks};
use crate::file::Identity;
use crate::open::Fatal;
use crate::queries::{Prepared, Query};
use crate::request::{Answer, Request, execute, send};
use crate::seen::Seen;
use crate::stats::Stats;
use crate::tx::{Changes, Tx};
use crate::vitals::{Part, Vitals};
use crate::wal::{self, Pace};

/// How long the thread looks for the next request before it sleeps: at one request in flight the next one
/// comes within it, and waking a thread costs as much as the transaction's own work.
const SPIN: Duration = Duration::from_micros(100);
/// How long a batch waits for the transactions of other processes.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a pending claim looks whether another process has written.
const LOOK: Duration = Duration::from_millis(50);
/// The log's length is asked for once in so many transactions: large ones are copied in larger pieces.
const CHECKPOINT_EVERY: u32 = 16;

/// Whether a transaction serves pending claims.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claims {
    Always,
    IfClaimable,
    Never,
}

/// A transaction that is over.
struct Outcome {
    answers: Vec<Answer>,
    changes: Changes,
    served: Option<Served>,
}

/// A transaction that came to nothing, or may have.
struct Failure {
    /// Whether it may have been written all the same.
    unknown: bool,
    /// Whether trying its requests one by one may help.
    divisible: bool,
    error: Error,
}

/// What the thread is given.
pub(crate) struct Parts {
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) fatal: Fatal,
    pub(crate) file: Identity,
    pub(crate) bus: Bus,
    pub(crate) requests: Receiver<Request>,
    pub(crate) seen: Option<Seen>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) fairness: WriterFairness,
    pub(crate) vitals: Arc<Vitals>,
}

/// The thread's body: runs until every sender has gone.
pub(crate) fn run(conn: &Connection, parts: Parts) {
    let mut writer = Writer::new(conn, parts);
    while writer.round() {}
    writer.leave();
}

struct Writer<'c> {
    /// There may be something to claim: asked for in vain it is cleared, a write or time sets it again.
    claimable: bool,
    data_version: i64,
    /// The clock's mark as the last transaction has left it.
    mark: Option<Mark>,
    next_due: Option<Timestamp>,
    /// When it was last asked whether another process has written.
    others_at: Option<Instant>,
    pace: Pace,
    parts: Parts,
    sql: Prepared<'c>,
    pending: Vec<PendingClaim>,
    clock_steps: ClockSteps,
    transactions: u32,
}

impl<'c> Writer<'c> {
    fn new(conn: &'c Connection, parts: Parts) -> Self {
        let mut sql = Prepared::new(conn);
        // The first claim looks whatever it is; from then on only what others write is theirs.
        Self {
            claimable: true,
            data_version: sql.data_version().unwrap_or(0),
            mark: None,
            next_due: None,
            others_at: None,
            pace: Pace::default(),
            parts,
            sql,
            pending: Vec::new(),
            clock_steps: ClockSteps::default(),
            transactions: 0,
        }
    }

    /// One transaction, if there is something to do. Whether the thread goes on.
    fn round(&mut self) -> bool {
        let Ok(first) = self.wait() else {
            return false;
        };
        aetheris_fault::crash_point!("vital.store-write");
        let (requests, last_look) = self.drain(first);
        self.notice_time_and_others();
        let claims = if self.claimable || last_look { Claims::Always } else { Claims::IfClaimable };
        if !requests.is_empty() || (claims == Claims::Always && !self.pending.is_empty()) {
            self.transact(requests, claims, ticks() + PATIENCE);
            self.checkpoint();
        }
        self.answer_the_overdue();
        true
    }

    /// The next request; none when a pending claim is to be looked at.
    fn wait(&self) -> Result<Option<Request>, ()> {
        if let Ok(request) = self.parts.requests.try_recv() {
            // There is always more to do: others on this file get their turn.
            self.parts.fairness.yield_to_others();
            return Ok(Some(request));
        }
        let spin_until = ticks() + SPIN;
        loop {
            match self.parts.requests.try_recv() {
                Ok(request) => return Ok(Some(request)),
                Err(TryRecvError::Disconnected) => return Err(()),
                Err(TryRecvError::Empty) if ticks() < spin_until => std::hint::spin_loop(),
                Err(TryRecvError::Empty) => break,
            }
        }
        match self.patience() {
            None => self.parts.requests.recv().map(Some).map_err(drop),
            Some(patience) => match self.parts.requests.recv_timeout(patience) {
                Ok(request) => Ok(Some(request)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(()),
            },
        }
    }

    /// How long pending claims can be left alone.
    fn patience(&self) -> Option<Duration> {
        let deadline = self.pending.iter().map(|claim| claim.deadline).min()?;
        let now = ticks();
        let due = self.next_due.map_or(LOOK, |due| due.since(self.now()).to_std());
        Some(deadline.saturating_duration_since(now).min(due).min(self.look_in(now)))
    }

    /// How long until it is asked again whether another process has written.
    fn look_in(&self, now: Instant) -> Duration {
        self.others_at.map_or(LOOK, |asked| LOOK.saturating_sub(now.saturating_duration_since(asked)))
    }

    /// Takes what else waits, and whether a claim has to be answered in this round.
    fn drain(&mut self, first: Option<Request>) -> (Vec<Request>, bool) {
        let mut requests = Vec::new();
        let mut taken = 0;
        let mut next = first;
        while let Some(request) = next.take() {
            taken += 1;
            match request {
                Request::Claim(claim) => {
                    self.pending.push(claim);
                    // A new one finds at once what others have written.
                    self.others_at = None;
                }
                other => requests.push(other),
            }
            if taken < limits::WRITER_BATCH_MAX {
                next = self.parts.requests.try_recv().ok();
            }
        }
        let leaked = if aetheris_fault::planted!("queue-slot-leaks") { taken - requests.len() } else { 0 };
        self.parts.slots.add_permits(taken - leaked);
        let now = ticks();
        (requests, self.pending.iter().any(|claim| claim.deadline <= now))
    }

    /// The store's clock, without a look at its row.
    fn now(&self) -> Timestamp {
        self.parts.clock.look(self.mark).now
    }

    fn notice_time_and_others(&mut self) {
        if self.pending.is_empty() || self.claimable {
            return;
        }
        self.claimable = self.next_due.is_some_and(|due| due <= self.now());
        if self.claimable {
            return;
        }
        // Asked in every round it would be a tenth of a short transaction's work.
        let now = ticks();
        if self.others_at.is_some() && !self.look_in(now).is_zero() {
            return;
        }
        self.others_at = Some(now);
        if let Some(version) = self.sql.data_version()
            && version != self.data_version
        {
            self.data_version = version;
            self.claimable = !aetheris_fault::planted!("writer-sees-no-others");
        }
    }

    /// Has one patience for all: a batch that is repeated one by one does not wait again for each.
    fn transact(&mut self, requests: Vec<Request>, claims: Claims, until: Instant) {
        let (requests, failure) = match self.attempt(requests, claims, until) {
            Ok(()) => return,
            Err(failed) => failed,
        };
        let several = requests.len() > 1 || (!self.pending.is_empty() && !requests.is_empty());
        if !failure.divisible || !several {
            return self.fail(requests, claims, &failure);
        }
        tracing::warn!(error = %failure.error, requests = requests.len(), "a batch is repeated one by one");
        for request in requests {
            if let Err((request, failure)) = self.attempt(vec![request], Claims::Never, until) {
                self.fail(request, Claims::Never, &failure);
            }
        }
        if let Err((_, failure)) = self.attempt(Vec::new(), Claims::Always, until) {
            self.fail(Vec::new(), Claims::Always, &failure);
        }
    }

    /// BEGIN to COMMIT and the answers; the requests come back where that failed.
    fn attempt(
        &mut self,
        requests: Vec<Request>,
        claims: Claims,
        until: Instant,
    ) -> Result<(), (Vec<Request>, Failure)> {
        let outcome = match self.prepare(&requests, claims, until) {
            Ok(outcome) => outcome,
            Err(failure) => return Err((requests, failure)),
        };
        if aetheris_fault::planted!("reply-before-commit") {
            self.finish(requests, outcome);
            return self.commit(&[]).map_err(|failure| (Vec::new(), failure));
        }
        let points = crash_points(&requests, &outcome);
        match self.commit(&points) {
            Ok(()) => {
                let reached = outcome.changes.reached;
                self.finish(requests, outcome);
                // The note comes after the answers: nobody waits for it, and a kill in between loses the note alone.
                if let (Some(seen), Some(reached)) = (&mut self.parts.seen, reached) {
                    seen.note(reached);
                }
                for purpose in points {
                    aetheris_fault::crash_point!("store.{purpose}.answered");
                }
            }
            Err(failure) => return Err((requests, failure)),
        }
        Ok(())
    }

    /// Everything up to the COMMIT.
    fn prepare(&mut self, requests: &[Request], claims: Claims, until: Instant) -> Result<Outcome, Failure> {
        // What is left of a lease is measured from before the transaction that gives it.
        let sent_at = self.parts.clock.clocks().boot();
        let begun = self.parts.fairness.begin(&mut self.sql, until);
        begun.map_err(|error| Failure { unknown: false, divisible: false, error })?;
        self.apply(requests, claims, sent_at).map_err(|error| {
            self.roll_back();
            Failure { unknown: false, divisible: true, error }
        })
    }

    fn commit(&mut self, points: &[&'static str]) -> Result<(), Failure> {
        for purpose in points {
            aetheris_fault::crash_point!("store.{purpose}.before_commit");
        }
        self.sql.run(Query::Commit, []).map_err(|error| self.commit_failed(error.into()))?;
        // Before anybody is answered: what went into a file that has gone is not there at the next start.
        self.parts.file.check().map_err(|error| self.commit_failed(error))?;
        for purpose in points {
            aetheris_fault::crash_point!("store.{purpose}.after_commit");
        }
        Ok(())
    }

    fn apply(&mut self, requests: &[Request], claims: Claims, sent_at: Duration) -> Result<Outcome, Error> {
        let mut tx = Tx::open(&mut self.sql, self.parts.clock.as_ref())?;
        self.clock_steps.tell(tx.look());
        self.mark = Some(tx.mark());
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(execute(&mut tx, request)?);
        }
        let wanted = match claims {
            Claims::Always => true,
            Claims::IfClaimable => tx.changes.claimable,
            Claims::Never => false,
        };
        let wanted = wanted && !self.pending.is_empty();
        let served = if wanted { Some(claim::serve(&mut tx, &self.pending, sent_at)?) } else { None };
        let changes = tx.finish(self.parts.seen.is_some())?;
        Ok(Outcome { answers, changes, served })
    }

    /// Whether anything of it is there, after COMMIT has answered with an error.
    fn commit_failed(&mut self, error: Error) -> Failure {
        let fatal = error.is_fatal();
        if fatal {
            // Nobody knows what is on the disk, and a second fsync may say that all is well.
            (self.parts.fatal)(&Shared::new(&error, "commit").error());
        }
        // SQLite writes no commit record when it is busy or finds no room.
        let nothing = self.roll_back() && !fatal && error.is_before_commit();
        let nothing = nothing || aetheris_fault::planted!("unclear-commit-failed");
        Failure { unknown: !nothing, divisible: nothing, error }
    }

    /// Whether the connection is out of its transaction.
    fn roll_back(&mut self) -> bool {
        // SQLite has rolled back by itself after some errors.
        if self.sql.connection().is_autocommit() {
            return true;
        }
        match self.sql.run(Query::Rollback, []) {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(%error, "a transaction could not be rolled back");
                false
            }
        }
    }

    fn finish(&mut self, requests: Vec<Request>, outcome: Outcome) {
        let Outcome { answers, changes, served } = outcome;
        self.parts.stats.count(&changes);
        if changes.rows > 0 {
            self.parts.vitals.worked(Part::Write);
        }
        if served.is_some() {
            self.parts.vitals.worked(Part::Claim);
        }
        for (request, answer) in requests.into_iter().zip(answers) {
            send(request, answer);
        }
        self.claimable |= changes.claimable;
        if let Some(due) = changes.next_due {
            self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
        }
        if let Some(Served { claims, exhausted, next_due }) = served {
            self.claimable = !exhausted;
            if exhausted {
                self.next_due = next_due;
            }
            let pending = std::mem::take(&mut self.pending);
            for (claim, jobs) in pending.into_iter().zip(claims) {
                if jobs.is_empty() {
                    self.pending.push(claim);
                } else {
                    drop(claim.reply.send(Ok(jobs)));
                }
            }
        }
        for (job, seq) in changes.written {
            self.parts.bus.written(job, seq);
        }
        if changes.promised {
            self.parts.bus.promised();
        }
    }

    fn fail(&mut self, requests: Vec<Request>, claims: Claims, failure: &Failure) {
        let shared = Shared::new(&failure.error, "commit");
        let part = if requests.is_empty() { Part::Claim } else { Part::Write };
        self.parts.vitals.failed(part, &failure.error, self.parts.clock.clocks().boot());
        tracing::error!(error = %failure.error, unknown = failure.unknown, "a transaction failed");
        for request in requests {
            let error = shared.error();
            match request {
                Request::Commit(_, reply) if failure.unknown => drop(reply.send(Err(CommitError::Unknown(error)))),
                Request::Commit(_, reply) => drop(reply.send(Err(CommitError::Failed(error)))),
                Request::Claim(claim) => drop(claim.reply.send(Err(error))),
                Request::Heartbeat(_, _, reply) => drop(reply.send(Err(error))),
                Request::PutAgent(_, reply) => drop(reply.send(Err(error))),
                Request::DeleteAgent(_, _, reply) => drop(reply.send(Err(error))),
                Request::Probe(_, reply) => drop(reply.send(Err(error))),
                Request::ResolveUnknown(_, reply) => drop(reply.send(Err(error))),
            }
        }
        if claims == Claims::Always || failure.unknown {
            for claim in std::mem::take(&mut self.pending) {
                drop(claim.reply.send(Err(shared.error())));
            }
        }
        self.claimable = true;
    }

    /// Claims whose time is over have been looked at in this round, and get what there is: nothing.
    fn answer_the_overdue(&mut self) {
        let now = ticks();
        if self.pending.iter().all(|claim| claim.deadline > now && !claim.reply.is_closed()) {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        for claim in pending {
            if claim.deadline <= now {
                drop(claim.reply.send(Ok(Vec::new())));
            } else if !claim.reply.is_closed() {
                self.pending.push(claim);
            }
        }
    }

    /// The end of the thread: the file alone has everything, for whoever copies it.
    fn leave(&mut self) {
        let whole = self.parts.file.check().and_then(|()| wal::empty(&mut self.sql));
        if let Err(error) = whole {
            tracing::warn!(error = %error, "the log could not be copied into the file; the next start does it");
        }
    }

    /// Copies the log into the file, after everybody has been answered. SQLite's own way would do it inside
    /// a COMMIT and keep a failed fsync to itself.
    fn checkpoint(&mut self) {
        self.transactions = self.transactions.wrapping_add(1);
        if !self.transactions.is_multiple_of(CHECKPOINT_EVERY) {
            return;
        }
        match wal::copy(&mut self.sql, &mut self.pace, ticks()) {
            Ok(_) => {}
            Err(error) if error.is_fatal() => (self.parts.fatal)(&Shared::new(&error, "checkpoint").error()),
            Err(error) => tracing::warn!(error = %error, "the log could not be copied into the file"),
        }
    }
}

/// The names under which the process can be made to die around the COMMIT: one for each thing in it.
fn crash_points(requests: &[Request], outcome: &Outcome) -> Vec<&'static str> {
    if !cfg!(feature = "faults") {
        return Vec::new();
    }
    let names = requests.iter().filter_map(|request| match request {
        Request::Commit(unit, _) => Some(unit.purpose.as_str()),
        Request::Heartbeat(..) => Some("heartbeat"),
        Request::PutAgent(..) => Some("put_agent"),
        Request::DeleteAgent(..) => Some("delete_agent"),
        Request::Claim(_) | Request::Probe(..) | Request::ResolveUnknown(..) => None,
    });
    let claims = outcome.served.iter().flat_map(|served| &served.claims).flatten().map(|_| "claim");
    names.chain(claims).collect()
}

/// When a claim that came now has to be answered.
pub(crate) fn deadline(linger: aetheris_core::time::Span) -> Instant {
    let now = ticks();
    now.checked_add(linger.to_std()).unwrap_or_else(|| now + Duration::from_secs(3_600))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use aetheris_core::id::{BootId, InstanceId, WorkerId};
    use aetheris_core::time::Span;
    use aetheris_harness::Folder;
    use aetheris_store::system::{Clock, ManualClock};
    use aetheris_store::{ClaimRequest, StoreError};
    use tokio::sync::oneshot;

    use super::*;
    use crate::claim::RawClaim;

    /// A writer whose rounds a test makes itself.
    struct Desk {
        clock: ManualClock,
        folder: Folder,
        requests: Sender<Request>,
        slots: Arc<Semaphore>,
    }

    fn desk() -> (Desk, Connection, Parts) {
        let folder = Folder::new("writer");
        let path = folder.join("aetheris.db");
        let conn = Connection::open(&path).unwrap();
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        let clock = ManualClock::at(Timestamp::from_micros(1_780_000_000_000_000));
        crate::migrate::run(&conn, &clock).unwrap();
        let ((requests, queue), slots) = (channel(), Arc::new(Semaphore::new(0)));
        let parts = Parts {
            clock: Arc::new(StoreClock::new(Arc::new(clock.clone()))),
            fatal: Arc::new(|_| {}),
            file: Identity::of(&path).unwrap(),
            bus: Bus::default(),
            requests: queue,
            seen: None,
            slots: Arc::clone(&slots),
            stats: Arc::default(),
            fairness: WriterFairness::open(&path).unwrap(),
            vitals: Arc::default(),
        };
        (Desk { clock, folder, requests, slots }, conn, parts)
    }

    fn writer(conn: &Connection, parts: Parts) -> Writer<'_> {
        Writer { claimable: false, ..Writer::new(conn, parts) }
    }

    type Answered = oneshot::Receiver<Result<Vec<RawClaim>, StoreError>>;

    /// A claim that has to be answered then.
    fn pending(deadline: Instant) -> (PendingClaim, Answered) {
        let (reply, answer) = oneshot::channel();
        let (instance, worker) = (InstanceId::from_u128(1), WorkerId::from("w"));
        let request = ClaimRequest { ids: Vec::new(), instance, linger: Span::ZERO, ttl: Span::from_secs(30), worker };
        (PendingClaim { deadline, reply, request }, answer)
    }

    fn probe() -> Request {
        Request::Probe(false, oneshot::channel().0)
    }

    /// Whatever comes first: its deadline, the moment of a delayed job, the next look for what others have written.
    #[test]
    fn a_standing_claim_is_left_alone_for_no_longer_than_nothing_can_have_come_for_it() {
        let (desk, conn, parts) = desk();
        let (mut writer, far) = (writer(&conn, parts), ticks() + Duration::from_secs(3_600));
        assert_eq!(writer.patience(), None, "nobody stands");
        let (claim, _answer) = pending(far);
        writer.pending.push(claim);
        assert_eq!(writer.patience(), Some(LOOK));
        writer.others_at = Some(ticks() - LOOK);
        assert_eq!(writer.patience(), Some(Duration::ZERO), "others are looked for");
        writer.others_at = Some(ticks());
        assert!(writer.patience().is_some_and(|left| !left.is_zero() && left < LOOK), "they were a moment ago");
        writer.others_at = None;
        let now = desk.clock.wall();
        for (due, patience) in [(20, 20), (49, 49), (51, 50), (0, 0)] {
            writer.next_due = Some(now.after(Span::from_millis(due)));
            assert_eq!(writer.patience(), Some(Duration::from_millis(patience)), "{due}");
        }
        writer.next_due = Some(Timestamp::from_micros(now.micros() - 1));
        assert_eq!(writer.patience(), Some(Duration::ZERO), "it is due");
        writer.next_due = None;
        let (claim, _answer) = pending(ticks());
        writer.pending.push(claim);
        assert_eq!(writer.patience(), Some(Duration::ZERO), "the first deadline counts");
    }

    #[test]
    fn a_round_takes_what_waits_up_to_its_bound_and_gives_every_place_back() {
        let (desk, conn, parts) = desk();
        let mut writer = writer(&conn, parts);
        let more = 3;
        for _ in 0..limits::WRITER_BATCH_MAX + more - 1 {
            desk.requests.send(probe()).unwrap();
        }
        let (claim, _answer) = pending(ticks() + Duration::from_secs(3_600));
        let (requests, last_look) = writer.drain(Some(Request::Claim(claim)));
        assert_eq!((requests.len(), writer.pending.len(), last_look), (limits::WRITER_BATCH_MAX - 1, 1, false));
        assert_eq!(desk.slots.available_permits(), limits::WRITER_BATCH_MAX);
        let (requests, _) = writer.drain(None);
        assert_eq!(requests.len(), 0, "nothing was taken before");
        let (requests, _) = writer.drain(Some(probe()));
        assert_eq!(requests.len(), more + 1);
        // One whose time is over, to the instant, is looked at a last time.
        let (claim, _answer) = pending(ticks());
        let (_, last_look) = writer.drain(Some(Request::Claim(claim)));
        assert!(last_look);
    }

    /// Asked for in vain, nothing is there until somebody writes, or the moment of a delayed job comes.
    #[test]
    fn time_and_the_writes_of_others_are_noticed_once_each() {
        let (desk, conn, parts) = desk();
        let (mut writer, other) = (writer(&conn, parts), Connection::open(desk.folder.join("aetheris.db")).unwrap());
        let notices = |writer: &mut Writer<'_>| {
            writer.notice_time_and_others();
            std::mem::take(&mut writer.claimable)
        };
        assert!(!notices(&mut writer), "nobody stands");
        let (claim, _answer) = pending(ticks() + Duration::from_secs(3_600));
        writer.pending.push(claim);
        assert!(!notices(&mut writer), "nobody has written since it began");
        other.execute("UPDATE meta SET writes = writes + 1", []).unwrap();
        writer.others_at = Some(ticks());
        assert!(!notices(&mut writer), "it has looked a moment ago");
        let (claim, _another) = pending(ticks() + Duration::from_secs(3_600));
        writer.drain(Some(Request::Claim(claim)));
        assert!(notices(&mut writer), "a new claim finds at once what others have written");
        other.execute("UPDATE meta SET writes = writes + 1", []).unwrap();
        writer.others_at = Some(ticks() - LOOK);
        assert!(notices(&mut writer));
        writer.others_at = Some(ticks() - LOOK);
        assert!(!notices(&mut writer), "it is known");
        writer.next_due = Some(desk.clock.wall().after(Span::from_secs(1)));
        desk.clock.advance(Span::from_micros(999_999));
        assert!(!notices(&mut writer), "a moment too early");
        desk.clock.advance(Span::from_micros(1));
        assert!(notices(&mut writer));
    }

    /// A row that no claim can read, or a disk that is full for them, fails the claims: whoever writes beside them is asked again
    /// alone.
    #[test]
    fn the_only_request_of_a_transaction_does_not_fail_with_its_claims() {
        let (_desk, conn, parts) = desk();
        conn.execute_batch("ALTER TABLE jobs RENAME TO elsewhere").unwrap();
        let mut writer = writer(&conn, parts);
        let (claim, mut claimed) = pending(ticks() + Duration::from_secs(3_600));
        writer.pending.push(claim);
        let (reply, mut probed) = oneshot::channel();
        writer.transact(vec![Request::Probe(false, reply)], Claims::Always, ticks());
        assert!(probed.try_recv().unwrap().is_ok());
        assert!(claimed.try_recv().unwrap().is_err());
    }

    /// Who has gone, and whose time is over, stand no longer; the others are left as they are, in their order.
    #[test]
    fn claims_that_are_overdue_or_whose_askers_have_gone_stand_no_longer() {
        let (_desk, conn, parts) = desk();
        let mut writer = writer(&conn, parts);
        let far = ticks() + Duration::from_secs(3_600);
        let (first, mut first_answer) = pending(far);
        let (gone, answer) = pending(far);
        drop(answer);
        let (over, mut over_answer) = pending(ticks());
        let (last, _last_answer) = pending(far + Duration::from_secs(1));
        writer.pending.extend([first, gone]);
        writer.answer_the_overdue();
        assert_eq!(writer.pending.len(), 1, "nobody is there to be answered");
        writer.pending.extend([over, last]);
        writer.answer_the_overdue();
        let deadlines: Vec<Instant> = writer.pending.iter().map(|claim| claim.deadline).collect();
        assert_eq!(deadlines, [far, far + Duration::from_secs(1)]);
        assert!(over_answer.try_recv().unwrap().unwrap().is_empty());
        assert!(first_answer.try_recv().is_err());
    }

    /// What a transaction has left to be claimed, and when there is more.
    #[test]
    fn what_is_known_to_be_claimable_follows_from_what_was_written_and_served() {
        let (desk, conn, parts) = desk();
        let mut writer = writer(&conn, parts);
        let at = |second| Some(desk.clock.wall().after(Span::from_secs(second)));
        let mut finish = |claimable, next_due, served: Option<(bool, Option<Timestamp>)>| {
            let served = served.map(|(exhausted, next_due)| Served { claims: Vec::new(), exhausted, next_due });
            let changes = Changes { claimable, next_due, ..Changes::default() };
            writer.finish(Vec::new(), Outcome { answers: Vec::new(), changes, served });
            (writer.claimable, writer.next_due)
        };
        assert_eq!(finish(false, None, None), (false, None));
        // The earliest of all moments counts.
        for (written, first) in [(20, 20), (10, 10), (30, 10)] {
            assert_eq!(finish(false, at(written), None), (false, at(first)));
        }
        assert_eq!(finish(true, None, None), (true, at(10)), "a job is there");
        assert_eq!(finish(false, None, None), (true, at(10)), "it is there still");
        assert_eq!(finish(false, None, Some((false, None))), (true, at(10)), "some may be left");
        assert_eq!(finish(true, at(5), Some((true, at(7)))), (false, at(7)), "the whole store was looked at");
        assert_eq!(finish(false, None, Some((true, None))), (false, None), "nobody is delayed");
    }

    /// A write that failed is forgotten with one that works: a probe writes where it is asked to, and else nothing.
    #[test]
    fn a_probe_that_writes_ends_the_trouble_of_writes_and_one_that_does_not_says_nothing() {
        let (desk, conn, parts) = desk();
        let vitals = Arc::clone(&parts.vitals);
        let mut writer = writer(&conn, parts);
        let busy = Error::Unavailable("busy".to_owned());
        for (writes, left) in [(false, true), (true, false)] {
            for part in [Part::Claim, Part::Write] {
                vitals.failed(part, &busy, Duration::ZERO);
            }
            let (reply, mut answer) = oneshot::channel();
            desk.requests.send(Request::Probe(writes, reply)).unwrap();
            assert!(writer.round());
            answer.try_recv().unwrap().unwrap();
            assert_eq!(vitals.last(Part::Write, Duration::ZERO).is_some(), left, "{writes}");
            assert!(vitals.last(Part::Claim, Duration::ZERO).is_some(), "no claim was served");
        }
        let (claim, mut answer) = pending(ticks());
        desk.requests.send(Request::Claim(claim)).unwrap();
        assert!(writer.round());
        assert!(answer.try_recv().unwrap().unwrap().is_empty());
        assert!(vitals.last(Part::Claim, Duration::ZERO).is_none());
    }

    /// Lets another process have the file from the first moment on at which it is free after the first look at the clock.
    struct Interloper {
        clock: ManualClock,
        conn: Mutex<Connection>,
        looked: AtomicBool,
    }

    impl Clock for Interloper {
        fn boot(&self) -> Duration {
            if self.looked.swap(true, Ordering::SeqCst) {
                drop(self.conn.lock().unwrap().execute_batch("BEGIN IMMEDIATE"));
            }
            self.clock.boot()
        }

        fn boot_id(&self) -> BootId {
            self.clock.boot_id()
        }

        fn wall(&self) -> Timestamp {
            self.clock.wall()
        }
    }

    /// Heartbeats stand behind them: each would wait as long as all of them may.
    #[test]
    fn a_batch_that_is_repeated_one_by_one_waits_once_for_another_process() {
        let (desk, conn, parts) = desk();
        conn.busy_timeout(Duration::ZERO).unwrap();
        let other = Connection::open(desk.folder.join("aetheris.db")).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        let between = Interloper { clock: desk.clock.clone(), conn: Mutex::new(other), looked: AtomicBool::new(false) };
        let clock = Arc::new(StoreClock::new(Arc::new(between)));
        let mut writer = writer(&conn, Parts { clock, ..parts });
        let (claim, _answer) = pending(ticks());
        let (mut batch, mut answers) = (vec![Request::Claim(claim)], Vec::new());
        for _ in 0..9 {
            let (reply, answer) = oneshot::channel();
            batch.push(Request::Probe(false, reply));
            answers.push(answer);
        }
        let (began, patience) = (ticks(), Duration::from_millis(500));
        writer.transact(batch, Claims::Never, began + patience);
        let took = ticks() - began;
        for mut answer in answers {
            let error = answer.try_recv().unwrap().unwrap_err().to_string();
            assert!(error.contains("locked"), "{error}");
        }
        assert!((patience..3 * patience).contains(&took), "nine waited for {took:?} where one may for {patience:?}");
    }

    #[test]
    fn the_log_is_looked_at_once_in_so_many_transactions() {
        let (_desk, conn, parts) = desk();
        conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a)").unwrap();
        conn.execute("INSERT INTO t VALUES (zeroblob(?1))", [2_000 * 4_096]).unwrap();
        let mut writer = writer(&conn, parts);
        for transaction in 1..=CHECKPOINT_EVERY {
            writer.checkpoint();
            let log = |row: &rusqlite::Row<'_>| Ok::<(i64, i64), Error>((row.get(1)?, row.get(2)?));
            let (log, copied) = writer.sql.first(Query::WalPages, [], log).unwrap().unwrap();
            assert_eq!(log == copied, transaction == CHECKPOINT_EVERY, "{transaction}");
        }
    }

    /// A lingering that no clock can count to is a long one.
    #[test]
    fn a_claim_is_answered_when_it_has_lingered() {
        let began = ticks();
        assert!(deadline(Span::ZERO) >= began);
        let hour = Span::from_secs(3_600);
        for linger in [hour, Span::from_micros(u64::MAX)] {
            assert!(deadline(linger) >= began + hour.to_std(), "{linger}");
        }
    }
}
