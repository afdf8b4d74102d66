//! What must hold at the end of a run, from the store, the witness log and what clients were told:
//! the invariants of the checker, and what this world knows beyond them, because it drew the programs
//! and its operators tell the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use aetheris_check::{ClientHistory, Report, WitnessKind, check_store};
use aetheris_core::event::{Answer, DoubtOutcome, Event, Recorded, WaitEnd};
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::{Span, Timestamp};
use aetheris_plain::{Checked, copy_sqlite, turns};
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ports::MODEL_TIMED_OUT;
use aetheris_store::{JobFilter, JobRow, Scope, Store, every_job};

use crate::children;
use crate::clients::Order;
use crate::failures;
use crate::fault_rates::FaultRates;
use crate::job_rules;
use crate::joins::{self, Course, Stand};
use crate::loops;
use crate::maps;
use crate::people;
use crate::planners;
use crate::program::{Kind, Program, Step};
use crate::rounds;
use crate::services::{Asked, Services};
use crate::tally::Tally;

/// The jobs that still need something from the machine: neither have they ended, nor is a person asked, nor
/// do they stand behind a job of their session for which one is. One that has a deadline has to end in any case.
#[must_use]
pub fn restless<'j>(jobs: &'j [JobRow], orders: &[Order]) -> Vec<&'j JobRow> {
    let held_up = |row: &JobRow| {
        let before = |other: &&JobRow| {
            // Arrival decides, which the time of a row tells but for those of one moment.
            other.id != row.id
                && other.created_at <= row.created_at
                && (&other.tenant, &other.agent, &other.session) == (&row.tenant, &row.agent, &row.session)
        };
        let mut earlier = jobs.iter().filter(before).filter(|other| !other.status.is_terminal());
        row.session.is_some() && earlier.next().is_some()
    };
    let timed = |row: &JobRow| orders.iter().any(|order| order.job == row.id && order.deadline.is_some());
    let open = jobs.iter().filter(|row| !row.status.is_terminal());
    open.filter(|row| timed(row) || (!is_quiet(row, orders) && !held_up(row))).collect()
}

fn is_quiet(row: &JobRow, orders: &[Order]) -> bool {
    // Where one of several waits has ended, the job goes on.
    let still = row.status.is_blocked() || row.status == JobStatus::Paused;
    row.waiting.as_ref().filter(|_| still).is_some_and(|waiting| {
        let person = waiting.wait_type == aetheris_core::plan::WaitType::Human && waiting.doubt;
        // A message that was sent once and never heard of again has nobody who would answer its waits.
        person || (!orders.iter().any(|order| order.job == row.id) && waiting.correlation_key.is_some())
    })
}

/// Everything that is looked at.
pub struct Evidence<'e> {
    /// When the last fault was over, by the store's clock.
    pub calm: Timestamp,
    /// The file of the store, if it has one: the second checker reads it too.
    pub database: Option<PathBuf>,
    /// Processes that died, or gave up calls.
    pub deaths: u64,
    /// What clients were told.
    pub history: &'e ClientHistory,
    /// The jobs that clients know.
    pub orders: &'e [Order],
    /// The tools' and the model's own logs.
    pub services: &'e Services,
    /// The store.
    pub store: &'e dyn Store,
    /// What the run had to bear.
    pub rates: &'e FaultRates,
}

/// Evaluates everything.
pub async fn examine(evidence: &Evidence<'_>, tally: &mut Tally) {
    let Evidence { history, orders, services, store, .. } = *evidence;
    let checked = match &evidence.database {
        Some(database) => plainly(database, evidence, tally).await,
        None => check_store(store, &services.lines(), history).await.map_err(Into::into),
    };
    match checked {
        Ok(report) => tally.take_report(&report),
        Err(error) => tally.case("B3", false, || format!("the store cannot be read: {error:#}")),
    }
    let mut jobs = Vec::new();
    let rows = every_job(store).await.unwrap_or_else(|error| {
        tally.case("B3", false, || format!("the jobs cannot be read: {error}"));
        Vec::new()
    });
    for row in rows {
        match store.history(Scope::System, row.id, true).await {
            Ok(Some(history)) => {
                job_rules::reclaims(row.id, &history.events, tally);
                jobs.push((row, history.events));
            }
            Ok(None) => tally.case("B3", false, || format!("{} is listed and cannot be found", row.id)),
            Err(error) => tally.case("B4", false, || format!("{}: {error}", row.id)),
        }
    }
    match store.outbox(None, aetheris_core::limits::SWEEP_ROWS_MAX).await {
        Ok(outbox) => children::examine(&jobs, &outbox, tally),
        Err(error) => tally.case("B3", false, || format!("the outbox cannot be read: {error}")),
    }
    job_rules::sessions(&jobs, tally);
    lists(store, &jobs, tally).await;
    delivered(evidence, tally).await;
    let events: BTreeMap<JobId, &[Recorded]> = jobs.iter().map(|(row, events)| (row.id, events.as_slice())).collect();
    for order in orders {
        match (Loaded::read(store, &Scope::System, order.job).await, events.get(&order.job)) {
            (Ok(loaded), Some(events)) => {
                examine_job(evidence, &loaded, events, order, tally);
                kept(evidence, &loaded, events, tally).await;
            }
            (Err(error), _) => tally.case("B3", false, || format!("{} cannot be read: {error}", order.job)),
            (Ok(_), None) => tally.case("B3", false, || format!("{} was accepted and is not listed", order.job)),
        }
    }
}

/// Both checkers look, and must find the same. What the second one finds alone is told here, and whether jobs began in
/// their turn.
async fn plainly(database: &Path, evidence: &Evidence<'_>, tally: &mut Tally) -> anyhow::Result<Report> {
    let Evidence { history, services, store, .. } = *evidence;
    let copy = |tables: &_| copy_sqlite(database, tables);
    let checked = Checked::new(copy, store, &services.lines(), history).await?;
    for (id, found) in &checked.sql {
        tally.violations.extend(found.violations.iter().map(|violation| format!("PLAIN {id} {violation}")));
        *tally.plain.entry(id.id()).or_default() += found.examined;
    }
    let differences = checked.differences();
    tally.violations.extend(differences.iter().map(|difference| format!("PLAIN the checkers differ: {difference}")));
    let turns = turns::judge(checked.evidence.tables())?;
    tally.add("TURNS", turns.conversations);
    tally.add("LATER", turns.later);
    tally.violations.extend(turns.violations.iter().map(|violation| format!("TURNS {violation}")));
    Ok(checked.rust)
}

/// Every list has the rows that it is to have, newest first, and no other.
async fn lists(store: &dyn Store, jobs: &[(JobRow, Vec<Recorded>)], tally: &mut Tally) {
    let all = JobFilter { limit: 3, ..JobFilter::default() };
    let mut filters: Vec<JobFilter> = Vec::new();
    for (row, _) in jobs {
        let all = JobFilter { scope: Scope::Tenant(row.tenant.clone()), ..all.clone() };
        filters.push(all.clone());
        filters.push(JobFilter { scope: Scope::System, statuses: vec![row.status], ..all.clone() });
        filters.push(JobFilter { agent: Some(row.agent.clone()), ..all.clone() });
        filters.push(JobFilter { statuses: vec![row.status], ..all.clone() });
        filters.push(JobFilter { session: row.session.clone(), agent: Some(row.agent.clone()), ..all.clone() });
        let labels = row.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        filters.extend(labels.map(|label| JobFilter { label: Some(label), ..all.clone() }));
    }
    let mut asked: Vec<JobFilter> = Vec::new();
    for filter in filters {
        if asked.contains(&filter) {
            continue;
        }
        let wanted = |row: &JobRow| {
            filter.scope.admits(&row.tenant)
                && filter.agent.as_ref().is_none_or(|agent| *agent == row.agent)
                && (filter.statuses.is_empty() || filter.statuses.contains(&row.status))
                && filter.session.as_ref().is_none_or(|session| Some(session) == row.session.as_ref())
                && filter.label.as_ref().is_none_or(|(key, value)| row.labels.get(key) == Some(value))
        };
        let mut expected: Vec<JobId> =
            jobs.iter().map(|(row, _)| row).filter(|row| wanted(row)).map(|row| row.id).collect();
        expected.sort();
        expected.reverse();
        let mut told: Vec<JobId> = Vec::new();
        let mut page = filter.clone();
        while let Ok(found) = store.jobs(page.clone()).await {
            told.extend(found.jobs.iter().map(|row| row.id));
            page.before = found.next;
            if found.next.is_none() || told.len() > jobs.len() {
                break;
            }
        }
        tally.case("T3", told == expected, || format!("{filter:?} lists {told:?}, and there are {expected:?}"));
        asked.push(filter);
    }
}

/// An answer that reached a process which lived on is recorded, or kept as evidence: never dropped.
async fn delivered(evidence: &Evidence<'_>, tally: &mut Tally) {
    if evidence.deaths > 0 {
        return;
    }
    for (job, key, fence) in evidence.services.delivered() {
        let (Ok(Some(history)), Ok(kept)) =
            (evidence.store.history(Scope::System, job, true).await, evidence.store.evidence(Scope::System, job).await)
        else {
            tally.case("B3", false, || format!("{job} cannot be read"));
            continue;
        };
        let known = history.effects.iter().any(|effect| effect.key == key) || kept.iter().any(|kept| kept.key == key);
        // A run that stood still past the call's timeout has told its doubt before it could hear the answer.
        let doubted = history
            .events
            .iter()
            .any(|recorded| recorded.fence == fence && matches!(recorded.event, Event::StepInDoubt(_)));
        tally.case("C9", known || doubted, || format!("{job} {key}: its answer arrived and is nowhere"));
    }
}

/// What is kept as late evidence: an answer is kept once, as an effect or as evidence, and the success of a permit that
/// another one followed has contradicted the job.
async fn kept(evidence: &Evidence<'_>, loaded: &Loaded, events: &[Recorded], tally: &mut Tally) {
    let Ok(kept) = evidence.store.evidence(Scope::System, loaded.state.id).await else {
        tally.case("B3", false, || format!("the evidence of {} cannot be read", loaded.state.id));
        return;
    };
    let successes =
        || kept.iter().filter(|kept| kept.outcome.get("outcome").and_then(|o| o.as_str()) == Some("success"));
    for kept in successes() {
        let followed = loaded.ledger.get(&kept.key).is_some_and(|row| row.permit > kept.permit);
        tally.case("T4", kept.conflict || !followed, || {
            format!("{}: a success of permit {} is said to contradict nothing", loaded.state.id, kept.permit)
        });
        let said = events.iter().filter(|recorded| match &recorded.event {
            Event::InDoubtResolved(answer) => answer.node == kept.node && answer.outcome == DoubtOutcome::Happened,
            _ => false,
        });
        let recorded = successes().filter(|other| other.key == kept.key).count()
            + usize::from(loaded.effects.contains_key(&kept.key));
        let (heard, said) = (evidence.services.answers(kept.key), said.count());
        tally.case("S5", recorded <= heard + said, || {
            format!(
                "{} {}: {recorded} successes are kept, {heard} were heard and {said} said",
                loaded.state.id, kept.key
            )
        });
    }
}

fn examine_job(evidence: &Evidence<'_>, loaded: &Loaded, events: &[Recorded], order: &Order, tally: &mut Tally) {
    let services = evidence.services;
    for step in loaded.state.steps.values().filter(|step| step.status == StepStatus::InDoubt) {
        let Some(call) = step.invocation.as_deref().filter(|_| !loaded.state.status.is_terminal()) else { continue };
        let stored = loaded.effects.get(&call.key).is_some_and(|effect| effect.permit == call.permit);
        tally.case("S4", !stored, || format!("{}: a doubt is open, and the answer of its call is stored", order.job));
    }
    let course = joins::follow(order.job, &order.program, events, tally);
    joins::first_failure(order.job, &order.program, events, tally);
    maps::in_order(order.job, &order.program, events, tally);
    let outputs = outputs(events, order, &course);
    let tried = rounds::expected(&order.program, &order.message, &outputs, &course);
    rounds::in_order(order.job, &order.program, events, &tried, tally);
    asked_once(evidence, events, (order, &outputs, &course), tally);
    rounds::critics_asked_once(evidence, events, (order.job, &tried), tally);
    let prompts = prompts(order, &outputs, &course);
    loops::examine(evidence, events, (order.job, &order.program, &prompts), tally);
    in_time(evidence, events, order, tally);
    job_rules::tries(order.job, &order.program, events, evidence.rates.jumps, tally);
    job_rules::budget(order.job, &order.program, events, tally);
    fitting(events, order, tally);
    people::examine(order, events, tally);
    planners::examine(evidence, events, (order.job, &order.program), tally);
    for (place, step) in order.program.steps.iter().enumerate() {
        let Kind::Tool { class, .. } = &step.kind else { continue };
        let calls = order.program.paths(place).into_iter().flat_map(|(path, _)| order.program.calls_of(place, &path));
        for path in calls {
            let acts = services.known(IdempotencyKey::derive(order.job, &path, 0)).acts;
            let status = loaded.state.step_status(&path);
            if *class == EffectClass::AtMostOnce {
                tally.case("C1", acts <= 1, || format!("{} {path}: it acted {acts} times", order.job));
            }
            if status == StepStatus::Completed && class.is_ledger() {
                tally.case("C7", acts >= 1, || format!("{} {path}: completed, and it never acted", order.job));
            }
            if status == StepStatus::Skipped || order.program.is_skipped(place) {
                tally.case("C2", acts == 0, || format!("{} {path}: skipped, and it acted {acts} times", order.job));
            }
        }
    }
    match (&loaded.state.ending, loaded.state.status) {
        (Some(Ending::Answered(answer)), _) => {
            let told = answer_of(loaded, answer);
            let expected = order.program.answer(&outputs, &course);
            tally.case("F6", told.as_ref() == Some(&expected), || {
                format!("{}: it answered {told:?}, its program makes {expected:?}", order.job)
            });
        }
        (Some(Ending::Failed { error, .. }), _) => {
            // A process that stands still before its question has used up the time that the answer may take.
            let models = order.program.steps.iter().any(|step| step.kind == Kind::Model);
            let models = models || order.program.planner.is_model();
            let stood = evidence.rates.stops > 0 && (models || !order.program.loops.is_empty());
            let allowed = failures::may_fail(order, error, loaded) || (stood && error.code == MODEL_TIMED_OUT);
            tally.case("F6", allowed, || format!("{}: it failed with {}: {}", order.job, error.code, error.message));
        }
        (_, JobStatus::Cancelled) => {
            tally.case("D7", order.cancelled, || format!("{}: cancelled, and nobody asked for it", order.job));
        }
        (None | Some(Ending::Cancelled), _) => {}
    }
}

fn answer_of(loaded: &Loaded, answer: &Answer) -> Option<String> {
    let value = match answer {
        Answer::Value(value) => value.clone(),
        Answer::Node(node) => aetheris_runtime::names::output(&loaded.state, &loaded.effects, &node.into()),
    };
    value.value().as_str().map(str::to_owned)
}

/// What the program's nodes yield, given what its waits ended with.
fn outputs(events: &[Recorded], order: &Order, course: &Course) -> Vec<Option<String>> {
    let mut waits: BTreeMap<String, String> = BTreeMap::new();
    for recorded in events {
        if let Event::WaitCompleted(wait) = &recorded.event {
            let text = match &wait.by {
                WaitEnd::Signal { payload, .. } => text_of(payload),
                WaitEnd::Dropped | WaitEnd::Time => "nobody".to_owned(),
            };
            waits.insert(wait.node.to_string(), text);
        }
    }
    order.program.outputs(&order.message, course, |place| waits.get(&format!("n{place}")).cloned())
}

/// No wait ended with a payload that it does not accept.
fn fitting(events: &[Recorded], order: &Order, tally: &mut Tally) {
    for recorded in events {
        let Event::WaitCompleted(ended) = &recorded.event else { continue };
        let WaitEnd::Signal { payload, .. } = &ended.by else { continue };
        let waits = order.program.step_at(&ended.node).is_some_and(|(_, step)| matches!(step.kind, Kind::Wait { .. }));
        let fits = !waits || text_of(payload).starts_with('p');
        tally.case("T7", fits, || format!("{} {}: its wait ended with {payload}", order.job, ended.node));
    }
}

/// A node's tries that had begun by then.
fn started<'e>(events: &'e [Recorded], node: &'e str, by: Timestamp) -> impl Iterator<Item = (Fence, u32)> + 'e {
    events.iter().filter(move |recorded| recorded.at <= by).filter_map(move |recorded| match &recorded.event {
        Event::NodeStarted(started) if started.node.text() == node => Some((recorded.fence, started.number)),
        _ => None,
    })
}

/// When the end of a node was stored.
fn ended_at(events: &[Recorded], place: usize) -> Option<Timestamp> {
    let node = format!("n{place}");
    events.iter().find_map(|recorded| match &recorded.event {
        Event::NodeFinished(finished) if finished.node.text() == node => Some(recorded.at),
        Event::NodeSkipped(skipped) if skipped.node.text() == node => Some(recorded.at),
        _ => None,
    })
}

/// The steps in which a program calls or asks, with what is behind the input of each.
fn calls_of(program: &Program) -> impl Iterator<Item = (usize, &Step, (StepPath, String))> {
    program.steps.iter().enumerate().flat_map(move |(place, step)| {
        let calls = move |(path, item): (StepPath, String)| {
            program.calls_of(place, &path).into_iter().map(move |path| (path, item.clone()))
        };
        program.paths(place).into_iter().flat_map(calls).map(move |of| (place, step, of))
    })
}

/// No question leaves before what its node needs is stored, and none is put again once its answer is recorded, by a run
/// that could know it.
fn asked_once(
    evidence: &Evidence<'_>,
    events: &[Recorded],
    (order, outputs, course): (&Order, &[Option<String>], &Course),
    tally: &mut Tally,
) {
    // A run that was stopped may ask once more when it goes on; a question names no fence.
    let stale = evidence.rates.stops > 0 || evidence.rates.nemesis > 0;
    let lines = evidence.services.lines();
    for (place, step, (path, item)) in calls_of(&order.program) {
        let node = path.to_string();
        let finished = events.iter().find_map(|recorded| match &recorded.event {
            Event::NodeFinished(finished) if finished.node.text() == node => {
                Some((recorded.at, recorded.fence, finished.given_up))
            }
            _ => None,
        });
        let questions = || {
            let input = order.program.input(place, &order.message, outputs, course);
            let drawn = course.drawn(place, path.item(), path.round());
            let round = order.program.of_round(place, path.round());
            evidence.services.asked(&format!("{input}{item}{drawn}{round}"))
        };
        if step.kind == Kind::Model && !evidence.rates.jumps {
            let behind = step.needs.iter().filter(|need| course.seen(place, **need) != Stand::Open);
            let ended: Vec<Option<Timestamp>> = behind.map(|need| ended_at(events, *need)).collect();
            for Asked { left, .. } in questions() {
                tally.case("S6", ended.iter().all(|end| end.is_some_and(|end| end <= left)), || {
                    format!("{} {node}: a question left at {left}; what it needs is stored since {ended:?}", order.job)
                });
            }
        }
        let Some((at, fence, given_up)) = finished else { continue };
        match &step.kind {
            Kind::Model if !stale => {
                let asked = questions();
                tally.case("C6", asked.iter().all(|asked| asked.answered <= at), || {
                    format!("{} {node}: the model was asked at {asked:?}, its answer was recorded at {at}", order.job)
                });
            }
            Kind::Tool { class: EffectClass::Pure, .. } if !evidence.rates.jumps => {
                let tool = format!("t{place}");
                let bodies = lines
                    .iter()
                    .filter(|line| line.kind == WitnessKind::BodyStart && line.job == order.job && line.tool == tool)
                    .filter(|line| line.node == path);
                let mut tries: BTreeSet<(Fence, u32)> = started(events, &node, at).collect();
                // An item that is given up may have been called once more, in the try of a run before.
                if let Some((_, number)) = tries.last().copied().filter(|_| given_up) {
                    tries.insert((fence, number));
                }
                // A try that was given up may still be on its way, once: no later one may leave.
                let late = bodies.filter(|line| line.fence >= fence).find(|line| {
                    let known = tries.remove(&(line.fence, line.attempt));
                    line.at > at && !known
                });
                tally.case("C6", late.is_none(), || {
                    format!(
                        "{} {node}: called at {:?}, after its answer was recorded at {at}",
                        order.job,
                        late.map(|line| line.at)
                    )
                });
            }
            Kind::Tool { .. }
            | Kind::Model
            | Kind::Wait { .. }
            | Kind::Timer(_)
            | Kind::Sleep(_)
            | Kind::Transform
            | Kind::Condition => {}
        }
    }
}

/// What each loop of a job asks its model.
fn prompts(order: &Order, outputs: &[Option<String>], course: &Course) -> BTreeMap<StepPath, String> {
    let mut prompts = BTreeMap::new();
    for place in order.program.loops.keys().copied() {
        let input = order.program.input(place, &order.message, outputs, course);
        for (path, item) in order.program.paths(place) {
            let drawn = course.drawn(place, path.item(), path.round());
            let round = order.program.of_round(place, path.round());
            prompts.insert(path, format!("{input}{item}{drawn}{round}"));
        }
    }
    prompts
}

/// A job that has a deadline ends at it, or as soon after it as the faults are over and its calls are home.
fn in_time(evidence: &Evidence<'_>, events: &[Recorded], order: &Order, tally: &mut Tally) {
    let (Some(deadline), false) = (order.deadline, evidence.rates.jumps) else { return };
    let Some(created) = events.first().map(|event| event.at) else { return };
    let due = created.after(Span::from_millis(deadline)).max(evidence.calm);
    // Whoever fires timers may stand still for two leases more, and the job's holder as long after it.
    let grace = Span::from_secs(110);
    let last = events.iter().rev().find(|recorded| !matches!(recorded.event, Event::InDoubtResolved(_)));
    tally.case("D7", last.is_some_and(|last| last.at <= due.after(grace)), || {
        format!("{}: its deadline was {due}, and it went on until {:?}", order.job, last.map(|last| last.at))
    });
}

fn text_of(payload: &Json) -> String {
    payload.value().as_str().unwrap_or_default().to_owned()
}
