//! A job's history that can be spoiled, written into a real database file.

use aetheris_harness::Folder;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aetheris_check::witness::{WitnessKind, WitnessLine};
use aetheris_check::{AckedSignal, ClientHistory, SignalAck, Submission};
use aetheris_core::chain::Header;
use aetheris_core::event::*;
use aetheris_core::hash::Hash;
use aetheris_core::id::*;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::ledger::PermitNumber;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::projection::{self, Projection};
use aetheris_core::state::JobState;
use aetheris_core::time::Timestamp;
use aetheris_store::Store;
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, params};
use serde_json::json;

pub(super) const JOB: JobId = JobId::from_u128(7);

/// An event with the epoch and the time of its row.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) at: i64,
    pub(super) epoch: u32,
    pub(super) event: Event,
}

pub(super) struct Story {
    pub(super) events: Vec<Told>,
    pub(super) history: ClientHistory,
    pub(super) witness: Vec<WitnessLine>,
}

impl Story {
    pub(super) fn place(&self, kind: EventKind) -> usize {
        self.events.iter().position(|told| told.event.kind() == kind).unwrap()
    }

    pub(super) fn first(&mut self, kind: EventKind) -> &mut Told {
        let place = self.place(kind);
        &mut self.events[place]
    }
}

/// A folder with a database file with one story in it, removed when dropped.
pub(super) struct Bed(Folder);

impl Bed {
    pub(super) fn new(story: &Story) -> Self {
        let bed = Self(Folder::new("plain"));
        drop(bed.store());
        write(&bed.file(), story);
        bed
    }

    pub(super) fn file(&self) -> PathBuf {
        self.0.join("aetheris.db")
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(SqliteOptions::new(self.file())).unwrap())
    }

    pub(super) fn execute(&self, statements: &[&str]) {
        let conn = Connection::open(self.file()).unwrap();
        conn.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
        for statement in statements {
            conn.execute_batch(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
}

fn write(file: &Path, story: &Story) {
    let conn = Connection::open(file).unwrap();
    conn.execute_batch("PRAGMA ignore_check_constraints = ON; BEGIN").unwrap();
    let (mut head, mut state, mut last) = (Hash::ZERO, JobState::new(JOB), 0);
    let mut follows = true;
    for (seq, told) in (1u64..).zip(&story.events) {
        let encoded = EncodedEvent::new(EventId::from_u128(u128::from(seq)), &told.event);
        let (fence, at) = (Fence { generation: 1, epoch: told.epoch }, Timestamp::from_micros(told.at));
        let header = Header::of(JOB, seq, &encoded, fence, at);
        head = header.chain(&head);
        let (id, hash) = (encoded.id.to_bytes(), *head.as_bytes());
        let payload = std::str::from_utf8(&encoded.payload).unwrap();
        let (epoch, kind, version) = (told.epoch, header.kind, header.schema_version);
        conn.execute(
            "INSERT INTO events (job, seq, kind, schema_version, generation, epoch, at, id, hash, payload)
             VALUES (1, ?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8)",
            params![i64::try_from(seq).unwrap(), kind, version, epoch, told.at, id, hash, payload],
        )
        .unwrap();
        let recorded = Recorded { seq, id: encoded.id, fence, at, hash: head, event: told.event.clone() };
        // As far as the reducer follows; what it refuses is for the checks to tell.
        follows = follows && state.replay(&recorded).is_ok();
        last = seq;
    }
    write_job(&conn, &state, &head, last);
    for (timer, due) in projection::timers(&state) {
        let row = params![JOB.to_bytes(), timer.to_string(), due.micros()];
        conn.execute("INSERT INTO timers (job, timer, due) VALUES (?1, ?2, ?3)", row).unwrap();
    }
    conn.execute(
        "INSERT INTO ledger (key, job, permit, permit_id, status, disproved, class, generation, epoch, deadline,
             updated_at, input_hash, node, tool) VALUES (?1, 1, 1, ?2, 1, 0, 2, 1, 1, 1020, 30, ?3, 'pay', 'pay')",
        params![key("pay").to_bytes(), PermitId::from_u128(1).to_bytes(), *Json::null().hash().as_bytes()],
    )
    .unwrap();
    conn.execute(
        "INSERT INTO effects (job, key, permit, permit_id, at, result) VALUES (1, ?1, 1, ?2, 30, ?3)",
        params![key("pay").to_bytes(), PermitId::from_u128(1).to_bytes(), result().value().to_string()],
    )
    .unwrap();
    conn.execute_batch("COMMIT").unwrap();
}

fn write_job(conn: &Connection, state: &JobState, head: &Hash, seq: u64) {
    let told = Projection::of(state, false);
    let status = JobStatus::ALL.iter().position(|status| *status == told.status).unwrap();
    let owner = state.owner.as_ref();
    let waiting = told.waiting.as_ref().map(|waiting| serde_json::to_string(waiting).unwrap());
    let wait_type = told.waiting.as_ref().map(|waiting| i64::from(waiting.wait_type != WaitType::Human));
    conn.execute(
        "INSERT INTO jobs (num, seq, generation, epoch, status, head, updated_at, ready, lease_until, attempt, instance,
             worker, plan_hash, waiting, wait_type, id, agent, agent_version, priority, created_at, listed)
         VALUES (1, ?1, 1, ?2, ?3, ?4, 0, 0, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, '1', 0, ?14, nullif(?3, 1))",
        params![
            i64::try_from(seq).unwrap(),
            state.fence.epoch,
            i64::try_from(status).unwrap(),
            *head.as_bytes(),
            owner.map(|_| 1_000_000),
            owner.map(|owner| owner.attempt_id.to_bytes()),
            owner.map(|owner| owner.instance.to_bytes()),
            owner.map(|owner| owner.worker.as_str().to_owned()),
            told.plan_hash.map(|hash| *hash.as_bytes()),
            waiting,
            wait_type,
            JOB.to_bytes(),
            state.agent.as_str(),
            state.created_at.micros(),
        ],
    )
    .unwrap();
    conn.execute("UPDATE jobs SET ready = 1 WHERE status = 0", []).unwrap();
    conn.execute(&format!("UPDATE meta SET {} = 1", told.status.as_str()), []).unwrap();
}

pub(super) fn key(node: &str) -> IdempotencyKey {
    IdempotencyKey::derive(JOB, &StepPath::from(node), 0)
}

pub(super) fn result() -> Json {
    Json::new(json!({"booked": true}))
}

pub(super) fn claimed(epoch: u32) -> JobClaimed {
    let attempt_id = AttemptId::from_u128(u128::from(epoch));
    JobClaimed { attempt_id, instance: InstanceId::from_u128(1), worker: WorkerId::from("w") }
}

pub(super) fn permit(permit: u32) -> ToolInvocationStarted {
    ToolInvocationStarted {
        effect: EffectClass::AtMostOnce,
        input: (permit == 1).then(Json::null),
        key: key("pay"),
        lifetime_us: 1_000,
        node: StepPath::from("pay"),
        permit,
        permit_id: PermitId::from_u128(u128::from(permit)),
        tool: ToolName::from("pay"),
        tool_version: None,
    }
}

pub(super) fn finished(outcome: InvocationOutcome) -> ToolInvocationFinished {
    let (node, source) = (StepPath::from("pay"), Source::Executed);
    ToolInvocationFinished { error: None, node, outcome, permit: 1, source }
}

pub(super) fn node_finished(node: &str, result: StepResult) -> NodeFinished {
    let output = (result == StepResult::Success).then(Json::null);
    NodeFinished { output, ..NodeFinished::new(node, result) }
}

pub(super) fn waiting(node: &str, key: Option<&str>, wait_type: WaitType) -> JobWaiting {
    let (correlation_key, node) = (key.map(str::to_owned), StepPath::from(node));
    JobWaiting { correlation_key, doubt: false, node, park: false, reason: None, wait_type }
}

pub(super) fn numbered(generation: u32, number: u32) -> Option<PermitNumber> {
    Some(PermitNumber { generation, number })
}

pub(super) fn seen(kind: WitnessKind, micros: i64) -> WitnessLine {
    WitnessLine {
        kind,
        acts: true,
        at: Timestamp::from_micros(micros),
        attempt: 1,
        fence: Fence { generation: 1, epoch: 1 },
        input_hash: Json::null().hash(),
        job: JOB,
        key: key("pay"),
        node: StepPath::from("pay"),
        permit: numbered(1, 1),
        result_hash: (kind == WitnessKind::BodyEnd).then(|| result().hash()),
        tool: "once".into(),
    }
}

pub(super) fn created() -> JobCreated {
    JobCreated {
        agent: AgentName::from("a"),
        agent_version: "1".into(),
        execution_version: "1".into(),
        labels: std::collections::BTreeMap::new(),
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
    let (planner, planner_version) = ("static".into(), "1".into());
    PlanGenerated { plan_hash: Hash::of(b"plan"), plan_version: 1, planner, planner_version }
}

/// A payment, a reclaim with a delay, a wait that a signal ends, a sleep that a timer ends, an answer.
pub(super) fn whole() -> Story {
    let mut events = Vec::new();
    let mut tell = |epoch: u32, at: i64, told: Vec<Event>| {
        events.extend(told.into_iter().map(|event| Told { at, epoch, event }));
    };
    let node = |name: &str| StepPath::from(name);
    let start = |name: &str| NodeStarted::new(node(name), 1);
    let signal = WaitEnd::Signal { payload: Json::null(), signal: SignalId::from_u128(1) };
    tell(0, 10, vec![created().into(), planned().into()]);
    tell(1, 15, vec![claimed(1).into()]);
    tell(1, 20, vec![start("pay").into(), permit(1).into()]);
    let command = CommandCommitted { node: node("pay"), result_hash: result().hash() };
    let done = node_finished("pay", StepResult::SideEffectCommitted);
    tell(1, 30, vec![finished(InvocationOutcome::Committed).into(), command.into(), done.into()]);
    tell(1, 40, vec![JobRequeued { after_us: None, reason: RequeueReason::LeaseExpired }.into()]);
    tell(2, 50, vec![claimed(2).into()]);
    tell(2, 60, vec![start("ask").into(), waiting("ask", Some("k"), WaitType::Signal).into()]);
    tell(2, 70, vec![WaitCompleted { by: signal, node: node("ask") }.into()]);
    tell(3, 80, vec![claimed(3).into()]);
    tell(3, 90, vec![node_finished("ask", StepResult::Success).into(), start("nap").into()]);
    let timer = || TimerId::Wait(node("nap"));
    let set = TimerSet { after_us: 100, timer: timer() };
    tell(3, 90, vec![waiting("nap", None, WaitType::Timer).into(), set.into()]);
    let over = WaitCompleted { by: WaitEnd::Time, node: node("nap") };
    tell(3, 190, vec![TimerFired { timer: timer() }.into(), over.into()]);
    tell(4, 200, vec![claimed(4).into()]);
    let answer = Answer::Value(Json::null());
    tell(4, 210, vec![node_finished("nap", StepResult::Success).into(), JobCompleted { answer }.into()]);
    let payload_hash = Some(Json::null().hash());
    let history = ClientHistory {
        quiet: true,
        signals: vec![AckedSignal { ack: SignalAck::Delivered, job: JOB, key: "k".into(), payload_hash }],
        submissions: vec![Submission { client_key: Some("c".into()), job: JOB }],
        ..ClientHistory::default()
    };
    Story { events, history, witness: vec![seen(WitnessKind::BodyStart, 25), seen(WitnessKind::BodyEnd, 28)] }
}
