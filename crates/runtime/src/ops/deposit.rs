//! Late deposits: effects are facts, whoever brings them (SPEC §4).
//!
//! A worker that has lost its lease after its tool really answered deposits the outcome, naming key
//! and permit. If the ledger still is at that permit and its outcome is open, it becomes the effect;
//! where the job waits on that doubt, the same unit answers it and the job is pending again. A success is taken
//! after "did not happen" too, as long as no further permit was given: the next try is cancelled, and an alert says so.
//! Otherwise the outcome is kept as late evidence: never an effect.

use aetheris_core::event::{DoubtOutcome, InDoubtResolved, Resolver};
use aetheris_core::id::{IdempotencyKey, JobId, PermitId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::state::StepState;
use aetheris_core::time::Timestamp;
use aetheris_store::{Evidence, LedgerWrite, NewEffect, Purpose, Refusal, UnitOfWork};

use super::{Rounds, is_open_doubt};
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::Fact;
use crate::error::OpError;
use crate::load::Loaded;

/// A known outcome whose run has lost its right to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Deposit {
    /// The job.
    pub job: JobId,
    /// The invocation.
    pub key: IdempotencyKey,
    /// The step.
    pub node: StepPath,
    /// What is known: a result, or that the permit was refused or never used.
    pub outcome: DepositOutcome,
    /// The permit's number.
    pub permit: u32,
    /// The permit's id.
    pub permit_id: PermitId,
}

/// What a deposit brings.
#[derive(Debug, Clone, PartialEq)]
pub enum DepositOutcome {
    /// The tool answered.
    Done(Json),
    /// A tool that was asked about the call has found it.
    Found(Json),
    /// The ledger learns this of the permit.
    Settled(LedgerTrigger),
}

/// What became of a deposit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deposited {
    /// It is the effect now, or settles the permit.
    Taken,
    /// It is the effect now, although the call was said not to have happened: that answer was wrong.
    TakenBack,
    /// What was found is recorded already: nothing was written.
    Known,
    /// It is late evidence.
    Evidence {
        /// Whether it contradicts what the job went on with.
        conflict: bool,
    },
}

impl DepositOutcome {
    /// The call's result, if it succeeded.
    const fn result(&self) -> Option<&Json> {
        match self {
            Self::Done(result) | Self::Found(result) => Some(result),
            Self::Settled(_) => None,
        }
    }
}

impl Runtime {
    /// Deposits a late outcome. One commit, without a fence: the permit is its right.
    ///
    /// # Errors
    /// [`OpError`]: the store cannot be asked; the outcome is then still only in this process.
    pub async fn deposit(&self, deposit: &Deposit) -> Result<Deposited, OpError> {
        let mut rounds = Rounds::of(self, deposit.job, Caller::Process);
        loop {
            let loaded = rounds.look().await?;
            let row = loaded.ledger.get(&deposit.key);
            let any = aetheris_fault::planted!("older-permit-settles");
            let is_result = deposit.outcome.result().is_some();
            let open = row.filter(|row| (row.permit_id == deposit.permit_id || any) && is_open(row.status, is_result));
            let (unit, answer) = match open {
                Some(row) => {
                    let answer = if row.disproved { Deposited::TakenBack } else { Deposited::Taken };
                    (self.taking(&loaded, deposit, row.disproved)?, answer)
                }
                None => {
                    let recorded = loaded.effects.get(&deposit.key).map(|effect| &effect.result);
                    let any = aetheris_fault::planted!("equal-results-agree");
                    let is_newest = row.is_some_and(|row| row.permit_id == deposit.permit_id || any);
                    if is_newest && recorded.is_some() && matches!(deposit.outcome, DepositOutcome::Found(_)) {
                        return Ok(Deposited::Known);
                    }
                    let conflict = contradicts(&deposit.outcome, recorded, is_newest);
                    (self.keeping_evidence(deposit, conflict), Deposited::Evidence { conflict })
                }
            };
            aetheris_fault::crash_point!("ops.deposit.decided");
            let settled = |refusal: &Refusal| matches!(refusal, Refusal::Ledger(_));
            if rounds.write(loaded, || unit.clone(), settled).await?.is_some() {
                aetheris_fault::crash_point!("ops.deposit.written");
                aetheris_fault::sometimes!(DepositTaken, answer == Deposited::Taken);
                aetheris_fault::sometimes!(DepositWasEvidence, matches!(answer, Deposited::Evidence { .. }));
                report(deposit, answer);
                return Ok(answer);
            }
        }
    }

    fn taking(&self, loaded: &Loaded, deposit: &Deposit, disproved: bool) -> Result<UnitOfWork, OpError> {
        let Deposit { job, key, permit, permit_id, .. } = *deposit;
        let mut unit = UnitOfWork::new(self.event_id(), job, Purpose::Deposit, Guard::Outside);
        let (effect, trigger) = match &deposit.outcome {
            DepositOutcome::Done(result) | DepositOutcome::Found(result) => {
                (Some(NewEffect { key, permit, permit_id, result: result.clone() }), LedgerTrigger::Commit)
            }
            DepositOutcome::Settled(trigger) => (None, *trigger),
        };
        let alert = disproved.then(|| evidence(deposit, true));
        let step = loaded.state.steps.get(&deposit.node);
        let doubted = step.is_some_and(|step| is_open_doubt(step) || (disproved && awaits_next_try(step)));
        let unheard = aetheris_fault::planted!("doubt-outlives-answer");
        if let (true, Some(effect)) = (doubted && !unheard, effect.clone()) {
            aetheris_fault::sometimes!(DepositEndedDoubt);
            let mut draft = loaded.draft(Guard::Outside);
            let event = InDoubtResolved {
                by: Resolver::LateDeposit,
                node: deposit.node.clone(),
                note: None,
                outcome: DoubtOutcome::Happened,
                permit,
                grounds: None,
                result: None,
                settle_us: None,
                then: None,
            };
            let ledger = LedgerWrite::Settle(Settle { key, permit_id, trigger });
            draft.add(self.system.ids.as_ref(), Fact::with_effect(event, effect, ledger))?;
            let mut unit = draft.unit(Purpose::Deposit, unit.id);
            unit.evidence.extend(alert);
            return Ok(unit);
        }
        // No doubt is told yet and so no event: the run that holds the job, or the next one, finds the effect
        // before it can tell one, and catches up.
        unit.effects.extend(effect);
        unit.evidence.extend(alert);
        unit.ledger.push(LedgerWrite::Settle(Settle { key, permit_id, trigger }));
        unit.expected_seq = Some(loaded.state.seq);
        Ok(unit)
    }

    fn keeping_evidence(&self, deposit: &Deposit, conflict: bool) -> UnitOfWork {
        let mut unit = UnitOfWork::new(self.event_id(), deposit.job, Purpose::Deposit, Guard::Outside);
        unit.evidence.push(evidence(deposit, conflict));
        unit
    }
}

fn evidence(deposit: &Deposit, conflict: bool) -> Evidence {
    let outcome = match &deposit.outcome {
        DepositOutcome::Done(result) | DepositOutcome::Found(result) => {
            serde_json::json!({ "outcome": "success", "result": result.value() })
        }
        DepositOutcome::Settled(trigger) => serde_json::json!({ "outcome": trigger }),
    };
    Evidence {
        at: Timestamp::default(),
        conflict,
        key: deposit.key,
        node: deposit.node.clone(),
        outcome: Json::new(outcome),
        permit: deposit.permit,
        permit_id: deposit.permit_id,
    }
}

/// Whether "did not happen" ended a try of the step, and neither has it ended nor was a further permit given.
fn awaits_next_try(step: &StepState) -> bool {
    step.is_disproved() && !step.status.is_terminal()
}

/// Whether the ledger still lacks what the deposit brings. A doubt that has begun is ended by a result
/// only: a refusal would have to prove that nothing happened.
#[must_use]
pub const fn is_open(status: LedgerStatus, is_result: bool) -> bool {
    match (status, is_result) {
        (LedgerStatus::Started, _) | (LedgerStatus::InDoubt, true) => true,
        (LedgerStatus::InDoubt, false)
        | (
            LedgerStatus::Committed
            | LedgerStatus::RefusedRetryable
            | LedgerStatus::RefusedPermanent
            | LedgerStatus::NotSent
            | LedgerStatus::FailedUnresolved,
            _,
        ) => false,
    }
}

/// A result that the job did not go on with contradicts it: a second permit ran, or another result is
/// recorded for its key. `is_newest` says that the ledger's row is of the deposit's own permit. Results are compared as they
/// are recorded: a number is the same however it was written.
#[must_use]
pub fn contradicts(outcome: &DepositOutcome, recorded: Option<&Json>, is_newest: bool) -> bool {
    let Some(result) = outcome.result() else { return false };
    !(is_newest && recorded.is_some_and(|recorded| is_same(recorded, result)))
}

fn is_same(recorded: &Json, brought: &Json) -> bool {
    recorded.hash() == brought.hash() && !aetheris_fault::planted!("equal-answers-contradict")
}

fn report(deposit: &Deposit, answer: Deposited) {
    let (job, node, permit) = (deposit.job, &deposit.node, deposit.permit);
    match answer {
        Deposited::Known => {}
        Deposited::Taken => tracing::info!(%job, %node, permit, "late outcome deposited"),
        Deposited::TakenBack => {
            tracing::error!(%job, %node, permit, "a call succeeded that was said not to have happened; its outcome is recorded and not tried again");
        }
        Deposited::Evidence { conflict: false } => tracing::info!(%job, %node, permit, "late outcome kept as evidence"),
        Deposited::Evidence { conflict: true } => {
            tracing::error!(%job, %node, permit, "late outcome contradicts the job's history; kept as evidence");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// FINDINGS A15: a late answer with `10.0` was said to contradict the `10` that was recorded of it.
    #[test]
    fn a_result_is_the_same_however_its_numbers_were_written() {
        let (whole, point) = (Json::new(json!({ "paid": 10 })), Json::new(json!({ "paid": 10.0 })));
        assert!(is_same(&whole, &point) && is_same(&point, &whole));
        assert!(!is_same(&whole, &Json::new(json!({ "paid": 11 }))));
    }
}
