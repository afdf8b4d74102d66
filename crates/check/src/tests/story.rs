//! A job's history that can be spoiled: events with their authors' fences and times.

use std::collections::BTreeMap;

use aetheris_core::chain::Header;
use aetheris_core::event::*;
use aetheris_core::hash::Hash;
use aetheris_core::id::*;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Holder};
use aetheris_core::ledger::{LedgerRow, LedgerStatus, PermitNumber};
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::projection::{self, Projection};
use aetheris_core::state::JobState;
use aetheris_core::time::Timestamp;
use aetheris_store::{EffectRow, EventRow, JobRow, Placing, TimerRow};
use serde_json::json;

use crate::Dossier;
use crate::history::{AckedSignal, ClientHistory, SignalAck, Submission, Write};
use crate::witness::{WitnessKind, WitnessLine};

pub(super) const JOB: JobId = JobId::from_u128(7);

/// An event with the fence and the time that its row gets.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) at: i64,
    pub(super) epoch: u32,
    pub(super) event: Event,
}

/// Everything that a check reads, before it is chained and projected.
pub(super) struct Story {
    pub(super) effects: Vec<EffectRow>,
    pub(super) events: Vec<Told>,
    pub(super) history: ClientHistory,
    pub(super) ledger: Vec<LedgerRow>,
    pub(super) witness: Vec<WitnessLine>,
}

pub(super) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub(super) fn fence(epoch: u32) -> Fence {
    Fence { generation: 1, epoch }
}

pub(super) fn key(node: &str) -> IdempotencyKey {
    IdempotencyKey::derive(JOB, &StepPath::from(node), 0)
}

pub(super) fn result() -> Json {
    Json::new(json!({"booked": true}))
}

impl Story {
    /// Chains and projects the events as they are.
    pub(super) fn facts(&self) -> Dossier {
        let (mut events, mut head) = (Vec::new(), Hash::ZERO);
        for (place, told) in self.events.iter().enumerate() {
            let seq = place as u64 + 1;
            let encoded = EncodedEvent::new(EventId::from_u128(u128::from(seq)), &told.event);
            let header = Header::of(JOB, seq, &encoded, fence(told.epoch), at(told.at));
            head = header.chain(&head);
            let (id, payload, payload_hash) = (encoded.id, encoded.payload, encoded.payload_hash);
            let (kind, schema_version) = (header.kind, header.schema_version);
            let (at, fence, hash) = (header.at, header.fence, head);
            events.push(EventRow { at, fence, hash, id, kind, payload, payload_hash, schema_version, seq });
        }
        let decoded: Vec<Recorded> = events.iter().map(|event| event.decode().unwrap()).collect();
        let mut state = JobState::new(JOB);
        // As far as the reducer follows; what it refuses is for the checks to tell.
        let _ = decoded.iter().try_for_each(|event| state.replay(event));
        let timers = projection::timers(&state);
        let timers = timers.into_iter().map(|(timer, due)| TimerRow { due, job: JOB, timer }).collect();
        let (effects, ledger) = (self.effects.clone(), self.ledger.clone());
        let row = row(&state, &events, head);
        let (not_before, pending) = (row.not_before, row.status == JobStatus::Pending);
        let placing = Placing { behind: false, delayed_until: None, not_before, pending, ready: pending };
        let consumed = |told: &Told| match &told.event {
            Event::WaitCompleted(WaitCompleted { by: WaitEnd::Signal { signal, .. }, .. }) => Some(*signal),
            _ => None,
        };
        let consumed = self.events.iter().filter_map(consumed).collect();
        let (checkpoint, evidence, kept) = (None, vec![], vec![]);
        Dossier { checkpoint, consumed, effects, events, evidence, kept, ledger, placing, row, timers }
    }

    /// The place of the first event of a kind.
    pub(super) fn place(&self, kind: EventKind) -> usize {
        self.events.iter().position(|told| told.event.kind() == kind).unwrap()
    }

    /// The first event of a kind.
    pub(super) fn first(&mut self, kind: EventKind) -> &mut Told {
        let place = self.place(kind);
        &mut self.events[place]
    }
}

fn row(state: &JobState, events: &[EventRow], head: Hash) -> JobRow {
    let told = Projection::of(state, false);
    let holder = state.owner.as_ref().map(|owner| Holder {
        attempt_id: owner.attempt_id,
        instance: owner.instance,
        lease_until: at(1_000_000),
        worker: owner.worker.clone(),
    });
    JobRow {
        agent: state.agent.clone(),
        agent_version: state.agent_version.clone(),
        created_at: state.created_at,
        end_requested: told.end_requested,
        error: told.error,
        fence: state.fence,
        head,
        holder,
        id: JOB,
        labels: BTreeMap::new(),
        not_before: state.not_before,
        plan_hash: told.plan_hash,
        priority: 0,
        seq: events.len() as u64,
        session: None,
        status: told.status,
        updated_at: state.last_at,
        paused: told.paused.map(|(reason, since)| (reason, since.resolve(Timestamp::default()))),
        waiting: told.waiting,
        tenant: TenantId::default(),
    }
}

pub(super) fn created() -> JobCreated {
    JobCreated {
        agent: AgentName::from("a"),
        agent_version: "1".into(),
        execution_version: "1".into(),
        labels: BTreeMap::new(),
        message: Json::null(),
        parent: None,
        planning: None,
        priority: 0,
        run_at: None,
        session: None,
        tenant: TenantId::default(),
    }
}

pub(super) fn planned() -> PlanGenerated {
    PlanGenerated {
        plan_hash: Hash::of(b"plan"),
        plan_version: 1,
        planner: "static".into(),
        planner_version: "1".into(),
    }
}

pub(super) fn claimed(epoch: u32) -> JobClaimed {
    let attempt_id = AttemptId::from_u128(u128::from(epoch));
    JobClaimed { attempt_id, instance: InstanceId::from_u128(1), worker: WorkerId::from("w") }
}

pub(super) fn permit(node: &str, permit: u32) -> ToolInvocationStarted {
    ToolInvocationStarted {
        effect: EffectClass::AtMostOnce,
        input: (permit == 1).then(Json::null),
        key: key(node),
        lifetime_us: 1_000,
        node: StepPath::from(node),
        permit,
        permit_id: PermitId::from_u128(u128::from(permit)),
        tool: ToolName::from("pay"),
        tool_version: None,
    }
}

pub(super) fn finished(node: &str, outcome: InvocationOutcome) -> ToolInvocationFinished {
    ToolInvocationFinished { error: None, node: StepPath::from(node), outcome, permit: 1, source: Source::Executed }
}

pub(super) fn node_finished(node: &str, result: StepResult) -> NodeFinished {
    let output = (result == StepResult::Success).then(Json::null);
    NodeFinished { output, ..NodeFinished::new(node, result) }
}

pub(super) fn waiting(node: &str, key: Option<&str>, wait_type: WaitType) -> JobWaiting {
    JobWaiting {
        correlation_key: key.map(str::to_owned),
        doubt: false,
        node: StepPath::from(node),
        park: false,
        reason: None,
        wait_type,
    }
}

pub(super) fn ledger_row(status: LedgerStatus) -> LedgerRow {
    LedgerRow {
        boot: None,
        class: EffectClass::AtMostOnce,
        deadline: at(1_020),
        disproved: false,
        fence: fence(1),
        input_hash: Json::null().hash(),
        job: JOB,
        key: key("pay"),
        lifetime: None,
        node: StepPath::from("pay"),
        permit: 1,
        permit_id: PermitId::from_u128(1),
        seen: None,
        status,
        tool: ToolName::from("pay"),
        updated_at: at(30),
    }
}

pub(super) fn numbered(generation: u32, number: u32) -> Option<PermitNumber> {
    Some(PermitNumber { generation, number })
}

pub(super) fn seen(kind: WitnessKind, micros: i64) -> WitnessLine {
    WitnessLine {
        kind,
        acts: true,
        at: at(micros),
        attempt: 1,
        fence: fence(1),
        input_hash: Json::null().hash(),
        job: JOB,
        key: key("pay"),
        node: StepPath::from("pay"),
        permit: numbered(1, 1),
        result_hash: (kind == WitnessKind::BodyEnd).then(|| result().hash()),
        tool: "once".into(),
    }
}

fn started(node: &str) -> NodeStarted {
    NodeStarted::new(node, 1)
}

/// A payment, a reclaim, a wait that a signal ends, a sleep that a timer ends, an answer.
pub(super) fn whole() -> Story {
    let mut events = Vec::new();
    let mut tell = |epoch: u32, at: i64, told: Vec<Event>| {
        events.extend(told.into_iter().map(|event| Told { at, epoch, event }));
    };
    let signal = WaitEnd::Signal { payload: Json::null(), signal: SignalId::from_u128(1) };
    let wait = |node: &str| StepPath::from(node);
    tell(0, 10, vec![created().into(), planned().into()]);
    tell(1, 15, vec![claimed(1).into()]);
    tell(1, 20, vec![started("pay").into(), permit("pay", 1).into()]);
    let command = CommandCommitted { node: StepPath::from("pay"), result_hash: result().hash() };
    let done = node_finished("pay", StepResult::SideEffectCommitted);
    tell(1, 30, vec![finished("pay", InvocationOutcome::Committed).into(), command.into(), done.into()]);
    tell(1, 40, vec![JobRequeued { after_us: None, reason: RequeueReason::LeaseExpired }.into()]);
    tell(2, 50, vec![claimed(2).into()]);
    tell(2, 60, vec![started("ask").into(), waiting("ask", Some("k"), WaitType::Signal).into()]);
    tell(2, 70, vec![WaitCompleted { by: signal, node: wait("ask") }.into()]);
    tell(3, 80, vec![claimed(3).into()]);
    tell(3, 90, vec![node_finished("ask", StepResult::Success).into(), started("nap").into()]);
    let timer = || TimerId::Wait(wait("nap"));
    let set = TimerSet { after_us: 100, timer: timer() };
    tell(3, 90, vec![waiting("nap", None, WaitType::Timer).into(), set.into()]);
    let over = WaitCompleted { by: WaitEnd::Time, node: wait("nap") };
    tell(3, 190, vec![TimerFired { timer: timer() }.into(), over.into()]);
    tell(4, 200, vec![claimed(4).into()]);
    let answer = Answer::Value(Json::null());
    tell(4, 210, vec![node_finished("nap", StepResult::Success).into(), JobCompleted { answer }.into()]);
    let history = ClientHistory {
        quiet: true,
        signals: vec![AckedSignal {
            ack: SignalAck::Delivered,
            job: JOB,
            key: "k".into(),
            payload_hash: Some(Json::null().hash()),
        }],
        submissions: vec![Submission { client_key: Some("c".into()), job: JOB }],
        writes: vec![Write { event: EventId::from_u128(1), job: JOB, unknown: false }],
        ..ClientHistory::default()
    };
    Story {
        effects: vec![EffectRow { at: at(30), key: key("pay"), permit: 1, result: result() }],
        events,
        history,
        ledger: vec![ledger_row(LedgerStatus::Committed)],
        witness: vec![seen(WitnessKind::BodyStart, 25), seen(WitnessKind::BodyEnd, 28)],
    }
}

/// The status that a story's row has.
pub(super) fn status(story: &Story) -> JobStatus {
    story.facts().row.status
}
