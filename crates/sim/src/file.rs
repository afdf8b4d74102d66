//! The agent file of a program.

use std::fmt::Write as _;

use aetheris_core::plan::EffectClass;

use crate::children::OF_ITEM;
use crate::maps::Map;
use crate::people;
use crate::program::{Budget, Join, Kind, Policy, Program, Step, over_a_network};
use crate::rounds::{Judging, PATTERN};

impl Program {
    /// The agent file.
    #[must_use]
    pub fn file(&self) -> String {
        let mut file = format!(
            "agent: {}\nversion: \"{}\"\nmodel: sim/model\nplanner: {}\n",
            self.name,
            self.version,
            self.planner.name()
        );
        if self.parallel > 0 {
            let _ = writeln!(file, "max_parallel_steps: {}", self.parallel);
        }
        if let Some(deadline) = self.deadline {
            let _ = writeln!(file, "deadline: {deadline}ms");
        }
        if let Some(Budget { tokens, tool_calls }) = self.budget {
            let _ = writeln!(file, "budget: {{ max_tokens: {tokens}, max_tool_calls: {tool_calls} }}");
        }
        if self.strict {
            file.push_str("message_schema: { type: string, pattern: \"^m\" }\n");
        }
        let mut tools = String::new();
        for (place, step) in self.steps.iter().enumerate() {
            if let Kind::Tool { class, policies, timeout, .. } = &step.kind {
                let schema = if self.loops.contains_key(&place) { OF_LOOP } else { "" };
                match self.people.get(&place) {
                    Some(person) => tools.push_str(&people::tool(place, self.version, schema, *person)),
                    None => write_tool(&mut tools, (place, self.version, schema), *class, policies, *timeout),
                }
            }
        }
        if !tools.is_empty() {
            let _ = write!(file, "tools:\n{tools}");
        }
        file.push_str(&self.planner.write(self, &self.plan_text()));
        file
    }

    /// The plan, as it stands in an agent file.
    pub(crate) fn plan_text(&self) -> String {
        let mut file = String::from("nodes:\n");
        for (place, step) in self.steps.iter().enumerate() {
            self.write_step(&mut file, place, step);
        }
        if self.judged.values().any(|judging| judging.critic) {
            file.push_str("  - { id: judge, kind: critic, timeout: 2s, prompt: \"judge {{ output }}\" }\n");
        }
        let texts: Vec<usize> = (0..self.steps.len()).filter(|place| self.yields_text(*place)).collect();
        let mut answer = String::from("end");
        for place in texts {
            let _ = write!(answer, "+{}", self.names(place));
        }
        let _ = writeln!(file, "answer: \"{answer}\"");
        file
    }

    fn write_step(&self, file: &mut String, place: usize, step: &Step) {
        let _ = write!(file, "  - {{ id: n{place}");
        if !step.needs.is_empty() {
            let needs: Vec<String> = step.needs.iter().map(|need| format!("n{need}")).collect();
            let _ = write!(file, ", needs: [{}]", needs.join(", "));
        }
        match self.rule(place).join {
            Join::All => {}
            Join::Any => file.push_str(", join: any"),
            Join::Quorum(least) => {
                let _ = write!(file, ", join: {{ quorum: {least} }}");
            }
        }
        if self.rule(place).may_fail {
            file.push_str(", on_failure: fail_safe");
        }
        if step.skipped && step.kind != Kind::Condition {
            file.push_str(", when: \"message == 'nobody'\"");
        }
        let map = self.maps.get(&place);
        if let Some(map) = map {
            write_map(file, *map);
        }
        if let Some(judging) = self.judged.get(&place) {
            write_judging(file, *judging);
        }
        let asks_child = self.children.contains(&place);
        // A person is asked once.
        let asks_person = self.people.contains_key(&place) && !self.loops.contains_key(&place);
        if (step.tries > 1 || step.backoff > 0) && !asks_child && !asks_person {
            let (tries, backoff) = (step.tries, step.backoff);
            let _ = write!(file, ", retry: {{ max_attempts: {tries}, backoff: {backoff}ms, factor: 2 }}");
        }
        let template = self.template(place);
        match &step.kind {
            Kind::Tool { .. } if self.loops.contains_key(&place) => self.write_loop(file, place, &template),
            Kind::Tool { .. } => {
                let _ = write!(file, ", kind: tool, tool: t{place}, input: {{ v: \"{template}\" }}");
            }
            Kind::Model => {
                let _ = write!(file, ", kind: llm, timeout: 2s, prompt: \"{template}\"");
            }
            Kind::Wait { .. } => write_wait(file, place, &step.kind),
            Kind::Timer(ms) => {
                let _ = write!(file, ", kind: wait, wait_type: timer, deadline: {ms}ms");
            }
            Kind::Sleep(ms) => {
                let _ = write!(file, ", kind: sleep, duration: {ms}ms");
            }
            Kind::Transform if asks_child => {
                let _ = write!(file, ", kind: job, agent: child, message: \"{template}\"");
            }
            Kind::Transform => {
                let _ = write!(file, ", kind: transform, output: \"x{template}\"");
            }
            Kind::Condition if step.skipped => file.push_str(", kind: condition, when: \"message == 'nobody'\""),
            Kind::Condition => file.push_str(", kind: condition, when: \"message != 'nobody'\""),
        }
        file.push_str(if map.is_some() { " } }\n" } else { " }\n" });
    }

    fn write_loop(&self, file: &mut String, place: usize, prompt: &str) {
        let Some(of_loop) = self.loops.get(&place) else { return };
        let (parallel, turns) = (of_loop.parallel, of_loop.turns);
        let schema = if of_loop.schema { ", schema: { type: string }" } else { "" };
        let _ = write!(
            file,
            ", kind: agent, tools: [t{place}], parallel_tool_calls: {parallel}, max_turns: {turns}, on_limit: answer, timeout: \
             2s, prompt: \"{prompt}\"{schema}"
        );
    }

    /// The template that makes a node's input.
    fn template(&self, place: usize) -> String {
        let mut template = format!("{{{{ message }}}}.{place}");
        for source in self.sources(place) {
            let _ = write!(template, "-{}", self.names(source));
        }
        if self.maps.contains_key(&place) {
            if self.children.contains(&place) {
                template.push_str(OF_ITEM);
            }
            template.push_str("#{{ item }}");
        }
        if self.drawing.contains(&place) {
            template.push_str("~{{ uuid() }}~{{ now() }}");
        }
        if self.judged.contains_key(&place) {
            template.push_str("^{{ 't' if feedback else '' }}{{ round }}");
        }
        template
    }

    /// The template that names how a node has ended.
    fn names(&self, source: usize) -> String {
        let node = format!("nodes.n{source}");
        let output = match self.maps.get(&source) {
            None => format!("{{{{ {node}.output }}}}"),
            Some(map) if map.collect => format!(
                "{{% for o in {node}.output %}}/{{% if o.ok %}}{{{{ o.output }}}}{{% else %}}f{{{{ o.error.code }}}}{{% endif \
                 %}}{{% endfor %}}"
            ),
            Some(_) => format!("{{% for o in {node}.output %}}/{{{{ o }}}}{{% endfor %}}"),
        };
        if self.rules.is_empty() {
            return output;
        }
        format!(
            "{{% if {node}.open %}}o{{% elif {node}.failed %}}f{{{{ {node}.error.code }}}}{{% elif {node}.skipped %}}s{{% else \
             %}}{output}{{% endif %}}"
        )
    }
}

/// What is said of rounds.
fn write_judging(file: &mut String, judging: Judging) {
    let _ = write!(file, ", max_refines: {}, refine_repeats_effect: true", judging.most);
    if judging.schema {
        let _ = write!(file, ", validate: {{ type: string, pattern: \"{PATTERN}\" }}");
    }
    if judging.critic {
        file.push_str(", critic: judge");
    }
}

/// What a step waits for.
fn write_wait(file: &mut String, place: usize, kind: &Kind) {
    let Kind::Wait { deadline, go_on, park, human, keyed_by, strict } = kind else { return };
    let wait_type = if *human { "human" } else { "signal" };
    let named = keyed_by.map_or("message".to_owned(), |node| format!("nodes.n{node}.output"));
    let _ = write!(file, ", kind: wait, wait_type: {wait_type}, correlation_key: \"k{place}-{{{{ {named} }}}}\"");
    if *strict {
        file.push_str(", schema: { type: string, pattern: \"^(p|nobody)\" }");
    }
    if let Some(deadline) = deadline {
        let _ = write!(file, ", deadline: {deadline}ms");
    }
    if *go_on {
        file.push_str(", on_deadline: { continue_with: nobody }");
    }
    if *park {
        file.push_str(", park: true");
    }
}

/// What a tool says of its input that a model calls.
const OF_LOOP: &str = ", input_schema: { type: object, properties: { v: { type: string } } }";

/// A map up to the work for its items.
fn write_map(file: &mut String, map: Map) {
    let list: Vec<String> = (0..map.count).map(|item| item.to_string()).collect();
    let failures = if map.collect { "collect" } else { "stop" };
    let _ = write!(
        file,
        ", kind: map, over: [{}], concurrency: {}, on_item_failure: {failures}, do: {{ when: \"{}\"",
        list.join(", "),
        map.concurrency,
        map.skipped.map_or("true".to_owned(), |item| format!("item != {item}"))
    );
}

fn write_tool(
    tools: &mut String,
    (place, version, schema): (usize, u32, &str),
    class: EffectClass,
    policies: &[Policy],
    timeout: u64,
) {
    let effect = class.as_str();
    let kind = if over_a_network(place, class) {
        "kind: http, method: POST, url: \"http://sim.test/\""
    } else {
        "kind: function, function: sim"
    };
    let _ = write!(tools, "  t{place}: {{ {kind}, effect: {effect}, version: \"{version}\", timeout: {timeout}ms");
    if class == EffectClass::AtMostOnce {
        let end = policies.last().is_none_or(|last| *last != Policy::Human).then(|| "fail".to_owned());
        let texts: Vec<String> = policies
            .iter()
            .map(|policy| match policy {
                Policy::Wait(ms) => format!("{{ wait: {ms}ms }}"),
                Policy::Reconcile(settle) => format!("{{ reconcile: look{place}, settle: {settle}ms }}"),
                Policy::Refuse => format!("{{ reconcile: refuse{place} }}"),
                Policy::Human => "human".to_owned(),
            })
            .chain(end)
            .collect();
        let _ = write!(tools, ", on_in_doubt: [{}]", texts.join(", "));
    }
    tools.push_str(schema);
    tools.push_str(" }\n");
    if policies.contains(&Policy::Refuse) {
        let _ = writeln!(
            tools,
            "  refuse{place}: {{ kind: function, function: sim, effect: pure, refuses: true, version: \"{version}\", timeout: 1s }}"
        );
    }
    if policies.iter().any(|policy| matches!(policy, Policy::Reconcile(_))) {
        let _ = writeln!(
            tools,
            "  look{place}: {{ kind: function, function: sim, effect: pure, version: \"{version}\", timeout: 1s }}"
        );
    }
}
