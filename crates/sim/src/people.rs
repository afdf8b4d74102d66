//! Tools of programs that ask a person: which they are, and who answers them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use aetheris_core::event::{Event, Recorded, WaitEnd};
use aetheris_core::json::Json;
use aetheris_core::plan::EffectClass;
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ops::{Signal, SignalAnswer};
use aetheris_store::Scope;
use aetheris_testing::random::Random;
use aetheris_testing::world::acked;
use serde_json::json;

use crate::clients::{Clients, Order};
use crate::draw::drawn;
use crate::program::{Kind, Program, Step, output_of};
use crate::tally::Tally;
use crate::tell;

/// That the tool of a node asks a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Person {
    /// How long it waits for an answer, in milliseconds.
    pub deadline: Option<u64>,
}

/// In some programs pure tools ask a person, who answers what the tool would. What is drawn of the others is not touched by it.
pub(crate) fn people(steps: &[Step]) -> BTreeMap<usize, Person> {
    let mut random = Random::new(drawn(steps).rotate_left(29));
    let mut people = BTreeMap::new();
    if !random.chance(300) {
        return people;
    }
    for (place, step) in steps.iter().enumerate() {
        if matches!(step.kind, Kind::Tool { class: EffectClass::Pure, .. }) && random.chance(700) {
            let deadline = random.chance(400).then(|| random.between(500, 30_000));
            people.insert(place, Person { deadline });
        }
    }
    people
}

/// What somebody does, as long as it takes.
pub(crate) type Errand = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long a person takes at most who is asked, in milliseconds: far longer than it is likely to.
pub(crate) const ANSWER_MAX: u64 = 90_000;

/// The tool of a node that asks.
pub(crate) fn tool(place: usize, version: u32, of_loop: &str, person: Person) -> String {
    let deadline = person.deadline.map(|ms| format!(", deadline: {ms}ms")).unwrap_or_default();
    format!(
        "  t{place}: {{ kind: human, version: \"{version}\", question: \"{{{{ input.v }}}}\", schema: {{ type: string }}{deadline}{of_loop} \
         }}\n"
    )
}

/// Which node a step is, or is a part of.
fn place_of(node: &str) -> Option<usize> {
    node.strip_prefix('n')?.parse().ok()
}

impl Clients {
    /// Answers the questions of tools. Whoever does so reads the question alone.
    pub async fn answer_questions(self, mut random: Random) {
        loop {
            tokio::time::sleep(Duration::from_millis(random.between(300, 4_000))).await;
            for order in self.orders().into_iter().filter(|order| order.program.asks_people()) {
                if !random.chance(300) {
                    self.answer(&order, &mut random).await;
                }
            }
        }
    }

    async fn answer(&self, order: &Order, random: &mut Random) {
        let Ok(loaded) = Loaded::read(self.stage.store.as_ref(), &Scope::System, order.job).await else { return };
        let own = self.on_behalf_of(loaded.state.tenant.clone());
        let plans = loaded.state.blocks.by_age().into_iter().filter(|blocked| blocked.node.is_planning());
        let plans: Vec<String> = plans.filter_map(|blocked| blocked.correlation_key.clone()).collect();
        for key in plans {
            let payload = match random.below(4) {
                0 => json!({ "approved": false, "note": "once more" }),
                _ => json!({ "approved": true }),
            };
            own.say(order, &key, Json::new(payload), random).await;
        }
        let prefix = format!("{}/", order.job);
        let asked = loaded.state.blocks.by_age().into_iter().filter_map(|blocked| {
            let key = blocked.correlation_key.clone().filter(|key| key.starts_with(&prefix))?;
            Some((place_of(blocked.node.node().as_str())?, key, blocked.reason.clone().unwrap_or_default()))
        });
        for (place, key, question) in asked.collect::<Vec<_>>() {
            if random.chance(200) {
                continue;
            }
            let payload = Json::new(output_of(&format!("t{place}"), &question).into());
            own.say(order, &key, payload, random).await;
        }
    }

    /// Those who answer what nobody has asked them, or something else. Of their own stream: what is drawn of programs that ask
    /// nobody is drawn as it was.
    pub(crate) fn meddlers(&self, order: &Order) -> Vec<Errand> {
        let seed = order.job.to_string().bytes().fold(0_u64, |seed, byte| seed.rotate_left(5) ^ u64::from(byte));
        let mut random = Random::new(seed);
        let mut errands: Vec<Errand> = Vec::new();
        for path in order.program.questions() {
            if random.chance(300) {
                errands.push(Box::pin(self.clone().answer_nonsense(order.clone(), path, random.fork())));
            }
        }
        if order.program.planner.is_model() && random.chance(400) {
            errands.push(Box::pin(self.clone().approve_early(order.clone(), random.fork())));
        }
        errands
    }

    /// Somebody approves of a plan, whether there is one or not: it counts only while it is asked about.
    pub(crate) async fn approve_early(self, order: Order, mut random: Random) {
        tokio::time::sleep(Duration::from_millis(random.between(0, 20_000))).await;
        let key = format!("plan-{}-{}", order.job, random.between(1, 3));
        let payload = Json::new(json!({ "approved": true }));
        let answer = self.say(&order, &key, payload, &mut random).await;
        let kept = matches!(answer, Some(SignalAnswer::Kept { .. }));
        self.case("P1", !kept, || format!("{}: an approval of a plan that is not there is kept", order.job));
    }

    /// A signal for a question that does not fit it: it is refused, or is in nobody's way.
    pub(crate) async fn answer_nonsense(self, order: Order, path: String, mut random: Random) {
        tokio::time::sleep(Duration::from_millis(random.between(0, 25_000))).await;
        let key = format!("{}/{path}", order.job);
        let answer = self.say(&order, &key, Json::new(7.into()), &mut random).await;
        let counts = matches!(answer, Some(SignalAnswer::Delivered));
        self.case("T7", !counts, || format!("{}: 7 was taken for an answer to `{key}`", order.job));
    }

    async fn say(&self, order: &Order, key: &str, payload: Json, random: &mut Random) -> Option<SignalAnswer> {
        let signal = Signal { correlation_key: key.to_owned(), payload: payload.clone(), wait_type: None };
        let answer = self
            .ask(random, "answer", |rt| {
                let signal = signal.clone();
                async move { rt.signal(order.job, signal).await }
            })
            .await;
        tell!(self.stage.trace, "person", "{} answers {key}: {answer:?}", self.stage.trace.name(order.job));
        let answer = answer.ok()?;
        self.told().signals.push(acked(order.job, key, &payload, answer));
        Some(answer)
    }
}

impl Program {
    /// Whether a person is asked by a tool, or about its plan.
    pub(crate) fn asks_people(&self) -> bool {
        !self.people.is_empty() || self.planner.is_model()
    }

    /// The steps of nodes and first calls of loops that may ask a person.
    pub(crate) fn questions(&self) -> Vec<String> {
        let path = |place: &usize| match (self.maps.contains_key(place), self.loops.contains_key(place)) {
            (false, false) => format!("n{place}"),
            (false, true) => format!("n{place}/0.0"),
            (true, false) => format!("n{place}[0]"),
            (true, true) => format!("n{place}[1]/0.1"),
        };
        self.people.keys().map(path).collect()
    }
}

/// A question ends with an answer that fits it, and what is dropped is of a map or a loop that has failed.
pub(crate) fn examine(order: &Order, events: &[Recorded], tally: &mut Tally) {
    for recorded in events {
        let Event::WaitCompleted(ended) = &recorded.event else { continue };
        let asks = place_of(ended.node.node().as_str()).is_some_and(|place| order.program.people.contains_key(&place));
        if !asks {
            continue;
        }
        let right = match &ended.by {
            WaitEnd::Signal { payload, .. } => payload.as_str().is_some(),
            WaitEnd::Dropped => ended.node.item().is_some() || !ended.node.is_outside_loop(),
            WaitEnd::Time => true,
        };
        tally.case("T7", right, || format!("{} {}: its question ended with {:?}", order.job, ended.node, ended.by));
    }
}
