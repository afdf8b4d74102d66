//! The agents of the experiments. `URL` stands for the tool service, `TIMEOUT` for the time that a held call
//! may take.

/// Asks the tool what became of a call.
const LOOK: &str =
    "  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }\n";

/// One call that acts, with the given effect class, query and keys of its own.
fn one_call(effect: &str, query: &str, keys: &str) -> String {
    format!(
        "tools:\n  act: {{ kind: http, effect: {effect}, method: POST, url: \"URL/act{query}\"{keys} }}\n{LOOK}\
         plan:\n  nodes:\n    - {{ id: one, kind: tool, tool: act, input: {{ n: 1 }} }}\n  \
         answer: \"{{{{ nodes.one.output.done }}}}\"\n"
    )
}

/// Whatever is not known of a call whose answer never came is asked for.
const ASK: &str = ", timeout: TIMEOUT, on_in_doubt: [{ reconcile: look, settle: 300ms }, human]";

const ASK_PERSON: &str = "\
plan:
  nodes:
    - { id: ask, kind: wait, wait_type: human, correlation_key: \"ask-{{ job.id }}\", park: true }
  answer: \"{{ nodes.ask.output.n }}\"
";

/// Reads before it waits: while the body is held, a signal is there first.
const EARLY: &str = "\
tools:
  read: { kind: http, effect: pure, method: POST, url: \"URL/read?hold=body\", timeout: TIMEOUT }
plan:
  nodes:
    - { id: one, kind: tool, tool: read, input: {} }
    - { id: ask, kind: wait, wait_type: signal, correlation_key: \"ask-{{ job.id }}\", needs: [one] }
  answer: \"{{ nodes.ask.output.n }}\"
";

/// A sleep, a body that shows when it was over, and a wait that only time ends.
const TIMES: &str = "\
tools:
  read: { kind: http, effect: pure, method: POST, url: \"URL/read\" }
plan:
  nodes:
    - { id: nap, kind: sleep, duration: 1500ms }
    - { id: see, kind: tool, tool: read, input: {}, needs: [nap] }
    - { id: ask, kind: wait, wait_type: signal, correlation_key: never, deadline: 1500ms,
        on_deadline: { continue_with: { n: late } }, needs: [see] }
  answer: \"{{ nodes.ask.output.n }}\"
";

/// Every class of tool, a sleep and a decision; what is unknown is asked for until it is known.
const CHAIN: &str = "\
tools:
  read: { kind: http, effect: pure, method: POST, url: \"URL/read?ms=10\" }
  again: { kind: http, effect: idempotent, method: POST, url: \"URL/act?ms=30\" }
  act: { kind: http, effect: at_most_once, method: POST, url: \"URL/act?ms=30\", timeout: 2s,
         on_in_doubt: [{ reconcile: look, settle: 300ms }, { wait: 1s }, { reconcile: look, settle: 300ms }, { wait: 3s }, { reconcile: look, settle: 300ms }, fail] }
  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }
retry: { max_attempts: 10 }
plan:
  nodes:
    - { id: first, kind: tool, tool: read, input: {} }
    - { id: second, kind: tool, tool: act, input: { n: 2 }, needs: [first] }
    - { id: third, kind: tool, tool: again, input: { n: 3 }, needs: [second] }
    - { id: nap, kind: sleep, duration: 200ms, needs: [third] }
    - { id: fourth, kind: tool, tool: act, input: { n: 4 }, needs: [nap] }
  answer: \"{{ nodes.second.output.input.n }}-{{ nodes.fourth.output.input.n }}\"
";

/// Where it says how often a step is tried.
const CHAIN_RETRY: &str = "retry: { max_attempts: 10 }";

const NAP: &str = "\
plan:
  nodes:
    - { id: nap, kind: sleep, duration: 1h }
";

/// Steps of a job that is long enough for a checkpoint.
const LONG_STEPS: usize = 300;

fn long() -> String {
    let step = |number| format!("    - {{ id: n{number}, kind: transform, output: {number} }}\n");
    format!("plan:\n  nodes:\n{}", (0..LONG_STEPS).map(step).collect::<String>())
}

/// An agent of the experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    /// An idempotent tool that answers badly twice.
    AgainFailing,
    /// An idempotent tool whose body can be held.
    AgainHeld,
    /// A question to a person.
    Ask,
    /// Every class of tool, and a sleep.
    Chain,
    /// The same with one try for each step.
    ChainOnce,
    /// An unknown outcome that is asked for.
    DoubtAsks,
    /// An unknown outcome that fails the job.
    DoubtFails,
    /// An unknown outcome that a person answers for.
    DoubtPerson,
    /// A call that did not arrive, and a tool that says so.
    DoubtProof,
    /// An unknown outcome that is waited for, then asked for.
    DoubtWaits,
    /// A wait that a signal can outrun.
    Early,
    /// An unknown outcome that is waited for, for long.
    Late,
    /// Enough steps for a checkpoint.
    Long,
    /// A long sleep.
    Nap,
    /// A never-retry call whose answer can be held.
    OnceAnswer,
    /// A never-retry call whose body can be held.
    OnceBody,
    /// A sleep, and a wait that only time ends.
    Times,
}

impl Agent {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AgainFailing => "again-failing",
            Self::AgainHeld => "again-held",
            Self::Ask => "ask",
            Self::Chain => "chain",
            Self::ChainOnce => "chain-once",
            Self::DoubtAsks => "doubt-asks",
            Self::DoubtFails => "doubt-fails",
            Self::DoubtPerson => "doubt-person",
            Self::DoubtProof => "doubt-proof",
            Self::DoubtWaits => "doubt-waits",
            Self::Early => "early",
            Self::Late => "late",
            Self::Long => "long",
            Self::Nap => "nap",
            Self::OnceAnswer => "once-answer",
            Self::OnceBody => "once-body",
            Self::Times => "times",
        }
    }

    /// Its file, for a tool service at `url` whose calls may be held for so many seconds.
    pub(super) fn file(self, url: &str, held_s: u64) -> String {
        let quick = "timeout: 1s, on_in_doubt";
        let body = match self {
            Self::AgainHeld => one_call("idempotent", "?hold=body", ", timeout: TIMEOUT"),
            Self::AgainFailing => {
                one_call("idempotent", "?fail=2", "") + "retry: { max_attempts: 5, backoff: 100ms, jitter: none }\n"
            }
            Self::Ask => ASK_PERSON.to_owned(),
            Self::Chain => CHAIN.to_owned(),
            Self::ChainOnce => CHAIN.replace(CHAIN_RETRY, "retry: { max_attempts: 1 }"),
            Self::DoubtAsks => {
                one_call("at_most_once", "?fail=1", &format!(", {quick}: [{{ reconcile: look, settle: 300ms }}, fail]"))
            }
            Self::DoubtFails => one_call("at_most_once", "?fail=1", &format!(", {quick}: fail")),
            Self::DoubtPerson => one_call("at_most_once", "?fail=1", &format!(", {quick}: human")),
            Self::DoubtProof => one_call(
                "at_most_once",
                "?early=1",
                &format!(", {quick}: [{{ reconcile: look, settle: 300ms }}, fail]"),
            ),
            Self::DoubtWaits => one_call(
                "at_most_once",
                "?fail=1",
                &format!(", {quick}: [{{ wait: 500ms }}, {{ reconcile: look, settle: 300ms }}, fail]"),
            ),
            Self::Early => EARLY.to_owned(),
            Self::Late => {
                one_call("at_most_once", "?hold=answer", ", timeout: TIMEOUT, on_in_doubt: [{ wait: 1h }, fail]")
            }
            Self::Long => long(),
            Self::Nap => NAP.to_owned(),
            Self::OnceAnswer => one_call("at_most_once", "?hold=answer", ASK),
            Self::OnceBody => one_call("at_most_once", "?hold=body", ASK),
            Self::Times => TIMES.to_owned(),
        };
        let text = format!("agent: {}\n{body}", self.name());
        text.replace("URL", url).replace("TIMEOUT", &format!("{held_s}s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_is_accepted() {
        let all = [
            Agent::AgainFailing,
            Agent::AgainHeld,
            Agent::Ask,
            Agent::Chain,
            Agent::ChainOnce,
            Agent::DoubtAsks,
            Agent::DoubtFails,
            Agent::DoubtPerson,
            Agent::DoubtProof,
            Agent::DoubtWaits,
            Agent::Early,
            Agent::Late,
            Agent::Long,
            Agent::Nap,
            Agent::OnceAnswer,
            Agent::OnceBody,
            Agent::Times,
        ];
        for agent in all {
            let text = agent.file("http://127.0.0.1:9000", 60);
            aetheris_agentfile::parse(&text).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
        }
        assert!(CHAIN.contains(CHAIN_RETRY));
    }
}
