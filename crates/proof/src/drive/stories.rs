//! The workload: jobs that together reach every write, each with the one end that it must have, crash or
//! no crash.

use std::fmt::Write as _;
use std::time::Duration;

use aetheris_check::{ClientHistory, SignalAck};
use aetheris_core::id::JobId;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::client::{ASKED_PRIORITY, Client, Start, asked_labels};
use super::files::{
    BUDGET, CANCEL_EIGHT, DEADLINE, EARLY, EIGHT, FAMILY, LATE, LEDGER, LINGER, LOOP, LOST, MAPPED, ORPHAN, PLAIN,
    PLANNED, QUESTIONED, REFINED, REFUSED, RETRY, RETRY_HELD, SLOW, STRICT, TIME, TWINS, WAIT,
};

/// What a client does with a story's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Waits for its end.
    Watch,
    /// Sends the signal before the wait is reached.
    SignalEarly,
    /// Sends the signal when the job waits.
    Signal,
    /// Cancels it a while after it began.
    CancelRunning,
    /// Cancels it when it waits.
    CancelWaiting,
    /// Pauses it in the middle of a call, and lets it go on.
    PauseRunning,
    /// Pauses it when it waits, lets it go on, and sends the signal.
    PauseWaiting,
    /// Answers its doubt.
    Resolve,
    /// Sends what does not fit before the message and before the signal.
    Misfits,
}

/// A job and its end.
#[derive(Debug, Clone, Copy)]
pub struct Story {
    /// The agent's name.
    pub agent: &'static str,
    /// The code of the error that it ends with; empty for none.
    pub code: &'static str,
    /// The plan and tools of its agent; `URL` stands for the witness.
    pub file: &'static str,
    /// How many jobs of it are sent.
    pub jobs: u32,
    /// What a client does.
    pub script: Script,
    /// The status that it ends with.
    pub status: &'static str,
}

const fn story(
    agent: &'static str,
    jobs: u32,
    script: Script,
    end: (&'static str, &'static str),
    file: &'static str,
) -> Story {
    let (status, code) = end;
    Story { agent, code, file, jobs, script, status }
}

const DONE: (&str, &str) = ("completed", "");

/// The workload of every cell.
pub const STORIES: &[Story] = &[
    story("late", 2, Script::Watch, DONE, LATE),
    story("plain", 3, Script::Watch, DONE, PLAIN),
    story("ledger", 3, Script::Watch, DONE, LEDGER),
    story("signal", 2, Script::Signal, DONE, WAIT),
    story("early", 2, Script::SignalEarly, DONE, EARLY),
    story("time", 2, Script::Watch, DONE, TIME),
    story("retry", 2, Script::Watch, DONE, RETRY),
    story("retry-held", 1, Script::Watch, DONE, RETRY_HELD),
    story("cancel-running", 2, Script::CancelRunning, ("cancelled", ""), SLOW),
    story("pause-running", 1, Script::PauseRunning, DONE, LINGER),
    story("pause-waiting", 1, Script::PauseWaiting, DONE, WAIT),
    story("cancel-waiting", 2, Script::CancelWaiting, ("cancelled", ""), WAIT),
    story("doubt-fail", 2, Script::Watch, ("failed", "in_doubt_unresolved"), LOST),
    story("doubt-ask", 2, Script::Watch, DONE, LOST),
    story("doubt-wait", 1, Script::Watch, DONE, LOST),
    story("doubt-human", 2, Script::Resolve, DONE, LOST),
    story("refused", 1, Script::Watch, ("failed", "http_422"), REFUSED),
    story("deadline", 2, Script::Watch, ("failed", "deadline_exceeded"), DEADLINE),
    story("budget", 1, Script::Watch, ("failed", "budget_exceeded"), BUDGET),
    story("strict", 1, Script::Misfits, DONE, STRICT),
    story("family", 2, Script::Watch, DONE, FAMILY),
    story("questioned", 1, Script::Signal, DONE, QUESTIONED),
    story("planned", 2, Script::Watch, DONE, PLANNED),
    story("loop", 2, Script::Watch, DONE, LOOP),
    story("twins", 1, Script::Watch, DONE, TWINS),
    story("eight", 1, Script::Watch, DONE, EIGHT),
    story("cancel-eight", 1, Script::CancelRunning, ("cancelled", ""), CANCEL_EIGHT),
    story("mapped", 1, Script::Watch, DONE, MAPPED),
    story("refined", 1, Script::Watch, DONE, REFINED),
    story("orphan", 1, Script::CancelWaiting, ("cancelled", ""), ORPHAN),
    story("long", 1, Script::Watch, DONE, ""),
];

/// Steps of the long agent, two events each: wherever its run is cut, more than a unit of events follows the 512 that a
/// checkpoint comes after.
const LONG: u32 = 380;

impl Story {
    /// The agent's file.
    ///
    /// # Errors
    /// Never, for text.
    pub fn source(&self, witness: &str) -> Result<String> {
        let mut file = format!("agent: {}\n", self.agent);
        if self.agent == "long" {
            file.push_str("plan:\n  nodes:\n");
            for node in 0..LONG {
                writeln!(file, "    - {{ id: n{node}, kind: transform, output: {node} }}")?;
            }
            return Ok(file);
        }
        let doubt = match self.agent {
            // More than once: on a busy machine one question may come to no answer in its second.
            "doubt-ask" | "twins" => {
                ", on_in_doubt: [{ reconcile: look, settle: 300ms }, { wait: 1s }, { reconcile: look, settle: 300ms }, { reconcile: look, settle: 300ms }, fail]"
            }
            "doubt-wait" => {
                ", on_in_doubt: [{ wait: 200ms }, { reconcile: look, settle: 300ms }, { wait: 1s }, { reconcile: look, settle: 300ms }, fail]"
            }
            "doubt-human" => ", on_in_doubt: human",
            _ => ", on_in_doubt: fail",
        };
        if !self.file.contains("step_timeout") {
            file.push_str("step_timeout: 1s\n");
        }
        file.push_str(&self.file.replace("URL", witness).replace("DOUBT", doubt));
        Ok(file)
    }

    /// The answer that a completed job of it has.
    #[must_use]
    pub fn answer(&self) -> Value {
        match self.agent {
            "plain" => json!("n is 1"),
            "ledger" => json!(2),
            "signal" | "early" | "time" | "pause-waiting" | "strict" | "questioned" => json!(true),
            "pause-running" => json!(5),
            "retry" | "retry-held" => json!(7),
            "late" => json!(3),
            "family" => json!(5),
            "planned" => json!(4),
            "loop" | "mapped" => json!(6),
            "twins" => json!(3),
            "eight" => json!(9),
            "refined" => json!(1),
            "doubt-ask" | "doubt-wait" => json!({"done": "once", "input": {"n": 1}}),
            "doubt-human" => json!({"by": "operator"}),
            "long" => json!(LONG - 1),
            _ => Value::Null,
        }
    }

    /// What a signal for a job of it names.
    fn key(&self, job: JobId) -> String {
        if self.agent == "questioned" { format!("{job}/ask") } else { format!("ask-{job}") }
    }

    /// When its jobs are to begin.
    #[must_use]
    pub fn start(&self) -> Start {
        match self.agent {
            "plain" | "retry" => Start::Conversation,
            "time" => Start::Later,
            _ => Start::AtOnce,
        }
    }

    /// Sends one job of the story and drives it to its end.
    ///
    /// # Errors
    /// The end is another one.
    pub async fn play(&self, client: &Client, key: &str) -> Result<ClientHistory> {
        let mut history = ClientHistory::default();
        if self.script == Script::Misfits {
            client.refused(&format!("/api/agents/{}/message", self.agent), &json!({"message": {"n": -1}})).await?;
        }
        let submission = client.send(self.agent, key, self.start()).await?;
        let job = submission.job;
        history.submissions.push(submission);
        self.act(client, job, &mut history).await?;
        let end = client.until(job, is_terminal).await?;
        self.judge(job, &end)?;
        if self.script == Script::Signal {
            // The same again, after the end: it changes nothing, and is told that it was delivered.
            let again = client.signal(job, &self.key(job)).await?;
            ensure!(again.ack == SignalAck::Delivered, "{} {job}: the signal, sent again, was {again:?}", self.agent);
            history.signals.push(again);
        }
        Ok(history)
    }

    async fn act(&self, client: &Client, job: JobId, history: &mut ClientHistory) -> Result<()> {
        let waits = |seen: &Value| is_terminal(seen) || !seen["waiting"].is_null();
        match self.script {
            Script::Watch => {}
            Script::SignalEarly => history.signals.push(client.signal(job, &self.key(job)).await?),
            Script::Signal => {
                client.until(job, waits).await?;
                history.signals.push(client.signal(job, &self.key(job)).await?);
            }
            Script::CancelRunning => {
                client.until(job, |seen| seen["status"] == "running" || is_terminal(seen)).await?;
                // Long enough for heartbeats.
                tokio::time::sleep(Duration::from_millis(700)).await;
                client.cancel(job).await?;
                history.cancels.insert(job);
            }
            Script::Misfits => {
                client.until(job, waits).await?;
                let (key, path) = (self.key(job), format!("/api/jobs/{job}/signal"));
                client.refused(&path, &json!({"correlation_key": key, "payload": {"approved": "yes"}})).await?;
                history.signals.push(client.signal(job, &key).await?);
            }
            Script::PauseRunning => {
                client.until(job, |seen| seen["status"] == "running" || is_terminal(seen)).await?;
                tokio::time::sleep(Duration::from_millis(300)).await;
                client.pause_and_resume(job).await?;
            }
            Script::PauseWaiting => {
                client.until(job, waits).await?;
                client.pause_and_resume(job).await?;
                history.signals.push(client.signal(job, &self.key(job)).await?);
            }
            Script::CancelWaiting => {
                client.until(job, waits).await?;
                client.cancel(job).await?;
                history.cancels.insert(job);
            }
            Script::Resolve => {
                client.until(job, |seen| is_terminal(seen) || seen["waiting"]["doubt"] == true).await?;
                client.resolve(job).await?;
            }
        }
        Ok(())
    }

    fn judge(&self, job: JobId, end: &Value) -> Result<()> {
        let status = end["status"].as_str().unwrap_or_default();
        let code = end["error"]["code"].as_str().unwrap_or_default();
        ensure!(
            (status, code) == (self.status, self.code),
            "{} {job} ended {status} {code}, not {} {}: {}",
            self.agent,
            self.status,
            self.code,
            end["error"]
        );
        let answer = if status == "completed" { self.answer() } else { Value::Null };
        let found = end.get("result").cloned().unwrap_or_default();
        ensure!(found == answer, "{} {job} answered {found}, not {answer}", self.agent);
        let (labels, priority) = (&end["labels"], &end["priority"]);
        ensure!(
            *labels == asked_labels() && *priority == ASKED_PRIORITY,
            "{} {job} has the labels {labels} and the priority {priority}",
            self.agent
        );
        let session = (self.start() == Start::Conversation).then_some(self.agent);
        ensure!(end["session_id"].as_str() == session, "{} {job} is of the session {}", self.agent, end["session_id"]);
        Ok(())
    }
}

fn is_terminal(seen: &Value) -> bool {
    matches!(seen["status"].as_str(), Some("completed" | "failed" | "cancelled"))
}
