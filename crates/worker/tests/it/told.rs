//! What the log tells: of a job's end, once, however it comes; of what a sweep does, and cannot do.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_runtime::Settings;
use aetheris_runtime::ops::Resolution;
use aetheris_scheduler::SweepOptions;
use aetheris_store::faulty::{Fault, FaultPlan, Op};
use aetheris_store::{Purpose, Scope};
use serde_json::json;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::doubt::agent;
use crate::sweeps::{Sweeping, due, expired};
use crate::world::{Act, Process, World, did_not_happen, happened, hold, unknown};

/// What is told, from `info` on.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Line>>>);

impl Heard {
    /// Those of this message.
    fn of(&self, message: &str) -> Vec<Line> {
        self.0.lock().unwrap().iter().filter(|line| line.message == message).cloned().collect()
    }

    /// How often a message begins so.
    fn times(&self, begins: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.message.starts_with(begins)).count()
    }
}

#[derive(Debug, Clone, Default)]
struct Line {
    count: String,
    job: String,
    message: String,
    status: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "job" => self.job = value,
            "message" => self.message = value,
            "jobs" | "timers" => self.count = value,
            "status" => self.status = value.trim_matches('"').to_owned(),
            _ => {}
        }
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

const WAIT: &str = "agent: a\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n    - { id: n, kind: wait, wait_type: human, correlation_key: k }\n";
const PAY: &str = "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  pay: { kind: function, function: f, timeout: 10s }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: pay }\n";

/// Brings the end of a job in one of these ways.
async fn bring(how: &str, world: &World, process: &Process, job: JobId, reached: &Notify, release: &Notify) {
    match how {
        "answered" => {
            world.until(job, &[JobStatus::Waiting]).await;
            world.signal(job, "k", json!(1)).await.unwrap();
        }
        "given up, and answered later" => {
            world.done(job).await;
            let key = world.tools.calls_of("pay")[0].key;
            let refused = Resolution { refused: true, ..did_not_happen(1) };
            world.rt.resolve(job, key, refused).await.unwrap();
            assert!(world.rt.resolve(job, key, happened(1, Json::null())).await.is_err());
        }
        "cancelled while it waits" => {
            world.until(job, &[JobStatus::Waiting]).await;
            world.rt.cancel(job).await.unwrap();
            world.rt.cancel(job).await.unwrap();
        }
        "cancelled while it runs" => {
            reached.notified().await;
            world.rt.cancel(job).await.unwrap();
            release.notify_one();
        }
        "taken back when its end was asked for" => {
            reached.notified().await;
            process.kill();
            world.rt.cancel(job).await.unwrap();
            let fence = world.state(job).await.fence;
            let holder = world.rt.store.job(Scope::System, job).await.unwrap().unwrap().holder.unwrap().instance;
            world.rt.reclaim(job, fence, aetheris_runtime::ops::Proof::Dead(holder)).await.unwrap();
        }
        "held when its end was asked for" => {
            reached.notified().await;
            process.kill();
            world.rt.cancel(job).await.unwrap();
            world.rt.hold_restored(job).await.unwrap();
        }
        "taken back too often" => {
            reached.notified().await;
            process.kill();
            let _next = world.start("next");
            world.done(job).await;
        }
        _ => {}
    }
}

/// By its run, by whoever asks for it, by time, by whoever takes it back; and what is kept with a job that has ended is no
/// second end.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_is_told_once_by_whoever_brings_it() {
    for (how, status) in [
        ("answered", JobStatus::Completed),
        ("given up, and answered later", JobStatus::Failed),
        ("cancelled while it waits", JobStatus::Cancelled),
        ("cancelled while it runs", JobStatus::Cancelled),
        ("its deadline, while it waits", JobStatus::Failed),
        ("its deadline, while it runs", JobStatus::Failed),
        ("taken back too often", JobStatus::Failed),
        ("taken back when its end was asked for", JobStatus::Cancelled),
        ("held when its end was asked for", JobStatus::Cancelled),
    ] {
        let heard = Heard::default();
        let _told = tracing::subscriber::set_default(heard.clone());
        let mut world = World::new();
        let file = match how {
            "answered" | "cancelled while it waits" => WAIT.to_owned(),
            "given up, and answered later" => agent("fail"),
            "its deadline, while it waits" => format!("deadline: 5s\n{WAIT}"),
            "its deadline, while it runs" => format!("deadline: 5s\n{PAY}"),
            _ => PAY.to_owned(),
        };
        world.put(&file).await;
        if how == "taken back too often" {
            world.rt.settings = Arc::new(Settings { max_attempts: 1, ..Settings::clone(&world.rt.settings) });
        }
        let (act, reached, release) = hold(unknown("reset"));
        world.tools.next("pay", [if how.starts_with("given up") { Act::Say(unknown("reset")) } else { act }]);
        let process = world.start("w");
        let job = world.submit("a", json!({})).await;
        bring(how, &world, &process, job, &reached, &release).await;
        assert_eq!(world.done(job).await.status, status, "{how}");
        process.kill();
        let told = heard.of("the job has ended");
        let told: Vec<_> = told.iter().map(|line| (line.job.clone(), line.status.as_str())).collect();
        assert_eq!(told, [(job.to_string(), status.as_str())], "{how}");
    }
}

/// An operator reads what a sweep cannot do: of one row that fails by itself the first time only, of many that fail for
/// the store's sake one, and with the next pass how many there were.
#[tokio::test(start_paused = true)]
async fn a_sweep_tells_what_it_cannot_do_once_and_how_much_it_was() {
    for of_timers in [true, false] {
        let (what, count, purpose) = if of_timers {
            ("a timer could not be fired", "timers could not be fired; trying again", Purpose::Timer)
        } else {
            let what = "a job could not be taken back from its holder";
            (what, "jobs could not be taken back from their holders; trying again", Purpose::Reclaim)
        };
        for (fault, failing, again) in [
            (Fault::Before, 3, "trying again"),
            (Fault::Before, 1, "trying again"),
            (Fault::Impossible, 1, "it is tried again, less and less often"),
        ] {
            let heard = Heard::default();
            let world = World::new();
            if of_timers {
                due(&world, 3).await;
            } else {
                expired(&world, 3).await;
            }
            // The first row fails for as long as a row does that is left alone in between; the store's trouble is over at once.
            let own = fault == Fault::Impossible;
            let script: Vec<_> = if own {
                [Some(fault), None, None, Some(fault), Some(fault)].to_vec()
            } else {
                vec![Some(fault); failing]
            };
            let sweeping = Sweeping::behind(&world, FaultPlan::none().script(Op::Commit(purpose), script));
            let _told = tracing::subscriber::set_default(heard.clone());
            let sweep = if of_timers {
                sweeping.timers(SweepOptions::default())
            } else {
                sweeping.leases(SweepOptions::default())
            };
            tokio::time::sleep(Duration::from_secs(20)).await;
            sweep.abort();
            assert_eq!(heard.times(&format!("{what}; {again}")), 1, "{what}, {failing}");
            assert_eq!(heard.times(what), 1, "{what}, {failing}");
            let counts: Vec<String> = heard.of(count).into_iter().map(|line| line.count).collect();
            let expected: &[&str] = if failing > 1 { &["3"] } else { &[] };
            assert_eq!(counts, expected, "{what}, {failing}");
            let taken = heard.times("a job was taken back from its holder");
            assert_eq!(taken, if of_timers { 0 } else { 3 }, "{failing}");
        }
    }
}
