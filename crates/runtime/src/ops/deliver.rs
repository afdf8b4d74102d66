//! What units have promised beside their jobs: done once, by whichever process gets there first. Each promise goes with the
//! unit that keeps it, so a crash cannot come between the two.

use aetheris_core::agent::Planner;
use aetheris_core::event::{ChildEnded, ChildOutcome, ChildStarted, EndCause, Event, JobCreated, PlanGenerated};
use aetheris_core::event::{TimerId, TimerSet};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::OnParentEnd;
use aetheris_core::projection::Promise;
use aetheris_core::state::{Ending, JobState};
use aetheris_core::time::Timestamp;
use aetheris_store::{ChildOf, ChildRow, JobRow, NewJob, PromiseRow, Purpose, Refusal, Scope, UnitOfWork};

use super::{Decided, cancelling};
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::{Draft, LastCheckpoint, WriteError};
use crate::error::OpError;
use crate::load::{ForWrite, Loaded};
use crate::names;

/// Promises that are kept together: one, or all of those who tell the same parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    rows: Vec<PromiseRow>,
}

impl Delivery {
    /// What a page of promises comes to: each by itself, and what tells one job together.
    #[must_use]
    pub fn of(page: Vec<PromiseRow>) -> Vec<Self> {
        let mut deliveries: Vec<Self> = Vec::new();
        let mut told = std::collections::BTreeMap::new();
        for row in page {
            if let Promise::TellParent { parent, .. } = row.promise {
                let at = *told.entry(parent).or_insert(deliveries.len());
                if let Some(delivery) = deliveries.get_mut(at) {
                    delivery.rows.push(row);
                    continue;
                }
            }
            deliveries.push(Self { rows: vec![row] });
        }
        deliveries
    }

    /// What names it: the job that is told, or the first promise's number and its target.
    #[must_use]
    pub fn key(&self) -> (JobId, u64) {
        let first = self.rows.first();
        let target = first.map_or(JobId::from_u128(0), |row| row.promise.target(row.author));
        let tells = first.is_some_and(|row| matches!(row.promise, Promise::TellParent { .. }));
        (target, first.filter(|_| !tells).map_or(0, |row| row.num))
    }

    /// What is to be done, for logs.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self.rows.first().map(|row| &row.promise) {
            Some(Promise::CancelChildren) => "cancel children",
            Some(Promise::CancelChild { .. }) => "cancel child",
            Some(Promise::CreateChild { .. }) => "create child",
            Some(Promise::TellParent { .. }) => "tell parent",
            None => "nothing",
        }
    }

    /// Under which name a failure of it backs off. It changes when more is promised to the same job, which is tried at once.
    #[must_use]
    pub fn backoff_key(&self) -> (JobId, u64) {
        (self.key().0, self.rows.last().map_or(0, |row| row.num))
    }
}

impl Runtime {
    /// Does what was promised. Whether it is done: somebody else may have done it. A read of the job that it is about, of each child that
    /// has ended, and one commit; of a job's end one for each child that is cancelled.
    ///
    /// # Errors
    /// [`OpError`]: a job cannot be read or written. What is left stands in the outbox.
    pub async fn deliver(&self, delivery: &Delivery) -> Result<bool, OpError> {
        self.deliver_as(delivery, Caller::Process).await
    }

    /// The same, where no large job is written to, or nobody in this process is to be waited for.
    ///
    /// # Errors
    /// As [`Runtime::deliver`]; [`OpError::Crowded`], where it was to be waited for.
    pub async fn deliver_if_free(&self, delivery: &Delivery) -> Result<bool, OpError> {
        self.deliver_as(delivery, Caller::Sweep).await
    }

    async fn deliver_as(&self, delivery: &Delivery, caller: Caller) -> Result<bool, OpError> {
        let Some(first) = delivery.rows.first() else { return Ok(true) };
        let (author, num) = (first.author, first.num);
        let done = match &first.promise {
            Promise::CreateChild { child, seq, .. } => {
                self.create_child((author, num), *child, *seq).await.map(|()| true)
            }
            Promise::CancelChild { child, node } => {
                self.cancel_unawaited((author, num), (*child, node), caller).await.map(|()| true)
            }
            Promise::CancelChildren => self.cancel_children((author, num), caller).await.map(|()| true),
            Promise::TellParent { parent, .. } => self.tell_parent(*parent, &delivery.rows, caller).await,
        };
        match done {
            Err(OpError::Delivered(_)) => {
                aetheris_fault::sometimes!(DeliveredByAnother);
                Ok(false)
            }
            done => done,
        }
    }

    /// Creates a child as its parent's event says.
    async fn create_child(&self, promise: (JobId, u64), child: JobId, seq: u64) -> Result<(), OpError> {
        let (author, num) = promise;
        let started = self.child_started(author, child, seq).await?;
        let parent = self.store.job(Scope::System, author).await?.ok_or(OpError::JobNotFound(author))?;
        let draft = self.facts_of_child(&parent, &started).await?;
        aetheris_fault::crash_point!("ops.deliver.child_decided");
        let new_job = NewJob {
            agent: started.agent.clone(),
            agent_version: started.agent_version.clone(),
            client_key: None,
            labels: std::collections::BTreeMap::new(),
            parent: Some(ChildOf { job: author, node: started.node.clone(), on_parent_end: started.on_parent_end }),
            priority: parent.priority,
            session: started.session.clone(),
            tenant: parent.tenant.clone(),
        };
        let fallback = self.event_id();
        let unit = || {
            let mut unit = draft.unit(Purpose::Create, fallback);
            unit.create = Some(new_job.clone());
            if !aetheris_fault::planted!("promise-outlives-its-child") {
                unit.delivers = vec![num];
            }
            unit
        };
        match crate::draft::write(self.store.as_ref(), unit).await {
            Ok(_) => {
                aetheris_fault::crash_point!("ops.deliver.child_written");
                if !draft.state().timers.is_empty() {
                    self.store.bus().timer_set();
                }
                Ok(())
            }
            Err(WriteError::Refused(Refusal::ParentEnded(_))) => {
                aetheris_fault::sometimes!(ChildOfEndedParent);
                self.dismiss(author, vec![num]).await
            }
            Err(WriteError::Refused(Refusal::Sequence { .. })) => {
                let standing = self.store.promised(author, child).await?.iter().any(|row| row.num == num);
                let taken = || OpError::Corrupt(format!("{child}, which {author} has asked for, is there already"));
                if standing { Err(taken()) } else { Err(OpError::Delivered(num)) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The event that asks for a child.
    async fn child_started(&self, author: JobId, child: JobId, seq: u64) -> Result<ChildStarted, OpError> {
        let at = self.store.events(Scope::System, author, seq.saturating_sub(1), 1).await?.pop();
        let event = at.filter(|row| row.seq == seq).map(|row| row.decode()).transpose();
        let event = event.map_err(|error| OpError::Corrupt(format!("event {seq} of {author}: {error}")))?;
        let wrong = || OpError::Corrupt(format!("event {seq} of {author} does not ask for {child}"));
        let event = event.ok_or_else(wrong)?.event;
        if let Event::ChildStarted(started) = event
            && started.child == child
        {
            return Ok(*started);
        }
        Err(wrong())
    }

    async fn facts_of_child(&self, parent: &JobRow, started: &ChildStarted) -> Result<Draft, OpError> {
        let ids = self.system.ids.as_ref();
        let planned = started.planner != Planner::Static.as_str();
        let mut draft = Draft::new(JobState::new(started.child), Guard::Outside, LastCheckpoint::default());
        draft.push(
            ids,
            JobCreated {
                agent: started.agent.clone(),
                agent_version: started.agent_version.clone(),
                execution_version: self.settings.execution_version.clone(),
                labels: std::collections::BTreeMap::new(),
                message: started.message.clone(),
                parent: Some(started.parent(parent.id)),
                planning: Some(started.plan_hash).filter(|_| planned),
                priority: parent.priority,
                run_at: None,
                session: started.session.clone(),
                tenant: parent.tenant.clone(),
            },
        )?;
        if !planned {
            let planner_version = self.settings.execution_version.clone();
            let (plan_hash, planner) = (started.plan_hash, started.planner.clone());
            draft.push(ids, PlanGenerated { plan_hash, plan_version: 1, planner, planner_version })?;
        }
        if let Some(after_us) = self.deadline_of(started).await? {
            draft.push(ids, TimerSet { after_us, timer: TimerId::Deadline })?;
        }
        Ok(draft)
    }

    /// The time that a child may take: what it was given, and what is left of its parent's where it is to end with that.
    async fn deadline_of(&self, started: &ChildStarted) -> Result<Option<u64>, OpError> {
        let Some(until) = started.parent_deadline.filter(|_| !aetheris_fault::planted!("childs-own-deadline")) else {
            return Ok(started.deadline_us);
        };
        let now: Timestamp = self.store.status().await?.now;
        // One that has passed is about to end the parent, and the child with it.
        let left = until.since(now).micros().max(1);
        Ok(Some(started.deadline_us.map_or(left, |own| own.min(left))))
    }

    /// Cancels the child of an item whose map has failed: nobody wants its answer any more.
    async fn cancel_unawaited(
        &self,
        promise: (JobId, u64),
        (child, node): (JobId, &StepPath),
        caller: Caller,
    ) -> Result<(), OpError> {
        let (author, num) = promise;
        let cancelled = match self.cancel_as_child(child, caller).await {
            Err(OpError::JobNotFound(_)) => {
                let about = self.store.promised(author, child).await?;
                if about.iter().any(|row| matches!(row.promise, Promise::CreateChild { .. })) {
                    // It is not created any more, and its item waits for an end all the same.
                    let nums = about.iter().map(|row| row.num).collect();
                    let end = ChildEnded { child, node: node.clone(), outcome: ChildOutcome::Cancelled };
                    return self.tell(author, nums, &[end], caller).await;
                }
                // It was created meanwhile.
                self.cancel_as_child(child, caller).await
            }
            cancelled => cancelled,
        };
        match cancelled {
            Ok(()) | Err(OpError::JobNotFound(_)) => self.dismiss(author, vec![num]).await,
            Err(error) => Err(error),
        }
    }

    /// Cancels all that is to end with a job. What fails keeps nobody else from its end.
    async fn cancel_children(&self, promise: (JobId, u64), caller: Caller) -> Result<(), OpError> {
        let (author, num) = promise;
        let (mut after, mut failed) = (None, None);
        loop {
            let page = self.store.children(Scope::System, author, after, limits::PAGE_JOBS_MAX).await?;
            let goes_on = |child: &&ChildRow| {
                let asked = child.row.end_requested.is_some_and(EndCause::ends);
                child.on_parent_end == OnParentEnd::Cancel && !child.row.status.is_terminal() && !asked
            };
            for child in page.children.iter().filter(goes_on) {
                aetheris_fault::crash_point!("ops.deliver.cancelling");
                if let Err(error) = self.cancel_as_child(child.row.id, caller).await {
                    failed = failed.or(Some(error));
                }
                if aetheris_fault::planted!("first-child-is-cancelled") {
                    break;
                }
            }
            if page.unreadable > 0 {
                let unreadable =
                    || OpError::Corrupt(format!("{} children of {author} cannot be read", page.unreadable));
                failed = failed.or_else(|| Some(unreadable()));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        match failed {
            Some(error) => Err(error),
            None => self.dismiss(author, vec![num]).await,
        }
    }

    async fn cancel_as_child(&self, child: JobId, caller: Caller) -> Result<(), OpError> {
        let cancelled = self.amend((child, caller), Purpose::Cancel, Guard::Outside, |loaded, draft| {
            self.decided(draft, cancelling(&loaded.state, &loaded.ledger)?)
        });
        match cancelled.await {
            Ok(_) => {
                aetheris_fault::sometimes!(ChildCancelled);
                Ok(())
            }
            Err(OpError::JobFinished { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tells a job how its children have ended, as many at once as a unit is to have. Whether all are told: one that cannot be read
    /// keeps nobody else from it.
    async fn tell_parent(&self, parent: JobId, rows: &[PromiseRow], caller: Caller) -> Result<bool, OpError> {
        let (mut left, mut failed, mut any) = (rows, None, false);
        while !left.is_empty() {
            let (mut nums, mut ends, mut bytes, mut taken) = (Vec::new(), Vec::new(), 0, 0);
            for row in left {
                if taken > 0 && (bytes > limits::UNWRITTEN_BYTES_MAX || taken >= limits::CHILDREN_TOLD_MAX) {
                    break;
                }
                taken += 1;
                match self.end_of(row, caller).await {
                    Ok(end) => {
                        bytes += end.outcome.memory();
                        nums.push(row.num);
                        ends.push(end);
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            left = left.get(taken..).unwrap_or_default();
            if !ends.is_empty() {
                self.tell(parent, nums, &ends, caller).await?;
                any = true;
            }
        }
        match failed {
            Some(error) if !any => Err(error),
            // The sweep hears only that something is left.
            Some(error) => {
                if !matches!(error, OpError::Crowded) {
                    tracing::warn!(%parent, %error, "the end of a child cannot be told to its parent; trying again");
                }
                Ok(false)
            }
            None => Ok(true),
        }
    }

    /// How the author of a promise has ended.
    async fn end_of(&self, row: &PromiseRow, caller: Caller) -> Result<ChildEnded, OpError> {
        let child = row.author;
        let loaded = ForWrite::read((self.store.as_ref(), &Scope::System), child, &self.loads, caller).await?;
        let node = loaded.state.parent.as_ref().map(|parent| parent.node.clone());
        let outcome = outcome(&loaded);
        let (node, outcome) = node
            .zip(outcome)
            .ok_or_else(|| OpError::Corrupt(format!("{child} has promised to tell its end, and has not ended")))?;
        Ok(ChildEnded { child, node, outcome })
    }

    /// Tells a job how children of it have ended, and keeps these promises with it.
    async fn tell(&self, parent: JobId, nums: Vec<u64>, ends: &[ChildEnded], caller: Caller) -> Result<(), OpError> {
        let told = self.amend((parent, caller), Purpose::Deliver, Guard::Outside, |loaded, mut draft| {
            let mut any = false;
            nums.iter().for_each(|num| draft.deliver(*num));
            for end in ends {
                if loaded.state.awaits_child(&end.node, end.child) && !aetheris_fault::planted!("parent-never-told") {
                    draft.push(self.system.ids.as_ref(), end.clone())?;
                    any = true;
                }
            }
            aetheris_fault::sometimes!(ChildToldWhileRunning, any && loaded.state.status == JobStatus::Running);
            Ok(if any { Decided::Write(Box::new(draft), true) } else { Decided::Answer(false) })
        });
        if told.await? {
            return Ok(());
        }
        // It has ended, or its step has: it makes no difference any more.
        aetheris_fault::sometimes!(ChildToldNobody);
        self.dismiss(parent, nums).await
    }

    /// Promises that there is nothing left to do for.
    async fn dismiss(&self, job: JobId, nums: Vec<u64>) -> Result<(), OpError> {
        let mut unit = UnitOfWork::new(self.event_id(), job, Purpose::Deliver, Guard::Outside);
        unit.delivers = nums;
        crate::draft::write(self.store.as_ref(), || unit.clone()).await.map(drop).map_err(OpError::from)
    }
}

/// How a job has ended, for its parent.
fn outcome(loaded: &Loaded) -> Option<ChildOutcome> {
    Some(match loaded.state.ending.as_ref()? {
        Ending::Answered(answer) => {
            let result = names::answer(&loaded.state, &loaded.effects, answer);
            ChildOutcome::Completed {
                result: if aetheris_fault::planted!("childs-answer-lost") { Json::null() } else { result },
            }
        }
        Ending::Cancelled => ChildOutcome::Cancelled,
        Ending::Failed { error, .. } => ChildOutcome::Failed { error: error.clone() },
    })
}
