//! The store itself, watched: every write that it accepts is held against what can be checked at once.
//! The full set of invariants is evaluated at the end of a run; these here name the moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::event::{EncodedEvent, EventKind};
use aetheris_core::id::{AgentName, IdempotencyKey, InstanceId, JobId, NodeId, PermitId, TenantId, WorkerId};
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::limits;
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::ToolCall;
use aetheris_store::{
    Boxed, Bus, ClaimRequest, Claimed, CommitError, Committed, Glance, Health, Heartbeat, History, LeaseChange,
    LedgerWrite, NewAgent, Purpose, PutAgent, Renewal, Scope, Store, StoreError, UnitOfWork,
};
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fault_rates::{FaultRates, Hints as HintFaults};
use crate::program::Program;
use crate::tally::Tally;
use crate::tell;
use crate::trace::Trace;

/// What is known of a job from the writes that were accepted.
#[derive(Debug, Clone, Default)]
struct Seen {
    ended: bool,
    /// Steps whose ends are stored and that have failed: which, under which run, and why.
    failed: Vec<(String, Fence, String)>,
    fence: Fence,
    /// Who holds it and until when.
    holder: Option<(WorkerId, Timestamp)>,
    /// Whose the last claim was.
    instance: Option<InstanceId>,
    seq: u64,
    /// The nodes of which an end is stored.
    over: BTreeSet<String>,
}

/// The node of an event that ends one, out of what is stored.
fn over(event: &EncodedEvent) -> Option<String> {
    if !matches!(event.kind, EventKind::NodeFinished | EventKind::NodeSkipped) {
        return None;
    }
    let payload: serde_json::Value = serde_json::from_slice(&event.payload).ok()?;
    payload.get("node")?.as_str().map(str::to_owned)
}

/// The step that has failed with an event, and why, out of what is stored.
fn fails(event: &EncodedEvent) -> Option<(String, String)> {
    let payload: serde_json::Value = serde_json::from_slice(&event.payload).ok()?;
    let result = payload.get("result")?.as_str()?;
    let failed = matches!(result, "retryable_failure" | "permanent_failure");
    // What a model is told of fails nothing.
    if event.kind != EventKind::NodeFinished || !failed || payload.get("told").is_some() {
        return None;
    }
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    Some((text(payload.get("node")?)?, text(payload.get("error")?.get("code")?)?))
}

/// What is known of a call that leaves its process.
#[derive(Debug, Default)]
pub struct Leaving {
    /// Of how many nodes of its job calls may be out at once, and how many of its own.
    pub at_once: Option<(u64, u64)>,
    /// The nodes whose ends are stored by then.
    pub behind: Option<Vec<String>>,
    /// What its job does.
    pub program: Option<Arc<Program>>,
}

/// A call that is awaited; it is over when this is dropped.
#[derive(Debug)]
pub struct Out {
    of: Option<(JobId, Fence, NodeId)>,
    recorder: Arc<Recorder>,
}

impl Drop for Out {
    fn drop(&mut self) {
        let Some((job, fence, node)) = &self.of else { return };
        if let Some(out) = self.recorder.book().out.get_mut(&(*job, *fence)) {
            let left = out.get(node).map_or(0, |calls| calls.saturating_sub(1));
            if left == 0 {
                out.remove(node)
            } else {
                out.insert(node.clone(), left)
            };
        }
    }
}

#[derive(Default)]
struct Book {
    found: Tally,
    /// Calls that are awaited, by job and run, then by node.
    out: BTreeMap<(JobId, Fence), BTreeMap<NodeId, u64>>,
    jobs: BTreeMap<JobId, Seen>,
    /// When each permit was given, by true time, and how long its call can arrive.
    permits: BTreeMap<PermitId, (Instant, Span)>,
    /// When the current permit of each call was stored, by true time.
    granted: BTreeMap<(IdempotencyKey, u32), Instant>,
    /// Calls that have left, with their permits.
    left: BTreeSet<(IdempotencyKey, u32)>,
    /// Jobs that were taken back because their leases had expired, and from whom.
    reclaims: Vec<(JobId, InstanceId)>,
    /// The last time that was stored.
    stored: Timestamp,
    /// Runs, with who began them and how long they held their jobs.
    leases: BTreeMap<(JobId, Fence), (InstanceId, Timestamp)>,
    /// Processes that stood still: since when by the store's clock, and when they went on by true time.
    stood: BTreeMap<InstanceId, (Timestamp, Option<Instant>)>,
}

/// A store and the book that is kept about it.
pub struct Recorder {
    book: Mutex<Book>,
    inner: Arc<dyn Store>,
    listed: Arc<Notify>,
    trace: Trace,
    rates: FaultRates,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Book {
    /// Whether the process of a run stood still until now, and could have looked at its lease right before: what it sends now is
    /// what it was about to send then.
    fn looked_and_stood(&self, run: (JobId, Fence)) -> bool {
        self.leases.get(&run).is_some_and(|(instance, until)| {
            let stood = self.stood.get(instance);
            stood.is_some_and(|(since, went_on)| *until > *since && *went_on == Some(Instant::now()))
        })
    }
}

/// No clock that can be set has a say here: what is disproved by the clocks is over by the time that has truly passed.
fn in_true_time(found: &mut Tally, permits: &mut BTreeMap<PermitId, (Instant, Span)>, unit: &UnitOfWork, name: &str) {
    let now = Instant::now();
    for write in &unit.ledger {
        match write {
            LedgerWrite::Permit(asked) => {
                permits.insert(asked.permit_id, (now, asked.lifetime));
            }
            LedgerWrite::Disprove(disproof) if disproof.grounds.needs_time() => {
                let Some((given, lifetime)) = permits.get(&disproof.permit_id) else { continue };
                let open = lifetime.plus(disproof.settle).to_std();
                found.case("C5", now - *given >= open, || {
                    format!("{name}: \"did not happen\" {:?} after a permit that was open for {open:?}", now - *given)
                });
            }
            LedgerWrite::Disprove(_) | LedgerWrite::Settle(_) | LedgerWrite::See { .. } => {}
        }
    }
}

impl Recorder {
    /// Watches a store. Whoever waits for `listed` is told when somebody has been told of timers that are due.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, listed: Arc<Notify>, trace: Trace, rates: FaultRates) -> Self {
        Self { book: Mutex::default(), inner, listed, trace, rates }
    }

    /// What was found.
    #[must_use]
    pub fn found(&self) -> Tally {
        self.book().found.clone()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self, unit: &UnitOfWork, committed: &Committed) {
        let name = self.trace.name(unit.job);
        let kinds: Vec<&str> = unit.events.iter().map(|event| event.kind.as_str()).collect();
        let who = match unit.guard {
            Guard::Run(fence) => format!("run {fence}"),
            Guard::Expired(fence) => format!("reclaim {fence}"),
            Guard::Dead(fence, _) => format!("proof {fence}"),
            Guard::Due(moment) => format!("timer of {moment}"),
            Guard::Outside => "outside".to_owned(),
        };
        tell!(
            self.trace,
            "store",
            "{name} {} by {who}: {} -> {}",
            unit.purpose.as_str(),
            kinds.join(" "),
            committed.seq
        );
        let mut book = self.book();
        book.stored = book.stored.max(committed.at);
        for write in &unit.ledger {
            if let LedgerWrite::Permit(asked) = write {
                book.granted.insert((asked.key, asked.permit), Instant::now());
            }
        }
        if let (Guard::Expired(_), Some(held)) = (unit.guard, book.jobs.get(&unit.job).and_then(|seen| seen.instance)) {
            book.reclaims.push((unit.job, held));
        }
        let Book { found, jobs, permits, .. } = &mut *book;
        in_true_time(found, permits, unit, &name);
        let seen = jobs.entry(unit.job).or_default();
        let count = u64::try_from(unit.events.len()).unwrap_or(0);
        found.case("B1", committed.seq == seen.seq + count, || {
            format!("{name}: {count} events follow {} and end at {}", seen.seq, committed.seq)
        });
        found.case("B5", !seen.ended || count == 0 || kinds == ["in_doubt_resolved"], || {
            format!("{name}: {kinds:?} follows its end")
        });
        check_right(found, seen, unit, committed, &name);
        seen.seq = committed.seq;
        seen.over.extend(unit.events.iter().filter_map(over));
        if let Guard::Run(fence) = unit.guard {
            let failed = unit.events.iter().filter_map(fails);
            seen.failed.extend(failed.map(|(node, code)| (node, fence, code)));
        }
        let ended = [EventKind::JobCompleted, EventKind::JobFailed, EventKind::JobCancelled].map(EventKind::as_str);
        seen.ended |= kinds.iter().any(|kind| ended.contains(kind));
        if unit.lease == LeaseChange::Release {
            seen.holder = None;
        }
        let blocked = kinds.contains(&EventKind::JobWaiting.as_str());
        found.case("E7", !(blocked || seen.ended) || seen.holder.is_none(), || {
            format!("{name}: blocked or ended, and held by {:?}", seen.holder)
        });
    }

    fn claimed(&self, request: &ClaimRequest, claimed: &Claimed, at: Timestamp) {
        let name = self.trace.name(claimed.job);
        tell!(self.trace, "store", "{name} claimed by {} as {}", request.worker, claimed.fence);
        let mut book = self.book();
        book.stored = book.stored.max(at);
        let Book { found, jobs, leases, .. } = &mut *book;
        let seen = jobs.entry(claimed.job).or_default();
        found.case("A1", seen.holder.is_none(), || format!("{name}: claimed while {:?} holds it", seen.holder));
        found.case("A2", claimed.fence.epoch == seen.fence.epoch + 1, || {
            format!("{name}: fence {} after {}", claimed.fence, seen.fence)
        });
        found.case("B5", !seen.ended, || format!("{name}: claimed after its end"));
        found.case("A1", claimed.lease_until > at, || format!("{name}: a lease that ends before it begins"));
        leases.insert((claimed.job, claimed.fence), (request.instance, claimed.lease_until));
        seen.fence = claimed.fence;
        seen.instance = Some(request.instance);
        seen.holder = Some((request.worker.clone(), claimed.lease_until));
        seen.seq += 1;
    }

    fn renewed(&self, request: &Heartbeat, job: JobId, at: Timestamp) {
        let name = self.trace.name(job);
        let mut book = self.book();
        let Book { found, jobs, leases, .. } = &mut *book;
        let seen = jobs.entry(job).or_default();
        let fence = request.leases.iter().find(|lease| lease.job == job).map(|lease| lease.fence);
        let live = seen.holder.as_ref().is_some_and(|(worker, until)| *worker == request.worker && *until > at);
        found.case("A5", live && fence == Some(seen.fence), || {
            format!("{name}: {} renewed {fence:?} at {at}; held by {:?} as {}", request.worker, seen.holder, seen.fence)
        });
        if let Some((_, until)) = &mut seen.holder {
            *until = at.after(request.ttl);
        }
        if let Some((_, until)) = fence.and_then(|fence| leases.get_mut(&(job, fence))) {
            *until = at.after(request.ttl);
        }
    }

    /// Jobs that were taken back because their leases had expired, and from whom.
    #[must_use]
    pub fn reclaims(&self) -> Vec<(JobId, InstanceId)> {
        self.book().reclaims.clone()
    }

    /// A process stands still.
    pub fn process_stops(&self, instance: InstanceId) {
        let at = self.outside_time();
        self.book().stood.insert(instance, (at, None));
    }

    /// It goes on.
    pub fn process_goes_on(&self, instance: InstanceId) {
        if let Some((_, went_on)) = self.book().stood.get_mut(&instance) {
            *went_on = Some(Instant::now());
        }
    }

    /// A call leaves: its lease must still be the job's, and live, and its permit fresh; and where it leaves its process, the
    /// ends of the nodes that its step `needs` must be stored.
    #[must_use]
    pub fn call_leaves(self: &Arc<Self>, call: &ToolCall, leaving: &Leaving, at: Timestamp) -> Out {
        let (job, fence) = (call.job, call.fence);
        let name = self.trace.name(job);
        let (jumps, stands_still) = (self.rates.jumps, self.rates.stops > 0 || self.rates.nemesis > 0);
        let mut book = self.book();
        let frozen = book.looked_and_stood((job, fence));
        let Book { found, granted, jobs, left, out, .. } = &mut *book;
        let under = call.permit.map(|permit| (call.key, permit.number));
        let granted = under.and_then(|under| granted.get(&under));
        if let Some(under) = under {
            // Whatever the other side says: it may say so after it has acted.
            let (is_stored, is_first) = (granted.is_some(), left.insert(under));
            found.case("S7", is_stored && is_first, || {
                let how = if is_stored { "leaves again" } else { "leaves, and its permit is not stored" };
                format!("{name} {}: a call {how}, under permit {}", call.node, under.1)
            });
        }
        // A process that stands still between its last look and its send can be as late as it likes (guarantees).
        if let Some(granted) = granted.filter(|_| !stands_still) {
            // Its clock may be a fifth slower than the truth.
            let (late, most) = (granted.elapsed(), limits::PERMIT_MARGIN.to_std().mul_f64(1.25));
            found.case("S3", late <= most, || format!("{name}: a call leaves {late:?} after its permit was stored"));
        }
        let seen = jobs.entry(job).or_default();
        if let Some(behind) = &leaving.behind {
            let open: Vec<&String> = behind.iter().filter(|need| !seen.over.contains(*need)).collect();
            found.case("S6", open.is_empty(), || {
                format!("{name} {}: a call leaves, and no end of {open:?} is stored", call.node)
            });
        }
        let live = seen.fence == fence && seen.holder.as_ref().is_some_and(|(_, until)| *until > at);
        let failed = seen.failed.iter().find(|(node, under, code)| {
            let forbids = |program: &Arc<Program>| program.forbids(&node.as_str().into(), code, &call.node);
            *under == fence && leaving.program.as_ref().is_none_or(forbids)
        });
        found
            .case("S8", failed.is_none(), || format!("{name} {}: a call leaves, and {failed:?} has failed", call.node));
        let node = call.node.node();
        if let Some((nodes, of_node)) = leaving.at_once {
            let out = out.entry((job, fence)).or_default();
            *out.entry(node.clone()).or_default() += 1;
            let own = out.get(node).copied().unwrap_or_default();
            let kept = own <= of_node && u64::try_from(out.len()).is_ok_and(|out| out <= nodes);
            found.case("S9", kept, || {
                format!(
                    "{name} {}: {out:?} are out at once, and {nodes} nodes may be, {of_node} of this one",
                    call.node
                )
            });
        }
        // Where the store's clock jumps, nobody can know that a lease has just ended; nor can a process that stood still between
        // its last look and this call.
        if !jumps && !frozen {
            found.case("A7", live, || {
                format!("{name}: a call leaves under {fence} at {at}; {:?} holds it as {}", seen.holder, seen.fence)
            });
        }
        drop(book);
        Out { of: leaving.at_once.map(|_| (job, fence, node.clone())), recorder: Arc::clone(self) }
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        ask: impl FnOnce(&'a dyn Store) -> Boxed<'a, Result<T, StoreError>>,
    ) -> Boxed<'a, Result<T, StoreError>> {
        let asked = ask(self.inner.as_ref());
        if name != "due_timers" || !self.rates.jumps {
            return asked;
        }
        Box::pin(async move {
            let answer = asked.await;
            if self.inner.due_timers(None, 1).await.is_ok_and(|due| !due.timers.is_empty()) {
                self.listed.notify_waiters();
                // Who waited for it comes first.
                tokio::task::yield_now().await;
            }
            answer
        })
    }

    async fn now(&self) -> Timestamp {
        self.inner.status().await.map(|status| status.now).unwrap_or_default()
    }

    /// The time, by the store's clock, of a line that is logged outside the store now: never before what is stored, and
    /// never after what is stored later. Where that clock may be set back, it is the last time that was stored: what
    /// was not stored the store may take back.
    #[must_use]
    pub fn outside_time(&self) -> Timestamp {
        let stored = self.book().stored;
        if self.rates.jumps {
            return stored;
        }
        self.now().now_or_never().unwrap_or(stored)
    }
}

/// Whether the author of a unit had the right to write it.
fn check_right(found: &mut Tally, seen: &Seen, unit: &UnitOfWork, committed: &Committed, name: &str) {
    let at = committed.at;
    let until = seen.holder.as_ref().map(|(_, until)| *until);
    match unit.guard {
        Guard::Run(fence) => {
            found.case("A4", fence == seen.fence && until.is_some(), || {
                format!("{name}: written by {fence} while {} is current, held: {until:?}", seen.fence)
            });
            if unit.ledger.iter().any(|write| matches!(write, LedgerWrite::Permit(_))) {
                found.case("A7", until.is_some_and(|until| until > at), || {
                    format!("{name}: a permission at {at} under a lease that ended at {until:?}")
                });
            }
        }
        Guard::Expired(fence) => found.case("A9", fence == seen.fence && until.is_some_and(|u| u <= at), || {
            format!("{name}: taken from {fence} at {at}; its lease ends at {until:?}")
        }),
        Guard::Dead(fence, _) => found.case("A9", fence == seen.fence && until.is_some(), || {
            format!("{name}: taken from {fence}, which does not hold it")
        }),
        Guard::Due(moment) => {
            found.case("E6", moment <= at, || format!("{name}: a timer of {moment} is fired at {at}"));
        }
        Guard::Outside => {
            found.case("A9", unit.purpose != Purpose::Reclaim, || format!("{name}: taken back without a proof"));
            let fires = unit.events.iter().any(|event| event.kind == EventKind::TimerFired);
            found.case("E6", !fires, || format!("{name}: a timer is fired without its moment"));
        }
    }
}

impl Store for Recorder {
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        Box::pin(async move {
            let known = unit.clone();
            let committed = self.inner.commit(unit).await?;
            self.written(&known, &committed);
            Ok(committed)
        })
    }

    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        self.inner.resolve_unknown(unit)
    }

    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(async move {
            let mut asked = request.clone();
            if self.rates.hints == HintFaults::Dropped {
                // Nothing tells a claim that lingers of new work: it has to come again.
                tokio::time::sleep(asked.linger.to_std()).await;
                asked.linger = Span::ZERO;
            }
            let claimed = self.inner.claim(asked).await?;
            let now = self.now().await;
            for job in &claimed {
                self.claimed(&request, job, now);
            }
            Ok(claimed)
        })
    }

    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        Box::pin(async move {
            let renewals = self.inner.heartbeat(request.clone()).await?;
            let now = self.now().await;
            for renewal in &renewals {
                match renewal {
                    Renewal::Renewed { job, .. } => self.renewed(&request, *job, now),
                    Renewal::Refused(job) => {
                        tell!(self.trace, "store", "{} not renewed for {}", self.trace.name(*job), request.worker);
                    }
                }
            }
            Ok(renewals)
        })
    }

    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        self.inner.put_agent(agent)
    }

    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        self.inner.delete_agent(tenant, name)
    }

    aetheris_store::questions_through!(read);

    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>> {
        self.read("glance", move |inner| inner.glance(scope, job))
    }

    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        self.read("history", move |inner| inner.history(scope, job, full))
    }

    fn health(&self) -> Boxed<'_, Result<Health, StoreError>> {
        self.read("health", |inner| inner.health())
    }

    fn bus(&self) -> &Bus {
        self.inner.bus()
    }
}
