//! Signals: what clients send, how a job takes it, and what of it a wait finds when it is reached.
//!
//! Whether a payload fits is given: [`Word`] says it. What follows from that is the order of production's checks, with
//! [`route`](aetheris_core::signal::route) and the store's rule for kept signals.

use std::sync::LazyLock;

use aetheris_core::hash::Hash;
use aetheris_core::id::SignalId;
use aetheris_core::json::Json;
use aetheris_core::plan::WaitType;
use aetheris_core::signal::{self, Incoming, Route, Upcoming};
use aetheris_core::step::StepStatus;
use aetheris_runtime::run::prepared::Arrival;
use aetheris_store::KeptSignal;

use crate::bugs::Mutation;
use crate::config::{Config, Program, Step, wait_key};
use crate::fact::{Fact, NOW};
use crate::laws::{Law, Sight, judge};
use crate::outside::Look;
use crate::state::{Entry, Inbox, Job, Right, Unit, View};
use crate::system::{Search, System};

/// What a signal brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// It fits every wait.
    First,
    /// It fits every wait too, and is another payload.
    Second,
    /// It fits no wait.
    Misfit,
}

/// A signal as a client sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal {
    /// Its number among those that were sent to its job.
    pub id: u8,
    /// The step whose wait it names.
    pub node: u8,
    /// What it brings.
    pub word: Word,
}

static PAYLOADS: LazyLock<[(Json, Hash); 3]> = LazyLock::new(|| {
    ["first", "second", "misfit"].map(|word| {
        let payload = Json::new(word.into());
        let hash = payload.hash();
        (payload, hash)
    })
});

impl Word {
    const ALL: [Self; 3] = [Self::First, Self::Second, Self::Misfit];

    /// Whether it is what the waits ask for.
    #[must_use]
    pub const fn fits(self) -> bool {
        match self {
            Self::First | Self::Second => true,
            Self::Misfit => false,
        }
    }

    /// What waits ask for, as their plan says it.
    #[must_use]
    pub fn schema() -> Json {
        Json::new(serde_json::json!({ "enum": ["first", "second"] }))
    }

    /// The payload.
    #[must_use]
    pub fn payload(self) -> Json {
        PAYLOADS[self as usize].0.clone()
    }

    /// The payload's hash.
    #[must_use]
    pub fn hash(self) -> Hash {
        PAYLOADS[self as usize].1
    }

    /// The word of a payload's hash.
    #[must_use]
    pub fn of(hash: Hash) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.hash() == hash)
    }
}

impl Signal {
    /// Its id: requests that have looked at one moment have one number.
    #[must_use]
    pub fn name(self) -> SignalId {
        let [id, node, word] = [self.id, self.node, self.word as u8].map(u128::from);
        SignalId::from_u128((id << 16) | (node << 8) | word)
    }

    /// The signal as the store keeps it.
    #[must_use]
    pub fn kept(self) -> KeptSignal {
        KeptSignal {
            key: wait_key(self.node),
            payload: self.word.payload(),
            received_at: NOW,
            signal: self.name(),
            wait_type: None,
        }
    }
}

/// What has come for a run's wait: of what is kept for it, in the order in which it came, what fits and what does not.
#[must_use]
pub fn arrival(config: &Config, view: &View, node: u8) -> Arrival {
    let mut kept: Vec<Signal> = view.kept_for(node).collect();
    if config.has(Mutation::LastSignalWins) {
        kept.reverse();
    }
    if config.has(Mutation::OnlyFirstLookedAt) {
        kept.truncate(1);
    }
    let takes = |kept: &Signal| kept.word.fits() || config.has(Mutation::KeptMisfitTaken);
    let place = kept.iter().position(takes).filter(|place| *place == 0 || !config.has(Mutation::FitRefusedToo));
    let fits = place.map(|place| kept[place].kept());
    kept.truncate(place.unwrap_or(kept.len()));
    Arrival { fits, misfits: kept.into_iter().map(|misfit| (misfit.kept(), Vec::new())).collect() }
}

/// Takes a signal: what is written for it, or that it is answered at once.
pub fn send(
    search: &Search,
    system: &mut System,
    (number, job): (u8, &Job),
    program: &Program,
    (node, word): (u8, Word),
) -> Look {
    let signal = Signal { id: job.sent, node, word };
    system.job(number).sent += 1;
    let ahead = upcoming(job, program);
    let question = Incoming { key: wait_key(node), payload_hash: word.hash(), wait_type: None };
    let ended = job.status().is_terminal() && search.config.has(Mutation::EndBeforeDuplicate);
    let meets = if ended { Route::JobFinished } else { signal::route(job.view.fold.state(), Some(&ahead), &question) };
    if let Some(before) = job.delivered.iter().find(|delivered| delivered.node == node) {
        let known = meets == Route::AlreadyDelivered { payload_matches: before.word == word };
        judge(search, system, Law::DuplicateIsKnown, known);
    }
    match meets {
        Route::Deliver(_) if !word.fits() && !search.config.has(Mutation::DoorTakesAll) => at_the_door(search),
        Route::Deliver(_) => {
            search.tally.see(Sight::SignalDelivered);
            let mut unit = Unit::new(number, Right::Outside, Some(&job.view.fold));
            let inbox = Some(Inbox::Receive { delivered: true, signal });
            let fact = Fact::WaitEnded { node, signal: Some(signal) };
            unit.entries.push(Entry { inbox, ..Entry::of(fact) });
            Look::Write(Box::new(unit))
        }
        Route::Keep => {
            let named = ahead.iter().any(|wait| wait.key.as_ref() == Some(&question.key));
            keep(search, (number, job), signal, named)
        }
        Route::AlreadyDelivered { .. } => Look::Answered,
        Route::JobFinished | Route::WaitOver | Route::WrongType(_) | Route::WrongKey => {
            search.tally.see(Sight::SignalTooLate);
            Look::Answered
        }
    }
}

/// A signal for a wait that is not reached. `named` says that its key names one for certain: then it is known what fits,
/// and the first that does is the one that counts.
fn keep(search: &Search, (number, job): (u8, &Job), signal: Signal, named: bool) -> Look {
    let of_key = || job.view.kept_for(signal.node);
    if of_key().any(|kept| kept.word == signal.word) {
        return Look::Answered;
    }
    if named && !signal.word.fits() {
        return at_the_door(search);
    }
    if named && of_key().any(|kept| kept.word.fits()) {
        return Look::Answered;
    }
    let beside = of_key().count();
    search.tally.see(Sight::SignalKept);
    if beside > 0 {
        search.tally.see(Sight::SignalKeptBeside);
    }
    if !signal.word.fits() {
        search.tally.see(Sight::MisfitKept);
    }
    let mut unit = Unit::new(number, Right::Outside, Some(&job.view.fold));
    unit.expected_signals = u8::try_from(beside).ok().map(|beside| (signal.node, beside));
    let inbox = Some(Inbox::Receive { delivered: false, signal });
    unit.entries.push(Entry { inbox, ..Entry::default() });
    Look::Write(Box::new(unit))
}

fn at_the_door(search: &Search) -> Look {
    search.tally.see(Sight::MisfitAtTheDoor);
    Look::Answered
}

/// The waits that signals can be for.
pub fn waits(program: &Program) -> impl Iterator<Item = u8> + '_ {
    (0u8..).zip(&program.steps).filter(|(_, step)| matches!(step, Step::Wait { .. })).map(|(node, _)| node)
}

/// The waits that the job has not reached. A late wait's key is made from the output of the step before it.
fn upcoming(job: &Job, program: &Program) -> Vec<Upcoming> {
    let status = |node: u8| job.view.fold.step(program, node).map(|step| step.status);
    let mut upcoming = Vec::new();
    for node in waits(program) {
        let before = match job.view.fold.step(program, node) {
            None => true,
            Some(step) => match step.status {
                StepStatus::Pending => true,
                StepStatus::Running => step.wait_end.is_none(),
                StepStatus::Retrying
                | StepStatus::Waiting
                | StepStatus::InDoubt
                | StepStatus::Validating
                | StepStatus::Refining
                | StepStatus::Completed
                | StepStatus::Failed
                | StepStatus::Skipped
                | StepStatus::Rejected => false,
            },
        };
        if before {
            let late = matches!(program.steps[usize::from(node)], Step::Wait { late: true, .. });
            let known = !late || node.checked_sub(1).and_then(status) == Some(StepStatus::Completed);
            upcoming.push(Upcoming { key: known.then(|| wait_key(node)), wait_type: WaitType::Signal });
        }
    }
    upcoming
}
