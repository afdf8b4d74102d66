//! The workload: jobs that together reach every write, each with the one end that it must have, crash or
//! no crash.

use std::fmt::Write as _;
use std::time::Duration;

use aetheris_check::{ClientHistory, SignalAck};
use aetheris_core::id::JobId;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::client::{ASKED_PRIORITY, Client, Start, asked_labels};

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

/// A ledger tool whose doubts are settled by asking the witness.
const LEDGER: &str = "\
tools:
  again: { kind: http, effect: idempotent, method: POST, url: URL/idempotent }
  once: { kind: http, effect: at_most_once, method: POST, url: URL/once,
          on_in_doubt: [{ reconcile: look, settle: 300ms }, { wait: 300ms }, { reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: again, input: { n: 1 } }
    - { id: two, kind: tool, tool: once, input: { n: 2 }, needs: [one] }
    - { id: three, kind: tool, tool: again, input: { n: \"{{ nodes.two.output.input.n }}\" }, needs: [two] }
  answer: \"{{ nodes.three.output.input.n }}\"
";

const PLAIN: &str = "\
tools:
  read: { kind: http, effect: pure, method: POST, url: URL/pure }
plan:
  nodes:
    - { id: one, kind: tool, tool: read, input: { n: 1 } }
    - { id: two, kind: transform, output: \"{{ nodes.one.output.input.n }}\", needs: [one] }
    - { id: say, kind: llm, model: scripted/echo, prompt: \"n is {{ nodes.two.output }}\", needs: [two] }
    - { id: over, kind: condition, needs: [say], when: \"nodes.two.output == 1\" }
  answer: \"{{ nodes.say.output }}\"
";

const WAIT: &str = "\
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: \"ask-{{ job.id }}\", park: true }
  answer: \"{{ nodes.ask.output.approved }}\"
";

/// Reads slowly before it waits, so that the signal is there first.
const EARLY: &str = "\
tools:
  read: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=200\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: read, input: {} }
    - { id: ask, kind: wait, wait_type: human, correlation_key: \"ask-{{ job.id }}\", needs: [one] }
  answer: \"{{ nodes.ask.output.approved }}\"
";

const TIME: &str = "\
plan:
  nodes:
    - { id: nap, kind: sleep, duration: 200ms }
    - { id: ask, kind: wait, wait_type: signal, correlation_key: k, deadline: 200ms,
        on_deadline: { continue_with: { late: true } }, needs: [nap] }
  answer: \"{{ nodes.ask.output.late }}\"
";

/// Two refusals, each followed by a back-off that gives the job back.
const RETRY: &str = "\
retry: { max_attempts: 5, backoff: 600ms, factor: 1, jitter: none }
tools:
  flaky: { kind: http, effect: idempotent, method: POST, url: \"URL/flaky?fail=2\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: flaky, input: { n: 7 } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

/// Two refusals, each followed by a back-off for which the slot is held.
const RETRY_HELD: &str = "\
retry: { max_attempts: 5, backoff: 250ms, factor: 1, jitter: none }
tools:
  flaky: { kind: http, effect: idempotent, method: POST, url: \"URL/flaky?fail=2\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: flaky, input: { n: 7 } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

const SLOW: &str = "\
tools:
  slow: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=8000\" }
step_timeout: 20s
plan:
  nodes:
    - { id: one, kind: tool, tool: slow, input: {} }
";

/// Long enough for a pause to come in the middle of it.
const LINGER: &str = "\
tools:
  linger: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=1500\" }
step_timeout: 5s
plan:
  nodes:
    - { id: one, kind: tool, tool: linger, input: { n: 5 } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

const LOST: &str = "\
tools:
  lost: { kind: http, effect: at_most_once, method: POST, url: \"URL/once?fail=9&status=500\"DOUBT }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: lost, input: { n: 1 } }
";

const REFUSED: &str = "\
tools:
  refuse: { kind: http, effect: at_most_once, method: POST, url: URL/refuse,
            on_in_doubt: [{ reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: refuse, input: {} }
";

const DEADLINE: &str = "\
deadline: 700ms
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: never }
";

/// Refused for as long as it may call, which is less often than it may try.
const BUDGET: &str = "\
budget: { max_tool_calls: 2 }
retry: { max_attempts: 9, backoff: 100ms, factor: 1, jitter: none }
tools:
  flaky: { kind: http, effect: idempotent, method: POST, url: \"URL/flaky?fail=9\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: flaky, input: { n: 7 } }
";

/// Says what its message and its payload must be.
const STRICT: &str = "\
message_schema: { type: object, required: [n], properties: { n: { type: integer, minimum: 0 } } }
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: \"ask-{{ job.id }}\",
        schema: { type: object, required: [approved], properties: { approved: { type: boolean } } } }
  answer: \"{{ nodes.ask.output.approved }}\"
";

/// Its answer takes a while, in which a worker can lose its lease.
const LATE: &str = "\
tools:
  late: { kind: http, effect: at_most_once, method: POST, url: \"URL/slow?ms=700\",
          on_in_doubt: [{ wait: 4s }, { reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
step_timeout: 5s
plan:
  nodes:
    - { id: one, kind: tool, tool: late, input: { n: 3 } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

/// A tool asks a person.
const QUESTIONED: &str = "\
tools:
  person: { kind: human, question: \"Well?\", schema: { type: object, required: [approved] } }
plan:
  nodes:
    - { id: ask, kind: tool, tool: person }
  answer: \"{{ nodes.ask.output.approved }}\"
";

/// A model makes its plan, which calls what must not be called twice.
const PLANNED: &str = "\
model: scripted/echo
planner: llm
planning:
  prompt: '{\"nodes\": [{\"id\": \"one\", \"kind\": \"tool\", \"tool\": \"once\", \"input\": {\"n\": 4}}], \"answer\": \"{% raw %}{{ nodes.one.output.input.n }}{% endraw %}\"}'
tools:
  once: { kind: http, effect: at_most_once, method: POST, url: URL/once,
          on_in_doubt: [{ reconcile: look, settle: 300ms }, { wait: 300ms }, { reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
";

/// A model calls tools by turns: one that may be called again, and one that must not be.
const LOOP: &str = "\
model: scripted/tools
tools:
  again: { kind: http, effect: idempotent, method: POST, url: URL/idempotent }
  once: { kind: http, effect: at_most_once, method: POST, url: URL/once,
          on_in_doubt: [{ reconcile: look, settle: 300ms }, { wait: 300ms }, { reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
plan:
  nodes:
    - { id: one, kind: agent, prompt: '{\"n\": 6}', tools: [again, once], schema: { type: object } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

/// Two calls at once whose answers get lost: two bodies of one job are in doubt.
const TWINS: &str = "\
max_parallel_steps: 2
tools:
  lost: { kind: http, effect: at_most_once, method: POST, url: \"URL/once?fail=9&status=500\"DOUBT }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: lost, input: { n: 1 } }
    - { id: two, kind: tool, tool: lost, input: { n: 2 } }
  answer: \"{{ nodes.one.output.input.n + nodes.two.output.input.n }}\"
";

/// Eight at once. Their answers take a while, in which a worker can lose its lease.
const EIGHT: &str = "\
max_parallel_steps: 8
tools:
  late: { kind: http, effect: at_most_once, method: POST, url: \"URL/slow?ms=400\",
          on_in_doubt: [{ wait: 4s }, { reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
step_timeout: 5s
plan:
  nodes:
    - { id: n1, kind: tool, tool: late, input: { n: 1 } }
    - { id: n2, kind: tool, tool: late, input: { n: 2 } }
    - { id: n3, kind: tool, tool: late, input: { n: 3 } }
    - { id: n4, kind: tool, tool: late, input: { n: 4 } }
    - { id: n5, kind: tool, tool: late, input: { n: 5 } }
    - { id: n6, kind: tool, tool: late, input: { n: 6 } }
    - { id: n7, kind: tool, tool: late, input: { n: 7 } }
    - { id: n8, kind: tool, tool: late, input: { n: 8 } }
  answer: \"{{ nodes.n1.output.input.n + nodes.n8.output.input.n }}\"
";

/// Eight at once when it is cancelled.
const CANCEL_EIGHT: &str = "\
max_parallel_steps: 8
tools:
  slow: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=8000\" }
step_timeout: 20s
plan:
  nodes:
    - { id: n1, kind: tool, tool: slow, input: {} }
    - { id: n2, kind: tool, tool: slow, input: {} }
    - { id: n3, kind: tool, tool: slow, input: {} }
    - { id: n4, kind: tool, tool: slow, input: {} }
    - { id: n5, kind: tool, tool: slow, input: {} }
    - { id: n6, kind: tool, tool: slow, input: {} }
    - { id: n7, kind: tool, tool: slow, input: {} }
    - { id: n8, kind: tool, tool: slow, input: {} }
";

/// The same for each item of a list, two at a time.
const MAPPED: &str = "\
tools:
  once: { kind: http, effect: at_most_once, method: POST, url: URL/once,
          on_in_doubt: [{ reconcile: look, settle: 300ms }, { wait: 300ms }, { reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
plan:
  nodes:
    - { id: all, kind: map, over: [1, 2, 3], concurrency: 2, do: { kind: tool, tool: once, input: { n: \"{{ item }}\" } } }
  answer: \"{{ nodes.all.output | map(attribute='input.n') | sum }}\"
";

/// Its first output does not fit: the call is made once more, for another round.
const REFINED: &str = "\
tools:
  again: { kind: http, effect: idempotent, method: POST, url: URL/idempotent }
plan:
  nodes:
    - id: one
      kind: tool
      tool: again
      input: { n: \"{{ round }}\" }
      validate: { type: object, properties: { input: { type: object, properties: { n: { minimum: 1 } } } } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

/// Two children beside each other that call what must not be called twice.
const FAMILY: &str = "\
max_parallel_steps: 2
plan:
  nodes:
    - { id: one, kind: job, agent: ledger }
    - { id: two, kind: job, agent: late }
  answer: \"{{ nodes.one.output + nodes.two.output }}\"
";

/// Its child has hours to go when it is cancelled.
const ORPHAN: &str = "\
plan:
  nodes:
    - { id: one, kind: job, agent: cancel-waiting, message: {} }
";

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
