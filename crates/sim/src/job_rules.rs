//! What must hold in the course of every job, read from its events: tries and their delays, reclaims in a
//! row, and the order within a session.

use std::collections::BTreeMap;

use aetheris_core::event::{DoubtOutcome, Event, InvocationOutcome, Recorded, RequeueReason, Resolver};
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::retry::RetryPolicy;
use aetheris_core::time::{Span, Timestamp};
use aetheris_store::JobRow;

use crate::program::{Kind, Program};
use crate::tally::Tally;

/// Tries of one job's nodes: not more than allowed, and none before its delay is over.
pub(crate) fn tries(job: JobId, program: &Program, events: &[Recorded], jumps: bool, tally: &mut Tally) {
    let mut scheduled: BTreeMap<&StepPath, (u32, Timestamp)> = BTreeMap::new();
    let mut granted: Option<&StepPath> = None;
    for recorded in events {
        match &recorded.event {
            // A person who says that it did not happen gives one more try, whatever the policy has left.
            Event::InDoubtResolved(said)
                if said.by == Resolver::Operator && said.outcome == DoubtOutcome::DidNotHappen =>
            {
                granted = Some(&said.node);
            }
            Event::NodeRetryScheduled(retry) => {
                let of_critic = if retry.node.is_critic() || retry.node.is_planning() {
                    RetryPolicy::default().max_attempts
                } else {
                    1
                };
                let tries = program.step_at(&retry.node).map_or(of_critic, |(_, step)| step.tries);
                let due = recorded.at.after(Span::from_micros(retry.after_us));
                let entry = scheduled.entry(&retry.node).or_insert((0, due));
                *entry = (entry.0 + 1, due);
                let count = entry.0;
                let person = granted.take() == Some(&retry.node);
                tally.case("D11", count < tries || person, || {
                    format!("{job} {}: try {} is scheduled, {tries} are allowed", retry.node, count + 1)
                });
            }
            Event::NodeStarted(started) if !jumps => {
                if let Some((_, due)) = scheduled.get(&started.node) {
                    // A short delay is waited for by the process's own timer, to the millisecond.
                    let early = due.since(recorded.at);
                    tally.case("E6", early <= Span::from_millis(2), || {
                        format!("{job} {}: a try began {early} before its delay was over", started.node)
                    });
                }
            }
            _ => {}
        }
    }
}

/// No call is permitted and no model is asked beyond the job's budget, counted from what is recorded of both.
pub(crate) fn budget(job: JobId, program: &Program, events: &[Recorded], tally: &mut Tally) {
    let Some(budget) = program.budget else { return };
    let kind = |node: &StepPath| program.step_at(node).map(|(_, step)| &step.kind);
    let (mut calls, mut tokens) = (0_u32, 0_u64);
    for recorded in events {
        let mut call = |node: &StepPath| {
            calls += 1;
            tally.case("D14", calls <= budget.tool_calls, || {
                format!("{job} {node}: call {calls} of {} that are allowed", budget.tool_calls)
            });
        };
        match &recorded.event {
            Event::ToolInvocationStarted(started) => call(&started.node),
            Event::ToolInvocationFinished(finished) if finished.outcome == InvocationOutcome::NotSent => calls -= 1,
            // Of a loop its turns ask, and its calls call.
            Event::NodeStarted(started)
                if program.loop_of(&started.node).is_some()
                    && started.node.call().is_none()
                    && !started.node.is_turn() => {}
            Event::NodeStarted(started) => match kind(&started.node) {
                _ if started.node.is_turn() => tally.case("D14", tokens < budget.tokens, || {
                    format!("{job} {}: a model is asked after {tokens} of {} tokens", started.node, budget.tokens)
                }),
                Some(Kind::Tool { class: EffectClass::Pure, .. }) => call(&started.node),
                // A plan is made by a model, and reviewed by a person.
                asks if asks == Some(&Kind::Model) || started.node.is_critic() != started.node.is_planning() => tally
                    .case("D14", tokens < budget.tokens, || {
                        format!("{job} {}: a model is asked after {tokens} of {} tokens", started.node, budget.tokens)
                    }),
                _ => {}
            },
            Event::NodeFinished(finished) => tokens += finished.model.as_ref().map_or(0, |model| model.usage.total()),
            Event::NodeRetryScheduled(retry) => tokens += retry.model.as_ref().map_or(0, |model| model.usage.total()),
            _ => {}
        }
    }
}

/// A job that loses its workers is not tried for ever.
pub(crate) fn reclaims(job: JobId, events: &[Recorded], tally: &mut Tally) {
    let mut in_a_row = 0;
    for recorded in events {
        match &recorded.event {
            Event::NodeFinished(_) => in_a_row = 0,
            Event::JobRequeued(requeued) => match requeued.reason {
                RequeueReason::LeaseExpired | RequeueReason::HolderDied => {
                    in_a_row += 1;
                    let most = limits::RECLAIMS_WITHOUT_PROGRESS_MAX;
                    tally.case("D12", in_a_row < most, || {
                        format!("{job}: taken back {in_a_row} times in a row and tried again; {most} is the end")
                    });
                }
                RequeueReason::Retry | RequeueReason::Draining | RequeueReason::RateLimited => {}
            },
            _ => {}
        }
    }
}

fn first_claim(events: &[Recorded]) -> Option<Timestamp> {
    let claimed = events.iter().find(|recorded| matches!(recorded.event, Event::JobClaimed(_)));
    claimed.map(|recorded| recorded.at)
}

/// The jobs of a session run one after the other.
pub(crate) fn sessions(jobs: &[(JobRow, Vec<Recorded>)], tally: &mut Tally) {
    for (row, events) in jobs.iter().filter(|(row, _)| row.session.is_some()) {
        let Some(claimed) = first_claim(events) else { continue };
        let same = |(other, _): &&(JobRow, Vec<Recorded>)| {
            let names = |row: &JobRow| (row.tenant.clone(), row.agent.clone(), row.session.clone());
            let session = names(other) == names(row);
            session && other.id != row.id && other.created_at <= row.created_at
        };
        for (earlier, others) in jobs.iter().filter(same) {
            let terminal = |recorded: &&Recorded| {
                matches!(recorded.event, Event::JobCompleted(_) | Event::JobFailed(_) | Event::JobCancelled(_))
            };
            // One that was accepted after this one had begun is not before it.
            let begun = earlier.created_at < claimed;
            let ended = others.iter().find(terminal).map(|recorded| recorded.at);
            // Of two that arrived in one moment either may be the earlier one, but then the other is judged by it.
            let own_end = events.iter().find(terminal).map(|recorded| recorded.at);
            let first = |other| other > claimed || (other == claimed && own_end.is_some_and(|end| end <= other));
            let later = earlier.created_at == row.created_at && first_claim(others).is_none_or(first);
            tally.case("D13", !begun || later || ended.is_some_and(|ended| ended <= claimed), || {
                format!("{} was claimed at {claimed}; {} of its session ended at {ended:?}", row.id, earlier.id)
            });
        }
    }
}
