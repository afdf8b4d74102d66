//! Accepting a message: one commit makes the job, its first event, its plan and its deadline.

use std::collections::BTreeMap;

use aetheris_core::agent::Planner;
use aetheris_core::event::{JobCreated, PlanGenerated, TimerId, TimerSet};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, JobId, SessionId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_core::time::{Span, Timestamp};
use aetheris_expr::{Context, JobNames, Scope};
use aetheris_store::unit::ClientKey;
use aetheris_store::{AgentRow, NewJob, Purpose, Refusal};

use crate::Runtime;
use crate::draft::{Draft, LastCheckpoint, WriteError};
use crate::error::OpError;
use crate::run::rules::{self, Unclear};

/// A message for an agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Submission {
    /// The client's name for it: sending it again makes no second job.
    pub client_key: Option<String>,
    /// The time the whole job may take; the agent's own where absent.
    pub deadline: Option<Span>,
    /// Labels to find it by.
    pub labels: BTreeMap<String, String>,
    /// The message.
    pub message: Option<Json>,
    /// Higher is earlier.
    pub priority: i32,
    /// Not before.
    pub run_at: Option<Timestamp>,
    /// The conversation.
    pub session: Option<SessionId>,
}

/// The job of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Whether this call made it; `false` where an earlier one with the same key did.
    pub created: bool,
    /// The job.
    pub job: JobId,
    /// What it is doing.
    pub status: JobStatus,
}

impl Submission {
    fn check(&self) -> Result<(), OpError> {
        let invalid = |what: String| Err(OpError::InvalidRequest(what));
        let chars = limits::LABEL_CHARS_MAX;
        if self.labels.len() > limits::LABELS_MAX {
            return invalid(format!("labels: at most {} are accepted", limits::LABELS_MAX));
        }
        let too_long = |text: &str| limits::is_longer(text, limits::LABEL_CHARS_MAX);
        if self.labels.iter().any(|(key, value)| key.is_empty() || too_long(key) || too_long(value)) {
            return invalid(format!("labels: keys have 1 to {chars} characters, values up to {chars}"));
        }
        if let Some(key) = self.labels.keys().find(|key| key.contains(limits::LABEL_SEPARATORS)) {
            return invalid(format!("labels: the key `{key}` contains `:` or `=`, which end a key"));
        }
        if self.client_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > limits::CLIENT_KEY_BYTES_MAX) {
            return invalid(format!("Idempotency-Key: 1 to {} bytes are accepted", limits::CLIENT_KEY_BYTES_MAX));
        }
        if self.session.as_ref().is_some_and(|s| s.as_str().is_empty() || too_long(s.as_str())) {
            return invalid(format!("session_id: 1 to {chars} characters are accepted"));
        }
        if self.deadline.is_some_and(|span| span == Span::ZERO || span > limits::SPAN_MAX) {
            return invalid("deadline: must be longer than zero and at most ten years".to_owned());
        }
        Ok(())
    }

    /// Names everything that makes two requests the same.
    fn body_hash(&self, message: &Json) -> Hash {
        let body = serde_json::json!({
            "deadline": self.deadline,
            "labels": (!aetheris_fault::planted!("body-without-labels")).then_some(&self.labels),
            "message": message.value(),
            "priority": self.priority,
            "run_at": self.run_at,
            "session": self.session,
        });
        Json::new(body).hash()
    }
}

impl Runtime {
    /// Accepts a message for an agent. One durable commit; when this answers, the job is never lost.
    ///
    /// # Errors
    /// [`OpError`]: no such agent, a request out of bounds, a key that came with another request, or no
    /// store.
    pub async fn submit(&self, agent: &AgentName, submission: Submission) -> Result<Submitted, OpError> {
        submission.check()?;
        let message = submission.message.clone().unwrap_or_else(Json::null);
        let Some(row) = self.store.agent(self.scope.owner(), agent.clone()).await? else {
            // What was accepted stays accepted, also when its agent is gone.
            let earlier = self.sent_before(agent, &submission, &message).await?;
            let earlier = earlier.filter(|_| !aetheris_fault::planted!("agent-before-key"));
            return earlier.ok_or_else(|| OpError::AgentNotFound(agent.clone()));
        };
        if let Some(schema) = &row.agent.message_schema {
            let violations = self.plans.violations(schema, &message).await?;
            if !violations.is_empty() {
                // What was accepted before stays accepted, whatever the agent asks for by now.
                let earlier = self.sent_before(agent, &submission, &message).await?;
                return earlier.ok_or(OpError::InvalidPayload { violations, what: "the message" });
            }
        }
        let job = JobId::from_u128(self.system.ids.ordered());
        let plan = match self.plan_for(job, &row, &submission, &message) {
            Ok(plan) => plan,
            Err(error) => {
                let earlier = self.sent_before(agent, &submission, &message).await?;
                return earlier.ok_or(error);
            }
        };
        let draft = self.first_facts(job, (&row, plan), &submission, &message)?;
        aetheris_fault::crash_point!("ops.create.decided");
        let key = submission.client_key.as_ref();
        let key = key.filter(|_| !aetheris_fault::planted!("client-key-ignored"));
        let client_key = key.map(|key| ClientKey { body_hash: submission.body_hash(&message), key: key.clone() });
        let new_job = NewJob {
            agent: agent.clone(),
            agent_version: row.agent.version.clone(),
            client_key,
            labels: submission.labels,
            parent: None,
            priority: submission.priority,
            session: submission.session,
            tenant: self.scope.owner(),
        };
        let fallback = self.event_id();
        let unit = || {
            let mut unit = draft.unit(Purpose::Create, fallback);
            unit.create = Some(new_job.clone());
            unit
        };
        match crate::draft::write(self.store.as_ref(), unit).await {
            Ok(_) => {
                aetheris_fault::crash_point!("ops.create.written");
                if !draft.state().timers.is_empty() {
                    self.store.bus().timer_set();
                }
                Ok(Submitted { created: true, job, status: JobStatus::Pending })
            }
            Err(WriteError::Refused(Refusal::Duplicate(earlier))) => self.earlier(earlier).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The plan of a message, where it is known before a model is asked.
    ///
    /// # Errors
    /// No rule of the agent holds, or one cannot be asked.
    fn plan_for(
        &self,
        job: JobId,
        row: &AgentRow,
        submission: &Submission,
        message: &Json,
    ) -> Result<Option<Hash>, OpError> {
        match row.agent.planner {
            Planner::Static => Ok(Some(row.plan_hash)),
            Planner::Llm => Ok(None),
            Planner::Rules => {
                let agent = row.agent.agent.clone();
                let of_job = JobNames { agent, id: job, session: submission.session.clone() };
                let names = Context { job: Some(of_job), message: Some(message.clone()), ..Context::default() };
                let rules = row.agent.plan.rules();
                match rules::choose(rules, Scope::from(&names)) {
                    Ok(Some(place)) => {
                        let chosen = rules.get(place).map(|rule| row.agent.plan.with(rule.graph.clone()).hash());
                        Ok(chosen)
                    }
                    Ok(None) => Err(OpError::NoRule(rules::none_holds(rules))),
                    Err(Unclear { error, place }) => {
                        Err(OpError::RuleFailed(format!("`rules[{place}].when` cannot be evaluated: {error}")))
                    }
                }
            }
        }
    }

    /// The job that the same request made before; nothing where it has no key, or one that is new.
    ///
    /// # Errors
    /// [`OpError::IdempotencyConflict`]: the key came with another request. The store cannot be asked.
    pub(crate) async fn sent_before(
        &self,
        agent: &AgentName,
        submission: &Submission,
        message: &Json,
    ) -> Result<Option<Submitted>, OpError> {
        let Some(key) = submission.client_key.clone() else {
            return Ok(None);
        };
        match self.store.client_key(self.scope.owner(), agent.clone(), key).await? {
            Some((job, hash)) if hash == submission.body_hash(message) => self.earlier(job).await.map(Some),
            Some((job, _)) => Err(OpError::IdempotencyConflict(job)),
            None => Ok(None),
        }
    }

    async fn earlier(&self, job: JobId) -> Result<Submitted, OpError> {
        let row = self.store.job(self.scope.clone(), job).await?.ok_or(OpError::JobNotFound(job))?;
        let status = if aetheris_fault::planted!("repeat-is-pending") { JobStatus::Pending } else { row.status };
        Ok(Submitted { created: false, job, status })
    }

    /// `job_created`, `plan_generated` where the plan is known, and the deadline: a job never exists without them.
    fn first_facts(
        &self,
        job: JobId,
        (row, plan): (&AgentRow, Option<Hash>),
        submission: &Submission,
        message: &Json,
    ) -> Result<Draft, OpError> {
        let ids = self.system.ids.as_ref();
        let mut state = JobState::new(job);
        state.fence = Fence::default();
        let mut draft = Draft::new(state, Guard::Outside, LastCheckpoint::default());
        draft.push(
            ids,
            JobCreated {
                agent: row.agent.agent.clone(),
                agent_version: row.agent.version.clone(),
                execution_version: self.settings.execution_version.clone(),
                labels: submission.labels.clone(),
                message: message.clone(),
                parent: None,
                planning: plan.is_none().then_some(row.plan_hash),
                priority: submission.priority,
                run_at: submission.run_at,
                session: submission.session.clone(),
                tenant: self.scope.owner(),
            },
        )?;
        if let Some(plan_hash) = plan.filter(|_| !aetheris_fault::planted!("job-without-plan")) {
            draft.push(
                ids,
                PlanGenerated {
                    plan_hash,
                    plan_version: 1,
                    planner: row.agent.planner.as_str().to_owned(),
                    planner_version: self.settings.execution_version.clone(),
                },
            )?;
        }
        let deadline = submission.deadline.or(row.agent.deadline);
        if let Some(deadline) = deadline.filter(|_| !aetheris_fault::planted!("deadline-forgotten")) {
            draft.push(ids, TimerSet { after_us: deadline.micros(), timer: TimerId::Deadline })?;
        }
        Ok(draft)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn full() -> Submission {
        Submission {
            client_key: Some("key".to_owned()),
            deadline: Some(Span::from_secs(1)),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            message: None,
            priority: 1,
            run_at: Some(Timestamp::from_micros(5)),
            session: Some("s".into()),
        }
    }

    /// A repeated key is told the job that the first request made, so that whatever else a request asks for makes it
    /// another one.
    #[test]
    fn two_requests_are_the_same_only_if_they_ask_for_the_same() {
        let hash = |submission: &Submission| submission.body_hash(&Json::new(json!({ "n": 1 })));
        let renamed = Submission { client_key: Some("other".to_owned()), ..full() };
        assert_eq!(hash(&renamed), hash(&full()), "the key names the request and is no part of it");
        let labels = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        let others = [
            Submission { deadline: None, ..full() },
            Submission { deadline: Some(Span::from_secs(2)), ..full() },
            Submission { labels: BTreeMap::new(), ..full() },
            Submission { labels: labels("a", "c"), ..full() },
            Submission { labels: labels("c", "b"), ..full() },
            Submission { priority: 0, ..full() },
            Submission { priority: -1, ..full() },
            Submission { run_at: None, ..full() },
            Submission { run_at: Some(Timestamp::from_micros(6)), ..full() },
            Submission { session: None, ..full() },
            Submission { session: Some("t".into()), ..full() },
        ];
        let mut hashes: std::collections::BTreeSet<Hash> = others.iter().chain([&full()]).map(hash).collect();
        hashes.insert(full().body_hash(&Json::new(json!({ "n": 2 }))));
        assert_eq!(hashes.len(), others.len() + 2);
    }

    #[test]
    fn what_a_request_may_ask_for_is_bounded() {
        let text = |chars: usize| "é".repeat(chars);
        let labelled = |key: String, value: String| Submission { labels: [(key, value)].into(), ..full() };
        let many = |count: usize| Submission {
            labels: (0..count).map(|n| (n.to_string(), String::new())).collect(),
            ..full()
        };
        let keyed = |key: String| Submission { client_key: Some(key), ..full() };
        let of_session = |name: String| Submission { session: Some(SessionId::new(name)), ..full() };
        let within = |micros: u64| Submission { deadline: Some(Span::from_micros(micros)), ..full() };
        let (label, longest) = (limits::LABEL_CHARS_MAX, limits::SPAN_MAX.micros());
        for (submission, refused) in [
            (Submission::default(), None),
            (full(), None),
            (many(limits::LABELS_MAX), None),
            (many(limits::LABELS_MAX + 1), Some("labels: at most 32")),
            (labelled(text(label), text(label)), None),
            (labelled(text(label + 1), text(1)), Some("labels: keys")),
            (labelled("a:b".to_owned(), text(1)), Some("labels: the key")),
            (labelled("a=b".to_owned(), text(1)), Some("labels: the key")),
            (labelled("a".to_owned(), "b:c=d".to_owned()), None),
            (labelled(text(1), text(label + 1)), Some("labels: keys")),
            (labelled(String::new(), text(1)), Some("labels: keys")),
            (labelled(text(1), String::new()), None),
            (keyed("k".repeat(limits::CLIENT_KEY_BYTES_MAX)), None),
            (keyed("k".repeat(limits::CLIENT_KEY_BYTES_MAX + 1)), Some("Idempotency-Key: 1 to 256")),
            (keyed(String::new()), Some("Idempotency-Key: 1 to 256")),
            (of_session(text(label)), None),
            (of_session(text(label + 1)), Some("session_id: 1 to 128")),
            (of_session(String::new()), Some("session_id: 1 to 128")),
            (within(1), None),
            (within(longest), None),
            (within(longest + 1), Some("deadline: must be longer than zero")),
            (within(0), Some("deadline: must be longer than zero")),
        ] {
            let found = submission.check().err().map(|error| error.to_string());
            let fits = match (refused, &found) {
                (None, None) => true,
                (Some(words), Some(found)) => found.starts_with(words),
                (None, Some(_)) | (Some(_), None) => false,
            };
            assert!(fits, "{refused:?}, and it says {found:?}");
        }
    }
}
