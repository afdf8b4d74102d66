//! Programs: agents drawn from a seed, of everything that the kernel runs, with what each of their nodes
//! must yield.
//!
//! Every output is a text that depends on the outputs before it, so that one wrong value anywhere changes
//! the answer. What a tool does at each of its calls is part of the program ([`Act`]); what the network
//! does to them is not.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::hash::Hash;
use aetheris_core::plan::EffectClass;
use aetheris_testing::random::Random;

use crate::children::children;
use crate::draw::{beside_each_other, draw_step, drawing, rules};
use crate::joins::{Course, Stand};
use crate::loops::{Loop, loops};
use crate::maps::{Map, maps};
use crate::people::{ANSWER_MAX, Person, people};
use crate::planners::{Planner, planner};
use crate::rounds::{Judging, judged};

/// What a tool does when a call reaches it, apart from answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Acts and answers.
    Good,
    /// Refuses so many calls before it acts.
    RefuseFirst(u32),
    /// Refuses for good.
    Refuse,
    /// Acts, and so many of its answers are lost.
    LoseFirst(u32),
    /// Acts and takes longer than its timeout, so often.
    SlowFirst(u32),
}

/// A policy for an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Wait so many milliseconds for a late answer.
    Wait(u64),
    /// Ask the tool's own lookup, which only looks; what settles after the deadline, in milliseconds.
    Reconcile(u64),
    /// Ask the tool's own lookup, which refuses the permit from then on.
    Refuse,
    /// Ask a person.
    Human,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Calls a tool of its own.
    Tool {
        /// What it does.
        act: Act,
        /// Its class.
        class: EffectClass,
        /// What follows an unknown outcome; empty for `fail`.
        policies: Vec<Policy>,
        /// Its timeout in milliseconds.
        timeout: u64,
    },
    /// Asks a model.
    Model,
    /// Waits for a signal.
    Wait {
        /// Ends it, in milliseconds.
        deadline: Option<u64>,
        /// What the job goes on with at the deadline; it fails without.
        go_on: bool,
        /// A long wait.
        park: bool,
        /// Whether it is a person's.
        human: bool,
        /// The node from whose output its key is made, which nobody can compute before; from the message without.
        keyed_by: Option<usize>,
        /// Whether it says what its payload must be.
        strict: bool,
    },
    /// Waits for a moment, in milliseconds.
    Timer(u64),
    /// Sleeps, in milliseconds.
    Sleep(u64),
    /// Makes a text.
    Transform,
    /// A gate that lets through.
    Condition,
}

/// How many of its needs a node waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Join {
    /// All have ended.
    #[default]
    All,
    /// One has completed.
    Any,
    /// So many have completed.
    Quorum(usize),
}

/// What is said of a node beside what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rule {
    /// What it waits for.
    pub join: Join,
    /// Its failure is seen by those behind it, and the job goes on.
    pub may_fail: bool,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Back-off in milliseconds.
    pub backoff: u64,
    /// What it does.
    pub kind: Kind,
    /// Earlier nodes that it needs.
    pub needs: Vec<usize>,
    /// Tries in all.
    pub tries: u32,
    /// A condition that does not hold: it is skipped.
    pub skipped: bool,
}

/// What a job may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Tokens.
    pub tokens: u64,
    /// Tool calls.
    pub tool_calls: u32,
}

/// An agent of the simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What a job of it may use up.
    pub budget: Option<Budget>,
    /// Those of its nodes that ask a child for what they would make.
    pub children: BTreeSet<usize>,
    /// The whole job's deadline in milliseconds.
    pub deadline: Option<u64>,
    /// Those of its nodes that have a model call their tool.
    pub loops: BTreeMap<usize, Loop>,
    /// Those of its nodes that do what they do for each item of a list.
    pub maps: BTreeMap<usize, Map>,
    /// Its nodes whose input has a value that nobody can compute again.
    pub drawing: BTreeSet<usize>,
    /// Those of its nodes whose outputs are judged.
    pub judged: BTreeMap<usize, Judging>,
    /// Its name.
    pub name: String,
    /// How many of its steps may run at once; one at a time where it is 0.
    pub parallel: u64,
    /// Those of its nodes whose tool asks a person.
    pub people: BTreeMap<usize, Person>,
    /// Who makes its plan.
    pub planner: Planner,
    /// What is said of each node beside what it does; nothing where all say nothing.
    pub rules: Vec<Rule>,
    /// Its nodes.
    pub steps: Vec<Step>,
    /// Whether it says what its message must be.
    pub strict: bool,
    /// Its version.
    pub version: u32,
}

/// What a name and a text make: every output of a program.
#[must_use]
pub fn output_of(name: &str, input: &str) -> String {
    let hash = Hash::of(format!("{name}|{input}").as_bytes());
    hash.to_string().chars().rev().take(10).collect()
}

impl Program {
    /// Draws a program.
    #[must_use]
    pub fn draw(random: &mut Random, name: &str, version: u32) -> Self {
        let count = match random.below(10) {
            0 => random.between(8, 14),
            1..=3 => 1,
            _ => random.between(2, 6),
        };
        let mut steps: Vec<Step> = Vec::new();
        for place in 0..usize::try_from(count).unwrap_or(1) {
            let step = draw_step(random, place, &steps);
            steps.push(step);
        }
        let deadline = random.chance(80).then(|| random.between(2_000, 90_000));
        let children = children(&mut steps);
        let parallel = beside_each_other(&mut steps);
        let (rules, maps, drawing) = (rules(&steps), maps(&steps, &children), drawing(&steps));
        let (judged, loops, people) = (judged(&steps, &maps), loops(&steps), people(&steps));
        Self {
            budget: None,
            children,
            deadline,
            drawing,
            judged,
            loops,
            maps,
            name: name.to_owned(),
            parallel,
            people,
            planner: planner(&steps),
            rules,
            steps,
            strict: false,
            version,
        }
    }

    /// Draws what is said beside the plan: budgets, schemas, and keys that are known late. `strict` is the same for all
    /// versions of an agent, so that a customer knows what is refused.
    pub fn bound(&mut self, random: &mut Random, strict: bool) {
        self.strict = strict;
        let calls = u32::try_from(random.between(1, 2 * u64::try_from(self.steps.len()).unwrap_or(1))).unwrap_or(1);
        self.budget = random.chance(150).then(|| Budget { tokens: random.between(10, 60), tool_calls: calls });
        for place in 0..self.steps.len() {
            let named = self.sources(place).find(|source| self.is_certain(*source));
            if let Some(Kind::Wait { keyed_by, strict, .. }) = self.steps.get_mut(place).map(|step| &mut step.kind) {
                *strict = random.chance(300);
                *keyed_by = named.filter(|_| random.chance(400));
            }
        }
    }

    /// Whether what a node does names its sources.
    pub(crate) fn names_sources(&self, place: usize) -> bool {
        self.steps.get(place).is_some_and(|step| match step.kind {
            Kind::Tool { .. } | Kind::Model | Kind::Transform => true,
            Kind::Wait { .. } | Kind::Timer(_) | Kind::Sleep(_) | Kind::Condition => false,
        })
    }

    /// What is said of a node beside what it does.
    pub(crate) fn rule(&self, place: usize) -> Rule {
        self.rules.get(place).copied().unwrap_or_default()
    }

    /// Whether a node may start before all behind it has ended: it, or one that it needs, waits for some of its needs only.
    pub(crate) fn is_eager(&self, place: usize) -> bool {
        let needs = self.steps.get(place).map_or(&[][..], |step| &step.needs);
        self.rule(place).join != Join::All || needs.iter().any(|need| self.is_eager(*need))
    }

    /// Whether a node's output follows from the message alone.
    fn is_certain(&self, place: usize) -> bool {
        let beside = !self.maps.is_empty() || !self.drawing.is_empty() || !self.judged.is_empty();
        if !self.rules.is_empty() || !self.loops.is_empty() || !self.people.is_empty() || beside {
            return false;
        }
        let waits = self.steps.get(place).is_none_or(|step| matches!(step.kind, Kind::Wait { .. }));
        !waits && self.sources(place).all(|source| self.is_certain(source))
    }

    /// The key of a node that waits.
    #[must_use]
    pub fn key(&self, place: usize, message: &str) -> String {
        let named = match self.steps.get(place).map(|step| &step.kind) {
            Some(Kind::Wait { keyed_by: Some(node), .. }) => {
                self.outputs(message, &Course::default(), |_| None).into_iter().nth(*node)
            }
            _ => None,
        };
        format!("k{place}-{}", named.flatten().as_deref().unwrap_or(message))
    }

    /// The nodes that have ended before one begins: those that it needs or, where steps run beside each other, all of the sets
    /// before its own.
    #[must_use]
    pub fn behind(&self, place: usize) -> Vec<usize> {
        let own = self.depth(place);
        let needs = || self.steps.get(place).map_or_else(Vec::new, |step| step.needs.clone());
        match self.parallel {
            // One at a time is the plan's own order.
            0 => needs(),
            _ if self.rule(place).join != Join::All => Vec::new(),
            _ if self.is_eager(place) => needs(),
            _ => (0..self.steps.len()).filter(|other| self.depth(*other) < own && !self.is_eager(*other)).collect(),
        }
    }

    /// In which set a node is.
    fn depth(&self, place: usize) -> usize {
        let needs = self.steps.get(place).map_or(&[][..], |step| &step.needs);
        needs.iter().map(|need| self.depth(*need) + 1).max().unwrap_or(0)
    }

    /// Whether a node is skipped: its condition does not hold, or all of its needs were skipped.
    #[must_use]
    pub fn is_skipped(&self, place: usize) -> bool {
        let Some(step) = self.steps.get(place) else { return false };
        step.skipped || (!step.needs.is_empty() && step.needs.iter().all(|need| self.is_skipped(*need)))
    }

    /// The nodes whose outputs a node's input names: those that it needs and that yield a text.
    pub(crate) fn sources(&self, place: usize) -> impl Iterator<Item = usize> {
        let needs = |place: usize| self.steps.get(place).map_or(&[][..], |step| &step.needs[..]);
        // Where nodes may be open, one that is further up is named as well.
        let further = needs(place).iter().filter(|_| !self.rules.is_empty()).flat_map(move |need| needs(*need));
        let further = further.filter(move |further| !needs(place).contains(further)).min();
        needs(place).iter().chain(further).copied().filter(|need| self.yields_text(*need))
    }

    pub(crate) fn yields_text(&self, place: usize) -> bool {
        let text = self.steps.get(place).is_some_and(|step| match step.kind {
            Kind::Tool { .. } | Kind::Model | Kind::Wait { .. } | Kind::Transform => true,
            Kind::Timer(_) | Kind::Sleep(_) | Kind::Condition => false,
        });
        text && !self.is_skipped(place)
    }

    /// What every node yields that yields a text, given what each wait ended with.
    pub(crate) fn outputs(
        &self,
        message: &str,
        course: &Course,
        wait: impl Fn(usize) -> Option<String>,
    ) -> Vec<Option<String>> {
        let mut outputs: Vec<Option<String>> = Vec::new();
        for (place, step) in self.steps.iter().enumerate() {
            let input = self.input(place, message, &outputs, course);
            let yields = || match self.maps.get(&place) {
                Some(map) => self.list(place, *map, &input, course),
                None => self.given(place, None, &input, course),
            };
            let output = match &step.kind {
                _ if self.is_skipped(place) => None,
                Kind::Tool { .. } | Kind::Model | Kind::Transform => Some(yields()),
                Kind::Wait { .. } => wait(place),
                Kind::Timer(_) | Kind::Sleep(_) | Kind::Condition => None,
            };
            outputs.push(output);
        }
        outputs
    }

    /// What a step yields that is given this input.
    pub(crate) fn yields(&self, place: usize, input: &str) -> String {
        match self.steps.get(place).map(|step| &step.kind) {
            Some(Kind::Tool { .. }) => output_of(&format!("t{place}"), input),
            Some(Kind::Model) => output_of("model", input),
            Some(Kind::Transform | Kind::Wait { .. } | Kind::Timer(_) | Kind::Sleep(_) | Kind::Condition) | None => {
                format!("x{input}")
            }
        }
    }

    /// What a node or an item gives in the end, of the rounds that it may have.
    pub(crate) fn given(&self, place: usize, item: Option<u32>, input: &str, course: &Course) -> String {
        let of_round = |round| {
            let drawn = course.drawn(place, item, round);
            self.makes(place, (item, round), &format!("{input}{drawn}{}", self.of_round(place, round)), course)
        };
        self.tried(place, of_round).0.pop().unwrap_or_default()
    }

    /// What a node is asked with, given the outputs before it.
    #[must_use]
    pub(crate) fn input(&self, place: usize, message: &str, outputs: &[Option<String>], course: &Course) -> String {
        let mut input = format!("{message}.{place}");
        for source in self.sources(place) {
            let seen = if self.rules.is_empty() { Stand::Completed } else { course.seen(place, source) };
            if let Some(named) = named(&seen, outputs.get(source)) {
                input.push('-');
                input.push_str(&named);
            }
        }
        input
    }

    /// The answer, given the outputs.
    #[must_use]
    pub(crate) fn answer(&self, outputs: &[Option<String>], course: &Course) -> String {
        let texts = (0..self.steps.len()).filter(|place| self.yields_text(*place));
        let mut answer = String::from("end");
        for place in texts {
            let ended = course.ends.get(&place).filter(|_| !self.rules.is_empty());
            if let Some(named) = named(ended.unwrap_or(&Stand::Completed), outputs.get(place)) {
                answer.push('+');
                answer.push_str(&named);
            }
        }
        answer
    }

    /// How long a job of it may take where nothing fails, in milliseconds: a bound, not an estimate.
    #[must_use]
    pub fn longest(&self) -> u64 {
        let per_step = |step: &Step| {
            let body = match &step.kind {
                Kind::Tool { timeout, policies, .. } => {
                    let waits = policies.iter().map(|policy| match policy {
                        Policy::Wait(ms) => *ms,
                        Policy::Reconcile(settle) => timeout + 4_000 + settle,
                        Policy::Refuse | Policy::Human => timeout + 4_000,
                    });
                    (timeout + 3_000) * u64::from(step.tries) + waits.sum::<u64>()
                }
                Kind::Model => 5_000 * u64::from(step.tries),
                Kind::Wait { deadline, .. } => deadline.unwrap_or(0),
                Kind::Timer(ms) | Kind::Sleep(ms) => *ms,
                Kind::Transform | Kind::Condition => 0,
            };
            body + step.backoff * 8 * u64::from(step.tries)
        };
        let items = |place: usize| self.maps.get(&place).map_or(1, |map| u64::from(map.count.max(1)));
        let rounds = |place: usize| u64::from(*self.rounds(place).end()) + 1;
        // A critic has the tries and delays of a policy that says nothing.
        let critic = |place: usize| self.judged.get(&place).map_or(0, |judging| u64::from(judging.critic) * 60_000);
        let asks =
            |place: usize, step: &Step| u64::from(self.loops.contains_key(&place)) * 30_000 * u64::from(step.tries);
        let answer = |place: usize| u64::from(self.people.contains_key(&place)) * ANSWER_MAX;
        let once =
            |place: usize, step: &Step| (per_step(step) + answer(place)) * self.calls_in_all(place) + asks(place, step);
        let of_node = |place: usize, step: &Step| items(place) * rounds(place) * (once(place, step) + critic(place));
        self.steps.iter().enumerate().map(|(place, step)| of_node(place, step)).sum::<u64>()
            + self.deadline.unwrap_or(0)
            + self.planner.longest()
    }
}

/// What a node's end is called in an input.
fn named(stand: &Stand, output: Option<&Option<String>>) -> Option<String> {
    match stand {
        Stand::Completed => output.cloned().flatten(),
        Stand::Failed(code) => Some(format!("f{code}")),
        Stand::Open => Some("o".to_owned()),
        Stand::Skipped => Some("s".to_owned()),
    }
}

impl Step {
    /// Whether what it does at that place can be noticed outside its process.
    #[must_use]
    pub fn leaves(&self, place: usize) -> bool {
        match self.kind {
            Kind::Tool { class, .. } => class != EffectClass::Pure || over_a_network(place, class),
            Kind::Model => true,
            Kind::Wait { .. } | Kind::Timer(_) | Kind::Sleep(_) | Kind::Transform | Kind::Condition => false,
        }
    }
}

/// Some of the pure tools are reached over a network: what came before them is durable when they are asked.
pub(crate) fn over_a_network(place: usize, class: EffectClass) -> bool {
    class == EffectClass::Pure && place % 4 == 1
}
