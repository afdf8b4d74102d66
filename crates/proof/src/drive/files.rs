//! The plans and tools of the stories' agents; `URL` stands for the witness.

/// A ledger tool whose doubts are settled by asking the witness.
pub(super) const LEDGER: &str = "\
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

pub(super) const PLAIN: &str = "\
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

pub(super) const WAIT: &str = "\
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: \"ask-{{ job.id }}\", park: true }
  answer: \"{{ nodes.ask.output.approved }}\"
";

/// Reads slowly before it waits, so that the signal is there first.
pub(super) const EARLY: &str = "\
tools:
  read: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=200\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: read, input: {} }
    - { id: ask, kind: wait, wait_type: human, correlation_key: \"ask-{{ job.id }}\", needs: [one] }
  answer: \"{{ nodes.ask.output.approved }}\"
";

pub(super) const TIME: &str = "\
plan:
  nodes:
    - { id: nap, kind: sleep, duration: 200ms }
    - { id: ask, kind: wait, wait_type: signal, correlation_key: k, deadline: 200ms,
        on_deadline: { continue_with: { late: true } }, needs: [nap] }
  answer: \"{{ nodes.ask.output.late }}\"
";

/// Two refusals, each followed by a back-off that gives the job back.
pub(super) const RETRY: &str = "\
retry: { max_attempts: 5, backoff: 600ms, factor: 1, jitter: none }
tools:
  flaky: { kind: http, effect: idempotent, method: POST, url: \"URL/flaky?fail=2\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: flaky, input: { n: 7 } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

/// Two refusals, each followed by a back-off for which the slot is held.
pub(super) const RETRY_HELD: &str = "\
retry: { max_attempts: 5, backoff: 250ms, factor: 1, jitter: none }
tools:
  flaky: { kind: http, effect: idempotent, method: POST, url: \"URL/flaky?fail=2\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: flaky, input: { n: 7 } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

pub(super) const SLOW: &str = "\
tools:
  slow: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=8000\" }
step_timeout: 20s
plan:
  nodes:
    - { id: one, kind: tool, tool: slow, input: {} }
";

/// Long enough for a pause to come in the middle of it.
pub(super) const LINGER: &str = "\
tools:
  linger: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=1500\" }
step_timeout: 5s
plan:
  nodes:
    - { id: one, kind: tool, tool: linger, input: { n: 5 } }
  answer: \"{{ nodes.one.output.input.n }}\"
";

pub(super) const LOST: &str = "\
tools:
  lost: { kind: http, effect: at_most_once, method: POST, url: \"URL/once?fail=9&status=500\"DOUBT }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: lost, input: { n: 1 } }
";

pub(super) const REFUSED: &str = "\
tools:
  refuse: { kind: http, effect: at_most_once, method: POST, url: URL/refuse,
            on_in_doubt: [{ reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: refuse, input: {} }
";

pub(super) const DEADLINE: &str = "\
deadline: 700ms
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: never }
";

/// Refused for as long as it may call, which is less often than it may try.
pub(super) const BUDGET: &str = "\
budget: { max_tool_calls: 2 }
retry: { max_attempts: 9, backoff: 100ms, factor: 1, jitter: none }
tools:
  flaky: { kind: http, effect: idempotent, method: POST, url: \"URL/flaky?fail=9\" }
plan:
  nodes:
    - { id: one, kind: tool, tool: flaky, input: { n: 7 } }
";

/// Says what its message and its payload must be.
pub(super) const STRICT: &str = "\
message_schema: { type: object, required: [n], properties: { n: { type: integer, minimum: 0 } } }
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: \"ask-{{ job.id }}\",
        schema: { type: object, required: [approved], properties: { approved: { type: boolean } } } }
  answer: \"{{ nodes.ask.output.approved }}\"
";

/// Its answer takes a while, in which a worker can lose its lease.
pub(super) const LATE: &str = "\
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
pub(super) const QUESTIONED: &str = "\
tools:
  person: { kind: human, question: \"Well?\", schema: { type: object, required: [approved] } }
plan:
  nodes:
    - { id: ask, kind: tool, tool: person }
  answer: \"{{ nodes.ask.output.approved }}\"
";

/// A model makes its plan, which calls what must not be called twice.
pub(super) const PLANNED: &str = "\
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
pub(super) const LOOP: &str = "\
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
pub(super) const TWINS: &str = "\
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
pub(super) const EIGHT: &str = "\
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
pub(super) const CANCEL_EIGHT: &str = "\
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
pub(super) const MAPPED: &str = "\
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
pub(super) const REFINED: &str = "\
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
pub(super) const FAMILY: &str = "\
max_parallel_steps: 2
plan:
  nodes:
    - { id: one, kind: job, agent: ledger }
    - { id: two, kind: job, agent: late }
  answer: \"{{ nodes.one.output + nodes.two.output }}\"
";

/// Its child has hours to go when it is cancelled.
pub(super) const ORPHAN: &str = "\
plan:
  nodes:
    - { id: one, kind: job, agent: cancel-waiting, message: {} }
";
