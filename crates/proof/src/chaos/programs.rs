//! Programs that a seed draws: agents with steps of every kind, and what their jobs may come to.
//!
//! A job carries a number through its steps: each adds something, so that its answer shows that every step had
//! the output of the one before, and the expected answer is plain addition.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use aetheris_core::event::SUCCEEDED_BEFORE;

use super::dice::Dice;

/// When a client sends the signal of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTime {
    /// As soon as the job is accepted.
    Early,
    /// When the job waits.
    AtWait,
    /// Never: it is left for a human.
    Never,
}

/// A wait of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// What is added when it ends by time; none where only a signal ends it.
    pub late: Option<i64>,
    /// The node.
    pub node: String,
    /// Whether it says what its payload must be.
    pub strict: bool,
    /// When its signal is sent.
    pub time: SignalTime,
}

/// A ledger step of a program, whose bodies are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The node.
    pub node: String,
    /// Whether its condition keeps it from running.
    pub skipped: bool,
}

/// A program: an agent's file and what its jobs may come to.
#[derive(Debug, Clone)]
pub struct Program {
    /// The agent's name.
    pub agent: String,
    /// How many calls a job of it may make.
    pub budget: Option<u64>,
    /// How many tokens the models of a job of it may have used before another one is asked.
    pub tokens: Option<u64>,
    /// Its ledger steps.
    pub calls: Vec<Call>,
    /// Codes of errors that its jobs may fail with, in spite of retries.
    pub codes: BTreeSet<&'static str>,
    /// Whether its jobs may complete.
    pub completes: bool,
    /// How long its jobs may take, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// Time that its steps may spend in their tools, sleeping, waiting and asking again, in milliseconds.
    pub idle_ms: u64,
    /// What a job's number may have grown by, of the first version.
    pub adds: BTreeSet<i64>,
    /// Its steps whose tries are calls and nothing else.
    pub pure: BTreeSet<String>,
    /// Whether it says what its message must be.
    pub strict: bool,
    /// Its waits, in the order of its steps.
    pub waits: Vec<Wait>,
    body: String,
    tools: String,
    top: String,
}

/// What each version of a program adds beside the one before.
const VERSION_ADDS: i64 = 1_000_000;
/// A number that no job is sent with, and that no schema lets through.
pub const MISFIT: i64 = -1;
/// What signals add.
pub const SIGNAL_ADDS: i64 = 10_000;
/// How long one try may take, in the programs.
const STEP_MS: u64 = 1_500;
/// What a permit adds to it, and a doubt has to wait for.
const MARGIN_MS: u64 = 2_000;
/// The longest pause before a try, which a step has come to that failed for as long as its tool was away.
const BACKOFF_MAX_MS: u64 = 900;
/// Until a client has seen that a job waits, and answers.
const ANSWER_MS: u64 = 400;

/// What a job may fail with whose call is repeated: a success that is known only after the next permit was given ends the
/// calls of its key, and that permit's own call may have failed.
const LATE_SUCCESS: &str = SUCCEEDED_BEFORE;

/// Longer than a permit lives, and shorter than its program's `settle` allows for.
const QUEUE: &str = "?queue=4000";

/// What a payload must be; what a wait goes on with at its deadline fits as well.
const WAIT_SCHEMA: &str = ", schema: { type: object, required: [n], properties: { n: { type: integer } } }";

const LOOK: &str = "  look: { kind: http, effect: pure, method: GET, url: \"URL/lookup/{{ input.idempotency_key }}\" }\n  \
     settle: { kind: http, effect: pure, refuses: true, method: POST, url: URL/settle }\n";

/// A program while it is being drawn.
struct Draw<'d> {
    dice: &'d mut Dice,
    /// The number so far, as an expression.
    value: String,
    /// The node before.
    before: Option<String>,
    program: Program,
}

impl Program {
    /// Draws the program of a place in the list.
    #[must_use]
    pub fn draw(dice: &mut Dice, place: usize) -> Self {
        let program = Self::plain(&format!("chaos-{place}"));
        let mut draw = Draw { dice, value: "message.n".to_owned(), before: None, program };
        if place % 12 == 11 {
            draw.program.top.push_str("deadline: 4s\n");
            draw.program.deadline_ms = Some(4_000);
            draw.program.codes.insert("deadline_exceeded");
        }
        if place % 3 == 1 {
            let schema = "{ type: object, required: [n], properties: { n: { type: integer, minimum: 0 } } }";
            let _ = writeln!(draw.program.top, "message_schema: {schema}");
            draw.program.strict = true;
        }
        if place % 6 == 2 {
            let most = draw.dice.within(1..6);
            let _ = writeln!(draw.program.top, "budget: {{ max_tool_calls: {most} }}");
            draw.program.budget = Some(most);
            draw.program.codes.insert("budget_exceeded");
        }
        if place % 6 == 4 {
            // Each answer of the model takes eight.
            let most = *draw.dice.pick(&[1, 8, 9, 16, 17]);
            let _ = writeln!(draw.program.top, "budget: {{ max_tokens: {most} }}");
            draw.program.tokens = Some(most);
            draw.program.codes.insert("budget_exceeded");
            draw.model("first");
        }
        let steps = draw.dice.within(2..7);
        for step in 0..steps {
            draw.step(usize::try_from(step).unwrap_or(0), place);
        }
        if draw.program.tokens.is_some() {
            draw.model("last");
        }
        if place % 16 == 15 {
            draw.refused();
        }
        let answer = &draw.value;
        let answer = format!("  answer: \"{{{{ {answer} + VERSION }}}}\"\n");
        draw.program.body.push_str(&answer);
        draw.program
    }

    /// A program that is long enough for a checkpoint.
    #[must_use]
    pub fn long() -> Self {
        let mut program = Self::plain("chaos-long");
        program.body.push_str("    - { id: n0, kind: transform, output: \"{{ message.n }}\" }\n");
        for node in 1..340 {
            let before = node - 1;
            let text = format!("    - {{ id: n{node}, kind: transform, output: {node}, needs: [n{before}] }}\n");
            program.body.push_str(&text);
        }
        program.body.push_str("  answer: \"{{ nodes.n339.output + message.n + VERSION }}\"\n");
        program.adds = BTreeSet::from([339]);
        program
    }

    /// A program that keeps its slot for a while.
    #[must_use]
    pub fn slow() -> Self {
        let mut program = Self::plain("chaos-slow");
        program
            .tools
            .push_str("  wait: { kind: http, effect: idempotent, method: POST, url: \"URL/idempotent?ms=900\" }\n");
        let node = "    - { id: n0, kind: tool, tool: wait, input: { n: \"{{ message.n }}\" } }\n";
        program.body.push_str(node);
        program.body.push_str("  answer: \"{{ nodes.n0.output.input.n + VERSION }}\"\n");
        program.calls.push(Call { node: "n0".to_owned(), skipped: false });
        program.codes.insert(LATE_SUCCESS);
        program.idle_ms += tool_ms("?ms=900");
        program
    }

    fn plain(agent: &str) -> Self {
        Self {
            agent: agent.to_owned(),
            adds: BTreeSet::from([0]),
            body: String::new(),
            budget: None,
            tokens: None,
            calls: Vec::new(),
            codes: BTreeSet::new(),
            completes: true,
            deadline_ms: None,
            idle_ms: 0,
            pure: BTreeSet::new(),
            strict: false,
            tools: String::from(LOOK),
            top: String::new(),
            waits: Vec::new(),
        }
    }

    /// The agent's file of a version, with the tools at `url`.
    #[must_use]
    pub fn source(&self, url: &str, version: i64) -> String {
        let retry =
            format!("retry: {{ max_attempts: 100, backoff: 80ms, factor: 2, max_backoff: {BACKOFF_MAX_MS}ms }}\n");
        let (agent, top) = (&self.agent, &self.top);
        let head = format!("agent: {agent}\nversion: \"{version}\"\nstep_timeout: {STEP_MS}ms\n{retry}{top}");
        let tools = self.tools.replace("URL", url);
        let plan = self.body.replace("VERSION", &((version - 1) * VERSION_ADDS).to_string());
        format!("{head}tools:\n{tools}plan:\n  nodes:\n{plan}")
    }

    /// Whether a job of that version may answer so.
    #[must_use]
    pub fn may_answer(&self, n: i64, version: i64, answer: i64) -> bool {
        self.adds.contains(&(answer - n - (version - 1) * VERSION_ADDS))
    }

    /// Whether its jobs are left waiting for a human.
    #[must_use]
    pub fn waits_for_ever(&self) -> bool {
        self.waits.iter().any(|wait| wait.time == SignalTime::Never)
    }
}

impl Draw<'_> {
    fn adds(&mut self, all: &[i64]) {
        let adds = &self.program.adds;
        self.program.adds = adds.iter().flat_map(|one| all.iter().map(move |more| one + more)).collect();
    }

    fn node(&mut self, id: &str, text: &str) {
        let needs = self.before.as_ref().map_or_else(String::new, |before| format!(", needs: [{before}]"));
        // Writing to a text cannot fail.
        let _ = writeln!(self.program.body, "    - {{ id: {id}, {text}{needs} }}");
        self.before = Some(id.to_owned());
    }

    fn tool(&mut self, id: &str, text: &str) {
        let _ = writeln!(self.program.tools, "  {id}: {{ kind: http, method: POST, {text} }}");
    }

    fn call(&mut self, id: &str, tool: &str, when: &str) {
        let value = &self.value;
        let text = format!("kind: tool, tool: {tool}, input: {{ n: \"{{{{ {value} + 1 }}}}\" }}{when}");
        self.node(id, &text);
    }

    fn step(&mut self, step: usize, place: usize) {
        let id = format!("n{step}");
        // The first step of a program is of a kind that follows from its place: no kind is left out.
        let kind = if step == 0 { u64::try_from(place % 12).unwrap_or(0) } else { self.dice.within(0..12) };
        match kind {
            0 => self.pure(&id),
            1 | 2 => self.idempotent(&id),
            3..=5 => self.once(&id),
            6 => self.model(&id),
            7 | 8 => self.wait(&id, place),
            9 => self.sleep(&id),
            10 => self.skipped(&id),
            _ => self.transform(&id),
        }
    }

    fn pure(&mut self, id: &str) {
        let query =
            *self.dice.pick(&["", "?ms=120", "?fail=1&status=503", "?refuse=1&status=429", "?fail=1&how=crash"]);
        self.tool(&format!("t-{id}"), &format!("effect: pure, url: \"URL/pure{query}\""));
        self.call(id, &format!("t-{id}"), "");
        self.value = format!("nodes.{id}.output.input.n");
        self.program.pure.insert(id.to_owned());
        self.program.idle_ms += tool_ms(query);
        self.adds(&[1]);
    }

    fn idempotent(&mut self, id: &str) {
        let queries = [
            "",
            "?ms=60",
            "?ms=700",
            "?fail=1&status=500",
            "?fail=2&status=503",
            "?fail=1&how=crash",
            "?fail=1&how=early",
            "?fail=1&how=huge",
            "?refuse=2&status=429",
            "?bytes=120000",
        ];
        let query = *self.dice.pick(&queries);
        self.program.codes.insert(LATE_SUCCESS);
        self.tool(&format!("t-{id}"), &format!("effect: idempotent, url: \"URL/idempotent{query}\""));
        self.call(id, &format!("t-{id}"), "");
        self.value = format!("nodes.{id}.output.input.n");
        self.program.calls.push(Call { node: id.to_owned(), skipped: false });
        self.program.idle_ms += tool_ms(query);
        self.adds(&[1]);
    }

    fn once(&mut self, id: &str) {
        let queries = ["", "?ms=80", "?ms=900", "?fail=1&status=500", "?fail=1&how=crash", "?fail=1&how=early", QUEUE];
        let query = *self.dice.pick(&queries);
        // A tool that stands still and then goes on: who only looks has to be asked late enough, or refuse.
        let queued = [
            (", on_in_doubt: fail", true),
            (", on_in_doubt: [{ reconcile: look, settle: 5s }, fail]", true),
            (", on_in_doubt: [{ reconcile: settle }, fail]", true),
            (", on_in_doubt: human", false),
        ];
        let policies = [
            (", on_in_doubt: fail", true),
            (", on_in_doubt: [{ reconcile: look, settle: 300ms }, fail]", true),
            (", on_in_doubt: [{ reconcile: settle }, { wait: 500ms }, { reconcile: settle }, fail]", true),
            (
                ", on_in_doubt: [{ reconcile: look, settle: 300ms }, { wait: 500ms }, { reconcile: look, settle: 300ms }, fail]",
                true,
            ),
            (", on_in_doubt: [{ wait: 300ms }, { reconcile: look, settle: 300ms }, human]", false),
            (", on_in_doubt: human", false),
        ];
        let (policy, may_fail) = if query == QUEUE { *self.dice.pick(&queued) } else { *self.dice.pick(&policies) };
        // A proxy may hold a call for longer than `settle`: then it acts after it was said not to have happened. Nothing is
        // called again, and the job says so.
        self.program.codes.extend(["did_not_happen", LATE_SUCCESS]);
        if may_fail {
            self.program.codes.insert("in_doubt_unresolved");
        }
        self.tool(&format!("t-{id}"), &format!("effect: at_most_once, url: \"URL/once{query}\"{policy}"));
        self.call(id, &format!("t-{id}"), "");
        self.value = format!("nodes.{id}.output.input.n");
        self.program.calls.push(Call { node: id.to_owned(), skipped: false });
        self.program.idle_ms += tool_ms(query) + 2 * (STEP_MS + MARGIN_MS) + 800;
        self.adds(&[1]);
    }

    fn model(&mut self, id: &str) {
        let text = "kind: llm, model: fake/echo, prompt: hello";
        self.node(id, text);
        let value = &self.value;
        let sum = format!("kind: transform, output: \"{{{{ {value} + (nodes.{id}.output | length) }}}}\"");
        self.node(&format!("{id}v"), &sum);
        self.value = format!("nodes.{id}v.output");
        self.adds(&[i64::try_from("re: hello".len()).unwrap_or(0)]);
    }

    fn wait(&mut self, id: &str, place: usize) {
        let time = match self.dice.within(0..2) {
            _ if place % 20 == 7 => SignalTime::Never,
            0 => SignalTime::Early,
            _ => SignalTime::AtWait,
        };
        let late = (time == SignalTime::AtWait && self.dice.chance(30)).then_some(77);
        let park = if self.dice.chance(50) { ", park: true" } else { "" };
        let kind = *self.dice.pick(&["human", "signal", "webhook"]);
        let deadline = late.map_or_else(String::new, |late| {
            format!(", deadline: 900ms, on_deadline: {{ continue_with: {{ n: {late} }} }}")
        });
        let key = format!("correlation_key: \"{id}-{{{{ job.id }}}}\"");
        let strict = self.dice.chance(50);
        let schema = if strict { WAIT_SCHEMA } else { "" };
        self.node(id, &format!("kind: wait, wait_type: {kind}, {key}{park}{schema}{deadline}"));
        let value = &self.value;
        let sum = format!("kind: transform, output: \"{{{{ {value} + nodes.{id}.output.n }}}}\"");
        self.node(&format!("{id}v"), &sum);
        self.value = format!("nodes.{id}v.output");
        self.program.waits.push(Wait { late, node: id.to_owned(), strict, time });
        self.program.idle_ms += 900 + ANSWER_MS;
        let ends: Vec<i64> = [SIGNAL_ADDS].into_iter().chain(late).collect();
        self.adds(&ends);
    }

    fn sleep(&mut self, id: &str) {
        let millis = self.dice.within(50..1_200);
        if self.dice.chance(50) {
            self.node(id, &format!("kind: sleep, duration: {millis}ms"));
        } else {
            let end = "on_deadline: { continue_with: { n: 0 } }";
            self.node(id, &format!("kind: wait, wait_type: timer, deadline: {millis}ms, {end}"));
        }
        self.program.idle_ms += millis;
    }

    /// A call behind a condition that does not hold, and a step that goes on without it.
    fn skipped(&mut self, id: &str) {
        self.tool(&format!("t-{id}"), "effect: at_most_once, url: URL/once, on_in_doubt: human");
        self.call(id, &format!("t-{id}"), ", when: \"message.n < 0\"");
        self.program.calls.push(Call { node: id.to_owned(), skipped: true });
        let value = &self.value;
        let text = format!("kind: transform, output: \"{{{{ {value} }}}}\"");
        // Behind the step whose value it takes. Behind the skipped one it would be skipped with it.
        self.before = value.strip_prefix("nodes.").and_then(|rest| rest.split('.').next()).map(str::to_owned);
        self.node(&format!("{id}v"), &text);
        self.value = format!("nodes.{id}v.output");
    }

    fn transform(&mut self, id: &str) {
        let value = &self.value;
        let text = format!("kind: transform, output: \"{{{{ {value} + 3 }}}}\", when: \"message.n >= 0\"");
        self.node(id, &text);
        self.value = format!("nodes.{id}.output");
        self.adds(&[3]);
    }

    /// A last step that is always refused.
    fn refused(&mut self) {
        self.tool(
            "t-no",
            "effect: at_most_once, url: URL/refuse, on_in_doubt: [{ reconcile: look, settle: 300ms }, fail]",
        );
        self.call("no", "t-no", "");
        self.program.completes = false;
        self.program.codes.extend(["http_422", "in_doubt_unresolved"]);
        self.program.idle_ms += 2 * (STEP_MS + MARGIN_MS);
    }
}

/// How long a tool that is asked so may keep a step: in its bodies, and in the pauses after those that it spoils.
fn tool_ms(query: &str) -> u64 {
    let of = |name: &str| {
        let mut pairs = query.trim_start_matches('?').split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    };
    let settle = if of("queue") > 0 { 5_000 } else { 0 };
    of("ms") + of("queue") + settle + (of("fail") + of("refuse")) * (BACKOFF_MAX_MS + of("ms"))
}

/// The programs of a run by the names of their agents.
#[must_use]
pub fn draw_all(dice: &mut Dice, count: usize) -> BTreeMap<String, Program> {
    let programs = (0..count).map(|place| Program::draw(dice, place));
    programs.map(|program| (program.agent.clone(), program)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_file_is_a_right_one_and_every_kind_is_drawn() {
        let mut all = String::new();
        for seed in 0..20 {
            for program in draw_all(&mut Dice::new(seed, 1), 48).values() {
                let source = program.source("http://127.0.0.1:1", 2);
                let parsed = aetheris_agentfile::parse(&source);
                assert!(parsed.is_ok(), "{source}\n{:?}", parsed.err());
                all.push_str(&source);
            }
        }
        for word in [
            "at_most_once",
            "max_tool_calls:",
            "max_tokens:",
            "deadline:",
            "idempotent",
            "pure",
            "llm",
            "message_schema:",
            "sleep",
            "timer",
            "wait",
            "when",
            " schema:",
            "human",
            "reconcile",
        ] {
            assert!(all.contains(word), "{word}");
        }
    }

    #[test]
    fn every_program_whose_calls_are_repeated_may_learn_of_a_success_too_late() {
        let mut programs: Vec<Program> = draw_all(&mut Dice::new(1, 1), 48).into_values().collect();
        programs.extend([Program::long(), Program::slow()]);
        for program in programs {
            // A call that its condition always skips is never made.
            let repeated = program.calls.iter().any(|call| !call.skipped);
            assert_eq!(program.codes.contains(LATE_SUCCESS), repeated, "{}", program.source("http://127.0.0.1:1", 1));
        }
    }

    #[test]
    fn the_time_that_a_tool_takes_for_itself_is_no_fault_of_the_runtime() {
        assert_eq!([tool_ms(""), tool_ms("?ms=700"), tool_ms("?bytes=120000")], [0, 700, 0]);
        assert_eq!(tool_ms("?fail=2&status=503"), 2 * BACKOFF_MAX_MS);
        assert_eq!(tool_ms("?refuse=1&status=429"), BACKOFF_MAX_MS);
        assert_eq!(tool_ms("?ms=10&fail=1&how=crash"), 20 + BACKOFF_MAX_MS);
    }

    #[test]
    fn the_answer_of_a_version_is_its_additions_and_no_other() {
        let program = &draw_all(&mut Dice::new(3, 1), 12)["chaos-0"];
        let add = *program.adds.first().unwrap();
        assert!(program.may_answer(5, 1, 5 + add));
        assert!(program.may_answer(5, 3, 5 + add + 2 * VERSION_ADDS));
        assert!(!program.may_answer(5, 2, 5 + add));
    }
}
