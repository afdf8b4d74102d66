//! What is asked for beside a message, and what its agent says of every job: labels, a priority, deadlines, budgets,
//! schemas. Judged from the server's answers and from what is stored of each job.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::time::{Span, Timestamp};
use aetheris_plain::{Evidence, hex};
use anyhow::Result;
use serde_json::{Value, json};

use super::client::Outcome;
use super::dice::Dice;
use super::programs::{MISFIT, Program};

/// How many problems are told.
const TOLD_MAX: usize = 20;
/// A deadline that is longer than any run.
const NEVER_MS: u64 = 3_600_000;

/// What is asked for with one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// How long its job may take; what its agent says without.
    pub deadline_ms: Option<u64>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its priority.
    pub priority: i64,
    /// Before this time, as the store tells it, it is not to begin.
    pub run_at: Option<Timestamp>,
    /// The conversation that it belongs to.
    pub session: Option<String>,
}

/// A message for later is for no later than this.
pub const LATER_MS: u64 = 2_000;

impl Asked {
    /// Draws it, of a message that is sent now. Some deadlines are so short that they come in the middle of a job, some
    /// never come.
    #[must_use]
    pub fn draw(dice: &mut Dice, now: Timestamp) -> Self {
        let deadline_ms = match dice.within(0..100) {
            0..8 => Some(dice.within(300..6_000)),
            8..16 => Some(NEVER_MS),
            _ => None,
        };
        let of = dice.within(0..5).to_string();
        let labels = [("run", "chaos"), ("of", of.as_str())].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let priority = *dice.pick(&[0, 0, 0, 7, -7, i64::from(i32::MAX), i64::from(i32::MIN)]);
        let run_at = dice.chance(10).then(|| now.after(Span::from_std(dice.millis(100..LATER_MS))));
        Self { deadline_ms, labels: labels.into(), priority, run_at, session: None }
    }

    /// The body of the request.
    #[must_use]
    pub fn body(&self, message: &Value) -> String {
        let mut body = json!({"message": message, "labels": self.labels, "priority": self.priority});
        if let Some(deadline) = self.deadline_ms {
            body["deadline"] = json!(format!("{deadline}ms"));
        }
        if let Some(run_at) = self.run_at {
            body["run_at"] = json!(run_at);
        }
        if let Some(session) = &self.session {
            body["session_id"] = json!(session);
        }
        body.to_string()
    }

    /// The same, with one thing that is another.
    #[must_use]
    pub fn changed(&self, dice: &mut Dice) -> Self {
        let mut other = self.clone();
        match dice.within(0..5) {
            0 => other.deadline_ms = Some(self.deadline_ms.map_or(NEVER_MS, |deadline| deadline + 1)),
            1 => drop(other.labels.insert("of".to_owned(), "another".to_owned())),
            2 => other.session = self.session.is_none().then(|| "another".to_owned()),
            3 => {
                other.run_at =
                    self.run_at.map_or(Some(Timestamp::from_micros(1)), |at| Some(at.after(Span::from_secs(1))))
            }
            _ => other.priority = if self.priority == 3 { 4 } else { 3 },
        }
        other
    }
}

/// What is stored of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// When it was accepted, in microseconds.
    pub at: i64,
    /// Permissions to call, without those of calls that were never sent.
    pub calls: u64,
    /// The delay of its deadline, in microseconds.
    pub deadline_us: Option<i64>,
    /// When it failed because of its deadline.
    pub exceeded_at: Option<i64>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its priority.
    pub priority: i64,
    /// Its `run_at`, as it is written.
    pub run_at: Option<String>,
    /// Its conversation.
    pub session: Option<String>,
    /// What models used, answer by answer.
    pub tokens: Vec<u64>,
    /// The nodes whose tries have begun, one for each.
    pub started: Vec<String>,
    /// What ended its waits with a signal.
    pub payloads: Vec<Value>,
}

const STORED: &str = "
SELECT job,
       max(at) FILTER (WHERE kind = 'job_created'),
       count(*) FILTER (WHERE kind = 'tool_invocation_started')
           - count(*) FILTER (WHERE kind = 'tool_invocation_finished' AND payload ->> 'outcome' = 'not_sent'),
       max(payload ->> 'after_us') FILTER (WHERE kind = 'timer_set' AND payload ->> 'timer' = 'deadline'),
       max(at) FILTER (WHERE kind = 'job_failed' AND payload ->> '$.error.code' = 'deadline_exceeded'),
       max(coalesce(payload -> 'labels', '{}')) FILTER (WHERE kind = 'job_created'),
       max(coalesce(payload ->> 'priority', 0)) FILTER (WHERE kind = 'job_created'),
       json_group_array(payload ->> 'node') FILTER (WHERE kind = 'node_started'),
       json_group_array(payload -> '$.by.signal.payload')
           FILTER (WHERE kind = 'wait_completed' AND payload -> '$.by.signal' IS NOT NULL),
       max(payload ->> '$.message.n') FILTER (WHERE kind = 'job_created'),
       max(payload ->> 'run_at') FILTER (WHERE kind = 'job_created'),
       max(payload ->> 'session') FILTER (WHERE kind = 'job_created'),
       json_group_array((payload ->> '$.model.usage.prompt_tokens') + (payload ->> '$.model.usage.completion_tokens')
                        ORDER BY seq)
           FILTER (WHERE payload -> '$.model.usage' IS NOT NULL)
FROM events GROUP BY job";

/// What is stored of every job, by its bits, and the jobs that no message may make.
///
/// # Errors
/// The tables cannot be read.
pub fn stored(evidence: &Evidence) -> Result<(BTreeMap<String, Stored>, Vec<String>)> {
    let mut statement = evidence.tables().prepare(STORED)?;
    let (mut all, mut misfits) = (BTreeMap::new(), Vec::new());
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text = |place: usize| row.get::<_, Option<String>>(place).map(Option::unwrap_or_default);
        let job = text(0)?;
        if row.get::<_, Option<i64>>(9)?.is_some_and(|n| n < 0) {
            misfits.push(job.clone());
        }
        let payloads: Vec<Value> = serde_json::from_str(&text(8)?)?;
        let stored = Stored {
            at: row.get(1)?,
            calls: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
            deadline_us: row.get(3)?,
            exceeded_at: row.get(4)?,
            labels: serde_json::from_str(&text(5)?)?,
            priority: row.get(6)?,
            run_at: row.get(10)?,
            session: row.get(11)?,
            tokens: serde_json::from_str(&text(12)?)?,
            started: serde_json::from_str(&text(7)?)?,
            payloads: payloads.into_iter().map(inner).collect(),
        };
        all.insert(job, stored);
    }
    Ok((all, misfits))
}

/// JSON in a list of SQLite's may have become a text.
fn inner(value: Value) -> Value {
    value.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(value)
}

/// How often each thing was judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cases {
    /// Jobs whose program has a budget.
    pub budgets: u64,
    /// Jobs that ended because their budget was used up.
    pub used_up: u64,
    /// Jobs whose program has a budget of tokens.
    pub tokens: u64,
    /// Jobs with a deadline.
    pub deadlines: u64,
    /// Jobs that ended at their deadline.
    pub exceeded: u64,
    /// Payloads that a schema let through.
    pub fitting: u64,
}

/// What is wrong with what was asked for, over all jobs.
#[must_use]
pub fn judge(
    outcomes: &[Outcome],
    programs: &BTreeMap<String, Program>,
    (stored, misfits): &(BTreeMap<String, Stored>, Vec<String>),
) -> (Cases, Vec<String>) {
    let (mut cases, mut problems) = (Cases::default(), Vec::new());
    problems.extend(misfits.iter().map(|job| format!("job {job} has a message that no server may take")));
    for outcome in outcomes {
        let Some(program) = programs.get(&outcome.agent) else { continue };
        match stored.get(&hex(&outcome.job.to_bytes())) {
            Some(stored) => {
                let (agent, job) = (&outcome.agent, outcome.job);
                let found = of_job(outcome, program, stored, &mut cases);
                problems.extend(found.into_iter().map(|problem| format!("{agent} {job}: {problem}")));
            }
            // What is nowhere is lost, which others tell.
            None => continue,
        }
    }
    problems.truncate(TOLD_MAX);
    (cases, problems)
}

fn of_job(outcome: &Outcome, program: &Program, stored: &Stored, cases: &mut Cases) -> Vec<String> {
    let mut problems = Vec::new();
    let (asked, view) = (&outcome.asked, &outcome.view);
    let told = (&view["labels"], view["priority"].as_i64().unwrap_or(0));
    if told != (&json!(asked.labels), asked.priority) {
        problems.push(format!("{asked:?} was asked for, and the server tells {told:?}"));
    }
    if (&stored.labels, stored.priority) != (&asked.labels, asked.priority) {
        problems.push(format!("{asked:?} was asked for, and {:?} {} is stored", stored.labels, stored.priority));
    }
    let run_at = asked.run_at.map(|at| at.to_string());
    let session = (&asked.session, view["session_id"].as_str());
    if session != (&stored.session, asked.session.as_deref()) || stored.run_at != run_at {
        let Stored { run_at, session, .. } = stored;
        problems.push(format!(
            "{asked:?} was asked for; {session:?} and {run_at:?} are stored, {} told",
            view["session_id"]
        ));
    }
    let deadline = asked.deadline_ms.or(program.deadline_ms);
    let wanted = deadline.map(|ms| i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX));
    cases.deadlines += u64::from(wanted.is_some());
    if stored.deadline_us != wanted {
        problems.push(format!("its deadline is {wanted:?}, and its timer is set to {:?}", stored.deadline_us));
    }
    if let Some(at) = stored.exceeded_at {
        cases.exceeded += 1;
        if wanted.is_none_or(|wanted| at < stored.at.saturating_add(wanted)) {
            problems
                .push(format!("it was made at {}, has the deadline {wanted:?}, and ended for it at {at}", stored.at));
        }
    }
    budget(outcome, program, stored, cases, &mut problems);
    let strict: BTreeSet<bool> = program.waits.iter().map(|wait| wait.strict).collect();
    if strict == BTreeSet::from([true]) {
        cases.fitting += u64::try_from(stored.payloads.len()).unwrap_or(0);
        if let Some(wrong) = stored.payloads.iter().find(|payload| !payload["n"].is_i64()) {
            problems.push(format!("a wait was ended by {wrong}, which does not fit its schema"));
        }
    }
    problems
}

/// Every try of a pure step is a call, and so is every permission. No model is asked when the tokens are used up.
fn budget(outcome: &Outcome, program: &Program, stored: &Stored, cases: &mut Cases, problems: &mut Vec<String>) {
    let used_up = outcome.view["error"]["code"] == "budget_exceeded";
    cases.used_up += u64::from(used_up);
    let tries = stored.started.iter().filter(|node| program.pure.contains(*node)).count();
    let calls = stored.calls + u64::try_from(tries).unwrap_or(0);
    let tokens: u64 = stored.tokens.iter().sum();
    let before = tokens - stored.tokens.last().unwrap_or(&0);
    if let Some(most) = program.budget {
        cases.budgets += 1;
        if stored.calls > most {
            problems.push(format!("{} calls were permitted, and its budget is {most}", stored.calls));
        }
    }
    if let Some(most) = program.tokens {
        cases.tokens += 1;
        if before >= most {
            problems.push(format!("a model was asked when {before} tokens were used, and its budget is {most}"));
        }
    }
    let gone = program.budget.is_some_and(|most| calls >= most) || program.tokens.is_some_and(|most| tokens >= most);
    if used_up && !gone {
        problems.push(format!("its budget was used up by {calls} calls and {tokens} tokens"));
    }
}

/// A message that does not fit the schema of any agent that has one.
#[must_use]
pub fn misfit() -> Value {
    json!({"n": MISFIT})
}

#[cfg(test)]
mod tests {
    use aetheris_core::id::JobId;

    use super::super::programs::{SignalTime, Wait};
    use super::*;

    /// A job that has all that was asked for, in its program's budget.
    fn whole() -> (Outcome, Program, Stored) {
        let asked = Asked {
            deadline_ms: Some(500),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            priority: 7,
            run_at: Some(Timestamp::from_micros(0)),
            session: Some("s".to_owned()),
        };
        let view = json!({
            "error": {"code": "budget_exceeded"}, "labels": {"a": "b"}, "priority": 7, "session_id": "s",
            "status": "failed"
        });
        let stored = Stored {
            at: 1_000,
            calls: 1,
            deadline_us: Some(500_000),
            exceeded_at: Some(501_000),
            labels: asked.labels.clone(),
            priority: 7,
            run_at: Some("1970-01-01T00:00:00.000000Z".to_owned()),
            session: Some("s".to_owned()),
            tokens: vec![8, 8],
            started: vec!["n0".to_owned(), "n1".to_owned()],
            payloads: vec![json!({"n": 1})],
        };
        let (agent, job) = ("chaos-slow".to_owned(), JobId::from_u128(7));
        let outcome = Outcome { agent, asked, job, n: 1, left: false, view, cancelled: false };
        let mut program = Program::slow();
        (program.budget, program.tokens) = (Some(2), Some(9));
        program.pure.insert("n1".to_owned());
        let (late, node, time) = (None, "n2".to_owned(), SignalTime::AtWait);
        program.waits.push(Wait { late, node, strict: true, time });
        (outcome, program, stored)
    }

    fn found(spoil: impl FnOnce(&mut Outcome, &mut Program, &mut Stored)) -> Vec<String> {
        let (mut outcome, mut program, mut stored) = whole();
        spoil(&mut outcome, &mut program, &mut stored);
        of_job(&outcome, &program, &stored, &mut Cases::default())
    }

    #[test]
    fn what_was_asked_for_and_is_otherwise_is_told() {
        assert_eq!(found(|_, _, _| {}), Vec::<String>::new());
        let planted: [fn(&mut Outcome, &mut Program, &mut Stored); 17] = [
            |outcome, _, _| outcome.view["session_id"] = json!("t"),
            |_, _, stored| stored.session = None,
            |_, _, stored| stored.run_at = None,
            |outcome, _, _| outcome.asked.run_at = None,
            |outcome, _, _| outcome.view["labels"] = json!({}),
            |outcome, _, _| outcome.view["priority"] = json!(0),
            |_, _, stored| stored.labels.clear(),
            |_, _, stored| stored.priority = 0,
            |_, _, stored| stored.deadline_us = Some(4_000_000),
            |outcome, program, _| (outcome.asked.deadline_ms, program.deadline_ms) = (None, Some(400)),
            |_, _, stored| stored.exceeded_at = Some(500_999),
            |_, _, stored| stored.calls = 3,
            |_, _, stored| (stored.tokens, stored.started) = (vec![8], Vec::new()),
            |_, program, _| (program.budget, program.tokens) = (None, None),
            |_, _, stored| stored.tokens.push(1),
            |_, program, _| program.tokens = Some(8),
            |_, _, stored| stored.payloads.push(json!({"n": "many"})),
        ];
        for (place, spoil) in planted.into_iter().enumerate() {
            assert_eq!(found(spoil).len(), 1, "{place}");
        }
    }

    #[test]
    fn one_thing_of_what_is_asked_for_is_changed() {
        let mut dice = Dice::new(1, 1);
        for _ in 0..50 {
            let mut asked = Asked::draw(&mut dice, Timestamp::from_micros(7));
            asked.session = dice.chance(50).then(|| "s".to_owned());
            assert_ne!(asked.changed(&mut dice), asked);
        }
    }

    #[test]
    fn a_job_of_a_message_that_fits_no_schema_is_told() {
        let misfits = vec!["7".to_owned()];
        let (_, problems) = judge(&[], &BTreeMap::new(), &(BTreeMap::new(), misfits));
        assert_eq!(problems.len(), 1);
    }
}
