use aetheris_model::{bugs::Bound, config::*, search::run};
use std::time::Duration;
fn main() {
    let secs: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let filter = std::env::args().nth(2);
    let b = Bound { first: false, limit: Some(Duration::from_secs(secs)), threads: 1 };
    let once: &'static [Step] = &[Step::Once(&[Doubts::Human])];
    let oncew: &'static [Step] = &[Step::Once(&[Doubts::Wait, Doubts::Reconcile])];
    let idem: &'static [Step] = &[Step::Idempotent];
    let wait: &'static [Step] = &[Step::Wait { deadline: true }];
    let two: &'static [Step] = &[Step::Once(&[Doubts::Human]), Step::Wait { deadline: true }];
    for (n, p) in [("once", once), ("oncew", oncew), ("idem", idem), ("wait", wait), ("two", two)] {
        let base = Config { slow: 0, lost: 1, signals: 1, ..Config::calm(&[p]) };
        for (m, c) in [
            ("calm", base.clone()),
            ("crash1", Config { crashes: 1, ..base.clone() }),
            ("crash2", Config { crashes: 2, ..base.clone() }),
            ("slow1", Config { slow: 1, ..base.clone() }),
            ("unk1", Config { unknown: 1, ..base.clone() }),
            ("cancel", Config { cancels: true, ..base.clone() }),
            ("slowout", Config { slow_outside: true, ..base.clone() }),
            ("c1s1u1", Config { crashes: 1, slow: 1, unknown: 1, ..base.clone() }),
            ("c2u1", Config { crashes: 2, unknown: 1, ..base.clone() }),
            ("c2u1x", Config { crashes: 2, unknown: 1, cancels: true, ..base.clone() }),
            ("c1s1u1xo", Config { crashes: 1, slow: 1, unknown: 1, cancels: true, slow_outside: true, ..base.clone() }),
            ("c2u1xo", Config { crashes: 2, unknown: 1, cancels: true, slow_outside: true, ..base.clone() }),
        ] {
            if filter.as_deref().is_some_and(|f| !format!("{n}/{m}").contains(f)) { continue; }
            let r = run(c, b);
            println!("{n}/{m} unique {} made {} depth {} {:?} exhausted {}", r.unique, r.states, r.depth, r.took, r.exhausted);
            for x in &r.breaches { println!("  BROKEN {} {}", x.law, x.steps); if filter.is_some() {println!("{}", x.story);} }
        }
    }
}
