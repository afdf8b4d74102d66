//! Drawing the steps of programs.

use std::collections::BTreeSet;

use aetheris_core::hash::Hash;
use aetheris_core::plan::EffectClass;
use aetheris_testing::random::Random;

use crate::program::{Act, Join, Kind, Policy, Rule, Step};
use crate::services::QUEUE_MS;

/// A seed that follows from what is drawn so far.
pub(crate) fn drawn(steps: &[Step]) -> u64 {
    let drawn = Hash::of(format!("{steps:?}").as_bytes());
    drawn.as_bytes().iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// Some programs run steps beside each other, and wait for less: how many. What is drawn of the others is not touched by it.
pub(crate) fn beside_each_other(steps: &mut [Step]) -> u64 {
    let mut random = Random::new(drawn(steps));
    if steps.len() < 3 || !random.chance(400) {
        return 0;
    }
    for (place, step) in steps.iter_mut().enumerate() {
        step.needs.retain(|need| need + 1 != place || random.chance(350));
        // A set with a wait in it runs one step at a time.
        if random.chance(700)
            && matches!(step.kind, Kind::Sleep(_) | Kind::Timer(_) | Kind::Wait { .. })
            && place % 3 > 0
        {
            step.kind = draw_tool(&mut random, EffectClass::AtMostOnce);
        }
    }
    random.between(2, 4)
}

/// In some programs nodes may fail, or wait for some of those that they need. What is drawn of the others is not touched by
/// it.
pub(crate) fn rules(steps: &[Step]) -> Vec<Rule> {
    let mut random = Random::new(drawn(steps).rotate_left(17));
    if steps.len() < 2 || !random.chance(300) {
        return Vec::new();
    }
    let rule = |step: &Step| {
        let needs = step.needs.len();
        let join = match random.below(10) {
            0..=2 if needs > 1 => Join::Any,
            3..=4 if needs > 1 => Join::Quorum(usize::try_from(random.between(1, 2)).unwrap_or(1)),
            _ => Join::All,
        };
        Rule { join, may_fail: random.chance(500) }
    };
    steps.iter().map(rule).collect()
}

/// In some programs the input of a node has a value that nobody can compute again. What is drawn of the others is not touched
/// by it.
pub(crate) fn drawing(steps: &[Step]) -> BTreeSet<usize> {
    let mut random = Random::new(drawn(steps).rotate_left(43));
    if !random.chance(200) {
        return BTreeSet::new();
    }
    let can = |step: &Step| matches!(step.kind, Kind::Tool { .. } | Kind::Model | Kind::Transform);
    let places = steps.iter().enumerate().filter(|(_, step)| can(step)).map(|(place, _)| place);
    places.filter(|_| random.chance(600)).collect()
}

pub(crate) fn draw_step(random: &mut Random, place: usize, earlier: &[Step]) -> Step {
    let mut needs: Vec<usize> = Vec::new();
    if let Some(last) = place.checked_sub(1) {
        if random.chance(750) {
            needs.push(last);
        }
        for need in 0..last {
            if random.chance(200) {
                needs.insert(0, need);
            }
        }
    }
    needs.sort_unstable();
    needs.dedup();
    let kind = draw_kind(random);
    let tries = u32::try_from(random.between(1, 4)).unwrap_or(1);
    let backoff = match random.below(3) {
        0 => random.between(10, 200),
        1 => random.between(200, 700),
        _ => random.between(700, 4_000),
    };
    // Skips are for plans in which something is left to do.
    let skipped = !earlier.is_empty() && random.chance(70);
    Step { backoff, kind, needs, tries, skipped }
}

fn draw_kind(random: &mut Random) -> Kind {
    match random.below(100) {
        0..=24 => draw_tool(random, EffectClass::AtMostOnce),
        25..=36 => draw_tool(random, EffectClass::Idempotent),
        37..=46 => draw_tool(random, EffectClass::Pure),
        47..=54 => Kind::Model,
        55..=74 => {
            let deadline = random.chance(500).then(|| random.between(500, 40_000));
            let go_on = deadline.is_some() && random.chance(700);
            let (park, human) = (random.chance(300), random.chance(400));
            Kind::Wait { deadline, go_on, park, human, keyed_by: None, strict: false }
        }
        75..=80 => Kind::Timer(random.between(50, 20_000)),
        81..=88 => Kind::Sleep(random.between(10, 20_000)),
        89..=95 => Kind::Transform,
        _ => Kind::Condition,
    }
}

fn draw_tool(random: &mut Random, class: EffectClass) -> Kind {
    let some = u32::try_from(random.between(1, 3)).unwrap_or(1);
    let act = match random.below(20) {
        0..=1 => Act::RefuseFirst(some),
        2 => Act::Refuse,
        3..=4 => Act::LoseFirst(some),
        5 => Act::SlowFirst(some),
        _ => Act::Good,
    };
    let mut policies = Vec::new();
    if class == EffectClass::AtMostOnce {
        if random.chance(300) {
            policies.push(Policy::Wait(random.between(100, 8_000)));
        }
        if random.chance(500) {
            // A service that only looks bounds how long a call may stand in its queue; one that refuses needs no bound.
            let settle = random.between(QUEUE_MS + 100, 20_000);
            policies.push(if random.chance(600) { Policy::Reconcile(settle) } else { Policy::Refuse });
        }
        if random.chance(500) {
            policies.push(Policy::Human);
        }
    }
    Kind::Tool { act, class, policies, timeout: random.between(300, 6_000) }
}
